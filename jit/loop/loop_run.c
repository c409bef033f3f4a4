/* Walking a kernel, one scalar at a time: the meaning of loop form.
 *
 * In: a verified kernel, its buffers and arguments, and iterations of the outermost LP_PAR. Out:
 * their stores. lp_eval does every scalar step; this file adds loops, memory, variables and
 * reductions, whose order is that of rule 105. Iterations without order are taken in ascending
 * order.
 *
 * Local buffers are blocks of their own, new for each iteration and filled with ones (a NaN, or
 * -1), so that a read before the first write shows, and a sanitizer sees an overrun.
 *
 * Invariant: val[v] is the value of instruction v in the present iteration of every block around
 * it; the value of an LP_YIELD is the number of its accumulator. */
#include "jit/loop/loop_impl.h"

#include <math.h>
#include <string.h>

#include "runtime/fmath.h"
#include "runtime/half.h"
#include "runtime/reference/ref_scalar.h"

enum { LANES = 16, BLOCK = 4096, LEVELS = 64 };

/* The state of one reduction, in the computing type. CHAIN: lane[0] is the chain of this block,
 * level[0] the sum of the chains before. FIRST: lane[0] is the best so far. */
typedef struct Acc {
  LScalar lane[LANES], level[LEVELS];
  LScalar result;
  int64_t n, won;
  int depth;
} Acc;

typedef struct Run {
  const Kernel *k;
  void **buf;              /* all buffers, the local ones too */
  const int64_t *elements; /* NULL: nothing is checked */
  int64_t *local;          /* elements of the local buffers */
  const int64_t *arg;
  LScalar *val;
  Acc *acc;
  int64_t row, col; /* in the tile */
  KStatus *st;
  Err *e;
  bool outside; /* an access was out of bounds */
} Run;

/* ---- sizes */

static int64_t local_count(const Kernel *k, int b, const int64_t *args) {
  int64_t n = k->bufs[b].arg < 0 ? 1 : args[k->bufs[b].arg], each = k->bufs[b].each;
  if (n <= 0 || each <= 0) return 0;
  return n > (INT64_MAX >> 4) / each ? INT64_MAX >> 4 : n * each;
}

int64_t lp_local_bytes(const Kernel *k, const int64_t *args) {
  int64_t all = 0;
  for (size_t b = 0; b < k->buf_count; b++) {
    if (k->bufs[b].kind != LB_LOCAL) continue;
    int64_t bytes = local_count(k, (int)b, args) * (int64_t)dt_size((DType)k->bufs[b].dtype);
    bytes = (bytes + 63) & ~(int64_t)63;
    all = all > INT64_MAX - 64 - bytes ? INT64_MAX - 64 : all + bytes;
  }
  return all;
}

static LVal the_par(const Kernel *k) {
  LVal v = 0;
  while (k->ins[v].op != LP_PAR) v++;
  return v;
}

int64_t lp_iterations(const Kernel *k, const int64_t *args) {
  const LIns *n = &k->ins[lp_operand(k, the_par(k), 0)];
  int64_t iterations = n->op == LP_ARG ? args[n->imm] : n->imm;
  return iterations > 0 ? iterations : 0;
}

/* ---- memory */

static bool reach(Run *r, unsigned b, int64_t at) {
  if (!r->elements && r->k->bufs[b].kind != LB_LOCAL) return true;
  int64_t n = r->k->bufs[b].kind == LB_LOCAL ? r->local[b] : r->elements[b];
  if (at >= 0 && at < n) return true;
  if (!r->outside)
    err_set(r->e, "element %lld of b%u, which has %lld", (long long)at, b, (long long)n);
  r->outside = true;
  return false;
}

static LScalar load(Run *r, unsigned b, int64_t at) {
  LScalar v = {0};
  const void *p = r->buf[b];
  if (!reach(r, b, at)) return v;
  switch (r->k->bufs[b].dtype) {
  case DT_BOOL: v.i = ((const uint8_t *)p)[at] != 0; break;
  case DT_U8: v.i = ((const uint8_t *)p)[at]; break;
  case DT_I8: v.i = ((const int8_t *)p)[at]; break;
  case DT_I16: v.i = ((const int16_t *)p)[at]; break;
  case DT_I32: v.i = ((const int32_t *)p)[at]; break;
  case DT_I64: v.i = ((const int64_t *)p)[at]; break;
  case DT_F16: v.f = hf_f32_from_f16(((const uint16_t *)p)[at]); break;
  case DT_BF16: v.f = hf_f32_from_bf16(((const uint16_t *)p)[at]); break;
  case DT_F32: v.f = ((const float *)p)[at]; break;
  default: v.d = ((const double *)p)[at]; break;
  }
  return v;
}

static void store(Run *r, unsigned b, int64_t at, LScalar v) {
  void *p = r->buf[b];
  if (!reach(r, b, at)) return;
  switch (r->k->bufs[b].dtype) {
  case DT_BOOL:
  case DT_U8: ((uint8_t *)p)[at] = (uint8_t)v.i; break;
  case DT_I8: ((int8_t *)p)[at] = (int8_t)v.i; break;
  case DT_I16: ((int16_t *)p)[at] = (int16_t)v.i; break;
  case DT_I32: ((int32_t *)p)[at] = (int32_t)v.i; break;
  case DT_I64: ((int64_t *)p)[at] = v.i; break;
  case DT_F16: ((uint16_t *)p)[at] = hf_f16_from_f32(v.f); break;
  case DT_BF16: ((uint16_t *)p)[at] = hf_bf16_from_f32(v.f); break;
  case DT_F32: ((float *)p)[at] = v.f; break;
  default: ((double *)p)[at] = v.d; break;
  }
}

/* ---- reductions */

static LScalar red_start(LRed kind, DType dt) {
  LScalar v = {0};
  bool max = kind == RED_MAX || kind == RED_ANY, min = kind == RED_MIN || kind == RED_ALL;
  double d = kind == RED_PROD  ? 1
             : kind == RED_SUM ? -0.0
             : max             ? -(double)INFINITY
             : min             ? (double)INFINITY
                               : 0;
  if (dt == DT_F64)
    v.d = d;
  else if (dt_float(dt))
    v.f = (float)d;
  else
    v.i = kind == RED_PROD ? 1 : max ? INT64_MIN : min ? INT64_MAX : 0;
  return v;
}

/* Combines two partial results, x the earlier one. */
static LScalar combine(LRed kind, DType dt, LScalar x, LScalar y) {
  bool max = kind == RED_MAX || kind == RED_ANY, min = kind == RED_MIN || kind == RED_ALL;
  LScalar v = {0};
  if (dt == DT_F64) {
    v.d = kind == RED_PROD ? x.d * y.d
          : max            ? ref_max_f64(x.d, y.d)
          : min            ? ref_min_f64(x.d, y.d)
                           : x.d + y.d;
  } else if (dt_float(dt)) {
    v.f = kind == RED_PROD ? x.f * y.f
          : max            ? ref_max_f32(x.f, y.f)
          : min            ? ref_min_f32(x.f, y.f)
                           : x.f + y.f;
  } else if (max || min) {
    v.i = (x.i > y.i) == max ? x.i : y.i;
  } else {
    v.u = kind == RED_PROD ? x.u * y.u : x.u + y.u;
  }
  return v;
}

static LScalar fma_acc(DType dt, LScalar x, LScalar y, LScalar acc) {
  if (dt == DT_F64)
    acc.d = fm_fma64(x.d, y.d, acc.d);
  else if (dt_float(dt))
    acc.f = fm_fma32(x.f, y.f, acc.f);
  else
    acc.u += x.u * y.u;
  return acc;
}

static void red_begin(Acc *a, LRed kind, DType dt) {
  a->n = a->won = a->depth = 0;
  for (int j = 0; j < LANES; j++) a->lane[j] = red_start(kind, dt);
}

/* Ends a block, a full one or the last: adds its result to the tree. */
static void red_block(Acc *a, LRed kind, DType dt) {
  int64_t block = (a->n - 1) / BLOCK;
  if (kind == RED_CHAIN) {
    a->level[0] = block == 0 ? a->lane[0] : combine(RED_SUM, dt, a->level[0], a->lane[0]);
    a->lane[0] = red_start(kind, dt);
    return;
  }
  for (int h = LANES / 2; h > 0; h /= 2)
    for (int j = 0; j < h; j++) a->lane[j] = combine(kind, dt, a->lane[j], a->lane[j + h]);
  LScalar v = a->lane[0];
  /* Merging as a binary counter carries makes the tree split at the largest power of two. */
  for (int c = __builtin_ctzll(~(uint64_t)block); c > 0; c--) {
    v = combine(kind, dt, a->level[--a->depth], v);
  }
  a->level[a->depth++] = v;
  for (int j = 0; j < LANES; j++) a->lane[j] = red_start(kind, dt);
}

/* A NaN beats every number, the first NaN beats later ones; among equals the first wins. */
static bool beats(bool max, DType dt, LScalar v, LScalar best) {
  if (!dt_float(dt)) return max ? v.i > best.i : v.i < best.i;
  double x = dt == DT_F64 ? v.d : (double)v.f, y = dt == DT_F64 ? best.d : (double)best.f;
  return y == y && (x != x || (max ? x > y : x < y));
}

static void red_add(Acc *a, LRed kind, DType dt, LScalar x, LScalar y) {
  if (kind == RED_FIRST_MAX || kind == RED_FIRST_MIN) {
    if (a->n == 0 || beats(kind == RED_FIRST_MAX, dt, x, a->lane[0])) {
      a->lane[0] = x;
      a->won = a->n;
    }
    a->n++;
    return;
  }
  LScalar *lane = &a->lane[kind == RED_CHAIN ? 0 : a->n % LANES];
  *lane =
      kind == RED_CHAIN || kind == RED_FMA ? fma_acc(dt, x, y, *lane) : combine(kind, dt, *lane, x);
  if (++a->n % BLOCK == 0) red_block(a, kind, dt);
}

static void red_end(Acc *a, LRed kind, DType dt) {
  static const int64_t low[] = {0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  LScalar v = red_start(kind, dt);
  if (kind == RED_FIRST_MAX || kind == RED_FIRST_MIN) {
    a->result.i = a->won;
    return;
  }
  if (a->n % BLOCK) red_block(a, kind, dt);
  if (a->n && kind == RED_CHAIN) {
    v = a->level[0];
  } else if (a->n) {
    v = a->level[--a->depth];
    while (a->depth > 0) v = combine(kind, dt, a->level[--a->depth], v);
  } else if (kind == RED_SUM) {
    v = (LScalar){0};
  } else if (!dt_float(dt) && kind >= RED_MAX && kind <= RED_ALL) {
    v.i = kind == RED_MAX || kind == RED_ANY ? low[dt] : high[dt];
  }
  if (dt == DT_F64)
    a->result = v;
  else if (dt_float(dt))
    a->result.f = lp_round(dt, v.f);
  else
    a->result.i = lp_wrap(dt, v.i);
}

/* Calls f for the yields directly in the reduction at v. */
static void red_each(Run *r, LVal v, void (*f)(Acc *a, LRed kind, DType dt)) {
  const LIns *ins = r->k->ins;
  for (LVal i = v + 1; i < ins[v].match; i++) {
    if (lp_info[ins[i].op].opens)
      i = ins[i].match;
    else if (ins[i].op == LP_YIELD) {
      f(&r->acc[r->val[i].u], (LRed)ins[i].imm, lp_dtype(r->k, lp_operand(r->k, i, 0)));
    }
  }
}

/* ---- walking */

static void walk(Run *r, LVal from, LVal to);

static LScalar value(const Run *r, LVal v, int i) {
  return r->val[lp_operand(r->k, v, i)];
}

static void iterations(Run *r, LVal v) {
  int64_t n = value(r, v, 0).i;
  for (int64_t t = 0; t < n && !r->st->stop && !r->outside; t++) {
    r->val[v].i = t;
    walk(r, v + 1, r->k->ins[v].match);
  }
}

/* Index of element (i, k) of an operand of a tile; an overflow wraps. */
static int64_t place(int64_t start, int64_t i, int64_t row, int64_t k, int64_t by) {
  return (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)row + (uint64_t)k * (uint64_t)by);
}

static void tile(Run *r, LVal v) {
  const LIns *in = &r->k->ins[v];
  DType dt = (DType)in->dtype;
  int64_t x[TILE_OPERANDS];
  for (int i = 0; i < TILE_OPERANDS; i++) x[i] = value(r, v, i).i;
  if (x[TILE_ROWS] > in->mr) x[TILE_ROWS] = in->mr;
  if (x[TILE_COLS] > in->nr) x[TILE_COLS] = in->nr;
  for (int64_t i = 0; i < x[TILE_ROWS]; i++)
    for (int64_t j = 0; j < x[TILE_COLS] && !r->st->stop && !r->outside; j++) {
      LScalar acc = {0};
      if (in->buf_start != LP_NO_BUF) {
        acc = load(r, in->buf_start, place(x[TILE_START], i, x[TILE_START_ROW], j, 1));
      }
      for (int64_t k = 0; k < x[TILE_DEPTH] && !r->outside && !r->st->stop; k++) {
        LScalar a = load(r, in->buf, place(x[TILE_A], i, x[TILE_A_ROW], k, x[TILE_A_STEP]));
        acc = fma_acc(dt, a, load(r, in->buf_b, place(x[TILE_B], j, 1, k, x[TILE_B_STEP])), acc);
      }
      r->val[v] = acc;
      r->row = i;
      r->col = j;
      walk(r, v + 1, in->match);
    }
}

static void step(Run *r, LVal v) {
  const LIns *in = &r->k->ins[v];
  LScalar x[LP_MAX_OPERANDS] = {{0}};
  LVal o;
  for (int i = 0; i < in->operand_count; i++) x[i] = value(r, v, i);
  switch (in->op) {
  case LP_YIELD:
    red_add(&r->acc[r->val[v].u], (LRed)in->imm, lp_dtype(r->k, lp_operand(r->k, v, 0)), x[0],
            x[1]);
    break;
  case LP_RESULT: r->val[v] = r->acc[x[0].u].result; break;
  case LP_ROW: r->val[v].i = r->row; break;
  case LP_COL: r->val[v].i = r->col; break;
  case LP_CONST: r->val[v] = lp_scalar((DType)in->dtype, in->imm); break;
  case LP_ARG: r->val[v] = lp_scalar((DType)in->dtype, r->arg[in->imm]); break;
  case LP_LOAD: r->val[v] = load(r, in->buf, x[0].i); break;
  case LP_STORE: store(r, in->buf, x[0].i, x[1]); break;
  case LP_VAR:
  case LP_GET: r->val[v] = x[0]; break;
  case LP_SET: r->val[lp_operand(r->k, v, 0)] = x[1]; break;
  case LP_CHECK:
    if (!x[0].i) r->st->failed = 1;
    break;
  default:
    o = lp_operand(r->k, v, in->operand_count - 1);
    if (!lp_eval((LOp)in->op, in->imm, (DType)in->dtype, lp_dtype(r->k, o), x, &r->val[v])) {
      r->st->failed = 1;
    }
    break;
  }
}

static void walk(Run *r, LVal from, LVal to) {
  for (LVal v = from; v < to && !r->outside; v++) {
    const LIns *in = &r->k->ins[v];
    switch (in->op) {
    case LP_PAR:
    case LP_VEC:
    case LP_FOR: iterations(r, v); break;
    case LP_RED:
      red_each(r, v, red_begin);
      iterations(r, v);
      red_each(r, v, red_end);
      break;
    case LP_IF:
      if (value(r, v, 0).i) walk(r, v + 1, in->match);
      break;
    case LP_TILE: tile(r, v); break;
    default: step(r, v); continue;
    }
    v = in->match;
  }
}

/* ---- a launch */

/* Working memory: the state of reductions, values, and the buffers, with those of LB_LOCAL at the
 * end, each rounded up to 16 bytes. */
static size_t local_room(const Kernel *k, size_t b, const int64_t *arg) {
  size_t bytes = (size_t)local_count(k, (int)b, arg) * dt_size((DType)k->bufs[b].dtype);
  return (bytes + 16) & ~(size_t)15;
}

static size_t count_accs(const Kernel *k) {
  size_t accs = 0;
  for (LVal v = 0; v < k->count; v++) accs += k->ins[v].op == LP_YIELD;
  return accs;
}

size_t lp_run_room(const Kernel *k, const int64_t *arg) {
  size_t b = k->buf_count, bytes = count_accs(k) * sizeof(Acc) + k->count * sizeof(LScalar) +
                                   b * (sizeof(void *) + sizeof(int64_t)) + 16;
  for (size_t i = 0; i < b && bytes < PTRDIFF_MAX; i++)
    if (k->bufs[i].kind == LB_LOCAL) bytes += local_room(k, i, arg);
  return bytes < PTRDIFF_MAX ? bytes : PTRDIFF_MAX;
}

static void new_locals(Run *r) {
  for (size_t b = 0; b < r->k->buf_count; b++)
    if (r->k->bufs[b].kind == LB_LOCAL) memset(r->buf[b], 0xff, local_room(r->k, b, r->arg));
}

bool lp_run_in(void *room, const Kernel *k, void *const *buf, const int64_t *elements,
               const int64_t *arg, int64_t lo, int64_t hi, KStatus *st, Err *e) {
  size_t accs = count_accs(k), n = k->count, b = k->buf_count;
  memset(room, 0, accs * sizeof(Acc) + n * sizeof(LScalar));
  Run r = {.k = k, .elements = elements, .arg = arg, .st = st, .e = e};
  r.acc = room;
  r.val = (LScalar *)(r.acc + accs);
  r.local = (int64_t *)(r.val + n);
  r.buf = (void **)(r.local + b);
  char *next = (char *)(((uintptr_t)(r.buf + b) + 15) & ~(uintptr_t)15);
  for (size_t i = 0; i < b; i++) {
    bool local = k->bufs[i].kind == LB_LOCAL;
    r.local[i] = local ? local_count(k, (int)i, arg) : 0;
    r.buf[i] = local ? next : buf[i];
    if (local) next += local_room(k, i, arg);
  }
  accs = 0;
  for (LVal v = 0; v < n; v++)
    if (k->ins[v].op == LP_YIELD) r.val[v].u = accs++;
  LVal par = the_par(k);
  walk(&r, 0, par);
  for (int64_t t = lo; t < hi && !st->stop && !r.outside; t++) {
    r.val[par].i = t;
    new_locals(&r);
    walk(&r, par + 1, k->ins[par].match);
  }
  return !r.outside;
}

bool lp_run_within(Mem *m, const Kernel *k, void *const *buf, const int64_t *elements,
                   const int64_t *arg, int64_t lo, int64_t hi, KStatus *st, Err *e) {
  size_t bytes = lp_run_room(k, arg);
  void *room = mem_try(m, NULL, 0, bytes);
  if (!room) return err_nomem(e, NULL);
  bool ok = lp_run_in(room, k, buf, elements, arg, lo, hi, st, e);
  mem_free(m, room, bytes);
  return ok;
}

bool lp_run(Mem *m, const Kernel *k, void *const *buf, const int64_t *arg, int64_t lo, int64_t hi,
            KStatus *st) {
  return lp_run_within(m, k, buf, NULL, arg, lo, hi, st, NULL);
}
