/* Scalar steps that C has no operator for, of the reference evaluator and of whoever computes
 * single numbers with its bits.
 *
 * A file whose loops should inline these includes them after it has set its options. */
#ifndef CKL_RUNTIME_REFERENCE_REF_SCALAR_H
#define CKL_RUNTIME_REFERENCE_REF_SCALAR_H

#include <math.h>

#include "runtime/half.h"

/* -- max and min: a NaN wins; of zeros, max gives +0 unless both are -0, min gives -0 if one is.
 * Equal numbers have equal bits but for zeros, of which max takes the signs together, min
 * either. */

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

/* -- the remainder with the divisor's sign, and the floor of the quotient that goes with it */

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

#endif
