/* The eager tape and `grad` at the top level.
 *
 * In: operations and calls as they happen; a loss and what to differentiate by. Out: gradients.
 * Idea: reverse sweep in the order of sequence numbers, each node's gradient a graph (of the one
 * op, or the backward half of the call's joint graph) run by the reference evaluator. Contributions
 * arrive last use first and are added pairwise, as in code (rule 74). No recursion: a chain of
 * 100,000 operations needs no C stack. With `record` each node's backward is itself a recorded
 * call. What a sweep holds hangs on the pool, so an error frees it.
 */
#include <stdlib.h>
#include <string.h>

#include "lang/compile.h"
#include "lang/native.h"
#include "lang/tape.h"

JointRef *joint_new(Session *s) {
  JointRef *j = mem_need(&s->mem, NULL, 0, sizeof *j);
  *j = (JointRef){.rc = 1, .s = s};
  arena_init(&j->arena, &s->mem);
  mem_pool_add(&s->mem, j, (void (*)(void *))joint_release);
  return j;
}

void joint_release(JointRef *j) {
  if (!j || --j->rc > 0) return;
  Session *s = j->s;
  native_free(&s->mem, j->forward);
  native_free(&s->mem, j->backward);
  arena_free(&j->arena);
  mem_free(&s->mem, j, sizeof *j);
}

/* Gives back what n holds; nodes that nothing else holds go to *more. */
static void node_drop(Session *s, TapeNode *n, TapeNode **more) {
  Mem *m = &s->mem;
  for (size_t i = 0; i < n->in_count; i++) {
    if (n->in[i].node && --n->in[i].node->rc == 0) {
      n->in[i].node->next = *more;
      *more = n->in[i].node;
    }
    if (n->in[i].param) obj_release(&n->in[i].param->o);
    tn_unref(n->inputs[i]);
  }
  mem_free(m, n->in, n->in_count * sizeof *n->in);
  mem_free(m, n->inputs, n->in_count * sizeof *n->inputs);
  for (size_t i = 0; i < n->saved_count; i++) tn_unref(n->saved[i]);
  mem_free(m, n->saved, n->saved_count * sizeof *n->saved);
  for (size_t i = 0; i < n->attr_count; i++)
    if (n->attrs[i].kind == AK_INTS || n->attrs[i].kind == AK_DIMS)
      mem_free(m, (void *)(uintptr_t)n->attrs[i].u.ints, n->attrs[i].count * sizeof(int64_t));
  mem_free(m, n->attrs, n->attr_count * sizeof *n->attrs);
  mem_free(m, n->env, n->env_count * sizeof *n->env);
  joint_release(n->joint);
  n->in = NULL;
  n->inputs = n->saved = NULL;
  n->attrs = NULL;
  n->env = NULL;
  n->joint = NULL;
  n->in_count = n->saved_count = n->attr_count = n->env_count = 0;
}

static void node_free(Session *s, TapeNode *n, TapeNode **more) {
  node_drop(s, n, more);
  mem_free(&s->mem, n->out, n->out_count * sizeof *n->out);
  mem_free(&s->mem, n, sizeof *n);
  s->count.tape_live--;
}

static void free_all(Session *s, TapeNode *todo) {
  while (todo) {
    TapeNode *x = todo;
    todo = x->next;
    node_free(s, x, &todo);
  }
}

void tape_release(Session *s, TapeNode *n) {
  if (!n || --n->rc > 0) return;
  n->next = NULL;
  free_all(s, n);
}

/* The node stays for the values that name it, without what it was made of. */
static void use_up(Session *s, TapeNode *n) {
  TapeNode *todo = NULL;
  n->taken = true;
  node_drop(s, n, &todo);
  free_all(s, todo);
}

bool wants_grad(Session *s, Value v) {
  (void)s;
  if (v.tag == V_PARAM) return !v.u.p->frozen && dt_float(v.u.p->t->dtype);
  return v.tag == V_TENSOR && v.u.t->node != NULL;
}

/* A node with its arrays; the caller owns one reference. */
static TapeNode *node_new(Session *s, size_t nin, size_t nout, Span at) {
  Mem *m = &s->mem;
  TapeNode *n = mem_try(m, NULL, 0, sizeof *n);
  if (!n) mem_throw(m, MEM_ERR_NOMEM);
  memset(n, 0, sizeof *n);
  n->rc = 1;
  s->count.tape_live++;
  n->in = nin ? mem_try(m, NULL, 0, nin * sizeof *n->in) : NULL;
  n->inputs = nin ? mem_try(m, NULL, 0, nin * sizeof *n->inputs) : NULL;
  n->out = mem_try(m, NULL, 0, nout * sizeof *n->out);
  if ((nin && (!n->in || !n->inputs)) || !n->out) {
    if (n->in) mem_free(m, n->in, nin * sizeof *n->in);
    if (n->inputs) mem_free(m, n->inputs, nin * sizeof *n->inputs);
    if (n->out) mem_free(m, n->out, nout * sizeof *n->out);
    mem_free(m, n, sizeof *n);
    s->count.tape_live--;
    mem_throw(m, MEM_ERR_NOMEM);
  }
  if (nin) memset(n->in, 0, nin * sizeof *n->in);
  if (nin) memset(n->inputs, 0, nin * sizeof *n->inputs);
  n->in_count = nin;
  n->out_count = nout;
  n->seq = ++s->tape_seq;
  n->span = at;
  n->anomaly = s->modes.anomaly;
  return n;
}

static void set_edge(TapeNode *n, size_t i, Value v) {
  if (v.tag == V_PARAM) {
    n->in[i].param = v.u.p;
    v.u.p->o.rc++;
    n->inputs[i] = tn_ref(v.u.p->t);
  } else if (v.tag == V_TENSOR) {
    n->in[i].node = v.u.t->node;
    n->in[i].out = v.u.t->out;
    if (v.u.t->node) v.u.t->node->rc++;
    n->inputs[i] = tn_ref(v.u.t->t);
  }
}

static void meta_of(TapeMeta *m, const Tensor *t) {
  m->dtype = t->dtype;
  m->dev = t->store->dev;
  m->rank = t->rank;
  memcpy(m->dim, t->dim, sizeof m->dim);
}

static void attach(TapeNode *n, size_t nout, Value *out) {
  for (size_t i = 0; i < nout; i++) {
    meta_of(&n->out[i], out[i].u.t->t);
    if (!dt_float(out[i].u.t->t->dtype)) continue; /* ints and bools cut */
    out[i].u.t->node = n;
    out[i].u.t->out = (uint32_t)i;
    n->rc++;
  }
}

void tape_record(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                 int nout, Value *out, Span at) {
  if (op == OP_STOP) return;
  bool any = false;
  for (int i = 0; i < nout; i++) any |= dt_float(out[i].u.t->t->dtype);
  if (!any) return;
  TapeNode *t = node_new(s, (size_t)n, (size_t)nout, at);
  t->op = op;
  for (int i = 0; i < n; i++) set_edge(t, (size_t)i, v[i]);
  if (nattrs) {
    t->attrs = mem_try(&s->mem, NULL, 0, (size_t)nattrs * sizeof *t->attrs);
    for (int i = 0; t->attrs && i < nattrs; i++) {
      t->attrs[i] = attrs[i];
      if (attrs[i].kind == AK_INTS || attrs[i].kind == AK_DIMS) {
        size_t bytes = attrs[i].count * sizeof(int64_t);
        int64_t *c = bytes ? mem_try(&s->mem, NULL, 0, bytes) : NULL;
        if (bytes && !c) {
          t->attr_count = (size_t)i;
          t->attrs = mem_try(&s->mem, t->attrs, (size_t)nattrs * sizeof *t->attrs,
                             (size_t)(i ? i : 1) * sizeof *t->attrs);
          t->attr_count = (size_t)(i ? i : 1);
          if (!i) t->attrs[0].kind = AK_INT;
          tape_release(s, t);
          mem_throw(&s->mem, MEM_ERR_NOMEM);
        }
        if (bytes) memcpy(c, attrs[i].u.ints, bytes);
        t->attrs[i].u.ints = c;
      }
    }
    if (!t->attrs) {
      tape_release(s, t);
      mem_throw(&s->mem, MEM_ERR_NOMEM);
    }
    t->attr_count = (size_t)nattrs;
  }
  attach(t, (size_t)nout, out);
  tape_release(s, t); /* the results hold it now */
}

void tape_record_call(Session *s, JointRef *j, size_t n, const Value *in, Tensor *const *inputs,
                      size_t nout, Value *out, Tensor **saved, const int64_t *env, size_t env_count,
                      Span at) {
  TapeNode *t = node_new(s, n, nout, at);
  t->joint = j;
  j->rc++;
  for (size_t i = 0; i < n; i++) {
    set_edge(t, i, in[i]);
    Tensor *then = t->inputs[i]; /* a param may have changed since */
    t->inputs[i] = tn_ref(inputs[i]);
    tn_unref(then);
  }
  size_t ns = (size_t)j->joint->saved_count;
  t->saved = mem_try(&s->mem, NULL, 0, (ns ? ns : 1) * sizeof *t->saved);
  t->env = mem_try(&s->mem, NULL, 0, (env_count ? env_count : 1) * sizeof *t->env);
  if (!t->saved || !t->env) {
    if (t->saved) mem_free(&s->mem, t->saved, (ns ? ns : 1) * sizeof *t->saved);
    if (t->env) mem_free(&s->mem, t->env, (env_count ? env_count : 1) * sizeof *t->env);
    t->saved = NULL;
    t->env = NULL;
    tape_release(s, t);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  t->saved_count = ns ? ns : 1;
  t->env_count = env_count ? env_count : 1;
  t->saved[0] = NULL;
  if (env_count) memcpy(t->env, env, env_count * sizeof *env);
  for (size_t i = 0; i < ns; i++) t->saved[i] = tn_ref(saved[i]);
  attach(t, nout, out);
  tape_release(s, t);
}

/* ---- the sweep */

typedef struct Sweep {
  Session *s;
  Span at; /* of the `grad` */
  TapeNode **nodes;
  size_t count, cap;
  Param **params;
  Value *param_grad;
  size_t param_count, param_cap, grad_cap;
  Arena arena; /* lists of the sweep */
  Arena temp;  /* of one node */
  struct {
    TapeNode *node;
    uint32_t out;
    Value kept;
  } * targets;
  size_t target_count, target_cap;
  bool record; /* the gradients go on the tape themselves */
} Sweep;

/* The sweep is done with node number i. */
static void pass(Sweep *w, size_t i) {
  Session *s = w->s;
  TapeNode *n = w->nodes[i];
  if (!n) return;
  w->nodes[i] = NULL;
  if (n->cot) {
    for (size_t k = 0; k < n->out_count; k++) value_release(n->cot[k]);
    mem_free(&s->mem, n->cot, n->out_count * sizeof *n->cot);
    n->cot = NULL;
  }
  n->mark = 0;
  n->dead = 0;
  tape_release(s, n);
}

static void sweep_free(void *p) {
  Sweep *w = p;
  Session *s = w->s;
  for (size_t i = 0; i < w->count; i++) pass(w, i);
  for (size_t i = 0; i < w->param_count; i++) value_release(w->param_grad[i]);
  for (size_t i = 0; i < w->target_count; i++) value_release(w->targets[i].kept);
  arena_free(&w->temp);
  arena_free(&w->arena);
  mem_free(&s->mem, w, sizeof *w);
}

static int by_seq_down(const void *a, const void *b) {
  uint64_t x = (*(TapeNode *const *)a)->seq, y = (*(TapeNode *const *)b)->seq;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* The backward of n failed: told at the place of the forward. */
static _Noreturn void backward_error(Sweep *w, const TapeNode *n, const GErr *e, Span at) {
  Session *s = w->s;
  const char *f = n->joint && n->joint->f->name ? n->joint->f->name : "function literal";
  Diag *d = run_error(s, e, at, f, n->span, n->joint ? n->joint->call : n->span, NULL);
  dg_label(&s->diags, d, w->at, "in the gradient that is taken here");
  raise_(s);
}

static Tensor *add(Sweep *w, Tensor *a, Tensor *b, const TapeNode *n) {
  Session *s = w->s;
  Tensor *in[2] = {a, b}, *out = NULL;
  GErr e = {.code = ERR_BUG};
  RunCtx c = {
      .mem = &s->mem, .interrupt = &s->interrupt, .anomaly = s->modes.anomaly || n->anomaly};
  if (!native_op(s, &c, OP_ADD, NULL, 0, in, 2, &out, 1, &e))
    backward_error(w, n, &e, n->span);
  return out;
}

/* *slot += g. Earlier contributions (from later uses) stand on the left. */
static void accumulate(Sweep *w, Value *slot, Value g, const TapeNode *n) {
  Session *s = w->s;
  Span at = n->span;
  if (slot->tag != V_UNIT)
    g = w->record ? op_broadcast_binary(s, OP_ADD, *slot, g, at)
                  : tensor_value(s, add(w, tensor_of(s, *slot, at), tensor_of(s, g, at), n));
  value_set(slot, g);
}

static Tensor *zeros_like(Session *s, const TapeMeta *m) {
  Tensor *z = tn_scalar_f64(&s->mem, m->dev, m->dtype, 0.0);
  if (!z) mem_throw(&s->mem, MEM_ERR_NOMEM);
  int64_t stride[CKL_MAX_RANK] = {0};
  Tensor *v = tn_view(&s->mem, z, m->rank, m->dim, stride, 0);
  tn_unref(z);
  if (!v) mem_throw(&s->mem, MEM_ERR_NOMEM);
  return v;
}

static int param_index(const Sweep *w, const Param *p) {
  for (size_t i = 0; i < w->param_count; i++)
    if (w->params[i] == p) return (int)i;
  return -1;
}

/* Runs n's backward; gradients of the wanted inputs go to dx (new references, NULL = none). */
static void node_backward(Session *s, Sweep *w, TapeNode *n, const bool *wants, Tensor **dx) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {.span = n->span};
  RunCtx ctx = {.mem = &s->mem, .interrupt = &s->interrupt, .env = n->env,
                .anomaly = s->modes.anomaly};
  size_t nin = n->in_count;
  if (n->joint) {
    Joint *j = n->joint->joint;
    size_t ni = j->backward->input_count, no = j->backward->output_count, k = 0;
    Tensor **in = ARENA_ARRAY(&w->temp, Tensor *, ni + 1),
           **out = ARENA_ARRAY(&w->temp, Tensor *, no + 1);
    for (int i = 0; i < j->saved_count; i++) in[k++] = n->saved[i];
    for (size_t i = 0; i < n->out_count && k < ni; i++) {
      if (!dt_float(n->out[i].dtype)) continue;
      in[k] = n->cot[i].tag ? n->cot[i].u.t->t : NULL;
      if (!in[k]) {
        in[k] = zeros_like(s, &n->out[i]);
        mem_pool_add(&s->mem, in[k], (void (*)(void *))tn_unref);
      }
      k++;
    }
    if (!native_run(s, &n->joint->backward, j->backward, "a backward", &ctx, in, out, &e, &at))
      backward_error(w, n, &e, at.span);
    size_t o = 0;
    for (size_t i = 0; i < nin; i++)
      if (j->gives_grad[i]) {
        if (wants[i])
          dx[i] = out[o];
        else
          tn_unref(out[o]);
        o++;
      }
    return;
  }
  bool has[2] = {n->cot[0].tag != V_UNIT, n->out_count > 1 && n->cot[1].tag != V_UNIT};
  OpGrad *o = op_grad(s, &w->temp, n, wants, has, NULL);
  if (!o->g) return;
  Tensor *in[20], **inp = nin + 2 > 20 ? ARENA_ARRAY(&w->temp, Tensor *, nin + 2) : in;
  for (size_t i = 0; i < nin; i++) inp[i] = n->inputs[i];
  size_t k = nin;
  for (size_t i = 0; i < n->out_count; i++)
    if (has[i]) inp[k++] = n->cot[i].u.t->t;
  Tensor **out = ARENA_ARRAY(&w->temp, Tensor *, o->g->output_count + 1);
  if (!native_run(s, &o->native, o->g, op_info[n->op].text, &ctx, inp, out, &e, &at))
    backward_error(w, n, &e, n->span);
  for (size_t i = 0; i < nin; i++)
    if (o->output[i] >= 0) dx[i] = out[o->output[i]];
}

void joint_of_gradient(JointRef *j, const TapeNode *n, const bool *wants, const bool *tracked) {
  Session *s = j->s;
  Graph *g = j->f;
  GErr e = {.code = ERR_BUG, .operand = -1};
  for (size_t i = 0, k = 0; i < n->in_count; i++) {
    if (!wants[i]) continue;
    B b = {.g = g};
    if (val_none(g->outputs[k])) g->outputs[k] = b_zeros(&b, gr_type(g, g->inputs[i]));
    k++;
  }
  bool *cot = ARENA_ARRAY(&j->arena, bool, g->output_count + 1);
  for (size_t k = 0; k < g->output_count; k++) cot[k] = true;
  j->f = gr_dce(&j->arena, g);
  j->joint = ad_joint(&j->arena, j->f, cot, tracked, &e, NULL);
  if (!j->joint) fail_gerr(s, n->span, &e);
}

/* The gradient of a call as a graph of its inputs and cotangents, with a joint graph of its own. */
static JointRef *call_gradient(Session *s, TapeNode *n, const bool *wants, const bool *has,
                               const bool *tracked) {
  JointRef *j = joint_new(s);
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {.span = n->span};
  Graph *g = j->f = gr_clone(&j->arena, n->joint->f);
  size_t no = n->out_count, ny = 0, nw = 0;
  Val *y = ARENA_ARRAY(&j->arena, Val, no + 1), *dy = ARENA_ARRAY(&j->arena, Val, no + 1);
  Val *x = ARENA_ARRAY(&j->arena, Val, n->in_count + 1);
  Val *dx = ARENA_ARRAY(&j->arena, Val, n->in_count + 1);
  for (size_t k = 0; k < no; k++)
    if (has[k]) {
      y[ny] = g->outputs[k];
      dy[ny++] = gr_input(g, gr_type(g, g->outputs[k]));
    }
  g->output_count = 0;
  for (size_t i = 0; i < n->in_count; i++)
    if (wants[i]) x[nw++] = g->inputs[i];
  if (!ad_vjp(g, (int)ny, y, dy, (int)nw, x, dx, &e, &where)) fail_gerr(s, where.span, &e);
  for (size_t i = 0; i < nw; i++) gr_output(g, dx[i]);
  joint_of_gradient(j, n, wants, tracked);
  return j;
}

/* The same gradients, recorded: the node's backward becomes a call on the tape (rule 77). */
static void node_recorded(Sweep *w, TapeNode *n, const bool *wants, Value *dx) {
  Session *s = w->s;
  size_t nin = n->in_count, total = nin;
  bool *has = ARENA_ARRAY(&w->temp, bool, n->out_count + 1);
  for (size_t k = 0; k < n->out_count; k++) total += has[k] = n->cot[k].tag != V_UNIT;
  Value *leaf = ARENA_ARRAY(&w->temp, Value, total + 1);
  Tensor **in = ARENA_ARRAY(&w->temp, Tensor *, total + 1);
  bool *tracked = ARENA_ARRAY(&w->temp, bool, total + 1);
  for (size_t i = 0; i < nin; i++) {
    Edge *e = &n->in[i];
    in[i] = n->inputs[i];
    if (e->param) {
      leaf[i] = (Value){.tag = V_PARAM, .u.p = e->param};
    } else {
      leaf[i] = tensor_value(s, tn_ref(n->inputs[i]));
      leaf[i].u.t->node = e->node;
      leaf[i].u.t->out = e->out;
      if (e->node) e->node->rc++;
    }
    tracked[i] = wants_grad(s, leaf[i]);
  }
  for (size_t k = 0, i = nin; k < n->out_count; k++)
    if (has[k]) {
      leaf[i] = n->cot[k];
      in[i] = n->cot[k].u.t->t;
      tracked[i++] = n->cot[k].u.t->node != NULL;
    }
  JointRef *j = n->joint ? call_gradient(s, n, wants, has, tracked)
                         : op_grad(s, &w->temp, n, wants, has, tracked)->joint;
  size_t nout = (size_t)j->joint->output_count, all = j->joint->forward->output_count;
  Tensor **out = ARENA_ARRAY(&w->temp, Tensor *, all + 1);
  Value *outs = ARENA_ARRAY(&w->temp, Value, nout + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {.span = n->span};
  RunCtx ctx = {.mem = &s->mem, .interrupt = &s->interrupt, .env = n->env,
                .anomaly = s->modes.anomaly};
  if (!native_run(s, &j->forward, j->joint->forward, "a backward", &ctx, in, out, &e, &at))
    backward_error(w, n, &e, at.span);
  for (size_t i = 0; i < all; i++) mem_pool_add(&s->mem, out[i], (void (*)(void *))tn_unref);
  for (size_t i = 0; i < nout; i++) outs[i] = tensor_value(s, tn_ref(out[i]));
  tape_record_call(s, j, total, leaf, in, nout, outs, out + nout, n->env, n->env_count, n->span);
  for (size_t i = 0, k = 0; i < nin; i++)
    if (wants[i]) dx[i] = outs[k++];
}

static void node_gradients(Sweep *w, TapeNode *n, const bool *wants, Value *dx) {
  if (w->record) {
    node_recorded(w, n, wants, dx);
    return;
  }
  Tensor **t = ARENA_ARRAY(&w->temp, Tensor *, n->in_count + 1);
  node_backward(w->s, w, n, wants, t);
  for (size_t i = 0; i < n->in_count; i++)
    if (t[i]) mem_pool_add(&w->s->mem, t[i], (void (*)(void *))tn_unref);
  for (size_t i = 0; i < n->in_count; i++)
    if (t[i]) dx[i] = tensor_value(w->s, tn_ref(t[i]));
}

/* Rule 87: modes are explicit; training without `wrap <train>` is most often a slip. */
void warn_eval_dropout(Session *s, Span at) {
  warn_once(s, ERR_DROPOUT_EVAL, at,
            "a gradient goes through a dropout that does nothing: the call stands outside `wrap "
            "<train>`");
}

static void keep_node(Sweep *w, TapeNode *n) {
  if (n->mark) return;
  VEC_PUSH(&w->arena, w->nodes, w->count, w->cap, n);
  n->rc++;
  n->mark = 1;
}

static bool is_target(const Sweep *w, const Edge *e) {
  for (size_t t = 0; t < w->target_count; t++)
    if (w->targets[t].node == e->node && w->targets[t].out == e->out) return true;
  return false;
}

typedef struct WrtLeaf {
  Sweep *w;
  Span at;
} WrtLeaf;

static Value add_target(Session *s, void *ud, size_t n, Value *v, const char *path) {
  WrtLeaf *l = ud;
  Sweep *w = l->w;
  (void)n;
  (void)path;
  Value x = v[0];
  if (x.tag == V_NONE) return x;
  if (x.tag == V_PARAM) {
    if (param_index(w, x.u.p) < 0) {
      VEC_PUSH(&w->arena, w->params, w->param_count, w->param_cap, x.u.p);
      size_t k = w->param_count - 1;
      VEC_PUSH(&w->arena, w->param_grad, k, w->grad_cap, v_unit());
    }
    return x;
  }
  if (x.tag == V_TENSOR) {
    if (!dt_float(x.u.t->t->dtype))
      fail(s, ERR_GRAD_WRT, l->at, "a gradient by %s does not exist: floats only",
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
  fail(s, ERR_GRAD_WRT, l->at, "a gradient by %s does not exist", value_type_text(s, x));
}

static Value take_grad(Session *s, void *ud, size_t n, Value *v, const char *path) {
  WrtLeaf *l = ud;
  Sweep *w = l->w;
  (void)n;
  (void)path;
  Value x = v[0];
  if (x.tag == V_NONE) return x;
  Value g = v_unit();
  TapeMeta m;
  if (x.tag == V_PARAM) {
    g = w->param_grad[param_index(w, x.u.p)];
    meta_of(&m, x.u.p->t);
  } else {
    for (size_t i = 0; i < w->target_count; i++)
      if (w->targets[i].node == x.u.t->node && w->targets[i].out == x.u.t->out)
        g = w->targets[i].kept;
    meta_of(&m, x.u.t->t);
  }
  return g.tag ? value_pool(s, g) : tensor_value(s, zeros_like(s, &m));
}

/* -- taking over the tape (rule 76): what only values hold that nothing reads again dies on the
 * way */

/* Counts the references to nodes of the sweep that v alone has. */
static void count_dead(Value v, int64_t others) {
  if (!v_counted(v) || v.u.o->rc > 1 + others) return;
  if (v.tag == V_TENSOR && v.u.t->node && v.u.t->node->mark) v.u.t->node->dead++;
  if (v.tag == V_LIST || v.tag == V_TUPLE)
    for (size_t i = 0; i < v.u.list->count; i++) count_dead(v.u.list->items[i], 0);
  if (v.tag == V_RECORD)
    for (size_t i = 0; i < v.u.rec->count; i++) count_dead(v.u.rec->items[i], 0);
}

/* References from the pool: a value without a name has no others. */
static int64_t pooled(const Session *s, const Obj *o) {
  int64_t n = 0;
  for (size_t i = s->mem.pool_count; i-- > 0;) n += s->mem.pool[i].obj == (const void *)o;
  return n;
}

static void find_dead(Session *s, const Take *take, Value loss) {
  Frame *f = s->frame;
  if (!take->loss || !f) return;
  bool named = take->loss->kind == N_NAME;
  const Local *own = named ? local_find(s, take->loss->name) : NULL;
  for (size_t k = f->base; k < s->local_count; k++) {
    Value v = s->locals[k].v;
    bool holds = v.tag == V_TENSOR ? v.u.t->node && v.u.t->node->mark
                                   : v.tag == V_LIST || v.tag == V_TUPLE || v.tag == V_RECORD;
    if (holds && v.u.o->rc == 1 && local_dead(s, k, &s->locals[k] == own)) count_dead(v, 0);
  }
  int64_t pool = loss.tag == V_TENSOR ? pooled(s, loss.u.o) : 0;
  if (pool && loss.u.o->rc == pool) count_dead(loss, pool - 1);
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
  if (loss.tag == V_PARAM) { /* the loss is a leaf itself */
    int i = param_index(w, loss.u.p);
    if (i >= 0) value_set(&w->param_grad[i], cotangent);
    return tree_map(s, 1, &wrt, take_grad, &leaf, at);
  }
  TapeNode *root = loss.tag == V_TENSOR ? loss.u.t->node : NULL;
  if (root) {
    /* everything the loss hangs on */
    keep_node(w, root);
    for (size_t i = 0; i < w->count; i++) {
      TapeNode *n = w->nodes[i];
      if (n->taken)
        fail_help(s, ERR_GRAD_TAKEN, take.loss ? take.loss->span : at,
                  "leave `last = true` out of the earlier `grad`",
                  "an earlier `grad` with `last = true` has used up what this loss was made of");
      for (size_t k = 0; k < n->in_count; k++)
        if (n->in[k].node) keep_node(w, n->in[k].node);
    }
    find_dead(s, &take, loss);
    qsort(w->nodes, w->count, sizeof *w->nodes, by_seq_down);
    /* mark 2: leads to a target; inputs come before their users, so from the end */
    for (size_t i = w->count; i-- > 0;) {
      TapeNode *n = w->nodes[i];
      bool active = false;
      for (size_t k = 0; k < n->in_count && !active; k++) {
        Edge *e = &n->in[k];
        if (e->param && param_index(w, e->param) >= 0) active = true;
        if (e->node && e->node->mark >= 2) active = true;
        if (e->node && is_target(w, e)) active = true;
      }
      if (active) n->mark = 2;
    }
    for (size_t i = 0; i < w->count; i++) {
      TapeNode *n = w->nodes[i];
      n->cot = mem_need(&s->mem, NULL, 0, n->out_count * sizeof *n->cot);
      memset(n->cot, 0, n->out_count * sizeof *n->cot);
    }
    value_set(&root->cot[loss.u.t->out], cotangent);
    arena_alloc(&w->temp, 1); /* its first chunk stays */
    ArenaMark start = arena_mark(&w->temp);
    for (size_t i = 0; i < w->count; i++) {
      TapeNode *n = w->nodes[i];
      poll_interrupt(s, n->span);
      bool any = false;
      for (size_t k = 0; k < n->out_count; k++) any |= n->cot[k].tag != V_UNIT;
      for (size_t t = 0; t < w->target_count; t++)
        if (w->targets[t].node == n && !w->targets[t].kept.tag)
          value_set(&w->targets[t].kept, n->cot[w->targets[t].out]);
      if (any && n->mark == 2) {
        size_t mark = mem_pool_mark(&s->mem);
        bool *wants = ARENA_ARRAY(&w->temp, bool, n->in_count + 1);
        Value *dx = ARENA_ARRAY(&w->temp, Value, n->in_count + 1);
        for (size_t k = 0; k < n->in_count; k++) {
          Edge *e = &n->in[k];
          wants[k] = e->param ? param_index(w, e->param) >= 0
                              : e->node != NULL && (e->node->mark == 2 || is_target(w, e));
        }
        if (n->joint && n->joint->eval_dropout.file) warn_eval_dropout(s, n->joint->eval_dropout);
        node_gradients(w, n, wants, dx);
        /* last operand first: the order in which a graph meets its uses */
        for (size_t k = n->in_count; k-- > 0;) {
          if (dx[k].tag == V_UNIT) continue;
          Edge *e = &n->in[k];
          if (e->param)
            accumulate(w, &w->param_grad[param_index(w, e->param)], dx[k], n);
          else
            accumulate(w, &e->node->cot[e->out], dx[k], n);
        }
        mem_pool_drain(&s->mem, mark);
        arena_rewind(&w->temp, start);
      }
      if (n->rc == 1 + (int64_t)n->dead || (take.last && n == root)) use_up(s, n);
      pass(w, i);
    }
  }
  return tree_map(s, 1, &wrt, take_grad, &leaf, at);
}

/* The sweep's marks on the tape go when it ends, so that one statement may hold several. */
Value tape_grad(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                Span at) {
  size_t mark = mem_pool_mark(&s->mem);
  Value g = sweep(s, loss, cotangent, wrt, record, take, at);
  value_retain(g);
  mem_pool_drain(&s->mem, mark);
  if (v_counted(g)) mem_pool_add(&s->mem, g.u.o, (void (*)(void *))obj_release);
  return g;
}
