/* t-growth [FILE [name=value...]]: what a call takes of the machine's memory, seen from outside.
 *
 * The most memory that the process ever held (VmHWM, which can be set back) grows over a call by no
 * more than the tensors of that call, which are those of its plan, and 4 MiB. The function runs
 * with few rows first, so that its code is there; what is freed goes back to the system at once.
 * A training step writes params and moments where they are.
 * FILE: a program like bench/gpt.ckl, whose first step is measured, with the making of its code.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "include/ckl.h"
#include "tests/tap.h"

#ifdef __SANITIZE_ADDRESS__
enum { SLACK = 64 << 20 }; /* it has memory of its own beside all that there is */
#else
enum { SLACK = 4 << 20 };
#endif
enum { LARGE = 1 << 16 };

static const char program[] =
    "fn step[B](x: f32[B, 256], w: f32[256, 256]) -> (f32[256, 256], f32[B, 256]) {\n"
    "  let h = checkpoint { tanh(tanh(x @ w) @ w) * 0.5 } @ w\n"
    "  (grad(sum(h ** 2), w), h)\n"
    "}\n"
    "let w = normal([256, 256], key = key(1)) * 0.1\n"
    "let big = normal([8192, 256], key = key(2))\n"
    "let few = normal([16, 256], key = key(2))\n";

static const char training[] = "model Net(d: int) {\n"
                               "  param a: f32[d, d] = normal([d, d], key = key(3))\n"
                               "  param b: f32[d, d] = normal([d, d], key = key(4))\n"
                               "}\n"
                               "fn train[B, D](net: Net, opt: model, x: f32[B, D]) -> f32 {\n"
                               "  let loss = mean((tanh(x @ net.a) @ net.b) ** 2)\n"
                               "  opt.step(grad(loss, net))\n"
                               "  stop(loss)\n"
                               "}\n"
                               "let net = Net(1024)\n"
                               "let opt = adam(net)\n"
                               "let some = ones([64, 1024])\n";

/* Large blocks come from the system and go back to it. */
static void *alloc(void *ud, void *p, size_t old, size_t n) {
  (void)ud;
  if (old < LARGE && n < LARGE) {
    if (n) return realloc(p, n);
    free(p);
    return NULL;
  }
  void *q = NULL;
  if (n) {
    q = n < LARGE ? malloc(n)
                  : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!q || q == MAP_FAILED) return NULL;
    if (p) memcpy(q, p, old < n ? old : n);
  }
  if (p && old < LARGE) free(p);
  if (p && old >= LARGE) munmap(p, old);
  return q;
}

static void say(void *ud, int stream, const char *text, size_t n) {
  (void)ud;
  if (stream == CKL_STDERR) fwrite(text, 1, n, stderr);
}

/* A line of /proc/self/status, in bytes. */
static int64_t status_of(const char *name) {
  FILE *f = fopen("/proc/self/status", "r");
  char line[200];
  long long kib = -1;
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name))) kib = atoll(line + strlen(name) + 1);
  if (f) fclose(f);
  return kib < 0 ? -1 : kib * 1024;
}

static bool forget_peak(void) {
  FILE *f = fopen("/proc/self/clear_refs", "w");
  bool ok = f && fputs("5", f) >= 0;
  return (!f || !fclose(f)) && ok;
}

static int64_t figure(const ckl_value *plan, const char *name) {
  for (size_t i = 0; i < ckl_length(plan); i++) {
    if (strcmp(ckl_field_name(plan, i), name)) continue;
    ckl_value *v = ckl_item(plan, i);
    int64_t n = ckl_to_int(v);
    ckl_release(v);
    return n;
  }
  return -1;
}

static bool does(ckl_session *s, const char *text, ckl_value **out) {
  bool ok = ckl_eval(s, text, "test", out) == CKL_OK;
  return check_msg(ok, "%s", ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : text);
}

static void t_growth(ckl_session *s, const char *few, const char *all) {
  ckl_value *plan, *v;
  char text[200];
  for (int i = 0; few && i < 2; i++) {
    if (!does(s, few, &v)) return;
    ckl_release(v);
  }
  snprintf(text, sizeof text, "plan(%.*s, %s", (int)strcspn(all, "("), all, strchr(all, '(') + 1);
  if (!does(s, text, &plan)) return;
  int64_t peak = figure(plan, "peak");
  ckl_release(plan);
  if (!does(s, "0", &v)) return; /* what planning took is given back */
  ckl_release(v);
  if (!forget_peak()) {
    SKIP("no way to forget VmHWM");
    return;
  }
  int64_t before = status_of("VmRSS:"), live = ckl_counter(s, "data.live");
  if (!does(s, all, &v)) return;
  int64_t growth = status_of("VmHWM:") - before;
  ckl_release(v);
  int64_t account = ckl_counter(s, "data.peak") - live; /* without what was kept for use again */
  tap_note("VmHWM grows by %.2f MiB, tensors by %.2f to %.2f, planned %.2f",
           (double)growth / 1048576, (double)account / 1048576,
           (double)ckl_counter(s, "data.peak") / 1048576, (double)peak / 1048576);
  check_int(ckl_counter(s, "data.peak"), <=, peak + (1 << 20) + (few ? 1 << 23 : 0));
  check_int(growth, <=, account + SLACK);
  check_int(growth, >=, account - 4 * SLACK);
}

/* Params and moments take 24 MiB; beside them there is room for a gradient and what one update
 * makes. */
static void t_in_place(ckl_session *s) {
  ckl_value *plan, *v;
  ckl_eval(s, training, "test", NULL);
  for (int i = 0; i < 2; i++) {
    if (!does(s, "train(net, opt, some)", &v)) return;
    ckl_release(v);
  }
  if (!does(s, "plan(train, net, opt, some)", &plan)) return;
  int64_t peak = figure(plan, "peak");
  check_int(figure(plan, "outputs"), ==, 12);
  ckl_release(plan);
  int64_t live = ckl_counter(s, "data.live");
  if (!does(s, "train(net, opt, some)", &v)) return;
  ckl_release(v);
  int64_t more = ckl_counter(s, "data.peak") - live;
  tap_note("planned %.2f MiB, beside what was alive %.2f", (double)peak / 1048576,
           (double)more / 1048576);
  check_int(more, <, 24 << 20);
}

int main(int argc, char **argv) {
  const char *codegen = getenv("CKL_CODEGEN");
  ckl_config c = {.size = sizeof c, .alloc = alloc, .write = say, .cpu = "native"};
  c.codegen = codegen;
  c.kernels = getenv("CKL_KERNELS");
  c.cache = getenv("CKL_CACHE");
  c.args = (const char *const *)argv + 2;
  c.arg_count = argc > 2 ? (size_t)argc - 2 : 0;
  ckl_session *s = ckl_open(&c);
  if (!s) return 1;
  if (argc > 1) {
    ckl_run_file(s, argv[1]); /* its last line reports on no steps */
    ckl_eval(s, "let (gx, gy) = tokens(0)", "test", NULL);
    TEST(t_growth(s, NULL, "step(net, opt, gx, gy)"), "a step takes what its plan says");
  } else {
    ckl_eval(s, program, "test", NULL);
    TEST(t_growth(s, "step(few, w)", "step(big, w)"), "a call takes what its plan says");
    TEST(t_in_place(s), "a training step makes no second set of params and moments");
  }
  ckl_close(s);
  return tap_done();
}
