/* Builtins of dicts and sets: keys, values, get, merge, remove; what counts, groups and numbers by
 * key.
 *
 * In: dicts, and anything with elements. Out: new values, or, where `Call.own` says so, the dict
 * itself, changed. A set is a dict whose values are ().
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/eval/index.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/walk.h"
#include "lang/value/dict.h"
#include "lang/names/meant.h"
#include "lang/value/fail.h"

static Dict *arg_dict(Session *s, Call *c, int i) {
  const char *help = c->v[i].tag == V_LIST ? foreign_help(s, c->b->name, FOREIGN_CALL) : NULL;
  if (help)
    fail_help(s, ERR_WANT_DICT, c->spans[i], help, "`%s` takes a dict, not %s", c->b->name,
              value_type_text(s, c->v[i]));
  if (c->v[i].tag != V_DICT)
    fail_at(s, ERR_WANT_DICT, c->spans[i], "`%s` takes a dict, not %s", c->b->name,
            value_type_text(s, c->v[i]));
  return c->v[i].u.dict;
}

/* The same, for a walk over its entries. */
static Dict *arg_entries(Session *s, Call *c, int i) {
  Dict *d = arg_dict(s, c, i);
  dict_pack(d);
  return d;
}

static Value arg_key(Session *s, Call *c, int i) {
  return dict_key(s, c->v[i], c->spans[i]);
}

/* Argument i, a dict, to be changed: itself if the assigned place alone has it, else a copy. */
static Value arg_changed(Session *s, Call *c, int i) {
  if (c->own && i == 0) return c->v[0];
  Dict *d = arg_entries(s, c, i);
  return v_dict(s, d->count, d->keys, d->items);
}

BUILTIN_FN(bi_keys) {
  Dict *d = arg_entries(s, c, 0);
  return v_list(s, V_LIST, d->count, d->keys);
}

BUILTIN_FN(bi_values) {
  Dict *d = arg_entries(s, c, 0);
  return v_list(s, V_LIST, d->count, d->items);
}

BUILTIN_FN(bi_get) {
  Dict *d = arg_dict(s, c, 0);
  Value key = arg_key(s, c, 1);
  if (key.tag == V_UNKNOWN) return key;
  const Value *v = dict_find(d, key);
  return v ? *v : c->v[2];
}

BUILTIN_FN(bi_merge) {
  arg_dict(s, c, 0);
  Dict *more = arg_entries(s, c, 1);
  Value v = arg_changed(s, c, 0);
  for (size_t i = 0; i < more->count && v.u.dict != more; i++)
    dict_put(s, v.u.dict, more->keys[i], more->items[i]);
  return v;
}

BUILTIN_FN(bi_remove_key) {
  Dict *d = arg_dict(s, c, 0);
  Value key = arg_key(s, c, 1);
  if (key.tag == V_UNKNOWN) return key;
  dict_need(s, d, key, c->spans[1]);
  Value v = arg_changed(s, c, 0);
  dict_remove(v.u.dict, key);
  return v;
}

/* ---- sets */

BUILTIN_FN(bi_add) {
  arg_dict(s, c, 0);
  Value key = arg_key(s, c, 1);
  if (key.tag == V_UNKNOWN) return key;
  Value v = arg_changed(s, c, 0);
  dict_put(s, v.u.dict, key, v_unit());
  return v;
}

/* `op` 0: keys of a or b; 1: of both; 2: of a alone. Values are those of a, if it has the key. */
BUILTIN_FN(bi_by_keys) {
  Dict *a = arg_entries(s, c, 0), *b = arg_entries(s, c, 1);
  Value v = v_dict_room(s, a->count);
  for (size_t i = 0; i < a->count; i++)
    if (c->b->op == 0 || (dict_find(b, a->keys[i]) != NULL) == (c->b->op == 1))
      dict_put(s, v.u.dict, a->keys[i], a->items[i]);
  for (size_t i = 0; i < b->count && c->b->op == 0; i++)
    if (!dict_find(a, b->keys[i])) dict_put(s, v.u.dict, b->keys[i], b->items[i]);
  return v;
}

/* ---- what walks elements */

BUILTIN_FN(bi_set) {
  Value v = v_dict_room(s, 0), x;
  if (!c->rest_n) return v;
  if (c->rest_n > 1)
    fail_help(s, ERR_ARG_COUNT, c->at, "`set(list(a, b))` has these elements",
              "`set` takes one value, whose elements are the keys");
  Span at = c->rest_spans[0];
  for (Walk w = walk_start(s, c->rest[0], at); walk_next(&w, &x);) {
    Value key = dict_key(s, x, at);
    if (key.tag == V_UNKNOWN) return key;
    dict_put(s, v.u.dict, key, v_unit());
  }
  return v;
}

BUILTIN_FN(bi_tally) {
  Value v = v_dict_room(s, 0), x;
  for (Walk w = walk_start(s, c->v[0], c->spans[0]); walk_next(&w, &x);) {
    Value key = dict_key(s, x, c->spans[0]);
    if (key.tag == V_UNKNOWN) return key;
    Value *n = dict_find(v.u.dict, key);
    if (n)
      n->u.i++;
    else
      dict_put(s, v.u.dict, key, v_int(1));
  }
  return v;
}

/* The number of each element's key, in the order in which keys come first; *names: the keys as a
 * dict from key to number. */
static bool numbers_of(Session *s, Call *c, Value *names, int64_t **number, size_t *count) {
  size_t n = 0, cap = 0;
  int64_t *to = NULL;
  Value x;
  *names = v_dict_room(s, 0);
  for (Walk w = walk_start(s, c->v[0], c->spans[0]); walk_next(&w, &x);) {
    Value key = dict_key(s, x, c->spans[0]);
    if (key.tag == V_UNKNOWN) return false;
    const Value *at = dict_find(names->u.dict, key);
    int64_t k = at ? at->u.i : (int64_t)names->u.dict->count;
    if (!at) dict_put(s, names->u.dict, key, v_int(k));
    VEC_PUSH(&s->scratch, to, n, cap, k);
  }
  *number = to;
  *count = n;
  return true;
}

Value bi_ints(Session *s, size_t n, const int64_t *number, Span at) {
  int64_t dim = (int64_t)n;
  if (s->stage) { /* a constant of the graph */
    Value *v = ARENA_ARRAY(&s->scratch, Value, n + 1), l;
    for (size_t i = 0; i < n; i++) v[i] = v_int(number[i]);
    l = v_list(s, V_LIST, n, v);
    return op_cast(s, l, DT_I64, at);
  }
  Tensor *t = tn_new(&s->mem, DEV_CPU, DT_I64, 1, &dim);
  if (t && n) memcpy(tn_data(t), number, n * sizeof *number);
  return v_tensor(s, t);
}

BUILTIN_FN(bi_codes) {
  Value names, r[2];
  int64_t *number;
  size_t n;
  if (!numbers_of(s, c, &names, &number, &n)) return (Value){.tag = V_UNKNOWN};
  r[0] = bi_ints(s, n, number, c->at);
  r[1] = v_list(s, V_LIST, names.u.dict->count, names.u.dict->keys);
  return v_list(s, V_TUPLE, 2, r);
}

/* The elements of xs at these places: a list, or the rows of a tensor. */
static Value picked(Session *s, Value xs, size_t n, const int64_t *place, Span at) {
  if (xs.tag == V_LIST && !v_is_weak_list(xs)) {
    Value *v = ARENA_ARRAY(&s->scratch, Value, n + 1);
    for (size_t i = 0; i < n; i++) v[i] = xs.u.list->items[place[i]];
    return v_list(s, V_LIST, n, v);
  }
  Value of[2] = {op_as_tensor(s, xs, DT_COUNT, at), bi_ints(s, n, place, at)};
  Attr axis = attr_i(AT_AXIS, 0);
  return op_run(s, OP_TAKE, 2, of, &axis, 1, at);
}

static int64_t size_of(Session *s, Value xs, Span at) {
  if (xs.tag == V_LIST && !v_is_weak_list(xs)) return (int64_t)xs.u.list->count;
  if (!v_is_tensor(xs) && !v_is_weak_list(xs))
    fail_at(s, ERR_WANT_LIST, at, "`group` takes a list or a tensor of elements, not %s",
            value_type_text(s, xs));
  Type t = op_type_of(s, op_as_tensor(s, xs, DT_COUNT, at));
  int64_t n = 0;
  if (!t.rank) fail_at(s, ERR_RANK, at, "a rank-0 tensor has no elements to group");
  unit_need_const(s, t.dim[0], at, "the number of elements", &n);
  return n;
}

BUILTIN_FN(bi_group) {
  Value names, xs = c->v[1];
  int64_t *number;
  size_t n;
  if (xs.tag == V_UNKNOWN || !numbers_of(s, c, &names, &number, &n))
    return (Value){.tag = V_UNKNOWN};
  int64_t size = size_of(s, xs, c->spans[1]);
  if (size != (int64_t)n)
    fail_at(s, ERR_LEADING, c->at, "there are %zu keys for %lld elements", n, (long long)size);
  size_t groups = names.u.dict->count;
  size_t *from =
      ARENA_ARRAY(&s->scratch, size_t, groups + 2); /* a counting sort, which is stable */
  int64_t *place = ARENA_ARRAY(&s->scratch, int64_t, n + 1);
  for (size_t i = 0; i <= groups + 1; i++) from[i] = 0;
  for (size_t i = 0; i < n; i++) from[number[i] + 2]++;
  for (size_t i = 2; i <= groups + 1; i++) from[i] += from[i - 1];
  for (size_t i = 0; i < n; i++) place[from[number[i] + 1]++] = (int64_t)i;
  Value *items = ARENA_ARRAY(&s->scratch, Value, groups + 1);
  for (size_t g = 0; g < groups; g++)
    items[g] = picked(s, xs, from[g + 1] - from[g], place + from[g], c->spans[1]);
  return v_dict(s, groups, names.u.dict->keys, items);
}
