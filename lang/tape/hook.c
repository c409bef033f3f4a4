/* Hooks: registering, calling, removing.
 *
 * In: functions of the program and the objects that they hang on; gradients as they become
 * complete. Out: the gradients that the functions return. Hooks stand in one list in order of
 * registration and are walked by number, so that a hook may remove any hook, even itself, or add
 * one.
 * Invariants: a hook runs at most once per `grad` and place; while it runs, a `grad` that it takes
 * itself does not call it again; a gradient that a hook returns has the size, the device and the
 * dtype of its argument. Hooks of a value without a gradient are not called.
 */
#include "lang/tape/hook.h"

#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/eval/call.h"
#include "lang/eval/ops.h"
#include "lang/eval/steps.h"
#include "lang/eval/want.h"
#include "lang/tape/callback.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"
#include "lang/value/tree.h"

typedef struct Hook {
  uint64_t number; /* from 1, in order of registration; never used again */
  uint64_t handle; /* of all hooks that one call registered, which follow one another */
  HookKey key;
  uint64_t next;      /* number of the next hook of this key; 0: none. It may be gone. */
  uint64_t next_here; /* number of the next hook of this kind and id */
  Value f;
  Name path;       /* the first argument of f, or NULL */
  bool with_param; /* the param is an argument before the gradient */
  bool gone;       /* it is removed and only links to the next */
  Span at;         /* of the registration */
  bool running;
} Hook;

/* The numbers of the first and the last hook of each key. */
typedef struct Chains {
  Table first, last;
} Chains;

/* Removed hooks stay in the array until they are more than the others, so removing a hook costs no
 * more than adding it. */
struct Hooks {
  Hook *items; /* by number, and so by handle */
  size_t count, cap, gone;
  Chains by_key, by_place;   /* key_of, place_of */
  uint64_t numbers, handles; /* given out so far */
};

static bool same_key(HookKey a, HookKey b) {
  return a.kind == b.kind && a.id == b.id && a.out == b.out;
}

static uint64_t place_of(HookKind kind, uint64_t id) {
  return (id << 3 | kind) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t key_of(HookKey k) {
  return place_of(k.kind, k.id) ^ ((uint64_t)k.out + 1) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* The first hook, gone or not, whose number is above `after`. */
static size_t place_after(const struct Hooks *l, uint64_t after) {
  size_t lo = 0, hi = l->count;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (l->items[mid].number <= after)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* The hook of this number, gone or not; NULL: it was taken out of the array. */
static Hook *hook_numbered(const struct Hooks *l, uint64_t number) {
  size_t i = number ? place_after(l, number - 1) : l->count;
  return i < l->count && l->items[i].number == number ? &l->items[i] : NULL;
}

/* The first hook of k that is not gone, from *number on. *number becomes the place where the search
 * ended, so that removed hooks are passed once. */
static Hook *first_of(Session *s, HookKey k, uint64_t *number) {
  const struct Hooks *l = s->hooks;
  Hook *h = hook_numbered(l, *number);
  for (; h && (h->gone || !same_key(h->key, k)); h = hook_numbered(l, h->next)) {
    *number = h->number;
    s->count.searched++;
  }
  if (h) *number = h->number;
  return h;
}

/* The first hook of k with a number above `after`, or NULL. */
static Hook *next_hook(Session *s, HookKey k, uint64_t after) {
  struct Hooks *l = s->hooks;
  if (!l || l->gone == l->count) return NULL;
  Hook *h = hook_numbered(l, after);
  if (h && same_key(h->key, k)) return first_of(s, k, &h->next);
  ptrdiff_t at = table_get(&l->by_key.first, key_of(k));
  if (at == TABLE_NONE) return NULL;
  uint64_t number = (uint64_t)at;
  h = first_of(s, k, &number);
  if (number != (uint64_t)at) table_set(&l->by_key.first, key_of(k), number);
  for (; h && h->number <= after; s->count.searched++) h = first_of(s, k, &h->next);
  return h;
}

bool hooks_on(Session *s, HookKey k) {
  return next_hook(s, k, 0) != NULL;
}

/* ---- the list */

static struct Hooks *hooks_of(Session *s) {
  if (!s->hooks) {
    s->hooks = mem_need(&s->mem, NULL, 0, sizeof *s->hooks);
    *s->hooks = (struct Hooks){0};
    Chains none = {.first.mem = &s->mem, .last.mem = &s->mem};
    s->hooks->by_key = s->hooks->by_place = none;
  }
  return s->hooks;
}

/* Appends the hook `number`. The link comes first: if memory for the rest is missing, the chain
 * leads to a hook that is gone. */
static void chain(struct Hooks *l, Chains *c, uint64_t key, uint64_t number, bool by_place) {
  ptrdiff_t last = table_get(&c->last, key);
  Hook *before = last == TABLE_NONE ? NULL : hook_numbered(l, (uint64_t)last);
  if (!before)
    table_set(&c->first, key, number);
  else if (by_place)
    before->next_here = number;
  else
    before->next = number;
  table_set(&c->last, key, number);
}

static void chain_both(struct Hooks *l, const Hook *h) {
  uint64_t number = h->number;
  HookKey k = h->key;
  chain(l, &l->by_key, key_of(k), number, false);
  chain(l, &l->by_place, place_of(k.kind, k.id), number, true);
}

static void chains_clear(struct Hooks *l) {
  table_clear(&l->by_key.first);
  table_clear(&l->by_key.last);
  table_clear(&l->by_place.first);
  table_clear(&l->by_place.last);
}

static void hooks_empty(Session *s) {
  struct Hooks *l = s->hooks;
  if (l->items) mem_free(&s->mem, l->items, l->cap * sizeof(Hook));
  l->items = NULL;
  l->count = l->cap = l->gone = 0;
  table_free(&l->by_key.first);
  table_free(&l->by_key.last);
  table_free(&l->by_place.first);
  table_free(&l->by_place.last);
}

/* Takes removed hooks out of the array if they are most of it. No table grows. */
static void hooks_pack(Session *s) {
  struct Hooks *l = s->hooks;
  if (l->gone == l->count) hooks_empty(s);
  if (l->gone <= l->count / 2 || l->count < 16) return;
  size_t n = 0;
  for (size_t i = 0; i < l->count; i++)
    if (!l->items[i].gone) l->items[n++] = l->items[i];
  l->count = n;
  l->gone = 0;
  chains_clear(l);
  for (size_t i = 0; i < n; i++) {
    l->items[i].next = l->items[i].next_here = 0;
    chain_both(l, &l->items[i]);
  }
}

static Hook *hook_add(Session *s, HookKey k, uint64_t handle, Value f, Span at) {
  struct Hooks *l = hooks_of(s);
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 8;
    l->items = mem_need(&s->mem, l->items, l->cap * sizeof(Hook), cap * sizeof(Hook));
    l->cap = cap;
  }
  Hook *h = &l->items[l->count++];
  *h = (Hook){.number = ++l->numbers, .handle = handle, .key = k, .gone = true, .at = at};
  l->gone++;
  chain_both(l, h);
  h->gone = false;
  l->gone--;
  h->f = f;
  value_retain(f);
  return h;
}

/* The values that its function held die with the hook, which may remove other hooks. */
static void hook_drop(Session *s, Hook *h) {
  Value f = h->f;
  h->f = v_unit();
  h->gone = true;
  s->hooks->gone++;
  hooks_pack(s);
  value_release(f);
}

/* Removes the hooks of a handle. */
static void handle_drop(Session *s, uint64_t handle) {
  struct Hooks *l = s->hooks;
  size_t lo = 0, hi = l ? l->count : 0;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (l->items[mid].handle < handle)
      lo = mid + 1;
    else
      hi = mid;
  }
  while (l && lo < l->count && l->items[lo].handle == handle) {
    uint64_t number = l->items[lo].number;
    if (!l->items[lo].gone) hook_drop(s, &l->items[lo]);
    lo = place_after(l, number);
  }
}

/* The first hook of a kind that hangs on id; hooks before it are gone, and are passed once. */
static Hook *first_here(Session *s, HookKind kind, uint64_t id) {
  struct Hooks *l = s->hooks;
  uint64_t place = place_of(kind, id);
  ptrdiff_t at = table_get(&l->by_place.first, place);
  if (at == TABLE_NONE) return NULL;
  uint64_t number = (uint64_t)at;
  Hook *h = hook_numbered(l, number);
  for (; h && (h->gone || h->key.kind != kind || h->key.id != id);
       h = hook_numbered(l, h->next_here)) {
    number = h->number;
    s->count.searched++;
  }
  if (h) number = h->number;
  if (number != (uint64_t)at) table_set(&l->by_place.first, place, number);
  return h;
}

void hooks_forget(Session *s, HookKind first, HookKind last, uint64_t id) {
  for (HookKind k = first; s->hooks && k <= last; k++)
    for (Hook *h; (h = first_here(s, k, id));) hook_drop(s, h);
}

void hooks_free(Session *s) {
  struct Hooks *l = s->hooks;
  if (!l) return;
  for (size_t i = 0; i < l->count;) {
    uint64_t number = l->items[i].number;
    if (!l->items[i].gone) hook_drop(s, &l->items[i]);
    i = place_after(l, number);
  }
  hooks_empty(s);
  mem_free(&s->mem, l, sizeof *l);
  s->hooks = NULL;
}

/* ---- registering */

static Value handle_value(Session *s, uint64_t handle) {
  Handle *h = mem_need(&s->mem, NULL, 0, sizeof *h);
  *h = (Handle){.o = {.rc = 1, .s = s, .tag = V_HANDLE}, .id = handle};
  s->count.values_live++;
  mem_pool_add(&s->mem, h, (void (*)(void *))obj_release);
  return (Value){.tag = V_HANDLE, .u.handle = h};
}

/* The number of parameters of f without a default; 0 if f is no V_FN. */
static uint32_t parameters_of(Value f) {
  if (f.tag != V_FN) return 0;
  const NodeList *p = &f.u.fn->decl->fn->params;
  uint32_t need = 0;
  for (uint32_t i = 0; i < p->count; i++) need += !p->items[i]->param.init;
  return need;
}

/* A function that the program calls back with n arguments by position, or with one more. */
static Value want_function(Session *s, const Call *c, Value f, Span at, uint32_t n, bool or_more,
                           const char *form) {
  if (f.tag == V_BUILTIN || f.tag == V_DTYPE || f.tag == V_INST) return f;
  if (f.tag != V_FN)
    fail_help(s, ERR_NOT_CALLABLE, at, form, "`%s` takes a function here, not %s", c->b->name,
              value_type_text(s, f));
  uint32_t need = parameters_of(f);
  if (need != n && !(or_more && need == n + 1)) {
    Diag *d = fail_report(s, ERR_ARG_COUNT, at,
                          "a hook of `%s` is called with %u%s argument%s here, this "
                          "function takes %u",
                          c->b->name, n, or_more ? fail_text(s, " or %u", n + 1) : "",
                          n == 1 && !or_more ? "" : "s", need);
    dg_help(&s->diags, d, "%s", form);
    fail_raise(s);
  }
  return f;
}

/* Hooks of params that one call registers. */
typedef struct OnParams {
  const Call *c;
  HookKind kind;
  uint64_t handle;
  const char *glob;
  Value f;
  size_t hits;
} OnParams;

static void on_param(Session *s, OnParams *o, Param *p, Name path) {
  Hook *h = hook_add(s, (HookKey){o->kind, p->id, 0}, o->handle, o->f, o->c->at);
  h->path = path;
  h->with_param = parameters_of(o->f) == (path ? 3u : 2u);
  p->hooked = true;
  o->hits++;
}

static void on_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  (void)owner, (void)f;
  OnParams *o = ud;
  if (p && walk_path_fits(s, o->glob, path)) on_param(s, o, p, names_of(s->names, path));
}

static Value on_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  OnParams *o = ud;
  (void)n, (void)path;
  Value x = tape_itself(v[0]);
  if (x.tag == V_PARAM)
    on_param(s, o, x.u.p, NULL);
  else if (v[0].tag != V_NONE)
    fail_at(s, ERR_GRAD_WRT, o->c->spans[0], "`%s` of several takes params, not %s", o->c->b->name,
            value_type_text(s, v[0]));
  return v[0];
}

static void on_value(Session *s, uint64_t handle, const TVal *x, Value f, Span at) {
  hook_add(s, (HookKey){HOOK_VALUE, x->node->seq, x->out}, handle, f, at);
  x->node->hooked = true;
}

void hook_on_value(Session *s, Value x, Value f, Span at) {
  uint64_t handle = ++hooks_of(s)->handles;
  x = tape_itself(x);
  if (x.tag == V_PARAM) {
    hook_add(s, (HookKey){HOOK_PARAM, x.u.p->id, 0}, handle, f, at);
    x.u.p->hooked = true;
  } else if (x.tag == V_TENSOR && x.u.t->node) {
    on_value(s, handle, x.u.t, f, at);
  }
}

/* on_grad(x, f), on_grad(net, "glob", f), on_grad([p, q], f), and after_grad in the same forms. */
static Value register_grad(Session *s, Call *c, HookKind kind) {
  Value x = tape_itself(c->v[0]);
  size_t parts;
  const char *form = kind == HOOK_PARAM
                         ? "on_grad(x, fn(g) = ..), of a param fn(p, g) too; on_grad(net, "
                           "\"glob\", fn(path, g) = ..), or fn(path, p, g)"
                         : "after_grad(p, fn(g) { .. }), or fn(p, g); after_grad(net, \"glob\", "
                           "fn(path, g) { .. }), or fn(path, p, g)";
  bool glob = x.tag == V_INST, several = value_items(x, &parts) != NULL;
  if (c->rest_n != (glob ? 2u : 1u))
    fail_help(s, ERR_ARG_COUNT, c->at, form, "`%s` of %s takes %s", c->b->name,
              value_type_text(s, x), glob ? "a glob and a function" : "one function");
  OnParams o = {.c = c, .kind = kind, .f = c->rest[glob]};
  bool params = glob || several || x.tag == V_PARAM;
  want_function(s, c, o.f, c->rest_spans[glob], glob ? 2 : 1, params || kind == HOOK_AFTER_GRAD,
                form);
  o.handle = ++hooks_of(s)->handles;
  if (glob) {
    o.glob = want_str(s, c->rest[0], c->rest_spans[0], "the glob");
    walk_slots(s, x, on_slot, &o);
    if (!o.hits)
      fail_help(s, ERR_GLOB, c->rest_spans[0],
                "print(paths(net)) shows the paths; `*` is one part, `**` any number",
                "no param matches `%s`", o.glob);
  } else if (params) {
    Span at = c->spans[0];
    tree_map(s, 1, &x, on_leaf, &o, at);
    if (!o.hits) fail_at(s, ERR_GRAD_WRT, at, "there is no param in %s", value_type_text(s, x));
  } else if (x.tag == V_TENSOR && kind == HOOK_PARAM) {
    if (!x.u.t->node)
      fail_help(s, ERR_NOT_TRACKED, c->spans[0],
                "params and what is computed from them are tracked, outside wrap <no_grad>",
                "this value has no gradient: it does not depend on anything that is tracked");
    on_value(s, o.handle, x.u.t, o.f, c->at);
  } else if (kind == HOOK_PARAM) {
    fail_help(s, ERR_GRAD_WRT, c->spans[0], form, "%s has no gradient that a hook could see",
              value_type_text(s, x));
  } else {
    fail_help(s, ERR_GRAD_WRT, c->spans[0], form, "`after_grad` takes a param, not %s",
              value_type_text(s, x));
  }
  return handle_value(s, o.handle);
}

BUILTIN_FN(bi_on_grad) {
  if (s->abstract) return (Value){.tag = V_UNKNOWN};
  if (!s->stage) return register_grad(s, c, HOOK_PARAM);
  static const char form[] = "on_grad(x, fn(g) = ..)";
  if (c->v[0].tag == V_INST)
    fail_help(s, ERR_SCRIPT_ONLY, c->spans[0], "register it in script, before the call",
              "in code `on_grad` takes a value, not an instance");
  if (c->rest_n != 1)
    fail_help(s, ERR_ARG_COUNT, c->at, form, "in code `on_grad` takes a value and a function");
  if (!v_is_tensor(c->v[0]) || !dt_float((DType)op_type_of(s, c->v[0]).dtype))
    fail_help(s, ERR_GRAD_WRT, c->spans[0], form, "%s has no gradient that a hook could see",
              value_type_text(s, c->v[0]));
  Value f = want_function(s, c, c->rest[0], c->rest_spans[0], 1, false, form);
  if (f.tag != V_FN)
    fail_help(s, ERR_NOT_CALLABLE, c->rest_spans[0], form,
              "in code a hook is a function that the program declares, not %s",
              value_type_text(s, f));
  host_on_grad(s, c->v[0], f, c->at);
  return v_unit();
}

BUILTIN_FN(bi_after_grad) {
  return register_grad(s, c, HOOK_AFTER_GRAD);
}

static void on_layer(Session *s, const Call *c, int i, uint32_t n, HookKind kind, uint64_t handle,
                     const char *form) {
  if (c->v[i].tag == V_NONE) return;
  Value f = want_function(s, c, c->v[i], c->spans[i], n, false, form);
  hook_add(s, (HookKey){kind, c->v[0].u.inst->id, 0}, handle, f, c->at);
}

BUILTIN_FN(bi_on_call) {
  static const char form[] = "on_call(net.layer, before = fn(dy) = .., after = fn(dx, dy) = ..)";
  if (c->v[0].tag != V_INST)
    fail_help(s, ERR_WANT_MODEL, c->spans[0], form, "`on_call` takes an instance, not %s",
              value_type_text(s, c->v[0]));
  Inst *inst = c->v[0].u.inst;
  const NodeList *l = &inst->model->decl->model.members;
  const Node *forward = NULL;
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i]->kind == N_FN && !strcmp(l->items[i]->fn->name.name, "forward"))
      forward = l->items[i];
  if (!forward || forward->fn->is_proc)
    fail_at(s, ERR_NOT_CALLABLE, c->spans[0],
            "`on_call` is about calls of the instance; model `%s` has no `fn forward`",
            inst->model->name);
  if (c->v[1].tag == V_NONE && c->v[2].tag == V_NONE)
    fail_help(s, ERR_ARG_COUNT, c->at, form, "`on_call` needs `before`, `after` or both");
  uint64_t handle = ++hooks_of(s)->handles;
  on_layer(s, c, 1, 1, HOOK_BEFORE_CALL, handle, form);
  on_layer(s, c, 2, 2, HOOK_AFTER_CALL, handle, form);
  inst->hooked = true;
  return handle_value(s, handle);
}

BUILTIN_FN(bi_after_backward) {
  Value f = want_function(s, c, c->v[0], c->spans[0], 0, false, "after_backward(fn() { .. })");
  uint64_t handle = ++hooks_of(s)->handles;
  hook_add(s, (HookKey){HOOK_AFTER_BACKWARD, 0, 0}, handle, f, c->at);
  return handle_value(s, handle);
}

BUILTIN_FN(bi_remove) {
  if (c->v[0].tag != V_HANDLE)
    fail_at(s, ERR_NO_FIELD, c->spans[0], "%s is no handle of a hook", value_type_text(s, c->v[0]));
  handle_drop(s, c->v[0].u.handle->id);
  return v_unit();
}

/* ---- calling */

typedef struct HookJob {
  Session *s;
  Value f, answer;
  size_t n;
  Value args[3];
  Span at;
} HookJob;

static void hook_job(void *ud) {
  HookJob *j = ud;
  j->answer = call_simple(j->s, j->f, j->n, j->args, j->at);
  value_retain(j->answer);
}

/* Calls the function; its result is on the pool. An error in it ends the `grad` and is labelled
 * so. */
static Value call_hook(Session *s, HookJob *j, const HookRun *r) {
  value_pool(s, j->f); /* it may remove itself */
  Modes modes = s->modes;
  s->modes = r->modes;
  s->modes.no_grad = !r->record;
  size_t before = s->diags.count;
  ArenaMark am = arena_mark(&s->scratch);
  int code = api_guard(s, hook_job, j);
  s->modes = modes;
  if (code != MEM_OK) {
    for (size_t i = s->diags.count; code == MEM_ERR_PROGRAM && i-- > before;) {
      Diag *d = s->diags.items[i];
      if (d->severity != SEV_ERROR) continue;
      dg_label(&s->diags, d, j->at, "in a hook of the gradient");
      dg_label(&s->diags, d, r->grad, "that is taken here");
      break;
    }
    mem_throw(&s->mem, code);
  }
  arena_rewind(&s->scratch, am);
  if (v_counted(j->answer)) mem_pool_add(&s->mem, j->answer.u.o, (void (*)(void *))obj_release);
  return j->answer;
}

static void running(Session *s, uint64_t number, bool on) {
  Hook *h = s->hooks ? hook_numbered(s->hooks, number) : NULL;
  if (h) h->running = on;
}

typedef struct RunningHook {
  Session *s;
  uint64_t number;
} RunningHook;

static void stop_running(void *p) {
  RunningHook *r = p;
  running(r->s, r->number, false);
  mem_free(&r->s->mem, r, sizeof *r);
}

/* Calls a registered hook. A `grad` inside of it does not call it again. */
static Value call_registered(Session *s, const Hook *h, const HookRun *r, size_t n,
                             const Value *args) {
  HookJob j = {.s = s, .f = h->f, .at = h->at};
  uint64_t number = h->number;
  if (h->path) j.args[j.n++] = v_str(s, h->path, strlen(h->path));
  if (h->with_param) j.args[j.n++] = (Value){.tag = V_PARAM, .u.p = r->param};
  for (size_t i = 0; i < n; i++) j.args[j.n++] = args[i];
  RunningHook *on = mem_need(&s->mem, NULL, 0, sizeof *on);
  *on = (RunningHook){s, number};
  mem_pool_add(&s->mem, on, stop_running); /* after an error too */
  running(s, number, true);
  Value a = call_hook(s, &j, r);
  running(s, number, false);
  return a;
}

static _Noreturn void hook_fail(Session *s, ErrCode code, Span at, const HookRun *r,
                                const char *text) {
  Diag *d = fail_report(s, code, at, "%s", text);
  dg_label(&s->diags, d, r->grad, "in the gradient that is taken here");
  fail_raise(s);
}

static const char *device_text(const Tensor *t) {
  static const char *const names[DEV_COUNT] = {"cpu", "cuda", "sim"};
  return names[t->store->dev];
}

/* Why y cannot stand for x: its size, else its device, else its dtype differs; NULL when it can. */
const char *hook_misfit(Session *s, const Tensor *x, const Tensor *y) {
  Buf a, b;
  buf_init_arena(&a, &s->scratch);
  buf_init_arena(&b, &s->scratch);
  bool same = x->rank == y->rank;
  for (int i = 0; same && i < x->rank; i++) same = x->dim[i] == y->dim[i];
  if (!same) {
    for (int i = 0; i < x->rank; i++) buf_printf(&a, "%s%lld", i ? ", " : "", (long long)x->dim[i]);
    for (int i = 0; i < y->rank; i++) buf_printf(&b, "%s%lld", i ? ", " : "", (long long)y->dim[i]);
    return fail_text(s, "size mismatch: [%s] became [%s]", a.n ? a.s : "", b.n ? b.s : "");
  }
  if (x->store->dev != y->store->dev)
    return fail_text(s, "layout mismatch: a value on %s became one on %s", device_text(x),
                     device_text(y));
  if (x->dtype != y->dtype)
    return fail_text(s, "dtype mismatch: %s became %s", dtype_info[x->dtype].name,
                     dtype_info[y->dtype].name);
  return NULL;
}

/* The gradient that replaces g when a hook has returned a. */
static Value answered(Session *s, Value g, Value a, bool drops, Span at, const HookRun *r) {
  stack_check();
  if (a.tag == V_UNIT || (a.tag == V_NONE && (g.tag == V_NONE || drops))) return a.tag ? a : g;
  if (v_is_tensor(g) && v_is_tensor(a)) {
    Tensor *x = op_tensor_of(s, g, at), *y = op_tensor_of(s, a, at);
    const char *why = hook_misfit(s, x, y);
    if (why)
      hook_fail(
          s, ERR_HOOK_META, at, r,
          fail_text(s, "a hook gives another kind of gradient%s: %s",
                    r->param && r->param->name ? fail_text(s, " of `%s`", r->param->name) : "",
                    why));
    return r->record && a.tag == V_TENSOR ? a : v_tensor(s, tn_ref(y));
  }
  size_t n, m;
  Value *items = value_parts(s, g, &n);
  bool same = items && a.tag == g.tag && value_items(a, &m) && n == m;
  for (size_t i = 0; same && i < n; i++) same = value_counterpart(g, i, a) != NULL;
  if (!same)
    hook_fail(s, ERR_HOOK_ANSWER, at, r,
              fail_text(s, "a hook gives () or a gradient, here %s%s, not %s",
                        value_type_text(s, g), drops ? ", or none to drop it" : "",
                        value_type_text(s, a)));
  for (size_t i = 0; i < n; i++)
    items[i] = answered(s, items[i], *value_counterpart(g, i, a), false, at, r);
  return value_like(s, g, items);
}

Value hooks_gradient(Session *s, HookKey k, const HookRun *r, Value g, const Value *seen) {
  bool drops = k.kind == HOOK_AFTER_GRAD;
  uint64_t number = 0;
  for (Hook *h; (h = next_hook(s, k, number)) && g.tag != V_NONE;) {
    number = h->number;
    if (h->running) continue;
    count_step(s, h->at);
    Value args[2] = {g, seen ? *seen : v_unit()};
    Span at = h->at; /* the hook may be gone afterwards */
    g = answered(s, g, call_registered(s, h, r, seen ? 2 : 1, args), drops, at, r);
  }
  return g;
}

Value hook_gradient(Session *s, Value f, Span at, const HookRun *r, Value g) {
  HookJob j = {.s = s, .f = f, .at = at, .n = 1, .args = {g}};
  return answered(s, g, call_hook(s, &j, r), false, at, r);
}

void hooks_end(Session *s, const HookRun *r) {
  HookKey k = {HOOK_AFTER_BACKWARD, 0, 0};
  uint64_t number = 0;
  for (Hook *h; (h = next_hook(s, k, number));) {
    number = h->number;
    count_step(s, h->at);
    if (h->running) continue;
    size_t mark = mem_pool_mark(&s->mem);
    call_registered(s, h, r, 0, NULL);
    mem_pool_drain(&s->mem, mark);
  }
}
