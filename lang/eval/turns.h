/* Loops of code that stay loops: turns.c. */
#ifndef CKL_LANG_EVAL_TURNS_H
#define CKL_LANG_EVAL_TURNS_H

#include "lang/eval/eval.h"
#include "lang/lang.h"

/* `for` through lo .. hi, or with `it` through the rows of a tensor; the loop's OpenLoop is the
 * innermost one. A return that was taken is in the frame. `tried`: it can be unrolled instead. */
Flow turns_for(Session *s, Node *st, Value it, Value lo, Value hi, bool tried);
Flow turns_while(Session *s, Node *st);

/* The symbol of the loop whose turn st stages, in dims of the turn (dim_counter): the number of the
 * turn plus *first. DIM_BAD: it has none yet, and `make` is false. */
Dim turns_counter(const Stage *st, bool make, int64_t *first);

/* The gradients that are taken in the turn that st stages. */
struct History *turns_history(const Stage *st);

#endif
