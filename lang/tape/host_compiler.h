/* A compiler of the host for captured backwards: ckl_set_compiler. */
#ifndef CKL_LANG_TAPE_HOST_COMPILER_H
#define CKL_LANG_TAPE_HOST_COMPILER_H

#include "ckl.h"
#include "graph/run.h"
#include "lang/compile/tiering.h"

/* The result of the host's compiler for one captured backward. */
typedef struct Backend Backend;
/* Asks the compiler for code of g; NULL: there is no compiler, or it leaves g to ckl. `native`:
 * where ckl's own code of g goes. `sizes`: of the tape at hand. `acts`: g calls hooks or prints.
 * Throws the host's error at `at`, the `grad`. */
Backend *backend_new(Session *s, const Graph *g, Native **native, const int64_t *sizes, bool acts,
                     Span at);
void backend_free(Backend *b); /* NULL is fine */
/* Runs a backward, as native_run does; `at` is the `grad`. */
bool backend_run(Backend *b, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *where,
                 Span at);
/* Makes f the compiler; NULL: none. Captured backwards are forgotten. */
void backend_set(Session *s, ckl_compiler f, void *ud);

#endif
