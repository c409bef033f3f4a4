/* Two questions about the plan of a call: which values make its peak (`ckl plan --peak`), and who
 * decided what becomes of the values of a name (`ckl plan --why=NAME`).
 *
 * In: a call that is ready to run. Out: text or JSON. The second answer has the other choice, too:
 * where no clause or law decides, the choice of the value is turned round and planned like any
 * other, so its peak is exact.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/remat.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "lang/compile/curve.h"
#include "lang/compile/tiering.h"
#include "lang/names/meant.h"
#include "lang/value/fail.h"

static const char *place_text(const Session *s, const Prov *p, uint32_t *line) {
  uint32_t col;
  Span at = p->caller.file ? p->caller : p->span;
  *line = 0;
  if (!at.file) return "";
  src_place(&s->sources, at.file, at.lo, line, &col);
  return src_get(&s->sources, at.file)->path;
}

static const char *made_in(const Prov *p) {
  return p->recomputed ? "recomputed" : p->backward ? "backward" : "forward";
}

/* ---- the peak */
enum { BAR = 32 };

typedef struct Lives {
  Session *s;
  JitLive *items;
  size_t count, cap;
} Lives;

static void add_life(void *ud, const JitLive *l) {
  Lives *v = ud;
  VEC_PUSH(&v->s->scratch, v->items, v->count, v->cap, *l);
}

static int by_bytes(const void *x, const void *y) {
  const JitLive *a = x, *b = y;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static const char *life_name(Session *s, const JitLive *l) {
  Buf b;
  if (l->v.node == VAL_NONE.node) return "packed operands";
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "%s ", report_value_name(s, l->g, l->v));
  type_print(&b, l->g->dims, gr_type(l->g, l->v));
  return b.s;
}

/* The life of a value: `=` from its first step to its last, `#` where the peak is. */
static void print_bar(Buf *out, const JitLive *l, const JitSteps *at) {
  uint32_t most = at->count ? at->count : 1;
  uint32_t from = (uint32_t)((uint64_t)l->first * BAR / most);
  uint32_t to = (uint32_t)((uint64_t)(l->last < most ? l->last : most - 1) * BAR / most);
  uint32_t peak = (uint32_t)((uint64_t)at->peak * BAR / most);
  for (uint32_t i = 0; i < BAR; i++)
    buf_putc(out, i == peak ? '#' : i >= from && i <= to ? '=' : '.');
}

static void print_half(const CallReport *c, JitFn *f, const char *title, Buf *out) {
  Session *s = c->s;
  Lives v = {.s = s};
  JitPeak p;
  bool json = s->report.json, known = jit_peak(f, c->env, &p);
  JitSteps at = jit_at_peak(f, &s->scratch, c->env, add_life, &v);
  if (v.count) qsort(v.items, v.count, sizeof *v.items, by_bytes);
  if (json)
    buf_printf(out,
               "{\"half\": \"%s\", \"in_use\": %lld, \"inner\": %lld, \"steps\": %u, \"step\": %u, "
               "\"values\": [",
               title, known ? (long long)p.live : 0, known ? (long long)p.inner : 0, at.count,
               at.peak + 1);
  else
    buf_printf(out, "%s: %s bytes of the arena in use at step %u of %u\n", title,
               report_number(s, known ? p.live : 0), at.count ? at.peak + 1 : 0, at.count);
  if (!json && !known) buf_puts(out, "  the reference evaluator runs it, and no plan is made\n");
  if (!json && known && p.inner)
    buf_printf(out, "  loops and branches hold at %s %s more\n", p.bound ? "most" : "least",
               report_number(s, p.inner));
  if (!json && at.forward_end != UINT32_MAX)
    buf_printf(out, "  the forward ends with step %u, and leaves %s\n", at.forward_end + 1,
               report_number(s, p.saved));
  for (size_t i = 0; i < v.count; i++) {
    const JitLive *l = &v.items[i];
    uint32_t line, last = l->last < at.count ? l->last : at.count - 1;
    const char *name = life_name(s, l), *file = place_text(s, l->prov, &line);
    if (json) {
      buf_puts(out, i ? ", {\"value\": " : "{\"value\": ");
      buf_json(out, name, strlen(name));
      buf_puts(out, ", \"file\": ");
      buf_json(out, file, strlen(file));
      buf_printf(out,
                 ", \"line\": %u, \"bytes\": %lld, \"made\": \"%s\", \"first\": %u, \"last\": %u}",
                 line, (long long)l->bytes, made_in(l->prov), l->first + 1, last + 1);
      continue;
    }
    buf_printf(out, "%14s  ", report_number(s, l->bytes));
    print_bar(out, l, &at);
    buf_printf(out, " %4u-%-4u %-10s %s", l->first + 1, last + 1, made_in(l->prov), name);
    if (*file) buf_printf(out, "  %s:%u", file, line);
    buf_putc(out, '\n');
  }
  if (json) buf_puts(out, "]}");
}

void fate_print_peak(const CallReport *c, Buf *out) {
  Session *s = c->s;
  bool json = s->report.json, two = c->runs.second != NULL;
  const char *none = s->config.cpu == CPU_REFERENCE ? "the reference evaluator has no plans" : NULL;
  if (json)
    buf_printf(out, "{\"function\": \"%s\"%s%s%s, \"halves\": [", c->name,
               none ? ", \"note\": \"" : "", none ? none : "", none ? "\"" : "");
  else
    buf_printf(out, "peak of %s%s%s%s\n", c->name, two ? " and its gradient" : "", none ? ": " : "",
               none ? none : "");
  if (!none) {
    print_half(c, c->first, two ? "forward" : "call", out);
    if (two && json) buf_puts(out, ", ");
    if (two) print_half(c, c->second, "backward", out);
  }
  if (json) buf_puts(out, "]}\n");
}

/* ---- who decided, and what the other choice costs */
enum { MOST_TOLD = 24 };

typedef struct Why {
  const CallReport *c;
  const Graph *g;
  RmValue *items; /* of that name */
  size_t count, cap;
} Why;

/* Whether NAME, as clauses write it, is this value: `h`, or `attn.h` along its path. */
static bool is_named(const Session *s, const Graph *g, uint32_t node) {
  const Prov *p = &g->provs[g->nodes[node].prov];
  const char *want = s->report.why, *dot = strrchr(want, '.');
  if (!p->name) return false;
  if (!dot) return !strcmp(p->name, want);
  size_t n = (size_t)(dot - want), len = p->path ? strlen(p->path) : 0;
  if (strcmp(p->name, dot + 1) || len < n || strncmp(p->path + len - n, want, n)) return false;
  return len == n || p->path[len - n - 1] == '.';
}

static void add_value(void *ud, const RmValue *v) {
  Why *w = ud;
  if (is_named(w->c->s, w->g, v->v.node))
    VEC_PUSH(&w->c->s->scratch, w->items, w->count, w->cap, *v);
}

static _Noreturn void no_such_name(const CallReport *c, const Graph *g) {
  Session *s = c->s;
  const char *want = s->report.why, *dot = strrchr(want, '.');
  Near near = near_start(dot ? dot + 1 : want);
  Buf all;
  buf_init_arena(&all, &s->scratch);
  Name told[12];
  size_t n = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const Prov *p = &g->provs[g->nodes[i].prov];
    size_t k = 0;
    if (!p->name || p->backward) continue;
    near_try(&near, p->name);
    while (k < n && told[k] != p->name) k++;
    if (k < n || n == sizeof told / sizeof *told) continue;
    buf_printf(&all, "%s`%s`", n ? ", " : "", p->name);
    told[n++] = p->name;
  }
  const char *help = near.found ? fail_text(s, "did you mean `%s`?", near.found)
                     : n        ? fail_text(s, "some names are %s", all.s)
                                : "no `let` of it has a name";
  fail_help(s, ERR_UNKNOWN_NAME, (Span){0}, help, "no value of `%s` is called `%s`", c->name, want);
}

/* Why no other choice is possible, or NULL. */
static const char *firm(const Why *w, const RmValue *v, bool added) {
  const Prov *p = &w->g->provs[w->g->nodes[v->v.node].prov];
  if (v->narrow || v->choice == CHOICE_OFFLOAD) return "a clause says so";
  switch (v->why) {
  case WHY_NAMED: return "a clause says so";
  case WHY_NEVER: return "it cannot be computed twice, or decides something";
  case WHY_FREE: return "it costs nothing";
  case WHY_CALLER: return "it is kept for others anyway";
  case WHY_REST:
  case WHY_PLANNER: break;
  }
  if (!added && (p->tag == TAG_MUST_SAVE || p->tag == TAG_MUST_RECOMPUTE))
    return "a clause says so";
  return NULL;
}

typedef struct Other { /* the other choice for a value */
  bool known;
  int64_t peak;
  double work; /* 1: as it is */
} Other;

static Other other_choice(const Why *w, const ChoiceOf *of, const uint8_t *choice, const RmValue *v,
                          const ReportFigures *now) {
  Session *s = w->c->s;
  size_t mark = mem_pool_mark(&s->mem);
  Other o = {0};
  uint8_t *turned = ARENA_ARRAY(&s->scratch, uint8_t, of->g->type_count + 1);
  memcpy(turned, choice, of->g->type_count);
  turned[of->g->nodes[v->v.node].result0 + v->v.res] =
      v->choice == CHOICE_SAVE ? CHOICE_RECOMPUTE : CHOICE_SAVE;
  Choice made = choice_planned(of, turned);
  if (made.planned) {
    CallReport r = curve_call(w->c, &made);
    ReportFigures f;
    report_figures(&r, &f);
    o = (Other){f.compiled, f.peak, now->time ? (double)f.time / (double)now->time : 1};
  }
  mem_pool_drain(&s->mem, mark);
  return o;
}

static const char *block_text(const Why *w, uint32_t id) {
  Session *s = w->c->s;
  const Block *b = gr_block_at(w->g, id);
  uint32_t row = 0, col = 0;
  if (!b || !b->span.file) return NULL;
  src_place(&s->sources, b->span.file, b->span.lo, &row, &col);
  const char *path = src_get(&s->sources, b->span.file)->path;
  return fail_text(s, "%s:%u%s%s%s", path, row, b->text && *b->text ? " <" : "",
                   b->text ? b->text : "", b->text && *b->text ? ">" : "");
}

static void print_value(const Why *w, const RmValue *v, const char *why_firm, const Other *o,
                        const ReportFigures *now, bool added, Buf *out) {
  Session *s = w->c->s;
  const Graph *g = w->g;
  uint32_t line;
  const char *file = place_text(s, &g->provs[g->nodes[v->v.node].prov], &line);
  const char *name = report_value_name(s, g, v->v), *block = block_text(w, v->block);
  int64_t bytes = cost_room(g, gr_type(g, v->v), w->c->env);
  int64_t cost = rm_cost(g, v->v.node, w->c->env);
  const char *fate = v->narrow                     ? "saved in fewer bytes"
                     : v->choice == CHOICE_SAVE    ? "saved"
                     : v->choice == CHOICE_FREE    ? "kept"
                     : v->choice == CHOICE_OFFLOAD ? "offloaded"
                                                   : "recomputed";
  const char *by = !added                ? report_why[v->why]
                   : w->c->choice.choice ? "the planner, as the gradient holds much"
                                         : "no block: what a gradient reads is saved";
  if (s->report.json) {
    buf_puts(out, "{\"value\": ");
    buf_json(out, name, strlen(name));
    buf_puts(out, ", \"file\": ");
    buf_json(out, file, strlen(file));
    buf_printf(
        out, ", \"line\": %u, \"bytes\": %lld, \"cost\": %lld, \"becomes\": \"%s\", \"by\": \"%s\"",
        line, (long long)bytes, (long long)cost, fate, by);
    if (block) {
      buf_puts(out, ", \"block\": ");
      buf_json(out, block, strlen(block));
    }
    if (why_firm) buf_printf(out, ", \"firm\": \"%s\"", why_firm);
    if (o->known)
      buf_printf(out, ", \"other\": {\"peak\": %lld, \"work\": %.4f}", (long long)o->peak, o->work);
    buf_puts(out, "}");
    return;
  }
  Buf t;
  buf_init_arena(&t, &s->scratch);
  type_print(&t, g->dims, gr_type(g, v->v));
  buf_printf(out, "%s %s  %s:%u\n", name, t.s, file, line);
  buf_printf(out, "  %s, by: %s%s%s\n", fate, by, block ? ", block of " : "", block ? block : "");
  buf_printf(out, "  %s bytes, its own cost is %.2f %% of the work\n", report_number(s, bytes),
             now->time ? 100 * (double)cost / (double)now->time : 0);
  const char *turn = v->choice == CHOICE_SAVE ? "recomputed" : "saved";
  if (why_firm) {
    buf_printf(out, "  no other choice: %s\n", why_firm);
  } else if (o->known) {
    int64_t d = o->peak - now->peak;
    buf_printf(out, "  %s instead: peak %s (%s%s), work %.4f times that of now\n", turn,
               report_number(s, o->peak), d > 0 ? "+" : "", report_number(s, d), o->work);
  }
}

static void print_like(size_t count, Buf *out) {
  if (count) buf_printf(out, "  and the same for %zu more\n", count);
}

void fate_print_why(const CallReport *c, Buf *out) {
  Session *s = c->s;
  size_t mark = mem_pool_mark(&s->mem);
  CurveGraph graph = {0};
  bool json = s->report.json, any = curve_graph(c, &graph);
  Why w = {.c = c, .g = any ? graph.of.g : c->whole};
  const uint8_t *choice = NULL;
  if (any) {
    uint8_t *made = ARENA_ARRAY(&s->scratch, uint8_t, w.g->type_count + 1);
    if (graph.added)
      rm_all(w.g, CHOICE_SAVE, made);
    else
      rm_written(w.g, made);
    choice = made;
    if (c->choice.g && c->choice.choice) { /* what was chosen, for its own graph */
      w.g = c->choice.g;
      choice = c->choice.choice;
    }
    uint32_t split = graph.of.whole ? graph.of.whole->split : 0;
    rm_values(&s->scratch, w.g, choice, graph.of.whole ? &split : NULL, add_value, &w);
  }
  bool named = false;
  for (uint32_t i = 0; i < w.g->node_count && !named; i++) named = is_named(s, w.g, i);
  if (!named) no_such_name(c, w.g);
  graph.of.g = w.g;
  if (graph.of.whole) {
    JointWhole *whole = ARENA_NEW(&s->notes, JointWhole);
    *whole = *graph.of.whole;
    whole->g = (Graph *)(uintptr_t)w.g;
    graph.of.whole = whole;
  }
  ReportFigures now = {0};
  report_figures(c, &now);
  if (json)
    buf_printf(out, "{\"function\": \"%s\", \"peak\": %lld, \"values\": [", c->name,
               (long long)now.peak);
  else
    buf_printf(out, "values `%s` of %s%s%s\n", s->report.why, c->name,
               c->runs.second ? " and its gradient" : "",
               w.count ? "" : ": no gradient needs them, so they wait for nothing");
  const char *last = NULL;
  size_t like = 0; /* values after the last one printed, of which the same would be told */
  for (size_t i = 0; i < w.count && i < MOST_TOLD; i++) {
    const RmValue *v = &w.items[i];
    const char *why_firm = firm(&w, v, graph.added);
    Other o = {0};
    if (!why_firm && now.compiled) o = other_choice(&w, &graph.of, choice, v, &now);
    Buf one;
    buf_init_arena(&one, &s->scratch);
    print_value(&w, v, why_firm, &o, &now, graph.added, &one);
    if (json && i) buf_puts(out, ", ");
    if (json || !last || strcmp(last, one.s)) {
      print_like(like, out);
      buf_puts(out, one.s);
      like = 0;
    } else {
      like++;
    }
    last = one.s;
  }
  if (!json) print_like(like, out);
  if (json)
    buf_puts(out, "]}\n");
  else if (w.count > MOST_TOLD)
    buf_printf(out, "and %zu more\n", w.count - MOST_TOLD);
  mem_pool_drain(&s->mem, mark);
}
