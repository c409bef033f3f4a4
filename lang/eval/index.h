/* Indexing and indexed update (rules 32 to 34). */
#ifndef CKL_LANG_EVAL_INDEX_H
#define CKL_LANG_EVAL_INDEX_H

#include "lang/lang.h"

/* x[i] of the leading axis, i in range */
Value op_element(Session *s, Value x, int64_t i, Span at);
/* An index (N_INDEX) whose expressions were evaluated, from left to right. */
typedef struct IndexPart {
  Node *node;         /* an expression, N_SLICE or N_ELLIPSIS */
  Value v;            /* of an expression */
  Value lo, hi, step; /* of a slice; unit = absent */
} IndexPart;
typedef struct Index {
  Node *node;
  size_t count;
  IndexPart *part;
} Index;
/* Whether an index or bound counts from the end: a literal with a minus (rule 32). */
bool index_from_end(const Node *n);
Index index_eval(Session *s, Node *index);
Value op_index(Session *s, Value x, const Index *index);
Value op_index_put(Session *s, Value x, const Index *index, AstOp op, Value v, Span at);
/* The key that the index is, of a dict. */
Value index_key(Session *s, const Index *index);
/* The number of the item that the index selects, of `count` items. `of` is "a list" or "a tuple",
 * for messages. */
size_t index_item(Session *s, const Index *index, size_t count, const char *of);

#endif
