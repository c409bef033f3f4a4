/* A thread of a session that copies memory while the session computes. */
#ifndef CKL_RUNTIME_MOVER_H
#define CKL_RUNTIME_MOVER_H

#include "runtime/mem.h"

typedef struct Mover Mover;

/* Starts no thread: the first copy of at least `least` bytes does. Smaller ones are made at once,
 * and all if `alone`. Throws when out of memory. */
enum { MOVER_LEAST = 64 << 10 }; /* bytes; a smaller copy is made before a thread wakes */
Mover *mover_open(Mem *m, size_t least, bool alone);
void mover_close(Mover *v); /* waits for all copies; NULL is fine */

/* Begins to copy `bytes` bytes; from then on nobody touches `to`, and nobody writes `from`, until
 * mover_wait(v, the number that this returns). The number of a copy that is made is 0. Like all of
 * a session, from its own thread. */
uint64_t mover_begin(Mover *v, void *to, const void *from, size_t bytes);
/* Returns when the copy of this number and all before it are made; the caller copies, too. */
void mover_wait(Mover *v, uint64_t number);
void mover_wait_all(Mover *v);

typedef struct MoverCount {
  int64_t bytes;       /* of all copies */
  double copy_seconds; /* that they took, on whatever thread */
  double wait_seconds; /* that the session spent in them: the rest was beside other work */
} MoverCount;
MoverCount mover_count(Mover *v);

#endif
