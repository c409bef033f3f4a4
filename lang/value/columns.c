/* Dicts of columns as text: a table with names, dtypes, missing values and the first rows.
 *
 * In: columns, tensors [n] or lists of n texts. Out: text in a Buf. Idea: nothing marks a dict as a
 * table, since equal values print the same. It is shown as one where its columns have one length
 * and it does not fit on one line whole; so small dicts print as they are written. Invariant: the
 * text has a bounded number of rows and columns, whatever the dict has; the names, dtypes and
 * missing values of columns that do not fit beside the others follow below.
 */
#include "lang/value/columns.h"

#include <math.h>
#include <string.h>

#include "lang/eval/ops.h"
#include "lang/value/dict.h"
#include "lang/value/format.h"

enum {
  ROWS_SHOWN = 8,  /* first rows */
  TEXT_MOST = 24,  /* code points of a text */
  NAME_MOST = 40,  /* of the name of a column */
  NAMED_MOST = 20, /* columns that are named below the table */
  GAP = 2          /* blanks between columns */
};

/* False: v is no list of texts. */
static bool texts_of(Session *s, Value v, Column *c) {
  if (!columns_texts(v)) return false;
  const List *l = v.u.list;
  size_t kept = l->count < PRINT_INLINE_MOST ? l->count : PRINT_INLINE_MOST;
  const char **texts = ARENA_ARRAY(&s->scratch, const char *, kept);
  for (size_t i = 0; i < l->count; i++) {
    const StrObj *t = l->items[i].u.str;
    c->empty += !t->n;
    if (i >= kept) continue;
    Buf b;
    buf_init_arena(&b, &s->scratch);
    print_quoted(&b, t, false);
    texts[i] = b.s;
  }
  c->texts = texts;
  c->count = l->count;
  return true;
}

bool columns_texts(Value v) {
  bool all = v.tag == V_LIST && !v.u.list->weak && v.u.list->count;
  for (size_t i = 0; all && i < v.u.list->count; i++) all = v.u.list->items[i].tag == V_STR;
  return all;
}

bool columns_in(size_t n, const Value *items) {
  bool all = n > 0;
  for (size_t i = 0; all && i < n; i++) {
    const Tensor *t = v_tensor_of(items[i]);
    all = t ? t->rank == 1
            : items[i].tag == V_NODE || v_is_weak_list(items[i]) || columns_texts(items[i]);
  }
  return all;
}

Column *columns_of(Session *s, Value v, size_t *n, Span at) {
  if (v.tag != V_DICT) return NULL;
  const Value *items = value_items(v, n);
  if (!*n) return NULL;
  Column *c = ARENA_ARRAY(&s->scratch, Column, *n);
  for (size_t i = 0; i < *n; i++) {
    c[i].key = dict_key_text(s, v.u.dict->keys[i]);
    c[i].v = print_definite(s, items[i], at);
    if (texts_of(s, c[i].v, &c[i])) continue;
    if (c[i].v.tag == V_LIST || !v_is_tensor(c[i].v)) return NULL;
    if (op_type_of(s, c[i].v).rank != 1) return NULL;
    c[i].t = v_tensor_of(c[i].v);
  }
  return c;
}

static int64_t rows_of(const Column *c) {
  return c->t ? c->t->dim[0] : (int64_t)c->count;
}

static const char *type_of(const Column *c) {
  return c->t ? dtype_info[c->t->dtype].name : "str";
}

static int64_t missing(const Column *c) {
  int64_t n = 0, rows = rows_of(c);
  if (!c->t) return c->empty;
  if (dt_float(c->t->dtype))
    for (int64_t i = 0; i < rows; i++) n += isnan(tn_get_f64(c->t, i)) != 0;
  return n;
}

/* ---- one line */

static void put_line(Buf *out, const Column *c, size_t n) {
  for (size_t i = 0; i < n; i++) {
    buf_printf(out, "%s%s: ", i ? ", " : "[", c[i].key);
    if (c[i].t)
      print_line(out, c[i].t, NULL, true);
    else if (c[i].count > PRINT_INLINE_MOST)
      buf_printf(out, "list of %zu", c[i].count);
    else
      for (size_t k = 0; k < c[i].count; k++)
        buf_printf(out, "%s%s%s", k ? ", " : "[", c[i].texts[k], k + 1 == c[i].count ? "]" : "");
  }
  buf_putc(out, ']');
}

/* ---- table */

/* A text, cut to so many code points; its quote at the end goes with what is cut. */
static const char *cut(Session *s, const char *text, int most) {
  size_t n = strlen(text), i = 0;
  for (int k = 0; i < n && k < most; k++) {
    uint32_t cp;
    i += (size_t)str_utf8(text + i, n - i, &cp);
  }
  if (i == n) return text;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_put(&b, text, i);
  buf_puts(&b, "..");
  return b.s;
}

typedef struct Shown {
  const char *cell[ROWS_SHOWN + 3]; /* name, dtype, missing, then rows */
  int width;
  bool left;
} Shown;

enum { NAME, DTYPE, MISSING, FIRST };

static int width_of(const char *text) {
  int width = 0;
  for (size_t i = 0, n = strlen(text); i < n;) {
    uint32_t cp;
    i += (size_t)str_utf8(text + i, n - i, &cp);
    width += str_width(cp);
  }
  return width;
}

static const char *count_text(Session *s, int64_t n) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_int(&b, n);
  return b.s;
}

static Shown shown_of(Session *s, const Column *c, int64_t rows) {
  Shown w = {.left = !c->t || c->t->dtype == DT_BOOL};
  w.cell[NAME] = cut(s, c->key, NAME_MOST);
  w.cell[DTYPE] = type_of(c);
  w.cell[MISSING] = count_text(s, missing(c));
  if (c->t) print_cells(s, c->t, rows, w.cell + FIRST);
  for (int64_t i = 0; !c->t && i < rows; i++) w.cell[FIRST + i] = cut(s, c->texts[i], TEXT_MOST);
  for (int64_t i = 0; i < FIRST + rows; i++) {
    int width = width_of(w.cell[i]);
    if (width > w.width) w.width = width;
  }
  return w;
}

static void put_cell(Buf *out, const char *text, int width, bool left) {
  int pad = width - width_of(text);
  if (left) buf_puts(out, text);
  for (int i = 0; i < pad; i++) buf_putc(out, ' ');
  if (!left) buf_puts(out, text);
}

static void end_line(Buf *out) {
  while (out->n && out->s[out->n - 1] == ' ') out->n--;
  buf_putc(out, '\n');
}

/* The columns that found no room, with what the head of the table says of the others. */
static void put_others(Session *s, Buf *out, const Column *c, size_t n) {
  Buf b;
  size_t named = n < NAMED_MOST ? n : NAMED_MOST, column;
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "  and %zu more column%s:", n, n == 1 ? "" : "s");
  column = b.n;
  buf_put(out, b.s, b.n);
  for (size_t i = 0; i <= named; i++) {
    b.n = 0;
    if (i == named && n == named) break;
    if (i == named) {
      buf_puts(&b, "..");
    } else {
      int64_t gone = missing(&c[i]);
      buf_printf(&b, "%s %s", cut(s, c[i].key, NAME_MOST), type_of(&c[i]));
      if (gone) buf_printf(&b, " (%lld missing)", (long long)gone);
      if (i + 1 < n) buf_putc(&b, ',');
    }
    size_t width = (size_t)width_of(b.s);
    if (column + 1 + width > PRINT_WIDTH) {
      buf_puts(out, "\n   ");
      column = 3;
    }
    buf_putc(out, ' ');
    buf_put(out, b.s, b.n);
    column += 1 + width;
  }
  buf_putc(out, '\n');
}

static void put_table(Session *s, Buf *out, const Column *c, size_t n, int64_t all) {
  int64_t rows = all < ROWS_SHOWN ? all : ROWS_SHOWN, gone = 0;
  for (size_t i = 0; i < n; i++) gone += missing(&c[i]);
  int label = gone ? (int)strlen("missing") : rows < all ? 2 : 1, used = 2 + label;
  Shown *w = ARENA_ARRAY(&s->scratch, Shown, n);
  size_t fit = 0;
  for (; fit < n; fit++) {
    w[fit] = shown_of(s, &c[fit], rows);
    used += GAP + w[fit].width;
    if (fit && used > PRINT_WIDTH) break;
  }
  buf_printf(out, "table of %lld row%s\n", (long long)all, all == 1 ? "" : "s");
  for (int64_t k = 0; k < FIRST + rows; k++) {
    if (k == MISSING && !gone) continue;
    buf_puts(out, "  ");
    put_cell(out,
             k == MISSING ? "missing"
             : k >= FIRST ? count_text(s, k - FIRST)
                          : "",
             label, true);
    for (size_t i = 0; i < fit; i++) {
      for (int b = 0; b < GAP; b++) buf_putc(out, ' ');
      put_cell(out, w[i].cell[k], w[i].width, w[i].left);
    }
    end_line(out);
  }
  if (rows < all) buf_puts(out, "  ..\n");
  if (fit < n) put_others(s, out, c + fit, n - fit);
}

bool columns_show(Session *s, Buf *out, const Column *c, size_t n) {
  int64_t rows = rows_of(c);
  size_t from = out->n;
  bool table = true, fits = rows <= PRINT_INLINE_MOST;
  for (size_t i = 1; i < n; i++) table &= rows_of(&c[i]) == rows;
  if (!table || fits) put_line(out, c, n);
  if (!table || (fits && width_of(out->s + from) <= PRINT_WIDTH)) return false;
  out->n = from;
  put_table(s, out, c, n, rows);
  return true;
}
