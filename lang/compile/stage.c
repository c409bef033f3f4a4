/* Stages: graphs under construction, one inside the other, and their nodes made under no_grad.
 *
 * In: values of the code that is evaluated. Out: the same as values of the present stage's graph,
 * which captures values of outer ones. A stage keeps the intervals of its nodes that were made
 * under no_grad, so that values that leave them are cut from gradients.
 */

#include "graph/build.h"
#include "lang/compile/compile_impl.h"
#include "lang/compile/stage.h"
#include "lang/eval/left.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/path.h"

void stage_push(Session *s, Stage *st, Graph *g) {
  *st = (Stage){.g = g,
                .up = s->stage,
                .unit = s->stage ? s->stage->unit : NULL,
                .level = s->stage ? s->stage->level + 1 : 1,
                .open = s->stage ? s->stage->open : NULL,
                .token = VAL_NONE};
  s->stage = st;
  if (s->modes.no_grad) stage_quiet(s, true);
}

void stage_pop(Session *s) {
  s->stage = s->stage->up;
}

/* For a place in the library, the call that leads there from code of the program. The outermost
 * call does not count: it is another one at each run. */
static Span caller(const Session *s) {
  for (const Frame *f = s->frame; f && f->code && f->up && f->up->code; f = f->up) {
    const Module *here = f->module, *up = f->up->module;
    if (here->path || here == s->main) break;
    if (up->path || up == s->main) return f->call;
  }
  return (Span){0};
}

void stage_at(Session *s, Span at) {
  Prov *p = &s->stage->g->at;
  p->span = at;
  p->caller = caller(s);
  p->path = path_stage(s);
  if (s->modes.opaque)
    p->path = names_of(s->names, fail_text(s, "%s%s", p->path ? p->path : "", s->modes.opaque));
  p->anomaly = s->modes.anomaly;
}

Val stage_capture(Stage *st, Val outer) {
  for (size_t i = 0; i < st->capture_count; i++)
    if (val_eq(st->outer[i], outer)) return st->inner[i];
  Val in = gr_input(st->g, gr_type(st->up->g, outer));
  Arena *a = st->g->arena;
  size_t n = st->capture_count, cap = st->capture_cap;
  VEC_PUSH(a, st->outer, n, st->capture_cap, outer);
  VEC_PUSH(a, st->inner, st->capture_count, cap, in);
  return in;
}

static Val lift_to(Stage *st, Value v) {
  if (v.aux >= st->level) return v.u.v;
  return stage_capture(st, lift_to(st->up, v));
}

bool stage_in_order(const Stage *st) {
  while (st && st->side) st = st->up;
  return st && st->level == 1;
}

Val stage_token(Session *s, Span at) {
  Stage *st = s->stage;
  Unit *u = st->unit;
  GErr e = {.code = ERR_BUG, .operand = -1};
  if (!val_none(u->token)) return u->token;
  stage_at(s, at);
  u->token = st->side && !val_none(st->token)
                 ? stage_capture(st, st->token)
                 : gr_op(st->g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  if (val_none(u->token)) fail_gerr(s, at, &e);
  return u->token;
}

Value stage_lift(Session *s, Value v, Span at) {
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, at);
  if (v.tag == V_TENSOR) {
    size_t i = s->stage->unit ? flat_leaf(&s->stage->unit->flat, v) : SIZE_MAX;
    if (i == SIZE_MAX)
      fail_at(s, ERR_BUG, at, "a tensor of script reached code without being an argument");
    v = s->stage->unit->staged[i];
  }
  if (v.tag != V_NODE) v = op_as_tensor(s, v, DT_COUNT, at);
  Value r = {.tag = V_NODE, .weak = v.weak, .aux = s->stage->level};
  r.u.v = lift_to(s->stage, v);
  return r;
}

/* ---- no_grad in code */

void stage_quiet(Session *s, bool on) {
  Stage *st = s->stage;
  uint32_t now = (uint32_t)st->g->node_count;
  struct Quiet *last = st->quiet_count ? &st->quiet[st->quiet_count - 1] : NULL,
               q = {now, UINT32_MAX};
  bool open = last && last->hi == UINT32_MAX;
  if (on && st->unit) st->unit->quiet = true;
  if (on && !open) VEC_PUSH(st->g->arena, st->quiet, st->quiet_count, st->quiet_cap, q);
  if (!on && open) last->hi = now;
}

/* Under no_grad a choice or a loop may give on a value that was made outside, beside one that was
 * made inside. What it gives then has a second form, in which the latter is cut. Inside, where a
 * gradient may be taken, it is the first. */
static const struct Apart *apart_of(const Stage *st, Val v) {
  const Unit *u = st->unit;
  for (size_t i = u ? u->apart_count : 0; i-- > 0;)
    if (u->apart[i].g == st->g && (val_eq(u->apart[i].v, v) || val_eq(u->apart[i].cut, v)))
      return &u->apart[i];
  return NULL;
}

void stage_apart(Session *s, Val v, Val cut) {
  Unit *u = s->stage->unit;
  struct Apart a = {s->stage->g, v, cut};
  VEC_PUSH(u->arena, u->apart, u->apart_count, u->apart_cap, a);
}

typedef enum Made { MADE_LEAF, MADE_QUIET, MADE_LOUD } Made;

/* Whether v was made under no_grad; LEAF: nothing made it. *cut: its second form, if it has one. */
static Made made(const Stage *st, Val v, Value *cut) {
  for (;;) {
    const GNode *n = gr_node(st->g, v);
    bool given = n->op == OP_INPUT || n->op == OP_BRANCH || n->op == OP_LOOP;
    const struct Apart *a = given ? apart_of(st, v) : NULL;
    if (given && state_is_merged(st, v)) return MADE_LEAF;
    if (a && val_eq(a->cut, v)) return MADE_LOUD;
    if (a) *cut = (Value){.tag = V_NODE, .aux = st->level, .u.v = a->cut};
    if (a) return MADE_QUIET;
    if (n->op == OP_ALIAS) {
      v = gr_operand(st->g, v.node, 0);
    } else if (n->op == OP_INPUT && st->up) {
      size_t i = 0;
      while (i < st->capture_count && !val_eq(st->inner[i], v)) i++;
      if (i == st->capture_count) return MADE_LEAF;
      v = st->outer[i];
      st = st->up;
    } else if (n->op == OP_INPUT || n->op == OP_STOP || n->op == OP_VERSION) {
      return MADE_LEAF;
    } else {
      break;
    }
  }
  for (size_t i = st->quiet_count; i-- > 0 && st->quiet[i].hi > v.node;)
    if (v.node >= st->quiet[i].lo) return MADE_QUIET;
  return MADE_LOUD;
}

static bool can_track(Session *s, Value v) {
  return v.tag == V_NODE && !v.weak && dt_float((DType)op_type_of(s, v).dtype);
}

Value stage_operand(Session *s, Value v, Span at) {
  v = stage_lift(s, v, at);
  if (s->modes.no_grad || s->abstract || !s->stage->unit || !s->stage->unit->quiet) return v;
  Value cut = v_unit();
  if (!can_track(s, v) || made(s->stage, v.u.v, &cut) != MADE_QUIET) return v;
  if (cut.tag == V_NODE) return stage_lift(s, cut, at);
  GErr e = {.code = ERR_BUG};
  stage_at(s, at);
  v.u.v = gr_op(s->stage->g, OP_STOP, &v.u.v, 1, NULL, 0, NULL, 0, &e);
  return v;
}

Val stage_outside(Session *s, Val x, bool *other, Span at) {
  Value cut = v_unit(), v = {.tag = V_NODE, .aux = s->stage->level, .u.v = x};
  if (made(s->stage, x, &cut) != MADE_QUIET) {
    *other = true;
    return x;
  }
  *other |= cut.tag == V_NODE;
  return cut.tag == V_NODE ? stage_lift(s, cut, at).u.v
                           : op_run(s, OP_STOP, 1, &v, NULL, 0, at).u.v;
}

Value stage_leave_quiet(Session *s, Value v, bool all, Span at) {
  stack_check();
  if (can_track(s, v)) {
    Value x = stage_lift(s, v, at), cut = v_unit();
    Made m = made(s->stage, x.u.v, &cut);
    if (m == MADE_QUIET && cut.tag == V_NODE) return cut;
    return m == MADE_LOUD || (m == MADE_LEAF && !all) ? v : op_run(s, OP_STOP, 1, &x, NULL, 0, at);
  }
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  bool same = true; /* then it stays the value that it is */
  for (size_t i = 0; i < n; i++) {
    Value x = stage_leave_quiet(s, items[i], all, at);
    same &= left_same(x, items[i]);
    items[i] = x;
  }
  return same ? v : value_like(s, v, items);
}
