/* The verifier of loop form: a verified kernel is safe to print, walk and compile.
 *
 * In: an array of instructions, from a builder or a text. Out: whether each has the operands,
 * dtypes and place that loop.h asks for, or the first that has not. Addresses are not verified:
 * where they point depends on arguments.
 *
 * One pass with a stack of the open blocks. An operand of depth d is in scope if the block that is
 * open now at depth d - 1 was opened before it: since that block is still open, all later
 * instructions are in it. `varies` marks each value that may differ between lanes of the VEC, RED
 * or TILE around it. */
#include "jit/loop/loop_impl.h"

#include <string.h>

#include "runtime/domain.h"
#include "runtime/elementwise.h"

typedef struct Check {
  const Kernel *k;
  Err *e;
  LVal v; /* the instruction being checked */
  const LIns *in;
  uint32_t open[LP_MAX_DEPTH];
  int depth;
  int lanes; /* open VEC, RED, TILE */
  bool par_seen;
  uint8_t *varies;
} Check;

static bool bad(const Check *c, const char *what) {
  const char *name = c->in->op < LP_COUNT ? lp_info[c->in->op].name : "?";
  if (c->in->op == LP_UN && c->in->imm >= 0 && c->in->imm < RU_COUNT)
    name = elem_un[c->in->imm].name;
  if (c->in->op == LP_BIN && c->in->imm >= 0 && c->in->imm < RB_COUNT)
    name = elem_bin[c->in->imm].name;
  return err_set(c->e, "instruction %u (%s): %s", (unsigned)c->v, name, what);
}

static int open_op(const Check *c, int i) {
  return c->k->ins[c->open[i]].op;
}
static int inner_op(const Check *c) {
  return c->depth ? open_op(c, c->depth - 1) : -1;
}
static bool inside(const Check *c, LOp op) {
  for (int i = 0; i < c->depth; i++)
    if (open_op(c, i) == (int)op) return true;
  return false;
}

/* ---- operands */

static LVal operand(const Check *c, int i) {
  return lp_operand(c->k, c->v, i);
}
static DType type(const Check *c, int i) {
  return lp_dtype(c->k, operand(c, i));
}

/* Whether the block of operand o is still open. */
static bool in_scope(const Check *c, LVal o) {
  int d = c->k->ins[o].depth;
  return d <= c->depth && (d == 0 || o > c->open[d - 1]);
}

/* Whether yield y is in a reduction that is closed and whose own block is still open. */
static bool result_in_scope(const Check *c, LVal y) {
  int d = c->k->ins[y].depth - 1;
  return d <= c->depth && (d == 0 || y > c->open[d - 1]) && (d == c->depth || y < c->open[d]);
}

static bool check_operands(const Check *c) {
  const LOpInfo *info = &lp_info[c->in->op];
  int n = info->operands;
  if (n < 0) n = c->in->imm == RED_FMA || c->in->imm == RED_CHAIN ? 2 : 1;
  if (c->in->operand_count != n) return bad(c, "wrong number of operands");
  if (c->in->operand0 > c->k->operand_count || c->k->operand_count - c->in->operand0 < (size_t)n) {
    return bad(c, "operands out of bounds");
  }
  for (int i = 0; i < n; i++) {
    LVal o = operand(c, i);
    if (o >= c->v) return bad(c, "operand comes later");
    const LIns *from = &c->k->ins[o];
    if (!lp_info[from->op].value) return bad(c, "operand has no value");
    bool var = (c->in->op == LP_GET || c->in->op == LP_SET) && i == 0;
    if (c->in->op == LP_RESULT) {
      if (from->op != LP_YIELD) return bad(c, "result of what is no yield");
      if (!result_in_scope(c, o)) return bad(c, "result out of scope, or of an open reduction");
    } else if (c->in->op == LP_ROW || c->in->op == LP_COL) {
      if (from->op != LP_TILE || from->depth >= c->depth || c->open[from->depth] != o) {
        return bad(c, "not in that tile");
      }
    } else if (lp_info[from->op].opens) {
      if (from->depth >= c->depth || c->open[from->depth] != o)
        return bad(c, "iteration of a closed block");
    } else if (from->op == LP_YIELD) {
      return bad(c, "a yield is read by a result");
    } else if ((from->op == LP_VAR) != var) {
      return bad(c, var ? "not a variable" : "a variable is read by a get");
    } else if (!in_scope(c, o)) {
      return bad(c, "operand out of scope");
    }
  }
  return true;
}

/* Whether all operands from `first` on have this dtype. */
static bool all_are(const Check *c, int first, DType dt) {
  for (int i = first; i < c->in->operand_count; i++)
    if (type(c, i) != dt) return bad(c, "dtype of an operand");
  return true;
}

/* ---- each kind of instruction */

static bool check_buf(const Check *c, unsigned b, bool write, DType dt) {
  if (b >= c->k->buf_count) return bad(c, "no such buffer");
  const LBuf *buf = &c->k->bufs[b];
  if (buf->dtype != dt) return bad(c, "dtype of the buffer");
  if (buf->kind == (write ? LB_IN : LB_OUT)) {
    return bad(c, write ? "store to an input" : "load from an output");
  }
  if (c->depth == 0 && buf->kind != LB_IN) return bad(c, "only inputs can be read here");
  return true;
}

static bool check_red(const Check *c) {
  DType x = type(c, 0), dt = (DType)c->in->dtype;
  if (inner_op(c) != LP_RED) return bad(c, "not directly in a reduction");
  if (c->in->imm == RED_FIRST_MAX || c->in->imm == RED_FIRST_MIN) {
    return dt == DT_I64 ? true : bad(c, "dtype");
  }
  bool truth = c->in->imm == RED_ANY || c->in->imm == RED_ALL;
  if (truth != (x == DT_BOOL)) return bad(c, "not defined for this dtype");
  return dt == x && all_are(c, 1, x) ? true : bad(c, "dtype");
}

/* Checks the dtypes of a function of the table: of its operands (all equal) and its result. */
static bool check_elem(const Check *c, const ElemInfo *f) {
  DType x = type(c, 0), dt = (DType)c->in->dtype;
  if (!dom_has((OpDomain)f->domain, x)) return bad(c, "not defined for this dtype");
  return dt == (f->test ? DT_BOOL : x) ? true : bad(c, "dtype");
}

static bool check_un(const Check *c) {
  return check_elem(c, &elem_un[c->in->imm]);
}

static bool check_bin(const Check *c) {
  return all_are(c, 1, type(c, 0)) && check_elem(c, &elem_bin[c->in->imm]);
}

static bool check_const(const Check *c) {
  DType dt = (DType)c->in->dtype;
  int64_t imm = c->in->imm;
  return lp_scalar_bits(dt, lp_scalar(dt, imm)) == imm ? true : bad(c, "not a value of the dtype");
}

static bool check_set(const Check *c) {
  for (int i = c->k->ins[operand(c, 0)].depth; i < c->depth; i++) {
    int op = open_op(c, i);
    if (op != LP_FOR && op != LP_IF) return bad(c, "variable of iterations that have no order");
  }
  return all_are(c, 0, (DType)c->in->dtype);
}

static bool check_tile(const Check *c) {
  const LIns *in = c->in;
  DType dt = (DType)in->dtype;
  if (dt != DT_F32 && dt != DT_F64) return bad(c, "dtype");
  if (in->mr < 1 || in->mr > 32 || in->nr < 1 || in->nr > 128) return bad(c, "shape");
  if (!check_buf(c, in->buf, false, dt) || !check_buf(c, in->buf_b, false, dt)) return false;
  if (in->buf_start != LP_NO_BUF && !check_buf(c, in->buf_start, false, dt)) return false;
  return all_are(c, 0, DT_I64);
}

/* Checks an opener: its operand, and whether it may stand in the blocks around it. */
static bool check_block(Check *c) {
  LOp op = (LOp)c->in->op;
  LVal n = operand(c, 0);
  if (op == LP_IF) return c->depth && type(c, 0) == DT_BOOL ? true : bad(c, "condition or place");
  if (op == LP_TILE && !check_tile(c)) return false;
  if (op != LP_TILE && c->in->dtype != DT_I64) return bad(c, "dtype");
  if (!all_are(c, 0, DT_I64)) return false;
  if (c->depth == 0) {
    if (op != LP_PAR || c->par_seen) return bad(c, "a kernel is one par");
    if (c->k->ins[n].op != LP_ARG && c->k->ins[n].op != LP_CONST) {
      return bad(c, "iterations are an argument or a constant");
    }
    c->par_seen = true;
  }
  if (c->lanes) {
    if (op == LP_PAR || op == LP_VEC || op == LP_TILE) return bad(c, "inside lanes");
    if (op == LP_RED && inside(c, LP_RED)) return bad(c, "reduction in a reduction");
    if (inside(c, LP_TILE)) return bad(c, "loop in a tile");
    if (c->varies[n]) return bad(c, "iterations differ between lanes");
  }
  return true;
}

static bool check_types(const Check *c) {
  const LIns *in = c->in;
  DType dt = (DType)in->dtype;
  switch (in->op) {
  case LP_YIELD: return check_red(c);
  case LP_RESULT:
  case LP_GET:
  case LP_VAR: return all_are(c, 0, dt);
  case LP_CONST: return check_const(c);
  case LP_LOAD: return check_buf(c, in->buf, false, dt) && all_are(c, 0, DT_I64);
  case LP_STORE:
    if (!check_buf(c, in->buf, true, dt) || !all_are(c, 1, dt)) return false;
    return type(c, 0) == DT_I64 ? true : bad(c, "dtype of the index");
  case LP_SET: return check_set(c);
  case LP_UN: return check_un(c);
  case LP_BIN: return check_bin(c);
  case LP_WHERE: return type(c, 0) == DT_BOOL ? all_are(c, 1, dt) : bad(c, "condition");
  case LP_FMA: return dt != DT_BOOL ? all_are(c, 0, dt) : bad(c, "dtype");
  case LP_CHECK: return dt == DT_I64 ? all_are(c, 0, DT_BOOL) : bad(c, "dtype");
  case LP_UNIFORM:
  case LP_NORMAL: return dt_float(dt) ? all_are(c, 0, DT_I64) : bad(c, "dtype");
  case LP_ROW:
  case LP_COL:
  case LP_END: return dt == DT_I64 ? true : bad(c, "dtype");
  case LP_IDIV:
  case LP_IREM:
  case LP_CTZ:
  case LP_RANDINT:
  case LP_FOLD:
  case LP_PHILOX: return dt == DT_I64 ? all_are(c, 0, DT_I64) : bad(c, "dtype");
  default: return true; /* ARG, CAST */
  }
}

static bool check_imm(const Check *c) {
  static const int limit[LP_COUNT] = {
      [LP_YIELD] = RED_COUNT, [LP_UN] = RU_COUNT, [LP_BIN] = RB_COUNT, [LP_PHILOX] = 4};
  const LIns *in = c->in;
  int64_t most = in->op == LP_ARG ? (int64_t)c->k->arg_count : limit[in->op] ? limit[in->op] : 1;
  if (in->op != LP_CONST && (in->imm < 0 || in->imm >= most)) return bad(c, "immediate");
  bool buf = in->op == LP_LOAD || in->op == LP_STORE;
  if (in->op != LP_TILE) {
    if ((!buf && in->buf != LP_NO_BUF) || in->buf_b != LP_NO_BUF || in->buf_start != LP_NO_BUF ||
        in->mr || in->nr) {
      return bad(c, "buffer of an op that has none");
    }
  }
  return true;
}

/* Whether this value may differ between lanes. */
static bool differs(const Check *c) {
  switch (c->in->op) {
  case LP_VEC:
  case LP_TILE:
  case LP_ROW:
  case LP_COL: return true;
  case LP_RED: return c->lanes == 0; /* inside lanes it is a loop of each lane */
  case LP_LOAD:
  case LP_GET:
  case LP_RESULT:
  case LP_YIELD: return c->lanes > 0;
  default: break;
  }
  for (int i = 0; i < c->in->operand_count; i++)
    if (c->varies[operand(c, i)]) return c->lanes > 0;
  return false;
}

static bool check_one(Check *c) {
  const LIns *in = c->in;
  if (in->op >= LP_COUNT || in->dtype >= DT_COUNT) return bad(c, "unknown op or dtype");
  if (in->op == LP_END) {
    if (c->depth == 0 || c->open[c->depth - 1] != in->match || c->k->ins[in->match].match != c->v) {
      return bad(c, "closes no block");
    }
    c->depth--;
    int was = c->k->ins[in->match].op;
    if (was == LP_VEC || was == LP_RED || was == LP_TILE) c->lanes--;
  }
  if (in->depth != c->depth) return bad(c, "depth");
  if (in->op != LP_END && c->depth == 0) {
    if (c->par_seen) return bad(c, "after the end");
    if (in->op == LP_VAR || in->op == LP_GET || in->op == LP_SET || in->op == LP_STORE) {
      return bad(c, "outside of all iterations");
    }
  }
  if (!check_imm(c) || !check_operands(c) || !check_types(c)) return false;
  if (lp_info[in->op].opens) {
    if (!check_block(c)) return false;
    if (c->depth == LP_MAX_DEPTH) return bad(c, "too deep");
    if (in->match <= c->v || in->match >= c->k->count) return bad(c, "never closed");
  }
  c->varies[c->v] = differs(c);
  if (lp_info[in->op].opens) {
    c->open[c->depth++] = c->v;
    if (in->op == LP_VEC || in->op == LP_RED || in->op == LP_TILE) c->lanes++;
  }
  return true;
}

static bool check_bufs(const Kernel *k, Err *e) {
  if (k->buf_count > LP_MAX_BUFS) return err_set(e, "more than %d buffers", LP_MAX_BUFS);
  if (k->arg_count > LP_MAX_ARGS) return err_set(e, "more than %d arguments", LP_MAX_ARGS);
  if (k->count > LP_MAX_INS) return err_set(e, "more than %d instructions", LP_MAX_INS);
  for (size_t i = 0; i < k->buf_count; i++) {
    const LBuf *b = &k->bufs[i];
    bool ok = b->kind <= LB_LOCAL && b->dtype < DT_COUNT;
    if (ok && b->kind == LB_LOCAL) {
      ok = b->arg >= -1 && (b->arg < 0 || (uint32_t)b->arg < k->arg_count) && b->each > 0 &&
           b->each <= (int64_t)1 << 40;
    } else if (ok) {
      ok = b->arg == -1 && b->each == 0;
    }
    if (!ok) return err_set(e, "buffer %d is wrong", (int)i);
  }
  return true;
}

bool lp_verify(const Kernel *k, Err *e) {
  if (!check_bufs(k, e)) return false;
  ArenaMark mark = arena_mark(k->arena);
  Check c = {.k = k, .e = e};
  c.varies = arena_try(k->arena, k->count + 1);
  if (!c.varies) return err_nomem(e, NULL);
  bool ok = true;
  for (; c.v < k->count && ok; c.v++) {
    c.in = &k->ins[c.v];
    ok = check_one(&c);
  }
  if (ok && c.depth) ok = err_set(e, "a block is not closed");
  if (ok && !c.par_seen) ok = err_set(e, "no par");
  arena_rewind(k->arena, mark);
  return ok;
}
