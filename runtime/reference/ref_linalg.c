/* Factorizations of matrices: Cholesky, LU, QR, triangular systems, eigenvalues of symmetric and of
 * general ones, singular values.
 *
 * In: tensors [B.., N, N], or [B.., M, N], of any strides, float. Out: new row-major tensors. Each
 * matrix of a batch is copied to work memory in the computing type (f32 for f16 and bf16), done
 * there, and stored with one rounding.
 *
 * The idea: recursion (Toledo, SIAM J. Matrix Anal. Appl. 1997) down to leaves of 16 rows, or
 * panels of 32 reflections, which are plain loops; everything else is contractions, so it is as
 * fast as these and has bits by rule 105, on every machine and for any number of threads.
 * Eigenvalues and singular values have loops beside these.
 *
 * Invariant: the way depends on the sizes and the dtype alone, so a matrix of a batch has the bits
 * that it has alone. */
#include "runtime/reference/ref_gemm.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LEAF = 16, WIDE = 32, FEW = 4, STRIPE = 128, PANEL = 32, STRIP = 64, SPLIT = 64 };
/* How many rotations of n rows are put down before they are done. */
#define TURNS(n) (8 * (n) + 16)

typedef struct Work {
  Ref *r;
  GemmRoom room;
  int level; /* of loops along rows, as gemm_level says */
} Work;

typedef struct Triangle {
  bool upper, unit; /* unit: ones stand for the diagonal */
} Triangle;

/* f for 0 .. n-1, on all threads if that pays; `work`: multiplications. False with r->err filled
 * when interrupted. */
static bool share(const Work *w, PoolFn f, void *ud, int64_t n, int64_t work) {
  enum { SHARE = 1 << 22 }; /* 1 ms of one core, as threads may have to wait */
  Pool *pool = w->r->pool;
  if (!pool || work < SHARE) {
    f(ud, 0, n, 0);
    return true;
  }
  int64_t threads = pool_threads(pool), chunk = (n + threads - 1) / threads;
  return pool_run(pool, f, ud, n, chunk < 1 ? 1 : chunk, w->r->interrupt) || !ref_stopped(w->r);
}

/* Numbers of work memory for reflections of length `length` that are applied to `rows` rows. */
static int64_t panel_room(int64_t length, int64_t rows) {
  return PANEL * (length + PANEL + 2 * rows);
}

/* The same for a matrix of n rows that is divided. */
static int64_t divide_room(int64_t n) {
  return n * n + 9 * n;
}

/* The same for singular values of a matrix [m, n] with `rows` left vectors; a rotation takes at
 * most the room of 4 numbers. */
static int64_t svd_room(int64_t m, int64_t n, int64_t rows) {
  int64_t halves = rows > 0 && n > SPLIT ? n * n + divide_room(n) : 0;
  return 3 * n * n + 2 * PANEL * n + 6 * n + panel_room(m, rows > n ? rows : n) + 8 * TURNS(n) + 8 +
         halves;
}

/* The same for eigenvalues of a matrix of n rows. */
static int64_t eigh_room(int64_t n) {
  int64_t rest = n <= SPLIT ? 4 * TURNS(n) : 4 * TURNS(SPLIT) + divide_room(n);
  return n * n + PANEL * n + 2 * n + panel_room(n, n) + rest + 8;
}

/* The same for eigenvalues of a general matrix of n rows. */
static int64_t eig_room(int64_t n, bool alone) {
  return (alone ? 1 : 2) * n * n + 7 * n + panel_room(n, n) + 8;
}

/* The rows that go first: about half, full leaves. */
static int64_t half_of(int64_t n) {
  return (n / LEAF + 1) / 2 * LEAF;
}

typedef struct Product { /* of `subtract`; steps of a and b in bytes, of c in elements */
  GemmKind kind;
  DType dtype;
  const char *a, *b;
  int64_t ar, ac, br, bc;
  char *c;
  int64_t cr, cc;
} Product;

static void pack_left(const Gemm *g, int64_t i0, int64_t lines, int64_t k0, int64_t kc,
                      int64_t width, void *out) {
  const Product *p = g->ud;
  gemm_pack(p->kind, p->dtype, 0, p->a + i0 * p->ar + k0 * p->ac, p->ar, p->ac, lines, kc, width,
            out);
}

static void pack_right(const Gemm *g, int64_t j0, int64_t lines, int64_t k0, int64_t kc,
                       int64_t width, void *out) {
  const Product *p = g->ud;
  gemm_pack(p->kind, p->dtype, 0, p->b + j0 * p->bc + k0 * p->br, p->bc, p->br, lines, kc, width,
            out);
}

typedef struct Grid { /* matrices done at once; steps in elements */
  const void *at;
  int64_t step, row, col; /* to the next matrix, row and column */
} Grid;

#define T float
#define GEMM GEMM_F32
#define DTYPE DT_F32
#define NAME(x) x##_f32
#define ROOT sqrtf
#define MAGNITUDE fabsf
#define MOST(x) FLT_MAX
#define EPSILON FLT_EPSILON
#define TINY 0x1p-63f
#define WORD int32_t
#include "runtime/reference/ref_linalg.inc"
#include "runtime/reference/ref_orthogonal.inc"
#include "runtime/reference/ref_secular.inc"
#include "runtime/reference/ref_eigh.inc"
#include "runtime/reference/ref_svd.inc"
#include "runtime/reference/ref_eig.inc"
#include "runtime/reference/ref_lanes.inc"
#undef T
#undef GEMM
#undef DTYPE
#undef NAME
#undef ROOT
#undef MAGNITUDE
#undef MOST
#undef EPSILON
#undef TINY
#undef WORD
#undef BY_LEVEL

#define T double
#define GEMM GEMM_F64
#define DTYPE DT_F64
#define NAME(x) x##_f64
#define ROOT sqrt
#define MAGNITUDE fabs
#define MOST(x) DBL_MAX
#define EPSILON DBL_EPSILON
#define TINY 0x1p-511
#define WORD int64_t
#include "runtime/reference/ref_linalg.inc"
#include "runtime/reference/ref_orthogonal.inc"
#include "runtime/reference/ref_secular.inc"
#include "runtime/reference/ref_eigh.inc"
#include "runtime/reference/ref_svd.inc"
#include "runtime/reference/ref_eig.inc"
#include "runtime/reference/ref_lanes.inc"

/* ---- matrices of a batch */

/* A place among the matrices of tensors whose batch axes are equal. */
typedef struct Batch {
  int rank; /* batch axes */
  const int64_t *dim;
  int64_t count, at[CKL_MAX_RANK];
  int64_t number; /* of the matrix at hand */
} Batch;

static Batch batch_of(const Tensor *x) {
  Batch b = {.rank = x->rank - 2, .dim = x->dim};
  b.count = tn_product(b.rank, b.dim);
  return b;
}

/* Goes to a matrix. */
static void batch_go(Batch *b, int64_t number) {
  b->number = number;
  for (int k = b->rank - 1; k >= 0; k--) {
    b->at[k] = number % b->dim[k];
    number /= b->dim[k];
  }
}

static void batch_next(Batch *b) {
  b->number++;
  for (int k = b->rank - 1; k >= 0; k--) {
    if (++b->at[k] < b->dim[k]) return;
    b->at[k] = 0;
  }
}

/* The matrix (the vector, if x has one axis less) at hand. */
static char *matrix_at(const Batch *b, const Tensor *x) {
  char *p = tn_data(x);
  for (int k = 0; k < b->rank; k++) p += b->at[k] * x->stride[k] * (int64_t)dt_size(x->dtype);
  return p;
}

/* What kernels of one matrix compute with. */
typedef struct Kind {
  DType dt;
  bool wide; /* f64, else f32 */
  size_t size;
} Kind;

static Kind kind_of(DType dt) {
  bool wide = dt == DT_F64;
  return (Kind){dt, wide, wide ? 8 : 4};
}

static void load_line(const Kind *k, const char *src, int64_t step, int64_t n, void *to) {
  if (k->wide)
    ref_load_f64(k->dt, src, step, n, to);
  else
    ref_load_f32(k->dt, src, step, n, to);
}

static void store_line(const Kind *k, const void *from, int64_t n, char *to) {
  if (k->wide)
    memcpy(to, from, (size_t)n * 8);
  else
    ref_store_f32(k->dt, from, n, to);
}

/* The matrix at src of x, m rows of n, into `to`; where `rows` is given, row i from row rows[i]. */
static void load_rows(const Kind *k, const Tensor *x, const char *src, int64_t m, int64_t n,
                      const int64_t *rows, char *to) {
  int64_t size = (int64_t)dt_size(x->dtype);
  int64_t by = x->stride[x->rank - 2] * size, step = x->stride[x->rank - 1] * size;
  for (int64_t i = 0; i < m; i++)
    load_line(k, src + (rows ? rows[i] : i) * by, step, n, to + (size_t)(i * n) * k->size);
}

/* ---- the matrices of a batch, shared over threads */

/* What is done with each matrix. Rooms count numbers of the computing type; each part is rounded up
 * to whole cache lines. */
typedef struct Job Job;
struct Job {
  /* One matrix, with `room` for it. False with w->r->err filled. */
  bool (*one)(const Job *j, Work *w, const Batch *b, char *const *room);
  /* `lanes` of them at once, from `number` on; false: one by one. NULL: always so. */
  bool (*many)(const Job *j, const Work *w, int64_t number);
  int64_t lanes, step[3]; /* numbers from a matrix of x, y and perm to the next one */
  Kind k;
  const Tensor *x, *y, *perm;
  Tensor *out[3];
  int64_t m, n, count;
  bool flag, other;
  int64_t room[4]; /* numbers of f64 in each part */
  int64_t side;    /* the most rows and columns of its contractions */
  double work;     /* multiplications */
};

enum { PARTS = 4, SHARED = 1 << 18 }; /* multiplications from which on threads pay */

typedef struct Worker {
  Ref ref;
  Work w;
  char *room[PARTS];
  int64_t failed; /* the first matrix that failed, or the number of all */
} Worker;

typedef struct Crew {
  const Job *job;
  const Tensor *like;
  Worker *worker;
} Crew;

static void some_matrices(void *ud, int64_t lo, int64_t hi, int thread) {
  const Crew *c = ud;
  Worker *x = &c->worker[thread];
  Batch b = batch_of(c->like);
  batch_go(&b, lo);
  const Job *j = c->job;
  while (b.number < hi && b.number < x->failed)
    if (j->many && hi - b.number >= j->lanes && j->many(j, &x->w, b.number))
      batch_go(&b, b.number + j->lanes);
    else if (j->one(j, &x->w, &b, x->room))
      batch_next(&b);
    else
      x->failed = b.number;
}

/* Does the job for each matrix of `like`; the first that fails decides the error. A batch of small
 * ones has a thread for each, a large one has all threads for its contractions. */
static bool each_matrix(Ref *r, const Job *j, const Tensor *like) {
  int64_t count = batch_of(like).count;
  if (count == 0) return true;
  bool shared = r->pool && count > 1 && j->work * (double)count > SHARED && j->work < 1e8;
  int threads = shared ? pool_threads(r->pool) : 1;
  size_t part[PARTS], each = 0, head = ((size_t)threads * sizeof(Worker) + 63) & ~(size_t)63;
  for (int i = 0; i < PARTS; i++) {
    if (j->room[i] > INT64_MAX / 1024) return ref_nomem(r) != NULL;
    part[i] = ((size_t)j->room[i] * 8 + 63) & ~(size_t)63;
    each += part[i];
  }
  size_t bytes = head + (size_t)threads * each;
  char *all = ref_scratch(r, bytes), *at = all;
  if (!all) return false;
  Crew c = {j, like, (Worker *)(void *)all};
  bool ok = true;
  at += head;
  for (int i = 0; i < threads; i++) {
    Worker *x = &c.worker[i];
    *x = (Worker){.ref = *r, .failed = count};
    x->ref.pool = shared ? NULL : r->pool;
    x->w = (Work){.r = &x->ref, .level = gemm_level(r)};
    for (int k = 0; k < PARTS; at += part[k++]) x->room[k] = at;
    if (shared && j->side > 0 && ok) /* threads allocate nothing */
      ok = gemm_reserve(r, &x->w.room, j->k.wide ? GEMM_F64 : GEMM_F32, j->side, j->side, j->side);
  }
  if (ok && shared) {
    int64_t chunk = count / (8 * threads);
    ok = pool_run(r->pool, some_matrices, &c, count, chunk < 1 ? 1 : chunk, r->interrupt);
    if (!ok) ref_stopped(r);
  } else if (ok) {
    some_matrices(&c, 0, count, 0);
  }
  const Worker *first = &c.worker[0];
  for (int i = 0; i < threads; i++) {
    if (c.worker[i].failed < first->failed) first = &c.worker[i];
    gemm_close(r, &c.worker[i].w.room);
  }
  if (ok && first->failed < count) {
    r->err = first->ref.err;
    ok = false;
  }
  ref_scratch_free(r, all, bytes);
  return ok;
}

/* Numbers of a matrix; too many for any memory if that overflows. */
static int64_t area(int64_t m, int64_t n) {
  return n > 0 && m > INT64_MAX / 1024 / n ? INT64_MAX : m * n + 8;
}

static char *out_at(const Job *j, int i, int64_t number, int64_t each) {
  return (char *)tn_data(j->out[i]) + number * each * (int64_t)dt_size(j->out[i]->dtype);
}

static bool fail_matrix(Work *w, int kind, const Batch *b, const char *text, int64_t at) {
  ref_fail_at(w->r, kind, b->rank, b->dim, b->number, " of the batch", text, (long long)at);
  return false;
}

/* Whether the matrices (the vectors, if `axes` is 1) of x are all as far apart as the first two. */
static bool evenly(const Tensor *x, int axes, int64_t *step) {
  int64_t next = -1;
  *step = 0;
  for (int k = x->rank - 1 - axes; k >= 0; k--) {
    if (x->dim[k] == 1) continue;
    if (next < 0) *step = x->stride[k];
    if (next >= 0 && x->stride[k] != next) return false;
    next = x->stride[k] * x->dim[k];
  }
  return true;
}

/* Whether MANY matrices of a batch may be done at once. */
static bool lanes_fit(const Ref *r, Job *j) {
  bool fit =
      j->n <= LEAF && (j->k.dt == DT_F64 || j->k.dt == DT_F32) && evenly(j->x, 2, &j->step[0]) &&
      (!j->y || evenly(j->y, 2, &j->step[1])) &&
      (!j->perm || (j->perm->stride[j->perm->rank - 1] == 1 && evenly(j->perm, 1, &j->step[2])));
  j->lanes = (8 << gemm_level(r)) / (int64_t)j->k.size; /* vectors of 16, 32 or 64 bytes */
  return fit;
}

/* Matrices of x or y from `number` on. */
static Grid grid_at(const Job *j, const Tensor *x, int64_t step, int64_t number) {
  const char *at = (const char *)tn_data(x) + number * step * (int64_t)j->k.size;
  return (Grid){at, step, x->stride[x->rank - 2], x->stride[x->rank - 1]};
}

/* Gives the results of a job that has been done, or none of them. */
static bool give(Job *j, bool ok, int n, Tensor **const *out) {
  for (int i = 0; i < n; i++) {
    if (!ok) tn_unref(j->out[i]);
    *out[i] = ok ? j->out[i] : NULL;
  }
  return ok;
}

/* ---- Cholesky and LU */

static bool one_cholesky(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n, step = n * (int64_t)dt_size(k->dt);
  char *a = room[0], *to = out_at(j, 0, b->number, n * n);
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, a);
  k->wide ? symmetric_f64(n, (double *)a) : symmetric_f32(n, (float *)a);
  int64_t done = k->wide ? cholesky_f64(w, n, (double *)a, n) : cholesky_f32(w, n, (float *)a, n);
  if (done >= 0 && done < n)
    return fail_matrix(w, REF_POSITIVE, b,
                       "the matrix is not positive definite: its leading minor of order %lld is "
                       "not positive",
                       done + 1);
  for (int64_t i = 0; done == n && i < n; i++, to += step) {
    char *row = a + (size_t)(i * n) * k->size;
    memset(row + (size_t)(i + 1) * k->size, 0, (size_t)(n - 1 - i) * k->size);
    store_line(k, row, n, to);
  }
  return done == n && !ref_stopped(w->r);
}

/* The one result of a job, of the shape of b. */
static Tensor *result_like(Ref *r, Job *j, const Tensor *b) {
  j->out[0] = ref_new(r, b->store->dev, b->dtype, b->rank, b->dim);
  bool ok = j->out[0] && each_matrix(r, j, b);
  return ok ? j->out[0] : ref_drop(j->out[0]);
}

Tensor *ref_cholesky(Ref *r, const Tensor *x) {
  int64_t n = x->dim[x->rank - 1];
  Job j = {one_cholesky, .k = kind_of(x->dtype), .x = x, .n = n, .side = n > LEAF ? n : 0};
  j.room[0] = area(n, n);
  j.work = (double)n * n * (n + 30) / 3;
  return result_like(r, &j, x);
}

static bool one_cholesky_grad(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n, step = n * (int64_t)dt_size(k->dt);
  char *l = room[0], *d = room[1], *to = out_at(j, 0, b->number, n * n);
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, l);
  load_rows(k, j->y, matrix_at(b, j->y), n, n, NULL, d);
  if (!(k->wide ? cholesky_grad_f64(w, n, (double *)l, (double *)d, n, (double *)room[2])
                : cholesky_grad_f32(w, n, (float *)l, (float *)d, n, (float *)room[2])))
    return false;
  k->wide ? spread_f64(n, (double *)d) : spread_f32(n, (float *)d);
  for (int64_t i = 0; i < n; i++, to += step) store_line(k, d + (size_t)(i * n) * k->size, n, to);
  return true;
}

Tensor *ref_cholesky_grad(Ref *r, const Tensor *l, const Tensor *g) {
  int64_t n = l->dim[l->rank - 1], half = n / 2 + LEAF;
  Job j = {one_cholesky_grad, .k = kind_of(l->dtype), .x = l, .y = g, .n = n};
  j.side = n > LEAF ? n : 0;
  j.room[0] = j.room[1] = area(n, n);
  j.room[2] = n > LEAF ? area(half, half) : 0;
  j.work = (double)n * n * (n + 30) / 2;
  return result_like(r, &j, l);
}

/* l and u of the matrix at hand into a, and its rows in their order; `pivot` has room for n.
 * Returns how many were exchanged; -1 with w->r->err filled. */
static int64_t factor(const Job *j, Work *w, const Batch *b, char *a, int64_t *pivot,
                      int64_t *rows) {
  const Kind *k = &j->k;
  int64_t n = j->n, zero = n, odd = 0;
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, a);
  if (!(k->wide ? lu_f64(w, n, n, (double *)a, n, pivot, 0, &zero)
                : lu_f32(w, n, n, (float *)a, n, pivot, 0, &zero)))
    return -1;
  if (j->flag && zero < n) {
    fail_matrix(w, REF_SINGULAR, b,
                "the matrix is singular: column %lld depends on those before it", zero);
    return -1;
  }
  for (int64_t i = 0; i < n; i++) rows[i] = i;
  for (int64_t i = 0; i < n; i++) {
    int64_t other = rows[i];
    rows[i] = rows[pivot[i]];
    rows[pivot[i]] = other;
    odd += pivot[i] != i;
  }
  return odd;
}

static bool one_lu(const Job *j, Work *w, const Batch *b, char *const *room) {
  int64_t n = j->n, *pivot = (int64_t *)(void *)room[1];
  int64_t *rows = (int64_t *)(void *)out_at(j, 1, b->number, n);
  int64_t odd = factor(j, w, b, room[0], pivot, rows);
  if (odd < 0) return false;
  store_line(&j->k, room[0], n * n, out_at(j, 0, b->number, n * n));
  *(int64_t *)(void *)out_at(j, 2, b->number, 1) = odd;
  return true;
}

static bool many_lu(const Job *j, const Work *w, int64_t number) {
  Grid a = grid_at(j, j->x, j->step[0], number);
  int64_t n = j->n, *perm = (int64_t *)(void *)out_at(j, 1, number, n),
          *odd = (int64_t *)(void *)out_at(j, 2, number, 1);
  char *f = out_at(j, 0, number, n * n);
  return j->k.wide ? lu_many_f64(w, n, &a, f, perm, odd) : lu_many_f32(w, n, &a, f, perm, odd);
}

bool ref_lu(Ref *r, const Tensor *x, bool regular, Tensor **lu, Tensor **perm, Tensor **swaps) {
  int64_t n = x->dim[x->rank - 1];
  Device dev = x->store->dev;
  Job j = {one_lu, .k = kind_of(x->dtype), .x = x, .n = n, .flag = regular};
  j.side = n > LEAF ? n : 0;
  j.room[0] = area(n, n);
  j.room[1] = area(n, 1);
  j.work = (double)n * n * (n + 30) / 3;
  if (lanes_fit(r, &j)) j.many = many_lu;
  j.out[0] = ref_new(r, dev, x->dtype, x->rank, x->dim);
  j.out[1] = j.out[0] ? ref_new(r, dev, DT_I64, x->rank - 1, x->dim) : NULL;
  j.out[2] = j.out[1] ? ref_new(r, dev, DT_I64, x->rank - 2, x->dim) : NULL;
  bool ok = j.out[2] && each_matrix(r, &j, x);
  return give(&j, ok, 3, (Tensor * *const[]){lu, perm, swaps});
}

/* ---- systems */

/* m columns of y become the solution of the triangle a of n rows; `across`: of its transpose. */
static bool solve_triangle(Work *w, const Kind *k, bool upper, bool unit, bool across, int64_t n,
                           const char *a, char *y, int64_t m) {
  Triangle t = {upper != across, unit};
  int64_t ar = across ? 1 : n, ac = across ? n : 1;
  return k->wide ? triangle_f64(w, &t, n, (const double *)a, ar, ac, (double *)y, m, 1, m)
                 : triangle_f32(w, &t, n, (const float *)a, ar, ac, (float *)y, m, 1, m);
}

/* A system of matrices a [n, n] with right sides b [n, m]. */
static Job system_of(const Tensor *a, const Tensor *b) {
  int64_t n = b->dim[b->rank - 2], m = b->dim[b->rank - 1];
  Job j = {.k = kind_of(a->dtype), .x = a, .y = b, .n = n, .m = m};
  j.side = n <= LEAF ? 0 : n > m ? n : m;
  j.room[0] = area(n, n);
  j.room[1] = area(n, m);
  j.room[2] = area(n, 1);
  j.work = (double)n * (n + 30) * (m + 1);
  return j;
}

static bool one_triangular(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n, m = j->m, step = m * (int64_t)dt_size(k->dt);
  char *l = room[0], *y = room[1], *to = out_at(j, 0, b->number, n * m);
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, l);
  load_rows(k, j->y, matrix_at(b, j->y), n, m, NULL, y);
  bool ok = solve_triangle(w, k, j->flag, j->other, false, n, l, y, m);
  for (int64_t i = 0; ok && i < n; i++, to += step)
    store_line(k, y + (size_t)(i * m) * k->size, m, to);
  return ok;
}

Tensor *ref_triangular(Ref *r, const Tensor *a, const Tensor *b, bool upper, bool unit) {
  Job j = system_of(a, b);
  j.one = one_triangular;
  j.flag = upper;
  j.other = unit;
  return result_like(r, &j, b);
}

/* The rows of a permutation; false with r->err filled if it is none of n rows. */
static bool load_permutation(Ref *r, const Tensor *perm, const char *src, int64_t n, int64_t *out) {
  int64_t step = perm->stride[perm->rank - 1] * 8;
  for (int64_t i = 0; i < n; i++) {
    memcpy(&out[i], src + i * step, 8);
    if (out[i] < 0 || out[i] >= n)
      return ref_fail(r, REF_INDEX, "index %lld is out of range for a permutation of %lld rows",
                      (long long)out[i], (long long)n);
  }
  return true;
}

/* Solves the system of the factors f and the rows of the matrix at hand, with room y. */
static bool substitute(const Job *j, Work *w, const Batch *b, bool across, const char *f,
                       const int64_t *rows, char *y) {
  const Kind *k = &j->k;
  int64_t n = j->n, m = j->m, step = m * (int64_t)dt_size(k->dt);
  char *to = out_at(j, 0, b->number, n * m);
  load_rows(k, j->y, matrix_at(b, j->y), n, m, across ? NULL : rows, y);
  bool ok = solve_triangle(w, k, across, !across, across, n, f, y, m) &&
            solve_triangle(w, k, !across, across, across, n, f, y, m);
  for (int64_t i = 0; ok && i < n; i++)
    store_line(k, y + (size_t)(i * m) * k->size, m, to + (across ? rows[i] : i) * step);
  return ok;
}

static bool one_solve(const Job *j, Work *w, const Batch *b, char *const *room) {
  int64_t n = j->n, *rows = (int64_t *)(void *)room[2];
  if (!load_permutation(w->r, j->perm, matrix_at(b, j->perm), n, rows)) return false;
  load_rows(&j->k, j->x, matrix_at(b, j->x), n, n, NULL, room[0]);
  return substitute(j, w, b, j->flag, room[0], rows, room[1]);
}

static bool many_solve(const Job *j, const Work *w, int64_t number) {
  Grid f = grid_at(j, j->x, j->step[0], number), b = grid_at(j, j->y, j->step[1], number);
  const int64_t *perm = (const int64_t *)(const void *)tn_data(j->perm) + number * j->step[2];
  int64_t n = j->n, m = j->m, pstep = j->step[2];
  char *x = out_at(j, 0, number, n * m);
  return j->k.wide ? solve_many_f64(w, j->flag, n, m, &f, perm, pstep, &b, x)
                   : solve_many_f32(w, j->flag, n, m, &f, perm, pstep, &b, x);
}

Tensor *ref_solve(Ref *r, const Tensor *lu, const Tensor *perm, const Tensor *b, bool across) {
  Job j = system_of(lu, b);
  j.one = one_solve;
  j.perm = perm;
  j.flag = across;
  if (lanes_fit(r, &j)) j.many = many_solve;
  return result_like(r, &j, b);
}

static bool one_system(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n, *pivot = (int64_t *)(void *)room[2], *rows = pivot + n;
  if (factor(j, w, b, room[0], pivot, rows) < 0) return false;
  if (k->size != dt_size(k->dt)) { /* rounded, as results of `lu` are */
    store_line(k, room[0], n * n, room[3]);
    load_line(k, room[3], (int64_t)dt_size(k->dt), n * n, room[0]);
  }
  return substitute(j, w, b, false, room[0], rows, room[1]);
}

static bool many_systems(const Job *j, const Work *w, int64_t number) {
  Grid a = grid_at(j, j->x, j->step[0], number), b = grid_at(j, j->y, j->step[1], number);
  char *x = out_at(j, 0, number, j->n * j->m);
  return j->k.wide ? system_many_f64(w, j->n, j->m, &a, &b, x)
                   : system_many_f32(w, j->n, j->m, &a, &b, x);
}

Tensor *ref_factor_solve(Ref *r, const Tensor *a, const Tensor *b) {
  Job j = system_of(a, b);
  j.one = one_system;
  j.flag = true;
  j.room[2] = area(j.n, 2);
  j.room[3] = j.k.size == dt_size(j.k.dt) ? 0 : area(j.n, j.n);
  j.work += (double)j.n * j.n * (j.n + 30) / 3;
  if (j.m > 0 && lanes_fit(r, &j)) j.many = many_systems;
  return result_like(r, &j, b);
}

/* ---- eigenvalues, QR and singular values */

/* The matrix at src of x [m, n] into `to`, column after column; with `rows` row after row. */
static void load_lines(const Kind *k, const Tensor *x, const char *src, bool rows, char *to) {
  int64_t m = x->dim[x->rank - 2], n = x->dim[x->rank - 1], size = (int64_t)dt_size(x->dtype);
  int64_t by = x->stride[x->rank - 1] * size, step = x->stride[x->rank - 2] * size;
  if (rows) {
    load_rows(k, x, src, m, n, NULL, to);
    return;
  }
  for (int64_t j = 0; j < n; j++)
    load_line(k, src + j * by, step, m, to + (size_t)(j * m) * k->size);
}

/* Stores the matrix [m, n] whose columns are `from`, `ld` apart; `line` has room for n. */
static void store_columns(const Kind *k, int64_t m, int64_t n, const char *from, int64_t ld,
                          char *line, char *to) {
  for (int64_t i = 0; i < m; i++, to += n * (int64_t)dt_size(k->dt)) {
    for (int64_t j = 0; j < n; j++)
      memcpy(line + (size_t)j * k->size, from + (size_t)(j * ld + i) * k->size, k->size);
    store_line(k, line, n, to);
  }
}

static Tensor *new_matrices(Ref *r, const Tensor *x, int64_t m, int64_t n) {
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < x->rank - 2; i++) dim[i] = x->dim[i];
  dim[x->rank - 2] = m;
  dim[x->rank - 1] = n;
  return ref_new(r, x->store->dev, x->dtype, x->rank, dim);
}

/* False, with an error if there is none yet. */
static bool no_end(Work *w, const Batch *b, const char *text, int64_t rows) {
  return w->r->err.kind == REF_OK && fail_matrix(w, REF_VALUE, b, text, rows);
}

static bool one_eigh(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n;
  char *a = room[0], *q = j->flag ? NULL : room[1], *d = room[2];
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, a);
  bool ok = k->wide ? eigh_f64(w, n, (double *)a, (double *)q, (double *)d, (double *)room[3])
                    : eigh_f32(w, n, (float *)a, (float *)q, (float *)d, (float *)room[3]);
  if (!ok) return no_end(w, b, "the eigenvalues of a matrix of %lld rows do not converge", n);
  store_line(k, d, n, out_at(j, 0, b->number, n));
  if (q) store_columns(k, n, n, q, n, a, out_at(j, 1, b->number, n * n));
  return true;
}

bool ref_eigh(Ref *r, const Tensor *x, bool alone, Tensor **values, Tensor **vectors) {
  int64_t n = x->dim[x->rank - 1];
  Job j = {one_eigh, .k = kind_of(x->dtype), .x = x, .n = n, .flag = alone};
  j.side = n > PANEL ? n : PANEL;
  j.room[0] = area(n, n);
  j.room[1] = alone ? 0 : area(n, n);
  j.room[2] = area(n, 1);
  j.room[3] = area(n, n) == INT64_MAX ? INT64_MAX : eigh_room(n);
  j.work = (alone ? 2.0 : 9.0) * (double)n * n * (n + 30);
  j.out[0] = ref_new(r, x->store->dev, x->dtype, x->rank - 1, x->dim);
  j.out[1] = j.out[0] ? new_matrices(r, x, n, alone ? 0 : n) : NULL;
  bool ok = j.out[1] && each_matrix(r, &j, x);
  return give(&j, ok, 2, (Tensor * *const[]){values, vectors});
}

static bool one_eig(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t n = j->n;
  char *a = room[0], *x = j->flag ? NULL : room[1], *values = room[2];
  char *y = x ? x + (size_t)(n * n) * k->size : NULL;
  load_rows(k, j->x, matrix_at(b, j->x), n, n, NULL, a);
  bool ok = k->wide ? eig_f64(w, n, (double *)a, (double *)x, (double *)y, (double *)values,
                              (double *)room[3])
                    : eig_f32(w, n, (float *)a, (float *)x, (float *)y, (float *)values,
                              (float *)room[3]);
  if (!ok) return no_end(w, b, "the eigenvalues of a matrix of %lld rows do not converge", n);
  store_line(k, values, 2 * n, out_at(j, 0, b->number, 2 * n));
  if (!x) return true;
  store_columns(k, n, n, x, n, a, out_at(j, 1, 2 * b->number, n * n));
  store_columns(k, n, n, y, n, a, out_at(j, 1, 2 * b->number + 1, n * n));
  return true;
}

bool ref_eig(Ref *r, const Tensor *x, bool alone, Tensor **values, Tensor **vectors) {
  int64_t n = x->dim[x->rank - 1], dim[CKL_MAX_RANK + 1];
  Job j = {one_eig, .k = kind_of(x->dtype), .x = x, .n = n, .flag = alone};
  j.side = n > PANEL ? n : PANEL;
  j.room[0] = area(n, n);
  j.room[1] = alone ? 0 : area(2 * n, n);
  j.room[2] = area(n, 2);
  j.room[3] = area(n, n) == INT64_MAX ? INT64_MAX : eig_room(n, alone);
  j.work = (alone ? 10.0 : 25.0) * (double)n * n * (n + 10);
  for (int i = 0; i < x->rank - 2; i++) dim[i] = x->dim[i];
  dim[x->rank - 2] = 2;
  dim[x->rank - 1] = n;
  dim[x->rank] = alone ? 0 : n;
  j.out[0] = ref_new(r, x->store->dev, x->dtype, x->rank, dim);
  j.out[1] = j.out[0] ? ref_new(r, x->store->dev, x->dtype, x->rank + 1, dim) : NULL;
  bool ok = j.out[1] && each_matrix(r, &j, x);
  return give(&j, ok, 2, (Tensor * *const[]){values, vectors});
}

static bool one_qr(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  int64_t m = j->m, n = j->n, count = j->count;
  char *at = room[0], *c = room[1], *d = room[2], *tau = d + (size_t)count * k->size;
  load_lines(k, j->x, matrix_at(b, j->x), false, at);
  if (!(k->wide ? qr_of_f64(w, m, n, (double *)at, (double *)c, (double *)d, (double *)tau,
                            (double *)room[3])
                : qr_of_f32(w, m, n, (float *)at, (float *)c, (float *)d, (float *)tau,
                            (float *)room[3])))
    return false;
  store_columns(k, m, count, c, m, room[3], out_at(j, 0, b->number, m * count));
  store_columns(k, count, n, at, m, room[3], out_at(j, 1, b->number, count * n));
  return true;
}

bool ref_qr(Ref *r, const Tensor *x, Tensor **q, Tensor **rest) {
  int64_t m = x->dim[x->rank - 2], n = x->dim[x->rank - 1], count = m < n ? m : n;
  Job j = {one_qr, .k = kind_of(x->dtype), .x = x, .m = m, .n = n, .count = count};
  j.side = m > n ? m : n;
  if (j.side < PANEL) j.side = PANEL;
  j.room[0] = area(m, n);
  j.room[1] = area(m, count);
  j.room[2] = 2 * count;
  j.room[3] = panel_room(m, n) + n;
  j.work = 3.0 * (double)m * n * (count + 10);
  j.out[0] = new_matrices(r, x, m, count);
  j.out[1] = j.out[0] ? new_matrices(r, x, count, n) : NULL;
  bool ok = j.out[1] && each_matrix(r, &j, x);
  return give(&j, ok, 2, (Tensor * *const[]){q, rest});
}

/* For a wide matrix (flag) this is done for the transpose, whose columns are our rows: [m, n] with
 * m >= n in any case, and `count` left vectors. */
static bool one_svd(const Job *j, Work *w, const Batch *b, char *const *room) {
  const Kind *k = &j->k;
  bool wide = j->flag;
  int64_t m = j->m, n = j->n, count = j->count, rows = wide ? n : m, cols = wide ? m : n;
  char *at = room[0], *left = room[1], *right = room[2];
  char *values = right + (size_t)(count > 0 ? n * n : 0) * k->size;
  load_lines(k, j->x, matrix_at(b, j->x), wide, at);
  bool ok = k->wide ? svd_f64(w, m, n, count, (double *)at, (double *)left, (double *)values,
                              (double *)right, wide, (double *)room[3])
                    : svd_f32(w, m, n, count, (float *)at, (float *)left, (float *)values,
                              (float *)right, wide, (float *)room[3]);
  if (!ok)
    return no_end(w, b, "the singular values of a matrix of %lld rows do not converge", rows);
  char *us = out_at(j, 0, b->number, rows * (wide ? n : count));
  char *vs = out_at(j, 2, b->number, (wide ? count : n) * cols);
  store_line(k, values, n, out_at(j, 1, b->number, n));
  if (count == 0) return true;
  store_columns(k, rows, wide ? n : count, wide ? right : left, rows, room[3], us);
  store_line(k, wide ? left : right, (wide ? count : n) * cols, vs);
  return true;
}

bool ref_svd(Ref *r, const Tensor *x, bool full, bool alone, Tensor **u, Tensor **s, Tensor **vt) {
  int64_t rows = x->dim[x->rank - 2], cols = x->dim[x->rank - 1], dim[CKL_MAX_RANK];
  bool wide = rows < cols;
  int64_t m = wide ? cols : rows, n = wide ? rows : cols, count = alone ? 0 : full ? m : n;
  Job j = {one_svd, .k = kind_of(x->dtype), .x = x, .m = m, .n = n, .count = count, .flag = wide};
  j.side = m > PANEL ? m : PANEL;
  j.room[0] = area(m, n);
  j.room[1] = area(m, count);
  j.room[2] = area(n, alone ? 1 : n + 1);
  j.room[3] = area(n, n) == INT64_MAX ? INT64_MAX : svd_room(m, n, count) + m;
  j.work = (alone ? 3.0 : 8.0) * (double)n * n * (n + 30) + 4.0 * (double)m * n * count;
  for (int i = 0; i < x->rank - 2; i++) dim[i] = x->dim[i];
  dim[x->rank - 2] = n;
  j.out[0] = new_matrices(r, x, rows, alone ? 0 : wide ? n : count);
  j.out[1] = j.out[0] ? ref_new(r, x->store->dev, x->dtype, x->rank - 1, dim) : NULL;
  j.out[2] = j.out[1] ? new_matrices(r, x, alone ? 0 : wide ? count : n, cols) : NULL;
  bool ok = j.out[2] && each_matrix(r, &j, x);
  return give(&j, ok, 3, (Tensor * *const[]){u, s, vt});
}
