/* Runs a compiled function: binds sizes, walks the steps, returns new tensors.
 *
 * In: tensors of the inputs and values of the symbols. Out: the results of gr_run. Kernels work on
 * addresses: values that stay inside lie in a block of the arena, values that leave in new tensors.
 * A step of one node gets tensors over those addresses and holds its results as tensors of their
 * own. A result is made before the first step that writes it. An input that the run owns is
 * released after the last step that reads it.
 * The last phase of a run, which may be empty, begins when nothing can fail any more: all tensors
 * are made, and the caller has done what it does with them. In it values that the program keeps in
 * place of an input are written to the input's memory, each as soon as it may be.
 * Invariant: no memory of the arena leaves; the pool releases everything when an effect throws.
 */
#include <stdio.h>
#include <string.h>

#include "graph/run.h"
#include "graph/structure.h"
#include "jit/plan/run_impl.h"

typedef struct Account Account;

/* One run. Its tensors are in f, so that a call allocates nothing else. */
typedef struct Exec {
  JitFn *f;
  RunCtx *c;    /* the caller's */
  RunCtx inner; /* with effects counted */
  Tensor *const *in;
  Bound *b;
  char *arena;
  GErr *e;
  Prov *at;
  uint64_t effects;  /* done */
  int64_t copied;    /* bytes of inputs that were made contiguous */
  uint64_t skip;     /* rerun by the reference evaluator: effects done by the first run */
  struct Told *told; /* results of host calls; NULL: the function has no host calls */
  size_t retold;
  size_t made, dropped; /* of Plan.makes and drops: those that are done */
  size_t begun, ended;  /* of Bound.begins and ends */
  bool lost;            /* an input is gone */
  bool last;            /* the last phase: nothing fails, and an interrupt waits */
  Account *account;
} Exec;

/* ---- effects are counted, so that the run that reports an error does not repeat them. Results of
 * host calls are kept if the message may depend on them (plan.c); else a 0 replaces them. */
typedef struct Told {
  Mem *mem;
  Tensor **t;
  size_t count, cap;
} Told;

static void told_room(Told *k, size_t more) {
  if (k->count + more <= k->cap) return;
  size_t cap = 2 * k->cap + more;
  k->t = mem_need(k->mem, k->t, k->cap * sizeof *k->t, cap * sizeof *k->t);
  k->cap = cap;
}

static void told_release(void *obj) {
  Told *k = obj;
  for (size_t i = 0; i < k->count; i++) tn_unref(k->t[i]);
  mem_free(k->mem, k->t, k->cap * sizeof *k->t);
  mem_free(k->mem, k, sizeof *k);
}

static Tensor *zeros_like(Exec *x, const Type *t, const int64_t *dim) {
  int64_t stride[CKL_MAX_RANK] = {0};
  Tensor *zero = tn_zeros(x->c->mem, (Device)t->dev, (DType)t->dtype, 0, NULL), *v = NULL;
  if (zero) v = tn_view(x->c->mem, zero, t->rank, dim, stride, 0);
  tn_unref(zero);
  return v;
}

/* Replays the result of the first run of a host call. */
static bool retell(Exec *x, const Graph *g, Val v, Tensor **out) {
  const Type *t = gr_type(g, v);
  int64_t dim[CKL_MAX_RANK];
  Tensor *kept = x->told->t[x->retold++];
  for (int k = 0; !kept && k < t->rank; k++)
    if (!dim_eval(g->dims, t->dim[k], x->c->env, NULL, &dim[k])) return false;
  *out = kept ? tn_ref(kept) : zeros_like(x, t, dim);
  return *out != NULL;
}

static bool count_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                         GErr *e) {
  Exec *x = ud;
  const Plan *p = x->f->plan;
  bool keep = g != p->g || (p->message && p->message[node]);
  int results = g->nodes[node].result_count;
  bool again = x->effects++ < x->skip;
  if (!again && x->told) told_room(x->told, (size_t)results);
  if (!again && !x->c->effect(x->c->ud, g, node, in, n, out, e)) return false;
  for (int i = 0; i < results; i++) {
    bool token = gr_type(g, (Val){node, (uint32_t)i})->kind == TK_TOKEN;
    if (again) out[i] = NULL;
    if (token) continue;
    if (again && !retell(x, g, (Val){node, (uint32_t)i}, &out[i]))
      return gerr_set(e, ERR_NOMEM, -1, "out of memory");
    if (again || !x->told) continue;
    x->told->t[x->told->count++] = keep && out[i] ? tn_ref(out[i]) : NULL;
  }
  return true;
}

/* ---- bodies of loops, branches and maps are functions of their own */
static JitFn *region_of(const Exec *x, const Graph *region) {
  const Graph *g = x->f->plan->g;
  size_t i = 0;
  while (i < g->region_count && g->regions[i] != region) i++;
  CK_ASSERT(x->c->mem, i < g->region_count);
  return x->f->regions[i];
}

static bool run_body(void *ud, const Graph *region, Tensor *const *in, Tensor **owned, Tensor **out,
                     GErr *e, Prov *at) {
  Exec *x = ud;
  x->inner.owned = owned;
  bool ok = jit_run(region_of(x, region), &x->inner, in, out, e, at);
  x->inner.owned = NULL;
  return ok;
}

/* A region is part of the function that it is in, which stays. */
static JitFn *whole_of(JitFn *f) {
  while (f->parent) f = f->parent;
  return f;
}

/* The body of a loop, for turns that run again. */
typedef struct Kept {
  JitFn *body, *f; /* f: that has the loop, as a step */
  const Step *step;
} Kept;

static bool run_kept(void *ud, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  return jit_run(((Kept *)ud)->body, c, in, out, e, at);
}

static int run_turns(void *ud, RunCtx *c, Tensor *const *in, int64_t first, int64_t n, bool rows,
                     Tensor **out, GErr *e, Prov *at) {
  Kept *k = ud;
  return turns_again(k->f, k->step, c, in, first, n, rows, out, e, at);
}

static void drop_kept(void *ud) {
  Kept *k = ud;
  JitFn *whole = whole_of(k->f);
  mem_free(k->f->j->mem, k, sizeof *k);
  jit_free(whole);
}

static KeptBody keep_region(void *ud, const Graph *region) {
  Exec *x = ud;
  const Plan *p = x->f->plan;
  Kept *k = mem_need(x->f->j->mem, NULL, 0, sizeof *k);
  *k = (Kept){region_of(x, region), x->f, p->steps};
  while (k->step->kind != STEP_NODE || p->g->nodes[k->step->node].op != OP_LOOP ||
         p->g->regions[p->g->nodes[k->step->node].region0] != region)
    k->step++;
  whole_of(x->f)->rc++;
  return (KeptBody){k, run_kept, run_turns, drop_kept};
}

static void start_inner(Exec *x, RunCtx *c) {
  x->c = c;
  x->inner = *c;
  x->inner.nodes_run = 0;
  x->inner.owned = NULL;
  x->inner.alone = NULL;
  x->inner.commit = NULL;
  x->inner.body = run_body;
  x->inner.keep_body = keep_region;
  x->inner.body_ud = x;
  if (jit_engine(x->f->j)) x->inner.pool = eng_pool(jit_engine(x->f->j));
  if (!c->effect) return;
  x->inner.effect = count_effect;
  x->inner.ud = x;
}

/* ---- tensors over the arena */
static void of_arena(void *ud) {
  (void)ud;
}

static bool no_memory(Exec *x) {
  return gerr_set(x->e, ERR_NOMEM, -1, "out of memory");
}

static bool value_dims(const Exec *x, Val v, int64_t *dim) {
  const Type *t = gr_type(x->f->plan->g, v);
  for (int k = 0; k < t->rank; k++) {
    if (!dim_eval(x->f->plan->g->dims, t->dim[k], x->c->env, NULL, &dim[k])) return false;
  }
  return true;
}

static Tensor *dense_view(Mem *m, const Tensor *of, int rank, const int64_t *dim) {
  int64_t stride[CKL_MAX_RANK];
  uint64_t step = 1; /* of a tensor without elements it may not fit */
  for (int a = rank - 1; a >= 0; step *= (uint64_t)dim[a--]) stride[a] = (int64_t)step;
  return tn_view(m, of, rank, dim, stride, of->offset);
}

/* A tensor of the evaluator, as soon as it is filled. */
static Tensor *held(const Exec *x, uint32_t i) {
  uint32_t by = x->f->plan->helds[i].filled;
  if (by != NO_TRANSFER) mover_wait(x->f->j->mover, x->f->copy[by]);
  return x->f->helds[i];
}

/* Returns a new reference to a tensor of v for the evaluator, before this step. If v is not in
 * memory, its node computes it. NULL with x->e. */
static Tensor *tensor_of(Exec *x, Val v, uint32_t step) {
  const Plan *p = x->f->plan;
  const Graph *g = p->g;
  const Type *t = gr_type(g, v);
  Place at = plan_there(p, v, step) ? p->place[plan_index(g, v)] : (Place){0};
  Tensor *r = NULL;
  switch ((PlaceKind)at.kind) {
  case PLACE_INPUT: {
    Tensor *dense = x->f->dense[at.index];
    return tn_ref(dense ? dense : x->in[at.index]);
  }
  case PLACE_RESULT: {
    Tensor *of = x->f->results[at.index];
    if (val_eq(p->results[at.index], v)) return tn_ref(of);
    int64_t dim[CKL_MAX_RANK]; /* it had the place before the result */
    if (value_dims(x, v, dim)) r = dense_view(x->c->mem, of, t->rank, dim);
    if (!r) no_memory(x);
    return r;
  }
  case PLACE_HELD: return tn_ref(held(x, at.index));
  case PLACE_ARENA: {
    int64_t dim[CKL_MAX_RANK];
    if (value_dims(x, v, dim))
      r = tn_foreign(x->c->mem, (DType)t->dtype, t->rank, dim, x->arena + x->b->offset[at.index],
                     of_arena, NULL);
    if (!r) no_memory(x);
    return r;
  }
  case PLACE_NONE: break;
  }
  const GNode *n = &g->nodes[v.node];
  Tensor *out[1] = {NULL}, *in[1] = {NULL};
  CK_ASSERT(x->c->mem, n->operand_count <= 1 && n->result_count == 1);
  if (n->operand_count) in[0] = tensor_of(x, g->operands[n->operand0], step);
  if (n->operand_count && !in[0]) return NULL;
  if (gr_run_node(g, v.node, &x->inner, in, out, x->e, x->at)) r = out[0];
  tn_unref(in[0]);
  return r;
}

/* ---- steps */
typedef struct Args {
  Mem *mem;
  size_t bytes, n;
  Tensor *t[];
} Args;

static void args_release(void *obj) {
  Args *a = obj;
  for (size_t i = 0; i < a->n; i++) tn_unref(a->t[i]);
  mem_free(a->mem, a, a->bytes);
}

static bool in_arena(const Tensor *t) {
  return t->store->foreign_free == of_arena;
}

/* ---- copies of offloaded values (transfer.c) */

/* Begins to copy a value that leaves the arena. */
static bool send(Exec *x, const Step *s) {
  const Plan *p = x->f->plan;
  Val v = {s->node, 0};
  int64_t dim[CKL_MAX_RANK];
  const Type *t = gr_type(p->g, v);
  uint32_t held = p->place[plan_index(p->g, v)].index, slot = p->transfers[s->transfer].slot;
  Tensor *r = NULL;
  if (value_dims(x, v, dim)) r = tn_new(x->c->mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  if (!r) return no_memory(x);
  x->f->helds[held] = r;
  x->f->root[1 + p->g->input_count + p->result_count + held] = tn_data(r);
  x->f->copy[s->transfer] =
      mover_begin(x->f->j->mover, tn_data(r), x->arena + x->b->offset[slot], (size_t)tn_bytes(r));
  return true;
}

/* Before this step values that leave have left. */
static void end_copies(Exec *x, uint32_t step) {
  const Bound *b = x->b;
  for (; x->ended < b->end_count && b->ends[x->ended].step <= step; x->ended++)
    mover_wait(x->f->j->mover, x->f->copy[b->ends[x->ended].index]);
}

/* From this step on values can come back. */
static void begin_copies(Exec *x, uint32_t step) {
  const Plan *p = x->f->plan;
  const Bound *b = x->b;
  for (; x->begun < b->begin_count && b->begins[x->begun].step <= step; x->begun++) {
    uint32_t i = b->begins[x->begun].index;
    const Transfer *t = &p->transfers[i];
    Val v = gr_operand(p->g, p->steps[t->step].node, 0);
    Place at = p->place[plan_index(p->g, v)];
    const Tensor *from = at.kind == PLACE_HELD ? held(x, at.index) : x->in[at.index];
    x->f->begun[i] = tn_is_contiguous(from);
    if (!x->f->begun[i]) continue;
    x->f->copy[i] = mover_begin(x->f->j->mover, x->arena + b->offset[t->slot], tn_data(from),
                                (size_t)tn_bytes(from));
  }
}

/* Fetches a value that was moved away to its place in the arena. */
static bool fetch(Exec *x, const Step *s) {
  const Graph *g = x->f->plan->g;
  uint32_t step = (uint32_t)(s - x->f->plan->steps);
  if (s->transfer != NO_TRANSFER && x->f->begun[s->transfer]) {
    mover_wait(x->f->j->mover, x->f->copy[s->transfer]);
    return true;
  }
  Tensor *from = tensor_of(x, gr_operand(g, s->node, 0), step);
  Tensor *to = from ? tensor_of(x, (Val){s->node, 0}, step + 1) : NULL;
  if (to) tn_gather(from, 0, tn_count(from), tn_data(to));
  tn_unref(to);
  tn_unref(from);
  return to != NULL;
}

/* Whether all elements share one place in memory. */
static bool repeats(const Tensor *t) {
  for (int k = 0; k < t->rank; k++)
    if (t->stride[k] && t->dim[k] > 1) return false;
  return tn_count(t) > 0;
}

/* Makes a dense copy of input i. Inputs that repeat one number, such as the first zeros of an
 * optimizer, share a copy that is large enough. */
static Tensor *dense_input(Exec *x, size_t i) {
  Mem *m = x->c->mem;
  Tensor *t = x->in[i];
  x->copied += (int64_t)sizeof(Tensor);
  size_t each = dt_size(t->dtype), bytes = (size_t)tn_count(t) * each;
  for (size_t k = i; k-- > 0 && repeats(t);) {
    const Tensor *d = x->f->dense[k];
    if (!d || d->dtype != t->dtype || d->store->bytes < bytes || !repeats(x->in[k]) ||
        memcmp(tn_data(d), tn_data(t), each))
      continue;
    return dense_view(m, d, t->rank, t->dim);
  }
  Tensor *d = tn_contiguous(m, t);
  if (d) x->copied += (int64_t)(d->store->bytes + 64 + sizeof(Storage));
  return d;
}

static bool run_node(Exec *x, const Step *s) {
  const Plan *p = x->f->plan;
  const GNode *n = &p->g->nodes[s->node];
  Mem *m = x->c->mem;
  if (n->op == OP_PLACE && p->place[n->result0].kind != PLACE_HELD) return fetch(x, s);
  if (s->transfer != NO_TRANSFER) return send(x, s);
  size_t mark = mem_pool_mark(m), all = n->operand_count + n->result_count;
  size_t bytes = sizeof(Args) + all * sizeof(Tensor *);
  Args *a = mem_need(m, NULL, 0, bytes);
  memset(a, 0, bytes);
  *a = (Args){m, bytes, all};
  mem_pool_add(m, a, args_release);
  Tensor **out = a->t + n->operand_count;
  bool ok = true;
  for (uint32_t k = 0; k < n->operand_count && ok; k++) {
    Val v = p->g->operands[n->operand0 + k];
    if (gr_type(p->g, v)->kind == TK_TOKEN) continue;
    a->t[k] = tensor_of(x, v, (uint32_t)(s - p->steps));
    ok = a->t[k] != NULL;
  }
  int turns = ok && n->op == OP_LOOP ? turns_run(x->f, s, &x->inner, a->t, out, x->e, x->at) : 0;
  if (!turns) ok = ok && gr_run_node(p->g, s->node, &x->inner, a->t, out, x->e, x->at);
  ok &= turns >= 0;
  for (uint32_t k = 0; k < n->result_count && ok; k++) {
    Place at = p->place[n->result0 + k];
    if (at.kind != PLACE_HELD || !out[k]) continue;
    Tensor *r =
        in_arena(out[k]) ? tn_copy(m, out[k], out[k]->store->dev) : tn_contiguous(m, out[k]);
    if (!r) ok = no_memory(x);
    x->f->helds[at.index] = r;
    if (r) x->f->root[1 + p->g->input_count + p->result_count + at.index] = tn_data(r);
  }
  mem_pool_drain(m, mark);
  x->f->j->count.steps_ref++;
  return ok;
}

/* Releases the tensors and memory of a run, however it ends. */
static void run_release(void *obj) {
  JitFn *f = obj;
  const Plan *p = f->plan;
  mover_wait_all(f->j->mover);
  for (size_t i = 0; i < p->g->input_count; i++) {
    tn_unref(f->dense[i]);
    f->dense[i] = NULL;
  }
  for (size_t i = 0; i < p->result_count; i++) {
    tn_unref(f->results[i]);
    f->results[i] = NULL;
  }
  for (size_t i = 0; i < p->held_count; i++) {
    tn_unref(f->helds[i]);
    f->helds[i] = NULL;
  }
  for (size_t i = 0; i < p->store_count; i++) {
    tn_unref(f->stored[i]);
    f->stored[i] = NULL;
  }
  mem_free(f->j->mem, f->room, f->room_bytes);
  f->room = NULL;
  f->j->depth--;
  f->running = false;
}

void jit_level(Jit *j, size_t depth) {
  if (depth <= j->block_count) return;
  j->blocks =
      mem_need(j->mem, j->blocks, j->block_count * sizeof *j->blocks, depth * sizeof *j->blocks);
  memset(&j->blocks[j->block_count], 0, (depth - j->block_count) * sizeof *j->blocks);
  j->block_count = depth;
}

void *jit_block(Jit *j, int64_t bytes) {
  JitBlock *k = &j->blocks[j->depth - 1];
  if (bytes == 0) bytes = 64;
  if ((size_t)bytes <= k->bytes) return k->p;
  mem_data_free(j->mem, DEV_CPU, k->p, k->bytes);
  *k = (JitBlock){0};
  void *p = mem_data_try(j->mem, DEV_CPU, (size_t)bytes);
  if (p) *k = (JitBlock){p, (size_t)bytes};
  return p;
}

static bool same_input(const Exec *x, size_t i) {
  const Graph *g = x->f->plan->g;
  const Type *t = gr_type(g, g->inputs[i]);
  const Tensor *v = x->in[i];
  if (t->kind == TK_TOKEN) return true;
  if (!v || v->dtype != (DType)t->dtype || v->rank != t->rank || v->store->dev != (Device)t->dev)
    return false;
  const int64_t *dim = x->b->dims + i * CKL_MAX_RANK;
  for (int k = 0; k < t->rank; k++) {
    if (v->dim[k] != dim[k]) return false;
  }
  return true;
}

/* Sets up tensors and addresses of the run; false when out of memory. */
static bool prepare(Exec *x) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  x->arena = jit_block(f->j, x->b->arena_bytes);
  if (!x->arena) return false;
  if (f->j->engine && x->b->local_bytes && !eng_scratch(f->j->engine, x->b->local_bytes))
    return false;
  f->root[0] = x->arena;
  for (size_t i = 0; i < p->g->input_count; i++) {
    if (!p->input_used[i]) continue;
    Tensor *t = x->in[i];
    if (!tn_is_contiguous(t)) {
      t = f->dense[i] = dense_input(x, i);
      f->j->count.copied++;
    }
    if (!t) return false;
    f->root[1 + i] = tn_data(t);
  }
  return true;
}

/* Result i, if it can be the tensor in place `from`, which nothing reads any more; else NULL. That
 * place has no tensor then. */
static Tensor *moved(Exec *x, Place from, const int64_t *dim, int rank) {
  JitFn *f = x->f;
  Tensor **slot = NULL;
  if (from.kind == PLACE_HELD) slot = &f->helds[from.index];
  if (from.kind == PLACE_INPUT && !f->dense[from.index] && x->c->owned &&
      from.index < f->plan->inputs)
    slot = &x->c->owned[from.index];
  Tensor *t = slot ? *slot : NULL;
  if (!t || t->rc > 1 || t->store->rc > 1 || t->store->foreign_free || !tn_is_contiguous(t) ||
      (uint64_t)tn_bytes(t) != t->store->bytes)
    return NULL;
  bool same = t->rank == rank;
  for (int k = 0; same && k < rank; k++) same = t->dim[k] == dim[k];
  Tensor *r = same ? t : dense_view(x->c->mem, t, rank, dim);
  if (!r) return NULL;
  if (!same) tn_unref(t);
  *slot = NULL;
  x->lost = true;
  if (from.kind == PLACE_INPUT) f->gone[from.index] = true;
  return r;
}

/* Makes the results that this step is the first to write. *done: one of them is the tensor that it
 * would copy. */
static bool make_results(Exec *x, uint32_t step, bool *done) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  *done = false;
  for (; x->made < p->result_count && p->makes[x->made].step <= step; x->made++) {
    uint32_t i = p->makes[x->made].index;
    const Type *t = gr_type(p->g, p->results[i]);
    const int64_t *dim = x->b->dims + (p->g->input_count + i) * CKL_MAX_RANK;
    bool writes = p->makes[x->made].step == step;
    Tensor *r = writes ? moved(x, p->steps[step].from, dim, t->rank) : NULL;
    *done |= r != NULL;
    bool fresh = !r;
    if (fresh) r = tn_new(x->c->mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
    if (!r) return false;
    if (fresh && f->j->config.check) memset(tn_data(r), JIT_POISON, r->store->bytes);
    f->results[i] = r;
    f->root[1 + p->g->input_count + i] = tn_data(r);
  }
  return true;
}

/* Releases the inputs that this step was the last to read. */
static void drop_inputs(Exec *x, uint32_t step) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  Tensor **owned = x->c->owned;
  for (; x->dropped < p->drop_count && p->drops[x->dropped].step <= step; x->dropped++) {
    uint32_t i = p->drops[x->dropped].index;
    tn_unref(f->dense[i]);
    f->dense[i] = NULL;
    if (!owned || i >= p->inputs || !owned[i]) continue;
    tn_unref(owned[i]);
    owned[i] = NULL;
    f->gone[i] = x->lost = true;
  }
}

/* Sets the outputs of the graph; on failure none. */
static bool give(Exec *x, Tensor **out) {
  const Graph *g = x->f->plan->g;
  for (size_t i = 0; i < g->output_count; i++) {
    out[i] = NULL;
    if (gr_type(g, g->outputs[i])->kind == TK_TOKEN || x->f->plan->is_store[i]) continue;
    out[i] = tensor_of(x, g->outputs[i], UINT32_MAX);
    if (out[i]) continue;
    while (i-- > 0) {
      tn_unref(out[i]);
      out[i] = NULL;
    }
    return false;
  }
  for (size_t i = 0; i < x->f->plan->store_count; i++) {
    const Store *store = &x->f->plan->stores[i];
    Tensor *t = x->f->stored[i];
    out[store->output] = tn_ref(t ? t : x->in[store->input]);
  }
  return true;
}

/* ---- the last phase */

/* Whether input i can be written where it is: nobody but the caller's place holds its memory. */
static bool is_alone(const Exec *x, size_t i) {
  const Tensor *t = x->in[i];
  bool emulated = x->f->j->engine && eng_config(x->f->j->engine)->emulate; /* it may give up */
  return x->c->alone && x->c->alone[i] && t->rc == 1 && t->store->rc == 1 &&
         !t->store->foreign_free && t->store->dev == DEV_CPU && tn_is_contiguous(t) &&
         (uint64_t)tn_bytes(t) == t->store->bytes && !emulated;
}

/* Makes tensors for the values whose inputs somebody else holds. */
static bool make_stored(Exec *x) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  for (size_t i = 0; i < p->store_count; i++) {
    const Store *store = &p->stores[i];
    int64_t dim[CKL_MAX_RANK];
    Val v = p->g->outputs[store->output];
    const Type *t = gr_type(p->g, v);
    if (is_alone(x, store->input)) continue;
    if (!value_dims(x, v, dim)) return false;
    f->stored[i] = tn_new(x->c->mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
    if (!f->stored[i]) return false;
  }
  size_t room = 0;
  for (size_t i = p->tail; i < p->step_count && !f->j->engine; i++) {
    const Step *s = &p->steps[i];
    size_t n = lp_run_room(p->low.launches[s->launch].k, x->b->launches[s->launch].args);
    if (n > room) room = n;
  }
  f->room_bytes = room;
  if (room) f->room = mem_try(x->c->mem, NULL, 0, room);
  return f->room || !room;
}

/* Copies the values that are stored before this step to where they stay. */
static void store_values(Exec *x, uint32_t step, size_t *stored) {
  const Plan *p = x->f->plan;
  for (; *stored < p->store_count && p->stores[*stored].at == step; (*stored)++) {
    const Store *store = &p->stores[*stored];
    Tensor *t = x->f->stored[*stored] ? x->f->stored[*stored] : x->in[store->input];
    Place at = p->place[plan_index(p->g, store->v)];
    memcpy(tn_data(t), x->arena + x->b->offset[at.index], (size_t)tn_bytes(t));
  }
}

/* Releases the values that nothing reads after this step. */
static void poison_dead(const Exec *x, uint32_t step) {
  const Plan *p = x->f->plan;
  for (size_t i = 0; i < p->slot_count; i++) {
    if (p->slots[i].first == UINT32_MAX || x->b->last[i] != step) continue;
    memset(x->arena + x->b->offset[i], JIT_POISON, (size_t)x->b->bytes[i]);
  }
}

/* FAILED: a kernel set the fail flag, and the reference evaluator must report the error. */
typedef enum Outcome { RUN_OK, RUN_ERROR, RUN_FAILED, RUN_NO_ROOM } Outcome;

static bool close_account(Exec *x, Account *a, int64_t copied);

/* Begins the last phase. The account ends before the caller makes anything. */
static Outcome begin_last(Exec *x, Tensor **out) {
  JitFn *f = x->f;
  if (!make_stored(x)) {
    if (!x->lost && !x->effects) return RUN_NO_ROOM;
    no_memory(x);
    return RUN_ERROR;
  }
  if (!give(x, out)) return RUN_ERROR;
  if (!close_account(x, x->account, x->copied)) {
    for (size_t i = 0; i < f->g->output_count; i++) {
      tn_unref(out[i]);
      out[i] = NULL;
    }
    return RUN_ERROR;
  }
  if (x->c->commit) x->c->commit(x->c->commit_ud, out);
  x->last = true;
  if (f->j->engine) eng_hold(f->j->engine, true);
  return RUN_OK;
}

static Outcome run_step(Exec *x, uint32_t i, KStatus *st) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  const Step *s = &p->steps[i];
  double start = f->times && s->kind == STEP_NODE ? jit_now() : 0;
  bool done;
  if (!make_results(x, i, &done)) {
    if (!x->lost && !x->effects) return RUN_NO_ROOM;
    no_memory(x);
    return RUN_ERROR;
  }
  if (s->kind == STEP_NODE) {
    if (!run_node(x, s)) {
      x->e->operand = (int)p->origin[s->node];
      return RUN_ERROR;
    }
    if (f->times) step_note(f, x->b, s, jit_now() - start);
  } else if (!s->moved && !done) {
    if (!launch_run(f, x->b, s, st, x->last ? NULL : x->c->interrupt, x->last, x->e, x->at))
      return RUN_ERROR;
    if (st->failed) return RUN_FAILED;
  }
  for (size_t k = 0; k < p->held_count; k++) {
    if (p->helds[k].last != i) continue;
    tn_unref(f->helds[k]);
    f->helds[k] = NULL;
  }
  drop_inputs(x, i);
  return RUN_OK;
}

static Outcome run_steps(Exec *x, Tensor **out) {
  JitFn *f = x->f;
  const Plan *p = f->plan;
  KStatus st = {0};
  size_t stored = 0;
  Outcome o = RUN_OK;
  memset(f->gone, 0, p->g->input_count);
  memset(f->begun, 0, p->transfer_count * sizeof *f->begun);
  if (!prepare(x)) return RUN_NO_ROOM;
  if (f->j->config.check) memset(x->arena, JIT_POISON, (size_t)x->b->arena_bytes);
  for (uint32_t i = 0; i <= p->step_count && o == RUN_OK; i++) {
    if (i > 0) o = run_step(x, i - 1, &st);
    end_copies(x, i);
    if (i == p->tail) mover_wait_all(f->j->mover);
    if (p->store_count && o == RUN_OK && i == p->tail) o = begin_last(x, out);
    if (x->last) store_values(x, i, &stored);
    if (f->j->config.check && i > 0) poison_dead(x, i - 1);
    if (o == RUN_OK) begin_copies(x, i);
  }
  if (x->last && f->j->engine) eng_hold(f->j->engine, false);
  if (o == RUN_OK && !x->last && !give(x, out)) o = RUN_ERROR;
  if (o == RUN_OK) x->c->nodes_run += x->inner.nodes_run + f->nodes;
  return o;
}

/* ---- again, by the evaluator */
static bool again(Exec *x, Tensor **out) {
  JitFn *f = x->f;
  Mem *m = x->c->mem;
  RunCtx c = x->inner;
  c.body = NULL;
  c.keep_body = NULL;
  c.owned = x->lost ? NULL : x->c->owned;
  x->skip = x->effects;
  x->effects = 0;
  f->j->count.reruns++;
  c.nodes_run = 0;
  size_t mark = mem_pool_mark(m), n = f->g->input_count;
  Tensor **stand = tn_refs(m, n, n * sizeof *x->in), **in = stand + n;
  bool ok = true;
  for (size_t i = 0; i < n && ok; i++) {
    const Graph *g = f->plan->g; /* the message does not depend on released inputs */
    if (f->gone[i])
      stand[i] = zeros_like(x, gr_type(g, g->inputs[i]), x->b->dims + i * CKL_MAX_RANK);
    in[i] = f->gone[i] ? stand[i] : x->in[i];
    ok = in[i] || !f->gone[i] || no_memory(x);
  }
  ok = ok && gr_run(f->g, &c, in, out, x->e, x->at);
  mem_pool_drain(m, mark);
  x->c->nodes_run += c.nodes_run;
  return ok;
}

/* With the regions inside, whoever called. */
static bool by_evaluator(JitFn *f, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  RunCtx plain = *c;
  plain.body = NULL;
  plain.keep_body = NULL;
  bool ok = gr_run(f->g, &plain, in, out, e, at);
  c->nodes_run = plain.nodes_run;
  return ok;
}

/* ---- the account of one run, JitConfig.check */
struct Account {
  size_t live, peak;
  int64_t want;
  bool on, at_most; /* at_most: tensors alone, and no more than `want` */
};

/* The bytes by which a block of `have` bytes (0: none) grows to hold `need`. */
static int64_t grows(int64_t have, int64_t need) {
  return need <= have ? 0 : have ? need - have : need + 64;
}

/* Bytes of the tensors that make_stored makes, and those of their descriptions. */
static int64_t stores_now(const Exec *x, int64_t *headers) {
  const Plan *p = x->f->plan;
  int64_t sum = 0;
  for (size_t i = 0; i < p->store_count; i++) {
    const Tensor *t = x->in[p->stores[i].input];
    if (is_alone(x, p->stores[i].input)) continue;
    sum += tn_bytes(t);
    *headers += (int64_t)(sizeof(Tensor) + sizeof(Storage) + 64);
  }
  return sum;
}

static void open_account(Exec *x, Account *a) {
  Mem *m = x->c->mem;
  Jit *j = x->f->j;
  JitPeak p;
  *a = (Account){0};
  if (!j->config.check || !j->engine || x->f->hosts) return;
  if (eng_config(j->engine)->emulate) return; /* the plan does not count the emulator's memory */
  a->on = jit_peak(x->f, x->b->env, &p) && p.bound && !p.reads;
  a->at_most = !p.exact;
  if (!a->on) return;
  p.outputs += stores_now(x, &p.headers);
  int64_t block = (int64_t)j->blocks[j->depth].bytes;
  int64_t scratch = (int64_t)eng_scratch_bytes(j->engine);
  int64_t once = 64 + (p.arena ? 0 : 64) + (p.scratch ? 64 : 0); /* of headers: of the two blocks */
  a->want = grows(block, p.arena ? p.arena : 64) + grows(scratch, p.scratch) + p.outputs +
            p.headers - once;
  size_t *peak = a->at_most ? &m->data_peak[DEV_CPU] : &m->peak;
  if (a->at_most) a->want += p.inner;
  a->live = a->at_most ? m->data_live[DEV_CPU] : m->live;
  a->peak = *peak;
  *peak = a->live;
}

static bool close_account(Exec *x, Account *a, int64_t copied) {
  Mem *m = x->c->mem;
  if (!a->on) return true;
  a->on = false;
  size_t *peak = a->at_most ? &m->data_peak[DEV_CPU] : &m->peak;
  int64_t took = (int64_t)(*peak - a->live), want = a->want + copied;
  if (*peak < a->peak) *peak = a->peak;
  if (took == want || ((copied || x->lost || a->at_most) && took < want)) return true;
  return gerr_set(x->e, ERR_BUG, -1, "a run of `%s` took %lld bytes, its plan says %lld",
                  x->f->g->name ? x->f->g->name : "a function", (long long)took, (long long)want);
}

/* The most bytes of results and dense copies of inputs alive at once; -1: no memory to count. */
static int64_t tensors_at_once(const Exec *x) {
  const Plan *p = x->f->plan;
  size_t n = p->g->input_count, bytes = (n + 1) * (sizeof(int64_t) + sizeof(bool));
  int64_t *dense = mem_try(x->c->mem, NULL, 0, bytes);
  if (!dense) return -1;
  bool *alone = (bool *)(dense + n + 1);
  for (size_t i = 0; i < n; i++) {
    const Tensor *t = x->in[i];
    bool copied = p->input_used[i] && !tn_is_contiguous(t);
    dense[i] = copied ? tn_bytes(t) : 0;
    alone[i] = is_alone(x, i);
  }
  int64_t sum = jit_tensors(x->f, x->b->env, dense, alone);
  mem_free(x->c->mem, dense, bytes);
  return sum;
}

/* Under a limit of memory: frees memory kept by earlier runs if this run does not fit beside it,
 * and with it a block that is larger than this run needs. A run that does not fit even then is
 * refused before its first step. */
static bool make_room(Exec *x) {
  const JitFn *f = x->f;
  const Jit *j = f->j;
  JitPeak p;
  if (!x->c->mem->limit || !jit_peak(x->f, x->b->env, &p)) return true;
  Mem *m = x->c->mem;
  int64_t block = (int64_t)j->blocks[j->depth].bytes, more = tensors_at_once(x);
  if (more < 0) return no_memory(x);
  (void)stores_now(x, &p.headers); /* their bytes are in `more` */
  more += p.inner + p.headers;
  int64_t scratch = j->engine ? (int64_t)eng_scratch_bytes(j->engine) : 0;
  if (p.arena > block) more += p.arena - block;
  if (p.scratch > scratch) more += p.scratch - scratch;
  if ((size_t)more <= mem_room(m)) return true;
  jit_trim(f->j);
  if (p.arena > block)
    more += block;
  else
    more += p.arena;
  more += p.scratch > scratch ? scratch : p.scratch;
  if ((size_t)more <= mem_room(m)) return true;
  gerr_set(x->e, ERR_LIMIT, -1,
           "this call needs %lld bytes, and %zu are left of the limit of %zu: tensors hold %zu, "
           "all else %zu",
           (long long)more, mem_room(m), m->limit, mem_tensors(m), mem_rest(m));
  snprintf(x->e->help, sizeof x->e->help, "with `--memory=%zu` it goes on from here",
           m->limit - mem_room(m) + (size_t)more);
  return false;
}

/* Computes the tables of f and of the bodies in it, unless it has them. */
static bool make_tables(JitFn *f, const RunCtx *c, GErr *e, Prov *at) {
  stack_check();
  const Plan *p = f->plan;
  for (size_t i = 0; p && i < p->g->region_count; i++)
    if (f->regions[i] && !make_tables(f->regions[i], c, e, at)) return false;
  if (!p || !p->tables || f->in[p->inputs]) return true;
  RunCtx plain = {.mem = c->mem, .interrupt = c->interrupt, .env = c->env, .pool = c->pool};
  return gr_run(p->tables, &plain, NULL, f->in + p->inputs, e, at);
}

static bool run_with(JitFn *f, Told *told, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
                     Prov *at) {
  if (f->reference || c->after || c->anomaly || f->running)
    return by_evaluator(f, c, in, out, e, at);
  *at = (Prov){.origin = -1};
  if (!make_tables(f, c, e, at)) return by_evaluator(f, c, in, out, e, at);
  memcpy(f->in, in, f->plan->inputs * sizeof *in);
  Exec x = {.f = f, .in = f->in, .e = e, .at = at, .told = told};
  start_inner(&x, c);
  x.b = bound_find(f, c->env);
  if (!x.b || !x.b->checked) {
    if (!gr_check_sizes(f->g, c->env, e, at)) return false;
    x.b = bound_get(f, c->env);
    x.b->checked = true;
  }
  if (x.b->reference) return by_evaluator(f, c, in, out, e, at);
  for (size_t i = 0; i < f->plan->g->input_count; i++) {
    if (!same_input(&x, i)) return gr_check_inputs(f->g, c->env, in, e, at);
  }
  if (interrupt_asked(c->interrupt)) return gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
  Mem *m = c->mem;
  size_t mark = mem_pool_mark(m);
  Account account;
  jit_level(f->j, f->j->depth + 1);
  if (!make_room(&x)) return false;
  mem_pool_reserve(m, 1);
  open_account(&x, &account);
  f->running = true;
  f->j->count.runs++;
  f->j->depth++;
  x.account = &account;
  mem_pool_add(m, f, run_release);
  Outcome o = run_steps(&x, out);
  if (x.last) { /* the pool has what `commit` put there */
    mem_pool_take(m, mark);
    run_release(f);
    return o == RUN_OK;
  }
  mem_pool_drain(m, mark);
  if (o == RUN_OK && close_account(&x, &account, x.copied)) return true;
  if (o == RUN_OK) {
    for (size_t i = 0; i < f->g->output_count; i++) {
      tn_unref(out[i]);
      out[i] = NULL;
    }
    return false;
  }
  if (o == RUN_ERROR) return false;
  if (!again(&x, out)) return false;
  if (o == RUN_NO_ROOM) return true;
  for (size_t i = 0; i < f->g->output_count; i++) {
    tn_unref(out[i]);
    out[i] = NULL;
  }
  return gerr_set(e, ERR_BUG, -1, "compiled code of `%s` reported a failure that is none",
                  f->g->name ? f->g->name : "a function");
}

bool jit_run(JitFn *f, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *at) {
  GErr scratch;
  Prov nowhere;
  if (!e) e = &scratch;
  if (!at) at = &nowhere;
  if (!f->hosts) return run_with(f, NULL, c, in, out, e, at);
  size_t mark = mem_pool_mark(c->mem);
  Told *told = mem_need(c->mem, NULL, 0, sizeof *told);
  *told = (Told){.mem = c->mem};
  mem_pool_add(c->mem, told, told_release);
  bool ok = run_with(f, told, c, in, out, e, at);
  mem_pool_drain(c->mem, mark);
  return ok;
}
