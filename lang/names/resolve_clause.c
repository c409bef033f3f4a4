/* Words in clauses and types: policies, modes, dims, names of types (rules 19 to 25, 82, 87, 88).
 *
 * In: clauses of checkpoint and wrap, types of annotations. Out: filed errors; packs of
 * parameters are bound. The meaning of a word depends on its place only, so that a misspelt one
 * is found before a run.
 */
#include <string.h>

#include "lang/names/module.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"

/* ---- clauses of checkpoint and wrap */

/* A value as an argument of a clause. */
static void clause_value(Resolver *r, Node *x) {
  if (x->kind == N_WORD)
    rs_use_name(r, x->path.items[0].name, x->path.items[0].span);
  else if (ast_is_expr(x))
    rs_walk(r, x);
}

static void clause_values(Resolver *r, const NodeList *a) {
  for (uint32_t i = 0; i < a->count; i++) clause_value(r, a->items[i]);
}

/* An op class, or the name of a `let`, behind which names of items may stand. */
static void save_word(Resolver *r, Node *a) {
  Session *s = r->s;
  const Words *p = &a->path;
  if (clause_opclass(p) >= 0) return;
  for (uint32_t i = 0; i < p->count; i++) {
    Name n = p->items[i].name;
    if (rs_anywhere(r, n, true) || (i && rs_anywhere(r, n, false))) continue;
    Found f = rs_lookup(r, n);
    if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) continue;
    Diag *d = fail_report(s, ERR_POLICY_WORD, p->items[i].span,
                          "no op class, `let` or policy is called `%s`", n);
    Near b = near_start(n);
    for (size_t k = 0; k < clause_count; k++)
      if (clause_table[k].kind == CLAUSE_OPCLASS) near_try(&b, clause_table[k].word);
    for (size_t k = r->bind_count; k > 0; k--) near_try(&b, r->binds[k - 1].name);
    if (b.found)
      dg_help(&s->diags, d, "did you mean `%s`?", b.found);
    else
      dg_help(&s->diags, d, "the op classes are %s", clause_opclass_words(s));
    return;
  }
}

/* A clause that names a declared policy, or a function. */
static void walk_user_policy(Resolver *r, Node *c) {
  Session *s = r->s;
  const Word *w = &c->clause.path.items[0];
  const NodeList *a = &c->clause.args;
  const Global *g = NULL;
  Found f = rs_lookup(r, w->name);
  if (f.kind == F_GLOBAL && f.global->kind == G_MODULE && c->clause.path.count == 2) {
    const Word *v = &c->clause.path.items[1];
    if (!(g = rs_module_member(r, f.global->v.u.module, v->name, v->span))) return;
  } else if (f.kind == F_GLOBAL && c->clause.path.count == 1) {
    g = f.global;
  }
  if (g && g->kind == G_POLICY) {
    uint32_t want = g->decl->policy_decl.params.count;
    if (a->count != want) {
      Diag *d =
          fail_report(s, ERR_POLICY_WORD, c->span, "the policy `%s` takes %u argument%s, not %u",
                      g->name, want, rs_plural(want), a->count);
      dg_label(&s->diags, d, g->decl->policy_decl.name.span, "declared here");
    }
    clause_values(r, a);
    return;
  }
  if ((g && g->kind == G_FN) || f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) {
    if (f.kind != F_GLOBAL) rs_use_found(r, &f, w->name, w->span);
    clause_values(r, a); /* a policy may be a function (rule 84), or a variable that holds one */
    return;
  }
  clause_unknown(s, r->m, CLAUSE_POLICY, c);
}

static void walk_policy_clause(Resolver *r, Node *c, bool loop) {
  const Clause *k = clause_of(CLAUSE_POLICY, c);
  if (!k) {
    if (!c->clause.as.name || clause_fits_policy(r->s, k, c, loop)) walk_user_policy(r, c);
    return;
  }
  bool fits = clause_fits_policy(r->s, k, c, loop);
  uint32_t from;
  if (clause_tag(c, &from) == TAG_NONE) {
    if (fits || k->takes == TAKES_ITERATIONS) clause_values(r, &c->clause.args);
    return;
  }
  for (uint32_t i = from; i < c->clause.args.count; i++)
    if (c->clause.args.items[i]->kind == N_WORD) save_word(r, c->clause.args.items[i]);
}

/* Files an error for each op class or name that two clauses give different tags (rule 82). */
static void walk_agreement(Resolver *r, const Node *c, const Node *before) {
  uint32_t from, first;
  Tag tag = clause_tag(c, &from), said = clause_tag(before, &first);
  if (tag == TAG_NONE || said == TAG_NONE || tag == said) return;
  const NodeList *a = &c->clause.args, *b = &before->clause.args;
  for (uint32_t x = from; x < a->count; x++)
    for (uint32_t y = first; y < b->count; y++) {
      const Node *p = a->items[x], *q = b->items[y];
      if (p->kind != N_WORD || q->kind != N_WORD) continue;
      const char *text = clause_path(r->s, &p->path);
      if (clause_opclass(&p->path) == OPCLASS_NONE || strcmp(text, clause_path(r->s, &q->path)))
        continue;
      clause_disagree(r->s, p->span, text, tag, q->span, said);
    }
}

void rs_walk_policy(Resolver *r, NodeList *cl, bool loop) {
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    walk_policy_clause(r, c, loop);
    const Clause *k = clause_of(CLAUSE_POLICY, c);
    for (uint32_t n = 0; n < i; n++) {
      const Clause *o = clause_of(CLAUSE_POLICY, cl->items[n]);
      if (!clause_options_clash(o, k)) continue;
      clause_clash(r->s, ERR_POLICY_TWICE, c, o->word, cl->items[n]->span);
      break;
    }
    for (uint32_t n = 0; n < i; n++) walk_agreement(r, c, cl->items[n]);
  }
}

/* A clause that wraps by a function. */
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
    clause_unknown(s, r->m, CLAUSE_MODE, c);
  } else {
    if (f.kind != F_GLOBAL) rs_use_found(r, &f, w->name, w->span);
    if (g && g->kind == G_FN && rs_check_code_call(r, g, NULL, w->name, c->span))
      clause_fits_function(s, c, g->decl->fn);
  }
  clause_values(r, &c->clause.args);
}

void rs_walk_wrap(Resolver *r, Node *e, bool drop) {
  Session *s = r->s;
  NodeList *cl = &e->region.clauses;
  bool user = false, opaque = false;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    const Clause *k = clause_of(CLAUSE_MODE, c);
    if (!clause_fits_wrap(s, cl, i)) continue;
    if (!k)
      walk_user_wrap(r, c);
    else if (k->takes != TAKES_CHOICE)
      clause_values(r, &c->clause.args);
    user |= !k;
    opaque |= k && k->id == MODE_opaque;
  }
  Place p;
  if (user || opaque) rs_push_place(r, &p, user ? P_WRAP : P_OPAQUE, e, r->place->code);
  r->drop = drop && !user;
  rs_walk(r, e->region.body);
  if (user || opaque) r->place = p.up;
}

/* ---- types */

static void walk_dim(Resolver *r, Node *d, bool binds) {
  Session *s = r->s;
  if (d->kind == N_FLOAT || d->kind == N_STRING || d->kind == N_BOOL) {
    fail_report(s, ERR_WANT_INT, d->span, "a dim is an int or a name");
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
      Diag *g = fail_report(s, ERR_DIM_UNBOUND, d->span, "`%s` is no dim here", d->name);
      if (f.kind == F_GLOBAL) dg_label(&s->diags, g, f.global->span, "declared here");
      return;
    }
    rs_use_found(r, &f, d->name, d->span);
    return;
  }
  Diag *g = fail_report(s, ERR_DIM_UNBOUND, d->span, "the dim `%s` is not known here", d->name);
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
  if (binds && r->place->level) { /* so the error is filed once */
    Word w = {d->name, d->span, 0, NULL};
    rs_bind_word(r, &w, B_DIM);
  }
}

static void unknown_type(Resolver *r, Name n, Span at) {
  Session *s = r->s;
  Found f = rs_lookup(r, n);
  if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER || f.kind == F_GLOBAL ||
      f.kind == F_BUILTIN) {
    Diag *d = fail_report(s, ERR_TYPE, at, "`%s` is not a type", n);
    Span w = f.kind == F_LOCAL    ? f.bind->span
             : f.kind == F_TOP    ? f.top->span
             : f.kind == F_MEMBER ? rs_member_span(f.member)
             : f.kind == F_GLOBAL ? f.global->span
                                  : (Span){0};
    if (w.file) dg_label(&s->diags, d, w, "it is a value");
    return;
  }
  Diag *d = fail_report(s, ERR_UNKNOWN_TYPE, at, "no type is called `%s`", n);
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
  if (t->type_name.has_dims) fail_report(r->s, ERR_TYPE, t->span, "%s has no dims", what);
}

static void walk_type_name(Resolver *r, Node *t, bool binds) {
  Session *s = r->s;
  const Words *p = &t->type_name.path;
  Name n = p->items[0].name;
  if (p->count > 1) {
    Found f = rs_lookup(r, n);
    if (f.kind != F_GLOBAL || f.global->kind != G_MODULE || p->count > 2) {
      fail_report(s, ERR_UNKNOWN_TYPE, t->span, "no type is called `%s`", clause_path(s, p));
      return;
    }
    const Global *g = rs_module_member(r, f.global->v.u.module, p->items[1].name, p->items[1].span);
    if (g && g->kind != G_MODEL && g->kind != G_TYPE)
      fail_report(s, ERR_TYPE, t->span, "`%s` is not a type", clause_path(s, p));
    return;
  }
  Span at = p->items[0].span;
  TypeWord word = clause_type_word(n);
  bool tensor = dtype_find(n) >= 0 || clause_type_word_is_class(word);
  if (word == TYPEWORD_PARAMS) {
    if (t->type_name.dims.count != 1 || t->type_name.dims.items[0]->kind == N_PACK) {
      Diag *d = fail_report(s, ERR_TYPE, t->span,
                            "`params` is followed by a model or tracked tensor in brackets");
      dg_help(&s->diags, d, "`params[net]`");
      return;
    }
    rs_walk(r, t->type_name.dims.items[0]);
    return;
  }
  if (!tensor) {
    if (word != TYPEWORD_NOT) {
      no_dims(r, t, fail_text(s, "`%s`", n));
      return;
    }
    Global *g = rs_find_bind(r, n) ? NULL : global_find(s, r->m, n);
    if (g && (g->kind == G_TYPE || g->kind == G_MODEL)) {
      no_dims(r, t, fail_text(s, "`%s`", n));
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
      Diag *g = fail_report(s, ERR_TYPE, d->span, "a tensor type has at most one pack of dims");
      for (uint32_t k = 0; k < i; k++)
        if (t->type_name.dims.items[k]->kind == N_PACK)
          dg_label(&s->diags, g, t->type_name.dims.items[k]->span, "the first");
      continue;
    }
    if (!d->word.name) continue; /* any dims */
    Bind *b = rs_find_bind(r, d->word.name);
    if (!b && binds) rs_bind_word(r, &d->word, B_DIM);
    if (!b && !binds) {
      Diag *g = fail_report(s, ERR_DIM_UNBOUND, d->span,
                            "the pack `%s` is not bound: no parameter has it", d->word.name);
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
  case N_TYPE_DICT:
    rs_walk_type(r, t->entry.key, false);
    rs_walk_type(r, t->entry.value, binds);
    break;
  case N_TYPE_TUPLE:
    for (uint32_t i = 0; i < t->list.count; i++) rs_walk_type(r, t->list.items[i], binds);
    break;
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < t->list.count; i++) {
      Word *w = &t->list.items[i]->type_field.name;
      for (uint32_t k = 0; k < i; k++)
        if (t->list.items[k]->type_field.name.name == w->name) {
          Diag *d =
              fail_report(r->s, ERR_TWICE, w->span, "the record has the field `%s` twice", w->name);
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
    rs_unbind(r, base);
    break;
  }
  default: break;
  }
}
