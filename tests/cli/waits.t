#!/bin/sh
# What a program waits for outside of ckl ends at Ctrl-C, and never with status 0; a program that is killed while it saves
# leaves nothing behind; a number of threads that is none is refused.
. "$srcdir/tests/tap.sh"
ckl=$PWD/ckl
work=$PWD/waits.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1

# stops FILE TITLE: the program is interrupted while it runs, soon, with status 130
stops() {
  # a job of a shell without job control ignores SIGINT
  perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$ckl" run "$1" >out 2>err &
  pid=$!
  sleep 0.5
  kill -INT $pid
  (sleep 20; kill -KILL $pid) >/dev/null 2>&1 &
  killer=$!
  wait $pid
  status=$?
  kill $killer 2>/dev/null
  [ $status -eq 130 ] && grep -q 'run-1' err
  tap_status $? "$2 ($status)" err
}
mkfifo pipe
printf 'let x = read_bytes("/dev/zero")\n' >zero.ckl
printf 'save((a = ones([3])), "pipe")\n' >nobody.ckl
printf 'let x = read_csv("pipe")\n' >silent.ckl
printf 'save((a = ones([1000000])), "pipe")\n' >full.ckl
stops zero.ckl "a file without end"
stops nobody.ckl "a pipe that nobody reads"
stops silent.ckl "a pipe that nobody writes"
sleep 30 <pipe >/dev/null &
reader=$!
stops full.ckl "a pipe that is full"
kill $reader
wait $reader 2>/dev/null # it is no reader of what comes next

# what waits for a writer in vain ends, and holds up nobody
timeout 60 sh -c 'sleep 0.3; cat <pipe >got' >/dev/null 2>&1 &
printf 'save((a = ones([100000])), "pipe")\nsave((a = ones([100000])), "plain.safetensors")\n' >save.ckl
"$ckl" run save.ckl 2>err && wait $! && cmp got plain.safetensors
tap_status $? "a pipe that is read late gets all" err

printf 'let x = (a = ones([4000000]))\nfor i in 0..1000 { save(x, "x.safetensors") }\n' >often.ckl
i=0
while [ $i -lt 10 ]; do
  "$ckl" run often.ckl &
  pid=$!
  sleep 0.2
  kill -KILL $pid
  wait $pid 2>/dev/null
  i=$((i + 1))
done 2>/dev/null
touch .ckl-$$-0.tmp .ckl-99999999-0.tmp.txt
touch -d '1 hour ago' .ckl-*
printf 'save((a = 1.0 * ones([3])), "y.safetensors")\nsave((a = ones([3])), "y.safetensors")\n' >once.ckl
"$ckl" run once.ckl 2>err
left=$(ls -a | grep '^\.ckl-' | grep -v "^.ckl-$$-0.tmp$" | grep -c 'tmp$')
[ "$left" -le 1 ] && [ -f .ckl-$$-0.tmp ] && [ -f .ckl-99999999-0.tmp.txt ] # one between its name and its place
tap_status $? "what a program that is killed while it saves may leave is collected ($left)" err

printf 'print(1)\n' >one.ckl
for n in abc -1 0 2x 99999999999999999999; do
  CKL_THREADS=$n "$ckl" run one.ckl >out 2>err
  [ $? -eq 2 ] && grep -q "CKL_THREADS is .$n." err && [ ! -s out ] || echo "$n"
done >log
[ ! -s log ] && CKL_THREADS=3 "$ckl" run one.ckl >out && CKL_THREADS= "$ckl" run one.ckl >out
tap_status $? "CKL_THREADS is 1 or more" log
tap_done
