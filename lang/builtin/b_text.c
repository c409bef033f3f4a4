/* Builtins on texts: parts, searches, joins, letters.
 *
 * In: texts, which are sequences of code points (rule 96). Out: texts, lists of texts, positions in
 * code points. What is absent is `none`, never a position. Searches compare bytes, which is right
 * for valid UTF-8, and take linear time. Letters and normal forms are utf8proc's; it allocates
 * nothing here. In code all of this runs while the function is staged.
 */
#include <string.h>
#include <utf8proc.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/rows.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"

/* ---- lists of parts */

typedef struct Parts {
  Session *s;
  Value *items;
  size_t count, cap;
} Parts;

static void part(Parts *p, const char *lo, const char *hi) {
  VEC_PUSH(&p->s->scratch, p->items, p->count, p->cap, v_str(p->s, lo, (size_t)(hi - lo)));
}

static Value parts_list(const Parts *p) {
  return v_list(p->s, V_LIST, p->count, p->items);
}

/* Argument i, a text that is searched for: it has something in it. */
static const StrObj *needle(Session *s, Call *c, int i, const char *help) {
  const StrObj *t = arg_text(s, c, i);
  if (!t->n) fail_help(s, ERR_VALUE, c->spans[i], help, "the empty text stands everywhere");
  return t;
}

Value bi_split_text(Session *s, Call *c) {
  if (want_bool(s, c->v[2], c->spans[2], "`shuffle`"))
    fail_help(s, ERR_VALUE, c->spans[2], "`shuffle` is for sequences", "a text is split in order");
  const StrObj *t = c->v[0].u.str;
  const StrObj *sep = needle(s, c, 1, "`[c for c in s]` has the code points, `words(s)` the words");
  Parts p = {.s = s};
  const char *lo = t->s, *hi;
  for (; (hi = text_find(lo, t, sep)) != NULL; lo = hi + sep->n) part(&p, lo, hi);
  part(&p, lo, t->s + t->n);
  return parts_list(&p);
}

BUILTIN_FN(bi_words) {
  const StrObj *t = arg_text(s, c, 0);
  Parts p = {.s = s};
  const char *end = t->s + t->n, *lo = NULL;
  for (const char *at = t->s; at < end;) {
    uint32_t cp;
    int n = str_utf8(at, (size_t)(end - at), &cp);
    bool blank = text_is_blank(cp);
    if (blank && lo) part(&p, lo, at);
    lo = blank ? NULL : lo ? lo : at;
    at += n;
  }
  if (lo) part(&p, lo, end);
  return parts_list(&p);
}

BUILTIN_FN(bi_lines) {
  const StrObj *t = arg_text(s, c, 0);
  Parts p = {.s = s};
  const char *end = t->s + t->n, *hi;
  for (const char *lo = t->s; lo < end; lo = hi + (hi < end)) {
    hi = memchr(lo, '\n', (size_t)(end - lo));
    if (!hi) hi = end;
    part(&p, lo, hi > lo && hi < end && hi[-1] == '\r' ? hi - 1 : hi);
  }
  return parts_list(&p);
}

/* ---- texts of texts */

/* A text under construction, whose length is known: what does not fit memory fails at once. */
typedef struct Room {
  Session *s;
  size_t n;
  char *start, *at;
} Room;

/* Room for n bytes, that many times, more. */
static void room_for(Room *r, size_t n, uint64_t times) {
  if (n && times > (SIZE_MAX / 2 - r->n) / n) mem_throw(&r->s->mem, MEM_ERR_NOMEM);
  r->n += n * (size_t)times;
}

/* Whether only a run should make this text: a check needs little memory. */
static bool for_the_run(const Room *r) {
  enum { CHECK_MOST = 1 << 20 };
  const Session *s = r->s;
  bool check = s->abstract || (s->stage && s->stage->unit && s->stage->unit->check);
  return check && r->n > CHECK_MOST;
}

static void put(Room *r, const char *text, size_t n) {
  if (!r->start) r->start = r->at = ARENA_ARRAY(&r->s->scratch, char, r->n + 1);
  memcpy(r->at, text, n);
  r->at += n;
}

static void put_times(Room *r, const StrObj *t, int64_t n) {
  for (int64_t i = 0; i < n && t->n; i++) put(r, t->s, t->n);
}

static Value filled(const Room *r) {
  return v_str(r->s, r->start ? r->start : "", (size_t)(r->at - r->start));
}

BUILTIN_FN(bi_join) {
  if (c->rest_n > 1)
    fail_at(s, ERR_ARG_COUNT, c->rest_spans[1],
            "`join` takes a list and one text between its parts");
  Value xs = dict_elements(s, text_elements(s, c->v[0]));
  if (xs.tag == V_ROWS) rows_refuse(s, c->spans[0]);
  if (xs.tag != V_LIST && xs.tag != V_TUPLE)
    fail_help(s, ERR_WANT_STR, c->spans[0], "`[str(x) for x in xs]` makes such a list",
              "`join` takes a list of texts, not %s", value_type_text(s, xs));
  if (c->rest_n && c->rest[0].tag != V_STR)
    fail_help(s, ERR_WANT_STR, c->rest_spans[0], "the list comes first: `xs.join(\", \")`",
              "`join` takes a str here, not %s", value_type_text(s, c->rest[0]));
  const StrObj *sep = c->rest_n ? c->rest[0].u.str : NULL;
  Room r = {.s = s};
  size_t count = xs.u.list->count;
  for (size_t i = 0; i < count; i++) {
    Value x = xs.u.list->items[i];
    if (x.tag != V_STR)
      fail_help(s, ERR_WANT_STR, c->spans[0],
                "`str(x)` makes a text of a value: `join([str(x) for x in xs], \", \")`",
                "`join` takes a list of texts, element %zu is %s", i, value_type_text(s, x));
    room_for(&r, x.u.str->n, 1);
  }
  if (sep && count) room_for(&r, sep->n, count - 1);
  if (for_the_run(&r)) return (Value){.tag = V_UNKNOWN};
  for (size_t i = 0; i < count; i++) {
    const StrObj *x = xs.u.list->items[i].u.str;
    if (i && sep) put(&r, sep->s, sep->n);
    put(&r, x->s, x->n);
  }
  return filled(&r);
}

BUILTIN_FN(bi_replace) {
  const StrObj *t = arg_text(s, c, 0), *new = arg_text(s, c, 2);
  const StrObj *old = needle(s, c, 1, "`join(list of parts, new)` puts a text between parts");
  const char *lo = t->s, *hi;
  uint64_t count = 0;
  for (; (hi = text_find(lo, t, old)) != NULL; lo = hi + old->n) count++;
  if (!count) return c->v[0];
  Room r = {.s = s};
  room_for(&r, t->n, 1);
  room_for(&r, new->n, count);
  if (for_the_run(&r)) return (Value){.tag = V_UNKNOWN};
  for (lo = t->s; (hi = text_find(lo, t, old)) != NULL; lo = hi + old->n) {
    put(&r, lo, (size_t)(hi - lo));
    put(&r, new->s, new->n);
  }
  put(&r, lo, (size_t)(t->s + t->n - lo));
  return filled(&r);
}

BUILTIN_FN(bi_trim) {
  const StrObj *t = arg_text(s, c, 0);
  const char *lo = t->s, *hi = t->s + t->n;
  text_trim(&lo, &hi);
  return v_str(s, lo, (size_t)(hi - lo));
}

BUILTIN_FN(bi_repeat) {
  if (v_is_tensor(c->v[0])) return builtin_repeat(s, c);
  const StrObj *t = arg_text(s, c, 0);
  int64_t n = want_int(s, c->v[1], c->spans[1], "how often it is repeated");
  if (n < 0)
    fail_at(s, ERR_VALUE, c->spans[1], "a text is repeated 0 times or more, not %lld",
            (long long)n);
  Room r = {.s = s};
  room_for(&r, t->n, (uint64_t)n);
  if (for_the_run(&r)) return (Value){.tag = V_UNKNOWN};
  put_times(&r, t, n);
  return filled(&r);
}

BUILTIN_FN(bi_pad_text) {
  const StrObj *t = arg_text(s, c, 0), *fill = arg_text(s, c, 2);
  int64_t n = want_int(s, c->v[1], c->spans[1], "the length"), more = n - (int64_t)t->chars;
  if (n < 0)
    fail_at(s, ERR_VALUE, c->spans[1], "a length is not negative, this is %lld", (long long)n);
  if (fill->chars != 1)
    fail_at(s, ERR_VALUE, c->spans[2], "`fill` is one code point, this text has %zu", fill->chars);
  if (more <= 0) return c->v[0];
  Room r = {.s = s};
  room_for(&r, t->n, 1);
  room_for(&r, fill->n, (uint64_t)more);
  if (for_the_run(&r)) return (Value){.tag = V_UNKNOWN};
  put_times(&r, t, c->b->op);
  put_times(&r, fill, more);
  put_times(&r, t, !c->b->op);
  return filled(&r);
}

/* ---- searches */

BUILTIN_FN(bi_find) {
  const StrObj *t = arg_text(s, c, 0), *sub = arg_text(s, c, 1);
  int64_t from = want_int(s, c->v[2], c->spans[2], "`from`");
  if (from < 0 || from > (int64_t)t->chars)
    fail_at(s, ERR_VALUE, c->spans[2], "`from` lies between 0 and %zu, the length, this is %lld",
            t->chars, (long long)from);
  const char *lo = text_at(t, from), *at = text_find(lo, t, sub);
  return at ? v_int(from + (int64_t)text_chars(lo, (size_t)(at - lo))) : v_none();
}

BUILTIN_FN(bi_starts_with) {
  const StrObj *t = arg_text(s, c, 0), *p = arg_text(s, c, 1);
  size_t at = c->b->op ? t->n - p->n : 0;
  return v_bool(p->n <= t->n && !memcmp(t->s + at, p->s, p->n));
}

/* ---- letters */

static Value made(Session *s, const Buf *b) {
  return v_str(s, b->n ? b->s : "", b->n);
}

enum { UPPER, LOWER, FOLD };

BUILTIN_FN(bi_letters) {
  const StrObj *t = arg_text(s, c, 0);
  int how = c->b->op;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (size_t i = 0; i < t->n;) {
    uint32_t cp;
    i += (size_t)str_utf8(t->s + i, t->n - i, &cp);
    if (cp < 0x80) {
      bool from = how == UPPER ? cp >= 'a' && cp <= 'z' : cp >= 'A' && cp <= 'Z';
      buf_putc(&b, (char)(from ? cp ^ 0x20 : cp));
    } else if (how == FOLD) {
      enum { MOST = 8 }; /* code points that one becomes: 3 */
      utf8proc_int32_t out[MOST];
      utf8proc_ssize_t n =
          utf8proc_decompose_char((utf8proc_int32_t)cp, out, MOST, UTF8PROC_CASEFOLD, NULL);
      for (utf8proc_ssize_t k = 0; k < n && k < MOST; k++) buf_char(&b, (uint32_t)out[k]);
    } else {
      utf8proc_int32_t x = (utf8proc_int32_t)cp;
      buf_char(&b, (uint32_t)(how == UPPER ? utf8proc_toupper(x) : utf8proc_tolower(x)));
    }
  }
  return made(s, &b);
}

BUILTIN_FN(bi_normalize) {
  static const struct {
    const char *name;
    int options;
  } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  const StrObj *t = arg_text(s, c, 0), *form = arg_text(s, c, 1);
  int options = 0;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (!strcmp(forms[i].name, form->s)) options = forms[i].options;
  if (!options) fail_at(s, ERR_VALUE, c->spans[1], "the normal forms are NFC, NFD, NFKC and NFKD");
  if (t->chars == t->n) return c->v[0]; /* ASCII is in all of them */
  const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)t->s;
  utf8proc_ssize_t len = (utf8proc_ssize_t)t->n, n;
  n = utf8proc_decompose(u, len, NULL, 0, (utf8proc_option_t)options);
  utf8proc_int32_t *cps = ARENA_ARRAY(&s->scratch, utf8proc_int32_t, n + 1);
  utf8proc_decompose(u, len, cps, n, (utf8proc_option_t)options);
  n = utf8proc_normalize_utf32(cps, n, (utf8proc_option_t)options);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (utf8proc_ssize_t i = 0; i < n; i++) buf_char(&b, (uint32_t)cps[i]);
  return made(s, &b);
}
