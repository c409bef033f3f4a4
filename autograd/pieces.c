/* Candidate plans for `checkpoint` blocks that run again in pieces.
 *
 * In: a graph that holds forward and backward, sizes, and which blocks leave their values open.
 * Out: graphs with choices for rm_apply. A block is cut where few bytes cross from one node to the
 * next, which makes it a chain of stages; rotor.c has the plans for chains. A plan becomes a choice
 * in three ways: tapes of depth 0 and boundaries kept there are saved, all else is recomputed. That
 * alone runs it in pieces of depth 1, since rm_apply makes copies at their first use, and each use
 * comes when the backward reaches it. A piece of depth 2 or 3 is a block inside the block: in it
 * copies of the pieces around are made again (rule 85).
 *
 * A value that crosses many boundaries is kept at depth 0 by every plan, so it counts in none.
 *
 * Invariant: a piece holds a block of the user whole, or stands inside of it. */
#include <stdlib.h>
#include <string.h>

#include "autograd/remat_impl.h"
#include "autograd/rotor.h"
#include "graph/build.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "graph/structure.h"

enum {
  FAR = 4, /* boundaries that a value crosses to be kept by every plan */
  /* of longer chains fewer boundaries are looked at, so that the time of planning is linear */
  MOST_STAGES = 128,
  LEAST_WORTH = 64
};

typedef struct Chain {
  Arena *a;
  const Graph *g;
  const int64_t *env;
  uint32_t block;
  bool fine;                  /* boundaries may cost twice what a stage beside them leaves */
  const bool *live, *shifted; /* shifted: as written, see rm_shifted */
  uint32_t *body, count;      /* nodes of the block */
  Val *base;                  /* per entry of g->types: what a view is of */
  bool *used;                 /* likewise: a node of the gradient reads the value */
  uint32_t *first, *last;     /* likewise, in places of `body`: where it is made, and read last */
  bool *far;
  uint32_t *cut, cuts; /* places in `body`: a stage begins; cut[0] = 0 */
  uint32_t *stage;     /* per node: of the body, or of the gradient; NONE */
  RotorStage *stages;
} Chain;
enum { NONE = UINT32_MAX };

static int64_t room(const Chain *c, size_t slot) {
  return cost_room(c->g, &c->g->types[slot], c->env);
}

/* ---- the body, and what its gradient reads */

static void find_bases(Chain *c) {
  const Graph *g = c->g;
  c->base = ARENA_ARRAY(c->a, Val, g->type_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++)
    for (uint32_t k = 0; k < g->nodes[n].result_count; k++)
      c->base[g->nodes[n].result0 + k] =
          rm_is_view(g, n) ? c->base[rm_slot(g, gr_operand(g, n, 0))] : (Val){n, k};
}

static void look_at_body(Chain *c) {
  const Graph *g = c->g;
  find_bases(c);
  c->body = ARENA_ARRAY(c->a, uint32_t, g->node_count + 1);
  c->used = ARENA_ARRAY(c->a, bool, g->type_count + 1);
  c->first = ARENA_ARRAY(c->a, uint32_t, g->type_count + 1);
  c->last = ARENA_ARRAY(c->a, uint32_t, g->type_count + 1);
  c->far = ARENA_ARRAY(c->a, bool, g->type_count + 1);
  c->stage = ARENA_ARRAY(c->a, uint32_t, g->node_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    c->stage[n] = NONE;
    for (uint32_t k = 0; k < node->result_count; k++) c->first[node->result0 + k] = NONE;
    if (!c->live[n]) continue;
    bool body = rm_top(g, rm_home(g, n)) == c->block, use = rm_is_use(g, n, c->block);
    if (body) c->body[c->count] = n;
    for (uint32_t k = 0; (body || use) && k < node->operand_count; k++) {
      size_t s = rm_slot(g, c->base[rm_slot(g, gr_operand(g, n, (int)k))]);
      if (c->first[s] == NONE) continue; /* from outside */
      if (body) c->last[s] = c->count;
      c->used[s] |= use && !body;
    }
    if (!body) continue;
    for (uint32_t k = 0; k < node->result_count && !rm_is_free(g, n); k++) {
      c->first[node->result0 + k] = c->count;
      c->last[node->result0 + k] = c->count;
    }
    c->count++;
  }
}

/* ---- boundaries */

typedef struct Place {   /* between two nodes of the body */
  int64_t bytes, unused; /* that cross; those that the gradient does not read */
  uint64_t set;          /* a sum of hashes of the values that cross */
  bool inside;           /* of a block of the user */
} Place;

static void each_place(Chain *c, Place *at) {
  const Graph *g = c->g;
  for (size_t s = 0; s < g->type_count; s++) {
    if (c->first[s] == NONE || c->last[s] == c->first[s]) continue;
    int64_t bytes = room(c, s);
    uint64_t hash = (s + 1) * UINT64_C(0x9e3779b97f4a7c15);
    Place *from = &at[c->first[s] + 1], *to = &at[c->last[s] + 1]; /* differences, for now */
    from->bytes += bytes, to->bytes -= bytes;
    from->unused += c->used[s] ? 0 : bytes, to->unused -= c->used[s] ? 0 : bytes;
    from->set += hash, to->set -= hash;
  }
  for (uint32_t k = 1; k <= c->count; k++) {
    at[k].bytes += at[k - 1].bytes;
    at[k].unused += at[k - 1].unused;
    at[k].set += at[k - 1].set;
  }
  /* No place is inside of an inner block: from its first node to its last. */
  size_t blocks = g->blocks->count;
  uint32_t *lo = ARENA_ARRAY(c->a, uint32_t, blocks + 1),
           *end = ARENA_ARRAY(c->a, uint32_t, blocks + 1);
  for (uint32_t k = 0; k < c->count; k++) {
    uint32_t id = rm_home(g, c->body[k]);
    while (id != c->block && gr_block_at(g, id)->parent != c->block)
      id = gr_block_at(g, id)->parent;
    if (id == c->block) continue;
    if (!end[id]) lo[id] = k;
    end[id] = k + 1;
  }
  for (size_t id = 1; id <= blocks; id++)
    for (uint32_t k = lo[id] + 1; k < end[id]; k++) at[k].inside = true;
}

/* Whether fewer bytes cross at x than at y; what the gradient keeps anyway counts half. */
static bool fewer(const Place *x, const Place *y) {
  return x->bytes + x->unused < y->bytes + y->unused;
}

typedef struct Worth {         /* of a boundary */
  uint32_t cut, before, after; /* its number; those that remain beside it */
  int64_t bytes, tape;         /* that cross; of the stage that begins there */
} Worth;

static int by_bytes(const void *x, const void *y) {
  const Worth *a = *(Worth *const *)x, *b = *(Worth *const *)y;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->cut > b->cut ? -1 : a->cut < b->cut;
}

/* Drops boundaries that cost more than they give: a stage beside it leaves less than `times` half
 * of the bytes that cross. The worst goes first, since the stages beside it become one, which
 * leaves more. */
static void drop_cuts(Chain *c, const Place *at, int64_t times) {
  Worth *w = ARENA_ARRAY(c->a, Worth, c->cuts + 1);
  Worth **order = ARENA_ARRAY(c->a, Worth *, c->cuts + 1);
  c->cut[c->cuts] = c->count;
  for (uint32_t k = 0; k < c->cuts; k++) {
    w[k] = (Worth){.cut = k, .before = k - (k > 0), .after = k + 1, .bytes = at[c->cut[k]].bytes};
    order[k] = &w[k];
    for (uint32_t i = c->cut[k]; i < c->cut[k + 1]; i++)
      for (uint32_t r = 0; r < c->g->nodes[c->body[i]].result_count; r++) {
        size_t s = c->g->nodes[c->body[i]].result0 + r;
        if (c->used[s]) w[k].tape += room(c, s);
      }
  }
  qsort(order, c->cuts, sizeof *order, by_bytes);
  for (uint32_t i = 0; i < c->cuts; i++) {
    Worth *x = order[i], *before = &w[x->before];
    int64_t less = before->tape < x->tape ? before->tape : x->tape;
    if (!x->cut || less >= cost_mul(times, x->bytes) / 2) continue;
    before->tape += x->tape;
    before->after = x->after;
    w[x->after].before = x->before;
  }
  uint32_t left = 0;
  for (uint32_t k = 0; k < c->cuts; k = w[k].after) c->cut[left++] = c->cut[k];
  c->cuts = left;
}

/* Takes the places at which no more crosses than at both neighbours. Of neighbours at which the
 * same values cross, the last. */
static void find_cuts(Chain *c) {
  Place *at = ARENA_ARRAY(c->a, Place, c->count + 2), *way = ARENA_ARRAY(c->a, Place, c->count + 2);
  uint32_t *place = ARENA_ARRAY(c->a, uint32_t, c->count + 2), n = 0;
  each_place(c, at);
  for (uint32_t k = 1; k < c->count; k++) {
    if (at[k].inside || !at[k].bytes) continue;
    if (n && way[n - 1].set == at[k].set) n--;
    way[n] = at[k];
    place[n++] = k;
  }
  c->cut = ARENA_ARRAY(c->a, uint32_t, n + 2);
  c->cut[c->cuts++] = 0;
  for (uint32_t k = 0; k < n; k++) {
    bool least = !(k && fewer(&way[k - 1], &way[k])) && !(k + 1 < n && fewer(&way[k + 1], &way[k]));
    if (least) c->cut[c->cuts++] = place[k];
  }
  int64_t times = c->fine ? 1 : 2;
  do drop_cuts(c, at, times);
  while (c->cuts > MOST_STAGES && (times *= 2) <= LEAST_WORTH);
  /* Of too many, those at even distances. */
  if (c->cuts > MOST_STAGES) {
    for (uint32_t k = 1; k < MOST_STAGES; k++)
      c->cut[k] = c->cut[(uint64_t)k * c->cuts / MOST_STAGES];
    c->cuts = MOST_STAGES;
  }
  c->cut[c->cuts] = c->count;
}

/* ---- figures of stages */

/* The stages in which a value is made, and read last. */
static uint32_t first_stage(const Chain *c, size_t s) {
  return c->stage[c->body[c->first[s]]];
}

static uint32_t last_stage(const Chain *c, size_t s) {
  return c->stage[c->body[c->last[s]]];
}

/* The backward reaches stages from the last to the first. A node that reads a value belongs to the
 * value's stage, or to a later one that reads it in the forward; another to that of the node
 * before. */
static void find_stages(Chain *c) {
  const Graph *g = c->g;
  for (uint32_t k = 0; k < c->cuts; k++)
    for (uint32_t i = c->cut[k]; i < c->cut[k + 1]; i++) c->stage[c->body[i]] = k;
  for (size_t s = 0; s < g->type_count; s++)
    c->far[s] = c->first[s] != NONE && last_stage(c, s) - first_stage(c, s) >= FAR;
  uint32_t now = c->cuts - 1;
  for (uint32_t n = 0; n < g->node_count; n++) {
    if (!c->live[n] || !rm_is_use(g, n, c->block)) continue;
    uint32_t low = 0;
    for (uint32_t k = 0; k < g->nodes[n].operand_count; k++) {
      size_t s = rm_slot(g, c->base[rm_slot(g, gr_operand(g, n, (int)k))]);
      if (c->first[s] == NONE || c->far[s]) continue;
      if (first_stage(c, s) > low) low = first_stage(c, s);
      if (last_stage(c, s) < now) now = last_stage(c, s);
    }
    c->stage[n] = low > now ? low : now;
  }
}

/* Starts a chain that is all of g. */
static void look_over(Chain *c, const Graph *g) {
  c->g = g;
  c->live = rm_live(c->a, g);
  c->stage = ARENA_ARRAY(c->a, uint32_t, g->node_count + 1);
  find_bases(c);
}

/* Whether value s, of nodes that belong to a stage, lies in memory: not all of its readers can
 * compute it themselves. */
static bool *in_memory(const Chain *c) {
  const Graph *g = c->g;
  bool *is = ARENA_ARRAY(c->a, bool, g->type_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) {
    if (!c->live[n] || rm_is_free(g, n)) continue;
    bool heavy = op_info[g->nodes[n].op].cls != ELEMENTWISE;
    for (uint32_t k = 0; k < g->nodes[n].operand_count; k++) {
      Val v = c->base[rm_slot(g, gr_operand(g, n, (int)k))];
      is[rm_slot(g, v)] |= heavy || c->stage[v.node] != c->stage[n];
    }
  }
  return is;
}

/* The most bytes of values that `counts` alive at a node of each stage. Values live from their
 * nodes to their last readers. */
static void sweep(Chain *c, const bool *counts, int64_t *most) {
  const Graph *g = c->g;
  uint32_t *end = ARENA_ARRAY(c->a, uint32_t, g->type_count + 1);
  int64_t *dies = ARENA_ARRAY(c->a, int64_t, g->node_count + 1), live = 0;
  for (uint32_t n = 0; n < g->node_count; n++)
    for (uint32_t k = 0; c->live[n] && k < g->nodes[n].operand_count; k++)
      end[rm_slot(g, c->base[rm_slot(g, gr_operand(g, n, (int)k))])] = n;
  for (uint32_t n = 0; n < g->node_count; n++) {
    for (uint32_t k = 0; k < g->nodes[n].result_count; k++) {
      size_t s = g->nodes[n].result0 + k;
      if (!counts[s] || end[s] <= n) continue;
      int64_t bytes = room(c, s);
      live += bytes;
      dies[end[s]] += bytes;
    }
    if (c->stage[n] != NONE && live > most[c->stage[n]]) most[c->stage[n]] = live;
    live -= dies[n];
  }
}

/* ---- blocks that a plan adds */

struct RmNest {
  Block *blocks;
  size_t count, cap;
  uint32_t *parent; /* per block of g: its new parent, 0 = as it is */
  uint32_t *to;     /* per node: the block that it goes to, 0 = it stays */
  uint8_t *tag;     /* per node: its new tag */
  bool *within;     /* per node: it is a node of a gradient inside of the block */
};

static RmNest *new_nest(Arena *a, const Graph *g) {
  RmNest *x = ARENA_NEW(a, RmNest);
  *x = (RmNest){.parent = ARENA_ARRAY(a, uint32_t, g->blocks->count + 1),
                .to = ARENA_ARRAY(a, uint32_t, g->node_count + 1),
                .tag = ARENA_ARRAY(a, uint8_t, g->node_count + 1),
                .within = ARENA_ARRAY(a, bool, g->node_count + 1)};
  return x;
}

/* The number of a new block. */
static uint32_t nest_block(Arena *a, RmNest *x, const Graph *g, Block b) {
  VEC_PUSH(a, x->blocks, x->count, x->cap, b);
  return (uint32_t)(g->blocks->count + x->count);
}

const Graph *rm_plan_graph(Arena *a, const RmPlan *plan) {
  const Graph *g = plan->g;
  const RmNest *x = plan->nest;
  if (!x) return g;
  Graph *d = gr_clone(a, g);
  d->blocks = NULL;
  for (size_t k = 0; k < g->blocks->count; k++) {
    Block b = g->blocks->items[k];
    if (x->parent[k]) b.parent = x->parent[k];
    gr_block(d, b);
  }
  for (size_t k = 0; k < x->count; k++) gr_block(d, x->blocks[k]);
  for (uint32_t n = 0; n < g->node_count; n++) {
    if (!x->to[n]) continue;
    Prov at = g->provs[g->nodes[n].prov];
    *(x->within[n] ? &at.within : &at.region) = x->to[n];
    at.tag = x->tag[n];
    gr_set_prov(d, n, at);
  }
  return d;
}

/* The block of the user below the chain's that `id` stands in, or is. */
static uint32_t below(const Chain *c, uint32_t id) {
  while (gr_block_at(c->g, id)->parent != c->block) id = gr_block_at(c->g, id)->parent;
  return id;
}

/* Puts node n of a stage into block `to`, or the block of the user that it stands in. */
static void move_node(const Chain *c, RmNest *x, uint32_t n, uint32_t to, uint8_t tag) {
  const Prov *at = &c->g->provs[c->g->nodes[n].prov];
  bool within = rm_top(c->g, rm_home(c->g, n)) == c->block && at->backward;
  uint32_t id = within ? at->within : at->region;
  if (id != c->block) {
    x->parent[below(c, id) - 1] = to;
    return;
  }
  x->to[n] = to;
  x->tag[n] = tag;
  x->within[n] = within;
}

/* The most bytes that each stage's copies and cotangents take together, if each stage is a block of
 * its own, whose values have the choice `leaf`; NULL: only what crosses its boundaries is kept. */
static int64_t *bytes_alone(Chain *c, const uint8_t *leaf) {
  const Graph *g = c->g;
  int64_t *most = ARENA_ARRAY(c->a, int64_t, c->cuts + 1);
  ArenaMark mark = arena_mark(c->a);
  RmNest *nest = new_nest(c->a, g);
  uint8_t *choice = ARENA_ARRAY(c->a, uint8_t, g->type_count + 1);
  uint32_t first = 0;
  for (uint32_t k = 0; k < c->cuts; k++) {
    uint32_t id = nest_block(c->a, nest, g, (Block){.budget = -1, .text = ""});
    if (!k) first = id;
  }
  for (uint32_t n = 0; n < g->node_count; n++) {
    uint32_t k = c->stage[n];
    if (k != NONE && c->live[n]) move_node(c, nest, n, first + k, g->provs[g->nodes[n].prov].tag);
  }
  const Graph *d = rm_plan_graph(c->a, &(RmPlan){g, choice, nest});
  rm_written(d, choice);
  for (uint32_t i = 0; i < c->count; i++) {
    uint32_t n = c->body[i];
    for (uint32_t r = 0; r < g->nodes[n].result_count; r++) {
      size_t s = g->nodes[n].result0 + r;
      bool firm = tag_info[g->provs[g->nodes[n].prov].tag].firm || rm_is_free(g, n);
      bool kept = c->far[s] || last_stage(c, s) > c->stage[n];
      if (!firm) choice[s] = leaf ? leaf[s] : kept ? CHOICE_SAVE : CHOICE_RECOMPUTE;
    }
  }
  Chain x = {.a = c->a, .env = c->env};
  look_over(&x, rm_apply(c->a, d, choice, NULL));
  for (uint32_t n = 0; n < x.g->node_count; n++) {
    const Prov *p = &x.g->provs[x.g->nodes[n].prov];
    uint32_t id = rm_top(x.g, p->region);
    x.stage[n] = id >= first && (p->backward || p->recomputed) ? id - first : NONE;
  }
  bool *counts = in_memory(&x);
  for (uint32_t n = 0; n < x.g->node_count; n++)
    for (uint32_t r = 0; r < x.g->nodes[n].result_count; r++)
      counts[x.g->nodes[n].result0 + r] &= x.stage[n] != NONE;
  sweep(&x, counts, most);
  arena_rewind(c->a, mark);
  return most;
}

static void measure(Chain *c, const uint8_t *leaf) {
  const Graph *g = c->g;
  RotorStage *st = c->stages;
  const bool *memory = in_memory(c), *kept = rm_kept(c->a, g, c->env, leaf);
  bool *front = ARENA_ARRAY(c->a, bool, g->type_count + 1);
  memset(st, 0, c->cuts * sizeof *st);
  for (size_t s = 0; s < g->output_count; s++) /* results are no part of the need */
    c->far[rm_slot(g, c->base[rm_slot(g, g->outputs[s])])] = true;
  for (uint32_t n = 0; n < g->node_count; n++) {
    uint32_t k = c->stage[n];
    bool body = c->live[n] && rm_top(g, rm_home(g, n)) == c->block;
    if (k != NONE && body) st[k].time = cost_add(st[k].time, rm_cost(g, n, c->env));
    for (uint32_t r = 0; r < g->nodes[n].result_count; r++) {
      size_t s = g->nodes[n].result0 + r;
      if (k == NONE || c->far[s] || rm_is_free(g, n)) continue;
      front[s] = memory[s] && body && last_stage(c, s) == k && !kept[s] && !c->used[s];
      if (body && kept[s]) st[k].tape = cost_add(st[k].tape, room(c, s));
      if (body && c->used[s]) st[k].again = cost_add(st[k].again, room(c, s));
      for (uint32_t i = k; body && i < last_stage(c, s); i++)
        st[i].cross = cost_add(st[i].cross, room(c, s));
    }
  }
  int64_t *most = ARENA_ARRAY(c->a, int64_t, c->cuts + 1);
  sweep(c, front, most);
  const int64_t *back = bytes_alone(c, leaf), *alone = bytes_alone(c, NULL);
  for (uint32_t k = 0; k < c->cuts; k++) {
    st[k].front = most[k];
    st[k].back = back[k];
    st[k].alone = alone[k];
  }
}

/* How deep pieces may nest. A value that is saved narrow is rounded for its block alone, so inner
 * blocks would be rounded for, too. */
static int depth_of(const Chain *c) {
  for (uint32_t i = 0; i < c->count; i++)
    for (uint32_t r = 0; r < c->g->nodes[c->body[i]].result_count; r++)
      if (rm_narrow(c->g, (Val){c->body[i], r}) != DT_BOOL) return 1;
  return ROTOR_DEPTH;
}

/* Finds the stages of a block. False if there is nothing to cut. */
static bool look(Chain *c) {
  look_at_body(c);
  if (c->count < 2) return false;
  find_cuts(c);
  if (c->cuts < 3) return false;
  find_stages(c);
  c->stages = ARENA_ARRAY(c->a, RotorStage, c->cuts);
  return true;
}

/* ---- from a plan to a choice */

static bool open_node(const Chain *c, uint32_t n) {
  const Graph *g = c->g;
  return !tag_info[g->provs[g->nodes[n].prov].tag].firm && !rm_is_free(g, n) && !rm_never(g, n) &&
         rm_home(g, n) == c->block && !c->shifted[g->nodes[n].result0];
}

/* The boundary depth at which value s is kept: the least of those that it crosses. */
static uint8_t kept_at(const Chain *c, const RotorPlan *p, size_t s, uint32_t stage) {
  uint8_t least = ROTOR_NOT;
  for (uint32_t k = stage + 1; k <= last_stage(c, s); k++)
    if (p->kept[k] < least) least = p->kept[k];
  return least;
}

static void choose(const Chain *c, const RotorPlan *p, const uint8_t *leaf, uint8_t *choice) {
  const Graph *g = c->g;
  for (uint32_t i = 0; i < c->count; i++) {
    uint32_t n = c->body[i], k = c->stage[n];
    if (!open_node(c, n)) continue;
    for (uint32_t r = 0; r < g->nodes[n].result_count; r++) {
      size_t s = g->nodes[n].result0 + r;
      choice[s] = c->far[s] || kept_at(c, p, s, k) == 0 ? CHOICE_SAVE
                  : p->depth[k] == 0                    ? leaf[s]
                                                        : CHOICE_RECOMPUTE;
    }
  }
}

/* The block of a piece of depth 2 and more; that of pieces at depth 1 is the block itself. */
static uint32_t block_of(const Chain *c, const RotorPlan *p, const uint32_t *made, uint32_t piece) {
  return piece && p->pieces[piece - 1].depth > 1 ? made[piece - 1] : c->block;
}

/* Puts the nodes of inner pieces into blocks of their own. */
static void nest_pieces(Arena *a, const Chain *c, const RotorPlan *p, RmNest *x) {
  const Graph *g = c->g;
  uint32_t *made = ARENA_ARRAY(c->a, uint32_t, p->piece_count + 1);
  for (size_t k = 0; k < p->piece_count; k++) {
    if (p->pieces[k].depth < 2) continue;
    Block b = {.parent = block_of(c, p, made, p->pieces[k].parent), .budget = -1, .text = ""};
    b.span = gr_block_at(g, c->block)->span;
    made[k] = nest_block(a, x, g, b);
  }
  for (uint32_t n = 0; n < g->node_count; n++) {
    uint32_t k = c->stage[n];
    if (k == NONE || !c->live[n]) continue;
    uint32_t to = block_of(c, p, made, p->inside[k]);
    uint8_t tag = g->provs[g->nodes[n].prov].tag;
    if (to == c->block) continue;
    if (open_node(c, n) && !rm_is_use(g, n, c->block)) { /* all results of a node have one tag */
      uint8_t kept = kept_at(c, p, g->nodes[n].result0, k);
      tag = kept != ROTOR_NOT && kept < p->depth[k] ? TAG_PREFER_SAVE : TAG_PREFER_RECOMPUTE;
    }
    move_node(c, x, n, to, tag);
  }
}

static bool deep(const RotorPlan *p) {
  for (size_t k = 0; k < p->piece_count; k++)
    if (p->pieces[k].depth > 1) return true;
  return false;
}

/* The most points of all blocks. */
static size_t most_points(Rotor *const *r, size_t blocks) {
  size_t most = 0;
  for (size_t k = 0; k < blocks; k++) {
    const RotorPoint *p;
    size_t n = r[k] ? rotor_points(r[k], &p) : 0;
    if (n > most) most = n;
  }
  return most;
}

typedef struct Pieces {
  Arena *a, *scratch;
  const Graph *g;
  const uint8_t *leaf;
  size_t blocks;
  Chain *chains;
  Rotor **table; /* by block; NULL: it is not cut */
} Pieces;

/* Makes a plan of a point of each table. */
static void make_plan(const Pieces *x, const size_t *point, RmPlan *plan) {
  RmNest *nest = NULL;
  *plan = (RmPlan){x->g, ARENA_ARRAY(x->a, uint8_t, x->g->type_count + 1), NULL};
  memcpy(plan->choice, x->leaf, x->g->type_count);
  for (size_t id = 0; id < x->blocks; id++) {
    const RotorPoint *p;
    if (!x->table[id]) continue;
    rotor_points(x->table[id], &p);
    RotorPlan pieces = rotor_plan(x->scratch, x->table[id], p[point[id]].need);
    choose(&x->chains[id], &pieces, x->leaf, plan->choice);
    if (deep(&pieces) && !nest) plan->nest = nest = new_nest(x->a, x->g);
    if (deep(&pieces)) nest_pieces(x->a, &x->chains[id], &pieces, nest);
  }
}

/* Makes plans of the points of all tables, from the least on. */
static size_t make_plans(const Pieces *x, size_t most, RmPlan *plans) {
  size_t points = most_points(x->table, x->blocks), count = points < most ? points : most;
  size_t *point = ARENA_ARRAY(x->scratch, size_t, x->blocks + 1);
  for (size_t q = 0; q < count; q++) {
    for (size_t id = 0; id < x->blocks; id++) {
      const RotorPoint *p;
      size_t n = x->table[id] ? rotor_points(x->table[id], &p) : 0;
      point[id] = n && count > 1 ? q * (n - 1) / (count - 1) : 0;
    }
    make_plan(x, point, &plans[q]);
  }
  return count;
}

static Pieces find_pieces(Arena *a, Arena *scratch, const Graph *g, const int64_t *env,
                          const bool *open, const uint8_t *leaf, bool fine) {
  Pieces x = {a, scratch, g, leaf, g->blocks ? g->blocks->count : 0, NULL, NULL};
  x.chains = ARENA_ARRAY(scratch, Chain, x.blocks + 1);
  x.table = ARENA_ARRAY(scratch, Rotor *, x.blocks + 1);
  const bool *live = rm_live(scratch, g);
  bool *shifted;
  rm_conditions(scratch, g, &shifted);
  for (uint32_t id = 1; id <= x.blocks; id++) {
    const Block *b = gr_block_at(g, id);
    Chain *c = &x.chains[id - 1];
    *c = (Chain){.a = scratch,
                 .g = g,
                 .env = env,
                 .block = id,
                 .fine = fine,
                 .live = live,
                 .shifted = shifted};
    if (b->parent || b->reentrant || (open && !open[id - 1]) || !look(c)) continue;
    measure(c, leaf);
  }
  return x;
}

static void fill_tables(Pieces *x, int64_t limit) {
  for (size_t id = 0; id < x->blocks; id++) {
    Chain *c = &x->chains[id];
    if (c->stages) x->table[id] = rotor_make(x->scratch, c->stages, c->cuts, depth_of(c), limit);
  }
}

size_t rm_pieces(Arena *a, Arena *scratch, const Graph *g, const int64_t *env, const bool *open,
                 const uint8_t *leaf, bool fine, size_t most, RmPlan *plans) {
  ArenaMark all = arena_mark(scratch);
  Pieces x = find_pieces(a, scratch, g, env, open, leaf, fine);
  fill_tables(&x, INT64_MAX);
  size_t count = make_plans(&x, most, plans);
  arena_rewind(scratch, all);
  return count;
}

bool rm_least(Arena *a, Arena *scratch, const Graph *g, const int64_t *env, const uint8_t *leaf,
              int64_t time, RmPlan *plan) {
  Pieces x = find_pieces(a, scratch, g, env, NULL, leaf, true);
  fill_tables(&x, time);
  size_t *point = ARENA_ARRAY(scratch, size_t, x.blocks + 1);
  bool any = false;
  for (size_t id = 0; id < x.blocks; id++) {
    const RotorPoint *p;
    size_t n = x.table[id] ? rotor_points(x.table[id], &p) : 0;
    while (point[id] + 1 < n && p[point[id]].time > time) point[id]++;
    /* What a table says is not exact: a hundredth less is no gain. */
    any |= n > 0 && p[point[id]].need < p[n - 1].need - p[n - 1].need / 100;
  }
  if (any) make_plan(&x, point, plan);
  return any;
}

/* ---- blocks without a policy */

/* The outermost block if there is one, without clauses; else 0. */
static uint32_t plain_block(const Graph *g) {
  uint32_t plain = 0;
  for (uint32_t id = 1; g->blocks && id <= g->blocks->count; id++) {
    const Block *b = gr_block_at(g, id);
    if (b->parent) continue;
    if (plain || b->reentrant || (b->text && *b->text)) return 0;
    plain = id;
  }
  return plain;
}

void rm_default(Arena *scratch, const Graph *g, uint8_t *choice) {
  enum { LONG = 8 };
  rm_written(g, choice);
  Chain c = {.a = scratch, .g = g, .block = plain_block(g)};
  if (!c.block) return;
  bool *shifted;
  c.live = rm_live(scratch, g);
  rm_conditions(scratch, g, &shifted);
  c.shifted = shifted;
  if (!look(&c) || c.cuts < LONG) return;
  uint8_t *leaf = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  rm_all(g, CHOICE_SAVE, leaf);
  measure(&c, leaf);
  const Rotor *r = rotor_make(scratch, c.stages, c.cuts, 1, INT64_MAX);
  const RotorPoint *p;
  rotor_points(r, &p);
  RotorPlan plan = rotor_plan(scratch, r, p[0].need);
  RmPlan pieces = {g, ARENA_ARRAY(scratch, uint8_t, g->type_count + 1), NULL};
  RmPlan written = {g, choice, NULL};
  memcpy(pieces.choice, choice, g->type_count);
  choose(&c, &plan, leaf, pieces.choice);
  RmPrice less = rm_look(scratch, &pieces, NULL), more = rm_look(scratch, &written, NULL);
  if (less.bytes < more.bytes && less.time <= more.time)
    memcpy(choice, pieces.choice, g->type_count);
}

/* ---- looking at a plan */

RmPrice rm_look(Arena *scratch, const RmPlan *plan, const int64_t *env) {
  RmPrice sum = {0};
  ArenaMark mark = arena_mark(scratch);
  Chain c = {.a = scratch, .env = env};
  const Graph *planned = rm_plan_graph(scratch, plan);
  look_over(&c, rm_apply(scratch, planned, plan->choice, NULL));
  const Graph *g = c.g;
  for (uint32_t n = 0; n < g->node_count; n++) {
    const Prov *p = &g->provs[g->nodes[n].prov];
    c.stage[n] = p->recomputed ? 1 : p->backward ? 2 : 0; /* when it runs */
    if (c.live[n] && p->recomputed) sum.time = cost_add(sum.time, rm_cost(g, n, env));
  }
  bool *counts = in_memory(&c);
  for (size_t s = 0; s < g->output_count; s++)
    counts[rm_slot(g, c.base[rm_slot(g, g->outputs[s])])] = false;
  for (uint32_t n = 0; n < g->node_count; n++) { /* values of blocks */
    bool block = g->nodes[n].op != OP_INPUT && rm_top(g, g->provs[g->nodes[n].prov].region);
    for (uint32_t k = 0; k < g->nodes[n].result_count && !block; k++)
      counts[g->nodes[n].result0 + k] = false;
  }
  int64_t most[3] = {0};
  sweep(&c, counts, most);
  for (int k = 0; k < 3; k++)
    if (most[k] > sum.bytes) sum.bytes = most[k];
  arena_rewind(scratch, mark);
  return sum;
}
