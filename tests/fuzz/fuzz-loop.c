/* fuzz-loop SECONDS [SEED]: mutates texts of kernels in loop form and feeds them to the reader.
 * Whatever is read must verify, print, read back to the same text, have a canonical form that
 * verifies, is its own canonical form and does the same. Between them, kernels from the generator.
 * Dies or exits with 1 on a find. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "../unit/loop-gen.h"

static Mem mem;
static Arena arena;
static char *text;
static size_t length;
static long taken, ran;
static uint64_t state;
static KStatus *running;

static void on_alarm(int sig) {
  (void)sig;
  if (running) running->stop = 1;
}

static unsigned rnd(unsigned n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n ? (unsigned)(state >> 33) % n : 0;
}

static void die(const char *what, const char *more) {
  printf("%s: %s\n%.*s\n", what, more, (int)length, text);
  exit(1);
}

static void *limited(void *ud, void *ptr, size_t old_size, size_t new_size) {
  (void)ud;
  (void)old_size;
  if (!new_size) {
    free(ptr);
    return NULL;
  }
  return new_size > (1u << 24) ? NULL : realloc(ptr, new_size);
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
  struct itimerval soon = {{0, 0}, {0, 30000}}, never = {{0, 0}, {0, 0}};
  int64_t turns = lp_turns(k, d->arg);
  running = &d->st;
  setitimer(ITIMER_REAL, &soon, NULL);
  bool ok =
      lp_run_within(&mem, k, d->buf, d->elements, d->arg, 0, turns < 8 ? turns : 8, &d->st, e);
  setitimer(ITIMER_REAL, &never, NULL);
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

/* -- the mutator */
static void put(size_t at, size_t gone, const char *s, size_t n) {
  if (at > length) at = length;
  if (gone > length - at) gone = length - at;
  if (length - gone + n > 60000) return;
  char *t = malloc(length - gone + n + 1);
  memcpy(t, text, at);
  memcpy(t + at, s, n);
  memcpy(t + at + n, text + at + gone, length - at - gone);
  length = length - gone + n;
  t[length] = 0;
  free(text);
  text = t;
}

static size_t line_start(size_t at) {
  while (at > 0 && text[at - 1] != '\n') at--;
  return at;
}

static void mutate(void) {
  static const char *const bits[] = {
      "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "4294967296", "%0", "%1",
      "%2", "b0", "b1",
      "b65535", " ", "\n", "end\n", "-", "*", "a0", "nan", "inf", "1e999", "bool", "u8", "i64",
      "f16", "f32", "f64",
      "sum", "max", "fma", "chain", "first_max", "par", "vec", "for", "red", "if", "tile", "load",
      "store", "var",
      "get", "set", "add", "mul", "idiv", "pow", "floordiv", "=", "args", "loop 1", "3x8", "local",
      "inout"};
  size_t at = rnd((unsigned)length + 1);
  switch (rnd(9)) {
    case 0:
      if (length)
        text[at % length] = (char)(rnd(2) ? (int)rnd(256) : text[at % length] ^ (1 << rnd(7)));
      break;
    case 1: put(at, 1 + rnd(4), "", 0); break;
    case 2: case 3: { /* a word becomes another */
      const char *s = bits[rnd(sizeof bits / sizeof *bits)];
      size_t to = at;
      while (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\n') at--;
      while (to < length && text[to] != ' ' && text[to] != '\n') to++;
      put(at, rnd(4) ? to - at : 0, s, strlen(s));
      break;
    }
    case 4: case 5: case 6: { /* a number becomes one near by */
      char num[24];
      while (at < length && (text[at] < '0' || text[at] > '9')) at++;
      while (at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9') at--;
      size_t to = at;
      while (to < length && text[to] >= '0' && text[to] <= '9') to++;
      long long x = strtoll(text + at, NULL, 10);
      snprintf(num, sizeof num, "%lld", rnd(2) ? (long long)rnd(40) : x - 1 - rnd(5));
      put(at, to - at, num, strlen(num));
      break;
    }
    case 7: { /* drop a line */
      size_t from = line_start(at), to = from;
      while (to < length && text[to] != '\n') to++;
      put(from, to - from + 1, "", 0);
      break;
    }
    default: { /* some text goes somewhere else */
      size_t from = rnd((unsigned)length + 1), n = 1 + rnd(12);
      char s[16];
      if (from + n > length) break;
      memcpy(s, text + from, n);
      put(at, n, s, n);
    }
  }
}

/* A new text from the generator; its kernel and the canonical form do the same. */
static void seed_text(void *ud) {
  LoopGen g;
  char why[100];
  Err e;
  (void)ud;
  lg_make(&g, &arena, rnd(1u << 30));
  Kernel *c = lp_clean(&arena, g.k);
  free(text);
  text = strdup(print(rnd(2) ? c : g.k));
  length = strlen(text);
  LgData *one = lg_data(&g), *two = lg_data(&g);
  int64_t turns = lp_turns(c, g.arg);
  if (!lp_run_within(&mem, g.k, one->buf, one->elements, g.arg, 0, turns, &one->st, &e) ||
      !lp_run_within(&mem, c, two->buf, two->elements, g.arg, 0, turns, &two->st, &e)) {
    die("a kernel of the generator", e.text);
  }
  if (!lg_same(one, two, why, sizeof why)) die("canonical form", why);
  lg_data_free(one);
  lg_data_free(two);
}

int main(int argc, char **argv) {
  int seconds = argc > 1 ? atoi(argv[1]) : 5;
  state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 2654435761u + 88172645463325252u;
  mem_init(&mem, limited, NULL);
  struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &act, NULL);
  time_t end = time(NULL) + seconds;
  long fed = 0;
  while (time(NULL) < end) {
    arena_init(&arena, &mem);
    if (mem_protect(&mem, seed_text, NULL) != MEM_OK) die("the generator threw", "");
    arena_free(&arena);
    for (int i = 0; i < 200; i++) {
      char *keep = strdup(text);
      size_t n = length;
      for (unsigned m = rnd(4) ? 1 : 3; m > 0; m--) mutate();
      arena_init(&arena, &mem);
      long before = taken;
      int code = mem_protect(&mem, feed, NULL);
      if (code != MEM_OK && code != MEM_ERR_NOMEM) die("threw", "");
      arena_free(&arena);
      fed++;
      if (taken > before && rnd(3)) { /* goes on from what is still a kernel */
        free(keep);
      } else {
        free(text);
        text = keep;
        length = n;
      }
      if (mem.live != mem.pool_cap * sizeof *mem.pool) die("leaks", "");
    }
  }
  printf("%ld texts, %ld were kernels, %ld ran to their end\n", fed, taken, ran);
  free(text);
  mem_close(&mem);
  return 0;
}
