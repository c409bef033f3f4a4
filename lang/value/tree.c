/* Trees: leaf-by-leaf work on tuples, records, lists and instances (rules 64 to 66).
 *
 * In: trees of one structure. Out: a tree of that structure. An instance counts as the record of
 * its params. Where one of several trees has `none`, the result has `none` without a call.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/eval/model.h"
#include "lang/eval/ops.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

typedef struct Walk {
  Session *s;
  TreeFn f;
  void *ud;
  Span at;
  size_t n;
} Walk;

static _Noreturn void differ(Walk *w, Value a, Value b, const char *path) {
  Session *s = w->s;
  fail_at(s, ERR_TREE, w->at, "the trees differ in structure%s%s: %s and %s", *path ? " at " : "",
          path, value_type_text(s, a), value_type_text(s, b));
}

static bool is_inner(Value v) {
  return v.tag == V_RECORD || v.tag == V_DICT || v.tag == V_TUPLE || v.tag == V_INST ||
         (v.tag == V_LIST && !v.u.list->weak);
}

static Value walk(Walk *w, Value *t, const char *path) {
  stack_check();
  Session *s = w->s;
  Value *c = ARENA_ARRAY(&s->scratch, Value, w->n + 1);
  bool none = false;
  for (size_t i = 0; i < w->n; i++) {
    c[i] = t[i].tag == V_INST ? model_params_tree(s, t[i].u.inst, false) : t[i];
    if (c[i].tag == V_UNKNOWN) return c[i];
    none |= c[i].tag == V_NONE;
  }
  if (none && w->n > 1) return v_none();
  if (!is_inner(c[0])) {
    for (size_t i = 1; i < w->n; i++)
      if (is_inner(c[i])) differ(w, c[0], c[i], path);
    return w->f(s, w->ud, w->n, c, path);
  }
  size_t n, m;
  const Value *first = value_items(c[0], &n);
  for (size_t i = 1; i < w->n; i++)
    if (!value_items(c[i], &m) || c[i].tag != c[0].tag || m != n) differ(w, c[0], c[i], path);
  Value *sub = ARENA_ARRAY(&s->scratch, Value, w->n + 1);
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t k = 0; k < n; k++) {
    sub[0] = first[k];
    for (size_t i = 1; i < w->n; i++) {
      const Value *x = value_counterpart(c[0], k, c[i]);
      if (!x) differ(w, c[0], c[i], path);
      sub[i] = *x;
    }
    items[k] = walk(w, sub, value_part_path(s, path, c[0], k));
  }
  return value_like(s, c[0], items);
}

bool tree_structure(Value v, const char *path) {
  switch ((ValueTag)v.tag) {
  case V_STR:
  case V_UNIT:
  case V_FN:
  case V_BUILTIN:
  case V_DTYPE: return *path != 0;
  default: return false;
  }
}

bool tree_undifferentiated(Value v, const char *path) {
  return v.tag == V_NONE || (v.tag == V_BOOL && *path) || tree_structure(v, path);
}

bool tree_known(Session *s, Value v) {
  stack_check();
  bool known = v.tag != V_UNKNOWN;
  if (v.tag == V_INST) v = model_params_tree(s, v.u.inst, false);
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n && known; i++) known = tree_known(s, items[i]);
  return known;
}

Value tree_map(Session *s, size_t n, Value *trees, TreeFn f, void *ud, Span at) {
  Walk w = {s, f, ud, at, n};
  for (size_t i = 0; i < n; i++) value_bound(s, trees[i], at);
  return walk(&w, trees, "");
}

/* + - * / leafwise between trees, or a tree and a number. */
typedef struct Arith {
  AstOp op;
  Span at;
  Value number;
  int side;
} Arith;

static Value arith_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Arith *a = ud;
  (void)path;
  if (v[0].tag == V_NONE) return v[0];
  if (n == 2) return op_binary(s, a->op, v[0], v[1], a->at, a->at, a->at);
  return a->side ? op_binary(s, a->op, v[0], a->number, a->at, a->at, a->at)
                 : op_binary(s, a->op, a->number, v[0], a->at, a->at, a->at);
}

/* Trees of params hold tensors: a tuple, record or dict of numbers is not such a tree (rule 66). */
static bool has_number(Value v) {
  stack_check();
  size_t n;
  const Value *items = v.tag == V_LIST ? NULL : value_items(v, &n);
  for (size_t i = 0; items && i < n; i++)
    if (v_is_number(items[i]) || items[i].tag == V_STR || has_number(items[i])) return true;
  return false;
}

static bool is_tree(Value v) {
  return v.tag == V_RECORD || v.tag == V_TUPLE || v.tag == V_DICT;
}

Value tree_arith(Session *s, AstOp op, Value a, Value b, Span at, Span left, Span right) {
  bool ta = is_tree(a), tb = is_tree(b);
  if (a.tag == V_NONE || b.tag == V_NONE)
    fail_at(s, ERR_OPERAND, a.tag == V_NONE ? left : right, "`%s` does not work on none",
            ast_op_text(op));
  if (op == AST_MOD && a.tag == V_STR)
    fail_help(s, ERR_OPERAND, left, "a hole holds a value and its format: \"{x:.2f}\"",
              "`%%` does not work on a text");
  if (op != AST_ADD && op != AST_SUB && op != AST_MUL && op != AST_DIV)
    fail_at(s, ERR_OPERAND, ta ? left : right, "`%s` does not work on %s", ast_op_text(op),
            value_type_text(s, ta ? a : b));
  Arith k = {op, at, v_unit(), 0};
  value_bound(s, a, left);
  value_bound(s, b, right);
  if (has_number(a) || has_number(b))
    fail_at(s, ERR_OPERAND, ta ? left : right, "`%s` works on trees of tensors, not on %s",
            ast_op_text(op), value_type_text(s, ta ? a : b));
  if (ta && tb) {
    Value t[2] = {a, b};
    return tree_map(s, 2, t, arith_leaf, &k, at);
  }
  Value other = ta ? b : a;
  if (!v_is_number(other) && !(v_is_tensor(other) && op_type_of(s, other).rank == 0))
    fail_at(s, ERR_OPERAND, at, "a tree goes with a tree or a number, not %s",
            value_type_text(s, other));
  k.number = other;
  k.side = ta;
  Value t = ta ? a : b;
  return tree_map(s, 1, &t, arith_leaf, &k, at);
}
