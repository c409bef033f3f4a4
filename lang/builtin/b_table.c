/* Builtins of tables: dicts of columns, read from text and written to it.
 *
 * In: a file whose columns have names; a dict of tensors [n] and lists of n texts. Out: such a
 * dict; a file. How types are found stands in runtime/table_file.h. Invariant: a file that is open
 * is on the pool, so an error closes it.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/ops.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "runtime/table_file.h"

typedef struct Opened {
  Mem *mem;
  bool open;
  TableFile file;
} Opened;

static void opened_release(void *p) {
  Opened *o = p;
  if (o->open) table_close(&o->file);
  mem_free(o->mem, o, sizeof *o);
}

static CsvText text(Session *s, Value v, Span at, const char *what) {
  want_str(s, v, at, what);
  return (CsvText){v.u.str->s, v.u.str->n};
}

static const Value *texts_of(Session *s, Value v, Span at, const char *what, size_t *n) {
  if (v.tag != V_LIST && v.tag != V_TUPLE)
    fail_at(s, ERR_WANT_LIST, at, "%s is a list of texts, not %s", what, value_type_text(s, v));
  *n = v.u.list->count;
  return v.u.list->items;
}

/* The key of column i: its name, or its number if there is no header. */
static Value key_of(Session *s, const TableFile *t, size_t i) {
  return t->header ? v_str(s, t->col[i].name.s, t->col[i].name.n) : v_int((int64_t)i);
}

/* The column of a key that the program gave. */
static size_t column_of(Session *s, const TableFile *t, Value key, Span at) {
  for (size_t i = 0; i < t->count; i++) {
    const CsvText *n = &t->col[i].name;
    if (t->header && key.tag == V_STR && key.u.str->n == n->n && !memcmp(key.u.str->s, n->s, n->n))
      return i;
    if (!t->header && key.tag == V_INT && key.u.i == (int64_t)i) return i;
  }
  Buf b;
  buf_init_arena(&b, &s->scratch);
  enum { SHOWN = 20 };
  for (size_t i = 0; i < t->count && i < SHOWN; i++)
    buf_printf(&b, "%s%s", i ? ", " : "", dict_key_text(s, key_of(s, t, i)));
  if (t->count > SHOWN) buf_printf(&b, " and %zu more", t->count - SHOWN);
  fail_help(s, ERR_KEY_NONE, at, fail_text(s, "its columns are %s", b.s), "%s has no column %s",
            t->name, dict_key_text(s, key));
}

static void apply_types(Session *s, TableFile *t, Value types, Span at) {
  size_t n;
  if (types.tag == V_NONE) return;
  if (types.tag != V_DICT)
    fail_help(s, ERR_VALUE, at, "`types = [\"zip\": str, \"n\": i32]`",
              "`types` is a dict of columns and their types, not %s", value_type_text(s, types));
  const Value *items = value_items(types, &n);
  for (size_t i = 0; i < n; i++) {
    TableColumn *c = &t->col[column_of(s, t, types.u.dict->keys[i], at)];
    Value v = items[i];
    bool is_text = (v.tag == V_BUILTIN && !strcmp(v.u.builtin->name, "str")) ||
                   (v.tag == V_STR && !strcmp(v.u.str->s, "str"));
    bool known = v.tag == V_DTYPE && v.u.i != DT_F16 && v.u.i != DT_BF16;
    if (!is_text && !known)
      fail_at(s, ERR_WANT_DTYPE, at, "a column is of ints, f32, f64, bool or str, not %s",
              v.tag == V_DTYPE ? dtype_info[v.u.i].name : value_type_text(s, v));
    c->want = is_text ? TABLE_TEXTS : TABLE_DTYPE;
    if (known) c->dtype = (DType)v.u.i;
  }
}

/* The columns that are wanted, in their order. */
static size_t *apply_only(Session *s, TableFile *t, Value only, Span at, size_t *n) {
  if (only.tag == V_NONE) {
    size_t *all = ARENA_ARRAY(&s->scratch, size_t, t->count);
    for (*n = 0; *n < t->count; ++*n) all[*n] = *n;
    return all;
  }
  const Value *names = texts_of(s, only, at, "`only`", n);
  size_t *some = ARENA_ARRAY(&s->scratch, size_t, *n + 1);
  bool *is = ARENA_ARRAY(&s->scratch, bool, t->count);
  for (size_t i = 0; i < *n; i++) {
    some[i] = column_of(s, t, names[i], at);
    is[some[i]] = true;
  }
  for (size_t i = 0; i < t->count; i++)
    if (!is[i]) t->col[i].want = TABLE_SKIP;
  return some;
}

/* Equal texts of a column are one object where they come again soon: most columns of texts have few
 * different ones. */
static Value text_list(Session *s, const CsvText *texts, int64_t n) {
  enum { KEPT = 256 };
  Value kept[KEPT], *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  memset(kept, 0, sizeof kept);
  for (int64_t i = 0; i < n; i++) {
    const CsvText *t = &texts[i];
    uint32_t h = 2166136261u; /* FNV-1a of the first bytes */
    for (size_t k = 0; k < t->n && k < 16; k++) h = (h ^ (unsigned char)t->s[k]) * 16777619u;
    Value *v = &kept[(h ^ h >> 8 ^ h >> 16) % KEPT];
    if (v->tag != V_STR || v->u.str->n != t->n || memcmp(v->u.str->s, t->s, t->n))
      *v = v_str(s, t->s, t->n);
    items[i] = *v;
  }
  return v_list(s, V_LIST, (size_t)n, items);
}

BUILTIN_FN(bi_read_table) {
  static const CsvText usual[] = {{"", 0}, {"NA", 2}, {"nan", 3}, {"null", 4}};
  const CsvText *missing = usual;
  size_t missing_count = sizeof usual / sizeof *usual;
  const char *path = arg_path(s, c, 0);
  if (c->v[2].tag != V_NONE) {
    const Value *items = texts_of(s, c->v[2], c->spans[2], "`missing`", &missing_count);
    CsvText *own = ARENA_ARRAY(&s->scratch, CsvText, missing_count + 1);
    for (size_t i = 0; i < missing_count; i++)
      own[i] = text(s, items[i], c->spans[2], "a text for missing values");
    missing = own;
  }
  char separator = 0;
  if (c->v[3].tag != V_NONE) {
    CsvText sep = text(s, c->v[3], c->spans[3], "`separator`");
    if (sep.n != 1 || strchr("\"\r\n", *sep.s))
      fail_at(s, ERR_VALUE, c->spans[3],
              "a separator is one ASCII character, no quote or line end");
    separator = *sep.s;
  }
  bool header = want_bool(s, c->v[4], c->spans[4], "`header`");
  Err e = {.text = ""};
  Opened *o = mem_need(&s->mem, NULL, 0, sizeof *o);
  *o = (Opened){.mem = &s->mem};
  mem_pool_add(&s->mem, o, opened_release);
  TableFile *t = &o->file;
  if (!table_open(t, &s->mem, path, separator, header, missing, missing_count, &e))
    fail_file(s, c->spans[0], &e);
  o->open = true;
  for (size_t i = 0; header && i < t->count; i++)
    for (size_t k = 0; k < i; k++)
      if (t->col[k].name.n == t->col[i].name.n &&
          !memcmp(t->col[k].name.s, t->col[i].name.s, t->col[i].name.n))
        fail_at(s, ERR_FILE, c->spans[0], "%s: columns %zu and %zu are both called %s", path, k + 1,
                i + 1, dict_key_text(s, key_of(s, t, i)));
  apply_types(s, t, c->v[1], c->spans[1]);
  size_t n, *order = apply_only(s, t, c->v[5], c->spans[5], &n);
  if (!table_fill(t, &e)) fail_file(s, c->spans[0], &e);
  Value *keys = ARENA_ARRAY(&s->scratch, Value, n + 1),
        *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) {
    const TableColumn *col = &t->col[order[i]];
    keys[i] = key_of(s, t, order[i]);
    items[i] = col->t ? v_tensor(s, tn_ref(col->t)) : text_list(s, col->texts, t->rows);
  }
  return v_dict(s, n, keys, items);
}

/* ---- writing */

/* A value as a column of *rows fields; -1: there is none before. */
static CsvColumn column(Session *s, Value v, const char *name, Span at, int64_t *rows) {
  CsvColumn c = {.step = 1};
  int64_t n;
  if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, at);
  const Tensor *t = v_tensor_of(v);
  if (t) {
    if (t->rank != 1) fail_at(s, ERR_RANK, at, "column %s has one axis, not %d", name, t->rank);
    c.t = t;
    n = t->dim[0];
  } else {
    size_t count;
    const Value *items = texts_of(s, v, at, fail_text(s, "column %s", name), &count);
    CsvText *texts = ARENA_ARRAY(&s->scratch, CsvText, count + 1);
    for (size_t i = 0; i < count; i++)
      texts[i] = text(s, items[i], at, fail_text(s, "a field of column %s", name));
    c.texts = texts;
    n = (int64_t)count;
  }
  if (*rows >= 0 && n != *rows)
    fail_at(s, ERR_LEADING, at, "column %s has %lld fields, those before have %lld", name,
            (long long)n, (long long)*rows);
  *rows = n;
  return c;
}

/* The texts of a list or tuple, n of them. */
static void header_of(Session *s, Call *c, size_t n, CsvText *out) {
  size_t count;
  const Value *h = texts_of(s, c->v[2], c->spans[2], "`header`", &count);
  if (count != n)
    fail_at(s, ERR_VALUE, c->spans[2], "the header has %zu names for %zu columns", count, n);
  for (size_t i = 0; i < n; i++) out[i] = text(s, h[i], c->spans[2], "a name of the header");
}

static void put_table(Session *s, Call *c, const CsvText *header, size_t n, const CsvColumn *col,
                      int64_t rows) {
  Err e = {.text = ""};
  if (!n) fail_at(s, ERR_VALUE, c->spans[0], "a table has at least one column");
  if (!csv_write(&s->mem, arg_path(s, c, 1), header, n, col, rows, &e))
    fail_file(s, c->spans[1], &e);
}

/* A dict or record of columns. */
static void write_columns(Session *s, Call *c, Value v) {
  size_t n;
  const Value *items = value_items(v, &n);
  if (c->v[2].tag != V_NONE)
    fail_at(s, ERR_VALUE, c->spans[2], "the columns of a table have their names already");
  CsvColumn *col = ARENA_ARRAY(&s->scratch, CsvColumn, n + 1);
  CsvText *header = ARENA_ARRAY(&s->scratch, CsvText, n + 1);
  int64_t rows = -1;
  for (size_t i = 0; i < n; i++) {
    Value key = v.tag == V_DICT ? v.u.dict->keys[i]
                                : v_str(s, v.u.rec->names[i], strlen(v.u.rec->names[i]));
    const char *shown = dict_key_text(s, key);
    header[i] =
        key.tag == V_STR ? (CsvText){key.u.str->s, key.u.str->n} : (CsvText){shown, strlen(shown)};
    col[i] = column(s, items[i], shown, c->spans[0], &rows);
  }
  put_table(s, c, header, n, col, rows);
}

BUILTIN_FN(bi_write_csv) {
  if (c->v[0].tag == V_DICT || c->v[0].tag == V_RECORD) {
    write_columns(s, c, c->v[0]);
    return v_unit();
  }
  const Value *row = c->v[0].tag == V_LIST && c->v[0].u.list->count ? c->v[0].u.list->items : NULL;
  if (row && (row->tag == V_RECORD || row->tag == V_DICT || row->tag == V_TUPLE))
    fail_help(s, ERR_WANT_TENSOR, c->spans[0],
              "with rows `rs`: `(a = [r.a for r in rs], b = [r.b for r in rs])`",
              "a table is written by columns, this is a list of rows");
  const Tensor *t = arg_known(s, c, 0, "what is written");
  if (t->rank != 1 && t->rank != 2)
    fail_at(s, ERR_RANK, c->spans[0], "a table has one axis, a column, or two, not %d", t->rank);
  size_t n = t->rank == 2 ? (size_t)t->dim[1] : 1;
  CsvText *header = NULL;
  if (c->v[2].tag != V_NONE) {
    header = ARENA_ARRAY(&s->scratch, CsvText, n + 1);
    header_of(s, c, n, header);
  }
  CsvColumn *col = ARENA_ARRAY(&s->scratch, CsvColumn, n + 1);
  for (size_t i = 0; i < n; i++)
    col[i] = (CsvColumn){.t = t, .first = (int64_t)i, .step = (int64_t)n};
  put_table(s, c, header, n, col, t->dim[0]);
  return v_unit();
}
