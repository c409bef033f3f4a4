/* Running kernels by machine code and by lp_run, and comparing every bit they leave.
 *
 * The code generator is the program ckl-codegen, one process per test program, asked over a socket
 * as a session does. Include after ref-naive.h. */
#ifndef TESTS_UNIT_KERNELS_H
#define TESTS_UNIT_KERNELS_H

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/engine/codegen.h"
#include "jit/engine/engine.h"
#include "jit/engine/load.h"

enum { GUARD = 64, MAX_BUFS = 80 };

static Arena arena;

static TAP_UNUSED void rewind_arena(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
}

static TAP_UNUSED void all_same(int64_t *count, int64_t n) {
  for (int i = 0; i < MAX_BUFS; i++) count[i] = n;
}

static struct {
  int fd;
  pid_t pid;
  uint64_t id;
} codegen;

static TAP_UNUSED bool codegen_start(void) {
  int fd[2];
  const char *path = getenv("CKL_TEST_CODEGEN");
  if (!path) path = "./ckl-codegen";
  if (access(path, X_OK) || socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) return false;
  fflush(stdout);
  codegen.pid = fork();
  if (codegen.pid == 0) {
    dup2(fd[1], 0);
    close(fd[0]);
    close(fd[1]);
    execl(path, path, (char *)NULL);
    _exit(127);
  }
  close(fd[1]);
  codegen.fd = fd[0];
  return codegen.pid > 0;
}

static TAP_UNUSED void codegen_stop(void) {
  int status = 0;
  close(codegen.fd);
  waitpid(codegen.pid, &status, 0);
  check_int(status, ==, 0);
}

static bool transfer(bool out, void *p, size_t n) {
  for (char *at = p; n;) {
    ssize_t k = out ? write(codegen.fd, at, n) : read(codegen.fd, at, n);
    if (k <= 0) return false;
    at += k;
    n -= (size_t)k;
  }
  return true;
}

/* What the code generator makes of a kernel: an object to *out, or with CODEGEN_TEXT flags a text
 * to *dump, malloc'ed. False after a failed check with the reason and the text. */
static bool compile_as(const char *text, unsigned level, unsigned flags, LoadCode *out,
                       char **dump) {
  CodegenFrame f = {.magic = CODEGEN_MAGIC,
                    .kind = CODEGEN_COMPILE,
                    .id = ++codegen.id,
                    .level = level,
                    .flags = flags,
                    .length = strlen(text)};
  Err e = {0};
  if (!transfer(true, &f, sizeof f) || !transfer(true, (void *)(uintptr_t)text, strlen(text)) ||
      !transfer(false, &f, sizeof f)) {
    return tap_fail(TAP_HERE, "the code generator is gone\n%s", text);
  }
  char *got = malloc(f.length + 1);
  bool ok = transfer(false, got, f.length);
  got[f.length] = 0;
  if (ok && f.kind == CODEGEN_TEXT && dump) {
    *dump = got;
    return true;
  }
  if (ok && f.kind == CODEGEN_OBJECT && out)
    ok = load_object(&mem, got, f.length, out, &e);
  else {
    err_set(&e, "%s", got);
    ok = false;
  }
  free(got);
  if (!ok) tap_fail(TAP_HERE, "level %u: %s\n%s", level, e.text, text);
  return ok;
}

static TAP_UNUSED bool compile_text(const char *text, EngLevel level, LoadCode *out) {
  return compile_as(text, (unsigned)level, 0, out, NULL);
}

/* Buffers of one kernel: `count` elements each, with guards around. */
typedef struct Room {
  char *p[MAX_BUFS];
  size_t bytes[MAX_BUFS];
} Room;

static void room_free(Room *r, size_t n) {
  for (size_t i = 0; i < n; i++) free(r->p[i]);
}

/* Drawn contents: ints below limit[b] where that is not 0, else anything. */
static void room_fill(Room *r, const Kernel *k, const int64_t *count, const int64_t *limit,
                      int how) {
  for (size_t b = 0; b < k->buf_count; b++) {
    DType dt = (DType)k->bufs[b].dtype;
    size_t size = dt_size(dt);
    int64_t n = k->bufs[b].kind == LB_LOCAL ? 0 : count[b];
    r->bytes[b] = (size_t)n * size + 2 * GUARD;
    r->p[b] = malloc(r->bytes[b]);
    memset(r->p[b], 0xa5, r->bytes[b]);
    Storage s = {.data = r->p[b] + GUARD};
    Tensor t = {.store = &s, .dtype = dt, .rank = 1, .dim = {n}, .stride = {1}};
    for (int64_t i = 0; i < n && k->bufs[b].kind != LB_OUT; i++) {
      if (dt_float(dt))
        set_f(&t, &i, draw_f(how));
      else if (limit && limit[b])
        set_i(&t, &i, below(limit[b]));
      else
        set_i(&t, &i, dt == DT_BOOL ? below(2) : draw_i(how));
    }
  }
}

static void room_copy(Room *to, const Room *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to->bytes[i] = from->bytes[i];
    to->p[i] = malloc(to->bytes[i]);
    memcpy(to->p[i], from->p[i], to->bytes[i]);
  }
}

/* NaNs are equal to NaNs; everything else, the guards too, byte for byte. */
static bool room_same(const char *what, const Kernel *k, const Room *got, const Room *want) {
  for (size_t b = 0; b < k->buf_count; b++) {
    size_t size = dt_size((DType)k->bufs[b].dtype), n = (got->bytes[b] - 2 * GUARD) / size;
    if (memcmp(got->p[b], want->p[b], GUARD) ||
        memcmp(got->p[b] + got->bytes[b] - GUARD, want->p[b] + want->bytes[b] - GUARD, GUARD)) {
      return tap_fail(TAP_HERE, "%s: b%d: written outside", what, (int)b);
    }
    for (size_t i = 0; i < n; i++) {
      const char *x = got->p[b] + GUARD + i * size, *y = want->p[b] + GUARD + i * size;
      if (memcmp(x, y, size) == 0) continue;
      Storage sx = {.data = (void *)(uintptr_t)x}, sy = {.data = (void *)(uintptr_t)y};
      Tensor t = {.store = &sx, .dtype = (DType)k->bufs[b].dtype}, u = t;
      u.store = &sy;
      int64_t zero = 0;
      if (!dt_float(t.dtype)) {
        return tap_fail(TAP_HERE, "%s: b%d[%d] is %lld, not %lld", what, (int)b, (int)i,
                        (long long)get_i(&t, &zero), (long long)get_i(&u, &zero));
      }
      double g = get_f(&t, &zero), w = get_f(&u, &zero);
      if (isnan(g) && isnan(w)) continue;
      return tap_fail(TAP_HERE, "%s: b%d[%d] is %a, not %a", what, (int)b, (int)i, g, w);
    }
  }
  return true;
}

/* One kernel as code at every level that this CPU runs. */
typedef struct Code {
  Arena arena;
  const Kernel *k;
  char *text;
  LoadCode code[ENG_LEVEL_COUNT];
} Code;

static TAP_UNUSED bool code_make(Code *c, const Kernel *k) {
  Err e = {0};
  Buf b;
  memset(c, 0, sizeof *c);
  arena_init(&c->arena, &mem);
  buf_init_arena(&b, &c->arena);
  c->k = k;
  lp_print(&b, k);
  c->text = b.s;
  if (!lp_verify(k, &e)) return tap_fail(TAP_HERE, "%s\n%s", e.text, c->text);
  for (int l = 0; l <= (int)eng_host_level(); l++)
    if (!compile_text(c->text, (EngLevel)l, &c->code[l])) return false;
  return true;
}

static TAP_UNUSED void code_free(Code *c) {
  for (int l = 0; l < ENG_LEVEL_COUNT; l++) load_free(&mem, &c->code[l]);
  arena_free(&c->arena);
}

/* Runs all iterations, in two parts, on drawn buffers of `count` elements. */
static TAP_UNUSED bool code_check(Code *c, const char *what, const int64_t *count,
                                  const int64_t *limit, const int64_t *arg, int how) {
  const Kernel *k = c->k;
  size_t n = k->buf_count;
  Room start, want;
  void *p[MAX_BUFS];
  Err e = {0};
  KStatus st = {0};
  int64_t iterations = lp_iterations(k, arg), cut = iterations ? below(iterations + 1) : 0;
  room_fill(&start, k, count, limit, how);
  room_copy(&want, &start, n);
  for (size_t b = 0; b < n; b++) p[b] = want.p[b] + GUARD;
  bool ok = lp_run_within(&mem, k, p, count, arg, 0, iterations, &st, &e);
  if (!ok) tap_fail(TAP_HERE, "%s: %s\n%s", what, e.text, c->text);
  size_t local = (size_t)lp_local_bytes(k, arg) + GUARD;
  for (int l = 0; l <= (int)eng_host_level() && ok; l++) {
    Room got;
    KStatus s = {0};
    char *scratch = aligned_alloc(64, (local + 63) / 64 * 64), title[200];
    memset(scratch, 0xee, local);
    room_copy(&got, &start, n);
    for (size_t b = 0; b < n; b++) p[b] = got.p[b] + GUARD;
    c->code[l].entry(p, arg, 0, cut, scratch, &s);
    c->code[l].entry(p, arg, cut, iterations, scratch, &s);
    snprintf(title, sizeof title, "%s at %s", what, eng_targets[l].name);
    ok = room_same(title, k, &got, &want);
    if (ok && s.failed != st.failed) {
      ok = tap_fail(TAP_HERE, "%s: failed is %d, not %d", title, (int)s.failed, (int)st.failed);
    }
    for (size_t i = local - GUARD; i < local && ok; i++)
      if ((unsigned char)scratch[i] != 0xee) ok = tap_fail(TAP_HERE, "%s: scratch overrun", title);
    free(scratch);
    room_free(&got, n);
    if (!ok && strlen(c->text) < 4000) tap_note("%s", c->text);
  }
  room_free(&start, n);
  room_free(&want, n);
  return ok;
}

#endif
