/* Random kernels against runtime/rng.h element by element: an element depends on key, counter and
 * its row-major number only. */
#include "ref-naive.h"
#include "runtime/reference/ref.h"
#include "runtime/rng.h"

static Tensor *key_of(int64_t k, int64_t counter) {
  Tensor *t = draw_layout(DT_I64, 1, (int64_t[]){2}, false);
  set_i(t, (int64_t[]){0}, k);
  set_i(t, (int64_t[]){1}, counter);
  return t;
}

static void t_random(bool normal, DType dt) {
  open_all();
  for (int round = 0; round < 30; round++) {
    int64_t dim[CKL_MAX_RANK], k = (int64_t)draw(), c = below(1000), n = 0;
    int rank = draw_shape(3, dim);
    Tensor *key = key_of(k, c), *want = fresh(dt, rank, dim);
    FOR_EACH(i, rank, dim) {
      float f;
      double d;
      uint64_t u = (uint64_t)k, v = (uint64_t)c;
      if (dt == DT_F64) {
        if (normal)
          rng_normal_f64(u, v, n, 1, &d);
        else
          rng_uniform_f64(u, v, n, 1, &d);
      } else {
        if (normal)
          rng_normal_f32(u, v, n, 1, &f);
        else
          rng_uniform_f32(u, v, n, 1, &f);
        d = (double)f;
        if (!normal && dt == DT_F16) d = floor(d * 2048) / 2048;
        if (!normal && dt == DT_BF16) d = floor(d * 256) / 256;
      }
      set_f(want, i, d);
      if (!normal) check(get_f(want, i) >= 0 && get_f(want, i) < 1);
      n++;
    }
    same_bits("random", ref_random(&ref, DEV_CPU, key, normal, dt, rank, dim), want);
    tn_unref(key);
  }
  close_all();
}

static void t_randint(void) {
  open_all();
  for (int round = 0; round < 60; round++) {
    static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
    DType dt = (DType)(DT_U8 + below(5));
    int64_t dim[CKL_MAX_RANK], k = (int64_t)draw(), n = 0, limit = 1 + below(100);
    if (below(4) == 0) limit = high[dt];
    int rank = draw_shape(3, dim);
    Tensor *key = key_of(k, 3), *want = fresh(dt, rank, dim);
    Tensor *most = tn_scalar_i64(&mem, DEV_CPU, DT_I64, limit);
    FOR_EACH(i, rank, dim) {
      int64_t v;
      rng_randint((uint64_t)k, 3, n++, 1, limit, &v);
      set_i(want, i, v);
    }
    same_bits("randint", ref_randint(&ref, DEV_CPU, key, most, dt, rank, dim), want);
    tn_unref(key);
    tn_unref(most);
  }
  close_all();
}

static void refused(int64_t limit, DType dt, const char *part) {
  Tensor *key = key_of(1, 1), *most = tn_scalar_i64(&mem, DEV_CPU, DT_I64, limit);
  check(!ref_randint(&ref, DEV_CPU, key, most, dt, 0, NULL));
  check_int(ref.err.kind, ==, REF_VALUE);
  check_has(ref.err.text, part);
  tn_unref(key);
  tn_unref(most);
}

static void t_refused(void) {
  open_all();
  refused(0, DT_I64, "random integers below 0: there are none");
  refused(-3, DT_I64, "below -3");
  refused(257, DT_U8, "do not fit u8");
  refused(5, DT_F32, "not f32");
  Tensor *key = key_of(1, 1), *bad = tn_zeros(&mem, DEV_CPU, DT_I64, 1, (int64_t[]){3});
  check(!ref_random(&ref, DEV_CPU, key, true, DT_I64, 0, NULL));
  check_has(ref.err.text, "not i64");
  check(!ref_random(&ref, DEV_CPU, bad, true, DT_F32, 0, NULL));
  check_str(ref.err.text, "a key is an i64[2]");
  tn_unref(key);
  tn_unref(bad);
  close_all();
}

static Tensor *folded(int64_t k, int64_t c, int64_t i) {
  Tensor *key = key_of(k, c), *n = tn_scalar_i64(&mem, DEV_CPU, DT_I64, i);
  Tensor *t = ref_fold_in(&ref, key, n);
  tn_unref(key);
  tn_unref(n);
  return t;
}

static void t_fold_in(void) {
  open_all();
  Tensor *t[] = {folded(1, 0, 0), folded(1, 0, 1), folded(1, 1, 0), folded(2, 0, 0),
                 folded(1, 0, 0)};
  check(tn_same(t[0], t[4]));
  for (int i = 0; i < 4; i++) {
    check_int(tn_get_i64(t[i], 1), ==, 0);
    for (int j = 0; j < i; j++) check(!tn_same(t[i], t[j]));
  }
  for (int i = 0; i < 5; i++) tn_unref(t[i]);
  close_all();
}

static void t_philox(void) {
  open_all();
  for (int round = 0; round < 20; round++) {
    uint32_t c[4], k[2], w[4];
    Tensor *counter = draw_layout(DT_I64, 1, (int64_t[]){4}, false), *key = key_of(0, 0);
    Tensor *want = fresh(DT_I64, 1, (int64_t[]){4});
    for (int64_t i = 0; i < 4; i++) set_i(counter, &i, c[i] = (uint32_t)draw());
    for (int64_t i = 0; i < 2; i++) set_i(key, &i, k[i] = (uint32_t)draw());
    rng_philox4x32(c, k, w);
    for (int64_t i = 0; i < 4; i++) set_i(want, &i, w[i]);
    same_bits("philox", ref_philox(&ref, counter, key), want);
    tn_unref(counter);
    tn_unref(key);
  }
  close_all();
}

int main(void) {
  static const DType dts[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
  for (int d = 0; d < 4; d++) {
    TEST(t_random(false, dts[d]), "uniform numbers are those of their place, below 1");
    TEST(t_random(true, dts[d]), "normal numbers are those of their place");
  }
  TEST(t_randint(), "random integers are those of their place");
  TEST(t_refused(), "impossible limits and dtypes are refused");
  TEST(t_fold_in(), "folding gives other keys for other keys, counters and numbers");
  TEST(t_philox(), "philox is the raw generator");
  return tap_done();
}
