/* The table of keys: what was put in is found, in any order of putting in and taking out. */
#include <stdlib.h>

#include "runtime/table.h"
#include "tests/tap.h"

enum { KEYS = 600 };

static uint64_t draw(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

static void t_random(uint64_t seed, uint64_t stride) {
  static ptrdiff_t want[KEYS];
  Mem m;
  mem_init(&m, NULL, NULL);
  Table map = {.mem = &m};
  for (int i = 0; i < KEYS; i++) want[i] = TABLE_NONE;
  size_t count = 0;
  for (int round = 0; round < 20000; round++) {
    size_t k = draw(&seed) % KEYS, value = draw(&seed) % 1000;
    uint64_t key = k * stride;
    bool there = want[k] != TABLE_NONE;
    switch (draw(&seed) % 4) {
    case 0:
      check_int(table_add(&map, key, value), ==, want[k]);
      if (!there) want[k] = (ptrdiff_t)value;
      break;
    case 1:
      table_set(&map, key, value);
      want[k] = (ptrdiff_t)value;
      break;
    default: table_remove(&map, key); want[k] = TABLE_NONE;
    }
    count += (size_t)(want[k] != TABLE_NONE) - (size_t)there;
    if (map.count != count || round % 500 == 0)
      for (size_t i = 0; i < KEYS; i++) check_int(table_get(&map, i * stride), ==, want[i]);
    check_size(map.count, ==, count);
  }
  check_size(map.cap, <=, 4 * KEYS);
  table_clear(&map);
  for (size_t i = 0; i < KEYS; i++) check_int(table_get(&map, i * stride), ==, TABLE_NONE);
  table_free(&map);
  mem_close(&m);
  check_size(m.live, ==, 0);
}

static void t_arena(void) {
  Mem m;
  Arena a;
  mem_init(&m, NULL, NULL);
  arena_init(&a, &m);
  Table map = {.arena = &a};
  check_int(table_get(&map, 5), ==, TABLE_NONE);
  table_remove(&map, 5);
  for (size_t i = 0; i < 1000; i++) check_int(table_add(&map, i << 40, i), ==, TABLE_NONE);
  for (size_t i = 0; i < 1000; i++) check_int(table_add(&map, i << 40, 7), ==, (ptrdiff_t)i);
  arena_free(&a);
  mem_close(&m);
  check_size(m.live, ==, 0);
}

int main(void) {
  TEST(t_random(1, 1), "keys that follow one another");
  TEST(t_random(2, 64), "keys like addresses");
  TEST(t_random(3, UINT64_C(0x100000001)), "keys of two halves");
  TEST(t_random(4, UINT64_C(1) << 50), "keys that differ at the top");
  TEST(t_arena(), "a table in an arena");
  return tap_done();
}
