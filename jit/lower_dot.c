/* Lowering of products: dot and inner.
 *
 * In: a group whose root is a dot [B.., M, K] x [B.., K, N] (or an inner) and whose outs are pointwise
 * functions of it. Out: kernels that pack operands into panels where they cannot be read in place, and
 * one that runs over tiles. Packing pulls, so views, casts and pointwise producers cost nothing more.
 *
 * Batch axes over which y repeats are more rows of x. A turn of the main kernel is a block of row tiles
 * times a block of column panels of one batch; in it each panel of B meets all row tiles. Tiles have
 * nearly equal heights. The loops are those of Goto and van de Geijn (TOMS 2008).
 *
 * Invariant (rule 105): each element is a chain over k in blocks of 4,096, each from +0, whose results
 * are added left to right. Where k is cut into pieces for the caches, chains go on through scratch. */
#include <string.h>

#include "jit/lower_impl.h"
#include "jit/lower_view.h"

enum {
  CHAIN = 4096,     /* length of a chain */
  KC = 1024,        /* longest piece of k, in f32 */
  TILES_IN_BLOCK = 8,
  COLUMNS_IN_BLOCK = 256,
  A_PITCH = 16      /* row of a packed tile of A */
};

typedef enum SideKind {
  SIDE_DIRECT, /* in place */
  SIDE_ROWS,   /* A: panel of whole rows */
  SIDE_TILES   /* A: panel [tiles][K][16]; B: panel [panels][K][nr] */
} SideKind;

typedef struct Side {
  SideKind kind;
  Val v;
  const Type *type;
  View view;
  uint32_t panel;
  bool along_k;    /* packing: k is the axis that lies densely */
  bool batched[CKL_MAX_RANK]; /* batch axes over which it does not repeat */
  Dim row, step, batch; /* strides of what is read: rows (A) or panels (B), k, batches (packed) */
} Side;

typedef struct Dot {
  Lower *l;
  const Group *group;
  Lowered *out;
  GErr *e;
  DimTab *t;
  Val z;
  const Type *type;
  DType dt;        /* computed in */
  int compute;
  int rank, batch; /* axes 0 .. batch-1 are batches, batch .. rank-2 rows */
  Dim turns_b, m, n, k;
  int mr, nr;
  Dim tiles, panels; /* ceil(m / mr), ceil(n / nr) */
  Side a, b;
} Dot;

/* ---- dims and index arithmetic ---- */

static Dim num(const Dot *d, int64_t n) { return dim_const(d->t, n); }
static Dim times(const Dot *d, Dim x, Dim y) { return dim_mul(d->t, x, y); }
static Dim ceil_div(const Dot *d, Dim x, int64_t by) {
  return dim_floordiv(d->t, dim_add(d->t, x, num(d, by - 1)), num(d, by));
}
static bool known(const Dot *d, Dim x, int64_t *out) { return dim_is_const(d->t, x, out); }
static bool is(const Dot *d, Dim x, int64_t n) {
  int64_t v;
  return known(d, x, &v) && v == n;
}
static bool at_most(const Dot *d, Dim x, int64_t n) {
  int64_t v;
  return known(d, x, &v) && v <= n;
}

static LVal add(Low *w, LVal x, LVal y) { return lp_bin(w->k, RB_ADD, x, y); }
static LVal sub(Low *w, LVal x, LVal y) { return lp_bin(w->k, RB_SUB, x, y); }
static LVal mul(Low *w, LVal x, LVal y) { return lp_bin(w->k, RB_MUL, x, y); }
static LVal least(Low *w, LVal x, LVal y) { return lp_bin(w->k, RB_MIN, x, y); }
static LVal imm(Low *w, int64_t n) { return lp_i(w->k, n); }
static void end(Low *w) {
  lp_end(w->k);
  low_leave(w);
}

/* The first of part number i of `n` things in `parts` nearly equal parts. */
static LVal share(Low *w, LVal i, LVal n, LVal parts) { return lp_idiv(w->k, mul(w, i, n), parts); }

/* ---- coordinates ---- */

/* Takes the batch number apart: at[0 .. batch-1], of the axes marked alone where `only` is given. */
static void batch_coords(const Dot *d, Low *w, LVal number, const bool *only, LVal *at) {
  for (int i = d->batch - 1; i >= 0; i--) {
    if (only && !only[i]) {
      at[i] = imm(w, 0);
      continue;
    }
    bool last = true;
    for (int j = 0; j < i; j++) last = last && only && !only[j];
    if (last) {
      at[i] = number;
      number = imm(w, 0);
    } else {
      LVal n = low_dim(w, d->type->dim[i]);
      at[i] = lp_irem(w->k, number, n);
      number = lp_idiv(w->k, number, n);
    }
  }
}

/* The number of a side's own batch at these coordinates. */
static LVal own_batch(const Dot *d, Low *w, const Side *s, const LVal *at) {
  LVal number = imm(w, 0);
  for (int i = 0; i < d->batch; i++) {
    if (s->batched[i]) number = add(w, mul(w, number, low_dim(w, d->type->dim[i])), at[i]);
  }
  return number;
}

static Dim own_batches(const Dot *d, const Side *s) {
  Dim n = num(d, 1);
  for (int i = 0; i < d->batch; i++)
    if (s->batched[i]) n = times(d, n, d->type->dim[i]);
  return n;
}

/* Digits of the batch axes. */
static void batch_digits(const Dot *d, Low *w, const LVal *at, Digits *out) {
  *out = (Digits){0};
  for (int i = 0; i < d->batch; i++) low_digit(w, out, at[i], d->type->dim[i]);
}

/* One element of an operand, rounded as `compute` says, in the computing type. */
static LVal operand(const Dot *d, Low *w, Val v, const Digits *at) {
  LVal x = low_at(w, v, low_spot(w, at->d, at->count));
  if (x == LV_NONE) return x;
  if (d->compute == COMPUTE_F16) x = lp_cast(w->k, x, DT_F16);
  return lp_dtype(w->k, x) == d->dt ? x : lp_cast(w->k, x, d->dt);
}

/* ---- packing ---- */

static uint32_t new_panel(Dot *d, Dim count) {
  Panel p = {d->dt, count};
  VEC_PUSH(d->l->arena, d->out->panels, d->out->panel_count, d->out->panel_cap, p);
  return (uint32_t)d->out->panel_count - 1;
}

static bool finish(Dot *d, Low *w, Dim flops) {
  if (w->failed) return false;
  w->flops = flops;
  low_finish(w, d->out);
  return !w->failed;
}

/* x as whole rows, `row` elements apart; lanes along k. */
static bool pack_rows(Dot *d, Side *s) {
  enum { ROWS = 16 };
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  int panel = low_panel(&w, s->panel, d->dt, LB_OUT);
  LVal m = low_dim(&w, d->m), k = low_dim(&w, d->k), pitch = low_dim(&w, s->row);
  LVal blocks = low_dim(&w, ceil_div(d, d->m, ROWS)), at[CKL_MAX_RANK];
  LVal turn = lp_par(w.k, low_dim(&w, times(d, own_batches(d, s), ceil_div(d, d->m, ROWS))));
  LVal batch = lp_idiv(w.k, turn, blocks);
  LVal r0 = mul(&w, lp_irem(w.k, turn, blocks), imm(&w, ROWS));
  batch_coords(d, &w, batch, s->batched, at);
  LVal i = lp_for(w.k, least(&w, imm(&w, ROWS), sub(&w, m, r0)));
  LVal row = add(&w, r0, i), to = mul(&w, add(&w, mul(&w, batch, m), row), pitch);
  LVal j = lp_vec(w.k, k);
  Digits digits;
  batch_digits(d, &w, at, &digits);
  low_digit(&w, &digits, row, d->m);
  low_digit(&w, &digits, j, d->k);
  LVal x = operand(d, &w, s->v, &digits);
  if (x == LV_NONE) return false;
  lp_store(w.k, panel, add(&w, to, j), x);
  end(&w);
  end(&w);
  end(&w);
  return finish(d, &w, times(d, times(d, own_batches(d, s), d->m), d->k));
}

/* Tiles of A, or panels of B, k by k: [groups][K][pitch]; lanes along the group, or along k where that
 * is how the operand lies. */
static bool pack_tiles(Dot *d, Side *s, bool is_a) {
  enum { KS = 256 };
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  int64_t pitch = is_a ? A_PITCH : d->nr;
  Dim groups_dim = is_a ? d->tiles : d->panels, cuts_dim = ceil_div(d, d->k, KS);
  int panel = low_panel(&w, s->panel, d->dt, LB_OUT);
  LVal extent = low_dim(&w, is_a ? d->m : d->n), depth = low_dim(&w, d->k);
  LVal groups = low_dim(&w, groups_dim), cuts = low_dim(&w, cuts_dim), at[CKL_MAX_RANK];
  Dim turns = times(d, times(d, own_batches(d, s), groups_dim), cuts_dim);
  LVal turn = lp_par(w.k, low_dim(&w, turns));
  LVal number = lp_idiv(w.k, turn, cuts), k0 = mul(&w, lp_irem(w.k, turn, cuts), imm(&w, KS));
  LVal group = lp_irem(w.k, number, groups), first, count;
  batch_coords(d, &w, lp_idiv(w.k, number, groups), s->batched, at);
  if (is_a) {
    first = share(&w, group, extent, groups);
    count = sub(&w, share(&w, add(&w, group, imm(&w, 1)), extent, groups), first);
  } else {
    first = mul(&w, group, imm(&w, d->nr));
    int64_t n;
    bool whole = known(d, d->n, &n) && n % d->nr == 0;
    count = whole ? imm(&w, d->nr) : least(&w, imm(&w, d->nr), sub(&w, extent, first));
  }
  LVal ks = least(&w, imm(&w, KS), sub(&w, depth, k0));
  LVal to = mul(&w, add(&w, mul(&w, number, depth), k0), imm(&w, pitch)), i, k;
  if (s->along_k) {
    i = lp_for(w.k, count);
    k = lp_vec(w.k, ks);
  } else {
    k = lp_for(w.k, ks);
    i = lp_vec(w.k, count);
  }
  LVal line = add(&w, first, i), depth_at = add(&w, k0, k);
  Digits digits;
  batch_digits(d, &w, at, &digits);
  if (is_a) {
    low_digit(&w, &digits, line, d->m);
    low_digit(&w, &digits, depth_at, d->k);
  } else {
    for (int j = d->batch; j < d->rank - 2; j++) low_digit(&w, &digits, imm(&w, 0), s->type->dim[j]);
    low_digit(&w, &digits, depth_at, d->k);
    low_digit(&w, &digits, line, d->n);
  }
  LVal x = operand(d, &w, s->v, &digits);
  if (x == LV_NONE) return false;
  lp_store(w.k, panel, add(&w, add(&w, to, mul(&w, k, imm(&w, pitch))), i), x);
  end(&w);
  end(&w);
  end(&w);
  return finish(d, &w, times(d, times(d, own_batches(d, s), is_a ? d->m : d->n), d->k));
}

/* ---- how operands are read ---- */

static bool readable(const Dot *d, const Side *s) {
  return low_placed(d->l, s->view.base) && s->type->dtype == d->dt &&
         gr_type(d->l->g, s->view.base)->dtype == d->dt && d->compute == COMPUTE_NONE;
}

/* The stride of the merged row axis of x; false where rows are not evenly spaced. */
static bool row_stride(const Dot *d, Dim *out) {
  Dim next = DIM_BAD;
  *out = num(d, 0);
  for (int i = d->rank - 2; i >= d->batch; i--) {
    if (is(d, d->type->dim[i], 1)) continue;
    if (next == DIM_BAD) *out = d->a.view.stride[i];
    else if (dim_compare(d->t, d->a.view.stride[i], next) != DIM_EQUAL) return false;
    next = times(d, d->a.view.stride[i], d->type->dim[i]);
  }
  return true;
}

static void plan_a(Dot *d) {
  Side *s = &d->a;
  Dim row, step = s->view.stride[d->rank - 1];
  int64_t pitch;
  bool even = row_stride(d, &row), few = at_most(d, d->n, 2 * d->nr);
  bool across = even && is(d, row, 1) && !is(d, step, 1); /* x is a transpose */
  /* Rows a multiple of 4 KiB apart share few sets of the caches. */
  bool aliases = known(d, row, &pitch) && pitch % 1024 == 0 && pitch > 0;
  if (readable(d, s) && even && (few || (!across && !aliases && is(d, step, 1)))) {
    s->kind = SIDE_DIRECT;
    s->row = row;
    s->step = step;
    return;
  }
  if (across && d->mr <= A_PITCH) {
    s->kind = SIDE_TILES;
    s->row = num(d, 1);
    s->step = num(d, A_PITCH);
    s->batch = times(d, times(d, d->tiles, d->k), num(d, A_PITCH));
  } else {
    s->kind = SIDE_ROWS;
    Dim whole = times(d, ceil_div(d, d->k, 16), num(d, 16));
    if (known(d, whole, &pitch) && pitch % 512 == 0) whole = dim_add(d->t, whole, num(d, 16));
    s->row = whole;
    s->step = num(d, 1);
    s->batch = times(d, d->m, whole);
  }
  s->panel = new_panel(d, times(d, own_batches(d, s), s->batch));
}

static void plan_b(Dot *d) {
  Side *s = &d->b;
  Dim step = s->view.stride[d->rank - 2], col = s->view.stride[d->rank - 1];
  bool few = at_most(d, d->m, 2 * d->mr);
  if (readable(d, s) && few && (is(d, col, 1) || d->nr == 1)) {
    s->kind = SIDE_DIRECT;
    s->row = num(d, d->nr); /* panels are neighbours */
    s->step = step;
    return;
  }
  s->kind = SIDE_TILES;
  s->along_k = is(d, step, 1) && !is(d, col, 1);
  s->row = times(d, d->k, num(d, d->nr));
  s->step = num(d, d->nr);
  s->batch = times(d, d->panels, s->row);
  s->panel = new_panel(d, times(d, own_batches(d, s), s->batch));
}

/* Buffer and first element of a side in a batch. */
static int side_buf(const Dot *d, Low *w, const Side *s) {
  if (s->kind == SIDE_DIRECT) return low_value(w, s->view.base, LB_IN);
  return low_panel(w, s->panel, d->dt, LB_IN);
}

static LVal side_base(const Dot *d, Low *w, const Side *s, const LVal *at) {
  if (s->kind != SIDE_DIRECT) return mul(w, own_batch(d, w, s, at), low_dim(w, s->batch));
  LVal base = low_dim(w, s->view.offset);
  for (int i = 0; i < d->batch; i++) {
    if (s->batched[i]) base = add(w, base, mul(w, at[i], low_dim(w, s->view.stride[i])));
  }
  return base;
}

/* ---- the main kernel ---- */

/* Stores the outs at an element, given the chain's value there; `lin` is its row-major number. */
static bool epilogue(Dot *d, Low *w, const Digits *at, LVal lin, LVal x) {
  const Spot *spot = low_spot(w, at->d, at->count);
  if ((DType)d->type->dtype != d->dt) x = lp_cast(w->k, x, (DType)d->type->dtype);
  low_know(w, d->z, spot, x);
  for (uint32_t i = 0; i < d->group->out_count; i++) {
    LVal y = low_at(w, d->group->outs[i], spot);
    if (y == LV_NONE) return false;
    lp_store(w->k, low_value(w, d->group->outs[i], LB_OUT), lin, y);
  }
  return true;
}

typedef struct Main {
  Low w;
  LVal m, n, k, tiles, panels;
  LVal batch, at[CKL_MAX_RANK]; /* number and coordinates of the batch */
  LVal t0, t1, p0, p1;          /* tiles and panels of this turn */
  int a, b;                     /* buffers */
  LVal a0, b0;                  /* first elements in this batch */
  LVal a_row, a_step, b_row, b_step;
} Main;

typedef struct Place { /* of a tile, see tile_place */
  LVal r0, rows, c0, cols, a, b;
} Place;

/* Rows, columns and operands of tile `t` of the turn and panel `p`, from k0 on. */
static Place tile_place(Dot *d, Main *f, LVal p, LVal t, LVal k0) {
  Low *w = &f->w;
  Place o;
  LVal tile = add(w, f->t0, t), panel = add(w, f->p0, p);
  int64_t m, n;
  if (known(d, d->m, &m) && m % d->mr == 0) {
    o.r0 = mul(w, tile, imm(w, d->mr));
    o.rows = imm(w, d->mr);
  } else {
    o.r0 = share(w, tile, f->m, f->tiles);
    o.rows = sub(w, share(w, add(w, tile, imm(w, 1)), f->m, f->tiles), o.r0);
  }
  o.c0 = mul(w, panel, imm(w, d->nr));
  bool whole = known(d, d->n, &n) && n % d->nr == 0;
  o.cols = whole ? imm(w, d->nr) : least(w, imm(w, d->nr), sub(w, f->n, o.c0));
  if (d->a.kind == SIDE_TILES) o.a = mul(w, mul(w, tile, f->k), imm(w, A_PITCH));
  else o.a = mul(w, o.r0, f->a_row);
  o.a = add(w, f->a0, add(w, o.a, mul(w, k0, f->a_step)));
  o.b = add(w, f->b0, add(w, mul(w, panel, f->b_row), mul(w, k0, f->b_step)));
  return o;
}

static LVal open_tile(Dot *d, Main *f, const Place *o, LVal depth, int buf_start, LVal start,
                      LVal start_row) {
  LVal operand[TILE_OPERANDS] = {
      [TILE_DEPTH] = depth,      [TILE_ROWS] = o->rows,     [TILE_COLS] = o->cols,
      [TILE_A] = o->a,           [TILE_A_ROW] = f->a_row,   [TILE_A_STEP] = f->a_step,
      [TILE_B] = o->b,           [TILE_B_STEP] = f->b_step, [TILE_START] = start,
      [TILE_START_ROW] = start_row};
  return lp_tile(f->w.k, d->dt, d->mr, d->nr, f->a, f->b, buf_start, operand);
}

static bool finish_element(Dot *d, Main *f, LVal row, LVal col, LVal x) {
  Low *w = &f->w;
  Digits at;
  batch_digits(d, w, f->at, &at);
  low_digit(w, &at, row, d->m);
  low_digit(w, &at, col, d->n);
  LVal lin = add(w, mul(w, add(w, mul(w, f->batch, f->m), row), f->n), col);
  return epilogue(d, w, &at, lin, x);
}

/* All of k at once: from registers into the epilogue. */
static bool whole_chains(Dot *d, Main *f) {
  Low *w = &f->w;
  LVal p = lp_for(w->k, sub(w, f->p1, f->p0)), t = lp_for(w->k, sub(w, f->t1, f->t0));
  LVal zero = imm(w, 0);
  Place o = tile_place(d, f, p, t, zero);
  LVal x = open_tile(d, f, &o, f->k, LP_NO_BUF, zero, zero);
  LVal row = add(w, o.r0, lp_row(w->k, x)), col = add(w, o.c0, lp_col(w->k, x));
  if (!finish_element(d, f, row, col, x)) return false;
  end(w);
  end(w);
  end(w);
  return true;
}

/* k in pieces: chains go on through scratch [panel][tile][mr][nr], behind a row of zeros from which they
 * start; the results of blocks are added up in a second one. */
static bool pieces(Dot *d, Main *f, int64_t most) {
  Low *w = &f->w;
  int64_t per_tile = (int64_t)d->mr * d->nr, per_panel = TILES_IN_BLOCK * per_tile;
  int64_t panels = COLUMNS_IN_BLOCK / d->nr < 1 ? 1 : COLUMNS_IN_BLOCK / d->nr, k_known;
  bool several = !(known(d, d->k, &k_known) && k_known <= CHAIN);
  int acc = low_local(w, d->dt, -1, d->nr + panels * per_panel);
  int total = several ? low_local(w, d->dt, -1, panels * per_panel) : acc;
  LVal zero = imm(w, 0), nr = imm(w, d->nr);
  LVal panel_count = sub(w, f->p1, f->p0), tile_count = sub(w, f->t1, f->t0);
  LVal j = lp_vec(w->k, nr);
  lp_store(w->k, acc, j, lp_const(w->k, d->dt, 0));
  end(w);

  LVal chain = imm(w, CHAIN);
  LVal blocks = lp_idiv(w->k, add(w, f->k, imm(w, CHAIN - 1)), chain);
  LVal block = lp_for(w->k, blocks), block0 = mul(w, block, chain);
  LVal length = least(w, chain, sub(w, f->k, block0));
  LVal cuts = lp_idiv(w->k, add(w, length, imm(w, most - 1)), imm(w, most));
  LVal cut = lp_for(w->k, cuts);
  LVal k0 = share(w, cut, length, cuts);
  LVal depth = sub(w, share(w, add(w, cut, imm(w, 1)), length, cuts), k0);
  k0 = add(w, k0, block0);
  LVal p = lp_for(w->k, panel_count), t = lp_for(w->k, tile_count);
  Place o = tile_place(d, f, p, t, k0);
  LVal first = lp_bin(w->k, RB_EQ, cut, zero);
  LVal at = add(w, mul(w, p, imm(w, per_panel)), mul(w, t, imm(w, per_tile)));
  LVal in_acc = add(w, at, nr);
  LVal x = open_tile(d, f, &o, depth, acc, lp_where(w->k, first, zero, in_acc),
                     lp_where(w->k, first, zero, nr));
  LVal to = add(w, add(w, in_acc, mul(w, lp_row(w->k, x), nr)), lp_col(w->k, x));
  lp_store(w->k, acc, to, x);
  for (int i = 0; i < 4; i++) end(w); /* tile, t, p, cut */

  if (several) {
    for (int turn = 0; turn < 2; turn++) { /* the first block is copied, the others are added */
      lp_if(w->k, lp_bin(w->k, turn ? RB_GT : RB_EQ, block, zero));
      p = lp_for(w->k, panel_count);
      LVal i = lp_vec(w->k, mul(w, tile_count, imm(w, per_tile)));
      LVal index = add(w, mul(w, p, imm(w, per_panel)), i);
      LVal y = lp_load(w->k, acc, add(w, index, nr));
      if (turn) y = lp_bin(w->k, RB_ADD, lp_load(w->k, total, index), y);
      lp_store(w->k, total, index, y);
      end(w);
      end(w);
      end(w);
    }
  }
  end(w); /* block */

  p = lp_for(w->k, panel_count);
  t = lp_for(w->k, tile_count);
  o = tile_place(d, f, p, t, zero);
  LVal i = lp_for(w->k, o.rows);
  at = add(w, mul(w, p, imm(w, per_panel)), add(w, mul(w, t, imm(w, per_tile)), mul(w, i, nr)));
  if (!several) at = add(w, at, nr);
  j = lp_vec(w->k, o.cols);
  x = lp_load(w->k, total, add(w, at, j));
  if (!finish_element(d, f, add(w, o.r0, i), add(w, o.c0, j), x)) return false;
  for (int c = 0; c < 4; c++) end(w);
  return true;
}

static bool main_kernel(Dot *d) {
  Main f;
  Low *w = &f.w;
  low_begin(w, d->l, d->group, d->e);
  int64_t panels_in_block = COLUMNS_IN_BLOCK / d->nr < 1 ? 1 : COLUMNS_IN_BLOCK / d->nr, k;
  Dim row_blocks = ceil_div(d, d->tiles, TILES_IN_BLOCK);
  Dim col_blocks = ceil_div(d, d->panels, panels_in_block);
  f.a = side_buf(d, w, &d->a);
  f.b = side_buf(d, w, &d->b);
  f.m = low_dim(w, d->m);
  f.n = low_dim(w, d->n);
  f.k = low_dim(w, d->k);
  f.tiles = low_dim(w, d->tiles);
  f.panels = low_dim(w, d->panels);
  f.a_row = low_dim(w, d->a.row);
  f.a_step = low_dim(w, d->a.step);
  f.b_row = low_dim(w, d->b.row);
  f.b_step = low_dim(w, d->b.step);
  LVal rb_count = low_dim(w, row_blocks), cb_count = low_dim(w, col_blocks), one = imm(w, 1);
  LVal turn = lp_par(w->k, low_dim(w, times(d, d->turns_b, times(d, row_blocks, col_blocks))));
  LVal cb = lp_irem(w->k, turn, cb_count), rest = lp_idiv(w->k, turn, cb_count);
  LVal rb = lp_irem(w->k, rest, rb_count);
  f.batch = lp_idiv(w->k, rest, rb_count);
  batch_coords(d, w, f.batch, NULL, f.at);
  f.t0 = share(w, rb, f.tiles, rb_count);
  f.t1 = share(w, add(w, rb, one), f.tiles, rb_count);
  f.p0 = share(w, cb, f.panels, cb_count);
  f.p1 = share(w, add(w, cb, one), f.panels, cb_count);
  f.a0 = side_base(d, w, &d->a, f.at);
  f.b0 = side_base(d, w, &d->b, f.at);
  int64_t most = d->dt == DT_F64 ? KC / 2 : KC, whole = at_most(d, d->m, 2 * d->mr) ? CHAIN : most;
  bool ok;
  if (known(d, d->k, &k)) {
    ok = k <= whole ? whole_chains(d, &f) : pieces(d, &f, most);
  } else {
    lp_if(w->k, lp_bin(w->k, RB_LE, f.k, imm(w, whole)));
    ok = whole_chains(d, &f);
    if (ok) {
      end(w);
      lp_if(w->k, lp_bin(w->k, RB_GT, f.k, imm(w, whole)));
      ok = pieces(d, &f, most);
    }
    if (ok) end(w);
  }
  if (!ok) return false;
  end(w); /* par */
  Dim elements = times(d, d->turns_b, times(d, d->m, d->n));
  return finish(d, w, times(d, num(d, 2), times(d, elements, d->k)));
}

/* ---- choices ---- */

/* Tiles that fit the sizes as far as they are known: few rows leave registers for more columns. */
static void choose_tile(Dot *d) {
  int64_t m, n;
  int tile_n = d->l->target->tile_n / (d->dt == DT_F64 ? 2 : 1);
  d->mr = d->l->target->tile_m;
  d->nr = tile_n < 1 ? 1 : tile_n;
  if (known(d, d->m, &m) && m > 0) {
    int64_t tiles = (m + d->mr - 1) / d->mr;
    int height = (int)((m + tiles - 1) / tiles);
    if (tile_n >= 16) {
      while (2 * height * d->nr <= d->mr * tile_n && d->nr < 128) d->nr *= 2;
    }
    d->mr = height;
  }
  if (known(d, d->n, &n) && n > 0) {
    while (d->nr > 1 && d->nr / 2 >= n) d->nr /= 2;
  }
  d->tiles = ceil_div(d, d->m, d->mr);
  d->panels = ceil_div(d, d->n, d->nr);
}

static bool computing_type(Dot *d, const Type *x) {
  DType dt = (DType)x->dtype;
  bool half = d->compute == COMPUTE_F16 && dt != DT_F64 && dt != DT_BF16;
  if (!dt_float(dt)) return gerr_set(d->e, ERR_IR_FORM, -1, "products of ints have no loop form");
  if (dt == DT_BF16 || (d->compute != COMPUTE_NONE && !half)) {
    return gerr_set(d->e, ERR_IR_FORM, -1, "products in bf16 and tf32 have no loop form");
  }
  d->dt = dt == DT_F64 ? DT_F64 : DT_F32;
  return true;
}

static bool lower_inner(Dot *d) {
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  Dim count = dim_product(d->t, d->type->rank, d->type->dim);
  LVal turn = lp_par(w.k, low_dim(&w, count)), i = lp_red(w.k, low_dim(&w, d->k));
  Digits at = {0};
  low_digit(&w, &at, turn, count);
  low_digit(&w, &at, i, d->k);
  LVal x = operand(d, &w, d->a.v, &at), y = operand(d, &w, d->b.v, &at);
  if (x == LV_NONE || y == LV_NONE) return false;
  LVal yielded = lp_yield(w.k, RED_FMA, x, y);
  end(&w);
  at = (Digits){0};
  low_digit(&w, &at, turn, count);
  if (!epilogue(d, &w, &at, turn, lp_result(w.k, yielded))) return false;
  end(&w);
  return finish(d, &w, times(d, num(d, 2), times(d, count, d->k)));
}

static bool lower_matrices(Dot *d) {
  d->rank = d->type->rank;
  d->batch = d->rank - 2;
  d->m = d->type->dim[d->rank - 2];
  d->n = d->type->dim[d->rank - 1];
  while (d->batch > 0 && (is(d, d->b.view.stride[d->batch - 1], 0) ||
                          is(d, d->type->dim[d->batch - 1], 1))) {
    d->batch--;
    d->m = times(d, d->m, d->type->dim[d->batch]);
  }
  d->turns_b = num(d, 1);
  for (int i = 0; i < d->batch; i++) {
    d->turns_b = times(d, d->turns_b, d->type->dim[i]);
    d->a.batched[i] = !is(d, d->a.view.stride[i], 0);
    d->b.batched[i] = !is(d, d->b.view.stride[i], 0);
  }
  choose_tile(d);
  if (d->m == DIM_BAD || d->turns_b == DIM_BAD || d->tiles == DIM_BAD || d->panels == DIM_BAD) {
    return gerr_set(d->e, ERR_IR_FORM, -1, "the sizes of a product are out of range");
  }
  plan_a(d);
  plan_b(d);
  if (d->a.kind == SIDE_ROWS && !pack_rows(d, &d->a)) return false;
  if (d->a.kind == SIDE_TILES && !pack_tiles(d, &d->a, true)) return false;
  if (d->b.kind == SIDE_TILES && !pack_tiles(d, &d->b, false)) return false;
  return main_kernel(d);
}

bool lower_dot(Lower *l, const Group *group, Lowered *out, GErr *e) {
  const Graph *g = l->g;
  Dot d = {.l = l, .group = group, .out = out, .e = e, .t = g->dims, .z = {group->root, 0}};
  OpCode op = (OpCode)g->nodes[group->root].op;
  if (op != OP_DOT && op != OP_INNER) {
    return gerr_set(e, ERR_IR_FORM, -1, "%s has no loop form", op_info[op].text);
  }
  d.type = gr_type(g, d.z);
  d.compute = (int)gr_attr_i(g, group->root, AT_COMPUTE, COMPUTE_NONE);
  d.a.v = gr_operand(g, group->root, 0);
  d.b.v = gr_operand(g, group->root, 1);
  d.a.type = gr_type(g, d.a.v);
  d.b.type = gr_type(g, d.b.v);
  if (!computing_type(&d, d.a.type)) return false;
  d.k = d.a.type->dim[d.a.type->rank - 1];
  if (op == OP_INNER) return lower_inner(&d);
  low_view(l, d.a.v, &d.a.view);
  low_view(l, d.b.v, &d.b.view);
  return lower_matrices(&d);
}
