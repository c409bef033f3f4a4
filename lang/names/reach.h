/* What a test reads: the top-level variables of its file. */
#ifndef CKL_LANG_NAMES_REACH_H
#define CKL_LANG_NAMES_REACH_H

#include "lang/names/module.h"

/* Of each item of the file: is it a `let` or `var` that n can read? On the scratch arena. */
bool *reach_statements(Session *s, Module *m, Node *n);

/* Files an error if a statement of the top level, which no test runs, assigns the variable. */
bool reach_refused(Session *s, const Module *m, Name name, Span at);

#endif
