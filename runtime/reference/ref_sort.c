/* Sorting along an axis: stable, NaN last in both directions, -0 equal to +0.
 *
 * Each element becomes a key, a pattern of bits in the wanted order; equal elements and only they
 * have equal keys. Keys of 64 bits form pairs (key, position); a bottom-up merge sort of the pairs
 * over short insertion-sorted runs is stable. Keys of 32 bits (all dtypes but f64 and i64) and
 * positions below 2^32 form one word each, the key above the position. Words are all different, so
 * their sort need not be stable, and they compare without a branch. Values are then fetched by
 * position, so -0 and NaN patterns are kept. */
#include "runtime/reference/ref_impl.h"

#include <string.h>

typedef struct Pair {
  uint64_t key;
  int64_t at;
} Pair;

enum { RUN = 16 };

static const uint64_t SIGN = (uint64_t)1 << 63;

static uint64_t key_float(double x, bool descending) {
  if (x != x) return UINT64_MAX;
  uint64_t u = hf_bits64(x == 0 ? 0.0 : x);
  u = u & SIGN ? ~u : u | SIGN; /* ascending; no number gives 2^64 - 1 or 0 */
  return descending ? ~u : u;
}

static uint64_t key_int(int64_t x, bool descending) {
  uint64_t u = (uint64_t)x ^ SIGN;
  return descending ? ~u : u;
}

static void insertion(Pair *p, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    Pair x = p[i];
    int64_t j = i;
    for (; j > 0 && p[j - 1].key > x.key; j--) p[j] = p[j - 1];
    p[j] = x;
  }
}

/* False when interrupted. */
static bool merge(Ref *r, const Pair *a, int64_t n, const Pair *b, int64_t m, Pair *out) {
  for (int64_t i = 1; n > 0 && m > 0; i++) {
    bool right = b->key < a->key;
    *out++ = right ? *b : *a;
    a += !right;
    n -= !right;
    b += right;
    m -= right;
    if (i % 65536 == 0 && ref_stopped(r)) return false;
  }
  memcpy(out, n > 0 ? a : b, (size_t)(n > 0 ? n : m) * sizeof(Pair));
  return true;
}

/* Sorts n pairs at p, with room for n more at q. Returns the place of the result; NULL when
 * interrupted. */
static Pair *sort_pairs(Ref *r, Pair *p, Pair *q, int64_t n) {
  for (int64_t i = 0; i < n; i += RUN) insertion(p + i, n - i < RUN ? n - i : RUN);
  int64_t since = n;
  for (int64_t w = RUN; w < n; w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t a = n - i < w ? n - i : w, b = n - i - a < w ? n - i - a : w;
      if (!merge(r, p + i, a, p + i + a, b, q + i)) return NULL;
      since += a + b;
      if (since > 131072) {
        if (ref_stopped(r)) return NULL;
        since = 0;
      }
    }
    Pair *t = p;
    p = q;
    q = t;
  }
  return p;
}

/* ---- words: key above position */

static uint32_t word_float(float x, bool descending) {
  if (x != x) return UINT32_MAX;
  uint32_t u = hf_bits32(x == 0 ? 0.0f : x);
  u = u >> 31 ? ~u : u | 0x80000000u; /* ascending; no number gives 2^32 - 1 or 0 */
  return descending ? ~u : u;
}

static uint32_t word_int(int64_t x, bool descending) {
  uint32_t u = (uint32_t)(x + 0x80000000);
  return descending ? ~u : u;
}

static void order2(uint64_t *a, uint64_t *b) {
  uint64_t x = *a, y = *b;
  bool swap = y < x;
  *a = swap ? y : x;
  *b = swap ? x : y;
}

/* Sorts four words by a network of five comparisons. */
static void order4(uint64_t *p) {
  order2(p, p + 1);
  order2(p + 2, p + 3);
  order2(p, p + 2);
  order2(p + 1, p + 3);
  order2(p + 1, p + 2);
}

/* Merges two runs of w words: w from the front and w from the back, so that neither run can end
 * early and the two chains of comparisons do not wait for each other. */
static void merge_even(const uint64_t *a, int64_t w, uint64_t *out) {
  const uint64_t *b = a + w, *x = b - 1, *y = b + w - 1;
  uint64_t *end = out + 2 * w - 1;
  for (int64_t i = 0; i < w; i++) {
    uint64_t u = *a, v = *b, s = *x, t = *y;
    bool right = v < u, left = t < s;
    *out++ = right ? v : u;
    a += !right;
    b += right;
    *end-- = left ? s : t;
    x -= left;
    y -= !left;
  }
}

static void merge_words(const uint64_t *a, int64_t n, const uint64_t *b, int64_t m, uint64_t *out) {
  while (n > 0 && m > 0) {
    bool right = *b < *a;
    *out++ = right ? *b : *a;
    a += !right;
    n -= !right;
    b += right;
    m -= right;
  }
  memcpy(out, n > 0 ? a : b, (size_t)(n > 0 ? n : m) * sizeof *out);
}

/* Has the contract of sort_pairs, for keys and positions in one word. */
static uint64_t *sort_words(Ref *r, uint64_t *p, uint64_t *q, int64_t n) {
  int64_t whole = n - n % 4, since = n;
  for (int64_t i = 0; i < whole; i += 4) order4(p + i);
  for (int64_t i = whole + 1; i < n; i++)
    for (int64_t j = i; j > whole; j--) order2(p + j - 1, p + j);
  for (int64_t w = 4; w < n; w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t a = n - i < w ? n - i : w, b = n - i - a < w ? n - i - a : w;
      if (b == w)
        merge_even(p + i, w, q + i);
      else
        merge_words(p + i, a, p + i + a, b, q + i);
      since += a + b;
      if (since > 131072) {
        if (ref_stopped(r)) return NULL;
        since = 0;
      }
    }
    uint64_t *t = p;
    p = q;
    q = t;
  }
  return p;
}

/* ---- lines */

/* The lines to sort: n elements that are `ss` bytes apart. */
typedef struct Lines {
  DType dt;
  bool descending, narrow; /* narrow: as words */
  int64_t n, ss;
  void *room; /* for 2 * n pairs or words */
} Lines;

typedef union Chunk {
  double f[CHUNK];
  int64_t i[CHUNK];
} Chunk;

/* The elements at src as words. */
static void line_words(const Lines *l, const char *src, Chunk *c) {
  uint64_t *p = l->room;
  for (int64_t i = 0; i < l->n; i += CHUNK) {
    int64_t k = l->n - i < CHUNK ? l->n - i : CHUNK;
    if (dt_float(l->dt)) {
      ref_load_f64(l->dt, src + i * l->ss, l->ss, k, c->f);
      for (int64_t j = 0; j < k; j++)
        p[i + j] = (uint64_t)word_float((float)c->f[j], l->descending) << 32 | (uint64_t)(i + j);
    } else {
      ref_load_i64(l->dt, src + i * l->ss, l->ss, k, c->i);
      for (int64_t j = 0; j < k; j++)
        p[i + j] = (uint64_t)word_int(c->i[j], l->descending) << 32 | (uint64_t)(i + j);
    }
  }
}

static void line_pairs(const Lines *l, const char *src, Chunk *c) {
  Pair *p = l->room;
  for (int64_t i = 0; i < l->n; i += CHUNK) {
    int64_t k = l->n - i < CHUNK ? l->n - i : CHUNK;
    if (dt_float(l->dt)) {
      ref_load_f64(l->dt, src + i * l->ss, l->ss, k, c->f);
      for (int64_t j = 0; j < k; j++) p[i + j] = (Pair){key_float(c->f[j], l->descending), i + j};
    } else {
      ref_load_i64(l->dt, src + i * l->ss, l->ss, k, c->i);
      for (int64_t j = 0; j < k; j++) p[i + j] = (Pair){key_int(c->i[j], l->descending), i + j};
    }
  }
}

/* Sorts the line at src; its values and positions go to dv and dp, `to` elements apart. False when
 * interrupted. */
static bool sort_line(Ref *r, const Lines *l, const char *src, char *dv, int64_t *dp, int64_t to) {
  Chunk c;
  size_t size = dt_size(l->dt);
  if (l->narrow) {
    line_words(l, src, &c);
    const uint64_t *p = sort_words(r, l->room, (uint64_t *)l->room + l->n, l->n);
    if (!p) return false;
    for (int64_t i = 0; i < l->n; i++) dp[i * to] = (int64_t)(p[i] & UINT32_MAX);
  } else {
    line_pairs(l, src, &c);
    const Pair *p = sort_pairs(r, l->room, (Pair *)l->room + l->n, l->n);
    if (!p) return false;
    for (int64_t i = 0; i < l->n; i++) dp[i * to] = p[i].at;
  }
  if (size == 4) /* f32 and i32: a copy of known size */
    for (int64_t i = 0; i < l->n; i++) memcpy(dv + i * to * 4, src + dp[i * to] * l->ss, 4);
  else
    for (int64_t i = 0; i < l->n; i++)
      memcpy(dv + i * to * (int64_t)size, src + dp[i * to] * l->ss, size);
  return true;
}

bool ref_sort(Ref *r, const Tensor *x, int axis, bool descending, Tensor **values, Tensor **index) {
  DType dt = x->dtype;
  int size = (int)dt_size(dt), rank = x->rank;
  int64_t n = x->dim[axis], total = tn_count(x);
  *values = *index = NULL;
  Tensor *val = ref_new(r, x->store->dev, dt, rank, x->dim);
  Tensor *pos = ref_new(r, x->store->dev, DT_I64, rank, x->dim);
  Lines l = {
      dt,  descending, dt != DT_F64 && dt != DT_I64 && n <= UINT32_MAX, n, x->stride[axis] * size,
      NULL};
  size_t each = l.narrow ? sizeof(uint64_t) : sizeof(Pair), bytes = 0;
  bool ok = val && pos;
  if (ok && total > 0) {
    ok = n <= INT64_MAX / (2 * (int64_t)sizeof(Pair));
    if (!ok) ref_nomem(r);
    bytes = ok ? 2 * each * (size_t)n : 0;
    l.room = ok ? ref_scratch(r, bytes) : NULL;
    ok = l.room != NULL;
  }
  if (ok && total > 0) {
    int64_t at[CKL_MAX_RANK] = {0}, to[CKL_MAX_RANK], since = 0;
    const char *src = tn_data(x);
    char *dv = tn_data(val);
    int64_t *dp = tn_data(pos);
    ref_row_major(rank, x->dim, to);
    for (int64_t lines = total / n; ok && lines > 0; lines--) {
      ok = sort_line(r, &l, src, dv, dp, to[axis]);
      if (!ok) break;
      since += n + 64;
      if (since > 32768) {
        since = 0;
        ok = !ref_stopped(r);
      }
      for (int d = rank - 1; d >= 0; d--) {
        if (d == axis) continue;
        src += x->stride[d] * size;
        dv += to[d] * size;
        dp += to[d];
        if (++at[d] < x->dim[d]) break;
        src -= x->stride[d] * x->dim[d] * size;
        dv -= to[d] * x->dim[d] * size;
        dp -= to[d] * x->dim[d];
        at[d] = 0;
      }
    }
  }
  ref_scratch_free(r, l.room, bytes);
  if (!ok) {
    tn_unref(val);
    tn_unref(pos);
    return false;
  }
  *values = val;
  *index = pos;
  return true;
}
