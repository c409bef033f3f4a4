/* Files: reading one as a whole, replacing one as a whole, and messages of failures.
 *
 * Texts name the file first: `digits.csv: no such file`. Nothing here keeps a file open after a
 * failure. Paths are the bytes the system takes, relative to the working folder. */
#ifndef CKL_RUNTIME_FILE_H
#define CKL_RUNTIME_FILE_H

#include "runtime/door.h"

/* The text of an errno of file calls in our messages. */
const char *file_why(int error);

/* Opens for reading, through the door of m. *size is its length in bytes, or -1 if that is not yet
 * known (a pipe). Returns the descriptor, or -1 after err_set (folders are refused here). */
int file_open(const Mem *m, const char *path, int64_t *size, Err *e);

/* All of a file: *n bytes and a NUL after them, in a block of *n + 1 bytes that the caller gives
 * back with mem_free(m, p, *n + 1). NULL after err_set. */
char *file_read(Mem *m, const char *path, size_t *n, Err *e);
/* Reads a file that door_reach has reached; messages call it `shown`. */
char *file_read_reached(Mem *m, const Reached *r, const char *shown, size_t *n, Err *e);

/* A file being written. It appears under its name, whole, at file_commit: the bytes go to another
 * file of the same folder first, reach the disk, and replace the old file (keeping its mode;
 * through a symbolic link). Before that it has no name, if the system supports this. Files that are
 * not plain (a pipe, /dev/null) are written directly. Writing and waiting end when m->stop is
 * set. */
typedef struct FileOut {
  Mem *mem;
  Reached at;
  char *path;                          /* the file to replace, from the folder at.dir */
  char *temp;                          /* NULL when written directly */
  size_t path_size, temp_size, folder; /* folder: bytes of temp before its name */
  bool nameless;                       /* the other file has no name before file_commit */
  int fd;
} FileOut;

bool file_create(FileOut *f, Mem *m, const char *path, Err *e);
bool file_put(FileOut *f, const void *bytes, size_t n, Err *e);
bool file_commit(FileOut *f, Err *e); /* ends it, also when it fails */
void file_cancel(FileOut *f);         /* the old file stays; fine after a failed file_create */

#endif
