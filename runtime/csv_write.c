/* Tables to text: one line a row, `,` between fields (RFC 4180).
 *
 * Invariant: csv_read reads the same numbers, and table_read (table_file.h) the same texts; so a
 * text is quoted where one of them would see a separator, the end of a line, a comment, blanks at
 * an end or an empty line. */
#include <string.h>

#include "runtime/csv.h"
#include "runtime/file.h"
#include "runtime/half.h"
#include "runtime/str.h"

enum { FLUSH = 1 << 16, NUMBER_ROOM = 48 };

typedef struct Out {
  FileOut file;
  size_t n;
  char buf[FLUSH];
  Err *err;
} Out;

static bool flush(Out *o) {
  size_t n = o->n;
  o->n = 0;
  return file_put(&o->file, o->buf, n, o->err);
}

static bool put(Out *o, const char *s, size_t n) {
  while (n) {
    if (o->n == FLUSH && !flush(o)) return false;
    size_t here = n < FLUSH - o->n ? n : FLUSH - o->n;
    memcpy(o->buf + o->n, s, here);
    o->n += here;
    s += here;
    n -= here;
  }
  return true;
}

static bool put_text(Out *o, CsvText t, bool alone) {
  bool quote = !t.n && alone;
  for (size_t i = 0; i < t.n && !quote; i++)
    quote = strchr(",;\t\"\r\n#", t.s[i]) && t.s[i]; /* a NUL is no end here */
  if (t.n) quote |= t.s[0] == ' ' || t.s[t.n - 1] == ' ';
  if (!quote) return put(o, t.s, t.n);
  if (!put(o, "\"", 1)) return false;
  for (size_t i = 0; i < t.n; i++)
    if ((t.s[i] == '"' && !put(o, "\"", 1)) || !put(o, t.s + i, 1)) return false;
  return put(o, "\"", 1);
}

static bool put_number(Out *o, const Tensor *t, int64_t i) {
  char text[NUMBER_ROOM];
  int n;
  double x = dt_float(t->dtype) ? tn_get_f64(t, i) : 0;
  switch (t->dtype) {
  case DT_BOOL: return tn_get_i64(t, i) ? put(o, "true", 4) : put(o, "false", 5);
  case DT_F16: n = str_f16(text, (float)x); break;
  case DT_BF16: n = str_bf16(text, (float)x); break;
  case DT_F32: n = str_f32(text, (float)x); break;
  case DT_F64: n = str_f64(text, x); break;
  default: n = str_i64(text, tn_get_i64(t, i));
  }
  return put(o, text, (size_t)n);
}

static bool put_rows(Out *o, const CsvText *header, size_t n, const CsvColumn *col, int64_t rows) {
  for (size_t k = 0; header && k < n; k++)
    if ((k && !put(o, ",", 1)) || !put_text(o, header[k], n == 1)) return false;
  if (header && !put(o, "\n", 1)) return false;
  for (int64_t i = 0; i < rows; i++) {
    for (size_t k = 0; k < n; k++) {
      int64_t at = col[k].first + i * col[k].step;
      if (k && !put(o, ",", 1)) return false;
      if (!(col[k].t ? put_number(o, col[k].t, at) : put_text(o, col[k].texts[at], n == 1)))
        return false;
    }
    if (!put(o, "\n", 1)) return false;
  }
  return flush(o);
}

bool csv_write(Mem *m, const char *file, const CsvText *header, size_t n, const CsvColumn *columns,
               int64_t rows, Err *e) {
  Out *o = mem_try(m, NULL, 0, sizeof *o);
  if (!o) return err_nomem(e, file);
  o->n = 0;
  o->err = e;
  bool ok = file_create(&o->file, m, file, e);
  if (ok && !(ok = put_rows(o, header, n, columns, rows))) file_cancel(&o->file);
  if (ok) ok = file_commit(&o->file, e);
  mem_free(m, o, sizeof *o);
  return ok;
}
