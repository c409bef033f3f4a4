/* The plans that a call could have, by memory and work (`ckl plan --curve`).
 *
 * In: a call that is ready to run. Out: a table, a drawing, JSON. The idea: all candidates of
 * choice.c are planned as if each block had a budget, or the whole function were one block; those
 * that none beats are the curve. The budget told for a plan is tried: it gives that plan. Measuring
 * runs the plans beside each other on the inputs of the call. Results are dropped, and each input
 * has a second holder meanwhile, so nothing can be written in place.
 */
#include "lang/compile/curve.h"

#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "graph/structure.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/value/fail.h"

typedef struct Row { /* a plan of the curve */
  ReportFigures figures;
  double work;                 /* time, that of the fastest is 1 */
  bool now;                    /* the call has this plan */
  double seconds;              /* measured */
  int64_t measured;            /* bytes, as counter("data.peak") has them */
  int64_t moved;               /* bytes of offloaded values in a run, both ways */
  double move_seconds, hidden; /* of a run; the share in which the run did something else */
} Row;

typedef struct CurveTable {
  const CallReport *c;
  CurveGraph graph;
  Curve curve;
  Row *rows;
  bool measured;
  const char *why_not; /* it is not measured, although it was asked for */
} CurveTable;

/* ---- the graph that the plans are of */
static bool has_gradient(const Graph *g) {
  bool any = false;
  for (uint32_t i = 0; i < g->node_count && !any; i++) any = g->provs[g->nodes[i].prov].backward;
  return any;
}

bool curve_graph(const CallReport *c, CurveGraph *out) {
  Session *s = c->s;
  const Graph *g = c->whole;
  const JointWhole *w = NULL;
  if (c->runs.second) {
    w = joint_whole(c->joint, &s->notes);
    if (!w) return false;
    g = w->g;
  }
  if (!has_gradient(g)) return false;
  *out = (CurveGraph){.added = !g->blocks || !g->blocks->count};
  if (out->added) {
    g = choice_block(&s->notes, &s->scratch, g, true);
    if (w) {
      JointWhole *block = ARENA_NEW(&s->notes, JointWhole);
      *block = *w;
      block->g = (Graph *)(uintptr_t)g;
      w = block;
    }
  }
  out->of = (ChoiceOf){s, &s->notes, g, w, c->env, c->memory};
  return true;
}

CallReport curve_call(const CallReport *c, const Choice *choice) {
  CallReport r = *c;
  r.choice = *choice;
  r.runs = choice->planned->runs;
  r.first = choice->planned->first;
  r.second = choice->planned->second;
  return r;
}

/* ---- measuring */
enum { RUNS = 3 };

static const char *effect_of(const Graph *g) {
  for (uint32_t i = 0; i < g->node_count; i++) {
    OpCode op = (OpCode)g->nodes[i].op;
    if ((op_info[op].traits & T_EFFECT) && op != OP_ASSERT && op != OP_HOOK)
      return op_info[op].text;
  }
  for (size_t i = 0; i < g->region_count; i++) {
    const char *found = effect_of(g->regions[i]);
    if (found) return found;
  }
  return NULL;
}

/* Zeros, as cotangents. */
static Tensor *zeros_like(Session *s, const Graph *g, Val v, const int64_t *env) {
  const Type *t = gr_type(g, v);
  int64_t dim[CKL_MAX_RANK] = {0};
  for (int k = 0; k < t->rank; k++) dim_eval(g->dims, t->dim[k], env, NULL, &dim[k]);
  Tensor *x = tn_zeros(&s->mem, DEV_CPU, (DType)t->dtype, t->rank, dim);
  value_pool_tensors(s, &x, 1);
  return x;
}

static void run_one(const CallReport *c, Native **n, const Graph *g, Tensor *const *in,
                    Tensor **out) {
  Session *s = c->s;
  RunCtx ctx = {.mem = &s->mem,
                .interrupt = &s->kernel.stop,
                .pool = native_pool(s, false),
                .env = c->env,
                .effect = effect_run,
                .ud = s};
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {0};
  if (!native_run(s, n, g, c->name, &ctx, in, out, &e, &at)) {
    fail_if_interrupted(s, at.span);
    fail_gerr(s, at.span, &e);
  }
  value_pool_tensors(s, out, g->output_count);
}

typedef struct Code { /* of the two halves */
  Mem *mem;
  Native *first, *second;
} Code;

static void free_code(void *code) {
  Code *c = code;
  native_free(c->mem, c->first);
  native_free(c->mem, c->second);
}

/* Runs forward and backward; returns seconds. */
static double run_both(const CallReport *c, Code *code) {
  Session *s = c->s;
  const Runs *r = &c->runs;
  Tensor **out = ARENA_ARRAY(&s->scratch, Tensor *, r->first->output_count + 1);
  const Graph *b = r->second;
  double start = native_clock();
  run_one(c, &code->first, r->first, c->in, out);
  if (b) {
    Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, b->input_count + 1);
    for (size_t i = (size_t)r->joint->saved_count; i < b->input_count; i++)
      in[i] = zeros_like(s, b, b->inputs[i], c->env);
    for (int i = 0; i < r->joint->saved_count; i++) in[i] = out[r->joint->output_count + i];
    Tensor **grads = ARENA_ARRAY(&s->scratch, Tensor *, b->output_count + 1);
    run_one(c, &code->second, b, in, grads);
  }
  return native_clock() - start;
}

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

/* `c` is a call with a plan of the curve. */
static void measure(const CallReport *c, Row *r) {
  Session *s = c->s;
  size_t mark = mem_pool_mark(&s->mem);
  double seconds[RUNS];
  Tensor **held = ARENA_ARRAY(&s->scratch, Tensor *, c->input_count + 1);
  for (size_t i = 0; i < c->input_count; i++) held[i] = tn_ref(c->in[i]);
  value_pool_tensors(s, held, c->input_count);
  Code *code = ARENA_NEW(&s->scratch, Code);
  code->mem = &s->mem;
  mem_pool_add(&s->mem, code, free_code);
  Planned *p = c->choice.planned;
  native_planned(s, &code->first, &p->first);
  if (p->runs.second) native_planned(s, &code->second, &p->second);
  if (s->mem.reclaim) s->mem.reclaim(s->mem.reclaim_ud);
  size_t inner = mem_pool_mark(&s->mem);
  int64_t before = (int64_t)s->mem.data_live[DEV_CPU];
  for (size_t i = 0; i < c->input_count; i++) /* figures.inputs have the dense copies, too */
    if (!tn_is_contiguous(c->in[i])) before += tn_bytes(c->in[i]);
  mem_peaks_reset(&s->mem);
  JitCount from = {0}, to;
  EngCount eng;
  for (int k = -1; k < RUNS; k++) { /* the first one warms up */
    double t = run_both(c, code);
    if (k >= 0) seconds[k] = t;
    if (k < 0) native_counts(s, &from, &eng);
    mem_pool_drain(&s->mem, inner);
  }
  native_counts(s, &to, &eng);
  r->moved = (to.moved - from.moved) / RUNS;
  r->move_seconds = (to.move_seconds - from.move_seconds) / RUNS;
  double waited = (to.wait_seconds - from.wait_seconds) / RUNS;
  r->hidden = waited < r->move_seconds ? 1 - waited / r->move_seconds : 0;
  const ReportFigures *f = &r->figures;
  r->measured = (int64_t)s->mem.data_peak[DEV_CPU] - before + f->params + f->buffers + f->inputs;
  qsort(seconds, RUNS, sizeof *seconds, by_size);
  r->seconds = seconds[RUNS / 2];
  mem_pool_drain(&s->mem, mark);
}

/* ---- the table */
static void make_table(const CallReport *c, CurveTable *t) {
  Session *s = c->s;
  ReportFigures now;
  report_figures(c, &now);
  choice_curve(&t->graph.of, &t->curve);
  int64_t least = t->curve.count ? t->curve.plans[t->curve.count - 1].time : 0;
  t->rows = ARENA_ARRAY(&s->notes, Row, t->curve.count + 1);
  for (size_t i = 0; i < t->curve.count; i++) {
    CallReport one = curve_call(c, &t->curve.plans[i].choice);
    Row *r = &t->rows[i];
    report_figures(&one, &r->figures);
    r->work = least ? (double)r->figures.time / (double)least : 1;
    r->now = r->figures.peak == now.peak && r->figures.time == now.time;
  }
  if (!s->report.measure) return;
  const char *effect = effect_of(c->runs.first);
  if (!effect && c->runs.second) effect = effect_of(c->runs.second);
  if (effect) t->why_not = fail_text(s, "it has effects that would happen again: `%s`", effect);
  if (t->why_not) return;
  t->measured = true;
  for (size_t i = 0; i < t->curve.count; i++) {
    CallReport one = curve_call(c, &t->curve.plans[i].choice);
    measure(&one, &t->rows[i]);
  }
}

static uint32_t line_at(const Session *s, Span at, bool end) {
  uint32_t line = 0, col;
  src_place(&s->sources, at.file, end ? at.hi : at.lo, &line, &col);
  return line;
}

/* The lines of the function from the first to the last one that a gradient needs: of what is
 * computed there, else (`views`) of what is passed on to other functions. */
static Span lines_of(const CallReport *c, const Graph *g, bool views) {
  Span all = {0};
  for (uint32_t i = 0; i < g->node_count; i++) {
    const Prov *p = &g->provs[g->nodes[i].prov];
    Span at = p->caller.file ? p->caller : p->span;
    if (!p->region || p->backward || at.file != c->at.file || !at.file) continue;
    if (!g->nodes[i].operand_count) continue;
    if (!views && op_info[g->nodes[i].op].remat == REMAT_FREE) continue;
    if (at.lo < c->at.lo || at.hi > c->at.hi) continue;
    if (!all.file) all = at;
    if (at.lo < all.lo) all.lo = at.lo;
    if (at.hi > all.hi) all.hi = at.hi;
  }
  return all.file || views ? all : lines_of(c, g, true);
}

static void print_around(const CurveTable *t, Buf *out) {
  const CallReport *c = t->c;
  Session *s = c->s;
  if (!t->graph.added) return;
  Span at = lines_of(c, t->graph.of.g, false);
  buf_puts(out, "the code has no block; `checkpoint <budget = N> { .. }` goes around ");
  if (!at.file) {
    buf_puts(out, "what the gradient is taken of\n");
    return;
  }
  uint32_t first = line_at(s, at, false), last = line_at(s, at, true);
  buf_printf(out, "%s:%u", src_get(&s->sources, at.file)->path, first);
  if (last != first) buf_printf(out, " to %u", last);
  buf_putc(out, '\n');
}

/* The first block with the text of block i. */
static bool is_first(const BlockTab *tab, size_t i) {
  for (size_t k = 0; k < i; k++)
    if (tab->items[k].span.file == tab->items[i].span.file &&
        tab->items[k].span.lo == tab->items[i].span.lo)
      return false;
  return true;
}

/* A block that a budget may be written to: not one inside of another. */
static bool takes_budget(const BlockTab *tab, size_t i) {
  return !tab->items[i].parent && is_first(tab, i);
}

static void print_way(const CurveTable *t, size_t i, Buf *out) {
  const Session *s = t->c->s;
  const CurvePlan *p = &t->curve.plans[i];
  const BlockTab *tab = t->graph.of.g->blocks;
  size_t texts = 0;
  for (size_t k = 0; k < tab->count; k++) texts += takes_budget(tab, k);
  if (t->graph.added && t->rows[i].now) {
    buf_puts(out, "no block");
  } else if (!p->by_budget) {
    buf_puts(out, i == t->curve.knee ? "<auto>" : "no budget gives it");
  } else {
    bool any = false;
    for (size_t k = 0; k < tab->count; k++) {
      if (!takes_budget(tab, k)) continue;
      buf_printf(out, "%s<budget = %lld>", any ? ", " : "", (long long)p->budget[k]);
      if (texts > 1) buf_printf(out, " in line %u", line_at(s, tab->items[k].span, false));
      any = true;
    }
  }
  if (i == t->curve.knee) buf_puts(out, "  (the knee: <auto>)");
  if (t->rows[i].now) buf_puts(out, "  (now)");
}

/* ---- the drawing: memory to the right, work upwards */
enum { HIGH = 12, WIDE = 56 };

/* Where plan i is, from 0 to 1. */
static void place_of(const CurveTable *t, size_t i, double *x, double *y) {
  double left = (double)t->rows[0].figures.peak;
  double right = (double)t->rows[t->curve.count - 1].figures.peak, most = t->rows[0].work;
  *x = right > left ? ((double)t->rows[i].figures.peak - left) / (right - left) : 0.5;
  *y = most > 1 ? (t->rows[i].work - 1) / (most - 1) : 0;
}

static void print_drawing(const CurveTable *t, Buf *out) {
  char at[HIGH][WIDE + 1];
  size_t n = t->curve.count;
  if (n < 3) return;
  memset(at, ' ', sizeof at);
  for (size_t i = 0; i < n; i++) {
    double x, y;
    place_of(t, i, &x, &y);
    size_t col = (size_t)(x * (WIDE - 1) + 0.5), row = (size_t)(y * (HIGH - 1) + 0.5);
    at[HIGH - 1 - row][col] = i == t->curve.knee ? '*' : 'o';
  }
  buf_putc(out, '\n');
  for (int row = 0; row < HIGH; row++) {
    size_t len = WIDE;
    while (len && at[row][len - 1] == ' ') len--;
    at[row][len] = 0;
    if (row == 0 || row == HIGH - 1)
      buf_printf(out, "%7.3f |%s%s\n", row ? 1.0 : t->rows[0].work, len ? " " : "", at[row]);
    else
      buf_printf(out, "%7s |%s%s\n", row == 1 ? "work" : "", len ? " " : "", at[row]);
  }
  buf_printf(out, "%7s +-", "");
  for (int k = 0; k < WIDE; k++) buf_putc(out, '-');
  const char *first = report_number(t->c->s, t->rows[0].figures.peak);
  buf_printf(out, "\n%9s%s%*s\n", "", first, (int)(WIDE + 1 - strlen(first)),
             fail_text(t->c->s, "peak %s", report_number(t->c->s, t->rows[n - 1].figures.peak)));
}

static const char *drawing_svg(const CurveTable *t) {
  const double wide = 640, high = 360, edge = 60;
  size_t n = t->curve.count;
  Buf b;
  buf_init_arena(&b, &t->c->s->notes);
  buf_printf(&b,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
             "<text x=\"%.0f\" y=\"20\">work against peak: %s</text>\n"
             "<path d=\"M%.0f 40V%.0fH%.0f\" fill=\"none\" stroke=\"black\"/>\n",
             wide, high, edge, t->c->name, edge, high - edge, wide - 20);
  Buf line, points;
  buf_init_arena(&line, &t->c->s->scratch);
  buf_init_arena(&points, &t->c->s->scratch);
  for (size_t i = 0; i < n; i++) {
    const Row *r = &t->rows[i];
    double x, y;
    place_of(t, i, &x, &y);
    x = edge + 10 + x * (wide - edge - 40);
    y = high - edge - 10 - y * (high - edge - 60);
    bool knee = i == t->curve.knee;
    buf_printf(&line, "%s%.1f %.1f", i ? "L" : "M", x, y);
    buf_printf(&points,
               "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"><title>%s bytes, work "
               "%.3f%s</title></circle>\n",
               x, y, knee ? 6 : 4, knee ? "crimson" : "steelblue",
               report_number(t->c->s, r->figures.peak), r->work, knee ? ", the knee" : "");
  }
  buf_printf(&b, "<path d=\"%s\" fill=\"none\" stroke=\"steelblue\"/>\n%s", line.s, points.s);
  buf_printf(&b, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", edge, high - edge + 20,
             report_number(t->c->s, t->rows[0].figures.peak));
  buf_printf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s bytes</text>\n", wide - 20,
             high - edge + 20, report_number(t->c->s, t->rows[n - 1].figures.peak));
  buf_printf(&b, "<text x=\"10\" y=\"50\">%.3f</text>\n", t->rows[0].work);
  buf_printf(&b, "<text x=\"10\" y=\"%.0f\">1.000</text>\n</svg>\n", high - edge - 6);
  return b.s;
}

/* ---- text and JSON */
static void print_table(const CurveTable *t, Buf *out) {
  Session *s = t->c->s;
  buf_printf(out, "plans of %s%s: of %zu, none beats these\n", t->c->name,
             t->c->runs.second ? " and its gradient" : "", t->curve.looked);
  print_around(t, out);
  buf_printf(out, "%15s %15s %7s  %s%s\n", "peak", "arena", "work",
             t->measured ? "     ms   measured peak  " : "", "what to write");
  for (size_t i = 0; i < t->curve.count; i++) {
    const Row *r = &t->rows[i];
    buf_printf(out, "%15s %15s %7.3f  ", report_number(s, r->figures.peak),
               report_number(s, r->figures.arena), r->work);
    if (t->measured)
      buf_printf(out, "%7.2f %15s  ", 1e3 * r->seconds, report_number(s, r->measured));
    print_way(t, i, out);
    buf_putc(out, '\n');
  }
  bool exact = true, bound = true;
  for (size_t i = 0; i < t->curve.count; i++) {
    exact &= t->rows[i].figures.exact;
    bound &= t->rows[i].figures.bound;
  }
  if (!exact)
    buf_printf(out, "peaks are at %s these: the evaluator runs a part, or inputs share a copy\n",
               bound ? "most" : "least");
  if (t->why_not) buf_printf(out, "not measured: %s\n", t->why_not);
  for (size_t i = 0; i < t->curve.count; i++) {
    const Row *r = &t->rows[i];
    if (r->moved)
      buf_printf(out,
                 "plan %zu offloads: %s bytes out and back in %.2f ms, %.0f %% beside other work\n",
                 i + 1, report_number(s, r->moved), 1e3 * r->move_seconds, 1e2 * r->hidden);
  }
  print_drawing(t, out);
}

static void json_budgets(const CurveTable *t, size_t i, Buf *out) {
  const Session *s = t->c->s;
  const BlockTab *tab = t->graph.of.g->blocks;
  bool any = false;
  for (size_t k = 0; k < tab->count; k++) {
    Span at = tab->items[k].span;
    if (!takes_budget(tab, k)) continue;
    if (t->graph.added) at = lines_of(t->c, t->graph.of.g, false);
    buf_puts(out, any ? ", {\"file\": " : "{\"file\": ");
    const char *path = at.file ? src_get(&s->sources, at.file)->path : "";
    buf_json(out, path, strlen(path));
    buf_printf(out, ", \"line\": %u, \"budget\": %lld}", at.file ? line_at(s, at, false) : 0,
               (long long)t->curve.plans[i].budget[k]);
    any = true;
  }
}

static const char *truth(bool b) {
  return b ? "true" : "false";
}

static void json_table(const CurveTable *t, Buf *out) {
  buf_printf(out, "{\"function\": \"%s\", \"gradient\": %s, \"looked\": %zu, \"block\": %s",
             t->c->name, truth(t->c->runs.second != NULL), t->curve.looked, truth(!t->graph.added));
  if (t->why_not) {
    buf_puts(out, ", \"not_measured\": ");
    buf_json(out, t->why_not, strlen(t->why_not));
  }
  buf_puts(out, ", \"plans\": [");
  for (size_t i = 0; i < t->curve.count; i++) {
    const Row *r = &t->rows[i];
    buf_printf(out,
               "%s{\"peak\": %lld, \"arena\": %lld, \"time\": %lld, \"work\": %.4f, \"knee\": %s, "
               "\"now\": %s, \"exact\": %s, \"by_budget\": %s, \"budgets\": [",
               i ? ", " : "", (long long)r->figures.peak, (long long)r->figures.arena,
               (long long)r->figures.time, r->work, truth(i == t->curve.knee), truth(r->now),
               truth(r->figures.exact), truth(t->curve.plans[i].by_budget));
    json_budgets(t, i, out);
    buf_puts(out, "]");
    if (t->measured)
      buf_printf(out, ", \"ms\": %.3f, \"measured\": %lld", 1e3 * r->seconds,
                 (long long)r->measured);
    if (r->moved)
      buf_printf(out, ", \"moved\": %lld, \"move_ms\": %.3f, \"hidden\": %.3f", (long long)r->moved,
                 1e3 * r->move_seconds, r->hidden);
    buf_puts(out, "}");
  }
  buf_puts(out, "]}\n");
}

void curve_print(const CallReport *c, Buf *out) {
  Session *s = c->s;
  CurveTable t = {.c = c};
  size_t mark = mem_pool_mark(&s->mem);
  const char *none = s->config.cpu == CPU_REFERENCE ? "the reference evaluator has no plans"
                     : !curve_graph(c, &t.graph) ? "no gradient is taken: nothing is saved for one"
                                                 : NULL;
  if (!none) make_table(c, &t);
  if (!none && !t.curve.count) none = "it has no plan that is known before it runs";
  if (none && s->report.json) {
    buf_printf(out, "{\"function\": \"%s\", \"plans\": [], \"note\": \"%s\"}\n", c->name, none);
  } else if (none) {
    buf_printf(out, "plans of %s: %s\n", c->name, none);
  } else {
    if (s->report.draw) s->report.svg = drawing_svg(&t);
    (s->report.json ? json_table : print_table)(&t, out);
  }
  mem_pool_drain(&s->mem, mark);
}
