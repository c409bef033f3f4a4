/* From a graph to a function that runs, and reports about such functions.
 *
 * In: a graph. Out: a JitFn, whose kernels are loaded, or the reason why there is none. A session's
 * functions share a Jit. A graph passes through gr_flatten, fuse, lower (plan.c) and the engine
 * (engine.h); bind.c and exec.c run the function when sizes are known.
 */
#include "jit/plan/jit.h"

#include <string.h>

#include "graph/cost.h"
#include "graph/structure.h"
#include "jit/lower/reuse.h"
#include "jit/plan/run_impl.h"

Jit *jit_open(Mem *m, const JitConfig *c) {
  Engine *engine = c->walk ? NULL : eng_open(m, &c->engine);
  Jit *j = mem_try(m, NULL, 0, sizeof *j);
  if (!j) {
    if (engine) eng_close(engine);
    mem_throw(m, MEM_ERR_NOMEM);
  }
  *j = (Jit){.rc = 1, .mem = m, .config = *c, .engine = engine};
  j->target = &eng_targets[c->engine.level];
  return j;
}

void jit_trim(Jit *j) {
  if (!j) return;
  for (size_t i = j->depth; i < j->block_count; i++) {
    mem_data_free(j->mem, DEV_CPU, j->blocks[i].p, j->blocks[i].bytes);
    j->blocks[i] = (JitBlock){0};
  }
  if (j->engine && j->depth == 0) eng_scratch_free(j->engine);
  if (j->engine) eng_trim(j->engine);
}

int64_t jit_kept(const Jit *j) {
  int64_t sum = 0;
  if (j->engine) sum += (int64_t)eng_scratch_bytes(j->engine) + (int64_t)eng_unused(j->engine);
  for (size_t i = j->depth; i < j->block_count; i++) sum += (int64_t)j->blocks[i].bytes;
  return sum;
}

void jit_close(Jit *j) {
  if (!j) return;
  jit_trim(j);
  if (--j->rc > 0) return;
  mem_free(j->mem, j->blocks, j->block_count * sizeof *j->blocks);
  if (j->engine) eng_close(j->engine);
  mover_close(j->mover);
  mem_free(j->mem, j, sizeof *j);
}

const JitConfig *jit_config(const Jit *j) {
  return &j->config;
}

Engine *jit_engine(Jit *j) {
  return j->engine;
}

JitCount jit_count(const Jit *j) {
  JitCount c = j->count;
  MoverCount moved = mover_count(j->mover);
  c.moved = moved.bytes;
  c.move_seconds = moved.copy_seconds;
  c.wait_seconds = moved.wait_seconds;
  return c;
}

/* ---- compiling */
static uint64_t count_nodes(const Graph *g) {
  uint64_t n = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    const GNode *x = &g->nodes[i];
    if (x->op != OP_INPUT) n++;
    if (x->op == OP_WRAP || x->op == OP_CUSTOM) n += count_nodes(g->regions[x->region0]);
  }
  return n;
}

static bool calls_hosts(const Graph *g) {
  for (size_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_CALL || g->nodes[i].op == OP_DEFER) return true;
  for (size_t i = 0; i < g->region_count; i++)
    if (calls_hosts(g->regions[i])) return true;
  return false;
}

/* Whether nothing here is for kernels. */
static bool by_reference(const Graph *g) {
  for (size_t i = 0; i < g->type_count; i++) {
    bool here = g->types[i].dev == DEV_CPU || g->types[i].dev == DEV_SPILL;
    if (g->types[i].kind == TK_TENSOR && !here) return true;
  }
  for (size_t i = 0; i < g->prov_count; i++) {
    if (g->provs[i].anomaly) return true;
  }
  for (size_t i = 0; i < g->region_count; i++) {
    if (by_reference(g->regions[i])) return true;
  }
  return false;
}

static void need_lists(JitFn *f) {
  if (f->code) return;
  f->kernels = ARENA_ARRAY(&f->arena, EngKernel *, f->plan->low.count + 1);
  f->code = ARENA_ARRAY(&f->arena, KernelFn, f->plan->low.count + 1);
}

/* Takes the code that is there; adds what is not. */
static void take_known(JitFn *f, JitMissing *m) {
  if (f->reference) return;
  const Lowered *low = &f->plan->low;
  need_lists(f);
  for (size_t i = 0; i < low->count; i++) {
    size_t bytes = 0;
    if (low->launches[i].like < i)
      f->kernels[i] = f->kernels[low->launches[i].like];
    else if (!f->kernels[i])
      f->kernels[i] = eng_known(f->j->engine, low->launches[i].k, &bytes);
    if (f->kernels[i] || low->launches[i].like < i) continue;
    m->kernels++;
    m->bytes += bytes;
  }
  for (size_t i = 0; i < f->plan->g->region_count; i++)
    if (f->regions[i]) take_known(f->regions[i], m);
}

JitMissing jit_missing(JitFn *f) {
  JitMissing m = {0};
  double start = jit_now();
  if (f->j->engine) take_known(f, &m);
  f->j->count.code_seconds += jit_now() - start;
  return m;
}

/* Asks for the code of every kernel that is missing, of regions too, so that they are made side by
 * side. */
static bool ask(JitFn *f, Err *why) {
  if (f->reference) return true;
  const Lowered *low = &f->plan->low;
  need_lists(f);
  for (size_t i = 0; i < low->count; i++) {
    if (f->kernels[i]) continue;
    f->kernels[i] = low->launches[i].like < i ? f->kernels[low->launches[i].like]
                                              : eng_kernel(f->j->engine, low->launches[i].k, why);
    if (!f->kernels[i]) return false;
  }
  for (size_t i = 0; i < f->plan->g->region_count; i++) {
    if (f->regions[i] && !ask(f->regions[i], why)) return false;
  }
  return true;
}

static bool receive(JitFn *f, const Interrupt *interrupt, Err *why) {
  if (f->reference) return true;
  size_t n = f->plan->low.count;
  if (!eng_wait(f->j->engine, f->kernels, n, interrupt, why)) return false;
  for (size_t i = 0; i < n; i++) f->code[i] = eng_code(f->kernels[i]);
  for (size_t i = 0; i < f->plan->g->region_count; i++) {
    if (f->regions[i] && !receive(f->regions[i], interrupt, why)) return false;
  }
  return true;
}

static void free_unless_kept(void *obj) {
  JitFn *f = obj;
  if (!f->kept) jit_free(f);
}

/* Makes a function without code. It is on the pool until it is marked as kept. */
static JitFn *make(Jit *j, const Graph *g, const int64_t *env, Shelf *shelf) {
  stack_check();
  Mem *m = j->mem;
  JitFn *f = mem_need(m, NULL, 0, sizeof *f);
  *f = (JitFn){.rc = 1, .j = j, .g = g, .symbols = dim_symbol_count(g->dims)};
  arena_init(&f->arena, m);
  arena_init(&f->temp, m);
  j->rc++;
  f->next = j->fns;
  if (f->next) f->next->prev = f;
  j->fns = f;
  mem_pool_add(m, f, free_unless_kept);
  Arena *a = &f->arena;
  f->nodes = count_nodes(g);
  f->reference = by_reference(g);
  f->hosts = calls_hosts(g);
  if (f->reference) return f;
  Plan *p = f->plan = plan_make(a, &f->temp, g, env, j->target, j->config.apart, shelf);
  arena_free(&f->temp);
  size_t widest = 0;
  for (size_t i = 0; i < p->low.count; i++) {
    p->low.launches[i].k->checked = j->config.addresses;
    if (p->low.launches[i].k->buf_count > widest) widest = p->low.launches[i].k->buf_count;
  }
  f->bufs = ARENA_ARRAY(a, void *, widest + 1);
  size_t inputs = p->g->input_count;
  f->root = ARENA_ARRAY(a, void *, 1 + inputs + p->result_count + p->held_count);
  f->in = ARENA_ARRAY(a, Tensor *, inputs + 1);
  f->dense = ARENA_ARRAY(a, Tensor *, inputs + 1);
  f->gone = ARENA_ARRAY(a, bool, inputs + 1);
  f->results = ARENA_ARRAY(a, Tensor *, p->result_count + 1);
  f->helds = ARENA_ARRAY(a, Tensor *, p->held_count + 1);
  if (p->transfer_count && !j->mover) {
    int threads = j->config.engine.threads ? j->config.engine.threads : pool_default_threads();
    j->mover = mover_open(m, j->config.check ? 1 : MOVER_LEAST, threads < 2);
  }
  f->copy = ARENA_ARRAY(a, uint64_t, p->transfer_count + 1);
  f->begun = ARENA_ARRAY(a, bool, p->transfer_count + 1);
  f->stored = ARENA_ARRAY(a, Tensor *, p->store_count + 1);
  if (j->config.profile) f->times = ARENA_ARRAY(a, struct StepTime, p->step_count + 1);
  f->regions = ARENA_ARRAY(a, JitFn *, p->g->region_count + 1);
  for (size_t i = 0; i < p->step_count; i++) {
    const GNode *n = &p->g->nodes[p->steps[i].node];
    if (p->steps[i].kind != STEP_NODE) continue;
    for (uint32_t k = 0; k < n->region_count; k++) {
      JitFn *r = make(j, p->g->regions[n->region0 + k], env, shelf);
      f->regions[n->region0 + k] = r;
      r->kept = true; /* freed with f */
      r->parent = f;
    }
  }
  f->listed = list_fits(f);
  peak_prepare(f);
  return f;
}

bool jit_code(JitFn *f, const Interrupt *interrupt, GErr *e) {
  Jit *j = f->j;
  Err why = {0};
  double start = jit_now();
  bool ok = !j->engine || (ask(f, &why) && receive(f, interrupt, &why));
  j->count.code_seconds += jit_now() - start;
  if (ok) return true;
  if (interrupt_asked(interrupt)) return gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
  return gerr_set(e, why.nomem ? ERR_NOMEM : ERR_BUG, -1, "%s", why.text);
}

/* Makes a function without code, and counts it. It is on the pool until it is marked as kept. */
static JitFn *plan(Jit *j, const Graph *g, const int64_t *env, Shelf *shelf) {
  double start = jit_now();
  JitFn *f = make(j, g, env, shelf);
  j->count.plans++;
  j->count.plan_seconds += jit_now() - start;
  return f;
}

JitFn *jit_compile(Jit *j, const Graph *g, const int64_t *env, const Interrupt *interrupt,
                   GErr *e) {
  size_t mark = mem_pool_mark(j->mem);
  JitFn *f = plan(j, g, env, NULL);
  bool ok = f->kept = jit_code(f, interrupt, e);
  mem_pool_drain(j->mem, mark);
  return ok ? f : NULL;
}

void jit_free(JitFn *f) {
  if (!f || --f->rc > 0) return;
  Jit *j = f->j;
  Mem *m = j->mem;
  for (size_t i = 0; f->regions && i < f->plan->g->region_count; i++) jit_free(f->regions[i]);
  for (size_t i = f->plan ? f->plan->inputs : 0; f->in && i < f->plan->g->input_count; i++)
    tn_unref(f->in[i]);
  for (size_t i = 0; f->code && i < f->plan->low.count; i++)
    if (f->kernels[i] && f->plan->low.launches[i].like >= i) eng_drop(j->engine, f->kernels[i]);
  while (f->bound) {
    Bound *b = f->bound;
    f->bound = b->next;
    bound_free(f, b);
  }
  if (f->next) f->next->prev = f->prev;
  if (f->prev)
    f->prev->next = f->next;
  else
    j->fns = f->next;
  arena_free(&f->temp);
  arena_free(&f->arena);
  mem_free(m, f, sizeof *f);
  if (--j->rc == 0) {
    j->rc = 1;
    jit_close(j);
  }
}

Shelf *jit_shelf(Arena *a) {
  return reuse_shelf(a);
}

JitFn *jit_plan(Jit *j, const Graph *g, const int64_t *env, Shelf *shelf) {
  size_t mark = mem_pool_mark(j->mem);
  JitFn *f = plan(j, g, env, shelf);
  f->kept = true;
  mem_pool_drain(j->mem, mark);
  return f;
}

int64_t jit_least(Jit *j, Arena *temp, const Graph *g, const int64_t *env) {
  double start = jit_now();
  int64_t least = by_reference(g) ? 0 : plan_least(temp, g, env);
  j->count.plan_seconds += jit_now() - start;
  return least;
}

JitSteps jit_at_peak(JitFn *f, Arena *temp, const int64_t *env,
                     void (*visit)(void *ud, const JitLive *l), void *ud) {
  JitSteps steps = {.forward_end = UINT32_MAX};
  if (f->reference) return steps;
  const Bound *b = bound_get(f, env);
  if (b->reference) return steps;
  const Plan *p = f->plan;
  const Graph *g = p->g;
  steps = (JitSteps){(uint32_t)p->step_count, b->peak_step, p->forward_end};
  JitLive *all = ARENA_ARRAY(temp, JitLive, p->slot_count + 1);
  uint32_t *slot = ARENA_ARRAY(temp, uint32_t, p->slot_count + 1);
  size_t n = 0;
  for (uint32_t i = 0; i < p->slot_count; i++) {
    const Slot *s = &p->slots[i];
    if (s->first > b->peak_step || s->last < b->peak_step) continue;
    const Group *x = &p->groups.items[p->steps[b->peak_step].group];
    JitLive l = {.v = VAL_NONE, .g = g, .offset = b->offset[i], .bytes = b->bytes[i]};
    l.first = s->first;
    l.last = s->last;
    l.prov = &g->provs[g->nodes[x->root].prov];
    size_t k = n++;
    for (; k > 0 && all[k - 1].offset > l.offset; k--) {
      all[k] = all[k - 1];
      slot[k] = slot[k - 1];
    }
    all[k] = l;
    slot[k] = i;
  }
  for (uint32_t node = 0; node < g->node_count; node++) {
    for (uint32_t r = 0; r < g->nodes[node].result_count; r++) {
      Place at = p->place[g->nodes[node].result0 + r];
      for (size_t k = 0; k < n && at.kind == PLACE_ARENA; k++) {
        if (slot[k] != at.index) continue;
        all[k].v = (Val){node, r};
        all[k].prov = &g->provs[g->nodes[node].prov];
      }
    }
  }
  for (size_t k = 0; k < n; k++) visit(ud, &all[k]);
  return steps;
}

/* ---- printing */
static void print_ops(Buf *out, const Graph *g, const Group *x) {
  for (uint32_t k = 0; k < x->node_count; k++) {
    buf_printf(out, "%s%s", k ? ", " : "", op_info[g->nodes[x->nodes[k]].op].text);
  }
  if (!x->node_count) buf_puts(out, op_info[g->nodes[x->root].op].text);
}

void jit_profile(Jit *j, void (*visit)(void *ud, const JitTime *t), void *ud) {
  for (JitFn *f = j->fns; f; f = f->next) {
    for (size_t i = 0; f->times && i < f->plan->step_count; i++) {
      const struct StepTime *t = &f->times[i];
      const Graph *g = f->plan->g;
      const Group *x = &f->plan->groups.items[f->plan->steps[i].group];
      if (!t->runs) continue;
      Buf ops;
      buf_init(&ops, j->mem);
      print_ops(&ops, g, x);
      JitTime row = {.function = f->g->name,
                     .kind = group_kind_name[x->kind],
                     .ops = ops.s,
                     .prov = &g->provs[g->nodes[x->root].prov],
                     .seconds = t->seconds,
                     .runs = t->runs,
                     .bytes = t->bytes,
                     .work = t->work};
      visit(ud, &row);
      buf_free(&ops);
    }
  }
}

static void print_value(Buf *out, const Graph *g, Val v) {
  const Prov *p = &g->provs[g->nodes[v.node].prov];
  buf_printf(out, "%%%u", v.node);
  if (v.res) buf_printf(out, ".%u", v.res);
  buf_puts(out, " ");
  type_print(out, g->dims, gr_type(g, v));
  if (p->name) buf_printf(out, " `%s`", p->name);
}

static void print_place(Buf *out, const Plan *p, Val v) {
  static const char *const word[] = {[PLACE_NONE] = "nowhere",
                                     [PLACE_INPUT] = "input",
                                     [PLACE_RESULT] = "a result",
                                     [PLACE_ARENA] = "arena",
                                     [PLACE_HELD] = "a tensor"};
  buf_puts(out, word[p->place[plan_index(p->g, v)].kind]);
}

void jit_print_plan(Buf *out, const JitFn *f) {
  if (f->reference) {
    buf_puts(out, "all by the reference evaluator: another device, a host call, or anomaly mode\n");
    return;
  }
  const Plan *p = f->plan;
  const Graph *g = p->g;
  buf_printf(out, "%zu groups, %zu kernels\n", p->groups.count, p->low.count);
  for (size_t i = 0; i < p->groups.count; i++) {
    const Group *x = &p->groups.items[i];
    buf_printf(out, "%zu. %s: ", i + 1, group_kind_name[x->kind]);
    print_ops(out, g, x);
    buf_putc(out, '\n');
    for (uint32_t k = 0; k < x->out_count; k++) {
      buf_puts(out, "     ");
      print_value(out, g, x->outs[k]);
      buf_puts(out, " to ");
      print_place(out, p, x->outs[k]);
      buf_putc(out, '\n');
    }
    if (x->reason) buf_printf(out, "     ends here: %s\n", x->reason);
    size_t launches = 0;
    for (size_t k = 0; k < p->step_count; k++) {
      if (p->steps[k].group == i && p->steps[k].kind == STEP_KERNEL) launches++;
    }
    if (launches > 1) buf_printf(out, "     %zu launches\n", launches);
    for (size_t k = 0; k < p->step_count; k++)
      if (p->steps[k].group == i && p->steps[k].turns)
        buf_puts(out, "     all turns in one kernel\n");
  }
}

static void print_title(Buf *out, const Plan *p, size_t step) {
  const Group *x = &p->groups.items[p->steps[step].group];
  buf_printf(out, "# kernel %zu: %s: ", step + 1, group_kind_name[x->kind]);
  print_ops(out, p->g, x);
  buf_putc(out, '\n');
}

void jit_print_loops(Buf *out, const JitFn *f) {
  for (size_t i = 0; !f->reference && i < f->plan->step_count; i++) {
    if (f->plan->steps[i].kind != STEP_KERNEL) continue;
    print_title(out, f->plan, i);
    lp_print(out, f->plan->low.launches[f->plan->steps[i].launch].k);
  }
}

bool jit_print_code(Buf *out, const JitFn *f, unsigned what, Err *e) {
  if (!f->j->engine) return err_set(e, "kernels are walked in loop form");
  for (size_t i = 0; !f->reference && i < f->plan->step_count; i++) {
    const Step *s = &f->plan->steps[i];
    if (s->kind != STEP_KERNEL) continue;
    print_title(out, f->plan, i);
    if (!eng_dump(f->j->engine, f->plan->low.launches[s->launch].k, what, out, e)) return false;
  }
  return true;
}
