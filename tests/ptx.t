#!/bin/sh
# Kernels of programs for GPUs: a program in the emulator prints the same, and PTX is strict and taken by ptxas,
# where that is installed; of each PTX_EVERY-th kernel.
. "$srcdir/tests/tap.sh"
work=$builddir/tests/ptx.$$
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/kernels"

{
  cat "$srcdir/tests/jit/few.ckl"
  cat <<'EOF'
fn product[N, K, M](x: f32[N, K], y: f32[K, M]) -> f32[N, M] = relu(x @ y - 1.0)
print(sum(product(normal([70, 33]), normal([33, 50]))))
EOF
} >"$work/p.ckl"
CKL_CPU=reference ./ckl run "$work/p.ckl" >"$work/want" 2>"$work/err"
tap_status $? 'the reference evaluator runs the program' "$work/err"
env CKL_CPU=emulator CKL_RECORD_KERNELS="$work/kernels" ./ckl run --log=jit "$work/p.ckl" >"$work/out" 2>"$work/err"
tap_empty "$(cmp -s "$work/want" "$work/out" || cat "$work/out" "$work/err"; grep 'gives up' "$work/err")" \
  'the emulator prints the same'

# the digits program, three steps of it
digits() { ./ckl run "$@" "$srcdir/bench/digits.ckl" steps=3 2>&1 | sed 's/^step_ms.*//'; }
digits --interpret >"$work/want"
CKL_RECORD_KERNELS=$work/kernels
export CKL_RECORD_KERNELS
digits --device=emu >"$work/out"
unset CKL_RECORD_KERNELS
tap_empty "$(diff "$work/want" "$work/out")" 'digits are learned in the emulator'
echo 'let x = ones([4000, 4000])
print("start")
print(sum(x @ x))' >"$work/long.ckl"
timeout 60 ./ckl run --device=emu "$work/long.ckl" >"$work/out" 2>"$work/err" &
pid=$!
n=0
while [ ! -s "$work/out" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
sleep 0.5
kill -INT $pid
wait $pid
tap_empty "$(s=$?; [ $s = 130 ] || { echo "status $s"; cat "$work/err"; })" 'an interrupt ends a kernel in the emulator'
for gpu in ptx 'ptx:sm_90'; do
  ./ckl ir --stage=$gpu "$work/p.ckl" total >"$work/out" 2>"$work/err"
  tap_empty "$(grep -q '^\.target sm_[89]0' "$work/out" || cat "$work/out" "$work/err")" "ckl ir --stage=$gpu"
done
for program in "$srcdir/jit/installed.ckl" jit/elementwise.ckl; do
  env CKL_CPU=native CKL_CACHE= CKL_KERNELS= CKL_RECORD_KERNELS="$work/kernels" ./ckl run "$program" \
    >"$work/out" 2>"$work/err"
  tap_status $? "kernels of everyday functions: ${program##*/}" "$work/err"
done

# one GPU FILE: what goes wrong with a kernel, as lines
one() {
  ./ckl-codegen --ptx "$1" "$2" >"$work/k.ptx" 2>"$work/err" || cat "$work/err"
  grep -nE '\.approx|\.ftz|mad\.(rn\.)?f|(add|sub|mul|div|fma|sqrt)\.f' "$work/k.ptx"
  [ -z "$ptxas" ] || "$ptxas" -O1 -arch="$1" -o /dev/null "$work/k.ptx" 2>&1
}
ptxas=
for place in $(command -v ptxas) /usr/local/cuda/bin/ptxas; do
  [ ! -x "$place" ] || ptxas=$place
done
ls "$work"/kernels/*.ckk | awk "NR % ${PTX_EVERY:-8} == 0" >"$work/list"
for gpu in sm_80 sm_90; do
  tap_empty "$([ -s "$work/list" ] || echo 'no kernels'; while read -r k; do one $gpu "$k"; done <"$work/list")" \
    "PTX for $gpu"
done
if [ -z "$ptxas" ]; then
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - PTX is taken by ptxas # SKIP no ptxas"
fi
tap_done
