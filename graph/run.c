/* The reference evaluator over a graph, and one op at a time.
 *
 * In: a graph, a value for every symbol, the tensors of its inputs. Out: new references to its
 * outputs, or an error and nothing. First the size checks of the graph and its regions are tested
 * with the given values, and the inputs are compared with their types; then nodes run in order.
 * Each result is released at its last use (counted before the run); movement ops return views.
 * One pool object owns the tensors of a run, so a throw from a callback or an arena releases them.
 * Invariant: kernels are called with shapes that the shape rules accept for exactly these sizes.
 * Recursion is over region nesting only. A token is a NULL tensor.
 * One file: a function for each operation, and the state of a run that they share.
 */
#include <stdio.h>
#include <string.h>

#include "graph/anomaly.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/run_op.h"
#include "graph/shape.h"
#include "graph/stash.h"
#include "runtime/reference/ref.h"
#include "runtime/reference/ref_elem.h"

/* The state of a running node, or of a single op (g NULL). */
typedef struct Run {
  RunCtx *c;
  Ref ref;
  const DimTab *dims;
  const int64_t *env;
  const Graph *g;
  uint32_t node;
  OpCode op;
  const Attr *attrs;
  int nattrs;
  Graph *const *regions;
  Tensor **in; /* borrowed */
  int n;
  Tensor **out;
  int nout;
  Device dev; /* where the results are */
  GErr *e;
  Prov *at;
} Run;

static bool exec(const Graph *g, RunCtx *c, Tensor *const *in, Tensor **owned, Tensor **out,
                 GErr *e, Prov *at);

/* ---- errors and attributes */
static bool fail(Run *r) {
  static const ErrCode code[] = {
      [REF_OK] = ERR_NOMEM,          [REF_NOMEM] = ERR_NOMEM,       [REF_INTERRUPT] = ERR_INTERRUPT,
      [REF_INDEX] = ERR_INDEX_RANGE, [REF_DIV_ZERO] = ERR_DIV_ZERO, [REF_VALUE] = ERR_VALUE_RUN,
      [REF_POSITIVE] = ERR_POSITIVE, [REF_SINGULAR] = ERR_SINGULAR,
  };
  const char *text = r->ref.err.text;
  ErrCode k = code[r->ref.err.kind];
  if (k == ERR_NOMEM) text = "out of memory";
  if (k == ERR_INTERRUPT) text = "interrupted";
  return gerr_set(r->e, k, -1, "%s", text);
}

static bool give(Run *r, Tensor *t) {
  r->out[0] = t;
  return t || fail(r);
}

static const Attr *attr(Run *r, AttrKey k) {
  return attr_find(r->attrs, r->nattrs, k);
}

static int64_t attr_or(Run *r, AttrKey k, int64_t otherwise) {
  const Attr *a = attr(r, k);
  return a ? a->u.i : otherwise;
}

static const int64_t *attr_list(Run *r, AttrKey k) {
  return attr(r, k)->u.ints;
}

static bool bad_size(const DimTab *t, Dim d, GErr *e) {
  Buf b;
  buf_init_arena(&b, dim_arena(t));
  dim_print(&b, t, d);
  return gerr_set(e, ERR_SHAPE_SIZE, -1, "the size %s divides by 0 or passes 2^63 - 1", b.s);
}

static bool size(Run *r, int64_t d, int64_t *out) {
  if (!dim_eval(r->dims, (Dim)d, r->env, NULL, out)) return bad_size(r->dims, (Dim)d, r->e);
  if (*out < 0) {
    return gerr_set(r->e, ERR_SHAPE_NEGATIVE, -1, "a size cannot be negative: %lld",
                    (long long)*out);
  }
  return true;
}

static bool sizes(Run *r, AttrKey k, int64_t *out, int *n) {
  const Attr *a = attr(r, k);
  for (uint32_t i = 0; i < a->count; i++) {
    if (!size(r, a->u.ints[i], &out[i])) return false;
  }
  if (n) *n = (int)a->count;
  return true;
}

/* ---- one function per op: run_<NAME> */
static bool run_INPUT(Run *r) {
  return gerr_set(r->e, ERR_IR_FORM, -1, "an input is not run");
}

static Tensor *literal(Run *r, const Attr *v, Device dev, DType dt) {
  return v->kind == AK_FLOAT ? tn_scalar_f64(r->c->mem, dev, dt, v->u.f)
                             : tn_scalar_i64(r->c->mem, dev, dt, v->u.i);
}

static bool run_CONST(Run *r) {
  return give(r, literal(r, attr(r, AT_VALUE), r->dev, (DType)attr_or(r, AT_DTYPE, DT_F32)));
}

static bool run_DIM(Run *r) {
  int64_t n;
  Dim d = (Dim)attr(r, AT_SIZE)->u.i;
  if (!dim_eval(r->dims, d, r->env, NULL, &n)) { /* an int of sizes and arguments */
    bad_size(r->dims, d, r->e);
    r->e->code = ERR_OVERFLOW;
    return false;
  }
  return give(r, tn_scalar_i64(r->c->mem, DEV_CPU, DT_I64, n));
}

static bool run_IOTA(Run *r) {
  int64_t n[CKL_MAX_RANK];
  if (!sizes(r, AT_DIMS, n, NULL)) return false;
  return give(r, ref_iota(&r->ref, r->dev, (DType)attr_or(r, AT_DTYPE, DT_I64), n[0]));
}

static bool run_RANDOM(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  int rank;
  if (!sizes(r, AT_DIMS, dim, &rank)) return false;
  bool normal = attr_or(r, AT_KIND, RANDOM_UNIFORM) == RANDOM_NORMAL;
  DType dt = (DType)attr_or(r, AT_DTYPE, DT_F32);
  return give(r, ref_random(&r->ref, r->dev, r->in[0], normal, dt, rank, dim));
}

static bool run_RANDINT(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  int rank;
  if (!sizes(r, AT_DIMS, dim, &rank)) return false;
  DType dt = (DType)attr_or(r, AT_DTYPE, DT_I64);
  return give(r, ref_randint(&r->ref, r->dev, r->in[0], r->in[1], dt, rank, dim));
}

static bool run_FOLD_IN(Run *r) {
  return give(r, ref_fold_in(&r->ref, r->in[0], r->in[1]));
}

static bool run_PHILOX(Run *r) {
  return give(r, ref_philox(&r->ref, r->in[0], r->in[1]));
}

#define UN(NAME, ...)                                                                              \
  static bool run_##NAME(Run *r) {                                                                 \
    return give(r, ref_unary(&r->ref, RU_##NAME, r->in[0]));                                       \
  }
#define BIN(NAME, ...)                                                                             \
  static bool run_##NAME(Run *r) {                                                                 \
    return give(r, ref_binary(&r->ref, RB_##NAME, r->in[0], r->in[1]));                            \
  }
#include "runtime/elementwise_rows.def"

static bool run_CAST(Run *r) {
  return give(r, ref_cast(&r->ref, r->in[0], (DType)attr_or(r, AT_DTYPE, DT_F32)));
}

#define GIVES_ON(NAME)                                                                             \
  static bool run_##NAME(Run *r) {                                                                 \
    return give(r, tn_ref(r->in[0]));                                                              \
  }
GIVES_ON(STOP)
GIVES_ON(ALIAS)
GIVES_ON(VERSION)

static bool run_FITS(Run *r) {
  const Attr *a = attr(r, AT_TEXT), *dt = attr(r, AT_DTYPE), *whole = attr(r, AT_KIND);
  for (int64_t i = 0, n = tn_count(r->in[1]); i < n; i++) {
    if (tn_get_i64(r->in[1], i)) continue;
    if (dt)
      return gerr_set(r->e, ERR_NUMBER_FIT, -1, "%lld does not fit %s",
                      (long long)tn_get_i64(r->in[0], i), dtype_info[dt->u.i].name);
    if (whole && a) return gerr_set(r->e, ERR_VALUE, -1, "%s", a->u.text);
    return gerr_set(r->e, ERR_OVERFLOW, -1, "int overflow: what `%s` gives does not fit 64 bits",
                    a && a->kind == AK_TEXT ? a->u.text : op_info[OP_FITS].text);
  }
  return give(r, tn_copy(r->c->mem, r->in[0], r->in[0]->store->dev));
}

static bool run_WHERE(Run *r) {
  return give(r, ref_where(&r->ref, r->in[0], r->in[1], r->in[2]));
}

static bool run_RESHAPE(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  int rank;
  return sizes(r, AT_DIMS, dim, &rank) && give(r, ref_reshape(&r->ref, r->in[0], rank, dim));
}

static bool run_TRANSPOSE(Run *r) {
  return give(r, ref_transpose(&r->ref, r->in[0], attr_list(r, AT_PERM)));
}

static bool run_BROADCAST(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  int rank;
  return sizes(r, AT_DIMS, dim, &rank) && give(r, ref_broadcast(&r->ref, r->in[0], rank, dim));
}

static bool run_SLICE(Run *r) {
  int64_t start[CKL_MAX_RANK], len[CKL_MAX_RANK];
  const int64_t *step = attr_list(r, AT_STEPS), *dim = r->in[0]->dim;
  if (!sizes(r, AT_STARTS, start, NULL) || !sizes(r, AT_LENS, len, NULL)) return false;
  for (int i = 0; i < r->in[0]->rank; i++) {
    /* Shape rules assume that symbols are sizes; a negative one would leave the tensor. */
    if (start[i] <= dim[i] &&
        (len[i] == 0 || (start[i] < dim[i] && len[i] - 1 <= (dim[i] - 1 - start[i]) / step[i]))) {
      continue;
    }
    return gerr_set(r->e, ERR_SHAPE_SLICE, -1,
                    "a slice of %lld elements from %lld is not inside axis %d of size %lld",
                    (long long)len[i], (long long)start[i], i, (long long)dim[i]);
  }
  return give(r, ref_slice(&r->ref, r->in[0], start, len, step));
}

static bool run_PAD(Run *r) {
  int64_t low[CKL_MAX_RANK], high[CKL_MAX_RANK];
  const Attr *v = attr(r, AT_VALUE);
  if (!sizes(r, AT_LOW, low, NULL) || !sizes(r, AT_HIGH, high, NULL)) return false;
  Tensor *one = v ? literal(r, v, DEV_CPU, r->in[0]->dtype) : NULL;
  if (v && !one) return give(r, NULL);
  bool ok = give(r, ref_pad(&r->ref, r->in[0], low, high, attr_list(r, AT_INNER), one));
  tn_unref(one);
  return ok;
}

static bool run_FLIP(Run *r) {
  return give(r, ref_flip(&r->ref, r->in[0], (int)attr(r, AT_AXES)->count, attr_list(r, AT_AXES)));
}

static int axis(Run *r) {
  return (int)attr_or(r, AT_AXIS, 0);
}

static bool run_CONCAT(Run *r) {
  return give(r, ref_concat(&r->ref, r->n, r->in, axis(r)));
}

static bool run_TAKE(Run *r) {
  return give(r, ref_take(&r->ref, r->in[0], axis(r), r->n - 1, r->in + 1));
}

static bool run_PUT(Run *r) {
  return give(r, ref_put(&r->ref, r->in[0], r->in[1], axis(r), r->n - 2, r->in + 2, false));
}

static bool run_PUT_ADD(Run *r) {
  return give(r, ref_put(&r->ref, r->in[0], r->in[1], axis(r), r->n - 2, r->in + 2, true));
}

static bool run_GATHER(Run *r) {
  return give(r, ref_gather(&r->ref, r->in[0], r->in[1], axis(r)));
}

static bool run_SCATTER(Run *r) {
  return give(r, ref_scatter(&r->ref, r->in[0], r->in[1], r->in[2], axis(r), false));
}

static bool run_SCATTER_ADD(Run *r) {
  return give(r, ref_scatter(&r->ref, r->in[0], r->in[1], r->in[2], axis(r), true));
}

static bool run_SORT(Run *r) {
  bool down = attr_or(r, AT_DESCENDING, 0) != 0;
  return ref_sort(&r->ref, r->in[0], axis(r), down, &r->out[0], &r->out[1]) || fail(r);
}

static bool run_NONZERO(Run *r) {
  int64_t most = -1;
  const Attr *a = attr(r, AT_MOST);
  if (a && !size(r, a->u.i, &most)) return false;
  return ref_nonzero(&r->ref, r->in[0], most, &r->out[0], &r->out[1]) || fail(r);
}

static bool reduce(Run *r, RefRed f) {
  return give(
      r, ref_reduce(&r->ref, f, r->in[0], (int)attr(r, AT_AXES)->count, attr_list(r, AT_AXES)));
}

static bool run_SUM(Run *r) {
  return reduce(r, RR_SUM);
}
static bool run_PROD(Run *r) {
  return reduce(r, RR_PROD);
}
static bool run_REDUCE_MAX(Run *r) {
  return reduce(r, RR_MAX);
}
static bool run_REDUCE_MIN(Run *r) {
  return reduce(r, RR_MIN);
}
static bool run_ANY(Run *r) {
  return reduce(r, RR_ANY);
}
static bool run_ALL(Run *r) {
  return reduce(r, RR_ALL);
}
static bool run_ARGMAX(Run *r) {
  return give(r, ref_argreduce(&r->ref, true, r->in[0], axis(r)));
}
static bool run_ARGMIN(Run *r) {
  return give(r, ref_argreduce(&r->ref, false, r->in[0], axis(r)));
}

static bool run_CUMSUM(Run *r) {
  return give(r, ref_cumsum(&r->ref, r->in[0], axis(r), attr_or(r, AT_REVERSE, 0) != 0));
}

static bool run_CUMMAX(Run *r) {
  return give(r, ref_cumextreme(&r->ref, true, r->in[0], axis(r), attr_or(r, AT_REVERSE, 0) != 0));
}

static bool run_CUMMIN(Run *r) {
  return give(r, ref_cumextreme(&r->ref, false, r->in[0], axis(r), attr_or(r, AT_REVERSE, 0) != 0));
}

static int compute(Run *r) {
  return (int)attr_or(r, AT_COMPUTE, COMPUTE_NONE);
}

static bool run_DOT(Run *r) {
  return give(r, ref_dot(&r->ref, r->in[0], r->in[1], compute(r)));
}

static bool run_INNER(Run *r) {
  return give(r, ref_inner(&r->ref, r->in[0], r->in[1], compute(r)));
}

static bool run_CHOLESKY(Run *r) {
  return give(r, ref_cholesky(&r->ref, r->in[0]));
}

static bool run_CHOLESKY_GRAD(Run *r) {
  return give(r, ref_cholesky_grad(&r->ref, r->in[0], r->in[1]));
}

static bool run_LU(Run *r) {
  bool regular = attr_or(r, AT_REGULAR, 0) != 0;
  return ref_lu(&r->ref, r->in[0], regular, &r->out[0], &r->out[1], &r->out[2]) || fail(r);
}

static bool run_EIGH(Run *r) {
  bool values = attr_or(r, AT_VALUES, 0) != 0;
  return ref_eigh(&r->ref, r->in[0], values, &r->out[0], &r->out[1]) || fail(r);
}

static bool run_EIG(Run *r) {
  bool values = attr_or(r, AT_VALUES, 0) != 0;
  return ref_eig(&r->ref, r->in[0], values, &r->out[0], &r->out[1]) || fail(r);
}

static bool run_QR(Run *r) {
  return ref_qr(&r->ref, r->in[0], &r->out[0], &r->out[1]) || fail(r);
}

static bool run_SVD(Run *r) {
  bool full = attr_or(r, AT_FULL, 0) != 0, values = attr_or(r, AT_VALUES, 0) != 0;
  return ref_svd(&r->ref, r->in[0], full, values, &r->out[0], &r->out[1], &r->out[2]) || fail(r);
}

static bool run_SOLVE(Run *r) {
  bool across = attr_or(r, AT_ACROSS, 0) != 0;
  return give(r, ref_solve(&r->ref, r->in[1], r->in[2], r->in[3], across));
}

static bool run_FACTOR_SOLVE(Run *r) {
  return give(r, ref_factor_solve(&r->ref, r->in[0], r->in[1]));
}

static bool run_TRIANGULAR(Run *r) {
  bool upper = attr_or(r, AT_UPPER, 0) != 0, unit = attr_or(r, AT_UNIT, 0) != 0;
  return give(r, ref_triangular(&r->ref, r->in[0], r->in[1], upper, unit));
}

static bool run_CONV2D(Run *r) {
  const int64_t *pad = attr_list(r, AT_PAD);
  for (int i = 0; i < 2; i++) {
    if (r->in[0]->dim[2 + i] + 2 * pad[i] < r->in[1]->dim[2 + i]) {
      return gerr_set(r->e, ERR_SHAPE_CONV, -1,
                      "the kernel of a convolution is larger than the padded image");
    }
  }
  return give(r, ref_conv2d(&r->ref, r->in[0], r->in[1], attr_list(r, AT_STRIDE), pad, compute(r)));
}

static bool run_CONV2D_INPUT(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  return sizes(r, AT_DIMS, dim, NULL) &&
         give(r, ref_conv2d_input(&r->ref, r->in[0], r->in[1], dim, attr_list(r, AT_STRIDE),
                                  attr_list(r, AT_PAD), compute(r)));
}

static bool run_CONV2D_WEIGHT(Run *r) {
  int64_t dim[CKL_MAX_RANK];
  return sizes(r, AT_DIMS, dim, NULL) &&
         give(r, ref_conv2d_weight(&r->ref, r->in[0], r->in[1], dim, attr_list(r, AT_STRIDE),
                                   attr_list(r, AT_PAD), compute(r)));
}

/* ---- structured ops */
static bool check_turn(const Graph *g, const int64_t *env, GErr *e, Prov *at);

/* `owned`: references to inputs, as in RunCtx, or NULL. */
static bool body(Run *r, int region, Tensor *const *in, Tensor **owned, Tensor **out) {
  const Graph *g = r->regions[region];
  if (!check_turn(g, r->c->env, r->e, r->at)) return false;
  if (r->c->body) return r->c->body(r->c->body_ud, g, in, owned, out, r->e, r->at);
  return exec(g, r->c, in, owned, out, r->e, r->at);
}

static bool run_CUSTOM(Run *r) {
  return body(r, 0, r->in, NULL, r->out);
}
static bool run_PLACE(Run *r) {
  return give(r, tn_copy(r->c->mem, r->in[0], (Device)attr_or(r, AT_DEVICE, DEV_CPU)));
}
static bool run_WRAP(Run *r) {
  return body(r, 0, r->in, NULL, r->out);
}

static bool run_BRANCH(Run *r) {
  return body(r, tn_get_i64(r->in[0], 0) ? 0 : 1, r->in + 1, NULL, r->out);
}

static bool type_sizes(const Graph *g, const Type *t, const int64_t *env, int64_t *out, GErr *e);

/* The row of a turn, of type t in g. Without a stash, in a run that only repeats an error, zeros:
 * *made owns them. */
static Tensor *row_of(Run *r, const Tensor *stash, const Graph *g, const Type *t, int64_t turn,
                      Tensor **made) {
  int64_t dim[CKL_MAX_RANK];
  Tensor *row;
  if (!stash_row(stash, turn, r->c, &row, r->e, r->at)) return NULL;
  if (!type_sizes(g, t, r->env, dim, r->e)) return NULL;
  bool fits = row && row->dtype == (DType)t->dtype && row->rank == t->rank;
  for (int k = 0; fits && k < t->rank; k++) fits = row->dim[k] == dim[k];
  if (fits) return row;
  if (row) {
    gerr_set(r->e, ERR_BUG, -1, "what a loop keeps of turn %lld is of another type",
             (long long)turn);
    return NULL;
  }
  *made = tn_zeros(r->c->mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  if (!*made) fail(r);
  return *made;
}

static bool run_region(void *ud, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  return exec(ud, c, in, NULL, out, e, at);
}

KeptBody gr_kept(const Graph *region) {
  return (KeptBody){.ud = (void *)(uintptr_t)region, .run = run_region};
}

static void drop_replay(void *p) {
  replay_unref(p);
}

static bool run_LOOP(Run *r) {
  Mem *m = r->c->mem;
  const Graph *inner = r->regions[0];
  int carry = (int)attr_or(r, AT_CARRY, 0), stashes = (int)attr_or(r, AT_MAPPED, 0);
  bool goes_on = attr(r, AT_WHILE) != NULL, reverse = attr_or(r, AT_REVERSE, 0) != 0;
  int give = r->nout - goes_on, kept = give - carry;
  int64_t count = tn_get_i64(r->in[0], 0), turn = 0;
  size_t mark = mem_pool_mark(m);
  /* own: turn and carried values, which a turn may drop, then a NULL for each other input of the
   * region; what the region gives, stashes that are made, zeros for rows; arg: the region's inputs,
   * borrowed */
  size_t owned = (size_t)(r->n + give + kept + stashes);
  const Attr *counter = attr(r, AT_COUNTER);
  const int64_t *outside = r->env;
  int64_t first = counter ? attr_or(r, AT_VALUE, 0) : 0;
  Sym symbol = 0, symbols = counter ? dim_symbol_count(r->dims) : 0;
  Tensor **own = tn_refs(m, owned, (size_t)r->n * sizeof(Tensor *) + symbols * sizeof(int64_t));
  Tensor **cur = own + 1, **next = own + r->n, **stash = next + give, **zeros = stash + kept;
  Tensor **arg = zeros + stashes;
  int64_t *env = (int64_t *)(void *)(arg + r->n);
  bool ok = true;
  if (counter) {
    memcpy(env, outside, symbols * sizeof *env);
    dim_is_symbol(r->dims, (Dim)counter->u.i, &symbol);
    r->env = r->c->env = env;
  }
  Replay *replay = NULL;
  for (int i = 0; i < carry; i++) cur[i] = r->in[1 + i] ? tn_ref(r->in[1 + i]) : NULL;
  if (gr_again(r->g, r->node))
    ok = (replay = replay_of(r->g, r->node, r->c, r->in)) != NULL || fail(r);
  if (replay) mem_pool_add(m, replay, drop_replay);
  int again = replay ? (int)attr_or(r, AT_AGAIN, 0) - carry : kept; /* kept, before those */
  for (int i = 0; i < again && ok; i++) ok = (stash[i] = stash_new(m)) || fail(r);
  for (; turn < count && ok && (!goes_on || tn_get_i64(cur[0], 0)); turn++) {
    if (interrupt_asked(r->c->interrupt)) { /* a region may have no nodes */
      ok = gerr_set(r->e, ERR_INTERRUPT, -1, "interrupted");
      break;
    }
    if (r->c->turn) r->c->turn(r->c->turn_ud, r->g->provs[r->g->nodes[r->node].prov].span);
    int64_t number = reverse ? count - 1 - turn : turn;
    own[0] = tn_scalar_i64(m, DEV_CPU, DT_I64, number);
    if (!own[0]) ok = fail(r);
    if (counter) env[symbol] = (int64_t)((uint64_t)first + (uint64_t)number + 1);
    for (int i = 0; i < r->n && ok; i++) {
      int row = i - 1 - carry;
      arg[i] = i == 0 ? own[0] : i <= carry ? cur[i - 1] : r->in[i];
      if (row >= 0 && row < stashes)
        ok = (arg[i] = row_of(r, r->in[i], inner, gr_type(inner, inner->inputs[i]), number,
                              &zeros[row])) != NULL;
    }
    if (replay) ok = ok && (replay_before(replay, turn, cur) || fail(r));
    ok = ok && body(r, 0, arg, own, next);
    if (replay && !goes_on && turn == count - 1)
      ok = ok && (replay_end(replay, count, next, false) || fail(r));
    for (int i = 0; i < again && ok; i++)
      ok = stash_keep(stash[i], next + carry, kept, i, r->in, r->n) || fail(r);
    for (int i = 0; i < give; i++) {
      if (ok && i < carry) {
        tn_unref(cur[i]);
        cur[i] = next[i];
      } else {
        tn_unref(next[i]);
      }
      next[i] = NULL;
    }
    for (int i = 0; i < stashes; i++) {
      tn_unref(zeros[i]);
      zeros[i] = NULL;
    }
    tn_unref(own[0]);
    own[0] = NULL;
  }
  r->env = r->c->env = outside;
  if (!ok) stash_full(m, stash, again, turn, r->e);
  if (ok && replay && (goes_on || !turn)) ok = replay_end(replay, turn, NULL, false) || fail(r);
  for (int i = again; i < kept && ok; i++)
    ok = (stash[i] = stash_replayed(m, replay, i - again, turn)) || fail(r);
  for (int i = 0; i < again && ok && reverse; i++) stash_reverse(stash[i]); /* by number */
  if (ok && goes_on) {
    own[0] = tn_scalar_i64(m, DEV_CPU, DT_I64, turn);
    ok = own[0] || fail(r);
  }
  for (int i = 0; i < r->nout && ok; i++) {
    Tensor **from = i < carry               ? &cur[i]
                    : goes_on && i == carry ? &own[0]
                                            : &stash[i - carry - goes_on];
    r->out[i] = *from;
    *from = NULL;
  }
  mem_pool_drain(m, mark);
  return ok;
}

static bool run_STASH(Run *r) {
  bool ok = (r->out[0] = stash_new(r->c->mem)) || fail(r);
  for (int i = 0; i < r->n && ok; i++) ok = stash_add(r->out[0], r->in[i]) || fail(r);
  return ok;
}

static bool run_UNSTASH(Run *r) {
  for (int k = 0; k < r->nout; k++) {
    Tensor *made = NULL;
    const Type *t = gr_type(r->g, (Val){r->node, (uint32_t)k});
    Tensor *row = row_of(r, r->in[0], r->g, t, k, &made);
    if (!row) return false;
    r->out[k] = made ? made : tn_ref(row);
  }
  return true;
}

/* Copies `row` into place number i along axis 0 of the row-major `to`. */
static bool put_row(Mem *m, Tensor *to, int64_t i, Tensor *row) {
  Tensor *flat = tn_contiguous(m, row);
  if (!flat) return false;
  size_t bytes = (size_t)tn_bytes(row);
  if (bytes) memcpy((char *)tn_data(to) + bytes * (size_t)i, tn_data(flat), bytes);
  tn_unref(flat);
  return true;
}

static bool type_sizes(const Graph *g, const Type *t, const int64_t *env, int64_t *out, GErr *e) {
  for (int i = 0; i < t->rank; i++) {
    if (!dim_eval(g->dims, t->dim[i], env, NULL, &out[i])) return bad_size(g->dims, t->dim[i], e);
    if (out[i] < 0) {
      return gerr_set(e, ERR_SHAPE_NEGATIVE, -1, "a size cannot be negative: %lld",
                      (long long)out[i]);
    }
  }
  return true;
}

static bool run_STASH_ROWS(Run *r) {
  Tensor *own = stash_hold(r->c->mem, r->in[0]), *rows = NULL;
  if (own) rows = tn_contiguous(r->c->mem, own);
  tn_unref(own);
  return (rows && (r->out[0] = stash_packed(r->c->mem, rows))) || fail(r);
}

static bool run_UNSTASH_ROWS(Run *r) {
  Mem *m = r->c->mem;
  const Type *t = gr_type(r->g, (Val){r->node, 0});
  int64_t dim[CKL_MAX_RANK];
  const Tensor *all = stash_rows(r->in[0]);
  if (!type_sizes(r->g, t, r->env, dim, r->e)) return false;
  bool fits = all && all->dtype == (DType)t->dtype && all->rank == t->rank && all->dim[0] >= dim[0];
  for (int k = 1; fits && k < t->rank; k++) fits = all->dim[k] == dim[k];
  if (fits) return (r->out[0] = tn_view(m, all, t->rank, dim, all->stride, all->offset)) || fail(r);
  Type row = *t;
  row.rank--;
  memmove(row.dim, row.dim + 1, (size_t)row.rank * sizeof *row.dim);
  Tensor *to = r->out[0] = tn_new(m, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  if (!to) return fail(r);
  for (int64_t k = 0; k < dim[0]; k++) {
    Tensor *zeros = NULL, *x = row_of(r, r->in[0], r->g, &row, k, &zeros);
    bool ok = x && (put_row(m, to, k, x) || fail(r));
    tn_unref(zeros);
    if (!ok) return false;
  }
  return true;
}

static bool run_MAP(Run *r) {
  Mem *m = r->c->mem;
  int mapped = (int)attr_or(r, AT_MAPPED, 1);
  int64_t count = r->in[0]->dim[0];
  size_t mark = mem_pool_mark(m);
  Tensor **res = tn_refs(m, (size_t)(2 * r->nout + mapped), (size_t)r->n * sizeof(Tensor *));
  Tensor **row = res + r->nout, **slice = row + r->nout, **arg = slice + mapped;
  bool ok = true;
  for (int i = 0; i < r->nout && ok; i++) {
    int64_t dim[CKL_MAX_RANK];
    const Type *t = gr_type(r->g, (Val){r->node, (uint32_t)i});
    ok = type_sizes(r->g, t, r->env, dim, r->e);
    if (ok) res[i] = tn_new(m, (Device)t->dev, (DType)t->dtype, t->rank, dim);
    if (ok && !res[i]) ok = fail(r);
  }
  for (int64_t k = 0; k < count && ok; k++) {
    if (interrupt_asked(r->c->interrupt)) {
      ok = gerr_set(r->e, ERR_INTERRUPT, -1, "interrupted");
      break;
    }
    for (int i = 0; i < r->n && ok; i++) {
      arg[i] = r->in[i];
      if (i >= mapped) continue;
      const Tensor *x = r->in[i];
      slice[i] =
          tn_view(m, x, x->rank - 1, x->dim + 1, x->stride + 1, x->offset + k * x->stride[0]);
      arg[i] = slice[i];
      if (!arg[i]) ok = fail(r);
    }
    ok = ok && body(r, 0, arg, NULL, row);
    for (int i = 0; i < r->nout && ok; i++) {
      if (!put_row(m, res[i], k, row[i])) ok = fail(r);
      tn_unref(row[i]);
      row[i] = NULL;
    }
    for (int i = 0; i < mapped; i++) {
      tn_unref(slice[i]);
      slice[i] = NULL;
    }
  }
  for (int i = 0; i < r->nout && ok; i++) {
    r->out[i] = res[i];
    res[i] = NULL;
  }
  mem_pool_drain(m, mark);
  return ok;
}

/* ---- effects */
static bool another_type(Run *r, int i, const Type *t, const int64_t *dim) {
  const Attr *a = gr_attr(r->g, r->node, AT_TEXT);
  const Tensor *x = r->out[i];
  char have[160] = "nothing", want[160];
  if (x) type_sized_text(have, sizeof have, x->dtype, x->rank, x->dim);
  type_sized_text(want, sizeof want, (DType)t->dtype, t->rank, dim);
  return gerr_set(r->e, r->op == OP_CALL ? ERR_HOST : ERR_IR_FORM, -1,
                  "result %d of `%s` is %s, and was declared as %s", i - 1,
                  a && a->kind == AK_TEXT ? a->u.text : op_info[r->op].text, have, want);
}

static bool effect(Run *r) {
  if (!r->c->effect || !r->g) {
    return gerr_set(r->e, ERR_IR_FORM, -1, "nobody handles the effect `%s` here",
                    op_info[r->op].text);
  }
  if (!r->c->effect(r->c->ud, r->g, r->node, r->in, r->n, r->out, r->e)) return false;
  for (int i = 0; i < r->nout; i++) {
    /* The results of host functions are compared with the declared types. */
    const Type *t = gr_type(r->g, (Val){r->node, (uint32_t)i});
    const Tensor *x = r->out[i];
    int64_t dim[CKL_MAX_RANK];
    if (t->kind == TK_TOKEN) continue;
    if (!type_sizes(r->g, t, r->env, dim, r->e)) return false;
    bool same =
        x && x->dtype == (DType)t->dtype && x->rank == t->rank && x->store->dev == (Device)t->dev;
    for (int k = 0; same && k < t->rank; k++) same = x->dim[k] == dim[k];
    if (!same) return another_type(r, i, t, dim);
  }
  return true;
}

static bool run_CALL(Run *r) {
  return effect(r);
}
static bool run_DEFER(Run *r) {
  return effect(r);
}
static bool run_HOOK(Run *r) {
  r->out[0] = NULL;
  return true;
}
static bool run_PRINT(Run *r) {
  return effect(r);
}

static bool run_WRITE(Run *r) {
  return gerr_set(r->e, ERR_IR_FORM, -1, "`write` waits for the end of a graph: see exec");
}

static bool run_TOKEN(Run *r) {
  r->out[0] = NULL;
  return true;
}

static bool run_ASSERT(Run *r) {
  if (r->c->effect && r->g) return effect(r);
  int64_t n = tn_count(r->in[1]);
  for (int64_t i = 0; i < n; i++) {
    if (!tn_get_i64(r->in[1], i)) {
      return gerr_set(r->e, ERR_VALUE_RUN, 1, "assertion failed: %s", attr(r, AT_TEXT)->u.text);
    }
  }
  return true;
}

static bool (*const run_table[OP_COUNT])(Run *r) = {
#define OP(NAME, ...) [OP_##NAME] = run_##NAME,
#include "graph/ops_rows.def"
#undef OP
};

/* Runs r after moving single numbers of the cpu to the device of the result. */
static bool dispatch(Run *r) {
  bool moves = false;
  for (int i = 0; i < r->n; i++) {
    if (r->in[i] && r->in[i]->store->dev != r->dev) moves = true;
  }
  unsigned traits = op_info[r->op].traits;
  OpClass cls = op_info[r->op].cls;
  if (!moves || (traits & T_REGION) || cls == CONTROL || cls == EFFECT) return run_table[r->op](r);
  Mem *m = r->c->mem;
  size_t mark = mem_pool_mark(m);
  Tensor **in = r->in, **own = tn_refs(m, (size_t)r->n, 0);
  bool ok = true;
  for (int i = 0; i < r->n && ok; i++) {
    bool move = in[i]->store->dev != r->dev && in[i]->rank == 0;
    own[i] = move ? tn_copy(m, in[i], r->dev) : tn_ref(in[i]);
    if (!own[i]) ok = gerr_set(r->e, ERR_NOMEM, -1, "out of memory");
  }
  r->in = own;
  ok = ok && run_table[r->op](r);
  r->in = in;
  mem_pool_drain(m, mark);
  return ok;
}

/* ---- graphs */
static bool check_one(const Graph *g, const SizeCheck *k, const int64_t *env, GErr *e) {
  int64_t a, b;
  if (!dim_eval(g->dims, k->a, env, NULL, &a)) return bad_size(g->dims, k->a, e);
  if (!dim_eval(g->dims, k->b, env, NULL, &b)) return bad_size(g->dims, k->b, e);
  if (check_holds(k->kind, a, b)) return true;
  if (k->kind == CHECK_FITS)
    return gerr_set(e, ERR_NUMBER_FIT, -1, "%lld does not fit %s", (long long)a,
                    dtype_info[b].name);
  Buf t;
  buf_init_arena(&t, dim_arena(g->dims));
  buf_printf(&t, "%s: ", k->text ? k->text : "a condition on sizes does not hold");
  for (int i = 0; i < 2; i++) {
    Dim d = i ? k->b : k->a;
    if (i) {
      buf_puts(&t, k->kind == CHECK_EQ   ? " and "
                   : k->kind == CHECK_GE ? " is less than "
                                         : " is no multiple of ");
    }
    if (!dim_is_const(g->dims, d, NULL)) {
      dim_print(&t, g->dims, d);
      buf_puts(&t, " = ");
    }
    buf_int(&t, i ? b : a);
  }
  gerr_set(e, ERR_SHAPE_CHECK, -1, "%s", t.s);
  return k->help ? gerr_help(e, "%s", k->help) : false;
}

/* `turns`: those of the sizes that depend on the iteration of a loop, which are tested when the
 * region begins; else the others. */
static bool check_own(const Graph *g, bool turns, const int64_t *env, GErr *e, Prov *at) {
  for (size_t i = 0; i < g->check_count; i++) {
    const SizeCheck *k = &g->checks[i];
    bool turn = gr_sized_by_turn(g->dims, k->a) || gr_sized_by_turn(g->dims, k->b);
    if (turn != turns || check_one(g, k, env, e)) continue;
    if (at && k->prov < g->prov_count) *at = g->provs[k->prov];
    return false;
  }
  return true;
}

static bool check_turn(const Graph *g, const int64_t *env, GErr *e, Prov *at) {
  return check_own(g, true, env, e, at);
}

static bool check_all(const Graph *g, const int64_t *env, GErr *e, Prov *at) {
  if (!check_own(g, false, env, e, at)) return false;
  for (size_t i = 0; i < g->region_count; i++) {
    if (!check_all(g->regions[i], env, e, at)) return false;
  }
  return true;
}

static bool check_input(const Graph *g, size_t i, const Tensor *x, const int64_t *env, GErr *e) {
  const Type *t = gr_type(g, g->inputs[i]);
  int64_t dim[CKL_MAX_RANK];
  if (t->kind != TK_TENSOR) return true;
  if (!type_sizes(g, t, env, dim, e)) return false;
  bool same =
      x && x->dtype == (DType)t->dtype && x->rank == t->rank && x->store->dev == (Device)t->dev;
  for (int k = 0; same && k < t->rank; k++) same = x->dim[k] == dim[k];
  if (same) return true;
  Buf b;
  buf_init_arena(&b, g->arena);
  type_print(&b, g->dims, t);
  buf_printf(&b, ", not %s[", x ? dtype_info[x->dtype].name : "nothing");
  for (int k = 0; x && k < x->rank; k++)
    buf_printf(&b, k ? ", %lld" : "%lld", (long long)x->dim[k]);
  return gerr_set(e, ERR_SHAPE_CHECK, -1, "argument %d is %s]", (int)i + 1, b.s);
}

/* The argument of dispatch for one node of g; `in` and `out` have its operands and results. */
static Run run_of(const Graph *g, uint32_t node, RunCtx *c, Tensor **in, Tensor **out, GErr *e,
                  Prov *at) {
  const GNode *n = &g->nodes[node];
  Run r = {.c = c,
           .dims = g->dims,
           .env = c->env,
           .g = g,
           .node = node,
           .op = (OpCode)n->op,
           .attrs = g->attrs + n->attr0,
           .nattrs = n->attr_count,
           .regions = g->regions + n->region0,
           .in = in,
           .n = (int)n->operand_count,
           .out = out,
           .nout = n->result_count,
           .e = e,
           .at = at};
  r.ref.mem = c->mem;
  r.ref.interrupt = c->interrupt;
  r.ref.pool = c->pool;
  r.ref.err.kind = REF_OK;
  r.dev = n->result_count ? (Device)g->types[n->result0].dev : DEV_CPU;
  return r;
}

/* ---- writes to inputs happen after all nodes: a graph that fails has written nothing (rule 54) */
static bool written(const Graph *g, Tensor *const *in, const Storage *store) {
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_WRITE) {
      int64_t to = gr_attr_i(g, gr_operand(g, i, 1).node, AT_INDEX, 0);
      if (in[to]->store == store) return true;
    }
  return false;
}

/* Copies a value that is a view of a written input. */
static bool apart(const Graph *g, Mem *m, Tensor *const *in, Tensor **x) {
  if (!*x || !written(g, in, (*x)->store)) return true;
  Tensor *c = tn_copy(m, *x, (*x)->store->dev);
  if (!c) return false;
  tn_unref(*x);
  *x = c;
  return true;
}

static void put_into(Tensor *to, const Tensor *x) {
  size_t size = dt_size(to->dtype);
  int64_t n = tn_count(to);
  if (tn_is_contiguous(to)) {
    tn_gather(x, 0, n, tn_data(to));
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0;
    for (int k = to->rank; k-- > 0; rest /= to->dim[k]) at += rest % to->dim[k] * to->stride[k];
    tn_gather(x, i, 1, (char *)tn_data(to) + size * (size_t)at);
  }
}

static bool write_back(const Graph *g, Mem *m, Tensor *const *in, Tensor **val, GErr *e) {
  bool ok = true;
  for (uint32_t i = 0; i < g->node_count && ok; i++) {
    if (g->nodes[i].op != OP_WRITE) continue;
    Val v = gr_operand(g, i, 2);
    ok = apart(g, m, in, &val[g->nodes[v.node].result0 + v.res]);
  }
  for (size_t i = 0; i < g->output_count && ok; i++) {
    Val v = g->outputs[i];
    ok = apart(g, m, in, &val[g->nodes[v.node].result0 + v.res]);
  }
  if (!ok) return gerr_set(e, ERR_NOMEM, -1, "out of memory");
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i].op != OP_WRITE) continue;
    Val v = gr_operand(g, i, 2);
    put_into(in[gr_attr_i(g, gr_operand(g, i, 1).node, AT_INDEX, 0)],
             val[g->nodes[v.node].result0 + v.res]);
  }
  return true;
}

static bool held_once(const Tensor *t) {
  return t && t->rc == 1 && t->store->rc == 1 && !t->store->foreign_free;
}

/* Runs the nodes of g; the caller has checked the sizes. Nothing in `out` is set on failure.
 * `owned`: references to inputs, as in RunCtx, or NULL. */
static bool exec(const Graph *g, RunCtx *c, Tensor *const *in, Tensor **owned, Tensor **out,
                 GErr *e, Prov *at) {
  Mem *m = c->mem;
  size_t mark = mem_pool_mark(m), widest = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i].operand_count > widest) widest = g->nodes[i].operand_count;
  }
  /* val: one reference per result; then operands of the running node; then uses left per result */
  Tensor **val =
      tn_refs(m, g->type_count, widest * sizeof(Tensor *) + g->type_count * sizeof(uint32_t));
  Tensor **arg = val + g->type_count;
  uint32_t *uses = (uint32_t *)(void *)(arg + widest);
  bool writes = false;
  for (size_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    writes |= n->op == OP_WRITE; /* its operand is needed at the end, too */
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = g->operands[n->operand0 + k];
      uses[g->nodes[v.node].result0 + v.res] += n->op == OP_WRITE ? 2 : 1;
    }
  }
  for (size_t i = 0; i < g->output_count; i++) {
    uses[g->nodes[g->outputs[i].node].result0 + g->outputs[i].res]++;
  }
  for (size_t i = 0; i < g->input_count; i++) {
    uint32_t at_res = g->nodes[g->inputs[i].node].result0;
    if (owned && owned[i] && !uses[at_res]) {
      tn_unref(owned[i]);
    } else if (uses[at_res] && in[i]) {
      val[at_res] = owned && owned[i] ? owned[i] : tn_ref(in[i]);
    }
    if (owned) owned[i] = NULL;
  }
  bool ok = true;
  uint32_t node = 0;
  for (; node < g->node_count; node++) {
    const GNode *n = &g->nodes[node];
    if (n->op == OP_INPUT) continue;
    if (interrupt_asked(c->interrupt)) {
      ok = gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
      break;
    }
    const Val *from = g->operands + n->operand0;
    for (uint32_t k = 0; k < n->operand_count; k++) {
      arg[k] = val[g->nodes[from[k].node].result0 + from[k].res];
    }
    const Prov *p = &g->provs[n->prov];
    bool watched = c->anomaly || p->anomaly;
    Run r = run_of(g, node, c, arg, val + n->result0, e, at);
    r.ref.last = n->operand_count && !watched && !c->after &&
                 uses[g->nodes[from[0].node].result0 + from[0].res] == 1 && held_once(arg[0]);
    ok = n->op == OP_WRITE || dispatch(&r);
    if (!ok) {
      /* An inner region has already set its own node. */
      if (at && !(n->region_count && at->span.file)) *at = g->provs[n->prov];
      break;
    }
    c->nodes_run++;
    if (watched) ok = !anomaly_made(r.op, p->backward, arg, r.n, r.out, r.nout, e);
    if (ok && c->after) ok = c->after(c->ud, g, node, r.out, r.nout, e);
    if (!ok) {
      if (at) *at = *p;
      break;
    }
    for (uint32_t k = 0; k < n->operand_count + n->result_count; k++) {
      bool operand = k < n->operand_count;
      uint32_t v = operand ? g->nodes[from[k].node].result0 + from[k].res
                           : n->result0 + k - n->operand_count;
      if (operand ? --uses[v] : uses[v]) continue;
      tn_unref(val[v]);
      val[v] = NULL;
    }
  }
  if (!ok && e) e->operand = (int)node;
  ok = ok && (!writes || write_back(g, m, in, val, e));
  for (size_t i = 0; i < g->output_count && ok; i++) {
    Val v = g->outputs[i];
    Tensor *t = val[g->nodes[v.node].result0 + v.res];
    out[i] = t ? tn_ref(t) : NULL;
  }
  mem_pool_drain(m, mark);
  return ok;
}

bool gr_check_sizes(const Graph *g, const int64_t *env, GErr *e, Prov *at) {
  return check_all(g, env, e, at);
}

bool gr_check_inputs(const Graph *g, const int64_t *env, Tensor *const *in, GErr *e, Prov *at) {
  for (size_t i = 0; i < g->input_count; i++) {
    if (check_input(g, i, in[i], env, e)) continue;
    if (at) *at = g->provs[g->nodes[g->inputs[i].node].prov];
    e->operand = (int)g->inputs[i].node;
    return false;
  }
  return true;
}

bool gr_run(const Graph *g, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  GErr scratch;
  if (!e) e = &scratch;
  if (at) *at = (Prov){.origin = -1};
  return gr_check_sizes(g, c->env, e, at) && gr_check_inputs(g, c->env, in, e, at) &&
         exec(g, c, in, c->owned, out, e, at);
}

bool gr_run_node(const Graph *g, uint32_t node, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
                 Prov *at) {
  const GNode *n = &g->nodes[node];
  memset(out, 0, n->result_count * sizeof *out);
  Run r = run_of(g, node, c, (Tensor **)in, out, e, at);
  if (dispatch(&r)) return true;
  if (at && !(n->region_count && at->span.file)) *at = g->provs[n->prov];
  e->operand = (int)node;
  return false;
}

/* ---- one op */
bool gr_run_op(RunCtx *c, const DimTab *dims, OpCode op, const Attr *attrs, int nattrs,
               Tensor *const *in, int nin, Tensor **out, int nout, GErr *e) {
  enum { FEW = 6 };
  Type few[FEW], result[OP_RESULTS], *type = few;
  const Type *few_at[FEW], **type_at = few_at;
  GErr scratch;
  if (!e) e = &scratch;
  if (op_info[op].traits & (T_REGION | T_EFFECT) || op == OP_INPUT || op == OP_TOKEN) {
    return gerr_set(e, ERR_IR_FORM, -1, "`%s` only runs in a graph", op_info[op].text);
  }
  if (nout != op_info[op].results || nout > OP_RESULTS) {
    return gerr_set(e, ERR_IR_FORM, -1, "`%s` has %d results", op_info[op].text,
                    op_info[op].results);
  }
  Mem *m = c->mem;
  size_t mark = mem_pool_mark(m);
  if (nin > FEW) {
    type_at = (const Type **)(void *)tn_refs(m, 0, (size_t)nin * (sizeof(Type) + sizeof(Type *)));
    type = (Type *)(void *)(type_at + nin);
  }
  DimTab *tab = (DimTab *)dims; /* the only change: sizes of 2^31 and more are interned */
  for (int i = 0; i < nin; i++) {
    const Tensor *x = in[i];
    Type *t = &type[i];
    t->kind = TK_TENSOR;
    t->dtype = (uint8_t)x->dtype;
    t->dev = (uint8_t)x->store->dev;
    t->rank = (uint8_t)x->rank;
    t->alias = 0;
    for (int k = 0; k < x->rank; k++) t->dim[k] = dim_const(tab, x->dim[k]);
    type_at[i] = t;
  }
  ShapeCall s = {tab, op,     type_at, nin,  attrs, nattrs,          NULL,
                 0,   result, nout,    NULL, e,     c->operand_text, c->operand_text_count};
  bool ok = op_shape(&s);
  Run r = {.c = c,
           .dims = dims,
           .env = c->env,
           .op = op,
           .attrs = attrs,
           .nattrs = nattrs,
           .in = (Tensor **)in,
           .n = nin,
           .out = out,
           .nout = nout,
           .e = e};
  r.ref.mem = m;
  r.ref.interrupt = c->interrupt;
  r.ref.pool = c->pool;
  r.ref.err.kind = REF_OK;
  if (ok) {
    r.dev = (Device)result[0].dev;
    ok = dispatch(&r);
  }
  if (ok && c->anomaly && anomaly_made(op, false, in, nin, out, nout, e)) {
    for (int i = 0; i < nout; i++) tn_unref(out[i]);
    memset(out, 0, (size_t)nout * sizeof *out);
    ok = false;
  }
  if (ok) c->nodes_run++;
  if (nin > FEW) mem_pool_drain(m, mark);
  return ok;
}
