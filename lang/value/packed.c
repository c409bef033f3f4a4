/* Values as text, without their tensors: what `save` writes of a buffer whose structure may change.
 *
 * In: a value of numbers, bools, texts, tensors, and lists, tuples, records and dicts of these.
 * Out: a text of ASCII and of the texts in it, and the value again. A value begins with a letter:
 *   i-5;  f3ff8000000000000; (its bits)  T  F  n (none)  u (unit)
 *   t (a tensor, which stands elsewhere, by its path)  s3:abc (bytes)
 *   l2 (list)  p2 (tuple)  r2 (record)  d2 (dict), followed by their parts; a name or key stands
 *   before each part of a record or dict.
 * The reader believes nothing: each count is compared with the text that is left.
 */
#include "lang/value/packed.h"

#include <stdlib.h>
#include <string.h>

#include "lang/eval/ops.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"
#include "runtime/str.h"

/* A character 0, which would end the text, is \\0. */
static void put_text(Buf *b, const char *text, size_t n) {
  size_t more = 0;
  for (size_t i = 0; i < n; i++) more += !text[i] || text[i] == '\\';
  buf_printf(b, "s%zu:", n + more);
  for (size_t i = 0; i < n; i++) {
    if (!text[i] || text[i] == '\\') buf_putc(b, '\\');
    buf_putc(b, text[i] ? text[i] : '0');
  }
}

void packed_put(Session *s, Buf *b, Value v) {
  stack_check();
  size_t n;
  switch ((ValueTag)v.tag) {
  case V_INT: buf_printf(b, "i%lld;", (long long)v.u.i); return;
  case V_FLOAT: buf_printf(b, "f%llx;", (unsigned long long)v.u.i); return;
  case V_BOOL: buf_putc(b, v.u.i ? 'T' : 'F'); return;
  case V_NONE: buf_putc(b, 'n'); return;
  case V_UNIT: buf_putc(b, 'u'); return;
  case V_STR: put_text(b, v.u.str->s, v.u.str->n); return;
  default: break;
  }
  const Value *items = v_is_weak_list(v) && v.u.list->count ? NULL : value_items(v, &n);
  if (!items) {
    buf_putc(b, 't');
    return;
  }
  buf_printf(b, "%c%zu",
             v.tag == V_LIST    ? 'l'
             : v.tag == V_TUPLE ? 'p'
             : v.tag == V_DICT  ? 'd'
                                : 'r',
             n);
  for (size_t i = 0; i < n; i++) {
    if (v.tag == V_RECORD) put_text(b, v.u.rec->names[i], strlen(v.u.rec->names[i]));
    if (v.tag == V_DICT) packed_put(s, b, v.u.dict->keys[i]);
    packed_put(s, b, items[i]);
  }
}

typedef struct Reader {
  Session *s;
  const char *at, *end;
  PackedTensor tensor;
  void *ud;
} Reader;

/* A count or length, followed by `after` unless that is 0, of things that take a byte each. */
static bool get_count(Reader *r, char after, size_t *n) {
  *n = 0;
  if (r->at == r->end || *r->at < '0' || *r->at > '9') return false;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
    *n = *n * 10 + (size_t)(*r->at++ - '0');
    if (*n > (size_t)(r->end - r->at) + 1) return false;
  }
  if (after && (r->at == r->end || *r->at++ != after)) return false;
  return *n <= (size_t)(r->end - r->at);
}

static bool get_text(Reader *r, const char **text, size_t *n) {
  size_t length;
  if (r->at == r->end || *r->at++ != 's' || !get_count(r, ':', &length)) return false;
  char *to = ARENA_ARRAY(&r->s->scratch, char, length + 1);
  *text = to;
  *n = 0;
  for (const char *stop = r->at + length; r->at < stop; r->at++) {
    bool escape = *r->at == '\\';
    if (escape && (++r->at == stop || (*r->at != '0' && *r->at != '\\'))) return false;
    to[(*n)++] = escape && *r->at == '0' ? 0 : *r->at;
  }
  to[*n] = 0;
  return str_valid(to, *n);
}

static bool get_number(Reader *r, bool whole, Value *v) {
  const char *semi = memchr(r->at, ';', (size_t)(r->end - r->at));
  char *stop;
  if (!semi || semi == r->at || *r->at == ' ') return false;
  *v = v_int(whole ? strtoll(r->at, &stop, 10) : (int64_t)strtoull(r->at, &stop, 16));
  v->tag = whole ? V_INT : V_FLOAT;
  if (stop != semi) return false;
  r->at = semi + 1;
  return true;
}

static bool get(Reader *r, const char *path, Value *v);

/* The parts of a list, tuple, record or dict. */
static bool get_parts(Reader *r, char kind, const char *path, Value *v) {
  Session *s = r->s;
  size_t n, count = 0, cap = 0, key_count = 0, key_cap = 0, name_count = 0, name_cap = 0;
  Value *items = NULL, *keys = NULL;
  Name *names = NULL;
  if (!get_count(r, 0, &n)) return false;
  for (size_t i = 0; i < n; i++) {
    Value one = v_unit(); /* with this part alone, for its path */
    const char *text;
    size_t length;
    if (kind == 'r') {
      if (!get_text(r, &text, &length) || !length || memchr(text, 0, length)) return false;
      Name name = names_of(s->names, text);
      for (size_t k = 0; k < i; k++)
        if (names[k] == name) return false;
      VEC_PUSH(&s->scratch, names, name_count, name_cap, name);
      one = v_record(s, 1, &name, &one);
    } else if (kind == 'd') {
      Value key;
      if (!get(r, "", &key) || !dict_is_key(key)) return false;
      VEC_PUSH(&s->scratch, keys, key_count, key_cap, key);
      one = v_dict(s, 1, &key, &one);
    }
    const char *below = kind == 'r' || kind == 'd' ? value_part_path(s, path, one, 0)
                        : *path                    ? fail_text(s, "%s.%zu", path, i)
                                                   : fail_text(s, "%zu", i);
    Value part;
    if (!get(r, below, &part)) return false;
    VEC_PUSH(&s->scratch, items, count, cap, part);
  }
  *v = kind == 'r'   ? v_record(s, n, names, items)
       : kind == 'd' ? v_dict(s, n, keys, items)
                     : v_list(s, kind == 'l' ? V_LIST : V_TUPLE, n, items);
  return kind != 'd' || v->u.dict->count == n;
}

static bool get(Reader *r, const char *path, Value *v) {
  stack_check();
  if (r->at == r->end) return false;
  char kind = *r->at++;
  const char *text;
  size_t n;
  switch (kind) {
  case 'i':
  case 'f': return get_number(r, kind == 'i', v);
  case 'T':
  case 'F': *v = v_bool(kind == 'T'); return true;
  case 'n': *v = v_none(); return true;
  case 'u': *v = v_unit(); return true;
  case 't': *v = r->tensor(r->s, r->ud, path); return true;
  case 's':
    r->at--;
    if (!get_text(r, &text, &n)) return false;
    *v = v_str(r->s, text, n);
    return true;
  case 'l':
  case 'p':
  case 'r':
  case 'd': return get_parts(r, kind, path, v);
  default: return false;
  }
}

bool packed_get(Session *s, const char *text, PackedTensor tensor, void *ud, const char *path,
                Value *v) {
  Reader r = {s, text, text + strlen(text), tensor, ud};
  return get(&r, path, v) && r.at == r.end;
}
