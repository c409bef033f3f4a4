/* Unused results: `xs.push(i)` or `x == 3` as a statement (rule 98).
 *
 * In: a call or an operation whose value is dropped. Out: an error if it can have no other effect.
 * Idea: the table of builtins marks those with effects (BI_ACTS); a function has none when nothing
 * that it calls has one. A walk over its body finds this, and gives up at any unknown construct.
 * Calls of library functions get the error, calls of the program's functions do not: they may be
 * run to measure their time.
 */
#include <string.h>

#include "lang/names/module.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"

enum {
  DEPTH = 8,        /* of nested calls that are looked into */
  IN_STATEMENT = -1 /* depth: the statement itself, whose names are those of the resolver */
};

typedef struct Look {
  Resolver *r;
  const Module *m; /* where the body stands */
  int depth;
  bool acts;
} Look;

static bool fn_acts(Resolver *r, const Node *decl, const Module *m, int depth);

static bool name_acts(Look *l, Name name) {
  if (dtype_find(name) >= 0) return false;
  const Global *g = global_find(l->r->s, (Module *)l->m, name);
  if (g) return g->kind != G_FN || !g->decl || fn_acts(l->r, g->decl, g->module, l->depth + 1);
  const Builtin *b = builtin_find(l->r->s, name);
  return !b || (b->flags & BI_ACTS);
}

/* Whether the call is a map or fold by a function literal: it has the effects of that function. */
static bool walks_tree(const Node *call, Name name) {
  return (!strcmp(name, "map") || !strcmp(name, "fold")) && call->call.args.count &&
         call->call.args.items[0]->arg.value->kind == N_LAMBDA;
}

static void look(void *ud, Node *n) {
  Look *l = ud;
  stack_check();
  if (!n || l->acts) return;
  switch ((NodeKind)n->kind) {
  case N_ASSERT:
  case N_WRAP:
  case N_CHECKPOINT:
  case N_SELF:
  case N_FN: l->acts = true; return;
  case N_ASSIGN: l->acts = n->assign.target->kind == N_DOT; break;
  case N_CALL: {
    const Node *c = n->call.callee;
    Name name = c->kind == N_NAME ? c->name : c->kind == N_DOT ? c->dot.name.name : NULL;
    if (name && l->depth == IN_STATEMENT) {
      FoundKind k = rs_lookup(l->r, name).kind;
      if (k == F_LOCAL || k == F_MEMBER || k == F_TOP) name = NULL; /* a value that is called */
    }
    if (!name || (c->kind == N_DOT && rs_member_call(l->r, n)) ||
        (!walks_tree(n, name) && name_acts(l, name))) {
      l->acts = true;
      return;
    }
    if (c->kind == N_DOT) look(ud, c->dot.object);
    for (uint32_t i = 0; i < n->call.args.count; i++) look(ud, n->call.args.items[i]);
    return;
  }
  default: break;
  }
  if (!l->acts) ast_children(n, look, ud);
}

/* Whether a call of the function may do more than give a result. */
static bool fn_acts(Resolver *r, const Node *decl, const Module *m, int depth) {
  const Fn *f = decl->fn;
  if (f->is_proc || f->back_body || depth > DEPTH) return true;
  for (uint32_t i = 0; i < f->params.count; i++) /* a parameter may be called like a builtin */
    if (builtin_find(r->s, f->params.items[i]->param.name.name)) return true;
  Look l = {r, m, depth, false};
  look(&l, f->body);
  return l.acts;
}

/* The call as it stands after `x .= `: without its first argument. NULL: there is no text. */
static const char *call_by_place(Session *s, const Node *call) {
  const Node *c = call->call.callee;
  if (c->kind == N_DOT) {
    Span at = {.file = call->span.file, .lo = c->dot.name.span.lo, .hi = call->span.hi};
    return fail_source_text(s, at, NULL);
  }
  if (call->call.args.count < 2) return fail_text(s, "%s()", c->name);
  Span rest = {
      .file = call->span.file, .lo = call->call.args.items[1]->span.lo, .hi = call->span.hi};
  const char *text = fail_source_text(s, rest, NULL);
  return text ? fail_text(s, "%s(%s", c->name, text) : NULL;
}

/* Functions whose result is meant to replace their first argument. */
static bool gives_another(Name name) {
  static const char *const t[] = {"clip_norm", "clamp", "scatter", "shuffle"};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++)
    if (!strcmp(name, t[i])) return true;
  return false;
}

void rs_dropped(Resolver *r, const Node *call) {
  Session *s = r->s;
  const Node *c = call->call.callee, *first;
  bool dotted = c->kind == N_DOT;
  if (!dotted && c->kind != N_NAME) return;
  Name name = dotted ? c->dot.name.name : c->name;
  if (dotted && (rs_module_named(r, c->dot.object) || rs_member_call(r, call))) return;
  Found f = rs_lookup(r, name);
  bool dtype = f.kind == F_DTYPE;
  if (f.kind == F_BUILTIN && (!f.builtin->fn || (f.builtin->flags & BI_ACTS))) return;
  if (f.kind == F_GLOBAL) {
    const Global *g = f.global;
    if (g->kind != G_FN || !g->decl || g->module->path || g->module == s->main) return;
    if (fn_acts(r, g->decl, g->module, 0)) return;
  } else if (f.kind != F_BUILTIN && !dtype) {
    return;
  }
  bool owns = f.kind == F_BUILTIN && (f.builtin->flags & BI_OWNS);
  Diag *d = fail_report(s, ERR_DROPPED, call->span,
                        "the result of `%s` is not used, and it does nothing else", name);
  first = dotted                  ? c->dot.object
          : call->call.args.count ? call->call.args.items[0]->arg.value
                                  : NULL;
  const char *text = fail_source_text(s, call->span, NULL);
  const Node *root = first; /* of a place such as run.xs[0] */
  while (root && (root->kind == N_DOT || root->kind == N_INDEX))
    root = root->kind == N_DOT ? root->dot.object : root->index.object;
  if (text && root && root->kind == N_NAME && (owns || gives_another(name))) {
    Found place = rs_lookup(r, root->name);
    bool var = (place.kind == F_LOCAL && place.bind->kind == B_VAR) ||
               (place.kind == F_TOP && place.top->is_var) ||
               (place.kind == F_GLOBAL && place.global->is_var);
    const char *update = call_by_place(s, call);
    const char *name_of = fail_source_text(s, first->span, NULL);
    if (!name_of) name_of = root->name;
    if (var)
      dg_help(&s->diags, d, "write `%s .= %s`", name_of, update ? update : text);
    else
      dg_help(&s->diags, d, "write `let changed = %s`: `%s` stays as it is", text, name_of);
  } else {
    const char *meant = f.kind == F_BUILTIN ? foreign_change(s, name) : NULL;
    dg_help(&s->diags, d, "%s", meant ? meant : "`let _ = ..` says that it is not wanted");
  }
}

void rs_dropped_value(Resolver *r, const Node *e) {
  if (e->kind != N_UNARY && e->kind != N_BINARY) return;
  Look l = {r, r->m, IN_STATEMENT, false};
  look(&l, (Node *)e);
  if (l.acts) return;
  Diag *d = fail_report(r->s, ERR_DROPPED, e->span,
                        "the value of this expression is not used, and it does nothing else");
  dg_help(&r->s->diags, d,
          "`let _ = ..` says that it is not wanted; `x = e` assigns, `assert e` tests");
}
