/* The evaluator: order, lifetimes, structured ops, effects, errors; nothing leaks, whatever
 * fails. */
#include <time.h>

#include "failing.h"
#include "graph-gen.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run_op.h"

/* The passes that are declared by their rows. */
#define PASS(id, name, function, ...) Graph *function(Arena *a, const Graph *g);
#define STEP(...)
#include "lang/compile/pipeline.def"

static Failing hook;
static Mem mem;
static Arena arena;
static Names *names;

static Graph *text(const char *s) {
  GErr e;
  Graph *g = gr_read(&arena, names, s, strlen(s), &e);
  if (!g) tap_fail(TAP_HERE, "%s\n%s", e.text, s);
  return g;
}

static Tensor *vec(DType dt, int n, const double *v) {
  int64_t dim = n;
  Tensor *t = tn_new(&mem, DEV_CPU, dt, 1, &dim);
  for (int i = 0; i < n; i++) {
    Tensor *s = dt_float(dt) ? tn_scalar_f64(&mem, DEV_CPU, dt, v[i])
                             : tn_scalar_i64(&mem, DEV_CPU, dt, (int64_t)v[i]);
    memcpy((char *)tn_data(t) + dt_size(dt) * (size_t)i, tn_data(s), dt_size(dt));
    tn_unref(s);
  }
  return t;
}

#define VEC(dt, ...)                                                                               \
  vec(dt, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})
#define INPUT(i, type, dims)                                                                       \
  "  %" #i " = input {index=" #i " dtype=" type " device=0 dims=[" dims "]} : "

static void clean(void) {
  check_size(mem.data_live[DEV_CPU], ==, 0);
  check_size(mem.data_live[DEV_SIM], ==, 0);
  check_size(mem.pool_count, ==, 0);
}

/* ---- structured ops */
static void t_loop(void) {
  Graph *g = text("graph {\n" INPUT(0, "5", "") "i64\n" INPUT(1, "8", "2") "f32[2]\n" INPUT(
      2, "8",
      "2") "f32[2]\n"
           "  %3 = loop %0 %1 %2 {carry=1} : f32[2]\n    region {\n" INPUT(
               0, "5",
               "") "i64\n" INPUT(1, "8",
                                 "2") "f32[2]\n" INPUT(2, "8",
                                                       "2") "f32[2]\n"
                                                            "  %3 = mul %1 %2 : f32[2]\n  %4 = "
                                                            "cast %0 {dtype=8} : f32\n"
                                                            "  %5 = broadcast %4 {dims=[2]} : "
                                                            "f32[2]\n  %6 = add %3 %5 : f32[2]\n"
                                                            "  return %6\n    }\n"
                                                            "  return %3\n}\n");
  if (!g) return;
  for (int64_t count = -1; count <= 3; count++) {
    Tensor *in[3] = {tn_scalar_i64(&mem, DEV_CPU, DT_I64, count), VEC(DT_F32, 1, 2),
                     VEC(DT_F32, 3, 10)},
           *out = NULL;
    RunCtx c = {.mem = &mem};
    GErr e;
    double want[2] = {1, 2};
    for (int64_t k = 0; k < count; k++)
      want[0] = want[0] * 3 + (double)k, want[1] = want[1] * 10 + (double)k;
    if (check_msg(gr_run(g, &c, in, &out, &e, NULL), "%s", e.text)) {
      check_double(tn_get_f64(out, 0), ==, want[0]);
      check_double(tn_get_f64(out, 1), ==, want[1]);
    }
    for (int i = 0; i < 3; i++) tn_unref(in[i]);
    tn_unref(out);
  }
  clean();
}

/* A size that is the counter: sums of the first elements. */
static void t_counter(void) {
  Graph *g =
      text("graph {\n  counter t\n" INPUT(0, "5", "") "i64\n" INPUT(1, "9", "") "f64\n" INPUT(
          2, "9", "4") "f64[4]\n"
                       "  %3 = loop %0 %1 %2 {carry=1 counter=<t> value=1} : "
                       "f64\n    region {\n" INPUT(0, "5", "") "i64\n" INPUT(
                           1, "9", "") "f64\n" INPUT(2, "9",
                                                     "4") "f64[4]\n"
                                                          "  %3 = slice %2 {starts=[0] lens=[t] "
                                                          "steps=(1)} : f64[t]\n"
                                                          "  %4 = sum %3 {axes=(0)} : f64\n"
                                                          "  %5 = add %1 %4 : f64\n"
                                                          "  check ge 4, t \"the slice\"\n"
                                                          "  return %5\n    }\n  return %3\n}\n");
  if (!g) return;
  static const double want[] = {0, 1, 12, 123, 1234};
  for (int64_t count = 0; count <= 5; count++) {
    Tensor *in[3] = {tn_scalar_i64(&mem, DEV_CPU, DT_I64, count),
                     tn_scalar_f64(&mem, DEV_CPU, DT_F64, 0), VEC(DT_F64, 1, 10, 100, 1000)},
           *out = NULL;
    int64_t env[1] = {0};
    RunCtx c = {.mem = &mem, .env = env};
    GErr e = {.code = ERR_BUG};
    bool ok = gr_run(g, &c, in, &out, &e, NULL);
    check_int(ok, ==, count < 5);
    if (ok) check_double(tn_get_f64(out, 0), ==, want[count]);
    if (!ok) check_str(e.text, "the slice: 4 is less than t = 5");
    check(c.env == env && env[0] == 0);
    for (int i = 0; i < 3; i++) tn_unref(in[i]);
    tn_unref(out);
  }
  clean();
}

static void t_branch(void) {
  Graph *g = text("graph {\n" INPUT(0, "0", "") "bool\n" INPUT(
      1, "8",
      "2") "f32[2]\n"
           "  %2 = branch %0 %1 : f32[2]\n    region {\n" INPUT(
               0, "8",
               "2") "f32[2]\n"
                    "  %1 = neg %0 : f32[2]\n  return %1\n    }\n    region {\n" INPUT(
                        0, "8",
                        "2") "f32[2]\n"
                             "  %1 = add %0 %0 : f32[2]\n  return %1\n    }\n  return %2\n}\n");
  if (!g) return;
  for (int yes = 0; yes < 2; yes++) {
    Tensor *in[2] = {tn_scalar_i64(&mem, DEV_CPU, DT_BOOL, yes), VEC(DT_F32, 3, 4)}, *out = NULL;
    RunCtx c = {.mem = &mem};
    check(gr_run(g, &c, in, &out, NULL, NULL));
    check_double(tn_get_f64(out, 1), ==, yes ? -4 : 8);
    check_uint(c.nodes_run, ==, 2);
    tn_unref(in[0]), tn_unref(in[1]), tn_unref(out);
  }
  clean();
}

static void t_map(void) {
  Graph *g = text("graph {\n  sym N\n" INPUT(0, "8", "N, 2") "f32[N, 2]\n" INPUT(
      1, "8", "2") "f32[2]\n"
                   "  %2 = map %0 %1 {mapped=1} : f32[N], f32[N, 2]\n    region {\n" INPUT(
                       0, "8", "2") "f32[2]\n" INPUT(1, "8",
                                                     "2") "f32[2]\n  %2 = mul %0 %1 : f32[2]\n"
                                                          "  %3 = sum %2 {axes=(0)} : f32\n"
                                                          "  %4 = flip %0 {axes=(0)} : f32[2]\n  "
                                                          "return %3 %4\n    }\n  return %2 %2.1\n"
                                                          "}\n");
  if (!g) return;
  for (int64_t n = 0; n < 4; n++) {
    int64_t dim[2] = {n, 2};
    Tensor *in[2] = {tn_new(&mem, DEV_CPU, DT_F32, 2, dim), VEC(DT_F32, 1, 10)},
           *out[2] = {NULL, NULL};
    for (int64_t i = 0; i < 2 * n; i++) ((float *)tn_data(in[0]))[i] = (float)i;
    RunCtx c = {.mem = &mem, .env = &n};
    GErr e;
    if (check_msg(gr_run(g, &c, in, out, &e, NULL), "%s", e.text)) {
      check_int(out[0]->dim[0], ==, n);
      for (int64_t i = 0; i < n; i++) {
        check_double(tn_get_f64(out[0], i), ==, (double)(2 * i + 10 * (2 * i + 1)));
        check_double(tn_get_f64(out[1], 2 * i), ==, (double)(2 * i + 1));
      }
    }
    tn_unref(in[0]), tn_unref(in[1]), tn_unref(out[0]), tn_unref(out[1]);
  }
  clean();
}

/* ---- lifetimes */
static void t_lifetime(void) {
  B b = {.g = gr_new(&arena, dim_tab_new(&arena), names, NULL)};
  Type t = {.dtype = DT_F32, .rank = 1, .dim = {dim_const(b.g->dims, 4096)}};
  Val x = gr_input(b.g, &t), v = x;
  for (int i = 0; i < 50; i++) {
    v = b_bin(&b, OP_ADD, v, x);
    v = b_reshape(&b,
                  b_reshape(&b, v, 2, (Dim[]){dim_const(b.g->dims, 64), dim_const(b.g->dims, 64)}),
                  1, t.dim);
  }
  gr_output(b.g, v);
  int64_t n = 4096;
  Tensor *in = tn_zeros(&mem, DEV_CPU, DT_F32, 1, &n), *out = NULL;
  RunCtx c = {.mem = &mem};
  mem.data_peak[DEV_CPU] = mem.data_live[DEV_CPU];
  check(gr_run(b.g, &c, &in, &out, NULL, NULL));
  check_size(mem.data_peak[DEV_CPU], <=, 3 * 4096 * 4);
  check_uint(c.nodes_run, ==, 150);
  tn_unref(out);
  tn_unref(in);
  clean();
}

/* ---- checks and errors */
static const char open_sizes[] =
    "graph {\n  sym N\n  sym M\n" INPUT(0, "8", "N") "f32[N] @ 1:2-3\n" INPUT(
        1, "8", "M") "f32[M]\n"
                     "  %2 = add %0 %1 : f32[N] @ 1:7-8\n  check eq N, M \"the shapes of `+` "
                     "differ\" @ 1:7-8\n"
                     "  return %2\n}\n";

/* The first write of a chain copies what the caller holds, the others are in place. */
static void t_updates(void) {
  enum { N = 4096 };
  Graph *chain = text("graph {\n" INPUT(0, "9", "4096") "f64[4096]\n" INPUT(
      1, "5", "") "i64\n" INPUT(2, "9", "") "f64\n"
                                            "  %3 = put %0 %2 %1 {axis=0} : f64[4096]\n"
                                            "  %4 = put_add %3 %2 %1 {axis=0} : f64[4096]\n"
                                            "  %5 = put_add %4 %2 %1 {axis=0} : f64[4096]\n"
                                            "  return %5\n}\n");
  if (!chain) return;
  int64_t dim = N;
  Tensor *in[3] = {tn_zeros(&mem, DEV_CPU, DT_F64, 1, &dim),
                   tn_scalar_i64(&mem, DEV_CPU, DT_I64, 70),
                   tn_scalar_f64(&mem, DEV_CPU, DT_F64, 5)},
         *out = NULL;
  RunCtx c = {.mem = &mem};
  GErr e;
  size_t live = mem.data_live[DEV_CPU];
  mem.data_peak[DEV_CPU] = live;
  if (check_msg(gr_run(chain, &c, in, &out, &e, NULL), "%s", e.text)) {
    check_double(tn_get_f64(out, 70), ==, 15);
    check_double(tn_get_f64(out, 71), ==, 0);
    check_double(tn_get_f64(in[0], 70), ==, 0);
    check_size(mem.data_peak[DEV_CPU] - live, <, 2 * N * sizeof(double)); /* one copy, no more */
  }
  tn_unref(out);
  for (int i = 0; i < 3; i++) tn_unref(in[i]);
  clean();
}

static void t_checks(void) {
  Graph *g = text(open_sizes);
  if (!g) return;
  int64_t env[2] = {2, 3};
  Tensor *in[2] = {VEC(DT_F32, 1, 2), VEC(DT_F32, 1, 2, 3)}, *out = NULL;
  RunCtx c = {.mem = &mem, .env = env};
  GErr e;
  Prov at;
  check(!gr_run(g, &c, in, &out, &e, &at));
  check_str(e.text, "the shapes of `+` differ: N = 2 and M = 3");
  check_int(e.code, ==, ERR_SHAPE_CHECK);
  check_uint(at.span.lo, ==, 7);
  check_uint(c.nodes_run, ==, 0);
  env[1] = 2;
  check(!gr_run(g, &c, in, &out, &e, &at));
  check_str(e.text, "argument 2 is f32[M], not f32[3]");
  tn_unref(in[1]);
  in[1] = VEC(DT_F32, 5, 5);
  check(gr_run(g, &c, in, &out, &e, &at));
  check_double(tn_get_f64(out, 1), ==, 7);
  tn_unref(in[0]), tn_unref(in[1]), tn_unref(out);
  clean();
}

static void t_errors(void) {
  Graph *g = text("graph {\n" INPUT(0, "8", "5") "f32[5]\n" INPUT(
      1, "5",
      "2") "i64[2]\n"
           "  %2 = wrap %0 %1 {text=\"part\"} : f32[2] @ 1:1-2\n    region {\n" INPUT(
               0, "8",
               "5") "f32[5]\n" INPUT(1, "5",
                                     "2") "i64[2]\n  %2 = take %0 %1 {axis=0} : f32[2] @ 1:30-40\n"
                                          "  return %2\n    }\n"
                                          "  %3 = neg %2 : f32[2]\n  return %3\n}\n");
  if (!g) return;
  Tensor *in[2] = {VEC(DT_F32, 1, 2, 3, 4, 5), VEC(DT_I64, 1, 7)}, *out = NULL;
  RunCtx c = {.mem = &mem};
  GErr e;
  Prov at;
  check(!gr_run(g, &c, in, &out, &e, &at));
  check_int(e.code, ==, ERR_INDEX_RANGE);
  check_has(e.text, "7");
  check_uint(at.span.lo, ==, 30);
  check(out == NULL);
  Interrupt stop = 1;
  c.interrupt = &stop;
  check(!gr_run(g, &c, in, &out, &e, &at));
  check(e.interrupted && e.code == ERR_INTERRUPT);
  tn_unref(in[0]), tn_unref(in[1]);
  clean();
}

/* ---- effects */
typedef struct Log {
  char s[200];
  int fail_at, throw_at, seen;
  bool wrong_type;
} Log;

static bool on_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                      GErr *e) {
  Log *log = ud;
  (void)n;
  strcat(log->s, gr_attr(g, node, AT_TEXT)->u.text);
  check(in[0] == NULL);
  if (++log->seen == log->fail_at) return gerr_set(e, ERR_VALUE_RUN, -1, "the host refused");
  if (log->seen == log->throw_at) mem_throw(&mem, MEM_ERR_PROGRAM);
  if (g->nodes[node].op == OP_CALL) out[1] = VEC(log->wrong_type ? DT_F64 : DT_F32, 7, 8);
  if (g->nodes[node].op == OP_DEFER) out[1] = tn_ref(in[1]);
  return true;
}

static bool on_after(void *ud, const Graph *g, uint32_t node, Tensor **out, int n, GErr *e) {
  Log *log = ud;
  (void)g;
  (void)node;
  (void)out;
  (void)n;
  return ++log->seen != log->fail_at || gerr_set(e, ERR_VALUE_RUN, -1, "enough");
}

static const char effects[] = "graph {\n" INPUT(
    0, "8", "2") "f32[2]\n  %1 = token : token\n  %2 = add %0 %0 : f32[2]\n"
                 "  %3 = print %1 %2 {text=\"a\"} : token\n"
                 "  %4 = call %3 %2 {text=\"b\" dtype=(8) index=(1) dims=[2]} : token, f32[2]\n"
                 "  %5 = defer %4 %4.1 {text=\"c\"} : token, f32[2]\n"
                 "  %6 = const {value=1 dtype=0 device=0} : bool\n"
                 "  %7 = assert %5 %6 {text=\"d\"} : token\n  %8 = add %5.1 %2 : f32[2]\n  return "
                 "%8 %7\n}\n";

/* Two inputs change places, a result and a view of an input stay what they were, and of two writes
 * to one input the later counts. */
static void t_writes(void) {
  Graph *g =
      text("graph {\n" INPUT(0, "8", "2") "f32[2] ~1\n" INPUT(1, "8", "2") "f32[2] ~2\n" INPUT(
          2, "8", "2") "f32[2] ~3\n  %3 = token : token\n"
                       "  %4 = stop %0 : f32[2] ~1\n  %5 = write %3 %0 %1 : token\n"
                       "  %6 = write %5 %1 %4 : token\n  %7 = add %0 %1 : f32[2]\n"
                       "  %8 = write %6 %2 %0 : token\n  %9 = write %8 %2 %7 : token\n"
                       "  return %7 %0 %4\n}\n");
  if (!g) return;
  Tensor *in[3] = {VEC(DT_F32, 1, 2), VEC(DT_F32, 10, 20), VEC(DT_F32, 0, 0)}, *out[3];
  int64_t two = 2, back = -1;
  Tensor *reversed = tn_view(&mem, in[1], 1, &two, &back, 1);
  tn_unref(in[1]);
  in[1] = reversed; /* 20, 10 */
  RunCtx c = {.mem = &mem};
  GErr e;
  check(gr_run(g, &c, in, out, &e, NULL));
  static const double want[6][2] = {{20, 10}, {1, 2}, {21, 12}, {21, 12}, {1, 2}, {1, 2}};
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 2; k++)
      check_double(tn_get_f64(i < 3 ? in[i] : out[i - 3], k), ==, want[i][k]);
  for (int i = 0; i < 3; i++) {
    tn_unref(in[i]);
    tn_unref(out[i]);
  }
  g = text(
      "graph {\n" INPUT(0, "8", "2") "f32[2]\n  %1 = token : token\n"
                                     "  %2 = add %0 %0 : f32[2]\n  %3 = write %1 %0 %2 : token\n"
                                     "  %4 = const {value=0 dtype=0 device=0} : bool\n"
                                     "  %5 = assert %3 %4 {text=\"no\"} : token\n  return\n}\n");
  if (!g) return;
  in[0] = VEC(DT_F32, 1, 2);
  check(!gr_run(g, &c, in, out, &e, NULL));
  check_double(tn_get_f64(in[0], 1), ==, 2);
  tn_unref(in[0]);
  clean();
}

typedef struct Call {
  Graph *g;
  RunCtx *c;
  Tensor **in, **out;
  GErr e;
  bool ok;
} Call;

static void call(void *ud) {
  Call *k = ud;
  k->ok = gr_run(k->g, k->c, k->in, k->out, &k->e, NULL);
}

static void t_effects(void) {
  Graph *g = text(effects);
  if (!g) return;
  for (int round = 0; round <= 10; round++) {
    Log log = {.fail_at = round < 5 ? round : 0,
               .throw_at = round >= 5 && round < 9 ? round - 4 : 0,
               .wrong_type = round == 9};
    Tensor *in = VEC(DT_F32, 1, 2), *out[2] = {NULL, NULL};
    RunCtx c = {.mem = &mem, .effect = round == 10 ? NULL : on_effect, .ud = &log};
    Call k = {g, &c, &in, out, {0}, false};
    int code = mem_protect(&mem, call, &k);
    check_int(code, ==, log.throw_at ? MEM_ERR_PROGRAM : MEM_OK);
    if (round == 0) {
      check(k.ok);
      check_str(log.s, "abcd");
      check_double(tn_get_f64(out[0], 0), ==, 9);
      check(out[1] == NULL);
    } else {
      check(!k.ok && !out[0]);
    }
    if (round == 9) check_has(k.e.text, "was declared as");
    if (round == 10) check_has(k.e.text, "nobody handles");
    tn_unref(out[0]);
    tn_unref(in);
    clean();
  }
  Log log = {.fail_at = 3};
  Tensor *in = VEC(DT_F32, 1, 2), *out[2] = {NULL, NULL};
  RunCtx c = {.mem = &mem, .after = on_after, .ud = &log};
  GErr e;
  Graph *pure = text("graph {\n" INPUT(0, "8", "2") "f32[2]\n  %1 = neg %0 : f32[2]\n"
                                                    "  %2 = neg %1 : f32[2]\n"
                                                    "  %3 = neg %2 : f32[2]\n  return %3\n}\n");
  check(!gr_run(pure, &c, &in, out, &e, NULL));
  check_str(e.text, "enough");
  check_int(e.operand, ==, 3);
  log.fail_at = 0;
  check(gr_run(pure, &c, &in, out, &e, NULL));
  check_int(log.seen, ==, 6);
  tn_unref(out[0]);
  tn_unref(in);
  clean();
}

static void t_assert(void) {
  Graph *g = text("graph {\n" INPUT(
      0, "0", "2") "bool[2]\n  %1 = token : token\n"
                   "  %2 = assert %1 %0 {text=\"x is small\"} : token\n  return %2\n}\n");
  Tensor *in = VEC(DT_BOOL, 1, 0), *out = NULL;
  RunCtx c = {.mem = &mem};
  GErr e;
  check(!gr_run(g, &c, &in, &out, &e, NULL));
  check_str(e.text, "assertion failed: x is small");
  tn_unref(in);
  clean();
}

/* ---- devices */
static void t_devices(void) {
  GErr e;
  B b = {.g = gr_new(&arena, dim_tab_new(&arena), names, NULL)};
  Type t = {.dtype = DT_F32, .dev = DEV_SIM, .rank = 1, .dim = {dim_const(b.g->dims, 2)}};
  Type s = {.dtype = DT_F32, .dev = DEV_CPU};
  Val x = gr_input(b.g, &t), y = gr_input(b.g, &s);
  Val z = b_bin(&b, OP_MUL, x, y);
  Val w = b_bin(&b, OP_ADD, b_sum(&b, z, 1, (int64_t[]){0}), y);
  gr_output(b.g, z);
  gr_output(b.g, w);
  check_msg(!b.failed, "%s", b.err.text);
  check_int(gr_type(b.g, z)->dev, ==, DEV_SIM);
  check_int(gr_type(b.g, w)->dev, ==, DEV_SIM);
  check(gr_verify(b.g, &e));
  Tensor *host = VEC(DT_F32, 2, 3),
         *in[2] = {tn_copy(&mem, host, DEV_SIM), tn_scalar_f64(&mem, DEV_CPU, DT_F32, 5)};
  Tensor *out[2] = {NULL, NULL};
  RunCtx c = {.mem = &mem};
  check_msg(gr_run(b.g, &c, in, out, &e, NULL), "%s", e.text);
  if (out[0]) check_int(out[0]->store->dev, ==, DEV_SIM);
  if (out[1]) check_double(tn_get_f64(out[1], 0), ==, 30);
  if (out[1]) check_int(out[1]->store->dev, ==, DEV_SIM);
  Tensor *mixed[2] = {in[0], host}, *none = NULL;
  check(!gr_run_op(&c, b.g->dims, OP_ADD, NULL, 0, mixed, 2, &none, 1, &e));
  check_int(e.code, ==, ERR_DEVICE_DIFFER);
  check_has(e.text, "on sim");
  for (int i = 0; i < 2; i++) tn_unref(in[i]), tn_unref(out[i]);
  tn_unref(host);
  clean();
}

/* ---- single ops */
static void t_single(void) {
  RunCtx c = {.mem = &mem};
  DimTab *dims = dim_tab_new(&arena);
  GErr e;
  Tensor *in[2] = {VEC(DT_F32, 1, 2, 3), VEC(DT_F32, 1, 2)}, *out = NULL, *two[2];
  const char *const names_of_two[2] = {"weights", "h + 1"};
  check(!gr_run_op(&c, dims, OP_ADD, NULL, 0, in, 2, &out, 1, &e));
  check_str(e.text,
            "the operands of `+` have different shapes: f32[3] and f32[2] (axis 0 is 3 and 2)");
  int64_t axes[1] = {1};
  Attr a = attr_ints(AT_AXES, 1, axes);
  check(!gr_run_op(&c, dims, OP_SUM, &a, 1, in, 1, &out, 1, &e));
  check_int(e.code, ==, ERR_SHAPE_AXIS);
  c.operand_text = names_of_two;
  c.operand_text_count = 2;
  int64_t shape[2] = {2, 3};
  Tensor *x = tn_zeros(&mem, DEV_CPU, DT_F32, 2, shape), *xx[2] = {x, x};
  check(!gr_run_op(&c, dims, OP_DOT, NULL, 0, xx, 2, &out, 1, &e));
  check_str(e.text, "the inner dims of `@` differ: 3 and 2, in f32[2, 3] @ f32[2, 3]");
  check_str(e.help, "`weights @ transpose(h + 1)` fits");
  check(!gr_run_op(&c, dims, OP_PRINT, NULL, 0, in, 1, &out, 1, &e));
  check(!gr_run_op(&c, dims, OP_SORT, NULL, 0, in, 1, &out, 1, &e));
  Attr sort = attr_i(AT_AXIS, 0);
  check(gr_run_op(&c, dims, OP_SORT, &sort, 1, in, 1, two, 2, &e));
  check_double(tn_get_f64(two[0], 2), ==, 3);
  tn_unref(two[0]), tn_unref(two[1]);
  /* without a size, all positions there are */
  check(gr_run_op(&c, dims, OP_NONZERO, NULL, 0, in, 1, two, 2, &e));
  check_int(two[0]->dim[0], ==, 3);
  tn_unref(two[0]), tn_unref(two[1]);
  Tensor *many[20];
  for (int i = 0; i < 20; i++) many[i] = in[i % 2];
  check(gr_run_op(&c, dims, OP_CONCAT, &sort, 1, many, 20, &out, 1, &e));
  check_int(out->dim[0], ==, 50);
  tn_unref(out), tn_unref(x), tn_unref(in[0]), tn_unref(in[1]);
  clean();
}

static void t_quick(void) {
  RunCtx c = {.mem = &mem};
  DimTab *dims = dim_tab_new(&arena);
  Tensor *in[2] = {VEC(DT_F32, 1, 2, 3), VEC(DT_F32, 1, 2, 3)}, *out;
  clock_t from = clock();
  enum { ROUNDS = 20000 };
  for (int i = 0; i < ROUNDS; i++) {
    if (!gr_run_op(&c, dims, OP_ADD, NULL, 0, in, 2, &out, 1, NULL)) break;
    tn_unref(out);
  }
  tap_note("one add of three numbers: %.0f ns",
           (double)(clock() - from) / CLOCKS_PER_SEC / ROUNDS * 1e9);
  tn_unref(in[0]), tn_unref(in[1]);
  clean();
}

/* A symbol that is no size can be negative: what the rules took for granted is tested when it
 * runs. */
static void t_negative(void) {
  Graph *g = text("graph {\n  sym N\n  sym i\n" INPUT(
      0, "8", "N") "f32[N]\n"
                   "  %1 = slice %0 {starts=[0] lens=[N - i] steps=(1)} "
                   ": f32[N - i]\n  check ge N - i, 0 \"a slice has a negative length\"\n"
                   "  return %1\n}\n");
  if (!g) return;
  int64_t env[2] = {3, 1};
  Tensor *in = VEC(DT_F32, 1, 2, 3), *out = NULL;
  RunCtx c = {.mem = &mem, .env = env};
  GErr e;
  check(gr_run(g, &c, &in, &out, &e, NULL));
  tn_unref(out);
  env[1] = -2;
  out = NULL;
  check(!gr_run(g, &c, &in, &out, &e, NULL));
  check_str(e.text, "a slice of 5 elements from 0 is not inside axis 0 of size 3");
  env[1] = 4;
  check(!gr_run(g, &c, &in, &out, &e, NULL));
  check_str(e.text, "a slice has a negative length: N - i = -1 is less than 0");
  tn_unref(in);
  clean();
}

/* ---- depth */
static void t_long(void) {
  enum { NODES = 100000 };
  GErr e;
  B b = {.g = gr_new(&arena, dim_tab_new(&arena), names, NULL)};
  Type t = {.dtype = DT_F32};
  Val x = gr_input(b.g, &t), v = x;
  for (int i = 0; i < NODES; i++) v = b_bin(&b, i % 2 ? OP_ADD : OP_SUB, v, x);
  gr_output(b.g, v);
  Buf text_of;
  buf_init_arena(&text_of, &arena);
  gr_print(&text_of, b.g);
  Graph *g = gr_read(&arena, names, text_of.s, text_of.n, &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  g = gr_dce(&arena, gr_cse(&arena, gr_fold(&arena, g)));
  check_size(g->node_count, ==, NODES + 1);
  Tensor *in = tn_scalar_f64(&mem, DEV_CPU, DT_F32, 2), *out = NULL;
  RunCtx c = {.mem = &mem};
  check(gr_run(g, &c, &in, &out, &e, NULL));
  check_double(tn_get_f64(out, 0), ==, 2);
  check_uint(c.nodes_run, ==, NODES);
  tn_unref(in), tn_unref(out);
  clean();
}

/* ---- failing allocations */
static Gen gen;
static Tensor *inputs[GEN_INPUTS], *outputs[256];

static bool zero_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                        GErr *e) {
  (void)ud;
  (void)n;
  for (uint32_t i = 0; i < g->nodes[node].result_count; i++) {
    const Type *t = gr_type(g, (Val){node, i});
    int64_t dim[CKL_MAX_RANK];
    if (t->kind == TK_TOKEN) continue;
    for (int k = 0; k < t->rank; k++) dim[k] = gen_value(&gen, t->dim[k]);
    out[i] = g->nodes[node].op == OP_DEFER
                 ? tn_ref(in[1])
                 : tn_zeros(&mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
    if (!out[i]) return gerr_set(e, ERR_NOMEM, -1, "out of memory");
  }
  return true;
}

static void t_failing(void) {
  long runs = 0, failed = 0;
  for (uint64_t seed = 1; seed <= 25; seed++) {
    gen_open(&gen, &arena, names, seed, seed % 2, false);
    gen.effects = true;
    gen_graph(&gen, 45);
    if (gen.g->output_count > 256) continue;
    for (size_t i = 0; i < gen.g->input_count; i++) inputs[i] = gen_tensor(&gen, &mem, i, seed);
    for (int64_t nth = 0, step = 1;; nth += step) {
      RunCtx c = {.mem = &mem, .env = gen.value, .effect = zero_effect};
      Call k = {gen.g, &c, inputs, outputs, {0}, false};
      size_t live = mem.data_live[DEV_CPU];
      memset(outputs, 0, sizeof outputs);
      hook.count = 0;
      hook.nth = nth;
      int code = mem_protect(&mem, call, &k);
      bool hit = hook.nth && hook.count >= hook.nth;
      hook.nth = 0;
      runs++;
      if (nth == 0) {
        if (!check_msg(code == MEM_OK && k.ok, "seed %d: %s", (int)seed, k.e.text)) break;
        step = hook.count / 60 + 1;
      } else if (hit) {
        failed++;
        check_msg(code == MEM_ERR_NOMEM || (code == MEM_OK && !k.ok && k.e.nomem),
                  "seed %d, allocation %d: code %d, ok %d, %s", (int)seed, (int)nth, code, k.ok,
                  k.e.text);
      }
      for (size_t i = 0; i < gen.g->output_count; i++) tn_unref(outputs[i]);
      check_msg(mem.data_live[DEV_CPU] == live, "seed %d, allocation %d: tensors are left",
                (int)seed, (int)nth);
      check_size(mem.pool_count, ==, 0);
      if (nth && !hit) break;
    }
    for (size_t i = 0; i < gen.g->input_count; i++) tn_unref(inputs[i]);
    clean();
  }
  tap_note("%ld runs, %ld with a failed allocation", runs, failed);
  check_int(failed, >, 500);
}

/* Building fails cleanly too. */
static void build(void *ud) {
  (void)ud;
  Gen x;
  Arena *a = ud;
  Names *n = names_new(a);
  gen_open(&x, a, n, 7, true, false);
  x.effects = true;
  gen_graph(&x, 60);
  GErr e;
  Graph *g = gr_fold(a, gr_cse(a, gr_dce(a, x.g)));
  if (gr_verify(g, &e)) gr_hash(g);
}

static void t_building(void) {
  Failing h;
  Mem m;
  Arena a;
  for (int64_t nth = 1;; nth += 1 + nth / 40) {
    failing_init(&h, &m, nth);
    arena_init(&a, &m);
    int code = mem_protect(&m, build, &a);
    bool hit = h.count >= nth;
    check_int(code, ==, hit ? MEM_ERR_NOMEM : MEM_OK);
    arena_free(&a);
    mem_close(&m);
    if (!check_msg(failing_clean(&h, &m), "allocation %d leaves blocks", (int)nth) || !hit) break;
  }
}

static void all(void *ud) {
  (void)ud;
  TEST(t_counter(), "sizes in a loop may be its counter");
  TEST(t_loop(), "a loop carries its values, zero iterations included");
  TEST(t_branch(), "a branch runs one region");
  TEST(t_map(), "a map stacks what its region gives for each row");
  TEST(t_lifetime(), "a value lives until its last use");
  TEST(t_updates(), "a write at an index is in place where nobody reads the tensor again");
  TEST(t_checks(), "sizes are tested before anything runs, with their values in the text");
  TEST(t_errors(), "an error has the place of the inner node; an interrupt stops the run");
  TEST(t_writes(), "inputs are written when all has run, with values of before");
  TEST(t_effects(), "effects run in order of their tokens; what they fail or throw leaks nothing");
  TEST(t_assert(), "an assertion fails with its text");
  TEST(t_devices(), "results live where operands live; single numbers of the cpu come along");
  TEST(t_single(), "one op runs without a graph and explains what does not fit");
  TEST(t_quick(), "one op is quick");
  TEST(t_negative(), "a negative number where sizes were expected leaves no tensor's bounds");
  TEST(t_long(), "a chain of 100,000 nodes is printed, read, simplified and run");
  TEST(t_failing(), "a failed allocation gives an error and leaves nothing behind");
  TEST(t_building(), "a failed allocation while building and in passes leaves nothing behind");
}

int main(void) {
  failing_init(&hook, &mem, 0);
  mem.check = false; /* else there is memory to give back where an allocation fails */
  arena_init(&arena, &mem);
  names = names_new(&arena);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  TEST(check(failing_clean(&hook, &mem)), "nothing is left at the end");
  return tap_done();
}
