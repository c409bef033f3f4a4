/* fuzz-ir SECONDS [SEED]: mutates texts of graphs and feeds them to the reader. Whatever is read
 * must verify, print, read back to the same text, survive every pass, and run with sizes drawn at
 * random or fail with an error. Dies or exits with 1 on a find. */
#include "../unit/graph-gen.h"
#include "graph/pass.h"
#include "graph/run.h"

#include "lang/compile/pipeline.h"
#include "mutate.h"

static Interrupt stop;

static void on_alarm(int sig) {
  (void)sig;
  stop = true;
}

/* Runs g with small random sizes and numbers; the outcome does not matter, surviving does. */
static void run_it(Graph *g) {
  Gen x = {.g = g, .rng = state | 1};
  Sym n = dim_symbol_count(g->dims);
  int64_t *env = ARENA_ARRAY(&arena, int64_t, n + 1);
  Tensor *in[GEN_INPUTS] = {0}, *out[64] = {0};
  bool ok = g->input_count <= GEN_INPUTS && g->output_count <= 64;
  for (Sym i = 0; i < n; i++) env[i] = (int64_t)rnd(5);
  for (size_t i = 0; i < g->input_count && ok; i++) {
    const Type *t = gr_type(g, g->inputs[i]);
    int64_t dim[CKL_MAX_RANK], all = 1;
    if (t->kind == TK_TOKEN) continue;
    for (int k = 0; k < t->rank && ok; k++) {
      ok = dim_eval(g->dims, t->dim[k], env, NULL, &dim[k]) && dim[k] >= 0 && dim[k] < 100;
      all *= ok ? dim[k] : 0;
    }
    if (!ok || all > 10000) {
      ok = false;
      break;
    }
    in[i] = tn_zeros(&mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
    for (int64_t k = 0; in[i] && k < all && t->dtype != DT_BOOL; k++) {
      ((char *)tn_data(in[i]))[k] = (char)gen_rnd(&x, 3);
    }
  }
  if (ok) {
    /* long loops end by an interrupt */
    RunCtx c = {.mem = &mem, .env = env, .interrupt = &stop};
    GErr e;
    Prov at;
    stop = false;
    soon(true);
    if (gr_run(g, &c, in, out, &e, &at)) ran++;
    soon(false);
  }
  for (size_t i = 0; i < GEN_INPUTS; i++) tn_unref(in[i]);
  for (size_t i = 0; i < 64; i++) tn_unref(out[i]);
}

static void feed(void *ud) {
  GErr e;
  (void)ud;
  Names *names = names_new(&arena);
  Graph *g = gr_read(&arena, names, text, length, &e);
  if (!g) return;
  taken++;
  Buf a, b;
  buf_init_arena(&a, &arena);
  buf_init_arena(&b, &arena);
  gr_print(&a, g);
  Graph *h = gr_read(&arena, names, a.s, a.n, &e);
  if (!h) die("does not read back", e.text);
  gr_print(&b, h);
  if (strcmp(a.s, b.s)) die("prints differently", b.s);
  if (!gr_equal(g, h)) die("is not equal", a.s);
  for (const Pass *p = passes; p < passes + PASS_COUNT; p++)
    if (p->run && !gr_verify(p->run(&arena, g), &e)) die(p->name, e.text);
  run_it(g);
}

static const char *const words[] = {"0",
                                    "1",
                                    "-1",
                                    "7",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "4294967295",
                                    "A",
                                    "B",
                                    "A*B",
                                    "A//B",
                                    "(A % 3)",
                                    "A - B",
                                    "%0",
                                    "%1",
                                    "%2.1",
                                    " ",
                                    "\n",
                                    "}",
                                    "{",
                                    "[",
                                    "]",
                                    "(",
                                    ")",
                                    "<",
                                    ">",
                                    ",",
                                    ":",
                                    "=",
                                    "\"",
                                    "~1",
                                    "~4000000",
                                    " on sim",
                                    "@",
                                    "f32",
                                    "i64",
                                    "bool",
                                    "token",
                                    "add",
                                    "reshape",
                                    "slice",
                                    "wrap",
                                    "loop",
                                    "map",
                                    "concat",
                                    "region {\n",
                                    "return",
                                    "check eq A, B\n",
                                    "check fits A, u8\n",
                                    "fact A, B\n",
                                    "sym A\n",
                                    "axis",
                                    "dims",
                                    "index",
                                    "nan",
                                    "1e999",
                                    "\\x",
                                    "'2",
                                    "?1",
                                    "#",
                                    NULL};

static void draw(void *ud) {
  Gen x;
  (void)ud;
  Names *names = names_new(&arena);
  gen_open(&x, &arena, names, rnd(1u << 30), rnd(2), rnd(4) == 0);
  x.effects = x.writes = rnd(2);
  gen_graph(&x, 1 + (int)rnd(14));
  Buf b;
  buf_init_arena(&b, &arena);
  gr_print(&b, x.g);
  set_text(b.s);
}

int main(int argc, char **argv) {
  return fuzz(argc, argv, &(Target){"graphs", words, draw, feed, on_alarm});
}
