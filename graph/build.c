/* Builders that read like mathematics: b_bin(b, OP_MUL, x, b_un(b, OP_NEG, y)).
 *
 * In: values of one graph. Out: values; VAL_NONE once something failed, with the first error kept
 * in the B. Only single numbers are broadcast; nodes that would change nothing are not made.
 */
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/shape.h"

Val b_op(B *b, OpCode op, int n, const Val *v, int nattrs, const Attr *attrs) {
  if (b->failed) return VAL_NONE;
  for (int i = 0; i < n; i++) {
    if (val_none(v[i])) return VAL_NONE;
  }
  Val out = gr_op(b->g, op, v, n, attrs, nattrs, NULL, 0, &b->err);
  if (val_none(out)) b->failed = true;
  return out;
}

Val b_un(B *b, OpCode op, Val x) {
  return b_op(b, op, 1, &x, 0, NULL);
}

/* Broadcasts a single number to the shape of `like`, on its device; returns other values as they
 * are. */
static Val stretch(B *b, Val x, const Type *like) {
  const Type *t = gr_type(b->g, x);
  if (t->kind != TK_TENSOR || t->rank != 0) return x;
  if (like->rank == 0 && (t->dev == like->dev || t->dev != DEV_CPU)) return x;
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < like->rank; i++) dim[i] = like->dim[i];
  Attr a[2] = {attr_dims(AT_DIMS, like->rank, dim), attr_i(AT_DEVICE, like->dev)};
  return b_op(b, OP_BROADCAST, 1, &x, t->dev == DEV_CPU && t->dev != like->dev ? 2 : 1, a);
}

Val b_bin(B *b, OpCode op, Val x, Val y) {
  if (b->failed || val_none(x) || val_none(y)) return VAL_NONE;
  Type tx = *gr_type(b->g, x), ty = *gr_type(b->g, y);
  if (tx.rank != 0) y = stretch(b, y, &tx);
  if (ty.rank != 0) x = stretch(b, x, &ty);
  Val v[2] = {x, y};
  return b_op(b, op, 2, v, 0, NULL);
}

Val b_where(B *b, Val c, Val x, Val y) {
  if (b->failed || val_none(c) || val_none(x) || val_none(y)) return VAL_NONE;
  Val v[3] = {c, x, y};
  for (int i = 0; i < 3; i++) {
    Type t = *gr_type(b->g, v[i]);
    if (t.rank == 0) continue;
    for (int k = 0; k < 3; k++) v[k] = stretch(b, v[k], &t);
    break;
  }
  return b_op(b, OP_WHERE, 3, v, 0, NULL);
}

/* The number x in the dtype and shape of t. */
static Val filled(B *b, const Type *t, double x) {
  Val c = gr_const_f(b->g, (DType)t->dtype, (Device)t->dev, x);
  return b_broadcast(b, c, t->rank, t->dim);
}

Val b_const(B *b, Val like, double x) {
  if (b->failed || val_none(like)) return VAL_NONE;
  Type t = *gr_type(b->g, like);
  return filled(b, &t, x);
}

Val b_zeros(B *b, const Type *t) {
  if (b->failed) return VAL_NONE;
  Type copy = *t;
  return filled(b, &copy, 0);
}

Val b_cast(B *b, Val x, DType dt) {
  if (b->failed || val_none(x) || gr_type(b->g, x)->dtype == dt) return b->failed ? VAL_NONE : x;
  Attr a = attr_i(AT_DTYPE, dt);
  return b_op(b, OP_CAST, 1, &x, 1, &a);
}

static bool has_dims(B *b, Val x, int rank, const Dim *dims) {
  const Type *t = gr_type(b->g, x);
  if (t->rank != rank) return false;
  for (int i = 0; i < rank; i++) {
    if (t->dim[i] != dims[i]) return false;
  }
  return true;
}

static Val with_dims(B *b, OpCode op, Val x, int rank, const Dim *dims) {
  if (b->failed || val_none(x)) return VAL_NONE;
  if (has_dims(b, x, rank, dims)) return x;
  if (rank > CKL_MAX_RANK) {
    b->failed = true;
    gerr_set(&b->err, ERR_SHAPE_AXES, -1, "a tensor has at most %d axes, not %d", CKL_MAX_RANK,
             rank);
    return VAL_NONE;
  }
  int64_t d[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) d[i] = dims[i];
  Attr a = attr_dims(AT_DIMS, rank, d);
  return b_op(b, op, 1, &x, 1, &a);
}

Val b_reshape(B *b, Val x, int rank, const Dim *dims) {
  return with_dims(b, OP_RESHAPE, x, rank, dims);
}

Val b_broadcast(B *b, Val x, int rank, const Dim *dims) {
  return with_dims(b, OP_BROADCAST, x, rank, dims);
}

Val b_transpose(B *b, Val x, const int64_t *perm) {
  if (b->failed || val_none(x)) return VAL_NONE;
  int rank = gr_type(b->g, x)->rank;
  bool moves = false;
  for (int i = 0; i < rank; i++) moves = moves || perm[i] != i;
  if (!moves) return x;
  Attr a = attr_ints(AT_PERM, rank, perm);
  return b_op(b, OP_TRANSPOSE, 1, &x, 1, &a);
}

Val b_swap(B *b, Val x) {
  if (b->failed || val_none(x)) return VAL_NONE;
  int rank = gr_type(b->g, x)->rank;
  if (rank < 2) {
    b->failed = true;
    gerr_set(&b->err, ERR_SHAPE_RANK, 0, "`transpose` swaps the last two axes: there are %d", rank);
    return VAL_NONE;
  }
  int64_t perm[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 1] = rank - 2;
  perm[rank - 2] = rank - 1;
  return b_transpose(b, x, perm);
}

Val b_sum(B *b, Val x, int naxes, const int64_t *axes) {
  if (naxes == 0) return b->failed ? VAL_NONE : x;
  Attr a = attr_ints(AT_AXES, naxes, axes);
  return b_op(b, OP_SUM, 1, &x, 1, &a);
}

Val b_sum_to(B *b, Val x, int rank, const Dim *dims) {
  if (b->failed || val_none(x)) return VAL_NONE;
  Type t = *gr_type(b->g, x);
  int64_t axes[CKL_MAX_RANK];
  int n = 0, lead = t.rank - rank;
  if (lead < 0) {
    b->failed = true;
    gerr_set(&b->err, ERR_SHAPE_BROADCAST, 0, "a sum cannot have more axes than its operand");
    return VAL_NONE;
  }
  for (int i = 0; i < lead; i++) axes[n++] = i;
  for (int i = 0; i < rank; i++) {
    int64_t one;
    if (dim_is_const(b->g->dims, dims[i], &one) && one == 1 && t.dim[lead + i] != dims[i]) {
      axes[n++] = lead + i;
    }
  }
  return b_reshape(b, b_sum(b, x, n, axes), rank, dims);
}

Val b_keep(B *b, Val reduced, Val like, int naxes, const int64_t *axes) {
  if (b->failed || val_none(reduced) || val_none(like)) return VAL_NONE;
  Type t = *gr_type(b->g, like);
  Dim dim[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) dim[i] = t.dim[i];
  for (int i = 0; i < naxes; i++) dim[axes[i]] = dim_const(b->g->dims, 1);
  return b_broadcast(b, b_reshape(b, reduced, t.rank, dim), t.rank, t.dim);
}

Val b_unstash(B *b, Val stash, const Type *row, int64_t n) {
  int64_t dims[CKL_MAX_RANK];
  for (int k = 0; k < row->rank; k++) dims[k] = row->dim[k];
  Attr attrs[4] = {attr_i(AT_MAPPED, n), attr_i(AT_DTYPE, row->dtype), attr_i(AT_DEVICE, row->dev),
                   attr_dims(AT_DIMS, row->rank, dims)};
  return b_op(b, OP_UNSTASH, 1, &stash, 4, attrs);
}
