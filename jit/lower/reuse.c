/* Lowering with a memory.
 *
 * In: groups of one graph, one after the other. Out: their launches. Each group is described by a
 * text with all facts that lowering reads: the nodes up to placed values, and the views beyond
 * those. A node is named by its number in the order in which the walk meets it. Groups with equal
 * texts have equal launches, except for the values.
 *
 * A shelf keeps what was made for one graph for later ones, in copies of its own: candidates for a
 * plan differ in few groups. Sizes are handles of a table, so it serves the graphs of one table.
 *
 * Invariant: the text has all facts of a graph that lowering reads. These are ops, attributes,
 * types, whether a value is placed, and the order of nodes of the group; not provenance, users or
 * alias classes. */
#include "jit/lower/reuse.h"

#include <string.h>
#include <xxhash.h>

enum { MOST_DEEP = 64 }; /* nodes between a group's node and a placed value */

typedef struct Known {
  struct Known *next;
  uint64_t hash;
  const char *text;
  size_t text_n;
  size_t launch, launches, panel, panels; /* in Lowered */
  const uint32_t *use;                    /* number of the node of each buffer's value */
} Known;

/* Known for any graph: `known` counts from the start of `low`. */
typedef struct Shelved {
  struct Shelved *next;
  Known known;
  Lowered low;
} Shelved;

struct Shelf {
  Arena *a;
  const DimTab *dims; /* of the graphs */
  RegTile tile;
  Shelved *first;
};

struct Alike {
  Known *known;
  Shelf *shelf;    /* or NULL */
  uint32_t *round; /* per node: the last group that met it */
  uint32_t *number;
  uint32_t rounds;
  uint32_t *met; /* nodes of this group by number */
  uint32_t count;
};

Shelf *reuse_shelf(Arena *a) {
  Shelf *s = ARENA_NEW(a, Shelf);
  *s = (Shelf){.a = a};
  return s;
}

Alike *reuse_new(const Lower *l, Shelf *shelf) {
  Alike *s = ARENA_NEW(l->arena, Alike);
  if (shelf && !shelf->first) {
    shelf->dims = l->g->dims;
    shelf->tile = l->tile;
  }
  bool fits = shelf && shelf->dims == l->g->dims && shelf->tile.rows == l->tile.rows &&
              shelf->tile.columns == l->tile.columns;
  s->shelf = fits ? shelf : NULL;
  size_t n = l->g->node_count + 1;
  s->round = ARENA_ARRAY(l->arena, uint32_t, n);
  s->number = ARENA_ARRAY(l->arena, uint32_t, n);
  s->met = ARENA_ARRAY(l->arena, uint32_t, n);
  return s;
}

/* ---- a group as text */
typedef struct Writer {
  Alike *s;
  const Lower *l;
  Buf b;
  bool failed;
} Writer;

static void put(Writer *w, uint64_t x) {
  buf_put(&w->b, (const char *)&x, sizeof x);
}

static void put_attr(Writer *w, const Attr *a) {
  put(w, (uint64_t)a->key << 48 | (uint64_t)a->kind << 32 | a->count);
  if (a->kind == AK_INTS || a->kind == AK_DIMS)
    buf_put(&w->b, (const char *)a->u.ints, a->count * sizeof *a->u.ints);
  else
    put(w, (uint64_t)a->u.i);
}

static void put_node(Writer *w, uint32_t node, int deep) {
  Alike *s = w->s;
  const Graph *g = w->l->g;
  const GNode *n = &g->nodes[node];
  if (s->round[node] == s->rounds) return;
  bool placed = n->result_count != 0;
  for (uint32_t k = 0; k < n->result_count; k++) placed &= w->l->placed[n->result0 + k];
  bool open = !placed || low_pulled(g, node);
  w->failed |= deep > MOST_DEEP || (open && n->region_count);
  for (uint32_t k = 0; k < n->operand_count && open && !w->failed; k++)
    put_node(w, g->operands[n->operand0 + k].node, deep + 1);
  if (w->failed) return;
  put(w, (uint64_t)n->op << 32 | (uint64_t)n->result_count << 8 | (uint64_t)open << 1 | placed);
  for (uint32_t k = 0; k < n->result_count; k++) {
    const Type *t = &g->types[n->result0 + k];
    put(w, (uint64_t)w->l->placed[n->result0 + k] << 32 | (uint64_t)t->kind << 24 |
               (uint64_t)t->dtype << 16 | (uint64_t)t->dev << 8 | t->rank);
    buf_put(&w->b, (const char *)t->dim, t->rank * sizeof *t->dim);
  }
  if (open) {
    put(w, (uint64_t)n->attr_count << 32 | n->operand_count);
    for (uint32_t k = 0; k < n->attr_count; k++) put_attr(w, &g->attrs[n->attr0 + k]);
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = g->operands[n->operand0 + k];
      put(w, (uint64_t)s->number[v.node] << 32 | v.res);
    }
  }
  s->round[node] = s->rounds;
  s->number[node] = s->count;
  s->met[s->count++] = node;
}

/* Writes the text of a group. False: the group is lowered by itself. */
static bool write_group(Writer *w, const Group *x) {
  Alike *s = w->s;
  s->rounds++;
  s->count = 0;
  for (uint32_t i = 0; i < x->node_count; i++) put_node(w, x->nodes[i], 0);
  put_node(w, x->root, 0);
  for (uint32_t i = 0; i < x->out_count; i++) put_node(w, x->outs[i].node, 0);
  if (w->failed) return false;
  put(w, (uint64_t)x->kind << 32 | s->number[x->root]);
  put(w, x->node_count);
  for (uint32_t i = 0; i < x->node_count; i++) put(w, s->number[x->nodes[i]]);
  put(w, x->out_count);
  for (uint32_t i = 0; i < x->out_count; i++)
    put(w, (uint64_t)s->number[x->outs[i].node] << 32 | x->outs[i].res);
  return true;
}

/* ---- launches */

/* Appends copies of launches and panels from the given ones on. */
static void copy_launches(Arena *keep, const Lowered *from, size_t launch, size_t panel,
                          Lowered *out) {
  uint32_t like = (uint32_t)(out->count - launch), panels = (uint32_t)(out->panel_count - panel);
  for (size_t i = launch; i < from->count; i++) {
    const Launch *x = &from->launches[i];
    Launch to = {.k = lp_copy(keep, x->k), .flops = x->flops, .like = (uint32_t)i + like};
    to.bufs = ARENA_ARRAY(keep, BufUse, x->k->buf_count + 1);
    to.args = ARENA_ARRAY(keep, ArgUse, x->k->arg_count + 1u);
    if (x->k->buf_count) memcpy(to.bufs, x->bufs, x->k->buf_count * sizeof *to.bufs);
    if (x->k->arg_count) memcpy(to.args, x->args, x->k->arg_count * sizeof *to.args);
    for (size_t b = 0; b < x->k->buf_count; b++) to.bufs[b].panel += panels;
    VEC_PUSH(keep, out->launches, out->count, out->cap, to);
  }
  for (size_t i = panel; i < from->panel_count; i++)
    VEC_PUSH(keep, out->panels, out->panel_count, out->panel_cap, from->panels[i]);
}

static bool low_new(Lower *l, const Group *group, Arena *keep, Lowered *out, GErr *e) {
  ArenaMark mark = arena_mark(l->arena);
  Lowered low = {0};
  bool ok = low_group(l, group, &low, e);
  if (ok) copy_launches(keep, &low, 0, 0, out);
  arena_rewind(l->arena, mark);
  return ok;
}

static void low_again(const Alike *s, const Known *k, Arena *keep, Lowered *out) {
  uint32_t panel = (uint32_t)(out->panel_count - k->panel);
  const uint32_t *use = k->use;
  for (size_t i = 0; i < k->launches; i++) {
    Launch l = out->launches[k->launch + i];
    BufUse *bufs = ARENA_ARRAY(keep, BufUse, l.k->buf_count + 1);
    for (size_t b = 0; b < l.k->buf_count; b++) {
      bufs[b] = l.bufs[b];
      bufs[b].panel += panel;
      if (bufs[b].kind == USE_VALUE) bufs[b].v.node = s->met[*use++];
    }
    l.bufs = bufs;
    VEC_PUSH(keep, out->launches, out->count, out->cap, l);
  }
  for (size_t i = 0; i < k->panels; i++) {
    Panel p = out->panels[k->panel + i];
    VEC_PUSH(keep, out->panels, out->panel_count, out->panel_cap, p);
  }
}

/* For each buffer of the launches of k, the number of its value; NULL: a value was not met. */
static const uint32_t *uses_of(const Alike *s, const Known *k, Arena *a, const Lowered *out) {
  size_t n = 0;
  for (size_t i = k->launch; i < out->count; i++) n += out->launches[i].k->buf_count;
  uint32_t *use = ARENA_ARRAY(a, uint32_t, n + 1);
  n = 0;
  for (size_t i = k->launch; i < out->count; i++)
    for (size_t b = 0; b < out->launches[i].k->buf_count; b++) {
      const BufUse *u = &out->launches[i].bufs[b];
      if (u->kind != USE_VALUE) continue;
      if (s->round[u->v.node] != s->rounds) return NULL;
      use[n++] = s->number[u->v.node];
    }
  return use;
}

static bool same(const Known *k, uint64_t hash, const Buf *text) {
  return k->hash == hash && k->text_n == text->n && !memcmp(k->text, text->s, text->n);
}

/* Appends what the shelf has for a group. */
static void take(const Alike *s, const Shelved *x, Arena *keep, Lowered *out) {
  size_t i = out->count;
  const uint32_t *use = x->known.use;
  copy_launches(keep, &x->low, 0, 0, out);
  for (; i < out->count; i++)
    for (size_t b = 0; b < out->launches[i].k->buf_count; b++) {
      BufUse *u = &out->launches[i].bufs[b];
      if (u->kind == USE_VALUE) u->v.node = s->met[*use++];
    }
}

static void shelve(const Alike *s, const Known *k, const Lowered *out) {
  Shelf *f = s->shelf;
  Shelved *x = ARENA_NEW(f->a, Shelved);
  *x = (Shelved){.next = f->first, .known = *k};
  x->known.text = arena_strdup(f->a, k->text, k->text_n);
  x->known.use = uses_of(s, k, f->a, out);
  copy_launches(f->a, out, k->launch, k->panel, &x->low);
  f->first = x;
}

bool reuse_lower(Alike *s, Lower *l, const Group *group, Arena *keep, Lowered *out, GErr *e) {
  ArenaMark mark = arena_mark(l->arena);
  Writer w = {.s = s, .l = l};
  buf_init_arena(&w.b, l->arena);
  bool written = write_group(&w, group);
  uint64_t hash = written ? XXH3_64bits(w.b.s, w.b.n) : 0;
  for (const Known *k = s->known; k && written; k = k->next) {
    if (!same(k, hash, &w.b)) continue;
    low_again(s, k, keep, out);
    arena_rewind(l->arena, mark);
    return true;
  }
  const Shelved *x = written && s->shelf ? s->shelf->first : NULL;
  while (x && !same(&x->known, hash, &w.b)) x = x->next;
  Known new = {s->known, hash, w.b.s, w.b.n, out->count, 0, out->panel_count, 0, NULL};
  if (x) take(s, x, keep, out);
  bool ok = x || low_new(l, group, keep, out, e);
  if (!ok || !written) {
    arena_rewind(l->arena, mark);
    return ok;
  }
  new.launches = out->count - new.launch;
  new.panels = out->panel_count - new.panel;
  new.use = x ? x->known.use : uses_of(s, &new, l->arena, out);
  if (!new.use) return true;
  if (!x && s->shelf) shelve(s, &new, out);
  s->known = ARENA_NEW(l->arena, Known);
  *s->known = new;
  return true;
}
