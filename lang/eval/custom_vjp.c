/* Calls of functions that have a backward of their own (rule 79).
 *
 * In: the function and its arguments, in code. Out: the result of a `custom` node, which has two
 * regions: forward, and backward of operands, results and cotangents. Both take the same operands,
 * one for each argument, also where several are one value: `backward` gives a gradient for each. */
#include "graph/build.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/type.h"
#include "lang/value/fail.h"

typedef struct Custom {
  Session *s;
  FnObj *f;
  const Args *a;
  size_t *of_arg; /* per argument: its operand, or SIZE_MAX */
  Val *operands;
  size_t count, cap; /* in the enclosing stage */
} Custom;

static void seed_captures(Session *s, Stage *st, const Custom *c) {
  for (size_t i = 0; i < c->count; i++) {
    Val in = gr_input(st->g, gr_type(st->up->g, c->operands[i]));
    size_t k = st->capture_count, cap = st->capture_cap;
    VEC_PUSH(st->g->arena, st->outer, k, st->capture_cap, c->operands[i]);
    VEC_PUSH(st->g->arena, st->inner, st->capture_count, cap, in);
  }
  (void)s;
}

static void learn_captures(Custom *c, const Stage *st) {
  for (size_t i = 0; i < st->capture_count; i++) {
    bool known = false;
    for (size_t k = 0; k < c->count; k++) known |= val_eq(c->operands[k], st->outer[i]);
    if (!known) VEC_PUSH(&c->s->scratch, c->operands, c->count, c->cap, st->outer[i]);
  }
}

static size_t count_tensors(Value v) {
  stack_check();
  if (v.tag == V_NODE) return 1;
  size_t n, all = 0;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) all += count_tensors(items[i]);
  return all;
}

static void give_outputs(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_NODE) gr_output(s->stage->g, stage_lift(s, v, at).u.v);
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) give_outputs(s, items[i], at);
}

/* A copy of v with its tensors replaced, in order, by `vals`. */
static Value refill(Session *s, Value v, const Val *vals, size_t *k) {
  stack_check();
  if (v.tag == V_NODE) {
    Value r = {.tag = V_NODE, .weak = v.weak, .aux = s->stage->level};
    r.u.v = vals[(*k)++];
    return r;
  }
  size_t n;
  Value *items = value_parts(s, v, &n);
  if (!items) return v;
  for (size_t i = 0; i < n; i++) items[i] = refill(s, items[i], vals, k);
  return value_like(s, v, items);
}

/* The arguments in region st: inputs of it. */
static Args args_inside(const Custom *c, const Stage *st) {
  Args a = *c->a;
  a.v = ARENA_ARRAY(&c->s->scratch, Value, a.count + 1);
  for (size_t i = 0; i < a.count; i++) {
    a.v[i] = c->a->v[i];
    if (c->of_arg[i] == SIZE_MAX) continue;
    a.v[i].u.v = st->inner[c->of_arg[i]];
    a.v[i].aux = st->level;
  }
  return a;
}

/* The forward region; returns its result (values of the closed stage). */
static Value custom_forward(Custom *c, Stage *st) {
  Session *s = c->s;
  region_open(s, st, c->f->decl->fn->name.name);
  st->apart = true;
  seed_captures(s, st, c);
  Args a = args_inside(c, st);
  Value r = call_inline(s, c->f, &a);
  if (v_is_number(r) && r.tag != V_NODE) r = op_as_tensor(s, r, DT_COUNT, c->a->call);
  give_outputs(s, r, c->a->call);
  stage_pop(s);
  return r;
}

/* The backward region. Inputs: operands, results, cotangents. Outputs: a gradient for each float
 * argument without a default. */
static void custom_backward(Custom *c, Stage *st, Value result, const Graph *fwd,
                            const Val *arg_vals, const size_t *arg_pos, size_t narg, int64_t *wrt,
                            size_t *nwrt) {
  Session *s = c->s;
  const Fn *d = c->f->decl->fn;
  region_open(s, st, NULL);
  Graph *g = st->g;
  seed_captures(s, st, c);
  size_t no = fwd->output_count, k = 0;
  Val *outs = ARENA_ARRAY(&s->scratch, Val, no + 1), *gs = ARENA_ARRAY(&s->scratch, Val, no + 1);
  for (size_t i = 0; i < no; i++) outs[i] = gr_input(g, gr_type(fwd, fwd->outputs[i]));
  for (size_t i = 0; i < no; i++) gs[i] = gr_input(g, gr_type(fwd, fwd->outputs[i]));
  Value out = refill(s, result, outs, &k);
  k = 0;
  Value gv = refill(s, result, gs, &k);
  Args in = args_inside(c, st);
  Value r = call_backward_body(s, c->f, &in, out, gv);
  /* one gradient per argument that is a float tensor and has no default */
  size_t want = 0, given = r.tag == V_TUPLE ? r.u.list->count : 1;
  for (uint32_t i = 0; i < d->params.count && i < narg; i++) want += !val_none(arg_vals[i]);
  if (want != given && !(want == 1 && r.tag != V_TUPLE))
    fail_at(s, ERR_BACKWARD, d->back_body->span,
            "`backward` of `%s` gives %zu gradient%s, its arguments need %zu", call_fn_name(c->f),
            given, given == 1 ? "" : "s", want);
  *nwrt = 0;
  size_t q = 0;
  for (uint32_t i = 0; i < d->params.count && i < narg; i++) {
    if (val_none(arg_vals[i])) continue;
    Value v = r.tag == V_TUPLE && want == given && !(want == 1 && r.u.list->count != 1)
                  ? r.u.list->items[q]
                  : r;
    q++;
    size_t pos = arg_pos[i];
    if (v.tag == V_NONE) continue; /* zero */
    Type t = *gr_type(s->stage->up->g, arg_vals[i]);
    bool number = v_is_number(v);
    v = op_as_tensor(s, v, (DType)t.dtype, d->back_body->span);
    Type h = op_type_of(s, v);
    bool ok = h.dtype == t.dtype && h.rank == t.rank;
    for (int a = 0; ok && a < t.rank; a++) {
      DimOrder o = dim_compare(op_dims_of(s), h.dim[a], t.dim[a]);
      if (o == DIM_MAYBE)
        gr_check(s->stage->g, CHECK_EQ, h.dim[a], t.dim[a],
                 "a gradient of `backward` has another shape than its argument");
      else
        ok = o == DIM_EQUAL;
    }
    if (!ok && number)
      v = op_broadcast(s, v, t.rank, t.dim, d->back_body->span);
    else if (!ok) {
      Buf b;
      buf_init_arena(&b, &s->scratch);
      type_print(&b, op_dims_of(s), &t);
      fail_at(s, ERR_BACKWARD, d->back_body->span, "the gradient for `%s` must be %s, this is %s",
              d->params.items[i]->param.name.name, b.s, value_type_text(s, v));
    }
    gr_output(g, stage_lift(s, v, d->back_body->span).u.v);
    wrt[(*nwrt)++] = (int64_t)pos;
  }
  stage_pop(s);
}

/* Whether a gradient could go to a part of v: a float that is neither constant nor stopped. */
static bool has_differentiable(Session *s, Value v) {
  stack_check();
  if (v.tag == V_PARAM) return true;
  if (v.tag == V_NODE && !v.weak && dt_float((DType)op_type_of(s, v).dtype)) {
    const Stage *st = s->stage;
    while (st->up && st->level > v.aux) st = st->up;
    OpCode op = (OpCode)gr_node(st->g, v.u.v)->op;
    return op != OP_STOP && op != OP_CONST;
  }
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++)
    if (has_differentiable(s, items[i])) return true;
  return false;
}

Value eval_custom_call(Session *s, FnObj *f, const Args *a) {
  const Fn *d = f->decl->fn;
  Custom c = {.s = s, .f = f, .a = a};
  for (size_t i = 0; i < a->count; i++) /* `check`, with an unknown argument */
    if (a->v[i].tag == V_UNKNOWN) return a->v[i];
  Val *arg_vals = ARENA_ARRAY(&s->scratch, Val, d->params.count + 1);
  for (uint32_t i = 0; i < d->params.count; i++) arg_vals[i] = VAL_NONE;
  size_t *arg_pos = ARENA_ARRAY(&s->scratch, size_t, d->params.count + 1);
  Args lifted = *a;
  lifted.v = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  c.of_arg = ARENA_ARRAY(&s->scratch, size_t, a->count + 1);
  uint32_t positional = 0;
  for (size_t i = 0; i < a->count; i++) {
    Value v = a->v[i];
    if (v.tag == V_PARAM) v = param_read(s, v.u.p, a->call);
    if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, a->call);
    uint32_t p;
    c.of_arg[i] = SIZE_MAX;
    if (a->names[i]) {
      for (p = 0; p < d->params.count; p++)
        if (d->params.items[p]->param.name.name == a->names[i]) break;
    } else {
      while (positional < d->params.count && d->params.items[positional]->param.init) positional++;
      p = positional++;
    }
    Node *type = p < d->params.count ? d->params.items[p]->param.type : NULL;
    DType dtype;
    if (v_is_number(v) && type && type_wants_tensor(s, type, &dtype))
      v = op_as_tensor(s, v, dtype, a->call);
    if (v.tag == V_NODE) {
      v = stage_operand(s, v, a->call);
      size_t at_operand = c.of_arg[i] = c.count;
      VEC_PUSH(&s->scratch, c.operands, c.count, c.cap, v.u.v);
      if (p < d->params.count && !d->params.items[p]->param.init && !v.weak &&
          dt_float((DType)op_type_of(s, v).dtype)) {
        arg_vals[p] = v.u.v;
        arg_pos[p] = at_operand;
      }
    }
    if (v.tag != V_NODE && p < d->params.count && !d->params.items[p]->param.init &&
        has_differentiable(s, v))
      fail_help(s, ERR_BACKWARD, a->spans[i], "pass its parts by themselves, or `stop(..)` of it",
                "`backward` of `%s` gives no gradient for `%s`, which is %s: only for floats",
                call_fn_name(f), d->params.items[p]->param.name.name, value_type_text(s, v));
    lifted.v[i] = v;
  }
  c.a = &lifted;
  /* Both regions get the same operands: rounds repeat until they capture no further value. */
  Stage fw, bw;
  int64_t *wrt = ARENA_ARRAY(&s->scratch, int64_t, d->params.count + 1);
  size_t nwrt;
  Value r;
  DrawMark first = random_mark(s); /* every round has the same random draws */
  for (int round = 0; round < 8; round++) {
    size_t before = c.count;
    if (round) random_back(s, &first);
    r = custom_forward(&c, &fw);
    custom_backward(&c, &bw, r, fw.g, arg_vals, arg_pos, d->params.count, wrt, &nwrt);
    learn_captures(&c, &fw);
    learn_captures(&c, &bw);
    if (c.count == before) break;
  }
  Graph *regions[2] = {fw.g, bw.g};
  Attr at = attr_ints(AT_WRT, (int)nwrt, wrt);
  GErr e = {.code = ERR_BUG, .operand = -1};
  call_enter_values(s, c.count, c.operands, a->call);
  Val v = gr_op(s->stage->g, OP_CUSTOM, c.operands, (int)c.count, &at, 1, regions, 2, &e);
  if (val_none(v)) fail_gerr(s, a->call, &e);
  size_t n = count_tensors(r), k = 0;
  Val *outs = ARENA_ARRAY(&s->scratch, Val, n + 1);
  for (size_t i = 0; i < n; i++) outs[i] = (Val){v.node, (uint32_t)i};
  return refill(s, r, outs, &k);
}
