/* Hooks: functions of the program that run while a gradient is taken in script (rules 89, 90).
 *
 * A session owns its hooks. A hook names what it hangs on by number, never by reference, so that no
 * cycle can arise; when that dies the hook is forgotten, for nothing can call it any more.
 */
#ifndef CKL_LANG_TAPE_HOOK_H
#define CKL_LANG_TAPE_HOOK_H

#include "lang/lang.h"

typedef enum HookKind {
  HOOK_VALUE,       /* on_grad of a value of the tape: `id` is its node's seq, `out` the result */
  HOOK_PARAM,       /* on_grad of a param: Param.id */
  HOOK_AFTER_GRAD,  /* after_grad of a param: Param.id */
  HOOK_BEFORE_CALL, /* on_call of an instance: Inst.id */
  HOOK_AFTER_CALL,
  HOOK_AFTER_BACKWARD /* id 0 */
} HookKind;

typedef struct HookKey {
  HookKind kind;
  uint64_t id;
  uint32_t out;
} HookKey;

/* The gradient that is taken while hooks run. */
typedef struct HookRun {
  Span grad;    /* the `grad` */
  Modes modes;  /* of the forward that the gradient belongs to (rule 87) */
  bool record;  /* the gradient is recorded, and so is what a hook makes of it */
  Param *param; /* whose gradient it is; NULL: of a value or a call */
} HookRun;

bool hooks_on(Session *s, HookKey k);
/* on_grad(x, f) of a value of script; nothing where x has no gradient. */
void hook_on_value(Session *s, Value x, Value f, Span at);
/* The gradient `g` (a tensor, or a tree of tensors with none where there is no gradient) after the
 * hooks of k in order of registration, which get it and, unless NULL, `seen`; none when one of
 * after_grad dropped it. The result is on the pool. */
Value hooks_gradient(Session *s, HookKey k, const HookRun *r, Value g, const Value *seen);
/* The same with one function that is not registered. */
Value hook_gradient(Session *s, Value f, Span at, const HookRun *r, Value g);
/* Why y cannot stand for x: its size, else its layout, else its dtype differs; NULL when it can. */
const char *hook_misfit(Session *s, const Tensor *x, const Tensor *y);
/* The functions of after_backward; those that are registered meanwhile too. */
void hooks_end(Session *s, const HookRun *r);
/* What the hooks of these kinds hang on dies. */
void hooks_forget(Session *s, HookKind first, HookKind last, uint64_t id);
void hooks_free(Session *s);

#endif
