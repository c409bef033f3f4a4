/* Whole graphs: passes, copies, texts, comparison.
 *
 * Each pass works on nested regions, too; its result is verified if Mem.check is set. Passes that
 * no function of this layer calls are declared by their rows in lang/compile/pipeline.def. */
#ifndef CKL_GRAPH_PASS_H
#define CKL_GRAPH_PASS_H

#include "graph/ir.h"

/* Returns g if gr_verify holds; else throws by mem_bug, which names the pass. Without Mem.check, or
 * if g is NULL, it tests nothing. */
Graph *gr_checked(Graph *g, const char *pass);
Graph *gr_clone(Arena *a, const Graph *g);
/* Copies the nodes of src into dst with src's inputs bound to `args`; outputs go to `outs`. Spans
 * and names of src are kept; path is prefixed with dst->at.path. Symbols of src are replaced by
 * `subst` (count of src's DimTab symbols; NULL when both share the table as it is). */
bool gr_inline(Graph *dst, const Graph *src, const Val *args, const Dim *subst, Val *outs, GErr *e);
/* Returns g with each `wrap` and `custom` node replaced by its body. `origin` (may be NULL) gets,
 * for each node, the node of g that it came from. */
Graph *gr_flatten(Arena *a, const Graph *g, const uint32_t **origin);
bool gr_has_hooks(const Graph *g);  /* has nodes that concern differentiation only */
bool gr_calls_host(const Graph *g); /* calls functions of the host, or of the program */
/* Whether no node can fail, has an effect or goes through iterations: then nobody sees whether the
 * graph runs. */
bool gr_harmless(const Graph *g);
Graph *gr_no_hooks(Arena *a, const Graph *g); /* a copy without them, also in regions */
/* Returns g without the marked hook nodes; g itself if none is marked. */
const Graph *gr_drop_hooks(Arena *a, const Graph *g, const bool *these);
/* Drops nodes that no output or effect needs; inputs stay. */
Graph *gr_dce(Arena *a, const Graph *g);
/* The same; *node, the number of one of g, becomes that of the first that stays from there on. */
Graph *gr_dce_at(Arena *a, const Graph *g, uint32_t *node);
/* Returns g with each `solve` and its `lu` as one node; g itself if there is none. */
Graph *gr_join(Arena *a, Graph *g);
/* Returns g with rows of loops, which are joined or taken apart, as one tensor; g itself if there
 * are none. */
Graph *gr_rows(Arena *a, Graph *g);
uint64_t gr_hash(const Graph *g); /* structure, types, attributes; not provenance */
bool gr_equal(const Graph *a, const Graph *b);
/* Checks every invariant in this header; false with a text that names the node. */
bool gr_verify(const Graph *g, GErr *e);
/* gr_read reads this text back; graph/text.c has the grammar */
void gr_print(Buf *out, const Graph *g);
Graph *gr_read(Arena *a, Names *names, const char *text, size_t n, GErr *e); /* NULL on bad text */

/* Maps a graph over a new leading axis of size n (graph/batch.c): batched[i] says whether input i
 * gets the axis; every output gets it. NULL with `e` when an op has no batching rule. */
Graph *gr_batch(Arena *a, const Graph *g, const bool *batched, Dim n, GErr *e);

#endif
