/* Which copies of offloaded values can be made while other steps run, and when.
 *
 * In: a plan, then sizes and places. Out: for a value that leaves the arena, the step before which
 * its copy has to be made; for one that comes back, the step before which its copy begins. The
 * idea: a copy needs nothing but time and a place in the arena. So the steps in which its slot is
 * alive are stretched, as far as the arena has room at its present size: offloading costs no
 * memory, and the bytes of a plan depend on no speed. A copy is stretched over steps that move four
 * times its bytes, or compute for as long (16 operations a byte), which hides it on any machine
 * whose threads together are no faster than four that copy. Copies take their room in turns, a step
 * each, so that a crowded place is shared.
 *
 * Invariant: nothing else writes a slot from the begin of a copy to its end.
 */
#include <stdlib.h>

#include "graph/cost.h"
#include "graph/opcode.h"
#include "jit/plan/plan.h"

/* ---- in a plan */

static bool in_slot(Place at, uint32_t slot) {
  return at.kind == PLACE_ARENA && at.index == slot;
}

static bool writes(const Plan *p, const Step *s, uint32_t slot) {
  if (s->kind == STEP_NODE) {
    const GNode *n = &p->g->nodes[s->node];
    for (uint32_t k = 0; k < n->result_count; k++)
      if (in_slot(p->place[n->result0 + k], slot)) return true;
    return false;
  }
  const Launch *l = &p->low.launches[s->launch];
  for (size_t k = 0; k < l->k->buf_count; k++) {
    uint8_t kind = l->k->bufs[k].kind;
    if ((kind == LB_OUT || kind == LB_INOUT) && l->bufs[k].kind == USE_VALUE &&
        in_slot(p->place[plan_index(p->g, l->bufs[k].v)], slot))
      return true;
  }
  return false;
}

void transfer_find(Plan *p) {
  const Graph *g = p->g;
  for (uint32_t i = 0; i < p->step_count; i++) {
    Step *s = &p->steps[i];
    s->transfer = NO_TRANSFER;
    if (s->kind != STEP_NODE || g->nodes[s->node].op != OP_PLACE) continue;
    Val v = gr_operand(g, s->node, 0);
    Place from = p->place[plan_index(g, v)], to = p->place[plan_index(g, (Val){s->node, 0})];
    Transfer t = {.step = i};
    uint32_t number = (uint32_t)p->transfer_count;
    if (!plan_there(p, v, i)) continue;
    if (from.kind == PLACE_ARENA && to.kind == PLACE_HELD) {
      t.leaves = true;
      t.slot = from.index;
      p->helds[to.index].filled = number;
      for (t.limit = i + 1; t.limit < p->tail && !writes(p, &p->steps[t.limit], t.slot);) t.limit++;
    } else if ((from.kind == PLACE_HELD || from.kind == PLACE_INPUT) && to.kind == PLACE_ARENA &&
               p->slots[to.index].first == i) {
      t.slot = to.index;
      t.limit = p->made[plan_index(g, v)];
    } else {
      continue;
    }
    s->transfer = number;
    VEC_PUSH(p->arena, p->transfers, p->transfer_count, p->transfer_cap, t);
  }
}

/* ---- for sizes */

typedef struct Stretch {
  MemItem *item;
  int64_t left;      /* bytes that the steps beside it still have to move */
  uint32_t from, to; /* what the item was */
} Stretch;

/* Bytes that a step moves, or could move in its time. */
static int64_t weight(const Plan *p, const int64_t *env, const Step *s) {
  if (s->kind != STEP_KERNEL) return 0;
  const Launch *l = &p->low.launches[s->launch];
  int64_t bytes = 0, flops;
  for (size_t k = 0; k < l->k->buf_count; k++)
    if (l->bufs[k].kind == USE_VALUE)
      bytes = cost_add(bytes, cost_bytes(p->g, gr_type(p->g, l->bufs[k].v), env));
  if (!dim_eval(p->g->dims, l->flops, env, NULL, &flops)) flops = 0;
  return flops / 16 > bytes ? flops / 16 : bytes;
}

/* Stretches a copy by one step, if it needs that and there is room. */
static bool stretch(const Transfer *t, Stretch *x, const int64_t *weights, int64_t *alive,
                    int64_t room) {
  if (x->left <= 0) return false;
  MemItem *i = x->item;
  if (t->leaves ? i->last + 1 >= t->limit : i->first <= t->limit) return false;
  uint32_t step = t->leaves ? i->last + 1 : i->first - 1;
  if (alive[step] > room - i->bytes) return false;
  alive[step] += i->bytes;
  x->left -= weights[step];
  if (t->leaves)
    i->last = step;
  else
    i->first = step;
  return true;
}

static int by_step(const void *a, const void *b) {
  const Due *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static void set_times(const Plan *p, const Stretch *x, Bound *b) {
  Arena *a = &b->arena;
  b->begins = ARENA_ARRAY(a, Due, p->transfer_count + 1);
  b->ends = ARENA_ARRAY(a, Due, p->transfer_count + 1);
  for (uint32_t i = 0; i < p->transfer_count; i++) {
    const Transfer *t = &p->transfers[i];
    uint32_t end = x[i].item->last + 1;
    if (t->leaves)
      b->ends[b->end_count++] = (Due){end < t->limit ? end : t->limit, i};
    else
      b->begins[b->begin_count++] = (Due){x[i].item->first, i};
  }
  qsort(b->begins, b->begin_count, sizeof *b->begins, by_step);
  qsort(b->ends, b->end_count, sizeof *b->ends, by_step);
}

void transfer_bind(const Plan *p, Bound *b, const int64_t *env, MemItem *items, const uint32_t *of,
                   size_t n) {
  Arena *a = &b->arena;
  size_t count = p->transfer_count;
  Stretch *x = ARENA_ARRAY(a, Stretch, count + 1);
  int64_t *alive = ARENA_ARRAY(a, int64_t, p->step_count + 2);
  int64_t *weights = ARENA_ARRAY(a, int64_t, p->step_count + 1);
  for (size_t k = 0; k < n; k++) { /* differences, for now */
    alive[items[k].first] += items[k].bytes;
    alive[items[k].last + 1] -= items[k].bytes;
    for (size_t i = 0; i < count; i++)
      if (p->transfers[i].slot == of[k])
        x[i] = (Stretch){&items[k], 4 * items[k].bytes, items[k].first, items[k].last};
  }
  for (size_t i = 0; i < p->step_count; i++) {
    alive[i + 1] += alive[i];
    weights[i] = weight(p, env, &p->steps[i]);
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++)
      more |= stretch(&p->transfers[i], &x[i], weights, alive, b->arena_bytes);
  }
  for (;;) { /* what fits by bytes may not fit by places */
    bool any = false;
    for (size_t i = 0; i < count; i++)
      any |= x[i].item->first < x[i].from || x[i].item->last > x[i].to;
    int64_t total = memplan(a, items, n);
    if (total <= b->arena_bytes || !any) break;
    for (size_t i = 0; i < count; i++) {
      x[i].item->first = x[i].from - (x[i].from - x[i].item->first) / 2;
      x[i].item->last = x[i].to + (x[i].item->last - x[i].to) / 2;
    }
  }
  set_times(p, x, b);
}
