/* Kernels for GPUs: the same schedule runs in the emulator with the bits of lp_run, and its PTX
 * has no relaxed arithmetic and is taken by ptxas, where that is installed. */
#include "jit/loop/loop_elem.h"
#include "ref-naive.h"

#include "jit/engine/emu.h"
#include "jit/loop/loop_impl.h"
#include "kernels.h"
#include "loop-gen.h"

static Emu *emu;
static const char *ptxas; /* NULL: not here */

static const char *find_ptxas(void) {
  static const char *const usual[] = {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas",
                                      "/opt/cuda/bin/ptxas"};
  const char *named = getenv("CKL_TEST_PTXAS");
  if (named) return access(named, X_OK) ? NULL : named;
  for (int i = 0; i < 3; i++)
    if (!access(usual[i], X_OK)) return usual[i];
  return NULL;
}

/* ---- PTX */

static bool assembles(const char *what, const char *ptx, const char *arch) {
  char path[200], option[40];
  int status = 0;
  snprintf(path, sizeof path, "t-ptx.%ld.ptx", (long)getpid());
  FILE *f = fopen(path, "w");
  bool written = f && fputs(ptx, f) >= 0;
  if (f && fclose(f)) written = false;
  if (!written) return tap_fail(TAP_HERE, "cannot write %s", path);
  snprintf(option, sizeof option, "-arch=%s", arch);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(1, 2);
    execl(ptxas, ptxas, "-O1", option, "-o", "/dev/null", path, (char *)NULL);
    _exit(127);
  }
  waitpid(pid, &status, 0);
  remove(path);
  return status == 0 || tap_fail(TAP_HERE, "%s: ptxas for %s fails\n%s", what, arch, ptx);
}

/* Float arithmetic that is not rounded as IEEE 754 has it, or left to be fused. */
static bool strict(const char *what, const char *ptx) {
  static const char *const loose[] = {".approx", ".ftz",     "mad.f",   "mad.rn.f", "fma.f",
                                      "add.f32", "add.f64",  "sub.f32", "sub.f64",  "mul.f32",
                                      "mul.f64", "div.full", "div.f",   "sqrt.f",   "fma.rn.ftz"};
  for (size_t i = 0; i < sizeof loose / sizeof *loose; i++)
    if (strstr(ptx, loose[i])) return tap_fail(TAP_HERE, "%s: %s\n%s", what, loose[i], ptx);
  return true;
}

static char *text_of(const Kernel *k) {
  Buf b;
  Err e = {0};
  buf_init_arena(&b, &arena);
  lp_print(&b, k);
  return lp_verify(k, &e) ? b.s : (tap_fail(TAP_HERE, "%s\n%s", e.text, b.s), NULL);
}

/* The PTX of a kernel for both GPUs. `fused`: it may have fma. */
static void ptx_check(const char *what, const char *text, bool fused) {
  for (unsigned level = 0; level < 2; level++) {
    const char *arch = level ? "sm_90" : "sm_80";
    char *ptx = NULL;
    if (!compile_as(text, 0, level ? CODEGEN_DUMP_PTX_90 : CODEGEN_DUMP_PTX, NULL, &ptx)) return;
    bool ok = strict(what, ptx);
    if (ok && !fused && strstr(ptx, "fma.")) ok = tap_fail(TAP_HERE, "%s: fma\n%s", what, ptx);
    if (ok && !strstr(ptx, arch)) ok = tap_fail(TAP_HERE, "%s: not for %s", what, arch);
    if (ok && ptxas) assembles(what, ptx, arch);
    free(ptx);
  }
}

/* ---- the emulator */

/* Drawn data, `count` elements of each buffer, int contents below limit[b] where that is not 0. */
static bool emu_check(const Kernel *k, const char *what, LoadCode *code, const int64_t *count,
                      const int64_t *limit, const int64_t *arg, int how) {
  size_t n = k->buf_count;
  Room want, got;
  void *p[MAX_BUFS];
  Err e = {0};
  KStatus st = {0}, s = {0};
  room_fill(&want, k, count, limit, how);
  room_copy(&got, &want, n);
  for (size_t b = 0; b < n; b++) p[b] = want.p[b] + GUARD;
  bool ok = lp_run_within(&mem, k, p, count, arg, 0, lp_iterations(k, arg), &st, &e);
  for (size_t b = 0; b < n; b++) p[b] = got.p[b] + GUARD;
  ok = ok && emu_run(emu, code->entry, p, arg, lp_iterations(k, arg), lp_local_bytes(k, arg), &s,
                     NULL, &e);
  if (!ok) tap_fail(TAP_HERE, "%s: %s", what, e.text);
  ok = ok && room_same(what, k, &got, &want);
  if (ok && s.failed != st.failed) ok = tap_fail(TAP_HERE, "%s: failed is %d", what, (int)s.failed);
  room_free(&want, n);
  room_free(&got, n);
  return ok;
}

/* A kernel whose buffers have `count` elements each, with arguments `arg`. */
static void whole_check(const Kernel *k, const char *what, bool fused, const int64_t *count,
                        const int64_t *limit, const int64_t *arg) {
  LoadCode code = {0};
  char *text = text_of(k);
  if (!text) return;
  ptx_check(what, text, fused);
  if (compile_as(text, eng_host_level(), CODEGEN_EMULATE, &code, NULL))
    for (int how = PLAIN; how <= WILD; how++) {
      if (!emu_check(k, what, &code, count, limit, arg, how)) break;
    }
  load_free(&mem, &code);
  rewind_arena();
}

/* ---- kernels */

static LVal add(Kernel *k, LVal x, LVal y) {
  return lp_bin(k, RB_ADD, x, y);
}
static LVal mul(Kernel *k, LVal x, LVal y) {
  return lp_bin(k, RB_MUL, x, y);
}

static bool arithmetic(int f) {
  return !elem_bin[f].test && f != RB_AND && f != RB_OR;
}

static void t_functions(DType dt) {
  Kernel *k = lp_new(&arena);
  int64_t count[MAX_BUFS], n = 700;
  int x = lp_buf(k, LB_IN, dt), y = lp_buf(k, LB_IN, dt), un[RU_COUNT], bin[RB_COUNT];
  for (int f = 0; f < RU_COUNT; f++)
    if (f != RU_NOT) un[f] = lp_buf(k, LB_OUT, elem_un[f].test ? DT_BOOL : dt);
  for (int f = 0; f < RB_COUNT; f++)
    if (arithmetic(f)) bin[f] = lp_buf(k, LB_OUT, dt);
  lp_par(k, lp_i(k, 1));
  LVal i = lp_vec(k, lp_size(k, 0)), a = lp_load(k, x, i), b = lp_load(k, y, i);
  for (int f = 0; f < RU_COUNT; f++)
    if (f != RU_NOT) lp_store(k, un[f], i, lp_un(k, (RefUn)f, a));
  for (int f = 0; f < RB_COUNT; f++)
    if (arithmetic(f)) lp_store(k, bin[f], i, lp_bin(k, (RefBin)f, a, b));
  lp_end(k);
  lp_end(k);
  all_same(count, n);
  whole_check(k, dtype_info[dt].name, true, count, NULL, &n);
}

static void t_unfused(void) {
  for (int dt = DT_F16; dt <= DT_F64; dt++) {
    Kernel *k = lp_new(&arena);
    int64_t count[MAX_BUFS], n = 300;
    int x = lp_buf(k, LB_IN, (DType)dt), y = lp_buf(k, LB_OUT, (DType)dt);
    lp_par(k, lp_i(k, 1));
    LVal i = lp_vec(k, lp_size(k, 0)), a = lp_load(k, x, i);
    LVal b = lp_bin(k, RB_SUB, add(k, mul(k, a, a), a), mul(k, a, lp_const(k, (DType)dt, 3)));
    lp_store(k, y, i, lp_bin(k, RB_DIV, lp_un(k, RU_SQRT, b), a));
    lp_end(k);
    lp_end(k);
    all_same(count, n);
    whole_check(k, "products and sums", false, count, NULL, &n);
  }
}

static void t_casts(void) {
  for (int from = 0; from < DT_COUNT; from++) {
    Kernel *k = lp_new(&arena);
    int64_t count[MAX_BUFS], n = 600;
    int x = lp_buf(k, LB_IN, (DType)from), y[DT_COUNT];
    for (int to = 0; to < DT_COUNT; to++) y[to] = lp_buf(k, LB_OUT, (DType)to);
    lp_par(k, lp_i(k, 1));
    LVal i = lp_vec(k, lp_size(k, 0)), a = lp_load(k, x, i);
    for (int to = 0; to < DT_COUNT; to++) lp_store(k, y[to], i, lp_cast(k, a, (DType)to));
    lp_end(k);
    lp_end(k);
    all_same(count, n);
    whole_check(k, dtype_info[from].name, true, count, NULL, &n);
  }
}

/* All reductions of rows (by 16 threads) or of columns (by one thread each). */
static void reductions(DType dt, bool rows, bool chain, int64_t length) {
  Kernel *k = lp_new(&arena);
  int64_t count[MAX_BUFS], arg[2] = {length, 3};
  int x = lp_buf(k, LB_IN, dt), z = lp_buf(k, LB_IN, dt), out[RED_COUNT];
  LVal y[RED_COUNT];
  bool use[RED_COUNT];
  for (int r = 0; r < RED_COUNT; r++) {
    bool truth = r == RED_ANY || r == RED_ALL, first = r >= RED_FIRST_MAX;
    use[r] = (first || truth == (dt == DT_BOOL)) && (chain || r != RED_CHAIN);
    if (use[r]) out[r] = lp_buf(k, LB_OUT, first ? DT_I64 : dt);
  }
  int squares = lp_buf(k, LB_OUT, dt);
  LVal n = lp_size(k, 0), kept = lp_size(k, 1), i;
  i = rows ? lp_par(k, kept) : (lp_par(k, lp_i(k, 1)), lp_vec(k, kept));
  LVal t = lp_red(k, n);
  LVal at = rows ? add(k, mul(k, i, n), t) : add(k, mul(k, t, kept), i);
  LVal v = lp_load(k, x, at), w = lp_load(k, z, at);
  lp_store(k, squares, at, dt == DT_BOOL ? v : add(k, v, v)); /* once per iteration */
  for (int r = 0; r < RED_COUNT; r++)
    if (use[r]) y[r] = lp_yield(k, (LRed)r, v, r == RED_FMA || r == RED_CHAIN ? w : LV_NONE);
  lp_end(k);
  for (int r = 0; r < RED_COUNT; r++)
    if (use[r]) lp_store(k, out[r], i, lp_result(k, y[r]));
  lp_end(k);
  if (!rows) lp_end(k);
  all_same(count, arg[1]);
  count[x] = count[z] = count[squares] = length * arg[1];
  char what[80];
  snprintf(what, sizeof what, "%s of %d %s%s", rows ? "rows" : "columns", (int)length,
           dtype_info[dt].name, chain ? " with chain" : "");
  whole_check(k, what, true, count, NULL, arg);
}

static void t_reduce(bool rows) {
  static const int64_t length[] = {0, 1, 17, 100, 4096, 4100, 12300};
  for (int i = 0; i < 7; i++) reductions(i % 2 ? DT_F32 : DT_F64, rows, i == 3, length[i]);
  for (int i = 0; i < 7; i++) reductions(i % 2 ? DT_F64 : DT_F32, rows, i == 5, length[i]);
  reductions(DT_BF16, rows, false, 4200);
  reductions(DT_I64, rows, true, 300);
  reductions(DT_U8, rows, false, 300);
  reductions(DT_BOOL, rows, false, 300);
}

/* Softmax by rows: what one pass leaves in local memory the next one reads. Between passes all
 * threads read places that one thread writes, before and after. */
static void t_rows(bool shared) {
  Kernel *k = lp_new(&arena);
  int64_t count[MAX_BUFS], arg[2] = {3, 1000};
  int x = lp_buf(k, LB_IN, DT_F32), y = lp_buf(k, LB_OUT, DT_F32);
  int local = shared ? lp_local(k, DT_F32, -1, 1000) : lp_local(k, DT_F32, 1, 1);
  int once = lp_local(k, DT_F32, -1, 1);
  LVal zero = lp_i(k, 0), one = lp_i(k, 1), one_f = lp_const(k, DT_F32, 1);
  LVal n = lp_size(k, 1), i = lp_par(k, lp_size(k, 0)), base = mul(k, i, n);
  LVal t = lp_red(k, n), v = lp_load(k, x, add(k, base, t));
  LVal yield = lp_yield(k, RED_MAX, v, LV_NONE);
  lp_end(k);
  LVal most = lp_result(k, yield);
  t = lp_vec(k, n);
  v = lp_un(k, RU_EXP, lp_bin(k, RB_SUB, lp_load(k, x, add(k, base, t)), most));
  lp_store(k, local, t, v);
  lp_end(k);
  LVal sum = lp_var(k, lp_load(k, local, lp_bin(k, RB_SUB, n, one))); /* after lanes */
  t = lp_red(k, n);
  yield = lp_yield(k, RED_SUM, lp_load(k, local, t), LV_NONE);
  lp_end(k);
  lp_store(k, once, zero, lp_result(k, yield));
  LVal loop = lp_for(k, lp_i(k, 3)), was = lp_load(k, once, zero); /* after and before a store */
  lp_if(k, lp_bin(k, RB_LT, loop, lp_i(k, 2)));
  lp_store(k, once, zero, add(k, was, one_f));
  lp_end(k);
  lp_set(k, sum, add(k, lp_get(k, sum), was));
  lp_end(k);
  was = lp_load(k, once, zero); /* before lanes */
  t = lp_vec(k, one);
  lp_store(k, once, t, add(k, was, one_f));
  lp_end(k);
  lp_set(k, sum, add(k, lp_get(k, sum), was));
  was = lp_load(k, once, zero); /* before a reduction, and after it */
  t = lp_red(k, one);
  lp_store(k, once, t, add(k, was, one_f));
  yield = lp_yield(k, RED_SUM, was, LV_NONE);
  lp_end(k);
  lp_set(k, sum, add(k, add(k, lp_get(k, sum), was), lp_result(k, yield)));
  lp_set(k, sum, add(k, lp_get(k, sum), lp_load(k, once, zero)));
  t = lp_vec(k, n);
  LVal last = lp_bin(k, RB_SUB, lp_bin(k, RB_SUB, n, t), one); /* another thread's */
  lp_store(k, y, add(k, base, t), lp_bin(k, RB_DIV, lp_load(k, local, last), lp_get(k, sum)));
  lp_end(k);
  lp_end(k);
  all_same(count, arg[0] * arg[1]);
  whole_check(k, shared ? "rows in shared memory" : "rows in scratch", true, count, NULL, arg);
}

/* y[i] = x[index[i]], and z[index[i]] = x[i] where that is there; a check that fails. */
static void t_gather(void) {
  Kernel *k = lp_new(&arena);
  int64_t n = 500, count[MAX_BUFS], limit[MAX_BUFS] = {0, 600};
  int x = lp_buf(k, LB_IN, DT_F16), index = lp_buf(k, LB_IN, DT_I32);
  int y = lp_buf(k, LB_OUT, DT_F16), z = lp_buf(k, LB_OUT, DT_F16);
  lp_par(k, lp_i(k, 1));
  LVal size = lp_size(k, 0), i = lp_vec(k, size);
  LVal at = lp_cast(k, lp_load(k, index, i), DT_I64), in = lp_bin(k, RB_LT, at, size);
  lp_op(k, LP_CHECK, DT_I64, 1, &in, 0);
  LVal safe = lp_where(k, in, at, lp_i(k, 0));
  lp_store(k, y, i, lp_load(k, x, safe));
  lp_if(k, lp_bin(k, RB_EQ, lp_irem(k, i, lp_i(k, 3)), lp_i(k, 0)));
  lp_store(k, z, lp_irem(k, mul(k, i, lp_i(k, 7)), size), lp_load(k, x, i));
  lp_end(k);
  lp_end(k);
  lp_end(k);
  all_same(count, n);
  whole_check(k, "gather and scatter", true, count, limit, &n);
}

static void t_random(void) {
  Kernel *k = lp_new(&arena);
  int64_t count[MAX_BUFS], n = 400;
  int words = lp_buf(k, LB_IN, DT_I64), out[DT_COUNT][2], whole = lp_buf(k, LB_OUT, DT_I64);
  for (int dt = DT_F16; dt <= DT_F64; dt++)
    for (int j = 0; j < 2; j++) out[dt][j] = lp_buf(k, LB_OUT, (DType)dt);
  lp_par(k, lp_i(k, 1));
  LVal i = lp_vec(k, lp_size(k, 0));
  LVal x[4] = {lp_load(k, words, lp_i(k, 0)), lp_load(k, words, lp_i(k, 1)), i, lp_i(k, 1000)};
  x[0] = lp_op(k, LP_FOLD, DT_I64, 2, x, 0);
  for (int dt = DT_F16; dt <= DT_F64; dt++)
    for (int j = 0; j < 2; j++)
      lp_store(k, out[dt][j], i, lp_op(k, j ? LP_NORMAL : LP_UNIFORM, (DType)dt, 3, x, 0));
  lp_store(k, whole, i, lp_op(k, LP_RANDINT, DT_I64, 4, x, 0));
  lp_end(k);
  lp_end(k);
  all_same(count, n);
  whole_check(k, "random numbers", true, count, NULL, &n);
}

/* C = A B + C of m x depth and depth x n by tiles of mr x nr, edges too; then its ramp. */
static void t_tile(DType dt, int mr, int nr) {
  Kernel *k = lp_new(&arena);
  int64_t arg[3] = {2 * mr + 1, nr + 3, 41}, count[MAX_BUFS] = {0};
  int a = lp_buf(k, LB_IN, dt), b = lp_buf(k, LB_IN, dt), c = lp_buf(k, LB_IN, dt);
  int y = lp_buf(k, LB_OUT, dt), z = lp_buf(k, LB_OUT, dt);
  LVal m = lp_size(k, 0), n = lp_size(k, 1), depth = lp_size(k, 2);
  LVal at = lp_par(k, lp_i(k, 6)); /* 3 x 2 tiles */
  LVal row = mul(k, lp_idiv(k, at, lp_i(k, 2)), lp_i(k, mr));
  LVal col = mul(k, lp_irem(k, at, lp_i(k, 2)), lp_i(k, nr));
  LVal op[TILE_OPERANDS] = {[TILE_DEPTH] = depth,
                            [TILE_ROWS] = lp_bin(k, RB_MIN, lp_bin(k, RB_SUB, m, row), lp_i(k, mr)),
                            [TILE_COLS] = lp_bin(k, RB_MIN, lp_bin(k, RB_SUB, n, col), lp_i(k, nr)),
                            [TILE_A] = mul(k, row, depth),
                            [TILE_A_ROW] = depth,
                            [TILE_A_STEP] = lp_i(k, 1),
                            [TILE_B] = col,
                            [TILE_B_STEP] = n,
                            [TILE_START] = add(k, mul(k, row, n), col),
                            [TILE_START_ROW] = n};
  for (int start = 0; start < 2; start++) {
    LVal t = lp_tile(k, dt, mr, nr, a, b, start ? c : LP_NO_BUF, op);
    LVal to = add(k, mul(k, add(k, row, lp_row(k, t)), n), add(k, col, lp_col(k, t)));
    lp_store(k, start ? y : z, to, start ? lp_un(k, RU_RELU, t) : t);
    lp_end(k);
  }
  lp_end(k);
  count[a] = arg[0] * arg[2];
  count[b] = arg[2] * arg[1];
  count[c] = count[y] = count[z] = arg[0] * arg[1];
  char what[40];
  snprintf(what, sizeof what, "tiles of %dx%d %s", mr, nr, dtype_info[dt].name);
  whole_check(k, what, true, count, NULL, arg);
}

/* All threads read what one of them has stored for its element of a tile, three iterations of
 * it. */
static void t_tile_read(void) {
  Kernel *k = lp_new(&arena);
  int64_t count[MAX_BUFS] = {200, 200, 768}, arg[1] = {3};
  int a = lp_buf(k, LB_IN, DT_F32), b = lp_buf(k, LB_IN, DT_F32), y = lp_buf(k, LB_OUT, DT_F32);
  int local = lp_local(k, DT_F32, -1, 256);
  LVal i = lp_par(k, lp_size(k, 0)), zero = lp_i(k, 0), one = lp_i(k, 1), n = lp_i(k, 16);
  LVal op[TILE_OPERANDS] = {
      [TILE_DEPTH] = lp_i(k, 5), [TILE_ROWS] = n,        [TILE_COLS] = n, [TILE_A] = i,
      [TILE_A_ROW] = lp_i(k, 5), [TILE_A_STEP] = one,    [TILE_B] = zero, [TILE_B_STEP] = n,
      [TILE_START] = zero,       [TILE_START_ROW] = zero};
  LVal t = lp_tile(k, DT_F32, 16, 16, a, b, LP_NO_BUF, op);
  lp_store(k, local, add(k, mul(k, lp_row(k, t), n), lp_col(k, t)), t);
  lp_end(k);
  LVal corner = lp_load(k, local, lp_i(k, 255)), first = lp_load(k, local, zero);
  LVal j = lp_vec(k, lp_i(k, 256)), at = add(k, mul(k, i, lp_i(k, 256)), j);
  lp_store(k, y, at, add(k, add(k, lp_load(k, local, j), corner), first));
  lp_end(k);
  lp_end(k);
  whole_check(k, "a tile in local memory", true, count, NULL, arg);
}

/* Kernels drawn by number: every structure in every place. */
static void t_drawn(uint64_t from, uint64_t to) {
  for (uint64_t s = from; s < to; s++) {
    LoopGen g;
    LoadCode code = {0};
    Err e = {0};
    char why[200], what[40];
    snprintf(what, sizeof what, "kernel %d", (int)s);
    lg_make(&g, &arena, s);
    LgData *want = lg_data(&g), *got = lg_data(&g);
    char *text = text_of(g.k);
    bool ok = text && lp_run_within(&mem, g.k, want->buf, want->elements, g.arg, 0, g.arg[0],
                                    &want->st, &e);
    if (!ok) tap_fail(TAP_HERE, "%s: %s", what, e.text);
    if (s % 4 == 0) ptx_check(what, text, true);
    ok = ok && compile_as(text, eng_host_level(), CODEGEN_EMULATE, &code, NULL);
    if (ok && !emu_run(emu, code.entry, got->buf, g.arg, g.arg[0], lp_local_bytes(g.k, g.arg),
                       &got->st, NULL, &e)) {
      ok = tap_fail(TAP_HERE, "%s: %s", what, e.text);
    }
    if (ok && !lg_same(want, got, why, sizeof why)) tap_fail(TAP_HERE, "%s: %s", what, why);
    load_free(&mem, &code);
    lg_data_free(want);
    lg_data_free(got);
    rewind_arena();
  }
}

int main(int argc, char **argv) {
  open_all();
  arena_init(&arena, &mem);
  emu = emu_open(&mem);
  ptxas = find_ptxas();
  if (!codegen_start()) {
    TEST(SKIP("no code generator"), "kernels for GPUs");
    emu_close(emu);
    close_all();
    return tap_done();
  }
  if (argc == 3) {
    TEST(t_drawn(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0)),
         "kernels drawn by number");
    codegen_stop();
    emu_close(emu);
    return tap_done();
  }
  if (!ptxas) TEST(SKIP("no ptxas"), "PTX is taken by ptxas");
  TEST(t_functions(DT_F32), "functions of f32");
  TEST(t_functions(DT_F64), "functions of f64");
  TEST(t_functions(DT_F16), "functions of f16");
  TEST(t_unfused(), "products and sums are not fused");
  TEST(t_casts(), "casts");
  TEST(t_reduce(true), "reductions of rows");
  TEST(t_reduce(false), "reductions of columns");
  TEST(t_rows(true), "rows in several passes through shared memory");
  TEST(t_rows(false), "and through scratch");
  TEST(t_gather(), "gather and scatter, with a check");
  TEST(t_random(), "random numbers");
  TEST((t_tile(DT_F32, 14, 32), t_tile(DT_F64, 6, 8), t_tile(DT_F32, 3, 128)), "tiles");
  TEST(t_tile_read(), "what a tile leaves is there for all threads");
  TEST(t_drawn(0, 16), "drawn kernels");
  codegen_stop();
  arena_free(&arena);
  emu_close(emu);
  close_all();
  return tap_done();
}
