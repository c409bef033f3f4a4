/* A table from 64-bit keys to numbers: names (by address), hashes, objects. What the keys stand for
 * stays where it is, mostly in an array that the numbers are places of.
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

/* Empty without any room when all is zero but one of `mem` and `arena`. */
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
void table_remove(Table *m, uint64_t key); /* fine where it is not there */
void table_clear(Table *m);                /* keeps the room */
void table_free(Table *m);                 /* of one with `mem` */

#endif
