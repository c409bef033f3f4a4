/* Coverage of the op table: the cases of cases.txt, their numbers, and what runs them. */
#ifndef TESTS_COVER_H
#define TESTS_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"
#include "graph/opcode.h"
#include "runtime/tensor.h"

enum { COVER_INPUTS = 4, COVER_ARRAYS = 1 + 2 * COVER_INPUTS, COVER_TEXT = 1200, COVER_NAME = 64 };

typedef struct Input {
  char name[16];
  char dims[64]; /* as a signature writes them: "N, 3" */
  DType dtype;
  bool wrt; /* gradients are taken by it */
  int rank;
  int64_t dim[CKL_MAX_RANK], count;
  double low, high; /* what is drawn */
  double *given;    /* or the numbers, NULL */
} Input;

/* What is known of an array: its dims and five numbers. */
typedef struct Digest {
  char dims[COVER_NAME];
  double sum, weighted, absolute, first, last;
} Digest;

/* One operation with one class of attributes. */
typedef struct Case {
  OpCode op;
  char cls[COVER_NAME];
  char expr[COVER_TEXT];
  Input in[COVER_INPUTS];
  int inputs, wrts, order;
  DType dtype;
  bool exact, alone;         /* compared without a tolerance; no other system has its numbers */
  Digest want[COVER_ARRAYS]; /* of the independent system: value, gradients, second derivatives */
  int wants;
} Case;

typedef struct Cover {
  Case *cases;
  size_t count, room;
  char *prelude;                  /* declarations of ckl */
  const char *set[OP_COUNT];      /* column `cases` of the op table */
  bool untaped[OP_COUNT];         /* no gradient passes it */
  bool staged[OP_COUNT];          /* it is not in simplified graphs */
  bool asked[OP_COUNT][DT_COUNT]; /* each of these dtypes needs a class */
  char error[300];                /* of reading, or "" */
} Cover;

bool cover_has_gradient(OpCode op);
bool cover_read(Cover *c, const char *folder); /* false: `error` says why */
void cover_free(Cover *c);
/* n numbers of a name from low to high, which `dtype` holds. */
void cover_draw(const char *name, DType dtype, double low, double high, int64_t n, double *to);
Digest cover_digest(int rank, const int64_t *dim, const double *v, int64_t n);

#endif
