/* Tables in text with a name and a type for each column.
 *
 * In: bytes that may hold anything. Out: tensors, texts. Idea: the rows are gone through twice. The
 * first time each field only says which types its column can still have; the second time numbers
 * are read, once, into tensors of the final size. So a type is found by the whole file, and nothing
 * is kept but the file and the columns.
 * Invariant: no field is lost or changed silently: ragged rows, open quotes, fields that do not fit
 * a given type are errors with their place; digits that a type cannot hold make texts. */
#include "runtime/table_file.h"

#include <math.h>
#include <string.h>

#include "runtime/file.h"
#include "runtime/lines.h"
#include "runtime/str.h"

enum { LOOK_EACH = 1 << 14 }; /* rows between two tests for an interrupt */

/* Which types a column can still have. */
typedef struct TableKind {
  bool some;                     /* a field that is not missing */
  bool missing;                  /* one that is */
  bool no_int, no_real, no_bool; /* one that is none of these */
  bool large;                    /* a whole number that an f64 does not hold */
} TableKind;

typedef struct Walk {
  TableFile *t;
  char *at, *end;
  uint64_t line;  /* of the row */
  uint64_t lines; /* ends of lines so far, in this row in quotes too */
  const char *row;
  bool stop[256];    /* ends a field that is not in quotes */
  bool missing[256]; /* begins a text that stands for a missing value */
  Err *err;
} Walk;

typedef struct Field {
  char *lo, *hi; /* without blanks and quotes */
  bool doubled;  /* it has doubled quotes */
  bool last;     /* of its row */
} Field;

static bool is_blank(const Walk *w, char c) {
  return (c == ' ' || c == '\t') && c != w->t->separator;
}

static Walk walk(TableFile *t, Err *e) {
  Walk w = {.t = t, .at = t->text + t->begin, .end = t->text + t->size, .err = e};
  w.lines = t->first_line;
  w.stop['\n'] = w.stop['\r'] = true;
  w.stop[(unsigned char)t->separator] = true;
  for (size_t i = 0; i < t->missing_count; i++)
    if (t->missing[i].n) w.missing[(unsigned char)*t->missing[i].s] = true;
  return w;
}

/* ---- errors */

static bool fail_at(const Walk *w, const char *place, const char *what) {
  uint64_t line = w->line, column = 1;
  for (const char *p = w->row; p < place; p++) {
    if (*p == '\n') {
      line++;
      column = 1;
    } else {
      column += ((unsigned char)*p & 0xc0) != 0x80;
    }
  }
  return err_set(w->err, "%s:%llu:%llu: %s", w->t->name, (unsigned long long)line,
                 (unsigned long long)column, what);
}

/* Bytes of a text that a message shows: part of its first line. */
static int shown(const char *s, size_t n) {
  size_t most = 40, k = 0;
  while (k < n && k < most && (unsigned char)s[k] >= ' ') k++;
  while (k < n && k && ((unsigned char)s[k] & 0xc0) == 0x80) k--; /* no half character */
  return (int)k;
}

static bool bad_field(const Walk *w, const TableColumn *c, const Field *f, const char *what) {
  Err text;
  err_set(&text, "`%.*s`%s%.*s%s %s", shown(f->lo, (size_t)(f->hi - f->lo)), f->lo,
          c->name.n ? " of column `" : "", shown(c->name.s, c->name.n), c->name.s,
          c->name.n ? "`" : "", what);
  return fail_at(w, f->lo, text.text);
}

/* ---- fields */

/* To the next row; false at the end. */
static bool next_row(Walk *w) {
  while (w->at < w->end) {
    char *p = w->at;
    while (p < w->end && is_blank(w, *p)) p++;
    if (p < w->end && *p != '\n' && *p != '\r') {
      w->line = w->lines;
      w->row = w->at;
      return true;
    }
    if (p < w->end) {
      p += *p == '\r' && p + 1 < w->end && p[1] == '\n' ? 2 : 1;
      w->lines++;
    }
    w->at = p;
  }
  return false;
}

/* Behind a field: passes over the separator or the end of the line. */
static bool end_field(Walk *w, Field *f, char *p) {
  f->last = p == w->end || *p != w->t->separator;
  if (f->last && p < w->end) {
    p += *p == '\r' && p + 1 < w->end && p[1] == '\n' ? 2 : 1;
    w->lines++;
  } else if (!f->last) {
    p++;
  }
  w->at = p;
  return true;
}

static bool quoted(Walk *w, Field *f, char *p) {
  char *open = p++;
  f->lo = p;
  f->doubled = false;
  for (;; p++) {
    if (p == w->end) return fail_at(w, open, "a quote has no end");
    if (*p == '\n') w->lines++;
    if (*p != '"') continue;
    if (p + 1 == w->end || p[1] != '"') break;
    f->doubled = true;
    p++;
  }
  f->hi = p++;
  while (p < w->end && is_blank(w, *p)) p++;
  if (p < w->end && !w->stop[(unsigned char)*p])
    return fail_at(w, p, "the field goes on behind its quotes; a quote in quotes is doubled");
  return end_field(w, f, p);
}

static bool next_field(Walk *w, Field *f) {
  char *p = w->at;
  while (p < w->end && is_blank(w, *p)) p++;
  if (p < w->end && *p == '"') return quoted(w, f, p);
  f->lo = p;
  f->doubled = false;
  while (p < w->end && !w->stop[(unsigned char)*p]) p++;
  f->hi = p;
  while (f->hi > f->lo && is_blank(w, f->hi[-1])) f->hi--;
  return end_field(w, f, p);
}

/* Takes out the second of two quotes, in the text itself: a field is read once more at most. */
static CsvText text_of(const Field *f) {
  if (!f->doubled) return (CsvText){f->lo, (size_t)(f->hi - f->lo)};
  char *to = f->lo;
  for (const char *p = f->lo; p < f->hi; p++) {
    *to++ = *p;
    p += *p == '"';
  }
  return (CsvText){f->lo, (size_t)(to - f->lo)};
}

static bool is_missing(const Walk *w, const Field *f) {
  const TableFile *t = w->t;
  size_t n = (size_t)(f->hi - f->lo);
  if (n && !w->missing[(unsigned char)*f->lo]) return false;
  for (size_t i = 0; i < t->missing_count; i++)
    if (t->missing[i].n == n && !memcmp(t->missing[i].s, f->lo, n)) return true;
  return false;
}

/* Each field of each row; false after err_set. */
static bool each_field(TableFile *t, bool (*f)(Walk *w, size_t column, int64_t row, const Field *),
                       Err *e) {
  Walk w = walk(t, e);
  int64_t row = 0;
  for (; next_row(&w); row++) {
    if (row % LOOK_EACH == 0 && interrupt_asked(t->mem->stop)) return err_interrupted(e);
    Field field = {.last = false};
    size_t n = 0;
    for (; !field.last; n++) {
      if (!next_field(&w, &field)) return false;
      if (n < t->count && t->col[n].want != TABLE_SKIP && !f(&w, n, row, &field)) return false;
    }
    if (n != t->count)
      return err_set(e, "%s:%llu: %zu field%s, but the first line has %zu", t->name,
                     (unsigned long long)w.line, n, n == 1 ? "" : "s", t->count);
  }
  t->rows = row;
  return true;
}

/* ---- the first time: types */

static bool is_word(const Field *f, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(f->hi - f->lo) != n) return false;
  for (size_t i = 0; i < n; i++)
    if ((f->lo[i] | 32) != word[i]) return false;
  return true;
}

/* A number: sign, digits, point, exponent. */
static void look_at_number(TableKind *k, const Field *f) {
  const char *p = f->lo + (*f->lo == '-' || *f->lo == '+'), *digits = p;
  while (p < f->hi && *p >= '0' && *p <= '9') p++;
  size_t n = (size_t)(p - digits);
  if (p == f->hi && n) {
    int64_t v = 0;
    bool zeros = n > 1 && *digits == '0';
    if (n < 16 && !zeros) return;
    if (zeros || !str_to_i64(f->lo, (size_t)(f->hi - f->lo), &v))
      k->no_int = k->no_real = true;
    else if (v > 1LL << 53 || v < -(1LL << 53))
      k->large = true;
    return;
  }
  k->no_int = true;
  double x;
  bool real = n > 0;
  if (p < f->hi && *p == '.') {
    const char *q = ++p;
    while (p < f->hi && *p >= '0' && *p <= '9') p++;
    real = n + (size_t)(p - q) > 0;
  }
  if (p < f->hi || !real) real = str_to_f64(f->lo, (size_t)(f->hi - f->lo), &x);
  if (!real) k->no_real = true;
}

static bool look(Walk *w, size_t column, int64_t row, const Field *f) {
  TableColumn *c = &w->t->col[column];
  TableKind *k = c->kind;
  (void)row;
  if (c->want != TABLE_FIND) return true;
  if (is_missing(w, f)) {
    k->missing = true;
    return true;
  }
  k->some = true;
  if (!k->no_int || !k->no_real) {
    if (f->lo == f->hi)
      k->no_int = k->no_real = true;
    else
      look_at_number(k, f);
  }
  if (!k->no_bool) k->no_bool = !is_word(f, "true") && !is_word(f, "false");
  return true;
}

static void settle(TableColumn *c) {
  const TableKind *k = c->kind;
  if (c->want != TABLE_FIND) return;
  c->want = TABLE_DTYPE;
  if (!k->some)
    c->dtype = DT_F64;
  else if (!k->no_int && !k->missing)
    c->dtype = DT_I64;
  else if (!k->no_real && !k->large)
    c->dtype = DT_F64;
  else if (!k->no_bool && !k->missing)
    c->dtype = DT_BOOL;
  else
    c->want = TABLE_TEXTS;
}

/* ---- the second time: values */

static bool put_number(Walk *w, const TableColumn *c, int64_t row, const Field *f, bool missing) {
  size_t n = (size_t)(f->hi - f->lo);
  void *data = c->t->store->data;
  int64_t v;
  if (c->dtype == DT_F64) {
    double *x = (double *)data + row;
    if (missing) *x = NAN;
    return missing || str_to_f64(f->lo, n, x) || bad_field(w, c, f, "is not a number");
  }
  if (c->dtype == DT_F32) {
    float *x = (float *)data + row;
    if (missing) *x = NAN;
    return missing || str_to_f32(f->lo, n, x) || bad_field(w, c, f, "is not a number");
  }
  if (missing)
    return bad_field(w, c, f,
                     c->dtype == DT_BOOL ? "is missing, and a bool cannot be"
                                         : "is missing, and an int cannot be");
  if (c->dtype == DT_BOOL) {
    bool yes = is_word(f, "true");
    if (!yes && !is_word(f, "false")) return bad_field(w, c, f, "is neither true nor false");
    ((uint8_t *)data)[row] = yes;
    return true;
  }
  if (!str_to_i64(f->lo, n, &v) || !dt_holds(c->dtype, v)) {
    Err what;
    err_set(&what, "is no whole number that fits %s", dtype_info[c->dtype].name);
    return bad_field(w, c, f, what.text);
  }
  switch (dt_size(c->dtype)) {
  case 1: ((uint8_t *)data)[row] = (uint8_t)v; break;
  case 2: ((int16_t *)data)[row] = (int16_t)v; break;
  case 4: ((int32_t *)data)[row] = (int32_t)v; break;
  default: ((int64_t *)data)[row] = v;
  }
  return true;
}

static bool fill(Walk *w, size_t column, int64_t row, const Field *f) {
  const TableColumn *c = &w->t->col[column];
  bool missing = is_missing(w, f);
  if (c->want == TABLE_DTYPE) return put_number(w, c, row, f, missing);
  c->texts[row] = missing ? (CsvText){"", 0} : text_of(f);
  return true;
}

bool table_fill(TableFile *t, Err *e) {
  for (size_t i = 0; i < t->count; i++) {
    t->col[i].kind = arena_try(&t->arena, sizeof(TableKind));
    if (!t->col[i].kind) return err_nomem(e, t->name);
  }
  if (!each_field(t, look, e)) return false;
  for (size_t i = 0; i < t->count; i++) {
    TableColumn *c = &t->col[i];
    settle(c);
    if (c->want == TABLE_SKIP) continue;
    if (c->want == TABLE_DTYPE)
      c->t = tn_new(t->mem, DEV_CPU, c->dtype, 1, &t->rows);
    else
      c->texts = mem_try(t->mem, NULL, 0, (size_t)t->rows * sizeof *c->texts + 1);
    if (!c->t && !c->texts) return err_nomem(e, t->name);
  }
  return each_field(t, fill, e);
}

/* ---- the first line */

static char find_separator(const TableFile *t) {
  static const char tried[] = ",;\t|";
  size_t count[sizeof tried] = {0}, best = 0;
  bool in_quotes = false;
  for (size_t i = t->begin; i < t->size; i++) {
    char c = t->text[i];
    if (c == '"') in_quotes = !in_quotes;
    if (in_quotes) continue;
    if (c == '\n' || c == '\r') break;
    const char *k = c ? strchr(tried, c) : NULL;
    if (k) count[k - tried]++;
  }
  for (size_t k = 1; k < sizeof tried - 1; k++)
    if (count[k] > count[best]) best = k;
  return tried[best];
}

static bool read_names(TableFile *t, Err *e) {
  Walk w = walk(t, e);
  if (!next_row(&w)) return err_set(e, "%s: holds no table", t->name);
  t->begin = (size_t)(w.row - t->text);
  t->first_line = w.line;
  Walk again = w;
  Field f = {.last = false};
  while (!f.last) {
    if (!next_field(&w, &f)) return false;
    t->count++;
  }
  if (t->count > PTRDIFF_MAX / sizeof *t->col) return err_nomem(e, t->name);
  t->col = arena_try(&t->arena, t->count * sizeof *t->col);
  if (!t->col) return err_nomem(e, t->name);
  for (size_t i = 0; i < t->count; i++) {
    if (!t->header) {
      t->col[i].name = (CsvText){"", 0};
      continue;
    }
    next_field(&again, &f);
    t->col[i].name = text_of(&f);
  }
  if (t->header) {
    t->begin = (size_t)(w.at - t->text);
    t->first_line = w.lines;
  }
  return true;
}

static bool start(TableFile *t, Err *e) {
  if (!lines_valid(t->name, t->text, t->size, e)) return false;
  if (t->size >= 3 && !memcmp(t->text, "\xef\xbb\xbf", 3)) t->begin = 3;
  if (!t->separator) t->separator = find_separator(t);
  return read_names(t, e);
}

static bool start_or_close(TableFile *t, Err *e) {
  if (start(t, e)) return true;
  table_close(t);
  return false;
}

static TableFile table(Mem *m, const char *name, char separator, bool header,
                       const CsvText *missing, size_t missing_count) {
  TableFile t = {.mem = m, .name = name, .separator = separator, .header = header};
  t.missing = missing;
  t.missing_count = missing_count;
  t.first_line = 1;
  arena_init(&t.arena, m);
  return t;
}

bool table_open(TableFile *t, Mem *m, const char *path, char separator, bool header,
                const CsvText *missing, size_t missing_count, Err *e) {
  *t = table(m, path, separator, header, missing, missing_count);
  t->text = file_read(m, path, &t->size, e);
  return t->text && start_or_close(t, e);
}

bool table_parse(TableFile *t, Mem *m, const char *name, const char *text, size_t n, char separator,
                 bool header, const CsvText *missing, size_t missing_count, Err *e) {
  *t = table(m, name, separator, header, missing, missing_count);
  t->text = mem_try(m, NULL, 0, n + 1);
  if (!t->text) return err_nomem(e, name);
  if (n) memcpy(t->text, text, n);
  t->size = n;
  return start_or_close(t, e);
}

void table_close(TableFile *t) {
  for (size_t i = 0; t->col && i < t->count; i++) {
    tn_unref(t->col[i].t);
    if (t->col[i].texts)
      mem_free(t->mem, t->col[i].texts, (size_t)t->rows * sizeof *t->col[i].texts + 1);
  }
  if (t->text) mem_free(t->mem, t->text, t->size + 1);
  arena_free(&t->arena);
  t->text = NULL;
  t->col = NULL;
}
