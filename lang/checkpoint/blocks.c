/* `checkpoint` blocks and loops, in code and in script (rules 80 to 86).
 *
 * In: the construct's node. Out: the value of its body. In code the body is staged as without the
 * word, inside of a Block (checkpoint_tags.c). In script it is one compiled call of a function
 * without parameters. Its captures are all names that the body mentions, variables too, and its
 * result includes the new values of the variables that the body assigns. By rule 74 this is no
 * call: its leaves are used as if the body were written in place, and its one block is that of the
 * construct. A body whose gradients would have to leave the call runs as script does instead.
 */
#include <string.h>

#include "autograd/vjp.h"
#include "graph/replay.h"
#include "graph/structure.h"
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/sides.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/tape/gradient.h"
#include "lang/value/fail.h"

static Span word_of(const Node *n) {
  Span at = n->span;
  at.hi = at.lo + 10; /* checkpoint */
  return at;
}

/* ---- loops in code: which iterations are a block */

typedef struct Iterations Iterations;
struct Iterations {
  Session *s;
  Policy policy;
  Span at;
  int64_t count;
  uint16_t *opens, *closes; /* blocks to enter before iteration i and to leave after it */
  OpenBlock *open[64];
  int depth;
};

/* Iterations lo .. hi - 1 with s states and r repetitions: the first part is a block that is split
 * the same way when it runs again, with one repetition less; the rest has one state less. */
static void binomial(Iterations *t, int64_t lo, int64_t hi, int64_t s, int64_t r) {
  while (hi - lo > 1) {
    int64_t m = replay_next(hi - lo, s, r);
    if (m > 1) {
      t->opens[lo]++;
      t->closes[lo + m - 1]++;
      binomial(t, lo, lo + m, s, r - 1);
    } else {
      t->opens[lo]++;
      t->closes[lo]++;
    }
    lo += m;
    if (s > 1) s--;
  }
  t->opens[lo]++;
  t->closes[lo]++;
}

Iterations *iterations_start(Session *s, Node *loop, int64_t count) {
  if (!loop->loop.is_checkpoint || !in_code(s)) return NULL;
  Iterations *t = ARENA_NEW(&s->scratch, Iterations);
  *t = (Iterations){.s = s, .at = word_of(loop), .count = count};
  policy_read(s, &loop->loop.clauses, true, &t->policy);
  t->opens = ARENA_ARRAY(&s->scratch, uint16_t, count + 1);
  t->closes = ARENA_ARRAY(&s->scratch, uint16_t, count + 1);
  int64_t every = policy_says(&t->policy, POLICY_every) ? t->policy.said[POLICY_every].n : 1;
  if (policy_says(&t->policy, POLICY_binomial)) {
    const struct Said *states = &t->policy.said[POLICY_binomial];
    int64_t r = replay_repetitions(count, states->n);
    if (r > 30)
      fail_help(s, ERR_POLICY_VALUE, states->at,
                "more states, or `every`, which keeps one of so many",
                "%lld iterations from %lld states run each iteration %lld times", (long long)count,
                (long long)states->n, (long long)r);
    if (count) binomial(t, 0, count, states->n, r);
  } else {
    for (int64_t i = 0; i < count; i++) {
      t->opens[i] = i % every == 0;
      t->closes[i] = i % every == every - 1 || i == count - 1;
    }
  }
  return t;
}

void iterations_before(Iterations *t, int64_t i) {
  if (!t) return;
  for (int k = 0; k < t->opens[i]; k++) {
    CK_ASSERT(&t->s->mem, t->depth < 64);
    OpenBlock *b = ARENA_NEW(&t->s->scratch, OpenBlock);
    block_enter(t->s, b, &t->policy, t->at);
    t->open[t->depth++] = b;
  }
}

void iterations_after(Iterations *t, int64_t i, bool end) {
  if (!t) return;
  int n = end ? t->depth : t->closes[i];
  for (int k = 0; k < n; k++) {
    t->depth--;
    block_leave(t->s, t->open[t->depth], end && t->depth == 0);
  }
}

_Noreturn void iterations_refuse(Session *s, const Node *loop, bool every, const char *why) {
  fail_help(s, ERR_NOT_YET, loop->span, "`checkpoint for` without it makes each turn a block",
            "not yet: `%s` of a loop that stays one: %s", every ? "every" : "binomial", why);
}

int64_t iterations_keep(Session *s, Node *loop, bool *every) {
  Policy p;
  if (!loop->loop.is_checkpoint) return 0;
  policy_read(s, &loop->loop.clauses, true, &p);
  *every = policy_says(&p, POLICY_every);
  if (!*every && !policy_says(&p, POLICY_binomial)) return 0;
  bool more = p.count || p.fn.tag != V_UNIT;
  for (PolicyWord w = 0; w < POLICY_COUNT; w++)
    more |= policy_says(&p, w) && w != POLICY_every && w != POLICY_binomial;
  if (more) iterations_refuse(s, loop, *every, "other clauses stand beside it");
  return p.said[*every ? POLICY_every : POLICY_binomial].n;
}

/* ---- in script: a function that stands for the body */

static const char capsule_name[] = "checkpoint block";

static Node *capsule_of(Session *s, Node *key, Node *body) {
  if (key->info) return key->info;
  Arena *a = src_arena(&s->sources, key->span.file);
  Node *n = ARENA_NEW(a, Node);
  n->kind = N_LAMBDA;
  n->span = body->span;
  n->fn = ARENA_NEW(a, Fn);
  n->fn->body = body;
  n->fn->body_is_expr = true;
  n->fn->name = (Word){.name = names_of(s->names, capsule_name), .span = key->span};
  n->fn->header = word_of(key);
  key->info = n;
  return n;
}

bool capsule_is_node(const Node *fn) {
  return fn->kind == N_LAMBDA && fn->fn->name.name && !strcmp(fn->fn->name.name, capsule_name);
}

bool capsule_is_fn(const FnObj *f) {
  return f && capsule_is_node(f->decl);
}

/* How an iteration ends that data lets break or continue its loop: a number of the graph. */
static Value flow_of_exits(Session *s, const OpenLoop *l, Flow flow, Span at) {
  Value n = v_int(flow == FLOW_GONE ? FLOW_NEXT : flow);
  const Value *flags[2] = {&l->broken, &l->continued};
  const int64_t ways[2] = {FLOW_BREAK, FLOW_CONTINUE};
  for (int i = 0; i < 2; i++) {
    if (flags[i]->tag != V_NODE) continue;
    Value way = op_cast(s, *flags[i], DT_I64, at);
    way.weak = true;
    way = op_binary(s, AST_MUL, way, v_int(ways[i]), at, at, at);
    n = op_binary(s, AST_ADD, n, way, at, at, at);
  }
  return n;
}

/* The body in its frame: (how it ended, its value, the variables that it assigned, in order). */
Value capsule_body(Session *s, const FnObj *f) {
  Node *body = f->decl->fn->body;
  Value v = v_unit();
  Flow flow = FLOW_NEXT;
  OpenLoop loop = {.up = s->loops, .at = body->span, .staged = true, .frame = s->frame};
  bool iteration = s->stage && body->kind == N_CHECKPOINT && body->region.body->info == body;
  if (iteration) s->loops = &loop;
  if (!s->stage && body->kind == N_CHECKPOINT) { /* see block_as_script */
    v = eval_block(s, body->region.body, &flow);
  } else if (ast_is_expr(body)) {
    s->tail = body;
    v = eval_expr(s, body);
    flow = (Flow)s->flow;
    s->flow = FLOW_NEXT;
  } else {
    flow = eval_stmt(s, body, &v);
  }
  AbstractVars names = abstract_vars(s, body);
  Value *items = ARENA_ARRAY(&s->scratch, Value, names.count + 3);
  size_t n = 0;
  items[n++] = iteration ? flow_of_exits(s, &loop, flow, body->span) : v_int(flow);
  s->loops = loop.up;
  items[n++] = v;
  for (size_t i = 0; i < names.count; i++) {
    Local *l = local_find(s, names.names[i]);
    if (l && l->is_var) items[n++] = l->v;
  }
  return v_list(s, V_TUPLE, n, items);
}

/* The variable of that name where the construct stands. */
static Value *outer_variable(Session *s, Name name) {
  Local *l = local_find(s, name);
  if (l) return l->is_var ? &l->v : NULL;
  if (s->frame->self && model_field(s->frame->self, name)) return NULL;
  Global *g = global_find(s, s->frame->module, name);
  return g && g->kind == G_VALUE && g->is_var ? &g->v : NULL;
}

static Value run_capsule(Session *s, Node *key, Node *body, Flow *flow) {
  stack_check();
  Value f = closure_of_capsule(s, capsule_of(s, key, body));
  Args a = {.call = word_of(key)};
  Value r = call_run_code(s, f.u.fn, &a);
  const Value *items = r.u.list->items;
  AbstractVars names = abstract_vars(s, body);
  for (size_t i = 0, k = 2; i < names.count; i++) {
    Value *v = outer_variable(s, names.names[i]);
    if (v && k < r.u.list->count) value_set(v, items[k++]);
  }
  *flow = (Flow)items[0].u.i;
  return items[1];
}

/* ---- gradients in blocks of script that go on outside */

void block_grad(Session *s, Value loss, Span at) {
  if (!capsule_is_fn(s->frame->fn) && !desugar_is_comp(s->frame->fn)) return;
  Stage *st = s->stage;
  Val y = stage_lift(s, loss, at).u.v;
  bool *live = ARENA_ARRAY(&s->scratch, bool, st->g->node_count);
  live[y.node] = true;
  for (;;) {
    for (uint32_t i = (uint32_t)st->g->node_count; i-- > 0;)
      for (uint32_t k = 0; live[i] && k < st->g->nodes[i].operand_count; k++)
        if (st->g->nodes[i].op != OP_STOP && ad_carries(st->g, i, k))
          live[gr_operand(st->g, i, (int)k).node] = true;
    if (st->level == 1) break;
    bool *up = ARENA_ARRAY(&s->scratch, bool, st->up->g->node_count);
    for (size_t c = 0; c < st->capture_count; c++)
      if (live[st->inner[c].node]) up[st->outer[c].node] = true;
    for (uint32_t k = 0; k < st->row_count; k++)
      if (!val_none(st->rows[k]) && live[st->g->inputs[k].node]) up[st->rows[k].node] = true;
    live = up;
    st = st->up;
  }
  Unit *u = st->unit;
  for (size_t i = 0; i < u->flat.count; i++) {
    Leaf *l = &u->flat.leaves[i];
    if (l->kind > LEAF_PARAM || !live[u->staged[i].u.v.node]) continue;
    Value v = leaf_value(l);
    l->reached = true;
    u->outside |= v.tag == V_TENSOR && tape_wants_grad(s, v);
  }
}

/* Whether the loop itself is the block of script that runs now. */
static bool as_script(const Session *s, const Node *loop) {
  return capsule_is_fn(s->frame->fn) && s->frame->fn->decl->fn->body == loop;
}

Value block_as_script(Session *s, FnObj *f, const Args *a) {
  fail_warn_once(s, ERR_POLICY_SAVES_NOTHING, a->call,
                 "this block saves no memory: a `grad` in it goes on through values that were made "
                 "outside, so it runs operation by operation, as script does");
  return call_inline(s, f, a);
}

/* Runs an iteration of a loop in script: its body is a block. */
void checkpoint_iteration(Session *s, Node *loop, Flow *flow) {
  if (as_script(s, loop)) {
    eval_block(s, loop->loop.body, flow);
    return;
  }
  Node *key = loop->loop.body;
  if (!key->info) {
    Node *e = ARENA_NEW(src_arena(&s->sources, key->span.file), Node);
    e->kind = N_CHECKPOINT;
    e->span = loop->span;
    e->region.clauses = loop->loop.clauses;
    e->region.body = loop->loop.body;
    key->info = e;
  }
  run_capsule(s, key->info, key->info, flow);
}

/* Compiles the loop as a whole for `every` and `binomial`, which need to see the iterations. */
bool checkpoint_loop(Session *s, Node *loop, Flow *flow) {
  if (!loop->loop.is_checkpoint || s->stage || s->abstract || as_script(s, loop)) return false;
  Policy p;
  policy_read(s, &loop->loop.clauses, true, &p);
  if (!policy_says(&p, POLICY_every) && !policy_says(&p, POLICY_binomial)) return false;
  run_capsule(s, loop, loop, flow);
  return true;
}

/* ---- blocks */

static bool has_tensor(Value v) {
  stack_check();
  if (v_is_tensor(v) || v.tag == V_UNKNOWN || (v.tag == V_NODE)) return true;
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++)
    if (has_tensor(items[i])) return true;
  return false;
}

/* Warns if the block gives, assigns and writes no tensor: nobody can take a gradient through it. */
static void want_result(Session *s, OpenBlock *b, Node *e, Value v) {
  if (has_tensor(v) || s->stage->unit->check) return;
  AbstractVars names = abstract_vars(s, e->region.body);
  for (size_t i = 0; i < names.count; i++) {
    Local *l = local_find(s, names.names[i]);
    if (l && has_tensor(l->v)) return;
  }
  size_t written = 0;
  for (size_t i = 0; i < s->stage->unit->state_count; i++)
    written += s->stage->unit->states[i].written;
  if (written > b->written) return;
  Node *last = e->region.body;
  if (last->kind == N_BLOCK && last->list.count) last = last->list.items[last->list.count - 1];
  fail_warn_once(
      s, ERR_POLICY_RESULT, last->span,
      "this block gives %s, and assigns and writes no tensor: there is nothing to compute "
      "again, and without `checkpoint` it does the same",
      v.tag == V_UNIT ? "()" : value_type_text(s, v));
  b->policy->saves = true; /* no further warning about it */
}

Value checkpoint_eval(Session *s, Node *e) {
  Flow flow = FLOW_NEXT;
  if (s->abstract) return eval_block(s, e->region.body, &flow);
  if (!s->stage) return run_capsule(s, e, e, &flow);
  OpenBlock b;
  Policy p;
  policy_read(s, &e->region.clauses, false, &p);
  block_enter(s, &b, &p, word_of(e));
  ExitMark exits = sides_exits(s);
  Value v = eval_block(s, e->region.body, &flow);
  bool iteration = capsule_is_fn(s->frame->fn) && e->region.body->info == e;
  if (flow != FLOW_NEXT && iteration) s->flow = flow;
  if (!iteration && (flow != FLOW_NEXT || sides_exited(s, &exits)))
    fail_at(s, ERR_BREAK, e->span,
            "`break`, `continue` and `return` cannot leave a `checkpoint` block");
  if (!iteration) want_result(s, &b, e, v);
  block_leave(s, &b, true);
  return v;
}
