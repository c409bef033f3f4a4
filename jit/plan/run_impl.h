/* What the files that run plans share: launches, the memory of a run, loops. */
#ifndef CKL_JIT_PLAN_RUN_IMPL_H
#define CKL_JIT_PLAN_RUN_IMPL_H

#include "jit/lower/lower_turns.h"
#include "jit/plan/plan.h"

/* ---- run_kernel.c */
/* Runs the launch of a step on the addresses in f->root. False with `e`: it was interrupted, there
 * is no memory, or an address is outside of its buffer. `last`: it runs to its end, and is walked
 * in f->room. Notes the time, if that is wanted. */
bool launch_run(JitFn *f, const Bound *b, const Step *s, KStatus *st, const Interrupt *interrupt,
                bool last, GErr *e, Prov *at);
/* Adds to the profile of a step. */
void step_note(JitFn *f, const Bound *b, const Step *s, double seconds);
double jit_now(void); /* seconds, of a clock that does not jump */

enum { JIT_POISON = 0xff }; /* NaN in every dtype of floats, and no index: what nobody may read */

/* ---- exec.c: the memory of a run */
void jit_level(Jit *j, size_t depth); /* makes room for a block at this depth; throws */
/* The block of the run at j->depth; NULL: out of memory. */
void *jit_block(Jit *j, int64_t bytes);

/* ---- peak.c */
void peak_prepare(JitFn *f); /* finds what is held in one memory; its regions are there */

/* ---- run_turns.c */
bool turns_as_kernel(const JitFn *f, const Step *s); /* whether all turns of this step are one */
/* Whether the turns of this step, if they are not one kernel, are lists of launches. */
bool turns_as_list(const JitFn *f, const Step *s);
int64_t turns_local(const Kernel *k); /* workspace of a kernel that is all turns, of a thread */
/* Runs a step that is a loop. 1, with new references in `out`; 0: the evaluator must; -1 with `e`,
 * and in *at the place of what is wrong, if it is not the loop itself. */
int turns_run(JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
              Prov *at);

/* Runs turns of such a loop again, from number `first` on: see KeptBody.turns. */
int turns_again(JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, int64_t first, int64_t n,
                bool rows, Tensor **out, GErr *e, Prov *at);

typedef struct Turns {
  JitFn *f; /* that has the loop */
  RunCtx *c;
  const Graph *body;
  const Kernel *k; /* all turns are one kernel; NULL: each is the list of `list` */
  KernelFn code;
  JitFn *fn; /* the body, for a list */
  struct List *list;
  int carry, rows, inputs, gives;
  /* Outputs from `carry` to kept - 1 are rows that are kept. Those from `again` on are made again
   * when they are read, and kept now if `made`. There is room for one turn's of all others. */
  int kept, again;
  bool made, reverse, goes_on;
  bool apart,
      behind;     /* carried values at entry: they are nobody else's; they are of a part before */
  bool ends;      /* it was the last part of a `while` */
  int64_t count;  /* the most turns */
  int64_t room;   /* turns for which there are rows to keep */
  int64_t ran;    /* so far */
  uint64_t nodes; /* that they ran, as gr_run would count them */
  Tensor *const *in; /* of the node, or of its body */
  Tensor **own;      /* refs: dense inputs (NULL: rows that are tensors of their own); what the body
                   gives (NULL: nobody wants it); for a kernel, memory for that; for a list a second
                   tensor for each carried value */
  Tensor **spare;    /* per output, may be NULL: memory for it */
  int64_t *low;      /* per input and output: the turn of the first of its rows */
  void **buf;
  int64_t *arg; /* followed by the bytes of the buffers, for tested addresses */
} Turns;

/* Whether only the last turn's rows of an output are there, which nobody wants. */
bool turns_drop(const Turns *t, int output);
/* Whether an input has rows that are made again: only those of a part are there. */
bool turns_replay(const Turns *t, int input);

/* ---- run_list.c */
/* Whether turns of a loop with this body can be a list: all of its steps are kernels. Asked once,
 * when its own regions are there, for JitFn.listed. */
bool list_fits(const JitFn *body);
/* The memory of the rows of an output: that of output `like` (its own number: none else has it), a
 * row for each turn if `all`, and `more` rows. */
typedef struct Shared {
  int like;
  bool all;
  int more;
  bool looks; /* it is a view of a part */
} Shared;
/* Tells that of each output from `carry` to kept - 1, if turns are a list, or run one by one.
 * False: it is not known. */
bool list_shares(Arena *temp, const JitFn *body, int carry, int kept, int rows, bool reverse,
                 Shared *to);
/* Begins, with room for the rows of `count` turns; the inputs are in t->own. 0: the evaluator has
 * to take the loop, -1: no memory. */
int list_open(Turns *t, JitFn *body, int64_t count);
/* Makes room for the rows of `count` turns, of which `done` are there. False when out of memory. */
bool list_rows(Turns *t, int64_t count, int64_t done);
/* Runs at most `n` turns, the first of which has number `first`; *done of them. False with `e`, or
 * with st->failed. */
bool list_part(Turns *t, int64_t n, int64_t first, int64_t *done, KStatus *st, GErr *e, Prov *at);
/* Moves what is carried to the tensors that the loop gives: before rows move, and at the end. */
void list_settle(Turns *t);
/* The result that turns make; NULL: out of memory. `n`: how many rows it has. */
Tensor *turns_tensor(const Turns *t, int output, int64_t n);
Tensor *turns_output(Turns *t, int output, int64_t n); /* the same, from t->spare if it is there */

#endif
