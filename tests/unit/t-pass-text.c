/* Passes, text in and text out: what `ckl opt --pass=PASS` makes of each tests/pass/PASS/NAME.ckg
 * stands in NAME.out. `t-pass-text --bless` in the source folder writes the .out files anew (read
 * the difference). Kernels are those of the level x86-64, which every machine has. */
#include <dirent.h>
#include <stdlib.h>

#include "ckl.h"
#include "tests/tap.h"

enum { MOST_FILES = 100, MOST_BYTES = 200000 };

static ckl_session *session;
static bool bless;

static char *load(const char *path) {
  FILE *f = fopen(path, "rb");
  char *s = calloc(1, MOST_BYTES);
  if (!f || !s) {
    free(s);
    return NULL;
  }
  size_t n = fread(s, 1, MOST_BYTES - 1, f);
  fclose(f);
  check_size(n, <, MOST_BYTES - 1);
  return s;
}

/* The first line in which two texts differ. */
static void compare(const char *path, const char *got, const char *want) {
  for (int line = 1;; line++) {
    int n = (int)strcspn(got, "\n"), m = (int)strcspn(want, "\n");
    bool same = n == m && !memcmp(got, want, (size_t)n) && got[n] == want[n];
    if (!check_msg(same, "%s:%d: is\n%.*s\nwhere this stands:\n%.*s", path, line, n, got, m, want))
      return;
    if (!got[n]) return;
    got += n + 1;
    want += n + 1;
  }
}

static void one_file(const char *folder, const char *pass, const char *name) {
  char path[2000], out[2000];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(out, sizeof out, "%s/%.*sout", folder, (int)strlen(name) - 3, name);
  char *text = load(path);
  if (!check_msg(text != NULL, "%s: cannot be read", path)) return;
  const char *got = ckl_opt(session, pass, path, text, strlen(text));
  free(text);
  if (!check_msg(got != NULL, "%s: %s", path, ckl_diag_text(session, 0, 0))) return;
  if (bless) {
    FILE *f = fopen(out, "wb");
    if (!check_msg(f != NULL, "%s cannot be written", out)) return;
    fputs(got, f);
    fclose(f);
    return;
  }
  char *want = load(out);
  if (check_msg(want != NULL, "%s is not there", out)) compare(out, got, want);
  free(want);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void t_files(const char *pass) {
  const char *src = getenv("srcdir");
  char folder[1000], *files[MOST_FILES];
  snprintf(folder, sizeof folder, "%s/tests/pass/%s", src ? src : ".", pass);
  DIR *d = opendir(folder);
  int n = 0;
  if (!check_msg(d != NULL, "%s is not there", folder)) return;
  for (struct dirent *f; (f = readdir(d)) && n < MOST_FILES;) {
    size_t len = strlen(f->d_name);
    if (len > 4 && !strcmp(f->d_name + len - 4, ".ckg")) files[n++] = strdup(f->d_name);
  }
  closedir(d);
  check_int(n, >, 0);
  check_int(n, <, MOST_FILES);
  if (n) qsort(files, (size_t)n, sizeof *files, by_name);
  for (int i = 0; i < n; i++) {
    one_file(folder, pass, files[i]);
    free(files[i]);
  }
}

int main(int argc, char **argv) {
  const char *pass;
  bless = argc > 1 && !strcmp(argv[1], "--bless");
  ckl_config c = {.size = sizeof c, .cpu = "x86-64"};
  session = ckl_open(&c);
  check_msg(session != NULL, "ckl_open");
  for (size_t i = 0; session && (pass = ckl_pass_name(i)); i++) {
    char title[200];
    snprintf(title, sizeof title, "%s gives what its files say", pass);
    TEST(t_files(pass), title);
  }
  ckl_close(session);
  return tap_done();
}
