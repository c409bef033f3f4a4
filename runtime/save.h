/* Saved tensors: the safetensors format, written and read.
 *
 * A file holds tensors by path and a map of strings (metadata). Layout: 8 bytes with the length of
 * a JSON header (little-endian), the header, the bytes of the tensors without gaps. Dtypes are
 * those of ckl; a number (rule 11) is saved as a rank-0 i64 or f64 tensor. Host devices only. */
#ifndef CKL_RUNTIME_SAVE_H
#define CKL_RUNTIME_SAVE_H

#include "runtime/err.h"
#include "runtime/tensor.h"

typedef struct SaveEntry {
  const char *path; /* UTF-8, not `__metadata__`; no path twice */
  Tensor *t;
} SaveEntry;

typedef struct SaveMeta {
  const char *key, *value; /* UTF-8 */
} SaveMeta;

/* Writes `file` as a whole or not at all (the old one stays on failure). Borrows everything; any
 * strides. Tensors lie in order of element size, wide ones first (so that all are aligned), else as
 * given: equal input makes equal bytes. False after err_set. */
bool save_write(Mem *m, const char *file, const SaveEntry *entries, size_t n, const SaveMeta *meta,
                size_t n_meta, Err *e);
/* The same on a thread of its own. It holds the tensors, so nobody may change them in place.
 * *later, if not NULL, is for save_later_end, which waits for it; else the file is written. */
typedef struct SaveLater SaveLater;
bool save_write_later(Mem *m, const char *file, const SaveEntry *entries, size_t n,
                      const SaveMeta *meta, size_t n_meta, SaveLater **later, Err *e);
bool save_later_end(SaveLater *later, Err *e);

/* A file that was read: entries sorted by their place, each a tensor of its own on DEV_CPU. */
typedef struct SaveFile {
  Arena text; /* holds the strings and arrays */
  SaveEntry *entries;
  size_t count;
  SaveMeta *meta; /* in the order of the file */
  size_t meta_count;
} SaveFile;

/* Reads `file` after checking all of it: lengths, JSON, dtypes, shapes, places without overlaps,
 * gaps or trailing bytes. `mapped`: the tensors stay in the file, where their places allow it, and
 * nothing may shorten it meanwhile. False after err_set; save_close is not needed then. */
bool save_read(Mem *m, const char *file, bool mapped, SaveFile *out, Err *e);
/* Reads a saved file from memory, with the checks of save_read; `name` stands for it in
 * messages. */
bool save_parse(Mem *m, const char *name, const void *bytes, size_t n, SaveFile *out, Err *e);
void save_close(SaveFile *f); /* gives back the tensors (one reference each) and all memory */

/* The tensor of that path (borrowed) or NULL; value of a metadata key or NULL. */
Tensor *save_find(const SaveFile *f, const char *path);
const char *save_meta(const SaveFile *f, const char *key);

#endif
