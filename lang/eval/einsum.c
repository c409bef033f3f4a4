/* einsum: axes by name.
 *
 * In: a pattern and tensors. Out: a value made of reshapes, transposes, broadcasts, products and
 * contractions, in script and in code. Patterns are read with places, so that an error points into
 * the text. A contraction is OP_DOT, or OP_INNER if only shared axes are left; that fixes its bits
 * (rule 105).
 *
 * einsum takes its operands from left to right, two at a time. An axis named twice in one operand
 * means its diagonal. Axes that only one operand names, and the result does not, are summed first.
 * Axes that both operands of a step name, and no later operand nor the result does, are contracted,
 * in their order in the left operand.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/eval.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/pattern.h"
#include "lang/eval/shapes.h"
#include "lang/value/fail.h"

enum { NAMES_MOST = 64, OPERANDS_MOST = 16 };

typedef struct Axis {
  int name; /* index of the name */
  size_t lo, hi;
} Axis;

typedef struct Term {
  Axis axis[CKL_MAX_RANK];
  int count;
  int ellipsis; /* place of `...` among the axes, -1: none */
  size_t lo, hi;
} Term;

typedef struct Einsum {
  Session *s;
  Pattern p;
  Span at;
  const char *names[NAMES_MOST];
  size_t name_n[NAMES_MOST];
  Dim size[NAMES_MOST];
  int owner[NAMES_MOST]; /* operand that determined the size, -1: none yet */
  int name_count;
  Term in[OPERANDS_MOST], out;
  int in_count;
  Value x[OPERANDS_MOST];
} Einsum;

static int name_index(Einsum *e, const char *text, size_t n, size_t lo) {
  for (int i = 0; i < e->name_count; i++)
    if (e->name_n[i] == n && !memcmp(e->names[i], text, n)) return i;
  if (e->name_count == NAMES_MOST)
    fail_at(e->s, ERR_EINSUM, pat_place(&e->p, lo, lo + n), "a pattern has at most %d names",
            NAMES_MOST);
  e->names[e->name_count] = text;
  e->name_n[e->name_count] = n;
  e->owner[e->name_count] = -1;
  return e->name_count++;
}

static void add_axis(Einsum *e, Term *t, int name, size_t lo, size_t hi) {
  if (t->count == CKL_MAX_RANK)
    fail_at(e->s, ERR_RANK_MAX, pat_place(&e->p, lo, hi), "a tensor has at most %d axes",
            CKL_MAX_RANK);
  t->axis[t->count++] = (Axis){name, lo, hi};
}

/* Names up to `,` or `->` or the end. */
static void read_term(Einsum *e, Term *t, bool letters) {
  Pattern *p = &e->p;
  *t = (Term){.ellipsis = -1};
  pat_skip(p);
  t->lo = p->pos;
  for (;;) {
    pat_skip(p);
    size_t lo = p->pos;
    if (lo == p->n || p->text[lo] == ',' || p->text[lo] == '-') break;
    if (pat_takes(p, "...")) {
      if (t->ellipsis >= 0)
        fail_at(e->s, ERR_EINSUM, pat_place(p, lo, lo + 3), "`...` stands once in a term");
      t->ellipsis = t->count;
      continue;
    }
    if (!pat_is_letter(p->text[lo]))
      fail_help(e->s, ERR_EINSUM, pat_place(p, lo, lo + 1),
                "names are separated by blanks, operands by commas: \"b i k, b k j -> b i j\"",
                "this does not belong in a pattern");
    while (p->pos < p->n && pat_is_name(p->text[p->pos])) {
      p->pos++;
      if (letters) break;
    }
    add_axis(e, t, name_index(e, p->text + lo, p->pos - lo, lo), lo, p->pos);
  }
  t->hi = p->pos;
  while (t->hi > t->lo && p->text[t->hi - 1] == ' ') t->hi--;
}

static void read_pattern(Einsum *e) {
  Pattern *p = &e->p;
  bool letters = !memchr(p->text, ' ', p->n) && !memchr(p->text, '\t', p->n);
  for (;;) {
    if (e->in_count == OPERANDS_MOST)
      fail_at(e->s, ERR_EINSUM, pat_place(p, p->pos, p->n), "`einsum` takes at most %d operands",
              OPERANDS_MOST);
    read_term(e, &e->in[e->in_count++], letters);
    if (!pat_takes(p, ",")) break;
  }
  if (!pat_takes(p, "->"))
    fail_help(
        e->s, ERR_EINSUM, p->pos < p->n ? pat_place(p, p->pos, p->pos + 1) : p->span,
        fail_text(e->s,
                  "\"%s -> ..\" with the axes of the result; nothing after the arrow sums all",
                  p->text),
        "the pattern says nothing about the result: `->` is missing");
  read_term(e, &e->out, letters);
  pat_skip(p);
  if (p->pos < p->n)
    fail_at(e->s, ERR_EINSUM, pat_place(p, p->pos, p->n),
            "the pattern ends after the axes of the result");
}

static bool in_term(const Term *t, int name) {
  for (int i = 0; i < t->count; i++)
    if (t->axis[i].name == name) return true;
  return false;
}

/* Replaces `...` by names for its axes: the last axis is "..0", the one before it "..1". */
static void expand(Einsum *e, Term *t, int count) {
  if (t->ellipsis < 0) return;
  Term old = *t;
  t->count = 0;
  for (int i = 0; i <= old.count; i++) {
    if (i == old.ellipsis)
      for (int k = count; k-- > 0;) {
        const char *name = fail_text(e->s, "..%d", k);
        add_axis(e, t, name_index(e, name, strlen(name), old.lo), old.lo, old.hi);
      }
    if (i < old.count) add_axis(e, t, old.axis[i].name, old.axis[i].lo, old.axis[i].hi);
  }
}

static void check_operand(Einsum *e, int k) {
  Session *s = e->s;
  Term *t = &e->in[k];
  Type ty = op_type_of(s, e->x[k]);
  int named = t->count;
  if (t->ellipsis >= 0 ? named > ty.rank : named != ty.rank) {
    Diag *d = fail_report(s, ERR_EINSUM, pat_place(&e->p, t->lo, t->hi),
                          "operand %d is %s, the pattern names %d ax%s", k + 1,
                          value_type_text(s, e->x[k]), named, named == 1 ? "is" : "es");
    if (named == 1 && (int)(t->hi - t->lo) == ty.rank)
      dg_help(&s->diags, d,
              "separate names by blanks; in a pattern without any blank each letter is an axis");
    fail_raise(s);
  }
  expand(e, t, ty.rank - named);
  for (int i = 0; i < t->count; i++) {
    int n = t->axis[i].name;
    if (e->owner[n] < 0) {
      e->owner[n] = k;
      e->size[n] = ty.dim[i];
      continue;
    }
    Span at = pat_place(&e->p, t->axis[i].lo, t->axis[i].hi);
    if (pat_sizes_agree(
            s, e->size[n], ty.dim[i], at,
            fail_text(s, "the axes `%.*s` of an einsum differ", (int)e->name_n[n], e->names[n])))
      continue;
    fail_at(s, ERR_EINSUM, at, "`%.*s` is %s in operand %d and %s in operand %d", (int)e->name_n[n],
            e->names[n], pat_dim_text(s, e->size[n]), e->owner[n] + 1, pat_dim_text(s, ty.dim[i]),
            k + 1);
  }
}

static void check_out(Einsum *e) {
  int most = 0;
  for (int n = 0; n < e->name_count; n++) {
    int k = 0;
    if (e->name_n[n] == 3 && !memcmp(e->names[n], "..", 2))
      k = e->names[n][2] - '0' + 1;
    else if (e->name_n[n] == 4 && !memcmp(e->names[n], "..1", 3))
      k = 11 + e->names[n][3] - '0';
    if (k > most) most = k;
  }
  expand(e, &e->out, most);
  for (int i = 0; i < e->out.count; i++) {
    Axis a = e->out.axis[i];
    Span at = pat_place(&e->p, a.lo, a.hi);
    const char *name = fail_text(e->s, "%.*s", (int)e->name_n[a.name], e->names[a.name]);
    if (e->owner[a.name] < 0) {
      const char *near = NULL;
      for (int n = 0; n < e->name_count; n++)
        if (e->owner[n] >= 0 && e->name_n[n] > 1 &&
            str_distance(name, fail_text(e->s, "%.*s", (int)e->name_n[n], e->names[n]), 1) <= 1)
          near = fail_text(e->s, "did you mean `%.*s`?", (int)e->name_n[n], e->names[n]);
      fail_help(e->s, ERR_EINSUM, at, near ? near : "an axis of the result stands in an operand",
                "no operand has an axis `%s`", name);
    }
    for (int k = 0; k < i; k++)
      if (e->out.axis[k].name == a.name)
        fail_at(e->s, ERR_EINSUM, at, "`%s` stands twice in the result", name);
  }
}

/* Whether the result or an operand after k has this name. */
static bool needed(const Einsum *e, int name, int k) {
  if (in_term(&e->out, name)) return true;
  for (int i = k + 1; i < e->in_count; i++)
    if (in_term(&e->in[i], name)) return true;
  return false;
}

/* x [.., n, n] -> [.., n], the diagonal. Flattened, padded by n and cut into rows of n + 1, element
 * i of the diagonal is the first of row i. */
static Value diagonal(Session *s, Value x, Span at) {
  DimTab *dt = op_dims_of(s);
  Type t = op_type_of(s, x);
  int r = t.rank - 2;
  Dim n = t.dim[r], d[CKL_MAX_RANK], one = dim_const(dt, 1), zero = dim_const(dt, 0);
  for (int i = 0; i < r; i++) d[i] = t.dim[i];
  d[r] = dim_mul(dt, n, n);
  x = pat_reshape(s, x, r + 1, d, at);
  int64_t low[CKL_MAX_RANK], high[CKL_MAX_RANK], inner[CKL_MAX_RANK] = {0}, len[CKL_MAX_RANK],
                                                 step[CKL_MAX_RANK];
  for (int i = 0; i <= r; i++) {
    low[i] = zero;
    high[i] = i == r ? n : zero;
  }
  Attr pad[3] = {attr_dims(AT_LOW, r + 1, low), attr_dims(AT_HIGH, r + 1, high),
                 attr_ints(AT_INNER, r + 1, inner)};
  x = op_run(s, OP_PAD, 1, &x, pad, 3, at);
  d[r] = n;
  d[r + 1] = dim_add(dt, n, one);
  x = op_reshape(s, x, r + 2, d, at);
  for (int i = 0; i <= r + 1; i++) {
    low[i] = zero;
    len[i] = i == r + 1 ? one : d[i];
    step[i] = 1;
  }
  Attr cut[3] = {attr_dims(AT_STARTS, r + 2, low), attr_dims(AT_LENS, r + 2, len),
                 attr_ints(AT_STEPS, r + 2, step)};
  x = op_run(s, OP_SLICE, 1, &x, cut, 3, at);
  return op_reshape(s, x, r + 1, d, at);
}

/* Takes diagonals of operand k, and sums over its axes that nothing else names. */
static void prepare(Einsum *e, int k) {
  Session *s = e->s;
  Term *t = &e->in[k];
  for (int i = 0; i < t->count; i++)
    for (int j = i + 1; j < t->count; j++) {
      if (t->axis[j].name != t->axis[i].name) continue;
      int64_t perm[CKL_MAX_RANK];
      Axis axes[CKL_MAX_RANK];
      int n = 0;
      for (int a = 0; a < t->count; a++)
        if (a != i && a != j) {
          axes[n] = t->axis[a];
          perm[n++] = a;
        }
      axes[n] = t->axis[i];
      perm[n] = i;
      perm[n + 1] = j;
      e->x[k] = diagonal(s, pat_transpose(s, e->x[k], perm, e->at), e->at);
      t->count = n + 1;
      memcpy(t->axis, axes, sizeof axes);
      i = -1; /* again from the start: the order changed */
      break;
    }
  int64_t axes[CKL_MAX_RANK];
  int n = 0, kept = 0;
  for (int i = 0; i < t->count; i++) {
    bool other = in_term(&e->out, t->axis[i].name);
    for (int o = 0; o < e->in_count && !other; o++)
      other = o != k && in_term(&e->in[o], t->axis[i].name);
    if (other)
      t->axis[kept++] = t->axis[i];
    else
      axes[n++] = i;
  }
  t->count = kept;
  if (n) e->x[k] = op_reduce(s, OP_SUM, e->x[k], n, axes, false, e->at);
}

/* Appends to perm the axes of t whose names are in list. */
static int pick(const Term *t, const int *list, int n, int64_t *perm, int at) {
  for (int i = 0; i < n; i++)
    for (int a = 0; a < t->count; a++)
      if (t->axis[a].name == list[i]) perm[at++] = a;
  return at;
}

static Dim product(Einsum *e, const int *list, int n) {
  Dim d[CKL_MAX_RANK];
  for (int i = 0; i < n; i++) d[i] = e->size[list[i]];
  return dim_product(op_dims_of(e->s), n, d);
}

/* x, an operand with term t, with the axes of three lists, each merged into one axis. Without
 * `batch` the first list, which is empty, gives no axis. */
static Value arranged(Einsum *e, Value x, const Term *t, const int *const list[3], const int *n,
                      bool batch) {
  int64_t perm[CKL_MAX_RANK];
  int at = 0, rank = 0;
  Dim d[3];
  for (int i = 0; i < 3; i++) {
    at = pick(t, list[i], n[i], perm, at);
    if (i || batch) d[rank++] = product(e, list[i], n[i]);
  }
  return pat_reshape(e->s, pat_transpose(e->s, x, perm, e->at), rank, d, e->at);
}

/* Combines acc, which has the axes of term a, with operand k. */
static Value pair(Einsum *e, Value acc, Term *a, int k) {
  Session *s = e->s;
  const Term *b = &e->in[k];
  int both[CKL_MAX_RANK], left[CKL_MAX_RANK], right[CKL_MAX_RANK], con[CKL_MAX_RANK];
  int nb = 0, nl = 0, nr = 0, nc = 0;
  for (int i = 0; i < a->count; i++) {
    int n = a->axis[i].name;
    if (!in_term(b, n))
      left[nl++] = n;
    else if (needed(e, n, k))
      both[nb++] = n;
    else
      con[nc++] = n;
  }
  for (int i = 0; i < b->count; i++)
    if (!in_term(a, b->axis[i].name)) right[nr++] = b->axis[i].name;
  if (nb + nl + nr > CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, e->at,
            "a step of this einsum has %d axes, a tensor has at most %d; change the order of the "
            "operands",
            nb + nl + nr, CKL_MAX_RANK);
  Term r = {.ellipsis = -1};
  Dim full[CKL_MAX_RANK];
  for (int i = 0; i < nb; i++) r.axis[r.count++] = (Axis){both[i], 0, 0};
  for (int i = 0; i < nl; i++) r.axis[r.count++] = (Axis){left[i], 0, 0};
  for (int i = 0; i < nr; i++) r.axis[r.count++] = (Axis){right[i], 0, 0};
  for (int i = 0; i < r.count; i++) full[i] = e->size[r.axis[i].name];
  Value v[2] = {acc, e->x[k]}, out;
  Attr compute = attr_i(AT_COMPUTE, s->modes.compute);
  if (nc == 0) { /* no contraction: both are broadcast and multiplied */
    const Term *t[2] = {a, b};
    for (int o = 0; o < 2; o++) {
      int64_t perm[CKL_MAX_RANK];
      Dim d[CKL_MAX_RANK], one = dim_const(op_dims_of(s), 1);
      int n = 0;
      for (int i = 0; i < r.count; i++) {
        d[i] = one;
        for (int j = 0; j < t[o]->count; j++)
          if (t[o]->axis[j].name == r.axis[i].name) {
            perm[n++] = j;
            d[i] = full[i];
          }
      }
      v[o] = op_broadcast(s, pat_reshape(s, pat_transpose(s, v[o], perm, e->at), r.count, d, e->at),
                          r.count, full, e->at);
    }
    out = op_run(s, OP_MUL, 2, v, NULL, 0, e->at);
  } else if (nl == 0 && nr == 0) {
    for (int o = 0; o < 2; o++) { /* [both.., contracted] */
      int64_t perm[CKL_MAX_RANK];
      Dim d[CKL_MAX_RANK];
      int at = pick(o ? b : a, both, nb, perm, 0);
      pick(o ? b : a, con, nc, perm, at);
      memcpy(d, full, sizeof d);
      d[nb] = product(e, con, nc);
      v[o] = pat_reshape(s, pat_transpose(s, v[o], perm, e->at), nb + 1, d, e->at);
    }
    out = op_run(s, OP_INNER, 2, v, &compute, 1, e->at);
  } else {
    const int *const la[3] = {both, left, con}, *const lb[3] = {both, con, right};
    int na[3] = {nb, nl, nc}, nn[3] = {nb, nc, nr};
    v[0] = arranged(e, v[0], a, la, na, nb > 0);
    v[1] = arranged(e, v[1], b, lb, nn, nb > 0);
    out = op_run(s, OP_DOT, 2, v, &compute, 1, e->at);
    out = pat_reshape(s, out, r.count, full, e->at);
  }
  *a = r;
  return out;
}

BUILTIN_FN(bi_einsum) {
  RawArg *a;
  size_t n = pat_call_args(s, c, &a);
  if (!n || !a[0].node)
    fail_help(s, ERR_ARG_COUNT, c->at, "einsum(\"i j, j k -> i k\", a, b)",
              "the pattern of `einsum` comes first");
  for (size_t i = 0; i < n; i++)
    if (a[i].name) fail_at(s, ERR_ARG_NAME, a[i].span, "`einsum` has no parameter `%s`", a[i].name);
  Einsum *e = ARENA_NEW(&s->scratch, Einsum);
  e->s = s;
  e->at = c->at;
  if (!pat_arg(s, &e->p, a[0].node, ERR_EINSUM, "the pattern of `einsum`"))
    return (Value){.tag = V_UNKNOWN};
  read_pattern(e);
  bool unknown = false;
  size_t given = n - 1;
  Value *v = ARENA_ARRAY(&s->scratch, Value, n);
  DType like = DT_COUNT;
  Operands read;
  operands_open(s, &read, v);
  for (size_t i = 0; i < given; i++) {
    v[i] = pat_call_value(s, &a[i + 1]);
    read.count = i + 1;
  }
  operands_close(s, &read);
  for (size_t i = 0; i < given; i++) {
    unknown |= v[i].tag == V_UNKNOWN;
    if (v_is_tensor(v[i]) && like == DT_COUNT) like = (DType)op_type_of(s, v[i]).dtype;
  }
  if (given != (size_t)e->in_count)
    fail_at(s, ERR_EINSUM, pat_place(&e->p, 0, e->p.n),
            "the pattern has %d operand%s, %zu %s given", e->in_count, e->in_count == 1 ? "" : "s",
            given, given == 1 ? "is" : "are");
  if (unknown || s->flow != FLOW_NEXT) return (Value){.tag = V_UNKNOWN};
  for (int k = 0; k < e->in_count; k++) {
    e->x[k] = op_as_tensor(s, v[k], like, a[k + 1].span);
    DType dt = (DType)op_type_of(s, e->x[k]).dtype;
    if (like == DT_COUNT) like = dt;
    if (dt == DT_BOOL)
      fail_help(s, ERR_OPERAND, a[k + 1].span,
                fail_text(s, "`i64(%s)` counts bools as 0 and 1",
                          fail_source_text(s, a[k + 1].span, "..")),
                "`einsum` does not work on bool");
    if (dt != like)
      fail_help(s, ERR_DTYPE_MIX, a[k + 1].span,
                fail_text(s, "`%s(..)` casts", dtype_info[like].name),
                "`einsum` needs one dtype: %s and %s", dtype_info[like].name, dtype_info[dt].name);
    check_operand(e, k);
  }
  check_out(e);
  for (int k = 0; k < e->in_count; k++) prepare(e, k);
  Value acc = e->x[0];
  Term t = e->in[0];
  for (int k = 1; k < e->in_count; k++) acc = pair(e, acc, &t, k);
  int64_t perm[CKL_MAX_RANK];
  int list[CKL_MAX_RANK];
  for (int i = 0; i < e->out.count; i++) list[i] = e->out.axis[i].name;
  pick(&t, list, e->out.count, perm, 0);
  return pat_transpose(s, acc, perm, e->at);
}
