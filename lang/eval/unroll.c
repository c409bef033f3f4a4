/* Loops of code that are unrolled or stay loops, as it turns out (rule 41).
 *
 * In: a `for` whose iterations are known. Out: what turns.c makes of it, or what its iterations
 * make one after the other. One of them is tried first; a failure takes back what it did to the
 * session, and its nodes of the graph have no readers.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/left.h"
#include "lang/eval/turns.h"
#include "lang/eval/unroll.h"

typedef struct Attempt {
  Session *s;
  Node *st;
  Value it;
  int64_t lo, hi;
  Flow flow;
} Attempt;

static void attempt(void *ud) {
  Attempt *a = ud;
  a->flow = turns_for(a->s, a->st, a->it, v_int(a->lo), v_int(a->hi), true);
}

/* Goes back to `left` after a failure; false if it has to be thrown: an effect that stands in the
 * graph already would be there twice. */
static bool back(Session *s, const Left *left, size_t diags, Prov at) {
  Unit *u = s->stage->unit;
  if (u && !val_none(u->token) && !val_eq(u->token, left->token[0])) return false;
  dg_rewind(&s->diags, diags);
  left_restore(s, left);
  s->stage->g->at = at;
  return true;
}

bool unroll_not(Session *s, Node *st, Value it, int64_t lo, int64_t hi, Flow *flow) {
  Attempt a = {s, st, it.tag == V_RANGE ? v_unit() : it, lo, hi, FLOW_NEXT};
  Left left;
  Prov at = s->stage->g->at;
  size_t before = s->diags.count;
  left_open(s, &left);
  int code = api_guard(s, attempt, &a);
  *flow = a.flow;
  if (code == MEM_OK) return true;
  if (code != MEM_ERR_PROGRAM || !back(s, &left, before, at)) mem_throw(&s->mem, code);
  return false;
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

bool unroll_or_stay(Session *s, Node *st, Value it, int64_t lo, int64_t hi,
                    void (*unrolled)(void *), void *ud, Flow *flow) {
  Lists l = {false, false};
  find_lists(&l, st->loop.body);
  if (!l.push || !l.exit) {
    unrolled(ud);
    return false;
  }
  Left left;
  Prov at = s->stage->g->at;
  size_t before = s->diags.count;
  left_open(s, &left);
  int code = api_guard(s, unrolled, ud);
  if (code == MEM_OK) return false;
  bool lengths = code == MEM_ERR_PROGRAM && s->diags.count > before &&
                 s->diags.items[before]->code == ERR_BRANCH;
  if (!lengths || !back(s, &left, before, at)) mem_throw(&s->mem, code);
  *flow = turns_for(s, st, it.tag == V_RANGE ? v_unit() : it, v_int(lo), v_int(hi), false);
  return true;
}
