/* A file in which tensor data of device spill lies (runtime/mem.h). */
#ifndef CKL_RUNTIME_SPILL_H
#define CKL_RUNTIME_SPILL_H

#include "runtime/mem.h"

/* From now on data of m's device spill lies in the file, which must not be there yet, or be
 * empty; when none is alive. The file is gone when m is closed. False with another one, where it
 * cannot be made, or when out of memory. */
bool spill_open(Mem *m, const char *path);
void spill_close(Mem *m); /* by mem_close */
/* 64-byte aligned; NULL when the disk is full or out of memory. */
void *spill_try(Mem *m, size_t bytes);
void spill_free(Mem *m, void *ptr);

#endif
