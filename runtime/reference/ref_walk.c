/* The shared parts of the reference evaluator: see ref_impl.h. In: tensors of any strides; out:
 * contiguous runs of elements, in row-major order. */
#include "runtime/reference/ref_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- failing */

void *ref_fail(Ref *r, int kind, const char *fmt, ...) {
  va_list ap;
  r->err.kind = kind;
  va_start(ap, fmt);
  vsnprintf(r->err.text, sizeof r->err.text, fmt, ap);
  va_end(ap);
  return NULL;
}

void *ref_nomem(Ref *r) {
  return ref_fail(r, REF_NOMEM, "out of memory");
}

void *ref_fail_at(Ref *r, int kind, int rank, const int64_t *dim, int64_t at, const char *what,
                  const char *fmt, ...) {
  char *text = r->err.text;
  size_t cap = sizeof r->err.text, len;
  int64_t index[CKL_MAX_RANK];
  va_list ap;
  r->err.kind = kind;
  va_start(ap, fmt);
  vsnprintf(text, cap, fmt, ap);
  va_end(ap);
  if (rank == 0) return NULL;
  for (int i = rank - 1; i >= 0; i--) {
    index[i] = at % dim[i];
    at /= dim[i];
  }
  for (int i = 0; i < rank; i++) {
    len = strlen(text);
    snprintf(text + len, cap - len, i ? ", %lld" : " (element [%lld", (long long)index[i]);
  }
  len = strlen(text);
  snprintf(text + len, cap - len, "]%s)", what);
  return NULL;
}

void *ref_drop(Tensor *t) {
  tn_unref(t);
  return NULL;
}

Tensor *ref_new(Ref *r, Device dev, DType dt, int rank, const int64_t *dim) {
  Tensor *t = tn_new(r->mem, dev, dt, rank, dim);
  return t ? t : ref_nomem(r);
}

void *ref_scratch(Ref *r, size_t bytes) {
  void *p = mem_try(r->mem, NULL, 0, bytes ? bytes : 1);
  return p ? p : ref_nomem(r);
}

void ref_scratch_free(Ref *r, void *p, size_t bytes) {
  if (p) mem_free(r->mem, p, bytes ? bytes : 1);
}

/* ---- walking */

void ref_row_major(int rank, const int64_t *dim, int64_t *stride) {
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; i--) {
    stride[i] = step;
    if (dim[i] > 1 && step <= INT64_MAX / dim[i]) step *= dim[i];
  }
}

void ref_walk_part(Walk *w, const void *base, int size, int rank, const int64_t *dim,
                   const int64_t *stride) {
  w->base = w->run = base;
  w->size = size;
  w->filled = false;
  int n = 0;
  bool empty = false;
  for (int i = 0; i < rank; i++) empty |= dim[i] == 0;
  for (int i = 0; i < rank && !empty; i++) {
    if (dim[i] == 1) continue;
    if (n && w->step[n - 1] == stride[i] * size * dim[i]) {
      w->dim[n - 1] *= dim[i];
      w->step[n - 1] = stride[i] * size;
    } else {
      w->dim[n] = dim[i];
      w->step[n] = stride[i] * size;
      n++;
    }
  }
  if (n == 0) {
    w->dim[0] = empty ? 0 : 1;
    w->step[0] = size;
    n = 1;
  }
  w->rank = n;
  memset(w->at, 0, sizeof w->at);
}

void ref_walk(Walk *w, const Tensor *t) {
  ref_walk_part(w, tn_data(t), (int)dt_size(t->dtype), t->rank, t->dim, t->stride);
}

/* To the next innermost run. */
static void step_run(Walk *w) {
  int i = w->rank - 1;
  w->at[i] = 0;
  while (--i >= 0) {
    w->run += w->step[i];
    if (++w->at[i] < w->dim[i]) return;
    w->run -= w->step[i] * w->dim[i];
    w->at[i] = 0;
  }
}

const void *ref_next(Walk *w, int64_t n, void *buf) {
  int last = w->rank - 1;
  int64_t len = w->dim[last], step = w->step[last];
  if (last == 0 && step == 0) {
    if (!w->filled) ref_copy_in(buf, w->base, 0, len < CHUNK ? len : CHUNK, w->size);
    w->filled = true;
    return buf;
  }
  if (step == w->size && len - w->at[last] >= n) {
    const void *p = w->run + w->at[last] * step;
    w->at[last] += n;
    if (w->at[last] == len) step_run(w);
    return p;
  }
  char *out = buf;
  while (n > 0) {
    int64_t k = len - w->at[last];
    if (k > n) k = n;
    ref_copy_in(out, w->run + w->at[last] * step, step, k, w->size);
    out += k * w->size;
    n -= k;
    w->at[last] += k;
    if (w->at[last] == len) step_run(w);
  }
  return buf;
}

/* Elements are moved as bit patterns, independent of the computing type. */
typedef uint16_t __attribute__((may_alias)) Bits16;
typedef uint32_t __attribute__((may_alias)) Bits32;
typedef uint64_t __attribute__((may_alias)) Bits64;

#define GATHER(T)                                                                                  \
  do {                                                                                             \
    T *d = dst;                                                                                    \
    const char *s = src;                                                                           \
    if (step == 0) {                                                                               \
      T x = *(const T *)src;                                                                       \
      for (int64_t i = 0; i < n; i++) d[i] = x;                                                    \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) d[i] = *(const T *)(s + i * step);                           \
    }                                                                                              \
  } while (0)

void ref_copy_in(void *dst, const void *src, int64_t step, int64_t n, int size) {
  if (n <= 0) return;
  if (step == size) {
    memcpy(dst, src, (size_t)(n * size));
    return;
  }
  switch (size) {
  case 1: GATHER(uint8_t); break;
  case 2: GATHER(Bits16); break;
  case 4: GATHER(Bits32); break;
  default: GATHER(Bits64); break;
  }
}

#define SCATTER(T)                                                                                 \
  do {                                                                                             \
    char *d = dst;                                                                                 \
    const T *s = src;                                                                              \
    for (int64_t i = 0; i < n; i++) *(T *)(d + i * step) = s[i];                                   \
  } while (0)

void ref_copy_out(void *dst, int64_t step, const void *src, int64_t n, int size) {
  if (n <= 0) return;
  if (step == size) {
    memcpy(dst, src, (size_t)(n * size));
    return;
  }
  switch (size) {
  case 1: SCATTER(uint8_t); break;
  case 2: SCATTER(Bits16); break;
  case 4: SCATTER(Bits32); break;
  default: SCATTER(Bits64); break;
  }
}

bool ref_copy_part(Ref *r, void *dst, const void *base, int size, int rank, const int64_t *dim,
                   const int64_t *stride) {
  int64_t total = tn_product(rank, dim);
  if (total <= 0) return true;
  Walk w;
  ref_walk_part(&w, base, size, rank, dim, stride);
  int last = w.rank - 1;
  int64_t len = w.dim[last], since = 0;
  char *out = dst;
  /* A long run is cut, so that an interrupt is noticed. */
  while (total > 0) {
    int64_t k = len - w.at[last];
    if (k > 65536) k = 65536;
    ref_copy_in(out, w.run + w.at[last] * w.step[last], w.step[last], k, size);
    out += k * size;
    total -= k;
    since += k + 16;
    w.at[last] += k;
    if (w.at[last] == len) step_run(&w);
    if (since > 131072) {
      if (ref_stopped(r)) return false;
      since = 0;
    }
  }
  return true;
}

/* ---- computing types */

#define LOAD(OUT, T, CONV)                                                                         \
  do {                                                                                             \
    const char *s = src;                                                                           \
    if (step == (int64_t)sizeof(T)) {                                                              \
      const T *p = src;                                                                            \
      for (int64_t i = 0; i < n; i++) out[i] = (OUT)CONV(p[i]);                                    \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) out[i] = (OUT)CONV(*(const T *)(s + i * step));              \
    }                                                                                              \
  } while (0)
#define AS_IS(x) (x)
#define TRUTH(x) ((x) != 0)

/* Converts f16 by the CPU's own instructions, if it has them: they round in the same way. */
#if defined(__x86_64__)
static __attribute__((target("avx,f16c"))) void f16_in(const uint16_t *x, int64_t n, float *y) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
  }
  for (; i < n; i++) y[i] = hf_f32_from_f16(x[i]);
}
static __attribute__((target("avx,f16c"))) void f16_out(const float *x, int64_t n, uint16_t *y) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128((__m128i *)(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; i++) y[i] = hf_f16_from_f32(x[i]);
}
/* Every CPU with AVX2 has these instructions; not every compiler can ask for them by name. */
static bool has_f16c(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2");
}
#else
static void f16_in(const uint16_t *x, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i++) y[i] = hf_f32_from_f16(x[i]);
}
static void f16_out(const float *x, int64_t n, uint16_t *y) {
  for (int64_t i = 0; i < n; i++) y[i] = hf_f16_from_f32(x[i]);
}
static bool has_f16c(void) {
  return false;
}
#endif

void ref_load_f32(DType dt, const void *src, int64_t step, int64_t n, float *out) {
  switch (dt) {
  case DT_F16:
    if (n >= 8 && step == 2 && has_f16c())
      f16_in(src, n, out);
    else
      LOAD(float, uint16_t, hf_f32_from_f16);
    break;
  case DT_BF16: LOAD(float, uint16_t, hf_f32_from_bf16); break;
  default: ref_copy_in(out, src, step, n, 4); break;
  }
}

void ref_load_f64(DType dt, const void *src, int64_t step, int64_t n, double *out) {
  switch (dt) {
  case DT_F16: LOAD(double, uint16_t, hf_f64_from_f16); break;
  case DT_BF16: LOAD(double, uint16_t, hf_f64_from_bf16); break;
  case DT_F32: LOAD(double, float, AS_IS); break;
  default: ref_copy_in(out, src, step, n, 8); break;
  }
}

void ref_load_i64(DType dt, const void *src, int64_t step, int64_t n, int64_t *out) {
  switch (dt) {
  case DT_BOOL: LOAD(int64_t, uint8_t, TRUTH); break;
  case DT_U8: LOAD(int64_t, uint8_t, AS_IS); break;
  case DT_I8: LOAD(int64_t, int8_t, AS_IS); break;
  case DT_I16: LOAD(int64_t, int16_t, AS_IS); break;
  case DT_I32: LOAD(int64_t, int32_t, AS_IS); break;
  default: ref_copy_in(out, src, step, n, 8); break;
  }
}

void ref_store_f32(DType dt, const float *x, int64_t n, void *dst) {
  if (dt == DT_F32) {
    if (dst != x) memcpy(dst, x, (size_t)n * 4);
    return;
  }
  uint16_t *d = dst;
  if (dt == DT_F16) {
    if (n >= 8 && has_f16c())
      f16_out(x, n, d);
    else
      for (int64_t i = 0; i < n; i++) d[i] = hf_f16_from_f32(x[i]);
  } else {
    for (int64_t i = 0; i < n; i++) d[i] = hf_bf16_from_f32(x[i]);
  }
}

#define STORE(T)                                                                                   \
  do {                                                                                             \
    T *d = dst;                                                                                    \
    for (int64_t i = 0; i < n; i++) d[i] = (T)x[i];                                                \
  } while (0)

void ref_store_i64(DType dt, const int64_t *x, int64_t n, void *dst) {
  switch (dt) {
  case DT_BOOL:
  case DT_U8: STORE(uint8_t); break;
  case DT_I8: STORE(int8_t); break;
  case DT_I16: STORE(int16_t); break;
  case DT_I32: STORE(int32_t); break;
  default:
    if (dst != (const void *)x) memcpy(dst, x, (size_t)n * 8);
    break;
  }
}
