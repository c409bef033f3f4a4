/* The tape: what script did to tracked values, for `grad` at the top level (rules 72 to 77).
 *
 * A node is one operation or one call of compiled code. It holds where its inputs came from, what
 * its gradient needs, and a sequence number. Nodes are counted; releasing them is a loop.
 */
#ifndef CKL_LANG_TAPE_TAPE_H
#define CKL_LANG_TAPE_TAPE_H

#include "autograd/autograd.h"
#include "lang/lang.h"
#include "lang/compile/report.h"

/* A joint graph that several tape nodes and the compile cache share; it lives in its own arena. */
typedef struct JointRef {
  int64_t rc;
  Session *s;
  Arena arena;
  Graph *f;              /* what was differentiated: inputs -> outputs */
  struct Compiled *code; /* retained: f has its sizes and names. NULL: they are its own */
  Joint *joint;          /* NULL: not made yet, see tape_need */
  struct Hosts *hosts;   /* callback.h; NULL: none */
  bool *cot, *wants;     /* what the joint graph is made for */
  const bool *reads;     /* per input of f: a gradient may read it, of any order; NULL: all */
  /* per input of f, NULL = none: the backward takes the gradient that later uses gave the input and
   * goes on adding to it, as the body would that stands in place of the call (rule 80) */
  bool *carries, capsule;
  int64_t *env;         /* sizes that the joint graph is chosen for; NULL: for all, as written */
  const int64_t *dense; /* bytes of dense copies of inputs, at the call for which it is made */
  Choice choice;        /* of its blocks */
  Planned *made;        /* by that choice: `joint` is in it, and what its code is of; NULL: none */
  bool asked;           /* a gradient was taken through it once: calls save for the next */
  Span call;            /* that was compiled */
  Span eval_dropout;    /* see compile.h */
  bool calls;           /* f calls the program, so its forward runs once */
  const Graph *again;   /* the forward half with what it saves alone, see tape_need */
  struct Native *forward, *backward, *again_code; /* code of the three */
  bool whole; /* f is one operation with regions, which record_grad.c takes as it is */
  /* The same for fewer results, by those that a gradient came to: one without a cotangent takes
   * no part, as in code. `less` is owned, `usual` one of them. All live while one of them is held,
   * as a later gradient may come to more results: `rc` of the one that they belong to counts for
   * all. */
  struct JointRef *of, *less, *next, *usual;
} JointRef;
JointRef *joint_new(Session *s);          /* empty, on the pool */
JointRef *joint_retain(JointRef *j);      /* gives j */
void joint_release(JointRef *j);          /* NULL is fine */
void compiled_retain(struct Compiled *c); /* call_cache.c; NULL is fine in both */
void compiled_release(struct Compiled *c);
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
  Tensor **inputs; /* kept: the gradient of a gradient needs them (NULL: only the type matters) */
  Tensor **saved;  /* a call: what its joint graph saved */
  TapeMeta *out;   /* of results */
  OpCode op;       /* one operation: */
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
  bool taken;     /* a grad used it up: it holds nothing any more (rule 76) */
  bool opened;    /* a call whose body is on the tape: operand k is result k */
  bool hooked;    /* a result has, or had, a hook */
  bool version;   /* result 0 is what a param had: its uses are uses of the param */
  Modes modes;    /* it was made in: so its backward runs (rule 87) */
  bool bare;      /* saved nothing yet: see tape_need */
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
/* Records an operation on v (n operands) whose results are out (nout). */
void tape_record(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                 int nout, Value *out, Span at);
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
void joint_make(Session *s, JointRef *j, Span at); /* j->joint, where it is missing */
/* The joint graph of a call to which a cotangent came and which is not opened: tape_need, or the
 * call itself, has made it. Of other calls there may be none. */
const Joint *tape_joint(const TapeNode *n);

#endif
