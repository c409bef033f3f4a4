/* Programs under the golden runner in which one allocation fails, each in turn or some of them. */
#include "tests/golden/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs the file with the n-th allocation after opening failing (0: none). `fine` is what the
 * program prints when none fails: where an allocation could be done without, that and the usual
 * status are fine too. */
static void run_failing(Run *r, const char *path, uint64_t n, const Run *fine, Text *why) {
  memset(r, 0, sizeof *r);
  if (!open_session(r)) {
    adds(why, "ckl_open failed\n");
    return;
  }
  r->calls = 0;
  r->fail_at = n;
  alarm(FILE_SECONDS);
  r->status = ckl_run_file(r->s, path);
  alarm(0);
  r->fail_at = 0;
  r->quiet = true;
  bool done_without =
      fine && r->status == fine->status && !strcmp(text_of(&r->out), text_of(&fine->out));
  if (fine && !done_without) {
    size_t diags = ckl_diag_count(r->s);
    bool told = false;
    for (size_t i = 0; i < diags; i++) {
      const char *code = ckl_diag_code(r->s, i), *text = ckl_diag_text(r->s, i, 0);
      told = told || (code && text && !strcmp(code, "mem-1"));
    }
    if (r->status != CKL_ENOMEM) {
      addf(why, "allocation %llu failed and the status is %d, %d without that; printed:\n",
           (unsigned long long)n, (int)r->status, (int)fine->status);
      adds(why, text_of(&r->out));
      adds(why, "and without that:\n");
      adds(why, text_of(&fine->out));
    } else if (!told) {
      addf(why, "allocation %llu failed and no diagnostic says so\n", (unsigned long long)n);
    }
  }
  if (n) {
    ckl_value *two = NULL;
    if (ckl_eval(r->s, "1 + 1", "after", &two) != CKL_OK || ckl_to_int(two) != 2)
      addf(why, "after allocation %llu failed 1 + 1 is not 2 any more\n", (unsigned long long)n);
    ckl_release(two);
  }
  close_session(r);
  if (r->live)
    addf(why, "leak: %lld bytes after allocation %llu failed\n", (long long)r->live,
         (unsigned long long)n);
}

void check_failing(const char *path) {
  Run fine, r;
  Text why = {NULL, 0, 0};
  char title[1200];
  snprintf(current_path, sizeof current_path, "%s", path);
  enter_run_folder();
  run_failing(&fine, path, 0, NULL, &why);
  uint64_t total = fine.calls, tried = 0;
  uint64_t samples = strcmp(opt.fail, "all") ? strtoull(opt.fail, NULL, 10) : total;
  if (samples > total) samples = total;
  for (uint64_t i = 0; i < samples && why.n < 2000; i++) {
    run_failing(&r, path, 1 + i * total / samples, &fine, &why);
    run_free(&r);
    tried++;
  }
  run_free(&fine);
  snprintf(title, sizeof title, "%s: %llu of %llu allocations fail cleanly", path,
           (unsigned long long)tried, (unsigned long long)total);
  tap(!why.n && tried, title, &why);
  clear(&why);
}

void check_failing_open(void) {
  Run r;
  Text why = {NULL, 0, 0};
  char title[100];
  uint64_t n = 0;
  snprintf(current_path, sizeof current_path, "ckl_open");
  do {
    memset(&r, 0, sizeof r);
    r.fail_at = ++n;
    bool opened = open_session(&r);
    if (opened && r.calls >= n)
      addf(&why, "allocation %llu failed and ckl_open did not\n", (unsigned long long)n);
    if (opened) close_session(&r);
    if (r.live)
      addf(&why, "leak: %lld bytes when allocation %llu fails\n", (long long)r.live,
           (unsigned long long)n);
  } while (r.calls >= n && why.n < 2000);
  snprintf(title, sizeof title, "each of %llu allocations of ckl_open fails cleanly",
           (unsigned long long)n - 1);
  tap(!why.n, title, &why);
  clear(&why);
}
