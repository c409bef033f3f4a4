/* Arithmetic of int numbers that code knows only when it runs (rules 12, 16).
 *
 * In: an operator and two rank-0 i64 values of code. Out: the value of the result. If that does not
 * fit 64 bits, the call fails with the same error as in script (number-2). Idea: operations on
 * constants are computed now. If the ranges of the operands exclude overflow, the plain operation
 * is enough; else a `fits` node has the wrapped result, and as its second operand a test of it.
 */
#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/known.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"

typedef struct Ints {
  int64_t lo, hi;
} Ints;

enum { DEEP = 8 };
#define COUNTER_MAX ((int64_t)1 << 60) /* most elements of a tensor: 2^63 bytes of i64 */

static const Stage *stage_of(const Session *s, Value v) {
  const Stage *st = s->stage;
  while (st->level > v.aux) st = st->up;
  return st;
}

static bool constant(const Session *s, Value v, int64_t *out) {
  const Graph *g = stage_of(s, v)->g;
  if (gr_node(g, v.u.v)->op != OP_CONST) return false;
  *out = gr_attr_i(g, v.u.v.node, AT_VALUE, 0);
  return true;
}

/* *r is the range of `a op b`. False: it may overflow. */
static bool combine(OpCode op, Ints a, Ints b, Ints *r) {
  if (op == OP_ADD)
    return !__builtin_add_overflow(a.lo, b.lo, &r->lo) &&
           !__builtin_add_overflow(a.hi, b.hi, &r->hi);
  if (op == OP_SUB)
    return !__builtin_sub_overflow(a.lo, b.hi, &r->lo) &&
           !__builtin_sub_overflow(a.hi, b.lo, &r->hi);
  int64_t p[4];
  if (__builtin_mul_overflow(a.lo, b.lo, &p[0]) || __builtin_mul_overflow(a.lo, b.hi, &p[1]) ||
      __builtin_mul_overflow(a.hi, b.lo, &p[2]) || __builtin_mul_overflow(a.hi, b.hi, &p[3]))
    return false;
  *r = (Ints){p[0], p[0]};
  for (int i = 1; i < 4; i++) {
    if (p[i] < r->lo) r->lo = p[i];
    if (p[i] > r->hi) r->hi = p[i];
  }
  return true;
}

static Ints of_dtype(DType dt) {
  if (dt == DT_BOOL) return (Ints){0, 1};
  if (dt == DT_U8) return (Ints){0, 255};
  if (dt == DT_I8) return (Ints){INT8_MIN, INT8_MAX};
  if (dt == DT_I16) return (Ints){INT16_MIN, INT16_MAX};
  if (dt == DT_I32) return (Ints){INT32_MIN, INT32_MAX};
  return (Ints){INT64_MIN, INT64_MAX};
}

/* A range that contains every int that v can be. */
static Ints range_of(const Session *s, const Stage *st, Val v, int depth) {
  const Graph *g = st->g;
  const GNode *n = gr_node(g, v);
  Ints all = of_dtype((DType)gr_type(g, v)->dtype), a, b, r;
  if (depth > DEEP || dt_float((DType)gr_type(g, v)->dtype)) return all;
  switch ((OpCode)n->op) {
  case OP_CONST: a.lo = a.hi = gr_attr_i(g, v.node, AT_VALUE, 0); return a;
  case OP_DIM: {
    Dim d = (Dim)gr_attr_i(g, v.node, AT_SIZE, 0);
    if (dim_is_const(g->dims, d, &a.lo)) return (Ints){a.lo, a.lo};
    return dim_nonneg(g->dims, d) && !unit_mentions_int(s, d) ? (Ints){0, INT64_MAX} : all;
  }
  case OP_INPUT:
    for (size_t i = 0; i < st->capture_count; i++)
      if (val_eq(st->inner[i], v)) return range_of(s, st->up, st->outer[i], depth + 1);
    for (uint32_t i = 0; i < 32 && i < g->input_count; i++)
      if (st->counters >> i & 1 && val_eq(g->inputs[i], v)) return (Ints){0, COUNTER_MAX};
    return all;
  case OP_ALIAS:
  case OP_STOP:
  case OP_RESHAPE:
  case OP_BROADCAST: return range_of(s, st, gr_operand(g, v.node, 0), depth + 1);
  case OP_CAST: {
    Val x = gr_operand(g, v.node, 0);
    a = dt_float((DType)gr_type(g, x)->dtype) ? all : range_of(s, st, x, depth + 1);
    return a.lo >= all.lo && a.hi <= all.hi ? a : all;
  }
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
    a = range_of(s, st, gr_operand(g, v.node, 0), depth + 1);
    b = range_of(s, st, gr_operand(g, v.node, 1), depth + 1);
    return combine((OpCode)n->op, a, b, &r) && r.lo >= all.lo && r.hi <= all.hi ? r : all;
  case OP_FITS: return range_of(s, st, gr_operand(g, v.node, 0), depth + 1);
  case OP_MOD:
    b = range_of(s, st, gr_operand(g, v.node, 1), depth + 1);
    return b.lo > 0 ? (Ints){0, b.hi - 1} : all;
  case OP_FLOORDIV:
    a = range_of(s, st, gr_operand(g, v.node, 0), depth + 1);
    b = range_of(s, st, gr_operand(g, v.node, 1), depth + 1);
    return a.lo >= 0 && b.lo > 0 ? (Ints){0, a.hi} : all;
  case OP_RANDINT:
    b = range_of(s, st, gr_operand(g, v.node, 1), depth + 1);
    return b.hi > 0 ? (Ints){0, b.hi - 1} : all;
  case OP_ARGMAX:
  case OP_ARGMIN: return (Ints){0, COUNTER_MAX};
  case OP_WHERE:
    a = range_of(s, st, gr_operand(g, v.node, 1), depth + 1);
    b = range_of(s, st, gr_operand(g, v.node, 2), depth + 1);
    return (Ints){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  default: return all;
  }
}

static Value literal(Session *s, int64_t i) {
  Value v = {.tag = V_NODE, .aux = s->stage->level};
  v.u.v = gr_const_i(s->stage->g, DT_I64, DEV_CPU, i);
  return v;
}

static Value two(Session *s, OpCode op, Value x, Value y, Span at) {
  return op_run(s, op, 2, (Value[]){x, y}, NULL, 0, at);
}

static Value fits(Session *s, AstOp op, Value r, Value ok, Span at) {
  Attr text = attr_text(AT_TEXT, names_of(s->names, ast_op_text(op)));
  return op_run(s, OP_FITS, 2, (Value[]){r, ok}, &text, 1, at);
}

/* Tests that the wrapped r = x + y or x - y did not overflow: it is on the right side of x. */
static Value sum_fits(Session *s, bool minus, Value x, Value y, Value r, Span at) {
  int64_t c;
  OpCode up = minus ? OP_LE : OP_GE;
  if (constant(s, y, &c)) return two(s, c >= 0 ? up : minus ? OP_GE : OP_LE, r, x, at);
  return two(s, OP_EQ, two(s, OP_GE, y, literal(s, 0), at), two(s, up, r, x, at), at);
}

/* Tests that the wrapped r = x * y did not overflow: r // x is y. -1 times the least int is
 * excluded. */
static Value product_fits(Session *s, Value x, Value y, Value r, Span at) {
  int64_t c;
  if (constant(s, x, &c)) return two(s, OP_EQ, two(s, OP_FLOORDIV, r, x, at), y, at);
  Value none = two(s, OP_EQ, x, literal(s, 0), at);
  Value by = op_run(s, OP_WHERE, 3, (Value[]){none, literal(s, 1), x}, NULL, 0, at);
  Value back = two(s, OP_EQ, two(s, OP_FLOORDIV, r, by, at), y, at);
  Value edge = two(s, OP_AND, two(s, OP_EQ, x, literal(s, -1), at),
                   two(s, OP_EQ, y, literal(s, INT64_MIN), at), at);
  Value others = op_run(s, OP_NOT, 1, &edge, NULL, 0, at);
  return two(s, OP_OR, none, two(s, OP_AND, back, others, at), at);
}

static Value plain_or_tested(Session *s, AstOp op, Value x, Value y, Span at) {
  static const OpCode code[] = {[AST_ADD] = OP_ADD, [AST_SUB] = OP_SUB, [AST_MUL] = OP_MUL};
  int64_t a, b;
  Ints fit;
  bool is_a = constant(s, x, &a), is_b = constant(s, y, &b);
  if (is_a && !is_b && op != AST_SUB) return plain_or_tested(s, op, y, x, at);
  if (op == AST_MUL && is_b && (b == 0 || b == 1)) return b ? x : y;
  if (op == AST_MUL && is_b && b == -1) return plain_or_tested(s, AST_SUB, literal(s, 0), x, at);
  Value r = two(s, code[op], x, y, at);
  if (combine(code[op], range_of(s, stage_of(s, x), x.u.v, 0),
              range_of(s, stage_of(s, y), y.u.v, 0), &fit))
    return r;
  Value ok = op == AST_MUL ? product_fits(s, y, x, r, at) : sum_fits(s, op == AST_SUB, x, y, r, at);
  return fits(s, op, r, ok, at);
}

/* A power whose exponent is known at run time. A float power shows whether it fits: near the bound
 * there is no power but 2 ** 63 itself, whose float is exact. */
static Value power(Session *s, Value x, Value y, Span at) {
  Value f[2] = {op_cast(s, x, DT_F64, at), op_cast(s, y, DT_F64, at)};
  Value p = two(s, OP_POW, f[0], f[1], at), edge = {.tag = V_NODE, .aux = s->stage->level};
  Value least = edge;
  edge.u.v = gr_const_f(s->stage->g, DT_F64, DEV_CPU, 0x1p63);
  least.u.v = gr_const_f(s->stage->g, DT_F64, DEV_CPU, -0x1p63);
  Value in = two(s, OP_AND, two(s, OP_LT, p, edge, at), two(s, OP_GE, p, least, at), at);
  Value ok = two(s, OP_OR, in, two(s, OP_LE, y, literal(s, 1), at), at);
  return fits(s, AST_POW, two(s, OP_POW, x, y, at), ok, at);
}

Value number_run_time(Session *s, AstOp op, Value x, Value y, Span at) {
  int64_t a, b;
  bool known = constant(s, y, &b);
  if (known && constant(s, x, &a) && (op != AST_POW || b >= 0) &&
      (b || (op != AST_FLOORDIV && op != AST_MOD)))
    return literal(s, known_int(s, op, a, b, at));
  switch (op) {
  case AST_ADD:
  case AST_SUB:
  case AST_MUL: return plain_or_tested(s, op, x, y, at);
  case AST_FLOORDIV: {
    if (known && b == -1) return plain_or_tested(s, AST_SUB, literal(s, 0), x, at);
    Value r = two(s, OP_FLOORDIV, x, y, at);
    Ints of = range_of(s, stage_of(s, x), x.u.v, 0), by = range_of(s, stage_of(s, y), y.u.v, 0);
    if (of.lo > INT64_MIN || by.lo > -1 || by.hi < -1) return r;
    Value edge = two(s, OP_AND, two(s, OP_EQ, y, literal(s, -1), at),
                     two(s, OP_EQ, x, literal(s, INT64_MIN), at), at);
    return fits(s, op, r, op_run(s, OP_NOT, 1, &edge, NULL, 0, at), at);
  }
  case AST_MOD: return two(s, OP_MOD, x, y, at);
  default: /* ** */
    if (!known || b < 0) return power(s, x, y, at);
    if (b == 0) return literal(s, 1);
    Value r = x;
    for (int k = 62 - __builtin_clzll((unsigned long long)b); k >= 0; k--) {
      r = plain_or_tested(s, AST_MUL, r, r, at);
      if (b >> k & 1) r = plain_or_tested(s, AST_MUL, r, x, at);
    }
    return r;
  }
}

Value number_extreme(Session *s, OpCode op, Value x, Value y, Span at) {
  Ints a = range_of(s, stage_of(s, x), x.u.v, 0), b = range_of(s, stage_of(s, y), y.u.v, 0);
  if (op == OP_MAX ? a.lo >= b.hi : a.hi <= b.lo) return x;
  if (op == OP_MAX ? b.lo >= a.hi : b.hi <= a.lo) return y;
  return two(s, op, x, y, at);
}

Value number_magnitude(Session *s, Value x, Span at) {
  int64_t k;
  if (constant(s, x, &k) && k > INT64_MIN) return literal(s, k < 0 ? -k : k);
  Value r = op_run(s, OP_ABS, 1, &x, NULL, 0, at);
  if (range_of(s, stage_of(s, x), x.u.v, 0).lo > INT64_MIN) return r;
  return fits(s, AST_NEG, r, two(s, OP_GT, x, literal(s, INT64_MIN), at), at);
}

Value number_within(Session *s, Value x, DType dt, Span at) {
  DType have = (DType)op_type_of(s, x).dtype;
  Ints all = of_dtype(dt), is = range_of(s, stage_of(s, x), x.u.v, 0);
  if (have != DT_I64 || (is.lo >= all.lo && is.hi <= all.hi)) return x;
  Value ok = two(s, OP_AND, two(s, OP_GE, x, literal(s, all.lo), at),
                 two(s, OP_LE, x, literal(s, all.hi), at), at);
  Attr to = attr_i(AT_DTYPE, dt);
  return op_run(s, OP_FITS, 2, (Value[]){x, ok}, &to, 1, at);
}

Value number_node(Session *s, int64_t i) {
  Value v = {.tag = V_NODE, .weak = true, .aux = s->stage->level};
  v.u.v = gr_const_i(s->stage->g, DT_I64, DEV_CPU, i);
  return v;
}
