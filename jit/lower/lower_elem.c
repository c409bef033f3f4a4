/* Elementwise ops and generators, one element at a time; groups of them.
 *
 * In: a node and a spot. Out: straight-line code for its element. Each op is an instruction of the
 * loop form, whose bits are those of ref_elem.c; random numbers are functions of a key and
 * the number of the element (ref_random.c). */
#include <string.h>

#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"
#include "jit/lower/lower_op.h"

/* 1 + the number of the function that an op is; 0: none. */
static const uint8_t un_of[OP_COUNT] = {
#define UN(NAME, ...) [OP_##NAME] = 1 + RU_##NAME,
#include "runtime/elementwise_rows.def"
};
static const uint8_t bin_of[OP_COUNT] = {
#define BIN(NAME, ...) [OP_##NAME] = 1 + RB_##NAME,
#include "runtime/elementwise_rows.def"
};

bool low_elementwise(OpCode op) {
  return op_info[op].cls == ELEMENTWISE;
}

static LVal operand(Low *w, uint32_t node, int i, const Spot *s) {
  return low_at(w, gr_operand(w->l->g, node, i), s);
}

static bool is_one(const Kernel *k, LVal x) {
  const LIns *in = &k->ins[x];
  return in->op == LP_CONST &&
         in->imm == (dt_float((DType)in->dtype) ? (int64_t)0x3ff0000000000000 : 1);
}

LVal low_apply(Kernel *k, OpCode op, DType to, const LVal *x) {
  if (un_of[op]) return lp_un(k, (RefUn)(un_of[op] - 1), x[0]);
  if (op == OP_MUL || op == OP_DIV) { /* a gradient starts with 1 */
    if (is_one(k, x[1])) return x[0];
    if (op == OP_MUL && is_one(k, x[0])) return x[1];
  }
  if (bin_of[op]) return lp_bin(k, (RefBin)(bin_of[op] - 1), x[0], x[1]);
  switch (op) {
  case OP_STOP:
  case OP_ALIAS: return x[0];
  case OP_CAST: return lp_cast(k, x[0], to);
  case OP_FITS: lp_op(k, LP_CHECK, DT_I64, 1, &x[1], 0); return x[0];
  case OP_WHERE: return lp_where(k, x[0], x[1], x[2]);
  default: return LV_NONE;
  }
}

LVal pull_elem(Low *w, uint32_t node, const Spot *s) {
  OpCode op = (OpCode)w->l->g->nodes[node].op;
  LVal x[3];
  for (int i = 0; i < op_info[op].arity; i++) {
    x[i] = operand(w, node, i, s);
    if (x[i] == LV_NONE) return LV_NONE;
  }
  LVal v = low_apply(w->k, op, (DType)low_type(w, (Val){node, 0})->dtype, x);
  return v == LV_NONE ? low_fail(w, "no loop form for `%s`", op_info[op].text) : v;
}

/* ---- generators */

/* Element i of the vector of n that operand k of the node is. */
static LVal word(Low *w, uint32_t node, int k, int64_t i, int64_t n) {
  Digit d = {lp_i(w->k, i), low_const_dim(w, n)};
  return operand(w, node, k, low_spot(w, &d, 1));
}

static LVal pull_const(Low *w, uint32_t node) {
  return low_attr(w, gr_attr(w->l->g, node, AT_VALUE), (DType)low_type(w, (Val){node, 0})->dtype);
}

static LVal pull_randint(Low *w, uint32_t node, DType dt, const LVal *key, const Spot *s) {
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  LVal limit = operand(w, node, 1, low_spot(w, NULL, 0));
  if (limit == LV_NONE) return LV_NONE;
  LVal fits = lp_bin(w->k, RB_GE, limit, lp_i(w->k, 1));
  if (dt != DT_I64) {
    fits = lp_bin(w->k, RB_AND, fits, lp_bin(w->k, RB_LE, limit, lp_i(w->k, high[dt] + 1)));
  }
  lp_op(w->k, LP_CHECK, DT_I64, 1, &fits, 0);
  LVal in[4] = {key[0], key[1], low_number(w, s), limit};
  return lp_cast(w->k, lp_op(w->k, LP_RANDINT, DT_I64, 4, in, 0), dt);
}

/* Words that depend on the coordinate: word 0, or what the coordinate chooses. */
static LVal choose(Low *w, LVal i, int n, const LVal *x) {
  LVal v = x[n - 1];
  for (int k = n - 2; k >= 0; k--)
    v = lp_where(w->k, lp_bin(w->k, RB_EQ, i, lp_i(w->k, k)), x[k], v);
  return v;
}

LVal pull_generate(Low *w, uint32_t node, const Spot *s) {
  OpCode op = (OpCode)w->l->g->nodes[node].op;
  DType dt = (DType)low_type(w, (Val){node, 0})->dtype;
  LVal key[2], in[6], out[4];
  if (op == OP_CONST) return pull_const(w, node);
  if (op == OP_DIM) return low_dim(w, (Dim)gr_attr(w->l->g, node, AT_SIZE)->u.i);
  if (op == OP_IOTA) return lp_cast(w->k, low_number(w, s), dt);
  if (op == OP_INPUT) return low_fail(w, "an input that is not in memory");
  if (op == OP_PHILOX) {
    for (int i = 0; i < 6; i++) {
      in[i] = i < 4 ? word(w, node, 0, i, 4) : word(w, node, 1, i - 4, 2);
      if (in[i] == LV_NONE) return LV_NONE;
    }
    for (int i = 0; i < 4; i++) out[i] = lp_op(w->k, LP_PHILOX, DT_I64, 6, in, i);
    return choose(w, low_number(w, s), 4, out);
  }
  for (int i = 0; i < 2; i++) {
    key[i] = word(w, node, 0, i, 2);
    if (key[i] == LV_NONE) return LV_NONE;
  }
  switch (op) {
  case OP_RANDOM: {
    bool normal = gr_attr_i(w->l->g, node, AT_KIND, RANDOM_UNIFORM) == RANDOM_NORMAL;
    in[0] = key[0];
    in[1] = key[1];
    in[2] = low_number(w, s);
    return lp_op(w->k, normal ? LP_NORMAL : LP_UNIFORM, dt, 3, in, 0);
  }
  case OP_RANDINT: return pull_randint(w, node, dt, key, s);
  case OP_FOLD_IN: {
    LVal i = operand(w, node, 1, low_spot(w, NULL, 0));
    if (i == LV_NONE) return LV_NONE;
    LVal one = lp_op(w->k, LP_FOLD, DT_I64, 2, key, 0);
    out[0] = lp_op(w->k, LP_FOLD, DT_I64, 2, (LVal[]){one, i}, 0);
    out[1] = lp_i(w->k, 0);
    return choose(w, low_number(w, s), 2, out);
  }
  default: return low_fail(w, "no loop form for `%s`", op_info[op].text);
  }
}

/* ---- groups: every out has the same number of elements */

static void pull_outs(Low *w, const Spot *kept, const Spot *all, void *ud) {
  const Group *g = ud;
  (void)kept;
  for (uint32_t i = 0; i < g->out_count; i++) low_at(w, g->outs[i], all);
}

void low_store(Low *w, Val v, const Spot *s) {
  LVal x = low_at(w, v, s);
  if (x != LV_NONE) lp_store(w->k, low_value(w, v, LB_OUT), low_number(w, s), x);
}

/* Elementary operations per element, as far as the table of ops knows. */
Dim low_cost(Low *w) {
  int64_t each = 1;
  for (uint32_t i = 0; i < w->group->node_count; i++) {
    each += op_info[w->l->g->nodes[w->group->nodes[i]].op].cost;
  }
  return low_const_dim(w, each);
}

bool low_point(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Low w;
  Space space;
  Nest nest;
  low_begin(&w, l, g, e);
  const Type *t = low_type(&w, g->outs[0]);
  if (!low_space(&w, t->rank, t->dim, NULL, pull_outs, (void *)g, &space)) return false;
  w.flops = low_mul(&w, low_count(&w, t), low_cost(&w));
  low_nest(&w, &space, &nest);
  const Spot *s = low_spot(&w, nest.at.d, nest.at.count);
  for (uint32_t i = 0; i < g->out_count; i++) low_store(&w, g->outs[i], s);
  low_nest_end(&w, &nest);
  low_finish(&w, out);
  return !w.failed;
}
