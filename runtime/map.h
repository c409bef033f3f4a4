/* A table from 64-bit keys to numbers: names (by address), hashes, objects. What the keys stand for
 * stays where it is, mostly in an array that the numbers are places of.
 *
 * Nothing may depend on the order of entries: there is no way to walk them.
 */
#ifndef CKL_RUNTIME_MAP_H
#define CKL_RUNTIME_MAP_H

#include "runtime/mem.h"

typedef struct MapSlot {
  uint64_t key;
  size_t value; /* + 1; 0: free */
} MapSlot;

/* Empty without any room when all is zero but one of `mem` and `arena`. */
typedef struct Map {
  Mem *mem;
  Arena *arena;
  MapSlot *slot; /* open addressing, a power of two, at most half full */
  size_t cap, count;
} Map;

enum { MAP_NONE = -1 };

static inline uint64_t map_key(const void *p) { return (uint64_t)(uintptr_t)p; }

/* The number of this key, or MAP_NONE. */
ptrdiff_t map_get(const Map *m, uint64_t key);
/* Enters a key that is not there: MAP_NONE. Else the number that it has, which stays. Throws. */
ptrdiff_t map_add(Map *m, uint64_t key, size_t value);
void map_set(Map *m, uint64_t key, size_t value); /* whether it is there or not. Throws. */
void map_remove(Map *m, uint64_t key);            /* fine where it is not there */
void map_clear(Map *m);                           /* keeps the room */
void map_free(Map *m);                            /* of one with `mem` */

#endif
