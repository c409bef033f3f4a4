/* A whole loop of small values as one kernel.
 *
 * In: a `loop` whose body has few numbers, of known sizes. Out: one kernel that goes through the
 * turns, one after the other, with what they carry in registers. Each element of each value of the
 * body is straight-line code by itself: a view, a concat or a pad only says which element is which.
 * A choice on data runs the side that is taken. The rows of stashes lie one behind the other, by
 * the number of their turn.
 *
 * Buffers, in order: carried values at entry; rows; captured values; carried values at the end;
 * rows that are kept; how many turns ran, and how many nodes of sides in them. Arguments: how many
 * turns run at most, the number of the first. So a long loop can run in parts, and be interrupted
 * between them. */
#include <string.h>

#include "graph/cost.h"
#include "graph/opcode.h"
#include "jit/lower/lower_impl.h"
#include "jit/lower/lower_op.h"
#include "jit/lower/lower_turns.h"

enum {
  SMALL = 64,  /* elements of a value */
  WORK = 1500, /* operations of a turn: more are faster as launches, with lanes and threads */
  CODE = 8000, /* instructions of the kernel: more take long to compile */
};

typedef struct Unrolled { /* a graph whose elements are code */
  Kernel *k;
  Arena *a;
  const Graph *g;
  LVal **at; /* per entry of g->types: elements, row-major; NULL: not needed, or none */
  int64_t work;
  LVal nodes; /* a variable: nodes of the sides that ran */
} Unrolled;

static uint32_t slot(const Graph *g, Val v) {
  return low_index_of(g, v);
}

/* The number of elements; -1 if it is not known, or too large. Sets dim. */
static int64_t size_of(const Graph *g, const Type *t, int64_t *dim) {
  int64_t n = 1;
  if (t->kind != TK_TENSOR || t->dev != DEV_CPU) return -1;
  for (int i = 0; i < t->rank; i++) {
    if (!dim_is_const(g->dims, t->dim[i], &dim[i]) || dim[i] < 1 || dim[i] > SMALL) return -1;
    n *= dim[i];
    if (n > SMALL) return -1;
  }
  return n;
}

static bool ints(const Graph *g, const Attr *a, int64_t *out) {
  for (uint32_t i = 0; a && i < a->count; i++) {
    out[i] = a->u.ints[i];
    if (a->kind == AK_DIMS && !dim_is_const(g->dims, (Dim)a->u.ints[i], &out[i])) return false;
  }
  return a != NULL;
}

static LVal literal(Kernel *k, const Attr *v, DType dt) {
  if (v->kind == AK_FLOAT) return lp_const(k, dt, v->u.f);
  return dt == DT_I64 ? lp_i(k, v->u.i) : lp_cast(k, lp_i(k, v->u.i), dt);
}

/* ---- which element is which */

/* The coordinates of element i. */
static void coordinates(int rank, const int64_t *dim, int64_t i, int64_t *c) {
  for (int k = rank; k-- > 0; i /= dim[k]) c[k] = i % dim[k];
}

static int64_t number(int rank, const int64_t *dim, const int64_t *c) {
  int64_t n = 0;
  for (int k = 0; k < rank; k++) n = n * dim[k] + c[k];
  return n;
}

/* The elements of a node that moves them; false: another node. */
static bool moves(Unrolled *u, uint32_t node, int64_t n, const int64_t *dim, LVal *to) {
  const Graph *g = u->g;
  const GNode *x = &g->nodes[node];
  const Type *t = gr_type(g, (Val){node, 0});
  const Type *from = x->operand_count ? gr_type(g, gr_operand(g, node, 0)) : NULL;
  int64_t fdim[CKL_MAX_RANK], c[CKL_MAX_RANK], a[CKL_MAX_RANK], b[CKL_MAX_RANK];
  const LVal *in = x->operand_count ? u->at[slot(g, gr_operand(g, node, 0))] : NULL;
  if (!from || !in || size_of(g, from, fdim) < 0) return false;
  switch (x->op) {
  case OP_RESHAPE:
  case OP_ALIAS:
  case OP_STOP: memcpy(to, in, (size_t)n * sizeof *to); return true;
  case OP_TRANSPOSE:
    if (!ints(g, gr_attr(g, node, AT_PERM), a)) return false;
    for (int64_t i = 0; i < n; i++) {
      coordinates(t->rank, dim, i, c);
      for (int k = 0; k < t->rank; k++) b[a[k]] = c[k];
      to[i] = in[number(from->rank, fdim, b)];
    }
    return true;
  case OP_BROADCAST:
    for (int64_t i = 0; i < n; i++) {
      coordinates(t->rank, dim, i, c);
      for (int k = 0; k < from->rank; k++) b[k] = fdim[k] == 1 ? 0 : c[k + t->rank - from->rank];
      to[i] = in[number(from->rank, fdim, b)];
    }
    return true;
  case OP_SLICE:
    if (!ints(g, gr_attr(g, node, AT_STARTS), a) || !ints(g, gr_attr(g, node, AT_STEPS), b))
      return false;
    for (int64_t i = 0; i < n; i++) {
      coordinates(t->rank, dim, i, c);
      for (int k = 0; k < t->rank; k++) {
        c[k] = a[k] + c[k] * b[k];
        if (c[k] < 0 || c[k] >= fdim[k]) return false;
      }
      to[i] = in[number(from->rank, fdim, c)];
    }
    return true;
  case OP_FLIP: {
    const Attr *axes = gr_attr(g, node, AT_AXES);
    for (int64_t i = 0; i < n; i++) {
      coordinates(t->rank, dim, i, c);
      for (uint32_t k = 0; k < axes->count; k++)
        c[axes->u.ints[k]] = dim[axes->u.ints[k]] - 1 - c[axes->u.ints[k]];
      to[i] = in[number(t->rank, dim, c)];
    }
    return true;
  }
  case OP_CONCAT: {
    int64_t axis = gr_attr_i(g, node, AT_AXIS, 0);
    for (int64_t i = 0; i < n; i++) {
      coordinates(t->rank, dim, i, c);
      uint32_t k = 0;
      for (;; k++) {
        if (size_of(g, gr_type(g, gr_operand(g, node, (int)k)), fdim) < 0) return false;
        if (c[axis] < fdim[axis]) break;
        c[axis] -= fdim[axis];
      }
      to[i] = u->at[slot(g, gr_operand(g, node, (int)k))][number(t->rank, fdim, c)];
    }
    return true;
  }
  case OP_PAD: {
    const Attr *value = gr_attr(g, node, AT_VALUE);
    DType dt = (DType)t->dtype;
    LVal other = value ? literal(u->k, value, dt) : lp_const(u->k, dt, 0);
    if (!ints(g, gr_attr(g, node, AT_LOW), a)) return false;
    const Attr *inner = gr_attr(g, node, AT_INNER);
    for (int64_t i = 0; i < n; i++) {
      bool inside = true;
      coordinates(t->rank, dim, i, c);
      for (int k = 0; k < t->rank; k++) {
        int64_t step = inner ? inner->u.ints[k] + 1 : 1;
        c[k] -= a[k];
        inside &= c[k] >= 0 && c[k] % step == 0 && c[k] / step < fdim[k];
        c[k] /= step;
      }
      to[i] = inside ? in[number(t->rank, fdim, c)] : other;
    }
    return true;
  }
  default: return false;
  }
}

/* ---- what is computed */

/* Sums in the order of rule 105: over a copy of the elements. */
static bool sums(Unrolled *u, uint32_t node, int64_t n, LVal *to) {
  const Graph *g = u->g;
  const Attr *axes = gr_attr(g, node, AT_AXES);
  Val v = gr_operand(g, node, 0);
  const Type *from = gr_type(g, v), *t = gr_type(g, (Val){node, 0});
  int64_t fdim[CKL_MAX_RANK], c[CKL_MAX_RANK], all = size_of(g, from, fdim), each = all / n;
  int buf = lp_local(u->k, (DType)from->dtype, -1, each);
  for (int64_t i = 0; i < n; i++) {
    int64_t count = 0;
    for (int64_t j = 0; j < all; j++) { /* those that belong to it, in their order */
      int64_t at = 0;
      coordinates(from->rank, fdim, j, c);
      for (int k = 0; k < from->rank; k++) {
        bool over = false;
        for (uint32_t q = 0; q < axes->count; q++) over |= axes->u.ints[q] == k;
        if (!over) at = at * fdim[k] + c[k];
      }
      if (at == i) lp_store(u->k, buf, lp_i(u->k, count++), u->at[slot(g, v)][j]);
    }
    LVal one = lp_red(u->k, lp_i(u->k, each));
    LVal x = lp_yield(u->k, RED_SUM, lp_load(u->k, buf, one), LV_NONE);
    lp_end(u->k);
    to[i] = lp_result(u->k, x);
  }
  return lp_dtype(u->k, to[0]) == (DType)t->dtype;
}

/* Products of two matrices of f32 or f64: one chain for each element. */
static bool products(Unrolled *u, uint32_t node, const int64_t *dim, LVal *to) {
  const Graph *g = u->g;
  Val v = gr_operand(g, node, 0), w = gr_operand(g, node, 1);
  const Type *x = gr_type(g, v), *y = gr_type(g, w), *t = gr_type(g, (Val){node, 0});
  int64_t xd[CKL_MAX_RANK], yd[CKL_MAX_RANK];
  bool plain = x->rank == 2 && y->rank == 2 && gr_attr_i(g, node, AT_COMPUTE, 0) == COMPUTE_NONE &&
               (t->dtype == DT_F32 || t->dtype == DT_F64) && x->dtype == t->dtype &&
               y->dtype == t->dtype;
  if (!plain || size_of(g, x, xd) < 0 || size_of(g, y, yd) < 0) return false;
  const LVal *a = u->at[slot(g, v)], *b = u->at[slot(g, w)];
  for (int64_t i = 0; i < dim[0]; i++)
    for (int64_t j = 0; j < dim[1]; j++) {
      LVal sum = lp_const(u->k, (DType)t->dtype, 0);
      for (int64_t q = 0; q < xd[1]; q++)
        sum = lp_fma(u->k, a[i * xd[1] + q], b[q * yd[1] + j], sum);
      to[i * dim[1] + j] = sum;
    }
  return true;
}

static bool elementwise(Unrolled *u, uint32_t node, int64_t n, LVal *to) {
  const Graph *g = u->g;
  const GNode *x = &g->nodes[node];
  DType dt = (DType)gr_type(g, (Val){node, 0})->dtype;
  int64_t dim[CKL_MAX_RANK];
  const LVal *in[3];
  bool one[3];
  for (uint32_t k = 0; k < x->operand_count; k++) {
    int64_t m = size_of(g, gr_type(g, gr_operand(g, node, (int)k)), dim);
    in[k] = u->at[slot(g, gr_operand(g, node, (int)k))];
    one[k] = m == 1;
    if (m != n && m != 1) return false;
  }
  for (int64_t i = 0; i < n; i++) {
    LVal args[3];
    for (uint32_t k = 0; k < x->operand_count; k++) args[k] = in[k][one[k] ? 0 : i];
    to[i] = low_apply(u->k, (OpCode)x->op, dt, args);
    if (to[i] == LV_NONE) return false;
  }
  return true;
}

static bool unroll(Unrolled *u);

static LVal *room(Unrolled *u, Val v, int64_t n) {
  return u->at[slot(u->g, v)] = ARENA_ARRAY(u->a, LVal, n + 1);
}

/* The side that is taken runs, and sets variables. */
static bool choice(Unrolled *u, uint32_t node) {
  const Graph *g = u->g;
  const GNode *x = &g->nodes[node];
  int64_t dim[CKL_MAX_RANK];
  LVal cond = u->at[slot(g, gr_operand(g, node, 0))][0];
  for (uint32_t k = 0; k < x->result_count; k++) {
    const Type *t = gr_type(g, (Val){node, k});
    int64_t n = size_of(g, t, dim);
    if (n < 0) return false;
    LVal *to = room(u, (Val){node, k}, n);
    for (int64_t i = 0; i < n; i++) to[i] = lp_var(u->k, lp_const(u->k, (DType)t->dtype, 0));
  }
  int64_t work[2];
  for (int side = 0; side < 2; side++) {
    const Graph *in = g->regions[x->region0 + (uint32_t)side];
    Unrolled v = {u->k, u->a, in, ARENA_ARRAY(u->a, LVal *, in->type_count + 1), u->work, u->nodes};
    LVal yes = lp_const(u->k, DT_BOOL, 1), no = lp_const(u->k, DT_BOOL, 0);
    lp_if(u->k, side ? lp_where(u->k, cond, no, yes) : cond);
    for (size_t i = 0; i < in->input_count; i++)
      v.at[slot(in, in->inputs[i])] = u->at[slot(g, gr_operand(g, node, (int)i + 1))];
    if (!unroll(&v)) return false;
    work[side] = v.work;
    LVal more = lp_i(u->k, (int64_t)(in->node_count - in->input_count));
    lp_set(u->k, u->nodes, lp_bin(u->k, RB_ADD, lp_get(u->k, u->nodes), more));
    for (uint32_t k = 0; k < x->result_count; k++) {
      int64_t n = size_of(g, gr_type(g, (Val){node, k}), dim);
      const LVal *from = v.at[slot(in, in->outputs[k])], *to = u->at[slot(g, (Val){node, k})];
      for (int64_t i = 0; i < n; i++) lp_set(u->k, to[i], from[i]);
    }
    lp_end(u->k);
  }
  u->work = work[work[1] > work[0]];
  for (uint32_t k = 0; k < x->result_count; k++) {
    int64_t n = size_of(g, gr_type(g, (Val){node, k}), dim);
    LVal *to = u->at[slot(g, (Val){node, k})];
    for (int64_t i = 0; i < n; i++) to[i] = lp_get(u->k, to[i]);
  }
  return true;
}

/* Appends the code of all nodes; inputs are there. False if there is a node without code, or
 * there is too much. */
static bool unroll(Unrolled *u) {
  stack_check();
  const Graph *g = u->g;
  for (uint32_t node = 0; node < g->node_count; node++) {
    const GNode *x = &g->nodes[node];
    int64_t dim[CKL_MAX_RANK];
    if (x->op == OP_INPUT) continue;
    if (u->k->count > CODE || u->work > WORK) return false;
    u->work += cost_flops(g, node, NULL);
    if (x->op == OP_BRANCH) {
      if (!choice(u, node)) return false;
      continue;
    }
    if (x->region_count || x->result_count != 1) return false;
    const Type *t = gr_type(g, (Val){node, 0});
    int64_t n = size_of(g, t, dim);
    for (uint32_t k = 0; k < x->operand_count; k++)
      if (!u->at[slot(g, gr_operand(g, node, (int)k))]) return false;
    if (n < 0) return false;
    LVal *to = room(u, (Val){node, 0}, n);
    if (x->op == OP_CONST) {
      to[0] = literal(u->k, gr_attr(g, node, AT_VALUE), (DType)t->dtype);
      continue;
    }
    bool ok = x->op == OP_SUM                  ? sums(u, node, n, to)
              : x->op == OP_DOT                ? products(u, node, dim, to)
              : low_elementwise((OpCode)x->op) ? elementwise(u, node, n, to)
                                               : moves(u, node, n, dim, to);
    if (!ok) return false;
  }
  return true;
}

/* ---- the kernel */

/* The elements of a buffer from `base` on; NULL base: from its begin. */
static void load(Unrolled *u, int buf, LVal base, int64_t n, LVal *to) {
  for (int64_t i = 0; i < n; i++) {
    LVal at = lp_i(u->k, i);
    if (base != LV_NONE) at = lp_bin(u->k, RB_ADD, base, at);
    to[i] = lp_load(u->k, buf, at);
  }
}

static void store(Unrolled *u, int buf, LVal base, int64_t n, const LVal *from, bool vars) {
  for (int64_t i = 0; i < n; i++) {
    LVal at = lp_i(u->k, i);
    if (base != LV_NONE) at = lp_bin(u->k, RB_ADD, base, at);
    lp_store(u->k, buf, at, vars ? lp_get(u->k, from[i]) : from[i]);
  }
}

/* Whether all that goes in and out of the body is small. */
static bool is_small(const Graph *b) {
  int64_t dim[CKL_MAX_RANK];
  for (size_t i = 1; i < b->input_count; i++)
    if (size_of(b, gr_type(b, b->inputs[i]), dim) < 0) return false;
  for (size_t i = 0; i < b->output_count; i++)
    if (size_of(b, gr_type(b, b->outputs[i]), dim) < 0 ||
        gr_type(b, b->outputs[i])->rank == CKL_MAX_RANK)
      return false;
  return b->check_count == 0;
}

bool low_turns(const Lower *l, uint32_t node, Arena *a, Lowered *out) {
  const Graph *g = l->g, *b = g->regions[g->nodes[node].region0];
  int carry = (int)gr_attr_i(g, node, AT_CARRY, 0), rows = (int)gr_attr_i(g, node, AT_MAPPED, 0);
  int inputs = (int)b->input_count, gives = (int)b->output_count;
  bool reverse = gr_attr_i(g, node, AT_REVERSE, 0) != 0;
  int64_t dim[CKL_MAX_RANK];
  bool goes_on = gr_attr(g, node, AT_WHILE) != NULL;
  int again = gr_again(g, node) ? (int)gr_attr_i(g, node, AT_AGAIN, gives) : gives;
  if (gr_attr(g, node, AT_COUNTER) || !is_small(b)) return false;
  Kernel *k = lp_new(l->arena);
  Unrolled u = {k, l->arena, b, ARENA_ARRAY(l->arena, LVal *, b->type_count + 1), 0, 0};
  int *buf = ARENA_ARRAY(l->arena, int, inputs + gives + 1), *to = buf + inputs;
  LVal **vars = ARENA_ARRAY(l->arena, LVal *, carry + 1);
  for (int i = 1; i < inputs; i++)
    buf[i] = lp_buf(k, LB_IN, (DType)gr_type(b, b->inputs[i])->dtype);
  for (int i = 0; i < gives; i++)
    to[i] = lp_buf(k, LB_OUT, (DType)gr_type(b, b->outputs[i])->dtype);
  int ran = lp_buf(k, LB_OUT, DT_I64);
  LVal turns = lp_size(k, 0), first = lp_size(k, 1), lowest = lp_size(k, 2);
  LVal kept = lp_size(k, 3), made = lp_size(k, 4);
  lp_par(k, lp_i(k, 1));
  for (int i = 1; i < inputs; i++) {
    Val v = b->inputs[i];
    int64_t n = size_of(b, gr_type(b, v), dim);
    if (i > carry && i <= carry + rows) continue;
    load(&u, buf[i], LV_NONE, n, room(&u, v, n));
    if (i > carry) continue;
    LVal *x = vars[i - 1] = ARENA_ARRAY(l->arena, LVal, n + 1);
    for (int64_t j = 0; j < n; j++) x[j] = lp_var(k, u.at[slot(b, v)][j]);
  }
  LVal number = lp_var(k, lp_i(k, 0));
  u.nodes = lp_var(k, lp_i(k, 0));
  LVal turn = lp_for(k, turns);
  if (goes_on) lp_if(k, lp_get(k, vars[0][0]));
  LVal at = lp_bin(k, reverse ? RB_SUB : RB_ADD, first, turn), row = lp_bin(k, RB_SUB, at, lowest);
  LVal to_kept = gives > carry ? lp_bin(k, RB_MUL, row, kept) : row;
  LVal to_made = gives > again ? lp_bin(k, RB_MUL, row, made) : row;
  room(&u, b->inputs[0], 1)[0] = at;
  for (int i = 1; i < inputs; i++) {
    Val v = b->inputs[i];
    int64_t n = size_of(b, gr_type(b, v), dim);
    LVal *x = u.at[slot(b, v)];
    for (int64_t j = 0; i <= carry && j < n; j++) x[j] = lp_get(k, vars[i - 1][j]);
    if (i > carry && i <= carry + rows)
      load(&u, buf[i], lp_bin(k, RB_MUL, row, lp_i(k, n)), n, room(&u, v, n));
  }
  if (!unroll(&u)) return false;
  for (int i = carry; i < gives; i++) {
    int64_t n = size_of(b, gr_type(b, b->outputs[i]), dim);
    LVal base = lp_bin(k, RB_MUL, i < again ? to_kept : to_made, lp_i(k, n));
    store(&u, to[i], base, n, u.at[slot(b, b->outputs[i])], false);
  }
  for (int i = 0; i < carry; i++) {
    int64_t n = size_of(b, gr_type(b, b->outputs[i]), dim);
    for (int64_t j = 0; j < n; j++) lp_set(k, vars[i][j], u.at[slot(b, b->outputs[i])][j]);
  }
  lp_set(k, number, lp_bin(k, RB_ADD, lp_get(k, number), lp_i(k, 1)));
  if (goes_on) lp_end(k);
  lp_end(k);
  lp_store(k, ran, lp_i(k, 0), lp_get(k, number));
  lp_store(k, ran, lp_i(k, 1), lp_get(k, u.nodes));
  for (int i = 0; i < carry; i++)
    store(&u, to[i], LV_NONE, size_of(b, gr_type(b, b->outputs[i]), dim), vars[i], true);
  lp_end(k);
  if (k->count > CODE || u.work > WORK) return false;
  Launch launch = {.bufs = ARENA_ARRAY(a, BufUse, k->buf_count + 1),
                   .args = ARENA_ARRAY(a, ArgUse, TURNS_ARGS + 1),
                   .flops = dim_const(g->dims, 0)};
  for (size_t i = 0; i < k->buf_count; i++) launch.bufs[i].kind = USE_LOCAL;
  for (int i = 0; i < TURNS_ARGS; i++) launch.args[i].kind = ARG_BITS;
  k->arg_count = TURNS_ARGS;
  launch.k = lp_clean(a, k);
  launch.like = (uint32_t)out->count;
  VEC_PUSH(a, out->launches, out->count, out->cap, launch);
  return true;
}
