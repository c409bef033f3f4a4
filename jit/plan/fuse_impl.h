/* What the parts of fusion share: fuse.c joins nodes, fuse_groups.c makes groups of what joined. */
#ifndef CKL_JIT_PLAN_FUSE_IMPL_H
#define CKL_JIT_PLAN_FUSE_IMPL_H

#include "graph/opcode.h"
#include "jit/plan/plan.h"

/* ---- edges: how a node reads a value that another node computes */
typedef enum Way {
  WAY_SAME, /* element k from element k, in row-major order */
  WAY_ROW,  /* element k from element k / `columns` */
  WAY_PICK, /* element k from one of the `columns` elements of row k */
  WAY_MOVE, /* each element once, in another order */
  WAY_PART, /* each element at most once */
  WAY_MANY  /* elements several times */
} Way;

typedef struct Edge {
  uint32_t from; /* a node that is no view; UINT32_MAX: the value is not computed */
  uint32_t res;
  uint8_t way;
  bool all;    /* reads each element, so that a node that may fail does */
  bool moved;  /* elements of as many, at other places */
  Dim columns; /* ROW */
} Edge;

enum { NOBODY = UINT32_MAX };

typedef struct Part { /* a group in the making */
  uint8_t kind;
  bool dead, fails;
  bool early, late; /* has a node of the forward, has one of the backward */
  bool update;      /* has a node that only writes need */
  bool moves;       /* has a node that moves elements (NodeInfo.moves) */
  uint32_t anchor;  /* the node that is not pointwise, or NOBODY */
  uint32_t *nodes;
  uint32_t count, cap; /* not sorted */
  uint32_t lo, hi;     /* least and greatest node */
  uint32_t epoch_lo, epoch_hi;
  Dim rows, columns; /* ROWS: of its space; else `rows` is the element count */
  uint32_t seen;     /* stamp of the search for cycles */
} Part;

/* A chain that each reader computes for itself: from inputs, too, or from generators alone. */
enum { CLONE_NUMBER = 1, CLONE_NOTHING = 2 };

typedef struct NodeInfo {
  uint32_t part;   /* NOBODY: in no group: a view, a generator, dead, or computed by each reader */
  uint32_t epoch;  /* number of effects before the node */
  uint32_t before; /* of an effect: the previous one, NOBODY for the first; of others NOBODY */
  bool leaves;     /* an output of the graph */
  Dim count;
  Edge *edges;
  uint32_t *reader; /* the nodes that read it, once per edge */
  uint32_t reader_count;
  bool column;              /* a reduction over leading axes */
  bool live, memory, inner; /* memory: a reader needs it there; inner: inlined, never an out */
  bool after;               /* a contraction of a strip's rows: no node of the group follows it */
  bool right;               /* the rows are its right operand: its transpose is computed */
  bool update;              /* pointwise, and needed only for what is written to inputs */
  bool moves;               /* reads elements at other places */
  uint32_t spot[2];         /* see made_twice */
  int spots;
  uint8_t clone, clone_nodes, clone_cost;
} NodeInfo;

typedef struct Fuse {
  Arena *keep, *a; /* keep: of groups */
  const Graph *g;
  const int64_t *env; /* typical sizes, or NULL */
  NodeInfo *n;
  Part *parts;
  size_t part_count, part_cap;
  /* the search for cycles */
  uint32_t stamp, start, goal, at;
  int visits;
  uint8_t *state;   /* per part: while groups are ordered */
  uint32_t forward; /* nodes before the first backward node, if the backward recomputes values */
  uint32_t *stack;
  size_t stack_count, stack_cap;
  bool *root;            /* per node: an output that is a view and needs a kernel */
  bool *moved;           /* per node: a view that is copied to memory for its readers */
  uint32_t *uses, *user; /* per node: uses by nodes (also views) and outputs; the last user */
  uint32_t *heavy; /* per node: nodes before it that end a pass over memory: contractions, .. */
  uint32_t *columns;
  size_t column_count, column_cap; /* parts of kind COLUMNS */
  uint32_t *across;                /* per node: parts that have nodes both up to it and behind it */
  uint32_t low; /* no part has nodes both up to this one and behind it; see `depends` */
} Fuse;

static inline const GNode *node_at(const Fuse *f, uint32_t i) {
  return &f->g->nodes[i];
}

/* Calls `visit` for each part that a node reads, also through chains that the reader computes
 * (which are at most CLONE_NODES deep), until it says true. */
typedef bool (*PartFn)(Fuse *f, uint32_t part);
bool fuse_sources(Fuse *f, uint32_t node, PartFn visit);
/* Whether the node has an effect: it is one, or a loop or branch with effects inside, which need no
 * tokens if they are hooks. */
bool fuse_in_order(const Graph *g, uint32_t node);
int fuse_by_number(const void *a, const void *b); /* compares numbers of nodes, for qsort */
/* Puts the groups of all parts in order. False: parts wait for each other. */
bool fuse_put_out(Fuse *f, Groups *out);

#endif
