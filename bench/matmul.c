/* Products of matrices beside other libraries, in turn, on the same threads.
 *   make bench/matmul && bench/matmul [-gpt | -of M,N,K] [-s SYMBOLS] [THREADS [LIBRARY...]]
 * Prints per shape and form (plain, a or b transposed) the median GFLOP/s of all and the ratio to
 * the best of the others, and last the geometric mean of the ratios of medians and of the fastest
 * rounds. Packing is counted. A LIBRARY has sgemm_: any BLAS, the one in a wheel of numpy
 * (OpenBLAS), or libtorch_cpu.so (MKL, what torch.mm calls). Without one libopenblas.so.0 is looked
 * for; where there is none, a line says so and ckl is timed alone. OPENBLAS_CORETYPE and the like
 * must not be set. SYMBOLS are the sizes among m, n and k that are known at run time only. -gpt:
 * the products of a step of gpt.ckl; -of: one shape. The first run of each product is compared with
 * the reference evaluator, bit for bit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/run.h"
#include "jit/engine/engine.h"
#include "jit/engine/target.h"
#include "jit/lower/lower.h"

enum { ROUNDS = 15, MOST = 16, LIBRARIES = 4 };
/* Sizes of 32 and of 64 bits are read from the same place. */
typedef void Sgemm(const char *, const char *, const int64_t *, const int64_t *, const int64_t *,
                   const float *, const float *, const int64_t *, const float *, const int64_t *,
                   const float *, float *, const int64_t *);

typedef struct Options {
  bool gpt;
  long long of[3]; /* m, n, k where not 0 */
  const char *symbols;
  int threads, count;
  Sgemm *gemm[LIBRARIES];
} Options;

static const int64_t shapes[][3] = {/* m, n, k */
                                    {1024, 1024, 1024}, {512, 512, 512},   {2048, 256, 256},
                                    {2048, 1024, 256},  {2048, 256, 1024}, {128, 128, 64},
                                    {4096, 4096, 32},   {4096, 32, 4096},  {256, 1024, 4096}};
static const int64_t of_gpt[][4] = {/* m, n, k, form */
                                    {2048, 768, 256, 0},  {2048, 256, 256, 0},
                                    {2048, 1024, 256, 0}, {2048, 256, 1024, 0},
                                    {2048, 65, 256, 0},   {2048, 256, 768, 2},
                                    {2048, 256, 256, 2},  {2048, 256, 1024, 2},
                                    {2048, 1024, 256, 2}, {256, 768, 2048, 1},
                                    {256, 256, 2048, 1},  {256, 1024, 2048, 1},
                                    {1024, 256, 2048, 1}, {256, 65, 2048, 1}};

/* Seconds; with one thread those it was running, so that other programs disturb less. */
static clockid_t watch = CLOCK_MONOTONIC;
static double now(void) {
  struct timespec t;
  clock_gettime(watch, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(void) { /* threads of OpenBLAS spin for more than 60 ms after a call */
  struct timespec t = {0, 250000000};
  nanosleep(&t, NULL);
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, order);
  return x[n / 2];
}

static _Noreturn void die(const char *text) {
  fprintf(stderr, "matmul: %s\n", text);
  exit(1);
}

/* The launches of one product with all that they need. */
typedef struct Product {
  Engine *engine;
  Lowered low;
  KernelFn code[MOST];
  void *buf[MOST][MOST];
  int64_t *arg[MOST], iterations[MOST], bytes[MOST];
  void *panel[MOST];
  double flops;
  const int64_t *env; /* of symbols */
} Product;

static void run(Product *p) {
  KStatus st = {0};
  for (size_t i = 0; i < p->low.count; i++) {
    eng_run(p->engine, p->code[i], p->buf[i], p->arg[i], p->iterations[i], (int64_t)p->flops,
            p->bytes[i], &st, NULL);
  }
}

static void make(Product *p, Arena *a, const Graph *g, Val z, Tensor *const in[2], Tensor *out) {
  uint8_t *placed = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  for (int i = 0; i < 2; i++) placed[g->nodes[g->inputs[i].node].result0] = 1;
  Group group = {.kind = GROUP_DOT, .root = z.node, .outs = &z, .out_count = 1};
  const EngTarget *target = &eng_targets[eng_config(p->engine)->level];
  Lower l = {a, g, {target->tile_rows, target->tile_columns}, placed};
  GErr ge;
  Err e = {0};
  if (!low_group(&l, &group, &p->low, &ge)) die(ge.text);
  for (size_t i = 0; i < p->low.panel_count; i++) {
    int64_t n = 0;
    dim_eval(g->dims, p->low.panels[i].count, p->env, NULL, &n);
    p->panel[i] = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
  }
  for (size_t i = 0; i < p->low.count; i++) {
    const Launch *c = &p->low.launches[i];
    EngKernel *k = eng_kernel(p->engine, c->k, &e);
    if (!k || !eng_wait(p->engine, &k, 1, NULL, &e)) die(e.text);
    p->code[i] = eng_code(k);
    p->arg[i] = ARENA_ARRAY(a, int64_t, c->k->arg_count + 1);
    for (uint32_t j = 0; j < c->k->arg_count; j++) {
      p->arg[i][j] = c->args[j].bits;
      if (c->args[j].kind == ARG_DIM) {
        dim_eval(g->dims, c->args[j].dim, p->env, NULL, &p->arg[i][j]);
      }
    }
    for (size_t j = 0; j < c->k->buf_count; j++) {
      const BufUse *u = &c->bufs[j];
      if (u->kind == USE_LOCAL) continue;
      if (buf_is_panel(u, g->dims, p->env))
        p->buf[i][j] = p->panel[u->panel];
      else
        p->buf[i][j] = tn_data(val_eq(u->v, z) ? out : in[!val_eq(u->v, g->inputs[0])]);
    }
    p->iterations[i] = lp_iterations(c->k, p->arg[i]);
    p->bytes[i] = lp_local_bytes(c->k, p->arg[i]);
    if (!eng_scratch(p->engine, p->bytes[i])) die("out of memory");
  }
}

/* Row-major C = A B is column-major C' = B' A'. */
static void other(Sgemm *gemm, const int64_t s[3], int form, const float *a, const float *b,
                  float *c) {
  float one = 1, zero = 0;
  int64_t lda = form == 1 ? s[0] : s[2], ldb = form == 2 ? s[2] : s[1];
  gemm(form == 2 ? "T" : "N", form == 1 ? "T" : "N", &s[1], &s[0], &s[2], &one, b, &ldb, a, &lda,
       &zero, c, &s[1]);
}

/* Adds the logarithms of both ratios to sum. */
static void compare(Mem *m, Engine *engine, const Options *o, const int64_t s[3], int form,
                    double sum[2]) {
  Arena a;
  arena_init(&a, m);
  DimTab *dims = dim_tab_new(&a);
  Names *names = names_new(&a);
  Graph *g = gr_new(&a, dims, names, names_of(names, "f"));
  Dim size[3];
  int64_t env[3] = {0};
  for (int i = 0; i < 3; i++) {
    const char *name = (const char *[]){"m", "n", "k"}[i];
    Sym symbol;
    size[i] = dim_const(dims, s[i]);
    if (!strstr(o->symbols, name)) continue;
    size[i] = dim_symbol(dims, names_of(names, name), (Span){0}, &symbol);
    env[symbol] = s[i];
  }
  static const int axis[2][2] = {{0, 2}, {2, 1}};
  Tensor *in[2], *want = NULL;
  B b = {.g = g};
  Val v[2];
  for (int i = 0; i < 2; i++) {
    bool transposed = form == i + 1;
    int64_t d[2] = {s[axis[i][transposed]], s[axis[i][!transposed]]};
    Type t = {.kind = TK_TENSOR, .dtype = DT_F32, .dev = DEV_CPU, .rank = 2};
    for (int j = 0; j < 2; j++) t.dim[j] = size[axis[i][j ^ transposed]];
    v[i] = gr_input(g, &t);
    if (transposed) v[i] = b_swap(&b, v[i]);
    in[i] = tn_new(m, DEV_CPU, DT_F32, 2, d);
    if (!in[i]) die("out of memory");
    float *x = tn_data(in[i]);
    for (int64_t j = 0; j < d[0] * d[1]; j++) x[j] = (float)((j * 7919 + i) % 2003) / 1001.5f - 1;
  }
  Val z = b_op(&b, OP_DOT, 2, v, 0, NULL);
  gr_output(g, z);
  Tensor *out = tn_zeros(m, DEV_CPU, DT_F32, 2, (int64_t[]){s[0], s[1]});
  float *to = aligned_alloc(64, (size_t)(s[0] * s[1] * 4 + 63) / 64 * 64);
  if (!out || !to) die("out of memory");
  Product p = {.engine = engine, .flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2]};
  p.env = env;
  make(&p, &a, g, z, in, out);
  run(&p);
  RunCtx c = {.mem = m, .env = env};
  GErr e;
  if (!gr_run(g, &c, in, &want, &e, NULL)) die(e.text);
  if (!tn_same(out, want)) die("differs from the reference evaluator");

  int times = (int)(3e7 / p.flops) + 1;
  double mine[ROUNDS], theirs[LIBRARIES][ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    eng_awake(engine, true);
    run(&p);
    double t = now();
    for (int i = 0; i < times; i++) run(&p);
    mine[r] = (now() - t) / times;
    eng_awake(engine, false);
    for (int l = 0; l < o->count; l++) {
      if (eng_threads(engine) > 1) rest();
      for (int warm = 1; warm >= 0; warm--) {
        t = now();
        for (int i = 0; i < (warm ? 1 : times); i++)
          other(o->gemm[l], s, form, tn_data(in[0]), tn_data(in[1]), to);
        theirs[l][r] = (now() - t) / times;
      }
    }
    if (o->count && eng_threads(engine) > 1) rest();
  }
  double x = median(mine, ROUNDS), most[2] = {0};
  printf("%5lld %5lld %5lld %-4s ckl %6.1f", (long long)s[0], (long long)s[1], (long long)s[2],
         (const char *[]){"", "a^T", "b^T"}[form], p.flops / x * 1e-9);
  for (int l = 0; l < o->count; l++) {
    double y = median(theirs[l], ROUNDS), ratio[2] = {x / y, mine[0] / theirs[l][0]};
    for (int i = 0; i < 2; i++) most[i] = ratio[i] > most[i] ? ratio[i] : most[i];
    printf("  %c %6.1f", 'A' + l, p.flops / y * 1e-9);
  }
  if (o->count) printf(" GFLOP/s  ratio %.2f, of the fastest %.2f", 1 / most[0], 1 / most[1]);
  for (int i = 0; i < 2 && o->count; i++) sum[i] -= log(most[i]);
  printf("\n");
  fflush(stdout);
  for (int i = 0; i < 2; i++) tn_unref(in[i]);
  tn_unref(out);
  tn_unref(want);
  for (size_t i = 0; i < p.low.panel_count; i++) free(p.panel[i]);
  free(to);
  arena_free(&a);
}

static void open_library(Options *o, const char *path) {
  static const char *const names[] = {"sgemm_", "scipy_sgemm_64_", "scipy_sgemm_"};
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *f = NULL;
  for (int i = 0; i < 3 && lib && !f; i++) f = dlsym(lib, names[i]);
  if (!f) {
    printf("matmul: not compared with %s: %s\n", path, lib ? "no sgemm_" : dlerror());
  } else if (o->count < LIBRARIES) {
    printf("%c: %s\n", 'A' + o->count, path);
    *(void **)&o->gemm[o->count++] = f;
  }
}

int main(int argc, char **argv) {
  Mem m;
  Arena a;
  Options o = {.symbols = ""};
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; i++) {
    if (!strcmp(argv[i], "-gpt"))
      o.gpt = true;
    else if (!strcmp(argv[i], "-of") && i + 1 < argc &&
             sscanf(argv[++i], "%lld,%lld,%lld", &o.of[0], &o.of[1], &o.of[2]) == 3)
      continue;
    else if (!strcmp(argv[i], "-s") && i + 1 < argc)
      o.symbols = argv[++i];
    else
      die("unknown option");
  }
  mem_init(&m, NULL, NULL);
  arena_init(&a, &m);
  EngConfig c = {.level = eng_host_level(), .threads = i < argc ? atoi(argv[i]) : 0};
  eng_find(&a, &c);
  if (!c.codegen) {
    printf("matmul: skipped, there is no code generator\n");
    arena_free(&a);
    mem_close(&m);
    return 0;
  }
  Engine *engine = eng_open(&m, &c);
  if (eng_threads(engine) == 1) watch = CLOCK_THREAD_CPUTIME_ID;
  char threads[16];
  snprintf(threads, sizeof threads, "%d", eng_threads(engine));
  setenv("OMP_NUM_THREADS", threads, 1); /* what all libraries read */
  setenv("OPENBLAS_NUM_THREADS", threads, 1);
  if (++i >= argc) open_library(&o, "libopenblas.so.0");
  for (; i < argc; i++) open_library(&o, argv[i]);
  double sum[2] = {0};
  int n = 0;
  const int64_t of[3] = {o.of[0], o.of[1], o.of[2]};
  for (int form = 0; of[0] && form < 3; form++, n++) compare(&m, engine, &o, of, form, sum);
  for (size_t j = 0; !of[0] && !o.gpt && j < sizeof shapes / sizeof *shapes; j++)
    for (int form = 0; form < 3; form++, n++) compare(&m, engine, &o, shapes[j], form, sum);
  for (size_t j = 0; o.gpt && j < sizeof of_gpt / sizeof *of_gpt; j++, n++)
    compare(&m, engine, &o, of_gpt[j], (int)of_gpt[j][3], sum);
  if (o.count) {
    printf("geometric means of ratios, %d threads: %.3f, of the fastest %.3f\n",
           eng_threads(engine), exp(sum[0] / n), exp(sum[1] / n));
  }
  eng_close(engine);
  arena_free(&a);
  mem_close(&m);
  return 0;
}
