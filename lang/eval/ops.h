/* Tensor operations on Values, in script or code, and values as their operands; op_run.h has those
 * that are named by the code of the operation. */
#ifndef CKL_LANG_EVAL_OPS_H
#define CKL_LANG_EVAL_OPS_H

#include "lang/lang.h"

Value op_binary(Session *s, AstOp op, Value x, Value y, Span at, Span left, Span right);
/* Throws where dims of operands differ, tests at run time what only sizes can tell. */
void op_check_sizes(Session *s, Dim a, Dim b, Span at, const char *text, const char *help);
_Noreturn void op_mixed_dtypes(Session *s, const char *op, const Type *t, Span at, Span left,
                               Span right);
Value op_where(Session *s, Value c, Value x, Value y, Span at);
Value op_cast(Session *s, Value x, DType dt, Span at); /* leafwise on trees */
Value op_broadcast(Session *s, Value x, int rank, const Dim *d, Span at);
/* The same; a rank-0 host value moves to device `dev` on the way (rule 94). */
Value op_broadcast_on(Session *s, Value x, int rank, const Dim *d, int dev, Span at);
/* all x, with the shape, dtype and device of like */
Value op_fill_like(Session *s, Value like, double x, Span at);

/* Type of a tensor Value or number (weak: f64/i64 rank 0); dims are of op_dims_of(s). */
Type op_type_of(Session *s, Value x);
/* Anything tensor-like as a tensor: numbers take `like` (f32/i64 for DT_COUNT), weak lists
 * stack. */
Value op_as_tensor(Session *s, Value x, DType like, Span at);
/* The errors of a number that has to become a dt: rule 12. */
void number_meets(Session *s, Value x, DType dt, Span at);
/* A concrete tensor (script); waits for nothing. Borrowed. */
Tensor *op_tensor_of(Session *s, Value x, Span at);
DimTab *op_dims_of(Session *s);
Value op_dim_node(Session *s, Dim d); /* a size as a run-time number of code */
/* a op b; it throws where that does not fit, or divides by zero */
int64_t op_int(Session *s, AstOp op, int64_t a, int64_t b, Span at);

#endif
