/* What a test reads: the top-level variables of its file (rules 6, 101).
 *
 * In: a node of the file's tree. Out: the statements that make the variables which it can reach, by
 * itself, by functions and models that it names, and by the values of other such variables. Idea:
 * names are looked up by the text, so all that can be reached is spelled somewhere. `x.f()` may be
 * the call of a function `f` and counts as one. A test has these statements run, in their order,
 * and no others; a variable that another statement of the top level assigns has no value that the
 * test could mean, which is an error.
 */
#include "lang/check/check.h"
#include "lang/names/free_names.h"
#include "lang/names/module.h"
#include "lang/names/reach.h"
#include "lang/value/fail.h"

/* ---- what the file does to a variable besides */

typedef struct Assigned {
  Name name;
  const Node *at;
} Assigned;

static void find_assigned(void *ud, Node *n) {
  stack_check();
  Assigned *a = ud;
  if (!n || a->at) return;
  if (n->kind == N_ASSIGN) {
    const Node *t = abstract_assigned_root(n);
    if (t->kind == N_NAME && t->name == a->name) a->at = n;
  }
  ast_children(n, find_assigned, ud);
}

bool reach_refused(Session *s, const Module *m, Name name, Span at) {
  Assigned a = {name, NULL};
  for (uint32_t i = 0; m->ast && i < m->ast->file.items.count && !a.at; i++) {
    Node *n = m->ast->file.items.items[i];
    bool runs = n->kind != N_LET && n->kind != N_FN && n->kind != N_MODEL && n->kind != N_TEST;
    if (runs) find_assigned(&a, n);
  }
  if (!a.at) return false;
  Diag *d = fail_report(s, ERR_TEST_SCOPE, at, "a test does not see what becomes of `%s`", name);
  dg_label(&s->diags, d, a.at->span, "this does not run in a test");
  dg_help(&s->diags, d, "make the value in a function that the file and the test call");
  return true;
}

/* ---- what a node can reach */

typedef struct Reach {
  Session *s;
  Module *m;
  bool *needed; /* by item */
  Table seen;   /* declarations and statements that were looked into */
} Reach;

static bool binds_name(const Node *pat, Name name) {
  stack_check();
  if (pat->kind == N_PAT_NAME) return pat->word.name == name;
  bool found = false;
  if (pat->kind == N_PAT_TUPLE || pat->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < pat->list.count && !found; i++)
      found = binds_name(pat->list.items[i], name);
  return found;
}

static void look_into(Reach *r, Node *n);

/* All statements that declare the variable: the last one may read those before. */
static void need_variable(Reach *r, const Global *g) {
  if (reach_refused(r->s, r->m, g->name, g->span)) fail_raise(r->s);
  const NodeList *items = &r->m->ast->file.items;
  for (uint32_t i = 0; i < items->count; i++) {
    Node *n = items->items[i];
    if (n->kind != N_LET || !binds_name(n->let.pat, g->name)) continue;
    r->needed[i] = true;
    look_into(r, n);
  }
}

static void look_into(Reach *r, Node *n) {
  stack_check();
  if (table_add(&r->seen, table_key(n), 0) != TABLE_NONE) return;
  const FreeNames *names = free_names_reached(r->s, n);
  for (size_t i = 0; i < names->count; i++) {
    const Global *g = global_own(r->m, names->items[i]);
    if (!g || g->module != r->m || !g->decl) continue;
    if (g->kind != G_VALUE)
      look_into(r, g->decl);
    else if (!g->is_const)
      need_variable(r, g);
  }
}

bool *reach_statements(Session *s, Module *m, Node *n) {
  Reach r = {.s = s, .m = m, .seen = {.arena = &s->scratch}};
  r.needed = ARENA_ARRAY(&s->scratch, bool, (size_t)m->ast->file.items.count + 1);
  look_into(&r, n);
  return r.needed;
}
