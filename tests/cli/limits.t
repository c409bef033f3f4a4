#!/bin/sh
# --max-steps, --max-nodes: how long a program may go on, and how large its graphs get.
. "$srcdir/tests/cli/common.sh"

# ends TITLE PROGRAM: 1,000 steps are too few for it
ends() {
  printf '%s\n' "$2" >main.ckl
  gives 1 "$1" timeout 60 "$ckl" run --max-steps=1000 main.ckl
  says err 'error[run-5]: more than 1000 steps' 'is stopped'
  says err 'main.ckl:' 'with a place'
  says err '--max-steps=N' 'and a way out'
}
ends 'a loop without end' 'while true { }'
ends 'a loop over a range' 'for i in 0..1000000000000 { }'
ends 'a loop over a list' 'for x in zeros([2000]) { }'
ends 'a comprehension' 'var l = list(1)
for i in 0..10 { l = concat(l, l) }
let m = [x for x in l]'
ends 'a comprehension of comprehensions' 'let l = [[1 for j in list(1, 2, 3, 4)] for i in 0..1000000000]'
ends 'a sequence' 'use data (batches)
for b in batches(zeros([4000, 1]), 1) { }'
ends 'a loop of code' 'fn f(x: f32) -> f32 {
  var y = x
  while y > -1.0 { y = y * 0.5 }
  y
}
print(f(1.0))'
ends 'a loop in a loop of code' 'fn f(x: f32[2], n: i64) -> f32[2] {
  var y = x
  for i in 0..int(n) { for j in 0..int(n) { y = y * 0.5 } }
  y
}
print(f(ones([2]), i64(100)))'
ends 'recursion in two ways' 'proc f(n: int) = if n == 0 { 0 } else { f(n - 1) + f(n - 1) }
print(f(50))'
ends 'functions that a builtin calls' 'var l = list(1)
for i in 0..10 { l = concat(l, l) }
let m = map(fn(x) = x, l)'
ends 'loops that are unrolled' 'fn f(x: f32) -> f32 {
  var y = x
  for i in 0..4000 { y = y + 1.0 }
  y
}
print(f(1.0))'
ends 'hooks' 'let x = track(ones([2]))
on_grad(x, fn(g) {
  var y = g
  for i in 0..2000 { y = y + 1.0 }
  y
})
print(grad(sum(x * x), x))'

printf '%s\n' 'for i in 0..100 { }' >main.ckl
gives 0 'what is needed is enough' "$ckl" run --max-steps=101 main.ckl
gives 1 'a step less is not' "$ckl" run --max-steps=100 main.ckl
gives 1 'the session goes on' sh -c "printf 'let x = 4\nwhile true { }\nprint(x + 1)\nwhile true { }\nprint(x + 2)\n' | '$ckl' repl --max-steps=1000"
says out 5 'with what it had'
says out 6 'each time'
cat >nested.ckl <<'END'
fn f(x: f32) -> f32 {
  var y = x
  let k = (1.01, 0.99) # an item needs a constant, so the loops are unrolled
  for i in 0..4000 { for j in 0..4000 { y = y * k[(i + j) % 2] } }
  y
}
print(f(1.0))
END
gives 1 'two nested loops of code' timeout 60 "$ckl" run nested.ckl
says err 'error[graph-2]: in iteration' 'are stopped'
says err 'of 4000 of this loop the graph of `f` has' 'by the nodes of their graph'
says err 'nested.ckl:4:22' 'at the inner one'
says err 'of 4000 of this one' 'with the outer one'
gives 1 'the bound is an option' timeout 60 "$ckl" run --max-nodes=5000 nested.ckl
says err 'nodes, and 5000 are allowed' 'which counts'
gives 1 'calls count as loops do' sh -c "echo 'fn f(x: f32, n: int) -> f32 = if n == 0 { x } else { f(x * 2, n - 1) + f(x * 3, n - 1) }
print(f(1.0, 30))' >calls.ckl; timeout 60 '$ckl' run --max-nodes=5000 calls.ckl"
says err 'error[graph-2]: the graph of' 'where there is no loop'
gives 2 'no number' "$ckl" run --max-steps=many main.ckl
says err '--max-steps needs a number' 'is wrong usage'
# what a loop keeps for its gradient, or for a list, grows until the limit of memory
cat >keeps.ckl <<'END'
fn kept(x: f64[1000]) -> f64 {
  var y = x
  while sum(y) > -1.0 { y = tanh(y) + 1.0 }
  sum(y)
}
fn listed(x: f64[1000]) -> f64 {
  var (y, l) = (x, list())
  while sum(y) > -1.0 {
    y = tanh(y) + 1.0
    l = push(l, y)
  }
  sum(stack(l, most = 10).0)
}
let x = ones([1000], dtype = f64)
let e = error_of(fn() { kept(track(x)) })
print("first", e.code, e.text)
let d = error_of(fn() { listed(x) })
print("second", d.code, d.text)
print(sum(x))
END
for cpu in reference native; do
  gives 0 "loops without end keep what they can, $cpu" timeout 60 env CKL_CPU=$cpu "$ckl" run --memory=20MB keeps.ckl
  says out 'first mem-4 iteration' 'then the gradient stops'
  says out 'second mem-4 iteration' 'and the list'
  says out 'each keeps 8000 bytes' 'with what an iteration takes'
  says out '1000.0' 'and all is free again'
done

# A list of 4 * 10^5 elements fits once, not twice: what a condition or the source of a loop reads is let go before
# the body.
cat >once.ckl <<'END'
proc run() {
  var xs = []
  for i in 0..400000 { xs .= push(i) }
  for i in 0..1000 { xs .= concat(list(i)) }
  for i in 0..len(xs) { xs[i] += 1 }
  for i in 0..len(xs) { if xs[i] % 2 == 0 { xs[i] = 0 } else if xs[i] % 3 == 0 { xs[i] = 3 } }
  var i = 0
  while i < len(xs) - 1 and xs[i] >= 0 { xs[i] = -1; i += 1 }
  (xs[0], xs[5], xs[400999])
}
print(run())
END
gives 0 'what a condition has read changes where it is' timeout 60 "$ckl" run --memory=12MB once.ckl
says out '(-1, -1, 0)' 'as it should'
sed 's/^  var i = 0/  let ys = xs\n  xs[0] = len(ys)\n&/' once.ckl >twice.ckl
gives 1 'two do not fit' timeout 60 "$ckl" run --memory=12MB twice.ckl
says err 'mem-1' 'there would be two'
cat >places.ckl <<'END'
var k = 0
proc run() {
  var r = (xs = list(), n = 0)
  for i in 0..400000 { r.xs = push(r.xs, i) }
  for i in 0..1000 { r.xs = r.xs.push(i).pop().remove_at(400000 - 1).push(i) }
  var d = ["a": r.xs]
  r = (xs = list(), n = 0)
  for i in 0..1000 { d["a"] = d["a"].push(i).concat(list(i, i)).pop() }
  var rows = list(d["a"])
  d = [:]
  for i in 0..1000 { rows[k + 1 - 1] = push(pop(rows[k + 1 - 1]), len(rows[0])) }
  for i in 0..1000 { rows[-1] .= pop().push(i) }
  (len(rows[0]), rows[0][-1])
}
print(run())
END
gives 0 'a place that is written out changes where it is' timeout 60 "$ckl" run --memory=12MB places.ckl
says out '(402000, 999)' 'as it should'
cat >buffer.ckl <<'END'
model Counts() { buffer n: f64[1000000] = zeros([1000000], dtype = f64) }
let c = Counts()
proc count() {
  for i in 0..100 { c.n[i] += 1.0 }
}
count()
print(c.n[99])
END
gives 0 'as does a buffer' timeout 60 "$ckl" run --memory=10MB buffer.ckl
gives 1 'which fits once' timeout 60 env CKL_IN_PLACE=0 "$ckl" run --memory=10MB buffer.ckl
tap_done
