/* A compiler of the host for captured backwards: ckl_set_compiler. */
#ifndef CKL_LANG_TAPE_HOST_COMPILER_H
#define CKL_LANG_TAPE_HOST_COMPILER_H

#include "ckl.h"
#include "graph/run.h"
#include "lang/compile/tiering.h"

/* What the host's compiler made of one captured backward. */
typedef struct Backend Backend;
/* Asks it about g; NULL: there is none, or it leaves g to ckl. `native`: where ckl's own code of g
 * goes. `sizes`: of the tape at hand. `acts`: g calls hooks or prints. Throws what the host says at
 * `at`, the `grad`. */
Backend *backend_new(Session *s, const Graph *g, Native **native, const int64_t *sizes, bool acts,
                     Span at);
void backend_free(Backend *b); /* NULL is fine */
/* As native_run; `at` as above. */
bool backend_run(Backend *b, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *where,
                 Span at);
/* From here on it is f; NULL: none. What was captured is forgotten. */
void backend_set(Session *s, ckl_compiler f, void *ud);

#endif
