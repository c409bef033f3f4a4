/* Calls: binding arguments, frames, bodies of functions and of their backwards.
 *
 * In: a function value and evaluated arguments. Out: its result. A `fn` called from script goes to
 * compile.c (call_run_code). The body of a `proc`, or of a `fn` called from code, is evaluated here
 * in a new frame. Invariants: in code every float tensor that enters a call passes an `alias` node,
 * so that the gradient sums the uses inside of the call before those outside (rule 74). A result
 * passes one too, where it makes a difference (leave_call), so that hooks on the result see the
 * gradient of the uses outside only.
 */
#include <string.h>

#include "graph/build.h"
#include "lang/builtin/builtin.h"
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/sides.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/steps.h"
#include "lang/eval/type.h"
#include "lang/names/desugar.h"
#include "lang/tape/callback.h"
#include "lang/names/meant.h"
#include "lang/value/fail.h"
#include "lang/value/path.h"

enum { DEPTH_CODE = 256, DEPTH_SCRIPT = 1000 };

const char *call_fn_name(const FnObj *f) {
  return f->decl->fn->name.name ? f->decl->fn->name.name : "function literal";
}

Value call_simple(Session *s, Value f, size_t n, const Value *v, Span at) {
  Args a = {.count = n, .call = at};
  a.v = ARENA_ARRAY(&s->scratch, Value, n + 1);
  a.names = ARENA_ARRAY(&s->scratch, Name, n + 1);
  a.spans = ARENA_ARRAY(&s->scratch, Span, n + 1);
  for (size_t i = 0; i < n; i++) {
    a.v[i] = v[i];
    a.spans[i] = at;
  }
  return call_value(s, f, &a);
}

Value call_value(Session *s, Value f, const Args *a) {
  stack_check();
  switch ((ValueTag)f.tag) {
  case V_UNKNOWN: return f;
  case V_FN: return call_fn(s, f.u.fn, a);
  case V_MODEL:
    if (in_code(s)) fail_at(s, ERR_SCRIPT_ONLY, a->call, "models are made in script, not in code");
    return model_construct(s, f.u.model, a);
  case V_BUILTIN: return builtin_call(s, f.u.builtin, a, NULL);
  case V_DTYPE:
    if (a->count != 1 || a->names[0])
      fail_at(s, ERR_ARG_COUNT, a->call, "a cast takes one value: `%s(x)`", dtype_info[f.u.i].name);
    return op_cast(s, a->v[0], (DType)f.u.i, a->call);
  case V_INST: { /* m(args) is m.forward(args) */
    Name forward = names_of(s->names, "forward");
    const NodeList *l = &f.u.inst->model->decl->model.members;
    for (uint32_t i = 0; i < l->count; i++)
      if (l->items[i]->kind == N_FN && l->items[i]->fn->name.name == forward) {
        Value m = v_fn(s, l->items[i], f.u.inst->model->module, f.u.inst, f.u.inst->model,
                       !l->items[i]->fn->is_proc, 0, NULL);
        return call_fn(s, m.u.fn, a);
      }
    fail_at(s, ERR_NO_FIELD, a->call, "model `%s` has no `forward` to call", f.u.inst->model->name);
  }
  case V_POLICY: {
    PolicyObj *p = (PolicyObj *)f.u.o;
    for (size_t i = 0; i < a->count; i++)
      if (a->names[i])
        fail_at(s, ERR_ARG_NAME, a->spans[i], "arguments of a policy stand by position");
    if (p->count)
      fail_at(s, ERR_NOT_CALLABLE, a->call, "the policy `%s` has its arguments already",
              p->decl->policy_decl.name.name);
    return policy_value(s, p->decl, p->module, a->count, a->v);
  }
  default: {
    const char *text = fail_source_text(s, a->call, "");
    Name by = names_get(s->names, text, strcspn(text, "(. "));
    if (builtin_find(s, by))
      fail_help(s, ERR_NOT_CALLABLE, a->call,
                fail_text(s, "a variable took the name of the builtin `%s`: rename it", by),
                "`%s` is %s here, not a function", by, value_type_text(s, f));
    fail_at(s, ERR_NOT_CALLABLE, a->call, "%s is not a function", value_type_text(s, f));
  }
  }
}

static _Noreturn void not_code(Session *s, FnObj *f, Span at) {
  Span why = {0};
  const char *what = desugar_why_not_code(s, f, &why);
  Diag *d = fail_report(s, ERR_CODE_VALUE, at, "a function that can be compiled is needed here");
  if (what) dg_label(&s->diags, d, why, "%s", what);
  dg_help(&s->diags, d, "pass what the function needs as arguments, and let it give its result");
  fail_raise(s);
}

/* ---- results of calls in code: new values, as results of calls from script are */

typedef struct Leaving {
  Val *before, *after;
  size_t count, cap;
} Leaving;

static bool leaves(const Session *s, Value v) {
  return v.tag == V_NODE && !v.weak && v.aux == s->stage->level &&
         dt_float((DType)gr_type(s->stage->g, v.u.v)->dtype);
}

static void find_leaving(Session *s, Leaving *l, Value v) {
  stack_check();
  if (leaves(s, v)) {
    for (size_t i = 0; i < l->count; i++)
      if (val_eq(l->before[i], v.u.v)) return;
    VEC_PUSH(&s->scratch, l->before, l->count, l->cap, v.u.v);
  } else if (!v_is_weak_list(v)) {
    size_t n;
    const Value *items = value_items(v, &n);
    for (size_t i = 0; i < n; i++) find_leaving(s, l, items[i]);
  }
}

static Value left(Session *s, const Leaving *l, Value v) {
  stack_check();
  if (leaves(s, v)) {
    size_t i = 0;
    while (!val_eq(l->before[i], v.u.v)) i++;
    v.u.v = l->after[i];
    return v;
  }
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  for (size_t i = 0; i < n; i++) items[i] = left(s, l, items[i]);
  return value_like(s, v, items);
}

/* The result r of a call whose nodes begin at `from`, with its float tensors aliased. A single one
 * that no node of the call uses needs no alias: nothing could tell the difference. Several need
 * them, because their hooks have an order. */
static Value leave_call(Session *s, Value r, uint32_t from, Span at) {
  const Graph *g = s->stage->g;
  Leaving l = {0};
  find_leaving(s, &l, r);
  bool apart = l.count > 1;
  for (uint32_t n = from; n < g->node_count && !apart; n++)
    for (uint32_t k = 0; k < g->nodes[n].operand_count && l.count; k++)
      apart |= val_eq(g->operands[g->nodes[n].operand0 + k], l.before[0]);
  if (!apart) return r;
  l.after = ARENA_ARRAY(&s->scratch, Val, l.count);
  AliasEntry *made = ARENA_ARRAY(&s->scratch, AliasEntry, l.count);
  for (size_t i = 0; i < l.count; i++) {
    Value v = {.tag = V_NODE, .aux = s->stage->level, .u.v = l.before[i]};
    made[i] = (AliasEntry){l.before[i], sides_alias(s, i, made, v, at)};
    l.after[i] = made[i].v.u.v;
  }
  return left(s, &l, r);
}

/* A call in code; host_call may run it between hooks. */
static Value staged_call(Session *s, FnObj *f, const Args *a) {
  return f->decl->fn->back_body ? eval_custom_call(s, f, a) : call_inline(s, f, a);
}

typedef struct LiteralJob {
  Session *s;
  FnObj *f;
  const Args *a;
  Value v;
} LiteralJob;

static void literal_job(void *ud) {
  LiteralJob *j = ud;
  j->v = call_run_code(j->s, j->f, j->a);
}

/* A call in script of a literal whose body looks like code (rule 51). What code refuses, before
 * anything has run, script does, then and from then on. */
static Value call_literal(Session *s, FnObj *f, const Args *a) {
  LiteralJob j = {.s = s, .f = f, .a = a};
  if (!f->as_script) {
    DrawMark draws = random_mark(s);
    if (call_attempt(s, literal_job, &j, call_refused) < 0) return j.v;
    random_back(s, &draws);
    f->as_script = true;
  }
  Value p = v_fn_like(s, f, f->self, f->captures);
  p.u.fn->is_code = false;
  return call_inline(s, p.u.fn, a);
}

Value call_fn(Session *s, FnObj *f, const Args *a) {
  if (f->deferred) return host_deferred_call(s, f, a);
  if (s->abstract && s->depth > 40) return (Value){.tag = V_UNKNOWN}; /* `check`: recursion */
  if (s->abstract || s->stage || !f->is_code) {
    if (in_code(s) && !f->is_code && f->decl->kind == N_LAMBDA) not_code(s, f, a->call);
    if (in_code(s) && !f->is_code)
      fail_help(
          s, ERR_SCRIPT_ONLY, a->call,
          fail_text(s,
                    "declare it `fn %s` if it does not print to files, read clocks or make models",
                    call_fn_name(f)),
          "code cannot call the proc `%s`", call_fn_name(f));
    if (!s->stage) return call_inline(s, f, a);
    uint32_t from = (uint32_t)s->stage->g->node_count;
    Value r = host_hooked(s, f) ? host_call(s, f, a, staged_call) : staged_call(s, f, a);
    return s->abstract || !s->frame->code ? r : leave_call(s, r, from, a->call);
  }
  return f->decl->kind == N_LAMBDA ? call_literal(s, f, a) : call_run_code(s, f, a);
}

uint32_t call_param_named(Session *s, const NodeList *p, Name name, size_t args, Table *t) {
  enum { FEW = 32 };
  uint32_t i = 0;
  if (p->count <= FEW || args <= FEW) {
    while (i < p->count && p->items[i]->param.name.name != name) i++;
    s->count.searched += i;
    return i;
  }
  if (!t->arena) {
    t->arena = &s->scratch;
    for (; i < p->count; i++) table_add(t, table_key(p->items[i]->param.name.name), i);
  }
  ptrdiff_t at = table_get(t, table_key(name));
  return at == TABLE_NONE ? p->count : (uint32_t)at;
}

/* out[i] is the argument for parameter i, or a unit with given[i] false. Arguments that do not fit
 * are errors. */
void call_bind_args(Session *s, FnObj *f, const Args *a, Value *out, Span *spans, bool *given) {
  const NodeList *p = &f->decl->fn->params;
  memset(given, 0, sizeof(bool) * p->count);
  uint32_t positional = 0, required = 0;
  Table by_name = {0};
  for (uint32_t i = 0; i < p->count; i++) required += !p->items[i]->param.init;
  for (size_t k = 0; k < a->count; k++) {
    uint32_t i;
    if (!a->names[k]) {
      while (positional < p->count && p->items[positional]->param.init) positional++;
      if (positional >= p->count) {
        uint32_t extra = 0;
        for (size_t j = 0; j < a->count; j++) extra += !a->names[j];
        Diag *d = fail_report(s, ERR_ARG_COUNT, a->spans[k].file ? a->spans[k] : a->call,
                              "`%s` takes %u argument%s by position, not %u", call_fn_name(f),
                              required, required == 1 ? "" : "s", extra);
        dg_label(&s->diags, d, f->decl->fn->header, "declared here");
        if (required < p->count)
          dg_help(&s->diags, d, "a parameter with a default is given by name");
        fail_raise(s);
      }
      i = positional++;
    } else {
      i = call_param_named(s, p, a->names[k], a->count, &by_name);
      if (i == p->count) {
        Diag *d = fail_report(s, ERR_ARG_NAME, a->spans[k], "`%s` has no parameter `%s`",
                              call_fn_name(f), a->names[k]);
        dg_label(&s->diags, d, f->decl->fn->header, "declared here");
        for (uint32_t j = 0; j < p->count; j++)
          if (str_distance(a->names[k], p->items[j]->param.name.name, 2) <= 2) {
            dg_help(&s->diags, d, "did you mean `%s`?", p->items[j]->param.name.name);
            break;
          }
        fail_raise(s);
      }
      if (given[i])
        fail_at(s, ERR_TWICE, a->spans[k], "the argument `%s` is given twice", a->names[k]);
    }
    out[i] = a->v[k];
    spans[i] = a->spans[k];
    given[i] = true;
  }
  for (uint32_t i = 0; i < p->count; i++)
    if (!given[i] && !p->items[i]->param.init) {
      Diag *d = fail_report(s, ERR_ARG_COUNT, a->call, "`%s` needs the argument `%s`",
                            call_fn_name(f), p->items[i]->param.name.name);
      dg_label(&s->diags, d, f->decl->fn->header, "declared here");
      const char *help = f->module->path ? NULL : foreign_help(s, call_fn_name(f), FOREIGN_CALL);
      if (help) dg_help(&s->diags, d, "%s", help);
      fail_raise(s);
    }
}

/* One alias for a value that enters a call several times: the call contributes once (rule 74). */
static Value enter_node(Session *s, Value v, Span at) {
  Frame *fr = s->frame;
  Unit *u = s->stage->unit;
  v = stage_lift(s, v, at);
  for (size_t i = 0; i < fr->alias_count; i++)
    if (val_eq(fr->aliases[i].version, v.u.v)) return fr->aliases[i].v;
  AliasEntry e = {v.u.v, sides_alias(s, fr->alias_count, fr->aliases, v, at)};
  VEC_PUSH(u ? u->arena : s->stage->g->arena, fr->aliases, fr->alias_count, fr->alias_cap, e);
  return e.v;
}

void call_enter_values(Session *s, size_t n, Val *v, Span at) {
  Graph *g = s->stage->g;
  Val *before = ARENA_ARRAY(&s->scratch, Val, n + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  stage_at(s, at);
  for (size_t i = 0; i < n; i++) {
    size_t k = 0;
    before[i] = v[i];
    while (k < i && !val_eq(before[k], v[i])) k++;
    const Type *t = gr_type(g, v[i]);
    if (k < i)
      v[i] = v[k];
    else if (t->kind == TK_TENSOR && dt_float((DType)t->dtype))
      v[i] = gr_op(g, OP_ALIAS, &v[i], 1, NULL, 0, NULL, 0, &e);
    if (val_none(v[i])) fail_gerr(s, at, &e);
  }
}

/* v with f of each of its parts; v itself if that changes none, or it has none. */
static Value over_parts(Session *s, Value v, Value (*f)(Session *s, Value v, Span at), Span at) {
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  bool changed = false;
  for (size_t i = 0; items && i < n; i++) {
    Value x = f(s, items[i], at);
    changed |= x.tag != items[i].tag || memcmp(&items[i].u, &x.u, sizeof x.u) != 0;
    items[i] = x;
  }
  return changed ? value_like(s, v, items) : v;
}

static Value enter_leaf(Session *s, Value v, Span at);

/* A function that is an argument: what it captured enters the call with it (rule 45). */
static Value enter_captures(Session *s, Value v, Span at) {
  const FnObj *f = v.u.fn;
  Local *captures = ARENA_ARRAY(&s->scratch, Local, f->capture_count);
  memcpy(captures, f->captures, f->capture_count * sizeof *captures);
  for (size_t i = 0; i < f->capture_count; i++) captures[i].v = enter_leaf(s, captures[i].v, at);
  return v_fn_like(s, f, f->self, captures);
}

/* The value inside of a call of code: its float tensors pass an alias node. */
static Value enter_leaf(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_NODE && !v.weak && dt_float((DType)op_type_of(s, v).dtype))
    return enter_node(s, v, at);
  if (v.tag == V_FN && v.u.fn->is_code && v.u.fn->capture_count) return enter_captures(s, v, at);
  return over_parts(s, v, enter_leaf, at);
}

static Value enter(Session *s, Value v, Span at) {
  return s->stage ? enter_leaf(s, v, at) : v;
}

/* What entered the call, as a value of its own: a function that takes gradients does so by one
 * parameter, whatever value another one has (rule 72). */
static Value apart(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_NODE && !v.weak && dt_float((DType)op_type_of(s, v).dtype))
    return op_run(s, OP_ALIAS, 1, &v, NULL, 0, at);
  return over_parts(s, v, apart, at);
}

void frame_push(Session *s, Frame *fr, FnObj *f, Span call) {
  count_step(s, call); /* recursion can run long without a loop */
  *fr = (Frame){.up = s->frame,
                .module = f->module,
                .fn = f,
                .self = f->self,
                .model = f->model,
                .base = s->local_count,
                .call = call,
                .what = call_fn_name(f),
                .code = f->is_code,
                .stage = capsule_is_fn(f) ? NULL : s->stage};
  if (s->frame) fr->test = s->frame->test && f->module == s->frame->module && !f->is_code;
  int limit = f->is_code ? DEPTH_CODE : DEPTH_SCRIPT;
  if (++s->depth > limit) {
    s->depth--;
    fail_at(
        s, ERR_DEPTH, call,
        f->is_code
            ? "calls of code are nested more than %d deep: recursion must end by a static condition"
            : "calls are nested more than %d deep",
        limit);
  }
  s->frame = fr;
}

void frame_pop(Session *s, Frame *fr) {
  local_pop(s, fr->base);
  s->frame = fr->up;
  s->depth--;
}

/* Whether a call of f in code has params and parameters of its own. */
static bool takes_grad(Session *s, const FnObj *f) {
  return in_code(s) && f->is_code && desugar_takes_grad(s, f->decl);
}

/* Whether v is a param that enters a call more than once, as arguments and captured values: then
 * it is a value. */
static bool param_twice(const FnObj *f, uint32_t n, const Value *args, const bool *given, Value v) {
  int times = 0;
  if (v.tag != V_PARAM) return false;
  for (uint32_t k = 0; k < n; k++)
    times += given[k] && args[k].tag == V_PARAM && args[k].u.p == v.u.p;
  for (size_t k = 0; k < f->capture_count; k++)
    times += f->captures[k].v.tag == V_PARAM && f->captures[k].v.u.p == v.u.p;
  return times > 1;
}

/* Makes the parameters locals of the new frame. Dims are bound over all parameters before types are
 * compared. */
static APART void bind_params(Session *s, FnObj *f, uint32_t n, Value *args, Span *spans,
                              const bool *given, Span call) {
  const Fn *d = f->decl->fn;
  const char *title = s->stage ? path_frame_title(s, s->frame) : call_fn_name(f);
  bool inner = d->name.name && d->name.name[0] == '_' && fail_in_library(s, d->header);
  bool capsule = capsule_is_fn(f); /* not a call: values stay as they are */
  bool own = !capsule && takes_grad(s, f);
  bool *twice = ARENA_ARRAY(&s->scratch, bool, n + 1);
  for (uint32_t i = 0; i < n && own; i++)
    twice[i] = given[i] && param_twice(f, n, args, given, args[i]);
  for (size_t i = 0; i < f->capture_count; i++) {
    const Local *c = &f->captures[i];
    Value v = c->v;
    if (own && param_twice(f, n, args, given, v)) v = param_read(s, v.u.p, call);
    if (f->is_code && !capsule) v = enter(s, v, call);
    local_push(s, c->name, own ? apart(s, v, call) : v, capsule && c->is_var, c->span);
  }
  for (uint32_t i = 0; i < n; i++)
    if (given[i]) {
      if (twice[i]) args[i] = param_read(s, args[i].u.p, spans[i]);
      if (f->is_code) args[i] = enter(s, args[i], spans[i]);
      if (own) args[i] = apart(s, args[i], spans[i]);
      type_bind(s, d->params.items[i]->param.type, args[i]);
    }
  bool unknown = s->abstract; /* `check`: dims of unknown arguments are unknown */
  for (uint32_t i = 0; i < n; i++) unknown |= given[i] && args[i].tag == V_UNKNOWN;
  if (unknown)
    for (uint32_t i = 0; i < d->dims.count; i++)
      if (!local_find(s, d->dims.items[i].name))
        local_push(s, d->dims.items[i].name, (Value){.tag = V_UNKNOWN}, false,
                   d->dims.items[i].span);
  for (uint32_t i = 0; i < n; i++) {
    Node *p = d->params.items[i];
    Value v = args[i];
    if (!given[i]) {
      v = eval_expr(s, p->param.init);
      spans[i] = p->param.init->span;
      if (v.tag != V_NONE) type_bind(s, p->param.type, v);
    }
    if (v.tag == V_NONE && p->param.init && desugar_name_is_none(s, p->param.init)) { /* rule 71 */
    } else if (p->param.type) {
      Subject of = {.text = {"argument `", p->param.name.name, "` of `", title, "`"}};
      if (inner) of = (Subject){.text = {"`", p->param.name.name, "`"}};
      v = type_match(s, p->param.type, v, spans[i], &of);
    } /* without a type a weak tensor stays weak: it may be a shape */
    local_push(s, p->param.name.name, v, false, p->param.name.span);
  }
}

/* The value of a body; *fell: it ran to its end, without `return`. */
static Value run_body(Session *s, Node *body, bool is_expr, bool *fell) {
  Value r;
  Flow flow = FLOW_NEXT;
  if (body->kind == N_BLOCK && !is_expr) {
    r = eval_block(s, body, &flow);
  } else {
    s->tail = body;
    r = eval_expr(s, body);
    flow = (Flow)s->flow;
    s->flow = FLOW_NEXT;
  }
  if (flow == FLOW_BREAK || flow == FLOW_CONTINUE)
    fail_at(s, ERR_BREAK, body->span, "`break` and `continue` stand in loops only");
  if (flow == FLOW_RETURN) {
    r = s->ret;
    s->ret = v_unit();
    if (v_counted(r)) mem_pool_add(&s->mem, r.u.o, (void (*)(void *))obj_release);
  }
  *fell = flow == FLOW_NEXT && s->frame->returned.tag != V_NODE;
  return sides_returned(s, r, body->span);
}

Value call_backward_body(Session *s, FnObj *f, const Args *a, Value out, Value g) {
  const Fn *d = f->decl->fn;
  uint32_t n = d->params.count;
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, n + 1);
  bool *given = ARENA_ARRAY(&s->scratch, bool, n + 1);
  call_bind_args(s, f, a, args, spans, given);
  Frame fr;
  frame_push(s, &fr, f, a->call);
  fr.what = "backward";
  bind_params(s, f, n, args, spans, given, a->call);
  local_push(s, names_of(s->names, "out"), out, false, d->back_span);
  if (d->back_params.count == 1) {
    local_push(s, d->back_params.items[0]->param.name.name, g, false,
               d->back_params.items[0]->span);
  } else {
    if (g.tag != V_TUPLE || g.u.list->count != d->back_params.count)
      fail_at(s, ERR_BACKWARD, d->back_span,
              "`backward` takes one gradient of the result's structure");
    for (uint32_t i = 0; i < d->back_params.count; i++)
      local_push(s, d->back_params.items[i]->param.name.name, g.u.list->items[i], false,
                 d->back_params.items[i]->span);
  }
  bool fell;
  Entered *own = takes_grad(s, f) ? state_enter(s, &fr, a->call) : NULL;
  Value r = run_body(s, d->back_body, d->back_is_expr, &fell);
  if (own) state_leave(s, own);
  frame_pop(s, &fr);
  return r;
}

/* Opens the block of a call for the policy that checkpoint_layers gave to the instance (rule 84);
 * NULL: it gave none. */
static APART OpenBlock *layer_enter(Session *s, const FnObj *f) {
  if (!in_code(s) || !f->self || f->self->policy.tag == V_UNIT) return NULL;
  if (f->decl->kind != N_FN || strcmp(f->decl->fn->name.name, "forward")) return NULL;
  OpenBlock *b = ARENA_NEW(&s->scratch, OpenBlock);
  Policy *p = ARENA_NEW(&s->scratch, Policy);
  policy_of_value(s, f->self->policy, f->decl->fn->header, p);
  block_enter(s, b, p, f->decl->fn->header);
  return b;
}

static bool is_attention(const Session *s, const FnObj *f) {
  return s->stage && s->stage->open && f->module->library && !f->self && f->decl->kind == N_FN &&
         !strcmp(f->decl->fn->name.name, "attention");
}

/* The result of a call of code is a value, in code as in script: a param is read (rule 72). */
static Value read_params(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_PARAM) return param_read(s, v.u.p, at);
  return over_parts(s, v, read_params, at);
}

Value call_inline(Session *s, FnObj *f, const Args *a) {
  stack_check();
  const Fn *d = f->decl->fn;
  uint32_t n = d->params.count;
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, n + 1);
  bool *given = ARENA_ARRAY(&s->scratch, bool, n + 1);
  call_bind_args(s, f, a, args, spans, given);
  if (s->abstract && abstract_recursion(s, f)) return (Value){.tag = V_UNKNOWN};
  check_step(s);
  Frame fr;
  value_pool(s, (Value){.tag = V_FN, .u.fn = f});
  frame_push(s, &fr, f, a->call);
  bind_params(s, f, n, args, spans, given, a->call);
  bool fell = false;
  if (capsule_is_fn(f)) {
    Value c = capsule_body(s, f);
    frame_pop(s, &fr);
    return c;
  }
  OpenBlock *block = layer_enter(s, f);
  bool attention = is_attention(s, f);
  uint32_t from = s->stage ? (uint32_t)s->stage->g->node_count : 0;
  Entered *own = takes_grad(s, f) ? state_enter(s, &fr, a->call) : NULL;
  Value r = run_body(s, d->body, d->body_is_expr, &fell);
  if (attention) block_attention(s, from);
  if (s->abstract && abstract_returns(d->body)) r = (Value){.tag = V_UNKNOWN};
  if (r.tag == V_UNIT && fell && !d->body_is_expr && d->result &&
      !(d->result->kind == N_TYPE_TUPLE && d->result->list.count == 0)) {
    Span end = d->body->span;
    end.lo = end.hi - 1;
    Diag *g = fail_report(s, ERR_NO_RESULT, end, "`%s` has a result type, but its body gives ()",
                          call_fn_name(f));
    dg_label(&s->diags, g, d->result->span, "declared here");
    dg_help(&s->diags, g, "the last expression of a block is its value");
    fail_raise(s);
  }
  if (d->result) {
    Node *last = d->body;
    if (last->kind == N_BLOCK && last->list.count) last = last->list.items[last->list.count - 1];
    r = type_match(s, d->result, r, last->span,
                   &(Subject){.text = {"the result of `", call_fn_name(f), "`"}});
  } else if (v_is_weak_list(r)) {
    r = op_as_tensor(s, r, DT_COUNT, d->body->span);
  }
  if (s->stage && f->is_code) r = read_params(s, r, a->call);
  if (own) state_leave(s, own);
  if (block) block_leave(s, block, true);
  frame_pop(s, &fr);
  return r;
}
