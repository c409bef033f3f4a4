/* Entries kept within a bound, found by key, and released in the order of last use.
 *
 * An entry is a member of the object that it keeps. Several may have one key, as different texts
 * may have one hash. The owner looks at lru_first and then follows `alike`, the latest use first.
 */
#ifndef CKL_RUNTIME_LRU_H
#define CKL_RUNTIME_LRU_H

#include "runtime/table.h"

typedef struct LruEntry LruEntry;
struct LruEntry {
  LruEntry *newer, *older;
  LruEntry *alike; /* the next of this key */
  uint64_t key;
  size_t bytes;
};

/* Empty when all is zero but by_key.mem. */
typedef struct Lru {
  Table by_key; /* addresses of the first of each key */
  LruEntry *newest, *oldest;
  size_t count, bytes;
} Lru;

void lru_add(Lru *l, LruEntry *e, uint64_t key, size_t bytes); /* as the newest. Throws. */
LruEntry *lru_first(const Lru *l, uint64_t key);               /* NULL: none */
void lru_use(Lru *l, LruEntry *e); /* is the newest from now on. Cannot throw. */
void lru_take(Lru *l, LruEntry *e);
void lru_close(Lru *l); /* of an empty one */

#endif
