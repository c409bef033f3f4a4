/* What the text of a loop says: loop_body.c. */
#ifndef CKL_LANG_EVAL_LOOP_BODY_H
#define CKL_LANG_EVAL_LOOP_BODY_H

#include "lang/lang.h"

/* The first read of the list that is no `list = push(list, ..)`; NULL: there is none. */
Node *loop_reads(Node *loop, Name list);
/* Whether it has a `return` of the function around, else a `break`, of an inner loop, too. */
typedef enum LoopExit { LOOP_ENDS, LOOP_BREAKS, LOOP_RETURNS } LoopExit;
LoopExit loop_exits(Node *loop);
bool loop_pushes_and_exits(Node *loop);
/* `while true` without a break ends by a return. */
bool loop_only_returns(const Node *loop);

#endif
