#!/bin/sh
# The words of clauses: what is wrong with one is said alike by a file, which is refused before it
# runs, and at the prompt, where a function is declared unseen and meets it in its call; and each
# word has help.
# row S0.24 policy-words
. "$srcdir/tests/cli/common.sh"

# the text and the help of the first error of a run, without its place
said() { grep -e '^error\[' -e '^ *= help: ' | sed 's/ *\(wrong\.ckl\|repl\):[0-9:]*$//' | head -2; }
# alike BODY TEXT: in a function; TEXT is of the error
alike() {
  printf 'fn g(x: f32[2]) -> f32[2] = x\nfn f(x: f32[2, 2]) -> any {\n  %s\n}\nprint(f(ones([2, 2])))\n' "$1" >wrong.ckl
  "$ckl" run wrong.ckl 2>&1 | said >file
  "$ckl" repl <wrong.ckl 2>&1 | said >prompt
  { echo '-- in a file'; cat file; echo '-- at the prompt'; cat prompt; } >log
  grep -q -F -e "]: $2" file && cmp -s file prompt
  tap_status $? "$1" log
}
alike 'wrap <bf16, f16> { x }' '`bf16` and `f16` exclude each other'
alike 'wrap <tf32, bf16> { x }' '`tf32` and `bf16` exclude each other'
alike 'wrap <train, eval> { x }' '`train` and `eval` exclude each other'
alike 'wrap <no_grad, grad> { x }' '`no_grad` and `grad` exclude each other'
alike 'wrap <train, train> { x }' '`train` stands twice'
alike 'wrap <g, sum> { x }' 'a `wrap` has one function'
alike 'wrap <g 1> { x }' '`g` takes 0 arguments and the block, not 1'
alike 'wrap <backward foo> { x }' '`backward` is not `foo`'
alike 'wrap <backward "foo"> { x }' '`backward` is not `foo`'
alike 'wrap <device gpu> { x }' 'no device is called `gpu`'
alike 'wrap <bf17> { x }' 'no mode, and no function, is called `bf17`'
alike 'wrap <quiet> { x }' 'no mode, and no function, is called `quiet`'
alike 'wrap <f32> { x }' 'no mode, and no function, is called `f32`'
alike 'wrap <train 1> { x }' '`train` takes 0 arguments here, not 1'
alike 'wrap <seed> { x }' '`seed` takes 1 argument here, not 0'
alike 'wrap <with_params x> { x }' '`with_params` takes 2 arguments here, not 1'
alike 'wrap <opaque 3> { x }' '`opaque` takes a name in quotes'
alike 'checkpoint <auto, auto> { x }' '`auto` stands twice'
alike 'checkpoint <auto 1> { x }' '`auto` takes 0 arguments here, not 1'
alike 'checkpoint <every 2> { x }' '`every` is about the iterations of a loop'
alike 'checkpoint <budget = "big"> { x }' 'a budget is a number of bytes'
alike 'checkpoint <save> { x }' '`save` names what it is about'
alike 'checkpoint <save 3> { x }' 'op classes and names of `let`s stand here'
alike 'checkpoint <prefer matmul> { x }' '`prefer` is followed by `save` or `recompute`'
alike 'checkpoint <save matmul, recompute matmul> { x @ x }' 'the clauses disagree about `matmul`: `save` and `recompute`'
alike 'checkpoint <save matmul, prefer save matmul> { x @ x }' 'the clauses disagree about `matmul`: `save` and `prefer save`'
alike 'checkpoint <keep> { x }' 'no policy word or policy is called `keep`'
alike 'checkpoint <savee matmul> { x }' 'no policy word or policy is called `savee`'
alike 'checkpoint <matmul> { x }' 'no policy word or policy is called `matmul`'
alike 'checkpoint <relu> { x }' 'no policy word or policy is called `relu`'
loop='{ y = y + 1.0 }; y'
alike "var y = x; checkpoint <every 2, binomial 2> for i in 0..3 $loop" '`every` and `binomial` exclude each other'
alike "var y = x; checkpoint <every 0> for i in 0..3 $loop" '`every` takes 1 or more, not 0'

# help names a section of language.md; the words are those of its tables and of the error texts
guide=$srcdir/docs/language.md
"$ckl" run - <<'END' >out 2>&1
wrap <quiet> { 1 }
checkpoint <keep> { 1 }
checkpoint <save nothing_like_it> { 1 }
END
words=$(sed -n 's/.*help: modes are //p; s/.*help: words are \([^;]*\);.*/\1/p; s/.*help: the op classes are //p' out | tr '\n' ' ')
cp out log
tap_status $(($(echo $words | wc -w) != 31)) 'errors list all words' log
: >without
choices='cpu sim cuda captured plain'
for word in $words $choices float int num any str model seq params none; do
  "$ckl" help "$word" 2>&1 | sed -n 's/^  (docs\/language.md, "\(.*\)")$/\1/p' >sections
  test -s sections || echo "$word" >>without
  while read -r section; do grep -q -x -F "## $section" "$guide" || echo "$word: $section" >>without; done <sections
done
tap_empty "$(cat without)" 'all words of clauses and types have help'
printf 'wrap <device gpu> { 1 }\nwrap <backward foo> { 1 }\n' | "$ckl" run - 2>&1 |
  sed -n 's/.*help: devices are //p; s/.*help: `backward` takes //p' | tr -d '`,' | tr ' ' '\n' | grep -v -x -e and -e or | sort >out
tap_empty "$(printf '%s\n' $choices | sort | diff - out)" 'errors list the words that modes take'
gives 0 'such a word' "$ckl" help plain
says out 'wrap <backward plain> { .. }' 'help shows it behind its mode'
: >without
for word in $(sed -n '/^## Modes/,/^## Random/s/^| \(`[^|]*\) |.*/\1/p; /^## Checkpoints/,/^## Data/s/^| \(`[^|]*\) |.*/\1/p' "$guide" |
  tr -d '`,' | tr ' ' '\n' | sed '/^[A-Z=]*$/d; /^[af]$/d; /"/d; /^n$/d; /^as$/d; /^u8$/d' | sort -u); do
  echo " $words $choices " | grep -q -F -e " $word " || echo "$word" >>without
done
tap_empty "$(cat without)" 'words of the tables in language.md are words'
gives 2 'a mode that is none' "$ckl" help no_grid
says err 'did you mean `no_grad`' 'a near one is suggested'
tap_done
