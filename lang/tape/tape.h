/* The tape: what script did to tracked values, for `grad` at the top level (rules 72 to 77).
 *
 * A node is one operation or one call of compiled code. It holds where its inputs came from, what
 * its gradient needs, and a sequence number. Nodes are counted; releasing them is a loop.
 */
#ifndef CKL_LANG_TAPE_TAPE_H
#define CKL_LANG_TAPE_TAPE_H

#include "autograd/autograd.h"
#include "lang/compile/joint_ref.h"
#include "lang/lang.h"

void warn_eval_dropout(Session *s, Span at);

/* Where an input came from: the result of a node, a param (leaf), or nothing that is tracked. */
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

/* What a node has for its backward. One operation is TAPE_READY until it is consumed; a call goes
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
 * and each of them becomes TAPE_CONSUMED by tape_strip or tape_use_up. `hooked` and `version` are
 * beside the state: they hold in each of them. */
typedef enum TapeState {
  TAPE_READY,   /* inputs, and of a call what its joint graph saved */
  TAPE_UNSAVED, /* a call: its inputs alone */
  TAPE_OPENED,  /* a call whose body is on the tape: operand k is result k */
  TAPE_CONSUMED /* nothing: a `grad` used it up (rule 76) */
} TapeState;

struct TapeNode {
  int64_t rc;
  uint64_t seq;
  Span span;
  size_t in_count, out_count, saved_count;
  Edge *in;
  Tensor **inputs; /* kept: the gradient of a gradient needs them (NULL: only the type matters) */
  Tensor **saved;  /* a call: what its joint graph saved */
  TapeMeta *out;   /* of results */
  TapeState state;
  uint16_t op; /* one operation: its OpCode */
  Attr *attrs;
  size_t attr_count;
  JointRef *joint; /* a call; NULL for one operation */
  Value *refs;     /* of a call: what its hosts are about (callback.h) */
  size_t ref_count;
  int64_t *env; /* sizes */
  size_t env_count;
  uint32_t slot; /* place in the innermost sweep that has it, from 1; 0 = none runs */
  /* while a sweep is captured: 2 = leads to a wanted value, and a cotangent comes to it, as far as
   * calls can tell: of a call tape_joint is there */
  uint8_t mark;
  uint32_t index; /* of those that the sweep is about, latest first (capture.c) */
  bool hooked;    /* a result has, or had, a hook */
  bool version;   /* result 0 is what a param had: its uses are uses of the param */
  Modes modes;    /* it was made in: so its backward runs (rule 87) */
  TapeNode *next; /* list of nodes to release */
};

/* ---- op_vjp.c: the gradient of one operation. Its inputs are those of the operation, then the
 * cotangents of the results that have one, then the sums so far. Kept by the session. */
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
/* n, a call, becomes a node that passes on to the operations of its body, which are on the tape
 * from now on. Of other nodes nothing. */
bool tape_open(Session *s, Arena *temp, TapeNode *n, GErr *e, Prov *at);
/* `cot`: cotangents of the results. Adds the gradients by operands to *slot[i] (unit: no sum yet;
 * NULL: not wanted). */
bool tape_gradient(Session *s, Arena *temp, TapeNode *n, const Value *cot, Value *const *slot,
                   GErr *e, Prov *at);

/* Whether n's backward takes the sum so far of input i along, see JointRef.carries: of several
 * inputs from one place the last does. */
bool tape_carries(const TapeNode *n, size_t i, const bool *wants);
/* From a result of an opened call to what made it. */
void tape_straight(TapeNode **node, uint32_t *out);
/* Gives back n's tensors: it is used up, though it still says what it was. */
void tape_strip(TapeNode *n);
/* Gives back what n was made of. */
void tape_empty(Session *s, TapeNode *n);
void tape_release(Session *s, TapeNode *n);
/* Makes v, what p has now, a value whose uses are uses of p, whatever is written to p later. */
void tape_version(Session *s, Param *p, Value v, Span at);
/* v, or the param of which it is a version. */
Value tape_itself(Value v);
/* Copies to n, a recorded call, the values that its callbacks are about. */
void tape_refs(Session *s, TapeNode *n, size_t count, const Value *refs);
/* Records a call: `in` are the leaves, `out` the tensor results of the graph; takes over `saved`
 * references. */
void tape_record_call(Session *s, JointRef *j, size_t n, const Value *in, Tensor *const *inputs,
                      size_t nout, Value *out, Tensor **saved, const int64_t *env, size_t env_count,
                      Span at);
/* A call whose gradient nobody is likely to take is recorded with `saved` NULL: its inputs alone.
 * What its backward reads is there after this, made by running the forward again. Throws. */
void tape_need(Session *s, TapeNode *n);
/* The joint graph of a call to which a cotangent came and which is not opened: tape_need, or the
 * call itself, has made it. Of other calls there may be none. */
const Joint *tape_joint(const TapeNode *n);

#endif
