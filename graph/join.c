/* Joining: a `solve` and the `lu` whose factors it alone reads become one `factor_solve`, which
 * keeps the factors to itself.
 *
 * In: a simplified graph, so that equal matrices are factored once. Out: the same graph with fewer
 * nodes and the same bits; `g` itself if there is no such pair. A gradient reads the factors, too,
 * so its forward half keeps both nodes. Between the two only `alias` and `stop` may stand. */
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/opcode.h"
#include "graph/pass.h"

typedef struct Join {
  const Graph *g;
  uint32_t *reads; /* of each result */
  uint32_t *lu;    /* of each node: the `lu` that it is joined with; UINT32_MAX: none */
  bool *gone;      /* each node */
} Join;

static bool is_edge(const Graph *g, Val v) {
  return g->nodes[v.node].op == OP_ALIAS || g->nodes[v.node].op == OP_STOP;
}

static Val behind(const Graph *g, Val v) {
  while (is_edge(g, v)) v = gr_operand(g, v.node, 0);
  return v;
}

static uint32_t *reads_of(const Join *j, Val v) {
  return &j->reads[j->g->nodes[v.node].result0 + v.res];
}

/* Whether v, which is read here, is what `result` of `lu` is, and nothing else reads that. */
static bool alone(const Join *j, Val v, uint32_t lu, uint32_t result) {
  while (*reads_of(j, v) == 1 && is_edge(j->g, v)) v = gr_operand(j->g, v.node, 0);
  return *reads_of(j, v) == 1 && v.node == lu && v.res == result;
}

/* The edges on the way to v that nothing else reads are gone. */
static void drop_edges(Join *j, Val v) {
  for (; *reads_of(j, v) == 1 && is_edge(j->g, v); v = gr_operand(j->g, v.node, 0))
    j->gone[v.node] = true;
}

static bool find_pair(Join *j, uint32_t node) {
  const Graph *g = j->g;
  if (g->nodes[node].op != OP_SOLVE || gr_attr_i(g, node, AT_ACROSS, 0)) return false;
  Val factors = gr_operand(g, node, 1), perm = gr_operand(g, node, 2);
  uint32_t lu = behind(g, factors).node;
  const GNode *n = &g->nodes[lu];
  if (n->op != OP_LU || !gr_attr_i(g, lu, AT_REGULAR, 0) || j->reads[n->result0 + 2] ||
      !alone(j, factors, lu, 0) || !alone(j, perm, lu, 1) || g->provs[n->prov].anomaly ||
      g->provs[g->nodes[node].prov].anomaly ||
      !val_eq(behind(g, gr_operand(g, node, 0)), behind(g, gr_operand(g, lu, 0))))
    return false;
  drop_edges(j, factors);
  drop_edges(j, perm);
  drop_edges(j, gr_operand(g, lu, 0));
  j->gone[lu] = true;
  j->lu[node] = lu;
  return true;
}

/* Finds the pairs of g itself; regions have theirs. */
static bool find_pairs(Arena *a, Join *j, const Graph *g) {
  *j = (Join){g, ARENA_ARRAY(a, uint32_t, g->type_count + 1),
              ARENA_ARRAY(a, uint32_t, g->node_count + 1), ARENA_ARRAY(a, bool, g->node_count + 1)};
  bool any = false;
  for (uint32_t i = 0; i < g->node_count; i++) {
    j->lu[i] = UINT32_MAX;
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++)
      ++*reads_of(j, g->operands[g->nodes[i].operand0 + k]);
  }
  for (size_t i = 0; i < g->output_count; i++) ++*reads_of(j, g->outputs[i]);
  for (uint32_t i = 0; i < g->node_count; i++) any |= find_pair(j, i);
  return any;
}

/* Whether g or one of its regions has a `solve`. */
static bool has_solve(const Graph *g) {
  for (size_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_SOLVE) return true;
  for (size_t i = 0; i < g->region_count; i++)
    if (has_solve(g->regions[i])) return true;
  return false;
}

Graph *gr_join(Arena *a, Graph *g) {
  stack_check();
  if (!has_solve(g)) return g;
  Join j;
  bool any = find_pairs(a, &j, g);
  Graph **inner = ARENA_ARRAY(a, Graph *, g->region_count + 1);
  for (size_t i = 0; i < g->region_count; i++) {
    inner[i] = gr_join(a, g->regions[i]);
    any |= inner[i] != g->regions[i];
  }
  if (!any) return g;
  Graph *d = copy_start(a, g);
  ValMap map = map_new(a, g);
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    if (j.gone[i]) continue;
    if (j.lu[i] == UINT32_MAX) {
      copy_node(d, &map, i, inner + n->region0);
      continue;
    }
    Val v[2] = {map_get(&map, gr_operand(g, i, 0)), map_get(&map, gr_operand(g, i, 3))};
    d->at = g->provs[g->nodes[j.lu[i]].prov]; /* where a singular matrix is reported */
    map.to[n->result0] = gr_op(d, OP_FACTOR_SOLVE, v, 2, NULL, 0, NULL, 0, NULL);
  }
  copy_checks(d, g);
  copy_outputs(d, &map);
  d->at = g->at;
  return d;
}
