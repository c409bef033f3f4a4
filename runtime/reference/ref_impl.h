/* Functions that the files of the reference evaluator share: failing, walking strided tensors,
 * converting.
 *
 * The idea of all of them: work in chunks of at most CHUNK elements in row-major order. A Walk
 * returns the next elements of a tensor of any strides as one contiguous run (the tensor's own
 * memory if it is contiguous, else a copy in a buffer that stays in the first-level cache), so that
 * every kernel is a loop over arrays that the compiler can vectorise. No kernel keeps state
 * elsewhere. */
#ifndef CKL_RUNTIME_REFERENCE_REF_IMPL_H
#define CKL_RUNTIME_REFERENCE_REF_IMPL_H

#include "runtime/half.h"
#include "runtime/reference/ref.h"

/* The loops define the bits: products and sums are not contracted, whatever the flags are. */
#if defined(__FAST_MATH__)
#error "the reference evaluator defines bits: it cannot be compiled with -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif

/* Buffers of chunks stand on the C stack, up to five of them: STACK_RESERVE holds that. */
enum { CHUNK = 512, LANES = 16, BLOCK = 4096 };

/* ---- failing: each fills r->err and returns NULL or false, so that `return ref_nomem(r)` works */

void *ref_fail(Ref *r, int kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void *ref_nomem(Ref *r);
/* The same with " (element [0, 3]WHAT)" appended, for element number `at` of a tensor of these
 * dims; nothing is appended for rank 0. */
void *ref_fail_at(Ref *r, int kind, int rank, const int64_t *dim, int64_t at, const char *what,
                  const char *fmt, ...) __attribute__((format(printf, 7, 8)));

/* Whether to stop: true once the session was interrupted, with r->err filled. A kernel calls it at
 * least every few 100,000 elementary steps. */
static inline bool ref_stopped(Ref *r) {
  if (!interrupt_asked(r->interrupt)) return false;
  ref_fail(r, REF_INTERRUPT, "interrupted");
  return true;
}

/* Releases a result after a failure: `return ref_drop(out)`. Returns NULL. */
void *ref_drop(Tensor *t);
/* An uninitialised result; NULL with r->err filled. */
Tensor *ref_new(Ref *r, Device dev, DType dt, int rank, const int64_t *dim);
/* Scratch bytes; NULL with r->err filled. `bytes` 0 returns a block, too. */
void *ref_scratch(Ref *r, size_t bytes);
void ref_scratch_free(Ref *r, void *p, size_t bytes);

/* Row-major strides, in elements (if a dim is 0 they are meaningless). */
void ref_row_major(int rank, const int64_t *dim, int64_t *stride);

/* ---- walking */

/* A buffer for one chunk of any dtype. */
typedef union Buf {
  float f32[CHUNK];
  double f64[CHUNK];
  int64_t i64[CHUNK];
  uint16_t u16[CHUNK];
  uint8_t u8[CHUNK];
} Buf;

/* A tensor's elements in row-major order. Neighbouring axes that are one axis in memory are joined
 * first, so a contiguous tensor is one axis of stride 1 and a repeated scalar one of stride 0. */
typedef struct Walk {
  const char *base, *run; /* element 0, and the start of the current innermost run */
  int rank, size;         /* size: bytes of an element */
  int64_t dim[CKL_MAX_RANK], step[CKL_MAX_RANK], at[CKL_MAX_RANK]; /* step: bytes */
  bool filled; /* a repeated scalar already fills the buffer */
} Walk;

void ref_walk(Walk *w, const Tensor *t);
/* The same for a part given by dims and strides (in elements) at `base`. */
void ref_walk_part(Walk *w, const void *base, int size, int rank, const int64_t *dim,
                   const int64_t *stride);
/* The next n <= CHUNK elements; `buf` (CHUNK elements, the same at every call of one walk) is used
 * if they are not contiguous. n is at most the number of elements left. */
const void *ref_next(Walk *w, int64_t n, void *buf);

/* Copy n elements that are `step` bytes apart to consecutive places, and back. */
void ref_copy_in(void *dst, const void *src, int64_t step, int64_t n, int size);
void ref_copy_out(void *dst, int64_t step, const void *src, int64_t n, int size);
/* Copies all elements of a strided part to consecutive places; false when interrupted. */
bool ref_copy_part(Ref *r, void *dst, const void *base, int size, int rank, const int64_t *dim,
                   const int64_t *stride);

/* ---- computing types: f16, bf16 compute in f32; every int in i64 (or its own) */

static inline bool dt_half(DType d) {
  return d == DT_F16 || d == DT_BF16;
}

/* Load n elements of dtype `dt`, `step` bytes apart, as f32, f64 or i64 (ints and bool; exact). */
void ref_load_f32(DType dt, const void *src, int64_t step, int64_t n, float *out);
void ref_load_f64(DType dt, const void *src, int64_t step, int64_t n, double *out);
void ref_load_i64(DType dt, const void *src, int64_t step, int64_t n, int64_t *out);
/* Store to consecutive elements of dtype `dt`: one rounding (f16, bf16 from f32), ints wrap. */
void ref_store_f32(DType dt, const float *x, int64_t n, void *dst);
void ref_store_i64(DType dt, const int64_t *x, int64_t n, void *dst);

#include "runtime/reference/ref_scalar.h"

/* z[i] = max(x[i], y[i]), and min, written with masks, since compilers do not vectorise the scalar
 * functions. z may be x. */
#define REF_EXTREME(name, T, I, L, CMP, BOTH, one)                                                 \
  static inline void name(int64_t n, const T *x, const T *y, T *z) {                               \
    typedef T Vec __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));                 \
    typedef I Mask __attribute__((vector_size(16)));                                               \
    int64_t i = 0;                                                                                 \
    for (; i + L <= n; i += L) {                                                                   \
      Vec a = *(const Vec *)(x + i), b = *(const Vec *)(y + i);                                    \
      Mask u = (Mask)a, v = (Mask)b, first = a CMP b, same = a == b, nan = a != a;                 \
      Mask m = (u & first) | (v & ~first);                                                         \
      m = (same & (u BOTH v)) | (~same & m);                                                       \
      m = (nan & u) | (~nan & m);                                                                  \
      *(Vec *)(z + i) = (Vec)m;                                                                    \
    }                                                                                              \
    for (; i < n; i++) z[i] = one(x[i], y[i]);                                                     \
  }
REF_EXTREME(ref_max_f32_n, float, int32_t, 4, >, &, ref_max_f32)
REF_EXTREME(ref_min_f32_n, float, int32_t, 4, <, |, ref_min_f32)
REF_EXTREME(ref_max_f64_n, double, int64_t, 2, >, &, ref_max_f64)
REF_EXTREME(ref_min_f64_n, double, int64_t, 2, <, |, ref_min_f64)

/* ---- the tree of rule 105: blocks combined by a balanced tree split at the largest power of two
 * below their number. Pushing block after block and merging as a binary counter carries makes it:
 * tree_carries is the number of topmost partial results that the new block (number `block`, from
 * 0) is merged with. The results that are left at the end are combined from the right. */
static inline int tree_carries(uint64_t block) {
  return __builtin_ctzll(~block);
}

#endif
