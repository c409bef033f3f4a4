/* Files: reading one, as a whole or at places, replacing one as a whole, and messages of failures.
 *
 * `-` is standard input to read, and standard output to write. Texts name the file first:
 * `digits.csv: no such file`. Nothing here keeps a file open after a failure. Paths are the bytes
 * the system takes, relative to the working folder. */
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

/* A file that is read at places. What is no plain file (a pipe, `-`) is read whole before. */
typedef struct FileIn {
  Mem *mem;
  const char *name;  /* for messages */
  const char *bytes; /* NULL: they are read from fd */
  int fd;
  uint64_t size;
  bool own; /* bytes is a block of size + 1 of mem */
} FileIn;

bool file_in_open(FileIn *f, Mem *m, const char *path, Err *e);
/* The same interface to bytes of the caller. */
FileIn file_in_memory(const char *name, const void *bytes, size_t n);
/* Reads n bytes from place `at` on, which have to be there. */
bool file_in_read(const FileIn *f, uint64_t at, void *to, uint64_t n, Err *e);
/* Maps n bytes from place `at` on, read-only. NULL after err_set; also if it is no plain file, or
 * n is 0. *base and *size are for file_unmap. */
const void *file_in_map(const FileIn *f, uint64_t at, uint64_t n, void **base, size_t *size,
                        Err *e);
void file_unmap(void *base, size_t size);
void file_in_close(FileIn *f);

/* Writes n bytes behind the end of a file, which is made if it is not there, in one write(2) if the
 * system takes them so. */
bool file_append(Mem *m, const char *path, const void *bytes, size_t n, Err *e);

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
  bool print;                          /* `-`: everything goes to the standard output */
  bool nameless;                       /* the other file has no name before file_commit */
  int fd;
} FileOut;

bool file_create(FileOut *f, Mem *m, const char *path, Err *e);
bool file_put(FileOut *f, const void *bytes, size_t n, Err *e);
bool file_commit(FileOut *f, Err *e); /* ends it, also when it fails */
void file_cancel(FileOut *f);         /* the old file stays; fine after a failed file_create */

/* Lets a thread of its own write by put(f, ud, e) and commit. NULL if there is no thread or memory
 * to be had, or f is no plain file: f is then as it was. What put reads must not change before
 * file_later_end, which waits for the thread and gives its answer. No interrupt stops it. */
typedef struct FileLater FileLater;
FileLater *file_later(FileOut *f, bool (*put)(FileOut *f, void *ud, Err *e), void *ud);
bool file_later_end(FileLater *later, Err *e);

#endif
