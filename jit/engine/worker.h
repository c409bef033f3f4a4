/* Code generator processes of a session: sending kernels, collecting objects.
 *
 * Processes start when there is work, and stay. A process that dies or answers nonsense is
 * replaced, and its kernel is tried once more; a kernel that ends two processes has failed, and no
 * other kernel suffers. A process that hangs costs a minute. After that no kernel is sent any more,
 * so that no program waits a minute for each. Children of a process end with it, and its address
 * space has a limit. No signal reaches the host program, and a forked child does not touch its
 * parent's processes.
 */
#ifndef CKL_JIT_ENGINE_WORKER_H
#define CKL_JIT_ENGINE_WORKER_H

#include "jit/engine/codegen.h"
#include "runtime/err.h"
#include "runtime/mem.h"

/* One kernel to be compiled. It belongs to the caller and stays where it is until `done` was
 * called. */
typedef struct WorkItem {
  const char *text; /* loop text */
  size_t text_n;
  uint32_t level, flags; /* as in CodegenFrame */
  /* kept by worker.c */
  struct WorkItem *next;
  uint64_t id;
  int killed; /* processes that died of it */
  bool nomem; /* its answer is an error: there was no memory for it */
} WorkItem;

/* The answer: kind CODEGEN_OBJECT or CODEGEN_TEXT with `bytes`, or CODEGEN_ERROR with a line of
 * text (not terminated). `bytes` are gone afterwards. May call work_send, nothing else of this
 * header. */
typedef void WorkDone(void *ud, WorkItem *item, CodegenKind kind, const char *bytes, size_t n);

typedef struct Workers Workers;

/* `path`: the program. At most `most` processes; `patience` milliseconds for one kernel (0: a
 * minute). Throws when out of memory. Starts nothing. */
Workers *work_open(Mem *m, const char *path, int most, int patience, WorkDone *done, void *ud);
/* Ends all processes; items without an answer are dropped. NULL is fine. */
void work_close(Workers *w);
/* Queues the item and starts as many items as possible, without waiting. */
void work_send(Workers *w, WorkItem *item);
/* Sends and collects what is ready; waits up to `milliseconds` for something to happen. False when
 * nothing is under way. */
bool work_poll(Workers *w, int milliseconds);
int64_t work_processes(const Workers *w); /* started so far */

#endif
