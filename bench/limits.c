/* What this machine can do at best: f32 multiply-adds per second and bytes moved per second.
 *   cc -O2 -pthread bench/limits.c -o limits && ./limits THREADS
 * Prints "flops GFLOP/s" and "bytes GB/s", each the best of several tries with all threads at work:
 * fused multiply-adds on registers, and a triad (a = b + s c) over arrays far larger than the
 * caches, three streams counted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float V16 __attribute__((vector_size(64)));
enum { CHAINS = 16, ROUNDS = 4000000, TRIES = 5, MOST = 64 };
static const long TRIAD = 1L << 25; /* floats per array and thread: 128 MiB */

typedef struct Job {
  pthread_barrier_t *gate;
  float *a, *b, *c;
  double sink;
  double start[2 * TRIES], end[2 * TRIES];
} Job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define FMA_LOOP                                                                                   \
  V16 acc[CHAINS], x, y;                                                                           \
  for (int l = 0; l < 16; l++) x[l] = 0.999999f, y[l] = 1e-7f;                                     \
  for (int j = 0; j < CHAINS; j++) acc[j] = x;                                                     \
  for (long r = 0; r < ROUNDS; r++) {                                                              \
    _Pragma("GCC unroll 16") for (int j = 0; j < CHAINS; j++) acc[j] = acc[j] * x + y;             \
  }                                                                                                \
  double s = 0;                                                                                    \
  for (int j = 0; j < CHAINS; j++) s += acc[j][0];                                                 \
  return s;
__attribute__((target("avx512f"), optimize("O3", "fp-contract=fast"))) static double fma512(void) {
  FMA_LOOP
}
__attribute__((target("avx2,fma"), optimize("O3", "fp-contract=fast"))) static double fma256(void) {
  FMA_LOOP
}
__attribute__((optimize("O3"))) static double fma128(void) {
  FMA_LOOP
}

__attribute__((optimize("O3"))) static void triad(Job *j) {
  for (long i = 0; i < TRIAD; i++) j->a[i] = j->b[i] + 3.0f * j->c[i];
}

static double multiply_add(void) {
  if (__builtin_cpu_supports("avx512f")) return fma512();
  return __builtin_cpu_supports("fma") ? fma256() : fma128();
}

static void *work(void *arg) {
  Job *j = arg;
  for (int t = 0; t < 2 * TRIES; t++) {
    pthread_barrier_wait(j->gate);
    j->start[t] = now();
    if (t < TRIES)
      j->sink += multiply_add();
    else
      triad(j);
    j->end[t] = now();
  }
  return NULL;
}

/* Seconds from the first start of a try to its last end. */
static double took(const Job *job, int n, int t) {
  double start = job[0].start[t], end = job[0].end[t];
  for (int i = 1; i < n; i++) {
    if (job[i].start[t] < start) start = job[i].start[t];
    if (job[i].end[t] > end) end = job[i].end[t];
  }
  return end - start;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1;
  if (n < 1 || n > MOST) return 2;
  pthread_barrier_t gate;
  pthread_barrier_init(&gate, NULL, (unsigned)n);
  pthread_t id[MOST];
  Job job[MOST];
  for (int i = 0; i < n; i++) {
    float *p = malloc(3 * sizeof *p * (size_t)TRIAD);
    if (!p) return 1;
    memset(p, 1, 3 * sizeof *p * (size_t)TRIAD);
    job[i] = (Job){.gate = &gate, .a = p, .b = p + TRIAD, .c = p + 2 * TRIAD};
    if (pthread_create(&id[i], NULL, work, &job[i])) return 1;
  }
  for (int i = 0; i < n; i++) pthread_join(id[i], NULL);
  double best[2] = {1e30, 1e30};
  for (int t = 0; t < 2 * TRIES; t++) {
    double x = took(job, n, t);
    if (x < best[t / TRIES]) best[t / TRIES] = x;
  }
  printf("flops %.1f\n", 2.0 * 16 * CHAINS * ROUNDS * n / best[0] / 1e9);
  printf("bytes %.1f\n", 12.0 * (double)TRIAD * n / best[1] / 1e9);
  return 0;
}
