/* Functions of the program that compiled code calls back: hooks inside of a call, and `defer`.
 *
 * A graph names them by number (attribute `index` of `hook` and `defer`); the Hosts of the compiled
 * function say what a number means, and the refs of a call hold its instances, params and
 * functions. So a graph serves all calls of its signature.
 */
#ifndef CKL_LANG_TAPE_CALLBACK_H
#define CKL_LANG_TAPE_CALLBACK_H

#include "lang/compile/compile.h"
#include "lang/eval/call.h"
#include "lang/tape/tape.h"

typedef struct Host Host;
typedef struct HostNeed {
  bool inst;    /* an instance, else a leaf */
  size_t index; /* its number */
} HostNeed;
typedef struct HostView HostView;
typedef struct Hosts {
  int64_t rc;
  Session *s;
  Host *items;
  size_t count, cap;
  HostNeed *needs; /* the arguments that the refs of a call hold */
  size_t need_count, need_cap;
  size_t inside;   /* hosts that a run of the graph, or of its gradient, may call */
  HostView *views; /* views of state in the middle of a call */
  size_t view_count, view_cap;
} Hosts;
void hosts_release(Hosts *h); /* NULL is fine */

/* A run of a graph with hosts. It is the `ud` of the graph's effects, which host_effect handles,
 * print too. `refs`: one per need; they outlive the run. `grad`: the `grad` that is taken; file 0:
 * none, a forward. The result is on the pool. */
typedef struct HostRun HostRun;
HostRun *host_run(Session *s, const Hosts *h, const Value *refs, Span grad);
bool host_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                 GErr *e);
/* The error of a `defer` node for a gradient that does not exist; false. */
bool host_no_gradient(const Graph *g, uint32_t node, GErr *e);
/* A new reference to t, or to a copy if t lies in memory of a run: a function of the program may
 * keep its arguments. */
Tensor *host_own(Session *s, Tensor *t);
/* The refs of a call, from its flattened arguments; in the session's scratch. */
Value *host_refs(Session *s, const Hosts *h, const Flat *f);

/* ---- while code is staged */

/* Whether the call of f has hooks of on_call. */
bool host_hooked(Session *s, const FnObj *f);
/* Makes such a call, with nodes for the hooks around it; `call` makes the call itself. */
Value host_call(Session *s, FnObj *f, const Args *a,
                Value (*call)(Session *s, FnObj *f, const Args *a));
/* on_grad(x, f) in code. If x comes from outside of a block of script, the hook is registered when
 * the block has run, as in script; in the graph only gradients taken in the block call it. */
void host_on_grad(Session *s, Value x, Value f, Span at);
/* At the end of staging: makes the values that such hooks captured outputs of the graph. Returns
 * for each node whether it belongs to such a hook. */
const bool *host_later(Session *s, Hosts *h, Graph *g);
/* Whether such a hook will be registered on the value of that leaf. */
bool host_registers(const Hosts *h, size_t leaf);
/* Registers these hooks after the block has run: `outs` are the values of its outputs. */
void host_register(Session *s, const Hosts *h, const Value *refs, const Flat *f, Value *outs);
/* Whether it has hooks that a gradient in code calls. */
bool host_param_hooked(Session *s, const Param *p);
/* The gradient of a param of a `grad` in code, after the param's hooks. */
Value host_param_gradient(Session *s, Param *p, Value g, Span at);
void host_end(Session *s, Span at); /* adds a call of the after_backward functions */
/* Sets or clears the state that hooks see in a gradient that is appended to the stage's graph
 * now. */
void host_seen(Session *s, bool on, Span at);
/* Calls f, a result of `defer`, in script and in code. */
Value host_deferred_call(Session *s, FnObj *f, const Args *a);

#endif
