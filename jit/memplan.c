/* Places in one block of memory for values with known lifetimes. Knows arrays only.
 *
 * In: sizes and the steps in which each item is alive. Out: offsets and the size of the block. The
 * idea: items in the order of their size, largest first, each at the lowest offset where it meets
 * no item that is alive at the same time (greedy by size; Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference", 2020, section 5.2). Ties go by the first step, then by
 * number, so the answer depends on nothing else. O(n^2), which a thousand values take in
 * milliseconds.
 */
#include <stdlib.h>

#include "jit/plan.h"

static int by_size(const void *x, const void *y) {
  const MemItem *a = *(MemItem *const *)x, *b = *(MemItem *const *)y;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a < b ? -1 : a > b;
}

int64_t memplan(Arena *temp, MemItem *items, size_t n) {
  /* `order`: by size; `placed`: those done, by offset. */
  MemItem **order = ARENA_ARRAY(temp, MemItem *, n + 1),
          **placed = ARENA_ARRAY(temp, MemItem *, n + 1);
  int64_t total = 0;
  for (size_t i = 0; i < n; i++) order[i] = &items[i];
  qsort(order, n, sizeof *order, by_size);
  for (size_t i = 0; i < n; i++) {
    MemItem *x = order[i];
    int64_t at = 0;
    for (size_t k = 0; k < i; k++) {
      const MemItem *y = placed[k];
      if (y->last < x->first || x->last < y->first) continue;
      if (y->offset >= at + x->bytes) break; /* the gap before y holds it */
      if (y->offset + y->bytes > at) at = y->offset + y->bytes;
    }
    if (x->bytes > ((int64_t)1 << 62) - at) return -1;
    x->offset = at;
    if (at + x->bytes > total) total = at + x->bytes;
    size_t k = i;
    for (; k > 0 && placed[k - 1]->offset > at; k--) placed[k] = placed[k - 1];
    placed[k] = x;
  }
  return total;
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
