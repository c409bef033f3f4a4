/* `ckl check` and `ckl ir`: looking at programs without running them. */
#ifndef CKL_LANG_CHECK_CHECK_H
#define CKL_LANG_CHECK_CHECK_H

#include "lang/builtin/builtin.h"
#include "lang/lang.h"

/* Checks functions for all sizes and, if `script`, script statements. Errors are filed. */
bool check_module(Session *s, Module *m, bool script);
Value abstract_comp(Session *s, Node *comp);
Value abstract_element(Session *s, Value it, Span at); /* the value that a loop over `it` binds */
/* The result of a builtin, as far as it is known. */
Value abstract_builtin(Session *s, const Builtin *b, Call *c);
/* Whether the result of a builtin in script depends on data. */
bool abstract_only(Session *s, const Call *c);
/* Variables that a loop or branch of script assigns, while `ckl check` walks it. */
typedef struct AbstractVars {
  Name *names;
  size_t count;
  Value *before;
} AbstractVars;
AbstractVars abstract_vars(Session *s, Node *body);
Node *abstract_assigned_root(Node *assign); /* `x` of `x[i].y = ..` */
void abstract_enter_loop(Session *s, const AbstractVars *k);
void abstract_leave(Session *s, const AbstractVars *k);
Value *abstract_swap(Session *s, const AbstractVars *k);
void abstract_join(Session *s, const AbstractVars *k, const Value *other);
void abstract_forget(Session *s, const AbstractVars *k);
Node *abstract_assignment(Node *body, Name name); /* the last one to that variable, or NULL */
bool abstract_returns(Node *body);
/* A function became a value: the variables that it assigns are unknown from now on. */
void abstract_taken(const FnObj *f);
bool abstract_param(Session *s, Value v);
bool abstract_recursion(Session *s, const FnObj *f); /* a call inside a call of the same function */
void check_step(Session *s); /* counts a call or iteration; a check that takes too long gives up */
/* ends the check of a function or statement, without an error */
_Noreturn void check_gives_up(Session *s);

/* ---- ir_tool.c */

/* The graph of function `fn` of the main file for arguments of n types, at a stage, as text. */
bool check_ir_print(Session *s, Buf *out, const char *fn, const char *const *types, size_t n,
                    const char *stage);
/* Throws unless there is a type for each parameter of the function of the file. */
void check_types_fit(Session *s, const char *fn, size_t n);
#endif
