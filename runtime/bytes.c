/* The bytes of files as tensors, and of tensors in files.
 *
 * Invariant: no more memory is asked for than the file has bytes. A mapped tensor has storage of
 * the host's kind, which nobody writes to, and unmaps its pages with its last reference. */
#include "runtime/bytes.h"

/* A tensor takes over such a block. */
typedef struct Block {
  Mem *mem;
  void *p;
  size_t n;
} Block;

static void free_read(void *ud) {
  Block *b = ud;
  mem_free(b->mem, b->p, b->n);
  mem_free(b->mem, b, sizeof *b);
}

static void free_mapped(void *ud) {
  Block *b = ud;
  file_unmap(b->p, b->n);
  mem_free(b->mem, b, sizeof *b);
}

/* The tensor over `data`, which lies in the block of n bytes at p. NULL: out of memory, and the
 * block stays the caller's. */
static Tensor *over(Mem *m, DType dt, int rank, const int64_t *dim, void *data, void *p, size_t n,
                    void (*done)(void *ud)) {
  Block *b = mem_try(m, NULL, 0, sizeof *b);
  Tensor *t = NULL;
  if (b) {
    *b = (Block){m, p, n};
    t = tn_foreign(m, dt, rank, dim, data, done, b);
    if (!t) mem_free(m, b, sizeof *b);
  }
  return t;
}

Tensor *bytes_mapped(Mem *m, const FileIn *in, uint64_t at, DType dt, int rank, const int64_t *dim,
                     Err *e) {
  void *base;
  size_t size;
  uint64_t n = (uint64_t)tn_product(rank, dim) * dt_size(dt);
  const void *data = file_in_map(in, at, n, &base, &size, e);
  if (!data) return NULL;
  Tensor *t = over(m, dt, rank, dim, (void *)data, base, size, free_mapped);
  if (t) return t;
  file_unmap(base, size);
  err_nomem(e, in->name);
  return NULL;
}

static Tensor *part(Mem *m, const FileIn *in, int64_t from, int64_t most, bool mapped, Err *e) {
  uint64_t at = (uint64_t)from;
  if (at > in->size) {
    err_set(e, "%s: has %llu bytes, none at %lld", in->name, (unsigned long long)in->size,
            (long long)from);
    return NULL;
  }
  uint64_t n = in->size - at;
  if (most >= 0 && (uint64_t)most < n) n = (uint64_t)most;
  int64_t dim[1] = {(int64_t)n};
  if (mapped && n) return bytes_mapped(m, in, at, DT_U8, 1, dim, e);
  Tensor *t = tn_new(m, DEV_CPU, DT_U8, 1, dim);
  if (!t) {
    err_nomem(e, in->name);
  } else if (!file_in_read(in, at, t->store->data, n, e)) {
    tn_unref(t);
    t = NULL;
  }
  return t;
}

/* All of a file of unknown size: its block becomes the tensor's. */
static Tensor *whole(Mem *m, const char *file, Err *e) {
  size_t n;
  char *p = file_read(m, file, &n, e);
  if (!p) return NULL;
  int64_t dim[1] = {(int64_t)n};
  Tensor *t = over(m, DT_U8, 1, dim, p, p, n + 1, free_read);
  if (t) return t;
  mem_free(m, p, n + 1);
  err_nomem(e, file);
  return NULL;
}

Tensor *bytes_read(Mem *m, const char *file, int64_t from, int64_t most, bool mapped, Err *e) {
  FileIn in;
  if (!from && most < 0 && !mapped) return whole(m, file, e);
  if (!file_in_open(&in, m, file, e)) return NULL;
  Tensor *t = part(m, &in, from, most, mapped, e);
  file_in_close(&in);
  return t;
}

bool bytes_to_file(void *file, const void *bytes, size_t n, Err *e) {
  return file_put(file, bytes, n, e);
}

bool bytes_each(const Tensor *t, BytesPut put, void *ud, Err *e) {
  size_t each = dt_size(t->dtype);
  int64_t n = tn_count(t);
  if (tn_is_contiguous(t)) return !n || put(ud, tn_data(t), (size_t)n * each, e);
  char chunk[16384];
  int64_t most = (int64_t)(sizeof chunk / each);
  for (int64_t i = 0; i < n; i += most) {
    int64_t here = n - i < most ? n - i : most;
    tn_gather(t, i, here, chunk);
    if (!put(ud, chunk, (size_t)here * each, e)) return false;
  }
  return true;
}
