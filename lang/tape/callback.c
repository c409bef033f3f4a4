/* Hosts: compiled code that calls the program back.
 *
 * In: hooks on layers and values inside of a call, deferred functions. Out: nodes of the graph
 * (`defer`, and `hook`, which differentiation turns into `defer`) and, when a node runs, a call of
 * the function. The functions are inputs of a compiled function like its params: its signature has
 * only their places, kinds and arguments (rule 50).
 * The state that the call has written by then is further inputs of the node. While the function
 * runs, params and buffers hold these values, so it sees the same state as in script (rule 81).
 * Invariants: a host is called once for each run of its node, with gradient recording off; a value
 * that it returns has the size, the device and the dtype of its argument; when it has returned or
 * failed, params and buffers are as before the call.
 */
#include "lang/tape/callback.h"

#include <string.h>

#include "graph/build.h"
#include "graph/shape.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/state.h"
#include "lang/tape/gradient.h"
#include "lang/tape/hook.h"
#include "lang/tape/record_op.h"
#include "lang/value/fail.h"

/* Texts of `defer` nodes; hooks have other ones. Those of calls stand for their gradients. */
static const char deferred_text[] = "defer", call_text[] = "call", again_text[] = "call again";

typedef enum HostKind {
  HOST_DEFER,  /* defer(f)(x) */
  HOST_GRAD,   /* on_grad(x, f) in code */
  HOST_PARAM,  /* hooks of a param, in a grad of code */
  HOST_BEFORE, /* hooks of on_call: incoming gradients; outgoing ones */
  HOST_AFTER,
  HOST_END /* after_backward, in a grad of code */
} HostKind;

/* A hook that is registered when the block has run. */
typedef struct Later {
  size_t leaf;   /* the value that has the hook */
  uint32_t node; /* the hook's node in the block */
  size_t first;  /* number of the output with the first value that its function captured */
  size_t count;
  Val captured[]; /* while the block is staged */
} Later;

struct Host {
  HostKind kind;
  Span at;
  Modes modes;   /* modes at its place in the program */
  Value shape;   /* structure of the values (V_NODE: the number of one), or the function */
  size_t self;   /* the function's `self`: number of its need + 1; 0: none */
  size_t need;   /* number of the need: a param or instance */
  size_t before; /* of HOST_AFTER: the host with the incoming gradients */
  Later *later;  /* of HOST_GRAD of a value from outside of a block of script; else NULL */
};

/* A param or buffer that is written before the host runs, or a variable that a block of script
 * assigns. */
typedef struct HostWrite {
  Global *var; /* NULL: state of `need` */
  size_t need;
  Name field;  /* of an instance; NULL: a param */
  Value shape; /* structure of its value, as in Host */
} HostWrite;

struct HostView {
  HostWrite *items;
  size_t count, cap;
  size_t values; /* number of its values: the last inputs of the node */
};

/* In a kept structure V_NODE is the number of a value (weak: it is read as a number), V_UNKNOWN a
 * need. */
static Value need_value(size_t need) {
  return (Value){.tag = V_UNKNOWN, .aux = (uint32_t)need + 1};
}

void hosts_release(Hosts *h) {
  if (!h || --h->rc > 0) return;
  Mem *m = &h->s->mem;
  for (size_t i = 0; i < h->count; i++) {
    Later *l = h->items[i].later;
    value_release(h->items[i].shape);
    if (l) mem_free(m, l, sizeof *l + l->count * sizeof *l->captured);
  }
  for (size_t i = 0; i < h->view_count; i++) {
    const HostView *v = &h->views[i];
    for (size_t k = 0; k < v->count; k++) value_release(v->items[k].shape);
    mem_free(m, v->items, v->cap * sizeof(HostWrite));
  }
  mem_free(m, h->views, h->view_cap * sizeof(HostView));
  mem_free(m, h->items, h->cap * sizeof(Host));
  mem_free(m, h->needs, h->need_cap * sizeof(HostNeed));
  mem_free(m, h, sizeof *h);
}

/* ---- making */

static Hosts *hosts_of(Session *s, Span at) {
  Unit *u = s->stage->unit;
  if (!u || !stage_in_order(s->stage))
    fail_at(s, ERR_NOT_YET, at,
            "not yet: a hook or a deferred function inside a comprehension, or a function with a "
            "backward of its own");
  if (!u->hosts) {
    Hosts *h = mem_need(&s->mem, NULL, 0, sizeof *h);
    *h = (Hosts){.rc = 1, .s = s};
    mem_pool_add(&s->mem, h, (void (*)(void *))hosts_release);
    u->hosts = h;
  }
  return u->hosts;
}

static void *grown(Session *s, void *items, size_t count, size_t *cap, size_t each) {
  if (count < *cap) return items;
  size_t more = *cap ? 2 * *cap : 4;
  items = mem_need(&s->mem, items, *cap * each, more * each);
  *cap = more;
  return items;
}

static size_t need_of(Session *s, Hosts *h, bool inst, const void *what, Span at) {
  const Flat *f = &s->stage->unit->flat;
  size_t k = 0, n = inst ? f->inst_count : f->count;
  while (k < n && (inst                              ? (const void *)f->insts[k]
                   : f->leaves[k].kind == LEAF_PARAM ? f->leaves[k].v.u.o
                                                     : NULL) != what)
    k++;
  if (k == n) fail_at(s, ERR_BUG, at, "a hook is about something that is no argument");
  for (size_t i = 0; i < h->need_count; i++)
    if (h->needs[i].inst == inst && h->needs[i].index == k) return i;
  h->needs = grown(s, h->needs, h->need_count, &h->need_cap, sizeof *h->needs);
  h->needs[h->need_count] = (HostNeed){inst, k};
  return h->need_count++;
}

static size_t host_add(Session *s, Hosts *h, Host host) {
  h->inside++;
  h->items = grown(s, h->items, h->count, &h->cap, sizeof *h->items);
  host.modes = s->modes;
  value_retain(host.shape);
  h->items[h->count] = host;
  return h->count++;
}

/* Inputs of a host node: the values that pass through it, then its other arguments. */
typedef struct Group {
  Session *s;
  Span at;
  Val *vals;
  size_t count, cap;
} Group;

static uint32_t group_add(Group *g, Val v) {
  for (uint32_t i = 0; i < g->count; i++)
    if (val_eq(g->vals[i], v)) return i;
  VEC_PUSH(&g->s->scratch, g->vals, g->count, g->cap, v);
  return (uint32_t)g->count - 1;
}

static int64_t view_now(Session *s, Hosts *h, Group *g);

static Val host_node(Session *s, OpCode op, Group *g, size_t carry, size_t host, const char *text) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  int64_t seen = op == OP_DEFER ? view_now(s, hosts_of(s, g->at), g) : 0;
  Attr attr[4] = {attr_text(AT_TEXT, names_of(s->names, text)), attr_i(AT_CARRY, (int64_t)carry),
                  attr_i(AT_INDEX, (int64_t)host), attr_i(AT_SEEN, seen)};
  Graph *graph = s->stage->g;
  Val *in = ARENA_ARRAY(&s->scratch, Val, g->count + 1);
  size_t n = 0;
  stage_at(s, g->at);
  if (op == OP_DEFER) in[n++] = gr_op(graph, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  for (size_t i = 0; i < g->count; i++) in[n++] = g->vals[i];
  Val r = gr_op(graph, op, in, (int)n, attr, seen ? 4 : 3, NULL, 0, &e);
  if (val_none(r)) fail_gerr(s, g->at, &e);
  return r;
}

static Value node_value(Session *s, Val v) {
  return (Value){.tag = V_NODE, .aux = s->stage->level, .u.v = v};
}

/* Adds the float tensors of v to the group and returns v with them. *shape becomes the structure of
 * v: numbers of the group's values, none for parts without a gradient. */
static Value collected(Group *g, Value v, Value *shape) {
  stack_check();
  Session *s = g->s;
  *shape = v_none();
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, g->at);
  if (v.tag == V_NODE && !v.weak && dt_float((DType)op_type_of(s, v).dtype)) {
    v = stage_lift(s, v, g->at);
    *shape = (Value){.tag = V_NODE};
    shape->u.v.node = group_add(g, v.u.v);
    return v;
  }
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  Value *shapes = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) items[i] = collected(g, items[i], &shapes[i]);
  *shape = value_like(s, v, shapes);
  return value_like(s, v, items);
}

/* v with the values of the group replaced by those of `to`. */
static Value replaced(Session *s, const Group *g, const Val *to, Value v, Span at) {
  stack_check();
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, at);
  if (v.tag == V_NODE && !v.weak) {
    for (size_t i = 0; i < g->count; i++)
      if (val_eq(stage_lift(s, v, at).u.v, g->vals[i])) return node_value(s, to[i]);
    return v;
  }
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  for (size_t i = 0; i < n; i++) items[i] = replaced(s, g, to, items[i], at);
  return value_like(s, v, items);
}

/* Makes an alias of each value of the group, one right after the other: a `hook` node requires that
 * no use stands between them. */
static Val *alias_all(Session *s, const Group *g) {
  Val *to = ARENA_ARRAY(&s->scratch, Val, g->count + 1);
  for (size_t i = 0; i < g->count; i++) {
    Value v = node_value(s, g->vals[i]);
    to[i] = op_run(s, OP_ALIAS, 1, &v, NULL, 0, g->at).u.v;
  }
  return to;
}

/* Whether no gradient passes here, so that hooks see none (rule 89). */
static bool unseen(const Session *s) {
  for (const Stage *st = s->stage; st; st = st->up)
    if (st->apart) return true;
  return false;
}

bool host_hooked(Session *s, const FnObj *f) {
  if (!f->self || !f->self->hooked || !in_code(s) || s->stage->unit == NULL ||
      s->stage->unit->check || strcmp(call_fn_name(f), "forward") || unseen(s))
    return false;
  return hooks_on(s, (HookKey){HOOK_BEFORE_CALL, f->self->id, 0}) ||
         hooks_on(s, (HookKey){HOOK_AFTER_CALL, f->self->id, 0});
}

Value host_call(Session *s, FnObj *f, const Args *a,
                Value (*call)(Session *s, FnObj *f, const Args *a)) {
  Hosts *h = hosts_of(s, a->call);
  Group in = {.s = s, .at = a->call}, out = in;
  Value shape, *shapes = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  Args b = *a;
  b.v = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  for (size_t i = 0; i < a->count; i++) b.v[i] = collected(&in, a->v[i], &shapes[i]);
  Val *to = alias_all(s, &in);
  for (size_t i = 0; i < a->count; i++) b.v[i] = replaced(s, &in, to, b.v[i], a->call);
  Value r = collected(&out, call(s, f, &b), &shape);
  Val *from = alias_all(s, &out);
  r = replaced(s, &out, from, r, a->call);
  Host before = {.kind = HOST_BEFORE,
                 .at = a->call,
                 .shape = shape,
                 .need = need_of(s, h, true, f->self, a->call)};
  Host after = before;
  after.kind = HOST_AFTER;
  after.shape = a->count == 1 ? shapes[0] : v_list(s, V_TUPLE, a->count, shapes);
  after.before = host_add(s, h, before);
  size_t last = host_add(s, h, after);
  in.vals = to;
  out.vals = from;
  if (out.count) host_node(s, OP_HOOK, &out, out.count, after.before, "on_call before");
  if (in.count) host_node(s, OP_HOOK, &in, in.count, last, "on_call after");
  return r;
}

/* A function in its kept form: the values of the call that it captured become further inputs of the
 * node, from number `first` on. */
static Value captured(Group *g, Hosts *h, Value v, size_t first, size_t *self) {
  stack_check();
  Session *s = g->s;
  switch ((ValueTag)v.tag) {
  case V_DIM: v = op_dim_node(s, v.u.d); /* fall through */
  case V_NODE: {
    Value t = {.tag = V_NODE, .weak = v.weak};
    size_t k = g->count;
    VEC_PUSH(&s->scratch, g->vals, k, g->cap, stage_lift(s, v, g->at).u.v);
    g->count = k;
    t.u.v.node = (uint32_t)(k - 1 - first);
    return t;
  }
  case V_PARAM: return need_value(need_of(s, h, false, v.u.p, g->at));
  case V_INST: return need_value(need_of(s, h, true, v.u.inst, g->at));
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n;
    Value *items = value_parts(s, v, &n);
    for (size_t i = 0; i < n; i++) items[i] = captured(g, h, items[i], first, NULL);
    return value_like(s, v, items);
  }
  case V_FN: {
    FnObj *f = v.u.fn;
    if (f->self && !self)
      fail_at(s, ERR_NOT_YET, g->at, "not yet: a hook that captures a function of a method");
    if (f->self) *self = need_of(s, h, true, f->self, g->at) + 1;
    Local *cap = ARENA_ARRAY(&s->scratch, Local, f->capture_count + 1);
    for (size_t i = 0; i < f->capture_count; i++) {
      cap[i] = f->captures[i];
      cap[i].v = captured(g, h, f->captures[i].v, first, NULL);
    }
    return v_fn_like(s, f, NULL, cap);
  }
  case V_RANGE:
    return v_range(s, captured(g, h, v.u.range->lo, first, NULL),
                   captured(g, h, v.u.range->hi, first, NULL));
  case V_SEQ:
    if (v.u.seq->staged) fail_at(s, ERR_NOT_YET, g->at, "not yet: a hook that captures a sequence");
    return v;
  default: return v;
  }
}

/* The variables of the file that this block of script assigns: their names, and the locals that
 * stand for them from here on. */
static AbstractVars block_vars(Session *s, size_t *locals) {
  Frame *f = s->frame;
  while (f && f->code && !capsule_is_fn(f->fn)) f = f->up;
  if (!f || !capsule_is_fn(f->fn)) return (AbstractVars){0};
  *locals = f->base;
  return abstract_vars(s, f->fn->decl->fn->body);
}

/* Makes a view of the state that is written by now and adds its values to the group. Returns the
 * number of the view, from 1; 0: nothing is written. */
static int64_t view_now(Session *s, Hosts *h, Group *g) {
  Unit *u = s->stage->unit;
  size_t first = g->count, written = 0;
  for (size_t i = 0; i < u->state_count; i++) written += u->states[i].written;
  size_t base = 0;
  AbstractVars vars = block_vars(s, &base);
  written += vars.count;
  if (!written || u->check) return 0;
  h->views = grown(s, h->views, h->view_count, &h->view_cap, sizeof *h->views);
  HostWrite *items = mem_need(&s->mem, NULL, 0, written * sizeof *items);
  HostView *v = &h->views[h->view_count++];
  *v = (HostView){.items = items, .cap = written};
  for (size_t i = 0; i < u->state_count; i++) {
    const State *st = &u->states[i];
    if (!st->written) continue;
    Value now = st->cur;
    HostWrite w = {.need = need_of(s, h, st->field != NULL, st->key, g->at), .field = st->field};
    w.shape = captured(g, h, now, first, NULL);
    value_retain(w.shape);
    v->items[v->count++] = w;
  }
  for (size_t i = 0; i < vars.count; i++) {
    Global *of = global_find(s, s->frame->module, vars.names[i]);
    size_t k = base;
    while (k < s->local_count && !(s->locals[k].is_var && s->locals[k].name == vars.names[i])) k++;
    if (!of || of->kind != G_VALUE || !of->is_var || k == s->local_count) continue;
    if (s->locals[k].v.tag == V_FN) continue;
    HostWrite w = {.var = of, .shape = captured(g, h, s->locals[k].v, first, NULL)};
    value_retain(w.shape);
    v->items[v->count++] = w;
  }
  v->values = g->count - first;
  for (size_t i = first; i < g->count; i++) { /* a later version of a param has a gradient */
    Value x = node_value(s, g->vals[i]);
    g->vals[i] = op_run(s, OP_STOP, 1, &x, NULL, 0, g->at).u.v;
  }
  return (int64_t)h->view_count;
}

void host_seen(Session *s, bool on, Span at) {
  Graph *graph = s->stage->g;
  Unit *u = s->stage->unit;
  graph->seen_count = 0;
  graph->seen_number = 0;
  if (!on || !u || !u->hosts || !stage_in_order(s->stage)) return;
  Group g = {.s = s, .at = at};
  graph->seen_number = view_now(s, u->hosts, &g);
  graph->seen = g.vals;
  graph->seen_count = (int)g.count;
}

/* The leaf of a block of script whose value is x itself, else SIZE_MAX: in a function that the
 * block calls, x is another value. */
static size_t from_outside(const Session *s, Val x) {
  const Unit *u = s->stage->unit;
  if (!capsule_is_fn(s->frame->fn) || u->check || s->stage->level > 1) return SIZE_MAX;
  for (size_t i = 0; i < u->staged_count; i++)
    if (u->flat.leaves[i].kind <= LEAF_PARAM && val_eq(u->staged[i].u.v, x)) return i;
  return SIZE_MAX;
}

static Later *later_of(Session *s, size_t leaf, const Group *g) {
  size_t n = g->count - 1;
  Later *l = mem_need(&s->mem, NULL, 0, sizeof *l + n * sizeof *l->captured);
  *l = (Later){.leaf = leaf, .count = n};
  memcpy(l->captured, g->vals + 1, n * sizeof *l->captured);
  return l;
}

const bool *host_later(Session *s, Hosts *h, Graph *g) {
  bool *nodes = ARENA_ARRAY(&s->scratch, bool, g->node_count + 1);
  for (size_t i = 0; i < h->count; i++) {
    Later *l = h->items[i].later;
    if (!l) continue;
    nodes[l->node] = true;
    l->first = g->output_count;
    for (size_t k = 0; k < l->count; k++) gr_output(g, l->captured[k]);
  }
  return nodes;
}

/* A node that calls f on x; the values that f captured are inputs too. */
static Val function_node(Session *s, OpCode op, HostKind kind, Value x, Value f, Span at,
                         const char *text) {
  Hosts *h = hosts_of(s, at);
  Group g = {.s = s, .at = at};
  Host host = {.kind = kind, .at = at};
  group_add(&g, stage_lift(s, x, at).u.v);
  if (!s->stage->unit->check) host.shape = captured(&g, h, f, 1, &host.self);
  size_t leaf = kind == HOST_GRAD ? from_outside(s, g.vals[0]) : SIZE_MAX;
  size_t k = host_add(s, h, host);
  if (leaf != SIZE_MAX) {
    h->items[k].later = later_of(s, leaf, &g);
    h->inside--;
  }
  Val r = host_node(s, op, &g, 1, k, text);
  if (leaf != SIZE_MAX) h->items[k].later->node = r.node;
  return r;
}

void host_on_grad(Session *s, Value x, Value f, Span at) {
  if (s->abstract || unseen(s)) return;
  Val v = stage_lift(s, x, at).u.v;
  if (s->stage->level > 1 && gr_node(s->stage->g, v)->op == OP_INPUT)
    fail_help(s, ERR_NOT_YET, at, "a value that is made here, as `let y = 1 * x`, can have one",
              "not yet: on one side of a choice on data, or in a loop that stays one, a hook of a "
              "value that was made before it");
  function_node(s, OP_HOOK, HOST_GRAD, x, f, at, "on_grad");
}

bool host_param_hooked(Session *s, const Param *p) {
  const State *st = p->hooked ? state_unit(s, p, NULL) : NULL;
  return p->hooked && !(st && st->stood_for) && in_code(s) && s->stage->unit &&
         !s->stage->unit->check &&
         (hooks_on(s, (HookKey){HOOK_PARAM, p->id, 0}) ||
          hooks_on(s, (HookKey){HOOK_AFTER_GRAD, p->id, 0}));
}

Value host_param_gradient(Session *s, Param *p, Value g, Span at) {
  if (!host_param_hooked(s, p)) return g;
  Hosts *h = hosts_of(s, at);
  Group group = {.s = s, .at = at};
  group_add(&group, stage_lift(s, g, at).u.v);
  Host host = {.kind = HOST_PARAM, .at = at, .need = need_of(s, h, false, p, at)};
  Val r = host_node(s, OP_DEFER, &group, 1, host_add(s, h, host), "hooks of a param");
  return node_value(s, (Val){r.node, 1});
}

void host_end(Session *s, Span at) {
  if (!in_code(s) || !s->stage->unit || s->stage->unit->check ||
      !hooks_on(s, (HookKey){HOOK_AFTER_BACKWARD, 0, 0}))
    return;
  Group none = {.s = s, .at = at};
  Host host = {.kind = HOST_END, .at = at};
  host_node(s, OP_DEFER, &none, 0, host_add(s, hosts_of(s, at), host), "after_backward");
}

/* ---- defer */

static void want_tensor(Session *s, const Args *a) {
  if (a->count != 1 || a->names[0])
    fail_at(s, ERR_ARG_COUNT, a->call, "a deferred function takes one tensor by position");
  if (a->v[0].tag != V_UNKNOWN && !v_is_tensor(a->v[0]))
    fail_at(s, ERR_WANT_TENSOR, a->spans[0].file ? a->spans[0] : a->call,
            "a deferred function takes a tensor, not %s", value_type_text(s, a->v[0]));
}

/* Calls f itself, with recording off. */
static Value run_deferred(Session *s, FnObj *f, Value x, Span at) {
  Modes modes = s->modes;
  s->modes.no_grad = true;
  Value plain = v_fn_like(s, f, f->self, f->captures);
  plain.u.fn->deferred = false;
  Value y = call_simple(s, plain, 1, &x, at);
  s->modes = modes;
  if (!v_is_tensor(y))
    fail_at(s, ERR_HOOK_ANSWER, at, "a deferred function gives a tensor like its argument, not %s",
            value_type_text(s, y));
  Tensor *t = op_tensor_of(s, y, at);
  const char *why = hook_misfit(s, op_tensor_of(s, x, at), t);
  if (why)
    fail_at(s, ERR_HOOK_META, at, "a deferred function gives another kind of value: %s", why);
  return v_tensor(s, tn_ref(t));
}

Value host_deferred_call(Session *s, FnObj *f, const Args *a) {
  want_tensor(s, a);
  Value x = a->v[0];
  if (x.tag == V_UNKNOWN) return x;
  if (s->abstract) return op_run(s, OP_ALIAS, 1, &x, NULL, 0, a->call);
  if (s->stage) {
    if (s->stage->level > 1)
      fail_help(s, ERR_NOT_YET, a->call, "`on_grad` of its value is a hook there",
                "not yet: a deferred function on one side of a choice on data, or in a loop that "
                "stays one");
    Value fn = {.tag = V_FN, .u.fn = f};
    Val r = function_node(s, OP_DEFER, HOST_DEFER, x, fn, a->call, deferred_text);
    return node_value(s, (Val){r.node, 1});
  }
  Value y = run_deferred(s, f, x, a->call);
  if (!s->modes.no_grad && tape_wants_grad(s, x))
    tape_record(s, OP_DEFER, 1, &x, NULL, 0, 1, &y, a->call);
  return y;
}

BUILTIN_FN(bi_defer) {
  if (c->v[0].tag != V_FN)
    fail_help(s, ERR_NOT_CALLABLE, c->spans[0], "defer(fn(g) { .. })",
              "`defer` takes a function that the program declares, not %s",
              value_type_text(s, c->v[0]));
  const FnObj *f = c->v[0].u.fn;
  Value d = v_fn_like(s, f, f->self, f->captures);
  d.u.fn->deferred = true;
  return d;
}

/* ---- running */

struct HostRun {
  Session *s;
  const Hosts *hosts;
  const Value *refs;
  Span grad;
  size_t count;
  Value before[]; /* per host: the incoming gradients after its hooks */
};

static void host_run_free(void *p) {
  HostRun *r = p;
  for (size_t i = 0; i < r->count; i++) value_release(r->before[i]);
  mem_free(&r->s->mem, r, sizeof *r + r->count * sizeof(Value));
}

HostRun *host_run(Session *s, const Hosts *h, const Value *refs, Span grad) {
  size_t n = h ? h->count : 0, bytes = sizeof(HostRun) + n * sizeof(Value);
  HostRun *r = mem_need(&s->mem, NULL, 0, bytes);
  memset(r, 0, bytes);
  r->s = s;
  r->hosts = h;
  r->refs = refs;
  r->grad = grad;
  r->count = n;
  mem_pool_add(&s->mem, r, host_run_free);
  return r;
}

Value *host_refs(Session *s, const Hosts *h, const Flat *f) {
  Value *refs = ARENA_ARRAY(&s->scratch, Value, (h ? h->need_count : 0) + 1);
  for (size_t i = 0; h && i < h->need_count; i++)
    refs[i] = h->needs[i].inst ? (Value){.tag = V_INST, .u.inst = f->insts[h->needs[i].index]}
                               : f->leaves[h->needs[i].index].v;
  return refs;
}

/* Fills a kept structure with the values of a run; vals[k] is unit if there is none. */
static Value filled(const HostRun *r, Value t, const Value *vals) {
  stack_check();
  Session *s = r->s;
  switch ((ValueTag)t.tag) {
  case V_NODE: {
    Value v = vals[t.u.v.node];
    if (v.tag == V_UNIT) return v_none();
    if (!t.weak) return v;
    return v_scalar(v.u.t->t); /* a number again */
  }
  case V_UNKNOWN: return r->refs[t.aux - 1];
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n;
    Value *items = value_parts(s, t, &n);
    for (size_t i = 0; i < n; i++) items[i] = filled(r, items[i], vals);
    return value_like(s, t, items);
  }
  case V_RANGE: return v_range(s, filled(r, t.u.range->lo, vals), filled(r, t.u.range->hi, vals));
  default: return value_pool(s, t);
  }
}

static Value filled_fn(const HostRun *r, const Host *h, const Value *vals) {
  Session *s = r->s;
  FnObj *f = h->shape.u.fn;
  Inst *self = h->self ? r->refs[h->self - 1].u.inst : NULL;
  Local *cap = ARENA_ARRAY(&s->scratch, Local, f->capture_count + 1);
  for (size_t i = 0; i < f->capture_count; i++) {
    cap[i] = f->captures[i];
    cap[i].v = filled(r, f->captures[i].v, vals);
  }
  return v_fn_like(s, f, self, cap);
}

/* The state that a function of the program sees while it runs. The former values are kept. */
typedef struct Shown {
  Session *s;
  size_t count, most;
  struct ShownWrite {
    Global *var;
    Param *p; /* neither: a field */
    Inst *inst;
    Name field;
    Value v; /* the value that is not in place now */
  } items[];
} Shown;

static void exchange(struct ShownWrite *w) {
  if (w->p) {
    Tensor *t = w->p->t;
    w->p->t = w->v.u.t->t;
    w->v.u.t->t = t;
  } else {
    Value *at = w->var ? &w->var->v : &model_field(w->inst, w->field)->v, v = *at;
    *at = w->v;
    w->v = v;
  }
}

static void hide(void *p) {
  Shown *w = p;
  for (size_t i = w->count; i-- > 0;) {
    exchange(&w->items[i]);
    value_release(w->items[i].v);
  }
  mem_free(&w->s->mem, w, sizeof *w + w->most * sizeof *w->items);
}

/* Puts the values of the view in place until the pool is drained. */
static void show(const HostRun *r, const HostView *view, const Value *vals) {
  Session *s = r->s;
  size_t bytes = sizeof(Shown) + view->count * sizeof(struct ShownWrite);
  Value *now = ARENA_ARRAY(&s->scratch, Value, view->count + 1);
  for (size_t i = 0; i < view->count; i++) {
    now[i] = filled(r, view->items[i].shape, vals);
    if (!view->items[i].field && !view->items[i].var) now[i] = v_tensor(s, tn_ref(now[i].u.t->t));
  }
  Shown *w = mem_need(&s->mem, NULL, 0, bytes);
  *w = (Shown){.s = s, .most = view->count};
  mem_pool_add(&s->mem, w, hide);
  for (size_t i = 0; i < view->count; i++) {
    const HostWrite *x = &view->items[i];
    w->items[i] = (struct ShownWrite){.var = x->var, .field = x->field, .v = now[i]};
    if (x->field)
      w->items[i].inst = r->refs[x->need].u.inst;
    else if (!x->var)
      w->items[i].p = r->refs[x->need].u.p;
    value_retain(now[i]);
    exchange(&w->items[w->count++]);
  }
}

bool host_registers(const Hosts *h, size_t leaf) {
  bool any = false;
  for (size_t i = 0; h && i < h->count; i++)
    any |= h->items[i].later && h->items[i].later->leaf == leaf;
  return any;
}

void host_register(Session *s, const Hosts *h, const Value *refs, const Flat *f, Value *outs) {
  const HostRun r = {.s = s, .hosts = h, .refs = refs};
  for (size_t i = 0; i < h->count; i++) {
    const Later *l = h->items[i].later;
    if (!l) continue;
    Value hook = filled_fn(&r, &h->items[i], outs + l->first);
    hook_on_value(s, leaf_value(&f->leaves[l->leaf]), hook, h->items[i].at);
  }
}

/* Writes the tensors of v, which has the structure t, to their numbers. */
static void unfilled(Value t, Value v, Value *vals) {
  stack_check();
  if (t.tag == V_NODE && v_is_tensor(v)) vals[t.u.v.node] = v;
  size_t n;
  const Value *items = value_items(t, &n);
  for (size_t i = n; i-- > 0;) /* if a value stands twice, the first one counts */
    unfilled(items[i], *value_counterpart(t, i, v), vals);
}

Tensor *host_own(Session *s, Tensor *t) {
  return t->store->foreign_free ? tn_copy(&s->mem, t, t->store->dev) : tn_ref(t);
}

bool host_no_gradient(const Graph *g, uint32_t node, GErr *e) {
  const char *text = gr_attr(g, node, AT_TEXT)->u.text;
  gerr_set(e, ERR_GRAD_NONE, -1, "%s",
           !strcmp(text, deferred_text) ? "a deferred function has no gradient"
           : !strcmp(text, call_text)   ? "this function of the host has no gradient"
           : !strcmp(text, again_text)
               ? "a second gradient goes through a function of the host, which has none"
               : "a second gradient goes through a hook, which has none");
  if (!strcmp(text, call_text)) gerr_help(e, "ckl_define takes one, and `stop(..)` does without");
  return false;
}

bool host_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                 GErr *e) {
  HostRun *r = ud;
  Session *s = r->s;
  int64_t number = gr_attr_i(g, node, AT_INDEX, -1);
  if (g->nodes[node].op != OP_DEFER || number < 0) return effect_run(s, g, node, in, n, out, e);
  size_t index = (size_t)number;
  int carry = (int)gr_attr_i(g, node, AT_CARRY, 1);
  const Attr *which = gr_attr(g, node, AT_WRT);
  const Host *h = &r->hosts->items[index];
  HookRun run = {.grad = r->grad.file ? r->grad : h->at, .modes = h->modes};
  size_t mark = mem_pool_mark(&s->mem), most = 1;
  for (uint32_t i = 0; which && i < which->count; i++)
    if (which->u.ints[i] >= (int64_t)most) most = (size_t)which->u.ints[i] + 1;
  Value *vals = ARENA_ARRAY(&s->scratch, Value, most + 1);
  Value *rest = ARENA_ARRAY(&s->scratch, Value, (size_t)n + 1);
  for (int i = 0; i < carry; i++)
    vals[which ? which->u.ints[i] : i] = v_tensor(s, host_own(s, in[1 + i]));
  for (int i = 1 + carry; i < n; i++) rest[i - 1 - carry] = v_tensor(s, host_own(s, in[i]));
  int64_t at_view = gr_attr_i(g, node, AT_SEEN, 0);
  const HostView *view = at_view ? &r->hosts->views[at_view - 1] : NULL;
  if (view) show(r, view, rest + n - 1 - carry - (int)view->values);
  switch (h->kind) {
  case HOST_DEFER: vals[0] = run_deferred(s, filled_fn(r, h, rest).u.fn, vals[0], h->at); break;
  case HOST_GRAD: vals[0] = hook_gradient(s, filled_fn(r, h, rest), h->at, &run, vals[0]); break;
  case HOST_PARAM: {
    Param *p = run.param = r->refs[h->need].u.p;
    vals[0] = hooks_gradient(s, (HookKey){HOOK_PARAM, p->id, 0}, &run, vals[0], NULL);
    vals[0] = hooks_gradient(s, (HookKey){HOOK_AFTER_GRAD, p->id, 0}, &run, vals[0], NULL);
    if (vals[0].tag == V_NONE)
      fail_at(s, ERR_HOOK_ANSWER, h->at,
              "a hook of after_grad drops a gradient that code computes: take it in script");
    break;
  }
  case HOST_BEFORE:
  case HOST_AFTER: {
    bool after = h->kind == HOST_AFTER;
    HookKey k = {after ? HOOK_AFTER_CALL : HOOK_BEFORE_CALL, r->refs[h->need].u.inst->id, 0};
    Value gs = filled(r, h->shape, vals), seen = after ? r->before[h->before] : v_none();
    if (seen.tag == V_UNIT) seen = v_none();
    gs = hooks_gradient(s, k, &run, gs, after ? &seen : NULL);
    unfilled(h->shape, gs, vals);
    if (!after) value_set(&r->before[index], gs);
    break;
  }
  case HOST_END: hooks_end(s, &run); break;
  }
  out[0] = NULL;
  for (int i = 0; i < carry; i++)
    out[1 + i] = tn_ref(op_tensor_of(s, vals[which ? which->u.ints[i] : i], h->at));
  mem_pool_drain(&s->mem, mark);
  return true;
}
