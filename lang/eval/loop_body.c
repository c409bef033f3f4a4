/* What the text of a loop says of its lists and exits.
 *
 * In: a `for` or `while`. Out: answers that hold for all its iterations. Function literals and
 * nested functions are apart, but for reads of a list.
 */
#include "lang/eval/loop_body.h"

#include <string.h>

typedef struct Reads {
  Name list;
  Node *at; /* the first that is no `list = push(list, ..)` */
} Reads;

static bool names(const Node *n, Name name) {
  return n->kind == N_NAME && n->name == name;
}

static void find_read(void *ud, Node *n) {
  Reads *r = ud;
  if (!n || r->at) return;
  if (names(n, r->list)) {
    r->at = n;
    return;
  }
  if (n->kind == N_ASSIGN && names(n->assign.target, r->list) && n->assign.op == AST_NONE) {
    const Node *v = n->assign.value;
    const NodeList *args = &v->call.args;
    bool pushes = v->kind == N_CALL && v->call.callee->kind == N_NAME && args->count == 2 &&
                  !strcmp(v->call.callee->name, "push");
    const Node *to = pushes ? args->items[0] : NULL;
    if (pushes && names(to->kind == N_ARG ? to->arg.value : to, r->list)) {
      find_read(ud, args->items[1]);
      return;
    }
  }
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
  ast_children(n, find_lists, ud);
}

bool loop_pushes_and_exits(Node *loop) {
  Lists l = {false, false};
  find_lists(&l, loop->loop.body);
  return l.push && l.exit;
}
