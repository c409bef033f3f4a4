/* What earlier turns of a loop made of a value, for gradients inside a turn: history.c. */
#ifndef CKL_LANG_EVAL_HISTORY_H
#define CKL_LANG_EVAL_HISTORY_H

#include "lang/compile/stage.h"
#include "lang/lang.h"

/* A gradient was taken by a carried value and by another value of the turn, at once. */
typedef struct Taken {
  Val carried, also; /* inputs of the region; `also` may be another value of it */
  Span at;
} Taken;

typedef struct History {
  Taken *items;
  size_t count, cap;
} History;

/* Notes a gradient by wrt[0 .. n - 1], values of the region of st (VAL_NONE: none of it), whose
 * inputs 1 .. carried go from turn to turn. */
void history_note(Session *s, History *h, const Stage *st, size_t carried, size_t n, const Val *wrt,
                  Span at);
/* When the region is staged, with args and outs for what it carries: an error if a carried value
 * was made of the other one, before the loop or in the turn before. */
void history_check(Session *s, const History *h, const Stage *st, size_t carried, const Val *args,
                   const Val *outs);

#endif
