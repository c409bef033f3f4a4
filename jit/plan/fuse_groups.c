/* From joined nodes to groups: which values leave them, which they compute for themselves, and the
 * order in which they run.
 *
 * In: parts of fuse.c. Out: groups. What a group reads and lies in no memory is added to it: chains
 * that every reader computes, and cheap values of another strip or contraction that are made again
 * of what lies in memory. */
#include <stdlib.h>

#include "graph/op.h"
#include "jit/lower/lower_op.h"
#include "jit/plan/fuse_impl.h"

enum { REMADE_COST = 8 }; /* cost of a value recomputed instead of read from memory */

/* ---- groups */
/* Adds the chains that the group computes for itself. */
static void add_clones(Fuse *f, Part *p) {
  for (uint32_t i = 0; i < p->count; i++) {
    const NodeInfo *x = &f->n[p->nodes[i]];
    for (uint32_t k = 0; k < node_at(f, p->nodes[i])->operand_count; k++) {
      uint32_t from = x->edges[k].from;
      bool have = from == NOBODY || f->n[from].part != NOBODY;
      for (uint32_t q = 0; q < p->count && !have; q++) have = p->nodes[q] == from;
      if (!have) VEC_PUSH(f->a, p->nodes, p->count, p->cap, from);
    }
  }
}

/* The reason why the value of a node ends its group. */
static const char *reason_of(const Fuse *f, const Part *p, uint32_t node) {
  const NodeInfo *x = &f->n[node];
  if (x->leaves) return "the value leaves the function";
  for (uint32_t i = 0; i < x->reader_count; i++) {
    uint32_t reader = x->reader[i];
    if (f->n[reader].part == x->part) continue;
    const char *op = op_info[node_at(f, reader)->op].text;
    GroupKind to = group_kind((OpCode)node_at(f, reader)->op);
    Way way = WAY_SAME;
    for (uint32_t k = 0; k < node_at(f, reader)->operand_count; k++) {
      if (f->n[reader].edges[k].from == node) way = (Way)f->n[reader].edges[k].way;
    }
    const char *what = to == GROUP_DOT || to == GROUP_CONV       ? "reads it many times"
                       : to != GROUP_POINT && to != GROUP_REDUCE ? "reads memory"
                       : p->kind == GROUP_DOT || p->kind == GROUP_CONV
                           ? "needs other elements than the one at hand"
                       : way == WAY_MANY || way == WAY_ROW ? "repeats it"
                       : way != WAY_SAME                   ? "reads it in another order"
                       : x->reader_count > 1
                           ? NULL
                           : "goes over another space, or over what is made after this";
    return what ? arena_printf(f->keep, "`%s` %s", op, what) : "several groups read it";
  }
  return "nothing follows";
}

/* The strip that recomputes this value of another strip or contraction, from values that lie in
 * memory. It is the only group that reads the value. NOBODY: there is none. */
static uint32_t remade_by(const Fuse *f, uint32_t node) {
  stack_check();
  const NodeInfo *x = &f->n[node];
  const GNode *n = node_at(f, node);
  uint32_t by = NOBODY, kind = x->part == NOBODY ? GROUP_POINT : f->parts[x->part].kind;
  if ((kind != GROUP_STRIP && kind != GROUP_DOT) || x->leaves || x->inner ||
      group_kind((OpCode)n->op) != GROUP_POINT || op_info[n->op].cost > REMADE_COST ||
      (op_info[n->op].traits & T_FAIL) || n->result_count != 1)
    return NOBODY;
  for (uint32_t i = 0; i < x->reader_count; i++) {
    uint32_t part = f->n[x->reader[i]].part;
    if (part == x->part) continue;
    if (part == NOBODY || (by != NOBODY && part != by)) return NOBODY;
    by = part;
  }
  if (by == NOBODY || f->parts[by].kind != GROUP_STRIP) return NOBODY;
  for (uint32_t k = 0; k < n->operand_count; k++) {
    uint32_t from = x->edges[k].from;
    if (from == NOBODY) continue;
    bool there = f->n[from].part != x->part || f->n[from].leaves; /* it lies in memory */
    for (uint32_t i = 0; i < f->n[from].reader_count && !there; i++)
      there = f->n[f->n[from].reader[i]].part != x->part;
    if (!there || f->n[from].part == NOBODY || f->n[from].inner || remade_by(f, from) != NOBODY)
      return NOBODY;
  }
  return by;
}

/* Whether a value of group `part` goes to memory. */
static bool is_out(const Fuse *f, uint32_t part, uint32_t node) {
  const NodeInfo *x = &f->n[node];
  if (x->leaves || !x->reader_count) return true;
  if (remade_by(f, node) != NOBODY) return false;
  for (uint32_t i = 0; i < x->reader_count; i++) {
    if (f->n[x->reader[i]].part != part) return true;
  }
  return false;
}

static void add_remade(Fuse *f, uint32_t part) {
  Part *p = &f->parts[part];
  for (uint32_t i = 0, n = p->count; i < n && p->kind == GROUP_STRIP; i++) {
    const NodeInfo *x = &f->n[p->nodes[i]];
    if (x->part != part) continue;
    for (uint32_t k = 0; k < node_at(f, p->nodes[i])->operand_count; k++) {
      uint32_t from = x->edges[k].from;
      bool have = from == NOBODY || f->n[from].part == part || remade_by(f, from) != part;
      for (uint32_t q = 0; q < p->count && !have; q++) have = p->nodes[q] == from;
      if (!have) VEC_PUSH(f->a, p->nodes, p->count, p->cap, from);
    }
  }
}

static Group finish(Fuse *f, uint32_t part) {
  Part *p = &f->parts[part];
  Group x = {.kind = p->kind, .root = p->anchor != NOBODY ? p->anchor : p->hi};
  add_clones(f, p);
  add_remade(f, part);
  qsort(p->nodes, p->count, sizeof *p->nodes, fuse_by_number);
  x.nodes = ARENA_ARRAY(f->keep, uint32_t, p->count + 1);
  x.outs = ARENA_ARRAY(f->keep, Val, 2 * p->count + 1);
  int reduces = 0;
  bool more = false; /* an out is no reduction */
  for (uint32_t i = 0; i < p->count; i++) {
    uint32_t node = p->nodes[i];
    const GNode *n = node_at(f, node);
    bool reduce = group_kind((OpCode)n->op) == GROUP_REDUCE;
    reduces += reduce;
    if (!low_pulled(f->g, node)) x.nodes[x.node_count++] = node;
    if (f->n[node].part != part || !is_out(f, part, node)) continue;
    if (!x.reason) x.reason = reason_of(f, p, node);
    more |= !reduce;
    if (n->result_count > 2)
      x.outs = arena_grow(f->keep, x.outs, (2 * p->count + 1) * sizeof(Val),
                          (n->result_count + 1u) * sizeof(Val));
    Val of;
    Val user = {f->user[node], 0};
    if (f->n[node].right && f->uses[node] == 1 && low_transposed(f->g, user, &of)) {
      x.outs[x.out_count++] = (Val){f->user[node], 0}; /* the view that all readers use */
      continue;
    }
    for (uint32_t r = 0; r < n->result_count; r++) {
      if (f->g->types[n->result0 + r].kind != TK_TOKEN) x.outs[x.out_count++] = (Val){node, r};
    }
  }
  if ((x.kind == GROUP_ROWS && reduces == 1 && !more) || (x.kind == GROUP_COLUMNS && reduces == 1))
    x.kind = GROUP_REDUCE;
  return x;
}

/* ---- order */
enum { PART_WAITS, PART_OPEN, PART_DONE };

/* Pushes a part that is not done. True if it was pushed; also for one that waits for this part. */
static bool visit_need(Fuse *f, uint32_t part) {
  if (part == f->at || f->state[part] == PART_DONE) return false;
  if (f->state[part] == PART_OPEN) f->goal = part;
  VEC_PUSH(f->a, f->stack, f->stack_count, f->stack_cap, part);
  return true;
}

/* Whether part f->at needs a part that is not done, which is on the stack then. */
static bool needs_more(Fuse *f) {
  const Part *p = &f->parts[f->at];
  for (uint32_t i = 0; i < p->count; i++) {
    if (fuse_sources(f, p->nodes[i], visit_need)) return true;
  }
  if (p->anchor == NOBODY || !fuse_in_order(f->g, p->anchor)) return false;
  for (uint32_t i = 0; i < f->part_count; i++) {
    const Part *q = &f->parts[i];
    if (!q->dead && q->fails && q->lo < p->lo && visit_need(f, i)) return true;
  }
  return false;
}

typedef struct Visit {
  uint32_t part, hi;
} Visit;

static int by_last(const void *a, const void *b) {
  const Visit *x = a, *y = b;
  if (x->hi != y->hi) return x->hi < y->hi ? -1 : 1;
  return x->part < y->part ? -1 : x->part > y->part;
}

/* Orders the groups by their last nodes, each after the groups that it reads. So values that a
 * backward recomputes come right before their first reader. */
bool fuse_put_out(Fuse *f, Groups *out) {
  Visit *visit = ARENA_ARRAY(f->a, Visit, f->part_count + 1);
  f->state = ARENA_ARRAY(f->a, uint8_t, f->part_count + 1);
  Group *group = ARENA_ARRAY(f->a, Group, f->part_count + 1);
  size_t n = 0;
  for (uint32_t i = 0; i < f->part_count; i++) {
    if (f->parts[i].dead) continue;
    visit[n++] = (Visit){i, f->parts[i].hi};
    group[i] = finish(f, i);
  }
  qsort(visit, n, sizeof *visit, by_last);
  f->goal = NOBODY;
  for (size_t i = 0; i < n; i++) {
    f->stack_count = 0;
    f->at = NOBODY;
    visit_need(f, visit[i].part);
    while (f->stack_count && f->goal == NOBODY) {
      f->at = f->stack[f->stack_count - 1];
      f->state[f->at] = PART_OPEN;
      if (needs_more(f)) continue;
      f->state[f->at] = PART_DONE;
      f->stack_count--;
      VEC_PUSH(f->a, out->items, out->count, out->cap, group[f->at]);
    }
  }
  return f->goal == NOBODY;
}
