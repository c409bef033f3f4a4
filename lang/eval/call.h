/* Calls: arguments, frames, functions and models. */
#ifndef CKL_LANG_EVAL_CALL_H
#define CKL_LANG_EVAL_CALL_H

#include "lang/lang.h"

typedef struct Args {
  size_t count; /* positional first, then named */
  Value *v;
  Name *names; /* NULL = by position */
  Span *spans;
  Span call;
  bool own; /* the place that is assigned alone holds the first: a builtin may change it */
} Args;

Args eval_args(Session *s, NodeList *l, const Value *receiver, Span receiver_span, Span call);
Value call_value(Session *s, Value f, const Args *a);
Value call_simple(Session *s, Value f, size_t n, const Value *v, Span at); /* positional */
Value call_fn(Session *s, FnObj *f, const Args *a);
/* Evaluates the body in a new frame, in the present stage (or script). */
Value call_inline(Session *s, FnObj *f, const Args *a);
Value eval_custom_call(Session *s, FnObj *f, const Args *a);
Value call_backward_body(Session *s, FnObj *f, const Args *a, Value out, Value g); /* rule 79 */
Value model_construct(Session *s, ModelDecl *m, const Args *a);

const char *call_fn_name(const FnObj *f);
void frame_push(Session *s, Frame *fr, FnObj *f, Span call);
void frame_pop(Session *s, Frame *fr);
/* Replaces the values v by those that a construct in code uses, so that it contributes once
 * (rule 74): each float value passes an alias node, equal ones the same. */
void call_enter_values(Session *s, size_t n, Val *v, Span at);
/* The first parameter of this name; p->count: there is none. For a call with many arguments, the
 * first search fills t with the parameters. */
uint32_t call_param_named(Session *s, const NodeList *p, Name name, size_t args, Table *t);
void call_bind_args(Session *s, FnObj *f, const Args *a, Value *out, Span *spans, bool *given);

#endif
