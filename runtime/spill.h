/* A file in which tensor data of device spill lies (runtime/mem.h). */
#ifndef CKL_RUNTIME_SPILL_H
#define CKL_RUNTIME_SPILL_H

#include "runtime/mem.h"

/* From now on data of m's device spill lies in the file, which is made or emptied; when none is
 * alive. The file is gone when m is closed. False with errno, or when out of memory. */
bool spill_open(Mem *m, const char *path);
void spill_close(Mem *m); /* by mem_close */
/* 64-byte aligned; NULL when the disk is full or out of memory. */
void *spill_try(Mem *m, size_t bytes);
void spill_free(Mem *m, void *ptr);

#endif
