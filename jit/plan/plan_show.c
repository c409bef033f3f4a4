/* Prints the results of the passes from a graph to kernels, for tests and for `ckl opt`.
 *
 * In: a graph. Out: its groups, or its plan (steps with their reads and writes, the arena, the
 * steps at which inputs are freed and results made), or the loop form of its kernels. Nodes have
 * the numbers of the flat graph. Bytes and offsets are those of a call in which every symbolic size
 * is 64. The text does not depend on the machine.
 */
#include "graph/pass.h"
#include "jit/plan/plan.h"

enum { SHOWN_SIZE = 64 };

typedef struct Show {
  Buf *out;
  int indent;
} Show;

static void line(const Show *s) {
  for (int i = 0; i < s->indent; i++) buf_puts(s->out, "  ");
}

static void put_value(Buf *out, Val v) {
  buf_printf(out, "%%%u", v.node);
  if (v.res) buf_printf(out, ".%u", v.res);
}

static void put_group(Buf *out, const Graph *g, const Group *x) {
  buf_printf(out, "%s of %%%u:", group_kind_name[x->kind], x->root);
  for (uint32_t k = 0; k < x->node_count; k++)
    buf_printf(out, "%s %%%u %s", k ? "," : "", x->nodes[k],
               op_info[g->nodes[x->nodes[k]].op].text);
  if (!x->node_count) buf_printf(out, " %s", op_info[g->nodes[x->root].op].text);
}

/* ---- groups */
static void show_groups(Arena *a, const Graph *g, Show s) {
  stack_check();
  const uint32_t *origin;
  const Graph *tables;
  Groups groups = {0};
  g = gr_flatten(a, g, &origin);
  g = plan_tables(a, g, &origin, &tables);
  fuse(a, a, g, NULL, false, &groups);
  for (size_t i = 0; i < groups.count; i++) {
    const Group *x = &groups.items[i];
    line(&s);
    buf_printf(s.out, "%zu. ", i + 1);
    put_group(s.out, g, x);
    buf_puts(s.out, " ->");
    for (uint32_t k = 0; k < x->out_count; k++) {
      buf_putc(s.out, ' ');
      put_value(s.out, x->outs[k]);
    }
    if (!x->out_count) buf_puts(s.out, " nothing");
    if (x->reason) buf_printf(s.out, "; %s", x->reason);
    buf_putc(s.out, '\n');
    const GNode *n = &g->nodes[x->root];
    for (uint32_t k = 0; k < n->region_count; k++) {
      line(&s);
      buf_printf(s.out, "  body %u of %%%u\n", k + 1, x->root);
      show_groups(a, g->regions[n->region0 + k], (Show){s.out, s.indent + 2});
    }
  }
}

/* ---- plans */
static void put_place(Buf *out, const Plan *p, const Bound *b, Place at) {
  switch ((PlaceKind)at.kind) {
  case PLACE_NONE: buf_puts(out, " nowhere"); break;
  case PLACE_INPUT:
    buf_printf(out, at.index < p->inputs ? " in input %u" : " in table %u", at.index);
    break;
  case PLACE_RESULT: buf_printf(out, " in result %u", at.index); break;
  case PLACE_HELD: buf_puts(out, " in a tensor"); break;
  case PLACE_ARENA:
    if (p->slots[at.index].first == UINT32_MAX)
      buf_puts(out, " unused");
    else
      buf_printf(out, " at %lld", (long long)b->offset[at.index]);
    break;
  }
}

static bool loads(const Kernel *k, size_t buf) {
  for (LVal v = 0; v < k->count; v++)
    if (k->ins[v].op == LP_LOAD && k->ins[v].buf == buf) return true;
  return false;
}

/* The buffers of a launch that are read, or those that are written. */
static void put_buffers(const Show *s, const Plan *p, const Bound *b, const Step *step, bool read) {
  const Launch *l = &p->low.launches[step->launch];
  bool first = true;
  for (size_t i = 0; i < l->k->buf_count; i++) {
    const BufUse *u = &l->bufs[i];
    LBufKind kind = (LBufKind)l->k->bufs[i].kind;
    if (u->kind == USE_LOCAL || (read ? kind == LB_OUT : kind == LB_IN)) continue;
    if (read && kind == LB_INOUT && !loads(l->k, i)) continue; /* it lies where an operand does */
    if (first) {
      line(s);
      buf_puts(s->out, read ? "   reads" : "   writes");
    }
    buf_puts(s->out, first ? " " : ", ");
    first = false;
    if (u->kind == USE_VALUE) {
      put_value(s->out, u->v);
      put_place(s->out, p, b, p->place[plan_index(p->g, u->v)]);
      if (u->either) buf_puts(s->out, " or");
    }
    if (u->kind == USE_PANEL || u->either) {
      buf_puts(s->out, u->either ? " a panel" : "a panel");
      put_place(s->out, p, b, (Place){PLACE_ARENA, step->panel0 + u->panel});
    }
  }
  if (!first) buf_putc(s->out, '\n');
}

static void put_until(Buf *out, uint32_t step) {
  if (step == UINT32_MAX)
    buf_puts(out, "to the end");
  else
    buf_printf(out, "until step %u", step + 1);
}

static void show_memory(const Show *s, const Plan *p, const Bound *b) {
  line(s);
  buf_printf(s->out, "arena: %lld bytes", (long long)b->arena_bytes);
  if (b->live_bytes)
    buf_printf(s->out, ", %lld in use in step %u", (long long)b->live_bytes, b->peak_step + 1);
  buf_putc(s->out, '\n');
  Val *of = ARENA_ARRAY((Arena *)&b->arena, Val, p->slot_count + 1);
  for (size_t i = 0; i < p->slot_count; i++) of[i] = VAL_NONE;
  for (uint32_t n = 0; n < p->g->node_count; n++)
    for (uint32_t r = 0; r < p->g->nodes[n].result_count; r++) {
      Place at = p->place[plan_index(p->g, (Val){n, r})];
      if (at.kind == PLACE_ARENA) of[at.index] = (Val){n, r};
    }
  for (size_t i = 0; i < p->slot_count; i++) {
    const Slot *x = &p->slots[i];
    if (x->first == UINT32_MAX) continue;
    line(s);
    buf_puts(s->out, "  ");
    if (x->panel)
      buf_puts(s->out, "a panel");
    else
      put_value(s->out, of[i]);
    buf_printf(s->out, ": %lld bytes at %lld, steps %u to %u\n", (long long)b->bytes[i],
               (long long)b->offset[i], x->first + 1, x->last + 1);
  }
  for (size_t i = 0; i < p->held_count; i++) {
    line(s);
    put_value(s->out, p->helds[i].v);
    buf_puts(s->out, ": a tensor ");
    put_until(s->out, p->helds[i].last);
    buf_putc(s->out, '\n');
  }
  for (size_t i = 0; i < p->g->input_count; i++) {
    if (gr_type(p->g, p->g->inputs[i])->kind == TK_TOKEN) continue;
    line(s);
    buf_printf(s->out, i < p->inputs ? "input %zu stays " : "table %zu stays ", i);
    put_until(s->out, p->input_last[i]);
    buf_putc(s->out, '\n');
  }
  for (size_t i = 0; i < p->result_count; i++) {
    line(s);
    buf_printf(s->out, "result %zu, ", i);
    put_value(s->out, p->results[i]);
    if (p->result_first[i] == UINT32_MAX)
      buf_puts(s->out, ", is never written\n");
    else
      buf_printf(s->out, ", is made before step %u\n", p->result_first[i] + 1);
  }
  if (b->saved_bytes) {
    line(s);
    buf_printf(s->out, "%lld bytes wait for the backward behind step %u\n",
               (long long)b->saved_bytes, p->forward_end + 1);
  }
}

/* Each output, and what it is a view of. */
static void show_outputs(const Show *s, const Plan *p, const Bound *b) {
  const Graph *g = p->g;
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i], of = v;
    if (gr_type(g, v)->kind == TK_TOKEN) continue;
    while (!p->place[plan_index(g, of)].kind && g->nodes[of.node].operand_count)
      of = gr_operand(g, of.node, 0);
    line(s);
    buf_printf(s->out, "output %zu is ", i);
    if (!val_eq(v, of)) {
      put_value(s->out, v);
      buf_puts(s->out, ", a view of ");
    }
    put_value(s->out, of);
    if (p->place[plan_index(g, of)].kind)
      put_place(s->out, p, b, p->place[plan_index(g, of)]);
    else
      buf_printf(s->out, ", a %s", op_info[g->nodes[of.node].op].text);
    buf_putc(s->out, '\n');
  }
}

/* Kernels are numbered through a function; a kernel of an earlier launch keeps its number. */
static size_t kernel_number(const Plan *p, uint32_t launch) {
  size_t n = 0;
  for (uint32_t i = 0; i <= p->low.launches[launch].like; i++) n += p->low.launches[i].like == i;
  return n;
}

typedef void (*ShowFn)(JitFn *f, const int64_t *env, Show s);

static void show_bodies(JitFn *f, const int64_t *env, const Step *step, Show s, ShowFn show) {
  const GNode *n = &f->plan->g->nodes[step->node];
  for (uint32_t k = 0; step->kind == STEP_NODE && k < n->region_count; k++) {
    line(&s);
    buf_printf(s.out, "  body %u of %%%u\n", k + 1, step->node);
    show(f->regions[n->region0 + k], env, (Show){s.out, s.indent + 2});
  }
}

static bool by_evaluator(const JitFn *f, Show s) {
  if (!f->reference) return false;
  line(&s);
  buf_puts(s.out, "all by the reference evaluator\n");
  return true;
}

static void show_plan(JitFn *f, const int64_t *env, Show s) {
  stack_check();
  if (by_evaluator(f, s)) return;
  const Plan *p = f->plan;
  const Bound *b = bound_get(f, env);
  for (size_t i = 0; i < p->step_count; i++) {
    const Step *step = &p->steps[i];
    const Group *x = &p->groups.items[step->group];
    line(&s);
    buf_printf(s.out, "%zu. ", i + 1);
    if (step->kind == STEP_KERNEL) {
      bool again = p->low.launches[step->launch].like != step->launch;
      buf_printf(s.out, "kernel %zu%s, ", kernel_number(p, step->launch), again ? " again" : "");
    }
    put_group(s.out, p->g, x);
    if (step->kind == STEP_NODE) buf_puts(s.out, ", by the evaluator");
    buf_putc(s.out, '\n');
    if (step->kind == STEP_KERNEL && !b->reference) {
      put_buffers(&s, p, b, step, true);
      put_buffers(&s, p, b, step, false);
    }
    if (step->moved || step->from.kind) {
      line(&s);
      buf_puts(s.out, "   nothing to copy");
      if (step->from.kind) buf_puts(s.out, ", if this run alone has what is");
      if (step->from.kind) put_place(s.out, p, b, step->from);
      buf_putc(s.out, '\n');
    }
    show_bodies(f, env, step, s, show_plan);
  }
  if (b->reference) {
    line(&s);
    buf_puts(s.out, "these sizes are for the reference evaluator\n");
    return;
  }
  show_memory(&s, p, b);
  show_outputs(&s, p, b);
}

/* ---- loop form */
static void put_arguments(const Show *s, const Plan *p, const Launch *l) {
  for (size_t i = 0; i < l->k->buf_count; i++) {
    const BufUse *u = &l->bufs[i];
    buf_printf(s->out, "%s b%zu = ", i ? "," : " with", i);
    if (u->kind == USE_VALUE) put_value(s->out, u->v);
    if (u->either) buf_puts(s->out, " or ");
    if (u->kind == USE_PANEL || u->either) buf_printf(s->out, "panel %u", u->panel);
    if (u->kind == USE_LOCAL) buf_puts(s->out, "scratch");
  }
  for (uint32_t i = 0; i < l->k->arg_count; i++) {
    buf_printf(s->out, ", argument %u = ", i);
    if (l->args[i].kind == ARG_DIM)
      dim_print(s->out, p->g->dims, l->args[i].dim);
    else
      buf_printf(s->out, "bits %#llx", (unsigned long long)l->args[i].bits);
  }
  buf_putc(s->out, '\n');
}

static void show_kernels(JitFn *f, const int64_t *env, Show s) {
  stack_check();
  if (by_evaluator(f, s)) return;
  const Plan *p = f->plan;
  for (size_t i = 0; i < p->step_count; i++) {
    const Step *step = &p->steps[i];
    if (step->kind == STEP_KERNEL) {
      const Launch *l = &p->low.launches[step->launch];
      bool again = l->like != step->launch;
      line(&s);
      buf_printf(s.out, "# kernel %zu%s, ", kernel_number(p, step->launch), again ? " again" : "");
      put_group(s.out, p->g, &p->groups.items[step->group]);
      buf_putc(s.out, '\n');
      line(&s);
      buf_puts(s.out, "#");
      put_arguments(&s, p, l);
      if (!again) lp_print(s.out, l->k);
    }
    show_bodies(f, env, step, s, show_kernels);
  }
}

void jit_show(Mem *m, EngLevel level, const Graph *g, JitShow what, Buf *out) {
  Show s = {.out = out};
  size_t mark = mem_pool_mark(m);
  JitConfig walk = {.walk = true, .engine = {.level = level}};
  Jit *j = jit_open(m, &walk);
  mem_pool_add(m, j, (void (*)(void *))jit_close);
  JitFn *f = jit_plan(j, g, NULL, NULL);
  mem_pool_add(m, f, (void (*)(void *))jit_free);
  int64_t *env = ARENA_ARRAY(&f->arena, int64_t, f->symbols + 1u);
  for (Sym i = 0; i < f->symbols; i++) env[i] = SHOWN_SIZE;
  switch (what) {
  case JIT_SHOW_GROUPS: show_groups(&f->arena, g, s); break;
  case JIT_SHOW_PLAN: show_plan(f, env, s); break;
  case JIT_SHOW_KERNELS: show_kernels(f, env, s); break;
  }
  mem_pool_drain(m, mark);
}
