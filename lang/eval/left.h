/* What a piece of code leaves behind besides its value: variables that it assigned, params and
 * buffers that it wrote, exits, effects, random draws. For regions: a choice or a loop notes it,
 * goes back to what was before, and makes it the results of a node (sides.c, turns.c). */
#ifndef CKL_LANG_EVAL_LEFT_H
#define CKL_LANG_EVAL_LEFT_H

#include "lang/compile/compile.h"
#include "lang/lang.h"

typedef struct Held { /* a variable */
  size_t local;
  Value v[3]; /* before, and after each region */
} Held;

typedef struct Left {
  Value returned[3], ret_value[3], broken[3], continued[3];
  Held *vars;
  size_t var_count;
  Value (*state)[3];
  struct Base **base; /* of each state */
  size_t state_count, state_cap;
  Val token[3];
  DrawMark drawn[3];
  Value (*draws)[2]; /* per site: how often it drew on each side */
} Left;

void left_open(Session *s, Left *l);          /* notes what is before: 0 */
void left_note(Session *s, Left *l, int k);   /* notes what is there now as number k */
void left_restore(Session *s, const Left *l); /* back to what was before */
OpenLoop *left_loop(const Session *s);        /* the loop that a `break` here ends, or NULL */
bool left_same(Value a, Value b);             /* whether they are one and the same value */
static inline bool left_is_open(Value flag) { /* an exit that depends on data */
  return flag.tag == V_NODE;
}

#endif
