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

# row S1.26
gives 0 'ckl plan tells of the first call' "$ckl" plan net.ckl step
says out 'plan of step' 'by its name'
says out '<save matmul>' 'with the policy of each block'
says out 'saved       policy' 'who decided what'
says out recomputed 'what is computed again'
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
gives 2 'without a function' "$ckl" plan net.ckl
says err 'usage: ckl plan' 'the usage'

# `w * x - y` is written twice, and saved once
echo 'fn miss[N](w: f32, x: f32[N], y: f32[N]) -> f32 = sum((w * x - y) * (w * x - y)) / N
let x = f32([1, 2, 3])
print(grad(miss(track(f32(0.5)), x, 2 * x), x))' >miss.ckl
gives 0 'a saved value that two names have' "$ckl" plan --json miss.ckl miss
says out '"outputs": 4, ' 'is no result'
says out '"saved": 16, ' 'and is counted once'

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

gives 0 'a limit at the peak is enough' env CKL_CPU=native "$ckl" run --memory="$planned" net.ckl
gives 1 'less than all plans need is refused' env CKL_CPU=native "$ckl" run --memory=300000 net.ckl
says err 'error[mem-2]' 'before anything runs'
least=$(sed -n 's/.*--memory=\([0-9]*\).*/\1/p' err)
gives 0 'what the message tells is enough' env CKL_CPU=native "$ckl" run --memory="$least" net.ckl
gives 1 'a byte less is not' env CKL_CPU=native "$ckl" run --memory=$((least - 1)) net.ckl
says err "--memory=$least" 'and tells the same'
# what grows between calls is seen by the next one, before it runs
cat >grow.ckl <<'END'
fn f(x: f32[100, 100]) -> f32[100, 100] {
  print("runs")
  tanh(x) @ x
}
var kept = list()
for i in 0..9 { kept = push(kept, f(ones([100, 100]))) }
END
gives 1 'a limit that later calls pass' env CKL_CPU=native "$ckl" run --memory=300000 grow.ckl
says err 'error[mem-2]: this call needs' 'is told by the plan of the call'
tap_empty "$(grep -c runs out | grep -v '^[1-6]$')" 'after those that it holds'
ran=$(grep -c runs out)
bytes=$(sed -n 's/.*--memory=\([0-9]*\).*/\1/p' err)
gives 1 'with what it asks for' env CKL_CPU=native "$ckl" run --memory="$bytes" grow.ckl
tap_empty "$([ "$(grep -c runs out)" -eq $((ran + 1)) ] || grep -c runs out)" 'that call runs, and the next is refused'
# a gradient that script takes gives the backward its cotangent
cat >cotangent.ckl <<'END'
fn f(x: f32[64, 64]) -> f32 = sum(checkpoint { sin(x) @ x } ** 2)
let x = track(ones([64, 64]) * 0.5)
let r = f(x)
let g = grad(r, x)
print("done")
END
gives 1 'a limit below a call with its gradient' env CKL_CPU=native "$ckl" run --memory=70000 cotangent.ckl
bytes=$(sed -n 's/.*--memory=\([0-9]*\).*/\1/p' err)
gives 0 'what is enough for the call is for its gradient' env CKL_CPU=native "$ckl" run --memory="$bytes" cotangent.ckl
gives 1 'a byte less is not' env CKL_CPU=native "$ckl" run --memory=$((bytes - 1)) cotangent.ckl
says err 'error[mem-2]' 'and is refused before the call'
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
fn step[B](net: Net, opt: model, x: f32[B, 37]) -> f32 {
  let l = mean(net(x) ** 2 + 0.1 * dropout(x, 0.3))
  opt.step(grad(l, net))
  l
}
let net = Net(37, 8)
let opt = adam(net)
let x = normal([129, 37])
var ls = list()
for n in list(129, 3, 129) {
  ls = push(ls, wrap <train> { step(net, opt, x[:n]) })
  print("{n} done")
}
END
for limit in 500 560 620 700 760 820 900 960; do
  CKL_CPU=native CKL_THREADS=1 "$ckl" run --seed=1 --memory=${limit}KiB sizes.ckl >out 2>err
  grep -q 'mem-1' err && echo "$limit KiB"
  grep -q done out && ! grep -q '^3 done' out && echo "$limit KiB: 3 rows do not fit"
done >wrong 2>&1
tap_empty "$(cat wrong)" 'no limit ends a compiled call that was begun, and what fits more rows fits less'
cat >script.ckl <<'END'
fn f(x: f32[200, 200]) -> f32 = sum(tanh(sin(x) @ x) @ x)
let x = ones([200, 200])
print(f(x) > 0)
let y = uniform([300, 300])
print(sum(y) > 0)
END
gives 0 'what a call has kept goes where script needs it' env CKL_CPU=native "$ckl" run --memory=600000 script.ckl
tap_done
