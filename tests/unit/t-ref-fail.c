/* Every kernel survives each of its allocations failing, and stops soon when interrupted. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "ref-naive.h"
#include "runtime/reference/ref.h"
#include "runtime/reference/ref_elem.h"

static Interrupt stop;

typedef struct Case {
  const char *name;
  bool quick; /* makes views: nothing to interrupt */
  Tensor *(*run)(void);
} Case;

/* Operands, small for the first test and large for the second. */
static Tensor *f32, *f64, *f16, *i32, *i64, *boolean, *index_, *column, *square, *image, *kernel,
    *grad, *key, *limit, *row;
static int64_t one[] = {1, 1}, zero[] = {0, 0}, axis0[] = {0}, axis1[] = {1};

static void make(bool large) {
  int64_t n = large ? 3000 : 5, c = large ? 1000 : 4;
  f32 = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){n, c});
  f64 = tn_zeros(&mem, DEV_CPU, DT_F64, 2, f32->dim);
  f16 = tn_zeros(&mem, DEV_CPU, DT_F16, 2, f32->dim);
  i32 = tn_zeros(&mem, DEV_CPU, DT_I32, 2, f32->dim);
  memset(tn_data(i32), 1, (size_t)tn_count(i32) * 4);
  i64 = tn_zeros(&mem, DEV_CPU, DT_I64, 2, f32->dim);
  boolean = tn_zeros(&mem, DEV_CPU, DT_BOOL, 2, f32->dim);
  index_ = tn_zeros(&mem, DEV_CPU, DT_I64, 1, (int64_t[]){n});
  column = ref_transpose(&ref, f32, (int64_t[]){1, 0});
  square = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){c, c});
  for (int64_t i = 0; i < c; i++) ((float *)tn_data(square))[i * (c + 1)] = 1;
  row = ref_reshape(&ref, f32, 1, (int64_t[]){n * c});
  int64_t s = large ? 128 : 6, ch = large ? 32 : 2;
  image = tn_zeros(&mem, DEV_CPU, DT_F32, 4, (int64_t[]){large ? 8 : 2, ch, s, s});
  kernel = tn_zeros(&mem, DEV_CPU, DT_F32, 4, (int64_t[]){ch, ch, 3, 3});
  grad = ref_conv2d(&ref, image, kernel, one, zero, 0);
  key = tn_zeros(&mem, DEV_CPU, DT_I64, 1, (int64_t[]){2});
  limit = tn_scalar_i64(&mem, DEV_CPU, DT_I64, 10);
}
static void unmake(void) {
  Tensor *t[] = {f32,    f64,   f16,    i32,  i64, boolean, index_, column,
                 square, image, kernel, grad, key, limit,   row};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) tn_unref(t[i]);
}

static Tensor *two(bool ok, Tensor *a, Tensor *b) {
  if (!ok) check(!a && !b);
  tn_unref(b);
  return a;
}

#define RUN(name, expr)                                                                            \
  static Tensor *run_##name(void) {                                                                \
    return expr;                                                                                   \
  }
RUN(unary, ref_unary(&ref, RU_TANH, f32))
RUN(unary_strided, ref_unary(&ref, RU_LOG, column))
RUN(unary_f16, ref_unary(&ref, RU_NEG, f16))
RUN(test, ref_unary(&ref, RU_ISNAN, f64))
RUN(binary, ref_binary(&ref, RB_POW, f32, f32))
RUN(binary_int, ref_binary(&ref, RB_ADD, i32, i32))
RUN(compare, ref_binary(&ref, RB_LT, f64, f64))
RUN(where, ref_where(&ref, boolean, f32, f32))
RUN(cast, ref_cast(&ref, f32, DT_I8))
RUN(reshape_view, ref_reshape(&ref, f32, 1, (int64_t[]){tn_count(f32)}))
RUN(reshape_copy, ref_reshape(&ref, column, 1, (int64_t[]){tn_count(f32)}))
RUN(transpose, ref_transpose(&ref, f32, (int64_t[]){1, 0}))
RUN(broadcast, ref_broadcast(&ref, f32, 3, (int64_t[]){2, f32->dim[0], f32->dim[1]}))
RUN(slice, ref_slice(&ref, f32, zero, one, one))
RUN(pad, ref_pad(&ref, f32, one, one, zero, NULL))
RUN(flip, ref_flip(&ref, f32, 1, axis1))
RUN(concat, ref_concat(&ref, 2, (Tensor *[]){f32, f32}, 1))
RUN(iota, ref_iota(&ref, DEV_CPU, DT_F32, tn_count(f32)))
RUN(take, ref_take(&ref, f32, 0, 1, &index_))
RUN(take_scalars, ref_take(&ref, row, 0, 1, &i64))
RUN(put, ref_put(&ref, f32, f32, 0, 1, &index_, false))
RUN(put_add, ref_put(&ref, f32, f32, 0, 1, &index_, true))
RUN(gather, ref_gather(&ref, f32, i64, 1))
RUN(scatter, ref_scatter(&ref, f32, i64, f32, 1, false))
RUN(scatter_add, ref_scatter(&ref, f32, i64, f32, 0, true))
RUN(sum, ref_reduce(&ref, RR_SUM, f32, 1, axis1))
RUN(sum_columns, ref_reduce(&ref, RR_SUM, f16, 1, axis0))
RUN(max, ref_reduce(&ref, RR_MAX, f64, 2, (int64_t[]){0, 1}))
RUN(any, ref_reduce(&ref, RR_ANY, boolean, 1, axis1))
RUN(argmax, ref_argreduce(&ref, true, f32, 1))
RUN(argmax_columns, ref_argreduce(&ref, true, f32, 0))
RUN(argmax_all, ref_argreduce(&ref, true, row, 0))
RUN(cumsum, ref_cumsum(&ref, f32, 1, false))
RUN(cumsum_columns, ref_cumsum(&ref, f32, 0, true))
RUN(cummax_columns, ref_cumextreme(&ref, true, f32, 0, true))
RUN(dot, ref_dot(&ref, f32, square, 0))
RUN(dot_f16, ref_dot(&ref, f32, square, 2))
RUN(inner, ref_inner(&ref, f32, f32, 0))
RUN(inner_bf16, ref_inner(&ref, row, row, 1))
RUN(conv2d, ref_conv2d(&ref, image, kernel, one, zero, 0))
RUN(conv2d_input, ref_conv2d_input(&ref, grad, kernel, image->dim, one, zero, 0))
RUN(conv2d_weight, ref_conv2d_weight(&ref, image, grad, kernel->dim, one, zero, 0))
RUN(cholesky, ref_cholesky(&ref, square))
RUN(cholesky_grad, ref_cholesky_grad(&ref, square, square))
RUN(triangular, ref_triangular(&ref, square, square, false, false))
RUN(factor_solve, ref_factor_solve(&ref, square, square))
static Tensor *run_lu(void) {
  Tensor *lu, *perm, *swaps;
  bool ok = ref_lu(&ref, square, true, &lu, &perm, &swaps);
  if (!ok) check(!lu && !perm && !swaps);
  tn_unref(perm);
  tn_unref(swaps);
  return lu;
}
static Tensor *run_eigh(void) {
  Tensor *values, *vectors;
  bool ok = ref_eigh(&ref, square, false, &values, &vectors);
  return two(ok, values, vectors);
}
static Tensor *run_qr(void) {
  Tensor *q, *rest;
  bool ok = ref_qr(&ref, square, &q, &rest);
  return two(ok, q, rest);
}
static Tensor *run_eig(void) {
  Tensor *values, *vectors;
  bool ok = ref_eig(&ref, square, false, &values, &vectors);
  return two(ok, values, vectors);
}
static Tensor *run_svd(void) {
  Tensor *u, *s, *vt;
  bool ok = ref_svd(&ref, square, false, false, &u, &s, &vt);
  tn_unref(s);
  return two(ok, u, vt);
}
static Tensor *run_solve(void) {
  Tensor *perm = ref_iota(&ref, DEV_CPU, DT_I64, square->dim[0]);
  Tensor *x = perm ? ref_solve(&ref, square, perm, square, true) : NULL;
  tn_unref(perm);
  return x;
}
RUN(uniform, ref_random(&ref, DEV_CPU, key, false, DT_F32, 2, f32->dim))
RUN(normal, ref_random(&ref, DEV_CPU, key, true, DT_F16, 2, f32->dim))
RUN(randint, ref_randint(&ref, DEV_CPU, key, limit, DT_I16, 2, f32->dim))
RUN(fold_in, ref_fold_in(&ref, key, limit))
static Tensor *run_philox(void) {
  Tensor *c = tn_zeros(&mem, DEV_CPU, DT_I64, 1, (int64_t[]){4});
  Tensor *t = c ? ref_philox(&ref, c, key) : NULL;
  if (!c) ref.err.kind = REF_NOMEM;
  tn_unref(c);
  return t;
}
static Tensor *run_sort(void) {
  Tensor *v, *i;
  bool ok = ref_sort(&ref, f32, 1, false, &v, &i);
  return two(ok, v, i);
}
static Tensor *run_long_sort(void) {
  Tensor *v, *i;
  bool ok = ref_sort(&ref, row, 0, true, &v, &i);
  return two(ok, v, i);
}
static Tensor *run_wide_sort(void) { /* keys that do not fit beside a position */
  Tensor *v = NULL, *i = NULL, *line = ref_reshape(&ref, f64, 1, (int64_t[]){tn_count(f64)});
  bool ok = line && ref_sort(&ref, line, 0, false, &v, &i);
  tn_unref(line);
  return two(ok, v, i);
}
static Tensor *run_nonzero(void) {
  Tensor *v, *i;
  bool ok = ref_nonzero(&ref, i32, -1, &v, &i);
  return two(ok, v, i);
}

#define ROW(name)                                                                                  \
  { #name, false, run_##name }
#define VIEW(name)                                                                                 \
  { #name, true, run_##name }
static const Case cases[] = {ROW(unary),
                             ROW(unary_strided),
                             ROW(unary_f16),
                             ROW(test),
                             ROW(binary),
                             ROW(binary_int),
                             ROW(compare),
                             ROW(where),
                             ROW(cast),
                             VIEW(reshape_view),
                             ROW(reshape_copy),
                             VIEW(transpose),
                             VIEW(broadcast),
                             VIEW(slice),
                             ROW(pad),
                             ROW(flip),
                             ROW(concat),
                             ROW(iota),
                             ROW(take),
                             ROW(take_scalars),
                             ROW(put),
                             ROW(put_add),
                             ROW(gather),
                             ROW(scatter),
                             ROW(scatter_add),
                             ROW(sum),
                             ROW(sum_columns),
                             ROW(max),
                             ROW(any),
                             ROW(argmax),
                             ROW(argmax_columns),
                             ROW(argmax_all),
                             ROW(cumsum),
                             ROW(cumsum_columns),
                             ROW(cummax_columns),
                             ROW(cholesky),
                             ROW(cholesky_grad),
                             ROW(triangular),
                             ROW(lu),
                             ROW(eigh),
                             ROW(eig),
                             ROW(qr),
                             ROW(svd),
                             ROW(solve),
                             ROW(factor_solve),
                             ROW(dot),
                             ROW(dot_f16),
                             ROW(inner),
                             ROW(inner_bf16),
                             ROW(conv2d),
                             ROW(conv2d_input),
                             ROW(conv2d_weight),
                             ROW(uniform),
                             ROW(normal),
                             ROW(randint),
                             VIEW(fold_in),
                             VIEW(philox),
                             ROW(sort),
                             ROW(long_sort),
                             ROW(wide_sort),
                             ROW(nonzero)};
enum { CASES = sizeof cases / sizeof *cases };

static void t_fails(const Case *c) {
  open_all();
  make(false);
  int64_t blocks = hook_state.blocks;
  int n = 1;
  for (; n < 20; n++) {
    hook_state.nth = hook_state.count + n;
    ref.err = (RefErr){0};
    Tensor *t = c->run();
    hook_state.nth = 0;
    if (t) {
      tn_unref(t);
      break;
    }
    check_int(ref.err.kind, ==, REF_NOMEM);
    check_int(hook_state.blocks, ==, blocks);
  }
  check_int(n, >, 1);
  check_int(n, <, 20);
  check_int(hook_state.blocks, ==, blocks);
  unmake();
  close_all();
}

/* Seconds of this process's own work, so that a loaded machine changes nothing. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile double stopped; /* when the timer set `stop` */

static void on_timer(int signal_) {
  (void)signal_;
  stopped = now();
  stop = true;
}

/* Interrupted from the start, and from a timer in the middle. */
static void t_stops(const Case *c) {
  if (c->quick) return;
  mem_trim(&mem);
  int64_t blocks = hook_state.blocks;
  stop = true;
  check(!c->run());
  check_int(ref.err.kind, ==, REF_INTERRUPT);
  check_str(ref.err.text, "interrupted");
  stop = false;
  int64_t count = hook_state.count;
  double start = now();
  Tensor *t = c->run();
  double whole = now() - start;
  check(t != NULL);
  tn_unref(t);
  /* by the last allocation: what comes after it asks, too */
  count = hook_state.count - count;
  mem_trim(&mem);
  hook_state.interrupt = &stop;
  hook_state.stops = hook_state.count + count;
  t = c->run();
  hook_state.stops = 0;
  check(stop);
  stop = false;
  check_msg(!t, "%s does not ask after its last allocation", c->name);
  tn_unref(t);
  if (whole > 0.03) {
    struct itimerval timer = {.it_value = {.tv_usec = (int)(whole / 4 * 1e6)}};
    if (whole > 2) timer.it_value.tv_usec = 500000;
    setitimer(ITIMER_PROF, &timer, NULL);
    t = c->run();
    double late = stop ? now() - stopped : 0;
    timer.it_value.tv_usec = 0;
    setitimer(ITIMER_PROF, &timer, NULL);
    stop = false;
    if (!t) check_int(ref.err.kind, ==, REF_INTERRUPT);
    tn_unref(t);
    /* a few ms by design */
    check_msg(late < 0.25, "%s of %.0f ms stopped %.1f ms late", c->name, whole * 1e3, late * 1e3);
    if (late > 0.02)
      tap_note("%s of %.0f ms stopped %.1f ms late", c->name, whole * 1e3, late * 1e3);
  }
  mem_trim(&mem);
  check_int(hook_state.blocks, ==, blocks);
}

int main(void) {
  char title[100];
  for (int i = 0; i < CASES; i++) {
    snprintf(title, sizeof title, "%s survives each allocation failing", cases[i].name);
    TEST(t_fails(&cases[i]), title);
  }
  struct sigaction action = {.sa_handler = on_timer};
  sigaction(SIGPROF, &action, NULL);
  open_all();
  make(true);
  ref.interrupt = &stop;
  for (int i = 0; i < CASES; i++) {
    snprintf(title, sizeof title, "%s stops when interrupted", cases[i].name);
    TEST(t_stops(&cases[i]), title);
  }
  unmake();
  TEST(close_all(), "nothing leaks");
  return tap_done();
}
