#!/bin/sh
# The REPL: each NAME.in of this folder, through a pipe, gives NAME.out (both streams); then on a terminal.
# BLESS=1 rewrites the .out files.
. "$srcdir/tests/cli/common.sh"
cp "$srcdir"/tests/repl/*.ckl .
for in in "$srcdir"/tests/repl/*.in; do
  name=$(basename "$in" .in)
  "$ckl" <"$in" >got 2>&1
  echo "status $?" >>got
  [ -z "$BLESS" ] || cp got "$srcdir/tests/repl/$name.out"
  diff "$srcdir/tests/repl/$name.out" got >log
  tap_status $? "repl: $name" log
done

printf 'fn f(x: f32[2]) -> f32 = sum(checkpoint { tanh(x) * x })\n:plan f(track(ones([2])))\n' | "$ckl" >got 2>&1
cp got log
grep -q 'plan of f and its gradient' got && grep -q 'block 1 of repl:1' got
tap_status $? ':plan tells what a call would take' log

# on a terminal: what a terminal shows, without its control characters
show() { tr -d '\r' <"$1" | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/\x1b[=>]//g' >log; }
has() {
  grep -q -e "$1" log
  tap_status $? "$2" log
}
terminal() { # terminal TITLE STEP...
  title=$1
  shift
  "$builddir/tests/repl/pty" "$ckl" -- "$@" >typed
  tap_status $? "$title" typed
  show typed
}
TERM=xterm
export TERM
if ! "$builddir/tests/repl/pty" --probe; then
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - sessions on a terminal # SKIP no pseudo-terminal"
  tap_done
  exit
fi
terminal 'a terminal session ends with Ctrl-D' '> ' 'let x = 6 * 7\r' '42' 'x + 1\r' '43' '' '+0.7' '\4'
has '^ckl .*:help' 'a banner'
terminal 'a statement of several lines' '> ' 'for i in 0..2 {\r' '. ' 'print("turn {i}")\r' '. ' '}\r' 'turn 1' '' '> ' ':quit\r'
terminal 'Ctrl-C drops a line' '> ' 'let y = 5' '5' '\3' '> ' 'print(40 + 2)\r' '42' '' '> ' ':quit\r'
terminal 'Ctrl-C drops a line whenever it comes' '> ' '' '*1000' 'print(40 + 2)\r' '42' ':quit\r'
TERM=dumb terminal 'also where lines are not edited' '> ' '' '*1000' 'print(40 + 2)\r' '42' ':quit\r'
terminal 'Ctrl-C stops what runs and keeps variables' '> ' 'let z = 41\r' '41' 'var n = 0\r' 'n' 'while true { n += 1 }\r' '+0.5' '\3' \
  'interrupted' 'print(z + 1)\r' '42' '' '> ' ':quit\r'
has '\^C  interrupted after [0-9.]* s; variables kept' 'it says so once'
terminal 'Tab completes a name' '> ' 'softma\t(f32([4.0]), axis = 0)[0]\r' '1.0' '' '> ' ':quit\r'
terminal 'history comes back' '> ' 'print(21 * 2)\r' '42' '\20\r' '42' '' '> ' ':quit\r'
terminal 'an input of several lines comes back as a whole' '> ' 'for i in 0..2 {\r' '. ' 'print("go {i}")\r' '. ' '}\r' 'go 1' '\20\r' \
  'go 0' '' 'go 1' '' '> ' ':quit\r'
terminal 'also in the next session' '> ' '\20\20\r' 'go 0' '' 'go 1' '' '> ' ':quit\r'
terminal 'Tab completes fields, methods and functions behind a dot' '> ' 'use nn\r' '> ' 'let net = nn.Lin\t(3, 4)\r' 'net : Linear' \
  'net.nou\t\r' '4' 'shape(net.forw\t(ones([5, 3])))\r' '(5, 4)' 'net.w.resh\t([6, 2]).shape()\r' '(6, 2)' '' '> ' ':quit\r'
terminal 'and lists them where several fit' '> ' 'use nn\r' '> ' 'let r = (one = 1, net = nn.Linear(3, 4), tail = 2)\r' 'r : ' \
  'r.t\t + 40\r' '42' 'r.net.n\t' 'nin  nout' 'o\t\r' '4' 'nn.\t' 'BatchNorm  Bilinear' '\25:quit\r'
terminal 'Tab completes commands' '> ' ':\t' 'help  load' 'qu\t\r'
mkdir -p folder
cp lines.ckl folder/more.ckl
terminal 'Tab completes files' '> ' ':load lin\t\r' 'loaded' 'from_file\r' '42' 'use "fol\tmo\t" as more\r' '> ' 'len("lin\t")\r' '9' '' '> ' ':quit\r'
test -s "$XDG_STATE_HOME/ckl/history"
tap_status $? 'history is kept in the state folder'
HOME=/nonexistent XDG_STATE_HOME='' terminal 'without a place for it nothing is said' '> ' 'print(6 * 7)\r' '42' '' '> ' ':quit\r'

# progress bars: what a terminal of them shows in the end
cat >bars.ckl <<'END'
for e in progress(0..2, "epochs") {
  for b in progress(0..3, "steps") { if e == 1 and b == 1 { print("in between") } }
}
for (a, b) in zip(progress(0..2, "left"), progress(0..2, "right")) { let _ = a + b }
for e in progress(0..1, "outer") { for b in progress(0..5, "inner") { if b == 2 { break } } }
for b in progress(0..9, "fails") { if b == 2 { assert false } }
END
cat >screen.pl <<'END'
# reads what goes to a terminal, and prints what it shows: cursor up, and erasing from the cursor on
undef $/;
my ($t, @rows, $r, $c) = (<STDIN>, '');
($r, $c) = (0, 0);
while ($t =~ /\G(?:\e\[(\d*)([A-Z])|(.))/sg) {
  if (defined $2) {
    $r -= $1 || 1 if $2 eq 'A';
    $rows[$r] = substr($rows[$r], 0, $c) if $2 ne 'A';
    $#rows = $r if $2 eq 'J';
  } elsif ($3 eq "\r") { $c = 0 }
  elsif ($3 eq "\n") { $r++; $rows[$r] //= '' }
  else {
    $rows[$r] .= ' ' x ($c - length $rows[$r]) if $c > length $rows[$r];
    substr($rows[$r], $c++, 1) = $3;
  }
}
print map { "$_\n" } @rows;
END
"$builddir/tests/repl/pty" "$ckl" run bars.ckl -- 'in between' '' '1 of 3' '' '\[1A' >typed
tap_status 0 'a program with bars on a terminal' typed
perl screen.pl <typed | sed 's/  *[0-9.]* s$//; s/\[[#.]*\] //; /^ *$/d' >log
cat >want <<'END'
in between
epochs: 2 of 2
left: 2 of 2
right: 2 of 2
outer: 1 of 1
fails: 2 of 9
END
sed -n 1,6p log >first
cmp -s first want
tap_status $? 'bars stand below one another; a print is above them; the first of them stays, and inner ones vanish' log
tap_empty "$(grep -e steps -e inner log)" 'no bar of a loop inside is left'
"$ckl" run bars.ckl >out 2>&1
grep -c '^steps: 3 of 3$' out >log
grep -q '^2$' log
tap_status $? 'on a pipe each progress has its line' out
tap_done
