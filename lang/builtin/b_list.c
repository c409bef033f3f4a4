/* Builtins of lists: making and changing, order, search, rows.
 *
 * In: lists, and anything with elements (walk.c). Out: new values, or, where `Call.own` says so,
 * the list itself, changed. What asks for the order or equality of elements needs to know them: in
 * code they are numbers and texts that are known when it is compiled.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/known.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/owned.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sources.h"
#include "lang/eval/steps.h"
#include "lang/eval/walk.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"

/* ---- making and changing */

BUILTIN_FN(bi_list) {
  bool one = c->rest_n == 1 && (c->rest[0].tag == V_RANGE || c->rest[0].tag == V_SEQ);
  if (one) /* nobody wants a list with a range in it */
    fail_help(s, ERR_WANT_LIST, c->rest_spans[0], "`[e for e in xs]` lists its elements",
              "`list(a, b)` is a list of these values, and here of one %s",
              c->rest[0].tag == V_RANGE ? "range" : "sequence");
  return v_list(s, V_LIST, c->rest_n, c->rest);
}

/* Argument 0, a list. `help` is for a tensor. */
static List *arg_list(Session *s, Call *c, const char *help) {
  Value v = c->v[0];
  if (v.tag != V_LIST) {
    const char *text = fail_text(s, "`%s` takes a list, not %s", c->b->name, value_type_text(s, v));
    if (v_is_tensor(v)) fail_help(s, ERR_WANT_LIST, c->spans[0], help, "%s", text);
    if (v.tag == V_STR)
      fail_help(s, ERR_WANT_LIST, c->spans[0], "`+` joins texts, `s += \"x\"` adds one", "%s",
                text);
    fail_at(s, ERR_WANT_LIST, c->spans[0], "%s", text);
  }
  return v.u.list;
}

/* The list with the items from `from` on replaced: `drop` of them by the n of `more`. */
static Value spliced(Session *s, const List *l, size_t from, size_t drop, size_t n,
                     const Value *more) {
  Value *items = ARENA_ARRAY(&s->scratch, Value, l->count + n + 1);
  size_t k = 0;
  bool weak = l->weak;
  for (size_t i = 0; i < from; i++) items[k++] = l->items[i];
  for (size_t i = 0; i < n; i++) {
    items[k++] = more[i];
    weak &= more[i].tag == V_INT || more[i].tag == V_FLOAT;
  }
  for (size_t i = from + drop; i < l->count; i++) items[k++] = l->items[i];
  Value v = v_list(s, V_LIST, k, items);
  v.u.list->weak = weak && k;
  return v;
}

BUILTIN_FN(bi_push) {
  List *l = arg_list(s, c, "`concat(x, [e])` joins tensors");
  if (!c->own) {
    Value v = spliced(s, l, l->count, 0, 1, &c->v[1]);
    v.u.list->weak = false;
    return v;
  }
  owned_push(s, l, 1, &c->v[1]);
  return c->v[0];
}

BUILTIN_FN(bi_pop) {
  List *l = arg_list(s, c, "`x[:-1]` leaves out the last element of a tensor");
  if (!l->count) fail_at(s, ERR_VALUE, c->spans[0], "there is no last element: the list is empty");
  if (!c->own) return spliced(s, l, l->count - 1, 1, 0, NULL);
  owned_remove(l, l->count - 1);
  return c->v[0];
}

/* Argument 1, a place of the list, or, with `end`, behind its last item. */
static size_t arg_place(Session *s, Call *c, const List *l, bool end) {
  int64_t i = want_int(s, c->v[1], c->spans[1], "the place");
  if (i < 0 || (uint64_t)i >= l->count + end)
    fail_help(s, ERR_INDEX_RANGE, c->spans[1], "`len(xs) - 1` is the place of the last element",
              "place %lld is out of range for a list of %zu", (long long)i, l->count);
  return (size_t)i;
}

BUILTIN_FN(bi_insert) {
  List *l = arg_list(s, c, "`concat(x[:i], [e], x[i:])` joins tensors");
  size_t i = arg_place(s, c, l, true);
  if (!c->own) return spliced(s, l, i, 0, 1, &c->v[2]);
  owned_insert(s, l, i, c->v[2]);
  return c->v[0];
}

BUILTIN_FN(bi_remove_at) {
  List *l = arg_list(s, c, "`concat(x[:i], x[i + 1:])` leaves out row i of a tensor");
  size_t i = arg_place(s, c, l, false);
  if (!c->own) return spliced(s, l, i, 1, 0, NULL);
  owned_remove(l, i);
  return c->v[0];
}

BUILTIN_FN(bi_flatten) {
  size_t n = 0, cap = 0;
  Value *all = NULL, x, y;
  if (v_is_tensor(c->v[0]) || v_is_weak_list(c->v[0]))
    fail_help(s, ERR_WANT_LIST, c->spans[0], "`reshape(x, [-1])`",
              "`flatten` takes lists in a list, not %s", value_type_text(s, c->v[0]));
  for (Walk w = walk_start(s, c->v[0], c->spans[0]); walk_next(&w, &x);) {
    if (x.tag == V_UNKNOWN) return x;
    if (v_is_tensor(x))
      fail_help(s, ERR_WANT_LIST, c->spans[0], "`concat(xs)` joins the tensors of a list",
                "`flatten` takes lists in a list, here is %s in it", value_type_text(s, x));
    for (Walk in = walk_start(s, x, c->spans[0]); walk_next(&in, &y);)
      VEC_PUSH(&s->scratch, all, n, cap, y);
  }
  return v_list(s, V_LIST, n, all);
}

/* ---- order */

/* A number, bool, text or tuple; what holds a number is that number. */
static Value ordered(Session *s, Value v, Span at) {
  int64_t known;
  if (v.tag == V_DIM) return v_int(want_int(s, v, at, "an element"));
  if (v.tag == V_NODE && want_known(s, v, &known)) return v_int(known);
  const Tensor *t = s->stage ? NULL : v_tensor_of(v);
  if (t && !t->rank) return v_scalar(t);
  if (v.tag == V_INT || v.tag == V_FLOAT || v.tag == V_BOOL || v.tag == V_STR || v.tag == V_TUPLE)
    return v;
  if (s->stage && (v.tag == V_NODE || v.tag == V_PARAM) && !op_type_of(s, v).rank)
    fail_help(s, ERR_NOT_CONST, at, "`sort(x)` and `max(x)` work on tensors",
              "the order of these elements is known only when the code runs");
  fail_help(s, ERR_COMPARE, at, "`by = fn(x) = ..` gives a number, a text, or a tuple of these",
            "numbers, bools, texts and tuples of these have an order; this is %s",
            value_type_text(s, v));
}

static int sign(bool less, bool more) {
  return more - less;
}

/* -1, 0, 1; -2 or 2: because the one, or the other, is NaN, which stands behind all numbers. */
static int order(Session *s, Value a, Value b, Span at) {
  stack_check();
  a = ordered(s, a, at);
  b = ordered(s, b, at);
  bool an = a.tag == V_FLOAT && a.u.f != a.u.f, bn = b.tag == V_FLOAT && b.u.f != b.u.f;
  bool number = (a.tag == V_INT || a.tag == V_FLOAT) && (b.tag == V_INT || b.tag == V_FLOAT);
  if (!number && a.tag != b.tag)
    fail_at(s, ERR_COMPARE, at, "there is no order between %s and %s", value_type_text(s, a),
            value_type_text(s, b));
  if (an || bn) return 2 * sign(!an, !bn);
  if (number && a.tag != b.tag)
    return a.tag == V_INT ? known_order(a.u.i, b.u.f) : -known_order(b.u.i, a.u.f);
  if (a.tag == V_FLOAT) return sign(a.u.f<b.u.f, a.u.f> b.u.f);
  if (a.tag != V_STR && a.tag != V_TUPLE) return sign(a.u.i<b.u.i, a.u.i> b.u.i);
  if (a.tag == V_STR) {
    int k = text_order(a.u.str, b.u.str);
    return sign(k<0, k> 0);
  }
  const List *x = a.u.list, *y = b.u.list;
  for (size_t i = 0; i < x->count && i < y->count; i++) {
    int k = order(s, x->items[i], y->items[i], at);
    if (k) return k;
  }
  return sign(x->count<y->count, x->count> y->count);
}

typedef struct Sorting {
  Session *s;
  const Value *key;
  bool down;
  Span at;
} Sorting;

/* Whether element b has to stand before element a, which came first. */
static bool before(const Sorting *j, size_t b, size_t a) {
  int k = order(j->s, j->key[b], j->key[a], j->at);
  return k == -2 || (k == 1 ? j->down : k == -1 && !j->down);
}

/* Merges runs of 1, 2, 4 .. elements. */
static size_t *sorted_places(const Sorting *j, size_t n) {
  size_t *from = ARENA_ARRAY(&j->s->scratch, size_t, n + 1),
         *to = ARENA_ARRAY(&j->s->scratch, size_t, n + 1);
  for (size_t i = 0; i < n; i++) from[i] = i;
  if (n == 1) order(j->s, j->key[0], j->key[0], j->at); /* it has to have an order, too */
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t lo = 0; lo < n; lo += 2 * width) {
      size_t mid = n - lo < width ? n : lo + width, hi = n - mid < width ? n : mid + width;
      for (size_t k = lo, a = lo, b = mid; k < hi; k++) {
        count_step(j->s, j->at);
        to[k] = b < hi && (a == mid || before(j, from[b], from[a])) ? from[b++] : from[a++];
      }
    }
    size_t *t = from;
    from = to;
    to = t;
  }
  return from;
}

/* f(x) of each element, or the element. False: something is unknown. */
static bool keys_of(Session *s, Value f, size_t n, const Value *x, Value *key, Span at) {
  for (size_t i = 0; i < n; i++) {
    key[i] = f.tag == V_NONE ? x[i] : call_simple(s, f, 1, &x[i], at);
    if (key[i].tag == V_UNKNOWN) return false;
    value_bound(s, key[i], at);
  }
  return true;
}

BUILTIN_FN(bi_sorted) {
  Value xs = c->v[0], by = c->v[1];
  bool down = want_bool(s, c->v[2], c->spans[2], "`descending`");
  bool tensor = v_is_tensor(xs);
  if (tensor && by.tag == V_NONE) {
    Value out[2];
    if (op_type_of(s, xs).rank != 1)
      fail_help(s, ERR_RANK, c->spans[0], "`sort(x, axis = ..)` sorts along an axis",
                "the rows of %s have no order", value_type_text(s, xs));
    xs = op_as_tensor(s, xs, DT_COUNT, c->spans[0]);
    Attr a[2] = {attr_i(AT_AXIS, 0), attr_i(AT_DESCENDING, down)};
    op_run_multi(s, OP_SORT, 1, &xs, a, 2, c->at, 2, out);
    return out[0];
  }
  size_t n;
  const Value *x = walk_all(s, xs, c->spans[0], &n);
  Value *key = ARENA_ARRAY(&s->scratch, Value, n + 1);
  if (!keys_of(s, by, n, x, key, c->at)) return (Value){.tag = V_UNKNOWN};
  Sorting j = {s, key, down, by.tag == V_NONE ? c->spans[0] : c->spans[1]};
  const size_t *place = sorted_places(&j, n);
  if (tensor) {
    int64_t *rows = ARENA_ARRAY(&s->scratch, int64_t, n + 1);
    for (size_t i = 0; i < n; i++) rows[i] = (int64_t)place[i];
    return data_pick(s, xs, rows, (int64_t)n, c->at);
  }
  Value *out = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) out[i] = x[place[i]];
  Value v = v_list(s, V_LIST, n, out);
  v.u.list->weak = v_is_weak_list(xs);
  return v;
}

Value arg_extreme(Session *s, Call *c, int i, Value by, bool least) {
  size_t n, best = 0;
  const Value *x = walk_all(s, c->v[i], c->spans[i], &n);
  Value *key = ARENA_ARRAY(&s->scratch, Value, n + 1);
  if (!n)
    fail_at(s, ERR_VALUE, c->spans[i], "there is no %s element: it is empty",
            least ? "smallest" : "largest");
  if (!keys_of(s, by, n, x, key, c->at)) return (Value){.tag = V_UNKNOWN};
  for (size_t k = n == 1 ? 0 : 1; k < n; k++) { /* one alone has to have an order, too */
    int o = order(s, key[k], key[best], c->spans[i]);
    count_step(s, c->at);
    if (o == 2 || o == (least ? -1 : 1)) best = k; /* NaN wins, as in tensors */
  }
  return x[best];
}

/* ---- search */

BUILTIN_FN(bi_index_of) {
  Value x;
  int64_t k = 0, known;
  for (Walk w = walk_start(s, c->v[0], c->spans[0]); walk_next(&w, &x); k++) {
    Value same = x.tag == V_UNKNOWN ? x : eval_same_element(s, c->v[1], x, c->at);
    if (same.tag == V_UNKNOWN) return same;
    if (same.tag == V_NODE) {
      if (!want_known_bool(s, same, &known))
        fail_help(s, ERR_NOT_CONST, c->at, "`argmax(x == y)` is the first place in a tensor",
                  "where the element stands is known only when the code runs");
      same = v_bool(known != 0);
    }
    if (same.tag == V_TENSOR) same = v_bool(tn_get_i64(same.u.t->t, 0) != 0);
    if (same.u.i) return v_int(k);
  }
  return v_none();
}

static Value unique_elements(Session *s, Call *c, bool counts) {
  Value seen = v_dict_room(s, 0), x;
  for (Walk w = walk_start(s, c->v[0], c->spans[0]); walk_next(&w, &x);) {
    Value key = dict_key(s, x, c->spans[0]);
    if (key.tag == V_UNKNOWN) return key;
    const Value *had = dict_find(seen.u.dict, key);
    dict_put(s, seen.u.dict, key, v_int(had ? had->u.i + 1 : 1));
  }
  size_t n;
  const Value *items = value_items(seen, &n);
  Value keys = v_list(s, V_LIST, n, seen.u.dict->keys);
  if (!counts) return keys;
  int64_t *count = ARENA_ARRAY(&s->scratch, int64_t, n + 1);
  for (size_t i = 0; i < n; i++) count[i] = items[i].u.i;
  return v_list(s, V_TUPLE, 2, (Value[2]){keys, bi_ints(s, n, count, c->at)});
}

BUILTIN_FN(bi_unique) {
  bool counts = want_bool(s, c->v[1], c->spans[1], "`counts`");
  if (!v_is_tensor(c->v[0]) && !v_is_weak_list(c->v[0])) return unique_elements(s, c, counts);
  if (in_code(s))
    fail_help(s, ERR_SCRIPT_ONLY, c->at, "call it at the top level or in a proc",
              "`unique` of a tensor works in script, not in code");
  Value x = arg_tensor(s, c, 0), out[2];
  Type t = op_type_of(s, x);
  Dim n = dim_product(s->dims, t.rank, t.dim);
  Value flat = op_reshape(s, x, 1, &n, c->at);
  bool bools = t.dtype == DT_BOOL, floats = dt_float((DType)t.dtype);
  if (bools) flat = op_cast(s, flat, DT_U8, c->at);
  Attr up[2] = {attr_i(AT_AXIS, 0), attr_i(AT_DESCENDING, 0)};
  op_run_multi(s, OP_SORT, 1, &flat, up, 2, c->at, 2, out);
  const Tensor *v = out[0].u.t->t;
  int64_t count = tn_count(v), k = 0,
          *keep = (int64_t *)arena_alloc(&s->scratch, sizeof(int64_t) * (size_t)(count + 1));
  for (int64_t i = 0; i < count; i++)
    if (!i || (floats ? tn_get_f64(v, i) != tn_get_f64(v, i - 1)
                      : tn_get_i64(v, i) != tn_get_i64(v, i - 1)))
      keep[k++] = i;
  Value r = data_pick(s, out[0], keep, k, c->at);
  if (bools) r = op_cast(s, r, DT_BOOL, c->at);
  if (!counts) return r;
  for (int64_t i = 0; i < k; i++) keep[i] = (i + 1 < k ? keep[i + 1] : count) - keep[i];
  return v_list(s, V_TUPLE, 2, (Value[2]){r, bi_ints(s, (size_t)k, keep, c->at)});
}

/* ---- rows */

/* Argument 1 of `pick` in script: places of n rows, or a mask. */
static int64_t *arg_rows(Session *s, Call *c, int64_t n, int64_t *count) {
  Value rows = c->v[1];
  Span at = c->spans[1];
  if (!v_is_tensor(rows)) {
    Value l = walk_list(s, rows, at);
    if (!l.u.list->count) {
      *count = 0;
      return ARENA_ARRAY(&s->scratch, int64_t, 1);
    }
    rows = v_is_weak_list(l) ? l : op_stack(s, l.u.list->count, l.u.list->items, 0, at);
    rows = op_as_tensor(s, rows, DT_COUNT, at);
  }
  const Tensor *t = op_tensor_of(s, rows, at);
  if (t->rank != 1 || dt_float(t->dtype))
    fail_at(s, ERR_INDEX_KIND, at, "rows are an int, ints, or a bool for each row, not %s",
            value_type_text(s, rows));
  int64_t k = 0, len = t->dim[0], *out = ARENA_ARRAY(&s->scratch, int64_t, len + 1);
  if (t->dtype == DT_BOOL && len != n)
    fail_at(s, ERR_LEADING, at, "there are %lld bools for %lld rows", (long long)len, (long long)n);
  for (int64_t i = 0; i < len; i++) {
    int64_t r = tn_get_i64(t, i);
    if (t->dtype == DT_BOOL) {
      if (r) out[k++] = i;
      continue;
    }
    if (r < 0 || r >= n)
      fail_at(s, ERR_INDEX_RANGE, at, "row %lld is out of range, there are %lld", (long long)r,
              (long long)n);
    out[k++] = r;
  }
  *count = k;
  return out;
}

/* In code: rows of tensors at ints that the run may know alone; lists at known ones. */
static Value rows_in_code(Session *s, Value v, Value rows, Span at) {
  stack_check();
  size_t n;
  if (v_is_tensor(v) || v_is_weak_list(v) || v.tag == V_PARAM) {
    Value of[2] = {op_as_tensor(s, v, DT_COUNT, at), op_as_tensor(s, rows, DT_I64, at)};
    Type t = op_type_of(s, of[1]), x = op_type_of(s, of[0]);
    if (!dt_int((DType)t.dtype) || t.rank > 1 || !x.rank)
      fail_help(s, ERR_INDEX_KIND, at, "a mask can be read in script alone",
                "rows are an int or ints, not %s of %s", value_type_text(s, of[1]),
                value_type_text(s, of[0]));
    of[1] = op_cast(s, of[1], DT_I64, at);
    Attr axis = attr_i(AT_AXIS, 0);
    return op_run(s, OP_TAKE, 2, of, &axis, 1, at);
  }
  if (v.tag == V_LIST) {
    bool one = v_is_number(rows);
    Value l = one ? rows : walk_list(s, rows, at);
    n = one ? 1 : l.u.list->count;
    Value *out = ARENA_ARRAY(&s->scratch, Value, n + 1);
    for (size_t i = 0; i < n; i++) {
      int64_t r = want_int(s, one ? rows : l.u.list->items[i], at, "a row of a list");
      if (r < 0 || (uint64_t)r >= v.u.list->count)
        fail_at(s, ERR_INDEX_RANGE, at, "row %lld is out of range, there are %zu", (long long)r,
                v.u.list->count);
      out[i] = v.u.list->items[r];
    }
    return one ? out[0] : v_list(s, V_LIST, n, out);
  }
  Value *items = value_parts(s, v, &n);
  if (!items || !n)
    fail_at(s, ERR_ITERATE, at, "`pick` takes tensors, lists, and trees of these, not %s",
            value_type_text(s, v));
  for (size_t i = 0; i < n; i++) items[i] = rows_in_code(s, items[i], rows, at);
  return value_like(s, v, items);
}

BUILTIN_FN(bi_pick) {
  Value rows = c->v[1];
  int64_t n, count;
  if (in_code(s)) {
    if (rows.tag == V_RANGE || (rows.tag == V_LIST && !v_is_weak_list(rows)))
      rows = walk_list(s, rows, c->spans[1]);
    return rows_in_code(s, text_elements(s, c->v[0]), rows, c->at);
  }
  Value x = data_source(s, text_elements(s, c->v[0]), c->spans[0], &n);
  if (n < 0)
    fail_at(s, ERR_WANT_TENSOR, c->spans[0], "`pick` takes tensors and lists, not a sequence");
  const Tensor *t = v_tensor_of(rows);
  if (rows.tag == V_INT || (t && !t->rank && dt_int(t->dtype))) {
    int64_t r = want_int(s, rows, c->spans[1], "the row");
    if (r < 0 || r >= n)
      fail_at(s, ERR_INDEX_RANGE, c->spans[1], "row %lld is out of range, there are %lld",
              (long long)r, (long long)n);
    return data_element(s, x, r, c->at);
  }
  const int64_t *at = arg_rows(s, c, n, &count);
  return data_pick(s, x, at, count, c->at);
}
