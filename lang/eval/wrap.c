/* The construct `wrap`: modes for the extent of a block, or a function that takes it (rule 87).
 *
 * In: the construct's node. Out: the value of its block. Mode words set the session's modes;
 * guard() puts them back after an error.
 */
#include <string.h>

#include "lang/compile/compile.h"

static const char *clause_word(Node *c) {
  return c->clause.path.count == 1 ? c->clause.path.items[0].name : "";
}

static Value clause_arg(Session *s, Node *a) {
  if (a->kind == N_WORD) {
    Value v = name_value(s, a->path.items[0].name, a->path.items[0].span, true);
    if (a->path.count > 1)
      fail(s, ERR_WRAP_ARG, a->span, "a dotted argument of a wrap stands in parentheses: `(a.b)`");
    return v;
  }
  return eval(s, a);
}

static void want_args(Session *s, Node *c, uint32_t n, const char *form) {
  if (c->clause.args.count != n)
    fail_help(s, ERR_WRAP_ARG, c->span, form, "`%s` takes %u argument%s here, not %u",
              clause_word(c), n, n == 1 ? "" : "s", c->clause.args.count);
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

/* -- with_params: the leaves of a tree stand for the params of a model (rule 61) */

typedef struct Stand { Param *p; Value overlay; State old; size_t state; } Stand;
typedef struct Stands {
  Stand *items;
  size_t count, cap;
  Span at;
} Stands;

static Value stand_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Stands *l = ud;
  (void)n;
  if (v[0].tag == V_NONE || v[1].tag == V_NONE || v[0].tag != V_PARAM) return v[0];
  Type a = type_of(s, v[0]);
  Value x = as_tensor(s, v[1], (DType)a.dtype, l->at);
  Type b = type_of(s, x);
  if (a.dtype != b.dtype || a.rank != b.rank || memcmp(a.dim, b.dim, sizeof(Dim) * a.rank))
    fail(s, ERR_TREE, l->at, "the leaf %s is %s, the param it stands for is %s", path,
         value_type_text(s, x), value_type_text(s, v[0]));
  Stand t = {.p = v[0].u.p, .overlay = x};
  VEC_PUSH(&s->scratch, l->items, l->count, l->cap, t);
  return v[0];
}

static void stands_in(Session *s, Stands *l) {
  for (size_t i = 0; i < l->count; i++) {
    Stand *t = &l->items[i];
    if (!s->stage) {
      Value old = t->p->overlay;
      t->p->overlay = t->overlay;
      t->overlay = old;
      continue;
    }
    State *st = unit_state(s, t->p, NULL);
    if (!st || s->stage->level > 1)
      fail(s, ERR_NOT_YET, l->at, "not yet: `with_params` inside a comprehension");
    t->old = *st;
    t->state = (size_t)(st - s->stage->unit->states);
    st->cur = stage_lift(s, t->overlay, l->at);
    st->versions = NULL;
    st->version_count = st->version_cap = 0;
    VEC_PUSH(s->stage->unit->arena, st->versions, st->version_count, st->version_cap, st->cur.u.v);
  }
}

static void stands_out(Session *s, Stands *l) {
  for (size_t i = l->count; i-- > 0;) {
    Stand *t = &l->items[i];
    if (!s->stage) {
      t->p->overlay = t->overlay;
      continue;
    }
    State *st = &s->stage->unit->states[t->state];
    if (st->version_count > 1)
      fail(s, ERR_ASSIGN, l->at, "inside `with_params` the params cannot be written");
    *st = t->old;
  }
}

/* -- no_grad in code: what leaves the block is cut, as its value or in an outer `var` (rule 78) */

typedef struct Cut {
  bool code, quiet;
  uint32_t start; /* first node of the block */
  size_t locals;  /* of the frame, at entry */
} Cut;

static Cut cut_start(Session *s) {
  Cut c = {.code = in_code(s), .quiet = s->modes.no_grad, .locals = s->local_count};
  if (!c.code) return c;
  c.start = (uint32_t)s->stage->g->node_count;
  stage_quiet(s, c.quiet);
  return c;
}

static Value cut_end(Session *s, const Cut *c, Value v, bool quiet_outside, Span at) {
  if (!c->code) return v;
  if (c->quiet) {
    v = leave_quiet(s, v, c->start, at);
    if (s->ret.tag != V_UNIT) value_set(&s->ret, leave_quiet(s, s->ret, c->start, at));
    for (size_t i = s->frame->base; i < c->locals; i++)
      if (s->locals[i].is_var) {
        Value now = leave_quiet(s, s->locals[i].v, UINT32_MAX, at);
        value_set(&s->locals[i].v, now);
      }
  }
  stage_quiet(s, quiet_outside);
  return v;
}

Value eval_wrap(Session *s, Node *e) {
  NodeList *cl = &e->region.clauses;
  Modes old = s->modes;
  uint64_t scope = s->seed_scope, seed = 0;
  bool seeded = false;
  Node *user = NULL;
  Stands stands = {0};
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    const char *w = clause_word(c);
    Span at = c->span;
    for (uint32_t k = 0; k < i; k++) {
      const char *o = clause_word(cl->items[k]);
      if (!strcmp(o, w)) fail(s, ERR_WRAP_TWICE, at, "`%s` stands twice", w);
      if ((!strcmp(o, "grad") && !strcmp(w, "no_grad")) ||
          (!strcmp(o, "no_grad") && !strcmp(w, "grad")) ||
          (!strcmp(o, "train") && !strcmp(w, "eval")) ||
          (!strcmp(o, "eval") && !strcmp(w, "train")))
        fail(s, ERR_WRAP_TWICE, at, "`%s` and `%s` are opposites", o, w);
    }
    if (!strcmp(w, "no_grad") || !strcmp(w, "grad")) {
      want_args(s, c, 0, "`wrap <no_grad> { .. }`");
      if (in_code(s) && w[0] == 'g' && old.no_grad && s->stage->unit) s->stage->unit->regrad = true;
      s->modes.no_grad = w[0] == 'n';
    } else if (!strcmp(w, "train") || !strcmp(w, "eval")) {
      want_args(s, c, 0, "`wrap <train> { .. }`");
      s->modes.train = w[0] == 't';
    } else if (!strcmp(w, "anomaly")) {
      want_args(s, c, 0, "`wrap <anomaly> { .. }`");
      s->modes.anomaly = true;
    } else if (!strcmp(w, "bf16") || !strcmp(w, "f16") || !strcmp(w, "tf32")) {
      want_args(s, c, 0, "`wrap <bf16> { .. }`");
      s->modes.compute = w[0] == 'b' ? COMPUTE_BF16 : w[0] == 'f' ? COMPUTE_F16 : COMPUTE_TF32;
    } else if (!strcmp(w, "seed")) {
      want_args(s, c, 1, "`wrap <seed 7> { .. }`");
      seed = (uint64_t)want_int(s, clause_arg(s, c->clause.args.items[0]), at, "the seed");
      seeded = true;
    } else if (!strcmp(w, "device")) {
      want_args(s, c, 1, "`wrap <device sim> { .. }`");
      Node *a = c->clause.args.items[0];
      const char *d = a->kind == N_WORD     ? a->path.items[0].name
                      : a->kind == N_STRING ? ast_plain_text(a, &(uint32_t){0})
                                            : "";
      if (!strcmp(d, "cpu"))
        s->modes.device = DEV_CPU;
      else if (!strcmp(d, "sim"))
        s->modes.device = DEV_SIM;
      else if (!strcmp(d, "cuda"))
        fail(s, ERR_NOT_YET, at, "not yet: device cuda");
      else
        fail_help(s, ERR_WRAP_ARG, at, "devices are cpu, sim and cuda", "no device is called `%s`",
                  d);
    } else if (!strcmp(w, "opaque")) {
      want_args(s, c, 1, "`wrap <opaque \"name\"> { .. }`");
      const char *n = want_str(s, clause_arg(s, c->clause.args.items[0]), at, "the name");
      if (strchr(n, '"') || !*n)
        fail(s, ERR_WRAP_ARG, at, "the name of an opaque block is not empty and has no quote");
      if (in_code(s))
        s->modes.opaque = names_of(
            s->names, txt(s, "%s \"%s\"", s->modes.opaque ? s->modes.opaque : "", n));
    } else if (!strcmp(w, "profile")) {
      want_args(s, c, 1, "`wrap <profile \"name\"> { .. }`");
      want_str(s, clause_arg(s, c->clause.args.items[0]), at, "the name");
      warn_once(s, ERR_NOT_YET, at, "not yet: `%s` runs the block as a plain one", w);
    } else if (!strcmp(w, "backward")) {
      want_args(s, c, 1, "`wrap <backward plain> { .. }`");
      Node *a = c->clause.args.items[0];
      const char *d = a->kind == N_WORD ? a->path.items[0].name : "";
      if (strcmp(d, "plain") && strcmp(d, "captured"))
        fail(s, ERR_WRAP_ARG, at, "`backward` takes `plain` or `captured`");
      s->modes.plain_backward = !strcmp(d, "plain");
    } else if (!strcmp(w, "with_params")) {
      want_args(s, c, 2, "`wrap <with_params net tree> { .. }`");
      bool ref = s->by_reference;
      s->by_reference = true;
      Value net = clause_arg(s, c->clause.args.items[0]);
      s->by_reference = ref;
      Value trees[2] = {net, clause_arg(s, c->clause.args.items[1])};
      if (net.tag != V_INST && net.tag != V_PARAM && net.tag != V_UNKNOWN && !s->stage)
        fail(s, ERR_WANT_MODEL, at, "`with_params` takes a model and a tree, not %s",
             value_type_text(s, net));
      stands.at = at;
      if (net.tag != V_UNKNOWN && trees[1].tag != V_UNKNOWN)
        tree_map(s, 2, trees, stand_leaf, &stands, at);
    } else {
      if (user) fail(s, ERR_WRAP_TWICE, at, "one function per `wrap`");
      user = c;
    }
  }
  if (user) {
    Name w = user->clause.path.items[0].name;
    Value f = name_value(s, w, user->span, false);
    if (f.tag == V_UNKNOWN && !s->abstract) {
      const char *near = suggest(s, w);
      Diag *d = err(s, ERR_WRAP_WORD, user->span, "no mode, and no function, is called `%s`", w);
      static const char *const words[] = {"no_grad", "grad",   "train",       "eval",    "bf16",
                                          "f16",     "tf32",   "device",      "seed",    "anomaly",
                                          "profile", "opaque", "with_params", "backward"};
      for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_distance(w, words[i], 2) <= 2) near = words[i];
      if (near) dg_help(&s->diags, d, "did you mean `%s`?", near);
      raise_(s);
    }
    if (user->clause.path.count == 2 && f.tag == V_MODULE) {
      Global *g = global_find(s, f.u.module, user->clause.path.items[1].name);
      if (!g || g->kind != G_FN)
        fail(s, ERR_WRAP_WORD, user->span, "module `%s` has no function `%s`", w,
             user->clause.path.items[1].name);
      f = g->v;
    }
    size_t n = user->clause.args.count;
    Value *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
    for (size_t i = 0; i < n; i++) args[i] = clause_arg(s, user->clause.args.items[i]);
    bool code = in_code(s) || (f.tag == V_FN && f.u.fn->is_code);
    args[n] = body_closure(s, wrap_lambda(s, e), code);
    Cut cut = cut_start(s);
    Value r = call_simple(s, f, n + 1, args, e->span);
    r = cut_end(s, &cut, r, old.no_grad, e->span);
    s->modes = old;
    return r;
  }
  if (seeded && s->stage) s->seed_scope = seed + 1;
  if (seeded && s->stage) random_seed_staged(s, seed);
  Saved saved = {s->seed, 0, s->seed_given, s->sites, s->site_count, s->site_cap};
  bool swapped = seeded && !s->stage;
  if (swapped) {
    s->sites = NULL;
    s->site_count = s->site_cap = 0;
    s->seed = seed;
    s->seed_given = true;
    s->seed_scopes++;
  }
  Cut cut = cut_start(s);
  WrapJob j = {s, e->region.body, v_unit(), FLOW_NEXT};
  for (uint32_t i = 0; i < cl->count && !s->abstract; i++)
    log_line(s, LOG_WRAP, "%s", source_text(s, cl->items[i]->span, clause_word(cl->items[i])));
  stands_in(s, &stands);
  int code = guard(s, wrap_job, &j);
  if (code == MEM_OK || !s->stage) stands_out(s, &stands);
  if (swapped) drop_sites(s, &saved);
  s->seed_scope = scope;
  if (code != MEM_OK) {
    s->modes = old;
    mem_throw(&s->mem, code);
  }
  if (v_counted(j.v)) mem_pool_add(&s->mem, j.v.u.o, (void (*)(void *))obj_release);
  j.v = cut_end(s, &cut, j.v, old.no_grad, e->span);
  s->modes = old;
  if (j.flow != FLOW_NEXT) s->flow = j.flow;
  return j.v;
}
