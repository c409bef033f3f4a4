/* The table of sources of a session: text with the offsets of its lines.
 *
 * A passing source has an arena of its own for its text and everything made of it. A holder of a
 * part of its tree holds the source by number. Dropping a hold frees nothing, since the tree may be
 * in use on the C stack; src_sweep frees all sources without holders between two calls.
 *
 * Invariant: line_start[0] is 0 and each further entry is the offset after a newline, so a text
 * that ends in a newline has an empty last line. */
#include "runtime/diag.h"

#include <string.h>

void src_init(Sources *s, Arena *a) {
  *s = (Sources){.arena = a, .by_file = {.arena = a}};
  s->nowhere = ARENA_NEW(a, Source);
  s->nowhere->arena = a;
  src_add(s, "", "", 0);
  s->nowhere = (Source *)src_get(s, 0);
}

static uint32_t enter(Sources *s, Source *f, const char *path, const char *text, size_t n) {
  f->length = n;
  f->path = arena_strdup(f->arena, path, strlen(path));
  f->text = arena_strdup(f->arena, text, n);
  const char *end = f->text + n;
  uint32_t lines = 1;
  for (const char *p = f->text; (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
  f->line_start = ARENA_ARRAY(f->arena, uint32_t, lines);
  for (const char *p = f->text; (p = memchr(p, '\n', (size_t)(end - p))); p++)
    f->line_start[++f->line_count] = (uint32_t)(p + 1 - f->text);
  f->line_count++;
  table_set(&s->by_file, s->count, (size_t)(uintptr_t)f);
  f->file = s->count;
  return s->count++;
}

uint32_t src_add(Sources *s, const char *path, const char *text, size_t n) {
  if (n >= UINT32_MAX || s->count == UINT32_MAX) return 0;
  Source *f = ARENA_NEW(s->arena, Source);
  f->arena = s->arena;
  return enter(s, f, path, text, n);
}

/* Adds a source to the list that the next src_sweep looks at. */
static void loosen(Sources *s, Source *f) {
  if (f->loose) return;
  f->loose = true;
  f->looser = s->loose;
  s->loose = f;
}

uint32_t src_add_passing(Sources *s, const char *path, const char *text, size_t n) {
  if (n >= UINT32_MAX || s->count == UINT32_MAX) return 0;
  Mem *m = s->arena->mem;
  Source *f = mem_need(m, NULL, 0, sizeof *f);
  *f = (Source){.next = s->passing};
  arena_init(&f->own, m);
  f->arena = &f->own;
  if (f->next) f->next->before = f;
  s->passing = f; /* listed first, so that it is freed if the rest throws */
  loosen(s, f);
  return enter(s, f, path, text, n);
}

/* The empty source. Even a session that could not be started has it, to show errors. */
static const uint32_t first_line[1] = {0};
static const Source nothing = {
    .path = "", .text = "", .line_start = (uint32_t *)first_line, .line_count = 1};

static Source *find(const Sources *s, uint32_t file) {
  ptrdiff_t at = table_get(&s->by_file, file);
  if (at != TABLE_NONE) return (Source *)(uintptr_t)at;
  return s->nowhere ? s->nowhere : (Source *)(uintptr_t)&nothing;
}

const Source *src_get(const Sources *s, uint32_t file) {
  return find(s, file);
}

Arena *src_arena(const Sources *s, uint32_t file) {
  return find(s, file)->arena;
}

void src_hold(Sources *s, uint32_t file) {
  Source *f = find(s, file);
  if (f->file) f->held++;
}

void src_drop(Sources *s, uint32_t file) {
  Source *f = find(s, file);
  if (f->file && --f->held == 0 && f->arena == &f->own) loosen(s, f);
}

static void forget(Sources *s, Source *f) {
  if (f->before)
    f->before->next = f->next;
  else
    s->passing = f->next;
  if (f->next) f->next->before = f->before;
  if (f->file) table_remove(&s->by_file, f->file); /* 0 if there was no memory for its text */
  arena_free(&f->own);
  mem_free(s->arena->mem, f, sizeof *f);
}

void src_sweep(Sources *s) {
  for (Source *f; (f = s->loose);) {
    s->loose = f->looser;
    f->loose = false;
    if (!f->held) forget(s, f);
  }
}

void src_close(Sources *s) {
  while (s->passing) forget(s, s->passing);
  *s = (Sources){0};
}

uint32_t src_line(const Source *f, uint32_t offset) {
  uint32_t lo = 0, hi = f->line_count; /* line lo starts at or before the offset, line hi after */
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (f->line_start[mid] <= offset) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return lo;
}

void src_place(const Sources *s, uint32_t file, uint32_t offset, uint32_t *line, uint32_t *col) {
  *line = *col = 0;
  const Source *f = src_get(s, file);
  if (!f->file) return;
  if (offset > f->length) offset = (uint32_t)f->length;
  uint32_t lo = src_line(f, offset);
  *line = lo + 1;
  *col = 1;
  for (uint32_t at = f->line_start[lo]; at < offset; ++*col) {
    uint32_t cp;
    at += (uint32_t)str_utf8(f->text + at, f->length - at, &cp);
    if (at > offset) break; /* the offset is inside this character: use the character's column */
  }
}
