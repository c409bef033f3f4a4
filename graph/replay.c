/* Turns of a loop, run again from states that it kept.
 *
 * In: the body of a loop, what its turns read, and what it carries before each turn. Out: the rows
 * of any turn. The states are a stack in the order of their turns; the first one is that before
 * turn 0. A row is made from the last state at or before its turn: states behind that are given up,
 * as a gradient has read what they were for, and new ones are kept on the way to the turn, where
 * Algorithm 799 wants them. Who reads on from turn to turn instead, as the gradient of a gradient
 * does, gets a state that goes along.
 *
 * Invariant: what is kept holds references of its own; memory of an arena is copied. */
#include "graph/replay.h"

#include <string.h>

#include "graph/stash.h"

typedef struct State {
  int64_t turn; /* which it is before */
  Tensor **carry;
} State;

struct Replay {
  int64_t rc;
  Mem *mem;
  ReplayLoop loop;
  ReplayKeeps keeps;
  int64_t *env;
  Tensor **in, **now, **out; /* now: before turn `at`, not kept; `at` -1: there is none */
  Tensor **arg, *number;     /* of the body, borrowed; its turn */
  int64_t at;
  State *states;
  size_t count, cap;
  int64_t step, next; /* the forward: distance of states; the turn of the next one, or -1 */
  Tensor **rows;      /* of turns from .. from + turns - 1 */
  int64_t from, turns;
  size_t row_cap;
  int64_t asked;
};

enum { MOST = 1 << 30 }; /* states; nobody has so many turns that need more */

/* ---- memory */

static Tensor **tensors(Mem *m, int n) {
  Tensor **t = mem_try(m, NULL, 0, ((size_t)n + 1) * sizeof *t);
  if (t) memset(t, 0, ((size_t)n + 1) * sizeof *t);
  return t;
}

static void release(Mem *m, Tensor **t, int n) {
  for (int i = 0; t && i < n; i++) tn_unref(t[i]);
  mem_free(m, t, ((size_t)n + 1) * sizeof *t);
}

static void drop(Tensor **t, int n) {
  for (int i = 0; i < n; i++) {
    tn_unref(t[i]);
    t[i] = NULL;
  }
}

static bool hold(Replay *p, Tensor **to, Tensor *const *from, int n) {
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    to[i] = from[i] ? stash_hold(p->mem, from[i]) : NULL;
    ok = to[i] || !from[i];
  }
  return ok;
}

static int row_count(const Replay *p) {
  return p->loop.gives - p->loop.first;
}

static void drop_rows(Replay *p) {
  for (int64_t i = 0; i < p->turns * row_count(p); i++) tn_unref(p->rows[i]);
  p->turns = 0;
}

static void drop_now(Replay *p) {
  drop(p->now, p->loop.carry);
  p->at = -1;
}

static void drop_state(Replay *p) {
  release(p->mem, p->states[--p->count].carry, p->loop.carry);
}

void replay_ref(Replay *p) {
  p->rc++;
}

void replay_unref(Replay *p) {
  if (!p || --p->rc > 0) return;
  Mem *m = p->mem;
  drop_rows(p);
  while (p->count) drop_state(p);
  mem_free(m, p->rows, p->row_cap * sizeof *p->rows);
  mem_free(m, p->states, p->cap * sizeof *p->states);
  release(m, p->in, p->loop.inputs);
  mem_free(m, p->arg, ((size_t)p->loop.inputs + 1) * sizeof *p->arg);
  tn_unref(p->number);
  release(m, p->now, p->loop.carry);
  release(m, p->out, p->loop.gives);
  mem_free(m, p->env, (p->loop.symbols + 1) * sizeof *p->env);
  if (p->loop.body.drop) p->loop.body.drop(p->loop.body.ud);
  mem_free(m, p, sizeof *p);
}

/* Keeps a state behind the others. */
static bool keep(Replay *p, int64_t turn, Tensor *const *carry) {
  if (p->count == p->cap) {
    size_t cap = p->cap ? 2 * p->cap : 8;
    State *more = mem_try(p->mem, p->states, p->cap * sizeof *more, cap * sizeof *more);
    if (!more) return false;
    p->states = more;
    p->cap = cap;
  }
  State *s = &p->states[p->count];
  *s = (State){turn, tensors(p->mem, p->loop.carry)};
  if (!s->carry) return false;
  p->count++;
  if (hold(p, s->carry, carry, p->loop.carry)) return true;
  drop_state(p);
  return false;
}

/* ---- Algorithm 799 */

int64_t replay_reach(int64_t s, int64_t r) {
  double c = 1;
  for (int64_t i = 1; i <= r && c < 0x1p62; i++) c = c * ((double)s + (double)i) / (double)i;
  return c < 0x1p62 ? (int64_t)(c + 0.5) : INT64_MAX;
}

int64_t replay_repetitions(int64_t n, int64_t s) {
  int64_t r = 0;
  while (replay_reach(s, r) < n) r++;
  return r;
}

int64_t replay_turns(int64_t n, ReplayKeeps keeps) {
  if (n < 1) return 0;
  if (keeps.every) return n - 1;
  int64_t s = keeps.states < n ? keeps.states + 1 : n, r = replay_repetitions(n, s);
  return r ? r * n - replay_reach(s + 1, r - 1) : 0;
}

int64_t replay_next(int64_t n, int64_t s, int64_t r) {
  int64_t near = r > 1 ? replay_reach(s, r - 2) : 1, far = n - replay_reach(s - 1, r);
  int64_t q = near > far ? near : far;
  return q < 1 ? 1 : q < n ? q : n - 1;
}

/* The turn before which the next state is kept on the way from `turn` to the end of n turns; -1:
 * none. `states`: how many there are with that before `turn`. */
static int64_t plan(const Replay *p, int64_t turn, int64_t n, size_t states) {
  int64_t free = p->keeps.states + 1 - (int64_t)states;
  if (n <= 1 || free <= 0) return -1;
  return turn + replay_next(n, free + 1, replay_repetitions(n, free + 1));
}

/* ---- the forward */

Replay *replay_new(Mem *m, const ReplayLoop *loop, ReplayKeeps keeps) {
  Replay *p = mem_try(m, NULL, 0, sizeof *p);
  if (!p) {
    if (loop->body.drop) loop->body.drop(loop->body.ud);
    return NULL;
  }
  *p = (Replay){.rc = 1, .mem = m, .loop = *loop, .keeps = keeps, .at = -1, .step = 1, .next = -1};
  p->asked = -1;
  if (p->keeps.states > MOST) p->keeps.states = MOST;
  p->env = mem_try(m, NULL, 0, (loop->symbols + 1) * sizeof *p->env);
  p->in = tensors(m, loop->inputs);
  p->arg = tensors(m, loop->inputs);
  p->now = tensors(m, loop->carry);
  p->out = tensors(m, loop->gives);
  int first = 1 + loop->carry;
  if (p->env && p->in && p->arg && p->now && p->out &&
      hold(p, p->in + first, loop->in + first, loop->inputs - first)) {
    if (loop->symbols) memcpy(p->env, loop->env, loop->symbols * sizeof *p->env);
    p->loop.in = NULL;
    p->loop.env = NULL;
    return p;
  }
  replay_unref(p);
  return NULL;
}

/* Of the states at multiples of `step` leaves every second one. */
static void thin(Replay *p) {
  size_t left = 1;
  p->step *= 2;
  for (size_t i = 1; i < p->count; i++) {
    State s = p->states[i];
    if (s.turn % p->step)
      release(p->mem, s.carry, p->loop.carry);
    else
      p->states[left++] = s;
  }
  p->count = left;
}

bool replay_before(Replay *p, int64_t turn, Tensor *const *carry) {
  bool known = p->loop.turns >= 0, wanted = turn == 0 || turn == p->next;
  if (p->keeps.every) wanted = turn % p->keeps.every == 0;
  if (!p->keeps.every && !known && turn > 0) {
    if (turn % p->step == 0 && p->count == (size_t)p->keeps.states + 1) thin(p);
    wanted = turn % p->step == 0;
  }
  if (!wanted) return true;
  if (!keep(p, turn, carry)) return false;
  if (known && !p->keeps.every) p->next = plan(p, turn, p->loop.turns - turn, p->count);
  return true;
}

/* Appends the rows of a turn to those that are there. */
static bool add_rows(Replay *p, int64_t turn, Tensor *const *gave) {
  int n = row_count(p);
  size_t need = (size_t)((p->turns + 1) * n);
  if (need > p->row_cap) {
    Tensor **more = mem_try(p->mem, p->rows, p->row_cap * sizeof *more, need * sizeof *more);
    if (!more) return false;
    p->rows = more;
    p->row_cap = need;
  }
  if (!p->turns) p->from = turn;
  Tensor **to = &p->rows[p->turns * n];
  memset(to, 0, (size_t)n * sizeof(Tensor *));
  if (!hold(p, to, gave + p->loop.first, n)) {
    drop(to, n);
    return false;
  }
  p->turns++;
  return true;
}

bool replay_end(Replay *p, int64_t turns, Tensor *const *gave) {
  p->loop.turns = turns;
  return !gave || !turns || add_rows(p, turns - 1, gave);
}

/* ---- rows */

static bool no_memory(GErr *e) {
  return gerr_set(e, ERR_NOMEM, -1, "out of memory");
}

/* Runs turn `at`, after which p->now is before the next one. */
static bool run_turn(Replay *p, bool rows, RunCtx *c, GErr *e, Prov *at) {
  const ReplayLoop *l = &p->loop;
  RunCtx own = *c;
  if (interrupt_asked(c->interrupt)) return gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
  own.env = p->env;
  own.body = NULL;
  own.keep_body = NULL;
  own.owned = NULL;
  own.alone = NULL;
  own.commit = NULL;
  if (l->counter) p->env[l->symbol] = (int64_t)((uint64_t)l->value + (uint64_t)p->at + 1);
  tn_unref(p->number);
  p->number = p->arg[0] = tn_scalar_i64(p->mem, DEV_CPU, DT_I64, p->at);
  if (!p->number) return no_memory(e);
  for (int i = 1; i < l->inputs; i++) p->arg[i] = i <= l->carry ? p->now[i - 1] : p->in[i];
  bool ok = l->body.run(l->body.ud, &own, p->arg, p->out, e, at);
  c->nodes_run = own.nodes_run;
  if (!ok) return false;
  ok = !rows || add_rows(p, p->at, p->out) || no_memory(e);
  drop(p->now, l->carry);
  memcpy(p->now, p->out, (size_t)l->carry * sizeof *p->now);
  memset(p->out, 0, (size_t)l->carry * sizeof *p->out);
  drop(p->out, l->gives);
  p->at++;
  return ok;
}

/* Brings p->now before a turn, or before its rows are made. */
static bool go_to(Replay *p, int64_t turn, RunCtx *c, GErr *e, Prov *at) {
  bool along = p->at == turn; /* who reads on */
  while (!along && p->states[p->count - 1].turn > turn) drop_state(p);
  const State *s = &p->states[p->count - 1];
  if (along) return true;
  drop_now(p);
  if (!hold(p, p->now, s->carry, p->loop.carry)) return no_memory(e);
  p->at = s->turn;
  if (p->keeps.every) return true;
  int64_t next = plan(p, p->at, turn + 1 - p->at, p->count);
  while (p->at < turn) {
    if (!run_turn(p, false, c, e, at)) return false;
    if (p->at != next) continue;
    if (!keep(p, p->at, p->now)) return no_memory(e);
    next = plan(p, p->at, turn + 1 - p->at, p->count);
  }
  return true;
}

Tensor *replay_row(Replay *p, int64_t turn, int k, RunCtx *c, GErr *e, Prov *at) {
  if (turn < p->from || turn >= p->from + p->turns) {
    bool on = turn == p->asked + 1;
    drop_rows(p);
    if (!go_to(p, turn, c, e, at)) return NULL;
    while (p->at <= turn)
      if (!run_turn(p, true, c, e, at)) return NULL;
    if (!on) drop_now(p);
  }
  p->asked = turn;
  return p->rows[(turn - p->from) * row_count(p) + k];
}
