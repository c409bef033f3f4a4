/* The cases of tests/grad/ops.txt: how each name is built as a graph, and its numbers.
 *
 * One file: it is a table, one row for each name. */
#ifndef TESTS_UNIT_OPCASES_H
#define TESTS_UNIT_OPCASES_H

#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "tests/unit/graphs.h"

enum { MAX_IN = 4, MAX_VALUES = 256 };

/* ---- cases: how each name of ops.txt is built from its inputs */

typedef Val (*Build)(B *b, const Val *x);
typedef struct Case {
  const char *name;
  OpCode op;
  Build build; /* NULL: the op on all inputs, without attributes */
} Case;

static Dim dim(B *b, int64_t n) {
  return dim_const(b->g->dims, n);
}

static Val with_axis(B *b, OpCode op, int n, const Val *x, int64_t axis) {
  return b_op(b, op, n, x, 1, (Attr[]){attr_i(AT_AXIS, axis)});
}

static Val with_axes(B *b, OpCode op, Val x, int n, const int64_t *axes) {
  return b_op(b, op, 1, &x, 1, (Attr[]){attr_ints(AT_AXES, n, axes)});
}

static Val with_ints(B *b, OpCode op, Val x, int n, const AttrKey *keys, const int64_t *v, int rank,
                     unsigned dims) {
  Attr attrs[4];
  int64_t list[4][CKL_MAX_RANK];
  for (int k = 0; k < n; k++) {
    bool d = dims >> k & 1;
    for (int j = 0; j < rank; j++) {
      int64_t at = v[k * rank + j];
      list[k][j] = d ? (int64_t)dim(b, at) : at;
    }
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

static Val power_const(B *b, Val x, double p) {
  return b_bin(b, OP_POW, x, gr_const_f(b->g, (DType)gr_type(b->g, x)->dtype, DEV_CPU, p));
}

#define BUILD(name) static Val name(B *b, const Val *x)
BUILD(pow_const_0) {
  return power_const(b, x[0], 0);
}
BUILD(pow_const_2) {
  return power_const(b, x[0], 2);
}
BUILD(pow_const_3) {
  return power_const(b, x[0], 3);
}
BUILD(where_selects) {
  return b_un(b, OP_LOG, b_where(b, x[0], x[1], x[2]));
}
BUILD(reshape) {
  return b_reshape(b, x[0], 2, (Dim[]){dim(b, 4), dim(b, 3)});
}
BUILD(transpose) {
  return b_transpose(b, x[0], (int64_t[]){2, 0, 1});
}
BUILD(broadcast) {
  return b_broadcast(b, x[0], 3, (Dim[]){dim(b, 2), dim(b, 3), dim(b, 4)});
}
BUILD(slice_plain) {
  return slice(b, x[0], (int64_t[]){1, 0, 3, 2, 1, 1});
}
BUILD(slice_steps) {
  return slice(b, x[0], (int64_t[]){1, 0, 3, 2, 2, 3});
}
static Val pads(B *b, Val x, const int64_t *v, double value) {
  int64_t list[2][2];
  for (int j = 0; j < 4; j++) list[j / 2][j % 2] = dim(b, v[j]);
  Attr attrs[4] = {attr_dims(AT_LOW, 2, list[0]), attr_dims(AT_HIGH, 2, list[1]),
                   attr_ints(AT_INNER, 2, v + 4), attr_f(AT_VALUE, value)};
  return b_op(b, OP_PAD, 1, &x, 4, attrs);
}
BUILD(pad) {
  return pads(b, x[0], (int64_t[]){1, 0, 2, 1, 0, 0}, 0.5);
}
BUILD(pad_inner) {
  return pads(b, x[0], (int64_t[]){1, 0, 2, 1, 1, 2}, 0.25);
}
BUILD(flip) {
  return with_axes(b, OP_FLIP, x[0], 1, (int64_t[]){1});
}
BUILD(concat) {
  return with_axis(b, OP_CONCAT, 3, x, 1);
}
BUILD(take) {
  return with_axis(b, OP_TAKE, 2, x, 0);
}
BUILD(take_axis_1) {
  return with_axis(b, OP_TAKE, 2, x, 1);
}
BUILD(take_two) {
  return with_axis(b, OP_TAKE, 3, x, 1);
}
BUILD(put) {
  return with_axis(b, OP_PUT, 3, x, 0);
}
BUILD(put_add) {
  return with_axis(b, OP_PUT_ADD, 3, x, 0);
}
BUILD(put_add_axis_1) {
  return with_axis(b, OP_PUT_ADD, 3, x, 1);
}
BUILD(gather) {
  return with_axis(b, OP_GATHER, 2, x, 0);
}
BUILD(scatter) {
  return with_axis(b, OP_SCATTER, 3, x, 0);
}
BUILD(scatter_add) {
  return with_axis(b, OP_SCATTER_ADD, 3, x, 0);
}
BUILD(sort) {
  return with_axis(b, OP_SORT, 1, x, 1);
}
BUILD(sort_descending) {
  return b_op(b, OP_SORT, 1, x, 2, (Attr[]){attr_i(AT_AXIS, 0), attr_i(AT_DESCENDING, 1)});
}
BUILD(sum) {
  return with_axes(b, OP_SUM, x[0], 1, (int64_t[]){1});
}
BUILD(sum_all) {
  return with_axes(b, OP_SUM, x[0], 2, (int64_t[]){0, 1});
}
BUILD(sum_0_2) {
  return with_axes(b, OP_SUM, x[0], 2, (int64_t[]){0, 2});
}
BUILD(prod) {
  return with_axes(b, OP_PROD, x[0], 1, (int64_t[]){1});
}
BUILD(prod_all) {
  return with_axes(b, OP_PROD, x[0], 2, (int64_t[]){0, 1});
}
BUILD(prod_0_2) {
  return with_axes(b, OP_PROD, x[0], 2, (int64_t[]){2, 0});
}
BUILD(prod_long) {
  return with_axes(b, OP_PROD, x[0], 1, (int64_t[]){0});
}
BUILD(reduce_max) {
  return with_axes(b, OP_REDUCE_MAX, x[0], 1, (int64_t[]){1});
}
BUILD(reduce_min) {
  return with_axes(b, OP_REDUCE_MIN, x[0], 2, (int64_t[]){0, 1});
}
BUILD(reduce_min_ties) {
  return with_axes(b, OP_REDUCE_MIN, x[0], 1, (int64_t[]){1});
}
BUILD(cumsum) {
  return with_axis(b, OP_CUMSUM, 1, x, 1);
}
BUILD(cumsum_reverse) {
  return b_op(b, OP_CUMSUM, 1, x, 2, (Attr[]){attr_i(AT_AXIS, 0), attr_i(AT_REVERSE, 1)});
}
BUILD(cummax) {
  return with_axis(b, OP_CUMMAX, 1, x, 1);
}
BUILD(cummax_reverse) {
  return b_op(b, OP_CUMMAX, 1, x, 2, (Attr[]){attr_i(AT_AXIS, 0), attr_i(AT_REVERSE, 1)});
}
BUILD(cummin) {
  return with_axis(b, OP_CUMMIN, 1, x, 0);
}
/* Of x x^T + 2, which is positive definite. */
BUILD(cholesky) {
  Type t = *gr_type(b->g, x[0]);
  Dim n = t.dim[t.rank - 1];
  Val square = b_op(b, OP_DOT, 2, (Val[]){x[0], b_swap(b, x[0])}, 0, NULL);
  Attr attrs[2] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, 1, (int64_t[]){n})};
  Val i = b_op(b, OP_IOTA, 0, NULL, 2, attrs);
  Val rows = b_broadcast(b, b_reshape(b, i, 2, (Dim[]){n, dim(b, 1)}), 2, (Dim[]){n, n});
  Val on = b_bin(b, OP_EQ, rows, b_broadcast(b, i, 2, (Dim[]){n, n}));
  on = b_broadcast(b, on, t.rank, t.dim);
  Val more = b_where(b, on, b_const(b, square, 2), b_const(b, square, 0));
  return b_un(b, OP_CHOLESKY, b_bin(b, OP_ADD, square, more));
}
BUILD(cholesky_grad) {
  return b_op(b, OP_CHOLESKY_GRAD, 2, (Val[]){cholesky(b, x), x[1]}, 0, NULL);
}
BUILD(eigh_alone) {
  Attr alone = attr_i(AT_VALUES, 1);
  return b_op(b, OP_EIGH, 1, x, 1, &alone);
}
BUILD(eigh_vectors) {
  Val f = b_op(b, OP_EIGH, 1, x, 0, NULL), v = {f.node, 1};
  return b_bin(b, OP_MUL, v, v);
}
BUILD(qr_triangle) {
  return (Val){b_op(b, OP_QR, 1, x, 0, NULL).node, 1};
}
BUILD(svd_alone) {
  Attr alone = attr_i(AT_VALUES, 1);
  return (Val){b_op(b, OP_SVD, 1, x, 1, &alone).node, 1};
}
BUILD(svd_values) {
  return (Val){b_op(b, OP_SVD, 1, x, 0, NULL).node, 1};
}
BUILD(svd_right) {
  Val v = {b_op(b, OP_SVD, 1, x, 0, NULL).node, 2};
  return b_bin(b, OP_MUL, v, v);
}
BUILD(solve) {
  Val f = b_op(b, OP_LU, 1, x, 0, NULL);
  return b_op(b, OP_SOLVE, 4, (Val[]){x[0], f, {f.node, 1}, x[1]}, 0, NULL);
}
BUILD(solve_across) {
  Val f = b_op(b, OP_LU, 1, x, 0, NULL);
  return b_op(b, OP_SOLVE, 4, (Val[]){x[0], f, {f.node, 1}, x[1]}, 1,
              (Attr[]){attr_i(AT_ACROSS, 1)});
}
BUILD(factor_solve) {
  return b_op(b, OP_FACTOR_SOLVE, 2, x, 0, NULL);
}
static Val triangle(B *b, const Val *x, bool upper, bool unit) {
  return b_op(b, OP_TRIANGULAR, 2, x, 2, (Attr[]){attr_i(AT_UPPER, upper), attr_i(AT_UNIT, unit)});
}
BUILD(triangular_upper) {
  return triangle(b, x, true, false);
}
BUILD(triangular_unit) {
  return triangle(b, x, false, true);
}
BUILD(triangular_unit_upper) {
  return triangle(b, x, true, true);
}
BUILD(conv2d) {
  return conv(b, OP_CONV2D, x, (int64_t[]){1, 1, 0, 0});
}
BUILD(conv2d_stride_pad) {
  return conv(b, OP_CONV2D, x, (int64_t[]){2, 1, 1, 2});
}
BUILD(conv2d_input) {
  return conv(b, OP_CONV2D_INPUT, x, (int64_t[]){1, 2, 1, 0, 1, 2, 4, 5});
}
BUILD(conv2d_weight) {
  return conv(b, OP_CONV2D_WEIGHT, x, (int64_t[]){1, 2, 1, 0, 2, 2, 3, 2});
}

/* A name that is not here is that of an op without attributes. */
static const Case cases[] = {
    {"abs_at_0", OP_ABS, NULL},
    {"relu_at_0", OP_RELU, NULL},
    {"sqrt_at_0", OP_SQRT, NULL},
    {"max_ties", OP_MAX, NULL},
    {"min_ties", OP_MIN, NULL},
    {"reduce_max_ties", OP_REDUCE_MAX, reduce_max},
    {"reduce_min_ties", OP_REDUCE_MIN, reduce_min_ties},
    {"pow_const_0", OP_POW, pow_const_0},
    {"pow_zero_base", OP_POW, NULL},
    {"pow_const_2", OP_POW, pow_const_2},
    {"pow_const_3", OP_POW, pow_const_3},
    {"where_selects", OP_WHERE, where_selects},
    {"reshape", OP_RESHAPE, reshape},
    {"transpose", OP_TRANSPOSE, transpose},
    {"broadcast", OP_BROADCAST, broadcast},
    {"slice", OP_SLICE, slice_plain},
    {"slice_steps", OP_SLICE, slice_steps},
    {"pad", OP_PAD, pad},
    {"pad_inner", OP_PAD, pad_inner},
    {"flip", OP_FLIP, flip},
    {"concat", OP_CONCAT, concat},
    {"take", OP_TAKE, take},
    {"take_axis_1", OP_TAKE, take_axis_1},
    {"take_two", OP_TAKE, take_two},
    {"put", OP_PUT, put},
    {"put_add", OP_PUT_ADD, put_add},
    {"put_add_axis_1", OP_PUT_ADD, put_add_axis_1},
    {"gather", OP_GATHER, gather},
    {"scatter", OP_SCATTER, scatter},
    {"scatter_add", OP_SCATTER_ADD, scatter_add},
    {"sort", OP_SORT, sort},
    {"sort_descending", OP_SORT, sort_descending},
    {"sum", OP_SUM, sum},
    {"sum_all", OP_SUM, sum_all},
    {"sum_0_2", OP_SUM, sum_0_2},
    {"prod", OP_PROD, prod},
    {"prod_all", OP_PROD, prod_all},
    {"prod_0_2", OP_PROD, prod_0_2},
    {"prod_zeros", OP_PROD, prod},
    {"prod_long", OP_PROD, prod_long},
    {"reduce_max", OP_REDUCE_MAX, reduce_max},
    {"reduce_min", OP_REDUCE_MIN, reduce_min},
    {"cumsum", OP_CUMSUM, cumsum},
    {"cumsum_reverse", OP_CUMSUM, cumsum_reverse},
    {"cummax", OP_CUMMAX, cummax},
    {"cummax_reverse", OP_CUMMAX, cummax_reverse},
    {"cummin", OP_CUMMIN, cummin},
    {"cholesky", OP_CHOLESKY, cholesky},
    {"cholesky_batch", OP_CHOLESKY, cholesky},
    {"cholesky_grad", OP_CHOLESKY_GRAD, cholesky_grad},
    {"lu_batch", OP_LU, NULL},
    {"eigh_batch", OP_EIGH, NULL},
    {"eigh_vectors", OP_EIGH, eigh_vectors},
    {"eigh_alone", OP_EIGH, eigh_alone},
    {"qr_batch", OP_QR, NULL},
    {"qr_triangle", OP_QR, qr_triangle},
    {"qr_wide", OP_QR, qr_triangle},
    {"svd_batch", OP_SVD, NULL},
    {"svd_values", OP_SVD, svd_values},
    {"svd_alone", OP_SVD, svd_alone},
    {"svd_right", OP_SVD, svd_right},
    {"solve", OP_SOLVE, solve},
    {"solve_across", OP_SOLVE, solve_across},
    {"factor_solve", OP_FACTOR_SOLVE, factor_solve},
    {"triangular_upper", OP_TRIANGULAR, triangular_upper},
    {"triangular_unit", OP_TRIANGULAR, triangular_unit},
    {"triangular_unit_upper", OP_TRIANGULAR, triangular_unit_upper},
    {"dot_batch", OP_DOT, NULL},
    {"conv2d", OP_CONV2D, conv2d},
    {"conv2d_stride_pad", OP_CONV2D, conv2d_stride_pad},
    {"conv2d_input", OP_CONV2D_INPUT, conv2d_input},
    {"conv2d_weight", OP_CONV2D_WEIGHT, conv2d_weight},
};
enum { CASES = sizeof cases / sizeof *cases };
static bool case_seen[CASES], op_seen[OP_COUNT]; /* in the data, up to here */

static const Case *case_of(const char *name) {
  static Case plain[OP_COUNT];
  for (int k = 0; k < CASES; k++) {
    if (strcmp(cases[k].name, name)) continue;
    case_seen[k] = op_seen[cases[k].op] = true;
    return &cases[k];
  }
  int op = op_find(name);
  if (op < 0) return NULL;
  op_seen[op] = true;
  plain[op] = (Case){op_info[op].text, (OpCode)op, NULL};
  return &plain[op];
}

static Val build_case(B *b, const Case *c, int n, const Val *x) {
  return c->build ? c->build(b, x) : b_op(b, c->op, n, x, 0, NULL);
}

/* ---- data: one case of ops.txt */

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

static bool numbers(char *s, Array *a) {
  char *end;
  for (a->n = 0;; a->n++, s = end) {
    double x = strtod(s, &end);
    if (end == s) return true;
    if (a->n == MAX_VALUES) return false;
    a->v[a->n] = x;
  }
}

static char *shape_of(char *s, Array *a) {
  a->rank = (int)strtol(s, &s, 10);
  for (int j = 0; j < a->rank; j++) a->dim[j] = strtol(s, &s, 10);
  return s;
}

static FILE *open_data(void) {
  char path[4096];
  const char *dir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/tests/grad/ops.txt", dir ? dir : ".");
  FILE *f = fopen(path, "r");
  check_msg(f != NULL, "%s is missing", path);
  return f;
}

/* The next case of the file; false at its end. */
static bool next_case(FILE *f, char **line, size_t *cap, Data *d) {
  memset(d, 0, sizeof *d);
  while (**line || getline(line, cap, f) > 0) {
    char name[64] = "", *s = *line;
    int at = 0, i;
    bool ok = true;
    if (sscanf(s, "case %63s %d", name, &i) == 2) {
      if (d->c) return true; /* kept for the next call */
      d->c = case_of(name);
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

/* Returns how many there are. */
static int each_case(void (*f)(Env *v, const Data *d, void *ud), void *ud) {
  static Data d;
  int n = 0;
  size_t cap = 1 << 16;
  char *line = calloc(1, cap);
  FILE *file = open_data();
  if (!file) return 0;
  while (next_case(file, &line, &cap, &d)) {
    Env v;
    env_open(&v);
    f(&v, &d, ud);
    env_close(&v);
    n++;
  }
  fclose(file);
  free(line);
  return n;
}

static DType dtype_of(const Array *a, DType dt) {
  return a->dt == DT_F64 ? dt : a->dt;
}

static Tensor *array_tensor(Env *v, const Array *a, DType dt) {
  return tensor(v, dtype_of(a, dt), a->rank, a->dim, a->v);
}

static Val array_input(Env *v, Graph *g, const Array *a, DType dt) {
  Type t = type_c(v, dtype_of(a, dt), a->rank, a->dim);
  return gr_input(g, &t);
}

#endif
