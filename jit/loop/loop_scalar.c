/* Single scalar steps of the loop form.
 *
 * In: one or more scalars and what to do. Out: the scalar that the reference evaluator would put in
 * a tensor (ref_elem.c, ref_random.c), to the bit, NaN payloads excepted. Folding of constants and
 * lp_run both go through here, so neither can differ from the other.
 *
 * Invariant: a value of a narrow dtype is held in the computing type, already rounded or wrapped.
 */
#include "jit/loop/loop_impl.h"

#include <math.h>

#include "runtime/elementwise.h"
#include "runtime/fmath.h"
#include "runtime/half.h"
#include "runtime/reference/ref_scalar.h"
#include "runtime/rng.h"

float lp_round(DType dt, float x) {
  if (dt == DT_F16) return hf_f32_from_f16(hf_f16_from_f32(x));
  if (dt == DT_BF16) return hf_f32_from_bf16(hf_bf16_from_f32(x));
  return x;
}

int64_t lp_wrap(DType dt, int64_t x) {
  switch (dt) {
  case DT_BOOL: return x != 0;
  case DT_U8: return (uint8_t)x;
  case DT_I8: return (int8_t)x;
  case DT_I16: return (int16_t)x;
  case DT_I32: return (int32_t)x;
  default: return x;
  }
}

/* ---- casts, rule 15 */

static LScalar from_double(DType dt, double x) {
  LScalar v = {0};
  switch (dt) {
  case DT_BOOL: v.i = x != 0; break;
  case DT_U8: v.i = hf_u8_from_f64(x); break;
  case DT_I8: v.i = hf_i8_from_f64(x); break;
  case DT_I16: v.i = hf_i16_from_f64(x); break;
  case DT_I32: v.i = hf_i32_from_f64(x); break;
  case DT_I64: v.i = hf_i64_from_f64(x); break;
  case DT_F16: v.f = hf_f32_from_f16(hf_f16_from_f64(x)); break;
  case DT_BF16: v.f = hf_f32_from_bf16(hf_bf16_from_f64(x)); break;
  case DT_F32: v.f = (float)x; break;
  default: v.d = x; break;
  }
  return v;
}

static LScalar cast(DType to, DType from, LScalar x) {
  LScalar v = {0};
  if (from == DT_F64) return from_double(to, x.d);
  if (dt_float(from)) return from_double(to, (double)x.f);
  switch (to) {
  case DT_F16: v.f = hf_f32_from_f16(hf_f16_from_i64(x.i)); break;
  case DT_BF16: v.f = hf_f32_from_bf16(hf_bf16_from_i64(x.i)); break;
  case DT_F32: v.f = (float)x.i; break;
  case DT_F64: v.d = (double)x.i; break;
  default: v.i = lp_wrap(to, x.i); break;
  }
  return v;
}

LScalar lp_scalar(DType dt, int64_t imm) {
  LScalar v = {0};
  if (dt_float(dt)) return from_double(dt, hf_float64((uint64_t)imm));
  v.i = lp_wrap(dt, imm);
  return v;
}

int64_t lp_scalar_bits(DType dt, LScalar x) {
  if (!dt_float(dt)) return x.i;
  double d = dt == DT_F64 ? x.d : (double)x.f;
  return d != d ? 0x7ff8000000000000 : (int64_t)hf_bits64(d);
}

/* ---- one operand */

/* The functions of floats of elementwise.def, one element at a time. */
/* clang-format off */
#define FN_FMATH(NAME, call) case NAME: return fm_##call;
#define FN_FMATH_RARE FN_FMATH
#define FN_OWN(NAME, call) case NAME: return ref_##call;
#define FN_TRUTH(NAME, call)
/* clang-format on */

static float un32(RefUn f, float x) {
  switch (f) {
#define UN(NAME, name, text, ...) FN_##text(RU_##NAME, name##_f32(x))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

static double un64(RefUn f, double x) {
  switch (f) {
#define UN(NAME, name, text, ...) FN_##text(RU_##NAME, name##_f64(x))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

static int64_t un_int(RefUn f, int64_t x) {
  switch (f) {
  case RU_NEG: return (int64_t)(0 - (uint64_t)x);
  case RU_ABS: return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
  case RU_SIGN: return (x > 0) - (x < 0);
  case RU_RELU: return x > 0 ? x : 0;
  case RU_NOT: return !x;
  default: return x; /* floor, ceil, round */
  }
}

static LScalar un(RefUn f, DType from, LScalar x) {
  LScalar v = {0};
  if (f == RU_ISNAN)
    v.i = from == DT_F64 ? x.d != x.d : x.f != x.f;
  else if (f == RU_ISINF)
    v.i = from == DT_F64 ? fabs(x.d) == (double)INFINITY : fabsf(x.f) == INFINITY;
  else if (from == DT_F64)
    v.d = un64(f, x.d);
  else if (dt_float(from))
    v.f = lp_round(from, un32(f, x.f));
  else
    v.i = lp_wrap(from, un_int(f, x.i));
  return v;
}

/* ---- two operands */

static float bin32(RefBin f, float x, float y) {
  switch (f) {
#define BIN(NAME, name, text, ...) FN_##text(RB_##NAME, name##_f32(x, y))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

static double bin64(RefBin f, double x, double y) {
  switch (f) {
#define BIN(NAME, name, text, ...) FN_##text(RB_##NAME, name##_f64(x, y))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

static bool bin_int(RefBin f, int64_t x, int64_t y, int64_t *z) {
  *z = 0;
  switch (f) {
  case RB_ADD: *z = (int64_t)((uint64_t)x + (uint64_t)y); break;
  case RB_SUB: *z = (int64_t)((uint64_t)x - (uint64_t)y); break;
  case RB_MUL: *z = (int64_t)((uint64_t)x * (uint64_t)y); break;
  case RB_FLOORDIV:
    if (y == 0) return false;
    *z = ref_floordiv_i64(x, y);
    break;
  case RB_MOD:
    if (y == 0) return false;
    *z = ref_mod_i64(x, y);
    break;
  case RB_POW:
    if (y < 0) return false;
    *z = ref_pow_i64(x, y);
    break;
  case RB_MAX: *z = x > y ? x : y; break;
  case RB_MIN: *z = x < y ? x : y; break;
  case RB_AND: *z = x & y; break;
  default: *z = x | y; break;
  }
  return true;
}

#define COMPARE(f, x, y)                                                                           \
  ((f) == RB_EQ   ? (x) == (y)                                                                     \
   : (f) == RB_NE ? (x) != (y)                                                                     \
   : (f) == RB_LT ? (x) < (y)                                                                      \
   : (f) == RB_LE ? (x) <= (y)                                                                     \
   : (f) == RB_GT ? (x) > (y)                                                                      \
                  : (x) >= (y))

static bool bin(RefBin f, DType from, LScalar x, LScalar y, LScalar *out) {
  if (elem_bin[f].test) {
    if (from == DT_F64)
      out->i = COMPARE(f, x.d, y.d);
    else if (dt_float(from))
      out->i = COMPARE(f, x.f, y.f);
    else
      out->i = COMPARE(f, x.i, y.i);
  } else if (from == DT_F64) {
    out->d = bin64(f, x.d, y.d);
  } else if (dt_float(from)) {
    out->f = lp_round(from, bin32(f, x.f, y.f));
  } else {
    int64_t z;
    bool ok = bin_int(f, x.i, y.i, &z);
    out->i = lp_wrap(from, z);
    return ok;
  }
  return true;
}

/* ---- the rest */

static LScalar fma_one(DType dt, LScalar x, LScalar y, LScalar z) {
  LScalar v = {0};
  if (dt == DT_F64)
    v.d = fm_fma64(x.d, y.d, z.d);
  else if (dt_float(dt))
    v.f = lp_round(dt, fm_fma32(x.f, y.f, z.f));
  else
    v.i = lp_wrap(dt, (int64_t)(x.u * y.u + z.u));
  return v;
}

static LScalar random_one(bool normal, DType dt, const LScalar *x) {
  LScalar v = {0};
  if (x[2].i < 0) return v;
  if (dt == DT_F64) {
    if (normal)
      rng_normal_f64(x[0].u, x[1].u, x[2].i, 1, &v.d);
    else
      rng_uniform_f64(x[0].u, x[1].u, x[2].i, 1, &v.d);
    return v;
  }
  if (normal)
    rng_normal_f32(x[0].u, x[1].u, x[2].i, 1, &v.f);
  else
    rng_uniform_f32(x[0].u, x[1].u, x[2].i, 1, &v.f);
  if (!normal && dt != DT_F32) { /* cut instead of rounded, so that the result is below 1 */
    float steps = dt == DT_F16 ? 0x1p11f : 0x1p8f;
    v.f = floorf(v.f * steps) / steps;
  }
  v.f = lp_round(dt, v.f);
  return v;
}

bool lp_eval(LOp op, int64_t imm, DType dt, DType from, const LScalar *x, LScalar *out) {
  uint32_t w[4], c[4], key[2];
  out->u = 0;
  switch (op) {
  case LP_UN: *out = un((RefUn)imm, from, x[0]); break;
  case LP_BIN: return bin((RefBin)imm, from, x[0], x[1], out);
  case LP_WHERE: *out = x[0].i ? x[1] : x[2]; break;
  case LP_CAST: *out = cast(dt, from, x[0]); break;
  case LP_FMA: *out = fma_one(dt, x[0], x[1], x[2]); break;
  case LP_IDIV: out->u = x[1].u ? x[0].u / x[1].u : 0; break;
  case LP_IREM: out->u = x[1].u ? x[0].u % x[1].u : 0; break;
  case LP_CTZ: out->i = x[0].u ? __builtin_ctzll(x[0].u) : 64; break;
  case LP_UNIFORM: *out = random_one(false, dt, x); break;
  case LP_NORMAL: *out = random_one(true, dt, x); break;
  case LP_RANDINT:
    if (x[2].i >= 0) rng_randint(x[0].u, x[1].u, x[2].i, 1, x[3].i, &out->i);
    break;
  case LP_FOLD: out->u = rng_fold(x[0].u, x[1].u); break;
  case LP_PHILOX:
    for (int i = 0; i < 4; i++) c[i] = (uint32_t)x[i].u;
    for (int i = 0; i < 2; i++) key[i] = (uint32_t)x[4 + i].u;
    rng_philox4x32(c, key, w);
    out->i = w[imm & 3];
    break;
  default: break;
  }
  return true;
}
