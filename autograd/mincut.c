/* Minimum cuts by maximum flow.
 *
 * In: arcs with capacities, a source, a sink. Out: the value of the least cut and the vertices on
 * the source's side. The method is Dinic's ("Algorithm for solution of a problem of maximum flow in
 * networks with power estimation", 1970): phases of flow along shortest ways, each vertex with a
 * cursor over its arcs. After the last phase the vertices that the source still reaches are the
 * smallest side of a least cut (Ford and Fulkerson, "Maximal flow through a network", 1956).
 * O(V^2 E) at worst; on networks of recomputation a few phases. No recursion.
 */
#include "autograd/mincut.h"

#include <string.h>

void cut_open(Cut *c, Arena *a, uint32_t vertices) {
  *c = (Cut){.arena = a, .count = vertices};
  c->first = ARENA_ARRAY(a, uint32_t, vertices + 1);
  struct CutArc none = {0};
  for (int k = 0; k < 2; k++) VEC_PUSH(a, c->arcs, c->arc_count, c->arc_cap, none);
}

static void half(Cut *c, uint32_t from, uint32_t to, int64_t capacity) {
  struct CutArc arc = {to, c->first[from], capacity};
  c->first[from] = (uint32_t)c->arc_count;
  VEC_PUSH(c->arena, c->arcs, c->arc_count, c->arc_cap, arc);
}

void cut_arc(Cut *c, uint32_t from, uint32_t to, int64_t capacity) {
  half(c, from, to, capacity < CUT_INF ? capacity : CUT_INF);
  half(c, to, from, 0);
}

/* Distances from the source over arcs with room; whether the sink is among them. */
static bool layers(const Cut *c, uint32_t source, uint32_t sink, uint32_t *depth, uint32_t *queue) {
  size_t head = 0, tail = 0;
  memset(depth, 0, c->count * sizeof *depth);
  depth[source] = 1;
  queue[tail++] = source;
  while (head < tail) {
    uint32_t v = queue[head++];
    for (uint32_t k = c->first[v]; k; k = c->arcs[k].next) {
      const struct CutArc *arc = &c->arcs[k];
      if (arc->left <= 0 || depth[arc->to]) continue;
      depth[arc->to] = depth[v] + 1;
      queue[tail++] = arc->to;
    }
  }
  return depth[sink] != 0;
}

/* One way to the sink along the layers from where the cursors stand: `way` gets its arcs, whose
 * number is given; 0 = there is none left. */
static size_t find_way(Cut *c, uint32_t source, uint32_t sink, const uint32_t *depth,
                       uint32_t *cursor, uint32_t *way) {
  size_t n = 0;
  for (uint32_t v = source; v != sink;) {
    uint32_t k = cursor[v];
    while (k && (c->arcs[k].left <= 0 || depth[c->arcs[k].to] != depth[v] + 1)) k = c->arcs[k].next;
    cursor[v] = k;
    if (k) {
      way[n++] = k;
      v = c->arcs[k].to;
    } else if (n) {
      v = c->arcs[way[--n] ^ 1].to;
      cursor[v] = c->arcs[cursor[v]].next; /* a dead end */
    } else {
      return 0;
    }
  }
  return n;
}

int64_t cut_run(Cut *c, uint32_t source, uint32_t sink, bool *side) {
  Arena *a = c->arena;
  uint32_t *depth = ARENA_ARRAY(a, uint32_t, c->count + 1);
  uint32_t *queue = ARENA_ARRAY(a, uint32_t, c->count + 1);
  uint32_t *cursor = ARENA_ARRAY(a, uint32_t, c->count + 1);
  int64_t flow = 0;
  while (flow < CUT_INF && layers(c, source, sink, depth, queue)) {
    memcpy(cursor, c->first, c->count * sizeof *cursor);
    for (size_t n; flow < CUT_INF && (n = find_way(c, source, sink, depth, cursor, queue));) {
      int64_t least = CUT_INF;
      for (size_t k = 0; k < n; k++)
        if (c->arcs[queue[k]].left < least) least = c->arcs[queue[k]].left;
      for (size_t k = 0; k < n; k++) {
        struct CutArc *arc = &c->arcs[queue[k]], *back = &c->arcs[queue[k] ^ 1];
        if (arc->left < CUT_INF) arc->left -= least; /* what has no end stays so */
        if (back->left < CUT_INF) back->left += least;
      }
      flow += least;
    }
  }
  if (flow >= CUT_INF) flow = CUT_INF;
  layers(c, source, sink, depth, queue);
  for (uint32_t v = 0; v < c->count; v++) side[v] = depth[v] != 0;
  return flow;
}
