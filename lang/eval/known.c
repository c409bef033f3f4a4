/* Arithmetic of numbers that are known: ints and floats of script, static ones of code (rule 17).
 *
 * In: an operator and numbers, or an expression. Out: the result. Idea: most expressions of loops
 * are made of literals and local numbers and bools; they have their value without a walk, which
 * counts, holds and protects. Invariant: where a function here says false, nothing has happened,
 * and the walk gives the value or the error.
 */
#include "lang/eval/known.h"

#include <math.h>

#include "lang/eval/bindings.h"
#include "lang/value/fail.h"
#include "runtime/reference/ref_scalar.h"

/* *r = a op b. False: it does not fit, b is 0, or it is no operator on ints. */
static inline bool int_op(AstOp op, int64_t a, int64_t b, int64_t *r) {
  switch (op) {
  case AST_ADD: return !__builtin_add_overflow(a, b, r);
  case AST_SUB: return !__builtin_sub_overflow(a, b, r);
  case AST_MUL: return !__builtin_mul_overflow(a, b, r);
  case AST_FLOORDIV:
    if (b == 0) return false;
    if (b == -1) return !__builtin_sub_overflow((int64_t)0, a, r); /* INT64_MIN / -1 */
    *r = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return true;
  case AST_MOD:
    if (b == 0) return false;
    *r = b == -1 ? 0 : a % b;
    if (*r != 0 && (*r < 0) != (b < 0)) *r += b;
    return true;
  default: return false;
  }
}

/* a ** b, for b >= 0. */
static bool int_power(int64_t a, int64_t b, int64_t *r) {
  *r = 1;
  for (bool fits = true; b > 0; b >>= 1) {
    if ((b & 1) && (!fits || __builtin_mul_overflow(*r, a, r))) return false;
    fits = fits && !__builtin_mul_overflow(a, a, &a);
  }
  return true;
}

int64_t known_int(Session *s, AstOp op, int64_t a, int64_t b, Span at) {
  int64_t r;
  if (op == AST_POW ? int_power(a, b, &r) : int_op(op, a, b, &r)) return r;
  if (b == 0) fail_at(s, ERR_DIV_ZERO, at, "int division by zero");
  fail_at(s, ERR_OVERFLOW, at, "int overflow: %lld %s %lld does not fit 64 bits", (long long)a,
          ast_op_text(op), (long long)b);
}

bool known_compare(AstOp op, int64_t a, int64_t b) {
  switch (op) {
  case AST_LT: return a < b;
  case AST_LE: return a <= b;
  case AST_GT: return a > b;
  case AST_GE: return a >= b;
  case AST_EQ: return a == b;
  default: return a != b;
  }
}

static int sign(bool less, bool more) {
  return more - less;
}

int known_order(int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  int64_t whole = (int64_t)b;
  double rest = b - (double)whole;
  return a != whole ? sign(a<whole, a> whole) : sign(rest > 0, rest < 0);
}

static bool float_op(AstOp op, double a, double b, Value *r) {
  switch (op) {
  case AST_ADD: *r = v_float(a + b); return true;
  case AST_SUB: *r = v_float(a - b); return true;
  case AST_MUL: *r = v_float(a * b); return true;
  case AST_DIV: *r = v_float(a / b); return true;
  case AST_FLOORDIV: *r = v_float(ref_floordiv_f64(a, b)); return true;
  case AST_MOD: *r = v_float(ref_mod_f64(a, b)); return true;
  case AST_LT: *r = v_bool(a < b); return true;
  case AST_LE: *r = v_bool(a <= b); return true;
  case AST_GT: *r = v_bool(a > b); return true;
  case AST_GE: *r = v_bool(a >= b); return true;
  case AST_EQ: *r = v_bool(a == b); return true;
  case AST_NE: *r = v_bool(a != b); return true;
  default: return false;
  }
}

bool known_op(AstOp op, Value a, Value b, Value *r) {
  int64_t i;
  if (a.tag == V_INT && b.tag == V_INT && op != AST_DIV) {
    if (known_compares(op)) {
      *r = v_bool(known_compare(op, a.u.i, b.u.i));
      return true;
    }
    if (!int_op(op, a.u.i, b.u.i, &i)) return false;
    *r = v_int(i);
    return true;
  }
  if ((a.tag != V_INT && a.tag != V_FLOAT) || (b.tag != V_INT && b.tag != V_FLOAT)) return false;
  if (a.tag != b.tag && known_compares(op)) {
    double f = a.tag == V_FLOAT ? a.u.f : b.u.f;
    int k = isnan(f) ? 0 : a.tag == V_INT ? known_order(a.u.i, f) : -known_order(b.u.i, f);
    *r = v_bool(isnan(f) ? op == AST_NE : known_compare(op, k, 0));
    return true;
  }
  double x = a.tag == V_INT ? (double)a.u.i : a.u.f, y = b.tag == V_INT ? (double)b.u.i : b.u.f;
  return float_op(op, x, y, r);
}

static bool value(const Session *s, const Node *e, int depth, Value *v);

/* `and`, `or`: the right side counts where the left one does not decide (rule 18). */
static bool logic(const Session *s, const Node *e, int depth, Value *v) {
  bool decides = e->binary.op == AST_OR;
  if (s->abstract) return false; /* `check` looks at both sides */
  if (!value(s, e->binary.left, depth, v) || v->tag != V_BOOL) return false;
  if ((v->u.i != 0) == decides) return true;
  return value(s, e->binary.right, depth, v) && v->tag == V_BOOL;
}

/* `depth`: of operators; deeper ones are left to the walk, so that none is tried often. */
static bool value(const Session *s, const Node *e, int depth, Value *v) {
  Value a, b;
  const Local *l;
  switch ((NodeKind)e->kind) {
  case N_INT: *v = v_int(e->number.i); return true;
  case N_FLOAT: *v = v_float(e->number.f); return true;
  case N_BOOL: *v = v_bool(e->boolean); return true;
  case N_NAME:
    l = local_find(s, e->name);
    if (!l || (l->v.tag != V_INT && l->v.tag != V_FLOAT && l->v.tag != V_BOOL)) return false;
    *v = l->v;
    return true;
  case N_BINARY:
    if (!depth) return false;
    if (e->binary.op == AST_AND || e->binary.op == AST_OR) return logic(s, e, depth - 1, v);
    return value(s, e->binary.left, depth - 1, &a) && value(s, e->binary.right, depth - 1, &b) &&
           known_op(e->binary.op, a, b, v);
  default: return false;
  }
}

bool known_value(const Session *s, const Node *e, Value *v) {
  return value(s, e, 4, v);
}
