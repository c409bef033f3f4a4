/* Trees of values, leaf by leaf (rules 64 to 66). */
#ifndef CKL_LANG_VALUE_TREE_H
#define CKL_LANG_VALUE_TREE_H

#include "lang/lang.h"

typedef Value (*TreeFn)(Session *s, void *ud, size_t n, Value *leaves, const char *path);
/* Calls f for the leaves at each place of n trees of one structure; the result has it too. */
Value tree_map(Session *s, size_t n, Value *trees, TreeFn f, void *ud, Span at);
/* What is a part of the structure inside of a tree, and stays as it is: a text, function, (). */
bool tree_structure(Value v, const char *path);
/* What a gradient by a tree gives on as it is: `none`, a bool inside, what tree_structure names. */
bool tree_undifferentiated(Value v, const char *path);
bool tree_known(Session *s, Value v); /* `check`: no leaf is V_UNKNOWN */

Value tree_arith(Session *s, AstOp op, Value a, Value b, Span at, Span left, Span right);

#endif
