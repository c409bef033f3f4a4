/* Which operations are lowered alike. */
#ifndef CKL_JIT_LOWER_LOWER_OP_H
#define CKL_JIT_LOWER_LOWER_OP_H

#include <stdbool.h>

#include "graph/structure.h"

bool low_elementwise(OpCode op); /* element by element, by lower_elem.c */
bool low_is_fold(OpCode op);     /* a reduction whose partial results combine: lower_reduce.c */

#endif
