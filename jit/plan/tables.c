/* Tables: values that depend on no input and are costly, as the roots of unity of a Fourier
 * transform. They are computed once for a function, not in each run.
 *
 * In: a flat graph. Out: the same graph with one more input for each table, behind its own, and the
 * graph that computes the tables. A table is read by a node that is none itself; it costs several
 * operations an element, so that reading it is cheaper than making it where it is read. Its sizes
 * are constants, and what may fail, draws or has an effect is no part of it. */
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/cost.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "jit/plan/plan.h"

enum {
  TABLE_LEAST = 256,    /* operations */
  TABLE_DENSE = 8,      /* operations an element */
  TABLE_BYTES = 1 << 24 /* a larger one is no cheaper to read */
};

typedef struct Tables {
  const Graph *g;
  bool *fixed;   /* per node: depends on constants alone */
  int64_t *work; /* of these: operations, with those of operands */
  bool *table;
  bool *live; /* the graph that is left needs the node */
} Tables;

static bool constant_dims(const Graph *g, const Type *t) {
  int64_t size;
  for (int k = 0; k < t->rank; k++)
    if (!dim_is_const(g->dims, t->dim[k], &size)) return false;
  return t->kind == TK_TENSOR && t->dev == DEV_CPU;
}

static bool constant_attrs(const Graph *g, const GNode *n) {
  int64_t x;
  for (uint32_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &g->attrs[n->attr0 + i];
    if (a->kind == AK_DIM && !dim_is_const(g->dims, (Dim)a->u.i, &x)) return false;
    for (uint32_t k = 0; a->kind == AK_DIMS && k < a->count; k++)
      if (!dim_is_const(g->dims, (Dim)a->u.ints[k], &x)) return false;
  }
  return true;
}

static bool is_fixed(const Tables *t, uint32_t node) {
  const Graph *g = t->g;
  const GNode *n = &g->nodes[node];
  if (n->op == OP_INPUT || n->op == OP_PLACE || n->result_count != 1 ||
      op_info[n->op].traits & (T_EFFECT | T_REGION | T_RANDOM) || node_fails(g, node) ||
      g->provs[n->prov].anomaly || !constant_dims(g, &g->types[n->result0]) ||
      !constant_attrs(g, n))
    return false;
  for (uint32_t k = 0; k < n->operand_count; k++)
    if (!t->fixed[gr_operand(g, node, (int)k).node]) return false;
  return true;
}

/* A fixed node is read by one that is not: it is a table, or its operands may be. */
static void choose(Tables *t, uint32_t node) {
  stack_check();
  const Graph *g = t->g;
  const Type *type = &g->types[g->nodes[node].result0];
  if (t->table[node] || t->live[node]) return;
  int64_t work = t->work[node], n = cost_elements(g, type, NULL);
  if (work >= TABLE_LEAST && work >= TABLE_DENSE * n && cost_bytes(g, type, NULL) <= TABLE_BYTES) {
    t->table[node] = true;
    return;
  }
  t->live[node] = true;
  for (uint32_t k = 0; k < g->nodes[node].operand_count; k++)
    choose(t, gr_operand(g, node, (int)k).node);
}

/* A fixed node is needed as it is. */
static void keep(Tables *t, uint32_t node) {
  stack_check();
  if (t->table[node] || t->live[node]) return;
  t->live[node] = true;
  for (uint32_t k = 0; k < t->g->nodes[node].operand_count; k++)
    keep(t, gr_operand(t->g, node, (int)k).node);
}

static bool find_tables(Arena *a, Tables *t, const Graph *g) {
  size_t n = g->node_count + 1;
  *t = (Tables){g, ARENA_ARRAY(a, bool, n), ARENA_ARRAY(a, int64_t, n), ARENA_ARRAY(a, bool, n),
                ARENA_ARRAY(a, bool, n)};
  bool costly = false, any = false;
  for (uint32_t i = 0; i < g->node_count; i++) {
    t->fixed[i] = is_fixed(t, i);
    if (!t->fixed[i]) continue;
    t->work[i] = cost_flops(g, i, NULL);
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++)
      t->work[i] = cost_add(t->work[i], t->work[gr_operand(g, i, (int)k).node]);
    costly |= t->work[i] >= TABLE_LEAST;
  }
  if (!costly) return false;
  for (uint32_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->nodes[i].operand_count && !t->fixed[i]; k++) {
      uint32_t x = gr_operand(g, i, (int)k).node;
      if (t->fixed[x]) choose(t, x);
    }
  for (size_t i = 0; i < g->output_count; i++)
    if (t->fixed[g->outputs[i].node]) keep(t, g->outputs[i].node);
  for (uint32_t i = 0; i < g->node_count; i++) any |= t->table[i];
  return any;
}

/* The fixed nodes that compute the tables, which are its outputs. */
static Graph *tables_graph(Arena *a, const Tables *t) {
  const Graph *g = t->g;
  bool *need = ARENA_ARRAY(a, bool, g->node_count);
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    if (t->table[i]) need[i] = true;
    for (uint32_t k = 0; need[i] && k < g->nodes[i].operand_count; k++)
      need[gr_operand(g, i, (int)k).node] = true;
  }
  Graph *d = copy_start(a, g);
  ValMap map = map_new(a, g);
  for (uint32_t i = 0; i < g->node_count; i++)
    if (need[i]) copy_node(d, &map, i, NULL);
  for (uint32_t i = 0; i < g->node_count; i++)
    if (t->table[i]) gr_output(d, map_get(&map, (Val){i, 0}));
  return d;
}

static void copy_with_origin(Graph *d, ValMap *map, uint32_t i, const uint32_t *origin,
                             uint32_t *to) {
  to[copy_node(d, map, i, NULL).node] = origin[i];
}

const Graph *plan_tables(Arena *a, const Graph *g, const uint32_t **origin, const Graph **tables) {
  Tables t;
  *tables = NULL;
  if (!find_tables(a, &t, g)) return g;
  *tables = tables_graph(a, &t);
  Graph *d = copy_start(a, g);
  ValMap map = map_new(a, g);
  uint32_t *to = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_INPUT) copy_with_origin(d, &map, i, *origin, to);
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (!t.table[i]) continue;
    d->at = g->provs[g->nodes[i].prov];
    Val v = gr_input(d, &g->types[g->nodes[i].result0]);
    map_set(&map, (Val){i, 0}, v);
    to[v.node] = (*origin)[i];
  }
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op != OP_INPUT && !t.table[i] && (!t.fixed[i] || t.live[i]))
      copy_with_origin(d, &map, i, *origin, to);
  copy_checks(d, g);
  copy_outputs(d, &map);
  d->at = g->at;
  *origin = to;
  return gr_checked(d, "tables");
}
