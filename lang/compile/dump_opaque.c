/* `wrap <opaque "name">` in dumps: one node in place of its body (rule 87).
 *
 * In: a graph in which the nodes of such a body carry its name behind their layer path, as in `net
 * "name"`. Out: the same graph with each body as a `wrap` node of that name. The body is staged in
 * place, so that values, gradients and plans are the same as without the word; only dumps have the
 * node. Nodes between those of a body that do not depend on it are moved before it. If one does
 * depend on it, the body ends there, and its rest is another node of that name.
 */
#include <string.h>

#include "graph/build.h"
#include "lang/compile/compile.h"

/* The name number `depth` in a path, the outermost first; NULL when there is none. Its length goes
 * to *n. */
static const char *mark_of(Name path, int depth, size_t *n) {
  const char *p = path;
  for (int k = 0; p; k++) {
    p = strchr(p, '"');
    const char *end = p ? strchr(p + 1, '"') : NULL;
    if (!end) return NULL;
    *n = (size_t)(end - p) - 1;
    if (k == depth) return p + 1;
    p = end + 1;
  }
  return NULL;
}

static const char *mark_at(const Graph *g, uint32_t node, int depth, size_t *n) {
  const Prov *p = &g->provs[g->nodes[node].prov];
  return p->path && g->nodes[node].op != OP_INPUT ? mark_of(p->path, depth, n) : NULL;
}

Name opaque_plain(Session *s, Name path) {
  const char *q = path ? strchr(path, '"') : NULL;
  if (!q) return path;
  while (q > path && q[-1] == ' ') q--;
  return q > path ? names_of(s->names, arena_strdup(&s->scratch, path, (size_t)(q - path))) : NULL;
}

typedef struct Show {
  Session *s;
  Arena *a;
  const Graph *g;
  int depth;
  bool *last_use; /* per result: a node outside of its body reads it */
} Show;

static uint32_t slot(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}

static Val copy(Show *w, Graph *to, uint32_t n, const Val *map, bool plain) {
  const Graph *g = w->g;
  const GNode *x = &g->nodes[n];
  Val *in = ARENA_ARRAY(w->a, Val, x->operand_count + 1);
  for (uint32_t k = 0; k < x->operand_count; k++) in[k] = map[slot(g, gr_operand(g, n, (int)k))];
  to->at = g->provs[x->prov];
  if (plain) to->at.path = opaque_plain(w->s, to->at.path);
  if (x->op == OP_INPUT) return gr_input(to, &g->types[x->result0]);
  GErr e;
  return gr_op(to, (OpCode)x->op, in, (int)x->operand_count, &g->attrs[x->attr0], x->attr_count,
               &g->regions[x->region0], x->region_count, &e);
}

static Graph *show(Session *s, Arena *a, const Graph *g, int depth);

/* Makes a `wrap` node of the nodes `body` of w->g. */
static bool close_body(Show *w, Graph *to, const uint32_t *body, size_t count, Val *map,
                       const char *name, size_t len) {
  const Graph *g = w->g;
  Graph *r = gr_new(w->a, to->dims, to->names, NULL);
  Val *inner = ARENA_ARRAY(w->a, Val, g->type_count + 1);
  for (size_t i = 0; i < g->type_count; i++) inner[i] = VAL_NONE;
  bool *mine = ARENA_ARRAY(w->a, bool, g->node_count + 1);
  for (size_t i = 0; i < count; i++) mine[body[i]] = true;
  Val *operands = NULL, *given = NULL;
  size_t n = 0, cap = 0, outs = 0, outs_cap = 0;
  for (size_t i = 0; i < count; i++) {
    const GNode *x = &g->nodes[body[i]];
    for (uint32_t k = 0; k < x->operand_count; k++) {
      Val v = gr_operand(g, body[i], (int)k);
      if (!val_none(inner[slot(g, v)]) || mine[v.node]) continue;
      r->at = g->provs[g->nodes[v.node].prov];
      inner[slot(g, v)] = gr_input(r, gr_type(g, v));
      VEC_PUSH(w->a, operands, n, cap, map[slot(g, v)]);
    }
  }
  for (size_t i = 0; i < count; i++) {
    const GNode *x = &g->nodes[body[i]];
    Val y = copy(w, r, body[i], inner, false);
    if (val_none(y)) return false;
    for (uint32_t k = 0; k < x->result_count; k++) {
      Val v = {body[i], k};
      inner[slot(g, v)] = (Val){y.node, k};
      if (!w->last_use[slot(g, v)]) continue;
      gr_output(r, inner[slot(g, v)]);
      VEC_PUSH(w->a, given, outs, outs_cap, v);
    }
  }
  r = show(w->s, w->a, r, w->depth + 1);
  to->at = g->provs[g->nodes[body[0]].prov];
  to->at.path = opaque_plain(w->s, to->at.path);
  to->at.name = NULL;
  Attr text = attr_text(AT_TEXT, names_of(w->s->names, arena_strdup(w->a, name, len)));
  GErr e;
  Val v = gr_op(to, OP_WRAP, operands, (int)n, &text, 1, &r, 1, &e);
  if (val_none(v)) return false;
  for (size_t k = 0; k < outs; k++) map[slot(g, given[k])] = (Val){v.node, (uint32_t)k};
  return true;
}

static bool depends(const Graph *g, uint32_t n, const bool *in_body) {
  for (uint32_t k = 0; k < g->nodes[n].operand_count; k++)
    if (in_body[gr_operand(g, n, (int)k).node]) return true;
  return false;
}

/* Whether nodes a and b belong to one body. */
static bool together(const Graph *g, uint32_t a, uint32_t b, int depth) {
  size_t n, m;
  const char *p = mark_at(g, a, depth, &n), *q = mark_at(g, b, depth, &m);
  const Prov *x = &g->provs[g->nodes[a].prov], *y = &g->provs[g->nodes[b].prov];
  return p && q && n == m && !memcmp(p, q, n) && x->backward == y->backward &&
         x->recomputed == y->recomputed;
}

static Graph *show(Session *s, Arena *a, const Graph *g, int depth) {
  stack_check();
  bool any = false;
  size_t len = 0;
  for (uint32_t n = 0; n < g->node_count; n++) any |= mark_at(g, n, depth, &len) != NULL;
  if (!any && depth == 0) return (Graph *)g;
  Show w = {s, a, g, depth, ARENA_ARRAY(a, bool, g->type_count + 1)};
  Graph *to = gr_new(a, g->dims, g->names, g->name);
  to->blocks = g->blocks;
  Val *map = ARENA_ARRAY(a, Val, g->type_count + 1);
  uint32_t *body = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  bool *in_body = ARENA_ARRAY(a, bool, g->node_count + 1);
  uint32_t *group = ARENA_ARRAY(a, uint32_t, g->node_count + 1), groups = 0;
  size_t count = 0;
  /* which body each node goes to: 0 = none */
  for (uint32_t n = 0; n <= g->node_count; n++) {
    bool end = n == g->node_count;
    bool joins = !end && count && together(g, body[count - 1], n, depth);
    bool starts = !end && mark_at(g, n, depth, &len) != NULL;
    if (count && !joins && (end || starts || depends(g, n, in_body))) {
      for (size_t i = 0; i < count; i++) in_body[body[i]] = false;
      count = 0;
    }
    if (!starts) continue;
    if (!count) groups++;
    group[n] = groups;
    in_body[n] = true;
    body[count++] = n;
  }
  for (uint32_t n = 0; n < g->node_count; n++)
    for (uint32_t k = 0; k < g->nodes[n].operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      if (!group[v.node] || group[v.node] != group[n]) w.last_use[slot(g, v)] = true;
    }
  for (size_t k = 0; k < g->output_count; k++) w.last_use[slot(g, g->outputs[k])] = true;
  for (uint32_t n = 0; n < g->node_count; n++) {
    if (!group[n]) {
      Val v = copy(&w, to, n, map, true);
      if (val_none(v)) return (Graph *)g;
      for (uint32_t k = 0; k < g->nodes[n].result_count; k++)
        map[g->nodes[n].result0 + k] = (Val){v.node, k};
      continue;
    }
    uint32_t last = n;
    for (uint32_t k = n; k < g->node_count; k++)
      if (group[k] == group[n]) last = k;
    if (n != last) continue; /* no node outside depends on it earlier */
    count = 0;
    for (uint32_t k = 0; k <= last; k++)
      if (group[k] == group[n]) body[count++] = k;
    const char *name = mark_at(g, n, depth, &len);
    if (!close_body(&w, to, body, count, map, name, len)) return (Graph *)g;
  }
  for (size_t k = 0; k < g->output_count; k++) gr_output(to, map[slot(g, g->outputs[k])]);
  for (size_t k = 0; k < g->check_count; k++) {
    const SizeCheck *c = &g->checks[k];
    to->at = g->provs[c->prov];
    gr_check(to, c->kind, c->a, c->b, c->text);
  }
  return to;
}

const Graph *opaque_shown(Session *s, const Graph *g) {
  return show(s, &s->scratch, g, 0);
}
