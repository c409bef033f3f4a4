#!/bin/sh
# What is written, drawn and printed in code stands in graphs as values: listings.
. "$srcdir/tests/cli/common.sh"

# row S4.1
gives 2 'a pass that is none' "$ckl" opt --pass=none /dev/null
says err 'dce cse fold remat verify' 'the passes have names'

cat >model.ckl <<'END'
model M() {
  param p: f32[2] = ones()
  buffer c: f32[2] = 0.0
  buffer n: f32[] = 0.0
  fn forward(x: f32[2], r: (a: f32[2], b: (f32[2], int))) -> (f32, f32[2]) {
    let y = dropout(tanh(x * p), 0.5)
    p = p * 2.0
    c = c + y
    n = n + 1.0
    print("first")
    print("second {sum(c)}")
    (sum(y * r.a * r.b.0), dropout(y, 0.25))
  }
}
let m = M()
let x = ones([2])
let r = wrap <train, seed 3> { m(x, (a = x, b = (x, 2))) }
END
gives 0 'a call that writes' "$ckl" run --dump=stage model.ckl
cp err staged
# row S4.4
# the result's two tensors, then p, c and n in the order of their declaration
ret=$(grep return staged | sed 's/.*return //')
# shellcheck disable=SC2086
set -- $ret
tap_empty "$([ $# -eq 5 ] || echo "$ret")" 'what is written comes after the results'
tap_empty "$(grep -c "^  $3 = stop" staged | grep -v '^1$')" 'a param as it is after the call'
# row S4.56
tap_empty "$([ $# -eq 5 ] || echo "$ret")" 'results are counted tensor by tensor'
# row S4.31 S4.37 S4.38 S4.40 S4.45
inputs=$(grep -c '= input' staged)
keys=$(grep -c '= input .*: i64\[2\]' staged)
tap_empty "$([ "$keys" -eq 2 ] || echo "$keys keys")" 'each draw has a key among the inputs'
tap_empty "$(grep '= input' staged | tail -n 2 | grep -v 'i64\[2\]')" 'behind the values, in the order of the draws'
tap_empty "$([ "$inputs" -eq 6 ] || echo "$inputs inputs")" 'and nothing else is added'
# row S4.46
tap_empty "$(grep -c '= print ' staged | grep -v '^2$')" 'prints are nodes'
first=$(grep '= print ' staged | head -n 1 | sed 's/^ *\(%[0-9]*\).*/\1/')
tap_empty "$(grep '= print ' staged | tail -n 1 | grep -v " print $first " | head -n 1)" 'chained by a token'
tap_empty "$(grep '= input .*token' staged)" 'which is no argument'
# row S4.68
says staged '~' 'values that share storage say so'
# row S4.41
cat >joint.ckl <<'END'
fn f(x: f32[4]) -> f32 = sum(dropout(x, 0.5) ** 2)
let x = track(ones([4]))
let l = wrap <train> { f(x) }
END
gives 0 'a forward that draws' "$ckl" run --dump=joint joint.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
tap_empty "$(grep -c 'input .*i64\[2\]' fore | grep -v '^1$')" 'takes its key'
tap_empty "$(grep 'input .*i64\[2\]' back)" 'the backward keeps what was drawn'
# row S4.65
says staged 'path="m"' 'nodes know the model they come from'
# row S4.3 S4.11
printf 'graph "g" {\n  %%0 = input {index=0 dtype=f32 device=cpu dims=[2]} : f32[2]\n  return %%1\n}\n' >bad.ckg
gives 1 'a graph with an output that is none' "$ckl" opt --pass=verify bad.ckg
tap_done
