/* Tensor operations on Values, in script or code, and conversion of values to operands. op_run.h
 * has the functions that take an OpCode. */
#ifndef CKL_LANG_EVAL_OPS_H
#define CKL_LANG_EVAL_OPS_H

#include "lang/lang.h"

Value op_binary(Session *s, AstOp op, Value x, Value y, Span at, Span left, Span right);
/* In code: the call fails with this error unless a and b are equal. */
void op_check_sizes(Session *s, Dim a, Dim b, Span at, const char *text, const char *help);
_Noreturn void op_mixed_dtypes(Session *s, const char *op, const Type *t, Span at, Span left,
                               Span right);
Value op_where(Session *s, Value c, Value x, Value y, Span at);
Value op_cast(Session *s, Value x, DType dt, Span at); /* leafwise on trees */
Value op_broadcast(Session *s, Value x, int rank, const Dim *d, Span at);
/* Like op_broadcast, but a rank-0 value on the CPU also moves to device `dev` (rule 94). */
Value op_broadcast_on(Session *s, Value x, int rank, const Dim *d, int dev, Span at);
/* A tensor filled with x, with the shape, dtype and device of `like`. */
Value op_fill_like(Session *s, Value like, double x, Span at);

/* Type of a tensor Value or number (weak: f64/i64 rank 0); dims are of op_dims_of(s). */
Type op_type_of(Session *s, Value x);
/* Converts a tensor-like value to a tensor: numbers get the dtype `like` (DT_COUNT: f32 or i64),
 * weak lists are stacked. */
Value op_as_tensor(Session *s, Value x, DType like, Span at);
/* Reports the errors of converting number x to dt (rule 12). */
void number_meets(Session *s, Value x, DType dt, Span at);
/* The tensor of a V_TENSOR or V_PARAM, borrowed; an error for other values. */
Tensor *op_tensor_of(Session *s, Value x, Span at);
DimTab *op_dims_of(Session *s);
Value op_dim_node(Session *s, Dim d); /* a size as a run-time number of code */

#endif
