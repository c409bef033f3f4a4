/* Tests the laws of plans if Mem.check is set: no value is read before it is written or after it is
 * freed, values that leave stay to the end, and no two values share bytes while both are alive.
 *
 * In: a plan, and places in the arena for one set of sizes. Out: nothing, or a throw by mem_bug
 * that names the step. The steps are walked as exec.c does, and the writes of each are recorded.
 * The test trusts only the ends of the lifetimes in the plan. Cost: linear in reads, and quadratic
 * in the values alive at once.
 */
#include <stdlib.h>

#include "jit/plan/plan.h"

typedef struct Walk {
  const Plan *p;
  Mem *mem;
  bool *slot, *result, *held; /* written */
  uint32_t *drop;             /* per input: the step after which it may be gone */
  uint32_t *store;            /* per input: the step before which it may be overwritten */
  uint32_t *make;             /* per result: the step before which it is made */
  uint32_t *copied;           /* per slot: the step before which it is not written */
} Walk;

static _Noreturn void broken(const Walk *w, Val v, uint32_t step, const char *what) {
  const Graph *g = w->p->g;
  mem_bug(w->mem, "plan of `%s`: step %d, value %u.%u (`%s`) %s", g->name ? g->name : "?",
          step == UINT32_MAX ? -1 : (int)step, v.node, v.res, op_info[g->nodes[v.node].op].text,
          what);
}

static bool written(const Walk *w, Place at) {
  switch ((PlaceKind)at.kind) {
  case PLACE_NONE: return false;
  case PLACE_INPUT: return true;
  case PLACE_RESULT: return w->result[at.index];
  case PLACE_ARENA: return w->slot[at.index];
  case PLACE_HELD: return w->held[at.index];
  }
  return false;
}

/* The memory of v is there in this step; UINT32_MAX: after the last one. */
static void alive(const Walk *w, Place at, Val v, uint32_t step) {
  const Plan *p = w->p;
  bool end = step == UINT32_MAX;
  switch ((PlaceKind)at.kind) {
  case PLACE_NONE: broken(w, v, step, "has no place");
  case PLACE_INPUT:
    if (step > w->drop[at.index]) broken(w, v, step, "is an input that is gone");
    if (w->store[at.index] != UINT32_MAX && step >= w->store[at.index])
      broken(w, v, step, "is an input that has been written");
    break;
  case PLACE_RESULT:
    if (!end && step < w->make[at.index]) broken(w, v, step, "is a result before it is made");
    break;
  case PLACE_HELD:
    if (end ? p->helds[at.index].last != step : step > p->helds[at.index].last)
      broken(w, v, step, "was released");
    break;
  case PLACE_ARENA:
    if (end || step < p->slots[at.index].first || step > p->slots[at.index].last)
      broken(w, v, step, "is not alive");
    break;
  }
}

static void write_to(const Walk *w, Place at, Val v, uint32_t step) {
  alive(w, at, v, step);
  if (at.kind == PLACE_ARENA && step < w->copied[at.index])
    broken(w, v, step, "is written while it is copied");
  if (at.kind == PLACE_ARENA) w->slot[at.index] = true;
  if (at.kind == PLACE_RESULT) w->result[at.index] = true;
  if (at.kind == PLACE_HELD) w->held[at.index] = true;
  if (at.kind == PLACE_INPUT) broken(w, v, step, "is an input and written");
}

static void read_from(const Walk *w, Place at, Val v, uint32_t step) {
  alive(w, at, v, step);
  if (!written(w, at)) broken(w, v, step, "is read before it is written");
}

/* Checks the reads of the evaluator, which computes views and generators from values in memory. */
static void read_made(const Walk *w, Val v, uint32_t step) {
  const Graph *g = w->p->g;
  if (gr_type(g, v)->kind == TK_TOKEN) return;
  Place at = w->p->place[plan_index(g, v)];
  const GNode *n = &g->nodes[v.node];
  if (written(w, at)) {
    alive(w, at, v, step);
    return;
  }
  if (n->operand_count > 1 || n->result_count != 1 || !low_pulled(g, v.node))
    broken(w, v, step, "is read before it is written");
  if (n->operand_count) read_made(w, gr_operand(g, v.node, 0), step);
}

static void kernel_step(const Walk *w, const Step *s, uint32_t step) {
  const Plan *p = w->p;
  const Launch *l = &p->low.launches[s->launch];
  for (int write = 0; write < 2; write++)
    for (size_t i = 0; i < l->k->buf_count; i++) {
      const BufUse *u = &l->bufs[i];
      uint8_t kind = l->k->bufs[i].kind;
      Place value = {0}, panel = {PLACE_ARENA, s->panel0 + u->panel};
      bool writes = kind == LB_OUT || kind == LB_INOUT;
      if (u->kind == USE_LOCAL || write != writes) continue;
      if (u->kind == USE_VALUE) value = p->place[plan_index(p->g, u->v)];
      if (u->kind == USE_VALUE) (writes ? write_to : read_from)(w, value, u->v, step);
      /* a way that the sizes do not take may read a panel that nobody fills */
      if (u->kind == USE_PANEL || u->either)
        (writes ? write_to : alive)(w, panel, (Val){p->groups.items[s->group].root, 0}, step);
    }
}

/* What comes back is there when its copy may begin, and its place is nobody's. */
static void check_transfers(const Walk *w, uint32_t step) {
  const Plan *p = w->p;
  for (size_t i = 0; i < p->transfer_count; i++) {
    const Transfer *t = &p->transfers[i];
    const Step *s = &p->steps[t->step];
    if (s->kind != STEP_NODE || s->transfer != i)
      broken(w, (Val){p->groups.items[s->group].root, 0}, t->step, "is no copy");
    Val v = gr_operand(p->g, s->node, 0);
    if (t->leaves && t->step == step && t->limit > step) w->copied[t->slot] = t->limit;
    if (t->leaves || t->limit != step) continue;
    read_from(w, p->place[plan_index(p->g, v)], v, step);
    if (p->slots[t->slot].first < t->step) broken(w, v, step, "comes back to a place in use");
  }
}

static void node_step(const Walk *w, const Step *s, uint32_t step) {
  const Graph *g = w->p->g;
  const GNode *n = &g->nodes[s->node];
  for (uint32_t k = 0; k < n->operand_count; k++)
    read_made(w, gr_operand(g, s->node, (int)k), step);
  for (uint32_t k = 0; k < n->result_count; k++) {
    Val v = {s->node, k};
    Place at = w->p->place[plan_index(g, v)];
    if (at.kind) write_to(w, at, v, step);
  }
}

/* The last phase is of kernels that do not fail; stores come in it, of values that are there. */
static void check_stores(const Walk *w) {
  const Plan *p = w->p;
  for (uint32_t i = p->tail; i < p->step_count; i++)
    if (p->steps[i].kind != STEP_KERNEL || lp_fails(p->low.launches[p->steps[i].launch].k))
      broken(w, (Val){p->groups.items[p->steps[i].group].root, 0}, i, "may fail after a write");
  for (size_t i = 0; i < p->result_count && p->store_count; i++)
    if (w->make[i] >= p->tail && w->make[i] != UINT32_MAX)
      broken(w, p->results[i], w->make[i], "is made after a write");
  for (size_t i = 0; i < p->store_count; i++) {
    const Store *x = &p->stores[i];
    Place at = p->place[plan_index(p->g, x->v)];
    if (x->at < p->tail || x->at > p->step_count || x->at < p->made[plan_index(p->g, x->v)] ||
        at.kind != PLACE_ARENA)
      broken(w, x->v, x->at, "is stored before its time");
    read_from(w, at, x->v, x->at - 1);
  }
}

void plan_check(const Plan *p, Arena *temp) {
  const Graph *g = p->g;
  Walk w = {.p = p, .mem = temp->mem};
  w.slot = ARENA_ARRAY(temp, bool, p->slot_count + 1);
  w.result = ARENA_ARRAY(temp, bool, p->result_count + 1);
  w.held = ARENA_ARRAY(temp, bool, p->held_count + 1);
  w.drop = ARENA_ARRAY(temp, uint32_t, g->input_count + 1);
  w.store = ARENA_ARRAY(temp, uint32_t, g->input_count + 1);
  w.make = ARENA_ARRAY(temp, uint32_t, p->result_count + 1);
  w.copied = ARENA_ARRAY(temp, uint32_t, p->slot_count + 1);
  for (size_t i = 0; i < g->input_count; i++) w.drop[i] = w.store[i] = UINT32_MAX;
  for (size_t i = 0; i < p->store_count; i++) w.store[p->stores[i].input] = p->stores[i].at;
  for (size_t i = 0; i < p->drop_count; i++) w.drop[p->drops[i].index] = p->drops[i].step;
  for (size_t i = 0; i < p->result_count; i++) w.make[p->makes[i].index] = p->makes[i].step;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    check_transfers(&w, i);
    if (s->kind == STEP_KERNEL)
      kernel_step(&w, s, i);
    else
      node_step(&w, s, i);
  }
  check_stores(&w);
  for (size_t i = 0; i < g->output_count; i++)
    if (!p->is_store[i]) read_made(&w, g->outputs[i], UINT32_MAX);
}

static int by_offset(const void *a, const void *b) {
  const MemItem *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->first < y->first ? -1 : x->first > y->first;
}

void plan_check_places(Mem *mem, Arena *temp, const MemItem *items, size_t n, int64_t arena) {
  MemItem *s = ARENA_ARRAY(temp, MemItem, n + 1);
  size_t count = 0;
  for (size_t i = 0; i < n; i++)
    if (items[i].bytes) s[count++] = items[i];
  qsort(s, count, sizeof *s, by_offset);
  for (size_t i = 0; i < count; i++) {
    int64_t end = s[i].offset + s[i].bytes;
    if (s[i].offset < 0 || s[i].offset % 64 || end > arena)
      mem_bug(mem, "places: bytes %lld to %lld of an arena of %lld", (long long)s[i].offset,
              (long long)end, (long long)arena);
    for (size_t k = i + 1; k < count && s[k].offset < end; k++)
      if (s[k].first <= s[i].last && s[i].first <= s[k].last)
        mem_bug(mem, "places: byte %lld holds two values in step %u", (long long)s[k].offset,
                s[k].first > s[i].first ? s[k].first : s[i].first);
  }
}
