/* When a graph is worth machine code, and which.
 *
 * In: a graph with its arguments. Out: what gr_run gives, by whichever way is there: the bits are
 * the same (rule 103), so only time can tell. Compiling is bought when the graph has cost as much
 * on the reference evaluator as compiling would (the ski-rental rule: never more than twice the
 * best choice), or at once when one run is known to cost more. A level that is asked for by name
 * compiles always.
 */
#include "lang/native.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Native {
  JitFn *fn;
  bool none;     /* code could not be had: the reference evaluator runs it */
  double spent;  /* seconds of the reference evaluator */
};

/* What compiling a small graph costs when nothing is in a cache: a code generator starts in 10 ms
 * and makes a kernel in about 7 (measured on one core). */
static const double price = 0.02;

static const struct {
  const char *name;
  CpuMode mode;
} modes[] = {{"reference", CPU_REFERENCE}, {"loops", CPU_LOOPS}};

bool cpu_find(const char *name, CpuMode *mode, EngLevel *level) {
  *level = eng_host_level();
  *mode = CPU_THRIFTY;
  if (!name || !*name) return true;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    if (strcmp(modes[i].name, name)) continue;
    *mode = modes[i].mode;
    return true;
  }
  *mode = CPU_LEVEL;
  EngLevel host = *level;
  if (!strcmp(name, "native")) return true;
  /* a level above this machine's is for recording kernels: the engine runs none of them */
  return eng_level_find(name, level) && (*level <= host || getenv("CKL_RECORD_KERNELS"));
}

void native_free(Mem *m, Native *n) {
  if (!n) return;
  jit_free(n->fn);
  mem_free(m, n, sizeof *n);
}

void native_close(Session *s) {
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

static Jit *open_jit(Session *s) {
  if (s->jit) return s->jit;
  JitConfig c = {.walk = s->config.cpu == CPU_LOOPS};
  EngConfig *g = &c.engine;
  *g = (EngConfig){.level = (EngLevel)s->config.level,
                   .threads = s->config.threads,
                   .codegen = s->config.codegen,
                   .installed = s->config.kernels,
                   .cache = s->config.cache,
                   .perf_map = s->config.perf_map,
                   .log = jit_line,
                   .ud = s};
  eng_find(&s->perm, g);
  g->codegen = unless_empty(g->codegen);
  g->installed = unless_empty(g->installed);
  g->cache = unless_empty(g->cache);
  s->jit = jit_open(&s->mem, &c);
  native_awake(s, true);
  return s->jit;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that the reference evaluator takes, roughly: 1 ns for an elementary operation, 0.1 for a
 * multiplication in a contraction. */
static double guess(const Graph *g, const int64_t *env) {
  double total = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    const OpInfo *op = &op_info[n->op];
    double count = 1;
    if (!n->result_count || op->traits & T_VIEW) continue;
    bool of_operand = op->cls == REDUCE && n->operand_count;
    const Type *t = of_operand ? gr_type(g, gr_operand(g, i, 0)) : &g->types[n->result0];
    for (int k = 0; k < t->rank; k++) {
      int64_t d;
      count *= dim_eval(g->dims, t->dim[k], env, NULL, &d) ? (double)d : 1;
    }
    if (op->cls == CONTRACT) {
      int64_t d = 1;
      const Type *x = gr_type(g, gr_operand(g, i, 0));
      if (x->rank) dim_eval(g->dims, x->dim[x->rank - 1], env, NULL, &d);
      count *= 0.1 * (double)d;
    } else {
      count *= 1 + op->cost;
    }
    total += count * 1e-9;
    for (uint32_t r = 0; r < n->region_count; r++) {
      double turns = n->op == OP_LOOP || n->op == OP_MAP ? 10 : 1;
      if (n->op != OP_CUSTOM || r == 0) total += turns * guess(g->regions[n->region0 + r], env);
    }
  }
  return total;
}

/* False: the session is to be stopped. */
static bool compile_now(Session *s, Native *n, const Graph *g, const char *name, GErr *e) {
  GErr why = {0};
  double start = now();
  n->fn = jit_compile(open_jit(s), g, &s->interrupt, &why);
  if (n->fn) {
    EngCount c = s->jit && jit_engine(s->jit) ? eng_count(jit_engine(s->jit)) : (EngCount){0};
    log_line(s, LOG_JIT, "%s: ready after %.1f ms (%lld kernels generated so far)", name,
             1e3 * (now() - start), (long long)c.generated);
    return true;
  }
  if (why.interrupted) {
    *e = why;
    return false;
  }
  n->none = true;
  log_line(s, LOG_JIT, "%s runs on the reference evaluator: %s", name, why.text);
  if (jit_engine(s->jit) && eng_config(jit_engine(s->jit))->codegen)
    warn_once(s, ERR_NO_CODE, (Span){0}, "`%s` runs slowly, without machine code: %s", name,
              why.text);
  return true;
}

bool native_run(Session *s, Native **slot, const Graph *g, const char *name, RunCtx *c,
                Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  if (s->config.cpu == CPU_REFERENCE || c->anomaly || c->after)
    return gr_run(g, c, in, out, e, at);
  if (!*slot) {
    *slot = mem_need(&s->mem, NULL, 0, sizeof **slot);
    **slot = (Native){0};
    if (s->config.cpu == CPU_THRIFTY) (*slot)->spent = guess(g, c->env);
  }
  Native *n = *slot;
  bool now_or_never = s->config.cpu != CPU_THRIFTY || n->spent >= price;
  if (!n->fn && !n->none && now_or_never && !compile_now(s, n, g, name, e)) return false;
  if (n->fn) return jit_run(n->fn, c, in, out, e, at);
  if (n->none) return gr_run(g, c, in, out, e, at);
  double start = now();
  bool ok = gr_run(g, c, in, out, e, at);
  n->spent += now() - start;
  return ok;
}

void native_explain(Session *s, Buf *out, const Graph *g) {
  JitConfig c = {.walk = true, .engine = {.level = s->config.level}};
  Jit *j = jit_open(&s->mem, &c);
  JitFn *f = jit_compile(j, g, NULL, NULL);
  if (f) jit_print_plan(out, f);
  jit_free(f);
  jit_close(j);
}
