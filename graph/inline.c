/* Inlining of the bodies of `wrap` and `custom` nodes, and of `version` nodes.
 *
 * In: a graph. Out: the same computation without these nodes, which code generation does not need
 * once gradients are taken. Regions of other nodes are copied unchanged. Types, order of effects,
 * provenance and checks stay, also in regions. Recursion is over region nesting.
 */
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "graph/structure.h"

typedef struct Flatten {
  Graph *d;
  uint32_t *origin;
  size_t origin_cap;
} Flatten;

static bool transparent(uint16_t op) {
  return op == OP_WRAP || op == OP_CUSTOM;
}

/* Appends the nodes of m->src. If `top` is not set, its inputs are in the map already. `at`: the
 * node of the outermost graph. */
static void put_in(Flatten *f, ValMap *m, bool top, uint32_t at) {
  stack_check();
  const Graph *src = m->src;
  Arena *a = f->d->arena;
  for (uint32_t i = 0; i < src->node_count; i++) {
    const GNode *n = &src->nodes[i];
    if (top) at = i;
    if (n->op == OP_INPUT && !top) continue;
    if (n->op == OP_VERSION) {
      map_set(m, (Val){i, 0}, map_get(m, src->operands[n->operand0]));
      continue;
    }
    if (transparent(n->op)) {
      ValMap inner = map_new(a, src->regions[n->region0]);
      for (uint32_t k = 0; k < n->operand_count; k++) {
        map_set(&inner, inner.src->inputs[k], map_get(m, src->operands[n->operand0 + k]));
      }
      put_in(f, &inner, false, at);
      for (uint32_t k = 0; k < n->result_count; k++) {
        map_set(m, (Val){i, k}, map_get(&inner, inner.src->outputs[k]));
      }
      continue;
    }
    Graph **regions = n->region_count ? ARENA_ARRAY(a, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->region_count; k++) {
      regions[k] = gr_clone(a, src->regions[n->region0 + k]);
    }
    Val v = copy_node(f->d, m, i, regions);
    if (!top && !(op_info[n->op].traits & T_VIEW)) {
      /* A region numbers its alias classes on its own. */
      for (uint32_t k = 0; k < n->result_count; k++) {
        f->d->types[f->d->nodes[v.node].result0 + k].alias = 0;
      }
    }
    size_t count = v.node;
    VEC_PUSH(a, f->origin, count, f->origin_cap, at);
  }
  copy_checks(f->d, src);
}

Graph *gr_flatten(Arena *a, const Graph *g, const uint32_t **origin) {
  Flatten f = {.d = copy_start(a, g)};
  ValMap m = map_new(a, g);
  f.d->at = g->at;
  put_in(&f, &m, true, 0);
  copy_outputs(f.d, &m);
  if (origin) *origin = f.origin;
  return gr_checked(f.d, "flatten");
}
