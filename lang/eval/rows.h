/* Lists of code whose number of elements data decides: rows.c. */
#ifndef CKL_LANG_EVAL_ROWS_H
#define CKL_LANG_EVAL_ROWS_H

#include "lang/lang.h"

/* How the rows of a stash become elements, turn by turn. */
typedef enum RowKind {
  ROW_OWN,   /* row t is the element of turn t */
  ROW_TAKEN, /* so it is, but that of turn 0 is `end` */
  ROW_FIXED, /* the element of every turn is `end`; there is no stash */
  ROW_LEFT   /* row t + 1 is the element of turn t, and that of the last turn is `end` */
} RowKind;

/* What a turn adds to a list, once. */
typedef struct RowSource {
  RowKind kind;
  Val stash, end; /* of the present stage */
  Type type;
} RowSource;

/* A V_ROWS of the present stage: the elements of `front`, and of each of `turns` turns one of each
 * source. `turns` is a number of code. */
Value rows_new(Session *s, Value front, Value turns, size_t n, const RowSource *sources, Span at);
/* (tensor [most, ..], number of elements): the elements stacked along axis 0, as many as fit, zeros
 * behind. */
Value rows_stack(Session *s, Value rows, int64_t most, Span at);
/* Rows 0 .. n - 1 of x, with zeros where it has fewer. */
Value rows_fit(Session *s, Value x, int64_t n, Span at);
/* Such a list is something that code alone can read, by `stack` and `len`. */
_Noreturn void rows_refuse(Session *s, Span at);
/* The number of elements. */
Value rows_count(Session *s, Value rows, Span at);

#endif
