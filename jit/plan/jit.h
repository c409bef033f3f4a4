/* Compiled graphs: the same contract as gr_run, by machine code.
 *
 * jit_compile cuts the graph into kernels (fuse, lower) and asks the engine for their code; jit_run
 * binds sizes (places in the arena are worked out once per set of sizes), runs the launch list and
 * returns new tensors. The bits are those of gr_run (rule 103). When a kernel reports a failure (an
 * index out of range), jit_run runs the graph again on the reference evaluator, which finds the
 * first failure in row-major order and words the message.
 *
 * Example: a function is compiled once, and runs for any sizes.
 *   JitFn *f = jit_compile(j, g, NULL, NULL, &e);
 *   RunCtx c = {.mem = mem, .env = sizes};
 *   if (f && jit_run(f, &c, in, out, &e, &at)) use(out);
 *   jit_free(f);
 */
#ifndef CKL_JIT_PLAN_JIT_H
#define CKL_JIT_PLAN_JIT_H

#include "graph/ir.h"
#include "graph/run.h"
#include "jit/engine/engine.h"

typedef struct Jit Jit;
typedef struct JitFn JitFn;

typedef struct JitConfig {
  EngConfig engine;
  bool walk;    /* no machine code: kernels are walked in loop form (lp_run), to find faults */
  bool apart;   /* nothing is fused: each node is a group */
  bool lists;   /* turns of loops are lists of kernels, where all of them could be one kernel */
  bool profile; /* takes times for jit_profile */
  /* To find faults: unused memory is filled with NaN between steps, and a run that takes another
   * number of bytes than jit_peak predicts is an error. */
  bool check;
  /* Machine code tests each address against its buffer before it uses it. This code is slower. The
   * emulator of a GPU ignores the flag. */
  bool addresses;
} JitConfig;

/* A Jit holds the engine and the memory of runs, which the functions of a session share and which
 * stay between calls. Throws when out of memory; starts no process or thread. */
Jit *jit_open(Mem *m, const JitConfig *c);
void jit_close(Jit *j); /* its functions stay usable, and keep it; NULL is fine */
/* Gives back memory kept between calls and the code of freed functions. Memory of a run that has
 * not ended stays. */
void jit_trim(Jit *j);
int64_t jit_kept(const Jit *j); /* bytes that jit_trim could give back */
const JitConfig *jit_config(const Jit *j);
Engine *jit_engine(Jit *j); /* NULL when kernels are walked */

/* `g` must outlive the result. `env` holds typical sizes, or is NULL: the kernels are ordered for
 * them, and other sizes work as well. Returns NULL with `e` when there is no code, or when
 * `interrupt` (may be NULL) became true (e->interrupted). Throws when out of memory. */
JitFn *jit_compile(Jit *j, const Graph *g, const int64_t *env, const Interrupt *interrupt, GErr *e);
void jit_free(JitFn *f); /* NULL is fine */
/* Has the contract of gr_run (graph/ir.h). With c->after or in anomaly mode it calls gr_run. */
bool jit_run(JitFn *f, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at);

/* Kernels of functions planned before, for other plans of the same program, in `a`. */
typedef struct Shelf Shelf;
Shelf *jit_shelf(Arena *a);
/* Makes a function without code, which is enough for jit_peak and jit_print_plan. Never NULL.
 * `shelf` (may be NULL) gives and gets kernels; the function keeps no part of it. */
JitFn *jit_plan(Jit *j, const Graph *g, const int64_t *env, Shelf *shelf);
/* Makes the code of a planned function. False with `e` (e->nomem: there is no room for it). */
bool jit_code(JitFn *f, const Interrupt *interrupt, GErr *e);
/* The kernels of f, each counted once, that are neither loaded nor installed nor in the cache, so
 * that jit_code has to generate them. */
typedef struct JitMissing {
  size_t kernels, bytes; /* bytes: of their texts */
} JitMissing;
JitMissing jit_missing(JitFn *f);
/* A lower bound of JitPeak.arena for g, in a third of the time that jit_plan and jit_peak take. */
int64_t jit_least(Jit *j, Arena *temp, const Graph *g, const int64_t *env);

/* Bytes that a run takes for these sizes. */
typedef struct JitPeak {
  int64_t arena;   /* values and panels, each rounded up to 64 */
  int64_t live;    /* most of the arena in use at once: no placement makes the arena smaller */
  int64_t panels;  /* packed operands within `live` */
  int64_t scratch; /* workspace of all threads */
  int64_t outputs; /* new tensors, without what may be written to inputs: jit_stores */
  int64_t saved;   /* of the arena, in use between the forward and the backward */
  /* descriptions of tensors, and alignment of blocks: the allocator hands out arena + scratch +
   * outputs + headers, to the byte */
  int64_t headers;
  int64_t inner; /* upper bound of the tensors and arenas of bodies: loops, branches, maps */
  bool exact;    /* false if the evaluator runs a step, since it makes its own tensors */
  bool bound;    /* no run takes more: exact, or `inner` covers all steps of the evaluator */
  bool reads;    /* it is given rows of a loop; the `again` of who made them comes to its bytes */
  int64_t again; /* bytes with which rows that leave are made again by who reads them */
} JitPeak;
/* False if the evaluator runs the whole function. Throws when out of memory. */
bool jit_peak(JitFn *f, const int64_t *env, JitPeak *out);
/* The part of JitPeak.outputs that belongs to outputs `from` and later; a tensor that several
 * outputs share counts once. Only where jit_peak returned true. */
int64_t jit_new_outputs(JitFn *f, Arena *temp, const int64_t *env, size_t from);
/* The bytes of the rows of a loop that output i stands for. */
int64_t jit_rows_bytes(JitFn *f, size_t i, const int64_t *env);
/* The most bytes of results and of dense copies of inputs alive at once. `dense` has the bytes of
 * the copy of each input, 0 = none. A result is made before the first step that writes it, and a
 * copy is freed after the last step that reads it. `alone` as in RunCtx. 0 if jit_peak returns
 * false. */
int64_t jit_tensors(JitFn *f, const int64_t *env, const int64_t *dense, const bool *alone);
/* Bytes of the new tensors for values that are written to inputs which are not alone. Adds the
 * bytes of their descriptions to *headers (may be NULL). */
int64_t jit_stores(JitFn *f, const int64_t *env, const bool *alone, int64_t *headers);
/* The memory that the values of block `id`, and its loops and branches, would need alone, from its
 * forward to the end of its backward, but for values that nodes outside of the block read. */
int64_t jit_block_bytes(JitFn *f, Arena *temp, const int64_t *env, uint32_t id);
/* A value in the arena. */
typedef struct JitLive {
  Val v; /* VAL_NONE: a panel */
  const Graph *g;
  int64_t offset, bytes;
  const Prov *prov;     /* of the node, or of the group that needs the panel */
  uint32_t first, last; /* steps in which it is alive */
} JitLive;
typedef struct JitSteps {
  uint32_t count, peak; /* peak: the step that needs most of the arena */
  uint32_t forward_end; /* JitPeak.saved is in use then; UINT32_MAX: there is no such step */
} JitSteps;
/* Visits the values in the arena at the step that needs most of it, in the order of their
 * offsets. Nothing is visited if the evaluator runs the whole function. */
JitSteps jit_at_peak(JitFn *f, Arena *temp, const int64_t *env,
                     void (*visit)(void *ud, const JitLive *l), void *ud);

typedef struct JitCount {
  int64_t runs;      /* of compiled functions */
  int64_t kernels;   /* launches of kernels */
  int64_t steps_ref; /* nodes run by the reference evaluator inside of compiled functions */
  int64_t reruns;    /* whole graphs run again by the evaluator for the message of an error */
  int64_t copied;    /* inputs made contiguous */
  int64_t plans;     /* made: with kernels, without code */
  int64_t moved;     /* bytes of offloaded values, both ways */
  /* making plans, and finding or making code; copies of offloaded values, on whatever thread, and
   * what the session spent in them */
  double plan_seconds, code_seconds, move_seconds, wait_seconds;
} JitCount;
JitCount jit_count(const Jit *j);

/* The time of one step of a compiled function, over all its runs. */
typedef struct JitTime {
  const char *function;
  const char *kind; /* of its group: "dot" */
  const char *ops;  /* of the group: "dot, add, gelu"; valid until the next visit */
  const Prov *prov; /* of the group's main node */
  double seconds;
  int64_t runs, bytes, work;
} JitTime;
/* Visits the steps of all live functions that have run; none without JitConfig.profile. */
void jit_profile(Jit *j, void (*visit)(void *ud, const JitTime *t), void *ud);

/* Prints the groups in the order in which they run, with their nodes, launches and reasons. */
void jit_print_plan(Buf *out, const JitFn *f);
void jit_print_loops(Buf *out, const JitFn *f); /* text of each kernel, in launch order */
/* Prints the groups of g before they are sorted, its plan, or its kernels (plan_show.c), for a
 * level that may differ from the machine's. Throws. */
typedef enum JitShow { JIT_SHOW_GROUPS, JIT_SHOW_PLAN, JIT_SHOW_KERNELS } JitShow;
void jit_show(Mem *m, EngLevel level, const Graph *g, JitShow what, Buf *out);
/* Prints what the code generator makes of each kernel; `what` is a CODEGEN_DUMP flag (codegen.h).
 * False with `e`. Throws when out of memory. */
bool jit_print_code(Buf *out, const JitFn *f, unsigned what, Err *e);

#endif
