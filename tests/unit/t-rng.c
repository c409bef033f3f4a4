/* Philox against the published vectors, the distributions, and that an element depends on its key,
 * counter and index alone. */
#include "runtime/rng.h"

#include <stdlib.h>

#include "runtime/fmath.h"
#include "tests/tap.h"

static void t_known(void) {
  /* known answers published with Random123 for philox4x32 with 10 rounds */
  static const uint32_t known[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
       0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
       0x94fdcceb, 0x5001e420, 0x24126ea1},
  };
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    rng_philox4x32(known[i], known[i] + 4, out);
    for (int j = 0; j < 4; j++) check_hex(out[j], ==, known[i][6 + j]);
  }
}

static void t_layout(void) {
  uint64_t key = 0x0123456789abcdefu, counter = 0xfedcba9876543210u;
  int64_t index = 5, big = (int64_t)1 << 40;
  uint32_t k[2] = {0x89abcdefu, 0x01234567u}, w[4];
  uint32_t ctr[4] = {5, 0, 0x76543210u, 0xfedcba98u};
  float f[4], z0, z1;
  double d[2], y0, y1;
  int64_t r[2];
  rng_philox4x32(ctr, k, w);
  rng_uniform_f32(key, counter, 4 * index, 4, f);
  for (int i = 0; i < 4; i++) check_double(f[i], ==, (w[i] >> 8) / 16777216.0);
  rng_normal_f32(key, counter, 4 * index, 4, f);
  for (int i = 0; i < 2; i++) {
    fm_normal_f32(w[2 * i], w[2 * i + 1], &z0, &z1);
    check_double(f[2 * i], ==, z0);
    check_double(f[2 * i + 1], ==, z1);
  }
  uint64_t a = w[0] | (uint64_t)w[1] << 32, b = w[2] | (uint64_t)w[3] << 32;
  rng_uniform_f64(key, counter, 2 * index, 2, d);
  check_double(d[0], ==, (double)(a >> 11) / 9007199254740992.0);
  check_double(d[1], ==, (double)(b >> 11) / 9007199254740992.0);
  rng_normal_f64(key, counter, 2 * index, 2, d);
  fm_normal_f64(a, b, &y0, &y1);
  check_double(d[0], ==, y0);
  check_double(d[1], ==, y1);
  rng_randint(key, counter, 2 * index, 2, (int64_t)1 << 32, r);
  check_int(r[0], ==, w[1]);
  check_int(r[1], ==, w[3]);
  ctr[0] = 0;
  ctr[1] = 1u << 6;
  rng_philox4x32(ctr, k, w);
  rng_uniform_f32(key, counter, big, 1, f); /* element 2^40 is in block 2^38 */
  check_double(f[0], ==, (w[0] >> 8) / 16777216.0);
}

enum { N = 5000 };

#define CUT(name, type, draw_all, draw_part)                                                       \
  static void name(void) {                                                                         \
    static type all[N], part[N];                                                                   \
    draw_all;                                                                                      \
    for (int64_t at = 0, len = 0; at < N; at += len) {                                             \
      len = (at * 7 + 3) % 611;                                                                    \
      if (len > N - at) len = N - at;                                                              \
      draw_part;                                                                                   \
    }                                                                                              \
    check_mem(all, part, sizeof all);                                                              \
  }
CUT(t_cut_u32, float, rng_uniform_f32(1, 2, 0, N, all), rng_uniform_f32(1, 2, at, len, part + at))
CUT(t_cut_u64, double, rng_uniform_f64(1, 2, 0, N, all), rng_uniform_f64(1, 2, at, len, part + at))
CUT(t_cut_n32, float, rng_normal_f32(1, 2, 0, N, all), rng_normal_f32(1, 2, at, len, part + at))
CUT(t_cut_n64, double, rng_normal_f64(1, 2, 0, N, all), rng_normal_f64(1, 2, at, len, part + at))
CUT(t_cut_int, int64_t, rng_randint(1, 2, 0, N, 1000, all),
    rng_randint(1, 2, at, len, 1000, part + at))

static void t_uniform(void) {
  enum { M = 1 << 20, BINS = 256 };
  float *x = malloc(M * sizeof *x);
  double *y = malloc(M * sizeof *y), sum = 0, chi = 0, chi64 = 0;
  static int bins[BINS], bins64[BINS];
  need(x && y);
  rng_uniform_f32(rng_key(0), 0, 0, M, x);
  rng_uniform_f64(rng_key(0), 1, 0, M, y);
  for (int i = 0; i < M; i++) {
    if (!check(x[i] >= 0 && x[i] < 1 && y[i] >= 0 && y[i] < 1)) break;
    sum += x[i];
    bins[(int)(x[i] * BINS)]++;
    bins64[(int)(y[i] * BINS)]++;
  }
  check_near(sum / M, 0.5, 0.001);
  for (int i = 0; i < BINS; i++) {
    double e = (double)M / BINS;
    chi += (bins[i] - e) * (bins[i] - e) / e;
    chi64 += (bins64[i] - e) * (bins64[i] - e) / e;
  }
  check_near(chi, 255, 100); /* 4.4 standard deviations */
  check_near(chi64, 255, 100);
  free(x);
  free(y);
}

static void t_normal(bool wide) {
  enum { M = 1 << 20 };
  double *y = malloc(M * sizeof *y), m[5] = {0}, cross = 0, most = 0;
  float *x = malloc(M * sizeof *x);
  need(x && y);
  rng_normal_f32(rng_key(7), 3, 0, M, x);
  rng_normal_f64(rng_key(7), 3, 0, M, y);
  for (int i = 0; i < M; i++) {
    double v = wide ? y[i] : (double)x[i], p = 1;
    for (int k = 0; k < 5; k++, p *= v) m[k] += p / M;
    if (i % 2) cross += v * (wide ? y[i - 1] : (double)x[i - 1]) / M;
    if (fabs(v) > most) most = fabs(v);
  }
  check_near(m[1], 0, 0.005);
  check_near(m[2], 1, 0.01);
  check_near(m[3], 0, 0.02);
  check_near(m[4], 3, 0.05);
  check_near(cross, 0, 0.005);
  check_near(most, 4.9, 0.7);
  free(x);
  free(y);
}

static void t_normal_edges(void) {
  static const uint32_t words[] = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (int i = 0; i < 6; i++) {
    for (int j = 0; j < 6; j++) {
      float z0, z1;
      double y0, y1;
      uint64_t a = (uint64_t)words[i] << 32 | words[i], b = (uint64_t)words[j] << 32 | words[j];
      fm_normal_f32(words[i], words[j], &z0, &z1);
      fm_normal_f64(a, b, &y0, &y1);
      check(isfinite(z0) && isfinite(z1) && isfinite(y0) && isfinite(y1));
      double u = (words[i] + 0.5) / 4294967296.0, angle = 3.14159265358979323846 / 2147483648.0;
      double radius = sqrt(-2 * log(u)), t = angle * (int32_t)words[j];
      check_near(z0, radius * cos(t), 1e-5 + (u > 0.999 ? 1e-3 : 0));
      check_near(z1, radius * sin(t), 1e-5 + (u > 0.999 ? 1e-3 : 0));
    }
  }
}

static void t_randint(void) {
  enum { M = 200000 };
  static int64_t x[M];
  static const int64_t limits[] = {1, 2, 3, 10, 1000, (int64_t)1 << 40, INT64_MAX};
  for (int k = 0; k < 7; k++) {
    double mean = 0;
    rng_randint(99, (uint64_t)k, 0, M, limits[k], x);
    for (int i = 0; i < M; i++) {
      if (!check(x[i] >= 0 && x[i] < limits[k])) return;
      mean += (double)x[i] / (double)limits[k] / M;
    }
    check_near(mean, 0.5 * ((double)limits[k] - 1) / (double)limits[k], 0.005);
  }
  rng_randint(1, 1, 0, 3, 0, x);
  check_int(x[0] | x[1] | x[2], ==, 0);
  rng_randint(99, 0, 0, M, 10, x);
  int count[10] = {0};
  for (int i = 0; i < M; i++) count[x[i]]++;
  for (int i = 0; i < 10; i++) check_near(count[i], M / 10, 700);
}

static void t_permutation(void) {
  enum { M = 1000 };
  static int64_t p[M];
  static bool seen[M];
  rng_permutation(5, 6, M, p);
  for (int i = 0; i < M; i++) {
    check(p[i] >= 0 && p[i] < M && !seen[p[i]]);
    seen[p[i]] = true;
  }
  int count[6] = {0}; /* all orders of three are equally likely */
  for (uint64_t c = 0; c < 60000; c++) {
    rng_permutation(5, c, 3, p);
    count[p[0] * 2 + (p[1] > p[2])]++;
  }
  for (int i = 0; i < 6; i++) check_near(count[i], 10000, 450);
  rng_permutation(5, 6, 0, NULL);
  rng_permutation(5, 6, 1, p);
  check_int(p[0], ==, 0);
}

static void t_keys(void) {
  enum { M = 2000 };
  static uint64_t k[2 * M];
  for (uint64_t i = 0; i < M; i++) {
    k[2 * i] = rng_key(i);
    k[2 * i + 1] = rng_fold(rng_key(0), i);
  }
  for (int i = 0; i < 2 * M; i++)
    for (int j = 0; j < i; j++)
      if (!check(k[i] != k[j])) return;
  check(rng_fold(1, 2) != rng_fold(2, 1));
}

/* Bits that must not change: what a seed gives is part of what a program computes. */
static void t_bits(void) {
  float f[6];
  double d[4];
  int64_t r[4];
  check_hex(rng_key(0), ==, 0x8d4a9d4339e63843u);
  rng_normal_f32(rng_key(1), 2, 3, 6, f);
  rng_normal_f64(rng_key(1), 2, 3, 4, d);
  rng_randint(rng_key(1), 2, 3, 4, 1000, r);
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof f; i++) h = (h ^ ((unsigned char *)f)[i]) * 0x100000001b3u;
  for (size_t i = 0; i < sizeof d; i++) h = (h ^ ((unsigned char *)d)[i]) * 0x100000001b3u;
  for (size_t i = 0; i < sizeof r; i++) h = (h ^ ((unsigned char *)r)[i]) * 0x100000001b3u;
  check_hex(h, ==, 0x37a2de3b354ec98u);
}

int main(void) {
  TEST(t_known(), "Philox gives the published words");
  TEST(t_layout(), "words go to elements as documented");
  TEST(t_cut_u32(), "uniform f32 may be drawn in any pieces");
  TEST(t_cut_u64(), "uniform f64 may be drawn in any pieces");
  TEST(t_cut_n32(), "normal f32 may be drawn in any pieces");
  TEST(t_cut_n64(), "normal f64 may be drawn in any pieces");
  TEST(t_cut_int(), "integers may be drawn in any pieces");
  TEST(t_uniform(), "uniform numbers fill [0, 1) evenly");
  TEST(t_normal(false), "normal f32 numbers have the moments of the normal distribution");
  TEST(t_normal(true), "normal f64 numbers have the moments of the normal distribution");
  TEST(t_normal_edges(), "extreme words give finite normal numbers");
  TEST(t_randint(), "integers stay below their limit and are even");
  TEST(t_permutation(), "a permutation holds every index once, every order is as likely");
  TEST(t_keys(), "keys of seeds and folded keys differ");
  TEST(t_bits(), "the bits of random numbers are those of every release");
  return tap_done();
}
