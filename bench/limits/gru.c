/* What a person reaches by hand for `gru.ckl`: forward, gradient and SGD of a GRU, two threads.
 *   cc -O3 -march=native -ffp-contract=off -pthread bench/limits/gru.c -o gru -lm && ./gru 1024 15
 * Prints losses and "step_ms MEDIAN LEAST" as gru.ckl does. Numerics are those of ckl: an element
 * of a product is a chain of fused multiply-adds over ascending k; the gradient of a weight has one
 * contribution for each step, the last step first; exp by a polynomial, no more than 2 ulp off.
 *
 * Each thread takes half of the batch through all steps, forward and back, as no row needs another
 * one. Products of the inputs are made in the same turn; weights are packed once. Gradients of
 * gates wait in memory; then each thread adds up half of the columns of the weights' gradients. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { B = 16, N = 32, H = 64, G = 3 * H, HALF = B / 2 };
#ifdef __AVX512F__
enum { L = 16, TILE = 4 }; /* lanes; vectors of a tile of 4 rows */
#else
enum { L = 8, TILE = 2 };
#endif
typedef float V __attribute__((vector_size(4 * L)));
typedef int VI __attribute__((vector_size(4 * L)));

static int T;
static float *x, *y, *xg, *hg, *hs, *dxg, *dhg; /* [T, B, ..]; hs: [T + 1, B, H] */
static float wx[N * G], wh[H * G], bx[G], bh[G], wo[H], bo, whT[G * H];
static float dwx[N * G], dwh[H * G], dbx[G], dbh[G], dwo[H], dbo;
static float *out;
static double sums[2];
static pthread_barrier_t gate;

static V at(const float *p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
static void put(float *p, V v) {
  memcpy(p, &v, sizeof v);
}
static V all(float a) {
  return (V){} + a;
}
static V fma_(V a, V b, V c) {
#ifdef __AVX512F__
  return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}

static V choose(VI m, V a, V b) {
  return (V)((m & (VI)a) | (~m & (VI)b));
}

static V vexp(V v) {
  v = choose(v < -87.0f, all(-87.0f), choose(v > 87.0f, all(87.0f), v));
  V n = fma_(v, all(1.44269504f), all(12582912.0f)) - 12582912.0f;
  V r = fma_(n, all(-0.693359375f), v);
  r = fma_(n, all(2.12194440e-4f), r);
  V p = all(1.9875691500e-4f);
  static const float c[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                            5.0000001201e-1f};
  for (int i = 0; i < 5; i++) p = fma_(p, r, all(c[i]));
  p = fma_(p, r * r, r) + 1.0f;
  VI e = (__builtin_convertvector(n, VI) + 127) << 23;
  V s;
  memcpy(&s, &e, sizeof s);
  return p * s;
}
static V vsigmoid(V v) {
  return 1.0f / (1.0f + vexp(-v));
}
static V vtanh(V v) {
  V e = vexp(v + v);
  return (e - 1.0f) / (e + 1.0f);
}

/* c[rows, columns] = start + a[rows, k] b[k, columns], 4 rows at a time; start: a row, or NULL */
static inline void product(const float *a, int ka, const float *b, int columns, const float *start,
                           float *c, int rows, int k) {
  for (int r = 0; r < rows; r += 4)
    for (int j = 0; j < columns; j += TILE * L) {
      V acc[4][TILE];
      for (int m = 0; m < 4; m++)
        for (int n = 0; n < TILE; n++) acc[m][n] = all(0);
      for (int i = 0; i < k; i++) {
        V w[TILE];
        for (int n = 0; n < TILE; n++) w[n] = at(b + i * columns + j + n * L);
        for (int m = 0; m < 4; m++)
          for (int n = 0; n < TILE; n++)
            acc[m][n] = fma_(all(a[(r + m) * ka + i]), w[n], acc[m][n]);
      }
      for (int m = 0; m < 4; m++)
        for (int n = 0; n < TILE; n++)
          put(c + (r + m) * columns + j + n * L,
              start ? acc[m][n] + at(start + j + n * L) : acc[m][n]);
    }
}

/* total[rows, from .. to) += a[B, rows]^T d[B, columns], a chain over the batch */
static inline void outer(const float *a, int rows, const float *d, float *total, int from, int to) {
  for (int r = 0; r < rows; r += 4)
    for (int j = from; j < to; j += 2 * L) {
      V acc[4][2];
      for (int m = 0; m < 4; m++) acc[m][0] = acc[m][1] = all(0);
      for (int i = 0; i < B; i++) {
        V u = at(d + i * G + j), v = at(d + i * G + j + L);
        for (int m = 0; m < 4; m++) {
          V s = all(a[i * rows + r + m]);
          acc[m][0] = fma_(s, u, acc[m][0]);
          acc[m][1] = fma_(s, v, acc[m][1]);
        }
      }
      for (int m = 0; m < 4; m++) {
        float *to_ = total + (r + m) * G + j;
        put(to_, at(to_) + acc[m][0]);
        put(to_ + L, at(to_ + L) + acc[m][1]);
      }
    }
}

static void forward(int half) {
  double sum = 0;
  for (int t = 0; t < T; t++) {
    size_t row = (size_t)t * B + (size_t)half * HALF;
    float *gx = xg + row * G, *gh = hg + row * G, *h = hs + row * H, *next = h + B * H;
    product(x + row * N, N, wx, G, bx, gx, HALF, N);
    product(h, H, wh, G, bh, gh, HALF, H);
    for (int r = 0; r < HALF; r++) {
      float o = 0;
      for (int j = 0; j < H; j += L) {
        float *a = gx + r * G + j, *b = gh + r * G + j;
        V rr = vsigmoid(at(a) + at(b)), z = vsigmoid(at(a + H) + at(b + H));
        V n = vtanh(at(a + 2 * H) + rr * at(b + 2 * H));
        put(next + r * H + j, (1.0f - z) * n + z * at(h + r * H + j));
        put(a, rr);
        put(a + H, z);
        put(a + 2 * H, n);
      }
      for (int j = 0; j < H; j++) o = __builtin_fmaf(next[r * H + j], wo[j], o);
      out[row + (size_t)r] = o + bo - y[row + (size_t)r];
      sum += (double)out[row + (size_t)r] * out[row + (size_t)r];
    }
  }
  sums[half] = sum;
}

static void backward(int half) {
  static float carried[2][HALF * H];
  float *dh = carried[half], back[HALF * H], scale = 2.0f / (float)(T * B);
  memset(dh, 0, sizeof carried[half]);
  for (int t = T - 1; t >= 0; t--) {
    size_t row = (size_t)t * B + (size_t)half * HALF;
    float *gx = xg + row * G, *gh = hg + row * G, *h = hs + row * H;
    float *dx = dxg + row * G, *db = dhg + row * G;
    for (int r = 0; r < HALF; r++) {
      V d_out = all(scale * out[row + (size_t)r]);
      for (int j = 0; j < H; j += L) {
        float *a = gx + r * G + j, *b = gh + r * G + j;
        V rr = at(a), z = at(a + H), n = at(a + 2 * H), was = at(h + r * H + j);
        V d = at(dh + r * H + j) + d_out * at(wo + j);
        V dn = d * (1.0f - z) * (1.0f - n * n), dz = d * (was - n) * z * (1.0f - z);
        V dr = dn * at(b + 2 * H) * rr * (1.0f - rr);
        put(dx + r * G + j, dr);
        put(dx + r * G + j + H, dz);
        put(dx + r * G + j + 2 * H, dn);
        put(db + r * G + j, dr);
        put(db + r * G + j + H, dz);
        put(db + r * G + j + 2 * H, dn * rr);
        put(dh + r * H + j, d * z);
      }
    }
    product(db, G, whT, H, NULL, back, HALF, G);
    for (int i = 0; i < HALF * H; i += L) put(dh + i, at(dh + i) + at(back + i));
  }
}

static void weights(int half) {
  int from = half * G / 2, to = from + G / 2;
  for (int t = T - 1; t >= 0; t--) {
    size_t row = (size_t)t * B;
    outer(x + row * N, N, dxg + row * G, dwx, from, to);
    outer(hs + row * H, H, dhg + row * G, dwh, from, to);
    for (int j = from; j < to; j += L) {
      V a = all(0), b = all(0);
      for (int i = 0; i < B; i++) {
        a += at(dxg + (row + (size_t)i) * G + j);
        b += at(dhg + (row + (size_t)i) * G + j);
      }
      put(dbx + j, at(dbx + j) + a);
      put(dbh + j, at(dbh + j) + b);
    }
    if (half) continue;
    for (int i = 0; i < B; i++) {
      float d = 2.0f / (float)(T * B) * out[row + (size_t)i];
      for (int j = 0; j < H; j++)
        dwo[j] = __builtin_fmaf(hs[(row + B + (size_t)i) * H + (size_t)j], d, dwo[j]);
      dbo += d;
    }
  }
}

static void descend(float *w, float *d, int n) {
  for (int i = 0; i < n; i++) w[i] -= 0.1f * d[i];
  memset(d, 0, (size_t)n * sizeof *d);
}

static void half_step(int half) {
  forward(half);
  backward(half);
  pthread_barrier_wait(&gate);
  weights(half);
}

static int steps;
static void *other(void *arg) {
  (void)arg;
  for (int s = 0; s < steps; s++) {
    pthread_barrier_wait(&gate);
    half_step(1);
    pthread_barrier_wait(&gate);
  }
  return NULL;
}

static void wave(float *to, size_t n, int k, double scale) {
  for (size_t i = 0; i < n; i++) {
    double j = (double)(i % 65537);
    to[i] = (float)(scale * sin(0.7 * (double)i + 1.3 * k + 0.001 * (j * j)));
  }
}
static float *zeros(size_t n) {
  float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
  if (!p) exit(1);
  return memset(p, 0, n * sizeof *p);
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int by_size(const void *a, const void *b) {
  double u = *(const double *)a, v = *(const double *)b;
  return u < v ? -1 : u > v;
}

int main(int argc, char **argv) {
  T = argc > 1 ? atoi(argv[1]) : 1024;
  steps = argc > 2 ? atoi(argv[2]) : 15;
  size_t rows = (size_t)T * B;
  x = zeros(rows * N), y = zeros(rows), out = zeros(rows), hs = zeros((rows + B) * H);
  xg = zeros(rows * G), hg = zeros(rows * G), dxg = zeros(rows * G), dhg = zeros(rows * G);
  wave(x, rows * N, 1000, 1);
  wave(y, rows, 1001, 1);
  wave(wx, N * G, 0, 1 / sqrt(N));
  wave(wh, H * G, 1, 1 / sqrt(H));
  wave(bx, G, 2, 0.01);
  wave(bh, G, 3, 0.01);
  wave(wo, H, 4, 1 / sqrt(H));
  wave(&bo, 1, 5, 0.01);
  pthread_barrier_init(&gate, NULL, 2);
  pthread_t thread;
  pthread_create(&thread, NULL, other, NULL);
  double *ms = malloc((size_t)steps * sizeof *ms);
  for (int s = 0; s < steps; s++) {
    double begin = now();
    for (int i = 0; i < H; i++)
      for (int j = 0; j < G; j++) whT[j * H + i] = wh[i * G + j];
    pthread_barrier_wait(&gate);
    half_step(0);
    pthread_barrier_wait(&gate);
    descend(wx, dwx, N * G), descend(wh, dwh, H * G), descend(wo, dwo, H);
    descend(bx, dbx, G), descend(bh, dbh, G), descend(&bo, &dbo, 1);
    ms[s] = 1e3 * (now() - begin);
    printf("loss %d %.7g\n", s + 1, (sums[0] + sums[1]) / (double)rows);
  }
  pthread_join(thread, NULL);
  int skip = steps > 3 ? 3 : 0;
  qsort(ms + skip, (size_t)(steps - skip), sizeof *ms, by_size);
  printf("step_ms %.3f %.3f\n", ms[skip + (steps - skip) / 2], ms[skip]);
  return 0;
}
