/* Sizes of tensors in keys and in graphs that serve all sizes: equal ones are one symbol. */
#ifndef CKL_LANG_VALUE_SIZES_H
#define CKL_LANG_VALUE_SIZES_H

#include <string.h>

#include "lang/lang.h"

/* Symbols are numbered in the order in which their sizes are met. 0, 1 and what is pinned are
 * constants. The owner gives the arrays. */
typedef struct Sizes {
  int64_t *n; /* of each symbol; the environment of a run */
  int count, most;
  int64_t *pin;
  int pins, most_pins; /* further ones are symbols */
  bool full;           /* there were more than `most` */
  DimTab *dims;        /* after sizes_symbols: */
  Dim *symbol;
} Sizes;

void sizes_pin(Sizes *z, int64_t n);

/* Into a key: the number of the symbol, or the constant. */
void sizes_key(Buf *b, Sizes *z, int64_t n);
/* Attributes, whose dims are constants of script; z NULL: by these themselves. */
void sizes_key_attrs(Session *s, Buf *b, Sizes *z, const Attr *a, size_t n);

/* Makes the symbols in t; `name` may be NULL. */
void sizes_symbols(Sizes *z, Arena *a, DimTab *t, Name name);
Dim sizes_dim(Sizes *z, int64_t n);
/* The attributes with dims of that table; n of them, in the arena. */
const Attr *sizes_attrs(Session *s, Arena *a, Sizes *z, const Attr *attrs, size_t n);

/* buf_put for keys, which are no text: few bytes, known when compiled, most often with room. */
static inline void key_put(Buf *b, const void *p, size_t n) {
  if (b->cap - b->n > n) {
    memcpy(b->s + b->n, p, n);
    b->n += n;
  } else {
    buf_put(b, p, n);
  }
}

/* Which symbols of a graph's table a size of it depends on: true in `used`, others stay. */
void sizes_used(const Graph *g, bool *used);

#endif
