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
Value state_kept(Session *s, Value v);   /* likewise; in script params are what they are now */
/* Gradients by a param are by v from here on, in this stage and those inside; home: see Base. */
void state_base(Unit *u, State *st, Value v, const Frame *home);
void state_turn(Unit *u, State *st, Value v); /* the same in a turn of a loop of the call */
/* A call of a function that takes gradients has params of its own: gradients by them are by what it
 * makes of them, as they are by its arguments (rule 69). NULL: it has those of the unit. */
typedef struct Entered {
  State *states;
  size_t count;
} Entered;
bool state_enters(const Frame *fr); /* it is no unit itself */
/* `check`: a gradient by params may be by other values than those of a made-up instance. */
bool state_unsure(const Session *s);
Entered *state_enter(Session *s, Frame *fr, Span at);
void state_leave(Session *s, const Entered *e);
/* v, which a choice or a loop gives, is the present value of st, or what a call sees of it. */
void state_merged(Session *s, State *st, Value v);
bool state_is_merged(const Stage *st, Val v); /* of stage st */
Value state_field_value(Session *s, Inst *i, Field *f);

/* v as the value of a buffer with Field.type, which it has to match; without its tape. A buffer
 * keeps no instance, function or sequence, since an instance in it could hold itself. */
Value state_fitted(Session *s, Inst *i, Field *f, Value v, Span at);
/* A step to a part of a value: a field of a record, else an element, or a key. */
typedef struct StateStep {
  Name field;
  Value key;
} StateStep;
/* The same, of the part of that value behind n steps. */
Value state_part_fitted(Session *s, Inst *i, Field *f, size_t n, const StateStep *step, Value v,
                        Span at);

#endif
