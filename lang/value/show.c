/* Values as the REPL shows them, and tables of params.
 *
 * In: a value, perhaps with the name it goes by. Out: text whose lines end with a newline (show) or
 * a str (summary). Invariant: the text depends on the value only.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/want.h"
#include "lang/value/columns.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "lang/value/state_walk.h"

typedef struct Counts {
  size_t params, frozen, buffers;
  int64_t elements, trained;
} Counts;

static void count_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Counts *c = ud;
  (void)s;
  (void)path;
  (void)owner;
  (void)f;
  if (!p) {
    c->buffers++;
    return;
  }
  int64_t n = tn_count(p->t);
  c->params++;
  c->elements += n;
  if (p->frozen)
    c->frozen++;
  else
    c->trained += n;
}

static void put_count(Buf *out, int64_t n) {
  char b[32];
  int k = 0, digits = 0;
  do {
    if (digits && digits % 3 == 0) b[k++] = ',';
    b[k++] = (char)('0' + n % 10);
    digits++;
  } while ((n /= 10) > 0);
  while (k > 0) buf_putc(out, b[--k]);
}

void show_value(Session *s, Buf *out, const char *name, Value v) {
  v = print_definite(s, v, (Span){0});
  const Tensor *t = v_tensor_of(v);
  if (name) buf_printf(out, "%s : ", name);
  if (t && t->rank) {
    buf_puts(out, value_type_text(s, v));
    print_stats(s, out, t);
    buf_putc(out, '\n');
    print_table(s, out, t);
    return;
  }
  size_t n;
  const Column *columns = columns_of(s, v, &n, (Span){0});
  if (columns) {
    size_t from = out->n;
    if (columns_show(s, out, columns, n)) return;
    out->n = from;
  }
  if (v.tag == V_INST) {
    Counts c = {0};
    walk_slots(s, v, count_slot, &c);
    buf_printf(out, "%s (%zu param%s, ", value_type_text(s, v), c.params, c.params == 1 ? "" : "s");
    put_count(out, c.elements);
    buf_puts(out, " elements)\n");
    return;
  }
  bool bare = v.tag == V_UNIT || v.tag == V_NONE || v.tag == V_FN || v.tag == V_MODULE ||
              v.tag == V_BUILTIN || v.tag == V_MODEL || v.tag == V_DTYPE || v.tag == V_SEQ ||
              v.tag == V_HANDLE || v.tag == V_POLICY || v.tag == V_UNKNOWN;
  if (name) buf_puts(out, value_type_text(s, v));
  if (v.tag == V_STR &&
      memchr(v.u.str->s, '\n', v.u.str->n)) { /* several lines: shown as printed */
    if (name) buf_puts(out, " =\n");
    buf_put(out, v.u.str->s, v.u.str->n);
    if (v.u.str->s[v.u.str->n - 1] != '\n') buf_putc(out, '\n');
    return;
  }
  if (name && !bare) buf_puts(out, " = ");
  if (!name || !bare) print_value(s, out, v, true);
  buf_putc(out, '\n');
}

/* ---- summary and count */

static void check_tree(Session *s, Call *c) {
  Value v = c->v[0];
  if (v.tag == V_INST || v.tag == V_RECORD || v.tag == V_DICT || v.tag == V_TUPLE ||
      v.tag == V_PARAM || (v.tag == V_LIST && !v.u.list->weak))
    return;
  fail_at(s, ERR_TREE_LEAF, c->spans[0], "`%s` takes a model or a tree of models, not %s",
          c->b->name, value_type_text(s, v));
}

BUILTIN_FN(bi_count) {
  Counts n = {0};
  check_tree(s, c);
  bool trainable = want_bool(s, c->v[1], c->spans[1], "`trainable`");
  walk_slots(s, c->v[0], count_slot, &n);
  return v_int(trainable ? n.trained : n.elements);
}

typedef struct Row {
  const char *path, *shape, *dtype, *count;
  bool frozen;
} Row;

typedef struct Rows {
  Row *items;
  size_t count, cap, path, shape, dtype, number;
  Counts sums;
} Rows;

static void widen(size_t *w, const char *text) {
  size_t n = strlen(text);
  if (n > *w) *w = n;
}

static void add_row(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Rows *r = ud;
  count_slot(s, &r->sums, path, owner, f, p);
  if (!p) return;
  Row row = {
      .path = *path ? path : "param", .dtype = dtype_info[p->t->dtype].name, .frozen = p->frozen};
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_putc(&b, '[');
  for (int i = 0; i < p->t->rank; i++)
    buf_printf(&b, "%s%lld", i ? ", " : "", (long long)p->t->dim[i]);
  buf_putc(&b, ']');
  row.shape = b.s;
  buf_init_arena(&b, &s->scratch);
  put_count(&b, tn_count(p->t));
  row.count = b.s;
  widen(&r->path, row.path);
  widen(&r->shape, row.shape);
  widen(&r->dtype, row.dtype);
  widen(&r->number, row.count);
  VEC_PUSH(&s->scratch, r->items, r->count, r->cap, row);
}

BUILTIN_FN(bi_summary) {
  check_tree(s, c);
  Rows r = {.path = 4, .shape = 5, .dtype = 5, .number = 5};
  walk_slots(s, c->v[0], add_row, &r);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  if (c->v[0].tag == V_INST) buf_printf(&b, "%s\n", value_type_text(s, c->v[0]));
  buf_printf(&b, "  %-*s  %-*s  %-*s  %*s\n", (int)r.path, "path", (int)r.shape, "shape",
             (int)r.dtype, "dtype", (int)r.number, "count");
  for (size_t i = 0; i < r.count; i++) {
    const Row *w = &r.items[i];
    buf_printf(&b, "  %-*s  %-*s  %-*s  %*s%s\n", (int)r.path, w->path, (int)r.shape, w->shape,
               (int)r.dtype, w->dtype, (int)r.number, w->count, w->frozen ? "  frozen" : "");
  }
  buf_puts(&b, "  ");
  put_count(&b, r.sums.elements);
  buf_printf(&b, " elements in %zu param%s", r.sums.params, r.sums.params == 1 ? "" : "s");
  if (r.sums.frozen) {
    buf_puts(&b, ", ");
    put_count(&b, r.sums.trained);
    buf_puts(&b, " trained");
  }
  if (r.sums.buffers)
    buf_printf(&b, ", %zu buffer%s", r.sums.buffers, r.sums.buffers == 1 ? "" : "s");
  return v_str(s, b.s, b.n);
}
