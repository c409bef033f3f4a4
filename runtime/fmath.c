/* fmath.c: the elementary functions in C, and the fused multiply-add.
 *
 * In: fmath.inc, the text of the functions. Out: the functions of fmath.h. The text is expanded for
 * each way in which this machine may compute: with FMA instructions one element or several at a
 * time (AVX2, AVX-512), and with the exact software FMA. Which one runs is a pure function of the
 * CPU.
 *
 * Invariant: all expansions give the same bits. They execute the same rounded operations; this file
 * must be compiled without contraction of a * b + c (-ffp-contract=off), without -ffast-math and
 * with arithmetic in the format of the operands (no x87). tests/unit/t-fmath.c compares them. */
#include "runtime/fmath.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/half.h"

#ifdef __FAST_MATH__
#error "fmath.c defines bits: compile it without -ffast-math"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "arithmetic in the format of its operands");
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* ---- the software FMA */

/* The product of two f32 is exact in f64. The sum is rounded to odd (Boldo and Melquiond 2008): an
 * inexact sum takes the neighbour whose last bit is 1. f64 has so many more bits than f32 that
 * rounding this sum to f32 is rounding the exact value, for subnormal results too. */
float fm_fma32_soft(float x, float y, float z) {
  double p = (double)x * (double)y, c = z;
  double s = p + c, back = s - p;
  double rest = (p - (s - back)) + (c - back);
  uint64_t u = hf_bits64(s);
  bool finite = (u & 0x7ff0000000000000u) != 0x7ff0000000000000u;
  if (finite && rest != 0 && !(u & 1)) {
    bool grow = (rest > 0) == !(u >> 63);
    u = grow ? u + 1 : u - 1;
  }
  return (float)hf_float64(u);
}

typedef struct U128 {
  uint64_t hi, lo;
} U128;

static U128 shift_left(U128 a, int n) { /* 0 <= n < 128 */
  U128 r = a;
  if (n >= 64) {
    r.hi = a.lo << (n - 64);
    r.lo = 0;
  } else if (n > 0) {
    r.hi = a.hi << n | a.lo >> (64 - n);
    r.lo = a.lo << n;
  }
  return r;
}

/* a / 2^n; the lowest bit also says whether a bit was lost. */
static U128 shift_sticky(U128 a, int n) { /* 0 <= n */
  U128 r = {0, 0};
  if (n == 0) return a;
  if (n >= 128) {
    r.lo = (a.hi | a.lo) != 0;
  } else if (n >= 64) {
    uint64_t lost = a.lo | (n > 64 ? a.hi << (128 - n) : 0);
    r.lo = a.hi >> (n - 64) | (lost != 0);
  } else {
    r.hi = a.hi >> n;
    r.lo = a.lo >> n | a.hi << (64 - n) | (a.lo << (64 - n) != 0);
  }
  return r;
}

static U128 product(uint64_t a, uint64_t b) {
  uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
  uint64_t low = al * bl, mid = ah * bl + (low >> 32), mid2 = al * bh + (uint32_t)mid;
  U128 r = {ah * bh + (mid >> 32) + (mid2 >> 32), mid2 << 32 | (uint32_t)low};
  return r;
}

static int leading_zeros(U128 a) { /* a is not 0 */
  int n = 0;
  uint64_t w = a.hi;
  if (!w) {
    n = 64;
    w = a.lo;
  }
  for (int step = 32; step; step /= 2) {
    if (!(w >> (64 - step))) {
      n += step;
      w <<= step;
    }
  }
  return n;
}

/* |x| = m 2^e for a finite x. */
static uint64_t unpack(double x, int *e) {
  uint64_t u = hf_bits64(x) & 0x7fffffffffffffffu;
  int field = (int)(u >> 52);
  uint64_t m = u & 0x000fffffffffffffu;
  *e = (field ? field : 1) - 1075;
  return field ? m | 0x0010000000000000u : m;
}

/* Uses integers throughout: the 106-bit product and the addend are shifted to bit 125, aligned with
 * a sticky bit, added, and rounded once at the place that the exponent of the result determines. */
double fm_fma64_soft(double x, double y, double z) {
  uint64_t top = 0x7ff0000000000000u;
  bool finite = (hf_bits64(x) & top) != top && (hf_bits64(y) & top) != top;
  if (!finite || (hf_bits64(z) & top) == top) return finite ? z + z : x * y + z;
  int ex, ey, ez;
  uint64_t mx = unpack(x, &ex), my = unpack(y, &ey), mz = unpack(z, &ez);
  if (mx == 0 || my == 0) return x * y + z;
  bool neg = hf_bits64(x) >> 63 != hf_bits64(y) >> 63, negz = hf_bits64(z) >> 63;
  U128 p = product(mx, my), c = {0, mz};
  int ep = ex + ey, n = leading_zeros(p) - 2;
  p = shift_left(p, n);
  ep -= n;
  if (mz != 0) {
    n = leading_zeros(c) - 2;
    c = shift_left(c, n);
    ez -= n;
    if (ep >= ez) {
      c = shift_sticky(c, ep - ez);
    } else {
      p = shift_sticky(p, ez - ep);
      ep = ez;
    }
    if (neg == negz) {
      p.lo += c.lo;
      p.hi += c.hi + (p.lo < c.lo);
    } else {
      if (p.hi < c.hi || (p.hi == c.hi && p.lo < c.lo)) {
        U128 t = p;
        p = c;
        c = t;
        neg = !neg;
      }
      p.hi -= c.hi + (p.lo < c.lo);
      p.lo -= c.lo;
    }
    if (p.hi == 0 && p.lo == 0) return 0.0;
  }
  n = leading_zeros(p); /* the top bit to bit 127, then 64 bits and a sticky one in m */
  p = shift_left(p, n);
  ep -= n;
  uint64_t m = p.hi | (p.lo != 0);
  int field = ep + 64 + 63 + 1023; /* m = 2^63 .. 2^64 - 1, times 2^(ep + 64) */
  int drop = 11;
  if (field >= 2047) return neg ? -INFINITY : INFINITY;
  if (field < 1) {
    drop += 1 - field;
    field = 1;
  }
  uint64_t kept = drop < 64 ? m >> drop : 0, half, rest;
  if (drop < 64) {
    half = m >> (drop - 1) & 1;
    rest = m << (65 - drop);
  } else { /* no bit is kept: m is half a unit or more if drop is 64, less if drop is greater */
    half = drop == 64;
    rest = half ? m << 1 : m;
  }
  /* `kept` has its leading bit at 52 (or below, if subnormal), which adds 1 to the field. So a
   * carry of the rounding goes into the exponent */
  uint64_t u = ((uint64_t)(field - 1) << 52) + kept;
  if (half && (rest != 0 || (u & 1))) u++;
  return hf_float64(u | (uint64_t)neg << 63);
}

/* ---- the expansions */

/* At -O2 gcc makes vectors on request only; its cost model would refuse loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic", "no-trapping-math",              \
                     "no-math-errno", "fp-contract=off")
#define FM_OPTIONS_PUSHED
#endif

#if defined(__FMA__) || (defined(FP_FAST_FMA) && defined(FP_FAST_FMAF))
#define FM_BUILT_IN 1 /* every CPU this is compiled for has FMA */
#else
#define FM_BUILT_IN 0
#endif
#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define FM_X86 1
#else
#define FM_X86 0
#endif

#if defined(__clang__)
#define FM_PRAGMA(x) _Pragma(#x)
#define FM_TARGET(t)                                                                               \
  FM_PRAGMA(clang attribute push(__attribute__((target(t))), apply_to = function))
#define FM_TARGET_END FM_PRAGMA(clang attribute pop)
#else
#define FM_PRAGMA(x) _Pragma(#x)
#define FM_TARGET(t) FM_PRAGMA(GCC push_options) FM_PRAGMA(GCC target(t))
#define FM_TARGET_END FM_PRAGMA(GCC pop_options)
#endif

#if !FM_BUILT_IN
#define FM_TAG(name) soft_##name
#define FM_FMAF(a, b, c) fm_fma32_soft(a, b, c)
#define FM_FMAD(a, b, c) fm_fma64_soft(a, b, c)
#define FM_LANES 0
#include "runtime/fmath-c.inc"
#endif

#if FM_BUILT_IN || FM_X86
#if FM_X86
FM_TARGET("fma")
#endif
#if !FM_BUILT_IN
static float hard_fma_f32(float x, float y, float z) {
  return __builtin_fmaf(x, y, z);
}
static double hard_fma_f64(double x, double y, double z) {
  return __builtin_fma(x, y, z);
}
#endif

#define FM_TAG(name) hard_##name
#define FM_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FM_FMAD(a, b, c) __builtin_fma(a, b, c)
#define FM_LANES 0
#include "runtime/fmath-c.inc"
#if FM_X86
FM_TARGET_END
#endif
#endif

#if FM_X86
#define FM_SCALAR(name) hard_##name
FM_TARGET("avx2,fma")
#define FM_TAG(name) avx2_##name
#define FM_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FM_FMAD(a, b, c) __builtin_fma(a, b, c)
#define FM_LANES 1
#include "runtime/fmath-c.inc"
FM_TARGET_END
#if defined(__clang__)
FM_TARGET("avx512f,avx512dq,avx512vl,avx512bw,fma")
#else
FM_TARGET("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#endif
#define FM_TAG(name) avx512_##name
#define FM_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FM_FMAD(a, b, c) __builtin_fma(a, b, c)
#define FM_LANES 1
#include "runtime/fmath-c.inc"
FM_TARGET_END
#endif

#ifdef FM_OPTIONS_PUSHED
#pragma GCC pop_options
#endif

/* ---- which one runs */

enum { LEVEL_SOFT, LEVEL_FMA, LEVEL_AVX2, LEVEL_AVX512 };

static inline int level(void) {
#if FM_X86
  if (!FM_BUILT_IN && !__builtin_cpu_supports("fma")) return LEVEL_SOFT;
  if (!__builtin_cpu_supports("avx2")) return LEVEL_FMA;
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  return wide ? LEVEL_AVX512 : LEVEL_AVX2;
#else
  return FM_BUILT_IN ? LEVEL_FMA : LEVEL_SOFT;
#endif
}

static inline bool hard(void) {
#if FM_X86 && !FM_BUILT_IN
  return __builtin_cpu_supports("fma");
#else
  return FM_BUILT_IN;
#endif
}

/* Calls the expansion of the scalar or array form that this CPU uses. */
#if FM_BUILT_IN
#define SCALAR(name, args) hard_##name args
#elif FM_X86
#define SCALAR(name, args) (hard() ? hard_##name args : soft_##name args)
#else
#define SCALAR(name, args) soft_##name args
#endif
#if FM_X86
#define ARRAY(name, args)                                                                          \
  switch (level()) {                                                                               \
  case LEVEL_AVX512: avx512_##name args; break;                                                    \
  case LEVEL_AVX2: avx2_##name args; break;                                                        \
  default: ARRAY_PLAIN(name, args);                                                                \
  }
#if FM_BUILT_IN
#define ARRAY_PLAIN(name, args) hard_##name args
#else
#define ARRAY_PLAIN(name, args)                                                                    \
  if (level() == LEVEL_FMA) {                                                                      \
    hard_##name args;                                                                              \
  } else {                                                                                         \
    soft_##name args;                                                                              \
  }
#endif
#else
#define ARRAY(name, args) SCALAR(name, args);
#endif

int fm_has_fma(void) {
  return hard();
}

float fm_fma32(float x, float y, float z) {
#if FM_BUILT_IN
  return __builtin_fmaf(x, y, z);
#elif FM_X86
  return hard() ? hard_fma_f32(x, y, z) : fm_fma32_soft(x, y, z);
#else
  return fm_fma32_soft(x, y, z);
#endif
}

double fm_fma64(double x, double y, double z) {
#if FM_BUILT_IN
  return __builtin_fma(x, y, z);
#elif FM_X86
  return hard() ? hard_fma_f64(x, y, z) : fm_fma64_soft(x, y, z);
#else
  return fm_fma64_soft(x, y, z);
#endif
}

#define FM1(name, rare)                                                                            \
  float fm_##name##_f32(float x) {                                                                 \
    return SCALAR(name##_f32, (x));                                                                \
  }                                                                                                \
  double fm_##name##_f64(double x) {                                                               \
    return SCALAR(name##_f64, (x));                                                                \
  }                                                                                                \
  void fm_##name##_f32_n(int64_t n, const float *x, float *y) {                                    \
    ARRAY(name##_f32_n, (n, x, y))                                                                 \
  }                                                                                                \
  void fm_##name##_f64_n(int64_t n, const double *x, double *y) {                                  \
    ARRAY(name##_f64_n, (n, x, y))                                                                 \
  }
#define FM2(name)                                                                                  \
  float fm_##name##_f32(float x, float y) {                                                        \
    return SCALAR(name##_f32, (x, y));                                                             \
  }                                                                                                \
  double fm_##name##_f64(double x, double y) {                                                     \
    return SCALAR(name##_f64, (x, y));                                                             \
  }                                                                                                \
  void fm_##name##_f32_n(int64_t n, const float *x, const float *y, float *z) {                    \
    ARRAY(name##_f32_n, (n, x, y, z))                                                              \
  }                                                                                                \
  void fm_##name##_f64_n(int64_t n, const double *x, const double *y, double *z) {                 \
    ARRAY(name##_f64_n, (n, x, y, z))                                                              \
  }
#include "runtime/fmath.def"

void fm_normal_f32(uint32_t a, uint32_t b, float *z0, float *z1) {
  SCALAR(normal_f32, (a, b, z0, z1));
}

void fm_normal_f64(uint64_t a, uint64_t b, double *z0, double *z1) {
  SCALAR(normal_f64, (a, b, z0, z1));
}

void fm_normal_f32_n(int64_t n, const uint32_t *a, float *z) {
  ARRAY(normal_f32_n, (n, a, z))
}

void fm_normal_f64_n(int64_t n, const uint64_t *a, double *z) {
  ARRAY(normal_f64_n, (n, a, z))
}

void fm_fma32_axpy(int64_t n, float a, const float *x, float *acc) {
  ARRAY(axpy_f32, (n, a, x, acc))
}

void fm_fma64_axpy(int64_t n, double a, const double *x, double *acc) {
  ARRAY(axpy_f64, (n, a, x, acc))
}
