/* One name: where it is looked up, what binds it, whether it may be read here.
 *
 * In: a name and its place. Out: its meaning, or a filed error with a suggestion.
 */
#include <string.h>

#include "lang/eval/model.h"
#include "lang/names/module.h"
#include "lang/names/reach.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"
#include "stdlib/embed.h"

/* ---- looking up */

Span rs_member_span(const Node *m) {
  switch ((NodeKind)m->kind) {
  case N_PARAM: return m->param.name.span;
  case N_FIELD: return m->field.name.span;
  case N_FN: return m->fn->name.span;
  case N_LET: return m->let.pat->span;
  default: return m->span;
  }
}

/* A field or method; `have`: fields only among the first `have` members. */
Node *rs_model_member(Session *s, const Node *model, Name name, uint32_t have) {
  const NodeList *p = &model->model.params, *l = &model->model.members;
  ptrdiff_t at = model_find(s, model, name);
  if (at == TABLE_NONE) return NULL;
  if ((size_t)at < p->count) return p->items[at];
  at -= (ptrdiff_t)p->count;
  return (uint32_t)at < have || l->items[at]->kind == N_FN ? l->items[at] : NULL;
}

bool rs_in_named(const Resolver *r) {
  const Place *p = r->place;
  while (p && p->kind != P_FN) p = p->up;
  return p != NULL;
}

Bind *rs_find_bind(const Resolver *r, Name name) {
  ptrdiff_t i = table_get(&r->bound, table_key(name));
  while (i != TABLE_NONE && r->binds[i].hidden) i = r->binds[i].outer;
  return i == TABLE_NONE ? NULL : &r->binds[i];
}

void rs_unbind(Resolver *r, size_t to) {
  while (r->bind_count > to) {
    const Bind *b = &r->binds[--r->bind_count];
    if (b->outer == TABLE_NONE)
      table_remove(&r->bound, table_key(b->name));
    else
      table_set(&r->bound, table_key(b->name), (size_t)b->outer);
  }
}

/* The variable of the file that `name` means at this place, or NULL. In functions: the last one of
 * that name. */
static TopName *find_top(const Resolver *r, Name name) {
  TopName *best = NULL;
  ptrdiff_t i = table_get(&r->first_top, table_key(name));
  if (i == TABLE_NONE) return NULL;
  if (r->place->level) return &r->tops[table_get(&r->last_top, table_key(name))];
  for (; i >= 0 && (!best || r->tops[i].item < r->item); i = r->tops[i].next) best = &r->tops[i];
  return best;
}

Found rs_lookup(Resolver *r, Name name) {
  Found f = {F_NONE, NULL, NULL, NULL, NULL, NULL};
  if ((f.bind = rs_find_bind(r, name))) {
    f.kind = F_LOCAL;
    return f;
  }
  if (r->model && (f.member = rs_model_member(r->s, r->model, name, r->members))) {
    f.kind = F_MEMBER;
    return f;
  }
  if ((f.top = find_top(r, name))) {
    Global *g = global_find(r->s, r->m, name);
    if (!g || g->kind == G_VALUE) {
      f.kind = F_TOP;
      f.global = g && g->module == r->m ? g : NULL;
      return f;
    }
  }
  if ((f.global = global_find(r->s, r->m, name)))
    f.kind = F_GLOBAL;
  else if ((f.builtin = module_builtin(r->s, r->m, name)))
    f.kind = F_BUILTIN;
  else if (dtype_find(name) >= 0)
    f.kind = F_DTYPE;
  return f;
}

/* ---- suggestions for an unknown name */

void rs_near_member(Near *b, const Node *model) {
  const NodeList *p = &model->model.params, *l = &model->model.members;
  for (uint32_t i = 0; i < p->count; i++) near_try(b, model_member_name(p->items[i]));
  for (uint32_t i = 0; i < l->count; i++) near_try(b, model_member_name(l->items[i]));
}

static void near_global(Near *b, const Module *m, bool types) {
  for (size_t i = 0; m && i < m->global_count; i++) {
    const Global *g = &m->globals[i];
    bool type = g->kind == G_TYPE || g->kind == G_MODEL;
    if (types ? type || g->kind == G_MODULE : g->kind != G_TYPE && g->kind != G_POLICY)
      near_try(b, g->name);
  }
}

const char *rs_near_value(Resolver *r, Name name) {
  Near b = near_start(name);
  for (size_t i = r->bind_count; i > 0; i--)
    if (!r->binds[i - 1].hidden) near_try(&b, r->binds[i - 1].name);
  if (r->model) rs_near_member(&b, r->model);
  for (size_t i = 0; i < r->top_count; i++)
    if (r->place->level || r->tops[i].item < r->item) near_try(&b, r->tops[i].name);
  near_global(&b, r->m, false);
  near_global(&b, r->s->prelude, false);
  for (size_t i = 0; i < builtin_count; i++) near_try(&b, builtin_table[i].name);
  for (size_t i = 0; i < std_name_count; i++) near_try(&b, std_names[i].name);
  for (int i = 0; i < DT_COUNT; i++) near_try(&b, dtype_info[i].name);
  static const char *const reserved[] = {"return",     "break", "continue", "while", "assert",
                                         "checkpoint", "wrap",  "true",     "false", "self"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) near_try(&b, reserved[i]);
  return b.found;
}

const char *rs_near_type(Resolver *r, Name name) {
  Near b = near_start(name);
  for (int i = 0; i < DT_COUNT; i++) near_try(&b, dtype_info[i].name);
  for (size_t i = 0; i < clause_count; i++)
    if (clause_table[i].kind == CLAUSE_TYPE) near_try(&b, clause_table[i].word);
  near_global(&b, r->m, true);
  return b.found;
}

static void unknown_name(Resolver *r, Name name, Span at) {
  Session *s = r->s;
  if (rs_word_is(name, "_")) {
    Diag *d = fail_report(s, ERR_UNKNOWN_NAME, at, "`_` binds nothing and has no value");
    dg_help(&s->diags, d, "give the value a name where `_` stands");
    return;
  }
  if (r->model && !r->method) { /* a member declared below */
    const Node *later = rs_model_member(r->s, r->model, name, UINT32_MAX);
    if (later) {
      Diag *d = fail_report(s, ERR_UNSET, at,
                            "`%s` has no value yet: members are made from top to bottom", name);
      dg_label(&s->diags, d, rs_member_span(later), "declared here");
      return;
    }
  }
  Diag *d = fail_report(s, ERR_UNKNOWN_NAME, at, "`%s` is not known here", name);
  if (!help_meant(s, d, name, rs_near_value(r, name)) && rs_word_is(name, "self"))
    dg_help(&s->diags, d, "`self` stands in methods");
}

bool rs_unknown_prefix(Resolver *r, const Node *dotted) {
  Session *s = r->s;
  const Node *root = dotted;
  while (root->kind == N_DOT) root = root->dot.object;
  if (root->kind != N_NAME || rs_lookup(r, root->name).kind != F_NONE) return false;
  Name first = root->name, last = dotted->dot.name.name;
  bool module = library_module(first);
  if (!module && !foreign_module(first)) return false;
  Diag *d = fail_report(s, ERR_UNKNOWN_NAME, root->span, "`%s` is not known here", first);
  const Node *owner = dotted->dot.object;
  const char *here =
      foreign_member_help(s, owner->kind == N_DOT ? owner->dot.name.name : owner->name, last);
  if (module && (!here || library_has(first, last)))
    dg_help(&s->diags, d, "`use %s` brings the module of that name", first);
  else if (here || (here = library_help(s, last)) != NULL)
    dg_help(&s->diags, d, "%s", here);
  else if (rs_lookup(r, last).kind != F_NONE)
    dg_help(&s->diags, d, "functions have no prefix: `%s`", last);
  else
    dg_help(&s->diags, d, "functions have no prefix, and none is called `%s`", last);
  return true;
}

/* Names of fields, methods and record fields in any loaded file go to `field`, names of `let`s and
 * functions to `let`. */
static void note(Table *t, Name name) {
  if (name) table_set(t, table_key(name), 0);
}

static void note_pattern(Table *t, const Node *p) {
  stack_check();
  if (p->kind == N_PAT_NAME) note(t, p->word.name);
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) note_pattern(t, p->list.items[i]);
}

static void note_member(Anywhere *q, const Node *m) {
  note(&q->field, model_member_name(m));
  note(&q->let, model_member_name(m));
}

static void note_visit(void *ud, Node *n) {
  stack_check();
  Anywhere *q = ud;
  if (!n) return;
  if (n->kind == N_MODEL) {
    for (uint32_t i = 0; i < n->model.params.count; i++) note_member(q, n->model.params.items[i]);
    for (uint32_t i = 0; i < n->model.members.count; i++) note_member(q, n->model.members.items[i]);
  }
  if (n->kind == N_LET) note_pattern(&q->let, n->let.pat);
  if (n->kind == N_FN) note(&q->let, n->fn->name.name);
  if (n->kind == N_RECORD)
    for (uint32_t i = 0; i < n->list.count; i++) note(&q->field, n->list.items[i]->arg.name.name);
  if (n->kind == N_NAME) shelf_find(q->s, n->name); /* what is loaded later would not be seen */
  if (n->kind == N_TYPE_FIELD) note(&q->field, n->type_field.name.name);
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) note_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, note_visit, ud);
}

bool rs_anywhere(Resolver *r, Name name, bool lets) {
  Anywhere *q = &r->anywhere;
  if (!q->field.arena) {
    q->field.arena = q->let.arena = &r->s->scratch;
    q->s = r->s;
    for (size_t i = 0; i < r->s->module_count; i++)
      if (r->s->modules[i]->ast) note_visit(q, r->s->modules[i]->ast);
  }
  return table_get(lets ? &q->let : &q->field, table_key(name)) != TABLE_NONE;
}

bool rs_member_call(Resolver *r, const Node *call) {
  Name name = call->call.callee->dot.name.name;
  bool handle = rs_word_is(name, "remove") && !call->call.args.count;
  return handle || rs_anywhere(r, name, false);
}

/* ---- binding */

const char *rs_what_binds(BindKind k) {
  switch (k) {
  case B_PARAM: return "parameter";
  case B_LOOP: return "loop variable";
  case B_DIM: return "dim";
  case B_FN: return "function";
  default: return "local";
  }
}

/* Whether the word may be bound here; an error is filed when not (rules 3 and 4). */
bool rs_may_bind(Resolver *r, const Word *w, BindKind k) {
  Session *s = r->s;
  if (!w->name || rs_word_is(w->name, "_")) return false;
  if (module_name_is_fixed(w->name)) {
    Diag *d = fail_report(s, ERR_REDECLARE, w->span,
                          "`%s` is built in and cannot be declared again", w->name);
    dg_help(&s->diags, d, "choose another name");
    return false;
  }
  if (r->method && k != B_OUT) {
    Node *f = rs_model_member(r->s, r->model, w->name, UINT32_MAX);
    if (f) {
      Diag *d = fail_report(s, ERR_SHADOW_FIELD, w->span,
                            "the %s `%s` has the name of a %s of `%s`", rs_what_binds(k), w->name,
                            f->kind == N_FN      ? "method"
                            : f->kind == N_PARAM ? "constructor argument"
                                                 : "field",
                            r->model->model.name.name);
      dg_label(&s->diags, d, rs_member_span(f), "`%s` of the model", w->name);
      dg_help(&s->diags, d, "choose another name: a bare `%s` always means the model's", w->name);
      return false;
    }
  }
  return true;
}

void rs_bind_word(Resolver *r, const Word *w, BindKind k) {
  if (!rs_may_bind(r, w, k) && (!w->name || rs_word_is(w->name, "_"))) return;
  ptrdiff_t outer = table_get(&r->bound, table_key(w->name));
  Bind b = {w->name, w->span, k, r->place, .outer = outer};
  r->bound.arena = &r->s->scratch;
  table_set(&r->bound, table_key(w->name), r->bind_count);
  VEC_PUSH(&r->s->scratch, r->binds, r->bind_count, r->bind_cap, b);
}

/* Binds the names of a pattern; a name that stands twice in it is an error. */
void rs_bind_pattern(Resolver *r, const Node *p, BindKind k, bool range, size_t from) {
  stack_check();
  if (p->kind == N_PAT_NAME) {
    const Bind *first = rs_find_bind(r, p->word.name);
    if (first && first >= &r->binds[from]) {
      Diag *d = fail_report(r->s, ERR_TWICE, p->span, "the pattern binds `%s` twice", p->word.name);
      dg_label(&r->s->diags, d, first->span, "first here");
      return;
    }
    size_t before = r->bind_count;
    rs_bind_word(r, &p->word, k);
    if (r->bind_count > before) r->binds[before].over_range = range;
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++)
      rs_bind_pattern(r, p->list.items[i], k, range, from);
}

/* ---- using a name */

void rs_use_found(Resolver *r, const Found *f, Name name, Span at) {
  Session *s = r->s;
  switch (f->kind) {
  case F_NONE: unknown_name(r, name, at); return;
  case F_LOCAL:
    if (f->bind->kind == B_VAR && f->bind->place->level < r->place->level) {
      const Place *p = r->place;
      while (p && p->kind != P_FN && p->kind != P_LAMBDA) p = p->up;
      Diag *d = fail_report(s, ERR_CAPTURE_VAR, at,
                            "a function cannot capture the local `var` `%s`", name);
      dg_label(&s->diags, d, f->bind->span, "declared here");
      dg_help(&s->diags, d, "copy it to a `let` before the function: `let now = %s`", name);
    }
    return;
  case F_TOP: {
    const TopName *t = f->top;
    bool constant = f->global && f->global->is_const;
    const Place *p = r->place;
    while (p->up && p->kind != P_TEST) p = p->up;
    bool test = p->kind == P_TEST && r->m == s->main;
    if (test && !constant && reach_refused(s, r->m, name, at)) return;
    bool by_name = rs_in_named(r);
    if (r->m != s->main && by_name && r->place->code && !constant)
      return; /* the error is filed at the call: bind_global_value */
    if (t->is_var && r->place->code && by_name) {
      Diag *d = fail_report(s, ERR_CODE_VAR, at, "code cannot read the top-level `var` `%s`", name);
      dg_label(&s->diags, d, t->span, "declared here");
      dg_help(&s->diags, d, "pass it as an argument, or declare it with `let`");
      return;
    }
    if (r->place->level == 0 && t->item >= r->item && !constant && !test) {
      Diag *d = fail_report(s, ERR_UNSET, at, "`%s` has no value yet: its `%s` stands below", name,
                            t->is_var ? "var" : "let");
      if (t->item == r->item)
        d->message =
            arena_printf(&s->notes, "`%s` has no value yet: this statement makes it", name);
      dg_label(&s->diags, d, t->span, "declared here");
    }
    return;
  }
  case F_GLOBAL:
    if (f->global->kind == G_TYPE) {
      Diag *d = fail_report(s, ERR_NOT_VALUE, at, "`%s` is a type, not a value", name);
      dg_label(&s->diags, d, f->global->span, "declared here");
    } else if (f->global->kind == G_VALUE && r->place->code && f->global->is_var &&
               rs_in_named(r)) { /* of an earlier prompt */
      Diag *d = fail_report(s, ERR_CODE_VAR, at, "code cannot read the top-level `var` `%s`", name);
      dg_help(&s->diags, d, "pass it as an argument");
    }
    return;
  case F_MEMBER:
  case F_BUILTIN:
  case F_DTYPE: return;
  }
}

void rs_use_name(Resolver *r, Name name, Span at) {
  Found f = rs_lookup(r, name);
  rs_use_found(r, &f, name, at);
}
