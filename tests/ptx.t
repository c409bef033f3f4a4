#!/bin/sh
# Kernels of programs for GPUs: a program in the emulator prints the same, and PTX is strict and taken by ptxas,
# where that is installed.
. "$srcdir/tests/tap.sh"
work=$builddir/tests/ptx.$$
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/kernels"

cat >"$work/p.ckl" <<'EOF'
fn step[N](x: f32[N], a: f32) -> f32[N] = tanh(x * a) + x / 3.0
fn total[N, M](x: f32[N, M]) -> f32 = sum(softmax(x * 2.5, axis = 1) ** 2)
fn many[N](x: f32[N]) -> f32 {
  let y = cumsum(x)
  let z = max(y, -y)
  return mean(z) + sum(sqrt(z)) * min(x)
}
fn product[N, K, M](x: f32[N, K], y: f32[K, M]) -> f32[N, M] = relu(x @ y - 1.0)
seed(3)
let x = normal([300])
print(sum(step(x, 0.5)), total(normal([20, 30])), many(x), sum(product(normal([70, 33]), normal([33, 50]))))
EOF
CKL_CPU=reference ./ckl run "$work/p.ckl" >"$work/want" 2>"$work/err"
tap_status $? 'the reference evaluator runs the program' "$work/err"
if [ ! -x ckl-codegen ]; then
  tap_done
  exit
fi

env CKL_CPU=emulator CKL_RECORD_KERNELS="$work/kernels" ./ckl run --log=jit "$work/p.ckl" >"$work/out" 2>"$work/err"
tap_empty "$(cmp -s "$work/want" "$work/out" || cat "$work/out" "$work/err"; grep 'gives up' "$work/err")" \
  'the emulator prints the same'
env CKL_CPU=native CKL_CACHE= CKL_KERNELS= CKL_RECORD_KERNELS="$work/kernels" ./ckl run "$srcdir/jit/installed.ckl" \
  >"$work/out" 2>"$work/err"
tap_status $? 'kernels of everyday functions' "$work/err"

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
for gpu in sm_80 sm_90; do
  tap_empty "$(for k in "$work"/kernels/*.ckk; do one $gpu "$k"; done)" "PTX for $gpu"
done
if [ -z "$ptxas" ]; then
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - PTX is taken by ptxas # SKIP no ptxas"
fi
tap_done
