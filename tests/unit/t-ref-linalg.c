/* Small matrices of a batch, done several at once, have the bits of each alone, at every level of
 * vectors that this CPU has, for every layout. */
#include "ref-naive.h"

/* Matrix `i` of x, alone. */
static Tensor *one(const Tensor *x, int64_t i, int axes) {
  int64_t dim[3] = {1}, stride[3] = {x->stride[0]};
  for (int k = 1; k <= axes; k++) dim[k] = x->dim[k], stride[k] = x->stride[k];
  return tn_view(&mem, (Tensor *)x, axes + 1, dim, stride, i * x->stride[0]);
}

/* Of a NaN the sign and the rest of its bits are left open. */
static bool same_one(const Tensor *all, int64_t i, int axes, const Tensor *alone) {
  int64_t n = 1, size = (int64_t)dt_size(all->dtype);
  for (int k = 1; k <= axes; k++) n *= all->dim[k];
  const char *x = (const char *)tn_data(all) + i * n * size, *y = tn_data(alone);
  for (int64_t k = 0; k < n; k++, x += size, y += size)
    if (memcmp(x, y, (size_t)size) != 0 &&
        !(dt_float(all->dtype) && isnan(tn_get_f64(all, i * n + k)) && isnan(tn_get_f64(alone, k))))
      return false;
  return true;
}

/* Whether `factor_solve` has the bits of the pair, or the error of `lu`. */
static void check_system(const Tensor *a, const Tensor *b) {
  Tensor *f, *p, *odd, *x = NULL;
  ref.err.kind = REF_OK;
  bool regular = ref_lu(&ref, a, true, &f, &p, &odd);
  RefErr want = ref.err;
  if (regular) x = ref_solve(&ref, f, p, b, false);
  ref.err.kind = REF_OK;
  Tensor *y = ref_factor_solve(&ref, a, b);
  bool same = check(!x == !y);
  if (same && !x) same = check(ref.err.kind == want.kind && !strcmp(ref.err.text, want.text));
  for (int64_t i = 0; same && x && i < a->dim[0]; i++) {
    Tensor *yi = one(y, i, 2), *ai = one(a, i, 2), *bi = one(b, i, 2);
    Tensor *alone = ref_factor_solve(&ref, ai, bi);
    same = check(alone && same_one(x, i, 2, yi)) && check(same_one(y, i, 2, alone));
    Tensor *own[] = {yi, ai, bi, alone};
    for (int k = 0; k < 4; k++) tn_unref(own[k]);
  }
  if (!same)
    printf("# level %d, %s, n %lld, m %lld\n", ref.level, dtype_info[a->dtype].name,
           (long long)a->dim[1], (long long)b->dim[2]);
  Tensor *own[] = {x, y, regular ? f : NULL, regular ? p : NULL, regular ? odd : NULL};
  for (int k = 0; k < 5; k++) tn_unref(own[k]);
}

static void check_batch(const Tensor *a, const Tensor *b, bool across) {
  Tensor *f, *p, *odd;
  if (!check(ref_lu(&ref, a, false, &f, &p, &odd))) return;
  Tensor *x = ref_solve(&ref, f, p, b, across);
  bool same = check(x != NULL);
  for (int64_t i = 0; same && i < a->dim[0]; i++) {
    Tensor *ai = one(a, i, 2), *bi = one(b, i, 2), *fi, *pi, *oi;
    if (!check(ref_lu(&ref, ai, false, &fi, &pi, &oi))) return;
    Tensor *xi = ref_solve(&ref, fi, pi, bi, across);
    same = check(same_one(f, i, 2, fi)) && check(same_one(p, i, 1, pi)) &&
           check(same_one(odd, i, 0, oi)) && check(same_one(x, i, 2, xi));
    if (!same)
      printf("# level %d, %s, n %lld, matrix %lld\n", ref.level, dtype_info[a->dtype].name,
             (long long)a->dim[1], (long long)i);
    Tensor *own[] = {ai, bi, fi, pi, oi, xi};
    for (int k = 0; k < 6; k++) tn_unref(own[k]);
  }
  Tensor *own[] = {f, p, odd, x};
  for (int k = 0; k < 4; k++) tn_unref(own[k]);
}

/* A batch of random elements, some of them small ints, so that pivots are equal or missing. */
static Tensor *draw_batch(DType dt, int64_t count, int64_t m, int64_t n, bool turned) {
  Tensor *t = tn_new(&mem, DEV_CPU, dt, 3, (int64_t[]){count, turned ? n : m, turned ? m : n});
  bool ints = below(3) == 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < t->dim[1]; j++)
      for (int64_t k = 0; k < t->dim[2]; k++) {
        double x = ints ? (double)below(4) - 1 : (double)(int64_t)draw() * 0x1p-62;
        if (below(500) == 0) x = below(2) ? NAN : INFINITY;
        set_f(t, (int64_t[]){i, j, k}, x);
      }
  if (!turned) return t;
  Tensor *v = tn_view(&mem, t, 3, (int64_t[]){count, m, n},
                      (int64_t[]){t->stride[0], t->stride[2], t->stride[1]}, 0);
  tn_unref(t);
  return v;
}

static void t_together(int level) {
  static const DType kinds[] = {DT_F64, DT_F32, DT_F64, DT_F32, DT_F16, DT_BF16};
  open_all();
  ref.level = level;
  for (int round = 0; round < 200; round++) {
    DType dt = kinds[below(6)];
    int64_t n = 1 + below(18), m = below(8) ? below(8) : below(40), count = 1 + below(40);
    Tensor *a = draw_batch(dt, count, n, n, below(4) == 0);
    Tensor *b = draw_batch(dt, count, n, m, below(4) == 0);
    if (below(4) == 0) { /* one row, or one number, for all */
      Tensor *v = tn_view(&mem, b, 3, (int64_t[]){count, n, m},
                          (int64_t[]){below(2) ? b->stride[0] : 0, 0, below(2) ? b->stride[2] : 0},
                          b->offset);
      tn_unref(b);
      b = v;
    }
    check_batch(a, b, below(2));
    check_system(a, b);
    tn_unref(a);
    tn_unref(b);
  }
  close_all();
}

int main(void) {
  for (int level = 1; level <= 3; level++)
    TEST(t_together(level), "matrices of a batch have the bits that they have alone");
  return tap_done();
}
