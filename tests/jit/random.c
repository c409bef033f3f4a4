/* random COUNT SEED [MODE...]: random programs give the same bits in every mode (rule 103).
 *
 * Each program of program.c runs through the C API, with two sets of sizes and the first again, and
 * every byte of every result is compared with the first mode's (NaNs are equal). On a difference
 * the program is shrunk by dropping statements and results, and printed with its seed.
 *
 * Modes are those of runner.h. Prints TAP; with RANDOM_SHOW in the environment the programs too.
 * Every other session of ten programs checks addresses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/runner.h"

/* Modes that a run without words compares; the first one is right. */
static const char *const default_modes[] = {"reference", "script", "loops"};

enum { MODES = 8, PER_SESSION = 10 };

static bool nan_at(Dt dt, const unsigned char *p) {
  uint16_t h;
  float f;
  double d;
  memcpy(&h, p, 2);
  if (dt == F16) return (h & 0x7fff) > 0x7c00;
  if (dt == BF16) return (h & 0x7fff) > 0x7f80;
  if (dt == F32) return memcpy(&f, p, 4), f != f;
  if (dt == F64) return memcpy(&d, p, 8), d != d;
  return false;
}

/* The first difference in words, or "". */
static void difference(const Outcome *a, const Outcome *b, char *text, size_t n) {
  text[0] = 0;
  bool words = a->script == b->script && strcmp(a->message, b->message);
  if (a->status != b->status || strcmp(a->code, b->code) || words) {
    snprintf(text, n, "status %d %s, not %d %s\n%s%s", (int)b->status, b->code, (int)a->status,
             a->code, b->message, a->message);
    return;
  }
  for (int i = 0; i < a->count && i < b->count; i++) {
    const Blob *x = &a->blob[i], *y = &b->blob[i];
    if (x->dt != y->dt || x->rank != y->rank || memcmp(x->dim, y->dim, sizeof x->dim)) {
      snprintf(text, n, "result %d: other dtype or dims", i);
      return;
    }
    int size = dt_bytes[x->dt];
    for (size_t k = 0; k + (size_t)size <= x->bytes; k += (size_t)size) {
      const unsigned char *p = x->data + k, *q = y->data + k;
      if (!memcmp(p, q, (size_t)size) || (nan_at(x->dt, p) && nan_at(x->dt, q))) continue;
      unsigned long long u = 0, v = 0;
      memcpy(&u, p, (size_t)size);
      memcpy(&v, q, (size_t)size);
      snprintf(text, n, "result %d, element %d (%s) has the bits %llx, not %llx", i,
               (int)(k / (size_t)size), dt_name[x->dt], v, u);
      return;
    }
  }
  if (a->count != b->count) snprintf(text, n, "%d results, not %d", b->count, a->count);
}

/* Runs in sessions of its own; whether the modes differ. */
static bool differs(const Program *p, const void *with, char *text, size_t n) {
  const char *const *modes = with, *right = modes[0], *mode = modes[1];
  static Outcome a, b;
  ckl_session *s = runner_open(right);
  runner_run(s, p, right, &a);
  ckl_close(s);
  s = runner_open(mode);
  runner_run(s, p, mode, &b);
  ckl_close(s);
  char what[4000];
  difference(&a, &b, what, sizeof what);
  bool wrong = a.status == CKL_EPROGRAM || b.status == CKL_EPROGRAM || !strcmp(a.code, "name-1") ||
               !strcmp(b.code, "name-1"); /* as a statement is missing */
  if (what[0]) snprintf(text, n, "%s", what);
  runner_clear(&a);
  runner_clear(&b);
  return what[0] && !wrong;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "use: random COUNT SEED [MODE...]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* a mode may die */
  const char *mode[MODES];
  int modes = 0, failures = 0, tests = 0;
  long count = atol(argv[1]), wrong = 0, stopped = 0, ran = 0;
  unsigned long long seed = strtoull(argv[2], NULL, 10);
  for (int i = 3; i < argc && modes < MODES; i++) mode[modes++] = argv[i];
  for (size_t i = 0; argc == 3 && i < sizeof default_modes / sizeof *default_modes; i++)
    mode[modes++] = default_modes[i];
  for (int m = 0; m < modes; m++) runner_mode(mode[m]);
  static Program p;
  static Outcome out[MODES];
  static char text[40000], why[4000];
  ckl_session *s[MODES] = {0};
  long long kernels[MODES] = {0}, by_node[MODES] = {0}, reruns[MODES] = {0};
  for (long n = 0; n < count; n++) {
    program_generate(&p, seed + (unsigned long long)n, false);
    for (int m = 0; m < modes; m++) {
      if (n % PER_SESSION == 0) {
        setenv("CKL_CHECK_ADDRESS", n / PER_SESSION % 2 ? "0" : "1", 1);
        ckl_close(s[m]);
        s[m] = runner_open(mode[m]);
      }
      runner_run(s[m], &p, mode[m], &out[m]);
      if (n % PER_SESSION < PER_SESSION - 1 && n < count - 1) continue;
      kernels[m] += ckl_counter(s[m], "jit.kernels");
      by_node[m] += ckl_counter(s[m], "jit.by_node");
      reruns[m] += ckl_counter(s[m], "jit.reruns");
    }
    if (getenv("RANDOM_SHOW")) {
      program_source(&p, false, text, sizeof text);
      printf("# seed %llu, status %d, %d results\n", p.seed, (int)out[0].status, out[0].count);
      runner_comment(text);
    }
    if (out[0].status == CKL_EPROGRAM) {
      if (wrong++ < 3) {
        printf("# seed %llu is no program:\n", p.seed);
        program_source(&p, false, text, sizeof text);
        runner_comment(out[0].message);
      }
    } else if (out[0].status == CKL_OK) {
      ran++;
    } else {
      stopped++;
    }
    for (int m = 1; m < modes; m++) {
      difference(&out[0], &out[m], why, sizeof why);
      if (!why[0]) continue;
      failures++;
      Program small = p;
      runner_shrink(&small, differs, (const char *const[]){mode[0], mode[m]}, why, sizeof why);
      printf("# seed %llu: %s and %s differ\n", p.seed, mode[0], mode[m]);
      runner_comment(why);
      program_source(&small, false, text, sizeof text);
      runner_comment(text);
      if (failures >= 20) n = count;
    }
  }
  for (int m = 0; m < modes; m++) {
    ckl_close(s[m]);
    runner_clear(&out[m]);
  }
  for (int m = 0; m < modes; m++) {
    printf("# %s: %lld kernels, %lld nodes by the reference, %lld runs again\n", mode[m],
           kernels[m], by_node[m], reruns[m]);
  }
  printf("# %ld programs ran, %ld stopped with an error, %ld were none\n", ran, stopped, wrong);
  printf("%s %d - random programs give the same bits in all modes\n", failures ? "not ok" : "ok",
         ++tests);
  printf("%s %d - what is generated are programs\n", wrong * 20 > count ? "not ok" : "ok", ++tests);
  printf("1..%d\n", tests);
  return failures || wrong * 20 > count;
}
