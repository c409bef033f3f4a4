/* Tensor operations on Values.
 *
 * In: Values (tensors, numbers, weak lists). Out: a Value. This is where script and code part
 * (op_run_multi): in script an op runs at once, on the reference evaluator or as machine code
 * (eager_kernels.c), and goes on the tape if an operand is tracked; in code it appends a node to
 * the innermost stage. Before they part, the rules on numbers (11 to 16) and one-sided broadcasting
 * (29) apply, which are the same for both.
 */
#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/compile/eager_kernels.h"
#include "lang/compile/stage.h"
#include "lang/compile/tiering.h"
#include "lang/eval/eval.h"
#include "lang/eval/known.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/rows.h"
#include "lang/eval/shapes.h"
#include "lang/eval/state.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/lang.h"
#include "lang/tape/gradient.h"
#include "lang/tape/record_op.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"
#include "lang/value/tree.h"
#include "runtime/fmath.h"
#include "runtime/reference/ref_scalar.h"

DimTab *op_dims_of(Session *s) {
  return s->stage ? s->stage->g->dims : s->dims;
}

Type op_type_of(Session *s, Value x) {
  Type t = {0};
  t.kind = TK_TENSOR;
  switch ((ValueTag)x.tag) {
  case V_NODE: {
    Stage *st = s->stage;
    while (st && st->level > x.aux) st = st->up;
    if (st) return *gr_type(st->g, x.u.v);
    return t;
  }
  case V_TENSOR:
  case V_PARAM: {
    const Type *staged = s->stage && s->stage->unit ? unit_type(s->stage->unit, x) : NULL;
    if (staged) return *staged;
    const Tensor *c = x.tag == V_TENSOR ? x.u.t->t : x.u.p->t;
    t.dtype = (uint8_t)c->dtype;
    t.dev = (uint8_t)c->store->dev;
    t.rank = (uint8_t)c->rank;
    for (int i = 0; i < c->rank; i++) t.dim[i] = dim_const(op_dims_of(s), c->dim[i]);
    return t;
  }
  case V_BOOL: t.dtype = DT_BOOL; return t;
  case V_FLOAT: t.dtype = DT_F64; return t;
  case V_UNKNOWN: check_gives_up(s);
  default: t.dtype = DT_I64; return t;
  }
}

Tensor *op_tensor_of(Session *s, Value x, Span at) {
  if (x.tag == V_TENSOR) return x.u.t->t;
  if (x.tag == V_PARAM) return x.u.p->t;
  fail_at(s, ERR_WANT_TENSOR, at, "a tensor is needed here, not %s", value_type_text(s, x));
}

/* The int number v of a stage as a dim of sizes, arguments and constants of a call. DIM_BAD: it
 * depends on data. */
static Dim number_dim(const Stage *st, Val v, int depth) {
  stack_check();
  const GNode *n = gr_node(st->g, v);
  DimTab *t = st->g->dims;
  if (depth > 16 || gr_type(st->g, v)->dtype != DT_I64) return DIM_BAD;
  if (n->op == OP_CONST) return dim_const(t, gr_attr_i(st->g, v.node, AT_VALUE, 0));
  if (n->op == OP_DIM) return (Dim)gr_attr_i(st->g, v.node, AT_SIZE, DIM_BAD);
  for (size_t i = 0; n->op == OP_INPUT && i < st->capture_count; i++)
    if (val_eq(st->inner[i], v)) return number_dim(st->up, st->outer[i], depth + 1);
  if (n->op == OP_FITS) return number_dim(st, gr_operand(st->g, v.node, 0), depth + 1);
  if (n->op == OP_INPUT || n->operand_count != 2) return DIM_BAD;
  Dim a = number_dim(st, gr_operand(st->g, v.node, 0), depth + 1);
  Dim b = a == DIM_BAD ? a : number_dim(st, gr_operand(st->g, v.node, 1), depth + 1);
  if (b == DIM_BAD) return b;
  switch ((OpCode)n->op) {
  case OP_ADD: return dim_add(t, a, b);
  case OP_SUB: return dim_sub(t, a, b);
  case OP_MUL: return dim_mul(t, a, b);
  case OP_FLOORDIV: return dim_floordiv(t, a, b);
  case OP_MOD: return dim_mod(t, a, b);
  default: return DIM_BAD;
  }
}

void number_meets(Session *s, Value x, DType dt, Span at) {
  DType have = (DType)op_type_of(s, x).dtype;
  if (dt_float(have) && !dt_float(dt))
    fail_help(s, ERR_FLOAT_INT, at, "cast the tensor: `f32(..)`",
              "a float number does not go with %s", dtype_info[dt].name);
  if (!dt_int(have) || dt_holds(dt, INT64_MAX)) return;
  int64_t known = x.u.i;
  if (x.tag != V_INT) {
    if (dt == DT_BOOL) fail_at(s, ERR_NUMBER_FIT, at, "an int number does not fit bool");
    const Stage *st = s->stage;
    while (x.tag == V_NODE && st->up && st->level > x.aux) st = st->up;
    Dim d = x.tag == V_NODE ? number_dim(st, x.u.v, 0) : x.u.d;
    if (d == DIM_BAD) return;
    if (!dim_is_const(op_dims_of(s), d, &known)) { /* tested when a call gives the dim a value */
      stage_at(s, at);
      gr_check(s->stage->g, CHECK_FITS, d, dim_const(op_dims_of(s), dt), NULL);
      return;
    }
  }
  if (!dt_holds(dt, known))
    fail_at(s, ERR_NUMBER_FIT, at, "%lld does not fit %s", (long long)known, dtype_info[dt].name);
}

/* A number as a rank-0 tensor of dtype dt: rounded once (rules 11, 12). */
static Value number_tensor(Session *s, Value x, DType dt, Span at) {
  number_meets(s, x, dt, at);
  if (x.tag == V_DIM) x = op_dim_node(s, x.u.d);
  if (x.tag == V_NODE) { /* a run-time number of code */
    x.weak = false;
    return op_cast(s, dt_int(dt) ? number_within(s, x, dt, at) : x, dt, at);
  }
  if (s->stage) {
    Value v = {.tag = V_NODE, .aux = s->stage->level};
    Device dev = (Device)DEV_CPU;
    stage_at(s, at);
    v.u.v = x.tag == V_FLOAT ? gr_const_f(s->stage->g, dt, dev, x.u.f)
                             : gr_const_i(s->stage->g, dt, dev, x.u.i);
    return v;
  }
  return v_tensor(s, x.tag == V_FLOAT ? tn_scalar_f64(&s->mem, DEV_CPU, dt, x.u.f)
                                      : tn_scalar_i64(&s->mem, DEV_CPU, dt, x.u.i));
}

static bool weak_is_float(Session *s, Value l) {
  stack_check();
  for (size_t i = 0; i < l.u.list->count; i++) {
    Value v = l.u.list->items[i];
    if (v.tag == V_FLOAT || (v_is_weak_list(v) && weak_is_float(s, v))) return true;
    if (v.tag == V_NODE && dt_float((DType)op_type_of(s, v).dtype)) return true;
  }
  return false;
}

Value op_as_tensor(Session *s, Value x, DType like, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  if (v_is_weak_list(x)) {
    if (like == DT_COUNT) like = weak_is_float(s, x) ? DT_F32 : DT_I64;
    size_t n = x.u.list->count;
    Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
    for (size_t i = 0; i < n; i++) items[i] = op_as_tensor(s, x.u.list->items[i], like, at);
    return op_stack(s, n, items, 0, at);
  }
  if (x.tag == V_INT || x.tag == V_DIM)
    return number_tensor(s, x, like == DT_COUNT ? DT_I64 : like, at);
  if (x.tag == V_FLOAT) return number_tensor(s, x, like == DT_COUNT ? DT_F32 : like, at);
  if (x.tag == V_NODE && x.weak) {
    Type t = op_type_of(s, x);
    return number_tensor(s, x,
                         like != DT_COUNT    ? like
                         : dt_float(t.dtype) ? DT_F32
                                             : (DType)t.dtype,
                         at);
  }
  if (x.tag == V_BOOL) {
    if (s->stage) {
      Value v = {.tag = V_NODE, .aux = s->stage->level};
      v.u.v = gr_const_i(s->stage->g, DT_BOOL, DEV_CPU, x.u.i);
      return v;
    }
    return v_tensor(s, tn_scalar_i64(&s->mem, DEV_CPU, DT_BOOL, x.u.i));
  }
  if (x.tag == V_PARAM) return param_read(s, x.u.p, at);
  if (v_is_tensor(x)) return x;
  if (x.tag == V_ROWS) rows_refuse(s, at);
  if (x.tag == V_LIST)
    fail_help(s, ERR_WANT_TENSOR, at, "`stack(xs)` makes a tensor of a list of tensors",
              "a tensor is needed here, not a list");
  const char *help =
      x.tag == V_RANGE || x.tag == V_SEQ ? "`[e for e in xs]` makes one of its elements"
      : x.tag == V_DICT                  ? "`values(d)` has the values of a dict"
      : x.tag == V_STR ? "of a text `max(s, by = ord)`, `len(s)`, `[ord(c) for c in s]`"
                       : NULL;
  if (help)
    fail_help(s, ERR_WANT_TENSOR, at, help, "a tensor is needed here, not %s",
              value_type_text(s, x));
  fail_at(s, ERR_WANT_TENSOR, at, "a tensor is needed here, not %s", value_type_text(s, x));
}

/* ---- where script and code part */

void op_run_multi(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                  Span at, int nout, Value *out) {
  for (int i = 0; i < n; i++)
    if (v[i].tag == V_UNKNOWN) {
      for (int k = 0; k < nout; k++) out[k] = v[i];
      return;
    }
  GErr e = {.code = ERR_BUG, .operand = -1};
  if (s->stage) {
    Val *in = ARENA_ARRAY(&s->scratch, Val, n + 1);
    for (int i = 0; i < n; i++)
      in[i] = op == OP_STOP || op == OP_VERSION ? stage_lift(s, v[i], at).u.v
                                                : stage_operand(s, v[i], at).u.v;
    Graph *g = s->stage->g;
    stage_at(s, at);
    Val r = gr_op(g, op, in, n, attrs, nattrs, NULL, 0, &e);
    g->at.name = NULL;
    if (val_none(r)) fail_gerr(s, at, &e);
    for (int k = 0; k < nout; k++) {
      out[k] = (Value){.tag = V_NODE, .aux = s->stage->level};
      out[k].u.v = (Val){r.node, (uint32_t)k};
    }
    return;
  }
  fail_running_at(s, at);
  Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, n + 1), *res[OP_RESULTS] = {0};
  bool track = false;
  for (int i = 0; i < n; i++) {
    in[i] = op_tensor_of(s, v[i], at);
    if (!s->modes.no_grad && tape_wants_grad(s, v[i])) track = true;
  }
  RunCtx ctx = {.mem = &s->mem, .interrupt = &s->kernel.stop, .anomaly = s->modes.anomaly};
  if (!native_op(s, &ctx, op, attrs, nattrs, in, n, res, nout, &e)) {
    if (e.interrupted) fail_if_interrupted(s, at);
    fail_gerr(s, at, &e);
  }
  s->count.nodes++;
  if (nout == 1) {
    out[0] = v_tensor(s, res[0]);
  } else {
    value_pool_tensors(s, res, (size_t)nout);
    for (int k = 0; k < nout; k++) out[k] = v_tensor(s, tn_ref(res[k]));
  }
  if (track) tape_record(s, op, n, v, attrs, nattrs, nout, out, at);
}

Value op_run(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs, Span at) {
  Value out;
  op_run_multi(s, op, n, v, attrs, nattrs, at, 1, &out);
  return out;
}

/* ---- numbers */

static const OpCode node_op[] = {[AST_LT] = OP_LT,
                                 [AST_LE] = OP_LE,
                                 [AST_GT] = OP_GT,
                                 [AST_GE] = OP_GE,
                                 [AST_EQ] = OP_EQ,
                                 [AST_NE] = OP_NE,
                                 [AST_ADD] = OP_ADD,
                                 [AST_SUB] = OP_SUB,
                                 [AST_MUL] = OP_MUL,
                                 [AST_DIV] = OP_DIV,
                                 [AST_FLOORDIV] = OP_FLOORDIV,
                                 [AST_MOD] = OP_MOD,
                                 [AST_POW] = OP_POW,
                                 [AST_AND] = OP_AND,
                                 [AST_OR] = OP_OR};

static Value powers(Session *s, Value x, int64_t k, Span at) {
  Value r = x;
  for (int64_t i = 1; i < k; i++) r = op_broadcast_binary(s, OP_MUL, r, x, at, at, at);
  return r;
}

/* a op b of two numbers that are known, where known_op has none. */
static Value slow_op(Session *s, AstOp op, Value a, Value b, Span at) {
  double x = a.tag == V_INT ? (double)a.u.i : a.u.f, y = b.tag == V_INT ? (double)b.u.i : b.u.f;
  if (a.tag == V_INT && b.tag == V_INT && (op != AST_POW || b.u.i >= 0))
    return v_int(known_int(s, op, a.u.i, b.u.i, at));
  if (a.tag == V_INT || b.tag != V_INT || b.u.i < 2 || b.u.i > 4) return v_float(fm_pow_f64(x, y));
  double r = x;
  for (int64_t i = 1; i < b.u.i; i++) r *= x;
  return v_float(r);
}

/* Two numbers, static or of run time. */
static Value number_op(Session *s, AstOp op, Value a, Value b, Span at) {
  stack_check();
  if (a.tag == V_NODE || b.tag == V_NODE) {
    bool fl = op == AST_DIV || a.tag == V_FLOAT || b.tag == V_FLOAT ||
              (a.tag == V_NODE && dt_float(op_type_of(s, a).dtype)) ||
              (b.tag == V_NODE && dt_float(op_type_of(s, b).dtype)) ||
              (op == AST_POW && b.tag == V_INT && b.u.i < 0);
    if (fl && op == AST_POW && b.tag == V_INT && b.u.i >= 2 && b.u.i <= 4) {
      Value x = op_as_tensor(s, a, DT_F64, at), r = powers(s, x, b.u.i, at);
      r.weak = true;
      return r;
    }
    Value x = op_as_tensor(s, a, fl ? DT_F64 : DT_I64, at),
          y = op_as_tensor(s, b, fl ? DT_F64 : DT_I64, at);
    Value r = fl || known_compares(op) ? op_broadcast_binary(s, node_op[op], x, y, at, at, at)
                                       : number_run_time(s, op, x, y, at);
    r.weak = !known_compares(op);
    return r;
  }
  if (a.tag == V_DIM || b.tag == V_DIM) {
    DimTab *t = op_dims_of(s);
    if (a.tag == V_FLOAT || b.tag == V_FLOAT || op == AST_DIV || op == AST_POW) {
      Value x = a.tag == V_DIM ? op_dim_node(s, a.u.d) : a,
            y = b.tag == V_DIM ? op_dim_node(s, b.u.d) : b;
      return number_op(s, op, x, y, at);
    }
    Dim x = a.tag == V_DIM ? a.u.d : dim_const(t, a.u.i),
        y = b.tag == V_DIM ? b.u.d : dim_const(t, b.u.i), r;
    int64_t n, m;
    if (dim_is_const(t, x, &n) && dim_is_const(t, y, &m) && op != AST_DIV && op != AST_POW)
      return number_op(s, op, v_int(n), v_int(m), at);
    switch (op) {
    case AST_ADD: r = dim_add(t, x, y); break;
    case AST_SUB: r = dim_sub(t, x, y); break;
    case AST_MUL: r = dim_mul(t, x, y); break;
    case AST_FLOORDIV: r = dim_floordiv(t, x, y); break;
    case AST_MOD: r = dim_mod(t, x, y); break;
    /* comparisons: decided if provable, else both sizes become part of the signature */
    default: {
      DimOrder o = dim_compare(t, x, y);
      int64_t d;
      if (op == AST_EQ && o != DIM_MAYBE) return v_bool(o == DIM_EQUAL);
      if (op == AST_NE && o != DIM_MAYBE) return v_bool(o != DIM_EQUAL);
      if (dim_is_const(t, dim_sub(t, x, y), &d)) return v_bool(known_compare(op, d, 0));
      int64_t i, j;
      unit_need_const(s, x, at, "a size that is compared", &i);
      unit_need_const(s, y, at, "a size that is compared", &j);
      return v_bool(known_compare(op, i, j));
    }
    }
    if (r == DIM_BAD)
      fail_at(s, ERR_OVERFLOW, at, "a size or number does not fit 64 bits, or is divided by zero");
    return type_dim_value(s, r);
  }
  Value r;
  return known_op(op, a, b, &r) ? r : slow_op(s, op, a, b, at);
}

/* ---- broadcasting */

Value op_broadcast(Session *s, Value x, int rank, const Dim *d, Span at) {
  return op_broadcast_on(s, x, rank, d, x.tag == V_UNKNOWN ? DEV_CPU : op_type_of(s, x).dev, at);
}

/* A rank-0 value on the CPU also moves to the device of the other operand (rule 94). */
Value op_broadcast_on(Session *s, Value x, int rank, const Dim *d, int dev, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  Type t = op_type_of(s, x);
  bool move = dev != t.dev && t.dev == DEV_CPU && t.rank == 0;
  bool same = t.rank == rank && !move;
  for (int i = 0; same && i < rank; i++) same = t.dim[i] == d[i];
  if (same) return x;
  int64_t dims[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = d[i];
  Attr a[2] = {attr_dims(AT_DIMS, rank, dims), attr_i(AT_DEVICE, dev)};
  return op_run(s, OP_BROADCAST, 1, &x, a, move ? 2 : 1, at);
}

Value op_fill_like(Session *s, Value like, double x, Span at) {
  Type t = op_type_of(s, like);
  return op_broadcast_on(s, op_as_tensor(s, v_float(x), (DType)t.dtype, at), t.rank, t.dim, t.dev,
                         at);
}

/* Rule 29: whether `from` stretches to `to`; in code only axes of constant size 1 stretch. A
 * symbolic size never fits a constant 1: it would at size 1 only, and no size is a special case. */
static bool stretches(Session *s, const Type *from, const Type *to, bool *undecided) {
  DimTab *t = op_dims_of(s);
  if (from->rank > to->rank) return false;
  int off = to->rank - from->rank;
  Dim one = dim_const(t, 1);
  for (int i = 0; i < from->rank; i++) {
    Dim a = from->dim[i], b = to->dim[i + off];
    if (a == b || a == one) continue;
    if (b == one || dim_compare(t, a, b) != DIM_MAYBE) return false;
    *undecided = true;
  }
  return true;
}

/* The help for operands whose shapes do not fit. */
static const char *fitting(Session *s, int n, const Type *ty, const Span *operand) {
  int row = n == 2 && ty[0].rank < ty[1].rank ? 0 : 1;
  if (n == 2 && ty[row].rank == 1 && ty[1 - row].rank == 2 && ty[0].dim[0] == ty[1].dim[0])
    return fail_text(s, "shapes align at the right; `expand(%s, 1)` makes a column of the %s",
                     fail_source_text(s, operand[row], ".."), row ? "second" : "first");
  return "the result must have the shape of one operand; a comprehension says every other "
         "combination";
}

void op_check_sizes(Session *s, Dim a, Dim b, Span at, const char *text, const char *help) {
  stage_at(s, at);
  gr_check_help(s->stage->g, CHECK_EQ, a, b, text, help);
}

/* The shape of the operand that all others stretch to; adds checks of undecided dims. `operand`:
 * the places of the operands of `op`. */
static Type common_shape(Session *s, int n, const Type *ty, const Span *operand, Span at,
                         const char *op) {
  for (int pass = 0; pass < 2; pass++) /* the first pass allows no undecided dims */
    for (int i = 0; i < n; i++) {
      bool ok = true, undecided = false;
      for (int k = 0; k < n && ok; k++) ok = k == i || stretches(s, &ty[k], &ty[i], &undecided);
      if (!ok || (undecided && pass == 0)) continue;
      if (undecided && s->stage) {
        for (int k = 0; k < n; k++)
          for (int j = 0; j < ty[k].rank; j++) {
            Dim a = ty[k].dim[j], b = ty[i].dim[j + ty[i].rank - ty[k].rank];
            if (a != b && a != dim_const(op_dims_of(s), 1))
              op_check_sizes(s, a, b, at, fail_text(s, "the shapes of `%s` differ", op),
                             fitting(s, n, ty, operand));
          }
      }
      return ty[i];
    }
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (int i = 0; i < n; i++) {
    if (i) buf_puts(&b, i + 1 == n ? " and " : ", ");
    type_print(&b, op_dims_of(s), &ty[i]);
  }
  Diag *d =
      fail_report(s, ERR_SHAPE_BROADCAST, at, "the shapes of `%s` do not go together: %s", op, b.s);
  dg_help(&s->diags, d, "%s", fitting(s, n, ty, operand));
  fail_raise(s);
}

static const char *op_word(OpCode op) {
  for (AstOp a = AST_LT; a <= AST_POW; a++)
    if (a != AST_RANGE && a != AST_MATMUL && a != AST_NEG &&
        a < (int)(sizeof node_op / sizeof *node_op) && node_op[a] == op && op != OP_INPUT)
      return ast_op_text(a);
  return op_info[op].text;
}

/* Operands of two dtypes: the help casts the narrower one. */
_Noreturn void op_mixed_dtypes(Session *s, const char *op, const Type *t, Span at, Span left,
                               Span right) {
  bool wide = t[0].dtype > t[1].dtype;
  const char *a = dtype_info[t[0].dtype].name, *b = dtype_info[t[1].dtype].name;
  fail_help(s, ERR_DTYPE_MIX, at,
            fail_text(s, "`%s(%s)` casts the %s operand", wide ? a : b,
                      fail_source_text(s, wide ? right : left, ".."), wide ? "right" : "left"),
            "`%s` needs one dtype: the left side is %s, the right side %s", op, a, b);
}

Value op_broadcast_binary(Session *s, OpCode op, Value x, Value y, Span at, Span left, Span right) {
  if (x.tag == V_UNKNOWN || y.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  Type t[2] = {op_type_of(s, x), op_type_of(s, y)};
  if (t[0].dtype != t[1].dtype) op_mixed_dtypes(s, op_word(op), t, at, left, right);
  if (type_eq(&t[0], &t[1])) return op_run(s, op, 2, (Value[]){x, y}, NULL, 0, at);
  Type to = common_shape(s, 2, t, (Span[]){left, right}, at, op_word(op));
  int dev = t[0].dev != DEV_CPU ? t[0].dev : t[1].dev;
  Value v[2] = {op_broadcast_on(s, x, to.rank, to.dim, dev, at),
                op_broadcast_on(s, y, to.rank, to.dim, dev, at)};
  return op_run(s, op, 2, v, NULL, 0, at);
}

static bool number_is_float(Session *s, Value x) {
  return x.tag == V_FLOAT || (x.tag == V_NODE && dt_float((DType)op_type_of(s, x).dtype));
}

/* One of two numbers, by one bool: a number. */
static Value where_numbers(Session *s, Value c, Value x, Value y, Span at) {
  bool fl = number_is_float(s, x) || number_is_float(s, y);
  if (c.tag == V_BOOL || !s->stage) {
    Value v = want_bool(s, c, at, "the condition of `where`") ? x : y;
    if (!fl || v.tag == V_FLOAT) return v;
    if (v.tag == V_INT) return v_float((double)v.u.i);
    x = y = v;
  }
  Value v[3] = {op_as_tensor(s, c, DT_BOOL, at), op_as_tensor(s, x, fl ? DT_F64 : DT_I64, at),
                op_as_tensor(s, y, fl ? DT_F64 : DT_I64, at)};
  Value r = op_run(s, OP_WHERE, 3, v, NULL, 0, at);
  r.weak = true;
  return r;
}

Value op_where(Session *s, Value c, Value x, Value y, Span at) {
  if (c.tag == V_UNKNOWN || x.tag == V_UNKNOWN || y.tag == V_UNKNOWN)
    return (Value){.tag = V_UNKNOWN};
  bool one = c.tag == V_BOOL;
  if (v_is_tensor(c)) one = op_type_of(s, c).dtype == DT_BOOL && !op_type_of(s, c).rank;
  if (one && v_is_number(x) && v_is_number(y)) return where_numbers(s, c, x, y, at);
  if (c.tag == V_BOOL) c = op_as_tensor(s, c, DT_BOOL, at);
  DType like = DT_COUNT;
  if (v_is_tensor(x))
    like = (DType)op_type_of(s, x).dtype;
  else if (v_is_tensor(y))
    like = (DType)op_type_of(s, y).dtype;
  else if (x.tag == V_BOOL)
    like = DT_BOOL;
  else if (x.tag == V_FLOAT || y.tag == V_FLOAT)
    like = DT_F32;
  x = op_as_tensor(s, x, like, at);
  y = op_as_tensor(s, y, like, at);
  Type t[3] = {op_type_of(s, c), op_type_of(s, x), op_type_of(s, y)};
  if (t[0].dtype != DT_BOOL)
    fail_at(s, ERR_WANT_BOOL, at, "the condition of `where` must be bool, not %s",
            value_type_text(s, c));
  if (t[1].dtype != t[2].dtype)
    fail_help(s, ERR_DTYPE_MIX, at, "cast one of them", "`where` needs one dtype: %s and %s",
              dtype_info[t[1].dtype].name, dtype_info[t[2].dtype].name);
  Type to = common_shape(s, 3, t, NULL, at, "where");
  int dev = t[0].dev != DEV_CPU ? t[0].dev : t[1].dev != DEV_CPU ? t[1].dev : t[2].dev;
  Value v[3] = {op_broadcast_on(s, c, to.rank, to.dim, dev, at),
                op_broadcast_on(s, x, to.rank, to.dim, dev, at),
                op_broadcast_on(s, y, to.rank, to.dim, dev, at)};
  return op_run(s, OP_WHERE, 3, v, NULL, 0, at);
}

/* ---- operators */

static bool tree_operand(Value v) {
  return v.tag == V_RECORD || v.tag == V_DICT || v.tag == V_TUPLE || v.tag == V_NONE;
}

Value op_binary(Session *s, AstOp op, Value a, Value b, Span at, Span left, Span right) {
  if (a.tag == V_UNKNOWN || b.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  if (a.tag == V_ROWS || b.tag == V_ROWS) rows_refuse(s, a.tag == V_ROWS ? left : right);
  if (op == AST_EQ || op == AST_NE) {
    bool ta = v_is_tensor(a) || v_is_number(a) || v_is_weak_list(a);
    bool tb = v_is_tensor(b) || v_is_number(b) || v_is_weak_list(b);
    bool bools = (a.tag == V_BOOL && v_is_tensor(b)) || (b.tag == V_BOOL && v_is_tensor(a));
    if (!(ta && tb) && !bools) {
      if (a.tag == V_FN || a.tag == V_INST || b.tag == V_FN || b.tag == V_INST)
        if (a.tag != V_NONE && b.tag != V_NONE)
          fail_help(s, ERR_COMPARE, at, "`same(a, b)` asks whether they are one instance",
                    "functions and instances are not compared by `%s`", ast_op_text(op));
      if (a.tag != b.tag && a.tag != V_NONE && b.tag != V_NONE)
        fail_at(s, ERR_COMPARE, at, "%s and %s cannot be compared", value_type_text(s, a),
                value_type_text(s, b));
      if (a.tag == b.tag) {
        value_bound(s, a, left);
        value_bound(s, b, right);
      }
      Value same = eval_same_element(s, a, b, at);
      if (op == AST_EQ || same.tag == V_UNKNOWN) return same;
      return same.tag == V_BOOL ? v_bool(!same.u.i) : op_unary(s, OP_NOT, same, at);
    }
  }
  if (a.tag == V_STR && b.tag == V_STR) {
    if (op == AST_ADD) return text_joined(s, a.u.str, b.u.str);
    int c = text_order(a.u.str, b.u.str);
    if (known_compares(op)) return v_bool(known_compare(op, c, 0));
  }
  if (op == AST_MATMUL) return op_matmul(s, a, b, at, left, right);
  if (op == AST_AND || op == AST_OR) {
    if (a.tag == V_BOOL) a = op_as_tensor(s, a, DT_BOOL, left);
    if (b.tag == V_BOOL) b = op_as_tensor(s, b, DT_BOOL, right);
    if (!v_is_tensor(a) || !v_is_tensor(b) || op_type_of(s, a).dtype != DT_BOOL ||
        op_type_of(s, b).dtype != DT_BOOL)
      fail_at(s, ERR_WANT_BOOL, v_is_tensor(a) && op_type_of(s, a).dtype == DT_BOOL ? right : left,
              "`%s` takes bools, not %s and %s", ast_op_text(op), value_type_text(s, a),
              value_type_text(s, b));
    return op_broadcast_binary(s, node_op[op], a, b, at, left, right);
  }
  if (v_is_number(a) && v_is_number(b)) return number_op(s, op, a, b, at);
  if (tree_operand(a) || tree_operand(b)) return tree_arith(s, op, a, b, at, left, right);
  Value v[2] = {a, b};
  Span sp[2] = {left, right};
  for (int i = 0; i < 2; i++) {
    if (v[i].tag == V_BOOL && (op == AST_EQ || op == AST_NE))
      v[i] = op_as_tensor(s, v[i], DT_BOOL, sp[i]);
    bool ok = v_is_number(v[i]) || v_is_tensor(v[i]) || (v[i].tag == V_LIST && v[i].u.list->weak);
    if (!ok) {
      if (v[i].tag == V_LIST)
        fail_help(s, ERR_OPERAND, sp[i], "`concat(xs, ys)` joins lists; `stack(xs)` makes a tensor",
                  "`%s` does not work on lists", ast_op_text(op));
      if (v[i].tag == V_STR && op == AST_ADD)
        fail_help(s, ERR_OPERAND, sp[1 - i], "a hole makes a text of it: \"{a}{b}\"",
                  "`+` joins a text to a text, not to %s", value_type_text(s, v[1 - i]));
      const char *help = v[i].tag != V_STR ? NULL
                         : op == AST_MUL   ? "`repeat(s, n)` is a text n times"
                         : op == AST_MOD   ? "a hole holds a value and its format: \"{x:.2f}\""
                         : known_compares(op)
                             ? "a text is compared with a text; `float(s)` reads a number"
                             : NULL;
      if (help)
        fail_help(s, ERR_OPERAND, sp[i], help, "`%s` does not work on %s", ast_op_text(op),
                  value_type_text(s, v[i]));
      fail_at(s, ERR_OPERAND, sp[i], "`%s` does not work on %s", ast_op_text(op),
              value_type_text(s, v[i]));
    }
  }
  /* a literal power of 2, 3, 4 is repeated multiplication (rule 17) */
  if (op == AST_POW && v[1].tag == V_INT && v[1].u.i >= 2 && v[1].u.i <= 4 && v_is_tensor(v[0]))
    return powers(s, op_as_tensor(s, v[0], DT_COUNT, left), v[1].u.i, at);
  DType like = v_is_tensor(v[0])   ? (DType)op_type_of(s, v[0]).dtype
               : v_is_tensor(v[1]) ? (DType)op_type_of(s, v[1]).dtype
                                   : DT_COUNT;
  if (like == DT_COUNT && (v[0].tag == V_FLOAT || v[1].tag == V_FLOAT ||
                           (v[0].tag == V_LIST && weak_is_float(s, v[0])) ||
                           (v[1].tag == V_LIST && weak_is_float(s, v[1]))))
    like = DT_F32;
  if (like != DT_COUNT && !dt_float(like) && like != DT_BOOL) {
    for (int i = 0; i < 2; i++)
      if (v[i].tag == V_FLOAT || (v[i].tag == V_LIST && weak_is_float(s, v[i])))
        fail_help(s, ERR_FLOAT_INT, sp[i],
                  fail_text(s, "cast the tensor: `f32(%s)`", fail_source_text(s, sp[1 - i], "..")),
                  "a float number does not go with %s", dtype_info[like].name);
  }
  Value x = op_as_tensor(s, v[0], like, left), y = op_as_tensor(s, v[1], like, right);
  DType dt = (DType)op_type_of(s, x).dtype;
  if (dt == DT_BOOL && op != AST_EQ && op != AST_NE)
    fail_help(s, ERR_OPERAND, at,
              fail_text(s, "`i64(%s)` counts bools as 0 and 1", fail_source_text(s, left, "..")),
              "`%s` does not work on bool", ast_op_text(op));
  if (op == AST_DIV && dt_int(dt) && dt_int((DType)op_type_of(s, y).dtype))
    fail_help(s, ERR_INT_DIV, at,
              fail_text(s, "`//` divides ints, `f32(%s) / ..` makes floats",
                        fail_source_text(s, left, "..")),
              "`/` does not work on %s tensors", dtype_info[dt].name);
  return op_broadcast_binary(s, node_op[op], x, y, at, left, right);
}

Value op_unary(Session *s, OpCode op, Value x, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  DTypeClass want = builtin_dom_class(op);
  if (v_is_number(x)) {
    if (op == OP_NEG) {
      if (x.tag == V_FLOAT) return v_float(-x.u.f);
      if (x.tag == V_INT) {
        if (x.u.i == INT64_MIN)
          fail_at(s, ERR_OVERFLOW, at, "int overflow: the negative of %lld does not fit 64 bits",
                  (long long)x.u.i);
        return v_int(-x.u.i);
      }
      if (x.tag == V_DIM || !dt_float((DType)op_type_of(s, x).dtype))
        return number_op(s, AST_SUB, v_int(0), x, at);
    }
    if (op == OP_ABS && x.tag == V_INT) return x.u.i < 0 ? op_unary(s, OP_NEG, x, at) : x;
    if (want == DOM_BOOL) want_bool(s, x, at, "the operand of `not`");
    if (x.tag == V_NODE || x.tag == V_DIM) {
      bool keep_int = want == DOM_NUM;
      bool is_float = x.tag == V_NODE && dt_float(op_type_of(s, x).dtype);
      Value t = op_as_tensor(s, x, is_float || !keep_int ? DT_F64 : DT_I64, at);
      Value r = op == OP_ABS && !is_float ? number_magnitude(s, t, at)
                                          : op_run(s, op, 1, &t, NULL, 0, at);
      r.weak = true;
      return r;
    }
    return builtin_number_unary(s, op, x, at);
  }
  if (tree_operand(x) && op == OP_NEG) return tree_arith(s, AST_MUL, v_int(-1), x, at, at, at);
  if (x.tag == V_BOOL && want == DOM_BOOL) return v_bool(!x.u.i);
  x = op_as_tensor(s, x, DT_COUNT, at);
  DType dt = (DType)op_type_of(s, x).dtype;
  if (want == DOM_FLOAT && !dt_float(dt))
    fail_help(
        s, ERR_WANT_FLOAT, at,
        fail_text(s, "cast it: `%s(f32(%s))`", op_info[op].text, fail_source_text(s, at, "..")),
        "`%s` works on floats, this is %s", op_info[op].text, value_type_text(s, x));
  if (want == DOM_NUM && dt == DT_BOOL)
    fail_help(s, ERR_OPERAND, at, "`i64(..)` counts bools as 0 and 1", "`%s` does not work on bool",
              op == OP_NEG ? "-" : op_info[op].text);
  if (want == DOM_BOOL && dt != DT_BOOL)
    fail_at(s, ERR_WANT_BOOL, at, "`%s` works on bools, this is %s", op_info[op].text,
            value_type_text(s, x));
  return op_run(s, op, 1, &x, NULL, 0, at);
}

static Value cast_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  if (tree_structure(v[0], path)) return v[0];
  DType dt = (DType)(intptr_t)((void **)ud)[0];
  return op_cast(s, v[0], dt, *(Span *)((void **)ud)[1]);
}

/* A list of numbers, of rank-0 tensors that script knows, or of rows of these, as a weak tensor;
 * n[k..] are the lengths of its axes, -1 where one is not known yet. False: x is no such list, or
 * its rows differ. */
static bool list_as_weak(Session *s, Value x, int k, int64_t *n, Value *out) {
  if (k == CKL_MAX_RANK) return false;
  const List *l = x.u.list;
  if (n[k] >= 0 && n[k] != (int64_t)l->count) return false;
  n[k] = (int64_t)l->count;
  Value *v = ARENA_ARRAY(&s->scratch, Value, l->count + 1);
  bool rows = l->count && l->items[0].tag == V_LIST;
  for (size_t i = 0; i < l->count; i++) {
    v[i] = l->items[i];
    const Tensor *t = v[i].tag == V_TENSOR && !v[i].u.t->node ? v[i].u.t->t : NULL;
    if (t && t->rank == 0) v[i] = v_scalar(t);
    if (v[i].tag == V_BOOL) v[i] = v_int(v[i].u.i);
    if (rows ? v[i].tag != V_LIST || !list_as_weak(s, v[i], k + 1, n, &v[i]) : !v_is_number(v[i]))
      return false;
  }
  *out = v_list(s, V_LIST, l->count, v);
  out->u.list->weak = true;
  return true;
}

/* A cast makes one tensor of a list of numbers and rank-0 tensors (rule 15). False: x is a tree. */
static bool cast_list(Session *s, Value x, DType dt, Span at, Value *out) {
  int64_t n[CKL_MAX_RANK];
  for (int k = 0; k < CKL_MAX_RANK; k++) n[k] = -1;
  if (!x.u.list->count) { /* without elements, as zeros([0]) */
    Dim none = dim_const(op_dims_of(s), 0);
    *out = op_broadcast(s, op_as_tensor(s, v_int(0), dt, at), 1, &none, at);
    return true;
  }
  if (list_as_weak(s, x, 0, n, out)) {
    *out = op_cast(s, *out, dt, at);
    return true;
  }
  const List *l = x.u.list;
  Value *v = ARENA_ARRAY(&s->scratch, Value, l->count + 1);
  for (size_t i = 0; i < l->count; i++) {
    bool one = v_is_number(l->items[i]) || l->items[i].tag == V_BOOL ||
               (v_is_tensor(l->items[i]) && op_type_of(s, l->items[i]).rank == 0);
    if (!one) return false;
    v[i] = op_cast(s, l->items[i], dt, at);
  }
  *out = op_stack(s, l->count, v, 0, at);
  return true;
}

/* An int number that the int dtype cannot hold is an error (rule 12), in a weak list, too. */
static void want_fit(Session *s, Value x, DType dt, Span at) {
  stack_check();
  if (v_is_weak_list(x))
    for (size_t i = 0; i < x.u.list->count; i++) want_fit(s, x.u.list->items[i], dt, at);
  if ((x.tag == V_INT || x.tag == V_DIM) && dt_int(dt)) number_meets(s, x, dt, at);
}

Value op_cast(Session *s, Value x, DType dt, Span at) {
  Value list;
  if (x.tag == V_UNKNOWN || x.tag == V_NONE) return x;
  if (x.tag == V_LIST && !v_is_weak_list(x) && cast_list(s, x, dt, at, &list)) return list;
  want_fit(s, x, dt, at);
  if (x.tag == V_INT || x.tag == V_FLOAT) { /* a number: cast as a tensor is, and only once */
    if (s->stage) {
      Value v = {.tag = V_NODE, .aux = s->stage->level};
      stage_at(s, at);
      if (dt_float(dt)) {
        v.u.v = x.tag == V_FLOAT ? gr_const_f(s->stage->g, dt, DEV_CPU, x.u.f)
                                 : gr_const_i(s->stage->g, dt, DEV_CPU, x.u.i);
        return v;
      }
      v.u.v = x.tag == V_FLOAT ? gr_const_f(s->stage->g, DT_F64, DEV_CPU, x.u.f)
                               : gr_const_i(s->stage->g, DT_I64, DEV_CPU, x.u.i);
      x = v;
    } else {
      x = v_tensor(s, x.tag == V_FLOAT ? tn_scalar_f64(&s->mem, DEV_CPU, DT_F64, x.u.f)
                                       : tn_scalar_i64(&s->mem, DEV_CPU, DT_I64, x.u.i));
    }
  } else if (x.tag == V_DIM) {
    x = op_dim_node(s, x.u.d);
    x.weak = false;
  } else if (v_is_weak_list(x)) {
    if (dt_float(dt)) return op_as_tensor(s, x, dt, at);
    x = op_as_tensor(s, x, weak_is_float(s, x) ? DT_F64 : DT_I64, at);
  } else if (x.tag == V_BOOL) {
    x = op_as_tensor(s, x, DT_BOOL, at);
  } else if (x.tag == V_RECORD || x.tag == V_DICT || x.tag == V_TUPLE || x.tag == V_LIST) {
    void *ud[2] = {(void *)(intptr_t)dt, &at};
    return tree_map(s, 1, &x, cast_leaf, ud, at);
  } else {
    bool weak = x.tag == V_NODE && x.weak;
    if (weak)
      x.weak = false;
    else
      x = op_as_tensor(s, x, DT_COUNT, at);
  }
  if (op_type_of(s, x).dtype == dt) return x;
  Attr a = attr_i(AT_DTYPE, dt);
  return op_run(s, OP_CAST, 1, &x, &a, 1, at);
}

Value op_dim_node(Session *s, Dim d) {
  Value v = {.tag = V_NODE, .weak = true, .aux = s->stage->level};
  if (d == DIM_BAD)
    fail_at(s, ERR_OVERFLOW, s->stage->g->at.span,
            "a size or number does not fit 64 bits, or is divided by zero");
  v.u.v = gr_dim(s->stage->g, d);
  return v;
}
