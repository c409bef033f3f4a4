/* The bytes that a run takes, before it runs.
 *
 * In: a function without code, and sizes. Out: its arena, and the tensors that it makes: results,
 * what the evaluator holds, what the turns of a loop keep. Values that are held in the memory of
 * others are a group: they count once, as long as one of them lives.
 */
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/structure.h"
#include "jit/lower/lower.h"
#include "jit/plan/run_impl.h"

static int64_t value_bytes(const Graph *g, Val v, const int64_t *env) {
  const Type *t = gr_type(g, v);
  return t->dev != DEV_CPU ? 0 : cost_bytes(g, t, env);
}

/* Counts the outputs that `give` makes: views of results, and constants (tensor_of in exec.c). */
static void count_views(const JitFn *f, const int64_t *env, JitPeak *p) {
  const Plan *plan = f->plan;
  const Graph *g = plan->g;
  int64_t most = 0, sum = 0;
  for (size_t i = 0; i < g->output_count; i++) {
    Val v = g->outputs[i];
    int64_t views = 0;
    if (gr_type(g, v)->kind == TK_TOKEN || plan->is_store[i]) continue;
    for (; !plan->place[plan_index(g, v)].kind; v = gr_operand(g, v.node, 0)) {
      views += g->nodes[v.node].op != OP_ALIAS && g->nodes[v.node].op != OP_STOP;
      if (g->nodes[v.node].operand_count) continue;
      p->outputs += value_bytes(g, v, env);
      p->headers += (int64_t)sizeof(Storage) + 64;
      p->exact &= views == 1;
      if (views > 1) p->outputs += value_bytes(g, g->outputs[i], env); /* it may be copied */
      break;
    }
    if (views) sum += (int64_t)sizeof(Tensor);
    int64_t more = sum + (views > 1 ? (int64_t)sizeof(Tensor) : 0);
    if (more > most) most = more;
  }
  p->headers += most > sum ? most : sum;
}

/* ---- what the evaluator holds, and loops keep */

enum { UNKNOWN = -1 };

/* How many outputs of the body of a loop come before those that are made again when they are read;
 * all, if none is. */
static int kept_outputs(const Graph *g, uint32_t node) {
  const Graph *body = g->regions[g->nodes[node].region0];
  int all = (int)body->output_count;
  return gr_again(g, node) ? (int)gr_attr_i(g, node, AT_AGAIN, all) : all;
}

static bool is_again(const Graph *g, Val v) {
  const GNode *n = &g->nodes[v.node];
  return n->op == OP_LOOP && gr_type(g, v)->kind == TK_STASH &&
         (int)v.res - (gr_attr(g, v.node, AT_WHILE) != NULL) >= kept_outputs(g, v.node);
}

static int64_t kept_bytes(const JitFn *f, Val v, const int64_t *env);

/* Bytes of outputs from .. to - 1 of a body, as far as they are no tokens. */
static int64_t outputs_bytes(const JitFn *body, int from, int to, const int64_t *env) {
  int64_t sum = 0;
  for (int i = from; i < to; i++) {
    int64_t n = kept_bytes(body, body->plan->g->outputs[i], env);
    if (n < 0) return UNKNOWN;
    sum = cost_add(sum, n);
  }
  return sum;
}

/* What a loop holds whose rows are made again (graph/replay.h): states, values on their way, rows
 * of some turns, copies of captured values that lie in the arena. */
static int64_t again_bytes(const JitFn *f, uint32_t node, const int64_t *env) {
  const Plan *p = f->plan;
  const Graph *g = p->g;
  const JitFn *body = f->regions[g->nodes[node].region0];
  int carry = (int)gr_attr_i(g, node, AT_CARRY, 0);
  int64_t turns = cost_turns(g, node, env), every = gr_attr_i(g, node, AT_EVERY, 0);
  int64_t states = gr_attr_i(g, node, AT_STATES, 0) + 1;
  if (every && turns < 0) return UNKNOWN;
  if (every) states = turns / every + 1;
  if (turns >= 0 && states > turns) states = turns;
  int64_t state = outputs_bytes(body, 0, carry, env);
  int64_t row = outputs_bytes(body, kept_outputs(g, node), (int)body->plan->g->output_count, env);
  if (state < 0 || row < 0) return UNKNOWN;
  int64_t sum = cost_add(cost_mul(states + 2, state), cost_mul(every ? every : 1, row));
  for (uint32_t k = 1 + (uint32_t)carry; k < g->nodes[node].operand_count; k++) {
    Val v = gr_operand(g, node, (int)k), base = plan_dense(p, v, UINT32_MAX);
    PlaceKind at = val_none(base) ? PLACE_NONE : (PlaceKind)p->place[plan_index(g, base)].kind;
    if (at == PLACE_ARENA || at == PLACE_NONE) sum = cost_add(sum, value_bytes(g, v, env));
  }
  return sum;
}

/* Bytes of a value and of what it stands for; UNKNOWN: only the run knows. */
static int64_t kept_bytes(const JitFn *f, Val v, const int64_t *env) {
  stack_check();
  const Graph *g = f->plan->g;
  const GNode *n = &g->nodes[v.node];
  int64_t sum = 0;
  if (gr_type(g, v)->kind != TK_STASH) return value_bytes(g, v, env);
  switch ((OpCode)n->op) {
  case OP_LOOP: {
    const JitFn *body = f->regions[n->region0];
    Place at = f->plan->place[plan_index(g, v)];
    const HeldSize none = {0}, *h = at.kind == PLACE_HELD ? &f->held[at.index] : &none;
    int k = (int)v.res - (gr_attr(g, v.node, AT_WHILE) != NULL), first = kept_outputs(g, v.node);
    if (!body || !body->plan || gr_attr(g, v.node, AT_COUNTER)) return UNKNOWN;
    if (k >= first) return k == first ? again_bytes(f, v.node, env) : 0;
    int64_t turns = h->one ? 0 : cost_turns(g, v.node, env);
    int64_t row = outputs_bytes(body, k, k + 1, env);
    if (turns < 0 || row < 0) return UNKNOWN;
    /* a row keeps what it is a view of, if that is no more than twice as large (graph/stash.h) */
    return cost_mul(turns + h->more, h->wide ? 2 * row : row);
  }
  case OP_STASH:
  case OP_STASH_ROWS:
    for (uint32_t k = 0; k < n->operand_count; k++) {
      int64_t one = kept_bytes(f, gr_operand(g, v.node, (int)k), env);
      if (one < 0) return UNKNOWN;
      sum = cost_add(sum, one);
    }
    return sum;
  case OP_BRANCH:
    for (int k = 0; k < 2; k++) {
      const JitFn *side = f->regions[n->region0 + (uint32_t)k];
      int64_t one =
          side && side->plan ? outputs_bytes(side, (int)v.res, (int)v.res + 1, env) : UNKNOWN;
      if (one < 0) return UNKNOWN;
      if (one > sum) sum = one;
    }
    return sum;
  default: return n->op == OP_INPUT ? 0 : UNKNOWN;
  }
}

/* The group of a value that is held: the first of those that have the memory of one. */
static uint32_t group_of(const Plan *p, Val v, uint32_t self) {
  Place at = p->place[plan_index(p->g, v)];
  return at.kind == PLACE_HELD && at.index < self ? at.index : self;
}

static void share_rows(JitFn *f, uint32_t node, bool list) {
  const Plan *p = f->plan;
  const Graph *g = p->g;
  const JitFn *body = f->regions[g->nodes[node].region0];
  int carry = (int)gr_attr_i(g, node, AT_CARRY, 0), rows = (int)gr_attr_i(g, node, AT_MAPPED, 0);
  int all = (int)body->plan->g->output_count;
  bool goes_on = gr_attr(g, node, AT_WHILE) != NULL;
  Shared *like = ARENA_ARRAY(&f->temp, Shared, all + 1);
  bool reverse = gr_attr_i(g, node, AT_REVERSE, 0) != 0;
  int kept = kept_outputs(g, node);
  if (!list_shares(&f->temp, body, carry, kept, rows, reverse, like)) return;
  for (int i = carry; i < kept; i++) {
    Place at = p->place[plan_index(g, (Val){node, (uint32_t)(i + goes_on)})];
    if (at.kind != PLACE_HELD) continue;
    HeldSize *h = &f->held[at.index];
    h->one = !like[i].all;
    h->more = like[i].more;
    h->wide = like[i].looks && !list;
    for (int k = carry; k < i && h->like == at.index; k++)
      if (like[k].like == like[i].like)
        h->like = group_of(p, (Val){node, (uint32_t)(k + goes_on)}, at.index);
  }
}

/* Whether the rows of a stash lie in one tensor, each once. */
static bool is_packed(const JitFn *f, Val v) {
  const Plan *p = f->plan;
  const GNode *n = &p->g->nodes[v.node];
  Place at = p->place[plan_index(p->g, v)];
  if (n->op == OP_STASH_ROWS) return true;
  if (n->op != OP_LOOP || gr_attr_i(p->g, v.node, AT_MAPPED, 0)) return false;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    if (s->kind != STEP_NODE || s->node != v.node) continue;
    if (turns_as_kernel(f, s)) return true;
    return turns_as_list(f, s) && at.kind == PLACE_HELD && !f->held[at.index].one;
  }
  return false;
}

void peak_prepare(JitFn *f) {
  const Plan *p = f->plan;
  f->held = ARENA_ARRAY(&f->arena, HeldSize, p->held_count + 1);
  for (uint32_t i = 0; i < p->held_count; i++) {
    Val v = p->helds[i].v;
    f->held[i].like = i;
    if (p->g->nodes[v.node].op != OP_UNSTASH) continue;
    Val of = gr_operand(p->g, v.node, 0);
    if (!is_again(p->g, of)) f->held[i].like = group_of(p, of, i);
    f->held[i].view = true;
  }
  for (uint32_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    if (s->kind != STEP_NODE || p->g->nodes[s->node].op != OP_LOOP) continue;
    if (turns_as_kernel(f, s)) continue;
    share_rows(f, s->node, turns_as_list(f, s));
  }
  for (uint32_t i = 0; i < p->held_count; i++) {
    Val v = p->helds[i].v;
    if (p->g->nodes[v.node].op != OP_UNSTASH_ROWS) continue;
    Val of = gr_operand(p->g, v.node, 0);
    f->held[i].view = is_packed(f, of) && !is_again(p->g, of);
    if (f->held[i].view) f->held[i].like = group_of(p, of, i);
  }
  for (uint32_t i = 0; i < p->held_count; i++) f->held[i].like = f->held[f->held[i].like].like;
  arena_free(&f->temp);
}

/* Sets the bytes of all groups. False: one is not known, and counts as 0. */
static bool size_helds(JitFn *f, const int64_t *env) {
  const Plan *p = f->plan;
  bool known = true;
  for (uint32_t i = 0; i < p->held_count; i++) {
    HeldSize *h = &f->held[i], *group = &f->held[h->like];
    Val v = p->helds[i].v;
    int64_t n = h->view && h->like < i ? 0 : kept_bytes(f, v, env);
    known &= n >= 0;
    h->bytes = 0;
    h->stays = p->helds[i].last == UINT32_MAX;
    h->seen = UINT32_MAX;
    if (n > group->bytes) group->bytes = n;
    group->stays |= h->stays;
  }
  return known;
}

/* Bytes of the evaluator's tensors that are alive in a step, and do not leave. After size_helds. */
static int64_t held_bytes(JitFn *f, uint32_t step) {
  const Plan *p = f->plan;
  int64_t sum = 0;
  for (size_t i = 0; i < p->held_count; i++) {
    HeldSize *h = &f->held[f->held[i].like];
    bool alive = p->made[plan_index(p->g, p->helds[i].v)] <= step + 1 && p->helds[i].last >= step;
    if (!alive || h->stays || h->seen == step) continue;
    h->seen = step;
    sum += h->bytes;
  }
  return sum;
}

/* Whether v lies dense in memory, or has the elements of such a value in order. */
static bool is_dense(const Plan *p, Val v, uint32_t step) {
  Val base = plan_dense(p, v, step);
  Place at = val_none(base) ? (Place){0} : p->place[plan_index(p->g, base)];
  return at.kind && (at.kind != PLACE_INPUT || p->input_used[at.index]);
}

/* Whether the evaluator makes v without elements of its own. */
static bool only_looks(const Plan *p, Val v, uint32_t step) {
  OpCode op = (OpCode)p->g->nodes[v.node].op;
  return op == OP_ALIAS || op == OP_STOP || op == OP_TRANSPOSE || op == OP_SLICE ||
         op == OP_BROADCAST || (op == OP_RESHAPE && is_dense(p, v, step));
}

/* Bytes of values that are nowhere in memory, in order, when a step begins: constants, what is
 * computed on the way to them, and views, of which a reader may make a dense copy. */
static int64_t view_bytes(const JitFn *f, const int64_t *env, const Val *v, size_t n,
                          uint32_t step) {
  int64_t sum = 0;
  const Plan *p = f->plan;
  for (size_t i = 0; i < n; i++) {
    if (plan_there(p, v[i], step) || is_dense(p, v[i], step)) continue;
    if (only_looks(p, v[i], step)) sum += value_bytes(p->g, v[i], env);
    for (Val w = v[i]; !plan_there(p, w, step); w = gr_operand(p->g, w.node, 0)) {
      if (!only_looks(p, w, step)) sum += value_bytes(p->g, w, env);
      if (!p->g->nodes[w.node].operand_count) break;
    }
  }
  return sum;
}

/* Raises *more to what a body needs beside what the step makes and reads, and arena and scratch of
 * `out` to its own. `whole`: its results are beside those of an iteration before. */
static bool body_peak(JitFn *body, const int64_t *env, bool whole, int64_t *more, JitPeak *out) {
  JitPeak q;
  if (!body || !jit_peak(body, env, &q) || !q.bound) return false;
  const Graph *g = body->plan->g;
  int64_t each = q.inner + 8 + (whole ? q.outputs : 0) +
                 view_bytes(body, env, g->outputs, g->output_count, UINT32_MAX);
  if (each > *more) *more = each;
  if (q.arena < 64) q.arena = 64; /* the least block */
  if (q.arena > out->arena) out->arena = q.arena;
  if (q.scratch > out->scratch) out->scratch = q.scratch;
  return true;
}

/* Sets *more to the bytes that a step of one node needs beside its results, and raises arena and
 * scratch of `out` to those of its bodies. False if they are not known. */
static bool inner_peak(JitFn *f, const int64_t *env, const Step *s, int64_t *more, JitPeak *out) {
  const Graph *g = f->plan->g;
  const GNode *n = &g->nodes[s->node];
  int64_t views = view_bytes(f, env, g->operands + n->operand0, n->operand_count,
                             (uint32_t)(s - f->plan->steps));
  int64_t each = 0, again = 0, carried = 0;
  bool known = true;
  /* an iteration's number, and its results beside those of the iteration before, or of all */
  for (uint32_t r = 0; r < n->region_count; r++)
    known &= body_peak(f->regions[n->region0 + r], env, n->op != OP_BRANCH, &each, out);
  for (uint32_t k = 0; k < n->operand_count; k++) { /* turns that run again for their rows */
    Val v = gr_operand(g, s->node, (int)k);
    if (is_again(g, v))
      known &= body_peak(f->regions[g->nodes[v.node].region0], env, true, &again, out);
  }
  for (int i = 0; n->op == OP_LOOP && i < (int)gr_attr_i(g, s->node, AT_CARRY, 0); i++)
    carried += 2 * value_bytes(g, (Val){s->node, (uint32_t)i}, env); /* turns_run has two of them */
  if (n->op == OP_LOOP && carried + 16 > each) each = carried + 16;
  for (uint32_t k = 0; k < n->result_count; k++) { /* what nobody reads is made, too */
    Val v = {s->node, k};
    int64_t unread =
        f->plan->place[plan_index(g, v)].kind == PLACE_NONE ? kept_bytes(f, v, env) : 0;
    known &= unread >= 0;
    if (unread > 0) each += unread;
  }
  *more = views + again + each;
  OpCode op = (OpCode)n->op; /* those without bodies make their results only */
  return known && ((op_info[op].cls == CONTROL && !(op_info[op].traits & T_EFFECT)) ||
                   op_info[op].cls == EFFECT || op == OP_CONCAT);
}

/* Bytes with which turns run again whose rows leave. */
static bool again_peak(JitFn *f, const int64_t *env, int64_t *out) {
  const Plan *p = f->plan;
  bool known = true;
  for (size_t i = 0; i < p->held_count; i++) {
    JitPeak body = {0};
    int64_t more = 0;
    Val v = p->helds[i].v;
    if (p->helds[i].last != UINT32_MAX || !is_again(p->g, v)) continue;
    known &= body_peak(f->regions[p->g->nodes[v.node].region0], env, true, &more, &body);
    if (more + body.arena > *out) *out = more + body.arena;
  }
  return known;
}

bool jit_peak(JitFn *f, const int64_t *env, JitPeak *out) {
  stack_check();
  *out = (JitPeak){0};
  if (f->reference) return false;
  const Bound *b = bound_get(f, env);
  if (b->reference) return false;
  const Plan *p = f->plan;
  int threads = f->j->engine ? eng_threads(f->j->engine) : 1;
  *out = (JitPeak){.arena = b->arena_bytes,
                   .live = b->live_bytes,
                   .panels = b->panel_bytes,
                   .scratch = (b->local_bytes + 63) / 64 * 64 * threads,
                   .outputs = b->result_bytes,
                   .saved = b->saved_bytes,
                   .exact = true};
  out->headers = (int64_t)p->result_count * (int64_t)(sizeof(Tensor) + sizeof(Storage) + 64);
  if (!out->arena) out->headers += 64; /* the least block */
  out->bound = size_helds(f, b->env);
  for (size_t i = 0; i < p->held_count; i++)
    if (f->held[i].stays) out->outputs += f->held[i].bytes;
  out->bound &= again_peak(f, b->env, &out->again);
  for (size_t i = 0; i < p->inputs; i++)
    out->reads |= gr_type(p->g, p->g->inputs[i])->kind == TK_STASH;
  JitPeak bodies = {0};
  for (uint32_t i = 0; i < p->step_count; i++) {
    int64_t more = 0;
    if (p->steps[i].kind == STEP_NODE) {
      out->exact = false;
      out->bound &= inner_peak(f, b->env, &p->steps[i], &more, &bodies);
    }
    if (p->steps[i].turns) {
      int64_t local = turns_local(p->low.launches[p->steps[i].launch].k);
      local = (local + 63) / 64 * 64 * threads;
      if (local > bodies.scratch) bodies.scratch = local;
    }
    more += held_bytes(f, i);
    if (more > out->inner) out->inner = more;
  }
  if (bodies.scratch > out->scratch) out->scratch = bodies.scratch;
  out->headers += 64 + (out->scratch ? 64 : 0);
  out->inner += bodies.arena;
  count_views(f, b->env, out);
  return true;
}

int64_t jit_new_outputs(JitFn *f, Arena *temp, const int64_t *env, size_t from) {
  const Plan *p = f->plan;
  const Graph *g = p->g;
  int64_t sum = 0;
  bool *seen = ARENA_ARRAY(temp, bool, p->result_count + 1);
  bool *held = ARENA_ARRAY(temp, bool, p->held_count + 1);
  size_helds(f, env);
  for (size_t i = from; i < g->output_count; i++) {
    Val v = g->outputs[i];
    while (!p->place[plan_index(g, v)].kind && g->nodes[v.node].operand_count)
      v = gr_operand(g, v.node, 0);
    Place at = p->place[plan_index(g, v)];
    if (at.kind == PLACE_RESULT && seen[at.index]) continue;
    if (at.kind == PLACE_RESULT) seen[at.index] = true;
    if (at.kind == PLACE_HELD && !held[f->held[at.index].like]) {
      held[f->held[at.index].like] = true;
      sum += f->held[f->held[at.index].like].bytes;
    }
    if (!at.kind || at.kind == PLACE_RESULT) sum += value_bytes(g, v, env);
  }
  return sum;
}

int64_t jit_stores(JitFn *f, const int64_t *env, const bool *alone, int64_t *headers) {
  const Plan *p = f->plan;
  int64_t sum = 0;
  if (f->reference) return 0;
  for (size_t i = 0; i < p->store_count; i++) {
    if (alone && alone[p->stores[i].input]) continue;
    sum += value_bytes(p->g, p->stores[i].v, env);
    if (headers) *headers += (int64_t)(sizeof(Tensor) + sizeof(Storage) + 64);
  }
  return sum;
}

int64_t jit_tensors(JitFn *f, const int64_t *env, const int64_t *dense, const bool *alone) {
  JitPeak all;
  if (!jit_peak(f, env, &all)) return 0;
  const Plan *p = f->plan;
  int64_t now = 0, results = 0, stores = jit_stores(f, env, alone, NULL);
  all.outputs += stores;
  int64_t most = all.outputs;
  size_t made = 0, dropped = 0;
  for (size_t i = 0; i < p->inputs; i++)
    if (p->input_used[i]) now += dense[i];
  for (uint32_t i = 0; i < p->step_count; i++) {
    if (i == p->tail) results += stores;
    for (; made < p->result_count && p->makes[made].step <= i; made++)
      results += value_bytes(p->g, p->results[p->makes[made].index], env);
    if (now + results > most) most = now + results;
    for (; dropped < p->drop_count && p->drops[dropped].step <= i; dropped++) {
      uint32_t k = p->drops[dropped].index;
      if (k < p->inputs && p->input_used[k]) now -= dense[k];
    }
  }
  return now + all.outputs > most ? now + all.outputs : most;
}

/* Per entry of g->types: whether the value belongs to block `id` and no node outside reads it. */
static bool *values_of_block(Arena *temp, const Graph *g, uint32_t id) {
  bool *own = ARENA_ARRAY(temp, bool, g->type_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    bool inside = gr_block_inside(g, g->provs[n->prov].region, id);
    for (uint32_t k = 0; k < n->result_count; k++) own[n->result0 + k] = inside;
    for (uint32_t k = 0; k < n->operand_count && !inside; k++) {
      for (Val v = gr_operand(g, i, (int)k);; v = gr_operand(g, v.node, 0)) {
        own[plan_index(g, v)] = false;
        if (!low_pulled(g, v.node) || !g->nodes[v.node].operand_count) break;
      }
    }
  }
  return own;
}

/* Appends what the evaluator holds of values that are `own` and do not leave, and what its steps in
 * block `id` need besides. */
static size_t held_items(JitFn *f, Arena *temp, const int64_t *env, uint32_t id, const bool *own,
                         MemItem *items) {
  const Plan *p = f->plan;
  const Graph *g = p->g;
  size_t n = 0;
  MemItem *group = ARENA_ARRAY(temp, MemItem, p->held_count + 1);
  bool *mine = ARENA_ARRAY(temp, bool, p->held_count + 1);
  size_helds(f, env);
  for (size_t i = 0; i < p->held_count; i++) {
    uint32_t k = f->held[i].like, made = p->made[plan_index(g, p->helds[i].v)],
             last = p->helds[i].last;
    if (!own[plan_index(g, p->helds[i].v)] || f->held[k].stays) continue;
    if (made) made--;
    if (!mine[k] || made < group[k].first) group[k].first = made;
    if (!mine[k] || last > group[k].last) group[k].last = last;
    mine[k] = true;
  }
  for (size_t i = 0; i < p->held_count; i++) {
    group[i].bytes = (f->held[i].bytes + 63) / 64 * 64;
    if (mine[i] && group[i].bytes) items[n++] = group[i];
  }
  for (uint32_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    if (s->kind != STEP_NODE || !gr_block_inside(g, g->provs[g->nodes[s->node].prov].region, id))
      continue;
    JitPeak bodies = {0};
    int64_t more = 0;
    inner_peak(f, env, s, &more, &bodies);
    more = (more + bodies.arena + 63) / 64 * 64;
    if (more) items[n++] = (MemItem){more, i, i, 0};
  }
  return n;
}

int64_t jit_rows_bytes(JitFn *f, size_t i, const int64_t *env) {
  const Graph *g = f->plan ? f->plan->g : NULL;
  if (!g || gr_type(g, g->outputs[i])->kind != TK_STASH) return 0;
  int64_t n = kept_bytes(f, g->outputs[i], env);
  return n < 0 ? 0 : n;
}

int64_t jit_block_bytes(JitFn *f, Arena *temp, const int64_t *env, uint32_t id) {
  if (f->reference) return 0;
  const Bound *b = bound_get(f, env);
  if (b->reference) return 0;
  const Plan *p = f->plan;
  const bool *own = values_of_block(temp, p->g, id);
  MemItem *items = ARENA_ARRAY(temp, MemItem, p->slot_count + p->held_count + p->step_count + 1);
  bool *mine = ARENA_ARRAY(temp, bool, p->slot_count + 1);
  size_t n = 0;
  for (size_t i = 0; i < p->g->type_count; i++)
    if (own[i] && p->place[i].kind == PLACE_ARENA) mine[p->place[i].index] = true;
  for (size_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    const Group *x = &p->groups.items[s->group];
    if (s->kind != STEP_KERNEL) continue;
    const Launch *l = &p->low.launches[s->launch];
    const Prov *v = &p->g->provs[p->g->nodes[x->root].prov];
    for (size_t k = 0; k < l->k->buf_count; k++)
      if (l->bufs[k].kind == USE_PANEL && gr_block_inside(p->g, v->region, id))
        mine[s->panel0 + l->bufs[k].panel] = true;
  }
  bool all = !p->transfer_count; /* the block is all of the arena, whose size is known */
  for (size_t i = 0; i < p->slot_count; i++) {
    if (p->slots[i].first == UINT32_MAX) continue;
    all &= mine[i];
    if (mine[i]) items[n++] = (MemItem){b->bytes[i], p->slots[i].first, p->slots[i].last, 0};
  }
  size_t held = held_items(f, temp, env, id, own, items + n);
  return all && !held ? b->arena_bytes : memplan(temp, items, n + held);
}
