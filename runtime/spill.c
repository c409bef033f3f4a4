/* Tensor data in a file, mapped piece by piece.
 *
 * In: sizes. Out: addresses of shared mappings, which the system writes out when memory is short.
 * The used parts of the file are a list in order of offset. A block takes the first gap that holds
 * it, or the file grows; its room on the disk is allocated at once, so no later store can fail.
 */
#include "runtime/spill.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Piece { /* a used part of the file */
  void *ptr;
  int64_t offset, bytes; /* whole pages */
} Piece;

struct Spill {
  int fd;
  int64_t size, page;
  Piece *pieces; /* in order of offset */
  size_t count, cap;
};

bool spill_open(Mem *m, const char *path) {
  Spill *s = mem_try(m, NULL, 0, sizeof *s);
  struct stat st;
  if (!s) return false;
  *s = (Spill){.fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (s->fd < 0 || fstat(s->fd, &st) || !S_ISREG(st.st_mode) || st.st_size) {
    if (s->fd >= 0) close(s->fd);
    mem_free(m, s, sizeof *s);
    return false;
  }
  unlink(path); /* no other process needs its name, and the file vanishes with this process */
  s->page = sysconf(_SC_PAGESIZE);
  m->spill = s;
  return true;
}

void spill_close(Mem *m) {
  Spill *s = m->spill;
  if (!s) return;
  for (size_t i = 0; i < s->count; i++) munmap(s->pieces[i].ptr, (size_t)s->pieces[i].bytes);
  mem_free(m, s->pieces, s->cap * sizeof *s->pieces);
  close(s->fd);
  mem_free(m, s, sizeof *s);
  m->spill = NULL;
}

/* The offset of the first gap of this size; *at is the number of pieces before it. */
static int64_t find_gap(const Spill *s, int64_t bytes, size_t *at) {
  int64_t end = 0;
  for (*at = 0; *at < s->count; ++*at) {
    if (s->pieces[*at].offset - end >= bytes) break;
    end = s->pieces[*at].offset + s->pieces[*at].bytes;
  }
  return end;
}

void *spill_try(Mem *m, size_t n) {
  Spill *s = m->spill;
  size_t at;
  if (n > PTRDIFF_MAX - (size_t)s->page) return NULL;
  int64_t bytes = ((int64_t)n + s->page - 1) / s->page * s->page;
  if (!bytes) bytes = s->page;
  if (s->count == s->cap) {
    size_t cap = s->cap ? 2 * s->cap : 16;
    Piece *more = mem_try(m, s->pieces, s->cap * sizeof *more, cap * sizeof *more);
    if (!more) return NULL;
    s->pieces = more;
    s->cap = cap;
  }
  int64_t offset = find_gap(s, bytes, &at);
  if (offset + bytes > s->size) {
    if (posix_fallocate(s->fd, offset, bytes)) return NULL;
    s->size = offset + bytes;
  }
  void *ptr = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, offset);
  if (ptr == MAP_FAILED) return NULL;
  memmove(&s->pieces[at + 1], &s->pieces[at], (s->count - at) * sizeof *s->pieces);
  s->pieces[at] = (Piece){ptr, offset, bytes};
  s->count++;
  return ptr;
}

void spill_free(Mem *m, void *ptr) {
  Spill *s = m->spill;
  for (size_t i = 0; i < s->count; i++) {
    if (s->pieces[i].ptr != ptr) continue;
    munmap(ptr, (size_t)s->pieces[i].bytes);
    s->count--;
    memmove(&s->pieces[i], &s->pieces[i + 1], (s->count - i) * sizeof *s->pieces);
    return;
  }
}
