/* Gradients of script, as the evaluator and builtins ask for them. */
#ifndef CKL_LANG_TAPE_GRADIENT_H
#define CKL_LANG_TAPE_GRADIENT_H

#include "lang/lang.h"

bool tape_wants_grad(Session *s, Value v); /* a param that is not frozen, or made from one */
typedef struct Take {
  /* the loss: its nodes are used up if no later statement mentions their values; NULL = none are */
  const Node *loss;
  bool last; /* the loss is used up even if statements mention it */
} Take;
Value tape_grad(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                Span at);

#endif
