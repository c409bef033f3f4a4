/* Operations that only move elements, reductions, and products of matrices.
 *
 * In: values, axes, dims. Out: values; an error names the place and a fix.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/compile/stage.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/lang.h"
#include "lang/value/fail.h"

/* ---- shapes */

Value op_iota_on(Session *s, Dim n, DType dt, int dev, Span at) {
  int64_t dims = n;
  Attr a[3] = {attr_dims(AT_DIMS, 1, &dims), attr_i(AT_DTYPE, dt), attr_i(AT_DEVICE, dev)};
  return op_run(s, OP_IOTA, 0, NULL, a, 3, at);
}

Value op_iota(Session *s, Dim n, DType dt, Span at) {
  return op_iota_on(s, n, dt, DEV_CPU, at);
}

Value op_reshape(Session *s, Value x, int rank, const Dim *d, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  int64_t dims[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = d[i];
  Attr a = attr_dims(AT_DIMS, rank, dims);
  return op_run(s, OP_RESHAPE, 1, &x, &a, 1, at);
}

Value op_transpose(Session *s, Value x, const int64_t *perm, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  Attr a = attr_ints(AT_PERM, op_type_of(s, x).rank, perm);
  return op_run(s, OP_TRANSPOSE, 1, &x, &a, 1, at);
}

Value op_reduce(Session *s, OpCode op, Value x, int n, const int64_t *axes, bool keep, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  Attr a =
      op == OP_ARGMAX || op == OP_ARGMIN ? attr_i(AT_AXIS, axes[0]) : attr_ints(AT_AXES, n, axes);
  Value r = op_run(s, op, 1, &x, &a, 1, at);
  if (!keep) return r;
  Type t = op_type_of(s, x);
  Dim d[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    d[i] = t.dim[i];
    for (int k = 0; k < n; k++)
      if (axes[k] == i) d[i] = dim_const(op_dims_of(s), 1);
  }
  return op_reshape(s, r, t.rank, d, at);
}

static const char keeps_different[] =
    "a list keeps different ones: `list(a, b)`, in a loop `xs .= push(e)`";

Value op_stack(Session *s, size_t n, const Value *items, int axis, Span at) {
  stack_check();
  if (n == 0) fail_at(s, ERR_STACK, at, "nothing to stack: an empty list has no shape");
  Value *v = ARENA_ARRAY(&s->scratch, Value, n);
  DType like = DT_COUNT;
  for (size_t i = 0; i < n && like == DT_COUNT; i++) {
    if (items[i].tag == V_UNKNOWN) return items[i];
    if (v_is_tensor(items[i]))
      like = (DType)op_type_of(s, items[i]).dtype;
    else if (items[i].tag == V_BOOL)
      like = DT_BOOL;
  }
  if (like == DT_COUNT)
    for (size_t i = 0; i < n; i++)
      if (items[i].tag == V_FLOAT ||
          (items[i].tag == V_NODE && dt_float(op_type_of(s, items[i]).dtype)))
        like = DT_F32;
  Type first = {0};
  for (size_t i = 0; i < n; i++) {
    v[i] = op_as_tensor(s, items[i], like, at);
    Type t = op_type_of(s, v[i]);
    if (i == 0) first = t;
    bool same = t.rank == first.rank && t.dtype == first.dtype;
    for (int k = 0; same && k < t.rank; k++)
      if (t.dim[k] != first.dim[k]) {
        if (dim_compare(op_dims_of(s), t.dim[k], first.dim[k]) == DIM_MAYBE && s->stage)
          op_check_sizes(s, first.dim[k], t.dim[k], at, "the shapes of stacked tensors differ",
                         keeps_different);
        else
          same = false;
      }
    if (!same)
      fail_help(s, ERR_STACK, at, keeps_different,
                "tensors of one shape and dtype are stacked; element 0 is %s, element %zu is %s",
                value_type_text(s, v[0]), i, value_type_text(s, v[i]));
  }
  if (axis < 0 || axis > first.rank)
    fail_at(s, ERR_AXIS, at, "axis %d is out of range: the result has rank %d", axis,
            first.rank + 1);
  if (first.rank + 1 > CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, at, "a tensor has at most %d axes", CKL_MAX_RANK);
  for (size_t i = 0; i < n; i++) { /* by its own sizes; another check tests that they are equal */
    Type t = op_type_of(s, v[i]);
    Dim d[CKL_MAX_RANK];
    for (int k = 0, j = 0; k <= t.rank; k++)
      d[k] = k == axis ? dim_const(op_dims_of(s), 1) : t.dim[j++];
    v[i] = op_reshape(s, v[i], t.rank + 1, d, at);
  }
  return n == 1 ? v[0] : op_concat(s, n, v, axis, at);
}

Value op_concat(Session *s, size_t n, const Value *items, int axis, Span at) {
  Attr a = attr_i(AT_AXIS, axis);
  return op_run(s, OP_CONCAT, (int)n, items, &a, 1, at);
}

/* ---- contraction: x [.., M, K] @ y [.., K, N], with 1-d operands as in NumPy (rule 30) */
/* The source text of an operand if it needs no parentheses beside `@`, else `other`. */
static const char *factor_text(Session *s, Span at, const char *other) {
  const char *t = fail_source_text(s, at, other);
  int depth = 0;
  for (const char *p = t; *p; p++) {
    if (*p == '(' || *p == '[') depth++;
    if (*p == ')' || *p == ']') depth--;
    if (*p == ' ' && !depth) return other;
  }
  return t;
}

Value op_matmul(Session *s, Value x, Value y, Span at, Span left, Span right) {
  if (x.tag == V_UNKNOWN || y.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  DType like = v_is_tensor(x)   ? (DType)op_type_of(s, x).dtype
               : v_is_tensor(y) ? (DType)op_type_of(s, y).dtype
                                : DT_COUNT;
  x = op_as_tensor(s, x, like, left);
  y = op_as_tensor(s, y, like, right);
  DimTab *dt = op_dims_of(s);
  Type a = op_type_of(s, x), b = op_type_of(s, y);
  if (a.rank == 0 || b.rank == 0)
    fail_help(s, ERR_RANK, a.rank == 0 ? left : right, "`*` multiplies by a scalar",
              "`@` needs at least one axis on both sides, this is a scalar");
  if (a.dtype != b.dtype) op_mixed_dtypes(s, "@", (Type[]){a, b}, at, left, right);
  if (a.dtype == DT_BOOL) fail_at(s, ERR_OPERAND, at, "`@` does not work on bool");
  Dim ka = a.dim[a.rank - 1], kb = b.dim[b.rank > 1 ? b.rank - 2 : 0];
  if (ka != kb) {
    if (dim_compare(dt, ka, kb) == DIM_MAYBE && s->stage) {
      stage_at(s, at);
      gr_check(s->stage->g, CHECK_EQ, ka, kb, "the inner dims of `@` differ");
    } else {
      Buf p;
      buf_init_arena(&p, &s->scratch);
      dim_print(&p, dt, ka);
      buf_puts(&p, " and ");
      dim_print(&p, dt, kb);
      Diag *d = fail_report(s, ERR_SHAPE_INNER, at, "the inner dims of `@` differ: %s", p.s);
      dg_label(&s->diags, d, left, "%s", value_type_text(s, x));
      dg_label(&s->diags, d, right, "%s", value_type_text(s, y));
      if (b.rank == 2 && b.dim[1] == ka)
        dg_help(&s->diags, d, "`%s @ transpose(%s)` fits", factor_text(s, left, ".."),
                fail_source_text(s, right, ".."));
      else if (a.rank == 2 && a.dim[0] == kb)
        dg_help(&s->diags, d, "`transpose(%s) @ %s` fits", fail_source_text(s, left, ".."),
                factor_text(s, right, ".."));
      fail_raise(s);
    }
  }
  Attr compute = attr_i(AT_COMPUTE, s->modes.compute);
  if (a.rank == 1 && b.rank == 1) {
    Value v[2] = {x, y};
    return op_run(s, OP_INNER, 2, v, &compute, 1, at);
  }
  Dim one = dim_const(dt, 1), d[CKL_MAX_RANK];
  bool va = a.rank == 1, vb = b.rank == 1;
  if (va) {
    d[0] = one;
    d[1] = a.dim[0];
    x = op_reshape(s, x, 2, d, at);
    a = op_type_of(s, x);
  }
  if (vb) {
    d[0] = b.dim[0];
    d[1] = one;
    y = op_reshape(s, y, 2, d, at);
    b = op_type_of(s, y);
  }
  int rank = a.rank > b.rank ? a.rank : b.rank;
  Dim batch[CKL_MAX_RANK];
  if (a.rank != b.rank && a.rank != 2 && b.rank != 2)
    fail_at(s, ERR_SHAPE_BATCH, at,
            "the batch axes of `@` are equal or absent on one side: %s @ %s", value_type_text(s, x),
            value_type_text(s, y));
  const Type *big = a.rank >= b.rank ? &a : &b;
  for (int i = 0; i < rank - 2; i++) {
    batch[i] = big->dim[i];
    if (a.rank == b.rank && a.dim[i] != b.dim[i]) {
      if (dim_compare(dt, a.dim[i], b.dim[i]) == DIM_MAYBE && s->stage)
        gr_check(s->stage->g, CHECK_EQ, a.dim[i], b.dim[i], "the batch dims of `@` differ");
      else
        fail_at(s, ERR_SHAPE_BATCH, at, "the batch axes of `@` differ: %s @ %s",
                value_type_text(s, x), value_type_text(s, y));
    }
  }
  Value r;
  if (b.rank == 2 && a.rank > 2) { /* [.., M, K] @ [K, N]: one tall product with the same bits */
    Dim rows = dim_product(dt, a.rank - 1, a.dim);
    d[0] = rows;
    d[1] = ka;
    Value v[2] = {op_reshape(s, x, 2, d, at), y};
    r = op_run(s, OP_DOT, 2, v, &compute, 1, at);
    for (int i = 0; i < rank - 2; i++) d[i] = batch[i];
    d[rank - 2] = a.dim[a.rank - 2];
    d[rank - 1] = b.dim[1];
    r = op_reshape(s, r, rank, d, at);
  } else {
    if (a.rank < rank) {
      for (int i = 0; i < rank - 2; i++) d[i] = batch[i];
      d[rank - 2] = a.dim[0];
      d[rank - 1] = a.dim[1];
      x = op_broadcast(s, x, rank, d, at);
    }
    Value v[2] = {x, y};
    r = op_run(s, OP_DOT, 2, v, &compute, 1, at);
  }
  if (va || vb) {
    Type t = op_type_of(s, r);
    int k = 0;
    for (int i = 0; i < t.rank; i++)
      if (!(va && i == t.rank - 2) && !(vb && i == t.rank - 1)) d[k++] = t.dim[i];
    r = op_reshape(s, r, k, d, at);
  }
  return r;
}
