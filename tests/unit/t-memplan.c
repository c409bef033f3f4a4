/* Places of values with known lifetimes: none overlap, the block is near the most bytes alive at
 * once, and the answer is the same each time. */
#include "jit/plan/plan.h"
#include "tests/tap.h"

static Mem mem;
static Arena arena;
static uint64_t state;

static uint32_t rnd(uint32_t n) {
  return (uint32_t)(tap_random(&state) >> 33) % n;
}

/* Values as functions make them: few sizes, some alive until a backward comes back to them. */
static size_t random_items(uint64_t seed, MemItem *x, size_t most) {
  state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  size_t n = 1 + rnd((uint32_t)most);
  for (size_t i = 0; i < n; i++) {
    uint32_t first = (uint32_t)i, last = first + 1 + rnd(4);
    if (seed % 3 && rnd(3) == 0) last = (uint32_t)(2 * n - i);
    int64_t bytes = 64 * (int64_t)(seed % 2 ? 1 + rnd(40) : 1u << rnd(9));
    x[i] = (MemItem){.bytes = bytes, .first = first, .last = last};
  }
  return n;
}

static bool apart(const MemItem *x, size_t n, int64_t total) {
  for (size_t i = 0; i < n; i++) {
    if (x[i].offset < 0 || x[i].offset % 64 || x[i].offset + x[i].bytes > total) return false;
    for (size_t k = 0; k < i; k++) {
      bool same_time = x[i].first <= x[k].last && x[k].first <= x[i].last;
      bool same_place =
          x[i].offset < x[k].offset + x[k].bytes && x[k].offset < x[i].offset + x[i].bytes;
      if (same_time && same_place) return false;
    }
  }
  return true;
}

static void random_plans(void *ud) {
  (void)ud;
  enum { MOST = 300, ROUNDS = 400 };
  static MemItem x[MOST], again[MOST];
  double sum = 0, worst = 0;
  int perfect = 0;
  for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
    size_t n = random_items(seed, x, MOST);
    int64_t live = memplan_live(&arena, x, n, NULL), total = memplan(&arena, x, n);
    check_msg(apart(x, n, total), "seed %d: places overlap", (int)seed);
    check_msg(total >= live, "seed %d: a block below the bound", (int)seed);
    random_items(seed, again, MOST);
    check_msg(memplan(&arena, again, n) == total && !memcmp(again, x, n * sizeof *x),
              "seed %d: another answer", (int)seed);
    double ratio = (double)total / (double)live;
    sum += ratio;
    perfect += total == live;
    if (ratio > worst) worst = ratio;
    arena_free(&arena);
    arena_init(&arena, &mem);
  }
  tap_note("arena / most alive: %.4f on average, %.4f at worst, equal in %d of %d", sum / ROUNDS,
           worst, perfect, ROUNDS);
  check_double(worst, <, 1.15);
  check_double(sum / ROUNDS, <, 1.002);
  check_int(perfect, >=, ROUNDS * 9 / 10);
}

/* The most bytes alive, counted step by step. */
static void bound(void *ud) {
  (void)ud;
  static MemItem x[60];
  for (uint64_t seed = 1; seed <= 200; seed++) {
    size_t n = random_items(seed, x, 60);
    int64_t most = 0;
    uint32_t when = 0, got;
    for (uint32_t t = 0; t < 200; t++) {
      int64_t live = 0;
      for (size_t i = 0; i < n; i++)
        if (x[i].first <= t && t <= x[i].last) live += x[i].bytes;
      if (live > most) {
        most = live;
        when = t;
      }
    }
    check_int(memplan_live(&arena, x, n, &got), ==, most);
    check_int(got, ==, when);
  }
}

static void edges(void *ud) {
  (void)ud;
  check_int(memplan(&arena, NULL, 0), ==, 0);
  check_int(memplan_live(&arena, NULL, 0, NULL), ==, 0);
  int64_t half = (int64_t)1 << 61;
  MemItem big[3] = {{half, 0, 1, 0}, {half, 0, 1, 0}, {half, 1, 1, 0}};
  check_int(memplan(&arena, big, 3), ==, -1);
}

static void guarded(void (*f)(void *)) {
  check_int(mem_protect(&mem, f, NULL), ==, MEM_OK);
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  TEST(guarded(bound), "the bound is the most bytes alive at once");
  TEST(guarded(random_plans), "random values are placed apart, near the bound");
  TEST(guarded(edges), "nothing at all, and more than fits");
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
