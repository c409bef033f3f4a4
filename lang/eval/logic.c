/* `and`, `or`, `in` (rule 18).
 *
 * In: the expression. Out: its bool. A scalar on the left of `and` and `or` that decides the answer
 * ends it. Where data decides that in code, the right operand is one side of a choice; but if
 * nobody could see whether it runs, both are computed, which fuses and batches as other operations
 * do.
 */
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/compile/stage.h"
#include "lang/eval/eval.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sides.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"

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

/* ---- x in y */

static bool is_numeric(Value v) {
  return v_is_number(v) || v_is_tensor(v) || v.tag == V_BOOL;
}

static bool is_bool_kind(Session *s, Value v) {
  return v.tag == V_BOOL || (v_is_tensor(v) && op_type_of(s, v).dtype == DT_BOOL);
}

static bool is_float_kind(Session *s, Value v) {
  return v.tag == V_FLOAT || (v_is_tensor(v) && dt_float(op_type_of(s, v).dtype));
}

/* One bool, any or all of a tensor of bools. */
static Value one_bool(Session *s, OpCode op, Value v, Span at) {
  int64_t axes[CKL_MAX_RANK];
  if (v.tag == V_BOOL || v.tag == V_UNKNOWN) return v;
  int rank = op_type_of(s, v).rank;
  for (int k = 0; k < rank; k++) axes[k] = k;
  return rank ? op_reduce(s, op, v, rank, axes, false, at) : v;
}

static Value either(Session *s, AstOp op, Value a, Value b, Span at) {
  bool ends = op == AST_OR;
  if (a.tag == V_BOOL) return (a.u.i != 0) == ends ? a : b;
  if (b.tag == V_BOOL) return (b.u.i != 0) == ends ? b : a;
  return op_binary(s, op, a, b, at, at, at);
}

/* Whether y, of the right side, is x, as `==` says. Values of two kinds are not equal. */
static Value same_element(Session *s, Value x, Value y, Span at, Span left, Span right) {
  stack_check();
  if (is_numeric(x) && is_numeric(y)) {
    if (is_bool_kind(s, x) != is_bool_kind(s, y)) return v_bool(false);
    Type a = op_type_of(s, x), b = op_type_of(s, y);
    if (a.rank != b.rank) return v_bool(false);
    if (v_is_tensor(x) && v_is_tensor(y) && a.dtype != b.dtype && !x.weak && !y.weak)
      return v_bool(false);
    for (int k = 0; k < a.rank; k++)
      if (dim_compare(op_dims_of(s), a.dim[k], b.dim[k]) == DIM_DIFFERENT) return v_bool(false);
    if (x.tag == V_BOOL && y.tag == V_BOOL) return v_bool(x.u.i == y.u.i);
    Value r = op_binary(s, AST_EQ, x, y, at, left, right);
    return one_bool(s, OP_ALL, r, at);
  }
  if (x.tag != y.tag) return v_bool(false);
  size_t n, m;
  const Value *a = value_items(x, &n);
  Value all = v_bool(true);
  if (!a) return v_bool(value_same(x, y));
  value_items(y, &m);
  if (n != m) return v_bool(false);
  for (size_t i = 0; i < n; i++) {
    const Value *b = value_counterpart(x, i, y);
    if (!b) return v_bool(false);
    all = either(s, AST_AND, all, same_element(s, a[i], *b, at, left, right), at);
  }
  return all;
}

Value eval_same_element(Session *s, Value x, Value y, Span at) {
  return same_element(s, x, y, at, at, at);
}

/* any(x == y) of the elements of a tensor. */
static Value in_tensor(Session *s, Node *e, Value x, Value y) {
  if (!is_numeric(x) || op_type_of(s, x).rank)
    fail_at(s, ERR_WANT_INT, e->binary.left->span,
            "`%s` of a tensor looks for one number, not for %s", ast_op_text(e->binary.op),
            value_type_text(s, x));
  Value same = op_binary(s, AST_EQ, x, y, e->span, e->binary.left->span, e->binary.right->span);
  return one_bool(s, OP_ANY, same, e->span);
}

static Value in_items(Session *s, Node *e, Value x, Value of) {
  const List *l = of.u.list;
  Value found = v_bool(false);
  value_bound(s, x, e->binary.left->span);
  value_bound(s, of, e->binary.right->span);
  for (size_t i = 0; i < l->count; i++) {
    if (l->items[i].tag == V_UNKNOWN) return l->items[i];
    Value same =
        same_element(s, x, l->items[i], e->span, e->binary.left->span, e->binary.right->span);
    found = either(s, AST_OR, found, same, e->span);
    if (found.tag == V_BOOL && found.u.i) break;
    if (found.tag == V_TENSOR && tn_get_i64(found.u.t->t, 0)) break;
  }
  return found;
}

static Value in_range(Session *s, Node *e, Value x, const Range *r) {
  Span at = e->span;
  if (!is_numeric(x) || is_bool_kind(s, x) || is_float_kind(s, x))
    fail_help(s, ERR_WANT_INT, e->binary.left->span, "`lo <= x and x < hi` compares",
              "a range has ints, not %s", value_type_text(s, x));
  Value from = op_binary(s, AST_GE, x, r->lo, at, at, at);
  Value to = op_binary(s, AST_LT, x, r->hi, at, at, at);
  if (from.tag == V_BOOL && !from.u.i) return from;
  return from.tag == V_BOOL ? to : op_binary(s, AST_AND, from, to, at, at, at);
}

Value eval_in(Session *s, Node *e, Value x, Value of) {
  Value v;
  if (x.tag == V_UNKNOWN || of.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  if (of.tag == V_STR) {
    want_str(s, x, e->binary.left->span, "what is looked for in a text");
    v = v_bool(text_has(of.u.str, x.u.str));
  } else if (of.tag == V_LIST || of.tag == V_TUPLE) {
    v = in_items(s, e, x, of);
  } else if (of.tag == V_DICT) {
    Value key = dict_key(s, x, e->binary.left->span);
    v = key.tag == V_UNKNOWN ? key : v_bool(dict_find(of.u.dict, key) != NULL);
  } else if (of.tag == V_UNIT) {
    v = v_bool(false);
  } else if (of.tag == V_RANGE) {
    v = in_range(s, e, x, of.u.range);
  } else if (v_is_tensor(of)) {
    v = in_tensor(s, e, x, of);
  } else {
    fail_at(s, ERR_WANT_LIST, e->binary.right->span,
            "`%s` looks into a list, a tuple, a dict, a text, a range or a tensor, not into %s",
            ast_op_text(e->binary.op), value_type_text(s, of));
  }
  if (e->binary.op == AST_IN || v.tag == V_UNKNOWN) return v;
  return v.tag == V_BOOL ? v_bool(!v.u.i) : op_unary(s, OP_NOT, v, e->span);
}
