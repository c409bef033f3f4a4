/* Machine code of kernels against lp_run, bit for bit, at every level that this CPU can run. */
#include "jit/loop/loop_elem.h"
#include "ref-naive.h"

#include "jit/loop/loop_impl.h"
#include "kernels.h"
#include "loop-gen.h"
#include "runtime/domain.h"

static bool un_ok(RefUn f, DType dt) {
  bool on_int = f == RU_NEG || f == RU_ABS || f == RU_SIGN || f == RU_RELU || f == RU_FLOOR ||
                f == RU_CEIL || f == RU_ROUND;
  return f == RU_NOT ? dt == DT_BOOL : dt_float(dt) || (dt_int(dt) && on_int);
}

static bool bin_ok(RefBin f, DType dt) {
  if (f == RB_AND || f == RB_OR) return dt == DT_BOOL;
  if (elem_bin[f].domain == DOM_FLOAT) return dt_float(dt);
  return dt != DT_BOOL || f == RB_EQ || f == RB_NE;
}

/* Iterations over argument 0, as lanes or one by one. */
static LVal over(Kernel *k, bool lanes) {
  LVal n = lp_size(k, 0);
  if (!lanes) return lp_par(k, n);
  lp_par(k, lp_i(k, 1));
  return lp_vec(k, n);
}

static void ends(Kernel *k, bool lanes) {
  lp_end(k);
  if (lanes) lp_end(k);
}

/* ---- scalar code */

static void t_unary(bool lanes) {
  for (int dt = 0; dt < DT_COUNT; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), by[RU_COUNT];
    for (int f = 0; f < RU_COUNT; f++)
      if (un_ok((RefUn)f, (DType)dt)) {
        by[f] = lp_buf(k, LB_OUT, elem_un[f].test ? DT_BOOL : (DType)dt);
      }
    LVal i = over(k, lanes), x = lp_load(k, bx, i);
    for (int f = 0; f < RU_COUNT; f++)
      if (un_ok((RefUn)f, (DType)dt)) lp_store(k, by[f], i, lp_un(k, (RefUn)f, x));
    ends(k, lanes);
    Code c;
    int64_t count[MAX_BUFS], n = 2003;
    all_same(count, n);
    if (code_make(&c, k))
      for (int round = 0; round < 3; round++)
        code_check(&c, dtype_info[dt].name, count, NULL, &n, WILD);
    code_free(&c);
    rewind_arena();
  }
}

static void t_binary(bool lanes) {
  for (int dt = 0; dt < DT_COUNT; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), bw = lp_buf(k, LB_IN, (DType)dt), by[RB_COUNT];
    for (int f = 0; f < RB_COUNT; f++)
      if (bin_ok((RefBin)f, (DType)dt)) {
        by[f] = lp_buf(k, LB_OUT, elem_bin[f].test ? DT_BOOL : (DType)dt);
      }
    LVal i = over(k, lanes), x = lp_load(k, bx, i), y = lp_load(k, bw, i);
    for (int f = 0; f < RB_COUNT; f++)
      if (bin_ok((RefBin)f, (DType)dt)) lp_store(k, by[f], i, lp_bin(k, (RefBin)f, x, y));
    ends(k, lanes);
    Code c;
    int64_t count[MAX_BUFS], n = 2003, limit[MAX_BUFS] = {0};
    all_same(count, n);
    if (code_make(&c, k))
      for (int round = 0; round < 4; round++) {
        if (dt_int((DType)dt)) limit[1] = round == 1 ? 5 : 0;
        code_check(&c, dtype_info[dt].name, count, limit, &n, WILD);
      }
    code_free(&c);
    rewind_arena();
  }
}

static void t_cast(bool lanes) {
  for (int from = 0; from < DT_COUNT; from++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)from), bc = lp_buf(k, LB_IN, DT_BOOL);
    int bo = lp_buf(k, LB_IN, (DType)from), by[DT_COUNT], bz = lp_buf(k, LB_OUT, (DType)from);
    int bf = from != DT_BOOL ? lp_buf(k, LB_OUT, (DType)from) : 0;
    for (int to = 0; to < DT_COUNT; to++) by[to] = lp_buf(k, LB_OUT, (DType)to);
    LVal i = over(k, lanes), x = lp_load(k, bx, i), y = lp_load(k, bo, i);
    for (int to = 0; to < DT_COUNT; to++) lp_store(k, by[to], i, lp_cast(k, x, (DType)to));
    LVal w = lp_where(k, lp_load(k, bc, i), x, y);
    lp_store(k, bz, i, w);
    if (bf) lp_store(k, bf, i, lp_fma(k, x, y, w));
    ends(k, lanes);
    Code c;
    int64_t count[MAX_BUFS], n = 3001;
    all_same(count, n);
    if (code_make(&c, k))
      for (int round = 0; round < 4; round++)
        code_check(&c, dtype_info[from].name, count, NULL, &n, WILD);
    code_free(&c);
    rewind_arena();
  }
}

/* Products and sums that cancel, are subnormal, or overflow. */
static void t_fma(void) {
  for (int dt = DT_F32; dt <= DT_F64; dt++) {
    Kernel *k = lp_new(&arena);
    int b[4];
    for (int i = 0; i < 4; i++) b[i] = lp_buf(k, i < 3 ? LB_IN : LB_OUT, (DType)dt);
    int be = lp_buf(k, LB_IN, DT_I64), bo = lp_buf(k, LB_OUT, (DType)dt);
    LVal i = over(k, true), x = lp_load(k, b[0], i), y = lp_load(k, b[1], i),
         z = lp_load(k, b[2], i);
    /* two to any power: from the bits of an exponent made by multiplications */
    LVal p = lp_bin(k, RB_POW, lp_const(k, (DType)dt, 2), lp_cast(k, lp_load(k, be, i), (DType)dt));
    lp_store(k, b[3], i, lp_fma(k, lp_bin(k, RB_MUL, x, p), y, z));
    LVal xy = lp_bin(k, RB_MUL, x, y), tiny = lp_bin(k, RB_MUL, p, y);
    lp_store(k, bo, i, lp_fma(k, x, lp_fma(k, tiny, x, xy), lp_un(k, RU_NEG, xy)));
    ends(k, true);
    Code c;
    int64_t count[MAX_BUFS], n = 5000;
    all_same(count, n);
    if (code_make(&c, k))
      for (int round = 0; round < 20; round++) {
        int64_t limit[MAX_BUFS] = {[4] = round < 10 ? 0 : dt == DT_F32 ? 150 : 1100};
        code_check(&c, "fma", count, limit, &n, round % 2 ? WILD : PLAIN);
      }
    code_free(&c);
    rewind_arena();
  }
}

/* Remainders of what lies at and beside multiples, by quotients that a float tells from their
 * neighbours and such as it does not. */
static void t_remainder(void) {
  for (int dt = DT_F32; dt <= DT_F64; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), bw = lp_buf(k, LB_IN, (DType)dt),
        bq = lp_buf(k, LB_IN, DT_I64), by[6];
    for (int j = 0; j < 6; j++) by[j] = lp_buf(k, LB_OUT, (DType)dt);
    LVal i = over(k, true), x = lp_load(k, bx, i), y = lp_load(k, bw, i);
    LVal m = lp_bin(k, RB_MUL, y, lp_cast(k, lp_load(k, bq, i), (DType)dt));
    LVal of[3] = {m, lp_bin(k, RB_ADD, m, x), lp_un(k, RU_NEG, m)};
    for (int j = 0; j < 6; j++)
      lp_store(k, by[j], i, lp_bin(k, j % 2 ? RB_FLOORDIV : RB_MOD, of[j / 2], y));
    ends(k, true);
    Code c;
    int64_t count[MAX_BUFS], n = 5000;
    all_same(count, n);
    if (code_make(&c, k))
      for (int round = 0; round < 20; round++) {
        int bits = dt == DT_F32 ? 24 : 53;
        int64_t limit[MAX_BUFS] = {[2] = INT64_C(1) << (round < 10 ? 2 * round : bits - round % 3)};
        code_check(&c, "remainder", count, limit, &n, round == 19 ? WILD : PLAIN);
      }
    code_free(&c);
    rewind_arena();
  }
}

static void t_literals(void) {
  Kernel *k = lp_new(&arena);
  int by[DT_COUNT][2];
  for (int dt = 0; dt < DT_COUNT; dt++)
    for (int j = 0; j < 2; j++) by[dt][j] = lp_buf(k, LB_OUT, (DType)dt);
  lp_par(k, lp_i(k, 1));
  LVal i = lp_vec(k, lp_i(k, 21));
  for (int dt = 0; dt < DT_COUNT; dt++) {
    lp_store(k, by[dt][0], i, lp_num(k, (DType)dt, 0));
    lp_store(k, by[dt][1], i,
             lp_const(k, (DType)dt,
                      dt == DT_BOOL         ? 1
                      : dt_float((DType)dt) ? 0.1
                                            : -3));
  }
  lp_end(k);
  lp_end(k);
  Code c;
  int64_t count[MAX_BUFS];
  all_same(count, 21);
  if (code_make(&c, k))
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
      int64_t arg;
      memcpy(&arg, &specials[s], 8);
      code_check(&c, "literal", count, NULL, &arg, PLAIN);
    }
  code_free(&c);
  rewind_arena();
}

/* ---- indices */

static void t_index(void) {
  Kernel *k = lp_new(&arena);
  int out[14], o = 0;
  for (int i = 0; i < 14; i++) out[i] = lp_buf(k, LB_OUT, DT_I64);
  LVal n = lp_size(k, 0), d = lp_size(k, 1), base = lp_size(k, 2), seven = lp_i(k, 7);
  LVal t = lp_par(k, lp_size(k, 3)), j = lp_vec(k, n),
       i = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, t, n), j);
  LVal at = lp_bin(k, RB_ADD, base, i), back = lp_bin(k, RB_SUB, lp_i(k, INT64_C(1) << 62), at);
  LVal wide = lp_bin(k, RB_MUL, i, lp_bin(k, RB_ADD, d, i));
  LVal even = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, t, lp_i(k, 48)), j); /* of 16 in one part */
  LVal v[14] = {lp_idiv(k, at, d),
                lp_irem(k, at, d),
                lp_idiv(k, at, seven),
                lp_irem(k, at, lp_i(k, 1000)),
                lp_idiv(k, back, d),
                lp_irem(k, back, seven),
                lp_idiv(k, wide, lp_bin(k, RB_ADD, j, d)),
                lp_irem(k, wide, lp_bin(k, RB_ADD, at, seven)),
                lp_idiv(k, t, d),
                lp_irem(k, i, i),
                lp_op(k, LP_CTZ, DT_I64, 1, (LVal[]){lp_bin(k, RB_ADD, wide, seven)}, 0),
                lp_un(k, RU_NEG, lp_bin(k, RB_MUL, lp_bin(k, RB_SUB, i, base), d)),
                lp_idiv(k, even, lp_i(k, 32)),
                lp_irem(k, lp_bin(k, RB_ADD, even, lp_i(k, 16)), lp_i(k, 48))};
  for (; o < 14; o++) lp_store(k, out[o], i, v[o]);
  lp_end(k);
  lp_end(k);
  Code c;
  static const int64_t divisor[] = {1,  2,  3,   7,    15,      16,
                                    17, 31, 100, 4096, 1000003, INT64_C(1) << 40};
  static const int64_t bases[] = {
      0, 5, 1000, (INT64_C(1) << 52) - 30, INT64_C(1) << 53, INT64_C(1) << 60};
  if (code_make(&c, k))
    for (size_t x = 0; x < 12; x++)
      for (size_t y = 0; y < 6; y++) {
        int64_t count[MAX_BUFS], arg[4] = {77, divisor[x], bases[y], 3};
        all_same(count, 77 * 3);
        code_check(&c, "index", count, NULL, arg, PLAIN);
      }
  code_free(&c);
  rewind_arena();
}

/* Quotients under a guard that keeps lanes with an index below 0 from running: lane 0 is one of
 * those, or all are. */
static void t_guarded(void) {
  Kernel *k = lp_new(&arena);
  enum { N = 16 };
  static const int64_t known[] = {1, 3, 5, 6, 16, 48};
  int out[N], o = 0;
  for (int i = 0; i < N; i++) out[i] = lp_buf(k, LB_OUT, DT_I64);
  LVal n = lp_size(k, 0), first = lp_size(k, 1), d = lp_size(k, 2), zero = lp_i(k, 0);
  lp_par(k, lp_i(k, 1));
  LVal i = lp_vec(k, n);
  for (int back = 0; back < 2; back++) {
    LVal x = back ? lp_bin(k, RB_SUB, first, i) : lp_bin(k, RB_SUB, i, first);
    lp_if(k, lp_bin(k, RB_GE, x, zero));
    for (int j = 0; j < 6; j++) {
      LVal y = lp_i(k, known[j]), tens = lp_bin(k, RB_MUL, lp_idiv(k, x, y), lp_i(k, 100));
      lp_store(k, out[o++], i, lp_bin(k, RB_ADD, tens, lp_irem(k, x, y)));
    }
    lp_store(k, out[o++], i, lp_idiv(k, x, d));
    lp_store(k, out[o++], i, lp_irem(k, x, d));
    lp_end(k);
  }
  lp_end(k);
  lp_end(k);
  Code c;
  static const int64_t starts[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 60, 100};
  static const int64_t divisor[] = {1, 2, 3, 5, 7, 16, 31, 1000, INT64_C(1) << 40};
  if (code_make(&c, k))
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
      for (size_t y = 0; y < sizeof divisor / sizeof *divisor; y++) {
        int64_t count[MAX_BUFS], arg[3] = {77, starts[s], divisor[y]};
        all_same(count, 77);
        code_check(&c, "guarded", count, NULL, arg, PLAIN);
      }
  code_free(&c);
  rewind_arena();
}

/* Loads and stores of each width and every kind of address, under masks. */
static void t_memory(void) {
  for (int dt = 0; dt < DT_COUNT; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), bi = lp_buf(k, LB_IN, DT_I64),
        bm = lp_buf(k, LB_IN, DT_BOOL);
    int by[7], local = lp_local(k, (DType)dt, 0, 2);
    for (int i = 0; i < 7; i++) by[i] = lp_buf(k, i == 6 ? LB_INOUT : LB_OUT, (DType)dt);
    LVal n = lp_size(k, 0), one = lp_i(k, 1), last = lp_bin(k, RB_SUB, n, one), two = lp_i(k, 2);
    lp_par(k, lp_i(k, 2));
    LVal j = lp_vec(k, n), back = lp_bin(k, RB_SUB, last, j), twice = lp_bin(k, RB_MUL, j, two);
    lp_store(k, by[0], j, lp_load(k, bx, back));
    lp_store(k, by[1], back, lp_load(k, bx, twice));
    lp_store(k, by[2], twice, lp_load(k, bx, lp_load(k, bi, j)));
    lp_store(k, by[3], j, lp_load(k, bx, last));
    lp_store(k, local, lp_bin(k, RB_ADD, j, n), lp_load(k, bx, j));
    lp_if(k, lp_load(k, bm, j));
    lp_store(k, by[4], j, lp_load(k, bx, back));
    lp_store(k, by[5], back, lp_load(k, bx, twice));
    lp_store(k, by[6], twice, lp_load(k, by[6], twice));
    lp_if(k, lp_bin(k, RB_LT, j, lp_i(k, 3)));
    lp_store(k, by[6], j, lp_load(k, bx, lp_load(k, bi, j)));
    lp_end(k);
    lp_end(k);
    lp_end(k);
    j = lp_vec(k, n);
    lp_if(k, lp_bin(k, RB_GT, j, lp_i(k, 20)));
    lp_store(k, by[6], j, lp_load(k, local, lp_bin(k, RB_ADD, j, n)));
    lp_end(k);
    lp_end(k);
    lp_end(k);
    Code c;
    static const int64_t sizes[] = {1, 15, 16, 17, 33, 100};
    if (code_make(&c, k))
      for (int s = 0; s < 6; s++) {
        int64_t m = sizes[s], count[MAX_BUFS] = {2 * m, m, m, 0, m, m, 2 * m, m, m, m, 2 * m};
        int64_t limit[MAX_BUFS] = {[1] = 2 * m};
        code_check(&c, dtype_info[dt].name, count, limit, &m, WILD);
      }
    code_free(&c);
    rewind_arena();
  }
}

/* ---- loops */

/* Running sums in a loop of lanes, variables set in branches, a loop in scalar code. */
static void t_variables(void) {
  for (int dt = DT_U8; dt < DT_COUNT; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), by = lp_buf(k, LB_OUT, (DType)dt),
        bz = lp_buf(k, LB_OUT, (DType)dt);
    int bc = lp_buf(k, LB_OUT, DT_I64);
    LVal n = lp_size(k, 0), m = lp_size(k, 1), zero = lp_const(k, (DType)dt, 0);
    LVal t = lp_par(k, m);
    LVal all = lp_var(k, zero), r = lp_for(k, n);
    LVal x = lp_load(k, bx, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, r, m), t));
    lp_if(k, lp_bin(k, RB_GT, x, lp_get(k, all)));
    lp_set(k, all, x);
    lp_end(k);
    lp_end(k);
    lp_store(k, bz, t, lp_get(k, all));
    lp_if(k, lp_bin(k, RB_EQ, t, lp_i(k, 0)));
    LVal j = lp_vec(k, m), sum = lp_var(k, zero), iterations = lp_var(k, lp_i(k, 0));
    r = lp_for(k, n);
    LVal at = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, r, m), j), y = lp_load(k, bx, at);
    lp_if(k, lp_bin(k, RB_LT, lp_get(k, sum), y));
    lp_set(k, iterations, lp_bin(k, RB_ADD, lp_get(k, iterations), lp_bin(k, RB_ADD, j, r)));
    lp_if(k, lp_bin(k, RB_GT, y, zero));
    lp_set(k, sum, lp_bin(k, RB_SUB, lp_get(k, sum), y));
    lp_end(k);
    lp_end(k);
    lp_set(k, sum, lp_bin(k, RB_ADD, lp_get(k, sum), y));
    lp_store(k, by, at, lp_get(k, sum));
    lp_end(k);
    lp_store(k, bc, j, lp_get(k, iterations));
    lp_end(k);
    lp_end(k);
    lp_end(k);
    Code c;
    if (code_make(&c, k))
      for (int s = 0; s < 8; s++) {
        int64_t arg[2] = {below(9), 1 + below(40)},
                count[MAX_BUFS] = {arg[0] * arg[1], arg[0] * arg[1], arg[1], arg[1]};
        code_check(&c, dtype_info[dt].name, count, NULL, arg, WILD);
      }
    code_free(&c);
    rewind_arena();
  }
}

static const int64_t lengths[] = {0, 1, 15, 16, 17, 33, 100, 4095, 4096, 4097, 8200, 12289};

/* All kinds of one dtype in one pass, over rows (the iterations are lanes) or columns (lanes of the
 * VEC around). `fixed`: the length as a constant. */
static void reduce(DType dt, bool rows, int64_t fixed, bool chain) {
  Kernel *k = lp_new(&arena);
  int bx = lp_buf(k, LB_IN, dt), bw = lp_buf(k, LB_IN, dt), by[RED_COUNT];
  LVal y[RED_COUNT];
  bool use[RED_COUNT];
  for (int kind = 0; kind < RED_COUNT; kind++) {
    bool truth = kind == RED_ANY || kind == RED_ALL, first = kind >= RED_FIRST_MAX;
    use[kind] = (first || truth == (dt == DT_BOOL)) && (chain || kind != RED_CHAIN);
    if (use[kind]) by[kind] = lp_buf(k, LB_OUT, first ? DT_I64 : dt);
  }
  LVal n = fixed < 0 ? lp_size(k, 0) : lp_i(k, fixed), kept = lp_size(k, 1), i, r;
  if (rows) {
    i = lp_par(k, kept);
  } else {
    lp_par(k, lp_i(k, 1));
    i = lp_vec(k, kept);
  }
  r = lp_red(k, n);
  LVal at = rows ? lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, i, n), r)
                 : lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, r, kept), i);
  LVal v = lp_load(k, bx, at), w = lp_load(k, bw, at);
  for (int kind = 0; kind < RED_COUNT; kind++)
    if (use[kind])
      y[kind] = lp_yield(k, (LRed)kind, v, kind == RED_FMA || kind == RED_CHAIN ? w : LV_NONE);
  lp_end(k);
  for (int kind = 0; kind < RED_COUNT; kind++)
    if (use[kind]) lp_store(k, by[kind], i, lp_result(k, y[kind]));
  lp_end(k);
  if (!rows) lp_end(k);
  Code c;
  if (code_make(&c, k))
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
      for (int how = PLAIN; how <= WILD; how++) {
        int64_t len = fixed < 0 ? lengths[l] : fixed, m = rows ? 1 + below(7) : 1 + below(20);
        int64_t arg[2] = {len, m}, count[MAX_BUFS];
        if (fixed >= 0 && l > 1) break;
        all_same(count, m);
        count[0] = count[1] = len * m;
        char what[80];
        snprintf(what, sizeof what, "%s of %d %s%s", rows ? "rows" : "columns", (int)len,
                 dtype_info[dt].name, chain ? " with chain" : "");
        if (!code_check(&c, what, count, NULL, arg, how)) break;
      }
  code_free(&c);
  rewind_arena();
}

static void t_reduce(bool rows, bool chain) {
  for (int dt = 0; dt < DT_COUNT; dt++) {
    if (chain && dt != DT_I16 && dt != DT_F16 && dt != DT_F32 && dt != DT_F64) continue;
    reduce((DType)dt, rows, -1, chain);
    if (dt != DT_F32) continue;
    static const int64_t fixed[] = {3, 21, 64, 5000};
    for (int s = 0; s < 4 && !chain; s++) reduce((DType)dt, rows, fixed[s], chain);
  }
}

/* A softmax and a norm of rows: several passes and reductions in one iteration. */
static void t_rows(void) {
  for (int dt = DT_F16; dt < DT_COUNT; dt++) {
    Kernel *k = lp_new(&arena);
    int bx = lp_buf(k, LB_IN, (DType)dt), by = lp_buf(k, LB_OUT, (DType)dt),
        bz = lp_buf(k, LB_OUT, (DType)dt);
    int local = lp_local(k, (DType)dt, 1, 1);
    LVal rows = lp_size(k, 0), n = lp_size(k, 1), i = lp_par(k, rows),
         base = lp_bin(k, RB_MUL, i, n);
    LVal r = lp_red(k, n);
    LVal x = lp_load(k, bx, lp_bin(k, RB_ADD, base, r));
    LVal ymax = lp_yield(k, RED_MAX, x, LV_NONE), ysum = lp_yield(k, RED_SUM, x, LV_NONE);
    lp_end(k);
    LVal most = lp_result(k, ymax),
         mean = lp_bin(k, RB_DIV, lp_result(k, ysum), lp_cast(k, n, (DType)dt));
    r = lp_red(k, n);
    x = lp_load(k, bx, lp_bin(k, RB_ADD, base, r));
    LVal p = lp_un(k, RU_EXP, lp_bin(k, RB_SUB, x, most)), dev = lp_bin(k, RB_SUB, x, mean);
    lp_store(k, local, r, p);
    LVal yp = lp_yield(k, RED_SUM, p, LV_NONE), yv = lp_yield(k, RED_FMA, dev, dev);
    lp_end(k);
    LVal sum = lp_result(k, yp), rs = lp_un(k, RU_RSQRT, lp_result(k, yv));
    LVal j = lp_vec(k, n), at = lp_bin(k, RB_ADD, base, j);
    lp_store(k, by, at, lp_bin(k, RB_DIV, lp_load(k, local, j), sum));
    lp_store(k, bz, at, lp_bin(k, RB_MUL, lp_bin(k, RB_SUB, lp_load(k, bx, at), mean), rs));
    lp_end(k);
    lp_end(k);
    Code c;
    if (code_make(&c, k))
      for (size_t l = 1; l < sizeof lengths / sizeof *lengths; l++) {
        int64_t arg[2] = {1 + below(9), lengths[l]}, count[MAX_BUFS];
        all_same(count, arg[0] * arg[1]);
        code_check(&c, "rows", count, NULL, arg, below(4) ? PLAIN : WILD);
      }
    code_free(&c);
    rewind_arena();
  }
}

/* ---- random numbers, failures */

static void t_random(bool lanes) {
  Kernel *k = lp_new(&arena);
  int bk = lp_buf(k, LB_IN, DT_I64), by[DT_COUNT][2], bi[8];
  for (int dt = DT_F16; dt < DT_COUNT; dt++)
    for (int j = 0; j < 2; j++) by[dt][j] = lp_buf(k, LB_OUT, (DType)dt);
  for (int j = 0; j < 8; j++) bi[j] = lp_buf(k, LB_OUT, DT_I64);
  LVal off = lp_size(k, 1), i = over(k, lanes);
  LVal key = lp_load(k, bk, lp_i(k, 0)), counter = lp_load(k, bk, lp_i(k, 1)),
       e = lp_bin(k, RB_ADD, i, off);
  for (int dt = DT_F16; dt < DT_COUNT; dt++)
    for (int j = 0; j < 2; j++) {
      LVal v = lp_op(k, j ? LP_NORMAL : LP_UNIFORM, (DType)dt, 3, (LVal[]){key, counter, e}, 0);
      lp_store(k, by[dt][j], i, v);
    }
  LVal lane_key = lp_load(k, bk, i), three = lp_i(k, 3);
  lp_store(k, bi[0], i,
           lp_op(k, LP_RANDINT, DT_I64, 4, (LVal[]){key, counter, e, lp_size(k, 2)}, 0));
  lp_store(k, bi[1], i, lp_op(k, LP_FOLD, DT_I64, 2, (LVal[]){key, e}, 0));
  lp_store(k, bi[2], i, lp_op(k, LP_FOLD, DT_I64, 2, (LVal[]){lane_key, counter}, 0));
  lp_store(k, bi[3], i, lp_op(k, LP_RANDINT, DT_I64, 4, (LVal[]){lane_key, e, three, lane_key}, 0));
  for (int w = 0; w < 4; w++) {
    LVal in[6] = {e, key, lane_key, counter, three, lane_key};
    lp_store(k, bi[4 + w], i, lp_op(k, LP_PHILOX, DT_I64, 6, in, w));
  }
  ends(k, lanes);
  Code c;
  if (code_make(&c, k))
    for (int s = 0; s < 6; s++) {
      int64_t arg[3] = {1 + below(70), s < 3 ? below(9) : INT64_C(1) << (10 * s),
                        1 + below(s % 2 ? 100 : INT64_MAX)};
      int64_t count[MAX_BUFS];
      all_same(count, arg[0] < 2 ? 2 : arg[0]);
      code_check(&c, "random", count, NULL, arg, WILD);
    }
  code_free(&c);
  rewind_arena();
}

static void t_fail(void) {
  Kernel *k = lp_new(&arena);
  int bx = lp_buf(k, LB_IN, DT_I32), bm = lp_buf(k, LB_IN, DT_BOOL), by = lp_buf(k, LB_OUT, DT_I32);
  LVal n = lp_size(k, 0);
  lp_par(k, lp_i(k, 1));
  LVal i = lp_vec(k, n), x = lp_load(k, bx, i);
  lp_if(k, lp_load(k, bm, i));
  lp_op(k, LP_CHECK, DT_I64, 1, (LVal[]){lp_bin(k, RB_LT, x, lp_const(k, DT_I32, 9))}, 0);
  lp_store(k, by, i, lp_bin(k, RB_FLOORDIV, lp_const(k, DT_I32, 100), x));
  lp_end(k);
  lp_end(k);
  lp_end(k);
  Code c;
  if (code_make(&c, k))
    for (int s = 0; s < 200; s++) {
      int64_t arg = 1 + below(40), count[MAX_BUFS], limit[MAX_BUFS] = {1 + below(12), 1 + below(2)};
      all_same(count, arg);
      code_check(&c, "failing", count, limit, &arg, PLAIN);
    }
  code_free(&c);
  rewind_arena();
}

/* Random kernels number `from` .. `to` - 1. */
static void t_drawn(uint64_t from, uint64_t to) {
  for (uint64_t s = from; s < to; s++) {
    LoopGen g;
    Code c;
    Err e = {0};
    char text[200];
    lg_make(&g, &arena, s);
    LgData *want = lg_data(&g);
    bool ok =
        lp_run_within(&mem, g.k, want->buf, want->elements, g.arg, 0, g.arg[0], &want->st, &e);
    if (!ok) tap_fail(TAP_HERE, "kernel %d: %s", (int)s, e.text);
    ok = ok && code_make(&c, g.k);
    for (int l = 0; l <= (int)eng_host_level() && ok; l++) {
      LgData *got = lg_data(&g);
      char *scratch = aligned_alloc(64, (size_t)lp_local_bytes(g.k, g.arg) + 64);
      c.code[l].entry(got->buf, g.arg, 0, g.arg[0], scratch, &got->st);
      ok = lg_same(want, got, text, sizeof text);
      if (!ok) tap_fail(TAP_HERE, "kernel %d at %s: %s", (int)s, eng_targets[l].name, text);
      free(scratch);
      lg_data_free(got);
    }
    lg_data_free(want);
    code_free(&c);
    rewind_arena();
  }
}

/* With one argument: the tests whose titles contain it. With two: drawn kernels by number. */
#undef TEST
#define TEST(call, title)                                                                          \
  (argc != 2 || strstr(title, argv[1]) ? (tap_begin(), (void)(call), tap_end(title)) : (void)0)

int main(int argc, char **argv) {
  open_all();
  arena_init(&arena, &mem);
  if (!codegen_start()) {
    TEST(SKIP("no code generator"), "kernels as machine code");
    close_all();
    return tap_done();
  }
  if (argc == 3) {
    TEST(t_drawn(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0)),
         "kernels drawn by number");
    codegen_stop();
    return tap_done();
  }
  TEST(t_unary(true), "functions of one operand, in lanes");
  TEST(t_unary(false), "and one by one");
  TEST(t_binary(true), "functions of two operands, in lanes");
  TEST(t_binary(false), "and one by one");
  TEST(t_cast(true), "casts, where and fma of every dtype, in lanes");
  TEST(t_cast(false), "and one by one");
  TEST(t_fma(), "fma that cancels, underflows and overflows");
  TEST(t_remainder(), "remainders beside multiples");
  TEST(t_literals(), "constants and literals");
  TEST(t_index(), "quotients of indices");
  TEST(t_guarded(), "quotients of indices that are below 0 in lanes that do not run");
  TEST(t_memory(), "addresses of every kind, with and without masks");
  TEST(t_variables(), "variables, branches and loops");
  TEST(t_reduce(true, false), "reductions of rows");
  TEST(t_reduce(false, false), "reductions of columns");
  TEST(t_reduce(true, true), "chains of rows");
  TEST(t_reduce(false, true), "chains of columns");
  TEST(t_rows(), "rows in several passes");
  TEST(t_random(true), "random numbers in lanes");
  TEST(t_random(false), "and one by one");
  TEST(t_fail(), "failures are told, and only those of lanes that run");
  TEST(t_drawn(0, 12), "drawn kernels");
  codegen_stop();
  arena_free(&arena);
  close_all();
  return tap_done();
}
