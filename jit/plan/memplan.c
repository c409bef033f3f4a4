/* Places in one block of memory for values with known lifetimes. The input is arrays, no graph.
 *
 * In: sizes and the steps in which each item is alive. Out: offsets and the size of the block. The
 * idea: items in some order, each at the lowest offset where it meets no item that is alive at the
 * same time. First come those that are alive when most is ("greedy by breadth"; Pisarchyk and Lee,
 * "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5); then some other
 * orders. An item that ends above the aim goes to the front of its order, and all are placed anew
 * (Joslin and Clements, "Squeaky Wheel Optimization", 1999, with one wheel at a time). The first
 * aim is the most that is alive at once, which no block is below; it is met most often. Else each
 * order is as good as it is, and the aim the best block so far. Ties go by the first step, then by
 * number, so the answer depends on nothing else. O(n^2) a round, of which there is a number.
 */
#include <stdlib.h>

#include "jit/plan/plan.h"

typedef struct Wheel {
  MemItem *item;
  int64_t breadth; /* the most bytes alive in a step of the item's life */
} Wheel;

static int by_place(const MemItem *a, const MemItem *b) {
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a < b ? -1 : a > b;
}

static int by_size(const void *x, const void *y) {
  const MemItem *a = ((const Wheel *)x)->item, *b = ((const Wheel *)y)->item;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return by_place(a, b);
}

static int by_breadth(const void *x, const void *y) {
  int64_t a = ((const Wheel *)x)->breadth, b = ((const Wheel *)y)->breadth;
  if (a != b) return a > b ? -1 : 1;
  return by_size(x, y);
}

/* Long-lived items lie at the bottom, short-lived ones above them. */
static int by_life(const void *x, const void *y) {
  const MemItem *a = ((const Wheel *)x)->item, *b = ((const Wheel *)y)->item;
  uint32_t m = a->last - a->first, n = b->last - b->first;
  if (m != n) return m > n ? -1 : 1;
  return by_size(x, y);
}

static int by_area(const void *x, const void *y) {
  const MemItem *a = ((const Wheel *)x)->item, *b = ((const Wheel *)y)->item;
  double m = (double)a->bytes * (a->last - a->first + 1.0);
  double n = (double)b->bytes * (b->last - b->first + 1.0);
  if (m != n) return m > n ? -1 : 1;
  return by_place(a, b);
}

static int (*const orders[])(const void *, const void *) = {by_breadth, by_area, by_size, by_life};

typedef struct Placed {
  int64_t from, to;
  uint32_t first, last;
} Placed;

typedef struct Layout {
  Wheel *order;
  Placed *placed; /* by offset */
  size_t n;
  uint64_t looks; /* left: one for each pair of items that is looked at */
} Layout;

enum { ROUNDS = 32 };
static const uint64_t most_looks = UINT64_C(1) << 24;
static const int64_t end_of_memory = (int64_t)1 << 62;

/* Places the items in their order until one ends above `aim`. Returns how many found a place. */
static size_t place(Layout *l, int64_t aim, int64_t *total) {
  *total = 0;
  for (size_t i = 0; i < l->n; i++) {
    MemItem *x = l->order[i].item;
    int64_t at = 0;
    l->looks -= l->looks < i ? l->looks : i;
    for (size_t k = 0; k < i; k++) {
      const Placed *y = &l->placed[k];
      if (y->last < x->first || x->last < y->first) continue;
      if (y->from >= at + x->bytes) break; /* the gap before y holds it */
      if (y->to > at) at = y->to;
    }
    if (at > aim || x->bytes > aim - at) return i;
    x->offset = at;
    if (at + x->bytes > *total) *total = at + x->bytes;
    size_t k = i;
    for (; k > 0 && l->placed[k - 1].from > at; k--) l->placed[k] = l->placed[k - 1];
    l->placed[k] = (Placed){at, at + x->bytes, x->first, x->last};
  }
  return l->n;
}

/* Whether the items find places up to `aim`, the one that did not moving to the front each time. */
static bool squeak(Layout *l, int64_t aim, int64_t *total) {
  for (int round = 0; round < ROUNDS && l->looks; round++) {
    size_t k = place(l, aim, total);
    if (k == l->n) return true;
    Wheel w = l->order[k];
    for (; k > 0; k--) l->order[k] = l->order[k - 1];
    l->order[0] = w;
  }
  return false;
}

static void put_in_order(Layout *l, size_t which) {
  qsort(l->order, l->n, sizeof *l->order, orders[which]);
}

/* ---- what is alive */

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

/* The bytes alive from each step on in which they change. Returns the number of such steps. */
static size_t alive(Arena *temp, const MemItem *items, size_t n, Change **steps) {
  Change *c = *steps = ARENA_ARRAY(temp, Change, 2 * n + 1);
  for (size_t i = 0; i < n; i++) {
    c[2 * i] = (Change){items[i].first, items[i].bytes};
    c[2 * i + 1] = (Change){items[i].last + 1, -items[i].bytes};
  }
  qsort(c, 2 * n, sizeof *c, by_step);
  size_t count = 0;
  int64_t live = 0;
  /* what dies in a step is gone before what comes alive in it */
  for (size_t i = 0, k; i < 2 * n; i = k) {
    for (k = i; k < 2 * n && c[k].step == c[i].step; k++) live += c[k].bytes;
    c[count++] = (Change){c[i].step, live};
  }
  return count;
}

int64_t memplan_live(Arena *temp, const MemItem *items, size_t n, uint32_t *step) {
  Change *c;
  size_t count = alive(temp, items, n, &c);
  int64_t most = 0;
  if (step) *step = 0;
  for (size_t i = 0; i < count; i++) {
    if (c[i].bytes <= most) continue;
    most = c[i].bytes;
    if (step) *step = c[i].step;
  }
  return most;
}

/* The most bytes alive at once. */
static int64_t set_breadths(Arena *temp, Layout *l, const MemItem *items) {
  Change *c;
  size_t count = alive(temp, items, l->n, &c);
  int64_t most = 0;
  for (size_t i = 0; i < l->n; i++) {
    const MemItem *x = l->order[i].item;
    size_t from = 0, end = count;
    while (from + 1 < end) { /* the step in which x comes alive is one of them */
      size_t middle = from + (end - from) / 2;
      *(c[middle].step <= x->first ? &from : &end) = middle;
    }
    for (; from < count && c[from].step <= x->last; from++)
      if (c[from].bytes > l->order[i].breadth) l->order[i].breadth = c[from].bytes;
    if (l->order[i].breadth > most) most = l->order[i].breadth;
  }
  return most;
}

int64_t memplan(Arena *temp, MemItem *items, size_t n) {
  enum { ORDERS = sizeof orders / sizeof *orders };
  Layout l = {.n = n, .looks = most_looks};
  l.order = ARENA_ARRAY(temp, Wheel, n + 1);
  l.placed = ARENA_ARRAY(temp, Placed, n + 1);
  int64_t sum = 0, total;
  for (size_t i = 0; i < n; i++) {
    l.order[i].item = &items[i];
    if (items[i].bytes >= end_of_memory - sum) return -1;
    sum += items[i].bytes;
  }
  int64_t live = set_breadths(temp, &l, items);
  for (size_t t = 0; t < ORDERS; t++) {
    put_in_order(&l, t);
    if (squeak(&l, live, &total)) return total;
  }
  l.looks = most_looks;
  int64_t *best = ARENA_ARRAY(temp, int64_t, n + 1), least = end_of_memory; /* best: offsets */
  /* First each order as it is, then with less room, while there are looks left. */
  for (size_t t = 0; t < 2 * ORDERS && (!t || l.looks); t++) {
    put_in_order(&l, t % ORDERS);
    bool fits = t < ORDERS ? place(&l, least - 1, &total) == n : squeak(&l, least - 1, &total);
    while (fits) {
      least = total;
      for (size_t i = 0; i < n; i++) best[i] = items[i].offset;
      fits = t >= ORDERS && squeak(&l, least - 1, &total);
    }
  }
  for (size_t i = 0; i < n; i++) items[i].offset = best[i];
  return least;
}
