/* The eager tape: nodes, and recording in them.
 *
 * In: operations and calls as they happen. Out: nodes that hold the tensors that their gradients
 * need, until nothing refers to them any more or a sweep (sweep.c) has used them up. Freeing and
 * walking are loops: a chain of 100,000 operations needs no C stack. The values that a call saves
 * are computed when it runs, or later by its forward half (tape_need).
 */
#include <string.h>

#include "autograd/autograd.h"
#include "lang/compile/compile.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/tape/callback.h"
#include "lang/tape/gradient.h"
#include "lang/tape/hook.h"
#include "lang/tape/record_op.h"
#include "lang/tape/tape_impl.h"

/* Releases the parts of n; nodes that nothing else holds go to *more. */
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
  for (size_t i = 0; n->own && i < n->out_count; i++) tn_unref(n->own[i]);
  if (n->own) mem_free(m, n->own, n->out_count * sizeof *n->own);
  n->own = NULL;
  for (size_t i = 0; i < n->attr_count; i++)
    if (n->attrs[i].kind == AK_INTS || n->attrs[i].kind == AK_DIMS)
      mem_free(m, (void *)(uintptr_t)n->attrs[i].u.ints, n->attrs[i].count * sizeof(int64_t));
  mem_free(m, n->attrs, n->attr_count * sizeof *n->attrs);
  mem_free(m, n->env, n->env_count * sizeof *n->env);
  for (size_t i = 0; i < n->ref_count; i++) value_release(n->refs[i]);
  mem_free(m, n->refs, n->ref_count * sizeof *n->refs);
  n->refs = NULL;
  n->ref_count = 0;
  joint_release(n->joint);
  n->in = NULL;
  n->inputs = n->saved = NULL;
  n->attrs = NULL;
  n->env = NULL;
  n->joint = NULL;
  n->in_count = n->saved_count = n->attr_count = n->env_count = 0;
}

static void node_free(Session *s, TapeNode *n, TapeNode **more) {
  if (n->hooked) hooks_forget(s, HOOK_VALUE, HOOK_VALUE, n->seq);
  node_drop(s, n, more);
  src_drop(&s->sources, n->span.file);
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

void tape_empty(Session *s, TapeNode *n) {
  TapeNode *todo = NULL;
  node_drop(s, n, &todo);
  free_all(s, todo);
}

static void drop_tensors(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) {
    tn_unref(t[i]);
    t[i] = NULL;
  }
}

void tape_strip(TapeNode *n) {
  n->state = TAPE_CONSUMED;
  drop_tensors(n->inputs, n->in_count);
  drop_tensors(n->saved, n->saved_count);
  if (n->own) drop_tensors(n->own, n->out_count);
}

void tape_use_up(Session *s, TapeNode *n) {
  n->state = TAPE_CONSUMED;
  tape_empty(s, n);
}

bool tape_wants_grad(Session *s, Value v) {
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
  src_hold(&s->sources, at.file); /* errors of backwards show it */
  n->modes = s->modes;
  return n;
}

Value tape_itself(Value v) {
  if (v.tag != V_TENSOR || !v.u.t->node || !v.u.t->node->version) return v;
  return (Value){.tag = V_PARAM, .u.p = v.u.t->node->in[0].param};
}

static void set_edge(TapeNode *n, size_t i, Value v) {
  Value of = tape_itself(v);
  if (of.tag == V_PARAM) {
    n->in[i].param = of.u.p;
    of.u.p->o.rc++;
    n->inputs[i] = tn_ref(v.tag == V_PARAM ? v.u.p->t : v.u.t->t);
  } else if (v.tag == V_TENSOR) {
    n->in[i].node = v.u.t->node;
    n->in[i].out = v.u.t->out;
    if (v.u.t->node) v.u.t->node->rc++;
    n->inputs[i] = tn_ref(v.u.t->t);
  }
}

void tape_meta(TapeMeta *m, const Tensor *t) {
  m->dtype = t->dtype;
  m->dev = t->store->dev;
  m->rank = t->rank;
  memcpy(m->dim, t->dim, sizeof m->dim);
}

static void attach(TapeNode *n, size_t nout, Value *out) {
  for (size_t i = 0; i < nout; i++) {
    tape_meta(&n->out[i], out[i].u.t->t);
    if (!dt_float(out[i].u.t->t->dtype)) continue; /* ints and bools have no gradient */
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

void tape_version(Session *s, Param *p, Value v, Span at) {
  TapeNode *t = node_new(s, 1, 1, at);
  t->op = OP_ALIAS;
  set_edge(t, 0, (Value){.tag = V_PARAM, .u.p = p});
  attach(t, 1, &v);
  t->version = true;
  tape_release(s, t);
}

/* A tensor like t, for the place of an input that nothing reads: it holds no data. */
static Tensor *shell_of(Session *s, Tensor *t) {
  static const uint64_t zero = 0;
  int64_t stride[CKL_MAX_RANK] = {0};
  if (t->store->dev != DEV_CPU) return tn_ref(t);
  Tensor *z = tn_foreign(&s->mem, t->dtype, 0, NULL, (void *)(uintptr_t)&zero, NULL, NULL);
  Tensor *v = z ? tn_view(&s->mem, z, t->rank, t->dim, stride, 0) : NULL;
  tn_unref(z);
  return v;
}

/* Whether some result has a gradient; else it is 0, whatever the inputs are. j may have been
 * narrowed for other calls. */
static bool has_slopes(const JointRef *j, size_t nout) {
  bool slopes = j->has_callbacks;
  for (size_t k = 0; k < nout; k++) slopes |= joint_parent(j)->spec.cot[k];
  return slopes;
}

bool tape_keeps_input(const JointRef *j, size_t nout, size_t i) {
  return has_slopes(j, nout) && (!j->spec.reads || j->spec.reads[i]);
}

void tape_record_call(Session *s, JointRef *j, size_t n, const Value *in, Tensor *const *inputs,
                      size_t nout, Value *out, Tensor **saved, const int64_t *env, size_t env_count,
                      Span at) {
  /* sequence numbers for the operations of its body, in case it is opened */
  if (j->spec.kind != JOINT_REGION) s->tape_seq += tape_places(j->spec.f);
  TapeNode *t = node_new(s, n, nout, at);
  t->joint = joint_retain(j);
  t->hollow = !has_slopes(j, nout);
  for (size_t i = 0; i < n; i++) {
    bool read = tape_keeps_input(j, nout, i);
    set_edge(t, i, in[i]);
    tn_unref(t->inputs[i]); /* a param may have changed since */
    t->inputs[i] = read ? tn_ref(inputs[i]) : shell_of(s, inputs[i]);
    if (t->inputs[i]) continue;
    tape_release(s, t);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  size_t ns = saved ? (size_t)j->joint->saved_count : 0;
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
  t->env[0] = 0;
  if (env_count) memcpy(t->env, env, env_count * sizeof *env);
  for (size_t i = 0; i < ns; i++) t->saved[i] = tn_ref(saved[i]);
  t->state = saved ? TAPE_READY : TAPE_UNSAVED;
  attach(t, nout, out);
  tape_release(s, t);
}

void tape_refs(Session *s, TapeNode *n, size_t count, const Value *refs) {
  if (!count) return;
  n->refs = mem_need(&s->mem, NULL, 0, count * sizeof *refs);
  n->ref_count = count;
  memcpy(n->refs, refs, count * sizeof *refs);
  for (size_t i = 0; i < count; i++) value_retain(refs[i]);
}

void tape_narrow(Session *s, TapeNode *n, const bool *has) {
  JointRef *j = n->joint;
  if (j->has_callbacks) return;
  bool *mask = ARENA_ARRAY(&s->scratch, bool, j->spec.f->output_count + 1);
  const bool *most = joint_parent(j)->spec.cot;
  for (size_t k = 0; k < n->out_count; k++) mask[k] = has[k] && most[k];
  JointRef *to = joint_of_results(j, mask);
  if (to == j) return;
  n->joint = joint_retain(to);
  joint_release(j);
  drop_tensors(n->saved, n->saved_count);
  n->state = TAPE_UNSAVED;
}

const Joint *tape_joint(const TapeNode *n) {
  CK_ASSERT(&n->joint->s->mem, n->joint->joint && n->state != TAPE_OPENED);
  return n->joint->joint;
}

void tape_need(Session *s, TapeNode *n) {
  if (n->state != TAPE_UNSAVED) return;
  Tensor **got = joint_resave(s, n->joint, n->env, n->inputs, n->span);
  size_t ns = (size_t)tape_joint(n)->saved_count;
  Tensor **saved = mem_try(&s->mem, NULL, 0, (ns ? ns : 1) * sizeof *saved);
  if (!saved) {
    drop_tensors(got, ns);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  memcpy(saved, got, (ns ? ns : 1) * sizeof *saved);
  mem_free(&s->mem, n->saved, n->saved_count * sizeof *n->saved);
  n->saved = saved;
  n->saved_count = ns ? ns : 1;
  n->state = TAPE_READY;
}
