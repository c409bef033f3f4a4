/* Elementwise kernels against scalar formulas, over all dtypes and random layouts. */
#include "ref-naive.h"
#include "runtime/domain.h"
#include "runtime/fmath.h"
#include "runtime/reference/ref.h"
#include "runtime/reference/ref_elem.h"

static const DType all[] = {DT_BOOL, DT_U8,  DT_I8,   DT_I16, DT_I32,
                            DT_I64,  DT_F16, DT_BF16, DT_F32, DT_F64};

/* The functions of fmath.inc one by one, and here the others. */
#define FN_FMATH(NAME, call)                                                                       \
  case NAME:                                                                                       \
    return call;
#define FN_FMATH_RARE FN_FMATH
#define FN_OWN(NAME, call)
#define FN_TRUTH(NAME, call)

static float un32(RefUn f, float x) {
  switch (f) {
#define UN(NAME, name, text, ...) FN_##text(RU_##NAME, fm_##name##_f32(x))
#include "runtime/elementwise_rows.def"
  case RU_NEG: return -x;
  case RU_ABS: return fabsf(x);
  case RU_SIGN: return isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0;
  case RU_SQRT: return sqrtf(x);
  case RU_RELU: return isnan(x) ? x : x > 0 ? x : 0;
  case RU_FLOOR: return floorf(x);
  case RU_CEIL: return ceilf(x);
  default: return nearbyintf(x);
  }
}
static double un64(RefUn f, double x) {
  switch (f) {
#define UN(NAME, name, text, ...) FN_##text(RU_##NAME, fm_##name##_f64(x))
#include "runtime/elementwise_rows.def"
  case RU_NEG: return -x;
  case RU_ABS: return fabs(x);
  case RU_SIGN: return isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0;
  case RU_SQRT: return sqrt(x);
  case RU_RELU: return isnan(x) ? x : x > 0 ? x : 0;
  case RU_FLOOR: return floor(x);
  case RU_CEIL: return ceil(x);
  default: return nearbyint(x);
  }
}

static bool un_on_int(RefUn f) {
  return f == RU_NEG || f == RU_ABS || f == RU_SIGN || f == RU_RELU || f == RU_FLOOR ||
         f == RU_CEIL || f == RU_ROUND;
}

static void t_unary(RefUn f) {
  open_all();
  for (int round = 0; round < 60; round++) {
    DType dt = all[below(10)];
    int64_t dim[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *got = ref_unary(&ref, f, x);
    bool test = f == RU_ISNAN || f == RU_ISINF;
    bool defined = f == RU_NOT ? dt == DT_BOOL : dt_float(dt) || (dt_int(dt) && un_on_int(f));
    check((got != NULL) == defined);
    if (!defined) {
      check_int(ref.err.kind, ==, REF_VALUE);
      check_has(ref.err.text, dtype_info[dt].name);
      tn_unref(x);
      continue;
    }
    Tensor *want = fresh(test ? DT_BOOL : dt, rank, dim);
    FOR_EACH(i, rank, dim) {
      if (test)
        set_i(want, i, f == RU_ISNAN ? isnan(get_f(x, i)) : isinf(get_f(x, i)) != 0);
      else if (dt == DT_F64)
        set_f(want, i, un64(f, get_f(x, i)));
      else if (dt_float(dt))
        set_f(want, i, (double)un32(f, (float)get_f(x, i)));
      else {
        int64_t v = get_i(x, i);
        if (f == RU_NOT) v = !v;
        if (f == RU_NEG || (f == RU_ABS && v < 0)) v = (int64_t)(0 - (uint64_t)v);
        if (f == RU_SIGN) v = v > 0 ? 1 : v < 0 ? -1 : 0;
        if (f == RU_RELU && v < 0) v = 0;
        set_i(want, i, v);
      }
    }
    if (!same_bits("unary", got, want)) tap_note("op %d", (int)f);
    tn_unref(x);
  }
  close_all();
}

/* The float remainder by subtracting shifted divisors: exact at every step. */
static double slow_mod(double x, double y) {
  if (isnan(x) || isnan(y) || isinf(x) || y == 0) return (double)NAN;
  double m = fabs(x), d = fabs(y);
  if (isinf(y))
    m = fabs(x);
  else
    while (m >= d) {
      double s = d;
      while (s <= m / 2) s *= 2;
      m -= s;
    }
  if (x < 0) m = -m;
  if (m == 0) return copysign(0.0, y);
  return m;
}
static double mod64(double x, double y) {
  double m = slow_mod(x, y);
  return m != 0 && !isnan(m) && (m < 0) != (y < 0) ? m + y : m;
}
static float mod32(float x, float y) {
  double m = slow_mod((double)x, (double)y);
  return m != 0 && !isnan(m) && (m < 0) != (y < 0) ? (float)m + y : (float)m;
}
static double floordiv64(double x, double y) {
  if (y == 0 || isnan(x) || isnan(y) || isinf(x)) return y == 0 ? x / y : (double)NAN;
  double m = slow_mod(x, y), q = (x - m) / y;
  if (m != 0 && (m < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysign(0.0, x / y);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
static float floordiv32(float x, float y) {
  if (y == 0 || isnan(x) || isnan(y) || isinf(x)) return y == 0 ? x / y : NAN;
  float m = (float)slow_mod((double)x, (double)y), q = (x - m) / y;
  if (m != 0 && (m < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysignf(0, x / y);
  float f = floorf(q);
  return q - f > 0.5f ? f + 1 : f;
}

static double extreme(bool max, double x, double y) {
  if (isnan(x) || isnan(y)) return (double)NAN;
  if (x == 0 && y == 0) {
    bool neg = max ? signbit(x) && signbit(y) : signbit(x) || signbit(y);
    return neg ? -0.0 : 0.0;
  }
  return max ? (x > y ? x : y) : (x < y ? x : y);
}

static bool compare_f(RefBin f, double x, double y) {
  switch (f) {
  case RB_EQ: return x == y;
  case RB_NE: return x != y;
  case RB_LT: return x < y;
  case RB_LE: return x <= y;
  case RB_GT: return x > y;
  default: return x >= y;
  }
}
static bool compare_i(RefBin f, int64_t x, int64_t y) {
  switch (f) {
  case RB_EQ: return x == y;
  case RB_NE: return x != y;
  case RB_LT: return x < y;
  case RB_LE: return x <= y;
  case RB_GT: return x > y;
  default: return x >= y;
  }
}

static double bin64(RefBin f, double x, double y) {
  switch (f) {
  case RB_ADD: return x + y;
  case RB_SUB: return x - y;
  case RB_MUL: return x * y;
  case RB_DIV: return x / y;
  case RB_FLOORDIV: return floordiv64(x, y);
  case RB_MOD: return mod64(x, y);
  case RB_POW: return fm_pow_f64(x, y);
  case RB_ATAN2: return fm_atan2_f64(x, y);
  case RB_HYPOT: return fm_hypot_f64(x, y);
  default: return extreme(f == RB_MAX, x, y);
  }
}
static float bin32(RefBin f, float x, float y) {
  switch (f) {
  case RB_ADD: return x + y;
  case RB_SUB: return x - y;
  case RB_MUL: return x * y;
  case RB_DIV: return x / y;
  case RB_FLOORDIV: return floordiv32(x, y);
  case RB_MOD: return mod32(x, y);
  case RB_POW: return fm_pow_f32(x, y);
  case RB_ATAN2: return fm_atan2_f32(x, y);
  case RB_HYPOT: return fm_hypot_f32(x, y);
  default: return (float)extreme(f == RB_MAX, (double)x, (double)y);
  }
}

/* Ints of any width, in 128 bits; false = must fail. */
static bool bin_int(RefBin f, int64_t a, int64_t b, int64_t *out) {
  __int128 x = a, y = b, q;
  switch (f) {
  case RB_ADD: *out = (int64_t)(uint64_t)(x + y); return true;
  case RB_SUB: *out = (int64_t)(uint64_t)(x - y); return true;
  case RB_MUL: *out = (int64_t)((uint64_t)a * (uint64_t)b); return true;
  case RB_FLOORDIV:
  case RB_MOD:
    if (b == 0) return false;
    q = x / y;
    if (q * y != x && (x < 0) != (y < 0)) q--;
    *out = (int64_t)(uint64_t)(f == RB_MOD ? x - q * y : q);
    return true;
  case RB_POW: {
    if (b < 0) return false;
    uint64_t p = 1;
    if (b > 300) { /* by bits from the top */
      for (int bit = 62; bit >= 0; bit--) {
        p *= p;
        if (b >> bit & 1) p *= (uint64_t)a;
      }
    } else
      for (int64_t i = 0; i < b; i++) p *= (uint64_t)a;
    *out = (int64_t)p;
    return true;
  }
  case RB_MAX: *out = a > b ? a : b; return true;
  case RB_MIN: *out = a < b ? a : b; return true;
  case RB_AND: *out = a && b; return true;
  default: *out = a || b; return true;
  }
}

static void t_binary(RefBin f) {
  open_all();
  for (int round = 0; round < 80; round++) {
    DType dt = all[below(10)];
    int64_t dim[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    bool test = f >= RB_EQ && f <= RB_GE, logic = f == RB_AND || f == RB_OR;
    bool defined = logic ? dt == DT_BOOL : elem_bin[f].domain != DOM_FLOAT || dt_float(dt);
    if (dt == DT_BOOL && !logic && f != RB_EQ && f != RB_NE) defined = false;
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *y = draw_tensor(dt, rank, dim, WILD);
    bool fails = f == RB_FLOORDIV || f == RB_MOD || f == RB_POW;
    if (fails && dt_int(dt) && below(3)) /* mostly operands that do not fail */
      FOR_EACH(i, rank, dim) {
        if (get_i(y, i) == 0) set_i(y, i, 3);
        if (f == RB_POW && get_i(y, i) < 0) set_i(y, i, 5);
      }
    Tensor *got = ref_binary(&ref, f, x, y);
    if (!defined) {
      check(!got);
      check_int(ref.err.kind, ==, REF_VALUE);
    } else {
      Tensor *want = fresh(test ? DT_BOOL : dt, rank, dim);
      bool bad = false;
      char place[100] = "";
      FOR_EACH(i, rank, dim) {
        int64_t v = 0;
        if (bad) break;
        if (test && dt_float(dt))
          set_i(want, i, compare_f(f, get_f(x, i), get_f(y, i)));
        else if (test)
          set_i(want, i, compare_i(f, get_i(x, i), get_i(y, i)));
        else if (dt == DT_F64)
          set_f(want, i, bin64(f, get_f(x, i), get_f(y, i)));
        else if (dt_float(dt)) {
          set_f(want, i, (double)bin32(f, (float)get_f(x, i), (float)get_f(y, i)));
        } else if (bin_int(f, get_i(x, i), get_i(y, i), &v))
          set_i(want, i, v);
        else {
          bad = true;
          for (int d = 0; d < rank; d++)
            sprintf(place + strlen(place), "%s%d", d ? ", " : "(element [", (int)i[d]);
          if (rank) strcat(place, "])");
        }
      }
      if (bad) {
        check(!got);
        check_int(ref.err.kind, ==, f == RB_POW ? REF_VALUE : REF_DIV_ZERO);
        check_has(ref.err.text, place);
        tn_unref(got);
        tn_unref(want);
      } else if (!same_bits("binary", got, want))
        tap_note("op %d", (int)f);
    }
    tn_unref(x);
    tn_unref(y);
  }
  close_all();
}

static Tensor *one_f(DType dt, double x) {
  return tn_scalar_f64(&mem, DEV_CPU, dt, x);
}

static double apply(RefBin f, DType dt, double x, double y) {
  Tensor *a = one_f(dt, x), *b = one_f(dt, y), *c = ref_binary(&ref, f, a, b);
  double v = tn_get_f64(c, 0);
  tn_unref(a);
  tn_unref(b);
  tn_unref(c);
  return v;
}

/* Values of Python: divmod of floats. */
static void t_floor(DType dt) {
  open_all();
  check_double(apply(RB_FLOORDIV, dt, 7, 2), ==, 3);
  check_double(apply(RB_FLOORDIV, dt, -7, 2), ==, -4);
  check_double(apply(RB_FLOORDIV, dt, 7, -2), ==, -4);
  check_double(apply(RB_FLOORDIV, dt, -7, -2), ==, 3);
  check_double(apply(RB_MOD, dt, -7, 2), ==, 1);
  check_double(apply(RB_MOD, dt, 7, -2), ==, -1);
  check_double(apply(RB_MOD, dt, 5.5, 2), ==, 1.5);
  check_double(apply(RB_FLOORDIV, dt, 1, 0), ==, (double)INFINITY);
  check(isnan(apply(RB_MOD, dt, 1, 0)));
  check(signbit(apply(RB_MOD, dt, 4, -2)) != 0);
  check_double(apply(RB_MOD, dt, 5, -(double)INFINITY), ==, -(double)INFINITY);
  check_double(apply(RB_FLOORDIV, dt, 5, -(double)INFINITY), ==, -1);
  if (dt == DT_F64) {
    check_double(apply(RB_FLOORDIV, dt, 1.0, 0.1), ==, 9);
    check_double(apply(RB_MOD, dt, 1.0, 0.1), ==, 0.09999999999999995);
  }
  close_all();
}

static void t_where(void) {
  open_all();
  for (int round = 0; round < 100; round++) {
    DType dt = all[below(10)];
    int64_t dim[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    Tensor *c = draw_tensor(DT_BOOL, rank, dim, WILD), *x = draw_tensor(dt, rank, dim, WILD);
    Tensor *y = draw_tensor(dt, rank, dim, WILD), *want = fresh(dt, rank, dim);
    FOR_EACH(i, rank, dim) set_from(want, i, get_i(c, i) ? x : y, i);
    same_bits("where", ref_where(&ref, c, x, y), want);
    tn_unref(c);
    tn_unref(x);
    tn_unref(y);
  }
  close_all();
}

/* The float nearest to an int, by trying both neighbours of its double. */
static double nearest(DType to, int64_t v) {
  if (to == DT_F64) return (double)v;
  if (to == DT_F32) return (double)(float)v;
  /* v = sign * m * 2^e with m of 54 bits and a sticky bit: exact enough for 11 bits */
  uint64_t m = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  int e = 0;
  bool sticky = false;
  while (m >> 50) {
    sticky |= m & 1;
    m >>= 1;
    e++;
  }
  double d = ldexp((double)(m << 1 | sticky), e - 1);
  return v < 0 ? -d : d;
}

static int64_t truncated(DType to, double x) {
  static const double low[] = {0, 0, -128, -32768, -2147483648.0, -0x1p63};
  static const double high[] = {1, 255, 127, 32767, 2147483647.0, 0x1p63};
  if (isnan(x)) return 0;
  x = trunc(x);
  if (x <= low[to]) return (int64_t)low[to];
  if (x >= high[to]) return to == DT_I64 ? INT64_MAX : (int64_t)high[to];
  return (int64_t)x;
}

static void t_cast(DType from) {
  open_all();
  for (int round = 0; round < 120; round++) {
    DType to = all[round % 10];
    int64_t dim[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    Tensor *x = draw_tensor(from, rank, dim, WILD), *want = fresh(to, rank, dim);
    FOR_EACH(i, rank, dim) {
      if (dt_float(from)) {
        if (to == DT_BOOL)
          set_i(want, i, get_f(x, i) != 0);
        else if (dt_float(to))
          set_f(want, i, get_f(x, i));
        else
          set_i(want, i, truncated(to, get_f(x, i)));
      } else {
        if (to == DT_BOOL)
          set_i(want, i, get_i(x, i) != 0);
        else if (dt_float(to))
          set_f(want, i, nearest(to, get_i(x, i)));
        else
          set_i(want, i, get_i(x, i));
      }
    }
    if (!same_bits("cast", ref_cast(&ref, x, to), want)) tap_note("to %s", dtype_info[to].name);
    tn_unref(x);
  }
  close_all();
}

static void t_int_ends(void) {
  open_all();
  static const DType ints[] = {DT_I8, DT_I16, DT_I32, DT_I64};
  static const int64_t low[] = {INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
  for (int k = 0; k < 4; k++) {
    Tensor *x = tn_scalar_i64(&mem, DEV_CPU, ints[k], low[k]);
    Tensor *y = tn_scalar_i64(&mem, DEV_CPU, ints[k], -1);
    Tensor *q = ref_binary(&ref, RB_FLOORDIV, x, y), *m = ref_binary(&ref, RB_MOD, x, y);
    Tensor *n = ref_unary(&ref, RU_NEG, x), *a = ref_unary(&ref, RU_ABS, x);
    check_int(tn_get_i64(q, 0), ==, low[k]);
    check_int(tn_get_i64(m, 0), ==, 0);
    check_int(tn_get_i64(n, 0), ==, low[k]);
    check_int(tn_get_i64(a, 0), ==, low[k]);
    Tensor *all_[] = {x, y, q, m, n, a};
    for (int i = 0; i < 6; i++) tn_unref(all_[i]);
  }
  close_all();
}

static void t_errors(void) {
  open_all();
  Tensor *x = tn_zeros(&mem, DEV_CPU, DT_I32, 2, (int64_t[]){3, 4});
  Tensor *y = tn_zeros(&mem, DEV_CPU, DT_I32, 2, (int64_t[]){3, 4});
  FOR_EACH(i, 2, y->dim) set_i(y, i, i[0] == 2 && i[1] > 0 ? 0 : 1);
  check(!ref_binary(&ref, RB_FLOORDIV, x, y));
  check_int(ref.err.kind, ==, REF_DIV_ZERO);
  check_str(ref.err.text, "int division by zero (element [2, 1])");
  FOR_EACH(i, 2, y->dim) set_i(y, i, i[0] == 1 && i[1] > 1 ? -2 : 1);
  check(!ref_binary(&ref, RB_POW, x, y));
  check_int(ref.err.kind, ==, REF_VALUE);
  check_str(ref.err.text, "negative int exponent -2 (element [1, 2])");
  tn_unref(x);
  tn_unref(y);
  x = tn_scalar_i64(&mem, DEV_CPU, DT_I64, 1);
  y = tn_scalar_i64(&mem, DEV_CPU, DT_I64, 0);
  check(!ref_binary(&ref, RB_MOD, x, y));
  check_str(ref.err.text, "int division by zero");
  tn_unref(x);
  tn_unref(y);
  close_all();
}

int main(void) {
  for (int f = 0; f < RU_COUNT; f++) TEST(t_unary((RefUn)f), "a unary op is its formula");
  for (int f = 0; f < RB_COUNT; f++) TEST(t_binary((RefBin)f), "a binary op is its formula");
  TEST(t_floor(DT_F32), "f32 // and % are Python's");
  TEST(t_floor(DT_F64), "f64 // and % are Python's");
  TEST(t_floor(DT_F16), "f16 // and % are Python's");
  TEST(t_where(), "where picks");
  for (int d = 0; d < DT_COUNT; d++) TEST(t_cast((DType)d), "a cast rounds once or saturates");
  TEST(t_int_ends(), "the smallest int wraps");
  TEST(t_errors(), "int division by zero and negative exponents name the first place");
  return tap_done();
}
