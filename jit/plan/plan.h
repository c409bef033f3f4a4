/* Inside of jit/: groups, steps, places of values, and what is bound to one set of sizes. */
#ifndef CKL_JIT_PLAN_PLAN_H
#define CKL_JIT_PLAN_PLAN_H

#include "jit/plan/jit.h"
#include "jit/lower/lower.h"

/* ---- fuse.c */
typedef struct Groups {
  Group *items;
  size_t count, cap;
} Groups;
/* Cuts g (flat: gr_flatten) into groups, in an order in which they can run. Effects keep their
 * order, and what may fail stays before an effect that it stood before. */
void fuse(Arena *a, const Graph *g, bool apart, Groups *out); /* apart: every node by itself */
/* The group of one node by itself, by the trivial rule; false for a node that never is one: a view,
 * a generator, an input. `used` per entry of g->types: somebody outside reads it. */
bool fuse_one(Arena *a, const Graph *g, uint32_t node, const bool *used, Group *out);
extern const char *const group_kind_name[];

/* ---- order.c */
/* Sorts groups such that they still can run, with less memory alive at once: so many bytes of
 * values (0: too few groups to tell). `env`: typical sizes, or NULL. */
int64_t order_groups(Arena *a, const Graph *g, const int64_t *env, Groups *groups);

/* ---- memplan.c: arrays only */
typedef struct MemItem {
  int64_t bytes;        /* a multiple of 64 */
  uint32_t first, last; /* steps in which it is alive */
  int64_t offset;       /* result */
} MemItem;
/* Gives every item an offset such that items alive at the same time do not overlap; the size of the
 * arena, or -1 when it passes 2^62. Deterministic. */
int64_t memplan(Arena *temp, MemItem *items, size_t n);
/* The most bytes alive at once, and the first step with so many: no arena is smaller. */
int64_t memplan_live(Arena *temp, const MemItem *items, size_t n, uint32_t *step);

/* ---- plan.c */
typedef enum PlaceKind {
  PLACE_NONE,   /* exists inside kernels only */
  PLACE_INPUT,  /* index: of the input */
  PLACE_RESULT, /* a new tensor that leaves; index in Plan.results */
  PLACE_ARENA,  /* index in Plan.slots */
  PLACE_HELD    /* a tensor of the reference evaluator; index in Plan.helds */
} PlaceKind;
typedef struct Place {
  uint8_t kind;
  uint32_t index;
} Place;

typedef struct Slot { /* memory in the arena: a value, or a panel */
  DType dtype;
  Dim count;
  uint32_t first, last; /* steps */
  bool panel;
} Slot;

typedef struct Held {
  Val v;
  uint32_t last; /* step after which it is released; UINT32_MAX: at the end */
} Held;

typedef struct Due { /* of an input or a result, when a step is at hand */
  uint32_t step, index;
} Due;

typedef enum StepKind { STEP_KERNEL, STEP_NODE } StepKind;
typedef struct Step {
  uint8_t kind;
  uint32_t group;  /* in Plan.groups */
  uint32_t launch; /* KERNEL: in Plan.low.launches */
  uint32_t panel0; /* KERNEL: slot of the group's panel 0 */
  uint32_t node;   /* NODE: run by the reference evaluator, effects by the host */
} Step;

typedef struct Plan {
  Arena *arena;
  const Graph *g;         /* flat */
  const uint32_t *origin; /* node of the graph as given */
  Groups groups;
  Lowered low;
  Step *steps;
  size_t step_count, step_cap;
  Place *place;   /* per entry of g->types */
  uint32_t *made; /* the step from which on it lies there, too */
  Slot *slots;
  size_t slot_count, slot_cap;
  Val *results;
  size_t result_count, result_cap;
  Held *helds;
  size_t held_count, held_cap;
  bool *input_used;                    /* by a step, so it must be contiguous */
  uint32_t *input_last, *result_first; /* steps; UINT32_MAX: read by an output; never written */
  Due *makes;                          /* every result, by the step before which it is made */
  Due *drops;
  size_t drop_count; /* inputs, by the step after which nothing reads them */
  bool *words;       /* per node: the words of a failing kernel depend on it; NULL: none may fail */
  uint32_t forward_end; /* the last step that computes what a backward node needs, or UINT32_MAX */
} Plan;

/* `temp` is for what is not kept; the caller frees it. `env`: typical sizes, or NULL. */
Plan *plan_make(Arena *a, Arena *temp, const Graph *g, const int64_t *env, const EngTarget *target,
                bool apart);
/* Bytes that the arena of such a plan has at least: those of values, no panels. 0: not known. */
int64_t plan_least(Arena *temp, const Graph *g, const int64_t *env);
/* ---- plan_check.c: throw by mem_bug where a law of plans does not hold */
void plan_check(const Plan *p, Arena *temp);
/* The places that memplan gave to items, in an arena of so many bytes. */
void plan_check_places(Mem *mem, Arena *temp, const MemItem *items, size_t n, int64_t arena);

static inline uint32_t plan_index(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}
/* Whether v lies in its place when a step begins. A view that leaves has a place, but what reads it
 * before makes it again. */
static inline bool plan_there(const Plan *p, Val v, uint32_t step) {
  uint32_t i = plan_index(p->g, v);
  return p->place[i].kind && p->made[i] <= step;
}

/* ---- bind.c: what follows from sizes */

typedef struct Where { /* a buffer of a launch: root 0 is the arena, then inputs, results, helds */
  uint32_t root;
  int64_t offset; /* bytes */
} Where;

typedef struct BoundLaunch {
  Where *bufs;
  int64_t *args;     /* of a checked kernel with the bytes of its buffers */
  int64_t *elements; /* of each buffer, local ones apart; NULL unless somebody checks */
  int64_t turns, work, local_bytes, bytes;
} BoundLaunch;

typedef struct Bound Bound;
struct Bound {
  Bound *next;
  int64_t *env;
  Arena arena;
  bool ready;
  bool checked;   /* the conditions on sizes and numbers hold */
  bool reference; /* sizes that only the reference evaluator takes: 0 somewhere, or an error */
  int64_t *dims;  /* of inputs, then of results: CKL_MAX_RANK each */
  BoundLaunch *launches;
  int64_t *offset, *bytes; /* per slot of the plan, in the arena */
  int64_t arena_bytes, local_bytes, result_bytes;
  int64_t live_bytes, panel_bytes; /* most of the arena that is in use at once; panels of that */
  int64_t saved_bytes;             /* in use at forward_end, for later */
  uint32_t peak_step;
};

enum { JIT_BOUND_MAX = 8 }; /* sets of sizes kept */

void bound_free(JitFn *f, Bound *b);
/* What follows from these sizes, for which g's size checks hold; made when it is not there.
 * Throws. */
Bound *bound_get(JitFn *f, const int64_t *env);
/* The one that is there, or NULL. Where only arguments of kernels depend on a size, these are
 * renewed for another one. */
Bound *bound_find(JitFn *f, const int64_t *env);

/* ---- jit.c */

typedef struct JitBlock {
  void *p;
  size_t bytes;
} JitBlock;

struct Jit {
  int64_t rc; /* of the session, and of each function */
  Mem *mem;
  JitConfig config;
  Engine *engine; /* NULL: kernels are walked */
  const EngTarget *target;
  JitFn *fns;
  JitCount count;
  /* Memory of running functions: runs nest in bodies of loops, each level has a block of its
   * own. */
  JitBlock *blocks;
  size_t block_count, depth;
};

struct JitFn {
  Jit *j;
  Arena arena, temp; /* temp: while it is made */
  const Graph *g;
  Plan *plan;
  EngKernel **kernels; /* per launch */
  KernelFn *code;
  bool reference; /* the whole graph by gr_run: other devices, anomaly mode */
  bool hosts;     /* it calls functions of the program */
  Sym symbols;
  uint64_t nodes; /* that gr_run would count */
  Bound *bound;   /* most recent first */
  bool *sizing;   /* per symbol: more than arguments of kernels depends on it; NULL: unknown */
  struct LooseArg {
    uint32_t launch, arg;
  } * loose; /* arguments that other symbols give */
  size_t loose_count, loose_cap;
  bool numbers_checked; /* there are conditions on such symbols */
  JitFn **regions;      /* in the order of Plan.g->regions; NULL: not run by a step */
  JitFn *next, *prev;   /* all of j */
  /* per step, for a profile */
  struct StepTime {
    double seconds;
    int64_t runs, bytes, work;
  } * times;
  bool kept; /* its making was not left by a throw */
  /* while it runs */
  bool running;
  size_t root_count;
  void **root;    /* addresses: arena, inputs, results, helds */
  Tensor **dense; /* inputs made contiguous, else NULL */
  bool *gone;     /* inputs that this run gave back */
  Tensor **results, **helds;
  void **bufs;
};

#endif
