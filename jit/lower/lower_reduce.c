/* Reductions over any axes: GROUP_REDUCE, and several over the same axes: GROUP_COLUMNS.
 *
 * In: a group with one or more reductions of values of one shape over the same axes, and pointwise
 * functions of the results. Out: one kernel, or two: the first reduces blocks of 4,096 elements,
 * each by itself, into a panel [blocks][results], the second combines blocks by the tree. So a long
 * reduction runs on all threads, and the order is that of rule 105 (ref_reduce.c).
 *
 * Where the innermost axis is reduced, a block is an LP_RED (a line). Lines of several pieces (the
 * axes that are reduced do not lie together) are first copied side by side: no division per
 * element. Where the innermost axis is kept, a panel of neighbouring results is worked on together,
 * lanes being rows of a matrix [16][panel].
 *
 * Invariant: f16 and bf16 are reduced in f32 and rounded once. */
#include <math.h>
#include <string.h>

#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"
#include "jit/lower/lower_op.h"

enum {
  BLOCK = 4096,
  LANES = 16,
  PANEL = 256,
  LEVELS = 52,
  MANY = 64,
  SHORT = 16,
  MAX_FOLDS = 32,
  SIDE = 2
};

/* ---- one reduction */

bool low_is_fold(OpCode op) {
  switch (op) {
  case OP_SUM:
  case OP_PROD:
  case OP_REDUCE_MAX:
  case OP_REDUCE_MIN:
  case OP_ANY:
  case OP_ALL: return true;
  default: return false;
  }
}

Fold low_fold(Low *w, uint32_t node) {
  Fold f = {.v = {node, 0}, .x = gr_operand(w->l->g, node, 0)};
  f.dt = (DType)low_type(w, f.x)->dtype;
  if (f.dt == DT_F16 || f.dt == DT_BF16) f.dt = DT_F32;
  switch ((OpCode)w->l->g->nodes[node].op) {
  case OP_SUM: f.kind = RED_SUM, f.f = RB_ADD, f.start = -0.0; break;
  case OP_PROD: f.kind = RED_PROD, f.f = RB_MUL, f.start = 1; break;
  case OP_REDUCE_MAX: f.kind = RED_MAX, f.f = RB_MAX, f.start = -(double)INFINITY; break;
  case OP_REDUCE_MIN: f.kind = RED_MIN, f.f = RB_MIN, f.start = (double)INFINITY; break;
  case OP_ANY: f.kind = RED_ANY, f.f = RB_OR; break;
  default: f.kind = RED_ALL, f.f = RB_AND, f.start = 1; break;
  }
  return f;
}

/* The result of an empty reduction. */
static double of_nothing(const Fold *f) {
  return f->kind == RED_SUM ? 0 : f->start;
}

LVal low_fold_x(Low *w, const Fold *f, const Spot *s) {
  LVal x = low_at(w, f->x, s);
  return x == LV_NONE ? x : lp_cast(w->k, x, f->dt);
}

void low_fold_know(Low *w, const Fold *f, const Spot *s, LVal x) {
  low_know(w, f->v, s, lp_cast(w->k, x, (DType)low_type(w, f->v)->dtype));
}

/* ---- a group of them */

typedef struct Job {
  Low w;
  Lower *l;
  const Group *g;
  int count;
  Fold fold[MAX_FOLDS];
  Space s;
  Dim results, length, blocks; /* of one result; of blocks */
  int reduced;                 /* pieces that are */
  bool two;                    /* kernels */
  uint32_t panel0;
} Job;

/* The spot made of digits of kept and of reduced pieces. */
static const Spot *spot_of(Job *j, const Digit *kept, const Digit *reduced) {
  Digits d = {0};
  for (int i = 0, a = 0, b = 0; i < j->s.count; i++) {
    d.d[d.count++] = j->s.cls[i] == REDUCED ? reduced[b++] : kept[a++];
  }
  return low_spot(&j->w, d.d, d.count);
}

static int kept_count(const Job *j) {
  return j->s.count - j->reduced;
}

/* Digits of number x among the pieces that are (not) reduced, but the `skip` last. */
static void digits_of(Job *j, bool reduced, int skip, LVal x, Digit *out) {
  int n = (reduced ? j->reduced : kept_count(j)) - skip, k = n;
  Dim size[MAX_DIGITS];
  for (int i = 0, a = 0; i < j->s.count; i++) {
    if ((j->s.cls[i] == REDUCED) == reduced) size[a++] = j->s.size[i];
  }
  while (--k > 0) out[k] = (Digit){low_take(&j->w, &x, size[k]), size[k]};
  if (n > 0) out[0] = (Digit){x, size[0]};
}

static Dim piece(const Job *j, bool reduced, int i) {
  for (int k = 0;; k++) {
    if ((j->s.cls[k] == REDUCED) == reduced && i-- == 0) return j->s.size[k];
  }
}

/* Stores the outs of the group. The results of its reductions are bound at this spot. */
static void store_outs(Job *j, const Spot *kept) {
  for (uint32_t i = 0; i < j->g->out_count; i++) low_store(&j->w, j->g->outs[i], kept);
}

/* Result `kept` is `x` (in the computing type): a partial one of block b, or the result. */
static void give(Job *j, const LVal *x, const Digit *kept, LVal b) {
  Low *w = &j->w;
  LVal at = low_merge(w, kept, kept_count(j));
  const Spot *s = low_spot(w, kept, kept_count(j));
  for (int i = 0; i < j->count; i++) {
    const Fold *f = &j->fold[i];
    if (j->two) {
      int buf = low_panel(w, j->panel0 + (uint32_t)i, f->dt, LB_OUT);
      lp_store(w->k, buf, add(w, mul(w, b, low_dim(w, j->results)), at), x[i]);
    } else {
      low_fold_know(w, f, s, x[i]);
    }
  }
  if (!j->two) store_outs(j, s);
}

/* ---- lines */

/* Copies elements from .. from + n - 1 of a line, which has several pieces, to `stage`. */
static void fill_stage(Job *j, const int *stage, const Digit *kept, LVal from, LVal n) {
  Low *w = &j->w;
  Kernel *k = w->k;
  int last = j->reduced - 1;
  Dim size = piece(j, true, last);
  LVal run = low_dim(w, size), row = lp_idiv(k, from, run), off = lp_irem(k, from, run);
  LVal runs = lp_idiv(k, add(w, add(w, off, n), sub(w, run, lp_i(k, 1))), run);
  LVal r = lp_for(k, runs);
  Digit q[MAX_DIGITS];
  digits_of(j, true, 1, add(w, row, r), q);
  LVal begin = sub(w, mul(w, r, run), off);
  LVal lo = lp_bin(k, RB_MAX, begin, lp_i(k, 0)), hi = low_least(w, add(w, begin, run), n);
  LVal at = add(w, lo, lp_vec(k, sub(w, hi, lo)));
  q[last] = (Digit){sub(w, at, begin), size};
  const Spot *s = spot_of(j, kept, q);
  for (int i = 0; i < j->count; i++) {
    LVal x = low_fold_x(w, &j->fold[i], s);
    if (x != LV_NONE) lp_store(k, stage[i], at, x);
  }
  lp_end(k);
  lp_end(k);
}

/* Makes an iteration of a block of two lines, so that additions of a lane wait less for one
 * another. A single last line is computed twice, with the same stores. */
static void lines(Job *j) {
  Low *w = &j->w;
  Kernel *k = w->k;
  bool staged = j->reduced > 1;
  int side = low_is(w, j->results, 1) || staged ? 1 : SIDE, stage[MAX_FOLDS];
  for (int i = 0; i < j->count && staged; i++) stage[i] = low_local(w, j->fold[i].dt, -1, BLOCK);
  Dim blocks = j->two ? j->blocks : low_const_dim(w, 1);
  LVal t = lp_par(k, low_dim(w, low_mul(w, low_ceil_div(w, j->results, side), blocks)));
  LVal b = low_take(w, &t, blocks), from = mul(w, b, lp_i(k, BLOCK));
  LVal n = low_dim(w, j->length), x[SIDE][MAX_FOLDS], y[SIDE][MAX_FOLDS];
  if (j->two) n = low_least(w, sub(w, n, from), lp_i(k, BLOCK));
  LVal first = mul(w, t, lp_i(k, side));
  LVal last = low_dim(w, low_sub(w, j->results, low_const_dim(w, 1)));
  Digit kept[SIDE][MAX_DIGITS], q[MAX_DIGITS];
  for (int u = 0; u < side; u++) {
    digits_of(j, false, 0, u ? low_least(w, add(w, first, lp_i(k, u)), last) : first, kept[u]);
  }
  if (staged) fill_stage(j, stage, kept[0], from, n);
  LVal i = lp_red(k, n);
  if (j->reduced) q[0] = (Digit){add(w, from, i), j->length};
  for (int u = 0; u < side; u++) {
    const Spot *s = staged ? NULL : spot_of(j, kept[u], q);
    for (int f = 0; f < j->count; f++) {
      x[u][f] = staged ? lp_load(k, stage[f], i) : low_fold_x(w, &j->fold[f], s);
      if (x[u][f] == LV_NONE) return;
      y[u][f] = lp_yield(k, j->fold[f].kind, x[u][f], LV_NONE);
    }
  }
  lp_end(k);
  for (int u = 0; u < side; u++) {
    for (int f = 0; f < j->count; f++) x[u][f] = lp_result(k, y[u][f]);
    give(j, x[u], kept[u], b);
  }
  lp_end(k);
}

/* ---- a few elements per result: results side by side, lanes as straight-line code */

static void few(Job *j, int64_t n) {
  Low *w = &j->w;
  Kernel *k = w->k;
  Space s = {0};
  Nest nest;
  for (int i = 0; i < j->s.count; i++) {
    if (j->s.cls[i] != REDUCED) s.size[s.count++] = j->s.size[i];
  }
  low_nest(w, &s, &nest);
  LVal lane[SHORT], x[MAX_FOLDS];
  Digit q[MAX_DIGITS];
  for (int f = 0; f < j->count; f++) {
    lane[0] = lp_const(k, j->fold[f].dt, j->fold[f].start);
    for (int64_t i = 0; i < n; i++) {
      digits_of(j, true, 0, lp_i(k, i), q);
      LVal v = low_fold_x(w, &j->fold[f], spot_of(j, nest.at.d, q));
      if (v == LV_NONE) return;
      lane[i] = lp_bin(k, j->fold[f].f, lp_const(k, j->fold[f].dt, j->fold[f].start), v);
    }
    for (int64_t h = LANES / 2; h > 0; h /= 2) {
      for (int64_t i = 0; i < h && i + h < n; i++)
        lane[i] = lp_bin(k, j->fold[f].f, lane[i], lane[i + h]);
    }
    x[f] = lane[0];
  }
  give(j, x, nest.at.d, LV_NONE);
  low_nest_end(w, &nest);
}

/* ---- columns */

/* Elements of a panel: buf[row * PANEL + column]. */
static LVal in_panel(Low *w, LVal row, LVal col) {
  return add(w, mul(w, row, lp_i(w->k, PANEL)), col);
}

static void columns(Job *j) {
  Low *w = &j->w;
  Kernel *k = w->k;
  int lane[MAX_FOLDS], last = kept_count(j) - 1;
  Dim size = piece(j, false, last), one = low_const_dim(w, 1);
  Dim panels = low_ceil_div(w, size, PANEL), iterations = panels, blocks = j->two ? j->blocks : one;
  for (int i = 0; i < j->count; i++) lane[i] = low_local(w, j->fold[i].dt, -1, LANES * PANEL);
  for (int i = 0; i < last; i++) iterations = low_mul(w, iterations, piece(j, false, i));
  LVal t = lp_par(k, low_dim(w, low_mul(w, iterations, blocks)));
  LVal first = mul(w, low_take(w, &t, panels), lp_i(k, PANEL));
  LVal b = low_take(w, &t, blocks), from = mul(w, b, lp_i(k, BLOCK));
  LVal n = low_dim(w, j->length), width = low_dim(w, size);
  if (j->two) n = low_least(w, sub(w, n, from), lp_i(k, BLOCK));
  width = low_least(w, sub(w, width, first), lp_i(k, PANEL));
  Digit kept[MAX_DIGITS], q[MAX_DIGITS];
  digits_of(j, false, 1, t, kept);

  LVal l = lp_for(k, lp_i(k, LANES)), c = lp_vec(k, width);
  for (int i = 0; i < j->count; i++) {
    lp_store(k, lane[i], in_panel(w, l, c), lp_const(k, j->fold[i].dt, j->fold[i].start));
  }
  lp_end(k);
  lp_end(k);

  LVal g =
      mul(w, lp_for(k, lp_idiv(k, add(w, n, lp_i(k, LANES - 1)), lp_i(k, LANES))), lp_i(k, LANES));
  l = lp_for(k, low_least(w, sub(w, n, g), lp_i(k, LANES)));
  digits_of(j, true, 0, add(w, from, add(w, g, l)), q);
  c = lp_vec(k, width);
  kept[last] = (Digit){add(w, first, c), size};
  const Spot *s = spot_of(j, kept, q);
  for (int i = 0; i < j->count; i++) {
    LVal x = low_fold_x(w, &j->fold[i], s), at = in_panel(w, l, c);
    if (x == LV_NONE) return;
    lp_store(k, lane[i], at, lp_bin(k, j->fold[i].f, lp_load(k, lane[i], at), x));
  }
  lp_end(k);
  lp_end(k);
  lp_end(k);

  for (int h = LANES / 2; h > 1; h /= 2) {
    l = lp_for(k, lp_i(k, h));
    c = lp_vec(k, width);
    for (int i = 0; i < j->count; i++) {
      LVal at = in_panel(w, l, c), x = lp_load(k, lane[i], at);
      LVal y = lp_load(k, lane[i], add(w, at, lp_i(k, h * PANEL)));
      lp_store(k, lane[i], at, lp_bin(k, j->fold[i].f, x, y));
    }
    lp_end(k);
    lp_end(k);
  }
  LVal x[MAX_FOLDS];
  c = lp_vec(k, width);
  kept[last] = (Digit){add(w, first, c), size};
  for (int i = 0; i < j->count; i++) {
    x[i] = lp_bin(k, j->fold[i].f, lp_load(k, lane[i], c),
                  lp_load(k, lane[i], add(w, c, lp_i(k, PANEL))));
  }
  give(j, x, kept, b);
  lp_end(k);
  lp_end(k);
}

/* ---- the second kernel: blocks by the tree */

/* Element of a partial result, `lane` of the block (0 where there are none). */
static LVal part_at(Low *w, const Tree *t, LVal block, int lane, LVal col) {
  LVal row = t->lanes ? add(w, mul(w, block, lp_i(w->k, LANES)), lp_i(w->k, lane)) : block;
  return add(w, mul(w, row, low_dim(w, t->results)), col);
}

static LVal block_result(Low *w, const Tree *t, int i, LVal block, LVal col) {
  LVal x[LANES];
  int buf = low_panel(w, t->panel0 + (uint32_t)i, t->fold[i].dt, LB_IN);
  for (int l = 0; l < (t->lanes ? LANES : 1); l++)
    x[l] = lp_load(w->k, buf, part_at(w, t, block, l, col));
  for (int h = LANES / 2; h > 0 && t->lanes; h /= 2) {
    for (int l = 0; l < h; l++) x[l] = lp_bin(w->k, t->fold[i].f, x[l], x[l + h]);
  }
  return x[0];
}

/* Pushes block after block on a stack of partial results. Block number b is first merged with as
 * many of them as b + 1 has trailing zeros. In the end the rest is merged from the top. */
bool low_tree(Lower *l, const Group *g, const Tree *t, Lowered *out, GErr *e) {
  Low one_low, *w = &one_low;
  int stack[MAX_FOLDS], now[MAX_FOLDS];
  low_begin(w, l, g, e);
  Kernel *k = w->k;
  w->flops = low_mul(w, low_mul(w, t->results, t->blocks),
                     low_const_dim(w, t->count * (t->lanes ? LANES : 1)));
#define EACH for (int i = 0; i < t->count; i++)
  EACH {
    stack[i] = low_local(w, t->fold[i].dt, -1, LEVELS * PANEL);
    now[i] = low_local(w, t->fold[i].dt, -1, PANEL);
  }
  LVal first = mul(w, lp_par(k, low_dim(w, low_ceil_div(w, t->results, PANEL))), lp_i(k, PANEL)), c;
  LVal width = low_least(w, sub(w, low_dim(w, t->results), first), lp_i(k, PANEL)),
       one = lp_i(k, 1);
  LVal depth = lp_var(k, lp_i(k, 0));
  c = lp_vec(k, width);
  EACH lp_store(k, now[i], c, lp_const(k, t->fold[i].dt, of_nothing(&t->fold[i])));
  lp_end(k);
  LVal b = lp_for(k, low_dim(w, t->blocks)), bound = add(w, b, one);
  c = lp_vec(k, width);
  EACH lp_store(k, now[i], c, block_result(w, t, i, b, add(w, first, c)));
  lp_end(k);
  lp_for(k, lp_op(k, LP_CTZ, DT_I64, 1, &bound, 0));
  LVal below = sub(w, lp_get(k, depth), one);
  c = lp_vec(k, width);
  EACH {
    LVal x = lp_load(k, stack[i], in_panel(w, below, c));
    lp_store(k, now[i], c, lp_bin(k, t->fold[i].f, x, lp_load(k, now[i], c)));
  }
  lp_end(k);
  lp_set(k, depth, below);
  lp_end(k);
  LVal top = lp_get(k, depth);
  c = lp_vec(k, width);
  EACH lp_store(k, stack[i], in_panel(w, top, c), lp_load(k, now[i], c));
  lp_end(k);
  lp_set(k, depth, add(w, top, one));
  lp_end(k);

  /* `now` is the topmost partial result. */
  top = sub(w, lp_get(k, depth), one);
  LVal r = lp_for(k, top);
  below = sub(w, sub(w, top, r), one);
  c = lp_vec(k, width);
  EACH {
    LVal x = lp_load(k, stack[i], in_panel(w, below, c));
    lp_store(k, now[i], c, lp_bin(k, t->fold[i].f, x, lp_load(k, now[i], c)));
  }
  lp_end(k);
  lp_end(k);
  c = lp_vec(k, width);
  Digits at = {0};
  low_digit(w, &at, add(w, first, c), t->results);
  const Spot *spot = low_spot(w, at.d, at.count);
  EACH low_fold_know(w, &t->fold[i], spot, lp_load(k, now[i], c));
  for (uint32_t i = 0; i < t->out_count; i++) low_store(w, t->out[i], spot);
  lp_end(k);
  lp_end(k);
  low_finish(w, out);
  return !w->failed;
#undef EACH
}

/* ---- choosing */

static void pull_operands(Low *w, const Spot *kept, const Spot *all, void *ud) {
  const Job *j = ud;
  for (int i = 0; i < j->count; i++) low_at(w, j->fold[i].x, all);
  for (int i = 0; i < j->count; i++)
    low_know(w, j->fold[i].v, kept, lp_const(w->k, (DType)low_type(w, j->fold[i].v)->dtype, 0));
  if (!j->two)
    for (uint32_t i = 0; i < j->g->out_count; i++) low_at(w, j->g->outs[i], kept);
}

static bool same_axes(Low *w, uint32_t a, uint32_t b) {
  const Type *x = low_type(w, gr_operand(w->l->g, a, 0)),
             *y = low_type(w, gr_operand(w->l->g, b, 0));
  const Attr *p = gr_attr(w->l->g, a, AT_AXES), *q = gr_attr(w->l->g, b, AT_AXES);
  unsigned m = 0, n = 0;
  if (x->rank != y->rank) return false;
  for (int i = 0; i < x->rank; i++)
    if (x->dim[i] != y->dim[i]) return false;
  for (uint32_t i = 0; i < p->count; i++) m |= 1u << p->u.ints[i];
  for (uint32_t i = 0; i < q->count; i++) n |= 1u << q->u.ints[i];
  return m == n;
}

static void begin(Job *j, GErr *e) {
  low_begin(&j->w, j->l, j->g, e);
  j->w.flops = low_mul(&j->w, low_mul(&j->w, j->results, j->length), low_cost(&j->w));
}

bool low_reduce(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Job *j = ARENA_NEW(l->arena, Job);
  j->l = l;
  j->g = g;
  Low *w = &j->w;
  low_begin(w, l, g, e);
  for (uint32_t i = 0; i < g->node_count; i++) {
    uint32_t node = g->nodes[i];
    if (!low_is_fold((OpCode)l->g->nodes[node].op)) continue;
    if (j->count == MAX_FOLDS)
      return gerr_set(e, ERR_IR_FORM, -1, "more than %d reductions", MAX_FOLDS);
    if (j->count && !same_axes(w, j->fold[0].v.node, node)) {
      return gerr_set(e, ERR_IR_FORM, -1, "reductions of different axes");
    }
    j->fold[j->count++] = low_fold(w, node);
  }
  if (!j->count) return gerr_set(e, ERR_IR_FORM, -1, "no reduction");
  const Type *t = low_type(w, j->fold[0].x);
  const Attr *axes = gr_attr(l->g, j->fold[0].v.node, AT_AXES);
  uint8_t cls[CKL_MAX_RANK] = {0};
  for (uint32_t i = 0; i < axes->count; i++) cls[axes->u.ints[i]] = REDUCED;
  j->results = j->length = low_const_dim(w, 1);
  for (int i = 0; i < t->rank; i++) {
    Dim *to = cls[i] == REDUCED ? &j->length : &j->results;
    *to = low_mul(w, *to, t->dim[i]);
  }
  j->blocks = low_ceil_div(w, j->length, BLOCK);
  int64_t n = 0, m = 0;
  bool known = low_known(w, j->length, &n), one_block = known && n <= BLOCK;
  for (int i = 0; i < j->count && known && n == 0; i++) j->fold[i].start = of_nothing(&j->fold[i]);
  j->two = !one_block; /* the trial leaves out the uses of the results */
  if (!low_space(w, t->rank, t->dim, cls, pull_operands, j, &j->s)) return false;
  for (int i = 0; i < j->s.count; i++) j->reduced += j->s.cls[i] == REDUCED;
  bool line = j->s.count == 0 || j->s.cls[j->s.count - 1] == REDUCED;
  bool many = low_known(w, j->results, &m) && m >= MANY;
  j->two = !one_block && !(line && many && j->reduced == 1);
  begin(j, e);
  if (j->two) {
    j->panel0 = (uint32_t)out->panel_count;
    for (int i = 0; i < j->count; i++) {
      Panel p = {j->fold[i].dt, low_mul(w, j->results, j->blocks)};
      VEC_PUSH(l->arena, out->panels, out->panel_count, out->panel_cap, p);
    }
  }
  if (j->reduced == 0 || (known && n <= SHORT && j->s.count > j->reduced))
    few(j, n);
  else if (line)
    lines(j);
  else
    columns(j);
  low_finish(w, out);
  if (!j->two || w->failed) return !w->failed;
  Tree tree = {.results = j->results, .blocks = j->blocks, .panel0 = j->panel0};
  tree.fold = j->fold;
  tree.count = j->count;
  tree.out = g->outs;
  tree.out_count = g->out_count;
  return low_tree(l, g, &tree, out, e);
}
