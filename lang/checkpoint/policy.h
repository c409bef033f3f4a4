/* Policies of checkpoint blocks, and blocks that are open while code is staged (rules 80 to 86). */
#ifndef CKL_LANG_CHECKPOINT_POLICY_H
#define CKL_LANG_CHECKPOINT_POLICY_H

#include "lang/compile/compile.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/names/clauses.h"

/* Op classes of policies; a value may belong to two (a product inside of attention). */
typedef enum OpKind {
#define OPCLASS(NAME, ...) KIND_##NAME = 1 << OPCLASS_##NAME,
#include "lang/names/clauses.def"
} OpKind;

/* The tag that a policy gives to one op class or name. */
typedef struct Rule {
  Tag tag;
  int rank;      /* 0 all, 1 a class, 2 a name */
  OpKind kind;   /* of a class */
  Words path;    /* of a name */
  Span at;       /* the word */
  bool met, own; /* own: written at the block itself, or a name */
} Rule;

typedef struct Policy {
  Rule *rules;
  size_t count, cap;
  Value fn;
  size_t extra_count;
  Value *extra; /* rule 84; unit = none */
  Span fn_at;   /* file 0: none */
  struct Said {
    Span at; /* file 0: the word is absent */
    int64_t n;
  } said[POLICY_COUNT];   /* of options: words that stand once */
  bool keeps, recomputes; /* a clause names values to keep, to compute again */
  bool layer;             /* given by checkpoint_layers */
  /* bytes that backward keeps of the blocks so far; whether one of them saves memory */
  int64_t with, without;
  bool saves;
  bool unknown; /* of `check`: a block so far has a value that is not known */
  Name text;
} Policy;

static inline bool policy_says(const Policy *p, PolicyWord w) {
  return p->said[w].at.file != 0;
}

/* Evaluates clauses in the present frame. Throws after filing errors in them. */
void policy_read(Session *s, const NodeList *clauses, bool loop, Policy *out);
/* Like policy_read, for a policy that is a value: an argument or field of instances. */
void policy_of_value(Session *s, Value policy, Span at, Policy *out);

/* A block while its body is staged; on the C stack. */
typedef struct Hit {
  const Graph *g;
  uint32_t node;
  size_t rule;
} Hit;
typedef struct Stretch {
  const Graph *g;
  uint32_t lo, hi;
} Stretch;
typedef struct OpenBlock {
  struct OpenBlock *up; /* of its stage */
  Stage *stage;
  Frame *frame;
  uint32_t id, outside; /* region of the nodes before it */
  uint32_t start;       /* first node */
  Span span;
  Policy *policy;
  Hit *hits;
  size_t hit_count, hit_cap;
  Stretch *attention;
  size_t attention_count, attention_cap;
  size_t written; /* writes to params and buffers so far */
} OpenBlock;

void block_enter(Session *s, OpenBlock *b, Policy *p, Span at);
/* Gives the nodes of the block their tags. Throws if the policy does not fit them. `last`: no other
 * block has the policy, so all values that it names are staged by now. */
void block_leave(Session *s, OpenBlock *b, bool last);
/* A value of the graph got the name of a `let` (and of an item in it). */
void block_named(Session *s, Name name, const Name *item, size_t items, Value v);
/* An expression has a value that `check` does not know: operations on it leave no nodes. */
void block_unknown(Session *s);
/* Marks the nodes made since `from` as a call of the library's attention. */
void block_attention(Session *s, uint32_t from);

Value checkpoint_eval(Session *s, Node *e); /* blocks.c */
/* blocks.c: iterations of a loop of code as blocks; NULL: there is nothing to do. `end`: no
 * iteration follows. */
struct Iterations *iterations_start(Session *s, Node *loop, int64_t count);
void iterations_before(struct Iterations *t, int64_t i);
void iterations_after(struct Iterations *t, int64_t i, bool end);
/* blocks.c: of how many iterations of a loop that stays one, or of each so-many-th (*every), the
 * state is kept; 0: that is not said. Throws if other clauses stand beside it. */
int64_t iterations_keep(Session *s, Node *loop, bool *every);
_Noreturn void iterations_refuse(Session *s, const Node *loop, bool every, const char *why);
/* Loops of script: runs one iteration; runs all of them, false if each is a call by itself. */
void checkpoint_iteration(Session *s, Node *loop, Flow *flow);
bool checkpoint_loop(Session *s, Node *loop, Flow *flow);
/* The function that stands for a block of script: whether f or fn is one; the value of its body, in
 * a frame of its own. */
bool capsule_is_fn(const FnObj *f);
bool capsule_is_node(const Node *fn);
Value capsule_body(Session *s, const FnObj *f);
/* Called when code takes a gradient of `loss`. If the code is a block or a comprehension of
 * script and the loss depends on a value with a tape, the gradient has to go on there, which a call
 * cannot do (rule 80). */
void block_grad(Session *s, Value loss, Span at);
/* Runs such a block like the script around it. */
Value block_as_script(Session *s, FnObj *f, const Args *a);

/* A policy as a value: a declared one with its arguments. */
typedef struct PolicyObj {
  Obj o;
  Node *decl; /* N_POLICY_DECL */
  Module *module;
  size_t count;
  Value *args;
} PolicyObj;
Value policy_value(Session *s, Node *decl, Module *m, size_t n, const Value *args);

#endif
