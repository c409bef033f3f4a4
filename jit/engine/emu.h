/* A GPU that is emulated on the host, one block of threads after the other.
 *
 * Kernels for it are made by the code generator on request (CODEGEN_EMULATE): the same
 * instructions as in the PTX, in x86-64, with what a GPU thread has beyond arithmetic (its number,
 * barriers, shuffles, shared memory) asked of the EmuThread below. Not fast: it is there to test
 * the schedule for GPUs where there is none.
 */
#ifndef CKL_JIT_ENGINE_EMU_H
#define CKL_JIT_ENGINE_EMU_H

#include "jit/loop/loop.h"

enum { EMU_THREADS = 256, EMU_SHARED = 48 << 10 }; /* of a block: threads; bytes */

/* What the code of a kernel sees as its `local`; the code generator knows the layout. */
typedef struct EmuThread EmuThread;
struct EmuThread {
  int64_t number, block;  /* of the thread in its block; of the block */
  void *shared, *scratch; /* of the block: EMU_SHARED bytes; as much as lp_local_bytes tells */
  void (*barrier)(EmuThread *t); /* returns when all threads of the block have called it */
  /* x of thread number ^ by, when threads 0 .. 15 have all called it with that `by` */
  int64_t (*exchange)(EmuThread *t, int64_t x, int64_t by);
};

/* The threads of one block, their stacks and memory. NULL when out of memory. */
typedef struct Emu Emu;
Emu *emu_open(Mem *m);
void emu_close(Emu *u); /* NULL is fine */
/* Runs all turns of a kernel. False with `e` when out of memory, when `interrupt` (may be NULL)
 * became true, or where threads wait for one another for ever: at a barrier or shuffle that not
 * all of them reach. */
bool emu_run(Emu *u, KernelFn f, void *const *buf, const int64_t *arg, int64_t turns,
             int64_t local_bytes, KStatus *st, const Interrupt *interrupt, Err *e);

#endif
