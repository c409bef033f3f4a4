/* fuzz-ir SECONDS [SEED]: mutates texts of graphs and feeds them to the reader. Whatever is read
 * must verify, print, read back to the same text, survive every pass, and run with sizes drawn at
 * random or fail with an error. Dies or exits with 1 on a find. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#include "../unit/graph-gen.h"

#include "autograd/remat.h"

static Mem mem;
static Arena arena;
static char *text;
static size_t length;
static long taken, ran;
static uint64_t state;
static volatile bool stop;

static void on_alarm(int sig)
{
  (void)sig;
  stop = true;
}

static unsigned rnd(unsigned n)
{
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n ? (unsigned)(state >> 33) % n : 0;
}

static void die(const char *what, const char *more)
{
  printf("%s: %s\n%.*s\n", what, more, (int)length, text);
  exit(1);
}

static void *data_limit(void *ud, void *ptr, size_t old_size, size_t new_size)
{
  (void)ud;
  (void)old_size;
  if (!new_size) {
    free(ptr);
    return NULL;
  }
  return new_size > (1u << 26) ? NULL : realloc(ptr, new_size);
}

/* Runs g with small random sizes and numbers; the outcome does not matter, surviving does. */
static void run_it(Graph *g)
{
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
    struct itimerval soon = {{0, 0}, {0, 30000}}, never = {{0, 0}, {0, 0}};
    stop = false;
    setitimer(ITIMER_REAL, &soon, NULL);
    if (gr_run(g, &c, in, out, &e, &at)) ran++;
    setitimer(ITIMER_REAL, &never, NULL);
  }
  for (size_t i = 0; i < GEN_INPUTS; i++) tn_unref(in[i]);
  for (size_t i = 0; i < 64; i++) tn_unref(out[i]);
}

static void feed(void *ud)
{
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
  for (const GrPass *p = gr_passes; p->name; p++) {
    if (!gr_pass(&arena, p->name, g, &e)) die(p->name, e.text);
  }
  if (!gr_verify(rm_pass(&arena, g), &e)) die("remat", e.text);
  run_it(g);
}

/* -- the mutator */
static void put(size_t at, size_t drop, const char *s, size_t n)
{
  if (at > length) at = length;
  if (drop > length - at) drop = length - at;
  if (length - drop + n > 60000) return;
  char *t = malloc(length - drop + n + 1);
  memcpy(t, text, at);
  memcpy(t + at, s, n);
  memcpy(t + at + n, text + at + drop, length - at - drop);
  length = length - drop + n;
  t[length] = 0;
  free(text);
  text = t;
}

static size_t line_start(size_t at)
{
  while (at > 0 && text[at - 1] != '\n') at--;
  return at;
}

static void mutate(void)
{
  static const char *const bits[] = {
      "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "4294967295", "A", "B",
      "A*B", "A//B", "(A % 3)",
      "A - B", "%0", "%1", "%2.1", " ", "\n", "}", "{", "[", "]", "(", ")", "<", ">", ",", ":", "=",
      "\"", "~1", "~4000000",
      " on sim", "@", "f32", "i64", "bool", "token", "add", "reshape", "slice", "wrap", "loop",
      "map", "concat", "region {\n",
      "return", "check eq A, B\n", "fact A, B\n", "sym A\n", "axis", "dims", "index", "nan",
      "1e999", "\\x", "'2", "?1", "#"};
  size_t at = rnd((unsigned)length + 1);
  switch (rnd(9)) {
  case 0: { /* flip */
    if (length)
      text[at % length] = (char)(rnd(2) ? (int)rnd(256) : text[at % length] ^ (1 << rnd(7)));
    break;
  }
  case 1: put(at, 1 + rnd(4), "", 0); break;
  case 2: case 3: {
    const char *s = bits[rnd(sizeof bits / sizeof *bits)];
    put(at, rnd(2) ? rnd(4) : 0, s, strlen(s));
    break;
  }
  case 4: { /* a number becomes another */
    while (at < length && (text[at] < '0' || text[at] > '9')) at++;
    char num[8];
    snprintf(num, sizeof num, "%u", rnd(12));
    put(at, 1, num, strlen(num));
    break;
  }
  case 5: { /* copy a line */
    size_t from = line_start(at), to = from;
    while (to < length && text[to] != '\n') to++;
    char *s = malloc(to - from + 2);
    memcpy(s, text + from, to - from);
    s[to - from] = '\n';
    size_t n = to - from + 1;
    put(line_start(rnd((unsigned)length + 1)), 0, s, n);
    free(s);
    break;
  }
  case 6: { /* drop a line */
    size_t from = line_start(at), to = from;
    while (to < length && text[to] != '\n') to++;
    put(from, to - from + 1, "", 0);
    break;
  }
  default: { /* a word becomes a neighbouring word of the same kind */
    size_t from = rnd((unsigned)length + 1), n = 1 + rnd(12);
    if (from + n > length) break;
    char s[16];
    memcpy(s, text + from, n);
    put(at, n, s, n);
  }
  }
}

static void seed_text(void *ud)
{
  Gen x;
  (void)ud;
  Names *names = names_new(&arena);
  gen_open(&x, &arena, names, rnd(1u << 30), rnd(2), rnd(4) == 0);
  x.effects = rnd(2);
  gen_graph(&x, 1 + (int)rnd(14));
  Buf b;
  buf_init_arena(&b, &arena);
  gr_print(&b, x.g);
  free(text);
  text = malloc(b.n + 1);
  memcpy(text, b.s, b.n + 1);
  length = b.n;
}

int main(int argc, char **argv)
{
  int seconds = argc > 1 ? atoi(argv[1]) : 5;
  state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 2654435761u + 88172645463325252u;
  mem_init(&mem, data_limit, NULL);
  struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &act, NULL);
  time_t end = time(NULL) + seconds;
  long fed = 0;
  while (time(NULL) < end) {
    arena_init(&arena, &mem);
    mem_protect(&mem, seed_text, NULL);
    arena_free(&arena);
    for (int k = 0; k < 200; k++) {
      char *keep = malloc(length + 1);
      size_t n = length;
      memcpy(keep, text, length + 1);
      for (unsigned i = 0, m = 1 + rnd(3); i < m; i++) mutate();
      arena_init(&arena, &mem);
      long before = taken;
      int code = mem_protect(&mem, feed, NULL);
      if (code != MEM_OK && code != MEM_ERR_NOMEM) die("threw", "");
      arena_free(&arena);
      fed++;
      /* What is still a graph goes on, the rest goes back. */
      if (taken > before && rnd(3)) {
        free(keep);
      } else {
        free(text);
        text = keep;
        length = n;
      }
      if (mem.live != mem.pool_cap * sizeof *mem.pool) die("leaks", "");
    }
  }
  printf("%ld texts, %ld were graphs, %ld ran\n", fed, taken, ran);
  free(text);
  mem_close(&mem);
  return 0;
}
