/* The file that holds tensor data of device spill (runtime/mem.h). */
#ifndef CKL_RUNTIME_SPILL_H
#define CKL_RUNTIME_SPILL_H

#include "runtime/mem.h"

/* From now on data of m's device spill is in the file. No such data may be alive. The file must be
 * new or empty; it is gone when m is closed. False for any other file, if the file cannot be made,
 * or when out of memory. */
bool spill_open(Mem *m, const char *path);
void spill_close(Mem *m); /* called by mem_close */
/* 64-byte aligned; NULL when the disk is full or out of memory. */
void *spill_try(Mem *m, size_t bytes);
void spill_free(Mem *m, void *ptr);

#endif
