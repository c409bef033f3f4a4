/* Reductions against rule 105 written out: lanes, blocks and tree by definition. */
#include "ref-naive.h"
#include "runtime/reference/ref.h"

/* The elements that one result reduces, in row-major order of the reduced axes. */
typedef struct Line {
  int64_t n;
  double *f;
  int64_t *i;
} Line;

static double op_f(RefRed f, bool f64, double a, double b) {
  switch (f) {
  case RR_SUM: return f64 ? a + b : (double)((float)a + (float)b);
  case RR_PROD: return f64 ? a * b : (double)((float)a * (float)b);
  default:
    if (isnan(a) || isnan(b)) return (double)NAN;
    if (a == 0 && b == 0) {
      bool neg = f == RR_MAX ? signbit(a) && signbit(b) : signbit(a) || signbit(b);
      return neg ? -0.0 : 0.0;
    }
    return (f == RR_MAX) == (a > b) ? a : b;
  }
}

static double block_f(RefRed f, bool f64, const double *x, int64_t n) {
  double lane[16], start = f == RR_SUM ? -0.0 : f == RR_PROD ? 1 : (double)INFINITY;
  if (f == RR_MAX) start = -start;
  if (f == RR_SUM && n == 0) return 0;
  for (int j = 0; j < 16; j++) lane[j] = start;
  for (int64_t i = 0; i < n; i++) lane[i % 16] = op_f(f, f64, lane[i % 16], x[i]);
  for (int h = 8; h > 0; h /= 2)
    for (int j = 0; j < h; j++) lane[j] = op_f(f, f64, lane[j], lane[j + h]);
  return lane[0];
}

/* Recursive, straight from the rule: `blocks` blocks from block `first`. */
static double tree_f(RefRed f, bool f64, const Line *l, int64_t first, int64_t blocks) {
  if (blocks == 1) {
    int64_t n = l->n - first * 4096;
    return block_f(f, f64, l->f + first * 4096, n < 4096 ? n : 4096);
  }
  int64_t p = 1;
  while (p * 2 < blocks) p *= 2;
  return op_f(f, f64, tree_f(f, f64, l, first, p), tree_f(f, f64, l, first + p, blocks - p));
}

static int64_t reduce_i(RefRed f, DType dt, const Line *l) {
  static const int64_t low[] = {0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  uint64_t v = f == RR_PROD ? 1 : 0;
  int64_t m = f == RR_MAX ? low[dt] : high[dt];
  bool any = false, every = true;
  for (int64_t k = 0; k < l->n; k++) {
    if (f == RR_SUM) v += (uint64_t)l->i[k];
    if (f == RR_PROD) v *= (uint64_t)l->i[k];
    if (f == RR_MAX && l->i[k] > m) m = l->i[k];
    if (f == RR_MIN && l->i[k] < m) m = l->i[k];
    any |= l->i[k] != 0;
    every &= l->i[k] != 0;
  }
  if (f == RR_ANY) return any;
  if (f == RR_ALL) return every;
  return f <= RR_PROD ? (int64_t)v : m;
}

static void check_reduce(RefRed f, Tensor *x, int naxes, const int64_t *axes) {
  int64_t kdim[CKL_MAX_RANK], rdim[CKL_MAX_RANK], kept[CKL_MAX_RANK], red[CKL_MAX_RANK];
  int k = 0, n = 0;
  for (int i = 0; i < x->rank; i++) {
    bool r = false;
    for (int a = 0; a < naxes; a++) r |= axes[a] == i;
    if (r) {
      red[n] = i;
      rdim[n++] = x->dim[i];
    } else {
      kept[k] = i;
      kdim[k++] = x->dim[i];
    }
  }
  Line l = {.n = tn_product(n, rdim)};
  l.f = malloc((size_t)(l.n + 1) * 8);
  l.i = malloc((size_t)(l.n + 1) * 8);
  Tensor *want = fresh(x->dtype, k, kdim);
  FOR_EACH(i, k, kdim) {
    int64_t idx[CKL_MAX_RANK], at_ = 0;
    for (int d = 0; d < k; d++) idx[kept[d]] = i[d];
    FOR_EACH(j, n, rdim) {
      for (int d = 0; d < n; d++) idx[red[d]] = j[d];
      if (dt_float(x->dtype))
        l.f[at_++] = get_f(x, idx);
      else
        l.i[at_++] = get_i(x, idx);
    }
    if (!dt_float(x->dtype))
      set_i(want, i, reduce_i(f, x->dtype, &l));
    else if (l.n == 0) {
      set_f(want, i, block_f(f, true, l.f, 0));
    } else
      set_f(want, i, tree_f(f, x->dtype == DT_F64, &l, 0, (l.n + 4095) / 4096));
  }
  char what[100];
  sprintf(what, "reduce %d, rank %d, %d axes, length %d", (int)f, x->rank, naxes, (int)l.n);
  same_bits(what, ref_reduce(&ref, f, x, naxes, axes), want);
  free(l.f);
  free(l.i);
}

static void t_reduce(RefRed f) {
  open_all();
  for (int round = 0; round < 150; round++) {
    int64_t dim[CKL_MAX_RANK], axes[CKL_MAX_RANK];
    int rank = draw_shape(4, dim), n = 0;
    DType dt = f >= RR_ANY ? DT_BOOL : (DType)(1 + below(DT_COUNT - 1));
    if (f < RR_ANY && below(2)) dt = (DType)(DT_F16 + below(4));
    Tensor *x = draw_tensor(dt, rank, dim, below(2) ? WILD : PLAIN);
    if (dt == DT_BOOL && below(2)) /* rows that are all false or all true happen too */
      FOR_EACH(i, rank, dim) set_i(x, i, f == RR_ALL || below(200) == 0);
    for (int i = 0; i < rank; i++)
      if (below(2)) axes[n++] = i;
    for (int i = n - 1; i > 0; i--) { /* axes in any order name the same reduction */
      int64_t j = below(i + 1), t = axes[i];
      axes[i] = axes[j];
      axes[j] = t;
    }
    check_reduce(f, x, n, axes);
    tn_unref(x);
  }
  close_all();
}

static void t_lengths(DType dt) {
  open_all();
  static const int64_t n[] = {
      1,    2,    15,   16,    17,    31,       4095,          4096,
      4097, 8192, 8193, 12288, 20481, 4096 * 7, 4096 * 8 + 11, 4096 * 5 + 1};
  for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
    Tensor *x = draw_tensor(dt, 1, (int64_t[]){n[k]}, PLAIN);
    check_reduce(RR_SUM, x, 1, (int64_t[]){0});
    tn_unref(x);
    x = draw_tensor(dt, 2, (int64_t[]){n[k], 3}, PLAIN); /* columns */
    check_reduce(RR_SUM, x, 1, (int64_t[]){0});
    tn_unref(x);
    x = draw_tensor(dt, 3, (int64_t[]){n[k] / 8 + 1, 2, 8}, PLAIN); /* both sides of a kept axis */
    check_reduce(RR_SUM, x, 2, (int64_t[]){0, 2});
    tn_unref(x);
    x = draw_tensor(dt, 2, (int64_t[]){2, n[k]}, PLAIN);
    check_reduce(RR_PROD, x, 1, (int64_t[]){1});
    tn_unref(x);
  }
  for (int k = 0; k < 4; k++) { /* wide panels */
    Tensor *x = draw_tensor(dt, 2, (int64_t[]){5 + 40 * k, 127 + 173 * k}, PLAIN);
    check_reduce(RR_SUM, x, 1, (int64_t[]){0});
    check_reduce(RR_MAX, x, 1, (int64_t[]){0});
    tn_unref(x);
  }
  close_all();
}

static void t_known(void) {
  open_all();
  /* a sum of -0 is -0, as every lane starts from -0; one of nothing is +0 */
  Tensor *z = tn_scalar_f64(&mem, DEV_CPU, DT_F32, -0.0), *s;
  for (int64_t n = 0; n <= 20; n++) {
    Tensor *zs = ref_broadcast(&ref, z, 1, &n);
    s = ref_reduce(&ref, RR_SUM, zs, 1, (int64_t[]){0});
    check(!signbit(tn_get_f64(s, 0)) == (n == 0));
    tn_unref(zs);
    tn_unref(s);
  }
  tn_unref(z);
  /* f16 accumulates in f32: 4,000 times 1 is 4,000, though 2,049 is no f16 */
  Tensor *one = tn_scalar_f64(&mem, DEV_CPU, DT_F16, 1);
  Tensor *many = ref_broadcast(&ref, one, 1, (int64_t[]){4000});
  s = ref_reduce(&ref, RR_SUM, many, 1, (int64_t[]){0});
  check_double(tn_get_f64(s, 0), ==, 4000);
  tn_unref(one);
  tn_unref(many);
  tn_unref(s);
  close_all();
}

static void t_arg(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK], kdim[CKL_MAX_RANK], idx[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    if (rank == 0) continue;
    int axis = (int)below(rank), k = 0;
    DType dt = (DType)(1 + below(DT_COUNT - 1));
    bool max = below(2);
    Tensor *x = draw_tensor(dt, rank, dim, WILD);
    for (int d = 0; d < rank; d++)
      if (d != axis) kdim[k++] = dim[d];
    Tensor *got = ref_argreduce(&ref, max, x, axis);
    if (dim[axis] == 0 && tn_product(k, kdim) > 0) {
      check(!got);
      check_int(ref.err.kind, ==, REF_VALUE);
      check_has(ref.err.text, max ? "argmax over axis" : "argmin over axis");
      tn_unref(x);
      continue;
    }
    Tensor *want = fresh(DT_I64, k, kdim);
    FOR_EACH(i, k, kdim) {
      int64_t best = 0;
      for (int d = 0, n = 0; d < rank; d++) idx[d] = d == axis ? 0 : i[n++];
      for (int64_t p = 1; p < dim[axis]; p++) {
        int64_t a[CKL_MAX_RANK], b[CKL_MAX_RANK];
        memcpy(a, idx, sizeof a);
        memcpy(b, idx, sizeof b);
        a[axis] = p;
        b[axis] = best;
        if (dt_float(dt)) {
          double u = get_f(x, a), v = get_f(x, b);
          if (!isnan(v) && (isnan(u) || (max ? u > v : u < v))) best = p;
        } else if (max ? get_i(x, a) > get_i(x, b) : get_i(x, a) < get_i(x, b))
          best = p;
      }
      set_i(want, i, best);
    }
    same_bits("argreduce", got, want);
    tn_unref(x);
  }
  close_all();
}

static void t_cumsum(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    if (rank == 0) continue;
    int axis = (int)below(rank);
    DType dt = (DType)(1 + below(DT_COUNT - 1));
    bool back = below(2);
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *want = fresh(dt, rank, dim);
    FOR_EACH(i, rank, dim) { /* each sum from its beginning */
      int64_t j[CKL_MAX_RANK], n = back ? dim[axis] - 1 - i[axis] : i[axis], v = 0;
      double f = 0;
      memcpy(j, i, sizeof j);
      for (int64_t p = 0; p <= n; p++) {
        j[axis] = back ? dim[axis] - 1 - p : p;
        if (!dt_float(dt))
          v = (int64_t)((uint64_t)v + (uint64_t)get_i(x, j));
        else if (p == 0)
          f = get_f(x, j);
        else
          f = dt == DT_F64 ? f + get_f(x, j) : (double)((float)f + (float)get_f(x, j));
      }
      if (dt_float(dt))
        set_f(want, i, f);
      else
        set_i(want, i, v);
    }
    same_bits("cumsum", ref_cumsum(&ref, x, axis, back), want);
    tn_unref(x);
  }
  close_all();
}

static void t_undefined(void) {
  open_all();
  Tensor *b = tn_zeros(&mem, DEV_CPU, DT_BOOL, 1, (int64_t[]){3});
  Tensor *f = tn_zeros(&mem, DEV_CPU, DT_F32, 1, (int64_t[]){3});
  check(!ref_reduce(&ref, RR_SUM, b, 1, (int64_t[]){0}));
  check_str(ref.err.text, "sum is not defined for bool");
  check(!ref_reduce(&ref, RR_ANY, f, 1, (int64_t[]){0}));
  check_str(ref.err.text, "any is not defined for f32");
  tn_unref(b);
  tn_unref(f);
  close_all();
}

int main(void) {
  for (int f = RR_SUM; f <= RR_ALL; f++) TEST(t_reduce((RefRed)f), "a reduction is its definition");
  TEST(t_lengths(DT_F32), "sums of every length around lanes and blocks, in f32");
  TEST(t_lengths(DT_F64), "in f64");
  TEST(t_lengths(DT_F16), "in f16");
  TEST(t_lengths(DT_BF16), "in bf16");
  TEST(t_known(), "lanes start from -0, f16 accumulates in f32");
  TEST(t_arg(), "argmax and argmin give the first winner, the first NaN before all");
  TEST(t_cumsum(), "running sums go in order");
  TEST(t_undefined(), "dtypes without the op are refused");
  return tap_done();
}
