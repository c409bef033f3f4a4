/* The bytes of files as tensors of u8. */
#ifndef CKL_RUNTIME_BYTES_H
#define CKL_RUNTIME_BYTES_H

#include "runtime/file.h"
#include "runtime/tensor.h"

/* u8[n]: the bytes of a file from place `from` on, at most `most` of them (-1: all). `mapped`: the
 * tensor is the file itself, read as its elements are; nothing may shorten the file meanwhile.
 * NULL after err_set. */
Tensor *bytes_read(Mem *m, const char *file, int64_t from, int64_t most, bool mapped, Err *e);

/* A tensor over bytes of a file that are mapped. NULL after err_set. */
Tensor *bytes_mapped(Mem *m, const FileIn *in, uint64_t at, DType dt, int rank, const int64_t *dim,
                     Err *e);
/* Where bytes go. */
typedef bool (*BytesPut)(void *ud, const void *bytes, size_t n, Err *e);
bool bytes_to_file(void *file, const void *bytes, size_t n, Err *e); /* a FileOut */
/* Puts the elements of a tensor of the host, in row-major order, whatever its strides. */
bool bytes_each(const Tensor *t, BytesPut put, void *ud, Err *e);

#endif
