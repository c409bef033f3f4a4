#!/bin/sh
# The faults of tests/mutants.txt apply to the sources of today, and one that does not is found.
. "$srcdir/tests/tap.sh"
list=mutate.$$
trap 'rm -f "$list" "$list.out"' EXIT
check() { perl "$srcdir/tests/mutate" --check "$1" >"$list.out" 2>&1; }
check "$srcdir/tests/mutants.txt"
tap_status $? 'each listed fault applies in one place' "$list.out"

# refused FAULT TITLE SAYS
refused() {
  printf '%s\n' 'dead: an example' "$1" >"$list"
  ! check "$list" && grep -q "$3" "$list.out"
  tap_status $? "$2" "$list.out"
}
refused 'graph/dce.c: /no such text/ => 1' 'one whose text is gone does not' 'does not stand there'
refused 'graph/dce.c: /;/ => ,' 'nor one whose text stands in two places' 'stands there [0-9]* times'
refused 'graph/none.c: /a/ => b' 'nor one of a file that is gone' 'no such file'
refused 'graph/dce.c: a => b' 'and what is no fault is found' 'nor a fault'
tap_done
