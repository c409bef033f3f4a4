/* Rematerialisation: a value of a `checkpoint` block that a backward reads is kept, computed again,
 * or moved away in between (rules 80 to 86).
 *
 * A *choice* is made per value: an array with one byte, CHOICE_*, per entry of g->types. rm_written
 * makes it from the tags of the nodes, rm_cut from sizes; rm_apply carries it out. All of them work
 * on a graph that holds forward and backward. If a block stands inside of a `wrap`, the body has
 * replaced the node.
 */
#ifndef CKL_AUTOGRAD_REMAT_H
#define CKL_AUTOGRAD_REMAT_H

#include "graph/ir.h"
#include "graph/replay.h"

/* Writes the choice that the tags make; `choice` has g->type_count bytes. Values without a tag are
 * saved. The tags of an inner block hold while the outer block recomputes (rule 85). */
void rm_written(const Graph *g, uint8_t *choice);

/* The choice where nothing asks for another: as written. One long block around everything, without
 * clauses, keeps what its pieces begin with if it needs less so, by typical sizes; nothing is
 * computed more often than as written. */
void rm_default(Arena *scratch, const Graph *g, uint8_t *choice);

/* g with backward uses of recomputed values reading copies (Prov.recomputed), each copy once per
 * block and right before its first use. Inputs, outputs and their order stay, and so does the order
 * of g's nodes; tags are gone. `choice` NULL: rm_default. `split` (may be NULL): the number of the
 * first node of a second half, which shares no copy with the first; becomes its number in the
 * result. Values that the second half reads are bound to live, whoever reads them. Dead nodes are
 * left for dce, but for aliases that no node reads. Without blocks: a clone. Throws when out of
 * memory; fails in no other way. */
Graph *rm_apply(Arena *a, const Graph *g, const uint8_t *choice, uint32_t *split);
/* g with nodes that read what an `alias` is of, where no clause is about the alias: a gradient is
 * taken by now, which is what they are for. It shares all but operands with g, and numbers of
 * nodes; the aliases are dead. */
const Graph *rm_direct(Arena *a, const Graph *g);
Graph *rm_pass(Arena *a, const Graph *g); /* as written: pass `remat` of `ckl opt` */

/* The dtype in which v waits for a gradient (`save .. as bf16`); DT_BOOL: as it is. */
DType rm_narrow(const Graph *g, Val v);
bool rm_narrows(const Graph *g); /* some value of g, or in its regions, has such a tag */
/* Per result of a block: is narrow or hangs on a narrow value of its block, so what a gradient
 * reads of it differs from what the forward had. Sets `kept` for what decides something. */
bool *rm_shifted(Arena *a, const Graph *g, bool *kept);
/* The types of what is saved for v: one, of u8 the codes and the scales. Returns how many. */
int rm_saved_as(const Graph *g, Val v, Type as[2]);

/* Who made the choice of a value. */
typedef enum RmWhy {
  WHY_NAMED,  /* a clause: must_save, must_recompute, offload */
  WHY_REST,   /* no clause names the value, or the clause only prefers */
  WHY_NEVER,  /* its op cannot run twice, or it is a condition (rule 81) */
  WHY_FREE,   /* a view or constant */
  WHY_CALLER, /* kept, since the backward of the block's caller or of another block reads it */
  WHY_PLANNER /* `choice` is not as written */
} RmWhy;
typedef struct RmValue {
  Val v;
  uint32_t block; /* outermost block that it belongs to */
  uint8_t choice; /* CHOICE_*; FREE: kept or made without cost */
  bool narrow;    /* saved as rm_narrow says */
  RmWhy why;
} RmValue;
/* Calls `visit` for each value of a block that the backward needs, directly or to compute others
 * again, in the order of the nodes. The arguments are those of rm_apply. */
void rm_values(Arena *scratch, const Graph *g, const uint8_t *choice, const uint32_t *split,
               void (*visit)(void *ud, const RmValue *v), void *ud);

/* ---- planning: `env` has the values of g's symbols. Costs are in units of 10 ps on an average
 * machine: only their ratios matter. Saturate at INT64_MAX / 4. */
int64_t rm_cost(const Graph *g, uint32_t node, const int64_t *env);
int64_t rm_time(const Graph *g, const int64_t *env); /* of all nodes that an output needs */
/* Makes the cheapest choice if each kept byte costs `lambda` units. Firm tags hold. If a tag
 * prefers another choice than its block has by default, the choice against the tag costs 4 times as
 * much. */
void rm_cut(Arena *scratch, const Graph *g, const int64_t *env, double lambda, uint8_t *choice);
/* Makes the choice that keeps the fewest bytes while it computes again for at most `time`, by
 * bisection over the price of a byte, and then over the nodes that follow the next higher price.
 * Returns the number of choices tried. */
int rm_within(Arena *scratch, const Graph *g, const int64_t *env, int64_t time, uint8_t *choice);
/* Makes a list of choices, from which a planner takes the fastest that fits: as written, save-all,
 * recompute-all, then choices between them, each once, at most `most` (at least 3) altogether. The
 * list depends on the graph and the sizes alone. Returns the number of choices; each has
 * g->type_count bytes. */
size_t rm_ladder(Arena *a, const Graph *g, const int64_t *env, size_t most, uint8_t **choices);
/* The bytes that a choice keeps from forward to backward, and the cost of its recomputed nodes. */
typedef struct RmPrice {
  int64_t bytes, time;
} RmPrice;
RmPrice rm_price(Arena *scratch, const Graph *g, const int64_t *env, const uint8_t *choice);
/* Per entry of g->types: whether a choice keeps the value from forward to backward. */
bool *rm_kept(Arena *a, const Graph *g, const int64_t *env, const uint8_t *choice);
/* A plan: a choice for the values of g, and blocks that it adds (NULL: none), whose nodes are made
 * again more than once. */
typedef struct RmNest RmNest;
typedef struct RmPlan {
  const Graph *g;
  uint8_t *choice;
  const RmNest *nest;
} RmPlan;
/* The graph that `choice` is carried out on: g, or a copy with more blocks, in `a`. Graphs made of
 * it refer to its table of blocks. */
const Graph *rm_plan_graph(Arena *a, const RmPlan *plan);
/* Plans that run blocks again in pieces (autograd/pieces.c), of blocks that are `open` (by id - 1).
 * `leaf` is the choice for values of pieces that do not run again; `fine`: more of the places where
 * a block could be cut are looked at. At most `most` plans, by rising need, on arena a, which
 * differs from `scratch`. Returns their number. */
size_t rm_pieces(Arena *a, Arena *scratch, const Graph *g, const int64_t *env, const bool *open,
                 const uint8_t *leaf, bool fine, size_t most, RmPlan *plans);
/* Makes the plan in pieces that needs least and runs pieces again for at most `time` altogether. It
 * is for graphs with one block. False if it would run none. */
bool rm_least(Arena *a, Arena *scratch, const Graph *g, const int64_t *env, const uint8_t *leaf,
              int64_t time, RmPlan *plan);
/* What loops keep of their turns. */
typedef struct RmTurns {
  uint32_t node;
  ReplayKeeps keeps; /* both 0: all rows */
} RmTurns;
typedef struct RmSchedule {
  const RmTurns *turns;
  size_t count;
  int64_t bytes, time; /* that all of them hold; of the turns that run again */
} RmSchedule;
/* Whether something is left to decide about a loop. If only the run knows how many turns it has,
 * its rows may take any memory: BOUNDED, that counts as too much. */
typedef enum RmOpen { LOOP_CLOSED, LOOP_OPEN, LOOP_BOUNDED } RmOpen;
/* Lists schedules for the loops of g that are open (by node), can run turns again, and have none:
 * at most `most`, 2 and more, by rising time and falling memory. The first keeps all rows. Returns
 * their number. */
size_t rm_schedules(Arena *a, const Graph *g, const int64_t *env, const RmOpen *open, size_t most,
                    RmSchedule *out);
/* A copy of g with a schedule. */
Graph *rm_scheduled(Arena *a, const Graph *g, const RmSchedule *s);
/* What a plan makes again, and about how much memory it takes: the most bytes alive of values that
 * lie in memory, with rm_apply's graph in its order. */
RmPrice rm_look(Arena *scratch, const RmPlan *plan, const int64_t *env);
/* Makes the choice `what` for all values, as far as firm tags allow. */
void rm_all(const Graph *g, uint8_t what, uint8_t *choice);

#endif
