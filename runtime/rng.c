/* rng.c: Philox 4x32-10 and the distributions of rng.h.
 *
 * In: a key, a counter and a range of element indices. Out: the elements. The words are made block
 * by block into a small buffer that starts at a block's first element, and each distribution maps
 * words to elements.
 * Invariant: an element depends on (key, counter, index) only, so a range may be cut anywhere. */
#include "runtime/rng.h"

#include "runtime/fmath.h"

/* Salmon et al. 2011, section 3.4 and table 2: the multipliers, and the Weyl sequences that bump
 * the key (the fractions of the golden ratio and of sqrt(3)). */
void rng_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p = (uint64_t)0xd2511f53u * c0, q = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)q;
    c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

static void block(uint64_t key, uint64_t counter, uint64_t index, uint32_t out[4]) {
  uint32_t ctr[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)counter,
                     (uint32_t)(counter >> 32)};
  uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
  rng_philox4x32(ctr, k, out);
}

uint64_t rng_fold(uint64_t key, uint64_t i) {
  uint32_t w[4];
  block(key, UINT64_MAX, i, w);
  return w[0] | (uint64_t)w[1] << 32;
}

uint64_t rng_key(uint64_t n) {
  return rng_fold(0x243f6a8885a308d3u, n);
} /* the fraction of pi */

enum { BLOCKS = 128 };

static uint64_t word64(const uint32_t *w) {
  return w[0] | (uint64_t)w[1] << 32;
}

/* The loop of each filler: makes up to BLOCKS blocks, beginning with the one that holds element
 * `first`; of their elements it skips `skip` and uses `take`. */
#define EACH_CHUNK(per)                                                                            \
  uint32_t w[4 * BLOCKS];                                                                          \
  int64_t skip = first % (per), index = first / (per), take;                                       \
  for (; n > 0; n -= take, out += take, skip = 0) {                                                \
    int64_t blocks = n / (per) + 2 < BLOCKS ? (skip + n + (per)-1) / (per) : BLOCKS;               \
    take = blocks * (per)-skip < n ? blocks * (per)-skip : n;                                      \
    for (int64_t b = 0; b < blocks; b++) block(key, counter, (uint64_t)index++, w + 4 * b);

void rng_uniform_f32(uint64_t key, uint64_t counter, int64_t first, int64_t n, float *out) {
  EACH_CHUNK(4)
  for (int64_t i = 0; i < take; i++) out[i] = (float)(int32_t)(w[skip + i] >> 8) * 0x1p-24f;
}
}

void rng_uniform_f64(uint64_t key, uint64_t counter, int64_t first, int64_t n, double *out) {
  EACH_CHUNK(2)
  for (int64_t i = 0; i < take; i++) {
    out[i] = (double)(int64_t)(word64(w + 2 * (skip + i)) >> 11) * 0x1p-53;
  }
}
}

void rng_normal_f32(uint64_t key, uint64_t counter, int64_t first, int64_t n, float *out) {
  float z[4 * BLOCKS];
  EACH_CHUNK(4)
  fm_normal_f32_n(2 * blocks, w, z);
  for (int64_t i = 0; i < take; i++) out[i] = z[skip + i];
}
}

void rng_normal_f64(uint64_t key, uint64_t counter, int64_t first, int64_t n, double *out) {
  uint64_t wide[2 * BLOCKS];
  double z[2 * BLOCKS];
  EACH_CHUNK(2)
  for (int64_t i = 0; i < 2 * blocks; i++) wide[i] = word64(w + 2 * i);
  fm_normal_f64_n(blocks, wide, z);
  for (int64_t i = 0; i < take; i++) out[i] = z[skip + i];
}
}

/* floor(w * limit / 2^64) */
static int64_t below(uint64_t w, int64_t limit) {
  uint64_t m = (uint64_t)limit, wl = (uint32_t)w, wh = w >> 32, ml = (uint32_t)m, mh = m >> 32;
  uint64_t mid = wh * ml + (wl * ml >> 32);
  return (int64_t)(wh * mh + (mid >> 32) + ((wl * mh + (uint32_t)mid) >> 32));
}

void rng_randint(uint64_t key, uint64_t counter, int64_t first, int64_t n, int64_t limit,
                 int64_t *out) {
  if (limit < 1) limit = 1;
  EACH_CHUNK(2)
  for (int64_t i = 0; i < take; i++) out[i] = below(word64(w + 2 * (skip + i)), limit);
}
}

void rng_permutation(uint64_t key, uint64_t counter, int64_t n, int64_t *out) {
  uint32_t w[4];
  int64_t have = -1;
  for (int64_t i = 0; i < n; i++) out[i] = i;
  for (int64_t i = n - 1; i > 0; i--) {
    if (i / 2 != have) block(key, counter, (uint64_t)(have = i / 2), w);
    int64_t j = below(word64(w + 2 * (i % 2)), i + 1), t = out[i];
    out[i] = out[j];
    out[j] = t;
  }
}
