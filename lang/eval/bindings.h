/* The values of names: locals, variables of the file, captures; and the names of values. */
#ifndef CKL_LANG_EVAL_BINDINGS_H
#define CKL_LANG_EVAL_BINDINGS_H

#include "lang/lang.h"
#include "lang/names/module.h"

Value bind_made_definite(Session *s, Value v, Span at); /* a weak tensor gets its dtype (rule 14) */
Value bind_global_value(Session *s, Global *g, Span at);
void bind_pattern(Session *s, Node *pat, Value v, bool is_var);
void local_room(Session *s); /* for one more */
static inline void local_push(Session *s, Name name, Value v, bool is_var, Span at) {
  if (s->local_count == s->local_cap) local_room(s);
  value_retain(v);
  s->locals[s->local_count++] = (Local){name, v, is_var, at};
}
static inline void local_pop(Session *s, size_t to) {
  while (s->local_count > to) value_release(s->locals[--s->local_count].v);
}
/* The local that a name of the present frame means: the innermost one. */
static inline Local *local_find(const Session *s, Name name) {
  if (!s->frame) return NULL;
  for (size_t i = s->local_count; i > s->frame->base; i--)
    if (s->locals[i - 1].name == name) return &s->locals[i - 1];
  return NULL;
}
/* The value of a name; without one an error, or V_UNKNOWN if `must` is false. */
Value bind_name_value(Session *s, Name name, Span at, bool must);
/* Field or method of an instance; false when it has none of that name. */
bool model_get(Session *s, Inst *i, Name name, Span at, Value *out);

/* A function literal with its captures; with `vars_too` also `var`s, by their present values. */
Value closure_of_fn(Session *s, Node *n, bool is_code, bool vars_too);
Value closure_of_body(Session *s, Node *lambda,
                      bool is_code); /* may read outer vars: wrap bodies */
/* For a block of script: it may read and assign variables, also those of the top level. */
Value closure_of_capsule(Session *s, Node *lambda);

/* naming.c */
void name_result(Session *s, Node *pat, Value v); /* gives graph values the names of their `let` */
void name_variable(Session *s, Name name, Value v); /* the same for an assigned variable */
void name_check_shadow(Session *s, const Word *w);  /* rule 3 */

#endif
