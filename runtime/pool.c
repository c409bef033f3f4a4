/* A pool of threads for loops that are cut into independent iterations.
 *
 * In: a function over iterations. Out: all iterations run once. Idea: a loop is *opened* by the
 * caller, threads that are awake join it, and the caller works too. It never waits for a thread
 * that has not joined, so a loop costs little if threads sleep or the machine has other work.
 * Iterations are cut into one range per thread; a thread takes pieces from its own
 * range first, which keeps its data in its cache from one loop to the next, then from the others
 * (static partition with stealing, as in OpenMP runtimes). Invariant: the description of a loop
 * changes only while it is closed and no thread is in it.
 */
#define _GNU_SOURCE
#include "runtime/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/thread.h"

enum {
  LINE = 64,
  SPINS = 2000,            /* pauses before a thread sleeps if no program runs: about 50 us */
  SCOPE_NS = 20 * 1000000, /* nanoseconds while one runs: longer than the time between two loops */
  /* in Pool.state: the bits below count the threads inside; this bit and those above are the number
   * of the loop, odd while the loop is open */
  OPEN = 1 << 16,
};

typedef struct Range {
  _Alignas(LINE) _Atomic int64_t next; /* first iteration that no thread has taken */
  int64_t end;
} Range;

typedef struct Worker {
  pthread_t id;
  struct Pool *pool;
  int number;
  _Atomic bool sent; /* moved away from the caller's CPU, until it runs */
  cpu_set_t home;    /* the CPUs that it may use otherwise; the worker reads it while `sent` is
                        true, the caller writes it while not */
} Worker;

struct Pool {
  /* the loop, written by the caller while it is closed */
  PoolFn f;
  void *ud;
  int64_t chunk;
  const Interrupt *interrupt;
  Range *range; /* one for each thread in use */
  int range_count;
  _Alignas(LINE) _Atomic uint32_t state;
  _Alignas(LINE) _Atomic uint32_t wake; /* sleepers wait for it to change */
  _Atomic int sleepers;
  _Atomic int scope;
  _Atomic bool quit, interrupted;
  /* of the caller alone */
  _Alignas(LINE) Mem *mem;
  void *block; /* where the pool was allocated */
  size_t block_size;
  int threads; /* wanted, including the caller */
  int started; /* running workers */
  bool tried;  /* starting them was tried */
  ThreadHome home;
  Worker *workers;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- how many threads */

/* The number of CPUs whose time the control group of this process allows; INT_MAX if it has no
 * limit. */
static int group_limit(void) {
  FILE *in = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!in) return INT_MAX;
  long long quota = 0, period = 0;
  int got = fscanf(in, "%lld %lld", &quota, &period); /* "max PERIOD" if there is no limit */
  fclose(in);
  if (got != 2 || quota <= 0 || period <= 0 || quota / period >= INT_MAX) return INT_MAX;
  return (int)((quota + period - 1) / period);
}

int pool_default_threads(void) {
  const char *told = getenv("CKL_THREADS");
  if (told && *told) {
    char *end;
    long n = strtol(told, &end, 10);
    if (!*end && n >= 1) return n < POOL_MOST ? (int)n : POOL_MOST;
  }
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set), limit = group_limit();
  if (n > limit) n = limit;
  return n < 1 ? 1 : n < POOL_MOST ? n : POOL_MOST;
}

/* ---- inside a loop */

/* Takes the next piece of a range; false when there is none. */
static bool take(Range *r, int64_t chunk, int64_t *lo, int64_t *hi) {
  int64_t at = atomic_load_explicit(&r->next, memory_order_relaxed);
  do {
    if (at >= r->end) return false;
    *hi = r->end - at > chunk ? at + chunk : r->end;
  } while (!atomic_compare_exchange_weak_explicit(&r->next, &at, *hi, memory_order_relaxed,
                                                  memory_order_relaxed));
  *lo = at;
  return true;
}

static void work(Pool *p, int thread) {
  for (int i = 0; i < p->range_count; i++) {
    Range *r = &p->range[(thread + i) % p->range_count];
    for (int64_t lo, hi;;) {
      if (interrupt_asked(p->interrupt))
        atomic_store_explicit(&p->interrupted, true, memory_order_relaxed);
      if (atomic_load_explicit(&p->interrupted, memory_order_relaxed)) return;
      if (!take(r, p->chunk, &lo, &hi)) break;
      p->f(p->ud, lo, hi, thread);
    }
  }
}

/* ---- threads */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* The scheduler may queue a thread that wakes behind the thread that woke it, though another CPU is
 * idle, and leave it there for milliseconds: longer than most loops take. So the thread is moved
 * away from the caller's CPU, which costs a microsecond. */
static void send_away(Worker *w) {
  int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || atomic_load(&w->sent)) return;
  if (pthread_getaffinity_np(w->id, sizeof w->home, &w->home)) return;
  cpu_set_t away = w->home;
  CPU_CLR(here, &away);
  if (!CPU_COUNT(&away) || pthread_setaffinity_np(w->id, sizeof away, &away)) return;
  atomic_store(&w->sent, true);
}

static void come_home(Worker *w) {
  if (!atomic_load(&w->sent)) return;
  (void)pthread_setaffinity_np(pthread_self(), sizeof w->home, &w->home);
  atomic_store(&w->sent, false);
}

static void wake_all(Pool *p) {
  for (int i = 0; i < p->started; i++) send_away(&p->workers[i]);
  atomic_fetch_add(&p->wake, 1);
  syscall(SYS_futex, &p->wake, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Whether there is a loop that this thread has not joined (`last` is the latest that it has), or
 * the thread should end. */
static bool news(Pool *p, uint32_t last) {
  uint32_t s = atomic_load(&p->state);
  return atomic_load_explicit(&p->quit, memory_order_relaxed) || ((s & OPEN) && s / OPEN != last);
}

/* Sleeps until something changes. Both sides are sequentially consistent: either the caller sees a
 * sleeper after it opened the loop, or the sleeper sees the open loop. */
static void doze(Pool *p, uint32_t last) {
  uint32_t seen = atomic_load(&p->wake);
  atomic_fetch_add(&p->sleepers, 1);
  if (!news(p, last)) futex_wait(&p->wake, seen);
  atomic_fetch_sub(&p->sleepers, 1);
}

static void await(Pool *p, uint32_t last) {
  int64_t since = 0;
  for (int spins = 1; !news(p, last); spins++) {
    relax();
    if (spins % SPINS) continue;
    int64_t now = now_ns();
    if (!since) since = now;
    if (!atomic_load_explicit(&p->scope, memory_order_relaxed) || now - since > SCOPE_NS) {
      doze(p, last);
      since = 0;
    } else {
      sched_yield(); /* costs nothing if no other thread wants to run */
    }
  }
}

/* Enters the open loop, unless it closes in this moment. */
static bool join(Pool *p, uint32_t *last) {
  uint32_t s = atomic_load(&p->state);
  while ((s & OPEN) && s / OPEN != *last)
    if (atomic_compare_exchange_weak(&p->state, &s, s + 1)) {
      *last = s / OPEN;
      return true;
    }
  return false;
}

static void *live(void *ud) {
  Worker *w = ud;
  Pool *p = w->pool;
  uint32_t last = 0;
  for (;;) {
    await(p, last);
    come_home(w);
    if (atomic_load_explicit(&p->quit, memory_order_relaxed)) return NULL;
    if (!join(p, &last)) continue;
    work(p, w->number);
    atomic_fetch_sub(&p->state, 1);
  }
}

/* Starts the workers. Fewer than wanted are fine. */
static void start(Pool *p) {
  p->tried = true;
  thread_home_set(&p->home);
  for (int i = 0; i < p->threads - 1; i++) {
    p->workers[i] = (Worker){.pool = p, .number = i + 1};
    if (!thread_start(&p->workers[i].id, live, &p->workers[i])) break;
    p->started++;
  }
}

/* ---- the caller */

static bool serial(PoolFn f, void *ud, int64_t n, int64_t chunk, const Interrupt *interrupt) {
  for (int64_t lo = 0; lo < n; lo += chunk) {
    if (interrupt_asked(interrupt)) return false;
    f(ud, lo, n - lo > chunk ? lo + chunk : n, 0);
  }
  return true;
}

static void cut(Pool *p, int64_t n, int64_t chunk) {
  int64_t pieces = (n - 1) / chunk + 1;
  p->range_count = pieces < p->started + 1 ? (int)pieces : p->started + 1;
  int64_t each = pieces / p->range_count, more = pieces % p->range_count, at = 0;
  for (int i = 0; i < p->range_count; i++) {
    int64_t end = at + (each + (i < more)) * chunk;
    p->range[i].end = end < n ? end : n;
    atomic_store_explicit(&p->range[i].next, at, memory_order_relaxed);
    at = end;
  }
}

bool pool_run(Pool *p, PoolFn f, void *ud, int64_t n, int64_t chunk, const Interrupt *interrupt) {
  if (n <= 0) return !interrupt_asked(interrupt);
  if (chunk < 1) chunk = 1;
  /* ranges end at multiples of a chunk that may lie past n */
  if (n > INT64_MAX / 2 || chunk > n) chunk = n;
  if (p->threads > 1 && n > chunk && !p->tried) start(p);
  if (!p->started || n <= chunk || !thread_home_is_here(&p->home))
    return serial(f, ud, n, chunk, interrupt);

  p->f = f;
  p->ud = ud;
  p->chunk = chunk;
  p->interrupt = interrupt;
  atomic_store_explicit(&p->interrupted, false, memory_order_relaxed);
  cut(p, n, chunk);
  atomic_fetch_add(&p->state, 3 * OPEN); /* the next odd number: open */
  if (atomic_load(&p->sleepers)) wake_all(p);
  work(p, 0);
  atomic_fetch_and(&p->state, ~(uint32_t)OPEN);
  for (int spins = 1; atomic_load(&p->state) % OPEN; spins++) {
    relax();
    if (spins % SPINS == 0) sched_yield();
  }
  return !atomic_load_explicit(&p->interrupted, memory_order_relaxed);
}

void pool_begin(Pool *p) {
  atomic_fetch_add_explicit(&p->scope, 1, memory_order_relaxed);
}

void pool_end(Pool *p) {
  atomic_fetch_sub_explicit(&p->scope, 1, memory_order_relaxed);
}

int pool_threads(const Pool *p) {
  return p->threads;
}

/* ---- life */

/* Allocates one block: the pool, a range for each thread, both on cache lines, and the workers. */
Pool *pool_open(Mem *m, int threads) {
  if (threads < 1) threads = pool_default_threads();
  if (threads > POOL_MOST) threads = POOL_MOST;
  size_t count = (size_t)threads;
  size_t size = LINE + sizeof(Pool) + count * (sizeof(Range) + sizeof(Worker));
  char *block = mem_need(m, NULL, 0, size);
  memset(block, 0, size);
  Pool *p = (Pool *)(block + (LINE - (uintptr_t)block % LINE));
  p->mem = m;
  p->block = block;
  p->block_size = size;
  p->threads = threads;
  p->range = (Range *)(p + 1);
  p->workers = (Worker *)(p->range + count);
  return p;
}

void pool_close(Pool *p) {
  if (!p) return;
  if (p->started && thread_home_is_here(&p->home)) {
    atomic_store(&p->quit, true);
    wake_all(p);
    for (int i = 0; i < p->started; i++) pthread_join(p->workers[i].id, NULL);
  }
  thread_home_free(&p->home);
  mem_free(p->mem, p->block, p->block_size);
}
