#!/bin/sh
# Hooks and deferred functions in listings: where they stand, what they get, that nothing looks into them.
# rows S2.3 defer-one-node, S2.8 defer-kind-tested, S2.15 defer-named
# row S2.28 defer-not-folded
. "$srcdir/tests/cli/common.sh"

cat >f.ckl <<'END'
fn f(x: f64[2], w: f64[2]) -> f64 {
  let y = x * w
  on_grad(y, fn(g) = g * 123.5)
  let d = defer(fn(v) = 456.5 * v)
  sum(y * d(stop(w)) * d(f64([1, 2])))
}
END
T='f64[2]'
gives 0 'the staged graph' "$ckl" ir f.ckl f $T $T --stage=stage
says out 'hook %4 {text="on_grad" carry=1 index=0} : token' 'a hook of code is a node of its own'
says out '{text="defer" carry=1 index=1} : token, f64[2]' 'a deferred function is one node, with the type of its argument'
tap_empty "$(grep -e 123.5 -e 456.5 out)" 'nothing of either function is in the graph'
cp out staged
gives 0 'again' "$ckl" ir f.ckl f $T $T --stage=stage
tap_empty "$(cmp out staged)" 'the same in every run'
gives 0 'the simplified graph' "$ckl" ir f.ckl f $T $T --stage=simplify
tap_status $(($(grep -c ' = defer ' out) != 2)) 'a deferred function of a constant is no constant' out
gives 0 'the two halves' "$ckl" ir f.ckl f $T $T --stage=joint
says out '{text="on_grad" carry=1 index=0 wrt=(0)} : token, f64[2] @ 2:54-83 backward' \
  'backward passes the gradient to the hook, at its line'
tap_status $(($(grep -c 'text="on_grad"' out) != 1)) 'once, and nowhere else' out
tap_empty "$(grep ' = hook ' out)" 'a hook says something to differentiation only'

# row S2.25 node-name-kept
cat >named.ckl <<'END'
fn f(x: f64[2], w: f64[2]) -> f64 {
  let d = defer(fn(v) = 2 * v)
  let twice = d(stop(w))
  on_grad(x, d)
  sum(x * twice * d(stop(x)))
}
END
for stage in stage simplify joint; do
  "$ckl" ir named.ckl f $T $T --stage=$stage >out
  whence named.ckl out | grep -e defer -e hook >"in $stage"
done
printf '%s\n' 'd(stop(w)) :: defer name="twice"' 'on_grad(x, d) :: hook' 'd(stop(x)) :: defer' | diff - 'in stage' >log
tap_status $? 'a deferred call has the name of its value, and its place' log
printf '%s\n' 'd(stop(w)) :: defer name="twice"' 'd(stop(x)) :: defer' 'on_grad(x, d) :: defer backward' | diff - 'in joint' >log
tap_status $? 'and keeps them' log
# row S2.24 captured-are-inputs
cat >captured.ckl <<'END'
fn f(x: f64[2], n: int) -> f64 {
  let y = x * 2
  let k = stop(exp(x))
  on_grad(y, fn(g) = g * k * f64(n))
  sum(y * defer(fn(v) = v * k)(stop(y)))
}
let l = f(track(f64([1, 2])), 3)
END
gives 0 'functions that captured a tensor and a number' "$ckl" run --dump=joint captured.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
cp err log
says fore "defer $(sed -n 's/^  \(%[0-9]*\) = token.*/\1/p' fore) %7 $(sed -n 's/^  \(%[0-9]*\) = .*name="k"/\1/p' fore) {" \
  'what a deferred function captured is an input of its node'
says back "$(sed -n 's/^  \(%[0-9]*\) = .*name="k"/\1/p' back) $(sed -n 's/^  \(%[0-9]*\) = dim .*/\1/p' back) {text=\"on_grad\"" \
  'so it is with a hook, and with a number'
tap_empty "$(grep -c '= defer' err | grep -v '^2$')" 'in each half one'
# row X.3 defer-at-edge
cat >edge.ckl <<'END'
fn plain(x: f64[2]) -> f64 {
  let a = checkpoint {
    let h = tanh(x)
    sin(h) * h
  }
  sum(a * a)
}
fn hooked(x: f64[2]) -> f64 {
  let a = checkpoint {
    let h = tanh(x)
    sin(h) * h
  }
  on_grad(a, defer(fn(g) = 2 * g))
  sum(a * a)
}
fn inside(x: f64[2]) -> f64 {
  let a = checkpoint {
    let h = tanh(x)
    let d = defer(fn(v) = 2 * v)(stop(h))
    sin(h) * d
  }
  sum(a * a)
}
END
saved() { "$ckl" ir edge.ckl "$1" $T --stage=joint | grep return | head -n 1 | wc -w; }
tap_status $(($(saved plain) != $(saved hooked))) 'a hook at the edge of a block needs no value'
tap_status $(($(saved inside) != $(saved plain) + 1)) 'a deferred function in a block saves what it gave, nothing else'
tap_done
