/* The engine: from the text of a kernel to code in memory, and running it on threads.
 *
 * In: kernels in loop form. Out: functions, and launches of them. Idea: the printed text of a
 * kernel is its identity everywhere: in the table of this session, among installed kernels, in the
 * cache on disk, and in the request to the code generator. Whatever is found is checked by the
 * loader, and refused code is made again. Invariant: a kernel is asked for, loaded, failed or
 * unloaded. It leaves the first state once each time that it is asked for, and code that has users
 * is not unloaded.
 */
#define _GNU_SOURCE
#include "jit/engine/engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "jit/engine/archive.h"
#include "jit/engine/cache.h"
#include "jit/engine/emu.h"
#include "jit/engine/load.h"
#include "jit/engine/worker.h"
#include "runtime/pool.h"

enum { CACHE_LIMIT = 512 << 20 };

typedef enum State { ASKED, LOADED, FAILED, UNLOADED } State;

struct EngKernel {
  WorkItem item; /* first, so that an answer's item gives the kernel; its text is in the arena */
  State state;
  bool again; /* was requested once more after a fork */
  bool nomem; /* failed for want of memory: the next request tries it again */
  int64_t users;
  uint64_t hash;
  struct EngKernel *next; /* of the same bucket */
  LoadCode code;
  const char *error;
  Buf *dump; /* gets the text, if text is made instead of code */
};

struct Engine {
  Mem *mem;
  Arena arena; /* kernels, their texts, and paths */
  EngConfig config;
  EngKernel **buckets;
  size_t bucket_count, kernel_count; /* a power of two */
  size_t unused;                     /* bytes of loaded code without users */
  bool looked;                       /* opening archive, cache and workers was tried */
  const char *lack;                  /* why there are no workers */
  unsigned char build[CACHE_BUILD];
  Archive installed;
  Cache *cache;
  Workers *workers;
  Pool *pool;
  Emu *emu; /* made by the first kernel that is emulated */
  bool awake;
  char *scratch;
  size_t scratch_each, scratch_size;
  bool held;
  KStatus *status, own; /* of the running kernel; used if the configuration has none */
  FILE *perf;
  EngCount count;
};

/* ---- where things are */

/* Finds the folder of the file with this code: the program, or a library. False if the system does
 * not know it. */
static bool own_folder(char out[PATH_MAX]) {
  Dl_info here, program;
  char link[PATH_MAX];
  void *code = (void *)(uintptr_t)own_folder, *headers = (void *)getauxval(AT_PHDR);
  if (!dladdr(code, &here) || !here.dli_fname) return false;
  const char *path = here.dli_fname;
  if (headers && dladdr(headers, &program) && program.dli_fbase == here.dli_fbase) {
    ssize_t n = readlink("/proc/self/exe", link, sizeof link - 1);
    if (n <= 0) return false;
    link[n] = 0;
    path = link;
  }
  if (!realpath(path, out)) return false;
  char *slash = strrchr(out, '/');
  if (!slash) return false;
  *slash = 0;
  return true;
}

/* Returns the path of the first file that exists: in `folder`; in its parent, if libtool keeps
 * libraries in .libs; below the parent of bin/ or lib/; and in the folder of the installation. */
static const char *find_file(Arena *a, const char *folder, const char *name,
                             const char *installed_below, const char *installed_in, bool program) {
  char path[PATH_MAX];
  size_t n = strlen(folder);
  bool libs = n >= 6 && !strcmp(folder + n - 6, "/.libs");
  for (int i = 0; i < 3; i++) {
    int got = i == 0   ? snprintf(path, sizeof path, "%s%s/%s", folder, libs ? "/.." : "", name)
              : i == 1 ? snprintf(path, sizeof path, "%s/../%s/%s", folder, installed_below, name)
                       : snprintf(path, sizeof path, "%s/%s", installed_in, name);
    if (got > 0 && got < (int)sizeof path && !access(path, program ? X_OK : R_OK))
      return arena_strdup(a, path, (size_t)got);
  }
  return NULL;
}

void eng_find(Arena *a, EngConfig *c) {
  char folder[PATH_MAX];
  if (!own_folder(folder)) strcpy(folder, "/nowhere");
  if (!c->codegen) {
    const char *told = getenv("CKL_CODEGEN");
    if (!told)
      c->codegen = find_file(a, folder, "ckl-codegen", "libexec/ckl", CKL_LIBEXEC, true);
    else if (*told)
      c->codegen = arena_strdup(a, told, strlen(told));
  }
  if (!c->installed) {
    char name[40];
    snprintf(name, sizeof name, "kernels-%s.bin", eng_targets[c->level].name);
    const char *found = find_file(a, folder, name, "lib/ckl", CKL_LIB, false);
    if (found) c->installed = arena_strdup(a, found, strlen(found) - strlen(name) - 1);
  }
  if (!c->record) {
    const char *told = getenv("CKL_RECORD_KERNELS");
    if (told && *told) c->record = arena_strdup(a, told, strlen(told));
  }
  if (!c->cache) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/')
      c->cache = arena_printf(a, "%s/ckl", cache);
    else if (home && *home == '/')
      c->cache = arena_printf(a, "%s/.cache/ckl", home);
  }
}

/* ---- life */

static void log_line(Engine *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void log_line(Engine *g, const char *fmt, ...) {
  if (!g->config.log) return;
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  str_vformat(text, sizeof text, fmt, ap);
  va_end(ap);
  g->config.log(g->config.ud, text);
}

static const char *keep(Arena *a, const char *s) {
  return s ? arena_strdup(a, s, strlen(s)) : NULL;
}

typedef struct Opening {
  Engine *g;
  const EngConfig *config;
} Opening;

static void open_rest(void *ud) {
  Opening *o = ud;
  Engine *g = o->g;
  g->config = *o->config;
  g->config.codegen = keep(&g->arena, o->config->codegen);
  g->config.installed = keep(&g->arena, g->config.emulate ? NULL : o->config->installed);
  g->config.cache = keep(&g->arena, g->config.emulate ? NULL : o->config->cache);
  g->config.record = keep(&g->arena, o->config->record);
  if (g->config.cache_limit <= 0) g->config.cache_limit = CACHE_LIMIT;
  g->bucket_count = 64;
  g->buckets = mem_need(g->mem, NULL, 0, g->bucket_count * sizeof *g->buckets);
  memset(g->buckets, 0, g->bucket_count * sizeof *g->buckets);
  g->pool = pool_open(g->mem, g->config.threads);
}

Engine *eng_open(Mem *m, const EngConfig *c) {
  Engine *g = mem_need(m, NULL, 0, sizeof *g);
  *g = (Engine){.mem = m};
  g->status = c->status ? c->status : &g->own;
  arena_init(&g->arena, m);
  int code = mem_protect(m, open_rest, &(Opening){g, c});
  if (code == MEM_OK) return g;
  eng_close(g);
  mem_throw(m, code);
}

void eng_close(Engine *g) {
  if (!g) return;
  Mem *m = g->mem;
  work_close(g->workers);
  pool_close(g->pool);
  emu_close(g->emu);
  for (size_t i = 0; i < g->bucket_count; i++)
    for (EngKernel *k = g->buckets ? g->buckets[i] : NULL; k; k = k->next) load_free(m, &k->code);
  if (g->buckets) mem_free(m, g->buckets, g->bucket_count * sizeof *g->buckets);
  cache_close(g->cache);
  archive_close(&g->installed);
  eng_scratch_free(g);
  if (g->perf) fclose(g->perf);
  arena_free(&g->arena);
  mem_free(m, g, sizeof *g);
}

const EngConfig *eng_config(const Engine *g) {
  return &g->config;
}

EngCount eng_count(const Engine *g) {
  EngCount c = g->count;
  if (g->workers) c.processes = work_processes(g->workers);
  return c;
}

/* ---- a kernel becomes code */

/* Writes a line for perf: address, size and name of the code. A file that is a link is refused. */
static void note_perf(Engine *g, const EngKernel *k) {
  if (!g->config.perf_map) return;
  if (!g->perf) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    g->perf = fd < 0 ? NULL : fdopen(fd, "a");
    if (!g->perf) {
      if (fd >= 0) close(fd);
      log_line(g, "no map for perf: %s cannot be written", path);
      g->config.perf_map = false;
      return;
    }
  }
  fprintf(g->perf, "%lx %lx ckl_kernel_%016llx\n", (unsigned long)(uintptr_t)k->code.entry,
          (unsigned long)k->code.code_size, (unsigned long long)k->hash);
  fflush(g->perf);
}

static bool take(Engine *g, EngKernel *k, const void *object, size_t n, Err *e) {
  if (!load_object(g->mem, object, n, &k->code, e)) return false;
  k->state = LOADED;
  if (!k->users) g->unused += load_bytes(&k->code);
  g->count.loaded++;
  note_perf(g, k);
  return true;
}

static void fail(Engine *g, EngKernel *k, const char *text, size_t n) {
  if (n > 400) n = 400;
  char *copy = arena_try(&g->arena, n + 1);
  if (copy) memcpy(copy, text, n);
  k->error = copy ? copy : "out of memory";
  k->state = FAILED;
  g->count.failed++;
}

static CacheKey key_of(const Engine *g, const EngKernel *k) {
  CacheKey key = {
      .text = k->item.text, .text_n = k->item.text_n, .level = (uint32_t)g->config.level};
  memcpy(key.build, g->build, CACHE_BUILD);
  return key;
}

/* Writes an object to the cache. If that fails, the kernel works without it; the log has one
 * line. */
static void keep_on_disk(Engine *g, const EngKernel *k, const void *object, size_t n) {
  Err e = {.text = ""};
  CacheKey key = key_of(g, k);
  if (!g->cache || cache_put(g->cache, &key, object, n, &e)) return;
  log_line(g, "code is no longer kept on disk: %s", e.text);
  cache_close(g->cache);
  g->cache = NULL;
}

static void answered(void *ud, WorkItem *item, CodegenKind kind, const char *bytes, size_t n) {
  Engine *g = ud;
  EngKernel *k = (EngKernel *)item;
  Err e = {.text = ""};
  if (kind == CODEGEN_TEXT && k->dump) {
    k->dump->s = mem_try(g->mem, NULL, 0, n ? n : 1);
    if (!k->dump->s) {
      fail(g, k, "out of memory", 13);
      return;
    }
    memcpy(k->dump->s, bytes, n);
    k->dump->n = n;
    k->dump->cap = n ? n : 1;
    k->state = LOADED;
  } else if (kind == CODEGEN_OBJECT && !k->dump && take(g, k, bytes, n, &e)) {
    g->count.generated++;
    keep_on_disk(g, k, bytes, n);
  } else if (kind == CODEGEN_ERROR) {
    k->nomem = item->nomem;
    fail(g, k, bytes, n);
  } else {
    char text[600];
    k->nomem = e.nomem;
    int len = snprintf(text, sizeof text, "the code generator's answer %s",
                       e.text[0] ? e.text : "is not what was asked for");
    fail(g, k, text, (size_t)len);
  }
}

/* Opens archive, cache and workers, at the first kernel that is not in the table. */
static void look(Engine *g) {
  Err e = {.text = ""};
  char path[PATH_MAX];
  if (g->looked) return;
  g->looked = true;
  const EngConfig *c = &g->config;
  bool known = c->codegen && archive_build_id(c->codegen, g->build, &e);
  g->lack = "there is no code generator (ckl-codegen)";
  if (c->codegen && !known) g->lack = arena_printf(&g->arena, "no code generator: %s", e.text);
  if (known) {
    int most = pool_default_threads();
    g->workers = work_open(g->mem, c->codegen, most, 0, answered, g);
  }
  if (c->installed) {
    snprintf(path, sizeof path, "%s/kernels-%s.bin", c->installed, eng_targets[c->level].name);
    if (!archive_open(&g->installed, path, (uint32_t)c->level, known ? g->build : NULL, &e) &&
        e.text[0])
      log_line(g, "installed kernels are not used: %s", e.text);
  }
  if (c->cache && known && !(g->cache = cache_open(g->mem, c->cache, c->cache_limit, &e)))
    log_line(g, "code is not kept on disk: %s", e.text);
}

/* Whether existing code cannot be loaded for want of memory. The kernel fails then, since a new
 * compilation would not help. */
static bool no_room(Engine *g, EngKernel *k, const Err *e) {
  k->nomem = e->nomem;
  if (e->nomem) fail(g, k, e->text, strlen(e->text));
  return e->nomem;
}

/* Loads code that was made before, or sets FAILED with the reason; false if there is none. */
static bool find(Engine *g, EngKernel *k) {
  Err e = {.text = ""};
  size_t n = 0;
  const void *installed = archive_find(&g->installed, k->item.text, k->item.text_n, &n, &e);
  if (installed && take(g, k, installed, n, &e)) {
    g->count.installed++;
    return true;
  }
  if (no_room(g, k, &e)) return true;
  if (e.text[0]) {
    g->count.rejected++;
    log_line(g, "an installed kernel is not used: it %s", e.text);
  }
  if (!g->cache) return false;
  CacheKey key = key_of(g, k);
  void *kept = cache_get(g->cache, &key, &n, &e);
  bool good = kept && take(g, k, kept, n, &e);
  if (kept) mem_free(g->mem, kept, n);
  if (good) g->count.from_disk++;
  if (no_room(g, k, &e)) return true;
  if (!good && e.text[0]) {
    g->count.rejected++;
    log_line(g, "code kept on disk is made again: %s", e.text);
  }
  return good;
}

/* ---- the table */

static void grow(Engine *g) {
  size_t n = 2 * g->bucket_count;
  EngKernel **made = mem_try(g->mem, NULL, 0, n * sizeof *made);
  if (!made) return; /* longer chains work, too */
  memset(made, 0, n * sizeof *made);
  for (size_t i = 0; i < g->bucket_count; i++)
    for (EngKernel *k = g->buckets[i], *next; k; k = next) {
      next = k->next;
      k->next = made[k->hash & (n - 1)];
      made[k->hash & (n - 1)] = k;
    }
  mem_free(g->mem, g->buckets, g->bucket_count * sizeof *g->buckets);
  g->buckets = made;
  g->bucket_count = n;
}

static EngKernel *known(const Engine *g, const Buf *text, uint64_t hash) {
  EngKernel *k = g->buckets[hash & (g->bucket_count - 1)];
  while (k &&
         (k->hash != hash || k->item.text_n != text->n || memcmp(k->item.text, text->s, text->n)))
    k = k->next;
  return k;
}

static EngKernel *new_kernel(Engine *g, const Buf *text, uint64_t hash) {
  EngKernel *k = ARENA_NEW(&g->arena, EngKernel);
  *k = (EngKernel){.hash = hash};
  k->item = (WorkItem){.text = text->s,
                       .text_n = text->n,
                       .level = (uint32_t)g->config.level,
                       .flags = g->config.emulate ? CODEGEN_EMULATE : 0};
  return k;
}

/* Writes the text of a kernel to the folder `record`. */
static void record(Engine *g, const Buf *text, uint64_t hash) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%016llx.ckk", g->config.record, (unsigned long long)hash);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool ok = fd >= 0 && write(fd, text->s, text->n) == (ssize_t)text->n;
  if (fd >= 0) close(fd);
  if (!ok) log_line(g, "a kernel was not recorded: %s cannot be written", path);
}

/* Gets code for a kernel that has none. False with `e` if that is impossible, or, if `generate` is
 * false, impossible without the code generator. */
static bool get_code(Engine *g, EngKernel *k, bool generate, Err *e) {
  bool fits = g->config.level <= eng_host_level();
  k->state = ASKED;
  k->nomem = k->again = false;
  if ((fits && find(g, k)) || (fits && generate && g->workers)) return true;
  if (g->config.record) {
    fail(g, k, "recorded only", 13); /* the other kernels of the graph are still requested */
    return true;
  }
  if (fits)
    err_set(e, "%s", g->lack);
  else
    err_set(e, "this machine does not run code for %s", eng_targets[g->config.level].name);
  return false;
}

static EngKernel *send(Engine *g, EngKernel *k) {
  if (k->state != ASKED) return k;
  log_line(g, "compiling kernel %016llx, %zu bytes of text", (unsigned long long)k->hash,
           k->item.text_n);
  work_send(g->workers, &k->item);
  return k;
}

/* Adds a user to a kernel of the table. */
static EngKernel *use(Engine *g, EngKernel *k, bool generate, Err *e) {
  bool gone = k->state == UNLOADED || (k->state == FAILED && k->nomem);
  if (!k->users++ && k->state == LOADED) g->unused -= load_bytes(&k->code);
  if (!gone) return k;
  if (get_code(g, k, generate, e)) return send(g, k);
  k->users--;
  k->state = UNLOADED;
  return NULL;
}

/* Returns the kernel with its code loaded or requested; NULL with `e` if there is none. */
static EngKernel *get(Engine *g, const Kernel *kernel, bool generate, size_t *bytes, Err *e) {
  look(g);
  ArenaMark mark = arena_mark(&g->arena);
  Buf text = {0};
  buf_init_arena(&text, &g->arena);
  lp_print(&text, kernel);
  *bytes = text.n;
  uint64_t hash = XXH3_64bits(text.s, text.n);
  EngKernel *k = known(g, &text, hash);
  if (k) {
    arena_rewind(&g->arena, mark);
    return use(g, k, generate, e);
  }
  if (g->config.record) record(g, &text, hash);
  k = new_kernel(g, &text, hash);
  k->users = 1;
  if (!get_code(g, k, generate, e)) {
    arena_rewind(&g->arena, mark);
    return NULL;
  }
  if (g->kernel_count >= g->bucket_count) grow(g);
  k->next = g->buckets[hash & (g->bucket_count - 1)];
  g->buckets[hash & (g->bucket_count - 1)] = k;
  g->kernel_count++;
  return send(g, k);
}

EngKernel *eng_kernel(Engine *g, const Kernel *k, Err *e) {
  size_t bytes;
  return get(g, k, true, &bytes, e);
}

EngKernel *eng_known(Engine *g, const Kernel *k, size_t *bytes) {
  return get(g, k, false, bytes, NULL);
}

void eng_drop(Engine *g, EngKernel *k) {
  if (!--k->users && k->state == LOADED) g->unused += load_bytes(&k->code);
}

size_t eng_unused(const Engine *g) {
  return g->unused;
}

void eng_trim(Engine *g) {
  for (size_t i = 0; g->unused && i < g->bucket_count; i++)
    for (EngKernel *k = g->buckets[i]; k; k = k->next) {
      if (k->users || k->state != LOADED) continue;
      load_free(g->mem, &k->code);
      k->state = UNLOADED;
    }
  g->unused = 0;
}

/* One step of waiting for a kernel; false when interrupted. In a child after fork the parent's
 * requests are lost, so they are made again. */
static bool step(Engine *g, EngKernel *k, const Interrupt *interrupt) {
  if (interrupt_asked(interrupt)) return false;
  if (!work_poll(g->workers, 20) && k->state == ASKED) {
    if (k->again) fail(g, k, "the code generator is gone", 26);
    k->again = true;
    if (k->state == ASKED) work_send(g->workers, &k->item);
  }
  return true;
}

bool eng_wait(Engine *g, EngKernel *const *k, size_t n, const Interrupt *interrupt, Err *e) {
  bool ok = true;
  for (size_t i = 0; i < n && ok; i++) {
    while (k[i]->state == ASKED && (ok = step(g, k[i], interrupt))) continue;
    if (!ok)
      err_set(e, "interrupted");
    else if (k[i]->state == FAILED) {
      ok = err_set(e, "%s", k[i]->error);
      if (e) e->nomem = k[i]->nomem;
    }
  }
  return ok;
}

KernelFn eng_code(const EngKernel *k) {
  return k->code.entry;
}

void eng_words(Engine *g, const Kernel *k, LVal v, char name[20], char line[120]) {
  ArenaMark mark = arena_mark(&g->arena);
  Buf text = {0};
  buf_init_arena(&text, &g->arena);
  lp_print(&text, k);
  snprintf(name, 20, "%016llx", (unsigned long long)XXH3_64bits(text.s, text.n));
  const char *p = text.s, *end = text.s + text.n;
  for (size_t i = 0; i < 1 + k->buf_count + v && p < end; i++) {
    const char *next = memchr(p, '\n', (size_t)(end - p));
    p = next ? next + 1 : end;
  }
  while (p < end && *p == ' ') p++;
  const char *stop = memchr(p, '\n', (size_t)(end - p));
  snprintf(line, 120, "%.*s", (int)((stop ? stop : end) - p), p);
  arena_rewind(&g->arena, mark);
}

typedef struct Dump {
  Buf *out, text;
} Dump;

static void put_dump(void *ud) {
  Dump *d = ud;
  buf_put(d->out, d->text.s, d->text.n);
}

bool eng_dump(Engine *g, const Kernel *kernel, unsigned what, Buf *out, Err *e) {
  look(g);
  if (!g->workers) return err_set(e, "%s", g->lack);
  Buf text = {0};
  Dump d = {.out = out};
  buf_init_arena(&text, &g->arena);
  lp_print(&text, kernel);
  EngKernel *k = new_kernel(g, &text, 0);
  k->dump = &d.text;
  k->item.flags = what;
  work_send(g->workers, &k->item);
  if (!eng_wait(g, &k, 1, NULL, e))
    return false; /* the item stays in the arena until it is answered */
  int code = mem_protect(g->mem, put_dump, &d);
  mem_free(g->mem, d.text.s, d.text.cap);
  if (code != MEM_OK) mem_throw(g->mem, code);
  return true;
}

/* ---- running */

/* OPS_PER_US: a core does at least so many operations in a microsecond, in vector code two to four
 * times as many. */
enum { OPS_PER_US = 4000, SERIAL_US = 10, PIECE_US = 5, LONGEST_US = 2500, PIECES_PER_THREAD = 4 };

typedef struct Run {
  KernelFn f;
  void *const *buf;
  const int64_t *arg;
  KStatus *st;
  char *scratch;
  size_t each;
} Run;

/* The language's floating-point environment: rounding to nearest, subnormal numbers as they are,
 * no traps. */
static unsigned set_float_control(void) {
#if defined(__x86_64__)
  unsigned old = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return old;
#else
  return 0;
#endif
}

static void restore_float_control(unsigned old) {
#if defined(__x86_64__)
  _mm_setcsr(old);
#else
  (void)old;
#endif
}

static void run_piece(void *ud, int64_t lo, int64_t hi, int thread) {
  Run *r = ud;
  unsigned old = set_float_control();
  r->f(r->buf, r->arg, lo, hi, r->scratch + (size_t)thread * r->each, r->st);
  restore_float_control(old);
}

/* Iterations in a piece. A piece is short enough to notice an interrupt and long enough to be worth
 * taking. Each thread has several, so that others can help a thread that is held up. */
static int64_t piece(int64_t iterations, int64_t work, int threads) {
  double each = (double)work / (double)iterations,
         most = (double)LONGEST_US * OPS_PER_US / (each > 0 ? each : 1);
  double least = (double)PIECE_US * OPS_PER_US / (each > 0 ? each : 1);
  double n = threads > 1 ? (double)iterations / (threads * PIECES_PER_THREAD) : (double)iterations;
  if (n < least) n = least;
  if (n > most) n = most;
  if (n >= (double)iterations) return iterations;
  return n <= 1   ? 1
         : n < 16 ? (int64_t)n
                  : ((int64_t)n + 15) / 16 * 16; /* code runs best on whole groups of iterations */
}

static bool emulated(Engine *g, KernelFn f, void *const *buf, const int64_t *arg,
                     int64_t iterations, int64_t local_bytes, KStatus *st,
                     const Interrupt *interrupt) {
  Err e = {.text = "out of memory"};
  unsigned old = set_float_control();
  if (!g->emu) g->emu = emu_open(g->mem);
  bool ok = g->emu && emu_run(g->emu, f, buf, arg, iterations, local_bytes, st, interrupt, &e);
  restore_float_control(old);
  if (interrupt_asked(interrupt)) return false;
  if (ok) return true;
  log_line(g, "the emulator gives up: %s", e.text);
  st->failed = 1;
  return true;
}

bool eng_run(Engine *g, KernelFn f, void *const *buf, const int64_t *arg, int64_t iterations,
             int64_t work, int64_t local_bytes, KStatus *st, const Interrupt *interrupt) {
  if (g->config.emulate) return emulated(g, f, buf, arg, iterations, local_bytes, st, interrupt);
  KStatus quiet = {0}, *status = g->held ? &quiet : g->status;
  status->failed = 0;
  status->outside = 0;
  Run r = {f, buf, arg, status, g->scratch, g->scratch_each};
  if (iterations <= 0) return !interrupt_asked(interrupt);
  if (work < iterations) work = iterations;
  int threads = work < (int64_t)OPS_PER_US * SERIAL_US ? 1 : pool_threads(g->pool);
  int64_t n = piece(iterations, work, threads);
  bool all = true;
  if (threads > 1) {
    all = pool_run(g->pool, run_piece, &r, iterations, n, interrupt);
  } else {
    for (int64_t lo = 0; lo < iterations && all; lo += n) {
      all = !interrupt_asked(interrupt);
      if (all) run_piece(&r, lo, iterations - lo > n ? lo + n : iterations, 0);
    }
  }
  if (status->failed) st->failed = 1;
  if (status->outside) {
    st->outside = status->outside;
    st->outside_buf = status->outside_buf;
    st->outside_at = status->outside_at;
  }
  return all && !interrupt_asked(&status->stop);
}

void eng_hold(Engine *g, bool on) {
  g->held = on;
}

int eng_threads(const Engine *g) {
  return pool_threads(g->pool);
}

Pool *eng_pool(const Engine *g) {
  return g->pool;
}

void eng_awake(Engine *g, bool on) {
  if (on == g->awake) return;
  g->awake = on;
  if (on)
    pool_begin(g->pool);
  else
    pool_end(g->pool);
}

size_t eng_scratch_bytes(const Engine *g) {
  return g->scratch_size;
}

void eng_scratch_free(Engine *g) {
  mem_data_free(g->mem, DEV_CPU, g->scratch, g->scratch_size);
  g->scratch = NULL;
  g->scratch_each = g->scratch_size = 0;
}

bool eng_scratch(Engine *g, int64_t local_bytes) {
  size_t each = ((size_t)local_bytes + 63) & ~(size_t)63;
  if (each <= g->scratch_each) return true;
  size_t size = each * (size_t)pool_threads(g->pool);
  eng_scratch_free(g);
  if (size / each != (size_t)pool_threads(g->pool)) return false;
  g->scratch = mem_data_try(g->mem, DEV_CPU, size);
  if (!g->scratch) return false;
  g->scratch_each = each;
  g->scratch_size = size;
  return true;
}
