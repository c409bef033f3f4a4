/* Runs a loop whose turns are one kernel (jit/lower/lower_turns.h), or each a list of kernels
 * (run_list.c).
 *
 * In: the tensors of a `loop` node. Out: its results, as the evaluator would give them. Rows that
 * are kept lie in one tensor, which the loop of the gradient reads as it is. A long loop runs in
 * parts, so that it can be interrupted, with what it carries in memory between them. With `while`
 * parts grow, and so does the room for rows. What does not fit (rows that are tensors of their own,
 * no memory for all rows), or fails, is left to the evaluator. */
#include <string.h>

#include "graph/stash.h"
#include "jit/plan/run_impl.h"

/* Turns of a part; with `while`; of lists; under CKL_CHECK. */
enum { PART = 8192, FIRST = 64, LIST_PART = 16, FEW = 3 };

/* Whether rows are dense, for a kernel all of them together. */
static bool rows_fit(const Turns *t, const Tensor *x) {
  int64_t step = 1;
  for (int k = x->rank - 1; k > 0; step *= x->dim[k--])
    if (x->stride[k] != step && x->dim[k] != 1) return false;
  return !t->k || x->stride[0] == step || x->dim[0] == 1;
}

/* Dense tensors of all inputs; 0: the evaluator has to take the loop, -1: no memory. */
static int take(Turns *t, Tensor *const *in, int64_t count) {
  Mem *m = t->c->mem;
  for (int i = 1; i < t->inputs; i++) {
    bool row = i > t->carry && i <= t->carry + t->rows;
    Tensor *x = row ? stash_rows(in[i]) : in[i];
    if (row && !x && !t->k) continue;
    if (!x || (row && (x->dim[0] < count || !rows_fit(t, x)))) return 0;
    t->own[i] = row || tn_is_contiguous(x) ? tn_ref(x) : tn_contiguous(m, x);
    if (!t->own[i]) return -1;
  }
  return 1;
}

Tensor *turns_tensor(const Turns *t, int output, int64_t n) {
  const Type *ty = gr_type(t->body, t->body->outputs[output]);
  int kept = output >= t->carry;
  int64_t dim[CKL_MAX_RANK];
  dim[0] = n;
  for (int k = 0; k < ty->rank; k++)
    if (!dim_eval(t->body->dims, ty->dim[k], t->c->env, NULL, &dim[k + kept])) return NULL;
  return tn_new(t->c->mem, DEV_CPU, (DType)ty->dtype, ty->rank + kept, dim);
}

/* Tensors of all results, with rows for `count` turns, of which `done` are there. False when out of
 * memory. */
static bool make(Turns *t, int64_t count, int64_t done) {
  Mem *m = t->c->mem;
  t->room = count;
  for (int i = done ? t->carry : 0; i < t->gives; i++) {
    Tensor **to = &t->own[t->inputs + i], *x = turns_tensor(t, i, count);
    if (!x) return false;
    if (done) memcpy(tn_data(x), tn_data(*to), (size_t)(tn_bytes(x) / count * done));
    tn_unref(*to);
    *to = x;
  }
  Tensor **ran = &t->own[t->inputs + t->gives];
  if (!*ran) *ran = tn_new(m, DEV_CPU, DT_I64, 1, (int64_t[]){2});
  return *ran;
}

int64_t turns_local(const Kernel *k) {
  int64_t arg[2] = {1, 0}; /* its turns, and the number of the first: no size depends on them */
  return lp_local_bytes(k, arg);
}

/* Runs `n` turns of the kernel from number `first` on. */
static bool part(Turns *t, int64_t n, int64_t first, KStatus *st, GErr *e) {
  Engine *engine = t->f->j->engine;
  int at = 0;
  t->arg[0] = n;
  t->arg[1] = first;
  int all = t->inputs + t->gives + 1;
  for (int i = 1; i < all; i++) t->buf[at++] = tn_data(t->own[i]);
  for (size_t i = 0; i < t->k->buf_count; i++) {
    int64_t bytes = t->k->bufs[i].each * (int64_t)dt_size((DType)t->k->bufs[i].dtype);
    t->arg[2 + i] = (int)i < at ? tn_bytes(t->own[i + 1]) : bytes;
  }
  t->f->j->count.kernels++;
  if (!engine)
    return lp_run(t->c->mem, t->k, t->buf, t->arg, 0, 1, st) ||
           gerr_set(e, ERR_NOMEM, -1, "out of memory");
  int64_t local = turns_local(t->k);
  return (eng_scratch(engine, local) || gerr_set(e, ERR_NOMEM, -1, "out of memory")) &&
         (eng_run(engine, t->code, t->buf, t->arg, 1, 0, local, st, t->c->interrupt) ||
          gerr_set(e, ERR_INTERRUPT, -1, "interrupted"));
}

/* What the turns carried so far is what the next part begins with. */
static bool go_on(Turns *t) {
  for (int i = 1; i <= t->carry; i++) {
    Tensor *end = t->own[t->inputs + i - 1];
    if (!t->apart) { /* the caller's stay as they are */
      tn_unref(t->own[i]);
      t->own[i] = tn_new(t->c->mem, DEV_CPU, end->dtype, end->rank, end->dim);
      if (!t->own[i]) return false;
    }
    memcpy(tn_data(t->own[i]), tn_data(end), (size_t)tn_bytes(end));
  }
  t->apart = true;
  return true;
}

/* The first `turns` of the rows in x, as a stash; takes over the reference. */
static Tensor *rows_of(const Turns *t, Tensor *x, int64_t turns) {
  Mem *m = t->c->mem;
  int64_t dim[CKL_MAX_RANK];
  memcpy(dim, x->dim, sizeof dim);
  dim[0] = turns;
  Tensor *v = turns < x->dim[0] ? tn_view(m, x, x->rank, dim, x->stride, x->offset) : tn_ref(x);
  tn_unref(x);
  return v ? stash_packed(m, v) : NULL;
}

bool turns_as_list(const JitFn *f, const Step *s) {
  const Graph *g = f->plan->g;
  const JitFn *body = f->regions[g->nodes[s->node].region0];
  return body && list_fits(body) && !gr_attr(g, s->node, AT_COUNTER) && !gr_again(g, s->node);
}

int turns_run(JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
              Prov *at) {
  const Graph *g = f->plan->g;
  const GNode *n = &g->nodes[s->node];
  Mem *m = c->mem;
  int64_t count = tn_get_i64(in[0], 0);
  JitFn *body = f->regions[n->region0];
  bool one = s->turns && !f->j->config.lists;
  bool list = !one && turns_as_list(f, s);
  if (!one && !list) return 0;
  if (count < 1 || c->after || (f->j->engine && eng_config(f->j->engine)->emulate)) return 0;
  Turns t = {.f = f,
             .c = c,
             .in = in,
             .count = count,
             .body = g->regions[n->region0],
             .k = one ? f->plan->low.launches[s->launch].k : NULL,
             .carry = (int)gr_attr_i(g, s->node, AT_CARRY, 0),
             .rows = (int)gr_attr_i(g, s->node, AT_MAPPED, 0),
             .reverse = gr_attr_i(g, s->node, AT_REVERSE, 0) != 0};
  t.code = t.k && f->j->engine ? f->code[s->launch] : NULL;
  t.inputs = (int)t.body->input_count;
  t.gives = (int)t.body->output_count;
  t.goes_on = gr_attr(g, s->node, AT_WHILE) != NULL;
  if (t.goes_on && !tn_get_i64(in[1], 0)) return 0;
  size_t mark = mem_pool_mark(m), bufs = t.k ? t.k->buf_count : 0;
  size_t all = (size_t)(t.inputs + t.gives) + 1 + (size_t)(list ? t.carry : 0);
  t.own = tn_refs(m, all, (all + bufs) * sizeof(void *) + (2 + bufs) * sizeof(int64_t));
  t.buf = (void **)(t.own + all);
  t.arg = (int64_t *)(void *)(t.buf + all + bufs);
  int64_t most = list ? LIST_PART : f->j->config.check ? FEW : t.goes_on ? FIRST : PART, done = 0;
  int64_t nodes = 0;
  int ok = take(&t, in, count);
  int64_t rows = t.goes_on && count > most ? most : count;
  if (ok > 0 && list) ok = list_open(&t, body, rows);
  if (ok > 0 && !list && !make(&t, rows, 0)) ok = 0;
  KStatus st = {0};
  for (bool more = true; more && done < count && ok > 0;) {
    int64_t now = count - done < most ? count - done : most;
    if (interrupt_asked(c->interrupt)) {
      gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
      ok = -1;
      break;
    }
    int64_t more_rows = now > t.room - done ? 2 * (done + now) : 0;
    if (list && more_rows) list_settle(&t);
    if (more_rows && !(list ? list_rows : make)(&t, more_rows, done)) {
      ok = 0; /* it says how far it comes */
      break;
    }
    if (!list && done && !go_on(&t)) {
      ok = -1;
      break;
    }
    int64_t first = t.reverse ? count - 1 - done : done, ran = now;
    if (!(list ? list_part(&t, now, first, &ran, &st, e, at) : part(&t, now, first, &st, e)))
      ok = -1;
    if (ok > 0 && st.failed) ok = 0; /* it finds the turn, and says what is wrong */
    if (!list && ok > 0) nodes += tn_get_i64(t.own[t.inputs + t.gives], 1);
    if (list) {
      more = ran == now;
      now = ran;
    } else if (t.goes_on && ok > 0) {
      now = tn_get_i64(t.own[t.inputs + t.gives], 0);
      more = tn_get_i64(t.own[t.inputs], 0) != 0;
      if (!f->j->config.check && most < PART) most *= 2;
    }
    for (int64_t i = 0; c->turn && i < now && ok > 0; i++)
      c->turn(c->turn_ud, g->provs[n->prov].span);
    done += now;
  }
  if (list && ok > 0) list_settle(&t);
  for (int i = 0; i < t.gives && ok > 0; i++) {
    Tensor *x = t.own[t.inputs + i];
    t.own[t.inputs + i] = NULL;
    Tensor **to = &out[i + (t.goes_on && i >= t.carry)];
    *to = i < t.carry ? x : rows_of(&t, x, done);
    if (!*to) ok = -1;
  }
  if (ok > 0 && t.goes_on && !(out[t.carry] = tn_scalar_i64(m, DEV_CPU, DT_I64, done))) ok = -1;
  if (!list) nodes += done * (int64_t)(t.body->node_count - t.body->input_count);
  if (ok > 0) c->nodes_run += (uint64_t)nodes + t.nodes;
  mem_pool_drain(m, mark);
  if (ok < 0 && !e->code) gerr_set(e, ERR_NOMEM, -1, "out of memory");
  return ok;
}
