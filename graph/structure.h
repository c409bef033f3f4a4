/* Operations by number: those of graph/structure.def, and the type of all. What names operations of
 * arithmetic, too, includes opcode.h. */
#ifndef CKL_GRAPH_STRUCTURE_H
#define CKL_GRAPH_STRUCTURE_H

#include <stdint.h>

typedef uint16_t OpCode; /* an OP_ name */

enum {
#define OP(NAME, ...) OP_##NAME,
#include "graph/structure_rows.def"
#undef OP
  STRUCTURE_COUNT
};

#endif
