/* Builtins for the optimizers of stdlib/optim.ckl: state by param while the frozen mask changes
 * (rule 68), and settings of groups of params.
 *
 * In: a tree of state and a tree of params of one structure. The leaf of a frozen param is `none`.
 * The trees are walked here, not by tree_map, because tree_map skips each leaf that is `none` in
 * one of them. Groups are a dict from globs over paths to records of settings; a frozen param has
 * settings, too, since it may be trained later.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/model.h"
#include "lang/eval/ops.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"

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

/* Each param that trains has this rank. */
static void want_rank(Session *s, Value v, int64_t rank, const char *path, Span at) {
  stack_check();
  if (v.tag == V_INST) v = model_params_tree(s, v.u.inst, false);
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; items && i < n; i++)
    want_rank(s, items[i], rank, value_part_path(s, path, v, i), at);
  if (items || v.tag != V_PARAM || v.u.p->frozen || v.u.p->t->rank == rank) return;
  fail_help(s, ERR_SHAPE_RANK, at,
            "freeze the others before, or give a dict of some: [\"w\": net.w]; another optimizer "
            "can train the rest",
            "this optimizer trains tensors of rank %lld alone, %s is %s", (long long)rank,
            *path ? fail_text(s, "`%s`", path) : "this", value_type_text(s, v));
}

BUILTIN_FN(bi_trained) {
  if (in_code(s) || s->abstract) return v_bool(true);
  want_params(s, c->v[0], "", c->at);
  if (c->v[1].tag != V_NONE)
    want_rank(s, c->v[0], want_int(s, c->v[1], c->at, "a rank"), "", c->at);
  return v_bool(true);
}

/* ---- groups */

typedef struct Groups {
  Session *s;
  size_t n;
  const char **glob;
  Value *of; /* the setting of each group; unit: it has none */
  bool *met; /* whether a param is in it */
  Value otherwise;
} Groups;

/* The setting `name` of the record `r` of the group `glob`, a number that is at least 0. */
static Value setting(Session *s, const char *glob, Value r, const char *name, Span at) {
  if (r.tag != V_RECORD)
    fail_help(s, ERR_TYPE_MISMATCH, at, "write `groups = [\"**.b\": (lr = 1e-4, decay = 0.0)]`",
              "the settings of the group `%s` are a record, this is %s", glob,
              value_type_text(s, r));
  Value found = v_unit();
  for (size_t i = 0; i < r.u.rec->count; i++) {
    const char *field = r.u.rec->names[i];
    if (strcmp(field, "lr") && strcmp(field, "decay"))
      fail_at(s, ERR_NO_FIELD, at, "the group `%s` has no setting `%s`, but `lr` and `decay`", glob,
              field);
    double x = want_float(s, r.u.rec->items[i], at, "a setting of a group");
    if (!(x >= 0))
      fail_at(s, ERR_VALUE, at, "`%s` of the group `%s` is at least 0, this is %g", field, glob, x);
    if (!strcmp(field, name)) found = v_float(x);
  }
  return found;
}

static Value settings(Groups *g, Value v, const char *path) {
  stack_check();
  Session *s = g->s;
  size_t n;
  if (v.tag == V_INST) v = model_params_tree(s, v.u.inst, false);
  Value *items = v_is_tensor(v) ? NULL : value_parts(s, v, &n);
  if (items) {
    for (size_t i = 0; i < n; i++) items[i] = settings(g, items[i], value_part_path(s, path, v, i));
    return value_like(s, v, items);
  }
  Value found = g->otherwise;
  for (size_t i = 0; i < g->n; i++) {
    if (!walk_path_fits(s, g->glob[i], path)) continue;
    g->met[i] = true;
    if (g->of[i].tag != V_UNIT) found = g->of[i];
  }
  return found;
}

BUILTIN_FN(bi_settings) {
  Value groups = c->v[1];
  if (c->v[0].tag == V_UNKNOWN || groups.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  if (groups.tag != V_DICT)
    fail_help(s, ERR_WANT_DICT, c->at, "write `groups = [\"**.b\": (decay = 0.0)]`",
              "`groups` is a dict from globs over paths to settings, this is %s",
              value_type_text(s, groups));
  const char *name = want_str(s, c->v[2], c->at, "the name of the setting");
  Groups g = {.s = s, .otherwise = c->v[3]};
  const Value *items = value_items(groups, &g.n);
  g.glob = ARENA_ARRAY(&s->scratch, const char *, g.n + 1);
  g.of = ARENA_ARRAY(&s->scratch, Value, g.n + 1);
  g.met = ARENA_ARRAY(&s->scratch, bool, g.n + 1);
  for (size_t i = 0; i < g.n; i++) {
    g.glob[i] = want_str(s, groups.u.dict->keys[i], c->at, "the glob of a group");
    g.of[i] = setting(s, g.glob[i], items[i], name, c->at);
  }
  Value tree = settings(&g, c->v[0], "");
  for (size_t i = 0; i < g.n; i++)
    if (!g.met[i])
      fail_help(s, ERR_GLOB, c->at,
                "paths(..) of what is trained shows the paths; `*` is one part, `**` any number",
                "no param matches the group `%s`", g.glob[i]);
  return tree;
}
