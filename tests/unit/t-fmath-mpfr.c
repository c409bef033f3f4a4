/* The elementary functions against MPFR: at most 2 units in the last place everywhere, in f32 and
 * f64. The greatest error found is printed for each function.
 *
 * f64 is compared with MPFR at points of random exponents, points where the function is
 * interesting, and neighbours of hard cases. f32 is compared with MPFR at fewer points, and with
 * the f64 function (whose error is nothing to f32) at points strided over all bit patterns. Give a
 * number as argument for that many times the points. */
#include <math.h>
#include <mpfr.h>
#include <stdlib.h>

#include "runtime/fmath.h"
#include "runtime/half.h"
#include "tests/tap.h"

typedef int (*Mpfr1)(mpfr_t, const mpfr_t, mpfr_rnd_t);

typedef struct Fn {
  const char *name;
  Mpfr1 mp;
  float (*f32)(float);
  double (*f64)(double);
  void (*f32_n)(int64_t, const float *, float *);
  void (*f64_n)(int64_t, const double *, double *);
  double low, high;      /* where the function is interesting */
  double bound;          /* units in the last place */
  double from32, from64; /* the bound holds from here on */
} Fn;

/* 1 / sqrt(-0) is -infinity, mpfr_rec_sqrt(-0) is +infinity */
static int rsqrt_mp(mpfr_t r, const mpfr_t x, mpfr_rnd_t rnd) {
  if (mpfr_zero_p(x)) return mpfr_ui_div(r, 1, x, rnd);
  return mpfr_rec_sqrt(r, x, rnd);
}

static int sigmoid_mp(mpfr_t r, const mpfr_t x, mpfr_rnd_t rnd) {
  mpfr_neg(r, x, rnd);
  mpfr_exp(r, r, rnd);
  mpfr_add_ui(r, r, 1, rnd);
  return mpfr_ui_div(r, 1, r, rnd);
}

static int softplus_mp(mpfr_t r, const mpfr_t x, mpfr_rnd_t rnd) {
  if (mpfr_cmp_ui(x, 1000) > 0) return mpfr_set(r, x, rnd);
  mpfr_exp(r, x, rnd);
  return mpfr_log1p(r, r, rnd);
}

static int silu_mp(mpfr_t r, const mpfr_t x, mpfr_rnd_t rnd) {
  sigmoid_mp(r, x, rnd);
  return mpfr_mul(r, r, x, rnd);
}

#define FN_FROM(name, mp, low, high, bound, from32, from64)                                        \
  {                                                                                                \
#name, mp, fm_##name##_f32, fm_##name##_f64, fm_##name##_f32_n, fm_##name##_f64_n, low, high,  \
        bound, from32, from64                                                                      \
  }
#define FN(name, mp, low, high, bound) FN_FROM(name, mp, low, high, bound, -INFINITY, -INFINITY)
static const Fn functions[] = {
    FN(exp, mpfr_exp, -110, 95, 2),
    FN(expm1, mpfr_expm1, -2, 2, 2),
    FN(log, mpfr_log, 0.5, 2, 2),
    FN(log1p, mpfr_log1p, -0.9, 2, 2),
    FN(sin, mpfr_sin, -20, 20, 2),
    FN(cos, mpfr_cos, -20, 20, 2),
    FN(tan, mpfr_tan, -20, 20, 2),
    FN(tanh, mpfr_tanh, -12, 12, 2),
    FN(erf, mpfr_erf, -6.5, 6.5, 2),
    FN(exp2, mpfr_exp2, -160, 130, 2),
    FN(log2, mpfr_log2, 0.5, 2, 2),
    FN(log10, mpfr_log10, 0.5, 2, 2),
    FN(cbrt, mpfr_cbrt, -10, 10, 2),
    FN(sinh, mpfr_sinh, -3, 3, 2),
    FN(cosh, mpfr_cosh, -3, 3, 2),
    FN(asin, mpfr_asin, -1, 1, 2),
    FN(acos, mpfr_acos, -1, 1, 2),
    FN(atan, mpfr_atan, -4, 4, 2),
    FN(asinh, mpfr_asinh, -4, 4, 2),
    FN(acosh, mpfr_acosh, 1, 3, 2),
    FN(atanh, mpfr_atanh, -1, 1, 2),
    FN(rsqrt, rsqrt_mp, 0, 10, 2),
    FN(sigmoid, sigmoid_mp, -110, 40, 2),
    FN(softplus, softplus_mp, -110, 40, 2),
    FN_FROM(silu, silu_mp, -80, 40, 2, -87, -708), /* below, its sigmoid is subnormal */
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static int64_t scale = 1;
static uint64_t state;

static uint64_t next(void) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static double between(double low, double high) {
  return low + (high - low) * ((double)(next() >> 11) * 0x1p-53);
}

/* |y - r| in units in the last place of r, for a format of `p` bits whose least exponent of an ulp
 * is `least` and whose overflow is at 2^`top`; infinity is as good as 2^top. */
static double ulps(mpfr_t r, double y, int p, int least, int top, mpfr_t t) {
  if (mpfr_nan_p(r)) return y != y ? 0 : INFINITY;
  if (y != y) return INFINITY;
  if (mpfr_inf_p(r)) return isinf(y) && (y < 0) == (mpfr_sgn(r) < 0) ? 0 : INFINITY;
  if (mpfr_zero_p(r)) return y == 0 ? 0 : INFINITY;
  long e = mpfr_get_exp(r) - p;
  if (e < least) e = least;
  if (e > top - p) e = top - p;
  if (isinf(y)) {
    mpfr_set_si_2exp(t, y < 0 ? -1 : 1, top, MPFR_RNDN);
    if (mpfr_cmpabs(r, t) >= 0) return (y < 0) == (mpfr_sgn(r) < 0) ? 0 : INFINITY;
  } else {
    mpfr_set_d(t, y, MPFR_RNDN);
  }
  mpfr_sub(t, t, r, MPFR_RNDA);
  mpfr_mul_2si(t, t, -e, MPFR_RNDA);
  return fabs(mpfr_get_d(t, MPFR_RNDA));
}

typedef struct Worst {
  double error, x, y;
} Worst;

static void note(Worst *w, double error, double x, double y) {
  if (error > w->error || error != error) {
    w->error = error;
    w->x = x;
    w->y = y;
  }
}

static mpfr_t mx, my, mr, mt;

static void try64(const Fn *f, double x, Worst *w) {
  if (x < f->from64) return;
  mpfr_set_d(mx, x, MPFR_RNDN);
  f->mp(mr, mx, MPFR_RNDN);
  note(w, ulps(mr, f->f64(x), 53, -1074, 1024, mt), x, 0);
}

static void try32(const Fn *f, float x, Worst *w) {
  if (x < f->from32) return;
  mpfr_set_d(mx, x, MPFR_RNDN);
  f->mp(mr, mx, MPFR_RNDN);
  note(w, ulps(mr, f->f32(x), 24, -149, 128, mt), x, 0);
}

static void t_f64(const Fn *f) {
  Worst w = {0, 0, 0};
  int64_t n = 40000 * scale;
  mpfr_set_prec(mr, 90);
  state = 1;
  for (int64_t i = 0; i < n; i++) {
    try64(f, hf_float64(next()), &w);                             /* any */
    try64(f, between(f->low, f->high), &w);                       /* interesting */
    try64(f, ldexp(between(-1, 1), (int)(next() % 24) - 16), &w); /* near 1 */
    if (i % 4 == 0) try64(f, ldexp(between(-1, 1), (int)(next() % 2098) - 1074), &w);
  }
  for (int q = 1; q < 3000; q++) { /* near the zeros of sine and cosine */
    double z = q * 1.5707963267948966;
    try64(f, z, &w);
    try64(f, nextafter(z, 0), &w);
    try64(f, nextafter(z, 1e9), &w);
    try64(f, (double)next() * 1.5707963267948966, &w);
  }
  /* The double nearest to a multiple of pi / 2 (Muller et al., Handbook of Floating-Point
   * Arithmetic, chapter on range reduction), and its like. */
  try64(f, 0x1.6ac5b262ca1ffp+849, &w);
  try64(f, 0x1.921fb54442d18p+0, &w);
  tap_note("%s f64: %.3f ulp at %a", f->name, w.error, w.x);
  check_double(w.error, <=, f->bound);
}

static void t_f32(const Fn *f) {
  Worst w = {0, 0, 0};
  mpfr_set_prec(mr, 64);
  state = 2;
  for (int64_t i = 0; i < 20000 * scale; i++) {
    try32(f, hf_float32((uint32_t)next()), &w);
    try32(f, (float)between(f->low, f->high), &w);
  }
  /* against the f64 function, strided over all patterns */
  enum { BLOCK = 1024 };
  static float x[BLOCK], y[BLOCK];
  static double xd[BLOCK], yd[BLOCK];
  uint64_t stride = 1009 / (uint64_t)(scale > 1008 ? 1008 : scale), u = 0;
  while (u < (uint64_t)1 << 32) {
    int n = 0;
    for (; n < BLOCK && u < (uint64_t)1 << 32; u += stride) {
      x[n] = hf_float32((uint32_t)u);
      xd[n] = x[n];
      n++;
    }
    f->f32_n(n, x, y);
    f->f64_n(n, xd, yd);
    for (int i = 0; i < n; i++) {
      double r = yd[i], v = y[i];
      if (xd[i] < f->from32) continue;
      if (r != r || v != v) {
        note(&w, (r != r) == (v != v) ? 0 : INFINITY, xd[i], 0);
        continue;
      }
      int e = (int)(hf_bits64(r) >> 52 & 0x7ff) - 1023 - 23;
      if (e < -149) e = -149;
      if (e > 104) e = 104;
      if (isinf(v) && !isinf(r)) v = copysign(0x1p128, v);
      if (fabs(r) >= 0x1p128) r = copysign(0x1p128, r);
      if (isinf(v)) v = copysign(0x1p128, v);
      note(&w, fabs(v - r) * hf_float64((uint64_t)(1023 - e) << 52), xd[i], 0);
    }
  }
  tap_note("%s f32: %.3f ulp at %a", f->name, w.error, w.x);
  check_double(w.error, <=, f->bound);
}

static void pow64(double x, double y, Worst *w) {
  mpfr_set_d(mx, x, MPFR_RNDN);
  mpfr_set_d(my, y, MPFR_RNDN);
  mpfr_pow(mr, mx, my, MPFR_RNDN);
  note(w, ulps(mr, fm_pow_f64(x, y), 53, -1074, 1024, mt), x, y);
}

static void pow32(float x, float y, Worst *w) {
  mpfr_set_d(mx, x, MPFR_RNDN);
  mpfr_set_d(my, y, MPFR_RNDN);
  mpfr_pow(mr, mx, my, MPFR_RNDN);
  note(w, ulps(mr, fm_pow_f32(x, y), 24, -149, 128, mt), x, y);
}

static void t_pow64(void) {
  Worst w = {0, 0, 0};
  mpfr_set_prec(mr, 90);
  state = 3;
  for (int64_t i = 0; i < 40000 * scale; i++) {
    double x = fabs(hf_float64(next()));
    double lim = 760 / fabs(log(x));
    pow64(x, between(-lim, lim), &w); /* results of any exponent */
    x = between(0.5, 2);
    lim = 760 / fabs(log(x));
    pow64(x, between(-lim, lim), &w);
    pow64(1 + ldexp(between(-1, 1), -(int)(next() % 50)), ldexp(between(-1, 1), (int)(next() % 64)),
          &w);
    pow64(between(-50, 50), (double)((int64_t)(next() % 101) - 50), &w);
    if (i % 4 == 0) pow64(hf_float64(next()), hf_float64(next()), &w);
  }
  tap_note("pow f64: %.3f ulp at %a, %a", w.error, w.x, w.y);
  check_double(w.error, <=, 2.0);
}

static void t_pow32(void) {
  Worst w = {0, 0, 0};
  mpfr_set_prec(mr, 64);
  state = 4;
  for (int64_t i = 0; i < 60000 * scale; i++) {
    float x = fabsf(hf_float32((uint32_t)next()));
    double lim = 105 / fabs(log(x));
    pow32(x, (float)between(-lim, lim), &w);
    x = (float)between(0.5, 2);
    lim = 105 / fabs(log(x));
    pow32(x, (float)between(-lim, lim), &w);
    pow32((float)between(-50, 50), (float)((int)(next() % 41) - 20), &w);
    if (i % 4 == 0) pow32(hf_float32((uint32_t)next()), hf_float32((uint32_t)next()), &w);
  }
  tap_note("pow f32: %.3f ulp at %a, %a", w.error, w.x, w.y);
  check_double(w.error, <=, 2.0);
}

/* ---- atan2 and hypot: any numbers, and pairs of about one size */

typedef int (*Mpfr2)(mpfr_t, const mpfr_t, const mpfr_t, mpfr_rnd_t);

static void two64(double (*f)(double, double), Mpfr2 mp, double x, double y, Worst *w) {
  mpfr_set_d(mx, x, MPFR_RNDN);
  mpfr_set_d(my, y, MPFR_RNDN);
  mp(mr, mx, my, MPFR_RNDN);
  note(w, ulps(mr, f(x, y), 53, -1074, 1024, mt), x, y);
}

static void two32(float (*f)(float, float), Mpfr2 mp, float x, float y, Worst *w) {
  mpfr_set_d(mx, x, MPFR_RNDN);
  mpfr_set_d(my, y, MPFR_RNDN);
  mp(mr, mx, my, MPFR_RNDN);
  note(w, ulps(mr, f(x, y), 24, -149, 128, mt), x, y);
}

static void t_two(const char *name, double (*f64)(double, double), float (*f32)(float, float),
                  Mpfr2 mp) {
  Worst w = {0, 0, 0}, v = {0, 0, 0};
  mpfr_set_prec(mr, 90);
  state = 5;
  for (int64_t i = 0; i < 60000 * scale; i++) {
    double x = between(-1, 1), y = between(-1, 1);
    int e = (int)(next() % 2098) - 1074, d = (int)(next() % 120) - 60;
    two64(f64, mp, x, y, &w);
    two64(f64, mp, ldexp(x, e), ldexp(y, e + d), &w);
    two64(f64, mp, hf_float64(next()), hf_float64(next()), &w);
    two64(f64, mp, x, ldexp(x, (int)(next() % 3) - 1), &w);
    e = e / 8;
    two32(f32, mp, (float)x, (float)y, &v);
    two32(f32, mp, ldexpf((float)x, e), ldexpf((float)y, e + d / 2), &v);
    two32(f32, mp, hf_float32((uint32_t)next()), hf_float32((uint32_t)next()), &v);
  }
  tap_note("%s f64: %.3f ulp at %a, %a", name, w.error, w.x, w.y);
  tap_note("%s f32: %.3f ulp at %a, %a", name, v.error, v.x, v.y);
  check_double(w.error, <=, 2.0);
  check_double(v.error, <=, 2.0);
}

int main(int argc, char **argv) {
  if (argc > 1) scale = atoll(argv[1]);
  if (scale < 1) scale = 1;
  mpfr_init2(mx, 53);
  mpfr_init2(my, 53);
  mpfr_init2(mr, 90);
  mpfr_init2(mt, 120);
  for (int i = 0; i < FUNCTIONS; i++) {
    char title[80];
    snprintf(title, sizeof title, "%s in f64 is within %g ulp", functions[i].name,
             functions[i].bound);
    TEST(t_f64(&functions[i]), title);
    snprintf(title, sizeof title, "%s in f32 is within %g ulp", functions[i].name,
             functions[i].bound);
    TEST(t_f32(&functions[i]), title);
  }
  TEST(t_pow64(), "pow in f64 is within 2 ulp");
  TEST(t_pow32(), "pow in f32 is within 2 ulp");
  TEST(t_two("atan2", fm_atan2_f64, fm_atan2_f32, mpfr_atan2), "atan2 is within 2 ulp");
  TEST(t_two("hypot", fm_hypot_f64, fm_hypot_f32, mpfr_hypot), "hypot is within 2 ulp");
  mpfr_clear(mx);
  mpfr_clear(my);
  mpfr_clear(mr);
  mpfr_clear(mt);
  mpfr_free_cache();
  return tap_done();
}
