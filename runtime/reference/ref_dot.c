/* ref_dot and ref_inner: products of matrices and of vectors.
 *
 * In: [B.., M, K] and [B.., K, N] of any strides (a batch axis missing or of size 1 on one side is
 * repeated), or [B.., K] twice. Out: a new row-major tensor. The order of operations is that of
 * rule 105; for products of matrices see ref_gemm.h.
 *
 * inner: the sum rule with fma lanes: blocks of 4,096, in a block lane j takes elements j, j + 16,
 * .. by lane = fma(x, y, lane) from +0, lanes are combined by halving, blocks by the balanced tree.
 * In bf16 a lane takes pairs of elements (lane j the pairs j, j + 16, ..: elements 2j, 2j + 1, ..),
 * the odd element first; a missing last element is +0. Every fma and addition flushes subnormal
 * operands and results. */
#include "runtime/reference/ref_gemm.h"

#include <math.h>
#include <string.h>

#include "runtime/fmath.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct Dot {
  DType dt;
  int compute;
  const char *x, *y;
  char *out;
  int64_t xm, xk, yk, yn; /* steps in bytes */
} Dot;

static void pack_x(const Gemm *g, int64_t i0, int64_t lines, int64_t k0, int64_t kc, int64_t width,
                   void *out) {
  const Dot *d = g->ud;
  gemm_pack(g->kind, d->dt, d->compute, d->x + i0 * d->xm + k0 * d->xk, d->xm, d->xk, lines, kc,
            width, out);
}

static void pack_y(const Gemm *g, int64_t j0, int64_t lines, int64_t k0, int64_t kc, int64_t width,
                   void *out) {
  const Dot *d = g->ud;
  gemm_pack(g->kind, d->dt, d->compute, d->y + j0 * d->yn + k0 * d->yk, d->yn, d->yk, lines, kc,
            width, out);
}

static void store(const Gemm *g, int64_t i, int64_t j0, int64_t n, const void *row) {
  const Dot *d = g->ud;
  gemm_put(g->kind, d->dt, row, n, d->out + (i * g->n + j0) * (int64_t)dt_size(d->dt));
}

/* Finds the batch axes of two operands, i.e. all but the last `own` axes: their dims and byte
 * strides, 0 where an operand repeats. Returns their number. */
static int batch_axes(const Tensor *x, const Tensor *y, int own, int64_t *dim, int64_t *sx,
                      int64_t *sy) {
  int bx = x->rank - own, by = y->rank - own, rank = bx > by ? bx : by;
  int64_t size = (int64_t)dt_size(x->dtype);
  for (int i = 0; i < rank; i++) {
    int ix = i - (rank - bx), iy = i - (rank - by);
    int64_t nx = ix < 0 ? 1 : x->dim[ix], ny = iy < 0 ? 1 : y->dim[iy];
    dim[i] = nx == 1 ? ny : nx;
    sx[i] = nx == 1 ? 0 : x->stride[ix] * size;
    sy[i] = ny == 1 ? 0 : y->stride[iy] * size;
  }
  return rank;
}

Tensor *ref_dot(Ref *r, const Tensor *x, const Tensor *y, int compute) {
  DType dt = x->dtype;
  if (dt == DT_BOOL) return ref_fail(r, REF_VALUE, "dot is not defined for bool");
  int64_t dim[CKL_MAX_RANK], sx[CKL_MAX_RANK], sy[CKL_MAX_RANK], at[CKL_MAX_RANK] = {0};
  int64_t size = (int64_t)dt_size(dt);
  int b = batch_axes(x, y, 2, dim, sx, sy);
  int64_t m = x->dim[x->rank - 2], k = x->dim[x->rank - 1], n = y->dim[y->rank - 1];
  dim[b] = m;
  dim[b + 1] = n;
  Tensor *out = ref_new(r, x->store->dev, dt, b + 2, dim);
  if (!out) return NULL;
  if (tn_count(out) == 0) return out;
  Dot d = {
      .dt = dt,
      .compute = compute,
      .x = tn_data(x),
      .y = tn_data(y),
      .out = tn_data(out),
      .xm = x->stride[x->rank - 2] * size,
      .xk = x->stride[x->rank - 1] * size,
      .yk = y->stride[y->rank - 2] * size,
      .yn = y->stride[y->rank - 1] * size,
  };
  /* A batch axis is merged into the rows if y repeats over it and it continues the rows of x. */
  while (b > 0 && (dim[b - 1] == 1 || (sy[b - 1] == 0 && (m == 1 || sx[b - 1] == d.xm * m)))) {
    b--;
    if (dim[b] == 1) continue;
    if (m == 1) d.xm = sx[b];
    m *= dim[b];
  }
  Gemm g = {gemm_kind(dt, compute), m, n, k, pack_x, pack_y, store, &d, true};
  GemmRoom room = {0};
  bool ok = true;
  for (int64_t left = tn_product(b, dim); left > 0 && ok; left--) {
    ok = gemm_run(r, &room, &g);
    d.out += m * n * size;
    for (int i = b - 1; i >= 0; i--) {
      d.x += sx[i];
      d.y += sy[i];
      if (++at[i] < dim[i]) break;
      d.x -= sx[i] * dim[i];
      d.y -= sy[i] * dim[i];
      at[i] = 0;
    }
  }
  gemm_close(r, &room);
  return ok ? out : ref_drop(out);
}

/* ---- inner */

typedef union Lanes {
  float f32[LANES];
  double f64[LANES];
  uint64_t u64[LANES];
} Lanes;

/* Adds n products to the lanes; the number of the first one is divisible by 32. */
static void inner_lanes(GemmKind kind, Lanes *lane, const Buf *x, const Buf *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int j = (int)(i % LANES);
    switch (kind) {
    case GEMM_F32: lane->f32[j] = fm_fma32(x->f32[i], y->f32[i], lane->f32[j]); break;
    case GEMM_F64: lane->f64[j] = fm_fma64(x->f64[i], y->f64[i], lane->f64[j]); break;
    case GEMM_INT: lane->u64[j] += (uint64_t)x->i64[i] * (uint64_t)y->i64[i]; break;
    default: { /* x and y are padded to an even number */
      float *p = &lane->f32[i / 2 % LANES];
      int64_t o = i ^ 1;
      *p = gemm_bf16_fma(x->f32[o], y->f32[o], *p);
      break;
    }
    }
  }
}

#if defined(__x86_64__)
static __attribute__((target("avx512f"))) void inner_f32_avx512(float *lane, const float *x,
                                                                const float *y, int64_t n) {
  __m512 acc = _mm512_loadu_ps(lane);
  for (int64_t i = 0; i < n; i += 16) {
    acc = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), acc);
  }
  _mm512_storeu_ps(lane, acc);
}

static __attribute__((target("avx2,fma"))) void inner_f32_avx2(float *lane, const float *x,
                                                               const float *y, int64_t n) {
  __m256 a = _mm256_loadu_ps(lane), b = _mm256_loadu_ps(lane + 8);
  for (int64_t i = 0; i < n; i += 16) {
    a = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), a);
    b = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8), b);
  }
  _mm256_storeu_ps(lane, a);
  _mm256_storeu_ps(lane + 8, b);
}
#endif

/* a[i] += b[j], in the arithmetic of the kind. */
static void combine(GemmKind kind, Lanes *a, int i, const Lanes *b, int j) {
  switch (kind) {
  case GEMM_F32: a->f32[i] = a->f32[i] + b->f32[j]; break;
  case GEMM_BF16: a->f32[i] = gemm_bf16_add(a->f32[i], b->f32[j]); break;
  case GEMM_F64: a->f64[i] = a->f64[i] + b->f64[j]; break;
  default: a->u64[i] += b->u64[j]; break;
  }
}

enum { INNER_LEVELS = 52 };

/* Computes one result, in lane 0 of `*result`. */
static bool inner_one(Ref *r, GemmKind kind, DType dt, int compute, int level, const char *x,
                      int64_t sx, const char *y, int64_t sy, int64_t k, Lanes *result) {
  Buf bx, by;
  Lanes lane, tree[INNER_LEVELS];
  int depth = 0;
  (void)level;
  for (uint64_t block = 0; k > 0; block++) {
    int64_t n = k < BLOCK ? k : BLOCK;
    k -= n;
    memset(&lane, 0, sizeof lane);
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t c = n - i < CHUNK ? n - i : CHUNK, whole = 0;
      gemm_load(kind, dt, compute, x, sx, c, &bx);
      gemm_load(kind, dt, compute, y, sy, c, &by);
      x += c * sx;
      y += c * sy;
      if (kind == GEMM_BF16 && c & 1) {
        bx.f32[c] = by.f32[c] = 0;
        c++;
      }
#if defined(__x86_64__)
      if (kind == GEMM_F32 && level >= 2) {
        whole = c / LANES * LANES;
        if (level == 3)
          inner_f32_avx512(lane.f32, bx.f32, by.f32, whole);
        else
          inner_f32_avx2(lane.f32, bx.f32, by.f32, whole);
        for (int64_t j = whole; j < c; j++) {
          lane.f32[j - whole] = fm_fma32(bx.f32[j], by.f32[j], lane.f32[j - whole]);
        }
        continue;
      }
#endif
      (void)whole;
      inner_lanes(kind, &lane, &bx, &by, c);
    }
    for (int h = LANES / 2; h > 0; h /= 2)
      for (int j = 0; j < h; j++) combine(kind, &lane, j, &lane, j + h);
    for (int c = tree_carries(block); c > 0; c--) {
      depth--;
      combine(kind, &tree[depth], 0, &lane, 0);
      lane = tree[depth];
    }
    tree[depth++] = lane;
    if (ref_stopped(r)) return false;
  }
  memset(result, 0, sizeof *result);
  if (depth == 0) return true;
  *result = tree[--depth];
  while (depth > 0) {
    depth--;
    combine(kind, &tree[depth], 0, result, 0);
    *result = tree[depth];
  }
  return true;
}

Tensor *ref_inner(Ref *r, const Tensor *x, const Tensor *y, int compute) {
  DType dt = x->dtype;
  if (dt == DT_BOOL) return ref_fail(r, REF_VALUE, "inner is not defined for bool");
  int64_t dim[CKL_MAX_RANK], sx[CKL_MAX_RANK], sy[CKL_MAX_RANK], at[CKL_MAX_RANK] = {0};
  int64_t size = (int64_t)dt_size(dt), k = x->dim[x->rank - 1];
  int b = batch_axes(x, y, 1, dim, sx, sy), level = gemm_level(r);
  GemmKind kind = gemm_kind(dt, compute);
  Tensor *out = ref_new(r, x->store->dev, dt, b, dim);
  if (!out) return NULL;
  const char *px = tn_data(x), *py = tn_data(y);
  char *to = tn_data(out);
  int64_t kx = x->stride[x->rank - 1] * size, ky = y->stride[y->rank - 1] * size, since = 0;
  for (int64_t left = tn_count(out); left > 0; left--) {
    Lanes v;
    if (!inner_one(r, kind, dt, compute, level, px, kx, py, ky, k, &v)) return ref_drop(out);
    gemm_put(kind, dt, &v, 1, to);
    to += size;
    since += k + 64;
    if (since > 65536) {
      since = 0;
      if (ref_stopped(r)) return ref_drop(out);
    }
    for (int i = b - 1; i >= 0; i--) {
      px += sx[i];
      py += sy[i];
      if (++at[i] < dim[i]) break;
      px -= sx[i] * dim[i];
      py -= sy[i] * dim[i];
      at[i] = 0;
    }
  }
  return out;
}
