/* What the text of a loop says: loop_body.c. */
#ifndef CKL_LANG_EVAL_LOOP_BODY_H
#define CKL_LANG_EVAL_LOOP_BODY_H

#include "lang/lang.h"

/* The first read of the list that is no `list = push(list, ..)`; NULL: there is none. */
Node *loop_reads(Node *loop, Name list);
bool loop_exits(Node *loop); /* has a `break`, or a `return` of the function around */
bool loop_pushes_and_exits(Node *loop);
/* `while true` without a break ends by a return. */
bool loop_only_returns(const Node *loop);

#endif
