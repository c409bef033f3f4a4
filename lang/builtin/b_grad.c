/* Builtins: gradients, trees, state of models.
 *
 * In: values of script or code. In code a gradient is a graph transformation (autograd/), in script
 * it walks the tape (sweep.c). vjp, jvp, hessian and vmap are code; the prelude's functions of
 * these names call the builtins with an underscore, so that script reaches them through compiled
 * calls.
 */
#include <math.h>
#include <string.h>

#include "autograd/autograd.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/element.h"
#include "lang/eval/eval.h"
#include "lang/eval/history.h"
#include "lang/eval/index.h"
#include "lang/eval/model.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sides.h"
#include "lang/eval/state.h"
#include "lang/eval/steps.h"
#include "lang/eval/want.h"
#include "lang/tape/callback.h"
#include "lang/tape/gradient.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"
#include "lang/value/tree.h"

/* ---- grad in code */

typedef struct Wrt {
  Session *s;
  Span at;
  Val *vals;
  size_t count, cap;
  int *as; /* per value: the index of its earliest version, see ad_vjp_as */
  size_t as_cap;
  size_t *group; /* per leaf of the tree: how many values stand for it */
  size_t group_count, group_cap, group_next;
  Val *dx, *dx_there; /* dx_there: see VjpAsk */
  size_t next;
  bool unreached;
  bool hooks; /* hooks of params run */
  size_t ny;
  const Val *y;       /* what the gradient is taken of */
  const State *state; /* of the leaf, if that is a param */
} Wrt;

static void wrt_push(Wrt *w, Val v, size_t as) {
  size_t n = w->count;
  VEC_PUSH(&w->s->scratch, w->as, n, w->as_cap, (int)as);
  VEC_PUSH(&w->s->scratch, w->vals, w->count, w->cap, v);
}

static void wrt_group(Wrt *w, size_t n) {
  VEC_PUSH(&w->s->scratch, w->group, w->group_count, w->group_cap, n);
}

/* ---- gradients on one side of an `if`: the loss reads what stands outside through captures */

/* Per result of stage st: whether what the gradient is taken of depends on it. */
static bool *live_in(Wrt *w, const Stage *st) {
  const Graph *g = st->g;
  bool *live = ARENA_ARRAY(&w->s->scratch, bool, g->type_count + 1);
  const Stage *in = w->s->stage;
  if (st == in) {
    for (size_t i = 0; i < w->ny; i++) live[g->nodes[w->y[i].node].result0 + w->y[i].res] = true;
  } else {
    while (in->up != st) in = in->up;
    const bool *inner = live_in(w, in);
    for (size_t i = 0; i < in->capture_count; i++) {
      Val x = in->inner[i], o = in->outer[i];
      live[g->nodes[o.node].result0 + o.res] |= inner[in->g->nodes[x.node].result0 + x.res];
    }
    for (uint32_t i = 0; i < in->row_count; i++) {
      Val x = in->g->inputs[i], o = in->rows[i];
      if (val_none(o)) continue;
      live[g->nodes[o.node].result0 + o.res] |= inner[in->g->nodes[x.node].result0 + x.res];
    }
  }
  for (uint32_t n = (uint32_t)g->node_count; n-- > 0;) {
    const GNode *node = &g->nodes[n];
    bool any = false;
    for (uint32_t i = 0; i < node->result_count; i++) any |= live[node->result0 + i];
    for (uint32_t i = 0; any && ad_passes((OpCode)node->op) && i < node->operand_count; i++) {
      Val x = gr_operand(g, n, (int)i);
      live[g->nodes[x.node].result0 + x.res] |= ad_carries(g, n, i);
    }
  }
  return live;
}

/* The values of stage st that are v, a value of the stage of level `level` around it, or an alias
 * of it, which is what a call sees of it, or a later version. Each is pushed. Any other value
 * captured by st, or of which it has an element, that depends on v carries a part of the gradient
 * that is not in st if the loss uses it: *more. */
static void captured_as(Wrt *w, Stage *st, uint32_t level, Val v, size_t first, bool *more) {
  const Graph *g = st->up->g;
  Val *same = ARENA_ARRAY(&w->s->scratch, Val, g->node_count + 1);
  bool *on = ARENA_ARRAY(&w->s->scratch, bool, g->type_count + 1);
  size_t n = 0;
  if (st->up->level == level) {
    same[n++] = v;
  } else {
    size_t from = w->count;
    captured_as(w, st->up, level, v, first, more);
    for (size_t i = from; i < w->count; i++) same[n++] = w->vals[i];
    w->count = from;
  }
  bool *other = ARENA_ARRAY(&w->s->scratch, bool, g->type_count + 1); /* versions of other params */
  const Unit *u = w->s->stage->unit;
  for (size_t j = 0; w->state && j < u->state_count; j++)
    for (size_t i = 0; i < u->states[j].merged_count; i++) {
      const struct Merged *m = &u->states[j].merged[i];
      if (m->g != g || (st->up->level == level && m->v.node < v.node)) continue;
      if (w->state == &u->states[j])
        same[n++] = m->v;
      else
        other[g->nodes[m->v.node].result0 + m->v.res] = true;
    }
  for (size_t i = 0; i < n; i++) on[g->nodes[same[i].node].result0 + same[i].res] = true;
  for (uint32_t k = 0; k < g->node_count && n; k++) {
    const GNode *node = &g->nodes[k];
    bool any = false;
    for (uint32_t i = 0; i < node->operand_count; i++) {
      Val x = gr_operand(g, k, (int)i);
      any |= on[g->nodes[x.node].result0 + x.res] && ad_carries(g, k, i);
    }
    if (!any || !ad_passes((OpCode)node->op)) continue;
    bool version = node->op == OP_VERSION, alias = false;
    Val x = gr_operand(g, k, version);
    for (size_t i = 0; (version || node->op == OP_ALIAS) && i < n && !alias; i++)
      alias = val_eq(same[i], x);
    if (alias) same[n++] = (Val){k, 0};
    for (uint32_t i = node->result0; i < node->result0 + node->result_count; i++)
      on[i] |= ad_has_gradient(&g->types[i]) && !other[i];
  }
  const bool *live = live_in(w, st);
  for (size_t c = 0; c < st->capture_count; c++) {
    Val x = st->outer[c], in = st->inner[c];
    bool is = false;
    for (size_t i = 0; i < n && !is; i++) is = val_eq(same[i], x);
    if (is)
      wrt_push(w, in, first);
    else
      *more |= on[g->nodes[x.node].result0 + x.res] && live[st->g->nodes[in.node].result0 + in.res];
  }
  for (uint32_t k = 0; k < st->row_count; k++) {
    Val x = st->rows[k], in = st->g->inputs[k];
    *more |= !val_none(x) && on[g->nodes[x.node].result0 + x.res] &&
             live[st->g->nodes[in.node].result0 + in.res];
  }
}

/* Pushes what stands for v, of an outer stage, in the present one, which is a side. Without any,
 * the gradient is zero: v itself is captured. */
static void wrt_captured(Wrt *w, uint32_t level, Val v, size_t first) {
  Session *s = w->s;
  size_t from = w->count;
  bool more = false;
  captured_as(w, s->stage, level, v, first, &more);
  if (more && !state_unsure(s))
    fail_help(s, ERR_NOT_YET, w->at, "compute the whole loss where its gradient is taken",
              "not yet: a gradient %s, through values that were made before",
              s->stage->turns  ? "in a turn of a loop"
              : s->stage->side ? "on one side of a choice on data"
                               : "inside a comprehension");
  if (w->count > from) return;
  Value x = {.tag = V_NODE, .aux = level, .u.v = v};
  wrt_push(w, stage_lift(s, x, w->at).u.v, first);
}

static Value wrt_collect(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Wrt *w = ud;
  (void)n;
  Value x = v[0];
  if (tree_undifferentiated(x, path)) return x;
  if (x.tag == V_PARAM) {
    if (x.u.p->frozen && *path) return v_none();
    if (x.u.p->frozen)
      fail_help(s, ERR_GRAD_FROZEN, w->at, "`unfreeze` it, or take the gradient by what trains",
                "a frozen param has no gradient");
    State *st = state_unit(s, x.u.p, NULL);
    if (!st) fail_at(s, ERR_BUG, w->at, "a param reached code without being an argument");
    size_t first = w->count;
    w->state = st;
    const struct Base *b = st->base;
    const Frame *fr = s->frame;
    if (fr && state_enters(fr) && b->home != fr)
      fail_help(s, ERR_NOT_YET, w->at, "let the function call `grad` itself, by that name",
                "not yet: a gradient by params through a function that is given");
    while (b->turn && b->v.aux > s->stage->level) b = b->up; /* the loss stood before the turn */
    if (b->v.aux < s->stage->level)
      wrt_captured(w, b->v.aux, b->v.u.v, first);
    else
      wrt_push(w, b->v.u.v, first);
    w->state = NULL;
    wrt_group(w, w->count - first);
    return x;
  }
  if (x.tag != V_NODE || x.weak || !dt_float((DType)op_type_of(s, x).dtype)) {
    if (x.tag == V_UNKNOWN) return x;
    fail_at(s, ERR_GRAD_WRT, w->at, "a gradient by %s does not exist: floats only",
            value_type_text(s, x));
  }
  size_t first = w->count;
  if (x.aux < s->stage->level)
    wrt_captured(w, x.aux, x.u.v, first);
  else
    wrt_push(w, stage_lift(s, x, w->at).u.v, first);
  wrt_group(w, w->count - first);
  return x;
}

static Value zero_node(Session *s, const Type *t) {
  Value z = {.tag = V_NODE, .aux = s->stage->level};
  B b = {.g = s->stage->g};
  z.u.v = b_zeros(&b, t);
  return z;
}

/* A gradient of a param, for its hooks. */
typedef struct ParamHook {
  Param *p;
  Value g;
  Span at;
} ParamHook;

static Value param_hook(Session *s, void *ud) {
  const ParamHook *h = ud;
  return host_param_gradient(s, h->p, h->g, h->at);
}

static Value no_param_hook(Session *s, void *ud) {
  return stage_lift(s, ((ParamHook *)ud)->g, ((ParamHook *)ud)->at);
}

static Value wrt_result(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Wrt *w = ud;
  (void)n;
  Value x = v[0];
  if (tree_undifferentiated(x, path) || x.tag == V_UNKNOWN) return x;
  if (x.tag == V_PARAM && x.u.p->frozen) return v_none();
  Type t = *gr_type(s->stage->g, w->vals[w->next]);
  Value g = {.tag = V_NODE, .aux = s->stage->level, .u.v = w->dx[w->next]};
  Val there = w->dx_there[w->next];
  w->next += w->group[w->group_next++];
  if (val_none(g.u.v)) {
    int64_t size = 1;
    for (int i = 0; i < t.rank && size; i++)
      if (!dim_is_const(s->stage->g->dims, t.dim[i], &size)) size = 1;
    w->unreached |= size != 0; /* no elements: an absent bias */
    return zero_node(s, &t);
  }
  if (!val_none(there)) {
    B b = {.g = s->stage->g};
    g.u.v = ad_or_zero(&b, there, g.u.v, false);
    if (b.failed) fail_gerr(s, w->at, &b.err);
  }
  if (!w->hooks || x.tag != V_PARAM) return g;
  ParamHook h = {x.u.p, g, w->at};
  if (val_none(there) || !host_param_hooked(s, h.p)) return param_hook(s, &h);
  Value holds = {.tag = V_NODE, .aux = s->stage->level, .u.v = there};
  SideChoice c = {.at = w->at, .side = {param_hook, no_param_hook}, .ud = &h};
  return sides_stage(s, holds, &c);
}

/* The values that a gradient is taken of, with their cotangents. */
typedef struct Seeds {
  Session *s;
  Span at;
  Val *y, *dy;
  size_t count, cap, dy_cap;
} Seeds;

static void seed_push(Seeds *d, Value y, Value dy) {
  size_t n = d->count;
  VEC_PUSH(&d->s->scratch, d->y, n, d->cap, stage_operand(d->s, y, d->at).u.v);
  VEC_PUSH(&d->s->scratch, d->dy, d->count, d->dy_cap, stage_lift(d->s, dy, d->at).u.v);
}

/* Hooks of params run; no warning if the loss does not depend on a leaf. */
enum { GRAD_HOOKS = 1, GRAD_MAY_BE_ZERO = 2 };

/* The gradient of the seeds by the leaves of wrt. */
static Value seeds_gradient(Session *s, const Seeds *d, Value wrt, unsigned how, Span at) {
  bool hooks = how & GRAD_HOOKS;
  Wrt w = {.s = s, .at = at, .hooks = hooks, .ny = d->count, .y = d->y};
  tree_map(s, 1, &wrt, wrt_collect, &w, at);
  w.dx = ARENA_ARRAY(&s->scratch, Val, w.count + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {0};
  history_gradient(s, d->count, d->y, w.count, w.vals, at);
  host_seen(s, true, at);
  stage_at(s, at);
  w.dx_there = ARENA_ARRAY(&s->scratch, Val, w.count + 1);
  VjpAsk ask = {.ny = (int)d->count,
                .y = d->y,
                .dy = d->dy,
                .nwrt = (int)w.count,
                .wrt = w.vals,
                .as = w.as,
                .dx = w.dx,
                .dx_there = w.dx_there,
                .by_value = true};
  if (!ad_vjp_ask(s->stage->g, &ask, &e, &where))
    fail_gerr(s, where.span.file ? where.span : at, &e);
  host_seen(s, false, at);
  stage_at(s, at);
  if (s->stage->unit && s->stage->unit->eval_dropout.file && !s->stage->unit->check)
    tape_warn_eval_dropout(s, s->stage->unit->eval_dropout);
  Value r = tree_map(s, 1, &wrt, wrt_result, &w, at);
  if (w.unreached && !(how & GRAD_MAY_BE_ZERO) && !s->abstract &&
      !(s->stage->unit && s->stage->unit->outside))
    fail_warn_once(
        s, ERR_GRAD_UNREACHED, at,
        "the loss does not depend on all of what the gradient is taken by: those are zero");
  return r;
}

/* The gradient of y by the leaves of wrt. */
static Value code_gradient(Session *s, Value y, Value dy, Value wrt, unsigned how, Span at) {
  Seeds d = {.s = s, .at = at};
  seed_push(&d, y, dy);
  return seeds_gradient(s, &d, wrt, how, at);
}

static Value one_like(Session *s, Value y, Span at) {
  return op_fill_like(s, y, 1.0, at);
}

static Value same_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)s, (void)ud, (void)n, (void)path;
  return v[0];
}

static void check_loss(Session *s, Value y, Span at) {
  if (y.tag == V_FN)
    fail_help(s, ERR_GRAD_LOSS, at,
              "the loss is a value: `grad(f(x), x)`, of params `grad(f(net), net)`",
              "the loss must be a rank-0 float tensor, not %s", value_type_text(s, y));
  if (!v_is_tensor(y))
    fail_at(s, ERR_GRAD_LOSS, at, "the loss must be a rank-0 float tensor, not %s",
            value_type_text(s, y));
  Type t = op_type_of(s, y);
  if (!dt_float((DType)t.dtype))
    fail_at(s, ERR_GRAD_LOSS, at, "the loss must be float, this is %s", value_type_text(s, y));
  if (t.rank)
    fail_help(s, ERR_GRAD_LOSS, at,
              "sum(..) or mean(..) makes a scalar; vjp(f, x, cotangent) takes a cotangent",
              "the loss must be a rank-0 tensor, this is %s", value_type_text(s, y));
}

static Value deepest_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  uint32_t *level = ud;
  (void)n, (void)path;
  Value x = v[0];
  const State *st = x.tag == V_PARAM ? state_unit(s, x.u.p, NULL) : NULL;
  const struct Base *b = st ? st->base : NULL;
  while (b && b->turn) b = b->up;
  if (b) x = b->v;
  if (x.tag == V_NODE && x.aux > *level) *level = x.aux;
  return v[0];
}

/* The stage in which the gradient of loss y is taken: the present one; on a side of an `if`, that
 * of a loss which was made before it, with all that it depends on. */
static Stage *stage_of_loss(Session *s, Value y, Value wrt, Span at) {
  Stage *st = s->stage;
  uint32_t level = 1;
  if (y.tag != V_NODE || y.aux >= st->level || (st->unit && st->unit->hosts)) return st;
  tree_map(s, 1, &wrt, deepest_leaf, &level, at);
  while (st->side && st->level > y.aux && st->level > level) st = st->up;
  return st->level == y.aux ? st : s->stage;
}

BUILTIN_FN(bi_grad) {
  static const char *const names[] = {"loss", "wrt", "record", "last"};
  Node *a[4];
  arg_raw(s, c, a, 4, names);
  if (!a[0] || !a[1])
    fail_help(s, ERR_ARG_COUNT, c->at, "grad(loss, wrt)",
              "`grad` takes a loss and what to differentiate by");
  /* the loss of loss.grad(..) is evaluated already */
  Value y = c->n ? c->v[0] : eval_expr(s, a[0]), wrt = arg_raw_ref(s, a[1]);
  bool record = a[2] && want_bool(s, eval_expr(s, a[2]), a[2]->span, "`record`");
  bool last = a[3] && want_bool(s, eval_expr(s, a[3]), a[3]->span, "`last`");
  if (y.tag == V_UNKNOWN || wrt.tag == V_UNKNOWN)
    return wrt.tag == V_UNKNOWN ? wrt : tree_map(s, 1, &wrt, same_leaf, NULL, c->at);
  check_loss(s, y, a[0]->span);
  if (wrt.tag == V_INST && s->stage) wrt = model_params_tree(s, wrt.u.inst, false);
  if (s->abstract) return tree_map(s, 1, &wrt, same_leaf, NULL, c->at);
  if (v_is_number(wrt))
    fail_at(s, ERR_GRAD_WRT, a[1]->span, "a gradient by a number does not exist");
  if (!s->stage) {
    if (y.tag == V_TENSOR && !y.u.t->node)
      fail_help(s, ERR_NOT_TRACKED, a[0]->span,
                "params and track(x) are tracked, outside wrap <no_grad>",
                "the loss does not depend on anything that is tracked");
    if (wrt.tag == V_PARAM && wrt.u.p->frozen)
      fail_help(s, ERR_GRAD_FROZEN, a[1]->span,
                "`unfreeze` it, or take the gradient by what trains",
                "a frozen param has no gradient");
    record |= capsule_is_fn(s->frame->fn) || s->frame->nests; /* code that runs as script */
    return tape_grad(s, y, one_like(s, y, c->at), wrt, record, (Take){a[0], last}, a[1]->span);
  }
  block_grad(s, y, a[0]->span);
  Stage *now = s->stage;
  s->stage = stage_of_loss(s, y, wrt, c->at);
  Value g = code_gradient(s, y, one_like(s, y, c->at), wrt, GRAD_HOOKS, a[1]->span);
  s->stage = now;
  host_end(s, c->at);
  return g;
}

/* ---- vjp and friends in code */

static Value alias_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  Span at = *(Span *)ud;
  if (tree_undifferentiated(v[0], path)) return v[0];
  Value x = op_as_tensor(s, v[0], DT_COUNT, at);
  if (!dt_float((DType)op_type_of(s, x).dtype))
    fail_at(s, ERR_GRAD_WRT, at, "a derivative by %s does not exist: floats only",
            value_type_text(s, x));
  return op_run(s, OP_ALIAS, 1, &x, NULL, 0, at);
}

static Value fresh(Session *s, Value x, Span at) {
  return tree_map(s, 1, &x, alias_leaf, &at, at);
}

static Value code_call(Session *s, Value f, Value x, Span at) {
  return op_as_tensor(s, call_simple(s, f, 1, &x, at), DT_COUNT, at);
}

static Value like(Session *s, Value ct, Value y, Span at, const char *what) {
  ct = op_as_tensor(s, ct, (DType)op_type_of(s, y).dtype, at);
  Type a = op_type_of(s, ct), b = op_type_of(s, y);
  bool ok = a.dtype == b.dtype && a.rank == b.rank;
  for (int i = 0; ok && i < a.rank; i++)
    ok = dim_compare(op_dims_of(s), a.dim[i], b.dim[i]) != DIM_DIFFERENT;
  if (!ok)
    fail_at(s, ERR_COTANGENT, at, "the %s must be %s, this is %s", what, value_type_text(s, y),
            value_type_text(s, ct));
  return ct;
}

/* Whether a result has a gradient: a tensor of floats, not weak. */
static bool has_gradient(Session *s, Value y) {
  return v_is_tensor(y) && !y.weak && dt_float((DType)op_type_of(s, y).dtype);
}

/* f(x) as one tensor, or as a tree. */
static Value results_of(Session *s, Value f, Value x, Span at) {
  Value y = call_simple(s, f, 1, &x, at);
  size_t n;
  bool tree = value_items(y, &n) && !v_is_weak_list(y);
  return tree || y.tag == V_UNKNOWN ? y : op_as_tensor(s, y, DT_COUNT, at);
}

static Value seed_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Seeds *d = ud;
  (void)n;
  const char *what = *path ? fail_text(s, "cotangent of `%s`", path) : "cotangent";
  if (!has_gradient(s, v[0]))
    fail_at(s, ERR_COTANGENT, d->at, "the %s must be none: %s has no gradient", what,
            value_type_text(s, v[0]));
  seed_push(d, v[0], like(s, v[1], v[0], d->at, what));
  return v[0];
}

/* The argument ct has one cotangent for each result, in the results' structure; `none` is zero. */
BUILTIN_FN(bi_vjp) {
  if (!s->stage) fail_at(s, ERR_BUG, c->at, "_vjp outside code");
  Value x = fresh(s, c->v[1], c->at), y = results_of(s, c->v[0], x, c->at), ct = c->v[2];
  if (!tree_known(s, y) || !tree_known(s, ct)) return (Value){.tag = V_UNKNOWN};
  size_t n, k;
  if (value_items(y, &n) && value_items(ct, &k) && ct.tag == y.tag && n != k)
    fail_at(s, ERR_COTANGENT, c->at, "the function gives %zu results, here are %zu cotangents", n,
            k);
  Seeds d = {.s = s, .at = c->at};
  Value trees[2] = {y, ct};
  tree_map(s, 2, trees, seed_leaf, &d, c->at);
  Value r[2] = {y, seeds_gradient(s, &d, x, 0, c->at)};
  return v_list(s, V_TUPLE, 2, r);
}

typedef struct Dot {
  Span at;
  Value sum;
} Dot;

static Value dot_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Dot *d = ud;
  (void)n;
  (void)path;
  if (v[0].tag == V_NONE) return v[0];
  Value t = like(s, v[1], v[0], d->at, "tangent");
  Value p = op_broadcast_binary(s, OP_MUL, v[0], t, d->at, d->at, d->at);
  Type ty = op_type_of(s, p);
  int64_t axes[CKL_MAX_RANK];
  for (int i = 0; i < ty.rank; i++) axes[i] = i;
  if (ty.rank) p = op_reduce(s, OP_SUM, p, ty.rank, axes, false, d->at);
  d->sum =
      d->sum.tag == V_UNIT ? p : op_broadcast_binary(s, OP_ADD, d->sum, p, d->at, d->at, d->at);
  return v[0];
}

/* Fails if a node of a gradient since `from` is a hook: a hook has no derivative. */
static void refuse_hooks(Session *s, const Graph *g, uint32_t from, Span at) {
  stack_check();
  for (uint32_t n = from; n < g->node_count; n++) {
    for (uint32_t k = 0; k < g->nodes[n].region_count; k++)
      refuse_hooks(s, g->regions[g->nodes[n].region0 + k], 0, at);
    if (g->nodes[n].op != OP_DEFER || gr_attr_i(g, n, AT_INDEX, -1) < 0) continue;
    Diag *d = fail_report(
        s, ERR_GRAD_NONE, at,
        "a forward derivative goes through a hook, which is called with gradients only");
    dg_label(&s->diags, d, g->provs[g->nodes[n].prov].span, "the hook is here");
    dg_help(&s->diags, d,
            "`vjp` and `grad` call hooks; before `jvp`, `.remove()` the hook or "
            "leave out the `on_grad`");
    fail_raise(s);
  }
}

/* A new variable as cotangent for each result that has a gradient, to differentiate by. */
static Value along_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Seeds *d = ud;
  (void)n, (void)path;
  if (v[0].tag == V_UNKNOWN) return v[0];
  if (!has_gradient(s, v[0])) return v_none();
  Type t = op_type_of(s, v[0]);
  Value u = fresh(s, zero_node(s, &t), d->at);
  seed_push(d, v[0], u);
  return u;
}

/* The derivative along t, by differentiating the vjp by its cotangents, in which it is linear
 * (the double-vjp form of forward mode). It has the structure of the results. */
BUILTIN_FN(bi_jvp) {
  if (!s->stage) fail_at(s, ERR_BUG, c->at, "_jvp outside code");
  Value x = fresh(s, c->v[1], c->at), y = results_of(s, c->v[0], x, c->at);
  if (!tree_known(s, y)) return (Value){.tag = V_UNKNOWN};
  Seeds d = {.s = s, .at = c->at};
  Value u = tree_map(s, 1, &y, along_leaf, &d, c->at);
  uint32_t from = (uint32_t)s->stage->g->node_count;
  Value g = seeds_gradient(s, &d, x, 0, c->at);
  refuse_hooks(s, s->stage->g, from, c->at);
  Value trees[2] = {g, c->v[2]};
  Dot dot = {c->at, v_unit()};
  tree_map(s, 2, trees, dot_leaf, &dot, c->at);
  if (dot.sum.tag == V_UNIT)
    fail_at(s, ERR_GRAD_WRT, c->at, "a derivative along nothing: the tangent has no leaf");
  Value r[2] = {y,
                code_gradient(s, dot.sum, one_like(s, dot.sum, c->at), u, GRAD_MAY_BE_ZERO, c->at)};
  return v_list(s, V_TUPLE, 2, r);
}

static Value output_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Value x = op_as_tensor(s, v[0], DT_COUNT, *(Span *)ud);
  gr_output(s->stage->g, stage_lift(s, x, *(Span *)ud).u.v);
  return x;
}

typedef struct Fill {
  const Val *vals;
  size_t next;
} Fill;

static Value fill_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Fill *f = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Value r = {.tag = V_NODE, .aux = s->stage->level};
  r.u.v = f->vals[f->next++];
  return r;
}

/* The result of a mapped region, in the structure that it has inside of the region. */
static Value mapped(Session *s, const Stage *st, Value result, size_t k, const Value *rows, Dim n,
                    Span at) {
  Fill f = {region_map(s, st, k, rows, &n, true, at), 0};
  return tree_map(s, 1, &result, fill_leaf, &f, at);
}

/* ---- vmap */

/* The arguments of vmap: trees whose tensors have the axis, or lists of one element each. */
typedef struct Rows {
  Session *s;
  Span at;
  Value *rows; /* the tensors in them, in order */
  size_t count, cap, next;
  size_t argument; /* the present one, from 1 */
  const Stage *st; /* in which elements are inputs */
  int64_t i;       /* the present element, of those that run in order */
} Rows;

static bool is_list(Value v) {
  return v.tag == V_LIST && !v_is_weak_list(v);
}

static bool has_parts(Value v) {
  return is_list(v) || v.tag == V_TUPLE || v.tag == V_RECORD || v.tag == V_DICT;
}

/* What is inside of a tree, and the same for each element. */
static bool stays(Value v) {
  return v.tag == V_NONE || tree_structure(v, ".");
}

static void find_rows(Rows *r, Value v, bool part) {
  stack_check();
  Session *s = r->s;
  size_t n;
  const Value *items = has_parts(v) ? value_items(v, &n) : NULL;
  for (size_t i = 0; items && i < n; i++) find_rows(r, items[i], true);
  if (items || has_parts(v) || (part && stays(v))) return;
  if (v.tag == V_INST)
    fail_help(s, ERR_WANT_TENSOR, r->at, "a list of models gives one after the other",
              "`vmap` goes over a leading axis, and argument %zu %s a model", r->argument,
              part ? "has" : "is");
  v = op_as_tensor(s, v, DT_COUNT, r->at);
  if (!op_type_of(s, v).rank)
    fail_at(s, ERR_RANK, r->at, "`vmap` goes over a leading axis, %sargument %zu is a scalar",
            part ? "a part of " : "", r->argument);
  VEC_PUSH(&s->scratch, r->rows, r->count, r->cap, v);
}

/* v with an element in place of each of its tensors: an input of the region, or element i. */
static Value element_of(Rows *r, Value v) {
  stack_check();
  Session *s = r->s;
  size_t n;
  Value *items = has_parts(v) ? value_parts(s, v, &n) : NULL;
  if (items) {
    for (size_t i = 0; i < n; i++) items[i] = element_of(r, items[i]);
    return value_like(s, v, items);
  }
  if (has_parts(v) || stays(v)) return v;
  Value row = r->rows[r->next++];
  if (!r->st) return op_element(s, row, r->i, r->at);
  Type t = op_type_of(s, row);
  t.rank--;
  memmove(t.dim, t.dim + 1, sizeof(Dim) * t.rank);
  Value e = {.tag = V_NODE, .aux = r->st->level};
  e.u.v = gr_input(r->st->g, &t);
  return e;
}

static _Noreturn void rows_differ(Session *s, Span at) {
  fail_at(s, ERR_SHAPE_BATCH, at, "the leading axes of the arguments of `vmap` differ");
}

/* The size of the axis that all tensors have. */
static Dim rows_size(const Rows *r) {
  Session *s = r->s;
  Dim n = op_type_of(s, r->rows[0]).dim[0];
  for (size_t i = 1; i < r->count; i++) {
    Dim d = op_type_of(s, r->rows[i]).dim[0];
    if (d == n) continue;
    if (dim_compare(op_dims_of(s), d, n) == DIM_DIFFERENT) rows_differ(s, r->at);
    gr_check(s->stage->g, CHECK_EQ, d, n, "the leading axes of the arguments of `vmap` differ");
  }
  return n;
}

static Value stack_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  return op_stack(s, n, v, 0, *(Span *)ud);
}

/* Lists have elements of any kind, models too: a call for each, and the results stacked. */
static Value vmap_in_order(Rows *r, Value f, size_t k, const Value *args) {
  Session *s = r->s;
  int64_t n = -1, size;
  for (size_t i = 0; i < k; i++) {
    if (!is_list(args[i])) continue;
    if (n >= 0 && n != (int64_t)args[i].u.list->count) rows_differ(s, r->at);
    n = (int64_t)args[i].u.list->count;
  }
  if (!n) fail_at(s, ERR_SHAPE_BATCH, r->at, "`vmap` of an empty list has no result");
  for (size_t i = 0; i < r->count; i++) {
    unit_need_const(s, op_type_of(s, r->rows[i]).dim[0], r->at, "the number of elements", &size);
    if (size != n) rows_differ(s, r->at);
  }
  Value *elem = ARENA_ARRAY(&s->scratch, Value, k + 1), *y = ARENA_ARRAY(&s->scratch, Value, n);
  Element *element = elements_start(s);
  for (r->i = 0; r->i < n; r->i++) {
    count_step(s, r->at);
    element_enter(s, element);
    r->next = 0;
    for (size_t i = 0; i < k; i++)
      elem[i] = is_list(args[i]) ? args[i].u.list->items[r->i] : element_of(r, args[i]);
    y[r->i] = call_simple(s, f, k, elem, r->at);
    element_leave(s, element);
  }
  elements_end(s, element);
  return tree_map(s, (size_t)n, y, stack_leaf, &r->at, r->at);
}

BUILTIN_FN(bi_vmap) {
  if (!s->stage) fail_at(s, ERR_BUG, c->at, "_vmap outside code");
  Value xs = c->v[1];
  bool several = xs.tag == V_TUPLE, lists = false;
  size_t k = several ? xs.u.list->count : 1;
  const Value *args = several ? xs.u.list->items : &xs;
  Rows r = {.s = s, .at = c->at};
  for (r.argument = 1; r.argument <= k; r.argument++) {
    Value v = args[r.argument - 1];
    if (!tree_known(s, v)) return (Value){.tag = V_UNKNOWN};
    lists |= is_list(v);
    if (!is_list(v)) find_rows(&r, v, false);
  }
  if (lists) return vmap_in_order(&r, c->v[0], k, args);
  if (!r.count)
    fail_at(s, ERR_SHAPE_BATCH, c->at, "`vmap` goes over a leading axis, and there is no tensor");
  Dim n = rows_size(&r);
  Value *elem = ARENA_ARRAY(&s->scratch, Value, k + 1);
  Stage st;
  region_open(s, &st, NULL);
  st.batched = true;
  r.st = &st;
  for (size_t i = 0; i < k; i++) elem[i] = element_of(&r, args[i]);
  Value y = call_simple(s, c->v[0], k, elem, c->at);
  y = tree_map(s, 1, &y, output_leaf, &c->at, c->at);
  stage_pop(s);
  return mapped(s, &st, y, r.count, r.rows, n, c->at);
}

/* Row by row: the gradient of <gradient, e> for every basis vector e. */
BUILTIN_FN(bi_hessian) {
  if (!s->stage) fail_at(s, ERR_BUG, c->at, "_hessian outside code");
  Value x0 = op_as_tensor(s, c->v[1], DT_COUNT, c->at);
  Type t = op_type_of(s, x0);
  if (2 * t.rank > CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, c->at, "a tensor has at most %d axes", CKL_MAX_RANK);
  DimTab *dt = op_dims_of(s);
  Dim n = dim_product(dt, t.rank, t.dim);
  Value i = op_iota(s, n, DT_I64, c->at);
  Dim col[2] = {n, dim_const(dt, 1)}, sq[2] = {n, n}, rows_d[1 + CKL_MAX_RANK],
      out_d[2 * CKL_MAX_RANK];
  Value eq[2] = {op_broadcast(s, op_reshape(s, i, 2, col, c->at), 2, sq, c->at),
                 op_broadcast(s, i, 2, sq, c->at)};
  Value basis = op_cast(s, op_run(s, OP_EQ, 2, eq, NULL, 0, c->at), (DType)t.dtype, c->at);
  rows_d[0] = n;
  for (int k = 0; k < t.rank; k++) {
    rows_d[1 + k] = t.dim[k];
    out_d[k] = out_d[t.rank + k] = t.dim[k];
  }
  basis = op_reshape(s, basis, t.rank + 1, rows_d, c->at);
  Stage st;
  region_open(s, &st, NULL);
  st.batched = true;
  Value e = {.tag = V_NODE, .aux = st.level};
  e.u.v = gr_input(st.g, &t);
  Value x = fresh(s, x0, c->at), y = code_call(s, c->v[0], x, c->at);
  check_loss(s, y, c->at);
  Value g = code_gradient(s, y, one_like(s, y, c->at), x, 0, c->at);
  Value trees[2] = {g, e};
  Dot d = {c->at, v_unit()};
  tree_map(s, 2, trees, dot_leaf, &d, c->at);
  Value h = code_gradient(s, d.sum, one_like(s, d.sum, c->at), x, 0, c->at);
  h = tree_map(s, 1, &h, output_leaf, &c->at, c->at);
  stage_pop(s);
  h = mapped(s, &st, h, 1, &basis, n, c->at);
  return op_reshape(s, h, 2 * t.rank, out_d, c->at);
}

/* ---- gradcheck */

static double scalar_of(Session *s, Value v, Span at) {
  check_loss(s, v, at);
  return tn_get_f64(op_tensor_of(s, v, at), 0);
}

BUILTIN_FN(bi_gradcheck) {
  Value f = c->v[0], x = c->v[1];
  double tol = want_float(s, c->v[2], c->spans[2], "`tol`"),
         eps = want_float(s, c->v[3], c->spans[3], "`eps`");
  if (v_is_weak_list(x)) x = op_as_tensor(s, x, DT_F64, c->spans[1]);
  if (!v_is_tensor(x))
    fail_at(s, ERR_GRAD_WRT, c->spans[1], "`gradcheck` takes a tensor, not %s",
            value_type_text(s, x));
  Tensor *t = op_tensor_of(s, x, c->at);
  if (t->dtype != DT_F64)
    fail_help(s, ERR_WANT_FLOAT, c->spans[1],
              fail_text(s, "cast it: `f64(%s)`", fail_source_text(s, c->spans[1], "..")),
              "`gradcheck` needs f64, this is %s", value_type_text(s, x));
  if (f.tag == V_FN && !f.u.fn->is_code)
    fail_at(s, ERR_SCRIPT_ONLY, c->spans[0], "`gradcheck` takes code, this function is a proc");
  Value p = v_param(s, tn_copy(&s->mem, t, t->store->dev), NULL, true);
  Value y = call_simple(s, f, 1, &p, c->at);
  check_loss(s, y, c->at);
  if (y.tag == V_TENSOR && !y.u.t->node)
    fail_at(s, ERR_NOT_TRACKED, c->spans[0], "the function does not depend on its argument");
  Value g = tape_grad(s, y, one_like(s, y, c->at), p, false, (Take){NULL, false}, c->at);
  Tensor *gt = op_tensor_of(s, g, c->at);
  int64_t n = tn_count(t);
  for (int64_t i = 0; i < n; i++) {
    size_t mark = mem_pool_mark(&s->mem);
    fail_if_interrupted(s, c->at);
    double h, lo, hi, at0 = tn_get_f64(t, i), step = eps * (1.0 + fabs(at0));
    Value q = v_tensor(s, tn_copy(&s->mem, t, t->store->dev));
    double *d = tn_data(q.u.t->t);
    bool old = s->modes.no_grad;
    s->modes.no_grad = true;
    d[i] = at0 + step;
    hi = scalar_of(s, call_simple(s, f, 1, &q, c->at), c->at);
    Value q2 = v_tensor(s, tn_copy(&s->mem, t, t->store->dev));
    ((double *)tn_data(q2.u.t->t))[i] = at0 - step;
    lo = scalar_of(s, call_simple(s, f, 1, &q2, c->at), c->at);
    s->modes.no_grad = old;
    h = (hi - lo) / (2 * step);
    double a = tn_get_f64(gt, i), scale = fmax(1.0, fmax(fabs(a), fabs(h)));
    if (!(fabs(a - h) <= tol * scale))
      fail_at(s, ERR_GRADCHECK, c->at,
              "the gradient at element %lld is %.10g, central differences give %.10g", (long long)i,
              a, h);
    mem_pool_drain(&s->mem, mark);
  }
  return v_bool(true);
}
