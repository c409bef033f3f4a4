/* The text of `ckl help NAME`. */
#ifndef CKL_LANG_NAMES_HELP_H
#define CKL_LANG_NAMES_HELP_H

#include "lang/lang.h"
#include "parser/ast.h"

typedef struct Keyword { /* a word of lang/names/words.def */
  const char *name, *form, *section, *doc;
} Keyword;
extern const Keyword keyword_table[];
extern const size_t keyword_count;

/* Prints help on all that has this name: an error code, a word, a builtin, a declaration of the
 * program, a module of the library or a declaration in one. False: nothing has it. */
bool help_print(Session *s, Buf *b, const char *topic);

typedef struct Declaration { /* a function, model or type */
  Name name;
  const char *head; /* in the text of its file: all but the body */
  size_t size;
  const char *doc; /* its comment, or NULL */
} Declaration;
/* False: the node is none of these. */
bool help_declaration(Session *s, const Node *n, Declaration *d);

#endif
