/* Rows of a loop that are made again when they are read: the loop keeps some states, what it
 * carries before some of its turns, and the turns run again from them (`checkpoint <binomial N>
 * for`). */
#ifndef CKL_GRAPH_REPLAY_H
#define CKL_GRAPH_REPLAY_H

#include "graph/run.h"

typedef struct Replay Replay;

/* Which states are kept beside the first one. One of the two is above 0.
 * `states`: so many, where a gradient that reads the rows from the last turn to the first runs the
 * fewest turns. With s = states + 1 and the least r with C(s + r, s) >= n, forward and gradient of
 * n turns run n + r n - C(s + r, r - 1) of them (Griewank and Walther, Algorithm 799, 2000, section
 * 2), as the last turn of the forward keeps its rows. If n is not known when the loop begins, the
 * states lie at multiples of a power of two, which doubles when there are too many.
 * `every`: that of each `every`-th turn. The rows of so many turns are alive at a time. */
typedef struct ReplayKeeps {
  int64_t states, every;
} ReplayKeeps;

/* ---- Algorithm 799, of s states and r repetitions */
/* How many turns they reach: C(s + r, s), or at least 2^62. */
int64_t replay_reach(int64_t s, int64_t r);
int64_t replay_repetitions(int64_t n, int64_t s); /* the fewest that reach n turns */
/* How many turns run again for the rows of n turns, read from the last to the first. */
int64_t replay_turns(int64_t n, ReplayKeeps keeps);
/* After how many of n > 1 turns the next state is kept: of the choices with the fewest turns the
 * nearest. */
int64_t replay_next(int64_t n, int64_t s, int64_t r);

/* A loop, as far as its turns need it. */
typedef struct ReplayLoop {
  KeptBody body;           /* is the replay's from now on, also where it is not made */
  int inputs;              /* of the body: the turn, `carry` values, captured ones */
  int carry, gives, first; /* outputs of the body; from `first` on they are rows to make again */
  Tensor *const *in;       /* per input; those of the turn and of carried values are not read */
  int64_t turns;           /* -1: not known yet */
  const int64_t *env;      /* values of `symbols` symbols: those of the loop's graph */
  size_t symbols;
  bool counter; /* `symbol` is the number of the turn plus `value` plus 1 */
  Sym symbol;
  int64_t value;
} ReplayLoop;

Replay *replay_new(Mem *m, const ReplayLoop *loop, ReplayKeeps keeps); /* NULL: out of memory */
/* That of a node of g, in a run, with the tensors that the node takes. */
Replay *replay_of(const Graph *g, uint32_t node, const RunCtx *c, Tensor *const *in);
void replay_ref(Replay *p);
void replay_unref(Replay *p);
/* Before turns of the forward, in order: what the turn takes, which is kept if it is due. False
 * when out of memory. */
bool replay_before(Replay *p, int64_t turn, Tensor *const *carry);
bool replay_due(Replay *p, int64_t turn); /* makes room for it */
/* How many turns run from this one on, of which replay_before has heard, until a state is due. */
int64_t replay_until(const Replay *p, int64_t turn);
/* After the last turn of the forward, with all that the body gave; NULL: there was none, or it was
 * not known to be the last. `turns`: how many there were. `packed`: with a first axis of size 1. */
bool replay_end(Replay *p, int64_t turns, Tensor *const *gave, bool packed);
/* The row of output first + k of a turn, borrowed until the next call. NULL with `e`. */
Tensor *replay_row(Replay *p, int64_t turn, int k, RunCtx *c, GErr *e, Prov *at);
/* The rows that there are when that of `turn` is: a new reference to a dense tensor with the turns
 * from *from on along its first axis. NULL with `e`. */
Tensor *replay_rows(Replay *p, int64_t turn, int k, int64_t *from, RunCtx *c, GErr *e, Prov *at);

#endif
