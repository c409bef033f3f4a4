/* What a value must be where a number, a bool or a text is needed. */
#ifndef CKL_LANG_EVAL_WANT_H
#define CKL_LANG_EVAL_WANT_H

#include "lang/lang.h"

/* a constant int; in code asks for specialisation */
int64_t want_int(Session *s, Value v, Span at, const char *what);
double want_float(Session *s, Value v, Span at, const char *what);
bool want_bool(Session *s, Value v, Span at, const char *what); /* static bool */
const char *want_str(Session *s, Value v, Span at, const char *what);

#endif
