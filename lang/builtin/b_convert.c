/* Builtins that make texts of values, and values of texts.
 *
 * In: a text, number, tensor or any value. Out: numbers, texts, tensors of bytes. A text is read as
 * a whole, with blanks around it at most; what does not fit is an error, or the value of
 * `otherwise`. The border to bytes is here alone: `text` and `bytes`. In code all of this runs
 * while the function is staged (rule 96), so what is only known at run time is an error.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/ops.h"
#include "lang/eval/want.h"
#include "lang/names/meant.h"
#include "lang/value/columns.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "lang/value/repr.h"
#include "lang/value/texts.h"

const StrObj *arg_text(Session *s, Call *c, int i) {
  if (c->v[i].tag != V_STR)
    fail_at(s, ERR_WANT_STR, c->spans[i], "`%s` takes a str here, not %s", c->b->name,
            value_type_text(s, c->v[i]));
  return c->v[i].u.str;
}

/* ---- numbers from texts */

/* The text as messages show it: quoted, and short. */
static const char *shown(Session *s, const StrObj *t) {
  enum { MOST = 40 };
  Buf b;
  buf_init_arena(&b, &s->scratch);
  Value v = t->chars > MOST ? text_part(s, t, 0, MOST, 1) : (Value){.tag = V_STR};
  repr_text(&b, v.u.str ? v.u.str : t);
  if (t->chars > MOST) buf_puts(&b, "..");
  return b.s;
}

/* `otherwise`, the last argument, if it is given; else an error. */
static Value no_number(Session *s, Call *c, const char *what, const char *help) {
  if (c->given[c->n - 1]) return c->v[c->n - 1];
  fail_help(s, ERR_TEXT_NUMBER, c->spans[0],
            fail_text(s, "%s; `%s(s, otherwise = 0)` gives 0 for what is none", help, c->b->name),
            "%s %s", shown(s, c->v[0].u.str), what);
}

static int digit_of(char ch) {
  if (ch >= '0' && ch <= '9') return ch - '0';
  if (ch >= 'a' && ch <= 'z') return ch - 'a' + 10;
  if (ch >= 'A' && ch <= 'Z') return ch - 'A' + 10;
  return 99;
}

static Value int_of_text(Session *s, Call *c) {
  int64_t base = want_int(s, c->v[1], c->spans[1], "`base`");
  if (base < 2 || base > 36)
    fail_at(s, ERR_VALUE, c->spans[1], "a base lies between 2 and 36, this is %lld",
            (long long)base);
  const char *p = c->v[0].u.str->s, *end = p + c->v[0].u.str->n;
  text_trim(&p, &end);
  bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) p++;
  uint64_t v = 0, most = (uint64_t)INT64_MAX + negative;
  bool fits = true, fine = p < end;
  for (; p < end && fine; p++) {
    uint64_t d = (uint64_t)digit_of(*p);
    fine = d < (uint64_t)base;
    if (!fine || v > (most - d) / (uint64_t)base)
      fits = false;
    else
      v = v * (uint64_t)base + d;
  }
  if (!fine) {
    double x;
    const char *from = c->v[0].u.str->s, *to = from + c->v[0].u.str->n;
    text_trim(&from, &to);
    bool is_float = base == 10 && from < to && str_to_f64(from, (size_t)(to - from), &x);
    return no_number(s, c,
                     base == 10 ? "is no int" : fail_text(s, "is no int of base %d", (int)base),
                     is_float ? "`int(float(s))` reads it and drops its fraction"
                              : "an int is a sign, if any, and digits");
  }
  if (!fits) return no_number(s, c, "does not fit an int of 64 bits", "`float(s)` reads it");
  return v_int((int64_t)(negative ? 0 - v : v));
}

bool arg_text_number(Session *s, Call *c, Value *out) {
  bool is_int = c->n == 3;
  if (c->v[0].tag == V_STR) {
    double x;
    const char *p = c->v[0].u.str->s, *end = p + c->v[0].u.str->n;
    text_trim(&p, &end);
    if (is_int)
      *out = int_of_text(s, c);
    else if (p < end && str_to_f64(p, (size_t)(end - p), &x))
      *out = v_float(x);
    else
      *out = no_number(s, c, "is no float", "a float is written 12, -1.5, 1e-3, inf or nan");
    return true;
  }
  if (is_int && c->v[1].tag == V_INT && c->v[1].u.i != 10)
    fail_at(s, ERR_WANT_STR, c->spans[0], "`base` is for texts, this is %s",
            value_type_text(s, c->v[0]));
  return false;
}

BUILTIN_FN(bi_chr) {
  int64_t n = want_int(s, c->v[0], c->spans[0], "the number of a code point");
  if (n < 0 || n > 0x10ffff || (n >= 0xd800 && n < 0xe000))
    fail_at(s, ERR_VALUE, c->spans[0],
            "no code point has the number %lld: they go from 0 to 0x10ffff, without 0xd800 to "
            "0xdfff",
            (long long)n);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_char(&b, (uint32_t)n);
  return v_str(s, b.s, b.n);
}

BUILTIN_FN(bi_ord) {
  const StrObj *t = arg_text(s, c, 0);
  if (t->chars != 1)
    fail_help(s, ERR_VALUE, c->spans[0], "`[ord(c) for c in s]` gives those of all",
              "`ord` takes one code point, this text has %zu", t->chars);
  uint32_t cp;
  str_utf8(t->s, t->n, &cp);
  return v_int(cp);
}

/* ---- texts from values */

/* What only the run knows, met on the way; sizes become constants of the signature. */
static void late(const Print *p, Value v) {
  if (v.tag == V_DIM && !p->s->abstract) {
    Print q = *p;
    print_inline(&q, v_int(want_int(p->s, v, p->at, "a text in code")), false);
  } else if (p->s->stage || v.tag == V_NODE || v.tag == V_DIM) {
    *(bool *)p->ud = true;
  } else {
    print_line(p->out, v_tensor_of(v), p->f, p->inside);
  }
}

/* The text in `b`, unless it depends on values that only the run knows. */
static Value known_text(Session *s, Call *c, const Buf *b, bool unknown) {
  if (unknown && s->abstract) return (Value){.tag = V_UNKNOWN};
  if (unknown)
    fail_help(s, ERR_STATIC_STR, c->spans[0], "`print` and `assert` show values of the run",
              "in code a text is static, and `%s` of %s is known when it runs", c->b->name,
              value_type_text(s, c->v[0]));
  return v_str(s, b->n ? b->s : "", b->n);
}

BUILTIN_FN(bi_str) {
  if (c->v[0].tag == V_STR) return c->v[0];
  Buf b;
  buf_init_arena(&b, &s->scratch);
  bool unknown = false;
  if (!s->stage && !s->abstract) {
    print_value(s, &b, c->v[0], false);
  } else {
    Print p = {.s = s, .out = &b, .at = c->spans[0], .hole = late, .ud = &unknown};
    size_t n;
    const Column *columns = columns_of(s, c->v[0], &n, c->spans[0]);
    for (size_t i = 0; columns && i < n; i++)
      if (!columns[i].texts) columns = NULL;
    if (!columns)
      print_inline(&p, print_definite(s, c->v[0], c->spans[0]), false);
    else if (columns_show(s, &b, columns, n))
      b.n--; /* the last newline */
  }
  return known_text(s, c, &b, unknown);
}

BUILTIN_FN(bi_repr) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  bool known = repr_value(s, &b, c->v[0], c->spans[0]);
  return known_text(s, c, &b, !known);
}

BUILTIN_FN(bi_format) {
  if (c->v[0].tag == V_STR && c->v[1].tag != V_STR)
    fail_help(s, ERR_FORMAT, c->at, foreign_help(s, "format", FOREIGN_CALL),
              "`format` takes a value and its format, not a text with places for values");
  const StrObj *spec = arg_text(s, c, 1);
  Format f;
  if (!format_parse(spec->s, spec->n, &f))
    fail_help(s, ERR_FORMAT, c->spans[1], AST_FORMAT_FORM, "%s is not a format", shown(s, spec));
  Buf b;
  buf_init_arena(&b, &s->scratch);
  bool unknown = false;
  Print p = {.s = s, .out = &b, .f = &f, .at = c->spans[0], .hole = late, .ud = &unknown};
  if (!s->stage && !s->abstract) p.hole = NULL;
  print_inline(&p, c->v[0], false);
  return known_text(s, c, &b, unknown);
}

/* ---- bytes */

/* Puts n bytes as text. False: they are not valid UTF-8 from byte *at on. With `replace` each
 * longest beginning of a code point that is not finished becomes U+FFFD, as Unicode recommends. */
static bool put_bytes(Buf *b, const unsigned char *u, size_t n, bool replace, size_t *at) {
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    int len = str_utf8((const char *)u + i, n - i, &cp);
    if (cp != 0xfffd || len > 1) {
      buf_put(b, (const char *)u + i, (size_t)len);
      i += (size_t)len;
      continue;
    }
    *at = i;
    if (!replace) return false;
    unsigned char lead = u[i++];
    int more = lead >= 0xc2 && lead < 0xe0 ? 1 : (lead & 0xf0) == 0xe0 ? 2 : 0;
    if (lead >= 0xf0 && lead <= 0xf4) more = 3;
    unsigned char lo = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (; more > 0 && i < n && u[i] >= lo && u[i] <= hi; more--, i++) {
      lo = 0x80;
      hi = 0xbf;
    }
    buf_char(b, 0xfffd);
  }
  return true;
}

/* The bytes that argument 0 stands for: a tensor of ints, or a list of them. */
static const unsigned char *bytes_arg(Session *s, Call *c, size_t *n) {
  Value x = c->v[0];
  const Tensor *t = NULL;
  bool list = x.tag == V_LIST || x.tag == V_TUPLE;
  if (x.tag == V_NODE || (s->stage && v_is_tensor(x)))
    fail_help(s, ERR_STATIC_STR, c->spans[0], "make the text in script",
              "in code a text is static, and these bytes are known when it runs");
  if (!list) {
    t = v_tensor_of(x);
    if (!t || t->rank != 1 || !dt_int(t->dtype))
      fail_help(s, ERR_WANT_TENSOR, c->spans[0], "`str(x)` is the text that `print` shows",
                "`text` takes bytes, u8[n] or ints from 0 to 255, not %s", value_type_text(s, x));
  }
  *n = list ? x.u.list->count : (size_t)t->dim[0];
  unsigned char *out = ARENA_ARRAY(&s->scratch, unsigned char, *n + 1);
  for (size_t i = 0; i < *n; i++) {
    int64_t k =
        list ? want_int(s, x.u.list->items[i], c->spans[0], "a byte") : tn_get_i64(t, (int64_t)i);
    if (k < 0 || k > 255)
      fail_at(s, ERR_VALUE, c->spans[0], "a byte lies between 0 and 255, number %zu is %lld", i,
              (long long)k);
    out[i] = (unsigned char)k;
  }
  return out;
}

BUILTIN_FN(bi_text) {
  if (c->v[0].tag == V_STR) return c->v[0];
  const StrObj *how = arg_text(s, c, 1);
  bool replace = !strcmp(how->s, "replace");
  if (!replace && strcmp(how->s, "strict"))
    fail_at(s, ERR_VALUE, c->spans[1], "`errors` is \"strict\" or \"replace\", not %s",
            shown(s, how));
  if (s->abstract && v_is_tensor(c->v[0])) return (Value){.tag = V_UNKNOWN};
  size_t n, at = 0;
  const unsigned char *u = bytes_arg(s, c, &n);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  if (!put_bytes(&b, u, n, replace, &at))
    fail_help(s, ERR_TEXT_BYTES, c->spans[0],
              "`text(b, errors = \"replace\")` puts U+FFFD where bytes are no text",
              "these bytes are not UTF-8: byte %zu is 0x%02x", at, u[at]);
  return v_str(s, b.n ? b.s : "", b.n);
}

BUILTIN_FN(bi_bytes) {
  const StrObj *t = arg_text(s, c, 0);
  if (s->stage && !t->n) {
    Dim none = dim_const(op_dims_of(s), 0);
    return op_broadcast(s, op_as_tensor(s, v_int(0), DT_U8, c->at), 1, &none, c->at);
  }
  if (s->stage) { /* a constant of the graph */
    Value *items = ARENA_ARRAY(&s->scratch, Value, t->n + 1);
    for (size_t i = 0; i < t->n; i++) items[i] = v_int((unsigned char)t->s[i]);
    Value l = v_list(s, V_LIST, t->n, items);
    l.u.list->weak = true;
    return op_as_tensor(s, l, DT_U8, c->at);
  }
  int64_t n = (int64_t)t->n;
  Tensor *b = tn_new(&s->mem, s->modes.device, DT_U8, 1, &n);
  Value v = v_tensor(s, b);
  memcpy(tn_data(b), t->s, t->n);
  return v;
}
