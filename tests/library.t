#!/bin/sh
# docs/library.md is what `ckl library --markdown` prints: every builtin, and every public declaration of stdlib/ with its
# comment, each group reached by a link; and second gradients of all of them are tested.
. "$srcdir/tests/tap.sh"
top=$(pwd)
source=$(cd "$srcdir" && pwd)
work=library.$$
mkdir "$work" || exit 1
trap 'cd "$top" && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
"$top/ckl" library --markdown >library.md
tap_status $? "ckl library --markdown" library.md
diff "$source/docs/library.md" library.md >log
tap_status $? "docs/library.md is up to date: ckl library --markdown >docs/library.md" log

sed -n 's/^\(fn\|proc\|model\|type\) \([A-Za-z][A-Za-z0-9_]*\).*/\2/p' "$source"/stdlib/*.ckl \
  "$source"/stdlib/shelf/*.ckl | sort >declared
sed -n 's/^### //p' library.md | sort | diff declared - >log
tap_status $? "all that the library declares stands on it, once" log
"$top/ckl" builtins --markdown | sed -n 's/^| `\([a-z0-9_]*\)`.*/\1/p' | sort >builtins
sed -n 's/^| `\([a-z0-9_]*\).*/\1/p' library.md | sort | diff builtins - >log
tap_status $? "all builtins stand on it, once" log
awk '/^```/ { inside = !inside; next }
  inside || !NF { next }
  /^#/ { if (name) print name; name = /^### / ? $2 : ""; next }
  { name = "" }
  END { if (name) print name }' library.md >log
tap_empty "$(cat log)" "each declaration has a sentence"
# names in rows, models, and names that are said not to be there
second="$source/tests/golden/grad/second-shelf.ckl $source/tests/golden/grad/second-modules.ckl"
{
  grep -h -e 'row(' -e '^  ("' -e '^  "[a-z_A-Z0-9]*",' $second | grep -o '"[A-Za-z0-9_]*"' | tr -d '"'
  grep -o 'nn\.[A-Z][A-Za-z0-9]*' "$source/tests/golden/nn/models-jax.ckl" | sed 's/nn\.//'
  sed -n '/^# not here: /,/^[^#]/p' $second | sed -n 's/^# //p' | sed 's/not here: //' |
    tr -s ':, ' '\n'
} | sort -u >has
sed -n 's/^\(fn\|model\) \([A-Za-z][A-Za-z0-9_]*\).*/\2/p' "$source"/stdlib/*.ckl "$source"/stdlib/shelf/*.ckl |
  sort | comm -23 - has >log
tap_empty "$(cat log)" "second gradients of each function and model of the library are tested, or said not to be there"
sed -n 's/^## //p' library.md | tr 'A-Z ' 'a-z-' | tr -d ':,`' | sort >headings
sed -n 's/^- \[.*](#\([^)]*\)).*/\1/p' library.md | sort | diff headings - >log
tap_status $? "each group is reached by a link" log
tap_done
