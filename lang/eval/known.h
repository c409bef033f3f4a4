/* Arithmetic of numbers that are known. */
#ifndef CKL_LANG_EVAL_KNOWN_H
#define CKL_LANG_EVAL_KNOWN_H

#include "lang/lang.h"

/* a op b of two ints; an error, if it does not fit 64 bits or b is 0. */
int64_t known_int(Session *s, AstOp op, int64_t a, int64_t b, Span at);
static inline bool known_compares(AstOp op) {
  return op >= AST_LT && op <= AST_NE;
}
bool known_compare(AstOp op, int64_t a, int64_t b);
/* An int against a float that is not NaN, exactly: -1, 0, 1. */
int known_order(int64_t a, double b);
/* *r = a op b, if both are ints or floats. False: they are not, or the result is an error. */
bool known_op(AstOp op, Value a, Value b, Value *r);
/* The value of e, if it is made of literals, locals and operators, and all
 * values are numbers or bools. */
bool known_value(const Session *s, const Node *e, Value *v);

#endif
