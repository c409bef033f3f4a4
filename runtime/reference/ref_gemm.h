/* The contraction kernel of ref_dot and the convolutions: C[i, j] = sum over k of A[i, k] B[k, j].
 *
 * The bits of one element of C depend on its row of A, its column of B and k alone (rule 105):
 * chains of fma over blocks of 4,096, each from +0 in ascending k, the results of the blocks added
 * left to right. Everything else (tiles, panels, vector width) is free and chosen for speed. */
#ifndef CKL_RUNTIME_REFERENCE_REF_GEMM_H
#define CKL_RUNTIME_REFERENCE_REF_GEMM_H

#include "runtime/reference/ref_impl.h"

/* Computing types. GEMM_BF16 computes in f32 with operands that are bf16 values. It takes k in
 * pairs, the odd one first (1, 0, 3, 2, ..), a missing last one being +0, and flushes subnormal
 * operands and results of every fma and addition to a zero of their sign (tininess after rounding).
 * GEMM_INT is wrapping 64-bit. */
typedef enum GemmKind { GEMM_F32, GEMM_BF16, GEMM_F64, GEMM_INT } GemmKind;

enum { GEMM_KC = 256 }; /* the most k that one call of a packing function packs */

typedef struct Gemm Gemm;
/* Fills out[(k - k0) * width + (i - i0)] for `lines` rows of A (columns of B) from i0 and `kc` <=
 * GEMM_KC values of k from k0, in the computing type; the places from `lines` to width are
 * zeroed. */
typedef void GemmPack(const Gemm *g, int64_t i0, int64_t lines, int64_t k0, int64_t kc,
                      int64_t width, void *out);
/* Takes a finished row i of C from column j0 on: n results in the computing type (f32 for bf16). */
typedef void GemmStore(const Gemm *g, int64_t i, int64_t j0, int64_t n, const void *row);

struct Gemm {
  GemmKind kind;
  int64_t m, n, k;
  GemmPack *pack_a, *pack_b;
  GemmStore *store;
  void *ud;
  bool shared; /* pack_a may run on all threads of r->pool, for different rows */
};

/* Work memory kept between calls; {0} at first. */
typedef struct GemmRoom {
  void *data;
  size_t bytes;
} GemmRoom;

/* Makes the room for all products of at most m, n, k; then gemm_run allocates nothing, and has no
 * threads. */
bool gemm_reserve(Ref *r, GemmRoom *room, GemmKind kind, int64_t m, int64_t n, int64_t k);
/* False with r->err filled when out of memory or interrupted. */
bool gemm_run(Ref *r, GemmRoom *room, const Gemm *g);
void gemm_close(Ref *r, GemmRoom *room);

/* Operands of contractions (rule 20): `compute` 0 none, 1 bf16, 2 f16, 3 tf32. gemm_kind is the
 * kind in which operands of `dt` are computed. */
GemmKind gemm_kind(DType dt, int compute);
/* Loads n operands, `step` bytes apart, rounded once to the operand format, in the kind's type.
 * tf32 rounds to 10 explicit bits of mantissa, nearest even (a subnormal to a multiple of
 * 2^-136). */
void gemm_load(GemmKind kind, DType dt, int compute, const void *src, int64_t step, int64_t n,
               void *out);
/* Stores n results to consecutive elements of dt, each rounded once. */
void gemm_put(GemmKind kind, DType dt, const void *acc, int64_t n, void *dst);
/* Packs lines that are `line` bytes apart with elements `by` bytes apart (both of them strides). */
void gemm_pack(GemmKind kind, DType dt, int compute, const char *src, int64_t line, int64_t by,
               int64_t lines, int64_t kc, int64_t width, void *out);

/* acc + x * y and x + y as in GEMM_BF16, for one element, in any mode of the CPU. */
float gemm_bf16_fma(float x, float y, float acc);
float gemm_bf16_add(float x, float y);

/* Sets the CPU to flush subnormals as in GEMM_BF16, if it can; returns the control word to restore
 * later. */
unsigned gemm_flush_on(void);
void gemm_flush_off(unsigned word);
/* 1 plain C, 2 AVX2 and FMA, 3 AVX-512F, too; at most r->level if that is 1 to 3. */
int gemm_level(const Ref *r);

#endif
