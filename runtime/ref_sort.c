/* Sorting along an axis: stable, NaN last in both directions, -0 equal to +0.
 *
 * Each line becomes pairs (key, position), where keys are 64-bit patterns in the wanted order and
 * equal exactly for equal elements; a bottom-up merge sort of the pairs over short insertion-sorted
 * runs is stable. Values are then fetched by position, so -0 and NaN patterns are kept. */
#include "runtime/ref_impl.h"

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

/* Sorts n pairs at p with as many at q as room; the place of the result, NULL when interrupted. */
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

bool ref_sort(Ref *r, const Tensor *x, int axis, bool descending, Tensor **values,
              Tensor **index) {
  DType dt = x->dtype;
  int size = (int)dt_size(dt), rank = x->rank;
  int64_t n = x->dim[axis], total = tn_count(x);
  *values = *index = NULL;
  Tensor *val = ref_new(r, x->store->dev, dt, rank, x->dim);
  Tensor *pos = ref_new(r, x->store->dev, DT_I64, rank, x->dim);
  size_t bytes = 0;
  Pair *room = NULL;
  bool ok = val && pos;
  if (ok && total > 0) {
    ok = n <= INT64_MAX / (2 * (int64_t)sizeof(Pair));
    if (!ok) ref_nomem(r);
    bytes = ok ? 2 * sizeof(Pair) * (size_t)n : 0;
    room = ok ? ref_scratch(r, bytes) : NULL;
    ok = room != NULL;
  }
  if (ok && total > 0) {
    int64_t at[CKL_MAX_RANK] = {0}, to[CKL_MAX_RANK], since = 0;
    int64_t ss = x->stride[axis] * size;
    const char *src = tn_data(x);
    char *dv = tn_data(val);
    int64_t *dp = tn_data(pos);
    union {
      double f[CHUNK];
      int64_t i[CHUNK];
    } line;
    ref_row_major(rank, x->dim, to);
    for (int64_t lines = total / n; ok && lines > 0; lines--) {
      Pair *p = room;
      for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t k = n - i < CHUNK ? n - i : CHUNK;
        if (dt_float(dt)) {
          ref_load_f64(dt, src + i * ss, ss, k, line.f);
          for (int64_t j = 0; j < k; j++)
            p[i + j] = (Pair){key_float(line.f[j], descending), i + j};
        } else {
          ref_load_i64(dt, src + i * ss, ss, k, line.i);
          for (int64_t j = 0; j < k; j++) p[i + j] = (Pair){key_int(line.i[j], descending), i + j};
        }
      }
      p = sort_pairs(r, p, p + n, n);
      if (!p) {
        ok = false;
        break;
      }
      for (int64_t i = 0; i < n; i++) {
        memcpy(dv + i * to[axis] * size, src + p[i].at * ss, (size_t)size);
        dp[i * to[axis]] = p[i].at;
      }
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
  ref_scratch_free(r, room, bytes);
  if (!ok) {
    tn_unref(val);
    tn_unref(pos);
    return false;
  }
  *values = val;
  *index = pos;
  return true;
}
