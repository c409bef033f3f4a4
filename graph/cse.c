/* Common subexpressions: a node that computes what an earlier one did is replaced by it.
 *
 * In: a graph. Out: the same graph with equal nodes merged into the first of them; dead copies are
 * gone. Equal means: op, operands (in either order where the op commutes), attributes, result
 * types, regions. Never merged: effects, random draws, recomputed copies (they exist to be
 * second), nodes of different checkpoint regions, with different recompute tags or of which one is
 * watched for NaN, and `alias`, which marks the edge of a call. Merging before differentiation
 * changes the order in which gradients are summed, so the pass belongs behind it (rule 104).
 * A hash table finds candidates; the result follows node order only.
 */
#include <string.h>

#include "graph/copy.h"

typedef struct Cse {
  Arena *a;
  const Graph *g;
  ValMap map;
  const char **plain; /* per region of g: its text, or NULL until needed */
  uint32_t *slot;     /* node + 1 of g, all of them copied */
  size_t cap;
} Cse;

static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ (h >> 29);
}

static uint64_t float_bits(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static const char *plain_text(Cse *c, uint32_t region) {
  if (!c->plain[region]) {
    Buf b;
    buf_init_arena(&b, c->a);
    print_plain(&b, c->g->regions[region]);
    c->plain[region] = b.s;
  }
  return c->plain[region];
}

/* Operand k as seen after merging, the smaller one first where order means nothing. */
static Val operand(const Cse *c, const GNode *n, uint32_t k) {
  const Val *v = c->g->operands + n->operand0;
  Val x = map_get(&c->map, v[k]);
  if (!(op_info[n->op].traits & T_COMM) || n->operand_count != 2) return x;
  Val y = map_get(&c->map, v[1 - k]);
  bool less = x.node != y.node ? x.node < y.node : x.res < y.res;
  return less == (k == 0) ? x : y;
}

static uint64_t node_hash(Cse *c, const GNode *n) {
  uint64_t h = mix(mix(n->op, n->operand_count), n->attr_count);
  for (uint32_t i = 0; i < n->operand_count; i++) {
    Val v = operand(c, n, i);
    h = mix(mix(h, v.node), v.res);
  }
  for (uint32_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &c->g->attrs[n->attr0 + i];
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

static bool same_node(Cse *c, const GNode *a, const GNode *b) {
  const Graph *g = c->g;
  if (a->op != b->op || a->operand_count != b->operand_count || a->attr_count != b->attr_count ||
      a->result_count != b->result_count || a->region_count != b->region_count) {
    return false;
  }
  const Prov *p = &g->provs[a->prov], *q = &g->provs[b->prov];
  if (p->region != q->region || p->tag != q->tag || p->anomaly != q->anomaly) return false;
  for (uint32_t i = 0; i < a->operand_count; i++) {
    if (!val_eq(operand(c, a, i), operand(c, b, i))) return false;
  }
  for (uint32_t i = 0; i < a->attr_count; i++) {
    if (!attr_eq(&g->attrs[a->attr0 + i], &g->attrs[b->attr0 + i])) return false;
  }
  for (uint32_t i = 0; i < a->result_count; i++) {
    if (!type_eq(&g->types[a->result0 + i], &g->types[b->result0 + i])) return false;
  }
  for (uint32_t i = 0; i < a->region_count; i++) {
    if (strcmp(plain_text(c, a->region0 + i), plain_text(c, b->region0 + i))) return false;
  }
  return true;
}

static bool never(const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  return n->op == OP_INPUT || n->op == OP_ALIAS || n->op == OP_TOKEN ||
         g->provs[n->prov].recomputed || (op_info[n->op].traits & T_RANDOM) || node_effect(g, node);
}

Graph *gr_cse(Arena *a, const Graph *from) {
  /* Regions first, so that equal ones have equal texts. */
  Graph *g = gr_clone(a, from);
  for (size_t i = 0; i < g->region_count; i++) g->regions[i] = gr_cse(a, g->regions[i]);
  Cse c = {.a = a, .g = g, .map = map_new(a, g)};
  c.plain = ARENA_ARRAY(a, const char *, g->region_count + 1);
  for (c.cap = 16; c.cap < g->node_count * 2; c.cap *= 2) continue;
  c.slot = ARENA_ARRAY(a, uint32_t, c.cap);
  Graph *d = copy_start(a, g);
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    if (never(g, i)) {
      copy_node(d, &c.map, i, NULL);
      continue;
    }
    size_t at = (size_t)node_hash(&c, n) & (c.cap - 1);
    const GNode *found = NULL;
    for (; c.slot[at] && !found; at = (at + 1) & (c.cap - 1)) {
      const GNode *other = &g->nodes[c.slot[at] - 1];
      if (same_node(&c, n, other)) found = other;
    }
    if (found) {
      for (uint32_t k = 0; k < n->result_count; k++) {
        c.map.to[n->result0 + k] = c.map.to[found->result0 + k];
      }
      continue;
    }
    c.slot[at] = i + 1;
    copy_node(d, &c.map, i, NULL);
  }
  copy_checks(d, g);
  copy_outputs(d, &c.map);
  return d;
}
