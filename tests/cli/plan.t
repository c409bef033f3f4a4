#!/bin/sh
# ckl plan, ckl run --plan, --counts and --memory: what a call takes is told before it runs, to the byte.
. "$srcdir/tests/cli/common.sh"

echo 'model Net(d: int) {
  param w: f32[d, d] = eye(d)
  param v: f32[d, d] = eye(d)
  fn forward[B](x: f32[B, d]) -> f32[B, d] = checkpoint <save matmul> { exp(cumsum(sin(x @ w)) @ v) }
}
fn step[B, d](net: Net, x: f32[B, d]) {
  let loss = sum(net(x))
  update(net, map(fn(p, g) = p - 1e-3 * g, params(net), grad(loss, net)))
  loss
}
fn twice[N](x: f32[N, N], y: f32[N, N]) = sum(tanh(x @ y))
let net = Net(64)
let x = ones([args("rows", 32), 64])
let loss = step(net, x)
print(loss)' >net.ckl

# row S1.26 policy-readable
gives 0 'ckl plan tells of the first call' "$ckl" plan net.ckl step
says out 'plan of step' 'by its name'
says out '<save matmul>' 'with the policy of each block'
says out 'saved       policy' 'who decided what'
says out recomputed 'what is computed again'
echo 'fn f(x: f32[8, 64], w: f32[64, 64]) -> f32 = sum(checkpoint <save h as u8> {
  let h = x @ w
  tanh(h) * h
} ** 2)
f(ones([8, 64]), track(ones([64, 64])))' >narrow.ckl
gives 0 'a narrow value is in the plan' "$ckl" plan narrow.ckl f
says out ' 576  saved as u8  policy' 'with the bytes of its codes and scales'
gives 0 'a method is Model.method' sh -c "echo 'net(x)' | cat net.ckl - >call.ckl; '$ckl' plan call.ckl Net.forward"
says out 'plan of forward and its gradient' 'it is planned with its backward'
gives 0 'words of the program may follow' "$ckl" plan net.ckl step rows=8
says out '2,048' 'they arrive'
gives 0 'types stand for arguments' "$ckl" plan net.ckl twice 'f32[8, 8]' 'f32[8, 8]'
says out 'plan of twice and its gradient' 'and nothing is run'
gives 1 'a type too few' "$ckl" plan net.ckl twice 'f32[8, 8]'
says err 'there is no TYPE for the parameter `y` of `twice`' 'the parameter shows'
says err 'net.ckl:11:27' 'where it stands'
gives 1 'a type too many' "$ckl" plan net.ckl twice f32 f32 f32
says err 'takes 2 arguments by position, not 3' 'is an error, too'
gives 0 'as JSON' "$ckl" plan --json net.ckl step
says out '"function": "step"' 'one object'
says out '"becomes": "recomputed"' 'with the values of the blocks'
gives 1 'a function that is not called' "$ckl" plan net.ckl nobody
says err 'error[name-' 'is an error'
tap_empty "$(grep ':[0-9]' err)" 'that has no place in the file'
gives 2 'without a function' "$ckl" plan net.ckl
says err 'usage: ckl plan' 'the usage'

# `w * x - y` is written twice, and saved once
echo 'fn miss[N](w: f32, x: f32[N], y: f32[N]) -> f32 = sum((w * x - y) * (w * x - y)) / N
let x = f32([1, 2, 3])
print(grad(miss(track(f32(0.5)), x, 2 * x), x))' >miss.ckl
gives 0 'a saved value that two names have' "$ckl" plan --json miss.ckl miss
says out '"outputs": 4, ' 'is no result'
says out '"saved": 16, ' 'and is counted once'

echo 'fn away[N](w: f32[N], x: f32[N]) -> f32 {
  let y = checkpoint <offload all> { sin(w * x) }
  sum(y * y)
}
let w = track(ones([1000]))
print(grad(away(w, ones([1000])), w)[0])' >away.ckl
gives 0 'a plan of what waits elsewhere' "$ckl" plan away.ckl away
says out '  4,000  beside the peak' 'says how much that is'
gives 0 'a run tells its plans' "$ckl" run --plan --counts net.ckl
says err 'plan of step' 'before the call'
says err 'backward.matmul' 'and counts operations of gradients'

# the peak of a run by machine code is the one that was told: with what else is alive, here nothing
peak() { sed -n 's/.*"peak": \([0-9]*\).*/\1/p' "$1"; }
"$ckl" plan --json net.ckl step >plan.json 2>err
planned=$(peak plan.json)
CKL_CPU=native "$ckl" run --counts net.ckl >out 2>err
if grep -q 'run-4' err; then
  tap_skip 'the peak is the plan' 'no code generator'
else
  got=$(sed -n 's/^data.peak *//p' err)
  echo "planned $planned, took $got" >log
  tap_status $((got != planned)) 'the peak of tensors is the plan, to the byte' log
fi

# moments are zeros without room before the first step, and share a dense copy in it
cat >train.ckl <<'END'
model Net() {
  param w: f32[100, 100] = ones([100, 100])
  fn forward[N](x: f32[N, 100]) -> f32[N, 100] = tanh(x @ w)
}
fn step[N](net: Net, opt: model, x: f32[N, 100]) { opt.step(grad(sum(net(x)), net)) }
let net = Net()
let opt = adamw(net)
let x = ones([8, 1]) @ ones([1, 100])
for i in 0..args("steps", 3) { step(net, opt, x) }
END
if "$ckl" plan --json train.ckl step >plan.json 2>err && CKL_CPU=native "$ckl" run --counts train.ckl 2>&1 | grep -q run-4; then
  tap_skip 'the peak of later calls is the plan' 'no code generator'
else
  first=$(peak plan.json) later=$(sed -n 's/.*"later": \([0-9]*\).*/\1/p' plan.json)
  CKL_CPU=native "$ckl" run --counts train.ckl steps=1 2>&1 | sed -n 's/^data.peak *//p' >one
  CKL_CPU=native "$ckl" run --counts train.ckl 2>&1 | sed -n 's/^data.peak *//p' >three
  echo "planned $first and $later, took $(cat one) and $(cat three)" >log
  tap_status $((first < $(cat one) || later != $(cat three))) 'the peak of later calls is the plan, to the byte' log
fi

echo 'fn f[N](x: f32[N, 64]) -> f32 = sum(x ** 2)' >zero.ckl
gives 0 'a call of size 0' "$ckl" plan --json zero.ckl f 'f32[0, 64]'
says out '"compiled": false, "exact": false, "bound": false' 'is the evaluator'"'"'s: nothing of its peak is told'

# The limit is one on everything: what tensors take is planned, all else (text, trees, plans, code) is there when the plan
# is tested; code is made for a plan that fits without it. held FILE LIMIT: raises the limit to what refusals tell until FILE runs, in $limit; each of them comes before
# the call that it is about
held() {
  limit=$2
  : >told
  for i in 1 2 3 4 5 6 7 8; do
    CKL_CPU=native "$ckl" run --seed=1 --memory="$limit" "$1" >out 2>err && return
    sed -n 's/^error.\(mem-[12]\).*/\1/p' err >>told
    limit=$(sed -n 's/.*--memory=\([0-9]*\).*/\1/p' err)
  done
  limit=none
}
sed 's/64/512/' net.ckl | sed 's/Net(64)/Net(512)/; s/, 64\]/, 512]/' >big.ckl
CKL_CPU=native "$ckl" run --counts big.ckl >out 2>err
all=$(sed -n 's/^bytes.peak *//p' err) data=$(sed -n 's/^data.peak *//p' err)
gives 0 'a limit at the peak of everything, with what is left for messages and lists, is enough' \
  env CKL_CPU=native "$ckl" run --memory=$((all + (128 << 10))) big.ckl
gives 1 'less than all plans need is refused' env CKL_CPU=native "$ckl" run --memory=$((all - data / 2)) big.ckl
says err 'error[mem-2]' 'before anything runs'
says err 'tensors hold' 'with the sum: tensors'
says err 'all else' 'and all else'
held big.ckl $((all - data / 2))
tap_empty "$(grep -v mem-2 told; [ "$(wc -l <told)" -le 2 ] || cat told)" 'what the message tells is enough, for the plan and then for its code'
if [ "$limit" != none ]; then
  gives 1 'hardly less is not' env CKL_CPU=native "$ckl" run --memory=$((limit - 4096)) big.ckl
  says err 'error[mem-2]' 'and is refused before the call'
fi
# what grows between calls is seen by the next one, before it runs
cat >grow.ckl <<'END'
fn f(x: f32[400, 400]) -> f32[400, 400] {
  print("runs")
  tanh(x) @ x
}
var kept = list()
for i in 0..9 { kept = push(kept, f(ones([400, 400]))) }
END
gives 1 'a limit that later calls pass' env CKL_CPU=native "$ckl" run --memory=5500000 grow.ckl
says err 'error[mem-2]: this call needs' 'is told by the plan of the call'
tap_empty "$(grep -c runs out | grep -v '^[1-6]$')" 'after those that it holds'
ran=$(grep -c runs out)
bytes=$(sed -n 's/.*--memory=\([0-9]*\).*/\1/p' err)
gives 1 'with what it asks for' env CKL_CPU=native "$ckl" run --memory="$bytes" grow.ckl
tap_empty "$([ "$(grep -c runs out)" -eq $((ran + 1)) ] || grep -c runs out)" 'that call runs, and the next is refused'
# a gradient that script takes gives the backward its cotangent
cat >cotangent.ckl <<'END'
fn f(x: f32[512, 512]) -> f32 = sum(checkpoint { sin(x) @ x } ** 2)
let x = track(ones([512, 512]) * 0.5)
let r = f(x)
print("called")
let g = grad(r, x)
print("done")
END
held cotangent.ckl 5000000
tap_empty "$(grep -v mem-2 told)" 'a limit below a call with its gradient refuses before it begins'
CKL_CPU=native "$ckl" run --memory=5000000 cotangent.ckl >out 2>err
tap_empty "$(grep called out)" 'and before the call, not between it and its gradient'
# what a call of larger sizes has kept for the next goes where a limit needs it: for a smaller call, and for script
cat >sizes.ckl <<'END'
use nn (Linear)
model Net(d: int, n: int) {
  let ls = [Linear(d, d) for i in 0..n]
  fn forward[B](x: f32[B, d]) -> f32[B, d] {
    var h = x
    for l in ls { checkpoint <auto> { h = h + gelu(tanh(l(h)) * h) } }
    h
  }
}
fn step[B](net: Net, opt: model, x: f32[B, 100]) -> f32 {
  let l = mean(net(x) ** 2 + 0.1 * dropout(x, 0.3))
  opt.step(grad(l, net))
  l
}
let net = Net(100, 3)
let opt = adam(net)
let x = normal([5000, 100])
var ls = list()
for n in list(5000, int(args("then", 5000)), 5000) {
  ls = push(ls, wrap <train> { step(net, opt, x[:n]) })
  print("{n} done")
}
END
held sizes.ckl 12000000
[ "$limit" = none ] || CKL_CPU=native "$ckl" run --seed=1 --memory="$limit" sizes.ckl then=3 >out 2>err
tap_empty "$(grep -q '^3 done' out || cat err; grep -v mem-2 told)" 'what fits more rows fits less'
cat >script.ckl <<'END'
fn f(x: f32[800, 800]) -> f32 = sum(tanh(sin(x) @ x) @ x)
let x = ones([800, 800])
print(f(x) > 0)
let y = uniform([1200, 1200])
print(sum(y) > 0)
END
held script.ckl 7000000
tap_empty "$(grep -v mem-2 told; [ "$limit" != none ] && [ "$limit" -lt 9000000 ] || echo "$limit")" \
  'what a call has kept goes where script needs it'
# where the code of a plan leaves too little, one that computes more again is taken
cat >again.ckl <<'END'
fn layer[N](h: f32[N, 64], w: f32[64, 64]) -> f32[N, 64] = tanh(h @ w) * sin(h) + exp(-h * h)
fn f[N](x: f32[N, 64], w: f32[64, 64]) -> f32 {
  var h = x
  checkpoint <budget = 100000000> { h = gelu(layer(layer(h, w), w)) }
  checkpoint <budget = 100000000> { h = cos(layer(layer(h * h, w), w)) }
  checkpoint <budget = 100000000> { h = layer(layer(sin(h), w), w) }
  sum(h * h)
}
fn g[N](x: f32[N, 64], w: f32[64, 64]) -> f32[64, 64] = grad(f(x, w), w)
let x = uniform([args("n", 256), 64])
let w = uniform([64, 64])
print(sum(g(x, w)) != 0)
END
: >wrong
for limit in 2950 3000 3050 3100 3200 3300 3400; do
  CKL_CPU=native "$ckl" run --seed=1 --log=jit --memory=${limit}000 again.ckl >out 2>err || cat err >>wrong
  cat err >>chosen
done
tap_empty "$(cat wrong)" 'no limit fails between two plans'
if grep -q 'kernels generated' chosen; then
  tap_empty "$(grep -q 'does not fit beside its code' chosen || cat chosen)" 'some were chosen when the code was there'
else
  tap_skip 'some were chosen when the code was there' 'no code generator'
fi
gives 0 'small calls need no more for code than they have' env CKL_CPU=native "$ckl" run --memory=2900000 again.ckl n=32
# what is no tensor counts as well
for program in 'var l = list(1)
for i in 0..40 { l = concat(l, l) }' 'var t = "some text that grows"
for i in 0..40 { t = "{t}{t}" }' 'fn f(x: f32) -> f32 {
  var y = x
  let k = (1.01, 0.99)
  for i in 0..4000 { for j in 0..60 { y = y * k[(i + j) % 2] } }
  y
}
print(f(1.0))' 'var r = (a = 1, b = list(2))
var l = list(r)
for i in 0..10 { r = (a = 1, b = concat(r.b, r.b)) }
for i in 0..100000 { l = push(l, (a = i, b = push(r.b, i))) }'; do
  echo "$program" >more.ckl
  gives 1 "lists, texts, records and graphs are bounded" "$ckl" run --memory=16MiB more.ckl
  says err 'error[mem-1]: out of memory' 'by the same limit'
  says err 'of the limit of 16777216 tensors hold' 'whose sum is told'
done
cat >bytes.ckl <<'END'
fn f(x: f32[9]) -> f32 = sum(tanh(x))
let p = plan(f, track(ones([9])))
print((p.peak, p.saved, p.arena), p.flops > 0)
END
"$ckl" run --interpret bytes.ckl >out 2>&1
tap_empty "$(grep -vF '(none, none, none) true' out)" 'what is not planned has no bytes'
"$ckl" plan --interpret --json bytes.ckl f 'f32[9]' >plan.json 2>err
for figure in peak later outputs arena in_use panels workspace saved spilled inner; do
  says plan.json "\"$figure\": null" "as JSON \`$figure\` is null there"
done
says plan.json '"note": "the reference evaluator runs it' 'which is said'
"$ckl" plan --json bytes.ckl f 'f32[9]' >plan.json 2>err
tap_empty "$(grep -F null plan.json)" 'of compiled code each figure is known'

# ---- all plans that a call could have
cat >chain.ckl <<'END'
fn chain(x: f32[96, 32], w: f32[32, 32]) -> f32 {
  var h = x
  for i in 0..10 { h = h + gelu(tanh(h @ w + w[0]) * h) }
  mse(h, cos(x))
}
fn plain(x: f32[96, 32], w: f32[32, 32]) -> f32[32, 32] {
  grad(chain(x, w), w)
}
fn block(x: f32[96, 32], w: f32[32, 32], bytes: int) -> f32[32, 32] {
  grad(checkpoint <budget = bytes> { chain(x, w) }, w)
}
fn auto(x: f32[96, 32], w: f32[32, 32]) -> f32[32, 32] = grad(checkpoint <auto> { chain(x, w) }, w)
fn says(x: f32[96, 32], w: f32[32, 32]) -> f32[32, 32] {
  print("once")
  grad(chain(x, w), w)
}
fn loss(x: f32[96, 32], w: f32[32, 32]) -> f32 {
  chain(x, w)
}
let x = ones([96, 1]) @ ones([1, 32])
let w = 0.1 * eye(32)
print(plain(x, w)[0, 0], block(x, w, args("bytes", 10000000))[0, 0], auto(x, w)[0, 0])
print(says(x, w)[0, 0])
loss(x, track(w))
END
# plans FILE: a line for each plan of a JSON curve
plans() { tr '{' '\n' <"$1" | grep '"peak"\|"budget"' | paste -d ' ' - -; }
figure() { sed -n 's/.*"'"$1"'": \([0-9.]*\).*/\1/p'; }
gives 0 'ckl plan --curve tells of all plans' "$ckl" plan --curve chain.ckl block
says out 'plans of block: of ' 'those that none beats'
says out '(the knee: <auto>)' 'marks the knee'
says out '1.000  <budget = ' 'and says what to write for each'
says out '  work |' 'and draws them'
"$ckl" plan --curve --json chain.ckl block >curve.json 2>err
plans curve.json >list
tap_empty "$([ "$(wc -l <list)" -ge 6 ] || cat curve.json)" 'there are many'
: >wrong
while read -r line; do
  budget=$(echo "$line" | figure budget) peak=$(echo "$line" | figure peak) time=$(echo "$line" | figure time)
  "$ckl" plan --json chain.ckl block bytes="$budget" >plan.json 2>>wrong
  [ "$peak $time" = "$(peak plan.json) $(figure time <plan.json)" ] || echo "$line" "$(cat plan.json)" >>wrong
done <list
tap_empty "$(cat wrong)" 'each budget gives the plan that it is told for, to the byte'
tap_empty "$(figure peak <list | sort -c -n 2>&1; figure work <list | sort -c -n -r 2>&1)" 'more memory is less work'
tap_empty "$([ "$(grep -c '"knee": true' list)" = 1 ] || cat list)" 'one is the knee'
"$ckl" plan --json chain.ckl auto >plan.json 2>err
tap_empty "$([ "$(peak plan.json)" = "$(grep '"knee": true' list | figure peak)" ] || cat plan.json)" 'which `auto` takes'
gives 0 'code without blocks has the curve of one' "$ckl" plan --curve chain.ckl plain
says out 'the code has no block; `checkpoint <budget = N> { .. }` goes around chain.ckl:7' 'around the line that it names'
says out 'no block' 'where the plan without one is told, too'
"$ckl" plan --curve --json chain.ckl plain >plain.json 2>err
tap_empty "$(plans plain.json | sed 's/"now.*budget"//' >one; sed 's/"now.*budget"//' list | diff one -)" 'it is that of a block there'
cat >step.ckl <<'END'
use nn (Linear)
model Net(d: int, n: int) {
  let ls = [Linear(d, d) for i in 0..n]
  fn forward[B](x: f32[B, d]) -> f32[B, d] {
    var h = x
    for l in ls { h = h + gelu(tanh(l(h)) * h) }
    h
  }
}
fn step[B](net: Net, x: f32[B, 64], y: f32[B, 64]) {
  let l = mse(net(x), y)
  update(net, map(fn(p, g) = p - 1e-3 * g, params(net), grad(l, net)))
  l
}
step(Net(64, 8), zeros([500, 64]), zeros([500, 64]))
END
sed 's/mse(net(x), y)/checkpoint <budget = 1GiB> { mse(net(x), y) }/' step.ckl >within.ckl
"$ckl" plan --curve --json step.ckl step >one.json 2>err
"$ckl" plan --curve --json within.ckl step >two.json 2>err
for f in one two; do plans $f.json | sed 's/"now.*budget"//' >$f; done
tap_empty "$(diff one two; [ "$(wc -l <one)" -ge 6 ] || cat one)" 'also of a model'
gives 0 'a gradient that is to come' "$ckl" plan --curve chain.ckl loss
says out 'plans of loss and its gradient' 'has its two halves planned'
says out 'goes around chain.ckl:18' 'and the block is in the function'
gives 0 'a function without a gradient' "$ckl" plan --curve chain.ckl chain 'f32[96, 32]' 'f32[32, 32]'
echo 'fn f(x: f32[9]) = sum(x * x)
print(f(ones([9])))' >none.ckl
gives 0 'a call without a gradient' "$ckl" plan --curve none.ckl f
says out 'no gradient is taken' 'has no curve'
gives 0 'nor has the reference evaluator one' "$ckl" plan --curve --interpret chain.ckl plain
says out 'the reference evaluator has no plans' 'which is said'
gives 0 'the drawing' "$ckl" plan --svg=curve.svg chain.ckl plain
says curve.svg '<circle' 'is written as SVG'
gives 1 'where that fails' "$ckl" plan --svg=none/curve.svg chain.ckl plain
says err 'cannot write `none/curve.svg`' 'it is an error'
for fn in block loss; do
  if CKL_CPU=native "$ckl" plan --measure --json chain.ckl $fn >curve.json 2>err && ! grep -q run-4 err; then
    plans curve.json >list
    tap_empty "$([ "$(figure peak <list)" = "$(figure measured <list)" ] || cat list)" "measured peaks of $fn are the planned ones"
    tap_empty "$(grep -v '"ms": [0-9]' list)" 'each with its time'
  else
    tap_skip 'measured peaks are the planned ones' 'no code generator'
  fi
done
gives 0 'what prints' "$ckl" plan --measure chain.ckl says
says out 'not measured: it has effects that would happen again: `print`' 'is not run'

# one text, blocks of several sizes: the budget is that of the largest
cat >sizes.ckl <<'END'
fn layer[N](x: f32[N, 32], w: f32[32, 32], bytes: int) -> f32 {
  let y = checkpoint <budget = bytes> {
    let a = sin(x @ w) * exp(x)
    cumsum(a) * tanh(a)
  }
  sum(y ** 2)
}
fn all(x: f32[96, 32], w: f32[32, 32], bytes: int) -> f32[32, 32] {
  grad(layer(x[:16], w, bytes) + layer(x, w, bytes) + layer(x[:32], w, bytes), w)
}
print(all(ones([96, 32]), 0.1 * eye(32), args("bytes", 10000000))[0, 0])
END
"$ckl" plan --curve --json sizes.ckl all >curve.json 2>err
plans curve.json | grep '"by_budget": true' >list
tap_empty "$([ "$(wc -l <list)" -ge 2 ] || cat curve.json)" 'blocks of several sizes have a curve'
: >wrong
while read -r line; do
  "$ckl" plan --json sizes.ckl all bytes="$(echo "$line" | figure budget)" >plan.json 2>>wrong
  [ "$(echo "$line" | figure peak)" = "$(peak plan.json)" ] || echo "$line" "$(cat plan.json)" >>wrong
done <list
tap_empty "$(cat wrong)" 'whose budgets are for all of them'

# ---- the peak, and who decided
gives 0 'ckl plan --peak' "$ckl" plan --peak chain.ckl loss
says out 'forward: ' 'tells of both halves'
says out 'backward: ' 'of a gradient'
"$ckl" plan --peak --json chain.ckl plain >peak.json 2>err
use=$(figure in_use <peak.json)
sum=$(tr '{' '\n' <peak.json | figure bytes | awk '{ s += $1 } END { print s }')
arena=$("$ckl" plan --json chain.ckl plain | figure in_use)
echo "$use $sum $arena" >log
tap_status $((use != sum || use != arena)) 'the values of the peak are what is in use' log
away=$(awk -F'"step": ' '{ print $2 + 0 }' peak.json)
tap_empty "$(tr '{' '\n' <peak.json | awk -v s="$away" -F'"first": |, "last": |}' '/"first"/ && ($2 > s || $3 + 0 < s)')" \
  'each is alive there'
cat >why.ckl <<'END'
fn f(x: f32[64, 32], w: f32[32, 32]) -> f32 {
  checkpoint {
    let first = x @ w
    let other = tanh(first) @ w
    sum(sin(other) * first)
  }
}
fn g(x: f32[64, 32], w: f32[32, 32]) -> f32 {
  checkpoint <save first> {
    let first = x @ w
    let other = tanh(first) @ w
    sum(sin(other) * first)
  }
}
let x = ones([64, 32])
let w = track(eye(32))
print(grad(f(x, w), w)[0, 0], grad(g(x, w), w)[0, 0])
END
gives 0 'ckl plan --why' "$ckl" plan --why=first why.ckl f
says out 'recomputed, by: policy (the rest), block of why.ckl:2' 'names who decided, and where'
says out '  saved instead: peak ' 'and the other choice'
saved=$("$ckl" plan --json why.ckl g | figure peak)
says out "$(echo "$saved" | sed ':a; s/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/; ta')" 'with the peak that it has'
gives 0 'what a clause says' "$ckl" plan --why=first why.ckl g
says out 'saved, by: policy, block of why.ckl:9 <save first>' 'is firm'
says out 'no other choice: a clause says so' 'as is said'
gives 0 'as JSON' "$ckl" plan --json --why=other why.ckl g
says out '"other": {"peak": ' 'too'
gives 1 'a name that is none' "$ckl" plan --why=frist why.ckl f
says err 'no value of `f` is called `frist`' 'is an error'
says err 'did you mean `first`?' 'with the nearest'
gives 2 'two questions' "$ckl" plan --peak --why=first why.ckl f
says err '--curve, --peak and --why are asked one at a time' 'are one too many'
tap_done
