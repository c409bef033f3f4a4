/* A request to stop a running computation, from another thread or a signal handler.
 *
 * The flag belongs to a session or a test and lives as long. Each long computation gets its address
 * and reads it every few milliseconds. Other threads touch nothing else, and the flag announces no
 * other data, so no memory order is needed.
 */
#ifndef CKL_RUNTIME_INTERRUPT_H
#define CKL_RUNTIME_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic int32_t Interrupt; /* 0, or 1: stop. Machine code reads it as an i32 */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && sizeof(Interrupt) == sizeof(int32_t),
               "a signal handler may write it, and code of kernels read it");

static inline bool interrupt_asked(const Interrupt *i) { /* NULL: nobody can ask */
  return i && atomic_load_explicit(i, memory_order_relaxed);
}

static inline void interrupt_set(Interrupt *i, bool on) {
  atomic_store_explicit(i, on, memory_order_relaxed);
}

#endif
