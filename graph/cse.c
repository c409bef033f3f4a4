/* Common subexpressions: a node that computes the same as an earlier one is replaced by it.
 *
 * In: a graph. Out: the same graph with equal nodes merged into the first of them; dead copies
 * are gone. Equal means: op, operands (in either order where the op commutes), attributes,
 * result types, regions. These are never merged: effects, random draws, recomputed copies,
 * `alias` (the edge of a call), and nodes that differ in checkpoint region, recompute tag or
 * watching for NaN. A recomputed copy exists in order to be computed twice. Merging before
 * differentiation changes the order in which gradients are summed, so the pass belongs behind it
 * (rule 104).
 * Nodes are merged as they are appended: a hash table finds candidates, the result follows node
 * order only.
 */
#include <string.h>

#include "graph/copy.h"
#include "graph/op.h"
#include "graph/structure.h"

struct Merge {
  Arena *a;
  Graph *d;
  const char **plain;
  size_t plain_cap;  /* per region of d: its text, or NULL until needed */
  uint32_t *slot;    /* node of d + 1; 0 = free */
  size_t count, cap; /* a power of two */
};

static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ (h >> 29);
}

static uint64_t float_bits(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static const char *plain_text(Merge *m, uint32_t region) {
  while (m->plain_cap <= region) {
    size_t cap = m->plain_cap ? 2 * m->plain_cap : 8;
    m->plain = arena_grow(m->a, m->plain, m->plain_cap * sizeof *m->plain, cap * sizeof *m->plain);
    m->plain_cap = cap;
  }
  if (!m->plain[region]) {
    Buf b;
    buf_init_arena(&b, m->a);
    print_plain(&b, m->d->regions[region]);
    m->plain[region] = b.s;
  }
  return m->plain[region];
}

/* Operand k; the operands of a commutative op are in ascending order. */
static Val operand(const Graph *g, const GNode *n, uint32_t k) {
  const Val *v = g->operands + n->operand0;
  Val x = v[k];
  if (!(op_info[n->op].traits & T_COMM) || n->operand_count != 2) return x;
  Val y = v[1 - k];
  bool less = x.node != y.node ? x.node < y.node : x.res < y.res;
  return less == (k == 0) ? x : y;
}

static uint64_t node_hash(const Graph *g, const GNode *n) {
  uint64_t h = mix(mix(n->op, n->operand_count), n->attr_count);
  for (uint32_t i = 0; i < n->operand_count; i++) {
    Val v = operand(g, n, i);
    h = mix(mix(h, v.node), v.res);
  }
  for (uint32_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &g->attrs[n->attr0 + i];
    h = mix(mix(h, a->key), a->count);
    if (a->kind == AK_FLOAT)
      h = mix(h, float_bits(a->u.f));
    else if (a->kind == AK_TEXT)
      h = mix(h, (uint64_t)(uintptr_t)a->u.text);
    else if (a->kind == AK_INT || a->kind == AK_DIM)
      h = mix(h, (uint64_t)a->u.i);
    else
      for (uint32_t k = 0; k < a->count; k++) h = mix(h, (uint64_t)a->u.ints[k]);
  }
  return mix(h, n->region_count);
}

static bool attr_eq(const Attr *a, const Attr *b) {
  if (a->key != b->key || a->kind != b->kind || a->count != b->count) return false;
  switch ((AttrKind)a->kind) {
  case AK_INT:
  case AK_DIM: return a->u.i == b->u.i;
  case AK_FLOAT: return float_bits(a->u.f) == float_bits(b->u.f);
  case AK_TEXT: return a->u.text == b->u.text;
  case AK_INTS:
  case AK_DIMS:
    for (uint32_t i = 0; i < a->count; i++) {
      if (a->u.ints[i] != b->u.ints[i]) return false;
    }
    return true;
  }
  return false;
}

static bool same_node(Merge *m, const GNode *a, const GNode *b) {
  const Graph *g = m->d;
  if (a->op != b->op || a->operand_count != b->operand_count || a->attr_count != b->attr_count ||
      a->result_count != b->result_count || a->region_count != b->region_count) {
    return false;
  }
  const Prov *p = &g->provs[a->prov], *q = &g->provs[b->prov];
  if (p->region != q->region || p->tag != q->tag || p->anomaly != q->anomaly) return false;
  for (uint32_t i = 0; i < a->operand_count; i++) {
    if (!val_eq(operand(g, a, i), operand(g, b, i))) return false;
  }
  for (uint32_t i = 0; i < a->attr_count; i++) {
    if (!attr_eq(&g->attrs[a->attr0 + i], &g->attrs[b->attr0 + i])) return false;
  }
  for (uint32_t i = 0; i < a->result_count; i++) {
    if (!type_eq(&g->types[a->result0 + i], &g->types[b->result0 + i])) return false;
  }
  for (uint32_t i = 0; i < a->region_count; i++) {
    if (strcmp(plain_text(m, a->region0 + i), plain_text(m, b->region0 + i))) return false;
  }
  return true;
}

static bool never(const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  return n->op == OP_INPUT || n->op == OP_ALIAS || n->op == OP_VERSION || n->op == OP_TOKEN ||
         g->provs[n->prov].recomputed || (op_info[n->op].traits & T_RANDOM) || node_effect(g, node);
}

static void enter(Merge *m, uint32_t node, uint64_t hash) {
  size_t at = (size_t)hash & (m->cap - 1);
  while (m->slot[at]) at = (at + 1) & (m->cap - 1);
  m->slot[at] = node + 1;
}

static void widen(Merge *m) {
  const uint32_t *old = m->slot;
  size_t n = m->cap;
  m->cap *= 2;
  m->slot = ARENA_ARRAY(m->a, uint32_t, m->cap);
  for (size_t i = 0; i < n; i++) {
    if (old[i]) enter(m, old[i] - 1, node_hash(m->d, &m->d->nodes[old[i] - 1]));
  }
}

Merge *merge_new(Arena *a, Graph *d, size_t nodes) {
  Merge *m = ARENA_NEW(a, Merge);
  *m = (Merge){.a = a, .d = d, .cap = 16};
  while (m->cap < nodes * 2) m->cap *= 2;
  m->slot = ARENA_ARRAY(a, uint32_t, m->cap);
  return m;
}

/* Removes the last node. */
static void drop_last(Merge *m) {
  Graph *d = m->d;
  GNode n = d->nodes[--d->node_count];
  d->operand_count = n.operand0;
  d->type_count = n.result0;
  d->attr_count = n.attr0;
  d->region_count = n.region0;
  for (size_t i = n.region0; n.region_count && i < m->plain_cap; i++) m->plain[i] = NULL;
}

Val merge_last(Merge *m) {
  Graph *d = m->d;
  uint32_t last = (uint32_t)d->node_count - 1;
  const GNode *n = &d->nodes[last];
  if (never(d, last)) return (Val){last, 0};
  uint64_t hash = node_hash(d, n);
  for (size_t at = (size_t)hash & (m->cap - 1); m->slot[at]; at = (at + 1) & (m->cap - 1)) {
    if (!same_node(m, n, &d->nodes[m->slot[at] - 1])) continue;
    drop_last(m);
    return (Val){m->slot[at] - 1, 0};
  }
  if (2 * ++m->count > m->cap) widen(m);
  enter(m, last, hash);
  return (Val){last, 0};
}

Graph *gr_cse(Arena *a, const Graph *from) {
  stack_check();
  Graph *d = copy_start(a, from);
  ValMap map = map_new(a, from);
  Merge *m = merge_new(a, d, from->node_count);
  for (uint32_t i = 0; i < from->node_count; i++) {
    const GNode *n = &from->nodes[i];
    Graph **regions = n->region_count ? ARENA_ARRAY(a, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->region_count; k++)
      regions[k] = gr_cse(a, from->regions[n->region0 + k]);
    copy_node(d, &map, i, regions);
    Val v = merge_last(m);
    for (uint32_t k = 0; k < n->result_count; k++) map.to[n->result0 + k] = (Val){v.node, k};
  }
  copy_checks(d, from);
  copy_outputs(d, &map);
  return d;
}
