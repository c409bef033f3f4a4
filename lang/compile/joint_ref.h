/* A call with a gradient: the two halves of its joint graph, shared by the tape nodes of all calls
 * alike and by the compile cache. joint_ref.c alone writes its fields.
 *
 * What it is the gradient of does not change:
 *
 *   kind           f is                          when a gradient is recorded
 *   JOINT_CALL     a compiled function           the body goes on the tape; its uses of an input
 *                                                are summed before they leave the call
 *   JOINT_BLOCK    a `checkpoint` of script      the body goes on the tape; uses count as if it
 *                                                stood in place of the call (see `carries`)
 *   JOINT_REGION   one operation with regions    it stays one node
 *
 * `has_callbacks` is beside the kind, as a call and a block may have some or none.
 *
 * What is there of it changes, in one direction:
 *
 *   JOINT_DEFERRED --(a gradient comes: joint_resave)--------------+
 *     calls keep their inputs alone                                v
 *                                                             JOINT_MADE
 *   JOINT_EAGER ----(the next call, or joint_resave)-------------->+   calls run `forward` and save
 *     the next call is to save                                         for `backward`
 *
 * A function that takes gradients itself starts as JOINT_DEFERRED, as hardly anybody takes one of
 * its result; all others start as JOINT_EAGER. Nothing of the three excludes `resave`, which is
 * made for calls that were recorded before there was a forward half, or for other results.
 */
#ifndef CKL_LANG_COMPILE_JOINT_REF_H
#define CKL_LANG_COMPILE_JOINT_REF_H

#include "autograd/autograd.h"
#include "lang/checkpoint/choice.h"
#include "lang/lang.h"

struct Compiled;
struct Hosts;
struct Native;

typedef enum JointKind { JOINT_CALL, JOINT_BLOCK, JOINT_REGION } JointKind;
typedef enum JointState { JOINT_DEFERRED, JOINT_EAGER, JOINT_MADE } JointState;

/* What a joint graph is for. */
typedef struct JointSpec {
  JointKind kind;
  bool deferred;         /* nobody is likely to take the gradient */
  const Graph *f;        /* what is differentiated: inputs -> outputs */
  struct Compiled *code; /* f has its sizes and names */
  struct Hosts *hosts;   /* callback.h; NULL: none that a run of f, or of its gradient, calls */
  const bool *cot;       /* per output of f: it has a cotangent */
  const bool *wants;     /* per input of f: its gradient is wanted */
  const bool *reads;     /* per input of f: a gradient may read it, of any order; NULL: all */
  const int64_t *env;    /* sizes that blocks are chosen for; NULL: for all, as written */
  Span call;             /* that was compiled */
  Span eval_dropout;     /* see Compiled */
} JointSpec;

typedef struct JointRef {
  int64_t rc;
  Session *s;
  Arena arena;
  JointSpec spec; /* copies, on the arena, and references */
  JointState state;
  bool has_callbacks; /* f calls the program, so its forward runs once, and saves */
  Joint *joint;       /* JOINT_MADE */
  /* per input of f, NULL = none: the backward takes the gradient that later uses gave the input and
   * goes on adding to it, as the body would that stands in place of the call (rule 80) */
  const bool *carries;
  Choice choice;       /* of its blocks */
  Planned *planned;    /* for that choice, and what its code is of; NULL: nothing was */
  const Graph *resave; /* the forward half, for what it saves alone; NULL: not made yet */
  struct Native *forward, *backward, *resave_code; /* code of the three */
  /* The same for fewer results, by those that a gradient came to: one without a cotangent takes no
   * part, as in code. The parent, which was first made for all, owns the others. All live while one
   * of them is held, as a later gradient may come to more results: `rc` of the parent counts for
   * all. */
  struct JointRef *parent;   /* NULL: it is one */
  struct JointRef *variants; /* of a parent; a list by `sibling` */
  struct JointRef *sibling;
  struct JointRef *current; /* of a parent: the variant that the last gradient took; NULL: itself */
} JointRef;

JointRef *joint_new(Session *s, const JointSpec *spec); /* copies it: not made yet; on the pool */
JointRef *joint_retain(JointRef *j);                    /* gives j */
void joint_release(JointRef *j);                        /* NULL is fine */
/* The one for the results `has`, of those that j's parent is for; the parent's `current` from now
 * on. */
JointRef *joint_of_results(JointRef *j, const bool *has);
static inline const JointRef *joint_parent(const JointRef *j) {
  return j->parent ? j->parent : j;
}
/* Whether a call is to save for its backward. */
static inline bool joint_saves(const JointRef *j) {
  return j->state != JOINT_DEFERRED;
}

/* Makes the two halves, where they are missing. `dense`: per input of f, bytes of its dense copy at
 * the call for which blocks are chosen; NULL: there are none. Throws. */
void joint_make(Session *s, JointRef *j, const int64_t *dense, Span at);
/* The same of what runs once: the halves are not simplified, and whoever called has the error. */
bool joint_make_once(JointRef *j, GErr *e, Prov *at);
/* Runs the forward again for what it saves, whose number is joint->saved_count, from the inputs of
 * a call. The halves are there after this. Throws. */
Tensor **joint_resave(Session *s, JointRef *j, const int64_t *env, Tensor *const *inputs, Span at);

#endif
