/* Following views.
 *
 * In: a value. Out: its base value, with strides and an offset that are dims, so that they hold for
 * all sizes. A reshape is followed if its axes divide into groups of equal size in which the
 * operand is dense. */
#include "graph/structure.h"
#include "jit/lower/lower_view.h"

static Dim product(DimTab *t, Dim x, Dim y) {
  return dim_mul(t, x, y);
}

static bool is_one(const DimTab *t, Dim d) {
  int64_t n;
  return dim_is_const(t, d, &n) && n == 1;
}

static void itself(const Lower *l, Val v, View *out) {
  const Type *ty = gr_type(l->g, v);
  DimTab *t = l->g->dims;
  *out = (View){.base = v, .rank = ty->rank, .offset = dim_const(t, 0)};
  Dim stride = dim_const(t, 1);
  for (int i = ty->rank - 1; i >= 0; i--) {
    out->stride[i] = stride;
    stride = product(t, stride, ty->dim[i]);
  }
}

/* Strides of the reshaped value; false where they do not exist. */
static bool reshape(DimTab *t, const Type *from, const View *in, const Type *to, View *out) {
  int i = from->rank, j = to->rank; /* axes not yet matched: 0 .. i-1 and 0 .. j-1 */
  for (;;) {
    while (i > 0 && is_one(t, from->dim[i - 1])) i--;
    while (j > 0 && is_one(t, to->dim[j - 1])) out->stride[--j] = dim_const(t, 0);
    if (i == 0 || j == 0) return i == 0 && j == 0;
    /* The smallest groups of equal size. */
    int a = 0, b = 0;
    Dim pa = dim_const(t, 1);
    for (int x = 1; x <= i && a == 0; x++) {
      pa = product(t, pa, from->dim[i - x]);
      Dim pb = dim_const(t, 1);
      for (int y = 1; y <= j && a == 0; y++) {
        pb = product(t, pb, to->dim[j - y]);
        if (dim_compare(t, pa, pb) == DIM_EQUAL) {
          a = x;
          b = y;
        }
      }
    }
    if (a == 0) return false;
    Dim inner = DIM_BAD, next = DIM_BAD; /* stride of the last axis; the one that continues it */
    for (int x = i - 1; x >= i - a; x--) {
      if (is_one(t, from->dim[x])) continue;
      if (inner == DIM_BAD)
        inner = in->stride[x];
      else if (dim_compare(t, in->stride[x], next) != DIM_EQUAL)
        return false;
      next = product(t, in->stride[x], from->dim[x]);
    }
    for (int y = j - 1; y >= j - b; y--) {
      out->stride[y] = inner;
      inner = product(t, inner, to->dim[y]);
    }
    i -= a;
    j -= b;
  }
}

void low_view(const Lower *l, Val v, View *out) {
  stack_check();
  const Graph *g = l->g;
  DimTab *t = g->dims;
  const GNode *n = gr_node(g, v);
  OpCode op = (OpCode)n->op;
  itself(l, v, out);
  if (low_placed(l, v)) return;
  if (op != OP_TRANSPOSE && op != OP_BROADCAST && op != OP_RESHAPE && op != OP_SLICE &&
      op != OP_STOP && op != OP_ALIAS) {
    return;
  }
  Val x = gr_operand(g, v.node, 0);
  const Type *from = gr_type(g, x), *to = gr_type(g, v);
  View in, made;
  low_view(l, x, &in);
  made = in;
  made.rank = to->rank;
  switch (op) {
  case OP_TRANSPOSE: {
    const int64_t *perm = gr_attr(g, v.node, AT_PERM)->u.ints;
    for (int i = 0; i < to->rank; i++) made.stride[i] = in.stride[perm[i]];
    break;
  }
  case OP_BROADCAST: {
    int lead = to->rank - from->rank;
    for (int i = 0; i < to->rank; i++) {
      bool same = i >= lead && !is_one(t, from->dim[i - lead]);
      made.stride[i] = same ? in.stride[i - lead] : dim_const(t, 0);
    }
    break;
  }
  case OP_RESHAPE:
    if (!reshape(t, from, &in, to, &made)) return;
    break;
  case OP_SLICE: {
    const int64_t *start = gr_attr(g, v.node, AT_STARTS)->u.ints;
    const int64_t *by = gr_attr(g, v.node, AT_STEPS)->u.ints;
    for (int i = 0; i < to->rank; i++) {
      made.offset = dim_add(t, made.offset, product(t, (Dim)start[i], in.stride[i]));
      made.stride[i] = product(t, in.stride[i], dim_const(t, by[i]));
    }
    break;
  }
  default: break;
  }
  for (int i = 0; i < made.rank; i++)
    if (made.stride[i] == DIM_BAD) return;
  if (made.offset == DIM_BAD) return;
  *out = made;
}
