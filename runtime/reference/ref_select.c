/* Selection: take, put, gather, scatter, nonzero.
 *
 * Every index is checked before anything is read with it; a negative one never counts from the end.
 * If several indices are bad, the first in row-major order of the index tensors is reported, and
 * among index tensors that are bad at the same place the one of the lowest axis. Writes happen one
 * after the other in row-major order of the updates, so the last write to a place wins; adding
 * rounds to the dtype each time, as the elementwise add does. */
#include "runtime/reference/ref_impl.h"

#include <string.h>

static void *bad_index(Ref *r, const Tensor *idx, int64_t at, int64_t i, int axis, int64_t n) {
  return ref_fail_at(r, REF_INDEX, idx->rank, idx->dim, at, " of the index",
                     "index %lld is out of range for axis %d of size %lld", (long long)i, axis,
                     (long long)n);
}

static void *not_i64(Ref *r, DType dt) {
  return ref_fail(r, REF_VALUE, "an index has to be i64, not %s", dtype_info[dt].name);
}

/* Computes the places that the index tensors name (in elements, within the axes axis .. axis + k -
 * 1, with dims `dim` and strides `stride`): a scratch block of tn_count(idx[0]) numbers, or NULL
 * with r->err filled. */
static int64_t *places(Ref *r, int axis, int k, Tensor *const *idx, const int64_t *dim,
                       const int64_t *stride) {
  int64_t total = tn_count(idx[0]);
  Walk w[CKL_MAX_RANK];
  int64_t buf[CHUNK];
  for (int a = 0; a < k; a++) {
    if (idx[a]->dtype != DT_I64) return not_i64(r, idx[a]->dtype);
    ref_walk(&w[a], idx[a]);
  }
  if (total > INT64_MAX / 8) return ref_nomem(r);
  int64_t *place = ref_scratch(r, (size_t)total * 8);
  if (!place) return NULL;
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK, bad = n;
    int bad_axis = 0;
    int64_t bad_value = 0;
    bool stop = ref_stopped(r);
    for (int a = 0; a < k && !stop; a++) {
      /* One buffer serves all walks, so a repeated scalar is filled in each time. */
      w[a].filled = false;
      const int64_t *p = ref_next(&w[a], n, buf);
      int64_t size = dim[axis + a], by = stride[axis + a];
      for (int64_t i = 0; i < n; i++) {
        if (p[i] < 0 || p[i] >= size) {
          if (i < bad) {
            bad = i;
            bad_axis = axis + a;
            bad_value = p[i];
          }
          break;
        }
        place[at + i] = (a ? place[at + i] : 0) + p[i] * by;
      }
    }
    if (bad < n) bad_index(r, idx[0], at + bad, bad_value, bad_axis, dim[bad_axis]);
    if (stop || bad < n) {
      ref_scratch_free(r, place, (size_t)total * 8);
      return NULL;
    }
  }
  return place;
}

static inline void copy_one(void *dst, const void *src, int size) {
  switch (size) {
  case 1: memcpy(dst, src, 1); break;
  case 2: memcpy(dst, src, 2); break;
  case 4: memcpy(dst, src, 4); break;
  default: memcpy(dst, src, 8); break;
  }
}

/* dst[i] += src[i] for n elements, one after the other. */
static void add_run(DType dt, void *dst, const void *src, int64_t n) {
#define ADD(T, expr)                                                                               \
  for (int64_t i = 0; i < n; i++) {                                                                \
    T *p = (T *)dst + i, x = *p, y = ((const T *)src)[i];                                          \
    *p = (T)(expr);                                                                                \
  }                                                                                                \
  break
  switch (dt) {
  case DT_U8: ADD(uint8_t, (uint8_t)(x + y));
  case DT_I8: ADD(int8_t, (uint8_t)(x + y));
  case DT_I16: ADD(int16_t, (uint16_t)(x + y));
  case DT_I32: ADD(int32_t, (uint32_t)x + (uint32_t)y);
  case DT_I64: ADD(int64_t, (uint64_t)x + (uint64_t)y);
  case DT_F16: ADD(uint16_t, hf_f16_from_f32(hf_f32_from_f16(x) + hf_f32_from_f16(y)));
  case DT_BF16: ADD(uint16_t, hf_bf16_from_f32(hf_f32_from_bf16(x) + hf_f32_from_bf16(y)));
  case DT_F32: ADD(float, x + y);
  case DT_F64: ADD(double, x + y);
  default: break;
  }
#undef ADD
}

Tensor *ref_take(Ref *r, const Tensor *x, int axis, int k, Tensor *const *idx) {
  int64_t dim[CKL_MAX_RANK];
  int irank = idx[0]->rank, tail = x->rank - axis - k, rank = axis + irank + tail;
  int size = (int)dt_size(x->dtype);
  if (rank > CKL_MAX_RANK) return ref_fail(r, REF_VALUE, "rank %d is over %d", rank, CKL_MAX_RANK);
  memcpy(dim, x->dim, (size_t)axis * 8);
  memcpy(dim + axis, idx[0]->dim, (size_t)irank * 8);
  memcpy(dim + axis + irank, x->dim + axis + k, (size_t)tail * 8);
  int64_t *place = places(r, axis, k, idx, x->dim, x->stride);
  if (!place) return NULL;
  int64_t m = tn_count(idx[0]);
  const int64_t *tdim = x->dim + axis + k, *tstride = x->stride + axis + k;
  int64_t inner = tn_product(tail, tdim), outer = tn_product(axis, x->dim);
  Tensor *out = ref_new(r, x->store->dev, x->dtype, rank, dim);
  if (out && tn_count(out) > 0) {
    char *dst = tn_data(out);
    const char *src = tn_data(x);
    int64_t outer_at[CKL_MAX_RANK] = {0};
    Walk line;
    ref_walk_part(&line, src, size, tail, tdim, tstride);
    bool flat = line.rank == 1;
    int64_t since = 0;
    for (int64_t b = 0; b < outer && out; b++) {
      for (int64_t i = 0; i < m; i++) {
        const char *from = src + place[i] * size;
        if (inner == 1)
          copy_one(dst, from, size);
        else if (flat && inner <= 65536)
          ref_copy_in(dst, from, line.step[0], inner, size);
        else if (!ref_copy_part(r, dst, from, size, tail, tdim, tstride)) {
          out = ref_drop(out);
          break;
        }
        dst += inner * size;
        since += inner + 4;
        if (since > 131072) {
          since = 0;
          if (ref_stopped(r)) {
            out = ref_drop(out);
            break;
          }
        }
      }
      for (int d = axis - 1; d >= 0; d--) {
        src += x->stride[d] * size;
        if (++outer_at[d] < x->dim[d]) break;
        src -= x->stride[d] * x->dim[d] * size;
        outer_at[d] = 0;
      }
    }
  }
  ref_scratch_free(r, place, (size_t)m * 8);
  return out;
}

/* A row-major copy of x to write in; x itself where nobody reads it again. */
static Tensor *fresh(Ref *r, const Tensor *x) {
  if (r->last && tn_is_contiguous(x)) return tn_ref((Tensor *)x);
  Tensor *out = ref_new(r, x->store->dev, x->dtype, x->rank, x->dim);
  if (!out) return NULL;
  if (!ref_copy_part(r, tn_data(out), tn_data(x), (int)dt_size(x->dtype), x->rank, x->dim,
                     x->stride)) {
    return ref_drop(out);
  }
  return out;
}

Tensor *ref_put(Ref *r, const Tensor *x, const Tensor *upd, int axis, int k, Tensor *const *idx,
                bool add) {
  int64_t stride[CKL_MAX_RANK], m = tn_count(idx[0]);
  int tail = x->rank - axis - k, size = (int)dt_size(x->dtype);
  DType dt = x->dtype;
  if (add && dt == DT_BOOL) return ref_fail(r, REF_VALUE, "put_add is not defined for bool");
  ref_row_major(x->rank, x->dim, stride);
  int64_t *place = places(r, axis, k, idx, x->dim, stride);
  if (!place) return NULL;
  int64_t inner = tn_product(tail, x->dim + axis + k), outer = tn_product(axis, x->dim);
  Tensor *out = fresh(r, x);
  if (out && outer > 0 && inner > 0 && m > 0) {
    char *base = tn_data(out);
    int64_t row = tn_product(x->rank - axis, x->dim + axis), since = 0;
    Walk w;
    Buf buf;
    ref_walk(&w, upd);
    for (int64_t b = 0; b < outer && out; b++, base += row * size) {
      for (int64_t i = 0; i < m && out; i++) {
        char *dst = base + place[i] * size;
        for (int64_t at = 0; at < inner; at += CHUNK) {
          int64_t n = inner - at < CHUNK ? inner - at : CHUNK;
          const char *p = ref_next(&w, n, &buf);
          if (add)
            add_run(dt, dst + at * size, p, n);
          else if (n == 1)
            copy_one(dst + at * size, p, size);
          else
            memcpy(dst + at * size, p, (size_t)(n * size));
          since += n + 4;
        }
        if (since > 131072) {
          since = 0;
          if (ref_stopped(r)) out = ref_drop(out);
        }
      }
    }
  }
  ref_scratch_free(r, place, (size_t)m * 8);
  return out;
}

bool ref_put_in(Ref *r, Tensor *x, const Tensor *upd, int k, Tensor *const *idx, bool add) {
  int64_t m = tn_count(idx[0]);
  int tail = x->rank - k, size = (int)dt_size(x->dtype);
  DType dt = x->dtype;
  if (add && dt == DT_BOOL) return ref_fail(r, REF_VALUE, "put_add is not defined for bool");
  int64_t *place = places(r, 0, k, idx, x->dim, x->stride);
  if (!place) return false;
  const int64_t *dim = x->dim + k, *stride = x->stride + k;
  int64_t inner = tn_product(tail, dim), at[CKL_MAX_RANK] = {0};
  Walk w;
  Buf buf;
  ref_walk(&w, upd);
  for (int64_t i = 0; i < m && inner == 1; i += CHUNK) { /* one element at each place */
    int64_t n = m - i < CHUNK ? m - i : CHUNK;
    const char *p = ref_next(&w, n, &buf);
    for (int64_t j = 0; j < n; j++, p += size) {
      char *dst = (char *)tn_data(x) + place[i + j] * size;
      if (add)
        add_run(dt, dst, p, 1);
      else
        copy_one(dst, p, size);
    }
  }
  int64_t run = tail && stride[tail - 1] == 1 ? dim[tail - 1] : 1, left = inner / (run ? run : 1);
  int outer = run == 1 ? tail : tail - 1;
  for (int64_t i = 0; i < m && inner > 1; i++) {
    char *dst = (char *)tn_data(x) + place[i] * size;
    for (int64_t j = 0; j < left; j++) {
      for (int64_t c = 0; c < run; c += CHUNK) {
        int64_t n = run - c < CHUNK ? run - c : CHUNK;
        const char *p = ref_next(&w, n, &buf);
        if (add)
          add_run(dt, dst + c * size, p, n);
        else
          memcpy(dst + c * size, p, (size_t)(n * size));
      }
      for (int d = outer - 1; d >= 0; d--) {
        dst += stride[d] * size;
        if (++at[d] < dim[d]) break;
        dst -= stride[d] * dim[d] * size;
        at[d] = 0;
      }
    }
  }
  ref_scratch_free(r, place, (size_t)m * 8);
  return true;
}

/* gather and scatter walk the index in row-major order, run by innermost run. A step along an axis
 * of the index is a step along the same axis of the tensor that is read or written, except along
 * `axis`, where the value of the index is the position. */
Tensor *ref_gather(Ref *r, const Tensor *x, const Tensor *idx, int axis) {
  if (idx->dtype != DT_I64) return not_i64(r, idx->dtype);
  if (idx->rank == 0) return ref_fail(r, REF_VALUE, "gather needs an axis");
  Tensor *out = ref_new(r, x->store->dev, x->dtype, idx->rank, idx->dim);
  if (!out) return NULL;
  int64_t total = tn_count(out), stride[CKL_MAX_RANK], since = 0, done = 0;
  if (total == 0) return out;
  int size = (int)dt_size(x->dtype), last = idx->rank - 1;
  memcpy(stride, x->stride, sizeof stride);
  int64_t by = stride[axis] * size, n = x->dim[axis];
  stride[axis] = 0;
  const char *from = tn_data(x), *at = tn_data(idx);
  char *dst = tn_data(out);
  int64_t place[CKL_MAX_RANK] = {0};
  int64_t len = idx->dim[last], si = idx->stride[last] * 8, sx = stride[last] * size;
  for (;;) {
    for (int64_t i = 0; i < len; i++) {
      int64_t v = *(const int64_t *)(at + i * si);
      if (v < 0 || v >= n) {
        bad_index(r, idx, done + i, v, axis, n);
        return ref_drop(out);
      }
      copy_one(dst, from + i * sx + v * by, size);
      dst += size;
      if (++since > 131072) {
        since = 0;
        if (ref_stopped(r)) return ref_drop(out);
      }
    }
    done += len;
    since += 8;
    int d = last;
    while (--d >= 0) {
      from += stride[d] * size;
      at += idx->stride[d] * 8;
      if (++place[d] < idx->dim[d]) break;
      from -= stride[d] * idx->dim[d] * size;
      at -= idx->stride[d] * idx->dim[d] * 8;
      place[d] = 0;
    }
    if (d < 0) return out;
  }
}

Tensor *ref_scatter(Ref *r, const Tensor *x, const Tensor *idx, const Tensor *upd, int axis,
                    bool add) {
  DType dt = x->dtype;
  if (idx->dtype != DT_I64) return not_i64(r, idx->dtype);
  if (idx->rank == 0) return ref_fail(r, REF_VALUE, "scatter needs an axis");
  if (add && dt == DT_BOOL) return ref_fail(r, REF_VALUE, "scatter_add is not defined for bool");
  Tensor *out = fresh(r, x);
  if (!out) return NULL;
  int64_t total = tn_count(idx), stride[CKL_MAX_RANK], since = 0, done = 0;
  if (total == 0) return out;
  int size = (int)dt_size(dt), last = idx->rank - 1;
  ref_row_major(x->rank, x->dim, stride);
  int64_t by = stride[axis] * size, n = x->dim[axis];
  stride[axis] = 0;
  char *to = tn_data(out);
  const char *at = tn_data(idx), *from = tn_data(upd);
  int64_t place[CKL_MAX_RANK] = {0};
  int64_t len = idx->dim[last], si = idx->stride[last] * 8, sx = stride[last] * size;
  int64_t su = upd->stride[last] * size;
  for (;;) {
    for (int64_t i = 0; i < len; i++) {
      int64_t v = *(const int64_t *)(at + i * si);
      if (v < 0 || v >= n) {
        bad_index(r, idx, done + i, v, axis, n);
        return ref_drop(out);
      }
      char *dst = to + i * sx + v * by;
      if (add)
        add_run(dt, dst, from + i * su, 1);
      else
        copy_one(dst, from + i * su, size);
      if (++since > 131072) {
        since = 0;
        if (ref_stopped(r)) return ref_drop(out);
      }
    }
    done += len;
    since += 8;
    int d = last;
    while (--d >= 0) {
      to += stride[d] * size;
      at += idx->stride[d] * 8;
      from += upd->stride[d] * size;
      if (++place[d] < idx->dim[d]) break;
      to -= stride[d] * idx->dim[d] * size;
      at -= idx->stride[d] * idx->dim[d] * 8;
      from -= upd->stride[d] * idx->dim[d] * size;
      place[d] = 0;
    }
    if (d < 0) return out;
  }
}

/* ---- nonzero */

static int64_t count_true(const uint8_t *t, int64_t n) {
  int64_t c = 0;
  for (int64_t i = 0; i < n; i++) c += t[i];
  return c;
}

/* t[i] = whether element i is not 0 (NaN is not). */
static void truth(DType dt, const void *p, int64_t n, uint8_t *t) {
#define IS(T, expr)                                                                                \
  {                                                                                                \
    const T *x = p;                                                                                \
    for (int64_t i = 0; i < n; i++) t[i] = (expr) != 0;                                            \
    break;                                                                                         \
  }
  switch (dt) {
  case DT_F64: IS(double, x[i])
  case DT_F32: IS(float, x[i])
  case DT_F16:
  case DT_BF16: IS(uint16_t, x[i] & 0x7fff)
  case DT_I64: IS(int64_t, x[i])
  case DT_I32: IS(int32_t, x[i])
  case DT_I16: IS(int16_t, x[i])
  default: IS(uint8_t, x[i])
  }
#undef IS
}

bool ref_nonzero(Ref *r, const Tensor *x, int64_t most, Tensor **index, Tensor **count) {
  int64_t total = tn_count(x), found = 0, flat = 0, place[CKL_MAX_RANK] = {0};
  Walk w;
  Buf buf;
  uint8_t t[CHUNK];
  uint16_t hit[CHUNK];
  *index = *count = NULL;
  ref_walk(&w, x);
  for (int64_t at = 0; at < total; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) return false;
    truth(x->dtype, ref_next(&w, n, &buf), n, t);
    found += count_true(t, n);
  }
  int64_t rows = most < 0 ? found : most, left = rows < found ? rows : found;
  Tensor *pos = tn_zeros(r->mem, x->store->dev, DT_I64, 2, (int64_t[]){rows, x->rank});
  Tensor *num = tn_scalar_i64(r->mem, x->store->dev, DT_I64, found);
  if (!pos || !num) {
    tn_unref(pos);
    tn_unref(num);
    ref_nomem(r);
    return false;
  }
  int64_t *p = tn_data(pos);
  ref_walk(&w, x);
  for (int64_t at = 0; at < total && left > 0; at += CHUNK) {
    int64_t n = total - at < CHUNK ? total - at : CHUNK;
    if (ref_stopped(r)) {
      tn_unref(pos);
      tn_unref(num);
      return false;
    }
    truth(x->dtype, ref_next(&w, n, &buf), n, t);
    int64_t hits = 0; /* without a branch for each element, which data decides */
    for (int64_t i = 0; i < n; i++) {
      hit[hits] = (uint16_t)i;
      hits += t[i];
    }
    if (hits > left) hits = left;
    left -= hits;
    int last = x->rank - 1;
    if (last <= 0)
      for (int64_t i = 0; i < hits && !last; i++) *p++ = at + hit[i];
    else
      for (int64_t i = 0; i < hits; i++, p += x->rank) {
        place[last] += at + hit[i] - flat;
        flat = at + hit[i];
        for (int d = last; d > 0 && place[d] >= x->dim[d]; d--) {
          place[d - 1] += place[d] / x->dim[d];
          place[d] %= x->dim[d];
        }
        memcpy(p, place, (size_t)x->rank * 8);
      }
  }
  *index = pos;
  *count = num;
  return true;
}
