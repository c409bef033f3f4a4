/* Tables as text: dicts of columns of one length (rule 97). */
#ifndef CKL_LANG_VALUE_COLUMNS_H
#define CKL_LANG_VALUE_COLUMNS_H

#include "lang/lang.h"

typedef struct Column {
  const char *key; /* as a program writes it */
  Value v;         /* a tensor [n], in code perhaps known to the run alone; none of texts */
  const Tensor *t; /* v, where it is known */
  const char *const *texts; /* in quotes, the first PRINT_INLINE_MOST */
  size_t count;             /* of all texts */
  int64_t empty;            /* how many of them are "" */
} Column;

/* Columns of a dict whose values are all tensors of one axis or lists of texts; else NULL. */
Column *columns_of(Session *s, Value v, size_t *n, Span at);
/* Whether the values of a dict are such, as far as is known. */
bool columns_in(size_t n, const Value *items);
bool columns_texts(Value v); /* a list of texts, not empty */
/* The dict as it is printed alone: on one line if it fits there whole; else as a table, with its
 * last newline. True: it is a table. */
bool columns_show(Session *s, Buf *out, const Column *c, size_t n);

#endif
