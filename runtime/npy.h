/* The npy format of NumPy: one array in a file. */
#ifndef CKL_RUNTIME_NPY_H
#define CKL_RUNTIME_NPY_H

#include "runtime/bytes.h"

/* The array: versions 1 to 3, either order of axes, either order of bytes, the dtypes of ckl but
 * bf16, which NumPy has not. NULL after err_set. */
Tensor *npy_read(Mem *m, const FileIn *in, Err *e);
/* Writes a tensor of the host in version 1. bf16 is refused. False after err_set; `name` is for
 * messages. */
bool npy_put(const Tensor *t, const char *name, BytesPut put, void *ud, Err *e);
bool npy_write(Mem *m, const char *file, const Tensor *t, Err *e);

#endif
