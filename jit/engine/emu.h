/* A GPU that is emulated on the host, one block of threads after the other.
 *
 * The code generator makes kernels for it on request (CODEGEN_EMULATE): the instructions of the
 * PTX, in x86-64. The EmuThread below provides what a GPU thread has beyond arithmetic: its number,
 * barriers, shuffles and shared memory. The emulator is slow; it serves to test the schedule for
 * GPUs on machines without one.
 */
#ifndef CKL_JIT_ENGINE_EMU_H
#define CKL_JIT_ENGINE_EMU_H

#include "jit/loop/loop.h"

enum { EMU_THREADS = 256, EMU_SHARED = 48 << 10 }; /* of a block: threads; bytes */

/* A kernel gets this as its `local`. The code generator knows the layout. */
typedef struct EmuThread EmuThread;
struct EmuThread {
  int64_t number, block;         /* of the thread in its block; of the block */
  void *shared, *scratch;        /* of the block: EMU_SHARED bytes; lp_local_bytes bytes */
  void (*barrier)(EmuThread *t); /* returns when all threads of the block have called it */
  /* x of thread number ^ by, when threads 0 .. 15 have all called it with that `by` */
  int64_t (*exchange)(EmuThread *t, int64_t x, int64_t by);
};

/* The threads of one block, their stacks and memory. NULL when out of memory. */
typedef struct Emu Emu;
Emu *emu_open(Mem *m);
void emu_close(Emu *u); /* NULL is fine */
/* Runs all iterations of a kernel. False with `e` when out of memory, when `interrupt` (may be
 * NULL) became true, or when threads wait for one another forever at a barrier or shuffle that some
 * of them never reach. */
bool emu_run(Emu *u, KernelFn f, void *const *buf, const int64_t *arg, int64_t iterations,
             int64_t local_bytes, KStatus *st, const Interrupt *interrupt, Err *e);

#endif
