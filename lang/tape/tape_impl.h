/* Inside of lang/tape: what recording and the sweep share. */
#ifndef CKL_LANG_TAPE_TAPE_IMPL_H
#define CKL_LANG_TAPE_TAPE_IMPL_H

#include "lang/tape/tape.h"

/* ---- tape.c */
void tape_meta(TapeMeta *m, const Tensor *t);
/* The node stays for the values that name it, without what it was made of. */
void tape_use_up(Session *s, TapeNode *n);
/* Of the call's results those that `has` says have a cotangent: its backward is that of these. */
void tape_narrow(Session *s, TapeNode *n, const bool *has);

#endif
