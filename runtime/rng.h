/* rng.h: counter-based random numbers.
 *
 * The generator is Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011): a block of four 32-bit words is a pure function of a 128-bit counter and a
 * 64-bit key. An element of a random tensor is therefore a pure function of
 *   key      (64 bits) which random site, under which seed,
 *   counter  (64 bits) how many times that site was executed before,
 *   i        (64 bits) the row-major index of the element,
 * and never of the size, the order or the number of threads.
 *
 * The Philox counter of a block is, as four words from the lowest,
 *   { block low, block high, counter low, counter high },
 * and its key is { key low, key high }. Element i takes the following words from block i / P, where
 * P is the number of elements of a block:
 *   f32 uniform   P = 4, word i % 4:            (w >> 8) * 2^-24, in [0, 1)
 *   f64 uniform   P = 2, words 2j, 2j + 1 with j = i % 2, low word first, w = 64 bits:
 *                                               (w >> 11) * 2^-53, in [0, 1)
 *   f32 normal    P = 4, words (0, 1) make elements 0 and 1, words (2, 3) elements 2 and 3, each
 *                 pair by fm_normal_f32
 *   f64 normal    P = 2, both 64-bit words make both elements, by fm_normal_f64
 *   integer       P = 2, 64 bits w as for f64: floor(w * n / 2^64), in [0, n). The
 *                 probability of a value differs from 1 / n by less than 2^-64.
 *
 * The counter value 2^64 - 1 is reserved for making keys. All functions are pure. */
#ifndef CKL_RUNTIME_RNG_H
#define CKL_RUNTIME_RNG_H

#include <stdint.h>

/* out = the block of counter `ctr` under `key`; words from the lowest. */
void rng_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* The key of seed `n`. Equal seeds give equal keys. */
uint64_t rng_key(uint64_t n);

/* The `i`-th key derived from `key`. For one `key` all results differ with overwhelming
 * probability, and they are independent of the numbers drawn from `key`. */
uint64_t rng_fold(uint64_t key, uint64_t i);

/* out[j] = element `first` + j, for j < n. `first` and `n` are not negative. */
void rng_uniform_f32(uint64_t key, uint64_t counter, int64_t first, int64_t n, float *out);
void rng_uniform_f64(uint64_t key, uint64_t counter, int64_t first, int64_t n, double *out);
void rng_normal_f32(uint64_t key, uint64_t counter, int64_t first, int64_t n, float *out);
void rng_normal_f64(uint64_t key, uint64_t counter, int64_t first, int64_t n, double *out);

/* Integers in [0, limit); limit > 0 (a limit below 1 counts as 1). */
void rng_randint(uint64_t key, uint64_t counter, int64_t first, int64_t n, int64_t limit,
                 int64_t *out);

/* out = a permutation of 0 .. n - 1 (Fisher and Yates, from the end, with the integers of element
 * n - 1 .. 1); every order is equally likely up to the bias named above. */
void rng_permutation(uint64_t key, uint64_t counter, int64_t n, int64_t *out);

#endif
