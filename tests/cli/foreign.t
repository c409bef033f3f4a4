#!/bin/sh
# Names of Python, NumPy, PyTorch and JAX get the line of ckl that does the same: each row of lang/names/foreign.def names a
# word that `ckl help` knows, and its line passes `ckl check`.
. "$srcdir/tests/cli/common.sh"

cat >head.ckl <<'END'
use nn (Linear)
let n = 2
let x = uniform([2, 2])
let y = uniform([2, 2])
var z = uniform([2, 2])
let v = uniform([2])
let i = i64([0, 1])
let s = "a 1"
var xs = list(1, 2)
var d = ["a": 1]
let net = Linear(2, 2)
let opt = adam(net, lr = 0.1)
let loss = mean(net(x) ** 2)
END

# kind, name, word, line, note of each row, with tabs between; quotes inside are plain
sed -n 's/^\(FOREIGN\|FIELD\|ARGUMENT\|CALL\)("\(.*\)")$/\1", "\2/p' "$srcdir/lang/names/foreign.def" |
  sed 's/", "/\t/g; s/\\"/"/g' >rows
sort -u rows | cut -f1,2 | uniq -d >log
test ! -s log
tap_status $? 'no name stands there twice' log

: >words.log
: >lines.log
tab=$(printf '\t')
while IFS= read -r row; do
  name=$(printf '%s' "$row" | cut -f2) word=$(printf '%s' "$row" | cut -f3)
  line=$(printf '%s' "$row" | cut -f4) note=$(printf '%s' "$row" | cut -f5)
  case $row in
  ARGUMENT*) ;;
  *) [ -z "$word" ] || "$ckl" help "$word" >/dev/null 2>&1 || echo "$name: \`ckl help $word\` knows nothing" >>words.log ;;
  esac
  if [ -z "$line" ]; then
    [ -n "$note" ] || echo "$name: neither a line nor a note" >>words.log
    continue
  fi
  case $line in use\ *) : >line.ckl ;; *) cp head.ckl line.ckl ;; esac
  case $line in
  let\ * | use\ * | model\ * | fn\ f* | for\ * | while\ * | wrap\ * | seed* | save* | [a-z]\ =\ * | \
    [a-z]\ [-+*/]=\ * | z\[* | on_grad* | \
    type\ * | assert\ * | xs\ *=\ * | d\ .=\ *) printf '%s\n' "$line" ;;
  *) printf 'let result = %s\n' "$line" ;;
  esac >>line.ckl
  "$ckl" check line.ckl >out 2>&1 || { echo "$name: $line"; cat out; } >>lines.log
done <rows
cp words.log log
test ! -s log
tap_status $? 'each word is one of ckl' log
cp lines.log log
test ! -s log
tap_status $? 'each line passes ckl check' log

# a row for a name that ckl has by now would never be asked for
{
  "$ckl" builtins --markdown | sed -n 's/^| `\([a-z0-9_]*\)`.*/\1/p'
  cat "$srcdir"/stdlib/*.ckl "$srcdir"/stdlib/shelf/*.ckl |
    sed -n 's/^\(fn\|proc\|model\) \([A-Za-z0-9][A-Za-z0-9_]*\)[[(].*/\2/p' |
    grep -vx 'Ada.*\|linear\|power' # of modules, that mean something else there
} | sort -u >own
grep '^FOREIGN' rows | cut -f2 | sort -u | comm -12 - own >log
test ! -s log
tap_status $? 'no row stands for a name that ckl has' log

# answer LINE HELP: the line is an error that helps so, in a file and at the prompt
answer() {
  { cat head.ckl; printf '%s\n' "$1"; } >wrong.ckl
  "$ckl" run wrong.ckl >out 2>&1
  cp out log
  grep -q -F -e "= help: $2" out
  tap_status $? "in a file: $1" log
  "$ckl" repl <wrong.ckl >out 2>&1
  cp out log
  grep -q -F -e "= help: $2" out
  tap_status $? "at the prompt: $1" log
}
answer 'print(filter(xs))' '`[x for x in xs if c]`; of a tensor a mask selects'
answer 'xs.append(v + 1)' 'here it is `xs .= push(v + 1)`; of a `var`'
answer 'd.discard("a")' 'here it is `d .= remove("a")`'
answer 'print(xs.index(1))' 'here it is `find(s, "a")`; of a list'
answer 'list(1).append(2)' 'here it is `xs .= push(4)`'
answer 'print(re.split(", *", s))' 'here it is `re_split(s, ", *")`'
answer 'print(torch.split(x, 1))' 'here it is `let (a, b) = rearrange('
answer 'print(re.search("1", s).group())' 'here it is `re_find(s, "[0-9]+")`'
answer 'print(jax.random.split(key(0)))' 'here it is `fold_in(key(0), 1)`'
answer 'print(math.pi)' 'functions have no prefix: `pi`'
answer 'print(os.path.exists("a"))' 'functions have no prefix: `exists`'
answer 'print(os.cpu_count())' 'functions have no prefix, and none is called `cpu_count`'
answer 'print(np.load("x.npy"))' 'here it is `read_npy("x.npy")`'
answer 'print(np)' 'there is no module of that name'
answer 'print(open("notes.txt").read())' 'here it is `read_text("notes.txt")`'
answer 'print(d.a)' 'the value of a key is `d["a"]`'
answer 'print(xs.length)' 'here it is `len(xs)`'
answer 'print(get(d, "b", default = 0))' 'did you mean `otherwise`?'
answer 'let (u, s, w) = svd(x)' '`use linalg (svd)` brings it'
answer 'print(matrix_rank(x))' '`rank_of(a)`, with use linalg (rank_of)'
answer 'print(clip(x, 0, 1))' 'here it is `clamp(x, 0, 1)`'
answer 'for j in range(3) { print(j) }' 'here it is `for j in 0..n { print(j) }`; a range is written `0..n`'
answer 'print(arange(3))' 'here it is `iota(n)`'
answer 'print(torch.rand(2, 3))' 'here it is `uniform([2, 3])`'
answer 'print(torch.nn.functional.relu(x))' 'functions have no prefix: `relu`'
answer 'print(np.maximum(x, y))' 'here it is `max(x, y)`'
answer 'print(x.unsqueeze(0))' 'here it is `expand(x, 0)`'
answer 'print(loss.item())' 'here it is `float(loss)`; `int(n)` of ints'
answer 'loss.backward()' 'here it is `let g = grad(loss, net)`; gradients are values'
answer 'opt.zero_grad()' 'here it is `let g = grad(loss, net)`; gradients are values: there is nothing to set to zero'
answer 'print(net.parameters())' 'here it is `params(net)`'
answer 'print(x.T)' 'here it is `transpose(x)`'
answer 'print(x.grad)' 'here it is `let g = grad(loss, net)`'
answer 'print(x.shape)' 'a function is called with parentheses: `shape(x)`'
answer 'print(sum(x, dim = 1))' 'did you mean `axis`?'
answer 'let e = Embedding(3, 4)' '`use nn (Embedding)` brings it'
answer 'let e = nn.Embedding(3, 4)' '`use nn` brings the module of that name'
answer 'let e = nn.ReLU()' 'here it is `relu(x)`'
answer 'let e = torch.nn.Embedding(3, 4)' '`use nn (Embedding)` brings it'
answer 'fn f(a: Embedding) = a; print(f(net))' '`use nn (Embedding)` brings it'
answer 'let w: float32[3] = ones([3])' 'here it is `f32`'
answer 'print(s.split())' 'here it is `words(s)`; parts between blanks'
answer 'xs.sort()' 'here it is `xs .= sorted()`; of a list'
answer 'print(sorted(xs, key = len))' 'did you mean `by`?'
answer 'print(xs.count(2))' 'here it is `tally(xs)`'
answer 'print(xs.pop(0))' 'here it is `xs .= remove_at(0)`'
answer 'print(d.pop("a"))' 'here it is `xs .= remove_at(0)`; of a list, in which'
answer 'print(xs.remove(2))' 'here it is `xs .= remove_at(0)`; by place; by value'
answer 'd.update(["a": 2])' 'here it is `d .= merge(["b": 2])`'
answer 'print(x.reshape(2, 2))' 'here it is `reshape(x, [1, -1])`; a shape is one argument'
answer 'print(x.repeat(2, 1))' 'here it is `tile(v, 3)`; of a tensor, along an axis'
answer 'print(x.float())' 'here it is `f32(x)`; casts a tensor'
answer 'print(round(x, 2))' 'here it is `round(x * 100) / 100`'
answer 'print("a", sep = ",")' 'here it is `print(join('
answer 'opt.step()' 'here it is `opt.step(grad(loss, net))`'
answer 'print(xs[1:end])' 'here it is `xs[1:]`'
answer 'print(x .+ 1)' 'write them without a dot'
answer 'print(sofmax(x))' 'did you mean `softmax`?'
answer 'print(stack(v, v))' 'here it is `stack([v, v])`; of the elements of a list'
answer 'print(norm(x, 2))' 'here it is `norm(x)`; the root of the sum of squares'
answer 'print(where(x > 0))' 'here it is `nonzero(x > 0.5)`; the positions'
answer 'print(arcsin(v))' 'here it is `asin(x)`'
answer 'print(v.gt(0))' 'here it is `x > y`'
answer 'xs.reverse(); print(n)' 'here it is `xs = [e for e in reverse(xs)]`'

# a function made at the prompt is looked at when it runs
printf 'fn f(a) = clip(a, 0, 1)\nf(ones([2]))\n' | "$ckl" repl >out 2>&1
says out 'here it is `clamp(x, 0, 1)`' 'the evaluator gives the same answer'

# a method's name is no answer for a variable
printf 'print(head)\n' >variable.ckl
gives 1 'a name of a variable' "$ckl" run variable.ckl
! grep -q 'here it is' err out
tap_status $? 'a variable is not taken for a method' out
printf 'fn f(a) = a.head(1)\nf(ones([2]))\n' | "$ckl" repl >out 2>&1
says out 'here it is `x[:2]`' 'a method in a function made at the prompt'

# a function of the program that has the name of one of ckl
printf 'fn norm(s, n) = n\nprint(norm(1))\n' >norm.ckl
gives 1 'a function with a name of ckl' "$ckl" run norm.ckl
! grep -q 'squares' err out
tap_status $? 'it gets no help for the other one' err

# a name of the program is its own
printf 'fn clip(x) = min(x, 1)\nlet np = (a = 1)\nprint(clip(3), np.a)\n' >own.ckl
gives 0 'what the program declares is no name of others' "$ckl" run own.ckl

# help knows them, too
gives 0 'help of a name of other languages' "$ckl" help cat
says out 'here it is `concat([x, y])`' 'it says what ckl has'
gives 2 'a name of nobody' "$ckl" help nonsense_x
tap_done
