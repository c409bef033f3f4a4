#!/bin/sh
# The program on C stacks of many sizes: what nests too deeply is an error with a place, and never kills it.
. "$srcdir/tests/tap.sh"
ckl=$PWD/ckl
work=$PWD/stack.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1

# around N OPEN INNER CLOSE
around() { awk -v n="$1" -v a="$2" -v b="$3" -v c="$4" 'BEGIN {
  for (i = 0; i < n; i++) printf "%s", a; printf "%s", b; for (i = 0; i < n; i++) printf "%s", c }'; }
{ printf 'proc f(n) = '; around 40 '1 + (' 'f(n + 1)' ')'; printf '\nf(0)\n'; } >proc.ckl
{ printf 'fn f(x: f32) -> f32 = '; around 200 'sin(' 'f(x + 1)' ')'; printf '\nf(1)\n'; } >code.ckl
{ printf 'let x = '; around 240 'list(' '1' ')'; printf '\nlet _ = x == x\n'; } >source.ckl
printf 'var x = ()\nfor i in 0..200000 { x = (x, i) }\nlet _ = x == (x, 1)\n' >value.ckl

sizes='64 128 256 1024 8192 unlimited'
ldd "$ckl" 2>/dev/null | grep -q asan && sizes='8192 unlimited' # which takes more itself
for kib in $sizes; do
  for file in proc code source value; do
    for run in run check 'fmt --check'; do
      # shellcheck disable=SC2086
      (ulimit -s $kib 2>/dev/null && exec "$ckl" $run $file.ckl) >out 2>err
      status=$?
      [ $status -le 2 ] || echo "$run $file.ckl, $kib: $status"
      [ $status -eq 0 ] || [ "$run" = 'fmt --check' ] || grep -q 'mem-3\|call-7\|C stack' err ||
        { echo "$run $file.ckl, $kib"; cat err; }
    done
    (ulimit -s $kib 2>/dev/null && exec "$ckl" <$file.ckl) >out 2>err || [ $? -le 2 ] || echo "REPL, $file.ckl, $kib"
  done
done >log
[ ! -s log ]
tap_status $? "programs, checks, formatting and prompts end with an error where the stack is full" log

{ cat proc.ckl && echo '1 + 1'; } | (ulimit -s 4096 && exec "$ckl") >out 2>err
grep -q 'error\[mem-3\]' err && grep -q '^2$' out
tap_status $? "the prompt goes on after it" err
tap_done
