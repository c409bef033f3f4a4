/* Numbers, bools and texts out of values, where the evaluator needs one.
 *
 * In: a value, its place, what it is for. Out: the plain C value, or an error that names both. In
 * code a value that is known at run time only is an error; a bool made of constants is known.
 */
#include "graph/opcode.h"
#include "lang/compile/stage.h"
#include "lang/eval/ops.h"
#include "lang/eval/want.h"
#include "lang/lang.h"
#include "lang/value/fail.h"

/* The value of a rank-0 i64 or bool of code that depends on constants only, as the counter of an
 * unrolled loop. False: it depends on more. */
static bool known_int(const Stage *st, Val v, int depth, int64_t *out) {
  const Graph *g = st->g;
  const Type *t = gr_type(g, v);
  if (depth > 16 || t->kind != TK_TENSOR || t->rank || (t->dtype != DT_I64 && t->dtype != DT_BOOL))
    return false;
  const GNode *n = &g->nodes[v.node];
  if (n->op == OP_CONST) {
    *out = gr_attr_i(g, v.node, AT_VALUE, 0);
    return true;
  }
  for (size_t i = 0; n->op == OP_INPUT && i < st->capture_count; i++)
    if (val_eq(st->inner[i], v)) return known_int(st->up, st->outer[i], depth + 1, out);
  int64_t a = 0, b = 0, r;
  if (n->operand_count < 1 || n->operand_count > 2) return false;
  if (!known_int(st, g->operands[n->operand0], depth + 1, &a)) return false;
  if (n->operand_count == 2 && !known_int(st, g->operands[n->operand0 + 1], depth + 1, &b))
    return false;
  switch ((OpCode)n->op) {
  case OP_NEG: r = (int64_t)(0 - (uint64_t)a); break;
  case OP_ADD: r = (int64_t)((uint64_t)a + (uint64_t)b); break;
  case OP_SUB: r = (int64_t)((uint64_t)a - (uint64_t)b); break;
  case OP_MUL: r = (int64_t)((uint64_t)a * (uint64_t)b); break;
  case OP_FLOORDIV:
  case OP_MOD:
    if (b <= 0) return false;
    r = n->op == OP_MOD ? a % b + (a % b < 0 ? b : 0) : a / b - (a % b < 0);
    break;
  case OP_EQ: r = a == b; break;
  case OP_NE: r = a != b; break;
  case OP_LT: r = a < b; break;
  case OP_LE: r = a <= b; break;
  case OP_GT: r = a > b; break;
  case OP_GE: r = a >= b; break;
  case OP_AND: r = a && b; break;
  case OP_OR: r = a || b; break;
  case OP_NOT: r = !a; break;
  default: return false;
  }
  *out = r;
  return true;
}

static bool known(const Session *s, Value v, int64_t *out) {
  for (const Stage *st = v.tag == V_NODE ? s->stage : NULL; st; st = st->up)
    if (st->level == v.aux) return known_int(st, v.u.v, 0, out);
  return false;
}

bool want_known(const Session *s, Value v, int64_t *out) {
  return v.tag == V_NODE && v.weak && known(s, v, out);
}

bool want_known_bool(const Session *s, Value v, int64_t *out) {
  return v.tag == V_NODE && known(s, v, out);
}

int64_t want_int(Session *s, Value v, Span at, const char *what) {
  int64_t n = 0;
  if (v.tag == V_INT) return v.u.i;
  if (v.tag == V_DIM) {
    unit_need_const(s, v.u.d, at, what, &n);
    return n;
  }
  const Tensor *t = s->stage ? NULL : v_tensor_of(v);
  if (t && t->rank == 0 && dt_int(t->dtype)) return tn_get_i64(t, 0);
  if (want_known(s, v, &n)) return n;
  if (v.tag == V_NODE)
    fail_at(s, ERR_NOT_CONST, at,
            "%s must be a constant int; this one is known only when the code runs", what);
  if (v.tag == V_TENSOR || v.tag == V_PARAM)
    fail_help(s, ERR_WANT_INT, at, "int(..) reads a rank-0 tensor", "%s must be an int, not %s",
              what, value_type_text(s, v));
  fail_at(s, ERR_WANT_INT, at, "%s must be an int, not %s", what, value_type_text(s, v));
}

double want_float(Session *s, Value v, Span at, const char *what) {
  if (v.tag == V_FLOAT) return v.u.f;
  if (v.tag == V_INT || v.tag == V_DIM) return (double)want_int(s, v, at, what);
  if (v.tag == V_NODE)
    fail_at(s, ERR_NOT_CONST, at,
            "%s must be a constant; this one is known only when the code runs", what);
  fail_at(s, ERR_WANT_NUMBER, at, "%s must be a number, not %s", what, value_type_text(s, v));
}

bool want_bool(Session *s, Value v, Span at, const char *what) {
  if (v.tag == V_BOOL) return v.u.i != 0;
  if (v.tag == V_TENSOR && v.u.t->t->dtype == DT_BOOL && v.u.t->t->rank == 0)
    return tn_get_i64(v.u.t->t, 0) != 0;
  if (v_is_tensor(v) && op_type_of(s, v).dtype == DT_BOOL && op_type_of(s, v).rank > 0)
    fail_help(s, ERR_WANT_BOOL, at, "any(c) or all(c) makes one bool of a tensor",
              "%s must be one bool, not %s", what, value_type_text(s, v));
  int64_t k;
  if (v.tag == V_NODE && op_type_of(s, v).dtype == DT_BOOL && known(s, v, &k)) return k != 0;
  if (v.tag == V_NODE && op_type_of(s, v).dtype == DT_BOOL)
    fail_help(s, ERR_NOT_YET, at, "where(c, a, b) chooses by data",
              "not yet: %s that depends on data in compiled code", what);
  const char *help = v_is_number(v) || v_is_tensor(v) ? "`n != 0` asks for it"
                     : v.tag == V_NONE || v.tag == V_FN || v.tag == V_INST
                         ? "`x != none` asks for it"
                         : "`len(x) > 0` asks for it";
  fail_help(s, ERR_WANT_BOOL, at, help, "%s must be a bool, not %s", what, value_type_text(s, v));
}

const char *want_str(Session *s, Value v, Span at, const char *what) {
  if (v.tag != V_STR)
    fail_at(s, ERR_WANT_STR, at, "%s must be a str, not %s", what, value_type_text(s, v));
  return v.u.str->s;
}

void want_elements(Session *s, Value it, Span at, const char *by) {
  Diag *d = fail_report(s, ERR_ITERATE, at, "%s cannot go through %s", by, value_type_text(s, it));
  const char *t = fail_source_text(s, at, it.tag == V_INT ? "n" : "tree");
  if (it.tag == V_INT)
    dg_help(&s->diags, d, "`0..%s` are the ints below it", t);
  else if (it.tag == V_RECORD || it.tag == V_INST)
    dg_help(&s->diags, d,
            "`each(fn(x) = .., %s)` goes through its leaves, `map` makes a tree of what a function "
            "gives; with `path = true` the function gets the name first",
            it.tag == V_INST ? fail_text(s, "params(%s)", t) : t);
  fail_raise(s);
}
