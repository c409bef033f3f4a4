/* Params and buffers, in script and in code. */
#ifndef CKL_LANG_EVAL_STATE_H
#define CKL_LANG_EVAL_STATE_H

#include "lang/compile/compile.h"
#include "lang/lang.h"

Value state_read(Session *s, Inst *i, Field *f, Span at);
void state_write(Session *s, Inst *i, Field *f, Value v, Span at);
Value param_read(Session *s, Param *p, Span at); /* its value as a tensor, script or code */
void param_write(Session *s, Param *p, Value v, Span at);
/* Sets the value of a param, after operands_hold; takes over t. */
void param_put(Param *p, Tensor *t);
Value state_detach(Session *s, Value v); /* the value without its tape */
/* Gradients by a param are by v from here on, in this stage and those inside. */
void state_base(Unit *u, State *st, Value v);
/* v, which a choice or a loop gives, is the present value of st, or what a call sees of it. */
void state_merged(Session *s, State *st, Value v);
bool state_is_merged(const Stage *st, Val v); /* of stage st */
Value state_field_value(Session *s, Inst *i, Field *f);

#endif
