/* The operations by number: a row of graph/ops.def each. A new row recompiles every file that
 * includes this one; a file that names operations of structure.h alone includes that one. */
#ifndef CKL_GRAPH_OPCODE_H
#define CKL_GRAPH_OPCODE_H

#include "graph/structure.h"

enum {
  OP_STRUCTURE_LAST = STRUCTURE_COUNT - 1,
#define WITHOUT_STRUCTURE
#define OP(NAME, ...) OP_##NAME,
#include "graph/ops_rows.def"
#undef OP
  OP_COUNT
};

#endif
