/* Texts: sequences of code points, stored as valid UTF-8.
 *
 * In: texts, which are valid by construction. Out: parts, joins, order. The number of code points
 * is counted when a text is made; one of ASCII has as many as bytes, so its parts are found at
 * once, and others remember where the last part was.
 */
#define _GNU_SOURCE /* memmem */
#include "lang/value/texts.h"

#include <string.h>

static bool starts(char c) { /* a code point; else a byte that continues one */
  return ((unsigned char)c & 0xC0) != 0x80;
}

size_t text_chars(const char *s, size_t n) {
  size_t k = 0;
  for (size_t i = 0; i < n; i++) k += starts(s[i]);
  return k;
}

/* How many code points begin in eight bytes. */
static int starts_of_8(const char *s) {
  uint64_t w;
  memcpy(&w, s, sizeof w);
  return 8 - __builtin_popcountll(w & ~(w << 1) & 0x8080808080808080u);
}

/* The byte where code point k begins, or where the text ends. It is looked for from the one that
 * was found last, so one that goes through a text by indices does not begin again each time. */
static size_t byte_of(const StrObj *t, int64_t k) {
  if (t->chars == t->n) return (size_t)k;
  StrObj *last = (StrObj *)t; /* only what it remembers changes */
  int64_t at = (int64_t)t->at_byte, before = (int64_t)t->at_char; /* those that begin before `at` */
  if (k < before / 2) at = before = 0;
  for (; before - k >= 8; at -= 8) before -= starts_of_8(t->s + at - 8);
  while (before > k) before -= starts(t->s[--at]);
  for (; k - before >= 8; at += 8) before += starts_of_8(t->s + at);
  while (before < k || ((size_t)at < t->n && !starts(t->s[at]))) before += starts(t->s[at++]);
  last->at_char = (size_t)k;
  last->at_byte = (size_t)at;
  return (size_t)at;
}

const char *text_at(const StrObj *t, int64_t chars) {
  return t->s + byte_of(t, chars);
}

Value text_part(Session *s, const StrObj *t, int64_t lo, int64_t hi, int64_t step) {
  size_t at = byte_of(t, lo);
  if (step == 1) return v_str(s, t->s + at, byte_of(t, hi) - at);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (int64_t i = lo; i < hi; i += step) {
    at = byte_of(t, i);
    buf_put(&b, t->s + at, byte_of(t, i + 1) - at);
    if (step >= hi - i) break;
  }
  return v_str(s, b.n ? b.s : "", b.n);
}

Value text_elements(Session *s, Value v) {
  if (v.tag != V_STR) return v;
  const StrObj *t = v.u.str;
  Value *items = ARENA_ARRAY(&s->scratch, Value, t->chars + 1);
  size_t at = 0;
  for (size_t i = 0; i < t->chars; i++) {
    size_t end = byte_of(t, (int64_t)i + 1);
    items[i] = v_str(s, t->s + at, end - at);
    at = end;
  }
  return v_list(s, V_LIST, t->chars, items);
}

Value text_joined(Session *s, const StrObj *a, const StrObj *b) {
  char *both = ARENA_ARRAY(&s->scratch, char, a->n + b->n + 1);
  memcpy(both, a->s, a->n);
  memcpy(both + a->n, b->s, b->n);
  return v_str(s, both, a->n + b->n);
}

int text_order(const StrObj *a, const StrObj *b) {
  int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
  return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

const char *text_find(const char *from, const StrObj *t, const StrObj *part) {
  return memmem(from, (size_t)(t->s + t->n - from), part->s, part->n);
}

bool text_has(const StrObj *t, const StrObj *part) {
  return text_find(t->s, t, part) != NULL;
}

bool text_is_blank(uint32_t cp) {
  return cp <= 0x20
             ? cp == ' ' || (cp >= '\t' && cp <= '\r')
             : cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
                   cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

void text_trim(const char **lo, const char **hi) {
  uint32_t cp;
  while (*lo < *hi) {
    int n = str_utf8(*lo, (size_t)(*hi - *lo), &cp);
    if (!text_is_blank(cp)) break;
    *lo += n;
  }
  while (*lo < *hi) {
    const char *last = *hi - 1;
    while (!starts(*last)) last--;
    str_utf8(last, (size_t)(*hi - last), &cp);
    if (!text_is_blank(cp)) break;
    *hi = last;
  }
}
