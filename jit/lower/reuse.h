/* Groups that differ only in the values that they read have the same kernels. When a model has
 * equal layers, the first one is lowered, and the others take its launches with their own
 * values. */
#ifndef CKL_JIT_LOWER_REUSE_H
#define CKL_JIT_LOWER_REUSE_H

#include "jit/lower/lower.h"

typedef struct Alike Alike;

/* A table for the groups of l->g, in l->arena. */
Alike *reuse_new(const Lower *l);
/* Has the contract of low_group. Launch.like is the number of the first launch of `out` with the
 * same kernel, which may be its own. Kernels, uses and panels are copied into `keep`; the working
 * memory of lowering is freed. */
bool reuse_lower(Alike *s, Lower *l, const Group *group, Arena *keep, Lowered *out, GErr *e);

#endif
