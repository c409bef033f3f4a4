/* Inside of lang/tape: functions that recording and the sweep share. */
#ifndef CKL_LANG_TAPE_TAPE_IMPL_H
#define CKL_LANG_TAPE_TAPE_IMPL_H

#include "lang/tape/tape.h"

/* ---- tape.c */
void tape_meta(TapeMeta *m, const Tensor *t);
/* Consumes n and releases its parts. The node itself stays for the values that name it. */
void tape_use_up(Session *s, TapeNode *n);
/* Narrows a call to the results that have a cotangent (`has`): its backward is that of these
 * alone. */
void tape_narrow(Session *s, TapeNode *n, const bool *has);

/* ---- record_narrow.c */
typedef struct TapeRun { /* of a graph whose operations went on the tape */
  const Graph *f;
  Tensor **value;  /* per result; NULL: it did not run */
  TapeNode **made; /* per node; NULL: it is not on the tape */
  const int64_t *env;
} TapeRun;
/* Gives the nodes the tensors that gradients read, if f saves narrow values. */
bool tape_shift(Session *s, Arena *temp, const TapeRun *run, GErr *e, Prov *at);

#endif
