/* The pool: each iteration runs once, whatever the threads do. */
#define _GNU_SOURCE
#include "runtime/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/failing.h"

enum { MOST = 20000 };

typedef struct Seen {
  _Atomic unsigned char iteration[MOST];
  _Atomic int64_t pieces, wrong;
  int64_t n, chunk;
  int threads;
  _Atomic int64_t by[POOL_MOST];
  Interrupt interrupt;
  int64_t interrupt_at;
} Seen;

static void visit(void *ud, int64_t lo, int64_t hi, int thread) {
  Seen *s = ud;
  if (lo < 0 || hi > s->n || hi <= lo || hi - lo > s->chunk || thread < 0 || thread >= s->threads) {
    s->wrong++;
    return;
  }
  for (int64_t i = lo; i < hi; i++) s->iteration[i]++;
  s->by[thread] += hi - lo;
  if (s->interrupt_at && s->pieces + 1 >= s->interrupt_at) s->interrupt = true;
  s->pieces++;
}

static void nothing(void *ud, int64_t lo, int64_t hi, int thread) {
  (void)ud, (void)lo, (void)hi, (void)thread;
}

static void pause_a_bit(void) {
  nanosleep(&(struct timespec){0, 200000}, NULL);
}

static void open_pool(void *ud) {
  struct {
    Mem *m;
    int threads;
    Pool *p;
  } *o = ud;
  o->p = pool_open(o->m, o->threads);
}

static Pool *opened(Mem *m, int threads) {
  struct {
    Mem *m;
    int threads;
    Pool *p;
  } o = {m, threads, NULL};
  mem_protect(m, open_pool, &o);
  return o.p;
}

static void try_one(Pool *p, Seen *s, int64_t n, int64_t chunk) {
  memset(s, 0, sizeof *s);
  s->n = n;
  s->chunk = chunk;
  s->threads = pool_threads(p);
  check(pool_run(p, visit, s, n, chunk, NULL));
  check_int(s->wrong, ==, 0);
  int64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad += s->iteration[i] != 1;
  check_int(bad, ==, 0);
}

static void t_iterations(int threads) {
  static Seen s;
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Pool *p = opened(&m, threads);
  need(p);
  check_int(pool_threads(p), ==, threads);
  for (int round = 0; round < 3; round++) {
    if (round == 1) pool_begin(p);
    for (int64_t n = 0; n < 40; n++)
      for (int64_t chunk = 1; chunk < 12; chunk++) try_one(p, &s, n, chunk);
    try_one(p, &s, MOST, 1);
    try_one(p, &s, MOST, 7);
    try_one(p, &s, MOST, MOST / 2 + 1);
    try_one(p, &s, MOST, INT64_MAX);
    if (round == 1) pool_end(p);
    pause_a_bit();
  }
  pool_close(p);
  check(failing_clean(&f, &m));
}

/* Every thread gets something when pieces take long. */
static void slow(void *ud, int64_t lo, int64_t hi, int thread) {
  visit(ud, lo, hi, thread);
  pause_a_bit();
}

static void t_shared(void) {
  static Seen s;
  Mem m;
  mem_init(&m, NULL, NULL);
  Pool *p = opened(&m, 3);
  s.n = 600;
  s.chunk = 1;
  s.threads = 3;
  check(pool_run(p, slow, &s, 600, 1, NULL));
  for (int i = 0; i < 3; i++) check_int(s.by[i], >, 20);
  pool_close(p);
}

/* Who wakes is sent to another CPU than the caller's, for once. */
static void at_home(void *ud, int64_t lo, int64_t hi, int thread) {
  (void)lo, (void)hi;
  _Atomic int *whole = ud;
  cpu_set_t set, all;
  pause_a_bit();
  if (!thread || sched_getaffinity(getpid(), sizeof all, &all)) return;
  if (!pthread_getaffinity_np(pthread_self(), sizeof set, &set) && CPU_EQUAL(&set, &all)) ++*whole;
}

static void t_home(void) {
  Mem m;
  mem_init(&m, NULL, NULL);
  Pool *p = opened(&m, 3);
  _Atomic int whole = 0;
  for (int round = 0; round < 1000 && (round < 20 || !whole); round++) {
    if (round < 20) whole = 0;
    nanosleep(&(struct timespec){0, 2000000}, NULL); /* they sleep */
    check(pool_run(p, at_home, &whole, 6, 1, NULL));
  }
  check_int(whole, >, 0);
  pool_close(p);
}

static void t_interrupt(int threads) {
  static Seen s;
  Mem m;
  mem_init(&m, NULL, NULL);
  Pool *p = opened(&m, threads);
  for (int round = 0; round < 100; round++) {
    memset(&s, 0, sizeof s);
    s.n = MOST;
    s.chunk = 3;
    s.threads = threads;
    s.interrupt_at = 1 + round;
    check(!pool_run(p, visit, &s, MOST, 3, &s.interrupt));
    check_int(s.wrong, ==, 0);
    check_int(s.pieces, <=, s.interrupt_at + threads);
    try_one(p, &s, 100, 3); /* usable afterwards */
  }
  s.interrupt = true;
  s.pieces = 0;
  check(!pool_run(p, visit, &s, MOST, 3, &s.interrupt));
  check_int(s.pieces, ==, 0);
  check(!pool_run(p, visit, &s, 0, 3, &s.interrupt));
  pool_close(p);
}

static void t_fork(bool started) {
  static Seen s;
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Pool *p = opened(&m, 3);
  if (started) try_one(p, &s, 1000, 1);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    memset(&s, 0, sizeof s);
    s.n = 1000;
    s.chunk = 1;
    s.threads = 3;
    bool ok = pool_run(p, visit, &s, 1000, 1, NULL) && s.pieces == 1000 && !s.wrong;
    if (started && s.by[0] != 1000) ok = false; /* serial: the threads are elsewhere */
    pool_close(p);
    _exit(ok && failing_clean(&f, &m) ? 0 : 1);
  }
  int status = 1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  check_int(status, ==, 0);
  try_one(p, &s, 1000, 1); /* the parent's threads are still there */
  pool_close(p);
  check(failing_clean(&f, &m));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void t_empty(int threads) {
  Mem m;
  mem_init(&m, NULL, NULL);
  Pool *p = opened(&m, threads);
  for (int scope = 0; scope < 2; scope++) {
    if (scope) pool_begin(p);
    double best = 1;
    for (int round = 0; round < 10; round++) {
      double since = now();
      for (int i = 0; i < 10000; i++) pool_run(p, nothing, NULL, threads, 1, NULL);
      double each = (now() - since) / 10000;
      if (each < best) best = each;
    }
    tap_note("%d threads, %s: %.0f ns for an empty loop", threads, scope ? "spinning" : "no scope",
             1e9 * best);
    if (scope) pool_end(p);
  }
  pool_close(p);
}

static void t_default(void) {
  unsetenv("CKL_THREADS");
  int n = pool_default_threads();
  check_int(n, >=, 1);
  setenv("CKL_THREADS", "3", 1);
  check_int(pool_default_threads(), ==, 3);
  setenv("CKL_THREADS", "100000", 1);
  check_int(pool_default_threads(), ==, POOL_MOST);
  const char *wrong[] = {"", "0", "-1", "many", "3x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    setenv("CKL_THREADS", wrong[i], 1);
    check_int(pool_default_threads(), ==, n);
  }
  unsetenv("CKL_THREADS");
}

static void t_nomem(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 1);
  check(!opened(&m, 4));
  check(failing_clean(&f, &m));
  pool_close(NULL);
}

int main(void) {
  TEST(t_iterations(1), "1 thread: each iteration once");
  TEST(t_iterations(2), "2 threads: each iteration once");
  TEST(t_iterations(3), "3 threads: each iteration once");
  TEST(t_iterations(8), "8 threads: each iteration once");
  TEST(t_shared(), "all threads take part");
  TEST(t_home(), "a thread that woke may run on every CPU");
  TEST(t_interrupt(1), "an interrupt stops a loop on 1 thread");
  TEST(t_interrupt(3), "an interrupt stops a loop on 3 threads");
  TEST(t_fork(true), "after fork a child runs alone and the parent as before");
  TEST(t_fork(false), "a child of a pool that never ran makes its own threads");
  TEST(t_empty(1), "empty loops on 1 thread");
  TEST(t_empty(2), "empty loops on 2 threads");
  TEST(t_empty(8), "empty loops on 8 threads");
  TEST(t_default(), "CKL_THREADS counts where it is a number");
  TEST(t_nomem(), "out of memory is a throw");
  return tap_done();
}
