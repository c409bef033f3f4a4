/* Sequences (rule 95): lazy recipes of script. Every `for` starts them again. */
#ifndef CKL_LANG_EVAL_SEQ_H
#define CKL_LANG_EVAL_SEQ_H

#include "lang/lang.h"

typedef enum SeqKind {
  SEQ_TREE,    /* elements of the leading axis of a tensor tree, a list, or a range (source) */
  SEQ_BATCHES, /* source, n, drop, shuffle */
  SEQ_WINDOWS, /* source (1-d tensor), n = width, m = batch, shuffle */
  SEQ_SHUFFLE,
  SEQ_TAKE,
  SEQ_PROGRESS,
  SEQ_MAP,
  SEQ_ENUMERATE,
  SEQ_ZIP,
  SEQ_REVERSE,
  SEQ_STEP /* every n-th element */
} SeqKind;

struct Seq {
  Obj o;
  SeqKind kind;
  Value source; /* a tree, or the V_SEQ that feeds this one */
  Value extra;  /* function of SEQ_MAP, label of SEQ_PROGRESS, second of SEQ_ZIP */
  int64_t n, m;
  bool shuffle, drop;
  uint64_t site; /* random site of its shuffle */
};

typedef struct SeqIter SeqIter;

Value seq_value(Session *s, SeqKind kind, Value source, Value extra, int64_t n, int64_t m,
                bool shuffle, bool drop, uint64_t site);
void seq_free(Session *s, Seq *q); /* called by value.c alone */
/* Iterators are on the pool: they are freed when it is drained, also after an error. */
SeqIter *seq_start(Session *s, Value source, Span at);
bool seq_next(Session *s, SeqIter *it, Value *out, Span at);
/* Clause k of a comprehension: calls iteration(ud, k, v) for each element v of seq. */
void seq_comp(Session *s, Value seq, Span at, void *ud, uint32_t k,
              void (*iteration)(void *ud, uint32_t k, Value v));
/* In code: the elements of a source whose number is known there. Returns their number. */
size_t seq_elements(Session *s, Value source, Span at, Value **items);
Value seq_map(Session *s, Value seq, Value f, Span at);
/* Ends a progress line; draining the pool does that too. */
void seq_finish(Session *s, SeqIter *it);

#endif
