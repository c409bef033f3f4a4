/* fuzz-check SECONDS [SEED]: the checker, and the evaluator as it walks script without running it.
 *
 * For every program (programs.h): `ckl check` ends within seconds, asks for no block of memory that
 * only running would need, breaks no invariant of ckl (bug-1), says the same the second time, and
 * leaves nothing behind. Prints the offending program and exits with 1 on a find. */
#include "ckl.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/programs.h"

enum { HANG_SECONDS = 30 /* of processor time */, BLOCK_MOST = 1 << 26 };

static char path[256];
static ckl_session *session;
static const char *volatile doing = "start";

_Noreturn static void find(const char *what) {
  printf("fuzz-check: %s (%s)\n--- program\n%.*s\n--- end\n", what, doing, (int)text_n, text);
  fflush(stdout);
  remove(path);
  abort();
}

static void on_alarm(int sig) {
  (void)sig;
  find("no end in sight");
}

static void patience(int seconds) {
  struct itimerval t = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &t, NULL);
}

/* ---- checking */

static void *hook(void *ud, void *p, size_t old, size_t size) {
  (void)ud;
  (void)old;
  if (!size) {
    free(p);
    return NULL;
  }
  if (size > BLOCK_MOST) find("a large block of memory");
  return realloc(p, size);
}

static char said[2][1 << 15];

static void check(int round) {
  doing = round ? "second time" : "first time";
  patience(HANG_SECONDS);
  ckl_status st = ckl_check_file(session, path);
  patience(0);
  size_t n = 0;
  said[round][0] = 0;
  for (size_t i = 0; i < ckl_diag_count(session); i++) {
    const char *code = ckl_diag_code(session, i), *t = ckl_diag_text(session, i, 0);
    if (!code || !t || !*t) find("a diagnostic without text");
    if (!strcmp(code, "bug-1")) {
      printf("%s\n", t);
      find("an invariant is broken");
    }
    size_t k = strlen(t);
    if (k + 1 < sizeof said[0] - n) {
      memcpy(said[round] + n, t, k + 1);
      n += k;
    }
  }
  if (st == CKL_EINTERNAL) find("an internal error");
  if (st != CKL_OK && !n) find("it is wrong, and nobody says why");
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 5;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull + 1 : 1;
  const char *tmp = getenv("TMPDIR");
  if (!read_programs()) return 1;
  snprintf(path, sizeof path, "%s/fuzz-check-%ld.ckl", tmp && *tmp ? tmp : "/tmp", (long)getpid());
  signal(SIGPROF, on_alarm);
  ckl_config c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.alloc = hook;
  session = ckl_open(&c);
  if (!session) return 1;
  clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
  unsigned long runs = 0, fine = 0;
  int64_t live = ckl_counter(session, "values.live");
  while (clock() < end) {
    make_of(file_count, 1 + rnd(8));
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, text_n, f) != text_n || fclose(f)) return 1;
    check(0);
    if (runs++ % 8 == 0) {
      check(1);
      if (strcmp(said[0], said[1])) find("another answer the second time");
    }
    fine += !said[0][0];
    if (ckl_reset(session) != CKL_OK) find("the session cannot be reset");
    if (ckl_counter(session, "values.live") != live) find("values are left behind");
  }
  ckl_close(session);
  remove(path);
  printf("%lu programs, %lu of them without fault, from %zu files\n", runs, fine, file_count);
  return 0;
}
