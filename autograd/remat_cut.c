/* What to keep of checkpoint blocks, by size and cost: one minimum cut for each price of a byte.
 *
 * In: a graph that holds forward and backward, values of its symbols, a price. Out: a choice. Every
 * value v of a block that backward may need has a vertex need(v), every node w of it a vertex
 * again(w): on the source's side of the cut are the values needed and the nodes computed again.
 *     source -> need(v)      without end, where a backward node reads v
 *     need(v) -> again(w)    price * bytes of v, the node of which is w: v is kept
 *     again(w) -> sink       cost of w: it is computed again
 *     again(w) -> need(u)    without end, for each operand u of w in the same block
 * Infinite arcs in other places say what must be. A cut is a choice and its capacity the price of
 * it, so the least cut is the best choice for that price (the network of Jain et al., "Checkmate",
 * 2020, without its schedule; the same cut partitions joint graphs in PyTorch's functorch, He and
 * Yu 2022). A rising price gives smaller plans, each on the lower hull of bytes and time.
 *
 * Values that a block reads from outside are kept by others and cost nothing here. A view is never
 * kept itself.
 */
#include <math.h>
#include <string.h>

#include "autograd/mincut.h"
#include "autograd/remat_impl.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/structure.h"

/* ---- sizes and costs */

enum { BYTE_COST = 2 };
static int64_t body_time(const Graph *g, const int64_t *env) {
  int64_t sum = 0;
  for (uint32_t n = 0; n < g->node_count; n++) sum = cost_add(sum, rm_cost(g, n, env));
  return sum;
}

/* The cost of a node with regions. */
static int64_t region_cost(const Graph *g, uint32_t n, const int64_t *env) {
  const GNode *node = &g->nodes[n];
  int64_t first = body_time(g->regions[node->region0], env);
  if (node->op == OP_BRANCH) {
    int64_t other = body_time(g->regions[node->region0 + 1], env);
    return first > other ? first : other;
  }
  int64_t turns = cost_iterations(g, n, env);
  ReplayKeeps keeps = {gr_attr_i(g, n, AT_STATES, 0), gr_attr_i(g, n, AT_EVERY, 0)};
  if (gr_again(g, n)) turns = cost_add(turns, replay_turns(turns, keeps));
  return cost_mul(first, turns);
}

int64_t rm_cost(const Graph *g, uint32_t n, const int64_t *env) {
  stack_check();
  const GNode *node = &g->nodes[n];
  const OpInfo *op = &op_info[node->op];
  if (op->remat == REMAT_FREE || op->cls == EFFECT || node->op == OP_INPUT) return 0;
  if (node->region_count) return region_cost(g, n, env);
  int64_t out = 0, in = 0, moved = 0;
  for (uint32_t k = 0; k < node->result_count; k++) {
    out = cost_add(out, cost_elements(g, &g->types[node->result0 + k], env));
    moved = cost_add(moved, cost_bytes(g, &g->types[node->result0 + k], env));
  }
  for (uint32_t k = 0; k < node->operand_count; k++) {
    const Type *t = gr_type(g, gr_operand(g, n, (int)k));
    in = cost_add(in, cost_elements(g, t, env));
    moved = cost_add(moved, cost_bytes(g, t, env));
  }
  int64_t work = op->cls == CONTRACT || op->cls == FACTOR
                     ? cost_flops(g, n, env)
                     : cost_mul(op->cls == REDUCE || in > out ? in : out, op->cost);
  return cost_add(cost_add(work, cost_mul(moved, BYTE_COST)), 1);
}

int64_t rm_time(const Graph *g, const int64_t *env) {
  int64_t sum = 0;
  Arena tmp;
  arena_init(&tmp, g->arena->mem);
  const bool *live = rm_live(&tmp, g);
  for (uint32_t n = 0; n < g->node_count; n++)
    if (live[n]) sum = cost_add(sum, rm_cost(g, n, env));
  arena_free(&tmp);
  return sum;
}

/* ---- what there is to choose about, found once for many prices */

typedef struct Choose {
  const Graph *g;
  const int64_t *env;
  Arena *a;
  uint8_t *written;
  bool *condition, *shifted; /* shifted: as written, see rm_shifted */
  uint32_t *need, *again;    /* vertices, by slot and by node; 0 = none */
  uint32_t count;            /* of vertices */
  int64_t *bytes, *cost;     /* by slot, by node */
  Val *used;
  size_t used_count, used_cap; /* values that backward reads; some stand several times */
} Choose;
enum { SOURCE = 1, SINK = 2, FIRST = 3, DISLIKE = 4 };

static uint32_t top_of(const Graph *g, uint32_t n) {
  return rm_top(g, rm_home(g, n));
}

/* Marks the values that are kept in any case: outputs, values that outside nodes read in the
 * backward, values that other blocks may be computed from, and values that are firmly offloaded. */
static bool *there_anyway(const Choose *c, const bool *live, const uint32_t *top) {
  const Graph *g = c->g;
  bool *there = ARENA_ARRAY(c->a, bool, g->type_count + 1);
  for (size_t k = 0; k < g->output_count; k++) there[rm_slot(g, g->outputs[k])] = true;
  for (uint32_t n = 0; n < g->node_count; n++) {
    const Prov *p = &g->provs[g->nodes[n].prov];
    for (uint32_t k = 0; live[n] && k < g->nodes[n].operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      uint32_t t = top[v.node];
      if (t && t != top[n] && (top[n] || p->backward) && !rm_is_use(g, n, t))
        there[rm_slot(g, v)] = true;
    }
  }
  for (uint32_t n = 0; n < g->node_count; n++) {
    bool firm = tag_info[g->provs[g->nodes[n].prov].tag].firm;
    for (uint32_t k = 0; firm && k < g->nodes[n].result_count; k++) {
      size_t s = g->nodes[n].result0 + k;
      there[s] |= c->written[s] == CHOICE_OFFLOAD;
      if (rm_narrow(g, (Val){n, k}) != DT_BOOL) there[s] = false; /* that is the wide one */
    }
  }
  return there;
}

/* Bytes that v takes from forward to backward. */
static int64_t room(const Graph *g, Val v, const int64_t *env) {
  Type as[2];
  int64_t sum = 0;
  for (int k = rm_saved_as(g, v, as); k-- > 0;) sum = cost_add(sum, cost_room(g, &as[k], env));
  return sum;
}

static void look_at(Choose *c, Arena *a, const Graph *g, const int64_t *env) {
  *c = (Choose){.g = g, .env = env, .a = a, .count = FIRST};
  c->written = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  rm_written(g, c->written);
  c->need = ARENA_ARRAY(a, uint32_t, g->type_count + 1);
  c->again = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  if (!g->blocks) return;
  const bool *live = rm_live(a, g);
  uint32_t *top = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) top[n] = top_of(g, n);
  const bool *there = there_anyway(c, live, top);
  c->condition = rm_conditions(a, g, &c->shifted);
  c->bytes = ARENA_ARRAY(a, int64_t, g->type_count + 1);
  c->cost = ARENA_ARRAY(a, int64_t, g->node_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    bool body = live[n] && top[n] && node->op != OP_CONST && node->op != OP_DIM;
    if (body) c->again[n] = c->count++;
    if (body) c->cost[n] = rm_cost(g, n, env);
    for (uint32_t k = 0; body && k < node->result_count; k++) {
      size_t s = node->result0 + k;
      if (!there[s]) c->need[s] = c->count++;
      c->bytes[s] = room(g, (Val){n, k}, env);
    }
    for (uint32_t k = 0; live[n] && k < node->operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      if (c->need[rm_slot(g, v)] && rm_is_use(g, n, top[v.node]))
        VEC_PUSH(a, c->used, c->used_count, c->used_cap, v);
    }
  }
}

/* ---- the cut */

static int64_t priced(const Choose *c, size_t slot, double price) {
  double x = price * (double)c->bytes[slot];
  return x < 0 ? 0 : x >= (double)(CUT_INF / 64) ? CUT_INF / 64 : (int64_t)x;
}

static int64_t disliked(int64_t x, bool yes) {
  x = yes ? cost_mul(x, DISLIKE) : x;
  return x < CUT_INF / 64 ? x : CUT_INF / 64;
}

static bool is_kept(const Choose *c, uint32_t n, size_t slot) {
  return rm_never(c->g, n) || c->condition[slot];
}

static void add_arcs(const Choose *c, Cut *cut, uint32_t n, double price) {
  const Graph *g = c->g;
  const GNode *node = &g->nodes[n];
  uint32_t again = c->again[n], top = top_of(g, n);
  /* The clauses of an inner block hold inside of it. */
  Tag tag = rm_home(g, n) == top ? (Tag)g->provs[node->prov].tag : TAG_NONE;
  bool never = tag_must(tag, CHOICE_SAVE);
  bool whole = gr_block_at(g, top)->reentrant && !never; /* only its clauses decide */
  /* A tag that agrees with the block's default is no preference. */
  bool saves = gr_block_at(g, rm_home(g, n))->saves;
  for (uint32_t k = 0; k < node->result_count; k++) {
    size_t s = node->result0 + k;
    bool kept = is_kept(c, n, s);
    int64_t keep = disliked(priced(c, s, price), tag_prefers(tag, CHOICE_RECOMPUTE) && saves);
    if (rm_is_free(g, n) && !tag_must(tag, CHOICE_SAVE)) keep = CUT_INF;
    bool fixed = c->shifted[s], saved = c->written[s] == CHOICE_SAVE;
    if ((tag_must(tag, CHOICE_RECOMPUTE) || whole || (fixed && !saved)) && !kept) keep = CUT_INF;
    never |= kept || (fixed && saved);
    if (c->need[s]) cut_arc(cut, c->need[s], again, keep);
  }
  int64_t make = disliked(c->cost[n], tag_prefers(tag, CHOICE_SAVE) && !saves);
  cut_arc(cut, again, SINK, never ? CUT_INF : make);
  for (uint32_t k = 0; k < node->operand_count; k++) {
    Val u = gr_operand(g, n, (int)k);
    if (c->need[rm_slot(g, u)] && top_of(g, u.node) == top)
      cut_arc(cut, again, c->need[rm_slot(g, u)], CUT_INF);
  }
}

static void cut_at(const Choose *c, Arena *scratch, double price, uint8_t *choice) {
  const Graph *g = c->g;
  memcpy(choice, c->written, g->type_count);
  if (!g->blocks) return;
  Cut cut;
  cut_open(&cut, scratch, c->count);
  for (uint32_t n = 0; n < g->node_count; n++)
    if (c->again[n]) add_arcs(c, &cut, n, price);
  for (size_t k = 0; k < c->used_count; k++)
    cut_arc(&cut, SOURCE, c->need[rm_slot(g, c->used[k])], CUT_INF);
  bool *side = ARENA_ARRAY(scratch, bool, c->count + 1);
  cut_run(&cut, SOURCE, SINK, side);
  for (uint32_t n = 0; n < g->node_count; n++) {
    for (uint32_t k = 0; c->again[n] && k < g->nodes[n].result_count; k++) {
      size_t s = g->nodes[n].result0 + k;
      if (c->need[s] && side[c->need[s]] && choice[s] != CHOICE_FREE)
        choice[s] = side[c->again[n]] ? CHOICE_RECOMPUTE : CHOICE_SAVE;
    }
  }
}

void rm_cut(Arena *scratch, const Graph *g, const int64_t *env, double price, uint8_t *choice) {
  Choose c;
  look_at(&c, scratch, g, env);
  cut_at(&c, scratch, price, choice);
}

/* The price of a choice in the model of the cut. `kept` (may be NULL) gets the values it keeps. */
static RmPrice bill(const Choose *c, Arena *scratch, const uint8_t *choice, bool *kept) {
  const Graph *g = c->g;
  RmPrice sum = {0};
  bool *seen = ARENA_ARRAY(scratch, bool, g->type_count + 1);
  bool *made = ARENA_ARRAY(scratch, bool, g->node_count + 1);
  Val *stack = ARENA_ARRAY(scratch, Val, g->type_count + 1);
  for (size_t k = 0, n = 0; k < c->used_count; k++) {
    stack[n++] = c->used[k];
    while (n) {
      Val v = stack[--n];
      size_t s = rm_slot(g, v);
      if (seen[s]) continue;
      seen[s] = true;
      if (choice[s] == CHOICE_OFFLOAD) { /* is read and written on the way out and back */
        sum.time = cost_add(sum.time, cost_mul(c->bytes[s], 4 * BYTE_COST));
        continue;
      }
      if (choice[s] == CHOICE_SAVE || is_kept(c, v.node, s)) {
        sum.bytes = cost_add(sum.bytes, c->bytes[s]);
        if (kept) kept[s] = true;
        continue;
      }
      if (made[v.node]) continue;
      made[v.node] = true;
      sum.time = cost_add(sum.time, c->cost[v.node]);
      for (uint32_t q = 0; q < g->nodes[v.node].operand_count; q++) {
        Val u = gr_operand(g, v.node, (int)q);
        size_t t = rm_slot(g, u);
        if (c->need[t] && !seen[t] && top_of(g, u.node) == top_of(g, v.node)) stack[n++] = u;
      }
    }
  }
  return sum;
}

RmPrice rm_price(Arena *scratch, const Graph *g, const int64_t *env, const uint8_t *choice) {
  Choose c;
  look_at(&c, scratch, g, env);
  return bill(&c, scratch, choice, NULL);
}

bool *rm_kept(Arena *a, const Graph *g, const int64_t *env, const uint8_t *choice) {
  Choose c;
  look_at(&c, a, g, env);
  bool *kept = ARENA_ARRAY(a, bool, g->type_count + 1);
  bill(&c, a, choice, kept);
  return kept;
}

int rm_within(Arena *scratch, const Graph *g, const int64_t *env, int64_t time, uint8_t *choice) {
  enum { LOOKED = 9 };
  Choose c;
  look_at(&c, scratch, g, env);
  uint8_t *now = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  uint8_t *beyond = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  double low = -8, high = 12; /* of the logarithm of the price */
  rm_all(g, CHOICE_SAVE, choice);
  rm_all(g, CHOICE_RECOMPUTE, beyond);
  for (int i = 0; i < LOOKED; i++) {
    ArenaMark mark = arena_mark(scratch);
    double middle = (low + high) / 2;
    cut_at(&c, scratch, exp2(middle), now);
    bool within = bill(&c, scratch, now, NULL).time <= time;
    arena_rewind(scratch, mark);
    *(within ? &low : &high) = middle;
    memcpy(within ? choice : beyond, now, g->type_count);
  }
  /* Equal layers change sides at one price: the first of them, which live longest, go further. */
  uint32_t from = 0, to = (uint32_t)g->node_count;
  int64_t bytes = bill(&c, scratch, choice, NULL).bytes;
  uint8_t *best = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  memcpy(best, choice, g->type_count);
  for (int i = 0; i < LOOKED && from + 1 < to; i++) {
    ArenaMark mark = arena_mark(scratch);
    uint32_t middle = from + (to - from) / 2;
    memcpy(now, choice, g->type_count);
    memcpy(now, beyond, g->nodes[middle].result0); /* of nodes before it */
    RmPrice p = bill(&c, scratch, now, NULL);
    arena_rewind(scratch, mark);
    *(p.time <= time ? &from : &to) = middle;
    if (p.time > time || p.bytes >= bytes) continue;
    memcpy(best, now, g->type_count);
    bytes = p.bytes;
  }
  memcpy(choice, best, g->type_count);
  return LOOKED;
}

/* ---- the ladder */

typedef struct Ladder {
  Arena *a, scratch;
  Choose c;
  const Graph *g;
  const int64_t *env;
  size_t most, count;
  uint8_t **choice;
  RmPrice *price;
  RmPrice range; /* the largest difference of two plans */
} Ladder;

static RmPrice price_of(Ladder *l, const uint8_t *choice) {
  ArenaMark mark = arena_mark(&l->scratch);
  RmPrice p = bill(&l->c, &l->scratch, choice, NULL);
  arena_rewind(&l->scratch, mark);
  return p;
}

/* Adds a choice unless one with its price exists. Returns whether it was added. */
static bool add_rung(Ladder *l, const uint8_t *choice) {
  RmPrice p = price_of(l, choice);
  for (size_t k = 0; k < l->count; k++)
    if (l->price[k].bytes == p.bytes && l->price[k].time == p.time) return false;
  if (l->count == l->most) return false;
  l->choice[l->count] = ARENA_ARRAY(l->a, uint8_t, l->g->type_count + 1);
  memcpy(l->choice[l->count], choice, l->g->type_count);
  l->price[l->count++] = p;
  return true;
}

/* Whether two prices are so near that a plan between them does not matter. */
static bool near_by(const Ladder *l, size_t small, size_t fast) {
  enum { PART = 50 };
  int64_t bytes = l->price[fast].bytes - l->price[small].bytes;
  int64_t time = l->price[small].time - l->price[fast].time;
  return bytes <= l->range.bytes / PART || time <= l->range.time / PART;
}

/* Cuts for the price at which plans `small` and `fast` cost the same, until no plan is below the
 * line between them. This finds the corners of the hull. */
static void between(Ladder *l, size_t small, size_t fast, int depth) {
  if (depth == 0 || near_by(l, small, fast)) return;
  double bytes = (double)(l->price[fast].bytes - l->price[small].bytes);
  double time = (double)(l->price[small].time - l->price[fast].time);
  uint8_t *choice = ARENA_ARRAY(l->a, uint8_t, l->g->type_count + 1);
  ArenaMark mark = arena_mark(&l->scratch);
  cut_at(&l->c, &l->scratch, time / bytes, choice);
  arena_rewind(&l->scratch, mark);
  size_t k = l->count;
  if (!add_rung(l, choice)) return;
  between(l, small, k, depth - 1);
  between(l, k, fast, depth - 1);
}

/* ---- plans inside of the hull: on the way from one plan to another, values change sides one after
 * the other */

/* Whether a gain of a units for a price of b is better than c for d. */
static bool worth(int64_t a, int64_t b, int64_t c, int64_t d) {
  if (b <= 0 || d <= 0) return b < d || (b == d && a > c);
  return (double)a * (double)d > (double)c * (double)b;
}

/* Copies the choices of node n's values from plan `to`. False if they are equal. */
static bool follow(const Ladder *l, uint32_t n, const uint8_t *to, uint8_t *choice) {
  bool any = false;
  for (uint32_t k = 0; k < l->g->nodes[n].result_count; k++) {
    size_t s = l->g->nodes[n].result0 + k;
    any |= choice[s] != to[s];
    choice[s] = to[s];
  }
  return any;
}

/* Each step changes the node with the largest gain. If few values differ, the gain is that of the
 * whole plan, and each plan tried is added; else it is the node's own. */
static void walk(Ladder *l, size_t from, size_t goal) {
  enum { FEW = 12, STEPS = 3 };
  const Graph *g = l->g;
  const uint8_t *to = l->choice[goal];
  bool up = l->price[goal].bytes > l->price[from].bytes;
  uint8_t *now = ARENA_ARRAY(l->a, uint8_t, g->type_count + 1);
  uint8_t *next = ARENA_ARRAY(l->a, uint8_t, g->type_count + 1);
  uint32_t *node = ARENA_ARRAY(l->a, uint32_t, g->node_count + 1), count = 0;
  memcpy(now, l->choice[from], g->type_count);
  memcpy(next, now, g->type_count);
  for (uint32_t n = 0; n < g->node_count; n++)
    if (follow(l, n, to, next)) node[count++] = n;
  for (uint32_t done = 0; done + 1 < count && l->count < l->most; done++) {
    uint32_t best = done;
    int64_t bytes0 = 0, time0 = 0;
    RmPrice was = count <= FEW ? price_of(l, now) : (RmPrice){0};
    for (uint32_t k = done; k < count; k++) {
      int64_t bytes = cost_room(g, gr_type(g, (Val){node[k], 0}), l->env),
              time = rm_cost(g, node[k], l->env);
      if (count <= FEW) {
        memcpy(next, now, g->type_count);
        follow(l, node[k], to, next);
        RmPrice p = price_of(l, next);
        add_rung(l, next);
        bytes = up ? p.bytes - was.bytes : was.bytes - p.bytes;
        time = up ? was.time - p.time : p.time - was.time;
      }
      if (k > done && !(up ? worth(time, bytes, time0, bytes0) : worth(bytes, time, bytes0, time0)))
        continue;
      best = k;
      bytes0 = bytes;
      time0 = time;
    }
    uint32_t n = node[best];
    node[best] = node[done];
    node[done] = n;
    follow(l, n, to, now);
    if ((done + 1) * (STEPS + 1) / count != done * (STEPS + 1) / count) add_rung(l, now);
  }
}

/* Lists the plans that no other one beats in `rung`, by rising bytes. Returns their number. */
static size_t frontier(const Ladder *l, size_t *rung) {
  size_t n = 0;
  for (size_t k = 0; k < l->count; k++) {
    bool beaten = false;
    for (size_t i = 0; i < l->count && !beaten; i++) {
      RmPrice p = l->price[k], q = l->price[i];
      beaten = i != k && q.bytes <= p.bytes && q.time <= p.time;
    }
    if (beaten) continue;
    size_t at = n++;
    for (; at && l->price[rung[at - 1]].bytes > l->price[k].bytes; at--) rung[at] = rung[at - 1];
    rung[at] = k;
  }
  return n;
}

static void climb(void *ud) {
  Ladder *l = ud;
  uint8_t *choice = ARENA_ARRAY(l->a, uint8_t, l->g->type_count + 1);
  size_t *rung = ARENA_ARRAY(l->a, size_t, l->most + 1);
  look_at(&l->c, &l->scratch, l->g, l->env);
  add_rung(l, l->c.written);
  if (!l->g->blocks) return;
  rm_all(l->g, CHOICE_SAVE, choice);
  add_rung(l, choice);
  rm_all(l->g, CHOICE_RECOMPUTE, choice);
  add_rung(l, choice);
  size_t n = frontier(l, rung);
  if (n < 2) return;
  size_t small = rung[0], fast = rung[n - 1];
  l->range = (RmPrice){l->price[fast].bytes - l->price[small].bytes,
                       l->price[small].time - l->price[fast].time};
  between(l, small, fast, 6);
  n = frontier(l, rung);
  for (size_t k = 0; k + 1 < n; k++) {
    if (near_by(l, rung[k], rung[k + 1])) continue;
    walk(l, rung[k], rung[k + 1]);
    walk(l, rung[k + 1], rung[k]);
  }
  walk(l, small, fast);
  walk(l, fast, small);
}

size_t rm_ladder(Arena *a, const Graph *g, const int64_t *env, size_t most, uint8_t **choices) {
  Ladder l = {.a = a, .g = g, .env = env, .most = most, .choice = choices};
  l.price = ARENA_ARRAY(a, RmPrice, most + 1);
  arena_init(&l.scratch, a->mem);
  int code = mem_protect(a->mem, climb, &l);
  arena_free(&l.scratch);
  if (code != MEM_OK) mem_throw(a->mem, code);
  return l.count;
}
