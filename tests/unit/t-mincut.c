/* Minimum cuts, against trying every side. */
#include "autograd/mincut.h"
#include "tests/tap.h"

static Mem mem;
static Arena arena;

static uint64_t state = 88172645463325252u;
static unsigned rnd(unsigned n) {
  return (unsigned)(tap_random(&state) >> 33) % n;
}

typedef struct Arc {
  uint32_t from, to;
  int64_t cap;
} Arc;

static int64_t cut_of(const Arc *arc, int arcs, unsigned side) {
  int64_t sum = 0;
  for (int k = 0; k < arcs; k++)
    if ((side >> arc[k].from & 1) && !(side >> arc[k].to & 1))
      sum = arc[k].cap >= CUT_INF ? CUT_INF : sum >= CUT_INF ? sum : sum + arc[k].cap;
  return sum < CUT_INF ? sum : CUT_INF;
}

/* Vertices 0 and 1 are source and sink. */
static void t_random(int n, unsigned most, bool inf) {
  for (int round = 0; round < 4000; round++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    int vertices = 2 + (int)rnd((unsigned)n), arcs = (int)rnd(30);
    Arc arc[30];
    Cut c;
    cut_open(&c, &arena, (uint32_t)vertices);
    for (int k = 0; k < arcs; k++) {
      arc[k] = (Arc){rnd((unsigned)vertices), rnd((unsigned)vertices), rnd(most)};
      if (inf && rnd(5) == 0) arc[k].cap = CUT_INF;
      cut_arc(&c, arc[k].from, arc[k].to, arc[k].cap);
    }
    int64_t best = CUT_INF;
    unsigned least = ~0u, fewest = ~0u;
    for (unsigned side = 0; side < 1u << vertices; side++) {
      if (!(side & 1) || (side & 2)) continue;
      int64_t x = cut_of(arc, arcs, side);
      if (x > best) continue;
      unsigned size = (unsigned)__builtin_popcount(side);
      if (x < best || size < fewest) least = side, fewest = size;
      best = x;
    }
    bool side[16];
    int64_t flow = cut_run(&c, 0, 1, side);
    if (!check_msg(flow == best, "round %d: %lld, not %lld", round, (long long)flow,
                   (long long)best))
      return;
    if (best == CUT_INF) continue;
    unsigned got = 0;
    for (int v = 0; v < vertices; v++) got |= (unsigned)side[v] << v;
    if (!check_msg(got == least, "round %d: side %x, not %x", round, got, least)) return;
  }
}

static void t_chain(void) {
  static const int64_t cap[] = {7, 3, 9, 3, 8};
  Cut c;
  bool side[6];
  cut_open(&c, &arena, 6);
  for (uint32_t k = 0; k < 5; k++) cut_arc(&c, k, k + 1, cap[k]);
  check_int((int)cut_run(&c, 0, 5, side), ==, 3);
  for (int k = 0; k < 6; k++) check(side[k] == (k < 2));
}

/* Ladders of 40,000 vertices: time stays small. */
static void t_large(void) {
  enum { N = 20000 };
  Cut c;
  cut_open(&c, &arena, 2 * N + 2);
  bool *side = ARENA_ARRAY(&arena, bool, 2 * N + 2);
  for (uint32_t k = 0; k < N; k++) {
    cut_arc(&c, 2 + k, 2 + N + k, 1 + rnd(1000));
    cut_arc(&c, 2 + N + k, 1, 1 + rnd(1000));
    if (k) cut_arc(&c, 2 + N + k, 2 + k - 1, CUT_INF);
    if (k % 7 == 0) cut_arc(&c, 0, 2 + k, CUT_INF);
  }
  check(cut_run(&c, 0, 1, side) > 0);
}

static void all(void *ud) {
  (void)ud;
  TEST(t_chain(), "a chain is cut at its narrowest arc, the first of them");
  TEST(t_random(8, 10, false), "random networks: value and smallest side");
  TEST(t_random(8, 3, true), "many equal cuts, arcs without end");
  TEST(t_random(10, 1000000, true), "wide capacities");
  TEST(t_large(), "forty thousand vertices");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
