/* Dtypes, counted storage, tensors as typed views of it.
 *
 * In: dims and strides that the caller has checked for meaning; sizes are checked here.
 * Invariant: a tensor holds one reference to its storage; the storage's bytes are in the account of
 * its device from tn_new to the last tn_unref (foreign bytes are in no account). */
#include "runtime/tensor.h"

#include <string.h>

#include "runtime/half.h"

const DTypeInfo dtype_info[DT_COUNT] = {
    [DT_BOOL] = {"bool", 1, false, false}, [DT_U8] = {"u8", 1, false, true},
    [DT_I8] = {"i8", 1, false, true},      [DT_I16] = {"i16", 2, false, true},
    [DT_I32] = {"i32", 4, false, true},    [DT_I64] = {"i64", 8, false, true},
    [DT_F16] = {"f16", 2, true, false},    [DT_BF16] = {"bf16", 2, true, false},
    [DT_F32] = {"f32", 4, true, false},    [DT_F64] = {"f64", 8, true, false},
};

int dtype_find(const char *name) {
  char a = name[0];
  bool sized =
      (a == 'u' || a == 'i' || a == 'f') && name[1] >= '1' && name[1] <= '8'; /* most are not */
  for (int i = 0; i < DT_COUNT && (sized || a == 'b'); i++)
    if (strcmp(dtype_info[i].name, name) == 0) return i;
  return -1;
}

bool dt_holds(DType d, int64_t x) {
  switch (d) {
  case DT_BOOL: return false;
  case DT_U8: return x >= 0 && x <= UINT8_MAX;
  case DT_I8: return x >= INT8_MIN && x <= INT8_MAX;
  case DT_I16: return x >= INT16_MIN && x <= INT16_MAX;
  case DT_I32: return x >= INT32_MIN && x <= INT32_MAX;
  default: return true;
  }
}

int64_t tn_product(int rank, const int64_t *dim) {
  int64_t n = 1;
  bool zero = false, over = false;
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 0) return -1;
    if (dim[i] == 0) zero = true;
    if (!zero && dim[i] > INT64_MAX / n) over = true;
    if (!zero && !over) n *= dim[i];
  }
  return zero ? 0 : over ? -1 : n; /* with a dim of 0 the product is 0, whatever the others are */
}

/* ---- making */

static void nothing(void *ud) {
  (void)ud;
}

static void release_storage(Storage *s) {
  if (--s->rc > 0) return;
  if (s->foreign_free) {
    s->foreign_free(s->foreign_ud);
  } else if (s->data) {
    mem_data_free(s->mem, s->dev, s->data, s->bytes);
  }
  mem_free(s->mem, s, sizeof *s);
}

/* Makes a row-major tensor over `store`. Takes over the reference even if it fails. */
static Tensor *make(Mem *m, Storage *store, DType dt, int rank, const int64_t *dim) {
  Tensor *t = mem_try(m, NULL, 0, sizeof *t);
  if (!t) {
    release_storage(store);
    return NULL;
  }
  memset(t, 0, sizeof *t);
  t->rc = 1;
  t->store = store;
  t->dtype = dt;
  t->rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    t->dim[i] = dim[i];
    t->stride[i] = stride;
    /* beside a dim of 0 the strides are never used; keep them from overflowing */
    if (dim[i] > 1 && stride <= INT64_MAX / dim[i]) stride *= dim[i];
  }
  return t;
}

/* Bytes of a tensor, or -1. */
static int64_t byte_size(DType dt, int rank, const int64_t *dim) {
  if (rank < 0 || rank > CKL_MAX_RANK) return -1;
  int64_t n = tn_product(rank, dim), each = (int64_t)dt_size(dt);
  return n < 0 || n > INT64_MAX / each ? -1 : n * each;
}

static Storage *new_storage(Mem *m, Device dev, int64_t bytes) {
  if (bytes < 0 || (uint64_t)bytes > SIZE_MAX) return NULL;
  Storage *s = mem_try(m, NULL, 0, sizeof *s);
  if (!s) return NULL;
  *s = (Storage){.rc = 1, .mem = m, .bytes = (size_t)bytes, .dev = dev};
  s->data = mem_data_try(m, dev, s->bytes);
  if (s->data) return s;
  mem_free(m, s, sizeof *s);
  return NULL;
}

Tensor *tn_new(Mem *m, Device dev, DType dt, int rank, const int64_t *dim) {
  Storage *s = new_storage(m, dev, byte_size(dt, rank, dim));
  return s ? make(m, s, dt, rank, dim) : NULL;
}

Tensor *tn_zeros(Mem *m, Device dev, DType dt, int rank, const int64_t *dim) {
  Tensor *t = tn_new(m, dev, dt, rank, dim);
  if (t && t->store->bytes) memset(t->store->data, 0, t->store->bytes);
  return t;
}

Tensor *tn_view(Mem *m, const Tensor *t, int rank, const int64_t *dim, const int64_t *stride,
                int64_t offset) {
  if (rank < 0 || rank > CKL_MAX_RANK) return NULL;
  t->store->rc++;
  Tensor *v = make(m, t->store, t->dtype, rank, dim);
  if (!v) return NULL;
  v->offset = offset;
  for (int i = 0; i < rank; i++) v->stride[i] = stride[i];
  return v;
}

/* On failure `done` is not called: the caller still owns the bytes. */
Tensor *tn_foreign(Mem *m, DType dt, int rank, const int64_t *dim, void *data,
                   void (*done)(void *ud), void *ud) {
  int64_t bytes = byte_size(dt, rank, dim);
  if (bytes < 0) return NULL;
  Storage *s = mem_try(m, NULL, 0, sizeof *s);
  if (!s) return NULL;
  *s = (Storage){.rc = 1, .mem = m, .bytes = (size_t)bytes, .dev = DEV_CPU, .data = data};
  s->foreign_free = nothing;
  Tensor *t = make(m, s, dt, rank, dim);
  if (!t) return NULL;
  s->foreign_free = done ? done : nothing;
  s->foreign_ud = ud;
  return t;
}

void tn_unref(Tensor *t) {
  if (!t || --t->rc > 0) return;
  Mem *m = t->store->mem;
  release_storage(t->store);
  mem_free(m, t, sizeof *t);
}

/* ---- walking and copying */

typedef struct Refs {
  Mem *mem;
  size_t bytes, n;
  Tensor *t[];
} Refs;

static void refs_release(void *obj) {
  Refs *r = obj;
  for (size_t i = 0; i < r->n; i++) tn_unref(r->t[i]);
  mem_free(r->mem, r, r->bytes);
}

Tensor **tn_refs(Mem *m, size_t n, size_t extra) {
  size_t bytes = sizeof(Refs) + n * sizeof(Tensor *) + extra;
  Refs *r = mem_need(m, NULL, 0, bytes);
  memset(r, 0, bytes);
  *r = (Refs){m, bytes, n};
  mem_pool_add(m, r, refs_release);
  return r->t;
}

int64_t tn_count(const Tensor *t) {
  return tn_product(t->rank, t->dim);
}

int64_t tn_bytes(const Tensor *t) {
  return tn_count(t) * (int64_t)dt_size(t->dtype);
}

bool tn_is_contiguous(const Tensor *t) {
  int64_t stride = 1;
  for (int i = 0; i < t->rank; i++)
    if (t->dim[i] == 0) return true; /* before products of the other dims, which may overflow */
  for (int i = t->rank - 1; i >= 0; i--) {
    if (t->dim[i] != 1 && t->stride[i] != stride) return false;
    stride *= t->dim[i];
  }
  return true;
}

/* The place of element number i, in elements from the first. */
static int64_t place_of(const Tensor *t, int64_t i) {
  int64_t at = 0;
  for (int k = t->rank - 1; k >= 0; k--) {
    at += i % t->dim[k] * t->stride[k];
    i /= t->dim[k];
  }
  return at;
}

static void copy_strided(char *out, const char *in, int64_t n, int64_t step, size_t each) {
  if (step == 1) {
    memcpy(out, in, (size_t)n * each);
    return;
  }
  int64_t bytes = step * (int64_t)each;
  for (int64_t i = 0; i < n; i++, out += each, in += bytes) {
    switch (each) { /* constant sizes become single moves */
    case 1: *out = *in; break;
    case 2: memcpy(out, in, 2); break;
    case 4: memcpy(out, in, 4); break;
    default: memcpy(out, in, 8); break;
    }
  }
}

void tn_gather(const Tensor *t, int64_t first, int64_t n, void *out) {
  if (n <= 0) return;
  size_t each = dt_size(t->dtype);
  const char *data = tn_data(t);
  char *to = out;
  if (tn_is_contiguous(t)) {
    memcpy(to, data + (size_t)first * each, (size_t)n * each);
    return;
  }
  int64_t index[CKL_MAX_RANK] = {0}, row = t->dim[t->rank - 1], step = t->stride[t->rank - 1];
  int64_t rest = first;
  for (int k = t->rank - 1; k >= 0; k--) {
    index[k] = rest % t->dim[k];
    rest /= t->dim[k];
  }
  int64_t at = place_of(t, first);
  for (;;) {
    int last = t->rank - 1;
    int64_t here = row - index[last];
    if (here > n) here = n;
    copy_strided(to, data + at * (int64_t)each, here, step, each);
    to += (size_t)here * each;
    n -= here;
    if (!n) return;
    at -= index[last] * step;
    index[last] = 0;
    for (int k = last - 1; k >= 0; k--) {
      at += t->stride[k];
      if (++index[k] < t->dim[k]) break;
      at -= t->stride[k] * t->dim[k];
      index[k] = 0;
    }
  }
}

Tensor *tn_contiguous(Mem *m, Tensor *t) {
  return tn_is_contiguous(t) ? tn_ref(t) : tn_copy(m, t, t->store->dev);
}

Tensor *tn_copy(Mem *m, const Tensor *t, Device dev) {
  Tensor *c = tn_new(m, dev, t->dtype, t->rank, t->dim);
  if (c) tn_gather(t, 0, tn_count(t), c->store->data);
  return c;
}

/* ---- scalars */

typedef union Cell {
  uint8_t u8;
  int8_t i8;
  int16_t i16;
  uint16_t half;
  int32_t i32;
  int64_t i64;
  float f32;
  double f64;
} Cell;

static Cell cell_at(const Tensor *t, int64_t i) {
  Cell c = {.i64 = 0};
  size_t each = dt_size(t->dtype);
  memcpy(&c, (const char *)tn_data(t) + place_of(t, i) * (int64_t)each, each);
  return c;
}

double tn_get_f64(const Tensor *t, int64_t i) {
  Cell c = cell_at(t, i);
  switch (t->dtype) {
  case DT_BOOL: return c.u8 != 0;
  case DT_U8: return c.u8;
  case DT_I8: return c.i8;
  case DT_I16: return c.i16;
  case DT_I32: return c.i32;
  case DT_I64: return (double)c.i64;
  case DT_F16: return hf_f64_from_f16(c.half);
  case DT_BF16: return hf_f64_from_bf16(c.half);
  case DT_F32: return (double)c.f32;
  default: return c.f64;
  }
}

int64_t tn_get_i64(const Tensor *t, int64_t i) {
  if (dt_float(t->dtype)) return hf_i64_from_f64(tn_get_f64(t, i));
  return t->dtype == DT_I64 ? cell_at(t, i).i64 : (int64_t)tn_get_f64(t, i);
}

static Tensor *scalar(Mem *m, Device dev, DType dt, Cell c) {
  Tensor *t = tn_new(m, dev, dt, 0, NULL);
  if (t) memcpy(t->store->data, &c, dt_size(dt));
  return t;
}

/* Converts x by the casts of rule 15: floats round once, ints truncate and saturate, bool is
 * x != 0. */
Tensor *tn_scalar_f64(Mem *m, Device dev, DType dt, double x) {
  Cell c = {.i64 = 0};
  switch (dt) {
  case DT_BOOL: c.u8 = x != 0; break;
  case DT_U8: c.u8 = hf_u8_from_f64(x); break;
  case DT_I8: c.i8 = hf_i8_from_f64(x); break;
  case DT_I16: c.i16 = hf_i16_from_f64(x); break;
  case DT_I32: c.i32 = hf_i32_from_f64(x); break;
  case DT_I64: c.i64 = hf_i64_from_f64(x); break;
  case DT_F16: c.half = hf_f16_from_f64(x); break;
  case DT_BF16: c.half = hf_bf16_from_f64(x); break;
  case DT_F32: c.f32 = (float)x; break;
  default: c.f64 = x; break;
  }
  return scalar(m, dev, dt, c);
}

/* Converts x: narrower ints wrap; floats round once from all 64 bits. */
Tensor *tn_scalar_i64(Mem *m, Device dev, DType dt, int64_t x) {
  Cell c = {.i64 = 0};
  switch (dt) {
  case DT_BOOL: c.u8 = x != 0; break;
  case DT_U8: c.u8 = (uint8_t)x; break;
  case DT_I8: c.i8 = (int8_t)x; break;
  case DT_I16: c.i16 = (int16_t)x; break;
  case DT_I32: c.i32 = (int32_t)x; break;
  case DT_I64: c.i64 = x; break;
  case DT_F16: c.half = hf_f16_from_i64(x); break;
  case DT_BF16: c.half = hf_bf16_from_i64(x); break;
  case DT_F32: c.f32 = (float)x; break;
  default: c.f64 = (double)x; break;
  }
  return scalar(m, dev, dt, c);
}

/* ---- equality */

static bool is_nan(DType dt, Cell c) {
  switch (dt) {
  case DT_F16: return (c.half & 0x7fff) > 0x7c00;
  case DT_BF16: return (c.half & 0x7fff) > 0x7f80;
  case DT_F32: return c.f32 != c.f32;
  case DT_F64: return c.f64 != c.f64;
  default: return false;
  }
}

bool tn_same(const Tensor *a, const Tensor *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return false;
  int64_t n = tn_count(a);
  size_t each = dt_size(a->dtype);
  if (n && tn_is_contiguous(a) && tn_is_contiguous(b) &&
      memcmp(tn_data(a), tn_data(b), (size_t)n * each) == 0)
    return true;
  for (int64_t i = 0; i < n; i++) {
    Cell x = cell_at(a, i), y = cell_at(b, i);
    if (memcmp(&x, &y, each) != 0 && !(is_nan(a->dtype, x) && is_nan(b->dtype, y))) return false;
  }
  return true;
}
