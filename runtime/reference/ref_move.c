/* Movement: reshape, transpose, broadcast, slice (views where strides allow), pad, flip, concat,
 * iota.
 *
 * In: tensors of any strides. Out: the same elements in other places; nothing is computed, so every
 * bit pattern (NaN payloads too) is kept. A view is a new tensor on the same storage. */
#include "runtime/reference/ref_impl.h"

#include <string.h>

static Tensor *view(Ref *r, Tensor *x, int rank, const int64_t *dim, const int64_t *stride,
                    int64_t offset) {
  Tensor *t = tn_view(r->mem, x, rank, dim, stride, offset);
  return t ? t : ref_nomem(r);
}

/* Finds strides under which the elements of x, in row-major order, have the dims `dim`; false if
 * there are none. Walks both lists of dims from the right in groups of equal product: within a
 * group the axes of x have to be one axis in memory. */
static bool reshape_strides(const Tensor *x, int rank, const int64_t *dim, int64_t *stride) {
  int i = x->rank - 1, j = rank - 1;
  while (i >= 0 || j >= 0) {
    while (i >= 0 && x->dim[i] == 1) i--;
    while (j >= 0 && dim[j] == 1) stride[j--] = 1;
    if (i < 0 || j < 0) break;
    int64_t step = x->stride[i], have = x->dim[i], want = dim[j];
    stride[j] = step;
    while (have != want) {
      if (have < want) {
        do i--;
        while (i >= 0 && x->dim[i] == 1);
        if (i < 0 || x->stride[i] != step * have) return false;
        have *= x->dim[i];
      } else {
        do {
          if (--j < 0) return false;
          stride[j] = step * want;
        } while (dim[j] == 1);
        want *= dim[j];
      }
    }
    i--;
    j--;
  }
  return i < 0 && j < 0;
}

Tensor *ref_reshape(Ref *r, Tensor *x, int rank, const int64_t *dim) {
  int64_t stride[CKL_MAX_RANK];
  int64_t total = tn_count(x);
  if (tn_product(rank, dim) != total) {
    return ref_fail(r, REF_VALUE, "reshape of %lld elements to %lld", (long long)total,
                    (long long)tn_product(rank, dim));
  }
  if (total == 0 || tn_is_contiguous(x)) {
    ref_row_major(rank, dim, stride);
    return view(r, x, rank, dim, stride, x->offset);
  }
  if (reshape_strides(x, rank, dim, stride)) return view(r, x, rank, dim, stride, x->offset);
  Tensor *out = ref_new(r, x->store->dev, x->dtype, rank, dim);
  if (!out) return NULL;
  if (!ref_copy_part(r, tn_data(out), tn_data(x), (int)dt_size(x->dtype), x->rank, x->dim,
                     x->stride)) {
    return ref_drop(out);
  }
  return out;
}

Tensor *ref_transpose(Ref *r, Tensor *x, const int64_t *perm) {
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    dim[i] = x->dim[perm[i]];
    stride[i] = x->stride[perm[i]];
  }
  return view(r, x, x->rank, dim, stride, x->offset);
}

Tensor *ref_broadcast(Ref *r, Tensor *x, int rank, const int64_t *dim) {
  int64_t stride[CKL_MAX_RANK];
  int lead = rank - x->rank;
  if (tn_product(rank, dim) < 0) return ref_nomem(r);
  for (int i = 0; i < rank; i++) {
    bool stretched = i < lead || (x->dim[i - lead] == 1 && dim[i] != 1);
    stride[i] = stretched ? 0 : x->stride[i - lead];
  }
  return view(r, x, rank, dim, stride, x->offset);
}

Tensor *ref_slice(Ref *r, Tensor *x, const int64_t *start, const int64_t *len,
                  const int64_t *step) {
  int64_t stride[CKL_MAX_RANK], offset = x->offset;
  bool empty = false;
  for (int i = 0; i < x->rank; i++) {
    int64_t by = step[i], n = x->dim[i];
    /* With len > 0 the last element, start + (len - 1) * step, has to be below n. */
    if (start[i] < 0 || start[i] > n || len[i] < 0 || by < 1 ||
        (len[i] > 0 && (start[i] >= n || (len[i] - 1) > (n - 1 - start[i]) / by))) {
      if (by == 1) {
        return ref_fail(r, REF_INDEX,
                        "slice of %lld from %lld is out of range for axis %d of size %lld",
                        (long long)len[i], (long long)start[i], i, (long long)n);
      }
      return ref_fail(r, REF_INDEX,
                      "slice of %lld from %lld by %lld is out of range for axis %d of size %lld",
                      (long long)len[i], (long long)start[i], (long long)by, i, (long long)n);
    }
    if (len[i] == 0) empty = true;
    offset += start[i] * x->stride[i];
    stride[i] = x->stride[i] * by;
  }
  return view(r, x, x->rank, len, stride, empty ? x->offset : offset);
}

/* Copies x into the part of a row-major tensor that begins at `dst` and has the strides `to` (in
 * elements): line by line along the last axis. */
static bool place(Ref *r, char *dst, const int64_t *to, const Tensor *x) {
  int size = (int)dt_size(x->dtype), last = x->rank - 1;
  const char *src = tn_data(x);
  int64_t at[CKL_MAX_RANK] = {0}, since = 0;
  Buf line;
  if (tn_count(x) == 0) return true;
  if (last < 0) {
    memcpy(dst, src, (size_t)size);
    return true;
  }
  for (;;) {
    int64_t n = x->dim[last], ds = to[last] * size, ss = x->stride[last] * size;
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t k = n - i < CHUNK ? n - i : CHUNK;
      if (ds == size)
        ref_copy_in(dst + i * ds, src + i * ss, ss, k, size);
      else {
        ref_copy_in(&line, src + i * ss, ss, k, size);
        ref_copy_out(dst + i * ds, ds, &line, k, size);
      }
      since += k + 16;
      if (since > 131072) {
        if (ref_stopped(r)) return false;
        since = 0;
      }
    }
    int d = last;
    while (--d >= 0) {
      src += x->stride[d] * size;
      dst += to[d] * size;
      if (++at[d] < x->dim[d]) break;
      src -= x->stride[d] * x->dim[d] * size;
      dst -= to[d] * x->dim[d] * size;
      at[d] = 0;
    }
    if (d < 0) return true;
  }
}

Tensor *ref_pad(Ref *r, const Tensor *x, const int64_t *low, const int64_t *high,
                const int64_t *inner, const Tensor *value) {
  int64_t dim[CKL_MAX_RANK], to[CKL_MAX_RANK], first = 0;
  int size = (int)dt_size(x->dtype);
  for (int i = 0; i < x->rank; i++) {
    int64_t gap = inner ? inner[i] : 0, n = x->dim[i], gaps, sum;
    if (low[i] < 0 || high[i] < 0 || gap < 0) return ref_fail(r, REF_VALUE, "negative padding");
    if (__builtin_mul_overflow(n > 1 ? n - 1 : 0, gap, &gaps) ||
        __builtin_add_overflow(n, gaps, &sum) || __builtin_add_overflow(sum, low[i], &sum) ||
        __builtin_add_overflow(sum, high[i], &sum)) {
      return ref_nomem(r);
    }
    dim[i] = sum;
  }
  Tensor *out = ref_new(r, x->store->dev, x->dtype, x->rank, dim);
  if (!out) return NULL;
  ref_row_major(x->rank, dim, to);
  for (int i = 0; i < x->rank; i++) {
    first += low[i] * to[i];
    to[i] *= 1 + (inner ? inner[i] : 0);
  }
  char *dst = tn_data(out);
  int64_t total = tn_count(out), zero = 0;
  const void *one = value ? tn_data(value) : &zero;
  if (total != tn_count(x) && !ref_copy_part(r, dst, one, size, 1, &total, &(int64_t){0})) {
    return ref_drop(out);
  }
  if (!place(r, dst + first * size, to, x)) return ref_drop(out);
  return out;
}

Tensor *ref_flip(Ref *r, const Tensor *x, int naxes, const int64_t *axes) {
  int64_t stride[CKL_MAX_RANK], first = 0;
  int size = (int)dt_size(x->dtype);
  memcpy(stride, x->stride, sizeof stride);
  Tensor *out = ref_new(r, x->store->dev, x->dtype, x->rank, x->dim);
  if (!out) return NULL;
  if (tn_count(x) == 0) return out;
  for (int i = 0; i < naxes; i++) {
    int64_t a = axes[i];
    if (stride[a] != x->stride[a]) continue; /* named twice */
    first += (x->dim[a] - 1) * stride[a];
    stride[a] = -stride[a];
  }
  const char *src = (const char *)tn_data(x) + first * size;
  if (!ref_copy_part(r, tn_data(out), src, size, x->rank, x->dim, stride)) return ref_drop(out);
  return out;
}

Tensor *ref_concat(Ref *r, int n, Tensor *const *x, int axis) {
  int64_t dim[CKL_MAX_RANK], to[CKL_MAX_RANK], first = 0;
  int rank = x[0]->rank, size = (int)dt_size(x[0]->dtype);
  memcpy(dim, x[0]->dim, sizeof dim);
  for (int i = 1; i < n; i++)
    if (__builtin_add_overflow(dim[axis], x[i]->dim[axis], &dim[axis])) return ref_nomem(r);
  Tensor *out = ref_new(r, x[0]->store->dev, x[0]->dtype, rank, dim);
  if (!out) return NULL;
  ref_row_major(rank, dim, to);
  for (int i = 0; i < n; i++) {
    if (!place(r, (char *)tn_data(out) + first * size, to, x[i])) return ref_drop(out);
    first += x[i]->dim[axis] * to[axis];
  }
  return out;
}

/* 0, 1, .. n - 1, each rounded to the dtype; ints wrap. */
Tensor *ref_iota(Ref *r, Device dev, DType dt, int64_t n) {
  Tensor *out = ref_new(r, dev, dt, 1, &n);
  if (!out) return NULL;
  char *dst = tn_data(out);
  int64_t line[CHUNK];
  for (int64_t at = 0; at < n; at += CHUNK) {
    int64_t k = n - at < CHUNK ? n - at : CHUNK;
    if (ref_stopped(r)) return ref_drop(out);
    for (int64_t i = 0; i < k; i++) line[i] = at + i;
    for (int64_t i = 0; i < k && dt_float(dt); i++) {
      switch (dt) {
      case DT_F16: ((uint16_t *)dst)[i] = hf_f16_from_i64(line[i]); break;
      case DT_BF16: ((uint16_t *)dst)[i] = hf_bf16_from_i64(line[i]); break;
      case DT_F32: ((float *)dst)[i] = (float)line[i]; break;
      default: ((double *)dst)[i] = (double)line[i]; break;
      }
    }
    if (!dt_float(dt)) {
      if (dt == DT_BOOL)
        for (int64_t i = 0; i < k; i++) line[i] = line[i] != 0;
      ref_store_i64(dt, line, k, dst);
    }
    dst += k * (int64_t)dt_size(dt);
  }
  return out;
}
