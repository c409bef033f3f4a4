/* Gradients that go on the tape themselves (`record = true`, rule 77).
 *
 * In: a node of the tape and the cotangents of its results. Out: the sums of its operands'
 * gradients, as values that the tape knows. In code the nodes of a gradient stand among the others,
 * and a higher gradient meets each of their uses by itself (rule 74). For script to add in the same
 * order the tape has to hold the same nodes in the same order. So the gradient of an operation,
 * with the sums it goes into, is run one operation at a time and reads the operation's own results
 * from the node that made them; and a call is opened first: in its place stand the operations of
 * its body, computed again from its inputs. Only operations with regions stay calls of one node.
 */
#include <string.h>

#include "autograd/remat.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "graph/stash.h"
#include "lang/compile/compile.h"
#include "lang/compile/eager_kernels.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/eval/steps.h"
#include "lang/tape/gradient.h"
#include "lang/tape/record_op.h"
#include "lang/tape/tape_impl.h"
#include "lang/value/fail.h"

/* A result while a graph runs; `t` is its tensor at that time, as a param may have changed
 * since. */
typedef struct Held {
  Value v;
  Tensor *t;
} Held;

typedef struct Run {
  Session *s;
  Arena *temp;
  const Graph *g;
  struct Compiled *code; /* that g's sizes and names belong to, or NULL */
  const int64_t *env;
  size_t env_count;
  const bool *live; /* per node */
  Held *held;       /* per result; t NULL: not yet there */
  Span span;        /* for nodes that have none of their own */
  Modes modes;      /* modes of the tape node: gradients run in those of their forward */
  uint64_t *seq;    /* the place of the next node on the tape; NULL: as they come */
  TapeNode **made;  /* per node of g: what went on the tape; or NULL */
  bool anomaly;     /* the present mode counts, too */
  GErr *e;
  Prov *at;
} Run;

static Held *held(const Run *r, Val v) {
  return &r->held[r->g->nodes[v.node].result0 + v.res];
}

/* Room for the turns of a loop, whose number is not known before it runs: a node takes a place. */
#define TURN_PLACES ((uint64_t)1 << 36)

/* A bound on the nodes that run in place of g: of both sides of branches, and of all turns. */
uint64_t tape_places(const Graph *g) {
  stack_check();
  uint64_t n = g->node_count + g->output_count;
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i].op == OP_LOOP) n += TURN_PLACES;
    for (uint32_t k = 0; g->nodes[i].op == OP_BRANCH && k < 2; k++)
      n += tape_places(g->regions[g->nodes[i].region0 + k]);
  }
  return n;
}

/* The nodes that the outputs need. */
static bool *live_nodes(Arena *a, const Graph *g, size_t outputs) {
  bool *live = ARENA_ARRAY(a, bool, g->node_count + 1);
  for (size_t k = 0; k < outputs; k++)
    if (gr_type(g, g->outputs[k])->kind != TK_TOKEN) live[g->outputs[k].node] = true;
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;)
    for (uint32_t k = 0; live[i] && k < g->nodes[i].operand_count; k++) {
      Val v = gr_operand(g, i, (int)k);
      if (gr_type(g, v)->kind != TK_TOKEN) live[v.node] = true; /* effects have been */
    }
  return live;
}

/* An input as a value: the result or param to which the node's edge leads. */
static Held input(Session *s, const TapeNode *n, size_t i) {
  const Edge *e = &n->in[i];
  Held h = {.t = n->inputs[i]};
  if (e->param && !e->param->frozen) {
    h.v = (Value){.tag = V_PARAM, .u.p = e->param};
    return h;
  }
  h.v = v_tensor(s, tn_ref(h.t));
  h.v.u.t->node = e->node;
  h.v.u.t->out = e->out;
  if (e->node) e->node->rc++;
  return h;
}

/* The attributes of a node with constants of the session in place of sizes. */
static bool settled(Run *r, uint32_t node, Attr *to) {
  const GNode *n = &r->g->nodes[node];
  for (uint32_t k = 0; k < n->attr_count; k++) {
    to[k] = r->g->attrs[n->attr0 + k];
    if (to[k].kind != AK_DIM && to[k].kind != AK_DIMS) continue;
    uint32_t count = to[k].kind == AK_DIM ? 1 : to[k].count;
    const int64_t *from = to[k].kind == AK_DIM ? &to[k].u.i : to[k].u.ints;
    int64_t *dims = ARENA_ARRAY(r->temp, int64_t, count + 1), size;
    for (uint32_t j = 0; j < count; j++) {
      if (!dim_eval(r->g->dims, (Dim)from[j], r->env, NULL, &size))
        return gerr_set(r->e, ERR_OVERFLOW, -1, "a size does not fit 64 bits");
      dims[j] = dim_const(r->s->dims, size);
    }
    if (to[k].kind == AK_DIM)
      to[k].u.i = dims[0];
    else
      to[k].u.ints = dims;
  }
  return true;
}

/* Sets up n, the newest node, which ran with the operands `in`: it keeps the tensors that params
 * had then. */
static void mark(Run *r, uint32_t i, TapeNode *n, const Held *in) {
  if (!n) return;
  if (r->made) r->made[i] = n;
  if (r->seq) n->seq = (*r->seq)++;
  n->modes = r->modes;
  n->modes.anomaly = r->g->provs[r->g->nodes[i].prov].anomaly;
  for (size_t k = 0; k < n->in_count; k++) {
    Tensor *now = n->inputs[k];
    n->inputs[k] = tn_ref(in[k].t);
    tn_unref(now);
  }
}

static Span span_of(const Run *r, uint32_t node) {
  Span span = r->g->provs[r->g->nodes[node].prov].span;
  return span.file ? span : r->span;
}

/* An operation with regions: a call of a graph of that one node. */
static bool run_region(Run *r, uint32_t i, const Held *in, Tensor *const *t, const bool *tracked,
                       Tensor **out, Value *outs, RunCtx *c) {
  Session *s = r->s;
  const Graph *g = r->g;
  const GNode *n = &g->nodes[i];
  Graph *f = gr_new(r->temp, g->dims, g->names, g->name);
  f->blocks = g->blocks;
  f->at = g->provs[n->prov];
  Val *x = ARENA_ARRAY(r->temp, Val, n->operand_count + 1u);
  Value *leaf = ARENA_ARRAY(r->temp, Value, n->operand_count + 1u);
  Graph **regions = ARENA_ARRAY(r->temp, Graph *, n->region_count + 1u);
  bool *cot = ARENA_ARRAY(r->temp, bool, n->result_count + 1u);
  for (uint32_t k = 0; k < n->operand_count; k++) {
    x[k] = gr_input(f, gr_type(g, gr_operand(g, i, (int)k)));
    leaf[k] = in[k].v;
  }
  for (uint32_t k = 0; k < n->region_count; k++)
    regions[k] = gr_clone(r->temp, g->regions[n->region0 + k]);
  Val y = gr_op(f, (OpCode)n->op, x, (int)n->operand_count, &g->attrs[n->attr0], n->attr_count,
                regions, n->region_count, r->e);
  if (val_none(y)) return false;
  for (uint32_t k = 0; k < n->result_count; k++) {
    gr_output(f, (Val){y.node, k});
    cot[k] = dt_float((DType)g->types[n->result0 + k].dtype);
  }
  JointRef *j = joint_new(
      s, &(JointSpec){.kind = JOINT_REGION, .f = f, .code = r->code, .cot = cot, .wants = tracked});
  if (!joint_make_once(j, r->e, r->at)) return false;
  size_t all = j->joint->forward->output_count, nout = n->result_count;
  Tensor **got = ARENA_ARRAY(r->temp, Tensor *, all + 1);
  if (!native_run(s, &j->forward, j->joint->forward, op_info[n->op].text, c, t, got, r->e, r->at))
    return false;
  value_pool_tensors(s, got, all);
  for (size_t k = 0; k < nout; k++) out[k] = got[k];
  for (size_t k = 0; k < nout; k++) outs[k] = v_tensor(s, tn_ref(got[k]));
  tape_record_call(s, j, n->operand_count, leaf, t, nout, outs, got + nout, r->env, r->env_count,
                   span_of(r, i));
  return true;
}

/* A value that a call writes to a param counts as the param (rule 60). It gets the edge of the
 * earlier version, which is the param itself if the body stands for no call (see tape_open). */
static bool run_version(Run *r, uint32_t i, Held *to) {
  Value of = held(r, gr_operand(r->g, i, 1))->v;
  bool wants = tape_wants_grad(r->s, of);
  to->t = held(r, gr_operand(r->g, i, 0))->t;
  to->v = wants && of.tag == V_PARAM ? of : v_tensor(r->s, tn_ref(to->t));
  if (!wants || of.tag == V_PARAM) return true;
  to->v.u.t->node = of.u.t->node;
  to->v.u.t->out = of.u.t->out;
  of.u.t->node->rc++;
  return true;
}

/* ---- branches: the side that is taken stands in place of the node, as in script */

static bool run(Run *r);

static RunCtx ctx_of(const Run *r) {
  Session *s = r->s;
  return (RunCtx){.mem = &s->mem,
                  .interrupt = &s->kernel.stop,
                  .pool = native_pool(s, false),
                  .env = r->env,
                  .turn = native_turn,
                  .turn_ud = s,
                  .effect = effect_run,
                  .ud = s};
}

static bool run_branch(Run *r, uint32_t i) {
  stack_check();
  const Graph *g = r->g;
  const GNode *n = &g->nodes[i];
  bool holds = tn_get_i64(held(r, gr_operand(g, i, 0))->t, 0) != 0;
  const Graph *side = g->regions[n->region0 + !holds];
  Run in = *r;
  in.g = side;
  in.made = NULL;
  in.held = ARENA_ARRAY(r->temp, Held, side->type_count + 1);
  in.live = live_nodes(r->temp, side, side->output_count);
  for (size_t k = 0; k < side->input_count; k++)
    *held(&in, side->inputs[k]) = *held(r, gr_operand(g, i, (int)k + 1));
  if (!run(&in)) return false;
  for (uint32_t k = 0; k < n->result_count; k++)
    if (g->types[n->result0 + k].kind != TK_TOKEN)
      *held(r, (Val){i, k}) = *held(&in, side->outputs[k]);
  return true;
}

/* ---- loops: the turns stand in place of the node, as in script */

/* Sets *out to the row of a stash: its tensor, and its value if the tape has it. */
static bool row_of(Run *r, const Held *stash, int64_t turn, Held *out) {
  const Value *v = &stash->v;
  bool known = v->tag == V_LIST && turn < (int64_t)v->u.list->count;
  Value row = known ? v->u.list->items[turn] : v_unit();
  Tensor *t = row.tag == V_TENSOR ? row.u.t->t : NULL;
  RunCtx c = ctx_of(r);
  if (!t && !stash_row(stash->t, turn, &c, &t, r->e, r->at)) return false;
  if (t && !known) row = v_tensor(r->s, tn_ref(t));
  *out = (Held){row, t};
  return true;
}

/* A stash of what `count` turns kept, number `from` of the `step` values of each. */
static Held stash_of(Run *r, const Held *rows, int64_t from, int64_t count, int64_t step,
                     bool reverse) {
  Session *s = r->s;
  Tensor *t = stash_new(&s->mem);
  Value *items = ARENA_ARRAY(r->temp, Value, count + 1);
  if (!t) mem_throw(&s->mem, MEM_ERR_NOMEM);
  value_pool_tensors(s, &t, 1);
  for (int64_t k = 0; k < count; k++) {
    const Held *h = &rows[(reverse ? count - 1 - k : k) * step + from];
    if (!stash_add(t, h->t)) mem_throw(&s->mem, MEM_ERR_NOMEM);
    items[k] = h->v;
  }
  return (Held){v_list(s, V_LIST, (size_t)count, items), t};
}

static Held whole_number(Run *r, int64_t i) {
  Tensor *t = tn_scalar_i64(&r->s->mem, DEV_CPU, DT_I64, i);
  if (!t) mem_throw(&r->s->mem, MEM_ERR_NOMEM);
  return (Held){v_tensor(r->s, t), t};
}

static bool run_loop(Run *r, uint32_t i) {
  stack_check();
  const Graph *g = r->g;
  const GNode *n = &g->nodes[i];
  const Graph *body = g->regions[n->region0];
  int64_t carry = gr_attr_i(g, i, AT_CARRY, 0), rows = gr_attr_i(g, i, AT_MAPPED, 0), turn = 0;
  bool reverse = gr_attr_i(g, i, AT_REVERSE, 0) != 0, goes_on = gr_attr(g, i, AT_WHILE) != NULL;
  int64_t count = tn_get_i64(held(r, gr_operand(g, i, 0))->t, 0);
  size_t gives = body->output_count, kept = gives - (size_t)carry, cap = 0, used = 0;
  Held *cur = ARENA_ARRAY(r->temp, Held, carry + 1), *all = NULL; /* all: rows, turn by turn */
  const Attr *counter = gr_attr(g, i, AT_COUNTER);
  Sym symbol = 0;
  Run in = *r;
  int64_t *env = NULL;
  if (counter) {
    dim_is_symbol(g->dims, (Dim)counter->u.i, &symbol);
    in.env = env = ARENA_ARRAY(r->temp, int64_t, r->env_count + 1);
    if (r->env_count) memcpy(env, r->env, r->env_count * sizeof *env);
  }
  in.g = body;
  in.made = NULL;
  in.live = live_nodes(r->temp, body, gives);
  for (int64_t k = 0; k < carry; k++) cur[k] = *held(r, gr_operand(g, i, (int)k + 1));
  for (; turn < count && (!goes_on || tn_get_i64(cur[0].t, 0)); turn++) {
    count_step(r->s, span_of(r, i));
    int64_t number = reverse ? count - 1 - turn : turn;
    if (counter) { /* a node of the tape keeps a copy */
      env[symbol] = (int64_t)((uint64_t)gr_attr_i(g, i, AT_VALUE, 0) + (uint64_t)number + 1);
    }
    in.held = ARENA_ARRAY(r->temp, Held, body->type_count + 1);
    *held(&in, body->inputs[0]) = whole_number(r, number);
    for (uint32_t k = 1; k < n->operand_count; k++) {
      Held *to = held(&in, body->inputs[k]), *from = held(r, gr_operand(g, i, (int)k));
      *to = k <= carry ? cur[k - 1] : *from;
      if (k > carry && k <= carry + rows && !row_of(r, from, number, to)) return false;
    }
    if (!run(&in)) return false;
    for (size_t k = 0; k < gives; k++) {
      Held h = *held(&in, body->outputs[k]);
      if (k < (size_t)carry)
        cur[k] = h;
      else
        VEC_PUSH(r->temp, all, used, cap, h);
    }
  }
  for (int64_t k = 0; k < carry; k++) *held(r, (Val){i, (uint32_t)k}) = cur[k];
  if (goes_on) *held(r, (Val){i, (uint32_t)carry}) = whole_number(r, turn);
  for (size_t k = 0; k < kept; k++)
    *held(r, (Val){i, (uint32_t)((size_t)carry + goes_on + k)}) =
        stash_of(r, all, (int64_t)k, turn, (int64_t)kept, reverse);
  return true;
}

static bool run_stash(Run *r, uint32_t i) {
  const GNode *n = &r->g->nodes[i];
  Held *rows = ARENA_ARRAY(r->temp, Held, n->operand_count + 1u);
  for (uint32_t k = 0; k < n->operand_count; k++) rows[k] = *held(r, gr_operand(r->g, i, (int)k));
  *held(r, (Val){i, 0}) = stash_of(r, rows, 0, n->operand_count, 1, false);
  return true;
}

static bool run_unstash(Run *r, uint32_t i) {
  const Held *from = held(r, gr_operand(r->g, i, 0));
  for (uint32_t k = 0; k < r->g->nodes[i].result_count; k++)
    if (!row_of(r, from, k, held(r, (Val){i, k}))) return false;
  return true;
}

/* Whether the tape knows v, or something in it. */
static bool on_tape(Session *s, Value v) {
  stack_check();
  if (v.tag != V_LIST) return v.tag != V_UNIT && tape_wants_grad(s, v);
  for (size_t i = 0; i < v.u.list->count; i++)
    if (on_tape(s, v.u.list->items[i])) return true;
  return false;
}

static bool run_node(Run *r, uint32_t i) {
  Session *s = r->s;
  const Graph *g = r->g;
  const GNode *n = &g->nodes[i];
  OpCode op = (OpCode)n->op;
  if (op == OP_VERSION) return run_version(r, i, held(r, (Val){i, 0}));
  if (op == OP_BRANCH) return run_branch(r, i);
  if (op == OP_STASH) return run_stash(r, i);
  if (op == OP_UNSTASH) return run_unstash(r, i);
  size_t nin = n->operand_count, nout = n->result_count;
  Held *in = ARENA_ARRAY(r->temp, Held, nin + 1);
  Tensor **t = ARENA_ARRAY(r->temp, Tensor *, nin + 1);
  Tensor **out = ARENA_ARRAY(r->temp, Tensor *, nout + 1);
  Value *v = ARENA_ARRAY(r->temp, Value, nin + 1), *outs = ARENA_ARRAY(r->temp, Value, nout + 1);
  bool *tracked = ARENA_ARRAY(r->temp, bool, nin + 1), any = false;
  for (size_t k = 0; k < nin; k++) in[k] = *held(r, gr_operand(g, i, (int)k));
  for (size_t k = 0; k < nin; k++) {
    t[k] = in[k].t;
    v[k] = in[k].v;
    any |= tracked[k] = on_tape(s, v[k]);
  }
  if (op == OP_LOOP && any) return run_loop(r, i);
  *r->at = g->provs[n->prov];
  RunCtx c = ctx_of(r);
  c.anomaly = r->at->anomaly || (r->anomaly && s->modes.anomaly);
  if (n->region_count && any) {
    if (!run_region(r, i, in, t, tracked, out, outs, &c)) return false;
  } else {
    Attr *attrs = ARENA_ARRAY(r->temp, Attr, n->attr_count + 1u);
    if (!settled(r, i, attrs)) return false;
    if (n->region_count
            ? !gr_run_node(g, i, &c, t, out, r->e, r->at)
            : !native_op(s, &c, op, attrs, n->attr_count, t, (int)nin, out, (int)nout, r->e))
      return false;
    value_pool_tensors(s, out, nout);
    for (size_t k = 0; k < nout; k++) outs[k] = v_tensor(s, tn_ref(out[k]));
    if (any) tape_record(s, op, (int)nin, v, attrs, n->attr_count, (int)nout, outs, span_of(r, i));
  }
  s->count.nodes++;
  TapeNode *made = NULL;
  for (size_t k = 0; k < nout; k++) {
    *held(r, (Val){i, (uint32_t)k}) = (Held){outs[k], outs[k].u.t->t};
    if (outs[k].u.t->node) made = outs[k].u.t->node;
  }
  mark(r, i, made, in);
  return true;
}

static Run run_for(Session *s, Arena *temp, const TapeNode *n, const Graph *g, GErr *e, Prov *at) {
  return (Run){.s = s,
               .temp = temp,
               .g = g,
               .code = n->joint ? n->joint->spec.code : NULL,
               .env = n->env,
               .env_count = n->env_count,
               .held = ARENA_ARRAY(temp, Held, g->type_count + 1),
               .span = n->span,
               .modes = n->modes,
               .e = e,
               .at = at};
}

/* Runs the live nodes that have no results yet. */
static bool run(Run *r) {
  for (uint32_t i = 0; i < r->g->node_count; i++) {
    if (!r->live[i] || r->held[r->g->nodes[i].result0].t) continue;
    fail_if_interrupted(r->s, r->span);
    if (op_info[r->g->nodes[i].op].traits & T_EFFECT)
      return gerr_set(r->e, ERR_GRAD_NONE, -1,
                      "a second gradient goes through a function of the host, which has none");
    if (!run_node(r, i)) return false;
  }
  return true;
}

/* ---- calls */

/* Makes node n pass the gradients of its results on to `from`. */
static void pass_on(Session *s, TapeNode *n, const Value *from) {
  Mem *m = &s->mem;
  size_t count = n->out_count;
  Edge *in = mem_need(m, NULL, 0, count * sizeof *in);
  memset(in, 0, count * sizeof *in);
  Tensor **inputs = mem_try(m, NULL, 0, count * sizeof *inputs);
  if (!inputs) {
    mem_free(m, in, count * sizeof *in);
    mem_throw(m, MEM_ERR_NOMEM);
  }
  memset(inputs, 0, count * sizeof *inputs);
  for (size_t k = 0; k < count; k++) {
    if (!dt_float(n->out[k].dtype) || !tape_wants_grad(s, from[k])) continue;
    if (from[k].tag == V_PARAM) {
      in[k].param = from[k].u.p;
      in[k].param->o.rc++;
      continue;
    }
    in[k].node = from[k].u.t->node;
    in[k].out = from[k].u.t->out;
    in[k].node->rc++;
  }
  joint_retain(n->joint);
  JointRef *j = n->joint;
  tape_empty(s, n);
  n->joint = j;
  n->state = TAPE_OPENED;
  n->in = in;
  n->inputs = inputs;
  n->in_count = count;
}

/* Whether the gradient would call a function that a tape does not hold. */
static bool calls_host(const Graph *f) {
  for (size_t i = 0; i < f->node_count; i++) {
    const OpInfo *o = &op_info[f->nodes[i].op];
    if (o->cls == CONTROL && o->traits & T_EFFECT) return true;
  }
  return false;
}

static bool used_inside(const Graph *f, Val v) {
  for (uint32_t i = v.node + 1; i < f->node_count; i++)
    for (uint32_t k = 0; k < f->nodes[i].operand_count; k++)
      if (val_eq(gr_operand(f, i, (int)k), v)) return true;
  return false;
}

bool tape_open(Session *s, Arena *temp, TapeNode *n, GErr *e, Prov *at) {
  if (!n->joint || n->joint->spec.kind == JOINT_REGION || n->state == TAPE_OPENED ||
      n->state == TAPE_CONSUMED || n->hollow)
    return true;
  const Graph *f = n->joint->spec.f;
  if (calls_host(f)) return true;
  Run r = run_for(s, temp, n, f, e, at);
  r.live = live_nodes(temp, f, n->out_count);
  uint64_t seq = n->seq - tape_places(f);
  r.seq = &seq;
  for (size_t i = 0; i < n->in_count; i++) {
    Held h = input(s, n, i);
    uint32_t node = f->inputs[i].node;
    if (tape_wants_grad(s, h.v) &&
        n->joint->spec.kind != JOINT_BLOCK) { /* an edge: uses are summed first (rule 74) */
      Value y = v_tensor(s, tn_ref(h.t));
      tape_record(s, OP_ALIAS, 1, &h.v, NULL, 0, 1, &y, n->span);
      mark(&r, node, y.u.t->node, &h);
      h.v = y;
    }
    *held(&r, f->inputs[i]) = h;
  }
  r.made = ARENA_ARRAY(temp, TapeNode *, f->node_count + 1);
  if (!run(&r)) return false;
  if (rm_narrows(f)) {
    TapeRun ran = {.f = f, .made = r.made, .env = n->env};
    ran.value = ARENA_ARRAY(temp, Tensor *, f->type_count + 1);
    for (size_t k = 0; k < f->type_count; k++) ran.value[k] = r.held[k].t;
    if (!tape_shift(s, temp, &ran, e, at)) return false;
  }
  Value *from = ARENA_ARRAY(temp, Value, n->out_count + 1);
  for (size_t k = 0; k < n->out_count; k++) {
    Held h = *held(&r, f->outputs[k]);
    from[k] = h.v;
    if (n->joint->spec.kind != JOINT_CALL || !tape_wants_grad(s, h.v)) continue;
    if (n->out_count == 1 && !used_inside(f, f->outputs[k])) continue;
    size_t same = 0;
    while (!val_eq(f->outputs[same], f->outputs[k])) same++;
    if (same < k) { /* its alias */
      from[k] = from[same];
      continue;
    }
    from[k] = v_tensor(s, tn_ref(h.t)); /* uses inside are no uses of the result (rule 72) */
    tape_record(s, OP_ALIAS, 1, &h.v, NULL, 0, 1, &from[k], n->span);
    mark(&r, f->outputs[k].node, from[k].u.t->node, &h);
  }
  pass_on(s, n, from);
  return true;
}

void tape_straight(TapeNode **node, uint32_t *out) {
  const TapeNode *n = *node;
  if (n->state != TAPE_OPENED || n->hooked || *out >= n->in_count || !n->in[*out].node) return;
  *node = n->in[*out].node;
  *out = n->in[*out].out;
}

/* ---- the gradient of one node */

/* Result k of n, as a value whose edge is n itself; takes over t. */
static Held result_of(Session *s, TapeNode *n, size_t k, Tensor *t) {
  Held h = {.v = v_tensor(s, t), .t = t};
  if (!dt_float(t->dtype)) return h;
  h.v.u.t->node = n;
  h.v.u.t->out = (uint32_t)k;
  n->rc++;
  return h;
}

static bool own_results(Run *r, TapeNode *n, uint32_t self) {
  Session *s = r->s;
  GErr *e = r->e;
  size_t nout = n->out_count, all = nout;
  RunCtx c = {.mem = &s->mem,
              .interrupt = &s->kernel.stop,
              .pool = native_pool(s, false),
              .env = n->env,
              .effect = effect_run,
              .ud = s};
  if (n->joint) all = tape_joint(n)->forward->output_count;
  Tensor **out = ARENA_ARRAY(r->temp, Tensor *, all + 1);
  if (n->joint ? !native_run(s, &n->joint->forward, tape_joint(n)->forward, "a backward", &c,
                             n->inputs, out, e, r->at)
               : !native_op(s, &c, n->op, n->attrs, (int)n->attr_count, n->inputs, (int)n->in_count,
                            out, (int)nout, e))
    return false;
  value_pool_tensors(s, out, all);
  for (size_t k = 0; k < nout; k++)
    *held(r, (Val){self, (uint32_t)k}) = result_of(s, n, k, tn_ref(out[k]));
  return true;
}

bool tape_gradient(Session *s, Arena *temp, TapeNode *n, const Value *cot, Value *const *slot,
                   GErr *e, Prov *at) {
  size_t nin = n->in_count, nout = n->out_count, k = nin;
  GradAsk ask = {.wants = ARENA_ARRAY(temp, bool, nin + 1),
                 .has = ARENA_ARRAY(temp, bool, nout + 1),
                 .first = ARENA_ARRAY(temp, uint32_t, nin + 1),
                 .so_far = ARENA_ARRAY(temp, bool, nin + 1)};
  for (size_t i = 0; i < nin; i++) {
    uint32_t first = 0;
    while (first < i && (!slot[i] || slot[first] != slot[i])) first++;
    ask.first[i] = first;
    ask.wants[i] = slot[i] != NULL;
    ask.so_far[i] = slot[i] && first == i && slot[i]->tag != V_UNIT;
  }
  for (size_t i = 0; i < nout; i++) ask.has[i] = cot[i].tag != V_UNIT;
  OpGrad *o = op_grad(s, temp, n, &ask);
  const Graph *g = o->g;
  if (!g) return true;
  Run r = run_for(s, temp, n, g, e, at);
  r.anomaly = true;
  r.live = live_nodes(temp, g, g->output_count);
  for (size_t i = 0; i < nin; i++) *held(&r, g->inputs[i]) = input(s, n, i);
  for (size_t i = 0; i < nout; i++)
    if (ask.has[i]) *held(&r, g->inputs[k++]) = (Held){cot[i], cot[i].u.t->t};
  for (size_t i = 0; i < nin; i++)
    if (ask.so_far[i]) *held(&r, g->inputs[k++]) = (Held){*slot[i], slot[i]->u.t->t};
  for (size_t i = 0; n->own && i < nout; i++)
    *held(&r, g->inputs[k++]) = result_of(s, n, i, tn_ref(n->own[i]));
  bool one = !n->joint || n->joint->spec.kind == JOINT_REGION;
  if (one && r.live[o->self] && !own_results(&r, n, o->self)) return false;
  if (!run(&r)) return false;
  for (size_t i = 0; i < nin; i++)
    if (o->output[i] >= 0) value_set(slot[i], held(&r, g->outputs[o->output[i]])->v);
  return true;
}
