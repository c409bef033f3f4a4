/* The gradient of every op, as graphs.
 *
 * In: one node of a graph and the cotangents of its results. Out: nodes of the same graph that
 * compute the cotangents of its operands. A rule reads like the derivative in a table of
 * derivatives: a, b, c are the operands, y the result, dy its cotangent, and `i` the operand asked
 * for. Rules are written with ops that have rules, so a gradient can be differentiated again; the
 * fixed choices at kinks are those of rule 73.
 *
 * One file: it is a table, a rule for each op, with the helpers that make a rule short.
 *
 * Invariant: a gradient has the type of its operand; VAL_NONE means zero by structure. */
#include "autograd/remat.h"
#include "autograd/grad_impl.h"
#include "autograd/vjp.h"

static int64_t axis_of(Rule *r) {
  return gr_attr_i(r->g, r->node, AT_AXIS, 0);
}

/* The list attribute k of the node, copied out of the graph's arrays. */
static int ints_of(Rule *r, AttrKey k, int64_t out[CKL_MAX_RANK]) {
  const Attr *a = gr_attr(r->g, r->node, k);
  int n = a ? (int)a->count : 0;
  for (int j = 0; j < n && j < CKL_MAX_RANK; j++) out[j] = a->u.ints[j];
  return n;
}

/* The row-major number of every element of like's shape, i64. */
static Val numbering(Rule *r, Val like) {
  Type t = type_of(r, like);
  return b_reshape(&r->b, iota(r, dim_product(r->g->dims, t.rank, t.dim), like), t.rank, t.dim);
}

static Val pad(Rule *r, Val x, const int64_t *low, const int64_t *high, const int64_t *inner,
               double value) {
  if (val_none(x)) return VAL_NONE;
  int rank = type_of(r, x).rank;
  Attr attrs[4] = {attr_dims(AT_LOW, rank, low), attr_dims(AT_HIGH, rank, high),
                   attr_ints(AT_INNER, rank, inner), attr_f(AT_VALUE, value)};
  return op1(r, OP_PAD, x, 4, attrs);
}

/* Whether the index operands of `take` or `put`, which begin at `first`, name no element twice. */
static bool distinct(Rule *r, int first) {
  return r->in_count == first || !type_of(r, r->in[first]).rank ||
         gr_attr_i(r->g, r->node, AT_DISTINCT, 0);
}

/* op(x, u, idx..) with the index operands idx of the node; u may be VAL_NONE for take. */
static Val at_index(Rule *r, OpCode op, Val x, Val u, int first_idx, int64_t axis) {
  Val v[CKL_MAX_RANK + 2];
  int n = 0;
  if (val_none(x)) return VAL_NONE;
  v[n++] = x;
  if (op != OP_TAKE) {
    if (val_none(u)) return VAL_NONE;
    v[n++] = u;
  }
  for (int j = first_idx; j < r->in_count; j++) v[n++] = r->in[j];
  Attr attr[2] = {attr_i(AT_AXIS, axis), attr_i(AT_DISTINCT, 1)};
  bool single = op != OP_PUT_ADD && gr_attr_i(r->g, r->node, AT_DISTINCT, 0);
  return b_op(&r->b, op, n, v, single ? 2 : 1, attr);
}

static int64_t compute_of(Rule *r) {
  return gr_attr_i(r->g, r->node, AT_COMPUTE, COMPUTE_NONE);
}

/* ---- generate */
CUT(INPUT)
CUT(CONST)
CUT(DIM)
CUT(IOTA)
CUT(RANDOM)
CUT(RANDINT)
CUT(FOLD_IN)
CUT(PHILOX)

/* ---- elementwise, one operand */
GRAD(NEG) {
  return neg(dy);
}
GRAD(ABS) {
  return mul(dy, un(SIGN, a));
}
CUT(SIGN)
GRAD(EXP) {
  return mul(dy, y);
}
GRAD(EXPM1) {
  return mul(dy, un(EXP, a));
}
GRAD(LOG) {
  return over(dy, a);
}
GRAD(LOG1P) {
  return over(dy, add(one, a));
}
GRAD(SQRT) {
  return over(mul(half, dy), y);
}
GRAD(RSQRT) {
  return mul(dy, mul(num(-0.5), over(y, a)));
}
GRAD(SIN) {
  return mul(dy, un(COS, a));
}
GRAD(COS) {
  return neg(mul(dy, un(SIN, a)));
}
GRAD(TAN) {
  return mul(dy, add(one, mul(y, y)));
}
GRAD(TANH) {
  return mul(dy, sub(one, mul(y, y)));
}
GRAD(EXP2) {
  return mul(dy, mul(num(0.693147180559945309417232121458), y));
}
GRAD(LOG2) {
  return over(mul(num(1.44269504088896340735992468100), dy), a);
}
GRAD(LOG10) {
  return over(mul(num(0.434294481903251827651128918917), dy), a);
}
GRAD(CBRT) {
  return over(dy, mul(num(3), mul(y, y)));
}
GRAD(SINH) {
  return mul(dy, un(COSH, a));
}
GRAD(COSH) {
  return mul(dy, un(SINH, a));
}
GRAD(ASIN) {
  return over(dy, un(SQRT, mul(sub(one, a), add(one, a))));
}
GRAD(ACOS) {
  return neg(over(dy, un(SQRT, mul(sub(one, a), add(one, a)))));
}
GRAD(ATAN) {
  return over(dy, add(one, mul(a, a)));
}
GRAD(ASINH) {
  return over(dy, bin(HYPOT, a, one));
}
GRAD(ACOSH) {
  return over(dy, mul(un(SQRT, sub(a, one)), un(SQRT, add(a, one))));
}
GRAD(ATANH) {
  return over(dy, mul(sub(one, a), add(one, a)));
}
GRAD(ERF) {
  return mul(dy, mul(num(1.12837916709551257389615890312), un(EXP, neg(mul(a, a)))));
}
GRAD(RELU) { /* of the result, which the next layer keeps anyway */
  return where(gt(y, zero), dy, zero);
}
GRAD(SIGMOID) {
  return mul(dy, mul(y, sub(one, y)));
}
GRAD(SILU) {
  return mul(dy, un(SILU_GRAD, a));
}
GRAD(SILU_GRAD) {
  /* silu' = s + a s (1 - s), so silu'' = s (1 - s) (2 + a (1 - 2 s)) */
  Val s = un(SIGMOID, a);
  Val slope = mul(s, sub(one, s));
  return mul(dy, mul(slope, add(num(2), mul(a, sub(one, add(s, s))))));
}
GRAD(SOFTPLUS) {
  return mul(dy, un(SIGMOID, a));
}
GRAD(GELU) {
  return mul(dy, un(GELU_GRAD, a));
}
GRAD(GELU_GRAD) {
  /* gelu = u s(z), z = 2 k (u + q u^3), s the logistic function and t = s (1 - s) its slope:
   * gelu'' = t (2 z' + u ((1 - 2 s) z'^2 + z'')). Beyond |u| = 25 the slope t is 0 in every dtype
   * while the powers of u overflow, hence the selection. */
  const double k = 0.797884560802865355879892119869, q = 0.044715;
  Val near = lt(un(ABS, a), num(25));
  Val u = where(near, a, zero);
  Val uu = mul(u, u);
  Val z = mul(mul(num(2 * k), u), add(one, mul(num(q), uu)));
  Val z1 = mul(num(2 * k), add(one, mul(num(3 * q), uu)));
  Val z2 = mul(num(12 * k * q), u);
  Val s = un(SIGMOID, z);
  Val t = mul(s, sub(one, s));
  Val bend = add(mul(sub(one, add(s, s)), mul(z1, z1)), z2);
  return where(near, mul(dy, mul(t, add(add(z1, z1), mul(u, bend)))), zero);
}
CUT(FLOOR)
CUT(CEIL)
CUT(ROUND)
CUT(ISNAN)
CUT(ISINF)
CUT(NOT)
GRAD(CAST) {
  return b_cast(&r->b, dy, (DType)type_of(r, a).dtype);
}
CUT(STOP)
GRAD(ALIAS) {
  return dy;
}
GRAD(VERSION) {
  return dy;
}

/* ---- elementwise, two and three operands */
GRAD(ADD) {
  return dy;
}
GRAD(SUB) {
  return i == 0 ? dy : neg(dy);
}
GRAD(MUL) {
  return mul(dy, i == 0 ? b : a);
}
GRAD(DIV) {
  return i == 0 ? over(dy, b) : neg(mul(over(dy, b), y));
}
CUT(FLOORDIV)
GRAD(MOD) {
  return i == 0 ? dy : neg(mul(dy, bin(FLOORDIV, a, b)));
}
GRAD(POW) {
  /* b a^(b - 1), and 0 for b = 0 also where a is 0; a^b log a, and 0 where a is 0. The inner
   * selection keeps the untaken side finite, so that higher orders are right too. */
  if (i == 0) {
    Val flat = eq(b, zero), e = where(flat, one, b);
    return mul(dy, where(flat, zero, mul(e, power(a, sub(e, one)))));
  }
  Val nil = eq(a, zero);
  return mul(dy, where(nil, zero, mul(y, un(LOG, where(nil, one, a)))));
}
/* The winner takes dy, equal ones half of it. */
#define of_two(wins) where(eq(a, b), mul(half, dy), where(wins, dy, zero))
GRAD(ATAN2) {
  Val h = bin(HYPOT, a, b); /* x / h^2 and -y / h^2, of `atan2(y, x)` */
  Val turn = over(over(dy, h), h);
  return i == 0 ? mul(turn, b) : neg(mul(turn, a));
}
GRAD(HYPOT) {
  return mul(dy, over(i == 0 ? a : b, y));
}
GRAD(MAX) {
  return of_two(i == 0 ? gt(a, b) : gt(b, a));
}
GRAD(MIN) {
  return of_two(i == 0 ? lt(a, b) : lt(b, a));
}
CUT(EQ)
CUT(NE)
CUT(LT)
CUT(LE)
CUT(GT)
CUT(GE)
CUT(AND)
CUT(OR)
CUT(FITS)
GRAD(WHERE) {
  return i == 1 ? where(a, dy, zero) : where(a, zero, dy);
}

/* ---- movement */
GRAD(RESHAPE) {
  Type t = type_of(r, a);
  return b_reshape(&r->b, dy, t.rank, t.dim);
}
GRAD(TRANSPOSE) {
  int64_t perm[CKL_MAX_RANK], inverse[CKL_MAX_RANK];
  int n = ints_of(r, AT_PERM, perm);
  for (int j = 0; j < n; j++) inverse[perm[j]] = j;
  return n == 0 ? dy : b_transpose(&r->b, dy, inverse);
}
GRAD(BROADCAST) {
  Type t = type_of(r, a);
  return b_sum_to(&r->b, dy, t.rank, t.dim);
}

/* dy's axis `k`, of length len, spread over `full` elements: number j goes to start + j * step.
 * Also right for length 0, where zeros between elements cannot be counted by len - 1. */
static Val spread(Rule *r, Val dy, int k, Dim start, Dim len, int64_t step, Dim full) {
  Type t = type_of(r, dy);
  DimTab *dt = r->g->dims;
  Dim split[CKL_MAX_RANK + 1], flat[CKL_MAX_RANK];
  int64_t low[CKL_MAX_RANK + 1], high[CKL_MAX_RANK + 1], none[CKL_MAX_RANK + 1];
  int64_t lens[CKL_MAX_RANK], steps[CKL_MAX_RANK];
  if (t.rank == CKL_MAX_RANK) {
    r->b.failed = true;
    gerr_set(&r->b.err, ERR_NOT_YET, -1, "the gradient of a slice with steps needs one more axis");
    return VAL_NONE;
  }
  for (int j = 0; j <= t.rank; j++) {
    low[j] = high[j] = dim_of(r, 0);
    none[j] = 0;
    split[j] = j <= k ? t.dim[j] : j == k + 1 ? dim_of(r, 1) : t.dim[j - 1];
  }
  high[k + 1] = dim_of(r, step - 1);
  Val x = pad(r, b_reshape(&r->b, dy, t.rank + 1, split), low, high, none, 0);
  for (int j = 0; j < t.rank; j++) flat[j] = lens[j] = t.dim[j], steps[j] = 1;
  flat[k] = dim_mul(dt, len, dim_of(r, step));
  x = b_reshape(&r->b, x, t.rank, flat);
  high[k + 1] = dim_of(r, 0);
  low[k] = start;
  high[k] = full;
  x = pad(r, x, low, high, none, 0);
  low[k] = dim_of(r, 0);
  lens[k] = full;
  return slice(r, x, low, lens, steps);
}

GRAD(SLICE) {
  Type t = type_of(r, a);
  DimTab *dt = r->g->dims;
  int64_t start[CKL_MAX_RANK], len[CKL_MAX_RANK], step[CKL_MAX_RANK];
  int64_t high[CKL_MAX_RANK], inner[CKL_MAX_RANK];
  ints_of(r, AT_STARTS, start);
  ints_of(r, AT_LENS, len);
  ints_of(r, AT_STEPS, step);
  for (int k = 0; k < t.rank; k++) {
    int64_t n;
    bool known = dim_is_const(dt, (Dim)len[k], &n) && n > 0;
    if (step[k] == 1) {
      inner[k] = 0;
      high[k] = dim_sub(dt, dim_sub(dt, t.dim[k], (Dim)start[k]), (Dim)len[k]);
    } else if (known) {
      inner[k] = step[k] - 1;
      high[k] = dim_sub(dt, dim_sub(dt, t.dim[k], (Dim)start[k]), dim_of(r, (n - 1) * step[k] + 1));
    } else {
      dy = spread(r, dy, k, (Dim)start[k], (Dim)len[k], step[k], t.dim[k]);
      if (val_none(dy)) return VAL_NONE;
      start[k] = high[k] = dim_of(r, 0);
      inner[k] = 0;
    }
  }
  return t.rank == 0 ? dy : pad(r, dy, start, high, inner, 0);
}

GRAD(PAD) {
  Type t = type_of(r, a);
  int64_t low[CKL_MAX_RANK], inner[CKL_MAX_RANK], len[CKL_MAX_RANK];
  ints_of(r, AT_LOW, low);
  ints_of(r, AT_INNER, inner);
  for (int k = 0; k < t.rank; k++) len[k] = t.dim[k], inner[k] += 1;
  return t.rank == 0 ? dy : slice(r, dy, low, len, inner);
}

GRAD(FLIP) {
  int64_t axes[CKL_MAX_RANK];
  int n = ints_of(r, AT_AXES, axes);
  return op1(r, OP_FLIP, dy, 1, (Attr[]){attr_ints(AT_AXES, n, axes)});
}

GRADS(CONCAT) {
  int64_t axis = axis_of(r), start[CKL_MAX_RANK], len[CKL_MAX_RANK], step[CKL_MAX_RANK];
  Dim at = dim_of(r, 0);
  for (int i = 0; i < r->in_count; i++) {
    Type t = type_of(r, r->in[i]);
    if (r->wants[i]) {
      for (int k = 0; k < t.rank; k++) start[k] = dim_of(r, 0), len[k] = t.dim[k], step[k] = 1;
      start[axis] = at;
      r->dx[i] = slice(r, r->dout[0], start, len, step);
    }
    at = dim_add(r->g->dims, at, t.dim[axis]);
  }
}

/* ---- selection */
/* A sum with +0 would lose the sign of a -0, which the gradient of a slice keeps. */
GRAD(TAKE) {
  OpCode op = distinct(r, 1) ? OP_PUT : OP_PUT_ADD;
  return at_index(r, op, zeros_like(r, a), dy, 1, axis_of(r));
}

/* Whether each index of `put` (x, upd, idx..) is the one whose element is in the result: numbers
 * are put where the elements were, and those that are read back won. bool, of upd's shape. */
static Val winners(Rule *r, Val x, Val upd) {
  Type t = type_of(r, x), u = type_of(r, upd), it = type_of(r, r->in[2]);
  int axis = (int)axis_of(r), k = r->in_count - 2;
  Type slots = {.kind = TK_TENSOR, .dtype = DT_I64, .dev = t.dev, .rank = (uint8_t)k};
  Dim dims[CKL_MAX_RANK];
  for (int j = 0; j < k; j++) slots.dim[j] = t.dim[axis + j];
  Val order = numbering(r, r->in[2]);
  Val put = at_index(r, OP_PUT, b_zeros(&r->b, &slots), order, 2, 0);
  Val won = eq(at_index(r, OP_TAKE, put, VAL_NONE, 2, 0), order);
  int n = 0; /* idx's axes, then size-1 axes for those of x behind them */
  for (int j = 0; j < it.rank; j++) dims[n++] = it.dim[j];
  for (int j = axis + k; j < t.rank; j++) dims[n++] = dim_of(r, 1);
  return b_broadcast(&r->b, b_reshape(&r->b, won, n, dims), u.rank, u.dim);
}
GRAD(PUT) {
  if (i == 0) return at_index(r, OP_PUT, dy, zeros_like(r, b), 2, axis_of(r));
  if (r->in_count == 2) return dy;
  if (distinct(r, 2)) return at_index(r, OP_TAKE, dy, VAL_NONE, 2, axis_of(r));
  return where(winners(r, a, b), at_index(r, OP_TAKE, dy, VAL_NONE, 2, axis_of(r)), zero);
}
GRAD(PUT_ADD) {
  return i == 0 ? dy : at_index(r, OP_TAKE, dy, VAL_NONE, 2, axis_of(r));
}

static Val gathered(Rule *r, Val x, Val idx) {
  return op2(r, OP_GATHER, x, idx, 1, (Attr[]){attr_i(AT_AXIS, axis_of(r))});
}
static Val scattered(Rule *r, OpCode op, Val x, Val idx, Val upd) {
  return op3(r, op, x, idx, upd, 1, (Attr[]){attr_i(AT_AXIS, axis_of(r))});
}
GRAD(GATHER) {
  return scattered(r, OP_SCATTER_ADD, zeros_like(r, a), b, dy);
}
GRAD(SCATTER) {
  if (i == 0) return scattered(r, OP_SCATTER, dy, b, zeros_like(r, c));
  Type slots = type_of(r, a);
  slots.dtype = DT_I64;
  slots.alias = 0;
  Val order = numbering(r, c);
  Val put = scattered(r, OP_SCATTER, b_zeros(&r->b, &slots), b, order);
  return where(eq(gathered(r, put, b), order), gathered(r, dy, b), zero);
}
GRAD(SCATTER_ADD) {
  return i == 0 ? dy : gathered(r, dy, b);
}
GRADS(SORT) {
  /* values = gather(x, positions), and every element is read once */
  if (val_none(r->dout[0])) return;
  r->dx[0] = scattered(r, OP_SCATTER_ADD, zeros_like(r, r->in[0]), r->out[1], r->dout[0]);
}
CUT(NONZERO)

/* ---- reductions */
static Val keep(Rule *r, Val x, Val like) {
  int64_t axes[CKL_MAX_RANK];
  int n = ints_of(r, AT_AXES, axes);
  return b_keep(&r->b, x, like, n, axes);
}
GRAD(SUM) {
  return keep(r, dy, a);
}

static Val prod_last(Rule *r, Val x) {
  if (val_none(x)) return VAL_NONE;
  int64_t axis = type_of(r, x).rank - 1;
  return op1(r, OP_PROD, x, 1, (Attr[]){attr_ints(AT_AXES, 1, &axis)});
}

/* The product of the other elements of the last axis, by replacing each element by 1 in turn: no
 * division, so zeros are right in every order. x: [.., N], work N * N. */
static Val others_direct(Rule *r, Val x) {
  Type t = type_of(r, x);
  Dim n = t.dim[t.rank - 1], square[2] = {n, n}, tall[2] = {n, dim_of(r, 1)};
  Dim grow[CKL_MAX_RANK];
  Val dy = x; /* gives `one` its dtype */
  Val col = iota(r, n, x);
  Val diagonal = eq(b_broadcast(&r->b, b_reshape(&r->b, col, 2, tall), 2, square),
                    b_broadcast(&r->b, col, 2, square));
  for (int j = 0; j < t.rank; j++) grow[j] = t.dim[j];
  grow[t.rank - 1] = dim_of(r, 1);
  grow[t.rank] = n;
  Val rows = b_reshape(&r->b, x, t.rank + 1, grow);
  grow[t.rank - 1] = n;
  rows = b_broadcast(&r->b, rows, t.rank + 1, grow);
  diagonal = b_broadcast(&r->b, diagonal, t.rank + 1, grow);
  return prod_last(r, where(diagonal, one, rows));
}

enum { OTHERS_BLOCK = 32 };

/* The same with blocks: others inside the block times the product of the other blocks, `levels`
 * deep. Filling up with ones and multiplying by one change no bit, so constant sizes up to a
 * block may leave the blocks out and still agree with sizes known later. x: [R, N]. */
static Val others(Rule *r, Val x, int levels) {
  stack_check();
  if (val_none(x)) return VAL_NONE;
  Type t = type_of(r, x);
  DimTab *dt = r->g->dims;
  Dim rows = t.dim[0], n = t.dim[1], size = dim_of(r, OTHERS_BLOCK);
  int64_t known;
  if (levels == 0 || (dim_is_const(dt, n, &known) && known <= OTHERS_BLOCK))
    return others_direct(r, x);
  Dim blocks = dim_floordiv(dt, dim_add(dt, n, dim_of(r, OTHERS_BLOCK - 1)), size);
  Dim full = dim_mul(dt, blocks, size);
  int64_t low[2] = {dim_of(r, 0), dim_of(r, 0)}, high[2] = {low[0], dim_sub(dt, full, n)};
  Val filled = pad(r, x, low, high, (int64_t[]){0, 0}, 1);
  Val split = b_reshape(&r->b, filled, 3, (Dim[]){rows, blocks, size});
  Val outer = others(r, prod_last(r, split), levels - 1);
  if (val_none(outer)) return VAL_NONE;
  outer = b_reshape(&r->b, outer, 3, (Dim[]){rows, blocks, dim_of(r, 1)});
  outer = b_broadcast(&r->b, outer, 3, (Dim[]){rows, blocks, size});
  Val all = b_reshape(&r->b, mul(others_direct(r, split), outer), 2, (Dim[]){rows, full});
  return slice(r, all, low, (int64_t[]){rows, n}, (int64_t[]){1, 1});
}

GRAD(PROD) {
  Type t = type_of(r, a);
  DimTab *dt = r->g->dims;
  int64_t axes[CKL_MAX_RANK], perm[CKL_MAX_RANK], inverse[CKL_MAX_RANK];
  bool reduced[CKL_MAX_RANK] = {false};
  Dim moved[CKL_MAX_RANK], flat[2] = {dim_of(r, 1), dim_of(r, 1)};
  int n = ints_of(r, AT_AXES, axes), k = 0;
  if (n == 0) return dy;
  for (int j = 0; j < n; j++) reduced[axes[j]] = true;
  for (int pass = 0; pass < 2; pass++) /* the kept axes, then the reduced ones */
    for (int j = 0; j < t.rank; j++)
      if (reduced[j] == (pass == 1)) {
        inverse[j] = k;
        moved[k] = t.dim[j];
        perm[k++] = j;
        flat[pass] = dim_mul(dt, flat[pass], t.dim[j]);
      }
  Val x = b_reshape(&r->b, b_transpose(&r->b, a, perm), 2, flat);
  Val rest = b_reshape(&r->b, others(r, x, 2), t.rank, moved);
  if (val_none(rest)) return VAL_NONE;
  return mul(keep(r, dy, a), b_transpose(&r->b, rest, inverse));
}

/* Equal elements share. */
GRAD(REDUCE_MAX) {
  int64_t axes[CKL_MAX_RANK];
  int n = ints_of(r, AT_AXES, axes);
  if (n == 0) return dy;
  Val best = eq(a, keep(r, y, a));
  Val count = b_sum(&r->b, b_cast(&r->b, best, (DType)type_of(r, a).dtype), n, axes);
  return where(best, keep(r, over(dy, count), a), zero);
}
GRAD(REDUCE_MIN) {
  return one_REDUCE_MAX(r, i, a, b, c, y, dy);
}
CUT(ANY)
CUT(ALL)
CUT(ARGMAX)
CUT(ARGMIN)
GRAD(CUMSUM) {
  int64_t reverse = gr_attr_i(r->g, r->node, AT_REVERSE, 0);
  return op1(r, OP_CUMSUM, dy, 2,
             (Attr[]){attr_i(AT_AXIS, axis_of(r)), attr_i(AT_REVERSE, !reverse)});
}
/* The element that y[i] is takes dy[i]: of equal ones, and of NaNs, the last so far. */
static Val running_extreme(Rule *r, Val x, Val y, Val dy) {
  if (val_none(x)) return VAL_NONE;
  Type t = type_of(r, x);
  int64_t axis = axis_of(r), reverse = gr_attr_i(r->g, r->node, AT_REVERSE, 0);
  int64_t others[CKL_MAX_RANK];
  int n = 0;
  for (int k = 0; k < t.rank; k++)
    if (k != axis) others[n++] = k;
  Val place = b_keep(&r->b, iota(r, t.dim[axis], x), x, n, others);
  Val none = val_none(place) ? VAL_NONE : number(r, place, reverse ? 0x1p62 : 0);
  Val is = bin(OR, eq(x, y), un(ISNAN, x));
  Val at = op1(r, reverse ? OP_CUMMIN : OP_CUMMAX, where(is, place, none), 2,
               (Attr[]){attr_i(AT_AXIS, axis), attr_i(AT_REVERSE, reverse)});
  return scattered(r, OP_SCATTER_ADD, zeros_like(r, x), at, dy);
}
GRAD(CUMMAX) {
  return running_extreme(r, a, y, dy);
}
GRAD(CUMMIN) {
  return running_extreme(r, a, y, dy);
}

/* ---- contractions: the gradient keeps `compute` */
static Val dot(Rule *r, Val x, Val z) {
  int64_t compute = compute_of(r);
  return op2(r, OP_DOT, x, z, compute != COMPUTE_NONE, (Attr[]){attr_i(AT_COMPUTE, compute)});
}
GRAD(DOT) {
  return i == 0 ? dot(r, dy, swap(b)) : dot(r, swap(a), dy);
}
GRAD(INNER) {
  Val other = i == 0 ? b : a;
  Type t = type_of(r, other);
  Dim wide[CKL_MAX_RANK + 1], thin[CKL_MAX_RANK + 1];
  int64_t last = t.rank - 1;
  if (compute_of(r) == COMPUTE_NONE || t.rank == CKL_MAX_RANK)
    return mul(b_keep(&r->b, dy, other, 1, &last), other);
  /* [B.., 1, 1] x [B.., 1, K]: the same product, with operands rounded as `compute` says */
  for (int j = 0; j < last; j++) wide[j] = thin[j] = t.dim[j];
  wide[last] = thin[last] = thin[last + 1] = dim_of(r, 1);
  wide[last + 1] = t.dim[last];
  Val left = b_reshape(&r->b, dy, t.rank + 1, thin);
  Val right = b_reshape(&r->b, other, t.rank + 1, wide);
  return b_reshape(&r->b, dot(r, left, right), t.rank, t.dim);
}

/* A convolution is linear in both operands, and so are its two adjoints: each is the gradient of
 * the others. `like` gives the dims of the result, VAL_NONE for the convolution itself. */
static Val conv(Rule *r, OpCode op, Val x, Val z, Val like) {
  int64_t stride[CKL_MAX_RANK], edge[CKL_MAX_RANK], dims[4];
  int ns = ints_of(r, AT_STRIDE, stride), np = ints_of(r, AT_PAD, edge);
  Attr attrs[4] = {attr_ints(AT_STRIDE, ns, stride), attr_ints(AT_PAD, np, edge),
                   attr_i(AT_COMPUTE, compute_of(r))};
  int n = 3;
  if (!val_none(like)) {
    Type t = type_of(r, like);
    for (int j = 0; j < 4; j++) dims[j] = t.dim[j];
    attrs[n++] = attr_dims(AT_DIMS, 4, dims);
  }
  return op2(r, op, x, z, n, attrs);
}
GRAD(CONV2D) {
  return i == 0 ? conv(r, OP_CONV2D_INPUT, dy, b, a) : conv(r, OP_CONV2D_WEIGHT, a, dy, b);
}
GRAD(CONV2D_INPUT) /* a: g, b: w, y: like x */
{
  return i == 0 ? conv(r, OP_CONV2D, dy, b, VAL_NONE) : conv(r, OP_CONV2D_WEIGHT, dy, a, b);
}
GRAD(CONV2D_WEIGHT) /* a: x, b: g, y: like w */
{
  return i == 0 ? conv(r, OP_CONV2D_INPUT, b, dy, a) : conv(r, OP_CONV2D, a, dy, VAL_NONE);
}

/* ---- structured */

/* The cotangents of all results, zeros where there is none. */
static Val *full_cotangents(Rule *r) {
  Val *dy = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  for (int j = 0; j < r->out_count; j++)
    dy[j] = val_none(r->dout[j]) ? zeros_like(r, r->out[j]) : r->dout[j];
  return dy;
}

static Graph *region_of(Rule *r, int k) {
  return r->g->regions[r->g->nodes[r->node].region0 + (uint32_t)k];
}

/* Files an inner failure as this rule's. */
static bool passes(Rule *r, bool ok, const GErr *e) {
  if (ok) return true;
  r->b.failed = true;
  r->b.err = *e;
  return false;
}

static void refuse(Rule *r, ErrCode code, const char *text) {
  r->b.failed = true;
  gerr_set(&r->b.err, code, -1, "%s", text);
}

static void as_body(Rule *r);

GRADS(CUSTOM) {
  if (r->g->nodes[r->node].region_count < 2) {
    as_body(r);
    return;
  }
  GErr e = {.operand = -1};
  const Graph *rule = region_of(r, 1);
  int64_t *wrt = NULL;
  int count = 0, n = 0;
  const Attr *at = gr_attr(r->g, r->node, AT_WRT);
  if (at) {
    count = (int)at->count;
    wrt = ARENA_ARRAY(r->scratch, int64_t, count + 1);
    for (int j = 0; j < count; j++) wrt[j] = at->u.ints[j];
  }
  Val *dy = full_cotangents(r);
  Val *args = ARENA_ARRAY(r->scratch, Val, r->in_count + 2 * r->out_count + 1);
  Val *outs = ARENA_ARRAY(r->scratch, Val, rule->output_count + 1);
  for (int j = 0; j < r->in_count; j++) args[n++] = r->in[j];
  for (int j = 0; j < r->out_count; j++) args[n++] = r->out[j];
  bool all = (int)rule->input_count == n + r->out_count; /* or cotangents of float results alone */
  for (int j = 0; j < r->out_count; j++)
    if (all || dt_float((DType)type_of(r, r->out[j]).dtype)) args[n++] = dy[j];
  size_t first = r->g->node_count;
  if (r->b.failed || !passes(r, gr_inline(r->g, rule, args, NULL, outs, &e), &e)) return;
  for (; first < r->g->node_count; first++) { /* backward nodes like any other */
    Prov p = r->g->provs[r->g->nodes[first].prov];
    p.backward = 1;
    p.tag = TAG_NONE;
    p.region = r->g->at.region;
    p.within = r->g->at.within;
    p.anomaly |= r->g->at.anomaly;
    gr_set_prov(r->g, (uint32_t)first, p);
  }
  for (int j = 0; j < count; j++)
    if (r->wants[wrt[j]]) r->dx[wrt[j]] = outs[j];
}

static bool is_token(Rule *r, Val v) {
  return gr_type(r->g, v)->kind == TK_TOKEN;
}

/* The gradient of a region as a region: takes the body's first `lead` inputs, the cotangents
 * there are, and the body's other inputs (but tokens); gives the gradients of the wanted inputs.
 * What the body computes is computed again, without its effects. */
static Graph *region_gradient(Rule *r, const Graph *body, int lead, GErr *e) {
  Graph *g = gr_new(r->g->arena, r->g->dims, r->g->names, body->name);
  g->blocks = r->g->blocks;
  int count = (int)body->input_count, n = 0, wanted = 0;
  Val *in = ARENA_ARRAY(r->scratch, Val, count + 1);
  Val *dy = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  Val *y = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  Val *wrt = ARENA_ARRAY(r->scratch, Val, count + 1);
  Val *dx = ARENA_ARRAY(r->scratch, Val, count + 1);
  B b = {.g = g};
  Prov at;
  g->at = r->g->at;
  if (rm_narrows(body)) g->at.region = g->at.within; /* a block inside is not around the gradient */
  for (int j = 0; j <= count; j++) {
    for (int k = 0; j == lead && k < r->out_count; k++)
      if (!val_none(r->dout[k])) dy[n++] = gr_input(g, gr_type(body, body->outputs[k]));
    if (j == count) break;
    const Type *t = gr_type(body, body->inputs[j]);
    bool token = t->kind == TK_TOKEN;
    in[j] = token ? gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, e) : gr_input(g, t);
    if (r->wants[j]) wrt[wanted++] = in[j];
  }
  if (!ad_inline_pure(g, body, in, y, e)) return NULL;
  n = 0;
  for (int k = 0; k < r->out_count; k++)
    if (!val_none(r->dout[k])) y[n++] = y[k];
  if (!ad_vjp(g, n, y, dy, wanted, wrt, dx, e, &at)) return NULL;
  for (int j = 0; j < wanted; j++) {
    Type t = *gr_type(g, wrt[j]);
    gr_output(g, val_none(dx[j]) ? b_zeros(&b, &t) : dx[j]);
  }
  if (b.failed) *e = b.err;
  return b.failed ? NULL : g;
}

/* The operands that go with region_gradient. */
static int region_operands(Rule *r, int lead, Val *args) {
  int n = 0;
  for (int j = 0; j <= r->in_count; j++) {
    for (int k = 0; j == lead && k < r->out_count; k++)
      if (!val_none(r->dout[k])) args[n++] = r->dout[k];
    if (j < r->in_count && !is_token(r, r->in[j])) args[n++] = r->in[j];
  }
  return n;
}

/* A map of the gradients; those of captures, one for each element, are summed. */
GRADS(MAP) {
  GErr e = {.operand = -1};
  int mapped = (int)gr_attr_i(r->g, r->node, AT_MAPPED, 1), cots = 0;
  Val *args = ARENA_ARRAY(r->scratch, Val, r->in_count + r->out_count + 1);
  int n = region_operands(r, mapped, args);
  Graph *body = region_gradient(r, region_of(r, 0), mapped, &e);
  if (!passes(r, body != NULL, &e)) return;
  for (int k = 0; k < r->out_count; k++) cots += !val_none(r->dout[k]);
  Attr attr = attr_i(AT_MAPPED, mapped + cots);
  Val first = gr_op(r->g, OP_MAP, args, n, &attr, 1, &body, 1, &e);
  if (!passes(r, !val_none(first), &e)) return;
  uint32_t res = 0;
  for (int j = 0; j < r->in_count; j++) {
    if (!r->wants[j]) continue;
    Val dx = {first.node, res++};
    r->dx[j] = j < mapped ? dx : b_sum(&r->b, dx, 1, (int64_t[]){0});
  }
}

/* The gradient of the body, which is computed again. (ad_joint inlines bodies beforehand.) */
static void as_body(Rule *r) {
  GErr e = {.operand = -1};
  Graph *g = r->g;
  Prov at;
  Val *y = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  Val *in = ARENA_ARRAY(r->scratch, Val, r->in_count + 1);
  Val *wrt = ARENA_ARRAY(r->scratch, Val, r->in_count + 1);
  Val *dx = ARENA_ARRAY(r->scratch, Val, r->in_count + 1);
  Val *cot = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  int n = 0, wanted = 0;
  /* The edge of the body is an alias, so that a value used inside and outside, or handed in twice,
   * is summed inside first (rule 74). */
  for (int j = 0; j < r->in_count; j++) {
    in[j] = is_token(r, r->in[j]) ? r->in[j] : un(ALIAS, r->in[j]);
    if (r->wants[j]) wrt[wanted++] = in[j];
  }
  if (r->b.failed || !passes(r, ad_inline_pure(g, region_of(r, 0), in, y, &e), &e)) return;
  for (int j = 0; j < r->out_count; j++)
    if (!val_none(r->dout[j])) y[n] = y[j], cot[n++] = r->dout[j];
  if (!passes(r, ad_vjp(g, n, y, cot, wanted, wrt, dx, &e, &at), &e)) return;
  for (int j = 0, k = 0; j < r->in_count; j++)
    if (r->wants[j]) r->dx[j] = dx[k++];
}
GRADS(PLACE) {
  Attr a = attr_i(AT_DEVICE, type_of(r, r->in[0]).dev);
  r->dx[0] = b_op(&r->b, OP_PLACE, 1, r->dout, 1, &a);
}
GRADS(WRAP) {
  as_body(r);
}

CUT(HOOK)
/* A call of the program or the host has no gradient; a function of the host that has one is a
 * `custom` node. The run says so, if the gradient runs at all: the code around may be called for
 * its value alone (`index` -1: the same types, and an error). */
static void no_gradient(Rule *r, Name text) {
  GErr e = {.operand = -1};
  Graph *g = r->g;
  int n = 1;
  Val *in = ARENA_ARRAY(r->scratch, Val, r->in_count + 1);
  for (int i = 0; i < r->in_count; i++)
    if (r->wants[i]) in[n++] = r->in[i];
  Attr attr[3] = {attr_text(AT_TEXT, text), attr_i(AT_CARRY, n - 1), attr_i(AT_INDEX, -1)};
  in[0] = gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  if (!passes(r, !val_none(in[0]), &e)) return;
  Val none = gr_op(g, OP_DEFER, in, n, attr, 3, NULL, 0, &e);
  if (!passes(r, !val_none(none), &e)) return;
  for (int i = 0, k = 1; i < r->in_count; i++)
    if (r->wants[i]) r->dx[i] = (Val){none.node, (uint32_t)k++};
}

GRADS(CALL) {
  bool gradient = gr_attr(r->g, r->node, AT_WRT) != NULL;
  no_gradient(r, names_of(r->g->names, /* texts of lang/tape/callback.c */
                          gradient ? "call again" : "call"));
}

GRADS(DEFER) {
  if (gr_attr(r->g, r->node, AT_INDEX))
    no_gradient(r, gr_attr(r->g, r->node, AT_TEXT)->u.text);
  else /* no function of a program */
    refuse(r, ERR_GRAD_NONE, "a deferred function has no gradient, nor has a hook");
}

/* ---- effects: tokens carry no gradient */
CUT(TOKEN)
CUT(PRINT)
CUT(WRITE)
CUT(ASSERT)
