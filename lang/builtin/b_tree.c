/* Builtins on trees: map, each, fold, paths, update, ravel.
 *
 * In: trees of tensors, params, models. Out: trees, numbers, one flat tensor.
 */
#include <string.h>

#include "graph/build.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/model.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/shapes.h"
#include "lang/eval/state.h"
#include "lang/eval/want.h"
#include "lang/names/module.h"
#include "lang/eval/steps.h"
#include "lang/names/meant.h"
#include "lang/value/columns.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"
#include "lang/value/tree.h"

typedef struct MapJob {
  Value f;
  Span at;
  bool path;
  Value acc;
} MapJob;

static void want_leaf(Session *s, Value v, Span at) {
  if (v.tag == V_STR || v.tag == V_FN || v.tag == V_BUILTIN || v.tag == V_MODEL ||
      v.tag == V_MODULE || v.tag == V_RANGE)
    fail_help(s, ERR_TREE_LEAF, at,
              "a comprehension goes through a list or range: `[f(x) for x in xs]`",
              "a tree has tensors and numbers as leaves, not %s", value_type_text(s, v));
}

static Value map_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  MapJob *m = ud;
  bool texts = true;
  for (size_t i = 0; i < n; i++) texts = texts && tree_structure(v[i], path);
  if (texts || v[0].tag == V_NONE) return v[0];
  want_leaf(s, v[0], m->at);
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 2);
  size_t k = 0;
  if (m->path) args[k++] = v_str(s, path, strlen(path));
  for (size_t i = 0; i < n; i++) args[k++] = v[i];
  Value r = call_simple(s, m->f, k, args, m->at);
  return v_is_weak_list(r) ? op_as_tensor(s, r, DT_COUNT, m->at) : r;
}

/* xs.map(f) is map(xs, f) (rule 9), but rule 65 puts the function first. */
static void want_function_first(Session *s, Call *c) {
  ValueTag f = (ValueTag)c->v[0].tag, x = (ValueTag)c->v[1].tag;
  if ((x == V_FN || x == V_BUILTIN || x == V_DTYPE) && f != V_FN && f != V_BUILTIN &&
      f != V_DTYPE && f != V_INST && f != V_UNKNOWN)
    fail_help(s, ERR_NOT_CALLABLE, c->spans[0],
              fail_text(s, "`%s(f, xs)`: the function stands first", c->b->name),
              "%s is not a function", value_type_text(s, c->v[0]));
}

/* Lists of texts, equally many in each, have no leaves: their elements are gone through. */
static bool texts_alone(size_t n, const Value *trees) {
  bool all = true;
  for (size_t i = 0; all && i < n; i++)
    all = columns_texts(trees[i]) && trees[i].u.list->count == trees[0].u.list->count;
  return all;
}

static Value map_texts(const MapJob *m, Session *s, size_t n, const Value *lists) {
  size_t count = lists[0].u.list->count;
  Value *out = ARENA_ARRAY(&s->scratch, Value, count),
        *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < count; i++) {
    size_t k = 0;
    count_step(s, m->at);
    if (m->path) {
      const char *path = fail_text(s, "%zu", i);
      args[k++] = v_str(s, path, strlen(path));
    }
    for (size_t t = 0; t < n; t++) args[k++] = lists[t].u.list->items[i];
    out[i] = call_simple(s, m->f, k, args, m->at);
  }
  return v_list(s, V_LIST, count, out);
}

static Value map_trees(Session *s, Call *c, bool effects) {
  Value *trees = ARENA_ARRAY(&s->scratch, Value, c->rest_n + 2);
  trees[0] = c->v[1];
  for (size_t i = 0; i < c->rest_n; i++) trees[1 + i] = c->rest[i];
  MapJob m = {.f = c->v[0], .at = c->at, .path = want_bool(s, c->v[3], c->spans[3], "`path`")};
  Value r = texts_alone(c->rest_n + 1, trees)
                ? map_texts(&m, s, c->rest_n + 1, trees)
                : tree_map(s, c->rest_n + 1, trees, map_leaf, &m, c->at);
  return effects ? v_unit() : r;
}

BUILTIN_FN(bi_map) {
  want_function_first(s, c);
  if (c->v[1].tag == V_SEQ || (c->v[1].tag == V_RANGE && !in_code(s))) {
    if (c->rest_n) fail_at(s, ERR_ARG_COUNT, c->at, "`map` over a sequence takes one");
    return seq_map(s, c->v[1], c->v[0], c->at);
  }
  return map_trees(s, c, false);
}
BUILTIN_FN(bi_each) {
  want_function_first(s, c);
  return map_trees(s, c, true);
}

static Value fold_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  MapJob *m = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  want_leaf(s, v[0], m->at);
  Value args[2] = {m->acc, v[0]};
  m->acc = call_simple(s, m->f, 2, args, m->at);
  return v[0];
}

BUILTIN_FN(bi_fold) {
  MapJob m = {.f = c->v[0], .at = c->at, .acc = c->v[1]};
  bool texts = texts_alone(1, &c->v[2]);
  for (size_t i = 0; texts && i < c->v[2].u.list->count; i++) {
    Value args[2] = {m.acc, c->v[2].u.list->items[i]};
    count_step(s, c->at);
    m.acc = call_simple(s, m.f, 2, args, c->at);
  }
  if (!texts) tree_map(s, 1, &c->v[2], fold_leaf, &m, c->at);
  return m.acc;
}

typedef struct Texts {
  Value *items;
  size_t count, cap;
} Texts;

static Value path_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Texts *t = ud;
  (void)n;
  VEC_PUSH(&s->scratch, t->items, t->count, t->cap, v_str(s, path, strlen(path)));
  return v[0];
}

/* `check`: as if each part that it does not know were a tensor. */
static void made_up_paths(Session *s, Texts *t, Value v, const char *path) {
  stack_check();
  if (v.tag == V_INST) v = model_params_tree(s, v.u.inst, false);
  size_t n;
  const Value *items = value_items(v, &n);
  if (!items) path_leaf(s, t, 1, &v, path);
  for (size_t i = 0; items && i < n; i++)
    made_up_paths(s, t, items[i], value_part_path(s, path, v, i));
}

BUILTIN_FN(bi_paths) {
  Texts t = {0};
  if (c->v[0].tag == V_UNKNOWN) return c->v[0];
  if (s->abstract && !tree_known(s, c->v[0]))
    made_up_paths(s, &t, c->v[0], "");
  else
    tree_map(s, 1, &c->v[0], path_leaf, &t, c->at);
  return v_list(s, V_LIST, t.count, t.items);
}

static Value update_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Span at = *(Span *)ud;
  (void)n;
  (void)path;
  if (v[0].tag == V_NONE || v[1].tag == V_NONE || v[0].tag == V_UNKNOWN || v[1].tag == V_UNKNOWN)
    return v[0];
  if (v[0].tag == V_PARAM) {
    param_write(s, v[0].u.p, v[1], at);
    return v[0];
  }
  bool checks = s->abstract || (s->stage && s->stage->unit && s->stage->unit->check);
  if (v[0].tag == V_NODE && checks) { /* it may be a param: shapes are compared */
    Type a = op_type_of(s, v[0]),
         b = op_type_of(s, op_as_tensor(s, v[1], (DType)op_type_of(s, v[0]).dtype, at));
    bool ok = a.dtype == b.dtype && a.rank == b.rank;
    for (int i = 0; ok && i < a.rank; i++)
      ok = dim_compare(op_dims_of(s), a.dim[i], b.dim[i]) != DIM_DIFFERENT;
    if (!ok)
      fail_at(s, ERR_STATE_TYPE, at, "a param is %s and stays so, this is %s",
              value_type_text(s, v[0]), value_type_text(s, v[1]));
    return v[0];
  }
  fail_help(s, ERR_WANT_MODEL, at, foreign_help(s, "update", FOREIGN_CALL),
            "`update` writes params; this is %s", value_type_text(s, v[0]));
}

/* In script a leaf may be a param itself (rule 59), so all are read before any is written. */
static Value present_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n, (void)path;
  return v[0].tag == V_PARAM ? v_tensor(s, tn_ref(op_tensor_of(s, v[0], *(Span *)ud))) : v[0];
}

/* Whether a part of v is a param, or may be one. */
static bool has_param(Value v) {
  stack_check();
  if (v.tag == V_PARAM || v.tag == V_INST || v.tag == V_NODE || v.tag == V_UNKNOWN) return true;
  size_t n = 0;
  bool has = false;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; items && i < n && !has; i++) has = has_param(items[i]);
  return has;
}

BUILTIN_FN(bi_update) {
  static const char *const names[] = {"net", "tree"};
  Node *a[2];
  arg_raw(s, c, a, 2, names);
  if (!a[0] || !a[1])
    fail_help(s, ERR_ARG_COUNT, c->at, "update(net, tree)", "`update` takes a model and a tree");
  Value t[2] = {c->n ? c->v[0] : arg_raw_ref(s, a[0]), v_unit()};
  t[1] = eval_expr(s, a[1]);
  if (t[0].tag == V_UNKNOWN || t[1].tag == V_UNKNOWN) return v_unit();
  if (t[0].tag == V_DICT && !has_param(t[0]))
    fail_help(s, ERR_WANT_MODEL, c->at, foreign_help(s, "update", FOREIGN_CALL),
              "`update` writes params; this is %s", value_type_text(s, t[0]));
  if (!s->stage) t[1] = tree_map(s, 1, &t[1], present_leaf, &c->at, c->at);
  tree_map(s, 2, t, update_leaf, &c->at, c->at);
  return v_unit();
}

/* ---- ravel */

static Value ravel_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Texts *t = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Value x = op_as_tensor(s, v[0], DT_COUNT, (Span){0});
  Type ty = op_type_of(s, x);
  Dim d = dim_product(op_dims_of(s), ty.rank, ty.dim);
  x = op_reshape(s, x, 1, &d, (Span){0});
  VEC_PUSH(&s->scratch, t->items, t->count, t->cap, x);
  return v[0];
}

BUILTIN_FN(bi_ravel) {
  Texts t = {0};
  tree_map(s, 1, &c->v[0], ravel_leaf, &t, c->at);
  if (!t.count) fail_at(s, ERR_TREE, c->at, "the tree has no leaves");
  for (size_t i = 1; i < t.count; i++)
    if (op_type_of(s, t.items[i]).dtype != op_type_of(s, t.items[0]).dtype)
      fail_at(s, ERR_DTYPE_MIX, c->at, "`ravel` needs leaves of one dtype: %s and %s",
              value_type_text(s, t.items[0]), value_type_text(s, t.items[i]));
  return t.count == 1 ? t.items[0] : op_concat(s, t.count, t.items, 0, c->at);
}

typedef struct Unravel {
  Value v;
  Dim at;
  Span span;
} Unravel;

static Value unravel_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Unravel *u = ud;
  (void)n;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Type t = op_type_of(s, v[0]);
  DimTab *dt = op_dims_of(s);
  Dim len = dim_product(dt, t.rank, t.dim);
  int64_t st = u->at, ln = len, sp = 1;
  Attr a[3] = {attr_dims(AT_STARTS, 1, &st), attr_dims(AT_LENS, 1, &ln),
               attr_ints(AT_STEPS, 1, &sp)};
  u->at = dim_add(dt, u->at, len);
  return op_reshape(s, op_run(s, OP_SLICE, 1, &u->v, a, 3, u->span), t.rank, t.dim, u->span);
}

BUILTIN_FN(bi_unravel) {
  Value v = arg_tensor(s, c, 0);
  if (op_type_of(s, v).rank != 1)
    fail_at(s, ERR_RANK, c->spans[0], "`unravel` takes a 1-d tensor, this is %s",
            value_type_text(s, v));
  Unravel u = {v, dim_const(op_dims_of(s), 0), c->at};
  Value r = tree_map(s, 1, &c->v[1], unravel_leaf, &u, c->at);
  if (dim_compare(op_dims_of(s), u.at, op_type_of(s, v).dim[0]) == DIM_DIFFERENT)
    fail_at(s, ERR_TREE, c->at, "the vector and the tree have different numbers of elements");
  return r;
}
