/* Diagnostics: filing them, and showing them as text with carets or as JSON.
 *
 * In: spans and texts from every phase. Out: the list of a session; text for people and programs.
 * Idea of the picture: the lines that carry a mark are shown once, in order; below each stands a
 * row of marks and as many rows of labels as it takes for none to touch another.
 * Invariant: the rendered text is valid UTF-8 without control characters (newlines and tabs apart),
 * whatever the source holds. */
#include "runtime/diag.h"

#include <stdio.h>
#include <string.h>

const ErrInfo err_info[ERR_COUNT] = {
#define ERR(name, code, title, explain, example)                                                   \
  [ERR_##name] = {#name, code, title, explain, example},
#include "runtime/errors.def"
#undef ERR
};

int err_find(const char *code) {
  for (int i = 0; i < ERR_COUNT; i++)
    if (strcmp(err_info[i].code, code) == 0) return i;
  return -1;
}

/* ---- filing */

void dg_init(Diags *d, Arena *a, Mem *m) {
  memset(d, 0, sizeof *d);
  d->arena = a;
  d->mem = m;
  d->cap = 2 * DG_MOST + 1; /* errors, warnings, and the one that says that memory ran out */
  d->items = ARENA_ARRAY(a, Diag *, d->cap);
}

void dg_clear(Diags *d) {
  d->count = d->errors = d->warnings = d->dropped = 0;
  d->nomem_filed = false;
}

void dg_rewind(Diags *d, size_t count) {
  while (d->count > count) {
    Diag *g = d->items[--d->count];
    if (g == &d->nomem) d->nomem_filed = false;
    if (g->severity == SEV_ERROR) d->errors--;
    if (g->severity == SEV_WARNING) d->warnings--;
  }
}

/* Formats into the arena; NULL when there is no memory. */
static const char *vformat_try(Diags *d, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = str_vformat(NULL, 0, fmt, ap);
  char *text = n < 0 ? NULL : arena_try(d->arena, (size_t)n + 1);
  if (text) str_vformat(text, (size_t)n + 1, fmt, again);
  va_end(again);
  return text;
}

static void file_it(Diags *d, Diag *g) {
  d->items[d->count++] = g;
  if (g->severity == SEV_ERROR) d->errors++;
  if (g->severity == SEV_WARNING) d->warnings++;
}

static Diag *file_nomem(Diags *d, Span at, const char *message) {
  if (!d->nomem_filed) {
    d->nomem = (Diag){.code = ERR_NOMEM, .severity = SEV_ERROR, .span = at, .message = message};
    d->nomem_filed = true;
    file_it(d, &d->nomem);
  }
  return &d->nomem;
}

static Diag *file_one(Diags *d, ErrCode code, Severity severity, Span at, const char *fmt,
                      va_list ap) {
  if (code == ERR_NOMEM && severity == SEV_ERROR) {
    if (d->nomem_filed) return &d->nomem;
    va_list again;
    va_copy(again, ap);
    const char *text = vformat_try(d, fmt, ap);
    if (!text) {
      str_vformat(d->nomem_text, sizeof d->nomem_text, fmt, again);
      text = d->nomem_text;
    }
    va_end(again);
    return file_nomem(d, at, text);
  }
  size_t kept = severity == SEV_ERROR ? d->errors : d->count - d->errors;
  if (severity == SEV_ERROR && d->nomem_filed) kept--; /* it has its own place */
  if (kept >= DG_MOST) {
    d->dropped++;
    d->spare = (Diag){.code = code, .severity = severity, .span = at, .message = ""};
    return &d->spare;
  }
  Diag *g = arena_try(d->arena, sizeof *g);
  const char *text = g ? vformat_try(d, fmt, ap) : NULL;
  if (!text) return file_nomem(d, at, "out of memory");
  *g = (Diag){.code = code, .severity = severity, .span = at, .message = text};
  file_it(d, g);
  return g;
}

Diag *dg_verror(Diags *d, ErrCode code, Span at, const char *fmt, va_list ap) {
  return file_one(d, code, SEV_ERROR, at, fmt, ap);
}

Diag *dg_error(Diags *d, ErrCode code, Span at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = file_one(d, code, SEV_ERROR, at, fmt, ap);
  va_end(ap);
  return g;
}

Diag *dg_warn(Diags *d, ErrCode code, Span at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = file_one(d, code, SEV_WARNING, at, fmt, ap);
  va_end(ap);
  return g;
}

void dg_label(Diags *d, Diag *g, Span at, const char *fmt, ...) {
  if (g == &d->spare || g->label_count == (int)(sizeof g->labels / sizeof *g->labels)) return;
  va_list ap;
  va_start(ap, fmt);
  const char *text = vformat_try(d, fmt, ap);
  va_end(ap);
  if (text) g->labels[g->label_count++] = (DiagLabel){at, text};
}

void dg_help(Diags *d, Diag *g, const char *fmt, ...) {
  if (g == &d->spare) return;
  va_list ap;
  va_start(ap, fmt);
  const char *text = vformat_try(d, fmt, ap);
  va_end(ap);
  if (text) g->help = text;
}

void dg_trace(Diag *g, Span at, const char *what) {
  int most = (int)(sizeof g->trace / sizeof *g->trace);
  if (g->trace_count < most) {
    g->trace[g->trace_count].span = at;
    g->trace[g->trace_count].what = what;
  }
  if (g->trace_count < INT32_MAX) g->trace_count++;
}

void dg_throw(Diags *d) {
  mem_throw(d->mem, d->nomem_filed ? MEM_ERR_NOMEM : MEM_ERR_PROGRAM);
}

/* ---- one character at a time */

/* The character at s: its bytes, the text that shows it, and its columns (a tab has -1). */
typedef struct Glyph {
  size_t bytes;
  const char *shown;
  size_t shown_bytes;
  int width;
} Glyph;

static Glyph glyph_at(const char *s, size_t n) {
  uint32_t cp;
  Glyph g = {.shown = s, .width = 1};
  g.bytes = g.shown_bytes = (size_t)str_utf8(s, n, &cp);
  if (cp == '\t') {
    g.width = -1;
  } else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
    g.shown = "?";
    g.shown_bytes = 1;
  } else if (cp == 0xfffd || cp == 0xfeff || (cp >= 0x200e && cp <= 0x200f) ||
             (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069)) {
    g.shown = "\xef\xbf\xbd"; /* invalid, or a control of text direction */
    g.shown_bytes = 3;
  } else {
    g.width = str_width(cp);
  }
  return g;
}

/* Writes text on one line; returns its columns. */
static int put_text(Buf *out, const char *s, size_t n) {
  int width = 0;
  for (size_t i = 0; i < n;) {
    Glyph g = glyph_at(s + i, n - i);
    bool blank = s[i] == '\n' || s[i] == '\t';
    if (out) buf_put(out, blank ? " " : g.shown, blank ? 1 : g.shown_bytes);
    width += g.width < 0 ? 1 : g.width;
    i += g.bytes;
  }
  return width;
}

/* ---- the picture */

enum { COLUMNS = 100, TAB = 8, MARKS = 5, HEAD_WIDTH = 80, MOST_TEXT = 4 * COLUMNS };

enum { INK_NONE, INK_PRIMARY, INK_LABEL, INK_GUTTER, INK_BOLD };

typedef struct Mark {
  uint32_t file, lo, hi;
  uint32_t first, last; /* lines, from 0 */
  bool primary;
  const char *text; /* may be NULL */
} Mark;

typedef struct Page {
  Buf *out;
  const Sources *src;
  bool color;
  Severity severity;
  int gutter; /* columns before the text of a line */
  Mark mark[MARKS];
  int marks;
} Page;

static void ink(Page *p, int which) {
  if (!p->color) return;
  static const char *const main_ink[] = {"\033[1;31m", "\033[1;33m", "\033[1;36m"};
  switch (which) {
  case INK_NONE: buf_puts(p->out, "\033[0m"); break;
  case INK_PRIMARY: buf_puts(p->out, main_ink[p->severity]); break;
  case INK_BOLD: buf_puts(p->out, "\033[1m"); break;
  default: buf_puts(p->out, "\033[1;34m"); break;
  }
}

/* End of a line without its newline (and the CR before it). */
static uint32_t line_end(const Source *f, uint32_t line) {
  uint32_t lo = f->line_start[line];
  uint32_t hi = line + 1 < f->line_count ? f->line_start[line + 1] - 1 : (uint32_t)f->length;
  if (hi > lo && f->text[hi - 1] == '\r') hi--;
  return hi;
}

/* Limits a span to the text of its file. A span at the end of the file moves behind the last
 * character that is not white space. */
static Span settle(const Sources *src, Span at) {
  const Source *f = src_get(src, at.file);
  if (!f->file) return (Span){0, 0, 0};
  uint32_t n = (uint32_t)f->length;
  if (at.lo >= n) {
    while (n && (f->text[n - 1] == '\n' || f->text[n - 1] == '\r' || f->text[n - 1] == ' ' ||
                 f->text[n - 1] == '\t'))
      n--;
    return (Span){at.file, n, n};
  }
  if (at.hi > n) at.hi = n;
  if (at.hi < at.lo) at.hi = at.lo;
  return at;
}

static void add_mark(Page *p, Span at, bool primary, const char *text) {
  at = settle(p->src, at);
  if (!at.file || p->marks == MARKS) return;
  const Source *f = src_get(p->src, at.file);
  Mark *m = &p->mark[p->marks++];
  *m = (Mark){at.file, at.lo, at.hi, 0, 0, primary, text && *text ? text : NULL};
  m->first = src_line(f, at.lo);
  m->last = at.hi > at.lo ? src_line(f, at.hi - 1) : m->first;
}

static int advance(int col, const Glyph *g, bool clipped) {
  if (g->width >= 0) return col + g->width;
  return clipped ? col + 1 : (col / TAB + 1) * TAB;
}

/* The screen column of byte `to` in a line that starts at `from`, counted from column `col`. */
static int64_t column_of(const Source *f, uint32_t from, uint32_t to, int col, bool clipped) {
  int64_t c = col;
  for (uint32_t at = from; at < to;) {
    Glyph g = glyph_at(f->text + at, to - at);
    if (c > INT32_MAX / 2) return c;
    c = advance((int)c, &g, clipped);
    at += (uint32_t)g.bytes;
  }
  return c;
}

/* The part of a mark in one line, in bytes and then in columns. */
typedef struct Piece {
  const Mark *mark;
  uint32_t lo, hi;
  int col, end;
  bool told; /* its label has been written */
} Piece;

static int pieces_of(const Page *p, const Source *f, uint32_t file, uint32_t line, Piece *piece) {
  int n = 0;
  uint32_t start = f->line_start[line], end = line_end(f, line);
  for (int i = 0; i < p->marks; i++) {
    const Mark *m = &p->mark[i];
    if (m->file != file || (m->first != line && m->last != line)) continue;
    uint32_t lo = m->lo, hi = m->hi;
    if (lo < start) /* the last of several lines: from its first character on */
      for (lo = start; lo < end && (f->text[lo] == ' ' || f->text[lo] == '\t');) lo++;
    if (lo > end) lo = end;
    if (hi > end) hi = end;
    if (hi < lo) hi = lo;
    piece[n++] = (Piece){.mark = m, .lo = lo, .hi = hi};
  }
  return n;
}

/* One row below a line of source: a character and a color per column. A character 0 is not written
 * (the tab before it fills the column). */
typedef struct Row {
  char c[MOST_TEXT];
  unsigned char ink[MOST_TEXT];
  int n;
} Row;

static void put_gutter(Page *p, uint32_t line) {
  ink(p, INK_GUTTER);
  if (line) {
    buf_printf(p->out, "%*u | ", p->gutter - 3, line);
  } else {
    buf_printf(p->out, "%*s | ", p->gutter - 3, "");
  }
  ink(p, INK_NONE);
}

static void put_row(Page *p, const Row *row, int to) {
  int now = INK_NONE;
  put_gutter(p, 0);
  for (int i = 0; i < to; i++) {
    if (row->ink[i] != now && row->c[i]) {
      if (now != INK_NONE) ink(p, INK_NONE);
      now = row->ink[i];
      if (now != INK_NONE) ink(p, now);
    }
    if (row->c[i]) buf_putc(p->out, row->c[i]);
  }
  if (now != INK_NONE) ink(p, INK_NONE);
}

static void trim_end(Buf *out) {
  while (out->n && (out->s[out->n - 1] == ' ' || out->s[out->n - 1] == '\t')) out->s[--out->n] = 0;
}

static void put_label(Page *p, const Piece *piece) {
  ink(p, piece->mark->primary ? INK_PRIMARY : INK_LABEL);
  put_text(p->out, piece->mark->text, strlen(piece->mark->text));
  ink(p, INK_NONE);
}

/* Writes the labels of the marks from right to left; the rightmost one stands in the row of marks
 * itself. */
static void put_labels(Page *p, const Row *base, Piece *piece, int n, int row_end) {
  int left = 0, last = -1;
  for (int i = 0; i < n; i++) {
    piece[i].told = !piece[i].mark->text;
    if (last < 0 || piece[i].end > piece[last].end ||
        (piece[i].end == piece[last].end && piece[i].col > piece[last].col))
      last = i;
  }
  if (!piece[last].told && piece[last].end == row_end) {
    buf_putc(p->out, ' ');
    put_label(p, &piece[last]);
    piece[last].told = true;
  }
  buf_putc(p->out, '\n');
  for (int i = 0; i < n; i++) left += !piece[i].told;
  while (left) {
    /* this row: the rightmost label that is left, and those to its left that do not touch it */
    int chosen[MARKS], count = 0, limit = INT32_MAX;
    for (;;) {
      int best = -1;
      for (int i = 0; i < n; i++)
        if (!piece[i].told && (best < 0 || piece[i].col > piece[best].col)) best = i;
      if (best < 0) break;
      int width = put_text(NULL, piece[best].mark->text, strlen(piece[best].mark->text));
      if (limit != INT32_MAX && piece[best].col + width + 2 > limit) break;
      piece[best].told = true;
      left--;
      chosen[count++] = best;
      limit = piece[best].col;
    }
    Row row = *base;
    for (int i = 0; i < n; i++) { /* vertical lines lead down to the labels of later rows */
      if (piece[i].told) continue;
      for (int k = piece[i].col + 1; k < piece[i].end && !row.c[k]; k++) row.c[k] = ' ';
      row.c[piece[i].col] = '|';
      row.ink[piece[i].col] = piece[i].mark->primary ? INK_PRIMARY : INK_LABEL;
    }
    put_row(p, &row, piece[chosen[count - 1]].col);
    for (int k = count - 1; k >= 0; k--) {
      const Piece *it = &piece[chosen[k]];
      put_label(p, it);
      if (!k) break;
      int at = it->col + put_text(NULL, it->mark->text, strlen(it->mark->text));
      for (; at < piece[chosen[k - 1]].col; at++) buf_putc(p->out, ' ');
    }
    buf_putc(p->out, '\n');
  }
}

static void put_line(Page *p, uint32_t file, uint32_t line) {
  const Source *f = src_get(p->src, file);
  uint32_t start = f->line_start[line], end = line_end(f, line), from = start, to = end;
  Piece piece[MARKS];
  int n = pieces_of(p, f, file, line, piece);
  int g = p->gutter;
  bool clipped = column_of(f, start, end, g, false) - g > COLUMNS;
  if (clipped) {
    /* the window begins a third before the most important mark */
    int main_piece = 0;
    for (int i = 0; i < n; i++)
      if (piece[i].mark->primary) main_piece = i;
    int64_t want = column_of(f, start, piece[main_piece].lo, 0, true) - COLUMNS / 3, col = 0;
    int64_t all = column_of(f, start, end, 0, true);
    if (want > all - COLUMNS) want = all - COLUMNS;
    while (from < end && col < want) {
      Glyph c = glyph_at(f->text + from, end - from);
      col = advance(0, &c, true) + col;
      from += (uint32_t)c.bytes;
    }
    for (to = from, col = 0; to < end;) {
      Glyph c = glyph_at(f->text + to, end - to);
      if (col + advance(0, &c, true) > COLUMNS || to - from > MOST_TEXT) break;
      col += advance(0, &c, true);
      to += (uint32_t)c.bytes;
    }
  }
  int lead = from > start ? 3 : 0;
  put_gutter(p, line + 1);
  if (lead) buf_puts(p->out, "...");
  Row base = {.n = 0};
  memset(base.c, ' ', sizeof base.c);
  int col = g + lead, room = g + MOST_TEXT - 2;
  for (int i = 0; i < n; i++) piece[i].col = piece[i].end = -1;
  for (uint32_t at = from;;) {
    for (int i = 0; i < n; i++) {
      if (piece[i].col < 0 && at >= piece[i].lo) piece[i].col = col - g;
      if (piece[i].end < 0 && at >= piece[i].hi) piece[i].end = col - g;
    }
    if (at >= to) break;
    Glyph c = glyph_at(f->text + at, to - at);
    int next = advance(col, &c, clipped);
    if (next >= room) break;
    if (c.width < 0 && !clipped) {
      base.c[col - g] = '\t';
      for (int k = col + 1; k < next; k++) base.c[k - g] = 0;
      buf_putc(p->out, '\t');
    } else if (c.width < 0) {
      buf_putc(p->out, ' ');
    } else {
      buf_put(p->out, c.shown, c.shown_bytes);
    }
    col = next;
    at += (uint32_t)c.bytes;
  }
  if (to < end) buf_puts(p->out, "...");
  trim_end(p->out);
  buf_putc(p->out, '\n');
  if (!n) return;

  /* marks: long ones first, so that short ones inside them stay visible */
  Row row = base;
  int row_end = 0;
  for (int i = 0; i < n; i++) { /* marks outside the window move to its edge */
    if (piece[i].col < 0) piece[i].col = col - g;
    if (piece[i].end < 0) piece[i].end = col - g;
    if (piece[i].end <= piece[i].col) piece[i].end = piece[i].col + 1;
    if (piece[i].end > row_end) row_end = piece[i].end;
  }
  for (int i = 1; i < n; i++) {
    Piece it = piece[i];
    int k = i;
    for (; k > 0; k--) {
      int a = piece[k - 1].end - piece[k - 1].col, b = it.end - it.col;
      if (a > b || (a == b && !piece[k - 1].mark->primary)) break;
      piece[k] = piece[k - 1];
    }
    piece[k] = it;
  }
  for (int i = 0; i < n; i++) {
    bool primary = piece[i].mark->primary;
    for (int k = piece[i].col; k < piece[i].end; k++) {
      row.c[k] = primary ? '^' : '-';
      row.ink[k] = primary ? INK_PRIMARY : INK_LABEL;
    }
  }
  put_row(p, &row, row_end);
  /* the label belongs to the last line of a mark */
  int kept = 0;
  for (int i = 0; i < n; i++)
    if (piece[i].mark->last == line) piece[kept++] = piece[i];
  if (kept) {
    put_labels(p, &base, piece, kept, row_end);
  } else {
    buf_putc(p->out, '\n');
  }
}

/* Writes all lines of one file that carry a mark, in order. */
static void put_file(Page *p, uint32_t file) {
  bool any = false;
  uint32_t last = 0;
  for (;;) {
    uint32_t line = UINT32_MAX;
    for (int i = 0; i < p->marks; i++) {
      const Mark *m = &p->mark[i];
      if (m->file != file) continue;
      if ((!any || m->first > last) && m->first < line) line = m->first;
      if ((!any || m->last > last) && m->last < line) line = m->last;
    }
    if (line == UINT32_MAX) return;
    if (any && line > last + 1) {
      ink(p, INK_GUTTER);
      buf_printf(p->out, "%*s", p->gutter, "...");
      ink(p, INK_NONE);
      trim_end(p->out);
      buf_putc(p->out, '\n');
    }
    put_line(p, file, line);
    last = line;
    any = true;
  }
}

/* Writes path:line:col. */
static int put_place(Buf *out, const Sources *src, Span at) {
  char number[32];
  uint32_t line, col;
  src_place(src, at.file, at.lo, &line, &col);
  const char *path = src_get(src, at.file)->path;
  int width = put_text(out, path, strlen(path));
  int n = snprintf(number, sizeof number, ":%u:%u", line, col);
  if (out) buf_put(out, number, (size_t)n);
  return width + n;
}

static const char *severity_word(Severity s) {
  return s == SEV_ERROR ? "error" : s == SEV_WARNING ? "warning" : "note";
}

void dg_render(Buf *out, const Sources *src, const Diag *g, bool color) {
  Page page = {.out = out, .src = src, .color = color, .severity = g->severity}, *p = &page;
  Span at = settle(src, g->span);
  const char *word = severity_word(g->severity), *code = err_info[g->code].code;

  ink(p, INK_PRIMARY);
  buf_printf(out, "%s[%s]", word, code);
  ink(p, INK_NONE);
  ink(p, INK_BOLD);
  buf_puts(out, ": ");
  int width = (int)(strlen(word) + strlen(code)) + 4;
  width += put_text(out, g->message, strlen(g->message));
  ink(p, INK_NONE);
  if (at.file) {
    int pad = HEAD_WIDTH - width - put_place(NULL, src, at);
    buf_printf(out, "%*s", pad < 2 ? 2 : pad, "");
    put_place(out, src, at);
  }
  buf_putc(out, '\n');

  add_mark(p, g->span, true, g->label);
  for (int i = 0; i < g->label_count; i++) add_mark(p, g->labels[i].span, false, g->labels[i].text);
  uint32_t most = 0;
  for (int i = 0; i < p->marks; i++)
    if (p->mark[i].last > most) most = p->mark[i].last;
  p->gutter = 3 + snprintf(NULL, 0, "%u", most + 1) + 3; /* blanks, number, " | " */
  if (at.file) put_file(p, at.file);
  for (int i = 0; i < p->marks; i++) {
    bool seen = p->mark[i].file == at.file;
    for (int k = 0; k < i; k++) seen = seen || p->mark[k].file == p->mark[i].file;
    if (seen) continue;
    const Mark *m = &p->mark[i];
    buf_puts(out, "   at ");
    put_place(out, src, (Span){m->file, m->lo, m->hi});
    buf_putc(out, '\n');
    put_file(p, m->file);
  }

  for (int i = 0; i < g->trace_count; i++) {
    if (i == (int)(sizeof g->trace / sizeof *g->trace)) {
      buf_printf(out, "   ... and %d more call%s\n", g->trace_count - i,
                 g->trace_count - i == 1 ? "" : "s");
      break;
    }
    buf_puts(out, "   in ");
    put_text(out, g->trace[i].what, strlen(g->trace[i].what));
    Span call = settle(src, g->trace[i].span);
    if (call.file) {
      buf_puts(out, ", called at ");
      put_place(out, src, call);
    }
    buf_putc(out, '\n');
  }
  if (g->help) {
    const char *s = g->help;
    ink(p, INK_GUTTER);
    buf_puts(out, "   = help: ");
    ink(p, INK_NONE);
    for (;;) {
      size_t n = strcspn(s, "\n");
      put_text(out, s, n);
      buf_putc(out, '\n');
      s += n;
      if (!*s || !*++s) break;
      buf_puts(out, "           ");
    }
  }
}

/* ---- JSON */

static void json_string(Buf *out, const char *s) {
  if (s) {
    buf_json(out, s, strlen(s));
  } else {
    buf_puts(out, "null");
  }
}

/* Writes "file":..,"line":..,"col":..,"end_line":..,"end_col":..; the end is the place after the
 * last character. */
static void json_span(Buf *out, const Sources *src, Span span) {
  Span at = settle(src, span);
  uint32_t line, col, end_line, end_col;
  src_place(src, at.file, at.lo, &line, &col);
  src_place(src, at.file, at.hi, &end_line, &end_col);
  buf_puts(out, "\"file\":");
  json_string(out, at.file ? src_get(src, at.file)->path : NULL);
  buf_printf(out, ",\"line\":%u,\"col\":%u,\"end_line\":%u,\"end_col\":%u", line, col, end_line,
             end_col);
}

void dg_render_json(Buf *out, const Sources *src, const Diag *g) {
  buf_printf(out, "{\"severity\":\"%s\",\"code\":\"%s\",\"message\":", severity_word(g->severity),
             err_info[g->code].code);
  json_string(out, g->message);
  buf_putc(out, ',');
  json_span(out, src, g->span);
  buf_puts(out, ",\"label\":");
  json_string(out, g->label);
  buf_puts(out, ",\"labels\":[");
  for (int i = 0; i < g->label_count; i++) {
    buf_puts(out, i ? ",{" : "{");
    json_span(out, src, g->labels[i].span);
    buf_puts(out, ",\"text\":");
    json_string(out, g->labels[i].text);
    buf_putc(out, '}');
  }
  buf_puts(out, "],\"help\":");
  json_string(out, g->help);
  buf_puts(out, ",\"trace\":[");
  int most = (int)(sizeof g->trace / sizeof *g->trace);
  for (int i = 0; i < g->trace_count && i < most; i++) {
    buf_puts(out, i ? ",{\"what\":" : "{\"what\":");
    json_string(out, g->trace[i].what);
    buf_putc(out, ',');
    json_span(out, src, g->trace[i].span);
    buf_putc(out, '}');
  }
  buf_printf(out, "],\"trace_more\":%d}", g->trace_count > most ? g->trace_count - most : 0);
}
