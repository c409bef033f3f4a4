/* `and` and `or` (rule 18).
 *
 * In: the expression. Out: its bool. A scalar on the left that decides the answer ends it. Where
 * data decides that in code, the right operand is one side of a choice; but if nobody could see
 * whether it runs, both are computed, which fuses and batches as other operations do.
 */
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/compile/stage.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/sides.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"

typedef struct Logic {
  Node *e;
  bool other; /* the right operand is no scalar bool */
} Logic;

static bool scalar_bool(Session *s, Value v) {
  return v.tag == V_BOOL ||
         (v_is_tensor(v) && op_type_of(s, v).dtype == DT_BOOL && op_type_of(s, v).rank == 0);
}

/* Expressions that may fail, draw, or call what may. */
static void find_harm(void *ud, Node *n) {
  bool *found = ud;
  if (!n || *found) return;
  AstOp op = n->kind == N_BINARY ? n->binary.op : AST_NONE;
  *found = n->kind == N_CALL || n->kind == N_INDEX || n->kind == N_COMP || n->kind == N_BLOCK ||
           op == AST_FLOORDIV || op == AST_MOD || op == AST_POW;
  ast_children(n, find_harm, ud);
}

static Value right(Session *s, void *ud) {
  Logic *l = ud;
  Value v = eval_expr(s, l->e->binary.right);
  if (scalar_bool(s, v)) return stage_lift(s, op_as_tensor(s, v, DT_BOOL, l->e->span), l->e->span);
  l->other = true;
  return v_bool(false);
}

static Value decided(Session *s, void *ud) {
  const Logic *l = ud;
  return op_as_tensor(s, v_bool(l->e->binary.op == AST_OR), DT_BOOL, l->e->span);
}

/* The right operand under the condition that the left one leaves the answer open. */
static Value one_of(Session *s, Node *e, Value a) {
  Logic l = {e, false};
  bool either = e->binary.op == AST_OR;
  SideChoice c = {
      .at = e->span, .side = {either ? decided : right, either ? right : decided}, .ud = &l};
  Value v = sides_stage(s, a, &c);
  if (l.other) v = eval_expr(s, e->binary.right);
  Graph *g = s->stage->g;
  if (l.other || v.tag != V_NODE || gr_node(g, v.u.v)->op != OP_BRANCH)
    return op_binary(s, e->binary.op, a, v, e->span, e->binary.left->span, e->binary.right->span);
  const GNode *n = gr_node(g, v.u.v);
  const Graph *side = g->regions[n->region0 + either];
  if (n->result_count > 1 || !gr_harmless(side)) return v; /* more results: it draws, or writes */
  Prov at = g->at;
  Val out;
  GErr err = {.code = ERR_BUG, .operand = -1};
  g->at.path = NULL;
  bool ok = gr_inline(g, side, g->operands + n->operand0 + 1, NULL, &out, &err);
  g->at = at;
  if (!ok) fail_gerr(s, e->span, &err);
  v.u.v = out;
  return op_binary(s, e->binary.op, a, v, e->span, e->binary.left->span, e->binary.right->span);
}

Value eval_logic(Session *s, Node *e) {
  AstOp op = e->binary.op;
  Value a = eval_expr(s, e->binary.left);
  int64_t known;
  bool harm = false;
  if (a.tag == V_UNKNOWN) {
    eval_expr(s, e->binary.right);
    return a;
  }
  if (a.tag == V_NODE && scalar_bool(s, a) && want_known_bool(s, a, &known)) a = v_bool(known != 0);
  if (a.tag == V_BOOL) {
    if ((op == AST_OR) == (a.u.i != 0)) return a;
    Value b = eval_expr(s, e->binary.right);
    if (b.tag != V_BOOL && b.tag != V_UNKNOWN &&
        !(v_is_tensor(b) && op_type_of(s, b).dtype == DT_BOOL))
      fail_at(s, ERR_WANT_BOOL, e->binary.right->span, "`%s` takes bools, this is %s",
              ast_op_text(op), value_type_text(s, b));
    return b;
  }
  if (a.tag == V_TENSOR && a.u.t->t->dtype == DT_BOOL && a.u.t->t->rank == 0 && !s->stage) {
    bool x = tn_get_i64(a.u.t->t, 0) != 0;
    if ((op == AST_OR) == x) return a;
    return eval_expr(s, e->binary.right);
  }
  find_harm(&harm, e->binary.right);
  if (harm && in_code(s) && scalar_bool(s, a)) return one_of(s, e, a);
  Value b = eval_expr(s, e->binary.right);
  return op_binary(s, op, a, b, e->span, e->binary.left->span, e->binary.right->span);
}
