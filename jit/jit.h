/* Compiled graphs: the same contract as gr_run, by machine code.
 *
 * jit_compile cuts the graph into kernels (fuse, lower) and asks the engine for their code; jit_run binds
 * sizes (places in the arena are worked out once per set of sizes), runs the launch list and gives new
 * tensors. The bits are those of gr_run (rule 103). A kernel that reports a failure (an index out of
 * range) makes jit_run run the graph again on the reference evaluator, which finds the first failure in
 * row-major order and words it.
 */
#ifndef CKL_JIT_JIT_H
#define CKL_JIT_JIT_H

#include "graph/ir.h"
#include "jit/engine.h"

typedef struct JitFn JitFn;

/* `g` must outlive the result. NULL with `e` when code could not be had; throws when out of memory. */
JitFn *jit_compile(Engine *eng, Mem *m, const Graph *g, GErr *e);
void jit_free(JitFn *f);
/* As gr_run (graph/ir.h). */
bool jit_run(JitFn *f, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at);

/* Exact bytes for these sizes, 64-byte rounded: the arena with pack panels, and scratch of all threads. */
typedef struct JitPeak {
  int64_t arena, scratch, outputs;
} JitPeak;
bool jit_peak(JitFn *f, const int64_t *env, JitPeak *out);

void jit_print_plan(Buf *out, const JitFn *f);  /* groups, launches, reasons */
void jit_print_loops(Buf *out, const JitFn *f); /* text of each kernel, in launch order */

#endif
