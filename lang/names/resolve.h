/* Names, arguments and places of a module, before anything runs. For check.c. */
#ifndef CKL_LANG_NAMES_RESOLVE_H
#define CKL_LANG_NAMES_RESOLVE_H

#include "lang/lang.h"

/* Node.flags of a top-level item or a member: an error was filed about it. */
enum { ITEM_BAD = 1 };

/* Walks the tree of a declared module, files its errors and marks the items that have one. False
 * when an error was filed. */
bool resolve_module(Session *s, Module *m);
/* As resolve_module, for one statement that is about to run at the prompt; all statements before it
 * have run. `shown`: its value will be shown. */
bool resolve_statement(Session *s, Module *m, Node *st, bool shown);

#endif
