/* Values as text: scalars, formats of holes, tables (rules 96, 97).
 *
 * In: a value and perhaps a format. Out: text in a Buf. Without a format, a scalar prints as the
 * shortest text that reads back in its dtype. A tensor alone prints as its type and an aligned
 * table, inside of another value on one line. No locale is used. Invariant: the text depends on the
 * value only, and its length is bounded (big tensors and lists are elided).
 */
#include "lang/value/format.h"

#include <math.h>
#include <string.h>

#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/value/columns.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"

enum {
  PRINT_DEEP = 64,   /* deeper values are left out */
  TABLE_MOST = 1000, /* elements of a table that is printed in full */
  EDGE = 3           /* items kept at each edge */
};

/* ---- formats as text */

bool format_parse(const char *text, size_t n, Format *out) {
  size_t i = 0;
  *out = (Format){.digits = -1};
  if (i < n && strchr("<>^", text[i]) && text[i]) out->align = text[i++];
  if (i < n && text[i] == '+') out->plus = true, i++;
  if (i < n && text[i] == '0') out->zero = true, i++;
  for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
    out->width = out->width * 10 + (text[i] - '0');
    if (out->width > 999) return false;
  }
  if (i < n && text[i] == ',') out->comma = true, i++;
  if (i < n && text[i] == '.') {
    if (++i == n || text[i] < '0' || text[i] > '9') return false;
    out->digits = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
      out->digits = out->digits * 10 + (text[i] - '0');
      if (out->digits > 99) return false;
    }
  }
  if (i == n) return true;
  if (n - i == 3 && (text[i] == 'K' || text[i] == 'M' || text[i] == 'G') &&
      !memcmp(text + i + 1, "iB", 2)) {
    out->kind = text[i];
    return true;
  }
  if (n - i == 1 && text[i] && strchr("dxefg%", text[i])) {
    out->kind = text[i];
    return true;
  }
  return false;
}

void format_write(Buf *out, const Format *f) {
  if (f->align) buf_putc(out, f->align);
  if (f->plus) buf_putc(out, '+');
  if (f->zero) buf_putc(out, '0');
  if (f->width) buf_printf(out, "%d", f->width);
  if (f->comma) buf_putc(out, ',');
  if (f->digits >= 0) buf_printf(out, ".%d", f->digits);
  if (f->kind == 'K' || f->kind == 'M' || f->kind == 'G')
    buf_printf(out, "%ciB", f->kind);
  else if (f->kind)
    buf_putc(out, f->kind);
}

static bool is_plain(const Format *f) {
  return !f->plus && !f->zero && !f->comma && f->digits < 0 && !f->kind;
}

const char *format_misfit(const Format *f, DType dt) {
  if (!f) return NULL;
  if (dt == DT_BOOL) return is_plain(f) ? NULL : "a bool takes alignment and width only";
  if (dt_float(dt) && f->kind == 'd') return "`d` is for ints: int(x) truncates, round(x) rounds";
  if (dt_float(dt) && f->kind == 'x') return "`x` is for ints";
  if (dt_int(dt) && f->digits >= 0 && (f->kind == 'd' || f->kind == 'x'))
    return "an int has no digits after the point";
  return NULL;
}

/* ---- one number */

typedef struct Num {
  DType dt;
  double x;  /* floats */
  int64_t i; /* ints and bools */
} Num;

static Num element(const Tensor *t, int64_t i) {
  Num n = {.dt = t->dtype};
  if (dt_float(t->dtype))
    n.x = tn_get_f64(t, i);
  else
    n.i = tn_get_i64(t, i);
  return n;
}

static void shortest(Buf *out, Num n) {
  char b[64];
  int k;
  switch (n.dt) {
  case DT_BOOL: buf_puts(out, n.i ? "true" : "false"); return;
  case DT_F16: k = str_f16(b, (float)n.x); break;
  case DT_BF16: k = str_bf16(b, (float)n.x); break;
  case DT_F32: k = str_f32(b, (float)n.x); break;
  case DT_F64: k = str_f64(b, n.x); break;
  default: buf_int(out, n.i); return;
  }
  buf_put(out, b, (size_t)k);
}

/* Pads the text from byte `from` of out to the width; columns count, not bytes. */
static void align(Buf *out, size_t from, int width, char how) {
  int cols = 0;
  for (size_t i = from; i < out->n;) {
    uint32_t cp;
    i += (size_t)str_utf8(out->s + i, out->n - i, &cp);
    cols += str_width(cp);
  }
  if (cols >= width) return;
  int pad = width - cols, left = how == '>' ? pad : how == '^' ? pad / 2 : 0;
  for (int i = 0; i < pad; i++) buf_putc(out, ' ');
  size_t n = out->n - from - (size_t)pad;
  memmove(out->s + from + left, out->s + from, n);
  memset(out->s + from, ' ', (size_t)left);
}

/* Puts a comma after every third digit of the leading run of digits at byte `from`. */
static void thousands(Buf *out, size_t from) {
  size_t n = 0;
  while (from + n < out->n && out->s[from + n] >= '0' && out->s[from + n] <= '9') n++;
  size_t commas = n ? (n - 1) / 3 : 0;
  for (size_t i = 0; i < commas; i++) buf_putc(out, ',');
  char *d = out->s + from;
  memmove(d + n + commas, d + n, out->n - commas - from - n);
  for (size_t i = n, put = n + commas; i > 0; i--) {
    d[--put] = d[i - 1];
    if (commas && (n - i + 1) % 3 == 0) {
      d[--put] = ',';
      commas--;
    }
  }
}

/* |x| without an exponent. digits < 0: 6 significant ones; below 1e-3 6 decimals, from 1e6 none. */
static void scaled(Buf *out, double a, int digits) {
  if (digits >= 0)
    buf_printf(out, "%.*f", digits, a);
  else if (a != 0 && (a < 1e-3 || a >= 1e6))
    buf_printf(out, "%.*f", a < 1 ? 6 : 0, a);
  else
    buf_printf(out, "%.6g", a);
}

static void number(Buf *out, Num n, const Format *f) {
  size_t from = out->n;
  if (!f || (is_plain(f) && !f->width)) {
    shortest(out, n);
    return;
  }
  if (n.dt == DT_BOOL) {
    shortest(out, n);
    align(out, from, f->width, f->align ? f->align : '<');
    return;
  }
  bool is_int = !dt_float(n.dt), negative = is_int ? n.i < 0 : signbit(n.x) && !isnan(n.x);
  double a = is_int ? fabs((double)n.i) : fabs(n.x);
  bool finite = is_int || isfinite(n.x);
  if (negative)
    buf_putc(out, '-');
  else if (f->plus && !(!is_int && isnan(n.x)))
    buf_putc(out, '+');
  size_t digits = out->n;
  uint64_t u = n.i < 0 ? 0 - (uint64_t)n.i : (uint64_t)n.i;
  if (!finite) {
    buf_puts(out, isnan(n.x) ? "nan" : "inf");
  } else {
    int d = f->digits < 0 ? 6 : f->digits;
    switch (f->kind) {
    case 'x': buf_printf(out, "%llx", (unsigned long long)u); break;
    case 'e': buf_printf(out, "%.*e", d, a); break;
    case 'f': buf_printf(out, "%.*f", d, a); break;
    case 'g': buf_printf(out, "%.*g", d, a); break;
    case '%': scaled(out, a * 100, f->digits); break;
    case 'K': scaled(out, a / 1024, f->digits); break;
    case 'M': scaled(out, a / (1024 * 1024), f->digits); break;
    case 'G': scaled(out, a / (1024.0 * 1024 * 1024), f->digits); break;
    default:
      if (is_int && f->digits < 0)
        buf_printf(out, "%llu", (unsigned long long)u);
      else if (f->digits >= 0)
        buf_printf(out, "%.*g", d, a);
      else {
        Num b = n;
        b.x = a;
        shortest(out, b);
      }
    }
    if (f->comma && f->kind != 'x') thousands(out, digits);
  }
  if (f->kind == '%')
    buf_putc(out, '%');
  else if (f->kind == 'K' || f->kind == 'M' || f->kind == 'G')
    buf_printf(out, "%ciB", f->kind);
  if (f->zero && finite && !f->align) {
    size_t n0 = out->n - from;
    if (n0 < (size_t)f->width) {
      size_t pad = (size_t)f->width - n0;
      for (size_t i = 0; i < pad; i++) buf_putc(out, '0');
      memmove(out->s + digits + pad, out->s + digits, out->n - pad - digits);
      memset(out->s + digits, '0', pad);
    }
  }
  align(out, from, f->width, f->align ? f->align : '>');
}

/* ---- cells of tensors */

/* How the cells of one tensor are written. */
typedef struct Cells {
  const Tensor *t;
  const Format *f; /* inline form only */
  enum { CELL_SHORT, CELL_FIXED, CELL_SCI } style;
  int digits;
  int64_t edge;               /* items kept at each end of an axis, 0 = all */
  int64_t step[CKL_MAX_RANK]; /* elements per item of an axis */
} Cells;

static void cell(Buf *out, const Cells *c, int64_t i) {
  Num n = element(c->t, i);
  if (c->style == CELL_SHORT || !isfinite(n.x))
    number(out, n, c->f);
  else if (c->style == CELL_FIXED)
    buf_printf(out, "%.*f", c->digits, n.x);
  else
    buf_printf(out, "%.*e", c->digits, n.x);
}

static bool gap_at(const Cells *c, int axis, int64_t k) {
  return c->edge && c->t->dim[axis] > 2 * c->edge && k == c->edge;
}

static void cells_init(Cells *c, const Tensor *t, const Format *f, int64_t most) {
  *c = (Cells){.t = t, .f = f};
  uint64_t step = 1; /* unsigned: beside a size of 0 the product may overflow */
  for (int k = t->rank - 1; k >= 0; k--) {
    c->step[k] = (int64_t)step;
    step *= (uint64_t)t->dim[k];
  }
  int64_t n = tn_count(t), longest = 0;
  for (int k = 0; k < t->rank; k++)
    if (t->dim[k] > longest) longest = t->dim[k];
  if (n <= most && longest <= most) return;
  /* With many axes, even the corners are many: keep fewer items at each edge. */
  for (c->edge = EDGE; c->edge > 1; c->edge--) {
    double shown = 1;
    for (int k = 0; k < t->rank; k++)
      shown *= (double)(t->dim[k] < 2 * c->edge ? t->dim[k] : 2 * c->edge);
    if (shown <= 2.0 * TABLE_MOST) break;
  }
}

/* Calls f for every shown element. */
static void each_shown(const Cells *c, int axis, int64_t at, void (*f)(void *ud, int64_t i),
                       void *ud) {
  if (axis == c->t->rank) {
    f(ud, at);
    return;
  }
  int64_t n = c->t->dim[axis];
  for (int64_t k = 0; k < n; k++) {
    if (gap_at(c, axis, k)) k = n - c->edge;
    each_shown(c, axis + 1, at + k * c->step[axis], f, ud);
  }
}

typedef struct Survey {
  const Cells *c;
  Buf tmp;
  double most, least; /* of |x| of finite elements; `least` ignores zeros */
  int fixed, sci;     /* decimals that show every element exactly, in each style */
  int width;
} Survey;

static void survey(void *ud, int64_t i) {
  Survey *v = ud;
  Num n = element(v->c->t, i);
  if (!isfinite(n.x)) return;
  double a = fabs(n.x);
  if (a > v->most) v->most = a;
  if (a != 0 && a < v->least) v->least = a;
  v->tmp.n = 0;
  shortest(&v->tmp, n);
  const char *p = v->tmp.s + (*v->tmp.s == '-');
  int before = 0, after = 0, lead = 0, shown = 0;
  bool point = false;
  for (; *p && *p != 'e'; p++) {
    if (*p == '.') {
      point = true;
      continue;
    }
    if (*p != '0')
      shown = before + after + 1 - lead;
    else if (!shown)
      lead++; /* zeros in front */
    if (point)
      after++;
    else
      before++;
  }
  int exponent = 0, sign = 1;
  if (*p == 'e') {
    p++;
    if (*p == '-') sign = -1;
    if (*p == '-' || *p == '+') p++;
    for (; *p >= '0' && *p <= '9'; p++) exponent = exponent * 10 + (*p - '0');
  }
  if (a == 0) return;
  int decimals = after - sign * exponent;
  if (after == 1 && !exponent && strstr(v->tmp.s, ".0")) decimals = 1;
  if (decimals > v->fixed) v->fixed = decimals;
  if (shown - 1 > v->sci) v->sci = shown - 1;
}

static void measure(void *ud, int64_t i) {
  Survey *v = ud;
  v->tmp.n = 0;
  cell(&v->tmp, v->c, i);
  if ((int)v->tmp.n > v->width) v->width = (int)v->tmp.n;
}

/* Up to 4 decimals, the same for all elements; with exponents if the numbers are far from 1. */
static void choose_style(Session *s, Cells *c) {
  if (!dt_float(c->t->dtype)) return;
  Survey v = {.c = c, .least = INFINITY, .fixed = 1, .sci = 1};
  buf_init_arena(&v.tmp, &s->scratch);
  buf_puts(&v.tmp, "");
  each_shown(c, 0, 0, survey, &v);
  bool far = v.most >= 1e6 || (v.least < 1e-4 && v.fixed > 4);
  c->style = far ? CELL_SCI : CELL_FIXED;
  int d = far ? v.sci : v.fixed;
  c->digits = d < 4 ? d : 4;
}

static void in_line(Buf *out, const Cells *c, int axis, int64_t at) {
  if (axis == c->t->rank) {
    cell(out, c, at);
    return;
  }
  buf_putc(out, '[');
  int64_t n = c->t->dim[axis];
  for (int64_t k = 0; k < n; k++) {
    if (k) buf_putc(out, ' ');
    if (gap_at(c, axis, k)) {
      buf_puts(out, "... ");
      k = n - c->edge;
    }
    in_line(out, c, axis + 1, at + k * c->step[axis]);
  }
  buf_putc(out, ']');
}

static void put_type(Buf *out, const Tensor *t) {
  buf_puts(out, dtype_info[t->dtype].name);
  for (int i = 0; i < t->rank; i++) buf_printf(out, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
  if (t->rank) buf_putc(out, ']');
  if (t->store->dev == DEV_SIM) buf_puts(out, " on sim");
}

void print_line(Buf *out, const Tensor *t, const Format *f, bool inside) {
  if (inside && tn_count(t) > PRINT_INLINE_MOST) {
    put_type(out, t);
    return;
  }
  Cells c;
  cells_init(&c, t, f, PRINT_INLINE_MOST);
  in_line(out, &c, 0, 0);
}

typedef struct TableRows {
  const Cells *c;
  Buf *out;
  int width;
  int column;
} TableRows;

static void begin_line(TableRows *r, int indent) {
  for (int i = 0; i < indent; i++) buf_putc(r->out, ' ');
  r->column = indent;
}

static void rows(TableRows *r, int axis, int64_t at) {
  const Cells *c = r->c;
  int64_t n = c->t->dim[axis];
  buf_putc(r->out, '[');
  r->column++;
  bool last = axis + 1 == c->t->rank;
  for (int64_t k = 0; k < n; k++) {
    bool gap = gap_at(c, axis, k);
    if (last) {
      int need = gap ? 3 : r->width;
      if (k && r->column + 1 + need > PRINT_WIDTH) {
        buf_putc(r->out, '\n');
        begin_line(r, 2 + c->t->rank);
      } else if (k) {
        buf_putc(r->out, ' ');
        r->column++;
      }
      if (gap) {
        buf_puts(r->out, "...");
        k = n - c->edge - 1;
      } else {
        size_t from = r->out->n;
        cell(r->out, c, at + k * c->step[axis]);
        align(r->out, from, r->width, '>');
      }
      r->column += need;
    } else {
      if (k) {
        buf_putc(r->out, '\n');
        begin_line(r, 3 + axis);
      }
      if (gap) {
        buf_puts(r->out, "...");
        k = n - c->edge - 1;
      } else {
        rows(r, axis + 1, at + k * c->step[axis]);
      }
    }
  }
  buf_putc(r->out, ']');
  r->column++;
}

void print_table(Session *s, Buf *out, const Tensor *t) {
  Cells c;
  cells_init(&c, t, NULL, TABLE_MOST);
  if (tn_count(t) == 0) {
    buf_puts(out, "  []\n");
    return;
  }
  choose_style(s, &c);
  Survey v = {.c = &c};
  buf_init_arena(&v.tmp, &s->scratch);
  each_shown(&c, 0, 0, measure, &v);
  TableRows r = {.c = &c, .out = out, .width = v.width};
  begin_line(&r, 2);
  if (t->rank == 0)
    cell(out, &c, 0);
  else
    rows(&r, 0, 0);
  buf_putc(out, '\n');
}

void print_cells(Session *s, const Tensor *t, int64_t n, const char **out) {
  Tensor head = *t;
  Cells c;
  head.dim[0] = n;
  cells_init(&c, &head, NULL, TABLE_MOST);
  if (n) choose_style(s, &c);
  for (int64_t i = 0; i < n; i++) {
    Buf b;
    buf_init_arena(&b, &s->scratch);
    cell(&b, &c, i);
    out[i] = b.s;
  }
}

void print_typed(Session *s, Buf *out, const Tensor *t) {
  put_type(out, t);
  buf_putc(out, '\n');
  print_table(s, out, t);
  out->s[--out->n] = 0; /* the last newline */
}

void print_stats(Session *s, Buf *out, const Tensor *t) {
  if (t->dtype == DT_BOOL) return;
  int64_t n = tn_count(t), nans = 0, seen = 0;
  if (n == 0) return;
  Cells c;
  cells_init(&c, t, NULL, TABLE_MOST);
  choose_style(s, &c);
  if (c.style == CELL_FIXED && c.digits < 2) c.digits = 2;
  double lo = INFINITY, hi = -INFINITY, sum = 0;
  int64_t ilo = INT64_MAX, ihi = INT64_MIN;
  bool is_int = dt_int(t->dtype);
  for (int64_t i = 0; i < n; i++) {
    if (is_int) {
      int64_t k = tn_get_i64(t, i);
      if (k < ilo) ilo = k;
      if (k > ihi) ihi = k;
      sum += (double)k;
      seen++;
      continue;
    }
    double x = tn_get_f64(t, i);
    if (isnan(x)) {
      nans++;
      continue;
    }
    seen++;
    if (x < lo) lo = x;
    if (x > hi) hi = x;
    sum += x;
  }
  if (seen && is_int) {
    buf_printf(out, "   min %lld  mean %.2f  max %lld", (long long)ilo, sum / (double)seen,
               (long long)ihi);
  } else if (seen) {
    double mean = sum / (double)seen;
    if (c.style == CELL_SCI)
      buf_printf(out, "   min %.*e  mean %.*e  max %.*e", c.digits, lo, c.digits, mean, c.digits,
                 hi);
    else
      buf_printf(out, "   min %.*f  mean %.*f  max %.*f", c.digits, lo, c.digits, mean, c.digits,
                 hi);
  }
  if (nans) buf_printf(out, "   nan %lld", (long long)nans);
}

/* ---- values */

static void count_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  (void)s;
  (void)path;
  (void)owner;
  (void)f;
  if (p) ++*(size_t *)ud;
}

void print_quoted(Buf *out, const StrObj *t, bool program) {
  buf_putc(out, '"');
  for (size_t i = 0; i < t->n; i++) {
    unsigned char c = (unsigned char)t->s[i];
    if (c == '"' || c == '\\') buf_putc(out, '\\');
    if (program && (c == '{' || c == '}')) buf_putc(out, (char)c);
    if (c == '\n')
      buf_puts(out, "\\n");
    else if (c == '\t')
      buf_puts(out, "\\t");
    else if (c < ' ' || (program && c == 0x7f))
      buf_printf(out, "\\u{%x}", c);
    else
      buf_putc(out, (char)c);
  }
  buf_putc(out, '"');
}

Value print_definite(Session *s, Value v, Span at) {
  bool weak = v_is_weak_list(v) && v.u.list->count;
  return weak ? op_as_tensor(s, v, DT_COUNT, at) : v;
}

static void inline_value(const Print *p, Value v, bool quoted, int depth);

static void misfit(const Print *p, const char *why, Value v) {
  fail_at(p->s, ERR_FORMAT, p->at, "the format does not go with %s: %s", value_type_text(p->s, v),
          why);
}

/* `names` or `keys` of the items, or neither; of a `set` the keys alone; of columns the long ones
 * by their type, as long tensors are. */
static void items(const Print *outer, size_t n, const Value *v, const Name *names,
                  const Value *keys, bool set, int depth) {
  bool columns = false;
  for (size_t i = 0; keys && i < n && !columns; i++)
    columns = v[i].tag == V_LIST && v[i].u.list->count > PRINT_INLINE_MOST;
  if (columns) columns = columns_in(n, v);
  Print inner = *outer, *p = &inner;
  inner.inside = true;
  for (size_t i = 0; i < n; i++) {
    if (i) buf_puts(p->out, ", ");
    if (n > TABLE_MOST && i == EDGE) {
      buf_puts(p->out, "..., ");
      i = n - EDGE;
    }
    if (names) buf_printf(p->out, "%s = ", names[i]);
    if (keys) buf_puts(p->out, dict_key_text(p->s, keys[i]));
    if (keys && set) continue;
    if (keys) buf_puts(p->out, ": ");
    if (columns && v[i].tag == V_LIST && v[i].u.list->count > PRINT_INLINE_MOST)
      buf_puts(p->out, value_type_text(p->s, v[i]));
    else
      inline_value(p, v[i], true, depth + 1);
  }
}

/* [k: v, ..]; set([k, ..]) if every value is unit. In brackets 1 and true would be one tensor. */
static void dict_inline(const Print *p, Value v, int depth) {
  size_t n;
  const Value *of = value_items(v, &n), *key = v.u.dict->keys;
  bool set = dict_is_set(v), numeric = n > 0, mixed = false;
  for (size_t i = 0; i < n; i++) {
    numeric &= key[i].tag != V_STR && key[i].tag != V_TUPLE;
    mixed |= key[i].tag != key[0].tag;
  }
  bool list = set && numeric && mixed;
  buf_puts(p->out, list ? "set(list(" : set ? "set([" : "[");
  items(p, n, of, NULL, key, set, depth);
  buf_puts(p->out, list ? "))" : set ? "])" : n ? "]" : ":]");
}

static void inline_value(const Print *p, Value v, bool quoted, int depth) {
  stack_check();
  Session *s = p->s;
  Buf *out = p->out;
  if (depth > PRINT_DEEP || (depth && value_is_vast(v))) {
    buf_puts(out, "..");
    return;
  }
  const char *why;
  switch ((ValueTag)v.tag) {
  case V_BOOL:
  case V_INT:
  case V_FLOAT: {
    Num n = {v.tag == V_BOOL ? DT_BOOL : v.tag == V_INT ? DT_I64 : DT_F64, 0, 0};
    if (v.tag == V_FLOAT)
      n.x = v.u.f;
    else
      n.i = v.u.i;
    if ((why = format_misfit(p->f, n.dt))) misfit(p, why, v);
    number(out, n, p->f);
    return;
  }
  case V_NODE:
  case V_DIM:
    if (p->hole)
      p->hole(p, v);
    else
      buf_puts(out, value_type_text(s, v));
    return;
  case V_TENSOR:
  case V_PARAM: {
    if (p->hole) {
      p->hole(p, v);
      return;
    }
    const Tensor *t = v_tensor_of(v);
    if ((why = format_misfit(p->f, t->dtype))) misfit(p, why, v);
    print_line(out, t, p->f, p->inside);
    return;
  }
  case V_LIST:
  case V_TUPLE: {
    const List *l = v.u.list;
    if (l->weak && l->count) {
      inline_value(p, print_definite(s, v, p->at), quoted, depth);
      return;
    }
    bool tuple = v.tag == V_TUPLE;
    buf_putc(out, tuple ? '(' : '[');
    items(p, l->count, l->items, NULL, NULL, false, depth);
    buf_puts(out, !tuple ? "]" : l->count == 1 ? ",)" : ")");
    return;
  }
  case V_RECORD:
    buf_putc(out, '(');
    items(p, v.u.rec->count, v.u.rec->items, v.u.rec->names, NULL, false, depth);
    buf_putc(out, ')');
    return;
  case V_DICT: dict_inline(p, v, depth); return;
  case V_RANGE:
    inline_value(p, v.u.range->lo, true, depth + 1);
    buf_puts(out, "..");
    inline_value(p, v.u.range->hi, true, depth + 1);
    return;
  default: break;
  }
  if (p->f && !is_plain(p->f)) misfit(p, "it takes alignment and width only", v);
  size_t from = out->n;
  switch ((ValueTag)v.tag) {
  case V_STR:
    if (quoted)
      print_quoted(out, v.u.str, false);
    else
      buf_put(out, v.u.str->s, v.u.str->n);
    break;
  case V_DTYPE: buf_puts(out, dtype_info[v.u.i].name); break;
  case V_INST: {
    size_t n = 0;
    walk_slots(s, v, count_slot, &n);
    buf_printf(out, "%s (%zu param%s)", value_type_text(s, v), n, n == 1 ? "" : "s");
    break;
  }
  default: buf_puts(out, value_type_text(s, v));
  }
  if (p->f) align(out, from, p->f->width, p->f->align ? p->f->align : '<');
}

void print_inline(const Print *p, Value v, bool quoted) {
  inline_value(p, v, quoted, 0);
}

void format_value(Session *s, Buf *out, Value v, const Format *f, Span at) {
  Print p = {.s = s, .out = out, .f = f, .at = at};
  inline_value(&p, v, false, 0);
}

void print_value(Session *s, Buf *out, Value v, bool nested) {
  v = print_definite(s, v, (Span){0});
  const Tensor *t = v_tensor_of(v);
  if (!nested && t && t->rank) {
    print_typed(s, out, t);
    return;
  }
  size_t n;
  const Column *columns = nested ? NULL : columns_of(s, v, &n, (Span){0});
  if (columns) {
    if (columns_show(s, out, columns, n)) out->s[--out->n] = 0; /* the last newline */
    return;
  }
  Print p = {.s = s, .out = out};
  inline_value(&p, v, nested, 0);
}
