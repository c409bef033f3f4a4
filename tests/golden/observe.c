/* Sessions of the golden runner that are watched: who allocates, what is printed after which
 * statement, what is alive after a run; and the folders in which programs run. */
#include "tests/golden/runner.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[512]; /* a folder with a link to the tests */
int tests, failures;
static ckl_session *volatile current;
char current_path[1024];

void tap(bool ok, const char *title, const Text *why) {
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

static void on_alarm(int signo) {
  static const char text[] = "Bail out! a file did not end, not even when interrupted: ";
  static volatile sig_atomic_t times;
  (void)signo;
  if (times++ || !current) {
    if (write(1, text, sizeof text - 1) < 0 || write(1, current_path, strlen(current_path)) < 0 ||
        write(1, "\n", 1) < 0)
      _exit(3);
    _exit(2);
  }
  ckl_interrupt(current);
  alarm(20);
}

static void on_crash(int signo) {
  static const char text[] = "Bail out! crash in ";
  if (write(1, text, sizeof text - 1) < 0 || write(1, current_path, strlen(current_path)) < 0 ||
      write(1, "\n", 1) < 0)
    _exit(3);
  signal(signo, SIG_DFL);
  raise(signo);
}

void watch_signals(void) {
  signal(SIGALRM, on_alarm);
  signal(SIGABRT, on_crash);
#ifndef CKL_SANITIZE
  signal(SIGSEGV, on_crash);
  signal(SIGFPE, on_crash);
#endif
}

/* ---- sessions under observation */

static void *count_alloc(void *ud, void *p, size_t old_size, size_t new_size) {
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

static void hear(void *ud, int stream, const char *text, size_t n) {
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

bool open_session(Run *r) {
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

void close_session(Run *r) {
  current = NULL;
  ckl_close(r->s);
  r->s = NULL;
}

void run_free(Run *r) {
  for (size_t i = 0; i < r->count; i++) clear(&r->said[i].text);
  free(r->said);
  clear(&r->out);
  clear(&r->diags);
}

void run(Run *r, Action action, const char *path) {
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

static const char *const leak_counters[] = {"values.live", "tape.live", "bytes.live"};

static void check_leaks(Text *why, Run *r, const int64_t before[3]) {
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

bool run_observed(Run *r, Text *why, Action action, const char *path) {
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

/* ---- folders */
static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

void collect(Names *files, const char *path) {
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

static void remove_below(const char *path) {
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
void make_scratch(void) {
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

void remove_scratch(void) {
  if (chdir("/")) return;
  remove_below(scratch);
  remove(scratch);
}

void enter_copy(const char *path, const Text *t) {
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

void enter_run_folder(void) {
  char full[600];
  snprintf(full, sizeof full, "%s/run", scratch);
  if (chdir(full)) die(full);
}
