/* What a piece of code leaves behind: see left.h.
 *
 * In: the session, before and after code is staged as a region. Out: the values of all places that
 * such code can change. Invariant: after left_restore no value of the region is reachable from the
 * session.
 */
#include "lang/eval/left.h"

#include <string.h>

#include "lang/compile/stage.h"
#include "lang/value/random.h"

OpenLoop *left_loop(const Session *s) {
  OpenLoop *l = s->loops;
  return l && l->frame == s->frame ? l : NULL;
}

bool left_same(Value a, Value b) {
  if (a.tag != b.tag || a.weak != b.weak) return false;
  switch ((ValueTag)a.tag) {
  case V_UNIT:
  case V_NONE: return true;
  case V_NODE: return a.aux == b.aux && val_eq(a.u.v, b.u.v);
  case V_FLOAT: return memcmp(&a.u.f, &b.u.f, sizeof a.u.f) == 0;
  case V_BOOL:
  case V_INT:
  case V_DTYPE: return a.u.i == b.u.i;
  case V_DIM: return a.u.d == b.u.d;
  case V_STR: return value_same(a, b);
  default: return a.u.o == b.u.o;
  }
}

void left_note(Session *s, Left *l, int k) {
  Frame *f = s->frame;
  OpenLoop *loop = left_loop(s);
  l->returned[k] = f->returned;
  l->ret_value[k] = f->ret_value;
  l->broken[k] = loop ? loop->broken : v_unit();
  l->continued[k] = loop ? loop->continued : v_unit();
  for (size_t i = 0; i < l->var_count; i++)
    l->vars[i].v[k] = value_pool(s, s->locals[l->vars[i].local].v);
  Unit *u = s->stage->unit;
  for (size_t i = l->state_count; u && i < u->state_count; i++) { /* met in this region */
    size_t n = l->state_count;
    Value row[3] = {u->states[i].entry, u->states[i].entry, u->states[i].entry};
    if (n == l->state_cap) {
      size_t cap = n ? 2 * n : 8;
      Value(*more)[3] = arena_alloc(&s->scratch, cap * sizeof *more);
      struct Base **base = arena_alloc(&s->scratch, cap * sizeof *base);
      if (n) memcpy(more, l->state, n * sizeof *more);
      if (n) memcpy(base, l->base, n * sizeof *base);
      l->state = more;
      l->base = base;
      l->state_cap = cap;
    }
    memcpy(l->state[n], row, sizeof row);
    l->base[n] = u->states[i].base;
    l->state_count++;
  }
  for (size_t i = 0; u && i < l->state_count; i++) l->state[i][k] = u->states[i].cur;
  l->token[k] = u ? u->token : VAL_NONE;
  l->drawn[k] = random_mark(s);
}

void left_open(Session *s, Left *l) {
  *l = (Left){.vars = NULL};
  for (size_t i = 0; i < s->local_count; i++) l->var_count += s->locals[i].is_var;
  l->vars = ARENA_ARRAY(&s->scratch, Held, l->var_count + 1);
  for (size_t i = 0, n = 0; i < s->local_count; i++)
    if (s->locals[i].is_var) l->vars[n++].local = i;
  left_note(s, l, 0);
}

void left_restore(Session *s, const Left *l) {
  Frame *f = s->frame;
  OpenLoop *loop = left_loop(s);
  f->returned = l->returned[0];
  f->ret_value = l->ret_value[0];
  if (loop) {
    loop->broken = l->broken[0];
    loop->continued = l->continued[0];
  }
  for (size_t i = 0; i < l->var_count; i++)
    value_set(&s->locals[l->vars[i].local].v, l->vars[i].v[0]);
  Unit *u = s->stage->unit;
  for (size_t i = 0; u && i < l->state_count; i++) {
    u->states[i].cur = l->state[i][0];
    u->states[i].base = l->base[i];
  }
  if (u) u->token = l->token[0];
  random_back(s, &l->drawn[0]);
}
