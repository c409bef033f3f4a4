/* `if` on data in code, and exits that depend on data (rules 40, 43).
 *
 * In: a bool of code, and what to do if it holds or not. Out: a `branch` node. Each side is staged
 * as a region. What a side leaves behind besides its value: variables that it assigned, params and
 * buffers that it wrote, effects, and exits; where the sides differ, they are results of the node.
 * A static value that is the same on both sides stays static.
 *
 * An exit (break, continue, return) on one side becomes a bool, true on that side, in the frame or
 * the loop that it leaves. What follows, block by block up to there, is staged as the other side of
 * a choice on that bool. The value of a side that was left is never read: it is filled up with
 * zeros. Bits are those of script: the side taken does what it does there, and the gradient of the
 * node goes on with the sums of later uses (autograd/branch.c).
 *
 * Invariant: after sides_stage no value of a side is reachable from the session.
 */
#include "lang/eval/sides.h"

#include <string.h>

#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/left.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/value/fail.h"

/* ---- merging the values of two sides */

typedef struct MergedLeaf {
  bool weak;
  int same;               /* 0: result `number`; 1: the condition itself; 2: its opposite */
  uint32_t number, apart; /* apart: of its form outside of no_grad (stage.h); 0: none */
} MergedLeaf;

typedef struct Merge {
  Session *s;
  const SideChoice *c;
  Stage *side[2];
  bool dead[2]; /* an exit left it: it has no value */
  bool gone[2]; /* a return left it: nothing reads its variables */
  Value cond;
  const char *what; /* that is merged, for messages */
  MergedLeaf *leaves;
  size_t count, cap, next; /* next: of the second walk */
  bool second;
  bool apart; /* under no_grad, of what may leave it */
  uint32_t outputs;
  Val node;    /* of the second walk */
  Value other; /* the opposite of the condition; unit: not made yet */
} Merge;

static bool numeric(Value v) {
  return v_is_tensor(v) || v_is_number(v) || v.tag == V_BOOL || v.tag == V_NODE;
}

static const char *type_text(Merge *m, int k, Value v) {
  Stage *now = m->s->stage;
  m->s->stage = m->side[k];
  const char *t = value_type_text(m->s, v);
  m->s->stage = now;
  return t;
}

static _Noreturn void differ(Merge *m, Value a, Value b) {
  Session *s = m->s;
  bool texts = a.tag == V_STR && b.tag == V_STR;
  const char *one = texts ? fail_text(s, "\"%s\"", a.u.str->s) : type_text(m, 0, a);
  const char *two = texts ? fail_text(s, "\"%s\"", b.u.str->s) : type_text(m, 1, b);
  Diag *d = fail_report(s, ERR_BRANCH, m->c->at,
                        "%s is %s on one side of this choice, %s on the other", m->what, one, two);
  if (m->c->span[0].file) dg_label(&s->diags, d, m->c->span[0], "one side");
  if (m->c->span[1].file) dg_label(&s->diags, d, m->c->span[1], "the other side");
  dg_help(
      &s->diags, d,
      texts ? "data decides which side runs, and texts are known when code is compiled: a number "
              "can say the same"
      : a.tag == V_LIST && b.tag == V_LIST
          ? "data decides which side runs, or whether a `break` or `return` came before, and so "
            "the length: write into a tensor, as `xs[n] = e; n += 1`; in a loop push before "
            "the exit"
          : "data decides which side runs, so both must give values of one type and shape");
  fail_raise(s);
}

/* A tensor or number of side k as a value of its graph. */
static Val lift(Merge *m, int k, Value v, DType like) {
  Session *s = m->s;
  Stage *now = s->stage;
  s->stage = m->side[k];
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, m->c->at);
  if (v.tag != V_NODE || (v.weak && like != DT_COUNT && op_type_of(s, v).dtype != like)) {
    bool to_float = v.tag == V_NODE;
    v = to_float ? op_cast(s, v, like, m->c->at) : op_as_tensor(s, v, like, m->c->at);
  }
  Val r = stage_lift(s, v, m->c->at).u.v;
  s->stage = now;
  return r;
}

static void output(Merge *m, Val a, Val b) {
  gr_output(m->side[0]->g, a);
  gr_output(m->side[1]->g, b);
  m->outputs++;
}

/* Outputs in the form that they have outside of no_grad, if that is no cut value. `dead`: the side
 * without a value, or -1. */
static uint32_t output_apart(Merge *m, Val a, Val b, int dead) {
  Session *s = m->s;
  Val x[2] = {a, b};
  bool other = false;
  if (!m->apart || !dt_float((DType)gr_type(m->side[0]->g, a)->dtype)) return 0;
  Stage *now = s->stage;
  for (int k = 0; k < 2; k++) {
    s->stage = m->side[k];
    if (k != dead) x[k] = stage_outside(s, x[k], &other, m->c->at);
  }
  s->stage = now;
  if (!other) return 0;
  output(m, x[0], x[1]);
  return m->outputs;
}

static bool is_bool(Value v, bool holds) {
  return v.tag == V_BOOL && (v.u.i != 0) == holds;
}

/* The dtype of a tensor, number or bool of side k. */
static DType dtype_of(Merge *m, int k, Value v) {
  if (v.tag == V_INT || v.tag == V_DIM) return DT_I64;
  if (v.tag == V_FLOAT) return DT_F64;
  if (v.tag == V_BOOL) return DT_BOOL;
  Stage *now = m->s->stage;
  m->s->stage = m->side[k];
  DType dt = (DType)op_type_of(m->s, v).dtype;
  m->s->stage = now;
  return dt;
}

/* First walk: the outputs of a tensor, bool or number. `dead`: the side that has none, or -1. */
static void leaf_outputs(Merge *m, Value a, Value b, int dead) {
  Session *s = m->s;
  MergedLeaf l = {.number = m->outputs};
  Value v[2] = {a, b};
  if (dead >= 0) {
    Value x = v[!dead];
    Val y = lift(m, !dead, x, DT_COUNT);
    if (x.tag == V_INT || x.tag == V_DIM) y = lift(m, !dead, x, DT_I64);
    if (x.tag == V_FLOAT) y = lift(m, !dead, x, DT_F64);
    Type t = *gr_type(m->side[!dead]->g, y);
    B zeros = {.g = m->side[dead]->g};
    Val none = b_zeros(&zeros, &t);
    if (zeros.failed) fail_gerr(s, m->c->at, &zeros.err);
    l.weak = v_is_number(x);
    Val both[2] = {dead == 0 ? none : y, dead == 0 ? y : none};
    output(m, both[0], both[1]);
    if (!l.weak) l.apart = output_apart(m, both[0], both[1], dead);
  } else if (is_bool(a, true) && is_bool(b, false)) {
    l.same = 1;
  } else if (is_bool(a, false) && is_bool(b, true)) {
    l.same = 2;
  } else {
    bool number[2] = {v_is_number(a), v_is_number(b)};
    DType like = DT_COUNT;
    if (number[0] && number[1]) { /* an int beside a float is a float */
      DType x = dtype_of(m, 0, a), y = dtype_of(m, 1, b);
      like = dt_float(x) ? x : y;
      l.weak = true;
    } else {
      like = number[0] ? dtype_of(m, 1, b) : dtype_of(m, 0, a);
      for (int k = 0; k < 2; k++)
        if (number[k] && (like == DT_BOOL || (dt_float(dtype_of(m, k, v[k])) && !dt_float(like))))
          differ(m, a, b);
    }
    Val x[2];
    for (int k = 0; k < 2; k++) x[k] = lift(m, k, v[k], like);
    const Type *p = gr_type(m->side[0]->g, x[0]), *q = gr_type(m->side[1]->g, x[1]);
    bool same = p->dtype == q->dtype && p->rank == q->rank && p->dev == q->dev;
    for (int i = 0; same && i < p->rank; i++)
      same = dim_compare(op_dims_of(s), p->dim[i], q->dim[i]) != DIM_DIFFERENT;
    if (!same) differ(m, a, b);
    output(m, x[0], x[1]);
    if (!l.weak) l.apart = output_apart(m, x[0], x[1], -1);
  }
  VEC_PUSH(&s->scratch, m->leaves, m->count, m->cap, l);
}

static Value leaf_result(Merge *m) {
  const MergedLeaf *l = &m->leaves[m->next++];
  Session *s = m->s;
  if (l->same == 1) return m->cond;
  if (l->same == 2) {
    if (m->other.tag == V_UNIT) m->other = op_run(s, OP_NOT, 1, &m->cond, NULL, 0, m->c->at);
    return m->other;
  }
  Val v = {m->node.node, l->number};
  if (l->apart) stage_apart(s, v, (Val){m->node.node, l->apart - 1});
  return (Value){.tag = V_NODE, .aux = s->stage->level, .weak = l->weak, .u.v = v};
}

/* A list of numbers stands for a tensor where the other side has one. */
static bool as_numbers(Value *v, Value other) {
  if (!v_is_weak_list(*v)) return false;
  return v_is_tensor(other) || v_is_weak_list(other);
}

/* The value of both sides. The first walk adds the outputs of the regions, the second builds the
 * value out of the results of the node. */
static Value merge(Merge *m, Value a, Value b) {
  stack_check();
  Session *s = m->s;
  int dead = m->dead[0] ? 0 : m->dead[1] ? 1 : -1;
  if (dead >= 0) {
    Value x = dead ? a : b;
    size_t n;
    if (numeric(x)) {
      if (m->second) return leaf_result(m);
      leaf_outputs(m, a, b, dead);
      return x;
    }
    Value *items = value_parts(s, x, &n);
    if (!items) return x;
    for (size_t i = 0; i < n; i++) items[i] = merge(m, items[i], items[i]);
    return value_like(s, x, items);
  }
  if (left_same(a, b)) {
    uint32_t outer = m->side[0]->level - 1;
    if (a.tag != V_NODE || a.aux <= outer) return a;
  }
  Value v[2] = {a, b};
  for (int k = 0; k < 2; k++)
    if (as_numbers(&v[k], v[!k])) {
      Stage *now = s->stage;
      s->stage = m->side[k];
      DType like = v_is_tensor(v[!k]) ? dtype_of(m, !k, v[!k]) : DT_COUNT;
      if (!m->second) v[k] = op_as_tensor(s, v[k], like, m->c->at);
      s->stage = now;
      if (m->second) return leaf_result(m);
    }
  if (numeric(v[0]) && numeric(v[1])) {
    if (m->second) return leaf_result(m);
    leaf_outputs(m, v[0], v[1], -1);
    return a;
  }
  size_t n, o;
  Value *x = value_parts(s, a, &n), *y = value_parts(s, b, &o);
  if (!value_alike(a, b)) differ(m, a, b);
  for (size_t i = 0; i < n; i++) x[i] = merge(m, x[i], y[i]);
  return value_like(s, a, x);
}

/* ---- exits */

bool sides_open(const Session *s) {
  const OpenLoop *l = left_loop(s);
  return in_code(s) && (left_is_open(s->frame->returned) ||
                        (l && (left_is_open(l->broken) || left_is_open(l->continued))));
}

ExitMark sides_exits(const Session *s) {
  const OpenLoop *l = left_loop(s);
  return (ExitMark){s->frame->returned, l ? l->broken : v_unit(), l ? l->continued : v_unit()};
}

bool sides_exited(const Session *s, const ExitMark *m) {
  ExitMark now = sides_exits(s);
  return !left_same(now.returned, m->returned) || !left_same(now.broken, m->broken) ||
         !left_same(now.continued, m->continued);
}

/* An exit at the end of a side becomes a bool of what it leaves. */
static bool take_exit(Session *s, const SideChoice *c, int k) {
  Flow flow = eval_take_flow(s);
  OpenLoop *loop = left_loop(s);
  if (flow == FLOW_NEXT || flow == FLOW_GONE) return flow == FLOW_GONE;
  Span at = c->span[k].file ? c->span[k] : c->at;
  if (flow == FLOW_RETURN) {
    if (capsule_is_fn(s->frame->fn))
      fail_at(s, ERR_BREAK, at,
              "`break`, `continue` and `return` cannot leave a `checkpoint` block");
    s->frame->returned = v_bool(true);
    s->frame->ret_value = value_pool(s, s->ret);
    value_set(&s->ret, v_unit());
    return true;
  }
  if (!loop || !loop->staged)
    fail_at(s, ERR_BREAK, at, "`break`, `continue` and `return` cannot leave a `checkpoint` block");
  *(flow == FLOW_BREAK ? &loop->broken : &loop->continued) = v_bool(true);
  return true;
}

/* A flag that is not set yet. */
static Value flag_of(Value v) {
  return v.tag == V_UNIT ? v_bool(false) : v;
}

static Value merge_flag(Merge *m, Value v[3]) {
  if (v[1].tag == V_UNIT && v[2].tag == V_UNIT) return v[1];
  bool dead[2] = {m->dead[0], m->dead[1]};
  m->dead[0] = m->dead[1] = false;
  Value r = merge(m, flag_of(v[1]), flag_of(v[2]));
  m->dead[0] = dead[0];
  m->dead[1] = dead[1];
  return r;
}

/* The value that a `return` gave: a side that has not returned has none. */
static Value merge_returned(Merge *m, const Left *l) {
  bool dead[2] = {m->dead[0], m->dead[1]};
  bool none[2];
  for (int k = 0; k < 2; k++) {
    Value f = l->returned[1 + k];
    none[k] = f.tag == V_UNIT || is_bool(f, false);
  }
  if (none[0] && none[1]) return v_unit();
  m->dead[0] = none[0];
  m->dead[1] = none[1];
  m->what = "what `return` gives";
  Value r = merge(m, l->ret_value[1], l->ret_value[2]);
  m->dead[0] = dead[0];
  m->dead[1] = dead[1];
  return r;
}

/* ---- the node */

static void merge_draws(Merge *m, Left *l);

static void merge_all(Merge *m, Left *l, Value v[2], Value *result) {
  Session *s = m->s;
  Unit *u = s->stage->unit;
  bool quiet = m->apart = s->modes.no_grad && u;
  m->what = m->c->what ? m->c->what : "the value";
  bool value = !(m->dead[0] && m->dead[1]);
  Value r = value ? merge(m, v[0], v[1]) : v_unit();
  if (m->second) *result = r;
  bool dead[2] = {m->dead[0], m->dead[1]};
  for (size_t i = 0; i < l->var_count; i++) {
    Held *h = &l->vars[i];
    if (left_same(h->v[0], h->v[1]) && left_same(h->v[0], h->v[2])) continue;
    m->dead[0] = m->gone[0] && !m->gone[1];
    m->dead[1] = m->gone[1] && !m->gone[0];
    m->what = fail_text(s, "`%s`", s->locals[h->local].name);
    r = merge(m, h->v[1], h->v[2]);
    if (m->second) value_set(&s->locals[h->local].v, r);
  }
  m->dead[0] = m->dead[1] = false;
  m->apart = false;
  for (size_t i = 0; i < l->state_count; i++) {
    Value *x = l->state[i];
    if (left_same(x[0], x[1]) && left_same(x[0], x[2])) continue;
    m->what = u->states[i].field ? fail_text(s, "`%s`", u->states[i].field) : "a param";
    r = merge(m, x[1], x[2]);
    if (!m->second) continue;
    u->states[i].cur = r;
    state_merged(s, &u->states[i], r);
  }
  m->dead[0] = dead[0];
  m->dead[1] = dead[1];
  Frame *f = s->frame;
  OpenLoop *loop = left_loop(s);
  Value flag[3], value_returned;
  flag[0] = merge_flag(m, l->returned);
  flag[1] = merge_flag(m, l->broken);
  flag[2] = merge_flag(m, l->continued);
  m->apart = quiet;
  value_returned = merge_returned(m, l);
  m->apart = false;
  merge_draws(m, l);
  if (!m->second) return;
  f->returned = flag[0];
  f->ret_value = value_returned;
  if (!loop) return;
  loop->broken = flag[1];
  loop->continued = flag[2];
}

/* The regions of both sides with the same inputs, one for each value that a side captured. Returns
 * the operands of the node. */
static Val *same_inputs(Merge *m, Graph *sides[2], int *count, GErr *e) {
  Session *s = m->s;
  Stage **st = m->side;
  for (size_t i = 0; i < st[1]->capture_count; i++) stage_capture(st[0], st[1]->outer[i]);
  size_t n = st[0]->capture_count;
  Val *args = ARENA_ARRAY(&s->scratch, Val, n + 1), *in = ARENA_ARRAY(&s->scratch, Val, n + 1);
  Val *out = ARENA_ARRAY(&s->scratch, Val, m->outputs + 1);
  args[0] = m->cond.u.v;
  if (n) memcpy(args + 1, st[0]->outer, n * sizeof *args);
  const Graph *g = st[1]->g;
  Graph *d = gr_new(g->arena, g->dims, g->names, g->name);
  d->blocks = g->blocks;
  for (size_t i = 0; i < n; i++) {
    Val x = gr_input(d, gr_type(st[0]->g, st[0]->inner[i]));
    for (size_t k = 0; k < st[1]->capture_count; k++)
      if (val_eq(st[1]->outer[k], st[0]->outer[i])) in[k] = x;
  }
  if (!gr_inline(d, g, in, NULL, out, e)) fail_gerr(s, m->c->at, e);
  for (uint32_t i = 0; i < m->outputs; i++) gr_output(d, out[i]);
  sides[0] = st[0]->g;
  sides[1] = d;
  *count = (int)n + 1;
  return args;
}

/* The end of all: if both sides were left in the same way, so is the choice. */
static void settle_exits(Session *s, bool gone) {
  Frame *f = s->frame;
  OpenLoop *loop = left_loop(s);
  if (is_bool(f->returned, true)) {
    value_set(&s->ret, f->ret_value);
    f->returned = f->ret_value = v_unit();
    s->flow = FLOW_RETURN;
  } else if (loop && is_bool(loop->broken, true)) {
    loop->broken = v_unit();
    s->flow = FLOW_BREAK;
  } else if (loop && is_bool(loop->continued, true)) {
    loop->continued = v_unit();
    s->flow = FLOW_CONTINUE;
  } else if (gone) {
    s->flow = FLOW_GONE;
  }
}

/* How often a site has drawn on side k since the choice, as a number. */
static Value drawn(Merge *m, int k, const DrawCount *from, const DrawMark *to, size_t i) {
  Session *s = m->s;
  uint64_t before = from ? from->now : 0, after = i < to->count ? to->draws[i].now : before;
  Value more = i < to->count ? to->draws[i].more : from ? from->more : v_unit();
  Value n = v_int((int64_t)(after - before));
  if (more.tag == V_UNIT || (after == before)) return more.tag == V_UNIT ? n : more;
  Stage *now = s->stage;
  s->stage = m->side[k];
  n = op_binary(s, AST_ADD, more, n, m->c->at, m->c->at, m->c->at);
  s->stage = now;
  return n;
}

/* The counts of random draws after the choice (rule 92): where the sides drew equally often, or not
 * at all, they are known; else they are results. The first walk keeps the sides' numbers. */
static void merge_draws(Merge *m, Left *l) {
  Session *s = m->s;
  Unit *u = s->stage->unit;
  if (!u) return;
  bool dead[2] = {m->dead[0], m->dead[1]};
  m->dead[0] = m->dead[1] = false;
  if (!m->second) l->draws = arena_alloc(&s->scratch, (u->draw_count + 1) * sizeof *l->draws);
  for (size_t i = 0; i < u->draw_count; i++) {
    const DrawCount *from = i < l->drawn[0].count ? &l->drawn[0].draws[i] : NULL;
    uint64_t before = from ? from->now : 0;
    Value more = from ? from->more : v_unit();
    if (!m->second)
      for (int k = 0; k < 2; k++) l->draws[i][k] = drawn(m, k, from, &l->drawn[1 + k], i);
    Value *v = l->draws[i];
    if (v[0].tag == V_INT && v[1].tag == V_INT && v[0].u.i == v[1].u.i) {
      if (m->second) u->draws[i].now = before + (uint64_t)v[0].u.i;
      continue;
    }
    if (left_same(v[0], v[1]) && left_same(v[0], more)) continue;
    if (!stage_in_order(s->stage) || s->element)
      fail_help(
          s, ERR_NOT_YET, m->c->at, "draw before the `if`, and use the numbers on one side",
          "not yet: in a comprehension, random numbers that are drawn on one side of a choice "
          "on data alone");
    Value r = merge(m, v[0], v[1]);
    if (m->second) u->draws[i] = (DrawCount){u->draws[i].d, before, r};
  }
  m->dead[0] = dead[0];
  m->dead[1] = dead[1];
}

Value sides_stage(Session *s, Value cond, const SideChoice *c) {
  stack_check();
  Left l;
  Stage st[2];
  Merge m = {.s = s, .c = c, .side = {&st[0], &st[1]}, .cond = stage_lift(s, cond, c->at)};
  m.cond.weak = false;
  Unit *u = s->stage->unit;
  left_open(s, &l);
  Value v[2];
  for (int k = 0; k < 2; k++) {
    Val token = u ? u->token : VAL_NONE;
    region_open(s, &st[k], NULL);
    st[k].side = true;
    st[k].token = token;
    if (u) u->token = VAL_NONE;
    if (c->skips) { /* what the condition says of the exits */
      OpenLoop *loop = left_loop(s);
      Value *flags[3] = {&s->frame->returned, loop ? &loop->broken : NULL,
                         loop ? &loop->continued : NULL};
      for (int i = 0; i < 3; i++)
        if (flags[i] && left_is_open(*flags[i]) && (k == 1 || left_same(*flags[i], cond)))
          *flags[i] = v_bool(k == 0);
    }
    v[k] = c->side[k] ? c->side[k](s, c->ud) : v_unit();
    m.dead[k] = take_exit(s, c, k) || (c->skips && k == 0);
    m.gone[k] = is_bool(s->frame->returned, true);
    left_note(s, &l, 1 + k);
    stage_pop(s);
    left_restore(s, &l);
  }
  merge_all(&m, &l, v, NULL);
  bool effects = !val_none(l.token[1]) || !val_none(l.token[2]);
  if (effects) {
    Val t[2];
    for (int k = 0; k < 2; k++) {
      s->stage = &st[k];
      u->token = l.token[1 + k];
      t[k] = stage_token(s, c->at);
      s->stage = st[k].up;
    }
    u->token = l.token[0];
    output(&m, t[0], t[1]);
  }
  Value result = v_unit();
  GErr e = {.code = ERR_BUG, .operand = -1};
  if (m.outputs) {
    int n;
    Graph *sides[2];
    Val *args = same_inputs(&m, sides, &n, &e);
    stage_at(s, c->at);
    m.node = gr_op(s->stage->g, OP_BRANCH, args, n, NULL, 0, sides, 2, &e);
    if (val_none(m.node)) fail_gerr(s, c->at, &e);
    if (effects) u->token = (Val){m.node.node, m.outputs - 1};
  }
  m.second = true;
  merge_all(&m, &l, v, &result);
  settle_exits(s, m.dead[0] && m.dead[1]);
  return result;
}

/* ---- aliases */

typedef struct AliasOf {
  Value other, v;
  Span at;
} AliasOf;

static Value alias_of_other(Session *s, void *ud) {
  (void)s;
  return ((AliasOf *)ud)->other;
}

static Value alias_of_own(Session *s, void *ud) {
  AliasOf *a = ud;
  Value v = stage_lift(s, a->v, a->at);
  return op_run(s, OP_ALIAS, 1, &v, NULL, 0, a->at);
}

Value sides_alias(Session *s, size_t n, const AliasEntry *others, Value v, Span at) {
  Graph *g = s->stage->g;
  bool side = gr_node(g, v.u.v)->op == OP_BRANCH; /* only then can it be an older value */
  for (size_t i = 0; i < n; i++) {
    Val x = others[i].version;
    if (!side && gr_node(g, x)->op != OP_BRANCH) continue;
    bool is = ad_may_be(&s->scratch, g, v.u.v, x);
    if (others[i].v.aux != s->stage->level || (!is && !ad_may_be(&s->scratch, g, x, v.u.v)))
      continue;
    B b = {.g = g};
    int known;
    stage_at(s, at);
    Value flag = {.tag = V_NODE, .aux = s->stage->level};
    flag.u.v =
        is ? ad_is(&s->scratch, &b, v.u.v, x, &known) : ad_is(&s->scratch, &b, x, v.u.v, &known);
    if (b.failed) fail_gerr(s, at, &b.err);
    if (known > 0) return others[i].v;
    if (!known) continue;
    AliasOf of = {others[i].v, v, at};
    SideChoice c = {.at = at, .side = {alias_of_other, alias_of_own}, .ud = &of};
    return sides_stage(s, flag, &c);
  }
  return op_run(s, OP_ALIAS, 1, &v, NULL, 0, at);
}

/* ---- the forms of the language */

_Noreturn void sides_in_expression(Session *s, Span at) {
  fail_help(s, ERR_BREAK, at, "give the `if` a statement, or a `let`, of its own",
            "an exit that depends on data stands in the middle of an expression");
}

typedef struct IfSides {
  Node *e;
  bool tail;
} IfSides;

static Value side_of(Session *s, IfSides *i, Node *n) {
  if (!n) return v_unit();
  if (i->tail) s->tail = n;
  Value v = eval_expr(s, n);
  if (s->flow != FLOW_NEXT && !i->tail) sides_in_expression(s, n->span);
  return v;
}

static Value then_side(Session *s, void *ud) {
  IfSides *i = ud;
  return side_of(s, i, i->e->if_.then);
}

static Value else_side(Session *s, void *ud) {
  IfSides *i = ud;
  return side_of(s, i, i->e->if_.els);
}

Value sides_if(Session *s, Node *e, Value cond) {
  IfSides i = {e, s->tail == e};
  SideChoice c = {.at = e->if_.cond->span, .side = {then_side, else_side}, .ud = &i};
  c.span[0] = e->if_.then->span;
  if (e->if_.els) c.span[1] = e->if_.els->span;
  return sides_stage(s, cond, &c);
}

static Value or_of(Session *s, Value a, Value b, Span at) {
  if (!left_is_open(a)) return b;
  if (!left_is_open(b)) return a;
  Value v[2] = {a, b};
  return op_run(s, OP_OR, 2, v, NULL, 0, at);
}

Value sides_rest(Session *s, SideFn rest, void *ud, Span at) {
  OpenLoop *l = left_loop(s);
  Value cond = s->frame->returned;
  if (l) cond = or_of(s, or_of(s, cond, l->broken, at), l->continued, at);
  SideChoice c = {.at = at, .side = {NULL, rest}, .skips = true, .ud = ud};
  return sides_stage(s, cond, &c);
}

static Value first_value(Session *s, void *ud) {
  (void)s;
  return ((Value *)ud)[0];
}

static Value second_value(Session *s, void *ud) {
  (void)s;
  return ((Value *)ud)[1];
}

Value sides_returned(Session *s, Value v, Span at) {
  Frame *f = s->frame;
  if (!in_code(s) || !left_is_open(f->returned)) return v;
  Value cond = f->returned, both[2] = {f->ret_value, v};
  f->returned = f->ret_value = v_unit();
  SideChoice c = {.at = at, .side = {first_value, second_value}, .ud = both};
  c.what = "what the function gives, by `return` and at its end,";
  return sides_stage(s, cond, &c);
}
