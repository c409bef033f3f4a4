/* Places in one block of memory for values with known lifetimes. The input is arrays, no graph.
 *
 * In: sizes and the steps in which each item is alive. Out: offsets and the size of the block. The
 * idea: items in some order, each at the lowest offset where it meets no item that is alive at the
 * same time. Largest first is best most often (greedy by size; Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference", 2020, section 5.2); where it leaves gaps, some other
 * orders are tried too and the smallest block wins. Ties go by the first step, then by number, so
 * the answer depends on nothing else. O(n^2), which a thousand values take in milliseconds.
 */
#include <stdlib.h>

#include "jit/plan/plan.h"

static int by_place(const MemItem *a, const MemItem *b) {
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a < b ? -1 : a > b;
}

static int by_size(const void *x, const void *y) {
  const MemItem *a = *(MemItem *const *)x, *b = *(MemItem *const *)y;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return by_place(a, b);
}

/* Long-lived items lie at the bottom, short-lived ones above them. */
static int by_life(const void *x, const void *y) {
  const MemItem *a = *(MemItem *const *)x, *b = *(MemItem *const *)y;
  uint32_t m = a->last - a->first, n = b->last - b->first;
  if (m != n) return m > n ? -1 : 1;
  return by_size(x, y);
}

static int by_area(const void *x, const void *y) {
  const MemItem *a = *(MemItem *const *)x, *b = *(MemItem *const *)y;
  double m = (double)a->bytes * (a->last - a->first + 1.0);
  double n = (double)b->bytes * (b->last - b->first + 1.0);
  if (m != n) return m > n ? -1 : 1;
  return by_place(a, b);
}

static int by_time(const void *x, const void *y) {
  const MemItem *a = *(MemItem *const *)x, *b = *(MemItem *const *)y;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return by_size(x, y);
}

typedef struct Placed {
  int64_t from, to;
  uint32_t first, last;
} Placed;

/* Places the items in this order; `placed` gets them by offset. */
static int64_t place(MemItem **order, Placed *placed, size_t n) {
  int64_t total = 0;
  for (size_t i = 0; i < n; i++) {
    MemItem *x = order[i];
    int64_t at = 0;
    for (size_t k = 0; k < i; k++) {
      const Placed *y = &placed[k];
      if (y->last < x->first || x->last < y->first) continue;
      if (y->from >= at + x->bytes) break; /* the gap before y holds it */
      if (y->to > at) at = y->to;
    }
    if (x->bytes > ((int64_t)1 << 62) - at) return -1;
    x->offset = at;
    if (at + x->bytes > total) total = at + x->bytes;
    size_t k = i;
    for (; k > 0 && placed[k - 1].from > at; k--) placed[k] = placed[k - 1];
    placed[k] = (Placed){at, at + x->bytes, x->first, x->last};
  }
  return total;
}

int64_t memplan(Arena *temp, MemItem *items, size_t n) {
  static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_life, by_time};
  enum { ORDERS = sizeof orders / sizeof *orders };
  MemItem **order = ARENA_ARRAY(temp, MemItem *, n + 1);
  Placed *placed = ARENA_ARRAY(temp, Placed, n + 1);
  int64_t *best = ARENA_ARRAY(temp, int64_t, n + 1); /* offsets */
  int64_t least = INT64_MAX, live = memplan_live(temp, items, n, NULL);
  for (size_t t = 0; t < ORDERS && least > live; t++) {
    for (size_t i = 0; i < n; i++) order[i] = &items[i];
    qsort(order, n, sizeof *order, orders[t]);
    int64_t total = place(order, placed, n);
    if (total < 0) return -1;
    if (total >= least) continue;
    least = total;
    for (size_t i = 0; i < n; i++) best[i] = items[i].offset;
  }
  for (size_t i = 0; i < n; i++) items[i].offset = best[i];
  return least;
}

/* Changes of what is alive, by step: what comes alive counts before what dies. */
typedef struct Change {
  uint32_t step;
  int64_t bytes;
} Change;

static int by_step(const void *x, const void *y) {
  const Change *a = x, *b = y;
  if (a->step != b->step) return a->step < b->step ? -1 : 1;
  return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

int64_t memplan_live(Arena *temp, const MemItem *items, size_t n, uint32_t *step) {
  Change *c = ARENA_ARRAY(temp, Change, 2 * n + 1);
  int64_t live = 0, most = 0;
  for (size_t i = 0; i < n; i++) {
    c[2 * i] = (Change){items[i].first, items[i].bytes};
    c[2 * i + 1] = (Change){items[i].last + 1, -items[i].bytes};
  }
  qsort(c, 2 * n, sizeof *c, by_step);
  if (step) *step = 0;
  /* what dies in a step is gone before what comes alive in it */
  for (size_t i = 0, k; i < 2 * n; i = k) {
    for (k = i; k < 2 * n && c[k].step == c[i].step; k++) live += c[k].bytes;
    if (live <= most) continue;
    most = live;
    if (step) *step = c[i].step;
  }
  return most;
}
