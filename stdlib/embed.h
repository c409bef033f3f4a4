/* The files of the standard library, embedded at build time.
 *
 * stdlib/NAME.ckl is the module of that name. A file of stdlib/shelf/ is no module: its names need
 * no `use`, and it is read when a program first names one of them.
 */
#ifndef STDLIB_EMBED_H
#define STDLIB_EMBED_H

#include <stdbool.h>
#include <stddef.h>

typedef struct StdFile {
  const char *name; /* "nn" for stdlib/nn.ckl */
  const char *text; /* the file, with a zero byte after it */
  size_t size;      /* bytes of text, the zero byte apart */
  bool shelf;       /* a file of stdlib/shelf/ */
} StdFile;

typedef struct {
  const char *name;
  size_t file; /* index in std_files */
} StdName;

/* All of them in the order of stdlib/Makefile.inc; the last entry has name NULL. */
extern const StdFile std_files[];
/* The names of the shelf, each once. */
extern const StdName std_names[];
extern const size_t std_name_count;

#endif
