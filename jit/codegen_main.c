/* ckl-codegen: the process that turns loop text into machine code.
 *
 * In: frames on descriptor 0 (jit/codegen.h), or files named on the command line. Out: replies, or files.
 * Idea: all of LLVM lives here, so libckl stays small, starts fast, and survives whatever goes wrong in a
 * code generator. Invariant: one reply per request, in order; a request that is wrong gets an error as its
 * reply; a stream that is wrong ends the process.
 *
 *   ckl-codegen                             serve requests on descriptor 0
 *   ckl-codegen --object LEVEL FILE         the object of one kernel, to standard output
 *   ckl-codegen --ir|--asm LEVEL FILE       its LLVM IR or assembly
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "jit/codegen.h"
#include "jit/emit.h"
#include "jit/engine.h"

/* Reads, verifies and compiles; leaves by the jump of `mem` when that runs out of memory. */
typedef struct Job {
  Mem *mem;
  Arena arena;
  const char *text;
  size_t text_n;
  unsigned level, flags;
  char *out, *err;
  size_t n, err_n;
} Job;

static void work(void *ud) {
  Job *j = ud;
  Err e = {0};
  arena_init(&j->arena, j->mem);
  Kernel *k = lp_read(&j->arena, j->text, j->text_n, &e);
  if (!k) {
    snprintf(j->err, j->err_n, "%s", e.text);
    return;
  }
  unsigned what = j->flags & CODEGEN_DUMP_IR ? EMIT_IR : j->flags & CODEGEN_DUMP_ASM ? EMIT_ASM : EMIT_OBJECT;
  emit_kernel(k, (EngLevel)j->level, what, &j->out, &j->n, j->err, j->err_n);
}

/* What `flags` asks for, malloc'ed; NULL with `err`. */
static char *compile(const char *text, size_t text_n, unsigned level, unsigned flags, size_t *n,
                     char *err, size_t err_n) {
  Mem mem;
  Job j = {.mem = &mem, .text = text, .text_n = text_n, .level = level, .flags = flags, .err = err,
           .err_n = err_n};
  if (level >= ENG_LEVEL_COUNT) {
    snprintf(err, err_n, "no such level");
    return NULL;
  }
  mem_init(&mem, NULL, NULL);
  if (mem_protect(&mem, work, &j) != MEM_OK) snprintf(err, err_n, "out of memory");
  arena_free(&j.arena);
  mem_close(&mem);
  *n = j.n;
  return j.out;
}

/* ---- the service ------------------------------------------------------------------------------ */

static bool read_all(void *to, size_t n) {
  for (char *p = to; n;) {
    ssize_t got = read(0, p, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= (size_t)got;
  }
  return true;
}

static bool write_all(const void *from, size_t n) {
  for (const char *p = from; n;) {
    ssize_t put = write(0, p, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put;
    n -= (size_t)put;
  }
  return true;
}

static bool answer(CodegenFrame f, CodegenKind kind, const char *text, size_t n) {
  f.kind = kind;
  f.length = n;
  return write_all(&f, sizeof f) && write_all(text, n);
}

/* For tests: the process goes wrong at the request that CKL_CODEGEN_TEST names. */
static void misbehave(const CodegenFrame *f) {
  const char *how = getenv("CKL_CODEGEN_TEST");
  if (!how) return;
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "hang")) pause();
  if (!strcmp(how, "garbage")) write_all("garbage, long enough to be taken for a frame", 44);
  if (!strcmp(how, "abort-second") && f->id % 2) abort();
}

static bool serve(void) {
  CodegenFrame f;
  while (read_all(&f, sizeof f)) {
    if (f.magic != CODEGEN_MAGIC || f.kind != CODEGEN_COMPILE || f.length > CODEGEN_MOST) return false;
    char *text = malloc(f.length + 1);
    if (!text || !read_all(text, f.length)) return false;
    text[f.length] = 0;
    misbehave(&f);
    char err[512] = "";
    size_t n = 0;
    char *made = compile(text, f.length, f.level, f.flags, &n, err, sizeof err);
    CodegenKind kind = !made ? CODEGEN_ERROR : f.flags ? CODEGEN_DUMP : CODEGEN_OBJECT;
    bool ok = answer(f, kind, made ? made : err, made ? n : strlen(err));
    free(made);
    free(text);
    if (!ok) return false;
  }
  return true;
}

/* ---- by hand ---------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *n) {
  FILE *in = fopen(path, "rb");
  if (!in) return NULL;
  char *text = NULL;
  size_t cap = 0;
  *n = 0;
  for (size_t got = 1; got; *n += got) {
    if (cap - *n < 4096) {
      char *grown = realloc(text, cap = cap ? 2 * cap : 1 << 16);
      if (!grown) break;
      text = grown;
    }
    got = fread(text + *n, 1, cap - *n, in);
  }
  fclose(in);
  return text;
}

static int by_hand(const char *what, const char *level_name, const char *path) {
  EngLevel level;
  unsigned flags = !strcmp(what, "--ir") ? CODEGEN_DUMP_IR : !strcmp(what, "--asm") ? CODEGEN_DUMP_ASM : 0;
  char err[512] = "no such level";
  size_t text_n = 0, n = 0;
  char *text = read_file(path, &text_n), *made = NULL;
  if (!text)
    snprintf(err, sizeof err, "cannot read %s", path);
  else if (eng_level_find(level_name, &level))
    made = compile(text, text_n, level, flags, &n, err, sizeof err);
  if (made)
    fwrite(made, 1, n, stdout);
  else
    fprintf(stderr, "ckl-codegen: %s\n", err);
  free(made);
  free(text);
  return made ? 0 : 1;
}

int main(int argc, char **argv) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* the session tells of a crash */
  emit_init();
  if (argc == 1 && !isatty(0)) return serve() ? 0 : 1;
  if (argc == 4 && (!strcmp(argv[1], "--object") || !strcmp(argv[1], "--ir") || !strcmp(argv[1], "--asm")))
    return by_hand(argv[1], argv[2], argv[3]);
  fprintf(stderr, "usage: ckl-codegen --object|--ir|--asm LEVEL FILE\n");
  return 2;
}
