/* Progress bars. */
#ifndef CKL_LANG_VALUE_BARS_H
#define CKL_LANG_VALUE_BARS_H

#include "lang/lang.h"

/* The state of one progress; its owner keeps it where it is, until bar_drop. */
typedef struct Bar {
  struct Bar *next; /* of the bars on the terminal, in the order in which they began */
  const char *label;
  int64_t passed, n;       /* n: < 0 where it is not known */
  double started, written; /* written: on a pipe */
  bool open, closed;       /* on the terminal; its last line is written */
} Bar;

void bar_start(Bar *b, const char *label);
void bar_show(Session *s, Bar *b); /* as far as it has come, unless that was written just now */
void bar_end(Session *s, Bar *b);  /* its last line */
void bar_drop(Session *s, Bar *b); /* it may not have come to its end */
/* Before other text is written: takes the bars off the terminal. The next bar_show puts them
 * back. */
void bars_hide(Session *s);

#endif
