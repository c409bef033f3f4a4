#!/bin/sh
# `ckl fmt` on every program of the tree: formatting what was formatted changes nothing.
. "$srcdir/tests/tap.sh"
work=fmt.$$
mkdir "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for file in $(cd "$srcdir" && find stdlib examples bench -name '*.ckl' | sort); do
  if ./ckl fmt - <"$srcdir/$file" >"$work/once" 2>"$work/log" && ./ckl fmt - <"$work/once" >"$work/twice" 2>>"$work/log" &&
    diff "$work/once" "$work/twice" >>"$work/log"; then
    tap_status 0 "$file"
  else
    tap_status 1 "$file" "$work/log"
  fi
done
tap_done
