/* Sizes and work of the nodes of a graph, for given sizes. */
#ifndef CKL_GRAPH_COST_H
#define CKL_GRAPH_COST_H

#include "graph/ir.h"

/* Guesses for a dim and for a count of iterations that are not known. */
enum { COST_TYPICAL_DIM = 64, COST_TYPICAL_ITERATIONS = 8 };

/* Sums and products of numbers >= 0. They saturate at INT64_MAX / 4. */
int64_t cost_add(int64_t a, int64_t b);
int64_t cost_mul(int64_t a, int64_t b);

/* `env` holds the values of the graph's symbols by number. If it is NULL, only constants are known,
 * and any other dim counts as COST_TYPICAL_DIM.
 * Example: for dot of f32[7, 9] and f32[9, 10] cost_elements is 70, cost_bytes 280, cost_room 320,
 * cost_products 9, cost_steps 630 and cost_flops 1,260. */
int64_t cost_dim(const Graph *g, Dim d, const int64_t *env);
int64_t cost_elements(const Graph *g, const Type *t, const int64_t *env); /* 0 of no tensor */
int64_t cost_bytes(const Graph *g, const Type *t, const int64_t *env);
/* Bytes that a value takes in an arena, whose places begin at multiples of 64. */
int64_t cost_room(const Graph *g, const Type *t, const int64_t *env);
/* Bytes of values that are moved out of the host's memory: all of them wait until the forward is
 * done. */
int64_t cost_spilled(const Graph *g, const int64_t *env);

/* Multiplications that a contraction does for each element of its result; 1 of other nodes. */
int64_t cost_products(const Graph *g, uint32_t node, const int64_t *env);
/* Elements that a node visits: those of its operand if it reduces, else those of its result; times
 * the products of a contraction. */
int64_t cost_steps(const Graph *g, uint32_t node, const int64_t *env);
/* Scalar operations of a node, without its regions, by column `cost` of ops.def. */
int64_t cost_flops(const Graph *g, uint32_t node, const int64_t *env);
/* How often region 0 of a loop or map runs; COST_TYPICAL_ITERATIONS if that is known at run time
 * only. */
int64_t cost_iterations(const Graph *g, uint32_t node, const int64_t *env);
/* How many turns a loop runs; -1: only the run knows. */
int64_t cost_turns(const Graph *g, uint32_t node, const int64_t *env);
/* Seconds that gr_run takes for g and its regions, roughly. */
double cost_seconds(const Graph *g, const int64_t *env);

#endif
