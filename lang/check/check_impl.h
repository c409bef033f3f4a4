/* Shared by the files of the checker. */
#ifndef CKL_LANG_CHECK_CHECK_IMPL_H
#define CKL_LANG_CHECK_CHECK_IMPL_H

#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/names/resolve.h"

enum {                /* Node.flags, beside ITEM_BAD */
       ITEM_DONE = 2, /* checked */
       FN_TAKEN = 4   /* see abstract_taken */
};
enum { CHECK_MOST = 20 }; /* errors filed */

/* A function that is staged with symbols for its sizes. */
typedef struct CheckJob {
  Session *s;
  Unit *u;
  Node *node;
  ModelDecl *m;
  Module *module;
  Node **types;
  size_t type_count; /* instead of annotations, for `ckl ir` */
  Buf *out;          /* the graph's text goes here */
  bool done;
  PassId stage;
  bool epilogue; /* writes are nodes at the end, not outputs */
  DType floats;  /* what a class of dtypes stands for */
  int pack;      /* how many dims a pack of a named type stands for */
  bool open;     /* a named type has a class or pack */
  int named;     /* how many named types the present one lies in */
} CheckJob;

static inline Value v_unknown(void) {
  return (Value){.tag = V_UNKNOWN};
}

/* ---- functions.c */

/* Checks a function. Sizes that are needed as constants are made up: only an error for all sizes
 * that are tried is filed. False: errors were filed. */
bool check_fn(Session *s, CheckJob *j);
Value check_symbolic_tensor(Session *s, DType dt, int rank, const Dim *d);

/* ---- script.c */

void check_script(Session *s, Module *m);

/* ---- check.c */

/* The function or method in which a place lies, or NULL. */
Node *check_fn_at(Session *s, Span at, Module **m, ModelDecl **model);
/* Where the last error since `count` lies, if in a function that is not `self`. */
Node *check_culprit(Session *s, size_t count, const Node *self, Module **m, ModelDecl **model);
/* Drops the errors filed since `count` if they were filed before: an error is reported once. */
bool check_known_before(Session *s, size_t count);

#endif
