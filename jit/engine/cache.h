/* Machine code on disk, from one run to the next.
 *
 * A folder of files, one per kernel, that belongs to the user alone. Any file may be damaged, old
 * or written by another process at this moment: what does not fit in every byte is removed and
 * counts as absent.
 */
#ifndef CKL_JIT_ENGINE_CACHE_H
#define CKL_JIT_ENGINE_CACHE_H

#include "runtime/err.h"
#include "runtime/mem.h"

enum { CACHE_BUILD = 20 }; /* bytes that identify a code generator */

typedef struct Cache Cache;

/* What code is found by: all of it is compared. */
typedef struct CacheKey {
  const char *text; /* loop text */
  size_t text_n;
  uint32_t level;
  unsigned char build[CACHE_BUILD];
} CacheKey;

/* Opens the folder, which is made where it is missing, its parents too. NULL with `e`: it cannot
 * be used, or belongs to somebody else, or is open to others. Throws when out of memory. `limit`:
 * bytes of all files; beyond it the files used longest ago go. */
Cache *cache_open(Mem *m, const char *folder, int64_t limit, Err *e);
void cache_close(Cache *c); /* NULL is fine */

/* The object kept for the key: *n bytes, to be given back by mem_free(m, p, *n). NULL where there
 * is none; then e->text is "" or says what was wrong with the file, which is gone now. */
void *cache_get(Cache *c, const CacheKey *key, size_t *n, Err *e);
/* Keeps an object. False with `e`: it could not be written; then nothing has changed. */
bool cache_put(Cache *c, const CacheKey *key, const void *object, size_t n, Err *e);

#endif
