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
  'r.t\t + 40\r' '42' 'r.net.n\t' 'nin  nout' 'o\t\r' '4' 'nn.\t' 'BatchNorm  Conv2d' '\25:quit\r'
terminal 'Tab completes commands' '> ' ':\t' 'help  load' 'qu\t\r'
mkdir -p folder
cp lines.ckl folder/more.ckl
terminal 'Tab completes files' '> ' ':load lin\t\r' 'loaded' 'from_file\r' '42' 'use "fol\tmo\t" as more\r' '> ' 'len("lin\t")\r' '9' '' '> ' ':quit\r'
test -s "$XDG_STATE_HOME/ckl/history"
tap_status $? 'history is kept in the state folder'
HOME=/nonexistent XDG_STATE_HOME='' terminal 'without a place for it nothing is said' '> ' 'print(6 * 7)\r' '42' '' '> ' ':quit\r'
tap_done
