/* Strips (lower_strip.c): attention and its gradient, compiled, give the bits of the reference
 * evaluator, and are strips.
 *
 * Graphs are written as text: odd sizes, known or not, masks, heads that share keys, factors after
 * the softmax, f64, chains longer than a block; walked, and as machine code on 1 to 3 threads. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph-gen.h"
#include "graph/pass.h"
#include "graph/run.h"
#include "jit/plan/jit.h"
#include "tests/tap.h"

static Mem mem;
static Arena arena;
static EngConfig host;

typedef struct Case {
  int b, h, t, n, d, e; /* batches, heads, queries, keys, depth of scores, of values */
  bool f64, symbolic, shared, causal, masked, factor, grad, raw, transposed;
  unsigned more; /* bits: MORE_.. */
} Case;

/* Contractions over the rows of the strip's values, most of which no strip can compute. */
enum {
  MORE_OWN = 1,      /* with another value of the same strip */
  MORE_LOW = 2,      /* in another precision */
  MORE_MANY = 4,     /* more than a strip may have */
  MORE_FLAT = 8,     /* of all batches as one */
  MORE_SWAPPED = 16, /* of batches in another order */
  MORE_SUMS = 32,    /* of sums of the rows */
  MORE_ALL = 63,
};

static Buf text;
static int line;

/* Appends a line that defines %line, the next one. */
static int op(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int op(const char *fmt, ...) {
  char s[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(s, sizeof s, fmt, ap);
  va_end(ap);
  buf_printf(&text, "  %%%d = %s\n", line, s);
  return line++;
}

/* [B.., r, c] as text; h: the heads. */
static const char *dims(const Case *c, int h, char r, char k) {
  static char out[64][80];
  static int at;
  char *s = out[at++ % 64], row[12], col[12];
  const char axis[] = {r, k, 0};
  char *to[2] = {row, col};
  for (int i = 0; i < 2; i++) {
    int n = axis[i] == 't' ? c->t : axis[i] == 'n' ? c->n : axis[i] == 'd' ? c->d : c->e;
    if (c->symbolic && (axis[i] == 't' || axis[i] == 'n')) {
      sprintf(to[i], "%c", axis[i] == 't' || c->t == c->n ? 'T' : 'N');
    } else {
      sprintf(to[i], "%d", n);
    }
  }
  if (h == 0)
    sprintf(s, "%s, %s", row, col);
  else if (c->symbolic)
    sprintf(s, "B, %d, %s, %s", h, row, col);
  else
    sprintf(s, "%d, %d, %s, %s", c->b, h, row, col);
  return s;
}

static int in(int *inputs, const char *dt, const char *d) {
  return op("input {index=%d dtype=%s device=cpu dims=[%s]} : %s[%s]", (*inputs)++, dt, d, dt, d);
}

/* Dots of MORE_..; p, e, sum: values of the strip [b, h, t, n], g: [b, h, t, e]. Gives how many. */
static int more_dots(const Case *c, int *out, int p, int e, int sum, int g) {
  const char *dt = c->f64 ? "f64" : "f32", *ne = dims(c, c->h, 'n', 'e');
  int outs = 0;
  if (!c->more) return 0;
  int pt = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", p, dt, dims(c, c->h, 'n', 't'));
  if (c->more & MORE_OWN)
    out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%s]", pt, e, dt, dims(c, c->h, 'n', 'n'));
  if (c->more & MORE_LOW && !c->f64)
    out[outs++] = op("dot %%%d %%%d {compute=1} : %s[%s]", pt, g, dt, ne);
  if (c->more & MORE_MANY) {
    for (int i = 0; i < 5; i++) {
      int x = op("%s %%%d : %s[%s]", i % 2 ? "neg" : "sin", g, dt, dims(c, c->h, 't', 'e'));
      out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%s]", pt, x, dt, ne);
      g = x;
    }
  }
  if (c->more & MORE_FLAT && !c->symbolic) {
    int rows = c->b * c->h * c->t;
    int x = op("reshape %%%d {dims=[%d, %d]} : %s[%d, %d]", p, rows, c->n, dt, rows, c->n);
    int y = op("reshape %%%d {dims=[%d, %d]} : %s[%d, %d]", g, rows, c->e, dt, rows, c->e);
    x = op("transpose %%%d {perm=(1, 0)} : %s[%d, %d]", x, dt, c->n, rows);
    out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%d, %d]", x, y, dt, c->n, c->e);
  }
  if (c->more & MORE_SWAPPED && !c->symbolic) {
    int x = op("transpose %%%d {perm=(1, 0, 3, 2)} : %s[%d, %d, %d, %d]", p, dt, c->h, c->b, c->n,
               c->t);
    int y = op("transpose %%%d {perm=(1, 0, 2, 3)} : %s[%d, %d, %d, %d]", g, dt, c->h, c->b, c->t,
               c->e);
    out[outs++] =
        op("dot %%%d %%%d {compute=0} : %s[%d, %d, %d, %d]", x, y, dt, c->h, c->b, c->n, c->e);
  }
  if (c->more & MORE_SUMS) {
    int x = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", sum, dt, dims(c, c->h, 'n', 't'));
    out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%s]", x, g, dt, ne);
  }
  return outs;
}

static Graph *build(const Case *c) {
  const char *dt = c->f64 ? "f64" : "f32";
  int shared = c->shared ? 1 : c->h, inputs = 0;
  const char *qd = dims(c, c->h, 't', 'd'), *vd = dims(c, shared, 'n', 'e');
  buf_init_arena(&text, &arena);
  line = 0;
  buf_printf(&text, "graph \"g\" {\n");
  if (c->symbolic) buf_printf(&text, "  sym B\n  sym T\n  sym N\n");
  int q = in(&inputs, dt, qd), k = in(&inputs, dt, dims(c, shared, 'n', 'd'));
  int v = in(&inputs, dt, vd), mask = -1, factor = -1, g = -1;
  const char *s = dims(c, c->h, 't', 'n');
  char st[100], plane[100], od[100];
  snprintf(st, sizeof st, "%s[%s]", dt, s);
  snprintf(plane, sizeof plane, "%s", dims(c, 0, 't', 'n'));
  snprintf(od, sizeof od, "%s", dims(c, c->h, 't', 'e'));
  if (c->masked) mask = in(&inputs, "bool", plane);
  if (c->factor) factor = in(&inputs, dt, s);
  if (c->grad) g = in(&inputs, dt, od);
  if (c->causal) {
    const char *t = c->symbolic ? "T" : "", *n = c->symbolic && c->t != c->n ? "N" : t;
    char tn[12], nn[12];
    if (!c->symbolic) {
      sprintf(tn, "%d", c->t);
      sprintf(nn, "%d", c->n);
      t = tn;
      n = nn;
    }
    int i = op("iota {dims=[%s] dtype=i64 device=cpu} : i64[%s]", t, t);
    int j = op("iota {dims=[%s] dtype=i64 device=cpu} : i64[%s]", n, n);
    i = op("reshape %%%d {dims=[%s, 1]} : i64[%s, 1]", i, t, t);
    i = op("broadcast %%%d {dims=[%s]} : i64[%s]", i, plane, plane);
    j = op("broadcast %%%d {dims=[%s]} : i64[%s]", j, plane, plane);
    mask = op("le %%%d %%%d : bool[%s]", j, i, plane);
  }
  int kt = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", k, dt, dims(c, shared, 'd', 'n'));
  int vs = v, ks = k;
  if (c->shared) {
    kt = op("broadcast %%%d {dims=[%s]} : %s[%s]", kt, dims(c, c->h, 'd', 'n'), dt,
            dims(c, c->h, 'd', 'n'));
    ks = op("broadcast %%%d {dims=[%s]} : %s[%s]", k, dims(c, c->h, 'n', 'd'), dt,
            dims(c, c->h, 'n', 'd'));
    vs = op("broadcast %%%d {dims=[%s]} : %s[%s]", v, dims(c, c->h, 'n', 'e'), dt,
            dims(c, c->h, 'n', 'e'));
  }
  int raw = op("dot %%%d %%%d {compute=0} : %s", q, kt, st);
  int scale = op("const {value=2.5 dtype=%s device=cpu} : %s", dt, dt);
  scale = op("broadcast %%%d {dims=[%s]} : %s", scale, s, st);
  int x = op("div %%%d %%%d : %s", raw, scale, st), where = -1, none = -1;
  if (mask >= 0) {
    where = op("broadcast %%%d {dims=[%s]} : bool[%s]", mask, s, s);
    none = op("const {value=-inf dtype=%s device=cpu} : %s", dt, dt);
    none = op("broadcast %%%d {dims=[%s]} : %s", none, s, st);
    x = op("where %%%d %%%d %%%d : %s", where, x, none, st);
  }
  char one[120], rows[100];
  snprintf(rows, sizeof rows, "%s", s);
  *strrchr(rows, ',') = 0;
  snprintf(one, sizeof one, "%s, 1", rows);
  int max = op("reduce_max %%%d {axes=(3)} : %s[%s]", x, dt, rows);
  max = op("reshape %%%d {dims=[%s]} : %s[%s]", max, one, dt, one);
  max = op("broadcast %%%d {dims=[%s]} : %s", max, s, st);
  int e = op("sub %%%d %%%d : %s", x, max, st);
  e = op("exp %%%d : %s", e, st);
  int sum = op("sum %%%d {axes=(3)} : %s[%s]", e, dt, rows);
  sum = op("reshape %%%d {dims=[%s]} : %s[%s]", sum, one, dt, one);
  sum = op("broadcast %%%d {dims=[%s]} : %s", sum, s, st);
  int p = op("div %%%d %%%d : %s", e, sum, st), pf = p;
  if (factor >= 0) pf = op("mul %%%d %%%d : %s", p, factor, st);
  int o = op("dot %%%d %%%d {compute=0} : %s[%s]", pf, vs, dt, od);
  int out[16], outs = 0;
  out[outs++] = o;
  if (c->raw) out[outs++] = raw;
  if (c->grad) {
    const char *tn = dims(c, c->h, 'n', 't');
    int pt = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", pf, dt, tn);
    out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%s]", pt, g, dt, dims(c, c->h, 'n', 'e'));
    int vt = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", vs, dt, dims(c, c->h, 'e', 'n'));
    int dp = op("dot %%%d %%%d {compute=0} : %s", g, vt, st);
    if (factor >= 0) dp = op("mul %%%d %%%d : %s", dp, factor, st);
    dp = op("div %%%d %%%d : %s", dp, sum, st);
    int y = op("mul %%%d %%%d : %s", dp, p, st);
    y = op("neg %%%d : %s", y, st);
    int ds = op("sum %%%d {axes=(3)} : %s[%s]", y, dt, rows);
    ds = op("reshape %%%d {dims=[%s]} : %s[%s]", ds, one, dt, one);
    ds = op("broadcast %%%d {dims=[%s]} : %s", ds, s, st);
    ds = op("add %%%d %%%d : %s", dp, ds, st);
    ds = op("mul %%%d %%%d : %s", ds, e, st);
    if (mask >= 0) {
      int zero = op("const {value=0.0 dtype=%s device=cpu} : %s", dt, dt);
      zero = op("broadcast %%%d {dims=[%s]} : %s", zero, s, st);
      ds = op("where %%%d %%%d %%%d : %s", where, ds, zero, st);
    }
    ds = op("div %%%d %%%d : %s", ds, scale, st);
    out[outs++] = op("dot %%%d %%%d {compute=0} : %s[%s]", ds, ks, dt, qd);
    int qt = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", q, dt, dims(c, c->h, 'd', 't'));
    int dk = op("dot %%%d %%%d {compute=0} : %s[%s]", qt, ds, dt, dims(c, c->h, 'd', 'n'));
    if (c->transposed) {
      const char *nd = dims(c, c->h, 'n', 'd');
      dk = op("transpose %%%d {perm=(0, 1, 3, 2)} : %s[%s]", dk, dt, nd);
      if (pf != p) dk = op("neg %%%d : %s[%s]", dk, dt, nd);
    }
    out[outs++] = dk;
    outs += more_dots(c, out + outs, pf, e, sum, g);
  }
  for (int i = 0; i < outs; i++) buf_printf(&text, i ? " %%%d" : "  return %%%d", out[i]);
  buf_printf(&text, "\n}\n");
  GErr ge = {0};
  Graph *made = gr_read(&arena, names_new(&arena), text.s, text.n, &ge);
  check_msg(made != NULL, "%s\n%s", ge.text, text.s);
  return made;
}

static bool is_strip(JitFn *f) {
  Buf b;
  buf_init_arena(&b, &arena);
  jit_print_plan(&b, f);
  return strstr(b.s, "strip") != NULL;
}

static void run_case(const Case *c, uint64_t seed, bool code) {
  enum { MOST = 20 };
  Tensor *tensor[MOST], *want[MOST], *got[MOST];
  Gen x = {.token = VAL_NONE};
  GErr e = {0};
  x.g = build(c);
  if (!x.g) return;
  x.value[0] = c->b;
  x.value[1] = c->t;
  x.value[2] = c->n;
  size_t n = x.g->input_count, outs = x.g->output_count;
  for (size_t i = 0; i < n; i++) tensor[i] = gen_tensor(&x, &mem, i, seed);
  RunCtx r = {.mem = &mem, .env = x.value};
  bool ok = gr_run(x.g, &r, tensor, want, &e, NULL);
  check_msg(ok, "%s", e.text);
  for (int way = 0; way < (code && host.codegen ? 3 : 1) && ok; way++) {
    JitConfig config = {.walk = !code || !host.codegen, .engine = host};
    config.engine.threads = way + 1;
    if (config.walk) config.engine.level = (EngLevel)(seed % ENG_LEVEL_COUNT);
    Jit *jit = jit_open(&mem, &config);
    JitFn *f = jit_compile(jit, x.g, x.value, NULL, &e);
    if (check_msg(f != NULL, "%s", e.text)) {
      if (!check_msg(is_strip(f), "no strip")) tap_note("%s", text.s);
      if (check_msg(jit_run(f, &r, tensor, got, &e, NULL), "%s", e.text)) {
        for (size_t i = 0; i < outs; i++) {
          if (!check_msg(tn_same(want[i], got[i]), "output %d has other bits: %d threads", (int)i,
                         way + 1))
            tap_note("%s", text.s);
          tn_unref(got[i]);
        }
      }
      jit_free(f);
    }
    jit_close(jit);
  }
  for (size_t i = 0; i < n; i++) tn_unref(tensor[i]);
  for (size_t i = 0; i < outs && ok; i++) tn_unref(want[i]);
}

static uint64_t state = 88172645463325252u;

static int pick(int lo, int hi) {
  return lo + (int)(tap_random(&state) >> 11 & 0xffffff) % (hi - lo + 1);
}

static Case any(int most) {
  Case c = {.b = pick(1, 3), .h = pick(1, 6), .t = pick(2, most), .n = pick(2, most)};
  c.d = pick(2, 40);
  c.e = pick(1, 40);
  if (pick(0, 2) == 0) c.n = c.t;
  c.f64 = pick(0, 3) == 0;
  c.symbolic = pick(0, 1);
  c.shared = c.h > 1 && pick(0, 3) == 0;
  c.causal = pick(0, 1);
  c.masked = !c.causal && pick(0, 1);
  c.factor = pick(0, 2) == 0;
  c.grad = pick(0, 1);
  c.raw = pick(0, 5) == 0;
  c.transposed = pick(0, 1);
  if (c.grad && pick(0, 1)) c.more = (unsigned)pick(0, MORE_ALL);
  if (pick(0, 7) == 0) c.e = pick(250, 300);
  return c;
}

static void walked(void *ud) {
  (void)ud;
  for (int i = 0; i < 100; i++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    Case c = any(i % 4 ? 20 : 70);
    run_case(&c, (uint64_t)i + 1, false);
  }
}

static void compiled(void *ud) {
  (void)ud;
  for (int i = 0; i < 16; i++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    Case c = any(150);
    run_case(&c, (uint64_t)i + 1000, true);
  }
}

static void long_rows(void *ud) {
  (void)ud;
  for (int i = 0; i < 4; i++) {
    Case c = {.b = 1, .h = 1, .t = 5, .n = i % 2 ? 8195 : 4097, .d = 3, .e = 5};
    arena_free(&arena);
    arena_init(&arena, &mem);
    c.symbolic = i % 2;
    c.grad = i < 2;
    run_case(&c, (uint64_t)i + 7, i < 2);
  }
}

static void in_arena(void (*f)(void *)) {
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, f, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_pool_drain(&mem, 0);
}

int main(void) {
  Arena keep;
  mem_init(&mem, NULL, NULL);
  arena_init(&keep, &mem);
  eng_find(&keep, &host);
  host.cache = host.installed = NULL;
  host.level = eng_host_level();
  if (!host.codegen) tap_note("no code generator: kernels are walked only");
  TEST(in_arena(walked), "attention gives the bits of the evaluator, walked");
  TEST(in_arena(compiled), "and as machine code, on 1 to 3 threads");
  TEST(in_arena(long_rows), "and with rows longer than a block of a chain");
  arena_free(&keep);
  mem_close(&mem);
  return tap_done();
}
