#!/bin/sh
# A tape of many operations is differentiated, recorded and freed without a C stack that grows with it: CHAIN_LENGTH of
# them, a million in check-all, on a small stack.
. "$srcdir/tests/tap.sh"
ckl=$PWD/ckl
work=$PWD/tape.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
n=${CHAIN_LENGTH:-100000}
kib=256
[ -z "${SANITIZE-}" ] || kib=1280 # frames of sanitizers are larger, and so is what ckl keeps free
ulimit -s $kib 2>/dev/null

cat >"$work/chain.ckl" <<'END'
let n = args("n", 100000)
let x = track(f64(1))
var last = 0
proc chain(hooked: bool) {
  var y = x * 1
  for i in 0..n { y = y + x }
  if hooked {
    on_grad(y, fn(g) = 2 * g)
    on_grad(x, fn(g) = g + 1)
  }
  grad(y, x)
}
let before = counter("tape.live")
print(chain(false) - n, counter("tape.live") == before)
print(chain(true) - 2 * n, counter("tape.live") == before)
END
"$ckl" run "$work/chain.ckl" n="$n" >"$work/out" 2>"$work/err"
tap_status $? "a chain of $n operations" "$work/err"
printf '1.0 true\n3.0 true\n' | diff - "$work/out" >"$work/log"
tap_status $? "its gradient, and the tape is freed" "$work/log"

cat >"$work/kept.ckl" <<'END'
let n = args("n", 100000)
let x = track(f64(1))
var y = x * 1
for i in 0..n { y = y + x }
let h = grad(y * y, x)
print(h == 2.0 * (n + 1) * (n + 1))
y = x * 1
print(counter("tape.live") < 5)
END
"$ckl" run "$work/kept.ckl" n="$n" >"$work/out" 2>"$work/err"
tap_status $? "a chain that top-level variables keep" "$work/err"
printf 'true\ntrue\n' | diff - "$work/out" >"$work/log"
tap_status $? "is freed with the variable" "$work/log"
tap_done
