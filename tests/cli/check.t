#!/bin/sh
# ckl check, ckl test and ckl fmt.
. "$srcdir/tests/cli/common.sh"

echo 'fn f(x: f32[3]) -> f32 = sum(x)
print("must not run")' >good.ckl
echo 'print(undefined)' >bad.ckl
gives 0 'a program that is fine' "$ckl" check good.ckl
silent out 'it does not run'
silent err 'nothing is said'
gives 1 'one that is wrong' "$ckl" check bad.ckl
says err 'error[name-' 'it says why'
cat >sizes.ckl <<'EOF'
fn four(x: f32[4]) = x * 2
fn fits[N](x: f32[N], y: f32[5]) = four(x[1:]) + (x + y)[1:]
fn tail[N](x: f32[N], y: f32[6]) = four(x[1:]) + (x + y)[1:]
EOF
echo 'fn empty(x: f32[0]) = x * 2
fn g[N](x: f32[N], y: f32[0]) = empty(x) + x + y' >zero.ckl
gives 0 'a size that a number decides may be 0' "$ckl" check zero.ckl
gives 1 'a size that a number in a signature decides' "$ckl" check sizes.ckl
says err 'f32[5] and f32[6]' 'is that number in the rest of the function'
tap_empty "$(grep 'sizes.ckl:2' err)" 'the other function has one, too'
gives 1 'several files' "$ckl" check good.ckl bad.ckl good.ckl
gives 1 'ckl check -v' "$ckl" check -v good.ckl bad.ckl
says out 'good.ckl: fine' 'says what is fine'
says out 'bad.ckl: 1 error' 'and what is not'
gives 1 'as JSON' "$ckl" check --json bad.ckl
tap_empty "$(grep -v '^{.*}$' err)" 'an object per line'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do echo "let x$i = y$i"; done >many.ckl
gives 1 '19 errors' "$ckl" check many.ckl
tap_empty "$(grep '^note' err)" 'are all'
for i in 1 2 3; do echo "let z$i = y$i"; done >>many.ckl
gives 1 '22 errors' "$ckl" check many.ckl
says err 'note: what comes after 20 errors' 'are cut, and a note says so'
gives 1 'as JSON' "$ckl" check --json many.ckl
says err '{"severity":"note","message":"what comes after 20' 'the note is an object, too'

echo 'fn f(x: int) -> int = x + 1
test "adds one" { assert f(1) == 2 }
test "adds two" { assert f(1) == 3 }
test "adds three" { assert f(1) != 3 }' >tests.ckl
gives 1 'a test that fails' "$ckl" test tests.ckl
says out '2 passed, 1 failed' 'the sum'
says out 'FAIL tests.ckl: adds two' 'the one that fails'
says out 'f(1) == 3' 'and why'
gives 0 'tests by title' "$ckl" test --filter=one tests.ckl
says out '1 passed, 0 failed' 'the sum'
gives 1 'a title that is none' "$ckl" test --filter=nothing tests.ckl
says err nothing 'it says so'
echo 'fn g(x: f32, y: f32) -> f32 = grad(x * x, y)
test "first" {
  after_backward(fn() { print("a hook of the first test") })
  let big = uniform([1000, 1000])
  let x = track(f64([1, 2]))
  print(g(f32(2.0), f32(3.0)) + sum(f32(grad(sum(x * x), x))))
}
test "second" {
  let x = track(f64([1, 2]))
  print("second", grad(sum(x * x), x), g(f32(2.0), f32(3.0)))
  print("second", counter("backward.captures"), counter("nodes"), counter("stage"))
  print("second", peak_memory() > 1000000)
}' >fresh.ckl
gives 0 'a test that leaves something behind' "$ckl" test fresh.ckl
grep second out >both
tap_empty "$(sed '1,/first$/d' out | grep hook)" 'takes its hooks with it'
grep -c warning err >warnings
tap_empty "$(grep -v -x 2 warnings)" 'each test is warned'
gives 0 'the same test alone' "$ckl" test --filter=second fresh.ckl
tap_empty "$(grep second out | diff - both)" 'prints the same'
cat >variables.ckl <<'end'
use nn
test "above" { assert sum(w) == 5 }
let w = f32([1, 2]) + 1
proc total() = sum(w)
proc above(x) = sum(x - w)
fn code() -> f32 = sum(w)
test "by functions" { assert total() == 5 and code() == 5 and ones([2]).above() == -3 }
let quiet = nn.Linear(2, 1)
test "changes" {
  quiet.b = ones([1])
  bump()
  assert same(quiet.b, ones([1])) and count == 1
}
test "anew" { assert same(quiet.b, zeros([1])) and count == 0 }
var count = 0
proc bump() { count += 1 }
print("not here")
let half = f32(7)
let half = { print("made"); half / 2 }
let (p, {q}) = (half, (q = half * 2))
model M(n: int) {
  let w = zeros([n])
  fn half() -> f32 = sum(w)
}
test "patterns" { assert q == 7 and p == 3.5 }
test "other things of that name" { let half = 3; assert half == 3 and size(M(half).w) == 3 }
let draw = normal([2])
test "draws" { print("drawn", draw) }
test "the same draws" {
  seed(9)
  print("drawn", draw)
}
end
gives 0 'tests that read variables of the file' "$ckl" test variables.ckl
says out '8 passed, 0 failed' 'all pass'
tap_status "$((1 - $(grep -c made out)))" 'a variable is made for the tests that read it' out
tap_empty "$(grep 'not here' out)" 'other statements do not run'
grep '^drawn' out | sort -u | wc -l >drawn
tap_empty "$(grep -v -x ' *1' drawn)" 'the draws of a variable are those of seed 0'
cat >unmade.ckl <<'end'
let net = (w = ones([2]))
let text = read_text("nowhere.txt")
fn f() -> f32 = sum(net.w)
test "fine" { assert f() == 2 }
test "file" { assert text == "" }
var state = zeros([2])
state[0] = 1
proc g() = state
test "state" { g() }
end
gives 1 'tests whose variables cannot be made' "$ckl" test unmade.ckl
says out '1 passed, 2 failed' 'the others run'
says out 'nowhere.txt: no such file' 'the error of a value'
says out 'a test does not see what becomes of `state`' 'a variable that a statement changes'
gives 0 'a file without tests' "$ckl" test good.ckl
says out '0 passed, 0 failed' 'the sum'
gives 1 'tests of a wrong file' "$ckl" test bad.ckl
says err 'error[' 'it says why'

printf 'let   x=1+2\n\n\n\n# note\nprint( x )\n' >ugly.ckl
cp ugly.ckl ugly2.ckl
gives 1 'ckl fmt --check' "$ckl" fmt --check ugly.ckl
says out ugly.ckl 'names the file'
tap_empty "$(cmp ugly.ckl ugly2.ckl)" 'and leaves it'
chmod 640 ugly.ckl
gives 0 'ckl fmt' "$ckl" fmt ugly.ckl
says ugly.ckl 'let x = 1 + 2' 'the file is in style'
says ugly.ckl '# note' 'comments stay'
tap_empty "$(stat -c %a ugly.ckl | grep -v 640)" 'the mode of the file stays'
gives 0 'what is in style stays' "$ckl" fmt --check ugly.ckl
gives 0 'ckl fmt -' sh -c "'$ckl' fmt - <ugly2.ckl"
tap_empty "$(diff out ugly.ckl)" 'writes the same to standard output'
ln -s ugly2.ckl link.ckl
gives 0 'ckl fmt of a link' "$ckl" fmt link.ckl
tap_empty "$(test -L link.ckl && cmp ugly2.ckl ugly.ckl)" 'writes what it leads to'
echo 'let = ' >broken.ckl
cp broken.ckl broken2.ckl
gives 1 'a file that is wrong' "$ckl" fmt broken.ckl
tap_empty "$(cmp broken.ckl broken2.ckl)" 'stays as it is'
gives 1 'a file that is missing' "$ckl" fmt missing.ckl
tap_empty "$(ls | grep 'ckl[.]')" 'no temporary file stays'
# golden programs without an error at their end
good=$(cd "$srcdir" && find tests/golden -name '[!_]*.ckl' -exec grep -L '^#!' {} +)
gives 0 'golden programs that run' sh -c 'cd "$1" && exec "$2" check $3' sh "$srcdir" "$ckl" "$good"
tap_done
