/* half.h: conversions between number formats, the definition of ckl's casts (rule 15).
 *
 * f16 is IEEE binary16, bf16 the upper half of a binary32; both travel as uint16_t bit patterns.
 * Conversions to a narrower float round once, to nearest even, with subnormal results and overflow
 * to infinity; a NaN stays a NaN, keeps its sign and becomes quiet. Conversions to a wider float
 * are exact. Float to integer truncates towards zero, saturates, and gives 0 for a NaN.
 * All functions are pure. */
#ifndef CKL_RUNTIME_HALF_H
#define CKL_RUNTIME_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t hf_bits32(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float hf_float32(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static inline uint64_t hf_bits64(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline double hf_float64(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* ---- wider, exact */

static inline float hf_f32_from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  if ((u & 0x7fffffffu) > 0x7f800000u) u |= 0x00400000u;
  return hf_float32(u);
}

static inline float hf_f32_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
  if (a > 0x7c00u) return hf_float32(sign | 0x7fc00000u | a << 13);
  if (a == 0x7c00u) return hf_float32(sign | 0x7f800000u);
  if (a >= 0x0400u) return hf_float32(sign | ((a << 13) + 0x38000000u));
  /* subnormal: a counts units of 2^-24 */
  return hf_float32(sign | hf_bits32((float)a * 0x1p-24f));
}

static inline double hf_f64_from_bf16(uint16_t h) {
  return (double)hf_f32_from_bf16(h);
}
static inline double hf_f64_from_f16(uint16_t h) {
  return (double)hf_f32_from_f16(h);
}

/* ---- narrower, one rounding
 *
 * Where the result is normal, the low bits of the pattern are rounded away by adding just less
 * than half a unit, and one more where the kept part is odd. Where it is subnormal, adding a
 * power of two whose unit in the last place is the smallest subnormal makes the addition itself
 * round. */

static inline uint16_t hf_bf16_from_f32(float x) {
  uint32_t u = hf_bits32(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x0040u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline uint16_t hf_f16_from_f32(float x) {
  uint32_t u = hf_bits32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x1ffu));
  if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (a < 0x38800000u) {
    return (uint16_t)(sign | (hf_bits32(hf_float32(a) + 0.5f) - 0x3f000000u));
  }
  a -= 0x38000000u;
  return (uint16_t)(sign | (a + 0x0fffu + (a >> 13 & 1u)) >> 13);
}

static inline uint16_t hf_bf16_from_f64(double x) {
  uint64_t u = hf_bits64(x), a = u & 0x7fffffffffffffffu;
  uint32_t sign = (uint32_t)(u >> 48) & 0x8000u;
  if (a > 0x7ff0000000000000u) return (uint16_t)(sign | 0x7fc0u | (uint32_t)(a >> 45 & 0x3fu));
  if (a >= 0x47f0000000000000u) return (uint16_t)(sign | 0x7f80u);
  if (a < 0x3810000000000000u) {
    return (uint16_t)(sign | (uint32_t)(hf_bits64(hf_float64(a) + 0x1p-81) - 0x3ae0000000000000u));
  }
  a -= 0x3800000000000000u;
  return (uint16_t)(sign | (uint32_t)((a + 0x0fffffffffffu + (a >> 45 & 1u)) >> 45));
}

static inline uint16_t hf_f16_from_f64(double x) {
  uint64_t u = hf_bits64(x), a = u & 0x7fffffffffffffffu;
  uint32_t sign = (uint32_t)(u >> 48) & 0x8000u;
  if (a > 0x7ff0000000000000u) return (uint16_t)(sign | 0x7e00u | (uint32_t)(a >> 42 & 0x1ffu));
  if (a >= 0x40f0000000000000u) return (uint16_t)(sign | 0x7c00u);
  if (a < 0x3f10000000000000u) {
    return (uint16_t)(sign | (uint32_t)(hf_bits64(hf_float64(a) + 0x1p28) - 0x41b0000000000000u));
  }
  a -= 0x3f00000000000000u;
  return (uint16_t)(sign | (uint32_t)((a + 0x01ffffffffffu + (a >> 42 & 1u)) >> 42));
}

/* ---- integer to half, one rounding */

/* `v` as a double that rounds to bf16 and f16 as `v` does: bits that a double cannot hold are
 * gathered in one sticky bit, far below the last place of the narrower format. */
static inline double hf_sticky_f64(int64_t v) {
  if (v > -((int64_t)1 << 53) && v < (int64_t)1 << 53) return (double)v;
  return (double)((v & ~(int64_t)0xffff) | ((v & 0xffff) != 0) << 15);
}

static inline uint16_t hf_bf16_from_i64(int64_t v) {
  return hf_bf16_from_f64(hf_sticky_f64(v));
}
static inline uint16_t hf_f16_from_i64(int64_t v) {
  return hf_f16_from_f64(hf_sticky_f64(v));
}

/* ---- float to integer (an f32 argument converts to double exactly) */

#define HF_TO_INT(name, type, low, high, above)                                                    \
  static inline type hf_##name##_from_f64(double x) {                                              \
    if (!(x > (double)(low))) return x != x ? 0 : low;                                             \
    if (x >= (above)) return high;                                                                 \
    return (type)x;                                                                                \
  }
HF_TO_INT(i8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
HF_TO_INT(i16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)
HF_TO_INT(i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
HF_TO_INT(i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
HF_TO_INT(u8, uint8_t, 0, UINT8_MAX, 0x1p8)
HF_TO_INT(u16, uint16_t, 0, UINT16_MAX, 0x1p16)
HF_TO_INT(u32, uint32_t, 0, UINT32_MAX, 0x1p32)
HF_TO_INT(u64, uint64_t, 0, UINT64_MAX, 0x1p64)
#undef HF_TO_INT

#endif
