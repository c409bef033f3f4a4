/* Which nodes are computed together.
 *
 * In: a flat graph. Out: groups in an order in which they can run, each with its reason. Views and
 * cheap generators belong to no group: whoever reads them makes them.
 * Invariant: every value that a group reads and that is neither an input, a view nor a generator is an
 * `out` of an earlier group; effects keep their order.
 */
#include <string.h>

#include "jit/plan.h"

const char *const group_kind_name[] = {
    [GROUP_POINT] = "point",   [GROUP_ROWS] = "rows",       [GROUP_COLUMNS] = "columns",
    [GROUP_REDUCE] = "reduce", [GROUP_DOT] = "dot",         [GROUP_CONV] = "conv",
    [GROUP_STRIP] = "strip",   [GROUP_SCATTER] = "scatter", [GROUP_SCAN] = "scan",
    [GROUP_REF] = "ref",       [GROUP_REGION] = "region",   [GROUP_EFFECT] = "effect",
};

bool fuse_pulled(const Graph *g, uint32_t node) {
  switch ((OpCode)g->nodes[node].op) {
  case OP_RESHAPE:
  case OP_TRANSPOSE:
  case OP_BROADCAST:
  case OP_SLICE:
  case OP_FLIP:
  case OP_ALIAS:
  case OP_STOP:
  case OP_CONST:
  case OP_DIM:
  case OP_IOTA: return true;
  default: return false;
  }
}

static GroupKind kind_of(OpCode op) {
  switch (op) {
  case OP_SUM:
  case OP_PROD:
  case OP_REDUCE_MAX:
  case OP_REDUCE_MIN:
  case OP_ANY:
  case OP_ALL: return GROUP_REDUCE;
  case OP_ARGMAX:
  case OP_ARGMIN:
  case OP_CUMSUM: return GROUP_SCAN;
  case OP_DOT:
  case OP_INNER: return GROUP_DOT;
  case OP_CONV2D:
  case OP_CONV2D_INPUT:
  case OP_CONV2D_WEIGHT: return GROUP_CONV;
  case OP_PUT:
  case OP_PUT_ADD:
  case OP_SCATTER:
  case OP_SCATTER_ADD: return GROUP_SCATTER;
  case OP_SORT:
  case OP_NONZERO: return GROUP_REF;
  default: break;
  }
  if (op_info[op].cls == EFFECT || (op_info[op].traits & T_EFFECT)) return GROUP_EFFECT;
  if (op_info[op].traits & T_REGION) return GROUP_REGION;
  return GROUP_POINT;
}

/* Whether a tensor of v can be given by making views of a materialised one: no copy, no kernel. */
static bool free_view(const Graph *g, Val v) {
  bool dense = true; /* below here only reshapes so far, seen from the top */
  bool reshaped = false;
  for (;;) {
    const GNode *n = &g->nodes[v.node];
    switch ((OpCode)n->op) {
    case OP_STOP:
    case OP_ALIAS: break;
    case OP_RESHAPE: reshaped = true; break;
    case OP_TRANSPOSE:
    case OP_BROADCAST:
    case OP_SLICE:
      dense = false;
      if (reshaped) return false; /* a reshape of what is not dense copies */
      break;
    default: return n->op != OP_FLIP;
    }
    (void)dense;
    v = gr_operand(g, v.node, 0);
  }
}

typedef struct Fuse {
  Arena *a;
  const Graph *g;
  bool *used; /* per entry of g->types: read by a node or an output */
  bool *root; /* per node: a view that needs a kernel of its own, as it is an output */
} Fuse;

static bool any_used(const Fuse *f, uint32_t node) {
  const GNode *n = &f->g->nodes[node];
  for (uint32_t k = 0; k < n->result_count; k++) {
    if (f->used[n->result0 + k]) return true;
  }
  return false;
}

bool fuse_one(Arena *a, const Graph *g, uint32_t node, const bool *used, Group *out) {
  const GNode *n = &g->nodes[node];
  GroupKind kind = kind_of((OpCode)n->op);
  *out = (Group){.kind = (uint8_t)kind, .root = node, .reason = "a node by itself"};
  out->nodes = ARENA_ARRAY(a, uint32_t, 1);
  if (!fuse_pulled(g, node)) out->nodes[out->node_count++] = node;
  out->outs = ARENA_ARRAY(a, Val, n->result_count + 1u);
  for (uint32_t k = 0; k < n->result_count; k++) {
    Val v = {node, k};
    if (gr_type(g, v)->kind != TK_TOKEN && (used[n->result0 + k] || (k == 0 && kind != GROUP_EFFECT)))
      out->outs[out->out_count++] = v;
  }
  return n->op != OP_INPUT && n->op != OP_TOKEN;
}

void fuse(Arena *a, const Graph *g, Groups *out) {
  Fuse f = {.a = a, .g = g};
  f.used = ARENA_ARRAY(a, bool, g->type_count + 1);
  f.root = ARENA_ARRAY(a, bool, g->node_count + 1);
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i];
    f.used[plan_index(g, v)] = true;
    if (fuse_pulled(g, v.node) && !free_view(g, v)) f.root[v.node] = true;
  }
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const GNode *n = &g->nodes[i];
    bool live = any_used(&f, i) || (op_info[n->op].traits & (T_EFFECT | T_REGION | T_FAIL));
    for (uint32_t k = 0; k < n->operand_count && live; k++) {
      f.used[plan_index(g, g->operands[n->operand0 + k])] = true;
    }
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    Group one;
    if (fuse_pulled(g, i) ? !f.root[i]
                          : !any_used(&f, i) && !(op_info[n->op].traits & (T_EFFECT | T_REGION | T_FAIL)))
      continue;
    if (fuse_one(a, g, i, f.used, &one)) VEC_PUSH(a, out->items, out->count, out->cap, one);
  }
}
