/* Gradients by several values inside a turn of a loop that stays one.
 *
 * In: the values by which a gradient is taken, and the region of the turn once it is staged. Out:
 * an error if one of them is carried and was made of another: the region sees what it carries as
 * given, so that the gradient by the other value would miss what goes through the first.
 */
#include "lang/eval/history.h"

#include <string.h>

#include "autograd/autograd.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "lang/value/fail.h"

/* The number of an input among those that are carried; 0: it is none. */
static size_t carried_input(const Graph *g, size_t carried, Val v) {
  for (size_t k = 1; k <= carried && k < g->input_count; k++)
    if (val_eq(g->inputs[k], v)) return k;
  return 0;
}

void history_note(Session *s, History *h, const Stage *st, size_t carried, size_t n, const Val *wrt,
                  Span at) {
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n && carried_input(st->g, carried, wrt[i]); j++) {
      if (val_none(wrt[j]) || val_eq(wrt[i], wrt[j])) continue;
      Taken t = {wrt[i], wrt[j], at};
      VEC_PUSH(&s->scratch, h->items, h->count, h->cap, t);
    }
}

/* Whether outs[of - 1] depends on what the next turn takes as input `by`, or on `captured`. */
static bool made_in_a_turn(Session *s, const Stage *st, size_t carried, const Val *outs, size_t of,
                           size_t by, Val captured) {
  const Graph *g = st->g;
  Val end = by ? outs[by - 1] : captured;
  bool *live = ARENA_ARRAY(&s->scratch, bool, g->type_count + 1);
  live[ad_slot(g, outs[of - 1])] = true;
  for (bool more = true; more;) {
    ad_mark_back(&s->scratch, g, live, NULL);
    more = false;
    for (size_t k = 1; !by && k <= carried; k++) { /* what turns before that one made of it */
      bool *out = &live[ad_slot(g, outs[k - 1])];
      if (!live[ad_slot(g, g->inputs[k])] || *out) continue;
      *out = more = true;
    }
  }
  return live[ad_slot(g, end)];
}

/* Whether v depends on `by`, values of the stage. */
static bool made_before(Session *s, const Stage *st, Val v, Val by) {
  bool *live = ARENA_ARRAY(&s->scratch, bool, st->g->type_count + 1);
  live[ad_slot(st->g, v)] = true;
  for (;; st = st->up) {
    const Graph *g = st->g;
    ad_mark_back(&s->scratch, g, live, NULL);
    if (live[ad_slot(g, by)]) return true;
    if (!st->up) return false;
    bool *outer = ARENA_ARRAY(&s->scratch, bool, st->up->g->type_count + 1), found = false;
    Val next = VAL_NONE;
    for (size_t c = 0; c < st->capture_count; c++) {
      found |= outer[ad_slot(st->up->g, st->outer[c])] |= live[ad_slot(g, st->inner[c])];
      if (val_eq(st->inner[c], by)) next = st->outer[c];
    }
    if (!found || val_none(next)) return false;
    by = next;
    live = outer;
  }
}

void history_check(Session *s, const History *h, const Stage *st, size_t carried, const Val *args,
                   const Val *outs) {
  for (size_t i = 0; i < h->count; i++) {
    const Taken *t = &h->items[i];
    size_t of = carried_input(st->g, carried, t->carried);
    size_t by = carried_input(st->g, carried, t->also);
    Val outer = by ? args[by - 1] : VAL_NONE;
    for (size_t c = 0; c < st->capture_count && !by; c++)
      if (val_eq(st->inner[c], t->also)) outer = st->outer[c];
    if (!of || val_none(outer)) continue; /* the turn made it itself */
    if (made_before(s, st->up, args[of - 1], outer) ||
        made_in_a_turn(s, st, carried, outs, of, by, t->also))
      fail_help(s, ERR_NOT_YET, t->at,
                "a gradient by each alone, with stop(..) of the one that the other was made of; or "
                "let a proc or the top level go through the loop, with the body in a fn",
                "not yet: this gradient is by two values, of which earlier turns of the loop, or "
                "what stands before it, made one of the other");
  }
}
