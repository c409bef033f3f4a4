/* Compiled graphs: the same contract as gr_run, by machine code.
 *
 * jit_compile cuts the graph into kernels (fuse, lower) and asks the engine for their code; jit_run
 * binds sizes (places in the arena are worked out once per set of sizes), runs the launch list and
 * gives new tensors. The bits are those of gr_run (rule 103). A kernel that reports a failure (an
 * index out of range) makes jit_run run the graph again on the reference evaluator, which finds the
 * first failure in row-major order and words it.
 */
#ifndef CKL_JIT_PLAN_JIT_H
#define CKL_JIT_PLAN_JIT_H

#include "graph/ir.h"
#include "jit/engine/engine.h"

typedef struct Jit Jit;
typedef struct JitFn JitFn;

typedef struct JitConfig {
  EngConfig engine;
  bool walk;    /* no machine code: kernels are walked in loop form (lp_run), to find faults */
  bool apart;   /* every node by itself: nothing is fused */
  bool profile; /* times are taken for jit_profile */
  /* To find faults: memory that holds nothing is filled with NaN between steps, and a run that
   * takes another number of bytes than jit_peak says is an error. */
  bool check;
  /* And every address that machine code computes is tested against its buffer: other, slower code.
   * Not in the emulator of a GPU. */
  bool addresses;
} JitConfig;

/* What functions of a session share: the engine and the memory of their runs, kept between calls.
 * Throws when out of memory; starts no process or thread. */
Jit *jit_open(Mem *m, const JitConfig *c);
void jit_close(Jit *j); /* its functions stay usable, and keep it; NULL is fine */
/* Gives back memory kept between calls, but for that of a run that goes on, and code of functions
 * that are gone. */
void jit_trim(Jit *j);
int64_t jit_kept(const Jit *j); /* its bytes: blocks, workspace and such code */
const JitConfig *jit_config(const Jit *j);
Engine *jit_engine(Jit *j); /* NULL when kernels are walked */

/* `g` must outlive the result. `env`: sizes for which the order of kernels is good (others work as
 * well), or NULL. NULL with `e` when code could not be had, or `interrupt` (may be
 * NULL) became true (e->interrupted); throws when out of memory. */
JitFn *jit_compile(Jit *j, const Graph *g, const int64_t *env, const Interrupt *interrupt, GErr *e);
void jit_free(JitFn *f); /* NULL is fine */
/* As gr_run (graph/ir.h). With c->after or anomaly mode it is gr_run. */
bool jit_run(JitFn *f, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at);

/* A function before its code is made: enough for jit_peak and jit_print_plan. Never NULL. */
JitFn *jit_plan(Jit *j, const Graph *g, const int64_t *env);
/* Its code, as jit_compile makes it; false with `e` (e->nomem: it has no room). */
bool jit_code(JitFn *f, const Interrupt *interrupt, GErr *e);
/* Distinct kernels whose code has to be generated for it: none of this machine has it. */
typedef struct JitMissing {
  size_t kernels, bytes; /* bytes: of their texts */
} JitMissing;
JitMissing jit_missing(JitFn *f);
/* A lower bound of JitPeak.arena for g, in a third of the time that jit_plan and jit_peak take. */
int64_t jit_least(Jit *j, Arena *temp, const Graph *g, const int64_t *env);

/* Bytes that a run takes for these sizes. */
typedef struct JitPeak {
  int64_t arena;   /* values and panels, each rounded up to 64 */
  int64_t live;    /* of it in use at once, at most: no placing makes the arena smaller */
  int64_t panels;  /* of that for packed operands */
  int64_t scratch; /* workspace of all threads */
  int64_t outputs; /* new tensors */
  int64_t saved;   /* of the arena: what waits for the backward when the forward is done */
  /* descriptions of tensors, and what aligns the blocks: arena + scratch + outputs + headers is
   * what the allocator is asked for, to the byte */
  int64_t headers;
  int64_t inner; /* loops, branches and maps: tensors and arenas of their bodies, at most */
  bool exact;    /* false where the evaluator runs a step: it makes tensors of its own */
  bool bound;    /* no run takes more: exact, or all such steps are in `inner` */
} JitPeak;
/* False where the whole function is the evaluator's. Throws when out of memory. */
bool jit_peak(JitFn *f, const int64_t *env, JitPeak *out);
/* Of JitPeak.outputs what outputs `from` and later hold, a tensor that several show once. Where
 * jit_peak is true. */
int64_t jit_new_outputs(JitFn *f, Arena *temp, const int64_t *env, size_t from);
/* Bytes of results and of dense copies of inputs (`dense`: per input, 0 = none) that are alive at
 * once: results come before their first step, copies go after their last. 0 where jit_peak is
 * false. */
int64_t jit_tensors(JitFn *f, const int64_t *env, const int64_t *dense);
/* The arena that the values of block `id` would need by themselves, from its forward to the end of
 * its backward; what nodes outside of it read is not counted. */
int64_t jit_block_bytes(JitFn *f, Arena *temp, const int64_t *env, uint32_t id);
/* A value in the arena. */
typedef struct JitLive {
  Val v; /* VAL_NONE: a panel */
  const Graph *g;
  int64_t offset, bytes;
  const Prov *prov; /* of the node, or of the group that needs the panel */
} JitLive;
/* Visits the values in the arena at the step that needs most of it, in the order of their
 * offsets. */
void jit_at_peak(JitFn *f, Arena *temp, const int64_t *env,
                 void (*visit)(void *ud, const JitLive *l), void *ud);

typedef struct JitCount {
  int64_t runs;      /* of compiled functions */
  int64_t kernels;   /* launches of kernels */
  int64_t steps_ref; /* nodes run by the reference evaluator inside of compiled functions */
  int64_t reruns;    /* whole graphs run again by it for the message of an error */
  int64_t copied;    /* inputs made contiguous */
  int64_t plans;     /* made: with kernels, without code */
  /* making plans, and finding or making code */
  double plan_seconds, code_seconds;
} JitCount;
JitCount jit_count(const Jit *j);

/* What one step of a compiled function took so far. */
typedef struct JitTime {
  const char *function;
  const char *kind; /* of its group: "dot" */
  const char *ops;  /* of the group: "dot, add, gelu"; until the next call */
  const Prov *prov; /* of the group's main node */
  double seconds;
  int64_t runs, bytes, work;
} JitTime;
/* Every step of every function that is alive and has run; nothing without JitConfig.profile. */
void jit_profile(Jit *j, void (*visit)(void *ud, const JitTime *t), void *ud);

/* Groups in the order in which they run, with their nodes, launches and reasons. */
void jit_print_plan(Buf *out, const JitFn *f);
void jit_print_loops(Buf *out, const JitFn *f); /* text of each kernel, in launch order */
/* What the passes on the way to kernels make of g (plan_show.c), for a level that need not be the
 * machine's: groups before they are sorted, the plan, kernels. Throws. */
typedef enum JitShow { JIT_SHOW_GROUPS, JIT_SHOW_PLAN, JIT_SHOW_KERNELS } JitShow;
void jit_show(Mem *m, EngLevel level, const Graph *g, JitShow what, Buf *out);
/* What the code generator makes of each, as text: `what` is a CODEGEN_DUMP flag (codegen.h).
 * False with `e`. Throws when out of memory. */
bool jit_print_code(Buf *out, const JitFn *f, unsigned what, Err *e);

#endif
