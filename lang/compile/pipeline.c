/* The pipeline: runs the passes of a compiled call, by the table of pipeline.def.
 *
 * In: the graph of a function as it was staged. Out: the graph after each pass, timed, verified in
 * checked runs, and printed if that is asked for. The two halves of a gradient are made in
 * joint_ref.c, machine code in tiering.c.
 */
#include "lang/compile/pipeline.h"

#include <string.h>

#include "autograd/autograd.h"
#include "autograd/remat.h"
#include "graph/pass.h"
#include "jit/plan/jit.h"
#include "lang/compile/compile.h"
#include "lang/compile/tiering.h"
#include "lang/value/fail.h"

/* ---- texts of steps */

static void show_nothing(const PassText *t) {
  (void)t;
}

/* Shows the joint graph of all float outputs by all float inputs. */
static void show_joint(const PassText *t) {
  Session *s = t->s;
  const Graph *g = t->g;
  Arena *a = &s->scratch;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {0};
  if (t->alone) { /* `where` is in a program that is not loaded */
    if (!ad_joint_show(a, g, t->out, &e, &where)) fail_gerr(s, t->at, &e);
    return;
  }
  bool *cot = ARENA_ARRAY(a, bool, g->output_count + 1);
  bool *wants = ARENA_ARRAY(a, bool, g->input_count + 1);
  for (size_t i = 0; i < g->output_count; i++)
    cot[i] = dt_float((DType)gr_type(g, g->outputs[i])->dtype);
  for (size_t i = 0; i < g->input_count; i++)
    wants[i] = dt_float((DType)gr_type(g, g->inputs[i])->dtype);
  Joint *j = ad_joint(g->arena, g, cot, wants, &e, &where);
  if (!j) fail_gerr(s, where.span.file ? where.span : t->at, &e);
  gr_print(t->out, opaque_shown(s, pass_simplified(s, g->arena, j->forward, NULL)));
  gr_print(t->out, opaque_shown(s, pass_simplified(s, g->arena, j->backward, NULL)));
}

static void show_code(const PassText *t) {
  Session *s = t->s;
  if (t->pass == PASS_PLAN && t->alone)
    jit_show(&s->mem, (EngLevel)s->config.level, t->g, JIT_SHOW_PLAN, t->out);
  else
    native_print(s, t->out, t->g, t->pass, t->at);
}

/* ---- the table */

const Pass passes[PASS_COUNT] = {
#define PASS(id, name, function, needs, when, doc)                                                 \
  {name, "us." name, function, NULL, PASS_##needs, WHEN_##when, doc},
#define STEP(id, name, function, needs, when, doc)                                                 \
  {name, "us." name, NULL, function, PASS_##needs, WHEN_##when, doc},
#include "lang/compile/pipeline.def"
};

_Static_assert(PASS_COUNT <= sizeof((Session *)0)->count.seconds / sizeof(double),
               "Session.count has a time for each");
_Static_assert(PASS_COUNT <= 32, "Session.dumps has a bit for each");

/* Whether the pass takes part in compiled calls. */
static bool takes_part(PassId id) {
  return passes[id].run && passes[id].when != WHEN_ALONE;
}

PassId pass_needs(PassId id) {
  if (passes[id].needs != PASS_BEFORE) return passes[id].needs;
  while (--id > PASS_STAGE && !takes_part(id)) continue;
  return id;
}

PassId pass_find(const char *name, size_t n) {
  int id = 0;
  while (id < PASS_COUNT && (strncmp(passes[id].name, name, n) || passes[id].name[n])) id++;
  return (PassId)id;
}

bool pass_is_stage(PassId id) {
  return passes[id].when != WHEN_ALONE;
}

bool pass_is_tool(PassId id) {
  return id != PASS_STAGE && passes[id].when != WHEN_TEXT;
}

bool pass_is_timed(PassId id) {
  return passes[id].when <= WHEN_CODE;
}

/* ---- running */

PassTime pass_start(const Session *s) {
  return (PassTime){native_clock(), s->count.seconds_all};
}

void pass_end(Session *s, PassId id, PassTime t) {
  double own = native_clock() - t.start - (s->count.seconds_all - t.inside);
  s->count.seconds[id] += own;
  s->count.seconds_all += own;
}

/* Runs one pass: timed and, if Mem.check is set, verified. */
static Graph *pass_run(Session *s, PassId id, Arena *keep, const Graph *g) {
  PassTime t = pass_start(s);
  Graph *made = gr_checked(passes[id].run(keep, g), passes[id].name);
  pass_end(s, id, t);
  return made;
}

void pass_dump(Session *s, PassId id, const Graph *g) {
  if (s->dumps & 1u << id) session_dump_graph(s, g);
}

static bool wanted(PassWhen when, const Graph *g) {
  switch (when) {
  case WHEN_ALWAYS: return true;
  case WHEN_HOOKS: return gr_has_hooks(g);
  case WHEN_BLOCKS: return g->blocks != NULL;
  default: return false;
  }
}

const Graph *pipeline_call(Session *s, Arena *keep, const Graph *staged, bool dump,
                           const Graph *after[PASS_COUNT]) {
  const Graph *last = after[PASS_STAGE] = staged;
  if (dump) pass_dump(s, PASS_STAGE, staged);
  for (PassId id = 1; id < PASS_COUNT; id++) {
    if (!takes_part(id)) continue;
    last = after[id] = after[pass_needs(id)];
    if (!wanted(passes[id].when, last)) continue;
    last = after[id] = pass_run(s, id, keep, last);
    if (dump) pass_dump(s, id, last);
  }
  return last;
}

Graph *pass_simplified(Session *s, Arena *keep, const Graph *g, const uint8_t *choice) {
  Arena *temp = &s->scratch;
  ArenaMark mark = arena_mark(temp);
  if (choice && g->blocks) {
    PassTime t = pass_start(s);
    g = rm_apply(temp, g, choice, NULL);
    pass_end(s, PASS_REMAT, t);
  }
  Graph *made = NULL; /* `simplify` always runs */
  for (PassId id = PASS_REMAT + 1; id < PASS_COUNT; id++)
    if (takes_part(id) && wanted(passes[id].when, g)) g = made = pass_run(s, id, keep, g);
  arena_rewind(temp, mark);
  return made;
}

void pass_print_stage(Session *s, Buf *out, Arena *a, const Graph *g, PassId stage, Span at) {
  const Graph *after[PASS_COUNT] = {NULL};
  pipeline_call(s, a, g, false, after);
  if (after[stage])
    gr_print(out, opaque_shown(s, after[stage]));
  else
    passes[stage].show(&(PassText){s, out, after[pass_needs(stage)], at, stage, false});
}
