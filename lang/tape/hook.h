/* Hooks: functions of the program that run while a gradient is taken in script (rules 89, 90).
 *
 * A session owns its hooks. A hook names its value, param or instance by number, never by
 * reference, so that no cycle can arise; when that object dies, the hook is forgotten, as nothing
 * can call it any more.
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
  bool record;  /* the gradient is recorded, and so are operations of hooks */
  Param *param; /* the param of the gradient; NULL: it is of a value or a call */
} HookRun;

bool hooks_on(Session *s, HookKey k);
/* Registers on_grad(x, f) of a value of script; does nothing if x has no gradient. */
void hook_on_value(Session *s, Value x, Value f, Span at);
/* Passes the gradient `g` (a tensor, or a tree of tensors with none where there is no gradient)
 * through the hooks of k in order of registration. A hook is called with it and, unless NULL,
 * `seen`. The result is on the pool; none if a hook of after_grad dropped the gradient. */
Value hooks_gradient(Session *s, HookKey k, const HookRun *r, Value g, const Value *seen);
/* Passes `g` through one function that is not registered. */
Value hook_gradient(Session *s, Value f, Span at, const HookRun *r, Value g);
/* Why y cannot stand for x: its size, else its device, else its dtype differs; NULL when it can. */
const char *hook_misfit(Session *s, const Tensor *x, const Tensor *y);
/* Calls the functions of after_backward, also those that are registered meanwhile. */
void hooks_end(Session *s, const HookRun *r);
/* Forgets the hooks of these kinds on object `id`, which dies. */
void hooks_forget(Session *s, HookKind first, HookKind last, uint64_t id);
void hooks_free(Session *s);

#endif
