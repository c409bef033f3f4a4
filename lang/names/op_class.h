/* The words of clauses for operations. */
#ifndef CKL_LANG_NAMES_OP_CLASS_H
#define CKL_LANG_NAMES_OP_CLASS_H

#include "graph/structure.h"

/* The op class of an operation, for policies and counts; -1 for views, moves, effects and nodes
 * with regions. An operation has one class at most; ATTENTION is given by the place of a node, not
 * by its operation. */
int clause_opclass_of(OpCode op);

#endif
