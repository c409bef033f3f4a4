/* What loops keep of their turns, where a plan decides about that.
 *
 * In: a graph with forward and backward, and sizes. Out: schedules for its loops, from the one that
 * keeps all rows to those that keep few states and run turns again (graph/replay.h), by rising time
 * and falling memory. The ways of one loop are those that no other one of it beats; of several
 * loops, the one whose next way costs the least time for a byte goes first.
 */
#include <math.h>

#include "autograd/remat.h"
#include "graph/build.h"
#include "graph/cost.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/replay.h"

/* One way to keep the turns of a loop: bytes that it holds, time of the turns that run again. */
typedef struct Way {
  ReplayKeeps keeps;
  int64_t bytes, time;
} Way;

enum { WAYS = 9, TYPICAL_TURNS = 1000 };
static const int64_t TOO_MUCH = INT64_MAX / 64; /* bytes */
typedef struct Loop {
  uint32_t node;
  Way way[WAYS];
  size_t count, now;
} Loop;

static Val base_of(const Graph *g, Val v) {
  while (g->nodes[v.node].op == OP_ALIAS || g->nodes[v.node].op == OP_STOP)
    v = gr_operand(g, v.node, 0);
  return v;
}

/* Bytes of a value of the body, and of what it stands for; -1: not known. */
static int64_t row_bytes(const Graph *g, Val v, const int64_t *env) {
  stack_check();
  if (gr_type(g, v)->kind != TK_STASH) return cost_bytes(g, gr_type(g, v), env);
  if (g->nodes[v.node].op != OP_LOOP) return -1;
  const Graph *body = g->regions[g->nodes[v.node].region0];
  size_t k = v.res - (gr_attr(g, v.node, AT_WHILE) != NULL);
  int64_t turns = cost_turns(g, v.node, env), row = row_bytes(body, body->outputs[k], env);
  return turns < 0 || row < 0 ? -1 : cost_mul(turns, row);
}

/* Whether an output of a body takes no memory of its own in each turn: an earlier one from `first`
 * on is the same value, or it is what all turns read. */
static bool shares(const Graph *body, int64_t first, int64_t i, int64_t carry) {
  Val v = base_of(body, body->outputs[i]);
  if (body->nodes[v.node].op == OP_INPUT && gr_attr_i(body, v.node, AT_INDEX, 0) > carry)
    return true;
  for (int64_t k = first; k < i; k++)
    if (val_eq(base_of(body, body->outputs[k]), v)) return true;
  return false;
}

static void add_way(Loop *l, ReplayKeeps keeps, int64_t bytes, int64_t time) {
  for (size_t i = 0; i < l->count; i++)
    if (l->way[i].bytes <= bytes) return;
  l->way[l->count++] = (Way){keeps, bytes, time};
}

/* Lists the ways of a loop. False if there is one at most. */
static bool find_ways(const Graph *g, uint32_t node, RmOpen open, const bool *used,
                      const int64_t *env, Loop *l) {
  static const int64_t states[] = {64, 32, 16, 8, 4, 2, 1};
  const GNode *n = &g->nodes[node];
  if (n->op != OP_LOOP || !gr_attr(g, node, AT_AGAIN) || gr_again(g, node)) return false;
  const Graph *body = g->regions[n->region0];
  int64_t turns = cost_turns(g, node, env), first = gr_attr_i(g, node, AT_AGAIN, 0);
  int64_t carry = gr_attr_i(g, node, AT_CARRY, 0), state = 0, row = 0;
  bool goes_on = gr_attr(g, node, AT_WHILE) != NULL;
  for (int64_t i = 0; i < (int64_t)body->output_count; i++) {
    bool read = i >= first && used[n->result0 + (uint32_t)i + goes_on];
    if (i >= carry && (!read || shares(body, first, i, carry))) continue;
    int64_t bytes = row_bytes(body, body->outputs[i], env);
    if (bytes < 0) return false;
    *(i < carry ? &state : &row) += bytes;
  }
  if ((turns >= 0 ? turns < 2 : open != LOOP_BOUNDED) || !row) return false;
  *l = (Loop){.node = node};
  bool known = turns >= 0;
  if (!known) turns = TYPICAL_TURNS;
  int64_t each = rm_cost(g, node, env) / turns;
  double parts = sqrt((double)turns * (double)state / (double)row);
  int64_t every = parts < 1 ? 1 : parts > (double)turns ? turns : (int64_t)parts;
  add_way(l, (ReplayKeeps){0, 0}, known ? cost_mul(turns, row) : TOO_MUCH, 0);
  int64_t held = cost_add(cost_mul(turns / every + 2, state), cost_mul(every, row));
  ReplayKeeps keeps = {0, every};
  if (known) add_way(l, keeps, held, cost_mul(replay_turns(turns, keeps), each));
  for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
    keeps = (ReplayKeeps){states[k], 0};
    if (states[k] >= turns - 1) continue;
    held = cost_add(cost_mul(states[k] + 2, state), row);
    add_way(l, keeps, held, cost_mul(replay_turns(turns, keeps), each));
  }
  return l->count > 1;
}

static RmSchedule schedule_of(Arena *a, const Loop *loops, size_t count) {
  RmSchedule s = {.count = count};
  RmTurns *turns = ARENA_ARRAY(a, RmTurns, count + 1);
  for (size_t i = 0; i < count; i++) {
    const Way *w = &loops[i].way[loops[i].now];
    turns[i] = (RmTurns){loops[i].node, w->keeps};
    s.bytes = cost_add(s.bytes, w->bytes);
    s.time = cost_add(s.time, w->time);
  }
  s.turns = turns;
  return s;
}

/* The loop whose next way costs the least time for a byte; NULL: there is none. */
static Loop *next_way(Loop *loops, size_t count) {
  Loop *best = NULL;
  double least = 0;
  for (size_t i = 0; i < count; i++) {
    Loop *l = &loops[i];
    if (l->now + 1 == l->count) continue;
    const Way *from = &l->way[l->now], *to = from + 1;
    double price = (double)(to->time - from->time) / (double)(from->bytes - to->bytes);
    if (best && price >= least) continue;
    best = l;
    least = price;
  }
  return best;
}

size_t rm_schedules(Arena *a, const Graph *g, const int64_t *env, const RmOpen *open, size_t most,
                    RmSchedule *out) {
  Loop *loops = NULL, one;
  size_t count = 0, cap = 0, steps = 0, n = 0;
  bool *used = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++) {
      Val v = gr_operand(g, i, (int)k);
      used[g->nodes[v.node].result0 + v.res] = true;
    }
  for (size_t i = 0; i < g->output_count; i++)
    used[g->nodes[g->outputs[i].node].result0 + g->outputs[i].res] = true;
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (open[i] == LOOP_CLOSED || !find_ways(g, i, open[i], used, env, &one)) continue;
    VEC_PUSH(a, loops, count, cap, one);
    steps += one.count - 1;
  }
  /* Each so many-th step is a schedule, and the last one. */
  size_t each = steps / (most - 1) + (steps % (most - 1) != 0);
  out[n++] = schedule_of(a, loops, count);
  for (size_t i = 1; i <= steps; i++) {
    next_way(loops, count)->now++;
    if (i % each == 0 || i == steps) out[n++] = schedule_of(a, loops, count);
  }
  return n;
}

Graph *rm_scheduled(Arena *a, const Graph *g, const RmSchedule *s) {
  Graph *d = gr_clone(a, g);
  for (size_t i = 0; i < s->count; i++) {
    ReplayKeeps k = s->turns[i].keeps;
    if (k.states) gr_set_attr(d, s->turns[i].node, attr_i(AT_STATES, k.states));
    if (k.every) gr_set_attr(d, s->turns[i].node, attr_i(AT_EVERY, k.every));
  }
  return d;
}
