/* Last uses: local variables of script that no later statement mentions (rule 76).
 *
 * In: the blocks that are running, from the innermost out, and a local. Out: whether code that can
 * still run may read it. The answer can be a false yes, never a false no: any other mention
 * in the present statement counts, any mention in a loop counts if the variable is older than the
 * iteration, and names are compared, not variables. Printing reads a value without its tape and
 * does not count.
 */
#include <string.h>

#include "lang/eval/bindings.h"
#include "lang/eval/last_use.h"
#include "lang/lang.h"
#include "lang/names/module.h"

typedef struct Count {
  Session *s;
  Name name;
  int found, weight;
} Count;

static void visit(void *ud, Node *n);

/* Whether n is a call of the builtin `print`. */
static bool plain_print(Session *s, const Node *n) {
  static const char print[] = "print";
  if (n->kind != N_CALL || n->call.callee->kind != N_NAME) return false;
  Name name = n->call.callee->name;
  return !strcmp(name, print) && !local_find(s, name) && !global_find(s, s->frame->module, name);
}

static void printed(Count *c, Node *arg) {
  Node *v = arg->kind == N_ARG ? arg->arg.value : arg;
  if (v->kind == N_NAME) return;
  if (v->kind != N_STRING) {
    visit(c, v);
    return;
  }
  for (uint32_t i = 0; i < v->string.count; i++) {
    Node *hole = v->string.items[i].hole;
    if (hole && hole->kind != N_NAME) visit(c, hole);
  }
}

static void visit(void *ud, Node *n) {
  stack_check();
  Count *c = ud;
  if (!n) return;
  if (n->kind == N_NAME) c->found += n->name == c->name ? c->weight : 0;
  if (n->kind == N_WORD && n->path.count) c->found += n->path.items[0].name == c->name;
  if (n->kind == N_CLAUSE && n->clause.path.count)
    c->found += n->clause.path.items[0].name == c->name;
  if (plain_print(c->s, n)) {
    for (uint32_t i = 0; i < n->call.args.count; i++) printed(c, n->call.args.items[i]);
    return;
  }
  if (n->kind == N_STRING) {
    for (uint32_t i = 0; i < n->string.count; i++) visit(c, n->string.items[i].hole);
    return;
  }
  int weight = c->weight;
  if (n->kind == N_COMP) c->weight = 2; /* runs more than once */
  ast_children(n, visit, c);
  c->weight = weight;
}

static int mentions(Session *s, Node *n, Name name) {
  Count c = {s, name, 0, 1};
  visit(&c, n);
  return c.found;
}

bool local_dead(Session *s, size_t k, bool asks) {
  const Frame *f = s->frame;
  Name name = s->locals[k].name;
  /* mentions in the present statement that do not count: by the caller, or in an inner block */
  int own = asks;
  for (const Running *p = f->place; p; p = p->up) {
    NodeList *l = &p->block->list;
    if (mentions(s, l->items[p->index], name) > own) return false;
    for (uint32_t i = p->index + 1; i < l->count; i++)
      if (mentions(s, l->items[i], name)) return false;
    if (k >= p->base) return true; /* its scope ends here */
    own = mentions(s, p->block, name);
    if (p->loop && own) return false;
    if (!p->up) return f->fn && p->block == f->fn->decl->fn->body; /* a parameter */
  }
  return false;
}
