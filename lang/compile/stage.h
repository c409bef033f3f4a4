/* Stages: graphs under construction, and questions of the evaluator about the compiled call. */
#ifndef CKL_LANG_COMPILE_STAGE_H
#define CKL_LANG_COMPILE_STAGE_H

#include "lang/eval/call.h"
#include "lang/lang.h"
#include "lang/names/module.h"

struct Stage {
  Graph *g;
  Stage *up;
  Unit *unit;
  uint32_t level; /* 1 = the unit's own graph */
  Val *outer;
  Val *inner; /* captures: values of the stage above and their inputs here */
  size_t capture_count, capture_cap, outer_cap;
  struct Quiet {
    uint32_t lo, hi;
  } * quiet; /* nodes lo .. hi - 1 were made under no_grad */
  size_t quiet_count, quiet_cap;
  struct OpenBlock *open; /* innermost checkpoint block that is being staged: policy.h */
  const Val *rows; /* of a comprehension: what each of the first inputs is an element of, a value of
                      the stage above; VAL_NONE: of a range */
  uint32_t row_count;
  uint32_t counters;   /* inputs that are counters from 0: a bit each */
  bool batched;        /* of a comprehension or vmap: its graph is batched (graph/batch.c) */
  bool side;           /* of an `if` on data: it runs in its place among effects and writes */
  struct Turns *turns; /* of the turn of a loop: eval/turns.c */
  Val token;           /* of a side: the effect token of the stage around it; VAL_NONE: none yet */
  bool apart; /* the forward of a function with its own backward: no gradient passes here */
};

void stage_at(Session *s, Span at);             /* provenance of the next nodes of s->stage */
Value stage_lift(Session *s, Value v, Span at); /* any tensor or number as a V_NODE of s->stage */
/* the same, cut if it was made under no_grad and the mode is grad */
Value stage_operand(Session *s, Value v, Span at);
/* The input of st, a region, for a value of the stage around it. */
Val stage_capture(Stage *st, Val outer);
/* Whether what is staged now runs in order: in the function, or on a side of an `if` of it. */
bool stage_in_order(const Stage *st);
Val stage_token(Session *s, Span at); /* the present effect token */
/* no_grad in code (rule 78): begins or ends an interval of nodes. A value that leaves one that
 * began at node `start` is cut, unless an inner `wrap <grad>` made it. */
void stage_quiet(Session *s, bool on);
/* What x, of the present stage, is outside of no_grad. *other: that differs from x cut. */
Val stage_outside(Session *s, Val x, bool *other, Span at);
/* A value of the present stage, made under no_grad, is `cut` outside. */
void stage_apart(Session *s, Val v, Val cut);
/* v outside of no_grad; `all`: what stood before it is cut, too. */
Value stage_leave_quiet(Session *s, Value v, bool all, Span at);

/* unit.c: whether d has an int of the arguments in it, which is no size and may be negative */
bool unit_mentions_int(const Session *s, Dim d);

/* unit.c: a top-level `let` as a hidden argument (rule 7) */
Value unit_global_in_code(Session *s, Global *g, Span at);
/* The constant that d is. If it is none, one of its symbols is pinned and staging starts over; an
 * error if that cannot be. */
void unit_need_const(Session *s, Dim d, Span at, const char *why, int64_t *out);
/* The same for a size that the constant `only` alone fits, as in a call of `fn f(x: f32[4])`; may
 * return without having pinned it. */
void unit_want_const(Session *s, Dim d, int64_t only);

/* compile.c: an outermost code call from script, compiled once per signature, run, recorded */
Value call_run_code(Session *s, FnObj *f, const Args *a);

#endif
