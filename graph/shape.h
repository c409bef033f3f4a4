/* Shape rules, inside graph/ only: the result types of an op, from operand types and attributes. */
#ifndef CKL_GRAPH_SHAPE_H
#define CKL_GRAPH_SHAPE_H

#include "graph/ir.h"
#include "graph/structure.h"

/* The arguments of a shape rule. It fills `out`, which has room for op_result_count() types. */
typedef struct ShapeCall {
  DimTab *dims;
  OpCode op;
  const Type *const *in;
  int n;
  const Attr *attrs;
  int nattrs;
  Graph *const *regions;
  int nregions;
  Type *out;
  int nout;
  Graph *into; /* undecided conditions are appended to its checks; NULL = they fail */
  GErr *e;
  const char *const *operand_text; /* how the operands are written, for help lines */
  int operand_text_count;
} ShapeCall;

/* How many results the op has with these attributes and regions. */
int op_result_count(OpCode op, const Attr *attrs, int nattrs, Graph *const *regions, int nregions);
/* Runs the shape rule; false with `e` filled. Throws when out of memory. The alias class of results
 * is 0. */
bool op_shape(ShapeCall *c);
const char *op_written(OpCode op); /* `+` for add, else the op's name */
bool gerr_help(GErr *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline const Attr *attr_find(const Attr *a, int n, AttrKey k) {
  for (int i = 0; i < n; i++) {
    if (a[i].key == k) return &a[i];
  }
  return NULL;
}

static inline Type type_stash(void) {
  return (Type){.kind = TK_STASH, .dtype = DT_I64, .dev = DEV_CPU};
}

static inline Type type_of(DType dt, Device dev, int rank) {
  Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)dt, .dev = (uint8_t)dev, .rank = (uint8_t)rank};
  return t;
}

#endif
