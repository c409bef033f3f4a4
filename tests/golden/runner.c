/* golden-runner: runs the programs of tests/golden and tests/error and compares what they say with
 * what their comments say. A test program of its own, not part of `ckl`; links the library, uses
 * ckl.h only.
 *
 * Comes in: files and folders below a root. Goes out: TAP, one test per file (tests/README.md has
 * the form of the files). The idea: from a run the runner makes the text that the file should have
 * (every statement followed by what it printed, the diagnostics at the end) and compares that with
 * the file; to bless is to write it. Beside this each file is put through the formatter, twice, and
 * runs formatted to the same output; nothing may be alive afterwards that was not before.
 * With --every=N each N-th file runs, from the one on that has the number K modulo N; with
 * --without=FILE all but that one.
 * With --fail-alloc every allocation, or some, fail in turn; each time the session must give
 * CKL_ENOMEM, say so, go on working and leak nothing. */
#include "tests/golden/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Options opt;

/* ---- what a file should say */

static bool is_expectation(const char *line) {
  return line[0] == '#' && (line[1] == '>' || line[1] == '!' || line[1] == '~');
}

static void add_commented(Text *t, const char *mark, const char *text) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    adds(t, mark);
    if (n) {
      adds(t, " ");
      add(t, text, n);
    }
    adds(t, "\n");
    text += n + (text[n] == '\n');
  }
}

static void add_said(Text *t, const Run *r, int64_t line) {
  for (size_t i = 0; i < r->count; i++)
    if (r->said[i].line == line)
      add_commented(t, r->said[i].stream == CKL_STDOUT ? "#>" : "#~", text_of(&r->said[i].text));
}

/* The text of the file with what `r` said in place of what stands there. */
static void expected_text(Text *t, const char *source, const Run *r) {
  int64_t line = 0, lines = 0;
  for (const char *p = source; *p; p++) lines += *p == '\n';
  for (const char *p = source; *p;) {
    size_t n = strcspn(p, "\n");
    line++;
    if (!is_expectation(p)) {
      add(t, p, n);
      adds(t, "\n");
    }
    add_said(t, r, line);
    p += n + (p[n] == '\n');
  }
  for (size_t i = 0; i < r->count; i++)
    if (r->said[i].line <= 0 || r->said[i].line > lines + 1)
      add_commented(t, r->said[i].stream == CKL_STDOUT ? "#>" : "#~", text_of(&r->said[i].text));
  add_commented(t, "#!", text_of(&r->diags));
}

/* ---- one file */

static void check_format(Text *why, const char *path, const Text *source, const Run *plain,
                         Action action) {
  Run r;
  Text once = {NULL, 0, 0};
  memset(&r, 0, sizeof r);
  if (!open_session(&r)) return;
  const char *text = ckl_format(r.s, path, source->s, source->n);
  if (!text) {
    if (plain->status == CKL_OK) adds(why, "ckl_format: no text for a program that is fine\n");
    close_session(&r);
    return;
  }
  adds(&once, text);
  text = ckl_format(r.s, path, once.s, once.n);
  if (!text || strcmp(text, once.s)) {
    adds(why, "formatting twice is not formatting once\n");
    show_difference(why, once.s, text ? text : "");
  }
  close_session(&r);
  if (action && strcmp(once.s, source->s)) {
    enter_copy(path, &once);
    Run again;
    if (run_observed(&again, why, action, path)) {
      if (strcmp(text_of(&again.out), text_of(&plain->out)) || again.status != plain->status) {
        adds(why, "formatted, the program says something else\n");
        show_difference(why, text_of(&plain->out), text_of(&again.out));
        if (again.status != plain->status) adds(why, text_of(&again.diags));
      }
      run_free(&again);
    }
    enter_run_folder();
  }
  clear(&once);
}

/* A file of tests/error is checked, and only that, unless it says `#: run`. */
static Action action_of(const char *path, const char *source) {
  if (strncmp(path, "tests/error/", 12)) return ckl_run_file;
  for (const char *p = source; p; p = strchr(p, '\n')) {
    if (*p == '\n') p++;
    if (!strncmp(p, "#: run\n", 7)) return ckl_run_file;
  }
  return ckl_check_file;
}

/* A program of tests/golden that ends in an error says so at the end of its first line, so that an
 * error that nobody wanted is not blessed. On a page of docs/ a reader sees it. */
static void check_end(Text *why, const char *source, const Run *r) {
  static const char mark[] = "Ends in ";
  char first[1024], code[64] = "", said[64] = "";
  snprintf(first, sizeof first, "%.*s", (int)strcspn(source, "\n"), source);
  const char *at = strstr(first, mark), *error = strstr(text_of(&r->diags), "error[");
  if (at) sscanf(at + strlen(mark), "%63[a-z0-9-].", said);
  if (error && r->status != CKL_OK) sscanf(error, "error[%63[a-z0-9-]", code);
  if (!strcmp(code, said)) return;
  addf(why, "the program ends in `%s`, the first line of the file says `%s`\n",
       *code ? code : "no error", *said ? said : "nothing");
}

static void check_file(const char *path) {
  Text source = {NULL, 0, 0}, want = {NULL, 0, 0}, why = {NULL, 0, 0};
  char full[2048];
  Run r;
  snprintf(full, sizeof full, "%s/%s", opt.root, path);
  snprintf(current_path, sizeof current_path, "%s", path);
  if (!read_file(full, &source)) {
    addf(&why, "cannot read %s: %s\n", full, strerror(errno));
    tap(false, path, &why);
    clear(&why);
    return;
  }
  Action action = action_of(path, text_of(&source));
  bool is_error = !strncmp(path, "tests/error/", 12);
  /* What was said moves the lines below it, and with them the line numbers in diagnostics: blessing
   * comes to rest after a few rounds. */
  for (int round = 0;; round++) {
    clear(&want);
    clear(&why);
    enter_run_folder();
    if (!run_observed(&r, &why, action, path)) break;
    expected_text(&want, text_of(&source), &r);
    if (!opt.bless || round == 4 || !strcmp(text_of(&want), text_of(&source))) break;
    if (!write_file(full, &want)) die(full);
    clear(&source);
    adds(&source, text_of(&want));
    run_free(&r);
  }
  if (is_error && r.status == CKL_OK) adds(&why, "no error was found\n");
  if (!strncmp(path, "tests/golden/", 13)) check_end(&why, text_of(&source), &r);
  for (size_t i = 0; i < r.count; i++) note_printed_codes(text_of(&r.said[i].text));
  if (strcmp(text_of(&want), text_of(&source)))
    show_difference(&why, text_of(&source), text_of(&want));
  if (!opt.no_format) check_format(&why, path, &source, &r, is_error ? NULL : ckl_run_file);
  tap(!why.n, path, &why);
  run_free(&r);
  clear(&source);
  clear(&want);
  clear(&why);
}

int main(int argc, char **argv) {
  Names paths = {NULL, 0}, files = {NULL, 0};
  static char root[2048];
  const char *given = getenv("srcdir");
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i];
    if (!strcmp(a, "--bless"))
      opt.bless = true;
    else if (!strcmp(a, "--no-format"))
      opt.no_format = true;
    else if (!strncmp(a, "--fail-alloc=", 13))
      opt.fail = a + 13;
    else if (!strncmp(a, "--codes=", 8))
      opt.codes = a + 8;
    else if (!strncmp(a, "--at-least=", 11))
      opt.at_least = strtol(a + 11, NULL, 10);
    else if (!strncmp(a, "--every=", 8))
      opt.every = strtol(a + 8, NULL, 10);
    else if (!strncmp(a, "--from=", 7))
      opt.from = strtol(a + 7, NULL, 10);
    else if (!strncmp(a, "--without=", 10))
      opt.without = a + 10;
    else if (!strncmp(a, "--root=", 7))
      given = a + 7;
    else if (a[0] == '-') {
      fprintf(stderr,
              "usage: golden-runner [--bless] [--no-format] [--fail-alloc=all|N]\n"
              "         [--every=N [--from=K]] [--without=FILE] [--codes=FILE [--at-least=N]]\n"
              "         [--root=FOLDER] PATH...\n");
      return 2;
    } else
      push(&paths, a, strlen(a));
  }
  if (!realpath(given && *given ? given : ".", root)) die("root");
  opt.root = root;
  for (size_t i = 0; i < paths.n; i++) collect(&files, paths.s[i]);
  watch_signals();
  make_scratch();
  atexit(remove_scratch);
  if (opt.fail) check_failing_open();
  size_t step = opt.every > 1 ? (size_t)opt.every : 1;
  for (size_t i = opt.from > 0 ? (size_t)opt.from % step : 0; i < files.n; i += step) {
    if (opt.without && !strcmp(files.s[i], opt.without)) continue;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    if (opt.fail)
      check_failing(files.s[i]);
    else
      check_file(files.s[i]);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    if (seconds > 5) printf("# %s took %.1f s\n", files.s[i], seconds);
  }
  if (opt.codes) {
    check_help();
    check_codes();
  }
  if (!tests) tap(false, "there are tests", &(Text){NULL, 0, 0});
  printf("1..%d\n", tests);
  clear_names(&paths);
  clear_names(&files);
  forget_codes();
  return failures ? 1 : 0;
}
