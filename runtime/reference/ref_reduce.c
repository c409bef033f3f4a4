/* Reductions by rule 105, positions of extremes, running sums.
 *
 * In: a tensor of any strides and the axes to reduce. Out: a new row-major tensor without them.
 * The order of the additions of one result is fixed by the reduced axes alone: elements in
 * row-major order, blocks of 4,096, in a block 16 lanes that start at -0 (1 for products), lane j
 * taking elements j, j + 16, .. in order; lanes combined by halving (j with j + 8, 4, 2, 1); blocks
 * combined by a balanced tree split at the largest power of two below their number. As -0 changes
 * no number, a sum over axes of size 1 is a copy. An empty sum is +0, and other empty reductions
 * give their start value. f16 and bf16 accumulate in f32 and round once.
 *
 * Two ways through memory give the same bits: one result at a time if the reduced axes are the
 * inner ones (the lanes are a vector), or a panel of neighbouring results if a kept axis is the
 * inner one (each lane is a row of the panel).
 *
 * max and min are those of ref_elem.c (NaN wins, zeros by sign) and start from -inf and +inf, or
 * the ends of the int type; they do not depend on the order. */
#include "runtime/reference/ref_impl.h"

#include <math.h>
#include <string.h>

enum { PANEL = 128, LEVELS = 52 };

/* The axes of a reduction: the kept ones but the last, which is the panel, and the reduced ones,
 * joined if they are one axis in memory. Steps are in bytes. */
typedef struct Fold {
  DType dt;
  int krank, rrank;
  int64_t kdim[CKL_MAX_RANK], kaxis[CKL_MAX_RANK]; /* kaxis: steps of the kept axes */
  int64_t rdim[CKL_MAX_RANK], rstep[CKL_MAX_RANK];
  int64_t length; /* elements of one result */
  int64_t kstep;  /* of the panel */
  Walk walk;      /* over the reduced axes */
} Fold;
typedef enum FoldPart { FOLD_LINE, FOLD_PANEL } FoldPart;
typedef bool FoldRun(Ref *r, const Fold *f, void *room, FoldPart part, const char *base,
                     int64_t width, void *result);

/* acc[i] = op(acc[i], p[i]) */
#define EACH(n, acc, p)                                                                            \
  for (int64_t e = 0; e < (n); e++) (acc)[e] = OP((acc)[e], (p)[e])

/* Ints wrap: they are added and multiplied as unsigned patterns. */
static void load_u64(DType dt, const void *src, int64_t step, int64_t n, uint64_t *out) {
  ref_load_i64(dt, src, step, n, (int64_t *)out);
}

#define T float
#define LOAD ref_load_f32
#define NAME(x) x##_sum32
#define OP(a, b) ((a) + (b))
#define ROW EACH
#define START (-0.0f)
#define EMPTY 0.0f
#include "runtime/reference/ref_reduce.inc"

#define T float
#define LOAD ref_load_f32
#define NAME(x) x##_prod32
#define OP(a, b) ((a) * (b))
#define ROW EACH
#define START 1.0f
#include "runtime/reference/ref_reduce.inc"

#define T float
#define LOAD ref_load_f32
#define NAME(x) x##_max32
#define OP(a, b) ref_max_f32(a, b)
#define ROW(n, acc, p) ref_max_f32_n(n, acc, p, acc)
#define START (-INFINITY)
#include "runtime/reference/ref_reduce.inc"

#define T float
#define LOAD ref_load_f32
#define NAME(x) x##_min32
#define OP(a, b) ref_min_f32(a, b)
#define ROW(n, acc, p) ref_min_f32_n(n, acc, p, acc)
#define START INFINITY
#include "runtime/reference/ref_reduce.inc"

#define T double
#define LOAD ref_load_f64
#define NAME(x) x##_sum64
#define OP(a, b) ((a) + (b))
#define ROW EACH
#define START (-0.0)
#define EMPTY 0.0
#include "runtime/reference/ref_reduce.inc"

#define T double
#define LOAD ref_load_f64
#define NAME(x) x##_prod64
#define OP(a, b) ((a) * (b))
#define ROW EACH
#define START 1.0
#include "runtime/reference/ref_reduce.inc"

#define T double
#define LOAD ref_load_f64
#define NAME(x) x##_max64
#define OP(a, b) ref_max_f64(a, b)
#define ROW(n, acc, p) ref_max_f64_n(n, acc, p, acc)
#define START (-(double)INFINITY)
#include "runtime/reference/ref_reduce.inc"

#define T double
#define LOAD ref_load_f64
#define NAME(x) x##_min64
#define OP(a, b) ref_min_f64(a, b)
#define ROW(n, acc, p) ref_min_f64_n(n, acc, p, acc)
#define START ((double)INFINITY)
#include "runtime/reference/ref_reduce.inc"

#define T uint64_t
#define LOAD load_u64
#define NAME(x) x##_sum_int
#define OP(a, b) ((a) + (b))
#define ROW EACH
#define START 0
#include "runtime/reference/ref_reduce.inc"

#define T uint64_t
#define LOAD load_u64
#define NAME(x) x##_prod_int
#define OP(a, b) ((a) * (b))
#define ROW EACH
#define START 1
#include "runtime/reference/ref_reduce.inc"

#define T int64_t
#define LOAD ref_load_i64
#define NAME(x) x##_max_int
#define OP(a, b) ((a) > (b) ? (a) : (b))
#define ROW EACH
#define START INT64_MIN
#include "runtime/reference/ref_reduce.inc"

#define T int64_t
#define LOAD ref_load_i64
#define NAME(x) x##_min_int
#define OP(a, b) ((a) < (b) ? (a) : (b))
#define ROW EACH
#define START INT64_MAX
#include "runtime/reference/ref_reduce.inc"

/* any and all are max and min of 0 and 1. */
static FoldRun *const run32[] = {run_sum32, run_prod32, run_max32, run_min32};
static FoldRun *const run64[] = {run_sum64, run_prod64, run_max64, run_min64};
static FoldRun *const run_int[] = {run_sum_int, run_prod_int, run_max_int,
                                   run_min_int, run_max_int,  run_min_int};

/* Replaces the result of an empty max or min by the end of the int type. */
static void clamp_empty(DType dt, RefRed f, int64_t *v, int64_t n) {
  static const int64_t low[] = {0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  for (int64_t i = 0; i < n; i++) v[i] = f == RR_MAX || f == RR_ANY ? low[dt] : high[dt];
}

static int64_t magnitude(int64_t x) {
  return x < 0 ? -x : x;
}

/* Appends an axis to a list, or joins it with the one before if they are one axis in memory. */
static void push_axis(int *rank, int64_t *dim, int64_t *step, int64_t n, int64_t by) {
  if (n == 1) return;
  int k = *rank;
  if (k && step[k - 1] == by * n) {
    dim[k - 1] *= n;
    step[k - 1] = by;
    return;
  }
  dim[k] = n;
  step[k] = by;
  *rank = k + 1;
}

Tensor *ref_reduce(Ref *r, RefRed op, const Tensor *x, int naxes, const int64_t *axes) {
  DType dt = x->dtype;
  static const char *const name[] = {"sum", "prod", "max", "min", "any", "all"};
  bool truth = op == RR_ANY || op == RR_ALL;
  if (truth != (dt == DT_BOOL)) {
    return ref_fail(r, REF_VALUE, "%s is not defined for %s", name[op], dtype_info[dt].name);
  }
  bool reduced[CKL_MAX_RANK] = {false};
  int64_t dim[CKL_MAX_RANK], size = (int64_t)dt_size(dt);
  int rank = 0;
  for (int i = 0; i < naxes; i++) reduced[axes[i]] = true;
  for (int i = 0; i < x->rank; i++)
    if (!reduced[i]) dim[rank++] = x->dim[i];
  Tensor *out = ref_new(r, x->store->dev, dt, rank, dim);
  if (!out) return NULL;
  int64_t total = tn_count(out);
  if (total == 0) return out;

  Fold f = {.dt = dt};
  int64_t rdim[CKL_MAX_RANK], rstride[CKL_MAX_RANK];
  int n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!reduced[i]) {
      push_axis(&f.krank, f.kdim, f.kaxis, x->dim[i], x->stride[i] * size);
      continue;
    }
    rdim[n] = x->dim[i];
    rstride[n++] = x->stride[i];
  }
  f.length = tn_product(n, rdim); /* fits, as no kept dim is 0 */
  ref_walk_part(&f.walk, tn_data(x), (int)size, n, rdim, rstride);
  f.rrank = f.walk.rank;
  memcpy(f.rdim, f.walk.dim, sizeof f.rdim);
  memcpy(f.rstep, f.walk.step, sizeof f.rstep);
  int64_t width = 1;
  FoldPart part = FOLD_LINE;
  if (f.krank > 0) {
    int64_t by = magnitude(f.kaxis[f.krank - 1]), along = magnitude(f.rstep[f.rrank - 1]);
    if (by < along || f.length < 4) {
      part = FOLD_PANEL;
      f.krank--;
      width = f.kdim[f.krank];
      f.kstep = f.kaxis[f.krank];
    }
  }
  FoldRun *run = dt == DT_F64 ? run64[op] : dt_float(dt) ? run32[op] : run_int[op];
  int levels = f.length > BLOCK ? LEVELS : 1;
  size_t bytes = (size_t)(LANES + levels) * PANEL * 8;
  Buf small;
  void *room = part == FOLD_PANEL ? ref_scratch(r, bytes) : &small;
  if (!room) return ref_drop(out);

  /* Results gather in `res` until it is full, then are rounded to the dtype. */
  Buf res;
  char *to = tn_data(out);
  const char *base = tn_data(x);
  int each = dt == DT_F64 || !dt_float(dt) ? 8 : 4;
  int64_t at[CKL_MAX_RANK] = {0}, held = 0, since = 0;
  bool ok = true;
  for (int64_t rows = total / width; rows > 0 && ok; rows--) {
    for (int64_t j = 0; j < width && ok; j += PANEL) {
      int64_t w = width - j < PANEL ? width - j : PANEL;
      ok = run(r, &f, room, part, base + j * f.kstep, w, (char *)&res + held * each);
      held += w;
      since += w * (f.length < 65536 ? f.length + 16 : 65536);
      if (since > 262144) {
        since = 0;
        ok = ok && !ref_stopped(r);
      }
      if (held > CHUNK - PANEL || (rows == 1 && j + w == width)) {
        if (f.length == 0 && !dt_float(dt) && op > RR_PROD) clamp_empty(dt, op, res.i64, held);
        if (dt == DT_F64)
          memcpy(to, &res, (size_t)held * 8);
        else if (dt_float(dt))
          ref_store_f32(dt, res.f32, held, to);
        else
          ref_store_i64(dt, res.i64, held, to);
        to += held * size;
        held = 0;
      }
    }
    for (int d = f.krank - 1; d >= 0; d--) {
      base += f.kaxis[d];
      if (++at[d] < f.kdim[d]) break;
      base -= f.kaxis[d] * f.kdim[d];
      at[d] = 0;
    }
  }
  if (part == FOLD_PANEL) ref_scratch_free(r, room, bytes);
  return ok ? out : ref_drop(out);
}

/* ---- argmax, argmin */

/* A NaN beats every number, the first NaN beats later ones; among equals the first wins. */
#define BEATS(v, best) ((best) == (best) && ((v) != (v) || (max ? (v) > (best) : (v) < (best))))

/* The position of the winner among n elements `step` bytes apart; -1 when interrupted. */
static int64_t winner(Ref *r, DType dt, const char *p, int64_t step, int64_t n, bool max) {
  int64_t won = 0;
  if (dt_float(dt)) {
    double buf[CHUNK], best = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t k = n - i < CHUNK ? n - i : CHUNK, j = 0;
      ref_load_f64(dt, p + i * step, step, k, buf);
      if (i == 0) best = buf[j++];
      for (; j < k; j++)
        if (BEATS(buf[j], best)) {
          best = buf[j];
          won = i + j;
        }
      if ((i & 65535) == 64512 && ref_stopped(r)) return -1;
    }
  } else {
    int64_t buf[CHUNK], best = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t k = n - i < CHUNK ? n - i : CHUNK, j = 0;
      ref_load_i64(dt, p + i * step, step, k, buf);
      if (i == 0) best = buf[j++];
      for (; j < k; j++)
        if (max ? buf[j] > best : buf[j] < best) {
          best = buf[j];
          won = i + j;
        }
      if ((i & 65535) == 64512 && ref_stopped(r)) return -1;
    }
  }
  return won;
}

Tensor *ref_argreduce(Ref *r, bool max, const Tensor *x, int axis) {
  DType dt = x->dtype;
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK], at[CKL_MAX_RANK] = {0};
  int rank = 0, size = (int)dt_size(dt);
  for (int i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    dim[rank] = x->dim[i];
    stride[rank++] = x->stride[i] * size;
  }
  int64_t n = x->dim[axis], step = x->stride[axis] * size, since = 0;
  Tensor *out = ref_new(r, x->store->dev, DT_I64, rank, dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), *to = tn_data(out);
  if (total > 0 && n == 0) {
    ref_fail(r, REF_VALUE, "%s over axis %d of size 0", max ? "argmax" : "argmin", axis);
    return ref_drop(out);
  }
  const char *base = tn_data(x);
  for (int64_t i = 0; i < total; i++) {
    to[i] = winner(r, dt, base, step, n, max);
    since += n + 16;
    if (to[i] < 0) return ref_drop(out);
    if (since > 131072) {
      since = 0;
      if (ref_stopped(r)) return ref_drop(out);
    }
    for (int d = rank - 1; d >= 0; d--) {
      base += stride[d];
      if (++at[d] < dim[d]) break;
      base -= stride[d] * dim[d];
      at[d] = 0;
    }
  }
  return out;
}

/* ---- running sums: y[0] = x[0], y[i] = y[i - 1] + x[i]; f16 and bf16 keep the sum in f32 and
 * round it for each y[i]. Running extremes: y[i] is x[i], if that comes before y[i - 1] as for
 * argmax and argmin, else y[i - 1]. `reverse` starts from the end. */

typedef enum Running { RUNNING_SUM, RUNNING_MAX, RUNNING_MIN } Running;

#define NEXT(T, F)                                                                                 \
  static T F(Running kind, T a, T x) {                                                             \
    if (kind == RUNNING_SUM) return a + x;                                                         \
    bool max = kind == RUNNING_MAX;                                                                \
    return BEATS(x, a) ? x : a;                                                                    \
  }
NEXT(double, next_f64)
NEXT(float, next_f32)

static int64_t next_i64(Running kind, int64_t a, int64_t x) {
  if (kind == RUNNING_SUM) return (int64_t)((uint64_t)a + (uint64_t)x);
  return (kind == RUNNING_MAX ? x > a : x < a) ? x : a;
}

/* One step of `width` running values: takes the row at p into acc and stores acc at q (`ds` bytes
 * apart). */
static void scan_row(Running kind, DType dt, bool first, const char *p, int64_t ss, char *q,
                     int64_t ds, int64_t width, Buf *acc) {
  Buf row, res;
  if (dt == DT_F64) {
    ref_load_f64(dt, p, ss, width, row.f64);
    for (int64_t j = 0; j < width; j++)
      acc->f64[j] = first ? row.f64[j] : next_f64(kind, acc->f64[j], row.f64[j]);
    ref_copy_out(q, ds, acc, width, 8);
  } else if (dt_float(dt)) {
    ref_load_f32(dt, p, ss, width, row.f32);
    for (int64_t j = 0; j < width; j++)
      acc->f32[j] = first ? row.f32[j] : next_f32(kind, acc->f32[j], row.f32[j]);
    ref_store_f32(dt, acc->f32, width, &res);
    ref_copy_out(q, ds, &res, width, (int)dt_size(dt));
  } else {
    ref_load_i64(dt, p, ss, width, row.i64);
    for (int64_t j = 0; j < width; j++)
      acc->i64[j] = first ? row.i64[j] : next_i64(kind, acc->i64[j], row.i64[j]);
    ref_store_i64(dt, acc->i64, width, &res);
    ref_copy_out(q, ds, &res, width, (int)dt_size(dt));
  }
}

static Tensor *scan(Ref *r, Running kind, const Tensor *x, int axis, bool reverse) {
  DType dt = x->dtype;
  Tensor *out = ref_new(r, x->store->dev, dt, x->rank, x->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), size = (int64_t)dt_size(dt), n = x->dim[axis], since = 0;
  if (total == 0) return out;
  int64_t to[CKL_MAX_RANK], dim[CKL_MAX_RANK], sx[CKL_MAX_RANK], sy[CKL_MAX_RANK];
  int64_t at[CKL_MAX_RANK] = {0};
  int rank = 0;
  ref_row_major(x->rank, x->dim, to);
  for (int i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    dim[rank] = x->dim[i];
    sx[rank] = x->stride[i] * size;
    sy[rank++] = to[i] * size;
  }
  /* Neighbouring running sums go along the axis together, as a panel. */
  int64_t width = 1, px = size, py = size;
  if (rank > 0) {
    rank--;
    width = dim[rank];
    px = sx[rank];
    py = sy[rank];
  }
  int64_t ss = x->stride[axis] * size, ds = to[axis] * size;
  const char *src = tn_data(x);
  char *dst = tn_data(out);
  if (reverse) {
    src += (n - 1) * ss;
    dst += (n - 1) * ds;
    ss = -ss;
    ds = -ds;
  }
  for (int64_t rows = total / n / width; rows > 0; rows--) {
    for (int64_t j = 0; j < width; j += PANEL) {
      int64_t w = width - j < PANEL ? width - j : PANEL;
      Buf acc;
      for (int64_t i = 0; i < n; i++) {
        scan_row(kind, dt, i == 0, src + j * px + i * ss, px, dst + j * py + i * ds, py, w, &acc);
        since += w + 8;
        if (since > 131072) {
          since = 0;
          if (ref_stopped(r)) return ref_drop(out);
        }
      }
    }
    for (int d = rank - 1; d >= 0; d--) {
      src += sx[d];
      dst += sy[d];
      if (++at[d] < dim[d]) break;
      src -= sx[d] * dim[d];
      dst -= sy[d] * dim[d];
      at[d] = 0;
    }
  }
  return out;
}

Tensor *ref_cumsum(Ref *r, const Tensor *x, int axis, bool reverse) {
  if (x->dtype == DT_BOOL) return ref_fail(r, REF_VALUE, "cumsum is not defined for bool");
  return scan(r, RUNNING_SUM, x, axis, reverse);
}

Tensor *ref_cumextreme(Ref *r, bool max, const Tensor *x, int axis, bool reverse) {
  if (x->dtype == DT_BOOL)
    return ref_fail(r, REF_VALUE, "cum%s is not defined for bool", max ? "max" : "min");
  return scan(r, max ? RUNNING_MAX : RUNNING_MIN, x, axis, reverse);
}
