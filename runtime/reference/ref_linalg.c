/* Factorizations of matrices: Cholesky, LU, QR, triangular systems, eigenvalues of symmetric ones,
 * singular values.
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

enum { LEAF = 16, WIDE = 32, STRIPE = 128, PANEL = 32, STRIP = 64 };
/* How many rotations of n rows are put down before they are done. */
#define TURNS(n) (16 * (n) + 16)

typedef struct Work {
  Ref *r;
  GemmRoom room;
  int level; /* of loops along rows, as gemm_level says */
} Work;

typedef struct Triangle {
  bool upper, unit; /* unit: ones stand for the diagonal */
} Triangle;

/* Numbers of work memory for reflections of length `length` that are applied to `rows` rows. */
static int64_t panel_room(int64_t length, int64_t rows) {
  return PANEL * (length + PANEL + 2 * rows);
}

/* The same for singular values of a matrix [m, n] with `rows` left vectors; a rotation takes at
 * most the room of 4 numbers. */
static int64_t svd_room(int64_t m, int64_t n, int64_t rows) {
  return 3 * n * n + 2 * PANEL * n + 6 * n + panel_room(m, rows) + 8 * TURNS(n) + 8;
}

/* The same for eigenvalues of a matrix of n rows. */
static int64_t eigh_room(int64_t n) {
  return n * n + PANEL * n + 2 * n + panel_room(n, n) + 4 * TURNS(n) + 8;
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

#define T float
#define GEMM GEMM_F32
#define DTYPE DT_F32
#define NAME(x) x##_f32
#define ROOT sqrtf
#define MAGNITUDE fabsf
#define MOST(x) FLT_MAX
#define EPSILON FLT_EPSILON
#define TINY 0x1p-63f
#include "runtime/reference/ref_linalg.inc"
#include "runtime/reference/ref_orthogonal.inc"
#undef T
#undef GEMM
#undef DTYPE
#undef NAME
#undef ROOT
#undef MAGNITUDE
#undef MOST
#undef EPSILON
#undef TINY
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
#include "runtime/reference/ref_linalg.inc"
#include "runtime/reference/ref_orthogonal.inc"

/* ---- matrices of a batch */

/* Goes through the matrices of tensors whose batch axes are equal. */
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

/* Room for n numbers of f64 and more; NULL with r->err filled. */
static void *work_room(Ref *r, int64_t m, int64_t n, size_t *bytes) {
  if (n > 0 && m > INT64_MAX / 64 / n) return ref_nomem(r);
  *bytes = (size_t)(m * n) * 8 + 64;
  return ref_scratch(r, *bytes);
}

static void *fail_matrix(Ref *r, int kind, const Batch *b, const char *text, int64_t at) {
  return ref_fail_at(r, kind, b->rank, b->dim, b->number, " of the batch", text, (long long)at);
}

Tensor *ref_cholesky(Ref *r, const Tensor *x) {
  Kind k = kind_of(x->dtype);
  int64_t n = x->dim[x->rank - 1], step = n * (int64_t)dt_size(x->dtype);
  Work w = {.r = r};
  size_t bytes = 0;
  Tensor *out = ref_new(r, x->store->dev, x->dtype, x->rank, x->dim);
  char *a = out ? work_room(r, n, n, &bytes) : NULL, *to = out ? tn_data(out) : NULL;
  bool ok = a != NULL;
  Batch b = batch_of(x);
  for (; ok && b.number < b.count && n > 0; batch_next(&b)) {
    load_rows(&k, x, matrix_at(&b, x), n, n, NULL, a);
    k.wide ? symmetric_f64(n, (double *)a) : symmetric_f32(n, (float *)a);
    int64_t done =
        k.wide ? cholesky_f64(&w, n, (double *)a, n) : cholesky_f32(&w, n, (float *)a, n);
    ok = done == n;
    if (ok && ((b.number & 255) == 255)) ok = !ref_stopped(r);
    if (done >= 0 && done < n)
      fail_matrix(r, REF_POSITIVE, &b,
                  "the matrix is not positive definite: its leading minor of order %lld is not "
                  "positive",
                  done + 1);
    for (int64_t i = 0; ok && i < n; i++, to += step) {
      char *row = a + (size_t)(i * n) * k.size;
      memset(row + (size_t)(i + 1) * k.size, 0, (size_t)(n - 1 - i) * k.size);
      store_line(&k, row, n, to);
    }
  }
  ref_scratch_free(r, a, bytes);
  gemm_close(r, &w.room);
  return ok ? out : ref_drop(out);
}

bool ref_lu(Ref *r, const Tensor *x, bool regular, Tensor **lu, Tensor **perm, Tensor **swaps) {
  Kind k = kind_of(x->dtype);
  int64_t n = x->dim[x->rank - 1], step = n * (int64_t)dt_size(x->dtype);
  Work w = {.r = r};
  size_t bytes = 0, pivot_bytes = (size_t)n * 8 + 8;
  Device dev = x->store->dev;
  *lu = ref_new(r, dev, x->dtype, x->rank, x->dim);
  *perm = *lu ? ref_new(r, dev, DT_I64, x->rank - 1, x->dim) : NULL;
  *swaps = *perm ? ref_new(r, dev, DT_I64, x->rank - 2, x->dim) : NULL;
  char *a = *swaps ? work_room(r, n, n, &bytes) : NULL, *to = *lu ? tn_data(*lu) : NULL;
  int64_t *pivot = a ? ref_scratch(r, pivot_bytes) : NULL;
  bool ok = pivot != NULL;
  Batch b = batch_of(x);
  for (; ok && b.number < b.count; batch_next(&b)) {
    int64_t zero = n, *p = (int64_t *)tn_data(*perm) + b.number * n, odd = 0;
    load_rows(&k, x, matrix_at(&b, x), n, n, NULL, a);
    ok = k.wide ? lu_f64(&w, n, n, (double *)a, n, pivot, 0, &zero)
                : lu_f32(&w, n, n, (float *)a, n, pivot, 0, &zero);
    if (ok && regular && zero < n) {
      fail_matrix(r, REF_SINGULAR, &b,
                  "the matrix is singular: column %lld depends on those before it", zero);
      ok = false;
    }
    for (int64_t i = 0; i < n; i++) p[i] = i;
    for (int64_t i = 0; ok && i < n; i++, to += step) {
      int64_t other = p[i];
      p[i] = p[pivot[i]];
      p[pivot[i]] = other;
      odd += pivot[i] != i;
      store_line(&k, a + (size_t)(i * n) * k.size, n, to);
    }
    ((int64_t *)tn_data(*swaps))[b.number] = odd;
  }
  ref_scratch_free(r, pivot, pivot_bytes);
  ref_scratch_free(r, a, bytes);
  gemm_close(r, &w.room);
  if (ok) return true;
  tn_unref(*lu);
  tn_unref(*perm);
  tn_unref(*swaps);
  *lu = *perm = *swaps = NULL;
  return false;
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

Tensor *ref_triangular(Ref *r, const Tensor *a, const Tensor *b, bool upper, bool unit) {
  Kind k = kind_of(a->dtype);
  int64_t n = b->dim[b->rank - 2], m = b->dim[b->rank - 1];
  int64_t step = m * (int64_t)dt_size(b->dtype);
  Work w = {.r = r};
  size_t bytes = 0, rhs_bytes = 0;
  Tensor *out = ref_new(r, b->store->dev, b->dtype, b->rank, b->dim);
  char *l = out ? work_room(r, n, n, &bytes) : NULL, *y = l ? work_room(r, n, m, &rhs_bytes) : NULL;
  char *to = out ? tn_data(out) : NULL;
  bool ok = y != NULL;
  for (Batch at = batch_of(b); ok && at.number < at.count && m > 0; batch_next(&at)) {
    load_rows(&k, a, matrix_at(&at, a), n, n, NULL, l);
    load_rows(&k, b, matrix_at(&at, b), n, m, NULL, y);
    ok = solve_triangle(&w, &k, upper, unit, false, n, l, y, m);
    for (int64_t i = 0; ok && i < n; i++, to += step)
      store_line(&k, y + (size_t)(i * m) * k.size, m, to);
  }
  ref_scratch_free(r, y, rhs_bytes);
  ref_scratch_free(r, l, bytes);
  gemm_close(r, &w.room);
  return ok ? out : ref_drop(out);
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

Tensor *ref_solve(Ref *r, const Tensor *lu, const Tensor *perm, const Tensor *b, bool across) {
  Kind k = kind_of(lu->dtype);
  int64_t n = b->dim[b->rank - 2], m = b->dim[b->rank - 1];
  int64_t step = m * (int64_t)dt_size(b->dtype);
  Work w = {.r = r};
  size_t bytes = 0, rhs_bytes = 0, rows_bytes = (size_t)n * 8 + 8;
  Tensor *out = ref_new(r, b->store->dev, b->dtype, b->rank, b->dim);
  char *f = out ? work_room(r, n, n, &bytes) : NULL, *y = f ? work_room(r, n, m, &rhs_bytes) : NULL;
  int64_t *rows = y ? ref_scratch(r, rows_bytes) : NULL;
  char *to = out ? tn_data(out) : NULL;
  bool ok = rows != NULL;
  for (Batch at = batch_of(b); ok && at.number < at.count && m > 0; batch_next(&at)) {
    ok = load_permutation(r, perm, matrix_at(&at, perm), n, rows);
    if (!ok) break;
    load_rows(&k, lu, matrix_at(&at, lu), n, n, NULL, f);
    load_rows(&k, b, matrix_at(&at, b), n, m, across ? NULL : rows, y);
    ok = solve_triangle(&w, &k, across, !across, across, n, f, y, m) &&
         solve_triangle(&w, &k, !across, across, across, n, f, y, m);
    for (int64_t i = 0; ok && i < n; i++)
      store_line(&k, y + (size_t)(i * m) * k.size, m, to + (across ? rows[i] : i) * step);
    to += n * step;
  }
  ref_scratch_free(r, rows, rows_bytes);
  ref_scratch_free(r, y, rhs_bytes);
  ref_scratch_free(r, f, bytes);
  gemm_close(r, &w.room);
  return ok ? out : ref_drop(out);
}

bool ref_eigh(Ref *r, const Tensor *x, Tensor **values, Tensor **vectors) {
  Kind k = kind_of(x->dtype);
  int64_t n = x->dim[x->rank - 1], size = (int64_t)dt_size(x->dtype);
  Work w = {.r = r, .level = gemm_level(r)};
  size_t bytes = 0, q_bytes = 0, room_bytes = 0;
  *values = ref_new(r, x->store->dev, x->dtype, x->rank - 1, x->dim);
  *vectors = *values ? ref_new(r, x->store->dev, x->dtype, x->rank, x->dim) : NULL;
  char *a = *vectors ? work_room(r, n, n, &bytes) : NULL;
  char *q = a ? work_room(r, n, n, &q_bytes) : NULL;
  char *d = q ? work_room(r, 1, eigh_room(n) + 2 * n, &room_bytes) : NULL;
  bool ok = d != NULL;
  for (Batch b = batch_of(x); ok && b.number < b.count && n > 0; batch_next(&b)) {
    char *line = d + (size_t)n * k.size, *room = line + (size_t)n * k.size;
    char *to = (char *)tn_data(*vectors) + b.number * n * n * size;
    load_rows(&k, x, matrix_at(&b, x), n, n, NULL, a);
    ok = k.wide ? eigh_f64(&w, n, (double *)a, (double *)q, (double *)d, (double *)room)
                : eigh_f32(&w, n, (float *)a, (float *)q, (float *)d, (float *)room);
    if (!ok && r->err.kind == REF_OK)
      fail_matrix(r, REF_VALUE, &b, "the eigenvalues of a matrix of %lld rows do not converge", n);
    if (!ok) break;
    store_line(&k, d, n, (char *)tn_data(*values) + b.number * n * size);
    for (int64_t i = 0; i < n; i++, to += n * size) { /* row i of the vectors is column i of q */
      for (int64_t j = 0; j < n; j++)
        memcpy(line + (size_t)j * k.size, q + (size_t)(j * n + i) * k.size, k.size);
      store_line(&k, line, n, to);
    }
  }
  ref_scratch_free(r, d, room_bytes);
  ref_scratch_free(r, q, q_bytes);
  ref_scratch_free(r, a, bytes);
  gemm_close(r, &w.room);
  if (ok) return true;
  tn_unref(*values);
  tn_unref(*vectors);
  *values = *vectors = NULL;
  return false;
}

/* ---- QR and singular values */

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

bool ref_qr(Ref *r, const Tensor *x, Tensor **q, Tensor **rest) {
  Kind k = kind_of(x->dtype);
  int64_t m = x->dim[x->rank - 2], n = x->dim[x->rank - 1], count = m < n ? m : n;
  int64_t size = (int64_t)dt_size(x->dtype), rows = n > count ? n : count;
  Work w = {.r = r, .level = gemm_level(r)};
  size_t bytes = 0, c_bytes = 0, room_bytes = 0;
  int64_t room_numbers = panel_room(m, rows) + 2 * count + n + 1;
  *q = new_matrices(r, x, m, count);
  *rest = *q ? new_matrices(r, x, count, n) : NULL;
  char *at = *rest ? work_room(r, m, n, &bytes) : NULL;
  char *c = at ? work_room(r, m, count, &c_bytes) : NULL;
  char *room = c ? work_room(r, 1, room_numbers, &room_bytes) : NULL;
  bool ok = room != NULL;
  for (Batch b = batch_of(x); ok && b.number < b.count; batch_next(&b)) {
    char *d = room + (size_t)panel_room(m, rows) * k.size, *tau = d + (size_t)count * k.size;
    char *line = tau + (size_t)count * k.size;
    load_lines(&k, x, matrix_at(&b, x), false, at);
    ok = k.wide ? qr_of_f64(&w, m, n, (double *)at, (double *)c, (double *)d, (double *)tau,
                            (double *)room)
                : qr_of_f32(&w, m, n, (float *)at, (float *)c, (float *)d, (float *)tau,
                            (float *)room);
    if (!ok) break;
    store_columns(&k, m, count, c, m, line, (char *)tn_data(*q) + b.number * m * count * size);
    store_columns(&k, count, n, at, m, line, (char *)tn_data(*rest) + b.number * count * n * size);
  }
  ref_scratch_free(r, room, room_bytes);
  ref_scratch_free(r, c, c_bytes);
  ref_scratch_free(r, at, bytes);
  gemm_close(r, &w.room);
  if (ok) return true;
  tn_unref(*q);
  tn_unref(*rest);
  *q = *rest = NULL;
  return false;
}

bool ref_svd(Ref *r, const Tensor *x, bool full, Tensor **u, Tensor **s, Tensor **vt) {
  Kind k = kind_of(x->dtype);
  int64_t rows = x->dim[x->rank - 2], cols = x->dim[x->rank - 1];
  bool wide = rows < cols; /* then it is done for the transpose, whose columns are our rows */
  int64_t m = wide ? cols : rows, n = wide ? rows : cols, count = full ? m : n;
  int64_t size = (int64_t)dt_size(x->dtype), dim[CKL_MAX_RANK];
  Work w = {.r = r, .level = gemm_level(r)};
  size_t bytes = 0, l_bytes = 0, r_bytes = 0, room_bytes = 0;
  for (int i = 0; i < x->rank - 2; i++) dim[i] = x->dim[i];
  dim[x->rank - 2] = n;
  *s = ref_new(r, x->store->dev, x->dtype, x->rank - 1, dim);
  *u = *s ? new_matrices(r, x, rows, wide ? n : count) : NULL;
  *vt = *u ? new_matrices(r, x, wide ? count : n, cols) : NULL;
  char *at = *vt ? work_room(r, m, n, &bytes) : NULL;
  char *left = at ? work_room(r, m, count, &l_bytes) : NULL;
  char *right = left ? work_room(r, n, n + 1, &r_bytes) : NULL;
  char *room = right ? work_room(r, 1, svd_room(m, n, count) + m, &room_bytes) : NULL;
  bool ok = room != NULL;
  for (Batch b = batch_of(x); ok && b.number < b.count; batch_next(&b)) {
    char *values = right + (size_t)(n * n) * k.size;
    load_lines(&k, x, matrix_at(&b, x), wide, at);
    ok = k.wide ? svd_f64(&w, m, n, count, (double *)at, (double *)left, (double *)values,
                          (double *)right, wide, (double *)room)
                : svd_f32(&w, m, n, count, (float *)at, (float *)left, (float *)values,
                          (float *)right, wide, (float *)room);
    if (!ok && r->err.kind == REF_OK)
      fail_matrix(r, REF_VALUE, &b, "the singular values of a matrix of %lld rows do not converge",
                  rows);
    if (!ok) break;
    char *us = (char *)tn_data(*u) + b.number * rows * (wide ? n : count) * size;
    char *vs = (char *)tn_data(*vt) + b.number * (wide ? count : n) * cols * size;
    store_line(&k, values, n, (char *)tn_data(*s) + b.number * n * size);
    store_columns(&k, rows, wide ? n : count, wide ? right : left, rows, room, us);
    store_line(&k, wide ? left : right, (wide ? count : n) * cols, vs);
  }
  ref_scratch_free(r, room, room_bytes);
  ref_scratch_free(r, right, r_bytes);
  ref_scratch_free(r, left, l_bytes);
  ref_scratch_free(r, at, bytes);
  gemm_close(r, &w.room);
  if (ok) return true;
  tn_unref(*u);
  tn_unref(*s);
  tn_unref(*vt);
  *u = *s = *vt = NULL;
  return false;
}
