/* The gradients of factorizations of matrices and of systems with them.
 *
 * In and out: as in grad.c. Where the symmetric half of a matrix is read, its gradient is
 * symmetric; where factors are no smooth function of the matrix, it is inf or NaN. */
#include "autograd/grad_impl.h"
#include "autograd/vjp.h"

typedef enum Part { LOWER, STRICT, UPPER } Part;

/* The part of a stack of square matrices, zeros elsewhere. */
static Val part(Rule *r, Val x, Part which) {
  if (val_none(x)) return VAL_NONE;
  Type t = type_of(r, x);
  Dim n = t.dim[t.rank - 1], square[2] = {n, n}, tall[2] = {n, dim_of(r, 1)};
  Val dy = x; /* gives `zero` its dtype */
  Val col = iota(r, n, x);
  Val i = b_broadcast(&r->b, b_reshape(&r->b, col, 2, tall), 2, square);
  Val j = b_broadcast(&r->b, col, 2, square);
  Val in = which == UPPER ? un(NOT, gt(i, j)) : which == STRICT ? gt(i, j) : un(NOT, lt(i, j));
  return where(b_broadcast(&r->b, in, t.rank, t.dim), x, zero);
}

/* The solution of a x = z for a triangle a. */
static Val triangle(Rule *r, Val a, Val z, bool upper, bool unit) {
  return op2(r, OP_TRIANGULAR, a, z, 2, (Attr[]){attr_i(AT_UPPER, upper), attr_i(AT_UNIT, unit)});
}

GRAD(CHOLESKY) {
  return op2(r, OP_CHOLESKY_GRAD, y, dy, 0, NULL);
}

GRADS(LU) {
  if (val_none(r->dout[0])) return;
  Val f = r->out[0], dy = r->dout[0];
  /* with dl, du the triangles of dy: a[perm] has the gradient
   * l^-T (strict(l^T dl) + upper(du u^T)) u^-T */
  Val l = part(r, f, STRICT), u = part(r, f, UPPER), dl = part(r, dy, STRICT);
  Val down = part(r, add(dl, op2(r, OP_DOT, swap(l), dl, 0, NULL)), STRICT);
  Val up = part(r, op2(r, OP_DOT, part(r, dy, UPPER), swap(u), 0, NULL), UPPER);
  Val x = triangle(r, swap(f), add(down, up), true, true);
  x = swap(triangle(r, f, swap(x), true, false));
  if (val_none(x)) return;
  /* row i of this is of row perm[i] of a */
  Type t = type_of(r, x);
  Dim tall[CKL_MAX_RANK];
  for (int k = 0; k < t.rank; k++) tall[k] = k < t.rank - 1 ? t.dim[k] : dim_of(r, 1);
  Val rows = b_broadcast(&r->b, b_reshape(&r->b, r->out[1], t.rank, tall), t.rank, t.dim);
  r->dx[0] =
      op3(r, OP_SCATTER_ADD, zeros_like(r, x), rows, x, 1, (Attr[]){attr_i(AT_AXIS, t.rank - 2)});
}

/* x along the last axis (across) or the last but one, over the shape of a stack of matrices. */
static Val along(Rule *r, Val x, Val like, bool across) {
  Type t = type_of(r, like);
  int64_t other = across ? t.rank - 2 : t.rank - 1;
  return b_keep(&r->b, x, like, 1, &other);
}

/* Where the row is the column, in a stack of square matrices such as `like`. */
static Val on_diagonal(Rule *r, Val like) {
  Type t = type_of(r, like);
  Dim n = t.dim[t.rank - 1], square[2] = {n, n};
  Val col = iota(r, n, like);
  Val at = b_reshape(&r->b, col, 2, (Dim[]){n, dim_of(r, 1)});
  Val on = eq(b_broadcast(&r->b, at, 2, square), b_broadcast(&r->b, col, 2, square));
  t.dim[t.rank - 2] = n;
  return b_broadcast(&r->b, on, t.rank, t.dim);
}

static Val matmul(Rule *r, Val x, Val z) {
  return op2(r, OP_DOT, x, z, 0, NULL);
}

/* By Murray 2016, "Differentiation of the Cholesky decomposition", equation 10, the result y is
 * l^-T s l^-1 with s the symmetric half of the lower triangle of l^T g. With h the cotangent of y
 * that of s is l^-1 h l^-T, and that of l^-1 gives -y (h + h^T) l^-T. */
GRADS(CHOLESKY_GRAD) {
  Val l = part(r, r->in[0], LOWER), g = part(r, r->in[1], LOWER), y = r->out[0], h = r->dout[0];
  Val dy = y; /* gives `half` its dtype */
  if (val_none(h)) return;
  Val both = mul(half, add(h, swap(h)));
  Val s = triangle(r, l, swap(triangle(r, l, both, false, false)), false, false);
  s = part(r, where(on_diagonal(r, s), mul(half, s), s), LOWER);
  if (r->wants[1]) r->dx[1] = part(r, matmul(r, l, s), LOWER);
  if (!r->wants[0]) return;
  Val turn = swap(triangle(r, l, matmul(r, add(both, both), y), false, false));
  r->dx[0] = part(r, sub(matmul(r, g, swap(s)), turn), LOWER);
}

/* Elements [from, from + n) along the last axis (across) or the last but one. */
static Val piece(Rule *r, Val x, bool across, Dim from, Dim n) {
  if (val_none(x)) return VAL_NONE;
  Type t = type_of(r, x);
  int64_t start[CKL_MAX_RANK], len[CKL_MAX_RANK], step[CKL_MAX_RANK];
  for (int k = 0; k < t.rank; k++) {
    start[k] = dim_of(r, 0);
    len[k] = t.dim[k];
    step[k] = 1;
  }
  start[t.rank - (across ? 1 : 2)] = from;
  len[t.rank - (across ? 1 : 2)] = n;
  return slice(r, x, start, len, step);
}

/* `more` if n is larger than k, else `none`: the same bits whether that is known here or when the
 * sizes are. */
static Val where_more(Rule *r, Dim n, Dim k, Val more, Val none) {
  if (dim_compare(r->g->dims, n, k) == DIM_EQUAL) return none;
  Val some = gr_dim(r->g, dim_sub(r->g->dims, n, k));
  return where(gt(some, zeros_like(r, some)), more, none);
}

/* Magnus 1985; Giles 2008: with v the vectors and w the values, v (dw + v^T dv / (w_j - w_i)) v^T,
 * without the quotients of the diagonal. */
GRADS(EIGH) {
  Val w = r->out[0], v = r->out[1], dw = r->dout[0], dv = r->dout[1];
  if (gr_attr_i(r->g, r->node, AT_VALUES, 0) != 0) { /* the vectors have to be found now */
    v = (Val){b_op(&r->b, OP_EIGH, 1, r->in, 0, NULL).node, 1};
    dv = VAL_NONE;
  }
  Val dy = v; /* gives numbers their dtype */
  Val on = on_diagonal(r, v), inner = VAL_NONE;
  if (!val_none(dv)) {
    Val gap = sub(along(r, w, v, true), along(r, w, v, false));
    Val turn = op2(r, OP_DOT, swap(v), dv, 0, NULL);
    inner = where(on, zero, over(turn, where(on, one, gap)));
  }
  if (!val_none(dw)) {
    Val line = where(on, along(r, dw, v, true), zero);
    inner = val_none(inner) ? line : add(inner, line);
  }
  if (val_none(inner)) return;
  Val x = op2(r, OP_DOT, op2(r, OP_DOT, v, inner, 0, NULL), swap(v), 0, NULL);
  r->dx[0] = mul(half, add(x, swap(x)));
}

/* stdlib/linalg.ckl has it, `_eig_slope`. */
CUT(EIG)

/* Walter, Lehmann 2018: of x = q r with m rows and at most as many columns it is
 * (dq + q s) r^-T, with s the symmetric matrix of the lower triangle of r dr^T - dq^T q. Columns
 * behind those of q are q times theirs of r. */
GRADS(QR) {
  Val q = r->out[0], y = r->out[1], dq = r->dout[0], dr = r->dout[1];
  Type t = type_of(r, y);
  Dim k = t.dim[t.rank - 2], n = t.dim[t.rank - 1], more = dim_sub(r->g->dims, n, k);
  Val behind = piece(r, y, true, k, more), dbehind = piece(r, dr, true, k, more);
  if (k != n) {
    y = piece(r, y, true, dim_of(r, 0), k);
    dr = piece(r, dr, true, dim_of(r, 0), k);
    if (!val_none(dr)) {
      Val back = matmul(r, matmul(r, q, behind), swap(dbehind));
      Val none = val_none(dq) ? zeros_like(r, q) : dq;
      dq = where_more(r, n, k, val_none(dq) ? back : add(dq, back), none);
    }
  }
  Val s = val_none(dr) ? VAL_NONE : matmul(r, y, swap(dr));
  if (!val_none(dq)) {
    Val turn = matmul(r, swap(dq), q);
    s = val_none(s) ? neg(turn) : sub(s, turn);
  }
  if (val_none(s)) return;
  Val in = matmul(r, q, add(part(r, s, LOWER), swap(part(r, s, STRICT))));
  if (!val_none(dq)) in = val_none(r->dout[0]) ? where_more(r, n, k, add(dq, in), in) : add(dq, in);
  r->dx[0] = swap(triangle(r, y, swap(in), true, false));
  if (k == n) return;
  Val last = matmul(r, q, val_none(dr) ? zeros_like(r, behind) : dbehind);
  r->dx[0] = op2(r, OP_CONCAT, r->dx[0], last, 1, (Attr[]){attr_i(AT_AXIS, t.rank - 1)});
}

/* What a cotangent of the columns of u, [M, M], asks of the first k of them: the others turn with
 * them, as little as keeps them orthogonal. */
static Val first_columns(Rule *r, Val u, Val du, Dim k) {
  if (val_none(du)) return VAL_NONE;
  Type t = type_of(r, u);
  Dim m = t.dim[t.rank - 1];
  if (m == k) return du;
  Dim more = dim_sub(r->g->dims, m, k);
  Val first = piece(r, u, true, dim_of(r, 0), k), rest = piece(r, u, true, k, more);
  Val turn = matmul(r, swap(piece(r, du, true, k, more)), first);
  return sub(piece(r, du, true, dim_of(r, 0), k), matmul(r, rest, turn));
}

/* The part of du that lies in no column of u, over s. */
static Val outside(Rule *r, Val u, Val du, Val s) {
  return over(sub(du, matmul(r, u, matmul(r, swap(u), du))), along(r, s, u, true));
}

/* Townsend 2016; Ionescu, Vantzos, Sminchisescu 2015: with x = u s v^T and f the quotients
 * 1 / (s_j^2 - s_i^2) beside the diagonal,
 * u ((f (u^T du - du^T u)) s + s (f (v^T dv - dv^T v)) + ds) v^T, and what du and dv have outside
 * of the columns of u and v. */
GRADS(SVD) {
  Val s = r->out[1], ds = r->dout[1], us = r->out[0], vts = r->out[2], dus = r->dout[0],
      dvts = r->dout[2];
  if (gr_attr_i(r->g, r->node, AT_VALUES, 0) != 0) { /* the vectors have to be found now */
    us = b_op(&r->b, OP_SVD, 1, r->in, 0, NULL);
    vts = (Val){us.node, 2};
    dus = dvts = VAL_NONE;
  }
  Dim k = type_of(r, s).dim[type_of(r, s).rank - 1];
  Val u = piece(r, us, true, dim_of(r, 0), k), v = swap(piece(r, vts, false, dim_of(r, 0), k));
  Val du = first_columns(r, us, dus, k);
  Val dv = val_none(dvts) ? VAL_NONE : first_columns(r, swap(vts), swap(dvts), k);
  Val dy = s, inner = VAL_NONE; /* dy gives numbers their dtype */
  Val like = matmul(r, swap(v), v), on = on_diagonal(r, like);
  Val row = along(r, s, like, true), col = along(r, s, like, false);
  Val gap = where(on, one, mul(sub(row, col), add(row, col)));
  if (!val_none(du)) {
    Val turn = matmul(r, swap(u), du);
    inner = mul(where(on, zero, over(sub(turn, swap(turn)), gap)), row);
  }
  if (!val_none(dv)) {
    Val turn = matmul(r, swap(v), dv);
    Val more = mul(col, where(on, zero, over(sub(turn, swap(turn)), gap)));
    inner = val_none(inner) ? more : add(inner, more);
  }
  if (!val_none(ds)) {
    Val line = where(on, along(r, ds, like, true), zero);
    inner = val_none(inner) ? line : add(inner, line);
  }
  if (val_none(inner)) return;
  Val dx = matmul(r, matmul(r, u, inner), swap(v));
  Type t = type_of(r, dx); /* where u or v has all columns there are, nothing is outside */
  Dim m = t.dim[t.rank - 2], n = t.dim[t.rank - 1];
  if (!val_none(du))
    dx = where_more(r, m, k, add(dx, matmul(r, outside(r, u, du, s), swap(v))), dx);
  if (!val_none(dv))
    dx = where_more(r, n, k, add(dx, matmul(r, u, swap(outside(r, v, dv, s)))), dx);
  r->dx[0] = dx;
}

/* Giles 2008, "Collected matrix derivative results": db = a^-T dx, da = -db x^T, for operands 0 and
 * `b`. */
static void system_grad(Rule *r, Val lu, Val perm, bool across, int b) {
  Val x = r->out[0], v[4] = {r->in[0], lu, perm, r->dout[0]};
  Val db = b_op(&r->b, OP_SOLVE, 4, v, 1, (Attr[]){attr_i(AT_ACROSS, !across)});
  if (r->wants[0])
    r->dx[0] =
        neg(across ? op2(r, OP_DOT, x, swap(db), 0, NULL) : op2(r, OP_DOT, db, swap(x), 0, NULL));
  if (r->wants[b]) r->dx[b] = db;
}

GRADS(SOLVE) {
  bool across = gr_attr_i(r->g, r->node, AT_ACROSS, 0) != 0;
  if (!val_none(r->dout[0])) system_grad(r, r->in[1], r->in[2], across, 3);
}

GRADS(FACTOR_SOLVE) {
  if (val_none(r->dout[0])) return;
  Val lu = b_op(&r->b, OP_LU, 1, r->in, 1, (Attr[]){attr_i(AT_REGULAR, 1)});
  system_grad(r, lu, (Val){lu.node, 1}, false, 1);
}

GRADS(TRIANGULAR) {
  bool upper = gr_attr_i(r->g, r->node, AT_UPPER, 0) != 0;
  bool unit = gr_attr_i(r->g, r->node, AT_UNIT, 0) != 0;
  Val x = r->out[0];
  if (val_none(r->dout[0])) return;
  Val db = triangle(r, swap(r->in[0]), r->dout[0], !upper, unit);
  if (r->wants[0]) {
    Val da = neg(op2(r, OP_DOT, db, swap(x), 0, NULL));
    r->dx[0] = upper ? unit ? swap(part(r, swap(da), STRICT)) : part(r, da, UPPER)
                     : part(r, da, unit ? STRICT : LOWER);
  }
  if (r->wants[1]) r->dx[1] = db;
}
