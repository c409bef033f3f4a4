/* Contractions against chains of libm's fma in the order of rule 105, for every kernel that this
 * CPU can run, all dtypes, operand roundings and layouts. */
#include "ref-naive.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "runtime/reference/ref.h"
#endif

/* ---- the rule, one element at a time */

enum { MODE_F32, MODE_BF16, MODE_F64, MODE_INT };

static int mode_of(DType dt, int compute) {
  if (!dt_float(dt)) return MODE_INT;
  if (compute == 1 || (compute == 0 && dt == DT_BF16)) return MODE_BF16;
  return dt == DT_F64 && compute == 0 ? MODE_F64 : MODE_F32;
}

/* To 10 explicit bits, nearest even, in the exponents of f32. */
static double tf32(double x) {
  if (x == 0 || isnan(x) || isinf(x)) return x;
  int e;
  frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
  int unit = e - 11 < -136 ? -136 : e - 11;
  double y = ldexp(nearbyint(ldexp(x, -unit)), unit);
  return fabs(y) >= 0x1p128 ? copysign((double)INFINITY, x) : y;
}

static double operand(int compute, double x) {
  if (compute == 1) return (double)hf_f32_from_bf16(hf_bf16_from_f64(x));
  if (compute == 2) return (double)hf_f32_from_f16(hf_f16_from_f64(x));
  return compute == 3 ? tf32(x) : x;
}

static float flush(float x) {
  return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* One rounding with an unbounded exponent decides whether a result is tiny. The product has 16 bits
 * and f128 113: no sum of it and an f32 is rounded to the middle of two f32. */
static float bf16_fma(float x, float y, float acc) {
  x = flush(x);
  y = flush(y);
  acc = flush(acc);
  float z = fmaf(x, y, acc);
  if (isnan(z) || isinf(z)) return z;
  __float128 q = (__float128)x * (__float128)y + (__float128)acc;
  if (q < 0) q = -q;
  __float128 edge = (__float128)0x1p-126 * (1 - (__float128)0x1p-25);
  if (q < edge) return copysignf(0, z);
  return fabsf(z) < 0x1p-126f ? copysignf(0x1p-126f, z) : z;
}

typedef struct Terms {
  int64_t n, cap;
  double *x, *y;
  int64_t *i, *j;
} Terms;

static void term_f(Terms *t, double x, double y) {
  if (t->n == t->cap) {
    t->cap = t->cap ? 2 * t->cap : 64;
    t->x = realloc(t->x, (size_t)t->cap * 8);
    t->y = realloc(t->y, (size_t)t->cap * 8);
    t->i = realloc(t->i, (size_t)t->cap * 8);
    t->j = realloc(t->j, (size_t)t->cap * 8);
  }
  t->x[t->n] = x;
  t->y[t->n++] = y;
}
static void term(Terms *t, const Tensor *a, const int64_t *ia, const Tensor *b, const int64_t *ib,
                 int compute) {
  bool is_float = dt_float(a->dtype);
  term_f(t, is_float ? operand(compute, get_f(a, ia)) : 0,
         is_float ? operand(compute, get_f(b, ib)) : 0);
  t->i[t->n - 1] = is_float ? 0 : get_i(a, ia);
  t->j[t->n - 1] = is_float ? 0 : get_i(b, ib);
}
static void terms_free(Terms *t) {
  free(t->x);
  free(t->y);
  free(t->i);
  free(t->j);
}

static double add(int mode, double a, double b) {
  if (mode == MODE_F64) return a + b;
  if (mode == MODE_F32) return (double)((float)a + (float)b);
  return (double)flush(flush((float)a) + flush((float)b));
}
static double fused(int mode, double x, double y, double acc) {
  if (mode == MODE_F64) return fma(x, y, acc);
  if (mode == MODE_F32) return (double)fmaf((float)x, (float)y, (float)acc);
  return (double)bf16_fma((float)x, (float)y, (float)acc);
}

static double chain(int mode, const Terms *t) {
  double total = 0;
  for (int64_t k = 0; k < t->n; k += 4096) {
    int64_t end = k + 4096 < t->n ? k + 4096 : t->n;
    double acc = 0;
    for (int64_t i = k; i < end; i++) {
      if (mode != MODE_BF16) {
        acc = fused(mode, t->x[i], t->y[i], acc);
      } else if ((i - k) % 2 == 0) { /* the pair (i, i + 1), the latter first */
        bool odd = i + 1 < end;
        acc = fused(mode, odd ? t->x[i + 1] : 0, odd ? t->y[i + 1] : 0, acc);
        acc = fused(mode, t->x[i], t->y[i], acc);
      }
    }
    total = k == 0 ? acc : add(mode, total, acc);
  }
  return total;
}

static int64_t chain_int(const Terms *t) {
  uint64_t v = 0;
  for (int64_t i = 0; i < t->n; i++) v += (uint64_t)t->i[i] * (uint64_t)t->j[i];
  return (int64_t)v;
}

static double lanes(int mode, const Terms *t, int64_t first, int64_t n) {
  double lane[16] = {0};
  for (int64_t i = 0; i < n; i++) {
    if (mode != MODE_BF16) {
      lane[i % 16] = fused(mode, t->x[first + i], t->y[first + i], lane[i % 16]);
    } else if (i % 2 == 0) {
      double *p = &lane[i / 2 % 16];
      bool odd = i + 1 < n;
      *p = fused(mode, odd ? t->x[first + i + 1] : 0, odd ? t->y[first + i + 1] : 0, *p);
      *p = fused(mode, t->x[first + i], t->y[first + i], *p);
    }
  }
  for (int h = 8; h > 0; h /= 2)
    for (int j = 0; j < h; j++) lane[j] = add(mode, lane[j], lane[j + h]);
  return lane[0];
}
static double tree(int mode, const Terms *t, int64_t first, int64_t blocks) {
  if (blocks == 1) {
    int64_t n = t->n - first * 4096;
    return lanes(mode, t, first * 4096, n < 4096 ? n : 4096);
  }
  int64_t p = 1;
  while (p * 2 < blocks) p *= 2;
  return add(mode, tree(mode, t, first, p), tree(mode, t, first + p, blocks - p));
}

static void put_result(Tensor *want, const int64_t *i, const Terms *t, int compute, bool inner) {
  int mode = mode_of(want->dtype, compute);
  if (mode == MODE_INT)
    set_i(want, i, chain_int(t));
  else if (!inner)
    set_f(want, i, chain(mode, t));
  else
    set_f(want, i, t->n ? tree(mode, t, 0, (t->n + 4095) / 4096) : 0.0);
}

/* ---- dot and inner */

static const DType kinds[] = {DT_F32,  DT_F32, DT_F32, DT_F64, DT_F16, DT_BF16,
                              DT_BF16, DT_I32, DT_I64, DT_I8,  DT_U8,  DT_I16};

static int64_t draw_length(void) {
  static const int64_t edge[] = {0, 1, 2, 255, 256, 257, 4095, 4096, 4097, 8193, 12290};
  return below(6) == 0 ? edge[below(11)] : below(4) == 0 ? below(600) : 1 + below(20);
}

/* The index in an operand whose batch axes are the last of the result's. */
static void batch_index(const Tensor *x, int own, int rank, const int64_t *i, int64_t *idx) {
  int b = x->rank - own;
  for (int d = 0; d < b; d++) idx[d] = x->dim[d] == 1 ? 0 : i[rank - b + d];
}

static void check_dot(Tensor *x, Tensor *y, int compute) {
  int bx = x->rank - 2, by = y->rank - 2, b = bx > by ? bx : by;
  int64_t dim[CKL_MAX_RANK], ix[CKL_MAX_RANK], iy[CKL_MAX_RANK];
  for (int d = 0; d < b; d++) {
    int64_t nx = d - (b - bx) < 0 ? 1 : x->dim[d - (b - bx)];
    int64_t ny = d - (b - by) < 0 ? 1 : y->dim[d - (b - by)];
    dim[d] = nx == 1 ? ny : nx;
  }
  dim[b] = x->dim[bx];
  dim[b + 1] = y->dim[by + 1];
  Tensor *want = fresh(x->dtype, b + 2, dim);
  Terms t = {0};
  FOR_EACH(i, b + 2, dim) {
    t.n = 0;
    batch_index(x, 2, b, i, ix);
    batch_index(y, 2, b, i, iy);
    ix[bx] = i[b];
    iy[by + 1] = i[b + 1];
    for (int64_t k = 0; k < x->dim[bx + 1]; k++) {
      ix[bx + 1] = iy[by] = k;
      term(&t, x, ix, y, iy, compute);
    }
    put_result(want, i, &t, compute, false);
  }
  terms_free(&t);
  char what[100];
  sprintf(what, "dot level %d compute %d, %d x %d x %d", ref.level, compute, (int)x->dim[bx],
          (int)x->dim[bx + 1], (int)y->dim[by + 1]);
  same_bits(what, ref_dot(&ref, x, y, compute), want);
}

static void t_dot(int level) {
  open_all();
  ref.level = level;
  for (int round = 0; round < 250; round++) {
    DType dt = kinds[below(12)];
    int64_t k = draw_length(), m = below(20), n = below(10) == 0 ? below(150) : below(40);
    if (k > 300) m = 1 + below(4), n = 1 + below(5);
    int bx = (int)below(3), by = (int)below(3);
    if (k > 300) bx = by = 0;
    int64_t batch[3] = {1 + below(3), 1 + below(3), 0}, dx[CKL_MAX_RANK], dy[CKL_MAX_RANK];
    for (int d = 0; d < bx; d++) dx[d] = below(4) ? batch[2 - bx + d] : 1;
    for (int d = 0; d < by; d++) dy[d] = below(4) ? batch[2 - by + d] : 1;
    dx[bx] = m;
    dx[bx + 1] = dy[by] = k;
    dy[by + 1] = n;
    int how = below(2) ? WILD : PLAIN, compute = dt_float(dt) && below(2) ? (int)below(4) : 0;
    Tensor *x = draw_tensor(dt, bx + 2, dx, how), *y = draw_tensor(dt, by + 2, dy, how);
    check_dot(x, y, compute);
    tn_unref(x);
    tn_unref(y);
  }
  close_all();
}

/* Sizes over the edges of every block of the plan; checked against one element at a time in
 * places. */
static void t_large(int level, DType dt, int compute) {
  open_all();
  ref.level = level;
  int64_t m = 515, k = 300, n = 530;
  Tensor *x = draw_tensor(dt, 2, (int64_t[]){m, k}, PLAIN);
  Tensor *y = draw_tensor(dt, 2, (int64_t[]){k, n}, PLAIN);
  Tensor *got = ref_dot(&ref, x, y, compute), *want = tn_copy(&mem, got, DEV_CPU);
  Terms t = {0};
  for (int round = 0; round < 400; round++) {
    int64_t i[2] = {round < 40 ? m - 1 - round % 5 : below(m),
                    round < 40 ? n - 1 - round / 5 : below(n)};
    t.n = 0;
    for (int64_t p = 0; p < k; p++) {
      term(&t, x, (int64_t[]){i[0], p}, y, (int64_t[]){p, i[1]}, compute);
    }
    put_result(want, i, &t, compute, false);
  }
  terms_free(&t);
  same_bits("large dot", got, want);
  tn_unref(x);
  tn_unref(y);
  close_all();
}

static void t_inner(int level) {
  open_all();
  ref.level = level;
  for (int round = 0; round < 250; round++) {
    DType dt = kinds[below(12)];
    int64_t k = draw_length(), dim[3] = {1 + below(3), 1 + below(4), k};
    int rank = k > 300 ? 1 : 1 + (int)below(3), how = below(2) ? WILD : PLAIN;
    int compute = dt_float(dt) && below(2) ? (int)below(4) : 0;
    const int64_t *d = dim + 3 - rank;
    Tensor *x = draw_tensor(dt, rank, d, how), *y = draw_tensor(dt, rank, d, how);
    Tensor *want = fresh(dt, rank - 1, d);
    Terms t = {0};
    FOR_EACH(i, rank - 1, d) {
      int64_t idx[CKL_MAX_RANK];
      memcpy(idx, i, sizeof idx);
      t.n = 0;
      for (idx[rank - 1] = 0; idx[rank - 1] < k; idx[rank - 1]++) term(&t, x, idx, y, idx, compute);
      put_result(want, i, &t, compute, true);
    }
    terms_free(&t);
    same_bits("inner", ref_inner(&ref, x, y, compute), want);
    tn_unref(x);
    tn_unref(y);
  }
  close_all();
}

/* Products around the smallest normal number, where flushing shows: 2^-126 against some 2^-152,
 * most terms zero, so that sums of blocks and lanes are small differences too. */
static double draw_tiny(void) {
  double sign = below(2) ? 1 : -1;
  switch (below(4)) {
  case 0: return sign * 0x1p-63;
  case 1: return sign * ldexp(1 + (double)below(4), -77 + (int)below(2));
  case 2: return sign * ldexp(1 + (double)below(128) / 128, -64 + (int)below(2));
  default: return below(3) ? sign * 0x1p-63 * 1.5 : sign * 0x1p-127;
  }
}

static void t_flush(int level) {
  open_all();
  ref.level = level;
  for (int round = 0; round < 400; round++) {
    bool narrow = below(2) == 1;
    DType dt = narrow ? DT_BF16 : DT_F32;
    int64_t k = below(3) ? 1 + below(40) : below(2) ? 4096 + below(40) : 8192 + below(3);
    Tensor *x = tn_zeros(&mem, DEV_CPU, dt, 1, &k), *y = tn_zeros(&mem, DEV_CPU, dt, 1, &k);
    for (int64_t n = 2 + below(6); n > 0; n--) {
      int64_t i = below(3) ? below(k) : k - 1 - below(k < 3 ? k : 3);
      set_f(x, &i, draw_tiny());
      set_f(y, &i, draw_tiny());
    }
    Terms t = {0};
    for (int64_t i = 0; i < k; i++) term(&t, x, &i, y, &i, 1);
    Tensor *want = fresh(dt, 0, NULL), *two = fresh(dt, 2, (int64_t[]){1, 1});
    put_result(want, NULL, &t, 1, true);
    put_result(two, (int64_t[]){0, 0}, &t, 1, false);
    terms_free(&t);
    same_bits("tiny inner", ref_inner(&ref, x, y, 1), want);
    Tensor *row = ref_reshape(&ref, x, 2, (int64_t[]){1, k});
    Tensor *col = ref_reshape(&ref, y, 2, (int64_t[]){k, 1});
    same_bits("tiny dot", ref_dot(&ref, row, col, 1), two);
    tn_unref(row);
    tn_unref(col);
    tn_unref(x);
    tn_unref(y);
  }
  close_all();
}

/* 2^-126 - m 2^-152: tiny after rounding to 24 bits below 2^-126 - 2^-151, that is from m = 3. */
static void t_edge(int level) {
  open_all();
  ref.level = level;
  for (int m = 0; m < 16; m++) {
    for (int sign = -1; sign <= 1; sign += 2) {
      Tensor *x = fresh(DT_F32, 2, (int64_t[]){1, 2}), *y = fresh(DT_F32, 2, (int64_t[]){2, 1});
      set_f(x, (int64_t[]){0, 1}, sign * 0x1p-63);
      set_f(y, (int64_t[]){1, 0}, 0x1p-63);
      set_f(x, (int64_t[]){0, 0}, -sign * m * 0x1p-76);
      set_f(y, (int64_t[]){0, 0}, 0x1p-76);
      Tensor *got = ref_dot(&ref, x, y, 1);
      check_double(get_f(got, (int64_t[]){0, 0}), ==, m < 3 ? sign * 0x1p-126 : 0);
      check((signbit(get_f(got, (int64_t[]){0, 0})) != 0) == (sign < 0));
      tn_unref(got);
      tn_unref(x);
      tn_unref(y);
    }
  }
  close_all();
}

/* ---- convolutions */

static const DType floats[] = {DT_F32, DT_F32, DT_F64, DT_F16, DT_BF16};

/* Image element, +0 outside; false in `in` only says that it is padding. */
static double image(const Tensor *x, int64_t n, int64_t c, int64_t h, int64_t w, int compute) {
  if (h < 0 || w < 0 || h >= x->dim[2] || w >= x->dim[3]) return 0;
  return operand(compute, get_f(x, (int64_t[]){n, c, h, w}));
}

static void t_conv(int level) {
  open_all();
  ref.level = level;
  for (int round = 0; round < 60; round++) {
    DType dt = floats[below(5)];
    int compute = below(3) == 0 ? (int)below(4) : 0, how = below(2) ? WILD : PLAIN;
    int64_t xd[4] = {1 + below(3), 1 + below(4), 1 + below(9), 1 + below(9)};
    int64_t wd[4] = {1 + below(5), xd[1], 1 + below(4), 1 + below(4)};
    int64_t s[2] = {1 + below(3), 1 + below(3)}, p[2] = {below(3), below(3)};
    if (below(12) == 0) xd[0] = 0;
    if (below(20) == 0) xd[1] = wd[1] = 0;
    if (round == 0) { /* a long contraction */
      xd[0] = 1;
      xd[1] = wd[1] = 600;
      wd[0] = 2;
      wd[2] = wd[3] = 3;
      xd[2] = xd[3] = 3;
    }
    int64_t gd[4] = {xd[0], wd[0], 0, 0};
    for (int a = 0; a < 2; a++) {
      int64_t room = xd[2 + a] + 2 * p[a] - wd[2 + a];
      gd[2 + a] = room < 0 ? 0 : room / s[a] + 1;
    }
    Tensor *x = draw_tensor(dt, 4, xd, how), *w = draw_tensor(dt, 4, wd, how);
    Tensor *g = draw_tensor(dt, 4, gd, how);
    Terms t = {0};

    Tensor *want = fresh(dt, 4, gd);
    FOR_EACH(i, 4, gd) {
      t.n = 0;
      for (int64_t a = 0; a < wd[2]; a++)
        for (int64_t b = 0; b < wd[3]; b++)
          for (int64_t c = 0; c < wd[1]; c++)
            term_f(&t, operand(compute, get_f(w, (int64_t[]){i[1], c, a, b})),
                   image(x, i[0], c, i[2] * s[0] + a - p[0], i[3] * s[1] + b - p[1], compute));
      put_result(want, i, &t, compute, false);
    }
    same_bits("conv2d", ref_conv2d(&ref, x, w, s, p, compute), want);

    want = fresh(dt, 4, xd);
    FOR_EACH(i, 4, xd) {
      t.n = 0;
      for (int64_t a = 0; a < wd[2]; a++)
        for (int64_t b = 0; b < wd[3]; b++)
          for (int64_t o = 0; o < wd[0]; o++) {
            int64_t h = i[2] + p[0] - a, v = i[3] + p[1] - b;
            bool hit = h >= 0 && v >= 0 && h % s[0] == 0 && v % s[1] == 0;
            term_f(&t, operand(compute, get_f(w, (int64_t[]){o, i[1], a, b})),
                   hit ? image(g, i[0], o, h / s[0], v / s[1], compute) : 0);
          }
      put_result(want, i, &t, compute, false);
    }
    same_bits("conv2d_input", ref_conv2d_input(&ref, g, w, xd, s, p, compute), want);

    want = fresh(dt, 4, wd);
    FOR_EACH(i, 4, wd) {
      t.n = 0;
      for (int64_t n = 0; n < gd[0]; n++)
        for (int64_t a = 0; a < gd[2]; a++)
          for (int64_t b = 0; b < gd[3]; b++)
            term_f(&t, operand(compute, get_f(g, (int64_t[]){n, i[0], a, b})),
                   image(x, n, i[1], a * s[0] + i[2] - p[0], b * s[1] + i[3] - p[1], compute));
      put_result(want, i, &t, compute, false);
    }
    same_bits("conv2d_weight", ref_conv2d_weight(&ref, x, g, wd, s, p, compute), want);
    terms_free(&t);
    tn_unref(x);
    tn_unref(w);
    tn_unref(g);
  }
  close_all();
}

/* ---- bf16 against the instruction that rule 105 names */

#if defined(__x86_64__)
static __attribute__((target("avx512f,avx512bf16"))) void
bf16_instruction(const uint16_t *x, const uint16_t *y, int64_t n, float *out) {
  __m512 acc = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 2) {
    uint32_t a = x[i] | (uint32_t)(i + 1 < n ? x[i + 1] : 0) << 16;
    uint32_t b = y[i] | (uint32_t)(i + 1 < n ? y[i + 1] : 0) << 16;
    acc = _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32((int)a),
                           (__m512bh)_mm512_set1_epi32((int)b));
  }
  *out = _mm512_cvtss_f32(acc);
}
#endif

static void t_instruction(int level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) {
    SKIP("no AVX512-BF16");
    return;
  }
  open_all();
  ref.level = level;
  for (int round = 0; round < 3000; round++) {
    int64_t n = 1 + below(40);
    uint16_t a[40], b[40];
    Tensor *x = fresh(DT_BF16, 2, (int64_t[]){1, n}), *y = fresh(DT_BF16, 2, (int64_t[]){n, 1});
    for (int64_t i = 0; i < n; i++) {
      a[i] = hf_bf16_from_f64(below(3) ? draw_tiny() : draw_f(WILD));
      b[i] = hf_bf16_from_f64(below(3) ? draw_tiny() : draw_f(WILD));
      if (below(30) == 0) a[i] = (uint16_t)(draw() & 0x807f);
      memcpy(at(x, (int64_t[]){0, i}), &a[i], 2);
      memcpy(at(y, (int64_t[]){i, 0}), &b[i], 2);
    }
    float want;
    bf16_instruction(a, b, n, &want);
    Tensor *xf = ref_cast(&ref, x, DT_F32), *yf = ref_cast(&ref, y, DT_F32);
    Tensor *got = ref_dot(&ref, xf, yf, 1), *expect = fresh(DT_F32, 2, (int64_t[]){1, 1});
    set_f(expect, (int64_t[]){0, 0}, (double)want);
    bool ok = same_bits("bf16 dot", got, expect);
    tn_unref(x);
    tn_unref(y);
    tn_unref(xf);
    tn_unref(yf);
    if (!ok) break;
  }
  close_all();
#else
  (void)level;
  SKIP("no AVX512-BF16");
#endif
}

static void t_refused(void) {
  open_all();
  Tensor *b = tn_zeros(&mem, DEV_CPU, DT_BOOL, 2, (int64_t[]){3, 3});
  check(!ref_dot(&ref, b, b, 0));
  check_str(ref.err.text, "dot is not defined for bool");
  check(!ref_inner(&ref, b, b, 0));
  check_str(ref.err.text, "inner is not defined for bool");
  Tensor *i = tn_zeros(&mem, DEV_CPU, DT_I32, 4, (int64_t[]){1, 1, 1, 1});
  check(!ref_conv2d(&ref, i, i, (int64_t[]){1, 1}, (int64_t[]){0, 0}, 0));
  check_int(ref.err.kind, ==, REF_VALUE);
  tn_unref(b);
  tn_unref(i);
  close_all();
}

int main(void) {
  for (int level = 1; level <= 3; level++) {
    TEST(t_dot(level), "dot is fma chains in blocks, for every dtype, layout and batch");
    TEST(t_large(level, DT_F32, 0), "large f32 products cut anywhere have the same bits");
    TEST(t_large(level, DT_F64, 0), "f64 ones too");
    TEST(t_large(level, DT_BF16, 0), "bf16 ones too");
    TEST(t_large(level, DT_F32, 3), "tf32 ones too");
    TEST(t_inner(level), "inner is the sum rule with fma lanes");
    TEST(t_flush(level), "bf16 flushes tiny operands and results to zero of their sign");
    TEST(t_edge(level), "tininess is seen after rounding");
    TEST(t_conv(level), "convolutions and their gradients are contractions in the order stated");
    TEST(t_instruction(level), "bf16 chains have the bits of AVX512-BF16");
  }
  TEST(t_refused(), "dtypes without contractions are refused");
  return tap_done();
}
