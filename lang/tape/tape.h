/* The tape: a record of the operations of script on tracked values, for `grad` at the top level
 * (rules 72 to 77).
 *
 * A node is one operation or one call of compiled code. It holds the origins of its inputs, the
 * tensors that its gradient needs, and a sequence number. Nodes are reference-counted; a loop
 * releases them.
 * Example: after `let x = track(f32(2)); let y = x * x; let z = y + x` the tape has two nodes. Node
 * 1 (mul) has both edges to the param x; node 2 (add) has an edge to result 0 of node 1, and one to
 * x. `grad` visits node 2, then node 1.
 */
#ifndef CKL_LANG_TAPE_TAPE_H
#define CKL_LANG_TAPE_TAPE_H

#include "autograd/autograd.h"
#include "lang/compile/joint_ref.h"
#include "lang/lang.h"

void tape_warn_eval_dropout(Session *s, Span at);

/* The origin of an input: the result of a node, a param (leaf), or NULL and NULL if it is not
 * tracked. */
typedef struct Edge {
  TapeNode *node;
  Param *param;
  uint32_t out;
} Edge;

typedef struct TapeMeta {
  DType dtype;
  Device dev;
  int rank;
  int64_t dim[CKL_MAX_RANK];
} TapeMeta;

/* The tensors that a node has for its backward. An operation is TAPE_READY until it is consumed.
 * The states of a call are
 *
 *     tape_record_call with what it saved        without
 *                 |                                 |
 *                 v        <-- tape_need --         v
 *            TAPE_READY                        TAPE_UNSAVED
 *                 |         -- tape_narrow -->      |
 *                 +------------------+--------------+
 *                                    |   tape_open: a gradient is recorded
 *                                    v
 *                               TAPE_OPENED
 *
 * and each of them becomes TAPE_CONSUMED by tape_strip or tape_use_up. `hooked` and `version` do
 * not depend on the state. */
typedef enum TapeState {
  TAPE_READY,   /* inputs; a call has the values that its joint graph saved, too */
  TAPE_UNSAVED, /* a call has its inputs alone */
  TAPE_OPENED,  /* the body of a call is on the tape: operand k is result k */
  TAPE_CONSUMED /* no tensors: a `grad` has used them (rule 76) */
} TapeState;

struct TapeNode {
  int64_t rc;
  uint64_t seq;
  Span span;
  size_t in_count, out_count, saved_count;
  Edge *in;
  Tensor **inputs; /* kept: the gradient of a gradient needs them (NULL: only the type matters) */
  Tensor **saved;  /* a call: the values that its joint graph saved */
  TapeMeta *out;   /* of results */
  Tensor **own;    /* results as its gradient reads them; NULL: as the operation gives them */
  TapeState state;
  uint16_t op; /* one operation: its OpCode */
  Attr *attrs;
  size_t attr_count;
  JointRef *joint; /* a call; NULL for one operation */
  Value *refs;     /* of a call: the values that its callbacks concern (callback.h) */
  size_t ref_count;
  int64_t *env; /* sizes */
  size_t env_count;
  uint32_t slot; /* place in the innermost sweep of the node, from 1; 0 = no sweep runs */
  /* while a sweep is captured: 2 = the node leads to a wanted value and gets a cotangent, as far as
   * calls can tell; a call has its tape_joint then */
  uint8_t mark;
  uint32_t index; /* among the nodes of the sweep, latest first (capture.c) */
  bool hooked;    /* a result has, or had, a hook */
  bool version;   /* result 0 is a former value of a param: its uses are uses of the param */
  bool hollow;    /* a call to whose results no gradient comes: only sizes of inputs are there */
  Modes modes;    /* modes at its making, in which its backward runs (rule 87) */
  TapeNode *next; /* list of nodes to release */
};

/* ---- op_vjp.c: the gradient of one operation. Its inputs are those of the operation, then the
 * cotangents of the results that have one, then the sums so far, then the node's own results. Kept
 * by the session. */
typedef struct GradAsk {
  bool *wants; /* per operand */
  bool *has;   /* per result: it has a cotangent */
  /* of a recorded gradient, else NULL: */
  uint32_t *first; /* per operand: the first one that is the same value */
  bool *so_far;    /* per operand: there is a sum already, to which its gradients are added */
} GradAsk;
typedef struct OpGrad {
  int64_t rc;
  Session *s;
  Arena arena;
  const char *key;
  size_t key_len;
  Graph *g;              /* NULL: all wanted gradients are zero by structure */
  int *output;           /* per operand: which output is its gradient, -1 = none */
  uint32_t self;         /* recorded: the operation in g */
  struct Native *native; /* code of g */
} OpGrad;
/* The result stays until the next call. */
OpGrad *op_grad(Session *s, Arena *temp, const TapeNode *n, const GradAsk *ask);
void op_grads_free(Session *s);

/* ---- record_grad.c: gradients on the tape. False with `e` and its place. */
uint64_t tape_places(const Graph *f); /* how many sequence numbers a body takes that is opened */
/* Opens n if it is a call: records the operations of its body on the tape, to which n passes
 * gradients on. Does nothing for other nodes. */
bool tape_open(Session *s, Arena *temp, TapeNode *n, GErr *e, Prov *at);
/* `cot`: cotangents of the results. Adds the gradients by operands to *slot[i] (unit: no sum yet;
 * NULL: not wanted). */
bool tape_gradient(Session *s, Arena *temp, TapeNode *n, const Value *cot, Value *const *slot,
                   GErr *e, Prov *at);

/* Whether n's backward starts with the sum so far of input i (JointRef.carries). If several inputs
 * have one origin, the last one does. */
bool tape_carries(const TapeNode *n, size_t i, const bool *wants);
/* Replaces a result of an opened call by the result of the node that computed it. */
void tape_straight(TapeNode **node, uint32_t *out);
/* Releases n's tensors. n is consumed, but keeps its description. */
void tape_strip(TapeNode *n);
/* Releases all parts of n. */
void tape_empty(Session *s, TapeNode *n);
void tape_release(Session *s, TapeNode *n);
/* Makes v, the present value of p, a version of p: its uses are uses of p, also after p is
 * written. */
void tape_version(Session *s, Param *p, Value v, Span at);
/* v, or the param of which it is a version. */
Value tape_itself(Value v);
/* Copies to n, a recorded call, the values that its callbacks concern. */
void tape_refs(Session *s, TapeNode *n, size_t count, const Value *refs);
/* Records a call: `in` are the leaves, `out` the tensor results of the graph; takes over `saved`
 * references. */
void tape_record_call(Session *s, JointRef *j, size_t n, const Value *in, Tensor *const *inputs,
                      size_t nout, Value *out, Tensor **saved, const int64_t *env, size_t env_count,
                      Span at);
/* Whether the tape node of a call with `nout` results keeps the tensor of its input i. */
bool tape_keeps_input(const JointRef *j, size_t nout, size_t i);
/* A call is recorded with `saved` NULL, and its inputs alone, if its gradient is unlikely to be
 * taken. tape_need runs its forward again for the values that the backward reads. Throws. */
void tape_need(Session *s, TapeNode *n);
/* The joint graph of a call that is not opened and got a cotangent: the call itself or tape_need
 * has made it. Other calls may have none. */
const Joint *tape_joint(const TapeNode *n);

#endif
