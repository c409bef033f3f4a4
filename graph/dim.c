/* Dims: integer polynomials over symbols, interned in normal form.
 *
 * In: constants, symbols, and + - * // % max min of dims. Out: a 32-bit id; equal ids are equal
 * polynomials. The idea: a polynomial is a sorted list of terms (coefficient, monomial), a
 * monomial a sorted list of atoms, an atom a symbol, the floor quotient or remainder of two
 * polynomials, or max(p, 0) of one. All three are hash-consed, and their order depends on their
 * structure alone, never on when they were made, so a dim prints the same in every table. Small
 * constants are ids by themselves (bit 31 set). A fact a % b == 0 is a rewrite rule, with
 * q = a // b, b = lead + rest: lead * q becomes a - rest * q, until no rule applies (a Groebner
 * reduction; the order of monomials is graded lexicographic). The invariant: limits on terms,
 * degree and tree size hold for every interned dim, so every walk is bounded; a dim beyond a limit
 * is DIM_BAD.
 * Rewrites used: floor((c*p + r) / c) = p + floor(r / c), (c*p + r) mod c = r mod c,
 * floor((x // b + k) / c) = floor((x + k*b) / (b*c)) for constants b, c > 0, common factors cancel,
 * exact quotients of polynomials (where the divisor is 0 they stand for the quotient's value).
 * One file: arithmetic, order and printing all work on the terms of the normal form, which no other
 * file may see.
 */
#include "graph/dim.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/table.h"

enum {
  MAX_TERMS = 192, /* terms of one polynomial */
  MAX_DEGREE = 48, /* atoms of one monomial */
  MAX_SIZE = 2000, /* atoms in the whole tree of a dim */
  MAX_DEPTH = 40,  /* nesting of // and % */
  MAX_STEPS = 400  /* rewriting steps of one reduction */
};
#define SMALL UINT32_C(0x80000000)
#define SMALL_MAX INT64_C(0x7ffffffe)

typedef enum AtomKind { ATOM_SYM, ATOM_DIV, ATOM_MOD, ATOM_POS } AtomKind;
typedef struct Atom {
  uint8_t kind, depth;
  uint16_t size;
  uint32_t a, b; /* SYM: a is the symbol; else the two dims */
} Atom;
typedef struct Mono {
  uint32_t first, count;
  uint16_t size;
  uint8_t depth;
} Mono;
typedef struct Term {
  int64_t k; /* not 0 */
  uint32_t mono;
} Term;
typedef struct Poly {
  uint32_t first, count;
  uint16_t size;
  uint8_t depth;
} Poly;
typedef struct Symbol {
  Name name;
  Span at;
  uint32_t nth; /* 1 for the first symbol of that name */
  bool counter;
  ptrdiff_t alike; /* the previous symbol whose name has this hash, or TABLE_NONE */
} Symbol;
typedef struct Fact {
  Dim a, b;   /* a % b == 0 as recorded */
  uint32_t q; /* atom of the quotient */
  int64_t k;  /* lead(b) = k * mono */
  uint32_t mono;
  Dim tail, right; /* b without its lead; the dim that b * q equals */
} Fact;

/* A set of ids, found by hash and a caller's comparison. */
typedef struct IdSet {
  uint32_t *slot; /* id + 1, 0 = free */
  size_t cap, count;
} IdSet;

struct DimTab {
  Arena *arena;
  Atom *atoms;
  size_t atom_count, atom_cap;
  Mono *monos;
  size_t mono_count, mono_cap;
  uint32_t *parts;
  size_t part_count, part_cap; /* atoms of monos */
  Poly *polys;
  size_t poly_count, poly_cap;
  Term *terms;
  size_t term_count, term_cap;
  Symbol *syms;
  size_t sym_count, sym_cap;
  Table by_name; /* the last symbol of each hash of a name; used if there are many symbols */
  size_t named;  /* how many of the first symbols it holds */
  Fact *facts;
  size_t fact_count, fact_cap;
  IdSet atom_set, mono_set, poly_set;
};

/* A polynomial under construction: sorted terms. */
typedef struct Acc {
  int n;
  bool bad;
  Term t[MAX_TERMS];
} Acc;

/* ---- hashing */
static uint64_t mix(uint64_t h, uint64_t x) {
  h ^= x + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
  h *= UINT64_C(0xff51afd7ed558ccd);
  return h ^ (h >> 32);
}

static uint64_t atom_hash(const Atom *a) {
  return mix(mix(mix(1, a->kind), a->a), a->b);
}

static uint64_t mono_hash(const uint32_t *atom, size_t n) {
  uint64_t h = 2;
  for (size_t i = 0; i < n; i++) h = mix(h, atom[i]);
  return h;
}

static uint64_t poly_hash(const Term *t, size_t n) {
  uint64_t h = 3;
  for (size_t i = 0; i < n; i++) h = mix(mix(h, (uint64_t)t[i].k), t[i].mono);
  return h;
}

/* Makes room for one more id; `hash_of` returns the hash of an id that is in the set. */
static void set_reserve(DimTab *t, IdSet *s, uint64_t (*hash_of)(const DimTab *t, uint32_t id)) {
  if ((s->count + 1) * 2 <= s->cap) return;
  size_t cap = s->cap ? s->cap * 2 : 64;
  uint32_t *slot = ARENA_ARRAY(t->arena, uint32_t, cap);
  for (size_t i = 0; i < s->cap; i++) {
    if (!s->slot[i]) continue;
    size_t at = (size_t)hash_of(t, s->slot[i] - 1) & (cap - 1);
    while (slot[at]) at = (at + 1) & (cap - 1);
    slot[at] = s->slot[i];
  }
  s->slot = slot;
  s->cap = cap;
}

static uint64_t atom_hash_of(const DimTab *t, uint32_t id) {
  return atom_hash(&t->atoms[id]);
}

static uint64_t mono_hash_of(const DimTab *t, uint32_t id) {
  return mono_hash(t->parts + t->monos[id].first, t->monos[id].count);
}

static uint64_t poly_hash_of(const DimTab *t, uint32_t id) {
  return poly_hash(t->terms + t->polys[id].first, t->polys[id].count);
}

/* ---- reading */
/* The terms of a dim; `one` is room for the single term of a small constant. */
static const Term *view(const DimTab *t, Dim d, Term *one, int *n) {
  if (d & SMALL) {
    one->k = d & ~SMALL;
    one->mono = 0;
    *n = one->k ? 1 : 0;
    return one;
  }
  if (d >= t->poly_count) d = 0;
  *n = (int)t->polys[d].count;
  return t->terms + t->polys[d].first;
}

bool dim_is_const(const DimTab *t, Dim d, int64_t *out) {
  if (d == DIM_BAD) return false;
  if (d & SMALL) {
    if (out) *out = d & ~SMALL;
    return true;
  }
  int n;
  Term one;
  const Term *p = view(t, d, &one, &n);
  if (n > 1 || (n == 1 && p[0].mono != 0)) return false;
  if (out) *out = n ? p[0].k : 0;
  return true;
}

bool dim_is_symbol(const DimTab *t, Dim d, Sym *out) {
  if (d == DIM_BAD || (d & SMALL)) return false;
  int n;
  Term one;
  const Term *p = view(t, d, &one, &n);
  if (n != 1 || p[0].k != 1 || t->monos[p[0].mono].count != 1) return false;
  const Atom *a = &t->atoms[t->parts[t->monos[p[0].mono].first]];
  if (a->kind != ATOM_SYM) return false;
  if (out) *out = a->a;
  return true;
}

bool dim_solve(const DimTab *t, Dim d, int64_t value, int64_t *out) {
  if (d == DIM_BAD || (d & SMALL)) return false;
  int n;
  Term one;
  const Term *p = view(t, d, &one, &n);
  int64_t rest = value, k = 0;
  for (int i = 0; i < n; i++) {
    const Mono *m = &t->monos[p[i].mono];
    if (!m->count && __builtin_sub_overflow(rest, p[i].k, &rest)) return false;
    if (!m->count) continue;
    if (k || m->count != 1 || t->atoms[t->parts[m->first]].kind != ATOM_SYM) return false;
    k = p[i].k;
  }
  if (!k || (k == -1 && rest == INT64_MIN) || rest % k) return false;
  *out = rest / k;
  return *out >= 0;
}

/* ---- order: by structure only */
static int atom_cmp(const DimTab *t, uint32_t x, uint32_t y);

static int mono_cmp(const DimTab *t, uint32_t x, uint32_t y) {
  if (x == y) return 0;
  const Mono *a = &t->monos[x], *b = &t->monos[y];
  if (a->count != b->count) return a->count > b->count ? -1 : 1;
  for (uint32_t i = 0; i < a->count; i++) {
    int c = atom_cmp(t, t->parts[a->first + i], t->parts[b->first + i]);
    if (c) return c;
  }
  return 0;
}

static int dim_cmp(const DimTab *t, Dim x, Dim y) {
  if (x == y) return 0;
  int n, m;
  Term one, two;
  const Term *p = view(t, x, &one, &n), *q = view(t, y, &two, &m);
  for (int i = 0; i < n && i < m; i++) {
    int c = mono_cmp(t, p[i].mono, q[i].mono);
    if (c) return c;
    if (p[i].k != q[i].k) return p[i].k < q[i].k ? -1 : 1;
  }
  return n < m ? -1 : n > m;
}

static int atom_cmp(const DimTab *t, uint32_t x, uint32_t y) {
  if (x == y) return 0;
  const Atom *a = &t->atoms[x], *b = &t->atoms[y];
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->kind == ATOM_SYM) return a->a < b->a ? -1 : 1;
  int c = dim_cmp(t, a->a, b->a);
  return c ? c : dim_cmp(t, a->b, b->b);
}

/* ---- interning. Memory is allocated before anything changes: a throw leaves the table intact. */
static uint32_t atom_get(DimTab *t, Atom a) {
  IdSet *s = &t->atom_set;
  set_reserve(t, s, atom_hash_of);
  size_t at = (size_t)atom_hash(&a) & (s->cap - 1);
  for (; s->slot[at]; at = (at + 1) & (s->cap - 1)) {
    const Atom *b = &t->atoms[s->slot[at] - 1];
    if (b->kind == a.kind && b->a == a.a && b->b == a.b) return s->slot[at] - 1;
  }
  VEC_PUSH(t->arena, t->atoms, t->atom_count, t->atom_cap, a);
  s->slot[at] = (uint32_t)t->atom_count;
  s->count++;
  return (uint32_t)t->atom_count - 1;
}

/* The monomial of sorted atoms; UINT32_MAX if it exceeds a limit. */
static uint32_t mono_get(DimTab *t, const uint32_t *atom, size_t n) {
  if (n > MAX_DEGREE) return UINT32_MAX;
  IdSet *s = &t->mono_set;
  set_reserve(t, s, mono_hash_of);
  size_t at = (size_t)mono_hash(atom, n) & (s->cap - 1);
  for (; s->slot[at]; at = (at + 1) & (s->cap - 1)) {
    const Mono *m = &t->monos[s->slot[at] - 1];
    if (m->count == n && (!n || !memcmp(t->parts + m->first, atom, n * sizeof *atom))) {
      return s->slot[at] - 1;
    }
  }
  size_t size = 0;
  uint8_t depth = 0;
  for (size_t i = 0; i < n; i++) {
    size += t->atoms[atom[i]].size;
    if (t->atoms[atom[i]].depth > depth) depth = t->atoms[atom[i]].depth;
  }
  if (size > MAX_SIZE) return UINT32_MAX;
  size_t first = t->part_count;
  for (size_t i = 0; i < n; i++) {
    VEC_PUSH(t->arena, t->parts, t->part_count, t->part_cap, atom[i]);
  }
  Mono m = {(uint32_t)first, (uint32_t)n, (uint16_t)size, depth};
  VEC_PUSH(t->arena, t->monos, t->mono_count, t->mono_cap, m);
  s->slot[at] = (uint32_t)t->mono_count;
  s->count++;
  return (uint32_t)t->mono_count - 1;
}

static Dim poly_get(DimTab *t, const Term *p, size_t n) {
  IdSet *s = &t->poly_set;
  set_reserve(t, s, poly_hash_of);
  size_t at = (size_t)poly_hash(p, n) & (s->cap - 1);
  for (; s->slot[at]; at = (at + 1) & (s->cap - 1)) {
    const Poly *q = &t->polys[s->slot[at] - 1];
    if (q->count != n) continue;
    const Term *r = t->terms + q->first;
    size_t i = 0;
    while (i < n && r[i].k == p[i].k && r[i].mono == p[i].mono) i++;
    if (i == n) return s->slot[at] - 1;
  }
  size_t size = 0;
  uint8_t depth = 0;
  for (size_t i = 0; i < n; i++) {
    size += t->monos[p[i].mono].size;
    if (t->monos[p[i].mono].depth > depth) depth = t->monos[p[i].mono].depth;
  }
  if (size > MAX_SIZE || t->poly_count >= SMALL - 1) return DIM_BAD;
  size_t first = t->term_count;
  for (size_t i = 0; i < n; i++) VEC_PUSH(t->arena, t->terms, t->term_count, t->term_cap, p[i]);
  Poly q = {(uint32_t)first, (uint32_t)n, (uint16_t)size, depth};
  VEC_PUSH(t->arena, t->polys, t->poly_count, t->poly_cap, q);
  s->slot[at] = (uint32_t)t->poly_count;
  s->count++;
  return (Dim)t->poly_count - 1;
}

Dim dim_const(DimTab *t, int64_t n) {
  if (n >= 0 && n <= SMALL_MAX) return SMALL | (uint32_t)n;
  Term one = {n, 0};
  return poly_get(t, &one, 1);
}

DimTab *dim_tab_new(Arena *a) {
  DimTab *t = ARENA_NEW(a, DimTab);
  t->arena = a;
  mono_get(t, NULL, 0); /* monomial 0 is 1 */
  /* Poly 0 is the number 0, so that a zeroed dim reads as 0; no function returns it. */
  VEC_PUSH(a, t->polys, t->poly_count, t->poly_cap, ((Poly){0, 0, 0, 0}));
  VEC_PUSH(a, t->terms, t->term_count, t->term_cap, ((Term){0, 0}));
  return t;
}

/* ---- arithmetic on polynomials under construction */
static void acc_add(DimTab *t, Acc *acc, int64_t k, uint32_t mono) {
  if (mono == UINT32_MAX) acc->bad = true;
  if (k == 0 || acc->bad) return;
  int lo = 0, hi = acc->n;
  while (lo < hi) {
    int mid = (lo + hi) / 2, c = mono_cmp(t, acc->t[mid].mono, mono);
    if (c == 0) {
      if (__builtin_add_overflow(acc->t[mid].k, k, &acc->t[mid].k)) acc->bad = true;
      if (acc->t[mid].k == 0) {
        memmove(acc->t + mid, acc->t + mid + 1, sizeof(Term) * (size_t)(acc->n - mid - 1));
        acc->n--;
      }
      return;
    }
    if (c < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  if (acc->n == MAX_TERMS) {
    acc->bad = true;
    return;
  }
  memmove(acc->t + lo + 1, acc->t + lo, sizeof(Term) * (size_t)(acc->n - lo));
  acc->t[lo] = (Term){k, mono};
  acc->n++;
}

static uint32_t mono_mul(DimTab *t, uint32_t x, uint32_t y) {
  if (x == UINT32_MAX || y == UINT32_MAX) return UINT32_MAX;
  if (x == 0) return y;
  if (y == 0) return x;
  const Mono a = t->monos[x], b = t->monos[y];
  if (a.count + b.count > MAX_DEGREE) return UINT32_MAX;
  uint32_t atom[MAX_DEGREE];
  size_t n = 0, i = 0, j = 0;
  while (i < a.count || j < b.count) {
    uint32_t p = i < a.count ? t->parts[a.first + i] : 0,
             q = j < b.count ? t->parts[b.first + j] : 0;
    if (j >= b.count || (i < a.count && atom_cmp(t, p, q) <= 0))
      atom[n++] = p, i++;
    else
      atom[n++] = q, j++;
  }
  return mono_get(t, atom, n);
}

/* x / y, or UINT32_MAX when y does not divide x. */
static uint32_t mono_div(DimTab *t, uint32_t x, uint32_t y) {
  if (y == 0) return x;
  const Mono a = t->monos[x], b = t->monos[y];
  if (b.count > a.count) return UINT32_MAX;
  uint32_t atom[MAX_DEGREE];
  size_t n = 0, j = 0;
  for (size_t i = 0; i < a.count; i++) {
    uint32_t p = t->parts[a.first + i];
    if (j < b.count && t->parts[b.first + j] == p)
      j++;
    else
      atom[n++] = p;
  }
  return j == b.count ? mono_get(t, atom, n) : UINT32_MAX;
}

/* acc += k * mono * d */
static void acc_add_mul(DimTab *t, Acc *acc, int64_t k, uint32_t mono, Dim d) {
  if (d == DIM_BAD) acc->bad = true;
  if (acc->bad || k == 0) return;
  int n;
  Term one;
  view(t, d, &one, &n);
  for (int i = 0; i < n && !acc->bad; i++) {
    Term u = view(t, d, &one, &n)[i]; /* interning may move the terms */
    int64_t c;
    if (__builtin_mul_overflow(u.k, k, &c))
      acc->bad = true;
    else
      acc_add(t, acc, c, mono_mul(t, u.mono, mono));
  }
}

static int64_t floor_quot(int64_t a, int64_t b) /* b > 0 */
{
  int64_t q = a / b;
  return a % b < 0 ? q - 1 : q;
}

static int64_t floor_rest(int64_t a,
                          int64_t b) /* b > 0; a - floor(a / b) * b may overflow on the way */
{
  int64_t r = a % b;
  return r < 0 ? r + b : r;
}

/* Applies the facts until none fits. */
static void acc_reduce(DimTab *t, Acc *acc) {
  int steps = 0;
again:
  if (acc->bad) return;
  for (int i = 0; i < acc->n; i++) {
    if (!t->monos[acc->t[i].mono].depth) continue;
    for (size_t f = 0; f < t->fact_count; f++) {
      const Fact fact = t->facts[f];
      uint32_t q = mono_get(t, &fact.q, 1), rest = mono_div(t, acc->t[i].mono, q);
      if (rest == UINT32_MAX) continue;
      rest = mono_div(t, rest, fact.mono);
      if (rest == UINT32_MAX) continue;
      int64_t times = floor_quot(acc->t[i].k, fact.k), off;
      if (times == 0 || times == INT64_MIN || __builtin_mul_overflow(-times, fact.k, &off))
        continue;
      acc_add(t, acc, off, acc->t[i].mono);
      acc_add_mul(t, acc, times, rest, fact.right);
      acc_add_mul(t, acc, -times, mono_mul(t, rest, q), fact.tail);
      if (++steps > MAX_STEPS) acc->bad = true;
      goto again;
    }
  }
}

static Dim acc_dim(DimTab *t, Acc *acc) {
  if (t->fact_count) acc_reduce(t, acc);
  if (acc->bad) return DIM_BAD;
  if (acc->n == 0) return SMALL;
  if (acc->n == 1 && acc->t[0].mono == 0) return dim_const(t, acc->t[0].k);
  return poly_get(t, acc->t, (size_t)acc->n);
}

static Dim combine(DimTab *t, Dim a, int64_t ka, Dim b, int64_t kb) {
  if (a == DIM_BAD || b == DIM_BAD) return DIM_BAD;
  Acc acc;
  acc.n = 0;
  acc.bad = false;
  acc_add_mul(t, &acc, ka, 0, a);
  acc_add_mul(t, &acc, kb, 0, b);
  return acc_dim(t, &acc);
}

Dim dim_renew(DimTab *t, Dim d) {
  if (d == DIM_BAD || (d & SMALL)) return d;
  return combine(t, d, 1, SMALL, 0);
}

Dim dim_add(DimTab *t, Dim a, Dim b) {
  int64_t x, y, z;
  if (dim_is_const(t, a, &x) && dim_is_const(t, b, &y)) {
    return __builtin_add_overflow(x, y, &z) ? DIM_BAD : dim_const(t, z);
  }
  return combine(t, a, 1, b, 1);
}

Dim dim_sub(DimTab *t, Dim a, Dim b) {
  int64_t x, y, z;
  if (dim_is_const(t, a, &x) && dim_is_const(t, b, &y)) {
    return __builtin_sub_overflow(x, y, &z) ? DIM_BAD : dim_const(t, z);
  }
  return combine(t, a, 1, b, -1);
}

Dim dim_mul(DimTab *t, Dim a, Dim b) {
  if (a == DIM_BAD || b == DIM_BAD) return DIM_BAD;
  int64_t x, y, z;
  bool ca = dim_is_const(t, a, &x), cb = dim_is_const(t, b, &y);
  if (ca && cb) return __builtin_mul_overflow(x, y, &z) ? DIM_BAD : dim_const(t, z);
  if (ca && x == 1) return dim_renew(t, b);
  if (cb && y == 1) return dim_renew(t, a);
  Acc acc;
  acc.n = 0;
  acc.bad = false;
  int n;
  Term one;
  view(t, a, &one, &n);
  for (int i = 0; i < n; i++) {
    Term u = view(t, a, &one, &n)[i];
    acc_add_mul(t, &acc, u.k, u.mono, b);
  }
  return acc_dim(t, &acc);
}

Dim dim_product(DimTab *t, int n, const Dim *d) {
  /* If one factor is 0 the product is 0, even if other products overflow. */
  for (int i = 0; i < n; i++) {
    if (d[i] == SMALL) return SMALL;
  }
  Dim p = SMALL | 1;
  for (int i = 0; i < n; i++) p = dim_mul(t, p, d[i]);
  return p;
}

/* ---- quotients and remainders */
static uint64_t gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

static uint64_t magnitude(int64_t k) {
  return k < 0 ? UINT64_C(0) - (uint64_t)k : (uint64_t)k;
}

/* Greatest common divisor of all coefficients of d and of g (0 = none yet). */
static uint64_t content(const DimTab *t, Dim d, uint64_t g) {
  int n;
  Term one;
  const Term *p = view(t, d, &one, &n);
  for (int i = 0; i < n; i++) g = gcd(g, magnitude(p[i].k));
  return g;
}

/* d / k, for a k that divides every coefficient. */
static Dim scale_down(DimTab *t, Dim d, int64_t k) {
  if (k == 1) return d;
  Acc acc;
  acc.bad = false;
  Term one;
  const Term *p = view(t, d, &one, &acc.n);
  memcpy(acc.t, p, sizeof(Term) * (size_t)acc.n);
  for (int i = 0; i < acc.n; i++) acc.t[i].k /= k;
  if (acc.n == 0) return SMALL;
  if (acc.n == 1 && acc.t[0].mono == 0) return dim_const(t, acc.t[0].k);
  return poly_get(t, acc.t, (size_t)acc.n);
}

/* The polynomial q with a = q * b, if there is one with integer coefficients; else DIM_BAD. */
static Dim exact_quotient(DimTab *t, Dim a, Dim b) {
  int n;
  Term one;
  const Term lead = view(t, b, &one, &n)[0];
  Dim quot = SMALL;
  for (int step = 0; step <= MAX_TERMS; step++) {
    if (a == SMALL) return quot;
    if (a == DIM_BAD) return DIM_BAD;
    Term u = view(t, a, &one, &n)[0];
    uint32_t m = mono_div(t, u.mono, lead.mono);
    if (m == UINT32_MAX || u.k == INT64_MIN || u.k % lead.k) return DIM_BAD;
    Term q = {u.k / lead.k, m};
    Dim part = m == 0 ? dim_const(t, q.k) : poly_get(t, &q, 1);
    if (part == DIM_BAD) return DIM_BAD;
    quot = dim_add(t, quot, part);
    a = dim_sub(t, a, dim_mul(t, part, b));
  }
  return DIM_BAD;
}

static Dim atom_dim(DimTab *t, AtomKind kind, Dim a, Dim b) {
  if (a == DIM_BAD || b == DIM_BAD) return DIM_BAD;
  unsigned size = 1, depth = 0;
  for (int i = 0; i < 2; i++) {
    Dim d = i ? b : a;
    if (d & SMALL) continue;
    size += t->polys[d].size;
    if (t->polys[d].depth > depth) depth = t->polys[d].depth;
  }
  if (size > MAX_SIZE || depth >= MAX_DEPTH) return DIM_BAD;
  uint32_t atom = atom_get(t, (Atom){(uint8_t)kind, (uint8_t)(depth + 1), (uint16_t)size, a, b});
  Acc acc;
  acc.n = 0;
  acc.bad = false;
  acc_add(t, &acc, 1, mono_get(t, &atom, 1));
  return acc_dim(t, &acc);
}

/* max(x, 0). Of x and -x one is kept, that with a positive first coefficient. */
static Dim positive(DimTab *t, Dim x) {
  int64_t k;
  int n;
  Term one;
  if (x == DIM_BAD) return x;
  if (dim_is_const(t, x, &k)) return k > 0 ? x : SMALL;
  if (dim_nonneg(t, x)) return x;
  Dim minus = dim_sub(t, SMALL, x);
  if (dim_nonneg(t, minus)) return SMALL;
  if (view(t, x, &one, &n)[0].k > 0) return atom_dim(t, ATOM_POS, x, SMALL);
  return dim_add(t, atom_dim(t, ATOM_POS, minus, SMALL), x);
}

Dim dim_max(DimTab *t, Dim a, Dim b) {
  return dim_add(t, b, positive(t, dim_sub(t, a, b)));
}

Dim dim_min(DimTab *t, Dim a, Dim b) {
  return dim_sub(t, a, positive(t, dim_sub(t, a, b)));
}

/* Splits a = c * p + r with every coefficient of r in [0, c). */
static Dim split(DimTab *t, Dim a, int64_t c, Dim *rest) {
  Acc p, r;
  p.n = r.n = 0;
  p.bad = r.bad = false;
  int n;
  Term one;
  const Term *u = view(t, a, &one, &n);
  for (int i = 0; i < n; i++) {
    int64_t q = floor_quot(u[i].k, c), m = floor_rest(u[i].k, c);
    if (q) p.t[p.n++] = (Term){q, u[i].mono};
    if (m) r.t[r.n++] = (Term){m, u[i].mono};
  }
  *rest = acc_dim(t, &r);
  return acc_dim(t, &p);
}

/* Whether d = atom + k, with one // or % atom of coefficient 1. */
static bool is_atom_plus(const DimTab *t, Dim d, Atom *atom, int64_t *k) {
  int n;
  Term one;
  const Term *u = view(t, d, &one, &n);
  if (n < 1 || n > 2 || u[0].k != 1 || t->monos[u[0].mono].count != 1) return false;
  if (n == 2 && u[1].mono != 0) return false;
  *atom = t->atoms[t->parts[t->monos[u[0].mono].first]];
  *k = n == 2 ? u[1].k : 0;
  return atom->kind != ATOM_SYM;
}

static Dim div_const(DimTab *t, Dim a, int64_t c) /* c > 0 */
{
  for (;;) {
    Dim rest, p = split(t, a, c, &rest);
    int64_t k, m, s;
    if (rest == DIM_BAD || p == DIM_BAD) return DIM_BAD;
    if (dim_is_const(t, rest, &k)) return p;
    int64_t g = (int64_t)content(t, rest, (uint64_t)c);
    rest = scale_down(t, rest, g);
    c /= g;
    Atom in;
    Dim q = DIM_BAD;
    if (is_atom_plus(t, rest, &in, &k) && dim_is_const(t, in.b, &m) && m > 0) {
      if (in.kind == ATOM_MOD && k >= 0 && k < c && m - 1 < c - k) return p;
      if (in.kind == ATOM_DIV && !__builtin_mul_overflow(m, c, &s) &&
          !__builtin_mul_overflow(k, m, &k)) {
        Dim x = dim_add(t, in.a, dim_const(t, k));
        if (x != DIM_BAD && p == SMALL) {
          a = x;
          c = s;
          continue;
        }
        if (x != DIM_BAD) q = dim_floordiv(t, x, dim_const(t, s));
      }
    }
    if (q == DIM_BAD) q = atom_dim(t, ATOM_DIV, rest, dim_const(t, c));
    return p == SMALL ? q : dim_add(t, p, q);
  }
}

Dim dim_floordiv(DimTab *t, Dim a, Dim b) {
  if (a == DIM_BAD || b == DIM_BAD || b == SMALL) return DIM_BAD;
  int64_t x, c;
  if (dim_is_const(t, b, &c)) {
    if (c < 0) {
      if (c == INT64_MIN) return DIM_BAD;
      a = dim_sub(t, SMALL, a);
      c = -c;
      if (a == DIM_BAD) return DIM_BAD;
    }
    if (dim_is_const(t, a, &x)) return dim_const(t, floor_quot(x, c));
    return div_const(t, a, c);
  }
  a = dim_renew(t, a);
  b = dim_renew(t, b);
  if (a == DIM_BAD || b == DIM_BAD) return DIM_BAD;
  if (dim_is_const(t, b, NULL)) return dim_floordiv(t, a, b);
  Dim q = exact_quotient(t, a, b);
  if (q != DIM_BAD) return q;
  uint64_t g = content(t, b, content(t, a, 0));
  if (g > 1 && g <= INT64_MAX) {
    a = scale_down(t, a, (int64_t)g);
    b = scale_down(t, b, (int64_t)g);
  }
  return atom_dim(t, ATOM_DIV, a, b);
}

static Dim mod_const(DimTab *t, Dim a, int64_t c) /* c > 0 */
{
  Dim rest;
  int64_t k, m;
  if (split(t, a, c, &rest) == DIM_BAD || rest == DIM_BAD) return DIM_BAD;
  if (dim_is_const(t, rest, &k)) return rest;
  int64_t g = (int64_t)content(t, rest, (uint64_t)c);
  rest = scale_down(t, rest, g);
  c /= g;
  Atom in;
  Dim out = DIM_BAD;
  if (is_atom_plus(t, rest, &in, &k) && in.kind == ATOM_MOD && dim_is_const(t, in.b, &m) && m > 0) {
    if (k >= 0 && k < c && m - 1 < c - k)
      out = rest;
    else if (m % c == 0)
      out = dim_mod(t, dim_add(t, in.a, dim_const(t, k)), dim_const(t, c));
  }
  if (out == DIM_BAD) {
    Dim quot = t->fact_count ? div_const(t, rest, c) : DIM_BAD;
    if (quot != DIM_BAD && dim_mul(t, dim_const(t, c), quot) == dim_renew(t, rest)) return SMALL;
    out = atom_dim(t, ATOM_MOD, rest, dim_const(t, c));
  }
  return g == 1 ? out : dim_mul(t, dim_const(t, g), out);
}

Dim dim_mod(DimTab *t, Dim a, Dim b) {
  if (a == DIM_BAD || b == DIM_BAD || b == SMALL) return DIM_BAD;
  int64_t x, c;
  if (dim_is_const(t, b, &c)) {
    if (c == INT64_MIN) return DIM_BAD;
    if (c < 0) {
      Dim m = dim_mod(t, dim_sub(t, SMALL, a), dim_const(t, -c));
      return dim_sub(t, SMALL, m);
    }
    if (dim_is_const(t, a, &x)) return dim_const(t, floor_rest(x, c));
    return mod_const(t, a, c);
  }
  a = dim_renew(t, a);
  b = dim_renew(t, b);
  if (a == DIM_BAD || b == DIM_BAD) return DIM_BAD;
  if (dim_is_const(t, b, NULL)) return dim_mod(t, a, b);
  if (exact_quotient(t, a, b) != DIM_BAD) return SMALL;
  if (t->fact_count && dim_mul(t, b, dim_floordiv(t, a, b)) == a) return SMALL;
  uint64_t g = content(t, b, content(t, a, 0));
  if (g > INT64_MAX) return DIM_BAD;
  if (g > 1) {
    a = scale_down(t, a, (int64_t)g);
    b = scale_down(t, b, (int64_t)g);
  }
  Dim m = atom_dim(t, ATOM_MOD, a, b);
  return g > 1 ? dim_mul(t, dim_const(t, (int64_t)g), m) : m;
}

void dim_assume_divides(DimTab *t, Dim a, Dim b) {
  for (size_t i = 0; i < t->fact_count; i++) {
    if (t->facts[i].a == a && t->facts[i].b == b) return;
  }
  Dim quot = dim_floordiv(t, a, b);
  if (quot == DIM_BAD) return;
  /* quot = p + q with one atom q of kind DIV: b * q = a - b * p. */
  int n;
  Term one;
  Fact f = {.a = a, .b = b};
  bool found = false;
  Dim p = SMALL;
  view(t, quot, &one, &n);
  for (int i = 0; i < n; i++) {
    Term u = view(t, quot, &one, &n)[i];
    const Mono *m = &t->monos[u.mono];
    if (!found && u.k == 1 && m->count == 1 && t->atoms[t->parts[m->first]].kind == ATOM_DIV) {
      f.q = t->parts[m->first];
      found = true;
    } else {
      p = dim_add(t, p, u.mono ? poly_get(t, &u, 1) : dim_const(t, u.k));
    }
  }
  if (!found) return;
  Dim right = dim_sub(t, a, dim_mul(t, b, p));
  if (right == DIM_BAD) return;
  uint64_t g = content(t, b, content(t, right, 0));
  if (g == 0 || g > INT64_MAX) return;
  right = scale_down(t, right, (int64_t)g);
  b = scale_down(t, b, (int64_t)g);
  Term lead = view(t, b, &one, &n)[0];
  if (lead.k < 0) {
    right = dim_sub(t, SMALL, right);
    b = dim_sub(t, SMALL, b);
    lead = view(t, b, &one, &n)[0];
  }
  if (right == DIM_BAD || b == DIM_BAD || lead.k < 0) return;
  f.k = lead.k;
  f.mono = lead.mono;
  f.right = right;
  f.tail = dim_sub(t, b, lead.mono ? poly_get(t, &lead, 1) : dim_const(t, lead.k));
  if (f.tail == DIM_BAD) return;
  VEC_PUSH(t->arena, t->facts, t->fact_count, t->fact_cap, f);
}

bool dim_fact(const DimTab *t, size_t i, Dim *a, Dim *b) {
  if (i >= t->fact_count) return false;
  *a = t->facts[i].a;
  *b = t->facts[i].b;
  return true;
}

/* Whether d, which is no constant, is never 0: the factors of all its terms but the constant one
 * have a common divisor that does not divide that one. */
static bool never_zero(const DimTab *t, Dim d) {
  int n;
  Term one;
  const Term *p = view(t, d, &one, &n);
  uint64_t divisor = 0, rest = 0;
  for (int i = 0; i < n; i++) {
    if (p[i].mono == 0)
      rest = magnitude(p[i].k);
    else
      divisor = gcd(divisor, magnitude(p[i].k));
  }
  return divisor && rest % divisor != 0;
}

DimOrder dim_compare(DimTab *t, Dim a, Dim b) {
  if (a == DIM_BAD || b == DIM_BAD) return DIM_MAYBE;
  if (a == b) return DIM_EQUAL;
  if ((a & SMALL) && (b & SMALL)) return DIM_DIFFERENT;
  Dim d = dim_sub(t, a, b), one = dim_const(t, 1);
  int64_t k;
  if (d == DIM_BAD) return DIM_MAYBE;
  if (dim_is_const(t, d, &k)) return k == 0 ? DIM_EQUAL : DIM_DIFFERENT;
  bool differ = never_zero(t, d) || dim_nonneg(t, dim_sub(t, d, one)) ||
                dim_nonneg(t, dim_sub(t, dim_sub(t, b, a), one));
  return differ ? DIM_DIFFERENT : DIM_MAYBE;
}

bool dim_nonneg(const DimTab *t, Dim d) {
  if (d == DIM_BAD) return false;
  if (d & SMALL) return true;
  int n;
  Term one;
  const Term *u = view(t, d, &one, &n);
  for (int i = 0; i < n; i++) {
    if (u[i].k < 0) return false;
    const Mono *m = &t->monos[u[i].mono];
    for (uint32_t j = 0; j < m->count; j++) {
      const Atom *a = &t->atoms[t->parts[m->first + j]];
      if (a->kind == ATOM_SYM || a->kind == ATOM_POS) continue;
      if (!dim_nonneg(t, a->b) || (a->kind == ATOM_DIV && !dim_nonneg(t, a->a))) return false;
    }
  }
  return true;
}

bool dim_valid(const DimTab *t, int64_t x) {
  if (x < 0 || x >= (int64_t)DIM_BAD) return false;
  return (x & SMALL) || x < (int64_t)t->poly_count;
}

Arena *dim_arena(const DimTab *t) {
  return t->arena;
}

/* ---- symbols */
static bool same_name(Name a, Name b) {
  return a == b || (a && b && *a == *b && !strcmp(a, b));
}

static uint64_t name_hash(Name name) {
  return name ? XXH3_64bits(name, strlen(name)) : 0;
}

/* The number of symbols with this name. */
static uint32_t so_called(DimTab *t, Name name) {
  enum { FEW = 16 };
  uint32_t nth = 0;
  if (t->sym_count <= FEW) {
    for (size_t i = 0; i < t->sym_count; i++) nth += same_name(t->syms[i].name, name);
    return nth;
  }
  t->by_name.arena = t->arena;
  for (; t->named < t->sym_count; t->named++) {
    uint64_t key = name_hash(t->syms[t->named].name);
    t->syms[t->named].alike = table_get(&t->by_name, key);
    table_set(&t->by_name, key, t->named);
  }
  ptrdiff_t i = table_get(&t->by_name, name_hash(name));
  while (i != TABLE_NONE && !same_name(t->syms[i].name, name)) i = t->syms[i].alike;
  return i == TABLE_NONE ? 0 : t->syms[i].nth;
}

Dim dim_symbol(DimTab *t, Name name, Span at, Sym *out) {
  Symbol s = {name, at, so_called(t, name) + 1, false, TABLE_NONE};
  Sym id = (Sym)t->sym_count;
  uint32_t atom = atom_get(t, (Atom){ATOM_SYM, 0, 1, id, 0});
  Term u = {1, mono_get(t, &atom, 1)};
  Dim d = poly_get(t, &u, 1);
  VEC_PUSH(t->arena, t->syms, t->sym_count, t->sym_cap, s);
  if (out) *out = id;
  return d;
}

Dim dim_counter(DimTab *t, Name name, Span at, Sym *out) {
  Sym s;
  Dim d = dim_symbol(t, name, at, &s);
  t->syms[s].counter = true;
  if (out) *out = s;
  return d;
}

bool dim_is_counter(const DimTab *t, Sym s) {
  return s < t->sym_count && t->syms[s].counter;
}

Dim dim_of_symbol(DimTab *t, Sym s) {
  uint32_t atom = atom_get(t, (Atom){ATOM_SYM, 0, 1, s, 0});
  Term u = {1, mono_get(t, &atom, 1)};
  return poly_get(t, &u, 1);
}

Sym dim_symbol_count(const DimTab *t) {
  return (Sym)t->sym_count;
}

Name dim_symbol_name(const DimTab *t, Sym s) {
  return s < t->sym_count ? t->syms[s].name : NULL;
}

Span dim_symbol_span(const DimTab *t, Sym s) {
  return s < t->sym_count ? t->syms[s].at : (Span){0, 0, 0};
}

void dim_symbols(const DimTab *t, Dim d, void (*f)(void *ud, Sym s), void *ud) {
  if (d == DIM_BAD || (d & SMALL)) return;
  int n;
  Term one;
  view(t, d, &one, &n);
  for (int i = 0; i < n; i++) {
    const Mono m = t->monos[view(t, d, &one, &n)[i].mono];
    for (uint32_t j = 0; j < m.count; j++) {
      const Atom a = t->atoms[t->parts[m.first + j]];
      if (a.kind == ATOM_SYM) {
        f(ud, a.a);
      } else {
        dim_symbols(t, a.a, f, ud);
        dim_symbols(t, a.b, f, ud);
      }
    }
  }
}

Dim dim_import(DimTab *dst, const DimTab *src, Dim d, const Dim *to, Sym count) {
  if (d == DIM_BAD || (d & SMALL)) return d;
  int n;
  Term one;
  Dim sum = SMALL;
  view(src, d, &one, &n);
  for (int i = 0; i < n && sum != DIM_BAD; i++) {
    const Term u = view(src, d, &one, &n)[i];
    const Mono m = src->monos[u.mono];
    Dim p = dim_const(dst, u.k);
    for (uint32_t j = 0; j < m.count && p != DIM_BAD; j++) {
      const Atom a = src->atoms[src->parts[m.first + j]];
      Dim v;
      if (a.kind == ATOM_SYM) {
        v = a.a < count ? to[a.a] : DIM_BAD;
        if (v == DIM_BAD && dst == src) v = dim_of_symbol(dst, a.a);
      } else {
        Dim x = dim_import(dst, src, a.a, to, count), y = dim_import(dst, src, a.b, to, count);
        v = a.kind == ATOM_POS   ? positive(dst, x)
            : a.kind == ATOM_DIV ? dim_floordiv(dst, x, y)
                                 : dim_mod(dst, x, y);
      }
      p = dim_mul(dst, p, v);
    }
    sum = dim_add(dst, sum, p);
  }
  return sum;
}

/* ---- values */
bool dim_eval(const DimTab *t, Dim d, const int64_t *env, const bool *bound, int64_t *out) {
  if (d == DIM_BAD) return false;
  if (d & SMALL) {
    *out = d & ~SMALL;
    return true;
  }
  int n;
  Term one;
  const Term *u = view(t, d, &one, &n);
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    int64_t p = u[i].k;
    const Mono *m = &t->monos[u[i].mono];
    for (uint32_t j = 0; j < m->count; j++) {
      const Atom *a = &t->atoms[t->parts[m->first + j]];
      int64_t v, x, y;
      if (a->kind == ATOM_SYM) {
        if (!env || (bound && !bound[a->a])) return false;
        v = env[a->a];
        if (t->syms[a->a].counter && v-- < 1) return false;
      } else if (a->kind == ATOM_POS) {
        if (!dim_eval(t, a->a, env, bound, &x)) return false;
        v = x > 0 ? x : 0;
      } else {
        if (!dim_eval(t, a->a, env, bound, &x) || !dim_eval(t, a->b, env, bound, &y)) return false;
        if (y == -1) { /* x // y may overflow, x % y does not */
          if (a->kind == ATOM_DIV && x == INT64_MIN) return false;
          x = a->kind == ATOM_DIV ? -x : 0, y = 1;
        }
        if (y == 0) return false;
        int64_t q = x / y, r = x % y;
        if (r != 0 && (r < 0) != (y < 0)) q--, r += y;
        v = a->kind == ATOM_DIV ? q : r;
      }
      if (__builtin_mul_overflow(p, v, &p)) return false;
    }
    if (__builtin_add_overflow(sum, p, &sum)) return false;
  }
  *out = sum;
  return true;
}

/* ---- text (dim_read.c reads it): n, 2*n*m - 3, (n + 1)//4, n % 4, max(n - 2, 0); the second
 * symbol of a name is n'2; ?7 is symbol 7 */
static void print_symbol(Buf *out, const DimTab *t, Sym s) {
  if (s >= t->sym_count || !dim_name_reads(t->syms[s].name))
    buf_printf(out, "?%u", (unsigned)s);
  else if (t->syms[s].nth == 1)
    buf_puts(out, t->syms[s].name);
  else
    buf_printf(out, "%s'%u", t->syms[s].name, (unsigned)t->syms[s].nth);
}

static void print_side(Buf *out, const DimTab *t, Dim d) {
  int64_t k;
  bool bare = dim_is_symbol(t, d, NULL) || (dim_is_const(t, d, &k) && k >= 0);
  if (!bare) buf_putc(out, '(');
  dim_print(out, t, d);
  if (!bare) buf_putc(out, ')');
}

static void print_atom(Buf *out, const DimTab *t, uint32_t id, bool alone) {
  const Atom *a = &t->atoms[id];
  if (a->kind == ATOM_SYM) {
    print_symbol(out, t, a->a);
    return;
  }
  if (a->kind == ATOM_POS) {
    buf_puts(out, "max(");
    dim_print(out, t, a->a);
    buf_puts(out, ", 0)");
    return;
  }
  if (!alone) buf_putc(out, '(');
  print_side(out, t, a->a);
  buf_puts(out, a->kind == ATOM_DIV ? "//" : " % ");
  print_side(out, t, a->b);
  if (!alone) buf_putc(out, ')');
}

void dim_print(Buf *out, const DimTab *t, Dim d) {
  if (d == DIM_BAD) {
    buf_puts(out, "bad");
    return;
  }
  int n;
  Term one;
  const Term *u = view(t, d, &one, &n);
  if (n == 0) buf_putc(out, '0');
  for (int i = 0; i < n; i++) {
    const Mono *m = &t->monos[u[i].mono];
    if (i)
      buf_puts(out, u[i].k < 0 ? " - " : " + ");
    else if (u[i].k < 0)
      buf_putc(out, '-');
    uint64_t k = magnitude(u[i].k);
    if (k != 1 || m->count == 0) {
      buf_printf(out, "%llu", (unsigned long long)k);
      if (m->count) buf_putc(out, '*');
    }
    for (uint32_t j = 0; j < m->count; j++) {
      if (j) buf_putc(out, '*');
      print_atom(out, t, t->parts[m->first + j], m->count == 1 && k == 1 && u[i].k > 0);
    }
  }
}
