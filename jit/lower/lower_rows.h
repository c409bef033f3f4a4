/* Kernels over rows: declarations that lower_rows.c and lower_strip.c share. */
#ifndef CKL_JIT_LOWER_LOWER_ROWS_H
#define CKL_JIT_LOWER_LOWER_ROWS_H

#include "jit/lower/lower_impl.h"

enum {
  MAX_PASSES = 12,
  MAX_FOLDS = 32,
  MAX_DOTS = 4, /* contractions that a strip feeds */
  SIDE = 2      /* rows side by side, since the additions of one lane wait for one another */
};
_Static_assert((int)SIDE <= (int)MAX_SIDE, "Keep has room");

/* A strip's rows are the result of one contraction and the operands of others. */
typedef struct Strip {
  Val score;  /* [.., row, column], the contraction's value */
  int scores; /* buffer: rows of the strip, of chains */
  int count;
  Val left[MAX_DOTS];     /* values of full shape that contractions read */
  int lefts[MAX_DOTS];    /* buffers of these values, laid out as the scores */
  uint32_t dot[MAX_DOTS]; /* nodes of these contractions */
  LVal at[SIDE];          /* first element of the rows at hand in these buffers */
} Strip;

typedef struct Rows {
  Low w;
  const Group *g;
  Strip *strip; /* or NULL */
  Dim rows, cols;
  int fold_count;
  Fold fold[MAX_FOLDS];
  uint8_t level[MAX_FOLDS];
  int passes;
  /* per entry of types */
  uint8_t *depth; /* reductions below a value */
  uint8_t *first; /* pass that makes it first, 0 = none */
  uint8_t *last;  /* pass that reads what is kept of it last */
  int16_t *cost;
  bool *kept;
  int pass; /* of the trial */
  const Spot *all;
  Space kept_space, space[MAX_PASSES + 1];
  int col_count; /* reductions over the rows, their operands, and local rows of results */
  Fold col[MAX_FOLDS];
  int acc[MAX_FOLDS];
  Dim blocks;
  int side;         /* rows worked on together */
  LVal there[SIDE]; /* bool: the row exists */
  const Spot *row[SIDE];
} Rows;

/* Finds the reductions of the group and chooses the passes. The caller builds the kernel in r->w
 * afterwards. `strip` may be NULL. */
bool rows_begin(Rows *r, Lower *l, const Group *g, Strip *strip, GErr *e);
/* The spot of row number x. */
const Spot *rows_spot(Rows *r, LVal x);
/* Emits all passes over the rows r->row[0 .. side-1]. */
void rows_passes(Rows *r);

#endif
