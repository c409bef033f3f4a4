/* Reports about a compiled call: figures, and the choice for its `checkpoint` blocks.
 *
 * In: a call that is ready to run (compile.c): its leaves, sizes, graphs and the choice of its
 * blocks. Out: numbers, text, JSON, a record of the language. The idea: the same plan that runs is
 * made here without its code, so the figures are exact, to the byte.
 */
#include "lang/compile/report.h"

#include <stdio.h>
#include <string.h>

#include "autograd/remat.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "lang/compile/curve.h"
#include "lang/compile/eager_kernels.h"
#include "lang/compile/tiering.h"
#include "lang/names/clauses.h"
#include "lang/names/op_class.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"

const char *const op_bin_name[BIN_COUNT] = {
#define OPCLASS(NAME, word, of, doc) of(word, )
#include "lang/names/clauses.def"
    "move"};
_Static_assert(sizeof((Session *)0)->count.ops == 2 * BIN_COUNT * sizeof(int64_t),
               "a session counts all classes");

/* ---- operations */
static int bin_of(OpCode op) {
  static const int bins[OPCLASS_COUNT] = {
#define OPCLASS(NAME, word, of, doc) of([OPCLASS_##NAME] = BIN_##NAME, )
#include "lang/names/clauses.def"
  };
  int k = clause_opclass_of(op);
  if (k >= 0) return bins[k];
  return op_info[op].cls == MOVE && !(op_info[op].traits & T_VIEW) ? BIN_MOVE : -1;
}

void report_op_counts(const Graph *g, OpCounts *add) {
  for (size_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    const Prov *p = &g->provs[n->prov];
    int bin = bin_of((OpCode)n->op);
    if (bin >= 0) (p->backward || p->recomputed ? add->backward : add->forward)[bin]++;
    for (uint32_t r = 0; r < n->region_count; r++)
      report_op_counts(g->regions[n->region0 + r], add);
  }
}

void report_op_count(Session *s, OpCode op) {
  int bin = bin_of(op);
  if (bin >= 0) s->count.ops[0][bin]++;
}

/* Multiplications and additions of contractions; one for each element of other results. Those of
 * contractions alone are added to *products. */
static int64_t flops_of(const Graph *g, const int64_t *env, int64_t *products) {
  stack_check();
  int64_t sum = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    int bin = bin_of((OpCode)n->op);
    for (uint32_t r = 0; r < n->region_count; r++)
      sum += flops_of(g->regions[n->region0 + r], env, products);
    if (bin < 0 || bin == BIN_MOVE || !n->result_count) continue;
    OpClass cls = op_info[n->op].cls;
    bool contracts = cls == CONTRACT || cls == FACTOR;
    int64_t work = contracts ? cost_flops(g, i, env) : cost_steps(g, i, env);
    sum = cost_add(sum, work);
    if (contracts) *products = cost_add(*products, work);
  }
  return sum;
}

/* ---- leaves */
typedef struct Buffers { /* tensors that buffers of instances hold */
  const void **items;
  size_t count, cap;
} Buffers;

static void buffer_leaves(Session *s, Buffers *b, Value v) {
  stack_check();
  if (v.tag == V_TENSOR) VEC_PUSH(&s->scratch, b->items, b->count, b->cap, v.u.o);
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) buffer_leaves(s, b, items[i]);
}

/* `dense`: per input, bytes of the dense copy that kernels get of it; they are in the figures, too.
 * `written`: the same without buffers, which are dense once a call has written them. Returns the
 * bytes by which buffers grow then. If several inputs repeat one number, they may share a copy and
 * the peak may not be reached: `exact` is false. */
static int64_t leaf_bytes(const CallReport *c, ReportFigures *out, int64_t *dense,
                          int64_t *written) {
  Session *s = c->s;
  const Flat *f = c->flat;
  Buffers b = {0};
  int64_t grow = 0;
  int repeated = 0;
  for (size_t i = 0; i < f->inst_count; i++)
    for (size_t k = 0; k < f->insts[i]->count; k++)
      if (f->insts[i]->fields[k].kind == FIELD_BUFFER)
        buffer_leaves(s, &b, f->insts[i]->fields[k].v);
  for (size_t i = 0; i < c->input_count; i++) {
    if (c->source[i] < 0) {
      out->inputs += 16; /* a random key */
      continue;
    }
    const Leaf *l = &f->leaves[c->source[i]];
    if (l->kind == LEAF_FLOAT || l->kind == LEAF_INT) {
      out->inputs += 8;
      continue;
    }
    const Tensor *t = l->kind == LEAF_PARAM ? l->v.u.p->t : l->v.u.t->t;
    int64_t bytes = tn_bytes(t), room = (int64_t)t->store->bytes;
    bool buffer = false, copy = !tn_is_contiguous(t);
    for (size_t k = 0; k < b.count && !buffer; k++) buffer = b.items[k] == l->v.u.o;
    if (copy) dense[i] = bytes;
    if (copy && room < bytes) repeated++;
    if (copy && buffer) grow += bytes - room;
    if (copy && !buffer) written[i] = bytes;
    if (copy) bytes += room;
    *(l->kind == LEAF_PARAM ? &out->params : buffer ? &out->buffers : &out->inputs) += bytes;
  }
  out->exact = repeated < 2;
  return grow;
}

/* ---- figures */
static JitFn *plan_of(Session *s, const Graph *g, const int64_t *env, JitFn *made) {
  if (made || !g || s->config.cpu == CPU_REFERENCE) return made;
  JitFn *f = native_plan(s, g, env, NULL);
  mem_pool_add(&s->mem, f, (void (*)(void *))jit_free);
  return f;
}

/* The call with plans of its runs; those that it lacks are made, on the pool. */
static CallReport with_plans(const CallReport *c) {
  CallReport p = *c;
  p.first = plan_of(c->s, c->runs.first, c->env, c->first);
  p.second = plan_of(c->s, c->runs.second, c->env, c->second);
  return p;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t sum_of(const int64_t *n, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += n[i];
  return sum;
}

/* Bytes that f makes, and leaves, beside its inputs and their dense copies. */
static int64_t made_by(JitFn *f, const CallReport *c, const JitPeak *p, const int64_t *dense,
                       const bool *alone) {
  int64_t tensors = jit_tensors(f, c->env, dense, alone);
  return p->arena + p->inner + tensors - sum_of(dense, c->input_count);
}

void report_figures(const CallReport *c, ReportFigures *out) {
  Session *s = c->s;
  const Runs *r = &c->runs;
  JitFn *f = s->config.cpu == CPU_REFERENCE ? NULL : c->first;
  JitPeak one, two = {.exact = true, .bound = true};
  *out = (ReportFigures){0};
  int64_t *dense = ARENA_ARRAY(&s->scratch, int64_t, c->input_count + 1);
  int64_t *written = ARENA_ARRAY(&s->scratch, int64_t, c->input_count + 1);
  int64_t grow = leaf_bytes(c, out, dense, written);
  out->compiled = f && jit_peak(f, c->env, &one);
  if (out->compiled && r->second) out->compiled = jit_peak(c->second, c->env, &two);
  out->exact &= out->compiled;
  report_op_counts(r->first, &out->ops);
  out->flops = flops_of(r->first, c->env, &out->products);
  out->time = rm_time(r->first, c->env);
  out->spilled = cost_spilled(r->first, c->env);
  if (r->second) {
    report_op_counts(r->second, &out->ops);
    out->flops += flops_of(r->second, c->env, &out->products);
    out->time += rm_time(r->second, c->env);
  }
  if (out->compiled) {
    out->exact &= one.exact && two.exact;
    out->bound = one.bound && two.bound;
    out->inner = larger(one.inner, two.inner);
    out->arena = larger(one.arena, two.arena);
    out->live = larger(one.live, two.live);
    out->panels = larger(one.panels, two.panels);
    out->scratch = larger(one.scratch, two.scratch);
    out->saved = !r->second
                     ? one.saved
                     : jit_new_outputs(f, &s->scratch, c->env, (size_t)r->joint->output_count);
    const bool *alone = c->memory->alone, *later = c->memory->later;
    int64_t stores = out->fresh = jit_stores(f, c->env, alone, NULL), back = 0;
    out->outputs = one.outputs + stores - (r->second ? out->saved : 0);
    if (r->second)
      back = one.outputs + choice_cotangents(r, c->env) + two.arena + two.outputs + two.inner +
             (two.reads ? one.again : 0);
    int64_t rest = out->params + out->buffers + out->inputs + out->scratch;
    grow += sum_of(written, c->input_count) - sum_of(dense, c->input_count);
    int64_t then = jit_stores(f, c->env, later, NULL);
    out->peak = rest + larger(made_by(f, c, &one, dense, alone), back + stores);
    out->later = rest + grow + larger(made_by(f, c, &one, written, later), back + then);
  }
}

/* ---- text */
const char *report_number(Session *s, int64_t n) {
  char digits[24], out[40];
  int len = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;
  for (int i = 0; i < len; i++) {
    if (i && (len - i) % 3 == 0) out[k++] = ',';
    out[k++] = digits[i];
  }
  out[k] = 0;
  return fail_text(s, "%s", out);
}

static void line(Session *s, Buf *out, const char *name, int64_t bytes, const char *note) {
  buf_printf(out, "  %-22s %16s%s%s\n", name, report_number(s, bytes), *note ? "  " : "", note);
}

static void print_ops(Session *s, Buf *out, const char *name, const int64_t *n) {
  buf_printf(out, "  %-10s", name);
  bool any = false;
  for (int i = 0; i < BIN_COUNT; i++) {
    if (n[i]) buf_printf(out, "%s %lld %s", any ? "," : "", (long long)n[i], op_bin_name[i]);
    any |= n[i] != 0;
  }
  buf_puts(out, any ? "\n" : " nothing\n");
  (void)s;
}

const char *const report_choice[] = {"free", "saved", "recomputed", "offloaded"};
const char *const report_why[] = {"policy", "policy (the rest)", "effect",
                                  "free",   "the caller",        "planner"};

typedef struct Values { /* of one block */
  const CallReport *c;
  Buf *out;
  uint32_t block;
  bool json, any;
  int64_t bytes[4]; /* by choice */
  int64_t shown;
} Values;

const char *report_value_name(Session *s, const Graph *g, Val v) {
  const Prov *p = &g->provs[g->nodes[v.node].prov];
  const char *op = op_info[g->nodes[v.node].op].text;
  const char *path = p->path ? p->path : "", *dot = p->path ? ": " : "";
  if (p->name) return fail_text(s, "%s%s`%s`", path, dot, p->name);
  return fail_text(s, "%s%s%s", path, dot, op);
}

static void one_value(void *ud, const RmValue *v) {
  Values *w = ud;
  const CallReport *c = w->c;
  const Graph *g = c->choice.g;
  Session *s = c->s;
  if (v->block != w->block || gr_type(g, v->v)->kind == TK_STASH) return;
  int64_t bytes = 0;
  Type as[2] = {*gr_type(g, v->v)};
  const char *becomes = v->choice == CHOICE_FREE ? "kept" : report_choice[v->choice];
  for (int k = v->narrow ? rm_saved_as(g, v->v, as) : 1; k-- > 0;)
    bytes += cost_room(g, &as[k], c->env);
  if (v->narrow) becomes = fail_text(s, "saved as %s", dtype_info[as[0].dtype].name);
  if (v->choice <= CHOICE_OFFLOAD) w->bytes[v->choice] += bytes;
  if (v->choice == CHOICE_FREE && v->why != WHY_CALLER) return;
  int64_t cost = v->choice == CHOICE_RECOMPUTE ? rm_cost(g, v->v.node, c->env) : 0;
  if (w->json) {
    buf_printf(w->out,
               "%s{\"value\": \"%s\", \"bytes\": %lld, \"becomes\": \"%s\", \"by\": \"%s\", "
               "\"cost\": %lld}",
               w->any ? ", " : "", report_value_name(s, g, v->v), (long long)bytes, becomes,
               report_why[v->why], (long long)cost);
    w->any = true;
    return;
  }
  Buf t;
  buf_init_arena(&t, &s->scratch);
  type_print(&t, g->dims, gr_type(g, v->v));
  buf_printf(w->out, "    %-44s %14s  %-10s  %s%s\n",
             fail_text(s, "%s %s", report_value_name(s, g, v->v), t.s), report_number(s, bytes),
             becomes, report_why[v->why],
             cost ? fail_text(s, ", cost %s", report_number(s, cost)) : "");
}

static void print_blocks(const CallReport *c, Buf *out, bool json) {
  Session *s = c->s;
  const Graph *g = c->choice.g;
  bool any = false;
  for (uint32_t i = 1; g && g->blocks && i <= g->blocks->count; i++) {
    const Block *b = gr_block_at(g, i);
    Values w = {.c = c, .out = out, .block = i, .json = json};
    uint32_t row = 0, col = 0;
    if (b->parent) continue;
    const char *file = "(code without blocks)";
    if (b->span.file) {
      src_place(&s->sources, b->span.file, b->span.lo, &row, &col);
      file = src_get(&s->sources, b->span.file)->path;
    }
    if (json)
      buf_printf(out,
                 "%s{\"block\": %u, \"file\": \"%s\", \"line\": %u, \"policy\": \"%s\", "
                 "\"values\": [",
                 any ? ", " : "", i, file, row, b->text ? b->text : "");
    else
      buf_printf(out, b->span.file ? "block %u of %s:%u%s%s%s%s\n" : "values that gradients need\n",
                 i, file, row, b->text && *b->text ? " <" : "", b->text && *b->text ? b->text : "",
                 b->text && *b->text ? ">" : "", b->reentrant ? ", the whole body again" : "");
    any = true;
    rm_values(&s->scratch, g, c->choice.choice,
              c->choice.split == UINT32_MAX ? NULL : &c->choice.split, one_value, &w);
    if (json)
      buf_printf(out, "], \"saved\": %lld, \"recomputed\": %lld, \"offloaded\": %lld}",
                 (long long)w.bytes[CHOICE_SAVE], (long long)w.bytes[CHOICE_RECOMPUTE],
                 (long long)w.bytes[CHOICE_OFFLOAD]);
    else
      buf_printf(out, "    saved %s, recomputed %s%s%s\n", report_number(s, w.bytes[CHOICE_SAVE]),
                 report_number(s, w.bytes[CHOICE_RECOMPUTE]),
                 w.bytes[CHOICE_OFFLOAD] ? ", offloaded " : "",
                 w.bytes[CHOICE_OFFLOAD] ? report_number(s, w.bytes[CHOICE_OFFLOAD]) : "");
  }
}

/* What the loops of the graph keep, of which a plan could decide. */
static void print_loops(const CallReport *c, Buf *out, bool json) {
  Session *s = c->s;
  const Graph *g = c->choice.g;
  bool any = false;
  for (uint32_t i = 0; g && i < g->node_count; i++) {
    Span at = g->provs[g->nodes[i].prov].span;
    if (g->nodes[i].op != OP_LOOP || !gr_attr(g, i, AT_AGAIN) || !at.file) continue;
    ReplayKeeps k = {gr_attr_i(g, i, AT_STATES, 0), gr_attr_i(g, i, AT_EVERY, 0)};
    int64_t turns = cost_turns(g, i, c->env), again = gr_again(g, i) ? replay_turns(turns, k) : 0;
    uint32_t row = 0, col = 0;
    const char *file = src_get(&s->sources, at.file)->path;
    src_place(&s->sources, at.file, at.lo, &row, &col);
    if (json) {
      buf_printf(out, "%s{\"file\": \"%s\", \"line\": %u, \"iterations\": ", any ? ", " : "", file,
                 row);
      if (turns < 0)
        buf_puts(out, "null");
      else
        buf_int(out, turns);
      buf_printf(out, ", \"states\": %lld, \"every\": %lld, \"again\": %lld}", (long long)k.states,
                 (long long)k.every, (long long)again);
      any = true;
      continue;
    }
    buf_printf(out, "loop of %s:%u", file, row);
    if (turns >= 0) buf_printf(out, ", %s iterations", report_number(s, turns));
    if (k.every)
      buf_printf(out, ": keeps the state before one of %s", report_number(s, k.every));
    else if (k.states)
      buf_printf(out, ": keeps %s states", report_number(s, k.states));
    else
      buf_puts(out, ": keeps what its gradient needs");
    if (again && turns >= 0) buf_printf(out, ", %s run again", report_number(s, again));
    buf_putc(out, '\n');
  }
}

static const char not_compiled[] =
    "the reference evaluator runs it: a value lives while something reads it";

static void report_print(const CallReport *c, Buf *out) {
  Session *s = c->s;
  ReportFigures f;
  report_figures(c, &f);
  buf_printf(out, "plan of %s%s\n", c->name, c->runs.second ? " and its gradient" : "");
  if (f.compiled) {
    line(s, out,
         f.exact   ? "peak"
         : f.bound ? "peak, at most"
                   : "peak, at least",
         f.peak, f.exact || f.bound ? "bytes" : "bytes: the evaluator runs a part");
    if (f.later > f.peak)
      line(s, out, "peak of later calls", f.later, "buffers have been written, and take room");
  } else {
    buf_printf(out, "  %s\n", not_compiled);
  }
  line(s, out, "  params", f.params, "");
  line(s, out, "  buffers", f.buffers, "");
  line(s, out, "  inputs", f.inputs, "");
  if (f.compiled) {
    line(s, out, "  outputs", f.outputs,
         f.fresh ? fail_text(s, "%s of it for params and buffers that others hold",
                             report_number(s, f.fresh))
                 : "");
    line(s, out, "  arena", f.arena,
         fail_text(s, "%s in use at once, %s of it packed operands", report_number(s, f.live),
                   report_number(s, f.panels)));
    if (f.inner) line(s, out, "  loops and branches", f.inner, "what their bodies make");
    line(s, out, "  workspace of threads", f.scratch, "");
    line(s, out, "saved for the backward", f.saved, c->runs.second ? "" : "of the arena");
  }
  if (f.spilled) line(s, out, "offloaded", f.spilled, "beside the peak");
  line(s, out, "flops", f.flops, "");
  print_ops(s, out, "forward", f.ops.forward);
  print_ops(s, out, "backward", f.ops.backward);
  if (c->choice.candidates) buf_printf(out, "the best of %d plans\n", c->choice.candidates);
  print_blocks(c, out, false);
  print_loops(c, out, false);
}

static void json_ops(Buf *out, const int64_t *n) {
  for (int i = 0; i < BIN_COUNT; i++)
    buf_printf(out, "%s\"%s\": %lld", i ? ", " : "{", op_bin_name[i], (long long)n[i]);
  buf_puts(out, "}");
}

static void report_json(const CallReport *c, Buf *out) {
  ReportFigures f;
  report_figures(c, &f);
  struct {
    const char *name;
    int64_t n;
    bool compiled; /* only a compiled call has it */
  } rows[] = {{"peak", f.peak, true},
              {"later", f.later, true},
              {"params", f.params, false},
              {"buffers", f.buffers, false},
              {"inputs", f.inputs, false},
              {"outputs", f.outputs, true},
              {"arena", f.arena, true},
              {"in_use", f.live, true},
              {"panels", f.panels, true},
              {"workspace", f.scratch, true},
              {"saved", f.saved, true},
              {"spilled", f.spilled, true},
              {"inner", f.inner, true},
              {"flops", f.flops, false},
              {"products", f.products, false},
              {"time", f.time, false},
              {"plans", c->choice.candidates, false}};
  buf_printf(out,
             "{\"function\": \"%s\", \"gradient\": %s, \"compiled\": %s, \"exact\": %s, "
             "\"bound\": %s",
             c->name, c->runs.second ? "true" : "false", f.compiled ? "true" : "false",
             f.exact ? "true" : "false", f.bound ? "true" : "false");
  if (!f.compiled) buf_printf(out, ", \"note\": \"%s\"", not_compiled);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].compiled && !f.compiled)
      buf_printf(out, ", \"%s\": null", rows[i].name);
    else
      buf_printf(out, ", \"%s\": %lld", rows[i].name, (long long)rows[i].n);
  buf_puts(out, ", \"forward\": ");
  json_ops(out, f.ops.forward);
  buf_puts(out, ", \"backward\": ");
  json_ops(out, f.ops.backward);
  buf_puts(out, ", \"blocks\": [");
  print_blocks(c, out, true);
  buf_puts(out, "], \"loops\": [");
  print_loops(c, out, true);
  buf_puts(out, "]}\n");
}

/* ---- a record */
typedef struct Fields {
  Session *s;
  Name names[24];
  Value items[24];
  size_t n;
} Fields;

static void field(Fields *f, const char *name, Value v) {
  f->names[f->n] = names_of(f->s->names, name);
  f->items[f->n++] = v;
}

static Value ops_value(Session *s, const int64_t *n) {
  Fields f = {.s = s};
  for (int i = 0; i < BIN_COUNT; i++) field(&f, op_bin_name[i], v_int(n[i]));
  return v_record(s, f.n, f.names, f.items);
}

/* A figure that only a compiled call has: none on the reference evaluator. */
static Value if_compiled(const ReportFigures *p, int64_t n) {
  return p->compiled ? v_int(n) : v_none();
}

/* Prints what the session asks for. */
static void print_as_asked(const CallReport *c, Buf *out) {
  const Session *s = c->s;
  if (s->report.curve)
    curve_print(c, out);
  else if (s->report.peak)
    fate_print_peak(c, out);
  else if (s->report.why)
    fate_print_why(c, out);
  else
    (s->report.json ? report_json : report_print)(c, out);
}

Value report_value(const CallReport *c) {
  Session *s = c->s;
  Fields f = {.s = s};
  ReportFigures p;
  size_t mark = mem_pool_mark(&s->mem);
  const CallReport planned = with_plans(c);
  report_figures(&planned, &p);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  print_as_asked(&planned, &b);
  mem_pool_drain(&s->mem, mark);
  field(&f, "peak", if_compiled(&p, p.peak));
  field(&f, "later", if_compiled(&p, p.later));
  field(&f, "saved", if_compiled(&p, p.saved));
  field(&f, "flops", v_int(p.flops));
  field(&f, "products", v_int(p.products));
  field(&f, "forward", ops_value(s, p.ops.forward));
  field(&f, "backward", ops_value(s, p.ops.backward));
  field(&f, "params", v_int(p.params));
  field(&f, "buffers", v_int(p.buffers));
  field(&f, "inputs", v_int(p.inputs));
  field(&f, "outputs", if_compiled(&p, p.outputs));
  field(&f, "arena", if_compiled(&p, p.arena));
  field(&f, "in_use", if_compiled(&p, p.live));
  field(&f, "panels", if_compiled(&p, p.panels));
  field(&f, "workspace", if_compiled(&p, p.scratch));
  field(&f, "spilled", if_compiled(&p, p.spilled));
  field(&f, "inner", if_compiled(&p, p.inner));
  field(&f, "time", v_int(p.time));
  field(&f, "exact", v_bool(p.exact));
  field(&f, "bound", v_bool(p.bound));
  field(&f, "text", v_str(s, b.s, b.n));
  return v_record(s, f.n, f.names, f.items);
}

void report_first_call(const CallReport *c) {
  Session *s = c->s;
  const char *fn = s->report.fn;
  size_t n = fn && c->model ? strlen(c->model) : 0; /* `f`, or `Model.f` */
  if (n && !strncmp(fn, c->model, n) && fn[n] == '.') fn += n + 1;
  bool wanted = fn && !strcmp(fn, c->name);
  if (!wanted && !s->config.show_plan) return;
  Buf b;
  buf_init_arena(&b, wanted ? &s->notes : &s->scratch);
  size_t mark = mem_pool_mark(&s->mem);
  const CallReport planned = with_plans(c);
  print_as_asked(&planned, &b);
  mem_pool_drain(&s->mem, mark);
  if (!wanted) {
    log_write(s, 2, b.s, b.n);
    return;
  }
  s->report.text = b.s;
  mem_throw(&s->mem, MEM_ERR_REPORTED);
}
