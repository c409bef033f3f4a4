/* Inside of jit/: groups, steps, places of values, and offsets for one set of sizes.
 * One file: its structs refer to one another.
 *
 * Example: `ckl opt --pass=plan` prints this plan of x = dot(a, b), y = exp(x), s = sum(y, axis 0),
 * s + s, for a of [7, 9] and b of [9, 10]. exp joins the group of the dot as its epilogue, so x
 * exists inside kernel 1 only; y and s have slots in the arena; the sum leaves as a result.
 *   1. kernel 1, dot of %2: %2 dot, %3 exp      reads %0 in input 0, %1 in input 1; writes %3 at 0
 *   2. kernel 2, reduce of %4: %4 sum           reads %3 at 0; writes %4 at 320
 *   3. kernel 3, point of %5: %5 add            reads %4 at 320; writes %5 in result 0
 */
#ifndef CKL_JIT_PLAN_PLAN_H
#define CKL_JIT_PLAN_PLAN_H

#include "jit/plan/jit.h"
#include "jit/lower/lower.h"
#include "runtime/mover.h"

/* ---- fuse.c */
typedef struct Groups {
  Group *items;
  size_t count, cap;
} Groups;
/* Cuts g (flat: gr_flatten) into groups, in an order in which they can run. Effects keep their
 * order, and a node that may fail stays before the effects that follow it. `apart`: each node is a
 * group. `env` holds typical sizes, or is NULL. `keep`: of what groups point to; `a`: of all else,
 * out->items, too. */
void fuse(Arena *keep, Arena *a, const Graph *g, const int64_t *env, bool apart, Groups *out);
/* ---- group.c */
GroupKind group_kind(uint16_t op); /* of an OP_ name by itself */
/* Makes a group of one node. False for a view, a generator or an input, which never are groups.
 * `used` tells for each entry of g->types whether a node outside reads the value. */
bool fuse_one(Arena *a, const Graph *g, uint32_t node, const bool *used, Group *out);
extern const char *const group_kind_name[];
/* Whether kernels compute the group; else the evaluator runs its nodes. */
static inline bool group_has_kernel(const Group *x) {
  return x->kind != GROUP_REF && x->kind != GROUP_REGION && x->kind != GROUP_EFFECT;
}

/* ---- tables.c */
/* Returns g, flat, with its tables as further inputs, and the graph that computes them; g itself
 * and NULL if there are none. *origin as gr_flatten gave it. */
const Graph *plan_tables(Arena *a, const Graph *g, const uint32_t **origin, const Graph **tables);

/* ---- order.c */
/* Sorts groups into an order with less memory alive at once, in which they still can run; those of
 * the last phase are `late`. Returns the most bytes of values alive at once; 0: there are too few
 * groups to tell. `env` holds typical sizes, or is NULL. */
int64_t order_groups(Arena *a, const Graph *g, const int64_t *env, Groups *groups);
/* Per output of g: the value in memory that a run may write to the input that the output is written
 * to (Graph.writes); VAL_NONE: none, as other outputs need the value or the input. `made`: per
 * entry of g->types, whether a group makes the value. */
const Val *order_writes(Arena *a, const Graph *g, const bool *made);

/* ---- memplan.c: arrays only */
typedef struct MemItem {
  int64_t bytes;        /* a multiple of 64 */
  uint32_t first, last; /* steps in which it is alive */
  int64_t offset;       /* result */
} MemItem;
/* Sets the offset of each item such that items alive at the same time do not overlap. Returns the
 * size of the arena, or -1 if all items together reach 2^62 bytes. Deterministic. */
int64_t memplan(Arena *temp, MemItem *items, size_t n);
/* The most bytes alive at once, and the first step with that many. No arena is smaller. */
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
  bool lent;   /* the evaluator or the host sees its memory, which they copy to keep it */
  bool stored; /* a value that is stored in the last phase */
} Slot;

typedef struct Held {
  Val v;
  uint32_t last;   /* step after which it is released; UINT32_MAX: at the end */
  uint32_t filled; /* by this copy of Plan.transfers; NO_TRANSFER: by its step */
} Held;
enum { NO_TRANSFER = UINT32_MAX };

typedef struct Due { /* a step, and the input or result that it ends or begins */
  uint32_t step, index;
} Due;

/* A value in the arena that the program keeps in place of an input. When nothing can fail any more,
 * it is copied to the input's memory, if nobody else holds that, else to a new tensor. */
typedef struct Store {
  Val v;
  uint32_t input, output;
  uint32_t at; /* before this step: v is made, and nothing reads the input any more */
} Store;

/* A copy between the arena and the memory of a value that is offloaded, while other steps run. The
 * value keeps its slot until it is copied, or has it before it is needed. Bound has the times. */
typedef struct Transfer {
  uint32_t step; /* begins the copy of a value that leaves, ends that of one that comes back */
  uint32_t slot;
  uint32_t limit; /* leaves: it is copied before this step; comes back: from this step on it can */
  bool leaves;
} Transfer;

typedef enum StepKind { STEP_KERNEL, STEP_NODE } StepKind;
typedef struct Step {
  uint8_t kind;
  uint32_t group;  /* in Plan.groups */
  uint32_t launch; /* KERNEL: in Plan.low.launches */
  uint32_t panel0; /* KERNEL: slot of the group's panel 0 */
  uint32_t node;   /* NODE: run by the reference evaluator, effects by the host */
  /* KERNEL, the copy of an update at indices: the operand dies here. `moved`: the result has its
   * place, so there is nothing to copy. `from`: its place, whose tensor becomes the result if
   * nobody else holds it when the function runs. */
  bool moved;
  Place from;
  uint32_t transfer; /* NODE: in Plan.transfers, or NO_TRANSFER */
  bool turns;        /* NODE: a loop, whose turns are the kernel of `launch` */
} Step;

typedef struct Plan {
  Arena *arena;
  const Graph *g;         /* flat; its tables are further inputs */
  const Graph *tables;    /* computes them; NULL: there are none */
  size_t inputs;          /* of the graph as given */
  const uint32_t *origin; /* node of the graph as given */
  Groups groups;
  Lowered low;
  Step *steps;
  size_t step_count, step_cap;
  Place *place;   /* per entry of g->types */
  uint32_t *made; /* likewise: the first step that finds the value in its place */
  Slot *slots;
  size_t slot_count, slot_cap;
  Val *results;
  size_t result_count, result_cap;
  Held *helds;
  size_t held_count, held_cap;
  bool *input_used; /* a step reads the input, so it must be contiguous */
  /* The last step that reads the input (UINT32_MAX: an output reads it), and the first step that
   * writes the result (UINT32_MAX: none does). */
  uint32_t *input_last, *result_first;
  Due *makes; /* each result with the step before which it is made, by steps */
  Due *drops; /* inputs with the step after which nothing reads them, by steps */
  size_t drop_count;
  Transfer *transfers; /* by steps */
  size_t transfer_count, transfer_cap;
  Store *stores;
  size_t store_count, store_cap;
  bool *is_store; /* per output */
  uint32_t tail;  /* the first step of the last phase, in which nothing fails: stores come in it */
  bool *message;  /* per node: the message of a failing kernel depends on it; NULL: none may fail */
  uint32_t forward_end; /* the last step that computes a value for a backward node, or UINT32_MAX */
} Plan;

/* The value in memory that has the elements of v in order, when a step begins; or VAL_NONE. */
Val plan_dense(const Plan *p, Val v, uint32_t step);

typedef struct Bound Bound; /* bind.c */
/* The plan lives in `a`. `temp` holds working memory, which the caller frees. `env` holds typical
 * sizes, or is NULL. `shelf`: see jit_plan. */
Plan *plan_make(Arena *a, Arena *temp, const Graph *g, const int64_t *env, const EngTarget *target,
                bool apart, Shelf *shelf);
/* A lower bound of the arena of such a plan, from values without panels. 0: not known. */
int64_t plan_least(Arena *temp, const Graph *g, const int64_t *env);
/* ---- transfer.c */
void transfer_find(Plan *p);
/* Sets the times of b's transfers and stretches the items of their slots where the arena has room
 * for that; items[k] is slot of[k], placed. */
void transfer_bind(const Plan *p, Bound *b, const int64_t *env, MemItem *items, const uint32_t *of,
                   size_t n);
/* ---- plan_check.c: both throw by mem_bug if a law of plans does not hold */
void plan_check(const Plan *p, Arena *temp);
/* Checks the offsets that memplan set, in an arena of `arena` bytes. */
void plan_check_places(Mem *mem, Arena *temp, const MemItem *items, size_t n, int64_t arena);

static inline uint32_t plan_index(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}
/* Whether v lies in its place when a step begins. A view that is an output has a place, too; steps
 * before it is made pull the view from its base instead. */
static inline bool plan_there(const Plan *p, Val v, uint32_t step) {
  uint32_t i = plan_index(p->g, v);
  return p->place[i].kind && p->made[i] <= step;
}

/* ---- bind.c: offsets and arguments for one set of sizes */
typedef struct Where { /* of a buffer. Roots: 0 the arena, then inputs, results, helds */
  uint32_t root;
  int64_t offset; /* bytes */
} Where;

typedef struct BoundLaunch {
  Where *bufs;
  int64_t *args; /* a checked kernel's are followed by the bytes of its buffers */
  int64_t
      *elements; /* of each buffer but local ones; NULL unless the kernel is checked or walked */
  int64_t iterations, work, local_bytes, bytes;
  int64_t effort; /* `work` for eng_run */
} BoundLaunch;

struct Bound {
  Bound *next;
  int64_t *env;
  Arena arena;
  bool ready;
  bool checked;   /* the conditions on sizes and numbers hold */
  bool reference; /* only the reference evaluator takes these sizes: one is 0, or in error */
  int64_t *dims;  /* of inputs, then of results: CKL_MAX_RANK each */
  BoundLaunch *launches;
  int64_t *offset, *bytes; /* per slot of the plan, in the arena */
  uint32_t *last;          /* per slot: the step to which it has its place, Slot's or a later one */
  Due *begins, *ends;      /* transfers before a step, by steps: come back from now on, have left */
  size_t begin_count, end_count;
  int64_t arena_bytes, local_bytes, result_bytes;
  int64_t live_bytes, panel_bytes; /* most of the arena in use at once; panels within it */
  int64_t saved_bytes;             /* in use at forward_end, for later steps */
  uint32_t peak_step;
};

enum { JIT_BOUND_MAX = 8 }; /* sets of sizes kept */

void bound_free(JitFn *f, Bound *b);
/* The Bound of these sizes, for which g's size checks hold. Makes it if it is not kept. Throws. */
Bound *bound_get(JitFn *f, const int64_t *env);
/* The kept Bound of these sizes, or NULL. If sizes differ that only arguments of kernels depend on,
 * the arguments of a kept one are computed anew. */
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
  Mover *mover;   /* NULL: nothing was offloaded yet */
  const EngTarget *target;
  JitFn *fns;
  JitCount count;
  /* Memory of running functions. Runs nest in bodies of loops; each level has its own block. */
  JitBlock *blocks;
  size_t block_count, depth;
};

/* The bytes of a value that the evaluator holds (peak.c). */
typedef struct HeldSize {
  uint32_t like; /* the first of those in the same memory, or itself */
  bool view;     /* a row of that one */
  bool one;      /* rows of a loop that are one row */
  int more;      /* rows of a loop besides those of the turns */
  bool wide;     /* rows that may hold more than they show */
  int64_t bytes; /* of the first: those of all of them */
  bool stays;    /* of the first: one of them leaves */
  uint32_t seen;
} HeldSize;

struct JitFn {
  int64_t rc; /* of its owner, and of what runs a region later */
  Jit *j;
  Arena arena, temp; /* temp: while it is made */
  const Graph *g;
  Plan *plan;
  EngKernel **kernels; /* per launch */
  KernelFn *code;
  bool reference; /* gr_run runs the whole graph: other devices, anomaly mode */
  bool hosts;     /* the graph calls functions of the program */
  bool listed;    /* turns of a loop that has it as its body can be lists of launches */
  Sym symbols;
  uint64_t nodes; /* that gr_run would count */
  Bound *bound;   /* most recent first */
  bool *sizing;   /* per symbol: offsets, dims or conditions depend on it; NULL: not known yet */
  struct LooseArg {
    uint32_t launch, arg;
  } * loose; /* arguments that depend on symbols without `sizing` */
  size_t loose_count, loose_cap;
  bool numbers_checked;        /* conditions depend on such symbols */
  HeldSize *held;              /* in the order of Plan.helds */
  JitFn **regions;             /* in the order of Plan.g->regions; NULL: not run by a step */
  JitFn *next, *prev, *parent; /* all of j; of a region that to which it belongs */
  /* per step, for a profile */
  struct StepTime {
    double seconds;
    int64_t runs, bytes, work;
  } * times;
  bool kept; /* jit_plan or jit_compile returned it; a throw frees others */
  /* while it runs */
  bool running;
  size_t root_count;
  void **root;    /* addresses: arena, inputs, results, helds */
  Tensor **in;    /* inputs, borrowed, and tables, which it keeps */
  Tensor **dense; /* inputs made contiguous, else NULL */
  bool *gone;     /* inputs that this run gave back */
  Tensor **results, **helds;
  uint64_t *copy;  /* per transfer: number of the mover's copy; 0: made, or not begun */
  bool *begun;     /* per transfer */
  Tensor **stored; /* per store: a new tensor; NULL: the value takes the place of the input */
  void *room;      /* of kernels that are walked in the last phase */
  size_t room_bytes;
  void **bufs;
};

#endif
