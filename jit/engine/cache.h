/* Machine code on disk, from one run to the next.
 *
 * A folder of files, one per kernel, that belongs to the user alone. Any file may be damaged, old
 * or written by another process at this moment. A file that does not match in every byte is removed
 * and counts as absent.
 */
#ifndef CKL_JIT_ENGINE_CACHE_H
#define CKL_JIT_ENGINE_CACHE_H

#include "runtime/err.h"
#include "runtime/mem.h"

enum { CACHE_BUILD = 20 }; /* bytes that identify a code generator */

typedef struct Cache Cache;

/* The key of an object. All of it is compared. */
typedef struct CacheKey {
  const char *text; /* loop text */
  size_t text_n;
  uint32_t level;
  unsigned char build[CACHE_BUILD];
} CacheKey;

/* Opens the folder. Makes it, with its parents, if it is missing. NULL with `e` if it cannot be
 * used, belongs to another user, or is open to others. Throws when out of memory. When the
 * files have more than `limit` bytes, the least recently used ones are removed. */
Cache *cache_open(Mem *m, const char *folder, int64_t limit, Err *e);
void cache_close(Cache *c); /* NULL is fine */

/* Returns the object of the key: *n bytes, which the caller frees by mem_free(m, p, *n). NULL if
 * there is none; e->text is then "", or says why the file was refused and removed. */
void *cache_get(Cache *c, const CacheKey *key, size_t *n, Err *e);
/* Stores an object. False with `e` if it cannot be written; nothing has changed then. */
bool cache_put(Cache *c, const CacheKey *key, const void *object, size_t n, Err *e);

#endif
