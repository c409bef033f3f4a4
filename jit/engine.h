/* The engine: from the text of a kernel to code in memory, and running it on threads.
 *
 * A session has one. Looked for in this order: kernels already loaded, kernels installed with ckl,
 * the cache on disk, the code generator process. No LLVM in this process.
 */
#ifndef CKL_JIT_ENGINE_H
#define CKL_JIT_ENGINE_H

#include "jit/loop.h"

typedef enum EngLevel { ENG_X86_64, ENG_X86_64_V3, ENG_X86_64_V4, ENG_LEVEL_COUNT } EngLevel;
extern const char *const eng_level_name[ENG_LEVEL_COUNT]; /* "x86-64", "x86-64-v3", "x86-64-v4" */
EngLevel eng_host_level(void);            /* the best this CPU can run */
bool eng_level_find(const char *name, EngLevel *out);

/* What the session wants to hear; any may be NULL. */
typedef struct EngConfig {
  EngLevel level;
  int threads;             /* 0 = as many as the process may use */
  const char *codegen;     /* path of ckl-codegen; NULL = not there */
  const char *installed;   /* folder of installed kernels; NULL = none */
  const char *cache;       /* folder of the cache; NULL = memory only */
  int64_t cache_limit;     /* bytes; 0 = 512 MiB */
  bool perf_map;           /* write /tmp/perf-PID.map */
  void (*log)(void *ud, const char *text); /* one line: why something is compiled, or what was rejected */
  void *ud;
} EngConfig;

typedef struct Engine Engine;
typedef struct EngKernel EngKernel;

Engine *eng_open(Mem *m, const EngConfig *c); /* throws when out of memory; starts no process or thread */
void eng_close(Engine *g);
const EngConfig *eng_config(const Engine *g);

/* The kernel of this text; starts its compilation when it has to, and does not wait. The handle lives as
 * long as the engine. NULL with `e` when there is no way to get code: e->text says why. */
EngKernel *eng_kernel(Engine *g, const Kernel *k, Err *e);
/* Waits until all are loaded. False with `e` when one failed (the code generator's message), or when
 * `interrupt` became true (e->text is then "interrupted"). A failed kernel stays failed. */
bool eng_wait(Engine *g, EngKernel *const *k, size_t n, const volatile bool *interrupt, Err *e);
KernelFn eng_code(const EngKernel *k); /* NULL until it is loaded */

/* Runs all `turns`, on as many threads as pay (`work`: a guess of elementary operations in all; small
 * work runs on the calling thread). `scratch`: room for local_bytes per thread, made by eng_scratch. False
 * when interrupted. Floating-point control is set to the language's and restored. */
bool eng_run(Engine *g, KernelFn f, void *const *buf, const int64_t *arg, int64_t turns, int64_t work,
             int64_t local_bytes, KStatus *st, const volatile bool *interrupt);
int eng_threads(const Engine *g);
/* Makes room for this many bytes of scratch per thread; false when out of memory. */
bool eng_scratch(Engine *g, int64_t local_bytes);

typedef struct EngCount {
  int64_t loaded, installed, from_disk, generated, failed, rejected; /* kernels */
  int64_t processes;                                                 /* code generators started */
  double wait_seconds;
} EngCount;
EngCount eng_count(const Engine *g);

#endif
