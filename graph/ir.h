/* Graph IR: arrays in an arena, no pointers between nodes.
 *
 * A value is (node, result index). A node has an op, operands, results (each with a type),
 * attributes, regions and a provenance. A region is a closed Graph: what it captures follows the
 * operands proper and enters as inputs, so every graph can be cloned, hashed, printed and run by
 * itself. Effects are ordered by tokens (a type kind). Nodes are in topological order by
 * construction: an operand's node index is smaller than its user's.
 *
 * Related headers: opcode.h the operations by name (structure.h: those that most files name), op.h
 * the op table, build.h appending nodes, pass.h whole graphs, run.h the evaluator.
 */
#ifndef CKL_GRAPH_IR_H
#define CKL_GRAPH_IR_H

#include "graph/dim.h"
#include "runtime/interrupt.h"
#include "runtime/stack.h"
#include "runtime/tensor.h"

typedef struct Val {
  uint32_t node, res;
} Val;
#define VAL_NONE ((Val){UINT32_MAX, 0})
static inline bool val_none(Val v) {
  return v.node == UINT32_MAX;
}
static inline bool val_eq(Val a, Val b) {
  return a.node == b.node && a.res == b.res;
}

/* A stash is what a loop keeps of its turns, for its gradient alone: graph/stash.h. */
enum { TK_TENSOR = 0, TK_TOKEN = 1, TK_STASH = 2 };
typedef struct Type {
  uint8_t kind, dtype, dev, rank;
  uint32_t alias; /* alias class: results of one class may share storage; 0 = its own */
  Dim dim[CKL_MAX_RANK];
} Type;

/* Attribute names; texts in attr_name[] (graph/op.c). */
typedef enum AttrKey {
  AT_INDEX,
  AT_AXIS,
  AT_AXES,
  AT_PERM,
  AT_DIMS,
  AT_STARTS,
  AT_LENS,
  AT_STEPS,
  AT_LOW,
  AT_HIGH,
  AT_INNER,
  AT_VALUE,
  AT_DTYPE,
  AT_KIND,
  AT_REVERSE,
  AT_DESCENDING,
  AT_DISTINCT,
  AT_MOST,
  AT_COMPUTE,
  AT_STRIDE,
  AT_PAD,
  AT_WRT,
  AT_CARRY,
  AT_MAPPED,
  AT_TEXT,
  AT_SIZE,
  AT_DEVICE,
  AT_SEEN,
  AT_WHILE,
  AT_COUNTER,
  AT_UPPER,
  AT_UNIT,
  AT_ACROSS,
  AT_REGULAR,
  AT_FULL,
  AT_VALUES,
  AT_STATES,
  AT_EVERY,
  AT_AGAIN,
  AT_COUNT
} AttrKey;
typedef enum AttrKind { AK_INT, AK_FLOAT, AK_INTS, AK_DIM, AK_DIMS, AK_TEXT } AttrKind;
typedef struct Attr {
  uint16_t key, kind;
  uint32_t count; /* INTS, DIMS: how many */
  union {
    int64_t i;           /* INT, DIM */
    double f;            /* FLOAT */
    const int64_t *ints; /* INTS, DIMS (a Dim each), in the graph's arena */
    Name text;
  } u;
} Attr;

enum { COMPUTE_NONE, COMPUTE_BF16, COMPUTE_F16, COMPUTE_TF32 }; /* AT_COMPUTE */
enum { RANDOM_UNIFORM, RANDOM_NORMAL };                         /* AT_KIND of random */

/* Recompute tags of a node (rule 82). */
typedef enum Tag {
#define TAG(NAME, ...) TAG_##NAME,
#include "graph/tags.def"
#undef TAG
  TAG_COUNT
} Tag;
/* The choice for a value of a block. */
enum {
  CHOICE_FREE,      /* of no block, or recomputed without cost: a view, a constant */
  CHOICE_SAVE,      /* lives from forward to backward */
  CHOICE_RECOMPUTE, /* backward computes it again */
  CHOICE_OFFLOAD    /* moved away after the forward, fetched before its first backward use */
};
typedef struct TagInfo {
  const char *name; /* in the text of a graph */
  bool firm;        /* the planner cannot change it */
  uint8_t choice;   /* CHOICE_* of the value without a planner */
  uint8_t narrow;   /* DType in which wider floats are saved, DT_BOOL = as they are */
} TagInfo;
extern const TagInfo tag_info[TAG_COUNT]; /* graph/op.c */

/* Whether a tag makes this choice: tag_must firmly, tag_prefers unless the planner finds better,
 * tag_says in either way. */
static inline bool tag_says(Tag t, int choice) {
  return t != TAG_NONE && tag_info[t].choice == choice;
}
static inline bool tag_must(Tag t, int choice) {
  return tag_says(t, choice) && tag_info[t].firm;
}
static inline bool tag_prefers(Tag t, int choice) {
  return tag_says(t, choice) && !tag_info[t].firm;
}

static inline bool tag_narrows(Tag t) {
  return tag_info[t].narrow != DT_BOOL;
}

/* A `checkpoint` block. Its id is its place in the table + 1; Prov.region and Prov.within hold
 * ids. A block is provenance only: its nodes stand among the others, so gradients are the same as
 * without it. */
typedef struct Block {
  uint32_t parent; /* id of the block around it, 0 = none */
  Span span;
  Name text;      /* its clauses as written, "save matmul, budget = 1MiB"; "" = none */
  int64_t budget; /* bytes, -1 = none (rule 86) */
  bool automatic; /* <auto>: the planner decides under the limit of the process */
  bool saves;     /* values that no clause names are saved, since all clauses recompute (rule 82) */
  bool reentrant; /* backward runs the whole body again (rule 85) */
  bool narrows;   /* a clause of it has rounded a value for the backward, dead or not */
} Block;
typedef struct BlockTab { /* shared by all graphs of a function, as its DimTab is */
  Arena *arena;
  Block *items;
  size_t count, cap;
} BlockTab;

typedef struct Prov {
  Span span;        /* user's source */
  Span caller;      /* of a span in the library: the call in the program; file 0: unknown */
  Name path;        /* layer path "net.blocks.0.attn", or NULL */
  Name name;        /* the `let` that names the value, or NULL */
  uint32_t region;  /* checkpoint block in which the node was written, 0 = none; a backward node has
                      the region of its forward node */
  uint32_t within;  /* of a backward node: the block in which its `grad` stands, 0 = none */
  int32_t origin;   /* NodeCall number in a captured backward, -1 = none */
  uint8_t tag;      /* Tag */
  uint8_t backward; /* made by differentiation; span etc. are those of the forward node */
  uint8_t recomputed; /* a recomputed copy: CSE never merges it with its original */
  /* a result with NaN or inf is an error; a backward node has the mode of its forward node */
  uint8_t anomaly;
} Prov;

typedef struct GNode {
  uint16_t op;
  uint16_t result_count, region_count, attr_count;
  uint32_t operand_count;
  uint32_t operand0, result0, attr0, region0; /* first index in the graph's arrays */
  uint32_t prov;                              /* index in provs */
} GNode;

/* A condition on sizes that was open when the graph was built. It is tested when sizes are known,
 * before any node runs (rule 23). */
/* a == b; a >= b; a % b == 0; the number a is a value of the dtype with the number b (rule 12) */
typedef enum CheckKind { CHECK_EQ, CHECK_GE, CHECK_DIVIDES, CHECK_FITS } CheckKind;
bool check_holds(CheckKind k, int64_t a, int64_t b);
typedef struct SizeCheck {
  CheckKind kind;
  Dim a, b;
  uint32_t prov;
  const char *text; /* "the inner dims of `@` differ": values are appended */
  const char *help; /* NULL = none */
} SizeCheck;

typedef struct Graph Graph;
struct Graph {
  Arena *arena;
  DimTab *dims;
  Names *names;
  Name name;
  BlockTab *blocks; /* NULL: there are none */
  GNode *nodes;
  size_t node_count, node_cap;
  Val *operands;
  size_t operand_count, operand_cap;
  Type *types;
  size_t type_count, type_cap;
  Attr *attrs;
  size_t attr_count, attr_cap;
  Graph **regions;
  size_t region_count, region_cap;
  Prov *provs;
  size_t prov_count, prov_cap;
  SizeCheck *checks;
  size_t check_count, check_cap;
  Val *inputs;
  size_t input_count, input_cap;
  Val *outputs;
  size_t output_count, output_cap;
  /* Of the first `write_count` outputs: the input whose place in the program gets the value, so
   * that a run may end by writing it to the input's memory (RunCtx.alone); -1: none. */
  const int *writes;
  size_t write_count;
  Prov at;              /* provenance given to the nodes made next */
  uint32_t alias_count; /* alias classes 1 .. alias_count are in use */
  /* Source text of the operands of the next gr_op, for help lines ("`a @ transpose(b)`"). Entries
   * that are NULL or missing read x, y, z. The caller sets and clears it. */
  const char *const *operand_text;
  int operand_text_count;
  /* State that functions of hooks see while a gradient is appended: further operands of their
   * `defer` nodes, under this number. The caller sets and clears it. */
  const Val *seen;
  int seen_count;
  int64_t seen_number;
};

/* Why an op cannot be built or run: the caller turns it into a diagnostic at its own span. */
typedef struct GErr {
  ErrCode code;
  int operand; /* which operand is at fault, -1 = the op as a whole */
  char text[400];
  char help[300]; /* "" = none */
  unsigned line;  /* of the text that is read; 0 = none */
  bool nomem, interrupted;
} GErr;
bool gerr_set(GErr *e, ErrCode code, int operand, const char *fmt, ...)
    __attribute__((format(printf, 4, 5))); /* returns false */

extern const char *const attr_name[AT_COUNT];
/* ---- building. All throw (mem_throw) when out of memory. */
Graph *gr_new(Arena *a, DimTab *dims, Names *names, Name name);
/* Makes room for `more` of each, so that arrays do not grow later. */
typedef struct GrRoom {
  size_t nodes, operands, types, attrs, provs, inputs;
} GrRoom;
GrRoom gr_room(const Graph *g);
void gr_reserve(Graph *g, GrRoom more);
Val gr_input(Graph *g, const Type *t);                    /* appends to inputs too */
Val gr_const_f(Graph *g, DType dt, Device dev, double x); /* rounded once to dt */
Val gr_const_i(Graph *g, DType dt, Device dev, int64_t x);
Val gr_dim(Graph *g, Dim d); /* i64, rank 0, cpu */
void gr_output(Graph *g, Val v);
/* Whether a counter of a loop is in d (dim_counter). */
bool gr_sized_by_turn(const DimTab *t, Dim d);
void gr_check(Graph *g, CheckKind k, Dim a, Dim b, const char *text); /* copies the text */
void gr_check_help(Graph *g, CheckKind k, Dim a, Dim b, const char *text, const char *help);
uint32_t gr_block(Graph *g, Block b); /* enters b into g's table; its id. Throws. */
static inline const Block *gr_block_at(const Graph *g, uint32_t id) {
  return g->blocks && id && id <= g->blocks->count ? &g->blocks->items[id - 1] : NULL;
}
/* Gives a node another provenance. */
void gr_set_prov(Graph *g, uint32_t node, Prov p);
/* Whether `id` is `outer` or a block inside of it. */
bool gr_block_inside(const Graph *g, uint32_t id, uint32_t outer);
/* Whether node n is computed by the body of block `id`: inputs are not. */
bool gr_in_block(const Graph *g, uint32_t n, uint32_t id);

/* ---- reading */
static inline const GNode *gr_node(const Graph *g, Val v) {
  return &g->nodes[v.node];
}
static inline const Type *gr_type(const Graph *g, Val v) {
  return &g->types[g->nodes[v.node].result0 + v.res];
}
static inline Val gr_operand(const Graph *g, uint32_t node, int i) {
  return g->operands[g->nodes[node].operand0 + (uint32_t)i];
}
const Attr *gr_attr(const Graph *g, uint32_t node, AttrKey k); /* NULL when absent */
int64_t gr_attr_i(const Graph *g, uint32_t node, AttrKey k, int64_t otherwise);
void gr_set_attr(Graph *g, uint32_t node, Attr a); /* adds it, or replaces that of its key */
/* Whether a loop makes the rows from output AT_AGAIN of its turns on again when they are read, by
 * AT_STATES or AT_EVERY; else it keeps them. */
bool gr_again(const Graph *g, uint32_t node);
bool type_eq(const Type *a, const Type *b); /* kind, dtype, rank, dims, device */
/* The same with all facts about dims: those recorded since may have changed their normal forms. */
bool type_same(DimTab *t, const Type *a, const Type *b);
void type_print(Buf *out, const DimTab *t, const Type *ty); /* f32[B, 3] */
void type_sized_text(char *to, size_t size, DType dtype, int rank, const int64_t *dim);

#endif
