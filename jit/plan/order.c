/* The order in which groups run, for the memory that they need.
 *
 * In: groups in an order in which they can run, and typical sizes. Out: the same groups in an order
 * that needs no more memory. The idea: a group that frees more than it makes runs as soon as it can
 * (a gradient by weights frees two activations); other groups keep the given order. There are some
 * definitions of "more"; their orders are compared by the most bytes alive at once, and the first
 * of the best is taken. Memory of results exists from the beginning and does not count.
 *
 * A value that is written to an input (Graph.writes) lies in the arena until the last phase of the
 * run, in which nothing fails. Its group is `late`, which means that it runs in that phase and the
 * value is gone at once, if what it reads takes no more memory than what it makes. So the update of
 * an optimizer is late; a product with the update as its epilogue is, if the factors are smaller
 * than the params.
 *
 * Invariant: a group runs after the groups whose values it reads; effects and nodes that may fail
 * keep their order among each other; a late group cannot fail, and all groups behind it are late.
 */
#include <string.h>

#include "graph/cost.h"
#include "graph/opcode.h"
#include "jit/plan/plan.h"

typedef struct Item { /* a group */
  uint32_t *reads;
  size_t read_count, read_cap; /* values of other groups: entries of g->types */
  uint32_t *after;
  size_t after_count, after_cap; /* groups that it waits for */
  uint32_t *before;
  size_t before_count, before_cap;
  bool ordered; /* keeps its order among all such groups */
  bool late;
} Item;

typedef struct Order {
  Arena *a;
  const Graph *g;
  const Groups *groups;
  Item *items;
  uint32_t *owner;   /* per entry of g->types: the group that makes it, or NOBODY */
  int64_t *bytes;    /* per entry: 0 if the value does not lie in the arena */
  bool *leaves;      /* per entry: a result */
  bool *stored;      /* per entry: it is written to an input */
  uint32_t *readers; /* per entry: groups that read it */
  /* of one try */
  uint32_t *left, *waits, *seq, *best;
  uint32_t *ready; /* groups that wait for nothing, by number */
  size_t ready_count;
  bool *done;
} Order;
enum { NOBODY = UINT32_MAX };

static bool may_fail_or_act(const Graph *g, uint32_t node) {
  const OpInfo *op = &op_info[g->nodes[node].op];
  return op->cls == EFFECT || (op->traits & (T_EFFECT | T_FAIL | T_REGION));
}

static bool inside(const Group *x, uint32_t node) {
  for (uint32_t i = 0; i < x->node_count; i++)
    if (x->nodes[i] == node) return true;
  return false;
}

static void reads_value(Order *o, uint32_t group, Val v) {
  const Group *x = &o->groups->items[group];
  Item *it = &o->items[group];
  while (low_pulled(o->g, v.node) && o->g->nodes[v.node].operand_count) {
    uint32_t made = o->owner[plan_index(o->g, v)]; /* a view that lies in memory */
    if (made != NOBODY && made < group) break;
    v = gr_operand(o->g, v.node, 0);
  }
  uint32_t i = plan_index(o->g, v);
  if (inside(x, v.node) || o->owner[i] == NOBODY || o->owner[i] == group) return;
  for (size_t k = 0; k < it->read_count; k++)
    if (it->reads[k] == i) return;
  VEC_PUSH(o->a, it->reads, it->read_count, it->read_cap, i);
  o->readers[i]++;
}

static void waits_for(Order *o, uint32_t group, uint32_t earlier) {
  Item *it = &o->items[group], *e = &o->items[earlier];
  for (size_t k = 0; k < it->after_count; k++)
    if (it->after[k] == earlier) return;
  VEC_PUSH(o->a, it->after, it->after_count, it->after_cap, earlier);
  VEC_PUSH(o->a, e->before, e->before_count, e->before_cap, group);
}

/* ---- writes to inputs */

/* The value in memory of which v is a view. */
static Val base_of(const Graph *g, const bool *made, Val v) {
  while (!made[plan_index(g, v)] && low_pulled(g, v.node) && g->nodes[v.node].operand_count)
    v = gr_operand(g, v.node, 0);
  return v;
}

/* Whether v has the elements of `base`, of which it is a view, in their order. */
static bool whole(const Graph *g, Val v, Val base) {
  while (!val_eq(v, base)) {
    OpCode op = (OpCode)g->nodes[v.node].op;
    if (op != OP_RESHAPE && op != OP_ALIAS && op != OP_STOP) return false;
    v = gr_operand(g, v.node, 0);
  }
  return true;
}

const Val *order_writes(Arena *a, const Graph *g, const bool *made) {
  Val *store = ARENA_ARRAY(a, Val, g->output_count + 1);
  uint32_t *uses = ARENA_ARRAY(a, uint32_t, g->type_count + 1); /* outputs, by their bases */
  for (size_t k = 0; k < g->output_count; k++) store[k] = VAL_NONE;
  if (!g->write_count) return store;
  for (size_t k = 0; k < g->output_count; k++)
    uses[plan_index(g, base_of(g, made, g->outputs[k]))]++;
  for (size_t k = 0; k < g->output_count && k < g->write_count; k++) {
    if (g->writes[k] < 0) continue;
    Val v = g->outputs[k], base = base_of(g, made, v), input = g->inputs[g->writes[k]];
    const Type *t = gr_type(g, v);
    if (made[plan_index(g, base)] && uses[plan_index(g, base)] == 1 && whole(g, v, base) &&
        !uses[plan_index(g, input)] && t->kind == TK_TENSOR && t->dev == DEV_CPU &&
        type_same(g->dims, t, gr_type(g, input)))
      store[k] = base;
  }
  return store;
}

/* ---- groups */
static void look(Order *o, const int64_t *env) {
  const Graph *g = o->g;
  const Groups *groups = o->groups;
  for (size_t i = 0; i < g->type_count; i++) o->owner[i] = NOBODY;
  for (uint32_t i = 0; i < groups->count; i++) {
    const Group *x = &groups->items[i];
    for (uint32_t k = 0; k < x->out_count; k++) {
      uint32_t v = plan_index(g, x->outs[k]);
      o->owner[v] = i;
      o->bytes[v] = cost_room(g, &g->types[v], env);
    }
    const GNode *n = &g->nodes[x->root]; /* tokens of effects */
    for (uint32_t k = 0; k < n->result_count; k++)
      if (o->owner[n->result0 + k] == NOBODY) o->owner[n->result0 + k] = i;
  }
  uint32_t last = NOBODY;
  for (uint32_t i = 0; i < groups->count; i++) {
    const Group *x = &groups->items[i];
    bool ordered = may_fail_or_act(g, x->root);
    for (uint32_t q = 0; q <= x->node_count; q++) {
      uint32_t node = q < x->node_count ? x->nodes[q] : x->root;
      const GNode *n = &g->nodes[node];
      ordered |= may_fail_or_act(g, node);
      for (uint32_t k = 0; k < n->operand_count; k++)
        reads_value(o, i, g->operands[n->operand0 + k]);
    }
    for (size_t k = 0; k < o->items[i].read_count; k++)
      waits_for(o, i, o->owner[o->items[i].reads[k]]);
    if (!ordered) continue;
    if (last != NOBODY) waits_for(o, i, last);
    last = i;
  }
  bool *made = ARENA_ARRAY(o->a, bool, g->type_count + 1);
  for (size_t i = 0; i < g->type_count; i++) made[i] = o->owner[i] != NOBODY;
  const Val *stores = order_writes(o->a, g, made);
  for (size_t i = 0; i < g->output_count; i++) { /* outputs do not lie in the arena */
    Val v = g->outputs[i];
    bool store = !val_none(stores[i]);
    if (store) o->stored[plan_index(g, stores[i])] = true;
    while (!store) {
      o->bytes[plan_index(g, v)] = 0;
      o->leaves[plan_index(g, v)] = true;
      if (!low_pulled(g, v.node) || !g->nodes[v.node].operand_count) break;
      v = gr_operand(g, v.node, 0);
    }
  }
}

/* Whether group i may run when nothing can fail any more, given the groups behind it. */
static bool may_be_late(const Order *o, uint32_t i) {
  const Group *x = &o->groups->items[i];
  const Item *it = &o->items[i];
  bool ok = !it->ordered && group_has_kernel(x), stores = false;
  int64_t holds = 0, makes = 0;
  for (uint32_t k = 0; k < x->out_count; k++) {
    uint32_t v = plan_index(o->g, x->outs[k]);
    ok &= !o->leaves[v];
    stores |= o->stored[v];
    if (o->stored[v]) makes += o->bytes[v];
  }
  for (size_t k = 0; k < it->before_count; k++) ok &= o->items[it->before[k]].late;
  for (size_t k = 0; k < it->read_count; k++)
    if (!o->stored[it->reads[k]]) holds += o->bytes[it->reads[k]];
  return ok && (stores ? holds <= makes : it->before_count > 0);
}

/* Finds the late groups: those that write to inputs, and all that read what they make. */
static void find_late(Order *o) {
  size_t n = o->groups->count;
  for (uint32_t i = (uint32_t)n; i-- > 0;) o->items[i].late = may_be_late(o, i);
  for (uint32_t i = 0; i < n; i++) {
    const Group *x = &o->groups->items[i];
    Item *it = &o->items[i];
    bool wanted = false;
    for (uint32_t k = 0; k < x->out_count; k++) wanted |= o->stored[plan_index(o->g, x->outs[k])];
    for (size_t k = 0; k < it->after_count; k++) wanted |= o->items[it->after[k]].late;
    it->late &= wanted;
  }
}

/* Bytes that running group i adds, and those that it frees afterwards. What is stored stays. */
static void effect_of(const Order *o, uint32_t i, int64_t *adds, int64_t *frees) {
  const Group *x = &o->groups->items[i];
  const Item *it = &o->items[i];
  *adds = *frees = 0;
  for (uint32_t k = 0; k < x->out_count; k++) *adds += o->bytes[plan_index(o->g, x->outs[k])];
  for (size_t k = 0; k < it->read_count; k++)
    if (o->left[it->reads[k]] == 1 && !o->stored[it->reads[k]]) *frees += o->bytes[it->reads[k]];
}

/* Puts group i among those that wait for nothing, by number. */
static void get_ready(Order *o, uint32_t i) {
  size_t k = o->ready_count++;
  for (; k > 0 && o->ready[k - 1] > i; k--) o->ready[k] = o->ready[k - 1];
  o->ready[k] = i;
}

/* Makes one order of the groups that are not late, and returns the most bytes alive in it. A group
 * that adds at most `most` bytes more than it frees runs at once. */
static int64_t try_order(Order *o, int64_t most) {
  size_t n = o->groups->count, early = n;
  int64_t live = 0, peak = 0;
  memcpy(o->left, o->readers, o->g->type_count * sizeof *o->left);
  for (size_t i = 0; i < n; i++) {
    o->waits[i] = (uint32_t)o->items[i].after_count;
    o->done[i] = o->items[i].late;
    if (o->done[i]) o->seq[--early] = (uint32_t)i;
  }
  for (size_t i = early, k = n; i < k--; i++) { /* the late ones in the order in which they stand */
    uint32_t x = o->seq[i];
    o->seq[i] = o->seq[k];
    o->seq[k] = x;
  }
  o->ready_count = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!o->done[i] && !o->waits[i]) get_ready(o, i);
  for (size_t done = 0; done < early; done++) {
    size_t at = 0;
    int64_t best = 0, adds, frees;
    for (size_t k = 0; k < o->ready_count && most != INT64_MIN; k++) {
      effect_of(o, o->ready[k], &adds, &frees);
      if (adds - frees > most || adds - frees >= best) continue;
      best = adds - frees;
      at = k;
    }
    uint32_t take = o->ready[at];
    o->ready_count--;
    for (size_t k = at; k < o->ready_count; k++) o->ready[k] = o->ready[k + 1];
    effect_of(o, take, &adds, &frees);
    live += adds;
    if (live > peak) peak = live;
    live -= frees;
    const Group *x = &o->groups->items[take];
    for (uint32_t k = 0; k < x->out_count; k++) { /* outs without readers */
      uint32_t v = plan_index(o->g, x->outs[k]);
      if (!o->readers[v] && !o->stored[v]) live -= o->bytes[v];
    }
    const Item *it = &o->items[take];
    for (size_t k = 0; k < it->read_count; k++) o->left[it->reads[k]]--;
    for (size_t k = 0; k < it->before_count; k++)
      if (!--o->waits[it->before[k]] && !o->done[it->before[k]]) get_ready(o, it->before[k]);
    o->done[take] = true;
    o->seq[done] = take;
  }
  return peak;
}

int64_t order_groups(Arena *a, const Graph *g, const int64_t *env, Groups *groups) {
  size_t n = groups->count, values = g->type_count + 1;
  if (n < 3 && (!n || !g->write_count)) return 0;
  Order o = {.a = a, .g = g, .groups = groups};
  o.items = ARENA_ARRAY(a, Item, n);
  o.owner = ARENA_ARRAY(a, uint32_t, values);
  o.bytes = ARENA_ARRAY(a, int64_t, values);
  o.leaves = ARENA_ARRAY(a, bool, values);
  o.stored = ARENA_ARRAY(a, bool, values);
  o.readers = ARENA_ARRAY(a, uint32_t, values);
  o.left = ARENA_ARRAY(a, uint32_t, values);
  o.waits = ARENA_ARRAY(a, uint32_t, n);
  o.seq = ARENA_ARRAY(a, uint32_t, n);
  o.ready = ARENA_ARRAY(a, uint32_t, n);
  o.best = ARENA_ARRAY(a, uint32_t, n);
  o.done = ARENA_ARRAY(a, bool, n);
  look(&o, env);
  find_late(&o);
  static const int64_t most[] = {INT64_MIN, -1, 0};
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
    int64_t peak = try_order(&o, most[i]);
    if (peak >= least) continue;
    least = peak;
    memcpy(o.best, o.seq, n * sizeof *o.best);
  }
  Group *now = ARENA_ARRAY(a, Group, n);
  for (size_t i = 0; i < n; i++) {
    now[i] = groups->items[o.best[i]];
    now[i].late = o.items[o.best[i]].late;
  }
  memcpy(groups->items, now, n * sizeof *now);
  return n < 3 ? 0 : least;
}
