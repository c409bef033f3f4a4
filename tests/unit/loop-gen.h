/* Random kernels in loop form, and data for them: what one way of running them does, every other
 * has to.
 *
 * A kernel is a pure function of its seed. Every address is in bounds, no iteration reads what
 * another one writes, and stores of different lanes go to different places, so the result is one
 * for any order of iterations. Every structure and every op of the form occurs. One file: blocks,
 * statements and data come from one generator, so that a kernel is a function of its seed. */
#ifndef TESTS_UNIT_LOOP_GEN_H
#define TESTS_UNIT_LOOP_GEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "jit/loop/loop_elem.h"
#include "jit/loop/loop_impl.h"
#include "runtime/domain.h"
#include "runtime/half.h"

#if defined(__GNUC__)
#define LG_UNUSED __attribute__((unused))
#else
#define LG_UNUSED
#endif

enum {
  LG_IN = 4096,
  LG_OUT = 8192,
  LG_LOCAL = 64, /* elements */
  LG_ARGS = 8,
  LG_BUFS = 2 * DT_COUNT + 2, /* 2 dt: input, 2 dt + 1: output; one LB_INOUT f32; one local */
  LG_INOUT = 2 * DT_COUNT,
  LG_SCRATCH,
  LG_POOL = 256,
  LG_WORK = 30000
};

typedef struct LoopGen {
  Kernel *k;
  uint64_t rng, seed;
  int64_t arg[LG_ARGS];  /* 0: iterations; 1 .. 5 small sizes; 6, 7 literals as bits of f64 */
  DType often[4];        /* what most of it computes in */
  LVal pool[LG_POOL];    /* values in scope */
  int pool_count, ins;   /* ins: instructions that may still be made */
  bool local;            /* the local buffer is filled */
  int64_t used[LG_BUFS]; /* of each output */
} LoopGen;

/* What is around the next instruction. */
typedef struct LgPlace {
  LVal lin; /* differs between all iterations that have no order; below `bound` */
  int64_t bound, work;
  bool lanes, red, tile;
  int depth;
} LgPlace;

static uint64_t lg_rnd(LoopGen *g) { /* SplitMix64 */
  uint64_t z = (g->rng += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int lg_below(LoopGen *g, int n) {
  return (int)(lg_rnd(g) % (uint64_t)n);
}

static void lg_keep(LoopGen *g, LVal v) {
  g->ins--;
  if (g->pool_count < LG_POOL) g->pool[g->pool_count++] = v;
}

static double lg_number(LoopGen *g) {
  static const double special[] = {0, -0.0, 1, -1, 0.5, 2, 1e-40, 65504, 3e38, 1e300, -3.5, 88};
  int r = lg_below(g, 40);
  if (r < 12) return special[r];
  if (r == 12)
    return lg_below(g, 2) ? hf_float64(0x7ff0000000000000u) : hf_float64(0x7ff8000000000000u);
  return (double)(int64_t)(lg_rnd(g) >> 40) / 0x1p22 - 2;
}

/* A value of this dtype, from the pool where there is one. */
static LVal lg_value(LoopGen *g, DType dt) {
  for (int tries = 0; tries < 12 && g->pool_count; tries++) {
    int last = g->pool_count < 8 || lg_below(g, 3) == 0 ? g->pool_count : 8; /* rather a new one */
    LVal v = g->pool[g->pool_count - 1 - lg_below(g, last)];
    if (lp_dtype(g->k, v) == dt) return v;
  }
  if (g->pool_count && lg_below(g, 4))
    return lp_cast(g->k, g->pool[lg_below(g, g->pool_count)], dt);
  if (dt_float(dt) && lg_below(g, 3) == 0) return lp_num(g->k, dt, 6 + lg_below(g, 2));
  return lp_const(g->k, dt, dt_float(dt) ? lg_number(g) : lg_below(g, 9) - 3);
}

static DType lg_dtype(LoopGen *g) {
  return lg_below(g, 12) ? g->often[lg_below(g, 4)] : (DType)lg_below(g, DT_COUNT);
}

/* An index below `n`, in one of the forms that lowering makes: uniform, in step with the
 * iterations, from the end, any. */
static LVal lg_index(LoopGen *g, const LgPlace *at, int64_t n) {
  Kernel *k = g->k;
  LVal limit = lp_i(k, n), v;
  switch (lg_below(g, 6)) {
  case 0: return lp_i(k, lg_below(g, (int)n));
  case 1: /* any number, brought into bounds */
    v = lp_cast(k, lg_value(g, DT_I64), DT_I64);
    return lp_bin(k, RB_MAX, lp_bin(k, RB_MIN, v, lp_i(k, n - 1)), lp_i(k, 0));
  case 2: /* with a step */
    v = lp_bin(k, RB_MUL, at->lin, lp_i(k, 1 + lg_below(g, 4)));
    return at->bound * 4 < n ? v : lp_irem(k, v, limit);
  case 3:
    v = at->bound <= n ? at->lin : lp_irem(k, at->lin, limit);
    return lp_bin(k, RB_SUB, lp_i(k, n - 1), v);
  default: return at->bound <= n ? at->lin : lp_irem(k, at->lin, limit);
  }
}

static void lg_load(LoopGen *g, const LgPlace *at) {
  if (g->local && lg_below(g, 4) == 0) {
    lg_keep(g, lp_load(g->k, LG_SCRATCH, lg_index(g, at, LG_LOCAL)));
  } else {
    lg_keep(g, lp_load(g->k, 2 * (int)lg_dtype(g), lg_index(g, at, LG_IN)));
  }
}

/* Each place that stores has a part of the output of its own. */
static void lg_store(LoopGen *g, const LgPlace *at) {
  DType dt = lg_dtype(g);
  int b = lg_below(g, 8) == 0 ? LG_INOUT : 2 * (int)dt + 1;
  if (g->used[b] + at->bound > LG_OUT) return;
  LVal index = lp_bin(g->k, RB_ADD, at->lin, lp_i(g->k, g->used[b]));
  g->used[b] += at->bound;
  if (b == LG_INOUT) {
    dt = DT_F32;
    if (lg_below(g, 2)) lg_keep(g, lp_load(g->k, b, index));
  }
  lp_store(g->k, b, index, lg_value(g, dt));
  g->ins--;
}

static LVal lg_divisor(LoopGen *g) {
  if (lg_below(g, 3)) return lp_i(g->k, 1 + lg_below(g, 20));
  return lp_bin(g->k, RB_ADD, lp_size(g->k, 1 + lg_below(g, 5)), lp_i(g->k, 1));
}

/* A function of floats: all but `not`; of two numbers: all but `and` and `or`. */
static RefUn lg_un_of_floats(LoopGen *g) {
  int f = (int)lg_below(g, RU_COUNT - 1);
  return (RefUn)(f + (f >= RU_NOT));
}
static RefBin lg_bin_of_numbers(LoopGen *g) {
  _Static_assert(RB_OR == RB_AND + 1, "skipped together");
  int f = (int)lg_below(g, RB_COUNT - 2);
  return (RefBin)(f + 2 * (f >= RB_AND));
}

static void lg_pure(LoopGen *g, const LgPlace *at) {
  Kernel *k = g->k;
  DType dt = lg_dtype(g);
  LVal x = lg_value(g, dt), y = lg_value(g, dt), v[6];
  static const RefUn on_int[] = {RU_NEG, RU_ABS, RU_SIGN, RU_RELU, RU_FLOOR, RU_CEIL, RU_ROUND};
  switch (lg_below(g, 12)) {
  case 0:
  case 1:
  case 2:
    if (dt == DT_BOOL)
      lg_keep(g, lp_un(k, RU_NOT, x));
    else if (dt_float(dt))
      lg_keep(g, lp_un(k, lg_un_of_floats(g), x));
    else
      lg_keep(g, lp_un(k, on_int[lg_below(g, 7)], x));
    break;
  case 3:
  case 4:
  case 5:
  case 6: {
    RefBin f = lg_bin_of_numbers(g);
    if (dt == DT_BOOL) f = !lg_below(g, 2) ? RB_EQ : lg_below(g, 2) ? RB_OR : RB_AND;
    if (dt_int(dt) && elem_bin[f].domain == DOM_FLOAT) f = RB_SUB;
    if (dt_int(dt) && (f == RB_FLOORDIV || f == RB_MOD || f == RB_POW) && lg_below(g, 20)) {
      y = lp_const(k, dt, 1 + lg_below(g, 7)); /* seldom what may fail */
    }
    lg_keep(g, lp_bin(k, f, x, y));
    break;
  }
  case 7: lg_keep(g, lp_where(k, lg_value(g, DT_BOOL), x, y)); break;
  case 8:
  case 9: lg_keep(g, lp_cast(k, x, lg_dtype(g))); break;
  case 10:
    if (dt != DT_BOOL) lg_keep(g, lp_fma(k, x, y, lg_value(g, dt)));
    break;
  default:
    for (int i = 0; i < 6; i++) v[i] = lg_value(g, DT_I64);
    switch (lg_below(g, 7)) {
    case 0: lg_keep(g, lp_idiv(k, at->lin, lg_divisor(g))); break;
    case 1: lg_keep(g, lp_irem(k, at->lin, lg_divisor(g))); break;
    case 2: {
      LVal one = lp_bin(k, RB_ADD, at->lin, lp_i(k, 1));
      lg_keep(g, lp_op(k, LP_CTZ, DT_I64, 1, &one, 0));
      break;
    }
    case 3:
      v[2] = at->lin;
      v[3] = lp_i(k, 1 + lg_below(g, 1000));
      lg_keep(g, lp_op(k, LP_RANDINT, DT_I64, 4, v, 0));
      break;
    case 4: lg_keep(g, lp_op(k, LP_FOLD, DT_I64, 2, v, 0)); break;
    case 5: lg_keep(g, lp_op(k, LP_PHILOX, DT_I64, 6, v, lg_below(g, 4))); break;
    default:
      v[2] = at->lin;
      dt = (DType)(DT_F16 + lg_below(g, 4));
      lg_keep(g, lp_op(k, lg_below(g, 2) ? LP_UNIFORM : LP_NORMAL, dt, 3, v, 0));
      break;
    }
    break;
  }
}

/* A count of iterations, the same for all lanes, at most *most. */
static LVal lg_count(LoopGen *g, const LgPlace *at, int64_t *most) {
  static const int64_t counts[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 40};
  int i = 1 + lg_below(g, 5);
  if (!at->lanes && lg_below(g, 5) == 0) {
    *most = 6;
    return lp_irem(g->k, at->lin, lp_i(g->k, 7));
  }
  *most = lg_below(g, 2) ? counts[lg_below(g, 12)] : g->arg[i];
  return *most == g->arg[i] ? lp_size(g->k, i) : lp_i(g->k, *most);
}

static void lg_block(LoopGen *g, LgPlace at, int statements);

/* at, inside iterations without order, whose number is t. */
static LgPlace lg_iterations(LoopGen *g, LgPlace at, LVal t, int64_t most) {
  if (most < 1) most = 1;
  at.lin = lp_bin(g->k, RB_ADD, lp_bin(g->k, RB_MUL, at.lin, lp_i(g->k, most)), t);
  at.bound *= most;
  at.work *= most;
  return at;
}

static void lg_for(LoopGen *g, LgPlace at) {
  int64_t most;
  LVal n = lg_count(g, &at, &most), var = LV_NONE;
  if (at.work * most > LG_WORK) return;
  DType dt = lg_dtype(g);
  if (lg_below(g, 4)) var = lp_var(g->k, lg_value(g, dt));
  int before = g->pool_count;
  at.work *= most + 1;
  LVal t = lp_for(g->k, n);
  lg_keep(g, t);
  if (var != LV_NONE) lg_keep(g, lp_get(g->k, var));
  lg_block(g, at, 3);
  if (var != LV_NONE) lp_set(g->k, var, lg_value(g, dt));
  lp_end(g->k);
  g->pool_count = before;
  if (var != LV_NONE) lg_keep(g, lp_get(g->k, var));
}

static void lg_red(LoopGen *g, LgPlace at) {
  int64_t most;
  LVal n = lg_count(g, &at, &most), yield[3];
  int before = g->pool_count, yields = 1 + lg_below(g, 3);
  if (at.work < 4 && lg_below(g, 3) == 0) {
    static const int64_t large[] = {4095, 4096, 4097, 5000, 8192, 12300};
    most = large[lg_below(g, 6)];
    n = lp_i(g->k, most);
  }
  if (at.work * most > LG_WORK || at.bound * most > 1 << 20) return;
  LVal t = lp_red(g->k, n);
  LgPlace in = lg_iterations(g, at, t, most);
  in.red = in.lanes = true;
  lg_keep(g, t);
  lg_load(g, &in);
  lg_block(g, in, 3);
  for (int i = 0; i < yields; i++) {
    LRed kind = (LRed)lg_below(g, RED_COUNT);
    DType dt = kind == RED_ANY || kind == RED_ALL ? DT_BOOL : lg_dtype(g);
    if (dt == DT_BOOL && kind != RED_ANY && kind != RED_ALL && kind < RED_FIRST_MAX) dt = DT_F32;
    bool two = kind == RED_FMA || kind == RED_CHAIN;
    LVal x = lg_value(g, dt);
    yield[i] = lp_yield(g->k, kind, x, two ? lg_value(g, dt) : LV_NONE);
  }
  lp_end(g->k);
  g->pool_count = before;
  for (int i = 0; i < yields; i++) lg_keep(g, lp_result(g->k, yield[i]));
}

/* A small number, known or not: below n > 0. */
static LVal lg_small(LoopGen *g, const LgPlace *at, int n) {
  if (lg_below(g, 2)) return lp_i(g->k, lg_below(g, n));
  return lp_irem(g->k, lg_below(g, 2) ? at->lin : lp_size(g->k, 1 + lg_below(g, 5)), lp_i(g->k, n));
}

static void lg_tile(LoopGen *g, LgPlace at) {
  static const int shape[][2] = {{1, 4}, {3, 8}, {6, 16}, {14, 32}, {4, 32}, {14, 16}, {8, 48}};
  int s = lg_below(g, 7), mr = shape[s][0], nr = shape[s][1], before = g->pool_count;
  DType dt = lg_below(g, 2) ? DT_F32 : DT_F64;
  LVal x[TILE_OPERANDS];
  if (at.work * mr * nr > LG_WORK || at.bound * mr * nr > 1 << 16) return;
  x[TILE_DEPTH] = lg_small(g, &at, 30);
  x[TILE_ROWS] = lg_below(g, 2) ? lp_i(g->k, mr) : lg_small(g, &at, mr + 1);
  x[TILE_COLS] = lg_below(g, 2) ? lp_i(g->k, nr) : lg_small(g, &at, nr + 1);
  x[TILE_A] = lg_small(g, &at, 200);
  x[TILE_A_ROW] = lg_small(g, &at, 90);
  x[TILE_A_STEP] = lg_small(g, &at, 40);
  x[TILE_B] = lg_small(g, &at, 200);
  x[TILE_B_STEP] = lg_small(g, &at, 100);
  x[TILE_START] = lg_small(g, &at, 200);
  x[TILE_START_ROW] = lg_small(g, &at, 90);
  LVal t = lp_tile(g->k, dt, mr, nr, 2 * (int)dt, 2 * (int)dt,
                   lg_below(g, 2) ? LP_NO_BUF : 2 * (int)dt, x);
  LVal row = lp_row(g->k, t), col = lp_col(g->k, t);
  LVal number = lp_bin(g->k, RB_ADD, lp_bin(g->k, RB_MUL, row, lp_i(g->k, nr)), col);
  LgPlace in = lg_iterations(g, at, number, mr * nr);
  in.tile = in.lanes = true;
  lg_keep(g, t);
  lg_keep(g, row);
  lg_keep(g, col);
  int out = 2 * (int)dt + 1;
  if (g->used[out] + in.bound <= LG_OUT) {
    lp_store(g->k, out, lp_bin(g->k, RB_ADD, in.lin, lp_i(g->k, g->used[out])), t);
    g->used[out] += in.bound;
  }
  lg_block(g, in, 4);
  lp_end(g->k);
  g->pool_count = before;
}

/* A VEC or a PAR inside. */
static void lg_loop(LoopGen *g, LgPlace at, bool vec) {
  int64_t most;
  LVal n = lg_count(g, &at, &most);
  int before = g->pool_count;
  if (at.work * most > LG_WORK || at.bound * most > 1 << 16) return;
  LVal t = vec ? lp_vec(g->k, n) : lp_par(g->k, n);
  LgPlace in = lg_iterations(g, at, t, most);
  in.lanes |= vec;
  lg_keep(g, t);
  lg_block(g, in, 6);
  lg_store(g, &in);
  lp_end(g->k);
  g->pool_count = before;
}

/* Opens a branch of the iterations from some number on, or up to one, in which they count from
 * there: for lanes that do not run, the index is below 0. */
static LgPlace lg_guard(LoopGen *g, LgPlace at) {
  LVal from = lg_below(g, 2) ? lp_i(g->k, lg_below(g, 41)) : lp_size(g->k, 1 + lg_below(g, 5));
  bool back = lg_below(g, 3) == 0;
  LVal lin = back ? lp_bin(g->k, RB_SUB, from, at.lin) : lp_bin(g->k, RB_SUB, at.lin, from);
  lp_if(g->k, lp_bin(g->k, RB_GE, lin, lp_i(g->k, 0)));
  at.lin = lin;
  if (at.bound < 41) at.bound = 41;
  LVal by = lg_divisor(g), part = lg_below(g, 2) ? lp_idiv(g->k, lin, by) : lp_irem(g->k, lin, by);
  lg_keep(g, part);
  if (at.bound <= LG_IN) lg_keep(g, lp_load(g->k, 2 * (int)lg_dtype(g), part));
  return at;
}

static void lg_block(LoopGen *g, LgPlace at, int statements) {
  at.depth++;
  for (int s = 0; s < statements && g->ins > 0; s++) {
    int what = lg_below(g, 40), before = g->pool_count;
    bool deep = at.depth > 6;
    if (what < 18 || (deep && what < 28)) {
      for (int i = lg_below(g, 6); i >= 0; i--) lg_pure(g, &at);
    } else if (what < 25)
      lg_load(g, &at);
    else if (what < 27)
      lg_store(g, &at);
    else if (deep)
      continue;
    else if (what < 28)
      lp_op(g->k, LP_CHECK, DT_I64, 1, (LVal[]){lg_value(g, DT_BOOL)}, 0);
    else if (what < 30) {
      LgPlace in = at;
      if (lg_below(g, 2))
        in = lg_guard(g, at);
      else
        lp_if(g->k, lg_value(g, DT_BOOL));
      lg_block(g, in, 3);
      lg_store(g, &in);
      lp_end(g->k);
      g->pool_count = before;
    } else if (at.tile) {
      lg_pure(g, &at);
    } else if (what < 32) {
      lg_for(g, at);
    } else if (what < 35) {
      if (!at.red) lg_red(g, at);
    } else if (!at.lanes) {
      if (what == 35)
        lg_loop(g, at, false);
      else if (what == 36)
        lg_tile(g, at);
      else
        lg_loop(g, at, true);
    }
  }
}

/* The kernel of a seed. Verifies; throws when out of memory. */
static LG_UNUSED void lg_make(LoopGen *g, Arena *a, uint64_t number) {
  static const int64_t sizes[] = {0, 1, 2, 3, 7, 16, 17, 20};
  memset(g, 0, sizeof *g);
  g->rng = g->seed = number;
  g->k = lp_new(a);
  g->ins = 20 + lg_below(g, 160);
  g->often[0] = DT_F32;
  for (int i = 1; i < 4; i++) g->often[i] = (DType)lg_below(g, DT_COUNT);
  for (int dt = 0; dt < DT_COUNT; dt++) {
    lp_buf(g->k, LB_IN, (DType)dt);
    lp_buf(g->k, LB_OUT, (DType)dt);
  }
  lp_buf(g->k, LB_INOUT, DT_F32);
  DType local = (DType)(DT_I32 + lg_below(g, 6));
  lp_local(g->k, local, -1, LG_LOCAL);
  g->arg[0] = 1 + lg_below(g, 6);
  for (int i = 1; i < 6; i++) g->arg[i] = sizes[lg_below(g, 8)];
  for (int i = 6; i < 8; i++) g->arg[i] = (int64_t)hf_bits64(lg_number(g));
  for (int i = 0; i < LG_ARGS; i++) lp_size(g->k, i); /* so that all have a place */
  LgPlace top = {.lin = lp_i(g->k, 0), .bound = 1, .work = 1};
  for (int i = lg_below(g, 4); i > 0; i--) {
    lg_load(g, &top);
    lg_pure(g, &top);
  }
  LVal t = lp_par(g->k, lp_size(g->k, 0));
  LgPlace at = {.lin = t, .bound = g->arg[0], .work = g->arg[0]};
  lg_keep(g, t);
  if (lg_below(g, 3) == 0) {
    LVal j = lp_vec(g->k, lp_i(g->k, LG_LOCAL));
    LgPlace in = lg_iterations(g, at, j, LG_LOCAL);
    lp_store(g->k, LG_SCRATCH, j, lp_cast(g->k, lp_load(g->k, 2 * DT_F64, in.lin), local));
    lp_end(g->k);
    g->local = true;
  }
  while (g->ins > 0) {
    int before = g->ins;
    lg_block(g, at, 6);
    lg_store(g, &at);
    if (g->ins == before) g->ins--;
  }
  lp_end(g->k);
}

/* ---- data */

typedef struct LgData {
  void *buf[LG_BUFS];
  int64_t elements[LG_BUFS];
  KStatus st;
} LgData;

static size_t lg_size(int b) {
  if (b == LG_SCRATCH) return 0;
  if (b == LG_INOUT) return LG_OUT * sizeof(float);
  return (size_t)(b % 2 ? LG_OUT : LG_IN) * dt_size((DType)(b / 2));
}

static void lg_fill(LoopGen *g, DType dt, void *p, int n) {
  for (int i = 0; i < n; i++) {
    LScalar x = {.d = lg_number(g)}, v;
    if (!dt_float(dt)) x.d = lg_below(g, 4) ? lg_below(g, 41) - 20 : x.d * 1e9;
    lp_eval(LP_CAST, 0, dt, DT_F64, &x, &v);
    switch (dt_size(dt)) {
    case 1: ((uint8_t *)p)[i] = (uint8_t)v.i; break;
    case 2:
      ((uint16_t *)p)[i] = dt == DT_F16    ? hf_f16_from_f32(v.f)
                           : dt == DT_BF16 ? hf_bf16_from_f32(v.f)
                                           : (uint16_t)v.i;
      break;
    case 4: memcpy((char *)p + 4 * i, &v, 4); break;
    default: memcpy((char *)p + 8 * i, &v, 8); break;
    }
  }
}

/* Memory with nothing before and behind it: whole pages between two that nobody may touch. */
static void *lg_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), all = bytes + 2 * page;
  char *p = aligned_alloc(page, all);
  if (!p || bytes % page || mprotect(p, all, PROT_NONE) ||
      mprotect(p + page, bytes, PROT_READ | PROT_WRITE)) {
    abort();
  }
  return p + page;
}

static void lg_pages_free(void *p, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *all = (char *)p - page;
  if (mprotect(all, bytes + 2 * page, PROT_READ | PROT_WRITE)) abort();
  free(all);
}

/* Fresh data, the same for a seed each time; lg_data_free. */
static LG_UNUSED LgData *lg_data(const LoopGen *g) {
  LoopGen draw = {.rng = g->seed ^ 0x5bf03635u};
  LgData *d = calloc(1, sizeof *d);
  for (int b = 0; d && b < LG_SCRATCH; b++) {
    d->buf[b] = lg_pages(lg_size(b));
    d->elements[b] = b == LG_INOUT || b % 2 ? LG_OUT : LG_IN;
    if (b == LG_INOUT)
      lg_fill(&draw, DT_F32, d->buf[b], LG_OUT);
    else if (b % 2)
      memset(d->buf[b], 0, lg_size(b));
    else
      lg_fill(&draw, (DType)(b / 2), d->buf[b], LG_IN);
  }
  return d;
}

static LG_UNUSED void lg_data_free(LgData *d) {
  for (int b = 0; d && b < LG_SCRATCH; b++) lg_pages_free(d->buf[b], lg_size(b));
  free(d);
}

static bool lg_nan(DType dt, const void *p, int i) {
  uint16_t h;
  float f;
  double x;
  memcpy(&h, (const char *)p + i * (int)dt_size(dt), 2);
  if (dt == DT_F16) return (h & 0x7fff) > 0x7c00;
  if (dt == DT_BF16) return (h & 0x7fff) > 0x7f80;
  if (dt == DT_F32) return memcpy(&f, (const char *)p + i * 4, 4), f != f;
  if (dt == DT_F64) return memcpy(&x, (const char *)p + i * 8, 8), x != x;
  return false;
}

/* Whether two runs gave the same bits (NaNs are equal) and the same outcome; else what differs, in
 * text. */
static LG_UNUSED bool lg_same(const LgData *a, const LgData *b, char *text, size_t n) {
  if (a->st.failed != b->st.failed) {
    snprintf(text, n, "failed is %d, not %d", (int)b->st.failed, (int)a->st.failed);
    return false;
  }
  for (int o = 1; o <= LG_INOUT; o += o == LG_INOUT - 1 ? 1 : 2) {
    DType dt = o == LG_INOUT ? DT_F32 : (DType)(o / 2);
    int size = (int)dt_size(dt);
    if (!memcmp(a->buf[o], b->buf[o], lg_size(o))) continue;
    for (int i = 0; i < LG_OUT; i++) {
      const char *p = (const char *)a->buf[o] + i * size, *q = (const char *)b->buf[o] + i * size;
      if (!memcmp(p, q, (size_t)size) || (lg_nan(dt, a->buf[o], i) && lg_nan(dt, b->buf[o], i)))
        continue;
      uint64_t u = 0, v = 0;
      memcpy(&u, p, (size_t)size);
      memcpy(&v, q, (size_t)size);
      snprintf(text, n, "element %d of b%d (%s) has the bits %llx, not %llx", i, o,
               dtype_info[dt].name, (unsigned long long)v, (unsigned long long)u);
      return false;
    }
  }
  return true;
}

#endif
