/* Gradients of script, as the evaluator and builtins ask for them. */
#ifndef CKL_LANG_TAPE_GRADIENT_H
#define CKL_LANG_TAPE_GRADIENT_H

#include "lang/lang.h"

bool tape_wants_grad(Session *s, Value v); /* a param that is not frozen, or made from one */
typedef struct Take {
  /* what `grad` was given: what no later statement mentions is used up; NULL = nothing is */
  const Node *loss;
  bool last; /* the loss is used up whoever mentions it */
} Take;
Value tape_grad(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                Span at);

#endif
