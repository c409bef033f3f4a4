/* The engine: from the text of a kernel to code in memory, and running it on threads.
 *
 * A session has one. It looks for a kernel among those already loaded, then among those installed
 * with ckl, then in the cache on disk, and asks the code generator process last. LLVM runs in that
 * process only.
 */
#ifndef CKL_JIT_ENGINE_ENGINE_H
#define CKL_JIT_ENGINE_ENGINE_H

#include "runtime/pool.h"
#include "jit/engine/target.h"
#include "jit/loop/loop.h"

/* The configuration of an engine; every pointer may be NULL. */
typedef struct EngConfig {
  EngLevel level;
  int threads;           /* 0 = pool_default_threads() */
  const char *codegen;   /* path of ckl-codegen; NULL = none */
  const char *installed; /* folder of installed kernels; NULL = none */
  const char *cache;     /* folder of the cache; NULL = memory only */
  int64_t cache_limit;   /* bytes; 0 = 512 MiB */
  const char *record;    /* folder: gets the text of each requested kernel, as HASH.ckk */
  bool emulate;          /* kernels run as on a GPU, in emu.h; none are kept or installed */
  bool perf_map;         /* write /tmp/perf-PID.map */
  /* The status that kernels get, in memory that outlives the engine. If its `stop` is set, the
   * running kernel returns soon, in the middle of its iterations. NULL: nobody sets it. */
  KStatus *status;
  /* One line: why something is compiled, or what was rejected. */
  void (*log)(void *ud, const char *text);
  void *ud;
} EngConfig;

typedef struct Engine Engine;
typedef struct EngKernel EngKernel;

/* Fills the paths in `c` that are NULL; their texts live in `a`. The code generator and installed
 * kernels stand next to the program or library that contains this code (in a build folder), or in
 * the folders of an installation. The cache is $XDG_CACHE_HOME/ckl or ~/.cache/ckl. The variable
 * CKL_CODEGEN of the environment comes first; when empty it means that there is no code generator.
 * CKL_RECORD_KERNELS names the folder `record`. Paths of missing files stay NULL. Throws. */
void eng_find(Arena *a, EngConfig *c);

/* Throws when out of memory; starts no process or thread. */
Engine *eng_open(Mem *m, const EngConfig *c);
void eng_close(Engine *g); /* NULL is fine */
const EngConfig *eng_config(const Engine *g);

/* Returns the kernel with the text of k. Starts its compilation if there is no code, and does not
 * wait for it. The handle lives as long as the engine; its code lives until eng_drop was called
 * once for each call of eng_kernel. NULL with `e` if no code can be made: e->text says why. */
EngKernel *eng_kernel(Engine *g, const Kernel *k, Err *e);
/* Has the contract of eng_kernel, but never compiles: NULL if the code was not made before. *bytes
 * becomes the length of the kernel's text. */
EngKernel *eng_known(Engine *g, const Kernel *k, size_t *bytes);
/* Removes one user of k. A kernel without users stays loaded until eng_trim. */
void eng_drop(Engine *g, EngKernel *k);
/* eng_trim frees the code of kernels without users; eng_unused returns the bytes of that code. */
void eng_trim(Engine *g);
size_t eng_unused(const Engine *g);
/* Waits until all kernels are loaded. False with `e` when one failed (the code generator's
 * message), or when `interrupt` became true (e->text is then "interrupted"). A failed kernel stays
 * failed, unless it failed for want of memory (e->nomem). */
bool eng_wait(Engine *g, EngKernel *const *k, size_t n, const Interrupt *interrupt, Err *e);
KernelFn eng_code(const EngKernel *k); /* NULL until it is loaded */
/* Names a kernel and one of its instructions for a message: by the hash that the log shows, and by
 * the line of the text. */
void eng_words(Engine *g, const Kernel *k, LVal v, char name[20], char line[120]);
/* Prints what the code generator makes of a kernel; `what` is a CODEGEN_DUMP flag (codegen.h).
 * False with `e`. Throws when out of memory. */
bool eng_dump(Engine *g, const Kernel *k, unsigned what, Buf *out, Err *e);

/* Runs all `iterations`, on as many threads as pay (`work`: an estimate of all elementary
 * operations; small work runs on the calling thread). `scratch`: room for local_bytes per thread,
 * made by eng_scratch. False when interrupted or stopped. Floating-point control is set to the
 * language's and restored. */
bool eng_run(Engine *g, KernelFn f, void *const *buf, const int64_t *arg, int64_t iterations,
             int64_t work, int64_t local_bytes, KStatus *st, const Interrupt *interrupt);
/* Until it is off, kernels run to their ends, whoever sets `stop`. */
void eng_hold(Engine *g, bool on);
int eng_threads(const Engine *g);
Pool *eng_pool(const Engine *g); /* between kernels anyone may use it */
/* While a program runs, threads that wait for work do not sleep (pool_begin, pool_end). Off at
 * first. */
void eng_awake(Engine *g, bool on);
/* Makes room for this many bytes of scratch per thread; false when out of memory. */
bool eng_scratch(Engine *g, int64_t local_bytes);
size_t eng_scratch_bytes(const Engine *g);
void eng_scratch_free(Engine *g);

typedef struct EngCount {
  int64_t loaded, installed, from_disk, generated, failed, rejected; /* kernels */
  int64_t processes;                                                 /* code generators started */
} EngCount;
EngCount eng_count(const Engine *g);

#endif
