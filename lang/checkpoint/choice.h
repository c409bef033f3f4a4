/* Choices for a call: which values of its `checkpoint` blocks it keeps, if a budget, `auto` or a
 * limit of memory leaves that open (rules 82, 86). Code without blocks has a choice if its gradient
 * holds much.
 *
 * Three words: a graph is *planned*, which gives a list of launches with its peak (jit/plan); of
 * several plans one is *chosen*; the choice and the memory that it takes are *reported* to the user
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
/* Bytes of the inputs of a backward beside the saved values. */
int64_t choice_cotangents(const Runs *r, const int64_t *env);

/* A plan, exact to the byte: its graphs, and their functions before code is made, so that these
 * graphs are not planned again to run. Reference-counted. */
typedef struct Planned {
  int64_t rc;
  Arena arena;
  Runs runs;
  JitFn *first, *second; /* NULL: none, or taken */
} Planned;
void plan_unref(Planned *p); /* NULL is fine */

/* The memory of a call's inputs, per input. */
typedef struct InputMemory {
  size_t count;
  const int64_t *dense; /* bytes of the copy that kernels get if it is not dense; 0: it is */
  bool *alone;          /* what is written to the input may take its memory (RunCtx) */
  bool *later;          /* the same in the calls after this one, when what is written is dense */
} InputMemory;

/* A choice for the values of a graph's blocks (autograd/remat.h), and the memory that it takes. */
typedef struct Choice {
  const Graph *g;        /* the graph of `choice`; NULL: there are no blocks */
  uint32_t split;        /* of a joint graph; UINT32_MAX: of one graph with forward and backward */
  const uint8_t *choice; /* NULL: as written */
  int candidates;        /* plans looked at; 0: no choice was asked for */
  int64_t need;          /* of choice_for_*: bytes of the process */
  int64_t need_dense;    /* `need` if all inputs are dense */
  InputMemory memory;    /* for which `need` is; `dense`: bytes that are written to the input */
  Planned *planned;      /* its plan, with a reference on the pool; NULL: none yet */
} Choice;

/* Whether a budget, `auto`, or a limit of the session asks for a choice. */
bool choice_wanted(const Session *s, const Graph *g);
/* Chooses the fastest of a set of plans that keeps all budgets and the limit. The result is a
 * choice for g, on arena a. The set does not depend on the budgets. `memory`: NULL if the call is
 * not known. Throws a diagnostic at `at` if no plan fits. */
Choice choice_for_graph(Session *s, Arena *a, const Graph *g, const int64_t *env,
                        const InputMemory *memory, Span at);
Choice choice_for_joint(Session *s, Arena *a, const JointWhole *w, const int64_t *env,
                        const InputMemory *memory, Span at);

/* ---- all plans that a call could have */
typedef struct ChoiceOf {
  Session *s;
  Arena *a;                /* of the result */
  const Graph *g;          /* whole->g, if that is given */
  const JointWhole *whole; /* NULL: g is one graph */
  const int64_t *env;
  const InputMemory *memory; /* NULL: not known */
} ChoiceOf;
typedef struct CurvePlan {
  Choice choice; /* with its plan */
  int64_t time;  /* rm_time of its graphs */
  int64_t
      *budget; /* per block of the table: bytes that allow for the plan; blocks of one text in the
                      program have one budget */
  bool by_budget; /* with these budgets it is chosen */
} CurvePlan;
typedef struct Curve {
  CurvePlan *plans;           /* that none beats, by rising memory and falling time */
  size_t count, knee, looked; /* knee: the plan that `auto` takes; looked: plans made */
} Curve;
/* Plans all candidates as if each block had a budget. Returns out->count. */
size_t choice_curve(const ChoiceOf *of, Curve *out);
/* Plans a choice for the graph. The plan is NULL if it cannot be made. */
Choice choice_planned(const ChoiceOf *of, const uint8_t *choice);
/* g with one block of the backward and all nodes that it needs; `to_loss`: and what the program
 * computes of them before it takes a gradient, as a block in the program would hold it. */
Graph *choice_block(Arena *a, Arena *temp, const Graph *g, bool to_loss);

/* Whether a choice made before is within the limit of the process now. */
bool choice_fits(Session *s, const Choice *c, const InputMemory *memory);

/* For code without blocks: whether a gradient holds enough for a choice to pay, and the choice of
 * the plan that keeps least, of those that take hardly more time; its graph is g in one block.
 * `plain`: g simplified, which runs if keeping less does not pay; NULL: g is split. */
bool auto_remat_wanted(Session *s, const Graph *g, const int64_t *env);
Choice auto_remat(Session *s, Arena *a, const Graph *g, uint32_t split, const Graph *plain,
                  const int64_t *env);

#endif
