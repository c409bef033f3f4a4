/* Copies of memory beside other work.
 *
 * In: two places and a size. Out: a number to wait for. Copies are a queue, cut into pieces; the
 * thread takes one piece after the other, and so does a session that waits, from the same queue. So
 * a copy that has to wait for the thread, because all processors are busy, takes no longer than
 * memcpy would have. A lock guards the queue: a piece takes far longer than to take it. A child
 * after fork does not have the thread, which may have been inside of a piece, so what is not known
 * to be copied is copied there by the session.
 */
#include "runtime/mover.h"

#include <string.h>
#include <time.h>

#include "runtime/thread.h"

enum {
  PIECE = 256 << 10, /* bytes, of some 30 us */
  JOBS = 64
};

typedef struct Job {
  char *to;
  const char *from;
  size_t bytes, taken, done;
} Job;

struct Mover {
  Mem *mem;
  size_t least;
  bool alone, tried, started;
  pthread_t id;
  ThreadHome home;
  pthread_mutex_t lock; /* of all below, while the thread is there */
  pthread_cond_t news, progress;
  bool quit;
  Job job[JOBS];
  uint64_t begun, ended; /* jobs of numbers above `ended`, up to `begun`, are in the queue */
  MoverCount count;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Job *job_of(Mover *v, uint64_t number) {
  return &v->job[number % JOBS];
}

/* Copies one piece of the jobs up to `last`, under the lock, which it gives up meanwhile. False if
 * all are taken. */
static bool copy_piece(Mover *v, uint64_t last) {
  for (uint64_t i = v->ended + 1; i <= last; i++) {
    Job *j = job_of(v, i);
    if (j->taken == j->bytes) continue;
    size_t at = j->taken, n = j->bytes - at < PIECE ? j->bytes - at : PIECE;
    char *to = j->to + at;
    const char *from = j->from + at;
    j->taken += n;
    pthread_mutex_unlock(&v->lock);
    double start = now();
    memcpy(to, from, n);
    double took = now() - start;
    pthread_mutex_lock(&v->lock);
    v->count.copy_seconds += took;
    j->done += n;
    if (j->done == j->bytes) pthread_cond_signal(&v->progress);
    return true;
  }
  return false;
}

static void *live(void *ud) {
  Mover *v = ud;
  pthread_mutex_lock(&v->lock);
  while (!v->quit)
    if (!copy_piece(v, v->begun)) pthread_cond_wait(&v->news, &v->lock);
  pthread_mutex_unlock(&v->lock);
  return NULL;
}

static bool has_thread(Mover *v) {
  return v->started && thread_home_is_here(&v->home);
}

static void lock(Mover *v) {
  if (has_thread(v)) pthread_mutex_lock(&v->lock);
}

static void unlock(Mover *v) {
  if (has_thread(v)) pthread_mutex_unlock(&v->lock);
}

/* Copies whole what may not be copied, in a child after fork. */
static void copy_again(Mover *v, uint64_t last) {
  for (; v->ended < last; v->ended++) {
    const Job *j = job_of(v, v->ended + 1);
    memcpy(j->to, j->from, j->bytes);
  }
}

void mover_wait(Mover *v, uint64_t number) {
  if (!v || number <= v->ended) return;
  if (!has_thread(v)) {
    copy_again(v, number);
    return;
  }
  double start = now();
  pthread_mutex_lock(&v->lock);
  while (copy_piece(v, number)) continue;
  for (; v->ended < number; v->ended++)
    for (const Job *j = job_of(v, v->ended + 1); j->done < j->bytes;)
      pthread_cond_wait(&v->progress, &v->lock);
  v->count.wait_seconds += now() - start;
  pthread_mutex_unlock(&v->lock);
}

void mover_wait_all(Mover *v) {
  if (v) mover_wait(v, v->begun);
}

uint64_t mover_begin(Mover *v, void *to, const void *from, size_t bytes) {
  if (!v->tried && !v->alone && bytes >= v->least) {
    v->tried = true;
    thread_home_set(&v->home);
    v->started = thread_start(&v->id, live, v);
  }
  if (bytes < v->least || !has_thread(v)) {
    double start = now();
    memcpy(to, from, bytes);
    double took = now() - start;
    lock(v);
    v->count.bytes += (int64_t)bytes;
    v->count.copy_seconds += took;
    v->count.wait_seconds += took;
    unlock(v);
    return 0;
  }
  if (v->begun - v->ended == JOBS) mover_wait(v, v->ended + 1);
  pthread_mutex_lock(&v->lock);
  *job_of(v, ++v->begun) = (Job){.to = to, .from = from, .bytes = bytes};
  v->count.bytes += (int64_t)bytes;
  pthread_cond_signal(&v->news);
  pthread_mutex_unlock(&v->lock);
  return v->begun;
}

MoverCount mover_count(Mover *v) {
  if (!v) return (MoverCount){0};
  lock(v);
  MoverCount c = v->count;
  unlock(v);
  return c;
}

Mover *mover_open(Mem *m, size_t least, bool alone) {
  Mover *v = mem_need(m, NULL, 0, sizeof *v);
  *v = (Mover){.mem = m, .least = least ? least : 1, .alone = alone};
  pthread_mutex_init(&v->lock, NULL);
  pthread_cond_init(&v->news, NULL);
  pthread_cond_init(&v->progress, NULL);
  return v;
}

void mover_close(Mover *v) {
  if (!v) return;
  mover_wait_all(v);
  if (has_thread(v)) {
    pthread_mutex_lock(&v->lock);
    v->quit = true;
    pthread_cond_signal(&v->news);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->id, NULL);
  }
  if (!v->started || has_thread(v)) { /* a child's may be in use by a thread that is not there */
    pthread_cond_destroy(&v->progress);
    pthread_cond_destroy(&v->news);
    pthread_mutex_destroy(&v->lock);
  }
  thread_home_free(&v->home);
  mem_free(v->mem, v, sizeof *v);
}
