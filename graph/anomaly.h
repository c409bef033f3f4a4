/* Anomaly mode: anomaly.c. */
#ifndef CKL_GRAPH_ANOMALY_H
#define CKL_GRAPH_ANOMALY_H

#include "graph/ir.h"
#include "graph/opcode.h"

/* Reports an op whose result has NaN or inf and none of whose operands has it. If an operand has
 * NaN, inf is not reported either. */
bool anomaly_made(OpCode op, bool backward, Tensor *const *in, int nin, Tensor *const *out,
                  int nout, GErr *e);

#endif
