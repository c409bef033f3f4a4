/* Threads of small and large C stacks: whatever is nested, a call ends with a value or an error,
 * and the session goes on. The programs go without end, or as deep as their text can say. */
#define _GNU_SOURCE
#include "ckl.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "runtime/stack.h"
#include "tests/tap.h"

/* before open open .. inner .. close close after */
typedef struct Shape {
  const char *what, *before, *open, *inner, *close, *after;
  int times;
} Shape;

static const Shape shapes[] = {
    {"a proc", "proc f(n) = 1 + ", "", "f(n + 1)", "", "\nf(0)", 0},
    {"a proc in operators", "proc f(n) = ", "1 + (", "f(n + 1)", ")", "\nf(0)", 60},
    {"a proc in calls", "proc f(n) = ", "sin(", "f(n + 1)", ")", "\nf(0.0)", 200},
    {"a proc in blocks", "proc f(n) = ", "{ let a = 1\n", "f(n + 1)", "}", "\nf(0)", 50},
    {"a proc in ifs", "proc f(n) = ", "if n >= 0 { ", "f(n + 1)", "} else { 0 }", "\nf(0)", 50},
    {"a proc in loops", "proc f(n) { ", "for i in 0..1 { while true { ", "f(n + 1)\nreturn 1",
     "} }", " }\nf(0)", 20},
    {"a proc in lists", "proc f(n) = ", "list(", "f(n + 1)", ")", "\nf(0)", 100},
    {"a proc in tuples", "proc f(n) = ", "(a = (", "f(n + 1)", ", 2))", "\nf(0)", 50},
    {"a proc in comprehensions", "proc f(n) = ", "[", "f(n + 1)", " for i in 0..1]", "\nf(0)", 5},
    {"a proc in a text", "proc f(n) = ", "", "\"{f(n + 1)}\"", "", "\nf(0)", 0},
    {"a proc in modes", "proc f(n) = ", "wrap <no_grad> { wrap <train> { ", "f(n + 1)", "} }",
     "\nf(0)", 10},
    {"a proc in an index", "let x = iota(3)\nproc f(n) = ", "x[", "f(n + 1)", "]", "\nf(0)", 20},
    {"a proc in assertions", "proc f(n) { ", "", "assert f(n + 1) == 1", "", " }\nf(0)", 0},
    {"a proc by default", "proc f(n, k = ", "", "f(n + 1)", "", ") = k\nf(0)", 0},
    {"a proc in a condition", "proc f(n) { ", "while ", "f(n + 1)", " { }", " }\nf(0)", 1},
    {"procs by one another", "proc a(n) = b(n + 1)\nproc b(n) = { let c = a\nc(n) }\n", "", "a(0)",
     "", "", 0},
    {"a proc given to itself", "proc f(g, n) = g(g, ", "(", "n + 1", ")", ")\nf(f, 0)", 40},
    {"a proc by map", "proc f(x) = ", "map(f, ", "(x,)", ")", "\nf(1)", 1},
    {"a proc by fold", "proc f(a, x) = ", "", "fold(f, a, (x, x))", "", "\nf(1, 2)", 0},
    {"errors asked for", "proc f(n) = error_of(fn() ", "", "{ f(n + 1) }", "", ")\nf(0)", 0},
    {"a fn", "fn f(n: int) -> int = ", "", "f(n + 1)", "", "\nf(0)", 0},
    {"a fn in calls", "fn f(x: f32) -> f32 = ", "sin(", "f(x + 1)", ")", "\nf(1)", 200},
    {"a fn of tensors", "fn f(x) = ", "tanh(x * ", "f(x + 1)", ")", "\nf(ones([3]))", 30},
    {"a fn in blocks", "fn f(x: f32[3]) -> f32[3] = ", "checkpoint { ", "f(x + 1)", " }",
     "\nf(ones([3]))", 5},
    {"a fn in comprehensions", "fn f(x: f32[3]) = ", "[", "sum(f(x + i))", " for i in 0..2]",
     "\nf(ones([3]))", 2},
    {"a fn in its gradient", "fn f(x: f32[3]) -> f32[3] = grad(", "sum(", "f(x * x)", ")",
     ", x)\nf(ones([3]))", 1},
    {"a fn deferred", "fn f(x: f32[3]) -> f32[3] = ", "", "defer(f)(x)", "", "\nf(ones([3]))", 0},
    {"a fn with a backward", "fn f(x: f32[3]) -> f32[3] = x backward(g) = ", "", "f(g)", "",
     "\nlet t = track(ones([3]))\ngrad(sum(f(t)), t)", 0},
    {"hooks that take gradients",
     "let t = track(ones([2]))\nproc h(g) = wrap <grad> {\nlet y = t * t\non_grad(y, h)\n"
     "grad(sum(y), t)\ng }\n",
     "", "h(t)", "", "\n", 0},
    {"models of models", "model M(n) { let m = ", "", "M(n + 1)", "", " }\nM(0)", 0},
    {"methods of models", "model M(n) { proc go(x) = ", "1 + ", "self.go(x)", "", " }\nM(0).go(1)",
     20},
    {"blocks of script", "fn f(x) = ", "checkpoint { ", "f(x * 2)", " }",
     "\nlet x = track(ones([2]))\nlet y = checkpoint { f(x) }", 3},
    {"parentheses", "print(", "(", "1", ")", ")", 240},
    {"lists in the text", "let x = ", "list(", "1", ")", "\nprint(x)", 240},
    {"tuples in the text", "let x = ", "(", "1", ",)", "\nx == x", 240},
    {"blocks in the text", "let x = ", "{ let y = 1\n", "1", "}", "\nx", 240},
    {"function literals in the text", "let x = ", "fn(a) = (", "1", ")", "\nx", 240},
    {"a long sum", "let x = 1", "", "", " + 1", "\nx", 900},
    {"a long chain of calls", "proc g(x) = x\nlet x = 1", "", "", ".g()", "\nx", 900},
    {"a chain of minus", "let x = ", "-", "1", "", "\nx", 900},
    {"types in types", "proc f(x: ", "(", "f32", ",)", ") = x\nf", 240},
    {"patterns in patterns", "proc f(n) { let ", "(", "a", ",)", " = n }\nprint(f)", 240},
    {"ifs after else", "let x = 1\n", "if x == 2 { 1 } else ", "{ 2 }", "", "\n", 240},
    {"a list in a list by a loop", "var x = list()\nfor i in 0..30000 { x = list(x) }\n", "",
     "x == list(x)", "", "\n", 0},
    {"a tuple in a tuple, to a fn", "fn f(x) = 1\nvar x = ()\nfor i in 0..30000 { x = (x, 1) }\n",
     "", "f(x)", "", "\n", 0},
    {"a list of one list twice", "var x = list(1.0)\nfor i in 0..60 { x = list(x, x) }\n", "",
     "map(fn(a) = a, x)", "", "\n", 0},
    {"a model in a model by a loop",
     "model M(m) { let a = m }\nvar x = M(0)\nfor i in 0..5000 { x = M(x) }\n", "",
     "same(copy(x), x)", "", "\n", 0},
    {"sequences on sequences",
     "var x = zip(list(1), list(2))\nfor i in 0..5000 { x = zip(x, x) }\n", "",
     "for a in x { print(len(a)) }", "", "\n", 0},
    {"functions that hold functions", "proc id(f) = fn() { f }\nvar x = id(1)\n", "",
     "for i in 0..5000 { x = id(x) }\nfn q(f) = 1\nq(x)", "", "\n", 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static char *text_of(const Shape *p) {
  size_t n = strlen(p->before) + strlen(p->inner) + strlen(p->after) +
             (size_t)p->times * (strlen(p->open) + strlen(p->close)) + 1;
  char *t = malloc(n), *at = t;
  if (!t) abort();
  at = stpcpy(at, p->before);
  for (int i = 0; i < p->times; i++) at = stpcpy(at, p->open);
  at = stpcpy(at, p->inner);
  for (int i = 0; i < p->times; i++) at = stpcpy(at, p->close);
  stpcpy(at, p->after);
  return t;
}

/* An error of being nested too deeply, in one of its ways, with words for it. */
static bool is_told(ckl_session *s, ckl_status st) {
  static const char *const codes[] = {"mem-3", "call-7", "syntax-8", "not-yet-1", "mem-1"};
  size_t n = ckl_diag_count(s);
  if (st == CKL_OK) return true;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
      if (!strcmp(ckl_diag_code(s, i), codes[k])) return ckl_diag_text(s, i, 0)[0] != 0;
  for (size_t i = 0; i < n; i++) printf("# %s", ckl_diag_text(s, i, 0));
  return false;
}

static bool is_well(ckl_session *s) {
  ckl_value *v = NULL;
  ckl_status st = ckl_eval(s, "1 + 1", "well", &v);
  bool two = st == CKL_OK && ckl_to_int(v) == 2;
  ckl_release(v);
  return two;
}

typedef struct Thread {
  ckl_session *s; /* NULL: one of its own */
  size_t size, most;
  bool small; /* too small for any call */
  int told, well;
  void (*job)(struct Thread *t);
} Thread;

static void *thread_main(void *ud) {
  Thread *t = ud;
  t->job(t);
  return NULL;
}

/* On a stack of just that size, above a page that nobody may touch: the C library would hand out a
 * larger one that it has kept. */
static void in_thread(Thread *t, void (*job)(Thread *t)) {
  enum { GUARD = 64 << 10 };
  pthread_attr_t a;
  pthread_t id;
  t->job = job;
  t->small = t->size < STACK_RESERVE + (32 << 10) * CKL_STACK_FACTOR;
  char *room = mmap(NULL, GUARD + t->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  t->told = -1;
  if (room == MAP_FAILED) return;
  t->told = 0;
  if (mprotect(room, GUARD, PROT_NONE) || pthread_attr_init(&a) ||
      pthread_attr_setstack(&a, room + GUARD, t->size) || pthread_create(&id, &a, thread_main, t) ||
      pthread_join(id, NULL))
    t->told = -1;
  pthread_attr_destroy(&a);
  munmap(room, GUARD + t->size);
}

static ckl_session *session(size_t most) {
  ckl_config c = {.size = sizeof c,
                  .stack = most,
                  .codegen = "",
                  .kernels = "",
                  .cache = "",
                  .memory_limit = 1 << 28};
  return ckl_open(&c);
}

static void all_shapes(Thread *t) {
  ckl_session *s = t->s ? t->s : session(t->most);
  if (!s) {
    t->told = t->well = t->small ? SHAPES : -1;
    return;
  }
  for (int i = 0; i < SHAPES; i++) {
    char *text = text_of(&shapes[i]);
    if (getenv("SHAPES")) printf("# %zu %s\n", t->size, shapes[i].what), fflush(stdout);
    bool told = is_told(s, ckl_eval(s, text, "shape", NULL));
    ckl_format(s, "shape", text, strlen(text));
    bool well = is_well(s) || t->small;
    if (!told || !well) printf("# %s at %zu: %d %d\n", shapes[i].what, t->size, told, well);
    t->told += told;
    t->well += well;
    free(text);
  }
  if (!t->s) ckl_close(s);
}

static void t_threads(void) {
  static const size_t sizes[] = {64 << 10, 128 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    Thread t = {.size = sizes[i]};
    in_thread(&t, all_shapes);
    check_int(t.told, ==, SHAPES);
    check_int(t.well, ==, SHAPES);
  }
}

/* Opened here, where there is much, used there, where there is little, closed here. */
static void t_elsewhere(void) {
  ckl_session *s = session(0);
  need(s);
  for (int k = 0; k < 2; k++) {
    Thread t = {.s = s, .size = k ? 1 << 20 : 128 << 10};
    in_thread(&t, all_shapes);
    check_int(t.told, ==, SHAPES);
    check_int(t.well, ==, SHAPES);
    check(is_well(s));
  }
  ckl_close(s);
}

static const char endless[] = "proc f(n) = 1 + f(n + 1)\nf(0)";

static int reached(ckl_session *s, const char *text) {
  ckl_status st = ckl_eval(s, text, "deep", NULL);
  int n = 1;
  const char *told = st == CKL_ERUN ? strstr(ckl_diag_text(s, 0, 0), " times)") : NULL;
  while (told && told[-1] >= '0' && told[-1] <= '9') told--;
  if (told) n = atoi(told);
  return n;
}

/* The bound of a session holds where the stack has more. */
static void t_bounded(void) {
  ckl_session *little = session(STACK_RESERVE + (64 << 10)), *none = session(1);
  check(!none);
  need(little);
  check(is_well(little));
  int n = reached(little, endless);
  check_str(ckl_diag_code(little, 0), "mem-3");
  check_int(n, >, 10);
  check_int(n, <, 500);
  ckl_close(little);
}

/* A function of the host calls sessions, from as deep as the program goes. */
typedef struct Host {
  ckl_session *other, *own;
  int calls, well;
} Host;

static void host_write(void *ud, int stream, const char *text, size_t n) {
  Host *h = ud;
  (void)stream;
  (void)text;
  (void)n;
  volatile char taken[8 << 10];
  for (size_t i = 0; i < sizeof taken; i += 64) taken[i] = 1;
  h->calls++;
  ckl_release(ckl_int(h->own, 1));
  ckl_status st = ckl_eval(h->other, "1 + 1", "inner", NULL);
  h->well += is_told(h->other, st);
}

static void from_host(Thread *t) {
  Host h = {.other = session(0)};
  ckl_config c = {.size = sizeof c,
                  .write = host_write,
                  .write_ud = &h,
                  .codegen = "",
                  .kernels = "",
                  .cache = ""};
  h.own = ckl_open(&c);
  if (h.own && h.other) {
    t->told = is_told(h.own, ckl_eval(h.own, "proc f(n) { print(n)\nf(n + 1) }\nf(0)", "f", NULL));
    t->well = h.calls > 3 && h.well == h.calls && is_well(h.own) && is_well(h.other);
  } else {
    t->told = t->well = t->small;
  }
  ckl_close(h.own);
  ckl_close(h.other);
}

static void t_host(void) {
  Thread t = {.size = CKL_STACK_FACTOR * (256 << 10)};
  in_thread(&t, from_host);
  check(t.told);
  check(t.well);
}

/* On the stack of a signal handler, and on one that the program made itself. */
static ckl_session *handled;
static int handled_depth;

static void on_signal(int n) {
  (void)n;
  handled_depth = reached(handled, endless);
}

/* How deep a program goes in a handler whose stack has so many bytes. */
static int depth_in_handler(size_t size) {
  stack_t alt = {.ss_sp = malloc(size), .ss_size = size}, before;
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  if (!alt.ss_sp) return 0;
  sigaltstack(&alt, &before);
  sigaction(SIGUSR1, &a, NULL);
  raise(SIGUSR1);
  signal(SIGUSR1, SIG_DFL);
  sigaltstack(&before, NULL);
  free(alt.ss_sp);
  return handled_depth;
}

static void t_signal(void) {
  enum { SIZE = CKL_STACK_FACTOR * (256 << 10) };
  handled = session(0);
  need(handled);
  int depth = depth_in_handler(SIZE);
  check_int(depth, >, 10);
  check_int(depth, <, 900); /* the thread's own stack has room for all that there may be */
  check_int(depth_in_handler(2 * SIZE), >, depth + depth / 2);
  check(is_well(handled));
  ckl_close(handled);
}

static ucontext_t outside, inside;

static void coroutine(void) {
  handled_depth = reached(handled, endless);
}

static void t_coroutine(void) {
  enum { SIZE = CKL_STACK_FACTOR * (192 << 10) };
  char *room = malloc(SIZE);
  handled = session(SIZE - (8 << 10));
  need(handled && room);
  need(!getcontext(&inside));
  inside.uc_stack.ss_sp = room;
  inside.uc_stack.ss_size = SIZE;
  inside.uc_link = &outside;
  makecontext(&inside, coroutine, 0);
  swapcontext(&outside, &inside);
  check_int(handled_depth, >, 10);
  check_int(handled_depth, <, 500);
  check(is_well(handled));
  ckl_close(handled);
  free(room);
}

/* A recursion of 1,000 procs, as deep as the language allows, fits where threads usually live. */
static void thousand(Thread *t) {
  ckl_session *s = session(0);
  ckl_value *v = NULL;
  ckl_status st =
      ckl_eval(s, "proc f(n: int) = if n == 0 { 0 } else { 1 + f(n - 1) }\nf(990)", "thousand", &v);
  t->told = st == CKL_OK && ckl_to_int(v) == 990;
  ckl_release(v);
  if (!t->told) t->told = -reached(s, endless);
  ckl_close(s);
}

static void t_thousand(void) {
  Thread t = {.size = CKL_STACK_FACTOR * (2 << 20)};
  in_thread(&t, thousand);
  check_int(t.told, ==, 1);
}

static void depths(Thread *t) {
  ckl_session *s = session(0);
  t->told = s ? reached(s, "proc f(n) { let m = n + 1\nif m > 0 { f(m) } else { m } }\nf(0)") : 0;
  ckl_close(s);
}

int main(void) {
  TEST(t_threads(), "what is nested ends with a value or an error, on every stack");
  TEST(t_elsewhere(), "a session is used by threads of other stacks than it was opened on");
  TEST(t_bounded(), "the stack of a session is what its configuration says");
  TEST(t_host(), "functions of the host call sessions from as deep as a program goes");
  TEST(t_signal(), "the stack of a signal handler is found");
  TEST(t_coroutine(), "that of a coroutine is what the configuration says");
  TEST(t_thousand(), "a proc recurses 990 deep in 2 MiB");
  static const size_t sizes[] = {128 << 10, 256 << 10, 1 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    Thread t = {.size = sizes[i]};
    in_thread(&t, depths);
    tap_note("in %zu KiB a proc recurses %d deep", sizes[i] >> 10, t.told);
  }
  return tap_done();
}
