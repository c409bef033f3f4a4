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
bool rm_is_view(const Graph *g, uint32_t n); /* computed without cost, from one value */
bool rm_never(const Graph *g, uint32_t n);   /* cannot be computed twice */
/* Whether node n reads values of a block as part of that block's gradient. */
bool rm_is_use(const Graph *g, uint32_t n, uint32_t block);
bool *rm_live(Arena *a, const Graph *g); /* per node: an output or effect needs it */
/* Per result: decides what runs, in a block with narrow values anything made of them; it is kept.
 * `shifted` (may be NULL): per result, see rm_shifted. */
bool *rm_conditions(Arena *a, const Graph *g, bool **shifted);

/* ---- remat_narrow.c */
/* The choice that rounds narrow values and makes again what hangs on them, and nothing else. */
void rm_narrow_alone(const Graph *g, uint8_t *choice);
typedef struct RmNarrow {
  Val value, scale; /* scale: of u8, else VAL_NONE */
} RmNarrow;
/* Append nodes with provenance g->at. `as`: the dtype of the result. */
RmNarrow rm_make_narrow(Graph *g, Val wide, DType as);
Val rm_make_wide(Graph *g, RmNarrow n, DType as);

#endif
