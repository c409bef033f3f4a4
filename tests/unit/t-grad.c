/* Gradients: every row of the op table against central differences in f64 to the third order, and against numbers
 * of an independent system (tests/grad/ops.txt); then what holds for graphs. */
#include "autograd/rule.h"
#include "tests/unit/graphs.h"

enum { MAX_IN = 4, MAX_VALUES = 256 };

/* -- cases: how each name of ops.txt is built from its inputs */

typedef Val (*Build)(B *b, const Val *x);
typedef struct Case {
  const char *name;
  OpCode op;
  Build build; /* NULL: the op on all inputs, without attributes */
} Case;

static Dim dim(B *b, int64_t n)
{
  return dim_const(b->g->dims, n);
}

static Val with_axis(B *b, OpCode op, int n, const Val *x, int64_t axis)
{
  return b_op(b, op, n, x, 1, (Attr[]){attr_i(AT_AXIS, axis)});
}

static Val with_axes(B *b, OpCode op, Val x, int n, const int64_t *axes)
{
  return b_op(b, op, 1, &x, 1, (Attr[]){attr_ints(AT_AXES, n, axes)});
}

static Val with_ints(B *b, OpCode op, Val x, int n, const AttrKey *keys, const int64_t *v, int rank,
                     unsigned dims)
{
  Attr attrs[4];
  int64_t list[4][CKL_MAX_RANK];
  for (int k = 0; k < n; k++) {
    bool d = dims >> k & 1;
    for (int j = 0; j < rank; j++) list[k][j] = d ? (int64_t)dim(b, v[k * rank + j]) : v[k * rank + j];
    attrs[k] = d ? attr_dims(keys[k], rank, list[k]) : attr_ints(keys[k], rank, list[k]);
  }
  return b_op(b, op, 1, &x, n, attrs);
}

static Val slice(B *b, Val x, const int64_t *v) /* starts, lens, steps of two axes */
{
  return with_ints(b, OP_SLICE, x, 3, (AttrKey[]){AT_STARTS, AT_LENS, AT_STEPS}, v, 2, 3);
}

static Val conv(B *b, OpCode op, const Val *x, const int64_t *v) /* stride, pad, dims if any */
{
  int64_t dims[4];
  Attr attrs[3] = {attr_ints(AT_STRIDE, 2, v), attr_ints(AT_PAD, 2, v + 2)};
  if (op != OP_CONV2D) {
    for (int j = 0; j < 4; j++) dims[j] = dim(b, v[4 + j]);
    attrs[2] = attr_dims(AT_DIMS, 4, dims);
  }
  return b_op(b, op, 2, x, op == OP_CONV2D ? 2 : 3, attrs);
}

static Val power_const(B *b, Val x, double p)
{
  return b_bin(b, OP_POW, x, gr_const_f(b->g, (DType)gr_type(b->g, x)->dtype, DEV_CPU, p));
}

#define BUILD(name) static Val name(B *b, const Val *x)
BUILD(pow_const_2) { return power_const(b, x[0], 2); }
BUILD(pow_const_3) { return power_const(b, x[0], 3); }
BUILD(where_selects) { return b_un(b, OP_LOG, b_where(b, x[0], x[1], x[2])); }
BUILD(reshape) { return b_reshape(b, x[0], 2, (Dim[]){dim(b, 4), dim(b, 3)}); }
BUILD(transpose) { return b_transpose(b, x[0], (int64_t[]){2, 0, 1}); }
BUILD(broadcast) { return b_broadcast(b, x[0], 3, (Dim[]){dim(b, 2), dim(b, 3), dim(b, 4)}); }
BUILD(slice_plain) { return slice(b, x[0], (int64_t[]){1, 0, 3, 2, 1, 1}); }
BUILD(slice_steps) { return slice(b, x[0], (int64_t[]){1, 0, 3, 2, 2, 3}); }
static Val pads(B *b, Val x, const int64_t *v, double value)
{
  int64_t list[2][2];
  for (int j = 0; j < 4; j++) list[j / 2][j % 2] = dim(b, v[j]);
  Attr attrs[4] = {attr_dims(AT_LOW, 2, list[0]), attr_dims(AT_HIGH, 2, list[1]),
                   attr_ints(AT_INNER, 2, v + 4), attr_f(AT_VALUE, value)};
  return b_op(b, OP_PAD, 1, &x, 4, attrs);
}
BUILD(pad) { return pads(b, x[0], (int64_t[]){1, 0, 2, 1, 0, 0}, 0.5); }
BUILD(pad_inner) { return pads(b, x[0], (int64_t[]){1, 0, 2, 1, 1, 2}, 0.25); }
BUILD(flip) { return with_axes(b, OP_FLIP, x[0], 1, (int64_t[]){1}); }
BUILD(concat) { return with_axis(b, OP_CONCAT, 3, x, 1); }
BUILD(take) { return with_axis(b, OP_TAKE, 2, x, 0); }
BUILD(take_axis_1) { return with_axis(b, OP_TAKE, 2, x, 1); }
BUILD(take_two) { return with_axis(b, OP_TAKE, 3, x, 1); }
BUILD(put) { return with_axis(b, OP_PUT, 3, x, 0); }
BUILD(put_add) { return with_axis(b, OP_PUT_ADD, 3, x, 0); }
BUILD(put_add_axis_1) { return with_axis(b, OP_PUT_ADD, 3, x, 1); }
BUILD(gather) { return with_axis(b, OP_GATHER, 2, x, 0); }
BUILD(scatter) { return with_axis(b, OP_SCATTER, 3, x, 0); }
BUILD(scatter_add) { return with_axis(b, OP_SCATTER_ADD, 3, x, 0); }
BUILD(sort) { return with_axis(b, OP_SORT, 1, x, 1); }
BUILD(sort_descending)
{
  return b_op(b, OP_SORT, 1, x, 2, (Attr[]){attr_i(AT_AXIS, 0), attr_i(AT_DESCENDING, 1)});
}
BUILD(sum) { return with_axes(b, OP_SUM, x[0], 1, (int64_t[]){1}); }
BUILD(sum_all) { return with_axes(b, OP_SUM, x[0], 2, (int64_t[]){0, 1}); }
BUILD(sum_0_2) { return with_axes(b, OP_SUM, x[0], 2, (int64_t[]){0, 2}); }
BUILD(prod) { return with_axes(b, OP_PROD, x[0], 1, (int64_t[]){1}); }
BUILD(prod_all) { return with_axes(b, OP_PROD, x[0], 2, (int64_t[]){0, 1}); }
BUILD(prod_0_2) { return with_axes(b, OP_PROD, x[0], 2, (int64_t[]){2, 0}); }
BUILD(prod_long) { return with_axes(b, OP_PROD, x[0], 1, (int64_t[]){0}); }
BUILD(reduce_max) { return with_axes(b, OP_REDUCE_MAX, x[0], 1, (int64_t[]){1}); }
BUILD(reduce_min) { return with_axes(b, OP_REDUCE_MIN, x[0], 2, (int64_t[]){0, 1}); }
BUILD(reduce_min_ties) { return with_axes(b, OP_REDUCE_MIN, x[0], 1, (int64_t[]){1}); }
BUILD(cumsum) { return with_axis(b, OP_CUMSUM, 1, x, 1); }
BUILD(cumsum_reverse)
{
  return b_op(b, OP_CUMSUM, 1, x, 2, (Attr[]){attr_i(AT_AXIS, 0), attr_i(AT_REVERSE, 1)});
}
BUILD(conv2d) { return conv(b, OP_CONV2D, x, (int64_t[]){1, 1, 0, 0}); }
BUILD(conv2d_stride_pad) { return conv(b, OP_CONV2D, x, (int64_t[]){2, 1, 1, 2}); }
BUILD(conv2d_input) { return conv(b, OP_CONV2D_INPUT, x, (int64_t[]){1, 2, 1, 0, 1, 2, 4, 5}); }
BUILD(conv2d_weight) { return conv(b, OP_CONV2D_WEIGHT, x, (int64_t[]){1, 2, 1, 0, 2, 2, 3, 2}); }

static const Case cases[] = {
    {"neg", OP_NEG, NULL}, {"abs", OP_ABS, NULL}, {"exp", OP_EXP, NULL},
    {"expm1", OP_EXPM1, NULL}, {"log", OP_LOG, NULL}, {"log1p", OP_LOG1P, NULL},
    {"sqrt", OP_SQRT, NULL}, {"rsqrt", OP_RSQRT, NULL}, {"sin", OP_SIN, NULL},
    {"cos", OP_COS, NULL}, {"tan", OP_TAN, NULL}, {"tanh", OP_TANH, NULL},
    {"erf", OP_ERF, NULL}, {"relu", OP_RELU, NULL}, {"sigmoid", OP_SIGMOID, NULL},
    {"silu", OP_SILU, NULL}, {"silu_grad", OP_SILU_GRAD, NULL}, {"softplus", OP_SOFTPLUS, NULL},
    {"gelu", OP_GELU, NULL}, {"gelu_grad", OP_GELU_GRAD, NULL}, {"alias", OP_ALIAS, NULL},
    {"add", OP_ADD, NULL}, {"sub", OP_SUB, NULL}, {"mul", OP_MUL, NULL}, {"div", OP_DIV, NULL},
    {"mod", OP_MOD, NULL}, {"pow", OP_POW, NULL}, {"max", OP_MAX, NULL}, {"min", OP_MIN, NULL},
    {"where", OP_WHERE, NULL}, {"abs_at_0", OP_ABS, NULL}, {"relu_at_0", OP_RELU, NULL},
    {"sqrt_at_0", OP_SQRT, NULL}, {"max_ties", OP_MAX, NULL}, {"min_ties", OP_MIN, NULL},
    {"reduce_max_ties", OP_REDUCE_MAX, reduce_max},
    {"reduce_min_ties", OP_REDUCE_MIN, reduce_min_ties},
    {"pow_const_2", OP_POW, pow_const_2}, {"pow_const_3", OP_POW, pow_const_3},
    {"where_selects", OP_WHERE, where_selects}, {"reshape", OP_RESHAPE, reshape},
    {"transpose", OP_TRANSPOSE, transpose}, {"broadcast", OP_BROADCAST, broadcast},
    {"slice", OP_SLICE, slice_plain}, {"slice_steps", OP_SLICE, slice_steps}, {"pad", OP_PAD, pad},
    {"pad_inner", OP_PAD, pad_inner}, {"flip", OP_FLIP, flip}, {"concat", OP_CONCAT, concat},
    {"take", OP_TAKE, take}, {"take_axis_1", OP_TAKE, take_axis_1}, {"take_two", OP_TAKE, take_two},
    {"put", OP_PUT, put}, {"put_add", OP_PUT_ADD, put_add},
    {"put_add_axis_1", OP_PUT_ADD, put_add_axis_1}, {"gather", OP_GATHER, gather},
    {"scatter", OP_SCATTER, scatter}, {"scatter_add", OP_SCATTER_ADD, scatter_add},
    {"sort", OP_SORT, sort}, {"sort_descending", OP_SORT, sort_descending}, {"sum", OP_SUM, sum},
    {"sum_all", OP_SUM, sum_all}, {"sum_0_2", OP_SUM, sum_0_2}, {"prod", OP_PROD, prod},
    {"prod_all", OP_PROD, prod_all}, {"prod_0_2", OP_PROD, prod_0_2}, {"prod_zeros", OP_PROD, prod},
    {"prod_long", OP_PROD, prod_long}, {"reduce_max", OP_REDUCE_MAX, reduce_max},
    {"reduce_min", OP_REDUCE_MIN, reduce_min}, {"cumsum", OP_CUMSUM, cumsum},
    {"cumsum_reverse", OP_CUMSUM, cumsum_reverse}, {"dot", OP_DOT, NULL},
    {"dot_batch", OP_DOT, NULL}, {"inner", OP_INNER, NULL}, {"conv2d", OP_CONV2D, conv2d},
    {"conv2d_stride_pad", OP_CONV2D, conv2d_stride_pad},
    {"conv2d_input", OP_CONV2D_INPUT, conv2d_input},
    {"conv2d_weight", OP_CONV2D_WEIGHT, conv2d_weight},
};
enum { CASES = sizeof cases / sizeof *cases };

static Val build_case(B *b, const Case *c, int n, const Val *x)
{
  return c->build ? c->build(b, x) : b_op(b, c->op, n, x, 0, NULL);
}

/* -- data: one case of ops.txt */

typedef struct Array {
  int rank;
  int64_t dim[CKL_MAX_RANK];
  double v[MAX_VALUES];
  int n;
  DType dt; /* F64 stands for the float type of the test */
} Array;

typedef struct Data {
  const Case *c;
  int order, count;
  Array in[MAX_IN], out, weight, grad[MAX_IN], weight2[MAX_IN], grad2[MAX_IN];
} Data;

static bool numbers(char *s, Array *a)
{
  char *end;
  for (a->n = 0;; a->n++, s = end) {
    double x = strtod(s, &end);
    if (end == s) return true;
    if (a->n == MAX_VALUES) return false;
    a->v[a->n] = x;
  }
}

static char *shape_of(char *s, Array *a)
{
  a->rank = (int)strtol(s, &s, 10);
  for (int j = 0; j < a->rank; j++) a->dim[j] = strtol(s, &s, 10);
  return s;
}

static FILE *open_data(void)
{
  char path[4096];
  const char *dir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/tests/grad/ops.txt", dir ? dir : ".");
  FILE *f = fopen(path, "r");
  check_msg(f != NULL, "%s is missing", path);
  return f;
}

/* The next case of the file; false at its end. */
static bool next_case(FILE *f, char **line, size_t *cap, Data *d)
{
  memset(d, 0, sizeof *d);
  while (**line || getline(line, cap, f) > 0) {
    char name[64] = "", *s = *line;
    int at = 0, i;
    bool ok = true;
    if (sscanf(s, "case %63s %d", name, &i) == 2) {
      if (d->c) return true; /* kept for the next call */
      for (int k = 0; k < CASES; k++)
        if (!strcmp(cases[k].name, name)) d->c = &cases[k];
      check_msg(d->c != NULL, "no way to build case %s", name);
      d->order = i;
    } else if (sscanf(s, "in %63s%n", name, &at) == 1 && at) {
      Array *a = &d->in[d->count++];
      a->dt = !strcmp(name, "float") ? DT_F64 : !strcmp(name, "int") ? DT_I64 : DT_BOOL;
      ok = numbers(shape_of(s + at, a), a);
    } else if (!strncmp(s, "out ", 4)) {
      ok = numbers(shape_of(s + 4, &d->out), &d->out);
    } else if (!strncmp(s, "weight ", 7)) {
      ok = numbers(s + 7, &d->weight);
    } else if (sscanf(s, "weight2 %d%n", &i, &at) == 1 && at) {
      ok = numbers(s + at, &d->weight2[i]);
    } else if (sscanf(s, "grad2 %d%n", &i, &at) == 1 && at) {
      ok = numbers(s + at, &d->grad2[i]);
    } else if (sscanf(s, "grad %d%n", &i, &at) == 1 && at) { /* last: this reads `grad2` too */
      ok = numbers(s + at, &d->grad[i]);
    } else {
      check_msg(*s == '#' || *s == '\n', "cannot read: %s", s);
    }
    check_msg(ok, "too many numbers in case %s", name);
    **line = 0;
  }
  return d->c != NULL;
}

static void each_case(void (*f)(Env *v, const Data *d, void *ud), void *ud)
{
  static Data d;
  size_t cap = 1 << 16;
  char *line = calloc(1, cap);
  FILE *file = open_data();
  need(file);
  while (next_case(file, &line, &cap, &d)) {
    Env v;
    env_open(&v);
    f(&v, &d, ud);
    env_close(&v);
  }
  fclose(file);
  free(line);
}

static DType dtype_of(const Array *a, DType dt)
{
  return a->dt == DT_F64 ? dt : a->dt;
}

static Tensor *array_tensor(Env *v, const Array *a, DType dt)
{
  return tensor(v, dtype_of(a, dt), a->rank, a->dim, a->v);
}

static Val array_input(Env *v, Graph *g, const Array *a, DType dt)
{
  Type t = type_c(v, dtype_of(a, dt), a->rank, a->dim);
  return gr_input(g, &t);
}

/* NaN and infinities are equal to themselves; else relative to the larger of 1 and the number. */
static bool close_to(double got, double want, double tol)
{
  if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
  return fabs(got - want) <= tol * fmax(1, fabs(want));
}

static void compare(const Data *d, const char *what, int i, const Tensor *got, const Array *want,
                    double tol)
{
  check_msg(tn_count(got) == want->n, "%s: %s %d has another size", d->c->name, what, i);
  for (int k = 0; k < want->n && k < tn_count(got); k++) {
    double x = tn_get_f64(got, k);
    if (!close_to(x, want->v[k], tol)) {
      fails("%s: %s %d, element %d is %.17g, not %.17g", d->c->name, what, i, k, x,
                want->v[k]);
      return;
    }
  }
}

/* -- against the independent system */

typedef struct Numbers {
  DType dt;
  double tol, tol2;
  int seen;
} Numbers;

static void against_data(Env *v, const Data *d, void *ud)
{
  Numbers *how = ud;
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val x[MAX_IN], wrt[MAX_IN], dx[MAX_IN], v2[MAX_IN], ddx[MAX_IN], y, w;
  int which[MAX_IN], nf = 0, nv = 0, ny2 = 0;
  Val y2[MAX_IN], dy2[MAX_IN];
  Tensor *in[3 * MAX_IN], *out[3 * MAX_IN];
  int n = 0, m = 0;
  for (int i = 0; i < d->count; i++) {
    x[i] = array_input(v, g, &d->in[i], how->dt);
    in[n++] = array_tensor(v, &d->in[i], how->dt);
    if (d->in[i].dt == DT_F64) which[nf] = i, wrt[nf++] = x[i];
  }
  Array weight = d->out;
  weight.dt = DT_F64;
  memcpy(weight.v, d->weight.v, sizeof weight.v);
  w = array_input(v, g, &weight, how->dt);
  in[n++] = array_tensor(v, &weight, how->dt);
  y = build_case(&b, d->c, d->count, x);
  if (!built(&b) || !vjp(g, 1, &y, &w, nf, wrt, dx)) goto end;
  gr_output(g, y);
  for (int k = 0; k < nf; k++) {
    if (!check_msg(!val_none(dx[k]), "%s: gradient %d is missing", d->c->name, which[k])) goto end;
    gr_output(g, dx[k]);
  }
  if (d->order == 2) {
    for (int k = 0; k < nf; k++) {
      Array a = d->in[which[k]];
      memcpy(a.v, d->weight2[which[k]].v, sizeof a.v);
      v2[nv++] = array_input(v, g, &a, how->dt);
      in[n++] = array_tensor(v, &a, how->dt);
      y2[ny2] = dx[k];
      dy2[ny2++] = v2[k];
    }
    if (!vjp(g, ny2, y2, dy2, nf, wrt, ddx)) goto end;
    for (int k = 0; k < nf; k++)
      if (!val_none(ddx[k])) gr_output(g, ddx[k]);
  }
  if (!run(v, g, in, out)) {
    fails("case %s", d->c->name);
    goto end;
  }
  compare(d, "result", 0, out[m++], &d->out, how->tol);
  for (int k = 0; k < nf; k++) compare(d, "gradient of input", which[k], out[m++], &d->grad[which[k]], how->tol);
  for (int k = 0; k < nf && d->order == 2; k++) {
    const Array *want = &d->grad2[which[k]];
    if (!val_none(ddx[k])) {
      compare(d, "second gradient of input", which[k], out[m++], want, how->tol2);
      continue;
    }
    for (int j = 0; j < want->n; j++)
      check_msg(want->v[j] == 0, "%s: second gradient %d is absent", d->c->name, which[k]);
  }
  drop(out, g->output_count);
  how->seen++;
end:
  drop(in, (size_t)n);
}

static void t_numbers(DType dt, double tol, double tol2)
{
  Numbers how = {.dt = dt, .tol = tol, .tol2 = tol2};
  each_case(against_data, &how);
  check_int(how.seen, ==, CASES);
}

/* -- against central differences */

static bool has_gradient(int op)
{
  switch (op) {
#define OP(NAME, ...) case OP_##NAME: return grad_##NAME.one || grad_##NAME.all;
#include "graph/ops.def"
#undef OP
  default: return false;
  }
}

/* The scalar F_k of the inputs: F_1 = sum(w y), F_k+1 = sum over inputs of sum(w_k dF_k/dx), with fixed pseudo-random
 * weights that are constants made by an iota: sin of a multiple. */
static Val weighted(B *b, Val x, int seed)
{
  if (b->failed || val_none(x)) return VAL_NONE;
  Type t = *gr_type(b->g, x);
  int64_t axes[CKL_MAX_RANK];
  int64_t count = dim_product(b->g->dims, t.rank, t.dim);
  Attr attrs[3] = {attr_i(AT_DTYPE, t.dtype), attr_dims(AT_DIMS, 1, &count),
                   attr_i(AT_DEVICE, DEV_CPU)};
  Val n = b_op(b, OP_IOTA, 0, NULL, 3, attrs);
  n = b_bin(b, OP_ADD, b_bin(b, OP_MUL, n, b_const(b, n, 1.7)), b_const(b, n, 0.3 + seed));
  Val w = b_reshape(b, b_un(b, OP_SIN, n), t.rank, t.dim);
  for (int j = 0; j < t.rank; j++) axes[j] = j;
  return b_sum(b, b_bin(b, OP_MUL, x, w), t.rank, axes);
}

typedef struct Func {
  const Case *c;
  int count;
  const Array *in;
  DType dt;
} Func;

/* F_order of the case on new inputs of g, then (when dx is given) its gradient. */
static Val scalar(Env *v, Graph *g, B *b, const Func *f, int order, Val *wrt, Val *dx)
{
  Val x[MAX_IN], some[MAX_IN];
  int nf = 0;
  for (int i = 0; i < f->count; i++) {
    x[i] = array_input(v, g, &f->in[i], f->dt);
    if (f->in[i].dt == DT_F64) wrt[nf++] = x[i];
  }
  Val s = weighted(b, build_case(b, f->c, f->count, x), 0);
  for (int k = 1; k <= order; k++) {
    if (k == order && !dx) return s;
    if (b->failed) return VAL_NONE;
    Val one = gr_const_f(g, f->dt, DEV_CPU, 1), *to = k == order ? dx : some;
    if (!vjp(g, 1, &s, &one, nf, wrt, to)) return VAL_NONE;
    if (k == order) return s;
    Val next = VAL_NONE;
    for (int i = 0; i < nf; i++) {
      if (val_none(some[i])) continue;
      Val t = weighted(b, some[i], 10 * k + i);
      next = val_none(next) ? t : b_bin(b, OP_ADD, next, t);
    }
    if (val_none(next)) return VAL_NONE;
    s = next;
  }
  return s;
}

static double value_at(Env *v, const Graph *g, Tensor **in)
{
  Tensor *out[1];
  if (!run(v, g, in, out)) return NAN;
  double x = tn_get_f64(out[0], 0);
  tn_unref(out[0]);
  return x;
}

/* Five-point differences (error h^4): the gradient of F_order, element by element. */
static bool differences(Env *v, const Func *f, int order, double tol)
{
  Graph *plain = new_graph(v), *full = new_graph(v);
  B b1 = {.g = plain}, b2 = {.g = full};
  Val wrt[MAX_IN], dx[MAX_IN];
  Tensor *in[MAX_IN], *out[MAX_IN];
  int m = 0, nf = 0;
  bool ok = true;
  Val s = scalar(v, plain, &b1, f, order, wrt, NULL);
  if (!built(&b1)) return false;
  if (val_none(s)) return true; /* the lower order is constant */
  gr_output(plain, s);
  s = scalar(v, full, &b2, f, order, wrt, dx);
  if (!built(&b2) || val_none(s)) return fails("%s: order %d", f->c->name, order);
  for (int i = 0; i < f->count; i++)
    if (f->in[i].dt == DT_F64) {
      if (!val_none(dx[nf])) gr_output(full, dx[nf]);
      nf++;
    }
  for (int i = 0; i < f->count; i++) in[i] = array_tensor(v, &f->in[i], f->dt);
  if (!run(v, full, in, out)) return fails("%s: order %d", f->c->name, order);
  for (int i = 0, k = 0; i < f->count && ok; i++) {
    if (f->in[i].dt != DT_F64) continue;
    Tensor *d = val_none(dx[k++]) ? NULL : out[m++];
    for (int64_t j = 0; j < tn_count(in[i]) && ok; j++) {
      double x = f->in[i].v[j], h = 1e-3, at[4], want;
      for (int p = 0; p < 4; p++) {
        set(in[i], j, x + (p < 2 ? h : 2 * h) * (p % 2 ? -1 : 1));
        at[p] = value_at(v, plain, in);
      }
      set(in[i], j, x);
      want = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
      double got = d ? tn_get_f64(d, j) : 0;
      ok = check_msg(close_to(got, want, tol),
                     "%s, order %d: gradient of input %d, element %d is %.12g, differences give %.12g",
                     f->c->name, order, i, (int)j, got, want);
    }
  }
  drop(out, full->output_count);
  drop(in, (size_t)f->count);
  return ok;
}

static void case_differences(Env *v, const Data *d, void *ud)
{
  int order = *(int *)ud;
  Func f = {d->c, d->count, d->in, DT_F64};
  /* At a kink only one side has a derivative; long inputs take the time of all others. */
  if (d->order < 2 || (order > 2 && d->in[0].n > 24)) return;
  differences(v, &f, order, order == 1 ? 1e-8 : 1e-7);
}

static void t_differences(int order)
{
  each_case(case_differences, &order);
}

/* Every elementwise row with a gradient, on inputs drawn from a range all of them are smooth on. */
static void t_elementwise_rows(int order)
{
  int rows = 0;
  for (int op = 0; op < OP_COUNT; op++) {
    if (op_info[op].cls != ELEMENTWISE || !has_gradient(op) || op == OP_CAST) continue;
    Env v;
    uint64_t state = 77 + (uint64_t)op;
    Case c = {op_info[op].name, (OpCode)op, NULL};
    Array in[MAX_IN] = {{0}};
    Func f = {&c, op_info[op].arity, in, DT_F64};
    for (int i = 0; i < f.count; i++) {
      in[i] = (Array){.rank = 2, .dim = {2, 3}, .n = 6, .dt = DT_F64};
      if (op == OP_WHERE && i == 0) in[i].dt = DT_BOOL;
      for (int k = 0; k < 6; k++) in[i].v[k] = (i ? 1.5 : 0.5) + 0.3 * uniform(&state);
      if (in[i].dt == DT_BOOL) in[i].v[2] = in[i].v[3] = 0;
    }
    env_open(&v);
    check_msg(differences(&v, &f, order, 1e-7), "row %s", op_info[op].name);
    env_close(&v);
    rows++;
  }
  check_int(rows, >, 25);
}

/* A row that has a gradient and is not in the data is a gap. */
static void t_all_rows_have_a_case(void)
{
  for (int op = 0; op < OP_COUNT; op++) {
    bool found = !has_gradient(op) || op_info[op].cls == CONTROL || op == OP_CAST;
    for (int k = 0; k < CASES; k++) found |= cases[k].op == (OpCode)op;
    check_msg(found, "no case in tests/grad for `%s`", op_info[op].name);
  }
}

int main(void)
{
  TEST(t_all_rows_have_a_case(), "every op with a gradient has a case with known numbers");
  TEST(t_numbers(DT_F64, 1e-12, 1e-11), "gradients agree with an independent system in f64");
  TEST(t_numbers(DT_F32, 2e-6, 2e-5), "gradients agree with an independent system in f32");
  TEST(t_elementwise_rows(1), "elementwise rows agree with central differences");
  TEST(t_elementwise_rows(2), "elementwise rows agree with central differences in second order");
  TEST(t_elementwise_rows(3), "elementwise rows agree with central differences in third order");
  TEST(t_differences(1), "gradients agree with central differences");
  TEST(t_differences(2), "second derivatives agree with central differences");
  TEST(t_differences(3), "third derivatives agree with central differences");
  return tap_done();
}
