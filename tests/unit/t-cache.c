/* The cache: what was put comes back, whatever is damaged does not, and only our own folder is
 * used. */
#include "jit/engine/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/failing.h"

static char top[200]; /* a fresh folder */

static const char *in_top(const char *name) {
  static char path[4][300];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], sizeof *path, "%s/%s", top, name);
  return path[next];
}

static void remove_all(const char *path) {
  DIR *d = opendir(path);
  char below[600];
  if (d) {
    for (struct dirent *x; (x = readdir(d));) {
      if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..")) continue;
      snprintf(below, sizeof below, "%s/%s", path, x->d_name);
      remove_all(below);
    }
    closedir(d);
  }
  remove(path);
}

/* Files in a folder; the name of the last one to `name` where not NULL. */
static int files(const char *path, char *name) {
  DIR *d = opendir(path);
  int n = 0;
  if (!d) return 0;
  for (struct dirent *x; (x = readdir(d));) {
    if (x->d_name[0] == '.') continue;
    if (name) snprintf(name, 600, "%s/%s", path, x->d_name);
    n++;
  }
  closedir(d);
  return n;
}

typedef struct Open {
  Mem *m;
  const char *path;
  int64_t limit;
  Err e;
  Cache *c;
} Open;

static void open_it(void *ud) {
  Open *o = ud;
  o->c = cache_open(o->m, o->path, o->limit, &o->e);
}

static Cache *opened(Mem *m, const char *path, int64_t limit, Err *e) {
  Open o = {.m = m, .path = path, .limit = limit};
  mem_protect(m, open_it, &o);
  *e = o.e;
  return o.c;
}

static CacheKey key(const char *text, uint32_t level) {
  CacheKey k = {.text = text, .text_n = strlen(text), .level = level};
  memset(k.build, 0x5a, sizeof k.build);
  return k;
}

static bool holds(Mem *m, Cache *c, CacheKey k, const char *object) {
  Err e = {.text = ""};
  size_t n = 0;
  char *got = cache_get(c, &k, &n, &e);
  if (!got) return false;
  bool same = n == strlen(object) && !memcmp(got, object, n);
  mem_free(m, got, n);
  return same;
}

static void t_round(void) {
  Failing f;
  Mem m;
  Err e = {.text = ""};
  failing_init(&f, &m, 0);
  const char *path = in_top("deep/below/ckl");
  Cache *c = opened(&m, path, 1 << 20, &e);
  need(c);
  struct stat st;
  check(!stat(path, &st) && (st.st_mode & 0777) == 0700);
  CacheKey a = key("text a", 1), b = key("text b", 1), a2 = key("text a", 2), other = a;
  other.build[19] ^= 1;
  check(!holds(&m, c, a, "one"));
  check(cache_put(c, &a, "one", 3, &e));
  check(holds(&m, c, a, "one"));
  check(!holds(&m, c, b, "one"));
  check(!holds(&m, c, a2, "one"));
  check(cache_put(c, &b, "two", 3, &e));
  check(cache_put(c, &a2, "three", 5, &e));
  check(holds(&m, c, a, "one"));
  check(holds(&m, c, b, "two"));
  check(holds(&m, c, a2, "three"));
  check(cache_put(c, &a, "four", 4, &e));
  check(holds(&m, c, a, "four"));
  check_int(files(path, NULL), ==, 3);
  cache_close(c);
  c = opened(&m, path, 1 << 20, &e);
  check(holds(&m, c, a2, "three"));
  /* the name holds a part of the build id alone: the file says the rest */
  check(!holds(&m, c, other, "four"));
  check_int(files(path, NULL), ==, 2);
  cache_close(c);
  check(failing_clean(&f, &m));
}

static void write_file(const char *path, const void *bytes, size_t n, int mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
  if (fd < 0) return;
  check(write(fd, bytes, n) == (ssize_t)n);
  fchmod(fd, (mode_t)mode);
  close(fd);
}

static void t_damage(void) {
  Failing f;
  Mem m;
  Err e = {.text = ""};
  failing_init(&f, &m, 0);
  const char *path = in_top("damage");
  Cache *c = opened(&m, path, 1 << 20, &e);
  need(c);
  CacheKey k = key("a text of some length", 0);
  char name[600];
  need(cache_put(c, &k, "the object", 10, &e));
  check_int(files(path, name), ==, 1);
  char bytes[200], bad[201];
  int fd = open(name, O_RDONLY);
  ssize_t n = read(fd, bytes, sizeof bytes);
  close(fd);
  check_int(n, ==, 64 + 21 + 10);
  for (ssize_t i = 0; i < n; i++) /* every byte */
    for (int bit = 0; bit < 8; bit += 3) {
      memcpy(bad, bytes, (size_t)n);
      bad[i] ^= (char)(1 << bit);
      write_file(name, bad, (size_t)n, 0600);
      check_msg(!holds(&m, c, k, "the object"), "byte %d, bit %d", (int)i, bit);
      check_int(files(path, NULL), ==, 0);
    }
  for (ssize_t i = 0; i < n; i++) {
    write_file(name, bytes, (size_t)i, 0600);
    check_msg(!holds(&m, c, k, "the object"), "%d bytes", (int)i);
    check_int(files(path, NULL), ==, 0);
  }
  memcpy(bad, bytes, (size_t)n);
  bad[n] = 0;
  write_file(name, bad, (size_t)n + 1, 0600);
  check(!holds(&m, c, k, "the object"));
  write_file(name, bytes, (size_t)n, 0622); /* others may write */
  check(!holds(&m, c, k, "the object"));
  check_int(files(path, NULL), ==, 0);
  check(!symlink("/dev/zero", name));
  check(!holds(&m, c, k, "the object"));
  check_int(files(path, NULL), ==, 0);
  check(!mkfifo(name, 0600));
  check(!holds(&m, c, k, "the object"));
  check_int(files(path, NULL), ==, 0);
  check(cache_put(c, &k, "the object", 10, &e)); /* built again, it is there again */
  check(holds(&m, c, k, "the object"));
  cache_close(c);
  check(failing_clean(&f, &m));
}

static void refused(const char *path, const char *why) {
  Mem m;
  Err e = {.text = ""};
  mem_init(&m, NULL, NULL);
  Cache *c = opened(&m, path, 1000, &e);
  check(!c);
  check_has(e.text, why);
  cache_close(c);
}

static void t_folder(void) {
  mkdir(in_top("open"), 0700);
  chmod(in_top("open"), 0750);
  refused(in_top("open"), "0700");
  chmod(in_top("open"), 0702);
  refused(in_top("open"), "0700");
  chmod(in_top("open"), 0700);
  check(!symlink(in_top("open"), in_top("link")));
  refused(in_top("link"), "no folder");
  write_file(in_top("file"), "", 0, 0600);
  refused(in_top("file"), "no folder");
  refused(in_top("file/below"), "folder");
  refused("/proc/no/such", "/proc/no/such");
  if (geteuid() == 0) {
    mkdir(in_top("theirs"), 0700);
    check(!chown(in_top("theirs"), 12345, 12345));
    refused(in_top("theirs"), "another user");
  }
}

static void age(const char *path, long seconds) {
  struct timespec t[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
  utimensat(AT_FDCWD, path, t, 0);
}

static void t_limit(void) {
  Mem m;
  Failing f;
  Err e = {.text = ""};
  failing_init(&f, &m, 0);
  const char *path = in_top("limit");
  char object[1000] = "", texts[40][20];
  Cache *c = opened(&m, path, 20000, &e);
  need(c);
  write_file(in_top("limit/notes.txt"), object, 1000, 0644); /* not ours: left alone */
  write_file(in_top("limit/tmp-1-1-1"), object, 1000, 0600); /* of a process that died */
  age(in_top("limit/tmp-1-1-1"), 10000);
  for (int i = 0; i < 40; i++) {
    snprintf(texts[i], sizeof texts[i], "text %d", i);
    CacheKey k = key(texts[i], 0);
    check(cache_put(c, &k, object, sizeof object, &e));
    /* all that are there get older by the order of their making */
    DIR *d = opendir(path);
    for (struct dirent *x; (x = readdir(d));) {
      struct stat st;
      char one[600];
      snprintf(one, sizeof one, "%s/%s", path, x->d_name);
      if (x->d_name[0] == '.' || stat(one, &st)) continue;
      struct timespec t[2] = {{st.st_mtime - 10, 0}, {st.st_mtime - 10, 0}};
      utimensat(AT_FDCWD, one, t, 0);
    }
    closedir(d);
  }
  int kept = 0;
  bool order = true;
  for (int i = 0; i < 40; i++) {
    CacheKey k = key(texts[i], 0);
    size_t n = 0;
    char *got = cache_get(c, &k, &n, &e);
    if (got)
      kept++;
    else if (kept)
      order = false; /* a newer one went before an older one */
    mem_free(&m, got, n);
  }
  check(order);
  check_int(kept, >=, 13);
  check_int(kept, <=, 18);
  check(!access(in_top("limit/notes.txt"), F_OK));
  check(access(in_top("limit/tmp-1-1-1"), F_OK));
  cache_close(c);
  check(failing_clean(&f, &m));
}

static void t_read_only(void) {
  if (geteuid() == 0) return; /* modes stop nobody then; a folder that went away does */
  Mem m;
  Err e = {.text = ""};
  mem_init(&m, NULL, NULL);
  Cache *c = opened(&m, in_top("still"), 1000, &e);
  need(c);
  chmod(in_top("still"), 0500);
  CacheKey k = key("text", 0);
  check(!cache_put(c, &k, "x", 1, &e));
  check_has(e.text, "denied");
  chmod(in_top("still"), 0700);
  cache_close(c);
}

static void t_gone(void) {
  Mem m;
  Err e = {.text = ""};
  mem_init(&m, NULL, NULL);
  Cache *c = opened(&m, in_top("gone"), 1000, &e);
  need(c);
  check(!rmdir(in_top("gone")));
  CacheKey k = key("text", 0);
  check(!cache_put(c, &k, "x", 1, &e));
  check(e.text[0]);
  check(!holds(&m, c, k, "x"));
  cache_close(c);
}

/* Processes that put and get the same few kernels see whole objects only. */
static void t_processes(void) {
  enum { PROCESSES = 4, ROUNDS = 300, TEXTS = 5 };
  pid_t child[PROCESSES];
  fflush(stdout);
  for (int p = 0; p < PROCESSES; p++) {
    child[p] = fork();
    if (child[p]) continue;
    Mem m;
    Err e = {.text = ""};
    mem_init(&m, NULL, NULL);
    Cache *c = opened(&m, in_top("shared"), 30000, &e); /* small enough that files go, too */
    if (!c) _exit(1);
    static char object[8000];
    int bad = 0;
    for (int i = 0; i < ROUNDS; i++) {
      char text[20];
      int which = (i * 7 + p) % TEXTS;
      snprintf(text, sizeof text, "kernel %d", which);
      CacheKey k = key(text, 0);
      memset(object, 'a' + which, sizeof object);
      size_t n = 0;
      char *got = cache_get(c, &k, &n, &e);
      if (e.text[0]) bad++;
      if (got && (n != sizeof object || memcmp(got, object, n))) bad++;
      mem_free(&m, got, n);
      if (i % 3 == 0 && !cache_put(c, &k, object, sizeof object, &e)) bad++;
    }
    cache_close(c);
    _exit(bad ? 2 : 0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int status = 1;
    while (waitpid(child[p], &status, 0) < 0 && errno == EINTR) continue;
    check_int(status, ==, 0);
  }
  char name[600] = "";
  int n = files(in_top("shared"), name);
  check_int(n, <=, 5);
  check_int(n, >=, 1);
}

static void t_nomem(void) {
  for (int nth = 1; nth < 8; nth++) {
    Failing f;
    Mem m;
    Err e = {.text = ""};
    failing_init(&f, &m, nth);
    Cache *c = opened(&m, in_top("nomem"), 1000, &e);
    if (c) {
      CacheKey k = key("text", 0);
      bool put = cache_put(c, &k, "object", 6, &e);
      check(put || e.nomem);
      bool got = holds(&m, c, k, "object");
      f.nth = 0;
      check(got || f.count >= nth);
      check(!put || holds(&m, c, k, "object")); /* the file stays */
      cache_close(c);
    }
    check(failing_clean(&f, &m));
  }
}

int main(void) {
  const char *tmp = getenv("TMPDIR");
  snprintf(top, sizeof top, "%s/t-cache.XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(top)) return 1;
  TEST(t_round(), "what was put comes back for the same text, level and code generator");
  TEST(t_damage(), "a file that is damaged in any byte or length is removed");
  TEST(t_folder(), "only a folder of our own, closed to others, is used");
  TEST(t_limit(), "the oldest files go when the limit is passed; foreign files stay");
  TEST(t_read_only(), "what cannot be written is an error");
  TEST(t_gone(), "a folder that went away is an error");
  TEST(t_processes(), "processes share a cache");
  TEST(t_nomem(), "out of memory is an error and leaks nothing");
  remove_all(top);
  return tap_done();
}
