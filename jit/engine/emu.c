/* Blocks of GPU threads as fibers.
 *
 * In: the code of a kernel for the emulator. Out: the stores of its iterations. Each thread is a
 * fiber of its own, which runs until it waits at a barrier or in a shuffle. When all threads that
 * take part have arrived, they go on: in one round first to last, in the next last to first, and
 * the other way round in the next block. Shared memory and scratch start as noise. So code that
 * misses a barrier does not pass by luck.
 *
 * On machines that this file knows, a switch between fibers is a dozen instructions. POSIX contexts
 * ask the kernel for the signal mask at each switch, which takes a hundred times as long.
 *
 * Invariant: threads of one block share memory alone; a block that cannot go on, or is
 * interrupted, is given up where its threads stand. */
#include "jit/engine/emu.h"

#include <string.h>

/* A shadow stack (__CET__) would have to be switched too. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CET__)
#define OWN_SWITCH 1
#else
#define OWN_SWITCH 0
#include <ucontext.h>
#endif

/* Frames on the stacks of fibers are left without return, so AddressSanitizer must not watch
 * them. */
#define ON_FIBER __attribute__((no_sanitize_address))

/* 192 bytes more than a power of two: else the stacks would share a few lines of the cache. */
enum { STACK = (64 << 10) + 192, LANES = 16 };

typedef enum State { READY, AT_BARRIER, IN_EXCHANGE, DONE, STATES } State;

#if OWN_SWITCH
typedef void *Context; /* the stack pointer, below the saved registers (System V ABI) */
#else
typedef ucontext_t Context;
#endif

typedef struct Fiber {
  EmuThread t; /* the code sees this */
  Emu *emu;
  Context context;
  int64_t x, by; /* of a shuffle */
} Fiber;

struct Emu {
  Fiber fiber[EMU_THREADS];
  unsigned char state[EMU_THREADS]; /* State of each */
  int count[STATES];                /* threads in each state other than READY */
  int by;                           /* step to the next fiber in this round, 1 or -1 */
  Context home;
  const Interrupt *interrupt;
  Mem *mem;
  KernelFn f;
  void *const *buf;
  const int64_t *arg;
  int64_t iteration;
  KStatus *st;
  char *room, *local; /* as allocated; the members below are 64-byte aligned */
  size_t local_bytes;
  char *shared, *stacks, *scratch;
};

/* ---- switching */

static void thread_main(Fiber *f); /* does not return */

#if OWN_SWITCH

void emu_switch(void **from, void *to);
__asm__(".pushsection .text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size emu_switch, . - emu_switch\n"
        ".popsection\n");

/* Switches to `to`. Returns when another switch continues `from`. */
ON_FIBER static void jump(Context *from, Context *to) {
  emu_switch(from, *to);
}

/* The first switch to a fiber arrives here, by the ret. */
void emu_start(void);
__asm__(".pushsection .text\n"
        ".globl emu_start\n"
        ".hidden emu_start\n"
        ".type emu_start, @function\n"
        "emu_start:\n"
        "  movq %rbx, %rdi\n"
        "  call *%r12\n"
        ".size emu_start, . - emu_start\n"
        ".popsection\n");

static void start_at(Fiber *f, char *stack) {
  enum { R15, R14, R13, R12, RBX, RBP, RETURN, SLOTS };
  uintptr_t *top = (uintptr_t *)(stack + STACK) - SLOTS;
  memset(top, 0, SLOTS * sizeof *top);
  top[R12] = (uintptr_t)thread_main;
  top[RBX] = (uintptr_t)f;
  top[RETURN] = (uintptr_t)emu_start;
  f->context = top;
}

#else

static void jump(Context *from, Context *to) {
  swapcontext(from, to);
}

/* makecontext passes ints alone. */
static void call_main(unsigned high, unsigned low) {
  thread_main((Fiber *)(uintptr_t)((uint64_t)high << 32 | low));
}

static void start_at(Fiber *f, char *stack) {
  uint64_t p = (uintptr_t)f;
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = stack;
  f->context.uc_stack.ss_size = STACK;
  makecontext(&f->context, (void (*)(void))call_main, 2, (unsigned)(p >> 32), (unsigned)p);
}

#endif

/* ---- what threads call */

ON_FIBER static bool interrupted(const Emu *b) {
  return interrupt_asked(b->interrupt);
}

/* The next ready fiber from number i on, or the context that runs the block. */
ON_FIBER static Context *next_from(Emu *b, int i) {
  while (i >= 0 && i < EMU_THREADS && b->state[i] != READY) i += b->by;
  return i >= 0 && i < EMU_THREADS && !interrupted(b) ? &b->fiber[i].context : &b->home;
}

ON_FIBER static void wait_as(Fiber *f, State state) {
  Emu *b = f->emu;
  int i = (int)f->t.number;
  b->state[i] = (unsigned char)state;
  b->count[state]++;
  jump(&f->context, next_from(b, i + b->by));
}

ON_FIBER static void barrier(EmuThread *t) {
  wait_as((Fiber *)t, AT_BARRIER);
}

ON_FIBER static int64_t exchange(EmuThread *t, int64_t x, int64_t by) {
  Fiber *f = (Fiber *)t;
  f->x = x;
  f->by = by;
  wait_as(f, IN_EXCHANGE);
  return f->x;
}

ON_FIBER static void thread_main(Fiber *f) {
  Emu *b = f->emu;
  b->f(b->buf, b->arg, b->iteration, b->iteration + 1, &f->t, b->st);
  wait_as(f, DONE); /* for ever */
}

/* ---- a block */

static void all_ready(Emu *b) {
  memset(b->state, READY, sizeof b->state);
  memset(b->count, 0, sizeof b->count);
}

static bool shuffle(Emu *b) {
  int64_t got[LANES];
  for (int i = 0; i < LANES; i++) {
    int64_t by = b->fiber[i].by;
    if (b->state[i] != IN_EXCHANGE || by != b->fiber[0].by || by <= 0 || by >= LANES) return false;
    got[i] = b->fiber[i ^ by].x;
  }
  for (int i = 0; i < LANES; i++) {
    b->fiber[i].x = got[i];
    b->state[i] = READY;
  }
  b->count[IN_EXCHANGE] -= LANES;
  return true;
}

static bool run_block(Emu *b, Err *e) {
  memset(b->shared, 0xa5, EMU_SHARED);
  memset(b->local, 0xa5, b->local_bytes);
  all_ready(b);
  for (int i = 0; i < EMU_THREADS; i++) {
    Fiber *f = &b->fiber[i];
    f->t = (EmuThread){i, 0, b->shared, b->scratch, barrier, exchange};
    f->emu = b;
    start_at(f, b->stacks + (size_t)i * STACK);
  }
  for (int round = 0; !interrupted(b); round++) {
    bool back = (round + b->iteration) % 2;
    b->by = back ? -1 : 1;
    jump(&b->home, next_from(b, back ? EMU_THREADS - 1 : 0));
    if (b->count[DONE] == EMU_THREADS) return true;
    if (b->count[AT_BARRIER] == EMU_THREADS)
      all_ready(b);
    else if (!interrupted(b) && !shuffle(b))
      return err_set(e, "threads of a block wait for each other");
  }
  return err_set(e, "interrupted");
}

/* ---- life */

enum { ROOM = 64 + EMU_SHARED + EMU_THREADS * STACK };

static char *aligned(char *p) {
  return (char *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
}

Emu *emu_open(Mem *m) {
  Emu *b = mem_try(m, NULL, 0, sizeof *b);
  if (!b) return NULL;
  memset(b, 0, sizeof *b);
  b->mem = m;
  b->room = mem_try(m, NULL, 0, ROOM);
  if (!b->room) {
    emu_close(b);
    return NULL;
  }
  b->shared = aligned(b->room);
  b->stacks = b->shared + EMU_SHARED;
  return b;
}

void emu_close(Emu *b) {
  if (!b) return;
  mem_free(b->mem, b->room, ROOM);
  mem_free(b->mem, b->local, b->local_bytes);
  mem_free(b->mem, b, sizeof *b);
}

static bool make_scratch(Emu *b, size_t bytes) {
  if (b->local && bytes == b->local_bytes) return true;
  mem_free(b->mem, b->local, b->local_bytes);
  b->local = mem_try(b->mem, NULL, 0, bytes);
  b->local_bytes = b->local ? bytes : 0;
  b->scratch = aligned(b->local);
  return b->local;
}

bool emu_run(Emu *b, KernelFn f, void *const *buf, const int64_t *arg, int64_t iterations,
             int64_t local_bytes, KStatus *st, const Interrupt *interrupt, Err *e) {
  if (!make_scratch(b, (size_t)local_bytes + 128)) return err_nomem(e, NULL);
  b->f = f;
  b->buf = buf;
  b->arg = arg;
  b->st = st;
  b->interrupt = interrupt;
  bool ok = true;
  for (b->iteration = 0; b->iteration < iterations && ok; b->iteration++) ok = run_block(b, e);
  return ok;
}
