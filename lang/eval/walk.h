/* The elements of a value, one by one, in script and in code. */
#ifndef CKL_LANG_EVAL_WALK_H
#define CKL_LANG_EVAL_WALK_H

#include "lang/eval/seq.h"

typedef struct Walk {
  Session *s;
  Value of;
  Span at;
  SeqIter *it; /* of script, unless the elements are parts */
  size_t n, k;
} Walk;

/* Of lists, tuples and dicts the parts (the pairs of a dict), of texts the code points, of all else
 * what a `for` goes through. In code their number must be known. */
Walk walk_start(Session *s, Value v, Span at);
bool walk_next(Walk *w, Value *v);
/* All of them, in scratch memory; the values are on the pool. */
Value *walk_all(Session *s, Value v, Span at, size_t *n);
/* All of them as one list; weak, if they are numbers. */
Value walk_list(Session *s, Value v, Span at);

#endif
