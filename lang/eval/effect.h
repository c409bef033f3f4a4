/* Assertions with the values of their two sides (rules 53, 97). */
#ifndef CKL_LANG_EVAL_EFFECT_H
#define CKL_LANG_EVAL_EFFECT_H

#include "lang/lang.h"

void effect_assert(Session *s, Value cond, const Value *left, const Value *right, Span at);

#endif
