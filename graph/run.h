/* The reference evaluator of graphs, over runtime/reference/ref.h. */
#ifndef CKL_GRAPH_RUN_H
#define CKL_GRAPH_RUN_H

#include "graph/ir.h"
#include "runtime/pool.h"

/* A region that runs after the run of its graph has ended, too. */
typedef struct RunCtx RunCtx;
typedef struct KeptBody {
  void *ud;
  bool (*run)(void *ud, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at);
  /* Runs `n` turns of the loop whose body it is, from number `first` on. `in` as the body takes
   * them before the first one, of which the number is not read. `out` (as the body has outputs)
   * gets references: what is carried behind the last turn, and of the outputs that are made again
   * (AT_AGAIN), if `rows`, the rows of all turns along a new first axis. What is in `out` before is
   * memory that only the caller holds, which may be taken for them, or stays. 1; 0: they have to
   * run one by one; -1 with `e`. NULL: there is no such way. */
  int (*turns)(void *ud, RunCtx *c, Tensor *const *in, int64_t first, int64_t n, bool rows,
               Tensor **out, GErr *e, Prov *at);
  void (*drop)(void *ud); /* gives ud back; may be NULL */
} KeptBody;

/* A region of a loop by the evaluator, as long as the graph is there. */
KeptBody gr_kept(const Graph *region);

struct RunCtx {
  Mem *mem;
  const Interrupt *interrupt; /* polled between nodes and inside long kernels; may be NULL */
  const int64_t *env;         /* value of every symbol of g->dims */
  /* effects: print and host calls; NULL = an error when one is met */
  bool (*effect)(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                 GErr *e);
  void *ud;
  /* called after each node when set: profiles, counters */
  bool (*after)(void *ud, const Graph *g, uint32_t node, Tensor **out, int n, GErr *e);
  /* runs a region of a loop, branch or map; NULL = the evaluator does. `owned` as below. */
  bool (*body)(void *ud, const Graph *region, Tensor *const *in, Tensor **owned, Tensor **out,
               GErr *e, Prov *at);
  void *body_ud;
  /* What `body` runs a region by, to keep; NULL = the evaluator, as long as the graph is there. */
  KeptBody (*keep_body)(void *ud, const Graph *region);
  /* called before each turn of a `loop` when set, with its place; may throw */
  void (*turn)(void *ud, Span at);
  void *turn_ud;
  bool anomaly; /* watches all nodes, not only those marked */
  uint64_t nodes_run;
  const char *const *operand_text; /* as in Graph, for gr_run_op */
  int operand_text_count;
  /* Per input, for gr_run and jit_run: a reference that the run may drop after the last read of the
   * input; it sets the entry to NULL then. An entry NULL: the input is borrowed. References that
   * the run leaves, however it ends, belong to the caller. NULL: all inputs are borrowed. */
  Tensor **owned;
  /* Per input, for jit_run: nobody holds its memory but the place in the program that gets what is
   * written to the input (Graph.writes), so the run may write it there, as its last act: the output
   * is that tensor then. NULL: no input is. */
  const bool *alone;
  /* jit_run calls `commit` before the first such write, with all outputs; it takes them over, and
   * may throw. After it the run ends well, interrupted or not. */
  void (*commit)(void *ud, Tensor **out);
  void *commit_ud;
  Pool *pool; /* threads of kernels of the reference evaluator; NULL: the caller alone */
};
/* Tests g's size checks, then runs it. `in` are borrowed; `out` (output_count) get new references.
 * Dead values are released at their last use. On failure `out` gets nothing; e->operand is the node
 * index and `*at` (may be NULL) its provenance. */
bool gr_run(const Graph *g, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at);
/* The first half of gr_run: gr_check_sizes tests the size checks of g and its regions,
 * gr_check_inputs the types of the inputs. */
bool gr_check_sizes(const Graph *g, const int64_t *env, GErr *e, Prov *at);
bool gr_check_inputs(const Graph *g, const int64_t *env, Tensor *const *in, GErr *e, Prov *at);
/* Runs one node of g on tensors (NULL for tokens) for which the checks above hold. `out` gets
 * result_count new references, which may be views of `in` or the same tensors. */
bool gr_run_node(const Graph *g, uint32_t node, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
                 Prov *at);

#endif
