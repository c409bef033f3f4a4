/* From groups of graph nodes to kernels in loop form, and what a launch of one needs.
 *
 * `fuse` (fuse.c) cuts a graph into groups; `lower` makes one or several kernels of each group;
 * `plan` (plan.c) orders them and gives every materialised value a place; `exec` runs them.
 *
 * A value is materialised when it is an input or output of the graph, an `out` of a group, or a
 * panel (packed operand) made by lowering: it lies row-major and contiguous in memory. All other
 * values exist inside kernels only: lowering *pulls* them, element by element, from what is
 * materialised. View ops (reshape, transpose, broadcast, slice, flip, alias, stop) and cheap
 * generators (iota, const, dim) are always pulled unless they are outs. */
#ifndef CKL_JIT_LOWER_LOWER_H
#define CKL_JIT_LOWER_LOWER_H

#include "graph/ir.h"
#include "graph/op.h"
#include "jit/loop/loop.h"

/* Whether kernels compute the value where they read it: views and cheap generators. */
static inline bool low_pulled(const Graph *g, uint32_t node) {
  return op_info[g->nodes[node].op].traits & T_PULL;
}

typedef enum GroupKind {
  GROUP_POINT,   /* outs of one shape (after reshape: one element count), each element by itself */
  GROUP_ROWS,    /* reductions over the same trailing axes of values of one shape R x C, and
                    pointwise nodes of shapes R and R x C around them; outs of shape R or R x C;
                    also reductions over R, which are outs of shape C and read by nothing inside */
  GROUP_COLUMNS, /* reductions over the same leading axes of values of one shape, read in one
                    pass */
  GROUP_REDUCE,  /* one reduction over any axes, its operand pulled */
  GROUP_DOT,     /* one dot (or inner), operands pulled by packing or read in place; outs: the dot
                    itself or pointwise functions of its shape that are pulled as an epilogue */
  GROUP_CONV,    /* one convolution, the same */
  GROUP_STRIP,   /* a dot (root), ROWS over its value and such as are shaped like it, and dots
                    whose left operand is one of these: in strips of rows */
  GROUP_SCATTER, /* one put / put_add / scatter / scatter_add */
  GROUP_SCAN,    /* one cumsum, cummax, cummin, argmax / argmin over any axis */
  GROUP_REF,     /* one node run by the reference evaluator: what has no loop form, as sort */
  GROUP_REGION,  /* one branch, loop or map: its regions are plans of their own, or the
                    evaluator's */
  GROUP_EFFECT   /* one effect or host call */
} GroupKind;

typedef struct Group {
  uint8_t kind;
  uint32_t root;   /* the dot, conv, reduction, ...; POINT: the last node */
  uint32_t *nodes; /* all nodes computed inside, in graph order, views and generators excepted */
  uint32_t node_count;
  Val *outs; /* to materialise, in graph order */
  uint32_t out_count;
  const char *reason; /* why this group ends where it ends, for `ckl explain` */
  bool late;          /* it runs in the last phase of a run, in which nothing fails (order.c) */
} Group;

/* What a kernel's buffer is, in the order of Kernel.bufs. */
typedef struct BufUse {
  enum { USE_VALUE, USE_PANEL, USE_LOCAL } kind;
  Val v;          /* VALUE */
  uint32_t panel; /* PANEL: number in Lowered.panels */
  bool either;    /* VALUE: the panel replaces it if sizes make `copied` 1; it stays if 0 */
  Dim copied;
} BufUse;

static inline bool buf_is_panel(const BufUse *u, const DimTab *t, const int64_t *env) {
  int64_t n;
  if (u->kind != USE_VALUE || !u->either) return u->kind == USE_PANEL;
  return dim_eval(t, u->copied, env, NULL, &n) && n > 0;
}

/* An argument: its value when sizes are known. */
typedef struct ArgUse {
  enum { ARG_DIM, ARG_BITS } kind;
  Dim dim;
  int64_t bits; /* a literal: the bits of its f64 value, or an int */
} ArgUse;

typedef struct Panel { /* memory between the kernels of one group */
  DType dtype;
  Dim count; /* elements */
} Panel;

typedef struct Launch {
  Kernel *k;
  BufUse *bufs;  /* k->buf_count */
  ArgUse *args;  /* k->arg_count */
  Dim flops;     /* of the whole launch, a rough count */
  uint32_t like; /* in a plan: the first launch with this kernel */
} Launch;

typedef struct Lowered {
  Launch *launches;
  size_t count, cap; /* in order */
  Panel *panels;
  size_t panel_count, panel_cap;
} Lowered;

/* The register tile of f32 contractions for a target; f64 has half the columns. */
typedef struct RegTile {
  int rows, columns;
} RegTile;

/* What lowering works on, and which values are materialised. */
typedef struct Lower Lower;
struct Lower {
  Arena *arena;
  const Graph *g;
  RegTile tile;
  const uint8_t *placed; /* per entry of g->types: 1 = materialised before this group runs */
};

/* Appends the group's kernels to `out`. False with `e` when the group has no loop form (the caller
 * then makes it GROUP_REF, node by node). Throws when out of memory. */
bool low_group(Lower *l, const Group *group, Lowered *out, GErr *e);

/* Whether v is the transpose of the last two axes of *out. */
bool low_transposed(const Graph *g, Val v, Val *out);

/* ---- inside of lowering */

/* One kernel under construction. */
typedef struct Low {
  Lower *l;
  const Group *group;
  Kernel *k;
  BufUse *bufs;
  size_t buf_count, buf_cap;
  ArgUse *args;
  size_t arg_count, arg_cap;
  struct Memo *memo; /* values already pulled at the present loop nest */
  GErr *e;
  bool failed;
  Dim flops; /* of the launch; low_begin sets 0 */
} Low;

/* Where an element is: by coordinates, or by its row-major number. */
typedef struct Index {
  bool linear;
  LVal lin;              /* linear */
  LVal at[CKL_MAX_RANK]; /* else one per axis */
} Index;

/* With a size of 0 a kernel has no iterations, or does nothing in them. There is one exception: if
 * the axis that take or gather indexes is symbolic and has size 0, the kernel may read the first
 * element of an empty buffer. */
void low_begin(Low *w, Lower *l, const Group *group, GErr *e);
void low_finish(Low *w, Lowered *out);       /* cleans the kernel and appends the launch */
int low_value(Low *w, Val v, LBufKind kind); /* buffer of a materialised value; once per value */
int low_panel(Low *w, uint32_t panel, DType dt, LBufKind kind);
/* Buffer to read of a value, or of its copy in a panel (BufUse.either). */
int low_either(Low *w, Val v, uint32_t panel, Dim copied);
/* Buffer of scratch memory: `each` elements times the value of argument `arg` (-1 = 1). */
int low_local(Low *w, DType dt, int arg, int64_t each);
int low_dim_arg(Low *w, Dim d);                 /* number of the argument */
LVal low_dim(Low *w, Dim d);                    /* an i64: constant where d is, else an argument */
LVal low_attr(Low *w, const Attr *v, DType dt); /* of a `const` or `pad`; NULL = 0 */
LVal low_row_major(Low *w, const Type *t, const LVal *at); /* number of an element */
/* Computes one element of v from materialised values, by straight-line code at the present place.
 * LV_NONE with w->failed when an op cannot be pulled. */
LVal low_pull(Low *w, Val v, const Index *at);
/* Binds the element of v at `at` to x, up to the end of the present block. So the result of a tile
 * enters its epilogue. Pulls find it only if their `at` consists of the same LVals. */
void low_bind(Low *w, Val v, const Index *at, LVal x);
/* Fails the group: e gets the text, and later pulls return LV_NONE. Returns LV_NONE. */
LVal low_fail(Low *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool low_dot(Lower *l, const Group *group, Lowered *out, GErr *e); /* DOT, CONV */

#endif
