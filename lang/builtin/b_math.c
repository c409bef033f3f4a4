/* Builtins: elementwise functions, reductions, comparisons of numbers.
 *
 * In: bound arguments. Out: a tensor or number. Numbers stay numbers (rule 11): their results
 * are computed in f64 by the same functions.
 */
#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/run_op.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/known.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/steps.h"
#include "lang/eval/type.h"
#include "lang/eval/walk.h"
#include "lang/eval/want.h"
#include "lang/names/meant.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"
#include "runtime/fmath.h"

DTypeClass builtin_dom_class(OpCode op) {
  return op_info[op].domain;
}

Value arg_tensor(Session *s, Call *c, int i) {
  bool list = c->v[i].tag == V_LIST && !v_is_weak_list(c->v[i]);
  const char *help = list ? foreign_instead(s, c->b->name) : NULL;
  if (help) fail_help(s, ERR_WANT_TENSOR, c->spans[i], help, "a tensor is needed here, not a list");
  return op_as_tensor(s, c->v[i], DT_COUNT, c->spans[i]);
}

DType arg_dtype(Session *s, Value v, Span at) {
  if (v.tag == V_DTYPE) return (DType)v.u.i;
  fail_at(s, ERR_WANT_DTYPE, at, "a dtype such as f32 is needed here, not %s",
          value_type_text(s, v));
}

static int64_t one_axis(Session *s, Value v, int rank, Span at) {
  int64_t a = want_int(s, v, at, "an axis"), k = a < 0 ? a + rank : a;
  if (k < 0 || k >= rank)
    fail_at(s, ERR_AXIS, at, "axis %lld is out of range for a tensor of rank %d", (long long)a,
            rank);
  return k;
}

int arg_axis(Session *s, Call *c, int i, int rank) {
  return (int)one_axis(s, c->v[i], rank, c->spans[i]);
}

int arg_axes(Session *s, Call *c, int i, int rank, int64_t *axes) {
  Value v = c->v[i];
  Span at = c->spans[i];
  int n = 0;
  if (v.tag == V_NONE) {
    for (; n < rank; n++) axes[n] = n;
    return n;
  }
  if (v.tag == V_TUPLE || v.tag == V_LIST) {
    if (v.u.list->count > CKL_MAX_RANK) fail_at(s, ERR_AXIS, at, "too many axes");
    for (size_t k = 0; k < v.u.list->count; k++)
      axes[n++] = one_axis(s, v.u.list->items[k], rank, at);
  } else {
    axes[n++] = one_axis(s, v, rank, at);
  }
  for (int k = 1; k < n; k++) /* sorted, few of them */
    for (int j = k; j > 0 && axes[j] < axes[j - 1]; j--) {
      int64_t t = axes[j];
      axes[j] = axes[j - 1];
      axes[j - 1] = t;
    }
  for (int k = 1; k < n; k++)
    if (axes[k] == axes[k - 1])
      fail_at(s, ERR_AXIS, at, "axis %lld stands twice", (long long)axes[k]);
  return n;
}

BUILTIN_FN(bi_elementwise) {
  return op_unary(s, (OpCode)c->b->op, c->v[0], c->spans[0]);
}

/* An op of n numbers that are known. */
static Value number_run(Session *s, OpCode op, int n, const double *v, Span at) {
  Tensor *t[2] = {NULL, NULL}, *r = NULL;
  bool ok = true;
  for (int i = 0; i < n; i++)
    ok = (t[i] = tn_scalar_f64(&s->mem, DEV_CPU, DT_F64, v[i])) != NULL && ok;
  GErr e = {.code = ERR_BUG};
  RunCtx ctx = {.mem = &s->mem};
  bool ran = ok && gr_run_op(&ctx, s->dims, op, NULL, 0, t, (uint32_t)n, &r, 1, &e);
  for (int i = 0; i < n; i++)
    if (t[i]) tn_unref(t[i]);
  if (!ok) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (!ran) fail_gerr(s, at, &e);
  double y = tn_get_f64(r, 0);
  tn_unref(r);
  return v_float(y);
}

/* An elementwise op on a number. */
Value builtin_number_unary(Session *s, OpCode op, Value x, Span at) {
  double v = x.tag == V_INT ? (double)x.u.i : x.u.f;
  bool is_int = x.tag == V_INT;
  switch (op) {
  case OP_ABS:
    if (is_int) {
      if (x.u.i == INT64_MIN)
        fail_at(s, ERR_OVERFLOW, at, "int overflow: abs(%lld) does not fit 64 bits",
                (long long)x.u.i);
      return v_int(x.u.i < 0 ? -x.u.i : x.u.i);
    }
    return v_float(fabs(v));
  case OP_SIGN:
    if (is_int) return v_int((x.u.i > 0) - (x.u.i < 0));
    return v_float(v != v ? v : (v > 0) - (v < 0));
  case OP_RELU: return is_int ? v_int(x.u.i > 0 ? x.u.i : 0) : v_float(v > 0 || v != v ? v : 0.0);
  case OP_FLOOR: return is_int ? x : v_float(floor(v));
  case OP_CEIL: return is_int ? x : v_float(ceil(v));
  case OP_ROUND: return is_int ? x : v_float(rint(v));
  case OP_ISNAN: return v_bool(v != v);
  case OP_ISINF: return v_bool(v == v && v - v != 0);
  default: break;
  }
  return number_run(s, op, 1, &v, at);
}

BUILTIN_FN(bi_gelu) {
  if (!want_bool(s, c->v[1], c->spans[1], "`exact`"))
    return op_unary(s, OP_GELU, c->v[0], c->spans[0]);
  Value x = c->v[0]; /* x * 0.5 * (1 + erf(x / sqrt 2)) */
  Value t = op_binary(s, AST_MUL, x, v_float(0.70710678118654752440), c->at, c->at, c->at);
  t = op_binary(s, AST_ADD, v_float(1.0), op_unary(s, OP_ERF, t, c->at), c->at, c->at, c->at);
  return op_binary(s, AST_MUL, op_binary(s, AST_MUL, x, v_float(0.5), c->at, c->at, c->at), t,
                   c->at, c->at, c->at);
}

/* An elementwise op on two operands, numbers or tensors. */
static Value two(Session *s, OpCode op, Value x, Value y, Span at, Span left, Span right) {
  if (v_is_number(x) && v_is_number(y)) {
    if (x.tag != V_NODE && y.tag != V_NODE) {
      if (x.tag == V_DIM || y.tag == V_DIM) { /* sizes: decided where provable, else a constant */
        Value lt = op_binary(s, AST_LE, x, y, at, at, at);
        return (lt.u.i != 0) == (op == OP_MIN) ? x : y;
      }
      double a = x.tag == V_INT ? (double)x.u.i : x.u.f, b = y.tag == V_INT ? (double)y.u.i : y.u.f;
      bool fl = x.tag == V_FLOAT || y.tag == V_FLOAT;
      if (!fl) return (x.u.i < y.u.i) == (op == OP_MIN) ? x : y;
      double r = a != a ? a : b != b ? b : (a < b) == (op == OP_MIN) ? a : b;
      return v_float(r);
    }
    bool fl = x.tag == V_FLOAT || y.tag == V_FLOAT || dt_float((DType)op_type_of(s, x).dtype) ||
              dt_float((DType)op_type_of(s, y).dtype);
    x = op_as_tensor(s, x, fl ? DT_F64 : DT_I64, at);
    y = op_as_tensor(s, y, fl ? DT_F64 : DT_I64, at);
    Value r =
        fl ? op_broadcast_binary(s, op, x, y, at, left, right) : number_extreme(s, op, x, y, at);
    r.weak = true;
    return r;
  }
  DType like = v_is_tensor(x)   ? (DType)op_type_of(s, x).dtype
               : v_is_tensor(y) ? (DType)op_type_of(s, y).dtype
                                : DT_COUNT;
  return op_broadcast_binary(s, op, op_as_tensor(s, x, like, at), op_as_tensor(s, y, like, at), at,
                             left, right);
}

BUILTIN_FN(bi_of_two) {
  OpCode op = (OpCode)c->b->op;
  Value v[2] = {c->v[0], c->v[1]};
  DType like = DT_COUNT;
  double known[2];
  int numbers = 0;
  for (int i = 0; i < 2; i++) {
    if (v[i].tag == V_UNKNOWN) return v[i];
    if (v[i].tag == V_INT || v[i].tag == V_FLOAT) {
      known[i] = v[i].tag == V_INT ? (double)v[i].u.i : v[i].u.f;
      numbers++;
    }
    if (!v_is_number(v[i])) v[i] = arg_tensor(s, c, i);
    if (v_is_tensor(v[i])) like = (DType)op_type_of(s, v[i]).dtype;
  }
  if (numbers == 2) return number_run(s, op, 2, known, c->at);
  for (int i = 0; i < 2; i++) {
    if (v_is_tensor(v[i]) && !dt_float((DType)op_type_of(s, v[i]).dtype))
      fail_help(s, ERR_WANT_FLOAT, c->spans[i],
                fail_text(s, "cast it: `f32(%s)`", fail_source_text(s, c->spans[i], "..")),
                "`%s` works on floats, this is %s", c->b->name, value_type_text(s, v[i]));
    if (!v_is_tensor(v[i])) v[i] = op_as_tensor(s, v[i], like == DT_COUNT ? DT_F64 : like, c->at);
  }
  Value r = op_broadcast_binary(s, op, v[0], v[1], c->at, c->spans[0], c->spans[1]);
  if (like == DT_COUNT) r.weak = true;
  return r;
}

BUILTIN_FN(bi_clamp) {
  Value x = two(s, OP_MAX, c->v[0], c->v[1], c->at, c->spans[0], c->spans[1]);
  return two(s, OP_MIN, x, c->v[2], c->at, c->spans[0], c->spans[2]);
}

BUILTIN_FN(bi_where) {
  return op_where(s, c->v[0], c->v[1], c->v[2], c->at);
}

/* Argument 0, to be reduced: of what else has elements, these as one tensor, or, if they are
 * `numbers`, as a list. Without an element, `none`. */
static Value arg_elements(Session *s, Call *c, bool *numbers) {
  Value x = c->v[0];
  *numbers = false;
  if (dict_is_set(x)) x = dict_elements(s, x);
  bool parts = (x.tag == V_LIST && !x.u.list->weak) || x.tag == V_TUPLE;
  if (!parts && x.tag != V_RANGE && x.tag != V_SEQ) return x;
  if (s->abstract && !parts) return (Value){.tag = V_UNKNOWN};
  Value l = walk_list(s, x, c->spans[0]);
  *numbers = l.u.list->weak;
  if (l.u.list->weak) return l;
  if (!l.u.list->count) return v_none();
  return op_stack(s, l.u.list->count, l.u.list->items, 0, c->spans[0]);
}

/* One number of two. NaN wins. */
static Value of_two(Session *s, OpCode op, Value a, Value b, Span at) {
  bool plain = (a.tag == V_INT || a.tag == V_FLOAT) && (b.tag == V_INT || b.tag == V_FLOAT);
  Value r;
  if (op == OP_SUM || op == OP_PROD)
    return op_binary(s, op == OP_SUM ? AST_ADD : AST_MUL, a, b, at, at, at);
  if (!plain) return two(s, op == OP_REDUCE_MAX ? OP_MAX : OP_MIN, a, b, at, at, at);
  if (a.tag == V_FLOAT && isnan(a.u.f)) return a;
  if (b.tag == V_FLOAT && isnan(b.u.f)) return b;
  known_op(op == OP_REDUCE_MAX ? AST_GT : AST_LT, b, a, &r);
  return r.u.i ? b : a;
}

/* Numbers are reduced as a loop over them would, to a number (rule 16): an int of ints. */
static Value of_numbers(Session *s, OpCode op, size_t n, const Value *x, Span at) {
  Value r = x[0];
  bool real = r.tag == V_FLOAT;
  for (size_t i = 1; i < n; i++) {
    count_step(s, at);
    r = of_two(s, op, r, x[i], at);
    real |= x[i].tag == V_FLOAT;
  }
  return real && r.tag == V_INT ? v_float((double)r.u.i) : r;
}

/* The sum, the largest and the smallest of a range that is not empty, and how many it has, without
 * going through it. False: it is no such argument. */
static bool of_range(Session *s, OpCode op, Value x, Span at, Value *r, int64_t *n) {
  if (x.tag != V_RANGE || x.u.range->lo.tag != V_INT || x.u.range->hi.tag != V_INT) return false;
  int64_t lo = x.u.range->lo.u.i, hi = x.u.range->hi.u.i;
  if (lo >= hi || __builtin_sub_overflow(hi, lo, n)) return false;
  if (op == OP_SUM) { /* n (lo + hi - 1) / 2, of which 128 bits hold the product */
    __int128 sum = (__int128)*n * ((__int128)lo + hi - 1) / 2;
    if (sum != (int64_t)sum)
      fail_at(s, ERR_OVERFLOW, at, "int overflow: the sum does not fit 64 bits");
    *r = v_int((int64_t)sum);
    return true;
  }
  *r = v_int(op == OP_REDUCE_MAX ? hi - 1 : lo);
  return op == OP_REDUCE_MAX || op == OP_REDUCE_MIN;
}

/* Sums and products of ints are i64: those of small ints would not fit their dtype. */
static Value as_wide(Session *s, OpCode op, Value x, Span at) {
  DType dt = (DType)op_type_of(s, x).dtype;
  bool sums = op == OP_SUM || op == OP_PROD || op == OP_CUMSUM;
  return sums && dt_int(dt) && dt != DT_I64 ? op_cast(s, x, DT_I64, at) : x;
}

/* What no elements give; the largest of them, and their mean, are an error. */
static Value of_none(Session *s, OpCode op, Call *c) {
  switch (op) {
  case OP_SUM: return v_int(0);
  case OP_PROD: return v_int(1);
  case OP_ANY: return v_bool(false);
  case OP_ALL: return v_bool(true);
  default: fail_at(s, ERR_VALUE, c->spans[0], "`%s` of no elements: it is empty", c->b->name);
  }
}

/* Whether one value is asked for: no axis, and none is kept. */
static bool is_whole(Session *s, const Call *c, int axis_at) {
  return c->v[axis_at].tag == V_NONE &&
         !want_bool(s, c->v[axis_at + 1], c->spans[axis_at + 1], "`keep`");
}

/* The value of argument 0, *x, if its elements are n numbers and one value is asked for. Else
 * false, and *x is what arg_elements gives. */
static bool of_plain(Session *s, OpCode op, Call *c, int axis_at, Value *x, Value *r, int64_t *n) {
  bool numbers, whole = is_whole(s, c, axis_at);
  if (whole && of_range(s, op, *x, c->spans[0], r, n)) return true;
  *x = arg_elements(s, c, &numbers);
  if (!numbers || !whole || builtin_dom_class(op) != DOM_NUM) return false;
  *n = (int64_t)x->u.list->count;
  *r = of_numbers(s, op, x->u.list->count, x->u.list->items, c->spans[0]);
  return true;
}

static Value reduce(Session *s, OpCode op, Call *c, int axis_at) {
  Value x = c->v[0], r;
  int64_t count;
  if (v_is_number(x) && x.tag != V_NODE) return x;
  if (of_plain(s, op, c, axis_at, &x, &r, &count)) return r;
  if (x.tag == V_UNKNOWN) return x;
  if (x.tag == V_NONE && c->v[0].tag != V_NONE) return of_none(s, op, c);
  x = op_as_tensor(s, x, DT_COUNT, c->spans[0]);
  Type t = op_type_of(s, x);
  DTypeClass want = builtin_dom_class(op);
  const char *written = fail_source_text(s, c->spans[0], "..");
  if (want == DOM_BOOL && t.dtype != DT_BOOL)
    fail_help(s, ERR_WANT_BOOL, c->spans[0],
              fail_text(s, "compare first: `%s(%s != 0)`", c->b->name, written),
              "`%s` works on bools, this is %s", c->b->name, value_type_text(s, x));
  if (want == DOM_NUM && t.dtype == DT_BOOL)
    fail_help(s, ERR_OPERAND, c->spans[0],
              fail_text(s, "`%s(i64(%s))` counts", c->b->name, written),
              "`%s` does not work on bool", c->b->name);
  int64_t axes[CKL_MAX_RANK];
  int n = arg_axes(s, c, axis_at, t.rank, axes);
  bool keep = want_bool(s, c->v[axis_at + 1], c->spans[axis_at + 1], "`keep`");
  x = as_wide(s, op, x, c->spans[0]);
  return n == 0 ? x : op_reduce(s, op, x, n, axes, keep, c->at);
}

BUILTIN_FN(bi_reduce) {
  return reduce(s, (OpCode)c->b->op, c, 1);
}

/* f16 and bf16 as f32, in which formulas of sums compute. */
static Value as_single(Session *s, Value x, Span at) {
  DType dt = (DType)op_type_of(s, x).dtype;
  return dt == DT_F16 || dt == DT_BF16 ? op_cast(s, x, DT_F32, at) : x;
}

BUILTIN_FN(bi_wide) {
  return as_single(s, arg_tensor(s, c, 0), c->at);
}

BUILTIN_FN(bi_mean) {
  Value x = c->v[0];
  if (v_is_number(x) && x.tag != V_NODE) /* the sum by a count of 1: a float number (rule 16) */
    return op_binary(s, AST_DIV, x, v_int(1), c->at, c->spans[0], c->at);
  int64_t many;
  Value sum;
  if (of_plain(s, OP_SUM, c, 1, &x, &sum, &many))
    return op_binary(s, AST_DIV, sum, v_int(many), c->at, c->spans[0], c->at);
  if (x.tag == V_UNKNOWN) return x;
  if (x.tag == V_NONE) return of_none(s, OP_REDUCE_MAX, c);
  x = op_as_tensor(s, x, x.tag == V_LIST ? DT_F32 : DT_COUNT, c->spans[0]);
  Type t = op_type_of(s, x);
  if (!dt_float((DType)t.dtype))
    fail_help(s, ERR_WANT_FLOAT, c->spans[0],
              fail_text(s, "cast it: `mean(f32(%s))`", fail_source_text(s, c->spans[0], "..")),
              "`mean` works on floats, this is %s", value_type_text(s, x));
  int64_t axes[CKL_MAX_RANK];
  int n = arg_axes(s, c, 1, t.rank, axes);
  bool keep = want_bool(s, c->v[2], c->spans[2], "`keep`");
  if (n == 0) return x;
  Dim count = dim_const(op_dims_of(s), 1);
  for (int i = 0; i < n; i++) count = dim_mul(op_dims_of(s), count, t.dim[axes[i]]);
  Value r = op_reduce(s, OP_SUM, as_single(s, x, c->at), n, axes, keep, c->at);
  r = op_binary(s, AST_DIV, r, type_dim_value(s, count), c->at, c->at, c->at);
  return op_cast(s, r, (DType)t.dtype, c->at);
}

/* mean((x - mean(x)) ** 2) with another divisor; `var` is a reserved word, so x.var() cannot be
 * declared in ckl. */
BUILTIN_FN(bi_var) {
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  if (!dt_float((DType)t.dtype))
    fail_help(s, ERR_WANT_FLOAT, c->spans[0],
              fail_text(s, "cast it: `f32(%s)`", fail_source_text(s, c->spans[0], "..")),
              "`var` works on floats, this is %s", value_type_text(s, x));
  int64_t axes[CKL_MAX_RANK];
  int n = arg_axes(s, c, 1, t.rank, axes);
  bool keep = want_bool(s, c->v[3], c->spans[3], "`keep`");
  DimTab *dt = op_dims_of(s);
  Dim count = dim_const(dt, 1);
  for (int i = 0; i < n; i++) count = dim_mul(dt, count, t.dim[axes[i]]);
  x = as_single(s, x, c->at);
  Value m = n ? op_reduce(s, OP_SUM, x, n, axes, true, c->at) : x;
  m = op_binary(s, AST_DIV, m, type_dim_value(s, count), c->at, c->at, c->at);
  Value d = op_binary(s, AST_SUB, x, m, c->at, c->at, c->at);
  Value r = op_binary(s, AST_MUL, d, d, c->at, c->at, c->at);
  if (n) r = op_reduce(s, OP_SUM, r, n, axes, keep, c->at);
  /* of too few elements it is 0 / 0, and no number below 0 */
  Dim less = type_dim_of(s, c->v[2], c->spans[2], "`correction`");
  Dim by = dim_max(dt, dim_sub(dt, count, less), dim_const(dt, 0));
  r = op_binary(s, AST_DIV, r, type_dim_value(s, by), c->at, c->at, c->at);
  return op_cast(s, r, (DType)t.dtype, c->at);
}

BUILTIN_FN(bi_dtype_of) {
  return (Value){.tag = V_DTYPE, .u.i = op_type_of(s, arg_tensor(s, c, 0)).dtype};
}

BUILTIN_FN(bi_minmax) {
  bool is_min = c->b->op == OP_REDUCE_MIN;
  if (c->rest_n > 1)
    fail_help(s, ERR_ARG_COUNT, c->at, foreign_help(s, c->b->name, FOREIGN_CALL),
              "`%s` takes one tensor to reduce, or two values to compare", c->b->name);
  if (c->rest_n == 1) {
    if (c->given[2] || c->given[3] || c->given[4])
      fail_at(s, ERR_ARG_COUNT, c->at, "`%s` of two values takes no `%s`", c->b->name,
              c->given[2]   ? "axis"
              : c->given[3] ? "keep"
                            : "by");
    return two(s, is_min ? OP_MIN : OP_MAX, c->v[0], c->rest[0], c->at, c->spans[0],
               c->rest_spans[0]);
  }
  Value by = c->v[4], x = c->v[0];
  size_t n = 0;
  const Value *items = x.tag == V_LIST || x.tag == V_TUPLE ? value_items(x, &n) : NULL;
  bool order = n && (items[0].tag == V_STR || items[0].tag == V_TUPLE);
  if (by.tag == V_NONE && !order) return reduce(s, (OpCode)c->b->op, c, 2);
  if (c->v[2].tag != V_NONE || want_bool(s, c->v[3], c->spans[3], "`keep`"))
    fail_at(s, ERR_ARG_COUNT, c->at, "the elements of a list have one order, there is no axis");
  if (s->abstract) return (Value){.tag = V_UNKNOWN};
  return arg_extreme(s, c, 0, by, is_min);
}

BUILTIN_FN(bi_argreduce) {
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  bool keep = want_bool(s, c->v[2], c->spans[2], "`keep`");
  if (c->v[1].tag == V_NONE) { /* of the flattened tensor */
    Dim d = dim_product(op_dims_of(s), t.rank, t.dim), ones[CKL_MAX_RANK];
    x = op_reshape(s, x, 1, &d, c->at);
    int64_t zero = 0;
    x = op_reduce(s, (OpCode)c->b->op, x, 1, &zero, false, c->at);
    for (int i = 0; i < t.rank; i++) ones[i] = dim_const(op_dims_of(s), 1);
    return keep ? op_reshape(s, x, t.rank, ones, c->at) : x;
  }
  int64_t axis = arg_axis(s, c, 1, t.rank);
  return op_reduce(s, (OpCode)c->b->op, x, 1, &axis, keep, c->at);
}

Value builtin_running_sums(Session *s, Value x, Span at) {
  Attr a[2] = {attr_i(AT_AXIS, 0), attr_i(AT_REVERSE, false)};
  return op_run(s, OP_CUMSUM, 1, &x, a, 2, at);
}

BUILTIN_FN(bi_cumsum) {
  Value x = as_wide(s, (OpCode)c->b->op, arg_tensor(s, c, 0), c->spans[0]);
  Attr a[2] = {attr_i(AT_AXIS, arg_axis(s, c, 1, op_type_of(s, x).rank)),
               attr_i(AT_REVERSE, want_bool(s, c->v[2], c->spans[2], "`reverse`"))};
  return op_run(s, (OpCode)c->b->op, 1, &x, a, 2, c->at);
}

/* ---- numbers from tensors (rule 13) */

BUILTIN_FN(bi_int) {
  Value x = c->v[0], read;
  if (arg_text_number(s, c, &read)) return read;
  if (x.tag == V_INT || x.tag == V_DIM) return x;
  if (x.tag == V_BOOL) return v_int(x.u.i);
  if (x.tag == V_FLOAT) {
    if (x.u.f != x.u.f || x.u.f >= 9223372036854775808.0 || x.u.f < -9223372036854775808.0)
      fail_at(s, ERR_OVERFLOW, c->at, "the float does not fit an int");
    return v_int((int64_t)x.u.f);
  }
  if (!v_is_tensor(x) && x.tag != V_NODE)
    fail_at(s, ERR_WANT_NUMBER, c->spans[0], "`int` takes a number or a rank-0 tensor, not %s",
            value_type_text(s, x));
  if (op_type_of(s, x).rank)
    fail_help(s, ERR_RANK, c->spans[0], foreign_help(s, "int", FOREIGN_CALL),
              "`int` takes a rank-0 tensor, this is %s", value_type_text(s, x));
  if (s->stage) {
    Value r = op_cast(s, x, DT_I64, c->at);
    r.weak = true;
    return r;
  }
  return v_int(tn_get_i64(op_tensor_of(s, x, c->at), 0));
}

BUILTIN_FN(bi_float) {
  Value x = c->v[0], read;
  if (arg_text_number(s, c, &read)) return read;
  if (x.tag == V_FLOAT) return x;
  if (x.tag == V_INT || x.tag == V_BOOL) return v_float((double)x.u.i);
  if (x.tag == V_DIM) x = op_dim_node(s, x.u.d);
  if (!v_is_tensor(x) && x.tag != V_NODE)
    fail_at(s, ERR_WANT_NUMBER, c->spans[0], "`float` takes a number or a rank-0 tensor, not %s",
            value_type_text(s, x));
  if (op_type_of(s, x).rank)
    fail_help(s, ERR_RANK, c->spans[0], foreign_help(s, "float", FOREIGN_CALL),
              "`float` takes a rank-0 tensor, this is %s", value_type_text(s, x));
  if (s->stage) {
    Value r = op_cast(s, x, DT_F64, c->at);
    r.weak = true;
    return r;
  }
  return v_float(tn_get_f64(op_tensor_of(s, x, c->at), 0));
}

BUILTIN_FN(bi_to_dtype) {
  return op_cast(s, c->v[0], arg_dtype(s, c->v[1], c->spans[1]), c->at);
}

static Value nan_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  bool *found = ud;
  if (v_is_tensor(v[0]) && !*found) {
    const Tensor *t = op_tensor_of(s, v[0], (Span){0});
    if (dt_float(t->dtype))
      for (int64_t i = 0, k = tn_count(t); i < k && !*found; i++) {
        double x = tn_get_f64(t, i);
        *found = x != x;
      }
  } else if (v[0].tag == V_FLOAT && v[0].u.f != v[0].u.f)
    *found = true;
  return v[0];
}

BUILTIN_FN(bi_has_nan) {
  bool found = false;
  tree_map(s, 1, &c->v[0], nan_leaf, &found, c->at);
  return v_bool(found);
}
