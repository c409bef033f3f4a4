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

static const char *join(Session *s, const char *path, const char *name) {
  return *path ? fail_text(s, "%s.%s", path, name) : name;
}

static Value zeros_like(Session *s, Value p, Span at) {
  Type t = op_type_of(s, p);
  return op_broadcast(s, op_as_tensor(s, v_float(0), (DType)t.dtype, at), t.rank, t.dim, at);
}

static Value walk(Masks *m, Value state, Value p, const char *path) {
  stack_check();
  Session *s = m->s;
  if (state.tag == V_UNKNOWN || p.tag == V_UNKNOWN) return state;
  if (p.tag == V_RECORD) {
    bool fits = state.tag == V_RECORD && state.u.rec->count == p.u.rec->count;
    for (size_t i = 0; fits && i < p.u.rec->count; i++)
      fits = state.u.rec->names[i] == p.u.rec->names[i];
    if (!fits)
      fail_at(s, ERR_TREE, m->at, "the trees differ in structure%s%s", *path ? " at " : "", path);
    Value *items = ARENA_ARRAY(&s->scratch, Value, p.u.rec->count + 1);
    for (size_t i = 0; i < p.u.rec->count; i++)
      items[i] =
          walk(m, state.u.rec->items[i], p.u.rec->items[i], join(s, path, p.u.rec->names[i]));
    return m->merge ? v_record(s, p.u.rec->count, p.u.rec->names, items) : state;
  }
  if (p.tag == V_LIST || p.tag == V_TUPLE) {
    if (state.tag != p.tag || state.u.list->count != p.u.list->count)
      fail_at(s, ERR_TREE, m->at, "the trees differ in structure%s%s", *path ? " at " : "", path);
    Value *items = ARENA_ARRAY(&s->scratch, Value, p.u.list->count + 1);
    for (size_t i = 0; i < p.u.list->count; i++)
      items[i] = walk(m, state.u.list->items[i], p.u.list->items[i],
                      join(s, path, fail_text(s, "%zu", i)));
    return m->merge ? v_list(s, (ValueTag)p.tag, p.u.list->count, items) : state;
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
