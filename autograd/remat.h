/* Rematerialisation: what a backward reads of a `checkpoint` block is kept, made again, or moved
 * away in between (rules 80 to 86).
 *
 * A *choice* is made per value: an array with one byte, CHOICE_*, per entry of g->types. rm_written
 * makes it from the tags of the nodes, rm_cut from sizes; rm_apply carries it out. All work on a
 * graph that holds forward and backward, with bodies of `wrap` in place where blocks stand inside
 * of them.
 */
#ifndef CKL_AUTOGRAD_REMAT_H
#define CKL_AUTOGRAD_REMAT_H

#include "graph/ir.h"

/* The choice as written, by tags alone; `choice` has g->type_count bytes. What is tagged by nobody
 * is saved. What an inner block says holds while the outer one recomputes (rule 85). */
void rm_written(const Graph *g, uint8_t *choice);

/* g with backward uses of recomputed values reading copies (Prov.recomputed), each copy once per
 * block and right before its first use. Inputs, outputs and their order stay, and so does the order
 * of g's nodes; tags are gone. `choice` NULL: as written. `split` (may be NULL): the number of the
 * first node of a second half, which shares no copy with the first; becomes its number in the
 * result. Values that the second half reads are bound to live, whoever reads them. Dead nodes are
 * left for dce. Without blocks: a clone. Throws when out of memory; fails in no other way. */
Graph *rm_apply(Arena *a, const Graph *g, const uint8_t *choice, uint32_t *split);
Graph *rm_pass(Arena *a, const Graph *g); /* as written: pass `remat` of `ckl opt` */

/* Who decided what becomes of a value. */
typedef enum RmWhy {
  WHY_NAMED,  /* a clause: must_save, must_recompute, offload */
  WHY_REST,   /* what no clause names, or one that only prefers */
  WHY_NEVER,  /* its op cannot run twice, or it is a condition (rule 81) */
  WHY_FREE,   /* a view or constant */
  WHY_CALLER, /* kept anyway: the block's caller, or another block, reads it in the backward */
  WHY_PLANNER /* `choice` is not as written */
} RmWhy;
typedef struct RmValue {
  Val v;
  uint32_t block; /* outermost block that it belongs to */
  uint8_t choice; /* what comes of it: CHOICE_*; FREE: kept without cost, or made without cost */
  RmWhy why;
} RmValue;
/* Calls `visit` for every value of a block that backward needs, be it for making others again, in
 * the order of the nodes. Arguments as for rm_apply. */
void rm_values(Arena *scratch, const Graph *g, const uint8_t *choice, const uint32_t *split,
               void (*visit)(void *ud, const RmValue *v), void *ud);

/* ---- planning: `env` has the values of g's symbols. Costs are in units of 10 ps on an average
 * machine: only their ratios matter. Saturate at INT64_MAX / 4. */
int64_t rm_cost(const Graph *g, uint32_t node, const int64_t *env);
int64_t rm_time(const Graph *g, const int64_t *env); /* of all nodes that an output needs */
/* One rung of the ladder: the choice that is cheapest where a byte kept costs `lambda` units.
 * Tags that say `must` hold; where one prefers what its block does not do by itself, the other
 * answer costs 4 times. */
void rm_cut(Arena *scratch, const Graph *g, const int64_t *env, double lambda, uint8_t *choice);
/* The choice that keeps least of those that compute again for `time` at most, by bisection over the
 * price of a byte. How many were looked at. */
int rm_within(Arena *scratch, const Graph *g, const int64_t *env, int64_t time, uint8_t *choice);
/* A list of choices from which a planner takes the fastest that fits: as written, save-all,
 * recompute-all, then plans between them, each once, `most` (at least 3) altogether. It depends on
 * nothing but the graph and the sizes. The number of choices; each has g->type_count bytes. */
size_t rm_ladder(Arena *a, const Graph *g, const int64_t *env, size_t most, uint8_t **choices);
/* What a choice keeps from forward to backward, and the cost of what it computes again. */
typedef struct RmPrice {
  int64_t bytes, time;
} RmPrice;
RmPrice rm_price(Arena *scratch, const Graph *g, const int64_t *env, const uint8_t *choice);
/* Save-all and recompute-all, as far as `must` tags allow. */
void rm_all(const Graph *g, uint8_t what, uint8_t *choice);

#endif
