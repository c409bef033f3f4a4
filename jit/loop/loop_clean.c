/* The canonical form of a kernel.
 *
 * In: a verified kernel as lowering built it. Out: a kernel that computes the same, without dead or
 * repeated instructions. It is copied twice. `forward` folds constants as the builder does, shares
 * equal pure instructions if the earlier one is in scope, and removes blocks that run never or
 * once. `needed` then copies the instructions that a store, a check or a possible failure depends
 * on, constants and arguments first.
 *
 * Invariant: map[v] is where the value of the old instruction v is in the new kernel. */
#include "jit/loop/loop_impl.h"

#include <string.h>

#include "jit/loop/loop_elem.h"

/* Hash table of the pure instructions of a kernel under construction, by content. Instructions that
 * go out of scope stay in it. */
typedef struct Table {
  Kernel *k;
  LVal *head, *next; /* buckets, chains; LV_NONE ends a chain */
  size_t buckets;
} Table;

static Table table_new(Kernel *k, size_t most) {
  Table t = {.k = k, .buckets = 64};
  while (t.buckets < most) t.buckets *= 2;
  t.head = ARENA_ARRAY(k->arena, LVal, t.buckets);
  t.next = ARENA_ARRAY(k->arena, LVal, most);
  memset(t.head, 0xff, t.buckets * sizeof *t.head);
  return t;
}

static size_t hash(const Table *t, LVal v) {
  const LIns *in = &t->k->ins[v];
  uint64_t h = (uint64_t)in->op << 8 | in->dtype;
  h = (h ^ (uint64_t)in->imm) * 0x9e3779b97f4a7c15u;
  for (int i = 0; i < in->operand_count; i++) {
    h = (h ^ h >> 29 ^ lp_operand(t->k, v, i)) * 0x9e3779b97f4a7c15u;
  }
  return (size_t)(h >> 32) & (t->buckets - 1);
}

static bool equal(const Kernel *k, LVal a, LVal b) {
  const LIns *x = &k->ins[a], *y = &k->ins[b];
  bool same = x->op == y->op && x->dtype == y->dtype && x->imm == y->imm &&
              x->operand_count == y->operand_count;
  for (int i = 0; i < x->operand_count && same; i++)
    same = lp_operand(k, a, i) == lp_operand(k, b, i);
  return same;
}

/* v is the last instruction. If an equal one is in scope, removes v and returns that; else v. */
static LVal share(Table *t, LVal v) {
  Kernel *k = t->k;
  size_t h = hash(t, v);
  for (LVal o = t->head[h]; o != LV_NONE; o = t->next[o]) {
    int d = k->ins[o].depth;
    if (d > k->open_count || (d > 0 && o < k->open[d - 1]) || !equal(k, o, v)) continue;
    k->operand_count = k->ins[v].operand0;
    k->count = v;
    return o;
  }
  t->next[v] = t->head[h];
  t->head[h] = v;
  return v;
}

/* A new kernel with the buffers and arguments of k. */
static Kernel *like(Arena *a, const Kernel *k) {
  Kernel *n = lp_new(a);
  n->arg_count = k->arg_count;
  for (size_t i = 0; i < k->buf_count; i++)
    VEC_PUSH(a, n->bufs, n->buf_count, n->buf_cap, k->bufs[i]);
  return n;
}

static LVal copy(Kernel *to, const Kernel *k, LVal v, const LVal *map) {
  LVal operand[LP_MAX_OPERANDS];
  for (int i = 0; i < k->ins[v].operand_count; i++) operand[i] = map[lp_operand(k, v, i)];
  return lp_push(to, k->ins[v], k->ins[v].operand_count, operand);
}

/* ---- forward */

static LVal again(Kernel *to, const Kernel *k, LVal v, const LVal *map) {
  const LIns *in = &k->ins[v];
  LVal x[LP_MAX_OPERANDS];
  for (int i = 0; i < in->operand_count; i++) x[i] = map[lp_operand(k, v, i)];
  switch (in->op) {
  case LP_UN: return lp_un(to, (RefUn)in->imm, x[0]);
  case LP_BIN: return lp_bin(to, (RefBin)in->imm, x[0], x[1]);
  case LP_WHERE: return lp_where(to, x[0], x[1], x[2]);
  case LP_CAST: return lp_cast(to, x[0], (DType)in->dtype);
  case LP_IDIV: return lp_idiv(to, x[0], x[1]);
  case LP_IREM: return lp_irem(to, x[0], x[1]);
  case LP_RESULT:
  case LP_ROW:
  case LP_COL: return lp_op(to, (LOp)in->op, (DType)in->dtype, in->operand_count, x, in->imm);
  default: return lp_pure(to, (LOp)in->op, in->imm, (DType)in->dtype, in->operand_count, x);
  }
}

/* How often the block at v runs: 0, 1, or -1 if it is not known or does not matter. The outermost
 * LP_PAR stays, and so does a reduction, since its result is needed in any case. */
static int known_iterations(const Kernel *to, const Kernel *k, LVal v, const LVal *map) {
  const LIns *in = &k->ins[v];
  if (in->depth == 0 || in->op == LP_RED || in->op == LP_TILE) return -1;
  const LIns *n = &to->ins[map[lp_operand(k, v, 0)]];
  if (n->op != LP_CONST || n->imm > 1) return -1;
  return n->imm == 1;
}

static Kernel *forward(Arena *a, const Kernel *k) {
  Kernel *to = like(a, k);
  Table t = table_new(to, 2 * k->count + 2);
  LVal *map = ARENA_ARRAY(a, LVal, k->count + 1);
  uint8_t *gone = ARENA_ARRAY(a, uint8_t, k->count + 1); /* openers of removed blocks */
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    size_t before = to->count;
    if (lp_info[in->op].opens) {
      int n = known_iterations(to, k, v, map);
      if (n == 0) {
        v = in->match;
        continue;
      }
      if (n == 1) {
        gone[v] = 1;
        map[v] = lp_i(to, 0);
        continue;
      }
    }
    if (in->op == LP_END && gone[in->match]) continue;
    if (in->op == LP_CHECK) {
      LVal c = map[lp_operand(k, v, 0)];
      if (to->ins[c].op == LP_CONST && to->ins[c].imm) continue;
    }
    bool pure = lp_info[in->op].pure;
    map[v] = pure ? again(to, k, v, map) : copy(to, k, v, map);
    if ((pure || in->op == LP_CHECK) && to->count > before) map[v] = share(&t, (LVal)before);
  }
  return to;
}

/* ---- needed */

typedef struct Live {
  const Kernel *k;
  uint8_t *live;
  LVal *todo; /* a stack */
  size_t count;
} Live;

static void mark(Live *l, LVal v) {
  if (v == LV_NONE || l->live[v]) return;
  l->live[v] = 1;
  l->todo[l->count++] = v;
}

static uint8_t *find_live(Arena *a, const Kernel *k) {
  Live l = {.k = k};
  size_t n = k->count + 1;
  LVal *parent = ARENA_ARRAY(a, LVal, n), open[LP_MAX_DEPTH + 1] = {LV_NONE};
  LVal *set = ARENA_ARRAY(a, LVal, n), *next_set = ARENA_ARRAY(a, LVal, n); /* of a variable */
  l.live = ARENA_ARRAY(a, uint8_t, n);
  l.todo = ARENA_ARRAY(a, LVal, n);
  memset(set, 0xff, n * sizeof *set);
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    parent[v] = open[in->depth];
    if (lp_info[in->op].opens) open[in->depth + 1] = v;
    if (in->op == LP_SET) {
      LVal var = lp_operand(k, v, 0);
      next_set[v] = set[var];
      set[var] = v;
    }
    if (in->op == LP_STORE || in->op == LP_CHECK || lp_may_fail(k, v) ||
        (in->op == LP_PAR && in->depth == 0)) {
      mark(&l, v);
    }
  }
  while (l.count) {
    LVal v = l.todo[--l.count];
    mark(&l, parent[v]);
    for (int i = 0; i < k->ins[v].operand_count; i++) mark(&l, lp_operand(k, v, i));
    if (k->ins[v].op != LP_VAR) continue;
    for (LVal s = set[v]; s != LV_NONE; s = next_set[s]) mark(&l, s);
  }
  return l.live;
}

static Kernel *needed(Arena *a, const Kernel *k) {
  const uint8_t *live = find_live(a, k);
  Kernel *to = like(a, k);
  Table t = table_new(to, k->count + 1);
  LVal *map = ARENA_ARRAY(a, LVal, k->count + 1);
  for (LVal v = 0; v < k->count; v++) {
    if (!live[v] || (k->ins[v].op != LP_CONST && k->ins[v].op != LP_ARG)) continue;
    map[v] = share(&t, copy(to, k, v, map));
  }
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    if (in->op == LP_CONST || in->op == LP_ARG) continue;
    if (live[in->op == LP_END ? in->match : v]) map[v] = copy(to, k, v, map);
  }
  return to;
}

Kernel *lp_copy(Arena *a, const Kernel *k) {
  Kernel *n = ARENA_NEW(a, Kernel);
  *n = (Kernel){.arena = a, .arg_count = k->arg_count, .checked = k->checked};
  n->count = n->cap = k->count;
  n->operand_count = n->operand_cap = k->operand_count;
  n->buf_count = n->buf_cap = k->buf_count;
  n->ins = ARENA_ARRAY(a, LIns, k->count + 1);
  n->operands = ARENA_ARRAY(a, LVal, k->operand_count + 1);
  n->bufs = ARENA_ARRAY(a, LBuf, k->buf_count + 1);
  if (k->count) memcpy(n->ins, k->ins, k->count * sizeof *n->ins);
  if (k->operand_count) memcpy(n->operands, k->operands, k->operand_count * sizeof *n->operands);
  if (k->buf_count) memcpy(n->bufs, k->bufs, k->buf_count * sizeof *n->bufs);
  return n;
}

Kernel *lp_clean(Arena *a, const Kernel *k) {
  return needed(a, forward(a, k));
}
