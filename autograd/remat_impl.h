/* Questions about nodes of blocks, which remat.c and remat_cut.c share. */
#ifndef CKL_AUTOGRAD_REMAT_IMPL_H
#define CKL_AUTOGRAD_REMAT_IMPL_H

#include "autograd/remat.h"

static inline size_t rm_slot(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}

uint32_t rm_home(const Graph *g, uint32_t n);    /* innermost block that computes n, 0 = none */
uint32_t rm_top(const Graph *g, uint32_t block); /* outermost one around it */
bool rm_is_free(const Graph *g, uint32_t n);
bool rm_never(const Graph *g, uint32_t n);     /* cannot be computed twice */
bool *rm_conditions(Arena *a, const Graph *g); /* per result: decides what runs */
bool *rm_live(Arena *a, const Graph *g);       /* per node: an output or effect needs it */

#endif
