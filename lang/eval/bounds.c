/* Run-time numbers of code as polynomials of sizes.
 *
 * In: an int number of code. Out: the dim that it is, if its nodes are made of sizes and constants,
 * and of numbers of iterations of the loops around it. What else is in it is a symbol of its own,
 * which may drop out of a difference. A loop gets the symbol for its number of the iteration (a
 * counter, graph/dim.h) when the first size needs it.
 */
#include "lang/eval/bounds.h"

#include "graph/opcode.h"
#include "lang/compile/stage.h"
#include "lang/eval/ops.h"
#include "lang/eval/turns.h"

enum { BOUND_NODES = 1000 /* the most nodes that are visited */ };

struct BoundSeen {
  const Stage *st;
  Val v;
  Dim d;
};

struct BoundSymbol {
  Dim size;        /* DIM_BAD: a run-time number */
  const Stage *of; /* the number of this turn; NULL: none */
};

static Dim symbol(Bounds *b, Name name, struct BoundSymbol is) {
  Sym same;
  VEC_PUSH(&b->s->scratch, b->symbols, b->symbol_count, b->symbol_cap, is);
  return dim_symbol(b->t, name, (Span){0}, &same);
}

Bounds bounds_new(Session *s) {
  DimTab *own = op_dims_of(s);
  Bounds b = {.s = s, .t = dim_tab_new(&s->scratch), .sizes = dim_symbol_count(own)};
  b.in = ARENA_ARRAY(&s->scratch, Dim, b.sizes + 1);
  for (Sym k = 0; k < b.sizes; k++)
    b.in[k] =
        symbol(&b, dim_symbol_name(own, k), (struct BoundSymbol){dim_of_symbol(own, k), NULL});
  return b;
}

/* The number of the turn that st stages, as a dim of b->t. */
static Dim turn_of(Bounds *b, const Stage *st) {
  Sym k;
  int64_t first;
  Dim own = turns_counter(st, false, &first);
  bool known = own != DIM_BAD && dim_is_symbol(st->g->dims, own, &k) && k < b->sizes;
  Dim d = known ? b->in[k] : symbol(b, NULL, (struct BoundSymbol){DIM_BAD, st});
  return dim_sub(b->t, d, dim_const(b->t, first));
}

static Dim of_node(Bounds *b, const Stage *st, Val v) {
  stack_check();
  for (size_t i = 0; i < b->count; i++)
    if (b->seen[i].st == st && val_eq(b->seen[i].v, v)) return b->seen[i].d;
  const Graph *g = st->g;
  const GNode *n = gr_node(g, v);
  const Attr *a = n->op == OP_CONST ? gr_attr(g, v.node, AT_VALUE) : NULL;
  Dim d = DIM_BAD, x[2];
  Dim (*const by)(DimTab *, Dim, Dim) = n->op == OP_ADD        ? dim_add
                                        : n->op == OP_SUB      ? dim_sub
                                        : n->op == OP_MUL      ? dim_mul
                                        : n->op == OP_FLOORDIV ? dim_floordiv
                                        : n->op == OP_MOD      ? dim_mod
                                        : n->op == OP_MAX      ? dim_max
                                        : n->op == OP_MIN      ? dim_min
                                                               : NULL;
  size_t place = b->count;
  VEC_PUSH(&b->s->scratch, b->seen, b->count, b->cap, ((struct BoundSeen){st, v, d}));
  for (int i = 0; by && i < 2 && place < BOUND_NODES; i++)
    x[i] = of_node(b, st, gr_operand(g, v.node, i));
  if (by && place < BOUND_NODES) d = by(b->t, x[0], x[1]);
  if (a && a->kind == AK_INT) d = dim_const(b->t, a->u.i);
  if (n->op == OP_FITS) d = of_node(b, st, gr_operand(g, v.node, 0));
  if (n->op == OP_DIM) {
    Dim size = (Dim)gr_attr(g, v.node, AT_SIZE)->u.i;
    d = dim_import(b->t, op_dims_of(b->s), size, b->in, b->sizes);
  }
  for (size_t i = 0; n->op == OP_INPUT && i < st->capture_count; i++)
    if (val_eq(st->inner[i], v)) d = of_node(b, st->up, st->outer[i]);
  if (n->op == OP_INPUT && st->turns && val_eq(g->inputs[0], v)) d = turn_of(b, st);
  if (d == DIM_BAD) d = symbol(b, NULL, (struct BoundSymbol){DIM_BAD, NULL});
  b->seen[place].d = d;
  return d;
}

Dim bounds_of(Bounds *b, Value v) {
  const Stage *st = b->s->stage;
  if (v.tag == V_INT) return dim_const(b->t, v.u.i);
  if (v.tag == V_DIM) return dim_import(b->t, op_dims_of(b->s), v.u.d, b->in, b->sizes);
  while (st->level > v.aux) st = st->up;
  return of_node(b, st, v.u.v);
}

typedef struct Used {
  Bounds *b;
  bool turns;
  Dim *to;
} Used;

static void use(void *ud, Sym k) {
  Used *u = ud;
  const struct BoundSymbol *is = &u->b->symbols[k];
  Sym own;
  u->to[k] = is->size;
  int64_t first;
  if (is->of && u->turns) u->to[k] = turns_counter(is->of, true, &first);
  bool size = u->to[k] != DIM_BAD && dim_is_symbol(op_dims_of(u->b->s), u->to[k], &own);
  if (size && !u->turns && dim_is_counter(op_dims_of(u->b->s), own)) u->to[k] = DIM_BAD;
}

Dim bounds_dim(Bounds *b, Dim d, bool turns) {
  Sym count = dim_symbol_count(b->t);
  Used u = {b, turns, ARENA_ARRAY(&b->s->scratch, Dim, count + 1)};
  if (d == DIM_BAD) return d;
  dim_symbols(b->t, d, use, &u);
  return dim_import(op_dims_of(b->s), b->t, d, u.to, count);
}

Dim bounds_size(Session *s, Value v) {
  bool number = s->stage && v.tag == V_NODE && v.weak && op_type_of(s, v).dtype == DT_I64;
  Bounds b;
  if (!number) return DIM_BAD;
  b = bounds_new(s);
  return bounds_dim(&b, bounds_of(&b, v), true);
}
