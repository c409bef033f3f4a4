/* The engine: where code comes from, what is kept, what goes wrong. The code generator is this
 * program (fake-codegen.h); the real one is tried where it was built. */
#include "jit/engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "jit/engine/archive.h"
#include "jit/loop/loop_elem.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"
#include "tests/unit/fake-codegen.h"

static char top[200];

static void remove_all(const char *path) {
  DIR *d = opendir(path);
  char below[600];
  for (struct dirent *x; d && (x = readdir(d));) {
    if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..")) continue;
    snprintf(below, sizeof below, "%s/%s", path, x->d_name);
    remove_all(below);
  }
  if (d) closedir(d);
  remove(path);
}

static char *in_top(const char *name) {
  static char path[4][300];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], sizeof *path, "%s/%s", top, name);
  return path[next];
}

/* An engine with what it said and what it was asked. */
typedef struct Test {
  Failing f;
  Mem m;
  Arena arena;
  EngConfig config;
  Engine *g;
  char log[4000];
  Err e;
  bool ok;
  int number; /* which kernel */
  EngKernel *kernel;
  bool known; /* ask for what was made before */
} Test;

static void hear(void *ud, const char *text) {
  Test *t = ud;
  size_t n = strlen(t->log);
  snprintf(t->log + n, sizeof t->log - n, "%s\n", text);
}

static void open_it(void *ud) {
  Test *t = ud;
  t->g = eng_open(&t->m, &t->config);
}

static void begin(Test *t, const char *how) {
  *t = (Test){.ok = false};
  failing_init(&t->f, &t->m, 0);
  arena_init(&t->arena, &t->m);
  t->config.codegen = fake_path();
  setenv("CKL_FAKE", how, 1);
  t->config.threads = 2;
  t->config.log = hear;
  t->config.ud = t;
}

static void start(Test *t) {
  t->g = NULL;
  check_int(mem_protect(&t->m, open_it, t), ==, MEM_OK);
}

static void finish(Test *t) {
  eng_close(t->g);
  arena_free(&t->arena);
  mem_close(&t->m);
  check(failing_clean(&t->f, &t->m));
  check(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* Kernel number n: adds n to each element of an i64 buffer. */
static Kernel *kernel(Arena *a, int n) {
  Kernel *k = lp_new(a);
  int in = lp_buf(k, LB_IN, DT_I64), out = lp_buf(k, LB_OUT, DT_I64);
  LVal i = lp_par(k, lp_size(k, 0));
  lp_store(k, out, i, lp_bin(k, RB_ADD, lp_load(k, in, i), lp_i(k, 1000000 + n)));
  lp_end(k);
  return k;
}

static void ask_it(void *ud) {
  Test *t = ud;
  Kernel *k = kernel(&t->arena, t->number);
  size_t bytes;
  t->kernel = t->known ? eng_known(t->g, k, &bytes) : eng_kernel(t->g, k, &t->e);
}

static EngKernel *ask(Test *t, int n) {
  t->number = n;
  t->kernel = NULL;
  t->e.text[0] = 0;
  t->ok = mem_protect(&t->m, ask_it, t) == MEM_OK;
  return t->kernel;
}

static size_t text_length(Test *t, int n) {
  Buf b = {0};
  buf_init_arena(&b, &t->arena);
  lp_print(&b, kernel(&t->arena, n));
  return b.n;
}

/* Asks for a kernel, waits for it, runs the fake object's code. */
static bool works(Test *t, int n) {
  EngKernel *k = ask(t, n);
  if (!k || !eng_wait(t->g, &k, 1, NULL, &t->e)) return false;
  int64_t got[4] = {0};
  void *buf[2] = {got, got};
  KStatus st = {0};
  if (!eng_run(t->g, eng_code(k), buf, NULL, 1, 1, 0, &st, NULL)) return false;
  t->f.nth = 0; /* what follows is the test's own memory */
  return got[0] == (int64_t)text_length(t, n) && got[1] == 22 && got[3] == 42;
}

static void t_generates(void) {
  Test t;
  begin(&t, "");
  start(&t);
  EngKernel *k[200];
  for (int i = 0; i < 200; i++) check(k[i] = ask(&t, i));
  for (int i = 0; i < 200; i++) check_ptr(ask(&t, i), ==, k[i]);
  check(eng_wait(t.g, k, 200, NULL, &t.e));
  for (int i = 0; i < 200; i++) check(eng_code(k[i]));
  check(works(&t, 7));
  EngCount c = eng_count(t.g);
  check_int(c.loaded, ==, 200);
  check_int(c.generated, ==, 200);
  check_int(c.failed + c.rejected + c.from_disk + c.installed, ==, 0);
  check_int(c.processes, >=, 1);
  check_has(t.log, "compiling kernel");
  finish(&t);
}

static void t_no_generator(void) {
  Test t;
  begin(&t, "");
  t.config.codegen = NULL;
  start(&t);
  check(!ask(&t, 1));
  check_has(t.e.text, "no code generator");
  finish(&t);
  begin(&t, "");
  t.config.codegen = "/no/such/thing";
  start(&t);
  check(!ask(&t, 1));
  check_has(t.e.text, "no code generator");
  check_has(t.e.text, "/no/such/thing");
  finish(&t);
}

static void goes_wrong(const char *how, const char *text) {
  Test t;
  begin(&t, how);
  start(&t);
  EngKernel *k[3];
  for (int i = 0; i < 3; i++) need((k[i] = ask(&t, i)));
  check(!eng_wait(t.g, k, 3, NULL, &t.e));
  check_has(t.e.text, text);
  check_ptr(eng_code(k[0]), ==, NULL);
  check_ptr(ask(&t, 0), ==, k[0]); /* stays failed, without another process */
  int64_t processes = eng_count(t.g).processes;
  check(!eng_wait(t.g, k, 1, NULL, &t.e));
  check_int(eng_count(t.g).processes, ==, processes);
  check_int(eng_count(t.g).loaded, ==, 0);
  finish(&t);
}

static void t_cache(void) {
  for (int round = 0; round < 3; round++) {
    Test t;
    begin(&t, "");
    t.config.cache = in_top("cache/ckl");
    start(&t);
    for (int i = 0; i < 20; i++) check(works(&t, i));
    EngCount c = eng_count(t.g);
    check_int(c.generated, ==, round ? 0 : 20);
    check_int(c.from_disk, ==, round ? 20 : 0);
    check_int(c.processes == 0, ==, round > 0);
    if (round) check_str(t.log, "");
    finish(&t);
  }
  Test known;
  begin(&known, "");
  known.config.cache = in_top("cache/ckl");
  start(&known);
  known.known = true;
  check(ask(&known, 5));
  check(!ask(&known, 77));
  known.known = false;
  check(works(&known, 77));
  known.known = true;
  check(ask(&known, 77));
  check_int(eng_count(known.g).generated, ==, 1);
  check_int(eng_count(known.g).from_disk, ==, 1);
  finish(&known);
  /* another level finds nothing */
  Test t;
  begin(&t, "");
  t.config.cache = in_top("cache/ckl");
  t.config.level = ENG_X86_64_V3;
  start(&t);
  check(works(&t, 1));
  check_int(eng_count(t.g).generated, ==, 1);
  finish(&t);
}

static void t_record(void) {
  Test t;
  char path[600] = "";
  begin(&t, "");
  mkdir(in_top("record"), 0700);
  t.config.record = in_top("record");
  start(&t);
  check(works(&t, 1));
  check(works(&t, 1));
  DIR *d = opendir(in_top("record"));
  int n = 0;
  for (struct dirent *x; d && (x = readdir(d));)
    if (x->d_name[0] != '.') n++, snprintf(path, sizeof path, "%s/%s", in_top("record"), x->d_name);
  if (d) closedir(d);
  check_int(n, ==, 1);
  check(strlen(path) > 4 && !strcmp(path + strlen(path) - 4, ".ckk"));
  Buf b = {0};
  char bytes[2000] = "";
  buf_init_arena(&b, &t.arena);
  lp_print(&b, kernel(&t.arena, 1));
  FILE *in = fopen(path, "r");
  check(in && fread(bytes, 1, sizeof bytes, in) == b.n && !memcmp(bytes, b.s, b.n));
  if (in) fclose(in);
  finish(&t);
}

static void t_damaged_cache(void) {
  Test t;
  char path[600];
  DIR *d = opendir(in_top("cache/ckl"));
  need(d);
  for (struct dirent *x; (x = readdir(d));) { /* as if a disk had lost a byte in each */
    if (x->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", in_top("cache/ckl"), x->d_name);
    int fd = open(path, O_RDWR);
    unsigned char c;
    check(pread(fd, &c, 1, 300) == 1);
    c ^= 4;
    check(pwrite(fd, &c, 1, 300) == 1);
    close(fd);
  }
  closedir(d);
  begin(&t, "");
  t.config.cache = in_top("cache/ckl");
  start(&t);
  for (int i = 0; i < 20; i++) check(works(&t, i));
  EngCount c = eng_count(t.g);
  check_int(c.generated, ==, 20);
  check_int(c.rejected, ==, 20);
  check_has(t.log, "damaged");
  finish(&t);
  begin(&t, "");
  t.config.cache = in_top("cache/ckl");
  start(&t);
  check(works(&t, 3));
  check_int(eng_count(t.g).from_disk, ==, 1);
  finish(&t);
}

static void t_no_cache(void) {
  Test t;
  begin(&t, "");
  t.config.cache = "/proc/no/such";
  start(&t);
  for (int i = 0; i < 5; i++) check(works(&t, i));
  check_has(t.log, "code is not kept on disk: /proc/no");
  char *first = strstr(t.log, "not kept");
  check(first && !strstr(first + 1, "not kept"));
  finish(&t);
}

static void t_gone_cache(void) {
  Test t;
  begin(&t, "");
  t.config.cache = in_top("gone");
  start(&t);
  check(works(&t, 0));
  remove_all(in_top("gone"));
  for (int i = 1; i < 5; i++) check(works(&t, i));
  char *first = strstr(t.log, "no longer kept");
  check(first && !strstr(first + 1, "no longer kept"));
  finish(&t);
}

/* Writes an archive of kernels 0 .. n-1. */
static void write_archive(int n, const unsigned char *build, EngLevel level) {
  static unsigned char object[30][ELF_MOST];
  ArchiveItem items[31];
  Test t;
  begin(&t, "");
  for (int i = 0; i < n; i++) {
    Buf b = {0};
    buf_init_arena(&b, &t.arena);
    lp_print(&b, kernel(&t.arena, i));
    items[i] = (ArchiveItem){.text = b.s, .text_n = b.n, .object = (char *)object[i]};
    items[i].object_n = elf_object(object[i], (int64_t)b.n, false);
  }
  items[n] = items[0]; /* given twice */
  mkdir(in_top("installed"), 0755);
  int fd = open(in_top("installed/kernels-x86-64.bin"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  check(archive_write(fd, level, build, items, (size_t)n + 1));
  close(fd);
  finish(&t);
}

static void t_installed(void) {
  Test t;
  unsigned char build[CACHE_BUILD];
  Err e;
  need(archive_build_id(fake_path(), build, &e));
  write_archive(30, build, ENG_X86_64);
  begin(&t, "kill 9");
  t.config.installed = in_top("installed");
  start(&t);
  for (int i = 0; i < 30; i++) check(works(&t, i));
  EngCount c = eng_count(t.g);
  check_int(c.installed, ==, 30);
  check_int(c.processes, ==, 0);
  check(!works(&t, 30));
  finish(&t);
  begin(&t, "");
  t.config.codegen = NULL; /* they work without a code generator */
  t.config.installed = in_top("installed");
  start(&t);
  check(works(&t, 2));
  check(!ask(&t, 31));
  finish(&t);
  build[0] ^= 1;
  write_archive(30, build, ENG_X86_64);
  begin(&t, "");
  t.config.installed = in_top("installed");
  start(&t);
  check(works(&t, 2));
  check_int(eng_count(t.g).generated, ==, 1);
  check_has(t.log, "another code generator");
  finish(&t);
}

/* Whatever byte of an archive is wrong: it is noticed or does not matter, and code is right. */
static void t_damaged_archive(void) {
  unsigned char build[CACHE_BUILD];
  Err e = {.text = ""};
  memset(build, 1, sizeof build);
  write_archive(3, build, ENG_X86_64);
  const char *path = in_top("installed/kernels-x86-64.bin");
  char text[3][2000];
  size_t text_n[3];
  Test t;
  begin(&t, "");
  for (int i = 0; i < 3; i++) {
    Buf b = {0};
    buf_init_arena(&b, &t.arena);
    lp_print(&b, kernel(&t.arena, i));
    memcpy(text[i], b.s, text_n[i] = b.n);
  }
  finish(&t);
  struct stat st;
  need(!stat(path, &st));
  for (off_t at = 0; at <= st.st_size; at++) {
    int fd = open(path, O_RDWR);
    unsigned char old = 0, bad;
    Archive r;
    if (at < st.st_size) {
      check(pread(fd, &old, 1, at) == 1);
      bad = old ^ (unsigned char)(1u << (at % 8));
      check(pwrite(fd, &bad, 1, at) == 1);
    }
    if (archive_open(&r, path, ENG_X86_64, build, &e))
      for (int i = 0; i < 3; i++) {
        size_t n = 0;
        const void *object = archive_find(&r, text[i], text_n[i], &n, &e);
        unsigned char want[ELF_MOST];
        size_t want_n = elf_object(want, (int64_t)text_n[i], false);
        check(!object || (n == want_n && !memcmp(object, want, n)));
        check(object || at < st.st_size);
      }
    archive_close(&r);
    if (at < st.st_size) check(pwrite(fd, &old, 1, at) == 1);
    close(fd);
  }
  for (off_t n = 0; n < st.st_size; n += 37) { /* cut short */
    Archive r;
    check(!truncate(path, st.st_size - 1 - n));
    if (archive_open(&r, path, ENG_X86_64, build, &e))
      for (int i = 0; i < 3; i++) {
        size_t m = 0;
        archive_find(&r, text[i], text_n[i], &m, &e);
      }
    archive_close(&r);
  }
}

static void t_perf_map(void) {
  Test t;
  char path[64], line[200] = "";
  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  unlink(path);
  begin(&t, "");
  t.config.perf_map = true;
  start(&t);
  check(works(&t, 1));
  FILE *in = fopen(path, "r");
  need(in);
  check(fgets(line, sizeof line, in));
  fclose(in);
  check_has(line, " 2f ckl_kernel_"); /* 47 bytes of code */
  finish(&t);
  unlink(path);
  check(!symlink("/dev/null", path));
  begin(&t, "");
  t.config.perf_map = true;
  start(&t);
  check(works(&t, 1));
  check_has(t.log, "no map for perf");
  finish(&t);
  unlink(path);
}

static void t_interrupt(void) {
  Test t;
  begin(&t, "hang");
  start(&t);
  EngKernel *k = ask(&t, 1);
  Interrupt interrupt = 1;
  check(!eng_wait(t.g, &k, 1, &interrupt, &t.e));
  check_str(t.e.text, "interrupted");
  check_ptr(eng_code(k), ==, NULL);
  finish(&t); /* without waiting for what hangs */
}

static void t_fork(void) {
  Test t;
  begin(&t, "slow 300");
  start(&t);
  EngKernel *k = ask(&t, 1);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    bool ok = eng_wait(t.g, &k, 1, NULL, &t.e) && works(&t, 1) && works(&t, 2);
    eng_close(t.g);
    arena_free(&t.arena);
    mem_close(&t.m);
    _exit(ok && failing_clean(&t.f, &t.m) ? 0 : 1);
  }
  int status = 1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  check_int(status, ==, 0);
  check(eng_wait(t.g, &k, 1, NULL, &t.e));
  finish(&t);
}

/* Code goes when nobody uses it and room is asked for, and comes again. */
static void t_unload(void) {
  Test t;
  begin(&t, "");
  start(&t);
  check(works(&t, 1) && works(&t, 1) && works(&t, 2));
  EngKernel *one = ask(&t, 1), *two = ask(&t, 2);
  size_t live = t.m.live;
  for (int i = 0; i < 3; i++) eng_drop(t.g, one);
  eng_drop(t.g, two);
  check_int((int64_t)eng_unused(t.g), >, 0);
  check_ptr(ask(&t, 1), ==, one); /* it is still there */
  check_int((int64_t)eng_unused(t.g), ==, 0);
  eng_trim(t.g);
  check_ptr(eng_code(one), !=, NULL);
  eng_drop(t.g, one);
  size_t unused = eng_unused(t.g);
  eng_trim(t.g);
  check_int((int64_t)eng_unused(t.g), ==, 0);
  check_int((int64_t)(live - t.m.live), ==, (int64_t)unused);
  check_ptr(eng_code(one), ==, NULL);
  check_ptr(eng_code(two), !=, NULL); /* has a user */
  check(works(&t, 1));
  /* what had no room is tried again by whoever asks next */
  EngKernel *three = ask(&t, 3);
  t.m.limit = t.m.live + MEM_FILING;
  check(three && !eng_wait(t.g, &three, 1, NULL, &t.e) && t.e.nomem);
  t.m.limit = 0;
  t.e.nomem = false;
  check(works(&t, 3));
  finish(&t);
}

static void t_nomem(void) {
  int nth = 1, worked = 0;
  for (; nth < 60; nth++) {
    Test t;
    begin(&t, "");
    t.config.cache = in_top("nomem");
    t.config.installed = in_top("installed");
    t.f.nth = nth;
    int code = mem_protect(&t.m, open_it, &t);
    check(code == MEM_OK || code == MEM_ERR_NOMEM);
    if (code == MEM_OK && works(&t, nth)) worked++;
    finish(&t);
  }
  check_int(worked, >, 10);
  check_int(worked, <, 55);
}

/* ---- the real code generator */

#ifdef HAVE_CODEGEN

static const char *real_path(void) {
  static char path[4096];
  const char *dir = getenv("builddir");
  snprintf(path, sizeof path, "%s/ckl-codegen", dir ? dir : ".");
  return path;
}

static bool adds(Test *t, int n, int64_t count) {
  static int64_t in[5000], out[5000];
  EngKernel *k = ask(t, n);
  if (!k || !eng_wait(t->g, &k, 1, NULL, &t->e)) return false;
  for (int64_t i = 0; i < count; i++) in[i] = i * i;
  void *buf[2] = {in, out};
  KStatus st = {0};
  if (!eng_run(t->g, eng_code(k), buf, &count, count, 1000 * count, 0, &st, NULL)) return false;
  for (int64_t i = 0; i < count; i++)
    if (out[i] != i * i + 1000000 + n) return false;
  return true;
}

static void t_real(void) {
  for (int level = 0; level <= (int)eng_host_level(); level++) {
    Test t;
    begin(&t, "");
    t.config.codegen = real_path();
    t.config.level = (EngLevel)level;
    t.config.cache = in_top("real");
    for (int round = 0; round < 2; round++) {
      start(&t);
      for (int n = 0; n < 3; n++)
        check_msg(adds(&t, n, 5000), "%s: %s", eng_targets[level].name, t.e.text);
      check_int(eng_count(t.g).generated, ==, round ? 0 : 3);
      if (!round) eng_close(t.g);
    }
    finish(&t);
  }
}

static void dump_it(void *ud) {
  Test *t = ud;
  Buf b = {0};
  buf_init_arena(&b, &t->arena);
  Kernel *k = kernel(&t->arena, 1);
  check(eng_dump(t->g, k, CODEGEN_DUMP_IR, &b, &t->e));
  check_has(b.s, "define");
  b.n = 0;
  check(eng_dump(t->g, k, CODEGEN_DUMP_ASM, &b, &t->e));
  check_has(b.s, "ret");
}

static void t_dump(void) {
  Test t;
  begin(&t, "");
  t.config.codegen = real_path();
  start(&t);
  check_int(mem_protect(&t.m, dump_it, &t), ==, MEM_OK);
  check(adds(&t, 1, 10)); /* the same kernel as code */
  finish(&t);
}

/* The code generator fails for each kernel; afterwards it is well again, and the session with
 * it. */
static void t_real_fails(const char *how, const char *text) {
  Test t;
  begin(&t, "");
  setenv("CKL_CODEGEN_TEST", how, 1);
  t.config.codegen = real_path();
  t.config.threads = 1;
  start(&t);
  check(!adds(&t, 1, 10));
  check_has(t.e.text, text);
  setenv("CKL_CODEGEN_TEST", "", 1);
  check(!adds(&t, 1, 10)); /* stays failed */
  /* a process that was started before is still ill */
  check_msg(adds(&t, 2, 10) || adds(&t, 3, 10), "%s", t.e.text);
  unsetenv("CKL_CODEGEN_TEST");
  finish(&t);
}

#endif

/* ---- running */

typedef struct Seen {
  _Atomic int64_t iterations, pieces, longest, wrong_control;
  int64_t *scratch;
} Seen;

static void look_around(void *const *buf, const int64_t *arg, int64_t lo, int64_t hi, void *local,
                        KStatus *st) {
  Seen *s = buf[0];
  s->iterations += hi - lo;
  s->pieces++;
  if (hi - lo > s->longest) s->longest = hi - lo;
#if defined(__x86_64__)
  s->wrong_control += _mm_getcsr() != 0x1f80;
  _mm_setcsr(0xffc0);
#endif
  if (arg && arg[0]) memset(local, (int)lo, (size_t)arg[0]);
  if (lo == 17) st->failed = 1;
}

static void t_run(int threads) {
  Test t;
  begin(&t, "");
  t.config.threads = threads;
  start(&t);
  check_int(eng_threads(t.g), ==, threads);
  eng_awake(t.g, true);
  int64_t bytes[1] = {1000};
  check(eng_scratch(t.g, 1000));
  check(eng_scratch(t.g, 10));
  const int64_t works_[] = {0, 1, 100, 39999, 40000, 1000000, 100000000, INT64_MAX};
  const int64_t iterations[] = {0, 1, 2, 3, 17, 100, 4096, 100000};
  for (size_t w = 0; w < sizeof works_ / sizeof *works_; w++)
    for (size_t i = 0; i < sizeof iterations / sizeof *iterations; i++) {
      Seen s = {0};
      KStatus st = {0};
      void *buf[1] = {&s};
#if defined(__x86_64__)
      _mm_setcsr(_mm_getcsr() | _MM_EXCEPT_INEXACT); /* any arithmetic may set it */
      unsigned before = _mm_getcsr();
#endif
      check(eng_run(t.g, look_around, buf, bytes, iterations[i], works_[w], 1000, &st, NULL));
#if defined(__x86_64__)
      check_hex(_mm_getcsr(), ==, before);
#endif
      check_int(s.iterations, ==, iterations[i]);
      check_int(s.wrong_control, ==, 0);
      if (works_[w] < 40000 && iterations[i] < 40000) check_int(s.pieces, <=, 1);
      if (works_[w] == INT64_MAX) check_int(s.longest, <=, 1);
    }
  Interrupt interrupt = 1;
  Seen s = {0};
  KStatus st = {0};
  void *buf[1] = {&s};
  check(!eng_run(t.g, look_around, buf, NULL, 100000, 1000000000, 0, &st, &interrupt));
  check(!eng_run(t.g, look_around, buf, NULL, 10, 10, 0, &st, &interrupt));
  check_int(s.iterations, ==, 0);
  eng_awake(t.g, false);
  finish(&t);
}

/* A kernel of one long iteration. */
static void long_iteration(void *const *buf, const int64_t *arg, int64_t lo, int64_t hi,
                           void *local, KStatus *st) {
  (void)arg, (void)lo, (void)hi, (void)local;
  for (int64_t *iterations = buf[0]; !st->stop; ++*iterations) {
    if (*iterations == 1000) interrupt_set(buf[1], true); /* as a signal handler does */
  }
}

static void t_stop(void) {
  Test t;
  KStatus session = {0};
  begin(&t, "");
  t.config.status = &session;
  start(&t);
  for (int round = 0; round < 2; round++) {
    int64_t iterations = 0;
    void *buf[2] = {&iterations, &session.stop};
    KStatus st = {0};
    int64_t work = round ? 100 : 1000000000;
    check(!eng_run(t.g, long_iteration, buf, NULL, 1, work, 0, &st, NULL));
    check_int(iterations, >=, 1000);
    Seen s = {0};
    buf[0] = &s;
    interrupt_set(&session.stop, false);
    check(eng_run(t.g, look_around, buf, NULL, 18, 18, 0, &st, NULL)); /* well again */
    check_int(s.iterations, ==, 18);
    check_int(st.failed, ==, 0);
  }
  finish(&t);
}

static void t_find(void) {
  Test t;
  begin(&t, "");
  EngConfig c = {0};
  setenv("CKL_CODEGEN", "/some/where", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  eng_find(&t.arena, &c);
  check_str(c.codegen, "/some/where");
  check_str(c.cache, "/cache/ckl");
  c = (EngConfig){.cache = "/mine", .codegen = "/that"};
  eng_find(&t.arena, &c);
  check_str(c.codegen, "/that");
  check_str(c.cache, "/mine");
  setenv("CKL_CODEGEN", "", 1);
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", "/home/somebody", 1);
  c = (EngConfig){0};
  eng_find(&t.arena, &c);
  check_str(c.codegen, NULL);
  check_str(c.cache, "/home/somebody/.cache/ckl");
  unsetenv("HOME");
  c = (EngConfig){0};
  eng_find(&t.arena, &c);
  check_str(c.cache, NULL);
  unsetenv("CKL_CODEGEN");
  unsetenv("XDG_CACHE_HOME");
  finish(&t);
}

static void t_levels(void) {
  EngLevel level;
  for (int i = 0; i < ENG_LEVEL_COUNT; i++)
    check(eng_level_find(eng_targets[i].name, &level) && (int)level == i);
  check(!eng_level_find("x86-64-v5", &level));
  check_int(eng_host_level(), <, ENG_LEVEL_COUNT);
}

int main(int argc, char **argv) {
  (void)argv;
  fake_main(argc);
  const char *tmp = getenv("TMPDIR");
  snprintf(top, sizeof top, "%s/t-engine.XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(top)) return 1;
  TEST(t_generates(), "kernels are generated, each once");
  TEST(t_no_generator(), "without a code generator there is an error");
  TEST(goes_wrong("error bad kernel", "bad kernel"),
       "a kernel that cannot be compiled stays failed");
  TEST(goes_wrong("kill 9", "signal 9"), "a killed code generator is an error");
  TEST(goes_wrong("big 3", "object file"), "an object that is none is an error");
  TEST(goes_wrong("garbage", "nonsense"), "nonsense is an error");
  TEST(t_cache(), "code is kept on disk by text and level");
  TEST(t_record(), "texts of kernels are recorded");
  TEST(t_damaged_cache(), "damaged code on disk is made again");
  TEST(t_no_cache(), "where nothing can be kept it is said once");
  TEST(t_gone_cache(), "a cache that goes away is said once");
  TEST(t_installed(), "installed kernels are found without a process");
  TEST(t_damaged_archive(), "a damaged byte in installed kernels is noticed");
  TEST(t_perf_map(), "perf is told where code is, by no link");
  TEST(t_interrupt(), "waiting can be interrupted");
  TEST(t_fork(), "a forked child gets its kernels");
  TEST(t_unload(), "code without users is unloaded, and loaded again");
  TEST(t_nomem(), "out of memory leaks nothing");
#ifdef HAVE_CODEGEN
  TEST(t_real(), "the code generator makes code that runs, and that is found on disk");
  TEST(t_dump(), "the code generator shows what it makes");
  TEST(t_real_fails("fatal", "LLVM: out of registers"),
       "what LLVM cannot do is an error of one kernel");
  TEST(t_real_fails("abort", "signal 6"),
       "an abort of the code generator is an error of one kernel");
  TEST(t_real_fails("garbage", "nonsense"), "a code generator that talks nonsense is replaced");
#endif
  TEST(t_run(1), "1 thread: all iterations run in the language's floating-point environment");
  TEST(t_run(4), "4 threads: all iterations run in the language's floating-point environment");
  TEST(t_stop(), "a kernel is stopped in the middle of an iteration");
  TEST(t_find(), "the environment says where things are");
  TEST(t_levels(), "levels have names");
  remove_all(top);
  return tap_done();
}
