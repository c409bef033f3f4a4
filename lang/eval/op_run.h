/* Tensor operations on Values by their code, in script or code. */
#ifndef CKL_LANG_EVAL_OP_RUN_H
#define CKL_LANG_EVAL_OP_RUN_H

#include "graph/structure.h"
#include "lang/lang.h"
#include "runtime/domain.h"

Value op_run(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs, Span at);
/* ops with several results */
void op_run_multi(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                  Span at, int nout, Value *out);
Value op_unary(Session *s, OpCode op, Value x, Span at); /* of a number it is a number */
Value op_broadcast_binary(Session *s, OpCode op, Value x, Value y, Span at, Span left, Span right);
Value op_reduce(Session *s, OpCode op, Value x, int n, const int64_t *axes, bool keep, Span at);
Value builtin_number_unary(Session *s, OpCode op, Value x, Span at);
typedef OpDomain DTypeClass;
DTypeClass builtin_dom_class(OpCode op);

#endif
