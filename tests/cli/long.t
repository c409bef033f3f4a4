#!/bin/sh
# A program that is long in one way takes time in proportion: 100,000 statements, declarations, names or arguments are
# a second or two of work, where looking through all of them for each would be minutes.
. "$srcdir/tests/tap.sh"
ckl=$PWD/ckl
work=$PWD/long.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
n=100000
[ -z "${SANITIZE-}" ] || n=20000
ulimit -t 10

# long TITLE AWK-PROGRAM: runs what it prints, with n lines or so
long() {
  awk -v n=$n "BEGIN { $2 }" </dev/null >"$work/a.ckl"
  "$ckl" run "$work/a.ckl" >"$work/out" 2>"$work/err"
  tap_status $? "$1" "$work/err"
}

long 'top-level variables' 'for (i = 0; i < n; i++) print "let a_" i " = list(" i ")[0]"
  for (i = 0; i < n; i++) print "assert a_" i " == " i'
long 'constants' 'print "let a_0 = 0"; for (i = 1; i < n; i++) print "let a_" i " = a_" (i - 1) " + 1"
  print "assert a_" (n - 1) " == " (n - 1)'
long 'one name again and again' 'for (i = 0; i < n; i++) print "let a = " i; print "assert a == " (n - 1)'
long 'fields of a record' 'printf "let r = ("; for (i = 0; i < n; i++) printf "a_%d = %d, ", i, i
  print ")\nassert r.a_7 == 7"'
long 'functions' 'for (i = 0; i < n / 2; i++) print "proc g_" i "() = " i
  for (i = 0; i < n / 2; i++) print "g_" i "()"'
long 'models' 'for (i = 0; i < n / 4; i++) print "model M" i "() { let a = " i " }"'
long 'arguments' 'printf "assert len(list("; for (i = 0; i < n; i++) printf "%d, ", i; print n ")) == " (n + 1)'
long 'elements' 'printf "assert len(["; for (i = 0; i < n; i++) printf "%d, ", i; print n "]) == " (n + 1)'
tap_done
