/* The C stack of the running thread: how far down it goes, and the error when it is full.
 *
 * In: an address of the caller. Out: the address below which recursion may not go. The C library
 * knows the stack of its threads, and sigaltstack that of a signal handler. Other stacks
 * (coroutines) are unknown; the host describes them by ckl_config.stack. Stacks grow downwards.
 */
#define _GNU_SOURCE
#include "runtime/stack.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static _Thread_local Stack here __attribute__((tls_model("initial-exec"))); /* read often */

/* A stack from lo up to hi. The lo of the first thread moves with RLIMIT_STACK, so the limit is
 * read at each use. The bounds are found once per thread, since the C library reads a file for
 * them. */
typedef struct Bounds {
  uintptr_t lo, hi;
  bool first, known;
} Bounds;
static _Thread_local Bounds own;

/* What lies below the first thread's stack stays free for it to grow: 128 MiB at least, less what
 * is random (Linux, gap_min of mmap_base). */
enum { FIRST_GROWS = 64 << 20 };

static void find_bounds(Bounds *b) {
  *b = (Bounds){0, 0, false, true};
#if defined(__linux__)
  pthread_attr_t a;
  void *lo = NULL;
  size_t size = 0, guard = 0;
  if (pthread_getattr_np(pthread_self(), &a)) return;
  if (!pthread_attr_getstack(&a, &lo, &size) && !pthread_attr_getguardsize(&a, &guard)) {
    b->first = gettid() == getpid();
    b->hi = (uintptr_t)lo + size;
    b->lo = (uintptr_t)lo + (b->first ? 0 : guard);
#if !defined(__GLIBC__) /* musl says how far the first stack has grown so far */
    if (b->first && size < FIRST_GROWS) b->lo = b->hi - FIRST_GROWS;
#endif
  }
  pthread_attr_destroy(&a);
#endif
}

/* The lowest address that the stack around `at` certainly has. */
static uintptr_t lowest(uintptr_t at, size_t most) {
  if (!own.known) find_bounds(&own);
  if (at >= own.lo && at < own.hi) {
    struct rlimit r;
    bool limited = own.first && !getrlimit(RLIMIT_STACK, &r) && r.rlim_cur < own.hi - own.lo;
    return limited ? own.hi - (uintptr_t)r.rlim_cur : own.lo;
  }
  stack_t alt;
  if (!sigaltstack(NULL, &alt) && !(alt.ss_flags & SS_DISABLE) && at >= (uintptr_t)alt.ss_sp &&
      at - (uintptr_t)alt.ss_sp < alt.ss_size)
    return (uintptr_t)alt.ss_sp;
  size_t room = most ? most : STACK_UNKNOWN;
  return at > room ? at - room : 0;
}

Stack stack_enter(Mem *m, size_t most, void (*full)(void *ud), void *ud) {
  Stack before = here;
  uintptr_t at = (uintptr_t)__builtin_frame_address(0), end = lowest(at, most);
  if (most && most < at - end) end = at - most;
  here = (Stack){end + STACK_RESERVE, end, m, full, ud};
  return before;
}

void stack_leave(Stack before) {
  here = before;
}

size_t stack_left(void) {
  uintptr_t at = (uintptr_t)__builtin_frame_address(0);
  return !here.low ? SIZE_MAX : at > here.end ? at - here.end : 0;
}

/* The message takes some of the reserve; if that is used up, too, there is no text. */
static APART _Noreturn void is_full(void) {
  Stack s = here;
  int code = MEM_ERR_STACK;
  if (s.full) {
    here.low = s.end + STACK_RESERVE / 2;
    here.full = NULL;
    code = mem_protect(s.mem, s.full, s.ud);
    here = s;
  }
  mem_throw(s.mem, code == MEM_OK ? MEM_ERR_STACK : code);
}

void stack_check(void) {
  if ((uintptr_t)__builtin_frame_address(0) < here.low) is_full();
}
