/* Products of matrices beside OpenBLAS, in turn, on the same threads.
 *   make bench/matmul && bench/matmul [THREADS [LIBRARY]]
 * Prints per shape and form (plain, a or b transposed) the median GFLOP/s of both and their ratio,
 * and last the geometric mean of the ratios. Packing is counted. Without LIBRARY libopenblas.so.0
 * is looked for; where there is none, a line says so and ckl is timed alone. OPENBLAS_CORETYPE and
 * the like must not be set. The first run of each product is compared with the reference evaluator,
 * bit for bit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/engine.h"
#include "jit/lower.h"

enum { ROUNDS = 15, MOST = 16 };
typedef void Sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int,
                   float, float *, int);

static const Target targets[ENG_LEVEL_COUNT] = {
    {"x86-64", 4, 8}, {"x86-64-v3", 6, 16}, {"x86-64-v4", 14, 32}};
static const int64_t shapes[][3] = {/* m, n, k */
                                    {1024, 1024, 1024}, {512, 512, 512},  {2048, 256, 256},
                                    {2048, 1024, 256},  {2048, 256, 1024}, {128, 128, 64},
                                    {4096, 4096, 32},   {4096, 32, 4096}, {256, 1024, 4096}};

/* Seconds; with one thread those it was running, so that other programs disturb less. */
static clockid_t watch = CLOCK_MONOTONIC;
static double now(void) {
  struct timespec t;
  clock_gettime(watch, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(void) { /* threads of the other library spin for a while after a call */
  struct timespec t = {0, 60000000};
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
  int64_t *arg[MOST], turns[MOST], bytes[MOST];
  double flops;
} Product;

static void run(Product *p) {
  KStatus st = {0};
  for (size_t i = 0; i < p->low.count; i++) {
    eng_run(p->engine, p->code[i], p->buf[i], p->arg[i], p->turns[i], (int64_t)p->flops,
            p->bytes[i], &st, NULL);
  }
}

static void make(Product *p, Arena *a, const Graph *g, Val z, Tensor *const in[2], Tensor *out) {
  uint8_t *placed = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  for (int i = 0; i < 2; i++) placed[g->nodes[g->inputs[i].node].result0] = 1;
  Group group = {.kind = GROUP_DOT, .root = z.node, .outs = &z, .out_count = 1};
  Lower l = {a, g, &targets[eng_config(p->engine)->level], placed};
  GErr ge;
  Err e = {0};
  void *panel[MOST];
  if (!lower_group(&l, &group, &p->low, &ge)) die(ge.text);
  for (size_t i = 0; i < p->low.panel_count; i++) {
    int64_t n = 0;
    dim_eval(g->dims, p->low.panels[i].count, NULL, NULL, &n);
    panel[i] = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
  }
  for (size_t i = 0; i < p->low.count; i++) {
    const Launch *c = &p->low.launches[i];
    EngKernel *k = eng_kernel(p->engine, c->k, &e);
    if (!k || !eng_wait(p->engine, &k, 1, NULL, &e)) die(e.text);
    p->code[i] = eng_code(k);
    p->arg[i] = ARENA_ARRAY(a, int64_t, c->k->arg_count + 1);
    for (uint32_t j = 0; j < c->k->arg_count; j++) {
      p->arg[i][j] = c->args[j].bits;
      if (c->args[j].kind == ARG_DIM) dim_eval(g->dims, c->args[j].dim, NULL, NULL, &p->arg[i][j]);
    }
    for (size_t j = 0; j < c->k->buf_count; j++) {
      const BufUse *u = &c->bufs[j];
      if (u->kind == USE_PANEL) p->buf[i][j] = panel[u->panel];
      if (u->kind == USE_VALUE)
        p->buf[i][j] = tn_data(val_eq(u->v, z) ? out : in[!val_eq(u->v, g->inputs[0])]);
    }
    p->turns[i] = lp_turns(c->k, p->arg[i]);
    p->bytes[i] = lp_local_bytes(c->k, p->arg[i]);
    if (!eng_scratch(p->engine, p->bytes[i])) die("out of memory");
  }
}

static double compare(Mem *m, Engine *engine, Sgemm *gemm, const int64_t s[3], int form) {
  Arena a;
  arena_init(&a, m);
  DimTab *dims = dim_tab_new(&a);
  Names *names = names_new(&a);
  Graph *g = gr_new(&a, dims, names, names_of(names, "f"));
  int64_t size[2][2] = {{s[0], s[2]}, {s[2], s[1]}};
  Tensor *in[2], *want = NULL;
  B b = {.g = g};
  Val v[2];
  for (int i = 0; i < 2; i++) {
    bool turned = form == i + 1;
    int64_t d[2] = {size[i][turned], size[i][!turned]};
    Type t = {.kind = TK_TENSOR, .dtype = DT_F32, .dev = DEV_CPU, .rank = 2};
    for (int j = 0; j < 2; j++) t.dim[j] = dim_const(dims, d[j]);
    v[i] = gr_input(g, &t);
    if (turned) v[i] = b_swap(&b, v[i]);
    in[i] = tn_new(m, DEV_CPU, DT_F32, 2, d);
    if (!in[i]) die("out of memory");
    float *x = tn_data(in[i]);
    for (int64_t j = 0; j < d[0] * d[1]; j++) x[j] = (float)((j * 7919 + i) % 2003) / 1001.5f - 1;
  }
  Val z = b_op(&b, OP_DOT, 2, v, 0, NULL);
  gr_output(g, z);
  Tensor *out = tn_zeros(m, DEV_CPU, DT_F32, 2, (int64_t[]){s[0], s[1]});
  float *other = aligned_alloc(64, (size_t)(s[0] * s[1] * 4 + 63) / 64 * 64);
  if (!out || !other) die("out of memory");
  Product p = {.engine = engine, .flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2]};
  make(&p, &a, g, z, in, out);
  run(&p);
  RunCtx c = {.mem = m, .env = (int64_t[1]){0}};
  GErr e;
  if (!gr_run(g, &c, in, &want, &e, NULL)) die(e.text);
  if (!tn_same(out, want)) die("differs from the reference evaluator");

  int times = (int)(3e7 / p.flops) + 1;
  double mine[ROUNDS], theirs[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    eng_awake(engine, true);
    run(&p);
    double t = now();
    for (int i = 0; i < times; i++) run(&p);
    mine[r] = (now() - t) / times;
    eng_awake(engine, false);
    if (!gemm) continue;
    if (eng_threads(engine) > 1) rest();
    for (int warm = 1; warm >= 0; warm--) {
      t = now();
      for (int i = 0; i < (warm ? 1 : times); i++) {
        gemm(101, form == 1 ? 112 : 111, form == 2 ? 112 : 111, (int)s[0], (int)s[1], (int)s[2], 1,
             tn_data(in[0]), (int)(form == 1 ? s[0] : s[2]), tn_data(in[1]),
             (int)(form == 2 ? s[2] : s[1]), 0, other, (int)s[1]);
      }
      theirs[r] = (now() - t) / times;
    }
    if (eng_threads(engine) > 1) rest();
  }
  double x = median(mine, ROUNDS), y = gemm ? median(theirs, ROUNDS) : 0;
  printf("%5lld %5lld %5lld %-5s ckl %7.1f", (long long)s[0], (long long)s[1], (long long)s[2],
         (const char *[]){"", "a^T", "b^T"}[form], p.flops / x * 1e-9);
  if (gemm) printf("  openblas %7.1f GFLOP/s  ratio %.2f", p.flops / y * 1e-9, y / x);
  printf("\n");
  fflush(stdout);
  for (int i = 0; i < 2; i++) tn_unref(in[i]);
  tn_unref(out);
  tn_unref(want);
  free(other);
  arena_free(&a);
  return gemm ? y / x : 1;
}

int main(int argc, char **argv) {
  Mem m;
  Arena a;
  mem_init(&m, NULL, NULL);
  arena_init(&a, &m);
  EngConfig c = {.level = eng_host_level(), .threads = argc > 1 ? atoi(argv[1]) : 0};
  eng_find(&a, &c);
  if (!c.codegen) {
    printf("matmul: skipped, there is no code generator\n");
    return 0;
  }
  void *lib = dlopen(argc > 2 ? argv[2] : "libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  Sgemm *gemm = NULL;
  void *set = NULL;
  if (lib) *(void **)&gemm = dlsym(lib, "cblas_sgemm");
  if (gemm) set = dlsym(lib, "openblas_set_num_threads");
  Engine *engine = eng_open(&m, &c);
  if (eng_threads(engine) == 1) watch = CLOCK_THREAD_CPUTIME_ID;
  if (set) ((void (*)(int))(uintptr_t)set)(eng_threads(engine));
  if (!gemm) printf("matmul: nothing to compare with: %s\n", lib ? "no cblas_sgemm" : dlerror());
  double sum = 0;
  int n = 0;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int form = 0; form < 3; form++, n++)
      sum += log(compare(&m, engine, gemm, shapes[i], form));
  if (gemm)
    printf("geometric mean of ratios, %d threads: %.3f\n", eng_threads(engine), exp(sum / n));
  eng_close(engine);
  return 0;
}
