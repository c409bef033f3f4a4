/* Numbers, bools and texts out of values, where the evaluator needs one. */
#ifndef CKL_LANG_EVAL_WANT_H
#define CKL_LANG_EVAL_WANT_H

#include "lang/lang.h"

/* The value of an int number of code that depends on constants only, as the counter of an unrolled
 * loop. False: it depends on more, or is none. */
bool want_known(const Session *s, Value v, int64_t *out);
/* The same for a bool. */
bool want_known_bool(const Session *s, Value v, int64_t *out);
/* a constant int; a size in code becomes a constant of the signature */
int64_t want_int(Session *s, Value v, Span at, const char *what);
double want_float(Session *s, Value v, Span at, const char *what);
bool want_bool(Session *s, Value v, Span at, const char *what); /* static bool */
/* Fails: `by`, a `for` or a comprehension, cannot go through `it`. */
_Noreturn void want_elements(Session *s, Value it, Span at, const char *by);
const char *want_str(Session *s, Value v, Span at, const char *what);

#endif
