/* Dead code elimination.
 *
 * In: a graph. Out: the graph without nodes that no output and no effect needs. Inputs stay.
 * Checks stay, since promised sizes are tested whether they are used or not (rule 23). Nodes
 * that can fail stay (rule 107), also those that anomaly mode watches, except in gradients and
 * recomputed copies, which never fail first. One backward sweep marks needed values. In `wrap`,
 * `branch` and `map` it treats each result and capture separately, so unread results and unused
 * captures disappear from the node and its regions. So does what a `loop` carries or keeps, if
 * neither a result nor what it carries besides needs it. `custom` stays whole, since its gradient
 * may read anything.
 * Recursion is over region nesting.
 */
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"

/* Marks the needed results of the graph. */
static bool *sweep(Arena *a, const Graph *g, const bool *keep_out, bool whole);

/* The number of leading operands of the node that are not captures and stay. */
static uint32_t fixed_operands(const Graph *g, uint32_t node) {
  switch (g->nodes[node].op) {
  case OP_BRANCH: return 1;
  case OP_LOOP: return 1;
  case OP_MAP: return (uint32_t)gr_attr_i(g, node, AT_MAPPED, 1);
  case OP_WRAP: return 0;
  default: return g->nodes[node].operand_count;
  }
}

static bool drops_results(OpCode op) {
  return op == OP_WRAP || op == OP_BRANCH || op == OP_MAP || op == OP_LOOP;
}

/* The number of the input of its regions that operand k becomes. */
static uint32_t region_input(OpCode op, uint32_t k) {
  return op == OP_BRANCH ? k - 1 : k;
}

/* The output of the regions that result k of the node is; -1: none, the number of turns. */
static int64_t output_of(const Graph *g, uint32_t node, uint32_t k) {
  if (g->nodes[node].op != OP_LOOP || !gr_attr(g, node, AT_WHILE)) return k;
  int64_t turns = gr_attr_i(g, node, AT_CARRY, 0);
  return k < turns ? k : k == turns ? -1 : (int64_t)k - 1;
}

/* What a loop carries is needed by its results, and by the turns that compute what is needed. */
static void wanted_carry(Arena *a, const Graph *g, uint32_t node, const bool *need, bool *keep) {
  const Graph *in = g->regions[g->nodes[node].region0];
  uint32_t carry = (uint32_t)gr_attr_i(g, node, AT_CARRY, 0);
  for (uint32_t k = 0; k < g->nodes[node].result_count; k++)
    if (output_of(g, node, k) >= 0) keep[output_of(g, node, k)] = need[g->nodes[node].result0 + k];
  if (gr_attr(g, node, AT_WHILE)) keep[0] = true;
  for (bool more = true; more;) {
    const bool *inner = sweep(a, in, keep, false);
    more = false;
    for (uint32_t i = 0; i < carry; i++) {
      if (keep[i] || !inner[in->nodes[in->inputs[1 + i].node].result0]) continue;
      keep[i] = more = true;
    }
  }
}

/* The outputs that the regions of the node must have. NULL = all. */
static bool *wanted(Arena *a, const Graph *g, uint32_t node, const bool *need) {
  const GNode *n = &g->nodes[node];
  if (!drops_results((OpCode)n->op)) return NULL;
  bool *keep = ARENA_ARRAY(a, bool, n->result_count + 1u);
  bool any = false;
  if (n->op == OP_LOOP) {
    wanted_carry(a, g, node, need, keep);
    return keep;
  }
  for (uint32_t i = 0; i < n->result_count; i++) any |= keep[i] = need[n->result0 + i];
  /* A node needs a result: an effect whose results are not read keeps the first one. */
  if (!any && n->result_count) keep[0] = true;
  return keep;
}

/* Marks which operands a node with regions uses, whose regions have the outputs `keep`. */
static void used_operands(Arena *a, const Graph *g, uint32_t node, const bool *keep, bool *used) {
  const GNode *n = &g->nodes[node];
  uint32_t fixed = fixed_operands(g, node);
  for (uint32_t k = 0; k < n->operand_count; k++) used[k] = k < fixed;
  if (fixed == n->operand_count) return;
  for (uint32_t r = 0; r < n->region_count; r++) {
    const Graph *in = g->regions[n->region0 + r];
    const bool *inner = sweep(a, in, keep, false);
    for (uint32_t k = fixed; k < n->operand_count; k++) {
      Val v = in->inputs[region_input((OpCode)n->op, k)];
      bool carried = n->op == OP_LOOP && k <= (uint32_t)gr_attr_i(g, node, AT_CARRY, 0);
      if (carried ? keep[k - 1] : inner[in->nodes[v.node].result0]) used[k] = true;
    }
  }
}

/* The int that all elements of v equal, or `otherwise`. */
static int64_t constant(const Graph *g, Val v, int64_t otherwise) {
  while (g->nodes[v.node].op == OP_BROADCAST || g->nodes[v.node].op == OP_RESHAPE)
    v = gr_operand(g, v.node, 0);
  const Attr *a = g->nodes[v.node].op == OP_CONST ? gr_attr(g, v.node, AT_VALUE) : NULL;
  return a && a->kind == AK_INT ? a->u.i : otherwise;
}

/* Whether anomaly mode watches the node: what it makes may be an error. */
static bool watched(const Graph *g, const GNode *n) {
  bool floats = false;
  for (uint32_t k = 0; k < n->result_count; k++)
    floats |= dt_float((DType)g->types[n->result0 + k].dtype);
  return floats && g->provs[n->prov].anomaly && n->op != OP_CONST &&
         !(op_info[n->op].traits & T_VIEW);
}

bool node_fails(const Graph *g, uint32_t i) {
  const GNode *n = &g->nodes[i];
  const Type *t = &g->types[n->result0];
  int64_t size;
  if (g->provs[n->prov].backward || g->provs[n->prov].recomputed) return false;
  if (watched(g, n)) return true;
  switch (n->op) {
  case OP_FLOORDIV:
  case OP_MOD: return !dt_float((DType)t->dtype) && !constant(g, gr_operand(g, i, 1), 0);
  case OP_POW: return !dt_float((DType)t->dtype) && constant(g, gr_operand(g, i, 1), -1) < 0;
  case OP_RANDINT: return constant(g, gr_operand(g, i, 1), 0) < 1;
  case OP_ARGMAX:
  case OP_ARGMIN: {
    Dim d = gr_type(g, gr_operand(g, i, 0))->dim[gr_attr_i(g, i, AT_AXIS, 0)];
    return !dim_is_const(g->dims, d, &size);
  }
  case OP_SLICE: return false;
  case OP_CUSTOM: { /* region 1 is its gradient */
    const Graph *body = g->regions[n->region0];
    for (uint32_t k = 0; k < body->node_count; k++)
      if (node_fails(body, k)) return true;
    return false;
  }
  default:
    for (uint32_t r = 0; r < n->region_count; r++)
      for (uint32_t k = 0; k < g->regions[n->region0 + r]->node_count; k++)
        if (node_fails(g->regions[n->region0 + r], k)) return true;
    return (op_info[n->op].traits & T_FAIL) != 0;
  }
}

bool gr_harmless(const Graph *g) {
  stack_check();
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_LOOP || node_effect(g, i) || node_fails(g, i)) return false;
  for (size_t i = 0; i < g->region_count; i++)
    if (!gr_harmless(g->regions[i])) return false;
  return true;
}

/* Marks the results that outputs and effects need. `whole`: a node with regions needs all its
 * operands, also those that its regions do not read, since a copy of the node keeps them. */
static bool *sweep(Arena *a, const Graph *g, const bool *keep_out, bool whole) {
  stack_check();
  bool *need = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i];
    if (!keep_out || keep_out[i]) need[g->nodes[v.node].result0 + v.res] = true;
  }
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const GNode *n = &g->nodes[i];
    bool stays = node_effect(g, i) || node_fails(g, i), live = stays;
    for (uint32_t k = 0; k < n->result_count; k++) live = live || need[n->result0 + k];
    if (!live) continue;
    /* A node that stays marks its own first result, so that the copy below keeps it. */
    if (n->result_count && stays) need[n->result0] = true;
    bool *used = NULL;
    if (n->region_count && !whole) {
      used = ARENA_ARRAY(a, bool, n->operand_count + 1);
      used_operands(a, g, i, wanted(a, g, i, need), used);
    }
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = g->operands[n->operand0 + k];
      if (!used || used[k]) need[g->nodes[v.node].result0 + v.res] = true;
    }
  }
  return need;
}

bool *live_results(Arena *a, const Graph *g) {
  return sweep(a, g, NULL, true);
}

bool node_live(const Graph *g, uint32_t node, const bool *live) {
  const GNode *n = &g->nodes[node];
  bool any = n->op == OP_INPUT || node_effect(g, node);
  for (uint32_t k = 0; k < n->result_count && !any; k++) any = live[n->result0 + k];
  return any;
}

static void set_attr(Graph *d, const GNode *n, AttrKey key, int64_t i) {
  for (uint32_t k = 0; k < n->attr_count; k++)
    if (d->attrs[n->attr0 + k].key == key) d->attrs[n->attr0 + k].u.i = i;
}

/* Sets how many of the operands that stay are carried, how many are stashes, and from which of the
 * outputs that stay turns run again. */
static void count_parts(Graph *d, const GNode *copy, const Graph *g, uint32_t node,
                        const bool *used, const bool *keep) {
  int64_t k = 1, end[2] = {1 + gr_attr_i(g, node, AT_CARRY, 0), 0};
  end[1] = end[0] + gr_attr_i(g, node, AT_MAPPED, 0);
  for (int part = 0; part < 2; part++) {
    int64_t left = 0;
    for (; k < end[part]; k++) left += used[k];
    set_attr(d, copy, part ? AT_MAPPED : AT_CARRY, left);
  }
  int64_t first = gr_attr_i(g, node, AT_AGAIN, 0), left = 0;
  int64_t most = (int64_t)g->regions[g->nodes[node].region0]->output_count;
  for (k = 0; k < first && k < most; k++) left += keep[k];
  set_attr(d, copy, AT_AGAIN, left);
}

/* Copies g without dead nodes, with the outputs of keep_out and the inputs of keep_in (NULL =
 * all). *first, the number of a node or of all, becomes that of the first copy from there on. */
static Graph *rebuild(Arena *a, const Graph *g, const bool *keep_out, const bool *keep_in,
                      uint32_t *first) {
  stack_check();
  const bool *need = sweep(a, g, keep_out, false);
  Graph *d = copy_start(a, g);
  ValMap m = map_new(a, g);
  size_t input = 0;
  uint32_t from = first ? *first : 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    if (first && i <= from) *first = (uint32_t)d->node_count;
    if (n->op == OP_INPUT ? keep_in && !keep_in[input++] : !node_live(g, i, need)) continue;
    if (!n->region_count) {
      copy_node(d, &m, i, NULL);
      continue;
    }
    bool *used = ARENA_ARRAY(a, bool, n->operand_count + 1);
    const bool *keep = wanted(a, g, i, need);
    used_operands(a, g, i, keep, used);
    Graph **regions = ARENA_ARRAY(a, Graph *, n->region_count);
    for (uint32_t r = 0; r < n->region_count; r++) {
      const Graph *in = g->regions[n->region0 + r];
      bool *ins = NULL;
      if (fixed_operands(g, i) < n->operand_count) {
        ins = ARENA_ARRAY(a, bool, in->input_count + 1);
        for (uint32_t k = 0; k < n->operand_count; k++) {
          if (n->op == OP_BRANCH && k == 0) continue;
          ins[region_input((OpCode)n->op, k)] = used[k];
        }
      }
      regions[r] = rebuild(a, in, keep, ins, NULL);
    }
    /* The copy has all operands and results: remove the dead ones. */
    Val operand_map = copy_node(d, &m, i, regions);
    GNode *c = &d->nodes[operand_map.node];
    uint32_t to = 0;
    for (uint32_t k = 0; k < n->operand_count; k++) {
      if (used[k]) d->operands[c->operand0 + to++] = d->operands[c->operand0 + k];
    }
    if (n->op == OP_LOOP) count_parts(d, c, g, i, used, keep);
    d->operand_count -= c->operand_count - to;
    c->operand_count = to;
    uint32_t res = 0;
    for (uint32_t k = 0; k < n->result_count; k++) {
      int64_t out = output_of(g, i, k);
      if (keep && out >= 0 && !keep[out]) {
        m.to[n->result0 + k] = VAL_NONE;
        continue;
      }
      d->types[c->result0 + res] = d->types[c->result0 + k];
      m.to[n->result0 + k] = (Val){operand_map.node, res++};
    }
    d->type_count -= c->result_count - res;
    c->result_count = (uint16_t)res;
  }
  if (first && from >= g->node_count) *first = (uint32_t)d->node_count;
  copy_checks(d, g);
  for (size_t i = 0; i < g->output_count; i++) {
    if (!keep_out || keep_out[i]) gr_output(d, map_get(&m, g->outputs[i]));
  }
  if (!keep_out) copy_writes(d, g);
  return d;
}

Graph *gr_dce(Arena *a, const Graph *g) {
  return gr_checked(rebuild(a, g, NULL, NULL, NULL), "dce");
}

Graph *gr_dce_at(Arena *a, const Graph *g, uint32_t *node) {
  return gr_checked(rebuild(a, g, NULL, NULL, node), "dce");
}
