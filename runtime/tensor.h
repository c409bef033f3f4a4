/* Dtypes, storage, tensors. A tensor is a typed view of a counted storage. */
#ifndef CKL_RUNTIME_TENSOR_H
#define CKL_RUNTIME_TENSOR_H

#include "runtime/mem.h"

/* Order: bool, unsigned, signed ints by width, floats by width. */
typedef enum DType {
  DT_BOOL,
  DT_U8,
  DT_I8,
  DT_I16,
  DT_I32,
  DT_I64,
  DT_F16,
  DT_BF16,
  DT_F32,
  DT_F64,
  DT_COUNT
} DType;

typedef struct DTypeInfo {
  const char *name;
  uint8_t size;
  bool is_float, is_int; /* bool is neither */
} DTypeInfo;
extern const DTypeInfo dtype_info[DT_COUNT];
int dtype_find(const char *name); /* -1 when unknown */
static inline bool dt_float(DType d) {
  return d >= DT_F16;
}
static inline bool dt_int(DType d) {
  return d >= DT_U8 && d <= DT_I64;
}
static inline size_t dt_size(DType d) {
  return dtype_info[d].size;
}
/* Whether an int number may become a d: floats round it, bools take none (rule 12). */
bool dt_holds(DType d, int64_t x);

enum { CKL_MAX_RANK = 12 };

typedef struct Storage {
  int64_t rc;
  Mem *mem;
  size_t bytes;
  Device dev;
  void (*foreign_free)(void *ud); /* set if the host owns the bytes */
  void *foreign_ud;
  void *data;
} Storage;

/* Strides are in elements; stride 0 repeats (broadcast). Element (i..) is at
 * data + dtype size * (offset + sum i_k * stride_k). A rank-0 tensor has one element. */
typedef struct Tensor {
  int64_t rc;
  Storage *store;
  DType dtype;
  int rank;
  int64_t offset;
  int64_t dim[CKL_MAX_RANK];
  int64_t stride[CKL_MAX_RANK];
} Tensor;

/* All makers return a new reference, NULL when out of memory or the byte size passes 2^63 - 1. */
Tensor *tn_new(Mem *m, Device dev, DType dt, int rank, const int64_t *dim); /* uninitialised */
Tensor *tn_zeros(Mem *m, Device dev, DType dt, int rank, const int64_t *dim);
Tensor *tn_view(Mem *m, const Tensor *t, int rank, const int64_t *dim, const int64_t *stride,
                int64_t offset); /* shares the storage */
Tensor *tn_foreign(Mem *m, DType dt, int rank, const int64_t *dim, void *data,
                   void (*done)(void *ud), void *ud);
Tensor *tn_contiguous(Mem *m, Tensor *t); /* t itself (one more reference) when it is row-major */
Tensor *tn_copy(Mem *m, const Tensor *t, Device dev); /* row-major, own storage */

static inline Tensor *tn_ref(Tensor *t) {
  t->rc++;
  return t;
}
void tn_unref(Tensor *t); /* NULL is fine */
/* n references on the pool, NULL at first, with zeros in `extra` bytes behind them. Throws. */
Tensor **tn_refs(Mem *m, size_t n, size_t extra);

int64_t tn_count(const Tensor *t); /* elements */
int64_t tn_bytes(const Tensor *t); /* of a dense copy */
bool tn_is_contiguous(const Tensor *t);
/* Address of the first element. */
static inline void *tn_data(const Tensor *t) {
  return (char *)t->store->data + dt_size(t->dtype) * (size_t)t->offset;
}
/* Product of dims, or -1 when it does not fit or a dim is negative. */
int64_t tn_product(int rank, const int64_t *dim);

/* Copies `n` elements in row-major order (of any strides), from element number `first` on, to
 * `out`, which holds n * dt_size bytes. */
void tn_gather(const Tensor *t, int64_t first, int64_t n, void *out);

/* Scalars: read element number i in row-major order (of any strides), or write the only element. */
double tn_get_f64(const Tensor *t, int64_t i);  /* floats and ints; bool gives 0/1 */
int64_t tn_get_i64(const Tensor *t, int64_t i); /* floats by rule 15 */
Tensor *tn_scalar_f64(Mem *m, Device dev, DType dt, double x);
Tensor *tn_scalar_i64(Mem *m, Device dev, DType dt, int64_t x);

/* Bitwise equality of dtype, dims and every element; NaNs are equal when both are NaN. */
bool tn_same(const Tensor *a, const Tensor *b);

#endif
