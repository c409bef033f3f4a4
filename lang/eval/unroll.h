/* Loops of code that are unrolled or stay loops: unroll.c. */
#ifndef CKL_LANG_EVAL_UNROLL_H
#define CKL_LANG_EVAL_UNROLL_H

#include "lang/eval/eval.h"
#include "lang/lang.h"

/* turns_for, for turns lo .. hi - 1 that could be unrolled. False: they have to be, since the loop
 * needs what only constants give; nothing is left of the attempt. */
bool unroll_not(Session *s, Node *st, Value it, int64_t lo, int64_t hi, Flow *flow);
/* Does what `unrolled` does; unless exits on data leave lists of several lengths in that, or it
 * says that there are too many iterations: then it is a loop, and true. If that cannot be, nothing
 * is left of it, and *too_many stays. */
bool unroll_or_stay(Session *s, Node *st, Value it, int64_t lo, int64_t hi,
                    void (*unrolled)(void *), void *ud, bool *too_many, Flow *flow);

#endif
