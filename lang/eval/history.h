/* What the turns of a loop make of a value, for gradients inside a turn: history.c. */
#ifndef CKL_LANG_EVAL_HISTORY_H
#define CKL_LANG_EVAL_HISTORY_H

#include "lang/compile/stage.h"
#include "lang/lang.h"

/* A gradient that was taken in a turn: inputs of the region, by number. */
typedef struct Taken {
  size_t *by;      /* what it is taken by may be one of these */
  size_t *through; /* what it is taken of depends on these */
  size_t by_count, through_count;
  Span at;
} Taken;

typedef struct History {
  Taken *items;
  size_t count, cap;
} History;

/* A gradient of y, by wrt (values of the present stage). Notes it in the loop around, if there is
 * one that stays one. */
void history_gradient(Session *s, size_t ny, const Val *y, size_t nwrt, const Val *wrt, Span at);

/* A loop whose turn is staged. */
typedef struct Turned {
  const Stage *st;
  const History *history;
  size_t carried; /* inputs 1 .. carried of its region go from turn to turn: */
  const Val *args, *outs;
  /* the name of such an input in messages */
  const char *(*name)(Session *s, void *ud, Val in);
  void *ud;
} Turned;

/* An error if a gradient of a turn goes through what turns before it, or what stands before the
 * loop, made of what it is taken by: the region has that as given. */
void history_check(Session *s, const Turned *of);

#endif
