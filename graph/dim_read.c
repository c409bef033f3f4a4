/* Reads dims: the text that dim_print makes.
 *
 * In: text, and a table. Out: a dim of that table; symbols are looked up by name, and made if they
 * are new. What it reads goes through the arithmetic of dim.c, so other ways to write a dim are
 * read, too.
 */
#include <string.h>

#include "graph/dim.h"

enum { MAX_PARENS = 64 /* nesting */ };

static bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool dim_name_reads(Name s) {
  if (!s || !letter(*s)) return false;
  for (; *s; s++) {
    if (!letter(*s) && !digit(*s) && *s != '.') return false;
  }
  return true;
}

typedef struct Reader {
  DimTab *t;
  Names *names;
  const char *p, *end;
  int depth;
} Reader;

static void blanks(Reader *r) {
  while (r->p < r->end && *r->p == ' ') r->p++;
}

static bool number(Reader *r, int64_t *out) {
  int64_t n = 0;
  if (r->p == r->end || !digit(*r->p)) return false;
  for (; r->p < r->end && digit(*r->p); r->p++) {
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *r->p - '0', &n))
      return false;
  }
  *out = n;
  return true;
}

static Dim read_name(Reader *r) {
  const char *s = r->p;
  int64_t nth = 1;
  while (r->p < r->end && (letter(*r->p) || digit(*r->p) || *r->p == '.')) r->p++;
  size_t n = (size_t)(r->p - s);
  if (r->p < r->end && *r->p == '\'') {
    r->p++;
    if (!number(r, &nth)) return DIM_BAD;
  }
  int64_t seen = 0;
  for (size_t i = 0; i < dim_symbol_count(r->t); i++) {
    const Name have = dim_symbol_name(r->t, (Sym)i);
    if (!have || strlen(have) != n || memcmp(have, s, n) || ++seen != nth) continue;
    return dim_of_symbol(r->t, (Sym)i);
  }
  if (seen + 1 != nth) return DIM_BAD;
  return dim_symbol(r->t, names_get(r->names, s, n), (Span){0, 0, 0}, NULL);
}

static Dim read_sum(Reader *r);

static Dim read_unit(Reader *r) {
  bool minus = false;
  Dim d = DIM_BAD;
  blanks(r);
  while (r->p < r->end && *r->p == '-') {
    minus = !minus;
    r->p++;
    blanks(r);
  }
  int64_t k;
  if (r->p == r->end) return DIM_BAD;
  if (*r->p == '(') {
    if (r->depth++ >= MAX_PARENS) return DIM_BAD;
    r->p++;
    d = read_sum(r);
    blanks(r);
    if (r->p == r->end || *r->p++ != ')') return DIM_BAD;
    r->depth--;
  } else if (*r->p == '?') {
    r->p++;
    if (!number(r, &k) || k >= (int64_t)dim_symbol_count(r->t)) return DIM_BAD;
    d = dim_of_symbol(r->t, (Sym)k);
  } else if (digit(*r->p)) {
    /* The smallest integer has no positive counterpart. */
    static const char smallest[] = "9223372036854775808";
    size_t len = sizeof smallest - 1;
    if (minus && (size_t)(r->end - r->p) >= len && !memcmp(r->p, smallest, len)) {
      r->p += len;
      return dim_const(r->t, INT64_MIN);
    }
    if (!number(r, &k)) return DIM_BAD;
    d = dim_const(r->t, k);
  } else if (r->end - r->p > 4 && !memcmp(r->p, "max(", 4)) {
    if (r->depth++ >= MAX_PARENS) return DIM_BAD;
    r->p += 4;
    Dim a = read_sum(r);
    blanks(r);
    if (r->p == r->end || *r->p++ != ',') return DIM_BAD;
    d = dim_max(r->t, a, read_sum(r));
    blanks(r);
    if (r->p == r->end || *r->p++ != ')') return DIM_BAD;
    r->depth--;
  } else if (letter(*r->p)) {
    d = read_name(r);
  }
  return minus ? dim_sub(r->t, dim_const(r->t, 0), d) : d;
}

static Dim read_product(Reader *r) {
  Dim d = read_unit(r);
  for (;;) {
    blanks(r);
    size_t left = (size_t)(r->end - r->p);
    if (d == DIM_BAD || left == 0) return d;
    if (*r->p == '*') {
      r->p++;
      d = dim_mul(r->t, d, read_unit(r));
    } else if (*r->p == '%') {
      r->p++;
      d = dim_mod(r->t, d, read_unit(r));
    } else if (left >= 2 && r->p[0] == '/' && r->p[1] == '/') {
      r->p += 2;
      d = dim_floordiv(r->t, d, read_unit(r));
    } else {
      return d;
    }
  }
}

static Dim read_sum(Reader *r) {
  Dim d = read_product(r);
  for (;;) {
    blanks(r);
    if (d == DIM_BAD || r->p == r->end || (*r->p != '+' && *r->p != '-')) return d;
    bool minus = *r->p++ == '-';
    Dim e = read_product(r);
    d = minus ? dim_sub(r->t, d, e) : dim_add(r->t, d, e);
  }
}

bool dim_parse(DimTab *t, Names *names, const char *s, size_t n, Dim *out) {
  Reader r = {t, names, s, s + n, 0};
  Dim d = read_sum(&r);
  blanks(&r);
  if (d == DIM_BAD || r.p != r.end) return false;
  *out = d;
  return true;
}
