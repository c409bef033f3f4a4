/* The elements of a value, one by one.
 *
 * In: a list, tuple, dict, text, range, leading axis or sequence. Out: its elements, in order.
 * Idea: what builtins do with elements is the same in script, where a sequence is started, and in
 * code, where their number is known, so they see neither. Unlike a `for`, a walk takes a tuple
 * apart and does not go through its columns.
 */
#include "lang/eval/walk.h"

#include "lang/eval/sources.h"
#include "lang/eval/steps.h"
#include "lang/value/dict.h"
#include "lang/value/texts.h"

Walk walk_start(Session *s, Value v, Span at) {
  Walk w = {.s = s, .of = dict_elements(s, text_elements(s, v)), .at = at};
  if (w.of.tag == V_UNIT) /* a tuple without parts */
    w.of = v_list(s, V_LIST, 0, NULL);
  if (w.of.tag == V_LIST || w.of.tag == V_TUPLE)
    w.n = w.of.u.list->count;
  else if (s->stage)
    w.n = (size_t)seq_size(s, w.of, at);
  else
    seq_need_end(w.it = seq_start(s, w.of, at), at);
  return w;
}

bool walk_next(Walk *w, Value *v) {
  Session *s = w->s;
  if (w->it) {
    count_step(s, w->at);
    return seq_next(s, w->it, v, w->at);
  }
  if (w->k == w->n) return false;
  count_step(s, w->at);
  bool part = w->of.tag == V_LIST || w->of.tag == V_TUPLE;
  *v = part ? w->of.u.list->items[w->k] : seq_item(s, w->of, (int64_t)w->k, w->at);
  w->k++;
  return true;
}

Value *walk_all(Session *s, Value v, Span at, size_t *n) {
  size_t cap = 0;
  Value *items = NULL, x;
  *n = 0;
  for (Walk w = walk_start(s, v, at); walk_next(&w, &x);) VEC_PUSH(&s->scratch, items, *n, cap, x);
  return items;
}

Value walk_list(Session *s, Value v, Span at) {
  if (v_is_weak_list(v)) return v;
  size_t n;
  const Value *items = walk_all(s, v, at, &n);
  Value l = v_list(s, V_LIST, n, items);
  bool weak = n > 0;
  for (size_t i = 0; i < n; i++) weak &= v_is_number(items[i]);
  l.u.list->weak = weak;
  return l;
}
