/* Shape rules: one function per `shape` word of ops.def.
 *
 * In: an op, its operand types, attributes and regions. Out: its result types, or an error that says
 * which operand is at fault, what its shape is, and what would fit. What depends on sizes not known
 * yet is accepted and becomes a check of the graph (rule 23). The messages are what users read: they
 * name types and dims as written and suggest text that type-checks.
 * Invariant: a rule reads attributes only after testing kind and length, so it can be fed anything.
 */
#include <stdarg.h>
#include <string.h>

#include "graph/shape.h"

typedef ShapeCall C;

/* -- text */
static const char *text(C *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *text(C *c, const char *fmt, ...)
{
  va_list ap;
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  va_start(ap, fmt);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return b.s;
}

static const char *dim_text(C *c, Dim d)
{
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  dim_print(&b, c->dims, d);
  return b.s;
}

static const char *type_text(C *c, const Type *t)
{
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  type_print(&b, c->dims, t);
  return b.s;
}

static const char *ty(C *c, int i)
{
  return type_text(c, c->in[i]);
}

/* How operand i is written in the user's source, as an argument of a call. */
static const char *arg(C *c, int i)
{
  if (i < c->operand_text_count && c->operand_text && c->operand_text[i]) return c->operand_text[i];
  static const char *const letter[] = {"x", "y", "z"};
  return i < 3 ? letter[i] : "w";
}

/* The same as a part of an expression: in parentheses where it is not one word or call. */
static const char *part(C *c, int i)
{
  const char *s = arg(c, i);
  int depth = 0;
  for (const char *p = s; *p; p++) {
    if (*p == '(' || *p == '[') depth++;
    else if (*p == ')' || *p == ']') depth--;
    else if (depth == 0 && (*p == ' ' || (p > s && strchr("+-*/%@<>=", *p)))) return text(c, "(%s)", s);
  }
  return s;
}

static const char *side(C *c, int i)
{
  if (c->n == 1) return "the operand";
  if (c->n == 2) return i == 0 ? "the left operand" : "the right operand";
  return text(c, "operand %d", i + 1);
}

static const char *me(C *c)
{
  return op_written(c->op);
}

static bool infix(C *c)
{
  const char *s = me(c);
  return c->n == 2 && !((*s >= 'a' && *s <= 'z'));
}

/* `x + y` or `max(x, y)` with operand i written as `how`, a format with one %s. */
static const char *with(C *c, int i, const char *before, const char *after)
{
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  if (!infix(c)) buf_printf(&b, "%s%s", me(c), c->n == 1 && *me(c) == '-' ? "" : "(");
  for (int k = 0; k < c->n && k < 3; k++) {
    if (k && infix(c)) buf_printf(&b, " %s ", me(c));
    else if (k) buf_puts(&b, ", ");
    if (k == i || i < 0) buf_printf(&b, "%s%s%s", before, arg(c, k), after);
    else buf_puts(&b, infix(c) ? part(c, k) : arg(c, k));
  }
  if (!infix(c) && !(c->n == 1 && *me(c) == '-')) buf_putc(&b, ')');
  return b.s;
}

/* -- attributes */
static bool bad_attr(C *c, AttrKey k)
{
  return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` lacks a proper attribute `%s`", op_info[c->op].text,
                  attr_name[k]);
}

/* `count` -1 = any number up to the highest rank. */
static const Attr *ints(C *c, AttrKey k, int count)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INTS || (count >= 0 && a->count != (uint32_t)count) ||
      a->count > CKL_MAX_RANK) {
    bad_attr(c, k);
    return NULL;
  }
  return a;
}

static const Attr *dims_attr(C *c, AttrKey k, int count)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_DIMS || (count >= 0 && a->count != (uint32_t)count)) {
    bad_attr(c, k);
    return NULL;
  }
  if (a->count > CKL_MAX_RANK) {
    gerr_set(c->e, ERR_SHAPE_AXES, -1, "a tensor has at most %d axes, not %u", CKL_MAX_RANK,
             (unsigned)a->count);
    return NULL;
  }
  for (uint32_t i = 0; i < a->count; i++) {
    if (a->u.ints[i] == (int64_t)DIM_BAD) {
      gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of `%s` passes 2^63 - 1, or divides by 0", me(c));
      return NULL;
    }
    if (!dim_valid(c->dims, a->u.ints[i])) {
      bad_attr(c, k);
      return NULL;
    }
  }
  return a;
}

static bool int_attr(C *c, AttrKey k, int64_t lo, int64_t hi, int64_t *out)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INT || a->u.i < lo || a->u.i >= hi) return bad_attr(c, k);
  *out = a->u.i;
  return true;
}

/* An optional number in [0, hi). */
static bool option(C *c, AttrKey k, int64_t hi)
{
  int64_t x;
  return !attr_find(c->attrs, c->nattrs, k) || int_attr(c, k, 0, hi, &x);
}

static bool axis_attr(C *c, int rank, int *axis)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_AXIS);
  if (!a || a->kind != AK_INT) return bad_attr(c, AT_AXIS);
  if (a->u.i < 0 || a->u.i >= rank) {
    gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` along axis %lld of %s, which has %d %s", me(c),
             (long long)a->u.i, ty(c, 0), rank, rank == 1 ? "axis" : "axes");
    return rank == 0 ? gerr_help(c->e, "a single number has no axes")
           : rank == 1 ? gerr_help(c->e, "the only axis is 0")
                       : gerr_help(c->e, "axes are 0 to %d, or -1 for the last", rank - 1);
  }
  *axis = (int)a->u.i;
  return true;
}

/* A list of different axes below `rank`, as a bit mask. */
static bool axes_attr(C *c, AttrKey k, int rank, unsigned *mask)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INTS) return bad_attr(c, k);
  *mask = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    int64_t x = a->u.ints[i];
    if (x < 0 || x >= rank) {
      gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` over axis %lld of %s, which has %d %s", me(c),
               (long long)x, ty(c, 0), rank, rank == 1 ? "axis" : "axes");
      return rank == 0 ? gerr_help(c->e, "a single number has no axes")
             : rank == 1 ? gerr_help(c->e, "the only axis is 0")
                         : gerr_help(c->e, "axes are 0 to %d, or -1 for the last", rank - 1);
    }
    if (*mask >> x & 1) {
      return gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` names axis %lld twice", me(c), (long long)x);
    }
    *mask |= 1u << x;
  }
  return true;
}

/* -- conditions. Each is true when it holds or is left to a check. */
static bool undecided(C *c, CheckKind k, Dim a, Dim b, const char *what)
{
  if (a == DIM_BAD || b == DIM_BAD) {
    return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of `%s` passes 2^63 - 1", me(c));
  }
  if (!c->into) return gerr_set(c->e, ERR_SHAPE_CHECK, -1, "%s", what);
  gr_check(c->into, k, a, b, what);
  return true;
}

/* False without an error set when the two are provably different. */
typedef enum Tri { NO, YES, FAILED } Tri;
static Tri equal(C *c, Dim a, Dim b, const char *what)
{
  DimOrder o = dim_compare(c->dims, a, b);
  if (o == DIM_EQUAL) return YES;
  if (o == DIM_DIFFERENT) return NO;
  return undecided(c, CHECK_EQ, a, b, what) ? YES : FAILED;
}

static Tri at_least(C *c, Dim a, Dim b, const char *what)
{
  if (a == b) return YES;
  Dim d = dim_sub(c->dims, a, b);
  int64_t k;
  if (dim_is_const(c->dims, d, &k)) return k >= 0 ? YES : NO;
  if (dim_nonneg(c->dims, d)) return YES;
  Dim below = dim_sub(c->dims, dim_sub(c->dims, b, a), dim_const(c->dims, 1));
  if (dim_nonneg(c->dims, below)) return NO;
  return undecided(c, CHECK_GE, a, b, what) ? YES : FAILED;
}

static bool same_dims(C *c, const Type *a, const Type *b, const char *what, int *axis)
{
  *axis = -1;
  for (int i = 0; i < a->rank; i++) {
    Tri r = equal(c, a->dim[i], b->dim[i], what);
    if (r == NO) *axis = i;
    if (r != YES) return false;
  }
  return true;
}

static const char *check_text(C *c, const char *fmt)
{
  if (!c->into) return "sizes differ"; /* every size is known: the caller says more */
  return arena_printf(c->into->arena, fmt, me(c));
}

/* -- dtypes and devices */
static bool in_domain(OpDomain d, DType t)
{
  switch (d) {
  case DOM_FLOAT: return dt_float(t);
  case DOM_NUM: return t != DT_BOOL;
  case DOM_INT: return dt_int(t);
  case DOM_BOOL: return t == DT_BOOL;
  case DOM_ANY: return true;
  }
  return false;
}

static bool check_domain(C *c, int i)
{
  OpDomain d = (OpDomain)op_info[c->op].domain;
  DType t = (DType)c->in[i]->dtype;
  static const char *const kind[] = {"float tensors", "numbers", "integer tensors", "bool tensors",
                                     "tensors"};
  if (in_domain(d, t)) return true;
  gerr_set(c->e, ERR_DTYPE_DOMAIN, i, "`%s` takes %s, not %s", me(c), kind[d], ty(c, i));
  if (d == DOM_BOOL && (c->op == OP_ANY || c->op == OP_ALL)) {
    return gerr_help(c->e, "`%s(%s != 0)` tests which elements are not 0", me(c), part(c, i));
  }
  if (d == DOM_BOOL) return gerr_help(c->e, "`%s != 0` is a bool tensor", part(c, i));
  if (c->op == OP_DIV) {
    return gerr_help(c->e, "`%s // %s` is the floor of the quotient; `f32(%s) / f32(%s)` is float",
                     part(c, 0), part(c, 1), arg(c, 0), arg(c, 1));
  }
  if (d == DOM_NUM && c->op == OP_SUM) {
    return gerr_help(c->e, "`sum(i64(%s))` counts, `any(%s)` tests for one", arg(c, i), arg(c, i));
  }
  if (d == DOM_NUM && infix(c)) {
    return gerr_help(c->e, "cast first: `%s`; or `and`, `or`, `not` on bool",
                     with(c, -1, "i64(", ")"));
  }
  const char *to = d == DOM_FLOAT ? "f32" : d == DOM_NUM ? "i64" : "i64";
  return gerr_help(c->e, "cast first: `%s`", with(c, -1, text(c, "%s(", to), ")"));
}

/* Operands from .. to - 1 have one dtype. */
static bool check_dtypes(C *c, int from, int to)
{
  for (int i = from + 1; i < to; i++) {
    DType a = (DType)c->in[from]->dtype, b = (DType)c->in[i]->dtype;
    if (a == b) continue;
    gerr_set(c->e, ERR_DTYPE_DIFFER, i, "`%s` takes one dtype, not %s and %s: %s and %s", me(c),
             dtype_info[a].name, dtype_info[b].name, ty(c, from), ty(c, i));
    /* Cast what loses nothing where there is such a side, else the later one. */
    bool left = (dt_float(b) && !dt_float(a)) || (dt_float(a) == dt_float(b) && b > a);
    int which = left ? from : i;
    DType goal = left ? b : a;
    return gerr_help(c->e, "`%s`", with(c, which, text(c, "%s(", dtype_info[goal].name), ")"));
  }
  return true;
}

/* The device of the results: that of every operand but single numbers on the cpu. */
static bool check_devices(C *c, Device *dev)
{
  static const char *const name[DEV_COUNT] = {"cpu", "cuda", "sim"};
  int first = -1;
  *dev = DEV_CPU;
  for (int i = 0; i < c->n; i++) {
    const Type *t = c->in[i];
    if (t->kind == TK_TOKEN || (t->rank == 0 && t->dev == DEV_CPU)) continue;
    if (first >= 0 && t->dev != c->in[first]->dev) {
      gerr_set(c->e, ERR_DEVICE_DIFFER, i, "`%s` takes operands on one device: %s is on %s, %s on %s",
               me(c), side(c, first), name[c->in[first]->dev], side(c, i), name[t->dev]);
      return gerr_help(c->e, "`%s` moves it", text(c, "to(%s, %s)", arg(c, i),
                                                   name[c->in[first]->dev]));
    }
    if (first < 0) first = i;
    *dev = (Device)t->dev;
  }
  return true;
}

static bool need_tensors(C *c, int from)
{
  for (int i = from; i < c->n; i++) {
    if (c->in[i]->kind != TK_TENSOR) {
      return gerr_set(c->e, ERR_IR_FORM, i, "`%s` takes a tensor, not a token", op_info[c->op].text);
    }
  }
  return true;
}

static bool need_token(C *c)
{
  if (c->n >= 1 && c->in[0]->kind == TK_TOKEN) return true;
  return gerr_set(c->e, ERR_IR_FORM, 0, "`%s` takes a token first", op_info[c->op].text);
}

static bool need_rank(C *c, int i, int rank, const char *as)
{
  if (c->in[i]->rank == rank) return true;
  return gerr_set(c->e, ERR_SHAPE_RANK, i, "`%s` takes %s, not %s", me(c), as, ty(c, i));
}

static bool need_index(C *c, int i)
{
  if (c->in[i]->dtype == DT_I64) return true;
  gerr_set(c->e, ERR_INDEX_DTYPE, i, "positions are i64, not %s", ty(c, i));
  if (c->in[i]->dtype == DT_BOOL) {
    return gerr_help(c->e, "a mask selects in scripts: `nonzero(%s)` gives its positions", arg(c, i));
  }
  return gerr_help(c->e, "`i64(%s)`", arg(c, i));
}

/* -- generate */
static bool shape_given(C *c)
{
  Type *t = &c->out[0];
  int64_t dt, dev = DEV_CPU;
  const Attr *a;
  *t = type_of(DT_I64, DEV_CPU, 0);
  if (c->op == OP_DIM) {
    a = attr_find(c->attrs, c->nattrs, AT_SIZE);
    if (!a || a->kind != AK_DIM) return bad_attr(c, AT_SIZE);
    if (a->u.i == (int64_t)DIM_BAD) {
      return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size passes 2^63 - 1, or divides by 0");
    }
    return dim_valid(c->dims, a->u.i) || bad_attr(c, AT_SIZE);
  }
  if (c->op == OP_INPUT) {
    int64_t index;
    if (!int_attr(c, AT_INDEX, 0, INT32_MAX, &index)) return false;
    a = attr_find(c->attrs, c->nattrs, AT_DTYPE);
    if (a && a->kind == AK_INT && a->u.i == -1) {
      *t = (Type){.kind = TK_TOKEN};
      return true;
    }
  }
  if (!int_attr(c, AT_DTYPE, 0, DT_COUNT, &dt)) return false;
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE) && !int_attr(c, AT_DEVICE, 0, DEV_COUNT, &dev)) {
    return false;
  }
  *t = type_of((DType)dt, (Device)dev, 0);
  if (c->op == OP_CONST) {
    a = attr_find(c->attrs, c->nattrs, AT_VALUE);
    bool fits = a && a->kind == (dt_float((DType)dt) ? AK_FLOAT : AK_INT);
    return fits || bad_attr(c, AT_VALUE);
  }
  if (c->op == OP_IOTA && !in_domain(DOM_NUM, (DType)dt)) return bad_attr(c, AT_DTYPE);
  a = dims_attr(c, AT_DIMS, c->op == OP_IOTA ? 1 : -1);
  if (!a) return false;
  t->rank = (uint8_t)a->count;
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
  return true;
}

static bool need_key(C *c, int i, int count)
{
  const Type *t = c->in[i];
  int64_t n;
  if (t->dtype == DT_I64 && t->rank == 1 && dim_is_const(c->dims, t->dim[0], &n) && n == count) {
    return true;
  }
  gerr_set(c->e, ERR_KEY, i, "`%s` takes i64[%d], not %s", me(c), count, ty(c, i));
  return count == 2 ? gerr_help(c->e, "a key comes from `key(seed)`") : false;
}

static bool shape_random(C *c)
{
  int64_t dt, kind;
  const Attr *a = dims_attr(c, AT_DIMS, -1);
  if (!a || !int_attr(c, AT_DTYPE, 0, DT_COUNT, &dt) || !need_key(c, 0, 2)) return false;
  if (c->op == OP_RANDOM) {
    if (!int_attr(c, AT_KIND, 0, RANDOM_NORMAL + 1, &kind)) return false;
    if (!dt_float((DType)dt)) {
      gerr_set(c->e, ERR_DTYPE_DOMAIN, -1, "random numbers of `%s` are floats, not %s", me(c),
               dtype_info[dt].name);
      return gerr_help(c->e, "`randint` makes whole numbers");
    }
  } else {
    if (!dt_int((DType)dt)) return bad_attr(c, AT_DTYPE);
    if (c->in[1]->dtype != DT_I64 || c->in[1]->rank != 0) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`randint` takes its bound as one i64, not %s",
                      ty(c, 1));
    }
  }
  Type *t = &c->out[0];
  *t = type_of((DType)dt, (Device)c->in[0]->dev, (int)a->count);
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
  return true;
}

/* fold_in, philox: the type of the first operand */
static bool shape_first(C *c)
{
  if (c->op == OP_PHILOX) {
    if (!need_key(c, 0, 4) || !need_key(c, 1, 2)) return false;
  } else {
    if (!need_key(c, 0, 2)) return false;
    if (c->in[1]->dtype != DT_I64 || c->in[1]->rank != 0) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`%s` takes one i64, not %s", me(c), ty(c, 1));
    }
  }
  c->out[0] = *c->in[0];
  return true;
}

/* -- elementwise */
static bool dims_match(C *c, const Type *a, const Type *b)
{
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    if (dim_compare(c->dims, a->dim[i], b->dim[i]) != DIM_EQUAL) return false;
  }
  return true;
}

static bool shapes_differ(C *c, int i, int k, int axis)
{
  const Type *a = c->in[i], *b = c->in[k];
  const char *what = c->n > 2 ? text(c, "operands %d and %d", i + 1, k + 1) : "the operands";
  if (axis < 0) {
    gerr_set(c->e, ERR_SHAPE_DIFFER, k, "%s of `%s` have different shapes: %s and %s", what, me(c),
             ty(c, i), ty(c, k));
  } else {
    gerr_set(c->e, ERR_SHAPE_DIFFER, k, "%s of `%s` have different shapes: %s and %s (axis %d is %s and %s)",
             what, me(c), ty(c, i), ty(c, k), axis, dim_text(c, a->dim[axis]),
             dim_text(c, b->dim[axis]));
  }
  /* A fix that type-checks: a transposed operand, or one more axis that stretches. */
  if (a->rank == b->rank && a->rank >= 2) {
    Type t = *b;
    t.dim[t.rank - 1] = b->dim[t.rank - 2];
    t.dim[t.rank - 2] = b->dim[t.rank - 1];
    if (dims_match(c, a, &t)) {
      return gerr_help(c->e, "`%s` fits", with(c, k, "transpose(", ")"));
    }
  }
  for (int turn = 0; turn < 2; turn++) {
    int s = turn ? i : k;
    const Type *big = turn ? b : a, *small = turn ? a : b;
    if (small->rank == 0 || small->rank >= big->rank) continue;
    for (int at = big->rank - 1; at >= big->rank - small->rank; at--) {
      /* small with an axis of size 1 put in so that it ends before or after axis `at` of big */
      bool fits = true;
      int off = big->rank - small->rank - 1;
      for (int j = 0; j < small->rank && fits; j++) {
        int to = off + j < at ? off + j : off + j + 1;
        fits = to >= 0 && dim_compare(c->dims, small->dim[j], big->dim[to]) == DIM_EQUAL;
      }
      if (fits) {
        return gerr_help(c->e, "`%s` fits: the new axis of size 1 stretches",
                         with(c, s, "expand(", text(c, ", %d)", at - off)));
      }
    }
  }
  return gerr_help(c->e, "axes of size 1 stretch and missing leading axes are added; all others "
                         "must be equal");
}

static bool elementwise(C *c, int from, DType dt)
{
  Device dev;
  if (!check_devices(c, &dev)) return false;
  const char *what = NULL;
  for (int i = from + 1; i < c->n; i++) {
    int axis = -1;
    if (c->in[i]->rank == c->in[from]->rank) {
      bool decided = true;
      for (int k = 0; k < c->in[i]->rank && decided; k++) {
        decided = c->in[i]->dim[k] == c->in[from]->dim[k];
      }
      if (decided) continue;
      if (!what) what = check_text(c, "the shapes of the operands of `%s` differ");
      if (same_dims(c, c->in[from], c->in[i], what, &axis)) continue;
      if (axis < 0) return false;
    }
    return shapes_differ(c, from, i, axis);
  }
  Type *t = &c->out[0];
  *t = *c->in[from];
  t->dtype = (uint8_t)dt;
  t->dev = (uint8_t)dev;
  return true;
}

static bool all_in_domain(C *c)
{
  for (int i = 0; i < c->n; i++) {
    if (!check_domain(c, i)) return false;
  }
  return check_dtypes(c, 0, c->n);
}

static bool shape_same(C *c)
{
  return all_in_domain(c) && elementwise(c, 0, (DType)c->in[0]->dtype);
}

static bool shape_test(C *c)
{
  return all_in_domain(c) && elementwise(c, 0, DT_BOOL);
}

static bool shape_where(C *c)
{
  if (c->in[0]->dtype != DT_BOOL) {
    gerr_set(c->e, ERR_DTYPE_DOMAIN, 0, "`where` takes a bool condition, not %s", ty(c, 0));
    return gerr_help(c->e, "`where(%s != 0, %s, %s)`", part(c, 0), arg(c, 1), arg(c, 2));
  }
  return check_dtypes(c, 1, 3) && elementwise(c, 0, (DType)c->in[1]->dtype);
}

static bool shape_cast(C *c)
{
  int64_t dt;
  return int_attr(c, AT_DTYPE, 0, DT_COUNT, &dt) && elementwise(c, 0, (DType)dt);
}

/* -- movement */
static void set_dims(Type *t, const Attr *a)
{
  t->rank = (uint8_t)a->count;
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
}

static bool shape_reshape(C *c)
{
  const Attr *a = dims_attr(c, AT_DIMS, -1);
  if (!a) return false;
  Type *t = &c->out[0];
  *t = *c->in[0];
  set_dims(t, a);
  Dim from = dim_product(c->dims, c->in[0]->rank, c->in[0]->dim);
  Dim to = dim_product(c->dims, t->rank, t->dim);
  if (from == DIM_BAD || to == DIM_BAD) {
    return gerr_set(c->e, ERR_SHAPE_SIZE, 0, "the number of elements of %s passes 2^63 - 1",
                    type_text(c, to == DIM_BAD ? t : c->in[0]));
  }
  Tri r = equal(c, from, to, "a reshape keeps the number of elements");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_RESHAPE, 0, "%s has %s elements and cannot become %s with %s", ty(c, 0),
             dim_text(c, from), type_text(c, t), dim_text(c, to));
    /* One axis can be found from the others. */
    for (int k = 0; k < t->rank; k++) {
      Dim rest = dim_const(c->dims, 1), fit = DIM_BAD;
      for (int j = 0; j < t->rank; j++) {
        if (j != k) rest = dim_mul(c->dims, rest, t->dim[j]);
      }
      if (rest != DIM_BAD) fit = dim_floordiv(c->dims, from, rest);
      if (fit == DIM_BAD || dim_mul(c->dims, fit, rest) != from) continue;
      Type u = *t;
      u.dim[k] = fit;
      return gerr_help(c->e, "%s has as many", type_text(c, &u));
    }
  }
  return r == YES;
}

static bool shape_transpose(C *c)
{
  unsigned mask;
  const Type *x = c->in[0];
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_PERM);
  if (!axes_attr(c, AT_PERM, x->rank, &mask)) return false;
  if ((int)a->count != x->rank) {
    gerr_set(c->e, ERR_SHAPE_AXIS, 0, "the new order of axes has %u, %s has %d", (unsigned)a->count,
             ty(c, 0), x->rank);
    return gerr_help(c->e, "name each axis once");
  }
  Type *t = &c->out[0];
  *t = *x;
  for (int i = 0; i < x->rank; i++) t->dim[i] = x->dim[a->u.ints[i]];
  return true;
}

static bool shape_broadcast(C *c)
{
  const Attr *a = dims_attr(c, AT_DIMS, -1);
  const Type *x = c->in[0];
  int64_t dev = x->dev;
  if (!a) return false;
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE)) {
    if (!int_attr(c, AT_DEVICE, 0, DEV_COUNT, &dev)) return false;
    if (dev != x->dev && (x->rank != 0 || x->dev != DEV_CPU)) return bad_attr(c, AT_DEVICE);
  }
  Type *t = &c->out[0];
  *t = *x;
  t->dev = (uint8_t)dev;
  set_dims(t, a);
  int lead = t->rank - x->rank;
  int axis = -1;
  for (int i = 0; i < x->rank && lead >= 0; i++) {
    int64_t one;
    if (dim_is_const(c->dims, x->dim[i], &one) && one == 1) continue;
    Tri r = equal(c, x->dim[i], t->dim[lead + i], "a broadcast stretches axes of size 1 only");
    if (r == FAILED) return false;
    if (r == NO) {
      axis = i;
      break;
    }
  }
  if (lead >= 0 && axis < 0) return true;
  if (lead < 0) {
    gerr_set(c->e, ERR_SHAPE_BROADCAST, 0, "%s has more axes than %s and cannot be stretched to it",
             ty(c, 0), type_text(c, t));
  } else {
    gerr_set(c->e, ERR_SHAPE_BROADCAST, 0,
             "%s cannot be stretched to %s: its axis %d is %s, wanted %s", ty(c, 0),
             type_text(c, t), axis, dim_text(c, x->dim[axis]), dim_text(c, t->dim[lead + axis]));
  }
  for (int at = 0; at + x->rank < t->rank && lead >= 0; at++) {
    bool fits = true;
    for (int i = 0; i < x->rank && fits; i++) {
      fits = dim_compare(c->dims, x->dim[i], t->dim[at + i]) == DIM_EQUAL;
    }
    if (fits && x->rank + at + 1 == t->rank) {
      return gerr_help(c->e, "`expand(%s, %d)` adds an axis of size 1 that stretches", arg(c, 0),
                       x->rank);
    }
  }
  return gerr_help(c->e, "only axes of size 1 stretch; shapes are aligned at the right");
}

static bool shape_slice(C *c)
{
  const Type *x = c->in[0];
  const Attr *start = dims_attr(c, AT_STARTS, x->rank), *len, *step;
  if (!start || !(len = dims_attr(c, AT_LENS, x->rank)) || !(step = ints(c, AT_STEPS, x->rank))) {
    return false;
  }
  Type *t = &c->out[0];
  *t = *x;
  for (int i = 0; i < x->rank; i++) {
    Dim s = (Dim)start->u.ints[i], n = (Dim)len->u.ints[i];
    int64_t by = step->u.ints[i];
    if (by <= 0) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the step of a slice is %lld", (long long)by);
      return by < 0 ? gerr_help(c->e, "`flip(%s, axis = %d)` reverses", arg(c, 0), i)
                    : gerr_help(c->e, "steps are 1 or more");
    }
    t->dim[i] = n;
    int64_t k;
    bool whole = dim_is_const(c->dims, s, &k) && k == 0 && n == x->dim[i] && by == 1;
    if (whole) continue;
    if (dim_is_const(c->dims, s, &k) && k < 0) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice starts at %s, before axis %d of %s",
               dim_text(c, s), i, ty(c, 0));
      return gerr_help(c->e, "only a literal negative number counts from the end");
    }
    if (dim_is_const(c->dims, n, &k) && k < 0) {
      return gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice of axis %d of %s has %s elements", i,
                      ty(c, 0), dim_text(c, n));
    }
    Dim zero = dim_const(c->dims, 0), one = dim_const(c->dims, 1);
    Dim end = dim_add(c->dims, s, n);
    if (by != 1) {
      Dim last = dim_mul(c->dims, dim_sub(c->dims, n, one), dim_const(c->dims, by));
      end = dim_add(c->dims, dim_add(c->dims, s, last), one);
      if (dim_is_const(c->dims, n, &k) && k == 0) end = s;
    }
    Tri r = at_least(c, x->dim[i], end, "a slice ends behind its axis");
    if (r == YES && by != 1) r = at_least(c, x->dim[i], s, "a slice starts behind its axis");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice from %s to %s is not inside axis %d of %s",
               dim_text(c, s), dim_text(c, end), i, ty(c, 0));
      return gerr_help(c->e, "axis %d has %s elements; bounds are not clamped", i,
                       dim_text(c, x->dim[i]));
    }
    if (r == YES) r = at_least(c, s, zero, "a slice starts before its axis");
    if (r == YES) r = at_least(c, n, zero, "a slice has a negative length");
    if (r == NO) {
      return gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice from %s of %s elements is not inside axis "
                      "%d of %s", dim_text(c, s), dim_text(c, n), i, ty(c, 0));
    }
    if (r == FAILED) return false;
  }
  return true;
}

static bool shape_pad(C *c)
{
  const Type *x = c->in[0];
  const Attr *low = dims_attr(c, AT_LOW, x->rank), *high, *inner;
  const Attr *v = attr_find(c->attrs, c->nattrs, AT_VALUE);
  if (!low || !(high = dims_attr(c, AT_HIGH, x->rank)) || !(inner = ints(c, AT_INNER, x->rank))) {
    return false;
  }
  if (v && v->kind != AK_FLOAT) return bad_attr(c, AT_VALUE);
  Type *t = &c->out[0];
  *t = *x;
  Dim zero = dim_const(c->dims, 0), one = dim_const(c->dims, 1);
  for (int i = 0; i < x->rank; i++) {
    Dim a = (Dim)low->u.ints[i], b = (Dim)high->u.ints[i];
    int64_t in = inner->u.ints[i];
    if (in < 0 || in > INT32_MAX) return bad_attr(c, AT_INNER);
    Tri r = at_least(c, a, zero, "padding is negative");
    if (r == YES) r = at_least(c, b, zero, "padding is negative");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_NEGATIVE, 0, "padding of axis %d by %s and %s", i, dim_text(c, a),
               dim_text(c, b));
      return gerr_help(c->e, "a slice makes an axis shorter");
    }
    if (r == FAILED) return false;
    Dim n = x->dim[i];
    int64_t k;
    if (in > 0) {
      /* zeros between elements: n + (n - 1) * in, which needs an element */
      if (dim_is_const(c->dims, n, &k) && k == 0) {
        n = zero;
      } else {
        r = at_least(c, n, one, "padding between elements needs an element");
        if (r != YES) return r == FAILED ? false : bad_attr(c, AT_INNER);
        n = dim_add(c->dims, n, dim_mul(c->dims, dim_sub(c->dims, n, one), dim_const(c->dims, in)));
      }
    }
    t->dim[i] = dim_add(c->dims, dim_add(c->dims, n, a), b);
  }
  return true;
}

static bool shape_flip(C *c)
{
  unsigned mask;
  c->out[0] = *c->in[0];
  return axes_attr(c, AT_AXES, c->in[0]->rank, &mask);
}

static bool shape_concat(C *c)
{
  int axis;
  Device dev;
  if (c->n < 1) {
    return gerr_set(c->e, ERR_SHAPE_CONCAT, -1, "`concat` of no tensors has no dtype and shape");
  }
  if (!axis_attr(c, c->in[0]->rank, &axis) || !check_dtypes(c, 0, c->n) || !check_devices(c, &dev)) {
    return false;
  }
  Type *t = &c->out[0];
  *t = *c->in[0];
  t->dev = (uint8_t)dev;
  for (int i = 1; i < c->n; i++) {
    const Type *x = c->in[i];
    if (x->rank != t->rank) {
      gerr_set(c->e, ERR_SHAPE_CONCAT, i, "`concat` of %s and %s, which have different numbers of axes",
               ty(c, 0), ty(c, i));
      int lo = x->rank < t->rank ? i : 0, d = x->rank < t->rank ? t->rank - x->rank : x->rank - t->rank;
      return d == 1 ? gerr_help(c->e, "`expand(%s, %d)` has one more", arg(c, lo), axis) : false;
    }
    for (int k = 0; k < t->rank; k++) {
      if (k == axis) continue;
      Tri r = equal(c, t->dim[k], x->dim[k], "tensors to join differ beside the joined axis");
      if (r == FAILED) return false;
      if (r == NO) {
        gerr_set(c->e, ERR_SHAPE_CONCAT, i, "`concat` along axis %d of %s and %s, whose axis %d differs",
                 axis, ty(c, 0), ty(c, i), k);
        bool only = true;
        for (int j = 0; j < t->rank; j++) {
          only = only && (j == k || dim_compare(c->dims, t->dim[j], x->dim[j]) == DIM_EQUAL);
        }
        return only ? gerr_help(c->e, "`axis = %d` joins them", k) : false;
      }
    }
    t->dim[axis] = dim_add(c->dims, t->dim[axis], x->dim[axis]);
  }
  return true;
}

/* What x[.., idx.., ..] looks like: idx of operand `first` on stand for axes axis .. axis + k - 1. */
static bool taken(C *c, int first, int axis, Type *t)
{
  const Type *x = c->in[0];
  int k = c->n - first;
  if (k < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has no index", op_info[c->op].text);
  if (axis + k > x->rank) {
    return gerr_set(c->e, ERR_SHAPE_AXIS, 0, "%d index tensors from axis %d on, but %s has %d axes", k,
                    axis, ty(c, 0), x->rank);
  }
  const Type *idx = c->in[first];
  for (int i = first; i < c->n; i++) {
    int at = -1;
    if (!need_index(c, i)) return false;
    bool same = c->in[i]->rank == idx->rank &&
                same_dims(c, idx, c->in[i], "index tensors have different shapes", &at);
    if (!same && at < 0 && c->in[i]->rank == idx->rank) return false;
    if (!same) {
      gerr_set(c->e, ERR_INDEX_SHAPE, i, "index tensors have different shapes: %s and %s",
               ty(c, first), ty(c, i));
      return gerr_help(c->e, "`expand` and `broadcast` make them equal");
    }
  }
  int rank = x->rank - k + idx->rank;
  if (rank > CKL_MAX_RANK) {
    return gerr_set(c->e, ERR_SHAPE_AXES, 0, "the result of this index has %d axes, at most %d are "
                    "possible", rank, CKL_MAX_RANK);
  }
  *t = *x;
  t->rank = (uint8_t)rank;
  for (int i = 0; i < idx->rank; i++) t->dim[axis + i] = idx->dim[i];
  for (int i = axis + k; i < x->rank; i++) t->dim[i - k + idx->rank] = x->dim[i];
  return true;
}

static bool shape_take(C *c)
{
  int axis;
  Device dev;
  if (c->n < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`take` has no operands");
  if (!axis_attr(c, c->in[0]->rank, &axis) || !check_devices(c, &dev)) return false;
  if (!taken(c, 1, axis, &c->out[0])) return false;
  c->out[0].dev = (uint8_t)dev;
  return true;
}

static bool shape_put(C *c)
{
  int axis, at;
  Device dev;
  Type want;
  if (c->n < 2) return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` lacks operands", op_info[c->op].text);
  if (!check_domain(c, 0) || !axis_attr(c, c->in[0]->rank, &axis) || !check_dtypes(c, 0, 2) ||
      !check_devices(c, &dev) || !taken(c, 2, axis, &want)) {
    return false;
  }
  bool same = c->in[1]->rank == want.rank;
  if (same && !same_dims(c, &want, c->in[1], "a value written to an index has another shape", &at)) {
    if (at < 0) return false;
    same = false;
  }
  if (!same) {
    gerr_set(c->e, ERR_INDEX_SHAPE, 1, "the place written to is %s, the value is %s",
             type_text(c, &want), ty(c, 1));
    return gerr_help(c->e, "`broadcast(%s, ..)` makes a value of this shape", arg(c, 1));
  }
  c->out[0] = *c->in[0];
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* x and idx have equal dims but on `axis`. */
static bool along(C *c, int axis)
{
  const Type *x = c->in[0], *idx = c->in[1];
  if (!need_index(c, 1)) return false;
  if (idx->rank != x->rank) {
    gerr_set(c->e, ERR_INDEX_SHAPE, 1, "`%s` of %s takes positions with %d axes, not %s", me(c),
             ty(c, 0), x->rank, ty(c, 1));
    if (idx->rank + 1 == x->rank) {
      return gerr_help(c->e, "`expand(%s, %d)` has them", arg(c, 1), axis);
    }
    return false;
  }
  for (int i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    Tri r = equal(c, x->dim[i], idx->dim[i], "positions differ from their tensor beside the axis");
    if (r == FAILED) return false;
    if (r == NO) {
      return gerr_set(c->e, ERR_INDEX_SHAPE, 1,
                      "`%s` along axis %d of %s takes positions equal on the other axes, not %s", me(c),
                      axis, ty(c, 0), ty(c, 1));
    }
  }
  return true;
}

static bool shape_gather(C *c)
{
  int axis;
  Device dev;
  if (!axis_attr(c, c->in[0]->rank, &axis) || !check_devices(c, &dev) || !along(c, axis)) return false;
  c->out[0] = *c->in[1];
  c->out[0].dtype = c->in[0]->dtype;
  c->out[0].dev = (uint8_t)dev;
  return true;
}

static bool shape_scatter(C *c)
{
  int axis, at = -1;
  Device dev;
  if (!check_domain(c, 0) || !axis_attr(c, c->in[0]->rank, &axis) || !check_devices(c, &dev) ||
      !along(c, axis)) {
    return false;
  }
  if (c->in[2]->dtype != c->in[0]->dtype) {
    gerr_set(c->e, ERR_DTYPE_DIFFER, 2, "`%s` takes one dtype, not %s and %s", me(c), ty(c, 0), ty(c, 2));
    return gerr_help(c->e, "`%s(%s)`", dtype_info[c->in[0]->dtype].name, arg(c, 2));
  }
  bool same = c->in[2]->rank == c->in[1]->rank;
  if (same && !same_dims(c, c->in[1], c->in[2], "values and positions have different shapes", &at)) {
    if (at < 0) return false;
    same = false;
  }
  if (!same) {
    return gerr_set(c->e, ERR_INDEX_SHAPE, 2, "values %s and positions %s have different shapes",
                    ty(c, 2), ty(c, 1));
  }
  c->out[0] = *c->in[0];
  c->out[0].dev = (uint8_t)dev;
  return true;
}

static bool shape_sort(C *c)
{
  int axis;
  if (!check_domain(c, 0) || !axis_attr(c, c->in[0]->rank, &axis) || !option(c, AT_DESCENDING, 2)) {
    return false;
  }
  c->out[0] = c->out[1] = *c->in[0];
  c->out[1].dtype = DT_I64;
  return true;
}

static bool shape_nonzero(C *c)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_MOST);
  const Type *x = c->in[0];
  if (!a && c->into) {
    gerr_set(c->e, ERR_IR_FORM, 0, "the number of results of `nonzero` depends on the data");
    return gerr_help(c->e, "`nonzero(%s, most = n)` has a fixed size", arg(c, 0));
  }
  if (a && (a->kind != AK_DIM || !dim_valid(c->dims, a->u.i))) return bad_attr(c, AT_MOST);
  c->out[0] = type_of(DT_I64, (Device)x->dev, 2);
  c->out[0].dim[0] = a ? (Dim)a->u.i : dim_product(c->dims, x->rank, x->dim);
  c->out[0].dim[1] = dim_const(c->dims, x->rank);
  c->out[1] = type_of(DT_I64, (Device)x->dev, 0);
  return true;
}

/* -- reductions */
static void drop_axes(Type *t, const Type *x, unsigned mask)
{
  *t = *x;
  int n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!(mask >> i & 1)) t->dim[n++] = x->dim[i];
  }
  t->rank = (uint8_t)n;
}

static bool shape_reduce(C *c)
{
  unsigned mask;
  if (!check_domain(c, 0) || !axes_attr(c, AT_AXES, c->in[0]->rank, &mask)) return false;
  drop_axes(&c->out[0], c->in[0], mask);
  return true;
}

static bool shape_argreduce(C *c)
{
  int axis;
  int64_t n;
  if (!check_domain(c, 0) || !axis_attr(c, c->in[0]->rank, &axis)) return false;
  if (dim_is_const(c->dims, c->in[0]->dim[axis], &n) && n == 0) {
    return gerr_set(c->e, ERR_VALUE_RUN, 0, "`%s` along axis %d of %s, which has no elements", me(c),
                    axis, ty(c, 0));
  }
  drop_axes(&c->out[0], c->in[0], 1u << axis);
  c->out[0].dtype = DT_I64;
  return true;
}

static bool shape_same_axis(C *c)
{
  int axis;
  if (!check_domain(c, 0) || !axis_attr(c, c->in[0]->rank, &axis) || !option(c, AT_REVERSE, 2)) {
    return false;
  }
  c->out[0] = *c->in[0];
  return true;
}

/* -- contractions */
static bool contraction(C *c, Device *dev)
{
  return check_domain(c, 0) && check_domain(c, 1) && check_dtypes(c, 0, 2) && check_devices(c, dev) &&
         option(c, AT_COMPUTE, COMPUTE_TF32 + 1);
}

static bool batch_axes(C *c, int count)
{
  for (int i = 0; i < count; i++) {
    Tri r = equal(c, c->in[0]->dim[i], c->in[1]->dim[i], "the batch axes of `@` differ");
    if (r == FAILED) return false;
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_BATCH, 1, "the batch axes of `@` differ: axis %d is %s and %s, in %s @ %s",
               i, dim_text(c, c->in[0]->dim[i]), dim_text(c, c->in[1]->dim[i]), ty(c, 0), ty(c, 1));
      return gerr_help(c->e, "axes before the last two are equal on both sides, or absent on one");
    }
  }
  return true;
}

static bool shape_dot(C *c)
{
  Device dev;
  const Type *x = c->in[0], *y = c->in[1];
  if (!contraction(c, &dev)) return false;
  if (x->rank < 2 || y->rank < 2 || x->rank != y->rank) {
    int at = x->rank < 2 ? 0 : 1;
    gerr_set(c->e, ERR_SHAPE_RANK, at, "`@` of %s and %s", ty(c, 0), ty(c, 1));
    if (x->rank == 0 || y->rank == 0) return gerr_help(c->e, "`%s * %s` scales", part(c, 0), part(c, 1));
    return gerr_help(c->e, "both sides have two axes, and the same axes before these");
  }
  int r = x->rank;
  Tri t = equal(c, x->dim[r - 1], y->dim[r - 2], "the inner dims of `@` differ");
  if (t == FAILED) return false;
  if (t == NO) {
    gerr_set(c->e, ERR_SHAPE_INNER, 1, "the inner dims of `@` differ: %s and %s, in %s @ %s",
             dim_text(c, x->dim[r - 1]), dim_text(c, y->dim[r - 2]), ty(c, 0), ty(c, 1));
    if (dim_compare(c->dims, x->dim[r - 1], y->dim[r - 1]) == DIM_EQUAL) {
      return gerr_help(c->e, "`%s @ transpose(%s)` fits", part(c, 0), arg(c, 1));
    }
    if (dim_compare(c->dims, x->dim[r - 2], y->dim[r - 2]) == DIM_EQUAL) {
      return gerr_help(c->e, "`transpose(%s) @ %s` fits", arg(c, 0), part(c, 1));
    }
    if (r == 2 && dim_compare(c->dims, x->dim[0], y->dim[1]) == DIM_EQUAL) {
      return gerr_help(c->e, "`%s @ %s` fits", part(c, 1), part(c, 0));
    }
    return gerr_help(c->e, "the last axis of %s and the second-last of %s must be equal", part(c, 0),
                     part(c, 1));
  }
  if (!batch_axes(c, r - 2)) return false;
  c->out[0] = *x;
  c->out[0].dev = (uint8_t)dev;
  c->out[0].dim[r - 1] = y->dim[r - 1];
  return true;
}

static bool shape_inner(C *c)
{
  Device dev;
  const Type *x = c->in[0], *y = c->in[1];
  if (!contraction(c, &dev)) return false;
  if (x->rank < 1 || x->rank != y->rank) {
    gerr_set(c->e, ERR_SHAPE_RANK, x->rank < 1 ? 0 : 1, "`@` of %s and %s", ty(c, 0), ty(c, 1));
    if (x->rank == 0 || y->rank == 0) return gerr_help(c->e, "`%s * %s` scales", part(c, 0), part(c, 1));
    return gerr_help(c->e, "a product of vectors has one axis on both sides");
  }
  int r = x->rank;
  Tri t = equal(c, x->dim[r - 1], y->dim[r - 1], "the lengths of the vectors of `@` differ");
  if (t == NO) {
    gerr_set(c->e, ERR_SHAPE_INNER, 1, "the lengths of the vectors of `@` differ: %s and %s, in %s @ %s",
             dim_text(c, x->dim[r - 1]), dim_text(c, y->dim[r - 1]), ty(c, 0), ty(c, 1));
    return gerr_help(c->e, "`expand(%s, 1) * %s` is the product of every pair", arg(c, 0), part(c, 1));
  }
  if (t != YES || !batch_axes(c, r - 1)) return false;
  drop_axes(&c->out[0], x, 1u << (r - 1));
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* One side of a convolution's result: (n + 2 * pad - k) // stride + 1. */
static bool window(C *c, Dim n, Dim k, int64_t stride, int64_t pad, const char *side_name, Dim *out)
{
  Dim room = dim_add(c->dims, n, dim_const(c->dims, 2 * pad));
  Tri r = at_least(c, room, k, "the kernel of a convolution is larger than the padded image");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_CONV, 1, "the kernel's %s %s is larger than the image's %s %s with padding %lld",
             side_name, dim_text(c, k), side_name, dim_text(c, n), (long long)pad);
    int64_t a, b;
    if (dim_is_const(c->dims, n, &a) && dim_is_const(c->dims, k, &b)) {
      return gerr_help(c->e, "padding of %lld fits", (long long)((b - a + 1) / 2));
    }
    return false;
  }
  if (r == FAILED) return false;
  Dim steps = dim_floordiv(c->dims, dim_sub(c->dims, room, k), dim_const(c->dims, stride));
  *out = dim_add(c->dims, steps, dim_const(c->dims, 1));
  return true;
}

/* Checks image x [N, C, H, W] and kernel w [O, C, h, w]; `out` = [N, O, H', W']. */
static bool convolve(C *c, const Type *x, const Type *w, Type *out)
{
  const Attr *stride = ints(c, AT_STRIDE, 2), *pad;
  if (!stride || !(pad = ints(c, AT_PAD, 2))) return false;
  for (int i = 0; i < 2; i++) {
    if (stride->u.ints[i] < 1 || stride->u.ints[i] > INT32_MAX) {
      return gerr_set(c->e, ERR_SHAPE_CONV, -1, "the stride of a convolution is %lld",
                      (long long)stride->u.ints[i]);
    }
    if (pad->u.ints[i] < 0 || pad->u.ints[i] > INT32_MAX) {
      return gerr_set(c->e, ERR_SHAPE_CONV, -1, "the padding of a convolution is %lld",
                      (long long)pad->u.ints[i]);
    }
  }
  Tri r = equal(c, x->dim[1], w->dim[1], "image and kernel have different numbers of channels");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_CONV, 1, "the image has %s channels, the kernel takes %s: %s and %s",
             dim_text(c, x->dim[1]), dim_text(c, w->dim[1]), type_text(c, x), type_text(c, w));
    return gerr_help(c->e, "images are [N, C, H, W], kernels [O, C, h, w]");
  }
  if (r != YES) return false;
  *out = *x;
  out->dim[1] = w->dim[0];
  return window(c, x->dim[2], w->dim[2], stride->u.ints[0], pad->u.ints[0], "height", &out->dim[2]) &&
         window(c, x->dim[3], w->dim[3], stride->u.ints[1], pad->u.ints[1], "width", &out->dim[3]);
}

static bool shape_conv(C *c)
{
  Device dev;
  if (!contraction(c, &dev) || !need_rank(c, 0, 4, "an image [N, C, H, W]") ||
      !need_rank(c, 1, 4, "a kernel [O, C, h, w]") || !convolve(c, c->in[0], c->in[1], &c->out[0])) {
    return false;
  }
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* Gradients: the made-up operand has the dims of the attribute, and the convolution's result is g. */
static bool conv_gradient(C *c, bool of_input)
{
  Device dev;
  Type t, got;
  const Attr *a = dims_attr(c, AT_DIMS, 4);
  if (!a || !contraction(c, &dev)) return false;
  if (!need_rank(c, 0, 4, "four axes") || !need_rank(c, 1, 4, "four axes")) return false;
  t = *c->in[0];
  t.dev = (uint8_t)dev;
  set_dims(&t, a);
  const Type *g = of_input ? c->in[0] : c->in[1];
  if (!convolve(c, of_input ? &t : c->in[0], of_input ? c->in[1] : &t, &got)) return false;
  int axis;
  if (!same_dims(c, &got, g, "the gradient of a convolution has another shape than its result", &axis)) {
    return axis < 0 ? false
                    : gerr_set(c->e, ERR_SHAPE_CONV, of_input ? 0 : 1,
                               "the convolution gives %s, its gradient is %s", type_text(c, &got),
                               type_text(c, g));
  }
  c->out[0] = t;
  return true;
}

static bool shape_conv_input(C *c)
{
  return conv_gradient(c, true);
}

static bool shape_conv_weight(C *c)
{
  return conv_gradient(c, false);
}

/* -- regions */
static bool match(C *c, const Type *a, const Type *b, int operand, const char *what)
{
  bool same = a->kind == b->kind &&
              (a->kind == TK_TOKEN || (a->dtype == b->dtype && a->dev == b->dev && a->rank == b->rank));
  if (same && a->kind == TK_TENSOR) {
    int axis;
    same = same_dims(c, a, b, "sizes inside and outside a region differ", &axis);
    if (!same && axis < 0) return false;
  }
  if (same) return true;
  return gerr_set(c->e, ERR_IR_FORM, operand, "`%s`: %s is %s, not %s", op_info[c->op].text, what,
                  type_text(c, b), type_text(c, a));
}

static bool need_regions(C *c, int lo, int hi)
{
  if (c->nregions < lo || c->nregions > hi) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has %d regions", op_info[c->op].text, c->nregions);
  }
  for (int i = 0; i < c->nregions; i++) {
    if (!c->regions[i] || c->regions[i]->dims != c->dims) {
      return gerr_set(c->e, ERR_IR_FORM, -1, "region %d of `%s` has other dims", i, op_info[c->op].text);
    }
  }
  return true;
}

static const Type *region_in(C *c, int r, int i)
{
  return gr_type(c->regions[r], c->regions[r]->inputs[i]);
}

static const Type *region_out(C *c, int r, int i)
{
  return gr_type(c->regions[r], c->regions[r]->outputs[i]);
}

static bool need_inputs(C *c, int r, int n)
{
  if ((int)c->regions[r]->input_count == n) return true;
  return gerr_set(c->e, ERR_IR_FORM, -1, "region %d of `%s` takes %d values, not %d", r,
                  op_info[c->op].text, (int)c->regions[r]->input_count, n);
}

/* Inputs from `first` of region r are operands from `from` on. */
static bool bind(C *c, int r, int first, int from)
{
  for (int i = from; i < c->n; i++) {
    if (!match(c, c->in[i], region_in(c, r, first + i - from), i, "an input of a region")) return false;
  }
  return true;
}

static void give_outputs(C *c, int r)
{
  for (int i = 0; i < c->nout; i++) {
    c->out[i] = *region_out(c, r, i);
    c->out[i].alias = 0;
  }
}

static bool shape_region(C *c)
{
  if (!need_regions(c, 1, c->op == OP_CUSTOM ? 2 : 1) || !need_inputs(c, 0, c->n) || !bind(c, 0, 0, 0)) {
    return false;
  }
  give_outputs(c, 0);
  if (c->op != OP_CUSTOM) {
    const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
    return !a || a->kind == AK_TEXT || bad_attr(c, AT_TEXT);
  }
  if (c->nregions < 2) return true;
  /* region 1: operands, results, cotangents of the float results -> gradients of `wrt` */
  const Attr *wrt = attr_find(c->attrs, c->nattrs, AT_WRT);
  const Graph *back = c->regions[1];
  if (!wrt || wrt->kind != AK_INTS) return bad_attr(c, AT_WRT);
  if (wrt->count != back->output_count) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "region 1 of `custom` has %d results for %u operands",
                    (int)back->output_count, (unsigned)wrt->count);
  }
  int floats = 0;
  for (int i = 0; i < c->nout; i++) {
    floats += c->out[i].kind == TK_TENSOR && dt_float((DType)c->out[i].dtype);
  }
  int given = (int)back->input_count - c->n - c->nout;
  if (given != floats && given != c->nout) return need_inputs(c, 1, c->n + c->nout + floats);
  if (!bind(c, 1, 0, 0)) return false;
  int at = c->n;
  for (int i = 0; i < c->nout; i++) {
    if (!match(c, &c->out[i], region_in(c, 1, at++), -1, "a result in region 1")) return false;
  }
  for (int i = 0; i < c->nout; i++) {
    bool is_float = c->out[i].kind == TK_TENSOR && dt_float((DType)c->out[i].dtype);
    if (given != c->nout && !is_float) continue;
    if (!match(c, &c->out[i], region_in(c, 1, at++), -1, "a cotangent in region 1")) return false;
  }
  for (uint32_t i = 0; i < wrt->count; i++) {
    int64_t k = wrt->u.ints[i];
    if (k < 0 || k >= c->n) return bad_attr(c, AT_WRT);
    if (!match(c, c->in[k], region_out(c, 1, (int)i), (int)k, "a gradient")) return false;
  }
  return true;
}

static bool shape_loop(C *c)
{
  int64_t carry;
  if (c->n < 1 || !need_regions(c, 1, 1) || !int_attr(c, AT_CARRY, 0, c->n, &carry) ||
      !need_inputs(c, 0, c->n)) {
    return c->n < 1 ? gerr_set(c->e, ERR_IR_FORM, -1, "`loop` has no count") : false;
  }
  Type count = type_of(DT_I64, DEV_CPU, 0);
  if (!match(c, &count, c->in[0], 0, "the count") ||
      !match(c, &count, region_in(c, 0, 0), 0, "the turn") || !bind(c, 0, 1, 1)) {
    return false;
  }
  if (c->nout != carry || (int64_t)c->regions[0]->output_count != carry) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`loop` carries %lld values, its region gives %d",
                    (long long)carry, (int)c->regions[0]->output_count);
  }
  for (int i = 0; i < c->nout; i++) {
    if (!match(c, c->in[1 + i], region_out(c, 0, i), 1 + i, "a carried value")) return false;
    c->out[i] = *c->in[1 + i];
    c->out[i].alias = 0;
  }
  return true;
}

static bool shape_branch(C *c)
{
  Type pred = type_of(DT_BOOL, DEV_CPU, 0);
  if (c->n < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`branch` has no condition");
  if (!need_regions(c, 2, 2) || !match(c, &pred, c->in[0], 0, "the condition")) return false;
  for (int r = 0; r < 2; r++) {
    if (!need_inputs(c, r, c->n - 1) || !bind(c, r, 0, 1)) return false;
    if ((int)c->regions[r]->output_count != c->nout) {
      return gerr_set(c->e, ERR_IR_FORM, -1, "the regions of `branch` give different numbers of values");
    }
  }
  give_outputs(c, 0);
  for (int i = 0; i < c->nout; i++) {
    if (!match(c, &c->out[i], region_out(c, 1, i), -1, "a result of the other region")) return false;
  }
  return true;
}

static bool shape_map(C *c)
{
  int64_t mapped;
  if (!need_regions(c, 1, 1) || !int_attr(c, AT_MAPPED, 1, (int64_t)c->n + 1, &mapped) ||
      !need_inputs(c, 0, c->n)) {
    return false;
  }
  for (int i = 0; i < mapped; i++) {
    const Type *x = c->in[i];
    if (x->kind != TK_TENSOR || x->rank < 1) {
      return gerr_set(c->e, ERR_SHAPE_RANK, i, "`map` takes apart tensors with an axis, not %s", ty(c, i));
    }
    Tri r = equal(c, c->in[0]->dim[0], x->dim[0], "mapped tensors have different leading axes");
    if (r == NO) {
      return gerr_set(c->e, ERR_SHAPE_DIFFER, i, "mapped tensors have different leading axes: %s and %s",
                      ty(c, 0), ty(c, i));
    }
    if (r != YES) return false;
    Type row = *x;
    row.rank--;
    memmove(row.dim, x->dim + 1, sizeof row.dim[0] * row.rank);
    if (!match(c, &row, region_in(c, 0, i), i, "an input of a region")) return false;
  }
  if (!bind(c, 0, (int)mapped, (int)mapped)) return false;
  give_outputs(c, 0);
  for (int i = 0; i < c->nout; i++) {
    Type *t = &c->out[i];
    if (t->kind != TK_TENSOR) return gerr_set(c->e, ERR_IR_FORM, -1, "`map` cannot stack tokens");
    if (t->rank == CKL_MAX_RANK) {
      return gerr_set(c->e, ERR_SHAPE_AXES, -1, "the result of `map` has more than %d axes", CKL_MAX_RANK);
    }
    memmove(t->dim + 1, t->dim, sizeof t->dim[0] * t->rank);
    t->dim[0] = c->in[0]->dim[0];
    t->rank++;
  }
  return true;
}

/* -- effects and host functions */
static bool shape_foreign(C *c)
{
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
  if (!need_token(c)) return false;
  if (!a || a->kind != AK_TEXT) return bad_attr(c, AT_TEXT);
  c->out[0] = (Type){.kind = TK_TOKEN};
  if (c->op == OP_DEFER) {
    if (c->n != 2) return gerr_set(c->e, ERR_IR_FORM, -1, "`defer` takes a token and a value");
    c->out[1] = *c->in[1];
    c->out[1].alias = 0;
    return true;
  }
  const Attr *dt = attr_find(c->attrs, c->nattrs, AT_DTYPE);
  const Attr *rank = attr_find(c->attrs, c->nattrs, AT_INDEX);
  const Attr *dims = attr_find(c->attrs, c->nattrs, AT_DIMS);
  if (!rank || rank->kind != AK_INTS || rank->count != dt->count) return bad_attr(c, AT_INDEX);
  if (!dims || dims->kind != AK_DIMS) return bad_attr(c, AT_DIMS);
  uint32_t at = 0;
  for (uint32_t i = 0; i < dt->count; i++) {
    int64_t r = rank->u.ints[i];
    if (dt->u.ints[i] < 0 || dt->u.ints[i] >= DT_COUNT) return bad_attr(c, AT_DTYPE);
    if (r < 0 || r > CKL_MAX_RANK || (int64_t)(dims->count - at) < r) return bad_attr(c, AT_INDEX);
    Type *t = &c->out[1 + i];
    *t = type_of((DType)dt->u.ints[i], DEV_CPU, (int)r);
    for (int k = 0; k < r; k++, at++) {
      if (!dim_valid(c->dims, dims->u.ints[at])) return bad_attr(c, AT_DIMS);
      t->dim[k] = (Dim)dims->u.ints[at];
    }
  }
  return at == dims->count || bad_attr(c, AT_DIMS);
}

static bool shape_token(C *c)
{
  c->out[0] = (Type){.kind = TK_TOKEN};
  if (c->op == OP_TOKEN) return true;
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
  if (!need_token(c)) return false;
  if (!a || a->kind != AK_TEXT) return bad_attr(c, AT_TEXT);
  if (c->op == OP_ASSERT) {
    if (c->n < 2 || c->in[1]->kind != TK_TENSOR || c->in[1]->dtype != DT_BOOL) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`assert` takes a bool%s%s", c->n < 2 ? "" : ", not ",
                      c->n < 2 ? "" : ty(c, 1));
    }
  }
  return true;
}

/* -- the table */
static bool (*const rule[OP_COUNT])(C *c) = {
#define OP(NAME, text, arity, results, cls, traits, domain, shape, ...) [OP_##NAME] = shape_##shape,
#include "graph/ops.def"
#undef OP
};

int op_result_count(OpCode op, const Attr *attrs, int nattrs, Graph *const *regions, int nregions)
{
  const Attr *a;
  switch (op) {
  case OP_CUSTOM: case OP_LOOP: case OP_BRANCH: case OP_MAP: case OP_WRAP: case OP_CHECKPOINT:
    if (nregions < 1 || !regions[0] || regions[0]->output_count > UINT16_MAX) return -1;
    return (int)regions[0]->output_count;
  case OP_CALL:
    a = attr_find(attrs, nattrs, AT_DTYPE);
    return a && a->kind == AK_INTS && a->count < UINT16_MAX ? 1 + (int)a->count : -1;
  case OP_DEFER: return 2;
  default: return op_info[op].results;
  }
}

/* Sizes the op made up are not negative and the bytes can be counted. */
static bool check_sizes(C *c, const Type *t)
{
  for (int i = 0; i < t->rank; i++) {
    Dim d = t->dim[i];
    int64_t k;
    if (d == DIM_BAD) {
      return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of the result of `%s` passes 2^63 - 1", me(c));
    }
    if (dim_is_const(c->dims, d, &k) ? k >= 0 : dim_nonneg(c->dims, d)) continue;
    bool known = false;
    for (int j = 0; j < c->n && !known; j++) {
      for (int a = 0; a < c->in[j]->rank && !known; a++) known = c->in[j]->dim[a] == d;
    }
    if (known || (c->op == OP_INPUT && !dim_is_const(c->dims, d, NULL))) continue;
    Tri r = at_least(c, d, dim_const(c->dims, 0), "a size is negative");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_NEGATIVE, -1, "axis %d of the result of `%s` has the size %s", i, me(c),
               dim_text(c, d));
      return false;
    }
    if (r == FAILED) return false;
  }
  int64_t bytes = (int64_t)dt_size((DType)t->dtype), n;
  bool over = false;
  for (int i = 0; i < t->rank; i++) {
    if (!dim_is_const(c->dims, t->dim[i], &n)) n = 1;
    if (n == 0) return true;
    over = over || __builtin_mul_overflow(bytes, n, &bytes);
  }
  return !over || gerr_set(c->e, ERR_SHAPE_SIZE, -1, "%s has more than 2^63 - 1 bytes", type_text(c, t));
}

bool op_shape(ShapeCall *c)
{
  const OpInfo *info = &op_info[c->op];
  if (info->arity >= 0 && c->n != info->arity) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` takes %d operands, not %d", info->text, info->arity, c->n);
  }
  if (c->nregions && !(info->traits & T_REGION)) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has no regions", info->text);
  }
  bool tokens = info->cls == EFFECT || info->cls == CONTROL;
  if (!tokens && !need_tensors(c, 0)) return false;
  if (!rule[c->op](c)) return false;
  for (int i = 0; i < c->nout; i++) {
    c->out[i].alias = 0;
    if (c->out[i].kind == TK_TENSOR && !check_sizes(c, &c->out[i])) return false;
  }
  return true;
}
