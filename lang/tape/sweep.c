/* `grad` at the top level: the sweep over the tape.
 *
 * In: a loss on the tape and the values to differentiate by. Out: gradients.
 * Idea: a reverse sweep in the order of sequence numbers. The gradient of each node is a graph (of
 * the one operation, or the backward half of the call's joint graph), or all of them are one graph
 * (capture.c). Contributions arrive last use first and are added pairwise, as in code (rule 74).
 * With `record` the operations of the gradient go on the tape too (record_grad.c). The pool holds
 * all references of a sweep, so an error frees them.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/autograd.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "lang/compile/compile.h"
#include "lang/compile/eager_kernels.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/eval/bindings.h"
#include "lang/eval/last_use.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/tape/callback.h"
#include "lang/tape/capture.h"
#include "lang/tape/gradient.h"
#include "lang/tape/hook.h"
#include "lang/tape/tape_impl.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

/* A node on the way, in the order of the sweep. */
typedef struct Visit {
  TapeNode *node; /* NULL: passed */
  Value *cot;     /* cotangent per result, unit = none yet; NULL = none at all */
  uint32_t outer; /* its slot before: a hook may take a gradient of the same tape */
  uint32_t dead;  /* references of values that nothing reads again */
  bool active;    /* leads to something that the gradient is taken by */
  bool target;    /* a result of it is asked for */
} Visit;

/* A param that the gradient is taken by. */
typedef struct LeafGrad {
  Param *param;
  Value grad;
  uint32_t outer;
  uint32_t uses; /* by nodes not reached yet: at 0 the gradient is complete */
  bool dropped;  /* by a hook */
} LeafGrad;

typedef struct Sweep {
  Session *s;
  Span at; /* of the `grad` */
  Visit *visits;
  size_t count, cap;
  LeafGrad *leaves;
  size_t leaf_count, leaf_cap;
  uint32_t *complete; /* leaves whose gradient the present node completed */
  size_t complete_count, complete_cap;
  Arena arena; /* lists of the sweep */
  Arena temp;  /* of one node */
  struct {
    TapeNode *node;
    uint32_t out;
    Value kept;
  } * targets;
  size_t target_count, target_cap;
  bool record; /* the gradients go on the tape themselves */
  bool walks;  /* a node reads other tensors than edges lead to: the sweep is not captured */
} Sweep;

static Visit *visit_of(const Sweep *w, const TapeNode *n) {
  uint32_t i = n->slot;
  return i && i <= w->count && w->visits[i - 1].node == n ? &w->visits[i - 1] : NULL;
}

static LeafGrad *leaf_of(const Sweep *w, const Param *p) {
  uint32_t i = p->slot;
  return i && i <= w->leaf_count && w->leaves[i - 1].param == p ? &w->leaves[i - 1] : NULL;
}

/* The sweep is done with the node. */
static void pass(Sweep *w, Visit *v) {
  Session *s = w->s;
  TapeNode *n = v->node;
  if (!n) return;
  if (v->cot) {
    for (size_t k = 0; k < n->out_count; k++) value_release(v->cot[k]);
    mem_free(&s->mem, v->cot, n->out_count * sizeof *v->cot);
  }
  n->slot = v->outer;
  *v = (Visit){0};
  tape_release(s, n);
}

static void sweep_free(void *p) {
  Sweep *w = p;
  Session *s = w->s;
  for (size_t i = 0; i < w->count; i++) pass(w, &w->visits[i]);
  for (size_t i = 0; i < w->leaf_count; i++) {
    w->leaves[i].param->slot = w->leaves[i].outer;
    value_release(w->leaves[i].grad);
    obj_release(&w->leaves[i].param->o);
  }
  for (size_t i = 0; i < w->target_count; i++) value_release(w->targets[i].kept);
  arena_free(&w->temp);
  arena_free(&w->arena);
  mem_free(&s->mem, w, sizeof *w);
}

static int by_seq_down(const void *a, const void *b) {
  uint64_t x = ((const Visit *)a)->node->seq, y = ((const Visit *)b)->node->seq;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Reports that the backward of n failed, at the place of the forward. */
static _Noreturn void backward_error(Sweep *w, const TapeNode *n, const GErr *e, Span at) {
  Session *s = w->s;
  const char *f = n->joint && n->joint->spec.f->name ? n->joint->spec.f->name : "function literal";
  Diag *d = fail_run(s, e, at, f, n->span, n->joint ? n->joint->spec.call : n->span, NULL);
  dg_label(&s->diags, d, w->at, "in the gradient that is taken here");
  fail_raise(s);
}

static Tensor *add(Sweep *w, Tensor *a, Tensor *b, const TapeNode *n) {
  Session *s = w->s;
  Tensor *in[2] = {a, b}, *out = NULL;
  GErr e = {.code = ERR_BUG};
  RunCtx c = {.mem = &s->mem,
              .interrupt = &s->kernel.stop,
              .pool = native_pool(s, false),
              .anomaly = s->modes.anomaly || n->modes.anomaly};
  if (!native_op(s, &c, OP_ADD, NULL, 0, in, 2, &out, 1, &e)) backward_error(w, n, &e, n->span);
  return out;
}

/* *slot += g. Earlier contributions (from later uses) stand on the left. */
static void accumulate(Sweep *w, Value *slot, Value g, const TapeNode *n) {
  Session *s = w->s;
  Span at = n->span;
  if (slot->tag != V_UNIT)
    g = w->record ? op_broadcast_binary(s, OP_ADD, *slot, g, at, at, at)
                  : v_tensor(s, add(w, op_tensor_of(s, *slot, at), op_tensor_of(s, g, at), n));
  value_set(slot, g);
}

/* A tensor of elements x, held as one number. */
static Tensor *filled_like(Session *s, const TapeMeta *m, double x) {
  Tensor *z = tn_scalar_f64(&s->mem, m->dev, m->dtype, x);
  if (!z) mem_throw(&s->mem, MEM_ERR_NOMEM);
  int64_t stride[CKL_MAX_RANK] = {0};
  Tensor *v = tn_view(&s->mem, z, m->rank, m->dim, stride, 0);
  tn_unref(z);
  if (!v) mem_throw(&s->mem, MEM_ERR_NOMEM);
  return v;
}

static Tensor *zeros_like(Session *s, const TapeMeta *m) {
  return filled_like(s, m, 0.0);
}

static Value *cot_of(Sweep *w, const Edge *e);

/* The sum of the gradients of the value to which the edge leads. */
static Value *slot_of(Sweep *w, const Edge *e) {
  return e->param ? &leaf_of(w, e->param)->grad : cot_of(w, e);
}

/* A tensor of -0: added to any number it gives that number. */
static Tensor *nothing_like(Session *s, const Tensor *t) {
  TapeMeta m;
  tape_meta(&m, t);
  return filled_like(s, &m, -0.0);
}

bool tape_carries(const TapeNode *n, size_t i, const bool *wants) {
  if (n->state == TAPE_OPENED || !n->joint || !n->joint->carries || !n->joint->carries[i] ||
      !wants[i])
    return false;
  for (size_t k = i + 1; k < n->in_count; k++)
    if (n->joint->carries[k] && wants[k] && n->in[k].node == n->in[i].node &&
        n->in[k].param == n->in[i].param && n->in[k].out == n->in[i].out)
      return false;
  return true;
}

/* The sum so far of input i to which n's backward adds; NULL if there is none. */
static const Value *carried(Sweep *w, const TapeNode *n, size_t i, const bool *wants) {
  const Value *sum = tape_carries(n, i, wants) ? slot_of(w, &n->in[i]) : NULL;
  return sum && sum->tag != V_UNIT ? sum : NULL;
}

/* Runs n's backward; gradients of the wanted inputs go to dx (new references, NULL = none). If the
 * node `dies` and is a call, the run takes over the tensors that it saved. */
static void node_backward(Session *s, Sweep *w, TapeNode *n, const Value *cot, bool *wants,
                          bool dies, Tensor **dx) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {.span = n->span};
  RunCtx ctx = {.mem = &s->mem,
                .interrupt = &s->kernel.stop,
                .pool = native_pool(s, false),
                .env = n->env,
                .anomaly = s->modes.anomaly};
  size_t nin = n->in_count;
  if (n->joint) {
    ctx.effect = effect_run;
    ctx.ud = s;
    const Joint *j = tape_joint(n);
    if (n->joint->spec.hosts) {
      ctx.effect = host_effect;
      ctx.ud = host_run(s, n->joint->spec.hosts, n->refs, w->at);
    }
    size_t ni = j->backward->input_count, no = j->backward->output_count, k = 0;
    Tensor **in = ARENA_ARRAY(&w->temp, Tensor *, ni + 1),
           **out = ARENA_ARRAY(&w->temp, Tensor *, no + 1);
    for (int i = 0; i < j->saved_count; i++) in[k++] = n->saved[i];
    for (size_t i = 0; i < n->out_count; i++) {
      if (!n->joint->spec.cot[i]) continue;
      in[k] = cot[i].tag ? cot[i].u.t->t : zeros_like(s, &n->out[i]);
      if (!cot[i].tag) mem_pool_add(&s->mem, in[k], (void (*)(void *))tn_unref);
      k++;
    }
    for (size_t i = 0; n->joint->carries && i < nin; i++) {
      if (!n->joint->carries[i]) continue;
      const Value *sum = carried(w, n, i, wants);
      if (!sum) {
        mem_pool_add(&s->mem, in[k] = nothing_like(s, n->inputs[i]), (void (*)(void *))tn_unref);
        k++;
      } else {
        in[k++] = op_tensor_of(s, *sum, n->span);
      }
    }
    if (dies) {
      ctx.owned = tn_refs(&s->mem, ni, 0);
      for (int i = 0; i < j->saved_count; i++) ctx.owned[i] = tn_ref(in[i]);
      tape_strip(n);
    }
    if (!native_run(s, &n->joint->backward, j->backward, "a backward", &ctx, in, out, &e, &at))
      backward_error(w, n, &e, at.span);
    size_t o = 0, flag = 0;
    for (size_t i = 0; i < nin; i++) flag += j->gives_grad[i];
    for (size_t i = 0; i < nin; i++) {
      if (!j->gives_grad[i]) continue;
      bool there = !j->maybe[i] || tn_get_i64(out[flag], 0) || carried(w, n, i, wants);
      if (j->maybe[i]) tn_unref(out[flag++]);
      if (wants[i] && there)
        dx[i] = out[o];
      else
        tn_unref(out[o]);
      o++;
    }
    return;
  }
  bool has[OP_RESULTS];
  for (size_t i = 0; i < n->out_count; i++) has[i] = cot[i].tag != V_UNIT;
  GradAsk ask = {.wants = wants, .has = has};
  OpGrad *o = op_grad(s, &w->temp, n, &ask);
  if (!o->g) return;
  Tensor *in[20], **inp = in;
  if (nin + 2 * OP_RESULTS > 20) inp = ARENA_ARRAY(&w->temp, Tensor *, nin + 2 * OP_RESULTS);
  for (size_t i = 0; i < nin; i++) inp[i] = n->inputs[i];
  size_t k = nin;
  for (size_t i = 0; i < n->out_count; i++)
    if (has[i]) inp[k++] = cot[i].u.t->t;
  for (size_t i = 0; n->own && i < n->out_count; i++) inp[k++] = n->own[i];
  Tensor **out = ARENA_ARRAY(&w->temp, Tensor *, o->g->output_count + 1);
  if (!native_run(s, &o->native, o->g, op_info[n->op].text, &ctx, inp, out, &e, &at))
    backward_error(w, n, &e, n->span);
  for (size_t i = 0; i < nin; i++)
    if (o->output[i] >= 0) dx[i] = out[o->output[i]];
}

/* Runs n's backward on the tape (rule 77) and adds the gradients to the slots. */
static void node_recorded(Sweep *w, TapeNode *n, const Value *cot, const bool *wants) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {.span = n->span};
  Value **slot = ARENA_ARRAY(&w->temp, Value *, n->in_count + 1);
  for (size_t i = 0; i < n->in_count; i++)
    if (wants[i]) slot[i] = slot_of(w, &n->in[i]);
  if (!tape_gradient(w->s, &w->temp, n, cot, slot, &e, &at)) backward_error(w, n, &e, at.span);
}

static void node_gradients(Sweep *w, TapeNode *n, const Value *cot, bool *wants, bool dies,
                           Value *dx) {
  if (n->hollow) return;
  if (n->state == TAPE_OPENED) {
    for (size_t i = 0; i < n->in_count; i++)
      if (wants[i]) dx[i] = cot[i];
    return;
  }
  if (w->record) {
    node_recorded(w, n, cot, wants);
    return;
  }
  if (n->joint) {
    bool *has = ARENA_ARRAY(&w->temp, bool, n->out_count + 1);
    for (size_t i = 0; i < n->out_count; i++) has[i] = cot[i].tag != V_UNIT;
    tape_narrow(w->s, n, has);
  }
  tape_need(w->s, n);
  Tensor **t = ARENA_ARRAY(&w->temp, Tensor *, n->in_count + 1);
  node_backward(w->s, w, n, cot, wants, dies, t);
  value_pool_tensors(w->s, t, n->in_count);
  for (size_t i = 0; i < n->in_count; i++)
    if (t[i]) dx[i] = v_tensor(w->s, tn_ref(t[i]));
}

/* Rule 87: modes are explicit; training without `wrap <train>` is most often a slip. */
void tape_warn_eval_dropout(Session *s, Span at) {
  fail_warn_once(
      s, ERR_DROPOUT_EVAL, at,
      "a gradient goes through a dropout that does nothing: the call stands outside `wrap "
      "<train>`");
}

static void keep_node(Sweep *w, TapeNode *n) {
  if (visit_of(w, n)) return;
  w->walks |= n->own != NULL;
  Visit v = {.node = n, .outer = n->slot};
  VEC_PUSH(&w->arena, w->visits, w->count, w->cap, v);
  n->rc++;
  n->slot = (uint32_t)w->count;
}

/* Opens a call, unless another sweep is passing through it. */
static void open_call(Sweep *w, TapeNode *n) {
  Session *s = w->s;
  if (n->slot || n->state == TAPE_CONSUMED) return;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {.span = n->span};
  size_t mark = mem_pool_mark(&s->mem);
  if (n->joint && n->joint->spec.hosts) {
    Diag *d = fail_report(s, ERR_NOT_YET, n->span,
                          "not yet: a recorded gradient through a call that has hooks inside");
    dg_label(&s->diags, d, w->at, "that is taken here");
    fail_raise(s);
  }
  if (!tape_open(s, &w->temp, n, &e, &at)) backward_error(w, n, &e, at.span);
  mem_pool_drain(&s->mem, mark);
}

/* Makes an edge or a value lead past a call that was opened. */
static void settle(Session *s, TapeNode **node, uint32_t *out) {
  TapeNode *n = *node;
  tape_straight(node, out);
  if (*node == n) return;
  (*node)->rc++;
  tape_release(s, n);
}

/* Adds to the sweep the node to which an edge or a value leads. */
static void reach(Sweep *w, TapeNode **node, uint32_t *out) {
  if (w->record) open_call(w, *node);
  settle(w->s, node, out);
  keep_node(w, *node);
}

static bool is_target(const Sweep *w, const Edge *e) {
  if (!visit_of(w, e->node)->target) return false;
  for (size_t t = 0; t < w->target_count; t++)
    if (w->targets[t].node == e->node && w->targets[t].out == e->out) return true;
  return false;
}

typedef struct WrtLeaf {
  Sweep *w;
  Span at;
} WrtLeaf;

/* What a gradient by the leaf v is by: what stands for a param inside `with_params` (rule 61). */
static Value taken_by(Value v) {
  Value x = tape_itself(v);
  return x.tag == V_PARAM && x.u.p->overlay.tag ? tape_itself(x.u.p->overlay) : x;
}

static Value add_target(Session *s, void *ud, size_t n, Value *v, const char *path) {
  WrtLeaf *l = ud;
  Sweep *w = l->w;
  (void)n;
  Value x = taken_by(v[0]);
  if (tree_undifferentiated(x, path)) return x;
  if (x.tag == V_PARAM) {
    if (!leaf_of(w, x.u.p)) {
      LeafGrad g = {.param = x.u.p, .grad = v_unit(), .outer = x.u.p->slot};
      VEC_PUSH(&w->arena, w->leaves, w->leaf_count, w->leaf_cap, g);
      x.u.p->o.rc++;
      x.u.p->slot = (uint32_t)w->leaf_count;
    }
    return x;
  }
  if (x.tag == V_TENSOR) {
    if (!dt_float(x.u.t->t->dtype))
      fail_at(s, ERR_GRAD_WRT, l->at, "a gradient by %s does not exist: floats only",
              value_type_text(s, x));
    if (!x.u.t->node)
      fail_help(s, ERR_NOT_TRACKED, l->at,
                "let x = track(x) makes a value that gradients can be taken by, before the loss is "
                "computed",
                "this value was not tracked when the loss was computed");
    typedef __typeof__(*w->targets) Target;
    Target t = {x.u.t->node, x.u.t->out, v_unit()};
    VEC_PUSH(&w->arena, w->targets, w->target_count, w->target_cap, t);
    return x;
  }
  fail_at(s, ERR_GRAD_WRT, l->at, "a gradient by %s does not exist", value_type_text(s, x));
}

static Value take_grad(Session *s, void *ud, size_t n, Value *v, const char *path) {
  WrtLeaf *l = ud;
  Sweep *w = l->w;
  (void)n;
  Value x = taken_by(v[0]);
  if (tree_undifferentiated(x, path)) return x;
  Value g = v_unit();
  TapeMeta m;
  if (x.tag == V_PARAM) {
    if (x.u.p->frozen && *path) return v_none();
    const LeafGrad *leaf = leaf_of(w, x.u.p);
    if (leaf->dropped) return v_none();
    g = leaf->grad;
    tape_meta(&m, x.u.p->t);
  } else {
    TapeNode *node = x.u.t->node;
    uint32_t out = x.u.t->out;
    tape_straight(&node, &out);
    for (size_t i = 0; i < w->target_count; i++)
      if (w->targets[i].node == node && w->targets[i].out == out) g = w->targets[i].kept;
    tape_meta(&m, x.u.t->t);
  }
  return g.tag ? value_pool(s, g) : v_tensor(s, zeros_like(s, &m));
}

/* ---- taking over the tape (rule 76): nodes that are held only by values that nothing reads again
 * die on the way */

/* Counts the references to nodes of the sweep that v alone has. */
static void count_dead(const Sweep *w, Value v, int64_t others) {
  if (!v_counted(v) || v.u.o->rc > 1 + others) return;
  if (v.tag == V_TENSOR && v.u.t->node) settle(w->s, &v.u.t->node, &v.u.t->out);
  Visit *on = v.tag == V_TENSOR && v.u.t->node ? visit_of(w, v.u.t->node) : NULL;
  if (on) on->dead++;
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) count_dead(w, items[i], 0);
}

/* References from the pool: a value without a name has no others. */
static int64_t pooled(const Session *s, const Obj *o) {
  int64_t n = 0;
  for (size_t i = s->mem.pool_count; i-- > 0;) n += s->mem.pool[i].obj == (const void *)o;
  return n;
}

static void find_dead(const Sweep *w, const Take *take, Value loss) {
  Session *s = w->s;
  Frame *f = s->frame;
  if (!take->loss || !f) return;
  bool named = take->loss->kind == N_NAME;
  const Local *own = named ? local_find(s, take->loss->name) : NULL;
  for (size_t k = f->base; k < s->local_count; k++) {
    Value v = s->locals[k].v;
    if (v.tag == V_TENSOR && v.u.t->node) settle(s, &v.u.t->node, &v.u.t->out);
    size_t n;
    bool holds =
        v.tag == V_TENSOR ? v.u.t->node && visit_of(w, v.u.t->node) : value_items(v, &n) != NULL;
    bool asks = &s->locals[k] == own; /* reading the name put its value on the pool */
    int64_t others = holds && asks && own->is_var ? pooled(s, v.u.o) : 0;
    if (holds && v.u.o->rc == 1 + others && local_dead(s, k, asks)) count_dead(w, v, others);
  }
  int64_t pool = loss.tag == V_TENSOR ? pooled(s, loss.u.o) : 0;
  if (pool && loss.u.o->rc == pool) count_dead(w, loss, pool - 1);
}

/* Nodes that the sweep alone holds, and nodes that die with them: give_up will use them up. */
static bool *find_dying(Sweep *w, const TapeNode *last) {
  bool *dies = ARENA_ARRAY(&w->arena, bool, w->count + 1);
  int64_t *held = ARENA_ARRAY(&w->arena, int64_t, w->count + 1);
  for (size_t i = 0; i < w->count; i++)
    held[i] = w->visits[i].node->rc - 1 - (int64_t)w->visits[i].dead;
  for (size_t i = 0; i < w->count; i++) {
    const TapeNode *n = w->visits[i].node;
    dies[i] = held[i] == 0 || n == last;
    for (size_t k = 0; dies[i] && k < n->in_count; k++)
      if (n->in[k].node) held[n->in[k].node->slot - 1]--;
  }
  return dies;
}

/* A longer tape is walked: its graph would cost more than it saves, in memory too. */
enum { MOST_CAPTURED = 20000 };

/* Makes the calls ready. Finds which of their results get a cotangent before any is computed; nodes
 * that get none lose their mark. */
static void ready_calls(Sweep *w, uint32_t out) {
  Session *s = w->s;
  size_t *first = ARENA_ARRAY(&w->arena, size_t, w->count + 1), all = 0;
  bool calls = false;
  for (size_t i = 0; i < w->count; i++) {
    first[i] = all;
    all += w->visits[i].node->out_count;
    calls |= w->visits[i].node->joint != NULL;
  }
  if (!calls) return;
  bool *has = ARENA_ARRAY(&w->arena, bool, all + 1);
  has[out] = true;
  for (size_t i = 0; i < w->count; i++) {
    TapeNode *n = w->visits[i].node;
    bool any = false, *mine = has + first[i];
    for (size_t k = 0; k < n->out_count; k++) any |= mine[k];
    if (!any || n->hollow) n->mark = 1;
    if (n->mark != 2) continue;
    if (n->joint && n->state != TAPE_OPENED) {
      tape_narrow(s, n, mine);
      tape_need(s, n);
    }
    for (size_t k = 0; k < n->in_count; k++) {
      const Edge *e = &n->in[k];
      bool gives = n->state == TAPE_OPENED ? mine[k]
                   : n->joint              ? tape_joint(n)->gives_grad[k]
                                           : ad_passes(n->op);
      if (gives && e->node && (visit_of(w, e->node)->active || is_target(w, e)))
        has[first[e->node->slot - 1] + e->out] = true;
    }
  }
}

/* Runs the whole backward as one graph; false if it has no such form. */
static bool run_captured(Sweep *w, TapeNode *root, uint32_t out, Value cotangent, bool last) {
  Session *s = w->s;
  Capture c = {.s = s,
               .at = w->at,
               .count = w->count,
               .root = root,
               .out = out,
               .cotangent = op_tensor_of(s, cotangent, w->at),
               .param_count = w->leaf_count,
               .target_count = w->target_count};
  c.nodes = ARENA_ARRAY(&w->arena, TapeNode *, w->count + 1);
  c.dies = find_dying(w, last ? root : NULL);
  c.params = ARENA_ARRAY(&w->arena, Param *, w->leaf_count + 1);
  c.param_grad = ARENA_ARRAY(&w->arena, Tensor *, w->leaf_count + 1);
  c.targets = ARENA_ARRAY(&w->arena, CaptureTarget, w->target_count + 1);
  for (size_t i = 0; i < w->count; i++) {
    c.nodes[i] = w->visits[i].node;
    c.nodes[i]->mark = w->visits[i].active ? 2 : 1;
  }
  ready_calls(w, out);
  c.slot = ARENA_ARRAY(&w->arena, Value *, w->leaf_count + 1);
  c.dropped = ARENA_ARRAY(&w->arena, bool, w->leaf_count + 1);
  for (size_t i = 0; i < w->leaf_count; i++) {
    c.params[i] = w->leaves[i].param;
    c.slot[i] = &w->leaves[i].grad;
  }
  for (size_t i = 0; i < w->target_count; i++)
    c.targets[i] = (CaptureTarget){w->targets[i].node, w->targets[i].out, NULL};
  GErr e;
  Span at = w->at;
  Captured r = tape_capture(&c, &e, &at);
  if (r == CAPTURED_FAILED) backward_error(w, c.failed, &e, at);
  if (r == CAPTURED_NOT) return false;
  for (size_t i = 0; i < w->count; i++) {
    const JointRef *j = c.nodes[i]->joint;
    if (j && c.nodes[i]->mark == 2 && j->spec.eval_dropout.file)
      tape_warn_eval_dropout(s, j->spec.eval_dropout);
  }
  for (size_t i = 0; i < w->leaf_count; i++) {
    w->leaves[i].dropped = c.dropped[i];
    if (c.param_grad[i]) value_set(&w->leaves[i].grad, v_tensor(s, tn_ref(c.param_grad[i])));
  }
  for (size_t i = 0; i < w->target_count; i++)
    if (c.targets[i].grad) value_set(&w->targets[i].kept, v_tensor(s, tn_ref(c.targets[i].grad)));
  return true;
}

static _Noreturn void consumed_error(Sweep *w, const Take *take) {
  fail_help(w->s, ERR_GRAD_TAKEN, take->loss ? take->loss->span : w->at,
            "leave `last = true` out of the earlier `grad`",
            "an earlier `grad` with `last = true` has used up what this loss was made of");
}

/* Lists all nodes on which the loss depends, users before their operands, and marks those that lead
 * to a target. */
static void plan_sweep(Sweep *w, const Take *take, Value loss) {
  reach(w, &loss.u.t->node, &loss.u.t->out);
  for (size_t i = 0; i < w->count; i++) {
    TapeNode *n = w->visits[i].node;
    if (n->state == TAPE_CONSUMED) consumed_error(w, take);
    for (size_t k = 0; k < n->in_count; k++)
      if (n->in[k].node) reach(w, &n->in[k].node, &n->in[k].out);
  }
  for (size_t t = 0; t < w->target_count; t++)
    tape_straight(&w->targets[t].node, &w->targets[t].out);
  find_dead(w, take, loss);
  bool sorted = true; /* a chain is found in order */
  for (size_t i = 1; i < w->count && sorted; i++)
    sorted = by_seq_down(&w->visits[i - 1], &w->visits[i]) < 0;
  if (!sorted) qsort(w->visits, w->count, sizeof *w->visits, by_seq_down);
  for (size_t i = 0; i < w->count; i++) w->visits[i].node->slot = (uint32_t)i + 1;
  for (size_t t = 0; t < w->target_count; t++) {
    Visit *v = visit_of(w, w->targets[t].node);
    if (v) v->target = true;
  }
  for (size_t i = w->count; i-- > 0;) { /* inputs before their users */
    Visit *v = &w->visits[i];
    for (size_t k = 0; k < v->node->in_count; k++) {
      const Edge *e = &v->node->in[k];
      LeafGrad *leaf = e->param ? leaf_of(w, e->param) : NULL;
      if (leaf) leaf->uses++;
      v->active |= leaf || (e->node && (visit_of(w, e->node)->active || is_target(w, e)));
    }
  }
}

/* An error if the loss uses what a block of script made of a value by which the gradient is taken,
 * and which it gave, too: on the tape the block is one node. */
static void made_beside(Sweep *w, const TapeNode *n, uint32_t out, uint32_t used) {
  Session *s = w->s;
  const Graph *f = n->joint->spec.f;
  if (used == out) return;
  bool *live = ARENA_ARRAY(&w->arena, bool, f->type_count + 1);
  live[ad_slot(f, f->outputs[used])] = true;
  ad_mark_back(&w->arena, f, live, NULL);
  if (!live[ad_slot(f, f->outputs[out])]) return;
  Diag *d =
      fail_report(s, ERR_NOT_YET, w->at,
                  "not yet: a gradient by what a `checkpoint` block gave, of something that it "
                  "made of that inside");
  dg_label(&s->diags, d, n->span, "the block");
  dg_help(&s->diags, d,
          "compute that after it, of the value; or take the gradient where both are made");
  fail_raise(s);
}

static void check_blocks(Sweep *w, Value loss) {
  for (size_t t = 0; t < w->target_count; t++) {
    const TapeNode *n = w->targets[t].node;
    if (!n->joint || n->joint->spec.kind != JOINT_BLOCK || !visit_of(w, n)) continue;
    if (loss.u.t->node == n) made_beside(w, n, w->targets[t].out, loss.u.t->out);
    for (size_t i = 0; i < w->count; i++)
      for (size_t k = 0; k < w->visits[i].node->in_count; k++) {
        const Edge *e = &w->visits[i].node->in[k];
        if (e->node == n) made_beside(w, n, w->targets[t].out, e->out);
      }
  }
}

static HookRun hook_run(const Sweep *w, Modes modes, Param *p) {
  return (HookRun){.grad = w->at, .modes = modes, .record = w->record, .param = p};
}

/* The gradient of a param is complete: its hooks see it, and one of after_grad may drop it. */
static void finish_leaf(Sweep *w, LeafGrad *leaf, Modes modes) {
  Session *s = w->s;
  Param *p = leaf->param;
  if (!p->hooked || leaf->grad.tag == V_UNIT) return;
  size_t mark = mem_pool_mark(&s->mem);
  HookRun r = hook_run(w, modes, p);
  value_set(&leaf->grad, hooks_gradient(s, (HookKey){HOOK_PARAM, p->id, 0}, &r, leaf->grad, NULL));
  mem_pool_drain(&s->mem, mark);
  Value g = hooks_gradient(s, (HookKey){HOOK_AFTER_GRAD, p->id, 0}, &r, leaf->grad, NULL);
  leaf->dropped = g.tag == V_NONE;
  value_set(&leaf->grad, leaf->dropped ? v_unit() : g);
  mem_pool_drain(&s->mem, mark);
}

/* The gradients of n's results are complete: their hooks see them, those of the last one first. */
static void finish_results(Sweep *w, Visit *v) {
  Session *s = w->s;
  TapeNode *n = v->node;
  HookRun r = hook_run(w, n->modes, NULL);
  for (size_t k = n->hooked ? n->out_count : 0; k-- > 0;) {
    if (v->cot[k].tag == V_UNIT) continue;
    size_t mark = mem_pool_mark(&s->mem);
    HookKey key = {HOOK_VALUE, n->seq, (uint32_t)k};
    value_set(&v->cot[k], hooks_gradient(s, key, &r, v->cot[k], NULL));
    mem_pool_drain(&s->mem, mark);
  }
}

static Value *cot_of(Sweep *w, const Edge *e) {
  Visit *v = visit_of(w, e->node);
  if (!v->cot) {
    v->cot = mem_need(&w->s->mem, NULL, 0, e->node->out_count * sizeof *v->cot);
    memset(v->cot, 0, e->node->out_count * sizeof *v->cot);
  }
  return &v->cot[e->out];
}

/* Whether nothing but the sweep holds the node, or the `grad` uses it up: see give_up. */
static bool dying(const Visit *v, bool use_up_now) {
  return v->node->rc == 1 + (int64_t)v->dead || use_up_now;
}

/* Runs the node's backward and adds its results to the gradients of the node's inputs. */
static void contribute(Sweep *w, Visit *v, bool use_up_now) {
  Session *s = w->s;
  TapeNode *n = v->node;
  size_t mark = mem_pool_mark(&s->mem);
  bool *wants = ARENA_ARRAY(&w->temp, bool, n->in_count + 1);
  Value *dx = ARENA_ARRAY(&w->temp, Value, n->in_count + 1);
  for (size_t k = 0; k < n->in_count; k++) {
    const Edge *e = &n->in[k];
    wants[k] = e->param ? leaf_of(w, e->param) != NULL
                        : e->node && (visit_of(w, e->node)->active || is_target(w, e));
  }
  if (n->joint && n->joint->spec.eval_dropout.file)
    tape_warn_eval_dropout(s, n->joint->spec.eval_dropout);
  if (!n->joint && n->op == OP_DEFER) {
    Diag *d = fail_report(s, ERR_GRAD_NONE, n->span, "a deferred function has no gradient");
    dg_label(&s->diags, d, w->at, "that is taken here");
    fail_raise(s);
  }
  node_gradients(w, n, v->cot, wants, dying(v, use_up_now), dx);
  /* last operand first: the order in which a graph meets its uses */
  for (size_t k = n->in_count; k-- > 0;) {
    if (dx[k].tag == V_UNIT) continue;
    const Edge *e = &n->in[k];
    if (!w->record && carried(w, n, k, wants))
      value_set(slot_of(w, e), dx[k]); /* the sum is in it */
    else
      accumulate(w, slot_of(w, e), dx[k], n);
  }
  mem_pool_drain(&s->mem, mark);
}

static void give_up(Sweep *w, Visit *v, bool use_up_now) {
  if (dying(v, use_up_now)) tape_use_up(w->s, v->node);
  pass(w, v);
}

/* One node: hooks of its results, its backward, hooks of the params that it was the first to use.
 * Its tensors are released before the hooks of params run. */
static void step(Sweep *w, Visit *v, const Take *take, bool use_up_now) {
  TapeNode *n = v->node;
  Modes modes = n->modes;
  if (v->cot) finish_results(w, v);
  for (size_t t = 0; v->cot && v->target && t < w->target_count; t++)
    if (w->targets[t].node == n && !w->targets[t].kept.tag)
      value_set(&w->targets[t].kept, v->cot[w->targets[t].out]);
  if (v->cot && v->active && n->state == TAPE_CONSUMED)
    consumed_error(w, take); /* by a hook of its results */
  if (v->cot && v->active) contribute(w, v, use_up_now);
  w->complete_count = 0;
  for (size_t k = 0; k < n->in_count; k++) {
    LeafGrad *leaf = n->in[k].param ? leaf_of(w, n->in[k].param) : NULL;
    if (leaf && !--leaf->uses)
      VEC_PUSH(&w->arena, w->complete, w->complete_count, w->complete_cap,
               (uint32_t)(leaf - w->leaves));
  }
  give_up(w, v, use_up_now);
  for (size_t k = 0; k < w->complete_count; k++) finish_leaf(w, &w->leaves[w->complete[k]], modes);
}

static Value sweep(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                   Span at) {
  Sweep *w = mem_need(&s->mem, NULL, 0, sizeof *w);
  *w = (Sweep){.s = s, .at = at, .record = record};
  arena_init(&w->arena, &s->mem);
  arena_init(&w->temp, &s->mem);
  mem_pool_add(&s->mem, w, sweep_free);
  WrtLeaf leaf = {w, at};
  tree_map(s, 1, &wrt, add_target, &leaf, at);
  bool on_tape = loss.tag == V_TENSOR && loss.u.t->node;
  if (on_tape) plan_sweep(w, &take, loss);
  if (on_tape) check_blocks(w, loss);
  TapeNode *root = on_tape ? loss.u.t->node : NULL;
  if (root && !s->modes.plain_backward && !record && !w->walks && w->count <= MOST_CAPTURED &&
      run_captured(w, root, loss.u.t->out, cotangent, take.last)) {
    for (size_t i = 0; i < w->count; i++) {
      Visit *v = &w->visits[i];
      give_up(w, v, take.last && v->node == root);
    }
  } else if (root) {
    Edge e = {.node = root, .out = loss.u.t->out};
    value_set(cot_of(w, &e), cotangent);
    arena_alloc(&w->temp, 1); /* its first chunk stays */
    ArenaMark start = arena_mark(&w->temp);
    for (size_t i = 0; i < w->count; i++) {
      Visit *v = &w->visits[i];
      fail_if_interrupted(s, v->node->span);
      if (v->node->state == TAPE_CONSUMED) consumed_error(w, &take); /* by a hook */
      step(w, v, &take, take.last && v->node == root);
      arena_rewind(&w->temp, start);
    }
  }
  LeafGrad *itself = loss.tag == V_PARAM ? leaf_of(w, loss.u.p) : NULL;
  if (itself) {
    value_set(&itself->grad, cotangent);
    finish_leaf(w, itself, s->modes);
  }
  Value g = tree_map(s, 1, &wrt, take_grad, &leaf, at);
  HookRun end = hook_run(w, s->modes, NULL);
  hooks_end(s, &end);
  return g;
}

/* The sweep's marks on the tape go when it ends, so that one statement may hold several. */
Value tape_grad(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                Span at) {
  size_t mark = mem_pool_mark(&s->mem);
  fail_running_at(s, at);
  value_pool(s, wrt); /* a hook may assign the variable that held it */
  Value g = sweep(s, loss, cotangent, wrt, record, take, at);
  value_retain(g);
  mem_pool_drain(&s->mem, mark);
  if (v_counted(g)) mem_pool_add(&s->mem, g.u.o, (void (*)(void *))obj_release);
  return g;
}
