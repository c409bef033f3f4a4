/* The passes of a compiled call: pipeline.def as data, and functions that walk it. */
#ifndef CKL_LANG_COMPILE_PIPELINE_H
#define CKL_LANG_COMPILE_PIPELINE_H

#include "lang/lang.h"

typedef enum PassId {
#define PASS(id, name, function, needs, when, doc) PASS_##id,
#define STEP(id, name, function, needs, when, doc) PASS_##id,
#include "lang/compile/pipeline.def"
  PASS_COUNT,
  PASS_BEFORE = PASS_COUNT
} PassId;

/* Each is a function of a graph: the result is on the arena. */
#define PASS(id, name, function, needs, when, doc) Graph *function(Arena *a, const Graph *g);
#define STEP(id, name, function, needs, when, doc)
#include "lang/compile/pipeline.def"

typedef enum PassWhen {
  WHEN_ALWAYS,
  WHEN_HOOKS,
  WHEN_BLOCKS,
  WHEN_GRAD,
  WHEN_CODE,
  WHEN_PART,
  WHEN_TEXT,
  WHEN_ALONE
} PassWhen;

/* The input of a step's text: graph g; `alone`: a graph that `ckl opt` has read. */
typedef struct PassText {
  Session *s;
  Buf *out;
  const Graph *g;
  Span at; /* where faults are reported */
  PassId pass;
  bool alone;
} PassText;

typedef struct Pass {
  const char *name;
  const char *clock;                       /* "us.NAME": the counter of its time */
  Graph *(*run)(Arena *a, const Graph *g); /* NULL: a step */
  void (*show)(const PassText *t);         /* NULL: a pass */
  PassId needs;
  PassWhen when;
  const char *doc;
} Pass;
extern const Pass passes[PASS_COUNT];

PassId pass_needs(PassId id);                 /* the pass or step whose result it reads */
PassId pass_find(const char *name, size_t n); /* PASS_COUNT: there is none */
bool pass_is_stage(PassId id);
bool pass_is_tool(PassId id); /* of `ckl opt` */
bool pass_is_timed(PassId id);

/* The time of a pass excludes passes inside of it. It is lost if one throws in between. */
typedef struct PassTime {
  double start, inside;
} PassTime;
PassTime pass_start(const Session *s);
void pass_end(Session *s, PassId id, PassTime t);

/* Prints g after a pass or step, on stream 2, if that is asked for. */
void pass_dump(Session *s, PassId id, const Graph *g);
/* Runs all passes of a call without a gradient: after[id] is the graph after each one; that of
 * `stage` is given. `dump`: those that ran are dumped, too. Returns the graph that runs. */
const Graph *pipeline_call(Session *s, Arena *keep, const Graph *staged, bool dump,
                           const Graph *after[PASS_COUNT]);
/* g with `choice` applied to its blocks (NULL: they stay), after all passes behind `remat`. */
Graph *pass_simplified(Session *s, Arena *keep, const Graph *g, const uint8_t *choice);
/* Prints the result of a stage for g, which is staged; for `joint` the two halves of all
 * gradients. */
void pass_print_stage(Session *s, Buf *out, Arena *a, const Graph *g, PassId stage, Span at);

#endif
