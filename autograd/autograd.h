/* Reverse-mode differentiation, graph to graph: a function with its gradient (joint.c); vjp.h has
 * gradients of values. */
#ifndef CKL_AUTOGRAD_AUTOGRAD_H
#define CKL_AUTOGRAD_AUTOGRAD_H

#include "graph/ir.h"

/* f and its gradient in one graph.
 * Inputs: those of f; then one cotangent for each output with has_cotangent; then, for each input
 * with `carries`, its cotangent from uses outside of f, which are uses of what f wrote to it, if it
 * did. These uses come after the uses in f, so the sum starts with their cotangent (rule 74).
 * Outputs: those of f, then, in order, the gradients of inputs with wants_grad that exist
 * structurally; then, in order, a bool for each of these that may be absent at run time (`maybe`):
 * whether a gradient flows to the input. Where it is false, the gradient is -0, or the cotangent
 * from uses outside.
 * Example: f(a, b) = sum(a * b) with both gradients wanted has the inputs a, b, dy and the outputs
 * sum(a * b), dy * b, dy * a. */
typedef struct JointWant {
  const bool *has_cotangent;        /* per output of f */
  const bool *wants_grad, *carries; /* per input of f; carries: only with wants_grad, or NULL */
  /* per input of f: the output that f writes to it, or -1; NULL: there is none */
  const int *written;
} JointWant;
typedef struct JointWhole {
  Graph *g;
  const Graph *flat;             /* f with bodies of `wrap` in place */
  uint32_t split;                /* the first node of g that is backward */
  int input_count, output_count; /* of f */
  bool *gives_grad, *maybe;      /* per input of f */
} JointWhole;
JointWhole *ad_joint_whole(Arena *a, const Graph *f, const JointWant *want, GErr *e, Prov *at);

/* The joint graph, split in two.
 * forward: inputs of f -> outputs of f, then the saved values.
 * backward: saved values, then the cotangents -> gradients. gives_grad[i] tells whether the
 * gradient of input i exists structurally; others have no output. maybe[i]: see above. Values
 * without cost on both sides (constants, dims, views of saved values) are recomputed instead of
 * saved. `choice` has the choice of each value of w->g in a `checkpoint` block (autograd/remat.h);
 * NULL: as written. `w` does not change and may be split again. */
typedef struct Joint {
  Graph *forward, *backward;
  int output_count, saved_count;
  int *saved_input;         /* saved[i] is input number .. of f, or -1: no copy is held twice */
  bool *gives_grad, *maybe; /* per input of f */
} Joint;
Joint *ad_joint_split(Arena *a, const JointWhole *w, const uint8_t *choice, GErr *e, Prov *at);
/* Makes the joint graph and splits it, without `carries` and with choices as written. */
Joint *ad_joint(Arena *a, const Graph *f, const bool *has_cotangent, const bool *wants_grad,
                GErr *e, Prov *at);
/* Prints the two graphs and a line with the saved values, for a cotangent of each float output and
 * a gradient of each float input. */
bool ad_joint_show(Arena *a, const Graph *f, Buf *out, GErr *e, Prov *at);

#endif
