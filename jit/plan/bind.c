/* Offsets in the arena, arguments and buffers of every launch, for one set of sizes.
 *
 * In: a plan and the values of symbols. Out: a Bound. The function keeps the Bounds of the last few
 * sets of sizes, so a call in the steady state computes only arguments that are no sizes, such as a
 * count of steps. Kernels do not take some sizes (0 elements anywhere, a slice outside its axis).
 * The reference evaluator runs such a call, or reports the error.
 */
#include <string.h>

#include "graph/cost.h"
#include "graph/structure.h"
#include "jit/plan/plan.h"

void bound_free(JitFn *f, Bound *b) {
  arena_free(&b->arena);
  mem_free(f->j->mem, b, sizeof *b);
}

typedef struct Binder {
  JitFn *f;
  Bound *b;
  const Graph *g;
  const int64_t *env;
} Binder;

static bool value(const Binder *w, int64_t d, int64_t least, int64_t *out) {
  return dim_eval(w->g->dims, (Dim)d, w->env, NULL, out) && *out >= least;
}

static bool slice_inside(const Binder *w, uint32_t node) {
  const Type *t = gr_type(w->g, gr_operand(w->g, node, 0));
  const Attr *start = gr_attr(w->g, node, AT_STARTS), *len = gr_attr(w->g, node, AT_LENS);
  const Attr *step = gr_attr(w->g, node, AT_STEPS);
  for (int k = 0; k < t->rank; k++) {
    int64_t n, from, count;
    if (!value(w, t->dim[k], 1, &n) || !value(w, start->u.ints[k], 0, &from) ||
        !value(w, len->u.ints[k], 1, &count))
      return false;
    if (from >= n || count - 1 > (n - 1 - from) / step->u.ints[k]) return false;
  }
  return true;
}

/* Whether kernels take these sizes. */
static bool plain_sizes(const Binder *w) {
  const Graph *g = w->g;
  int64_t n;
  for (size_t i = 0; i < g->type_count; i++) {
    const Type *t = &g->types[i];
    int64_t all = 16; /* no element count times 16 overflows */
    if (t->kind == TK_TOKEN) continue;
    for (int k = 0; k < t->rank; k++) {
      if (!value(w, t->dim[k], 1, &n) || __builtin_mul_overflow(all, n, &all)) return false;
    }
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *x = &g->nodes[i];
    if (x->op == OP_SLICE && !slice_inside(w, i)) return false;
    for (uint32_t k = 0; k < x->attr_count; k++) {
      const Attr *a = &g->attrs[x->attr0 + k];
      if (a->kind == AK_DIM && !value(w, a->u.i, x->op == OP_DIM ? INT64_MIN : 0, &n)) return false;
      for (uint32_t q = 0; a->kind == AK_DIMS && q < a->count; q++) {
        if (!value(w, a->u.ints[q], 0, &n)) return false;
      }
    }
  }
  return true;
}

/* Products of tiles in registers, beside which all else in their kernels is little, do about so
 * many times the operations of elementwise code. */
enum { TILE_RATE = 16 };

static bool has_tile(const Kernel *k) {
  for (size_t i = 0; i < k->count; i++)
    if (k->ins[i].op == LP_TILE) return true;
  return false;
}

static bool bind_launch(Binder *w, const Step *s) {
  const Plan *p = w->f->plan;
  const Launch *l = &p->low.launches[s->launch];
  BoundLaunch *x = &w->b->launches[s->launch];
  Arena *a = &w->b->arena;
  size_t bufs = l->k->buf_count;
  x->args = ARENA_ARRAY(a, int64_t, l->k->arg_count + bufs + 1);
  if (l->k->checked || w->f->j->config.walk) x->elements = ARENA_ARRAY(a, int64_t, bufs + 1);
  for (uint32_t i = 0; i < l->k->arg_count; i++) {
    x->args[i] = l->args[i].bits;
    if (l->args[i].kind == ARG_DIM && !value(w, l->args[i].dim, INT64_MIN, &x->args[i]))
      return false;
  }
  x->bufs = ARENA_ARRAY(a, Where, l->k->buf_count + 1);
  uint32_t inputs = 1, results = inputs + (uint32_t)w->g->input_count;
  uint32_t helds = results + (uint32_t)p->result_count;
  for (size_t i = 0; i < l->k->buf_count; i++) {
    const BufUse *u = &l->bufs[i];
    Place at = {PLACE_ARENA, s->panel0 + u->panel};
    Where *to = &x->bufs[i];
    if (u->kind == USE_LOCAL) continue;
    int64_t n, each = (int64_t)dt_size((DType)l->k->bufs[i].dtype);
    if (!buf_is_panel(u, w->g->dims, w->env)) {
      at = p->place[plan_index(w->g, u->v)];
      const Type *t = gr_type(w->g, u->v);
      n = cost_elements(w->g, t, w->env);
      x->bytes = cost_add(x->bytes, cost_bytes(w->g, t, w->env));
    } else if (!value(w, p->slots[at.index].count, 0, &n)) {
      return false;
    }
    if (x->elements) x->elements[i] = n;
    x->args[l->k->arg_count + i] = n * each;
    switch ((PlaceKind)at.kind) {
    case PLACE_ARENA: *to = (Where){0, w->b->offset[at.index]}; break;
    case PLACE_INPUT: *to = (Where){inputs + at.index, 0}; break;
    case PLACE_RESULT: *to = (Where){results + at.index, 0}; break;
    case PLACE_HELD: *to = (Where){helds + at.index, 0}; break;
    case PLACE_NONE: CK_ASSERT(w->f->j->mem, false);
    }
  }
  x->iterations = lp_iterations(l->k, x->args);
  x->local_bytes = lp_local_bytes(l->k, x->args);
  if (x->iterations < 0 || x->local_bytes < 0) return false;
  if (x->local_bytes > w->b->local_bytes) w->b->local_bytes = x->local_bytes;
  if (!value(w, l->flops, 0, &x->work)) x->work = 0;
  /* A guess where lowering gave none: an operation for every 4 bytes that move. */
  if (x->work < x->bytes / 4) x->work = x->bytes / 4;
  x->effort = has_tile(l->k) ? x->work / TILE_RATE : x->work;
  return true;
}

static bool bind_arena(Binder *w) {
  const Plan *p = w->f->plan;
  Arena *a = &w->b->arena;
  w->b->offset = ARENA_ARRAY(a, int64_t, p->slot_count + 1);
  w->b->bytes = ARENA_ARRAY(a, int64_t, p->slot_count + 1);
  MemItem *items = ARENA_ARRAY(a, MemItem, p->slot_count + 1);
  uint32_t *of = ARENA_ARRAY(a, uint32_t, p->slot_count + 1);
  size_t n = 0;
  for (uint32_t i = 0; i < p->slot_count; i++) {
    const Slot *s = &p->slots[i];
    int64_t count, bytes;
    if (s->first == UINT32_MAX) continue; /* nobody touches it */
    if (!value(w, s->count, 0, &count) || count > INT64_MAX / 16) return false;
    bytes = (count * (int64_t)dt_size(s->dtype) + 63) / 64 * 64;
    of[n] = i;
    items[n++] = (MemItem){.bytes = bytes, .first = s->first, .last = s->last};
  }
  w->b->arena_bytes = memplan(a, items, n);
  w->b->live_bytes = memplan_live(a, items, n, &w->b->peak_step);
  w->b->last = ARENA_ARRAY(a, uint32_t, p->slot_count + 1);
  for (size_t i = 0; i < n; i++) {
    w->b->bytes[of[i]] = items[i].bytes;
    bool there = items[i].first <= w->b->peak_step && w->b->peak_step <= items[i].last;
    if (there && p->slots[of[i]].panel) w->b->panel_bytes += items[i].bytes;
    if (items[i].first <= p->forward_end && p->forward_end < items[i].last)
      w->b->saved_bytes += items[i].bytes;
  }
  if (p->transfer_count && w->b->arena_bytes >= 0) transfer_bind(p, w->b, w->env, items, of, n);
  if (a->mem->check && w->b->arena_bytes >= 0)
    plan_check_places(a->mem, a, items, n, w->b->arena_bytes);
  for (size_t i = 0; i < n; i++) {
    w->b->offset[of[i]] = items[i].offset;
    w->b->last[of[i]] = items[i].last;
  }
  return w->b->arena_bytes >= 0;
}

static bool bind_all(Binder *w) {
  const Plan *p = w->f->plan;
  Arena *a = &w->b->arena;
  if (!plain_sizes(w)) return false;
  if (!bind_arena(w)) return false;
  w->b->launches = ARENA_ARRAY(a, BoundLaunch, p->low.count + 1);
  for (size_t i = 0; i < p->step_count; i++) {
    if (p->steps[i].kind == STEP_KERNEL && !bind_launch(w, &p->steps[i])) return false;
  }
  size_t inputs = w->g->input_count;
  w->b->dims =
      ARENA_ARRAY(a, int64_t, (inputs + p->result_count + p->held_count + 1) * CKL_MAX_RANK);
  for (size_t i = 0; i < inputs + p->result_count; i++) {
    Val v = i < inputs ? w->g->inputs[i] : p->results[i - inputs];
    const Type *t = gr_type(w->g, v);
    int64_t bytes = (int64_t)dt_size((DType)t->dtype), *dim = w->b->dims + i * CKL_MAX_RANK;
    if (t->kind == TK_TOKEN) continue;
    for (int k = 0; k < t->rank; k++) {
      if (!value(w, t->dim[k], 1, &dim[k])) return false;
      bytes *= dim[k];
    }
    if (i >= inputs) w->b->result_bytes += bytes;
  }
  return true;
}

/* ---- what is no size */
static void mark_symbol(void *used, Sym s) {
  ((bool *)used)[s] = true;
}

/* Whether there are conditions on numbers. A condition does not make a number a size. */
static bool mark_checks(const Graph *g, bool *used) {
  bool numbers = false;
  for (size_t i = 0; i < g->check_count; i++) {
    const SizeCheck *c = &g->checks[i];
    if (c->kind == CHECK_FITS) {
      numbers = true;
      continue;
    }
    dim_symbols(g->dims, c->a, mark_symbol, used);
    dim_symbols(g->dims, c->b, mark_symbol, used);
  }
  for (size_t i = 0; i < g->region_count; i++) numbers |= mark_checks(g->regions[i], used);
  return numbers;
}

/* Marks the symbols in all dims that bind_all evaluates, except arguments. */
static void mark_sizes(const Plan *p, bool *used) {
  const Graph *g = p->g;
  for (size_t i = 0; i < g->type_count; i++)
    for (int k = 0; k < g->types[i].rank; k++)
      dim_symbols(g->dims, g->types[i].dim[k], mark_symbol, used);
  for (uint32_t i = 0; i < g->node_count; i++) {
    for (uint32_t k = 0; k < g->nodes[i].attr_count; k++) {
      const Attr *a = &g->attrs[g->nodes[i].attr0 + k];
      if (a->kind == AK_DIM && g->nodes[i].op != OP_DIM)
        dim_symbols(g->dims, (Dim)a->u.i, mark_symbol, used);
      for (uint32_t q = 0; a->kind == AK_DIMS && q < a->count; q++)
        dim_symbols(g->dims, (Dim)a->u.ints[q], mark_symbol, used);
    }
  }
  for (size_t i = 0; i < p->slot_count; i++)
    dim_symbols(g->dims, p->slots[i].count, mark_symbol, used);
  for (size_t i = 0; i < p->low.count; i++) {
    const Launch *l = &p->low.launches[i];
    dim_symbols(g->dims, l->flops, mark_symbol, used);
    for (size_t k = 0; k < l->k->buf_count; k++)
      if (l->bufs[k].either) dim_symbols(g->dims, l->bufs[k].copied, mark_symbol, used);
  }
}

typedef struct Reads {
  const bool *sizing;
  bool other;
} Reads;

static void look_symbol(void *ud, Sym s) {
  Reads *r = ud;
  r->other |= !r->sizing[s];
}

static void find_loose(JitFn *f) {
  const Plan *p = f->plan;
  bool *used = ARENA_ARRAY(&f->arena, bool, f->symbols + 1u);
  f->numbers_checked = mark_checks(f->g, used);
  mark_sizes(p, used);
  f->loose_count = 0;
  for (uint32_t i = 0; i < p->low.count; i++) {
    const Launch *l = &p->low.launches[i];
    for (uint32_t k = 0; k < l->k->arg_count; k++) {
      Reads r = {used, false};
      if (l->args[k].kind == ARG_DIM) dim_symbols(p->g->dims, l->args[k].dim, look_symbol, &r);
      if (r.other)
        VEC_PUSH(&f->arena, f->loose, f->loose_count, f->loose_cap, ((struct LooseArg){i, k}));
    }
  }
  f->sizing = used;
}

/* Computes the arguments again for other numbers, with equal sizes. False: b is spoilt. */
static bool renew(JitFn *f, Bound *b, const int64_t *env) {
  Binder w = {f, b, f->plan->g, env};
  for (size_t i = 0; i < f->loose_count; i++) {
    struct LooseArg at = f->loose[i];
    const Launch *l = &f->plan->low.launches[at.launch];
    BoundLaunch *x = &b->launches[at.launch];
    if (!value(&w, l->args[at.arg].dim, INT64_MIN, &x->args[at.arg])) return false;
    x->iterations = lp_iterations(l->k, x->args);
    x->local_bytes = lp_local_bytes(l->k, x->args);
    if (x->iterations < 0 || x->local_bytes < 0) return false;
    if (x->local_bytes > b->local_bytes) b->local_bytes = x->local_bytes;
  }
  memcpy(b->env, env, f->symbols * sizeof *env);
  if (f->numbers_checked) b->checked = false;
  return true;
}

static bool same_sizes(const JitFn *f, const Bound *b, const int64_t *env) {
  for (Sym i = 0; i < f->symbols; i++)
    if (f->sizing[i] && b->env[i] != env[i]) return false;
  return true;
}

Bound *bound_find(JitFn *f, const int64_t *env) {
  for (Bound **link = &f->bound; *link;) {
    Bound *b = *link;
    if (!b->ready) { /* a throw interrupted its making, or it was spoilt */
      *link = b->next;
      bound_free(f, b);
      continue;
    }
    if (f->symbols && env && memcmp(b->env, env, f->symbols * sizeof *env)) {
      bool same = !b->reference && same_sizes(f, b, env);
      if (same) b->ready = renew(f, b, env);
      if (!same || !b->ready) {
        link = &b->next;
        continue;
      }
    }
    *link = b->next;
    b->next = f->bound;
    f->bound = b;
    return b;
  }
  return NULL;
}

Bound *bound_get(JitFn *f, const int64_t *env) {
  Bound *b = bound_find(f, env);
  if (b) return b;
  if (!f->sizing) find_loose(f);
  Mem *m = f->j->mem;
  int n = 0;
  for (Bound **link = &f->bound; *link; link = &(*link)->next) {
    if (++n < JIT_BOUND_MAX) continue;
    bound_free(f, *link); /* the least recent */
    *link = NULL;
    break;
  }
  b = mem_need(m, NULL, 0, sizeof *b);
  *b = (Bound){.next = f->bound};
  arena_init(&b->arena, m);
  f->bound = b; /* freed with f, or when it is looked for and not ready */
  b->env = ARENA_ARRAY(&b->arena, int64_t, f->symbols + 1u);
  if (f->symbols && env) memcpy(b->env, env, f->symbols * sizeof *env);
  Binder w = {f, b, f->plan->g, b->env};
  b->reference = !bind_all(&w);
  b->ready = true;
  return b;
}
