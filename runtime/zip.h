/* Zip archives: files in a file, packed by deflate or stored. */
#ifndef CKL_RUNTIME_ZIP_H
#define CKL_RUNTIME_ZIP_H

#include "runtime/file.h"

typedef struct ZipEntry {
  const char *name;          /* valid UTF-8 */
  uint64_t packed, size, at; /* bytes in the archive and unpacked; of its local header */
  uint32_t crc;
  int method;
} ZipEntry;

typedef struct Zip {
  FileIn *in; /* the caller's */
  Arena arena;
  ZipEntry *entry;
  size_t count;
} Zip;

/* Reads the directory of an archive. False after err_set; zip_close is not needed then. */
bool zip_open(Zip *z, Mem *m, FileIn *in, Err *e);
/* An entry unpacked, its sum compared: a block of size + 1 bytes, which the caller gives back. NULL
 * after err_set. */
char *zip_read(Zip *z, const ZipEntry *entry, Err *e);
void zip_close(Zip *z);

/* An archive being written. Its entries are stored as they are. */
typedef struct ZipOut {
  FileOut *file; /* the caller's */
  Arena arena;
  ZipEntry *entry;
  size_t count, cap;
  uint64_t at;
} ZipOut;

void zip_begin(ZipOut *z, Mem *m, FileOut *file);
/* What an entry holds: zip_sum is to get all of it before zip_entry, zip_put after it. */
typedef struct ZipSum {
  uint64_t size;
  uint32_t crc;
} ZipSum;
bool zip_sum(void *sum, const void *bytes, size_t n, Err *e);
bool zip_entry(ZipOut *z, const char *name, const ZipSum *sum, Err *e);
bool zip_put(void *z, const void *bytes, size_t n, Err *e);
bool zip_finish(ZipOut *z, Err *e);
void zip_end(ZipOut *z); /* gives back its memory */

#endif
