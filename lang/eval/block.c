/* Constructs with a block: wrap, comprehensions, assert, custom backwards.
 *
 * In: the construct's node. Out: the value of its block. Mode words set the session's modes for the
 * extent of the block; guard() puts them back after an error. A comprehension over ranges stages
 * its body once with scalar loop variables and maps the graph over each range (graph/batch.c, rule
 * 36).
 */
#include <string.h>

#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/checkpoint/policy.h"

/* -- assert */

static const char *operands_text(Session *s, Node *c, Value a, Value b) {
  Buf t;
  buf_init_arena(&t, &s->scratch);
  buf_puts(&t, "the left side is ");
  print_value(s, &t, a, true);
  buf_puts(&t, ", the right side ");
  print_value(s, &t, b, true);
  (void)c;
  return t.s;
}

/* `assert d % heads == 0` is also a fact for dims (rule 23). */
static void assume(Session *s, const Node *c, Value x, Value y) {
  if ((x.tag == V_DIM || x.tag == V_INT) && (y.tag == V_DIM || y.tag == V_INT))
    dim_assume_divides(dims_of(s), dim_of(s, x, c->span, "a size"),
                       dim_of(s, y, c->span, "a size"));
}

static Value binary_value(Session *s, const Node *e, Value a, Value b) {
  return op_binary(s, e->binary.op, a, b, e->span, e->binary.left->span, e->binary.right->span);
}

void eval_assert(Session *s, Node *st) {
  Node *c = st->expr;
  Value a = v_unit(), b = v_unit(), x = v_unit(), y = v_unit(), v;
  bool cmp = c->kind == N_BINARY && c->binary.op >= AST_LT && c->binary.op <= AST_NE;
  if (cmp) {
    Node *l = c->binary.left;
    bool divides = c->binary.op == AST_EQ && l->kind == N_BINARY && l->binary.op == AST_MOD;
    if (divides) {
      x = eval(s, l->binary.left);
      y = eval(s, l->binary.right);
    }
    a = divides ? binary_value(s, l, x, y) : eval(s, l);
    b = eval(s, c->binary.right);
    if (s->stage && s->stage->unit && s->stage->unit->check && (a.tag == V_DIM || b.tag == V_DIM)) {
      assume(s, c, x, y); /* a condition on sizes that only a call can decide */
      return;
    }
    v = binary_value(s, c, a, b);
  } else {
    v = eval(s, c);
  }
  if (v.tag == V_UNKNOWN || (s->abstract && (v.tag == V_BOOL || v_is_tensor(v)))) return;
  if (v.tag == V_NODE && type_of(s, v).dtype == DT_BOOL) {
    Type t = type_of(s, v);
    int64_t axes[CKL_MAX_RANK];
    for (int i = 0; i < t.rank; i++) axes[i] = i;
    if (t.rank) v = op_reduce(s, OP_ALL, v, t.rank, axes, false, c->span);
    effect_assert(s, v, cmp ? &a : NULL, cmp ? &b : NULL, c->span);
    return;
  }
  bool ok;
  if (v.tag == V_BOOL)
    ok = v.u.i != 0;
  else if (v.tag == V_TENSOR && v.u.t->t->dtype == DT_BOOL) {
    ok = true;
    for (int64_t i = 0, n = tn_count(v.u.t->t); i < n && ok; i++) ok = tn_get_i64(v.u.t->t, i) != 0;
  } else
    fail(s, ERR_WANT_BOOL, c->span, "`assert` takes a bool, this is %s", value_type_text(s, v));
  if (ok) {
    if (s->stage) assume(s, c, x, y);
    return;
  }
  Diag *d = err(s, ERR_ASSERT, c->span, "the assertion does not hold");
  if (cmp) dg_label(&s->diags, d, c->span, "%s", operands_text(s, c, a, b));
  raise_(s);
}

/* -- wrap */

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

/* -- comprehensions */

static bool numeric(Value v) {
  return v_is_tensor(v) || v_is_number(v) || v.tag == V_BOOL;
}

/* What a comprehension goes through. One that mentions no variable of an earlier range is evaluated
 * once, before the first turn; another at each turn of those. */
typedef struct CompSource {
  Value v;
  bool once;
} CompSource;

typedef struct CompRun {
  Session *s;
  Node *e;
  const CompSource *source;
  Value *items;
  size_t count, cap;
  bool over_seq, over_range;
  Element *element[CKL_MAX_RANK]; /* of each loop */
} CompRun;

static void comp_push(CompRun *c, Value v) {
  VEC_PUSH(&c->s->scratch, c->items, c->count, c->cap, v);
}

static void comp_turns(CompRun *c, uint32_t k);

static void comp_turn(CompRun *c, uint32_t k, Value v) {
  Session *s = c->s;
  size_t base = s->local_count;
  check_step(s);
  Element *now = c->element[k];
  element_enter(s, now);
  s->frame->block_depth++;
  bind_pattern(s, c->e->comp.fors.items[k]->loop.pat, v, false);
  if (k + 1 < c->e->comp.fors.count)
    comp_turns(c, k + 1);
  else
    comp_push(c, eval(s, c->e->comp.value));
  s->frame->block_depth--;
  locals_pop(s, base);
  element_leave(s, now);
}

static void comp_turns(CompRun *c, uint32_t k) {
  stack_check();
  Session *s = c->s;
  Node *f = c->e->comp.fors.items[k];
  Value it = c->source[k].once ? c->source[k].v : eval(s, f->loop.iter);
  Span at = f->loop.iter->span;
  Element *element = c->element[k] = elements_start(s);
  if (it.tag == V_RANGE) {
    c->over_range = true;
    int64_t lo = want_int(s, it.u.range->lo, at, "the start of the range"),
            hi = want_int(s, it.u.range->hi, at, "the end of the range");
    for (int64_t i = lo; i < hi; i++) {
      count_step(s, at);
      comp_turn(c, k, v_int(i));
    }
  } else if (it.tag == V_LIST || it.tag == V_TUPLE) {
    for (size_t i = 0; i < it.u.list->count; i++) {
      count_step(s, at);
      comp_turn(c, k, it.u.list->items[i]);
    }
  } else if (v_is_tensor(it)) {
    c->over_range = true;
    Type t = type_of(s, it);
    int64_t n = 0;
    if (t.rank == 0) fail(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    need_const(s, t.dim[0], at, "the number of elements", &n);
    for (int64_t i = 0; i < n; i++) {
      count_step(s, at);
      comp_turn(c, k, op_element(s, it, i, at));
    }
  } else if (it.tag == V_SEQ) {
    c->over_seq = true;
    comp_seq(s, it, at, c, k, (void (*)(void *, uint32_t, Value))comp_turn);
  } else {
    fail(s, ERR_ITERATE, at, "a comprehension cannot go through %s", value_type_text(s, it));
  }
  elements_end(s, element);
}

/* Element by element, in order; numeric elements are stacked when the source is no list. */
static Value comp_in_order(Session *s, Node *e, const CompSource *source) {
  CompRun c = {.s = s, .e = e, .source = source};
  comp_turns(&c, 0);
  bool all = c.count > 0;
  for (size_t i = 0; i < c.count; i++) all &= numeric(c.items[i]);
  if (!all || !(c.over_range || c.over_seq)) return list_value(s, V_LIST, c.count, c.items);
  Value v = op_stack(s, c.count, c.items, 0, e->span);
  uint32_t k = e->comp.fors.count;
  if (k == 1) return v;
  Type t = type_of(s, v); /* several: their sizes are the leading axes, where each has one */
  Dim d[2 * CKL_MAX_RANK];
  int n = 0;
  for (uint32_t i = 0; i < k; i++) {
    Value it = source[i].v;
    if (!source[i].once || (it.tag != V_RANGE && !v_is_tensor(it))) return v;
    d[n++] = it.tag == V_RANGE ? dim_sub(dims_of(s), dim_of(s, it.u.range->hi, e->span, "a range"),
                                         dim_of(s, it.u.range->lo, e->span, "a range"))
                               : type_of(s, it).dim[0];
  }
  for (int i = 1; i < t.rank; i++) d[n++] = t.dim[i];
  return op_reshape(s, v, n, d, e->span);
}

typedef struct Axis {
  Value lo;
  Value source; /* a range, or a tensor */
  Dim n;
  bool range;
} Axis;

typedef struct BatchJob {
  Session *s;
  Node *e;
  Axis *axes;
  uint32_t n;
  Stage *st;
  Value result; /* of the body, in st */
  Val *inputs;
} BatchJob;

static void batch_job(void *ud) {
  BatchJob *j = ud;
  Session *s = j->s;
  Graph *g = j->st->g;
  size_t base = s->local_count;
  s->frame->block_depth++;
  for (uint32_t k = 0; k < j->n; k++) {
    Type t = {.kind = TK_TENSOR, .dtype = DT_I64};
    if (!j->axes[k].range) {
      Type full = type_of(s, j->axes[k].source);
      t.dtype = full.dtype;
      t.dev = full.dev;
      t.rank = (uint8_t)(full.rank - 1);
      memcpy(t.dim, full.dim + 1, sizeof(Dim) * t.rank);
    }
    j->inputs[k] = gr_input(g, &t);
  }
  for (uint32_t k = 0; k < j->n; k++) {
    Value v = {.tag = V_NODE, .aux = j->st->level, .weak = j->axes[k].range};
    v.u.v = j->inputs[k];
    if (v.weak) j->st->counters |= 1u << k;
    if (v.weak && !(j->axes[k].lo.tag == V_INT && j->axes[k].lo.u.i == 0)) {
      Value of[2] = {v, as_tensor(s, j->axes[k].lo, DT_I64, j->e->span)};
      v = op_run(s, OP_ADD, 2, of, NULL, 0, j->e->span); /* below the end of the range: it fits */
      v.weak = true;
    }
    bind_pattern(s, j->e->comp.fors.items[k]->loop.pat, v, false);
  }
  Value r = eval(s, j->e->comp.value);
  s->frame->block_depth--;
  locals_pop(s, base);
  if (numeric(r)) r = stage_lift(s, as_tensor(s, r, DT_COUNT, j->e->comp.value->span), j->e->span);
  j->result = r;
}

void region_open(Session *s, Stage *st, Name name) {
  Graph *g = gr_new(s->stage->g->arena, dims_of(s), s->names, name);
  g->at = s->stage->g->at;
  g->blocks = s->stage->g->blocks;
  stage_push(s, st, g);
}

Val *region_map(Session *s, const Stage *st, size_t k, const Value *rows, const Dim *n, bool zip,
                Span at) {
  Graph *g = st->g;
  GErr e = {.code = ERR_BUG, .operand = -1};
  size_t nin = g->input_count;
  bool *batched = ARENA_ARRAY(&s->scratch, bool, nin + 1);
  bool *key = ARENA_ARRAY(&s->scratch, bool, nin + 1); /* each element has its own */
  size_t axes = zip ? 1 : k;
  for (size_t i = k; i < nin; i++) key[i] = element_is_key(s->stage, st->outer[i - k]);
  for (size_t axis = axes; axis-- > 0;) { /* the innermost first */
    for (size_t i = 0; i < nin; i++) batched[i] = key[i] || (zip ? i < k : i == axis);
    g = gr_batch(s->stage->g->arena, g, batched, n[axis], &e);
    if (!g) fail_gerr(s, at, &e);
  }
  Val *in = ARENA_ARRAY(&s->scratch, Val, nin + 1);
  Val *out = ARENA_ARRAY(&s->scratch, Val, g->output_count + 1);
  for (size_t i = 0; i < nin; i++)
    in[i] = i < k    ? stage_operand(s, rows[i], at).u.v
            : key[i] ? element_rows(s, st->outer[i - k], axes, n, at)
                     : st->outer[i - k];
  enter_values(s, nin, in, at);
  if (!gr_inline(s->stage->g, g, in, NULL, out, &e)) fail_gerr(s, at, &e);
  return out;
}

/* The sources are ranges and tensors: one batched operation. False when the body is not numeric. */
static bool comp_batched(Session *s, Node *e, Axis *axes, Value *out) {
  uint32_t n = e->comp.fors.count;
  Stage st;
  region_open(s, &st, NULL);
  Val inputs[CKL_MAX_RANK];
  BatchJob j = {s, e, axes, n, &st, v_unit(), inputs};
  batch_job(&j);
  stage_pop(s);
  if (j.result.tag == V_UNKNOWN) {
    *out = j.result;
    return true;
  }
  if (j.result.tag != V_NODE) return false;
  gr_output(st.g, j.result.u.v);
  Value rows[CKL_MAX_RANK];
  Dim sizes[CKL_MAX_RANK];
  for (uint32_t i = 0; i < n; i++) {
    rows[i] = axes[i].range ? op_iota(s, axes[i].n, DT_I64, e->span) : axes[i].source;
    sizes[i] = axes[i].n;
  }
  *out = (Value){.tag = V_NODE, .aux = s->stage->level};
  out->u.v = region_map(s, &st, n, rows, sizes, false, e->span)[0];
  return true;
}

typedef struct CompJob {
  Session *s;
  Node *e;
  const Axis *axes;
  bool ranges; /* they are arguments, too */
  Value v;
} CompJob;

/* A call of code, of the tensors that it goes through. */
static void comp_job(void *ud) {
  CompJob *j = ud;
  bool given[CKL_MAX_RANK];
  Value v[CKL_MAX_RANK];
  Name names[CKL_MAX_RANK] = {NULL};
  Span spans[CKL_MAX_RANK];
  Args a = {.v = v, .names = names, .spans = spans, .call = j->e->span};
  for (uint32_t k = 0; k < j->e->comp.fors.count; k++) {
    given[k] = j->ranges || !j->axes[k].range;
    if (!given[k]) continue;
    spans[a.count] = j->e->comp.fors.items[k]->loop.iter->span;
    v[a.count++] = j->axes[k].source;
  }
  Value f = body_closure(j->s, comp_lambda(j->s, j->e, given), true);
  j->v = run_code(j->s, f.u.fn, &a);
}

/* In script: one compiled call. False when code cannot do it, which is found before anything
 * runs. A range that code cannot know goes in as an argument. */
static bool comp_compiled(Session *s, Node *e, const Axis *axes, Value *out) {
  CompJob j = {.s = s, .e = e, .axes = axes};
  size_t before = s->diags.count;
  uint32_t warned = s->warned_count;
  for (;;) {
    int code = guard(s, comp_job, &j);
    *out = j.v;
    if (code == MEM_OK) return true;
    bool refused = false, again = false;
    for (size_t i = before; i < s->diags.count; i++) {
      ErrCode c = s->diags.items[i]->code;
      refused |= c == ERR_NOT_YET || c == ERR_SCRIPT_ONLY;
      again |= c == ERR_NOT_CONST && !j.ranges;
    }
    if (code != MEM_ERR_PROGRAM || !(refused || again)) mem_throw(&s->mem, code);
    dg_rewind(&s->diags, before);
    s->warned_count = warned;
    if (!again) return false;
    j.ranges = true;
  }
}

Value eval_comp(Session *s, Node *e) {
  uint32_t n = e->comp.fors.count;
  if (n > CKL_MAX_RANK)
    fail(s, ERR_RANK_MAX, e->span, "a tensor has at most %d axes", CKL_MAX_RANK);
  Axis axes[CKL_MAX_RANK];
  CompSource source[CKL_MAX_RANK] = {{{0}, false}};
  bool batch = true, unknown = false;
  for (uint32_t k = 0; k < n && !unknown; k++) {
    Node *f = e->comp.fors.items[k];
    if (k && mentions_earlier(e, k)) {
      batch = false; /* a range that depends on an outer variable: in order */
      continue;
    }
    Value it = eval(s, f->loop.iter);
    if (s->flow != FLOW_NEXT) return v_unit();
    source[k] = (CompSource){it, true};
    unknown = it.tag == V_UNKNOWN || (it.tag == V_RANGE && (it.u.range->lo.tag == V_UNKNOWN ||
                                                            it.u.range->hi.tag == V_UNKNOWN));
    if (unknown || !batch) continue;
    if (it.tag == V_RANGE) {
      Value lo = it.u.range->lo, hi = it.u.range->hi;
      if ((lo.tag != V_INT && lo.tag != V_DIM) || (hi.tag != V_INT && hi.tag != V_DIM))
        fail(s, ERR_NOT_CONST, f->loop.iter->span,
             "the size of a comprehension must be a dim expression");
      Dim d =
          dim_sub(dims_of(s), dim_of(s, hi, e->span, "a range"), dim_of(s, lo, e->span, "a range"));
      int64_t c;
      if (dim_is_const(dims_of(s), d, &c) && c < 0) d = dim_const(dims_of(s), 0);
      axes[k] = (Axis){lo, it, d, true};
    } else if (v_is_tensor(it)) {
      Type t = type_of(s, it);
      if (t.rank == 0)
        fail(s, ERR_ITERATE, f->loop.iter->span, "a rank-0 tensor has no elements to go through");
      if (s->stage) it = as_tensor(s, it, DT_COUNT, e->span);
      axes[k] = (Axis){v_int(0), it, t.dim[0], false};
    } else
      batch = false;
  }
  if (unknown || (s->abstract && !batch)) return comp_unknown(s, e);
  Value v;
  DrawMark before = random_mark(s);
  if (batch && fn_is_code_legal(s, e) &&
      (s->stage ? comp_batched(s, e, axes, &v) : comp_compiled(s, e, axes, &v)))
    return v;
  random_back(s, &before); /* what the attempt staged counts for nothing */
  return comp_in_order(s, e, source);
}

/* -- custom backwards (rule 79) */

typedef struct Custom {
  Session *s;
  FnObj *f;
  const Args *a;
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
  size_t n = 0;
  if (v.tag == V_TUPLE || v.tag == V_LIST)
    for (size_t i = 0; i < v.u.list->count; i++) n += count_tensors(v.u.list->items[i]);
  if (v.tag == V_RECORD)
    for (size_t i = 0; i < v.u.rec->count; i++) n += count_tensors(v.u.rec->items[i]);
  return n;
}

static void give_outputs(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_NODE) gr_output(s->stage->g, stage_lift(s, v, at).u.v);
  if (v.tag == V_TUPLE || v.tag == V_LIST)
    for (size_t i = 0; i < v.u.list->count; i++) give_outputs(s, v.u.list->items[i], at);
  if (v.tag == V_RECORD)
    for (size_t i = 0; i < v.u.rec->count; i++) give_outputs(s, v.u.rec->items[i], at);
}

/* The structure of v with its tensors replaced by consecutive values. */
static Value refill(Session *s, Value v, const Val *vals, size_t *k) {
  stack_check();
  if (v.tag == V_NODE) {
    Value r = {.tag = V_NODE, .weak = v.weak, .aux = s->stage->level};
    r.u.v = vals[(*k)++];
    return r;
  }
  if (v.tag == V_TUPLE || v.tag == V_LIST) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    for (size_t i = 0; i < v.u.list->count; i++) items[i] = refill(s, v.u.list->items[i], vals, k);
    return list_value(s, (ValueTag)v.tag, v.u.list->count, items);
  }
  if (v.tag == V_RECORD) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.rec->count + 1);
    for (size_t i = 0; i < v.u.rec->count; i++) items[i] = refill(s, v.u.rec->items[i], vals, k);
    return record_value(s, v.u.rec->count, v.u.rec->names, items);
  }
  return v;
}

/* The forward region; returns its result (values of the closed stage). */
static Value custom_forward(Custom *c, Stage *st) {
  Session *s = c->s;
  region_open(s, st, c->f->decl->fn->name.name);
  st->apart = true;
  seed_captures(s, st, c);
  Value r = inline_call(s, c->f, c->a);
  if (v_is_number(r) && r.tag != V_NODE) r = as_tensor(s, r, DT_COUNT, c->a->call);
  give_outputs(s, r, c->a->call);
  stage_pop(s);
  return r;
}

/* The backward region: operands, results, cotangents -> a gradient per float argument without a
 * default. */
static void custom_backward(Custom *c, Stage *st, Value result, const Graph *fwd,
                            const Val *arg_vals,
                            const size_t *arg_pos, size_t narg, int64_t *wrt, size_t *nwrt) {
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
  Value r = backward_body(s, c->f, c->a, out, gv);
  /* one gradient per argument that is a float tensor and has no default */
  size_t want = 0, given = r.tag == V_TUPLE ? r.u.list->count : 1;
  for (uint32_t i = 0; i < d->params.count && i < narg; i++) want += !val_none(arg_vals[i]);
  if (want != given && !(want == 1 && r.tag != V_TUPLE))
    fail(s, ERR_BACKWARD, d->back_body->span,
         "`backward` of `%s` gives %zu gradient%s, its arguments need %zu", fn_name(c->f), given,
         given == 1 ? "" : "s", want);
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
    v = as_tensor(s, v, (DType)t.dtype, d->back_body->span);
    Type h = type_of(s, v);
    bool ok = h.dtype == t.dtype && h.rank == t.rank;
    for (int a = 0; ok && a < t.rank; a++) {
      DimOrder o = dim_compare(dims_of(s), h.dim[a], t.dim[a]);
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
      type_print(&b, dims_of(s), &t);
      fail(s, ERR_BACKWARD, d->back_body->span, "the gradient for `%s` must be %s, this is %s",
           d->params.items[i]->param.name.name, b.s, value_type_text(s, v));
    }
    gr_output(g, stage_lift(s, v, d->back_body->span).u.v);
    wrt[(*nwrt)++] = (int64_t)pos;
  }
  stage_pop(s);
}

Value custom_call(Session *s, FnObj *f, const Args *a) {
  const Fn *d = f->decl->fn;
  Custom c = {.s = s, .f = f, .a = a};
  for (size_t i = 0; i < a->count; i++) /* a check that knows nothing of its argument */
    if (a->v[i].tag == V_UNKNOWN) return a->v[i];
  Val *arg_vals = ARENA_ARRAY(&s->scratch, Val, d->params.count + 1);
  for (uint32_t i = 0; i < d->params.count; i++) arg_vals[i] = VAL_NONE;
  size_t *arg_pos = ARENA_ARRAY(&s->scratch, size_t, d->params.count + 1);
  Args lifted = *a;
  lifted.v = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  uint32_t positional = 0;
  for (size_t i = 0; i < a->count; i++) {
    Value v = a->v[i];
    if (v.tag == V_PARAM) v = param_read(s, v.u.p, a->call);
    if (v.tag == V_LIST && v.u.list->weak) v = as_tensor(s, v, DT_COUNT, a->call);
    uint32_t p = d->params.count;
    if (a->names[i]) {
      for (p = 0; p < d->params.count; p++)
        if (d->params.items[p]->param.name.name == a->names[i]) break;
    } else {
      while (positional < d->params.count && d->params.items[positional]->param.init) positional++;
      p = positional++;
    }
    if (v_is_number(v) && v.tag != V_NODE && p < d->params.count &&
        d->params.items[p]->param.type && type_wants_tensor(s, d->params.items[p]->param.type))
      v = as_tensor(s, v, DT_COUNT, a->call);
    if (v.tag == V_NODE) {
      v = stage_operand(s, v, a->call);
      size_t at_operand = c.count;
      VEC_PUSH(&s->scratch, c.operands, c.count, c.cap, v.u.v);
      if (p < d->params.count && !d->params.items[p]->param.init && !v.weak &&
          dt_float((DType)type_of(s, v).dtype))
      {
        arg_vals[p] = v.u.v;
        arg_pos[p] = at_operand;
      }
    }
    lifted.v[i] = v;
  }
  c.a = &lifted;
  /* Both regions get the same operands: a first round finds what they capture. */
  Stage fw, bw;
  int64_t *wrt = ARENA_ARRAY(&s->scratch, int64_t, d->params.count + 1);
  size_t nwrt;
  Value r;
  DrawMark first = random_mark(s); /* a round draws what the first one did */
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
  enter_values(s, c.count, c.operands, a->call);
  Val v = gr_op(s->stage->g, OP_CUSTOM, c.operands, (int)c.count, &at, 1, regions, 2, &e);
  if (val_none(v)) fail_gerr(s, a->call, &e);
  size_t n = count_tensors(r), k = 0;
  Val *outs = ARENA_ARRAY(&s->scratch, Val, n + 1);
  for (size_t i = 0; i < n; i++) outs[i] = (Val){v.node, (uint32_t)i};
  return refill(s, r, outs, &k);
}

/* -- small pieces of the evaluator that know about stages */

Value number_node(Session *s, int64_t i) {
  Value v = {.tag = V_NODE, .weak = true, .aux = s->stage->level};
  v.u.v = gr_const_i(s->stage->g, DT_I64, DEV_CPU, i);
  return v;
}

/* A node that has no name yet gets this one; an open block looks for it in its policy. */
static void name_items(Session *s, Name name, Name *item, size_t items, Value v) {
  stack_check();
  enum { DEEP = 8 };
  if (v.tag == V_NODE) {
    block_named(s, name, item, items, v);
    if (v.aux != s->stage->level) return;
    Graph *g = s->stage->g;
    GNode *n = &g->nodes[v.u.v.node];
    if (g->provs[n->prov].name) return;
    Prov p = g->provs[n->prov];
    p.name = name;
    VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, p);
    g->nodes[v.u.v.node].prov = (uint32_t)(g->prov_count - 1);
    return;
  }
  bool list = v.tag == V_TUPLE || (v.tag == V_LIST && !v.u.list->weak);
  if (items == DEEP || (!list && v.tag != V_RECORD)) return;
  for (size_t i = 0; i < (list ? v.u.list->count : v.u.rec->count); i++) {
    item[items] = list ? names_of(s->names, txt(s, "%zu", i)) : v.u.rec->names[i];
    name_items(s, name, item, items + 1, list ? v.u.list->items[i] : v.u.rec->items[i]);
  }
}

void name_variable(Session *s, Name name, Value v) {
  Name item[8];
  if (s->stage) name_items(s, name, item, 0, v);
}

void name_result(Session *s, Node *pat, Value v) {
  stack_check();
  if (!s->stage) return;
  if (pat->kind == N_PAT_NAME) name_variable(s, pat->word.name, v);
  if (pat->kind == N_PAT_TUPLE && (v.tag == V_TUPLE || v.tag == V_LIST))
    for (uint32_t i = 0; i < pat->list.count && i < v.u.list->count; i++)
      name_result(s, pat->list.items[i], v.u.list->items[i]);
  if (pat->kind == N_PAT_RECORD && v.tag == V_RECORD)
    for (uint32_t i = 0; i < pat->list.count; i++) {
      const Value *x = record_get(v.u.rec, pat->list.items[i]->word.name);
      if (x) name_result(s, pat->list.items[i], *x);
    }
}

void check_shadow(Session *s, const Word *w) {
  Inst *i = s->frame->self;
  if (!i || !s->frame->fn || s->frame->fn->decl->kind == N_LAMBDA) return;
  const NodeList *l = &i->model->decl->model.members;
  const Node *hit = NULL;
  for (uint32_t k = 0; k < l->count; k++) {
    const Node *m = l->items[k];
    if (m->kind == N_FIELD && m->field.name.name == w->name) hit = m;
    if (m->kind == N_FN && m->fn->name.name == w->name) hit = m;
    if (m->kind == N_LET && m->let.pat->kind == N_PAT_NAME && m->let.pat->word.name == w->name)
      hit = m;
  }
  const NodeList *p = &i->model->decl->model.params;
  for (uint32_t k = 0; k < p->count; k++)
    if (p->items[k]->param.name.name == w->name) hit = p->items[k];
  if (!hit) return;
  Diag *d = err(s, ERR_SHADOW_FIELD, w->span, "`%s` has the name of a field of `%s`", w->name,
                i->model->name);
  dg_label(&s->diags, d, hit->span, "the field");
  dg_help(&s->diags, d, "another name keeps both readable; the field is also `self.%s`", w->name);
  raise_(s);
}
