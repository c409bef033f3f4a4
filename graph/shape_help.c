/* Functions that shape rules share: texts of messages, tests of attributes, conditions on sizes.
 *
 * In: a question to the table. Out: values to use, or the error for the user, with the operand, its
 * type, and an example that type-checks. A condition on sizes that are not known yet becomes a
 * check of the graph.
 */
#include <stdarg.h>

#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/shape_rule.h"

/* ---- text */
const char *sh_text(C *c, const char *fmt, ...) {
  va_list ap;
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  va_start(ap, fmt);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return b.s;
}

const char *sh_dim_text(C *c, Dim d) {
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  dim_print(&b, c->dims, d);
  return b.s;
}

const char *sh_type_text(C *c, const Type *t) {
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  type_print(&b, c->dims, t);
  return b.s;
}

const char *sh_operand(C *c, int i) {
  return sh_type_text(c, c->in[i]);
}

/* How operand i is written in the user's source, as an argument of a call. */
const char *sh_arg(C *c, int i) {
  if (i < c->operand_text_count && c->operand_text && c->operand_text[i]) return c->operand_text[i];
  static const char *const letter[] = {"x", "y", "z"};
  return i < 3 ? letter[i] : "w";
}

/* The text of operand i as a part of an expression: in parentheses if it is not one word or
 * call. */
const char *sh_part(C *c, int i) {
  const char *s = sh_arg(c, i);
  int depth = 0;
  for (const char *p = s; *p; p++) {
    if (*p == '(' || *p == '[')
      depth++;
    else if (*p == ')' || *p == ']')
      depth--;
    else if (depth == 0 && (*p == ' ' || (p > s && strchr("+-*/%@<>=", *p))))
      return sh_text(c, "(%s)", s);
  }
  return s;
}

const char *sh_side(C *c, int i) {
  if (c->n == 1) return "the operand";
  if (c->n == 2) return i == 0 ? "the left operand" : "the right operand";
  return sh_text(c, "operand %d", i + 1);
}

const char *sh_name(C *c) {
  return op_written(c->op);
}

bool sh_infix(C *c) {
  const char *s = sh_name(c);
  return c->n == 2 && !((*s >= 'a' && *s <= 'z'));
}

/* `x + y` or `max(x, y)` with operand i written as `how`, a format with one %s. */
const char *sh_with(C *c, int i, const char *before, const char *after) {
  Buf b;
  buf_init_arena(&b, dim_arena(c->dims));
  if (!sh_infix(c)) buf_printf(&b, "%s%s", sh_name(c), c->n == 1 && *sh_name(c) == '-' ? "" : "(");
  for (int k = 0; k < c->n && k < 3; k++) {
    if (k && sh_infix(c))
      buf_printf(&b, " %s ", sh_name(c));
    else if (k)
      buf_puts(&b, ", ");
    if (k == i || i < 0)
      buf_printf(&b, "%s%s%s", before, sh_arg(c, k), after);
    else
      buf_puts(&b, sh_infix(c) ? sh_part(c, k) : sh_arg(c, k));
  }
  if (!sh_infix(c) && !(c->n == 1 && *sh_name(c) == '-')) buf_putc(&b, ')');
  return b.s;
}

/* ---- attributes */
bool sh_bad_attr(C *c, AttrKey k) {
  return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` lacks a proper attribute `%s`", op_info[c->op].text,
                  attr_name[k]);
}

/* `count` -1 = any number up to the highest rank. */
const Attr *sh_ints(C *c, AttrKey k, int count) {
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INTS || (count >= 0 && a->count != (uint32_t)count) ||
      a->count > CKL_MAX_RANK) {
    sh_bad_attr(c, k);
    return NULL;
  }
  return a;
}

const Attr *sh_dims(C *c, AttrKey k, int count) {
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_DIMS || (count >= 0 && a->count != (uint32_t)count)) {
    sh_bad_attr(c, k);
    return NULL;
  }
  if (a->count > CKL_MAX_RANK) {
    gerr_set(c->e, ERR_SHAPE_AXES, -1, "a tensor has at most %d axes, not %u", CKL_MAX_RANK,
             (unsigned)a->count);
    return NULL;
  }
  for (uint32_t i = 0; i < a->count; i++) {
    if (a->u.ints[i] == (int64_t)DIM_BAD) {
      gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of `%s` passes 2^63 - 1, or divides by 0",
               sh_name(c));
      return NULL;
    }
    if (!dim_valid(c->dims, a->u.ints[i])) {
      sh_bad_attr(c, k);
      return NULL;
    }
  }
  return a;
}

bool sh_int(C *c, AttrKey k, int64_t lo, int64_t hi, int64_t *out) {
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INT || a->u.i < lo || a->u.i >= hi) return sh_bad_attr(c, k);
  *out = a->u.i;
  return true;
}

/* An optional number in [0, hi). */
bool sh_option(C *c, AttrKey k, int64_t hi) {
  int64_t x;
  return !attr_find(c->attrs, c->nattrs, k) || sh_int(c, k, 0, hi, &x);
}

bool sh_axis(C *c, int rank, int *axis) {
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_AXIS);
  if (!a || a->kind != AK_INT) return sh_bad_attr(c, AT_AXIS);
  if (a->u.i < 0 || a->u.i >= rank) {
    gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` along axis %lld of %s, which has %d %s", sh_name(c),
             (long long)a->u.i, sh_operand(c, 0), rank, rank == 1 ? "axis" : "axes");
    return rank == 0   ? gerr_help(c->e, "a single number has no axes")
           : rank == 1 ? gerr_help(c->e, "the only axis is 0")
                       : gerr_help(c->e, "axes are 0 to %d, or -1 for the last", rank - 1);
  }
  *axis = (int)a->u.i;
  return true;
}

/* A list of different axes below `rank`, as a bit mask. */
bool sh_axes(C *c, AttrKey k, int rank, unsigned *mask) {
  const Attr *a = attr_find(c->attrs, c->nattrs, k);
  if (!a || a->kind != AK_INTS) return sh_bad_attr(c, k);
  *mask = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    int64_t x = a->u.ints[i];
    if (x < 0 || x >= rank) {
      gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` over axis %lld of %s, which has %d %s", sh_name(c),
               (long long)x, sh_operand(c, 0), rank, rank == 1 ? "axis" : "axes");
      return rank == 0   ? gerr_help(c->e, "a single number has no axes")
             : rank == 1 ? gerr_help(c->e, "the only axis is 0")
                         : gerr_help(c->e, "axes are 0 to %d, or -1 for the last", rank - 1);
    }
    if (*mask >> x & 1) {
      return gerr_set(c->e, ERR_SHAPE_AXIS, 0, "`%s` names axis %lld twice", sh_name(c),
                      (long long)x);
    }
    *mask |= 1u << x;
  }
  return true;
}

/* ---- conditions. Each is true when it holds or is left to a check. */
static bool undecided(C *c, CheckKind k, Dim a, Dim b, const char *what) {
  if (a == DIM_BAD || b == DIM_BAD) {
    return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of `%s` passes 2^63 - 1", sh_name(c));
  }
  if (!c->into) return gerr_set(c->e, ERR_SHAPE_CHECK, -1, "%s", what);
  gr_check(c->into, k, a, b, what);
  return true;
}

/* NO, without an error set, if the two are provably different. */
Tri sh_equal(C *c, Dim a, Dim b, const char *what) {
  DimOrder o = dim_compare(c->dims, a, b);
  if (o == DIM_EQUAL) return YES;
  if (o == DIM_DIFFERENT) return NO;
  return undecided(c, CHECK_EQ, a, b, what) ? YES : FAILED;
}

Tri sh_at_least(C *c, Dim a, Dim b, const char *what) {
  if (a == b) return YES;
  Dim d = dim_sub(c->dims, a, b);
  int64_t k;
  if (dim_is_const(c->dims, d, &k)) return k >= 0 ? YES : NO;
  if (dim_nonneg(c->dims, d)) return YES;
  Dim below = dim_sub(c->dims, dim_sub(c->dims, b, a), dim_const(c->dims, 1));
  if (dim_nonneg(c->dims, below)) return NO;
  return undecided(c, CHECK_GE, a, b, what) ? YES : FAILED;
}

bool sh_same_dims(C *c, const Type *a, const Type *b, const char *what, int *axis) {
  *axis = -1;
  for (int i = 0; i < a->rank; i++) {
    Tri r = sh_equal(c, a->dim[i], b->dim[i], what);
    if (r == NO) *axis = i;
    if (r != YES) return false;
  }
  return true;
}

const char *sh_check_text(C *c, const char *fmt) {
  if (!c->into) return "sizes differ"; /* every size is known: the caller has a better text */
  return arena_printf(c->into->arena, fmt, sh_name(c));
}

/* ---- dtypes and devices */
bool sh_domain(C *c, int i) {
  OpDomain d = (OpDomain)op_info[c->op].domain;
  DType t = (DType)c->in[i]->dtype;
  static const char *const kind[] = {"float tensors", "numbers", "integer tensors", "bool tensors",
                                     "tensors"};
  if (dom_has(d, t)) return true;
  gerr_set(c->e, ERR_DTYPE_DOMAIN, i, "`%s` takes %s, not %s", sh_name(c), kind[d],
           sh_operand(c, i));
  if (d == DOM_BOOL && (c->op == OP_ANY || c->op == OP_ALL)) {
    return gerr_help(c->e, "`%s(%s != 0)` tests which elements are not 0", sh_name(c),
                     sh_part(c, i));
  }
  if (d == DOM_BOOL) return gerr_help(c->e, "`%s != 0` is a bool tensor", sh_part(c, i));
  if (c->op == OP_DIV) {
    return gerr_help(c->e, "`%s // %s` is the floor of the quotient; `f32(%s) / f32(%s)` is float",
                     sh_part(c, 0), sh_part(c, 1), sh_arg(c, 0), sh_arg(c, 1));
  }
  if (d == DOM_NUM && c->op == OP_SUM) {
    return gerr_help(c->e, "`sum(i64(%s))` counts, `any(%s)` tests for one", sh_arg(c, i),
                     sh_arg(c, i));
  }
  if (d == DOM_NUM && sh_infix(c)) {
    return gerr_help(c->e, "cast first: `%s`; or `and`, `or`, `not` on bool",
                     sh_with(c, -1, "i64(", ")"));
  }
  const char *to = d == DOM_FLOAT ? "f32" : d == DOM_NUM ? "i64" : "i64";
  return gerr_help(c->e, "cast first: `%s`", sh_with(c, -1, sh_text(c, "%s(", to), ")"));
}

/* Whether operands from .. to - 1 have one dtype. */
bool sh_dtypes(C *c, int from, int to) {
  for (int i = from + 1; i < to; i++) {
    DType a = (DType)c->in[from]->dtype, b = (DType)c->in[i]->dtype;
    if (a == b) continue;
    gerr_set(c->e, ERR_DTYPE_DIFFER, i, "`%s` takes one dtype, not %s and %s: %s and %s",
             sh_name(c), dtype_info[a].name, dtype_info[b].name, sh_operand(c, from),
             sh_operand(c, i));
    /* Suggest a cast of the side that loses nothing, else of the later operand. */
    bool left = (dt_float(b) && !dt_float(a)) || (dt_float(a) == dt_float(b) && b > a);
    int which = left ? from : i;
    DType goal = left ? b : a;
    return gerr_help(c->e, "`%s`",
                     sh_with(c, which, sh_text(c, "%s(", dtype_info[goal].name), ")"));
  }
  return true;
}

/* The device of the results: that of all operands other than single numbers on the cpu. */
bool sh_devices(C *c, Device *dev) {
  static const char *const name[DEV_COUNT] = {"cpu", "cuda", "sim", "spill"};
  int first = -1;
  *dev = DEV_CPU;
  for (int i = 0; i < c->n; i++) {
    const Type *t = c->in[i];
    if (t->kind == TK_TOKEN || (t->rank == 0 && t->dev == DEV_CPU)) continue;
    if (first >= 0 && t->dev != c->in[first]->dev) {
      gerr_set(c->e, ERR_DEVICE_DIFFER, i,
               "`%s` takes operands on one device: %s is on %s, %s on %s", sh_name(c),
               sh_side(c, first), name[c->in[first]->dev], sh_side(c, i), name[t->dev]);
      return gerr_help(c->e, "`%s` moves it",
                       sh_text(c, "to(%s, \"%s\")", sh_arg(c, i), name[c->in[first]->dev]));
    }
    if (first < 0) first = i;
    *dev = (Device)t->dev;
  }
  return true;
}

bool sh_tensors(C *c, int from) {
  for (int i = from; i < c->n; i++) {
    if (c->in[i]->kind != TK_TENSOR) {
      return gerr_set(c->e, ERR_IR_FORM, i, "`%s` takes a tensor, not a token",
                      op_info[c->op].text);
    }
  }
  return true;
}

bool sh_token(C *c) {
  if (c->n >= 1 && c->in[0]->kind == TK_TOKEN) return true;
  return gerr_set(c->e, ERR_IR_FORM, 0, "`%s` takes a token first", op_info[c->op].text);
}

bool sh_rank(C *c, int i, int rank, const char *as) {
  if (c->in[i]->rank == rank) return true;
  return gerr_set(c->e, ERR_SHAPE_RANK, i, "`%s` takes %s, not %s", sh_name(c), as,
                  sh_operand(c, i));
}

bool sh_index(C *c, int i) {
  if (c->in[i]->dtype == DT_I64) return true;
  gerr_set(c->e, ERR_INDEX_DTYPE, i, "positions are i64, not %s", sh_operand(c, i));
  if (c->in[i]->dtype == DT_BOOL) {
    return gerr_help(c->e, "a mask selects in scripts: `nonzero(%s)` gives its positions",
                     sh_arg(c, i));
  }
  return gerr_help(c->e, "`i64(%s)`", sh_arg(c, i));
}

/* ---- types */
void sh_set_dims(Type *t, const Attr *a) {
  t->rank = (uint8_t)a->count;
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
}

void sh_drop_axes(Type *t, const Type *x, unsigned mask) {
  *t = *x;
  int n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!(mask >> i & 1)) t->dim[n++] = x->dim[i];
  }
  t->rank = (uint8_t)n;
}
