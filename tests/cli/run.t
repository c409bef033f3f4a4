#!/bin/sh
# ckl run: streams, exit statuses, options, colours, pipes.
. "$srcdir/tests/cli/common.sh"

echo 'print("hello")' >hello.ckl
gives 0 'ckl run FILE' "$ckl" run hello.ckl
says out hello 'it prints'
silent err 'and nothing else'
gives 0 'ckl FILE is ckl run FILE' "$ckl" hello.ckl
says out hello 'it prints'

echo 'model Box() { param w: f32[2] = 1 }
fn total(b: Box) -> f32 = sum(b.w)' >box.ckl
ln -s box.ckl link.ckl
echo "use \"$PWD/box.ckl\" (Box)
use \"link.ckl\" (total)
print(total(Box()))" >boxes.ckl
gives 0 'a file by its path and by a link' "$ckl" run boxes.ckl
says out 2.0 'is one file'

echo 'let steps = args("steps", 3)
let name = args("name", "none")
print("{steps} {name}")' >args.ckl
gives 0 'arguments have defaults' "$ckl" run args.ckl
says out '3 none' 'the defaults show'
gives 0 'words name=value are arguments' "$ckl" run args.ckl steps=7 name=x
says out '7 x' 'they arrive'
gives 1 'an argument that is no UTF-8' "$ckl" run args.ckl "name=$(printf 'a\377')"
gives 1 'a word the program does not ask for' "$ckl" run args.ckl stpes=7
says err 'error[call-10]' 'is an error'
gives 0 'options may follow the file' "$ckl" run args.ckl steps=5 --counts
says out '5 none' 'the program runs as before'
says err bytes.peak 'counters are listed'
gives 0 'options may stand before it' "$ckl" run --device sim --memory=64MiB args.ckl
gives 1 'a memory limit is kept' sh -c "echo 'let x = uniform([1000, 1000])' >big.ckl; '$ckl' run --memory=1MiB big.ckl"
says err 'error[mem-1]: out of memory: this needs 4000064 bytes, and of the limit of 1048576 tensors hold 16 and all else' \
  'what did not fit, and what else is there'
says err 'big.ckl:1:9' 'and where'
enough=$(sed -n 's/.*= help: with `--memory=\([0-9]*\)` it goes on.*/\1/p' err)
gives 0 'what it says is enough' "$ckl" run --memory="$enough" big.ckl
gives 1 'too little for any program' "$ckl" run --memory=100kB big.ckl
says err 'ckl: --memory=100000 is too little: a session alone takes some' 'says what that takes'
gives 1 'a limit is passed in a proc of the library' sh -c "echo 'use nn (Linear)
let l = Linear(1000, 1000)' >big.ckl; '$ckl' run --memory=3MiB big.ckl"
says err 'big.ckl:2:9' 'the place is where the program calls it'

# the heap begins large, where that is allowed; sanitizers need more than these limits
for limit in '-d 20000' '-v 120000'; do
  ldd "$ckl" 2>/dev/null | grep -q asan && break
  gives 0 "under ulimit $limit" sh -c "ulimit $limit; '$ckl' run hello.ckl"
done

echo 'seed(0)
print(uniform([]))' >draw.ckl
gives 0 'a path may be spelled in several ways' "$ckl" run ./draw.ckl
says out "$("$ckl" run draw.ckl)" 'which changes no random number'

echo 'let x = ones([2, 3])
print("before")
print(x @ x)' >wrong.ckl
gives 1 'a program that is wrong' "$ckl" run wrong.ckl
says err 'error[shape-3]' 'the code shows'
says err wrong.ckl:3: 'and the place'
gives 1 'a file that is missing' "$ckl" run missing.ckl
says err missing.ckl 'its name shows'
gives 1 'a folder' "$ckl" run ./
# machine code that takes seconds is told of before it is made, once; the next run finds it
cat >wait.ckl <<'END'
fn f(x: f32[48, 8]) -> f32[8] {
  var h = x[0]
  for t in 1..48 { h = sum(tanh(x[:t + 1]), axis = 0) @ ones([8, 8]) * sin(h + x[t]) + cumsum(h * x[t], axis = 0) }
  h
}
let r = f(ones([48, 8]))
END
if [ -x "$CKL_CODEGEN" ]; then
  gives 0 'machine code of many kernels' env CKL_CPU=native CKL_THREADS=1 CKL_CACHE="$work/cold" "$ckl" run wait.ckl
  tap_empty "$([ "$(grep -c '^wait: machine code of `f` is made: ' err)" = 1 ] || cat err)" 'is told of once'
  gives 0 'the same again' env CKL_CPU=native CKL_THREADS=1 CKL_CACHE="$work/cold" "$ckl" run wait.ckl
  silent err 'finds it, and tells nothing'
else
  tap_skip 'waits are told' 'no code generator'
fi
echo 'fn f(x) { wrap <no_grad> { sum(x) } }
print(f(ones([2])))' >logs.ckl
gives 0 'all log channels' "$ckl" run --log=compile --log=load --log=wrap logs.ckl
says out 2.0 'leave the output alone'
says err 'load: logs.ckl' 'a file that is loaded is told'
says err 'wrap: no_grad' 'a block that is entered'
says err 'compile: f' 'a function that is compiled'
echo 'var i = 5
print("before")
print(ones([3])[i])
print("after")' >fails.ckl
gives 1 'a program that fails' "$ckl" run fails.ckl
says out before 'what was printed before stays'
tap_empty "$(grep after out)" 'nothing runs after the failure'
gives 1 'both on one pipe' sh -c "'$ckl' run fails.ckl 2>&1"
tap_empty "$(head -n 1 out | grep -v -x before)" 'what was printed comes before the error'

gives 1 'diagnostics as JSON' "$ckl" run --json wrong.ckl
tap_empty "$(grep -v '^{.*"code":"shape-3".*}$' err)" 'an object per line'
echo 'fn g(x: f32, y: f32) -> f32 = grad(x * x, y)
print(g(f32(2.0), f32(3.0)))' >unreached.ckl
gives 0 'a program with a warning' "$ckl" run --json unreached.ckl
says out 0.0 'it runs'
tap_empty "$(grep -v '^{"severity":"warning",.*}$' err)" 'warnings of a running program are objects too'
says err '"severity":"warning"' 'one at least'
esc=$(printf '\033')
gives 1 'colours are asked for' "$ckl" run --color=always wrong.ckl
says err "$esc[" 'and come'
gives 1 'a pipe gets none' "$ckl" run wrong.ckl
tap_empty "$(grep "$esc" err)" 'no escape in the text'
gives 0 'a program from standard input' sh -c "echo 'print(6 * 7)' | '$ckl' run -"
says out 42 'it runs'

echo 'for i in 0..100000 { print("line {i} and some more text to fill the pipe") }' >many.ckl
sh -c "'$ckl' run many.ckl; echo \$? >status" | head -n 1 >out
tap_empty "$(grep -v -x 1 status)" 'a closed pipe ends the program with status 1'
if [ -w /dev/full ]; then
  gives 1 'a full disk is status 1' sh -c "'$ckl' run hello.ckl >/dev/full"
  says err 'cannot write standard output' 'and told'
fi

echo 'print("start")
var i = 0
while true { i += 1 }' >endless.ckl
"$ckl" run endless.ckl >out 2>err &
pid=$!
n=0
while [ ! -s out ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
kill -INT $pid
wait $pid
echo "$?" >status
tap_empty "$(grep -v -x 130 status)" 'an interrupt ends the program with status 130'
says err interrupted 'and is told'
says out start 'what was printed stays'

gives 0 'a dump' "$ckl" run --dump=all hello.ckl
echo 'fn f(x: f32[2]) -> f32 = sum(x * x)
print(f(f32([1, 2])))' >fn.ckl
gives 0 'ckl run --dump=stage' "$ckl" run --dump=stage fn.ckl
says out 5.0 'the program runs'
says err mul 'the graph shows'
printf 'fn f(x: f32[6]) {\n  let (y, _) = sort(exp(x))\n  -y\n}\n' >sort.ckl
gives 0 'the loops of kernels' "$ckl" ir --stage=loops sort.ckl f 'f32[6]'
tap_empty "$(grep '^# kernel' out | tr '\n' ' ' | grep -v -x '# kernel 1: point: exp # kernel 3: point: neg ')" \
  'those before and behind a step that is none'
gives 0 'ckl run --dump=loops,ptx' env CKL_CPU=loops "$ckl" run --dump=loops,ptx fn.ckl
says err 'loop 1' 'kernels show, and what no code generator makes does not'
echo 'use nn
model Net() {
  let parts = [nn.Linear(2, 2) for i in 0..2]
  fn forward(x) = parts[1](parts[0](x))
}
let net = Net()
net(ones([1, 2]))' >layers.ckl
gives 0 'a dump of a model' "$ckl" run --dump=stage layers.ckl
says err 'path="net.parts.1"' 'nodes tell their layer'
gives 0 'ckl run --device=emu' "$ckl" run --device=emu fn.ckl
says out 5.0 'the program runs in the emulator of a GPU'
gives 0 'and on a device in two words' "$ckl" run --device emu --counts fn.ckl
says err 'jit.generated    2' 'with kernels of its own'
gives 2 '--interpret and the emulator' "$ckl" run --device=emu --interpret fn.ckl
gives 2 'a CKL_CPU that is none' env CKL_CPU=gpu "$ckl" run fn.ckl
says err 'emulator native' 'the known ones are told'
gives 2 'a stage that is none' "$ckl" run --dump=stagee fn.ckl
says err 'did you mean `stage`' 'a near one is suggested'
gives 0 'ckl ir' "$ckl" ir --stage=stage fn.ckl f
says out mul 'the graph shows'
gives 1 'ckl ir of a function that is none' "$ckl" ir --stage=stage fn.ckl g
echo 'fn f(x) = x * 2' >generic.ckl
gives 0 'ckl ir with a type' "$ckl" ir generic.ckl f 'f32[8, 3]'
says out 'f32[8, 3]' 'the type shows'
gives 1 'ckl ir with a type too many' "$ckl" ir generic.ckl f 'f32[8, 3]' 'f32[8]'
says err 'error[call-1]: `f` takes 1 argument by position, not 2' 'it says so'
gives 0 'ckl opt reads what ckl ir wrote' sh -c "'$ckl' ir --stage=stage fn.ckl f >f.ckg && '$ckl' opt --pass=dce f.ckg"
says out mul 'the graph shows'
gives 1 'ckl opt of nonsense' sh -c "echo nonsense | '$ckl' opt --pass=dce -"
says err 'error[graph-1]' 'it says so'
sed 's/ = mul .*/ = mull/' f.ckg >wrong.ckg
printf 'graph {\n  %%0 = input {index=0 dtype=f32 device=cpu dims=[]} : f32\n  %%1 = token : token\n  %%2 = defer %%1 %%0 {text="h" carry=1} : token, f32 @ 1:5-9\n  return %%2.1\n}\n' >host.ckg
gives 1 'the joint graph of what has no gradient' "$ckl" opt --pass=joint host.ckg
says err 'host.ckg:1' 'the error is in that file, whatever its nodes say'
gives 1 'a graph with a wrong line' "$ckl" opt --pass=dce wrong.ckg
says err "wrong.ckg:$(grep -n mull wrong.ckg | head -1 | cut -d: -f1):3" 'it is the line that shows'

echo 'seed(4); print(uniform([1]))' >a.ckl
echo 'print(uniform([2]))' >u.ckl
gives 0 '--seed starts the random numbers' "$ckl" run --seed=5 u.ckl
cp out first
gives 0 'the same seed again' "$ckl" run --seed=5 u.ckl
tap_empty "$(diff out first)" 'gives the same numbers'
cat >u.ckl <<'end'
seed(4)
fn pair() = (normal([2]), normal([1]))
print(pair(), normal([2]), uniform([1]), normal([1]))
end
gives 0 'draws of a file' "$ckl" run u.ckl
cp out first
cat >u.ckl <<'end'
let n = args("n", len("ab"))
seed(int(4))
fn pair() {
  let u = uniform([1])
  (normal([size(zeros([2]))]), normal([1]))
}
print(pair(), normal([n]), uniform([1]), normal([1]))
end
gives 0 'the same draws among calls of other names' "$ckl" run u.ckl
tap_empty "$(diff out first)" 'calls of other names move no draw'
gives 0 'run -v' "$ckl" run -v u.ckl
says err 'seed ' 'shows the seed'
# which loops of code stay loops
cat >u.ckl <<'end'
fn few(x: f32[2]) -> f32[2] {
  var h = x
  for i in 0..3 { h = tanh(h) }
  h
}
fn many(x: f32[2]) -> f32[2] {
  var h = x
  for i in 0..65 { h = tanh(h) }
  h
}
print(few(ones([2])), many(ones([2])))
end
loops() { CKL_UNROLL=$1 "$ckl" ir --stage=stage u.ckl $2 | grep -c ' = loop '; }
counts="$(loops '' few)$(loops '' many)$(loops 0 few)$(loops 2 few)$(loops 3 few)$(loops 65 many)"
tap_empty "${counts#011100}" 'a loop of more than 64 iterations, or CKL_UNROLL, stays one'
for page in ops errors builtins passes library; do
  gives 0 "ckl $page --markdown" "$ckl" $page --markdown
  says out '#' 'a page'
done
gives 0 'ckl ops --markdown, the classes' "$ckl" ops --markdown
says out '| `lu` | factor |' 'each op is of its class'
gives 0 'ckl help CODE' "$ckl" help shape-3
says out shape-3 'explains it'
says out '    print(x @ x)' 'with all lines of its example indented'
gives 0 'ckl help NAME' "$ckl" help relu
says out relu 'explains it'
tap_done
