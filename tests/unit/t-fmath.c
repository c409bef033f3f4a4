/* The elementary functions: special values, the bits of every release, and that all expansions of
 * fmath.inc and the software FMA agree. How near the results are is the matter of t-fmath-mpfr.c.
 *
 * fmath.c is included, not linked, so that the expansions other than this CPU's first choice can be
 * called. `t-fmath --bits` prints tests/unit/fmath-bits.txt. */
#include "runtime/fmath.c"

#include <stdlib.h>

#include "tests/tap.h"

static uint64_t state;

static uint64_t next(void) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* ---- fused multiply-add */

static bool same32(float a, float b) {
  return hf_bits32(a) == hf_bits32(b) || (a != a && b != b);
}
static bool same64(double a, double b) {
  return hf_bits64(a) == hf_bits64(b) || (a != a && b != b);
}

static bool one32(float x, float y, float z) {
  float want = fmaf(x, y, z);
  bool ok = same32(fm_fma32_soft(x, y, z), want) && same32(fm_fma32(x, y, z), want);
  return check_msg(ok, "fma(%a, %a, %a) is %a, not %a", (double)x, (double)y, (double)z,
                   (double)want, (double)fm_fma32_soft(x, y, z));
}

static bool one64(double x, double y, double z) {
  double want = fma(x, y, z);
  bool ok = same64(fm_fma64_soft(x, y, z), want) && same64(fm_fma64(x, y, z), want);
  return check_msg(ok, "fma(%a, %a, %a) is %a, not %a", x, y, z, want, fm_fma64_soft(x, y, z));
}

static const uint64_t edges64[] = {0,
                                   1,
                                   2,
                                   3,
                                   0x000fffffffffffff,
                                   0x0010000000000000,
                                   0x0010000000000001,
                                   0x0018000000000000,
                                   0x0020000000000000,
                                   0x1ff0000000000000,
                                   0x2000000000000001,
                                   0x3c90000000000000,
                                   0x3ca0000000000000,
                                   0x3cb0000000000001,
                                   0x3fe0000000000000,
                                   0x3fefffffffffffff,
                                   0x3ff0000000000000,
                                   0x3ff0000000000001,
                                   0x3ff8000000000000,
                                   0x4000000000000000,
                                   0x4340000000000000,
                                   0x5fefffffffffffff,
                                   0x5ff0000000000000,
                                   0x7fdfffffffffffff,
                                   0x7fe0000000000000,
                                   0x7fefffffffffffff,
                                   0x7ff0000000000000,
                                   0x7ff8000000000000};
enum { EDGES = sizeof edges64 / sizeof edges64[0] };

static const uint32_t edges32[EDGES] = {
    0,          1,          2,          3,          0x007fffff, 0x00800000, 0x00800001,
    0x00c00000, 0x01000000, 0x1f800000, 0x20000001, 0x32800000, 0x33000000, 0x33800001,
    0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3fc00000, 0x40000000, 0x4b800000,
    0x5f7fffff, 0x5f800000, 0x7effffff, 0x7f000000, 0x7f7fffff, 0x7f800000, 0x7fc00000};

static void t_fma_edges(void) {
  for (int i = 0; i < 2 * EDGES; i++)
    for (int j = 0; j < 2 * EDGES; j++)
      for (int k = 0; k < 2 * EDGES; k++) {
        uint64_t s = (uint64_t)1 << 63;
        one64(hf_float64(edges64[i / 2] | (i & 1) * s), hf_float64(edges64[j / 2] | (j & 1) * s),
              hf_float64(edges64[k / 2] | (k & 1) * s));
        uint32_t t = 1u << 31;
        one32(hf_float32(edges32[i / 2] | (i & 1) * t), hf_float32(edges32[j / 2] | (j & 1) * t),
              hf_float32(edges32[k / 2] | (k & 1) * t));
      }
}

/* Few bits set, so that ties and exact cancellations are common. */
static uint64_t sparse(void) {
  uint64_t u = next();
  switch (u & 3) {
  case 0: return next() & next() & next();
  case 1: return ~(next() & next() & next());
  case 2: return (uint64_t)0 - ((uint64_t)1 << (next() & 63));
  default: return next();
  }
}

static void t_fma32(void) {
  state = 11;
  for (int64_t i = 0; i < 3000000; i++) {
    float x = hf_float32((uint32_t)next()), y = hf_float32((uint32_t)next());
    float z = hf_float32((uint32_t)next());
    if (!one32(x, y, z)) return;
    /* an addend about the product, a little apart, or at the rim of its last place */
    x = hf_float32(((uint32_t)sparse() & 0x007fffff) | 0x3f800000);
    y = hf_float32(((uint32_t)sparse() & 0x007fffff) | (uint32_t)(next() % 250) << 23);
    z = hf_float32(hf_bits32(x * y) ^ 0x80000000u) + hf_float32((uint32_t)(next() % 250) << 23);
    if (!one32(x, y, z)) return;
    int shift = (int)(next() % 60) - 30;
    if (!one32(x, y,
               ldexpf(hf_float32(((uint32_t)sparse() & 0x007fffff) | 0xbf800000),
                      (int)(hf_bits32(y) >> 23) - 127 + shift)))
      return;
  }
}

static void t_fma64(void) {
  state = 12;
  for (int64_t i = 0; i < 2000000; i++) {
    double x = hf_float64(next()), y = hf_float64(next()), z = hf_float64(next());
    if (!one64(x, y, z)) return;
    uint64_t m = 0x000fffffffffffffu;
    x = hf_float64((sparse() & m) | (uint64_t)(900 + next() % 200) << 52);
    y = hf_float64((sparse() & m) | (uint64_t)(next() % 2046) << 52);
    double p = x * y;
    if (!one64(x, y, -p)) return;
    if (!one64(x, y, nextafter(-p, next() & 1 ? 1e308 : -1e308))) return;
    int shift = (int)(next() % 240) - 120, e;
    frexp(p, &e);
    double s = hf_float64((sparse() & m) | 0x3ff0000000000000u);
    if (!one64(x, y, ldexp(next() & 1 ? s : -s, e + shift))) return;
    /* results about the smallest normal and below */
    y = ldexp(hf_float64((sparse() & m) | 0x3ff0000000000000u), -1022 - (int)(next() % 60) / 2);
    x = ldexp(hf_float64((sparse() & m) | 0x3ff0000000000000u), -(int)(next() % 60) / 2);
    z = hf_float64((sparse() & m) | (uint64_t)(next() % 4) << 52);
    if (!one64(x, y, next() & 1 ? z : -z)) return;
  }
}

/* ---- the expansions */

typedef void (*Loop32)(int64_t, const float *, float *);
typedef void (*Loop64)(int64_t, const double *, double *);

typedef struct Fn {
  const char *name;
  float (*f32)(float);
  double (*f64)(double);
  Loop32 f32_n;
  Loop64 f64_n;
  Loop32 others32[4];
  Loop64 others64[4];
} Fn;

#undef FM_SCALAR
#if FM_BUILT_IN
/* the software FMA in all functions, which fmath.c leaves out here */
#define FM_TAG(name) soft_##name
#define FM_FMAF(a, b, c) fm_fma32_soft(a, b, c)
#define FM_FMAD(a, b, c) fm_fma64_soft(a, b, c)
#define FM_LANES 0
#include "runtime/fmath-c.inc"
#endif
#if FM_X86
#define OTHERS(name, w)                                                                            \
  {                                                                                                \
    soft_##name##_f##w##_n, hard_##name##_f##w##_n, avx2_##name##_f##w##_n,                        \
        avx512_##name##_f##w##_n                                                                   \
  }
#elif FM_BUILT_IN
#define OTHERS(name, w)                                                                            \
  { soft_##name##_f##w##_n, hard_##name##_f##w##_n }
#else
#define OTHERS(name, w)                                                                            \
  { soft_##name##_f##w##_n }
#endif
static const Fn functions[] = {
#define FM1(name, rare)                                                                            \
  {#name,                                                                                          \
   fm_##name##_f32,                                                                                \
   fm_##name##_f64,                                                                                \
   fm_##name##_f32_n,                                                                              \
   fm_##name##_f64_n,                                                                              \
   OTHERS(name, 32),                                                                               \
   OTHERS(name, 64)},
#include "runtime/fmath.def"
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0], POINTS = 10000 };

static float x32[POINTS], y32[POINTS], a32[POINTS], b32[POINTS];
static double x64[POINTS], y64[POINTS], a64[POINTS], b64[POINTS];

/* Points for both formats: edges, any bits, sizes about 1; and second arguments for pow. */
static void fill(void) {
  state = 13;
  for (int i = 0; i < POINTS; i++) {
    uint64_t u = next(), v = next();
    int e = (int)(next() % 24);
    double s = (double)(int64_t)u * 0x1p-63;
    if (i < 2 * EDGES) {
      x32[i] = hf_float32(edges32[i / 2] | (uint32_t)(i & 1) << 31);
      x64[i] = hf_float64(edges64[i / 2] | (uint64_t)(i & 1) << 63);
    } else if (i % 3 == 0) {
      x32[i] = hf_float32((uint32_t)(u >> 32));
      x64[i] = hf_float64(u);
    } else {
      x64[i] = s * (double)(1 << e) * 0x1p-14;
      x32[i] = (float)x64[i];
    }
    y64[i] = i % 4 == 0 ? hf_float64(v) : (double)((int64_t)v >> 57) * (i & 1 ? 0.5 : 0.37);
    y32[i] = i % 4 == 0 ? hf_float32((uint32_t)v) : (float)y64[i];
  }
}

static bool runs(int expansion) {
  if (expansion == 1) return hard();
#if FM_X86
  if (expansion == 2) return level() >= LEVEL_AVX2;
  if (expansion == 3) return level() >= LEVEL_AVX512;
#endif
  return true;
}

static void t_expansions(const Fn *f) {
  for (int i = 0; i < POINTS; i++) {
    a32[i] = f->f32(x32[i]);
    a64[i] = f->f64(x64[i]);
  }
  for (int k = 0; k < 5; k++) {
    Loop32 g32 = k < 4 ? f->others32[k] : f->f32_n;
    Loop64 g64 = k < 4 ? f->others64[k] : f->f64_n;
    if (!g32 || !runs(k)) continue;
    memset(b32, 0xff, sizeof b32);
    memset(b64, 0xff, sizeof b64);
    for (int at = 0, len = 0; at < POINTS; at += len) { /* pieces of all lengths, for remainders */
      len = at < 5000 ? at % 67 : POINTS - at;
      if (len == 0) len = 1;
      g32(len, x32 + at, b32 + at);
      g64(len, x64 + at, b64 + at);
    }
    for (int i = 0; i < POINTS; i++) {
      check_msg(same32(a32[i], b32[i]), "expansion %d of %s(%a) f32: %a, not %a", k, f->name,
                (double)x32[i], (double)b32[i], (double)a32[i]);
      check_msg(same64(a64[i], b64[i]), "expansion %d of %s(%a) f64: %a, not %a", k, f->name,
                x64[i], b64[i], a64[i]);
    }
    memcpy(b32, x32, sizeof b32); /* in place */
    memcpy(b64, x64, sizeof b64);
    g32(POINTS, b32, b32);
    g64(POINTS, b64, b64);
    for (int i = 0; i < POINTS; i++) check(same32(a32[i], b32[i]) && same64(a64[i], b64[i]));
  }
}

typedef void (*Two32)(int64_t, const float *, const float *, float *);
typedef void (*Two64)(int64_t, const double *, const double *, double *);

typedef struct FnOfTwo {
  const char *name;
  float (*f32)(float, float);
  double (*f64)(double, double);
  Two32 others32[4];
  Two64 others64[4];
} FnOfTwo;

static const FnOfTwo functions_of_two[] = {
#define FM2(name) {#name, fm_##name##_f32, fm_##name##_f64, OTHERS(name, 32), OTHERS(name, 64)},
#include "runtime/fmath.def"
};
enum { OF_TWO = sizeof functions_of_two / sizeof functions_of_two[0] };

static void t_expansions_of_two(const FnOfTwo *f) {
  for (int k = 0; k < 4; k++) {
    if (!f->others32[k] || !runs(k)) continue;
    f->others32[k](POINTS, x32, y32, b32);
    f->others64[k](POINTS, x64, y64, b64);
    for (int i = 0; i < POINTS; i++) {
      float want = f->f32(x32[i], y32[i]);
      double want64 = f->f64(x64[i], y64[i]);
      check_msg(same32(b32[i], want), "expansion %d of %s(%a, %a) f32: %a, not %a", k, f->name,
                (double)x32[i], (double)y32[i], (double)b32[i], (double)want);
      check_msg(same64(b64[i], want64), "expansion %d of %s(%a, %a) f64: %a, not %a", k, f->name,
                x64[i], y64[i], b64[i], want64);
    }
  }
}

static void t_normal_expansions(void) {
  static void (*const g32[])(int64_t, const uint32_t *, float *) = {
    soft_normal_f32_n,
#if FM_X86
    hard_normal_f32_n,
    avx2_normal_f32_n,
    avx512_normal_f32_n,
#endif
  };
  static void (*const g64[])(int64_t, const uint64_t *, double *) = {
    soft_normal_f64_n,
#if FM_X86
    hard_normal_f64_n,
    avx2_normal_f64_n,
    avx512_normal_f64_n,
#endif
  };
  enum { PAIRS = 2001 };
  static uint32_t w32[2 * PAIRS];
  static uint64_t w64[2 * PAIRS];
  state = 14;
  for (int i = 0; i < 2 * PAIRS; i++) w32[i] = (uint32_t)(w64[i] = next());
  for (int k = 0; k < (int)(sizeof g32 / sizeof g32[0]); k++) {
    if (!runs(k)) continue;
    g32[k](PAIRS, w32, b32);
    g64[k](PAIRS, w64, b64);
    for (int i = 0; i < PAIRS; i++) {
      float z0, z1;
      double y0, y1;
      fm_normal_f32(w32[2 * i], w32[2 * i + 1], &z0, &z1);
      fm_normal_f64(w64[2 * i], w64[2 * i + 1], &y0, &y1);
      check(same32(z0, b32[2 * i]) && same32(z1, b32[2 * i + 1]));
      check(same64(y0, b64[2 * i]) && same64(y1, b64[2 * i + 1]));
    }
  }
}

static void t_axpy(void) {
  for (int n = 0; n < 70; n++) {
    for (int i = 0; i < n; i++) {
      a32[i] = b32[i] = x32[i + 100];
      a64[i] = b64[i] = x64[i + 100];
    }
    fm_fma32_axpy(n, 1.1f, y32 + 50, a32);
    fm_fma64_axpy(n, 1.1, y64 + 50, a64);
    for (int i = 0; i < n; i++) {
      check(same32(a32[i], fmaf(1.1f, y32[i + 50], b32[i])));
      check(same64(a64[i], fma(1.1, y64[i + 50], b64[i])));
    }
    soft_axpy_f32(n, 1.1f, y32 + 50, b32);
    soft_axpy_f64(n, 1.1, y64 + 50, b64);
    for (int i = 0; i < n; i++) check(same32(a32[i], b32[i]) && same64(a64[i], b64[i]));
  }
}

/* ---- bits */

static uint64_t mix(uint64_t h, uint64_t u) { /* FNV-1a of the eight bytes, the lowest first */
  for (int i = 0; i < 64; i += 8) h = (h ^ (u >> i & 0xff)) * 0x100000001b3u;
  return h;
}

static uint64_t mix32(uint64_t h, float x) {
  return mix(h, x != x ? 0x7fc00000u : hf_bits32(x));
}

static uint64_t mix64(uint64_t h, double x) {
  return mix(h, x != x ? 0x7ff8000000000000u : hf_bits64(x));
}

typedef struct Bits {
  const char *name;
  uint64_t f32, f64;
} Bits;

/* The bits that programs were promised: tests/unit/fmath-bits.txt. When a line of it differs
 * without anybody meaning it, the compiler or a change broke them; when it is meant, it is a change
 * of the language (rule 108). A function that is new takes a line. */
static Bits known(const char *name) {
  const char *dir = getenv("srcdir");
  char path[4096], line[200], word[64];
  Bits b = {0};
  snprintf(path, sizeof path, "%s/tests/unit/fmath-bits.txt", dir ? dir : ".");
  FILE *f = fopen(path, "r");
  if (!check_msg(f != NULL, "%s is missing", path)) return b;
  while (!b.name && fgets(line, sizeof line, f)) {
    bool row = sscanf(line, "%63s %" SCNx64 " %" SCNx64, word, &b.f32, &b.f64) == 3;
    if (row && !strcmp(word, name)) b.name = name;
  }
  fclose(f);
  check_msg(b.name != NULL, "no bits are promised for %s: %s says how", name, path);
  return b;
}

static const char *name_of(int k) {
  if (k < FUNCTIONS) return functions[k].name;
  return k < FUNCTIONS + OF_TWO ? functions_of_two[k - FUNCTIONS].name : "normal";
}

static Bits bits_of(int k) {
  uint64_t h32 = 0xcbf29ce484222325u, h64 = h32;
  for (int i = 0; i < POINTS; i++) {
    if (k < FUNCTIONS) {
      h32 = mix32(h32, functions[k].f32(x32[i]));
      h64 = mix64(h64, functions[k].f64(x64[i]));
    } else if (k < FUNCTIONS + OF_TWO) {
      h32 = mix32(h32, functions_of_two[k - FUNCTIONS].f32(x32[i], y32[i]));
      h64 = mix64(h64, functions_of_two[k - FUNCTIONS].f64(x64[i], y64[i]));
    } else {
      float z0, z1;
      double y0, y1;
      fm_normal_f32(hf_bits32(x32[i]), (uint32_t)hf_bits64(x64[i]), &z0, &z1);
      fm_normal_f64(hf_bits64(x64[i]), hf_bits64(y64[i]), &y0, &y1);
      h32 = mix32(mix32(h32, z0), z1);
      h64 = mix64(mix64(h64, y0), y1);
    }
  }
  return (Bits){name_of(k), h32, h64};
}

static void t_bits(int k) {
  Bits got = bits_of(k), want = known(got.name);
  check_hex(got.f32, ==, want.f32);
  check_hex(got.f64, ==, want.f64);
}

static int print_bits(void) {
  puts("# Made by `tests/unit/t-fmath --bits`: each function, and a hash of its results in f32 and "
       "in f64.");
  for (int k = 0; k < FUNCTIONS + OF_TWO + 1; k++) {
    Bits b = bits_of(k);
    printf("%s 0x%016" PRIx64 " 0x%016" PRIx64 "\n", b.name, b.f32, b.f64);
  }
  return 0;
}

/* ---- special values */

typedef struct Special {
  const char *name;
  double x, y; /* NAME(x) is y, bit for bit */
} Special;

#define INF INFINITY
#define NAN_ ((double)NAN)
static const Special specials[] = {
    {"exp", 0, 1},
    {"exp", -0.0, 1},
    {"exp", INF, INF},
    {"exp", -INF, 0},
    {"exp", 1e6, INF},
    {"exp", -1e6, 0},
    {"expm1", 0, 0},
    {"expm1", -0.0, -0.0},
    {"expm1", INF, INF},
    {"expm1", -INF, -1},
    {"expm1", -1e6, -1},
    {"expm1", 1e6, INF},
    {"expm1", 0x1p-120, 0x1p-120},
    {"log", 0, -INF},
    {"log", -0.0, -INF},
    {"log", 1, 0},
    {"log", INF, INF},
    {"log", -INF, NAN_},
    {"log", -1, NAN_},
    {"log", -0x1p-140, NAN_},
    {"log1p", 0, 0},
    {"log1p", -0.0, -0.0},
    {"log1p", -1, -INF},
    {"log1p", INF, INF},
    {"log1p", -INF, NAN_},
    {"log1p", -1.5, NAN_},
    {"log1p", -0x1p-140, -0x1p-140},
    {"sin", 0, 0},
    {"sin", -0.0, -0.0},
    {"sin", INF, NAN_},
    {"sin", -INF, NAN_},
    {"sin", 0x1p-140, 0x1p-140},
    {"cos", 0, 1},
    {"cos", -0.0, 1},
    {"cos", INF, NAN_},
    {"cos", -INF, NAN_},
    {"tan", 0, 0},
    {"tan", -0.0, -0.0},
    {"tan", INF, NAN_},
    {"tan", -INF, NAN_},
    {"tan", -0x1p-140, -0x1p-140},
    {"tanh", 0, 0},
    {"tanh", -0.0, -0.0},
    {"tanh", INF, 1},
    {"tanh", -INF, -1},
    {"tanh", 300, 1},
    {"tanh", 0x1p-140, 0x1p-140},
    {"erf", 0, 0},
    {"erf", -0.0, -0.0},
    {"erf", INF, 1},
    {"erf", -INF, -1},
    {"erf", -300, -1},
    {"exp2", 0, 1},
    {"exp2", 10, 1024},
    {"exp2", -149, 0x1p-149},
    {"exp2", INF, INF},
    {"exp2", -INF, 0},
    {"exp2", 1e6, INF},
    {"exp2", -1e6, 0},
    {"log2", 1, 0},
    {"log2", 0x1p-149, -149},
    {"log2", 0x1p127, 127},
    {"log2", 0, -INF},
    {"log2", -0.0, -INF},
    {"log2", INF, INF},
    {"log2", -1, NAN_},
    {"log10", 1, 0},
    {"log10", 1e10, 10},
    {"log10", 0, -INF},
    {"log10", INF, INF},
    {"log10", -INF, NAN_},
    {"cbrt", 0, 0},
    {"cbrt", -0.0, -0.0},
    {"cbrt", 27, 3},
    {"cbrt", -0x1p-126, -0x1p-42},
    {"cbrt", INF, INF},
    {"cbrt", -INF, -INF},
    {"sinh", 0, 0},
    {"sinh", -0.0, -0.0},
    {"sinh", -0x1p-140, -0x1p-140},
    {"sinh", INF, INF},
    {"sinh", -INF, -INF},
    {"sinh", -1e6, -INF},
    {"cosh", 0, 1},
    {"cosh", -0.0, 1},
    {"cosh", INF, INF},
    {"cosh", -INF, INF},
    {"asin", 0, 0},
    {"asin", -0.0, -0.0},
    {"asin", -0x1p-140, -0x1p-140},
    {"asin", 1, 1.5707963267948966},
    {"asin", -1, -1.5707963267948966},
    {"asin", 1.5, NAN_},
    {"asin", -INF, NAN_},
    {"acos", 1, 0},
    {"acos", 0, 1.5707963267948966},
    {"acos", -1, 3.141592653589793},
    {"acos", -1.5, NAN_},
    {"acos", INF, NAN_},
    {"atan", 0, 0},
    {"atan", -0.0, -0.0},
    {"atan", 0x1p-140, 0x1p-140},
    {"atan", 1, 0.7853981633974483},
    {"atan", INF, 1.5707963267948966},
    {"atan", -INF, -1.5707963267948966},
    {"asinh", 0, 0},
    {"asinh", -0.0, -0.0},
    {"asinh", 0x1p-140, 0x1p-140},
    {"asinh", INF, INF},
    {"asinh", -INF, -INF},
    {"acosh", 1, 0},
    {"acosh", 0.5, NAN_},
    {"acosh", -3, NAN_},
    {"acosh", -INF, NAN_},
    {"acosh", INF, INF},
    {"atanh", 0, 0},
    {"atanh", -0.0, -0.0},
    {"atanh", -0x1p-140, -0x1p-140},
    {"atanh", 1, INF},
    {"atanh", -1, -INF},
    {"atanh", 1.5, NAN_},
    {"atanh", -INF, NAN_},
    {"rsqrt", 4, 0.5},
    {"rsqrt", 0, INF},
    {"rsqrt", -0.0, -INF},
    {"rsqrt", INF, 0},
    {"rsqrt", -1, NAN_},
    {"rsqrt", -INF, NAN_},
    {"sigmoid", 0, 0.5},
    {"sigmoid", INF, 1},
    {"sigmoid", -INF, 0},
    {"sigmoid", -1e6, 0},
    {"silu", 0, 0},
    {"silu", -0.0, -0.0},
    {"silu", INF, INF},
    {"silu", 1000, 1000},
    {"silu", -1e6, -0.0},
    {"softplus", INF, INF},
    {"softplus", -INF, 0},
    {"softplus", 1e6, 1e6},
    {"softplus", -1e6, 0},
    {"gelu", 0, 0},
    {"gelu", -0.0, -0.0},
    {"gelu", INF, INF},
    {"gelu", 0x1p100, 0x1p100},
    {"gelu", -0x1p100, -0.0},
    {"sigmoid_grad", 0, 0.25},
    {"sigmoid_grad", INF, 0},
    {"sigmoid_grad", -INF, 0},
    {"silu_grad", 0, 0.5},
    {"silu_grad", INF, 1},
    {"silu_grad", 1e6, 1},
    {"gelu_grad", 0, 0.5},
    {"gelu_grad", INF, 1},
    {"gelu_grad", 1e6, 1},
};

static void t_special(void) {
  for (int i = 0; i < FUNCTIONS; i++) {
    const Fn *f = &functions[i];
    check_msg(isnan(f->f32(NAN)) && isnan(f->f64(NAN)), "%s(NaN) is NaN", f->name);
    check_msg(isnan(f->f32(-NAN)) && isnan(f->f64(-NAN)), "%s(-NaN) is NaN", f->name);
    for (size_t k = 0; k < sizeof specials / sizeof specials[0]; k++) {
      const Special *s = &specials[k];
      if (strcmp(s->name, f->name) != 0) continue;
      float got32 = f->f32((float)s->x);
      double got64 = f->f64(s->x);
      check_msg(same32(got32, (float)s->y), "%s(%g) f32 is %g, not %g", s->name, s->x, s->y,
                (double)got32);
      check_msg(same64(got64, s->y), "%s(%g) f64 is %g, not %g", s->name, s->x, s->y, got64);
    }
  }
}

/* The limits at minus infinity of the grads are 0, of either sign. */
static void t_grad_limits(void) {
  check_double(fm_silu_grad_f32(-INFINITY), ==, 0);
  check_double(fm_silu_grad_f64(-INFINITY), ==, 0);
  check_double(fm_gelu_grad_f32(-INFINITY), ==, 0);
  check_double(fm_gelu_grad_f64(-INFINITY), ==, 0);
}

typedef struct Power {
  double x, y, z;
} Power;

/* C99, F.9.4.4 */
static const Power powers[] = {
    {0, -3, INF},        {-0.0, -3, -INF},   {0, -2, INF},       {-0.0, -2, INF},
    {0, -2.5, INF},      {-0.0, -2.5, INF},  {0, -INF, INF},     {-0.0, -INF, INF},
    {0, 3, 0},           {-0.0, 3, -0.0},    {0, 2, 0},          {-0.0, 2, 0},
    {0, 2.5, 0},         {-0.0, 2.5, 0},     {0, INF, 0},        {-0.0, INF, 0},
    {-1, INF, 1},        {-1, -INF, 1},      {1, NAN_, 1},       {1, INF, 1},
    {1, -INF, 1},        {1, 5.5, 1},        {NAN_, 0, 1},       {NAN_, -0.0, 1},
    {INF, 0, 1},         {-INF, -0.0, 1},    {0, 0, 1},          {-0.0, 0, 1},
    {-3, 0, 1},          {-2, 0.5, NAN_},    {-2, -1.5, NAN_},   {-0.5, 1e-30, NAN_},
    {0.5, -INF, INF},    {-0.5, -INF, INF},  {2, -INF, 0},       {-2, -INF, 0},
    {0.5, INF, 0},       {-0.5, INF, 0},     {2, INF, INF},      {-2, INF, INF},
    {-INF, -3, -0.0},    {-INF, -2, 0},      {-INF, -2.5, 0},    {-INF, 3, -INF},
    {-INF, 2, INF},      {-INF, 2.5, INF},   {-INF, INF, INF},   {-INF, -INF, 0},
    {INF, -0.5, 0},      {INF, 0.5, INF},    {INF, INF, INF},    {INF, -INF, 0},
    {NAN_, 1, NAN_},     {2, NAN_, NAN_},    {NAN_, NAN_, NAN_}, {-1, NAN_, NAN_},
    {0, NAN_, NAN_},     {-INF, NAN_, NAN_}, {NAN_, INF, NAN_},  {2, 10, 1024},
    {-2, 3, -8},         {-2, -3, -0.125},   {10, 2, 100},       {4, 0.5, 2},
    {2, -149, 0x1p-149}, {2, 127, 0x1p127},  {-1, 16777215, -1}, {-1, 16777216, 1},
    {-1, 1e30, 1},       {-8, 0x1p30, INF},  {2, 3000, INF},     {-2, 3001, -INF},
    {2, -3000, 0},       {-2, -3001, -0.0},  {1.5, 2, 2.25},
};

static void t_pow(void) {
  for (size_t k = 0; k < sizeof powers / sizeof powers[0]; k++) {
    const Power *p = &powers[k];
    float got32 = fm_pow_f32((float)p->x, (float)p->y);
    double got64 = fm_pow_f64(p->x, p->y);
    check_msg(same32(got32, (float)p->z), "pow(%g, %g) f32 is %g, not %g", p->x, p->y, p->z,
              (double)got32);
    check_msg(same64(got64, p->z), "pow(%g, %g) f64 is %g, not %g", p->x, p->y, p->z, got64);
  }
  check_double(fm_pow_f64(-1, 9007199254740991.0), ==, -1);
  check_double(fm_pow_f64(-1, 9007199254740992.0), ==, 1);
  check_double(fm_pow_f32(-1, 8388607.5f), !=, fm_pow_f32(-1, 8388607.5f)); /* NaN */
}

/* C99, F.9.1.4 and F.9.4.3 */
static void t_angles(void) {
  const double pi = 3.141592653589793;
  const Power angle[] = {
      {0, -0.0, pi},
      {-0.0, -0.0, -pi},
      {0, 0, 0},
      {-0.0, 0, -0.0},
      {0, -2, pi},
      {-0.0, -2, -pi},
      {0, 2, 0},
      {-0.0, 2, -0.0},
      {-2, 0, -pi / 2},
      {2, -0.0, pi / 2},
      {2, -INF, pi},
      {-2, -INF, -pi},
      {2, INF, 0},
      {-2, INF, -0.0},
      {INF, 2, pi / 2},
      {-INF, 2, -pi / 2},
      {INF, INF, pi / 4},
      {INF, -INF, 3 * pi / 4},
      {-INF, INF, -pi / 4},
      {NAN_, 1, NAN_},
      {1, NAN_, NAN_},
      {NAN_, INF, NAN_},
      {0x1p-140, 1, 0x1p-140},
      {1, 1, pi / 4},
  };
  const Power length[] = {
      {3, -4, 5},
      {INF, NAN_, INF},
      {NAN_, -INF, INF},
      {NAN_, 1, NAN_},
      {0, -0.0, 0},
      {-0.0, -0.0, 0},
      {0x1p-149, 0, 0x1p-149},
      {0x1.8p126, 0x1p127, 0x1.4p127},
      {-2, 0, 2},
      {1, NAN_, NAN_},
      {0x1.8p-140, 0x1p-139, 0x1.4p-139},
      {-INF, 3, INF},
  };
  for (size_t k = 0; k < sizeof angle / sizeof angle[0]; k++) {
    const Power *p = &angle[k];
    double got = fm_atan2_f64(p->x, p->y);
    check_msg(same64(got, p->z), "atan2(%g, %g) is %g, not %g", p->x, p->y, got, p->z);
    got = (double)fm_atan2_f32((float)p->x, (float)p->y);
    check_msg(same64(got, (double)(float)p->z), "atan2(%g, %g) f32 is %g, not %g", p->x, p->y, got,
              p->z);
  }
  for (size_t k = 0; k < sizeof length / sizeof length[0]; k++) {
    const Power *p = &length[k];
    double got = fm_hypot_f64(p->x, p->y);
    check_msg(same64(got, p->z), "hypot(%g, %g) is %g, not %g", p->x, p->y, got, p->z);
    got = (double)fm_hypot_f32((float)p->x, (float)p->y);
    check_msg(same64(got, p->z), "hypot(%g, %g) f32 is %g, not %g", p->x, p->y, got, p->z);
  }
}

/* ---- the functions with a formula, and derivatives, against the formula in long double */

static long double sigmoid_l(long double x) {
  return 1 / (1 + expl(-x));
}

static long double formula(const char *name, long double x) {
  long double s = sigmoid_l(x), c = 2 * sqrtl(2 / 3.14159265358979323846264338327950288L);
  long double z = c * (x + 0.044715L * x * x * x), g = sigmoid_l(z), n = sigmoid_l(-z);
  if (!strcmp(name, "gelu")) return x * g;
  if (!strcmp(name, "sigmoid_grad")) return s * sigmoid_l(-x);
  if (!strcmp(name, "silu_grad")) return s + x * s * sigmoid_l(-x);
  if (!strcmp(name, "gelu_grad")) return g + x * g * n * c * (1 + 3 * 0.044715L * x * x);
  return x * s; /* silu */
}

static double in_ulps(long double error, long double want, int digits) {
  int e;
  frexpl(want, &e);
  return (double)(fabsl(error) / ldexpl(1, e - digits));
}

/* docs/numerics.md states these bounds. */
static void t_gelu(void) {
  double worst32 = 0, worst64 = 0;
  for (double u = -10; u <= 40; u += 0x1p-12) {
    long double want = formula("gelu", u);
    double y = sqrt(2 / 3.14159265358979) * (u + 0.044715 * u * u * u);
    double most = u >= 0 ? 2 : 3 + 5 * fabs(y);
    if (u == 0) continue;
    double e32 = in_ulps(fm_gelu_f32((float)u) - want, want, 24) / most;
    double e64 = in_ulps(fm_gelu_f64(u) - want, want, 53) / most;
    if (e32 > worst32) worst32 = e32;
    if (e64 > worst64) worst64 = e64;
  }
  tap_note("gelu: relative error in parts of its bound: f32 %.2f, f64 %.2f", worst32, worst64);
  check_double(worst32, <=, 1);
  check_double(worst64, <=, 1);
}

static void t_formula(const char *name) {
  const Fn *f = functions;
  while (strcmp(f->name, name) != 0) f++;
  double worst32 = 0, worst64 = 0, far = 0, rel32 = 0;
  for (double x = -12; x <= 40; x += 0x1p-10) {
    float x1 = (float)x;
    double scale = fabs(x) > 1 ? fabs(x) : 1;
    long double want = formula(name, x);
    double e32 = (double)fabsl(f->f32(x1) - want) / scale;
    double e64 = (double)fabsl(f->f64(x) - want) / scale;
    if (e32 > worst32) worst32 = e32;
    if (e64 > worst64) worst64 = e64;
    double rel = (double)fabsl((f->f32(x1) - want) / want);
    if (x > -5 && rel > rel32 && strstr(name, "lu_grad") == NULL) {
      rel32 = rel;
      far = x;
    }
  }
  tap_note("%s: error f32 %.2f * 2^-24, f64 %.2f * 2^-53, of max(1, |x|)", name, worst32 * 0x1p24,
           worst64 * 0x1p53);
  if (rel32 > 0) {
    tap_note("%s: relative error f32 above -5: %.2f * 2^-24 at %g", name, rel32 * 0x1p24, far);
  }
  check_double(worst32, <=, 3 * 0x1p-24);
  check_double(worst64, <=, 3 * 0x1p-53);
}

int main(int argc, char **argv) {
  fill();
  if (argc == 2 && !strcmp(argv[1], "--bits")) return print_bits();
  tap_note("FMA instructions: %s", fm_has_fma() ? "yes" : "no");
  TEST(t_fma_edges(), "the software FMA is exact where something is extreme");
  TEST(t_fma32(), "the software FMA of f32 rounds once");
  TEST(t_fma64(), "the software FMA of f64 rounds once");
  TEST(t_special(), "special values are those of Annex F");
  TEST(t_grad_limits(), "derivatives vanish at minus infinity");
  TEST(t_pow(), "special values of pow are those of Annex F");
  TEST(t_angles(), "special values of atan2 and hypot are those of Annex F");
  TEST(t_formula("silu"), "silu is near its formula");
  TEST(t_formula("gelu"), "gelu is near its formula");
  TEST(t_gelu(), "gelu keeps its relative bounds");
  TEST(t_formula("sigmoid_grad"), "the derivative of sigmoid is near its formula");
  TEST(t_formula("silu_grad"), "the derivative of silu is near its formula");
  TEST(t_formula("gelu_grad"), "the derivative of gelu is near its formula");
  for (int i = 0; i < FUNCTIONS; i++) {
    char title[80];
    snprintf(title, sizeof title, "%s has the same bits in every expansion", functions[i].name);
    TEST(t_expansions(&functions[i]), title);
  }
  for (int i = 0; i < OF_TWO; i++) {
    char title[80];
    const FnOfTwo *f = &functions_of_two[i];
    snprintf(title, sizeof title, "%s has the same bits in every expansion", f->name);
    TEST(t_expansions_of_two(f), title);
  }
  TEST(t_normal_expansions(), "normal has the same bits in every expansion");
  TEST(t_axpy(), "arrays of FMA round each element once");
  for (int i = 0; i < FUNCTIONS + OF_TWO + 1; i++) {
    char title[80];
    snprintf(title, sizeof title, "%s has the bits of every release", name_of(i));
    TEST(t_bits(i), title);
  }
  return tap_done();
}
