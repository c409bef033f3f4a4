/* Scalar steps of the reference evaluator, for it and for other code that computes single numbers
 * with its bits: the functions of elementwise.def with the word OWN; floats have ref_<name>_f32 and
 * _f64.
 *
 * A file whose loops should inline these includes them after it has set its options. */
#ifndef CKL_RUNTIME_REFERENCE_REF_SCALAR_H
#define CKL_RUNTIME_REFERENCE_REF_SCALAR_H

#include <math.h>

#include "runtime/half.h"

#define REF_UN(name, expr32, expr64)                                                               \
  static inline float ref_##name##_f32(float x) {                                                  \
    return expr32;                                                                                 \
  }                                                                                                \
  static inline double ref_##name##_f64(double x) {                                                \
    return expr64;                                                                                 \
  }
REF_UN(neg, -x, -x)
REF_UN(abs, fabsf(x), fabs(x))
REF_UN(sign,
       x > 0    ? 1.0f
       : x < 0  ? -1.0f
       : x == 0 ? 0.0f
                : x,
       x > 0    ? 1.0
       : x < 0  ? -1.0
       : x == 0 ? 0.0
                : x)
REF_UN(sqrt, sqrtf(x), sqrt(x))
REF_UN(relu, x > 0 ? x : x == x ? 0.0f : x, x > 0 ? x : x == x ? 0.0 : x)
REF_UN(floor, floorf(x), floor(x))
REF_UN(ceil, ceilf(x), ceil(x))
REF_UN(round, rintf(x), rint(x))
#undef REF_UN

#define REF_BIN(name, expr)                                                                        \
  static inline float ref_##name##_f32(float x, float y) {                                         \
    return expr;                                                                                   \
  }                                                                                                \
  static inline double ref_##name##_f64(double x, double y) {                                      \
    return expr;                                                                                   \
  }
REF_BIN(add, x + y)
REF_BIN(sub, x - y)
REF_BIN(mul, x *y)
REF_BIN(div, x / y)
#undef REF_BIN

/* ---- max and min: a NaN wins; of zeros, max gives +0 unless both are -0, min gives -0 if one is.
 * Equal numbers have equal bits, except zeros: their signs are combined by and in max, by or in
 * min. */

static inline float ref_max_f32(float x, float y) {
  return x > y ? x : y > x ? y : x == y ? hf_float32(hf_bits32(x) & hf_bits32(y)) : x + y;
}
static inline float ref_min_f32(float x, float y) {
  return x < y ? x : y < x ? y : x == y ? hf_float32(hf_bits32(x) | hf_bits32(y)) : x + y;
}
static inline double ref_max_f64(double x, double y) {
  return x > y ? x : y > x ? y : x == y ? hf_float64(hf_bits64(x) & hf_bits64(y)) : x + y;
}
static inline double ref_min_f64(double x, double y) {
  return x < y ? x : y < x ? y : x == y ? hf_float64(hf_bits64(x) | hf_bits64(y)) : x + y;
}

/* ---- the remainder with the divisor's sign, and the floor of the quotient that goes with it */

static inline double ref_mod_f64(double x, double y) {
  double m = fmod(x, y);
  if (m == 0) return copysign(0.0, y);
  return (m < 0) != (y < 0) ? m + y : m;
}
static inline double ref_floordiv_f64(double x, double y) {
  if (y == 0) return x / y;
  double m = fmod(x, y), q = (x - m) / y;
  if (m != 0 && (m < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysign(0.0, x / y);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
static inline float ref_mod_f32(float x, float y) {
  float m = fmodf(x, y);
  if (m == 0) return copysignf(0.0f, y);
  return (m < 0) != (y < 0) ? m + y : m;
}
static inline float ref_floordiv_f32(float x, float y) {
  if (y == 0) return x / y;
  float m = fmodf(x, y), q = (x - m) / y;
  if (m != 0 && (m < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysignf(0.0f, x / y);
  float f = floorf(q);
  return q - f > 0.5f ? f + 1 : f;
}

/* ---- ints; the divisor is not 0, the exponent not negative */

static inline int64_t ref_floordiv_i64(int64_t x, int64_t y) {
  if (y == -1) return (int64_t)(0 - (uint64_t)x);
  int64_t q = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
static inline int64_t ref_mod_i64(int64_t x, int64_t y) {
  if (y == -1) return 0;
  int64_t m = x % y;
  return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}
static inline int64_t ref_pow_i64(int64_t x, int64_t k) {
  uint64_t p = 1, b = (uint64_t)x;
  for (; k > 0; k >>= 1, b *= b)
    if (k & 1) p *= b;
  return (int64_t)p;
}

#endif
