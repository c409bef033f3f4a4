/* Choices of code that depend on data (rules 40, 43): sides.c. */
#ifndef CKL_LANG_EVAL_SIDES_H
#define CKL_LANG_EVAL_SIDES_H

#include "lang/eval/eval.h"
#include "lang/lang.h"

/* A side of a choice: what it does and gives. A break, continue or return is left in s->flow. */
typedef Value (*SideFn)(Session *s, void *ud);
typedef struct SideChoice {
  Span at;          /* of the choice */
  Span span[2];     /* of its sides */
  SideFn side[2];   /* if the condition holds, or else; NULL: nothing runs, and it gives () */
  const char *what; /* its value, for messages; NULL: "the value" */
  bool skips;       /* side 0 is what runs after an exit: nothing, and it gives no value */
  void *ud;
} SideChoice;
/* Stages both sides as regions of one `branch`. What they assign and write, their exits and their
 * results are results of the node. `cond` is a bool of code. */
Value sides_stage(Session *s, Value cond, const SideChoice *c);

/* `if` on data. */
Value sides_if(Session *s, Node *e, Value cond);

/* The alias of v at the edge of a call (rule 74), which has those of n other values already: if
 * data decides whether v is one of them, so it does for their aliases. */
Value sides_alias(Session *s, size_t n, const AliasEntry *others, Value v, Span at);

/* Whether a break, continue or return that depends on data may have been taken on the way to here:
 * then what follows is staged by sides_rest. */
bool sides_open(const Session *s);
static inline bool sides_pending(const Session *s) {
  return s->stage && sides_open(s);
}
/* An exit that depends on data is not where the rest of its statement can be left out. */
_Noreturn void sides_in_expression(Session *s, Span at);
/* Stages what follows an exit that depends on data: it runs if none was taken. */
Value sides_rest(Session *s, SideFn rest, void *ud, Span at);
/* The result of a call: `v` is that of its body, unless a return that depends on data was taken. */
Value sides_returned(Session *s, Value v, Span at);
/* For a construct that no exit may leave: notes the exits before it, and fails if it had others. */
typedef struct ExitMark {
  Value returned, broken, continued;
} ExitMark;
ExitMark sides_exits(const Session *s);
bool sides_exited(const Session *s, const ExitMark *before);

#endif
