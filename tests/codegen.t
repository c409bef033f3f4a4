#!/bin/sh
# Where machine code comes from must not show in what a program prints: code generators that fail, caches that
# are damaged, shared or absent, kernels that were installed.
. "$srcdir/tests/tap.sh"
work=$builddir/tests/codegen.$$
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work"

# run NAME=VALUE...: the program with an environment; what it prints and says is in $work/out and $work/err
run() {
  env CKL_CPU=native CKL_CACHE= CKL_KERNELS= "$@" ./ckl run --log=jit --counts "$srcdir/tests/jit/few.ckl" >"$work/out" 2>"$work/err"
}
counter() { awk -v c="$1" '$1 == c { print $2 }' "$work/err"; }
same() { cmp -s "$work/want" "$work/out" || { echo 'it prints'; cat "$work/out" "$work/err"; }; }

CKL_CPU=reference ./ckl run "$srcdir/tests/jit/few.ckl" >"$work/want" 2>"$work/err"
tap_status $? 'the reference evaluator runs the program' "$work/err"

run CKL_CODEGEN=
tap_empty "$(same; [ "$(grep -c 'warning.*without machine code.*CKL_CODEGEN' "$work/err")" = 1 ] || cat "$work/err")" \
  'without a code generator it prints the same, and says so once'
run CKL_CODEGEN= CKL_CPU=reference
tap_empty "$(same; grep warning "$work/err")" 'but not where the reference evaluator was asked for'
run CKL_CODEGEN= CKL_CPU=
tap_empty "$(same; grep warning "$work/err")" 'or where nothing is worth machine code'
run CKL_CODEGEN=/no/such/program
tap_empty "$(same; grep -q 'warning.*/no/such/program' "$work/err" || cat "$work/err")" \
  'a code generator that is not there is named'
if [ ! -x ckl-codegen ]; then
  tap_done
  exit
fi

run A=
tap_empty "$(same; [ "$(counter jit.generated)" -gt 2 ] || cat "$work/err")" 'generated code prints the same'
for how in abort fatal garbage; do
  run CKL_CODEGEN_TEST=$how
  tap_empty "$(same; [ "$(counter jit.generated)" = 0 ] || cat "$work/err")" "a code generator that fails ($how) does no harm"
done
printf '%s\n' 'let x = normal([20])' 'x *' '  3' 'let y = 1 + 1' 'print(y)' >"$work/astray.in"
env CKL_CPU=native CKL_CACHE= CKL_KERNELS= CKL_CODEGEN_TEST=astray CKL_CHECK_ADDRESS=1 ./ckl repl <"$work/astray.in" >"$work/out" 2>&1
tap_empty "$(grep -q '^error\[bug-1\]: kernel [0-9a-f]* would leave b1 (of 1 elements) at element 4096: `%4 = load f32 b1 %1` *repl:1:1' "$work/out" &&
  grep -q '^ *1 | x \*' "$work/out" && grep -q '^2$' "$work/out" || cat "$work/out")" \
  'where addresses are checked, one outside of its buffer is an error with its place, and the session goes on'
cat >"$work/killed" <<'EOF'
#!/bin/sh
# a code generator that is killed soon after it was started
"$REAL" <&0 & sleep 0.02
kill -9 $!
kill -9 $$
EOF
chmod +x "$work/killed"
run CKL_CODEGEN="$work/killed" REAL="$builddir/ckl-codegen"
tap_empty "$(same)" 'a code generator that is killed does no harm'

cache=$work/cache
for process in 1 2 3 4; do
  (
    env CKL_CPU=native CKL_CACHE="$cache" CKL_KERNELS= ./ckl run "$srcdir/tests/jit/few.ckl" >"$work/out.$process" 2>&1
    cmp -s "$work/want" "$work/out.$process" || cat "$work/out.$process" >"$work/bad.$process"
  ) &
done
wait
tap_empty "$(cat "$work"/bad.* 2>/dev/null)" 'four processes fill one cache at once'
run CKL_CACHE="$cache"
tap_empty "$(same; [ "$(counter jit.generated)" = 0 ] && [ "$(counter jit.from_disk)" -gt 2 ] || cat "$work/err")" \
  'the next one finds all code there'
for file in "$cache"/*; do echo damaged >>"$file"; done
run CKL_CACHE="$cache"
tap_empty "$(same; [ "$(counter jit.from_disk)" = 0 ] && [ "$(counter jit.generated)" -gt 2 ] || cat "$work/err")" \
  'damaged files are made again'
chmod 755 "$cache"
run CKL_CACHE="$cache"
tap_empty "$(same; [ "$(grep -c 'open to others' "$work/err")" = 1 ] || cat "$work/err")" \
  'a cache that others may read is not used, which is said once'
run CKL_CACHE=/proc/none/ckl
tap_empty "$(same; [ "$(grep -c 'not kept on disk' "$work/err")" = 1 ] || cat "$work/err")" \
  'a cache that cannot be made is said once'

mkdir "$work/texts" "$work/kernels"
run CKL_CODEGEN= CKL_RECORD_KERNELS="$work/texts"
level=$(ls kernels-*.bin | sed 's/kernels-//; s/.bin//')
for l in $level; do
  ./ckl-codegen --archive "$work/kernels/kernels-$l.bin" "$l" "$work"/texts/*.ckk >"$work/log" 2>&1
  tap_status $? "recorded kernels are compiled for $l" "$work/log"
done
run CKL_KERNELS="$work/kernels"
tap_empty "$(same; [ "$(counter jit.generated)" = 0 ] && [ "$(counter jit.installed)" -gt 2 ] || cat "$work/err")" \
  'and found'
run CKL_KERNELS="$work/kernels" CKL_CODEGEN=
tap_empty "$(same; [ "$(counter jit.installed)" -gt 2 ] || cat "$work/err")" 'without a code generator too'
for f in "$work"/kernels/*; do
  dd if=/dev/zero of="$f" bs=1 seek=3000 count=20000 conv=notrunc 2>/dev/null
done
run CKL_KERNELS="$work/kernels"
tap_empty "$(same; [ "$(counter jit.generated)" -gt 0 ] || cat "$work/err")" 'damaged ones are made again'

# single operations of script and functions of the library: their code was installed
cat >"$work/script.ckl" <<'EOF'
seed(1)
let labels = randint(100, [400])
for t in list(f32, f64) {
  var x = normal([400, 100], dtype = t)
  let w = normal([100, 60], dtype = t)
  let b = normal([60], dtype = t)
  var total = 0.0
  for step in 0..30 {
    let y = relu(x @ w + b)
    let centred = (y - mean(y, axis = 0)) / (std(y, axis = 0) + 1e-3)
    total += f64(mean(softmax(x)) + sum(centred * centred) + max(layer_norm(x)) + cross_entropy(x, labels))
    total += mean(f64(argmax(y, axis = 1))) + sum(f64(x < 0.5))
    total += f64(sum(where(x > 0, x, 0)) + sum(cumsum(x)) + y.var())
    x = clamp(x * 1.01 - exp(-abs(x)) / 100, -3.0, 3.0)
  }
  print(total)
}
let table = normal([1000, 64])
let ids = randint(1000, [900])
var odd = 0
for step in 0..30 {
  let rows = table[ids]
  odd += sum(randint(9, [20000]) % 2) + i64(sum(rows * rows) > 0) + i64(any(isnan(concat(list(rows, rows)))))
}
print(odd)
EOF
./ckl run --interpret "$work/script.ckl" >"$work/want" 2>"$work/err"
tap_status $? 'a program of single operations' "$work/err"
env CKL_CPU= CKL_CODEGEN= CKL_CACHE= ./ckl run --counts "$work/script.ckl" >"$work/out" 2>"$work/err"
tap_empty "$(same; grep warning "$work/err"; [ "$(counter jit.runs)" -gt 300 ] || cat "$work/err")" \
  'runs by code that was installed'

echo 'no kernel' >"$work/texts/bad.ckk"
./ckl-codegen --archive "$work/bad.bin" x86-64 "$work"/texts/*.ckk >"$work/log" 2>&1
tap_empty "$([ $? = 1 ] && grep -q bad.ckk "$work/log" && [ ! -e "$work/bad.bin" ] || cat "$work/log")" \
  'an archive with a bad text is not written'
head -c 100000 /dev/urandom | ./ckl-codegen >"$work/log" 2>&1
tap_empty "$([ $? = 1 ] || echo 'it goes on')" 'a code generator that hears nonsense ends'
tap_done
