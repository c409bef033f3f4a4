/* Builtins for the optimizers of stdlib/optim.ckl: state by param while the frozen mask changes
 * (rule 68).
 *
 * In: a tree of state and a tree of params of one structure. The leaf of a frozen param is `none`.
 * The trees are walked here, not by tree_map, because tree_map skips each leaf that is `none` in
 * one of them.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/ops.h"
#include "lang/value/fail.h"

typedef struct Masks {
  Session *s;
  Span at;
  bool merge; /* build the state that fits the params */
  Buf missing;
  size_t differ;
} Masks;

static Value zeros_like(Session *s, Value p, Span at) {
  Type t = op_type_of(s, p);
  return op_broadcast(s, op_as_tensor(s, v_float(0), (DType)t.dtype, at), t.rank, t.dim, at);
}

static Value walk(Masks *m, Value state, Value p, const char *path) {
  stack_check();
  Session *s = m->s;
  if (state.tag == V_UNKNOWN || p.tag == V_UNKNOWN) return state;
  size_t n, k;
  Value *items = value_parts(s, p, &n);
  if (items) {
    bool fits = value_items(state, &k) && state.tag == p.tag && k == n;
    for (size_t i = 0; fits && i < n; i++) fits = value_counterpart(p, i, state) != NULL;
    if (!fits)
      fail_at(s, ERR_TREE, m->at, "the trees differ in structure%s%s", *path ? " at " : "", path);
    for (size_t i = 0; i < n; i++)
      items[i] = walk(m, *value_counterpart(p, i, state), items[i], value_part_path(s, path, p, i));
    return m->merge ? value_like(s, p, items) : state;
  }
  if ((state.tag == V_NONE) != (p.tag == V_NONE)) {
    if (m->differ++ < 8)
      buf_printf(&m->missing, "%s`%s`", m->differ > 1 ? ", " : "",
                 *path ? path : "the tracked value");
    else if (m->differ == 9)
      buf_puts(&m->missing, ", ..");
  }
  if (!m->merge || p.tag == V_NONE) return p;
  return state.tag == V_NONE ? zeros_like(s, p, m->at) : state;
}

BUILTIN_FN(bi_same_leaves) {
  Masks m = {.s = s, .at = c->at};
  buf_init_arena(&m.missing, &s->scratch);
  walk(&m, c->v[0], c->v[1], "");
  if (m.differ)
    fail_help(s, ERR_TREE, c->at,
              "`opt.refresh()` makes state for what trains now and keeps the rest",
              "frozen or unfrozen since the optimizer was made: %s", m.missing.s);
  return v_unit();
}

BUILTIN_FN(bi_fresh_leaves) {
  Masks m = {.s = s, .at = c->at, .merge = true};
  buf_init_arena(&m.missing, &s->scratch);
  return walk(&m, c->v[0], c->v[1], "");
}

/* A leaf that is no param would never change. */
static void want_params(Session *s, Value v, const char *path, Span at) {
  stack_check();
  size_t n;
  const Value *items = v.tag == V_INST || v_is_weak_list(v) ? NULL : value_items(v, &n);
  if (items) {
    for (size_t i = 0; i < n; i++) want_params(s, items[i], value_part_path(s, path, v, i), at);
    return;
  }
  if (v.tag == V_INST || v.tag == V_PARAM) return;
  const char *which = *path ? fail_text(s, "`%s`", path) : "this";
  if (v_is_tensor(v))
    fail_help(
        s, ERR_WANT_MODEL, at, "`let w = track(x)` makes a value that an optimizer can change",
        "an optimizer trains models and tracked tensors; %s is %s", which, value_type_text(s, v));
  fail_at(s, ERR_WANT_MODEL, at, "an optimizer trains models and tracked tensors; %s is %s", which,
          value_type_text(s, v));
}

BUILTIN_FN(bi_trained) {
  if (!in_code(s) && !s->abstract) want_params(s, c->v[0], "", c->at);
  return v_bool(true);
}
