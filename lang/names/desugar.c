/* Properties of trees, and the function nodes that replace constructs.
 *
 * In: a tree. Out: answers, cached where they cost a walk. `wrap <f a> { b }` is f(a, fn() { b
 * }), a comprehension in script is a call of fn(source) = [..], a model is called like a function.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/eval/bindings.h"
#include "lang/lang.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"

/* The function of a comprehension, for one choice of the sources that are its parameters. */
typedef struct CompFn CompFn;
struct CompFn {
  bool *given;
  Node *lambda;
  CompFn *next;
};

/* The arena of the tree: nodes made here live as long as the tree that they are made for. */
static Arena *beside(Session *s, const Node *n) {
  return src_arena(&s->sources, n->span.file);
}

static Node *make_lambda(Session *s, Node *body, bool is_expr, Word name, const NodeList *params) {
  Arena *a = beside(s, body);
  Node *n = ARENA_NEW(a, Node);
  n->kind = N_LAMBDA;
  n->span = body->span;
  n->fn = ARENA_NEW(a, Fn);
  n->fn->body = body;
  n->fn->body_is_expr = is_expr;
  n->fn->name = name;
  n->fn->header = body->span;
  if (params) n->fn->params = *params;
  return n;
}

Node *desugar_wrap(Session *s, Node *wrap) {
  if (!wrap->info) wrap->info = make_lambda(s, wrap->region.body, false, (Word){0}, NULL);
  return wrap->info;
}

/* fn(source, ..) = [.. for x in source ..]: the sources are computed outside. */
Node *desugar_comp(Session *s, Node *comp, const bool *given) {
  uint32_t n = comp->comp.fors.count;
  for (CompFn *f = comp->info; f; f = f->next)
    if (!memcmp(f->given, given, n * sizeof *given)) return f->lambda;
  Arena *a = beside(s, comp);
  CompFn *f = ARENA_NEW(a, CompFn);
  f->given = ARENA_ARRAY(a, bool, n);
  memcpy(f->given, given, n * sizeof *given);
  Node *body = ARENA_NEW(a, Node);
  *body = *comp;
  body->info = NULL;
  body->comp.fors.items = ARENA_ARRAY(a, Node *, n);
  NodeList params = {.items = ARENA_ARRAY(a, Node *, n)};
  for (uint32_t k = 0; k < n; k++) {
    Node *loop = body->comp.fors.items[k] = ARENA_NEW(a, Node);
    *loop = *comp->comp.fors.items[k];
    if (!given[k]) continue;
    Node *name = ARENA_NEW(a, Node), *param = ARENA_NEW(a, Node);
    *name = (Node){.kind = N_NAME, .span = loop->loop.iter->span};
    name->name = names_of(s->names, fail_text(s, "source %u", k + 1)); /* no program can write it */
    *param = (Node){.kind = N_PARAM, .span = name->span};
    param->param.name = (Word){.name = name->name, .span = name->span};
    loop->loop.iter = name;
    params.items[params.count++] = param;
  }
  f->lambda = make_lambda(s, body, true, (Word){0}, &params);
  f->next = comp->info;
  comp->info = f;
  return f->lambda;
}

bool desugar_is_comp(const FnObj *fn) {
  const Node *n = fn ? fn->decl : NULL;
  return n && n->kind == N_LAMBDA && n->fn->body->kind == N_COMP &&
         n->span.lo == n->fn->body->span.lo; /* another literal begins with its `fn` */
}

Node *desugar_model(Session *s, Node *model) {
  if (!model->info) {
    Node *n = make_lambda(s, model, true, model->model.name, &model->model.params);
    n->fn->header = model->model.name.span;
    model->info = n;
  }
  return model->info;
}

bool desugar_name_is_none(Session *s, const Node *e) {
  (void)s;
  return e->kind == N_NAME && !strcmp(e->name, "none");
}

/* ---- names in patterns and trees */

static bool pattern_has(const Node *p, Name name) {
  stack_check();
  if (p->kind == N_PAT_NAME) return p->word.name == name;
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++)
      if (pattern_has(p->list.items[i], name)) return true;
  return false;
}

typedef struct Mention {
  Name name;
  bool found, binds, dots; /* dots: x.name counts, too */
} Mention;

static void mention_visit(void *ud, Node *n) {
  stack_check();
  Mention *m = ud;
  if (!n || m->found) return;
  if (m->binds) {
    if (n->kind == N_LET && pattern_has(n->let.pat, m->name)) m->found = true;
    if ((n->kind == N_FOR || n->kind == N_COMP_FOR) && n->loop.pat &&
        pattern_has(n->loop.pat, m->name))
      m->found = true;
    if (n->kind == N_PARAM && n->param.name.name == m->name) m->found = true;
  } else if (n->kind == N_NAME && n->name == m->name) {
    m->found = true;
  } else if (m->dots && n->kind == N_DOT && n->dot.name.name == m->name) {
    m->found = true;
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) mention_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, mention_visit, ud);
}

bool desugar_local_binds(Node *fn, Name name) {
  Mention m = {.name = name, .binds = true};
  ast_children(fn, mention_visit, &m);
  return m.found;
}

bool desugar_takes_grad(Session *s, Node *fn) {
  if (!fn->fn->takes_grad) {
    Mention m = {.name = names_of(s->names, "grad"), .dots = true};
    ast_children(fn, mention_visit, &m);
    fn->fn->takes_grad = m.found ? 2 : 1;
  }
  return fn->fn->takes_grad == 2;
}

static void pattern_names(const Node *p, Name *out, size_t *n, size_t most) {
  stack_check();
  if (p->kind == N_PAT_NAME && *n < most) out[(*n)++] = p->word.name;
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) pattern_names(p->list.items[i], out, n, most);
}

bool desugar_mentions_earlier(const Node *comp, uint32_t k) {
  for (uint32_t i = 0; i < k; i++) {
    Name names[16];
    size_t n = 0;
    pattern_names(comp->comp.fors.items[i]->loop.pat, names, &n, 16);
    for (size_t j = 0; j < n; j++) {
      Mention m = {.name = names[j]};
      mention_visit(&m, comp->comp.fors.items[k]->loop.iter);
      if (m.found) return true;
    }
  }
  return false;
}

/* ---- is it code? (rules 51, 53) */

typedef struct Legal {
  Session *s;
  const Node *root; /* the function; names that it binds are not looked up outside */
  bool ok, holes;
  Span at; /* the first node that is no code, and why */
  const char *why;
} Legal;

static void refuse(Legal *l, Span at, const char *why) {
  if (!l->ok) return;
  l->ok = false;
  l->at = at;
  l->why = why;
}

/* Why a function called by this name does not work in code, or NULL. */
static const char *script_name(Session *s, Name name) {
  Local *l = local_find(s, name);
  if (l) {
    if (l->v.tag == V_MODEL) return "models are made in script";
    return l->v.tag == V_FN && !l->v.u.fn->is_code ? "this calls a proc" : NULL;
  }
  Global *g = global_find(s, s->frame->module, name);
  if (g) {
    if (g->kind == G_MODEL) return "models are made in script";
    if (g->v.tag == V_FN && !g->v.u.fn->is_code) return "this calls a proc";
    return g->kind == G_VALUE && g->is_var ? "this reads a top-level `var`" : NULL;
  }
  const Builtin *b = builtin_find(s, name);
  return b && (b->flags & BI_SCRIPT) ? "this works in script only" : NULL;
}

static void legal_call(Legal *l, Node *c) {
  Session *s = l->s;
  if (c->kind == N_NAME) {
    const char *why = script_name(s, c->name);
    if (why && !desugar_local_binds((Node *)l->root, c->name)) refuse(l, c->span, why);
  }
  if (c->kind != N_DOT) return;
  if (c->dot.object->kind == N_NAME) {
    Local *x = local_find(s, c->dot.object->name);
    Global *g = x ? NULL : global_find(s, s->frame->module, c->dot.object->name);
    Value v = x ? x->v : g ? g->v : v_unit();
    if (g && g->kind == G_MODULE) { /* module.f */
      Global *h = global_find(s, v.u.module, c->dot.name.name);
      if (h && h->kind == G_MODEL) refuse(l, c->span, "models are made in script");
      if (h && h->v.tag == V_FN && !h->v.u.fn->is_code) refuse(l, c->span, "this calls a proc");
    } else if (v.tag == V_INST) { /* instance.f */
      Node *m = rs_model_member(s, v.u.inst->model->decl, c->dot.name.name, UINT32_MAX);
      if (m && m->kind == N_FN && m->fn->is_proc) refuse(l, c->dot.name.span, "this calls a proc");
    }
  }
  const Builtin *b = builtin_find(s, c->dot.name.name);
  if (b && (b->flags & BI_SCRIPT)) refuse(l, c->dot.name.span, "this works in script only");
}

/* Why code cannot have this value, or NULL. */
static const char *script_value(Value v) {
  stack_check();
  const char *why = NULL;
  if (v.tag == V_SEQ) return "this is a sequence, which belongs to script";
  if (v_counted(v) && !value_bounded(v.u.o->s, v)) return NULL; /* the call refuses it */
  if (v.tag == V_HANDLE) return "this is a handle of hooks, which belongs to script";
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n && !why; i++) why = script_value(items[i]);
  return why;
}

static void legal_name(Legal *l, Node *n) {
  Session *s = l->s;
  Local *x = local_find(s, n->name);
  Global *g = x ? NULL : global_find(s, s->frame->module, n->name);
  const char *why = g && g->kind == G_VALUE && g->is_var ? "this reads or assigns a top-level `var`"
                    : x || g                             ? script_value(x ? x->v : g->v)
                                                         : NULL;
  if (why && !desugar_local_binds((Node *)l->root, n->name)) refuse(l, n->span, why);
}

static void legal_visit(void *ud, Node *n) {
  stack_check();
  Legal *l = ud;
  if (!n || !l->ok) return;
  if (n->kind == N_CALL) legal_call(l, n->call.callee);
  if (n->kind == N_NAME) legal_name(l, n);
  if (n->kind == N_STRING) {
    for (uint32_t i = 0; i < n->string.count; i++)
      if (n->string.items[i].hole && !l->holes)
        refuse(l, n->string.items[i].span, "a text that is made at run time");
    for (uint32_t i = 0; i < n->string.count; i++) legal_visit(ud, n->string.items[i].hole);
    return;
  }
  bool holes = l->holes; /* texts with holes are code in `print` alone */
  l->holes = n->kind == N_ARG ? holes
                              : n->kind == N_CALL && n->call.callee->kind == N_NAME &&
                                    !strcmp(n->call.callee->name, "print");
  ast_children(n, legal_visit, ud);
  l->holes = holes;
}

bool desugar_is_code(Session *s, Node *n) {
  Legal l = {.s = s, .root = n, .ok = true};
  ast_children(n, legal_visit, &l);
  return l.ok;
}

const char *desugar_why_not_code(Session *s, const FnObj *f, Span *at) {
  Legal l = {.s = s, .root = f->decl, .ok = true};
  Frame fr = {.up = s->frame, .module = f->module, .base = s->local_count};
  s->frame = &fr;
  ast_children(f->decl, legal_visit, &l);
  s->frame = fr.up;
  *at = l.at;
  return l.why;
}
