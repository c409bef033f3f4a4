/* Casts: every f16 and bf16 goes through f32 and f64 and back; narrowing is compared with a
 * rounding done in integers, at all ties and their neighbours; float to integer at its edges. */
#include "runtime/half.h"

#include "tests/tap.h"

typedef struct Format {
  const char *name;
  int mant, bias; /* bits of the fraction, exponent bias */
  float (*widen)(uint16_t);
  double (*widen64)(uint16_t);
  uint16_t (*narrow)(float);
  uint16_t (*narrow64)(double);
  uint16_t (*narrow_int)(int64_t);
} Format;

static const Format f16 = {
    "f16",          10, 15, hf_f32_from_f16, hf_f64_from_f16, hf_f16_from_f32, hf_f16_from_f64,
    hf_f16_from_i64};
static const Format bf16 = {
    "bf16",          7, 127, hf_f32_from_bf16, hf_f64_from_bf16, hf_bf16_from_f32, hf_bf16_from_f64,
    hf_bf16_from_i64};

static uint16_t infinity(const Format *f) {
  return (uint16_t)(0x7fff >> f->mant << f->mant);
}

static void t_widen(const Format *f) {
  for (uint32_t h = 0; h < 65536; h++) {
    uint32_t a = h & 0x7fff, e = a >> f->mant, m = a & ((1u << f->mant) - 1);
    float x = f->widen((uint16_t)h);
    double want =
        e ? ldexp(m + (1 << f->mant), (int)e - f->bias - f->mant) : ldexp(m, 1 - f->bias - f->mant);
    if (a > infinity(f)) {
      check(x != x && (hf_bits32(x) >> 31) == h >> 15 && hf_bits32(x) >> 22 & 1);
      check(f->widen64((uint16_t)h) != f->widen64((uint16_t)h));
      uint16_t quiet = (uint16_t)(h | 1u << (f->mant - 1));
      check_hex(f->narrow(x), ==, quiet);
      check_hex(f->narrow64(x), ==, quiet);
      continue;
    }
    if (a == infinity(f)) want = INFINITY;
    if (h >> 15) want = -want;
    if (!check(x == want && !signbit(x) == !signbit(want))) tap_note("%s %04x", f->name, h);
    check_double(f->widen64((uint16_t)h), ==, want);
    check_hex(f->narrow(x), ==, h);
    check_hex(f->narrow64(x), ==, h);
  }
}

/* Around the midpoint of every two neighbours, infinity counted as the next finite number. */
static void t_ties(const Format *f) {
  for (uint32_t h = 0; h < infinity(f); h++) {
    double low = f->widen64((uint16_t)h), high = f->widen64((uint16_t)(h + 1));
    if (h + 1u == infinity(f)) high = 2 * low - f->widen64((uint16_t)(h - 1));
    double mid = low + (high - low) / 2;
    uint32_t even = h & 1 ? h + 1 : h;
    for (int s = 0; s < 2; s++) {
      double sign = s ? -1 : 1;
      uint32_t bit = s ? 0x8000 : 0;
      check_hex(f->narrow64(sign * mid), ==, even | bit);
      check_hex(f->narrow64(sign * nextafter(mid, 0)), ==, h | bit);
      check_hex(f->narrow64(sign * nextafter(mid, INFINITY)), ==, (h + 1) | bit);
      check_hex(f->narrow((float)(sign * mid)), ==, even | bit);
      check_hex(f->narrow((float)sign * nextafterf((float)mid, 0)), ==, h | bit);
      check_hex(f->narrow((float)sign * nextafterf((float)mid, INFINITY)), ==, (h + 1) | bit);
    }
    if (tap_bad) return;
  }
}

static void t_extremes(const Format *f) {
  check_hex(f->narrow(INFINITY), ==, infinity(f));
  check_hex(f->narrow64(-INFINITY), ==, infinity(f) | 0x8000u);
  check_hex(f->narrow64(1e308), ==, infinity(f));
  check_hex(f->narrow64(-5e-324), ==, 0x8000);
  check_hex(f->narrow(0x1p-149f), ==, 0);
  check_hex(f->narrow(3.4e38f), ==, f == &bf16 ? 0x7f80 : 0x7c00);
  /* a second rounding, through f32, would lose the last bit of this number */
  double one = 1, step = ldexp(1, -f->mant), half = step / 2, tiny = ldexp(1, -45);
  check_hex(f->narrow64(one + half + tiny), ==, f->narrow64(one + step));
  check_hex(f->narrow64(one + half - tiny), ==, f->narrow64(one));
  check(f->narrow((float)(one + half + tiny)) != f->narrow64(one + half + tiny));
}

static void t_from_int(const Format *f) {
  static const int64_t at[] = {0,
                               1,
                               255,
                               256,
                               257,
                               2047,
                               2048,
                               2049,
                               65504,
                               65519,
                               65520,
                               INT32_MAX,
                               (int64_t)1 << 52,
                               (int64_t)1 << 53,
                               (int64_t)1 << 60,
                               INT64_MAX};
  for (int i = 0; i < 16; i++) {
    for (int64_t d = -3; d <= 3; d++) {
      if (at[i] == INT64_MAX && d > 0) continue;
      int64_t v = at[i] + d;
      long double exact = (long double)v; /* 64 bits of fraction or more, where this is checked */
      uint16_t h = f->narrow_int(v), n = f->narrow_int(-v);
      check_hex(n, ==, v ? h ^ 0x8000u : 0u);
      if ((h & 0x7fff) == infinity(f)) {
        check(v >= 65520 || v <= -65520);
        continue;
      }
      long double got = f->widen64(h), up = f->widen64((uint16_t)(h + 1));
      long double down = (h & 0x7fff) ? (long double)f->widen64((uint16_t)(h - 1)) : -up;
      check(fabsl(exact - got) <= fabsl(exact - up) && fabsl(exact - got) <= fabsl(exact - down));
    }
  }
  int64_t tie = ((int64_t)0x101 << 54) >> 8 << 8; /* 257 * 2^54: a tie of bf16 */
  check_hex(hf_bf16_from_i64(tie), ==, hf_bf16_from_f64(0x1p62));
  check_hex(hf_bf16_from_i64(tie + 1), ==, hf_bf16_from_f64(0x1.02p62));
  check_hex(hf_bf16_from_i64(tie - 1), ==, hf_bf16_from_f64(0x1p62));
  check_hex(hf_bf16_from_i64(INT64_MIN), ==, hf_bf16_from_f64(-0x1p63));
}

#define EDGES(type, name, low, high)                                                               \
  check_int(hf_##name##_from_f64(NAN), ==, 0);                                                     \
  check(hf_##name##_from_f64(INFINITY) == (high));                                                 \
  check(hf_##name##_from_f64(-INFINITY) == (low));                                                 \
  check(hf_##name##_from_f64(1e300) == (high));                                                    \
  check(hf_##name##_from_f64(-1e300) == (low));                                                    \
  check(hf_##name##_from_f64((double)(high)) == (high));                                           \
  check(hf_##name##_from_f64((double)(low)) == (low));                                             \
  check(hf_##name##_from_f64((double)(low)-0.5) == (low));                                         \
  check(hf_##name##_from_f64((double)(high) + 1) == (high));                                       \
  check(hf_##name##_from_f64(-0.99) == 0);                                                         \
  check(hf_##name##_from_f64(1.99) == 1);                                                          \
  check(hf_##name##_from_f64(-1.99) == ((low) < 0 ? -1 : 0) || (low) == 0);                        \
  check(hf_##name##_from_f64(100.7) == 100);                                                       \
  check(hf_##name##_from_f64(-100.7) == ((low) == 0 ? (type)0 : (type)-100))

static void t_to_int(void) {
  EDGES(int8_t, i8, INT8_MIN, INT8_MAX);
  EDGES(int16_t, i16, INT16_MIN, INT16_MAX);
  EDGES(int32_t, i32, INT32_MIN, INT32_MAX);
  EDGES(int64_t, i64, INT64_MIN, INT64_MAX);
  EDGES(uint8_t, u8, 0, UINT8_MAX);
  EDGES(uint16_t, u16, 0, UINT16_MAX);
  EDGES(uint32_t, u32, 0, UINT32_MAX);
  EDGES(uint64_t, u64, 0, UINT64_MAX);
  check_int(hf_i64_from_f64(0x1.fffffffffffffp62), ==, INT64_MAX - 1023);
  check_int(hf_i32_from_f64(2147483647.9), ==, INT32_MAX);
}

int main(void) {
  TEST(t_widen(&f16), "every f16 survives f32 and f64");
  TEST(t_widen(&bf16), "every bf16 survives f32 and f64");
  TEST(t_ties(&f16), "rounding to f16 is to nearest even");
  TEST(t_ties(&bf16), "rounding to bf16 is to nearest even");
  TEST(t_extremes(&f16), "f16 overflows to infinity and rounds f64 once");
  TEST(t_extremes(&bf16), "bf16 overflows to infinity and rounds f64 once");
  TEST(t_from_int(&f16), "integers round to the nearest f16");
  TEST(t_from_int(&bf16), "integers round to the nearest bf16");
  TEST(t_to_int(), "float to integer truncates, saturates, and takes NaN to 0");
  return tap_done();
}
