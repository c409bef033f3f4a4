/* The input of a gradient rule, and the table of rules.
 *
 * grad.c defines `const GradRule grad_<NAME>` for every row of graph/ops.def; vjp.c calls them. A
 * rule reads operands, results and cotangents of one node and appends nodes to the same graph. */
#ifndef CKL_AUTOGRAD_RULE_H
#define CKL_AUTOGRAD_RULE_H

#include "autograd/autograd.h"
#include "autograd/vjp.h"
#include "graph/build.h"

enum { RULE_HOLD = 32 };
typedef struct Rule {
  B b; /* builder; a rule that fails sets b.failed and b.err */
  Graph *g;
  uint32_t node;  /* the node being differentiated */
  Arena *scratch; /* freed when ad_vjp returns */
  int in_count, out_count;
  const Val *in, *out; /* as they are read */
  const Val *at;       /* the operands themselves */
  const Val *dout;     /* cotangent of each result, VAL_NONE where absent; at least one is there */
  const bool *wants;   /* which operands a gradient is asked for */
  Val *dx;             /* gradient of each operand; VAL_NONE at entry and where structurally zero */
  /* For `branch`, `loop`, `stash` and `unstash`. A cotangent may be absent, if the side that would
   * give it is not taken: then the bool beside it is false, and it is -0. VAL_NONE: it is there for
   * sure. */
  const Val *dout_there;
  /* Per operand: the sum of the gradients that later uses gave its value, and its bool. */
  const Val *sum, *sum_there;
  const int *home; /* per operand: the first one whose gradient is a part of the same sum */
  Val *dx_there;   /* the bools of dx, which for these are new sums, of what is its own home */
  /* Whether result k is operand i itself on some side, and its gradients have been added there. */
  const bool *passed; /* at k * in_count + i */
  /* Values behind the operands, at in_count and on: an operand may be one of them (vjp.h). */
  int behind;
  const Origin *origins;
  size_t origin_count;
  Val hold[RULE_HOLD]; /* operands on their way to a node (grad.c) */
  int held;
} Rule;

/* A rule has `one`, or `all`, or neither. `one` is called for each wanted operand `i`; a, b, c are
 * the first operands, y and dy the first result and its cotangent. `all` is called once and fills
 * dx. With neither the gradient is zero. */
typedef struct GradRule {
  Val (*one)(Rule *r, int i, Val a, Val b, Val c, Val y, Val dy);
  void (*all)(Rule *r);
} GradRule;

#define OP(NAME, ...) extern const GradRule grad_##NAME;
#include "graph/ops_rows.def"
#undef OP

/* Calls the rule for all wanted operands under the condition that a bool holds: r->dx are the
 * gradients then, else -0. The nodes of the rule stand in a `branch`. */
void ad_rule_if(Rule *r, const GradRule *rule, Val there);
/* Whether branch `node` may give operand i as its result k, at k * operands + i. */
bool *ad_given_on(Arena *scratch, const Graph *g, uint32_t node);
/* The bool that says whether branch result y is its operand x, as ad_is does (vjp.h): by itself,
 * not by another operand that is x. */
Val ad_gives(Arena *scratch, B *b, Val y, Val x, int *known);
/* Makes every value that a side of branch `node` computes a result of it, too (zeros on the other
 * side), so that its gradient reads it and a gradient of that one finds its uses. */
bool ad_keep_sides(Graph *g, uint32_t node, GErr *e);
/* The same for the turns of a loop: what each computes, and takes from the one before, becomes a
 * row of a stash. */
bool ad_keep_turns(Graph *g, uint32_t node, GErr *e);
/* Both for the choices and loops among nodes lo .. hi. */
bool ad_keep_inside(Graph *g, uint32_t lo, uint32_t hi, GErr *e);
/* Appends results to a node; the node numbers stay. */
void ad_add_results(Graph *g, uint32_t node, size_t more, const Type *types);
/* The number of a value among the results of a graph. */
static inline uint32_t ad_slot(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}
/* Adds d to a sum that may be none yet. Each has a bool that says whether it is there, VAL_NONE:
 * surely. An absent one is -0, so that a sum needs no condition. */
void ad_add(B *b, Val *sum, Val *there, Val d, Val d_there);
/* An absent gradient of that type: -0 in every element; of a stash, one without rows. */
Val ad_absent(B *b, const Type *t);
/* A stash without rows, for the side of a branch that has none. */
Val ad_no_stash(B *b);
static inline Val ad_truth(Graph *g, bool holds) {
  return gr_const_i(g, DT_BOOL, DEV_CPU, holds);
}
/* An empty graph for a region of a node that the rule makes. */
Graph *ad_region(const Rule *r);
/* The number of the values that hooks in the regions of the node see (Graph.seen); 0: there are no
 * hooks. And those of g, a region of a node that the rule makes. */
int ad_seen_inside(const Rule *r);
void ad_see(const Rule *r, Graph *g, int count, const Val *seen);
/* Whether the loop has a turn for sure; the bool that says that it had none. */
bool ad_has_turns(const Graph *g, uint32_t node);
Val ad_no_turns(B *b, uint32_t node);

/* gr_inline for bodies that are computed again in a backward: PRINT and ASSERT nodes are left
 * out, their tokens pass through; nodes keep their provenance, with backward = 1. False where a
 * host call would have to be repeated. `map`, if it is not NULL, has room for each result of the
 * body, and gets what it became. */
bool ad_inline_pure(Graph *dst, const Graph *body, const Val *args, Val *outs, GErr *e);
bool ad_inline_mapped(Graph *dst, const Graph *body, const Val *args, Val *outs, Val *map, GErr *e);
/* Node `node` of src appended to dst with its operands replaced by `in` and the provenance
 * dst->at; its regions are copied to dst's arena. Returns the first result; VAL_NONE with `e`
 * when the shape rule refuses. */
Val ad_copy_node(Graph *dst, const Graph *src, uint32_t node, const Val *in, GErr *e);

#endif
