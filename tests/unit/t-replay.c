/* Rows made again: which turns run, how many states are kept, and that rows are right however they
 * are read. */
#include "graph/replay.h"

#include "graph/ir.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

/* A loop that counts: it carries the number of the turn, and the row of a turn is ten times that.
 * */
typedef struct Counting {
  Mem *mem;
  int64_t runs, wrong, symbol; /* symbol: what the counter has to be, less the turn; 0: none */
  int drops;
  bool many; /* turns run many in a call, but for some calls */
  int calls, taken;
} Counting;

/* A number in memory of someone else, so that a copy is held. */
static Tensor *number(Counting *c, int64_t i) {
  int64_t *x = malloc(sizeof *x);
  *x = i;
  Tensor *t = tn_foreign(c->mem, DT_I64, 0, NULL, x, free, x);
  if (!t) free(x);
  return t;
}

static bool one_turn(Counting *c, const int64_t *env, Tensor *const *in, Tensor **out) {
  int64_t turn = tn_get_i64(in[0], 0);
  c->runs++;
  if (tn_get_i64(in[1], 0) != turn || tn_get_i64(in[2], 0) != 7) c->wrong++;
  if (c->symbol && env[1] != turn + c->symbol) c->wrong++;
  out[0] = number(c, turn + 1);
  out[1] = number(c, 10 * turn);
  if (out[0] && out[1]) return true;
  tn_unref(out[0]);
  tn_unref(out[1]);
  out[0] = out[1] = NULL;
  return false;
}

static bool run(void *ud, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  (void)at;
  return one_turn(ud, c->env, in, out) || gerr_set(e, ERR_NOMEM, -1, "out of memory");
}

/* Sets *t to n numbers from `first` on, `step` apart, in memory that is there if it fits. */
static bool numbers(Counting *c, Tensor **t, int rank, int64_t n, int64_t first, int64_t step) {
  if (*t && (*t)->rc == 1 && (*t)->store->rc == 1 && (!rank || (*t)->dim[0] == n)) {
    c->taken++;
  } else {
    if (*t && ((*t)->rc != 1 || (*t)->store->rc != 1)) c->wrong++;
    tn_unref(*t);
    *t = tn_new(c->mem, DEV_CPU, DT_I64, rank, &n);
  }
  for (int64_t i = 0; *t && i < n; i++) ((int64_t *)tn_data(*t))[i] = first + step * i;
  return *t;
}

static int run_many(void *ud, RunCtx *ctx, Tensor *const *in, int64_t first, int64_t n, bool rows,
                    Tensor **out, GErr *e, Prov *at) {
  Counting *c = ud;
  (void)at;
  (void)ctx;
  if (++c->calls % 7 == 0) return 0;
  c->runs += n;
  if (tn_get_i64(in[1], 0) != first || tn_get_i64(in[2], 0) != 7 || n < 1) c->wrong++;
  bool ok = numbers(c, &out[0], 0, 1, first + n, 0) &&
            (!rows || numbers(c, &out[1], 1, n, 10 * first, 10));
  if (!ok) gerr_set(e, ERR_NOMEM, -1, "out of memory");
  return ok ? 1 : -1;
}

static void dropped(void *ud) {
  ((Counting *)ud)->drops++;
}

/* Runs the forward of n turns. NULL when out of memory. */
static Replay *forward(Counting *c, int64_t n, bool known, ReplayKeeps keeps) {
  int64_t env[2] = {5, 0};
  Tensor *in[3] = {NULL, NULL, tn_scalar_i64(c->mem, DEV_CPU, DT_I64, 7)};
  ReplayLoop l = {.body = {c, run, c->many ? run_many : NULL, dropped},
                  .inputs = 3,
                  .carry = 1,
                  .gives = 2,
                  .first = 1,
                  .in = in,
                  .turns = known ? n : -1,
                  .env = env,
                  .symbols = 2,
                  .counter = c->symbol > 0,
                  .symbol = 1,
                  .value = c->symbol - 1};
  c->runs = 0;
  Replay *p = in[2] ? replay_new(c->mem, &l, keeps) : NULL;
  if (!in[2]) c->drops++;
  Tensor *carry = p ? tn_scalar_i64(c->mem, DEV_CPU, DT_I64, 0) : NULL;
  bool ok = carry != NULL;
  for (int64_t i = 0; i < n && ok; i++) {
    Tensor *out[2] = {NULL, NULL};
    in[0] = tn_scalar_i64(c->mem, DEV_CPU, DT_I64, i);
    in[1] = carry;
    env[1] = i + c->symbol;
    ok = in[0] && replay_before(p, i, &carry) && one_turn(c, env, in, out);
    if (ok && known && i == n - 1) ok = replay_end(p, n, out, false);
    tn_unref(in[0]);
    if (out[0]) {
      tn_unref(carry);
      carry = out[0];
    }
    tn_unref(out[1]);
  }
  if (ok && (!known || !n)) ok = replay_end(p, n, NULL, false);
  tn_unref(carry);
  tn_unref(in[2]);
  if (ok) return p;
  replay_unref(p);
  return NULL;
}

/* Whether the row of a turn can be read; a wrong one counts. */
static bool reads(Counting *c, Replay *p, int64_t turn) {
  RunCtx ctx = {.mem = c->mem};
  GErr e = {0};
  Prov at;
  int64_t from = 0;
  Tensor *row = replay_row(p, turn, 0, &ctx, &e, &at);
  if (!row) return false;
  if (tn_get_i64(row, 0) != 10 * turn) c->wrong++;
  if (turn % 3 == 0) return true;
  Tensor *rows = replay_rows(p, turn, 0, &from, &ctx, &e, &at);
  if (!rows) return false;
  if (rows->rank != 1 || from > turn || turn >= from + rows->dim[0]) c->wrong++;
  for (int64_t i = 0; i < rows->dim[0]; i++)
    if (tn_get_i64(rows, i) != 10 * (from + i)) c->wrong++;
  tn_unref(rows);
  return true;
}

/* Turns that n of them run in all, with `states` states: Algorithm 799. */
static int64_t fewest(int64_t n, int64_t states) {
  int64_t s = states + 1, r = 0, c = 1, before = 0; /* C(s + r, s), C(s + r, r - 1) */
  while (c < n) {
    r++;
    c = c * (s + r) / r;
  }
  if (!r) return n;
  before = 1;
  for (int64_t i = 1; i <= r - 1; i++) before = before * (s + r - i + 1) / i;
  return n + r * n - before;
}

static int64_t alive(const Mem *m) { /* tensors of one number */
  return (int64_t)m->data_live[DEV_CPU] / 8;
}

/* All rows from the last to the first. */
static int64_t back(Counting *c, Replay *p, int64_t n, int64_t *most) {
  for (int64_t i = n; i-- > 0;) {
    if (!reads(c, p, i)) return -1;
    if (alive(c->mem) > *most) *most = alive(c->mem);
  }
  return c->runs;
}

static void t_binomial(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Counting c = {.mem = &m};
  int loops = 0;
  for (int64_t states = 1; states <= 12; states++)
    for (int64_t n = 1; n <= 300; n++, loops++) {
      int64_t most = 0;
      c.many = n % 2;
      Replay *p = forward(&c, n, true, (ReplayKeeps){states, 0});
      need(p);
      int64_t runs = back(&c, p, n, &most);
      if (runs != fewest(n, states)) check_int(runs, ==, fewest(n, states));
      int64_t more = replay_turns(n, (ReplayKeeps){states, 0});
      if (runs != n + more) check_int(runs, ==, n + more);
      /* the states, the first one, the captured value; a turn's number, what it takes and gives */
      if (most > states + 6) check_int(most, <=, states + 6);
      replay_unref(p);
    }
  static const int64_t known[][3] = {
      {10, 2, 15}, {20, 4, 33}, {64, 4, 172}, {300, 12, 780}, {10000, 20, 37700}};
  for (int i = 0; i < 5; i++, loops++) {
    int64_t most = 0;
    Replay *p = forward(&c, known[i][0], true, (ReplayKeeps){known[i][1], 0});
    need(p);
    check_int(back(&c, p, known[i][0], &most), ==, known[i][0] + known[i][2]);
    replay_unref(p);
  }
  check_int(c.wrong, ==, 0);
  check_int(c.drops, ==, loops);
  check_int(c.taken, >, c.calls / 2); /* of two tensors each */
  check(failing_clean(&f, &m));
}

static void t_unknown(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Counting c = {.mem = &m};
  double worst = 0;
  for (int64_t states = 4; states <= 12; states++)
    for (int64_t n = 1; n <= 300; n++) {
      int64_t most = 0;
      c.many = n % 2;
      Replay *p = forward(&c, n, false, (ReplayKeeps){states, 0});
      need(p);
      int64_t more = back(&c, p, n, &most) - n - 1, best = fewest(n, states) - n;
      if (most > states + 6) check_int(most, <=, states + 6);
      if (n >= 16 && (double)more / (double)best > worst) worst = (double)more / (double)best;
      replay_unref(p);
    }
  tap_note("at most %.3f times the fewest turns", worst);
  check(worst > 1 && worst <= 1.8);
  check_int(c.wrong, ==, 0);
  check(failing_clean(&f, &m));
}

static void t_every(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  Counting c = {.mem = &m};
  for (int known = 0; known < 2; known++)
    for (int64_t every = 1; every <= 20; every++)
      for (int64_t n = 0; n <= 60; n++) {
        int64_t most = 0;
        c.many = n % 2;
        Replay *p = forward(&c, n, known, (ReplayKeeps){0, every});
        need(p);
        int64_t want = 2 * n - (known && n > 0); /* the last turn kept its row */
        int64_t runs = back(&c, p, n, &most);
        if (runs != want) check_int(runs, ==, want);
        if (most > (n + every - 1) / every + every + 6) check(false);
        replay_unref(p);
      }
  check_int(c.wrong, ==, 0);
  check(failing_clean(&f, &m));
}

/* Rows read on from turn to turn, then back, then anywhere. */
static void t_orders(void) {
  Mem m;
  Failing f;
  failing_init(&f, &m, 0);
  uint64_t seed = 3;
  for (int round = 0; round < 200; round++) {
    Counting c = {.mem = &m, .symbol = round % 3, .many = round % 5 > 1};
    int64_t n = 1 + (int64_t)(tap_random(&seed) % 50), most = 0;
    int64_t few = 1 + (int64_t)(tap_random(&seed) % 6);
    ReplayKeeps keeps = round % 2 ? (ReplayKeeps){few, 0} : (ReplayKeeps){0, few};
    Replay *p = forward(&c, n, round % 4 < 2, keeps);
    need(p);
    check(back(&c, p, n, &most) > 0);
    c.runs = 0;
    for (int64_t i = 0; i < n; i++) check(reads(&c, p, i));
    check_int(c.runs, <=, n + few + 1); /* each turn once, the first ones twice */
    check(back(&c, p, n, &most) >= 0);
    for (int i = 0; i < 30; i++) check(reads(&c, p, (int64_t)(tap_random(&seed) % (uint64_t)n)));
    check_int(c.wrong, ==, 0);
    replay_unref(p);
    check_int(c.drops, ==, 1);
  }
  check(failing_clean(&f, &m));
}

/* Whatever allocation fails: nothing leaks, and the next try is right. */
static void t_failing(void) {
  Mem m;
  Failing f;
  int failed = 0;
  for (int64_t nth = 1; nth < 400; nth++) {
    failing_init(&f, &m, nth);
    Counting c = {.mem = &m, .many = nth % 5 > 1};
    ReplayKeeps keeps = nth % 2 ? (ReplayKeeps){2, 0} : (ReplayKeeps){0, 3};
    Replay *p = forward(&c, 9, nth % 3 > 0, keeps);
    failed += !p;
    for (int64_t i = 9; p && i-- > 0;) {
      bool ok = reads(&c, p, i);
      failed += !ok;
      if (!ok) check(reads(&c, p, i));
    }
    replay_unref(p);
    if (c.wrong) check_int(c.wrong, ==, 0);
    if (c.drops != 1) check_int(c.drops, ==, 1);
    if (!failing_clean(&f, &m)) check(false);
  }
  check_int(failed, >, 50);
}

int main(void) {
  TEST(t_binomial(), "so many states: the fewest turns that there can be");
  TEST(t_unknown(), "the same where the number of turns is not known");
  TEST(t_every(), "the state of each so-many-th turn: each turn runs twice");
  TEST(t_orders(), "rows read forward, back, and anywhere");
  TEST(t_failing(), "out of memory: nothing is lost");
  return tap_done();
}
