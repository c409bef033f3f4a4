/* Runs a loop whose turns are one kernel (jit/lower/lower_turns.h), or each a list of kernels
 * (run_list.c).
 *
 * In: the tensors of a `loop` node. Out: its results, as the evaluator would give them. Rows that
 * are kept lie in one tensor, which the loop of the gradient reads as it is. A long loop runs in
 * parts, so that it can be interrupted, with what it carries in memory between them. With `while`
 * parts grow, and so does the room for rows. Rows that are made again (graph/replay.h) are not
 * kept: parts end where a state is due, and turns run again as a part of a loop whose rows are
 * wanted, or are not. Who reads such rows runs in parts for which they are there. What does not fit
 * (rows that are tensors of their own, no memory for all rows), or fails, is left to the evaluator.
 */
#include <string.h>

#include "graph/cost.h"
#include "graph/stash.h"
#include "jit/plan/run_impl.h"

/* Turns of a part; with `while`; of lists; under CKL_CHECK. */
enum { PART = 8192, FIRST = 64, LIST_PART = 16, FEW = 3 };

/* ---- tensors */

bool turns_drop(const Turns *t, int output) {
  return output >= t->kept && !(t->made && output >= t->again);
}

bool turns_replay(const Turns *t, int input) {
  bool row = input > t->carry && input <= t->carry + t->rows;
  return row && t->in && stash_replays(t->in[input]); /* a plan has no tensors */
}

/* Whether rows are dense, for a kernel all of them together. */
static bool rows_fit(const Turns *t, const Tensor *x) {
  int64_t step = 1;
  for (int k = x->rank - 1; k > 0; step *= x->dim[k--])
    if (x->stride[k] != step && x->dim[k] != 1) return false;
  return !t->k || x->stride[0] == step || x->dim[0] == 1;
}

/* Dense tensors of all inputs but rows that are made again; 0: the evaluator has to take the loop,
 * -1: no memory. */
static int take(Turns *t) {
  Mem *m = t->c->mem;
  for (int i = 1; i < t->inputs; i++) {
    bool row = i > t->carry && i <= t->carry + t->rows;
    if (turns_replay(t, i)) continue;
    Tensor *x = row ? stash_rows(t->in[i]) : t->in[i];
    if (row && !x && !t->k) continue;
    if (!x || (row && (x->dim[0] < t->count || !rows_fit(t, x)))) return 0;
    t->own[i] = row || tn_is_contiguous(x) ? tn_ref(x) : tn_contiguous(m, x);
    if (!t->own[i]) return -1;
  }
  return 1;
}

/* Whether x has rows of input i. */
static bool is_rows_of(const Turns *t, int i, const Tensor *x) {
  const Type *ty = gr_type(t->body, t->body->inputs[i]);
  bool same = x->dtype == (DType)ty->dtype && x->rank == ty->rank + 1;
  for (int k = 0; k < ty->rank && same; k++) {
    int64_t n;
    same = dim_eval(t->body->dims, ty->dim[k], t->c->env, NULL, &n) && n == x->dim[k + 1];
  }
  return same;
}

/* Gets the rows that are made again, from turn `first` on. Lowers *n to as many turns as there are
 * rows for. 0: it is for the evaluator, -1 with `e`. */
static int take_again(Turns *t, int64_t first, int64_t *n, GErr *e, Prov *at) {
  bool there = true;
  for (int i = 1; i < t->inputs; i++) {
    const Tensor *x = t->own[i];
    if (!turns_replay(t, i)) continue;
    there &= x && first >= t->low[i] && first < t->low[i] + x->dim[0];
  }
  for (int i = 1; i < t->inputs && !there; i++) { /* room for the next ones */
    if (!turns_replay(t, i)) continue;
    tn_unref(t->own[i]);
    t->own[i] = NULL;
  }
  for (int i = 1; i < t->inputs; i++) {
    if (!turns_replay(t, i)) continue;
    if (!there && !(t->own[i] = stash_again(t->in[i], first, &t->low[i], t->c, e, at)))
      return e->code ? -1 : 0;
    const Tensor *x = t->own[i];
    int64_t left = t->reverse ? first - t->low[i] + 1 : t->low[i] + x->dim[0] - first;
    if (!is_rows_of(t, i, x)) return 0;
    if (left < *n) *n = left;
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

Tensor *turns_output(Turns *t, int output, int64_t n) {
  Tensor *x = t->spare ? t->spare[output] : NULL;
  if (!x) return turns_tensor(t, output, n);
  t->spare[output] = NULL;
  if (output < t->carry || x->dim[0] == n) return x;
  tn_unref(x);
  return turns_tensor(t, output, n);
}

/* Tensors of all results that somebody wants, with rows for `count` turns, of which `done` are
 * there; and one for what nobody wants. False when out of memory. */
static bool make(Turns *t, int64_t count, int64_t done) {
  Tensor **junk = &t->own[t->inputs + t->gives];
  int64_t most = 0;
  t->room = count;
  for (int i = done ? t->carry : 0; i < t->gives; i++) {
    const Type *ty = gr_type(t->body, t->body->outputs[i]);
    int64_t each = turns_drop(t, i) ? cost_bytes(t->body, ty, t->c->env) : 0;
    if (each > most) most = each;
    if (turns_drop(t, i)) continue;
    Tensor **to = &t->own[t->inputs + i], *x = turns_output(t, i, count);
    if (!x) return false;
    if (done) memcpy(tn_data(x), tn_data(*to), (size_t)(tn_bytes(x) / count * done));
    tn_unref(*to);
    *to = x;
  }
  if (most && !*junk) *junk = tn_new(t->c->mem, DEV_CPU, DT_U8, 1, &most);
  return !most || *junk;
}

/* ---- one kernel */

int64_t turns_local(const Kernel *k) {
  int64_t arg[TURNS_ARGS] = {1}; /* no size depends on them */
  return lp_local_bytes(k, arg);
}

/* The bytes before the rows of this part in the tensor of an input, or output. */
static int64_t bytes_before(const Turns *t, int i, int64_t lowest) {
  int output = i - t->inputs;
  const Tensor *x = t->own[i];
  bool row = output < 0 ? i > t->carry && i <= t->carry + t->rows : output >= t->carry;
  return row && lowest != t->low[i] ? (lowest - t->low[i]) * (tn_bytes(x) / x->dim[0]) : 0;
}

/* Runs `n` turns of the kernel from number `first` on. Sets how many ran, and how many nodes of
 * sides of choices in them. */
static bool part(Turns *t, int64_t n, int64_t first, int64_t ran[2], KStatus *st, GErr *e) {
  Engine *engine = t->f->j->engine;
  int all = t->inputs + t->gives;
  int64_t lowest = t->reverse ? first - n + 1 : first;
  bool check = t->k->checked;
  memcpy(t->arg, (int64_t[TURNS_ARGS]){n, first, lowest, t->kept > t->carry, t->made},
         TURNS_ARGS * sizeof *t->arg);
  for (size_t i = 0; i < t->k->buf_count && check; i++)
    t->arg[TURNS_ARGS + i] = t->k->bufs[i].each * (int64_t)dt_size((DType)t->k->bufs[i].dtype);
  for (int i = 1; i < all; i++) {
    bool drop = i >= t->inputs && turns_drop(t, i - t->inputs);
    int64_t before = drop ? 0 : bytes_before(t, i, lowest);
    const Tensor *x = t->own[drop ? all : i];
    t->buf[i - 1] = (char *)tn_data(x) + before;
    if (check) t->arg[TURNS_ARGS + i - 1] = tn_bytes(x) - before;
  }
  t->buf[all - 1] = ran;
  t->arg[TURNS_ARGS + all - 1] = 2 * (int64_t)sizeof *ran;
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
  t->behind = false;
  return true;
}

/* ---- a loop */

bool turns_as_kernel(const JitFn *f, const Step *s) {
  return s->turns && !f->j->config.lists;
}

bool turns_as_list(const JitFn *f, const Step *s) {
  const Graph *g = f->plan->g;
  const JitFn *body = f->regions[g->nodes[s->node].region0];
  return body && body->listed && !gr_attr(g, s->node, AT_COUNTER);
}

/* Whether the loop of a step can run here; then what is known of it is in *t. */
static bool begin(Turns *t, JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, int64_t count) {
  const Graph *g = f->plan->g;
  Engine *engine = f->j->engine;
  JitFn *body = f->regions[g->nodes[s->node].region0];
  const Graph *region = g->regions[g->nodes[s->node].region0];
  bool one = turns_as_kernel(f, s);
  if (!one && !turns_as_list(f, s)) return false;
  for (size_t i = 0; i < region->input_count; i++) /* of a row, with the turns' axis */
    if (gr_type(region, region->inputs[i])->rank == CKL_MAX_RANK) return false;
  for (size_t i = 0; i < region->output_count; i++)
    if (gr_type(region, region->outputs[i])->rank == CKL_MAX_RANK) return false;
  if (count < 1 || c->after || c->anomaly || (engine && eng_config(engine)->emulate)) return false;
  *t = (Turns){.f = f,
               .c = c,
               .in = in,
               .count = count,
               .body = region,
               .k = one ? f->plan->low.launches[s->launch].k : NULL,
               .fn = one ? NULL : body,
               .carry = (int)gr_attr_i(g, s->node, AT_CARRY, 0),
               .rows = (int)gr_attr_i(g, s->node, AT_MAPPED, 0),
               .goes_on = gr_attr(g, s->node, AT_WHILE) != NULL,
               .reverse = gr_attr_i(g, s->node, AT_REVERSE, 0) != 0};
  t->code = one && engine ? f->code[s->launch] : NULL;
  t->inputs = (int)t->body->input_count;
  t->gives = (int)t->body->output_count;
  t->again = gr_again(g, s->node) ? (int)gr_attr_i(g, s->node, AT_AGAIN, t->gives) : t->gives;
  t->kept = t->again;
  size_t bufs = t->k ? t->k->buf_count : 0, tensors = (size_t)(t->inputs + t->gives);
  size_t all = tensors + 1 + (size_t)(t->k ? 0 : t->carry);
  t->own =
      tn_refs(c->mem, all, bufs * sizeof(void *) + (TURNS_ARGS + bufs + tensors) * sizeof(int64_t));
  t->buf = (void **)(t->own + all);
  t->arg = (int64_t *)(void *)(t->buf + bufs);
  t->low = t->arg + TURNS_ARGS + bufs;
  return true;
}

/* Gets inputs, and makes room for rows of `count` turns, the first of which has number `first`. 1;
 * 0: the evaluator has to take the loop; -1, with `e` unless there is no memory. */
static int start(Turns *t, int64_t first, int64_t count, GErr *e, Prov *at) {
  int64_t n = count;
  int ok = take(t);
  if (ok > 0) ok = take_again(t, first, &n, e, at);
  if (ok > 0 && t->fn) ok = list_open(t, t->fn, count);
  if (ok > 0 && t->k && !make(t, count, 0)) ok = 0;
  return ok;
}

/* Runs turns from number `first` on, n at most, and sets *n to how many ran: fewer at the end of a
 * `while`, or where rows that are made again end. Returns as `start`. */
static int run_part(Turns *t, int64_t first, int64_t *n, GErr *e, Prov *at) {
  KStatus st = {0};
  int64_t now = *n, ran[2];
  int ok = take_again(t, first, &now, e, at);
  if (ok <= 0) return ok;
  if (interrupt_asked(t->c->interrupt)) {
    gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
    return -1;
  }
  if (t->k && t->behind && !go_on(t)) return -1;
  if (!(t->k ? part(t, now, first, ran, &st, e) : list_part(t, now, first, n, &st, e, at)))
    return -1;
  if (st.failed) return 0; /* it finds the turn, and says what is wrong */
  if (t->k) {
    *n = t->goes_on ? ran[0] : now;
    t->nodes += (uint64_t)(ran[1] + *n * (int64_t)(t->body->node_count - t->body->input_count));
  }
  t->ends = t->k ? t->goes_on && !tn_get_i64(t->own[t->inputs], 0) : *n < now;
  t->ran += *n;
  t->behind = true;
  return 1;
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

/* Keeps what is carried before the next turn, if it is due. False when out of memory. */
static bool keep_state(Turns *t, Replay *p) {
  Tensor **now = t->own + t->inputs;
  if (!replay_due(p, t->ran)) return true;
  if (!t->ran) return replay_before(p, 0, t->in + 1);
  if (t->fn) list_settle(t);
  if (!replay_before(p, t->ran, now)) return false;
  for (int i = 0; i < t->carry; i++) { /* the state stays as it is */
    Tensor *x = turns_tensor(t, i, 1), **before = &t->own[1 + i];
    if (!x) return false;
    tn_unref(t->k ? *before : now[i]);
    if (t->k) *before = now[i];
    now[i] = x;
  }
  t->apart = t->behind = false;
  return true;
}

/* Makes room for the rows of the next turn that are made again. False when out of memory. */
static bool make_last(Turns *t) {
  for (int i = t->inputs + t->again; i < t->inputs + t->gives; i++) {
    t->low[i] = t->ran;
    if (!t->own[i] && !(t->own[i] = turns_tensor(t, i - t->inputs, 1))) return false;
  }
  return true;
}

static void drop_replay(void *p) {
  replay_unref(p);
}

/* Moves the results to `out`. */
static bool give(Turns *t, Replay *p, Tensor **out) {
  Mem *m = t->c->mem;
  if (t->fn) list_settle(t);
  if (p && !replay_end(p, t->ran, t->made ? t->own + t->inputs : NULL, true)) return false;
  for (int i = 0; i < t->gives; i++) {
    Tensor *x = t->own[t->inputs + i], **to = &out[i + (t->goes_on && i >= t->carry)];
    if (i < t->again) t->own[t->inputs + i] = NULL;
    *to = i < t->carry   ? x
          : i < t->again ? rows_of(t, x, t->ran)
                         : stash_replayed(m, p, i - t->again, t->ran);
    if (!*to) return false;
  }
  return !t->goes_on || (out[t->carry] = tn_scalar_i64(m, DEV_CPU, DT_I64, t->ran));
}

int turns_run(JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e,
              Prov *at) {
  const Graph *g = f->plan->g;
  Mem *m = c->mem;
  Turns t;
  size_t mark = mem_pool_mark(m);
  Replay *p = NULL;
  int64_t count = tn_get_i64(in[0], 0);
  if (!begin(&t, f, s, c, in, count)) return 0;
  bool again = t.again < t.gives, known = !t.goes_on;
  int64_t most = t.fn ? LIST_PART : f->j->config.check ? FEW : t.goes_on ? FIRST : PART;
  int ok = (t.goes_on && !tn_get_i64(in[1], 0)) || (again && t.reverse) ? 0 : 1;
  if (ok) ok = start(&t, t.reverse ? count - 1 : 0, known || count < most ? count : most, e, at);
  if (ok > 0 && again) {
    mem_pool_reserve(m, 1);
    p = replay_of(g, s->node, c, in);
    if (p) mem_pool_add(m, p, drop_replay);
    if (!p) ok = -1;
  }
  while (ok > 0 && t.ran < count && !t.ends) {
    int64_t left = count - t.ran, n = left < most ? left : most;
    if (p && !keep_state(&t, p)) ok = -1;
    if (p && replay_until(p, t.ran) < n) n = replay_until(p, t.ran);
    t.made = p && known && left == 1; /* the rows of the last turn stay */
    if (p && known && n == left && left > 1) n--;
    if (t.made && !make_last(&t)) ok = -1;
    int64_t more = n > t.room - t.ran ? 2 * (t.ran + n) : 0;
    if (ok > 0 && more) {
      if (t.fn) list_settle(&t);
      if (!(t.fn ? list_rows : make)(&t, more, t.ran)) ok = 0; /* it says how far it comes */
    }
    if (ok > 0) ok = run_part(&t, t.reverse ? count - 1 - t.ran : t.ran, &n, e, at);
    if (t.k && t.goes_on && !f->j->config.check && most < PART) most *= 2;
    for (int64_t i = 0; c->turn && i < n && ok > 0; i++)
      c->turn(c->turn_ud, g->provs[g->nodes[s->node].prov].span);
  }
  if (ok > 0 && !give(&t, p, out)) ok = -1;
  if (ok > 0) c->nodes_run += t.nodes;
  mem_pool_drain(m, mark);
  if (ok < 0 && !e->code) gerr_set(e, ERR_NOMEM, -1, "out of memory");
  return ok;
}

/* ---- turns that run again */

int turns_again(JitFn *f, const Step *s, RunCtx *c, Tensor *const *in, int64_t first, int64_t n,
                bool rows, Tensor **out, GErr *e, Prov *at) {
  Mem *m = c->mem;
  Turns t;
  size_t mark = mem_pool_mark(m);
  if (!begin(&t, f, s, c, in, n)) return 0;
  int64_t most = t.k ? PART : LIST_PART;
  t.kept = t.carry;
  t.made = rows;
  t.spare = out;
  for (int i = t.again; i < t.gives; i++) t.low[t.inputs + i] = first;
  int ok = start(&t, first, n, e, at);
  while (ok > 0 && t.ran < n) {
    int64_t now = n - t.ran < most ? n - t.ran : most;
    ok = run_part(&t, first + t.ran, &now, e, at);
    if (ok > 0 && t.ends && t.ran < n) ok = 0;
  }
  if (ok > 0 && t.fn) list_settle(&t);
  for (int i = 0; i < t.gives && ok > 0; i++) {
    if (turns_drop(&t, i)) continue;
    tn_unref(out[i]);
    out[i] = t.own[t.inputs + i];
    t.own[t.inputs + i] = NULL;
  }
  if (ok > 0) c->nodes_run += t.nodes;
  mem_pool_drain(m, mark);
  if (ok < 0 && !e->code) gerr_set(e, ERR_NOMEM, -1, "out of memory");
  return ok;
}
