/* Groups that differ only in the values that they read have the same kernels. When a model has
 * equal layers, the first one is lowered, and the others take its launches with their own
 * values. */
#ifndef CKL_JIT_LOWER_REUSE_H
#define CKL_JIT_LOWER_REUSE_H

#include "jit/lower/lower.h"

typedef struct Alike Alike;
typedef struct Shelf Shelf; /* also in jit/plan/jit.h */

/* For groups of several graphs, all in `a`. */
Shelf *reuse_shelf(Arena *a);
/* A table for the groups of l->g, in l->arena. `shelf`, which may be NULL, serves and gets groups
 * that are new to this graph. */
Alike *reuse_new(const Lower *l, Shelf *shelf);
/* Has the contract of low_group. Launch.like is the number of the first launch of `out` with the
 * same kernel, which may be its own. Kernels, uses and panels are copied into `keep`; the working
 * memory of lowering is freed. */
bool reuse_lower(Alike *s, Lower *l, const Group *group, Arena *keep, Lowered *out, GErr *e);

#endif
