/* Random tensors: the numbers of runtime/rng.h in row-major order.
 *
 * A key is i64[2]: (key, counter). Element i of a result is a pure function of key, counter and i.
 *   f32, f64          as rng.h says
 *   normal f16, bf16  the f32 number, rounded once
 *   uniform f16, bf16 the f32 number cut (not rounded) to a multiple of 2^-11 and 2^-8, so that
 *                     1 is never reached
 *   fold_in(k, i)     (rng_fold(rng_fold(k.key, k.counter), i), 0): keys that differ in their
 *                     counter give unrelated keys too */
#include "runtime/reference/ref_impl.h"

#include <math.h>

#include "runtime/rng.h"

static void element_pair(const Tensor *t, uint64_t out[2]) {
  out[0] = (uint64_t)tn_get_i64(t, 0);
  out[1] = (uint64_t)tn_get_i64(t, 1);
}

static bool is_key(Ref *r, const Tensor *t, int64_t n) {
  if (t->dtype == DT_I64 && t->rank == 1 && t->dim[0] == n) return true;
  ref_fail(r, REF_VALUE, "a key is an i64[%lld]", (long long)n);
  return false;
}

Tensor *ref_random(Ref *r, Device dev, const Tensor *key, bool normal, DType dt, int rank,
                   const int64_t *dim) {
  uint64_t k[2];
  if (!is_key(r, key, 2)) return NULL;
  if (!dt_float(dt)) {
    return ref_fail(r, REF_VALUE, "random numbers are floats, not %s", dtype_info[dt].name);
  }
  element_pair(key, k);
  Tensor *out = ref_new(r, dev, dt, rank, dim);
  if (!out) return NULL;
  int64_t total = tn_count(out);
  char *to = tn_data(out);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    if (dt == DT_F64) {
      if (normal)
        rng_normal_f64(k[0], k[1], at, n, (double *)to);
      else
        rng_uniform_f64(k[0], k[1], at, n, (double *)to);
    } else {
      float buf[CHUNK];
      if (normal)
        rng_normal_f32(k[0], k[1], at, n, buf);
      else
        rng_uniform_f32(k[0], k[1], at, n, buf);
      if (!normal && dt_half(dt)) {
        float steps = dt == DT_F16 ? 0x1p11f : 0x1p8f;
        for (int64_t i = 0; i < n; i++) buf[i] = floorf(buf[i] * steps) / steps;
      }
      ref_store_f32(dt, buf, n, to);
    }
    to += n * (int64_t)dt_size(dt);
  }
  return out;
}

Tensor *ref_randint(Ref *r, Device dev, const Tensor *key, const Tensor *n, DType dt, int rank,
                    const int64_t *dim) {
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  uint64_t k[2];
  if (!is_key(r, key, 2)) return NULL;
  int64_t limit = tn_get_i64(n, 0);
  if (!dt_int(dt)) {
    return ref_fail(r, REF_VALUE, "random integers are ints, not %s", dtype_info[dt].name);
  }
  if (limit < 1) {
    return ref_fail(r, REF_VALUE, "random integers below %lld: there are none", (long long)limit);
  }
  if (limit - 1 > high[dt]) {
    return ref_fail(r, REF_VALUE, "random integers below %lld do not fit %s", (long long)limit,
                    dtype_info[dt].name);
  }
  element_pair(key, k);
  Tensor *out = ref_new(r, dev, dt, rank, dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), buf[CHUNK];
  char *to = tn_data(out);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t m = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    rng_randint(k[0], k[1], at, m, limit, buf);
    ref_store_i64(dt, buf, m, to);
    to += m * (int64_t)dt_size(dt);
  }
  return out;
}

Tensor *ref_fold_in(Ref *r, const Tensor *key, const Tensor *i) {
  uint64_t k[2];
  if (!is_key(r, key, 2)) return NULL;
  element_pair(key, k);
  Tensor *out = ref_new(r, key->store->dev, DT_I64, 1, (int64_t[]){2});
  if (!out) return NULL;
  int64_t *p = tn_data(out);
  p[0] = (int64_t)rng_fold(rng_fold(k[0], k[1]), (uint64_t)tn_get_i64(i, 0));
  p[1] = 0;
  return out;
}

/* Each number holds one 32-bit word; the upper halves of the operands are ignored. */
Tensor *ref_philox(Ref *r, const Tensor *counter, const Tensor *key) {
  uint32_t c[4], k[2], w[4];
  if (!is_key(r, counter, 4) || !is_key(r, key, 2)) return NULL;
  for (int i = 0; i < 4; i++) c[i] = (uint32_t)tn_get_i64(counter, i);
  for (int i = 0; i < 2; i++) k[i] = (uint32_t)tn_get_i64(key, i);
  Tensor *out = ref_new(r, counter->store->dev, DT_I64, 1, (int64_t[]){4});
  if (!out) return NULL;
  rng_philox4x32(c, k, w);
  for (int i = 0; i < 4; i++) ((int64_t *)tn_data(out))[i] = w[i];
  return out;
}
