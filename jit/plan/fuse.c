/* Fusion: groups of nodes that are computed together.
 *
 * In: a flat graph. Out: groups in an order in which they can run, each with its reason. Views and
 * cheap generators belong to no group: their readers compute them.
 *
 * The idea: every node starts as a group, and in the order of the graph each tries to join the
 * groups of its operands, by one table of what one pass over memory can do (`joined`): pointwise
 * nodes of one element count, reductions over rows with everything of those rows around them, a
 * contraction with what follows element by element. What is read once or costs next to nothing is
 * taken into its reader whatever the way between (transposed, cut, repeated). Nothing expensive is
 * computed twice.
 *
 * Invariant: groups form no cycle; every value that a group reads and that is neither an input, a
 * view nor a generator nor one of its own nodes is an `out` of an earlier group; effects keep their
 * order, and what may fail stays before an effect that it stood before. fuse_groups.c makes the
 * groups of what has joined.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/copy.h"
#include "graph/cost.h"
#include "graph/opcode.h"
#include "jit/lower/lower_op.h"
#include "jit/plan/fuse_impl.h"

enum {
  MOST_NODES = 200,     /* nodes of a group: they bound the code of a kernel */
  MOST_VISITS = 4000,   /* visits of the search for a cycle; past them a join is refused */
  CLONE_NODES = 8,      /* nodes of a chain that each reader computes for itself */
  CLONE_COST = 60,      /* cost of such a chain of one number */
  LARGE = 32,           /* least rows and columns for columns reduced with the rows */
  CHEAP = 4,            /* cost per element that moving 4 bytes hides */
  STRIP_DEPTH = 256,    /* depth of a contraction whose rows are computed in strips */
  STRIP_COLUMNS = 8192, /* length of these rows */
  STRIP_WIDE = 256,     /* columns of a result that all strips of a batch add to */
  STRIP_BATCHES = 4,    /* least known batches, if a batch is one iteration */
  STRIP_DOTS = 4,       /* contractions of values of a strip */
  STRIP_SPAN = 6        /* contractions between the first uses of two values of a strip */
};

/* Whether v is a view of a materialised tensor, without a copy or a kernel. */
static bool free_view(const Graph *g, Val v) {
  bool reshaped = false;
  for (;; v = gr_operand(g, v.node, 0)) {
    switch ((OpCode)g->nodes[v.node].op) {
    case OP_STOP:
    case OP_ALIAS: break;
    case OP_RESHAPE: reshaped = true; break;
    case OP_TRANSPOSE:
    case OP_BROADCAST:
    case OP_SLICE:
      if (reshaped) return false; /* a reshape of a tensor that is not dense copies */
      break;
    case OP_FLIP: return false;
    default: return true;
    }
  }
}

static Dim count_of(const Graph *g, const Type *t) {
  return dim_product(g->dims, t->rank, t->dim);
}

/* The product of C if the node broadcasts [R.., 1..] to [R.., C..]; else DIM_BAD. */
static Dim row_broadcast(const Graph *g, uint32_t node) {
  const Type *x = gr_type(g, gr_operand(g, node, 0)), *y = gr_type(g, (Val){node, 0});
  int off = y->rank - x->rank, k = 0;
  Dim one = dim_const(g->dims, 1), c = one;
  for (; k < off; k++) {
    if (y->dim[k] != one) return DIM_BAD;
  }
  while (k < y->rank && x->dim[k - off] == y->dim[k]) k++;
  for (; k < y->rank; k++) {
    if (x->dim[k - off] != one) return DIM_BAD;
    c = dim_mul(g->dims, c, y->dim[k]);
  }
  return c;
}

/* Follows v through views to their base, or to the first view that is `moved`. */
static Edge trace(const Graph *g, Val v, const bool *moved) {
  Edge e = {.way = WAY_SAME, .all = true};
  for (; low_pulled(g, v.node) && !moved[v.node]; v = gr_operand(g, v.node, 0)) {
    switch ((OpCode)g->nodes[v.node].op) {
    case OP_CONST:
    case OP_DIM:
    case OP_IOTA: e.from = NOBODY; return e;
    case OP_TRANSPOSE:
    case OP_FLIP: e.way = e.way == WAY_SAME ? WAY_MOVE : e.way == WAY_ROW ? WAY_MANY : e.way; break;
    case OP_SLICE:
      e.way = e.way == WAY_SAME || e.way == WAY_MOVE ? WAY_PART
              : e.way == WAY_ROW                     ? WAY_MANY
                                                     : e.way;
      e.all = false;
      break;
    case OP_BROADCAST: {
      Dim c = row_broadcast(g, v.node);
      if (c == dim_const(g->dims, 1)) break;
      bool row = c != DIM_BAD && e.way == WAY_SAME;
      e.way = row ? WAY_ROW : WAY_MANY;
      if (row) e.columns = c;
      break;
    }
    default: break;
    }
  }
  e.from = g->nodes[v.node].op == OP_INPUT || g->nodes[v.node].op == OP_TOKEN ? NOBODY : v.node;
  e.res = v.res;
  return e;
}

/* Whether the node gathers one element of each row. */
static bool picks(const Graph *g, uint32_t node) {
  const Type *t = gr_type(g, (Val){node, 0});
  return t->rank > 0 && gr_attr_i(g, node, AT_AXIS, 0) == t->rank - 1 &&
         t->dim[t->rank - 1] == dim_const(g->dims, 1);
}

/* The edge of operand k of a computed node: its views, and the access of the op itself. */
static Edge edge_of(const Graph *g, uint32_t node, uint32_t k, const bool *moved) {
  const GNode *n = &g->nodes[node];
  Edge e = trace(g, g->operands[n->operand0 + k], moved);
  Way own = WAY_SAME;
  switch ((OpCode)n->op) {
  case OP_PAD:
  case OP_CONCAT: own = WAY_PART; break;
  case OP_TAKE: own = WAY_MANY; break;
  case OP_GATHER:
    if (k == 0 && e.way == WAY_SAME && picks(g, node)) {
      const Type *x = gr_type(g, gr_operand(g, node, 0));
      return (Edge){.from = e.from, .res = e.res, .way = WAY_PICK, .columns = x->dim[x->rank - 1]};
    }
    own = k == 0 ? WAY_MANY : WAY_SAME;
    break;
  case OP_RANDOM:
  case OP_RANDINT:
  case OP_FOLD_IN:
  case OP_PHILOX: own = WAY_MANY; break;
  default:
    if (group_kind((OpCode)n->op) != GROUP_POINT && group_kind((OpCode)n->op) != GROUP_REDUCE)
      own = WAY_MANY;
    break;
  }
  if (own == WAY_MANY && k == 0 && (n->op == OP_TAKE || n->op == OP_GATHER)) e.all = false;
  bool once = e.way == WAY_SAME || e.way == WAY_MOVE || e.way == WAY_PART;
  if (own != WAY_SAME) e.way = own == WAY_PART && once ? WAY_PART : WAY_MANY;
  return e;
}

static bool computed(const Fuse *f, uint32_t i) {
  OpCode op = (OpCode)node_at(f, i)->op;
  return op != OP_INPUT && op != OP_TOKEN && (!low_pulled(f->g, i) || f->root[i] || f->moved[i]);
}

/* Whether a node has to run even if nothing reads it. */
static bool must_run(const GNode *n) {
  return (op_info[n->op].traits & (T_EFFECT | T_REGION)) ||
         ((op_info[n->op].traits & T_FAIL) && n->op != OP_SLICE) || n->op == OP_POW ||
         n->op == OP_RANDINT; /* of ints */
}

bool fuse_in_order(const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  for (uint32_t k = 0; k < n->result_count; k++) {
    if (g->types[n->result0 + k].kind == TK_TOKEN) return true;
  }
  return node_effect(g, node);
}

/* The edge of a view that a kernel computes. */
static Edge edge_of_view(Fuse *f, uint32_t i) {
  bool moved = f->moved[i];
  f->moved[i] = false;
  Edge e = trace(f->g, (Val){i, 0}, f->moved);
  f->moved[i] = moved;
  return e;
}

static bool no_choice(OpCode op) {
  return op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_ALIAS || op == OP_STOP;
}

/* Marks transposes that the group of a pointwise value stores instead of the value. Such a
 * transpose is the only reader of the value, and contractions read it through a reshape that joins
 * axes, so that each of them would have to pack. A value in the group of a contraction is not
 * marked, since its order is that of the contraction. */
static void find_moved(Fuse *f) {
  enum { DOT = 1, JOINED = 2, OF_DOT = 4 };
  const Graph *g = f->g;
  uint32_t *uses = f->uses;
  uint8_t *is = ARENA_ARRAY(f->a, uint8_t, g->node_count + 1);
  for (size_t i = 0; i < g->output_count; i++) uses[g->outputs[i].node] += 2;
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const GNode *n = node_at(f, i);
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = g->operands[n->operand0 + k];
      uses[v.node]++;
      f->user[v.node] = i;
      if (n->op == OP_DOT) is[v.node] |= DOT;
      if (n->op == OP_TRANSPOSE) is[v.node] |= is[i] & DOT;
      if (n->op == OP_ALIAS || n->op == OP_STOP) is[v.node] |= is[i] & (DOT | JOINED);
      if (n->op == OP_RESHAPE && (is[i] & DOT) &&
          gr_type(g, (Val){i, 0})->rank < gr_type(g, v)->rank)
        is[v.node] |= JOINED;
    }
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    GroupKind kind = group_kind((OpCode)node_at(f, i)->op);
    if (kind == GROUP_DOT || kind == GROUP_CONV) is[i] |= OF_DOT;
    for (uint32_t k = 0; kind == GROUP_POINT && k < node_at(f, i)->operand_count; k++) {
      Edge e = edge_of(g, i, k, f->moved);
      if (e.from != NOBODY && e.way == WAY_SAME) is[i] |= is[e.from] & OF_DOT;
    }
    if (node_at(f, i)->op != OP_TRANSPOSE || !(is[i] & JOINED)) continue;
    Val v = gr_operand(g, i, 0);
    while (no_choice((OpCode)node_at(f, v.node)->op) && uses[v.node] == 1)
      v = gr_operand(g, v.node, 0);
    OpCode op = (OpCode)node_at(f, v.node)->op;
    f->moved[i] = uses[v.node] == 1 && op != OP_INPUT && !low_pulled(g, v.node) &&
                  group_kind(op) == GROUP_POINT && !(is[v.node] & OF_DOT);
  }
}

static void look(Fuse *f) {
  const Graph *g = f->g;
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i];
    if (low_pulled(g, v.node) && !free_view(g, v)) {
      f->root[v.node] = true;
    } else {
      while (low_pulled(g, v.node) && !f->moved[v.node] && g->nodes[v.node].operand_count)
        v = gr_operand(g, v.node, 0);
    }
    f->n[v.node].leaves = true;
    f->n[v.node].live = true;
  }
  uint32_t epoch = 0, last = NOBODY;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = node_at(f, i);
    NodeInfo *x = &f->n[i];
    x->part = NOBODY;
    x->epoch = epoch;
    x->before = NOBODY;
    if (n->op != OP_TOKEN && fuse_in_order(g, i)) {
      epoch++;
      x->before = last;
      last = i;
    }
    if (n->result_count) x->count = count_of(g, &g->types[n->result0]);
    if (!computed(f, i)) continue;
    x->edges = ARENA_ARRAY(f->a, Edge, n->operand_count + 1);
    for (uint32_t k = 0; k < n->operand_count; k++) {
      x->edges[k] = low_pulled(g, i) ? edge_of_view(f, i) : edge_of(g, i, k, f->moved);
      Edge *e = &x->edges[k];
      e->moved = e->way == WAY_MOVE || e->way == WAY_PART ||
                 (e->way == WAY_MANY && e->from != NOBODY && f->n[e->from].count == x->count);
      x->moves |= e->moved;
    }
  }
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    const GNode *n = node_at(f, i);
    NodeInfo *x = &f->n[i];
    if (!computed(f, i)) continue;
    x->live = x->live || must_run(n);
    GroupKind kind = group_kind((OpCode)n->op);
    for (uint32_t k = 0; k < n->operand_count && x->live; k++) {
      uint32_t from = x->edges[k].from;
      if (from == NOBODY) continue;
      f->n[from].live = true;
      f->n[from].reader_count++;
      f->n[from].memory |= kind != GROUP_POINT && kind != GROUP_REDUCE;
    }
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    NodeInfo *x = &f->n[i];
    if (!x->live || !x->edges) continue;
    x->reader = ARENA_ARRAY(f->a, uint32_t, x->reader_count + 1u);
    x->reader_count = 0;
    for (uint32_t k = 0; k < node_at(f, i)->operand_count; k++) {
      NodeInfo *y = x->edges[k].from == NOBODY ? NULL : &f->n[x->edges[k].from];
      if (y) y->reader[y->reader_count++] = i;
    }
  }
}

/* Marks the updates of params: pointwise nodes whose values are written to inputs (Graph.writes),
 * or are read by such nodes alone. */
static void find_updates(Fuse *f) {
  const Graph *g = f->g;
  bool *result = ARENA_ARRAY(f->a, bool, g->node_count + 1);
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i];
    while (low_pulled(g, v.node) && g->nodes[v.node].operand_count) v = gr_operand(g, v.node, 0);
    if (i >= g->write_count || g->writes[i] < 0) result[v.node] = true;
  }
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0 && g->write_count;) {
    NodeInfo *x = &f->n[i];
    x->update = x->live && computed(f, i) && !result[i] && (x->leaves || x->reader_count) &&
                group_kind((OpCode)node_at(f, i)->op) == GROUP_POINT && !must_run(node_at(f, i));
    for (uint32_t k = 0; k < x->reader_count && x->update; k++)
      x->update = f->n[x->reader[k]].update;
  }
}

/* ---- chains that each reader computes for itself: single numbers, and values of generators
 * alone */
static bool one_number(const Fuse *f, uint32_t i) {
  return f->n[i].count == dim_const(f->g->dims, 1);
}

static void find_clones(Fuse *f) {
  for (uint32_t i = 0; i < f->g->node_count; i++) {
    const GNode *n = node_at(f, i);
    NodeInfo *x = &f->n[i];
    const OpInfo *op = &op_info[n->op];
    if (!x->live || !computed(f, i) || low_pulled(f->g, i) || op->cls != ELEMENTWISE ||
        (op->traits & T_FAIL))
      continue;
    bool number = one_number(f, i), of_nothing = true;
    unsigned nodes = 1, cost = (unsigned)op->cost;
    for (uint32_t k = 0; k < n->operand_count; k++) {
      uint32_t from = x->edges[k].from;
      if (from == NOBODY) {
        Val v = f->g->operands[n->operand0 + k];
        while (low_pulled(f->g, v.node) && node_at(f, v.node)->operand_count)
          v = gr_operand(f->g, v.node, 0);
        of_nothing = of_nothing && node_at(f, v.node)->op != OP_INPUT;
        continue;
      }
      if (!f->n[from].clone) {
        of_nothing = false;
        continue;
      }
      nodes += f->n[from].clone_nodes;
      cost += f->n[from].clone_cost;
      if (f->n[from].clone != CLONE_NOTHING) of_nothing = false;
    }
    bool fine =
        nodes <= CLONE_NODES && (number ? cost <= CLONE_COST : of_nothing && cost <= CHEAP + 2);
    if (!fine || x->leaves || x->memory) continue;
    x->clone = of_nothing ? CLONE_NOTHING : CLONE_NUMBER;
    x->clone_nodes = (uint8_t)nodes;
    x->clone_cost = (uint8_t)cost;
  }
}

/* ---- joining */
bool fuse_sources(Fuse *f, uint32_t node, PartFn visit) {
  stack_check();
  const NodeInfo *x = &f->n[node];
  for (uint32_t k = 0; k < node_at(f, node)->operand_count; k++) {
    uint32_t from = x->edges[k].from;
    if (from == NOBODY) continue;
    bool found =
        f->n[from].part == NOBODY ? fuse_sources(f, from, visit) : visit(f, f->n[from].part);
    if (found) return true;
  }
  uint32_t before = x->before == NOBODY ? NOBODY : f->n[x->before].part;
  return before != NOBODY && visit(f, before);
}

static bool visit_part(Fuse *f, uint32_t to) {
  if (to == f->goal) return f->at != f->start; /* a direct edge is no cycle */
  Part *t = &f->parts[to];
  if (t->seen == f->stamp || t->hi < f->low) return false;
  t->seen = f->stamp;
  if (f->visits++ > MOST_VISITS) return true;
  VEC_PUSH(f->a, f->stack, f->stack_count, f->stack_cap, to);
  return false;
}

/* Whether a group other than these two reads `on`, directly or through a chain that it computes. */
static bool read_elsewhere(const Fuse *f, uint32_t on, uint32_t part) {
  const Part *p = &f->parts[on];
  for (uint32_t i = 0; i < p->count; i++) {
    const NodeInfo *x = &f->n[p->nodes[i]];
    for (uint32_t k = 0; k < x->reader_count; k++) {
      const NodeInfo *y = &f->n[x->reader[k]];
      if (y->clone || (y->part != NOBODY && y->part != on && y->part != part)) return true;
    }
  }
  return false;
}

/* Whether `part` reads `on` through another group. */
static bool depends(Fuse *f, uint32_t part, uint32_t on) {
  if (!read_elsewhere(f, on, part)) return false;
  f->stamp++;
  f->visits = 0;
  f->stack_count = 0;
  f->start = f->at = part;
  f->goal = on;
  /* Sources have lower numbers: parts before a place that none is on both sides of are no way. */
  for (f->low = f->parts[on].lo; f->low > 0 && f->across[f->low - 1]; f->low--) {
  }
  f->parts[part].seen = f->stamp;
  for (;;) {
    const Part *p = &f->parts[f->at];
    for (uint32_t i = 0; i < p->count; i++) {
      if (fuse_sources(f, p->nodes[i], visit_part)) return true;
    }
    if (!f->stack_count) return false;
    f->at = f->stack[--f->stack_count];
  }
}

/* Whether every edge inside two groups fits the space rows x columns. */
static bool rows_fit(const Fuse *f, uint32_t a, uint32_t b, Dim rows, Dim columns) {
  Dim all = dim_mul(f->g->dims, rows, columns);
  const Part *p = &f->parts[a], *q = &f->parts[b];
  for (uint32_t i = 0; i < p->count + q->count; i++) {
    uint32_t node = i < p->count ? p->nodes[i] : q->nodes[i - p->count];
    const NodeInfo *x = &f->n[node];
    if (x->inner || x->after) continue;
    if (x->count != rows && x->count != all && !x->column) return false;
    bool full = x->count == all || group_kind((OpCode)node_at(f, node)->op) == GROUP_REDUCE;
    for (uint32_t k = 0; k < node_at(f, node)->operand_count; k++) {
      const Edge *e = &x->edges[k];
      if (e->from == NOBODY) continue;
      const NodeInfo *y = &f->n[e->from];
      if (y->inner || (y->part != a && y->part != b)) continue;
      if (y->column || y->after) return false; /* it is complete after all rows */
      bool fits = false;
      if (e->way == WAY_SAME) fits = y->count == (full ? all : rows);
      if (e->way == WAY_ROW) fits = full && y->count == rows && e->columns == columns;
      if (e->way == WAY_PICK) fits = !full && y->count == all && e->columns == columns;
      if (!fits) return false;
    }
  }
  return true;
}

/* Whether all readers of b's values are in a or b. False if a value of b is an output, or has no
 * reader but has to run. */
static bool read_by(const Fuse *f, uint32_t a, uint32_t b) {
  const Part *p = &f->parts[b];
  for (uint32_t i = 0; i < p->count; i++) {
    const NodeInfo *x = &f->n[p->nodes[i]];
    if (x->leaves || (!x->reader_count && must_run(node_at(f, p->nodes[i])))) return false;
    for (uint32_t k = 0; k < x->reader_count; k++) {
      uint32_t to = f->n[x->reader[k]].part;
      if (to != a && to != b) return false;
    }
  }
  return true;
}

static unsigned node_cost(const Fuse *f, uint32_t i) {
  OpCode op = (OpCode)node_at(f, i)->op;
  return op == OP_TAKE || op == OP_GATHER ? 2 * CHEAP : (unsigned)op_info[op].cost;
}

static unsigned cost_of(const Fuse *f, const Part *p) {
  unsigned cost = 0;
  for (uint32_t i = 0; i < p->count; i++) cost += node_cost(f, p->nodes[i]);
  return cost;
}

/* Whether p is a contraction that pointwise nodes may follow. */
static bool contracts(const Fuse *f, const Part *p) {
  return (p->kind == GROUP_DOT && node_at(f, p->anchor)->op != OP_INNER) || p->kind == GROUP_CONV;
}

/* Whether d may be large. */
static bool large(const Fuse *f, Dim d) {
  int64_t n;
  return !dim_is_const(f->g->dims, d, &n) || n >= LARGE;
}

/* Whether p is a contraction that can compute its rows in strips: it has batches, and is not deep,
 * since each strip of rows reads the whole right operand. */
static bool makes_rows(const Fuse *f, const Part *p, Dim rows, Dim columns) {
  int64_t n;
  if (p->kind != GROUP_DOT || node_at(f, p->anchor)->op != OP_DOT) return false;
  const Type *t = gr_type(f->g, (Val){p->anchor, 0});
  const Type *x = gr_type(f->g, gr_operand(f->g, p->anchor, 0));
  DimTab *dims = f->g->dims;
  return t->rank > 2 && (t->dtype == DT_F32 || t->dtype == DT_F64) && x->dtype == t->dtype &&
         gr_attr_i(f->g, p->anchor, AT_COMPUTE, COMPUTE_NONE) == COMPUTE_NONE &&
         dim_is_const(dims, x->dim[x->rank - 1], &n) && n <= STRIP_DEPTH &&
         t->dim[t->rank - 1] == columns && f->n[p->anchor].count == dim_mul(dims, rows, columns) &&
         !(dim_is_const(dims, columns, &n) && n > STRIP_COLUMNS);
}

/* Whether a is a single contraction whose left operand is a value of rows in the strip. */
static bool reads_rows(const Fuse *f, const Part *a, uint32_t strip) {
  const Part *b = &f->parts[strip];
  if (a->kind != GROUP_DOT || a->count != 1 || node_at(f, a->anchor)->op != OP_DOT) return false;
  const NodeInfo *x = &f->n[a->anchor];
  const Type *t = gr_type(f->g, gr_operand(f->g, a->anchor, 0));
  Edge left = trace(f->g, gr_operand(f->g, a->anchor, 0), f->moved);
  return left.from != NOBODY && f->n[left.from].part == strip && left.way == WAY_SAME &&
         f->n[left.from].count == dim_mul(f->g->dims, b->rows, b->columns) &&
         !f->n[left.from].inner && !f->n[left.from].after && !f->n[left.from].column &&
         t->dim[t->rank - 1] == b->columns && t->rank > 2 &&
         t->dtype == gr_type(f->g, (Val){b->anchor, 0})->dtype &&
         gr_attr_i(f->g, a->anchor, AT_COMPUTE, COMPUTE_NONE) == COMPUTE_NONE &&
         (x->edges[1].from == NOBODY || f->n[x->edges[1].from].part != strip);
}

typedef enum Join { JOIN_NOT, JOIN_SPACE, JOIN_INNER } Join;

/* Decides how group b can join group a, of which a node reads b over edge e. *kind is the kind of
 * the joint group. SPACE: the nodes of both have the same elements. INNER: readers compute the
 * nodes of b. */
static Join joined(Fuse *f, uint32_t ia, uint32_t ib, const Edge *e, GroupKind *kind) {
  const Part *a = &f->parts[ia], *b = &f->parts[ib];
  bool point_a = a->kind == GROUP_POINT, point_b = b->kind == GROUP_POINT;
  bool strip_a = a->kind == GROUP_STRIP, strip_b = b->kind == GROUP_STRIP;
  bool rows_a = a->kind == GROUP_ROWS || strip_a, rows_b = b->kind == GROUP_ROWS || strip_b;
  *kind = (GroupKind)(point_a || strip_b ? b->kind : a->kind);
  if (strip_b && reads_rows(f, a, ib)) return JOIN_SPACE;
  if (strip_a && strip_b) return JOIN_NOT;
  if (e->way == WAY_SAME && a->rows == b->rows && (point_a || point_b)) {
    if (point_a && point_b) return JOIN_SPACE;
    if (contracts(f, a) || contracts(f, b)) return JOIN_SPACE;
  }
  if ((rows_a || rows_b) && (rows_a || point_a) && (rows_b || point_b)) {
    const Part *r = rows_a ? a : b;
    bool same = !(rows_a && rows_b) || (a->rows == b->rows && a->columns == b->columns);
    if (same && rows_fit(f, ia, ib, r->rows, r->columns)) return JOIN_SPACE;
  }
  if (a->kind == GROUP_ROWS && e->way == WAY_SAME && makes_rows(f, b, a->rows, a->columns) &&
      rows_fit(f, ia, ib, a->rows, a->columns)) {
    *kind = GROUP_STRIP;
    return JOIN_SPACE;
  }
  /* Columns of a group over rows are reduced together with the rows. */
  if (a->kind == GROUP_COLUMNS && e->way == WAY_SAME && large(f, a->rows) && large(f, a->columns) &&
      !strip_b &&
      (rows_b ? a->rows == b->rows && a->columns == b->columns : point_b && !read_by(f, ia, ib)) &&
      rows_fit(f, ia, ib, a->rows, a->columns)) {
    *kind = GROUP_ROWS;
    return JOIN_SPACE;
  }
  bool takes = point_a || rows_a || a->kind == GROUP_COLUMNS || a->kind == GROUP_REDUCE;
  if (!takes || !point_b || (b->fails && !e->all) || !read_by(f, ia, ib)) return JOIN_NOT;
  *kind = (GroupKind)a->kind;
  unsigned cost = cost_of(f, b);
  switch ((Way)e->way) {
  case WAY_SAME:
  case WAY_MOVE: return JOIN_INNER;
  case WAY_PART: return cost <= CHEAP ? JOIN_INNER : JOIN_NOT;
  default: return cost <= CHEAP / 2 ? JOIN_INNER : JOIN_NOT;
  }
}

static void absorb(Fuse *f, uint32_t into, uint32_t from) {
  Part *a = &f->parts[into], *b = &f->parts[from];
  for (uint32_t i = a->lo; i < a->hi; i++) f->across[i]--;
  for (uint32_t i = b->lo; i < b->hi; i++) f->across[i]--;
  for (uint32_t i = 0; i < b->count; i++) {
    VEC_PUSH(f->a, a->nodes, a->count, a->cap, b->nodes[i]);
    f->n[b->nodes[i]].part = into;
  }
  if (b->lo < a->lo) a->lo = b->lo;
  if (b->hi > a->hi) a->hi = b->hi;
  for (uint32_t i = a->lo; i < a->hi; i++) f->across[i]++;
  if (b->epoch_lo < a->epoch_lo) a->epoch_lo = b->epoch_lo;
  if (b->epoch_hi > a->epoch_hi) a->epoch_hi = b->epoch_hi;
  a->fails |= b->fails;
  a->early |= b->early;
  a->late |= b->late;
  a->update |= b->update;
  a->moves |= b->moves;
  if (a->anchor == NOBODY) a->anchor = b->anchor;
  b->dead = true;
  b->count = 0;
}

/* Whether one group belongs to the forward and the other to a backward that recomputes values,
 * which would be computed in the forward and stay alive, beside the kept ones. */
static bool apart_in_time(const Part *a, const Part *b) {
  return (a->early && b->late) || (a->late && b->early);
}

/* The first node outside of two groups that reads a value of the first one. Values that leave have
 * their places from the beginning and do not count. */
static uint32_t first_use(const Fuse *f, uint32_t of, uint32_t other) {
  const Part *p = &f->parts[of];
  uint32_t first = NOBODY;
  for (uint32_t i = 0; i < p->count; i++) {
    const NodeInfo *x = &f->n[p->nodes[i]];
    if (x->leaves) continue;
    for (uint32_t k = 0; k < x->reader_count; k++) {
      uint32_t to = f->n[x->reader[k]].part;
      if ((to == NOBODY || (to != of && to != other)) && x->reader[k] < first) first = x->reader[k];
    }
  }
  return first;
}

/* Whether one group would compute values of `ia`, the reader, long before they are used: others
 * read a value of `ib` at once, those of `ia` only behind contractions. Between, they would lie in
 * memory beside the values that they are computed from. So factors of derivatives are computed in
 * the backward, and what a backward computes again stays apart from what reads it later. */
static bool is_hoisted(const Fuse *f, uint32_t ia, uint32_t ib, GroupKind kind) {
  uint32_t a = first_use(f, ia, ib), b = first_use(f, ib, ia);
  uint32_t most = kind == GROUP_STRIP ? STRIP_SPAN : 0;
  return b < a && a != NOBODY && f->heavy[a] - f->heavy[b] > most;
}

/* Whether one group is an update and the other a contraction of factors that are larger than its
 * value, a gradient. Updates come last (order.c), and the factors would wait for them. */
static bool waits_for_update(const Fuse *f, const Part *a, const Part *b) {
  const Part *dot = contracts(f, a) ? a : b;
  if (!contracts(f, dot) || !(dot == a ? b : a)->update) return false;
  int64_t factors = 0;
  for (uint32_t k = 0; k < node_at(f, dot->anchor)->operand_count; k++)
    factors = cost_add(
        factors, cost_room(f->g, gr_type(f->g, gr_operand(f->g, dot->anchor, (int)k)), f->env));
  return factors > cost_room(f->g, gr_type(f->g, (Val){dot->anchor, 0}), f->env);
}

static bool within(const Fuse *f, uint32_t i, uint32_t ia, uint32_t ib) {
  return i != NOBODY && (f->n[i].part == ia || f->n[i].part == ib);
}

/* Whether a node, with those of the two groups that it is computed from, costs more than `left`. */
static bool costs_more(const Fuse *f, uint32_t i, uint32_t ia, uint32_t ib, int *left) {
  stack_check();
  *left -= 1 + (int)node_cost(f, i);
  for (uint32_t k = 0; k < node_at(f, i)->operand_count && *left >= 0; k++) {
    uint32_t from = f->n[i].edges[k].from;
    if (within(f, from, ia, ib)) costs_more(f, from, ia, ib, left);
  }
  return *left < 0;
}

/* Adds a place to those at which a node is computed for one element of a group. */
static void add_spot(NodeInfo *x, uint32_t spot) {
  if (!x->spots || (x->spots == 1 && x->spot[0] != spot)) x->spot[x->spots++] = spot;
}

int fuse_by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

/* Whether both groups together would compute a value at several places for one element: it is read
 * where it is and moved, or moved in two ways, perhaps by what is computed from it. In a chain that
 * would double with each link. */
static bool made_twice(Fuse *f, uint32_t ia, uint32_t ib) {
  const Part *a = &f->parts[ia], *b = &f->parts[ib];
  uint32_t node[MOST_NODES], n = 0;
  if (!a->moves && !b->moves) return false;
  for (uint32_t i = 0; i < a->count; i++) node[n++] = a->nodes[i];
  for (uint32_t i = 0; i < b->count; i++) node[n++] = b->nodes[i];
  qsort(node, n, sizeof *node, fuse_by_number);
  for (uint32_t i = n; i-- > 0;) { /* from readers to what they read */
    NodeInfo *x = &f->n[node[i]];
    x->spots = 0;
    if (x->leaves || !x->reader_count) add_spot(x, 0);
    for (uint32_t r = 0; r < x->reader_count; r++) {
      uint32_t by = x->reader[r];
      const NodeInfo *y = &f->n[by];
      if (!within(f, by, ia, ib)) add_spot(x, 0);
      for (uint32_t k = 0; within(f, by, ia, ib) && k < node_at(f, by)->operand_count; k++) {
        const Edge *e = &y->edges[k];
        Val v = f->g->operands[node_at(f, by)->operand0 + k];
        for (int q = 0; e->from == node[i] && q < y->spots; q++)
          add_spot(x, e->moved ? (y->spot[q] ^ (v.node + 1)) * 16777619u + v.res : y->spot[q]);
      }
    }
    if (x->spots > 1 && costs_more(f, node[i], ia, ib, &(int){4 * CHEAP})) return true;
  }
  return false;
}

static void try_join(Fuse *f, uint32_t ia, uint32_t ib, const Edge *e) {
  Part *a = &f->parts[ia], *b = &f->parts[ib];
  if (ia == ib || a->count + b->count > MOST_NODES || apart_in_time(a, b) ||
      waits_for_update(f, a, b))
    return;
  if (a->fails || b->fails) {
    uint32_t lo = a->epoch_lo < b->epoch_lo ? a->epoch_lo : b->epoch_lo;
    uint32_t hi = a->epoch_hi > b->epoch_hi ? a->epoch_hi : b->epoch_hi;
    if (lo != hi) return;
  }
  GroupKind kind;
  Join how = joined(f, ia, ib, e, &kind);
  if (how == JOIN_NOT || made_twice(f, ia, ib) || is_hoisted(f, ia, ib, kind)) return;
  if (depends(f, ia, ib) || depends(f, ib, ia)) return;
  for (uint32_t i = 0; i < b->count && how == JOIN_INNER; i++) f->n[b->nodes[i]].inner = true;
  if (b->kind == GROUP_STRIP && a->kind == GROUP_DOT) f->n[a->anchor].after = true;
  if (b->kind == GROUP_ROWS || b->kind == GROUP_STRIP) {
    a->rows = b->rows;
    a->columns = b->columns;
  }
  if (b->kind == GROUP_STRIP || (b->kind == GROUP_DOT && kind == GROUP_STRIP))
    a->anchor = b->anchor; /* the contraction that computes the rows */
  a->kind = (uint8_t)kind;
  absorb(f, ia, ib);
}

/* Whether the strip can compute `dot`, a contraction over the rows of its value x. x is operand `k`
 * of the dot (0: transposed). All strips of a batch, in order, add to the chains. */
static bool goes_along(const Fuse *f, uint32_t dot, uint32_t k, uint32_t x, uint32_t strip) {
  const Graph *g = f->g;
  const Part *b = &f->parts[strip];
  const Type *score = gr_type(g, (Val){b->anchor, 0}), *t = gr_type(g, gr_operand(g, dot, k));
  const Type *z = gr_type(g, (Val){dot, 0});
  Dim wide = z->dim[k ? z->rank - 2 : z->rank - 1];
  const NodeInfo *other = &f->n[dot];
  int64_t n, batches = 1;
  int dots = 0;
  for (int i = 0; i + 2 < score->rank; i++)
    batches *= dim_is_const(g->dims, score->dim[i], &n) && batches < STRIP_BATCHES ? n : 1;
  for (uint32_t i = 0; i < b->count; i++) dots += f->n[b->nodes[i]].after;
  if (other->edges[1 - k].from != NOBODY && f->n[other->edges[1 - k].from].part == strip)
    return false;
  return !b->dead && batches >= STRIP_BATCHES && dots < STRIP_DOTS && t->rank > 2 &&
         t->dtype == score->dtype && z->dtype == score->dtype &&
         gr_attr_i(g, dot, AT_COMPUTE, COMPUTE_NONE) == COMPUTE_NONE &&
         t->dim[t->rank - 1 - (k ? 1 : 0)] == score->dim[score->rank - 2] &&
         t->dim[t->rank - 2 + (k ? 1 : 0)] == b->columns &&
         f->n[x].count == dim_mul(g->dims, b->rows, b->columns) && !f->n[x].inner &&
         !f->n[x].after && !f->n[x].column && dim_is_const(g->dims, wide, &n) && n <= STRIP_WIDE;
}

static bool join_strip(Fuse *f, uint32_t dot, uint32_t k, uint32_t x, uint32_t strip) {
  uint32_t part = f->n[dot].part;
  Part *a = &f->parts[part], *b = &f->parts[strip];
  if (part == strip || b->kind != GROUP_STRIP || b->count >= MOST_NODES ||
      !goes_along(f, dot, k, x, strip) || apart_in_time(a, b) || depends(f, part, strip) ||
      depends(f, strip, part))
    return false;
  f->n[dot].after = true;
  f->n[dot].right = k == 1;
  a->rows = b->rows;
  a->columns = b->columns;
  a->anchor = b->anchor;
  a->kind = GROUP_STRIP;
  absorb(f, part, strip);
  return true;
}

/* Joins contractions over the rows of values that strips compute or read: gradients of keys and
 * values. */
static void join_strips(Fuse *f) {
  const Graph *g = f->g;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const NodeInfo *y = &f->n[i];
    if (g->nodes[i].op != OP_DOT || !y->live || y->part == NOBODY) continue;
    if (f->parts[y->part].kind != GROUP_DOT || f->parts[y->part].count != 1) continue;
    for (uint32_t k = 2; k-- > 0;) {
      Val v = gr_operand(g, i, k);
      if (k == 0 && !low_transposed(g, v, &v)) continue;
      Edge e = trace(g, v, f->moved);
      if (e.from == NOBODY || e.way != WAY_SAME || f->n[e.from].part == NOBODY) continue;
      const NodeInfo *x = &f->n[e.from];
      bool joins = join_strip(f, i, k, e.from, x->part);
      for (uint32_t r = 0; r < x->reader_count && !joins; r++) {
        const NodeInfo *z = &f->n[x->reader[r]];
        if (z->part == NOBODY || g->nodes[x->reader[r]].op == OP_DOT) continue;
        for (uint32_t q = 0; q < g->nodes[x->reader[r]].operand_count && !joins; q++) {
          joins = z->edges[q].from == e.from && z->edges[q].way == WAY_SAME &&
                  join_strip(f, i, k, e.from, z->part);
        }
      }
      if (joins) break;
    }
  }
}

/* The space of a reduction: leading or trailing axes. */
static void reduce_space(const Fuse *f, uint32_t node, Part *p) {
  const Graph *g = f->g;
  const Type *t = gr_type(g, gr_operand(g, node, 0));
  const Attr *axes = gr_attr(g, node, AT_AXES);
  bool gone[CKL_MAX_RANK] = {false};
  int n = 0;
  for (uint32_t i = 0; i < axes->count; i++) gone[axes->u.ints[i]] = true;
  for (int k = 0; k < t->rank; k++) n += gone[k];
  bool last = n > 0, first = n > 0;
  for (int k = 0; k < n; k++) {
    last = last && gone[t->rank - 1 - k];
    first = first && gone[k];
  }
  Dim one = dim_const(g->dims, 1);
  Dim a = dim_product(g->dims, last ? t->rank - n : n, t->dim);
  Dim b = dim_product(g->dims, last ? n : t->rank - n, t->dim + (last ? t->rank - n : n));
  if (!last && !first) return;
  if (a == one || b == one || a == DIM_BAD || b == DIM_BAD) return; /* all of it, or nothing */
  p->kind = last ? GROUP_ROWS : GROUP_COLUMNS;
  p->rows = a;
  p->columns = b;
  f->n[node].column = first && !last;
}

/* Joins reductions of one space that read one value, so that they take one pass. */
static void join_columns(Fuse *f, uint32_t part) {
  for (size_t i = f->column_count; i-- > 0 && f->column_count - i < 16;) {
    Part *a = &f->parts[part], *b = &f->parts[f->columns[i]];
    if (b->dead || a->rows != b->rows || a->columns != b->columns || apart_in_time(a, b)) continue;
    bool shared = false;
    for (uint32_t x = 0; x < a->count && !shared; x++) {
      for (uint32_t y = 0; y < b->count && !shared; y++) {
        const GNode *p = node_at(f, a->nodes[x]), *q = node_at(f, b->nodes[y]);
        for (uint32_t k = 0; k < p->operand_count; k++) {
          for (uint32_t l = 0; l < q->operand_count; l++) {
            shared |= val_eq(f->g->operands[p->operand0 + k], f->g->operands[q->operand0 + l]);
          }
        }
      }
    }
    if (!shared || a->fails || b->fails || depends(f, part, f->columns[i]) ||
        depends(f, f->columns[i], part))
      continue;
    absorb(f, part, f->columns[i]);
  }
  VEC_PUSH(f->a, f->columns, f->column_count, f->column_cap, part);
}

static uint32_t forward_nodes(const Graph *g) {
  uint32_t first = UINT32_MAX;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const Prov *p = &g->provs[g->nodes[i].prov];
    if (first == UINT32_MAX && (p->backward || p->recomputed)) first = i;
    if (p->recomputed && !low_pulled(g, i)) return first;
  }
  return 0;
}

static void start_part(Fuse *f, uint32_t node) {
  const GNode *n = node_at(f, node);
  NodeInfo *x = &f->n[node];
  Part p = {.kind = (uint8_t)group_kind((OpCode)n->op), .anchor = NOBODY, .lo = node, .hi = node};
  const Prov *prov = &f->g->provs[n->prov];
  p.late = prov->recomputed || prov->backward;
  p.early = node < f->forward;
  p.update = x->update;
  p.epoch_lo = p.epoch_hi = x->epoch;
  p.moves = f->n[node].moves;
  p.fails = (op_info[n->op].traits & T_FAIL) && group_kind((OpCode)n->op) != GROUP_EFFECT &&
            n->op != OP_SLICE;
  if (p.kind != GROUP_POINT) p.anchor = node;
  p.rows = x->count;
  if (p.kind == GROUP_REDUCE) reduce_space(f, node, &p);
  VEC_PUSH(f->a, p.nodes, p.count, p.cap, node);
  x->part = (uint32_t)f->part_count;
  VEC_PUSH(f->a, f->parts, f->part_count, f->part_cap, p);
}

/* The last of the contractions that a node reads; NULL if there are fewer than two. A node that
 * joins the last one adds to a sum of many as they are computed, instead of waiting for all. */
static const Edge *last_contraction(const Fuse *f, uint32_t node) {
  const Edge *last = NULL;
  uint32_t count = 0;
  for (uint32_t k = 0; k < node_at(f, node)->operand_count; k++) {
    const Edge *e = &f->n[node].edges[k];
    if (e->from == NOBODY || f->n[e->from].part == NOBODY) continue;
    const Part *p = &f->parts[f->n[e->from].part];
    if (p->kind != GROUP_DOT && p->kind != GROUP_CONV) continue;
    if (!last || p->anchor > f->parts[f->n[last->from].part].anchor) last = e;
    count++;
  }
  return count > 1 ? last : NULL;
}

static void make_parts(Fuse *f, bool apart) {
  if (!apart) find_clones(f);
  for (uint32_t i = 0; i < f->g->node_count; i++) {
    NodeInfo *x = &f->n[i];
    if (!x->live || !x->edges) continue;
    if (x->clone) continue;
    start_part(f, i);
    if (apart) continue;
    const Edge *last = last_contraction(f, i);
    if (last) try_join(f, x->part, f->n[last->from].part, last);
    for (uint32_t k = 0; k < node_at(f, i)->operand_count; k++) {
      uint32_t from = x->edges[k].from;
      if (from == NOBODY || f->n[from].part == NOBODY) continue;
      try_join(f, x->part, f->n[from].part, &x->edges[k]);
    }
    if (f->parts[x->part].kind == GROUP_COLUMNS) join_columns(f, x->part);
  }
  if (!apart) join_strips(f);
}

void fuse(Arena *keep, Arena *a, const Graph *g, const int64_t *env, bool apart, Groups *out) {
  Fuse f = {.keep = keep, .a = a, .g = g, .env = env};
  f.n = ARENA_ARRAY(a, NodeInfo, g->node_count + 1);
  f.root = ARENA_ARRAY(a, bool, g->node_count + 1);
  f.moved = ARENA_ARRAY(a, bool, g->node_count + 1);
  f.uses = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  f.user = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  f.across = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  if (!apart) find_moved(&f);
  f.forward = forward_nodes(g);
  f.heavy = ARENA_ARRAY(a, uint32_t, g->node_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++) {
    GroupKind k = group_kind((OpCode)g->nodes[i].op);
    f.heavy[i + 1] = f.heavy[i] + (k != GROUP_POINT && k != GROUP_REDUCE && !low_pulled(g, i));
  }
  look(&f);
  find_updates(&f);
  make_parts(&f, apart);
  if (fuse_put_out(&f, out)) return;
  /* Groups wait for each other, since the search missed a cycle. Single nodes never do. */
  CK_ASSERT(a->mem, !apart);
  out->count = 0;
  fuse(keep, a, g, env, true, out);
}
