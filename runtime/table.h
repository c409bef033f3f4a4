/* A table from 64-bit keys to numbers. Keys are names (by address), hashes or objects; the numbers
 * are mostly indices into an array of the owner.
 *
 * Nothing may depend on the order of entries: there is no way to walk them.
 */
#ifndef CKL_RUNTIME_TABLE_H
#define CKL_RUNTIME_TABLE_H

#include "runtime/mem.h"

typedef struct TableSlot {
  uint64_t key;
  size_t value; /* + 1; 0: free */
} TableSlot;

/* A table is empty, without memory, if everything but one of `mem` and `arena` is zero. */
typedef struct Table {
  Mem *mem;
  Arena *arena;
  TableSlot *slot; /* open addressing, a power of two, at most half full */
  size_t cap, count;
} Table;

enum { TABLE_NONE = -1 };

static inline uint64_t table_key(const void *p) {
  return (uint64_t)(uintptr_t)p;
}

/* The number of this key, or TABLE_NONE. */
ptrdiff_t table_get(const Table *m, uint64_t key);
/* Adds a key and returns TABLE_NONE; if the key exists, returns its number, which stays. Throws. */
ptrdiff_t table_add(Table *m, uint64_t key, size_t value);
/* Sets the number of a key, which may be new. Throws only if it is. */
void table_set(Table *m, uint64_t key, size_t value);
void table_remove(Table *m, uint64_t key); /* a missing key is fine */
void table_clear(Table *m);                /* keeps the memory */
void table_free(Table *m);                 /* for tables with `mem` */

#endif
