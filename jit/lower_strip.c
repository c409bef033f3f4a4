/* Strips: contraction -> rows -> contractions, a few rows at a time.
 *
 * In: a group whose root is a dot [B.., M, K] x [B.., K, N], with reductions over its rows,
 * pointwise work around them, and dots whose left operand is one of the values of that shape: the
 * scores of attention, their softmax and the weighted values, or what the gradient makes of them.
 * Out: kernels that pack operands, and one whose turn is a strip of rows of one batch: chains of
 * the scores go to scratch tile by tile, the passes of lower_rows.c run over them, what the other
 * dots read is left in scratch too, and they run over the strip. So scores exist in the second
 * cache alone, unless they are outs.
 *
 * Invariant: each step does what its own group would do, in the same order; bits are the same. */
#include "jit/lower_dot.h"
#include "jit/lower_rows.h"

enum {
  STRIP_ROWS = 42,
  GAP = 16 /* elements between rows: they are not to meet in one set of the first cache */
};

typedef struct Strips {
  Rows r;
  Strip s;
  Dot score, dot[MAX_DOTS];
  Dim pitch;
  LVal pitch_v, batch, at[CKL_MAX_RANK]; /* batch number and coordinates */
  LVal t0, tiles, row0, rows; /* of this turn: tiles of the scores, and rows, within the batch */
} Strips;

static bool dot_begin(Dot *d, Lower *l, const Group *group, Lowered *out, GErr *e, uint32_t node) {
  const Graph *g = l->g;
  *d = (Dot){.l = l, .group = group, .out = out, .e = e, .t = g->dims, .z = {node, 0}};
  d->type = gr_type(g, d->z);
  d->dt = (DType)d->type->dtype;
  d->compute = COMPUTE_NONE;
  d->a.v = gr_operand(g, node, 0);
  d->b.v = gr_operand(g, node, 1);
  d->a.type = gr_type(g, d->a.v);
  d->b.type = gr_type(g, d->b.v);
  d->rank = d->type->rank;
  d->batch = d->rank - 2;
  if ((d->dt != DT_F32 && d->dt != DT_F64) ||
      gr_attr_i(g, node, AT_COMPUTE, COMPUTE_NONE) != COMPUTE_NONE)
    return gerr_set(e, ERR_IR_FORM, -1, "strips are of f32 and f64");
  d->m = d->type->dim[d->rank - 2];
  d->n = d->type->dim[d->rank - 1];
  d->k = d->a.type->dim[d->rank - 1];
  low_view(l, d->a.v, &d->a.view);
  low_view(l, d->b.v, &d->b.view);
  d->turns_b = d->gate = dim_num(d, 1);
  for (int i = 0; i < d->batch; i++) {
    d->turns_b = times(d, d->turns_b, d->type->dim[i]);
    d->a.batched[i] = !dim_is(d, d->a.view.stride[i], 0);
    d->b.batched[i] = !dim_is(d, d->b.view.stride[i], 0);
  }
  d->run = d->k;
  dot_choose_tile(d, d->m);
  d->tiles = ceil_div(d, d->m, d->mr);
  if (d->m == DIM_BAD || d->turns_b == DIM_BAD || d->tiles == DIM_BAD || d->panels == DIM_BAD)
    return gerr_set(e, ERR_IR_FORM, -1, "the sizes of a product are out of range");
  return true;
}

/* The value of which v is the elements in the same order. */
static Val same_elements(const Graph *g, Val v) {
  for (;;) {
    OpCode op = (OpCode)g->nodes[v.node].op;
    if (op != OP_RESHAPE && op != OP_ALIAS && op != OP_STOP) return v;
    v = gr_operand(g, v.node, 0);
  }
}

static bool find_dots(Strips *x, Lower *l, const Group *group, Lowered *out, GErr *e) {
  const Graph *g = l->g;
  Strip *s = &x->s;
  s->score = (Val){group->root, 0};
  if (!dot_begin(&x->score, l, group, out, e, group->root)) return false;
  for (uint32_t i = 0; i < group->node_count; i++) {
    uint32_t node = group->nodes[i];
    if (g->nodes[node].op != OP_DOT || node == group->root) continue;
    if (s->count == MAX_DOTS) return gerr_set(e, ERR_IR_FORM, -1, "too many products of a strip");
    if (!dot_begin(&x->dot[s->count], l, group, out, e, node)) return false;
    if (x->dot[s->count].dt != x->score.dt)
      return gerr_set(e, ERR_IR_FORM, -1, "products of several types in a strip");
    s->dot[s->count] = node;
    s->left[s->count++] = same_elements(g, gr_operand(g, node, 0));
  }
  return true;
}

/* Rows of the strip. */
static int strip_buffer(Strips *x, int64_t rows) {
  Low *w = &x->r.w;
  int64_t n;
  if (low_known(w, x->pitch, &n)) return low_local(w, x->score.dt, -1, rows * n);
  return low_local(w, x->score.dt, low_dim_arg(w, x->pitch), rows);
}

/* A tile of `d`: rows `rows` from element a of buffer buf_a, panel p of B from element b. */
static LVal open_tile(Low *w, const Dot *d, LVal rows, LVal depth, LVal p, int buf_a, LVal a,
                      LVal a_row, LVal a_step, int buf_b, LVal b) {
  LVal zero = imm(w, 0), cols = imm(w, d->nr);
  int64_t n;
  if (!dim_known(d, d->n, &n) || n % d->nr)
    cols = least(w, cols, sub(w, low_dim(w, d->n), mul(w, p, cols)));
  LVal operand[TILE_OPERANDS] = {
      [TILE_DEPTH] = depth, [TILE_ROWS] = rows,     [TILE_COLS] = cols,
      [TILE_A] = a,         [TILE_A_ROW] = a_row,   [TILE_A_STEP] = a_step,
      [TILE_B] = b,         [TILE_B_STEP] = low_dim(w, d->b.step),
      [TILE_START] = zero,  [TILE_START_ROW] = zero};
  return lp_tile(w->k, d->dt, d->mr, d->nr, buf_a, buf_b, LP_NO_BUF, operand);
}

/* The chains of the strip's scores. */
static void scores(Strips *x) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->score;
  int a = dot_side_buf(d, w, &d->a), b = dot_side_buf(d, w, &d->b);
  LVal a0 = dot_side_base(d, w, &d->a, x->at), b0 = dot_side_base(d, w, &d->b, x->at);
  LVal p = lp_for(k, low_dim(w, d->panels)), i = lp_for(k, x->tiles), t = add(w, x->t0, i);
  LVal r0 = mul(w, t, imm(w, d->mr)), a_row = low_dim(w, d->a.row);
  LVal at = d->a.kind == SIDE_TILES ? mul(w, t, low_dim(w, dot_group_stride(d, A_PITCH)))
                                    : mul(w, r0, a_row);
  LVal rows = least(w, imm(w, d->mr), sub(w, low_dim(w, d->m), r0));
  LVal c = open_tile(w, d, rows, low_dim(w, d->k), p, a, add(w, a0, at), a_row,
                     low_dim(w, d->a.step), b, add(w, b0, mul(w, p, low_dim(w, d->b.row))));
  LVal row = add(w, mul(w, i, imm(w, d->mr)), lp_row(k, c));
  LVal col = add(w, mul(w, p, imm(w, d->nr)), lp_col(k, c));
  lp_store(k, x->s.scores, add(w, mul(w, row, x->pitch_v), col), c);
  for (int n = 0; n < 3; n++) lp_end(k);
}

/* The passes over the strip's rows. Where one row is left of two, it is worked on twice, with the
 * same stores. */
static void rows_of_strip(Strips *x) {
  Rows *r = &x->r;
  Low *w = &r->w;
  LVal side = imm(w, r->side), last = sub(w, x->rows, imm(w, 1));
  LVal turns = lp_idiv(w->k, add(w, x->rows, imm(w, r->side - 1)), side);
  LVal first = mul(w, lp_for(w->k, turns), side);
  LVal before = add(w, mul(w, x->batch, low_dim(w, x->score.m)), x->row0);
  Keep *keep = &w->memo->keep[low_index_of(w->l->g, x->s.score)];
  *keep = (Keep){.local = true, .strip = true, .ready = true};
  for (int u = 0; u < r->side; u++) {
    LVal i = u ? least(w, add(w, first, imm(w, u)), last) : first;
    x->s.at[u] = keep->at[u] = mul(w, i, x->pitch_v);
    keep->buf[u] = x->s.scores;
    w->memo->row[u] = r->row[u] = rows_spot(r, add(w, before, i));
  }
  rows_passes(r);
  lp_end(w->k);
}

/* Tiles of dot number n over `depth` of its chains from k0 on: results are stored, or added. */
static void tiles_of(Strips *x, int n, LVal k0, LVal depth, bool adds) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->dot[n];
  int b = dot_side_buf(d, w, &d->b), to = low_value(w, d->z, LB_OUT);
  LVal b0 = dot_side_base(d, w, &d->b, x->at), mr = imm(w, d->mr);
  LVal p = lp_for(k, low_dim(w, d->panels));
  LVal t = lp_for(k, lp_idiv(k, add(w, x->rows, imm(w, d->mr - 1)), mr)), r0 = mul(w, t, mr);
  LVal b_at = add(w, mul(w, p, low_dim(w, d->b.row)), mul(w, k0, low_dim(w, d->b.step)));
  LVal c = open_tile(w, d, least(w, mr, sub(w, x->rows, r0)), depth, p, x->s.lefts[n],
                     add(w, mul(w, r0, x->pitch_v), k0), x->pitch_v, imm(w, 1), b,
                     add(w, b0, b_at));
  LVal row = add(w, mul(w, x->batch, low_dim(w, d->m)), add(w, x->row0, r0));
  LVal at = mul(w, add(w, row, lp_row(k, c)), low_dim(w, d->n));
  at = add(w, at, add(w, mul(w, p, imm(w, d->nr)), lp_col(k, c)));
  if (adds) c = lp_bin(k, RB_ADD, lp_load(k, low_value(w, d->z, LB_IN), at), c);
  lp_store(k, to, at, c);
  for (int i = 0; i < 3; i++) lp_end(k);
}

/* Chains of 4,096, whose results are added left to right (rule 105). */
static void product(Strips *x, int n) {
  Low *w = &x->r.w;
  const Dot *d = &x->dot[n];
  LVal depth = low_dim(w, d->k), chain = imm(w, CHAIN), one = imm(w, 1);
  if (at_most(d, d->k, CHAIN)) {
    tiles_of(x, n, imm(w, 0), depth, false);
    return;
  }
  tiles_of(x, n, imm(w, 0), least(w, depth, chain), false);
  LVal blocks = lp_idiv(w->k, add(w, depth, imm(w, CHAIN - 1)), chain);
  LVal more = lp_bin(w->k, RB_MAX, sub(w, blocks, one), imm(w, 0));
  LVal k0 = mul(w, add(w, lp_for(w->k, more), one), chain);
  tiles_of(x, n, k0, least(w, chain, sub(w, depth, k0)), true);
  lp_end(w->k);
}

bool lower_strip(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Strips *x = ARENA_NEW(l->arena, Strips);
  Rows *r = &x->r;
  Low *w = &r->w;
  Dot *d = &x->score;
  if (!find_dots(x, l, g, out, e) || !rows_begin(r, l, g, &x->s, e)) return false;
  if (r->col_count) return gerr_set(e, ERR_IR_FORM, -1, "sums of columns in a strip");
  dot_plan_a(d);
  dot_plan_b(d);
  if (!dot_pack_a(d) || !dot_pack_b(d)) return false;
  for (int i = 0; i < x->s.count; i++) {
    dot_plan_b(&x->dot[i]);
    if (!dot_pack_b(&x->dot[i])) return false;
  }
  int64_t per = STRIP_ROWS / d->mr < 1 ? 1 : STRIP_ROWS / d->mr;
  Dim strips = ceil_div(d, d->tiles, per);
  x->pitch = low_add(w, low_mul(w, low_ceil_div(w, d->n, 16), low_const_dim(w, 16)),
                     low_const_dim(w, GAP));
  x->s.scores = strip_buffer(x, per * d->mr);
  for (int i = 0; i < x->s.count; i++) {
    int same = i;
    for (int j = 0; j < i; j++) same = val_eq(x->s.left[j], x->s.left[i]) ? j : same;
    x->s.lefts[i] = same < i ? x->s.lefts[same] : strip_buffer(x, per * d->mr);
  }
  x->pitch_v = low_dim(w, x->pitch);
  LVal count = low_dim(w, strips), tiles = low_dim(w, d->tiles), mr = imm(w, d->mr);
  LVal turn = lp_par(w->k, low_dim(w, low_mul(w, d->turns_b, strips)));
  LVal strip = lp_irem(w->k, turn, count);
  x->batch = lp_idiv(w->k, turn, count);
  dot_batch_coords(d, w, x->batch, NULL, x->at);
  x->t0 = share(w, strip, tiles, count);
  x->tiles = sub(w, share(w, add(w, strip, imm(w, 1)), tiles, count), x->t0);
  x->row0 = mul(w, x->t0, mr);
  x->rows = least(w, mul(w, x->tiles, mr), sub(w, low_dim(w, d->m), x->row0));
  scores(x);
  rows_of_strip(x);
  for (int i = 0; i < x->s.count; i++) product(x, i);
  lp_end(w->k);
  Dim two = low_const_dim(w, 2), elements = low_mul(w, r->rows, r->cols);
  w->flops = low_add(w, w->flops, low_mul(w, low_mul(w, two, elements), d->k));
  for (int i = 0; i < x->s.count; i++) {
    w->flops = low_add(w, w->flops, low_mul(w, low_mul(w, two, elements), x->dot[i].n));
  }
  if (w->failed) return false;
  low_finish(w, out);
  return !w->failed;
}
