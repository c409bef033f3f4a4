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
  Tensor **in, **now;    /* now: before turn `at`, not kept; `at` -1: there is none */
  Tensor **out;          /* what turns give; between turns memory for that */
  Tensor **arg, *number; /* of the body, borrowed; its turn */
  int64_t at;
  State *states;
  size_t count, cap;
  int64_t step, next; /* the forward: distance of states; the turn of the next one, or -1 */
  Tensor **rows; /* of turns from .. from + turns - 1, turn by turn; `packed`: one per output */
  int64_t from, turns;
  size_t row_cap;
  bool packed;
  Tensor **views; /* of packed rows: those of turn `viewed`, as far as they were asked for */
  int64_t viewed;
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

/* Keeps t in *to, if that is empty and nobody else holds its memory; else releases it. */
static void spare(Tensor **to, Tensor *t) {
  bool sole = t && t->rc == 1 && t->store->rc == 1 && tn_is_contiguous(t) && !*to;
  if (sole)
    *to = t;
  else
    tn_unref(t);
}

static void drop_rows(Replay *p) {
  int64_t all = (p->packed ? p->turns > 0 : p->turns) * row_count(p);
  drop(p->views, row_count(p));
  for (int64_t i = 0; i < all; i++)
    if (p->packed)
      spare(&p->out[p->loop.first + i], p->rows[i]);
    else
      tn_unref(p->rows[i]);
  p->turns = 0;
  p->packed = false;
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
  if (p->rows) drop_rows(p);
  while (p->count) drop_state(p);
  mem_free(m, p->rows, p->row_cap * sizeof *p->rows);
  mem_free(m, p->states, p->cap * sizeof *p->states);
  release(m, p->in, p->loop.inputs);
  mem_free(m, p->arg, ((size_t)p->loop.inputs + 1) * sizeof *p->arg);
  tn_unref(p->number);
  release(m, p->now, p->loop.carry);
  release(m, p->out, p->loop.gives);
  release(m, p->views, row_count(p));
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
  p->views = tensors(m, row_count(p));
  if (p->env && p->in && p->arg && p->now && p->out && p->views &&
      hold(p, p->in + first, loop->in + first, loop->inputs - first)) {
    if (loop->symbols) memcpy(p->env, loop->env, loop->symbols * sizeof *p->env);
    p->loop.in = NULL;
    p->loop.env = NULL;
    return p;
  }
  replay_unref(p);
  return NULL;
}

Replay *replay_of(const Graph *g, uint32_t node, const RunCtx *c, Tensor *const *in) {
  const GNode *n = &g->nodes[node];
  const Graph *inner = g->regions[n->region0];
  const Attr *counter = gr_attr(g, node, AT_COUNTER);
  int gives = (int)inner->output_count;
  ReplayLoop l = {.body = c->keep_body ? c->keep_body(c->body_ud, inner) : gr_kept(inner),
                  .inputs = (int)n->operand_count,
                  .carry = (int)gr_attr_i(g, node, AT_CARRY, 0),
                  .gives = gives,
                  .first = (int)gr_attr_i(g, node, AT_AGAIN, gives),
                  .in = in,
                  .turns = gr_attr(g, node, AT_WHILE) ? -1 : tn_get_i64(in[0], 0),
                  .env = c->env,
                  .symbols = c->env ? dim_symbol_count(g->dims) : 0,
                  .counter = counter != NULL,
                  .value = gr_attr_i(g, node, AT_VALUE, 0)};
  if (counter) dim_is_symbol(g->dims, (Dim)counter->u.i, &l.symbol);
  return replay_new(
      c->mem, &l, (ReplayKeeps){gr_attr_i(g, node, AT_STATES, 0), gr_attr_i(g, node, AT_EVERY, 0)});
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

/* The distance of states, if it does not depend on the turn; 0: `next` is the next one. */
static int64_t distance(const Replay *p) {
  return p->keeps.every ? p->keeps.every : p->loop.turns < 0 ? p->step : 0;
}

bool replay_due(Replay *p, int64_t turn) {
  int64_t step = distance(p);
  bool full = p->count == (size_t)p->keeps.states + 1;
  if (step && turn % step) return false;
  if (!p->keeps.every && step && turn && full) thin(p);
  return step ? turn % distance(p) == 0 : turn == 0 || turn == p->next;
}

int64_t replay_until(const Replay *p, int64_t turn) {
  int64_t step = distance(p);
  return step ? step - turn % step : p->next > turn ? p->next - turn : INT64_MAX;
}

bool replay_before(Replay *p, int64_t turn, Tensor *const *carry) {
  bool known = p->loop.turns >= 0;
  if (!replay_due(p, turn)) return true;
  if (!keep(p, turn, carry)) return false;
  if (known && !p->keeps.every) p->next = plan(p, turn, p->loop.turns - turn, p->count);
  return true;
}

/* Appends the rows of a turn to those that are there, none of them packed; or there are none, and
 * these are the packed ones of n turns. */
static bool add_rows(Replay *p, int64_t turn, Tensor *const *gave, bool packed, int64_t n) {
  int each = row_count(p);
  size_t need = (size_t)((p->turns + 1) * each);
  if (need > p->row_cap) {
    Tensor **more = mem_try(p->mem, p->rows, p->row_cap * sizeof *more, need * sizeof *more);
    if (!more) return false;
    p->rows = more;
    p->row_cap = need;
  }
  if (!p->turns) p->from = turn;
  Tensor **to = &p->rows[p->turns * each];
  memset(to, 0, (size_t)each * sizeof(Tensor *));
  if (!hold(p, to, gave + p->loop.first, each)) {
    drop(to, each);
    return false;
  }
  p->packed = packed;
  p->turns += n;
  return true;
}

bool replay_end(Replay *p, int64_t turns, Tensor *const *gave, bool packed) {
  p->loop.turns = turns;
  return !gave || !turns || add_rows(p, turns - 1, gave, packed, 1);
}

/* ---- rows */

static bool no_memory(GErr *e) {
  return gerr_set(e, ERR_NOMEM, -1, "out of memory");
}

/* What turns run in, and take before turn `at`. */
static RunCtx context(Replay *p, const RunCtx *c) {
  const ReplayLoop *l = &p->loop;
  RunCtx own = *c;
  own.env = p->env;
  own.body = NULL;
  own.keep_body = NULL;
  own.owned = NULL;
  own.alone = NULL;
  own.commit = NULL;
  for (int i = 1; i < l->inputs; i++) p->arg[i] = i <= l->carry ? p->now[i - 1] : p->in[i];
  return own;
}

/* After n turns that gave p->out, of rows if `rows`. */
static void go_on(Replay *p, int64_t n, bool rows) {
  const ReplayLoop *l = &p->loop;
  for (int i = 0; i < l->carry; i++) {
    Tensor *before = p->now[i];
    p->now[i] = p->out[i];
    p->out[i] = NULL;
    spare(&p->out[i], before);
  }
  if (rows) drop(p->out + l->carry, l->gives - l->carry);
  p->at += n;
}

/* Runs turn `at`, after which p->now is before the next one. */
static bool run_turn(Replay *p, bool rows, RunCtx *c, GErr *e, Prov *at) {
  const ReplayLoop *l = &p->loop;
  RunCtx own = context(p, c);
  if (interrupt_asked(c->interrupt)) return gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
  if (l->counter) p->env[l->symbol] = (int64_t)((uint64_t)l->value + (uint64_t)p->at + 1);
  tn_unref(p->number);
  p->number = p->arg[0] = tn_scalar_i64(p->mem, DEV_CPU, DT_I64, p->at);
  if (!p->number) return no_memory(e);
  drop(p->out, l->gives);
  bool ok = l->body.run(l->body.ud, &own, p->arg, p->out, e, at);
  c->nodes_run = own.nodes_run;
  if (!ok) return false;
  ok = !rows || add_rows(p, p->at, p->out, false, 1) || no_memory(e);
  go_on(p, 1, true);
  return ok;
}

/* Runs n turns from `at` on; their rows are the only ones. */
static bool run_turns(Replay *p, int64_t n, bool rows, RunCtx *c, GErr *e, Prov *at) {
  const ReplayLoop *l = &p->loop;
  int ran = 0;
  if (l->body.turns && !l->counter && n > 0) {
    RunCtx own = context(p, c);
    ran = l->body.turns(l->body.ud, &own, p->arg, p->at, n, rows, p->out, e, at);
    c->nodes_run = own.nodes_run;
    if (ran < 0) return false;
  }
  if (ran) {
    bool ok = !rows || add_rows(p, p->at, p->out, true, n) || no_memory(e);
    go_on(p, n, rows);
    return ok;
  }
  while (n-- > 0)
    if (!run_turn(p, rows, c, e, at)) return false;
  return true;
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
    int64_t to = next > p->at && next < turn ? next : turn;
    if (!run_turns(p, to - p->at, false, c, e, at)) return false;
    if (p->at != next) continue;
    if (!keep(p, p->at, p->now)) return no_memory(e);
    next = plan(p, p->at, turn + 1 - p->at, p->count);
  }
  return true;
}

/* Makes the rows of a turn, unless they are there. */
static bool make_rows(Replay *p, int64_t turn, RunCtx *c, GErr *e, Prov *at) {
  if (turn < p->from || turn >= p->from + p->turns) {
    bool on = turn == p->asked + 1;
    drop_rows(p);
    if (!go_to(p, turn, c, e, at)) return false;
    if (!run_turns(p, turn + 1 - p->at, true, c, e, at)) return false;
    if (!on) drop_now(p);
  }
  p->asked = turn;
  return true;
}

Tensor *replay_row(Replay *p, int64_t turn, int k, RunCtx *c, GErr *e, Prov *at) {
  if (!make_rows(p, turn, c, e, at)) return NULL;
  if (!p->packed) return p->rows[(turn - p->from) * row_count(p) + k];
  const Tensor *t = p->rows[k];
  if (p->viewed != turn) drop(p->views, row_count(p));
  p->viewed = turn;
  if (!p->views[k])
    p->views[k] = tn_view(p->mem, t, t->rank - 1, t->dim + 1, t->stride + 1,
                          t->offset + (turn - p->from) * t->stride[0]);
  if (!p->views[k]) no_memory(e);
  return p->views[k];
}

Tensor *replay_rows(Replay *p, int64_t turn, int k, int64_t *from, RunCtx *c, GErr *e, Prov *at) {
  if (!make_rows(p, turn, c, e, at)) return NULL;
  *from = p->packed ? p->from : turn;
  if (p->packed) return tn_ref(p->rows[k]);
  int64_t dim[CKL_MAX_RANK] = {1}, stride[CKL_MAX_RANK];
  Tensor *row = tn_contiguous(p->mem, p->rows[(turn - p->from) * row_count(p) + k]), *t = NULL;
  if (row) {
    memcpy(dim + 1, row->dim, (size_t)row->rank * sizeof *dim);
    memcpy(stride + 1, row->stride, (size_t)row->rank * sizeof *stride);
    stride[0] = tn_count(row);
    t = tn_view(p->mem, row, row->rank + 1, dim, stride, row->offset);
  }
  tn_unref(row);
  if (!t) no_memory(e);
  return t;
}
