/* Builtins: gradients, trees, state of models.
 *
 * In: values of script or code. In code a gradient is a graph transformation (autograd/), in script
 * it walks the tape (tape.c). vjp, jvp, hessian and vmap are code; the prelude's functions of these
 * names call the builtins with an underscore, so that script reaches them through compiled calls.
 */
#include <math.h>
#include <string.h>

#include "autograd/autograd.h"
#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/tape/callback.h"
#include "lang/checkpoint/policy.h"
#include "lang/tape/tape.h"
#include "lang/value/state_walk.h"

/* The argument nodes of a raw call: receiver first, then by position; named ones by name. */
static size_t raw_args(Session *s, Call *c, Node **out, size_t most, const char *const *names) {
  Node *call = c->node, *callee = call->call.callee;
  size_t n = 0;
  memset(out, 0, most * sizeof *out);
  if (callee->kind == N_DOT &&
      !(callee->dot.object->kind == N_NAME &&
        name_value(s, callee->dot.object->name, callee->dot.object->span, false).tag == V_MODULE))
    out[n++] = callee->dot.object;
  for (uint32_t i = 0; i < call->call.args.count; i++) {
    Node *a = call->call.args.items[i];
    size_t k = n;
    if (a->arg.name.name) {
      for (k = 0; k < most; k++)
        if (!strcmp(names[k], a->arg.name.name)) break;
      if (k == most)
        fail_help(s, ERR_ARG_NAME, a->span,
                  txt(s, "its signature is %s%s", c->b->name, c->b->signature),
                  "`%s` has no parameter `%s`", c->b->name, a->arg.name.name);
    } else
      n++;
    if (k >= most) fail(s, ERR_ARG_COUNT, a->span, "`%s` takes fewer arguments", c->b->name);
    if (out[k]) fail(s, ERR_TWICE, a->span, "the argument `%s` is given twice", names[k]);
    out[k] = a->arg.value;
  }
  return n;
}

static Value eval_ref(Session *s, Node *n) {
  bool old = s->by_reference;
  s->by_reference = true;
  Value v = eval(s, n);
  s->by_reference = old;
  return v;
}

/* ---- grad in code */

typedef struct Wrt {
  Session *s;
  Span at;
  Val *vals;
  size_t count, cap;
  int *as; /* per value: the one it counts for */
  size_t as_cap;
  Val *dx;
  size_t next;
  bool unreached;
  bool hooks; /* those of params run */
} Wrt;

static void wrt_push(Wrt *w, Val v, size_t as) {
  size_t n = w->count;
  VEC_PUSH(&w->s->scratch, w->as, n, w->as_cap, (int)as);
  VEC_PUSH(&w->s->scratch, w->vals, w->count, w->cap, v);
}

static Value wrt_collect(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Wrt *w = ud;
  (void)n;
  (void)path;
  Value x = v[0];
  if (x.tag == V_NONE) return x;
  if (x.tag == V_PARAM) {
    if (x.u.p->frozen)
      fail_help(s, ERR_GRAD_FROZEN, w->at, "`unfreeze` it, or take the gradient by what trains",
                "a frozen param has no gradient");
    State *st = unit_state(s, x.u.p, NULL);
    if (!st) fail(s, ERR_BUG, w->at, "a param reached code without being an argument");
    if (s->stage->level > 1)
      fail_help(s, ERR_NOT_YET, w->at,
                "one by one in script: `for i in 0..n { gs = push(gs, grad(..)) }`",
                "not yet: a gradient by params inside a comprehension");
    size_t first = w->count;
    for (size_t i = 0; i < st->version_count; i++) wrt_push(w, st->versions[i], first);
    return x;
  }
  if (x.tag != V_NODE || x.weak || !dt_float((DType)type_of(s, x).dtype)) {
    if (x.tag == V_UNKNOWN) return x;
    fail(s, ERR_GRAD_WRT, w->at, "a gradient by %s does not exist: floats only",
         value_type_text(s, x));
  }
  wrt_push(w, stage_lift(s, x, w->at).u.v, w->count);
  return x;
}

static Value zero_node(Session *s, const Type *t) {
  Value z = {.tag = V_NODE, .aux = s->stage->level};
  B b = {.g = s->stage->g};
  z.u.v = b_zeros(&b, t);
  return z;
}

static Value wrt_result(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Wrt *w = ud;
  (void)n;
  (void)path;
  Value x = v[0];
  if (x.tag == V_NONE || x.tag == V_UNKNOWN) return x;
  size_t k = 1;
  Type t;
  if (x.tag == V_PARAM) {
    State *st = unit_state(s, x.u.p, NULL);
    k = st->version_count;
    t = *gr_type(s->stage->g, st->versions[0]);
  } else
    t = type_of(s, x);
  Value g = {.tag = V_NODE, .aux = s->stage->level, .u.v = w->dx[w->next]};
  w->next += k;
  if (val_none(g.u.v)) {
    int64_t size = 1;
    for (int i = 0; i < t.rank && size; i++)
      if (!dim_is_const(s->stage->g->dims, t.dim[i], &size)) size = 1;
    w->unreached |= size != 0; /* of no elements: a bias that is not there */
    return zero_node(s, &t);
  }
  return w->hooks && x.tag == V_PARAM ? host_param_gradient(s, x.u.p, g, w->at) : g;
}

/* What a gradient is taken of: values with their cotangents. */
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

/* Hooks of params run; no warning of what is not reached. */
enum { GRAD_HOOKS = 1, GRAD_MAY_BE_ZERO = 2 };

/* The gradient by the leaves of wrt. */
static Value seeds_gradient(Session *s, const Seeds *d, Value wrt, unsigned how, Span at) {
  bool hooks = how & GRAD_HOOKS;
  Wrt w = {.s = s, .at = at, .hooks = hooks};
  tree_map(s, 1, &wrt, wrt_collect, &w, at);
  w.dx = ARENA_ARRAY(&s->scratch, Val, w.count + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {0};
  host_seen(s, true, at);
  stage_at(s, at);
  if (!ad_vjp_as(s->stage->g, (int)d->count, d->y, d->dy, (int)w.count, w.vals, w.as, w.dx, &e,
                 &where))
    fail_gerr(s, where.span.file ? where.span : at, &e);
  host_seen(s, false, at);
  stage_at(s, at);
  if (s->stage->unit && s->stage->unit->eval_dropout.file && !s->stage->unit->check)
    warn_eval_dropout(s, s->stage->unit->eval_dropout);
  Value r = tree_map(s, 1, &wrt, wrt_result, &w, at);
  if (w.unreached && !(how & GRAD_MAY_BE_ZERO) && !s->abstract &&
      !(s->stage->unit && s->stage->unit->outside))
    warn_once(s, ERR_GRAD_UNREACHED, at,
              "the loss does not depend on all of what the gradient is taken by: those are zero");
  return r;
}

/* Of y alone. */
static Value code_gradient(Session *s, Value y, Value dy, Value wrt, unsigned how, Span at) {
  Seeds d = {.s = s, .at = at};
  seed_push(&d, y, dy);
  return seeds_gradient(s, &d, wrt, how, at);
}

static Value one_like(Session *s, Value y, Span at) { return op_fill_like(s, y, 1.0, at); }

static Value same_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)s, (void)ud, (void)n, (void)path;
  return v[0];
}

static void check_loss(Session *s, Value y, Span at) {
  if (!v_is_tensor(y))
    fail(s, ERR_GRAD_LOSS, at, "the loss must be a rank-0 float tensor, not %s",
         value_type_text(s, y));
  Type t = type_of(s, y);
  if (!dt_float((DType)t.dtype))
    fail(s, ERR_GRAD_LOSS, at, "the loss must be float, this is %s", value_type_text(s, y));
  if (t.rank)
    fail_help(s, ERR_GRAD_LOSS, at,
              "sum(..) or mean(..) makes a scalar; vjp(f, x, cotangent) takes a cotangent",
              "the loss must be a rank-0 tensor, this is %s", value_type_text(s, y));
}

BUILTIN_FN(bi_grad) {
  static const char *const names[] = {"loss", "wrt", "record", "last"};
  Node *a[4];
  raw_args(s, c, a, 4, names);
  if (!a[0] || !a[1])
    fail_help(s, ERR_ARG_COUNT, c->at, "grad(loss, wrt)",
              "`grad` takes a loss and what to differentiate by");
  /* the loss of loss.grad(..) is evaluated already */
  Value y = c->n ? c->v[0] : eval(s, a[0]), wrt = eval_ref(s, a[1]);
  bool record = a[2] && want_bool(s, eval(s, a[2]), a[2]->span, "`record`");
  bool last = a[3] && want_bool(s, eval(s, a[3]), a[3]->span, "`last`");
  if (y.tag == V_UNKNOWN || wrt.tag == V_UNKNOWN)
    return wrt.tag == V_UNKNOWN ? wrt : tree_map(s, 1, &wrt, same_leaf, NULL, c->at);
  check_loss(s, y, a[0]->span);
  if (wrt.tag == V_INST && s->stage) wrt = params_tree(s, wrt.u.inst, false);
  if (s->abstract) return tree_map(s, 1, &wrt, same_leaf, NULL, c->at);
  if (v_is_number(wrt)) fail(s, ERR_GRAD_WRT, a[1]->span, "a gradient by a number does not exist");
  if (!s->stage) {
    if (y.tag == V_TENSOR && !y.u.t->node)
      fail_help(s, ERR_NOT_TRACKED, a[0]->span,
                "params and track(x) are tracked, outside wrap <no_grad>",
                "the loss does not depend on anything that is tracked");
    if (wrt.tag == V_PARAM && wrt.u.p->frozen)
      fail_help(s, ERR_GRAD_FROZEN, a[1]->span,
                "`unfreeze` it, or take the gradient by what trains",
                "a frozen param has no gradient");
    record |= is_capsule(s->frame->fn); /* of code, though it runs as script: it nests */
    return tape_grad(s, y, one_like(s, y, c->at), wrt, record, (Take){a[0], last}, a[1]->span);
  }
  block_grad(s, y, a[0]->span);
  Value g = code_gradient(s, y, one_like(s, y, c->at), wrt, GRAD_HOOKS, a[1]->span);
  host_end(s, c->at);
  return g;
}

/* ---- vjp and friends in code */

static Value alias_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  Span at = *(Span *)ud;
  if (v[0].tag == V_NONE) return v[0];
  Value x = as_tensor(s, v[0], DT_COUNT, at);
  if (!dt_float((DType)type_of(s, x).dtype))
    fail(s, ERR_GRAD_WRT, at, "a derivative by %s does not exist: floats only",
         value_type_text(s, x));
  return op_run(s, OP_ALIAS, 1, &x, NULL, 0, at);
}

static Value fresh(Session *s, Value x, Span at) {
  return tree_map(s, 1, &x, alias_leaf, &at, at);
}

static Value code_call(Session *s, Value f, Value x, Span at) {
  return as_tensor(s, call_simple(s, f, 1, &x, at), DT_COUNT, at);
}

static Value like(Session *s, Value ct, Value y, Span at, const char *what) {
  ct = as_tensor(s, ct, (DType)type_of(s, y).dtype, at);
  Type a = type_of(s, ct), b = type_of(s, y);
  bool ok = a.dtype == b.dtype && a.rank == b.rank;
  for (int i = 0; ok && i < a.rank; i++)
    ok = dim_compare(dims_of(s), a.dim[i], b.dim[i]) != DIM_DIFFERENT;
  if (!ok)
    fail(s, ERR_COTANGENT, at, "the %s must be %s, this is %s", what, value_type_text(s, y),
         value_type_text(s, ct));
  return ct;
}

/* Whether a result has a gradient: tensors of floats, and a result that stands alone. */
static bool has_gradient(Session *s, Value y) {
  return v_is_tensor(y) && !y.weak && dt_float((DType)type_of(s, y).dtype);
}

/* f(x): one tensor, or a tree. */
static Value results_of(Session *s, Value f, Value x, Span at) {
  Value y = call_simple(s, f, 1, &x, at);
  bool tree = y.tag == V_TUPLE || y.tag == V_RECORD || (y.tag == V_LIST && !y.u.list->weak);
  return tree || y.tag == V_UNKNOWN ? y : as_tensor(s, y, DT_COUNT, at);
}

static Value seed_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Seeds *d = ud;
  (void)n;
  const char *what = *path ? txt(s, "cotangent of `%s`", path) : "cotangent";
  if (!has_gradient(s, v[0]))
    fail(s, ERR_COTANGENT, d->at, "the %s must be none: %s has no gradient", what,
         value_type_text(s, v[0]));
  seed_push(d, v[0], like(s, v[1], v[0], d->at, what));
  return v[0];
}

static size_t parts_of(Value v) {
  return v.tag == V_RECORD ? v.u.rec->count : v.u.list->count;
}

/* One cotangent for each result, in the results' structure; `none` stands for zero. */
BUILTIN_FN(bi_vjp) {
  if (!s->stage) fail(s, ERR_BUG, c->at, "_vjp outside code");
  Value x = fresh(s, c->v[1], c->at), y = results_of(s, c->v[0], x, c->at), ct = c->v[2];
  if (!tree_known(s, y) || !tree_known(s, ct)) return (Value){.tag = V_UNKNOWN};
  bool parts = y.tag == V_TUPLE || y.tag == V_RECORD || y.tag == V_LIST;
  if (parts && ct.tag == y.tag && parts_of(y) != parts_of(ct))
    fail(s, ERR_COTANGENT, c->at, "the function gives %zu results, here are %zu cotangents",
         parts_of(y), parts_of(ct));
  Seeds d = {.s = s, .at = c->at};
  Value trees[2] = {y, ct};
  tree_map(s, 2, trees, seed_leaf, &d, c->at);
  Value r[2] = {y, seeds_gradient(s, &d, x, 0, c->at)};
  return list_value(s, V_TUPLE, 2, r);
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
  Type ty = type_of(s, p);
  int64_t axes[CKL_MAX_RANK];
  for (int i = 0; i < ty.rank; i++) axes[i] = i;
  if (ty.rank) p = op_reduce(s, OP_SUM, p, ty.rank, axes, false, d->at);
  d->sum = d->sum.tag == V_UNIT
               ? p
               : op_broadcast_binary(s, OP_ADD, d->sum, p, d->at, d->at, d->at);
  return v[0];
}

/* Of the nodes of a gradient since `from`: those of hooks, in which it has no derivative. */
static void refuse_hooks(Session *s, uint32_t from, Span at) {
  const Graph *g = s->stage->g;
  for (uint32_t n = from; n < g->node_count; n++) {
    if (g->nodes[n].op != OP_DEFER || gr_attr_i(g, n, AT_INDEX, -1) < 0) continue;
    Diag *d = err(s, ERR_GRAD_NONE, at,
                  "a forward derivative goes through a hook, which is called with gradients only");
    dg_label(&s->diags, d, g->provs[g->nodes[n].prov].span, "the hook is here");
    dg_help(&s->diags, d, "`vjp` and `grad` call hooks; before `jvp`, `.remove()` the hook or "
                          "leave out the `on_grad`");
    raise_(s);
  }
}

/* A cotangent to differentiate by, for each result that has a gradient. */
static Value along_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Seeds *d = ud;
  (void)n, (void)path;
  if (v[0].tag == V_UNKNOWN) return v[0];
  if (!has_gradient(s, v[0])) return v_none();
  Type t = type_of(s, v[0]);
  Value u = fresh(s, zero_node(s, &t), d->at);
  seed_push(d, v[0], u);
  return u;
}

/* The derivative along t, by differentiating the vjp by its cotangents, in which it is linear
 * (the double-vjp form of forward mode). It has the structure of the results. */
BUILTIN_FN(bi_jvp) {
  if (!s->stage) fail(s, ERR_BUG, c->at, "_jvp outside code");
  Value x = fresh(s, c->v[1], c->at), y = results_of(s, c->v[0], x, c->at);
  if (!tree_known(s, y)) return (Value){.tag = V_UNKNOWN};
  Seeds d = {.s = s, .at = c->at};
  Value u = tree_map(s, 1, &y, along_leaf, &d, c->at);
  uint32_t from = (uint32_t)s->stage->g->node_count;
  Value g = seeds_gradient(s, &d, x, 0, c->at);
  refuse_hooks(s, from, c->at);
  Value trees[2] = {g, c->v[2]};
  Dot dot = {c->at, v_unit()};
  tree_map(s, 2, trees, dot_leaf, &dot, c->at);
  if (dot.sum.tag == V_UNIT)
    fail(s, ERR_GRAD_WRT, c->at, "a derivative along nothing: the tangent has no leaf");
  Value r[2] = {y, code_gradient(s, dot.sum, one_like(s, dot.sum, c->at), u, GRAD_MAY_BE_ZERO,
                                 c->at)};
  return list_value(s, V_TUPLE, 2, r);
}

static Value output_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  if (v[0].tag == V_NONE || tree_text(v[0], path)) return v[0];
  Value x = as_tensor(s, v[0], DT_COUNT, *(Span *)ud);
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
  if (v[0].tag == V_NONE || tree_text(v[0], path)) return v[0];
  Value r = {.tag = V_NODE, .aux = s->stage->level};
  r.u.v = f->vals[f->next++];
  return r;
}

/* The result of a region that was mapped, in the structure it has inside. */
static Value mapped(Session *s, const Stage *st, Value result, size_t k, const Value *rows, Dim n,
                    Span at) {
  Fill f = {region_map(s, st, k, rows, &n, true, at), 0};
  return tree_map(s, 1, &result, fill_leaf, &f, at);
}

BUILTIN_FN(bi_vmap) {
  if (!s->stage) fail(s, ERR_BUG, c->at, "_vmap outside code");
  Value xs = c->v[1];
  size_t k = xs.tag == V_TUPLE ? xs.u.list->count : 1;
  Value *rows = ARENA_ARRAY(&s->scratch, Value, k + 1),
        *elem = ARENA_ARRAY(&s->scratch, Value, k + 1);
  Dim n = DIM_BAD;
  Type *types = ARENA_ARRAY(&s->scratch, Type, k + 1);
  for (size_t i = 0; i < k; i++) {
    rows[i] = as_tensor(s, xs.tag == V_TUPLE ? xs.u.list->items[i] : xs, DT_COUNT, c->at);
    types[i] = type_of(s, rows[i]);
    if (!types[i].rank)
      fail(s, ERR_RANK, c->at, "`vmap` goes over a leading axis, argument %zu is a scalar", i + 1);
    if (i && types[i].dim[0] != n && dim_compare(dims_of(s), types[i].dim[0], n) == DIM_DIFFERENT)
      fail(s, ERR_SHAPE_BATCH, c->at, "the leading axes of the arguments of `vmap` differ");
    if (i && types[i].dim[0] != n)
      gr_check(s->stage->g, CHECK_EQ, types[i].dim[0], n,
               "the leading axes of the arguments of `vmap` differ");
    if (!i) n = types[i].dim[0];
  }
  Stage st;
  region_open(s, &st, NULL);
  for (size_t i = 0; i < k; i++) {
    Type t = types[i];
    t.rank--;
    memmove(t.dim, t.dim + 1, sizeof(Dim) * t.rank);
    elem[i] = (Value){.tag = V_NODE, .aux = st.level};
    elem[i].u.v = gr_input(st.g, &t);
  }
  Value y = call_simple(s, c->v[0], k, elem, c->at);
  y = tree_map(s, 1, &y, output_leaf, &c->at, c->at);
  stage_pop(s);
  return mapped(s, &st, y, k, rows, n, c->at);
}

/* Row by row: the gradient of <gradient, e> for every basis vector e. */
BUILTIN_FN(bi_hessian) {
  if (!s->stage) fail(s, ERR_BUG, c->at, "_hessian outside code");
  Value x0 = as_tensor(s, c->v[1], DT_COUNT, c->at);
  Type t = type_of(s, x0);
  if (2 * t.rank > CKL_MAX_RANK)
    fail(s, ERR_RANK_MAX, c->at, "a tensor has at most %d axes", CKL_MAX_RANK);
  DimTab *dt = dims_of(s);
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

/* ---- small words */

static Value stop_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (!v_is_tensor(v[0])) return v[0];
  if (!s->stage && v[0].tag == V_PARAM) return tensor_value(s, tn_ref(v[0].u.p->t));
  if (!s->stage) return detach(s, v[0]);
  Value x = as_tensor(s, v[0], DT_COUNT, *(Span *)ud);
  return op_run(s, OP_STOP, 1, &x, NULL, 0, *(Span *)ud);
}

BUILTIN_FN(bi_stop) {
  return tree_map(s, 1, &c->v[0], stop_leaf, &c->at, c->at);
}

static Value track_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  Span at = *(Span *)ud;
  if (tree_text(v[0], path)) return v[0];
  Value x = as_tensor(s, v[0], DT_COUNT, at);
  if (s->abstract) return x;
  Tensor *t = tensor_of(s, x, at);
  if (!dt_float(t->dtype))
    fail_help(s, ERR_WANT_FLOAT, at, "cast it: `track(f32(..))`",
              "`track` works on floats, this is %s", value_type_text(s, x));
  return param_value(s, tn_copy(&s->mem, t, t->store->dev), NULL, true);
}

BUILTIN_FN(bi_track) {
  Value x = c->v[0].tag == V_LIST && c->v[0].u.list->weak ? as_tensor(s, c->v[0], DT_COUNT, c->at)
                                                          : c->v[0];
  return tree_map(s, 1, &x, track_leaf, &c->at, c->at);
}

BUILTIN_FN(bi_training) {
  if (s->stage) s->stage->unit->modal = true;
  (void)c;
  return v_bool(s->modes.train);
}

BUILTIN_FN(bi_same) {
  (void)s;
  return v_bool(value_same(c->v[0], c->v[1]));
}

BUILTIN_FN(bi_later) {
  fail(s, ERR_NOT_YET, c->at, "not yet: `%s`", c->b->name);
}

static Value copy_value(Session *s, Value v, Span at);

static Value copy_inst(Session *s, Inst *i, Span at) {
  Value r = inst_value(s, i->model, i->count);
  for (size_t k = 0; k < i->count; k++) {
    r.u.inst->fields[k] = (Field){i->fields[k].name, i->fields[k].kind, v_unit()};
    Value v = i->fields[k].v;
    /* instances that came as arguments are shared, children are copied */
    if (i->fields[k].kind != FIELD_ARG) v = copy_value(s, v, at);
    value_set(&r.u.inst->fields[k].v, v);
    if (i->fields[k].kind == FIELD_ARG || i->fields[k].kind == FIELD_LET)
      obj_holds(r.u.o, v);
  }
  value_set(&r.u.inst->policy, i->policy);
  return r;
}

static Value copy_value(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_INST) return copy_inst(s, v.u.inst, at);
  if (v.tag == V_PARAM) {
    Value p = param_value(s, tn_copy(&s->mem, v.u.p->t, v.u.p->t->store->dev), v.u.p->name,
                          v.u.p->tracked);
    p.u.p->frozen = v.u.p->frozen;
    return p;
  }
  if (v.tag == V_TENSOR) return tensor_value(s, tn_copy(&s->mem, v.u.t->t, v.u.t->t->store->dev));
  if (v.tag == V_LIST || v.tag == V_TUPLE) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    for (size_t i = 0; i < v.u.list->count; i++) items[i] = copy_value(s, v.u.list->items[i], at);
    Value r = list_value(s, (ValueTag)v.tag, v.u.list->count, items);
    r.u.list->weak = v.u.list->weak;
    return r;
  }
  if (v.tag == V_RECORD) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.rec->count + 1);
    for (size_t i = 0; i < v.u.rec->count; i++) items[i] = copy_value(s, v.u.rec->items[i], at);
    return record_value(s, v.u.rec->count, v.u.rec->names, items);
  }
  return v;
}

BUILTIN_FN(bi_copy) {
  if (c->v[0].tag == V_PARAM) { /* a snapshot (rule 59) */
    Tensor *t = c->v[0].u.p->t;
    return tensor_value(s, tn_copy(&s->mem, t, t->store->dev));
  }
  return copy_value(s, c->v[0], c->at);
}

/* ---- params */

typedef struct Freeze {
  Session *s;
  const char *glob;
  bool on;
  size_t hits;
} Freeze;

static void freeze_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  (void)owner, (void)f;
  Freeze *z = ud;
  if (!p || !path_fits(s, z->glob, path)) return;
  p->frozen = z->on;
  z->hits++;
}

BUILTIN_FN(bi_freeze) {
  if (c->v[0].tag == V_PARAM) {
    c->v[0].u.p->frozen = c->b->op != 0;
    return v_unit();
  }
  if (c->v[0].tag != V_INST)
    fail(s, ERR_WANT_MODEL, c->spans[0], "`%s` takes a model, not %s", c->b->name,
         value_type_text(s, c->v[0]));
  Freeze z = {s, c->rest_n ? want_str(s, c->rest[0], c->rest_spans[0], "the glob") : "**",
              c->b->op != 0, 0};
  walk_slots(s, c->v[0], freeze_slot, &z);
  if (!z.hits)
    fail_help(s, ERR_GLOB, c->spans[1],
              "print(paths(net)) shows the paths; `*` is one part, `**` any number",
              "no param matches `%s`", z.glob);
  return v_unit();
}

BUILTIN_FN(bi_params) {
  static const char *const names[] = {"net"};
  Node *a[1];
  raw_args(s, c, a, 1, names);
  if (!a[0]) fail(s, ERR_ARG_COUNT, c->at, "`params` needs the argument `net`");
  /* the receiver of x.params() is evaluated already */
  Value v = c->n ? c->v[0] : eval_ref(s, a[0]);
  if (v.tag == V_UNKNOWN) return v;
  if (v.tag == V_PARAM) return s->stage ? param_read(s, v.u.p, c->at) : v;
  if (v.tag == V_INST) return params_tree(s, v.u.inst, s->stage && !s->by_reference);
  if (v_is_tensor(v)) return v;
  fail(s, ERR_WANT_MODEL, a[0]->span, "`params` takes a model or a tracked tensor, not %s",
       value_type_text(s, v));
}

BUILTIN_FN(bi_buffers) {
  if (c->v[0].tag != V_INST)
    fail(s, ERR_WANT_MODEL, c->spans[0], "`buffers` takes a model, not %s",
         value_type_text(s, c->v[0]));
  return buffers_tree(s, c->v[0].u.inst);
}

typedef struct MapJob {
  Value f;
  Span at;
  bool path;
  Value acc;
} MapJob;

static void want_leaf(Session *s, Value v, Span at) {
  if (v.tag == V_STR || v.tag == V_FN || v.tag == V_BUILTIN || v.tag == V_MODEL ||
      v.tag == V_MODULE || v.tag == V_RANGE)
    fail_help(s, ERR_TREE_LEAF, at,
              "a comprehension goes through a list or range: `[f(x) for x in xs]`",
              "a tree has tensors and numbers as leaves, not %s", value_type_text(s, v));
}

static Value map_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  MapJob *m = ud;
  bool texts = true;
  for (size_t i = 0; i < n; i++) texts = texts && tree_text(v[i], path);
  if (texts || v[0].tag == V_NONE) return v[0];
  want_leaf(s, v[0], m->at);
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 2);
  size_t k = 0;
  if (m->path) args[k++] = str_value(s, path, strlen(path));
  for (size_t i = 0; i < n; i++) args[k++] = v[i];
  Value r = call_simple(s, m->f, k, args, m->at);
  return r.tag == V_LIST && r.u.list->weak ? as_tensor(s, r, DT_COUNT, m->at) : r;
}

/* xs.map(f) is map(xs, f) (rule 9): not what rule 65 says. */
static void want_function_first(Session *s, Call *c) {
  ValueTag f = (ValueTag)c->v[0].tag, x = (ValueTag)c->v[1].tag;
  if ((x == V_FN || x == V_BUILTIN || x == V_DTYPE) && f != V_FN && f != V_BUILTIN &&
      f != V_DTYPE && f != V_INST && f != V_UNKNOWN)
    fail_help(s, ERR_NOT_CALLABLE, c->spans[0],
              txt(s, "`%s(f, xs)`: the function stands first", c->b->name), "%s is not a function",
              value_type_text(s, c->v[0]));
}

static Value map_trees(Session *s, Call *c, bool effects) {
  Value *trees = ARENA_ARRAY(&s->scratch, Value, c->rest_n + 2);
  trees[0] = c->v[1];
  for (size_t i = 0; i < c->rest_n; i++) trees[1 + i] = c->rest[i];
  MapJob m = {.f = c->v[0], .at = c->at, .path = want_bool(s, c->v[3], c->spans[3], "`path`")};
  Value r = tree_map(s, c->rest_n + 1, trees, map_leaf, &m, c->at);
  return effects ? v_unit() : r;
}

BUILTIN_FN(bi_map) {
  want_function_first(s, c);
  if (c->v[1].tag == V_SEQ) {
    if (c->rest_n) fail(s, ERR_ARG_COUNT, c->at, "`map` over a sequence takes one");
    return seq_map(s, c->v[1], c->v[0], c->at);
  }
  return map_trees(s, c, false);
}
BUILTIN_FN(bi_each) {
  want_function_first(s, c);
  return map_trees(s, c, true);
}

static Value fold_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  MapJob *m = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_text(v[0], path)) return v[0];
  want_leaf(s, v[0], m->at);
  Value args[2] = {m->acc, v[0]};
  m->acc = call_simple(s, m->f, 2, args, m->at);
  return v[0];
}

BUILTIN_FN(bi_fold) {
  MapJob m = {.f = c->v[0], .at = c->at, .acc = c->v[1]};
  tree_map(s, 1, &c->v[2], fold_leaf, &m, c->at);
  return m.acc;
}

typedef struct Texts {
  Value *items;
  size_t count, cap;
} Texts;

static Value path_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Texts *t = ud;
  (void)n;
  VEC_PUSH(&s->scratch, t->items, t->count, t->cap, str_value(s, path, strlen(path)));
  return v[0];
}

BUILTIN_FN(bi_paths) {
  Texts t = {0};
  tree_map(s, 1, &c->v[0], path_leaf, &t, c->at);
  return list_value(s, V_LIST, t.count, t.items);
}

static Value update_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Span at = *(Span *)ud;
  (void)n;
  (void)path;
  if (v[0].tag == V_NONE || v[1].tag == V_NONE || v[0].tag == V_UNKNOWN || v[1].tag == V_UNKNOWN)
    return v[0];
  if (v[0].tag == V_PARAM) {
    param_write(s, v[0].u.p, v[1], at);
    return v[0];
  }
  if (v[0].tag == V_NODE) { /* `check`: shapes are compared */
    Type a = type_of(s, v[0]),
         b = type_of(s, as_tensor(s, v[1], (DType)type_of(s, v[0]).dtype, at));
    bool ok = a.dtype == b.dtype && a.rank == b.rank;
    for (int i = 0; ok && i < a.rank; i++)
      ok = dim_compare(dims_of(s), a.dim[i], b.dim[i]) != DIM_DIFFERENT;
    if (!ok)
      fail(s, ERR_STATE_TYPE, at, "a param is %s and stays so, this is %s",
           value_type_text(s, v[0]), value_type_text(s, v[1]));
    return v[0];
  }
  fail(s, ERR_WANT_MODEL, at, "`update` writes params; this is %s", value_type_text(s, v[0]));
}

/* In script a param of the tree is the param (rule 59): all are read before any is written. */
static Value present_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n, (void)path;
  return v[0].tag == V_PARAM ? tensor_value(s, tn_ref(tensor_of(s, v[0], *(Span *)ud))) : v[0];
}

BUILTIN_FN(bi_update) {
  static const char *const names[] = {"net", "tree"};
  Node *a[2];
  raw_args(s, c, a, 2, names);
  if (!a[0] || !a[1])
    fail_help(s, ERR_ARG_COUNT, c->at, "update(net, tree)", "`update` takes a model and a tree");
  Value t[2] = {c->n ? c->v[0] : eval_ref(s, a[0]), v_unit()};
  t[1] = eval(s, a[1]);
  if (t[0].tag == V_UNKNOWN || t[1].tag == V_UNKNOWN) return v_unit();
  if (!s->stage) t[1] = tree_map(s, 1, &t[1], present_leaf, &c->at, c->at);
  tree_map(s, 2, t, update_leaf, &c->at, c->at);
  return v_unit();
}

/* ---- ravel */

static Value ravel_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Texts *t = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_text(v[0], path)) return v[0];
  Value x = as_tensor(s, v[0], DT_COUNT, (Span){0});
  Type ty = type_of(s, x);
  Dim d = dim_product(dims_of(s), ty.rank, ty.dim);
  x = op_reshape(s, x, 1, &d, (Span){0});
  VEC_PUSH(&s->scratch, t->items, t->count, t->cap, x);
  return v[0];
}

BUILTIN_FN(bi_ravel) {
  Texts t = {0};
  tree_map(s, 1, &c->v[0], ravel_leaf, &t, c->at);
  if (!t.count) fail(s, ERR_TREE, c->at, "the tree has no leaves");
  for (size_t i = 1; i < t.count; i++)
    if (type_of(s, t.items[i]).dtype != type_of(s, t.items[0]).dtype)
      fail(s, ERR_DTYPE_MIX, c->at, "`ravel` needs leaves of one dtype: %s and %s",
           value_type_text(s, t.items[0]), value_type_text(s, t.items[i]));
  return t.count == 1 ? t.items[0] : op_concat(s, t.count, t.items, 0, c->at);
}

typedef struct Unravel {
  Value v;
  Dim at;
  Span span;
} Unravel;

static Value unravel_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Unravel *u = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_text(v[0], path)) return v[0];
  Type t = type_of(s, v[0]);
  DimTab *dt = dims_of(s);
  Dim len = dim_product(dt, t.rank, t.dim);
  int64_t st = u->at, ln = len, sp = 1;
  Attr a[3] = {attr_dims(AT_STARTS, 1, &st), attr_dims(AT_LENS, 1, &ln),
               attr_ints(AT_STEPS, 1, &sp)};
  u->at = dim_add(dt, u->at, len);
  return op_reshape(s, op_run(s, OP_SLICE, 1, &u->v, a, 3, u->span), t.rank, t.dim, u->span);
}

BUILTIN_FN(bi_unravel) {
  Value v = tensor_arg(s, c, 0);
  if (type_of(s, v).rank != 1)
    fail(s, ERR_RANK, c->spans[0], "`unravel` takes a 1-d tensor, this is %s",
         value_type_text(s, v));
  Unravel u = {v, dim_const(dims_of(s), 0), c->at};
  Value r = tree_map(s, 1, &c->v[1], unravel_leaf, &u, c->at);
  if (dim_compare(dims_of(s), u.at, type_of(s, v).dim[0]) == DIM_DIFFERENT)
    fail(s, ERR_TREE, c->at, "the vector and the tree have different numbers of elements");
  return r;
}

/* ---- gradcheck */

static double scalar_of(Session *s, Value v, Span at) {
  check_loss(s, v, at);
  return tn_get_f64(tensor_of(s, v, at), 0);
}

BUILTIN_FN(bi_gradcheck) {
  Value f = c->v[0], x = c->v[1];
  double tol = want_float(s, c->v[2], c->spans[2], "`tol`"),
         eps = want_float(s, c->v[3], c->spans[3], "`eps`");
  if (x.tag == V_LIST && x.u.list->weak) x = as_tensor(s, x, DT_F64, c->spans[1]);
  if (!v_is_tensor(x))
    fail(s, ERR_GRAD_WRT, c->spans[1], "`gradcheck` takes a tensor, not %s", value_type_text(s, x));
  Tensor *t = tensor_of(s, x, c->at);
  if (t->dtype != DT_F64)
    fail_help(s, ERR_WANT_FLOAT, c->spans[1],
              txt(s, "cast it: `f64(%s)`", source_text(s, c->spans[1], "..")),
              "`gradcheck` needs f64, this is %s", value_type_text(s, x));
  if (f.tag == V_FN && !f.u.fn->is_code)
    fail(s, ERR_SCRIPT_ONLY, c->spans[0], "`gradcheck` takes code, this function is a proc");
  Value p = param_value(s, tn_copy(&s->mem, t, t->store->dev), NULL, true);
  Value y = call_simple(s, f, 1, &p, c->at);
  check_loss(s, y, c->at);
  if (y.tag == V_TENSOR && !y.u.t->node)
    fail(s, ERR_NOT_TRACKED, c->spans[0], "the function does not depend on its argument");
  Value g = tape_grad(s, y, one_like(s, y, c->at), p, false, (Take){NULL, false}, c->at);
  Tensor *gt = tensor_of(s, g, c->at);
  int64_t n = tn_count(t);
  for (int64_t i = 0; i < n; i++) {
    size_t mark = mem_pool_mark(&s->mem);
    poll_interrupt(s, c->at);
    double h, lo, hi, at0 = tn_get_f64(t, i), step = eps * (1.0 + fabs(at0));
    Value q = tensor_value(s, tn_copy(&s->mem, t, t->store->dev));
    double *d = tn_data(q.u.t->t);
    bool old = s->modes.no_grad;
    s->modes.no_grad = true;
    d[i] = at0 + step;
    hi = scalar_of(s, call_simple(s, f, 1, &q, c->at), c->at);
    Value q2 = tensor_value(s, tn_copy(&s->mem, t, t->store->dev));
    ((double *)tn_data(q2.u.t->t))[i] = at0 - step;
    lo = scalar_of(s, call_simple(s, f, 1, &q2, c->at), c->at);
    s->modes.no_grad = old;
    h = (hi - lo) / (2 * step);
    double a = tn_get_f64(gt, i), scale = fmax(1.0, fmax(fabs(a), fabs(h)));
    if (!(fabs(a - h) <= tol * scale))
      fail(s, ERR_GRADCHECK, c->at,
           "the gradient at element %lld is %.10g, central differences give %.10g", (long long)i, a,
           h);
    mem_pool_drain(&s->mem, mark);
  }
  return v_bool(true);
}

/* ---- devices */

static Device device_arg(Session *s, Call *c, int i) {
  const char *d = want_str(s, c->v[i], c->spans[i], "the device");
  if (!strcmp(d, "cpu")) return DEV_CPU;
  if (!strcmp(d, "sim")) return DEV_SIM;
  if (!strcmp(d, "cuda")) fail(s, ERR_NOT_YET, c->spans[i], "not yet: device cuda");
  fail_help(s, ERR_VALUE, c->spans[i], "devices are cpu, sim and cuda", "no device is called `%s`",
            d);
}

typedef struct Move {
  Device dev;
  Span at;
} Move;

static void move_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Move *m = ud;
  (void)path;
  (void)owner;
  if (p) {
    Tensor *t = tn_copy(&s->mem, p->t, m->dev);
    if (!t) mem_throw(&s->mem, MEM_ERR_NOMEM);
    Tensor *old = p->t;
    p->t = t;
    p->version++;
    tn_unref(old);
  } else if (f && f->v.tag == V_TENSOR) {
    value_set(&f->v, tensor_value(s, tn_copy(&s->mem, f->v.u.t->t, m->dev)));
  }
}

static Value move_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Move *m = ud;
  (void)n;
  (void)path;
  if (!v_is_tensor(v[0])) return v[0];
  return tensor_value(s, tn_copy(&s->mem, tensor_of(s, v[0], m->at), m->dev));
}

BUILTIN_FN(bi_to) {
  Move m = {device_arg(s, c, 1), c->at};
  if (c->v[0].tag == V_INST) {
    walk_slots(s, c->v[0], move_slot, &m);
    return c->v[0];
  }
  Value x = c->v[0].tag == V_LIST && c->v[0].u.list->weak ? as_tensor(s, c->v[0], DT_COUNT, c->at)
                                                          : c->v[0];
  return tree_map(s, 1, &x, move_leaf, &m, c->at);
}

BUILTIN_FN(bi_device_of) {
  static const char *const names[] = {"cpu", "cuda", "sim"};
  const char *n = names[tensor_of(s, c->v[0], c->spans[0])->store->dev];
  return str_value(s, n, strlen(n));
}

/* ---- error_of */

typedef struct Try {
  Session *s;
  Value f;
  Span at;
} Try;

static void try_job(void *ud) {
  Try *t = ud;
  call_simple(t->s, t->f, 0, NULL, t->at);
}

BUILTIN_FN(bi_error_of) {
  Try t = {s, c->v[0], c->at};
  ValueTag f = (ValueTag)c->v[0].tag;
  if (f != V_FN && f != V_BUILTIN && f != V_INST && f != V_MODEL)
    fail_help(s, ERR_NOT_CALLABLE, c->spans[0], "`error_of(fn() { .. })` runs what may fail",
              "%s is not a function", value_type_text(s, c->v[0]));
  size_t before = s->diags.count;
  int code = guard(s, try_job, &t);
  if (code == MEM_OK) return v_none();
  if (code != MEM_ERR_PROGRAM) mem_throw(&s->mem, code);
  Diag *d = s->diags.count > before ? s->diags.items[before] : NULL;
  const char *ct = d ? err_info[d->code].code : "bug-1", *tt = d ? d->message : "";
  dg_rewind(&s->diags, before); /* the texts stay until the next call of the API */
  Name names[2] = {names_of(s->names, "code"), names_of(s->names, "text")};
  Value items[2] = {str_value(s, ct, strlen(ct)), v_unit()};
  items[1] = str_value(s, tt, strlen(tt));
  return record_value(s, 2, names, items);
}
