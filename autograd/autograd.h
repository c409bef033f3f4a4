/* Reverse-mode differentiation, graph to graph. */
#ifndef CKL_AUTOGRAD_AUTOGRAD_H
#define CKL_AUTOGRAD_AUTOGRAD_H

#include "graph/ir.h"

/* Appends to `g` the gradients of the values `y` (cotangents `dy`, one per y) with respect to the
 * values `wrt`, which may be inputs or intermediate values. dx[i] is VAL_NONE where no y depends on
 * wrt[i] through a differentiable path. Contributions to a value are added last use first, pairwise
 * (rule 74). Every node made carries the provenance of the forward node it belongs to, with
 * backward = 1. Nodes made are ordinary nodes: calling again differentiates them too. False with
 * `e` (and e's provenance in `*at`) when an op on the way has no derivative and one is really
 * needed. */
bool ad_vjp(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt, Val *dx,
            GErr *e, Prov *at);

/* The same by values of which some are one thing to the program, a param and what was written to it
 * (rule 60): wrt[i] counts for wrt[as[i]], the earliest of them, whose gradient is the sum of all
 * their uses, the last first whichever it is of; dx of the others is VAL_NONE. as[i] = i: for
 * itself. */
bool ad_vjp_as(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt,
               const int *as, Val *dx, GErr *e, Prov *at);

/* The input whose gradient is wanted that node n is a later version of, or -1. What a call writes
 * to a param is a `stop` with the number of the param's input: a leaf of its own, whose gradient
 * counts as the param's (rule 60). `inputs`: of the function. */
int64_t ad_version(const Graph *f, uint32_t n, const bool *wants_grad, size_t inputs);
/* Which outputs of f depend on a wanted input, or on a later version of one, through a
 * differentiable path. */
void ad_reached(Arena *scratch, const Graph *f, const bool *wants_grad, bool *output);
/* Whether gradients pass through an operation. */
bool ad_passes(OpCode op);

/* f and its gradient in one graph.
 * Inputs: f's, then one cotangent for every output with has_cotangent, then, for every input with
 * carries, the cotangent that it has from uses outside of f, which come after those in f: the sum
 * goes on from there (rule 74). Outputs: f's, then the gradients of inputs with wants_grad that are
 * structurally there, in order. */
typedef struct JointWant {
  const bool *has_cotangent;        /* per output of f */
  const bool *wants_grad, *carries; /* per input of f; carries: only with wants_grad, or NULL */
} JointWant;
typedef struct JointWhole {
  Graph *g;
  const Graph *flat;             /* f with bodies of `wrap` in place */
  uint32_t split;                /* the first node of g that is backward */
  int input_count, output_count; /* of f */
  bool *gives_grad;              /* per input of f */
} JointWhole;
JointWhole *ad_joint_whole(Arena *a, const Graph *f, const JointWant *want, GErr *e, Prov *at);

/* The joint graph split in two.
 * forward: inputs of f -> outputs of f, then the saved values.
 * backward: saved values, then the cotangents -> gradients. gives_grad[i] (for input i) says
 * whether the gradient is structurally there; absent ones have no output. Values both sides can
 * recompute for free (constants, dims, views of saved ones) are recomputed instead of saved.
 * `choice` says what becomes of each value of w->g that belongs to a `checkpoint` block
 * (autograd/remat.h); NULL: as written. `w` stays as it is and may be split again. */
typedef struct Joint {
  Graph *forward, *backward;
  int output_count, saved_count;
  int *saved_input; /* saved[i] is input number .. of f, or -1: no copy is held twice */
  bool *gives_grad; /* per input of f */
} Joint;
Joint *ad_joint_split(Arena *a, const JointWhole *w, const uint8_t *choice, GErr *e, Prov *at);
/* Both, without carries, as written. */
Joint *ad_joint(Arena *a, const Graph *f, const bool *has_cotangent, const bool *wants_grad,
                GErr *e, Prov *at);
/* Its two graphs as text, with a line that says what is saved: a cotangent for every output that is
 * a float, a gradient for every such input. */
bool ad_joint_show(Arena *a, const Graph *f, Buf *out, GErr *e, Prov *at);

#endif
