/* Lowering of products: dot and inner.
 *
 * In: a group whose root is a dot [B.., M, K] x [B.., K, N] (or an inner) and whose outs are
 * pointwise functions of it. Out: kernels that pack operands into panels where they cannot be
 * read in place, and one that runs over tiles. Packing pulls, so views, casts and pointwise
 * producers cost nothing more.
 *
 * Batch axes over which y repeats are more rows of x. An iteration of the main kernel is a block of
 * row tiles times a block of column panels of one batch; in it each panel of B meets all row tiles.
 * The loops are those of Goto and van de Geijn (TOMS 2008).
 *
 * Invariant (rule 105): each element is a chain over k in blocks of 4,096, each from +0, whose
 * results are added left to right. Where k is cut into pieces for the caches, chains go on
 * through scratch. */
#include "graph/opcode.h"
#include "jit/lower/lower_dot.h"

/* ---- coordinates */

void dot_batch_coords(const Dot *d, Low *w, LVal number, const bool *only, LVal *at) {
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
  Dim n = s->either ? times(d, d->gate, s->copied) : d->gate;
  for (int i = 0; i < d->batch; i++)
    if (s->batched[i]) n = times(d, n, d->type->dim[i]);
  return n;
}

/* Digits of the batch axes. */
static void batch_digits(const Dot *d, Low *w, const LVal *at, Digits *out) {
  *out = (Digits){0};
  for (int i = 0; i < d->batch; i++) low_digit(w, out, at[i], d->type->dim[i]);
}

/* Pulls one element of an operand, rounded by `compute`, in the computing type. */
LVal dot_operand(const Dot *d, Low *w, Val v, const Digits *at) {
  LVal x = low_at(w, v, low_spot(w, at->d, at->count));
  if (x == LV_NONE) return x;
  if (d->compute == COMPUTE_F16 && dt_float(d->dt)) x = lp_cast(w->k, x, DT_F16);
  return lp_dtype(w->k, x) == d->dt ? x : lp_cast(w->k, x, d->dt);
}

/* ---- packing */

uint32_t dot_panel(Dot *d, Dim count) {
  Panel p = {d->dt, count};
  VEC_PUSH(d->l->arena, d->out->panels, d->out->panel_count, d->out->panel_cap, p);
  return (uint32_t)d->out->panel_count - 1;
}

bool dot_finish(Dot *d, Low *w, Dim flops) {
  if (w->failed) return false;
  w->flops = flops;
  low_finish(w, d->out);
  return !w->failed;
}

/* Copies element (line, k) of A, or (k, line) of B, to its place in the panel. */
static bool pack_one(Dot *d, Low *w, const Side *s, bool is_a, const LVal *batch_at, LVal line,
                     LVal k, int panel, LVal to) {
  Digits at;
  batch_digits(d, w, batch_at, &at);
  if (!is_a) {
    for (int j = d->batch; j < d->rank - 2; j++) low_digit(w, &at, imm(w, 0), s->type->dim[j]);
  }
  if (is_a != s->transposed) low_digit(w, &at, line, is_a ? d->m : d->n);
  low_digit(w, &at, k, d->k);
  if (is_a == s->transposed) low_digit(w, &at, line, is_a ? d->m : d->n);
  LVal x = dot_operand(d, w, s->v, &at);
  if (x == LV_NONE) return false;
  lp_store(w->k, panel, to, x);
  return true;
}

/* Packs x as whole rows, `row` elements apart; lanes along k. */
static bool pack_rows(Dot *d, Side *s) {
  enum { ROWS = 16 };
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  int panel = low_panel(&w, s->panel, d->dt, LB_OUT);
  LVal m = low_dim(&w, d->m), k = low_dim(&w, d->k), pitch = low_dim(&w, s->row);
  LVal blocks = low_dim(&w, ceil_div(d, d->m, ROWS)), at[CKL_MAX_RANK];
  LVal iteration = lp_par(w.k, low_dim(&w, times(d, own_batches(d, s), ceil_div(d, d->m, ROWS))));
  LVal batch = lp_idiv(w.k, iteration, blocks);
  LVal r0 = mul(&w, lp_irem(w.k, iteration, blocks), imm(&w, ROWS));
  dot_batch_coords(d, &w, batch, s->batched, at);
  LVal i = lp_for(w.k, least(&w, imm(&w, ROWS), sub(&w, m, r0)));
  LVal row = add(&w, r0, i), to = mul(&w, add(&w, mul(&w, batch, m), row), pitch);
  LVal j = lp_vec(w.k, k);
  if (!pack_one(d, &w, s, true, at, row, j, panel, add(&w, to, j))) return false;
  end(&w);
  end(&w);
  end(&w);
  return dot_finish(d, &w, times(d, times(d, own_batches(d, s), d->m), d->k));
}

Dim dot_group_stride(const Dot *d, int64_t pitch) {
  return dim_add(d->t, times(d, d->k, dim_num(d, pitch)), dim_num(d, GROUP_GAP));
}

/* Packs tiles of A, or panels of B, k by k: [groups][K][pitch]. Lanes run along a group, or along k
 * if the operand is dense there. An iteration takes several groups, so that consecutive reads are
 * long enough. */
static bool pack_tiles(Dot *d, Side *s, bool is_a) {
  enum { WIDTH = 128, DEPTH = 128 };
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  int64_t pitch = is_a ? A_PITCH : d->nr, together = WIDTH / pitch < 1 ? 1 : WIDTH / pitch, n;
  Dim groups_dim = is_a ? d->tiles : d->panels, cuts_dim = ceil_div(d, d->k, DEPTH);
  Dim blocks_dim = ceil_div(d, groups_dim, together);
  int panel = low_panel(&w, s->panel, d->dt, LB_OUT);
  LVal extent = low_dim(&w, is_a ? d->m : d->n), depth = low_dim(&w, d->k), one = imm(&w, 1);
  LVal groups = low_dim(&w, groups_dim), blocks = low_dim(&w, blocks_dim);
  LVal cuts = low_dim(&w, cuts_dim), at[CKL_MAX_RANK];
  Dim iterations = times(d, times(d, own_batches(d, s), blocks_dim), cuts_dim);
  LVal iteration = lp_par(w.k, low_dim(&w, iterations));
  LVal number = lp_idiv(w.k, iteration, cuts);
  LVal k0 = share(&w, lp_irem(w.k, iteration, cuts), depth, cuts);
  LVal ks = sub(&w, share(&w, add(&w, lp_irem(w.k, iteration, cuts), one), depth, cuts), k0);
  LVal block = lp_irem(w.k, number, blocks), batch = lp_idiv(w.k, number, blocks);
  LVal g0 = share(&w, block, groups, blocks);
  LVal group_count = sub(&w, share(&w, add(&w, block, one), groups, blocks), g0);
  dot_batch_coords(d, &w, batch, s->batched, at);
  LVal k = s->along_k ? LV_NONE : lp_for(w.k, ks);
  LVal group = add(&w, g0, lp_for(w.k, group_count)), first, count, i;
  if (is_a) {
    first = mul(&w, group, imm(&w, d->mr));
    count = least(&w, imm(&w, d->mr), sub(&w, extent, first));
  } else {
    first = mul(&w, group, imm(&w, d->nr));
    bool whole = dim_known(d, d->n, &n) && n % d->nr == 0;
    count = whole ? imm(&w, d->nr) : least(&w, imm(&w, d->nr), sub(&w, extent, first));
  }
  LVal to = add(&w, mul(&w, batch, groups), group);
  to = mul(&w, to, low_dim(&w, dot_group_stride(d, pitch)));
  to = add(&w, to, mul(&w, k0, imm(&w, pitch)));
  if (s->along_k) {
    i = lp_for(w.k, count);
    k = lp_vec(w.k, ks);
    if (!pack_one(d, &w, s, is_a, at, add(&w, first, i), add(&w, k0, k), panel,
                  add(&w, add(&w, to, mul(&w, k, imm(&w, pitch))), i)))
      return false;
    end(&w);
    end(&w);
  } else {
    /* A whole vector, if memory behind the tile may be read: the rest lands in the gap of rows. */
    int passes = is_a ? 2 : 1;
    LVal fits = lp_bin(w.k, RB_LE, add(&w, first, imm(&w, pitch)), extent);
    for (int c = 0; c < passes; c++) {
      if (is_a) lp_if(w.k, c ? lp_un(w.k, RU_NOT, fits) : fits);
      i = lp_vec(w.k, is_a && c == 0 ? imm(&w, pitch) : count);
      if (!pack_one(d, &w, s, is_a, at, add(&w, first, i), add(&w, k0, k), panel,
                    add(&w, add(&w, to, mul(&w, k, imm(&w, pitch))), i)))
        return false;
      end(&w);
      if (is_a) end(&w);
    }
  }
  end(&w);
  if (!s->along_k) end(&w);
  end(&w);
  return dot_finish(d, &w, times(d, times(d, own_batches(d, s), is_a ? d->m : d->n), d->k));
}

/* ---- how operands are read */

bool dot_readable(const Dot *d, const Side *s) {
  return low_placed(d->l, s->view.base) && s->type->dtype == d->dt &&
         gr_type(d->l->g, s->view.base)->dtype == d->dt && d->compute == COMPUTE_NONE;
}

/* 1 if x >= least, else 0; least > 0. */
static Dim reaches(const Dot *d, Dim x, int64_t least) {
  int64_t most = INT64_C(1) << 40;
  Dim over = dim_floordiv(d->t, x, dim_num(d, least));
  return dim_floordiv(d->t, dim_add(d->t, over, dim_num(d, most - 1)), dim_num(d, most));
}

/* The stride of the merged row axis of x; false if rows are not evenly spaced. */
static bool row_stride(const Dot *d, Dim *out) {
  Dim next = DIM_BAD;
  *out = dim_num(d, 0);
  for (int i = d->rank - 2; i >= d->batch; i--) {
    Dim size = i == d->rank - 2 && d->a.transposed ? d->m : d->type->dim[i];
    if (dim_is(d, size, 1)) continue;
    if (next == DIM_BAD)
      *out = d->a.view.stride[i];
    else if (dim_compare(d->t, d->a.view.stride[i], next) != DIM_EQUAL)
      return false;
    next = times(d, d->a.view.stride[i], size);
  }
  return true;
}

/* Decides at run time: rows a multiple of 4 KiB apart are copied, unless there are few columns. */
static void copy_aliases(Dot *d, Side *s) {
  Dim one = dim_num(d, 1), page = dim_num(d, 4096 / (int64_t)dt_size(d->dt));
  Dim rest = reaches(d, dim_mod(d->t, s->row, page), 1);
  Dim copied = times(d, dim_sub(d->t, one, rest), reaches(d, d->n, 2 * d->nr + 1));
  Dim pitch = times(d, dim_add(d->t, ceil_div(d, d->k, 16), one), dim_num(d, 16));
  Dim extra = times(d, copied, dim_sub(d->t, pitch, s->row));
  Dim row = dim_add(d->t, s->row, extra), batch = times(d, d->m, pitch);
  if (row == DIM_BAD || batch == DIM_BAD) return;
  s->either = true;
  s->copied = copied;
  s->row = row;
  s->batch = batch;
  s->panel = dot_panel(d, times(d, own_batches(d, s), batch));
}

void dot_plan_a(Dot *d) {
  Side *s = &d->a;
  Dim row, step = s->view.stride[d->rank - 1];
  int64_t pitch;
  bool even = row_stride(d, &row), few = d->few || at_most(d, d->n, 2 * d->nr);
  bool across = even && dim_is(d, row, 1) && !dim_is(d, step, 1); /* x is a transpose */
  /* Rows a multiple of 4 KiB apart share few sets of the caches. */
  int64_t size = (int64_t)dt_size(d->dt);
  bool aliases = dim_known(d, row, &pitch) && pitch * size % 4096 == 0 && pitch > 0;
  if (dot_readable(d, s) && even && (few || (!across && !aliases && dim_is(d, step, 1)))) {
    s->kind = SIDE_DIRECT;
    s->row = row;
    s->step = step;
    if (!few && !dim_known(d, row, &pitch)) copy_aliases(d, s);
    return;
  }
  if (across && d->mr <= A_PITCH) {
    s->kind = SIDE_TILES;
    s->row = dim_num(d, 1);
    s->step = dim_num(d, A_PITCH);
    s->batch = times(d, d->tiles, dot_group_stride(d, A_PITCH));
  } else {
    s->kind = SIDE_ROWS;
    Dim whole = times(d, ceil_div(d, d->k, 16), dim_num(d, 16));
    if (dim_known(d, whole, &pitch) && pitch % 512 == 0) {
      whole = dim_add(d->t, whole, dim_num(d, 16));
    }
    s->row = whole;
    s->step = dim_num(d, 1);
    s->batch = times(d, d->m, whole);
  }
  s->panel = dot_panel(d, times(d, own_batches(d, s), s->batch));
}

void dot_plan_b(Dot *d) {
  Side *s = &d->b;
  Dim step = s->view.stride[d->rank - 2], col = s->view.stride[d->rank - 1];
  int64_t pitch, m;
  /* Rows are prefetched (emit_tile.c), so packing pays only if they share few sets of the caches
   * and are read very often. */
  bool aliases = dim_known(d, step, &pitch) && pitch * (int64_t)dt_size(d->dt) % 4096 == 0;
  bool often = dim_known(d, d->m, &m) && m > OFTEN;
  if (dot_readable(d, s) && !(aliases && often) && (dim_is(d, col, 1) || d->nr == 1)) {
    s->kind = SIDE_DIRECT;
    s->row = dim_num(d, d->nr); /* panels are neighbours */
    s->step = step;
    return;
  }
  s->kind = SIDE_TILES;
  s->along_k = dim_is(d, step, 1) && !dim_is(d, col, 1);
  s->row = dot_group_stride(d, d->nr);
  s->step = dim_num(d, d->nr);
  s->batch = times(d, d->panels, s->row);
  s->panel = dot_panel(d, times(d, own_batches(d, s), s->batch));
}

bool dot_pack_a(Dot *d) {
  if (d->a.kind == SIDE_ROWS || d->a.either) return pack_rows(d, &d->a);
  return d->a.kind != SIDE_TILES || pack_tiles(d, &d->a, true);
}

bool dot_pack_b(Dot *d) {
  return d->b.kind != SIDE_TILES || pack_tiles(d, &d->b, false);
}

int dot_side_buf(const Dot *d, Low *w, const Side *s) {
  if (s->either) return low_either(w, s->view.base, s->panel, s->copied);
  if (s->kind == SIDE_DIRECT) return low_value(w, s->view.base, LB_IN);
  return low_panel(w, s->panel, d->dt, LB_IN);
}

LVal dot_side_base(const Dot *d, Low *w, const Side *s, const LVal *at) {
  LVal copy = LV_NONE, base = low_dim(w, s->view.offset);
  if (s->kind != SIDE_DIRECT || s->either)
    copy = mul(w, own_batch(d, w, s, at), low_dim(w, s->batch));
  if (s->kind != SIDE_DIRECT) return copy;
  for (int i = 0; i < d->batch; i++) {
    if (s->batched[i]) base = add(w, base, mul(w, at[i], low_dim(w, s->view.stride[i])));
  }
  if (!s->either) return base;
  return lp_where(w->k, less(w, imm(w, 0), low_dim(w, s->copied)), copy, base);
}

/* ---- the main kernel */

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

/* Rows of a dot: whole tiles, since a tile takes the same time with fewer rows, and a last one. */
static void dot_rows(Dot *d, Main *f, LVal tile, Place *o) {
  Low *w = &f->w;
  int64_t m;
  o->r0 = mul(w, tile, imm(w, d->mr));
  o->rows = imm(w, d->mr);
  if (!dim_known(d, d->m, &m) || m % d->mr) o->rows = least(w, o->rows, sub(w, f->m, o->r0));
  if (d->a.kind == SIDE_TILES)
    o->a = mul(w, tile, low_dim(w, dot_group_stride(d, A_PITCH)));
  else
    o->a = mul(w, o->r0, f->a_row);
  o->a = add(w, f->a0, o->a);
}

static LVal dot_skip(Dot *d, Main *f, LVal k0) {
  (void)d;
  return mul(&f->w, k0, f->a_step);
}

static LVal dot_digits(Dot *d, Main *f, const Place *o, LVal row, LVal col, Digits *at) {
  Low *w = &f->w;
  row = add(w, o->r0, row);
  batch_digits(d, w, f->at, at);
  low_digit(w, at, row, d->m);
  low_digit(w, at, col, d->n);
  return low_merge(w, at->d, at->count); /* as operands that lie like the result are read */
}

static const Form dot_form = {dot_rows, dot_skip, dot_digits, NULL, NULL};

/* Tile `t` of the iteration and panel `p`. */
static Place tile_place(Dot *d, Main *f, LVal p, LVal t) {
  Low *w = &f->w;
  Place o = {0};
  LVal panel = add(w, f->p0, p);
  int64_t n;
  d->form->rows(d, f, add(w, f->t0, t), &o);
  o.c0 = mul(w, panel, imm(w, d->nr));
  bool whole = dim_known(d, d->n, &n) && n % d->nr == 0;
  o.cols = whole ? imm(w, d->nr) : least(w, imm(w, d->nr), sub(w, f->n, o.c0));
  o.b = d->b.kind == SIDE_LOCAL ? imm(w, 0) : add(w, f->b0, mul(w, panel, f->b_row));
  return o;
}

bool dot_element(Dot *d, Main *f, const Place *o, LVal row, LVal col, LVal x) {
  Digits at = {0};
  LVal lin = d->form->digits(d, f, o, row, add(&f->w, o->c0, col), &at);
  return epilogue(d, &f->w, &at, lin, x);
}

/* Chooses tiles and panels of an iteration: as many as the second cache holds, and fewer if there
 * would be few iterations. */
static void choose_blocks(Dot *d) {
  bool local = d->b.kind == SIDE_LOCAL; /* scratch filled just before use serves more rows */
  int64_t rows = local ? 4 * ROWS_IN_BLOCK : ROWS_IN_BLOCK, tiles, panels, iterations, k;
  int64_t columns = local ? COLUMNS_IN_BLOCK / 2 : COLUMNS_IN_BLOCK;
  d->block_tiles = d->mr > rows ? 1 : rows / d->mr;
  d->block_panels = d->nr > columns ? 1 : columns / d->nr;
  if (!dim_known(d, d->tiles, &tiles) || !dim_known(d, d->panels, &panels)) return;
  if (!dim_known(d, d->iterations_b, &iterations)) iterations = 8;
  if (!dim_known(d, d->k, &k)) k = KC;
  if (d->block_tiles > tiles) d->block_tiles = tiles > 0 ? tiles : 1;
  if (d->block_panels > panels) d->block_panels = panels > 0 ? panels : 1;
  for (;;) {
    int64_t rb = (tiles + d->block_tiles - 1) / d->block_tiles;
    int64_t cb = (panels + d->block_panels - 1) / d->block_panels;
    int64_t work = d->block_tiles * d->block_panels * d->mr * d->nr;
    int64_t wanted = local ? ITERATIONS_FILLED : ITERATIONS_WANTED;
    if (iterations * rb * cb >= wanted || work < ITERATION_LEAST / (k < 1 ? 1 : k)) return;
    if (d->block_panels > 1 && (local || d->block_panels * d->nr >= d->block_tiles * d->mr)) {
      d->block_panels = (d->block_panels + 1) / 2;
    } else if (d->block_tiles > 1 && !local) {
      d->block_tiles = (d->block_tiles + 1) / 2;
    } else {
      return;
    }
  }
}

static LVal open_tile(Dot *d, Main *f, const Place *o, LVal depth, int buf_start, LVal start,
                      LVal start_row) {
  LVal operand[TILE_OPERANDS] = {[TILE_DEPTH] = depth,    [TILE_ROWS] = o->rows,
                                 [TILE_COLS] = o->cols,   [TILE_A] = o->a,
                                 [TILE_A_ROW] = f->a_row, [TILE_A_STEP] = f->a_step,
                                 [TILE_B] = o->b,         [TILE_B_STEP] = f->b_step,
                                 [TILE_START] = start,    [TILE_START_ROW] = start_row};
  return lp_tile(f->w.k, d->dt, d->mr, d->nr, f->a, f->b, buf_start, operand);
}

/* Computes all of k at once: chains go from registers into the epilogue. */
static bool whole_chains(Dot *d, Main *f) {
  Low *w = &f->w;
  LVal p = lp_for(w->k, sub(w, f->p1, f->p0)), t = lp_for(w->k, sub(w, f->t1, f->t0));
  LVal zero = imm(w, 0);
  Place o = tile_place(d, f, p, t);
  LVal x = open_tile(d, f, &o, f->k, LP_NO_BUF, zero, zero);
  if (!dot_element(d, f, &o, lp_row(w->k, x), lp_col(w->k, x), x)) return false;
  for (int i = 0; i < 3; i++) end(w);
  return true;
}

/* k in pieces: chains go on through scratch [panel][tile][mr][nr], behind a row of zeros from
 * which they start; the results of blocks are added up in a second one. */
static bool pieces(Dot *d, Main *f, int64_t most) {
  Low *w = &f->w;
  Kernel *k = w->k;
  int64_t per_tile = (int64_t)d->mr * d->nr, per_panel = d->block_tiles * per_tile;
  int64_t panels = d->block_panels, k_known;
  bool several = !(dim_known(d, d->k, &k_known) && k_known <= CHAIN);
  bool even = d->run == d->k; /* one run */
  int acc = low_local(w, d->dt, -1, d->nr + panels * per_panel);
  int total = several ? low_local(w, d->dt, -1, panels * per_panel) : acc;
  if (d->b.kind == SIDE_LOCAL) f->b = low_local(w, d->dt, -1, most * d->nr);
  LVal zero = imm(w, 0), one = imm(w, 1), nr = imm(w, d->nr), chain = imm(w, CHAIN);
  LVal panel_count = sub(w, f->p1, f->p0), tile_count = sub(w, f->t1, f->t0);
  LVal j = lp_vec(k, nr);
  lp_store(k, acc, j, lp_const(k, d->dt, 0));
  end(w);

  LVal blocks = lp_idiv(k, add(w, f->k, imm(w, CHAIN - 1)), chain);
  LVal block = lp_for(k, blocks), k1 = mul(w, block, chain), k2 = least(w, add(w, k1, chain), f->k);
  /* Runs that lie in this block, whole or in part. */
  LVal run = low_dim(w, d->run), run0 = even ? zero : lp_idiv(k, k1, run);
  LVal runs = even ? one : sub(w, add(w, lp_idiv(k, sub(w, k2, one), run), one), run0);
  LVal r = lp_for(k, runs), from = k1, to = k2;
  if (!even) {
    from = most_of(w, k1, mul(w, add(w, run0, r), run));
    to = least(w, k2, mul(w, add(w, add(w, run0, r), one), run));
  }
  LVal length = sub(w, to, from);
  LVal cuts = lp_idiv(k, add(w, length, imm(w, most - 1)), imm(w, most));
  LVal cut = lp_for(k, cuts), at_cut = share(w, cut, length, cuts);
  LVal depth = sub(w, share(w, add(w, cut, one), length, cuts), at_cut);
  LVal k0 = add(w, from, at_cut), first = lp_bin(k, RB_EQ, k0, k1);
  LVal skip = d->form->skip(d, f, k0);
  LVal p = lp_for(k, panel_count);
  if (d->b.kind == SIDE_LOCAL) {
    Place c = tile_place(d, f, p, zero);
    if (!d->form->fill(d, f, c.c0, c.cols, k0, depth, f->b)) return false;
  }
  LVal t = lp_for(k, tile_count);
  Place o = tile_place(d, f, p, t);
  o.a = add(w, o.a, skip);
  if (d->b.kind != SIDE_LOCAL) o.b = add(w, o.b, mul(w, k0, f->b_step));
  LVal at = add(w, mul(w, p, imm(w, per_panel)), mul(w, t, imm(w, per_tile)));
  LVal in_acc = add(w, at, nr);
  LVal x = open_tile(d, f, &o, depth, acc, lp_where(k, first, zero, in_acc),
                     lp_where(k, first, zero, nr));
  LVal where = add(w, add(w, in_acc, mul(w, lp_row(k, x), nr)), lp_col(k, x));
  lp_store(k, acc, where, x);
  for (int i = 0; i < 5; i++) end(w); /* tile, t, p, cut, r */

  if (several) {
    for (int pass = 0; pass < 2; pass++) { /* the first block is copied, the others are added */
      lp_if(k, lp_bin(k, pass ? RB_GT : RB_EQ, block, zero));
      p = lp_for(k, panel_count);
      LVal i = lp_vec(k, mul(w, tile_count, imm(w, per_tile)));
      LVal index = add(w, mul(w, p, imm(w, per_panel)), i);
      LVal y = lp_load(k, acc, add(w, index, nr));
      if (pass) y = lp_bin(k, RB_ADD, lp_load(k, total, index), y);
      lp_store(k, total, index, y);
      for (int c = 0; c < 3; c++) end(w);
    }
  }
  end(w); /* block */

  p = lp_for(k, panel_count);
  t = lp_for(k, tile_count);
  o = tile_place(d, f, p, t);
  at = add(w, mul(w, p, imm(w, per_panel)), mul(w, t, imm(w, per_tile)));
  if (!several) at = add(w, at, nr);
  if (d->form->finish) {
    if (!d->form->finish(d, f, &o, total, at)) return false;
    end(w);
    end(w);
    return true;
  }
  LVal i = lp_for(k, o.rows);
  at = add(w, at, mul(w, i, nr));
  j = lp_vec(k, o.cols);
  x = lp_load(k, total, add(w, at, j));
  if (!dot_element(d, f, &o, i, j, x)) return false;
  for (int c = 0; c < 4; c++) end(w);
  return true;
}

bool dot_main(Dot *d) {
  Main f = {0};
  Low *w = &f.w;
  low_begin(w, d->l, d->group, d->e);
  int64_t k;
  choose_blocks(d);
  Dim row_blocks = ceil_div(d, d->tiles, d->block_tiles);
  Dim col_blocks = ceil_div(d, d->panels, d->block_panels);
  f.a = dot_side_buf(d, w, &d->a);
  if (d->b.kind != SIDE_LOCAL) f.b = dot_side_buf(d, w, &d->b);
  f.m = low_dim(w, d->m);
  f.n = low_dim(w, d->n);
  f.k = low_dim(w, d->k);
  f.tiles = low_dim(w, d->tiles);
  f.panels = low_dim(w, d->panels);
  f.a_row = low_dim(w, d->a.row);
  f.a_step = low_dim(w, d->a.step);
  f.b_row = d->b.kind == SIDE_LOCAL ? LV_NONE : low_dim(w, d->b.row);
  f.b_step = low_dim(w, d->b.step);
  conv_begin(d, &f);
  LVal rb_count = low_dim(w, row_blocks), cb_count = low_dim(w, col_blocks), one = imm(w, 1);
  LVal iteration =
      lp_par(w->k, low_dim(w, times(d, d->iterations_b, times(d, row_blocks, col_blocks))));
  LVal cb = lp_irem(w->k, iteration, cb_count), rest = lp_idiv(w->k, iteration, cb_count);
  LVal rb = lp_irem(w->k, rest, rb_count);
  f.batch = lp_idiv(w->k, rest, rb_count);
  dot_batch_coords(d, w, f.batch, NULL, f.at);
  f.t0 = share(w, rb, f.tiles, rb_count);
  f.t1 = share(w, add(w, rb, one), f.tiles, rb_count);
  f.p0 = share(w, cb, f.panels, cb_count);
  f.p1 = share(w, add(w, cb, one), f.panels, cb_count);
  f.a0 = dot_side_base(d, w, &d->a, f.at);
  if (d->b.kind != SIDE_LOCAL) f.b0 = dot_side_base(d, w, &d->b, f.at);
  int64_t most = d->dt == DT_F64 ? KC / 2 : KC, whole = most;
  if (d->few || at_most(d, d->m, 2 * d->mr)) whole = CHAIN;
  bool ok;
  if (d->run != d->k || d->b.kind == SIDE_LOCAL || d->form->finish) {
    ok = pieces(d, &f, most);
  } else if (dim_known(d, d->k, &k)) {
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
  Dim elements = times(d, d->iterations_b, times(d, d->m, d->n));
  return dot_finish(d, w, times(d, dim_num(d, 2), times(d, elements, d->k)));
}

/* ---- choices */

/* Chooses a tile for the known sizes: few rows leave registers for more columns. */
void dot_choose_tile(Dot *d, Dim height) {
  int64_t m, n;
  int tile_n = d->l->tile.columns / (d->dt == DT_F64 ? 2 : 1);
  d->mr = d->l->tile.rows;
  d->nr = tile_n < 1 ? 1 : tile_n;
  if (dim_known(d, height, &m) && m > 0) {
    int64_t tiles = (m + d->mr - 1) / d->mr;
    int rows = (int)((m + tiles - 1) / tiles);
    if (tile_n >= 16) {
      while (2 * rows * d->nr <= d->mr * tile_n && d->nr < 128) d->nr *= 2;
    }
    d->mr = rows;
  }
  if (dim_known(d, d->n, &n) && n > 0) {
    while (d->nr > 1 && d->nr / 2 >= n) d->nr /= 2;
    /* Rows that lie a multiple of 4 KiB apart have 8 places in the first cache. */
    if (d->nr == 1 && d->mr > 6) d->mr = 6;
  }
  d->panels = ceil_div(d, d->n, d->nr);
}

static bool computing_type(Dot *d, const Type *x) {
  DType dt = (DType)x->dtype;
  bool half = d->compute == COMPUTE_F16 && dt != DT_F64 && dt != DT_BF16;
  d->dt = dt;
  if (dt_int(dt)) return true; /* `compute` does not concern ints */
  if (!dt_float(dt)) return gerr_set(d->e, ERR_IR_FORM, -1, "products of bools have no loop form");
  if (dt == DT_BF16 || (d->compute != COMPUTE_NONE && !half)) {
    return gerr_set(d->e, ERR_IR_FORM, -1, "products in bf16 and tf32 have no loop form");
  }
  d->dt = dt == DT_F64 ? DT_F64 : DT_F32;
  return true;
}

/* Sums of ints wrap: their order is free. */
static LVal term(const Dot *d, Low *w, LVal x, LVal y) {
  if (dt_float(d->dt)) return lp_yield(w->k, RED_FMA, x, y);
  return lp_yield(w->k, RED_SUM, mul(w, x, y), LV_NONE);
}

static bool low_inner(Dot *d) {
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  Dim count = dim_product(d->t, d->type->rank, d->type->dim);
  LVal iteration = lp_par(w.k, low_dim(&w, count)), i = lp_red(w.k, low_dim(&w, d->k));
  Digits at = {0};
  low_digit(&w, &at, iteration, count);
  low_digit(&w, &at, i, d->k);
  LVal x = dot_operand(d, &w, d->a.v, &at), y = dot_operand(d, &w, d->b.v, &at);
  if (x == LV_NONE || y == LV_NONE) return false;
  LVal yielded = term(d, &w, x, y);
  end(&w);
  at = (Digits){0};
  low_digit(&w, &at, iteration, count);
  if (!epilogue(d, &w, &at, iteration, lp_result(w.k, yielded))) return false;
  end(&w);
  return dot_finish(d, &w, times(d, dim_num(d, 2), times(d, count, d->k)));
}

/* Transposes the product. */
static void transpose(Dot *d) {
  Side a = d->a;
  Dim m = d->m;
  d->a = d->b;
  d->b = a;
  d->m = d->n;
  d->n = m;
  for (int i = 0; i < 2; i++) {
    Side *s = i ? &d->b : &d->a;
    Dim stride = s->view.stride[d->rank - 1];
    s->view.stride[d->rank - 1] = s->view.stride[d->rank - 2];
    s->view.stride[d->rank - 2] = stride;
    s->transposed = true;
  }
}

/* Computes products of ints row by row, with lanes along columns. */
static bool by_rows(Dot *d) {
  Low w;
  Digits at, of_x, of_y;
  LVal coords[CKL_MAX_RANK];
  low_begin(&w, d->l, d->group, d->e);
  LVal m = low_dim(&w, d->m), n = low_dim(&w, d->n);
  LVal iteration = lp_par(w.k, low_dim(&w, times(d, d->iterations_b, d->m)));
  LVal row = lp_irem(w.k, iteration, m);
  dot_batch_coords(d, &w, lp_idiv(w.k, iteration, m), NULL, coords);
  LVal j = lp_vec(w.k, n), k = lp_red(w.k, low_dim(&w, d->k));
  batch_digits(d, &w, coords, &at);
  of_x = of_y = at;
  low_digit(&w, &of_x, row, d->m);
  low_digit(&w, &of_x, k, d->k);
  for (int i = d->batch; i < d->rank - 2; i++) low_digit(&w, &of_y, imm(&w, 0), d->b.type->dim[i]);
  low_digit(&w, &of_y, k, d->k);
  low_digit(&w, &of_y, j, d->n);
  LVal x = dot_operand(d, &w, d->a.v, &of_x), y = dot_operand(d, &w, d->b.v, &of_y);
  if (x == LV_NONE || y == LV_NONE) return false;
  LVal yielded = term(d, &w, x, y);
  end(&w);
  low_digit(&w, &at, row, d->m);
  low_digit(&w, &at, j, d->n);
  if (!epilogue(d, &w, &at, add(&w, mul(&w, iteration, n), j), lp_result(w.k, yielded)))
    return false;
  end(&w);
  end(&w);
  return dot_finish(d, &w, times(d, times(d, d->iterations_b, times(d, d->m, d->n)), d->k));
}

/* Lowers the product for tiles of at most `height` rows, if that is known. */
static bool tiled(Dot *d, Dim height) {
  d->form = &dot_form;
  d->run = d->k;
  d->iterations_b = times(d, d->iterations_b, d->gate);
  dot_choose_tile(d, height);
  d->tiles = ceil_div(d, d->m, d->mr);
  if (d->m == DIM_BAD || d->iterations_b == DIM_BAD || d->tiles == DIM_BAD ||
      d->panels == DIM_BAD) {
    return gerr_set(d->e, ERR_IR_FORM, -1, "the sizes of a product are out of range");
  }
  dot_plan_a(d);
  dot_plan_b(d);
  return dot_pack_a(d) && dot_pack_b(d) && dot_main(d);
}

static bool low_matrices(Dot *d) {
  d->rank = d->type->rank;
  d->batch = d->rank - 2;
  d->m = d->type->dim[d->rank - 2];
  d->n = d->type->dim[d->rank - 1];
  while (d->batch > 0 && (dim_is(d, d->b.view.stride[d->batch - 1], 0) ||
                          dim_is(d, d->type->dim[d->batch - 1], 1))) {
    d->batch--;
    d->m = times(d, d->m, d->type->dim[d->batch]);
  }
  for (int i = 0; i < d->batch; i++) {
    d->iterations_b = times(d, d->iterations_b, d->type->dim[i]);
    d->a.batched[i] = !dim_is(d, d->a.view.stride[i], 0);
    d->b.batched[i] = !dim_is(d, d->b.view.stride[i], 0);
  }
  if (dt_int(d->dt)) return by_rows(d);
  if (dim_is(d, d->n, 1) && d->batch == d->rank - 2 && !dim_is(d, d->m, 1) &&
      dim_is(d, d->a.view.stride[d->rank - 2], 1)) {
    transpose(d); /* rows that lie crosswise are columns of a product with one row */
  }
  int64_t m;
  if (!dim_known(d, d->m, &m) && dot_readable(d, &d->b) &&
      (dim_is(d, d->b.view.stride[d->rank - 1], 1) || dim_is(d, d->n, 1))) {
    /* A lower tile for a few rows. Sizes decide which kernels have iterations: `many` is 0 or 1. */
    Dim many = reaches(d, d->m, FEW_ROWS + 1);
    Dot few = *d;
    few.few = true;
    few.gate = dim_sub(d->t, dim_num(d, 1), many);
    if (many != DIM_BAD) {
      if (!tiled(&few, dim_num(d, FEW_ROWS))) return false;
      d->gate = many;
    }
  }
  return tiled(d, d->m);
}

bool low_dot(Lower *l, const Group *group, Lowered *out, GErr *e) {
  const Graph *g = l->g;
  Dot d = {.l = l, .group = group, .out = out, .e = e, .t = g->dims, .z = {group->root, 0}};
  OpCode op = (OpCode)g->nodes[group->root].op;
  d.type = gr_type(g, d.z);
  d.compute = (int)gr_attr_i(g, group->root, AT_COMPUTE, COMPUTE_NONE);
  d.a.v = gr_operand(g, group->root, 0);
  d.b.v = gr_operand(g, group->root, 1);
  d.a.type = gr_type(g, d.a.v);
  d.b.type = gr_type(g, d.b.v);
  if (!computing_type(&d, d.a.type)) return false;
  d.iterations_b = d.gate = dim_num(&d, 1);
  if (op != OP_DOT && op != OP_INNER) return low_conv(&d, op);
  d.k = d.a.type->dim[d.a.type->rank - 1];
  if (op == OP_INNER) return low_inner(&d);
  low_view(l, d.a.v, &d.a.view);
  low_view(l, d.b.v, &d.b.view);
  return low_matrices(&d);
}
