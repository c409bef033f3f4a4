/* Rematerialisation: backward reads copies of values that it recomputes.
 *
 * In: a graph that holds forward and backward, and the choice of each value of a block. Out: the
 * same graph, in which a backward use of a recomputed value reads a copy. Copies are computed from
 * kept values: inputs of the block, saved values, and values that others keep (Chen, Xu, Zhang and
 * Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, with any set of saved values
 * instead of their segments).
 *
 * The idea is demand. Nodes are copied over in their order; an operand of a backward node is looked
 * up in the *world* of the node's block: there a saved value is the original, another is a copy
 * made at its first demand and kept for the next. So copies stand right before their first use and
 * every copy is read. Worlds nest as blocks do: the world of an inner block looks its saved values
 * up in the world around it, where the outer block has computed them again (rule 85). A copied node
 * may be a gradient of a block inside; it opens a world inside of the world of the copy.
 *
 * Invariants: copies have the op, attributes, operand values and place in the source of their
 * originals, hence their bits. No effect is copied. No world is shared by both halves of a split.
 * No recursion over nodes.
 */
#include "autograd/remat.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/pass.h"

#include "autograd/remat_impl.h"
#include "graph/copy.h"

/* ---- what a node is */

static const Prov *prov_of(const Graph *g, uint32_t n) {
  return &g->provs[g->nodes[n].prov];
}

uint32_t rm_home(const Graph *g, uint32_t n) {
  const Prov *p = prov_of(g, n);
  if (g->nodes[n].op == OP_INPUT) return 0;
  return p->backward ? p->within : p->region;
}

uint32_t rm_top(const Graph *g, uint32_t id) {
  for (const Block *b; (b = gr_block_at(g, id)) && b->parent;) id = b->parent;
  return gr_block_at(g, id) ? id : 0;
}

bool rm_is_free(const Graph *g, uint32_t n) {
  return op_info[g->nodes[n].op].remat == REMAT_FREE;
}

bool rm_is_view(const Graph *g, uint32_t n) {
  return rm_is_free(g, n) && g->nodes[n].operand_count == 1;
}

bool rm_is_use(const Graph *g, uint32_t n, uint32_t block) {
  const Prov *p = &g->provs[g->nodes[n].prov];
  return p->backward && gr_block_inside(g, p->region, block) &&
         !gr_block_inside(g, p->within, block);
}

bool rm_never(const Graph *g, uint32_t n) {
  const GNode *node = &g->nodes[n];
  if (op_info[node->op].remat == REMAT_NEVER || node_effect(g, n)) return true;
  for (uint32_t k = 0; k < node->result_count; k++)
    if (g->types[node->result0 + k].kind == TK_TOKEN) return true;
  return false;
}

/* Conditions are kept, so that the second run takes the same branches. */
bool *rm_conditions(Arena *a, const Graph *g, bool **shifted) {
  bool *is = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++)
    if (g->nodes[n].op == OP_BRANCH || g->nodes[n].op == OP_LOOP)
      is[rm_slot(g, gr_operand(g, n, 0))] = true;
  bool *from = rm_shifted(a, g, is);
  if (shifted) *shifted = from;
  return is;
}

/* ---- the choice as written */

/* Whether block `at`, and each block between it and inner block `id`, keeps the values that it does
 * not name. */
static bool leaves_alone(const Graph *g, uint32_t id, uint32_t at) {
  while (id != at) {
    id = gr_block_at(g, id)->parent;
    if (!gr_block_at(g, id)->saves) return false;
  }
  return true;
}

/* The choice of block `at`, which computes node n, for n's values. */
static uint8_t choice_in(const Graph *g, uint32_t n, uint32_t at) {
  Tag tag = (Tag)prov_of(g, n)->tag;
  if (tag == TAG_NONE) return CHOICE_SAVE;
  if (rm_never(g, n)) /* always kept, but perhaps on another device */
    return tag_says(tag, CHOICE_OFFLOAD) && rm_home(g, n) == at ? CHOICE_OFFLOAD : CHOICE_SAVE;
  if (rm_home(g, n) != at) { /* of an inner block, whose clauses hold inside */
    if (rm_is_free(g, n)) return CHOICE_FREE;
    return leaves_alone(g, rm_home(g, n), at) ? CHOICE_SAVE : CHOICE_RECOMPUTE;
  }
  bool must_keep = tag_info[tag].firm && !tag_says(tag, CHOICE_RECOMPUTE) && !tag_narrows(tag);
  if (rm_is_free(g, n) && !must_keep) return CHOICE_FREE;
  return tag_info[tag].choice;
}

void rm_written(const Graph *g, uint8_t *choice) {
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    uint32_t top = rm_top(g, rm_home(g, n));
    uint8_t c = top ? choice_in(g, n, top) : CHOICE_FREE;
    for (uint32_t k = 0; k < node->result_count; k++) choice[node->result0 + k] = c;
  }
  /* A view is kept if its base is. It is away if its base is: a view of what the block does not
   * compute, such as an input, stays. */
  for (uint32_t n = (uint32_t)g->node_count; n-- > 0;) {
    const GNode *node = &g->nodes[n];
    if (!rm_is_view(g, n) || node->op == OP_SLICE) continue;
    Val v = gr_operand(g, n, 0);
    uint8_t c = choice[node->result0], *base = &choice[rm_slot(g, v)];
    if (c == CHOICE_SAVE && rm_home(g, v.node) && *base != CHOICE_OFFLOAD) *base = CHOICE_SAVE;
    if (c != CHOICE_OFFLOAD || rm_never(g, n)) continue;
    if (rm_home(g, v.node) == rm_home(g, n) && *base != CHOICE_SAVE) *base = CHOICE_OFFLOAD;
    choice[node->result0] = CHOICE_FREE;
  }
}

void rm_all(const Graph *g, uint8_t what, uint8_t *choice) {
  Arena tmp;
  rm_written(g, choice);
  arena_init(&tmp, g->arena->mem);
  bool *kept = ARENA_ARRAY(&tmp, bool, g->type_count + 1), *shifted = rm_shifted(&tmp, g, kept);
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    uint8_t tag = prov_of(g, n)->tag;
    const Block *b = gr_block_at(g, rm_top(g, rm_home(g, n)));
    bool free = !b || b->reentrant || rm_is_free(g, n) || rm_never(g, n);
    if (free || tag_info[tag].firm) continue;
    for (uint32_t k = 0; k < node->result_count; k++)
      if (!shifted[node->result0 + k]) choice[node->result0 + k] = what;
  }
  arena_free(&tmp);
}

const Graph *rm_direct(Arena *a, const Graph *g) {
  Graph *d = ARENA_NEW(a, Graph);
  *d = *g;
  d->operands = ARENA_ARRAY(a, Val, g->operand_count + 1);
  d->operand_cap = g->operand_count;
  for (size_t k = 0; k < g->operand_count; k++) {
    Val v = g->operands[k];
    while (g->nodes[v.node].op == OP_ALIAS && !tag_info[prov_of(g, v.node)->tag].firm)
      v = gr_operand(g, v.node, 0);
    d->operands[k] = v;
  }
  return d;
}

/* ---- worlds */

typedef struct World World;
struct World {
  uint32_t block;               /* 0: the graph as it is */
  World *around, *inner, *next; /* inner: the first of those inside, next: beside it */
  size_t slot0, slots;          /* results of g from the block's first node to its last */
  Val *made;                    /* by slot: the copy, VAL_NONE = none yet */
  bool whole;                   /* all of the body was copied */
};

typedef struct Redo {
  Arena *a; /* scratch */
  const Graph *g;
  Graph *d;
  const uint8_t *choice;
  const bool *condition, *live, *read; /* read: by any node, or an output */
  bool *shifted;                       /* see rm_shifted */
  Val *to, *away;   /* by slot of g: the value in d, and its copy that was moved away */
  RmNarrow *narrow; /* by slot of g: its narrow form */
  bool *asked;      /* by slot of g: a gradient reads the narrow form */
  bool look;        /* this run finds out what is asked for */
  /* By slot: the gradients that keep the original alive with any choice: those that stand in block
   * `held - 1`, ALWAYS, or 0 = none. */
  uint32_t *held;
  uint8_t *fate; /* by slot: bits of Fate */
  World root;
  uint32_t *first, *last; /* by block: node range of its body */
} Redo;
enum { ALWAYS = UINT32_MAX };
/* HELD: kept anyway */
enum { FATE_KEPT = 1, FATE_MADE = 2, FATE_HELD = 4, FATE_FETCHED = 8, FATE_NARROW = 16 };

bool *rm_live(Arena *a, const Graph *g) {
  bool *live = ARENA_ARRAY(a, bool, g->node_count + 1);
  for (size_t k = 0; k < g->output_count; k++) live[g->outputs[k].node] = true;
  for (uint32_t n = (uint32_t)g->node_count; n-- > 0;) {
    if (!live[n] && !node_effect(g, n)) continue;
    live[n] = true;
    for (uint32_t k = 0; k < g->nodes[n].operand_count; k++)
      live[gr_operand(g, n, (int)k).node] = true;
  }
  return live;
}

static World *world_in(Redo *r, World *around, uint32_t block) {
  for (World *w = around->inner; w; w = w->next)
    if (w->block == block) return w;
  World *w = ARENA_NEW(r->a, World);
  *w = (World){.block = block, .around = around, .next = around->inner};
  uint32_t lo = r->first[block], hi = r->last[block];
  if (lo <= hi) {
    const GNode *end = &r->g->nodes[hi];
    w->slot0 = r->g->nodes[lo].result0;
    w->slots = end->result0 + end->result_count - w->slot0;
  }
  w->made = ARENA_ARRAY(r->a, Val, w->slots + 1);
  for (size_t k = 0; k < w->slots; k++) w->made[k] = VAL_NONE;
  around->inner = w;
  return w;
}

/* Whether block `id` is one whose gradient node n is part of, and in which it does not stand: the
 * innermost of them is its region, then come those around. */
static bool next_block(const Graph *g, uint32_t n, uint32_t id) {
  const Block *b = gr_block_at(g, id);
  return b && !gr_block_inside(g, prov_of(g, n)->within, id);
}

/* The world in which node n reads when it is copied in world `at`. */
static World *world_of(Redo *r, World *at, uint32_t n) {
  const Graph *g = r->g;
  const Prov *p = prov_of(g, n);
  if (!p->backward || !p->region) return at;
  uint32_t count = 0;
  for (uint32_t id = p->region; next_block(g, n, id); id = gr_block_at(g, id)->parent) count++;
  for (; count > 0; count--) {
    uint32_t id = p->region;
    for (uint32_t k = 1; k < count; k++) id = gr_block_at(g, id)->parent;
    at = world_in(r, at, id);
  }
  return at;
}

/* The choice for v in world w. CHOICE_SAVE: the world around w provides it. */
static uint8_t choice_at(const Redo *r, const World *w, Val v) {
  const Graph *g = r->g;
  size_t s = rm_slot(g, v);
  OpCode op = (OpCode)g->nodes[v.node].op;
  if (r->condition[s] || op == OP_CONST || op == OP_DIM) return CHOICE_SAVE;
  bool top = w->around == &r->root && !gr_block_at(g, w->block)->parent;
  uint8_t c = top ? r->choice[s] : choice_in(g, v.node, w->block);
  if (r->shifted[s] && rm_is_free(g, v.node)) return CHOICE_FREE;
  if (rm_never(g, v.node) && c != CHOICE_OFFLOAD) return CHOICE_SAVE;
  return c == CHOICE_OFFLOAD && val_none(r->away[s]) ? CHOICE_SAVE : c;
}

/* ---- moving away */

static Val place(Graph *d, Val v, Device dev, Prov p) {
  Attr a = attr_i(AT_DEVICE, dev);
  d->at = p;
  Val to = gr_op(d, OP_PLACE, &v, 1, &a, 1, NULL, 0, NULL);
  CK_ASSERT(d->arena->mem, !val_none(to));
  return to;
}

/* Moves offloaded values of node n away right behind the node: values of a device to the host,
 * values of the host to the spill. A moved value without a reader is dead. */
static void move_away(Redo *r, uint32_t n) {
  const Graph *g = r->g;
  if (!rm_home(g, n)) return;
  for (uint32_t k = 0; k < g->nodes[n].result_count; k++) {
    size_t s = g->nodes[n].result0 + k;
    if (r->choice[s] != CHOICE_OFFLOAD || g->types[s].kind != TK_TENSOR) continue;
    Prov p = *prov_of(g, n);
    p.tag = TAG_NONE;
    r->away[s] = place(r->d, r->to[s], g->types[s].dev == DEV_CPU ? DEV_SPILL : DEV_CPU, p);
  }
}

static Val fetched(Redo *r, World *w, Val v, uint32_t within) {
  size_t s = rm_slot(r->g, v);
  Val *made = &w->made[s - w->slot0];
  if (!val_none(*made)) return *made;
  Prov p = *prov_of(r->g, v.node);
  p.tag = TAG_NONE;
  p.recomputed = p.backward = 1;
  p.within = within;
  r->fate[s] |= FATE_FETCHED;
  return *made = place(r->d, r->away[s], (Device)r->g->types[s].dev, p);
}

/* ---- narrow values */

static bool is_narrow(const Redo *r, const World *w, Val v) {
  return rm_home(r->g, v.node) == w->block && rm_narrow(r->g, v) != DT_BOOL;
}

/* Makes the narrow form of values of node n right behind the node. */
static void save_narrow(Redo *r, uint32_t n) {
  for (uint32_t k = 0; k < r->g->nodes[n].result_count; k++) {
    Val v = {n, k};
    size_t s = rm_slot(r->g, v);
    DType as = rm_narrow(r->g, v);
    if (as == DT_BOOL || !(r->look || r->asked[s])) continue;
    r->d->at = *prov_of(r->g, n);
    r->d->at.tag = TAG_NONE;
    r->narrow[s] = rm_make_narrow(r->d, r->to[s], as);
  }
}

/* What gradients of block w->block read of its narrow value v: the rounded value. It is saved in
 * the forward, or where a block around has computed v again. VAL_NONE: as in look_up. */
static Val widened(Redo *r, World *w, Val v, uint32_t within, World **at) {
  size_t s = rm_slot(r->g, v);
  Val *made = &w->made[s - w->slot0];
  if (!val_none(*made)) return *made;
  World *o = w->around;
  for (; o->block; o = o->around) {
    uint8_t c = choice_at(r, o, v);
    if (c != CHOICE_SAVE && c != CHOICE_OFFLOAD) break;
  }
  if (o->block && val_none(o->made[s - o->slot0])) {
    *at = o;
    return VAL_NONE;
  }
  Prov p = *prov_of(r->g, v.node);
  p.tag = TAG_NONE;
  p.recomputed = p.backward = 1;
  p.within = within;
  r->d->at = p;
  RmNarrow n = r->narrow[s];
  if (o->block) {
    n = rm_make_narrow(r->d, o->made[s - o->slot0], rm_narrow(r->g, v));
  } else {
    r->asked[s] = true;
    r->fate[s] |= FATE_NARROW;
  }
  return *made = rm_make_wide(r->d, n, (DType)gr_type(r->g, v)->dtype);
}

/* The value of v in world w, for a node that stands in block `within`. VAL_NONE: its node has to be
 * copied in `*at`. */
static Val look_up(Redo *r, World *w, Val v, uint32_t within, World **at) {
  const Graph *g = r->g;
  size_t s = rm_slot(g, v);
  bool held = !r->shifted[s] && (r->held[s] == ALWAYS || r->held[s] == within + 1);
  for (; !held && w->block; w = w->around) {
    if (!gr_in_block(g, v.node, w->block)) continue;
    if (is_narrow(r, w, v)) return widened(r, w, v, within, at);
    uint8_t c = choice_at(r, w, v);
    if (c == CHOICE_SAVE) continue;
    if (c == CHOICE_OFFLOAD && w->around == &r->root) return fetched(r, w, v, within);
    if (c == CHOICE_OFFLOAD) continue;
    *at = w;
    return w->made[s - w->slot0];
  }
  uint32_t home = rm_home(g, v.node);
  if (home && !gr_block_inside(g, within, rm_top(g, home)))
    r->fate[s] |= FATE_KEPT | (held && !(r->fate[s] & FATE_KEPT) ? FATE_HELD : 0);
  if (r->held[s] != ALWAYS) r->held[s] = within + 1;
  return r->to[s];
}

/* ---- copying */

/* Copies of the regions. In the gradient of a loop or choice stand the operations of the body, made
 * again, and its gradient reads what a block of the body saves narrower as the rounded value. */
static Graph **own_regions(Redo *r, uint32_t n) {
  const GNode *node = &r->g->nodes[n];
  if (!node->region_count) return NULL;
  Arena *a = r->d->arena;
  Graph **own = ARENA_ARRAY(a, Graph *, node->region_count);
  for (uint32_t k = 0; k < node->region_count; k++) {
    const Graph *in = r->g->regions[node->region0 + k];
    uint8_t *choice = ARENA_ARRAY(r->a, uint8_t, in->type_count + 1);
    bool narrows = rm_narrows(in);
    if (narrows) rm_narrow_alone(in, choice);
    own[k] = narrows ? rm_apply(a, in, choice, NULL) : gr_clone(a, in);
  }
  return own;
}

/* An unfinished copy, whose operands are looked up one after the other. */
typedef struct Task {
  World *world;
  uint32_t node, next;
  Val *in;
} Task;

typedef struct Tasks {
  Task *items;
  size_t count, cap;
} Tasks;

static void push(Redo *r, Tasks *t, World *w, uint32_t n) {
  Task k = {w, n, 0, ARENA_ARRAY(r->a, Val, r->g->nodes[n].operand_count + 1)};
  VEC_PUSH(r->a, t->items, t->count, t->cap, k);
}

static void finish(Redo *r, const Task *t, uint32_t within) {
  const GNode *node = &r->g->nodes[t->node];
  Prov p = *prov_of(r->g, t->node);
  p.tag = TAG_NONE;
  p.recomputed = p.backward = 1;
  p.within = within;
  Val v = copy_node_as(r->d, r->g, t->node, t->in, own_regions(r, t->node), &p);
  for (uint32_t k = 0; k < node->result_count; k++) {
    size_t s = node->result0 + k;
    t->world->made[s - t->world->slot0] = (Val){v.node, k};
    r->fate[s] |= FATE_MADE;
  }
}

/* Copies node n in world w, after the nodes that it needs. */
static void make(Redo *r, World *w, uint32_t n, uint32_t within) {
  Tasks t = {0};
  World *in;
  push(r, &t, w, n);
  while (t.count) {
    Task *x = &t.items[t.count - 1];
    if (x->next == r->g->nodes[x->node].operand_count) {
      finish(r, x, within);
      t.count--;
      continue;
    }
    Val v = gr_operand(r->g, x->node, (int)x->next);
    Val got = look_up(r, world_of(r, x->world, x->node), v, within, &in);
    if (val_none(got))
      push(r, &t, in, v.node);
    else
      x->in[x->next++] = got;
  }
}

/* Copies a whole `reentrant` block, in its own order, when its gradient begins. */
static void make_whole(Redo *r, World *w, uint32_t within) {
  const Graph *g = r->g;
  w->whole = true;
  for (uint32_t n = r->first[w->block]; n <= r->last[w->block]; n++) {
    const GNode *node = &g->nodes[n];
    if (!r->live[n] || !node->result_count || !gr_in_block(g, n, w->block)) continue;
    if (choice_at(r, w, (Val){n, 0}) != CHOICE_RECOMPUTE) continue;
    if (val_none(w->made[node->result0 - w->slot0])) make(r, w, n, within);
  }
}

/* Whether a hook runs in node n. */
static bool calls_hook(const Graph *g, uint32_t n) {
  const GNode *node = &g->nodes[n];
  bool calls = node->op == OP_DEFER;
  for (uint32_t k = 0; k < node->region_count && !calls; k++) {
    const Graph *in = g->regions[node->region0 + k];
    for (uint32_t i = 0; i < in->node_count && !calls; i++) calls = calls_hook(in, i);
  }
  return calls;
}

/* The value that operand k of backward node n reads. Makes the copies that it needs. */
static Val demand(Redo *r, uint32_t n, uint32_t k) {
  World *w = world_of(r, &r->root, n), *in;
  uint32_t within = prov_of(r->g, n)->within;
  Val v = gr_operand(r->g, n, (int)k), got;
  if (r->shifted[rm_slot(r->g, v)] && calls_hook(r->g, n)) w = &r->root;
  got = look_up(r, w, v, within, &in);
  if (!val_none(got)) return got;
  if (gr_block_at(r->g, in->block)->reentrant && !in->whole) make_whole(r, in, within);
  if (val_none(look_up(r, w, v, within, &in))) make(r, in, v.node, within);
  return look_up(r, w, v, within, &in);
}

/* Finds the values held by outputs, and by live backward nodes from `lo` to `hi` outside of
 * blocks. */
static void mark_held(Redo *r, uint32_t lo, uint32_t hi) {
  const Graph *g = r->g;
  for (size_t k = 0; k < g->type_count; k++) r->held[k] = 0;
  for (uint32_t n = lo; n < hi; n++) {
    const Prov *p = prov_of(g, n);
    for (uint32_t k = 0; r->live[n] && p->backward && k < g->nodes[n].operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      uint32_t id = p->region;
      while (next_block(g, n, id) && !gr_in_block(g, v.node, id)) id = gr_block_at(g, id)->parent;
      if (!next_block(g, n, id)) r->held[rm_slot(g, v)] = p->within + 1;
    }
  }
  for (size_t k = 0; k < g->output_count; k++) r->held[rm_slot(g, g->outputs[k])] = ALWAYS;
}

static void ranges(Redo *r) {
  const Graph *g = r->g;
  size_t count = g->blocks->count;
  r->first = ARENA_ARRAY(r->a, uint32_t, count + 1);
  r->last = ARENA_ARRAY(r->a, uint32_t, count + 1);
  for (size_t k = 0; k <= count; k++) r->first[k] = 1;
  for (uint32_t n = 0; n < g->node_count; n++)
    for (uint32_t id = rm_home(g, n); gr_block_at(g, id); id = gr_block_at(g, id)->parent) {
      if (r->first[id] > r->last[id]) r->first[id] = n;
      r->last[id] = n;
    }
}

static void copy_all(Redo *r, uint32_t *split) {
  const Graph *g = r->g;
  size_t widest = 0;
  for (size_t n = 0; n < g->node_count; n++)
    if (g->nodes[n].operand_count > widest) widest = g->nodes[n].operand_count;
  Val *in = ARENA_ARRAY(r->a, Val, widest + 1);
  uint32_t half = split && *split < g->node_count ? *split : (uint32_t)g->node_count;
  mark_held(r, 0, half);
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    Prov p = *prov_of(g, n);
    if (n == half) {
      *split = (uint32_t)r->d->node_count;
      r->root.inner = NULL;
      mark_held(r, half, (uint32_t)g->node_count);
      for (size_t k = 0; k < g->type_count; k++) r->fate[k] = 0;
    }
    if (node->op == OP_ALIAS && !r->read[n]) continue;
    for (uint32_t k = 0; k < node->operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      in[k] = r->live[n] && p.backward ? demand(r, n, k) : r->to[rm_slot(g, v)];
    }
    p.tag = TAG_NONE;
    Val v = copy_node_as(r->d, g, n, in, own_regions(r, n), &p);
    for (uint32_t k = 0; k < node->result_count; k++) r->to[node->result0 + k] = (Val){v.node, k};
    move_away(r, n);
    save_narrow(r, n);
  }
  if (split && half == g->node_count) *split = (uint32_t)r->d->node_count;
  copy_checks(r->d, g);
  for (size_t k = 0; k < g->output_count; k++) gr_output(r->d, r->to[rm_slot(g, g->outputs[k])]);
  copy_writes(r->d, g);
  r->d->at = g->at;
}

static bool *find_read(Arena *a, const Graph *g) {
  bool *read = ARENA_ARRAY(a, bool, g->node_count + 1);
  for (size_t k = 0; k < g->operand_count; k++) read[g->operands[k].node] = true;
  for (size_t k = 0; k < g->output_count; k++) read[g->outputs[k].node] = true;
  return read;
}

static void start(Redo *r, Arena *scratch, Arena *to, const Graph *g, const uint8_t *choice) {
  GrRoom x = gr_room(g);
  GrRoom more = {x.nodes + x.nodes / 2, x.operands + x.operands / 2, x.types + x.types / 2,
                 x.attrs + x.attrs / 2, x.provs + x.provs / 2,       x.inputs};
  *r = (Redo){.a = scratch, .g = g, .d = copy_start_in(to, g, more), .choice = choice};
  if (!choice) {
    uint8_t *written = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
    rm_default(scratch, g, written);
    r->choice = written;
  }
  r->condition = rm_conditions(scratch, g, &r->shifted);
  r->narrow = ARENA_ARRAY(scratch, RmNarrow, g->type_count + 1);
  r->asked = ARENA_ARRAY(scratch, bool, g->type_count + 1);
  r->live = rm_live(scratch, g);
  r->read = find_read(scratch, g);
  r->to = ARENA_ARRAY(scratch, Val, g->type_count + 1);
  r->away = ARENA_ARRAY(scratch, Val, g->type_count + 1);
  for (size_t k = 0; k < g->type_count; k++) r->away[k] = VAL_NONE;
  r->held = ARENA_ARRAY(scratch, uint32_t, g->type_count + 1);
  r->fate = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  ranges(r);
}

typedef struct Apply {
  Arena *to, scratch;
  const Graph *g;
  const uint8_t *choice;
  uint32_t *split;
  Graph *made;
} Apply;

static void apply(void *ud) {
  Apply *x = ud;
  Redo r, first;
  bool look = rm_narrows(x->g);
  if (look) { /* what no gradient reads is not made, since it could fail */
    uint32_t half = x->split ? *x->split : 0;
    start(&first, &x->scratch, &x->scratch, x->g, x->choice);
    first.look = true;
    copy_all(&first, x->split ? &half : NULL);
  }
  start(&r, &x->scratch, x->to, x->g, look ? first.choice : x->choice);
  if (look) r.asked = first.asked;
  copy_all(&r, x->split);
  x->made = r.d;
}

Graph *rm_apply(Arena *a, const Graph *g, const uint8_t *choice, uint32_t *split) {
  if (!g->blocks) return gr_clone(a, g);
  Apply x = {.to = a, .g = g, .choice = choice, .split = split};
  arena_init(&x.scratch, a->mem);
  int code = mem_protect(a->mem, apply, &x);
  arena_free(&x.scratch);
  if (code != MEM_OK) mem_throw(a->mem, code);
  return gr_checked(x.made, "remat");
}

Graph *rm_pass(Arena *a, const Graph *g) {
  return rm_apply(a, g, NULL, NULL);
}

/* ---- explaining */

static RmWhy why(const Redo *r, const uint8_t *written, Val v) {
  const Graph *g = r->g;
  size_t s = rm_slot(g, v);
  Tag tag = (Tag)prov_of(g, v.node)->tag;
  uint8_t c = r->choice[s];
  if (rm_is_free(g, v.node)) return WHY_FREE;
  if ((rm_never(g, v.node) && c != CHOICE_OFFLOAD) || r->condition[s]) return WHY_NEVER;
  if ((r->fate[s] & FATE_HELD) && c != CHOICE_SAVE) return WHY_CALLER;
  if (c != written[s]) return WHY_PLANNER;
  return tag_must(tag, c) ? WHY_NAMED : WHY_REST;
}

void rm_values(Arena *scratch, const Graph *g, const uint8_t *choice, const uint32_t *split,
               void (*visit)(void *ud, const RmValue *v), void *ud) {
  if (!g->blocks) return;
  Redo r;
  uint32_t half = split ? *split : 0;
  start(&r, scratch, scratch, g, choice);
  r.look = true;
  copy_all(&r, split ? &half : NULL);
  uint8_t *written = ARENA_ARRAY(scratch, uint8_t, g->type_count + 1);
  rm_written(g, written);
  for (uint32_t n = 0; n < g->node_count; n++)
    for (uint32_t k = 0; k < g->nodes[n].result_count; k++) {
      Val v = {n, k};
      size_t s = rm_slot(g, v);
      const Type *t = &g->types[s];
      if (!r.fate[s] || t->kind == TK_TOKEN) continue;
      if (r.fate[s] & FATE_NARROW) {
        visit(ud, &(RmValue){v, rm_top(g, rm_home(g, n)), CHOICE_SAVE, true, WHY_NAMED});
        if (!(r.fate[s] & FATE_KEPT)) continue;
      }
      RmValue x = {.v = v, .block = rm_top(g, rm_home(g, n)), .why = why(&r, written, v)};
      x.choice = r.fate[s] & FATE_FETCHED ? CHOICE_OFFLOAD
                 : x.why == WHY_FREE      ? CHOICE_FREE
                 : r.fate[s] & FATE_KEPT  ? CHOICE_SAVE
                                          : CHOICE_RECOMPUTE;
      visit(ud, &x);
    }
}
