#!/bin/sh
# What is written, drawn and printed in code stands in graphs as values: listings.
. "$srcdir/tests/cli/common.sh"

# row S4.1 pass-names
gives 2 'a pass that is none' "$ckl" opt --pass=none /dev/null
says err 'hooks remat simplify joint fuse plan lower dce cse fold verify' 'the passes have names'

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
# row S4.4 writes-are-outputs
# the result's two tensors, then p, c and n in the order of their declaration
ret=$(grep return staged | sed 's/.*return //')
# shellcheck disable=SC2086
set -- $ret
tap_empty "$([ $# -eq 5 ] || echo "$ret")" 'what is written comes after the results'
tap_empty "$(grep -c "^  $3 = version" staged | grep -v '^1$')" 'a param as it is after the call'
# row S4.56 outputs-by-tensor
tap_empty "$([ $# -eq 5 ] || echo "$ret")" 'results are counted tensor by tensor'
# rows S4.31 keys-are-inputs, S4.37 joint-input-order, S4.38 body-without-keys, S4.40 key-order
# row S4.45 keys-always
inputs=$(grep -c '= input' staged)
keys=$(grep -c '= input .*: i64\[2\]' staged)
tap_empty "$([ "$keys" -eq 2 ] || echo "$keys keys")" 'each draw has a key among the inputs'
tap_empty "$(grep '= input' staged | tail -n 2 | grep -v 'i64\[2\]')" 'behind the values, in the order of the draws'
tap_empty "$([ "$inputs" -eq 6 ] || echo "$inputs inputs")" 'and nothing else is added'
# row S4.46 tokens-chain
tap_empty "$(grep -c '= print ' staged | grep -v '^2$')" 'prints are nodes'
first=$(grep '= print ' staged | head -n 1 | sed 's/^ *\(%[0-9]*\).*/\1/')
tap_empty "$(grep '= print ' staged | tail -n 1 | grep -v " print $first " | head -n 1)" 'chained by a token'
tap_empty "$(grep '= input .*token' staged)" 'which is no argument'
# row S4.68 aliases-shown
cat >alias.ckl <<'END'
fn f(x: f32[2, 3]) {
  let y = exp(x)
  let v = reshape(y, [6])
  (y, v, y[0], v * 2.0, transpose(y), x)
}
END
gives 0 'results that share storage' "$ckl" ir alias.ckl f
# input, its alias, exp, reshape, slice and the row of it, mul, transpose; the 2 and what it is broadcast to are another
sed -n 's/^  %[0-9]* = \([a-z]*\) [^:]* : [^~]*\(~[0-9]*\)\{0,1\}.*/\1\2/p' out | xargs >got
echo 'input~1 alias~1 exp~2 reshape~2 slice~2 reshape~2 const~3 broadcast~3 mul transpose~2' | diff - got >log
tap_status $? 'say so, and no other ones' log
# row S4.41 forward-keys
cat >joint.ckl <<'END'
fn f(x: f32[4]) -> f32 = sum(dropout(x, 0.5) ** 2)
let x = track(ones([4]))
let l = wrap <train> { f(x) }
END
gives 0 'a forward that draws' "$ckl" run --dump=joint joint.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
tap_empty "$(grep -c 'input .*i64\[2\]' fore | grep -v '^1$')" 'takes its key'
tap_empty "$(grep 'input .*i64\[2\]' back)" 'the backward keeps what was drawn'
# which draw has which key, and where keys stand beside values and cotangents
cat >draws.ckl <<'END'
fn noisy(x: f32[4]) -> f32[4] {
  x * uniform([4]) + normal([4])
} backward(g) {
  g + uniform([4])
}
fn f(x: f32[4], y: f32[4]) -> f32 = sum(noisy(x) * y)
let l = f(track(ones([4])), ones([4]))
END
gives 0 'a call whose backward draws, too' "$ckl" run --dump=joint draws.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
sed -n 's/^  %[0-9]* = input {index=\([0-9]*\) .*: \([a-z0-9]*\[*[0-9]*\]*\) .*/\1 \2/p' fore back | xargs >got
echo '0 f32[4] 1 f32[4] 2 i64[2] 3 i64[2] 4 i64[2] 0 f32[4] 1 i64[2] 2 f32' | diff - got >log
tap_status $? 'takes values, then keys; its backward what was saved, keys too, then the cotangent' log
sed -n 's/.*= random \(%[0-9]*\) {kind=\([0-9]\).*/\1 \2/p' fore back | xargs >got
# in the body of the forward, in the body of the backward, in the backward half
echo '%1 0 %2 1 %3 0 %1 0' | diff - got >log
tap_status $? 'each draw has the key of its place' log
# row S4.65 nodes-know-layer
says staged 'path="m"' 'nodes know the model they come from'
# same TEXT WANTED TITLE
same() { tap_empty "$([ "$1" = "$2" ] || echo "$1, not $2")" "$3"; }
# rows S4.5 writes-at-end, S4.44 written-back-last
cat >writes.ckl <<'END'
model Counter() {
  buffer total: f32[2] = 0.0
  buffer steps: int = 0
  buffer a: f32[2] = 0.0
  buffer b: f32[2] = 1.0
  param w: f32[2] = ones()
  fn forward(x: f32[2]) -> f32[2] {
    let old = total
    w = w * 2
    let was = a
    a = b
    b = was
    total = total + x
    steps = steps + 1
    old * w
  }
}
fn two(c: Counter, x: f32[2]) -> f32[2] = c(x)
END
gives 0 'writes as outputs' "$ckl" ir --writes=outputs writes.ckl two
same "$(sed -n 's/ *return //p' out | wc -w)" 6 'follow the results: total, steps, a, b, w'
cp out outputs
gives 0 'that is how they are shown' "$ckl" ir writes.ckl two
same "$(cat out)" "$(cat outputs)" 'without the option, too'
gives 0 'writes at the end' "$ckl" ir --writes=epilogue writes.ckl two
same "$(sed -n 's/.*= write %[0-9]* //p' out | sed 's/ [^%].*//;s/ %.*//' | xargs)" '%1 %2 %3 %4' \
  'are copies into the inputs, in their order'
same "$(sed -n 's/ *return //p' out | wc -w)" 2 'beside the result and the number, which is no input'
cp out end.ckg
gives 0 'that form reads back' "$ckl" opt --pass=verify end.ckg
same "$(cat out)" "$(cat end.ckg)" 'as it was'
for pass in dce cse fold remat; do
  gives 0 "and goes through $pass" "$ckl" opt --pass=$pass end.ckg
  same "$(grep -c '= write' out)" 4 'with its writes'
done
gives 0 'a joint graph' "$ckl" ir --stage=joint --writes=epilogue writes.ckl two
same "$(awk '/^graph/ { n++ } n == 1' out | grep -c '= write')" 4 'writes in its forward half'
same "$(grep -c '= write' out)" 4 'only'
gives 2 'what follows graphs' "$ckl" ir --stage=plan --writes=epilogue writes.ckl two
says err 'a form of graphs' 'has no such form'
gives 2 'another word' "$ckl" ir --writes=none writes.ckl two
sed 's/= write %[0-9]* %1/= write %1 %1/' end.ckg >bad.ckg
gives 1 'a write that is out of order' "$ckl" opt --pass=verify bad.ckg
# rows S4.3 outputs-counted, S4.11 result-count
printf 'graph "g" {\n  %%0 = input {index=0 dtype=f32 device=cpu dims=[2]} : f32[2]\n  return %%1\n}\n' >bad.ckg
gives 1 'a graph with an output that is none' "$ckl" opt --pass=verify bad.ckg
for values in '%0 %0' ''; do
  cat >bad.ckg <<END
graph "f" {
  %0 = input {index=0 dtype=f32 device=cpu dims=[]} : f32
  %1 = lt %0 %0 : bool
  %2 = branch %1 %0 : f32
    region "yes" {
      %0 = input {index=0 dtype=f32 device=cpu dims=[]} : f32
      return %0
    }
    region "no" {
      %0 = input {index=0 dtype=f32 device=cpu dims=[]} : f32
      return $values
    }
  return %2
}
END
  gives 1 "a region that gives \`$values\` for one value" "$ckl" opt --pass=verify bad.ckg
  says err 'give different numbers of values' 'is told'
done
tap_done
