/* golden-runner: runs the programs of tests/golden and tests/error and compares what they say with
 * what their comments say. A test program of its own, not part of `ckl`; links the library, uses
 * ckl.h only.
 *
 * Comes in: files and folders below a root. Goes out: TAP, one test per file (tests/README.md has
 * the form of the files). The idea: from a run the runner makes the text that the file should have
 * (every statement followed by what it printed, the diagnostics at the end) and compares that with
 * the file; to bless is to write it. Beside this each file is put through the formatter, twice, and
 * runs formatted to the same output; nothing may be alive afterwards that was not before.
 * With --fail-alloc every allocation, or some, fail in turn; each time the session must give
 * CKL_ENOMEM, say so, go on working and leak nothing. */
#include "ckl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_SECONDS = 300 }; /* a file that compiles hundreds of kernels takes half a minute */

/* ---- text that grows */
typedef struct Text {
  char *s;
  size_t n, room;
} Text;

static void die(const char *what)
{
  printf("Bail out! golden-runner: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void *grow(void *p, size_t n)
{
  void *q = realloc(p, n);
  if (!q) die("memory");
  return q;
}

static void add(Text *t, const char *s, size_t n)
{
  if (t->n + n + 1 > t->room) {
    t->room = (t->n + n + 1) * 2;
    t->s = grow(t->s, t->room);
  }
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

static void adds(Text *t, const char *s)
{
  add(t, s, strlen(s));
}

static void addf(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void addf(Text *t, const char *fmt, ...)
{
  char room[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(room, sizeof room, fmt, ap);
  va_end(ap);
  adds(t, room);
}

static const char *text_of(const Text *t)
{
  return t->s ? t->s : "";
}

static void clear(Text *t)
{
  free(t->s);
  memset(t, 0, sizeof *t);
}

/* ---- lists of strings */
typedef struct Names {
  char **s;
  size_t n;
} Names;

static bool has(const Names *l, const char *s, size_t n)
{
  for (size_t i = 0; i < l->n; i++)
    if (strlen(l->s[i]) == n && !memcmp(l->s[i], s, n)) return true;
  return false;
}

static void push(Names *l, const char *s, size_t n)
{
  l->s = grow(l->s, (l->n + 1) * sizeof *l->s);
  l->s[l->n] = grow(NULL, n + 1);
  memcpy(l->s[l->n], s, n);
  l->s[l->n++][n] = 0;
}

static void clear_names(Names *l)
{
  for (size_t i = 0; i < l->n; i++) free(l->s[i]);
  free(l->s);
  memset(l, 0, sizeof *l);
}

static void push_new(Names *l, const char *s, size_t n)
{
  if (!has(l, s, n)) push(l, s, n);
}

/* ---- the runner */
typedef struct Options {
  bool bless, no_format;
  const char *root, *fail, *codes;
  long at_least;
} Options;

/* Output of one top-level statement. */
typedef struct Said {
  int64_t line; /* on which the statement ends; 0: none */
  int stream;
  Text text;
} Said;

typedef struct Run {
  ckl_session *s;
  Said *said;
  size_t count;
  Text out;    /* all of stream 1 */
  Text diags;
  ckl_status status;
  /* the allocator */
  int64_t live;       /* bytes */
  uint64_t calls;     /* that asked for more */
  uint64_t fail_at;   /* which of them fails; 0: none */
  bool quiet;
} Run;

static Options opt;
static char scratch[512];  /* a folder with a link to the tests */
static int tests, failures;
static Names codes, messages; /* seen in diagnostics */
static ckl_session *volatile current;
static char current_path[1024];

static void tap(bool ok, const char *title, const Text *why)
{
  if (!ok) {
    failures++;
    for (const char *p = text_of(why); *p;) {
      size_t n = strcspn(p, "\n");
      printf("# %.*s\n", (int)n, p);
      p += n + (p[n] == '\n');
    }
  }
  printf("%s %d - %s\n", ok ? "ok" : "not ok", ++tests, title);
  fflush(stdout);
}

static void on_alarm(int signo)
{
  static const char text[] = "Bail out! a file did not end, not even when interrupted: ";
  static volatile sig_atomic_t turns;
  (void)signo;
  if (turns++ || !current) {
    if (write(1, text, sizeof text - 1) < 0 || write(1, current_path, strlen(current_path)) < 0 ||
        write(1, "\n", 1) < 0)
      _exit(3);
    _exit(2);
  }
  ckl_interrupt(current);
  alarm(20);
}

static void on_crash(int signo)
{
  static const char text[] = "Bail out! crash in ";
  if (write(1, text, sizeof text - 1) < 0 || write(1, current_path, strlen(current_path)) < 0 ||
      write(1, "\n", 1) < 0)
    _exit(3);
  signal(signo, SIG_DFL);
  raise(signo);
}

/* ---- sessions under observation */

static void *count_alloc(void *ud, void *p, size_t old_size, size_t new_size)
{
  Run *r = ud;
  if (!new_size) {
    free(p);
    r->live -= (int64_t)old_size;
    return NULL;
  }
  if (new_size > old_size && ++r->calls == r->fail_at) return NULL;
  void *q = realloc(p, new_size);
  if (q) r->live += (int64_t)new_size - (int64_t)old_size;
  return q;
}

static void hear(void *ud, int stream, const char *text, size_t n)
{
  Run *r = ud;
  if (r->quiet) return;
  int64_t line = ckl_counter(r->s, "line");
  Said *last = NULL;
  for (size_t i = r->count; i-- > 0 && !last;)
    if (r->said[i].line == line && r->said[i].stream == stream) last = &r->said[i];
  if (!last) {
    r->said = grow(r->said, (r->count + 1) * sizeof *r->said);
    last = &r->said[r->count++];
    memset(last, 0, sizeof *last);
    last->line = line;
    last->stream = stream;
  }
  add(&last->text, text, n);
  if (stream == CKL_STDOUT) add(&r->out, text, n);
}

static bool open_session(Run *r)
{
  ckl_config f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  f.alloc = count_alloc;
  f.alloc_ud = r;
  f.write = hear;
  f.cpu = getenv("CKL_CPU");
  f.threads = 2; /* each takes memory, which some programs print */
  f.write_ud = r;
  r->s = ckl_open(&f);
  current = r->s;
  return r->s != NULL;
}

static void close_session(Run *r)
{
  current = NULL;
  ckl_close(r->s);
  r->s = NULL;
}

static void run_free(Run *r)
{
  for (size_t i = 0; i < r->count; i++) clear(&r->said[i].text);
  free(r->said);
  clear(&r->out);
  clear(&r->diags);
}

/* Remembers which errors were seen: codes, and first lines without the place. */
static void note_diags(ckl_session *s)
{
  for (size_t i = 0; i < ckl_diag_count(s); i++) {
    const char *code = ckl_diag_code(s, i), *text = ckl_diag_text(s, i, 0);
    if (code) push_new(&codes, code, strlen(code));
    size_t n = 0;
    while (text && text[n] && text[n] != '\n' && strncmp(text + n, "  ", 2)) n++;
    if (text) push_new(&messages, text, n);
  }
}

/* Codes in what a program wrote: by error_of, and in warnings. */
static void note_printed_codes(const char *text)
{
  const char *code;
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++) {
    size_t n = strlen(code);
    for (const char *p = text; (p = strstr(p, code)) != NULL; p++) {
      char before = p == text ? ' ' : p[-1], after = p[n];
      if (!strchr(" \"([", before) || (after >= '0' && after <= '9')) continue;
      push_new(&codes, code, n);
      break;
    }
  }
}

typedef ckl_status (*Action)(ckl_session *s, const char *path);

static void run(Run *r, Action action, const char *path)
{
  alarm(FILE_SECONDS);
  r->status = action(r->s, path);
  alarm(0);
  for (size_t i = 0; i < ckl_diag_count(r->s); i++) {
    const char *text = ckl_diag_text(r->s, i, 0);
    if (!text) continue;
    adds(&r->diags, text);
    if (*text && text[strlen(text) - 1] != '\n') adds(&r->diags, "\n");
  }
}

/* ---- files */

static bool read_file(const char *path, Text *t)
{
  char part[8192];
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) add(t, part, k);
  fclose(f);
  add(t, "", 0);
  return true;
}

static bool write_file(const char *path, const Text *t)
{
  FILE *f = fopen(path, "wb");
  if (!f) return false;
  size_t k = fwrite(text_of(t), 1, t->n, f);
  return !fclose(f) && k == t->n;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All tests below `path`: files .ckl, in order; a name that starts with '_' belongs to another
 * file. */
static void collect(Names *files, const char *path)
{
  char full[2048];
  struct stat st;
  snprintf(full, sizeof full, "%s/%s", opt.root, path);
  if (stat(full, &st)) die(full);
  if (!S_ISDIR(st.st_mode)) {
    push(files, path, strlen(path));
    return;
  }
  DIR *d = opendir(full);
  if (!d) die(full);
  Names inside = {NULL, 0};
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    size_t n = strlen(e->d_name);
    if (e->d_name[0] == '.' || e->d_name[0] == '_') continue;
    snprintf(full, sizeof full, "%s/%s/%s", opt.root, path, e->d_name);
    if (stat(full, &st)) continue;
    bool test = n > 4 && !strcmp(e->d_name + n - 4, ".ckl");
    if (S_ISDIR(st.st_mode) || test) push(&inside, e->d_name, n);
  }
  closedir(d);
  if (inside.n) qsort(inside.s, inside.n, sizeof *inside.s, by_name);
  for (size_t i = 0; i < inside.n; i++) {
    snprintf(full, sizeof full, "%s/%s", path, inside.s[i]);
    collect(files, full);
    free(inside.s[i]);
  }
  free(inside.s);
}

static void remove_below(const char *path)
{
  DIR *d = opendir(path);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    char full[2048];
    struct stat st;
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    snprintf(full, sizeof full, "%s/%s", path, e->d_name);
    if (!lstat(full, &st) && S_ISDIR(st.st_mode)) remove_below(full);
    remove(full);
  }
  closedir(d);
}

/* scratch/run/tests and scratch/run/examples lead to the real ones: a program runs in a folder it
 * may write to, and its path is the one that a user at the root of the source would give. */
static void make_scratch(void)
{
  static const char *const links[] = {"tests", "examples"};
  const char *tmp = getenv("TMPDIR");
  char from[2048], to[2048];
  snprintf(scratch, sizeof scratch, "%s/golden-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(scratch)) die(scratch);
  snprintf(to, sizeof to, "%s/run", scratch);
  mkdir(to, 0700);
  for (size_t i = 0; i < 2; i++) {
    snprintf(from, sizeof from, "%s/%s", opt.root, links[i]);
    snprintf(to, sizeof to, "%s/run/%s", scratch, links[i]);
    if (symlink(from, to)) die(to);
  }
}

static void remove_scratch(void)
{
  if (chdir("/")) return;
  remove_below(scratch);
  remove(scratch);
}

/* Enters an empty folder in which all that lies beside `path` can be reached by the same paths, and
 * `path` itself has the given text. */
static void enter_copy(const char *path, const Text *t)
{
  char full[2048], from[2048];
  snprintf(full, sizeof full, "%s/copy", scratch);
  remove_below(full);
  mkdir(full, 0700);
  if (chdir(full)) die(full);
  size_t slash = 0;
  for (size_t i = 0; path[i]; i++) {
    if (path[i] != '/') continue;
    slash = i;
    snprintf(full, sizeof full, "%.*s", (int)i, path);
    mkdir(full, 0700);
  }
  snprintf(from, sizeof from, "%s/%.*s", opt.root, (int)slash, path);
  DIR *d = opendir(from);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
    if (e->d_name[0] == '.' || !strcmp(e->d_name, path + slash + 1)) continue;
    snprintf(from, sizeof from, "%s/%.*s/%s", opt.root, (int)slash, path, e->d_name);
    snprintf(full, sizeof full, "%.*s/%s", (int)slash, path, e->d_name);
    if (symlink(from, full)) die(full);
  }
  if (d) closedir(d);
  if (!write_file(path, t)) die(path);
}

static void enter_run_folder(void)
{
  char full[600];
  snprintf(full, sizeof full, "%s/run", scratch);
  if (chdir(full)) die(full);
}

/* ---- what a file should say */

static bool is_expectation(const char *line)
{
  return line[0] == '#' && (line[1] == '>' || line[1] == '!' || line[1] == '~');
}

static void add_commented(Text *t, const char *mark, const char *text)
{
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

static void add_said(Text *t, const Run *r, int64_t line)
{
  for (size_t i = 0; i < r->count; i++)
    if (r->said[i].line == line)
      add_commented(t, r->said[i].stream == CKL_STDOUT ? "#>" : "#~", text_of(&r->said[i].text));
}

/* The text of the file with what `r` said in place of what stands there. */
static void expected_text(Text *t, const char *source, const Run *r)
{
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

/* ---- differences, as `diff -u` shows them */

typedef struct Lines {
  const char **s;
  size_t *n, count;
} Lines;

static Lines split(const char *text)
{
  Lines l = {NULL, NULL, 0};
  for (const char *p = text; *p;) {
    size_t n = strcspn(p, "\n");
    l.s = grow(l.s, (l.count + 1) * sizeof *l.s);
    l.n = grow(l.n, (l.count + 1) * sizeof *l.n);
    l.s[l.count] = p;
    l.n[l.count++] = n;
    p += n + (p[n] == '\n');
  }
  return l;
}

static bool same_line(const Lines *a, size_t i, const Lines *b, size_t j)
{
  return a->n[i] == b->n[j] && !memcmp(a->s[i], b->s[j], a->n[i]);
}

static void show_difference(Text *why, const char *old, const char *new)
{
  Lines a = split(old), b = split(new);
  if (a.count > 3000 || b.count > 3000) {
    adds(why, "the texts differ\n");
    return;
  }
  /* best[i][j]: the longest common part of a[i..] and b[j..] */
  size_t w = b.count + 1;
  unsigned short *best = grow(NULL, (a.count + 1) * w * sizeof *best);
  for (size_t i = a.count + 1; i-- > 0;)
    for (size_t j = w; j-- > 0;) {
      unsigned short *x = &best[i * w + j];
      if (i == a.count || j == b.count)
        *x = 0;
      else if (same_line(&a, i, &b, j))
        *x = (unsigned short)(best[(i + 1) * w + j + 1] + 1);
      else
        *x = best[(i + 1) * w + j] > best[i * w + j + 1] ? best[(i + 1) * w + j]
                                                         : best[i * w + j + 1];
    }
  adds(why, "--- the file\n+++ this run\n");
  size_t i = 0, j = 0, quiet = 0;
  while (i < a.count || j < b.count) {
    bool both = i < a.count && j < b.count && same_line(&a, i, &b, j);
    if (both) {
      bool near = false; /* a difference within two lines */
      for (size_t k = 1; k <= 2; k++)
        if (i + k >= a.count || j + k >= b.count ? a.count - i != b.count - j
                                                 : !same_line(&a, i + k, &b, j + k))
          near = true;
      if (near || quiet > 0) addf(why, "%4zu  %.*s\n", i + 1, (int)a.n[i], a.s[i]);
      if (quiet) quiet--;
      i++;
      j++;
      continue;
    }
    quiet = 2;
    if (j == b.count || (i < a.count && best[(i + 1) * w + j] >= best[i * w + j + 1])) {
      addf(why, "%4zu -%.*s\n", i + 1, (int)a.n[i], a.s[i]);
      i++;
    } else {
      addf(why, "     +%.*s\n", (int)b.n[j], b.s[j]);
      j++;
    }
  }
  free(best);
  free(a.s);
  free(a.n);
  free(b.s);
  free(b.n);
}

/* ---- one file */

static const char *const leak_counters[] = {"values.live", "tape.live", "bytes.live"};

static void check_leaks(Text *why, Run *r, const int64_t before[3])
{
  ckl_reset(r->s);
  for (int i = 0; i < 3; i++) {
    int64_t now = ckl_counter(r->s, leak_counters[i]);
    if (now != before[i])
      addf(why, "leak: %s was %lld before and is %lld after\n", leak_counters[i],
           (long long)before[i], (long long)now);
  }
  close_session(r);
  if (r->live)
    addf(why, "leak: %lld bytes are allocated after the session was closed\n", (long long)r->live);
}

/* Opens a session, runs the file, closes it; what is wrong with leaks goes to `why`. */
static bool run_observed(Run *r, Text *why, Action action, const char *path)
{
  int64_t before[3];
  memset(r, 0, sizeof *r);
  if (!open_session(r)) {
    adds(why, "ckl_open failed\n");
    return false;
  }
  ckl_reset(r->s);
  for (int i = 0; i < 3; i++) before[i] = ckl_counter(r->s, leak_counters[i]);
  run(r, action, path);
  note_diags(r->s);
  r->quiet = true;
  check_leaks(why, r, before);
  return true;
}

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
static Action action_of(const char *path, const char *source)
{
  if (strncmp(path, "tests/error/", 12)) return ckl_run_file;
  for (const char *p = source; p; p = strchr(p, '\n')) {
    if (*p == '\n') p++;
    if (!strncmp(p, "#: run\n", 7)) return ckl_run_file;
  }
  return ckl_check_file;
}

static void check_file(const char *path)
{
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
   * comes to rest after a few turns. */
  for (int turn = 0; turn < 5; turn++) {
    clear(&want);
    clear(&why);
    enter_run_folder();
    if (!run_observed(&r, &why, action, path)) break;
    expected_text(&want, text_of(&source), &r);
    if (!opt.bless || !strcmp(text_of(&want), text_of(&source))) break;
    if (!write_file(full, &want)) die(full);
    clear(&source);
    adds(&source, text_of(&want));
    run_free(&r);
  }
  if (is_error && r.status == CKL_OK) adds(&why, "no error was found\n");
  for (size_t i = 0; i < r.count; i++) note_printed_codes(text_of(&r.said[i].text));
  if (strcmp(text_of(&want), text_of(&source)))
    show_difference(&why, text_of(&source), text_of(&want));
  if (!opt.no_format)
    check_format(&why, path, &source, &r, is_error ? NULL : ckl_run_file);
  tap(!why.n, path, &why);
  run_free(&r);
  clear(&source);
  clear(&want);
  clear(&why);
}

/* ---- failing allocations */

/* Runs the file with the n-th allocation after opening failing (0: none). `fine` is what the
 * program prints when none fails: where an allocation could be done without, that and the usual
 * status are fine too. */
static void run_failing(Run *r, const char *path, uint64_t n, const Run *fine, Text *why)
{
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

static void check_failing(const char *path)
{
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

static void check_failing_open(void)
{
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
    if (r.live) addf(&why, "leak: %lld bytes when allocation %llu fails\n", (long long)r.live,
                     (unsigned long long)n);
  } while (r.calls >= n && why.n < 2000);
  snprintf(title, sizeof title, "each of %llu allocations of ckl_open fails cleanly",
           (unsigned long long)n - 1);
  tap(!why.n, title, &why);
  clear(&why);
}

/* ---- which errors were provoked */

/* The example that `ckl help CODE` shows provokes the error, when it is checked or when it runs. */
static void check_help(void)
{
  Text why = {NULL, 0, 0};
  const char *code;
  enter_run_folder();
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++) {
    Run r;
    Text program = {NULL, 0, 0};
    memset(&r, 0, sizeof r);
    if (!open_session(&r)) return;
    const char *help = ckl_help(r.s, code);
    const char *example = help ? strstr(help, "For example:\n") : NULL;
    if (!help) addf(&why, "%s: ckl_help knows nothing\n", code);
    if (example)
      for (const char *p = strchr(example, '\n') + 1; *p;) {
        size_t n = strcspn(p, "\n"), indent = strncmp(p, "    ", 4) ? 0 : 4;
        add(&program, p + indent, n - indent);
        adds(&program, "\n");
        p += n + (p[n] == '\n');
      }
    if (example) {
      bool found = false;
      if (!write_file("example.ckl", &program)) die("example.ckl");
      snprintf(current_path, sizeof current_path, "the example of %s", code);
      for (int turn = 0; turn < 2 && !found; turn++) {
        run(&r, turn ? ckl_run_file : ckl_check_file, "example.ckl");
        for (size_t k = 0; k < ckl_diag_count(r.s); k++)
          found = found || !strcmp(ckl_diag_code(r.s, k), code);
        for (size_t k = 0; k < r.count; k++)
          found = found || strstr(text_of(&r.said[k].text), code);
      }
      if (!found)
        addf(&why, "%s: its example does not provoke it\n%s%s\n", code, text_of(&program),
             text_of(&r.diags));
    }
    close_session(&r);
    run_free(&r);
    clear(&program);
  }
  tap(!why.n, "the example of each error provokes it", &why);
  clear(&why);
}

/* `opt.codes` lists codes that no test can provoke: a code, a blank, the reason. */
static void check_codes(void)
{
  Text allowed = {NULL, 0, 0}, why = {NULL, 0, 0};
  Names excused = {NULL, 0};
  char full[2048], title[100];
  snprintf(full, sizeof full, "%s/%s", opt.root, opt.codes);
  if (!read_file(full, &allowed)) die(full);
  for (const char *p = text_of(&allowed); *p;) {
    size_t line = strcspn(p, "\n"), n = strcspn(p, " \n");
    if (*p != '#' && n) {
      if (n == line) addf(&why, "%.*s is excused without a reason\n", (int)n, p);
      if (has(&codes, p, n)) addf(&why, "%.*s is excused and provoked\n", (int)n, p);
      push_new(&excused, p, n);
    }
    p += line + (p[line] == '\n');
  }
  const char *code;
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++)
    if (!has(&codes, code, strlen(code)) && !has(&excused, code, strlen(code)))
      addf(&why, "%s is provoked by no test\n", code);
  tap(!why.n, "every error code is provoked by a test", &why);
  clear(&why);
  if ((long)messages.n < opt.at_least)
    addf(&why, "only %zu, at least %ld are wanted\n", messages.n, opt.at_least);
  snprintf(title, sizeof title, "%zu different errors are provoked", messages.n);
  tap(!why.n, title, &why);
  clear(&why);
  clear(&allowed);
  clear_names(&excused);
}

int main(int argc, char **argv)
{
  Names paths = {NULL, 0}, files = {NULL, 0};
  static char root[2048];
  const char *given = getenv("srcdir");
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i];
    if (!strcmp(a, "--bless")) opt.bless = true;
    else if (!strcmp(a, "--no-format")) opt.no_format = true;
    else if (!strncmp(a, "--fail-alloc=", 13)) opt.fail = a + 13;
    else if (!strncmp(a, "--codes=", 8)) opt.codes = a + 8;
    else if (!strncmp(a, "--at-least=", 11)) opt.at_least = strtol(a + 11, NULL, 10);
    else if (!strncmp(a, "--root=", 7)) given = a + 7;
    else if (a[0] == '-') {
      fprintf(stderr, "usage: golden-runner [--bless] [--no-format] [--fail-alloc=all|N]\n"
                      "         [--codes=FILE [--at-least=N]] [--root=FOLDER] PATH...\n");
      return 2;
    } else
      push(&paths, a, strlen(a));
  }
  if (!realpath(given && *given ? given : ".", root)) die("root");
  opt.root = root;
  for (size_t i = 0; i < paths.n; i++) collect(&files, paths.s[i]);
  signal(SIGALRM, on_alarm);
  signal(SIGABRT, on_crash);
#ifndef CKL_SANITIZE
  signal(SIGSEGV, on_crash);
  signal(SIGFPE, on_crash);
#endif
  make_scratch();
  atexit(remove_scratch);
  if (opt.fail) check_failing_open();
  for (size_t i = 0; i < files.n; i++) {
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
  clear_names(&codes);
  clear_names(&messages);
  return failures ? 1 : 0;
}
