/* The mover: what is copied is what was there, whoever copies it, and whatever is waited for. */
#include "runtime/mover.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/failing.h"

enum { ROOM = 8 << 20, COPIES = 300 };

typedef struct Copy {
  uint64_t number;
  size_t at, bytes;
} Copy;

static unsigned char *from, *to;

typedef struct Opener {
  Mem *m;
  size_t least;
  bool alone;
  Mover *v;
} Opener;

static void open_mover(void *ud) {
  Opener *o = ud;
  o->v = mover_open(o->m, o->least, o->alone);
}

static Mover *opened(Mem *m, size_t least, bool alone) {
  Opener o = {m, least, alone, NULL};
  mem_protect(m, open_mover, &o);
  return o.v;
}

static void fill(uint64_t *seed) {
  for (size_t i = 0; i < ROOM; i += 8) {
    uint64_t word = tap_random(seed);
    memcpy(from + i, &word, 8);
  }
  memset(to, 0, ROOM);
}

static bool is_made(const Copy *c) {
  return !c->bytes || !memcmp(to + c->at, from + c->at, c->bytes);
}

/* Copies of parts in order, of which any is waited for now and then; all before it are made. */
static void t_order(size_t least, bool alone, size_t most) {
  static Copy copy[COPIES];
  uint64_t seed = 1 + least + most + alone;
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Mover *v = opened(&m, least, alone);
  need(v);
  int queued = 0;
  int64_t bytes = 0;
  for (int round = 0; round < 3; round++) {
    fill(&seed);
    size_t at = 0, count = 0;
    for (; count < COPIES; count++) {
      size_t n = tap_random(&seed) % (most + 1);
      if (n > ROOM - at) break;
      Copy *c = &copy[count];
      *c = (Copy){mover_begin(v, to + at, from + at, n), at, n};
      queued += c->number > 0;
      bytes += (int64_t)n;
      at += n;
      if (!c->number && !is_made(c)) check(false);
      if (tap_random(&seed) % 8) continue;
      size_t k = tap_random(&seed) % (count + 1);
      mover_wait(v, copy[k].number);
      for (size_t i = 0; i <= k; i++)
        if (copy[k].number && !is_made(&copy[i])) check(false);
    }
    mover_wait_all(v);
    check(count > 0 && !memcmp(from, to, at));
  }
  MoverCount c = mover_count(v);
  check_int(c.bytes, ==, bytes);
  check(c.copy_seconds > 0 && c.wait_seconds > 0);
  if (alone || most < least) check_int(queued, ==, 0);
  if (!alone && most > 4 * least) check_int(queued, >, 0);
  mover_close(v);
  check(failing_clean(&f, &m));
}

/* Closing waits for what was begun. */
static void t_close(void) {
  uint64_t seed = 7;
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  for (int round = 0; round < 20; round++) {
    fill(&seed);
    Mover *v = opened(&m, 1, false);
    need(v);
    for (size_t at = 0; at < ROOM; at += ROOM / 16) mover_begin(v, to + at, from + at, ROOM / 16);
    mover_close(v);
    check(!memcmp(from, to, ROOM));
  }
  check(failing_clean(&f, &m));
}

/* A child after fork has no thread, and what was begun before. */
static void t_fork(void) {
  uint64_t seed = 9;
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  for (int round = 0; round < 20; round++) {
    fill(&seed);
    Mover *v = opened(&m, 1, false);
    need(v);
    uint64_t half = mover_begin(v, to, from, ROOM / 2);
    pid_t child = fork();
    if (!child) {
      alarm(20);
      mover_wait(v, half);
      bool ok = !memcmp(from, to, ROOM / 2);
      ok &= !mover_begin(v, to + ROOM / 2, from + ROOM / 2, ROOM / 2);
      ok &= !memcmp(from, to, ROOM);
      mover_close(v);
      _exit(ok ? 0 : 1);
    }
    mover_begin(v, to + ROOM / 2, from + ROOM / 2, ROOM / 2);
    mover_wait_all(v);
    check(!memcmp(from, to, ROOM));
    int status = -1;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    mover_close(v);
  }
  check(failing_clean(&f, &m));
}

static void t_nomem(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 1);
  check(!opened(&m, 1, false));
  check(failing_clean(&f, &m));
  mover_close(NULL);
  mover_wait_all(NULL);
  check_int(mover_count(NULL).bytes, ==, 0);
}

int main(void) {
  from = malloc(ROOM);
  to = malloc(ROOM);
  if (!from || !to) return 1;
  TEST(t_order(1, false, 20000), "small copies beside others");
  TEST(t_order(MOVER_LEAST, false, 1 << 20), "large copies, cut into pieces, among small ones");
  TEST(t_order(MOVER_LEAST, false, 1000), "copies too small for the thread");
  TEST(t_order(1, true, 1 << 20), "copies without a thread");
  TEST(t_close(), "closing waits for all copies");
  TEST(t_fork(), "after fork a child copies alone, again what was not known to be copied");
  TEST(t_nomem(), "out of memory is a throw");
  free(from);
  free(to);
  return tap_done();
}
