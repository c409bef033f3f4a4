/* When a graph is worth machine code, and which.
 *
 * In: a graph with its arguments. Out: the results of gr_run, by machine code or the evaluator: the
 * bits are the same (rule 103), so only time differs. A graph is compiled when it has cost as much
 * on the reference evaluator as compiling would (the ski-rental rule: never more than twice the
 * best choice), or at once when one run is known to cost more. The cost of compiling is known once
 * the graph is planned: it depends on the kernels that were not made before. A level that is asked
 * for by name always compiles.
 */
#include "lang/compile/tiering.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/cost.h"
#include "jit/engine/codegen.h"
#include "lang/compile/compile.h"
#include "lang/compile/report.h"
#include "lang/eval/steps.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "runtime/pool.h"

struct Native {
  JitFn *fn;
  JitFn *planned; /* the plan of fn; NULL: it is planned when it is compiled */
  OpCounts ops;
  bool counted;
  bool looked;  /* code made before was looked for, and some is missing: its price is */
  double price; /* this many seconds */
  bool must;    /* the first run is machine code */
  bool none;    /* there is no code: the reference evaluator runs it */
  double spent; /* seconds of the reference evaluator */
};

/* The price of making code: a code generator starts in 10 ms, and a kernel takes 21 us for each
 * byte of its text (an unrolled loop: 69 kernels with 101 KB took 2.1 s of a core, 101 with 154 KB
 * took 3.5; Xeon, family 6, model 207). Without a code generator it is the price of finding that
 * out. */
static const double price_start = 0.01, price_byte = 21e-6, price_none = 0.02;

/* A wait of this many seconds is logged. */
static const double long_wait = 1;

/* The price if all kernels exist: loading, and planning for each node. */
static const double price_known = 2e-4, price_node = 1e-5;

static const struct {
  const char *name;
  CpuMode mode;
} modes[] = {{"reference", CPU_REFERENCE},
             {"loops", CPU_LOOPS},
             {"emulator", CPU_EMULATOR},
             {"native", CPU_LEVEL}};
enum { MODES = sizeof modes / sizeof *modes };

const char *cpu_name(size_t i) {
  if (i < MODES) return modes[i].name;
  return i < MODES + ENG_LEVEL_COUNT ? eng_targets[i - MODES].name : NULL;
}

bool cpu_find(const char *name, CpuMode *mode, EngLevel *level) {
  *level = eng_host_level();
  *mode = CPU_TIERED;
  if (!name || !*name) return true;
  for (size_t i = 0; i < MODES; i++) {
    if (strcmp(modes[i].name, name)) continue;
    *mode = modes[i].mode;
    return true;
  }
  *mode = CPU_LEVEL;
  EngLevel host = *level;
  /* a level above this machine's is for recording kernels: the engine runs none of them */
  return eng_level_find(name, level) && (*level <= host || getenv("CKL_RECORD_KERNELS"));
}

void native_free(Mem *m, Native *n) {
  if (!n) return;
  jit_free(n->fn);
  jit_free(n->planned);
  mem_free(m, n, sizeof *n);
}

static void reclaim(void *ud) {
  jit_trim(ud);
}

void native_close(Session *s) {
  s->mem.reclaim = NULL;
  jit_close(s->jit);
  s->jit = NULL;
}

void native_awake(Session *s, bool on) {
  if (s->jit && jit_engine(s->jit)) eng_awake(jit_engine(s->jit), on);
}

void native_counts(const Session *s, JitCount *jit, EngCount *eng) {
  *jit = (JitCount){0};
  *eng = (EngCount){0};
  if (!s->jit) return;
  *jit = jit_count(s->jit);
  if (jit_engine(s->jit)) *eng = eng_count(jit_engine(s->jit));
}

static void jit_line(void *ud, const char *text) {
  log_line(ud, LOG_JIT, "%s", text);
}

static const char *unless_empty(const char *path) {
  return path && *path ? path : NULL;
}

/* Whether a variable of the environment is set, and not 0. */
static bool wanted(const char *name) {
  const char *value = getenv(name);
  return value && *value && strcmp(value, "0") != 0;
}

static Jit *open_jit(Session *s) {
  if (s->jit) return s->jit;
  JitConfig c = {.walk = s->config.cpu == CPU_LOOPS,
                 .profile = s->config.profile,
                 .check = s->mem.check,
                 .lists = wanted("CKL_LISTS"),
                 .addresses = wanted("CKL_CHECK_ADDRESS") && s->config.cpu != CPU_EMULATOR};
  EngConfig *g = &c.engine;
  *g = (EngConfig){.level = (EngLevel)s->config.level,
                   .threads = s->config.threads,
                   .codegen = s->config.codegen,
                   .installed = s->config.kernels,
                   .cache = s->config.cache,
                   .emulate = s->config.cpu == CPU_EMULATOR,
                   .perf_map = s->config.perf_map,
                   .status = &s->kernel,
                   .log = jit_line,
                   .ud = s};
  eng_find(&s->perm, g);
  g->codegen = unless_empty(g->codegen);
  g->installed = unless_empty(g->installed);
  g->cache = unless_empty(g->cache);
  s->jit = jit_open(&s->mem, &c);
  s->mem.reclaim = reclaim;
  s->mem.reclaim_ud = s->jit;
  native_awake(s, true);
  return s->jit;
}

Pool *native_pool(Session *s, bool open) {
  if (s->config.cpu == CPU_REFERENCE || !(s->jit || open)) return NULL;
  Engine *g = jit_engine(open_jit(s));
  return g ? eng_pool(g) : NULL;
}

double native_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_fn(Session *s, Buf *out, const JitFn *f, PassId stage, Span at);
static bool print_parts(Session *s, Buf *out, const Graph *g, PassId stage);

/* The stages of ckl_dump from `fuse` on; those of machine code only if there is a code
 * generator. */
static void dump_fn(Session *s, const JitFn *f, const Graph *g) {
  Engine *engine = jit_engine(s->jit);
  PassId end = engine && eng_config(engine)->codegen ? PASS_PTX_90 + 1 : PASS_LLVM;
  for (PassId stage = PASS_FUSE; stage < end; stage++) {
    Buf b;
    if (!(s->dumps & 1u << stage)) continue;
    buf_init_arena(&b, &s->scratch);
    if (!print_parts(s, &b, g, stage)) print_fn(s, &b, f, stage, (Span){0});
    log_write(s, 2, b.s, b.n);
  }
}

JitFn *native_plan(Session *s, const Graph *g, const int64_t *env, Shelf *shelf) {
  return jit_plan(open_jit(s), g, env, shelf);
}

int64_t native_least(Session *s, Arena *temp, const Graph *g, const int64_t *env) {
  return jit_least(open_jit(s), temp, g, env);
}

/* The part of a limit that is left for memory beside the plan: descriptions of tensors, lists. */
enum { RUN_ROOM = 16 << 10 };

int64_t native_room(Session *s) {
  const Mem *m = &s->mem;
  if (!m->limit) return INT64_MAX;
  return (int64_t)mem_room(m) + (s->jit ? jit_kept(s->jit) : 0) - RUN_ROOM;
}

static bool generates(Session *s) {
  Engine *g = jit_engine(open_jit(s));
  return g && eng_config(g)->codegen;
}

/* The price of the missing code, in seconds: code generators work side by side. */
static double price_of(Session *s, JitMissing m) {
  if (!m.kernels) return 0;
  if (!generates(s)) return price_none;
  int most = pool_default_threads();
  double side = m.kernels < (size_t)most ? (double)m.kernels : (double)most;
  return price_start + price_byte * (double)m.bytes / side;
}

static void tell_wait(Session *s, JitFn *f, const char *name) {
  if (!s->logs[LOG_WAIT] || !generates(s)) return;
  JitMissing m = jit_missing(f);
  double seconds = price_of(s, m);
  if (seconds < long_wait) return;
  bool kept = eng_config(jit_engine(s->jit))->cache;
  log_line(s, LOG_WAIT, "machine code of `%s` is made: %zu kernels, some %.0f s%s", name, m.kernels,
           seconds, kept ? "; it is kept for the next run" : "");
}

bool native_code(Session *s, JitFn *f, const char *name, Span at) {
  GErr why = {0};
  tell_wait(s, f, name);
  if (jit_code(f, &s->kernel.stop, &why)) return true;
  if (why.interrupted) fail_if_interrupted(s, at);
  return !why.nomem;
}

void native_must(Session *s, Native **slot) {
  if (!*slot) {
    *slot = mem_need(&s->mem, NULL, 0, sizeof **slot);
    **slot = (Native){0};
  }
  if (generates(s)) (*slot)->must = true;
}

void native_planned(Session *s, Native **slot, JitFn **f) {
  native_must(s, slot);
  jit_free((*slot)->planned);
  (*slot)->planned = *f;
  *f = NULL;
}

JitFn *native_known(const Native *n) {
  return !n ? NULL : n->fn ? n->fn : n->planned;
}

/* Makes the code of g now. False: the session was interrupted. */
static bool compile_now(Session *s, Native *n, const Graph *g, const char *name, const int64_t *env,
                        GErr *e) {
  GErr why = {0};
  double start = native_clock();
  if (!n->planned) n->planned = jit_plan(open_jit(s), g, env, NULL);
  tell_wait(s, n->planned, name);
  if (jit_code(n->planned, &s->kernel.stop, &why))
    n->fn = n->planned;
  else
    jit_free(n->planned);
  n->planned = NULL;
  if (n->fn) {
    EngCount c = s->jit && jit_engine(s->jit) ? eng_count(jit_engine(s->jit)) : (EngCount){0};
    log_line(s, LOG_JIT, "%s: ready after %.1f ms (%lld kernels generated so far)", name,
             1e3 * (native_clock() - start), (long long)c.generated);
    if (s->dumps) dump_fn(s, n->fn, g);
    return true;
  }
  if (why.interrupted) {
    *e = why;
    return false;
  }
  n->none = true;
  log_line(s, LOG_JIT, "%s runs on the reference evaluator: %s", name, why.text);
  const EngConfig *c = jit_engine(s->jit) ? eng_config(jit_engine(s->jit)) : NULL;
  if (!c || c->record) return true; /* only texts of kernels are wanted */
  fail_warn_once(s, ERR_NO_CODE, (Span){0}, "`%s` runs slowly, without machine code: %s%s", name,
                 why.text,
                 c->codegen ? "" : "; CKL_CODEGEN can name one, --interpret does without");
  return true;
}

/* Plans g and looks for code made before; sets n->fn if no kernel is missing. */
static void look(Session *s, Native *n, const Graph *g, const int64_t *env) {
  GErr why;
  if (!n->planned) n->planned = jit_plan(open_jit(s), g, env, NULL);
  JitMissing m = jit_missing(n->planned);
  n->looked = true;
  n->price = price_of(s, m);
  if (m.kernels || !jit_code(n->planned, NULL, &why)) return;
  n->fn = n->planned;
  n->planned = NULL;
}

/* Adds the operations that a run of g computes to the session's counters. */
static void count_ops(Session *s, Native *n, const Graph *g) {
  if (!n->counted) report_op_counts(g, &n->ops);
  n->counted = true;
  for (int i = 0; i < BIN_COUNT; i++) {
    s->count.ops[0][i] += n->ops.forward[i];
    s->count.ops[1][i] += n->ops.backward[i];
  }
}

/* A turn of a loop that stays one is a step, as an iteration of script is. */
void native_turn(void *session, Span at) {
  count_step(session, at);
}

bool native_run(Session *s, Native **slot, const Graph *g, const char *name, RunCtx *c,
                Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  if (!*slot) {
    *slot = mem_need(&s->mem, NULL, 0, sizeof **slot);
    **slot = (Native){0};
    if (s->config.cpu == CPU_TIERED) (*slot)->spent = cost_seconds(g, c->env);
  }
  count_ops(s, *slot, g);
  c->turn = native_turn;
  c->turn_ud = s;
  if (s->config.cpu == CPU_REFERENCE || c->anomaly || c->after) return gr_run(g, c, in, out, e, at);
  Native *n = *slot;
  bool must = s->config.cpu != CPU_TIERED || n->must;
  if (!n->fn && !n->none && !n->looked && !must &&
      n->spent >= price_known + price_node * (double)g->node_count)
    look(s, n, g, c->env);
  bool now = must || (n->looked && n->spent >= n->price);
  if (!n->fn && !n->none && now && !compile_now(s, n, g, name, c->env, e)) return false;
  if (n->fn) return jit_run(n->fn, c, in, out, e, at);
  if (n->none) return gr_run(g, c, in, out, e, at);
  double start = native_clock();
  bool ok = gr_run(g, c, in, out, e, at);
  n->spent += native_clock() - start;
  return ok;
}

/* ---- the profile */
typedef struct Line {
  const char *file;
  uint32_t line;
  double seconds;
  int64_t runs, bytes, work;
  const char *kind, *ops;
  double most; /* of one kind of step */
} Line;

typedef struct Profile {
  Session *s;
  Line *lines;
  size_t count, cap;
  double seconds;
} Profile;

static void add_time(void *ud, const JitTime *t) {
  Profile *p = ud;
  Session *s = p->s;
  uint32_t line = 0, col;
  const char *file = t->function ? t->function : "an operation of script";
  Span at = t->prov->caller.file ? t->prov->caller : t->prov->span; /* a line of the program */
  if (at.file) {
    src_place(&s->sources, at.file, at.lo, &line, &col);
    file = src_get(&s->sources, at.file)->path;
  }
  size_t i = 0;
  while (i < p->count && (p->lines[i].line != line || strcmp(p->lines[i].file, file))) i++;
  if (i == p->count) {
    Line l = {.file = file, .line = line};
    VEC_PUSH(&s->scratch, p->lines, p->count, p->cap, l);
  }
  Line *l = &p->lines[i];
  l->seconds += t->seconds;
  l->runs += t->runs;
  l->bytes += t->bytes;
  l->work += t->work;
  p->seconds += t->seconds;
  if (t->seconds <= l->most) return;
  l->most = t->seconds;
  l->kind = t->kind;
  l->ops = arena_strdup(&s->scratch, t->ops, strlen(t->ops));
}

static int by_time(const void *a, const void *b) {
  const Line *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
  return x->line < y->line ? -1 : x->line > y->line;
}

void native_profile(Session *s, Buf *out) {
  Profile p = {.s = s};
  if (!s->jit) return;
  jit_profile(s->jit, add_time, &p);
  if (!p.count) return;
  qsort(p.lines, p.count, sizeof *p.lines, by_time);
  buf_puts(out, "        ms      %      runs     GB/s  Gflop/s  line\n");
  for (size_t i = 0; i < p.count && i < 40; i++) {
    const Line *l = &p.lines[i];
    double per = 1e-9 / l->seconds;
    buf_printf(out, "%10.2f %6.1f %9lld %8.1f %8.1f  %s:%u %s: %.60s\n", 1e3 * l->seconds,
               100 * l->seconds / p.seconds, (long long)l->runs, per * (double)l->bytes,
               per * (double)l->work, l->file, l->line, l->kind, l->ops);
  }
}

/* ---- text */
static void print_fn(Session *s, Buf *out, const JitFn *f, PassId stage, Span at) {
  Err why = {0};
  if (stage == PASS_PLAN) jit_print_plan(out, f);
  if (stage == PASS_LOOPS) jit_print_loops(out, f);
  unsigned what = stage == PASS_LLVM  ? CODEGEN_DUMP_IR
                  : stage == PASS_ASM ? CODEGEN_DUMP_ASM
                  : stage == PASS_PTX ? CODEGEN_DUMP_PTX
                                      : CODEGEN_DUMP_PTX_90;
  if (stage >= PASS_LLVM && !jit_print_code(out, f, what, &why))
    fail_at(s, ERR_NO_CODE, at, "no text of machine code: %s", why.text);
}

/* Prints the single steps of planning. */
static bool print_parts(Session *s, Buf *out, const Graph *g, PassId stage) {
  if (stage != PASS_FUSE && stage != PASS_LOWER) return false;
  JitShow what = stage == PASS_FUSE ? JIT_SHOW_GROUPS : JIT_SHOW_KERNELS;
  jit_show(&s->mem, (EngLevel)s->config.level, g, what, out);
  return true;
}

void native_print(Session *s, Buf *out, const Graph *g, PassId stage, Span at) {
  if (print_parts(s, out, g, stage)) return;
  GErr e = {.code = ERR_BUG, .operand = -1};
  JitConfig walk = {.walk = true, .engine = {.level = (EngLevel)s->config.level}};
  Jit *j = stage >= PASS_LLVM ? open_jit(s) : jit_open(&s->mem, &walk);
  size_t mark = mem_pool_mark(&s->mem);
  JitFn *f = jit_compile(j, g, NULL, &s->kernel.stop, &e);
  if (j != s->jit) jit_close(j); /* f keeps it */
  if (!f) fail_at(s, ERR_NO_CODE, at, "no machine code: %s", e.text);
  mem_pool_add(&s->mem, f, (void (*)(void *))jit_free);
  print_fn(s, out, f, stage, at);
  mem_pool_drain(&s->mem, mark);
}
