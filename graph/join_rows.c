/* Rows: what a loop gave turn by turn and `stack` joins again is read as one tensor, and a tensor
 * that a gradient takes apart for the turns of a loop is given to it whole.
 *
 * In: a simplified graph, in which equal values are one. Out: the same graph with `unstash_rows`
 * for a `concat` of what `unstash` gives, and `stash_rows` for a `stash` of slices, where some of
 * them are next to each other; `g` itself if there are none. The numbers are the same, and so is
 * what fails. Gradients are taken before: they are summed row by row. */
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/structure.h"

/* Operands next to each other: rows first .. first + count - 1 of what `of` is. */
typedef struct Piece {
  enum { ALONE, ROWS, PARTS, SAME } kind;
  Val of; /* ALONE, SAME: the operand; ROWS: the stash; PARTS: what `slice` takes them from */
  int axis;
  int64_t first, count;
} Piece;

typedef struct Node { /* that is made anew */
  size_t count;       /* of pieces; 0: it stays */
  Piece *pieces;
} Node;

/* Whether x is t with an axis of size 1 before `axis`. */
static bool with_axis(const Graph *g, const Type *x, const Type *t, int axis) {
  int64_t one;
  bool same = x->rank == t->rank + 1 && x->dtype == t->dtype && axis < x->rank &&
              dim_is_const(g->dims, x->dim[axis], &one) && one == 1;
  for (int k = 0; k < t->rank && same; k++) same = t->dim[k] == x->dim[k + (k >= axis)];
  return same;
}

/* What operand v of a `concat` along `axis` is. */
static Piece joined(const Graph *g, Val v, int axis) {
  Piece alone = {ALONE, v, axis, 0, 1};
  if (g->nodes[v.node].op != OP_RESHAPE) return alone;
  Val row = gr_operand(g, v.node, 0);
  if (g->nodes[row.node].op != OP_UNSTASH || !with_axis(g, gr_type(g, v), gr_type(g, row), axis))
    return alone;
  return (Piece){ROWS, gr_operand(g, row.node, 0), axis, row.res, 1};
}

/* What operand v of a `stash` is. */
static Piece taken(const Graph *g, Val v) {
  Piece alone = {ALONE, v, 0, 0, 1};
  if (g->nodes[v.node].op != OP_RESHAPE) return alone;
  Val part = gr_operand(g, v.node, 0);
  if (g->nodes[part.node].op != OP_SLICE) return alone;
  Val of = gr_operand(g, part.node, 0);
  const Attr *starts = gr_attr(g, part.node, AT_STARTS), *steps = gr_attr(g, part.node, AT_STEPS);
  const Type *from = gr_type(g, of), *t = gr_type(g, part);
  int axis = -1;
  int64_t first = 0, start;
  for (int k = 0; k < t->rank; k++) {
    if (!dim_is_const(g->dims, (Dim)starts->u.ints[k], &start) || steps->u.ints[k] != 1)
      return alone;
    if (t->dim[k] == from->dim[k]) continue;
    if (axis >= 0) return alone;
    axis = k;
    first = start;
  }
  if (axis < 0 || !with_axis(g, t, gr_type(g, v), axis)) return alone;
  return (Piece){PARTS, of, axis, first, 1};
}

/* Adds an operand to the piece before it, if that goes on with it; `same`: also if it is equal. */
static bool goes_on(Piece *p, const Piece *x, bool same) {
  if (p->kind == ROWS || p->kind == PARTS) {
    bool next = x->kind == p->kind && val_eq(x->of, p->of) && x->axis == p->axis &&
                x->first == p->first + p->count;
    p->count += next;
    return next;
  }
  if (!same || x->kind != ALONE || !val_eq(p->of, x->of)) return false;
  p->kind = SAME;
  p->count++;
  return true;
}

static Node look(Arena *a, const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  bool join = n->op == OP_CONCAT;
  Node x = {0, NULL};
  if ((!join && n->op != OP_STASH) || n->operand_count < 2 || g->provs[n->prov].anomaly) return x;
  const Type *t = gr_type(g, join ? (Val){node, 0} : gr_operand(g, node, 0));
  if (t->kind != TK_TENSOR || (!join && t->rank == CKL_MAX_RANK)) return x;
  size_t most = n->operand_count - 1u, count = 0;
  Piece *p = ARENA_ARRAY(a, Piece, most + 1);
  int axis = join ? (int)gr_attr_i(g, node, AT_AXIS, 0) : 0;
  for (uint32_t k = 0; k < n->operand_count; k++) {
    Val v = gr_operand(g, node, (int)k);
    Piece now = join ? joined(g, v, axis) : taken(g, v);
    if (k && goes_on(&p[count - 1], &now, !join)) continue;
    if (count == most) return x;
    p[count++] = now;
  }
  return (Node){count, p};
}

/* ---- the new nodes */

/* v with axis `axis` as its first one; or, `back`, with its first one there. */
static Val moved(B *b, Val v, int axis, bool back) {
  int64_t perm[CKL_MAX_RANK];
  int rank = gr_type(b->g, v)->rank;
  for (int k = 0; k < rank; k++) perm[k] = k > axis ? k : back ? k + 1 : k - 1;
  perm[back ? axis : 0] = back ? 0 : axis;
  Attr attr = attr_ints(AT_PERM, rank, perm);
  return axis ? b_op(b, OP_TRANSPOSE, 1, &v, 1, &attr) : v;
}

/* Elements first .. first + count - 1 of an axis of v. */
static Val part_of(B *b, Val v, int axis, int64_t first, int64_t count) {
  const Type t = *gr_type(b->g, v);
  int64_t starts[CKL_MAX_RANK], lens[CKL_MAX_RANK], steps[CKL_MAX_RANK], all;
  if (dim_is_const(b->g->dims, t.dim[axis], &all) && !first && all == count) return v;
  for (int k = 0; k < t.rank; k++) {
    starts[k] = dim_const(b->g->dims, k == axis ? first : 0);
    lens[k] = k == axis ? dim_const(b->g->dims, count) : t.dim[k];
    steps[k] = 1;
  }
  Attr attrs[3] = {attr_dims(AT_STARTS, t.rank, starts), attr_dims(AT_LENS, t.rank, lens),
                   attr_ints(AT_STEPS, t.rank, steps)};
  return b_op(b, OP_SLICE, 1, &v, 3, attrs);
}

/* Rows of type t of a stash, as operands of a `concat` next to each other. */
static Val of_rows(B *b, const Piece *p, Val stash, const Type *t) {
  int64_t dims[CKL_MAX_RANK];
  for (int k = 0; k < t->rank; k++) dims[k] = t->dim[k];
  Attr attrs[4] = {attr_i(AT_MAPPED, p->first + p->count), attr_i(AT_DTYPE, t->dtype),
                   attr_i(AT_DEVICE, t->dev), attr_dims(AT_DIMS, t->rank, dims)};
  Val v = b_op(b, OP_UNSTASH_ROWS, 1, &stash, 4, attrs);
  if (!b->failed) v = part_of(b, v, 0, p->first, p->count);
  return b->failed ? VAL_NONE : moved(b, v, p->axis, true);
}

/* Operands of a `stash`, which have type t, along a first axis. */
static Val of_parts(B *b, const Piece *p, Val of, const Type *t) {
  Dim dim[CKL_MAX_RANK];
  if (p->kind == PARTS) {
    Val v = part_of(b, of, p->axis, p->first, p->count);
    return b->failed ? VAL_NONE : moved(b, v, p->axis, false);
  }
  dim[0] = dim_const(b->g->dims, 1);
  for (int k = 0; k < t->rank; k++) dim[k + 1] = t->dim[k];
  Val v = b_reshape(b, of, t->rank + 1, dim);
  dim[0] = dim_const(b->g->dims, p->count);
  return b->failed || p->kind == ALONE ? v : b_broadcast(b, v, t->rank + 1, dim);
}

/* Appends a node made of pieces; VAL_NONE if it has another type. */
static Val made(Arena *a, const Graph *g, uint32_t node, const Node *x, Graph *d, ValMap *map) {
  B b = {.g = d};
  bool join = g->nodes[node].op == OP_CONCAT;
  int64_t axis = join ? gr_attr_i(g, node, AT_AXIS, 0) : 0;
  Val *v = ARENA_ARRAY(a, Val, x->count + 1);
  uint32_t at = 0;
  d->at = g->provs[g->nodes[node].prov];
  for (size_t i = 0; i < x->count && !b.failed; i++) {
    const Piece *p = &x->pieces[i];
    Val first = gr_operand(g, node, (int)at), of = map_get(map, p->of);
    at += (uint32_t)p->count;
    if (!join)
      v[i] = of_parts(&b, p, of, gr_type(g, first));
    else
      v[i] = p->kind == ALONE ? of : of_rows(&b, p, of, gr_type(g, gr_operand(g, first.node, 0)));
  }
  if (b.failed) return VAL_NONE;
  Attr attr = attr_i(AT_AXIS, axis);
  Val all = x->count > 1 ? b_op(&b, OP_CONCAT, (int)x->count, v, 1, &attr) : v[0];
  if (!join && !b.failed) all = b_op(&b, OP_STASH_ROWS, 1, &all, 0, NULL);
  if (b.failed) return VAL_NONE;
  const Type want = *gr_type(g, (Val){node, 0}), *have = gr_type(d, all);
  return type_same(d->dims, have, &want) ? all : VAL_NONE;
}

Graph *gr_rows(Arena *a, Graph *g) {
  stack_check();
  Node *nodes = ARENA_ARRAY(a, Node, g->node_count + 1);
  Graph **inner = ARENA_ARRAY(a, Graph *, g->region_count + 1);
  bool here = false;
  for (uint32_t i = 0; i < g->node_count; i++) {
    nodes[i] = look(a, g, i);
    here |= nodes[i].count > 0;
  }
  for (size_t i = 0; i < g->region_count; i++) {
    inner[i] = gr_rows(a, g->regions[i]);
    here |= inner[i] != g->regions[i];
  }
  if (!here) return g;
  Graph *d = copy_start(a, g);
  ValMap map = map_new(a, g);
  for (uint32_t i = 0; i < g->node_count; i++) {
    Val v = nodes[i].count ? made(a, g, i, &nodes[i], d, &map) : VAL_NONE;
    if (val_none(v))
      copy_node(d, &map, i, inner + g->nodes[i].region0);
    else
      map_set(&map, (Val){i, 0}, v);
  }
  copy_checks(d, g);
  copy_outputs(d, &map);
  d->at = g->at;
  return d;
}
