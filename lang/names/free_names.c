/* Free names: the names that a function literal takes from outside.
 *
 * In: the node of the literal. Out: the names that its body uses before or without binding them, in
 * the order of the text, kept with the node. A captured value lives as long as the function (rule
 * 8), so a name that is merely spelled like something outside must not be among them. Scopes are
 * those of rule 2: a `let` holds from its statement to the end of its block; above it in the block
 * the name means the outer one. If the scope of a construct is not looked into, its names count as
 * taken: that keeps a value alive, but never makes a wrong result.
 */
#include "lang/check/check.h"
#include "lang/lang.h"
#include "lang/names/free_names.h"

typedef struct Free {
  FreeNames names;
  size_t cap;
  bool assigned; /* assigned names count, bound or not */
  bool reached;  /* all that may be looked up in the file: methods, policies */
  Name *bound;   /* by the constructs around the place, the innermost last */
  size_t bound_count, bound_cap;
  Arena *a, *temp;
} Free;

static void walk(Free *f, Node *n);

static void visit(void *ud, Node *n) {
  walk(ud, n);
}

static void take(Free *f, Name name) {
  for (size_t i = 0; i < f->names.count; i++)
    if (f->names.items[i] == name) return;
  VEC_PUSH(f->a, f->names.items, f->names.count, f->cap, name);
}

static void mention(Free *f, Name name) {
  for (size_t i = 0; i < f->bound_count; i++)
    if (f->bound[i] == name) return;
  take(f, name);
}

static void bind(Free *f, Name name) {
  VEC_PUSH(f->temp, f->bound, f->bound_count, f->bound_cap, name);
}

static void bind_pattern_names(Free *f, const Node *p) {
  stack_check();
  if (p->kind == N_PAT_NAME) bind(f, p->word.name);
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) bind_pattern_names(f, p->list.items[i]);
}

static void walk_list(Free *f, NodeList l) {
  for (uint32_t i = 0; i < l.count; i++) walk(f, l.items[i]);
}

static void walk_params(Free *f, NodeList l) {
  walk_list(f, l);
  for (uint32_t i = 0; i < l.count; i++) bind(f, l.items[i]->param.name.name);
}

static void walk_fn(Free *f, const Fn *fn) {
  size_t mark = f->bound_count;
  walk_params(f, fn->params);
  walk(f, fn->result);
  walk(f, fn->body);
  walk_params(f, fn->back_params);
  walk(f, fn->back_body);
  f->bound_count = mark;
}

/* Words of a `wrap` may be names: `with_params net tree`, or a function and its arguments. */
static void walk_words(Free *f, NodeList clauses) {
  for (uint32_t i = 0; i < clauses.count; i++) {
    const Node *c = clauses.items[i];
    if (c->kind != N_CLAUSE) continue;
    if (c->clause.path.count) mention(f, c->clause.path.items[0].name);
    for (uint32_t k = 0; k < c->clause.args.count; k++) {
      const Node *a = c->clause.args.items[k];
      if (a->kind == N_WORD && a->path.count) mention(f, a->path.items[0].name);
    }
  }
}

static void bind_member(Free *f, const Node *m) {
  if (m->kind == N_FN && m->fn->name.name) bind(f, m->fn->name.name);
  if (m->kind == N_FIELD) bind(f, m->field.name.name);
  if (m->kind == N_LET) bind_pattern_names(f, m->let.pat);
}

static void walk(Free *f, Node *n) {
  stack_check();
  if (!n) return;
  size_t mark = f->bound_count;
  switch ((NodeKind)n->kind) {
  case N_NAME: mention(f, n->name); return;
  case N_LET:
    walk(f, n->let.type);
    walk(f, n->let.init);
    bind_pattern_names(f, n->let.pat);
    return;
  case N_FN:
    if (n->fn->name.name) bind(f, n->fn->name.name);
    walk_fn(f, n->fn);
    return;
  case N_LAMBDA: walk_fn(f, n->fn); return;
  case N_BLOCK: walk_list(f, n->list); break;
  case N_FOR:
  case N_COMP_FOR:
    walk_list(f, n->loop.clauses);
    walk(f, n->loop.iter);
    if (n->loop.pat) bind_pattern_names(f, n->loop.pat);
    if (n->kind == N_COMP_FOR) walk(f, n->loop.cond);
    if (n->kind == N_COMP_FOR) return; /* the names hold for the rest of the comprehension */
    walk(f, n->loop.body);
    break;
  case N_COMP:
    walk_list(f, n->comp.fors);
    walk(f, n->comp.value);
    break;
  case N_ASSIGN:
    if (f->assigned) {
      Node *t = abstract_assigned_root(n);
      if (t->kind == N_NAME) take(f, t->name);
    }
    walk(f, n->assign.value);
    walk(f, n->assign.target);
    return;
  case N_WRAP:
    walk_words(f, n->region.clauses);
    ast_children(n, visit, f);
    break;
  case N_MODEL:
    walk_params(f, n->model.params);
    for (uint32_t i = 0; i < n->model.members.count; i++) bind_member(f, n->model.members.items[i]);
    walk_list(f, n->model.members);
    break;
  default:
    if (f->reached && n->kind == N_CALL && n->call.callee->kind == N_DOT)
      mention(f, n->call.callee->dot.name.name);
    if (f->reached && n->kind == N_CHECKPOINT) walk_words(f, n->region.clauses);
    if (f->reached && n->kind == N_POLICY_DECL) walk_words(f, n->policy_decl.clauses);
    ast_children(n, visit, f);
    break;
  }
  f->bound_count = mark;
}

const FreeNames *free_names(Session *s, Node *n, bool assigned) {
  if (n->info) return n->info;
  Arena *beside = src_arena(&s->sources, n->span.file); /* it lives as long as its tree */
  Free *f = ARENA_NEW(beside, Free);
  *f = (Free){.assigned = assigned, .a = beside, .temp = &s->scratch};
  walk_fn(f, n->fn);
  n->info = &f->names;
  f->temp = NULL;
  f->bound = NULL;
  return n->info;
}

const FreeNames *free_names_reached(Session *s, Node *n) {
  Free *f = ARENA_NEW(&s->scratch, Free);
  *f = (Free){.reached = true, .a = &s->scratch, .temp = &s->scratch};
  walk(f, n);
  return &f->names;
}
