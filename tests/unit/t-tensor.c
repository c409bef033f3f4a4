/* Tensors: making, viewing, copying, reading elements; counts and accounts. */
#include "runtime/tensor.h"

#include "runtime/half.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

static void t_dtypes(void) {
  static const size_t size[DT_COUNT] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  for (int i = 0; i < DT_COUNT; i++) {
    DType d = (DType)i;
    check_size(dt_size(d), ==, size[i]);
    check_int(dtype_find(dtype_info[i].name), ==, i);
    check(dt_float(d) == dtype_info[i].is_float);
    check(dt_int(d) == dtype_info[i].is_int);
  }
  check_int(dtype_find("f8"), ==, -1);
  check_int(dtype_find(""), ==, -1);
}

static void t_product(void) {
  check_int(tn_product(0, NULL), ==, 1);
  check_int(tn_product(2, (int64_t[]){3, 4}), ==, 12);
  check_int(tn_product(2, (int64_t[]){3, -4}), ==, -1);
  check_int(tn_product(3, (int64_t[]){0, -1, 2}), ==, -1);
  check_int(tn_product(3, (int64_t[]){INT64_MAX, INT64_MAX, 0}), ==, 0);
  check_int(tn_product(3, (int64_t[]){0, INT64_MAX, INT64_MAX}), ==, 0);
  check_int(tn_product(2, (int64_t[]){INT64_MAX, 1}), ==, INT64_MAX);
  check_int(tn_product(2, (int64_t[]){INT64_MAX, 2}), ==, -1);
  check_int(tn_product(2, (int64_t[]){(int64_t)1 << 32, (int64_t)1 << 31}), ==, -1);
}

static void t_limits(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  int64_t most[2] = {(int64_t)1 << 31, (int64_t)1 << 30}, ones[CKL_MAX_RANK + 1];
  check(!tn_new(&m, DEV_CPU, DT_F64, 2, most)); /* 2^64 bytes */
  check(!tn_new(&m, DEV_CPU, DT_F64, 1, (int64_t[]){-1}));
  for (int i = 0; i <= CKL_MAX_RANK; i++) ones[i] = 1;
  check(!tn_new(&m, DEV_CPU, DT_F32, CKL_MAX_RANK + 1, ones));
  check(!tn_new(&m, DEV_CPU, DT_F32, -1, ones));
  check(!tn_new(&m, DEV_CUDA, DT_F32, 1, ones));
  check_int(f.count, <=, 1); /* nothing but the storage's record was asked for */
  Tensor *t = tn_zeros(&m, DEV_SIM, DT_F32, CKL_MAX_RANK, ones);
  need(t);
  check_int(tn_count(t), ==, 1);
  check_size(m.data_live[DEV_SIM], ==, 4);
  check(!tn_view(&m, t, CKL_MAX_RANK + 1, ones, ones, 0));
  check(!tn_foreign(&m, DT_F64, 2, most, ones, NULL, NULL));
  tn_unref(t);
  t = tn_new(&m, DEV_CPU, DT_F64, 3, (int64_t[]){0, INT64_MAX, INT64_MAX}); /* empty, so it fits */
  need(t);
  check(tn_is_contiguous(t) && tn_same(t, t));
  tn_unref(t);
  tn_unref(NULL);
  check(failing_clean(&f, &m));
}

static Tensor *counting(Mem *m, DType dt, int rank, const int64_t *dim) {
  Tensor *t = tn_new(m, DEV_CPU, dt, rank, dim);
  for (int64_t i = 0; t && i < tn_count(t); i++) {
    if (dt == DT_I64) ((int64_t *)tn_data(t))[i] = i;
    if (dt == DT_I16) ((int16_t *)tn_data(t))[i] = (int16_t)i;
    if (dt == DT_U8) ((uint8_t *)tn_data(t))[i] = (uint8_t)i;
    if (dt == DT_F32) ((float *)tn_data(t))[i] = (float)i;
  }
  return t;
}

static void t_views(DType dt) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  Tensor *t = counting(&m, dt, 3, (int64_t[]){2, 3, 4});
  need(t);
  check(tn_is_contiguous(t));
  /* the axes in reverse order */
  Tensor *v = tn_view(&m, t, 3, (int64_t[]){4, 3, 2}, (int64_t[]){1, 4, 12}, 0);
  need(v);
  tn_unref(t); /* the view keeps the storage */
  check(!tn_is_contiguous(v));
  check_int(v->store->rc, ==, 1);
  Tensor *c = tn_contiguous(&m, v);
  need(c);
  check(c != v && tn_is_contiguous(c));
  check(tn_same(c, v) && tn_same(v, c));
  for (int64_t i = 0; i < 24; i++) {
    int64_t a = i / 6, b = i / 2 % 3, d = i % 2;
    check_int(tn_get_i64(v, i), ==, a + 4 * b + 12 * d);
    check_int((int64_t)tn_get_f64(c, i), ==, a + 4 * b + 12 * d);
  }
  /* any part of it */
  char all[24 * 8], part[24 * 8];
  size_t each = dt_size(dt);
  tn_gather(v, 0, 24, all);
  for (int64_t first = 0; first < 24; first++)
    for (int64_t n = 0; first + n <= 24; n++) {
      tn_gather(v, first, n, part);
      check_mem(part, all + (size_t)first * each, (size_t)n * each);
      tn_gather(c, first, n, part);
      check_mem(part, all + (size_t)first * each, (size_t)n * each);
    }
  /* a slice with steps backwards, and a row repeated */
  Tensor *back = tn_view(&m, c, 1, (int64_t[]){4}, (int64_t[]){-5}, 20);
  Tensor *same = tn_view(&m, c, 2, (int64_t[]){3, 2}, (int64_t[]){0, 1}, 6);
  need(back && same);
  for (int64_t i = 0; i < 4; i++) check_int(tn_get_i64(back, i), ==, tn_get_i64(c, 20 - 5 * i));
  for (int64_t i = 0; i < 6; i++) check_int(tn_get_i64(same, i), ==, tn_get_i64(c, 6 + i % 2));
  Tensor *copy = tn_copy(&m, same, DEV_SIM);
  need(copy);
  check(tn_same(copy, same));
  check_size(m.data_live[DEV_SIM], ==, 6 * each);
  tn_unref(copy);
  tn_unref(same);
  tn_unref(back);
  tn_unref(c);
  tn_unref(v);
  check(failing_clean(&f, &m));
}

static void t_contiguous(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  Tensor *t = counting(&m, DT_F32, 2, (int64_t[]){2, 6});
  need(t);
  Tensor *same = tn_contiguous(&m, t);
  check(same == t && t->rc == 2);
  tn_unref(same);
  Tensor *odd = tn_view(&m, t, 3, (int64_t[]){1, 2, 1}, (int64_t[]){99, 1, 7}, 3);
  Tensor *row = tn_view(&m, t, 2, (int64_t[]){1, 6}, (int64_t[]){0, 1}, 6);
  Tensor *none = tn_view(&m, t, 3, (int64_t[]){5, 0, 2}, (int64_t[]){1, 9, 3}, 0);
  Tensor *col = tn_view(&m, t, 1, (int64_t[]){2}, (int64_t[]){6}, 0);
  need(odd && row && none && col);
  check(tn_is_contiguous(odd)); /* strides of axes of size 1 do not count */
  check(tn_is_contiguous(row));
  check(tn_is_contiguous(none)); /* nothing to be out of place */
  check(!tn_is_contiguous(col));
  check_int(tn_get_i64(odd, 1), ==, 4);
  Tensor *empty = tn_copy(&m, none, DEV_CPU);
  need(empty);
  check_int(tn_count(empty), ==, 0);
  check(tn_same(empty, none));
  tn_unref(empty);
  tn_unref(col);
  tn_unref(none);
  tn_unref(row);
  tn_unref(odd);
  tn_unref(t);
  check(failing_clean(&f, &m));
}

static double through(Mem *m, DType dt, double x) {
  Tensor *t = tn_scalar_f64(m, DEV_CPU, dt, x);
  double y = tn_get_f64(t, 0);
  tn_unref(t);
  return y;
}

static int64_t through_int(Mem *m, DType dt, int64_t x) {
  Tensor *t = tn_scalar_i64(m, DEV_CPU, dt, x);
  int64_t y = tn_get_i64(t, 0);
  tn_unref(t);
  return y;
}

static void t_scalars(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  check_double(through(&m, DT_BOOL, 2.5), ==, 1);
  check_double(through(&m, DT_BOOL, -0.0), ==, 0);
  check_double(through(&m, DT_U8, -3), ==, 0);
  check_double(through(&m, DT_U8, 255.9), ==, 255);
  check_double(through(&m, DT_I8, 300), ==, 127);
  check_double(through(&m, DT_I16, -2.9), ==, -2);
  check_double(through(&m, DT_I32, 1e300), ==, INT32_MAX);
  check_double(through(&m, DT_I64, -INFINITY), ==, (double)INT64_MIN);
  check_double(through(&m, DT_I64, NAN), ==, 0);
  check_double(through(&m, DT_F16, 1.0 + 0x1p-11 + 0x1p-40), ==, 1.0 + 0x1p-10); /* one rounding */
  check_double(through(&m, DT_BF16, 1.0 + 0x1p-8 + 0x1p-40), ==, 1.0 + 0x1p-7);
  check_double(through(&m, DT_F16, 1e6), ==, INFINITY);
  check_double(through(&m, DT_F32, 0.1), ==, (double)0.1f);
  check_double(through(&m, DT_F64, 0.1), ==, 0.1);
  check(isnan(through(&m, DT_F16, NAN)));
  check_int(through_int(&m, DT_U8, 300), ==, 44);
  check_int(through_int(&m, DT_I8, 200), ==, -56);
  check_int(through_int(&m, DT_I64, INT64_MIN + 1), ==, INT64_MIN + 1);
  check_int(through_int(&m, DT_I32, (int64_t)1 << 32 | 5), ==, 5);
  check_int(through_int(&m, DT_BOOL, 256), ==, 1);
  check_int(through_int(&m, DT_F32, (1 << 24) + 1), ==, 1 << 24);
  check_int(through_int(&m, DT_F64, ((int64_t)1 << 53) + 1), ==, (int64_t)1 << 53);
  check_int(through_int(&m, DT_F16, 2049), ==, 2048);
  Tensor *t = tn_scalar_f64(&m, DEV_CPU, DT_F32, NAN);
  need(t);
  check_int(t->rank, ==, 0);
  check_int(tn_get_i64(t, 0), ==, 0);
  tn_unref(t);
  check(failing_clean(&f, &m));
}

static Tensor *bits(Mem *m, DType dt, uint64_t u) {
  Tensor *t = tn_new(m, DEV_CPU, dt, 0, NULL);
  memcpy(tn_data(t), &u, dt_size(dt));
  return t;
}

static void same_if(Mem *m, DType dt, uint64_t a, uint64_t b, bool same) {
  Tensor *x = bits(m, dt, a), *y = bits(m, dt, b);
  check_msg(tn_same(x, y) == same, "%s %llx %llx", dtype_info[dt].name, (unsigned long long)a,
            (unsigned long long)b);
  tn_unref(x);
  tn_unref(y);
}

static void t_same(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  same_if(&m, DT_F32, 0x7fc00000, 0xffc00001, true);
  same_if(&m, DT_F32, 0, 0x80000000, false); /* -0 is another value */
  same_if(&m, DT_F32, 0x7f800000, 0x7f800001, false);
  same_if(&m, DT_F16, 0x7c01, 0xfe00, true);
  same_if(&m, DT_F16, 0x7c00, 0x7c01, false);
  same_if(&m, DT_BF16, 0x7f81, 0xffff, true);
  same_if(&m, DT_BF16, 0x7f80, 0xff80, false);
  same_if(&m, DT_F64, 0x7ff0000000000001, 0xfff8000000000000, true);
  same_if(&m, DT_I64, 0x7ff0000000000001, 0xfff8000000000000, false);
  Tensor *a = tn_zeros(&m, DEV_CPU, DT_I32, 2, (int64_t[]){2, 3});
  Tensor *b = tn_zeros(&m, DEV_CPU, DT_I32, 2, (int64_t[]){3, 2});
  Tensor *c = tn_zeros(&m, DEV_CPU, DT_F32, 2, (int64_t[]){2, 3});
  Tensor *d = tn_zeros(&m, DEV_CPU, DT_I32, 1, (int64_t[]){6});
  need(a && b && c && d);
  check(!tn_same(a, b));
  check(!tn_same(a, c));
  check(!tn_same(a, d));
  check(tn_same(a, a));
  tn_unref(a);
  tn_unref(b);
  tn_unref(c);
  tn_unref(d);
  check(failing_clean(&f, &m));
}

static void count_done(void *ud) {
  ++*(int *)ud;
}

static void t_foreign(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  float data[6] = {0, 1, 2, 3, 4, 5};
  int done = 0;
  Tensor *t = tn_foreign(&m, DT_F32, 2, (int64_t[]){2, 3}, data, count_done, &done);
  need(t);
  check_ptr(tn_data(t), ==, data);
  check_size(m.data_live[DEV_CPU], ==, 0);
  Tensor *v = tn_view(&m, t, 1, (int64_t[]){2}, (int64_t[]){3}, 1);
  need(v);
  tn_unref(t);
  check_int(done, ==, 0);
  check_int(tn_get_i64(v, 1), ==, 4);
  tn_unref(v);
  check_int(done, ==, 1);
  t = tn_foreign(&m, DT_F32, 1, (int64_t[]){6}, data, NULL, NULL);
  tn_unref(t);
  check(failing_clean(&f, &m));
}

/* Each maker once; NULL from the nth allocation on. */
static bool make_all(Mem *m, int *done) {
  float data[6] = {0};
  int64_t dim[2] = {2, 3}, stride[2] = {0, 1};
  Tensor *a = tn_zeros(m, DEV_CPU, DT_F32, 2, dim), *v = NULL, *c = NULL, *f = NULL, *s = NULL;
  if (a) v = tn_view(m, a, 2, dim, stride, 0);
  if (v) c = tn_contiguous(m, v);
  if (c) s = tn_scalar_i64(m, DEV_SIM, DT_I16, 5);
  if (s) f = tn_foreign(m, DT_F32, 2, dim, data, count_done, done);
  bool ok = f;
  tn_unref(v);
  tn_unref(a);
  tn_unref(f);
  tn_unref(s);
  tn_unref(c);
  return ok;
}

static void t_nomem(void) {
  int64_t nth = 1;
  for (;; nth++) {
    Failing f;
    Mem m;
    int done = 0;
    failing_init(&f, &m, nth);
    bool ok = make_all(&m, &done);
    check(failing_clean(&f, &m));
    check_int(done, ==, ok); /* who failed to take the bytes does not give them back */
    if (ok || nth > 100) break;
  }
  check_int(nth, ==, 13);
}

int main(void) {
  TEST(t_dtypes(), "dtypes have their names, sizes and classes");
  TEST(t_product(), "a product of dims fits or is refused");
  TEST(t_limits(), "sizes, ranks and devices out of range give no tensor");
  TEST(t_views(DT_I64), "views of 8-byte elements are copied in row-major order");
  TEST(t_views(DT_F32), "views of 4-byte elements are copied in row-major order");
  TEST(t_views(DT_I16), "views of 2-byte elements are copied in row-major order");
  TEST(t_views(DT_U8), "views of bytes are copied in row-major order");
  TEST(t_contiguous(), "row-major is seen whatever the strides of small axes");
  TEST(t_scalars(), "scalars are cast as the language casts");
  TEST(t_same(), "equality is of bits, but NaNs are equal");
  TEST(t_foreign(), "foreign bytes are given back once, at the end");
  TEST(t_nomem(), "each allocation can fail and nothing leaks");
  return tap_done();
}
