/* Strips: contraction -> rows -> contractions, a few rows at a time.
 *
 * In: a group whose root is a dot [B.., M, K] x [B.., K, N], with reductions over its rows,
 * pointwise work around them, and dots whose left operand is one of the values of that shape: the
 * scores of attention, their softmax and the weighted values, or what the gradient makes of them.
 * Out: kernels that pack operands, and one whose iteration is a strip of rows of one batch: chains
 * of the scores go to scratch tile by tile, the passes of lower_rows.c run over them, what the
 * other dots read is left in scratch too, and they run over the strip. So scores exist in the
 * second cache alone, unless they are outs.
 *
 * Invariant: each step does what its own group would do, in the same order; bits are the same. */
#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_dot.h"
#include "jit/lower/lower_rows.h"

enum {
  STRIP_ROWS = 28, /* chains over rows go by fours */
  GAP = 16         /* elements between rows, so that rows do not share sets of the first cache */
};

/* How a contraction reads a value X [.., T, N] of the strip: by rows, X @ b; by columns, with T
 * contracted, X^T @ b or a @ X. */
typedef enum How { BY_ROWS, TRANSPOSED, RIGHT } How;

typedef struct Strips {
  Rows r;
  Strip s;
  Dot score, dot[MAX_DOTS];
  How how[MAX_DOTS];
  int acc[MAX_DOTS]; /* by columns: chains so far */
  bool columns;      /* some are */
  Dim pitch;
  LVal pitch_v, batch;        /* number of the batch */
  LVal t0, tiles, row0, rows; /* of this strip: tiles of the scores, and rows, in the batch */
} Strips;

static void fit_tiles(Dot *d) {
  dot_choose_tile(d, d->m);
  d->tiles = ceil_div(d, d->m, d->mr);
}

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
  d->iterations_b = d->gate = dim_num(d, 1);
  for (int i = 0; i < d->batch; i++) {
    d->iterations_b = times(d, d->iterations_b, d->type->dim[i]);
    d->a.batched[i] = !dim_is(d, d->a.view.stride[i], 0);
    d->b.batched[i] = !dim_is(d, d->b.view.stride[i], 0);
  }
  d->run = d->k;
  fit_tiles(d);
  if (d->m == DIM_BAD || d->iterations_b == DIM_BAD || d->tiles == DIM_BAD || d->panels == DIM_BAD)
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

/* Whether v, of T x N, is what a node of the group makes, or reads element by element. */
static bool of_rows(const Strips *x, const Group *group, Val v, Dim t, Dim n, bool makes) {
  const Graph *g = x->score.l->g;
  const Type *type = gr_type(g, v);
  if (type->rank < 3 || type->dim[type->rank - 2] != t || type->dim[type->rank - 1] != n)
    return false;
  v = same_elements(g, v);
  for (uint32_t i = 0; i < group->node_count; i++) {
    uint32_t node = group->nodes[i];
    if (g->nodes[node].op == OP_DOT) continue;
    if (node == v.node) return true;
    for (uint32_t k = 0; k < g->nodes[node].operand_count && !makes; k++) {
      if (val_eq(same_elements(g, gr_operand(g, node, k)), v)) return true;
    }
  }
  return val_eq(v, x->s.score);
}

bool low_transposed(const Graph *g, Val v, Val *out) {
  while (g->nodes[v.node].op == OP_ALIAS || g->nodes[v.node].op == OP_STOP)
    v = gr_operand(g, v.node, 0);
  if (g->nodes[v.node].op != OP_TRANSPOSE) return false;
  const Attr *perm = gr_attr(g, v.node, AT_PERM);
  int n = (int)perm->count;
  for (int i = 0; i < n; i++) {
    int to = i < n - 2 ? i : 2 * n - 3 - i;
    if (perm->u.ints[i] != to) return false;
  }
  *out = gr_operand(g, v.node, 0);
  return n > 2;
}

/* The transposed product a @ X, of which the transpose is the out: X^T @ a^T. */
static void transpose(Dot *d, Val out) {
  Dim m = d->m, *stride = d->a.view.stride, step = stride[d->rank - 1];
  stride[d->rank - 1] = stride[d->rank - 2];
  stride[d->rank - 2] = step;
  d->b = d->a;
  d->b.transposed = true;
  d->m = d->n;
  d->n = m;
  d->z = out;
  fit_tiles(d);
}

static bool find_dots(Strips *x, Lower *l, const Group *group, Lowered *out, GErr *e) {
  const Graph *g = l->g;
  Strip *s = &x->s;
  s->score = (Val){group->root, 0};
  if (!dot_begin(&x->score, l, group, out, e, group->root)) return false;
  Dim t = x->score.m, n = x->score.n;
  for (uint32_t i = 0; i < group->node_count; i++) {
    uint32_t node = group->nodes[i];
    if (g->nodes[node].op != OP_DOT || node == group->root) continue;
    if (s->count == MAX_DOTS) return gerr_set(e, ERR_IR_FORM, -1, "too many products of a strip");
    if (!dot_begin(&x->dot[s->count], l, group, out, e, node)) return false;
    if (x->dot[s->count].dt != x->score.dt)
      return gerr_set(e, ERR_IR_FORM, -1, "products of several types in a strip");
    Val a = gr_operand(g, node, 0), b = gr_operand(g, node, 1), from;
    How *how = &x->how[s->count];
    if (of_rows(x, group, a, t, n, true)) {
      *how = BY_ROWS;
      from = a;
    } else if (of_rows(x, group, b, t, n, false)) {
      *how = RIGHT;
      from = b;
      for (uint32_t k = 0; k < group->out_count; k++) {
        Val v = group->outs[k];
        if (g->nodes[v.node].op != OP_TRANSPOSE || gr_operand(g, v.node, 0).node != node) continue;
        transpose(&x->dot[s->count], v);
        *how = TRANSPOSED;
      }
    } else if (low_transposed(g, a, &from) && of_rows(x, group, from, t, n, false)) {
      *how = TRANSPOSED;
    } else {
      return gerr_set(e, ERR_IR_FORM, -1, "a product that reads no row of a strip");
    }
    x->columns |= *how != BY_ROWS;
    s->dot[s->count] = node;
    s->left[s->count++] = same_elements(g, from);
  }
  return true;
}

/* Elements of `count` rows of that pitch. */
static int rows_buffer(Strips *x, Dim pitch, int64_t count) {
  Low *w = &x->r.w;
  int64_t n;
  if (low_known(w, pitch, &n)) return low_local(w, x->score.dt, -1, count * (n > 0 ? n : 1));
  return low_local(w, x->score.dt, low_dim_arg(w, pitch), count);
}

typedef struct Operand { /* of a tile: a buffer, the first element, strides of rows and of k */
  int buf;
  LVal at, row, step;
} Operand;

/* A tile of `d`: its rows and columns that are there, chains of `depth`, from `start` on where that
 * is a buffer. */
static LVal open_tile(Low *w, const Dot *d, LVal rows, LVal cols, LVal depth, Operand a, Operand b,
                      Operand start) {
  LVal operand[TILE_OPERANDS] = {[TILE_DEPTH] = depth,    [TILE_ROWS] = rows,
                                 [TILE_COLS] = cols,      [TILE_A] = a.at,
                                 [TILE_A_ROW] = a.row,    [TILE_A_STEP] = a.step,
                                 [TILE_B] = b.at,         [TILE_B_STEP] = b.step,
                                 [TILE_START] = start.at, [TILE_START_ROW] = start.row};
  return lp_tile(w->k, d->dt, d->mr, d->nr, a.buf, b.buf, start.buf, operand);
}

static Operand no_start(Low *w) {
  return (Operand){LP_NO_BUF, imm(w, 0), imm(w, 0), imm(w, 0)};
}

/* Columns of panel p that are there. */
static LVal columns_of(Low *w, const Dot *d, LVal p) {
  LVal nr = imm(w, d->nr);
  int64_t n;
  if (dim_known(d, d->n, &n) && n % d->nr == 0) return nr;
  return least(w, nr, sub(w, low_dim(w, d->n), mul(w, p, nr)));
}

/* Panel p of the right operand, from k0 on. */
static Operand right(Strips *x, const Dot *d, LVal p, LVal k0) {
  Low *w = &x->r.w;
  LVal at[CKL_MAX_RANK], step = low_dim(w, d->b.step);
  dot_batch_coords(d, w, x->batch, NULL, at);
  LVal first = add(w, mul(w, p, low_dim(w, d->b.row)), mul(w, k0, step));
  first = add(w, dot_side_base(d, w, &d->b, at), first);
  return (Operand){dot_side_buf(d, w, &d->b), first, LV_NONE, step};
}

/* Tile t of the left operand, whose first row is r0, from k0 on. */
static Operand left(Strips *x, const Dot *d, LVal t, LVal r0, LVal k0) {
  Low *w = &x->r.w;
  LVal at[CKL_MAX_RANK], row = low_dim(w, d->a.row), step = low_dim(w, d->a.step);
  dot_batch_coords(d, w, x->batch, NULL, at);
  LVal first = d->a.kind == SIDE_TILES ? mul(w, t, low_dim(w, dot_group_stride(d, A_PITCH)))
                                       : mul(w, r0, row);
  first = add(w, dot_side_base(d, w, &d->a, at), add(w, first, mul(w, k0, step)));
  return (Operand){dot_side_buf(d, w, &d->a), first, row, step};
}

/* The chains of the strip's scores. */
static void scores(Strips *x) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->score;
  LVal mr = imm(w, d->mr), p = lp_for(k, low_dim(w, d->panels)), i = lp_for(k, x->tiles);
  LVal r0 = mul(w, i, mr), rows = least(w, mr, sub(w, x->rows, r0));
  Operand a = left(x, d, add(w, x->t0, i), add(w, x->row0, r0), imm(w, 0));
  LVal c = open_tile(w, d, rows, columns_of(w, d, p), low_dim(w, d->k), a,
                     right(x, d, p, imm(w, 0)), no_start(w));
  LVal col = add(w, mul(w, p, imm(w, d->nr)), lp_col(k, c));
  lp_store(k, x->s.scores, add(w, mul(w, add(w, r0, lp_row(k, c)), x->pitch_v), col), c);
  for (int n = 0; n < 3; n++) lp_end(k);
}

/* The passes over the strip's rows. Where one row is left of two, it is worked on twice, with the
 * same stores. */
static void rows_of_strip(Strips *x) {
  Rows *r = &x->r;
  Low *w = &r->w;
  LVal side = imm(w, r->side), last = sub(w, x->rows, imm(w, 1));
  LVal iterations = lp_idiv(w->k, add(w, x->rows, imm(w, r->side - 1)), side);
  LVal first = mul(w, lp_for(w->k, iterations), side);
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

/* Tiles of X @ b over `depth` of its chains from k0 on: results are stored, or added. */
static void tiles_of(Strips *x, int n, LVal k0, LVal depth, bool adds) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->dot[n];
  int to = low_value(w, d->z, LB_OUT);
  LVal mr = imm(w, d->mr), p = lp_for(k, low_dim(w, d->panels));
  LVal t = lp_for(k, lp_idiv(k, add(w, x->rows, imm(w, d->mr - 1)), mr)), r0 = mul(w, t, mr);
  Operand a = {x->s.lefts[n], add(w, mul(w, r0, x->pitch_v), k0), x->pitch_v, imm(w, 1)};
  LVal c = open_tile(w, d, least(w, mr, sub(w, x->rows, r0)), columns_of(w, d, p), depth, a,
                     right(x, d, p, k0), no_start(w));
  LVal row = add(w, mul(w, x->batch, low_dim(w, d->m)), add(w, x->row0, r0));
  LVal at = mul(w, add(w, row, lp_row(k, c)), low_dim(w, d->n));
  at = add(w, at, add(w, mul(w, p, imm(w, d->nr)), lp_col(k, c)));
  if (adds) c = lp_bin(k, RB_ADD, lp_load(k, low_value(w, d->z, LB_IN), at), c);
  lp_store(k, to, at, c);
  for (int i = 0; i < 3; i++) lp_end(k);
}

/* Chains of 4,096, whose results are added left to right (rule 105). */
static void by_rows(Strips *x, int n) {
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

/* ---- contractions over the rows: their chains go on from strip to strip, in scratch
 * [rows of the result][pitch] */
static LVal acc_pitch(Strips *x, int n) {
  return x->how[n] == RIGHT ? x->pitch_v : low_dim(&x->r.w, x->dot[n].n);
}

static void by_columns(Strips *x, int n) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->dot[n];
  LVal zero = imm(w, 0), mr = imm(w, d->mr), nr = imm(w, d->nr);
  LVal p = lp_for(k, low_dim(w, d->panels)), t = lp_for(k, low_dim(w, d->tiles));
  LVal r0 = mul(w, t, mr), rows = least(w, mr, sub(w, low_dim(w, d->m), r0)), c0 = mul(w, p, nr);
  Operand a, b;
  if (x->how[n] == TRANSPOSED) {
    a = (Operand){x->s.lefts[n], r0, imm(w, 1), x->pitch_v};
    b = right(x, d, p, x->row0);
  } else {
    a = left(x, d, t, r0, x->row0);
    b = (Operand){x->s.lefts[n], c0, zero, x->pitch_v};
  }
  LVal pitch = acc_pitch(x, n), at = add(w, mul(w, r0, pitch), c0);
  LVal c = open_tile(w, d, rows, columns_of(w, d, p), x->rows, a, b,
                     (Operand){x->acc[n], at, pitch, zero});
  at = add(w, at, add(w, mul(w, lp_row(k, c), pitch), lp_col(k, c)));
  lp_store(k, x->acc[n], at, c);
  for (int i = 0; i < 3; i++) lp_end(k);
}

static void clear_columns(Strips *x, int n) {
  Low *w = &x->r.w;
  LVal i = lp_vec(w->k, mul(w, low_dim(w, x->dot[n].m), acc_pitch(x, n)));
  lp_store(w->k, x->acc[n], i, lp_const(w->k, x->score.dt, 0));
  lp_end(w->k);
}

/* Stores the chains of the first block of 4,096 as the result; adds those of later blocks. */
static void give_columns(Strips *x, int n, LVal block) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->dot[n];
  LVal m = low_dim(w, d->m), width = low_dim(w, d->n), pitch = acc_pitch(x, n);
  int to = low_value(w, d->z, LB_OUT);
  for (int more = 0; more < (block == LV_NONE ? 1 : 2); more++) {
    if (block != LV_NONE) lp_if(k, lp_bin(k, more ? RB_GT : RB_EQ, block, imm(w, 0)));
    LVal row = lp_for(k, m), col = lp_vec(k, width);
    LVal at = add(w, mul(w, add(w, mul(w, x->batch, m), row), width), col);
    LVal c = lp_load(k, x->acc[n], add(w, mul(w, row, pitch), col));
    if (more) c = lp_bin(k, RB_ADD, lp_load(k, low_value(w, d->z, LB_IN), at), c);
    lp_store(k, to, at, c);
    for (int i = block == LV_NONE ? 1 : 0; i < 3; i++) lp_end(k);
  }
}

/* Strip number `strip`, of `per` tiles, of the rows from `first` on, `m` of them in `tiles`. */
static void one_strip(Strips *x, LVal strip, LVal per, LVal first, LVal m, LVal tiles) {
  Low *w = &x->r.w;
  LVal mr = imm(w, x->score.mr);
  x->t0 = mul(w, strip, per);
  x->tiles = least(w, per, sub(w, tiles, x->t0));
  LVal from = mul(w, x->t0, mr);
  x->row0 = add(w, first, from);
  x->rows = least(w, mul(w, x->tiles, mr), sub(w, m, from));
  scores(x);
  rows_of_strip(x);
  for (int i = 0; i < x->s.count; i++) {
    if (x->how[i] == BY_ROWS)
      by_rows(x, i);
    else
      by_columns(x, i);
  }
}

/* An iteration: all strips of a batch, in order. */
static void whole_batches(Strips *x, int64_t per) {
  Low *w = &x->r.w;
  Kernel *k = w->k;
  const Dot *d = &x->score;
  bool several = !at_most(d, d->m, CHAIN);
  LVal m = low_dim(w, d->m), chain = imm(w, CHAIN), first = imm(w, 0), count = m;
  LVal block = LV_NONE;
  x->batch = lp_par(k, low_dim(w, d->iterations_b));
  if (several) {
    block = lp_for(k, lp_idiv(k, add(w, m, imm(w, CHAIN - 1)), chain));
    first = mul(w, block, chain);
    count = least(w, chain, sub(w, m, first));
  }
  for (int i = 0; i < x->s.count; i++)
    if (x->how[i] != BY_ROWS) clear_columns(x, i);
  LVal tiles = lp_idiv(k, add(w, count, imm(w, d->mr - 1)), imm(w, d->mr));
  LVal strips = lp_idiv(k, add(w, tiles, imm(w, per - 1)), imm(w, per));
  one_strip(x, lp_for(k, strips), imm(w, per), first, count, tiles);
  lp_end(k);
  for (int i = 0; i < x->s.count; i++)
    if (x->how[i] != BY_ROWS) give_columns(x, i, block);
  if (several) lp_end(k);
  lp_end(k);
}

/* How a contraction over the rows reads its other operand, and its scratch. */
static bool plan_columns(Strips *x, int n) {
  Dot *d = &x->dot[n];
  int64_t size;
  if (x->how[n] == TRANSPOSED) {
    dot_plan_b(d);
    if (!dot_pack_b(d)) return false;
    if (!dim_known(d, d->n, &size))
      return gerr_set(d->e, ERR_IR_FORM, -1, "columns of an unknown size");
    return true;
  }
  if (dot_readable(d, &d->a)) {
    d->a.kind = SIDE_DIRECT;
    d->a.row = d->a.view.stride[d->rank - 2];
    d->a.step = d->a.view.stride[d->rank - 1];
  } else {
    dot_plan_a(d);
    if (!dot_pack_a(d)) return false;
  }
  if (!dim_known(d, d->m, &size))
    return gerr_set(d->e, ERR_IR_FORM, -1, "rows of an unknown number");
  return true;
}

static void columns_buffer(Strips *x, int n) {
  const Dot *d = &x->dot[n];
  int64_t size = 1;
  if (x->how[n] == RIGHT) {
    dim_known(d, d->m, &size);
    x->acc[n] = rows_buffer(x, x->pitch, size);
  } else if (x->how[n] == TRANSPOSED) {
    dim_known(d, d->n, &size);
    x->acc[n] = rows_buffer(x, d->m, size);
  }
}

bool low_strip(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Strips *x = ARENA_NEW(l->arena, Strips);
  Rows *r = &x->r;
  Low *w = &r->w;
  Dot *d = &x->score;
  if (!find_dots(x, l, g, out, e) || !rows_begin(r, l, g, &x->s, e)) return false;
  if (r->col_count) return gerr_set(e, ERR_IR_FORM, -1, "sums of columns in a strip");
  dot_plan_a(d);
  dot_plan_b(d);
  if (!dot_pack_a(d) || !dot_pack_b(d)) return false;
  if (x->columns && d->a.kind == SIDE_TILES && !at_most(d, d->m, CHAIN))
    return gerr_set(e, ERR_IR_FORM, -1, "tiles across blocks of a chain");
  for (int i = 0; i < x->s.count; i++) {
    if (x->how[i] != BY_ROWS) {
      if (!plan_columns(x, i)) return false;
      continue;
    }
    dot_plan_b(&x->dot[i]);
    if (!dot_pack_b(&x->dot[i])) return false;
  }
  int64_t per = STRIP_ROWS / d->mr < 1 ? 1 : STRIP_ROWS / d->mr;
  x->pitch = low_add(w, low_mul(w, low_ceil_div(w, d->n, 16), low_const_dim(w, 16)),
                     low_const_dim(w, GAP));
  x->s.scores = rows_buffer(x, x->pitch, per * d->mr);
  for (int i = 0; i < x->s.count; i++) {
    int same = i;
    for (int j = 0; j < i; j++) same = val_eq(x->s.left[j], x->s.left[i]) ? j : same;
    x->s.lefts[i] = same < i ? x->s.lefts[same] : rows_buffer(x, x->pitch, per * d->mr);
    columns_buffer(x, i);
  }
  x->pitch_v = low_dim(w, x->pitch);
  if (x->columns) {
    whole_batches(x, per);
  } else {
    Dim strips = ceil_div(d, d->tiles, per);
    LVal count = low_dim(w, strips);
    LVal iteration = lp_par(w->k, low_dim(w, low_mul(w, d->iterations_b, strips)));
    x->batch = lp_idiv(w->k, iteration, count);
    one_strip(x, lp_irem(w->k, iteration, count), imm(w, per), imm(w, 0), low_dim(w, d->m),
              low_dim(w, d->tiles));
    lp_end(w->k);
  }
  Dim two = low_const_dim(w, 2), elements = low_mul(w, r->rows, r->cols);
  w->flops = low_add(w, w->flops, low_mul(w, low_mul(w, two, elements), d->k));
  for (int i = 0; i < x->s.count; i++) {
    const Dot *y = &x->dot[i];
    Dim each = x->how[i] == RIGHT ? y->m : y->n;
    w->flops = low_add(w, w->flops, low_mul(w, low_mul(w, two, elements), each));
  }
  if (w->failed) return false;
  low_finish(w, out);
  return !w->failed;
}
