/* Groups of one node, by the kind of its operation.
 *
 * In: a node of a flat graph. Out: what computes it, if nothing is fused with it.
 */
#include "graph/op.h"
#include "graph/opcode.h"
#include "jit/lower/lower_op.h"
#include "jit/plan/plan.h"

const char *const group_kind_name[] = {
    [GROUP_POINT] = "point",   [GROUP_ROWS] = "rows",       [GROUP_COLUMNS] = "columns",
    [GROUP_REDUCE] = "reduce", [GROUP_DOT] = "dot",         [GROUP_CONV] = "conv",
    [GROUP_STRIP] = "strip",   [GROUP_SCATTER] = "scatter", [GROUP_SCAN] = "scan",
    [GROUP_REF] = "ref",       [GROUP_REGION] = "region",   [GROUP_EFFECT] = "effect",
};

GroupKind group_kind(OpCode op) {
  if (low_is_fold(op)) return GROUP_REDUCE;
  switch (op) {
  case OP_ARGMAX:
  case OP_ARGMIN:
  case OP_CUMSUM:
  case OP_CUMMAX:
  case OP_CUMMIN: return GROUP_SCAN;
  case OP_DOT:
  case OP_INNER: return GROUP_DOT;
  case OP_CONV2D:
  case OP_CONV2D_INPUT:
  case OP_CONV2D_WEIGHT: return GROUP_CONV;
  case OP_PUT:
  case OP_PUT_ADD:
  case OP_SCATTER:
  case OP_SCATTER_ADD: return GROUP_SCATTER;
  case OP_CHOLESKY:
  case OP_CHOLESKY_GRAD:
  case OP_LU:
  case OP_EIGH:
  case OP_EIG:
  case OP_QR:
  case OP_SVD:
  case OP_SOLVE:
  case OP_FACTOR_SOLVE:
  case OP_TRIANGULAR:
  case OP_SORT:
  case OP_NONZERO: return GROUP_REF;
  default: break;
  }
  if (op_info[op].cls == EFFECT || (op_info[op].traits & T_EFFECT)) return GROUP_EFFECT;
  if (op_info[op].traits & T_REGION) return GROUP_REGION;
  if (op_info[op].cls == CONTROL && op != OP_VERSION) return GROUP_REF;
  return GROUP_POINT;
}

bool fuse_one(Arena *a, const Graph *g, uint32_t node, const bool *used, Group *out) {
  const GNode *n = &g->nodes[node];
  GroupKind kind = group_kind((OpCode)n->op);
  *out = (Group){.kind = (uint8_t)kind, .root = node, .reason = "a node by itself"};
  out->nodes = ARENA_ARRAY(a, uint32_t, 1);
  if (!low_pulled(g, node)) out->nodes[out->node_count++] = node;
  out->outs = ARENA_ARRAY(a, Val, n->result_count + 1u);
  for (uint32_t k = 0; k < n->result_count; k++) {
    Val v = {node, k};
    if (gr_type(g, v)->kind != TK_TOKEN &&
        (used[n->result0 + k] || (k == 0 && kind != GROUP_EFFECT)))
      out->outs[out->out_count++] = v;
  }
  return n->op != OP_INPUT && n->op != OP_TOKEN;
}
