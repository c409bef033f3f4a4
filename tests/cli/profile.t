#!/bin/sh
# --profile: the time of lines of script, and of compiled code by lines of the program.
. "$srcdir/tests/cli/common.sh"

cat >main.ckl <<'END'
use nn (Linear)
let x = ones([64, 32])
let net = Linear(32, 1)
fn loss(net: Linear, x: f32[64, 32]) -> f32 =
  mse(net(x), ones([64, 1]))
proc count(n: int) {
  var sum = 0
  for i in 0..n { sum += i }
  sum
}
let opt = adam(net, lr = 0.01)
for step in 0..30 {
  opt.step(grad(loss(net, x), net))
}
print(count(300))
let failed = error_of(fn() { count("x") })
let after = 1
END
gives 0 'a profile' timeout 60 "$ckl" run --interpret --profile main.ckl
says out '44850' 'the program runs as ever'
says err 'line of script' 'a table of lines of script'
says err '30  main.ckl:13  opt.step(grad(loss(net, x), net))' 'how often, where, and the text'
says err '301  main.ckl:8  for i in 0..n { sum += i }' 'a line of a proc, with the statements on it'
says err '1  main.ckl:17  let after = 1' 'and lines behind an error that was caught'
tap_empty "$(grep 'main.ckl:[45] ' err)" 'no line of code is a line of script'
tap_empty "$(grep '<' err)" 'nor one of the library'
sum=$(awk '/main.ckl:/ { s += $2 } END { print (s > 99 && s < 101) ? "" : s }' err)
tap_empty "$sum" 'the parts are 100 percent'

if [ -x "$CKL_CODEGEN" ]; then
  gives 0 'a profile of compiled code' env CKL_CPU=native timeout 60 "$ckl" run --profile main.ckl
  says err 'Gflop/s  line' 'a table of compiled code'
  says err 'main.ckl:5 ' 'what code of the library takes is at the line that calls it'
  tap_empty "$(grep -e '<nn>' -e '<losses>' err)" 'not at its own'
fi
gives 0 'without it' timeout 60 "$ckl" run --interpret main.ckl
tap_empty "$(cat err)" 'nothing is printed'
tap_done
