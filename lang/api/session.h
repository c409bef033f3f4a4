/* Running programs in a session: for api.c. */
#ifndef CKL_LANG_API_SESSION_H
#define CKL_LANG_API_SESSION_H

#include "lang/lang.h"

/* Room for diagnostics, once per session: it must be there when memory is not. */
bool session_init(Session *s);
bool session_start(Session *s); /* names, prelude, an empty top level; false when out of memory */
/* Drops what running has left beside variables and declarations: hooks, compiled and captured code,
 * what was warned of, counts. */
void session_forget(Session *s);
void session_stop(Session *s); /* gives back all of that */
/* The C stack of the caller is this session's until it leaves; what to hand to stack_leave. */
Stack session_stack(Session *s);
void session_run_statement(Session *s, Node *st, Value *out);
void session_run_module(Session *s, Module *m);

#endif
