/* Arithmetic of int numbers that code knows only when it runs: i64 of rank 0. The call fails if a
 * result does not fit (rules 12, 16). */
#ifndef CKL_LANG_EVAL_NUMBER_H
#define CKL_LANG_EVAL_NUMBER_H

#include "graph/opcode.h"
#include "lang/lang.h"

Value number_node(Session *s, int64_t i); /* a run-time int of code with a known value */
Value number_run_time(Session *s, AstOp op, Value x, Value y, Span at);
Value number_extreme(Session *s, OpCode op, Value x, Value y, Span at); /* op: OP_MIN or OP_MAX */
Value number_magnitude(Session *s, Value x, Span at);
Value number_within(Session *s, Value x, DType dt, Span at); /* x, tested to fit dt */

#endif
