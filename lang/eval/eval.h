/* The walk over statements and expressions, of script and of code. */
#ifndef CKL_LANG_EVAL_EVAL_H
#define CKL_LANG_EVAL_EVAL_H

#include "lang/lang.h"

/* GONE: data decides which exit was taken, but one was (sides.c). */
typedef enum Flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN, FLOW_GONE } Flow;
Value eval_logic(Session *s, Node *e);                 /* logic.c: `and` and `or` */
Value eval_in(Session *s, Node *e, Value x, Value of); /* logic.c: `in` and `not in` */
/* Whether y is x, as `in` says: a bool, or one that data decides. */
Value eval_same_element(Session *s, Value x, Value y, Span at);
Value eval_expr(Session *s, Node *e);
/* x.f of an N_DOT that is not called */
Value eval_field(Session *s, Value x, const Node *dot);
Value eval_block(Session *s, Node *block, Flow *flow); /* in a scope of its own */
Flow eval_stmt(Session *s, Node *stmt, Value *last);
Flow eval_take_flow(Session *s); /* takes a break, continue or return out of an expression */
/* One iteration of a loop: binds its pattern in a scope of its own. */
Flow eval_iteration(Session *s, Node *loop, Value v);
void eval_second(Session *s, Node *right, Value v[2]); /* v[1], while v[0] waits */
static inline void eval_pair(Session *s, Node *left, Node *right, Value v[2]) {
  v[0] = eval_expr(s, left);
  if (v_counted(v[0]))
    eval_second(s, right, v);
  else /* no param, so no write changes it */
    v[1] = eval_expr(s, right);
}
void eval_entry(Session *s, Node *entry, Value v[2]); /* key and value of an N_ENTRY */

/* constructs with a file of their own */
Flow eval_assign(Session *s, Node *st); /* assign.c */
Value eval_comp(Session *s, Node *e);
Value eval_wrap(Session *s, Node *e);
void eval_assert(Session *s, Node *st);

#endif
