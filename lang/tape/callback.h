/* Functions of the program that compiled code calls back: hooks inside of a call, and `defer`.
 *
 * A graph names them by number (attribute `index` of `hook` and `defer`); what a number means
 * stands in the Hosts of the compiled function, and which instances, params and functions of a call
 * it means stands in the refs of that call. So a graph serves all calls of its signature.
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
  HostNeed *needs; /* what the refs of a call are */
  size_t need_count, need_cap;
  size_t inside;   /* hosts that a run of the graph, or of its gradient, may call */
  HostView *views; /* of state, in the middle of a call */
  size_t view_count, view_cap;
} Hosts;
void hosts_release(Hosts *h); /* NULL is fine */

/* A run of a graph with hosts: the `ud` of its effects, which host_effect handles, print too.
 * `refs`: one per need, they outlive the run. `grad`: the `grad` that is taken; file 0: none, a
 * forward. The result is on the pool. */
typedef struct HostRun HostRun;
HostRun *host_run(Session *s, const Hosts *h, const Value *refs, Span grad);
bool host_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                 GErr *e);
/* A function of the program may keep what it gets: memory of a run is not handed out. A new
 * reference. */
Tensor *host_own(Session *s, Tensor *t);
/* The refs of a call, by its flattened arguments; in the session's scratch. */
Value *host_refs(Session *s, const Hosts *h, const Flat *f);

/* ---- while code is staged */

/* Whether the call of f has hooks of on_call. */
bool host_hooked(Session *s, const FnObj *f);
/* That call, with a place for the hooks around it; `call` makes the call itself. */
Value host_call(Session *s, FnObj *f, const Args *a,
                Value (*call)(Session *s, FnObj *f, const Args *a));
/* on_grad(x, f) of code. In a block of script, of a value from outside, the hook is registered when
 * the block has run, as script would do; only gradients taken in the block meet it in the graph. */
void host_on_grad(Session *s, Value x, Value f, Span at);
/* At the end of staging: what such hooks captured are outputs of the graph. Their nodes in it. */
const bool *host_later(Session *s, Hosts *h, Graph *g);
/* Whether it registers one on the value of that leaf. */
bool host_registers(const Hosts *h, size_t leaf);
/* The block has run: `outs` are the values of its outputs. */
void host_register(Session *s, const Hosts *h, const Value *refs, const Flat *f, Value *outs);
/* The gradient of a param of a `grad` in code, after the param's hooks. */
Value host_param_gradient(Session *s, Param *p, Value g, Span at);
void host_end(Session *s, Span at); /* functions of after_backward */
/* What hooks of a gradient that is appended to the stage's graph now see: set, or cleared. */
void host_seen(Session *s, bool on, Span at);
/* A call of what defer(f) gives, in script and in code. */
Value host_deferred_call(Session *s, FnObj *f, const Args *a);

#endif
