/* Trees of values, leaf by leaf (rules 64 to 66). */
#ifndef CKL_LANG_VALUE_TREE_H
#define CKL_LANG_VALUE_TREE_H

#include "lang/lang.h"

typedef Value (*TreeFn)(Session *s, void *ud, size_t n, Value *leaves, const char *path);
/* Calls f for the leaves at each place of n trees of one structure; the result has it too. */
Value tree_map(Session *s, size_t n, Value *trees, TreeFn f, void *ud, Span at);
bool tree_text(Value v, const char *path); /* a text inside of a tree, which stays as it is */
bool tree_known(Session *s, Value v);      /* `check`: no leaf is V_UNKNOWN */

Value tree_arith(Session *s, AstOp op, Value a, Value b, Span at, Span left, Span right);

#endif
