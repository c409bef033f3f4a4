/* Sizes of tensors in keys, and in graphs for all sizes. Equal sizes are one symbol. */
#ifndef CKL_LANG_VALUE_SIZES_H
#define CKL_LANG_VALUE_SIZES_H

#include <string.h>

#include "lang/lang.h"

/* Symbols are numbered in the order in which sizes first occur. 0, 1 and pinned sizes are
 * constants. The caller provides the arrays. */
typedef struct Sizes {
  int64_t *n; /* the size of each symbol: the environment of a run */
  int count, most;
  int64_t *pin;
  int pins, most_pins; /* sizes pinned beyond most_pins are symbols */
  bool full;           /* more than `most` symbols were needed */
  DimTab *dims;        /* set, as is `symbol`, by sizes_symbols */
  Dim *symbol;
} Sizes;

void sizes_pin(Sizes *z, int64_t n);

/* Appends a size to a key: the number of its symbol, or the constant. */
void sizes_key(Buf *b, Sizes *z, int64_t n);
/* Appends attributes, whose dims are constants of script. z NULL: dims go in as they are. */
void sizes_key_attrs(Session *s, Buf *b, Sizes *z, const Attr *a, size_t n);

/* Makes the symbols in t; `name` may be NULL. */
void sizes_symbols(Sizes *z, Arena *a, DimTab *t, Name name);
Dim sizes_dim(Sizes *z, int64_t n);
/* A copy of n attributes in the arena, with dims of the table of z. */
const Attr *sizes_attrs(Session *s, Arena *a, Sizes *z, const Attr *attrs, size_t n);

/* buf_put for keys, which are not text. Inline, because n is small and constant, and the buffer has
 * room most of the time. */
static inline void key_put(Buf *b, const void *p, size_t n) {
  if (b->cap - b->n > n) {
    memcpy(b->s + b->n, p, n);
    b->n += n;
  } else {
    buf_put(b, p, n);
  }
}

/* Sets used[k] for each symbol k that a size in the graph depends on; leaves the others alone. */
void sizes_used(const Graph *g, bool *used);

#endif
