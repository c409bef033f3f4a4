/* The text of `ckl help NAME`. */
#ifndef CKL_LANG_NAMES_HELP_H
#define CKL_LANG_NAMES_HELP_H

#include "lang/lang.h"

typedef struct Keyword { /* a word of lang/names/words.def */
  const char *name, *form, *section, *doc;
} Keyword;
extern const Keyword keyword_table[];
extern const size_t keyword_count;

/* Prints help on all that has this name: an error code, a word, a builtin, a declaration of the
 * program, a module of the library or a declaration in one. False: nothing has it. */
bool help_print(Session *s, Buf *b, const char *topic);

#endif
