/* Inside of lang/compile: types and functions of the files that stage, keep and run a compiled
 * call. */
#ifndef CKL_LANG_COMPILE_COMPILE_IMPL_H
#define CKL_LANG_COMPILE_COMPILE_IMPL_H

#include "lang/compile/compile.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/report.h"
#include "lang/compile/tiering.h"
#include "lang/eval/call.h"
#include "lang/names/module.h"
#include "lang/tape/callback.h"
#include "lang/tape/tape.h"
#include "runtime/lru.h"

typedef struct PlainChoice { /* a choice for one set of sizes */
  struct PlainChoice *next;
  int64_t *sizes;
  Choice choice;
  const Graph *g;
  Planned *planned; /* the plan to which g belongs, or NULL */
  Native *native;
} PlainChoice;

typedef struct JointEntry {
  struct JointEntry *next;
  char *mask;
  JointRef *j;
} JointEntry;

typedef struct Write {
  bool is_param;
  size_t index; /* leaf, or instance */
  Name field;
  Value tmpl; /* V_NODE: u.v.node is the output's number */
} Write;

/* Result `result` of a block of script is input `input` itself, where output `flag` holds. */
typedef struct PassedOn {
  size_t result, input, flag;
} PassedOn;
/* A call advances the counter of the site by `now` and the number that is that output. */
typedef struct DrawnCount {
  uint64_t site, now;
  size_t output;
} DrawnCount;

struct Compiled {
  LruEntry kept; /* first: an entry of the cache is the Compiled */
  int64_t rc;
  Session *s;
  Node *decl;
  const char *sig;
  size_t sig_len;
  Arena arena;
  Graph *g;           /* as written: joint graphs are made from it */
  const Graph *whole; /* with the choices for its blocks open */
  const Graph *plain; /* simplified, with blocks as written: it runs when no gradient is wanted */
  PlainChoice *choices;
  bool *sizing;              /* per symbol: a size depends on it; NULL until it is asked for */
  int64_t *auto_remat_sizes; /* sizes of `auto_remat`, the last answer; NULL: none */
  bool auto_remat;
  uint64_t reported[4];
  size_t reported_count; /* sizes that were reported */
  size_t leaf_count;
  bool *reached; /* per leaf: see Leaf */
  Span call;     /* the staged call: its places stand for those of a later call */
  int64_t *source;
  SymBind *binds;
  size_t bind_count;
  Pin *pins;
  size_t pin_count;
  RandomUse *randoms;
  size_t random_count;
  struct DrawnCount *drawn; /* of sites whose count data decides */
  size_t drawn_count;
  PassedOn *passed;
  size_t passed_count;
  Global **hidden;
  size_t hidden_count;
  const char *hidden_sig;
  size_t hidden_len;
  Value result;
  size_t result_outputs;
  Write *writes;
  size_t write_count;
  JointEntry *joints; /* none once it has left the cache */
  bool cached;
  unsigned chosen; /* sizes for which a choice was made */
  Native *native;  /* of `plain` */
  Hosts *hosts;    /* NULL: none */
  Span eval_dropout;
  bool regrad, takes_grad;
  LayerPath *paths;
  size_t path_count;
};

/* ---- unit.c */
/* Makes inputs for the leaves that were found since the last call of this function. */
void unit_stage_leaves(Unit *u);

/* Numbers are leaves by position: a cursor walks them in the order of flatten. */
typedef struct LeafCursor {
  Unit *u;
  size_t next;
} LeafCursor;
/* v with staged values in place of its leaves. */
Value unit_rebuild(Session *s, LeafCursor *c, Value v);

/* ---- call_staging.c: stages f(a) into c, which is empty; `flat` are its leaves. Throws. */
void stage_call(Session *s, FnObj *f, const Args *a, const Flat *flat, Compiled *c);

/* ---- call_cache.c */
/* Stages f(a) and keeps it. */
Compiled *call_compile(Session *s, FnObj *f, const Args *a, const Flat *flat);
/* Finds the kept call; NULL: none. Adds the leaves of hidden values to `flat`. The result stays
 * until the pool is drained. */
Compiled *call_lookup(Session *s, FnObj *f, Flat *flat);
/* Counts a choice for one more set of sizes; after too many, c leaves the cache. */
void call_chosen(Session *s, Compiled *c);

#endif
