/* Minimum cuts of networks given as arrays. The module does not know graphs of values. */
#ifndef CKL_AUTOGRAD_MINCUT_H
#define CKL_AUTOGRAD_MINCUT_H

#include "runtime/mem.h"

#define CUT_INF (INT64_MAX / 4) /* a capacity that no cut passes */

typedef struct Cut {
  Arena *arena;
  uint32_t count;  /* vertices 0 .. count - 1 */
  uint32_t *first; /* per vertex: its last arc, 0 = none */
  /* arcs 2, 3, .., each beside the one back: arc ^ 1 */
  struct CutArc {
    uint32_t to, next;
    int64_t left;
  } * arcs;
  size_t arc_count, arc_cap;
} Cut;

/* Everything lives in the arena. Throws when out of memory. */
void cut_open(Cut *c, Arena *a, uint32_t vertices);
void cut_arc(Cut *c, uint32_t from, uint32_t to, int64_t capacity); /* 0 .. CUT_INF */
/* Returns the smallest total capacity of arcs that part `source` from `sink`; CUT_INF if no finite
 * cut exists. side[v] is set if v is on the source's side of the cut with the fewest vertices
 * there. Consumes the arcs. The answer depends on the calls made alone. */
int64_t cut_run(Cut *c, uint32_t source, uint32_t sink, bool *side);

#endif
