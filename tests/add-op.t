#!/bin/sh
# What it takes to add something: in a copy of the build folder one build adds an operation, a word of a policy,
# a mode and a pass, each in as many hand-written places as CONTRIBUTING.md numbers, and in the files that it names;
# then they are used. `make check-all` runs it; it takes some minutes.
#
# A place is a stretch of lines in a file that is written by hand. The line of a new file in a Makefile.inc is none:
# it says nothing that the file does not. The pass is a new file, so that make meets one, too.
#
# To add another kind of thing: `adding` with its section of CONTRIBUTING.md and the number of its places,
# `place FILE LINE` or `create FILE NEIGHBOUR` for each, `added`; and below the build what must hold of it.
. "$srcdir/tests/tap.sh"
source=$(cd "$srcdir" && pwd)
top=$(pwd)
copy=$top/add-op.$$ # not among the tests, which other tests read
log=$copy/add-op.log
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM

# Sources and objects, with their times; what tests left is of no use.
mkdir -p "$copy/tests"
copy_all() { # copy_all FOLDER: into the copy
  (cd "$1" && ls -A) | grep -v -x -e .git -e tests -e 'add-op\.[0-9]*' | while read -r name; do cp -a "$1/$name" "$copy/"; done
  (cd "$1/tests" && ls -A) | grep -v -x -e cache -e tsan.d |
    while read -r name; do cp -a "$1/tests/$name" "$copy/tests/"; done
}
copy_all "$source"
if [ "$source" != "$top" ]; then # built outside of the sources: configured and built anew in the copy
  (cd "$copy" && eval "./configure -q $("$top/config.status" --config)") >"$log" 2>&1
  tap_status $? 'the copy is configured' "$log"
fi
cd "$copy" || exit 1

# adding SECTION COUNT: the next COUNT places are what it takes, and those that the section numbers
adding() {
  what=$1 wanted=$2 places=0
  listed=$(awk -v head="## $1" '/^## / { on = $0 == head }
    on && /^[0-9]+\. `/ { split($0, part, "`"); gsub(/[A-Z][A-Z]+/, "*", part[2]); print part[2] }' CONTRIBUTING.md)
  [ "$(echo "$listed" | wc -l)" -eq "$wanted" ] ||
    printf 'CONTRIBUTING.md numbers other places in "%s" than %d:\n%s\n' "$1" "$wanted" "$listed" >>faults
}
# placed FILE: one place more
placed() {
  places=$((places + 1))
  echo "$1" >>changed
  for path in $listed; do
    case $1 in $path) return ;; esac
  done
  echo "CONTRIBUTING.md does not number $1 in \"$what\"" >>faults
}
# place FILE LINE: adds standard input before the one line that begins with LINE
place() {
  placed "$1"
  cat >text
  awk -v line="$2" 'NR == FNR { text = text $0 "\n"; next }
    index($0, line) == 1 { printf "%s", text; n++ }
    { print }
    END { exit n != 1 }' text "$1" >new && mv new "$1" ||
    echo "$1: not one line begins with: $2" >>faults
}
# create FILE NEIGHBOUR: a new file of standard input, which make knows as it knows NEIGHBOUR
create() {
  cat >"$1"
  placed "$1"
  list=${2%/*}/Makefile.inc
  sed "\\|^.* $2\$|{p;s|$2|$1|;}" "$list" >new && mv new "$list"
  grep -q "^.* $1\$" "$list" || echo "$list has no line of $2" >>faults
}
added() {
  [ "$places" -eq "$wanted" ] || echo "$what: it takes $places places, not $wanted" >>faults
}
: >changed
: >faults

# ---- what is added ----

# The inverse of the error function. Coefficients: minimax in 200-bit arithmetic, each rounded in turn.
adding 'An elementwise operation' 3
place runtime/elementwise.def 'UN(RELU, ' <<'END'
UN(INVERF, inverf, FMATH, FLOAT, same, OUT, 60, CALL, -0.9, 0.9, "inverse of erf: infinite at -1 and 1, NaN beyond")
END
place autograd/grad.c 'GRAD(RELU) ' <<'END'
GRAD(INVERF) { return mul(dy, mul(num(0.88622692545275801364908374167), un(EXP, mul(y, y)))); }
END
place runtime/fmath.inc '/* ---- power: ' <<'END'
/* ---- inverse of the error function: x P(w), w = -log(1 - x^2); for large w P is of sqrt(w) ---- */

#if FM_W == 32
/* inverf(x) / x: t = w - 2.5 for w in [0, 5], error 2^-24.6; t = sqrt(w) - 3.125 up to the last x
 * below 1, error 2^-27.8 */
#define INVERF_MIDDLE 2.5
#define INVERF_TAIL 3.125
#define POLY_INVERF(t) \
  H10(t, 0x1.805c5ep+0, 0x1.f91e8cp-3, -0x1.11c70cp-8, -0x1.486718p-10, 0x1.ca157ep-13, \
      -0x1.4c905ep-18, -0x1.d4062cp-19, 0x1.f2e49cp-22, 0x1.c1c15ap-26, -0x1.2a7beap-27, \
      -0x1.1654e6p-33)
#define POLY_INVERF_TAIL(t) \
  H10(t, 0x1.7aaa3cp+1, 0x1.00f3b4p+0, 0x1.cde9ap-8, -0x1.5b51fap-8, 0x1.f0e2a4p-9, \
      -0x1.4b3b02p-9, 0x1.4e6b5ep-10, -0x1.47c34p-12, -0x1.fb0b24p-14, 0x1.02017ap-13, \
      -0x1.d1745ep-16)
#define POLY_INVERF_END POLY_INVERF_TAIL
#else
/* t = w - 3 for w in [0, 6], error 2^-54.1; t = sqrt(w) - 3.25 up to 4, error 2^-55.0;
 * t = sqrt(w) - 5, error 2^-55.7 */
#define INVERF_MIDDLE 3.0
#define INVERF_TAIL 3.25
#define POLY_INVERF(t) \
  H23(t, 0x1.9fa072ed72dbbp+0, 0x1.eedbebdce73e5p-3, -0x1.780def1d3ef84p-8, \
      -0x1.b6666b152a828p-11, 0x1.9912c04a35b5fp-13, -0x1.aab13d1cc9669p-17, \
      -0x1.d539ca0571fd3p-20, 0x1.e32b0d646cfcbp-22, -0x1.96f8220f4e193p-26, \
      -0x1.77b3a62a09f22p-28, 0x1.3155841d0623p-30, -0x1.146af0dea4919p-35, \
      -0x1.30da9cbc5ccf6p-36, 0x1.7bd354d680336p-39, 0x1.c3aab70933c1ap-48, \
      -0x1.dc812e64d3916p-45, 0x1.c813412226b66p-48, 0x1.381a30795b857p-52, \
      -0x1.750dc57a2ffa7p-53, 0x1.e49b4f4d57741p-57, 0x1.28313a9120d6p-59, \
      -0x1.dbff6dcaa52cdp-62, -0x1.68a8c3182f3d4p-67, 0x1.58856d5276af1p-68)
#define POLY_INVERF_TAIL(t) \
  H20(t, 0x1.8abcc380d5a48p+1, 0x1.0158a6d641d55p+0, 0x1.5ffcfe5b69ecap-8, \
      -0x1.ebadabba050c9p-9, 0x1.468eecaa1058fp-9, -0x1.ba9240d813adp-10, 0x1.f3cc542a1ebb5p-11, \
      -0x1.7448bcd9a001bp-12, 0x1.932ec971cac92p-16, 0x1.1e6abd8bdee82p-14, \
      -0x1.8cf4ff3277446p-15, 0x1.a241934f5261bp-17, 0x1.89bbd92546004p-19, \
      -0x1.0b78e7e655ebfp-18, 0x1.8d26dd124fdd5p-20, -0x1.dbfd813aeee3ep-26, \
      -0x1.049b8ba42d55cp-22, 0x1.1abeb0cd062b8p-23, -0x1.8b346c4aae2b5p-26, \
      -0x1.076ec8bcf71cfp-26, 0x1.1f0a58b297b23p-27)
#define POLY_INVERF_END(t) \
  H18(t, 0x1.3664ddd1ad7fbp+2, 0x1.02a30d1fba10dp+0, -0x1.22ea5df1f8d66p-13, \
      -0x1.c2f36aa23e098p-13, 0x1.3ebf4f016817bp-14, -0x1.4a348fc586cbcp-16, \
      0x1.2fbcfa5870604p-18, -0x1.0a9073207dbebp-20, 0x1.ebe4d6ee38f29p-23, \
      -0x1.222737528a0fcp-24, 0x1.f266756058a81p-26, -0x1.0612abf682da9p-26, \
      0x1.0d28a73a2fed5p-27, -0x1.dd1e4b65f1c9cp-29, 0x1.66ba3e79cd16ap-30, \
      -0x1.e12c4cb11c06cp-32, 0x1.49aac2ca5d3f1p-34, 0x1.798141259ae02p-35, \
      -0x1.7a4a78ddf67f3p-36)
#endif

FM_FN(V, inverf, (V x)) {
  V w = MINUS(FM_CALL(log, (FMA(MINUS(x), x, K(1.0)))));
  V s = SQRT(w);
  V t = SUB(w, K(INVERF_MIDDLE)), u = SUB(s, K(INVERF_TAIL)), v = SUB(s, K(5.0));
  V tail = SEL(LT(s, K(4.0)), POLY_INVERF_TAIL(u), POLY_INVERF_END(v));
  V r = MUL(x, SEL(LT(w, K(2 * INVERF_MIDDLE)), POLY_INVERF(t), tail));
  return SEL(EQ(MAGNITUDE(x), K(1.0)), WITH_SIGN(INF, x), r);
}
#undef INVERF_MIDDLE
#undef INVERF_TAIL
#undef POLY_INVERF
#undef POLY_INVERF_TAIL
#undef POLY_INVERF_END

END
added

# A policy word: values that are moved away unless a planner finds better. The tag alone decides.
adding 'A word of a policy' 2
place lang/names/clauses.def 'POLICY(budget, ' <<'END'
POLICY(spill, NAMES, "checkpoint <spill matmul> { .. }", TAGS(SPILL, NONE), "these values are moved out of memory, unless the planner, under a budget, finds better")
END
place graph/tags.def 'TAG(OFFLOAD, ' <<'END'
TAG(SPILL, "spill", false, OFFLOAD, BOOL)
END
added

# A mode that takes a word, and sets a field that other modes set, too.
adding 'A mode of wrap' 2
place lang/names/clauses.def 'FIELD(uint8_t, device) ' <<'END'
MODE(precision, CHOICE, "wrap <precision half> { .. }", RUNS(compute), "operands of products and convolutions are rounded to half, or not at all, as outside of `wrap <bf16>`")
CHOICES(precision, "no precision is called", "precisions are full and half")
CHOICE(precision, full, COMPUTE_NONE, "operands of products and convolutions are as they are")
CHOICE(precision, half, COMPUTE_F16, "operands of products and convolutions are rounded to f16")
END
place lang/eval/wrap.c 'static void mode_seed(' <<'END'
static void mode_precision(Wrap *w, Node *c) {
  w->s->modes.compute = (uint8_t)clause_choice_of(MODE_precision, c->clause.args.items[0]);
}

END
added

# A pass, in a file of its own. A graph called `unsound` comes out wrong, to be found by who verifies.
adding 'A pass over graphs' 2
create graph/reciprocal.c graph/dce.c <<'END'
/* Divisions by powers of two become products.
 *
 * In: a graph. Out: the same graph, where x / 2^k is x * 2^-k for small k. Both are the one exact
 * number, rounded once, in every dtype of floats: all bits stay.
 */
#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "graph/copy.h"
#include "graph/opcode.h"

/* 1 / c of the constant c behind v; 0: it is none, or no such power. */
static double inverse(const Graph *g, Val v) {
  int k;
  if (g->nodes[v.node].op == OP_BROADCAST) v = gr_operand(g, v.node, 0);
  const Attr *c = g->nodes[v.node].op == OP_CONST ? gr_attr(g, v.node, AT_VALUE) : NULL;
  bool power = c && c->kind == AK_FLOAT && frexp(c->u.f, &k) == 0.5 && k > -12 && k < 14;
  return power ? 1 / c->u.f : 0;
}

static Val product(Graph *d, const Type *t, Val x, double by) {
  Val in[2] = {x, gr_const_f(d, (DType)t->dtype, (Device)t->dev, by)};
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) dim[i] = t->dim[i];
  Attr dims = attr_dims(AT_DIMS, t->rank, dim);
  if (t->rank) in[1] = gr_op(d, OP_BROADCAST, &in[1], 1, &dims, 1, NULL, 0, NULL);
  return gr_op(d, OP_MUL, in, 2, NULL, 0, NULL, 0, NULL);
}

Graph *gr_reciprocal(Arena *a, const Graph *g) {
  stack_check();
  Graph *d = copy_start(a, g);
  ValMap map = map_new(a, g);
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    double by = n->op == OP_DIV ? inverse(g, gr_operand(g, i, 1)) : 0;
    if (by != 0) {
      d->at = g->provs[n->prov];
      map.to[n->result0] =
          product(d, &g->types[n->result0], map_get(&map, gr_operand(g, i, 0)), by);
      continue;
    }
    Graph **regions = n->region_count ? ARENA_ARRAY(a, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->region_count; k++)
      regions[k] = gr_reciprocal(a, g->regions[n->region0 + k]);
    copy_node(d, &map, i, regions);
  }
  copy_checks(d, g);
  copy_outputs(d, &map);
  d->at = g->at;
  if (g->name && !strcmp(g->name, "unsound")) d->outputs[0].node = UINT32_MAX;
  return d;
}
END
place lang/compile/pipeline.def 'PASS(SIMPLIFY, ' <<'END'
PASS(RECIPROCAL, "reciprocal", gr_reciprocal, BEFORE, ALWAYS,
     "makes products of divisions by powers of two, which have the same bits")
END
added

tap_empty "$(cat faults)" 'each addition is in as many places as it should be'
tap_empty "$(sort -u changed >want
  find ./*/ -name tests -prune -o -type f \( -name '*.[chy]' -o -name '*.re' -o -name '*.def' -o -name '*.inc' \
    -o -name '*.ckl' -o -name '*.md' \) ! -name Makefile.inc -print | while read -r f; do
    cmp -s "$source/$f" "$f" || echo "${f#./}"
  done | sort | diff want -)" 'and nowhere else'

# ---- one build ----

"${MAKE:-make}" -s ckl ckl-codegen tests/unit/t-fmath >"$log" 2>&1
tap_status $? 'it builds' "$log"

# What is printed by a command: the bits of functions, and cases of tests/grad, in the form of make-ops.py
# (numbers by mpmath).
srcdir=$copy
export srcdir
tests/unit/t-fmath --bits >new && mv new tests/unit/fmath-bits.txt
tap_empty "$(diff "$source/tests/unit/fmath-bits.txt" tests/unit/fmath-bits.txt | grep '^<')" 'no function has other bits'
cat >>tests/grad/ops.txt <<'END'
case inverf 2
in float 2 2 2 -0.15855051577091217 -0.31423574686050415 0.1358410269021988 -0.3848073482513428
out 2 2 2 -0.14144947197950625 -0.28610243014444714 0.12097352653795795 -0.35544503951102213
weight 0.143528014421463 -0.5372443199157715 -1.768004298210144 0.029742931947112083
grad 0 0.12976900094800684 -0.5167324965725983 -1.5899518803042978 0.029908731483707263
weight2 0 -1.8500173091888428 -0.26541727781295776 -1.7205783128738403 -1.6371479034423828
grad2 0 0.061406219901023934 -0.07548148740171169 0.5952226184988915 0.03500278333051391
END

# ---- used ----

# works NAME COMMAND...: a program of the copy says nothing but "ok", one for each line that does
works() {
  title=$1
  shift
  "$@" >out 2>"$log" || { echo "status $?"; cat "$log"; } >>out
  tap_empty "$(grep -v -x ok out; [ -s out ] || echo 'nothing is printed')" "$title"
}
CKL_CACHE= CKL_KERNELS= CKL_CHECK=1 CKL_CODEGEN=$copy/ckl-codegen
export CKL_CACHE CKL_KERNELS CKL_CHECK CKL_CODEGEN
[ -x ckl-codegen ] && machine='native emulator' || machine=

cat >holds.ckl <<'END'
proc holds(right) {
  if right { print("ok") } else { print("wrong") }
}

END
cat holds.ckl - >inverf.ckl <<'END'
# Values and derivatives by mpmath, 40 digits.
let x = f64([0.0, 0.0625, 0.5, 0.75, 0.96875, 0.9990234375, 1 - 2.0 ** -24, 1 - 2.0 ** -40, 1 - 2.0 ** -53])
let y = f64([0.0, 0.055445948772782020299, 0.47693627620446987338, 0.81341984759761854169, 1.523019401996956111,
  2.3314677736219476723, 3.8325068569007109095, 5.0512540852493899671, 5.8635847487551679272])
let slope = f64([0.88622692545275801365, 0.88895560362032729406, 1.1125848189719498041, 1.7174997693674522713,
  9.0142428129868595308, 203.35632620489722887])

proc near(a, b, tolerance) { holds(all(abs(a - b) <= tolerance * abs(b))) }

fn forward[N](x: f64[N]) -> f64[N] = inverf(x)
fn loss[N](x: f64[N]) -> f64 = sum(inverf(x))
fn there_and_back[N](x: f32[N]) -> f32[N] = erf(inverf(x) * 1.0)

# script, code, a number, one element at a time; odd, and the ends
near(inverf(x), y, 4e-16)
near(-inverf(-x), y, 4e-16)
holds(all(forward(x) == inverf(x)))
holds(abs(inverf(0.5) - 0.4769362762044699) < 1e-15)
let rows = reshape(x[:8], [2, 4])
holds(all(vmap(forward, rows) == inverf(rows)))
holds(all(inverf(f64([1.0, -1.0])) == f64([inf, -inf])))
holds(isnan(inverf(1.5)) and isnan(inverf(-1.5)) and isnan(inverf(nan)))
near(f64(inverf(f32(x[:7]))), y[:7], 2.4e-7)
let h = f16([0.25, -0.5, 0.75])
holds(all(inverf(h) == f16(inverf(f32(h)))))
let z = f32([-0.9, -0.25, 0.125, 0.5, 0.875])
holds(all(abs(there_and_back(z) - z) <= 2.4e-7))

# derivatives: in script, of code, in code, twice
let at = track(x[:6])
near(grad(sum(inverf(at)), at), slope, 1e-14)
near(grad(loss(at), at), slope, 1e-14)
fn slopes[N](x: f64[N]) -> f64[N] = grad(loss(x), x)
near(slopes(x[:6]), slope, 1e-14)
near(vmap(slopes, reshape(x[:6], [2, 3])), reshape(slope, [2, 3]), 1e-14)
holds(gradcheck(fn(v: f64[3]) = sum(inverf(v) ** 2), f64([0.1, -0.4, 0.7])))
END
for mode in reference loops $machine; do
  works "inverf in script, in code, its gradient, under vmap: $mode" env CKL_CPU=$mode ./ckl run inverf.ckl
done
if [ -n "$machine" ]; then
  CKL_CPU=native ./ckl run --counts inverf.ckl >/dev/null 2>"$log"
  tap_empty "$(awk '$1 == "jit.generated" && $2 > 3 { n = 1 } END { exit !n }' "$log" || cat "$log")" 'machine code of it is made'
  works 'and with --device=emu' ./ckl run --device=emu inverf.ckl
fi
tap_empty "$(./ckl help inverf | grep -q 'inverse of erf' || ./ckl help inverf)" 'ckl help inverf'
tap_empty "$(./ckl ops --markdown | grep -q '^| `inverf` | elementwise' || echo absent)" 'ckl ops'
tap_empty "$(./ckl builtins --markdown | grep -q '`inverf' || echo absent)" 'ckl builtins'

# ---- the words: help, completion, lists, what is wrong, at the prompt as in a file ----

# said COMMAND...: the first error and its help, without its place
said() { "$@" 2>&1 | grep -e '^error\[' -e '^ *= help: ' | sed 's/ *\(wrong\.ckl\|repl\):[0-9:]*$//' | head -2; }
# alike BODY TEXT: in a function of a file, which is refused before it runs, and at the prompt in its call
alike() {
  printf 'fn f(x: f32[2, 2]) -> any {\n  %s\n}\nprint(f(ones([2, 2])))\n' "$1" >wrong.ckl
  said ./ckl run wrong.ckl >out
  said ./ckl repl <wrong.ckl >new
  { cat out; echo 'at the prompt'; cat new; } >"$log"
  grep -q -F -e "$2" out && cmp -s out new
  tap_status $? "$1" "$log"
}
# lists TEXT COMMAND...: what is printed has the text
lists() {
  text=$1
  shift
  "$@" >out 2>&1
  grep -q -F -e "$text" out
  tap_status $? "$*: $text" out
}
alike 'checkpoint <spill> { x }' '`spill` names what it is about'
alike 'checkpoint <spill 3> { x }' 'op classes and names of `let`s stand here'
alike 'checkpoint <spil matmul> { x @ x }' 'did you mean `spill`?'
alike 'checkpoint <spill matmul, save matmul> { x @ x }' 'the clauses disagree about `matmul`: `spill` and `save`'
alike 'checkpoint <prefer spill matmul> { x @ x }' '`prefer` is followed by `save` or `recompute`'
alike 'checkpoint <elsewhere> { x }' 'offload spill budget'
alike 'wrap <precision half, bf16> { x }' '`precision` and `bf16` exclude each other'
alike 'wrap <tf32, precision full> { x }' '`tf32` and `precision` exclude each other'
alike 'wrap <precision half, precision full> { x }' '`precision` stands twice'
alike 'wrap <precision quarter> { x }' 'no precision is called `quarter`'
alike 'wrap <precision> { x }' '`precision` takes 1 argument here, not 0'
alike 'wrap <precisoin half> { x }' 'did you mean `precision`?'
alike 'wrap <elsewhere> { x }' 'tf32 precision device'
lists 'unless the planner, under a budget, finds better' ./ckl help spill
lists 'rounded to half, or not at all' ./ckl help precision
lists 'wrap <precision half> { .. }' ./ckl help half
lists 'did you mean `precision`' ./ckl help precisio
lists 'did you mean `spill`' ./ckl help spil
"${MAKE:-make}" -s tests/repl/pty >"$log" 2>&1
if tests/repl/pty --probe; then
  XDG_STATE_HOME=$copy tests/repl/pty ./ckl -- '> ' 'let a = f32([[1.0, 2.0], [3.0, 4.0]])\r' 'a : ' \
    'sum(wrap <precisi\t half> { a @ a })\r' '54.0' 'sum(checkpoint <spil\t matmul> { a @ a })\r' '54.0' \
    'sum(wrap <precision ful\t> { a })\r' '10.0' '' '> ' ':quit\r' >"$log" 2>&1
  tap_status $? 'Tab completes the words' "$log"
else
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - Tab completes the words # SKIP no pseudo-terminal"
fi

# ---- the word of a policy ----

cat holds.ckl - >spill.ckl <<'END'
fn plain(x: f32[16, 16]) -> f32 = sum(tanh(x @ x) @ x)
fn spilled(x: f32[16, 16]) -> f32 = checkpoint <spill pointwise> { plain(x) }
fn roomy(x: f32[16, 16]) -> f32 = checkpoint <spill pointwise, budget = 1GiB> { plain(x) }
fn moved(x: f32[16, 16]) -> f32 = checkpoint <offload pointwise, budget = 1GiB> { plain(x) }
fn large(op: str, name: str, bytes: int, flops: int) -> any = if bytes >= 1024 and op == "pointwise" { "spill" } else { none }
fn chosen(x: f32[16, 16]) -> f32 = checkpoint <large> { plain(x) }
policy away { spill pointwise }
policy kept { save pointwise }

model Inner() {
  fn forward(x: f32[16, 16]) -> f32[16, 16] = tanh(x @ x) @ x
}

model Outer() {
  let inner = Inner()
  fn forward(x: f32[16, 16]) -> f32[16, 16] = inner(x)
}

fn loss(net: Outer, x: f32[16, 16]) -> f32 = sum(net(x))

# the same values and gradients, in code, by a declared policy, by a function, in script
let x = track(0.1 * normal([16, 16], key = key(1)))
let slope = grad(plain(x), x)
holds(spilled(x) == plain(x))
holds(all(grad(spilled(x), x) == slope))
holds(all(grad(roomy(x), x) == slope))
holds(all(grad(moved(x), x) == slope))
holds(all(grad(chosen(x), x) == slope))
holds(all(grad(checkpoint <away> { plain(x) }, x) == slope))
holds(all(grad(checkpoint <spill all> { sum(tanh(x @ x) @ x) }, x) == slope))

# one more entry of a call for each word, and none for a word that stood before
let net = Outer()
proc entries() {
  let before = counter("compile")
  let l = loss(net, x)
  holds(all(grad(l, x) == slope))
  counter("compile") - before
}

holds(entries() > 0)
for word in [away, kept] {
  checkpoint_layers(net, policy = word)
  holds(entries() > 0)
  holds(entries() == 0)
}
checkpoint_layers(net, policy = away)
holds(entries() == 0)
END
for mode in reference loops $machine; do
  works "a policy's word in script, in code, on layers: $mode" env CKL_CPU=$mode ./ckl run spill.ckl
done
lists 'tag=spill' ./ckl ir --stage=stage spill.ckl spilled
for f in spilled:offloaded:policy chosen:offloaded:policy roomy:saved:planner moved:offloaded:policy; do
  IFS=: read -r f becomes who <<END
$f
END
  CKL_CPU=loops ./ckl plan spill.ckl "$f" >out 2>"$log"
  tap_empty "$(grep -q "^ *tanh .* $becomes  *$who" out || cat out "$log")" "ckl plan: values of $f are $becomes by the $who"
done
lists 'block 1 of spill.ckl:7 <spill pointwise, budget = 1GiB>' ./ckl plan spill.ckl roomy

# ---- the mode ----

cat holds.ckl - >precision.ckl <<'END'
fn product(a: f32[8, 8], b: f32[8, 8]) -> f32[8, 8] = a @ b
fn other(a: f32[8, 8], b: f32[8, 8]) -> f32[8, 8] = a @ b
fn inside(a: f32[8, 8], b: f32[8, 8]) -> f32[8, 8] = wrap <precision half> { a @ b }
fn outside(a: f32[8, 8], b: f32[8, 8]) -> f32[8, 8] = wrap <f16> { wrap <precision full> { a @ b } }
let a = normal([8, 8], key = key(1))
let b = normal([8, 8], key = key(2))
let plain = product(a, b)
let half = wrap <f16> { product(a, b) }
holds(not all(plain == half))
holds(all((wrap <precision half> { product(a, b) }) == half))
holds(all((wrap <precision half> { a @ b }) == half))
holds(all((wrap <f16> { wrap <precision full> { product(a, b) } }) == plain))
holds(all((wrap <f16> { wrap <precision full> { a @ b } }) == plain))
holds(all((wrap <precision "half", train> { a @ b }) == half))
holds(all(inside(a, b) == half))
holds(all(outside(a, b) == plain))

# it is part of the signature, as the field that it sets: a call has an entry for each
let start = counter("compile")
holds(all(other(a, b) == plain))
let one = counter("compile")
holds(all((wrap <precision half> { other(a, b) }) == half))
let two = counter("compile")
holds(all((wrap <precision half> { other(a, b) }) == half))
holds(all((wrap <f16> { other(a, b) }) == half))
holds(all((wrap <precision full> { other(a, b) }) == plain))
holds(one == start + 1 and two == one + 1 and counter("compile") == two)
END
for mode in reference loops $machine; do
  works "a mode in script, in code, in the signature: $mode" env CKL_CPU=$mode ./ckl run precision.ckl
done
./ckl run precision.ckl >want 2>&1
tap_empty "$(./ckl repl <precision.ckl 2>&1 | grep -x -e ok -e wrong -e 'error.*' | diff want -)" 'and at the prompt'

# ---- the pass ----

cat holds.ckl - >reciprocal.ckl <<'END'
fn eighth[N](x: float[N]) -> float[N] = x / 8.0
fn loss[N](x: f32[N]) -> f32 = sum(tanh(x / 0.5))
fn kept[N](x: f32[N]) -> f32 = checkpoint <save reduce> { sum(tanh(x / 0.5)) }
fn slopes[N](x: f32[N]) -> f32[N] = grad(loss(x), x)
let ends = f32([1e-45, -3e-45, 1e-38, 1.17e-38, 0.0, 1.5, 3.4e38, inf])
proc same_bits(x) {
  holds(all(eighth(x) == x / 8.0))
  holds(all(eighth(-x) == -x / 8.0))
}

same_bits(ends)
same_bits(f64(ends))
same_bits(f16(ends))
same_bits(bf16(ends))
let x = track(f32([0.1, -0.5, 0.25]))
let slope = 2.0 - 2.0 * tanh(2.0 * x) ** 2
holds(all(abs(grad(loss(x), x) - slope) < 1e-6))
holds(all(grad(kept(x), x) == grad(loss(x), x)))
holds(all(slopes(x) == grad(loss(x), x)))
END
for mode in reference loops $machine; do
  works "a pass keeps bits and gradients: $mode" env CKL_CPU=$mode ./ckl run reciprocal.ckl
done
# graph TITLE WANT: the graphs in ./out have so many products and divisions
graph() {
  tap_empty "$([ "$(grep -c ' = mul ' out) $(grep -c ' = div ' out)" = "$2" ] || cat out)" "$1"
}
for stage in 'stage:0 1' 'remat:0 1' 'reciprocal:1 0' 'simplify:1 0'; do
  ./ckl ir --stage="${stage%:*}" reciprocal.ckl eighth 'f32[4]' >out 2>&1
  graph "ckl ir --stage=${stage%:*}" "${stage#*:}"
done
./ckl ir --stage=remat reciprocal.ckl eighth 'f32[4]' >remat.ckg
./ckl ir --stage=reciprocal reciprocal.ckl eighth 'f32[4]' >want
./ckl opt --pass=reciprocal remat.ckg >out 2>&1
tap_empty "$(diff want out)" 'ckl opt --pass=reciprocal'
cat >halves.ckl <<'END'
fn loss(x: f32[2]) -> f32 = sum(x / 0.5)
fn kept(x: f32[2]) -> f32 = checkpoint { sum(tanh(x / 0.5)) }
let x = track(f32([0.1, 0.2]))
print(grad(loss(x), x))
print(grad(kept(x), x))
END
./ckl run --dump=reciprocal halves.ckl 2>out >/dev/null
graph 'ckl run --dump=reciprocal' '2 0'
./ckl run --dump=joint halves.ckl 2>out >/dev/null
tap_empty "$(grep ' = div ' out; grep -q ' = mul .* backward' out || cat out)" 'the halves of a gradient go through it'
CKL_CPU=loops ./ckl run --time-passes halves.ckl 2>out >/dev/null
tap_empty "$(grep -q '^reciprocal .* ms$' out || cat out)" 'ckl run --time-passes'
./ckl passes --markdown >docs/passes.md
tap_empty "$(awk -F ' *[|] *' '$2 == "`reciprocal`" && $3 == "`remat`" && $5 $6 $7 == "yesyesyes" { n++ }
  $2 == "`simplify`" && $3 == "`reciprocal`" { n++ }
  END { if (n != 2) print "not so" }' docs/passes.md)" 'docs/passes.md: it stands between remat and simplify'
sh tests/passes.t >out 2>&1 && ! grep -q '^not ok' out
tap_status $? 'the page, the stages, the passes and the times are one list' out
printf 'fn unsound(x: f32[2]) -> f32[2] = x / 2.0\nprint(unsound(ones([2])))\n' >unsound.ckl
lists 'after `reciprocal` of `unsound`: the graph: an output does not exist' ./ckl run unsound.ckl
sed 's/graph "eighth"/graph "unsound"/' remat.ckg >unsound.ckg
lists 'an output does not exist' ./ckl opt --pass=reciprocal unsound.ckg

# ---- the tests that are made of the tables ----

# a pass without graphs of its own fails, as one of which nobody has read what it does
tests='t-pass-text t-graph-pass t-remat t-fmath t-fmath-build t-ops t-grad t-batch t-joint t-ref-elem t-loop'
[ -z "$machine" ] || tests="$tests t-emit"
"${MAKE:-make}" -s $(for t in $tests; do echo "tests/unit/$t"; done) >"$log" 2>&1
tap_status $? 'tests build' "$log"
tests/unit/t-pass-text >out 2>&1
tap_empty "$(grep -q '^not ok .*reciprocal' out || cat out)" 'a pass without a folder in tests/pass/ is found'
mkdir tests/pass/reciprocal
{ echo '# A division by a power of two.'; cat remat.ckg; } >tests/pass/reciprocal/eighth.ckg
tests/unit/t-pass-text --bless >"$log" 2>&1
tap_empty "$(diff want tests/pass/reciprocal/eighth.out)" 'what it makes of a graph is written by t-pass-text --bless'
for t in $tests; do
  "tests/unit/$t" >out 2>&1 && ! grep -q '^not ok' out
  tap_status $? "$t" out
done
"${MAKE:-make}" -s tests/cover/ops >"$log" 2>&1 && ! tests/cover/ops --only=inverf reference >out 2>&1 &&
  grep -q '^not ok .* inverf' out && grep -q 'no numbers: tests/cover/make-numbers.py' out
tap_status $? 'an operation without numbers for the classes of its set is found' out
tests/unit/t-fmath >out
tap_empty "$(grep -q '^ok .* inverf has the same bits in every expansion' out || cat out)" 'which know of it'
tap_done
