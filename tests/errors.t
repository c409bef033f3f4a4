#!/bin/sh
# Each error code is explained by an example that provokes it, and docs/errors.md is what `ckl errors --markdown` prints.
. "$srcdir/tests/tap.sh"
top=$(pwd)
source=$(cd "$srcdir" && pwd)
work=errors.$$
mkdir "$work" || exit 1
trap 'cd "$top" && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
"$top/ckl" errors --markdown >errors.md
tap_status $? "ckl errors --markdown" errors.md
awk '/^## / { code = $2; sub(":", "", code) }
  /^```$/ { inside = 0 }
  inside { print > (code ".ckl") }
  /^```ckl/ { inside = 1 }' errors.md
for file in *.ckl; do
  code=${file%.ckl}
  { "$top/ckl" check "$file"; "$top/ckl" run "$file"; } >log 2>&1
  grep -q "\[$code\]" log
  tap_status $? "the example of $code provokes it" log
done
diff "$source/docs/errors.md" errors.md >log
tap_status $? "docs/errors.md is up to date: ckl errors --markdown >docs/errors.md" log
tap_done
