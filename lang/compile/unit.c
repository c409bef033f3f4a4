/* The unit of a staged call: its leaves as graph inputs, its sizes as symbols.
 *
 * In: the leaves of a call (signature.c). Out: an input of the unit's graph for each, and the
 * arguments rebuilt with these inputs in place of tensors, params and numbers. Bracket dims and int
 * arguments are symbols; one that must be a constant is pinned, and staging starts over (rules 26,
 * 27, 50). Values of the file that code reads become leaves at their first use.
 */

#include "lang/compile/compile_impl.h"
#include "lang/compile/stage.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"

static bool pinned(const Unit *u, size_t leaf, int axis) {
  for (size_t i = 0; i < u->pin_count; i++)
    if (u->pins[i].leaf == leaf && u->pins[i].axis == axis) return true;
  return false;
}

/* `name`: dims of one name are one symbol. A number or axis without a name is shown as `label`. */
static Dim bind_symbol(Unit *u, size_t leaf, int axis, Name name, Name label, Span at,
                       int64_t value) {
  if (name)
    for (size_t i = 0; i < u->bind_count; i++)
      if (u->binds[i].name == name) {
        SymBind again = u->binds[i]; /* sizes are compared when a call is bound */
        again.leaf = leaf;
        again.axis = axis;
        again.name = NULL;
        VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, again);
        return again.dim;
      }
  bool pin = pinned(u, leaf, axis);
  if (pin && !name) return dim_const(u->g->dims, value);
  SymBind b = {.leaf = leaf, .axis = axis, .name = name};
  b.dim = dim_symbol(u->g->dims, name ? name : label, at, &b.sym);
  if (pin) b.dim = dim_const(u->g->dims, value); /* of all that have the name */
  VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, b);
  return b.dim;
}

static Val unit_input(Unit *u, const Type *t, int64_t source) {
  Val v = gr_input(u->g, t);
  VEC_PUSH(u->arena, u->source, u->source_count, u->source_cap, source);
  return v;
}

/* Makes the staged value of a new leaf. */
static Value unit_leaf(Unit *u, size_t i) {
  Leaf *l = &u->flat.leaves[i];
  if (l->kind == LEAF_INT) {
    Dim d = bind_symbol(u, i, -1, NULL, l->label, (Span){0}, l->v.u.i);
    int64_t n;
    if (dim_is_const(u->g->dims, d, &n)) return v_int(n);
    return (Value){.tag = V_DIM, .u.d = d};
  }
  Type t = {.kind = TK_TENSOR, .dtype = DT_F64};
  if (l->kind != LEAF_FLOAT) {
    const Tensor *c = leaf_tensor_of(l);
    t.dtype = (uint8_t)c->dtype;
    t.dev = (uint8_t)c->store->dev;
    t.rank = (uint8_t)c->rank;
    for (int k = 0; k < c->rank; k++) {
      Name name, label = NULL;
      int nth;
      if (!leaf_free_axis(l, c->rank, k, &name, &nth)) {
        t.dim[k] = dim_const(u->g->dims, c->dim[k]);
        continue;
      }
      if (name && nth >= 0) name = flat_name_numbered(u->s, name, (size_t)nth);
      if (!name && l->label) label = flat_name_numbered(u->s, l->label, (size_t)k);
      t.dim[k] = bind_symbol(u, i, k, name, label, l->type->span, c->dim[k]);
    }
  }
  Value v = {.tag = V_NODE, .aux = 1, .weak = l->kind == LEAF_FLOAT};
  v.u.v = unit_input(u, &t, (int64_t)i);
  return v;
}

void unit_stage_leaves(Unit *u) {
  while (u->staged_count < u->flat.count) {
    Value v = unit_leaf(u, u->staged_count);
    VEC_PUSH(u->arena, u->staged, u->staged_count, u->staged_cap, v);
  }
}

const Type *unit_type(Unit *u, Value v) {
  size_t i = flat_leaf(&u->flat, v);
  return i < u->staged_count ? gr_type(u->g, u->staged[i].u.v) : NULL;
}

Type unit_sized(Unit *u, Type t, bool first) {
  DimTab *dims = u->g->dims;
  size_t n = dim_symbol_count(dims);
  int64_t *env = ARENA_ARRAY(u->arena, int64_t, n + 1), d;
  bool *set = ARENA_ARRAY(u->arena, bool, n + 1);
  for (size_t i = 0; i < u->bind_count && !u->check; i++) {
    const SymBind *b = &u->binds[i];
    if (!first || !set[b->sym]) env[b->sym] = leaf_size(&u->flat.leaves[b->leaf], b->axis);
    set[b->sym] = true;
  }
  for (int k = 0; k < t.rank; k++)
    if (dim_eval(dims, t.dim[k], env, set, &d)) t.dim[k] = dim_const(dims, d);
  return t;
}

static void seen_inst(Session *s, LeafCursor *c, Inst *inst) {
  Unit *u = c->u;
  if (flat_inst(&u->flat, inst) < u->met) return;
  size_t index = u->met++;
  for (size_t i = 0; i < inst->count; i++) {
    Field *d = &inst->fields[i];
    if (d->kind != FIELD_BUFFER && d->v.tag == V_INT) continue;
    Value v = unit_rebuild(s, c, d->v);
    if (d->kind == FIELD_BUFFER || d->kind == FIELD_LET || d->kind == FIELD_ARG) {
      State st = {.key = inst, .field = d->name, .index = index, .cur = v, .entry = v};
      VEC_PUSH(u->arena, u->states, u->state_count, u->state_cap, st);
    }
  }
}

Value unit_rebuild(Session *s, LeafCursor *c, Value v) {
  stack_check();
  Unit *u = c->u;
  switch ((ValueTag)v.tag) {
  case V_TENSOR:
  case V_PARAM: {
    size_t i = flat_leaf(&u->flat, v);
    if (i == c->next) {
      c->next++;
      if (v.tag == V_PARAM) {
        State st = {.key = v.u.p, .index = i, .cur = u->staged[i], .entry = u->staged[i]};
        st.stood_for = v.u.p->overlay.tag != 0;
        state_base(u, &st, st.cur, NULL);
        VEC_PUSH(u->arena, u->states, u->state_count, u->state_cap, st);
      }
    }
    return v.tag == V_PARAM ? v : u->staged[i];
  }
  case V_FLOAT:
  case V_INT: return u->staged[c->next++];
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n;
    Value *items = value_parts(s, v, &n);
    for (size_t i = 0; i < n; i++) items[i] = unit_rebuild(s, c, items[i]);
    return value_like(s, v, items);
  }
  case V_RANGE: {
    Value lo = unit_rebuild(s, c, v.u.range->lo), hi = unit_rebuild(s, c, v.u.range->hi);
    return v_range(s, lo, hi);
  }
  case V_FN: {
    FnObj *f = v.u.fn;
    if (f->self) seen_inst(s, c, f->self);
    Local *cap = ARENA_ARRAY(&s->scratch, Local, f->capture_count + 1);
    for (size_t i = 0; i < f->capture_count; i++) {
      cap[i] = f->captures[i];
      if (!flat_fixed(f, cap[i].v)) cap[i].v = unit_rebuild(s, c, cap[i].v);
    }
    return v_fn_like(s, f, f->self, cap);
  }
  case V_INST: seen_inst(s, c, v.u.inst); return v;
  default: return v;
  }
}

typedef struct FindSym {
  Unit *u;
  bool found;
} FindSym;

static void find_symbol(void *ud, Sym sym) {
  FindSym *f = ud;
  if (f->found) return;
  for (size_t i = 0; i < f->u->bind_count; i++)
    if (f->u->binds[i].sym == sym) {
      f->u->wanted.leaf = f->u->binds[i].leaf;
      f->u->wanted.axis = f->u->binds[i].axis;
      f->found = true;
      return;
    }
}

/* Pins the first symbol of d, which starts staging over; false if none is of a leaf. In `check`,
 * where it has no value, it is `value`, or, for one below 0, one that is tried. */
static bool pin_symbol(Session *s, Dim d, int64_t value) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  FindSym f = {u, false};
  if (u) dim_symbols(u->g->dims, d, find_symbol, &f);
  if (!f.found) return false;
  u->wanted.value = value;
  u->restart = true;
  mem_throw(&s->mem, MEM_ERR_RESTART);
}

void unit_need_const(Session *s, Dim d, Span at, const char *why, int64_t *out) {
  if (dim_is_const(op_dims_of(s), d, out)) return;
  bool turn = gr_sized_by_turn(s->stage->g->dims, d);
  if (turn || !pin_symbol(s, d, -1)) fail_at(s, ERR_NOT_CONST, at, "%s must be a constant", why);
}

void unit_want_const(Session *s, Dim d, int64_t only) {
  enum { ENOUGH = 8 }; /* pins are few, and those that must be come later */
  const Unit *u = s->stage ? s->stage->unit : NULL;
  int64_t size = 0;
  if (!u || u->pin_count >= ENOUGH) return;
  if (!u->check || dim_solve(u->g->dims, d, only, &size)) pin_symbol(s, d, size);
}

static void find_int(void *ud, Sym sym) {
  FindSym *f = ud;
  for (size_t i = 0; i < f->u->bind_count && !f->found; i++)
    f->found = f->u->binds[i].sym == sym && f->u->binds[i].axis < 0;
}

bool unit_mentions_int(const Session *s, Dim d) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  FindSym f = {u, false};
  if (u) dim_symbols(u->g->dims, d, find_int, &f);
  return f.found;
}

Value unit_global_in_code(Session *s, Global *g, Span at) {
  (void)at;
  Unit *u = s->stage->unit;
  Value v = g->v;
  if (v.tag == V_INT || v.tag == V_BOOL || v.tag == V_STR || v.tag == V_NONE ||
      (v.tag == V_FLOAT && g->is_const)) {
    /* constants of the file are constants; other ints and texts are part of the signature */
    if (g->is_const || u->check) return v;
  }
  if (u->check) return v;
  size_t k;
  for (k = 0; k < u->hidden_count; k++)
    if (u->hidden[k] == g) break;
  if (k == u->hidden_count) VEC_PUSH(u->arena, u->hidden, u->hidden_count, u->hidden_cap, g);
  if (v.tag == V_INT || v.tag == V_BOOL || v.tag == V_STR || v.tag == V_NONE || v.tag == V_FN ||
      v.tag == V_MODULE || v.tag == V_BUILTIN) {
    if (v.tag != V_FN || (!v.u.fn->capture_count && !v.u.fn->self)) return v;
  }
  for (size_t i = 0; i < u->hidden_value_count; i++)
    if (u->hidden_values[i].g == g) return u->hidden_values[i].v;
  Stage *now = s->stage; /* leaves belong to the unit's own graph */
  s->stage = &u->root;
  LeafCursor c = {u, u->flat.count};
  u->flat.label = g->name;
  flat_value(&u->flat, v, NULL, NULL);
  unit_stage_leaves(u);
  Value r = unit_rebuild(s, &c, v);
  s->stage = now;
  HiddenValue hv = {g, r};
  VEC_PUSH(u->arena, u->hidden_values, u->hidden_value_count, u->hidden_value_cap, hv);
  return r;
}
