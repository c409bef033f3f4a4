/* Builtins of JSON: values from it and to it.
 *
 * In: a text or a file; a value. Out: numbers, texts, bools, none, lists, and dicts whose keys are
 * texts, in the order of the file; the text of a value. Invariant: nothing is lost in silence. A
 * key that stands twice, a number that fits no int or float, a value that JSON has not are errors
 * with their place.
 */
#include <math.h>
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "runtime/file.h"
#include "runtime/json.h"

/* ---- reading */

/* A list or dict that is being read. */
typedef struct Open {
  bool dict;
  Value value; /* of a dict */
  Value *items;
  size_t count, cap;
  Value key;
} Open;

typedef struct Reader {
  Session *s;
  Open open[JSON_DEEP + 1]; /* [0] holds the result */
  int depth;
} Reader;

static void add(Reader *r, Value v) {
  Open *o = &r->open[r->depth];
  if (o->dict)
    dict_put(r->s, o->value.u.dict, o->key, v);
  else
    VEC_PUSH(&r->s->scratch, o->items, o->count, o->cap, v);
}

static const char *take(void *ud, const JsonPiece *p) {
  Reader *r = ud;
  Session *s = r->s;
  Open *o = &r->open[r->depth];
  switch (p->kind) {
  case JSON_NULL: add(r, v_none()); return NULL;
  case JSON_BOOL: add(r, v_bool(p->yes)); return NULL;
  case JSON_INT: add(r, v_int(p->i)); return NULL;
  case JSON_REAL: add(r, v_float(p->x)); return NULL;
  case JSON_TEXT: add(r, v_str(s, p->s, p->n)); return NULL;
  case JSON_LIST:
  case JSON_DICT:
    o = &r->open[++r->depth];
    *o = (Open){.dict = p->kind == JSON_DICT};
    if (o->dict) o->value = v_dict_room(s, 0);
    return NULL;
  case JSON_KEY:
    o->key = v_str(s, p->s, p->n);
    if (!dict_find(o->value.u.dict, o->key)) return NULL;
    return fail_text(s, "the key %s stands twice", dict_key_text(s, o->key));
  default: r->depth--; add(r, o->dict ? o->value : v_list(s, V_LIST, o->count, o->items));
  }
  return NULL;
}

/* `path`: of the file that the text is of, or NULL. */
static Value from_text(Session *s, const char *path, const char *text, size_t n, Span at) {
  Reader *r = ARENA_NEW(&s->scratch, Reader);
  r->s = s;
  Err e = {.text = ""};
  if (!json_read(&s->scratch, path ? path : "json", text, n, take, r, &e)) {
    if (path || e.nomem || e.interrupted) fail_file(s, at, &e);
    fail_at(s, ERR_VALUE, at, "%s", e.text);
  }
  return r->open[0].items[0];
}

BUILTIN_FN(bi_from_json) {
  want_str(s, c->v[0], c->spans[0], "what is read");
  return from_text(s, NULL, c->v[0].u.str->s, c->v[0].u.str->n, c->spans[0]);
}

BUILTIN_FN(bi_read_json) {
  const char *path = arg_path(s, c, 0);
  Err e = {.text = ""};
  size_t n;
  char *text = file_read(&s->mem, path, &n, &e);
  if (!text) fail_file(s, c->spans[0], &e);
  return from_text(s, path, value_pool_text(s, text, n), n, c->spans[0]);
}

/* ---- writing */

typedef struct Writer {
  Session *s;
  Span at;
  Buf out;
  int64_t indent; /* -1: all on one line */
} Writer;

static void new_line(Writer *w, int level) {
  if (w->indent < 0) return;
  buf_putc(&w->out, '\n');
  for (int64_t i = w->indent * level; i > 0; i--) buf_putc(&w->out, ' ');
}

static _Noreturn void no_number(const Writer *w, double x) {
  fail_help(w->s, ERR_VALUE, w->at, "`where(isnan(x), 0.0, x)` replaces it; `none` is written null",
            "JSON has no %s", isnan(x) ? "nan" : "infinity");
}

static void put_element(Writer *w, const Tensor *t, int64_t i) {
  char text[48];
  if (t->dtype == DT_BOOL) {
    buf_puts(&w->out, tn_get_i64(t, i) ? "true" : "false");
  } else if (!dt_float(t->dtype)) {
    buf_int(&w->out, tn_get_i64(t, i));
  } else {
    double x = tn_get_f64(t, i);
    if (!isfinite(x)) no_number(w, x);
    int n = t->dtype == DT_F64   ? str_f64(text, x)
            : t->dtype == DT_F32 ? str_f32(text, (float)x)
            : t->dtype == DT_F16 ? str_f16(text, (float)x)
                                 : str_bf16(text, (float)x);
    buf_put(&w->out, text, (size_t)n);
  }
}

/* Nested lists; the last axis stands on one line. */
/* What is written can be read. */
static void check_depth(const Writer *w, int level) {
  if (level >= JSON_DEEP)
    fail_at(w->s, ERR_SAVE, w->at, "JSON nests at most %d deep", (int)JSON_DEEP);
}

static void put_tensor(Writer *w, const Tensor *t, int axis, int64_t *at, int level) {
  if (axis == t->rank) {
    put_element(w, t, (*at)++);
    return;
  }
  check_depth(w, level);
  bool last = axis == t->rank - 1;
  buf_putc(&w->out, '[');
  for (int64_t i = 0; i < t->dim[axis]; i++) {
    if (i) buf_puts(&w->out, last || w->indent < 0 ? ", " : ",");
    if (!last) new_line(w, level + 1);
    put_tensor(w, t, axis + 1, at, level + 1);
  }
  if (!last && t->dim[axis]) new_line(w, level);
  buf_putc(&w->out, ']');
}

static bool is_plain(Value v) {
  return v.tag == V_INT || v.tag == V_FLOAT || v.tag == V_BOOL || v.tag == V_NONE ||
         v.tag == V_STR || (v_tensor_of(v) && !v_tensor_of(v)->rank);
}

static void put_key(Writer *w, Value v, size_t i) {
  if (v.tag == V_RECORD) {
    buf_json(&w->out, v.u.rec->names[i], strlen(v.u.rec->names[i]));
  } else {
    Value key = v.u.dict->keys[i];
    if (key.tag != V_STR)
      fail_at(w->s, ERR_VALUE, w->at, "a key of JSON is a text, not %s", dict_key_text(w->s, key));
    buf_json(&w->out, key.u.str->s, key.u.str->n);
  }
  buf_puts(&w->out, ": ");
}

static void put_value(Writer *w, Value v, int level) {
  stack_check();
  char text[48];
  size_t n = 0;
  int64_t at = 0;
  const Tensor *t = v_tensor_of(v);
  if (t) {
    put_tensor(w, t, 0, &at, level);
    return;
  }
  switch ((ValueTag)v.tag) {
  case V_NONE: buf_puts(&w->out, "null"); return;
  case V_BOOL: buf_puts(&w->out, v.u.i ? "true" : "false"); return;
  case V_INT: buf_int(&w->out, v.u.i); return;
  case V_FLOAT:
    if (!isfinite(v.u.f)) no_number(w, v.u.f);
    buf_put(&w->out, text, (size_t)str_f64(text, v.u.f));
    return;
  case V_STR: buf_json(&w->out, v.u.str->s, v.u.str->n); return;
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: break;
  default: fail_at(w->s, ERR_SAVE, w->at, "JSON has no %s", value_type_text(w->s, v));
  }
  check_depth(w, level);
  const Value *items = value_items(v, &n);
  bool keys = v.tag == V_RECORD || v.tag == V_DICT, flat = !keys;
  for (size_t i = 0; i < n; i++) flat = flat && is_plain(items[i]);
  buf_putc(&w->out, keys ? '{' : '[');
  for (size_t i = 0; i < n; i++) {
    if (i) buf_puts(&w->out, flat || w->indent < 0 ? ", " : ",");
    if (!flat) new_line(w, level + 1);
    if (keys) put_key(w, v, i);
    put_value(w, items[i], level + 1);
  }
  if (n && !flat) new_line(w, level);
  buf_putc(&w->out, keys ? '}' : ']');
}

/* The text of argument 0, with an indent that is argument `i`. */
static Buf to_text(Session *s, Call *c, int i) {
  Writer w = {.s = s, .at = c->spans[0], .indent = -1};
  if (c->v[i].tag != V_NONE) w.indent = want_int(s, c->v[i], c->spans[i], "`indent`");
  if (c->v[i].tag != V_NONE && (w.indent < 0 || w.indent > 16))
    fail_at(s, ERR_VALUE, c->spans[i], "`indent` is 0 to 16 blanks, or none for a single line");
  buf_init_arena(&w.out, &s->scratch);
  put_value(&w, c->v[0], 0);
  return w.out;
}

BUILTIN_FN(bi_to_json) {
  Buf b = to_text(s, c, 1);
  return v_str(s, b.s, b.n);
}

BUILTIN_FN(bi_write_json) {
  const char *path = arg_path(s, c, 1);
  Buf b = to_text(s, c, 2);
  buf_putc(&b, '\n');
  arg_write(s, c->spans[1], path, b.s, b.n);
  return v_unit();
}
