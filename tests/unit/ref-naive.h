/* What the tests of the reference evaluator share: random tensors of random layout, elements by
 * multi-index, comparing bit for bit. The expected results are computed in the tests element by
 * element from the rules, never with the kernels' own helpers. */
#ifndef TESTS_UNIT_REF_NAIVE_H
#define TESTS_UNIT_REF_NAIVE_H

#include "failing.h"
#include "runtime/half.h"
#include "runtime/reference/ref.h"
#include "tests/tap.h"

static Failing hook_state;
static Mem mem;
static Ref ref;
static uint64_t seed = 1;

static TAP_UNUSED void open_all(void) {
  failing_init(&hook_state, &mem, 0);
  ref = (Ref){.mem = &mem};
}

static TAP_UNUSED void close_all(void) {
  mem_close(&mem);
  check(failing_clean(&hook_state, &mem));
}

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t draw(void) {
  uint64_t z = (seed += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int64_t below(int64_t n) {
  return n > 0 ? (int64_t)(draw() % (uint64_t)n) : 0;
}

/* ---- elements */

static void *at(const Tensor *t, const int64_t *idx) {
  int64_t o = t->offset;
  for (int i = 0; i < t->rank; i++) o += idx[i] * t->stride[i];
  return (char *)t->store->data + o * (int64_t)dt_size(t->dtype);
}

static TAP_UNUSED double get_f(const Tensor *t, const int64_t *idx) {
  void *p = at(t, idx);
  switch (t->dtype) {
  case DT_F16: return (double)hf_f32_from_f16(*(uint16_t *)p);
  case DT_BF16: return (double)hf_f32_from_bf16(*(uint16_t *)p);
  case DT_F32: return (double)*(float *)p;
  default: return *(double *)p;
  }
}
static TAP_UNUSED int64_t get_i(const Tensor *t, const int64_t *idx) {
  void *p = at(t, idx);
  switch (t->dtype) {
  case DT_BOOL: return *(uint8_t *)p != 0;
  case DT_U8: return *(uint8_t *)p;
  case DT_I8: return *(int8_t *)p;
  case DT_I16: return *(int16_t *)p;
  case DT_I32: return *(int32_t *)p;
  default: return *(int64_t *)p;
  }
}
static TAP_UNUSED void set_f(Tensor *t, const int64_t *idx, double x) { /* rounds once */
  void *p = at(t, idx);
  switch (t->dtype) {
  case DT_F16: *(uint16_t *)p = hf_f16_from_f64(x); break;
  case DT_BF16: *(uint16_t *)p = hf_bf16_from_f64(x); break;
  case DT_F32: *(float *)p = (float)x; break;
  default: *(double *)p = x; break;
  }
}
static TAP_UNUSED void set_i(Tensor *t, const int64_t *idx, int64_t x) { /* wraps */
  void *p = at(t, idx);
  switch (t->dtype) {
  case DT_BOOL:
  case DT_U8:
  case DT_I8: *(uint8_t *)p = (uint8_t)x; break;
  case DT_I16: *(uint16_t *)p = (uint16_t)x; break;
  case DT_I32: *(uint32_t *)p = (uint32_t)x; break;
  default: *(int64_t *)p = x; break;
  }
}
static TAP_UNUSED void set_from(Tensor *t, const int64_t *it, const Tensor *x, const int64_t *ix) {
  memcpy(at(t, it), at(x, ix), dt_size(t->dtype));
}

/* The next multi-index in row-major order; false after the last. */
static bool step(int rank, const int64_t *dim, int64_t *idx) {
  for (int i = rank - 1; i >= 0; i--) {
    if (++idx[i] < dim[i]) return true;
    idx[i] = 0;
  }
  return false;
}
#define FOR_EACH(idx, rank, dim)                                                                   \
  for (int64_t idx[CKL_MAX_RANK] = {0}, more_##idx = tn_product(rank, dim) > 0; more_##idx;        \
       more_##idx = step(rank, dim, idx))

/* ---- random tensors */

static const double specials[] = {0.0,
                                  -0.0,
                                  1,
                                  -1,
                                  0.5,
                                  -0.5,
                                  2,
                                  3,
                                  -3,
                                  1.5,
                                  2.5,
                                  -2.5,
                                  1e-3,
                                  (double)INFINITY,
                                  -(double)INFINITY,
                                  (double)NAN,
                                  65504,
                                  65520,
                                  3e38,
                                  1e-40,
                                  -1e-45,
                                  6e-8,
                                  1e300,
                                  0x1.fffffep-127,
                                  256,
                                  127.5,
                                  -128,
                                  2147483648.0,
                                  9.3e18,
                                  -9.3e18,
                                  0.1,
                                  10,
                                  1000003};
enum { PLAIN, WILD }; /* WILD: specials among them */

static double draw_f(int how) {
  if (how == WILD && below(4) == 0) return specials[below(sizeof specials / sizeof *specials)];
  double x = (double)(int64_t)(draw() >> 11) / 0x1p52 - 1;
  return how == WILD && below(3) == 0 ? ldexp(x, (int)below(80) - 40) : x * 4;
}
static int64_t draw_i(int how) {
  static const int64_t edge[] = {0,         1,         -1,        2,      127,
                                 -128,      255,       32767,     -32768, INT32_MAX,
                                 INT32_MIN, INT64_MAX, INT64_MIN, 7,      -7};
  if (how == WILD && below(3) == 0) return edge[below(15)];
  return how == WILD && below(3) == 0 ? (int64_t)draw() : below(21) - 10;
}

/* Any layout: axes in any order in memory, gaps, backwards, repeats (`repeat` allows stride 0). */
static TAP_UNUSED Tensor *draw_layout(DType dt, int rank, const int64_t *dim, bool repeat) {
  int order[CKL_MAX_RANK];
  int64_t stride[CKL_MAX_RANK], size = 1, offset = 0;
  bool plain = below(3) == 0;
  for (int i = 0; i < rank; i++) order[i] = i;
  for (int i = rank - 1; i > 0 && !plain && below(2); i--) {
    int j = (int)below(i + 1), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
  for (int i = rank - 1; i >= 0; i--) {
    int a = order[i];
    int64_t n = dim[a] > 0 ? dim[a] : 1, gap = plain || below(3) ? 1 : 2;
    if (!plain && repeat && below(6) == 0) {
      stride[a] = 0;
      continue;
    }
    stride[a] = size * gap;
    size = size * gap * n + (plain ? 0 : below(2));
    if (!plain && below(6) == 0) {
      offset += stride[a] * (n - 1);
      stride[a] = -stride[a];
    }
  }
  int64_t extra = plain ? 0 : below(3), all = size + extra;
  Tensor *base = tn_zeros(&mem, DEV_CPU, dt, 1, &all);
  Tensor *t = tn_view(&mem, base, rank, dim, stride, offset + extra);
  tn_unref(base);
  return t;
}

static TAP_UNUSED Tensor *draw_tensor(DType dt, int rank, const int64_t *dim, int how) {
  Tensor *t = draw_layout(dt, rank, dim, true);
  FOR_EACH(i, rank, dim) {
    if (dt_float(dt))
      set_f(t, i, draw_f(how));
    else
      set_i(t, i, dt == DT_BOOL ? below(2) : draw_i(how));
  }
  return t;
}

static TAP_UNUSED Tensor *draw_index(int rank, const int64_t *dim, int64_t limit) {
  Tensor *t = draw_layout(DT_I64, rank, dim, true);
  FOR_EACH(i, rank, dim) set_i(t, i, below(limit));
  return t;
}

/* A shape of at most `most` axes, most of them small, now and then one of size 0 or a long one. */
static TAP_UNUSED int draw_shape(int most, int64_t *dim) {
  int rank = (int)below(most + 1);
  for (int i = 0; i < rank; i++) dim[i] = below(12) == 0 ? 0 : 1 + below(7);
  if (rank > 0 && below(4) == 0) dim[below(rank)] = 1 + below(1500);
  while (tn_product(rank, dim) > 20000) dim[below(rank)] = 3;
  return rank;
}

static TAP_UNUSED Tensor *fresh(DType dt, int rank, const int64_t *dim) {
  return tn_new(&mem, DEV_CPU, dt, rank, dim);
}

/* ---- comparing */

/* Takes over both references. */
static TAP_UNUSED bool same_bits(const char *what, Tensor *got, Tensor *want) {
  bool ok = got && want && tn_same(got, want);
  if (!got)
    ok = tap_fail(__FILE__, __LINE__, "%s: failed: %s", what, ref.err.text);
  else if (!ok && got->rank == want->rank && got->dtype == want->dtype) {
    bool told = false;
    FOR_EACH(i, got->rank, want->dim) {
      size_t n = dt_size(got->dtype);
      if (told || memcmp(at(got, i), at(want, i), n) == 0) continue;
      if (dt_float(got->dtype) && isnan(get_f(got, i)) && isnan(get_f(want, i))) continue;
      told = true;
      double g = dt_float(got->dtype) ? get_f(got, i) : (double)get_i(got, i);
      double w = dt_float(got->dtype) ? get_f(want, i) : (double)get_i(want, i);
      tap_fail(__FILE__, __LINE__, "%s (%s): element [%d %d %d %d] is %a (%.9g), not %a (%.9g)",
               what, dtype_info[got->dtype].name, (int)i[0], (int)i[1], (int)i[2], (int)i[3], g, g,
               w, w);
    }
    if (!told) tap_fail(__FILE__, __LINE__, "%s: the dims differ", what);
  } else if (!ok)
    tap_fail(__FILE__, __LINE__, "%s: rank or dtype differs", what);
  tn_unref(got);
  tn_unref(want);
  return ok;
}

#endif
