/* ref_conv2d and its two gradients, as contractions by the kernel of ref_gemm.h.
 *
 * In: x [N, C, H, W], w [O, C, h, w] or g [N, O, H', W'] of any strides. Out: a new row-major
 * tensor. Each element of a result is one contraction (rule 105) whose terms are, in this order,
 *   conv2d         over (kh, kw, c):  w[o, c, kh, kw] * x[n, c, oh * s + kh - p, ow * s + kw - p]
 *   conv2d_input   over (kh, kw, o):  w[o, c, kh, kw] * g[n, o, (h + p - kh) / s, (w + p - kw) / s]
 *   conv2d_weight  over (n, oh, ow):  g[n, o, oh, ow] * x[n, c, oh * s + kh - p, ow * s + kw - p]
 * Every (kh, kw, ..) is a term. The factor is +0 if x is read outside its bounds, or if no output
 * position of g belongs to the input position (out of range, or the division has a remainder). So
 * the contracted length is always the product of the three sizes, and an infinite weight times
 * padding is NaN.
 *
 * The factor from x or g is packed straight from the image (im2col without the matrix). Columns run
 * over all images, so that small images fill the kernel's tiles too. */
#include "runtime/reference/ref_gemm.h"

#include <string.h>

typedef struct Conv {
  DType dt;
  int compute;
  bool spread;          /* conv2d_input: positions are divided by the stride, not multiplied */
  const Tensor *image;  /* x or g, read at computed positions */
  const Tensor *weight; /* w, or g in conv2d_weight */
  Tensor *out;
  int64_t kh, kw;     /* size of the kernel */
  int64_t rows, cols; /* positions at which kernels are applied: [.., rows, cols] */
  int64_t channels;   /* contracted (conv2d, _input), or of x (_weight) */
  int64_t stride[2], pad[2];
} Conv;

/* The row (axis 0) or column (axis 1) of the image for kernel offset k and position p; -1 =
 * none. */
static int64_t source(const Conv *c, int axis, int64_t p, int64_t k) {
  int64_t size = c->image->dim[2 + axis];
  int64_t at = c->spread ? p + c->pad[axis] - k : p * c->stride[axis] + k - c->pad[axis];
  if (c->spread) {
    if (at < 0 || at % c->stride[axis] != 0) return -1;
    at /= c->stride[axis];
  }
  return at >= 0 && at < size ? at : -1;
}

/* Packs one row of image values: out[j] for `n` consecutive columns of positions from `col`, for
 * kernel column kw; `row` is the start of an image row, or NULL for padding. */
static void image_run(const Gemm *g, const Conv *c, const char *row, int64_t col, int64_t n,
                      int64_t kw, char *out, int64_t size) {
  int64_t step = c->image->stride[3] * (int64_t)dt_size(c->dt), j = 0;
  if (!row) {
    memset(out, 0, (size_t)(n * size));
    return;
  }
  if (!c->spread || c->stride[1] == 1) {
    /* The columns inside the image are neighbours, so the row is zeros, a run, zeros. */
    int64_t by = c->spread ? 1 : c->stride[1], width = c->image->dim[3];
    int64_t first = c->spread ? col + c->pad[1] - kw : col * by + kw - c->pad[1];
    while (j < n && first + j * by < 0) j++;
    int64_t end = j;
    if (first + j * by < width) {
      int64_t inside = (width - 1 - (first + j * by)) / by + 1;
      end = inside < n - j ? j + inside : n;
    }
    memset(out, 0, (size_t)(j * size));
    if (end > j) {
      gemm_load(g->kind, c->dt, c->compute, row + (first + j * by) * step, by * step, end - j,
                out + j * size);
    }
    memset(out + end * size, 0, (size_t)((n - end) * size));
    return;
  }
  for (; j < n; j++) {
    int64_t at = source(c, 1, col + j, kw);
    if (at < 0)
      memset(out + j * size, 0, (size_t)size);
    else
      gemm_load(g->kind, c->dt, c->compute, row + at * step, step, 1, out + j * size);
  }
}

static const char *image_row(const Conv *c, int64_t n, int64_t channel, int64_t row) {
  if (row < 0) return NULL;
  const int64_t *s = c->image->stride;
  return (const char *)tn_data(c->image) +
         (n * s[0] + channel * s[1] + row * s[2]) * (int64_t)dt_size(c->dt);
}

/* conv2d, conv2d_input: columns are positions (n, row, col), k is (kh, kw, channel). */
static void pack_image(const Gemm *g, int64_t j0, int64_t lines, int64_t k0, int64_t kc,
                       int64_t width, void *out) {
  const Conv *c = g->ud;
  int64_t size = g->kind == GEMM_F64 ? 8 : 4;
  if (lines < width) memset(out, 0, (size_t)(kc * width * size));
  for (int64_t k = 0; k < kc; k++) {
    int64_t channel = (k0 + k) % c->channels, offset = (k0 + k) / c->channels;
    int64_t kh = offset / c->kw, kw = offset % c->kw;
    char *to = (char *)out + k * width * size;
    for (int64_t j = 0; j < lines;) {
      int64_t col = (j0 + j) % c->cols, rest = (j0 + j) / c->cols;
      int64_t row = rest % c->rows, n = rest / c->rows;
      int64_t len = c->cols - col < lines - j ? c->cols - col : lines - j;
      image_run(g, c, image_row(c, n, channel, source(c, 0, row, kh)), col, len, kw, to + j * size,
                size);
      j += len;
    }
  }
}

/* conv2d: rows are o, conv2d_input: rows are c; k is (kh, kw, the other). */
static void pack_weight(const Gemm *g, int64_t i0, int64_t lines, int64_t k0, int64_t kc,
                        int64_t width, void *out) {
  const Conv *c = g->ud;
  const int64_t *s = c->weight->stride;
  int64_t each = (int64_t)dt_size(c->dt), size = g->kind == GEMM_F64 ? 8 : 4;
  int64_t line = s[c->spread ? 1 : 0], by = s[c->spread ? 0 : 1];
  for (int64_t k = 0; k < kc;) {
    int64_t channel = (k0 + k) % c->channels, offset = (k0 + k) / c->channels;
    int64_t len = c->channels - channel < kc - k ? c->channels - channel : kc - k;
    const char *src =
        (const char *)tn_data(c->weight) +
        (i0 * line + channel * by + offset / c->kw * s[2] + offset % c->kw * s[3]) * each;
    gemm_pack(g->kind, c->dt, c->compute, src, line * each, by * each, lines, len, width,
              (char *)out + k * width * size);
    k += len;
  }
}

/* Row i of the result holds channel i of every image. */
static void store_image(const Gemm *g, int64_t i, int64_t j0, int64_t n, const void *row) {
  const Conv *c = g->ud;
  int64_t area = c->rows * c->cols, each = (int64_t)dt_size(c->dt);
  int64_t size = g->kind == GEMM_F64 ? 8 : 4;
  for (int64_t j = 0; j < n;) {
    int64_t image = (j0 + j) / area, at = (j0 + j) % area;
    int64_t len = area - at < n - j ? area - at : n - j;
    gemm_put(g->kind, c->dt, (const char *)row + j * size, len,
             (char *)tn_data(c->out) + ((image * g->m + i) * area + at) * each);
    j += len;
  }
}

/* conv2d_weight: rows are o of g, columns (c, kh, kw) of x, k is (n, oh, ow). */
static void pack_grad(const Gemm *g, int64_t i0, int64_t lines, int64_t k0, int64_t kc,
                      int64_t width, void *out) {
  const Conv *c = g->ud;
  const int64_t *s = c->weight->stride;
  int64_t each = (int64_t)dt_size(c->dt), size = g->kind == GEMM_F64 ? 8 : 4;
  for (int64_t k = 0; k < kc;) {
    int64_t col = (k0 + k) % c->cols, rest = (k0 + k) / c->cols;
    int64_t row = rest % c->rows, n = rest / c->rows;
    int64_t len = c->cols - col < kc - k ? c->cols - col : kc - k;
    const char *src =
        (const char *)tn_data(c->weight) + (n * s[0] + i0 * s[1] + row * s[2] + col * s[3]) * each;
    gemm_pack(g->kind, c->dt, c->compute, src, s[1] * each, s[3] * each, lines, len, width,
              (char *)out + k * width * size);
    k += len;
  }
}

static void pack_patch(const Gemm *g, int64_t j0, int64_t lines, int64_t k0, int64_t kc,
                       int64_t width, void *out) {
  const Conv *c = g->ud;
  int64_t size = g->kind == GEMM_F64 ? 8 : 4;
  double line[GEMM_KC];
  if (lines < width) memset(out, 0, (size_t)(kc * width * size));
  for (int64_t j = 0; j < lines; j++) {
    int64_t kw = (j0 + j) % c->kw, rest = (j0 + j) / c->kw;
    int64_t kh = rest % c->kh, channel = rest / c->kh;
    for (int64_t k = 0; k < kc;) {
      int64_t col = (k0 + k) % c->cols, up = (k0 + k) / c->cols;
      int64_t row = up % c->rows, n = up / c->rows;
      int64_t len = c->cols - col < kc - k ? c->cols - col : kc - k;
      image_run(g, c, image_row(c, n, channel, source(c, 0, row, kh)), col, len, kw,
                (char *)line + k * size, size);
      k += len;
    }
    ref_copy_out((char *)out + j * size, width * size, line, kc, (int)size);
  }
}

static void store_weight(const Gemm *g, int64_t i, int64_t j0, int64_t n, const void *row) {
  const Conv *c = g->ud;
  gemm_put(g->kind, c->dt, row, n,
           (char *)tn_data(c->out) + (i * g->n + j0) * (int64_t)dt_size(c->dt));
}

static Tensor *run(Ref *r, Conv *c, Gemm *g, const int64_t dim[4]) {
  if (!dt_float(c->dt)) {
    return ref_fail(r, REF_VALUE, "conv2d is not defined for %s", dtype_info[c->dt].name);
  }
  if (c->stride[0] < 1 || c->stride[1] < 1 || c->pad[0] < 0 || c->pad[1] < 0) {
    return ref_fail(r, REF_VALUE,
                    "conv2d needs a stride of at least 1 and a padding of at least 0");
  }
  c->out = ref_new(r, c->image->store->dev, c->dt, 4, dim);
  if (!c->out || tn_count(c->out) == 0) return c->out;
  GemmRoom room = {0};
  g->kind = gemm_kind(c->dt, c->compute);
  g->ud = c;
  bool ok = gemm_run(r, &room, g);
  gemm_close(r, &room);
  return ok ? c->out : ref_drop(c->out);
}

/* How often a kernel of size k fits. */
static int64_t positions(int64_t size, int64_t k, int64_t stride, int64_t pad) {
  int64_t room = size + 2 * pad - k;
  return room < 0 || stride < 1 ? 0 : room / stride + 1;
}

Tensor *ref_conv2d(Ref *r, const Tensor *x, const Tensor *w, const int64_t stride[2],
                   const int64_t pad[2], int compute) {
  int64_t rows = positions(x->dim[2], w->dim[2], stride[0], pad[0]);
  int64_t cols = positions(x->dim[3], w->dim[3], stride[1], pad[1]);
  int64_t dim[4] = {x->dim[0], w->dim[0], rows, cols};
  Conv c = {.dt = x->dtype,
            .compute = compute,
            .image = x,
            .weight = w,
            .kh = w->dim[2],
            .kw = w->dim[3],
            .rows = rows,
            .cols = cols,
            .channels = x->dim[1],
            .stride = {stride[0], stride[1]},
            .pad = {pad[0], pad[1]}};
  Gemm g = {.m = w->dim[0],
            .n = x->dim[0] * rows * cols,
            .k = c.kh * c.kw * c.channels,
            .pack_a = pack_weight,
            .pack_b = pack_image,
            .store = store_image};
  return run(r, &c, &g, dim);
}

Tensor *ref_conv2d_input(Ref *r, const Tensor *g, const Tensor *w, const int64_t x_dim[4],
                         const int64_t stride[2], const int64_t pad[2], int compute) {
  Conv c = {.dt = g->dtype,
            .compute = compute,
            .spread = true,
            .image = g,
            .weight = w,
            .kh = w->dim[2],
            .kw = w->dim[3],
            .rows = x_dim[2],
            .cols = x_dim[3],
            .channels = g->dim[1],
            .stride = {stride[0], stride[1]},
            .pad = {pad[0], pad[1]}};
  Gemm m = {.m = x_dim[1],
            .n = x_dim[0] * x_dim[2] * x_dim[3],
            .k = c.kh * c.kw * c.channels,
            .pack_a = pack_weight,
            .pack_b = pack_image,
            .store = store_image};
  return run(r, &c, &m, x_dim);
}

Tensor *ref_conv2d_weight(Ref *r, const Tensor *x, const Tensor *g, const int64_t w_dim[4],
                          const int64_t stride[2], const int64_t pad[2], int compute) {
  Conv c = {.dt = x->dtype,
            .compute = compute,
            .image = x,
            .weight = g,
            .kh = w_dim[2],
            .kw = w_dim[3],
            .rows = g->dim[2],
            .cols = g->dim[3],
            .channels = x->dim[1],
            .stride = {stride[0], stride[1]},
            .pad = {pad[0], pad[1]}};
  Gemm m = {.m = w_dim[0],
            .n = w_dim[1] * w_dim[2] * w_dim[3],
            .k = g->dim[0] * g->dim[2] * g->dim[3],
            .pack_a = pack_grad,
            .pack_b = pack_patch,
            .store = store_weight};
  return run(r, &c, &m, w_dim);
}
