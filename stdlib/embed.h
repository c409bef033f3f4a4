/* The modules of the standard library, embedded at build time from stdlib/NAME.ckl. */
#ifndef STDLIB_EMBED_H
#define STDLIB_EMBED_H

#include <stddef.h>

typedef struct {
  const char *name; /* "nn" for stdlib/nn.ckl */
  const char *text; /* the file, with a zero byte after it */
  size_t size;      /* bytes of text, the zero byte apart */
} StdFile;

/* All of them in the order of stdlib/Makefile.inc; the last entry has name NULL. */
extern const StdFile std_files[];

#endif
