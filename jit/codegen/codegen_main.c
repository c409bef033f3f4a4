/* ckl-codegen: the process that turns loop text into machine code.
 *
 * In: frames on descriptor 0 (codegen.h), or files named on the command line. Out: replies, or
 * files. Idea: all of LLVM lives here, so libckl stays small, starts fast, and survives whatever
 * goes wrong in a code generator. Invariant: one reply per request, in order; an invalid request
 * gets an error as its reply; an invalid stream ends the process.
 *
 *   ckl-codegen                             serve requests on descriptor 0
 *   ckl-codegen --object LEVEL FILE         the object of one kernel, to standard output
 *   ckl-codegen --ir|--asm LEVEL FILE       its LLVM IR or assembly
 *   ckl-codegen --ptx sm_80|sm_90 FILE      PTX for a GPU
 *   ckl-codegen --archive OUT LEVEL FILE... an archive of kernels to be installed (archive.h)
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <llvm-c/ErrorHandling.h>

#include "jit/engine/archive.h"
#include "jit/engine/codegen.h"
#include "jit/codegen/emit.h"

/* What one compilation reads and makes. When `mem` runs out of memory it jumps out of `work`. */
typedef struct Job {
  Mem *mem;
  Arena arena;
  const char *text;
  size_t text_n;
  unsigned level, flags;
  char *out, *err;
  size_t n, err_n;
} Job;

/* For tests: whether CKL_CODEGEN_TEST asks the process to fail in this way. */
static bool told(const char *way) {
  const char *how = getenv("CKL_CODEGEN_TEST");
  return how && !strcmp(how, way);
}

/* For tests: every load of a kernel reads at the largest i64 constant found before it. */
static void lead_astray(Kernel *k) {
  LVal most = LV_NONE;
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    if (in->op == LP_LOAD && most != LV_NONE) k->operands[in->operand0] = most;
    if (in->op != LP_CONST || in->dtype != DT_I64) continue;
    if (most == LV_NONE || in->imm > k->ins[most].imm) most = v;
  }
}

static void work(void *ud) {
  Job *j = ud;
  Err e = {0};
  arena_init(&j->arena, j->mem);
  Kernel *k = lp_read(&j->arena, j->text, j->text_n, &e);
  if (!k) {
    snprintf(j->err, j->err_n, "%s", e.text);
    return;
  }
  if (told("astray")) lead_astray(k);
  if (j->flags & (CODEGEN_DUMP_PTX | CODEGEN_DUMP_PTX_90)) {
    const char *gpu = j->flags & CODEGEN_DUMP_PTX ? "sm_80" : "sm_90";
    emit_ptx(k, gpu, &j->out, &j->n, j->err, j->err_n);
    return;
  }
  if (j->flags & CODEGEN_EMULATE) {
    emit_emulated(k, &eng_targets[j->level], &j->out, &j->n, j->err, j->err_n);
    return;
  }
  unsigned what = j->flags & CODEGEN_DUMP_IR    ? EMIT_IR
                  : j->flags & CODEGEN_DUMP_ASM ? EMIT_ASM
                                                : EMIT_OBJECT;
  emit_kernel(k, &eng_targets[j->level], what, &j->out, &j->n, j->err, j->err_n);
}

/* Makes the text or object that `flags` selects, malloc'ed; NULL with `err`. */
static char *compile(const char *text, size_t text_n, unsigned level, unsigned flags, size_t *n,
                     char *err, size_t err_n) {
  Mem mem;
  Job j = {.mem = &mem,
           .text = text,
           .text_n = text_n,
           .level = level,
           .flags = flags,
           .err = err,
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

/* ---- the service */

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

static CodegenFrame in_work; /* the request that is being compiled */

/* LLVM calls this when it cannot go on. The answer says why, and the process ends, since the state
 * of LLVM cannot be trusted any more. */
static void fatal(const char *reason) {
  char text[512];
  int n = snprintf(text, sizeof text, "LLVM: %s", reason);
  if (n >= (int)sizeof text) n = sizeof text - 1;
  if (in_work.magic) answer(in_work, CODEGEN_ERROR, text, (size_t)n);
  _exit(1);
}

/* For tests: fails in the way that CKL_CODEGEN_TEST names. */
static void misbehave(void) {
  if (told("abort")) abort();
  if (told("hang")) pause();
  if (told("garbage")) write_all("garbage, long enough to be taken for a frame", 44);
  if (told("fatal")) fatal("out of registers");
}

static bool serve(void) {
  CodegenFrame f;
  LLVMInstallFatalErrorHandler(fatal);
  while (read_all(&f, sizeof f)) {
    if (f.magic != CODEGEN_MAGIC || f.kind != CODEGEN_COMPILE || f.length > CODEGEN_MOST)
      return false;
    char *text = malloc(f.length + 1);
    if (!text || !read_all(text, f.length)) return false;
    text[f.length] = 0;
    in_work = f;
    misbehave();
    char err[512] = "";
    size_t n = 0;
    char *made = compile(text, f.length, f.level, f.flags, &n, err, sizeof err);
    CodegenKind kind = !made                    ? CODEGEN_ERROR
                       : f.flags & CODEGEN_DUMP ? CODEGEN_TEXT
                                                : CODEGEN_OBJECT;
    bool ok = answer(f, kind, made ? made : err, made ? n : strlen(err));
    free(made);
    free(text);
    if (!ok) return false;
  }
  return true;
}

/* ---- by hand */

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
  EngLevel level = ENG_X86_64;
  bool gpu = !strcmp(what, "--ptx");
  unsigned flags = 0;
  if (!strcmp(what, "--ir")) flags = CODEGEN_DUMP_IR;
  if (!strcmp(what, "--asm")) flags = CODEGEN_DUMP_ASM;
  if (gpu && !strcmp(level_name, "sm_80")) flags = CODEGEN_DUMP_PTX;
  if (gpu && !strcmp(level_name, "sm_90")) flags = CODEGEN_DUMP_PTX_90;
  char err[512] = "no such level";
  size_t text_n = 0, n = 0;
  char *text = read_file(path, &text_n), *made = NULL;
  if (!text)
    snprintf(err, sizeof err, "cannot read %s", path);
  else if (gpu ? flags != 0 : eng_level_find(level_name, &level))
    made = compile(text, text_n, level, flags, &n, err, sizeof err);
  if (made)
    fwrite(made, 1, n, stdout);
  else
    fprintf(stderr, "ckl-codegen: %s\n", err);
  free(made);
  free(text);
  return made ? 0 : 1;
}

/* Compiles the files into an archive. The file gets its name once it is complete. */
static int make_archive(const char *out, const char *level_name, char **files, size_t count) {
  char err[512] = "no such level", temp[PATH_MAX];
  unsigned char build[CACHE_BUILD];
  EngLevel level;
  Err e = {.text = ""};
  ArchiveItem *items = calloc(count + 1, sizeof *items);
  size_t n = 0;
  bool ok = items && eng_level_find(level_name, &level);
  if (ok && !(ok = archive_build_id("/proc/self/exe", build, &e)))
    snprintf(err, sizeof err, "%s", e.text);
  for (; ok && n < count; n++) {
    ArchiveItem *x = &items[n];
    char why[400] = "";
    char *text = read_file(files[n], &x->text_n);
    x->text = text;
    x->object = text ? compile(text, x->text_n, level, 0, &x->object_n, why, sizeof why) : NULL;
    ok = x->object != NULL;
    if (!ok) snprintf(err, sizeof err, "%.80s: %s", files[n], text ? why : "cannot be read");
  }
  int fd = -1;
  if (ok) {
    snprintf(temp, sizeof temp, "%s.tmp", out);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ok = fd >= 0 && archive_write(fd, (uint32_t)level, build, items, count);
    if (fd >= 0 && close(fd)) ok = false;
    if (!ok || rename(temp, out)) {
      snprintf(err, sizeof err, "cannot write %.400s", out);
      ok = false;
      remove(temp);
    }
  }
  if (!ok) fprintf(stderr, "ckl-codegen: %s\n", err);
  for (size_t i = 0; items && i < n; i++) {
    free((char *)items[i].text);
    free((char *)items[i].object);
  }
  free(items);
  return ok ? 0 : 1;
}

int main(int argc, char **argv) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* the session reports a crash */
  emit_init();
  if (argc == 1 && !isatty(0)) _exit(serve() ? 0 : 1); /* skips the destructors of LLVM */
  if (argc == 4 && (!strcmp(argv[1], "--object") || !strcmp(argv[1], "--ir") ||
                    !strcmp(argv[1], "--asm") || !strcmp(argv[1], "--ptx")))
    return by_hand(argv[1], argv[2], argv[3]);
  if (argc >= 4 && !strcmp(argv[1], "--archive"))
    return make_archive(argv[2], argv[3], argv + 4, (size_t)argc - 4);
  fprintf(stderr, "usage: ckl-codegen --object|--ir|--asm LEVEL FILE\n"
                  "       ckl-codegen --ptx sm_80|sm_90 FILE\n"
                  "       ckl-codegen --archive OUT LEVEL FILE...\n");
  return 2;
}
