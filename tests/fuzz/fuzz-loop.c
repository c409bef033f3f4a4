/* fuzz-loop SECONDS [SEED]: mutates texts of kernels in loop form and feeds them to the reader.
 * Whatever is read must verify, print, read back to the same text, have a canonical form that
 * verifies, is its own canonical form and does the same. Between them, kernels from the generator.
 * Dies or exits with 1 on a find. */
#include "../unit/loop-gen.h"
#include "jit/loop/loop.h"

#include "mutate.h"

static KStatus *running;

static void on_alarm(int sig) {
  (void)sig;
  if (running) running->stop = 1;
}

/* Runs k with small arguments and small buffers of bytes that were drawn. */
typedef struct Data {
  void *buf[LP_MAX_BUFS];
  int64_t elements[LP_MAX_BUFS], arg[LP_MAX_ARGS];
  size_t count;
  KStatus st;
} Data;

static Data *data(const Kernel *k, uint64_t number) {
  Data *d = calloc(1, sizeof *d);
  LoopGen g = {.rng = number};
  for (size_t i = 0; i < k->arg_count; i++) d->arg[i] = lg_below(&g, 12);
  d->count = k->buf_count;
  for (size_t b = 0; b < k->buf_count; b++) {
    size_t size = dt_size((DType)k->bufs[b].dtype);
    d->elements[b] = 1 + lg_below(&g, 300);
    unsigned char *p = d->buf[b] = malloc(size * (size_t)d->elements[b]);
    for (size_t i = 0; i < size * (size_t)d->elements[b]; i++) {
      p[i] = k->bufs[b].dtype == DT_BOOL || lg_below(&g, 3) ? 0 : (unsigned char)lg_rnd(&g);
    }
  }
  return d;
}

static void drop(Data *d) {
  for (size_t b = 0; b < d->count; b++) free(d->buf[b]);
  free(d);
}

static bool run(const Kernel *k, Data *d, Err *e) {
  int64_t iterations = lp_iterations(k, d->arg);
  running = &d->st;
  soon(true);
  bool ok = lp_run_within(&mem, k, d->buf, d->elements, d->arg, 0, iterations < 8 ? iterations : 8,
                          &d->st, e);
  soon(false);
  running = NULL;
  return ok && !d->st.stop;
}

static bool float_nan(DType dt, const void *p, int64_t i) {
  return dt_float(dt) && lg_nan(dt, p, (int)i);
}

/* Both ran to their end: the same in every buffer that is written. */
static void same(const Kernel *k, const Data *a, const Data *b) {
  if (a->st.failed != b->st.failed) die("canonical form", "fails otherwise");
  for (size_t o = 0; o < k->buf_count; o++) {
    DType dt = (DType)k->bufs[o].dtype;
    size_t size = dt_size(dt);
    if (k->bufs[o].kind == LB_LOCAL) continue;
    for (int64_t i = 0; i < a->elements[o]; i++) {
      if (memcmp((char *)a->buf[o] + (size_t)i * size, (char *)b->buf[o] + (size_t)i * size,
                 size) &&
          !(float_nan(dt, a->buf[o], i) && float_nan(dt, b->buf[o], i))) {
        die("canonical form", "stores something else");
      }
    }
  }
}

static char *print(const Kernel *k) {
  Buf b;
  buf_init_arena(&b, &arena);
  lp_print(&b, k);
  return b.s;
}

static void look(const Kernel *k) {
  Err e;
  char *first = print(k);
  Kernel *r = lp_read(&arena, first, strlen(first), &e);
  if (!r) die("does not read back", e.text);
  if (strcmp(first, print(r))) die("prints differently", print(r));
  Kernel *c = lp_clean(&arena, k);
  if (!lp_verify(c, &e)) die("canonical form", e.text);
  char *clean = print(c);
  if (strcmp(clean, print(lp_clean(&arena, c)))) die("not its own canonical form", clean);
  uint64_t number = rnd(1u << 30);
  Data *one = data(k, number), *two = data(k, number);
  (void)lp_local_bytes(k, one->arg);
  if (run(k, one, &e) && run(c, two, &e)) {
    ran++;
    same(k, one, two);
  }
  drop(one);
  drop(two);
}

static void feed(void *ud) {
  Err e = {0};
  (void)ud;
  Kernel *k = lp_read(&arena, text, length, &e);
  if (!k && !e.text[0]) die("refused without a reason", "");
  if (!k) return;
  taken++;
  look(k);
}

static const char *const words[] = {"0",
                                    "1",
                                    "-1",
                                    "7",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "4294967296",
                                    "%0",
                                    "%1",
                                    "%2",
                                    "b0",
                                    "b1",
                                    "b65535",
                                    " ",
                                    "\n",
                                    "end\n",
                                    "-",
                                    "*",
                                    "a0",
                                    "nan",
                                    "inf",
                                    "1e999",
                                    "bool",
                                    "u8",
                                    "i64",
                                    "f16",
                                    "f32",
                                    "f64",
                                    "sum",
                                    "max",
                                    "fma",
                                    "chain",
                                    "first_max",
                                    "par",
                                    "vec",
                                    "for",
                                    "red",
                                    "if",
                                    "tile",
                                    "load",
                                    "store",
                                    "var",
                                    "get",
                                    "set",
                                    "add",
                                    "mul",
                                    "idiv",
                                    "pow",
                                    "floordiv",
                                    "=",
                                    "args",
                                    "loop 1",
                                    "3x8",
                                    "local",
                                    "inout",
                                    NULL};

/* A new text from the generator; its kernel and the canonical form do the same. */
static void draw(void *ud) {
  LoopGen g;
  char why[100];
  Err e;
  (void)ud;
  lg_make(&g, &arena, rnd(1u << 30));
  Kernel *c = lp_clean(&arena, g.k);
  set_text(print(rnd(2) ? c : g.k));
  LgData *one = lg_data(&g), *two = lg_data(&g);
  int64_t iterations = lp_iterations(c, g.arg);
  if (!lp_run_within(&mem, g.k, one->buf, one->elements, g.arg, 0, iterations, &one->st, &e) ||
      !lp_run_within(&mem, c, two->buf, two->elements, g.arg, 0, iterations, &two->st, &e)) {
    die("a kernel of the generator", e.text);
  }
  if (!lg_same(one, two, why, sizeof why)) die("canonical form", why);
  lg_data_free(one);
  lg_data_free(two);
}

int main(int argc, char **argv) {
  return fuzz(argc, argv, &(Target){"kernels", words, draw, feed, on_alarm});
}
