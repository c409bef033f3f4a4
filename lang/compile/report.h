/* Reports about compiled calls: the memory that a call takes, the values that wait for its
 * backward, and the choice for its `checkpoint` blocks (rules 80 to 86). Users call such a report
 * the plan of a call; planning and choosing are in lang/checkpoint/choice.h. */
#ifndef CKL_LANG_COMPILE_REPORT_H
#define CKL_LANG_COMPILE_REPORT_H

#include "autograd/autograd.h"
#include "lang/checkpoint/choice.h"
#include "lang/compile/compile.h"
#include "lang/compile/joint_ref.h"
#include "lang/eval/call.h"

/* Operations by class; views and constants are not counted. */
typedef enum OpBin {
#define OPCLASS(NAME, word, of, doc) of(BIN_##NAME, )
#include "lang/names/clauses.def"
  BIN_MOVE,
  BIN_COUNT
} OpBin;
extern const char *const op_bin_name[BIN_COUNT];
typedef struct OpCounts {
  int64_t forward[BIN_COUNT], backward[BIN_COUNT]; /* recomputation counts as backward */
} OpCounts;
void report_op_counts(const Graph *g, OpCounts *add);

/* Bytes of a call. `peak` covers everything that the call itself reads or makes while it runs and,
 * for a call with a backward, until that has run. `outputs`: results beside those `saved`. */
typedef struct ReportFigures {
  int64_t params, buffers, inputs, outputs, arena, live, panels, scratch, saved, peak, flops;
  int64_t fresh;    /* of the outputs: what is written, but not to the memory of what it replaces */
  int64_t later;    /* the peak once buffers that repeat a number are written and take room */
  int64_t inner;    /* of the peak: values of bodies of loops, branches and maps, at most */
  int64_t spilled;  /* beside the peak: offloaded values of the host */
  int64_t products; /* of the flops: those of products, convolutions and factorizations */
  int64_t time;     /* rm_time: without a unit */
  OpCounts ops;
  bool exact;    /* the peak is reached, to the byte */
  bool bound;    /* the peak is not exceeded; neither: the evaluator runs a part, and takes more */
  bool compiled; /* false: the evaluator runs all of it, and nothing is known of the arena */
} ReportFigures;

/* A call before it runs, as the input of a report. */
typedef struct CallReport {
  Session *s;
  const char *name, *model; /* model: the model whose method it is, or NULL */
  Flat *flat;
  const Graph *const *inputs;
  const int64_t *env;
  Runs runs;
  JitFn *first, *second; /* plans of the runs; NULL: the report makes them */
  Choice choice;
  const int64_t *source; /* of graph input i: leaf, or less than 0: a random key */
  size_t input_count;
  const InputMemory *memory;
  const Graph *whole;    /* of a call without a second half: with the choices of blocks open */
  const JointRef *joint; /* of one with a second half */
  Tensor *const *in;     /* per graph input */
  Span at;               /* the function, in its file */
} CallReport;
/* The figures of a call whose plans are there, if the session compiles. */
void report_figures(const CallReport *c, ReportFigures *out);
const char *report_number(Session *s, int64_t n); /* 1,234 */
const char *report_value_name(Session *s, const Graph *g, Val v);
extern const char *const report_choice[], *const report_why[]; /* by CHOICE_*, by RmWhy */
Value report_value(const CallReport *c);
/* Prints the report of a first call if the session asks for it; does not return from the call that
 * `ckl plan` waits for. */
void report_first_call(const CallReport *c);

enum { MEM_ERR_REPORTED = 7 }; /* report_first_call: the call was found */

#endif
