/* The table of sources of a session: text with the offsets of its lines.
 *
 * Invariant: line_start[0] is 0 and each further entry is the offset after a newline, so a text
 * that ends in a newline has an empty last line. */
#include <string.h>

#include "runtime/diag.h"

void src_init(Sources *s, Arena *a) {
  *s = (Sources){.arena = a};
  src_add(s, "", "", 0);
}

uint32_t src_add(Sources *s, const char *path, const char *text, size_t n) {
  if (n >= UINT32_MAX || s->count == UINT32_MAX) return 0;
  Source f = {.length = n};
  f.path = arena_strdup(s->arena, path, strlen(path));
  f.text = arena_strdup(s->arena, text, n);
  const char *end = f.text + n;
  uint32_t lines = 1;
  for (const char *p = f.text; (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
  f.line_start = ARENA_ARRAY(s->arena, uint32_t, lines);
  for (const char *p = f.text; (p = memchr(p, '\n', (size_t)(end - p))); p++)
    f.line_start[++f.line_count] = (uint32_t)(p + 1 - f.text);
  f.line_count++;
  VEC_PUSH(s->arena, s->items, s->count, s->cap, f);
  return s->count - 1;
}

void src_place(const Sources *s, uint32_t file, uint32_t offset, uint32_t *line, uint32_t *col) {
  *line = *col = 0;
  if (!file || file >= s->count) return;
  const Source *f = &s->items[file];
  if (offset > f->length) offset = (uint32_t)f->length;
  uint32_t lo = 0, hi = f->line_count; /* line lo starts at or before the offset, line hi after */
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (f->line_start[mid] <= offset) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  *line = lo + 1;
  *col = 1;
  for (uint32_t at = f->line_start[lo]; at < offset; ++*col) {
    uint32_t cp;
    at += (uint32_t)str_utf8(f->text + at, f->length - at, &cp);
    if (at > offset) break; /* inside a character: its own column */
  }
}
