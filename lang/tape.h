/* The tape: what script did to tracked values, for `grad` at the top level (rules 72 to 77).
 *
 * A node is one operation or one call of compiled code. It holds where its inputs came from, what
 * its gradient needs, and a sequence number. Nodes are counted; releasing them is a loop.
 */
#ifndef CKL_LANG_TAPE_H
#define CKL_LANG_TAPE_H

#include "autograd/autograd.h"
#include "lang/lang.h"

/* A joint graph that several tape nodes and the compile cache share; it lives in its own arena. */
typedef struct JointRef {
  int64_t rc;
  Session *s;
  Arena arena;
  Graph *f;        /* what was differentiated: inputs -> outputs */
  Joint *joint;
  DimTab *dims;
  Span call;         /* that was compiled */
  Span eval_dropout; /* see compile.h */
  struct Native *forward, *backward; /* code of the two halves */
} JointRef;
JointRef *joint_new(Session *s); /* empty, on the pool */
void joint_release(JointRef *j);
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

struct TapeNode {
  int64_t rc;
  uint64_t seq;
  Span span;
  size_t in_count, out_count, saved_count;
  Edge *in;
  Tensor **inputs;   /* kept: the gradient of a gradient needs them (NULL: only the type matters) */
  Tensor **saved;    /* a call: what its joint graph saved */
  TapeMeta *out;     /* of results */
  OpCode op;         /* one operation: */
  Attr *attrs;
  size_t attr_count;
  JointRef *joint;   /* a call; NULL for one operation */
  int64_t *env;      /* sizes */
  size_t env_count;
  /* while a grad runs */
  Value *cot;        /* cotangent per result; unit = none yet */
  uint8_t mark;
  uint32_t dead;     /* references of values that nothing reads again */
  bool taken;        /* a grad used it up: it holds nothing any more (rule 76) */
  bool anomaly;      /* made inside wrap <anomaly>: so is its backward (rule 87) */
  TapeNode *next;    /* list of nodes to release */
};

/* ---- opgrad.c: the gradient of one operation. Its inputs are those of the operation, then the
 * cotangents of the results that have one. Kept by the session. */
typedef struct OpGrad {
  int64_t rc;
  Session *s;
  Arena arena;
  const char *key;
  size_t key_len;
  Graph *g;        /* NULL: all wanted gradients are zero by structure */
  int *output;     /* per input: which output is its gradient, -1 = none */
  struct Native *native; /* code of g */
  JointRef *joint; /* instead of g, where the gradient itself is recorded */
} OpGrad;
/* `tracked`: of a recorded gradient, which of its inputs are on the tape; else NULL. The result
 * stays until the next call. */
OpGrad *op_grad(Session *s, Arena *temp, const TapeNode *n, const bool *wants, const bool *has,
                const bool *tracked);
void op_grads_free(Session *s);
/* Makes j->joint of j->f, the gradients of n as wanted, with zeros for those that are not there. */
void joint_of_gradient(JointRef *j, const TapeNode *n, const bool *wants, const bool *tracked);

void tape_release(Session *s, TapeNode *n);
/* Records an operation on v (n operands) whose results are out (nout). */
void tape_record(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                 int nout, Value *out, Span at);
/* Records a call: `in` are the leaves, `out` the tensor results of the graph; takes over `saved`
 * references. */
void tape_record_call(Session *s, JointRef *j, size_t n, const Value *in, Tensor *const *inputs,
                      size_t nout, Value *out, Tensor **saved, const int64_t *env, size_t env_count,
                      Span at);

#endif
