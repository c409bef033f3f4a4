/* The operations by number: a row of graph/ops.def each. A new row recompiles every file that
 * includes this one, so a header includes it only if it names an OpCode. */
#ifndef CKL_GRAPH_OPCODE_H
#define CKL_GRAPH_OPCODE_H

typedef enum OpCode {
#define OP(NAME, ...) OP_##NAME,
#include "graph/ops_rows.def"
#undef OP
  OP_COUNT
} OpCode;

#endif
