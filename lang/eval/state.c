/* Params and buffers, in script and in code.
 *
 * In: a field of an instance, or a param. Out: its present value; writes. In script the object
 * itself holds the value. In code the unit keeps a State for each: reads see earlier writes of the
 * call, a written value is cut from its gradient (rule 60), and each call frame reads a param
 * through an alias node of its own, so that a call contributes one gradient (rule 74).
 */
#include <string.h>

#include "graph/build.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/sides.h"
#include "lang/eval/bindings.h"
#include "lang/eval/state.h"
#include "lang/eval/type.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

static Unit *unit_of(Session *s) {
  return s->stage ? s->stage->unit : NULL;
}

State *state_unit(Session *s, const void *key, Name field) {
  Unit *u = unit_of(s);
  if (!u) return NULL;
  for (size_t i = 0; i < u->state_count; i++)
    if (u->states[i].key == key && u->states[i].field == field) return &u->states[i];
  return NULL;
}

void state_base(Unit *u, State *st, Value v, const Frame *home) {
  if (st->field) return;
  struct Base *b = arena_alloc(u->arena, sizeof *b);
  *b = (struct Base){.v = v, .home = home, .up = st->base};
  st->base = b;
}

void state_turn(Unit *u, State *st, Value v) {
  if (!st->base) return;
  state_base(u, st, v, st->base->home);
  st->base->turn = true;
}

void state_merged(Session *s, State *st, Value v) {
  struct Merged m = {s->stage->g, v.u.v};
  if (!st->field && v.tag == V_NODE)
    VEC_PUSH(unit_of(s)->arena, st->merged, st->merged_count, st->merged_cap, m);
}

bool state_is_merged(const Stage *st, Val v) {
  const Unit *u = st->unit;
  for (size_t j = 0; u && j < u->state_count; j++)
    for (size_t i = 0; i < u->states[j].merged_count; i++)
      if (u->states[j].merged[i].g == st->g && val_eq(u->states[j].merged[i].v, v)) return true;
  return false;
}

/* The value as frame fr sees it. What entered the call as an argument, too, has its alias. */
static Value seen(Session *s, State *st, Value cur, Frame *fr, Span at) {
  if (!fr || !fr->stage || fr == st->base->home) return cur;
  if (cur.tag != V_NODE || cur.aux > fr->stage->level) return cur;
  Unit *u = unit_of(s);
  Value v = seen(s, st, cur, fr->up, at);
  Stage *now = s->stage;
  s->stage = fr->stage;
  v = stage_lift(s, v, at);
  AliasEntry e = {.version = v.u.v};
  for (size_t i = 0; i < fr->alias_count && !e.v.tag; i++)
    if (val_eq(fr->aliases[i].version, e.version)) e.v = fr->aliases[i].v;
  if (!e.v.tag) {
    e.v = sides_alias(s, fr->alias_count, fr->aliases, v, at);
    if (gr_node(s->stage->g, e.v.u.v)->op == OP_BRANCH) state_merged(s, st, e.v);
    VEC_PUSH(u->arena, fr->aliases, fr->alias_count, fr->alias_cap, e);
  }
  s->stage = now;
  return e.v;
}

bool state_enters(const Frame *fr) {
  const Frame *up = fr->up; /* a block of script is no call, but the call is in it */
  return fr->stage && up && (up->stage || capsule_is_fn(up->fn));
}

bool state_unsure(const Session *s) {
  const Unit *u = s->stage ? s->stage->unit : NULL;
  return s->made_up || (u && u->check && s->frame && state_enters(s->frame));
}

Entered *state_enter(Session *s, Frame *fr, Span at) {
  Unit *u = unit_of(s);
  if (!state_enters(fr) || !u) return NULL;
  Entered *e = ARENA_NEW(&s->scratch, Entered);
  *e = (Entered){.count = u->state_count,
                 .states = ARENA_ARRAY(&s->scratch, State, u->state_count + 1)};
  for (size_t i = 0; i < e->count; i++) {
    State *st = &u->states[i];
    e->states[i] = *st;
    if (st->field || st->cur.tag != V_NODE) continue;
    Value v = seen(s, st, st->cur, fr, at);
    st = &u->states[i];
    st->cur = v;
    state_base(u, st, v, fr);
  }
  return e;
}

void state_leave(Session *s, const Entered *e) {
  Unit *u = unit_of(s);
  for (size_t i = 0; e && i < e->count; i++) {
    State *st = &u->states[i];
    const State *old = &e->states[i];
    if (st->base == old->base) continue;
    if (st->cur.tag == V_NODE && val_eq(st->cur.u.v, st->base->v.u.v)) st->cur = old->cur;
    st->base = old->base;
  }
}

Value param_read(Session *s, Param *p, Span at) {
  if (!s->stage)
    return value_pool(s, p->overlay.tag ? p->overlay : (Value){.tag = V_PARAM, .u.p = p});
  State *st = state_unit(s, p, NULL);
  if (!st) fail_at(s, ERR_BUG, at, "a param reached code without being an argument");
  return seen(s, st, st->cur, s->frame, at);
}

Value state_read(Session *s, Inst *i, Field *f, Span at) {
  if (f->kind == FIELD_PARAM) {
    if (s->stage && !s->by_reference && f->v.tag == V_PARAM) return param_read(s, f->v.u.p, at);
    if (!s->stage && f->v.tag == V_PARAM && f->v.u.p->overlay.tag && !s->by_reference)
      return value_pool(s, f->v.u.p->overlay);
  }
  State *st = state_unit(s, i, f->name);
  if (st) return st->cur;
  /* `check`: another number may have been written */
  if (s->abstract && f->kind == FIELD_BUFFER && (v_is_number(f->v) || f->open))
    return (Value){.tag = V_UNKNOWN};
  return f->kind == FIELD_BUFFER ? value_pool(s, f->v) : f->v;
}

/* `let` and constructor fields: in code their tensors are inputs. */
Value state_field_value(Session *s, Inst *i, Field *f) {
  if (f->v.tag == V_FN && !f->v.u.fn->self && f->v.u.fn->model == i->model &&
      f->v.u.fn->decl->kind == N_LAMBDA) {
    const FnObj *o = f->v.u.fn; /* see unbind_self (model.c) */
    return v_fn_like(s, o, i, o->captures);
  }
  if (!s->stage) return f->v;
  State *st = state_unit(s, i, f->name);
  return st ? st->cur : f->v;
}

static Value cut_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (v[0].tag == V_NODE && !v[0].weak && dt_float((DType)op_type_of(s, v[0]).dtype))
    return op_run(s, OP_STOP, 1, v, NULL, 0, *(Span *)ud);
  return v[0];
}

/* The value without its tape, since a stored value is cut from its gradient. Instances stay. */
Value state_detach(Session *s, Value v) {
  stack_check();
  if (v.tag == V_TENSOR) return v.u.t->node ? v_tensor(s, tn_ref(v.u.t->t)) : v;
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  bool same = true;
  for (size_t i = 0; i < n; i++) {
    Value x = state_detach(s, items[i]);
    same &= x.tag == items[i].tag && (!v_counted(x) || x.u.o == items[i].u.o);
    items[i] = x;
  }
  return same ? v : value_like(s, v, items);
}

/* Fails at what a buffer cannot keep. */
static void want_kept(Session *s, const Field *f, Value v, Span at) {
  stack_check();
  if (v.tag == V_INST || v.tag == V_FN || v.tag == V_SEQ || v.tag == V_HANDLE || v.tag == V_MODULE)
    fail_help(s, ERR_STATE_TYPE, at, "a child stands in a `let`; the list of all can be a variable",
              "the buffer `%s` keeps values, not %s, which could hold the buffer", f->name,
              value_type_text(s, v));
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) want_kept(s, f, items[i], at);
}

/* Params become the tensors that they are now. */
static Value without_params(Session *s, Value v) {
  stack_check();
  if (v.tag == V_PARAM && !s->stage) return v_tensor(s, tn_ref(v_tensor_of(v)));
  if (!v_counted(v) || !v.u.o->params) return v;
  size_t n;
  Value *items = value_parts(s, v, &n);
  for (size_t i = 0; items && i < n; i++) items[i] = without_params(s, items[i]);
  return items ? value_like(s, v, items) : v;
}

Value state_kept(Session *s, Value v) {
  return state_detach(s, without_params(s, v));
}

Value state_fitted(Session *s, Inst *i, Field *f, Value v, Span at) {
  return state_part_fitted(s, i, f, 0, NULL, v, at);
}

Value state_part_fitted(Session *s, Inst *i, Field *f, size_t n, const StateStep *step, Value v,
                        Span at) {
  if (v.tag == V_UNKNOWN) return v;
  value_bound(s, v, at);
  want_kept(s, f, v, at);
  Frame fr = {.up = s->frame,
              .module = i->model->module,
              .self = i,
              .model = i->model,
              .base = s->local_count,
              .stage = s->frame ? s->frame->stage : NULL,
              .code = s->frame && s->frame->code,
              .test = s->frame && s->frame->test};
  s->frame = &fr; /* sizes in the type are names of the model */
  Subject *what = ARENA_ARRAY(&s->scratch, Subject, n + 1);
  what[0] = (Subject){.text = {"the buffer `", f->name, "`"}};
  Node *type = f->type;
  for (size_t k = 0; k < n && type; k++)
    type = type_of_part(s, type, step[k].field, step[k].key, at, &what[k], &what[k + 1]);
  if (type) v = type_match(s, type, v, at, &what[n]);
  local_pop(s, fr.base);
  s->frame = fr.up;
  return state_kept(s, v);
}

/* v as the new value of a place with value `old`, whose dtype and shape it must have; a number gets
 * them. */
static Value fit(Session *s, Value old, Value v, Span at, const char *name) {
  if (v.tag == V_UNKNOWN || old.tag == V_UNKNOWN) return v;
  if (v_is_number(old)) {
    if (v_is_number(v)) return v;
    if (v_is_tensor(v) && op_type_of(s, v).rank == 0 && old.tag != V_NODE && !s->stage) {
      const Tensor *t = op_tensor_of(s, v, at);
      return dt_float(t->dtype) ? v_float(tn_get_f64(t, 0)) : v_int(tn_get_i64(t, 0));
    }
    fail_at(s, ERR_STATE_TYPE, at, "`%s` holds a number, this is %s", name, value_type_text(s, v));
  }
  if (v_is_tensor(old)) {
    Type a = op_type_of(s, old);
    Value x = op_as_tensor(s, v, (DType)a.dtype, at);
    Type b = op_type_of(s, x);
    bool ok = a.dtype == b.dtype && a.rank == b.rank;
    for (int i = 0; ok && i < a.rank; i++) {
      DimOrder o = dim_compare(op_dims_of(s), a.dim[i], b.dim[i]);
      if (o == DIM_MAYBE && s->stage)
        gr_check(s->stage->g, CHECK_EQ, b.dim[i], a.dim[i],
                 fail_text(s, "`%s` keeps its shape", name));
      else
        ok = o == DIM_EQUAL;
    }
    if (!ok && a.dtype == b.dtype && b.rank == 0)
      return op_broadcast(s, x, a.rank, a.dim, at); /* fills the tensor */
    if (!ok)
      fail_at(s, ERR_STATE_TYPE, at, "`%s` is %s and stays so, this is %s", name,
              value_type_text(s, old), value_type_text(s, v));
    return x;
  }
  return v;
}

void param_put(Param *p, Tensor *t) {
  Tensor *old = p->t;
  p->t = t;
  p->version++;
  tn_unref(old);
}

void param_write(Session *s, Param *p, Value v, Span at) {
  const char *name = p->name ? p->name : "the tracked value";
  State *st = s->stage ? state_unit(s, p, NULL) : NULL;
  if (st ? st->stood_for : !s->stage && p->overlay.tag)
    fail_help(
        s, ERR_ASSIGN, at, "write it after the block",
        "inside `with_params` the param `%s` cannot be written: a leaf of the tree stands for it",
        name);
  if (!s->stage) {
    Value x = fit(s, (Value){.tag = V_PARAM, .u.p = p}, v, at, name);
    operands_hold(s, p);
    Tensor *t = op_tensor_of(s, x, at),
           *c = x.tag == V_PARAM ? tn_ref(t) : tn_contiguous(&s->mem, t);
    if (!c) mem_throw(&s->mem, MEM_ERR_NOMEM);
    param_put(p, c);
    return;
  }
  if (!st) fail_at(s, ERR_BUG, at, "a param reached code without being an argument");
  if (!stage_in_order(s->stage))
    fail_at(s, ERR_NOT_YET, at, "not yet: a write to the param `%s` inside a comprehension", name);
  Value both[2] = {fit(s, st->cur, v, at, name)};
  st = state_unit(s, p, NULL);
  both[1] = st->cur;
  Value c = op_run(s, OP_VERSION, 2, both, NULL, 0, at);
  st = state_unit(s, p, NULL);
  st->cur = c;
  st->written = true;
}

/* x with run-time numbers where `old`, of the same structure, has numbers: they are outputs. */
static Value as_numbers(Session *s, Value old, Value x, Span at) {
  stack_check();
  if (v_is_number(old) && (x.tag == V_INT || x.tag == V_FLOAT || x.tag == V_DIM)) {
    bool fl = old.tag == V_FLOAT || (old.tag == V_NODE && dt_float(op_type_of(s, old).dtype));
    x = op_as_tensor(s, x, fl ? DT_F64 : DT_I64, at);
    x.weak = true;
    return x;
  }
  size_t n;
  Value *items = value_alike(old, x) ? value_parts(s, x, &n) : NULL;
  for (size_t i = 0; items && i < n; i++)
    items[i] = as_numbers(s, value_items(old, &n)[i], items[i], at);
  return items ? value_like(s, x, items) : x;
}

/* The state of a field. For a made-up instance of `ckl ir` the first write creates it. */
static State *state_shown(Session *s, Inst *i, Field *f) {
  Unit *u = unit_of(s);
  State *st = state_unit(s, i, f->name);
  if (st || !u || !u->shows || s->abstract) return st;
  State made = {.key = i, .field = f->name, .cur = f->v, .entry = f->v, .first = f->v};
  VEC_PUSH(u->arena, u->states, u->state_count, u->state_cap, made);
  return &u->states[u->state_count - 1];
}

void state_write(Session *s, Inst *i, Field *f, Value v, Span at) {
  if (s->stage && f->open && in_code(s))
    fail_help(s, ERR_SCRIPT_ONLY, at, "a `proc` of the model writes it",
              "the buffer `%s` is written in script: what it is made of may change", f->name);
  bool made = f->kind == FIELD_PARAM && f->v.tag != V_PARAM; /* `check`: a made-up instance */
  State *st = state_shown(s, i, f);
  if (made && !st) {
    fit(s, f->v, v, at, f->name);
    return;
  }
  if (f->kind == FIELD_PARAM && !made) {
    param_write(s, f->v.u.p, v, at);
    return;
  }
  if (!s->stage && f->type) {
    value_set(&f->v, state_fitted(s, i, f, v, at));
    return;
  }
  if (!s->stage) {
    value_bound(s, v, at);
    value_set(&f->v, state_kept(s, fit(s, f->v, v, at, f->name)));
    return;
  }
  if (!st) {
    if (s->abstract || (unit_of(s) && unit_of(s)->check)) return;
    fail_at(s, ERR_BUG, at, "a buffer reached code without being an argument");
  }
  if (!stage_in_order(s->stage))
    fail_at(s, ERR_NOT_YET, at, "not yet: a write to `%s` inside a comprehension", f->name);
  Value x = f->type ? state_fitted(s, i, f, v, at) : fit(s, st->cur, v, at, f->name);
  x = as_numbers(s, st->cur, x, at);
  x = tree_map(s, 1, &x, cut_leaf, &at, at);
  st = state_unit(s, i, f->name);
  st->cur = x;
  st->written = true;
}
