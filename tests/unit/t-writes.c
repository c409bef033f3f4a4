/* t-writes: a call that fails has written nothing (rule 54), wherever it fails.
 *
 * Params and moments are written to the memory of what they replace when nothing can fail any more.
 * Here each allocation of a call of a training step fails, or interrupts, in turn, then the limit
 * of memory lies at many places, and a thread interrupts at any time: what the session has is as
 * before the call, or all of it is as after. What is held stays.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "include/ckl.h"
#include "tests/tap.h"

static const char program[] = "use nn (Linear)\n"
                              "model Net(d: int) {\n"
                              "  let a = Linear(d, d)\n"
                              "  let b = Linear(d, d)\n"
                              "  buffer seen: f32[d] = zeros([d])\n"
                              "  fn forward[N](x: f32[N, d]) -> f32[N, d] {\n"
                              "    seen = mean(x, axis = 0) - 1.01 * seen\n"
                              "    b(dropout(tanh(a(x)), 0.5))\n"
                              "  }\n"
                              "}\n"
                              "fn step[N, D](net: Net, opt: model, x: f32[N, D]) -> f32 {\n"
                              "  let loss = mean(net(x) ** 2)\n"
                              "  opt.step(grad(loss, net))\n"
                              "  stop(loss)\n"
                              "}\n"
                              "fn taped[N, D](net: Net, opt: model, x: f32[N, D]) -> f32 {\n"
                              "  let loss = mean(net(x) ** 2)\n"
                              "  opt.step(grad(loss, net))\n"
                              "  loss\n"
                              "}\n"
                              "fn told[N, D](net: Net, opt: model, x: f32[N, D]) -> f32 {\n"
                              "  let loss = checkpoint { mean(net(x) ** 2) }\n"
                              "  print(loss)\n"
                              "  opt.step(grad(loss, net))\n"
                              "  assert sum(net.a.w ** 2) < 1e9\n"
                              "  stop(loss)\n"
                              "}\n"
                              "fn hooked[N, D](net: Net, opt: model, x: f32[N, D]) -> f32 {\n"
                              "  let y = net(x)\n"
                              "  let h = on_grad(y, fn(g) = g * 1.0)\n"
                              "  let loss = mean(y ** 2)\n"
                              "  opt.step(grad(loss, net))\n"
                              "  stop(loss)\n"
                              "}\n"
                              "proc now() = stop(ravel(map(fn(t) = 2 * f32(t), list(params(net), "
                              "buffers(net), buffers(opt)))))\n"
                              "proc held() = stop(ravel(map(fn(t) = 2 * f32(t), h)))\n"
                              "proc nothing() = list(ones([1]))\n"
                              "proc copies() = list(copy(params(net)), copy(net.seen))\n"
                              "proc tape() = list(mean(net.b(tanh(net.a(x))) ** 2))\n"
                              "proc listed() = list(opt.m, opt.v.a.w, stop(net.a.w))\n"
                              "proc start(d, n) {\n"
                              "  seed(5)\n"
                              "  let net = Net(d)\n"
                              "  let x = normal([n, d], key = key(1))\n"
                              "  (net, adam(net, lr = 0.05), x, grad(mean(net(x) ** 2), net))\n"
                              "}\n";

/* ---- the session, whose allocations count */
static ckl_session *session;
static int64_t calls, fail_at, stop_at;
/* Of calls since the session was opened: how many failed, did not, were out of memory when all was
 * written: what is evaluated behind the call may still fail. */
static int64_t failed, done, late;
static int64_t took;     /* allocations of the last call */
static uint32_t written; /* leaves that a call changes; 0: not known yet */
static int width;        /* of the net */
static bool limited;     /* the session has a limit of memory */

static void *alloc(void *ud, void *p, size_t old, size_t n) {
  (void)ud, (void)old;
  if (!n) {
    free(p);
    return NULL;
  }
  calls++;
  if (calls == stop_at) ckl_interrupt(session);
  return calls == fail_at ? NULL : realloc(p, n);
}

static bool does(const char *text, ckl_value **out) {
  bool ok = ckl_eval(session, text, "test", out) == CKL_OK;
  const char *why = ckl_diag_count(session) ? ckl_diag_text(session, 0, 0) : "";
  return check_msg(ok, "%s: %s", text, why);
}

static void say(const char *text) {
  ckl_value *v = NULL;
  does(text, &v);
  ckl_release(v);
}

static void open_session(const char *cpu, int d, int n) {
  ckl_config c = {.size = sizeof c, .alloc = alloc, .cpu = cpu, .threads = 2};
  char text[80];
  c.codegen = getenv("CKL_CODEGEN");
  fail_at = stop_at = 0;
  session = ckl_open(&c);
  need(session != NULL);
  failed = done = late = 0;
  limited = false;
  written = 0;
  width = d;
  say(program);
  snprintf(text, sizeof text, "var (net, opt, x, g) = start(%d, %d)", d, n);
  say(text);
}

/* The bits of a tensor, and of the random counters; n = 0 if there is no memory to see them. */
typedef struct Seen {
  char *bytes;
  size_t n, data;
} Seen;

static Seen seen(const char *what, bool counters) {
  Seen s = {0};
  ckl_value *v = NULL, *r = NULL;
  if (limited && ckl_eval(session, what, "test", &v) != CKL_OK) return s;
  if ((!v && !does(what, &v)) || !does("random_state()", &r)) exit(tap_done());
  size_t more = 0, data = s.data = (size_t)ckl_tensor_dim(v, 0) * sizeof(float);
  const char *text = ckl_to_str(r, &more);
  s.n = data + (counters ? more : 0);
  s.bytes = malloc(s.n);
  memcpy(s.bytes, ckl_tensor_data(v), data);
  if (counters) memcpy(s.bytes + data, text, more);
  ckl_release(v);
  ckl_release(r);
  return s;
}

static void seen_free(Seen *s) {
  free(s->bytes);
  *s = (Seen){0};
}

static bool same(Seen a, Seen b) {
  return a.n == b.n && (!a.n || !memcmp(a.bytes, b.bytes, a.n));
}

/* Which leaves differ, a bit for each: the params, `seen`, the rate, the count, and the moments. */
static uint32_t changed(Seen a, Seen b) {
  const int w = width * width, of_net[] = {w, width, w, width};
  int size[15], n = 0;
  uint32_t bits = 0;
  for (int k = 0; k < 4; k++) size[n++] = of_net[k];
  size[n++] = width;
  size[n++] = 1;
  size[n++] = 1;
  for (int k = 0; k < 8; k++) size[n++] = of_net[k % 4];
  size_t at = 0;
  for (int k = 0; k < n; k++) {
    size_t bytes = (size_t)size[k] * sizeof(float);
    if (at + bytes <= a.data && memcmp(a.bytes + at, b.bytes + at, bytes)) bits |= 1u << k;
    at += bytes;
  }
  check_size(at, ==, a.data);
  return bits;
}

/* ---- one step, which something disturbs */
/* Whether `call` writes all and succeeds, or nothing, and what is held stays. */
static bool all_or_nothing(const char *call) {
  Seen before = seen("now()", true), kept = seen("held()", false);
  ckl_value *v = NULL;
  calls = 0;
  ckl_status st = ckl_eval(session, call, "test", &v);
  took = calls;
  fail_at = stop_at = 0;
  ckl_release(v);
  Seen after = seen("now()", true), held = seen("held()", false);
  bool there = before.n && kept.n && after.n && held.n; /* else there is a limit */
  bool none = same(before, after), stays = same(kept, held);
  uint32_t what = there ? changed(before, after) : 0;
  if (!written && st == CKL_OK) written = what;
  bool all = !none && what == written;
  failed += there && st != CKL_OK;
  done += there && st == CKL_OK;
  late += st == CKL_ENOMEM && all;
  seen_free(&before);
  seen_free(&kept);
  seen_free(&after);
  seen_free(&held);
  if (!there) return true;
  return check_msg(all || (none && st != CKL_OK), "status %d, and leaves %x of %x are written",
                   (int)st, (unsigned)what, (unsigned)written) &&
         check_msg(stays, "what is held changed");
}

static const char *const holders[] = {"nothing()", "copies()", "tape()", "listed()"};
enum { HOLDERS = sizeof holders / sizeof *holders };

static void hold(int i) {
  char text[80];
  snprintf(text, sizeof text, "h = %s\ng = map(fn(t) = -1.01 * t, g)", holders[i]);
  say(text); /* what a step writes goes on changing */
}

/* Each allocation of `call` fails, then interrupts. */
static void t_each(const char *cpu, const char *call) {
  open_session(cpu, 6, 5);
  say("var h = nothing()");
  for (int i = 0; i < HOLDERS; i++) {
    for (int k = 0; k < 3; k++) {
      hold(i);
      all_or_nothing(call); /* the last time nothing is new */
    }
    int64_t most = took;
    for (int64_t n = 1; n <= 2 * most + 2; n++) {
      hold(i);
      *(n <= most ? &fail_at : &stop_at) = n <= most ? n : n - most;
      if (!check_msg(all_or_nothing(call), "%s, %s, %s %d of %d", call, holders[i],
                     n <= most ? "allocation" : "interrupt", (int)(n <= most ? n : n - most),
                     (int)most))
        break;
    }
  }
  tap_note("%d calls failed, %d did not, %d failed later", (int)failed, (int)done, (int)late);
  check_int(failed, >, 100);
  check_int(late, <=, 8 * HOLDERS);
  ckl_close(session);
}

/* The limit of memory lies at many places: the step fits, or is refused, or fails. */
static void t_limits(const char *cpu) {
  int refused = 0, fits = 0;
  for (int64_t limit = 4 << 20; limit < 12 << 20 && fits < 9; limit += 64 << 10) {
    ckl_config c = {.size = sizeof c, .cpu = cpu, .threads = 2, .memory_limit = limit};
    ckl_value *v = NULL;
    c.codegen = getenv("CKL_CODEGEN");
    session = ckl_open(&c);
    failed = done = 0;
    written = 0;
    width = 96;
    limited = true;
    bool starts = session && ckl_eval(session, program, "test", NULL) == CKL_OK &&
                  ckl_eval(session, "var (net, opt, x, g) = start(96, 200)\nvar h = nothing()",
                           "test", &v) == CKL_OK;
    ckl_release(v);
    for (int k = 0; starts && k < 4; k++)
      if (!all_or_nothing("step(net, opt, x)")) limit = INT64_MAX / 2;
    refused += failed > 0;
    fits += done > 3;
    ckl_close(session);
  }
  tap_note("refused under %d limits", refused);
  check(refused > 3 && fits > 3);
}

/* ---- interrupts at any time */
static void *ask(void *after_us) {
  const struct timespec pause = {0, (long)(intptr_t)after_us * 1000};
  nanosleep(&pause, NULL);
  ckl_interrupt(session);
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void t_any_time(const char *cpu, int d, int n, int rounds) {
  static const char call[] = "step(net, opt, x)";
  open_session(cpu, d, n);
  say("var h = nothing()");
  for (int k = 0; k < 3; k++) all_or_nothing(call);
  double start = now();
  say(call);
  double whole = now() - start;
  failed = done = 0;
  int nothing = 0;
  /* On a loaded machine an interrupt in time takes more tries. */
  for (int i = 0; i < rounds || (!nothing && i < 10 * rounds); i++) {
    pthread_t thread;
    Seen before = seen("now()", true);
    intptr_t pause = (intptr_t)(1e6 * whole * (i % 50) / 40);
    check(!pthread_create(&thread, NULL, ask, (void *)pause));
    ckl_value *v = NULL;
    ckl_status st = ckl_eval(session, call, "test", &v);
    ckl_release(v);
    pthread_join(thread, NULL);
    ckl_eval(session, "1", "test", NULL); /* takes one that came too late */
    failed += st != CKL_OK;
    done += st == CKL_OK;
    Seen after = seen("now()", true);
    uint32_t what = changed(before, after);
    bool none = same(before, after), all = what == written;
    nothing += none;
    seen_free(&before);
    seen_free(&after);
    if (!check_msg(all || (none && st != CKL_OK), "round %d, status %d, leaves %x of %x", i,
                   (int)st, (unsigned)what, (unsigned)written))
      break;
  }
  tap_note("%d calls of %.1f ms interrupted, %d before anything was written, %d not", (int)failed,
           1e3 * whole, nothing, (int)done);
  check_int(nothing, >, 0);
  ckl_close(session);
}

int main(void) {
  const char *codegen = getenv("CKL_CODEGEN");
  bool native = codegen && *codegen;
  static const char *const call[] = {"step(net, opt, x)", "taped(net, opt, x)", "told(net, opt, x)",
                                     "hooked(net, opt, x)", "opt.step(g)"};
  const char *const cpu[] = {"reference", "loops", "native"};
  for (int k = 0; k < (native ? 3 : 2); k++)
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
      char title[100];
      if (k == 0 && i % 4) continue; /* the evaluator is slow, and writes as it always did */
      snprintf(title, sizeof title, "whatever fails in %s, all is written or nothing: %s", call[i],
               cpu[k]);
      TEST(t_each(cpu[k], call[i]), title);
    }
  TEST(t_limits(native ? "native" : "loops"), "under each limit all is written, or nothing");
  if (native)
    TEST(t_any_time("native", 512, 4, 300), "an interrupt at any time stops all writes, or none");
  TEST(t_any_time("loops", 96, 4, 100), "the same where kernels are walked");
  return tap_done();
}
