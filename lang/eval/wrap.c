/* The construct `wrap`: modes for the extent of a block, or a function that takes it (rule 87).
 *
 * In: the construct's node. Out: the value of its block. Mode words set the session's modes;
 * api_guard() restores them after an error.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/want.h"
#include "lang/names/clauses.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "lang/value/tree.h"

static Value clause_arg(Session *s, Node *a) {
  if (a->kind == N_WORD) {
    Value v = bind_name_value(s, a->path.items[0].name, a->path.items[0].span, true);
    if (a->path.count > 1)
      fail_at(s, ERR_WRAP_ARG, a->span,
              "a dotted argument of a wrap stands in parentheses: `(a.b)`");
    return v;
  }
  return eval_expr(s, a);
}

typedef struct Saved {
  uint64_t seed, scope;
  bool given;
  Site *sites;
  size_t count, cap;
} Saved;

static void drop_sites(Session *s, Saved *old) {
  mem_free(&s->mem, s->sites, s->site_cap * sizeof(Site));
  s->sites = old->sites;
  s->site_count = old->count;
  s->site_cap = old->cap;
  s->seed = old->seed;
  s->seed_given = old->given;
  s->seed_scopes--;
}

typedef struct WrapJob {
  Session *s;
  Node *body;
  Value v;
  Flow flow;
} WrapJob;

static void wrap_job(void *ud) {
  WrapJob *j = ud;
  j->v = eval_block(j->s, j->body, &j->flow);
  value_retain(j->v);
}

/* ---- with_params: the leaves of a tree replace the params of a model (rule 61) */

typedef struct Stand {
  Param *p;
  Value overlay;
  State old;
  size_t state;
} Stand;
typedef struct Stands {
  Stand *items;
  size_t count, cap;
  Span at;
  bool made_up, old; /* see Session.made_up */
} Stands;

static Value stand_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Stands *l = ud;
  (void)n;
  l->made_up |= v[0].tag == V_NODE || v[0].tag == V_UNKNOWN;
  if (v[0].tag == V_NONE || v[1].tag == V_NONE || v[0].tag != V_PARAM) return v[0];
  Type a = op_type_of(s, v[0]);
  Value x = op_as_tensor(s, v[1], (DType)a.dtype, l->at);
  Type b = op_type_of(s, x);
  if (a.dtype != b.dtype || a.rank != b.rank || memcmp(a.dim, b.dim, sizeof(Dim) * a.rank))
    fail_at(s, ERR_TREE, l->at, "the leaf %s is %s, the param it stands for is %s", path,
            value_type_text(s, x), value_type_text(s, v[0]));
  Stand t = {.p = v[0].u.p, .overlay = x};
  VEC_PUSH(&s->scratch, l->items, l->count, l->cap, t);
  return v[0];
}

static void stands_in(Session *s, Stands *l) {
  l->old = s->made_up;
  s->made_up |= l->made_up;
  for (size_t i = 0; i < l->count; i++) {
    Stand *t = &l->items[i];
    if (!s->stage) {
      Value old = t->p->overlay, x = t->overlay;
      if (x.tag == V_TENSOR && !x.u.t->node) /* gradients are taken by it as by the param */
        x = v_param(s, tn_ref(x.u.t->t), NULL, true);
      t->p->overlay = x;
      t->overlay = old;
      continue;
    }
    State *st = state_unit(s, t->p, NULL);
    if (!st) fail_at(s, ERR_BUG, l->at, "a param reached code without being an argument");
    t->old = *st;
    t->state = (size_t)(st - s->stage->unit->states);
    /* a value from around a side or turn stays that, for gradients by it */
    st->cur = t->overlay.tag == V_NODE ? t->overlay : stage_lift(s, t->overlay, l->at);
    state_base(s->stage->unit, st, st->cur, s->frame);
    st->stood_for = true;
  }
}

static void stands_out(Session *s, Stands *l) {
  s->made_up = l->old;
  for (size_t i = l->count; i-- > 0;) {
    Stand *t = &l->items[i];
    if (!s->stage) {
      t->p->overlay = t->overlay;
      continue;
    }
    s->stage->unit->states[t->state] = t->old;
  }
}

/* ---- no_grad in code: a value that leaves the block is cut, also in an outer `var` (rule 78) */

typedef struct Cut {
  bool code, quiet;
  size_t locals; /* of the frame, at entry */
} Cut;

static Cut cut_start(Session *s) {
  Cut c = {.code = in_code(s), .quiet = s->modes.no_grad, .locals = s->local_count};
  if (!c.code) return c;
  stage_quiet(s, c.quiet);
  return c;
}

static Value cut_end(Session *s, const Cut *c, Value v, bool quiet_outside, Span at) {
  if (!c->code) return v;
  if (c->quiet && !quiet_outside) { /* else the block around it does */
    v = stage_leave_quiet(s, v, false, at);
    if (s->ret.tag != V_UNIT) value_set(&s->ret, stage_leave_quiet(s, s->ret, false, at));
    for (size_t i = s->frame->base; i < c->locals; i++)
      if (s->locals[i].is_var) {
        Value now = stage_leave_quiet(s, s->locals[i].v, false, at);
        value_set(&s->locals[i].v, now);
      }
  }
  stage_quiet(s, quiet_outside);
  return v;
}

/* ---- the words of modes */

typedef struct Wrap {
  Session *s;
  Modes old; /* around the block */
  uint64_t seed;
  bool seeded;
  Stands stands;
} Wrap;

/* mode_WORD for each row: it sets the field that the row names, or is defined below. */
#define SETS(field, value)                                                                         \
  {                                                                                                \
    (void)c;                                                                                       \
    w->s->modes.field = value;                                                                     \
  }
#define RUNS(field) ;
#define MODE(word, takes, form, does, doc) static void mode_##word(Wrap *w, Node *c) does
#include "lang/names/clauses.def"
#undef SETS
#undef RUNS

static void (*const mode_fn[MODE_COUNT])(Wrap *w, Node *c) = {
#define MODE(word, ...) mode_##word,
#include "lang/names/clauses.def"
};

static void mode_device(Wrap *w, Node *c) {
  int d = clause_choice_of(MODE_device, c->clause.args.items[0]);
  if (d == DEV_CUDA) fail_at(w->s, ERR_NOT_YET, c->span, "not yet: device cuda");
  w->s->modes.device = (uint8_t)d;
}

static void mode_seed(Wrap *w, Node *c) {
  Value n = clause_arg(w->s, c->clause.args.items[0]);
  w->seed = (uint64_t)want_int(w->s, n, c->span, "the seed");
  w->seeded = true;
}

static void mode_profile(Wrap *w, Node *c) {
  want_str(w->s, clause_arg(w->s, c->clause.args.items[0]), c->span, "the name");
  fail_warn_once(w->s, ERR_NOT_YET, c->span, "not yet: `profile` runs the block as a plain one");
}

static void mode_opaque(Wrap *w, Node *c) {
  Session *s = w->s;
  const char *n = want_str(s, clause_arg(s, c->clause.args.items[0]), c->span, "the name");
  if (strchr(n, '"') || !*n)
    fail_at(s, ERR_WRAP_ARG, c->span, "the name of an opaque block is not empty and has no quote");
  if (in_code(s))
    s->modes.opaque =
        names_of(s->names, fail_text(s, "%s \"%s\"", s->modes.opaque ? s->modes.opaque : "", n));
}

static void mode_with_params(Wrap *w, Node *c) {
  Session *s = w->s;
  bool ref = s->by_reference;
  s->by_reference = true;
  Value net = clause_arg(s, c->clause.args.items[0]);
  s->by_reference = ref;
  Value trees[2] = {net, clause_arg(s, c->clause.args.items[1])};
  if (net.tag != V_INST && net.tag != V_PARAM && net.tag != V_UNKNOWN && !s->stage)
    fail_at(s, ERR_WANT_MODEL, c->span, "`with_params` takes a model and a tree, not %s",
            value_type_text(s, net));
  w->stands.at = c->span;
  if (net.tag != V_UNKNOWN && trees[1].tag != V_UNKNOWN)
    tree_map(s, 2, trees, stand_leaf, &w->stands, c->span);
}

static void mode_backward(Wrap *w, Node *c) {
  w->s->modes.plain_backward = clause_choice_of(MODE_backward, c->clause.args.items[0]);
}

/* ---- the block */

/* Passes the block to a function: `wrap <f a> { b }` is `f(a, fn() { b })`. */
static Value wrap_by(Wrap *w, Node *e, Node *user) {
  Session *s = w->s;
  const Words *path = &user->clause.path;
  Name word = path->items[0].name;
  Value f = bind_name_value(s, word, user->span, false);
  bool none = f.tag == V_DTYPE || f.tag == V_POLICY || f.tag == V_MODEL ||
              (f.tag == V_MODULE && path->count == 1) || (f.tag == V_UNKNOWN && !s->abstract);
  if (none) {
    clause_unknown(s, s->frame->module, CLAUSE_MODE, user);
    fail_raise(s);
  }
  if (path->count == 2 && f.tag == V_MODULE) {
    Global *g = global_find(s, f.u.module, path->items[1].name);
    if (!g || g->kind != G_FN)
      fail_at(s, ERR_WRAP_WORD, user->span, "module `%s` has no function `%s`", word,
              path->items[1].name);
    f = g->v;
  }
  bool declared = f.tag == V_FN && f.u.fn->decl->kind == N_FN;
  if (declared && !clause_fits_function(s, user, f.u.fn->decl->fn)) fail_raise(s);
  size_t n = user->clause.args.count;
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) args[i] = clause_arg(s, user->clause.args.items[i]);
  bool code = in_code(s) || (f.tag == V_FN && f.u.fn->is_code);
  args[n] = closure_of_body(s, desugar_wrap(s, e), code);
  Cut cut = cut_start(s);
  Value r = call_simple(s, f, n + 1, args, e->span);
  r = cut_end(s, &cut, r, w->old.no_grad, e->span);
  s->modes = w->old;
  return r;
}

static Value wrap_block(Wrap *w, Node *e) {
  Session *s = w->s;
  uint64_t scope = s->seed_scope;
  if (w->seeded && s->stage) {
    s->seed_scope = w->seed + 1;
    random_seed_staged(s, w->seed);
  }
  Saved saved = {s->seed, 0, s->seed_given, s->sites, s->site_count, s->site_cap};
  bool swapped = w->seeded && !s->stage;
  if (swapped) {
    s->sites = NULL;
    s->site_count = s->site_cap = 0;
    s->seed = w->seed;
    s->seed_given = true;
    s->seed_scopes++;
  }
  Cut cut = cut_start(s);
  WrapJob j = {s, e->region.body, v_unit(), FLOW_NEXT};
  stands_in(s, &w->stands);
  int code = api_guard(s, wrap_job, &j);
  if (code == MEM_OK || !s->stage) stands_out(s, &w->stands);
  if (swapped) drop_sites(s, &saved);
  s->seed_scope = scope;
  if (code != MEM_OK) {
    s->modes = w->old;
    mem_throw(&s->mem, code);
  }
  if (v_counted(j.v)) mem_pool_add(&s->mem, j.v.u.o, (void (*)(void *))obj_release);
  j.v = cut_end(s, &cut, j.v, w->old.no_grad, e->span);
  s->modes = w->old;
  if (j.flow != FLOW_NEXT) s->flow = j.flow;
  return j.v;
}

Value eval_wrap(Session *s, Node *e) {
  const NodeList *cl = &e->region.clauses;
  Wrap w = {.s = s, .old = s->modes};
  Node *user = NULL;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    if (!clause_fits_wrap(s, cl, i)) fail_raise(s);
    const Clause *k = clause_of(CLAUSE_MODE, c);
    if (k)
      mode_fn[k->id](&w, c);
    else
      user = c;
  }
  bool again = w.old.no_grad && !s->modes.no_grad; /* `grad` inside of `no_grad` */
  if (again && in_code(s) && s->stage->unit) s->stage->unit->regrad = true;
  if (user) return wrap_by(&w, e, user);
  for (uint32_t i = 0; i < cl->count && !s->abstract; i++) {
    const Node *c = cl->items[i];
    log_line(s, LOG_WRAP, "%s", fail_source_text(s, c->span, c->clause.path.items[0].name));
  }
  return wrap_block(&w, e);
}
