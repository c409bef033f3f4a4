/* Plans for chains against a table of its own: each range of stages at each depth with every plan
 * that no other one beats, found by trying each boundary, without steps and without a bound on
 * their number. */
#include <stdlib.h>
#include <string.h>

#include "autograd/rotor.h"
#include "tests/tap.h"

static Mem mem;
static Arena arena;

static uint64_t state = 88172645463325252u;
static int64_t rnd(int64_t n) {
  return (int64_t)(tap_random(&state) >> 33) % n;
}

typedef struct Point {
  int64_t need, time;
} Point;
typedef struct Set {
  Point *p;
  int count, cap;
} Set;

static void add(Set *s, int64_t need, int64_t time) {
  for (int i = 0; i < s->count; i++)
    if (s->p[i].need <= need && s->p[i].time <= time) return;
  int n = 0;
  for (int i = 0; i < s->count; i++)
    if (!(s->p[i].need >= need && s->p[i].time >= time)) s->p[n++] = s->p[i];
  if (n == s->cap) s->p = realloc(s->p, (size_t)(s->cap = n ? 2 * n : 8) * sizeof *s->p);
  s->p[n] = (Point){need, time};
  s->count = n + 1;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

enum { MOST = 40 };
static Set table[ROTOR_DEPTH + 1][MOST + 1][MOST + 1];

/* Every plan of stages i .. j - 1 at a depth: the first stage keeps its tape, or a boundary k is
 * kept and all before it runs again. */
static void fill(const RotorStage *s, int depth, int i, int j, bool last) {
  Set *to = &table[depth][i][j];
  to->count = 0;
  int64_t tape = depth ? s[i].again : s[i].tape;
  int64_t own = most(s[i].front, depth ? s[i].alone : tape + s[i].back), front = 0, time = 0;
  const Set *rest = &table[depth][i + 1][j];
  if (i + 1 == j) add(to, own, 0);
  for (int q = 0; i + 1 < j && q < rest->count; q++)
    add(to, most(own, tape + rest->p[q].need), rest->p[q].time);
  if (depth == ROTOR_DEPTH) return;
  for (int k = i + 1; k <= j; k++) {
    time += s[k - 1].time;
    front = most(front, s[k - 1].front);
    if (k == j && !last) break;
    const Set *again = &table[depth + 1][i][k];
    rest = &table[depth][k][j];
    for (int x = 0; x < again->count; x++)
      for (int y = 0; y < (k < j ? rest->count : 1); y++) {
        int64_t need = most(front, again->p[x].need), sum = time + again->p[x].time;
        if (k < j) need = most(need, s[k - 1].cross + rest->p[y].need), sum += rest->p[y].time;
        add(to, need, sum);
      }
  }
}

static const Set *solve(const RotorStage *s, int n) {
  for (int depth = ROTOR_DEPTH; depth >= 0; depth--)
    for (int length = 1; length <= n; length++)
      for (int i = 0; i + length <= n; i++)
        if (depth || i + length == n) fill(s, depth, i, i + length, depth == 0);
  return &table[0][0][n];
}

static void draw(RotorStage *s, int n, bool equal) {
  for (int i = 0; i < n; i++) {
    int64_t unit = 64 * (1 + rnd(100));
    s[i] = (RotorStage){.time = 1 + rnd(1000),
                        .tape = unit * rnd(6),
                        .cross = unit,
                        .front = unit,
                        .back = 2 * unit};
    s[i].again = s[i].tape + unit * rnd(2);
    s[i].alone = s[i].again + s[i].back;
    if (equal && i) s[i] = s[0];
  }
  s[n - 1].cross = 0;
}

static int64_t time_at(const Set *s, int64_t need) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < s->count; i++)
    if (s->p[i].need <= need && s->p[i].time < least) least = s->p[i].time;
  return least;
}

/* What a plan needs and takes, by following it. */
static Point follow(const RotorStage *s, const RotorPlan *p, int depth, int i, int j,
                    size_t *piece) {
  Point at = {0};
  int64_t kept = 0;
  while (i < j) {
    if (p->depth[i] == depth && !(*piece < p->piece_count && (int)p->pieces[*piece].lo == i)) {
      int64_t tape = depth ? s[i].again : s[i].tape;
      at.need = most(at.need, kept + most(s[i].front, depth ? s[i].alone : tape + s[i].back));
      kept += tape;
      i++;
      continue;
    }
    const RotorPiece *x = &p->pieces[(*piece)++];
    check((int)x->lo == i && (int)x->depth == depth + 1);
    int k = (int)x->hi;
    for (int q = i; q < k; q++) {
      at.time += s[q].time;
      at.need = most(at.need, kept + s[q].front);
    }
    Point inner = follow(s, p, depth + 1, i, k, piece);
    at.need = most(at.need, kept + inner.need);
    at.time += inner.time;
    kept += k < j ? s[k - 1].cross : 0;
    i = k;
  }
  return at;
}

/* Budgets from the least of the table to that of keeping all tapes. */
static void compare(const RotorStage *s, int n, const Set *want) {
  enum { BUDGETS = 20 };
  const Rotor *r = rotor_make(&arena, s, (uint32_t)n, ROTOR_DEPTH, INT64_MAX);
  const RotorPoint *got;
  size_t count = rotor_points(r, &got);
  int64_t low = INT64_MAX, high = 0, all = 0, work = 0;
  for (int i = 0; i < want->count; i++) {
    low = want->p[i].need < low ? want->p[i].need : low;
    high = most(high, want->p[i].need);
  }
  for (int i = 0; i < n; i++) all += 3 * s[i].time; /* forward, and backward */
  check((double)got[0].need <= 1.05 * (double)low);
  check(got[0].need >= low);
  for (size_t i = 1; i < count; i++)
    check(got[i].need > got[i - 1].need && got[i].time < got[i - 1].time);
  for (int b = 0; b < BUDGETS; b++) {
    int64_t budget = low + (high - low) * b / (BUDGETS - 1);
    if (budget < got[0].need) continue;
    size_t t = 0;
    while (t + 1 < count && got[t + 1].need <= budget) t++;
    work = time_at(want, budget);
    check((double)(all + got[t].time) <= 1.05 * (double)(all + work));
    check(got[t].time >= work);
    RotorPlan p = rotor_plan(&arena, r, budget);
    size_t piece = 0;
    Point real = follow(s, &p, 0, 0, n, &piece);
    check(piece == p.piece_count);
    check(real.need <= budget && real.time <= got[t].time);
  }
}

static void t_chains(bool equal) {
  RotorStage s[MOST];
  for (int round = 0; round < 60; round++) {
    int n = 1 + (int)rnd(round < 50 ? 14 : 30);
    draw(s, n, equal);
    compare(s, n, solve(s, n));
  }
}

/* Of equal stages a range depends on its length alone, so the table is a row for each depth. */
static void t_long(void) {
  enum { STAGES = 200 };
  RotorStage s[STAGES];
  for (int i = 0; i < STAGES; i++)
    s[i] =
        (RotorStage){.time = 10, .tape = 64, .again = 64, .cross = 64, .back = 128, .alone = 192};
  s[STAGES - 1].cross = 0;
  static Set row[ROTOR_DEPTH + 1][STAGES + 1];
  for (int depth = ROTOR_DEPTH; depth >= 0; depth--)
    for (int n = 1; n <= STAGES; n++) {
      Set *to = &row[depth][n];
      if (n == 1) add(to, 192, 0);
      for (int q = 0; n > 1 && q < row[depth][n - 1].count; q++)
        add(to, most(192, 64 + row[depth][n - 1].p[q].need), row[depth][n - 1].p[q].time);
      for (int k = 1; depth < ROTOR_DEPTH && k < n; k++)
        for (int x = 0; x < row[depth + 1][k].count; x++)
          for (int y = 0; y < row[depth][n - k].count; y++)
            add(to, most(row[depth + 1][k].p[x].need, 64 + row[depth][n - k].p[y].need),
                10 * k + row[depth + 1][k].p[x].time + row[depth][n - k].p[y].time);
    }
  compare(s, STAGES, &row[0][STAGES]);
}

static void all(void *ud) {
  (void)ud;
  TEST(t_chains(false), "unequal chains: least need and work within 5 % of the table");
  TEST(t_chains(true), "equal chains: the same");
  TEST(t_long(), "200 equal stages: the same");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
