/* Lowering of convolutions.
 *
 * In: a group whose root is conv2d or one of its gradients. Out: kernels that copy the image
 * once, its channels last and with its border of zeros, and one that runs over tiles as for
 * products. In that copy the terms (kw, c) of a position lie side by side and those of the next
 * position `stride` pixels further: a tile of positions is read in place, without the matrix of
 * patches. Terms of the next kh begin a row further down: chains go on through scratch there.
 *
 *   conv2d         rows are positions (n, oh, ow), columns o, k is (kh, kw, c); image: x, padded
 *   conv2d_input   rows are positions (n, h, w), columns c, k is (kh, kw, o); image: g with zeros
 *                  between its pixels, back to front, so that kh and kw ascend
 *   conv2d_weight  rows are o, columns (kh, kw, c), k is (n, oh, ow); A is g in place; B is filled
 *                  from the padded x into scratch just before use
 *
 * Invariant: terms and their order are those of ref_conv.c. */
#include "graph/opcode.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_dot.h"

typedef struct Conv {
  OpCode op;
  int64_t stride[2], pad[2];
  Val image, other;     /* x or g, which is copied; w, or g of conv2d_weight */
  Dim count, channels;  /* of the image */
  Dim size[2];          /* of the image */
  Dim kernel[2], at[2]; /* height and width of the kernel, and of the positions */
  Dim copy[2];          /* of the copy */
  bool flat;            /* positions of an image are one row, some of them between rows */
  Dim positions, tiles; /* of an image, or of a row of positions; tiles of those */
  uint32_t panel;       /* the copy: [count][copy 0][copy 1][channels] */
  int buf;              /* of the copy, conv2d_weight */
  bool apart;           /* conv2d_weight: a panel of columns has several (kh, kw) */
} Conv;

static bool spread(const Conv *c) {
  return c->op == OP_CONV2D_INPUT;
}

static Dim product3(const Dot *d, Dim x, Dim y, Dim z) {
  return times(d, times(d, x, y), z);
}

/* ---- the copy */

/* One pixel of all channels' rows: the pixels `i` of image row h to row `row0` of the copy. */
static bool copy_row(Dot *d, Low *w, int to, LVal n, LVal h, LVal row0, LVal from, LVal count) {
  const Conv *c = d->conv;
  LVal channels = low_dim(w, c->channels), i, ch;
  bool narrow = at_most(d, c->size[1], 15) && !at_most(d, c->channels, 15);
  if (narrow) {
    i = lp_for(w->k, count);
    ch = lp_vec(w->k, channels);
  } else {
    ch = lp_for(w->k, channels);
    i = lp_vec(w->k, count);
  }
  LVal x = add(w, from, i), place;
  if (spread(c)) {
    LVal last = add(w, low_dim(w, c->at[1]), imm(w, c->pad[1] - 1));
    place = sub(w, last, mul(w, x, imm(w, c->stride[1])));
  } else {
    place = add(w, x, imm(w, c->pad[1]));
  }
  Digits at = {0};
  low_digit(w, &at, n, c->count);
  low_digit(w, &at, ch, c->channels);
  low_digit(w, &at, h, c->size[0]);
  low_digit(w, &at, x, c->size[1]);
  LVal v = dot_operand(d, w, c->image, &at);
  if (v == LV_NONE) return false;
  lp_store(w->k, to, add(w, row0, add(w, mul(w, place, channels), ch)), v);
  end(w);
  end(w);
  return true;
}

static bool copy_image(Dot *d, Conv *c) {
  Low w;
  for (int i = 0; i < 2; i++) {
    if (spread(c))
      c->copy[i] = dim_sub(d->t, dim_add(d->t, c->kernel[i], c->at[i]), dim_num(d, 1));
    else
      c->copy[i] = dim_add(d->t, c->size[i], dim_num(d, 2 * c->pad[i]));
  }
  Dim pitch = times(d, c->copy[1], c->channels), rows = times(d, c->count, c->copy[0]);
  c->panel = dot_panel(d, times(d, rows, pitch));
  low_begin(&w, d->l, d->group, d->e);
  int to = low_panel(&w, c->panel, d->dt, LB_OUT);
  LVal height = low_dim(&w, c->copy[0]), iteration = lp_par(w.k, low_dim(&w, rows)),
       zero = imm(&w, 0);
  LVal n = lp_idiv(w.k, iteration, height), y = lp_irem(w.k, iteration, height);
  LVal row0 = mul(&w, iteration, low_dim(&w, pitch)), one = imm(&w, 1);
  bool border = spread(c) || c->pad[0] > 0 || c->pad[1] > 0;
  if (border) {
    LVal i = lp_vec(w.k, low_dim(&w, pitch));
    lp_store(w.k, to, add(&w, row0, i), lp_const(w.k, d->dt, 0));
    end(&w);
  }
  LVal size = low_dim(&w, c->size[0]), from = zero, count = low_dim(&w, c->size[1]), h, inside;
  if (spread(c)) {
    LVal v = sub(&w, add(&w, low_dim(&w, c->at[0]), imm(&w, c->pad[0] - 1)), y);
    inside = lp_bin(w.k, RB_GE, v, zero);
    v = most_of(&w, v, zero);
    LVal by = imm(&w, c->stride[0]), stride = imm(&w, c->stride[1]);
    inside = lp_bin(w.k, RB_AND, inside, lp_bin(w.k, RB_EQ, lp_irem(w.k, v, by), zero));
    h = lp_idiv(w.k, v, by);
    inside = lp_bin(w.k, RB_AND, inside, lp_bin(w.k, RB_LT, h, size));
    /* Pixels that land inside the copy: from ceil((pad - kw + 1) / stride) on. */
    LVal least_at = sub(&w, imm(&w, c->pad[1] + 1), low_dim(&w, c->kernel[1]));
    from = lp_idiv(w.k, add(&w, most_of(&w, least_at, zero), imm(&w, c->stride[1] - 1)), stride);
    LVal last = add(&w, low_dim(&w, c->at[1]), imm(&w, c->pad[1] - 1));
    LVal past = add(&w, lp_idiv(w.k, last, stride), one);
    count = most_of(&w, sub(&w, least(&w, count, past), from), zero);
  } else {
    LVal v = sub(&w, y, imm(&w, c->pad[0]));
    inside = lp_bin(w.k, RB_AND, lp_bin(w.k, RB_GE, v, zero), lp_bin(w.k, RB_LT, v, size));
    h = v;
  }
  if (border) lp_if(w.k, inside);
  if (!copy_row(d, &w, to, n, h, row0, from, count)) return false;
  if (border) end(&w);
  end(&w);
  return dot_finish(d, &w, times(d, rows, pitch));
}

/* ---- conv2d and conv2d_input */

/* w as panels [panels][kh, kw, channel][nr]; an iteration is a (kh, kw) of a panel. */
static bool pack_weight(Dot *d, Conv *c) {
  Low w;
  low_begin(&w, d->l, d->group, d->e);
  int panel = low_panel(&w, d->b.panel, d->dt, LB_OUT);
  LVal area = low_dim(&w, times(d, c->kernel[0], c->kernel[1])), n = low_dim(&w, d->n);
  LVal nr = imm(&w, d->nr), channels = low_dim(&w, c->channels);
  Dim iterations = product3(d, c->kernel[0], c->kernel[1], d->panels);
  LVal iteration = lp_par(w.k, low_dim(&w, iterations));
  LVal number = lp_idiv(w.k, iteration, area), offset = lp_irem(w.k, iteration, area);
  LVal kw = low_dim(&w, c->kernel[1]), c0 = mul(&w, number, nr);
  LVal k = lp_for(w.k, channels), j = lp_vec(w.k, least(&w, nr, sub(&w, n, c0)));
  LVal col = add(&w, c0, j);
  Digits at = {0};
  low_digit(&w, &at, spread(c) ? k : col, spread(c) ? c->channels : d->n);
  low_digit(&w, &at, spread(c) ? col : k, spread(c) ? d->n : c->channels);
  low_digit(&w, &at, lp_idiv(w.k, offset, kw), c->kernel[0]);
  low_digit(&w, &at, lp_irem(w.k, offset, kw), c->kernel[1]);
  LVal x = dot_operand(d, &w, c->other, &at);
  if (x == LV_NONE) return false;
  lp_store(w.k, panel, add(&w, mul(&w, add(&w, mul(&w, iteration, channels), k), nr), j), x);
  for (int i = 0; i < 3; i++) end(&w);
  return dot_finish(d, &w, times(d, d->k, d->n));
}

static void image_rows(Dot *d, Main *f, LVal tile, Place *o) {
  Low *w = &f->w;
  const Conv *c = d->conv;
  LVal tiles = low_dim(w, c->tiles), width = low_dim(w, c->positions), one = imm(w, 1), first;
  LVal rest = lp_idiv(w->k, tile, tiles), last = sub(w, width, one);
  o->r0 = mul(w, lp_irem(w->k, tile, tiles), imm(w, d->mr));
  o->rows = least(w, imm(w, d->mr), sub(w, width, o->r0));
  o->high[0] = rest;
  o->high[1] = imm(w, 0);
  LVal row = mul(w, rest, low_dim(w, c->copy[0]));
  if (c->flat) {
    first = spread(c) ? sub(w, last, o->r0) : o->r0;
  } else {
    LVal height = low_dim(w, c->at[0]);
    o->high[0] = lp_idiv(w->k, rest, height);
    o->high[1] = lp_irem(w->k, rest, height);
    row = mul(w, o->high[0], low_dim(w, c->copy[0]));
    row = add(w, row, mul(w, o->high[1], imm(w, c->stride[0])));
    first = mul(w, o->r0, imm(w, c->stride[1]));
  }
  LVal pixel = add(w, mul(w, row, low_dim(w, c->copy[1])), first);
  o->a = mul(w, pixel, low_dim(w, c->channels));
}

static LVal image_skip(Dot *d, Main *f, LVal k0) {
  Low *w = &f->w;
  LVal run = low_dim(w, d->run), kh = lp_idiv(w->k, k0, run);
  LVal pitch = low_dim(w, times(d, d->conv->copy[1], d->conv->channels));
  return add(w, mul(w, kh, pitch), lp_irem(w->k, k0, run));
}

static LVal image_digits(Dot *d, Main *f, const Place *o, LVal row, LVal col, Digits *at) {
  Low *w = &f->w;
  const Conv *c = d->conv;
  row = add(w, o->r0, row);
  low_digit(w, at, o->high[0], c->count);
  low_digit(w, at, col, d->n);
  low_digit(w, at, o->high[1], c->at[0]);
  low_digit(w, at, row, c->at[1]);
  LVal plane = add(w, mul(w, o->high[0], f->n), col);
  LVal line = add(w, mul(w, plane, low_dim(w, c->at[0])), o->high[1]);
  return add(w, mul(w, line, low_dim(w, c->at[1])), row);
}

/* The chains of a tile lie in `from`, rows of nr from `base` on: to the results, lanes along a
 * row of positions, as those lie. */
static bool image_finish(Dot *d, Main *f, const Place *o, int from, LVal base) {
  Low *w = &f->w;
  const Conv *c = d->conv;
  LVal one = imm(w, 1), lo = o->r0, count = o->rows;
  Place at = *o;
  if (c->flat) { /* the rows that the tile has a part of */
    LVal pitch = low_dim(w, c->copy[1]), end_row = add(w, o->r0, o->rows);
    LVal y0 = lp_idiv(w->k, o->r0, pitch), y1 = lp_idiv(w->k, sub(w, end_row, one), pitch);
    at.high[1] = add(w, y0, lp_for(w->k, add(w, sub(w, y1, y0), one)));
    LVal start = mul(w, at.high[1], pitch), hi = add(w, start, low_dim(w, c->at[1]));
    lo = most_of(w, o->r0, start);
    count = most_of(w, sub(w, least(w, end_row, hi), lo), imm(w, 0));
    at.r0 = sub(w, lo, start);
  }
  LVal j = lp_for(w->k, o->cols), i = lp_vec(w->k, count);
  LVal row = add(w, sub(w, lo, o->r0), i);
  LVal x = lp_load(w->k, from, add(w, add(w, base, mul(w, row, imm(w, d->nr))), j));
  if (!dot_element(d, f, &at, i, j, x)) return false;
  end(w);
  end(w);
  if (c->flat) end(w);
  return true;
}

static const Form image_form = {image_rows, image_skip, image_digits, NULL, image_finish};

static bool low_image(Dot *d, Conv *c) {
  d->form = &image_form;
  d->n = d->type->dim[1];
  d->m = product3(d, c->count, c->at[0], c->at[1]);
  d->run = times(d, c->kernel[1], c->channels);
  d->k = times(d, c->kernel[0], d->run);
  c->flat = spread(c) || (c->stride[0] == 1 && c->stride[1] == 1);
  c->positions = c->at[1];
  if (c->flat) {
    Dim above = dim_sub(d->t, c->at[0], dim_num(d, 1));
    c->positions = dim_add(d->t, times(d, above, c->copy[1]), c->at[1]);
  }
  dot_choose_tile(d, c->positions);
  c->tiles = ceil_div(d, c->positions, d->mr);
  d->tiles = times(d, c->count, c->tiles);
  if (!c->flat) d->tiles = times(d, d->tiles, c->at[0]);
  d->a.kind = SIDE_ROWS;
  d->a.panel = c->panel;
  if (spread(c))
    d->a.row = dim_sub(d->t, dim_num(d, 0), c->channels);
  else
    d->a.row = times(d, c->channels, dim_num(d, c->stride[1]));
  d->a.step = dim_num(d, 1);
  d->b.kind = SIDE_TILES;
  d->b.step = dim_num(d, d->nr);
  d->b.row = times(d, d->k, d->b.step);
  d->b.panel = dot_panel(d, times(d, d->panels, d->b.row));
  d->a.batch = d->b.batch = dim_num(d, 0);
  return pack_weight(d, c) && dot_main(d);
}

/* ---- conv2d_weight */

static void weight_rows(Dot *d, Main *f, LVal tile, Place *o) {
  Low *w = &f->w;
  o->r0 = mul(w, tile, imm(w, d->mr));
  o->rows = least(w, imm(w, d->mr), sub(w, f->m, o->r0));
  o->a = add(w, f->a0, mul(w, o->r0, f->a_row));
}

static LVal weight_skip(Dot *d, Main *f, LVal k0) {
  Low *w = &f->w;
  LVal run = low_dim(w, d->run), n = lp_idiv(w->k, k0, run);
  return add(w, mul(w, n, low_dim(w, d->a.view.stride[0])), lp_irem(w->k, k0, run));
}

/* Column -> (kh, kw, c). */
static void columns(Dot *d, Low *w, LVal col, LVal *kh, LVal *kw, LVal *ch) {
  const Conv *c = d->conv;
  LVal channels = low_dim(w, c->channels), width = low_dim(w, c->kernel[1]);
  LVal rest = lp_idiv(w->k, col, channels);
  *ch = lp_irem(w->k, col, channels);
  *kh = lp_idiv(w->k, rest, width);
  *kw = lp_irem(w->k, rest, width);
}

static LVal weight_digits(Dot *d, Main *f, const Place *o, LVal row, LVal col, Digits *at) {
  Low *w = &f->w;
  const Conv *c = d->conv;
  LVal kh, kw, ch;
  if (c->apart) {
    columns(d, w, col, &kh, &kw, &ch);
  } else { /* all columns of the panel have one (kh, kw) */
    columns(d, w, o->c0, &kh, &kw, &ch);
    ch = add(w, ch, sub(w, col, o->c0));
  }
  row = add(w, o->r0, row);
  low_digit(w, at, row, d->m);
  low_digit(w, at, ch, c->channels);
  low_digit(w, at, kh, c->kernel[0]);
  low_digit(w, at, kw, c->kernel[1]);
  LVal plane = add(w, mul(w, row, low_dim(w, c->channels)), ch);
  LVal line = add(w, mul(w, plane, low_dim(w, c->kernel[0])), kh);
  return add(w, mul(w, line, low_dim(w, c->kernel[1])), kw);
}

/* Where a column is read, seen from a position. */
static LVal column_offset(Dot *d, Low *w, LVal kh, LVal kw, LVal ch) {
  const Conv *c = d->conv;
  LVal pixel = add(w, mul(w, kh, low_dim(w, c->copy[1])), kw);
  return add(w, mul(w, pixel, low_dim(w, c->channels)), ch);
}

static bool weight_fill(Dot *d, Main *f, LVal c0, LVal cols, LVal k0, LVal depth, int to) {
  Low *w = &f->w;
  const Conv *c = d->conv;
  LVal nr = imm(w, d->nr), kh, kw, ch, base = LV_NONE, j;
  int offsets = -1;
  if (c->apart) {
    offsets = low_local(w, DT_I64, -1, d->nr);
    j = lp_vec(w->k, cols);
    columns(d, w, add(w, c0, j), &kh, &kw, &ch);
    lp_store(w->k, offsets, j, column_offset(d, w, kh, kw, ch));
    end(w);
  } else {
    columns(d, w, c0, &kh, &kw, &ch);
    base = column_offset(d, w, kh, kw, ch);
  }
  /* Row by row of positions. */
  LVal width = low_dim(w, c->at[1]), height = low_dim(w, c->at[0]), one = imm(w, 1);
  LVal k1 = add(w, k0, depth), row0 = lp_idiv(w->k, k0, width);
  LVal rows = add(w, sub(w, lp_idiv(w->k, sub(w, k1, one), width), row0), one);
  LVal line = add(w, row0, lp_for(w->k, rows)), start = mul(w, line, width);
  LVal y = lp_irem(w->k, line, height), n = lp_idiv(w->k, line, height);
  LVal row = add(w, mul(w, n, low_dim(w, c->copy[0])), mul(w, y, imm(w, c->stride[0])));
  LVal from = most_of(w, k0, start), past = least(w, k1, add(w, start, width));
  LVal i = lp_for(w->k, sub(w, past, from)), x = add(w, sub(w, from, start), i);
  LVal pixel = add(w, mul(w, row, low_dim(w, c->copy[1])), mul(w, x, imm(w, c->stride[1])));
  LVal first = mul(w, pixel, low_dim(w, c->channels));
  j = lp_vec(w->k, cols);
  LVal at = add(w, first, c->apart ? lp_load(w->k, offsets, j) : add(w, base, j));
  LVal place = mul(w, add(w, sub(w, from, k0), i), nr);
  lp_store(w->k, to, add(w, place, j), lp_load(w->k, c->buf, at));
  for (int e = 0; e < 3; e++) end(w);
  return true;
}

static const Form weight_form = {weight_rows, weight_skip, weight_digits, weight_fill, NULL};

/* g as it lies, or a plain copy of it in the computing type. */
static bool place_g(Dot *d, Conv *c) {
  Side *s = &d->a;
  const Type *t = s->type;
  s->v = c->other;
  low_view(d->l, s->v, &s->view);
  bool even = dim_is(d, s->view.stride[3], 1) &&
              dim_compare(d->t, s->view.stride[2], t->dim[3]) == DIM_EQUAL;
  s->kind = SIDE_DIRECT;
  s->step = dim_num(d, 1);
  s->row = s->view.stride[1];
  if (even && dot_readable(d, s)) return true;
  enum { PART = 16384 };
  Low w;
  Dim count = dim_product(d->t, 4, t->dim), line = t->dim[3];
  s->kind = SIDE_ROWS;
  s->view.stride[1] = s->row = times(d, t->dim[2], line);
  s->view.stride[0] = times(d, t->dim[1], s->row);
  s->batch = dim_num(d, 0);
  s->panel = dot_panel(d, count);
  low_begin(&w, d->l, d->group, d->e);
  int to = low_panel(&w, s->panel, d->dt, LB_OUT);
  LVal width = low_dim(&w, line);
  LVal iteration = lp_par(w.k, low_dim(&w, product3(d, t->dim[0], t->dim[1], t->dim[2])));
  LVal i = lp_vec(w.k, width);
  Digits at = {0};
  low_digit(&w, &at, iteration, product3(d, t->dim[0], t->dim[1], t->dim[2]));
  low_digit(&w, &at, i, line);
  LVal x = dot_operand(d, &w, s->v, &at);
  if (x == LV_NONE) return false;
  lp_store(w.k, to, add(&w, mul(&w, iteration, width), i), x);
  end(&w);
  end(&w);
  return dot_finish(d, &w, count);
}

static bool low_weight(Dot *d, Conv *c) {
  int64_t channels;
  d->form = &weight_form;
  d->m = d->type->dim[0];
  d->n = product3(d, c->channels, c->kernel[0], c->kernel[1]);
  d->run = times(d, c->at[0], c->at[1]);
  d->k = times(d, c->count, d->run);
  dot_choose_tile(d, d->m);
  d->tiles = ceil_div(d, d->m, d->mr);
  c->apart = !(dim_known(d, c->channels, &channels) && channels % d->nr == 0);
  d->b.kind = SIDE_LOCAL;
  d->b.step = dim_num(d, d->nr);
  return place_g(d, c) && dot_main(d);
}

/* For the main kernel of conv2d_weight: it reads the copy too. */
void conv_begin(Dot *d, Main *f) {
  Conv *c = (Conv *)d->conv;
  if (c && c->op == OP_CONV2D_WEIGHT) c->buf = low_panel(&f->w, c->panel, d->dt, LB_IN);
}

bool low_conv(Dot *d, OpCode op) {
  const Graph *g = d->l->g;
  uint32_t root = d->group->root;
  bool weight = op == OP_CONV2D_WEIGHT;
  Conv c = {.op = op};
  const int64_t *stride = gr_attr(g, root, AT_STRIDE)->u.ints;
  const int64_t *pad = gr_attr(g, root, AT_PAD)->u.ints;
  c.image = gr_operand(g, root, 0);
  c.other = gr_operand(g, root, 1);
  const Type *image = gr_type(g, c.image), *other = gr_type(g, c.other);
  const Type *kernel = weight ? d->type : other, *positions = weight ? other : d->type;
  d->a.type = weight ? other : image;
  d->conv = &c;
  d->rank = 4;
  c.count = image->dim[0];
  c.channels = image->dim[1];
  for (int i = 0; i < 2; i++) {
    c.stride[i] = stride[i];
    c.pad[i] = pad[i];
    c.size[i] = image->dim[2 + i];
    c.kernel[i] = kernel->dim[2 + i];
    c.at[i] = positions->dim[2 + i];
  }
  if (!copy_image(d, &c)) return false;
  return weight ? low_weight(d, &c) : low_image(d, &c);
}
