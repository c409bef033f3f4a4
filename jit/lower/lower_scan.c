/* Running sums and extremes, and positions of extremes, along one axis.
 *
 * In: a group of one cumsum, cummax, cummin, argmax or argmin. Out: one kernel. Along the last axis
 * an iteration is a row: what runs goes in order, a position is an LP_RED. Along another axis an
 * iteration is a panel of neighbouring columns, whose state is a local vector: row after row is
 * read as it lies in memory.
 *
 * Invariant: a running sum of f16 or bf16 is kept in f32, each result rounded from it; the first
 * result is the first element (sums start from -0, which every x + -0 leaves as it is). */
#include <string.h>

#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"

enum { PANEL = 256 };

typedef struct Scan {
  Low w;
  Val v, x;
  Space s;
  int axis_at, axis_n, kept; /* pieces: those of the axis, and how many others */
  Dim size;                  /* of the axis */
} Scan;

static void pull_x(Low *w, const Spot *kept, const Spot *all, void *ud) {
  (void)kept;
  low_at(w, ((Scan *)ud)->x, all);
}

/* Element i along the axis; `kept` are the other digits. */
static const Spot *spot_of(Scan *c, const Digit *kept, LVal i) {
  Low *w = &c->w;
  Digits d = {0};
  int n = c->axis_n;
  memcpy(d.d, kept, sizeof(Digit) * (size_t)c->axis_at);
  d.count = c->axis_at + n;
  for (int k = n - 1; k >= 0; k--) {
    Dim size = c->s.size[c->axis_at + k];
    d.d[c->axis_at + k] = (Digit){k ? low_take(w, &i, size) : i, size};
  }
  for (int k = c->axis_at; k < c->kept; k++) d.d[d.count++] = kept[k];
  return low_spot(w, d.d, d.count);
}

static Dim kept_size(const Scan *c, int k) {
  return c->s.size[k < c->axis_at ? k : k + c->axis_n];
}

/* Digits of number x among the first n kept pieces. */
static void digits_of(Scan *c, int n, LVal x, Digit *out) {
  for (int k = n - 1; k > 0; k--)
    out[k] = (Digit){low_take(&c->w, &x, kept_size(c, k)), kept_size(c, k)};
  if (n > 0) out[0] = (Digit){x, kept_size(c, 0)};
}

static Dim product(Scan *c, int n) {
  Dim d = low_const_dim(&c->w, 1);
  for (int k = 0; k < n; k++) d = low_mul(&c->w, d, kept_size(c, k));
  return d;
}

/* ---- along the last axis */

/* Opens a loop over rows; their digits. */
static void open_rows(Scan *c, Digit *kept) {
  Low *w = &c->w;
  Dim rows = product(c, c->kept), step = low_steps(w, c->size), one = low_const_dim(w, 1);
  Dim iterations = low_div(w, low_sub(w, low_add(w, rows, step), one), step);
  LVal first = lp_bin(w->k, RB_MUL, lp_par(w->k, low_dim(w, iterations)), low_dim(w, step));
  LVal n = low_least(w, sub(w, low_dim(w, rows), first), low_dim(w, step));
  digits_of(c, c->kept, add(w, first, lp_for(w->k, n)), kept);
}

static LVal place_along(Scan *c, LVal i) {
  bool reverse = gr_attr_i(c->w.l->g, c->v.node, AT_REVERSE, 0) != 0;
  return reverse ? sub(&c->w, sub(&c->w, low_dim(&c->w, c->size), lp_i(c->w.k, 1)), i) : i;
}

static DType sum_type(DType dt) {
  return dt == DT_F16 || dt == DT_BF16 ? DT_F32 : dt;
}

/* Whether x comes before the best so far: a NaN beats every number, of equals the first stays. */
static LVal beats(Low *w, LVal x, LVal best, bool max) {
  LVal more = lp_bin(w->k, max ? RB_GT : RB_LT, x, best);
  if (!dt_float(lp_dtype(w->k, x))) return more;
  LVal number = lp_bin(w->k, RB_EQ, best, best);
  return lp_bin(w->k, RB_AND, number, lp_bin(w->k, RB_OR, more, lp_bin(w->k, RB_NE, x, x)));
}

/* The running value after x, which is element i along the axis. */
static LVal next(Scan *c, LVal acc, LVal x, LVal i) {
  Low *w = &c->w;
  OpCode op = (OpCode)w->l->g->nodes[c->v.node].op;
  if (op == OP_CUMSUM) return add(w, acc, x);
  LVal wins =
      lp_bin(w->k, RB_OR, lp_bin(w->k, RB_EQ, i, lp_i(w->k, 0)), beats(w, x, acc, op == OP_CUMMAX));
  return lp_where(w->k, wins, x, acc);
}

static void run_rows(Scan *c) {
  Low *w = &c->w;
  Digit kept[MAX_DIGITS] = {{0}};
  DType dt = (DType)low_type(w, c->v)->dtype, in = sum_type(dt);
  open_rows(c, kept);
  LVal acc = lp_var(w->k, lp_const(w->k, in, -0.0));
  LVal i = lp_for(w->k, low_dim(w, c->size));
  const Spot *s = spot_of(c, kept, place_along(c, i));
  LVal x = low_at(w, c->x, s);
  if (x == LV_NONE) return;
  LVal sum = next(c, lp_get(w->k, acc), lp_cast(w->k, x, in), i);
  lp_set(w->k, acc, sum);
  lp_store(w->k, low_value(w, c->v, LB_OUT), low_number(w, s), lp_cast(w->k, sum, dt));
  for (int n = 0; n < 3; n++) lp_end(w->k);
}

static void first_rows(Scan *c, bool max) {
  Low *w = &c->w;
  Digit kept[MAX_DIGITS] = {{0}};
  open_rows(c, kept);
  LVal n = low_dim(w, c->size), some = lp_bin(w->k, RB_GE, n, lp_i(w->k, 1));
  lp_op(w->k, LP_CHECK, DT_I64, 1, &some, 0);
  LVal x = low_at(w, c->x, spot_of(c, kept, lp_red(w->k, n)));
  if (x == LV_NONE) return;
  LVal y = lp_yield(w->k, max ? RED_FIRST_MAX : RED_FIRST_MIN, x, LV_NONE);
  lp_end(w->k);
  lp_store(w->k, low_value(w, c->v, LB_OUT), low_merge(w, kept, c->kept), lp_result(w->k, y));
  lp_end(w->k);
  lp_end(w->k);
}

/* ---- along another axis */

/* Opens the loop over panels: digits but the last, *first and *width of the panel. */
static void open_panels(Scan *c, Digit *kept, LVal *first, LVal *width) {
  Low *w = &c->w;
  Dim last = kept_size(c, c->kept - 1), panels = low_ceil_div(w, last, PANEL);
  LVal t = lp_par(w->k, low_dim(w, low_mul(w, panels, product(c, c->kept - 1))));
  *first = lp_bin(w->k, RB_MUL, low_take(w, &t, panels), lp_i(w->k, PANEL));
  *width = low_least(w, sub(w, low_dim(w, last), *first), lp_i(w->k, PANEL));
  digits_of(c, c->kept - 1, t, kept);
}

static LVal open_columns(Scan *c, Digit *kept, LVal first, LVal width) {
  LVal lane = lp_vec(c->w.k, width);
  kept[c->kept - 1] = (Digit){add(&c->w, first, lane), kept_size(c, c->kept - 1)};
  return lane;
}

static void run_columns(Scan *c) {
  Low *w = &c->w;
  Kernel *k = w->k;
  Digit kept[MAX_DIGITS] = {{0}};
  DType dt = (DType)low_type(w, c->v)->dtype, in = sum_type(dt);
  int acc = low_local(w, in, -1, PANEL);
  LVal first, width;
  open_panels(c, kept, &first, &width);
  lp_store(k, acc, lp_vec(k, width), lp_const(k, in, -0.0));
  lp_end(k);
  LVal i = lp_for(k, low_dim(w, c->size)), at = place_along(c, i);
  LVal lane = open_columns(c, kept, first, width);
  const Spot *s = spot_of(c, kept, at);
  LVal x = low_at(w, c->x, s);
  if (x == LV_NONE) return;
  LVal sum = next(c, lp_load(k, acc, lane), lp_cast(k, x, in), i);
  lp_store(k, acc, lane, sum);
  lp_store(k, low_value(w, c->v, LB_OUT), low_number(w, s), lp_cast(k, sum, dt));
  for (int n = 0; n < 3; n++) lp_end(k);
}

static void first_columns(Scan *c, bool max) {
  Low *w = &c->w;
  Kernel *k = w->k;
  Digit kept[MAX_DIGITS] = {{0}};
  DType dt = (DType)low_type(w, c->x)->dtype;
  int best = low_local(w, dt, -1, PANEL), place = low_local(w, DT_I64, -1, PANEL);
  LVal first, width, n = low_dim(w, c->size);
  open_panels(c, kept, &first, &width);
  LVal some = lp_bin(k, RB_GE, n, lp_i(k, 1));
  lp_op(k, LP_CHECK, DT_I64, 1, &some, 0);
  LVal i = lp_for(k, n), lane = open_columns(c, kept, first, width);
  LVal x = low_at(w, c->x, spot_of(c, kept, i));
  if (x == LV_NONE) return;
  LVal old = lp_load(k, best, lane), start = lp_bin(k, RB_EQ, i, lp_i(k, 0));
  LVal wins = lp_bin(k, RB_OR, start, beats(w, x, old, max));
  lp_store(k, best, lane, lp_where(k, wins, x, old));
  lp_store(k, place, lane, lp_where(k, wins, i, lp_load(k, place, lane)));
  lp_end(k);
  lp_end(k);
  lane = open_columns(c, kept, first, width);
  lp_store(k, low_value(w, c->v, LB_OUT), low_merge(w, kept, c->kept), lp_load(k, place, lane));
  lp_end(k);
  lp_end(k);
}

bool low_scan(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Scan *c = ARENA_NEW(l->arena, Scan);
  Low *w = &c->w;
  OpCode op = (OpCode)l->g->nodes[g->root].op;
  int axis = (int)gr_attr_i(l->g, g->root, AT_AXIS, 0);
  uint8_t cls[CKL_MAX_RANK] = {0};
  c->v = (Val){g->root, 0};
  c->x = gr_operand(l->g, g->root, 0);
  low_begin(w, l, g, e);
  const Type *t = low_type(w, c->x);
  bool runs = op == OP_CUMSUM || op == OP_CUMMAX || op == OP_CUMMIN;
  if (!runs && op != OP_ARGMAX && op != OP_ARGMIN) return gerr_set(e, ERR_IR_FORM, -1, "no scan");
  cls[axis] = REDUCED;
  c->size = t->dim[axis];
  if (!low_space(w, t->rank, t->dim, cls, pull_x, c, &c->s)) return false;
  int before = 0;
  for (int i = 0; i < c->s.count; i++) {
    if (c->s.cls[i] == REDUCED) {
      if (!c->axis_n++) c->axis_at = i;
    } else
      c->kept++;
  }
  for (int i = 0; i < axis; i++) before += !low_is(w, t->dim[i], 1);
  if (!c->axis_n)
    c->axis_at = before ? c->kept : 0; /* an axis of size 1: its place does not matter */
  low_begin(w, l, g, e);
  w->flops = low_mul(w, low_count(w, t), low_const_dim(w, 2));
  bool rows = c->axis_at == c->kept;
  if (runs)
    rows ? run_rows(c) : run_columns(c);
  else
    rows ? first_rows(c, op == OP_ARGMAX) : first_columns(c, op == OP_ARGMAX);
  low_finish(w, out);
  return !w->failed;
}
