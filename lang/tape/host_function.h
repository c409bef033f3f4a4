/* Functions of the host that programs call: ckl_define. */
#ifndef CKL_LANG_TAPE_HOST_FUNCTION_H
#define CKL_LANG_TAPE_HOST_FUNCTION_H

#include "ckl.h"
#include "graph/run.h"
#include "lang/lang.h"

/* Declares the function and keeps it for all programs of the session. */
void host_define(Session *s, const char *declaration, ckl_function f, ckl_function gradient,
                 void *ud);
void host_declare_all(Session *s);                  /* once the prelude is there */
void host_functions_free(Session *s);               /* when the session ends */
ckl_status host_fails(Session *s, const char *why); /* ckl_fail */
/* Runs a `call` node. */
bool host_function_run(Session *s, const Graph *g, uint32_t node, Tensor **in, Tensor **out,
                       GErr *e);

#endif
