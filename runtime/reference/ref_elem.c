/* Elementwise kernels: ref_unary, ref_binary, ref_where, ref_cast.
 *
 * In: tensors of equal shape and any strides. Out: a new row-major tensor. Chunk by chunk the
 * operands come as contiguous arrays of a computing type (ref_impl.h): f64 and f32 as they are, f16
 * and bf16 as f32 (the result is rounded once), every int and bool as i64: wrapping there and
 * truncating to the narrower int gives the same result as wrapping in the narrower int. So there is
 * one loop per op and computing type.
 *
 * Choices that IEEE 754 or C leave open and that rules 16, 103 to 107 do not make:
 *   sign(-0) is +0; relu(x) is x if x > 0 or NaN, else +0.
 *   max and min: a NaN wins; of zeros, max gives +0 unless both are -0, min gives -0 if one is.
 *   x // y and x % y of floats are Python's: with m = fmod(x, y) (exact), x % y is m, or m + y
 *   (rounded) if the signs of a nonzero m and of y differ; a zero has y's sign. x // y is
 *   (x - m) / y, less 1 if y was added, rounded to the nearest whole number; a zero has the sign of
 *   x / y. By zero: x // 0 is x / 0 and x % 0 is NaN. */
#include "runtime/reference/ref_impl.h"

#include <math.h>
#include <string.h>

#include "runtime/domain.h"
#include "runtime/fmath.h"
#include "runtime/reference/ref_elem.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef void Un32(int64_t n, const float *x, float *y);
typedef void Un64(int64_t n, const double *x, double *y);
typedef void Bin32(int64_t n, const float *x, const float *y, float *z);
typedef void Bin64(int64_t n, const double *x, const double *y, double *z);
typedef void Cmp32(int64_t n, const float *x, const float *y, uint8_t *z);
typedef void Cmp64(int64_t n, const double *x, const double *y, uint8_t *z);

/* The next n elements in the computing type of `dt`: in place, in `raw` or in `conv`. */
static const void *fetch(Walk *w, DType dt, int64_t n, Buf *raw, Buf *conv) {
  const void *p = ref_next(w, n, raw);
  if (dt_half(dt)) {
    ref_load_f32(dt, p, 2, n, conv->f32);
    return conv;
  }
  if (!dt_float(dt) && dt != DT_I64) {
    ref_load_i64(dt, p, (int64_t)dt_size(dt), n, conv->i64);
    return conv;
  }
  return p;
}

/* Whether the computing type is the dtype itself, so that results are written in place. */
static bool computes_itself(DType dt) {
  return dt == DT_F32 || dt == DT_F64 || dt == DT_I64;
}

static void flush(DType dt, const Buf *b, int64_t n, void *dst) {
  if (dt_half(dt))
    ref_store_f32(dt, b->f32, n, dst);
  else
    ref_store_i64(dt, b->i64, n, dst);
}

static void *undefined(Ref *r, const char *op, DType dt) {
  return ref_fail(r, REF_VALUE, "%s is not defined for %s", op, dtype_info[dt].name);
}

/* ---- one operand */

/* Loops of the OWN functions; sqrt has a faster loop below. */
#define LOOP_UN(name, T, w)                                                                        \
  static void name##_f##w(int64_t n, const T *x, T *y) {                                           \
    for (int64_t i = 0; i < n; i++) y[i] = ref_##name##_f##w(x[i]);                                \
  }
#define LOOPS_UN(name) LOOP_UN(name, float, 32) LOOP_UN(name, double, 64)
LOOPS_UN(neg)
LOOPS_UN(abs)
LOOPS_UN(sign)
LOOPS_UN(relu)
LOOPS_UN(floor)
LOOPS_UN(ceil)
LOOPS_UN(round)

/* Uses one instruction for several elements, if every such machine has it. A compiler would call a
 * function for each negative element, to set errno. */
static void sqrt_f32(int64_t n, const float *x, float *y) {
  int64_t i = 0;
#if defined(__SSE2__)
  for (; i + 4 <= n; i += 4) _mm_storeu_ps(y + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#endif
  for (; i < n; i++) y[i] = sqrtf(x[i]);
}
static void sqrt_f64(int64_t n, const double *x, double *y) {
  int64_t i = 0;
#if defined(__SSE2__)
  for (; i + 2 <= n; i += 2) _mm_storeu_pd(y + i, _mm_sqrt_pd(_mm_loadu_pd(x + i)));
#endif
  for (; i < n; i++) y[i] = sqrt(x[i]);
}

#define FN_FMATH(name, w) fm_##name##_f##w##_n
#define FN_FMATH_RARE FN_FMATH
#define FN_OWN(name, w) name##_f##w
#define FN_TRUTH(name, w) NULL
static Un32 *const un32[RU_COUNT] = {
#define UN(NAME, name, text, ...) [RU_##NAME] = FN_##text(name, 32),
#include "runtime/elementwise_rows.def"
};
static Un64 *const un64[RU_COUNT] = {
#define UN(NAME, name, text, ...) [RU_##NAME] = FN_##text(name, 64),
#include "runtime/elementwise_rows.def"
};

static void un_int(RefUn f, int64_t n, const int64_t *x, int64_t *y) {
  switch (f) {
  case RU_NEG:
    for (int64_t i = 0; i < n; i++) y[i] = (int64_t)(0 - (uint64_t)x[i]);
    break;
  case RU_ABS:
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? (int64_t)(0 - (uint64_t)x[i]) : x[i];
    break;
  case RU_SIGN:
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] > 0) - (x[i] < 0);
    break;
  case RU_RELU:
    for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
    break;
  default: memcpy(y, x, (size_t)n * 8); break; /* floor, ceil, round */
  }
}

static void un_test(RefUn f, DType dt, int64_t n, const void *p, uint8_t *z) {
  if (dt == DT_F64) {
    const double *x = p;
    if (f == RU_ISNAN)
      for (int64_t i = 0; i < n; i++) z[i] = x[i] != x[i];
    else
      for (int64_t i = 0; i < n; i++) z[i] = fabs(x[i]) == (double)INFINITY;
  } else {
    const float *x = p;
    if (f == RU_ISNAN)
      for (int64_t i = 0; i < n; i++) z[i] = x[i] != x[i];
    else
      for (int64_t i = 0; i < n; i++) z[i] = fabsf(x[i]) == INFINITY;
  }
}

Tensor *ref_unary(Ref *r, RefUn f, const Tensor *x) {
  DType dt = x->dtype;
  bool test = elem_un[f].test;
  if (!dom_has((OpDomain)elem_un[f].domain, dt)) return undefined(r, elem_un[f].name, dt);
  Tensor *out = ref_new(r, x->store->dev, test ? DT_BOOL : dt, x->rank, x->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), size = (int64_t)dt_size(out->dtype);
  char *q = tn_data(out);
  Walk w;
  Buf raw, conv, res;
  ref_walk(&w, x);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    const void *p = fetch(&w, dt, n, &raw, &conv);
    void *to = computes_itself(dt) ? (void *)q : (void *)&res;
    if (test)
      un_test(f, dt, n, p, (uint8_t *)q);
    else if (dt == DT_F64)
      un64[f](n, p, to);
    else if (dt_float(dt))
      un32[f](n, p, to);
    else if (f == RU_NOT) {
      const int64_t *b = p;
      for (int64_t i = 0; i < n; i++) res.i64[i] = !b[i];
    } else
      un_int(f, n, p, to);
    if (!test && !computes_itself(dt)) flush(dt, &res, n, q);
    q += n * size;
  }
  return out;
}

/* ---- two operands */

#define LOOP_BIN(name, T, w)                                                                       \
  static void name##_f##w(int64_t n, const T *x, const T *y, T *z) {                               \
    for (int64_t i = 0; i < n; i++) z[i] = ref_##name##_f##w(x[i], y[i]);                          \
  }
#define LOOPS_BIN(name) LOOP_BIN(name, float, 32) LOOP_BIN(name, double, 64)
LOOPS_BIN(add)
LOOPS_BIN(sub)
LOOPS_BIN(mul)
LOOPS_BIN(div)
LOOPS_BIN(floordiv)
LOOPS_BIN(mod)
#define max_f32 ref_max_f32_n
#define max_f64 ref_max_f64_n
#define min_f32 ref_min_f32_n
#define min_f64 ref_min_f64_n

#define CMP(name, T, type, op)                                                                     \
  static void name##_##type(int64_t n, const T *x, const T *y, uint8_t *z) {                       \
    for (int64_t i = 0; i < n; i++) z[i] = x[i] op y[i];                                           \
  }
#define CMPS(name, op)                                                                             \
  CMP(name, float, f32, op) CMP(name, double, f64, op) CMP(name, int64_t, i64, op)
CMPS(eq, ==)
CMPS(ne, !=)
CMPS(lt, <)
CMPS(le, <=)
CMPS(gt, >)
CMPS(ge, >=)

static Bin32 *const bin32[RB_COUNT] = {
#define BIN(NAME, name, text, ...) [RB_##NAME] = FN_##text(name, 32),
#include "runtime/elementwise_rows.def"
};
static Bin64 *const bin64[RB_COUNT] = {
#define BIN(NAME, name, text, ...) [RB_##NAME] = FN_##text(name, 64),
#include "runtime/elementwise_rows.def"
};

/* The comparisons. */
typedef void CmpInt(int64_t n, const int64_t *x, const int64_t *y, uint8_t *z);
typedef struct Compare {
  Cmp32 *f32;
  Cmp64 *f64;
  CmpInt *i64;
} Compare;
static const Compare compare[RB_COUNT] = {
    [RB_EQ] = {eq_f32, eq_f64, eq_i64}, [RB_NE] = {ne_f32, ne_f64, ne_i64},
    [RB_LT] = {lt_f32, lt_f64, lt_i64}, [RB_LE] = {le_f32, le_f64, le_i64},
    [RB_GT] = {gt_f32, gt_f64, gt_i64}, [RB_GE] = {ge_f32, ge_f64, ge_i64},
};

/* False at a division by zero or a negative exponent, with its place in *bad. */
static bool bin_int(RefBin f, int64_t n, const int64_t *x, const int64_t *y, int64_t *z,
                    int64_t *bad) {
  switch (f) {
  case RB_ADD:
    for (int64_t i = 0; i < n; i++) z[i] = (int64_t)((uint64_t)x[i] + (uint64_t)y[i]);
    break;
  case RB_SUB:
    for (int64_t i = 0; i < n; i++) z[i] = (int64_t)((uint64_t)x[i] - (uint64_t)y[i]);
    break;
  case RB_MUL:
    for (int64_t i = 0; i < n; i++) z[i] = (int64_t)((uint64_t)x[i] * (uint64_t)y[i]);
    break;
  case RB_FLOORDIV:
  case RB_MOD:
    for (int64_t i = 0; i < n; i++) {
      if (y[i] == 0) return *bad = i, false;
      z[i] = f == RB_MOD ? ref_mod_i64(x[i], y[i]) : ref_floordiv_i64(x[i], y[i]);
    }
    break;
  case RB_POW:
    for (int64_t i = 0; i < n; i++) {
      if (y[i] < 0) return *bad = i, false;
      z[i] = ref_pow_i64(x[i], y[i]);
    }
    break;
  case RB_MAX:
    for (int64_t i = 0; i < n; i++) z[i] = x[i] > y[i] ? x[i] : y[i];
    break;
  case RB_MIN:
    for (int64_t i = 0; i < n; i++) z[i] = x[i] < y[i] ? x[i] : y[i];
    break;
  case RB_AND:
    for (int64_t i = 0; i < n; i++) z[i] = x[i] & y[i];
    break;
  default: /* or */
    for (int64_t i = 0; i < n; i++) z[i] = x[i] | y[i];
    break;
  }
  return true;
}

Tensor *ref_binary(Ref *r, RefBin f, const Tensor *x, const Tensor *y) {
  DType dt = x->dtype;
  bool test = elem_bin[f].test;
  if (!dom_has((OpDomain)elem_bin[f].domain, dt)) return undefined(r, elem_bin[f].name, dt);
  Tensor *out = ref_new(r, x->store->dev, test ? DT_BOOL : dt, x->rank, x->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), size = (int64_t)dt_size(out->dtype);
  char *z = tn_data(out);
  Walk wx, wy;
  Buf raw_x, raw_y, conv_x, conv_y, res;
  ref_walk(&wx, x);
  ref_walk(&wy, y);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK, bad = 0;
    if (ref_stopped(r)) return ref_drop(out);
    const void *p = fetch(&wx, dt, n, &raw_x, &conv_x);
    const void *q = fetch(&wy, dt, n, &raw_y, &conv_y);
    void *to = computes_itself(dt) ? (void *)z : (void *)&res;
    if (test) {
      if (dt == DT_F64)
        compare[f].f64(n, p, q, (uint8_t *)z);
      else if (dt_float(dt))
        compare[f].f32(n, p, q, (uint8_t *)z);
      else
        compare[f].i64(n, p, q, (uint8_t *)z);
    } else {
      if (dt == DT_F64)
        bin64[f](n, p, q, to);
      else if (dt_float(dt))
        bin32[f](n, p, q, to);
      else if (!bin_int(f, n, p, q, to, &bad)) {
        if (f == RB_POW) {
          ref_fail_at(r, REF_VALUE, x->rank, x->dim, at + bad, "", "negative int exponent %lld",
                      (long long)((const int64_t *)q)[bad]);
        } else {
          ref_fail_at(r, REF_DIV_ZERO, x->rank, x->dim, at + bad, "", "int division by zero");
        }
        return ref_drop(out);
      }
      if (!computes_itself(dt)) flush(dt, &res, n, z);
    }
    z += n * size;
  }
  return out;
}

/* ---- where */

typedef uint16_t __attribute__((may_alias)) Bits16;
typedef uint32_t __attribute__((may_alias)) Bits32;
typedef uint64_t __attribute__((may_alias)) Bits64;
#define SELECT(T)                                                                                  \
  do {                                                                                             \
    const T *x = p, *y = q;                                                                        \
    T *z = to;                                                                                     \
    for (int64_t i = 0; i < n; i++) z[i] = c[i] ? x[i] : y[i];                                     \
  } while (0)

static void select_n(int size, int64_t n, const uint8_t *c, const void *p, const void *q,
                     void *to) {
  switch (size) {
  case 1: SELECT(uint8_t); break;
  case 2: SELECT(Bits16); break;
  case 4: SELECT(Bits32); break;
  default: SELECT(Bits64); break;
  }
}

Tensor *ref_where(Ref *r, const Tensor *c, const Tensor *x, const Tensor *y) {
  if (c->dtype != DT_BOOL) return undefined(r, "where", c->dtype);
  Tensor *out = ref_new(r, x->store->dev, x->dtype, x->rank, x->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out);
  int size = (int)dt_size(x->dtype);
  char *z = tn_data(out);
  Walk wc, wx, wy;
  Buf raw_c, raw_x, raw_y;
  ref_walk(&wc, c);
  ref_walk(&wx, x);
  ref_walk(&wy, y);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    const uint8_t *b = ref_next(&wc, n, &raw_c);
    const void *p = ref_next(&wx, n, &raw_x), *q = ref_next(&wy, n, &raw_y);
    select_n(size, n, b, p, q, z);
    z += n * size;
  }
  return out;
}

/* ---- cast (rule 15) */

#define TO(T, expr)                                                                                \
  do {                                                                                             \
    T *z = to;                                                                                     \
    for (int64_t i = 0; i < n; i++) z[i] = (T)(expr);                                              \
  } while (0)

/* Casts from f64 or f32 (f16 and bf16 have become f32 exactly): one rounding, or a saturating
 * truncation. */
static void cast_f64(DType dt, int64_t n, const double *x, void *to) {
  switch (dt) {
  case DT_BOOL: TO(uint8_t, x[i] != 0); break;
  case DT_U8: TO(uint8_t, hf_u8_from_f64(x[i])); break;
  case DT_I8: TO(int8_t, hf_i8_from_f64(x[i])); break;
  case DT_I16: TO(int16_t, hf_i16_from_f64(x[i])); break;
  case DT_I32: TO(int32_t, hf_i32_from_f64(x[i])); break;
  case DT_I64: TO(int64_t, hf_i64_from_f64(x[i])); break;
  case DT_F16: TO(uint16_t, hf_f16_from_f64(x[i])); break;
  case DT_BF16: TO(uint16_t, hf_bf16_from_f64(x[i])); break;
  case DT_F32: TO(float, x[i]); break;
  default: TO(double, x[i]); break;
  }
}

static void cast_f32(DType dt, int64_t n, const float *x, void *to) {
  switch (dt) {
  case DT_BOOL: TO(uint8_t, x[i] != 0); break;
  case DT_U8: TO(uint8_t, hf_u8_from_f64((double)x[i])); break;
  case DT_I8: TO(int8_t, hf_i8_from_f64((double)x[i])); break;
  case DT_I16: TO(int16_t, hf_i16_from_f64((double)x[i])); break;
  case DT_I32: TO(int32_t, hf_i32_from_f64((double)x[i])); break;
  case DT_I64: TO(int64_t, hf_i64_from_f64((double)x[i])); break;
  case DT_F16:
  case DT_BF16:
  case DT_F32: ref_store_f32(dt, x, n, to); break;
  default: TO(double, x[i]); break;
  }
}

/* Casts from an int or bool: one rounding to floats, the low bits to narrower ints (ints wrap). */
static void cast_int(DType dt, int64_t n, const int64_t *x, void *to) {
  switch (dt) {
  case DT_BOOL: TO(uint8_t, x[i] != 0); break;
  case DT_F16: TO(uint16_t, hf_f16_from_i64(x[i])); break;
  case DT_BF16: TO(uint16_t, hf_bf16_from_i64(x[i])); break;
  case DT_F32: TO(float, x[i]); break;
  case DT_F64: TO(double, x[i]); break;
  default: ref_store_i64(dt, x, n, to); break;
  }
}

Tensor *ref_cast(Ref *r, const Tensor *x, DType dt) {
  Tensor *out = ref_new(r, x->store->dev, dt, x->rank, x->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), size = (int64_t)dt_size(dt);
  char *z = tn_data(out);
  Walk w;
  Buf raw, conv;
  ref_walk(&w, x);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    const void *p;
    if (dt == x->dtype && dt != DT_BOOL) {
      p = ref_next(&w, n, &raw);
      memcpy(z, p, (size_t)(n * size));
    } else {
      p = fetch(&w, x->dtype, n, &raw, &conv);
      if (x->dtype == DT_F64)
        cast_f64(dt, n, p, z);
      else if (dt_float(x->dtype))
        cast_f32(dt, n, p, z);
      else
        cast_int(dt, n, p, z);
    }
    z += n * size;
  }
  return out;
}
