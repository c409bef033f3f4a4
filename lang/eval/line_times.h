/* Times of the lines of script, for ckl_profile. */
#ifndef CKL_LANG_EVAL_LINE_TIMES_H
#define CKL_LANG_EVAL_LINE_TIMES_H

#include "lang/lang.h"

/* A statement of script begins, and ends; what runs in between counts for its line, unless it is a
 * statement of the program itself. */
size_t line_times_enter(Session *s, Span at);
void line_times_leave(Session *s, size_t before);
void line_times_print(Session *s, Buf *out);

#endif
