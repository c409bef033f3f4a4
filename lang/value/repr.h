/* Values as program text that reads back. */
#ifndef CKL_LANG_VALUE_REPR_H
#define CKL_LANG_VALUE_REPR_H

#include "lang/lang.h"

/* A literal of the text, with its quotes: escapes where they are needed, braces doubled. */
void repr_text(Buf *out, const StrObj *t);
/* An expression whose value is v, with dtypes and structure. False: v, or a part of it, is known
 * only at run time. An error for what no text stands for: models, functions, sequences. */
bool repr_value(Session *s, Buf *out, Value v, Span at);

#endif
