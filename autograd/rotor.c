/* The table of plans for a chain: which boundaries to keep, at which depth.
 *
 * In: the bytes and times of stages. Out: plans by need. The idea is that of Beaumont,
 * Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains: how
 * to train deep neural networks with limited memory", 2019. With stages i .. j - 1 ahead at depth
 * d, either the tape of stage i is kept, and stages from i + 1 on go on at depth d; or a boundary k
 * is kept, stages from k on go on at depth d, and then stages i .. k - 1 run again at depth d + 1:
 *     need = max(tape i + back i, tape i + need(d, i + 1, j)), where d > 0 with alone i first
 *     need = max(front of i .. k - 1, cross k + need(d, k, j), need(d + 1, i, k))
 * Instead of a table over classes of bytes, each (d, i, j) has a front: needs in steps of a few
 * percent with the least time for each, computed for the exact sum of bytes, so nothing is rounded
 * up stage by stage. Boundaries k are tried at distances from i that grow by an eighth inside of
 * pieces, by a quarter in pieces of these, and by half of that in long chains, where those outside
 * of pieces grow by a sixteenth, too. Segments of equal stages, as those of equal layers, have one
 * front.
 *
 * Invariants: a front has rising needs and falling times; the greatest depth keeps all tapes. */
#include "autograd/rotor.h"

#include <math.h>
#include <string.h>

enum { FEW_STAGES = 64, POINTS = 96, LESS = 20 };

typedef struct Front {
  uint32_t count;
  RotorPoint *p;
} Front;

typedef struct Twin { /* of stage i: the stages from it on are equal to those from `from` on */
  uint32_t from, length;
} Twin;

struct Rotor {
  Arena *a;
  const RotorStage *s;
  uint32_t n, most;              /* most: points of a front */
  int64_t limit;                 /* of the time of what runs again */
  int depth;                     /* the greatest */
  int64_t *time;                 /* of the stages before i */
  Twin *twin;                    /* per stage */
  Front *front[ROTOR_DEPTH + 1]; /* [i * (n + 1) + j] */
};

static Front *front_of(const Rotor *r, int depth, uint32_t i, uint32_t j) {
  return &r->front[depth][(size_t)i * (r->n + 1) + j];
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t tape_of(const Rotor *r, int depth, uint32_t i) {
  return depth ? r->s[i].again : r->s[i].tape;
}

/* ---- one front */

/* One way to begin: what is kept meanwhile, what it needs at least, and the fronts of what
 * follows. */
typedef struct Way {
  uint32_t cut; /* distance of the boundary from i; 0: none */
  int64_t kept, floor, time;
  const Front *rest, *again; /* again: NULL if nothing runs again */
} Way;

static Way keep_tape(const Rotor *r, int depth, uint32_t i, uint32_t j) {
  int64_t tape = tape_of(r, depth, i);
  return (Way){.kept = tape,
               .floor = larger(r->s[i].front, depth ? r->s[i].alone : tape + r->s[i].back),
               .rest = i + 1 < j ? front_of(r, depth, i + 1, j) : NULL};
}

static Way keep_boundary(const Rotor *r, int depth, uint32_t i, uint32_t k, uint32_t j,
                         int64_t front) {
  return (Way){.cut = k - i,
               .kept = k < j ? r->s[k - 1].cross : 0,
               .floor = front,
               .time = r->time[k] - r->time[i],
               .rest = k < j ? front_of(r, depth, k, j) : NULL,
               .again = front_of(r, depth + 1, i, k)};
}

static int64_t least(const Way *w) {
  int64_t need = w->floor;
  if (w->rest) need = larger(need, w->kept + w->rest->p[0].need);
  if (w->again) need = larger(need, w->again->p[0].need);
  return need;
}

/* The least time of a way, whatever it needs. */
static int64_t fastest(const Way *w) {
  int64_t time = w->time;
  if (w->rest) time += w->rest->p[w->rest->count - 1].time;
  if (w->again) time += w->again->p[w->again->count - 1].time;
  return time;
}

/* The point of a way for a need; *x and *y: where its fronts stand, which only move on. */
static RotorPoint way_at(const Way *w, int64_t need, uint32_t *x, uint32_t *y) {
  RotorPoint p = {w->floor, w->time, w->cut};
  if (w->rest) {
    const Front *f = w->rest;
    while (*x + 1 < f->count && w->kept + f->p[*x + 1].need <= need) ++*x;
    p.need = larger(p.need, w->kept + f->p[*x].need);
    p.time += f->p[*x].time;
  }
  if (w->again) {
    const Front *f = w->again;
    while (*y + 1 < f->count && f->p[*y + 1].need <= need) ++*y;
    p.need = larger(p.need, f->p[*y].need);
    p.time += f->p[*y].time;
  }
  return p;
}

/* Betters the point of each need, by this way. Times fall as needs rise, so there is an end where
 * the way at its fastest is no faster than the point. */
static void try_way(const Way *w, const int64_t *need, RotorPoint *best, uint32_t count) {
  uint32_t x = 0, y = 0, t = 0;
  int64_t low = least(w), fast = fastest(w);
  while (t < count && need[t] < low) t++;
  for (; t < count && (best[t].need < 0 || best[t].time >= fast); t++) {
    RotorPoint p = way_at(w, need[t], &x, &y);
    if (best[t].need < 0 || p.time < best[t].time ||
        (p.time == best[t].time && p.need < best[t].need))
      best[t] = p;
    if (p.time == fast) return;
  }
}

/* The next distance of a boundary. */
static uint32_t further(const Rotor *r, int depth, uint32_t d) {
  uint32_t part = depth > 1 ? 4 : 8;
  if (r->n > FEW_STAGES)
    part *= 2;
  else if (!depth)
    part = r->n;
  return d + 1 + d / part;
}

static void fill(Rotor *r, int depth, uint32_t i, uint32_t j) {
  Way ways[ROTOR_STAGES];
  uint32_t count = 0;
  ways[count++] = keep_tape(r, depth, i, j);
  int64_t front = 0;
  for (uint32_t d = 1, done = 0; depth < r->depth && i + d <= j; d = further(r, depth, d)) {
    uint32_t k = i + d;
    if (r->time[k] - r->time[i] > r->limit) break; /* longer pieces are too slow, too */
    for (; done < d; done++) front = larger(front, r->s[i + done].front);
    if (k == j && depth) break; /* the last boundary is kept at depth 0 only */
    ways[count++] = keep_boundary(r, depth, i, k, j, front);
  }
  int64_t low = INT64_MAX, high = least(&ways[0]);
  for (uint32_t w = 0; w < count; w++) low = least(&ways[w]) < low ? least(&ways[w]) : low;
  const Front *rest = ways[0].rest; /* with all tapes kept nothing more is gained */
  if (rest) high = larger(high, ways[0].kept + rest->p[rest->count - 1].need);
  int64_t need[POINTS];
  RotorPoint best[POINTS];
  uint32_t points = 0;
  double step = high > low ? log((double)high / (double)larger(low, 1)) / (r->most - 1) : 0;
  for (uint32_t t = 0; t < r->most; t++) {
    int64_t x = t + 1 == r->most ? high : (int64_t)((double)low * exp(step * t));
    if (t == 0) x = low;
    if (points && x <= need[points - 1]) continue;
    best[points].need = -1;
    need[points++] = x;
  }
  for (uint32_t w = 0; w < count; w++) try_way(&ways[w], need, best, points);
  uint32_t kept = 0;
  for (uint32_t t = 0; t < points; t++)
    if (best[t].need >= 0 && (!kept || best[t].time < best[kept - 1].time)) best[kept++] = best[t];
  Front *f = front_of(r, depth, i, j);
  *f = (Front){kept, ARENA_ARRAY(r->a, RotorPoint, kept)};
  memcpy(f->p, best, kept * sizeof *best);
}

/* For each stage the earlier one with the longest run of equal stages. */
static Twin *find_twins(Arena *a, const RotorStage *s, uint32_t n) {
  Twin *twin = ARENA_ARRAY(a, Twin, n + 1);
  for (uint32_t apart = 1; apart < n; apart++)
    for (uint32_t i = n, run = 0; i-- > apart;) {
      bool same = !memcmp(&s[i], &s[i - apart], sizeof *s); /* numbers alone, without padding */
      run = same ? run + 1 : 0;
      if (run > twin[i].length) twin[i] = (Twin){i - apart, run};
    }
  return twin;
}

/* Points of a front: the work of a table is about the same for each n. */
static uint32_t points_for(uint32_t n) {
  uint32_t points = 1200 / n;
  return points > POINTS ? POINTS : points < LESS ? LESS : points;
}

Rotor *rotor_make(Arena *a, const RotorStage *stages, uint32_t n, int depth, int64_t limit) {
  CK_ASSERT(a->mem, n > 0 && n <= ROTOR_STAGES && depth <= ROTOR_DEPTH);
  Rotor *r = ARENA_NEW(a, Rotor);
  *r = (Rotor){.a = a, .s = stages, .n = n, .depth = depth, .most = points_for(n), .limit = limit};
  r->time = ARENA_ARRAY(a, int64_t, n + 1);
  for (uint32_t i = 0; i < n; i++) r->time[i + 1] = r->time[i] + stages[i].time;
  r->twin = find_twins(a, stages, n);
  for (; depth >= 0; depth--) {
    r->front[depth] = ARENA_ARRAY(a, Front, (size_t)(n + 1) * (n + 1));
    for (uint32_t length = 1; length <= n; length++)
      for (uint32_t i = depth ? 0 : n - length; i + length <= n; i++) {
        const Twin *t = &r->twin[i];
        if (depth && r->time[i + length] - r->time[i] > limit) continue;
        if (depth && length <= t->length)
          *front_of(r, depth, i, i + length) = *front_of(r, depth, t->from, t->from + length);
        else
          fill(r, depth, i, i + length);
      }
  }
  return r;
}

/* ---- plans */

size_t rotor_points(const Rotor *r, const RotorPoint **points) {
  const Front *f = front_of(r, 0, 0, r->n);
  *points = f->p;
  return f->count;
}

/* The depth is bounded by ROTOR_DEPTH. */
static void rebuild(const Rotor *r, RotorPlan *p, int depth, uint32_t i, uint32_t j, int64_t need,
                    uint32_t around) {
  while (i < j) {
    const Front *f = front_of(r, depth, i, j);
    uint32_t t = 0;
    while (t + 1 < f->count && f->p[t + 1].need <= need) t++;
    uint32_t k = i + f->p[t].cut;
    if (k == i) {
      p->depth[i] = (uint8_t)depth;
      p->inside[i] = around;
      need -= tape_of(r, depth, i++);
      continue;
    }
    RotorPiece piece = {i, k, (uint32_t)depth + 1, around};
    VEC_PUSH(r->a, p->pieces, p->piece_count, p->piece_cap, piece);
    if (k < r->n) p->kept[k] = (uint8_t)depth;
    rebuild(r, p, depth + 1, i, k, need, (uint32_t)p->piece_count);
    if (k < j) need -= r->s[k - 1].cross;
    i = k;
  }
}

RotorPlan rotor_plan(Arena *a, const Rotor *r, int64_t need) {
  RotorPlan p = {0};
  p.depth = ARENA_ARRAY(a, uint8_t, r->n);
  p.kept = ARENA_ARRAY(a, uint8_t, r->n + 1);
  p.inside = ARENA_ARRAY(a, uint32_t, r->n);
  memset(p.kept, ROTOR_NOT, r->n + 1);
  rebuild(r, &p, 0, 0, r->n, need, 0);
  return p;
}
