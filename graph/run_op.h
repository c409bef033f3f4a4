/* One operation on tensors by the reference evaluator. */
#ifndef CKL_GRAPH_RUN_OP_H
#define CKL_GRAPH_RUN_OP_H

#include "graph/run.h"
#include "graph/structure.h"

/* Runs one op on tensors, for the interpreter. Attributes hold constant dims of `dims`. */
bool gr_run_op(RunCtx *c, const DimTab *dims, OpCode op, const Attr *attrs, int nattrs,
               Tensor *const *in, int nin, Tensor **out, int nout, GErr *e);

#endif
