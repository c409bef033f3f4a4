/* Sequences in code: the elements of a source whose number is known when it is compiled.
 *
 * In: what `enumerate`, `zip`, `reverse` and `step_by` go through. Out: its elements, as values of
 * the present stage; a loop over them is unrolled, as one over a list is. Invariant: the elements
 * are those that script goes through (seq.c), in that order.
 */
#include "lang/compile/stage.h"
#include "lang/eval/index.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/steps.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

/* The leading size of a tensor, or of tensors that go together. */
static int64_t leading(Session *s, Value v, Span at) {
  stack_check();
  int64_t n = 0;
  if (v_is_tensor(v) || v.tag == V_PARAM) {
    Type t = op_type_of(s, v);
    if (t.rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    unit_need_const(s, t.dim[0], at, "the number of elements that code goes through", &n);
    return n;
  }
  size_t count = 0;
  Value *items = v.tag == V_TUPLE || v.tag == V_RECORD ? value_parts(s, v, &count) : NULL;
  if (v.tag == V_SEQ)
    fail_help(s, ERR_SCRIPT_ONLY, at, "go through it in script, and pass its elements",
              "a sequence works in script, not in code");
  if (!items || !count)
    fail_at(s, ERR_ITERATE, at,
            "tensors, tuples and records of tensors, lists and ranges have elements in code; this "
            "is %s",
            value_type_text(s, v));
  for (size_t i = 0; i < count; i++) {
    int64_t k = leading(s, items[i], at);
    if (i && k != n)
      fail_at(s, ERR_LEADING, at,
              "tensors that go together have one leading size: %lld and %lld differ", (long long)n,
              (long long)k);
    n = k;
  }
  return n;
}

static Value element(Session *s, Value v, int64_t k, Span at) {
  stack_check();
  if (v.tag != V_TUPLE && v.tag != V_RECORD) return op_element(s, v, k, at);
  size_t n;
  Value *items = value_parts(s, v, &n);
  for (size_t i = 0; i < n; i++) items[i] = element(s, items[i], k, at);
  return value_like(s, v, items);
}

size_t seq_elements(Session *s, Value v, Span at, Value **items) {
  int64_t n, lo = 0;
  if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, at);
  if (v.tag == V_RANGE) {
    lo = want_int(s, v.u.range->lo, at, "the start of the range");
    int64_t hi = want_int(s, v.u.range->hi, at, "the end of the range");
    if (__builtin_sub_overflow(hi, lo, &n)) n = INT64_MAX;
    if (n < 0) n = 0;
  } else {
    n = v.tag == V_LIST ? (int64_t)v.u.list->count : leading(s, v, at);
  }
  if (n > UNROLL_MAX)
    fail_at(s, ERR_NOT_YET, at,
            "not yet: a compiled loop of %lld iterations (at most %d are unrolled)", (long long)n,
            UNROLL_MAX);
  Value *out = *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (int64_t k = 0; k < n; k++)
    out[k] = v.tag == V_LIST    ? v.u.list->items[k]
             : v.tag == V_RANGE ? number_node(s, lo + k)
                                : element(s, v, k, at);
  return (size_t)n;
}
