/* Reverse-mode differentiation: gradients of values of a graph, appended to it. */
#ifndef CKL_AUTOGRAD_VJP_H
#define CKL_AUTOGRAD_VJP_H

#include "graph/build.h"

/* Appends to `g` the gradients of the values `y` (cotangents `dy`, one per y) with respect to the
 * values `wrt`, which may be inputs or intermediate values. dx[i] is VAL_NONE where no y depends on
 * wrt[i] through a differentiable path. Contributions to a value are added last use first, pairwise
 * (rule 74). Every node made carries the provenance of the forward node it belongs to, with
 * backward = 1. These are ordinary nodes: another call differentiates them, too. False with `e`,
 * and its provenance in `*at`, when a gradient has to pass through an op without a derivative. */
bool ad_vjp(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt, Val *dx,
            GErr *e, Prov *at);

/* Has the contract of ad_vjp, for values that may be versions of one param: its value at entry, and
 * values written to it later (rule 60). as[i] is the number of the earliest version of wrt[i];
 * as[i] = i if there is no earlier one. The gradient of the earliest version is the sum over the
 * uses of all versions, last use first; dx of the other versions is VAL_NONE. */
bool ad_vjp_as(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt,
               const int *as, Val *dx, GErr *e, Prov *at);

/* y, a result of a branch, may be x, which has later uses of its own. */
typedef struct Origin {
  Val y, x;
  int known; /* see ad_is; -2: not asked yet */
  Val is;
} Origin;

/* Has the contract of ad_vjp_as, for cotangents that may be absent at run time: no gradient flows
 * to a value if the side of a `branch` that uses it is not taken. A bool says whether such a
 * cotangent is there, VAL_NONE that it surely is; the value of an absent one is -0, so that it can
 * be added. What an absent cotangent would be the only reason for does not run. */
typedef struct VjpAsk {
  int ny, nwrt;
  const Val *y, *dy;
  const Val *dy_there; /* per y, or NULL: all are there */
  const Val *wrt;
  const int *as; /* or NULL */
  Val *dx;
  Val *dx_there;         /* NULL: absent gradients become +0 */
  const Origin *origins; /* among wrt: gradients of y are those of x where `is` holds */
  size_t origin_count;
  const Val
      *read; /* per result of the graph: the value that rules read in its place, or VAL_NONE */
  size_t read_count;
  bool by_value; /* where data makes a wrt a value from before it, its gradient is that one's */
  int sums;      /* so many of dy, the last, have been added to what is behind their y already */
} VjpAsk;
bool ad_vjp_ask(Graph *g, const VjpAsk *ask, GErr *e, Prov *at);

/* v if the bool holds, else +0, or with `none` -0. */
Val ad_or_zero(B *b, Val there, Val v, bool none);

/* Whether y may be the very value x when the graph runs: it is x, or a `branch` gives it on. */
bool ad_may_be(Arena *scratch, const Graph *g, Val y, Val x);
/* The bool that says whether it is. Where it is known, *known is 0 or 1 and the result VAL_NONE;
 * else *known is -1. */
Val ad_is(Arena *scratch, B *b, Val y, Val x, int *known);

/* Sets output[i] if output i of f depends on a wanted input through a differentiable path. */
void ad_reached(Arena *scratch, const Graph *f, const bool *wants_grad, bool *output);
/* Whether a value of the type can have a gradient. */
static inline bool ad_has_gradient(const Type *t) {
  return t->kind == TK_STASH || (t->kind == TK_TENSOR && dt_float((DType)t->dtype));
}
/* Marks in `live`, by the number of a result, all values that a gradient of the marked ones goes
 * to, but goes no further than values marked in `ends` (or NULL). */
void ad_mark_back(Arena *scratch, const Graph *g, bool *live, const bool *ends);
/* Whether gradients pass through an operation. */
bool ad_passes(OpCode op);
/* Whether operand i of a node can have a gradient, if they pass through it: of a `custom` with a
 * gradient of its own those of its `wrt`, of a `version` the earlier one. */
bool ad_carries(const Graph *g, uint32_t node, uint32_t i);

#endif
