/* The C stack: recursive functions check that there is room before they go deeper.
 *
 * A call from outside (an entry of ckl.h) registers the end of its thread's stack, and a function
 * for a full stack. Until the call leaves, stack_check() in any function of that thread compares.
 * So threads with different stacks may use a session one after the other, on signal stacks and from
 * functions of the host. Threads that never entered (workers of a pool) are not checked, since they
 * do not recurse. Invariant: every cycle of calls without a bound of its own has a stack_check, and
 * all calls between two of them fit in STACK_RESERVE, including functions of the host.
 */
#ifndef CKL_RUNTIME_STACK_H
#define CKL_RUNTIME_STACK_H

#include "runtime/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define CKL_STACK_FACTOR 5 /* variables stand in red zones, and frames share nothing */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CKL_STACK_FACTOR 5
#endif
#endif
#if !defined(CKL_STACK_FACTOR) && !defined(__OPTIMIZE__)
#define CKL_STACK_FACTOR 2
#elif !defined(CKL_STACK_FACTOR)
#define CKL_STACK_FACTOR 1
#endif

/* Marks a function that is not inlined, so that its variables stay out of a recursive caller's
 * frame. */
#define APART __attribute__((noinline))

enum {
  STACK_RESERVE = CKL_STACK_FACTOR * (48 << 10),
  STACK_HOST = 16 << 10,     /* of it for functions of the host, as ckl.h promises */
  STACK_UNKNOWN = 128 << 10, /* bytes that an unknown stack is assumed to have below a call */
};

/* The stack during a call of a session. */
typedef struct Stack {
  uintptr_t low;          /* recursion ends above this address; 0: it is not checked */
  uintptr_t end;          /* the lowest address of the stack, or an assumed one */
  Mem *mem;               /* its innermost protected call is left when the stack is full */
  void (*full)(void *ud); /* called under mem_protect: reports the full stack and throws */
  void *ud;
} Stack;

/* Registers the caller's stack, of which at most `most` bytes from here may be used (0: all).
 * Returns the argument for stack_leave. */
Stack stack_enter(Mem *m, size_t most, void (*full)(void *ud), void *ud);
void stack_leave(Stack before);
/* Throws when less than the reserve is left. Every cycle of calls contains it. */
void stack_check(void);
/* Bytes left, the reserve included; SIZE_MAX: not checked. */
size_t stack_left(void);

#endif
