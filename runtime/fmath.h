/* fmath.h: the elementary functions that define ckl's bits.
 *
 * Every back end computes these functions from one text, runtime/fmath.inc, so that a program gives
 * the same bits everywhere. fmath.c expands the text to C; a code generator expands it to its own
 * instructions. No libm function is called.
 *
 * Accuracy: exp expm1 exp2, log log1p log2 log10, cbrt pow hypot, sin cos tan, sinh cosh tanh,
 * their inverses, atan2 and erf are within 2 units in the last place over their whole range, in f32
 * and f64. rsqrt is 1 / sqrt(x), both correctly rounded. The functions from sigmoid on are defined
 * by the formula written in fmath.inc.
 *
 * Special values follow C99 Annex F: NaN goes in and comes out (its payload is not defined; pow(1,
 * y) and pow(x, 0) are 1), infinities, signed zeros and subnormal arguments and results are exact
 * cases. No exception flag is defined. The caller keeps round to nearest even, and no flushing of
 * subnormals.
 *
 * All functions are pure and may be called from any thread. */
#ifndef CKL_RUNTIME_FMATH_H
#define CKL_RUNTIME_FMATH_H

#include <stdint.h>

/* For each function of one argument (runtime/fmath.def):
 *   float  fm_NAME_f32(float x);
 *   double fm_NAME_f64(double x);
 *   void   fm_NAME_f32_n(int64_t n, const float *x, float *y);     y[i] = NAME(x[i])
 *   void   fm_NAME_f64_n(int64_t n, const double *x, double *y);
 * The array forms give the bits of the scalar forms, several elements at a time. `x` and `y` are
 * equal or do not overlap.
 *
 * gelu(u) is u * sigmoid(2 y), y = sqrt(2 / pi) * (u + 0.044715 u^3). NAME_grad(u) is the
 * derivative of NAME at u (the derivative of softplus is sigmoid).
 *
 * Found errors: sigmoid and softplus within 2 ulp everywhere, silu wherever sigmoid(x) is a normal
 * number. gelu and the derivatives are within 3 ulp of max(1, |u|); relative to themselves they
 * lose where they are small (gelu: 30 ulp at -5, since the rounding of its argument is multiplied
 * by the argument). silu and gelu of minus infinity are NaN, as their formulas say. */
#define FM1(name, rare)                                                                            \
  float fm_##name##_f32(float x);                                                                  \
  double fm_##name##_f64(double x);                                                                \
  void fm_##name##_f32_n(int64_t n, const float *x, float *y);                                     \
  void fm_##name##_f64_n(int64_t n, const double *x, double *y);
/* The same for each function of two, with the special cases of Annex F: pow is x to the power y,
 * atan2 the angle of the point (y, x). */
#define FM2(name)                                                                                  \
  float fm_##name##_f32(float x, float y);                                                         \
  double fm_##name##_f64(double x, double y);                                                      \
  void fm_##name##_f32_n(int64_t n, const float *x, const float *y, float *z);                     \
  void fm_##name##_f64_n(int64_t n, const double *x, const double *y, double *z);
#include "runtime/fmath.def"

/* x * y + z with one rounding: the instruction where the CPU has it, else the `_soft` form. */
float fm_fma32(float x, float y, float z);
double fm_fma64(double x, double y, double z);
float fm_fma32_soft(float x, float y, float z);
double fm_fma64_soft(double x, double y, double z);

/* acc[i] = fma(a, x[i], acc[i]) for i < n: the inner loop of a contraction. */
void fm_fma32_axpy(int64_t n, float a, const float *x, float *acc);
void fm_fma64_axpy(int64_t n, double a, const double *x, double *acc);

/* Two normal deviates from two random words (Box and Muller 1958), as defined in fmath.inc:
 * radius from `a`, angle from `b`. */
void fm_normal_f32(uint32_t a, uint32_t b, float *z0, float *z1);
void fm_normal_f64(uint64_t a, uint64_t b, double *z0, double *z1);
/* The same for n pairs: z[2 i], z[2 i + 1] from a[2 i], a[2 i + 1]. `a` and `z` do not overlap. */
void fm_normal_f32_n(int64_t n, const uint32_t *a, float *z);
void fm_normal_f64_n(int64_t n, const uint64_t *a, double *z);

/* Whether this process uses FMA instructions: a pure function of the CPU and of how the library was
 * compiled. It changes speed, never bits. */
int fm_has_fma(void);

#endif
