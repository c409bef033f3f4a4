#!/bin/sh
# What the command line shows of captured backwards.
. "$srcdir/tests/cli/common.sh"

cat >grads.ckl <<'END'
use nn (Linear)
let net = Linear(3, 3)
proc slope(n: int) {
  let x = track(ones([n, 3]))
  grad(sum(exp(net(x)) * x), x)
}
slope(4)
slope(5)
slope(1)
print(counter("backward.captures"), counter("backward.hits"))
END
# rows S3.1 log-levels, S3.2 log-option, S3.3 reasons-second-level, S3.45 capture-logged
gives 0 'a log of captures' "$ckl" run --log=backward:debug grads.ckl
says out '2 1' 'another size takes what is there'
says err 'backward: captured 4 nodes of the tape' 'a capture is told'
says err 'no backward was captured here before' 'the first one'
says err "NodeCall 0, \`sum\` of line 5: other dtypes, ranks, attributes or pattern of sizes" \
  'a size that is a constant is another pattern'
gives 0 'its first level' "$ckl" run --log=backward grads.ckl
tap_empty "$(grep -v '^backward: captured 4 nodes of the tape in [0-9.]* ms$' err)" 'tells no reasons'
gives 0 'without the log' "$ckl" run grads.ckl
silent err 'nothing is told'

cat >why.ckl <<'END'
use nn (Linear)
let net = Linear(2, 2)
let x = track(f64([1, 2]))
proc plain(p) {
  grad(sum(x * x), p)
}
plain(x)
let h = on_grad(x, fn(g) { })
plain(x)
after_backward(fn() { })
plain(x)
h.remove()
plain(x)
let v = track(f64([1, 2]))
proc chosen(p) {
  grad(sum(exp(x) * exp(v)), p)
}
chosen(x)
chosen(v)
proc inner(on: bool) {
  let y = exp(x)
  if on { on_grad(y, fn(g) { }) }
  grad(sum(y * x), x)
}
inner(false)
inner(true)
proc called() {
  grad(sum(net(ones([1, 2]))), net)
}
called()
let b = on_call(net, before = fn(dy) { })
called()
freeze(net, "b")
called()
print(counter("backward.captures"), counter("backward.hits"))
END
gives 0 'a log of reasons' "$ckl" run --log=backward:debug why.ckl
grep unlike err >reasons
cat >want <<'END'
backward: unlike the last one: NodeCall 1, `mul` of line 5: hooks on its results or params were added or removed
backward: unlike the last one: NodeCall 1, `mul` of line 16: its gradients go elsewhere
backward: unlike the last one: NodeCall 2, `exp` of line 21: hooks on its results or params were added or removed
backward: unlike the last one: NodeCall 1, `call` of line 28: another function, or the same for other types, static values, modes or hooks
backward: unlike the last one: gradients of another result, or by other params or values
END
tap_empty "$(diff want reasons)" 'hooks and frozen params are told as what they are'
says out '9 2' 'a hook that is gone leaves nothing: the first capture fits again'

# row S3.47 trace-lines
gives 0 'a trace' "$ckl" run --trace-json=trace.json grads.ckl
tap_empty "$(grep -v '^{"event":"backward.capture","file":"grads.ckl","line":5,.*}$' trace.json)" \
  'a line of JSON per capture'
tap_empty "$(grep -c 'origin=2' trace.json | grep -v '^2$')" 'nodes say which call of the tape they are'
gives 2 'a trace that cannot be written' "$ckl" run --trace-json=/nowhere/x.json grads.ckl
says err 'cannot write `/nowhere/x.json`' 'its name shows'

cat >net.ckl <<'END'
model Up(d: int) {
  param w: f32[d, d] = 1.0
  param b: f32[d]
  fn forward[B](x: f32[B, d]) -> f32[B, d] = x @ w + b
}
model Net(d: int) {
  let up = Up(d)
  fn forward[B](x: f32[B, d]) -> f32[B, d] = checkpoint { tanh(tanh(up(x)) * x) }
}
proc slope(net, n: int) {
  let y = net(ones([n, 3]))
  if n > 5 { on_grad(y, fn(g) = 2.5 * g) }
  grad(sum(y * net.up.b), net)
}
let net = Net(3)
slope(net, 4)
slope(net, 6)
END
gives 0 'a trace of two' "$ckl" run --trace-json=trace.json net.ckl
awk '{ gsub(/\\n/, "\n"); gsub(/\\"/, "\""); print }' trace.json >all
# the first one, as it was staged
sed '/^","after"/q' all >one
# rows S3.11 input-names, S3.14 input-order, S3.17 sizes-beside, S3.43 graph-name
# row S3.46 devices-listed
says one '"before":"graph "backward" {' 'the graph has a fixed name'
says one '"sizes":[4],"calls":["sum","mul","broadcast","forward"]' 'its sizes and the names of the calls stand beside it'
# the cotangent of the loss; of each call, latest first, what its backward reads: operands, then the result
perl -ne 'print "$1 $2 $3\n" if /input \{index=(\d+) .*?dims=(\[.*?\])\}.*?(origin=\d+|backward)/' one >got
printf '%s\n' '0 [] backward' '1 [?0, 3] origin=1' '2 [?0, 3] origin=1' '3 [3, 3] origin=3' '4 [3] origin=3' '5 [?0, 3] origin=3' \
  '6 [?0, 3] origin=3' | diff - got >log
tap_status $? 'inputs have numbers and types, and an order' log
cat >order.ckl <<'END'
let x = track(ones([4, 3]))
let w = track(ones([3, 2]))
grad(sum(exp(x @ w)), (x, w))
END
gives 0 'a trace of a product' "$ckl" run --trace-json=order.json order.ckl
sed '/^","after"/q; s/\\n/\n/g' order.json | sed '/","after"/q' >log
perl -ne 'print "$1 $2\n" if /input \{index=(\d+) .*?dims=(\[.*?\])\}/' log | xargs >got
tap_empty "$(echo '0 [] 1 [?0, ?1] 2 [?0, ?2] 3 [?2, ?1]' | diff - got)" 'those of one operation stand as its operands do'
gives 0 'another run' "$ckl" run --trace-json=again.json net.ckl
sed 's/"ms":[0-9.]*//' trace.json >a
tap_empty "$(sed 's/"ms":[0-9.]*//' again.json | cmp - a)" 'traces the same'
cat >sim.ckl <<'END'
let x = track(to(f32([1, 2]), "sim"))
grad(sum(x * x), x)
END
gives 0 'a trace of another device' "$ckl" run --trace-json=sim.json sim.ckl
cp sim.json log
tap_status $(($(grep -o 'device=sim' log | wc -l) < 2 || $(grep -c 'device=cpu' log) > 0)) 'shows that one' log
# row S3.18 nodes-as-written
tap_status $(($(grep -c 'const.*origin=2' one) != 1 || $(grep -c 'const.*origin=2' all) != 2)) \
  'operations stand there as they were written, what is simplified away in the first listing alone' all
# rows S3.9 graph-begins-empty, S3.25 hook-one-node
tap_empty "$(grep defer one)" 'without hooks there is no place for one'
tap_status $(($(grep -c 'defer %.*text="hooks of the tape"' all) != 2)) 'a hook is one node, before and after' all
tap_empty "$(grep -F -e 2.5 all)" 'into which nothing looks'
# rows S3.59 nodes-name-call, S4.66 layer-listed, X.4 copies-captured, X.10 copy-provenance
grep '= dot .*recomputed' one >dots
whence net.ckl one | grep recomputed >got
cat >want <<'END'
x :: alias path="net.up" origin=3 backward recomputed
w :: alias path="net.up" origin=3 backward recomputed
w :: alias path="net.up" origin=3 backward recomputed
x @ w :: dot path="net.up" origin=3 backward recomputed
b :: alias path="net.up" origin=3 backward recomputed
b :: alias path="net.up" origin=3 backward recomputed
x @ w + b :: broadcast path="net.up" origin=3 backward recomputed
x @ w + b :: add path="net.up" origin=3 backward recomputed
up(x) :: tanh path="net" origin=3 backward recomputed
END
tap_empty "$(diff want got)" 'what is computed again has its place, its layer and its call'
whence net.ckl one | grep 'path.*backward$' | sed 's/:: [a-z_]* /:: /' | uniq >got
cat >want <<'END'
tanh(up(x)) * x :: path="net" origin=3 backward
up(x) :: path="net" origin=3 backward
x @ w + b :: path="net.up" origin=3 backward
x @ w :: path="net.up" origin=3 backward
END
tap_empty "$(diff want got)" 'and so has what is not'

# row S3.51 compiled-once
cat >sizes.ckl <<'END'
proc slope(n: int) {
  let x = track(ones([n, 3]))
  grad(sum(exp(x * x) * x), x)
}
for i in 2..20 { slope(50 * i) }
END
if [ -x "$CKL_CODEGEN" ] || [ -x "$builddir/ckl-codegen" ]; then
  gives 0 'machine code of a backward' env CKL_CPU=native CKL_CACHE= CKL_KERNELS= "$ckl" run --log=jit sizes.ckl
  tap_status $(($(grep -c '^jit: a backward: ready' err) != 1)) 'is made once for all sizes' err
fi

# row X.9 saved-files-same
cat >save.ckl <<'END'
use nn (Linear)
proc saved(name: str) {
  seed(2)
  let net = Linear(3, 3)
  let x = normal([4, 3])
  for i in 0..3 {
    let y = checkpoint { tanh(net(x)) }
    update(net, params(net) - 0.1 * grad(sum(y ** 2), net))
  }
  save(net, name)
}
saved("a.safetensors")
wrap <backward plain> { saved("b.safetensors") }
wrap <backward captured> { saved("c.safetensors") }
END
gives 0 'files of both ways' "$ckl" run save.ckl
tap_empty "$(cmp a.safetensors b.safetensors; cmp a.safetensors c.safetensors)" 'are the same'
tap_done
