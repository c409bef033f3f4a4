/* What the text of a loop says of its lists and exits.
 *
 * In: a `for` or `while`. Out: answers that hold for all its iterations. Function literals and
 * nested functions are apart, but for reads of a list.
 */
#include "lang/eval/loop_body.h"

#include <string.h>

typedef struct Reads {
  Name list;
  Node *at; /* the first that is none of a push to it */
} Reads;

static bool names(const Node *n, Name name) {
  return n->kind == N_NAME && n->name == name;
}

/* What `list .= push(e)`, `list = push(list, e)` or `list = list.push(e)` pushes; NULL: it is none
 * of them. */
static Node *pushes(const Node *st, Name list) {
  const Node *v = st->assign.value, *c = v->kind == N_CALL ? v->call.callee : NULL;
  AstOp op = st->assign.op;
  if (!c || (op != AST_NONE && op != AST_UPDATE)) return NULL;
  const NodeList *args = &v->call.args;
  bool dot = c->kind == N_DOT;
  const Node *to = dot ? c->dot.object : args->count ? args->items[0]->arg.value : NULL;
  Name f = dot ? c->dot.name.name : c->kind == N_NAME ? c->name : NULL;
  if (!f || strcmp(f, "push") || !to || args->count != (dot ? 1 : 2)) return NULL;
  bool same = to->kind == N_PLACE || (op == AST_NONE && names(to, list));
  return same ? args->items[args->count - 1] : NULL;
}

static void find_read(void *ud, Node *n) {
  Reads *r = ud;
  if (!n || r->at) return;
  if (names(n, r->list)) {
    r->at = n;
    return;
  }
  Node *pushed =
      n->kind == N_ASSIGN && names(n->assign.target, r->list) ? pushes(n, r->list) : NULL;
  if (pushed)
    find_read(ud, pushed);
  else
    ast_children(n, find_read, ud);
}

Node *loop_reads(Node *loop, Name list) {
  Reads r = {.list = list};
  if (loop->loop.cond) find_read(&r, loop->loop.cond);
  find_read(&r, loop->loop.body);
  return r.at;
}

static void find_exit(void *ud, Node *n) {
  LoopExit *found = ud;
  if (!n || *found == LOOP_RETURNS || n->kind == N_LAMBDA || n->kind == N_FN) return;
  if (n->kind == N_RETURN || n->kind == N_BREAK)
    *found = n->kind == N_RETURN ? LOOP_RETURNS : LOOP_BREAKS;
  ast_children(n, find_exit, ud);
}

static void find_break(void *ud, Node *n) {
  bool *found = ud;
  if (!n || *found || n->kind == N_LAMBDA || n->kind == N_FN || n->kind == N_FOR ||
      n->kind == N_WHILE)
    return;
  if (n->kind == N_BREAK) *found = true;
  ast_children(n, find_break, ud);
}

LoopExit loop_exits(Node *loop) {
  LoopExit found = LOOP_ENDS;
  find_exit(&found, loop->loop.body);
  return found;
}

bool loop_only_returns(const Node *st) {
  bool breaks = false;
  if (st->kind != N_WHILE || st->loop.cond->kind != N_BOOL || !st->loop.cond->boolean) return false;
  find_break(&breaks, st->loop.body);
  return !breaks;
}

typedef struct Lists {
  bool push, exit;
} Lists;

static void find_lists(void *ud, Node *n) {
  Lists *l = ud;
  if (!n || n->kind == N_LAMBDA || n->kind == N_FN) return;
  l->exit |= n->kind == N_RETURN || n->kind == N_BREAK || n->kind == N_CONTINUE;
  l->push |= n->kind == N_NAME && !strcmp(n->name, "push");
  l->push |= n->kind == N_DOT && !strcmp(n->dot.name.name, "push");
  ast_children(n, find_lists, ud);
}

bool loop_pushes_and_exits(Node *loop) {
  Lists l = {false, false};
  find_lists(&l, loop->loop.body);
  return l.push && l.exit;
}
