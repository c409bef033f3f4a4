/* JSON (RFC 8259): a text to what it holds, piece by piece.
 *
 * In: bytes that may hold anything. Out: calls, one for each value, key, beginning and end. Idea: a
 * loop with a bit for each open bracket, so no text is too deep for the C stack.
 * Invariant: a number is read without a loss or not at all: a whole one that 64 bits do not hold,
 * and one beyond all floats, are errors. */
#include "runtime/json.h"

#include <math.h>
#include <string.h>

#include "runtime/lines.h"
#include "runtime/str.h"

typedef struct Json {
  const char *name, *text, *at, *end;
  Arena *arena;
  const char *(*take)(void *ud, const JsonPiece *p);
  void *ud;
  char *buf; /* of texts with escapes */
  size_t buf_size;
  int depth;
  bool dict[JSON_DEEP + 1];
  Err *err;
} Json;

static bool bad(const Json *j, const char *at, const char *what) {
  uint64_t line = 1, column = 1;
  for (const char *p = j->text; p < at; p++) {
    if (*p == '\n') {
      line++;
      column = 1;
    } else {
      column += ((unsigned char)*p & 0xc0) != 0x80;
    }
  }
  return err_set(j->err, "%s:%llu:%llu: %s", j->name, (unsigned long long)line,
                 (unsigned long long)column, what);
}

static bool give(Json *j, const char *at, const JsonPiece *p) {
  const char *why = j->take(j->ud, p);
  return !why || bad(j, at, why);
}

static void blanks(Json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
    j->at++;
}

static bool hex4(const char *p, const char *end, uint32_t *out) {
  *out = 0;
  if (end - p < 4) return false;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int d = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                 : -1;
    if (d < 0) return false;
    *out = *out << 4 | (uint32_t)d;
  }
  return true;
}

/* The escape at *p, behind its backslash; it is never shorter than its character. */
static bool escape(const char **p, const char *end, char **to) {
  static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
  uint32_t cp, low;
  const char *k = *p < end && **p ? strchr(from, **p) : NULL;
  if (k) {
    *(*to)++ = is[k - from];
    ++*p;
    return true;
  }
  if (*p == end || **p != 'u' || !hex4(*p + 1, end, &cp)) return false;
  *p += 5;
  if (cp >= 0xdc00 && cp <= 0xdfff) return false;
  if (cp >= 0xd800 && cp <= 0xdbff) {
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u' || !hex4(*p + 2, end, &low) ||
        low < 0xdc00 || low > 0xdfff)
      return false;
    *p += 6;
    cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
  }
  int more = cp < 0x80 ? 0 : cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
  *(*to)++ = (char)(more ? (0xff00 >> (more + 1) & 0xff) | cp >> 6 * more : cp);
  while (more--) *(*to)++ = (char)(0x80 | (cp >> 6 * more & 0x3f));
  return true;
}

/* A text in quotes, from j->at on. */
static bool read_text(Json *j, const char **s, size_t *n) {
  const char *open = j->at, *p = open + 1;
  bool escapes = false;
  for (; p < j->end && *p != '"'; p++) {
    if ((unsigned char)*p < ' ')
      return bad(j, p, "a control character in a text; `\\n` is written");
    if (*p != '\\') continue;
    escapes = true;
    if (++p == j->end) break;
  }
  if (p >= j->end) return bad(j, open, "a text has no end");
  *s = open + 1;
  *n = (size_t)(p - *s);
  j->at = p + 1;
  if (!escapes) return true;
  if (*n > j->buf_size) {
    char *more = arena_try(j->arena, 2 * *n);
    if (!more) return err_nomem(j->err, j->name);
    j->buf = more;
    j->buf_size = 2 * *n;
  }
  char *to = j->buf;
  for (const char *q = *s; q < p;) {
    const char *from = q;
    if (*q != '\\')
      *to++ = *q++;
    else if (!escape((q++, &q), p, &to))
      return bad(j, from, "no escape of JSON");
  }
  *s = j->buf;
  *n = (size_t)(to - j->buf);
  return true;
}

static size_t digits(const Json *j, const char *p) {
  size_t n = 0;
  while (p + n < j->end && p[n] >= '0' && p[n] <= '9') n++;
  return n;
}

static bool read_number(Json *j) {
  const char *from = j->at, *p = from + (*from == '-');
  size_t n = digits(j, p);
  if (!n) return bad(j, from, "no value of JSON");
  if (n > 1 && *p == '0') return bad(j, from, "a number does not begin with 0");
  p += n;
  JsonPiece v = {.kind = JSON_INT};
  if (p < j->end && *p == '.') {
    v.kind = JSON_REAL;
    n = digits(j, ++p);
    if (!n) return bad(j, from, "a digit follows the point");
    p += n;
  }
  if (p < j->end && (*p == 'e' || *p == 'E')) {
    v.kind = JSON_REAL;
    p++;
    if (p < j->end && (*p == '+' || *p == '-')) p++;
    n = digits(j, p);
    if (!n) return bad(j, from, "a digit follows the e");
    p += n;
  }
  if (v.kind == JSON_INT && !str_to_i64(from, (size_t)(p - from), &v.i))
    return bad(j, from, "an int has 64 bits, this one has more; with `.0` it is a float");
  if (v.kind == JSON_REAL && (!str_to_f64(from, (size_t)(p - from), &v.x) || isinf(v.x)))
    return bad(j, from, "a number beyond all floats");
  j->at = p;
  return give(j, from, &v);
}

static bool word(Json *j, const char *w) {
  size_t n = strlen(w);
  if ((size_t)(j->end - j->at) < n || memcmp(j->at, w, n)) return false;
  j->at += n;
  return true;
}

/* A value, or the beginning of one. */
static bool read_value(Json *j) {
  const char *from = j->at;
  JsonPiece p = {.kind = JSON_NULL};
  if (from == j->end) return bad(j, from, "a value is missing");
  if (*from == '"') {
    p.kind = JSON_TEXT;
    return read_text(j, &p.s, &p.n) && give(j, from, &p);
  }
  if (*from == '[' || *from == '{') {
    if (j->depth == JSON_DEEP) return bad(j, from, "nested too deeply");
    j->dict[++j->depth] = *from == '{';
    p.kind = *from == '{' ? JSON_DICT : JSON_LIST;
    j->at++;
    return give(j, from, &p);
  }
  if (word(j, "null")) return give(j, from, &p);
  p.kind = JSON_BOOL;
  p.yes = word(j, "true");
  if (p.yes || word(j, "false")) return give(j, from, &p);
  if (word(j, "NaN") || word(j, "Infinity") || word(j, "-Infinity"))
    return bad(j, from, "JSON has no NaN and no infinity");
  return read_number(j);
}

static bool read_key(Json *j) {
  JsonPiece p = {.kind = JSON_KEY};
  const char *from = j->at;
  if (from == j->end || *from != '"') return bad(j, from, "a key, a text in quotes, is missing");
  if (!read_text(j, &p.s, &p.n) || !give(j, from, &p)) return false;
  blanks(j);
  if (j->at == j->end || *j->at != ':') return bad(j, j->at, "`:` is missing behind a key");
  j->at++;
  blanks(j);
  return true;
}

/* Behind a value: ends what it ends, and passes over the comma before the next one. */
static bool read_end(Json *j, bool *first) {
  static const JsonPiece end = {.kind = JSON_END};
  for (;;) {
    blanks(j);
    if (!j->depth) return true;
    char close = j->dict[j->depth] ? '}' : ']';
    if (j->at < j->end && *j->at == close) {
      j->at++;
      j->depth--;
      *first = false;
      if (!give(j, j->at - 1, &end)) return false;
      continue;
    }
    if (*first) return true;
    if (j->at == j->end || *j->at != ',')
      return bad(j, j->at, close == '}' ? "`,` or `}` is missing" : "`,` or `]` is missing");
    j->at++;
    blanks(j);
    return true;
  }
}

static bool read_all(Json *j) {
  enum { LOOK_EACH = 1 << 12 };
  const Interrupt *stop = j->arena->mem->stop;
  blanks(j);
  for (long pieces = 0;; pieces++) {
    if (pieces % LOOK_EACH == 0 && interrupt_asked(stop)) return err_interrupted(j->err);
    if (j->depth && j->dict[j->depth] && !read_key(j)) return false;
    int before = j->depth;
    if (!read_value(j)) return false;
    bool first = j->depth > before;
    if (!read_end(j, &first)) return false;
    if (!j->depth) break;
  }
  return j->at == j->end || bad(j, j->at, "there is more behind the value");
}

bool json_read(Arena *a, const char *name, const char *text, size_t n,
               const char *(*take)(void *ud, const JsonPiece *p), void *ud, Err *e) {
  if (!lines_valid(name, text, n, e)) return false;
  if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, n -= 3;
  Json *j = arena_try(a, sizeof *j);
  if (!j) return err_nomem(e, name);
  *j = (Json){.name = name, .text = text, .at = text, .end = text + n, .arena = a};
  j->take = take;
  j->ud = ud;
  j->err = e;
  return read_all(j);
}
