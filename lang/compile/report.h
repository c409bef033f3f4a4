/* What is reported of compiled calls: what a call takes, what waits for its backward, and what was
 * chosen for its `checkpoint` blocks (rules 80 to 86). What users call the plan of a call is such a
 * report; what is planned and chosen is in lang/checkpoint/choice.h. */
#ifndef CKL_LANG_COMPILE_REPORT_H
#define CKL_LANG_COMPILE_REPORT_H

#include "autograd/autograd.h"
#include "lang/checkpoint/choice.h"
#include "lang/compile/compile.h"
#include "lang/eval/call.h"

/* Operations by class; views and constants count nowhere. */
typedef enum OpBin {
#define OPCLASS(NAME, word, of, doc) of(BIN_##NAME, )
#include "lang/names/clauses.def"
  BIN_MOVE,
  BIN_COUNT
} OpBin;
extern const char *const op_bin_name[BIN_COUNT];
typedef struct OpCounts {
  int64_t forward[BIN_COUNT], backward[BIN_COUNT]; /* what is computed again is of the backward */
} OpCounts;
void report_op_counts(const Graph *g, OpCounts *add);

/* Bytes of a call. `peak` holds while it runs, and for a call with a backward until that has run:
 * everything that the call itself reads or makes. `outputs`: results beside what is `saved`. */
typedef struct ReportFigures {
  int64_t params, buffers, inputs, outputs, arena, live, panels, scratch, saved, peak, flops;
  int64_t later;   /* the peak when buffers that repeat a number have been written, and take room */
  int64_t inner;   /* of the peak: what bodies of loops, branches and maps make, at most */
  int64_t spilled; /* beside the peak: offloaded values of the host */
  int64_t time;    /* rm_time: without a unit */
  OpCounts ops;
  bool exact;    /* the peak is met to the byte */
  bool bound;    /* the peak is not passed; neither: the evaluator runs a part, and takes more */
  bool compiled; /* false: the evaluator runs all of it: nothing of the arena is known */
} ReportFigures;

/* What is known of a call before it runs. */
typedef struct CallReport {
  Session *s;
  const char *name, *model; /* model: whose method it is, or NULL */
  Flat *flat;
  const Graph *const *inputs;
  const int64_t *env;
  Runs runs;
  Choice choice;
  const int64_t *source; /* of graph input i: leaf, or less than 0: a random key */
  size_t input_count;
} CallReport;
Value report_value(const CallReport *c);
/* Prints the report of a first call where the session is asked to; does not come back from the call
 * that `ckl plan` waits for. */
void report_first_call(const CallReport *c);

enum { MEM_ERR_REPORTED = 7 }; /* report_first_call: the call was found */

#endif
