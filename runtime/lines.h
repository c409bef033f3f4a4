/* Text files: as a whole, and line after line without keeping more than one. */
#ifndef CKL_RUNTIME_LINES_H
#define CKL_RUNTIME_LINES_H

#include "runtime/err.h"
#include "runtime/mem.h"

/* Whether n bytes are valid UTF-8; the error names line, column, place and byte. */
bool lines_valid(const char *name, const char *text, size_t n, Err *e);
/* A text file as file_read, whose bytes are valid UTF-8. */
char *lines_read(Mem *m, const char *path, size_t *n, Err *e);

/* The lines of a file, each without its end, `\n` or `\r\n`. A byte order mark at the start is no
 * part of the first one. */
typedef struct Lines Lines;
/* NULL after err_set. */
Lines *lines_open(Mem *m, const char *path, Err *e);
/* The next line, borrowed until the next call. 1; 0 behind the last one; -1 after err_set. */
int lines_next(Lines *l, const char **line, size_t *n, Err *e);
void lines_close(Lines *l);

#endif
