/* Building kernels in loop form.
 *
 * In: one call per instruction, in order. Out: an array of instructions whose blocks are brackets.
 * A builder checks only the arguments that it reads (lp_verify checks the others). It folds pure
 * steps on constants and the neutral elements of i64 arithmetic, since addresses are built from
 * sizes that may be constants.
 *
 * Invariant: `open` holds the openers of the blocks around the next instruction. */
#include "jit/loop/loop_impl.h"

#include <string.h>

#include "jit/loop/loop_elem.h"

const LOpInfo lp_info[LP_COUNT] = {
    [LP_PAR] = {"par", 1, true, true, false, LF_PLAIN},
    [LP_VEC] = {"vec", 1, true, true, false, LF_PLAIN},
    [LP_FOR] = {"for", 1, true, true, false, LF_PLAIN},
    [LP_RED] = {"red", 1, true, true, false, LF_PLAIN},
    [LP_IF] = {"if", 1, true, false, false, LF_PLAIN},
    [LP_TILE] = {"tile", TILE_OPERANDS, true, true, false, LF_TILE},
    [LP_END] = {"end", 0, false, false, false, LF_PLAIN},
    [LP_YIELD] = {"yield", -1, false, true, false, LF_RED},
    [LP_RESULT] = {"result", 1, false, true, true, LF_PLAIN},
    [LP_ROW] = {"row", 1, false, true, true, LF_PLAIN},
    [LP_COL] = {"col", 1, false, true, true, LF_PLAIN},
    [LP_CONST] = {"const", 0, false, true, true, LF_IMM},
    [LP_ARG] = {"arg", 0, false, true, true, LF_IMM},
    [LP_LOAD] = {"load", 1, false, true, false, LF_BUF},
    [LP_STORE] = {"store", 2, false, false, false, LF_BUF},
    [LP_VAR] = {"var", 1, false, true, false, LF_PLAIN},
    [LP_GET] = {"get", 1, false, true, false, LF_PLAIN},
    [LP_SET] = {"set", 2, false, false, false, LF_PLAIN},
    [LP_UN] = {"", 1, false, true, true, LF_PLAIN},
    [LP_BIN] = {"", 2, false, true, true, LF_PLAIN},
    [LP_WHERE] = {"where", 3, false, true, true, LF_PLAIN},
    [LP_CAST] = {"cast", 1, false, true, true, LF_PLAIN},
    [LP_FMA] = {"fma", 3, false, true, true, LF_PLAIN},
    [LP_IDIV] = {"idiv", 2, false, true, true, LF_PLAIN},
    [LP_IREM] = {"irem", 2, false, true, true, LF_PLAIN},
    [LP_CTZ] = {"ctz", 1, false, true, true, LF_PLAIN},
    [LP_CHECK] = {"check", 1, false, false, false, LF_PLAIN},
    [LP_UNIFORM] = {"uniform", 3, false, true, true, LF_PLAIN},
    [LP_NORMAL] = {"normal", 3, false, true, true, LF_PLAIN},
    [LP_RANDINT] = {"randint", 4, false, true, true, LF_PLAIN},
    [LP_FOLD] = {"foldkey", 2, false, true, true, LF_PLAIN},
    [LP_PHILOX] = {"philox", 6, false, true, true, LF_IMM},
};
const char *const lp_red_name[RED_COUNT] = {"sum", "prod", "max",   "min",       "any",
                                            "all", "fma",  "chain", "first_max", "first_min"};
const char *const lp_buf_name[4] = {"in", "out", "inout", "local"};

Kernel *lp_new(Arena *a) {
  Kernel *k = ARENA_NEW(a, Kernel);
  k->arena = a;
  return k;
}

static int add_buf(Kernel *k, LBuf b) {
  VEC_PUSH(k->arena, k->bufs, k->buf_count, k->buf_cap, b);
  return (int)k->buf_count - 1;
}

int lp_buf(Kernel *k, LBufKind kind, DType dt) {
  return add_buf(k, (LBuf){(uint8_t)kind, (uint8_t)dt, -1, 0});
}

int lp_local(Kernel *k, DType dt, int arg, int64_t each) {
  if (arg >= 0 && (uint32_t)arg >= k->arg_count) k->arg_count = (uint32_t)arg + 1;
  return add_buf(k, (LBuf){LB_LOCAL, (uint8_t)dt, arg < 0 ? -1 : arg, each});
}

LVal lp_push(Kernel *k, LIns in, int n, const LVal *operand) {
  LVal v = (LVal)k->count;
  in.operand_count = (uint8_t)n;
  in.operand0 = (uint32_t)k->operand_count;
  for (int i = 0; i < n; i++) {
    VEC_PUSH(k->arena, k->operands, k->operand_count, k->operand_cap, operand[i]);
  }
  if (in.op == LP_END) {
    CK_ASSERT(k->arena->mem, k->open_count > 0);
    in.match = k->open[--k->open_count];
    k->ins[in.match].match = v;
  }
  in.depth = (uint8_t)k->open_count;
  if (lp_info[in.op].opens) {
    CK_ASSERT(k->arena->mem, k->open_count < LP_MAX_DEPTH);
    k->open[k->open_count++] = v;
  }
  VEC_PUSH(k->arena, k->ins, k->count, k->cap, in);
  return v;
}

LIns lp_ins(LOp op, DType dt, int64_t imm) {
  return (LIns){.op = (uint8_t)op,
                .dtype = (uint8_t)dt,
                .buf = LP_NO_BUF,
                .buf_b = LP_NO_BUF,
                .buf_start = LP_NO_BUF,
                .imm = imm};
}

LVal lp_op(Kernel *k, LOp op, DType dt, int n, const LVal *operand, int64_t imm) {
  if (op == LP_ARG && imm >= 0 && imm >= (int64_t)k->arg_count) k->arg_count = (uint32_t)imm + 1;
  return lp_push(k, lp_ins(op, dt, imm), n, operand);
}

static LVal op1(Kernel *k, LOp op, DType dt, LVal x, int64_t imm) {
  return lp_op(k, op, dt, 1, &x, imm);
}

/* ---- constants and arguments */

static LVal constant(Kernel *k, DType dt, LScalar x) {
  return lp_op(k, LP_CONST, dt, 0, NULL, lp_scalar_bits(dt, x));
}

LVal lp_i(Kernel *k, int64_t x) {
  return lp_op(k, LP_CONST, DT_I64, 0, NULL, x);
}

LVal lp_const(Kernel *k, DType dt, double x) {
  LScalar in = {.d = x}, v;
  lp_eval(LP_CAST, 0, dt, DT_F64, &in, &v);
  return constant(k, dt, v);
}

LVal lp_size(Kernel *k, int arg) {
  return lp_op(k, LP_ARG, DT_I64, 0, NULL, arg);
}
LVal lp_num(Kernel *k, DType dt, int arg) {
  return lp_op(k, LP_ARG, dt, 0, NULL, arg);
}

static bool is_const(const Kernel *k, LVal v) {
  return k->ins[v].op == LP_CONST;
}
static bool is_i64(const Kernel *k, LVal v, int64_t x) {
  return is_const(k, v) && k->ins[v].dtype == DT_I64 && k->ins[v].imm == x;
}

/* ---- blocks */

LVal lp_par(Kernel *k, LVal n) {
  return op1(k, LP_PAR, DT_I64, n, 0);
}
LVal lp_vec(Kernel *k, LVal n) {
  return op1(k, LP_VEC, DT_I64, n, 0);
}
LVal lp_for(Kernel *k, LVal n) {
  return op1(k, LP_FOR, DT_I64, n, 0);
}
LVal lp_red(Kernel *k, LVal n) {
  return op1(k, LP_RED, DT_I64, n, 0);
}
void lp_if(Kernel *k, LVal cond) {
  op1(k, LP_IF, DT_I64, cond, 0);
}
void lp_end(Kernel *k) {
  lp_push(k, lp_ins(LP_END, DT_I64, 0), 0, NULL);
}

LVal lp_yield(Kernel *k, LRed kind, LVal x, LVal y) {
  LVal operand[2] = {x, y};
  DType dt = kind >= RED_FIRST_MAX ? DT_I64 : lp_dtype(k, x);
  return lp_op(k, LP_YIELD, dt, y == LV_NONE ? 1 : 2, operand, kind);
}

LVal lp_result(Kernel *k, LVal yield) {
  return op1(k, LP_RESULT, lp_dtype(k, yield), yield, 0);
}

LVal lp_tile(Kernel *k, DType dt, int mr, int nr, int buf_a, int buf_b, int buf_start,
             const LVal operand[TILE_OPERANDS]) {
  LIns in = lp_ins(LP_TILE, dt, 0);
  in.buf = (uint16_t)buf_a;
  in.buf_b = (uint16_t)buf_b;
  in.buf_start = (uint16_t)buf_start;
  in.mr = (uint8_t)mr;
  in.nr = (uint8_t)nr;
  return lp_push(k, in, TILE_OPERANDS, operand);
}

LVal lp_row(Kernel *k, LVal tile) {
  return op1(k, LP_ROW, DT_I64, tile, 0);
}
LVal lp_col(Kernel *k, LVal tile) {
  return op1(k, LP_COL, DT_I64, tile, 0);
}

/* ---- memory and variables */

LVal lp_load(Kernel *k, int buf, LVal index) {
  LIns in = lp_ins(LP_LOAD, (DType)k->bufs[buf].dtype, 0);
  in.buf = (uint16_t)buf;
  return lp_push(k, in, 1, &index);
}

void lp_store(Kernel *k, int buf, LVal index, LVal v) {
  LIns in = lp_ins(LP_STORE, (DType)k->bufs[buf].dtype, 0);
  in.buf = (uint16_t)buf;
  lp_push(k, in, 2, (LVal[]){index, v});
}

LVal lp_var(Kernel *k, LVal start) {
  return op1(k, LP_VAR, lp_dtype(k, start), start, 0);
}
LVal lp_get(Kernel *k, LVal var) {
  return op1(k, LP_GET, lp_dtype(k, var), var, 0);
}
void lp_set(Kernel *k, LVal var, LVal v) {
  lp_op(k, LP_SET, lp_dtype(k, var), 2, (LVal[]){var, v}, 0);
}

/* ---- scalar code */

/* Folds a pure step whose operands are constants into a constant, or returns LV_NONE. */
static LVal fold(Kernel *k, LOp op, int64_t imm, DType dt, int n, const LVal *operand) {
  LScalar x[LP_MAX_OPERANDS], v;
  for (int i = 0; i < n; i++) {
    if (!is_const(k, operand[i])) return LV_NONE;
    x[i] = lp_scalar(lp_dtype(k, operand[i]), k->ins[operand[i]].imm);
  }
  if (n == 0 || !lp_eval(op, imm, dt, lp_dtype(k, operand[n - 1]), x, &v)) return LV_NONE;
  return constant(k, dt, v);
}

LVal lp_pure(Kernel *k, LOp op, int64_t imm, DType dt, int n, const LVal *operand) {
  LVal c = fold(k, op, imm, dt, n, operand);
  return c != LV_NONE ? c : lp_op(k, op, dt, n, operand, imm);
}

LVal lp_un(Kernel *k, RefUn f, LVal x) {
  DType dt = elem_un[f].test ? DT_BOOL : lp_dtype(k, x);
  return lp_pure(k, LP_UN, f, dt, 1, &x);
}

/* Simplifies x f y if an operand is a neutral or absorbing i64 or bool constant; else LV_NONE. */
static LVal neutral(Kernel *k, RefBin f, LVal x, LVal y) {
  if (lp_dtype(k, x) == DT_BOOL && (f == RB_AND || f == RB_OR)) {
    if (x == y) return x;
    if (is_const(k, x)) return (k->ins[x].imm != 0) == (f == RB_AND) ? y : x;
    if (is_const(k, y)) return (k->ins[y].imm != 0) == (f == RB_AND) ? x : y;
  }
  if (lp_dtype(k, x) != DT_I64) return LV_NONE;
  switch (f) {
  case RB_ADD:
    if (is_i64(k, x, 0)) return y;
    return is_i64(k, y, 0) ? x : LV_NONE;
  case RB_SUB: return is_i64(k, y, 0) ? x : LV_NONE;
  case RB_MUL:
    if (is_i64(k, x, 1) || is_i64(k, y, 0)) return y;
    return is_i64(k, y, 1) || is_i64(k, x, 0) ? x : LV_NONE;
  case RB_FLOORDIV: return is_i64(k, y, 1) ? x : LV_NONE;
  case RB_MAX:
  case RB_MIN: return x == y ? x : LV_NONE;
  default: return LV_NONE;
  }
}

LVal lp_bin(Kernel *k, RefBin f, LVal x, LVal y) {
  LVal v = neutral(k, f, x, y);
  if (v != LV_NONE) return v;
  DType dt = elem_bin[f].test ? DT_BOOL : lp_dtype(k, x);
  return lp_pure(k, LP_BIN, f, dt, 2, (LVal[]){x, y});
}

LVal lp_where(Kernel *k, LVal c, LVal x, LVal y) {
  if (x == y) return x;
  if (is_const(k, c)) return k->ins[c].imm ? x : y;
  return lp_op(k, LP_WHERE, lp_dtype(k, x), 3, (LVal[]){c, x, y}, 0);
}

LVal lp_cast(Kernel *k, LVal x, DType to) {
  if (lp_dtype(k, x) == to) return x;
  return lp_pure(k, LP_CAST, 0, to, 1, &x);
}

LVal lp_fma(Kernel *k, LVal x, LVal y, LVal z) {
  return lp_pure(k, LP_FMA, 0, lp_dtype(k, x), 3, (LVal[]){x, y, z});
}

LVal lp_idiv(Kernel *k, LVal x, LVal y) {
  if (is_i64(k, y, 1)) return x;
  return lp_pure(k, LP_IDIV, 0, DT_I64, 2, (LVal[]){x, y});
}

LVal lp_irem(Kernel *k, LVal x, LVal y) {
  if (is_i64(k, y, 1)) return lp_i(k, 0);
  return lp_pure(k, LP_IREM, 0, DT_I64, 2, (LVal[]){x, y});
}

bool lp_may_fail(const Kernel *k, LVal v) {
  const LIns *in = &k->ins[v];
  if (in->op != LP_BIN || dt_float((DType)in->dtype)) return false;
  if (in->imm != RB_FLOORDIV && in->imm != RB_MOD && in->imm != RB_POW) return false;
  const LIns *y = &k->ins[lp_operand(k, v, 1)];
  return y->op != LP_CONST || (in->imm == RB_POW ? y->imm < 0 : y->imm == 0);
}

bool lp_fails(const Kernel *k) {
  for (LVal v = 0; v < k->count; v++)
    if (k->ins[v].op == LP_CHECK || lp_may_fail(k, v)) return true;
  return false;
}
