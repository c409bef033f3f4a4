#!/bin/sh
# docs/passes.md is what `ckl passes --markdown` prints: the table of passes by which functions are compiled. Each name
# of the page is taken where the page says so, and nowhere else.
. "$srcdir/tests/tap.sh"
top=$(pwd)
source=$(cd "$srcdir" && pwd)
work=passes.$$
mkdir "$work" || exit 1
trap 'cd "$top" && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
"$top/ckl" passes --markdown >passes.md
tap_status $? "ckl passes --markdown" passes.md
diff "$source/docs/passes.md" passes.md >log
tap_status $? "docs/passes.md is up to date: ckl passes --markdown >docs/passes.md" log

# column NUMBER: names of the page that have a `yes` there
column() { awk -F ' *[|] *' -v k="$1" '/^\| `/ && $k == "yes" { gsub("`", "", $2); print $2 }' passes.md | sort; }
column 5 >stages
column 6 >tools
column 7 >times
cat >p.ckl <<'END'
fn f(x: f32[4, 4], w: f32[4, 4]) -> f32 {
  let h = checkpoint { tanh(x @ w) }
  on_grad(h, fn(g) = g * 2)
  sum(h * h)
}
print(f(ones([4, 4]), ones([4, 4])))
END
known() { sed -n 's/^known ones: *//p' log | tr ' ' '\n' | sort; }
"$top/ckl" ir --stage=nosuchstage p.ckl f >log 2>&1
tap_empty "$(known | diff - stages)" "the stages of ckl ir are those of the page"
"$top/ckl" run --dump=nosuchstage p.ckl >log 2>&1
tap_empty "$(known | diff - stages)" "the stages of --dump are those of the page"
"$top/ckl" opt --pass=nosuchpass p.ckl >log 2>&1
tap_empty "$(known | diff - tools)" "the passes of ckl opt are those of the page"
"$top/ckl" run --time-passes p.ckl >/dev/null 2>log
tap_empty "$(sed -n 's/^\([a-z]*\) .* ms$/\1/p' log | grep -v '^code$' | sort | diff - times)" \
  "the times of --time-passes are those of the page, and that of code"

for stage in $(grep -v -e llvm -e asm -e ptx stages); do
  "$top/ckl" ir --stage="$stage" p.ckl f >out 2>log && [ -s out ]
  tap_status $? "ckl ir --stage=$stage prints something" log
done
"$top/ckl" ir --stage=stage p.ckl f >staged.ckg
for pass in hooks remat simplify; do
  "$top/ckl" ir --stage=$pass p.ckl f >$pass.ckg
done
grep -q ' = hook ' staged.ckg && ! grep -q ' = hook ' hooks.ckg
tap_status $? "after hooks there are none" hooks.ckg
"$top/ckl" opt --pass=hooks staged.ckg >a && diff a hooks.ckg >log
tap_status $? "ckl opt makes the same of the staged graph: hooks" log
"$top/ckl" opt --pass=remat hooks.ckg >a && diff a remat.ckg >log
tap_status $? "and of that: remat" log
"$top/ckl" opt --pass=simplify remat.ckg >a && diff a simplify.ckg >log
tap_status $? "and of that: simplify" log
CKL_CPU=loops "$top/ckl" run --dump=simplify p.ckl >log 2>err
grep -v '^#' err | sed 's/ @ .*//' >a && sed 's/ @ .*//' simplify.ckg | diff a - >log
tap_status $? "what runs is what ckl ir --stage=simplify shows" log
tap_done
