/* Shape rules of products, factorizations and convolutions.
 *
 * In: operand types, stride and padding. Out: the result's type; errors name both dims and show
 * the transposition or padding that fits.
 */
#include "graph/shape_rule.h"

/* ---- contractions */
static bool contraction(C *c, Device *dev) {
  return sh_domain(c, 0) && sh_domain(c, 1) && sh_dtypes(c, 0, 2) && sh_devices(c, dev) &&
         sh_option(c, AT_COMPUTE, COMPUTE_TF32 + 1);
}

static bool batch_axes(C *c, int count) {
  for (int i = 0; i < count; i++) {
    Tri r = sh_equal(c, c->in[0]->dim[i], c->in[1]->dim[i], "the batch axes of `@` differ");
    if (r == FAILED) return false;
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_BATCH, 1,
               "the batch axes of `@` differ: axis %d is %s and %s, in %s @ %s", i,
               sh_dim_text(c, c->in[0]->dim[i]), sh_dim_text(c, c->in[1]->dim[i]), sh_operand(c, 0),
               sh_operand(c, 1));
      return gerr_help(c->e, "axes before the last two are equal on both sides, or absent on one");
    }
  }
  return true;
}

bool shape_dot(C *c) {
  Device dev;
  const Type *x = c->in[0], *y = c->in[1];
  if (!contraction(c, &dev)) return false;
  if (x->rank < 2 || y->rank < 2 || x->rank != y->rank) {
    int at = x->rank < 2 ? 0 : 1;
    gerr_set(c->e, ERR_SHAPE_RANK, at, "`@` of %s and %s", sh_operand(c, 0), sh_operand(c, 1));
    if (x->rank == 0 || y->rank == 0)
      return gerr_help(c->e, "`%s * %s` scales", sh_part(c, 0), sh_part(c, 1));
    return gerr_help(c->e, "both sides have two axes, and the same axes before these");
  }
  int r = x->rank;
  Tri t = sh_equal(c, x->dim[r - 1], y->dim[r - 2], "the inner dims of `@` differ");
  if (t == FAILED) return false;
  if (t == NO) {
    gerr_set(c->e, ERR_SHAPE_INNER, 1, "the inner dims of `@` differ: %s and %s, in %s @ %s",
             sh_dim_text(c, x->dim[r - 1]), sh_dim_text(c, y->dim[r - 2]), sh_operand(c, 0),
             sh_operand(c, 1));
    if (dim_compare(c->dims, x->dim[r - 1], y->dim[r - 1]) == DIM_EQUAL) {
      return gerr_help(c->e, "`%s @ transpose(%s)` fits", sh_part(c, 0), sh_arg(c, 1));
    }
    if (dim_compare(c->dims, x->dim[r - 2], y->dim[r - 2]) == DIM_EQUAL) {
      return gerr_help(c->e, "`transpose(%s) @ %s` fits", sh_arg(c, 0), sh_part(c, 1));
    }
    if (r == 2 && dim_compare(c->dims, x->dim[0], y->dim[1]) == DIM_EQUAL) {
      return gerr_help(c->e, "`%s @ %s` fits", sh_part(c, 1), sh_part(c, 0));
    }
    return gerr_help(c->e, "the last axis of %s and the second-last of %s must be equal",
                     sh_part(c, 0), sh_part(c, 1));
  }
  if (!batch_axes(c, r - 2)) return false;
  c->out[0] = *x;
  c->out[0].dev = (uint8_t)dev;
  c->out[0].dim[r - 1] = y->dim[r - 1];
  return true;
}

bool shape_inner(C *c) {
  Device dev;
  const Type *x = c->in[0], *y = c->in[1];
  if (!contraction(c, &dev)) return false;
  if (x->rank < 1 || x->rank != y->rank) {
    gerr_set(c->e, ERR_SHAPE_RANK, x->rank < 1 ? 0 : 1, "`@` of %s and %s", sh_operand(c, 0),
             sh_operand(c, 1));
    if (x->rank == 0 || y->rank == 0)
      return gerr_help(c->e, "`%s * %s` scales", sh_part(c, 0), sh_part(c, 1));
    return gerr_help(c->e, "a product of vectors has one axis on both sides");
  }
  int r = x->rank;
  Tri t = sh_equal(c, x->dim[r - 1], y->dim[r - 1], "the lengths of the vectors of `@` differ");
  if (t == NO) {
    gerr_set(c->e, ERR_SHAPE_INNER, 1,
             "the lengths of the vectors of `@` differ: %s and %s, in %s @ %s",
             sh_dim_text(c, x->dim[r - 1]), sh_dim_text(c, y->dim[r - 1]), sh_operand(c, 0),
             sh_operand(c, 1));
    return gerr_help(c->e, "`expand(%s, 1) * %s` is the product of every pair", sh_arg(c, 0),
                     sh_part(c, 1));
  }
  if (t != YES || !batch_axes(c, r - 1)) return false;
  sh_drop_axes(&c->out[0], x, 1u << (r - 1));
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* ---- factorizations */
/* Whether operand i is a stack of square matrices. */
static bool square(C *c, int i) {
  const Type *x = c->in[i];
  if (!sh_domain(c, i)) return false;
  if (x->rank < 2) {
    gerr_set(c->e, ERR_SHAPE_RANK, i, "`%s` of %s", op_written(c->op), sh_operand(c, i));
    return gerr_help(c->e, "the last two axes are those of a square matrix");
  }
  Tri t = sh_equal(c, x->dim[x->rank - 2], x->dim[x->rank - 1], "the matrix is not square");
  if (t != NO) return t == YES;
  gerr_set(c->e, ERR_SHAPE_RANK, i, "`%s` of %s: the matrix is not square", op_written(c->op),
           sh_operand(c, i));
  return gerr_help(c->e, "the last two axes are those of a square matrix");
}

bool shape_cholesky(C *c) {
  if (!square(c, 0)) return false;
  c->out[0] = *c->in[0];
  return true;
}

bool shape_cholesky_grad(C *c) {
  const Type *l = c->in[0], *g = c->in[1];
  Device dev;
  int axis;
  if (!sh_devices(c, &dev) || !square(c, 0) || !sh_domain(c, 1)) return false;
  if (g->dtype != l->dtype || g->rank != l->rank ||
      !sh_same_dims(c, l, g, "the gradient of a factor is of another shape", &axis))
    return gerr_set(c->e, ERR_IR_FORM, 1, "`cholesky_grad` takes a gradient of its factor");
  c->out[0] = *l;
  return true;
}

bool shape_lu(C *c) {
  const Type *x = c->in[0];
  if (!square(c, 0) || !sh_option(c, AT_REGULAR, 2)) return false;
  c->out[0] = c->out[1] = c->out[2] = *x;
  c->out[1].dtype = c->out[2].dtype = DT_I64;
  c->out[1].rank = (uint8_t)(x->rank - 1);
  c->out[2].rank = (uint8_t)(x->rank - 2);
  return true;
}

static bool option(C *c, AttrKey key) {
  const Attr *a = attr_find(c->attrs, c->nattrs, key);
  return a && a->u.i;
}

bool shape_eigh(C *c) {
  if (!square(c, 0) || !sh_option(c, AT_VALUES, 2)) return false;
  c->out[0] = c->out[1] = *c->in[0];
  c->out[0].rank--;
  if (option(c, AT_VALUES)) c->out[1].dim[c->out[1].rank - 1] = dim_const(c->dims, 0);
  return true;
}

bool shape_eig(C *c) {
  const Type *x = c->in[0];
  if (!square(c, 0) || !sh_option(c, AT_VALUES, 2)) return false;
  if (x->rank == CKL_MAX_RANK) {
    gerr_set(c->e, ERR_SHAPE_RANK, 0, "`%s` of %s", op_written(c->op), sh_operand(c, 0));
    return gerr_help(c->e, "the vectors have one axis more than a tensor may have");
  }
  c->out[0] = c->out[1] = *x;
  Dim n = x->dim[x->rank - 1];
  c->out[0].dim[x->rank - 2] = c->out[1].dim[x->rank - 2] = dim_const(c->dims, 2);
  c->out[1].rank++;
  c->out[1].dim[x->rank] = option(c, AT_VALUES) ? dim_const(c->dims, 0) : n;
  return true;
}

/* The matrices of operand 0; false if it has none. */
static bool matrices(C *c) {
  if (!sh_domain(c, 0)) return false;
  if (c->in[0]->rank >= 2) return true;
  gerr_set(c->e, ERR_SHAPE_RANK, 0, "`%s` of %s", op_written(c->op), sh_operand(c, 0));
  return gerr_help(c->e, "the last two axes are those of a matrix");
}

bool shape_qr(C *c) {
  const Type *x = c->in[0];
  if (!matrices(c)) return false;
  c->out[0] = c->out[1] = *x;
  Dim m = x->dim[x->rank - 2], n = x->dim[x->rank - 1];
  c->out[0].dim[x->rank - 1] = c->out[1].dim[x->rank - 2] = dim_min(c->dims, m, n);
  return true;
}

bool shape_svd(C *c) {
  const Type *x = c->in[0];
  if (!matrices(c) || !sh_option(c, AT_FULL, 2) || !sh_option(c, AT_VALUES, 2)) return false;
  bool full = option(c, AT_FULL), values = option(c, AT_VALUES);
  c->out[0] = c->out[1] = c->out[2] = *x;
  Dim m = x->dim[x->rank - 2], n = x->dim[x->rank - 1], k = dim_min(c->dims, m, n);
  c->out[0].dim[x->rank - 1] = values ? dim_const(c->dims, 0) : full ? m : k;
  c->out[1].dim[x->rank - 2] = k;
  c->out[1].rank--;
  c->out[2].dim[x->rank - 2] = values ? dim_const(c->dims, 0) : full ? n : k;
  return true;
}

/* A system of the matrices of operand 0 and the right sides of operand `b`. */
static bool system_of(C *c, int b) {
  const Type *x = c->in[0], *y = c->in[b];
  const char *what = "the rows of a matrix and of its right side differ";
  if (!square(c, 0) || !sh_domain(c, b)) return false;
  if (y->dtype != x->dtype)
    return gerr_set(c->e, ERR_DTYPE_DIFFER, b, "`%s` takes one dtype: %s and %s", op_written(c->op),
                    sh_operand(c, 0), sh_operand(c, b));
  bool same = y->rank == x->rank;
  for (int k = 0; same && k < x->rank - 1; k++) {
    Tri t = sh_equal(c, x->dim[k], y->dim[k], what);
    if (t == FAILED) return false;
    same = t == YES;
  }
  if (!same) {
    gerr_set(c->e, ERR_SHAPE_INNER, b, "%s: `%s` of %s and %s", what, op_written(c->op),
             sh_operand(c, 0), sh_operand(c, b));
    return gerr_help(c->e, "[.., N, N] goes with [.., N, M]");
  }
  c->out[0] = *y;
  return true;
}

bool shape_triangular(C *c) {
  Device dev;
  return sh_option(c, AT_UPPER, 2) && sh_option(c, AT_UNIT, 2) && sh_devices(c, &dev) &&
         system_of(c, 1);
}

bool shape_factor_solve(C *c) {
  Device dev;
  return sh_devices(c, &dev) && system_of(c, 1);
}

bool shape_solve(C *c) {
  Device dev;
  const Type *x = c->in[0], *lu = c->in[1], *p = c->in[2];
  int axis;
  if (!sh_option(c, AT_ACROSS, 2) || !sh_devices(c, &dev) || !system_of(c, 3)) return false;
  Type want = *x;
  if (lu->dtype != x->dtype || lu->rank != x->rank ||
      !sh_same_dims(c, x, lu, "the factors of `solve` are of another shape", &axis))
    return gerr_set(c->e, ERR_IR_FORM, 1, "`solve` takes factors of the shape of its matrix");
  want.dtype = DT_I64;
  want.rank--;
  if (p->dtype != DT_I64 || p->rank != want.rank ||
      !sh_same_dims(c, &want, p, "the permutation of `solve` is of another shape", &axis))
    return gerr_set(c->e, ERR_IR_FORM, 2, "`solve` takes a permutation of the rows of its matrix");
  return true;
}

/* One side of a convolution's result: (n + 2 * pad - k) // stride + 1. */
static bool window(C *c, Dim n, Dim k, int64_t stride, int64_t pad, const char *side_name,
                   Dim *out) {
  Dim room = dim_add(c->dims, n, dim_const(c->dims, 2 * pad));
  Tri r = sh_at_least(c, room, k, "the kernel of a convolution is larger than the padded image");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_CONV, 1,
             "the kernel's %s %s is larger than the image's %s %s with padding %lld", side_name,
             sh_dim_text(c, k), side_name, sh_dim_text(c, n), (long long)pad);
    int64_t a, b;
    if (dim_is_const(c->dims, n, &a) && dim_is_const(c->dims, k, &b)) {
      return gerr_help(c->e, "padding of %lld fits", (long long)((b - a + 1) / 2));
    }
    return false;
  }
  if (r == FAILED) return false;
  Dim steps = dim_floordiv(c->dims, dim_sub(c->dims, room, k), dim_const(c->dims, stride));
  *out = dim_add(c->dims, steps, dim_const(c->dims, 1));
  return true;
}

/* Checks image x [N, C, H, W] and kernel w [O, C, h, w]; `out` = [N, O, H', W']. */
static bool convolve(C *c, const Type *x, const Type *w, Type *out) {
  const Attr *stride = sh_ints(c, AT_STRIDE, 2), *pad;
  if (!stride || !(pad = sh_ints(c, AT_PAD, 2))) return false;
  for (int i = 0; i < 2; i++) {
    if (stride->u.ints[i] < 1 || stride->u.ints[i] > INT32_MAX) {
      return gerr_set(c->e, ERR_SHAPE_CONV, -1, "the stride of a convolution is %lld",
                      (long long)stride->u.ints[i]);
    }
    if (pad->u.ints[i] < 0 || pad->u.ints[i] > INT32_MAX) {
      return gerr_set(c->e, ERR_SHAPE_CONV, -1, "the padding of a convolution is %lld",
                      (long long)pad->u.ints[i]);
    }
  }
  Tri r = sh_equal(c, x->dim[1], w->dim[1], "image and kernel have different numbers of channels");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_CONV, 1, "the image has %s channels, the kernel takes %s: %s and %s",
             sh_dim_text(c, x->dim[1]), sh_dim_text(c, w->dim[1]), sh_type_text(c, x),
             sh_type_text(c, w));
    return gerr_help(c->e, "images are [N, C, H, W], kernels [O, C, h, w]");
  }
  if (r != YES) return false;
  *out = *x;
  out->dim[1] = w->dim[0];
  return window(c, x->dim[2], w->dim[2], stride->u.ints[0], pad->u.ints[0], "height",
                &out->dim[2]) &&
         window(c, x->dim[3], w->dim[3], stride->u.ints[1], pad->u.ints[1], "width", &out->dim[3]);
}

bool shape_conv(C *c) {
  Device dev;
  if (!contraction(c, &dev) || !sh_rank(c, 0, 4, "an image [N, C, H, W]") ||
      !sh_rank(c, 1, 4, "a kernel [O, C, h, w]") || !convolve(c, c->in[0], c->in[1], &c->out[0])) {
    return false;
  }
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* Gradients of conv2d: the result has the dims of the attribute, and g is the gradient of conv2d's
 * result. */
static bool conv_gradient(C *c, bool of_input) {
  Device dev;
  Type t, got;
  const Attr *a = sh_dims(c, AT_DIMS, 4);
  if (!a || !contraction(c, &dev)) return false;
  if (!sh_rank(c, 0, 4, "four axes") || !sh_rank(c, 1, 4, "four axes")) return false;
  t = *c->in[0];
  t.dev = (uint8_t)dev;
  sh_set_dims(&t, a);
  const Type *g = of_input ? c->in[0] : c->in[1];
  if (!convolve(c, of_input ? &t : c->in[0], of_input ? c->in[1] : &t, &got)) return false;
  int axis;
  if (!sh_same_dims(c, &got, g, "the gradient of a convolution has another shape than its result",
                    &axis)) {
    return axis < 0 ? false
                    : gerr_set(c->e, ERR_SHAPE_CONV, of_input ? 0 : 1,
                               "the convolution gives %s, its gradient is %s",
                               sh_type_text(c, &got), sh_type_text(c, g));
  }
  c->out[0] = t;
  return true;
}

bool shape_conv_input(C *c) {
  return conv_gradient(c, true);
}

bool shape_conv_weight(C *c) {
  return conv_gradient(c, false);
}
