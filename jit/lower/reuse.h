/* Groups that differ only in which values they read have the same kernels: of equal layers of a
 * model one is lowered, the others take its launches with their own values. */
#ifndef CKL_JIT_LOWER_REUSE_H
#define CKL_JIT_LOWER_REUSE_H

#include "jit/lower/lower.h"

typedef struct Alike Alike;

/* For the groups of l->g, in l->arena. */
Alike *alike_new(const Lower *l);
/* As lower_group. Each launch says in `like` which launch of `out` has the same kernel, itself if
 * none; kernels, uses and panels are copied into `keep`, and what lowering takes besides is given
 * back. */
bool alike_lower(Alike *s, Lower *l, const Group *group, Arena *keep, Lowered *out, GErr *e);

#endif
