/* Plans of compiled calls: what a call takes, what waits for its backward, and which of several
 * plans of its `checkpoint` blocks is taken (rules 80 to 86). */
#ifndef CKL_LANG_COMPILE_REPORT_H
#define CKL_LANG_COMPILE_REPORT_H

#include "autograd/autograd.h"
#include "jit/plan/jit.h"
#include "lang/compile/compile.h"

/* Operations by class; views and constants count nowhere. */
typedef enum OpBin {
#define OPCLASS(NAME, word, of, doc) of(BIN_##NAME, )
#include "lang/names/clauses.def"
  BIN_MOVE,
  BIN_COUNT
} OpBin;
extern const char *const op_bin_name[BIN_COUNT];
typedef struct OpCounts {
  int64_t forward[BIN_COUNT], backward[BIN_COUNT]; /* what is computed again is of the backward */
} OpCounts;
void op_counts(const Graph *g, OpCounts *add);
void op_count_one(Session *s, OpCode op); /* an operation of script */

/* A graph that runs, or the two halves of one. */
typedef struct Runs {
  const Graph *first, *second; /* second: the backward, or NULL */
  const Joint *joint;
} Runs;

/* What was planned, to the byte: its graphs, and their functions before code is made, so that what
 * runs is not planned again. Counted. */
typedef struct Planned {
  int64_t rc;
  Arena arena;
  Runs runs;
  JitFn *first, *second; /* NULL: none, or taken */
} Planned;
void planned_unref(Planned *p); /* NULL is fine */

/* Who takes the choices of a graph's blocks (autograd/remat.h), and what came of it. */
typedef struct Choice {
  const Graph *g;        /* to which `choice` belongs; NULL: there are no blocks */
  uint32_t split;        /* of a joint graph; UINT32_MAX: of one graph with forward and backward */
  const uint8_t *choice; /* NULL: as written */
  int candidates;        /* plans looked at; 0: nobody asked for a choice */
  int64_t need, bare;    /* of plan_choose: bytes of the process; where all inputs are dense */
  Planned *made;         /* by this choice, with a reference on the pool; NULL: nothing yet */
} Choice;

/* Bytes of a call. `peak` holds while it runs, and for a call with a backward until that has run:
 * everything that the call itself reads or makes. `outputs`: results beside what is `saved`. */
typedef struct PlanFigures {
  int64_t params, buffers, inputs, outputs, arena, live, panels, scratch, saved, peak, flops;
  int64_t later;   /* the peak when buffers that repeat a number have been written, and take room */
  int64_t inner;   /* of the peak: what bodies of loops, branches and maps make, at most */
  int64_t spilled; /* beside the peak: offloaded values of the host */
  int64_t time;    /* rm_time: without a unit */
  OpCounts ops;
  bool exact;    /* the peak is met to the byte */
  bool bound;    /* the peak is not passed; neither: the evaluator runs a part, and takes more */
  bool compiled; /* false: the evaluator runs all of it: nothing of the arena is known */
} PlanFigures;

/* What is known of a call before it runs. */
typedef struct CallPlan {
  Session *s;
  const char *name, *model; /* model: whose method it is, or NULL */
  Flat *flat;
  const Graph *const *inputs;
  const int64_t *env;
  Runs runs;
  Choice choice;
  const int64_t *source; /* of graph input i: leaf, or less than 0: a random key */
  size_t input_count;
} CallPlan;
/* Of runs with a backward: what it gets beside what was saved. */
int64_t plan_cotangents(const Runs *r, const int64_t *env);
void plan_figures(const CallPlan *c, PlanFigures *out);
void plan_print(const CallPlan *c, Buf *out);
void plan_json(const CallPlan *c, Buf *out);
Value plan_value(const CallPlan *c);
FnObj *plan_code(Session *s, Value v, Span at);       /* b_data.c: the function of code that v is */
Value plan_call(Session *s, FnObj *f, const Args *a); /* compile.c: plan_value of f(a) */
/* Prints the plan of a first call where the session is asked to; does not come back from the call
 * that `ckl plan` waits for. */
void plan_tell(const CallPlan *c);

/* Whether somebody asks for a choice: a budget, `auto`, or a limit of the session. */
bool plan_wanted(const Session *s, const Graph *g);
/* The fastest of a set of plans that keeps all budgets, and the limit, as a choice for g in a; the
 * set is the same whatever the budgets are. `dense`: per input, bytes of the copy that kernels get
 * where it is not dense; NULL: there are none. Throws a diagnostic at `at` when no plan does. */
Choice plan_choose(Session *s, Arena *a, const Graph *g, const int64_t *env, const int64_t *dense,
                   Span at);
Choice plan_choose_joint(Session *s, Arena *a, const JointWhole *w, const int64_t *env,
                         const int64_t *dense, Span at);
/* Whether a choice made before is within the limit of the process now. */
bool plan_fits(Session *s, const Choice *c, const int64_t *dense, size_t inputs);

/* The same for code without blocks: whether a gradient holds enough for a choice to pay, and the
 * plan that keeps least of those that take hardly more time; choice.g is g in one block. `plain`: g
 * simplified, which runs where less would not pay; NULL: where it is split. */
bool plan_thrift_wanted(Session *s, const Graph *g, const int64_t *env);
Choice plan_thrift(Session *s, Arena *a, const Graph *g, uint32_t split, const Graph *plain,
                   const int64_t *env);

enum { MEM_ERR_PLANNED = 7 }; /* plan_tell: the call was found */

#endif
