/* Calls of declarations and builtins: arguments, and what code may call (rules 47, 49, 53).
 *
 * In: a call and its place. Out: filed errors. Idea: a declaration or the signature of a builtin
 * becomes one list of parameters, and the arguments are checked against it.
 */
#include <string.h>

#include "lang/names/module.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"

/* ---- calls */

/* A parameter of the callee, from a declaration or a builtin's signature. */
typedef struct Par {
  Name name;
  bool deflt, rest;
} Par;

typedef struct Callee {
  Name name; /* as the call spells it */
  Par *par;
  size_t count;
  Span declared; /* file 0: builtin */
  const char *signature;
  bool open;     /* takes arguments of any name */
  Table by_name; /* see find_par */
} Callee;

/* The index of the first parameter with the name of an argument; c->count: there is none. */
static size_t find_par(Resolver *r, Callee *c, Name name) {
  enum { FEW = 32 };
  size_t i = 0;
  if (c->count <= FEW) {
    while (i < c->count && (c->par[i].rest || c->par[i].name != name)) i++;
    r->s->count.searched += (int64_t)i;
    return i;
  }
  if (!c->by_name.arena) {
    c->by_name.arena = &r->s->scratch;
    for (; i < c->count; i++)
      if (!c->par[i].rest) table_add(&c->by_name, table_key(c->par[i].name), i);
  }
  ptrdiff_t at = table_get(&c->by_name, table_key(name));
  return at == TABLE_NONE ? c->count : (size_t)at;
}

static void callee_of_params(Resolver *r, Callee *c, const NodeList *p) {
  c->par = ARENA_ARRAY(&r->s->scratch, Par, p->count + 1);
  for (uint32_t i = 0; i < p->count; i++)
    c->par[c->count++] =
        (Par){p->items[i]->param.name.name, p->items[i]->param.init != NULL, false};
}

static void callee_of_builtin(Resolver *r, Callee *c, const Builtin *b) {
  const BuiltinSig *sig = builtin_sig(r->s, b);
  c->par = ARENA_ARRAY(&r->s->scratch, Par, sig->count + 1);
  c->signature = fail_text(r->s, "%s%s", b->name, b->signature);
  c->open = sig->open;
  for (size_t i = 0; i < sig->count; i++)
    c->par[c->count++] = (Par){sig->par[i].name, sig->par[i].optional, sig->par[i].rest};
}

static void explain_callee(Resolver *r, Diag *d, const Callee *c) {
  if (c->declared.file && src_get(&r->s->sources, c->declared.file)->path[0] != '<')
    dg_label(&r->s->diags, d, c->declared, "declared here");
  else if (c->signature)
    dg_help(&r->s->diags, d, "its signature is %s", c->signature);
}

/* Adds what such a call of a builtin, or of a function of the library, may mean. */
static bool called_elsewhere(Resolver *r, Diag *d, const Callee *c) {
  bool own = c->declared.file && src_get(&r->s->sources, c->declared.file)->path[0] != '<';
  const char *help = own ? NULL : foreign_help(r->s, c->name, FOREIGN_CALL);
  if (help) dg_help(&r->s->diags, d, "%s", help);
  return help != NULL;
}

const char *rs_plural(size_t n) {
  return n == 1 ? "" : "s";
}

/* Arguments of a call against parameters (rule 47). `receiver`: x of x.f(..), `no_shape`: an
 * initialiser, which is given its shape (rule 58). */
static void check_call(Resolver *r, Callee *c, Node *call, bool receiver, bool no_shape) {
  Session *s = r->s;
  size_t required = 0, positional = receiver ? 1 : 0, before = s->diags.errors;
  bool rest = false, named = false;
  bool *given = ARENA_ARRAY(&s->scratch, bool, c->count + 1);
  for (size_t i = 0; i < c->count; i++) {
    if (c->par[i].rest)
      rest = true;
    else if (!c->par[i].deflt)
      required++;
  }
  const NodeList *l = &call->call.args;
  Node *extra = NULL;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *a = l->items[i];
    if (!a->arg.name.name) {
      if (named) {
        Diag *d = fail_report(s, ERR_ARG_ORDER, a->span,
                              "an argument by position stands after one by name");
        dg_help(&s->diags, d, "positional arguments come first");
        return;
      }
      if (++positional > required && !extra) extra = a;
      continue;
    }
    named = true;
    Name n = a->arg.name.name;
    size_t k = find_par(r, c, n);
    if (k == c->count) {
      if (c->open) continue;
      Diag *d =
          fail_report(s, ERR_ARG_NAME, a->arg.name.span, "`%s` has no parameter `%s`", c->name, n);
      explain_callee(r, d, c);
      Near b = near_start(n);
      const char *here = foreign_argument(n);
      for (size_t j = 0; j < c->count; j++)
        if (here && !strcmp(here, c->par[j].name)) b.found = here;
      for (size_t j = 0; j < c->count && !b.found; j++)
        if (!c->par[j].rest) near_try(&b, c->par[j].name);
      if (b.found)
        dg_help(&s->diags, d, "did you mean `%s`?", b.found);
      else if (!called_elsewhere(r, d, c) && c->signature)
        dg_help(&s->diags, d, "its signature is %s", c->signature);
      continue;
    }
    if (given[k]) {
      fail_report(s, ERR_TWICE, a->arg.name.span, "the argument `%s` is given twice", n);
      continue;
    }
    given[k] = true;
  }
  if (s->diags.errors > before) return;
  if (positional > required && !rest) {
    Diag *d = fail_report(s, ERR_ARG_COUNT, extra ? extra->span : call->span,
                          "`%s` takes %zu argument%s by position, not %zu", c->name, required,
                          rs_plural(required), positional);
    explain_callee(r, d, c);
    if (called_elsewhere(r, d, c)) return;
    if (c->signature && c->count && !strcmp(c->name, "ones"))
      dg_help(&s->diags, d, "a shape is one argument: `ones([3, 4])`");
    for (size_t i = 0; i < c->count; i++)
      if (c->par[i].deflt && !given[i]) {
        dg_help(&s->diags, d, "a parameter with a default is given by name: `%s = ..`",
                c->par[i].name);
        if (c->signature && !strcmp(c->par[0].name, "shape"))
          dg_help(&s->diags, d, "a shape is one argument: `%s([3, 4])`", c->name);
        break;
      }
    return;
  }
  size_t left = positional;
  for (size_t i = 0; i < c->count; i++) {
    if (c->par[i].rest || c->par[i].deflt) continue;
    if (left) {
      left--;
      if (given[i]) {
        Span at = call->span;
        for (uint32_t k = 0; k < l->count; k++) {
          Name n = l->items[k]->arg.name.name;
          if (n == c->par[i].name) at = l->items[k]->arg.name.span;
        }
        Diag *d = fail_report(s, ERR_TWICE, at,
                              "the argument `%s` is given by position and by name", c->par[i].name);
        explain_callee(r, d, c);
        return;
      }
      given[i] = true;
    }
  }
  for (size_t i = 0; i < c->count; i++) {
    if (given[i] || c->par[i].rest || c->par[i].deflt) continue;
    if (no_shape && i == 0) continue;
    Diag *d = fail_report(s, ERR_ARG_COUNT, call->span, "`%s` needs the argument `%s`", c->name,
                          c->par[i].name);
    explain_callee(r, d, c);
    called_elsewhere(r, d, c);
    return;
  }
}

/* Files an error if the place is in code and code may not call the function (rule 53). False: it
 * did. */
bool rs_check_code_call(Resolver *r, const Global *g, const Builtin *b, Name name, Span at) {
  Session *s = r->s;
  if (!r->place->code) return true;
  bool named = false, in_checkpoint = false;
  for (const Place *p = r->place; p; p = p->up) {
    named |= p->kind == P_FN && p->code;
    in_checkpoint |= p->kind == P_CHECKPOINT;
  }
  const char *where = named || !in_checkpoint ? "code" : "a `checkpoint` block, which is code,";
  if (g && g->kind == G_FN && g->decl && g->decl->fn->is_proc) {
    Diag *d = fail_report(s, ERR_SCRIPT_ONLY, at, "%s cannot call the proc `%s`", where, name);
    if (src_get(&s->sources, g->decl->fn->header.file)->path[0] != '<')
      dg_label(&s->diags, d, g->decl->fn->header, "declared here");
    dg_help(&s->diags, d,
            "call it at the top level or in a proc, and pass what it gives as an argument");
    return false;
  }
  if (g && g->kind == G_MODEL) {
    Diag *d = fail_report(s, ERR_SCRIPT_ONLY, at, "%s cannot make an instance of the model `%s`",
                          where, name);
    dg_help(&s->diags, d, "make it in script, or as a `let` member of a model, and use it here");
    return false;
  }
  if (b && (b->flags & (BI_SCRIPT | BI_TEXT)) == BI_SCRIPT) {
    Diag *d = fail_report(s, ERR_SCRIPT_ONLY, at, "`%s` works in script, not in code", name);
    dg_help(&s->diags, d,
            "call it at the top level or in a proc, and pass what it gives as an argument");
    return false;
  }
  return true;
}

static bool is_later(const Builtin *b) {
  return !strcmp(b->doc, "not yet");
}

/* Checks a call of a declaration or builtin. */
static void call_known(Resolver *r, const Global *g, const Builtin *b, const Node *decl, Name name,
                       Span at, Node *call, bool receiver, bool no_shape) {
  Callee c = {.name = name};
  if (b && is_later(b)) {
    Diag *d = fail_report(r->s, ERR_NOT_YET, at, "not yet: `%s`", name);
    (void)d;
    return;
  }
  if (!rs_check_code_call(r, g, b, name, at)) return;
  if (b)
    callee_of_builtin(r, &c, b);
  else if (decl->kind == N_FN) {
    callee_of_params(r, &c, &decl->fn->params);
    c.declared = decl->fn->header;
  } else if (decl->kind == N_MODEL) {
    callee_of_params(r, &c, &decl->model.params);
    c.declared = decl->model.name.span;
  } else
    return;
  const Source *src = src_get(&r->s->sources, c.declared.file);
  if (!b && src->path[0] == '<' && c.declared.hi > c.declared.lo) {
    Span h = c.declared;
    if (decl->kind == N_MODEL && decl->model.params.count)
      h.hi = decl->model.params.items[decl->model.params.count - 1]->span.hi + 1;
    c.signature = fail_text(r->s, "%.*s", (int)(h.hi - h.lo), src->text + h.lo);
  }
  check_call(r, &c, call, receiver, no_shape && c.count && !strcmp(c.par[0].name, "shape"));
}

static void unknown_in_module(Resolver *r, const Module *m, Name f, Span at) {
  Diag *d = fail_report(r->s, ERR_NO_FIELD, at, "module `%s` has no `%s`", m->name, f);
  const char *here = foreign_member_help(r->s, m->name, f);
  if (!here) here = library_help(r->s, f);
  if (here) {
    dg_help(&r->s->diags, d, "%s", here);
    return;
  }
  Near b = near_start(f);
  for (size_t i = 0; i < m->global_count; i++)
    if (m->globals[i].module == m) near_try(&b, m->globals[i].name);
  if (b.found) dg_help(&r->s->diags, d, "did you mean `%s`?", b.found);
}

/* module.f: the declaration, or NULL after an error or for a builtin. */
const Global *rs_module_member(Resolver *r, const Module *m, Name f, Span at) {
  const Global *g = global_own(m, f);
  if (g && g->module == m) {
    if (f[0] == '_') {
      fail_report(r->s, ERR_PRIVATE, at, "`%s` is private to `%s`", f, m->name);
      return NULL;
    }
    if (g->kind == G_VALUE && !g->is_const) {
      Diag *d = fail_report(r->s, ERR_MODULE_VAR, at,
                            "`%s` is a top-level variable of `%s`, which `use` does not bring", f,
                            m->name);
      dg_label(&r->s->diags, d, g->span, "declared here");
      return NULL;
    }
    return g;
  }
  if (module_visible_anyway(r->s, m, f, NULL))
    return r->s->prelude ? global_find(r->s, r->s->prelude, f) : NULL;
  unknown_in_module(r, m, f, at);
  return NULL;
}

const Module *rs_module_named(Resolver *r, const Node *x) {
  if (x->kind != N_NAME) return NULL;
  Found f = rs_lookup(r, x->name);
  return f.kind == F_GLOBAL && f.global->kind == G_MODULE ? f.global->v.u.module : NULL;
}

static void walk_args(Resolver *r, Node *call) {
  Table seen = {.arena = &r->s->scratch};
  for (uint32_t i = 0; i < call->call.args.count; i++) {
    Node *a = call->call.args.items[i];
    const Word *w = &a->arg.name;
    ptrdiff_t first = w->name ? table_add(&seen, table_key(w->name), i) : TABLE_NONE;
    if (first != TABLE_NONE) {
      Diag *d = fail_report(r->s, ERR_TWICE, w->span, "the argument `%s` is given twice", w->name);
      dg_label(&r->s->diags, d, call->call.args.items[first]->arg.name.span, "first here");
    }
    rs_walk(r, a->arg.value);
  }
}

static bool args_twice(Resolver *r, const Node *call) {
  const NodeList *l = &call->call.args;
  Table seen = {.arena = &r->s->scratch};
  for (uint32_t i = 0; i < l->count; i++) {
    Name name = l->items[i]->arg.name.name;
    if (name && table_add(&seen, table_key(name), i) != TABLE_NONE) return true;
  }
  return false;
}

/* Elsewhere x.max(1) reduces an axis, and nobody writes it to compare with 1. */
static bool axis_by_position(Resolver *r, const Node *e) {
  Name f = e->call.callee->dot.name.name;
  if (e->span.lo > e->call.callee->dot.object->span.lo) return false; /* x .= max(1) */
  if ((strcmp(f, "max") != 0 && strcmp(f, "min") != 0) || e->call.args.count != 1) return false;
  const Node *a = e->call.args.items[0], *v = a->arg.value;
  if (v->kind == N_UNARY) v = v->unary.operand;
  if (a->arg.name.name || v->kind != N_INT) return false;
  Diag *d =
      fail_report(r->s, ERR_ARG_COUNT, e->span,
                  "an axis is named: `%s` by position compares each element with the number", f);
  dg_help(&r->s->diags, d, "`%s(x, axis = 1)` reduces an axis, `%s(x, 1)` compares", f, f);
  return true;
}

void rs_walk_call(Resolver *r, Node *e, bool init) {
  Session *s = r->s;
  Node *c = e->call.callee;
  bool twice = args_twice(r, e);
  if (c->kind == N_NAME) {
    Found f = rs_lookup(r, c->name);
    size_t before = s->diags.errors;
    rs_use_found(r, &f, c->name, c->span);
    if (s->diags.errors == before && !twice) {
      if (f.kind == F_GLOBAL && f.global->decl)
        call_known(r, f.global, NULL, f.global->decl, c->name, c->span, e, false, init);
      if (f.kind == F_BUILTIN && f.builtin->fn)
        call_known(r, NULL, f.builtin, NULL, c->name, c->span, e, false, init);
      if (f.kind == F_BUILTIN && !f.builtin->fn)
        fail_report(s, ERR_NOT_CALLABLE, c->span, "`%s` is a value, not a function", c->name);
      if (f.kind == F_MEMBER && f.member->kind == N_FN)
        call_known(r, NULL, NULL, f.member, c->name, c->span, e, false, false);
      if (f.kind == F_DTYPE && (e->call.args.count != 1 || e->call.args.items[0]->arg.name.name)) {
        Diag *d =
            fail_report(s, ERR_ARG_COUNT, e->span, "a cast takes one value: `%s(x)`", c->name);
        if (e->call.args.count > 1) dg_help(&s->diags, d, "`%s([1, 2])` makes a tensor", c->name);
      }
    }
    walk_args(r, e);
    return;
  }
  if (c->kind != N_DOT) {
    rs_walk(r, c);
    walk_args(r, e);
    return;
  }
  Name f = c->dot.name.name;
  Span at = c->dot.name.span;
  const Module *m = rs_module_named(r, c->dot.object);
  if (m) {
    const Global *g = rs_module_member(r, m, f, at);
    if (g && !twice && g->decl && (g->kind == G_FN || g->kind == G_MODEL))
      call_known(r, g, NULL, g->decl, f, at, e, false, init);
    walk_args(r, e);
    return;
  }
  size_t before = s->diags.errors;
  if (!rs_unknown_prefix(r, c)) rs_walk(r, c->dot.object);
  if (s->diags.errors > before) { /* the meaning of `f` depends on the object */
    walk_args(r, e);
    return;
  }
  if (c->dot.object->kind == N_SELF && r->model) {
    Node *x = rs_model_member(s, r->model, f, UINT32_MAX);
    if (x) {
      if (x->kind == N_FN && !twice) call_known(r, NULL, NULL, x, f, at, e, false, false);
      walk_args(r, e);
      return;
    }
  }
  Found q = rs_lookup(r, f);
  bool member = q.kind != F_LOCAL && rs_member_call(r, e);
  if (q.kind == F_NONE && !member) {
    Diag *d =
        fail_report(s, ERR_NO_FIELD, at, "there is no function, and no field, called `%s`", f);
    const Node *x = c->dot.object;
    Span tail = {.file = at.file, .lo = at.hi, .hi = e->span.hi};
    const char *text = x->kind == N_NAME ? fail_source_text(s, tail, NULL) : NULL;
    const char *here = foreign_method_help(s, f, text ? x->name : NULL, text);
    if (here)
      dg_help(&s->diags, d, "%s", here);
    else
      help_meant(s, d, f, rs_near_value(r, f));
  } else if (!member && !twice) {
    if (q.kind == F_GLOBAL && q.global->decl)
      call_known(r, q.global, NULL, q.global->decl, f, at, e, true, false);
    if (q.kind == F_BUILTIN && q.builtin->fn && !axis_by_position(r, e))
      call_known(r, NULL, q.builtin, NULL, f, at, e, true, false);
  }
  walk_args(r, e);
}
