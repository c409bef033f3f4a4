/* Reverse-mode differentiation: gradients of values of a graph, appended to it. */
#ifndef CKL_AUTOGRAD_VJP_H
#define CKL_AUTOGRAD_VJP_H

#include "graph/ir.h"
#include "graph/structure.h"

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

/* Returns the input with a wanted gradient that node n is a later version of, or -1. A value that a
 * call writes to a param is a `stop` node with the number of the param's input. It is a leaf, and
 * its gradient counts as the param's (rule 60). `inputs` is the function's count of inputs. */
int64_t ad_version(const Graph *f, uint32_t n, const bool *wants_grad, size_t inputs);
/* Sets output[i] if output i of f depends on a wanted input, or on a later version of one, through
 * a differentiable path. */
void ad_reached(Arena *scratch, const Graph *f, const bool *wants_grad, bool *output);
/* Whether gradients pass through an operation. */
bool ad_passes(OpCode op);

#endif
