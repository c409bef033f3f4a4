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

/* The joint graph split in two (architecture.md: partition as save-all).
 * forward: inputs of f -> outputs of f, then the saved values.
 * backward: saved values, then one cotangent for every output with has_cotangent -> gradients of
 * the inputs with wants_grad, in order. gives_grad[i] (for input i) says whether the gradient is
 * structurally there; absent ones have no output. Values both sides can remake for free (constants,
 * dims, views of saved ones) are remade instead of saved. */
typedef struct Joint {
  Graph *forward, *backward;
  int output_count, saved_count;
  int *saved_input; /* saved[i] is input number .. of f, or -1: no copy is held twice */
  bool *gives_grad; /* per input of f */
} Joint;
Joint *ad_joint(Arena *a, const Graph *f, const bool *has_cotangent, const bool *wants_grad,
                GErr *e, Prov *at);

#endif
