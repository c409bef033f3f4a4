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
  SEQ_DROP,
  SEQ_PROGRESS,
  SEQ_MAP,
  SEQ_ENUMERATE,
  SEQ_ZIP,   /* m parts: source, and extra, which is the ZIP of the others if m > 2 */
  SEQ_CHAIN, /* source, then extra */
  SEQ_CYCLE, /* without end */
  SEQ_REVERSE,
  SEQ_STEP, /* every n-th element */
  SEQ_LINES /* of the text file `source`: how many there are is known at their end */
} SeqKind;

struct Seq {
  Obj o;
  SeqKind kind;
  Value source; /* a tree, or the V_SEQ that feeds this one */
  Value extra;  /* function of SEQ_MAP, label of SEQ_PROGRESS, second of SEQ_ZIP, SEQ_CHAIN */
  int64_t n, m;
  bool shuffle, drop;
  uint64_t site;        /* random site of its shuffle */
  bool staged;          /* made in code, of values of the present call */
  struct SeqIter *loop; /* of the innermost loop that goes through it */
  int64_t parts;        /* iterators of loops that go through another one made of it */
  Value place;          /* where the next loop starts, as seq_place gave it; unit: anew */
};

typedef struct SeqIter SeqIter;

Value seq_value(Session *s, SeqKind kind, Value source, Value extra, int64_t n, int64_t m,
                bool shuffle, bool drop, uint64_t site);
/* The number of its elements; -1: it shows at the end; INT64_MAX: there is none. */
int64_t seq_count(Session *s, Value v, Span at);
void seq_free(Session *s, Seq *q); /* called by value.c alone */
/* Iterators are on the pool: they are freed when it is drained, also after an error. */
SeqIter *seq_start(Session *s, Value source, Span at);
/* The same, for a loop: at the place that was set, which it takes away. */
SeqIter *seq_loop(Session *s, Value source, Span at);
/* Where the loop that goes through it stands, i64: the number of elements that it took, that of
 * all, the draws of its shuffles. 0 in front: no loop does. */
Value seq_place(Session *s, Value seq, Span at);
/* Sets the place at which its next loop starts. */
void seq_seek(Session *s, Value seq, Value place, Span at);
/* Elements stacked: tensors and numbers along a new axis, tuples, records and dicts by part, all
 * else as a list. n > 0. Also in code. */
Value data_stacked(Session *s, size_t n, const Value *v, int64_t axis, Span at);
bool seq_next(Session *s, SeqIter *it, Value *out, Span at);
/* Clause k of a comprehension: calls iteration(ud, k, v) for each element v of seq. */
void seq_comp(Session *s, Value seq, Span at, void *ud, uint32_t k,
              void (*iteration)(void *ud, uint32_t k, Value v));
/* ---- seq_code.c: in code, `enumerate`, `zip`, `reverse`, `step_by` and `map` make sequences, too,
 * of values of the present call; none leaves it. What only a `for` or a comprehension goes through
 * is one, so that an element is taken when its turn comes; all else is a list, if its number is
 * known. */
Value seq_staged(Session *s, SeqKind kind, Value source, Value extra, int64_t n);
/* Evaluates what a loop or comprehension goes through. */
Value seq_source(Session *s, Node *e);
/* Whether the value of that call is only gone through. */
bool seq_is_source(Session *s, const Node *call);
/* A sequence of script is an error. */
void seq_refuse(Session *s, Value v, Span at);
/* Whether a loop through v stays one, since the number of elements is large, or not known when it
 * is compiled. Else it is unrolled. */
bool seq_stays(Session *s, Value v);
/* For one that is unrolled: the number of elements, and element k. */
int64_t seq_size(Session *s, Value v, Span at);
Value seq_item(Session *s, Value v, int64_t k, Span at);
/* For one that stays: their number, 0 or negative if there are none, and element k, an int. */
Value seq_number(Session *s, Value v, Span at);
Value seq_element(Session *s, Value v, Value k, Span at);
/* Of script, or staged if `seq` is. */
Value seq_map(Session *s, Value seq, Value f, Span at);
/* Ends a progress line; draining the pool does that too. */
void seq_finish(Session *s, SeqIter *it);

#endif
