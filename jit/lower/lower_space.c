/* Choosing loops: the pieces into which an index space is divided, and their order.
 *
 * In: sizes of axes and a function that does the pulls of a kernel. Out: sizes of loops, and the
 * loops. The pulls are tried in a kernel that is thrown away, at a spot made of one digit (atom)
 * per axis: a cut through an atom tells to try again with two; atoms that stand side by side
 * wherever a number is made of digits become one loop. So a chain of pointwise ops over contiguous
 * values is one loop whatever their rank, and a reshape under a transpose needs no division.
 *
 * An iteration of the outer loop is about 4,096 elements: enough to hide what an iteration costs,
 * and many iterations for the threads. */
#include <string.h>

#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"

enum { ITERATION = 4096, WHOLE = 8192, FEW = 1024, TRIES = 24, ACROSS = 32, ALONG = 64 };

static void trial(Low *w, Space *s, TrialFn pull, void *ud, Watch *t) {
  Low one = {.l = w->l, .group = w->group, .k = lp_new(w->l->arena), .e = w->e, .flops = w->flops};
  Digits d = {0}, kept = {0};
  one.memo = ARENA_NEW(w->l->arena, Memo);
  one.memo->keep = w->memo->keep;
  memset(t, 0, sizeof *t);
  t->split = -1;
  t->count = s->count;
  for (int k = 0; k < s->count; k++) {
    t->atom[k] = lp_size(one.k, k);
    t->size[k] = s->size[k];
    d.d[d.count++] = (Digit){t->atom[k], s->size[k]};
    if (s->cls[k] != REDUCED) kept.d[kept.count++] = d.d[k];
  }
  one.memo->watch = t;
  pull(&one, low_spot(&one, kept.d, kept.count), low_spot(&one, d.d, d.count), ud);
  if (one.failed) w->failed = true;
}

static void insert(Space *s, int k, Dim high, Dim low) {
  size_t n = (size_t)(s->count - k);
  memmove(&s->size[k + 1], &s->size[k], sizeof(Dim) * n);
  memmove(&s->cls[k + 1], &s->cls[k], n);
  s->size[k] = high;
  s->size[k + 1] = low;
  s->count++;
}

bool low_space(Low *w, int n, const Dim *size, const uint8_t *cls, TrialFn pull, void *ud,
               Space *out) {
  Watch t;
  Space s = {0};
  for (int i = 0; i < n; i++) {
    if (low_is(w, size[i], 1)) continue;
    s.size[s.count] = size[i];
    s.cls[s.count++] = cls ? cls[i] : 0;
  }
  for (int tries = 0;; tries++) {
    trial(w, &s, pull, ud, &t);
    if (w->failed) return false;
    if (t.split < 0 || tries == TRIES || s.count == MAX_DIGITS) break;
    insert(&s, t.split, t.high, t.low);
  }
  *out = (Space){0};
  for (int k = 0; k < s.count; k++) {
    bool join = k > 0 && !t.apart[k - 1] && s.cls[k] == s.cls[k - 1];
    int to = join ? out->count - 1 : out->count++;
    out->size[to] = join ? low_mul(w, out->size[to], s.size[k]) : s.size[k];
    out->crossed[to] = t.crossed[k];
    out->cls[to] = s.cls[k];
  }
  return !w->failed;
}

/* ---- loops */

LVal low_least(Low *w, LVal a, LVal b) {
  return lp_bin(w->k, RB_MIN, a, b);
}

LVal low_take(Low *w, LVal *t, Dim n) {
  LVal size = low_dim(w, n), d = lp_irem(w->k, *t, size);
  *t = lp_idiv(w->k, *t, size);
  return d;
}

Dim low_steps(Low *w, Dim below) {
  int64_t n;
  if (low_known(w, below, &n))
    return low_const_dim(w, n >= ITERATION ? 1 : ITERATION / (n > 0 ? n : 1));
  /* at least 1 whatever the size, and never a division by 0 */
  return low_div(w, low_add(w, below, low_const_dim(w, ITERATION)),
                 low_add(w, below, low_const_dim(w, 1)));
}

/* A block of loop k: opens it; *t loses the number of the block. */
static LVal open_block(Low *w, const Space *s, int k, int64_t block, LVal *t, bool vec) {
  Dim blocks = low_ceil_div(w, s->size[k], block);
  LVal from = lp_bin(w->k, RB_MUL, low_take(w, t, blocks), lp_i(w->k, block));
  LVal left = lp_bin(w->k, RB_SUB, low_dim(w, s->size[k]), from);
  LVal n = low_least(w, left, lp_i(w->k, block));
  return lp_bin(w->k, RB_ADD, from, vec ? lp_vec(w->k, n) : lp_for(w->k, n));
}

/* The loop, other than the last, along which a load is contiguous while the last loop jumps through
 * memory, if both are long, as in the copy of a transposed matrix; -1 = none. */
static int crossing(Low *w, const Space *s) {
  int m = s->count;
  int64_t n;
  if (m < 2 || (low_known(w, s->size[m - 1], &n) && n <= ALONG)) return -1;
  for (int k = m - 2; k >= 0; k--) {
    if (s->crossed[k] && !(low_known(w, s->size[k], &n) && n <= ACROSS)) return k;
  }
  return -1;
}

/* Makes iterations of tiles of loop `cross` and the last loop, so that cache lines that are read
 * across are consumed while they are in the cache. */
static void tiles(Low *w, const Space *s, int cross, Nest *n) {
  int m = s->count;
  LVal at[MAX_DIGITS];
  Dim iterations =
      low_mul(w, low_ceil_div(w, s->size[m - 1], ALONG), low_ceil_div(w, s->size[cross], ACROSS));
  for (int k = 0; k < m - 1; k++) {
    if (k != cross) iterations = low_mul(w, iterations, s->size[k]);
  }
  LVal t = lp_par(w->k, low_dim(w, iterations)), rest = t;
  for (int k = m - 2; k >= 0; k--) {
    if (k != cross) at[k] = low_take(w, &rest, s->size[k]);
  }
  at[cross] = open_block(w, s, cross, ACROSS, &rest, false);
  at[m - 1] = open_block(w, s, m - 1, ALONG, &rest, true);
  n->blocks = 3;
  for (int k = 0; k < m; k++) low_digit(w, &n->at, at[k], s->size[k]);
}

void low_nest(Low *w, const Space *s, Nest *n) {
  int m = s->count, j = m - 1;
  int64_t inner = 0, size, work;
  *n = (Nest){0};
  if (m == 0) {
    lp_par(w->k, lp_i(w->k, 1));
    n->blocks = 1;
    return;
  }
  int cross = crossing(w, s);
  if (cross >= 0) {
    tiles(w, s, cross, n);
    return;
  }
  bool known = low_known(w, s->size[m - 1], &inner), whole = known && inner <= WHOLE;
  /* Loops j .. m - 1 run in an iteration, of the first of them a block. */
  for (work = known ? inner : 0; j > 0 && work < FEW;) {
    j--;
    if (work == 0 || !low_known(w, s->size[j], &size)) break;
    work *= size;
  }
  Dim one = low_const_dim(w, 1), chunks = whole ? one : low_ceil_div(w, s->size[m - 1], ITERATION);
  Dim rows = one, blocks = one;
  if (j < m - 1) {
    Dim below = one;
    for (int k = j + 1; k < m; k++) below = low_mul(w, below, s->size[k]);
    rows = low_steps(w, below);
    blocks = low_div(w, low_sub(w, low_add(w, s->size[j], rows), one), rows);
  }
  Dim iterations = low_mul(w, blocks, chunks);
  for (int k = 0; k < j; k++) iterations = low_mul(w, iterations, s->size[k]);
  LVal t = lp_par(w->k, low_dim(w, iterations)), chunk = lp_i(w->k, 0), at[MAX_DIGITS];
  n->blocks = 1;
  if (!whole) chunk = low_take(w, &t, chunks);
  LVal block = j < m - 1 ? low_take(w, &t, blocks) : lp_i(w->k, 0);
  for (int k = j - 1; k > 0; k--) at[k] = low_take(w, &t, s->size[k]);
  if (j > 0) at[0] = t;
  for (int k = j; k < m - 1; k++) {
    LVal count = low_dim(w, s->size[k]), from = lp_i(w->k, 0);
    if (k == j) {
      from = lp_bin(w->k, RB_MUL, block, low_dim(w, rows));
      count = low_least(w, lp_bin(w->k, RB_SUB, count, from), low_dim(w, rows));
    }
    at[k] = lp_bin(w->k, RB_ADD, from, lp_for(w->k, count));
    n->blocks++;
  }
  LVal count = low_dim(w, s->size[m - 1]), from = lp_i(w->k, 0);
  if (!whole) {
    from = lp_bin(w->k, RB_MUL, chunk, lp_i(w->k, ITERATION));
    count = low_least(w, lp_bin(w->k, RB_SUB, count, from), lp_i(w->k, ITERATION));
  }
  at[m - 1] = lp_bin(w->k, RB_ADD, from, lp_vec(w->k, count));
  n->blocks++;
  for (int k = 0; k < m; k++) low_digit(w, &n->at, at[k], s->size[k]);
}

void low_nest_end(Low *w, Nest *n) {
  for (; n->blocks > 0; n->blocks--) lp_end(w->k);
}
