/* einsum and rearrange: axes by name.
 *
 * In: a pattern and tensors. Out: a value made of reshapes, transposes, broadcasts, products and
 * contractions, in script and in code. Patterns are read with places, so that an error points into
 * the text. A contraction is OP_DOT, or OP_INNER where only shared axes are left, which fixes its
 * bits (rule 105).
 *
 * einsum takes its operands from left to right, two at a time. Axes of one operand that nothing
 * else names are summed first, an axis named twice in one operand is its diagonal; of two operands
 * those named by both, and by nothing later, are contracted, in their order in the left one.
 */
#include <string.h>

#include "lang/builtin/builtin.h"

enum { NAMES_MOST = 64, OPERANDS_MOST = 16 };

/* ---- patterns ------------------------------------------------------------------------------- */

typedef struct Pattern {
  Session *s;
  const char *text;
  size_t n, pos;
  Span span;    /* of the argument */
  bool literal; /* the text stands in the source as it is: places can be shown */
  ErrCode code;
} Pattern;

static Span place(const Pattern *p, size_t lo, size_t hi) {
  Span sp = p->span;
  if (!p->literal) return sp;
  if (hi <= lo) hi = lo + 1;
  sp.lo = p->span.lo + 1 + (uint32_t)lo;
  sp.hi = p->span.lo + 1 + (uint32_t)hi;
  return sp;
}

/* False where the text is not known (`check`). */
static bool pattern_arg(Session *s, Pattern *p, Node *node, ErrCode code, const char *what) {
  Value v = eval(s, node);
  if (v.tag == V_UNKNOWN) return false;
  *p = (Pattern){.s = s, .span = node->span, .code = code};
  p->text = want_str(s, v, node->span, what);
  p->n = v.u.str->n;
  if (memchr(p->text, 0, p->n)) fail(s, code, node->span, "a pattern holds names, `,` and `->`");
  p->literal = node->kind == N_STRING && node->span.hi - node->span.lo == p->n + 2;
  return true;
}

static void skip_blanks(Pattern *p) {
  while (p->pos < p->n && (p->text[p->pos] == ' ' || p->text[p->pos] == '\t')) p->pos++;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name(char c) {
  return is_letter(c) || (c >= '0' && c <= '9');
}

static bool takes(Pattern *p, const char *what) {
  size_t n = strlen(what);
  skip_blanks(p);
  if (p->n - p->pos < n || memcmp(p->text + p->pos, what, n)) return false;
  p->pos += n;
  return true;
}

/* ---- shapes --------------------------------------------------------------------------------- */

static Value shaped(Session *s, Value x, int rank, const Dim *d, Span at) {
  Type t = type_of(s, x);
  bool same = t.rank == rank;
  for (int i = 0; same && i < rank; i++) same = t.dim[i] == d[i];
  return same ? x : op_reshape(s, x, rank, d, at);
}

static Value permuted(Session *s, Value x, const int64_t *perm, Span at) {
  Type t = type_of(s, x);
  bool same = true;
  for (int i = 0; i < t.rank; i++) same &= perm[i] == i;
  return same ? x : op_transpose(s, x, perm, at);
}

static const char *dim_text(Session *s, Dim d) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  dim_print(&b, dims_of(s), d);
  return b.s;
}

/* a == b, or a check at run time where only sizes can tell; false: they differ. */
static bool agree(Session *s, Dim a, Dim b, Span at, const char *text) {
  if (a == b) return true;
  DimOrder o = dim_compare(dims_of(s), a, b);
  if (o != DIM_MAYBE) return o == DIM_EQUAL;
  if (s->stage) {
    s->stage->g->at.span = at;
    gr_check(s->stage->g, CHECK_EQ, a, b, names_of(s->names, text));
  }
  return true;
}

/* ---- einsum --------------------------------------------------------------------------------- */

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
  int owner[NAMES_MOST]; /* operand that gave the size, -1: none yet */
  int name_count;
  Term in[OPERANDS_MOST], out;
  int in_count;
  Value x[OPERANDS_MOST];
} Einsum;

static int name_index(Einsum *e, const char *text, size_t n, size_t lo) {
  for (int i = 0; i < e->name_count; i++)
    if (e->name_n[i] == n && !memcmp(e->names[i], text, n)) return i;
  if (e->name_count == NAMES_MOST)
    fail(e->s, ERR_EINSUM, place(&e->p, lo, lo + n), "a pattern has at most %d names", NAMES_MOST);
  e->names[e->name_count] = text;
  e->name_n[e->name_count] = n;
  e->owner[e->name_count] = -1;
  return e->name_count++;
}

static void add_axis(Einsum *e, Term *t, int name, size_t lo, size_t hi) {
  if (t->count == CKL_MAX_RANK)
    fail(e->s, ERR_RANK_MAX, place(&e->p, lo, hi), "a tensor has at most %d axes", CKL_MAX_RANK);
  t->axis[t->count++] = (Axis){name, lo, hi};
}

/* Names up to `,` or `->` or the end. */
static void read_term(Einsum *e, Term *t, bool letters) {
  Pattern *p = &e->p;
  *t = (Term){.ellipsis = -1};
  skip_blanks(p);
  t->lo = p->pos;
  for (;;) {
    skip_blanks(p);
    size_t lo = p->pos;
    if (lo == p->n || p->text[lo] == ',' || p->text[lo] == '-') break;
    if (takes(p, "...")) {
      if (t->ellipsis >= 0)
        fail(e->s, ERR_EINSUM, place(p, lo, lo + 3), "`...` stands once in a term");
      t->ellipsis = t->count;
      continue;
    }
    if (!is_letter(p->text[lo]))
      fail_help(e->s, ERR_EINSUM, place(p, lo, lo + 1),
                "names are separated by blanks, operands by commas: \"b i k, b k j -> b i j\"",
                "this does not belong in a pattern");
    while (p->pos < p->n && is_name(p->text[p->pos])) {
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
      fail(e->s, ERR_EINSUM, place(p, p->pos, p->n), "`einsum` takes at most %d operands",
           OPERANDS_MOST);
    read_term(e, &e->in[e->in_count++], letters);
    if (!takes(p, ",")) break;
  }
  if (!takes(p, "->"))
    fail_help(e->s, ERR_EINSUM, p->pos < p->n ? place(p, p->pos, p->pos + 1) : p->span,
              txt(e->s,
                  "\"%s -> ..\" with the axes of the result; nothing after the arrow sums all",
                  p->text),
              "the pattern says nothing about the result: `->` is missing");
  read_term(e, &e->out, letters);
  skip_blanks(p);
  if (p->pos < p->n)
    fail(e->s, ERR_EINSUM, place(p, p->pos, p->n), "the pattern ends after the axes of the result");
}

static bool in_term(const Term *t, int name) {
  for (int i = 0; i < t->count; i++)
    if (t->axis[i].name == name) return true;
  return false;
}

/* Puts names of their own for the axes that `...` stands for, the last one first ("..0"). */
static void expand(Einsum *e, Term *t, int count) {
  if (t->ellipsis < 0) return;
  Term old = *t;
  t->count = 0;
  for (int i = 0; i <= old.count; i++) {
    if (i == old.ellipsis)
      for (int k = count; k-- > 0;) {
        const char *name = txt(e->s, "..%d", k);
        add_axis(e, t, name_index(e, name, strlen(name), old.lo), old.lo, old.hi);
      }
    if (i < old.count) add_axis(e, t, old.axis[i].name, old.axis[i].lo, old.axis[i].hi);
  }
}

static void check_operand(Einsum *e, int k) {
  Session *s = e->s;
  Term *t = &e->in[k];
  Type ty = type_of(s, e->x[k]);
  int named = t->count;
  if (t->ellipsis >= 0 ? named > ty.rank : named != ty.rank) {
    Diag *d = err(s, ERR_EINSUM, place(&e->p, t->lo, t->hi),
                  "operand %d is %s, the pattern names %d ax%s", k + 1, value_type_text(s, e->x[k]),
                  named, named == 1 ? "is" : "es");
    if (named == 1 && (int)(t->hi - t->lo) == ty.rank)
      dg_help(&s->diags, d,
              "separate names by blanks; in a pattern without any blank each letter is an axis");
    raise_(s);
  }
  expand(e, t, ty.rank - named);
  for (int i = 0; i < t->count; i++) {
    int n = t->axis[i].name;
    if (e->owner[n] < 0) {
      e->owner[n] = k;
      e->size[n] = ty.dim[i];
      continue;
    }
    Span at = place(&e->p, t->axis[i].lo, t->axis[i].hi);
    if (agree(s, e->size[n], ty.dim[i], at,
              txt(s, "the axes `%.*s` of an einsum differ", (int)e->name_n[n], e->names[n])))
      continue;
    fail(s, ERR_EINSUM, at, "`%.*s` is %s in operand %d and %s in operand %d", (int)e->name_n[n],
         e->names[n], dim_text(s, e->size[n]), e->owner[n] + 1, dim_text(s, ty.dim[i]), k + 1);
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
    Span at = place(&e->p, a.lo, a.hi);
    const char *name = txt(e->s, "%.*s", (int)e->name_n[a.name], e->names[a.name]);
    if (e->owner[a.name] < 0) {
      const char *near = NULL;
      for (int n = 0; n < e->name_count; n++)
        if (e->owner[n] >= 0 && e->name_n[n] > 1 &&
            str_distance(name, txt(e->s, "%.*s", (int)e->name_n[n], e->names[n]), 1) <= 1)
          near = txt(e->s, "did you mean `%.*s`?", (int)e->name_n[n], e->names[n]);
      fail_help(e->s, ERR_EINSUM, at, near ? near : "an axis of the result stands in an operand",
                "no operand has an axis `%s`", name);
    }
    for (int k = 0; k < i; k++)
      if (e->out.axis[k].name == a.name)
        fail(e->s, ERR_EINSUM, at, "`%s` stands twice in the result", name);
  }
}

/* Names that the result or an operand after k needs. */
static bool needed(const Einsum *e, int name, int k) {
  if (in_term(&e->out, name)) return true;
  for (int i = k + 1; i < e->in_count; i++)
    if (in_term(&e->in[i], name)) return true;
  return false;
}

/* x [.., n, n] -> [.., n]: padded by a row's end, row i of the rest begins at its diagonal. */
static Value diagonal(Session *s, Value x, Span at) {
  DimTab *dt = dims_of(s);
  Type t = type_of(s, x);
  int r = t.rank - 2;
  Dim n = t.dim[r], d[CKL_MAX_RANK], one = dim_const(dt, 1), zero = dim_const(dt, 0);
  for (int i = 0; i < r; i++) d[i] = t.dim[i];
  d[r] = dim_mul(dt, n, n);
  x = shaped(s, x, r + 1, d, at);
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

/* Diagonals, and sums over axes that nothing else names. */
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
      e->x[k] = diagonal(s, permuted(s, e->x[k], perm, e->at), e->at);
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
  return dim_product(dims_of(e->s), n, d);
}

/* Operand k with the axes of three lists, each list made one axis where `merge` says so. */
static Value arranged(Einsum *e, Value x, const Term *t, const int *const list[3], const int *n,
                      bool batch) {
  int64_t perm[CKL_MAX_RANK];
  int at = 0, rank = 0;
  Dim d[3];
  for (int i = 0; i < 3; i++) {
    at = pick(t, list[i], n[i], perm, at);
    if (i || batch) d[rank++] = product(e, list[i], n[i]);
  }
  return shaped(e->s, permuted(e->s, x, perm, e->at), rank, d, e->at);
}

/* acc (by term a) and operand k in one. */
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
    fail(s, ERR_RANK_MAX, e->at,
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
  if (nc == 0) { /* products of all with all */
    const Term *t[2] = {a, b};
    for (int o = 0; o < 2; o++) {
      int64_t perm[CKL_MAX_RANK];
      Dim d[CKL_MAX_RANK], one = dim_const(dims_of(s), 1);
      int n = 0;
      for (int i = 0; i < r.count; i++) {
        d[i] = one;
        for (int j = 0; j < t[o]->count; j++)
          if (t[o]->axis[j].name == r.axis[i].name) {
            perm[n++] = j;
            d[i] = full[i];
          }
      }
      v[o] = op_broadcast(s, shaped(s, permuted(s, v[o], perm, e->at), r.count, d, e->at), r.count,
                          full, e->at);
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
      v[o] = shaped(s, permuted(s, v[o], perm, e->at), nb + 1, d, e->at);
    }
    out = op_run(s, OP_INNER, 2, v, &compute, 1, e->at);
  } else {
    const int *const la[3] = {both, left, con}, *const lb[3] = {both, con, right};
    int na[3] = {nb, nl, nc}, nn[3] = {nb, nc, nr};
    v[0] = arranged(e, v[0], a, la, na, nb > 0);
    v[1] = arranged(e, v[1], b, lb, nn, nb > 0);
    out = op_run(s, OP_DOT, 2, v, &compute, 1, e->at);
    out = shaped(s, out, r.count, full, e->at);
  }
  *a = r;
  return out;
}

/* The argument nodes: a receiver was evaluated already (v[0]). */
typedef struct RawArg {
  Node *node; /* NULL: value holds */
  Value value;
  Span span;
  Name name;
} RawArg;

static size_t raw_args(Session *s, Call *c, RawArg **out) {
  NodeList *l = &c->node->call.args;
  RawArg *a = ARENA_ARRAY(&s->scratch, RawArg, c->n + l->count + 1);
  size_t n = 0;
  for (size_t i = 0; i < c->n; i++)
    a[n++] = (RawArg){NULL, c->v[i], c->node->call.callee->span, NULL};
  for (uint32_t i = 0; i < l->count; i++) {
    Node *x = l->items[i];
    a[n++] = (RawArg){x->arg.value, v_unit(), x->arg.value->span, x->arg.name.name};
  }
  *out = a;
  return n;
}

static Value raw_value(Session *s, RawArg *a) {
  return a->node ? eval(s, a->node) : a->value;
}

BUILTIN_FN(bi_einsum) {
  RawArg *a;
  size_t n = raw_args(s, c, &a);
  if (!n || !a[0].node)
    fail_help(s, ERR_ARG_COUNT, c->at, "einsum(\"i j, j k -> i k\", a, b)",
              "the pattern of `einsum` comes first");
  for (size_t i = 0; i < n; i++)
    if (a[i].name) fail(s, ERR_ARG_NAME, a[i].span, "`einsum` has no parameter `%s`", a[i].name);
  Einsum *e = ARENA_NEW(&s->scratch, Einsum);
  e->s = s;
  e->at = c->at;
  if (!pattern_arg(s, &e->p, a[0].node, ERR_EINSUM, "the pattern of `einsum`"))
    return (Value){.tag = V_UNKNOWN};
  read_pattern(e);
  bool unknown = false;
  size_t given = n - 1;
  Value *v = ARENA_ARRAY(&s->scratch, Value, n);
  DType like = DT_COUNT;
  for (size_t i = 0; i < given; i++) {
    v[i] = raw_value(s, &a[i + 1]);
    unknown |= v[i].tag == V_UNKNOWN;
    if (v_is_tensor(v[i]) && like == DT_COUNT) like = (DType)type_of(s, v[i]).dtype;
  }
  if (given != (size_t)e->in_count)
    fail(s, ERR_EINSUM, place(&e->p, 0, e->p.n), "the pattern has %d operand%s, %zu %s given",
         e->in_count, e->in_count == 1 ? "" : "s", given, given == 1 ? "is" : "are");
  if (unknown || s->flow != FLOW_NEXT) return (Value){.tag = V_UNKNOWN};
  for (int k = 0; k < e->in_count; k++) {
    e->x[k] = as_tensor(s, v[k], like, a[k + 1].span);
    DType dt = (DType)type_of(s, e->x[k]).dtype;
    if (like == DT_COUNT) like = dt;
    if (dt == DT_BOOL)
      fail_help(s, ERR_OPERAND, a[k + 1].span,
                txt(s, "`i64(%s)` counts bools as 0 and 1", source_text(s, a[k + 1].span, "..")),
                "`einsum` does not work on bool");
    if (dt != like)
      fail_help(s, ERR_DTYPE_MIX, a[k + 1].span, txt(s, "`%s(..)` casts", dtype_info[like].name),
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
  return permuted(s, acc, perm, e->at);
}

/* ---- rearrange ------------------------------------------------------------------------------ */

enum { ATOM_NAME, ATOM_ONE, ATOM_REST };

typedef struct Atom {
  uint8_t kind;
  int group;     /* number of its axis */
  size_t lo, hi; /* in the text */
  Dim size;
  bool known;
  int from; /* right side: atom of the left, -1: a new axis */
} Atom;

enum { ATOMS_MOST = 4 * CKL_MAX_RANK };

typedef struct Side {
  Atom atom[ATOMS_MOST];
  int count, groups;
  size_t group_lo[ATOMS_MOST], group_hi[ATOMS_MOST];
} Side;

typedef struct Rearrange {
  Session *s;
  Pattern p;
  Span at;
  Side in, out;
} Rearrange;

static void add_atom(Rearrange *r, Side *d, int kind, size_t lo, size_t hi) {
  if (d->count == ATOMS_MOST)
    fail(r->s, ERR_REARRANGE, place(&r->p, lo, hi), "the pattern has too many axes");
  d->atom[d->count++] =
      (Atom){.kind = (uint8_t)kind, .group = d->groups, .lo = lo, .hi = hi, .from = -1};
}

static void read_side(Rearrange *r, Side *d, bool left) {
  Pattern *p = &r->p;
  bool open = false, rest = false;
  size_t opened = 0;
  for (;;) {
    skip_blanks(p);
    size_t lo = p->pos;
    if (lo == p->n || p->text[lo] == '-') break;
    if (d->groups >= ATOMS_MOST)
      fail(r->s, ERR_REARRANGE, place(p, lo, lo + 1), "the pattern has too many axes");
    if (p->text[lo] == '(') {
      if (open) fail(r->s, ERR_REARRANGE, place(p, lo, lo + 1), "parentheses do not nest");
      open = true;
      opened = lo;
      p->pos++;
      continue;
    }
    if (p->text[lo] == ')') {
      if (!open) fail(r->s, ERR_REARRANGE, place(p, lo, lo + 1), "this parenthesis was not opened");
      open = false;
      p->pos++;
      d->group_lo[d->groups] = opened;
      d->group_hi[d->groups++] = p->pos;
      continue;
    }
    if (takes(p, "...")) {
      if (rest) fail(r->s, ERR_REARRANGE, place(p, lo, lo + 3), "`...` stands once on each side");
      if (open && left)
        fail(r->s, ERR_REARRANGE, place(p, lo, lo + 3), "`...` cannot be split out of one axis");
      rest = true;
      add_atom(r, d, ATOM_REST, lo, p->pos);
    } else if (is_letter(p->text[lo])) {
      while (p->pos < p->n && is_name(p->text[p->pos])) p->pos++;
      add_atom(r, d, ATOM_NAME, lo, p->pos);
    } else if (p->text[lo] == '1' && (lo + 1 == p->n || !is_name(p->text[lo + 1]))) {
      p->pos++;
      add_atom(r, d, ATOM_ONE, lo, p->pos);
    } else {
      fail_help(r->s, ERR_REARRANGE, place(p, lo, lo + 1),
                "names, `1`, `...` and parentheses, separated by blanks: \"b (h k) -> b h k\"",
                "this does not belong in a pattern");
    }
    if (!open) {
      d->group_lo[d->groups] = lo;
      d->group_hi[d->groups++] = p->pos;
    }
  }
  if (open)
    fail(r->s, ERR_REARRANGE, place(p, opened, opened + 1), "this parenthesis is not closed");
}

static const char *atom_text(const Rearrange *r, const Atom *a) {
  return txt(r->s, "%.*s", (int)(a->hi - a->lo), r->p.text + a->lo);
}

static bool same_name(const Rearrange *r, const Atom *a, const Atom *b) {
  return a->kind == ATOM_NAME && b->kind == ATOM_NAME && a->hi - a->lo == b->hi - b->lo &&
         !memcmp(r->p.text + a->lo, r->p.text + b->lo, a->hi - a->lo);
}

static void check_twice(Rearrange *r, const Side *d) {
  for (int i = 0; i < d->count; i++)
    for (int k = 0; k < i; k++)
      if (same_name(r, &d->atom[i], &d->atom[k]))
        fail(r->s, ERR_REARRANGE, place(&r->p, d->atom[i].lo, d->atom[i].hi),
             "`%s` stands twice on this side", atom_text(r, &d->atom[i]));
}

/* Links the right side to the left. */
static void match_sides(Rearrange *r) {
  Side *in = &r->in, *out = &r->out;
  bool used[ATOMS_MOST] = {false};
  check_twice(r, in);
  check_twice(r, out);
  for (int i = 0; i < out->count; i++) {
    Atom *a = &out->atom[i];
    for (int k = 0; k < in->count; k++)
      if (same_name(r, a, &in->atom[k]) || (a->kind == ATOM_REST && in->atom[k].kind == ATOM_REST))
        a->from = k;
    if (a->from >= 0) used[a->from] = true;
    if (a->kind == ATOM_REST && a->from < 0)
      fail(r->s, ERR_REARRANGE, place(&r->p, a->lo, a->hi), "`...` stands on the right side only");
    if (a->kind == ATOM_NAME && a->from < 0 && !a->known)
      fail_help(r->s, ERR_REARRANGE, place(&r->p, a->lo, a->hi),
                txt(r->s, "a new axis needs its size: `%s = 2`", atom_text(r, a)),
                "the left side has no axis `%s`", atom_text(r, a));
  }
  for (int k = 0; k < in->count; k++)
    if (!used[k] && in->atom[k].kind != ATOM_ONE)
      fail_help(r->s, ERR_REARRANGE, place(&r->p, in->atom[k].lo, in->atom[k].hi),
                "`sum`, `mean` and `max` drop an axis", "the right side lost `%s`",
                atom_text(r, &in->atom[k]));
}

static void size_word(Rearrange *r, RawArg *a, Value v) {
  Session *s = r->s;
  if (v.tag == V_NODE)
    fail(s, ERR_NOT_CONST, a->span, "`%s` must be a constant or a size", a->name);
  if (v.tag != V_INT && v.tag != V_DIM)
    fail(s, ERR_WANT_INT, a->span, "`%s` must be an int, not %s", a->name, value_type_text(s, v));
  if (v.tag == V_INT && v.u.i < 0)
    fail(s, ERR_SIZE_NEGATIVE, a->span, "a size cannot be negative: %lld", (long long)v.u.i);
  Dim d = dim_of(s, v, a->span, "a size");
  bool found = false;
  for (int side = 0; side < 2; side++) {
    Side *x = side ? &r->out : &r->in;
    for (int i = 0; i < x->count; i++)
      if (x->atom[i].kind == ATOM_NAME && !strcmp(atom_text(r, &x->atom[i]), a->name)) {
        x->atom[i].known = found = true;
        x->atom[i].size = d;
      }
  }
  if (!found) fail(s, ERR_REARRANGE, a->span, "the pattern has no axis `%s`", a->name);
}

/* Sizes of the parts of one axis of x. */
static void split_axis(Rearrange *r, int group, Dim size, int axis) {
  Session *s = r->s;
  DimTab *dt = dims_of(s);
  Dim known = dim_const(dt, 1);
  Atom *hole = NULL;
  Span at = place(&r->p, r->in.group_lo[group], r->in.group_hi[group]);
  bool grouped = r->p.text[r->in.group_lo[group]] == '(';
  for (int i = 0; i < r->in.count; i++) {
    Atom *a = &r->in.atom[i];
    if (a->group != group) continue;
    if (a->kind == ATOM_ONE) {
      a->known = true;
      a->size = dim_const(dt, 1);
    } else if (a->known) {
      known = dim_mul(dt, known, a->size);
    } else if (hole) {
      fail_help(s, ERR_REARRANGE, at, txt(s, "give one of the sizes: `%s = 2`", atom_text(r, hole)),
                "how this axis is split is not said: `%s` and `%s` are open", atom_text(r, hole),
                atom_text(r, a));
    } else {
      hole = a;
    }
  }
  if (known == DIM_BAD) fail(s, ERR_OVERFLOW, at, "a size does not fit 64 bits");
  if (!hole) {
    if (!agree(s, known, size, at, "the sizes of a rearranged axis do not fit"))
      fail(s, ERR_REARRANGE, at, "axis %d is %s, the pattern says %s", axis, dim_text(s, size),
           dim_text(s, known));
    return;
  }
  hole->known = true;
  if (!grouped || known == dim_const(dt, 1)) {
    hole->size = size;
    return;
  }
  int64_t n, k;
  bool cn = dim_is_const(dt, size, &n), ck = dim_is_const(dt, known, &k);
  if (ck && k == 0)
    fail(s, ERR_REARRANGE, at, "the size of `%s` cannot be told: the others multiply to 0",
         atom_text(r, hole));
  if (cn && ck && n % k)
    fail(s, ERR_DIVIDES, at, "axis %d has %lld elements, which %lld does not divide", axis,
         (long long)n, (long long)k);
  if (!cn || !ck) {
    int64_t rest;
    if (s->stage && !(dim_is_const(dt, dim_mod(dt, size, known), &rest) && rest == 0)) {
      s->stage->g->at.span = at;
      gr_check(s->stage->g, CHECK_DIVIDES, size, known,
               names_of(s->names, txt(s, "the axis `%.*s` of a rearrange cannot be split",
                                      (int)(r->in.group_hi[group] - r->in.group_lo[group]),
                                      r->p.text + r->in.group_lo[group])));
    }
    dim_assume_divides(dt, size, known);
  }
  hole->size = dim_floordiv(dt, size, known);
  if (hole->size == DIM_BAD) fail(s, ERR_OVERFLOW, at, "a size does not fit 64 bits");
}

static void too_many(const Rearrange *r, int n) {
  if (n >= CKL_MAX_RANK)
    fail(r->s, ERR_RANK_MAX, r->at, "a step of this rearrange has more than %d axes", CKL_MAX_RANK);
}

static Value rearrange(Rearrange *r, Value x) {
  Session *s = r->s;
  Type t = type_of(s, x);
  Side *in = &r->in, *out = &r->out;
  int rest = -1;
  for (int i = 0; i < in->count; i++)
    if (in->atom[i].kind == ATOM_REST) rest = i;
  int named = in->groups - (rest >= 0), extra = t.rank - named;
  if (rest >= 0 ? extra < 0 : extra != 0)
    fail(s, ERR_REARRANGE,
         place(&r->p, in->group_lo[0], in->groups ? in->group_hi[in->groups - 1] : 1),
         "the pattern names %d ax%s, the tensor is %s", named, named == 1 ? "is" : "es",
         value_type_text(s, x));
  /* elementary axes: first[i] is the place of atom i, `...` takes `extra` of them */
  Dim d[CKL_MAX_RANK];
  int first[ATOMS_MOST], n = 0;
  for (int g = 0, axis = 0; g < in->groups; g++) {
    bool is_rest = rest >= 0 && in->atom[rest].group == g;
    if (is_rest) {
      first[rest] = n;
      for (int k = 0; k < extra; k++) {
        too_many(r, n);
        d[n++] = t.dim[axis++];
      }
      continue;
    }
    split_axis(r, g, t.dim[axis], axis);
    axis++;
    for (int i = 0; i < in->count; i++)
      if (in->atom[i].group == g && in->atom[i].kind == ATOM_NAME) {
        too_many(r, n);
        first[i] = n;
        d[n++] = in->atom[i].size;
      }
  }
  x = shaped(s, x, n, d, r->at);
  /* the order of the right side; new axes are broadcast */
  int64_t perm[CKL_MAX_RANK];
  Dim thin[CKL_MAX_RANK], wide[CKL_MAX_RANK], last[CKL_MAX_RANK], one = dim_const(dims_of(s), 1);
  int np = 0, nw = 0, nl = 0;
  for (int g = 0; g < out->groups; g++) {
    int before = nw;
    bool is_rest = false;
    for (int i = 0; i < out->count; i++) {
      Atom *a = &out->atom[i];
      if (a->group != g || a->kind == ATOM_ONE) continue;
      int many = a->kind == ATOM_REST ? extra : 1;
      bool alone = r->p.text[out->group_lo[g]] != '(';
      if (a->kind == ATOM_REST && alone) is_rest = true;
      for (int k = 0; k < many; k++) {
        too_many(r, nw);
        if (a->from >= 0) {
          perm[np++] = first[a->from] + k;
          thin[nw] = wide[nw] = d[first[a->from] + k];
          nw++;
        } else {
          thin[nw] = one;
          wide[nw++] = a->size;
        }
      }
    }
    if (is_rest) {
      for (int k = before; k < nw; k++) {
        too_many(r, nl);
        last[nl++] = wide[k];
      }
    } else {
      too_many(r, nl);
      last[nl] = dim_product(dims_of(s), nw - before, wide + before);
      if (last[nl++] == DIM_BAD) fail(s, ERR_OVERFLOW, r->at, "a size does not fit 64 bits");
    }
  }
  x = permuted(s, x, perm, r->at);
  if (nw > np) x = op_broadcast(s, shaped(s, x, nw, thin, r->at), nw, wide, r->at);
  return shaped(s, x, nl, last, r->at);
}

BUILTIN_FN(bi_rearrange) {
  RawArg *a;
  size_t n = raw_args(s, c, &a), positional = 0;
  while (positional < n && !a[positional].name) positional++;
  if (positional != 2 || !a[0].node)
    fail_help(s, ERR_ARG_COUNT, c->at, "rearrange(\"b (h k) -> b h k\", x, h = 4)",
              "`rearrange` takes a pattern and a tensor; sizes are given by name");
  Rearrange *r = ARENA_NEW(&s->scratch, Rearrange);
  r->s = s;
  r->at = c->at;
  if (!pattern_arg(s, &r->p, a[0].node, ERR_REARRANGE, "the pattern of `rearrange`"))
    return (Value){.tag = V_UNKNOWN};
  read_side(r, &r->in, true);
  if (!takes(&r->p, "->"))
    fail_help(s, ERR_REARRANGE,
              r->p.pos < r->p.n ? place(&r->p, r->p.pos, r->p.pos + 1) : r->p.span,
              "\"a b -> b a\" swaps two axes", "the pattern has no second side: `->` is missing");
  read_side(r, &r->out, false);
  skip_blanks(&r->p);
  if (r->p.pos < r->p.n)
    fail(s, ERR_REARRANGE, place(&r->p, r->p.pos, r->p.n),
         "the pattern ends after its second side");
  Value x = raw_value(s, &a[1]);
  bool unknown = x.tag == V_UNKNOWN;
  for (size_t i = 2; i < n; i++) {
    if (!a[i].name)
      fail(s, ERR_ARG_ORDER, a[i].span, "an argument by position stands after one by name");
    for (size_t k = 2; k < i; k++)
      if (a[k].name == a[i].name)
        fail(s, ERR_TWICE, a[i].span, "the size `%s` is given twice", a[i].name);
    Value v = raw_value(s, &a[i]);
    if (v.tag == V_UNKNOWN)
      unknown = true;
    else
      size_word(r, &a[i], v);
  }
  if (unknown || s->flow != FLOW_NEXT) return (Value){.tag = V_UNKNOWN};
  match_sides(r);
  return rearrange(r, as_tensor(s, x, DT_COUNT, a[1].span));
}
