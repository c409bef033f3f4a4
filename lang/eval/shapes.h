/* Operations that only move elements, and products of matrices. */
#ifndef CKL_LANG_EVAL_SHAPES_H
#define CKL_LANG_EVAL_SHAPES_H

#include "lang/lang.h"

Value op_iota_on(Session *s, Dim n, DType dt, int dev, Span at);
Value op_iota(Session *s, Dim n, DType dt, Span at); /* 0, 1, .. n - 1 */
Value op_reshape(Session *s, Value x, int rank, const Dim *d, Span at);
Value op_transpose(Session *s, Value x, const int64_t *perm, Span at);
Value op_matmul(Session *s, Value x, Value y, Span at, Span left, Span right);
Value op_stack(Session *s, size_t n, const Value *items, int axis, Span at);
Value op_concat(Session *s, size_t n, const Value *items, int axis, Span at);

#endif
