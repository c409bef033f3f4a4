/* What the rules of gradients are written with, inside autograd/ only: the macros that declare a
 * rule, and the mathematics. See grad.c. */
#ifndef CKL_AUTOGRAD_GRAD_IMPL_H
#define CKL_AUTOGRAD_GRAD_IMPL_H

#include "autograd/rule.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"

#define UNUSED __attribute__((unused))

/* A rule that answers for one operand at a time. */
#define GRAD(NAME)                                                                                 \
  static Val one_##NAME(Rule *r, int i, Val a, Val b, Val c, Val y, Val dy);                       \
  const GradRule grad_##NAME = {one_##NAME, NULL};                                                 \
  static Val one_##NAME(Rule *r UNUSED, int i UNUSED, Val a UNUSED, Val b UNUSED, Val c UNUSED,    \
                        Val y UNUSED, Val dy UNUSED)

/* A rule that fills r->dx for all operands at once. */
#define GRADS(NAME)                                                                                \
  static void all_##NAME(Rule *r);                                                                 \
  const GradRule grad_##NAME = {NULL, all_##NAME};                                                 \
  static void all_##NAME(Rule *r)

/* Nothing passes: integer or bool results, constants, steps, `stop`. */
#define CUT(NAME) const GradRule grad_##NAME = {NULL, NULL};

/* C leaves the order of a call's arguments open, while the order of nodes decides the order of
 * sums in the next derivative: so operands go through a stack, and `mul(f, g)` builds f, then g. */
static inline void hold(Rule *r, Val v) {
  CK_ASSERT(r->g->arena->mem, r->held < RULE_HOLD);
  r->hold[r->held++] = v;
}
static inline Val binary(Rule *r, OpCode op) {
  r->held -= 2;
  return b_bin(&r->b, op, r->hold[r->held], r->hold[r->held + 1]);
}
static inline Val choose(Rule *r) {
  r->held -= 3;
  return b_where(&r->b, r->hold[r->held], r->hold[r->held + 1], r->hold[r->held + 2]);
}

/* The mathematics. Rank-0 operands are broadcast; `r` is the rule at hand. */
#define bin(NAME, x, z) (hold(r, x), hold(r, z), binary(r, OP_##NAME))
#define un(NAME, x) b_un(&r->b, OP_##NAME, x)
#define add(x, z) bin(ADD, x, z)
#define sub(x, z) bin(SUB, x, z)
#define mul(x, z) bin(MUL, x, z)
#define over(x, z) bin(DIV, x, z)
#define power(x, z) bin(POW, x, z)
#define eq(x, z) bin(EQ, x, z)
#define lt(x, z) bin(LT, x, z)
#define gt(x, z) bin(GT, x, z)
#define neg(x) un(NEG, x)
#define where(cond, x, z) (hold(r, cond), hold(r, x), hold(r, z), choose(r))
#define num(x) number(r, dy, x)
#define zero num(0)
#define one num(1)
#define half num(0.5)
#define swap(x) b_swap(&r->b, x)

/* ---- helpers */

/* The rank-0 constant x of like's dtype. */
static inline Val number(Rule *r, Val like, double x) {
  if (val_none(like)) return VAL_NONE;
  const Type *t = gr_type(r->g, like);
  return gr_const_f(r->g, (DType)t->dtype, (Device)t->dev, x);
}

static inline Val zeros_like(Rule *r, Val x) {
  if (val_none(x)) return VAL_NONE;
  Type t = *gr_type(r->g, x);
  return b_zeros(&r->b, &t);
}

static inline Type type_of(Rule *r, Val v) {
  return *gr_type(r->g, v);
}

static inline Val op1(Rule *r, OpCode op, Val x, int n, const Attr *attrs) {
  return b_op(&r->b, op, 1, &x, n, attrs);
}

static inline Val op2(Rule *r, OpCode op, Val x, Val z, int n, const Attr *attrs) {
  return b_op(&r->b, op, 2, (Val[]){x, z}, n, attrs);
}

static inline Val op3(Rule *r, OpCode op, Val x, Val z, Val w, int n, const Attr *attrs) {
  return b_op(&r->b, op, 3, (Val[]){x, z, w}, n, attrs);
}

static inline Dim dim_of(Rule *r, int64_t n) {
  return dim_const(r->g->dims, n);
}

/* 0, 1, .. of n elements, i64. */
static inline Val iota(Rule *r, Dim n, Val like) {
  Attr attrs[3] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, 1, (int64_t[]){n}),
                   attr_i(AT_DEVICE, type_of(r, like).dev)};
  return b_op(&r->b, OP_IOTA, 0, NULL, 3, attrs);
}

static inline Val slice(Rule *r, Val x, const int64_t *start, const int64_t *len,
                        const int64_t *step) {
  if (val_none(x)) return VAL_NONE;
  int rank = type_of(r, x).rank;
  Attr attrs[3] = {attr_dims(AT_STARTS, rank, start), attr_dims(AT_LENS, rank, len),
                   attr_ints(AT_STEPS, rank, step)};
  return op1(r, OP_SLICE, x, 3, attrs);
}

#endif
