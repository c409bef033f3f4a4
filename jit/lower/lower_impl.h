/* Inside of lowering: positions of elements, and the choice of loops.
 *
 * A Spot is the position of an element in digits: numbers v < n whose mixed-radix value, the last
 * digit the lowest, is the row-major number of the element. A Spot has no shape, so a reshape
 * changes nothing; ops that need coordinates cut the digits at the axes (low_cut). When loops are
 * chosen well (lower_space.c), every cut falls between two digits and costs nothing.
 * Example: element (i, j) of [4, 6] has the digits i < 4, j < 6. As [24] it has the same digits; a
 * transpose to [6, 4] has j, i.
 */
#ifndef CKL_JIT_LOWER_LOWER_IMPL_H
#define CKL_JIT_LOWER_LOWER_IMPL_H

#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower.h"

enum { MAX_DIGITS = 40, MAX_SIDE = 4 };

typedef struct Digit {
  LVal v;
  Dim n;
} Digit;

/* Interned per kernel: equal spots are one pointer. No digit has the constant size 1. */
typedef struct Spot Spot;
struct Spot {
  Spot *next;
  uint32_t hash, count;
  Digit d[];
};

typedef struct Digits { /* a spot being made, or cut in groups */
  int count;
  Digit d[MAX_DIGITS];
} Digits;

/* Facts from a trial run of the pulls about its initial digits, the atoms. */
typedef struct Watch {
  int count;
  LVal atom[MAX_DIGITS];
  Dim size[MAX_DIGITS];
  bool apart[MAX_DIGITS]; /* atoms k and k + 1 cannot be one loop */
  /* a load has atom k as its last digit, and the last atom before it */
  bool crossed[MAX_DIGITS];
  int split; /* an atom that a cut divides into `high` and `low`; -1 = none */
  Dim high, low;
  /* Called for each value that is not materialised. True: the trial needs no value, and goes no
   * deeper. */
  bool (*visit)(void *ud, Val v, const Spot *s);
  void *ud;
} Watch;

typedef struct Memo Memo;
struct Memo {
  Spot **spots;
  size_t spot_count, spot_cap;
  struct Pulled *pulled;
  size_t pulled_count, pulled_cap; /* open addressing */
  struct DimArg *dims;
  size_t dim_count, dim_cap;
  Watch *watch;
  int depth;
  struct Keep *keep;         /* per entry of g->types, or NULL: lower_rows.c */
  const Spot *row[MAX_SIDE]; /* the rows for which `keep` holds */
  int rows;
};

/* A value kept while a row is computed: its elements of the row lie in a buffer. */
typedef struct Keep {
  int buf[MAX_SIDE]; /* per row worked on */
  bool local;        /* buf holds one row; else the whole value */
  bool strip;        /* of several rows: row u begins at at[u] */
  LVal at[MAX_SIDE];
  bool ready; /* from here on */
  bool taken; /* buf belongs to another value now */
} Keep;

static inline uint32_t low_index_of(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}
static inline const Type *low_type(const Low *w, Val v) {
  return gr_type(w->l->g, v);
}
static inline DimTab *low_tab(const Low *w) {
  return w->l->g->dims;
}

/* ---- dims: arithmetic that fails the group if a size passes 2^63 - 1 */
Dim low_const_dim(Low *w, int64_t n);
Dim low_mul(Low *w, Dim a, Dim b);
Dim low_add(Low *w, Dim a, Dim b);
Dim low_sub(Low *w, Dim a, Dim b);
Dim low_ceil_div(Low *w, Dim a, int64_t by);
Dim low_div(Low *w, Dim a, Dim b);
Dim low_count(Low *w, const Type *t);           /* elements */
bool low_divides(Low *w, Dim a, Dim b, Dim *q); /* provably a == q * b */
static inline bool low_known(const Low *w, Dim d, int64_t *n) {
  return dim_is_const(low_tab(w), d, n);
}
static inline bool low_is(const Low *w, Dim d, int64_t n) {
  int64_t c;
  return low_known(w, d, &c) && c == n;
}

/* ---- spots */
void low_digit(Low *w, Digits *d, LVal v, Dim n); /* appends, unless n is 1 */
const Spot *low_spot(Low *w, const Digit *d, int n);
/* The mixed-radix number of n digits. */
LVal low_merge(Low *w, const Digit *d, int n);
static inline LVal low_number(Low *w, const Spot *s) {
  return low_merge(w, s->d, (int)s->count);
}
/* Cuts the digits of s into n groups of the sizes `size` (their product is that of the digits):
 * group i is out->d[start[i]] .. out->d[start[i + 1] - 1]. */
void low_cut(Low *w, const Spot *s, int n, const Dim *size, Digits *out, int start[]);
const Spot *low_index_spot(Low *w, Val v, const Index *at);

/* Appends an elementwise op; `to` is the dtype of its result. LV_NONE: it is none. */
LVal low_apply(Kernel *k, OpCode op, DType to, const LVal *x);
/* ---- pulling */
LVal low_at(Low *w, Val v, const Spot *s);
void low_know(Low *w, Val v, const Spot *s, LVal x); /* low_bind by spot */
LVal low_int(Low *w, int64_t x);                     /* an i64 literal of the program */
/* Each pulls one op, whose operands it pulls itself. LV_NONE with w->failed if the op has no loop
 * form. */
LVal pull_elem(Low *w, uint32_t node, const Spot *s);
LVal pull_generate(Low *w, uint32_t node, const Spot *s);
LVal pull_move(Low *w, uint32_t node, const Spot *s);
/* The spot in a tensor that is indexed along `axis`, for spot s in the shape of the index. */
const Spot *low_along(Low *w, const Type *idx, const Type *x, int axis, LVal index, const Spot *s);
LVal low_checked(Low *w, LVal i, Dim n); /* checks an index; 0 if it is out of range */

/* ---- loops (lower_space.c) */
enum { REDUCED = 255 }; /* class of an axis that is reduced; others are kept */
/* Pieces of an index space in row-major order. */
typedef struct Space {
  int count;
  Dim size[MAX_DIGITS];
  uint8_t cls[MAX_DIGITS];
  bool crossed[MAX_DIGITS]; /* a load is contiguous along it, and jumps along the last one */
} Space;
/* Makes the pulls of a kernel at two spots: of the kept pieces, and of all pieces. */
typedef void (*TrialFn)(Low *w, const Spot *kept, const Spot *all, void *ud);
/* Divides the n axes into pieces such that `pull` needs no division, if such pieces exist. Joins
 * neighbours of one class that need not be apart. False = failed. */
bool low_space(Low *w, int n, const Dim *size, const uint8_t *cls, TrialFn pull, void *ud,
               Space *out);

/* A loop nest over a space: opens LP_PAR and loops; `at` has a digit for each piece. */
typedef struct Nest {
  Digits at;
  int blocks; /* to close */
} Nest;
void low_nest(Low *w, const Space *s, Nest *n);
void low_nest_end(Low *w, Nest *n);
/* How many steps of a loop whose body handles `below` elements make an iteration; at least 1. */
Dim low_steps(Low *w, Dim below);
/* Splits the lowest digit, of size n, from *t and returns it. */
LVal low_take(Low *w, LVal *t, Dim n);
LVal low_least(Low *w, LVal a, LVal b);

/* ---- reductions (lower_reduce.c) */
typedef struct Fold {
  Val v, x; /* result, operand */
  DType dt; /* the computing type */
  LRed kind;
  RefBin f;
  double start;
} Fold;
/* A kernel that combines partial results and stores `out`. They are [blocks][results], or
 * [blocks][16][results] if the lanes of a block are not combined yet. */
typedef struct Tree {
  const Fold *fold;
  int count;
  Dim results, blocks;
  bool lanes;
  uint32_t panel0; /* one panel per reduction, in the computing type */
  Val *out;
  uint32_t out_count;
} Tree;
bool low_tree(Lower *l, const Group *g, const Tree *t, Lowered *out, GErr *e);
Fold low_fold(Low *w, uint32_t node);
LVal low_fold_x(Low *w, const Fold *f, const Spot *s);            /* pulls the operand, in f->dt */
void low_fold_know(Low *w, const Fold *f, const Spot *s, LVal x); /* binds the result */

bool low_point(Lower *l, const Group *g, Lowered *out, GErr *e);
bool low_rows(Lower *l, const Group *g, Lowered *out, GErr *e);
bool low_strip(Lower *l, const Group *g, Lowered *out, GErr *e);
bool low_reduce(Lower *l, const Group *g, Lowered *out, GErr *e);
bool low_scan(Lower *l, const Group *g, Lowered *out, GErr *e);
bool low_scatter(Lower *l, const Group *g, Lowered *out, GErr *e);

/* Moves loop-invariant straight-line code before its loop (lower_hoist.c). */
Kernel *low_hoist(Arena *a, const Kernel *k);

void low_store(Low *w, Val v, const Spot *s);        /* pulls v and stores it in its buffer */
Dim low_cost(Low *w);                                /* operations per element of the group */
LVal low_kept(Low *w, const Keep *k, const Spot *s); /* LV_NONE: not in this row */

/* Arithmetic of numbers and indices. */
static inline LVal add(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_ADD, x, y);
}
static inline LVal sub(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_SUB, x, y);
}
static inline LVal mul(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_MUL, x, y);
}
static inline LVal less(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_LT, x, y);
}

#endif
