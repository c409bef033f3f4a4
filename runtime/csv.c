/* Numeric tables in text form to tensors.
 *
 * In: bytes that may hold anything. Out: a tensor with one row per line of numbers.
 * Idea: the text is split into lines twice, first only to count them, so that the tensor is
 * allocated once in its final size and each number is stored in its place.
 * Invariant: no number is lost silently; a field that is not understood is an error with its
 * place. */
#include "runtime/csv.h"

#include <string.h>

#include "runtime/file.h"
#include "runtime/str.h"

/* A line that is not empty, without its comment and the blanks around it. */
typedef struct Line {
  const char *start, *lo, *hi;
  uint64_t number; /* from 1 */
  bool open;       /* a quote in it does not end */
} Line;

typedef struct Csv {
  const char *name, *text, *at, *end;
  uint64_t line;  /* number of the line that starts at `at` */
  char separator; /* ' ' means any blanks */
  DType dtype;
  Err *err;
} Csv;

static bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

static bool ends_field(char c) {
  return c == ',' || c == ';' || is_blank(c);
}

/* The next line that is not blank; false at the end. A quote opens at the start of a field only;
 * `#` inside quotes is no comment. The separator has no influence on the lines. */
static bool next_line(Csv *c, Line *out) {
  while (c->at < c->end) {
    const char *p = c->at, *hi = NULL;
    bool quoted = false;
    *out = (Line){.start = p, .lo = p, .number = c->line++};
    for (; p < c->end && *p != '\n' && *p != '\r'; p++) {
      if (hi) continue;
      if (*p == '"' && (quoted || p == out->lo || ends_field(p[-1]))) {
        quoted = !quoted;
      } else if (*p == '#' && !quoted) {
        hi = p;
      }
    }
    out->open = quoted;
    out->hi = hi ? hi : p;
    bool crlf = c->end - p >= 2 && p[0] == '\r' && p[1] == '\n';
    c->at = p == c->end ? p : p + (crlf ? 2 : 1);
    p = out->lo;
    while (p < out->hi && is_blank(*p)) p++;
    if (p == out->hi) continue;
    /* if tabs separate, a tab at either end has an empty field beside it */
    bool tabs = c->separator == '\t';
    while (tabs ? *out->lo == ' ' : is_blank(*out->lo)) out->lo++;
    while (tabs ? out->hi[-1] == ' ' : is_blank(out->hi[-1])) out->hi--;
    return true;
  }
  return false;
}

/* The next field of a line from *p on, without blanks and quotes around; false after the last. */
static bool next_field(const Csv *c, const Line *line, const char **p, const char **lo,
                       const char **hi) {
  const char *s = *p, *end = line->hi;
  if (!s) return false;
  while (s < end && is_blank(*s) && *s != c->separator) s++;
  const char *start = s;
  bool quoted = false;
  for (; s < end; s++) {
    if (*s == '"' && (quoted || s == start)) {
      quoted = !quoted;
    } else if (!quoted && (*s == c->separator || (c->separator == ' ' && *s == '\t'))) {
      break;
    }
  }
  *lo = start;
  *hi = s;
  if (c->separator == ' ')
    while (s < end && is_blank(s[1])) s++; /* line->hi is no blank, so a field follows */
  *p = s < end ? s + 1 : NULL;
  while (*hi > *lo && is_blank((*hi)[-1])) --*hi;
  if (*hi - *lo >= 2 && **lo == '"' && (*hi)[-1] == '"') {
    ++*lo;
    --*hi;
    while (*lo < *hi && is_blank(**lo)) ++*lo;
    while (*lo < *hi && is_blank((*hi)[-1])) --*hi;
  }
  return true;
}

/* The separator of the fields of a line; 0 if it has one field only. */
static char separator_of(const Line *line) {
  bool comma = false, tab = false, blank = false, quoted = false;
  for (const char *p = line->lo; p < line->hi; p++) {
    if (*p == '"') quoted = !quoted;
    if (quoted) continue;
    if (*p == ';') return ';';
    comma = comma || *p == ',';
    tab = tab || *p == '\t';
    blank = blank || *p == ' ';
  }
  return comma ? ',' : tab ? '\t' : blank ? ' ' : 0;
}

/* ---- numbers */

static bool is_number(const char *lo, const char *hi) {
  double x;
  return str_to_f64(lo, (size_t)(hi - lo), &x);
}

/* Reads a whole number, also written as 3.0 or 1e3 (then up to 2^53, so that no digit is lost). */
static bool read_whole(const char *lo, const char *hi, int64_t *v) {
  double x;
  if (str_to_i64(lo, (size_t)(hi - lo), v)) return true;
  if (!str_to_f64(lo, (size_t)(hi - lo), &x) || !(x >= -0x1p53 && x <= 0x1p53)) return false;
  *v = (int64_t)x;
  return (double)*v == x;
}

static bool put_number(DType dt, const char *lo, const char *hi, void *data, int64_t i) {
  switch (dt) {
  case DT_F64: return str_to_f64(lo, (size_t)(hi - lo), (double *)data + i);
  case DT_F32: return str_to_f32(lo, (size_t)(hi - lo), (float *)data + i);
  default: return read_whole(lo, hi, (int64_t *)data + i);
  }
}

/* Whether a line is a header: no field is a number, and some word in a field is none either. (If
 * all words are numbers, the separator was misread.) */
static bool is_header(const Csv *c, const Line *line) {
  const char *p = line->lo, *lo, *hi;
  bool all = true;
  while (next_field(c, line, &p, &lo, &hi)) {
    if (is_number(lo, hi)) return false;
    for (const char *w = lo; w < hi;) {
      const char *end = w;
      while (end < hi && !ends_field(*end)) end++;
      if (end > w && !is_number(w, end)) all = false;
      w = end + 1;
    }
  }
  return !all;
}

/* ---- errors */

/* Reports an error at a place of a line. Returns false. */
static bool fail(const Csv *c, const Line *line, const char *at, const char *what) {
  uint64_t col = 1;
  for (const char *p = line->start; p < at; col++) {
    uint32_t cp;
    p += str_utf8(p, (size_t)(c->end - p), &cp);
  }
  return err_set(c->err, "%s:%llu:%llu: %s", c->name, (unsigned long long)line->number,
                 (unsigned long long)col, what);
}

static bool bad_field(const Csv *c, const Line *line, const char *lo, const char *hi, bool first) {
  if (lo == hi) return fail(c, line, lo, "the field is empty");
  size_t n = (size_t)(hi - lo), most = 40;
  bool number = is_number(lo, hi), cut = n > most;
  const char *why = number ? "is not a whole number that an i64 holds" : "is not a number";
  const char *help = "", *comma = number ? NULL : memchr(lo, ',', n);
  if (comma && !memchr(comma + 1, ',', (size_t)(hi - comma - 1))) {
    help = " (the decimal point is `.`)";
  } else if (first && !number) {
    help = " (a first line is a header only when none of its fields is a number)";
  } else if (!number) {
    help = " (`read_table` reads texts, too)";
  }
  if (cut)
    for (n = most; n && ((unsigned char)lo[n] & 0xc0) == 0x80;) n--;
  Err text;
  err_set(&text, "`%.*s%s` %s%s", (int)n, lo, cut ? "..." : "", why, help);
  return fail(c, line, lo, text.text);
}

/* ---- the table */

static int64_t count_fields(const Csv *c, const Line *line) {
  const char *p = line->lo, *lo, *hi;
  int64_t n = 0;
  while (next_field(c, line, &p, &lo, &hi)) n++;
  return n;
}

static bool ragged(const Csv *c, const Line *line, int64_t n, const Line *like, int64_t cols) {
  return err_set(c->err, "%s:%llu: %lld field%s, but line %llu has %lld", c->name,
                 (unsigned long long)line->number, (long long)n, n == 1 ? "" : "s",
                 (unsigned long long)like->number, (long long)cols);
}

static bool fill_row(const Csv *c, const Line *line, const Line *like, int64_t cols, bool first,
                     void *data, int64_t at) {
  const char *p = line->lo, *lo, *hi;
  int64_t n = 0;
  if (line->open) return fail(c, line, line->lo, "a quote in this line has no end");
  while (next_field(c, line, &p, &lo, &hi)) {
    if (n < cols && !put_number(c->dtype, lo, hi, data, at + n))
      return bad_field(c, line, lo, hi, first);
    n++;
  }
  return n == cols || ragged(c, line, n, like, cols);
}

Tensor *csv_parse(Mem *m, const char *name, const char *text, size_t n, DType dt, Err *e) {
  Csv c = {.name = name, .text = text, .at = text, .end = text + n, .line = 1, .dtype = dt};
  c.err = e;
  if (dt != DT_F32 && dt != DT_F64 && dt != DT_I64) {
    err_set(e, "%s: a table is read as f32, f64 or i64, not as %s", name, dtype_info[dt].name);
    return NULL;
  }
  if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) c.text = c.at = text + 3;
  if (n && memchr(text, 0, n)) {
    bool wide = n >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
    err_set(e, "%s: %s", name, wide ? "is UTF-16; UTF-8 is read" : "is no text (it has NUL bytes)");
    return NULL;
  }
  Csv start = c;
  Line line, second;
  if (!next_line(&c, &line)) {
    err_set(e, "%s: holds no numbers", name);
    return NULL;
  }
  bool more = next_line(&c, &second);
  char separator = more ? separator_of(&second) : 0;
  if (!separator) separator = separator_of(&line);
  c.separator = start.separator = separator ? separator : ' ';
  int64_t rows = 1 + more;
  while (next_line(&c, &second)) rows++;

  c = start;
  next_line(&c, &line);
  bool first = true;
  if (line.open) {
    fail(&c, &line, line.lo, "a quote in this line has no end");
    return NULL;
  }
  if (is_header(&c, &line)) {
    if (!next_line(&c, &line)) {
      err_set(e, "%s: holds a header, but no numbers", name);
      return NULL;
    }
    rows--;
    first = false;
  }
  Line like = line;
  int64_t dim[2] = {rows, count_fields(&c, &line)};
  if (dim[1] > (int64_t)(n + 1) / rows) { /* each field takes at least a byte for its end */
    while (count_fields(&c, &line) == dim[1] && next_line(&c, &line)) continue;
    ragged(&c, &line, count_fields(&c, &line), &like, dim[1]);
    return NULL;
  }
  Tensor *t = tn_new(m, DEV_CPU, dt, 2, dim);
  if (!t) {
    err_nomem(e, name);
    return NULL;
  }
  for (int64_t i = 0; i < rows; i++) {
    if (i) next_line(&c, &line); /* cannot fail: the lines were counted before */
    if (!fill_row(&c, &line, &like, dim[1], first && !i, t->store->data, i * dim[1])) {
      tn_unref(t);
      return NULL;
    }
  }
  return t;
}

Tensor *csv_read(Mem *m, const char *file, DType dt, Err *e) {
  size_t n;
  char *text = file_read(m, file, &n, e);
  if (!text) return NULL;
  Tensor *t = csv_parse(m, file, text, n, dt, e);
  mem_free(m, text, n + 1);
  return t;
}
