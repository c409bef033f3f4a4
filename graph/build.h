/* Appending nodes to a graph. */
#ifndef CKL_GRAPH_BUILD_H
#define CKL_GRAPH_BUILD_H

#include "graph/ir.h"
#include "graph/structure.h"

/* Appends a node: runs the op's shape rule on operand types and attributes. `attrs` are copied,
 * with the data that they point to. Returns the first result, or VAL_NONE with `e` filled and the
 * graph unchanged. Undecided size conditions go to g->checks. */
Val gr_op(Graph *g, OpCode op, const Val *operands, int n, const Attr *attrs, int nattrs,
          Graph *const *regions, int nregions, GErr *e);

/* Attribute makers for gr_op calls. */
static inline Attr attr_i(AttrKey k, int64_t i) {
  return (Attr){(uint16_t)k, AK_INT, 0, {.i = i}};
}
static inline Attr attr_f(AttrKey k, double f) {
  return (Attr){(uint16_t)k, AK_FLOAT, 0, {.f = f}};
}
static inline Attr attr_dim(AttrKey k, Dim d) {
  return (Attr){(uint16_t)k, AK_DIM, 0, {.i = d}};
}
static inline Attr attr_text(AttrKey k, Name s) {
  return (Attr){(uint16_t)k, AK_TEXT, 0, {.text = s}};
}
static inline Attr attr_ints(AttrKey k, int n, const int64_t *v) {
  return (Attr){(uint16_t)k, AK_INTS, (uint32_t)n, {.ints = v}};
}
static inline Attr attr_dims(AttrKey k, int n, const int64_t *v) { /* each a Dim */
  return (Attr){(uint16_t)k, AK_DIMS, (uint32_t)n, {.ints = v}};
}

/* ---- builders that read like mathematics (graph/build.c). They broadcast nothing by themselves
 * except where said. When a shape rule fails, they record the error in b->err and return VAL_NONE;
 * with an operand VAL_NONE they return VAL_NONE. So callers check b->failed once, at the end. */
typedef struct B {
  Graph *g;
  GErr err;
  bool failed;
} B;
Val b_op(B *b, OpCode op, int n, const Val *v, int nattrs, const Attr *attrs);
Val b_un(B *b, OpCode op, Val x);
Val b_bin(B *b, OpCode op, Val x, Val y); /* a rank-0 operand is broadcast to the other's shape */
Val b_where(B *b, Val c, Val x, Val y);   /* rank-0 operands are broadcast */
Val b_const(B *b, Val like, double x);    /* of like's dtype and device, broadcast to its shape */
Val b_zeros(B *b, const Type *t);
/* The first n rows of a stash, each of type `row`: results 0 .. n - 1 of the node of the value. */
Val b_unstash(B *b, Val stash, const Type *row, int64_t n);
Val b_cast(B *b, Val x, DType dt);
Val b_reshape(B *b, Val x, int rank, const Dim *dims);
Val b_broadcast(B *b, Val x, int rank, const Dim *dims);
Val b_transpose(B *b, Val x, const int64_t *perm);
Val b_swap(B *b, Val x);                                /* last two axes */
Val b_sum(B *b, Val x, int naxes, const int64_t *axes); /* axes removed; naxes 0 = x itself */
Val b_sum_to(B *b, Val x, int rank, const Dim *dims);   /* undoes b_broadcast */
/* re-inserts size-1 axes, broadcasts to like */
Val b_keep(B *b, Val reduced, Val like, int naxes, const int64_t *axes);

#endif
