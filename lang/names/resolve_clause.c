/* Words in clauses and types: policies, modes, dims, names of types (rules 19 to 25, 82, 87, 88).
 *
 * In: clauses of checkpoint and wrap, types of annotations. Out: filed errors; packs of
 * parameters are bound. What a word may mean depends on its place only, so that a misspelt one is
  * found before a run.
 */
#include <string.h>

#include "lang/names/resolver.h"

/* ---- clauses of checkpoint and wrap */

static const char *path_text(Resolver *r, const Words *p) {
  Buf b;
  buf_init_arena(&b, &r->s->scratch);
  for (uint32_t i = 0; i < p->count; i++) buf_printf(&b, "%s%s", i ? "." : "", p->items[i].name);
  return b.s ? b.s : "";
}

static const char *const class_words[] = {"matmul",    "conv",   "attention", "reduce",
                                          "pointwise", "random", "all",       "none"};

static bool is_class(Name n) {
  for (size_t i = 0; i < sizeof class_words / sizeof *class_words; i++)
    if (!strcmp(n, class_words[i])) return true;
  return false;
}

static void save_word(Resolver *r, Node *a) {
  Session *s = r->s;
  if (a->kind != N_WORD) {
    Diag *d = err(s, ERR_POLICY_WORD, a->span, "op classes and names of `let`s stand here");
    dg_help(&s->diags, d,
            "the op classes are matmul conv attention reduce pointwise random all none");
    return;
  }
  const Words *p = &a->path;
  if (p->count == 1 && is_class(p->items[0].name)) return;
  for (uint32_t i = 0; i < p->count; i++) {
    Name n = p->items[i].name;
    if (rs_anywhere(r, n, true)) continue;
    Found f = rs_lookup(r, n);
    if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) continue;
    Diag *d =
        err(s, ERR_POLICY_WORD, p->items[i].span, "no op class, `let` or policy is called `%s`", n);
    Near b = near_start(n);
    for (size_t k = 0; k < sizeof class_words / sizeof *class_words; k++)
      near_try(&b, class_words[k]);
    for (size_t k = r->bind_count; k > 0; k--) near_try(&b, r->binds[k - 1].name);
    if (b.found)
      dg_help(&s->diags, d, "did you mean `%s`?", b.found);
    else
      dg_help(&s->diags, d,
              "the op classes are matmul conv attention reduce pointwise random all none");
    return;
  }
}

static const char *const policy_words[] = {"save", "recompute", "prefer",   "offload", "budget",
                                           "auto", "reentrant", "binomial", "every"};

static void clause_count(Resolver *r, Node *c, uint32_t n, ErrCode code, const char *form) {
  Name w = c->clause.path.items[0].name;
  if (c->clause.args.count == n) return;
  Diag *d = err(r->s, code, c->span, "`%s` takes %u argument%s here, not %u", w, n, rs_plural(n),
                c->clause.args.count);
  dg_help(&r->s->diags, d, "%s", form);
}

static void walk_args(Resolver *r, const NodeList *a) {
  for (uint32_t i = 0; i < a->count; i++) {
    Node *x = a->items[i];
    if (x->kind == N_WORD)
      rs_use_name(r, x->path.items[0].name, x->path.items[0].span);
    else if (ast_is_expr(x))
      rs_walk(r, x);
  }
}

static void walk_policy_clause(Resolver *r, Node *c, bool loop) {
  Session *s = r->s;
  Word *w = &c->clause.path.items[0];
  NodeList *a = &c->clause.args;
  bool one = c->clause.path.count == 1;
  if (one && (rs_word_is(w->name, "save") || rs_word_is(w->name, "recompute") ||
              rs_word_is(w->name, "offload") || rs_word_is(w->name, "prefer"))) {
    uint32_t from = 0;
    if (rs_word_is(w->name, "prefer")) {
      Node *x = a->count ? a->items[0] : NULL;
      Name n = x && x->kind == N_WORD && x->path.count == 1 ? x->path.items[0].name : NULL;
      if (!rs_word_is(n, "save") && !rs_word_is(n, "recompute")) {
        err(s, ERR_POLICY_WORD, x ? x->span : c->span,
            "`prefer` is followed by `save` or `recompute`");
        return;
      }
      from = 1;
    }
    if (a->count == from) {
      Diag *d = err(s, ERR_POLICY_WORD, c->span, "`%s` names what it is about", w->name);
      dg_help(&s->diags, d, "op classes or names of `let`s: `<%s matmul>`",
              from ? "prefer save" : w->name);
    }
    for (uint32_t i = from; i < a->count; i++) save_word(r, a->items[i]);
    return;
  }
  if (one && rs_word_is(w->name, "budget")) {
    Node *x = a->count == 1 ? a->items[0] : NULL;
    if (x && !c->clause.is_set) x = NULL;
    if (x && x->kind != N_SIZE && x->kind != N_INT &&
        (ast_is_expr(x) && x->kind != N_STRING && x->kind != N_FLOAT))
      rs_walk(r, x);
    else if (!x || (x->kind != N_SIZE && x->kind != N_INT && x->kind != N_WORD)) {
      Diag *d = err(s, ERR_POLICY_WORD, x ? x->span : c->span, "a budget is a number of bytes");
      dg_help(&s->diags, d, "`<budget = 1.5GiB>`");
    } else if (x->kind == N_WORD) {
      rs_use_name(r, x->path.items[0].name, x->path.items[0].span);
    }
    return;
  }
  if (one && (rs_word_is(w->name, "auto") || rs_word_is(w->name, "reentrant"))) {
    clause_count(r, c, 0, ERR_POLICY_WORD, txt(s, "`checkpoint <%s> { .. }`", w->name));
    return;
  }
  if (one && (rs_word_is(w->name, "binomial") || rs_word_is(w->name, "every"))) {
    clause_count(r, c, 1, ERR_POLICY_WORD,
                 txt(s, "`checkpoint <%s 10> for i in 0..n { .. }`", w->name));
    if (!loop) {
      Diag *d = err(s, ERR_POLICY_WORD, c->span, "`%s` is about the turns of a loop", w->name);
      dg_help(&s->diags, d, "`checkpoint <%s 10> for i in 0..n { .. }`", w->name);
    }
    walk_args(r, a);
    return;
  }
  const Global *g = NULL;
  Found f = rs_lookup(r, w->name);
  if (f.kind == F_GLOBAL && f.global->kind == G_MODULE && c->clause.path.count == 2) {
    const Word *v = &c->clause.path.items[1];
    if (!(g = rs_module_member(r, f.global->v.u.module, v->name, v->span))) return;
  } else if (f.kind == F_GLOBAL && one) {
    g = f.global;
  }
  if (g && g->kind == G_POLICY) {
    uint32_t want = g->decl->policy_decl.params.count;
    if (a->count != want) {
      Diag *d = err(s, ERR_POLICY_WORD, c->span, "the policy `%s` takes %u argument%s, not %u",
                    g->name, want, rs_plural(want), a->count);
      dg_label(&s->diags, d, g->decl->policy_decl.name.span, "declared here");
    }
    walk_args(r, a);
    return;
  }
  if ((g && g->kind == G_FN) || f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) {
    if (f.kind != F_GLOBAL) rs_use_found(r, &f, w->name, w->span);
    walk_args(r, a); /* a policy may be a function (rule 84), or a variable that holds one */
    return;
  }
  Diag *d = err(s, ERR_POLICY_WORD, w->span, "no policy word or policy is called `%s`",
                path_text(r, &c->clause.path));
  Near b = near_start(w->name);
  for (size_t k = 0; k < sizeof policy_words / sizeof *policy_words; k++)
    near_try(&b, policy_words[k]);
  for (size_t k = 0; k < r->m->global_count; k++)
    if (r->m->globals[k].kind == G_POLICY) near_try(&b, r->m->globals[k].name);
  if (b.found)
    dg_help(&s->diags, d, "did you mean `%s`?", b.found);
  else if (is_class(w->name))
    dg_help(&s->diags, d, "say what becomes of it: `<save %s>`", w->name);
  else
    dg_help(&s->diags, d,
            "words are save recompute prefer offload budget auto reentrant binomial every; `policy "
            "%s { save matmul }` declares one",
            w->name);
}

/* What a clause says of an op class or name: two of equal rank that disagree are an error (rule
 * 82). */
static const char *stance(const Node *c, uint32_t *from) {
  Name w = c->clause.path.items[0].name;
  *from = 0;
  if (rs_word_is(w, "save") || rs_word_is(w, "recompute") || rs_word_is(w, "offload")) return w;
  if (rs_word_is(w, "prefer") && c->clause.args.count && c->clause.args.items[0]->kind == N_WORD) {
    *from = 1;
    return c->clause.args.items[0]->path.items[0].name;
  }
  return NULL;
}

/* Options stand once; `every` and `binomial` are two answers to one question. */
static bool option_again(const Node *c, const Node *o) {
  static const char *const options[] = {"budget", "auto", "reentrant", "every", "binomial"};
  Name w = c->clause.path.items[0].name, v = o->clause.path.items[0].name;
  if (c->clause.path.count > 1 || o->clause.path.count > 1) return false;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (rs_word_is(w, options[i]) && (v == w || (i >= 3 && (rs_word_is(v, "every") ||
                                                          rs_word_is(v, "binomial")))))
      return true;
  return false;
}

void rs_walk_policy(Resolver *r, NodeList *cl, bool loop) {
  Session *s = r->s;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    walk_policy_clause(r, c, loop);
    for (uint32_t k = 0; k < i; k++) {
      if (!option_again(c, cl->items[k])) continue;
      Name o = cl->items[k]->clause.path.items[0].name, w = c->clause.path.items[0].name;
      Diag *d = o == w ? err(s, ERR_POLICY_TWICE, c->span, "`%s` stands twice", w)
                       : err(s, ERR_POLICY_TWICE, c->span, "`%s` and `%s` exclude each other", o,
                             w);
      dg_label(&s->diags, d, cl->items[k]->span, "first here");
      break;
    }
    uint32_t fi, fk;
    const char *a = stance(c, &fi);
    for (uint32_t k = 0; k < i && a; k++) {
      const char *b = stance(cl->items[k], &fk);
      if (!b || !strcmp(a, b)) continue;
      for (uint32_t x = fi; x < c->clause.args.count; x++)
        for (uint32_t y = fk; y < cl->items[k]->clause.args.count; y++) {
          Node *p = c->clause.args.items[x], *q = cl->items[k]->clause.args.items[y];
          if (p->kind != N_WORD || q->kind != N_WORD ||
              strcmp(path_text(r, &p->path), path_text(r, &q->path)))
            continue;
          Diag *d =
              err(s, ERR_POLICY_TWICE, p->span, "the clauses disagree about `%s`: `%s` and `%s`",
                  path_text(r, &p->path), b, a);
          dg_label(&s->diags, d, q->span, "`%s` here", b);
          dg_help(&s->diags, d, "name it in one clause");
        }
    }
  }
}

typedef struct Mode {
  const char *word;
  int args;
  const char *form;
} Mode;

static const Mode modes[] = {{"no_grad", 0, "`wrap <no_grad> { .. }`"},
                             {"grad", 0, "`wrap <grad> { .. }`"},
                             {"train", 0, "`wrap <train> { .. }`"},
                             {"eval", 0, "`wrap <eval> { .. }`"},
                             {"bf16", 0, "`wrap <bf16> { .. }`"},
                             {"f16", 0, "`wrap <f16> { .. }`"},
                             {"tf32", 0, "`wrap <tf32> { .. }`"},
                             {"anomaly", 0, "`wrap <anomaly> { .. }`"},
                             {"seed", 1, "`wrap <seed 7> { .. }`"},
                             {"device", 1, "`wrap <device sim> { .. }`"},
                             {"backward", 1, "`wrap <backward plain> { .. }`"},
                             {"profile", 1, "`wrap <profile \"name\"> { .. }`"},
                             {"opaque", 1, "`wrap <opaque \"name\"> { .. }`"},
                             {"with_params", 2, "`wrap <with_params net tree> { .. }`"}};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

static const Mode *mode_find(const Node *c) {
  if (c->clause.path.count != 1) return NULL;
  for (size_t i = 0; i < MODE_COUNT; i++)
    if (!strcmp(modes[i].word, c->clause.path.items[0].name)) return &modes[i];
  return NULL;
}

static bool opposite(const char *a, const char *b) {
  static const char *const pairs[][2] = {
      {"grad", "no_grad"}, {"train", "eval"}, {"bf16", "f16"}, {"bf16", "tf32"}, {"f16", "tf32"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if ((!strcmp(a, pairs[i][0]) && !strcmp(b, pairs[i][1])) ||
        (!strcmp(a, pairs[i][1]) && !strcmp(b, pairs[i][0])))
      return true;
  return false;
}

static void clause_value(Resolver *r, Node *x) {
  if (x->kind == N_WORD)
    rs_use_name(r, x->path.items[0].name, x->path.items[0].span);
  else if (ast_is_expr(x))
    rs_walk(r, x);
}

static void walk_mode(Resolver *r, Node *c, const Mode *m) {
  Session *s = r->s;
  NodeList *a = &c->clause.args;
  if ((int)a->count != m->args) {
    clause_count(r, c, (uint32_t)m->args, ERR_WRAP_ARG, m->form);
    return;
  }
  if (!strcmp(m->word, "device") || !strcmp(m->word, "backward")) {
    Node *x = a->items[0];
    const char *w = x->kind == N_WORD && x->path.count == 1 ? x->path.items[0].name
                    : x->kind == N_STRING                   ? ast_plain_text(x, &(uint32_t){0})
                                                            : NULL;
    static const char *const known[2][4] = {{"cpu", "sim", "cuda", NULL},
                                            {"plain", "captured", NULL, NULL}};
    const char *const *k = known[!strcmp(m->word, "backward")];
    while (w && *k && strcmp(*k, w)) k++;
    if (!w || !*k) {
      Diag *d = err(s, ERR_WRAP_ARG, x->span,
                    m->word[0] == 'd' ? "no device is called `%s`" : "`backward` is not `%s`",
                    w ? w : "this");
      dg_help(&s->diags, d, "%s",
              m->word[0] == 'd' ? "devices are cpu, sim and cuda"
                                : "`backward` takes `plain` or `captured`");
    }
    return;
  }
  for (uint32_t i = 0; i < a->count; i++) clause_value(r, a->items[i]);
  if ((!strcmp(m->word, "opaque") || !strcmp(m->word, "profile")) &&
      a->items[0]->kind != N_STRING && a->items[0]->kind != N_WORD)
    err(s, ERR_WRAP_ARG, a->items[0]->span, "`%s` takes a name in quotes", m->word);
}

/* A wrap by a function. */
static void walk_user_wrap(Resolver *r, Node *c) {
  Session *s = r->s;
  const Word *w = &c->clause.path.items[0];
  Found f = rs_lookup(r, w->name);
  const Global *g = f.kind == F_GLOBAL ? f.global : NULL;
  if (g && g->kind == G_MODULE && c->clause.path.count == 2) {
    if (!(g = rs_module_member(r, g->v.u.module, c->clause.path.items[1].name,
                               c->clause.path.items[1].span)))
      return;
  }
  if (f.kind == F_NONE || f.kind == F_DTYPE ||
      (g &&
       (g->kind == G_TYPE || g->kind == G_POLICY || g->kind == G_MODULE || g->kind == G_MODEL))) {
    Diag *d = err(s, ERR_WRAP_WORD, c->span, "no mode, and no function, is called `%s`",
                  path_text(r, &c->clause.path));
    Near b = near_start(w->name);
    for (size_t i = 0; i < MODE_COUNT; i++) near_try(&b, modes[i].word);
    for (size_t i = 0; i < r->m->global_count; i++)
      if (r->m->globals[i].kind == G_FN) near_try(&b, r->m->globals[i].name);
    if (b.found)
      dg_help(&s->diags, d, "did you mean `%s`?", b.found);
    else
      dg_help(&s->diags, d,
              "modes are train eval no_grad grad bf16 f16 tf32 device seed anomaly profile opaque "
              "with_params backward");
  } else {
    if (f.kind != F_GLOBAL) rs_use_found(r, &f, w->name, w->span);
    if (g && g->kind == G_FN && rs_check_code_call(r, g, NULL, w->name, c->span)) {
      size_t want = 0;
      for (uint32_t i = 0; i < g->decl->fn->params.count; i++)
        want += !g->decl->fn->params.items[i]->param.init;
      if (want != c->clause.args.count + 1) {
        Diag *d =
            want ? err(s, ERR_WRAP_ARG, c->span, "`%s` takes %zu argument%s and the block, not %u",
                       w->name, want - 1, rs_plural(want - 1), c->clause.args.count)
                 : err(s, ERR_WRAP_ARG, c->span,
                       "`%s` takes no block: its last argument must be a function", w->name);
        if (src_get(&s->sources, g->decl->fn->header.file)->path[0] != '<')
          dg_label(&s->diags, d, g->decl->fn->header, "declared here");
      }
    }
  }
  for (uint32_t i = 0; i < c->clause.args.count; i++) clause_value(r, c->clause.args.items[i]);
}

void rs_walk_wrap(Resolver *r, Node *e, bool drop) {
  Session *s = r->s;
  NodeList *cl = &e->region.clauses;
  bool user = false, opaque = false;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    Name w = c->clause.path.items[0].name;
    bool twice = false;
    for (uint32_t k = 0; k < i && !twice; k++) {
      Name o = cl->items[k]->clause.path.items[0].name;
      if (o == w || opposite(o, w)) {
        Diag *d = o == w
                      ? err(s, ERR_WRAP_TWICE, c->span, "`%s` stands twice", w)
                      : err(s, ERR_WRAP_TWICE, c->span, "`%s` and `%s` exclude each other", o, w);
        dg_label(&s->diags, d, cl->items[k]->span, "first here");
        twice = true;
      }
    }
    if (twice) continue;
    const Mode *m = mode_find(c);
    if (m) {
      opaque |= rs_word_is(w, "opaque");
      walk_mode(r, c, m);
      continue;
    }
    if (user) {
      Diag *d = err(s, ERR_WRAP_TWICE, c->span, "a `wrap` has one function");
      dg_help(&s->diags, d, "one inside the other: `wrap <f> { wrap <%s> { .. } }`", w);
      continue;
    }
    user = true;
    walk_user_wrap(r, c);
  }
  Place p;
  if (user || opaque) rs_push_place(r, &p, user ? P_WRAP : P_OPAQUE, e, r->place->code);
  r->drop = drop && !user;
  rs_walk(r, e->region.body);
  if (user || opaque) r->place = p.up;
}

/* ---- types */

bool rs_is_class_word(Name n) {
  return rs_word_is(n, "float") || rs_word_is(n, "int") || rs_word_is(n, "num");
}

static void walk_dim(Resolver *r, Node *d, bool binds) {
  Session *s = r->s;
  if (d->kind == N_FLOAT || d->kind == N_STRING || d->kind == N_BOOL) {
    err(s, ERR_WANT_INT, d->span, "a dim is an int or a name");
    return;
  }
  if (d->kind != N_NAME) {
    rs_walk(r, d);
    return;
  }
  if (rs_word_is(d->name, "_")) return;
  Found f = rs_lookup(r, d->name);
  if (f.kind != F_NONE) {
    if (f.kind == F_BUILTIN || f.kind == F_DTYPE ||
        (f.kind == F_GLOBAL && f.global->kind != G_VALUE)) {
      Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "`%s` is no dim here", d->name);
      if (f.kind == F_GLOBAL) dg_label(&s->diags, g, f.global->span, "declared here");
      return;
    }
    rs_use_found(r, &f, d->name, d->span);
    return;
  }
  Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "the dim `%s` is not known here", d->name);
  const char *near = NULL;
  Near b = near_start(d->name);
  for (size_t i = r->bind_count; i > 0; i--)
    if (r->binds[i - 1].kind == B_DIM || r->binds[i - 1].kind == B_PARAM)
      near_try(&b, r->binds[i - 1].name);
  if (r->model) rs_near_member(&b, r->model);
  near = b.found;
  if (near)
    dg_help(&s->diags, g, "did you mean `%s`?", near);
  else if (binds && r->fn && r->place->kind == P_FN && r->fn->name.name)
    dg_help(&s->diags, g, "a dim of the signature is declared in brackets: `%s %s[%s](..)`",
            r->fn->is_proc ? "proc" : "fn", r->fn->name.name, d->name);
  else if (!binds && r->place->level == 0)
    dg_help(&s->diags, g, "in script a dim is an int that has a name, or `_`");
  else if (r->model && !r->method)
    dg_help(&s->diags, g, "a constructor argument may be a size: `model %s(%s: int)`",
            r->model->model.name.name, d->name);
  if (binds && r->place->level) { /* said once */
    Word w = {d->name, d->span, 0, NULL};
    rs_bind_word(r, &w, B_DIM);
  }
}

static void unknown_type(Resolver *r, Name n, Span at) {
  Session *s = r->s;
  Found f = rs_lookup(r, n);
  if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER || f.kind == F_GLOBAL ||
      f.kind == F_BUILTIN) {
    Diag *d = err(s, ERR_TYPE, at, "`%s` is not a type", n);
    Span w = f.kind == F_LOCAL    ? f.bind->span
             : f.kind == F_TOP    ? f.top->span
             : f.kind == F_MEMBER ? rs_member_span(f.member)
             : f.kind == F_GLOBAL ? f.global->span
                                  : (Span){0};
    if (w.file) dg_label(&s->diags, d, w, "it is a value");
    return;
  }
  Diag *d = err(s, ERR_UNKNOWN_TYPE, at, "no type is called `%s`", n);
  const char *here = foreign_dtype(n), *brings = library_help(s, n), *near = rs_near_type(r, n);
  if (here)
    dg_help(&s->diags, d, "here it is `%s`, with its axes: `%s[3, 4]`", here, here);
  else if (brings)
    dg_help(&s->diags, d, "%s", brings);
  else if (near)
    dg_help(&s->diags, d, "did you mean `%s`?", near);
  else
    dg_help(
        &s->diags, d,
        "types are dtypes (f32, i64, ..), float, int, num, str, models and `type` declarations");
}

static void no_dims(Resolver *r, const Node *t, const char *what) {
  if (t->type_name.has_dims) err(r->s, ERR_TYPE, t->span, "%s has no dims", what);
}

static void walk_type_name(Resolver *r, Node *t, bool binds) {
  Session *s = r->s;
  const Words *p = &t->type_name.path;
  Name n = p->items[0].name;
  if (p->count > 1) {
    Found f = rs_lookup(r, n);
    if (f.kind != F_GLOBAL || f.global->kind != G_MODULE || p->count > 2) {
      err(s, ERR_UNKNOWN_TYPE, t->span, "no type is called `%s`", path_text(r, p));
      return;
    }
    const Global *g = rs_module_member(r, f.global->v.u.module, p->items[1].name, p->items[1].span);
    if (g && g->kind != G_MODEL && g->kind != G_TYPE)
      err(s, ERR_TYPE, t->span, "`%s` is not a type", path_text(r, p));
    return;
  }
  Span at = p->items[0].span;
  bool tensor = dtype_find(n) >= 0 || rs_is_class_word(n);
  if (rs_word_is(n, "params")) {
    if (t->type_name.dims.count != 1 || t->type_name.dims.items[0]->kind == N_PACK) {
      Diag *d = err(s, ERR_TYPE, t->span,
                    "`params` is followed by a model or tracked tensor in brackets");
      dg_help(&s->diags, d, "`params[net]`");
      return;
    }
    rs_walk(r, t->type_name.dims.items[0]);
    return;
  }
  if (!tensor) {
    if (rs_word_is(n, "any") || rs_word_is(n, "str") || rs_word_is(n, "model") ||
        rs_word_is(n, "seq") || rs_word_is(n, "none")) {
      no_dims(r, t, txt(s, "`%s`", n));
      return;
    }
    Global *g = rs_find_bind(r, n) ? NULL : global_find(s, r->m, n);
    if (g && (g->kind == G_TYPE || g->kind == G_MODEL)) {
      no_dims(r, t, txt(s, "`%s`", n));
      return;
    }
    unknown_type(r, n, at);
    return;
  }
  uint32_t packs = 0;
  for (uint32_t i = 0; i < t->type_name.dims.count; i++) {
    Node *d = t->type_name.dims.items[i];
    if (d->kind != N_PACK) {
      walk_dim(r, d, binds);
      continue;
    }
    if (packs++) {
      Diag *g = err(s, ERR_TYPE, d->span, "a tensor type has at most one pack of dims");
      for (uint32_t k = 0; k < i; k++)
        if (t->type_name.dims.items[k]->kind == N_PACK)
          dg_label(&s->diags, g, t->type_name.dims.items[k]->span, "the first");
      continue;
    }
    if (!d->word.name) continue; /* any dims */
    Bind *b = rs_find_bind(r, d->word.name);
    if (!b && binds) rs_bind_word(r, &d->word, B_DIM);
    if (!b && !binds) {
      Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "the pack `%s` is not bound: no parameter has it",
                    d->word.name);
      dg_help(&s->diags, g, "a parameter binds it: `x: f32[...%s]`", d->word.name);
    }
  }
}

/* `binds`: the type of a parameter, whose packs are bound here. */
void rs_walk_type(Resolver *r, Node *t, bool binds) {
  stack_check();
  if (!t || rs_full(r)) return;
  switch ((NodeKind)t->kind) {
  case N_TYPE_NAME: walk_type_name(r, t, binds); break;
  case N_TYPE_LIST: rs_walk_type(r, t->type_list, binds); break;
  case N_TYPE_TUPLE:
    for (uint32_t i = 0; i < t->list.count; i++) rs_walk_type(r, t->list.items[i], binds);
    break;
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < t->list.count; i++) {
      Word *w = &t->list.items[i]->type_field.name;
      for (uint32_t k = 0; k < i; k++)
        if (t->list.items[k]->type_field.name.name == w->name) {
          Diag *d = err(r->s, ERR_TWICE, w->span, "the record has the field `%s` twice", w->name);
          dg_label(&r->s->diags, d, t->list.items[k]->type_field.name.span, "first here");
          break;
        }
      rs_walk_type(r, t->list.items[i]->type_field.type, binds);
    }
    break;
  case N_TYPE_FN: {
    size_t base = r->bind_count; /* packs of a function's type are its own */
    for (uint32_t i = 0; i < t->type_fn.params.count; i++) {
      Node *p = t->type_fn.params.items[i];
      rs_walk_type(r, p->kind == N_TYPE_FIELD ? p->type_field.type : p, true);
    }
    rs_walk_type(r, t->type_fn.result, true);
    r->bind_count = base;
    break;
  }
  default: break;
  }
}
