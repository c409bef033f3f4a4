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
#include "lang/eval/loop_body.h"
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

/* What was there before a try. */
typedef struct Before {
  Left left;
  Prov at;
  size_t diags;
  struct Hosts *hosts;
} Before;

static void before(Session *s, Before *b) {
  b->at = s->stage->g->at;
  b->diags = s->diags.count;
  b->hosts = s->stage->unit ? s->stage->unit->hosts : NULL;
  left_open(s, &b->left);
}

/* Goes back to it after a failure. One that may not be forgotten is thrown: it is no error of the
 * program, or an effect that stands in the graph already would be there twice. */
static void back(Session *s, const Before *b, int code) {
  Unit *u = s->stage->unit;
  bool effects = u && !val_none(u->token) && !val_eq(u->token, b->left.token[0]);
  if (code != MEM_ERR_PROGRAM || effects) mem_throw(&s->mem, code);
  dg_rewind(&s->diags, b->diags);
  if (u) u->hosts = b->hosts; /* those that the try made went with the pool */
  left_restore(s, &b->left);
  s->stage->g->at = b->at;
}

bool unroll_not(Session *s, Node *st, Value it, int64_t lo, int64_t hi, Flow *flow) {
  Attempt a = {s, st, it.tag == V_RANGE ? v_unit() : it, lo, hi, FLOW_NEXT};
  Before b;
  before(s, &b);
  int code = api_guard(s, attempt, &a);
  *flow = a.flow;
  if (code != MEM_OK) back(s, &b, code);
  return code == MEM_OK;
}

bool unroll_or_stay(Session *s, Node *st, Value it, int64_t lo, int64_t hi,
                    void (*unrolled)(void *), void *ud, bool *too_many, Flow *flow) {
  Before b;
  before(s, &b);
  int64_t unrolled_before = s->unrolled;
  int code = MEM_OK;
  if (loop_pushes_and_exits(st))
    code = api_guard(s, unrolled, ud);
  else
    unrolled(ud);
  if (code == MEM_OK && !*too_many) return false;
  if (code == MEM_OK) {
    back(s, &b, MEM_ERR_PROGRAM);
    s->unrolled = unrolled_before;
    return unroll_not(s, st, it, lo, hi, flow);
  }
  if (s->diags.count == b.diags || s->diags.items[b.diags]->code != ERR_BRANCH)
    mem_throw(&s->mem, code);
  back(s, &b, code);
  *flow = turns_for(s, st, it.tag == V_RANGE ? v_unit() : it, v_int(lo), v_int(hi), false);
  return true;
}
