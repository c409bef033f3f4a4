/* What is chosen for a call: what becomes of the values of its `checkpoint` blocks, where a budget,
 * `auto` or a limit of memory leaves that open (rules 82, 86), and of those of code without blocks,
 * where its gradient holds much.
 *
 * Three words: a graph is *planned*, which gives a list of launches with its peak (jit/plan); of
 * several plans one is *chosen*; what was chosen and what it takes is *reported* to the user
 * (lang/compile/report.h).
 */
#ifndef CKL_LANG_CHECKPOINT_CHOICE_H
#define CKL_LANG_CHECKPOINT_CHOICE_H

#include "autograd/autograd.h"
#include "jit/plan/jit.h"
#include "lang/lang.h"

/* A graph that runs, or the two halves of one. */
typedef struct Runs {
  const Graph *first, *second; /* second: the backward, or NULL */
  const Joint *joint;
} Runs;
/* Of runs with a backward: what it gets beside what was saved, in bytes. */
int64_t choice_cotangents(const Runs *r, const int64_t *env);

/* What was planned, to the byte: its graphs, and their functions before code is made, so that what
 * runs is not planned again. Counted. */
typedef struct Planned {
  int64_t rc;
  Arena arena;
  Runs runs;
  JitFn *first, *second; /* NULL: none, or taken */
} Planned;
void plan_unref(Planned *p); /* NULL is fine */

/* What becomes of the values of a graph's blocks (autograd/remat.h), and what that takes. */
typedef struct Choice {
  const Graph *g;        /* to which `choice` belongs; NULL: there are no blocks */
  uint32_t split;        /* of a joint graph; UINT32_MAX: of one graph with forward and backward */
  const uint8_t *choice; /* NULL: as written */
  int candidates;        /* plans looked at; 0: nobody asked for a choice */
  int64_t need;          /* of choice_for_*: bytes of the process */
  int64_t need_dense;    /* the same where all inputs are dense */
  Planned *planned;      /* for this choice, with a reference on the pool; NULL: nothing yet */
} Choice;

/* Whether somebody asks for a choice: a budget, `auto`, or a limit of the session. */
bool choice_wanted(const Session *s, const Graph *g);
/* The fastest of a set of plans that keeps all budgets, and the limit, as a choice for g in a; the
 * set is the same whatever the budgets are. `dense`: per input, bytes of the copy that kernels get
 * where it is not dense; NULL: there are none. Throws a diagnostic at `at` when no plan does. */
Choice choice_for_graph(Session *s, Arena *a, const Graph *g, const int64_t *env,
                        const int64_t *dense, Span at);
Choice choice_for_joint(Session *s, Arena *a, const JointWhole *w, const int64_t *env,
                        const int64_t *dense, Span at);
/* Whether a choice made before is within the limit of the process now. */
bool choice_fits(Session *s, const Choice *c, const int64_t *dense, size_t inputs);

/* The same for code without blocks: whether a gradient holds enough for a choice to pay, and the
 * plan that keeps least of those that take hardly more time; choice.g is g in one block. `plain`: g
 * simplified, which runs where less would not pay; NULL: where it is split. */
bool auto_remat_wanted(Session *s, const Graph *g, const int64_t *env);
Choice auto_remat(Session *s, Arena *a, const Graph *g, uint32_t split, const Graph *plain,
                  const int64_t *env);

#endif
