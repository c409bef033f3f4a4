/* The walk over params and buffers by path.
 *
 * In: an instance, or a tree of instances. Out: a call per slot, in the order of declaration.
 * Instances and params seen before are in a hash set of addresses. Invariant: values cannot be
 * cyclic (rule 55 and value semantics), so the walk ends; its depth is bounded all the same,
 * because lists can be nested without limit.
 */
#include <string.h>

#include "lang/value/fail.h"
#include "lang/value/state_walk.h"

enum { WALK_DEEP = 256 };

typedef struct Walker {
  Session *s;
  SlotFn slot; /* one of the two is set */
  LeafFn leaf;
  void *ud;
  const void **seen;
  size_t count, cap;
} Walker;

static size_t place_of(const Walker *w, const void *p) {
  size_t mask = w->cap - 1, i = ((uintptr_t)p >> 4) * (size_t)UINT64_C(0x9e3779b97f4a7c15);
  for (i = (i ^ (i >> 29)) & mask; w->seen[i] && w->seen[i] != p; i = (i + 1) & mask) continue;
  return i;
}

static bool first_time(Walker *w, const void *p) {
  if (2 * w->count >= w->cap) {
    const void **old = w->seen;
    size_t n = w->cap;
    w->cap = n ? 2 * n : 64;
    w->seen = ARENA_ARRAY(&w->s->scratch, const void *, w->cap);
    for (size_t i = 0; i < n; i++)
      if (old[i]) w->seen[place_of(w, old[i])] = old[i];
  }
  size_t i = place_of(w, p);
  if (w->seen[i]) return false;
  w->seen[i] = p;
  w->count++;
  return true;
}

static const char *by_name(Session *s, const char *path, Name name) {
  return *path ? fail_text(s, "%s.%s", path, name) : name;
}

static void check_depth(Session *s, int depth) {
  if (depth > WALK_DEEP)
    fail_at(s, ERR_DEPTH, s->running, "the value is nested more than %d deep", WALK_DEEP);
}

/* Calls w->leaf for each leaf of the tree in a buffer. */
static void buffer(Walker *w, Value v, const char *path, Inst *owner, Field *f, int depth) {
  stack_check();
  Session *s = w->s;
  check_depth(s, depth);
  size_t n;
  const Value *items = value_items(v, &n);
  if (!items) w->leaf(s, w->ud, path, owner, f, v);
  for (size_t i = 0; i < n; i++)
    buffer(w, items[i], value_part_path(s, path, v, i), owner, f, depth + 1);
}

static void walk(Walker *w, Value v, const char *path, bool child, int depth) {
  stack_check();
  Session *s = w->s;
  check_depth(s, depth);
  switch ((ValueTag)v.tag) {
  case V_INST: {
    Inst *inst = v.u.inst;
    if (!first_time(w, inst)) return;
    for (size_t k = 0; k < inst->count; k++) {
      Field *f = &inst->fields[k];
      const char *p = by_name(s, path, f->name);
      switch (f->kind) {
      case FIELD_PARAM:
        if (f->v.tag != V_PARAM || !first_time(w, f->v.u.p)) break;
        if (w->slot)
          w->slot(s, w->ud, p, inst, f, f->v.u.p);
        else
          w->leaf(s, w->ud, p, inst, f, f->v);
        break;
      case FIELD_BUFFER:
        if (w->slot)
          w->slot(s, w->ud, p, inst, f, NULL);
        else
          buffer(w, f->v, p, inst, f, depth + 1);
        break;
      case FIELD_LET: walk(w, f->v, p, true, depth + 1); break;
      case FIELD_ARG: break;
      }
    }
    break;
  }
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n;
    const Value *items = value_items(v, &n);
    if (v_is_weak_list(v)) { /* a weak tensor: one leaf */
      if (w->leaf && !child) w->leaf(s, w->ud, path, NULL, NULL, v);
      break;
    }
    for (size_t i = 0; i < n; i++)
      walk(w, items[i], value_part_path(s, path, v, i), child, depth + 1);
    break;
  }
  case V_PARAM:
    if (child || !first_time(w, v.u.p)) break;
    if (w->slot)
      w->slot(s, w->ud, path, NULL, NULL, v.u.p);
    else
      w->leaf(s, w->ud, path, NULL, NULL, v);
    break;
  default:
    if (w->leaf && !child) w->leaf(s, w->ud, path, NULL, NULL, v);
  }
}

void walk_slots(Session *s, Value root, SlotFn fn, void *ud) {
  value_bound(s, root, s->running);
  Walker w = {.s = s, .slot = fn, .ud = ud};
  walk(&w, root, "", false, 0);
}

void walk_leaves(Session *s, Value root, LeafFn fn, void *ud) {
  value_bound(s, root, s->running);
  Walker w = {.s = s, .leaf = fn, .ud = ud};
  walk(&w, root, "", false, 0);
}

bool walk_path_fits(Session *s, const char *glob, const char *path) {
  size_t n = strlen(glob);
  bool below = n && !strncmp(path, glob, n) && (path[n] == '.' || path[n] == '[');
  return below || str_glob(glob, path) || str_glob(fail_text(s, "%s.**", glob), path);
}
