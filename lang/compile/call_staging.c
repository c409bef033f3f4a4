/* Staging a call: a function is evaluated once on values of a graph.
 *
 * In: a code function and arguments of script. Out: a Compiled: the graph as written and
 * simplified, the origins of its inputs, a template of its result, and its writes.
 */

#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/pass.h"
#include "graph/structure.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile_impl.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/ops.h"
#include "lang/eval/rows.h"
#include "lang/eval/seq.h"
#include "lang/eval/state.h"
#include "lang/value/fail.h"

#include "lang/tape/hook.h"

/* Replaces V_NODEs by numbers of outputs, and appends these outputs to the graph. */
static Value template_of(Session *s, Unit *u, Value v, Span at) {
  stack_check();
  switch ((ValueTag)v.tag) {
  case V_NODE: {
    Value l = stage_lift(s, v, at);
    size_t k;
    for (k = 0; k < u->g->output_count; k++)
      if (val_eq(u->g->outputs[k], l.u.v)) break;
    if (k == u->g->output_count) gr_output(u->g, l.u.v);
    Value t = {.tag = V_NODE, .weak = v.weak};
    t.u.v.node = (uint32_t)k;
    return t;
  }
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, at);
    if (v.tag == V_NODE) return template_of(s, u, v, at);
    size_t n;
    Value *items = value_parts(s, v, &n);
    for (size_t i = 0; i < n; i++) items[i] = template_of(s, u, items[i], at);
    return value_like(s, v, items);
  }
  case V_PARAM: return template_of(s, u, param_read(s, v.u.p, at), at);
  case V_ROWS: rows_refuse(s, at);
  case V_SEQ:
    if (v.u.seq->staged)
      fail_help(s, ERR_SCRIPT_ONLY, at, "go through it where it is made",
                "a sequence of a compiled function cannot leave it");
    return v;
  case V_FN:
    if (v.u.fn->capture_count)
      fail_at(s, ERR_FN_RESULT, at,
              "a compiled function cannot give a function that captures values of the call");
    return v;
  default: return v;
  }
}

/* The inputs that a written value `now` may take the memory of: those at its places in `before`.
 * Numbers and results of the call are new. */
static void pair_writes(Unit *u, size_t results, int *writes, bool *taken, Value before,
                        Value now) {
  stack_check();
  if (now.tag == V_NODE && before.tag == V_NODE) {
    size_t k = now.u.v.node;
    uint32_t node = before.u.v.node;
    if (u->g->nodes[node].op != OP_INPUT || now.weak || before.weak || k < results) return;
    int64_t i = gr_attr(u->g, node, AT_INDEX)->u.i;
    if (!taken[i]) writes[k] = (int)i; /* of several inputs the last one */
    taken[i] = true;
    return;
  }
  size_t n, m;
  if (!value_alike(before, now)) return;
  const Value *x = value_items(before, &n), *y = value_items(now, &m);
  for (size_t i = 0; i < n && i < m; i++) pair_writes(u, results, writes, taken, x[i], y[i]);
}

/* Tells the graph which outputs are written to which inputs. With calls of hosts it does not: they
 * may hold what they see. */
static void note_writes(Session *s, Unit *u, Compiled *c) {
  size_t n = u->g->output_count, w = 0;
  if (!s->config.in_place || u->hosts || !c->write_count) return;
  int *writes = ARENA_ARRAY(&c->arena, int, n + 1);
  bool *taken = ARENA_ARRAY(&s->scratch, bool, u->g->input_count + 1);
  for (size_t k = 0; k < n; k++) writes[k] = -1;
  for (size_t i = 0; i < u->state_count; i++)
    if (u->states[i].written)
      pair_writes(u, c->result_outputs, writes, taken, u->states[i].entry, c->writes[w++].tmpl);
  u->g->writes = writes;
  u->g->write_count = n;
}

typedef struct StageJob {
  Session *s;
  FnObj *f;
  const Args *a;
  Compiled *c;
  Unit *u;
} StageJob;

/* Whether the code takes gradients itself: then a gradient of its result is unlikely, and saving
 * for it would keep alive everything that the call has computed. False if hosts are called, as
 * their results are not computed again; what they give in a loop or on a side has no gradient. */
static bool takes_grad(const Graph *g) {
  bool any = false;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i].op == OP_CALL || g->nodes[i].op == OP_DEFER) return false;
    any |= g->provs[g->nodes[i].prov].backward;
  }
  return any;
}

/* Data may decide whether a block gives a value on that it took: then the block says so. */
static void passed_on(Session *s, Unit *u, Compiled *c) {
  Graph *g = u->g;
  size_t cap = 0;
  for (size_t k = 0; k < c->result_outputs; k++)
    for (size_t i = 0; i < g->input_count; i++) {
      Val y = g->outputs[k], x = g->inputs[i];
      if (val_eq(y, x) || u->source[i] < 0 || !ad_may_be(&s->scratch, g, y, x)) continue;
      B b = {.g = g};
      int known;
      Val flag = ad_is(&s->scratch, &b, y, x, &known);
      if (b.failed) fail_gerr(s, c->call, &b.err);
      if (known > 0) flag = gr_const_i(g, DT_BOOL, DEV_CPU, 1);
      if (!known) continue;
      PassedOn p = {k, i, g->output_count};
      gr_output(g, flag);
      VEC_PUSH(&c->arena, c->passed, c->passed_count, cap, p);
    }
}

static void stage_job(void *ud) {
  StageJob *job = ud;
  Session *s = job->s;
  Unit *u = job->u;
  Compiled *c = job->c;
  const Args *a = job->a;
  u->g = gr_new(&c->arena, dim_tab_new(&c->arena), s->names, job->f->decl->fn->name.name);
  u->root = (Stage){.g = u->g, .unit = u, .level = 1};
  s->stage = &u->root;
  stage_at(s, a->call);
  if (s->modes.no_grad) stage_quiet(s, true);
  s->count.stage++;
  flat_init(&u->flat, s, &c->arena);
  u->flat.named = true;
  flat_call(&u->flat, job->f, a);
  unit_stage_leaves(u);
  LeafCursor cur = {u, 0};
  Args staged = *a;
  staged.v = ARENA_ARRAY(&c->arena, Value, a->count + 1);
  Value f = unit_rebuild(s, &cur, (Value){.tag = V_FN, .u.fn = job->f});
  for (size_t i = 0; i < a->count; i++) staged.v[i] = unit_rebuild(s, &cur, a->v[i]);
  Value r = call_fn(s, f.u.fn, &staged);
  Span at = a->call;
  c->regrad = u->regrad;
  c->paths = u->paths;
  c->path_count = u->path_count;
  if (u->regrad && s->modes.no_grad) r = stage_leave_quiet(s, r, true, at);
  c->result = template_of(s, u, r, at);
  value_retain(c->result);
  c->result_outputs = u->g->output_count;
  size_t cap = 0, drawn_cap = 0;
  for (size_t i = 0; i < u->state_count; i++) {
    State *st = &u->states[i];
    if (!st->written) continue;
    Write w = {.is_param = !st->field, .index = st->index, .field = st->field};
    /* a written value may be a result too: it needs an output of its own, so that gradients stay
     * apart */
    w.tmpl = template_of(s, u, st->cur, at);
    value_retain(w.tmpl);
    VEC_PUSH(&c->arena, c->writes, c->write_count, cap, w);
  }
  for (size_t i = 0; i < u->draw_count; i++) {
    const DrawCount *d = &u->draws[i];
    if (d->more.tag == V_UNIT || d->d.fixed) continue;
    DrawnCount n = {d->d.site, d->now, u->g->output_count};
    gr_output(u->g, stage_lift(s, d->more, at).u.v);
    VEC_PUSH(&c->arena, c->drawn, c->drawn_count, drawn_cap, n);
  }
  if (capsule_is_fn(job->f)) passed_on(s, u, c);
  note_writes(s, u, c);
  /* The graph to differentiate keeps every use of a value: merging them would change the order in
   * which gradients are summed (rule 74). The graph that runs is simplified. */
  const Graph *g = u->g;
  if (u->hosts) {
    const bool *later = host_later(s, u->hosts, u->g);
    g = gr_drop_hooks(&c->arena, u->g, later);
  }
  c->g = gr_dce(&c->arena, g);
  const Graph *after[PASS_COUNT];
  c->plain = pipeline_call(s, &c->arena, c->g, true, after);
  c->whole = after[pass_needs(PASS_REMAT)];
  c->takes_grad = takes_grad(c->g);
  c->hosts = u->hosts;
  if (c->hosts) c->hosts->rc++;
  c->source = u->source;
  c->binds = u->binds;
  c->bind_count = u->bind_count;
  c->pins = u->pins;
  c->pin_count = u->pin_count;
  c->randoms = u->randoms;
  c->random_count = u->random_count;
  c->hidden = u->hidden;
  c->hidden_count = u->hidden_count;
  c->leaf_count = u->flat.count;
  c->reached = ARENA_ARRAY(&c->arena, bool, c->leaf_count + 1);
  for (size_t i = 0; i < c->leaf_count; i++) c->reached[i] = u->flat.leaves[i].reached;
  c->eval_dropout = u->eval_dropout;
  c->call = a->call;
}

void stage_call(Session *s, FnObj *f, const Args *a, const Flat *flat, Compiled *c) {
  Pin pins[16];
  size_t pin_count = 0;
  for (;;) {
    Unit u = {.s = s, .arena = &c->arena, .token = VAL_NONE};
    for (size_t i = 0; i < pin_count; i++)
      VEC_PUSH(&c->arena, u.pins, u.pin_count, u.pin_cap, pins[i]);
    StageJob job = {s, f, a, c, &u};
    Modes modes = s->modes;
    PassTime time = pass_start(s);
    int code = api_guard(s, stage_job, &job);
    pass_end(s, PASS_STAGE, time);
    s->stage = NULL;
    s->modes = modes;
    if (code == MEM_OK) break;
    value_release(c->result);
    c->result = v_unit();
    for (size_t i = 0; i < c->write_count; i++) value_release(c->writes[i].tmpl);
    c->write_count = 0;
    c->writes = NULL;
    if (code == MEM_ERR_RESTART && u.restart && pin_count < 16) {
      pins[pin_count] = u.wanted;
      const Leaf *l = &flat->leaves[u.wanted.leaf];
      pins[pin_count++].value = leaf_size(l, l->kind == LEAF_INT ? -1 : u.wanted.axis);
      arena_free(&c->arena);
      continue;
    }
    if (code == MEM_ERR_RESTART)
      fail_at(s, ERR_NOT_CONST, a->call, "too many sizes of this call must be constants");
    mem_throw(&s->mem, code);
  }
}
