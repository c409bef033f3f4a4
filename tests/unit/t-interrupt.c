/* t-interrupt: ckl_interrupt comes from other threads and from signal handlers, at any time.
 *
 * Two threads and a timer ask again and again while the session runs calls of code, is reset and
 * loads files, so that engines come and go: each call ends as it would without, or as interrupted,
 * and in every fourth round, when nobody asks, it ends well: what was asked earlier is over. How
 * many of the others are interrupted depends on the machine. tests/tsan runs it under
 * ThreadSanitizer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "include/ckl.h"
#include "tests/tap.h"

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 300 };
#elif defined __SANITIZE_ADDRESS__
enum { ROUNDS = 1500 };
#else
enum { ROUNDS = 20000 };
#endif

static ckl_session *session; /* for the handler, which has no argument */
static atomic_bool quit;
static atomic_bool held; /* nobody is to ask */
static atomic_int asking;
static atomic_long asked;

static void ask_times(int n) {
  asking++;
  if (!held) {
    for (int i = 0; i < n; i++) ckl_interrupt(session);
    asked += n;
  }
  asking--;
}

/* Nobody asks from here on, until `held` is false again. */
static void hold(void) {
  held = true;
  while (asking) sched_yield();
}

static void *ask(void *ud) {
  unsigned seed = (unsigned)(uintptr_t)ud;
  while (!quit) {
    seed = seed * 1103515245 + 12345;
    const struct timespec pause = {0, (long)(seed >> 10)}; /* up to 4 ms */
    nanosleep(&pause, NULL);
    ask_times(20);
  }
  return NULL;
}

static void on_timer(int signo) {
  (void)signo;
  ask_times(1);
}

static void every(int microseconds) {
  struct itimerval t = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &t, NULL);
}

/* Well, or interrupted, which a diagnostic says. */
static bool fits(ckl_status st) {
  if (st == CKL_OK) return true;
  return st == CKL_EINTERRUPT && ckl_diag_count(session) == 1 &&
         !strcmp(ckl_diag_code(session, 0), "run-1");
}

/* Whether the session is well, now that nobody asks. */
static void is_well(void) {
  ckl_value *v = NULL;
  static const char text[] = "fn twice(x: f32[2]) -> f32[2] = x * 2\ntwice(f32([3, 4]))[1]";
  check(ckl_eval(session, text, "t", &v) == CKL_OK);
  check(ckl_to_float(v) == 8);
  ckl_release(v);
}

static void t_life(const char *cpu, int rounds) {
  char path[] = "/tmp/t-interrupt-XXXXXX";
  int file = mkstemp(path);
  static const char program[] = "let b = ones([50]) * 3\n";
  need(file >= 0 && write(file, program, sizeof program - 1) == sizeof program - 1);
  close(file);
  ckl_config c = {.size = sizeof c, .cpu = cpu, .threads = 2, .codegen = getenv("CKL_CODEGEN")};
  session = ckl_open(&c);
  need(session != NULL);
  quit = held = false;
  asked = 0;
  static const char text[] = "fn f(x: f32[2000]) -> (f32, f32) = (sum(tanh(x) * x), sum(x))\n"
                             "let a = track(ones([2000]) * 2)\nlet n = grad(f(a).0, a)";
  check(ckl_eval(session, text, "x", NULL) == CKL_OK); /* the code is kept on disk from now on */
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) check(!pthread_create(&thread[i], NULL, ask, (void *)(intptr_t)i));
  signal(SIGALRM, on_timer);
  every(3000);
  long interrupted = 0;
  for (int i = 0; i < rounds; i++) {
    if (i % 4 == 3) hold();
    ckl_status st = ckl_eval(session, text, "x", NULL);
    check(held ? st == CKL_OK : fits(st));
    interrupted += st == CKL_EINTERRUPT;
    st = i % 8 < 4 ? ckl_reset(session) : ckl_run_file(session, path);
    check(held ? st == CKL_OK : fits(st));
    held = false;
  }
  every(0);
  quit = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  tap_note("%ld asked, %ld of %d evaluations were interrupted", asked, interrupted, rounds);
  check(interrupted > 0);
  is_well();
  ckl_close(session);
  unlink(path);
}

static void *ask_later(void *ud) {
  const struct timespec pause = {0, 30000000};
  nanosleep(&pause, NULL);
  ckl_interrupt(ud);
  return NULL;
}

/* Machine code on two threads, in the middle of which it is stopped. */
static void t_kernels(void) {
  ckl_config c = {
      .size = sizeof c, .cpu = "native", .threads = 2, .codegen = getenv("CKL_CODEGEN")};
  static const char text[] = "let m = ones([300, 300])\nvar n = m\nwhile true { n = tanh(n @ m) }";
  session = ckl_open(&c);
  need(session != NULL);
  for (int i = 0; i < 5; i++) {
    pthread_t thread;
    check(!pthread_create(&thread, NULL, ask_later, session));
    check(ckl_eval(session, text, "x", NULL) == CKL_EINTERRUPT);
    pthread_join(thread, NULL);
    is_well();
  }
  ckl_close(session);
}

int main(void) {
  const char *codegen = getenv("CKL_CODEGEN");
  bool native = codegen && *codegen;
  TEST(t_life(native ? "native" : "reference", ROUNDS),
       "interrupts at any time meet a living session: code, resets, files");
  TEST(t_life("loops", ROUNDS / 10), "the same where kernels are walked");
  if (native) TEST(t_kernels(), "kernels on two threads are stopped");
  return tap_done();
}
