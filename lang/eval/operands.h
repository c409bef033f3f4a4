/* The operands of an expression keep the values that they read, though later operands may write to
 * the same params (rule 48). */
#ifndef CKL_LANG_EVAL_OPERANDS_H
#define CKL_LANG_EVAL_OPERANDS_H

#include "lang/lang.h"

static inline void operands_open(Session *s, Operands *o, Value *v) {
  *o = (Operands){.up = s->operands, .v = v};
  s->operands = o;
}
void operands_give(Session *s, Operands *o); /* moves the values that it holds to the pool */
static inline void operands_close(Session *s, Operands *o) {
  s->operands = o->up;
  if (o->holds) operands_give(s, o);
}
void operands_cut(Session *s, Operands *to); /* after an error: drops those inside of `to` */
void operands_hold(Session *s, Param *p);    /* p is about to be written */
/* v, or for a param in script its present value, which later writes do not change. */
Value operand_held(Session *s, Value v);
/* The same for the params in v, in the tuples, lists, records and dicts that it is made of. */
Value operand_parts_held(Session *s, Value v);

#endif
