/* Threads of a session: one loop over iterations at a time, spread over cores.
 *
 * A session owns at most one pool and uses it from its own thread; two sessions on two threads have
 * two pools, which are independent of each other. No result may depend on the distribution of the
 * iterations: runs differ only in which thread runs which iterations, and when.
 */
#ifndef CKL_RUNTIME_POOL_H
#define CKL_RUNTIME_POOL_H

#include "runtime/interrupt.h"
#include "runtime/mem.h"

typedef struct Pool Pool;

/* Runs iterations lo .. hi-1; `thread` is 0 for the caller of pool_run, else 1 .. threads-1. Must
 * not throw. */
typedef void (*PoolFn)(void *ud, int64_t lo, int64_t hi, int thread);

/* How many threads this process should use: the environment's CKL_THREADS, else the CPUs that it
 * may run on, less where a control group allows fewer. At least 1, at most POOL_MOST. */
enum { POOL_MOST = 128 };
int pool_default_threads(void);

/* Starts no thread: those are made by the first loop that needs them. `threads` 0: the default.
 * Throws when out of memory. */
Pool *pool_open(Mem *m, int threads);
void pool_close(Pool *p); /* waits for its threads; NULL is fine */
int pool_threads(const Pool *p);

/* While a program runs its threads wait by spinning, so that a loop starts in less than a
 * microsecond; outside they sleep. Nests. */
void pool_begin(Pool *p);
void pool_end(Pool *p);

/* Runs f for iterations 0 .. n-1 in pieces of at most `chunk` iterations (at least 1), each
 * iteration once, on the caller and the other threads, and returns when all is done. Each thread
 * starts in its own part of the iterations, the same one in each loop, and helps others afterwards.
 * False when `interrupt` (may be NULL) was seen set: it is read before each piece, and pieces that
 * were begun are finished. In a child after fork, where the threads are not, all iterations run on
 * the caller. Not from inside f. */
bool pool_run(Pool *p, PoolFn f, void *ud, int64_t n, int64_t chunk, const Interrupt *interrupt);

#endif
