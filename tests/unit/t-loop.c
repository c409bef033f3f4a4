/* Loop form: texts, the verifier, the canonical form, and lp_run against the reference
 * evaluator. */
#include "jit/loop/loop.h"
#include "jit/loop/loop_elem.h"
#include "ref-naive.h"
#include "runtime/reference/ref.h"
#include "runtime/reference/ref_elem.h"

#include "loop-gen.h"
#include "runtime/fmath.h"
#include "runtime/rng.h"

static Arena arena;

static char *print(const Kernel *k) {
  Buf b;
  buf_init_arena(&b, &arena);
  lp_print(&b, k);
  return b.s;
}

static Kernel *read_text(const char *s, Err *e) {
  return lp_read(&arena, s, strlen(s), e);
}

/* What is built is right, and its canonical form too, which reads back. */
static Kernel *finish(Kernel *k) {
  Err e = {0};
  if (!lp_verify(k, &e)) tap_fail(TAP_HERE, "%s\n%s", e.text, print(k));
  Kernel *c = lp_clean(&arena, k);
  if (!lp_verify(c, &e)) tap_fail(TAP_HERE, "clean: %s\n%s\nfrom\n%s", e.text, print(c), print(k));
  char *s = print(c);
  Kernel *r = read_text(s, &e);
  if (!r)
    tap_fail(TAP_HERE, "%s\n%s", e.text, s);
  else
    check_str(print(r), s);
  check_str(print(lp_clean(&arena, c)), s);
  Kernel *same = lp_copy(&arena, c);
  check_str(print(same), s);
  check(lp_verify(same, &e));
  return r ? r : c;
}

/* Runs all iterations; the kernel, its canonical form and what was read of it do the same, so any
 * serves. */
static bool go(Kernel *k, Tensor *const *buf, const int64_t *arg) {
  void *p[8] = {0};
  int64_t n[8] = {0};
  KStatus st = {0};
  Err e = {0};
  for (size_t i = 0; i < k->buf_count && k->bufs[i].kind != LB_LOCAL; i++) {
    p[i] = tn_data(buf[i]);
    n[i] = tn_count(buf[i]);
  }
  if (!lp_run_within(&mem, k, p, n, arg, 0, lp_iterations(k, arg), &st, &e)) {
    tap_fail(TAP_HERE, "%s\n%s", e.text, print(k));
  }
  return !st.failed;
}

/* A row-major tensor of drawn numbers. */
static Tensor *drawn(DType dt, int rank, const int64_t *dim, int how) {
  Tensor *t = fresh(dt, rank, dim);
  FOR_EACH(i, rank, dim) {
    if (dt_float(dt))
      set_f(t, i, draw_f(how));
    else
      set_i(t, i, dt == DT_BOOL ? below(2) : draw_i(how));
  }
  return t;
}

static void rewind_arena(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
}

/* ---- pointwise */

static void t_unary(void) {
  for (int f = 0; f < RU_COUNT; f++)
    for (int dt = 0; dt < DT_COUNT; dt++) {
      int64_t n = 300;
      Tensor *x = drawn((DType)dt, 1, &n, WILD), *want = ref_unary(&ref, (RefUn)f, x);
      Kernel *k = lp_new(&arena);
      int bx = lp_buf(k, LB_IN, (DType)dt), by = lp_buf(k, LB_OUT, want ? want->dtype : (DType)dt);
      LVal i = lp_par(k, lp_size(k, 0));
      lp_store(k, by, i, lp_un(k, (RefUn)f, lp_load(k, bx, i)));
      lp_end(k);
      if (!want) {
        check(!lp_verify(k, NULL));
      } else {
        Tensor *y = fresh(want->dtype, 1, &n);
        check(go(finish(k), (Tensor *[]){x, y}, &n));
        same_bits("unary", y, want);
      }
      tn_unref(x);
    }
  rewind_arena();
}

static void t_binary(void) {
  for (int f = 0; f < RB_COUNT; f++)
    for (int dt = 0; dt < DT_COUNT; dt++) {
      int64_t n = 400;
      bool safe = !dt_float((DType)dt) && (f == RB_FLOORDIV || f == RB_MOD || f == RB_POW);
      Tensor *x = drawn((DType)dt, 1, &n, WILD), *y = drawn((DType)dt, 1, &n, WILD);
      for (int64_t i = 0; i < n && safe; i++) {
        if (get_i(y, &i) <= 0) set_i(y, &i, f == RB_POW || get_i(y, &i) == 0 ? 3 : get_i(y, &i));
      }
      Tensor *want = ref_binary(&ref, (RefBin)f, x, y);
      Kernel *k = lp_new(&arena);
      int bx = lp_buf(k, LB_IN, (DType)dt), by = lp_buf(k, LB_IN, (DType)dt);
      int bz = lp_buf(k, LB_OUT, want ? want->dtype : (DType)dt);
      LVal i = lp_par(k, lp_size(k, 0));
      lp_store(k, bz, i, lp_bin(k, (RefBin)f, lp_load(k, bx, i), lp_load(k, by, i)));
      lp_end(k);
      if (!want) {
        check(!lp_verify(k, NULL));
      } else {
        Tensor *z = fresh(want->dtype, 1, &n);
        check(go(finish(k), (Tensor *[]){x, y, z}, &n));
        same_bits("binary", z, want);
      }
      tn_unref(x);
      tn_unref(y);
    }
  rewind_arena();
}

static void t_cast_where(void) {
  for (int from = 0; from < DT_COUNT; from++)
    for (int to = 0; to < DT_COUNT; to++) {
      int64_t n = 300;
      Tensor *x = drawn((DType)from, 1, &n, WILD), *c = drawn(DT_BOOL, 1, &n, WILD);
      Tensor *y = drawn((DType)to, 1, &n, WILD), *z = fresh((DType)to, 1, &n);
      Tensor *cast = ref_cast(&ref, x, (DType)to), *want = ref_where(&ref, c, cast, y);
      Kernel *k = lp_new(&arena);
      int bx = lp_buf(k, LB_IN, (DType)from), bc = lp_buf(k, LB_IN, DT_BOOL);
      int by = lp_buf(k, LB_IN, (DType)to), bz = lp_buf(k, LB_OUT, (DType)to);
      LVal i = lp_vec(k, (lp_par(k, lp_i(k, 1)), lp_size(k, 0)));
      LVal v = lp_cast(k, lp_load(k, bx, i), (DType)to);
      lp_store(k, bz, i, lp_where(k, lp_load(k, bc, i), v, lp_load(k, by, i)));
      lp_end(k);
      lp_end(k);
      check(go(finish(k), (Tensor *[]){x, c, y, z}, &n));
      same_bits("cast and where", z, want);
      tn_unref(x);
      tn_unref(c);
      tn_unref(y);
      tn_unref(cast);
    }
  rewind_arena();
}

static void t_literals(void) {
  for (int dt = 0; dt < DT_COUNT; dt++)
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
      int64_t one = 1, arg, place = 0;
      Tensor *x = tn_scalar_f64(&mem, DEV_CPU, DT_F64, specials[s]),
             *want = ref_cast(&ref, x, (DType)dt);
      Tensor *y = fresh((DType)dt, 1, &one), *z = fresh((DType)dt, 1, &one);
      memcpy(&arg, &specials[s], 8);
      if (!dt_float((DType)dt)) arg = get_i(want, &place);
      Kernel *k = lp_new(&arena);
      int by = lp_buf(k, LB_OUT, (DType)dt), bz = lp_buf(k, LB_OUT, (DType)dt);
      LVal i = lp_par(k, lp_i(k, 1));
      lp_store(k, by, i, lp_num(k, (DType)dt, 0));
      lp_store(k, bz, i, lp_const(k, (DType)dt, specials[s]));
      lp_end(k);
      check(go(finish(k), (Tensor *[]){y, z}, &arg));
      Tensor *flat = ref_reshape(&ref, want, 1, &one);
      same_bits("argument", y, tn_ref(flat));
      same_bits("constant", z, flat);
      tn_unref(x);
      tn_unref(want);
    }
  rewind_arena();
}

/* Pure steps on constants fold to what the walker computes. */
static void t_fold(void) {
  for (int round = 0; round < 4000; round++) {
    DType dt = (DType)below(DT_COUNT), to = (DType)below(DT_COUNT);
    Kernel *k = lp_new(&arena);
    LVal x[3];
    LScalar in[3], out;
    for (int i = 0; i < 3; i++) {
      double d = draw_f(WILD);
      x[i] = lp_const(k, dt, d);
      in[i] = lp_scalar(dt, k->ins[x[i]].imm);
    }
    RefUn f = (RefUn)below(RU_COUNT);
    RefBin g = (RefBin)below(RB_COUNT);
    LOp op = below(3) == 0 ? LP_UN : below(2) ? LP_BIN : LP_CAST;
    bool test = op == LP_UN ? elem_un[f].test : op == LP_BIN && elem_bin[g].test;
    bool logic = g == RB_AND || g == RB_OR;
    if (op == LP_UN && (f == RU_NOT || test) != (f == RU_NOT && dt == DT_BOOL) && !dt_float(dt))
      continue;
    if (op == LP_UN && f == RU_NOT && dt != DT_BOOL) continue;
    if (dt == DT_BOOL && op != LP_CAST && !(op == LP_BIN && logic)) continue;
    if (dt != DT_BOOL && op == LP_BIN && logic) continue;
    if (op == LP_UN && !dt_float(dt) && f != RU_NEG && f != RU_ABS) continue;
    int64_t imm = op == LP_UN ? (int64_t)f : op == LP_BIN ? (int64_t)g : 0;
    DType res = test ? DT_BOOL : op == LP_CAST ? to : dt;
    if (op == LP_CAST && to == dt) continue;
    bool ok = lp_eval(op, imm, res, dt, in, &out);
    LVal v = op == LP_UN    ? lp_un(k, f, x[0])
             : op == LP_BIN ? lp_bin(k, g, x[0], x[1])
                            : lp_cast(k, x[0], to);
    if (ok) check_int(k->ins[v].op, ==, LP_CONST);
    if (ok)
      check_int(k->ins[v].imm, ==, lp_scalar_bits(res, out));
    else
      check(lp_may_fail(k, v));
    if (round % 200 == 0) rewind_arena();
  }
  Kernel *k = lp_new(&arena);
  LVal n = lp_size(k, 0), zero = lp_i(k, 0), one = lp_i(k, 1);
  check_int(lp_bin(k, RB_ADD, n, zero), ==, n);
  check_int(lp_bin(k, RB_ADD, zero, n), ==, n);
  check_int(lp_bin(k, RB_MUL, one, n), ==, n);
  check_int(lp_bin(k, RB_MUL, n, one), ==, n);
  check_int(lp_bin(k, RB_MUL, n, zero), ==, zero);
  check_int(lp_bin(k, RB_SUB, n, zero), ==, n);
  check_int(lp_idiv(k, n, one), ==, n);
  check_int(k->ins[lp_irem(k, n, one)].imm, ==, 0);
  rewind_arena();
}

/* ---- reductions */

static const int64_t lengths[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 20000};

/* Over the last axis (rows) or the first one (columns, in lanes). */
static void reduce_one(LRed kind, DType dt, int64_t n, bool rows) {
  static const RefRed of[] = {RR_SUM, RR_PROD, RR_MAX, RR_MIN, RR_ANY, RR_ALL};
  int64_t kept = 3, dim[2] = {rows ? kept : n, rows ? n : kept}, axis = rows;
  bool first = kind >= RED_FIRST_MAX;
  if (first && n == 0) return;
  Tensor *x = drawn(dt, 2, dim, below(3) ? PLAIN : WILD);
  Tensor *want = first ? ref_argreduce(&ref, kind == RED_FIRST_MAX, x, (int)axis)
                       : ref_reduce(&ref, of[kind], x, 1, &axis);
  DType out = first ? DT_I64 : dt;
  Tensor *y = fresh(out, 1, &kept);
  Kernel *k = lp_new(&arena);
  int bx = lp_buf(k, LB_IN, dt), by = lp_buf(k, LB_OUT, out);
  LVal r, i, c = lp_size(k, 1), m = lp_size(k, 0);
  if (rows) {
    i = lp_par(k, m);
    r = lp_red(k, c);
  } else {
    lp_par(k, lp_i(k, 1));
    i = lp_vec(k, c);
    r = lp_red(k, m);
  }
  LVal at = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, rows ? i : r, c), rows ? r : i);
  LVal v = lp_yield(k, kind, lp_load(k, bx, at), LV_NONE);
  lp_end(k);
  lp_store(k, by, i, lp_result(k, v));
  lp_end(k);
  if (!rows) lp_end(k);
  check(go(finish(k), (Tensor *[]){x, y}, dim));
  same_bits(lp_red_name[kind], y, want);
  tn_unref(x);
  rewind_arena();
}

static void t_reduce(bool rows) {
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (int dt = 0; dt < DT_COUNT; dt++)
      for (int kind = 0; kind < RED_COUNT; kind++) {
        bool truth = kind == RED_ANY || kind == RED_ALL;
        if (kind == RED_FMA || kind == RED_CHAIN) continue;
        if (kind < RED_FMA && truth != (dt == DT_BOOL)) continue;
        reduce_one((LRed)kind, (DType)dt, lengths[l], rows);
      }
}

/* Products: FMA is an inner product, CHAIN an element of a matrix product. */
static void t_products(void) {
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (int dt = DT_U8; dt < DT_COUNT; dt++) {
      int64_t n = lengths[l], a_dim[2] = {2, n}, b_dim[2] = {n, 2}, c_dim[2] = {2, 2}, two = 2;
      if (dt == DT_BF16) continue; /* its contractions take pairs: not of this form */
      Tensor *a = drawn((DType)dt, 2, a_dim, PLAIN), *b = drawn((DType)dt, 2, b_dim, PLAIN);
      Tensor *bt = ref_transpose(&ref, b, (int64_t[]){1, 0});
      Tensor *c = fresh((DType)dt, 2, c_dim), *d = fresh((DType)dt, 1, &two);
      Kernel *k = lp_new(&arena);
      int ba = lp_buf(k, LB_IN, (DType)dt), bb = lp_buf(k, LB_IN, (DType)dt);
      int bc = lp_buf(k, LB_OUT, (DType)dt), bd = lp_buf(k, LB_OUT, (DType)dt);
      LVal i = lp_par(k, lp_i(k, 4)), row = lp_idiv(k, i, lp_i(k, 2)),
           col = lp_irem(k, i, lp_i(k, 2));
      LVal m = lp_size(k, 0), r = lp_red(k, m);
      LVal x = lp_load(k, ba, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, row, m), r));
      LVal y = lp_load(k, bb, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, r, lp_i(k, 2)), col));
      LVal chain = lp_yield(k, RED_CHAIN, x, y), sum = lp_yield(k, RED_FMA, x, y);
      lp_end(k);
      lp_store(k, bc, i, lp_result(k, chain));
      lp_if(k, lp_bin(k, RB_EQ, row, col));
      lp_store(k, bd, row, lp_result(k, sum));
      lp_end(k);
      lp_end(k);
      check(go(finish(k), (Tensor *[]){a, b, c, d}, &n));
      same_bits("chain", c, ref_dot(&ref, a, b, 0));
      same_bits("fma", d, ref_inner(&ref, a, bt, 0));
      tn_unref(a);
      tn_unref(b);
      tn_unref(bt);
      rewind_arena();
    }
}

/* ---- tiles */

/* gelu(A B + bias) by tiles of 3 x 8, the depth in pieces of `piece` that go on from what was
 * stored. */
static void tile_one(DType dt, int64_t m, int64_t n, int64_t depth, int64_t piece) {
  int64_t a_dim[2] = {m, depth}, b_dim[2] = {depth, n}, c_dim[2] = {m, n}, mr = 3, nr = 8;
  Tensor *a = drawn(dt, 2, a_dim, PLAIN), *b = drawn(dt, 2, b_dim, PLAIN);
  Tensor *bias = drawn(dt, 1, &n, PLAIN), *c = fresh(dt, 2, c_dim);
  Kernel *k = lp_new(&arena);
  int ba = lp_buf(k, LB_IN, dt), bb = lp_buf(k, LB_IN, dt), bs = lp_buf(k, LB_IN, dt);
  int bc = lp_buf(k, LB_OUT, dt), part = lp_local(k, dt, -1, mr * nr);
  LVal rows = lp_size(k, 0), cols = lp_size(k, 1), all = lp_size(k, 2), iterations = lp_size(k, 3);
  LVal across = lp_size(k, 4), vmr = lp_i(k, mr), vnr = lp_i(k, nr), zero = lp_i(k, 0);
  LVal i = lp_par(k, iterations);
  LVal i0 = lp_bin(k, RB_MUL, lp_idiv(k, i, across), vmr);
  LVal j0 = lp_bin(k, RB_MUL, lp_irem(k, i, across), vnr);
  LVal have = lp_bin(k, RB_MIN, lp_bin(k, RB_SUB, rows, i0), vmr);
  LVal wide = lp_bin(k, RB_MIN, lp_bin(k, RB_SUB, cols, j0), vnr);
  LVal row_a = lp_bin(k, RB_MUL, i0, all);
  LVal operand[TILE_OPERANDS] = {
      [TILE_DEPTH] = zero, [TILE_ROWS] = have,         [TILE_COLS] = wide, [TILE_A] = row_a,
      [TILE_A_ROW] = all,  [TILE_A_STEP] = lp_i(k, 1), [TILE_B] = j0,      [TILE_B_STEP] = cols,
      [TILE_START] = zero, [TILE_START_ROW] = vnr};
  LVal t = lp_tile(k, dt, (int)mr, (int)nr, ba, bb, LP_NO_BUF, operand);
  lp_store(k, part, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, lp_row(k, t), vnr), lp_col(k, t)), t);
  lp_end(k);
  LVal step_n = lp_i(k, piece);
  LVal p = lp_for(k, lp_idiv(k, lp_bin(k, RB_ADD, all, lp_i(k, piece - 1)), step_n));
  LVal k0 = lp_bin(k, RB_MUL, p, step_n);
  operand[TILE_DEPTH] = lp_bin(k, RB_MIN, step_n, lp_bin(k, RB_SUB, all, k0));
  operand[TILE_A] = lp_bin(k, RB_ADD, row_a, k0);
  operand[TILE_B] = lp_bin(k, RB_ADD, j0, lp_bin(k, RB_MUL, k0, cols));
  t = lp_tile(k, dt, (int)mr, (int)nr, ba, bb, part, operand);
  lp_store(k, part, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, lp_row(k, t), vnr), lp_col(k, t)), t);
  lp_end(k);
  lp_end(k);
  operand[TILE_DEPTH] = operand[TILE_A] = operand[TILE_B] = zero;
  t = lp_tile(k, dt, (int)mr, (int)nr, ba, bb, part, operand);
  LVal col = lp_bin(k, RB_ADD, j0, lp_col(k, t)), row = lp_bin(k, RB_ADD, i0, lp_row(k, t));
  LVal v = lp_un(k, RU_GELU, lp_bin(k, RB_ADD, t, lp_load(k, bs, col)));
  lp_store(k, bc, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, row, cols), col), v);
  lp_end(k);
  lp_end(k);
  int64_t down = (m + mr - 1) / mr,
          arg[5] = {m, n, depth, down * ((n + nr - 1) / nr), (n + nr - 1) / nr};
  k = finish(k);
  check_int(lp_local_bytes(k, arg), ==, (mr * nr * (int64_t)dt_size(dt) + 63) / 64 * 64);
  check(go(k, (Tensor *[]){a, b, bias, c}, arg));
  Tensor *dot = ref_dot(&ref, a, b, 0), *wide_bias = ref_broadcast(&ref, bias, 2, c_dim);
  Tensor *sum = ref_binary(&ref, RB_ADD, dot, wide_bias);
  same_bits("tile", c, ref_unary(&ref, RU_GELU, sum));
  Tensor *drop[] = {a, b, bias, dot, wide_bias, sum};
  for (size_t d = 0; d < 6; d++) tn_unref(drop[d]);
  rewind_arena();
}

static void t_tile(void) {
  static const int64_t size[][3] = {{1, 1, 1}, {3, 8, 16}, {7, 19, 33}, {4, 9, 0}, {5, 17, 100}};
  for (size_t s = 0; s < sizeof size / sizeof *size; s++)
    for (int dt = DT_F32; dt <= DT_F64; dt++) {
      tile_one((DType)dt, size[s][0], size[s][1], size[s][2], 7);
      tile_one((DType)dt, size[s][0], size[s][1], size[s][2], 1000);
    }
}

/* ---- the rest */

static void t_cumsum(void) {
  for (int dt = DT_U8; dt < DT_COUNT; dt++) {
    int64_t dim[2] = {37, 5};
    bool half = dt == DT_F16 || dt == DT_BF16;
    Tensor *x = drawn((DType)dt, 2, dim, PLAIN), *y = fresh((DType)dt, 2, dim);
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), by = lp_buf(k, LB_OUT, (DType)dt);
    LVal cols = lp_size(k, 1);
    lp_par(k, lp_i(k, 1));
    LVal j = lp_vec(k, cols), sum = lp_var(k, lp_const(k, half ? DT_F32 : (DType)dt, 0));
    LVal i = lp_for(k, lp_size(k, 0)), at = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, i, cols), j);
    LVal v = lp_load(k, bx, at);
    if (half) v = lp_cast(k, v, DT_F32);
    /* the first sum is the element itself: -0 stays -0 */
    LVal s = lp_where(k, lp_bin(k, RB_EQ, i, lp_i(k, 0)), v, lp_bin(k, RB_ADD, lp_get(k, sum), v));
    lp_set(k, sum, s);
    lp_store(k, by, at, lp_cast(k, s, (DType)dt));
    lp_end(k);
    lp_end(k);
    lp_end(k);
    check(go(finish(k), (Tensor *[]){x, y}, dim));
    same_bits("cumsum", y, ref_cumsum(&ref, x, 0, false));
    tn_unref(x);
  }
  rewind_arena();
}

static void t_gather(void) {
  int64_t dim[2] = {7, 3}, n = 50, out[2] = {50, 3};
  Tensor *x = drawn(DT_F32, 2, dim, PLAIN), *idx = fresh(DT_I64, 1, &n), *y = fresh(DT_F32, 2, out);
  for (int64_t i = 0; i < n; i++) set_i(idx, &i, below(dim[0]));
  Kernel *k = lp_new(&arena);
  int bx = lp_buf(k, LB_IN, DT_F32), bi = lp_buf(k, LB_IN, DT_I64), by = lp_buf(k, LB_OUT, DT_F32);
  LVal rows = lp_size(k, 1), three = lp_i(k, 3), i = lp_par(k, lp_size(k, 0));
  LVal at = lp_load(k, bi, i);
  lp_op(k, LP_CHECK, DT_I64, 1, (LVal[]){lp_bin(k, RB_LT, at, rows)}, 0);
  lp_op(k, LP_CHECK, DT_I64, 1, (LVal[]){lp_bin(k, RB_GE, at, lp_i(k, 0))}, 0);
  LVal most = lp_bin(k, RB_SUB, rows, lp_i(k, 1));
  LVal safe = lp_bin(k, RB_MAX, lp_bin(k, RB_MIN, at, most), lp_i(k, 0));
  LVal j = lp_vec(k, three);
  LVal v = lp_load(k, bx, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, safe, three), j));
  lp_store(k, by, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, i, three), j), v);
  lp_end(k);
  lp_end(k);
  k = finish(k);
  Tensor *bufs[] = {x, idx, y};
  int64_t arg[2] = {n, dim[0]}, wrong = 20;
  check(go(k, bufs, arg));
  same_bits("gather", tn_ref(y), ref_take(&ref, x, 0, 1, &idx));
  set_i(idx, &wrong, 7);
  check(!go(k, bufs, arg));
  set_i(idx, &wrong, -1);
  check(!go(k, bufs, arg));
  for (int d = 0; d < 3; d++) tn_unref(bufs[d]);
  rewind_arena();
}

static void t_random(void) {
  int64_t two = 2, n = 77, four = 4, six = 6, limit = 1000;
  for (int normal = 0; normal < 2; normal++)
    for (int dt = DT_F16; dt < DT_COUNT; dt++) {
      Tensor *key = fresh(DT_I64, 1, &two), *y = fresh((DType)dt, 1, &n);
      for (int64_t i = 0; i < 2; i++) set_i(key, &i, (int64_t)draw());
      Kernel *k = lp_new(&arena);
      int bk = lp_buf(k, LB_IN, DT_I64), by = lp_buf(k, LB_OUT, (DType)dt);
      LVal a = lp_load(k, bk, lp_i(k, 0)), b = lp_load(k, bk, lp_i(k, 1)),
           i = lp_par(k, lp_size(k, 0));
      lp_store(k, by, i,
               lp_op(k, normal ? LP_NORMAL : LP_UNIFORM, (DType)dt, 3, (LVal[]){a, b, i}, 0));
      lp_end(k);
      check(go(finish(k), (Tensor *[]){key, y}, &n));
      same_bits("random", y, ref_random(&ref, DEV_CPU, key, normal, (DType)dt, 1, &n));
      tn_unref(key);
    }
  Tensor *key = drawn(DT_I64, 1, &two, WILD), *y = fresh(DT_I64, 1, &n);
  Tensor *most = tn_scalar_i64(&mem, DEV_CPU, DT_I64, limit), *fold = fresh(DT_I64, 1, &two);
  Tensor *ctr = drawn(DT_I64, 1, &four, WILD), *words = fresh(DT_I64, 1, &four);
  Kernel *k = lp_new(&arena);
  int bk = lp_buf(k, LB_IN, DT_I64), by = lp_buf(k, LB_OUT, DT_I64), bc = lp_buf(k, LB_IN, DT_I64);
  int bf = lp_buf(k, LB_OUT, DT_I64), bw = lp_buf(k, LB_OUT, DT_I64);
  LVal a = lp_load(k, bk, lp_i(k, 0)), b = lp_load(k, bk, lp_i(k, 1)), i = lp_par(k, lp_size(k, 0));
  lp_store(k, by, i, lp_op(k, LP_RANDINT, DT_I64, 4, (LVal[]){a, b, i, lp_size(k, 1)}, 0));
  lp_if(k, lp_bin(k, RB_EQ, i, lp_i(k, 0)));
  LVal f = lp_op(k, LP_FOLD, DT_I64, 2, (LVal[]){a, b}, 0);
  lp_store(k, bf, lp_i(k, 0), lp_op(k, LP_FOLD, DT_I64, 2, (LVal[]){f, lp_size(k, 2)}, 0));
  lp_store(k, bf, lp_i(k, 1), lp_i(k, 0));
  LVal w[6];
  for (int j = 0; j < 4; j++) w[j] = lp_load(k, bc, lp_i(k, j));
  w[4] = a;
  w[5] = b;
  for (int j = 0; j < 4; j++) lp_store(k, bw, lp_i(k, j), lp_op(k, LP_PHILOX, DT_I64, 6, w, j));
  lp_end(k);
  lp_end(k);
  check(go(finish(k), (Tensor *[]){key, y, ctr, fold, words}, (int64_t[]){n, limit, six}));
  Tensor *i6 = tn_scalar_i64(&mem, DEV_CPU, DT_I64, six);
  same_bits("randint", y, ref_randint(&ref, DEV_CPU, key, most, DT_I64, 1, &n));
  same_bits("fold", fold, ref_fold_in(&ref, key, i6));
  same_bits("philox", words, ref_philox(&ref, ctr, key));
  Tensor *drop[] = {key, most, ctr, i6};
  for (int d = 0; d < 4; d++) tn_unref(drop[d]);
  rewind_arena();
}

/* What sets the fail flag, and what a part of the iterations writes. */
static void t_status(void) {
  int64_t n = 10;
  for (int f = 0; f < 3; f++) {
    Tensor *x = fresh(DT_I32, 1, &n), *y = fresh(DT_I32, 1, &n);
    for (int64_t i = 0; i < n; i++) set_i(x, &i, 1);
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, DT_I32), by = lp_buf(k, LB_OUT, DT_I32);
    LVal i = lp_par(k, lp_size(k, 0)), v = lp_load(k, bx, i);
    RefBin op = f == 0 ? RB_FLOORDIV : f == 1 ? RB_MOD : RB_POW;
    lp_store(k, by, i, lp_bin(k, op, lp_const(k, DT_I32, 7), v));
    lp_end(k);
    k = finish(k);
    check(go(k, (Tensor *[]){x, y}, &n));
    int64_t place = 4;
    set_i(x, &place, f == 2 ? -1 : 0);
    check(!go(k, (Tensor *[]){x, y}, &n));
    check_int(get_i(y, &place), ==, 0);
    KStatus st = {0};
    memset(tn_data(y), 0xee, 40);
    check(lp_run(&mem, k, (void *[]){tn_data(x), tn_data(y)}, &n, 5, 8, &st));
    check_int(st.failed, ==, 0);
    for (int64_t j = 0; j < n; j++)
      check((get_i(y, &j) != (int32_t)0xeeeeeeee) == (j >= 5 && j < 8));
    st.stop = 1;
    check(lp_run(&mem, k, (void *[]){tn_data(x), tn_data(y)}, &n, 0, 10, &st));
    check_int(st.failed, ==, 0);
    int64_t few[] = {10, 3};
    Err e = {0};
    st.stop = 0;
    check(!lp_run_within(&mem, k, (void *[]){tn_data(x), tn_data(y)}, few, &n, 0, 10, &st, &e));
    check_str(e.text, "element 3 of b1, which has 3");
    tn_unref(x);
    tn_unref(y);
  }
  rewind_arena();
}

static void t_memory(void) {
  static const char text[] =
      "loop 1 args 1\nb0 out f32\nb1 local f32 4 * a0\n%0 = arg i64 0\n%1 = const f32 2.0\n"
      "%2 = par i64 %0\n"
      "  store f32 b1 %2 %1\n  %4 = load f32 b1 %2\n  store f32 b0 %2 %4\nend\n";
  Err e = {0};
  Kernel *k = read_text(text, &e);
  need(k);
  float out[3];
  int64_t n = 3;
  KStatus st = {0};
  check_int(lp_local_bytes(k, &n), ==, 64);
  check_int(lp_iterations(k, &n), ==, 3);
  check_int(lp_iterations(k, (int64_t[]){-3}), ==, 0);
  for (int nth = 1; nth < 2; nth++) {
    Failing f;
    Mem m;
    failing_init(&f, &m, nth);
    check(!lp_run(&m, k, (void *[]){out, NULL}, &n, 0, n, &st));
    mem_close(&m);
    check(failing_clean(&f, &m));
  }
  check(lp_run(&mem, k, (void *[]){out, NULL}, &n, 0, n, &st));
  check(out[0] == 2 && out[2] == 2);
  check(lp_local_bytes(k, (int64_t[]){INT64_MAX}) > 0);
  rewind_arena();
}

/* ---- texts */

#define TOP                                                                                        \
  "loop 1 args 2\nb0 in f32\nb1 out f32\nb2 local i64 4\nb3 in f64\n%0 = arg i64 0\n%1 = const "   \
  "bool 1\n"
#define PAR TOP "%2 = par i64 %0\n"
#define TILE " %0 %0 %0 %0 %0 %0 %0 %0 %0 %0\n"
static const struct Wrong {
  const char *text, *part;
} wrong[] = {
    {"", "line 1: loop is missing"},
    {"loop 2 args 0\n", "line 1: 1 is missing"},
    {"loop 1 args x\n", "line 1: number out of range"},
    {"loop 1 args 99999999\n", "line 1: number out of range"},
    {"loop 1 args 0", "line 1: the last line does not end"},
    {"loop 1 args 0\n", "no par"},
    {"loop 1 args 0\nb1 in f32\n", "line 2: buffers are not in order"},
    {"loop 1 args 0\nb0 out\n", "line 2: unknown dtype"},
    {"loop 1 args 0\nb0 inn f32\n", "line 2: unknown kind"},
    {"loop 1 args 0\nb0 in f32 3\n", "line 2: more than was expected"},
    {"loop 1 args 0\nb0 local f32\n", "line 2: not a number"},
    {"loop 1 args 0\nb0 local f32 0\n%0 = const i64 1\n", "buffer 0 is wrong"},
    {"loop 1 args 0\nb0 local f32 1 * a0\n%0 = const i64 1\n", "buffer 0 is wrong"},
    {"loop 1 args 0\nb0 local f32 1 x\n", "line 2: more"},
    {TOP "%3 = par i64 %0\n", "line 8: instructions are not in order"},
    {TOP "%2 = hop i64 %0\n", "line 8: unknown instruction"},
    {TOP "%2 = par j64 %0\n", "line 8: unknown dtype"},
    {TOP "par i64 %0\n", "line 8: a number where"},
    {TOP "%2 = end\n", "line 8: a number where"},
    {TOP "%2 = const f32 x\n", "line 8: not a number"},
    {TOP "%2 = const i64 1.5\n", "line 8: not an int"},
    {TOP "%2 = const f32 0.1\n", "not a value of the dtype"},
    {TOP "%2 = const u8 256\n", "not a value of the dtype"},
    {TOP "%2 = const bool 2\n", "not a value of the dtype"},
    {TOP "%2 = arg i64 2\n", "arg): immediate"},
    {TOP "%2 = philox i64 4 %0 %0 %0 %0 %0 %0\n", "immediate"},
    {TOP "%2 = add i64 %0 7\n", "line 8: not a number of its kind"},
    {TOP "%2 = add i64 %0 %0 %0 %0 %0 %0 %0 %0 %0 %0 %0\n", "line 8: too many operands"},
    {TOP "%2 = add i64 %0\n", "wrong number of operands"},
    {TOP "%2 = add i64 %0 %0 %0\n", "wrong number of operands"},
    {TOP "%2 = add i64 %0 %2\n", "operand comes later"},
    {TOP "%2 = load f32 b9 %0\n", "no such buffer"},
    {TOP "%2 = load f32 - %0\n", "no such buffer"},
    {TOP "%2 = load f64 b0 %0\n", "dtype of the buffer"},
    {TOP "%2 = load f32 b0 %1\n", "dtype of an operand"},
    {TOP "%2 = load i64 b2 %0\n", "only inputs"},
    {TOP "%2 = var i64 %0\n", "outside of all iterations"},
    {TOP "store f32 b1 %0 %0\n", "outside of all iterations"},
    {TOP "%2 = for i64 %0\nend\n", "a kernel is one par"},
    {TOP "if %1\nend\n", "condition or place"},
    {TOP "%2 = add i64 %0 %0\n%3 = par i64 %2\nend\n", "iterations are an argument or a constant"},
    {TOP "end\n", "line 8: closes no block"},
    {PAR, "never closed"},
    {PAR "end\n%4 = arg i64 0\n", "after the end"},
    {PAR "end\n%4 = par i64 %0\nend\n", "after the end"},
    {PAR "%3 = load f32 b1 %0\nend\n", "load from an output"},
    {PAR "%3 = const f32 1.0\nstore f32 b0 %0 %3\nend\n", "store to an input"},
    {PAR "store f32 b1 %0 %0\nend\n", "dtype of an operand"},
    {PAR "%3 = const f32 1.0\nstore f32 b1 %3 %3\nend\n", "dtype of the index"},
    {PAR "if %0\nend\nend\n", "condition or place"},
    {PAR "%3 = for i64 %1\nend\nend\n", "dtype of an operand"},
    {PAR "%3 = for i32 %0\nend\nend\n", "for): dtype"},
    {PAR "%3 = for i64 %0\nend\n%5 = add i64 %0 %3\nend\n", "iteration of a closed block"},
    {PAR "%3 = for i64 %0\n%4 = add i64 %3 %3\nend\n%6 = add i64 %0 %4\n"
         "end\n",
     "operand out of scope"},
    {PAR "%3 = red i64 %0\n%4 = load f32 b0 %3\n%5 = yield f32 sum %4\n%6 = add f32 %4 %5\nend\n"
         "end\n",
     "a yield is read by a result"},
    {PAR "%3 = load f32 b0 %2\n%4 = yield f32 sum %3\nend\n", "not directly in a reduction"},
    {PAR "%3 = red i64 %0\nif %1\n%5 = yield i64 sum %3\nend\nend\n"
         "end\n",
     "not directly in a reduction"},
    {PAR "%3 = red i64 %0\n%4 = yield i64 any %3\nend\nend\n", "not defined for this dtype"},
    {PAR "%3 = red i64 %0\n%4 = yield bool sum %1\nend\nend\n", "not defined for this dtype"},
    {PAR "%3 = red i64 %0\n%4 = yield f32 first_max %3\nend\nend\n", "yield): dtype"},
    {PAR "%3 = red i64 %0\n%4 = yield f32 sum %3\nend\nend\n", "yield): dtype"},
    {PAR "%3 = red i64 %0\n%4 = yield i64 fma %3\nend\nend\n", "wrong number of operands"},
    {PAR "%3 = red i64 %0\n%4 = yield i64 sun %3\nend\nend\n", "unknown reduction"},
    {PAR "%3 = red i64 %0\n%4 = yield i64 sum %3\n%5 = result i64 %4\nend\n"
         "end\n",
     "of an open reduction"},
    {PAR "if %1\n%4 = red i64 %0\n%5 = yield i64 sum %4\nend\nend\n%8 = result i64 %5\nend\n",
     "result out of scope"},
    {PAR "%3 = result i64 %0\nend\n", "result of what is no yield"},
    {PAR "%3 = red i64 %0\n%4 = yield i64 sum %3\nend\n%6 = result f32 %4\n"
         "end\n",
     "dtype of an operand"},
    {PAR "%3 = vec i64 %0\n%4 = vec i64 %0\nend\nend\nend\n", "inside lanes"},
    {PAR "%3 = vec i64 %0\n%4 = par i64 %0\nend\nend\nend\n", "inside lanes"},
    {PAR "%3 = red i64 %0\n%4 = vec i64 %0\nend\nend\nend\n", "inside lanes"},
    {PAR "%3 = vec i64 %0\n%4 = tile f32 3x8 b0 b0 -" TILE "end\nend\nend\n", "inside lanes"},
    {PAR "%3 = red i64 %0\n%4 = red i64 %0\nend\nend\nend\n", "reduction in a reduction"},
    {PAR "%3 = vec i64 %0\n%4 = for i64 %3\nend\nend\nend\n", "iterations differ between lanes"},
    {PAR "%3 = vec i64 %0\n%4 = load i64 b2 %0\n%5 = red i64 %4\nend\nend\n"
         "end\n",
     "iterations differ between lanes"},
    {PAR "%3 = tile f32 3x8 b0 b0 -" TILE "%4 = for i64 %0\nend\nend\nend\n", "loop in a tile"},
    {PAR "%3 = tile f32 0x8 b0 b0 -" TILE "end\nend\n", "shape"},
    {PAR "%3 = tile f32 3x129 b0 b0 -" TILE "end\nend\n", "shape"},
    {PAR "%3 = tile f32 3 b0 b0 -" TILE "end\nend\n", "not a shape"},
    {PAR "%3 = tile f16 3x8 b0 b0 -" TILE "end\nend\n", "dtype"},
    {PAR "%3 = tile f32 3x8 b0 b3 -" TILE "end\nend\n", "dtype of the buffer"},
    {PAR "%3 = tile f32 3x8 b0 b0 b3" TILE "end\nend\n", "dtype of the buffer"},
    {PAR "%3 = tile f32 3x8 b1 b0 -" TILE "end\nend\n", "load from an output"},
    {PAR "%3 = tile f32 3x8 b0 - -" TILE "end\nend\n", "no such buffer"},
    {PAR "%3 = tile f32 3x8 b0 b0 - %0\nend\nend\n", "wrong number of operands"},
    {PAR "%3 = tile f32 3x8 b0 b0 -" TILE "%4 = row f32 %3\nend\nend\n", "dtype"},
    {PAR "%3 = tile f32 3x8 b0 b0 -" TILE "end\n%5 = row i64 %3\nend\n", "not in that tile"},
    {PAR "%3 = row i64 %2\nend\n", "not in that tile"},
    {PAR "%3 = var i64 %0\n%4 = add i64 %3 %3\nend\n", "a variable is read by a get"},
    {PAR "%3 = get i64 %0\nend\n", "not a variable"},
    {PAR "%3 = var i64 %0\n%4 = get i32 %3\nend\n", "dtype of an operand"},
    {PAR "if %1\n%4 = var i64 %0\nend\n%6 = get i64 %4\nend\n", "operand out of scope"},
    {PAR "%3 = var i64 %0\n%4 = vec i64 %0\nset i64 %3 %0\nend\nend\n",
     "iterations that have no order"},
    {PAR "%3 = var i64 %0\n%4 = red i64 %0\nset i64 %3 %0\nend\nend\n",
     "iterations that have no order"},
    {PAR "%3 = var i64 %0\nset i64 %3 %1\nend\n", "dtype of an operand"},
    {PAR "%3 = exp i64 %0\nend\n", "exp): not defined"},
    {PAR "%3 = not i64 %0\nend\n", "not defined"},
    {PAR "%3 = neg bool %1\nend\n", "not defined"},
    {PAR "%3 = neg i32 %0\nend\n", "neg): dtype"},
    {PAR "%3 = div i64 %0 %0\nend\n", "div): not defined"},
    {PAR "%3 = and i64 %0 %0\nend\n", "not defined"},
    {PAR "%3 = add bool %1 %1\nend\n", "not defined"},
    {PAR "%3 = lt bool %1 %1\nend\n", "not defined"},
    {PAR "%3 = lt i64 %0 %0\nend\n", "lt): dtype"},
    {PAR "%3 = add i64 %0 %1\nend\n", "dtype of an operand"},
    {PAR "%3 = where i64 %0 %0 %0\nend\n", "condition"},
    {PAR "%3 = where i64 %1 %0 %1\nend\n", "dtype of an operand"},
    {PAR "%3 = fma bool %1 %1 %1\nend\n", "dtype"},
    {PAR "%3 = fma f32 %0 %0 %0\nend\n", "dtype of an operand"},
    {PAR "%3 = idiv i32 %0 %0\nend\n", "dtype"},
    {PAR "%3 = ctz i64 %1\nend\n", "dtype of an operand"},
    {PAR "check %0\nend\n", "dtype of an operand"},
    {PAR "%3 = normal i64 %0 %0 %0\nend\n", "dtype"},
    {PAR "%3 = randint i32 %0 %0 %0 %0\nend\n", "dtype"},
    {PAR "%3 = foldkey i64 %0 %1\nend\n", "dtype of an operand"},
};

static void t_wrong(void) {
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Err e = {0};
    if (read_text(wrong[i].text, &e))
      tap_fail(TAP_HERE, "this was taken:\n%s", wrong[i].text);
    else if (!strstr(e.text, wrong[i].part)) {
      tap_fail(TAP_HERE, "\"%s\" lacks \"%s\" for\n%s", e.text, wrong[i].part, wrong[i].text);
    }
  }
  Buf b;
  Err e = {0};
  buf_init_arena(&b, &arena);
  buf_puts(&b, PAR);
  for (int i = 0; i < 40; i++) buf_puts(&b, "if %1\n");
  check(!read_text(b.s, &e));
  check_has(e.text, "too deep");
  b.n = 0;
  buf_puts(&b, PAR);
  for (int i = 3; i < 66000; i++) buf_printf(&b, "%%%d = arg i64 0\n", i);
  check(!read_text(b.s, &e));
  check_has(e.text, "too many instructions");
  b.n = 0;
  buf_puts(&b, "loop 1 args 0\n");
  for (int i = 0; i < 2000; i++) buf_printf(&b, "b%d in f32\n", i);
  check(!read_text(b.s, &e));
  check_has(e.text, "too many buffers");
  rewind_arena();
}

/* What only arrays can have wrong. */
static void t_wrong_arrays(void) {
  for (int what = 0; what < 9; what++) {
    Err e = {0};
    Kernel *k = read_text(PAR "%3 = load f32 b0 %2\nstore f32 b1 %2 %3\nend\n", &e);
    need(k);
    LIns *in = k->ins;
    if (what == 0) in[3].operand0 = 1000;
    if (what == 1) in[3].op = LP_COUNT;
    if (what == 2) in[3].dtype = DT_COUNT;
    if (what == 3) in[4].depth = 0;
    if (what == 4) in[5].match = 1;
    if (what == 5) in[2].match = 4;
    if (what == 6) in[3].buf_b = 0;
    if (what == 7) in[3].mr = 1;
    if (what == 8) k->bufs[0].kind = 9;
    check(!lp_verify(k, &e));
  }
  rewind_arena();
}

/* ---- the canonical form */

static void t_clean(void) {
  static const char before[] =
      "loop 1 args 3\nb0 in f32\nb1 out f32\n%0 = arg i64 0\n%1 = par i64 %0\n"
      "  %2 = const i64 1\n  %3 = const bool 0\n  %4 = const bool 1\n"
      "  if %3\n    %6 = const f32 1.0\n    store f32 b1 %1 %6\n  end\n" /* never */
      "  %9 = vec i64 %2\n" /* once: its iteration is 0 */
      "    if %4\n      %11 = add i64 %1 %9\n      %12 = load f32 b0 %11\n"
      "      %13 = add f32 %12 %12\n"
      "      %14 = add f32 %12 %12\n      %15 = mul f32 %13 %14\n      store f32 b1 %1 %15\n"
      "    end\n  end\n"
      "  %19 = var f32 %6\n" /* replaced below: out of scope */
      "end\n";
  static const char after[] =
      "loop 1 args 3\nb0 in f32\nb1 out f32\n%0 = arg i64 0\n%1 = par i64 %0\n"
      "  %2 = load f32 b0 %1\n"
      "  %3 = add f32 %2 %2\n  %4 = mul f32 %3 %3\n  store f32 b1 %1 %4\nend\n";
  char text[sizeof before];
  memcpy(text, before, sizeof before);
  char *bad = strstr(text, "  %19");
  memmove(bad, "end\n", 5);
  Err e = {0};
  Kernel *k = read_text(text, &e);
  if (!k) tap_fail(TAP_HERE, "%s", e.text);
  need(k);
  check_str(print(lp_clean(&arena, k)), after);
  /* a variable that is never read goes, with what is stored in it; a division that may fail
   * stays */
  k = read_text("loop 1 args 2\nb0 in i64\nb1 out i64\n%0 = arg i64 0\n%1 = par i64 %0\n"
                "%2 = load i64 b0 %1\n%3 = var i64 %2\n%4 = mul i64 %2 %2\nset i64 %3 %4\n"
                "%6 = floordiv i64 %2 %2\n%7 = const i64 3\n%8 = mod i64 %2 %7\n"
                "%9 = red i64 %0\n%10 = load i64 b0 %9\n%11 = yield i64 sum %10\n"
                "%12 = yield i64 max %10\nend\n"
                "%14 = result i64 %12\nstore i64 b1 %1 %14\nend\n",
                &e);
  need(k);
  check_str(print(lp_clean(&arena, k)),
            "loop 1 args 2\nb0 in i64\nb1 out i64\n%0 = arg i64 0\n%1 = par i64 %0\n"
            "  %2 = load i64 b0 %1\n  %3 = floordiv i64 %2 %2\n"
            "  %4 = red i64 %0\n    %5 = load i64 b0 %4\n    %6 = yield i64 max %5\n  end\n"
            "  %8 = result i64 %6\n  store i64 b1 %1 %8\nend\n");
  rewind_arena();
}

/* Random kernels: every form of them does the same. */
static void t_generated(void) {
  for (uint64_t s = 1; s <= 300; s++) {
    LoopGen g;
    lg_make(&g, &arena, s);
    Err e = {0};
    if (!lp_verify(g.k, &e)) {
      tap_fail(TAP_HERE, "seed %d: %s\n%s", (int)s, e.text, print(g.k));
      break;
    }
    Kernel *clean = finish(g.k);
    LgData *one = lg_data(&g), *two = lg_data(&g);
    int64_t iterations = lp_iterations(g.k, g.arg);
    char text[100];
    if (!lp_run_within(&mem, g.k, one->buf, one->elements, g.arg, 0, iterations, &one->st, &e) ||
        !lp_run_within(&mem, clean, two->buf, two->elements, g.arg, 0, iterations, &two->st, &e)) {
      tap_fail(TAP_HERE, "seed %d: %s\n%s", (int)s, e.text, print(g.k));
    } else if (!lg_same(one, two, text, sizeof text)) {
      tap_fail(TAP_HERE, "seed %d: canonical: %s\n%s\n%s", (int)s, text, print(g.k), print(clean));
    }
    lg_data_free(one);
    lg_data_free(two);
    rewind_arena();
  }
}

int main(void) {
  open_all();
  arena_init(&arena, &mem);
  TEST(t_unary(), "functions of one argument are the reference's");
  TEST(t_binary(), "functions of two arguments are the reference's");
  TEST(t_cast_where(), "casts and choices are the reference's");
  TEST(t_literals(), "literals are rounded once");
  TEST(t_fold(), "constants fold to what is computed");
  TEST(t_reduce(true), "reductions of rows follow rule 105");
  TEST(t_reduce(false), "reductions of columns follow rule 105");
  TEST(t_products(), "products follow rule 105");
  TEST(t_tile(), "a tile with an epilogue is a matrix product with what follows");
  TEST(t_cumsum(), "a variable keeps a running sum");
  TEST(t_gather(), "indices are checked");
  TEST(t_random(), "random numbers are the reference's");
  TEST(t_status(), "failures, parts of the iterations, stopping, bounds");
  TEST(t_memory(), "local buffers, and no memory");
  TEST(t_wrong(), "each wrong text is refused with its reason");
  TEST(t_wrong_arrays(), "wrong arrays are refused");
  TEST(t_clean(), "the canonical form has nothing in vain or twice");
  TEST(t_generated(), "random kernels do the same in every form");
  arena_free(&arena);
  close_all();
  return tap_done();
}
