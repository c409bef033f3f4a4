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
 * Yu 2022). A rising price gives smaller plans, one on the lower hull of bytes and time each.
 *
 * What a block reads from outside is kept by others and free here. A view is never kept itself.
 */
#include <string.h>

#include "autograd/mincut.h"
#include "autograd/remat_impl.h"

/* -- sizes and costs */

enum { BYTE_COST = 2, TURNS = 8 }; /* TURNS: of a loop whose count is not known */
static const int64_t MOST = INT64_MAX / 4;

static int64_t times(int64_t a, int64_t b)
{
  int64_t x;
  return __builtin_mul_overflow(a, b, &x) || x > MOST ? MOST : x;
}

static int64_t plus(int64_t a, int64_t b)
{
  int64_t x;
  return __builtin_add_overflow(a, b, &x) || x > MOST ? MOST : x;
}

static int64_t dim_at(const Graph *g, Dim d, const int64_t *env)
{
  int64_t n;
  return dim_eval(g->dims, d, env, NULL, &n) && n > 0 ? n : 0;
}

static int64_t elements(const Graph *g, const Type *t, const int64_t *env)
{
  int64_t n = 1;
  for (int k = 0; k < t->rank; k++) n = times(n, dim_at(g, t->dim[k], env));
  return t->kind == TK_TENSOR ? n : 0;
}

static int64_t bytes_of(const Graph *g, const Type *t, const int64_t *env)
{
  return times(elements(g, t, env), (int64_t)dt_size((DType)t->dtype));
}

int64_t rm_bytes(const Graph *g, Val v, const int64_t *env)
{
  int64_t n = bytes_of(g, gr_type(g, v), env);
  return n / 64 * 64 + (n % 64 ? 64 : 0);
}

/* Products that a contraction makes for each element of its result. */
static int64_t products(const Graph *g, uint32_t n, const int64_t *env)
{
  const Type *a = gr_type(g, gr_operand(g, n, 0)), *b = gr_type(g, gr_operand(g, n, 1));
  int64_t p = 1;
  switch ((OpCode)g->nodes[n].op) {
  case OP_DOT:
  case OP_INNER: return a->rank ? dim_at(g, a->dim[a->rank - 1], env) : 1;
  case OP_CONV2D: /* channels, height, width of the kernel */
    for (int k = 1; k < 4; k++) p = times(p, dim_at(g, b->dim[k], env));
    return p;
  case OP_CONV2D_INPUT: /* outputs, height, width of the kernel */
    for (int k = 0; k < 4; k++) p = times(p, k == 1 ? 1 : dim_at(g, b->dim[k], env));
    return p;
  case OP_CONV2D_WEIGHT: /* images, height, width of the result */
    for (int k = 0; k < 4; k++) p = times(p, k == 1 ? 1 : dim_at(g, b->dim[k], env));
    return p;
  default: return 1;
  }
}

static int64_t body_time(const Graph *g, const int64_t *env)
{
  int64_t sum = 0;
  for (uint32_t n = 0; n < g->node_count; n++) sum = plus(sum, rm_cost(g, n, env));
  return sum;
}

/* Nodes with regions. */
static int64_t region_cost(const Graph *g, uint32_t n, const int64_t *env)
{
  const GNode *node = &g->nodes[n];
  int64_t first = body_time(g->regions[node->region0], env), turns = 1;
  if (node->op == OP_BRANCH) {
    int64_t other = body_time(g->regions[node->region0 + 1], env);
    return first > other ? first : other;
  }
  if (node->op == OP_MAP) {
    const Type *t = gr_type(g, gr_operand(g, n, 0));
    turns = t->rank ? dim_at(g, t->dim[0], env) : 1;
  }
  if (node->op == OP_LOOP) {
    Val count = gr_operand(g, n, 0);
    turns = TURNS;
    if (g->nodes[count.node].op == OP_CONST)
      turns = gr_attr_i(g, count.node, AT_VALUE, TURNS);
    else if (g->nodes[count.node].op == OP_DIM)
      turns = dim_at(g, (Dim)gr_attr_i(g, count.node, AT_SIZE, 0), env);
  }
  return times(first, turns < 0 ? 0 : turns);
}

int64_t rm_cost(const Graph *g, uint32_t n, const int64_t *env)
{
  const GNode *node = &g->nodes[n];
  const OpInfo *op = &op_info[node->op];
  if (op->remat == REMAT_FREE || op->cls == EFFECT || node->op == OP_INPUT) return 0;
  if (node->region_count) return region_cost(g, n, env);
  int64_t out = 0, in = 0, moved = 0;
  for (uint32_t k = 0; k < node->result_count; k++) {
    out = plus(out, elements(g, &g->types[node->result0 + k], env));
    moved = plus(moved, bytes_of(g, &g->types[node->result0 + k], env));
  }
  for (uint32_t k = 0; k < node->operand_count; k++) {
    const Type *t = gr_type(g, gr_operand(g, n, (int)k));
    in = plus(in, elements(g, t, env));
    moved = plus(moved, bytes_of(g, t, env));
  }
  int64_t work = times(op->cls == REDUCE || in > out ? in : out, op->cost);
  if (op->cls == CONTRACT) work = times(times(out, products(g, n, env)), op->cost);
  return plus(plus(work, times(moved, BYTE_COST)), 1);
}

int64_t rm_time(const Graph *g, const int64_t *env)
{
  int64_t sum = 0;
  Arena tmp;
  arena_init(&tmp, g->arena->mem);
  const bool *live = rm_live(&tmp, g);
  for (uint32_t n = 0; n < g->node_count; n++)
    if (live[n]) sum = plus(sum, rm_cost(g, n, env));
  arena_free(&tmp);
  return sum;
}

/* -- the cut */

typedef struct Choose {
  const Graph *g;
  const int64_t *env;
  double price;
  Cut cut;
  uint32_t *need, *again; /* vertices, by slot and by node; 0 = none */
} Choose;
enum { SOURCE = 1, SINK = 2, FIRST = 3, DISLIKE = 4 };

static uint32_t top_of(const Graph *g, uint32_t n)
{
  return rm_top(g, rm_home(g, n));
}

static int64_t priced(const Choose *c, Val v)
{
  double x = c->price * (double)rm_bytes(c->g, v, c->env);
  return x < 0 ? 0 : x >= (double)(CUT_INF / 64) ? CUT_INF / 64 : (int64_t)x;
}

static int64_t disliked(int64_t x, bool yes)
{
  return yes ? times(x, DISLIKE) : x;
}

static int64_t capped(int64_t x)
{
  return x < CUT_INF / 64 ? x : CUT_INF / 64;
}

static void add_arcs(Choose *c, uint32_t n, const bool *condition)
{
  const Graph *g = c->g;
  const GNode *node = &g->nodes[n];
  uint32_t again = c->again[n], top = top_of(g, n);
  Tag tag = rm_says(g, n, top) ? (Tag)g->provs[node->prov].tag : TAG_NONE;
  bool never = rm_never(g, n) || tag == TAG_MUST_SAVE;
  for (uint32_t k = 0; k < node->result_count; k++) {
    Val v = {n, k};
    int64_t keep = capped(disliked(priced(c, v), tag == TAG_PREFER_RECOMPUTE));
    if (rm_is_free(g, n) && tag != TAG_MUST_SAVE) keep = CUT_INF;
    if (tag == TAG_MUST_RECOMPUTE && !never) keep = CUT_INF;
    never |= condition[rm_slot(g, v)];
    if (c->need[rm_slot(g, v)]) cut_arc(&c->cut, c->need[rm_slot(g, v)], again, keep);
  }
  int64_t make = capped(disliked(rm_cost(g, n, c->env), tag == TAG_PREFER_SAVE));
  cut_arc(&c->cut, again, SINK, never ? CUT_INF : make);
  for (uint32_t k = 0; k < node->operand_count; k++) {
    Val u = gr_operand(g, n, (int)k);
    if (top_of(g, u.node) == top && c->need[rm_slot(g, u)])
      cut_arc(&c->cut, again, c->need[rm_slot(g, u)], CUT_INF);
  }
}

/* Whether backward node n reads values of block `top` as part of that block's gradient. */
static bool is_use(const Graph *g, uint32_t n, uint32_t top)
{
  const Prov *p = &g->provs[g->nodes[n].prov];
  return p->backward && gr_block_inside(g, p->region, top) && !gr_block_inside(g, p->within, top);
}

/* What is there anyway: outputs, what nodes outside read in the backward, what other blocks may
 * be made of, and what is offloaded. */
static bool *there_anyway(Choose *c, Arena *a, const bool *live, const uint8_t *choice)
{
  const Graph *g = c->g;
  bool *there = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (size_t k = 0; k < g->output_count; k++) there[rm_slot(g, g->outputs[k])] = true;
  for (uint32_t n = 0; n < g->node_count; n++) {
    const Prov *p = &g->provs[g->nodes[n].prov];
    uint32_t own = top_of(g, n);
    for (uint32_t k = 0; live[n] && k < g->nodes[n].operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      uint32_t top = top_of(g, v.node);
      if (top && top != own && (own || p->backward) && !is_use(g, n, top))
        there[rm_slot(g, v)] = true;
    }
  }
  for (size_t k = 0; k < g->type_count; k++) there[k] |= choice[k] == CHOICE_OFFLOAD;
  return there;
}

void rm_cut(Arena *scratch, const Graph *g, const int64_t *env, double price, uint8_t *choice)
{
  Choose c = {.g = g, .env = env, .price = price};
  rm_written(g, choice);
  if (!g->blocks) return;
  const bool *live = rm_live(scratch, g), *condition = rm_conditions(scratch, g);
  const bool *there = there_anyway(&c, scratch, live, choice);
  uint32_t count = FIRST;
  c.need = ARENA_ARRAY(scratch, uint32_t, g->type_count + 1);
  c.again = ARENA_ARRAY(scratch, uint32_t, g->node_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) {
    OpCode op = (OpCode)g->nodes[n].op;
    if (!live[n] || !top_of(g, n) || op == OP_CONST || op == OP_DIM) continue;
    c.again[n] = count++;
    for (uint32_t k = 0; k < g->nodes[n].result_count; k++)
      if (!there[g->nodes[n].result0 + k]) c.need[g->nodes[n].result0 + k] = count++;
  }
  cut_open(&c.cut, scratch, count);
  for (uint32_t n = 0; n < g->node_count; n++) {
    if (c.again[n]) add_arcs(&c, n, condition);
    for (uint32_t k = 0; live[n] && k < g->nodes[n].operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      uint32_t top = top_of(g, v.node), need = c.need[rm_slot(g, v)];
      if (need && is_use(g, n, top)) cut_arc(&c.cut, SOURCE, need, CUT_INF);
    }
  }
  bool *side = ARENA_ARRAY(scratch, bool, count + 1);
  cut_run(&c.cut, SOURCE, SINK, side);
  for (uint32_t n = 0; n < g->node_count; n++) {
    for (uint32_t k = 0; c.again[n] && k < g->nodes[n].result_count; k++) {
      size_t s = g->nodes[n].result0 + k;
      if (c.need[s] && side[c.need[s]] && choice[s] != CHOICE_FREE)
        choice[s] = side[c.again[n]] ? CHOICE_REMAKE : CHOICE_SAVE;
    }
  }
}
