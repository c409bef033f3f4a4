/* A call with a gradient: the two halves of its joint graph, shared by the compile cache and the
 * tape nodes of all such calls. joint_ref.c alone writes its fields.
 *
 * The kind, which says what is differentiated, does not change:
 *
 *   kind           f is                          when a gradient is recorded
 *   JOINT_CALL     a compiled function           the body goes on the tape; its uses of an input
 *                                                are summed before they leave the call
 *   JOINT_BLOCK    a `checkpoint` of script      the body goes on the tape; uses count as if it
 *                                                stood in place of the call (see `carries`)
 *   JOINT_REGION   one operation with regions    it stays one node
 *
 * `has_callbacks` does not depend on the kind: a call and a block may have some or none.
 *
 * The state, which says what is made, changes in one direction:
 *
 *   JOINT_DEFERRED --(a gradient comes: joint_resave)--------------+
 *     calls keep their inputs alone                                v
 *                                                             JOINT_MADE
 *   JOINT_EAGER ----(the next call, or joint_resave)-------------->+   calls run `forward` and save
 *     the next call is to save                                         for `backward`
 *
 * A function that takes gradients itself starts as JOINT_DEFERRED, as a gradient of its result is
 * unlikely; all others start as JOINT_EAGER. Each state may have `resave`, which is made for calls
 * that were recorded before there was a forward half, or for other results.
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

/* The description of a joint graph. */
typedef struct JointSpec {
  JointKind kind;
  bool deferred;         /* the gradient is unlikely to be taken */
  const Graph *f;        /* the graph that is differentiated: inputs -> outputs */
  struct Compiled *code; /* the call to which the sizes and names of f belong */
  struct Hosts *hosts;   /* callback.h; NULL: none that a run of f, or of its gradient, calls */
  const bool *cot;       /* per output of f: it has a cotangent */
  const bool *wants;     /* per input of f: its gradient is wanted */
  const int *written;    /* per input of f: see JointWant */
  const bool *reads;     /* per input of f: a gradient of any order may read it; NULL: all */
  const int64_t *env;    /* sizes for which blocks are chosen; NULL: as written, for all sizes */
  Span call;             /* the call that was compiled */
  Span eval_dropout;     /* see Compiled */
} JointSpec;

typedef struct JointRef {
  int64_t rc;
  Session *s;
  Arena arena;
  JointSpec spec; /* its arrays are copies on the arena; it holds references */
  JointState state;
  bool has_callbacks; /* f calls the program, so its forward runs once, and saves */
  Joint *joint;       /* JOINT_MADE */
  /* per input of f, NULL = none: the backward takes the gradient that later uses gave the input and
   * goes on adding to it, as if the body stood in place of the call (rule 80) */
  const bool *carries;
  Choice choice;       /* of its blocks */
  Planned *planned;    /* the plan of that choice; the code is that of its graphs; NULL: none */
  const Graph *resave; /* the forward half with only saved values as outputs; NULL: not made yet */
  struct Native *forward, *backward, *resave_code; /* code of the three */
  /* Variants for fewer results: those with a cotangent. Others take no part, as in code. The
   * parent, which was first made for all results, owns the variants. All live while one of them is
   * held, as a later gradient may have more results: `rc` of the parent counts for all. */
  struct JointRef *parent;   /* NULL: it is a parent */
  struct JointRef *variants; /* of a parent; a list by `sibling` */
  struct JointRef *sibling;
  struct JointRef *current; /* of a parent: the variant that the last gradient took; NULL: itself */
} JointRef;

JointRef *joint_new(Session *s, const JointSpec *spec); /* copies spec: not made yet; on the pool */
JointRef *joint_retain(JointRef *j);                    /* returns j */
void joint_release(JointRef *j);                        /* NULL is fine */
/* The variant for the results `has`, a part of those of j's parent. It becomes the parent's
 * `current`. */
JointRef *joint_of_results(JointRef *j, const bool *has);
static inline const JointRef *joint_parent(const JointRef *j) {
  return j->parent ? j->parent : j;
}
/* Whether a call is to save for its backward. */
static inline bool joint_saves(const JointRef *j) {
  return j->state != JOINT_DEFERRED;
}

/* Makes the two halves if they are missing. `memory`: of the inputs of f in the call for which
 * blocks are chosen; NULL: it is not known. Throws. */
void joint_make(Session *s, JointRef *j, const InputMemory *memory, Span at);
/* The same when no gradient is asked for yet. False: they cannot be made, and the call saves
 * nothing. */
bool joint_make_early(Session *s, JointRef *j, const InputMemory *memory, Span at);
/* Like joint_make, for halves that run once: they are not simplified, and an error goes to the
 * caller. */
bool joint_make_once(JointRef *j, GErr *e, Prov *at);
/* The joint graph of j before it is split, made again. NULL: there is none. */
const JointWhole *joint_whole(const JointRef *j, Arena *a);
/* Runs the forward again from the inputs of a call and returns the joint->saved_count values that
 * it saves. Makes the halves first. Throws. */
Tensor **joint_resave(Session *s, JointRef *j, const int64_t *env, Tensor *const *inputs, Span at);

#endif
