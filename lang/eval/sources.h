/* Rows of sources: tensors, tuples and records of tensors of one leading size, lists, ranges.
 * Script only. */
#ifndef CKL_LANG_EVAL_SOURCES_H
#define CKL_LANG_EVAL_SOURCES_H

#include "lang/eval/seq.h"

/* v with its weak lists made tensors; *n is its number of elements, -1 for a sequence. It fails if
 * v cannot be iterated, or if leading sizes differ. */
Value data_source(Session *s, Value v, Span at, int64_t *n);
Value data_element(Session *s, Value v, int64_t k, Span at);              /* 0 <= k < n */
Value data_rows(Session *s, Value v, int64_t from, int64_t len, Span at); /* views */
Value data_pick(Session *s, Value v, const int64_t *rows, int64_t n, Span at);
/* A random permutation of 0 .. n - 1, by the next draw of the site. */
void data_order(Session *s, uint64_t site, int64_t n, int64_t *out);

/* The first element of an iterator that was started; false if there is none. */
bool seq_first(Session *s, SeqIter *it, Value *out, Span at);
/* An error if it has no end. */
void seq_need_end(SeqIter *it, Span at);

#endif
