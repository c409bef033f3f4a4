/* gemm_run: see ref_gemm.h.
 *
 * In: operands by packing functions; out: finished rows by a storing function. The plan is that of
 * Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", TOMS 2008): a block
 * of B (KC x NC) is packed into panels as wide as the kernel's tile, rows of A are packed one panel
 * at a time, and the kernel keeps a tile of C in registers while k ascends.
 *
 * Invariant: a tile is stored and loaded again between pieces of k in the computing type, so
 * cutting k in pieces changes no bit; a new block of 4,096 starts from zero. fma is one rounding on
 * every machine, so the kernels agree for any vector width. */
#include "runtime/reference/ref_gemm.h"

#include <math.h>
#include <string.h>

#include "runtime/fmath.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MM = 512, NC = 512, KC = GEMM_KC };

/* c[MR][NR] += a[kc][MR] b[kc][NR], with rows of c `ld` apart; c starts from zero if `first`. */
typedef void Micro(int64_t kc, const void *a, const void *b, void *c, int64_t ld, bool first);
typedef struct Kernel {
  Micro *run;
  int mr, nr;
} Kernel;

/* ---- kernels in plain C */

static void micro_f32(int64_t kc, const void *pa, const void *pb, void *pc, int64_t ld,
                      bool first) {
  const float *a = pa, *b = pb;
  float *c = pc;
  for (int i = 0; i < 4; i++)
    if (first) memset(c + i * ld, 0, 64 * sizeof *c);
  for (int64_t k = 0; k < kc; k++, a += 4, b += 64)
    for (int i = 0; i < 4; i++) fm_fma32_axpy(64, a[i], b, c + i * ld);
}

static void micro_f64(int64_t kc, const void *pa, const void *pb, void *pc, int64_t ld,
                      bool first) {
  const double *a = pa, *b = pb;
  double *c = pc;
  for (int i = 0; i < 4; i++)
    if (first) memset(c + i * ld, 0, 32 * sizeof *c);
  for (int64_t k = 0; k < kc; k++, a += 4, b += 32)
    for (int i = 0; i < 4; i++) fm_fma64_axpy(32, a[i], b, c + i * ld);
}

static void micro_bf16(int64_t kc, const void *pa, const void *pb, void *pc, int64_t ld,
                       bool first) {
  const float *a = pa, *b = pb;
  float *c = pc;
  for (int i = 0; i < 4; i++)
    if (first) memset(c + i * ld, 0, 16 * sizeof *c);
  for (int64_t k = 0; k < kc; k++, a += 4, b += 16)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 16; j++) c[i * ld + j] = gemm_bf16_fma(a[i], b[j], c[i * ld + j]);
}

static void micro_int(int64_t kc, const void *pa, const void *pb, void *pc, int64_t ld,
                      bool first) {
  const uint64_t *a = pa, *b = pb;
  uint64_t *c = pc, acc[4][8];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 8; j++) acc[i][j] = first ? 0 : c[i * ld + j];
  for (int64_t k = 0; k < kc; k++, a += 4, b += 8)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 8; j++) acc[i][j] += a[i] * b[j];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 8; j++) c[i * ld + j] = acc[i][j];
}

/* ---- kernels for x86: MR rows of two vectors */

#if defined(__x86_64__)
#define MICRO(name, isa, T, V, L, MR, ZERO, LOAD, STORE, SET1, FMA)                                \
  static __attribute__((target(isa))) void name(int64_t kc, const void *pa, const void *pb,        \
                                                void *pc, int64_t ld, bool first) {                \
    const T *a = pa, *b = pb;                                                                      \
    T *c = pc;                                                                                     \
    V acc[MR][2];                                                                                  \
    for (int i = 0; i < MR; i++) {                                                                 \
      acc[i][0] = first ? ZERO() : LOAD(c + i * ld);                                               \
      acc[i][1] = first ? ZERO() : LOAD(c + i * ld + L);                                           \
    }                                                                                              \
    for (int64_t k = 0; k < kc; k++, a += MR, b += 2 * L) {                                        \
      V b0 = LOAD(b), b1 = LOAD(b + L);                                                            \
      for (int i = 0; i < MR; i++) {                                                               \
        V x = SET1(a[i]);                                                                          \
        acc[i][0] = FMA(x, b0, acc[i][0]);                                                         \
        acc[i][1] = FMA(x, b1, acc[i][1]);                                                         \
      }                                                                                            \
    }                                                                                              \
    for (int i = 0; i < MR; i++) {                                                                 \
      STORE(c + i * ld, acc[i][0]);                                                                \
      STORE(c + i * ld + L, acc[i][1]);                                                            \
    }                                                                                              \
  }
MICRO(micro_f32_avx512, "avx512f", float, __m512, 16, 8, _mm512_setzero_ps, _mm512_loadu_ps,
      _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
MICRO(micro_f64_avx512, "avx512f", double, __m512d, 8, 8, _mm512_setzero_pd, _mm512_loadu_pd,
      _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd)
MICRO(micro_f32_avx2, "avx2,fma", float, __m256, 8, 6, _mm256_setzero_ps, _mm256_loadu_ps,
      _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
MICRO(micro_f64_avx2, "avx2,fma", double, __m256d, 4, 6, _mm256_setzero_pd, _mm256_loadu_pd,
      _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd)
#endif

int gemm_level(const Ref *r) {
  int have = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) have = 2;
  if (have == 2 && __builtin_cpu_supports("avx512f")) have = 3;
#endif
  return r->level >= 1 && r->level < have ? r->level : have;
}

static Kernel choose(const Ref *r, GemmKind kind) {
  int level = gemm_level(r);
  (void)level;
  if (kind == GEMM_INT) return (Kernel){micro_int, 4, 8};
#if defined(__x86_64__)
  if (level == 3) {
    return kind == GEMM_F64 ? (Kernel){micro_f64_avx512, 8, 16} : (Kernel){micro_f32_avx512, 8, 32};
  }
  if (level == 2) {
    return kind == GEMM_F64 ? (Kernel){micro_f64_avx2, 6, 8} : (Kernel){micro_f32_avx2, 6, 16};
  }
#endif
  if (kind == GEMM_F64) return (Kernel){micro_f64, 4, 32};
  return kind == GEMM_F32 ? (Kernel){micro_f32, 4, 64} : (Kernel){micro_bf16, 4, 16};
}

/* ---- bf16: flushing */

static float flush_sub(float x) {
  uint32_t u = hf_bits32(x);
  return u & 0x7f800000u ? x : hf_float32(u & 0x80000000u);
}

float gemm_bf16_fma(float x, float y, float acc) {
  x = flush_sub(x);
  y = flush_sub(y);
  acc = flush_sub(acc);
  float z = fm_fma32(x, y, acc);
  if (fabsf(z) == 0x1p-126f) {
    /* Tiny after rounding means: below 2^-126 when rounded to 24 bits with an unbounded exponent.
     * With the exact sum s + e (x * y is exact in f64) that is |s + e| < 2^-126 (1 - 2^-25). */
    double p = (double)x * (double)y, c = acc, s = p + c, back = s - p;
    double e = (p - (s - back)) + (c - back), edge = 0x1p-126 - 0x1p-151;
    if (s < 0) {
      s = -s;
      e = -e;
    }
    if (s < edge || (s == edge && e < 0)) return copysignf(0.0f, z);
  }
  return flush_sub(z);
}

/* Sums of two f32 that are below 2^-126 are exact. */
float gemm_bf16_add(float x, float y) {
  return flush_sub(flush_sub(x) + flush_sub(y));
}

unsigned gemm_flush_on(void) {
#if defined(__x86_64__)
  unsigned word = _mm_getcsr();
  _mm_setcsr(word | 0x8040u); /* flush to zero, denormals are zero */
  return word;
#else
  return 0;
#endif
}

void gemm_flush_off(unsigned word) {
#if defined(__x86_64__)
  _mm_setcsr(word);
#else
  (void)word;
#endif
}

/* Flushes subnormals and swaps the rows of each pair of k. `kc` is even. */
static void pair_up(float *p, int64_t kc, int64_t width) {
  for (int64_t k = 0; k < kc; k += 2, p += 2 * width)
    for (int64_t j = 0; j < width; j++) {
      float x = p[j];
      p[j] = flush_sub(p[width + j]);
      p[width + j] = flush_sub(x);
    }
}

/* ---- the driver */

static void add_block(GemmKind kind, int64_t n, void *total, const void *acc) {
  if (kind == GEMM_F64) {
    double *t = total;
    const double *a = acc;
    for (int64_t i = 0; i < n; i++) t[i] = t[i] + a[i];
  } else if (kind == GEMM_INT) {
    uint64_t *t = total;
    const uint64_t *a = acc;
    for (int64_t i = 0; i < n; i++) t[i] += a[i];
  } else {
    float *t = total;
    const float *a = acc;
    if (kind == GEMM_F32)
      for (int64_t i = 0; i < n; i++) t[i] = t[i] + a[i];
    else
      for (int64_t i = 0; i < n; i++) t[i] = gemm_bf16_add(t[i], a[i]);
  }
}

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Multiplications of a block from which on threads pay: 0.4 ms of one core, as they may have to
 * wait for another program. */
enum { SHARED = 1 << 23 };

typedef struct Tiles {
  Ref *r;
  const Gemm *g;
  Pool *pool;
  char *a, *b, *acc, *total; /* a: one panel for each thread */
  Kernel kern;
  int64_t size, ld;
  int64_t kc; /* rows of a panel of B: the most that a piece of k has */
  bool hardware_flush;
  int64_t i0, rows, j0, cols, k0, depth; /* the block at hand */
  bool first;
} Tiles;

static void pack_panels(const Tiles *t) {
  const Gemm *g = t->g;
  int64_t nr = t->kern.nr, kc = t->depth, even = kc;
  if (g->kind == GEMM_BF16) even = kc + (kc & 1);
  for (int64_t j = 0; j < t->cols; j += nr) {
    char *to = t->b + j * t->kc * t->size;
    g->pack_b(g, t->j0 + j, least(nr, t->cols - j), t->k0, kc, nr, to);
    if (even > kc) memset(to + kc * nr * t->size, 0, (size_t)(nr * t->size));
    if (g->kind == GEMM_BF16) pair_up((float *)to, even, nr);
  }
}

/* Rows of C by panels of A. */
static void compute_rows(void *ud, int64_t lo, int64_t hi, int thread) {
  const Tiles *t = ud;
  const Gemm *g = t->g;
  int64_t mr = t->kern.mr, nr = t->kern.nr, kc = t->depth, even = kc;
  char *a = t->a + thread * mr * t->kc * t->size;
  if (g->kind == GEMM_BF16) even = kc + (kc & 1);
  for (int64_t i = lo * mr; i < t->rows && i < hi * mr; i += mr) {
    g->pack_a(g, t->i0 + i, least(mr, t->rows - i), t->k0, kc, mr, a);
    if (even > kc) memset(a + kc * mr * t->size, 0, (size_t)(mr * t->size));
    if (g->kind == GEMM_BF16) pair_up((float *)a, even, mr);
    char *c = t->acc + i * t->ld * t->size;
    unsigned word = t->hardware_flush ? gemm_flush_on() : 0;
    for (int64_t j = 0; j < t->cols; j += nr)
      t->kern.run(even, a, t->b + j * t->kc * t->size, c + j * t->size, t->ld, t->first);
    if (t->hardware_flush) gemm_flush_off(word);
  }
}

/* acc (+)= A[i0.., k0..] B[k0.., j0..] for one piece of k. */
static bool piece(Tiles *t, int64_t k0, int64_t depth, bool first) {
  t->k0 = k0;
  t->depth = depth;
  t->first = first;
  pack_panels(t);
  int64_t panels = (t->rows + t->kern.mr - 1) / t->kern.mr;
  if (t->pool && panels * t->kern.mr * t->cols * depth >= SHARED) {
    if (pool_run(t->pool, compute_rows, t, panels, 4, t->r->interrupt)) return true;
    return !ref_stopped(t->r);
  }
  for (int64_t i = 0; i < panels; i++) {
    if (ref_stopped(t->r)) return false;
    compute_rows(t, i, i + 1, 0);
  }
  return true;
}

/* Room for tiles of a product; they get their places if t->a has one. */
static size_t layout(Tiles *t, int64_t m, int64_t n, int64_t k, int threads, int64_t *acc) {
  int64_t mr = t->kern.mr, nr = t->kern.nr;
  t->ld = round_up(least(n, NC), nr);
  t->kc = round_up(least(k < 1 ? 1 : k, KC), 16); /* keeps panels aligned */
  *acc = round_up(least(m, MM), mr) * t->ld * t->size;
  int64_t b = t->ld * t->kc * t->size, a = mr * t->kc * t->size * threads;
  if (t->a) {
    t->b = t->a + a;
    t->acc = t->b + b;
    t->total = k > BLOCK ? t->acc + *acc : t->acc;
  }
  return (size_t)(a + b + *acc * (k > BLOCK ? 2 : 1) + 64);
}

static Tiles tiles_of(Ref *r, GemmKind kind) {
  Tiles t = {.r = r, .kern = choose(r, kind)};
  t.hardware_flush = kind == GEMM_BF16 && t.kern.run != micro_bf16;
  t.size = kind == GEMM_F64 || kind == GEMM_INT ? 8 : 4;
  return t;
}

static bool make_room(Ref *r, GemmRoom *room, size_t bytes) {
  if (room->bytes >= bytes) return true;
  gemm_close(r, room);
  room->data = ref_scratch(r, bytes);
  if (room->data) room->bytes = bytes;
  return room->data != NULL;
}

bool gemm_reserve(Ref *r, GemmRoom *room, GemmKind kind, int64_t m, int64_t n, int64_t k) {
  Tiles t = tiles_of(r, kind);
  int64_t acc;
  return make_room(r, room, layout(&t, m, n, k, 1, &acc));
}

bool gemm_run(Ref *r, GemmRoom *room, const Gemm *g) {
  if (g->m <= 0 || g->n <= 0) return true;
  Tiles t = tiles_of(r, g->kind);
  int64_t acc;
  bool several = g->k > BLOCK;
  t.g = g;
  if (g->shared) t.pool = r->pool;
  int threads = t.pool ? pool_threads(t.pool) : 1;
  if (!make_room(r, room, layout(&t, g->m, g->n, g->k, threads, &acc))) return false;
  t.a = (char *)(((uintptr_t)room->data + 63) & ~(uintptr_t)63);
  layout(&t, g->m, g->n, g->k, threads, &acc);

  for (int64_t i0 = 0; i0 < g->m; i0 += MM) {
    t.i0 = i0;
    t.rows = least(MM, g->m - i0);
    for (int64_t j0 = 0; j0 < g->n; j0 += NC) {
      t.j0 = j0;
      t.cols = least(NC, g->n - j0);
      if (g->k <= 0) memset(t.acc, 0, (size_t)acc);
      for (int64_t k = 0; k < g->k; k += BLOCK) {
        int64_t end = least(k + BLOCK, g->k);
        for (int64_t k0 = k; k0 < end; k0 += KC)
          if (!piece(&t, k0, least(KC, end - k0), k0 == k)) return false;
        if (!several) continue;
        int64_t n = t.rows * t.ld;
        if (k == 0)
          memcpy(t.total, t.acc, (size_t)(n * t.size));
        else
          add_block(g->kind, n, t.total, t.acc);
      }
      for (int64_t i = 0; i < t.rows; i++)
        g->store(g, i0 + i, j0, t.cols, t.total + i * t.ld * t.size);
    }
  }
  return true;
}

void gemm_close(Ref *r, GemmRoom *room) {
  ref_scratch_free(r, room->data, room->bytes);
  *room = (GemmRoom){0};
}

/* ---- operands and results */

GemmKind gemm_kind(DType dt, int compute) {
  if (!dt_float(dt)) return GEMM_INT;
  if (compute == 1 || (compute == 0 && dt == DT_BF16)) return GEMM_BF16;
  return dt == DT_F64 && compute == 0 ? GEMM_F64 : GEMM_F32;
}

static float tf32_from_f32(float x) {
  uint32_t u = hf_bits32(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return x;
  return hf_float32((u + 0x0fffu + (u >> 13 & 1u)) & ~0x1fffu);
}

/* Rounds f64 to f32 to odd, so that a later rounding to fewer bits is as if from the f64. */
static float odd_from_f64(double x) {
  float y = (float)x;
  double back = y;
  uint32_t u = hf_bits32(y);
  if (back == x || x != x) return y;
  if (fabs(back) > fabs(x)) u--; /* towards zero; from infinity to the largest number */
  return hf_float32(u | 1u);
}

static void round_operands(int compute, int64_t n, float *x) {
  if (compute == 1)
    for (int64_t i = 0; i < n; i++) x[i] = hf_f32_from_bf16(hf_bf16_from_f32(x[i]));
  if (compute == 2)
    for (int64_t i = 0; i < n; i++) x[i] = hf_f32_from_f16(hf_f16_from_f32(x[i]));
  if (compute == 3)
    for (int64_t i = 0; i < n; i++) x[i] = tf32_from_f32(x[i]);
}

void gemm_load(GemmKind kind, DType dt, int compute, const void *src, int64_t step, int64_t n,
               void *out) {
  if (kind == GEMM_INT) {
    ref_load_i64(dt, src, step, n, out);
  } else if (kind == GEMM_F64) {
    ref_load_f64(dt, src, step, n, out);
  } else if (dt == DT_F64) {
    float *y = out;
    double x[GEMM_KC];
    for (int64_t i = 0; i < n; i += GEMM_KC) {
      int64_t k = least(n - i, GEMM_KC);
      ref_load_f64(dt, (const char *)src + i * step, step, k, x);
      for (int64_t j = 0; j < k; j++) y[i + j] = odd_from_f64(x[j]);
    }
    round_operands(compute, n, y);
  } else {
    ref_load_f32(dt, src, step, n, out);
    if (compute) round_operands(compute, n, out);
  }
}

void gemm_put(GemmKind kind, DType dt, const void *acc, int64_t n, void *dst) {
  if (kind == GEMM_INT) {
    ref_store_i64(dt, acc, n, dst);
  } else if (dt != DT_F64) {
    ref_store_f32(dt, acc, n, dst);
  } else if (kind == GEMM_F64) {
    memcpy(dst, acc, (size_t)n * 8);
  } else {
    const float *x = acc;
    double *y = dst;
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
  }
}

void gemm_pack(GemmKind kind, DType dt, int compute, const char *src, int64_t line, int64_t by,
               int64_t lines, int64_t kc, int64_t width, void *out) {
  int64_t size = kind == GEMM_F64 || kind == GEMM_INT ? 8 : 4;
  int64_t each = (int64_t)dt_size(dt);
  char *to = out;
  if (lines < width) memset(out, 0, (size_t)(kc * width * size));
  if (line == each || by != each) {
    for (int64_t k = 0; k < kc; k++) {
      gemm_load(kind, dt, compute, src + k * by, line, lines, to + k * width * size);
    }
    return;
  }
  /* Lines lie along k: take 64 at a time, so that writes stay close together. */
  union {
    float f[64];
    uint64_t u[64];
  } buf;
  for (int64_t k = 0; k < kc; k += 64) {
    int64_t n = least(64, kc - k);
    for (int64_t i = 0; i < lines; i++) {
      gemm_load(kind, dt, compute, src + i * line + k * by, by, n, &buf);
      char *p = to + (k * width + i) * size;
      if (size == 4) {
        float *q = (float *)p;
        for (int64_t j = 0; j < n; j++) q[j * width] = buf.f[j];
      } else {
        ref_copy_out(p, width * size, &buf, n, 8);
      }
    }
  }
}
