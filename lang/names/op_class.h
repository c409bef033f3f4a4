/* The words of clauses for operations. */
#ifndef CKL_LANG_NAMES_OP_CLASS_H
#define CKL_LANG_NAMES_OP_CLASS_H

#include "graph/opcode.h"

/* The op class of an operation, for policies and counts; -1 for views, moves, effects and nodes
 * with regions. An operation has one class at most; ATTENTION belongs to a place, not to it. */
int clause_opclass_of(OpCode op);

#endif
