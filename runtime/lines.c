/* Text files: as a whole, and line after line.
 *
 * In: a path. Out: bytes that are valid UTF-8. Idea: lines are cut out of a buffer that is filled
 * again when no end of line is left in it, and grows only if one line is longer than it.
 * Invariant: a line that is given is valid; one that is not is an error with its place. */
#include "runtime/lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/file.h"
#include "runtime/str.h"

enum { ROOM = 1 << 16 };

/* The number of valid bytes at the start. */
static size_t valid(const char *text, size_t n) {
  size_t i = 0;
  while (i < n) {
    uint32_t cp;
    while (n - i >= 8) { /* ASCII, which most of most texts is */
      uint64_t w;
      memcpy(&w, text + i, 8);
      if (w & UINT64_C(0x8080808080808080)) break;
      i += 8;
    }
    if (i == n) break;
    int len = str_utf8(text + i, n - i, &cp);
    if (cp == 0xfffd && len == 1) break;
    i += (size_t)len;
  }
  return i;
}

static bool not_text(const char *name, const char *text, size_t n, size_t at, uint64_t line,
                     uint64_t before, Err *e) {
  uint64_t column = 1;
  for (size_t i = 0; i < at; i++) {
    if (text[i] == '\n') {
      line++;
      column = 1;
    } else {
      column += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
  }
  bool wide = n >= 2 && !before && !at &&
              (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
  return err_set(e, "%s:%llu:%llu: byte %llu, 0x%02x, is not valid UTF-8%s", name,
                 (unsigned long long)line, (unsigned long long)column,
                 (unsigned long long)(before + at), (unsigned char)text[at],
                 wide ? "; the file looks like UTF-16" : "");
}

bool lines_valid(const char *name, const char *text, size_t n, Err *e) {
  size_t at = valid(text, n);
  return at == n || not_text(name, text, n, at, 1, 0, e);
}

char *lines_read(Mem *m, const char *path, size_t *n, Err *e) {
  char *text = file_read(m, path, n, e);
  if (!text || lines_valid(path, text, *n, e)) return text;
  mem_free(m, text, *n + 1);
  return NULL;
}

/* ---- line after line */

struct Lines {
  Mem *mem;
  const char *path; /* the caller's */
  int fd;
  char *buf;
  size_t lo, hi, cap; /* bytes that are left in it; its room */
  uint64_t line;      /* the number of the next line */
  uint64_t before;    /* bytes of the file before lo */
  bool end;
};

Lines *lines_open(Mem *m, const char *path, Err *e) {
  int64_t size;
  Lines *l = mem_try(m, NULL, 0, sizeof *l);
  char *buf = mem_try(m, NULL, 0, ROOM);
  int fd = l && buf ? file_open(m, path, &size, e) : -1;
  if (fd >= 0) {
    *l = (Lines){.mem = m, .path = path, .fd = fd, .buf = buf, .cap = ROOM, .line = 1};
    return l;
  }
  if (!l || !buf) err_nomem(e, path);
  if (l) mem_free(m, l, sizeof *l);
  if (buf) mem_free(m, buf, ROOM);
  return NULL;
}

static bool more(Lines *l, Err *e) {
  if (l->lo) memmove(l->buf, l->buf + l->lo, l->hi - l->lo);
  l->hi -= l->lo;
  l->lo = 0;
  if (l->hi == l->cap) {
    char *grown = l->cap > PTRDIFF_MAX / 2 ? NULL : mem_try(l->mem, l->buf, l->cap, 2 * l->cap);
    if (!grown) return err_nomem(e, l->path);
    l->buf = grown;
    l->cap *= 2;
  }
  for (;;) {
    if (interrupt_asked(l->mem->stop)) return err_interrupted(e);
    ssize_t got = read(l->fd, l->buf + l->hi, l->cap - l->hi);
    if (got >= 0) {
      l->hi += (size_t)got;
      l->end = got == 0;
      return true;
    }
    if (errno != EINTR) return err_set(e, "%s: %s", l->path, file_why(errno));
  }
}

int lines_next(Lines *l, const char **line, size_t *n, Err *e) {
  size_t seen = l->lo; /* no end of line before it */
  const char *nl = NULL;
  while (!(nl = seen < l->hi ? memchr(l->buf + seen, '\n', l->hi - seen) : NULL) && !l->end) {
    size_t left = l->hi - l->lo;
    if (!more(l, e)) return -1;
    seen = left;
  }
  if (l->line == 1 && l->hi - l->lo >= 3 && !memcmp(l->buf + l->lo, "\xef\xbb\xbf", 3)) {
    l->lo += 3;
    l->before += 3;
  }
  if (!nl && l->lo == l->hi) return 0;
  const char *from = l->buf + l->lo, *to = nl ? nl : l->buf + l->hi;
  size_t length = (size_t)(to - from), at = valid(from, length);
  if (at < length) {
    not_text(l->path, from, length, at, l->line, l->before, e);
    return -1;
  }
  size_t taken = length + (nl != NULL);
  l->lo += taken;
  l->before += taken;
  l->line++;
  *line = from;
  *n = length - (length && nl && from[length - 1] == '\r');
  return 1;
}

void lines_close(Lines *l) {
  if (!l) return;
  close(l->fd);
  mem_free(l->mem, l->buf, l->cap);
  mem_free(l->mem, l, sizeof *l);
}
