/* Installed kernels: machine code made when ckl was built, one file per level.
 *
 * The file is mapped. A kernel is found by the hash of its text, and the whole text is compared. */
#ifndef CKL_JIT_ENGINE_ARCHIVE_H
#define CKL_JIT_ENGINE_ARCHIVE_H

#include "jit/engine/cache.h"

typedef struct Archive {
  const unsigned char *bytes; /* NULL: not open */
  size_t size;
} Archive;

/* Maps the file if it was made by the code generator `build` (NULL: by any) for this level. False
 * with `e`; e->text is "" when there is no such file. */
bool archive_open(Archive *r, const char *path, uint32_t level, const unsigned char *build, Err *e);
void archive_close(Archive *r);
/* Returns the object of a text, inside the mapping. NULL if there is none; with `e` if the file is
 * damaged at that place. */
const void *archive_find(const Archive *r, const char *text, size_t text_n, size_t *n, Err *e);

/* A kernel of an archive. */
typedef struct ArchiveItem {
  const char *text, *object;
  size_t text_n, object_n;
  uint64_t hash[2];
} ArchiveItem;
/* Writes an archive of `count` kernels (sorted by this call; equal texts are kept once) to an open
 * file. */
bool archive_write(int fd, uint32_t level, const unsigned char *build, ArchiveItem *items,
                   size_t count);

/* Identifies a code generator program: the linker's build id in the file, or a hash of size and
 * time where there is none. False with `e` when the file cannot be read. */
bool archive_build_id(const char *path, unsigned char build[CACHE_BUILD], Err *e);

#endif
