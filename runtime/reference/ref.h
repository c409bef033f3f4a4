/* The reference evaluator's kernels: plain loops that DEFINE the bits of every op (rules 103 to
 * 107).
 *
 * Inputs are borrowed and may have any strides; results are new row-major tensors on the inputs'
 * device (or views of an input, if the function says so). The caller checks shapes and dtypes. NULL
 * means failure: out of memory, interrupted, or a run-time error with its text in `e` (position =
 * first in row-major order). Compiled without contraction; f16/bf16 elementwise compute in f32 and
 * round.
 */
#ifndef CKL_RUNTIME_REFERENCE_REF_H
#define CKL_RUNTIME_REFERENCE_REF_H

#include "runtime/pool.h"
#include "runtime/tensor.h"

typedef struct RefErr {
  enum {
    REF_OK,
    REF_NOMEM,
    REF_INTERRUPT,
    REF_INDEX,
    REF_DIV_ZERO,
    REF_VALUE,
    REF_POSITIVE,
    REF_SINGULAR
  } kind;
  char text[200]; /* "index 7 is out of range for an axis of size 5 (at [0, 3])" */
} RefErr;

typedef struct Ref {
  Mem *mem;
  const Interrupt *interrupt; /* polled every few ms; may be NULL */
  RefErr err;
  /* 0: the fastest contraction kernels this CPU has; 1: plain C; 2: AVX2, 3: AVX-512 at most (for
   * tests: the bits are the same) */
  int level;
  Pool *pool; /* threads that long kernels share their work over; NULL: the caller does all */
  bool last;  /* nobody reads the first operand again: the result may be that tensor */
} Ref;

typedef enum RefRed { RR_SUM, RR_PROD, RR_MAX, RR_MIN, RR_ANY, RR_ALL } RefRed;

Tensor *ref_where(Ref *r, const Tensor *c, const Tensor *x, const Tensor *y);
Tensor *ref_cast(Ref *r, const Tensor *x, DType to);

/* Views where strides allow, else copies. */
Tensor *ref_reshape(Ref *r, Tensor *x, int rank, const int64_t *dim);
Tensor *ref_transpose(Ref *r, Tensor *x, const int64_t *perm);
Tensor *ref_broadcast(Ref *r, Tensor *x, int rank, const int64_t *dim);
Tensor *ref_slice(Ref *r, Tensor *x, const int64_t *start, const int64_t *len, const int64_t *step);
/* `value`: rank 0, of x's dtype; NULL = 0. */
Tensor *ref_pad(Ref *r, const Tensor *x, const int64_t *low, const int64_t *high,
                const int64_t *inner, const Tensor *value);
Tensor *ref_flip(Ref *r, const Tensor *x, int naxes, const int64_t *axes);
Tensor *ref_concat(Ref *r, int n, Tensor *const *x, int axis);

/* k index tensors (i64, one shape) for axes axis .. axis + k - 1; every index is checked. */
Tensor *ref_take(Ref *r, const Tensor *x, int axis, int k, Tensor *const *idx);
Tensor *ref_put(Ref *r, const Tensor *x, const Tensor *upd, int axis, int k, Tensor *const *idx,
                bool add);
/* The same for the leading axes, in x itself, a view of any strides. If it fails, x stays. */
bool ref_put_in(Ref *r, Tensor *x, const Tensor *upd, int k, Tensor *const *idx, bool add);
Tensor *ref_gather(Ref *r, const Tensor *x, const Tensor *idx, int axis);
Tensor *ref_scatter(Ref *r, const Tensor *x, const Tensor *idx, const Tensor *upd, int axis,
                    bool add);
bool ref_sort(Ref *r, const Tensor *x, int axis, bool descending, Tensor **values, Tensor **index);
bool ref_nonzero(Ref *r, const Tensor *x, int64_t most /* -1: all there are */, Tensor **index,
                 Tensor **count);

/* rule 105 */
Tensor *ref_reduce(Ref *r, RefRed f, const Tensor *x, int naxes, const int64_t *axes);
Tensor *ref_argreduce(Ref *r, bool max, const Tensor *x, int axis);
Tensor *ref_cumsum(Ref *r, const Tensor *x, int axis, bool reverse);
/* The largest (else smallest) element so far: of equals the first, NaN from the first one on. */
Tensor *ref_cumextreme(Ref *r, bool max, const Tensor *x, int axis, bool reverse);

/* ---- contractions. `compute`: 0 none, 1 bf16, 2 f16, 3 tf32 (rule 20). */
Tensor *ref_dot(Ref *r, const Tensor *x, const Tensor *y, int compute); /* [.., M, K] [.., K, N] */
Tensor *ref_inner(Ref *r, const Tensor *x, const Tensor *y, int compute); /* [B.., K] [B.., K] */
Tensor *ref_conv2d(Ref *r, const Tensor *x, const Tensor *w, const int64_t stride[2],
                   const int64_t pad[2], int compute);
Tensor *ref_conv2d_input(Ref *r, const Tensor *g, const Tensor *w, const int64_t x_dim[4],
                         const int64_t stride[2], const int64_t pad[2], int compute);
Tensor *ref_conv2d_weight(Ref *r, const Tensor *x, const Tensor *g, const int64_t w_dim[4],
                          const int64_t stride[2], const int64_t pad[2], int compute);

/* ---- factorizations of float matrices [B.., N, N] (ref_linalg.c) */
/* The lower triangle l of (x + x^T) / 2 = l l^T. */
Tensor *ref_cholesky(Ref *r, const Tensor *x);
/* The gradient, symmetric, of a matrix whose factor is l; that of l is the lower triangle of g. */
Tensor *ref_cholesky_grad(Ref *r, const Tensor *l, const Tensor *g);
/* x[perm] = l u: l below the diagonal, where it has ones, u above. `swaps`: how many exchanges of
 * rows make perm. `regular`: a singular matrix is an error, else u has a zero. */
bool ref_lu(Ref *r, const Tensor *x, bool regular, Tensor **lu, Tensor **perm, Tensor **swaps);
/* Eigenvalues of (x + x^T) / 2, ascending, and its orthonormal eigenvectors as columns, of each of
 * which the largest element is positive. `alone`: the values, whose last bits may differ, and no
 * vectors. */
bool ref_eigh(Ref *r, const Tensor *x, bool alone, Tensor **values, Tensor **vectors);
/* x [B.., M, N] = q rest, with K = min(M, N) orthonormal columns of q and an upper triangle `rest`
 * [B.., K, N] whose diagonal is not negative. */
bool ref_qr(Ref *r, const Tensor *x, Tensor **q, Tensor **rest);
/* Eigenvalues of x [B.., N, N], by their real, then by their imaginary parts, [B.., 2, N] with the
 * real parts first, and eigenvectors [B.., 2, N, N] as columns, of length 1, whose largest element
 * is real and positive. `alone`: as of ref_eigh. */
bool ref_eig(Ref *r, const Tensor *x, bool alone, Tensor **values, Tensor **vectors);
/* x [B.., M, N] = u diag(s) vt: singular values, descending, and orthonormal columns of u [M, K],
 * of each of which the largest element is positive, and rows of vt [K, N]; K = min(M, N), or M and
 * N with `full`; 0, so no vectors, with `alone`. */
bool ref_svd(Ref *r, const Tensor *x, bool full, bool alone, Tensor **u, Tensor **s, Tensor **vt);
/* The solution of a x = b for a triangle (lower, else upper; unit: with ones as its diagonal) and
 * b [B.., N, M]; the other triangle is not read. */
Tensor *ref_triangular(Ref *r, const Tensor *a, const Tensor *b, bool upper, bool unit);
/* The solution of a x = b (across: a^T x = b) by what ref_lu made of a. */
Tensor *ref_factor_solve(Ref *r, const Tensor *a, const Tensor *b);
Tensor *ref_solve(Ref *r, const Tensor *lu, const Tensor *perm, const Tensor *b, bool across);

Tensor *ref_iota(Ref *r, Device dev, DType dt, int64_t n);
/* key: i64[2] = (key, counter); runtime/rng.h defines the numbers. */
Tensor *ref_random(Ref *r, Device dev, const Tensor *key, bool normal, DType dt, int rank,
                   const int64_t *dim);
Tensor *ref_randint(Ref *r, Device dev, const Tensor *key, const Tensor *n, DType dt, int rank,
                    const int64_t *dim);
Tensor *ref_fold_in(Ref *r, const Tensor *key, const Tensor *i);
Tensor *ref_philox(Ref *r, const Tensor *counter, const Tensor *key);

#endif
