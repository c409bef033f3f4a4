/* From groups to steps in order, and a place for every value that leaves a kernel.
 *
 * In: a flat graph and the levels' tile shapes. Out: groups, kernels, steps, and the place of each
 * value: a new tensor if the value leaves the graph, else a slot of the arena with the steps in
 * which the value is alive. A group without a loop form is divided into its nodes, and a node
 * without one is run by the reference evaluator. Sizes are not known here; exec.c evaluates them.
 * Invariant: a step reads only inputs and values that earlier steps placed.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/opcode.h"
#include "graph/pass.h"
#include "jit/lower/lower_turns.h"
#include "jit/lower/reuse.h"
#include "jit/plan/plan.h"

typedef struct Maker {
  Plan *p;
  Lower lower;
  Alike *alike;
  uint8_t *placed;
  bool *used; /* all: every result of a group taken apart */
} Maker;

/* Marks the outs of a group, which are in their places after the next `steps` steps. */
static void mark_outs(Maker *m, const Group *x, size_t steps) {
  for (uint32_t i = 0; i < x->out_count; i++) {
    m->placed[plan_index(m->p->g, x->outs[i])] = 1;
    m->p->made[plan_index(m->p->g, x->outs[i])] = (uint32_t)(m->p->step_count + steps);
  }
}

static void add_kernels(Maker *m, Group x) {
  stack_check();
  Plan *p = m->p;
  GErr e;
  size_t launch = p->low.count, panel = p->low.panel_count;
  bool whole = !group_has_kernel(&x);
  if (!whole && !reuse_lower(m->alike, &m->lower, &x, p->arena, &p->low, &e)) {
    if (x.node_count > 1) {
      for (uint32_t i = 0; i < x.node_count; i++) {
        Group one;
        if (!fuse_one(p->arena, p->g, x.nodes[i], m->used, &one)) continue;
        one.reason = arena_printf(p->arena, "apart, since the whole has no kernel: %s", e.text);
        one.late = x.late;
        add_kernels(m, one);
      }
      return;
    }
    x.kind = GROUP_REF;
    x.reason = arena_printf(p->arena, "the reference evaluator: %s", e.text);
    whole = true;
  }
  mark_outs(m, &x, whole ? 1 : p->low.count - launch);
  VEC_PUSH(p->arena, p->groups.items, p->groups.count, p->groups.cap, x);
  uint32_t group = (uint32_t)p->groups.count - 1;
  if (whole) {
    Step s = {.kind = STEP_NODE, .group = group, .node = x.root};
    if (p->g->nodes[x.root].op == OP_LOOP) {
      s.launch = (uint32_t)p->low.count;
      s.turns = low_turns(&m->lower, x.root, p->arena, &p->low);
    }
    VEC_PUSH(p->arena, p->steps, p->step_count, p->step_cap, s);
    return;
  }
  uint32_t slot = (uint32_t)p->slot_count;
  for (size_t i = panel; i < p->low.panel_count; i++) {
    Slot s = {p->low.panels[i].dtype, p->low.panels[i].count, UINT32_MAX, 0, true, false, false};
    VEC_PUSH(p->arena, p->slots, p->slot_count, p->slot_cap, s);
  }
  for (size_t i = launch; i < p->low.count; i++) {
    /* BufUse.panel counts all panels of Lowered: its slot is panel + (slot - panel of the
     * group). */
    Step s = {.kind = STEP_KERNEL,
              .group = group,
              .launch = (uint32_t)i,
              .panel0 = slot - (uint32_t)panel};
    VEC_PUSH(p->arena, p->steps, p->step_count, p->step_cap, s);
  }
}

/* ---- places */
static void place_results(Plan *p) {
  const Graph *g = p->g;
  bool *made = ARENA_ARRAY(p->arena, bool, g->type_count + 1);
  for (size_t i = 0; i < g->type_count; i++) made[i] = p->place[i].kind != PLACE_NONE;
  const Val *stores = order_writes(p->arena, g, made);
  p->is_store = ARENA_ARRAY(p->arena, bool, g->output_count + 1);
  for (size_t i = 0; i < g->output_count; i++) {
    if (!val_none(stores[i]) && p->place[plan_index(g, stores[i])].kind == PLACE_ARENA) {
      Store x = {.v = stores[i], .input = (uint32_t)g->writes[i], .output = (uint32_t)i};
      VEC_PUSH(p->arena, p->stores, p->store_count, p->store_cap, x);
      p->slots[p->place[plan_index(g, x.v)].index].stored = true;
      p->is_store[i] = true;
      continue;
    }
    /* The tensor of which the output is a view. */
    Val v = g->outputs[i];
    while (!p->place[plan_index(g, v)].kind && low_pulled(g, v.node) &&
           g->nodes[v.node].operand_count)
      v = gr_operand(g, v.node, 0);
    Place *at = &p->place[plan_index(g, v)];
    if (at->kind == PLACE_HELD) p->helds[at->index].last = UINT32_MAX;
    if (at->kind != PLACE_ARENA) continue;
    p->slots[at->index].first = UINT32_MAX; /* not in the arena after all */
    p->slots[at->index].last = 0;
    *at = (Place){PLACE_RESULT, (uint32_t)p->result_count};
    VEC_PUSH(p->arena, p->results, p->result_count, p->result_cap, v);
  }
}

static void touch(Plan *p, Place at, uint32_t step) {
  if (at.kind == PLACE_INPUT && p->input_last[at.index] < step) p->input_last[at.index] = step;
  if (at.kind == PLACE_RESULT && p->result_first[at.index] > step) p->result_first[at.index] = step;
  if (at.kind == PLACE_HELD && p->helds[at.index].last != UINT32_MAX &&
      p->helds[at.index].last < step)
    p->helds[at.index].last = step;
  if (at.kind != PLACE_ARENA) return;
  Slot *s = &p->slots[at.index];
  if (step < s->first) s->first = step;
  if (step > s->last) s->last = step;
}

/* The reference evaluator reads v: marks all values that its tensor is computed from as used. A
 * token is computed from none, so values that earlier effects read may be released. */
static void touch_made(Plan *p, Val v, uint32_t step) {
  if (gr_type(p->g, v)->kind == TK_TOKEN) return;
  if (plan_there(p, v, step)) {
    Place at = p->place[plan_index(p->g, v)];
    touch(p, at, step);
    if (at.kind == PLACE_ARENA) p->slots[at.index].lent = true;
    return;
  }
  const GNode *n = &p->g->nodes[v.node];
  for (uint32_t k = 0; k < n->operand_count; k++) {
    touch_made(p, p->g->operands[n->operand0 + k], step);
  }
}

Val plan_dense(const Plan *p, Val v, uint32_t step) {
  const Graph *g = p->g;
  while (!plan_there(p, v, step)) {
    OpCode op = (OpCode)g->nodes[v.node].op;
    if (op != OP_ALIAS && op != OP_STOP && op != OP_RESHAPE) return VAL_NONE;
    v = gr_operand(g, v.node, 0);
  }
  return v;
}

/* Bodies read the elements of v: an input that has them is made dense once, and not by each. */
static void use_dense(Plan *p, Val v, uint32_t step) {
  Val base = plan_dense(p, v, step);
  if (val_none(base) || gr_type(p->g, base)->kind != TK_TENSOR) return;
  Place at = p->place[plan_index(p->g, base)];
  if (at.kind == PLACE_INPUT) p->input_used[at.index] = true;
}

static void lifetimes(Plan *p) {
  for (uint32_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    if (s->kind == STEP_NODE) {
      const GNode *n = &p->g->nodes[s->node];
      for (uint32_t k = 0; k < n->operand_count; k++) {
        touch_made(p, p->g->operands[n->operand0 + k], i);
        if (n->region_count) use_dense(p, p->g->operands[n->operand0 + k], i);
      }
      for (uint32_t k = 0; k < n->result_count; k++) touch(p, p->place[n->result0 + k], i);
      continue;
    }
    const Launch *l = &p->low.launches[s->launch];
    for (size_t k = 0; k < l->k->buf_count; k++) {
      const BufUse *u = &l->bufs[k];
      Place at = u->kind == USE_VALUE ? p->place[plan_index(p->g, u->v)] : (Place){0};
      if (at.kind == PLACE_INPUT) p->input_used[at.index] = true;
      touch(p, at, i);
      if (u->kind == USE_PANEL || u->either)
        touch(p, (Place){PLACE_ARENA, s->panel0 + u->panel}, i);
    }
  }
}

/* Keeps the input that v is, or is a view of. A token is none. */
static void keep_made(Plan *p, Val v) {
  if (gr_type(p->g, v)->kind == TK_TOKEN) return;
  Place at = p->place[plan_index(p->g, v)];
  if (at.kind == PLACE_INPUT) p->input_last[at.index] = UINT32_MAX;
  const GNode *n = &p->g->nodes[v.node];
  for (uint32_t k = 0; !at.kind && k < n->operand_count; k++)
    keep_made(p, p->g->operands[n->operand0 + k]);
}

static bool graph_fails(const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  for (uint32_t r = 0; r < n->region_count; r++) {
    const Graph *in = g->regions[n->region0 + r];
    for (uint32_t i = 0; i < in->node_count; i++)
      if (graph_fails(in, i)) return true;
  }
  return n->op == OP_POW || (op_info[n->op].traits & T_FAIL);
}

/* Whether operand k of an access at indices has elements, and is no index. */
static bool is_element(OpCode op, uint32_t k) {
  switch (op) {
  case OP_TAKE:
  case OP_GATHER: return k == 0;
  case OP_PUT:
  case OP_PUT_ADD: return k < 2;
  case OP_SCATTER:
  case OP_SCATTER_ADD: return k != 1;
  default: return false;
  }
}

/* When a kernel fails, the evaluator runs again for the message. Whether and how an operation fails
 * depends on ints and bools (an index, a divisor, a condition). The inputs from which those are
 * computed stay until the last kernel that may fail; other inputs may be released (exec.c). */
static void keep_for_words(Plan *p) {
  const Graph *g = p->g;
  uint32_t last = UINT32_MAX;
  for (uint32_t i = 0; i < p->step_count; i++)
    if (p->steps[i].kind == STEP_KERNEL && lp_fails(p->low.launches[p->steps[i].launch].k))
      last = i;
  if (last == UINT32_MAX) return;
  bool *needed = p->message = ARENA_ARRAY(p->arena, bool, g->node_count + 1);
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const GNode *n = &g->nodes[i];
    bool fails = graph_fails(g, i), all = needed[i] || (fails && n->region_count);
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = gr_operand(g, i, (int)k);
      bool element = is_element((OpCode)n->op, k); /* it fails by its index alone */
      if (all || (fails && !element && !dt_float((DType)gr_type(g, v)->dtype)))
        needed[v.node] = true;
    }
  }
  for (size_t i = 0; i < g->input_count; i++)
    if (needed[g->inputs[i].node]) touch(p, (Place){PLACE_INPUT, (uint32_t)i}, last);
}

/* ---- updates where the operand is
 *
 * An update at indices (put, scatter) is a copy of its operand, and the writes. If the copy is the
 * last step that reads the operand, it can have the place of the result from the start. */

/* The value with a place whose elements, in their order, are those of v. */
static Val same_elements(const Plan *p, Val v) {
  const Graph *g = p->g;
  for (;;) {
    OpCode op = (OpCode)g->nodes[v.node].op;
    bool same = op == OP_RESHAPE || op == OP_ALIAS || op == OP_STOP;
    if (p->place[plan_index(g, v)].kind || !same) return v;
    v = gr_operand(g, v.node, 0);
  }
}

static void move_place(Plan *p, Place from, Place to) {
  for (size_t i = 0; i < p->g->type_count; i++)
    if (p->place[i].kind == from.kind && p->place[i].index == from.index) p->place[i] = to;
}

/* Gives the operand, which lies in slot `from` and dies in this step, the place of a result that
 * begins in it. False: the result has its place for another reason. */
static bool take_place(Plan *p, Place from, Place to, uint32_t step) {
  Slot *a = &p->slots[from.index];
  if (a->stored) return false; /* the last phase reads it */
  /* what leaves as a tensor must not have been seen as one before: it could be kept */
  if (to.kind == PLACE_RESULT && p->result_first[to.index] == step && !a->lent)
    p->result_first[to.index] = a->first;
  else if (to.kind == PLACE_ARENA && p->slots[to.index].first == step)
    p->slots[to.index].first = a->first, p->slots[to.index].lent |= a->lent;
  else
    return false;
  a->first = UINT32_MAX;
  a->last = 0;
  move_place(p, from, to);
  return true;
}

static bool dies(const Plan *p, Place at, uint32_t step) {
  return at.kind == PLACE_ARENA && p->slots[at.index].last == step &&
         p->slots[at.index].first < step;
}

static void update_at_indices(Plan *p, Step *s, uint32_t step) {
  const Graph *g = p->g;
  const Group *x = &p->groups.items[s->group];
  Val of = same_elements(p, gr_operand(g, x->root, 0));
  Place from = p->place[plan_index(g, of)], to = p->place[plan_index(g, (Val){x->root, 0})];
  if (to.kind == PLACE_RESULT && p->result_first[to.index] == step) {
    bool ends = (from.kind == PLACE_INPUT && p->input_last[from.index] == step) ||
                (from.kind == PLACE_HELD && p->helds[from.index].last == step);
    if (ends) s->from = from;
  }
  if (from.kind == PLACE_ARENA && p->slots[from.index].last == step)
    s->moved = take_place(p, from, to, step);
}

/* Whether a launch reads the place by one buffer. */
static bool one_reader(const Plan *p, const Launch *l, Place at) {
  int n = 0;
  for (size_t i = 0; i < l->k->buf_count; i++) {
    Place x = l->bufs[i].kind == USE_VALUE ? p->place[plan_index(p->g, l->bufs[i].v)] : (Place){0};
    n += x.kind == at.kind && x.index == at.index;
    if (l->bufs[i].either && x.kind == at.kind && x.index == at.index) return false;
  }
  return n == 1;
}

/* A kernel that goes over elements writes a result where an operand lies that dies. */
static void update_elements(Plan *p, Step *s, uint32_t step) {
  const Graph *g = p->g;
  Launch *l = &p->low.launches[s->launch];
  for (size_t o = 0; o < l->k->buf_count; o++) {
    if (l->k->bufs[o].kind != LB_OUT || l->bufs[o].kind != USE_VALUE) continue;
    Val out = l->bufs[o].v;
    Place to = p->place[plan_index(g, out)];
    for (size_t i = 0; i < l->k->buf_count; i++) {
      Place from =
          l->bufs[i].kind == USE_VALUE ? p->place[plan_index(g, l->bufs[i].v)] : (Place){0};
      if (!dies(p, from, step)) continue;
      const Type *x = gr_type(g, l->bufs[i].v), *y = gr_type(g, out);
      bool fits = dim_product(g->dims, x->rank, x->dim) == dim_product(g->dims, y->rank, y->dim) &&
                  one_reader(p, l, from) && lp_can_replace(l->k, (int)i, (int)o);
      if (!fits || !take_place(p, from, to, step)) continue;
      Kernel *k = lp_copy(p->arena, l->k); /* equal launches share one */
      k->bufs[o].kind = LB_INOUT;
      l->k = k;
      break;
    }
  }
}

/* From the last step to the first, so that what one update reads is settled when the one that made
 * it is looked at. */
static void find_updates(Plan *p) {
  for (uint32_t i = (uint32_t)p->step_count; i-- > 0;) {
    Step *s = &p->steps[i];
    if (s->kind != STEP_KERNEL) continue;
    bool first = i == 0 || p->steps[i - 1].group != s->group;
    if (p->groups.items[s->group].kind != GROUP_SCATTER)
      update_elements(p, s, i);
    else if (first)
      update_at_indices(p, s, i);
  }
}

/* ---- the last phase */

/* Whether a step of a late group is one: its kernel cannot fail, and no caller reads what it
 * makes before the end. */
static bool is_last(const Plan *p, const Step *s) {
  const Group *x = &p->groups.items[s->group];
  if (!x->late || s->kind != STEP_KERNEL || lp_fails(p->low.launches[s->launch].k)) return false;
  for (uint32_t i = 0; i < x->out_count; i++)
    if (p->place[plan_index(p->g, x->outs[i])].kind != PLACE_ARENA) return false;
  return true;
}

static int by_at(const void *a, const void *b) {
  const Store *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return x->output < y->output ? -1 : x->output > y->output;
}

/* Finds the last phase, and the times of the stores in it. Each value stays until then. */
static void last_phase(Plan *p) {
  p->tail = (uint32_t)p->step_count;
  while (p->store_count && p->tail > 0 && is_last(p, &p->steps[p->tail - 1])) p->tail--;
  for (size_t i = 0; i < p->store_count; i++) {
    Store *x = &p->stores[i];
    Slot *slot = &p->slots[p->place[plan_index(p->g, x->v)].index];
    x->at = p->made[plan_index(p->g, x->v)];
    if (x->at < p->tail) x->at = p->tail;
    if (p->input_last[x->input] != UINT32_MAX && x->at <= p->input_last[x->input])
      x->at = p->input_last[x->input] + 1;
    if (slot->last < x->at - 1) slot->last = x->at - 1;
  }
  if (p->store_count) qsort(p->stores, p->store_count, sizeof *p->stores, by_at);
}

static int by_step(const void *a, const void *b) {
  const Due *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Finds the steps at which inputs are released and results are made. */
static void dues(Plan *p) {
  const Graph *g = p->g;
  for (size_t i = 0; i < g->output_count; i++) keep_made(p, g->outputs[i]);
  keep_for_words(p);
  find_updates(p);
  last_phase(p);
  p->drops = ARENA_ARRAY(p->arena, Due, g->input_count + 1);
  p->makes = ARENA_ARRAY(p->arena, Due, p->result_count + 1);
  for (uint32_t i = 0; i < g->input_count; i++)
    if (p->input_last[i] != UINT32_MAX) p->drops[p->drop_count++] = (Due){p->input_last[i], i};
  for (uint32_t i = 0; i < p->result_count; i++) p->makes[i] = (Due){p->result_first[i], i};
  qsort(p->drops, p->drop_count, sizeof *p->drops, by_step);
  qsort(p->makes, p->result_count, sizeof *p->makes, by_step);
}

/* Finds the last step that computes a value for a backward node: its node is neither of a gradient
 * nor recomputed, but such a node reads it. */
static uint32_t forward_end(const Plan *p, Arena *temp) {
  const Graph *g = p->g;
  bool *needed = ARENA_ARRAY(temp, bool, g->node_count + 1);
  bool *made = ARENA_ARRAY(temp, bool, g->node_count + 1);
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const Prov *v = &g->provs[g->nodes[i].prov];
    made[i] = !v->backward && !v->recomputed;
    if (made[i] && !needed[i]) continue;
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++)
      needed[gr_operand(g, i, (int)k).node] = true;
  }
  for (uint32_t i = (uint32_t)p->step_count; i-- > 0;) {
    const Group *x = &p->groups.items[p->steps[i].group];
    for (uint32_t k = 0; k < x->out_count; k++) /* a reader may compute other values itself */
      if (made[x->outs[k].node] && needed[x->outs[k].node]) return i;
  }
  return UINT32_MAX;
}

Plan *plan_make(Arena *a, Arena *temp, const Graph *g, const int64_t *env, const EngTarget *target,
                bool apart, Shelf *shelf) {
  Plan *p = ARENA_NEW(a, Plan);
  p->arena = a;
  p->inputs = g->input_count;
  g = p->g = plan_tables(a, gr_flatten(a, g, &p->origin), &p->origin, &p->tables);
  Maker m = {.p = p};
  m.placed = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  m.used = ARENA_ARRAY(a, bool, g->type_count + 1);
  memset(m.used, 1, g->type_count);
  p->place = ARENA_ARRAY(a, Place, g->type_count + 1);
  p->made = ARENA_ARRAY(a, uint32_t, g->type_count + 1);
  p->input_used = ARENA_ARRAY(a, bool, g->input_count + 1);
  p->input_last = ARENA_ARRAY(a, uint32_t, g->input_count + 1);
  for (size_t i = 0; i < g->input_count; i++) {
    m.placed[plan_index(g, g->inputs[i])] = 1;
    p->place[plan_index(g, g->inputs[i])] = (Place){PLACE_INPUT, (uint32_t)i};
  }
  m.lower = (Lower){.arena = temp, .g = g, .placed = m.placed};
  m.lower.tile = (RegTile){target->tile_rows, target->tile_columns};
  m.alike = reuse_new(&m.lower, shelf);
  Groups groups = {0};
  fuse(a, temp, g, env, apart, &groups);
  order_groups(temp, g, env, &groups);
  for (size_t i = 0; i < groups.count; i++) add_kernels(&m, groups.items[i]);
  for (size_t i = 0; i < p->groups.count; i++) {
    const Group *x = &p->groups.items[i];
    bool held = !group_has_kernel(x);
    if (g->nodes[x->root].op == OP_PLACE) held = gr_type(g, (Val){x->root, 0})->dev != DEV_CPU;
    for (uint32_t k = 0; k < x->out_count; k++) {
      Val v = x->outs[k];
      const Type *t = gr_type(g, v);
      Place *at = &p->place[plan_index(g, v)];
      if (held) {
        *at = (Place){PLACE_HELD, (uint32_t)p->held_count};
        VEC_PUSH(a, p->helds, p->held_count, p->held_cap, ((Held){v, 0, NO_TRANSFER}));
        continue;
      }
      *at = (Place){PLACE_ARENA, (uint32_t)p->slot_count};
      Slot s = {(DType)t->dtype,
                dim_product(g->dims, t->rank, t->dim),
                UINT32_MAX,
                0,
                false,
                false,
                false};
      VEC_PUSH(a, p->slots, p->slot_count, p->slot_cap, s);
    }
  }
  place_results(p);
  p->result_first = ARENA_ARRAY(a, uint32_t, p->result_count + 1);
  memset(p->result_first, 0xff, p->result_count * sizeof *p->result_first);
  lifetimes(p);
  dues(p);
  transfer_find(p);
  p->forward_end = forward_end(p, temp);
  if (a->mem->check) plan_check(p, temp);
  return p;
}

int64_t plan_least(Arena *temp, const Graph *g, const int64_t *env) {
  const uint32_t *origin;
  const Graph *tables;
  Groups groups = {0};
  g = gr_flatten(temp, g, &origin);
  g = plan_tables(temp, g, &origin, &tables);
  fuse(temp, temp, g, env, false, &groups);
  for (size_t i = 0; i < groups.count; i++)
    if (!group_has_kernel(&groups.items[i])) return 0; /* its results do not lie in the arena */
  return order_groups(temp, g, env, &groups);
}
