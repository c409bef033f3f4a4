/* Copying nodes between graphs over one DimTab, for passes. */
#ifndef CKL_GRAPH_COPY_H
#define CKL_GRAPH_COPY_H

#include "graph/ir.h"

/* The new value of each result of a source graph, by its place in src->types. */
typedef struct ValMap {
  const Graph *src;
  Val *to;
} ValMap;

static inline Val map_get(const ValMap *m, Val v) {
  return m->to[m->src->nodes[v.node].result0 + v.res];
}

static inline void map_set(ValMap *m, Val v, Val to) {
  m->to[m->src->nodes[v.node].result0 + v.res] = to;
}

ValMap map_new(Arena *a, const Graph *src); /* all VAL_NONE */
bool prov_same(const Prov *a, const Prov *b);
/* An empty graph with name, tables, alias classes of `g`. */
Graph *copy_start(Arena *a, const Graph *g);
Graph *copy_start_in(Arena *a, const Graph *g, GrRoom room); /* room: for what it will hold */
/* Appends node `node` of m->src to dst as it is: no shape rule runs. Operands go through the map
 * and results are entered in it. `regions` replace the node's (NULL = the same ones). The
 * provenance is that of the node. An input node also becomes an input of dst. */
Val copy_node(Graph *dst, ValMap *m, uint32_t node, Graph *const *regions);
/* As copy_node, with operands and provenance from the caller, who also updates the map. */
Val copy_node_as(Graph *dst, const Graph *src, uint32_t node, const Val *in, Graph *const *regions,
                 const Prov *prov);
/* Copy the checks and, through the map, the outputs of m->src with the inputs that they are written
 * to. */
void copy_checks(Graph *dst, const Graph *src);
void copy_outputs(Graph *dst, const ValMap *m);
/* Copies which inputs the outputs are written to: dst has the same outputs first. */
void copy_writes(Graph *dst, const Graph *src);
/* Merges equal nodes of d as they are appended. */
typedef struct Merge Merge;
Merge *merge_new(Arena *a, Graph *d, size_t nodes); /* nodes: about how many */
/* Returns the first result of d's last node. If an earlier node computes the same, removes the last
 * one and returns the earlier one's result. */
Val merge_last(Merge *m);
/* Per result of g: whether an output, an effect or a node that can fail needs it (graph/dce.c). */
bool *live_results(Arena *a, const Graph *g);
/* Whether the node stays, given live_results. */
bool node_live(const Graph *g, uint32_t node, const bool *live);
bool has_effect(const Graph *g); /* some node, however nested, is an effect */
bool node_effect(const Graph *g, uint32_t node);
/* Whether the node can fail when it runs; conditions on sizes alone are in the checks. */
bool node_fails(const Graph *g, uint32_t node);
/* The text of a graph without provenance, names and alias classes: equal for equal graphs. */
void print_plain(Buf *out, const Graph *g);

#endif
