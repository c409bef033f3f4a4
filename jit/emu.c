/* Blocks of GPU threads as fibers.
 *
 * In: the code of a kernel for the emulator. Out: what its turns store. Each thread is a fiber of
 * its own (POSIX contexts), which runs until it waits at a barrier or in a shuffle; when all that
 * have to be there are, they go on, first to last, then last to first, and the other way round in
 * the next block. Shared memory and scratch start as noise. So code that misses a barrier does not
 * pass by luck.
 *
 * Invariant: threads of one block share memory alone; a block that cannot go on is given up, with
 * an error. */
#include "jit/emu.h"

#include <string.h>
#include <ucontext.h>

enum { STACK = 64 << 10, LANES = 16 };

typedef enum State { READY, AT_BARRIER, IN_EXCHANGE, DONE } State;

typedef struct Fiber {
  EmuThread t; /* the code sees this */
  struct Block *block;
  ucontext_t context;
  State state;
  int64_t x, by; /* exchanged */
} Fiber;

typedef struct Block {
  Fiber fiber[EMU_THREADS];
  ucontext_t home;
  KernelFn f;
  void *const *buf;
  const int64_t *arg;
  int64_t turn;
  KStatus *st;
  char *stacks, *scratch;
  size_t scratch_bytes;
  _Alignas(64) char shared[EMU_SHARED];
} Block;

static void wait_as(Fiber *f, State state) {
  f->state = state;
  swapcontext(&f->context, &f->block->home);
}

static void barrier(EmuThread *t) { wait_as((Fiber *)t, AT_BARRIER); }

static int64_t exchange(EmuThread *t, int64_t x, int64_t by) {
  Fiber *f = (Fiber *)t;
  f->x = x;
  f->by = by;
  wait_as(f, IN_EXCHANGE);
  return f->x;
}

/* makecontext passes ints alone. */
static void thread_main(unsigned high, unsigned low) {
  Fiber *f = (Fiber *)(uintptr_t)((uint64_t)high << 32 | low);
  Block *b = f->block;
  b->f(b->buf, b->arg, b->turn, b->turn + 1, &f->t, b->st);
  f->state = DONE;
}

static bool in_state(const Block *b, int n, State s) {
  for (int i = 0; i < n; i++)
    if (b->fiber[i].state != s) return false;
  return true;
}

static bool shuffle(Block *b) {
  int64_t got[LANES];
  if (!in_state(b, LANES, IN_EXCHANGE)) return false;
  for (int i = 0; i < LANES; i++) {
    int64_t by = b->fiber[i].by;
    if (by != b->fiber[0].by || by <= 0 || by >= LANES) return false;
    got[i] = b->fiber[i ^ by].x;
  }
  for (int i = 0; i < LANES; i++) {
    b->fiber[i].x = got[i];
    b->fiber[i].state = READY;
  }
  return true;
}

static void set_up(Block *b, Fiber *f, int i) {
  uint64_t p = (uint64_t)(uintptr_t)f;
  getcontext(&f->context);
  f->state = READY;
  f->t = (EmuThread){i, 0, b->shared, b->scratch, barrier, exchange};
  f->block = b;
  f->context.uc_stack.ss_sp = b->stacks + (size_t)i * STACK;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = &b->home;
  makecontext(&f->context, (void (*)(void))thread_main, 2, (unsigned)(p >> 32), (unsigned)p);
}

static bool run_block(Block *b, Err *e) {
  memset(b->shared, 0xa5, sizeof b->shared);
  memset(b->scratch, 0xa5, b->scratch_bytes);
  for (int i = 0; i < EMU_THREADS; i++) set_up(b, &b->fiber[i], i);
  for (int round = 0;; round++) {
    for (int j = 0; j < EMU_THREADS; j++) {
      Fiber *f = &b->fiber[(round + b->turn) % 2 ? EMU_THREADS - 1 - j : j];
      if (f->state == READY) swapcontext(&b->home, &f->context);
    }
    if (in_state(b, EMU_THREADS, DONE)) return true;
    if (in_state(b, EMU_THREADS, AT_BARRIER)) {
      for (int i = 0; i < EMU_THREADS; i++) b->fiber[i].state = READY;
    } else if (!shuffle(b)) {
      return err_set(e, "threads of a block wait for each other");
    }
  }
}

bool emu_run(Mem *m, KernelFn f, void *const *buf, const int64_t *arg, int64_t turns,
             int64_t local_bytes, KStatus *st, Err *e) {
  size_t stacks = (size_t)STACK * EMU_THREADS, local = (size_t)local_bytes + 64;
  size_t bytes = sizeof(Block) + 64 + stacks + local + 64;
  char *room = mem_try(m, NULL, 0, bytes);
  if (!room) return err_set(e, "out of memory");
  Block *b = (Block *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
  b->f = f;
  b->buf = buf;
  b->arg = arg;
  b->st = st;
  b->stacks = (char *)(b + 1);
  b->scratch = b->stacks + stacks;
  b->scratch_bytes = local;
  bool ok = true;
  for (b->turn = 0; b->turn < turns && ok; b->turn++) ok = run_block(b, e);
  mem_free(m, room, bytes);
  return ok;
}
