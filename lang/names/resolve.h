/* Names, arguments and places of a module, before anything runs. For check.c. */
#ifndef CKL_LANG_NAMES_RESOLVE_H
#define CKL_LANG_NAMES_RESOLVE_H

#include "lang/lang.h"

/* Node.flags of a top-level item or a member: an error was filed about it. */
enum { ITEM_BAD = 1 };

/* Walks the tree of a declared module; files what is wrong and marks where. False when an error
 * was filed. */
bool resolve_module(Session *s, Module *m);
/* The same of one statement that is about to run at the prompt, where all that stands before it has
 * run. `shown`: its value will be. */
bool resolve_statement(Session *s, Module *m, Node *st, bool shown);

#endif
