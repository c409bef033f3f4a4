/* Functions of the program that compiled code calls back: hooks inside of a call, and `defer`.
 *
 * A graph names them by number (attribute `index` of `hook` and `defer`); what a number means
 * stands in the Hosts of the compiled function, and which instances, params and functions of a call
 * it means stands in the refs of that call. So a graph serves all calls of its signature.
 */
#ifndef CKL_LANG_HOST_H
#define CKL_LANG_HOST_H

#include "lang/compile.h"
#include "lang/tape.h"

typedef struct Host Host;
typedef struct HostNeed { bool inst; size_t index; } HostNeed; /* number of an instance or a leaf */
typedef struct Hosts {
  int64_t rc;
  Session *s;
  Host *items;     size_t count, cap;
  HostNeed *needs; size_t need_count, need_cap; /* what the refs of a call are */
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

/* While code is staged: */
/* Whether the call of f has hooks of on_call. */
bool host_hooked(Session *s, const FnObj *f);
/* That call, with a place for the hooks around it; `call` makes the call itself. */
Value host_call(Session *s, FnObj *f, const Args *a,
                Value (*call)(Session *s, FnObj *f, const Args *a));
/* on_grad(x, f) of code. */
void host_on_grad(Session *s, Value x, Value f, Span at);
/* The gradient of a param of a `grad` in code, after the param's hooks. */
Value host_param_gradient(Session *s, Param *p, Value g, Span at);
void host_end(Session *s, Span at); /* functions of after_backward */
/* A call of what defer(f) gives, in script and in code. */
Value deferred_call(Session *s, FnObj *f, const Args *a);

#endif
