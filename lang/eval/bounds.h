/* Run-time numbers of code as polynomials of sizes: bounds.c. */
#ifndef CKL_LANG_EVAL_BOUNDS_H
#define CKL_LANG_EVAL_BOUNDS_H

#include "lang/lang.h"

/* Polynomials in a table of their own, in which run-time numbers are symbols, beside those of
 * sizes. So the length of the slice `i * w : (i + 1) * w` is `w` for every `i`. */
typedef struct Bounds {
  Session *s;
  DimTab *t;
  Dim *in; /* the symbols of sizes in t */
  Sym sizes;
  struct BoundSymbol *symbols; /* per symbol of t: what it is in the stage's own table */
  size_t symbol_count, symbol_cap;
  struct BoundSeen *seen;
  size_t count, cap;
} Bounds;

Bounds bounds_new(Session *s);
/* v, a V_NODE that is an int, V_INT or V_DIM, as a dim of b->t. */
Dim bounds_of(Bounds *b, Value v);
/* d as a dim of the stage's table; DIM_BAD if it has a run-time number in it. `turns`: numbers of
 * iterations of the loops around are sizes, too (dim_counter). */
Dim bounds_dim(Bounds *b, Dim d, bool turns);
/* The int number v as a size, within the loops around; DIM_BAD if it is none. */
Dim bounds_size(Session *s, Value v);

#endif
