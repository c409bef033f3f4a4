/* Running programs in a session: for api.c. */
#ifndef CKL_LANG_API_SESSION_H
#define CKL_LANG_API_SESSION_H

#include "lang/lang.h"

/* Reserves room for diagnostics, once per session: they must work when memory runs out. */
bool session_init(Session *s);
bool session_start(Session *s); /* names, prelude, an empty top level; false when out of memory */
/* Drops all that runs have left, except variables and declarations: hooks, compiled and captured
 * code, places of warnings, counts. */
void session_forget(Session *s);
void session_stop(Session *s); /* frees all but the Session and its hook */
/* The session uses the C stack of the caller until stack_leave, which gets the result. */
Stack session_stack(Session *s);
void session_run_statement(Session *s, Node *st, Value *out);
void session_run_module(Session *s, Module *m);

#endif
