/* Inside of lowering contractions: declarations that products and convolutions share.
 *
 * A contraction is C[i, j] = chain over k of A[i, k] B[k, j]. Rows are cut into tiles, columns
 * into panels. A Form finds the place of a tile, cuts k where the step of an operand changes, and
 * finds the place of an element of C. */
#ifndef CKL_JIT_LOWER_LOWER_DOT_H
#define CKL_JIT_LOWER_LOWER_DOT_H

#include "graph/structure.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"
#include "jit/lower/lower_view.h"

enum {
  CHAIN = 4096, /* length of a chain (rule 105) */
  KC = 1024,    /* longest piece of k, in f32 */
  ROWS_IN_BLOCK = 112,
  COLUMNS_IN_BLOCK = 256,
  ITERATIONS_WANTED = 12,
  ITERATIONS_FILLED = 6,     /* where each iteration fills the same scratch */
  ITERATION_LEAST = 1 << 19, /* multiplications below which an iteration is not cut */
  FEW_ROWS = 4,
  OFTEN = 2048,  /* rows of A */
  A_PITCH = 16,  /* row of a packed tile of A */
  GROUP_GAP = 16 /* elements between groups of a panel */
};

typedef enum SideKind {
  SIDE_DIRECT, /* in place */
  SIDE_ROWS,   /* A: panel of whole rows */
  SIDE_TILES,  /* A: panel [tiles][K][16]; B: panel [panels][K][nr] */
  SIDE_LOCAL   /* B: filled into scratch [piece][nr] just before use */
} SideKind;

typedef struct Side {
  SideKind kind;
  Val v;
  const Type *type;
  View view;
  uint32_t panel;
  bool transposed;            /* used as its transpose: [n, k] or [k, m] */
  bool along_k;               /* packing: k is the axis that lies densely */
  bool batched[CKL_MAX_RANK]; /* batch axes over which the operand does not repeat */
  bool either; /* DIRECT: sizes decide by `copied`, 0 or 1, whether the side is ROWS instead */
  Dim copied;
  Dim row, step, batch; /* strides of reads: rows (A) or panels (B), k, batches (packed) */
} Side;

typedef struct Dot Dot;
typedef struct Main Main;

typedef struct Place { /* of a tile */
  LVal r0, rows, c0, cols;
  LVal a, b;    /* elements at k = 0, b within its panel or scratch */
  LVal high[2]; /* of the form: coordinates shared by the tile */
} Place;

typedef struct Form {
  /* Rows and A of tile `tile` (its number among all of the batch). */
  void (*rows)(Dot *d, Main *f, LVal tile, Place *o);
  /* The offset from Place.a to the element at k0. */
  LVal (*skip)(Dot *d, Main *f, LVal k0);
  /* Digits of element (row, col) of the result, and its row-major number. */
  LVal (*digits)(Dot *d, Main *f, const Place *o, LVal row, LVal col, Digits *at);
  /* SIDE_LOCAL: elements k0 + 0 .. depth-1 of the columns of a panel into buffer `to`, rows of
   * nr. */
  bool (*fill)(Dot *d, Main *f, LVal c0, LVal cols, LVal k0, LVal depth, int to);
  /* Turns the chains of a tile, rows of nr in scratch, into results. May be NULL. */
  bool (*finish)(Dot *d, Main *f, const Place *o, int from, LVal base);
} Form;

struct Dot {
  Lower *l;
  const Group *group;
  Lowered *out;
  GErr *e;
  DimTab *t;
  const Form *form;
  Val z;
  const Type *type;
  DType dt; /* the computing type */
  int compute;
  int rank, batch; /* axes 0 .. batch-1 are batches, batch .. rank-2 rows */
  Dim iterations_b, m, n, k;
  Dim gate; /* 0 or 1: whether these kernels have iterations; sizes decide */
  bool few; /* they have only where there are at most FEW_ROWS rows */
  Dim run;  /* A has one step of k within pieces of this length; k itself: everywhere */
  int mr, nr;
  int64_t block_tiles, block_panels; /* of an iteration */
  Dim tiles, panels;                 /* of a batch; ceil(n / nr) */
  Side a, b;
  const struct Conv *conv;
};

/* The main kernel under construction. */
struct Main {
  Low w;
  LVal m, n, k, tiles, panels;
  LVal batch, at[CKL_MAX_RANK]; /* number and coordinates of the batch */
  LVal t0, t1, p0, p1;          /* tiles and panels of this iteration */
  int a, b;                     /* buffers */
  LVal a0, b0;                  /* first elements in this batch */
  LVal a_row, a_step, b_row, b_step;
};

/* ---- dims and index arithmetic */
static inline Dim dim_num(const Dot *d, int64_t n) {
  return dim_const(d->t, n);
}
static inline Dim times(const Dot *d, Dim x, Dim y) {
  return dim_mul(d->t, x, y);
}
static inline Dim ceil_div(const Dot *d, Dim x, int64_t by) {
  return dim_floordiv(d->t, dim_add(d->t, x, dim_num(d, by - 1)), dim_num(d, by));
}
static inline bool dim_known(const Dot *d, Dim x, int64_t *out) {
  return dim_is_const(d->t, x, out);
}
static inline bool dim_is(const Dot *d, Dim x, int64_t n) {
  int64_t v;
  return dim_known(d, x, &v) && v == n;
}
static inline bool at_most(const Dot *d, Dim x, int64_t n) {
  int64_t v;
  return dim_known(d, x, &v) && v <= n;
}
static inline LVal least(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_MIN, x, y);
}
static inline LVal most_of(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_MAX, x, y);
}
static inline LVal imm(Low *w, int64_t n) {
  return lp_i(w->k, n);
}
static inline void end(Low *w) {
  lp_end(w->k);
}
/* The first of part number i of `n` things in `parts` nearly equal parts. */
static inline LVal share(Low *w, LVal i, LVal n, LVal parts) {
  return lp_idiv(w->k, mul(w, i, n), parts);
}

/* ---- lower_dot.c */
/* Pulls an element in the computing type. */
LVal dot_operand(const Dot *d, Low *w, Val v, const Digits *at);
bool dot_readable(const Dot *d, const Side *s); /* the base of its view can be read in place */
uint32_t dot_panel(Dot *d, Dim count);
bool dot_finish(Dot *d, Low *w, Dim flops);
/* Sets mr, nr and panels from the known sizes: `height` rows have one stride, there are `n`
 * columns. */
void dot_choose_tile(Dot *d, Dim height);
/* Pulls and stores the outs at an element with the chain x. */
bool dot_element(Dot *d, Main *f, const Place *o, LVal row, LVal col, LVal x);
bool dot_main(Dot *d);
/* Divides the batch number into coordinates at[0 .. batch-1]; if `only` is not NULL, of the axes
 * marked there alone. */
void dot_batch_coords(const Dot *d, Low *w, LVal number, const bool *only, LVal *at);
/* The stride between groups of a panel. It has a gap, so that groups written side by side do not
 * share one set of the caches. */
Dim dot_group_stride(const Dot *d, int64_t pitch);
/* dot_plan_* choose how a side is read. dot_pack_* append the kernel that packs it, if needed. */
void dot_plan_a(Dot *d);
void dot_plan_b(Dot *d);
bool dot_pack_a(Dot *d);
bool dot_pack_b(Dot *d);
/* dot_side_buf is the buffer of a side, dot_side_base its first element in a batch. */
int dot_side_buf(const Dot *d, Low *w, const Side *s);
LVal dot_side_base(const Dot *d, Low *w, const Side *s, const LVal *at);

/* ---- lower_conv.c */
bool low_conv(Dot *d, OpCode op);
void conv_begin(Dot *d, Main *f); /* before the iterations of the main kernel */

#endif
