/* One model of elements, bytes, products, operations and seconds of nodes.
 *
 * In: a node or type, and the values of symbols. Out: counts, which saturate instead of wrapping.
 * Each user gives the counts a weight of its own: the planner of checkpoint blocks (remat_cut.c)
 * adds the cost of moving bytes, the order of groups (order.c) needs bytes alone, the choice of
 * machine code (tiering.c) compares seconds, and reports (report.c) show plain counts.
 * Two other models are separate. Fusion and lowering use the operations for one element, column
 * `cost` itself, and express a kernel's work as a Dim, since the kernel serves all sizes. The shape
 * rules refuse a tensor of 2^63 bytes and more, so their product must not saturate.
 */
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/opcode.h"

static const int64_t most = INT64_MAX / 4;

int64_t cost_mul(int64_t a, int64_t b) {
  int64_t x;
  return __builtin_mul_overflow(a, b, &x) || x > most ? most : x;
}

int64_t cost_add(int64_t a, int64_t b) {
  int64_t x;
  return __builtin_add_overflow(a, b, &x) || x > most ? most : x;
}

int64_t cost_dim(const Graph *g, Dim d, const int64_t *env) {
  int64_t n;
  if (env ? !dim_eval(g->dims, d, env, NULL, &n) : !dim_is_const(g->dims, d, &n))
    return COST_TYPICAL_DIM;
  return n > 0 ? n : 0;
}

int64_t cost_elements(const Graph *g, const Type *t, const int64_t *env) {
  if (t->kind != TK_TENSOR) return 0;
  int64_t n = 1;
  for (int k = 0; k < t->rank; k++) n = cost_mul(n, cost_dim(g, t->dim[k], env));
  return n;
}

int64_t cost_bytes(const Graph *g, const Type *t, const int64_t *env) {
  return cost_mul(cost_elements(g, t, env), (int64_t)dt_size((DType)t->dtype));
}

int64_t cost_room(const Graph *g, const Type *t, const int64_t *env) {
  int64_t n = cost_bytes(g, t, env);
  return n / 64 * 64 + (n % 64 ? 64 : 0);
}

int64_t cost_spilled(const Graph *g, const int64_t *env) {
  int64_t sum = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    const Type *t = &g->types[g->nodes[i].result0];
    if (g->nodes[i].op == OP_PLACE && t->dev == DEV_SPILL)
      sum = cost_add(sum, cost_bytes(g, t, env));
  }
  return sum;
}

int64_t cost_products(const Graph *g, uint32_t node, const int64_t *env) {
  OpClass cls = op_info[g->nodes[node].op].cls;
  if (cls == FACTOR) {
    const Type *x = gr_type(g, gr_operand(g, node, 0));
    return cost_dim(g, x->dim[x->rank - 1], env);
  }
  if (cls != CONTRACT) return 1;
  const Type *a = gr_type(g, gr_operand(g, node, 0)), *b = gr_type(g, gr_operand(g, node, 1));
  int skip = 1; /* the axis of b that is not contracted */
  switch ((OpCode)g->nodes[node].op) {
  case OP_DOT:
  case OP_INNER: return a->rank ? cost_dim(g, a->dim[a->rank - 1], env) : 1;
  case OP_CONV2D: /* channels, height, width of the kernel */ skip = 0; break;
  case OP_CONV2D_INPUT:  /* outputs, height, width of the kernel */
  case OP_CONV2D_WEIGHT: /* images, height, width of the result */
  default: break;
  }
  int64_t p = 1;
  for (int k = 0; k < b->rank; k++)
    if (k != skip) p = cost_mul(p, cost_dim(g, b->dim[k], env));
  return p;
}

int64_t cost_steps(const Graph *g, uint32_t node, const int64_t *env) {
  const GNode *n = &g->nodes[node];
  const OpInfo *op = &op_info[n->op];
  if (!n->result_count) return 0;
  bool reduces = op->cls == REDUCE && n->operand_count;
  const Type *t = reduces ? gr_type(g, gr_operand(g, node, 0)) : &g->types[n->result0];
  return cost_mul(cost_elements(g, t, env), cost_products(g, node, env));
}

int64_t cost_flops(const Graph *g, uint32_t node, const int64_t *env) {
  return cost_mul(cost_steps(g, node, env), op_info[g->nodes[node].op].cost);
}

/* Whether v is a number that is known, in *n. */
static bool number(const Graph *g, Val v, const int64_t *env, int64_t *n) {
  int64_t a, b;
  stack_check();
  switch ((OpCode)g->nodes[v.node].op) {
  case OP_CONST: *n = gr_attr_i(g, v.node, AT_VALUE, 0); return true;
  case OP_DIM: {
    Dim d = (Dim)gr_attr_i(g, v.node, AT_SIZE, 0);
    return env ? dim_eval(g->dims, d, env, NULL, n) : dim_is_const(g->dims, d, n);
  }
  case OP_ADD:
  case OP_SUB:
    if (!number(g, gr_operand(g, v.node, 0), env, &a)) return false;
    if (!number(g, gr_operand(g, v.node, 1), env, &b)) return false;
    return g->nodes[v.node].op == OP_ADD ? !__builtin_add_overflow(a, b, n)
                                         : !__builtin_sub_overflow(a, b, n);
  default: return false;
  }
}

int64_t cost_turns(const Graph *g, uint32_t node, const int64_t *env) {
  int64_t n;
  if (gr_attr(g, node, AT_WHILE) || !number(g, gr_operand(g, node, 0), env, &n)) return -1;
  return n < 0 ? 0 : n;
}

int64_t cost_iterations(const Graph *g, uint32_t node, const int64_t *env) {
  if (g->nodes[node].op == OP_LOOP) {
    int64_t n;
    if (!number(g, gr_operand(g, node, 0), env, &n) || n == INT64_MAX)
      return COST_TYPICAL_ITERATIONS;
    return n < 0 ? 0 : n;
  }
  if (g->nodes[node].op != OP_MAP) return 1;
  const Type *t = gr_type(g, gr_operand(g, node, 0));
  return t->rank ? cost_dim(g, t->dim[0], env) : 1;
}

/* Seconds of the reference evaluator for a multiplication of a contraction, and for an elementary
 * operation. Reading and writing an element costs as much as an operation. */
static const double second_product = 0.1e-9, second_operation = 1e-9;

double cost_seconds(const Graph *g, const int64_t *env) {
  stack_check();
  double sum = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    const OpInfo *op = &op_info[n->op];
    if (op->traits & T_VIEW) continue;
    double each = op->cls == CONTRACT || op->cls == FACTOR ? second_product
                                                           : second_operation * (1 + op->cost);
    sum += each * (double)cost_steps(g, i, env);
    for (uint32_t r = 0; r < n->region_count; r++) {
      if (n->op == OP_CUSTOM && r) break; /* the gradient of region 0 */
      sum += (double)cost_iterations(g, i, env) * cost_seconds(g->regions[n->region0 + r], env);
    }
  }
  return sum;
}
