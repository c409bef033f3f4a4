#!/bin/sh
# The examples and workloads at small sizes print what tests/golden/{examples,bench}/NAME.out says; each passes
# `ckl check`. The first line of such a file is the command; times and peaks are left out. `programs.t --bless` writes them.
. "$srcdir/tests/tap.sh"
bless=${1-}
ckl=$PWD/ckl matmul=$PWD/bench/matmul
work=$PWD/programs.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cd "$srcdir" || exit 1
for file in examples/*.ckl bench/*.ckl bench/plans/*.ckl; do
  "$ckl" check "$file" >"$work/log" 2>&1
  tap_status $? "ckl check $file" "$work/log"
done
for file in tests/golden/examples/*.out tests/golden/bench/*.out; do
  line=$(head -n 1 "$file")
  words=${line#'$ ckl '}
  {
    echo "$line"
    # the words of the file are arguments without blanks
    # shellcheck disable=SC2086
    "$ckl" $words 2>"$work/err" || { echo "status $?" && cat "$work/err"; }
  } | sed -e 's/^step_ms [0-9.]* [0-9.]*$/step_ms/' -e 's/[0-9.]*MiB with/- MiB with/g' >"$work/out"
  [ "$bless" != --bless ] || cp "$work/out" "$file"
  diff "$file" "$work/out" >"$work/log"
  tap_status $? "ckl $words" "$work/log"
done
"$matmul" -of 32,16,8 1 none >"$work/log" 2>&1
tap_status $? 'bench/matmul gets what the reference evaluator does' "$work/log"
tap_done
