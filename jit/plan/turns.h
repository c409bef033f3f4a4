/* A loop whose turns run without the evaluator: what run_turns.c shares with run_list.c. */
#ifndef CKL_JIT_PLAN_TURNS_H
#define CKL_JIT_PLAN_TURNS_H

#include "jit/plan/plan.h"

typedef struct Turns {
  JitFn *f; /* that has the loop */
  RunCtx *c;
  const Graph *body;
  const Kernel *k; /* all turns are one kernel; NULL: each is the list of `list` */
  KernelFn code;
  struct List *list;
  int carry, rows, inputs, gives;
  bool reverse, goes_on, apart; /* apart: from the caller's carried values */
  int64_t count;                /* the most turns */
  int64_t room;                 /* turns for which there are rows to keep */
  uint64_t nodes;               /* that lists ran, as gr_run would count them */
  Tensor *const *in;            /* of the node */
  Tensor **own;                 /* refs: dense inputs (NULL: rows that are tensors of their own);
                   what the body gives; turns and nodes that ran; with a list a
                   second tensor for each carried value */
  void **buf;
  int64_t *arg; /* followed by the bytes of the buffers, for tested addresses */
} Turns;

/* Whether turns of a loop with this body can be a list: all of its steps are kernels. */
bool list_fits(const JitFn *body);
/* Begins, with room for the rows of `count` turns; the inputs are in t->own. 0: the evaluator has
 * to take the loop, -1: no memory. */
int list_open(Turns *t, JitFn *body, int64_t count);
/* Makes room for the rows of `count` turns, of which `done` are there. False when out of memory. */
bool list_rows(Turns *t, int64_t count, int64_t done);
/* Runs at most `n` turns, the first of which has number `first`; *done of them. False with `e`, or
 * with st->failed. */
bool list_part(Turns *t, int64_t n, int64_t first, int64_t *done, KStatus *st, GErr *e, Prov *at);
/* Moves what is carried to the tensors that the loop gives: before rows move, and at the end. */
void list_settle(Turns *t);
/* The result that turns make; NULL: out of memory. `n`: how many rows it has. */
Tensor *turns_tensor(const Turns *t, int output, int64_t n);

#endif
