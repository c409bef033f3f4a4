/* The lexer: bytes to tokens, one at a time.
 *
 * In: a text that is valid UTF-8 without NUL. Out: tokens with their places; comments go to a side
 * table. Idea: the lexer keeps the stack of open brackets, and with it knows where a newline ends a
 * statement (SEP), where `<` opens a policy, and that it is inside a string or a hole of one, so
 * the grammar needs no modes. Closing brackets that are missing are supplied (after an error), so
 * that what the parser sees is always balanced.
 * Invariant: each call moves `pos` forward, pops a bracket or returns the end; time is linear.
 * One file: tokens and the parts of strings open and close brackets of one stack. */
#include "parser/lex.h"

#include <stdio.h>
#include <string.h>

#include "parser/grammar.h"

const char *const parse_reserved[] = {
    "fn",    "let",      "var",    "if",         "else", "for",    "in",   "while",
    "break", "continue", "return", "checkpoint", "wrap", "assert", "and",  "or",
    "not",   "true",     "false",  "self",       "backward", NULL};
const char *const parse_soft[] = {"proc", "model", "param", "buffer", "policy",
                                  "type", "test",  "use",   "as",     NULL};

bool lex_is_reserved(const char *s, size_t n) {
  for (const char *const *w = parse_reserved; *w; w++)
    if (strlen(*w) == n && memcmp(*w, s, n) == 0) return true;
  return false;
}

bool lex_can_end(int kind) {
  switch (kind) {
  case TK_IDENT: case TK_INT: case TK_FLOAT: case TK_SIZE: case TK_STR_CLOSE: case TK_TRUE:
  case TK_FALSE: case TK_SELF: case TK_RPAREN: case TK_RBRACK: case TK_RBRACE: case TK_RETURN:
  case TK_BREAK: case TK_CONTINUE: case TK_BAD: return true;
  default: return false;
  }
}

void lex_init(Lexer *lx, const ParseContext *c, uint32_t file, const char *text, uint32_t n) {
  memset(lx, 0, sizeof *lx);
  lx->text = text;
  lx->n = n;
  lx->c = c;
  lx->file = file;
  lx->complained_at = UINT32_MAX;
  if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) lx->pos = 3; /* a byte order mark */
}

/* ---- errors */

Diag *lex_error(Lexer *lx, ErrCode code, uint32_t lo, uint32_t hi, const char *fmt, ...) {
  if (lx->mute) return NULL;
  lx->errors++;
  if (!lx->c || lx->stop) return NULL;
  if (lx->errors >= PARSE_MAX_ERRORS) lx->stop = true;
  va_list ap;
  va_start(ap, fmt);
  Diag *g = dg_verror(lx->c->diags, code, (Span){lx->file, lo, hi}, fmt, ap);
  va_end(ap);
  return g;
}

void lex_label(Lexer *lx, Diag *g, uint32_t lo, uint32_t hi, const char *text) {
  if (g) dg_label(lx->c->diags, g, (Span){lx->file, lo, hi}, "%s", text);
}

void lex_help(Lexer *lx, Diag *g, const char *text) {
  if (g) dg_help(lx->c->diags, g, "%s", text);
}

/* ---- small helpers */

static bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_word(char c) {
  return is_word_start(c) || is_digit(c);
}

/* Bytes of the character at p (valid UTF-8). */
static uint32_t char_len(const char *p) {
  unsigned char c = (unsigned char)*p;
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static char top(const Lexer *lx) {
  return lx->depth ? lx->open[lx->depth - 1].kind : 0;
}

static bool in_hole(const Lexer *lx) {
  return lx->hole != 0;
}

static bool is_string(char kind) {
  return kind == 'S' || kind == 'R' || kind == 'B' || kind == 'Q';
}

static void push(Lexer *lx, char kind, uint32_t at) {
  if (lx->depth == AST_MAX_NEST) {
    Diag *g = lex_error(lx, ERR_SYNTAX_DEEP, at, at + 1, "nested more than %d deep", AST_MAX_NEST);
    lex_help(lx, g, "give an inner part a name with `let`, or move it to a `fn` of its own");
    lx->stop = true;
    return;
  }
  lx->open[lx->depth++] = (Bracket){kind, at, lx->hole};
  if (kind == 'H') lx->hole = lx->depth;
}

static Bracket pop(Lexer *lx) {
  Bracket b = lx->open[--lx->depth];
  lx->hole = b.hole;
  return b;
}

static Tok token(Lexer *lx, int kind, uint32_t lo, uint32_t hi) {
  Tok t = {.kind = (uint16_t)kind, .lo = lo, .hi = hi};
  lx->last = (uint16_t)kind;
  lx->last_hi = hi;
  return t;
}

/* ---- comments and white space */

static void keep_comment(Lexer *lx, uint32_t lo, uint32_t hi, bool own_line) {
  const char *s = lx->text;
  while (hi > lo && (s[hi - 1] == '\r' || s[hi - 1] == ' ' || s[hi - 1] == '\t')) hi--;
  bool doc = hi - lo >= 2 && s[lo + 1] == '#';
  if (lx->c)
    VEC_PUSH(lx->c->arena, lx->comments, lx->comment_count, lx->comment_cap,
             ((Comment){lo, hi, own_line, doc}));
}

/* Skips blanks, newlines and comments; true when a newline was passed. Stops at a newline or `#` in
 * a hole, where neither may stand. */
static bool skip(Lexer *lx) {
  bool newline = lx->pos == 0 || lx->last_hi == 0;
  bool hole = in_hole(lx);
  for (;;) {
    char c = lx->text[lx->pos];
    if (c == ' ' || c == '\t' || c == '\r') {
      lx->pos++;
    } else if (c == '\n' && !hole) {
      newline = true;
      lx->pos++;
    } else if (c == '#' && !hole) {
      uint32_t lo = lx->pos;
      const char *end = memchr(lx->text + lo, '\n', lx->n - lo);
      lx->pos = end ? (uint32_t)(end - lx->text) : lx->n;
      keep_comment(lx, lo, lx->pos, newline);
    } else {
      return newline;
    }
  }
}

/* ---- numbers */

static Tok number(Lexer *lx, int kind, uint32_t lo, uint32_t hi) {
  Tok t = token(lx, kind, lo, hi);
  if (!lx->c) return t;
  Node *n = ARENA_NEW(lx->c->arena, Node);
  n->kind = kind == TK_INT ? N_INT : kind == TK_FLOAT ? N_FLOAT : N_SIZE;
  n->span = (Span){lx->file, lo, hi};
  n->height = 1;
  n->number.spelling = arena_strdup(lx->c->arena, lx->text + lo, hi - lo);
  t.v.node = n;
  return t;
}

static Tok bad_number(Lexer *lx, uint32_t lo, uint32_t hi, const char *help) {
  Diag *g = lex_error(lx, ERR_SYNTAX_NUMBER, lo, hi, "`%.*s` is not a number",
                      (int)(hi - lo < 60 ? hi - lo : 60), lx->text + lo);
  lex_help(lx, g, help);
  lx->pos = hi;
  return number(lx, TK_INT, lo, hi);
}

static Tok too_large(Lexer *lx, Tok t, const char *what) {
  lex_error(lx, ERR_SYNTAX_NUMBER, t.lo, t.hi, "this number does not fit in 64 bits: %s", what);
  return t;
}

static int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static const char largest[] = "the largest int is 9223372036854775807";

/* 2^63 is kept as -2^63, which is what the minus before it makes of it; without one it is too
 * large, which lex_edges says at the end of the statement. */
static Tok int_literal(Lexer *lx, uint32_t lo, uint32_t hi, unsigned base) {
  Tok t = number(lx, TK_INT, lo, hi);
  if (!lx->c) return t;
  uint64_t v = 0;
  for (uint32_t i = lo + (base == 16 ? 2 : 0); i < hi; i++) {
    int d = hex_digit(lx->text[i]);
    if (d < 0) continue; /* an underscore */
    if (v > ((uint64_t)INT64_MAX + 1 - (unsigned)d) / base) return too_large(lx, t, largest);
    v = v * base + (unsigned)d;
  }
  if (v > (uint64_t)INT64_MAX && !lx->mute)
    VEC_PUSH(lx->c->arena, lx->edges, lx->edge_count, lx->edge_cap, t.v.node);
  t.v.node->number.i = (int64_t)v;
  return t;
}

void lex_take_edge(Lexer *lx, const Node *n) {
  size_t i = lx->edge_count;
  while (i > 0 && lx->edges[i - 1] != n) i--; /* the last one or the last but one */
  if (!i) return;
  for (; i < lx->edge_count; i++) lx->edges[i - 1] = lx->edges[i];
  lx->edge_count--;
}

void lex_edges(Lexer *lx) {
  for (size_t i = 0; i < lx->edge_count; i++) {
    Span at = lx->edges[i]->span;
    too_large(lx, (Tok){.lo = at.lo, .hi = at.hi}, largest);
  }
  lx->edge_count = 0;
}

static Tok float_literal(Lexer *lx, uint32_t lo, uint32_t hi) {
  Tok t = number(lx, TK_FLOAT, lo, hi);
  if (!lx->c) return t;
  char *plain = arena_alloc(lx->c->arena, hi - lo + 1);
  size_t n = 0;
  for (uint32_t i = lo; i < hi; i++)
    if (lx->text[i] != '_') plain[n++] = lx->text[i];
  str_to_f64(plain, n, &t.v.node->number.f);
  return t;
}

/* 1.5GiB in bytes, rounded down. */
static Tok size_literal(Lexer *lx, uint32_t lo, uint32_t hi) {
  static const struct { const char *name; uint64_t bytes; } units[] = {
      {"KiB", 1ull << 10}, {"MiB", 1ull << 20},  {"GiB", 1ull << 30},
      {"TiB", 1ull << 40}, {"KB", 1000ull},      {"MB", 1000000ull},
      {"GB", 1000000000ull}, {"TB", 1000000000000ull}, {"B", 1}};
  Tok t = number(lx, TK_SIZE, lo, hi);
  if (!lx->c) return t;
  uint32_t i = lo;
  while (!is_word_start(lx->text[i]) || lx->text[i] == '_') i++;
  uint64_t unit = 1;
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    if (strlen(units[u].name) == hi - i && memcmp(units[u].name, lx->text + i, hi - i) == 0)
      unit = units[u].bytes;
  uint64_t whole = 0, part = 0, scale = 1; /* whole + part / scale units */
  bool after_dot = false;
  for (uint32_t k = lo; k < i; k++) {
    char c = lx->text[k];
    if (c == '.') after_dot = true;
    if (!is_digit(c)) continue;
    if (!after_dot) {
      if (whole > (uint64_t)INT64_MAX / 10 - 1) return too_large(lx, t, "at most 2^63 - 1 bytes");
      whole = whole * 10 + (unsigned)(c - '0');
    } else if (scale < 1000000) { /* six decimals: part * unit stays below 2^63 */
      part = part * 10 + (unsigned)(c - '0');
      scale *= 10;
    }
  }
  uint64_t rest = part * unit / scale;
  if (whole > ((uint64_t)INT64_MAX - rest) / unit)
    return too_large(lx, t, "at most 2^63 - 1 bytes");
  t.v.node->number.i = (int64_t)(whole * unit + rest);
  return t;
}

/* What to say about a run of digits and letters that is no number. */
static Tok odd_number(Lexer *lx, uint32_t lo, uint32_t hi) {
  const char *s = lx->text + lo;
  if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
    return bad_number(lx, lo, hi, "a hexadecimal number is `0x` and digits 0-9 a-f, as in 0xff");
  if (s[0] == '0' && (s[1] == 'b' || s[1] == 'o'))
    return bad_number(lx, lo, hi, "numbers are decimal, or hexadecimal as in 0xff");
  uint32_t i = lo;
  while (i < hi && (is_digit(lx->text[i]) || lx->text[i] == '_' || lx->text[i] == '.')) i++;
  if (i == hi) return bad_number(lx, lo, hi, "`_` stands between two digits, as in 1_000");
  if (lx->text[i] == 'e' || lx->text[i] == 'E')
    if (i + 1 == hi) return bad_number(lx, lo, hi, "digits follow the `e`, as in 1e-3");
  static const char *const units[] = {"b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib",
                                      "k", "m", "g"};
  char low[4] = {0};
  for (uint32_t k = i; k < hi && k - i < 3; k++) low[k - i] = (char)(lx->text[k] | 0x20);
  if (hi - i <= 3)
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
      if (strcmp(low, units[u]) == 0)
        return bad_number(lx, lo, hi, "units of size are B KB MB GB TB KiB MiB GiB TiB, as in 8MB");
  if (i + 1 == hi && (low[0] == 'f' || low[0] == 'l' || low[0] == 'u' || low[0] == 'j'))
    return bad_number(lx, lo, hi, "numbers have no suffix; a cast is written `f32(1.5)`");
  return bad_number(lx, lo, hi, "a name does not begin with a digit; a product is written `2 * x`");
}

/* ---- strings */

static void put(Lexer *lx, Buf *b, const char *s, uint32_t n) {
  if (lx->c) buf_put(b, s, n);
}

/* \u{1F600}, with pos after `\u`. */
static void unicode_escape(Lexer *lx, Buf *b, uint32_t lo) {
  const char *s = lx->text;
  uint32_t v = 0, digits = 0;
  bool fine = s[lx->pos] == '{';
  if (fine) {
    lx->pos++;
    for (int d; (d = hex_digit(s[lx->pos])) >= 0; lx->pos++, digits++)
      if (digits < 7) v = v * 16 + (uint32_t)d;
    fine = digits >= 1 && digits <= 6 && v <= 0x10ffff && !(v >= 0xd800 && v < 0xe000) &&
           s[lx->pos] == '}';
    if (s[lx->pos] == '}') lx->pos++;
  }
  if (!fine) {
    Diag *g = lex_error(lx, ERR_SYNTAX_ESCAPE, lo, lx->pos, "this is not a character");
    lex_help(lx, g,
             "a character by number is `\\u{..}` with 1 to 6 hexadecimal digits, as in \\u{e9}");
  } else if (lx->c) {
    buf_char(b, v);
  }
}

static void escape(Lexer *lx, Buf *b) {
  uint32_t lo = lx->pos++;
  char c = lx->text[lx->pos];
  if (c == '\n' || lx->pos >= lx->n) {
    if (top(lx) == 'S') return; /* the string is unterminated, said below */
    Diag *g = lex_error(lx, ERR_SYNTAX_ESCAPE, lo, lo + 1, "no escape is a `\\` that ends a line");
    lex_help(lx, g, "a backslash alone is `\\\\`; each line of a text ends with a newline");
    return;
  }
  lx->pos += char_len(lx->text + lx->pos);
  switch (c) {
  case 'n': put(lx, b, "\n", 1); return;
  case 't': put(lx, b, "\t", 1); return;
  case '\\': put(lx, b, "\\", 1); return;
  case '"': put(lx, b, "\"", 1); return;
  case 'u': unicode_escape(lx, b, lo); return;
  default: {
    Diag *g = lex_error(lx, ERR_SYNTAX_ESCAPE, lo, lx->pos, "no escape is written `%.*s`",
                        (int)(lx->pos - lo), lx->text + lo);
    lex_help(lx, g,
             c == '{' || c == '}'
                 ? "braces are doubled: `{{` and `}}`"
                 : "escapes are \\n \\t \\\\ \\\" and \\u{..}; a backslash alone is `\\\\`");
  }
  }
}

/* At the beginning of a line of a block: skips the indentation of the last line. */
static void indentation(Lexer *lx) {
  const char *s = lx->text;
  uint32_t lo = lx->pos, n = lx->block_line == UINT32_MAX ? 0 : lx->block_end - lx->block_line;
  while (lx->pos - lo < n && s[lx->pos] == s[lx->block_line + lx->pos - lo]) lx->pos++;
  uint32_t hi = lx->pos;
  while (s[hi] == ' ' || s[hi] == '\t' || s[hi] == '\r') hi++;
  if (lx->pos - lo == n) return;
  if (s[hi] == '\n') { /* a line of blanks: an empty one */
    lx->pos = hi;
    return;
  }
  Diag *g = lex_error(lx, ERR_SYNTAX_STRING, lo, hi > lo ? hi : lo + 1,
                      "this line is indented less than the end of its text");
  lex_label(lx, g, lx->block_line, lx->block_end + 3, "the end");
  lex_help(lx, g, "the indentation of the closing `\"\"\"` is cut off from each line");
}

/* The line that ends a block: its first characters but blanks are three quotes. */
static void find_block_end(Lexer *lx) {
  const char *s = lx->text, *p = s + lx->pos;
  lx->block_line = lx->block_end = UINT32_MAX;
  while ((p = memchr(p, '\n', lx->n - (size_t)(p - s))) != NULL) {
    const char *line = ++p;
    while (*p == ' ' || *p == '\t') p++;
    if (strncmp(p, "\"\"\"", 3) != 0) continue;
    lx->block_line = (uint32_t)(line - s);
    lx->block_end = (uint32_t)(p - s);
    return;
  }
}

static bool at_quotes(const Lexer *lx) {
  return strncmp(lx->text + lx->pos, "\"\"\"", 3) == 0;
}

/* `\"\"\"`, perhaps raw, with pos behind it. The text begins on the next line. */
static Tok open_block(Lexer *lx, uint32_t lo, char kind) {
  const char *s = lx->text;
  push(lx, kind, lo);
  Tok t = token(lx, TK_STR_OPEN, lo, lx->pos);
  find_block_end(lx);
  while (s[lx->pos] == ' ' || s[lx->pos] == '\t' || s[lx->pos] == '\r') lx->pos++;
  if (s[lx->pos] == '\n') {
    lx->pos++;
    if (lx->pos != lx->block_line) indentation(lx);
  } else if (lx->pos < lx->n) {
    const char *end = strstr(s + lx->pos, "\"\"\"");
    Diag *g =
        lex_error(lx, ERR_SYNTAX_STRING, lo, t.hi, "this text does not begin on the next line");
    lex_help(lx, g, "`\"\"\"` ends its line, the lines of the text follow, and `\"\"\"` stands on "
                    "a line of its own; a text on one line is \"..\" or r\"..\"");
    if (end) { /* leave the text out */
      lx->pos = lx->block_line = lx->block_end = (uint32_t)(end - s);
    }
  }
  return t;
}

/* The end of the line in a string of one line, or the end of the file in a block. */
static void unterminated(Lexer *lx, bool block) {
  uint32_t at = lx->open[lx->depth - 1].at, hole = lx->open[lx->depth - 1].hole;
  Diag *g;
  if (hole && !block) { /* the quote was meant to end the outer string */
    g = lex_error(lx, ERR_SYNTAX_STRING, lx->open[hole - 1].at, at,
                  "this hole of the string is not closed");
    lex_label(lx, g, at, lx->pos, "a string in the hole, without an end");
    lex_help(lx, g,
             "a hole ends with `}`; a `\"` in it begins another string; a brace as text is `{{`");
    lx->complained_at = lx->pos;
    lx->quiet = true;
    return;
  }
  if (lx->complained_at == lx->pos) return; /* of a string in a hole of this one */
  g = lex_error(lx, ERR_SYNTAX_STRING, at, block ? at + 3 : lx->pos,
                block ? "this text has no end" : "this string has no end on its line");
  lex_help(lx, g,
           block ? "a text of several lines ends with `\"\"\"` on a line of its own"
                 : "a string ends with `\"` on the line it begins; a newline in it is `\\n`, or "
                   "the text stands between lines of `\"\"\"`");
}

/* Inside a string, outside its holes: a run of text, a hole's start, or the end. */
static Tok string_part(Lexer *lx) {
  uint32_t lo = lx->pos;
  const char *s = lx->text;
  char kind = top(lx);
  bool raw = kind == 'R' || kind == 'Q', block = kind == 'B' || kind == 'Q', some = false;
  Buf b = {0};
  if (lx->c) buf_init_arena(&b, lx->c->arena);
  for (;;) {
    char c = s[lx->pos];
    if (lx->pos >= lx->n || (block && (lx->pos == lx->block_line || at_quotes(lx)))) break;
    if (!block && (c == '\n' || c == '"')) break;
    if (!raw && c == '{' && s[lx->pos + 1] != '{') break;
    if (block && (c == '\n' || (c == '\r' && s[lx->pos + 1] == '\n'))) {
      lx->pos += c == '\r' ? 2 : 1;
      if (lx->pos == lx->block_line) break; /* the last newline is none of the text */
      put(lx, &b, "\n", 1);
      some = true;
      indentation(lx);
      continue;
    }
    some = true;
    if (c == '\\' && !raw) {
      escape(lx, &b);
    } else if (c == '{' && !raw) {
      put(lx, &b, "{", 1);
      lx->pos += 2;
    } else if (c == '}' && !raw) {
      if (s[lx->pos + 1] == '}') {
        lx->pos += 2;
      } else {
        Diag *g = lex_error(lx, ERR_SYNTAX_STRING, lx->pos, lx->pos + 1,
                            "this `}` closes no hole of the string");
        lex_help(lx, g, "a brace in a string is doubled: `}}`");
        lx->pos++;
      }
      put(lx, &b, "}", 1);
    } else {
      uint32_t from = lx->pos++; /* a quote of a block, or a lone return */
      const char *stops = raw ? "\n\r\"" : "\n\r\"{}\\";
      while (lx->pos < lx->n && !strchr(stops, s[lx->pos])) lx->pos++;
      put(lx, &b, s + from, lx->pos - from);
    }
  }
  if (some) {
    Tok t = token(lx, TK_STR_TEXT, lo, lx->pos);
    if (lx->c) {
      StrPart *p = ARENA_NEW(lx->c->arena, StrPart);
      *p = (StrPart){.text = b.n ? b.s : "", .length = (uint32_t)b.n};
      p->span = (Span){lx->file, lo, lx->pos};
      t.v.part = p;
    }
    return t;
  }
  lo = lx->pos;
  if (lo < lx->n && s[lo] == '{' && !raw) {
    push(lx, 'H', lo);
    lx->pos++;
    return token(lx, TK_HOLE_OPEN, lo, lx->pos);
  }
  if (lo == lx->block_line && block) lx->pos = lx->block_end;
  if (lx->pos >= lx->n || (!block && s[lo] == '\n')) {
    unterminated(lx, block);
  } else {
    lx->pos += block ? 3 : 1;
    if (block && lx->pos != lx->block_end + 3) {
      Diag *g = lex_error(lx, ERR_SYNTAX_STRING, lo, lx->pos,
                          "the end of this text stands behind its last line");
      lex_help(lx, g, "the closing `\"\"\"` stands on a line of its own; quotes in the text are "
                      "`\\\"\"\"`");
    }
  }
  pop(lx);
  return token(lx, TK_STR_CLOSE, lo, lx->pos);
}

static int small_number(Lexer *lx, int most, bool *fine) {
  int v = 0;
  while (is_digit(lx->text[lx->pos])) {
    if (v <= most) v = v * 10 + (lx->text[lx->pos] - '0');
    lx->pos++;
  }
  if (v > most) *fine = false;
  return v;
}

static bool eat(Lexer *lx, const char *word) {
  size_t n = strlen(word);
  if (strncmp(lx->text + lx->pos, word, n) != 0) return false;
  lx->pos += (uint32_t)n;
  return true;
}

/* After the `:` of a hole: the format and the closing brace. */
static Tok hole_format(Lexer *lx, uint32_t lo) {
  const char *s = lx->text;
  Format f = {.digits = -1};
  bool fine = true;
  uint32_t from = ++lx->pos;
  if (s[lx->pos] && strchr("<>^", s[lx->pos])) f.align = s[lx->pos++];
  if (eat(lx, "+")) f.plus = true;
  if (eat(lx, "0")) f.zero = true;
  f.width = small_number(lx, 999, &fine);
  if (eat(lx, ",")) f.comma = true;
  if (eat(lx, ".")) {
    fine = fine && is_digit(s[lx->pos]);
    f.digits = small_number(lx, 99, &fine);
  }
  if (eat(lx, "KiB")) f.kind = 'K';
  else if (eat(lx, "MiB")) f.kind = 'M';
  else if (eat(lx, "GiB")) f.kind = 'G';
  else if (s[lx->pos] && strchr("dxefg%", s[lx->pos])) f.kind = s[lx->pos++];
  if (lx->pos == from || s[lx->pos] != '}') fine = false;
  while (lx->pos < lx->n && !strchr("}\"\n", s[lx->pos])) lx->pos++;
  f.span = (Span){lx->file, from, lx->pos};
  if (!fine) {
    Diag *g = lex_error(lx, ERR_SYNTAX_FORMAT, from, lx->pos > from ? lx->pos : from + 1,
                        "`%.*s` is not a format", (int)(lx->pos - from < 40 ? lx->pos - from : 40),
                        s + from);
    lex_help(lx, g, AST_FORMAT_FORM);
    f = (Format){.digits = -1, .span = f.span};
  }
  pop(lx);
  if (s[lx->pos] == '}') lx->pos++; /* else the string is found to be unterminated */
  Tok t = token(lx, TK_HOLE_CLOSE, lo, lx->pos);
  if (lx->c) {
    t.v.format = ARENA_NEW(lx->c->arena, Format);
    *t.v.format = f;
  }
  return t;
}

/* ---- brackets */

static char opener_of(char c) {
  return c == ')' ? '(' : c == ']' ? '[' : '{';
}

static int closing_token(char kind) {
  switch (kind) {
  case '(': return TK_RPAREN;
  case '[': return TK_RBRACK;
  case '{': return TK_RBRACE;
  case '<': return TK_P_CLOSE;
  case 'H': return TK_HOLE_CLOSE;
  default: return TK_STR_CLOSE;
  }
}

/* Supplies the closing bracket that is missing. */
static Tok supply(Lexer *lx) {
  return token(lx, closing_token(pop(lx).kind), lx->pos, lx->pos);
}

static void unclosed(Lexer *lx, Bracket b, uint32_t lo, uint32_t hi) {
  char shown = b.kind == 'H' ? '{' : b.kind;
  Diag *g;
  if (lo >= lx->n) {
    g = lex_error(lx, ERR_SYNTAX_BRACKET, b.at, b.at + 1, "this `%c` is never closed", shown);
  } else {
    g = lex_error(lx, ERR_SYNTAX_BRACKET, lo, hi,
                  "`%.*s` does not close the `%c` that is open here", (int)(hi - lo), lx->text + lo,
                  shown);
    lex_label(lx, g, b.at, b.at + 1, "opened here");
  }
  lx->quiet = true;
}

/* A line at column 1 that begins a declaration inside the brace at byte `at`: a hint where the
 * closing one is missing. */
static uint32_t suspicious_line(const Lexer *lx, uint32_t at) {
  static const char *const words[] = {"fn ",   "proc ",   "model ", "test \"",
                                      "type ", "policy ", "use "};
  const char *p = lx->text + at;
  while ((p = memchr(p, '\n', lx->n - (size_t)(p - lx->text))) != NULL) {
    p++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (strncmp(p, words[i], strlen(words[i])) == 0) return (uint32_t)(p - lx->text);
  }
  return 0;
}

static Tok at_end(Lexer *lx) {
  if (!lx->depth || lx->stop) return token(lx, 0, lx->n, lx->n);
  if (lx->complained_at != lx->n) {
    lx->complained_at = lx->n;
    Bracket b = lx->open[lx->depth - 1];
    uint32_t line = b.kind == '{' ? suspicious_line(lx, b.at) : 0;
    Diag *g = lex_error(lx, ERR_SYNTAX_BRACKET, b.at, b.at + 1, "this `%c` is never closed",
                        b.kind == 'H' ? '{' : b.kind);
    if (line) lex_label(lx, g, line, line + 1, "still inside it; is a `}` missing above?");
    lx->quiet = true;
  }
  return supply(lx);
}

/* A closing bracket that is left out. */
static Tok leave_out(Lexer *lx, uint32_t lo) {
  lx->pos = lx->last_hi = lo + 1;
  return (Tok){.kind = TK_BAD, .lo = lo, .hi = lo + 1, .semi = true};
}

static Tok closes_nothing(Lexer *lx, uint32_t lo) {
  char c = lx->text[lo];
  if (c == '}' && lx->missing_braces) {
    lx->missing_braces--;
    lx->errors++;
  } else {
    lex_error(lx, ERR_SYNTAX_BRACKET, lo, lo + 1, "this `%c` closes nothing", c);
    lx->quiet = true;
  }
  return leave_out(lx, lo);
}

/* Is a bracket of this kind open, not further out than a string? */
static bool is_open(const Lexer *lx, char kind) {
  for (uint32_t i = lx->depth; i-- > 0 && !is_string(lx->open[i].kind);)
    if (lx->open[i].kind == kind || (lx->open[i].kind == 'H' && kind == '{')) return true;
  return false;
}

static Tok closing(Lexer *lx, uint32_t lo) {
  char c = lx->text[lo], want = opener_of(c);
  bool found = is_open(lx, want);
  if (lx->depth == 0 || (!found && top(lx) == '{')) return closes_nothing(lx, lo);
  Bracket b = lx->open[lx->depth - 1];
  if (b.kind == want) {
    pop(lx);
    lx->pos = lo + 1;
    return token(lx, closing_token(b.kind), lo, lo + 1);
  }
  if (b.kind == 'H' && c == '}') {
    pop(lx);
    lx->pos = lo + 1;
    return token(lx, TK_HOLE_CLOSE, lo, lo + 1);
  }
  if (lx->complained_at != lo) {
    lx->complained_at = lo;
    unclosed(lx, b, lo, lo + 1);
  }
  if (b.kind == 'H') return leave_out(lx, lo); /* inside a string */
  lx->pos = lo;
  if (found) return supply(lx); /* and look at this bracket again */
  pop(lx);                      /* the wrong one was written: take it for the right one */
  lx->pos = lo + 1;
  return token(lx, closing_token(b.kind), lo, lo + 1);
}

/* In a hole: the string or the line ends, or a comment begins. Brackets of the hole are closed, and
 * the hole itself. */
static Tok broken_hole(Lexer *lx, uint32_t lo) {
  char c = lx->text[lo];
  if (lx->complained_at != lo) {
    lx->complained_at = lo;
    uint32_t i = lx->depth;
    while (lx->open[i - 1].kind != 'H') i--;
    uint32_t at = lx->open[i - 1].at;
    Diag *g = lex_error(lx, ERR_SYNTAX_STRING, at, lo, "this hole of the string is not closed");
    lex_help(lx, g,
             c == '"' ? "a hole ends with `}`; a brace as text is `{{`"
             : c == '#' ? "a hole holds no comment"
                        : "a hole ends with `}` on the line it begins; a brace as text is `{{`");
    lx->quiet = true;
  }
  if (c == '#') { /* no comment: leave the rest of the line out */
    while (lx->pos < lx->n && lx->text[lx->pos] != '\n' && lx->text[lx->pos] != '"') lx->pos++;
    lx->complained_at = lx->pos;
  }
  return supply(lx);
}

/* ---- words */

/* A soft keyword counts when a blank and a name follow (for `test` and `use` also a string). */
static bool soft_holds(const Lexer *lx, bool name, bool string) {
  const char *p = lx->text + lx->pos;
  if (*p != ' ' && *p != '\t') return false;
  while (*p == ' ' || *p == '\t') p++;
  if (string && *p == '"') return true;
  if (!name || !is_word_start(*p)) return false;
  const char *end = p;
  while (is_word(*end)) end++;
  return !lex_is_reserved(p, (size_t)(end - p));
}

static Tok word(Lexer *lx, int kind, uint32_t lo) {
  Tok t = token(lx, kind, lo, lx->pos);
  if (lx->c) t.v.name = names_get(lx->c->names, lx->text + lo, lx->pos - lo);
  return t;
}

static Tok soft(Lexer *lx, int kind, uint32_t lo) {
  bool name = kind != TK_TEST, string = kind == TK_TEST || kind == TK_USE;
  return word(lx, soft_holds(lx, name, string) ? kind : TK_IDENT, lo);
}

/* `var` before a `(` is the function, except where a statement may stand and a pattern with a value
 * or a type follows. */
static bool calls_var(const Lexer *lx) {
  const char *p = lx->text + lx->pos;
  int open = 0;
  while (*p == ' ' || *p == '\t') p++;
  if (*p != '(') return false;
  if (top(lx) && top(lx) != '{') return true;
  do { /* names, commas, braces and comments make a pattern */
    if (*p == '#') p += strcspn(p, "\n");
    if (!*p || !(is_word(*p) || strchr("(){}, \t\r\n", *p))) return true;
    open += (*p == '(') - (*p == ')');
    p++;
  } while (open);
  while (*p == ' ' || *p == '\t') p++;
  return *p != ':' && (*p != '=' || p[1] == '=');
}

static Tok foreign_word(Lexer *lx, uint32_t lo, int kind, const char *ours) {
  Diag *g = lex_error(lx, ERR_SYNTAX_WORD, lo, lx->pos, "`%.*s` is written `%s`",
                      (int)(lx->pos - lo), lx->text + lo, ours);
  if (g) g->label = "not a word of ckl";
  return word(lx, kind, lo);
}

static Tok foreign_op(Lexer *lx, uint32_t lo, int kind, const char *ours) {
  lex_error(lx, ERR_SYNTAX_WORD, lo, lx->pos, "`%.*s` is written `%s`", (int)(lx->pos - lo),
            lx->text + lo, ours);
  return token(lx, kind, lo, lx->pos);
}

static Tok bad(Lexer *lx, uint32_t lo) {
  return token(lx, TK_BAD, lo, lx->pos);
}

/* push!(xs, 1) */
static Tok bang_in_name(Lexer *lx, uint32_t lo) {
  Diag *g = lex_error(lx, ERR_SYNTAX_WORD, lo, lx->pos, "no name ends with `!`");
  lex_help(lx, g, "`xs .= push(e)` changes a variable by the result of a function");
  return bad(lx, lo);
}

static Tok odd_char(Lexer *lx, uint32_t lo) {
  const char *s = lx->text + lo;
  lx->pos = lo + char_len(s);
  uint32_t n = lx->pos - lo;
  Diag *g;
  if ((unsigned char)*s < 0x20 || *s == 0x7f) {
    g = lex_error(lx, ERR_SYNTAX_CHAR, lo, lx->pos, "a control character (0x%02x) stands here",
                  (unsigned char)*s);
    return bad(lx, lo);
  }
  g = lex_error(lx, ERR_SYNTAX_CHAR, lo, lx->pos, "`%.*s` does not belong here", (int)n, s);
  const unsigned char *u = (const unsigned char *)s;
  if (n == 3 && u[0] == 0xe2 && u[1] == 0x80 && u[2] >= 0x98 && u[2] <= 0x9f)
    lex_help(lx, g, "strings stand between straight quotes: \"text\"");
  else if (n == 2 && memcmp(s, "\xc2\xa0", 2) == 0)
    lex_help(lx, g, "this is a no-break space; write a plain one");
  else if (n == 3 && memcmp(s, "\xe2\x88\x92", 3) == 0)
    lex_help(lx, g, "this is a minus sign of typography; write `-`");
  else if (n > 1)
    lex_help(lx, g, "names are made of a-z A-Z 0-9 _; other letters stand in strings and comments");
  else if (*s == '?')
    lex_help(lx, g, "a choice is written `if c { a } else { b }`");
  else if (*s == '\\')
    lex_help(lx, g, "a line goes on by itself inside brackets and after an operator");
  else if (*s == '^')
    lex_help(lx, g, "a power is written `x ** 2`");
  else if (*s == '|' && lx->pos < lx->n && lx->text[lx->pos] == '>')
    lex_help(lx, g, "a chain is written `x.f().g()`");
  else if (*s == '&' || *s == '|')
    lex_help(lx, g, "logic is written `and`, `or`, also for bool tensors");
  else if (*s == '~')
    lex_help(lx, g, "logic is written `not`, also for bool tensors");
  else if (*s == '$' || *s == '`')
    lex_help(lx, g, "a value in a string is written \"{x}\"");
  return bad(lx, lo);
}

static Tok single_quotes(Lexer *lx, uint32_t lo) {
  while (lx->pos < lx->n && lx->text[lx->pos] != '\n' && lx->text[lx->pos] != '\'') lx->pos++;
  if (lx->text[lx->pos] == '\'') lx->pos++;
  Diag *g = lex_error(lx, ERR_SYNTAX_STRING, lo, lx->pos, "strings stand between double quotes");
  char before = lo > 0 ? lx->text[lo - 1] : 0; /* x', but f'..' */
  bool prefix = before && strchr("fFrRbBu", before) && (lo < 2 || !is_word(lx->text[lo - 2]));
  bool postfix = (is_word(before) && !prefix) || before == ')' || before == ']';
  lex_help(lx, g, postfix ? "a transposed matrix is written `transpose(x)`" : "write \"text\"");
  return bad(lx, lo);
}

/* ---- the tokens */

/* After `.`: any word is a name, digits are an int. */
static Tok after_dot(Lexer *lx, uint32_t lo) {
  const char *s = lx->text;
  if (is_digit(s[lo])) {
    while (is_digit(s[lx->pos])) lx->pos++;
    if (is_word_start(s[lx->pos])) {
      while (is_word(s[lx->pos])) lx->pos++;
      return bad_number(lx, lo, lx->pos, "an item of a tuple is a plain number, as in t.0");
    }
    return int_literal(lx, lo, lx->pos, 10);
  }
  while (is_word(s[lx->pos])) lx->pos++;
  return word(lx, TK_IDENT, lo);
}

static Tok open_bracket(Lexer *lx, uint32_t lo, char c, int kind) {
  push(lx, c, lo);
  return token(lx, kind, lo, lx->pos);
}

/* Quotes, with `prefix` letters before them. In a hole, which no line goes on behind, three are the
 * empty text and one more. */
static Tok open_string(Lexer *lx, uint32_t lo, uint32_t prefix) {
  bool raw = prefix != 0;
  if (lx->pos - lo - prefix == 3 && !in_hole(lx)) return open_block(lx, lo, raw ? 'Q' : 'B');
  lx->pos = lo + prefix + 1;
  return open_bracket(lx, lo, raw ? 'R' : 'S', TK_STR_OPEN);
}

static Tok plain_int(Lexer *lx, uint32_t lo) {
  const char *p = lx->text + lx->pos;
  if (p[0] == '.' && p[1] != '.') {
    bool exponent = (p[1] == 'e' || p[1] == 'E') &&
                    (is_digit(p[2]) || ((p[2] == '-' || p[2] == '+') && is_digit(p[3])));
    if (!is_word_start(p[1]) || exponent) {
      lx->pos++;
      while (is_word(lx->text[lx->pos])) lx->pos++;
      return bad_number(lx, lo, lx->pos, "a digit follows the dot, as in 1.0; a range is 0..n");
    }
  }
  return int_literal(lx, lo, lx->pos, 10);
}

static Tok scan(Lexer *lx) {
  uint32_t lo = lx->pos;
  const char *cursor = lx->text + lo, *marker = cursor;
#define AT (lx->pos = (uint32_t)(cursor - lx->text))
#define OP(kind) (AT, token(lx, TK_##kind, lo, lx->pos))
#define KW(kind) (AT, word(lx, TK_##kind, lo))
#define SOFT(kind) (AT, soft(lx, TK_##kind, lo))
  /*!re2c
    re2c:define:YYCTYPE = "unsigned char";
    re2c:define:YYCURSOR = cursor;
    re2c:define:YYMARKER = marker;
    re2c:yyfill:enable = 0;

    digit = [0-9];
    digits = digit+ ("_" digit+)*;
    hex = [0-9a-fA-F];
    exponent = [eE] [-+]? digit+;
    ident = [A-Za-z_] [A-Za-z0-9_]*;
    unit = "B" | [KMGT] "B" | [KMGT] "iB";
    odd = digit [A-Za-z0-9_]* ("." digit [A-Za-z0-9_]*)?;

    digits { AT; return plain_int(lx, lo); }
    "0x" hex+ ("_" hex+)* { AT; return int_literal(lx, lo, lx->pos, 16); }
    digits "." digits exponent? | digits exponent { AT; return float_literal(lx, lo, lx->pos); }
    digits ("." digits)? unit { AT; return size_literal(lx, lo, lx->pos); }
    odd { AT; return odd_number(lx, lo, lx->pos); }

    "fn" { return KW(FN); }
    "let" { return KW(LET); }
    "var" { AT; return word(lx, calls_var(lx) ? TK_IDENT : TK_VAR, lo); }
    "if" { return KW(IF); }
    "else" { return KW(ELSE); }
    "for" { return KW(FOR); }
    "in" { return KW(IN); }
    "while" { return KW(WHILE); }
    "break" { return KW(BREAK); }
    "continue" { return KW(CONTINUE); }
    "return" { return KW(RETURN); }
    "checkpoint" { return KW(CHECKPOINT); }
    "wrap" { return KW(WRAP); }
    "assert" { return KW(ASSERT); }
    "and" { return KW(AND); }
    "or" { return KW(OR); }
    "not" { return KW(NOT); }
    "true" { return KW(TRUE); }
    "false" { return KW(FALSE); }
    "self" { return KW(SELF); }
    "backward" { return KW(BACKWARD); }

    "proc" { return SOFT(PROC); }
    "model" { return SOFT(MODEL); }
    "param" { return SOFT(PARAM); }
    "buffer" { return SOFT(BUFFER); }
    "policy" { return SOFT(POLICY); }
    "type" { return SOFT(TYPE); }
    "test" { return SOFT(TEST); }
    "use" { return SOFT(USE); }
    "as" { return SOFT(AS); }

    "True" { AT; return foreign_word(lx, lo, TK_TRUE, "true"); }
    "False" { AT; return foreign_word(lx, lo, TK_FALSE, "false"); }
    "None" { AT; return foreign_word(lx, lo, TK_IDENT, "none"); }
    ident { return KW(IDENT); }

    "(" { AT; return open_bracket(lx, lo, '(', TK_LPAREN); }
    "[" { AT; return open_bracket(lx, lo, '[', TK_LBRACK); }
    "{" { AT; return open_bracket(lx, lo, '{', TK_LBRACE); }
    [)}\]] { return closing(lx, lo); }
    "," { return OP(COMMA); }
    ":" { return OP(COLON); }
    ";" { Tok t = OP(SEP); t.semi = true; return t; }
    "." { return OP(DOT); }
    ".." { return OP(RANGE); }
    "..." { return OP(ELLIPSIS); }
    "->" { return OP(ARROW); }
    "=" { return OP(EQ); }
    "+=" { return OP(PLUSEQ); }
    ".=" { return OP(DOTEQ); }
    "-=" { return OP(MINUSEQ); }
    "*=" { return OP(STAREQ); }
    "/=" { return OP(SLASHEQ); }
    "@=" { return OP(ATEQ); }
    "<=" { return OP(LE); }
    ">=" { return OP(GE); }
    "==" { return OP(EQEQ); }
    "!=" { return OP(NE); }
    ">" { return OP(GT); }
    "+" { return OP(PLUS); }
    "-" { return OP(MINUS); }
    "*" { return OP(STAR); }
    "/" { return OP(SLASH); }
    "//" { return OP(DSLASH); }
    "%" { return OP(PERCENT); }
    "@" { return OP(AT); }
    "**" { return OP(POW); }
    "<" {
      AT;
      if (lx->last == TK_CHECKPOINT || lx->last == TK_WRAP)
        return open_bracket(lx, lo, '<', TK_P_OPEN);
      return token(lx, TK_LT, lo, lx->pos);
    }
    "\"" | "\"\"\"" { AT; return open_string(lx, lo, 0); }
    "r\"" | "r\"\"\"" { AT; return open_string(lx, lo, 1); }
    "'" { AT; return single_quotes(lx, lo); }

    "&&" { AT; return foreign_op(lx, lo, TK_AND, "and"); }
    "||" { AT; return foreign_op(lx, lo, TK_OR, "or"); }
    "!" {
      AT;
      if (lo > 0 && is_word(lx->text[lo - 1])) return bang_in_name(lx, lo);
      return foreign_op(lx, lo, TK_NOT, "not");
    }
    "===" { AT; return foreign_op(lx, lo, TK_EQEQ, "=="); }
    "!==" | "<>" {
      AT;
      if (lx->text[lo] == '<' && (lx->last == TK_CHECKPOINT || lx->last == TK_WRAP)) {
        lx->pos = lo + 1;
        return open_bracket(lx, lo, '<', TK_P_OPEN);
      }
      return foreign_op(lx, lo, TK_NE, "!=");
    }
    "=>" { AT; return foreign_op(lx, lo, TK_EQ, "="); }
    "%=" { AT; return foreign_op(lx, lo, TK_EQ, "x = x % e"); }
    "//=" { AT; return foreign_op(lx, lo, TK_EQ, "x = x // e"); }
    "**=" { AT; return foreign_op(lx, lo, TK_EQ, "x = x ** e"); }
    ":=" { AT; return foreign_op(lx, lo, TK_EQ, "="); }
    * { return odd_char(lx, lo); }
  */
}

static Tok next(Lexer *lx) {
  if (lx->stop) return token(lx, 0, lx->pos, lx->pos);
  if (is_string(top(lx))) return string_part(lx);
  bool newline = skip(lx) || lx->newline;
  lx->newline = false;
  uint32_t lo = lx->pos;
  const char *s = lx->text + lo;
  bool end = lo >= lx->n;
  bool closes = *s == '"' && lex_can_end(lx->last); /* a string stands behind no value */
  if (in_hole(lx) && (end || closes || *s == '#' || *s == '\n')) return broken_hole(lx, lo);
  if ((newline || end) && lex_can_end(lx->last) && (!lx->depth || top(lx) == '{') &&
      !(s[0] == '.' && is_word_start(s[1]))) {
    uint32_t hi = lx->last_hi;
    lx->newline = newline; /* for the token after it */
    return token(lx, TK_SEP, hi, hi);
  }
  if (end) return at_end(lx);
  Tok t;
  char kind = top(lx);
  if (kind == 'H' && *s == ':') {
    t = hole_format(lx, lo);
  } else if (kind == '<' && (*s == '{' || *s == ';' || *s == '}')) {
    Diag *g = lex_error(lx, ERR_SYNTAX_BRACKET, lo, lo + 1, "the `<` of this policy is not closed");
    lex_label(lx, g, lx->open[lx->depth - 1].at, lx->open[lx->depth - 1].at + 1, "opened here");
    lex_help(lx, g, "write `>` before the block, as in `checkpoint <save none> { .. }`");
    t = supply(lx);
  } else if (kind == '<' && *s == '>') {
    lx->pos++;
    pop(lx);
    t = token(lx, TK_P_CLOSE, lo, lx->pos);
  } else if (lx->last == TK_DOT && is_word(*s)) {
    t = after_dot(lx, lo);
  } else {
    t = scan(lx);
  }
  t.first = newline;
  return t;
}

Tok lex_next(Lexer *lx) {
  Tok t = next(lx);
  if (lx->stop && t.kind != 0) t = token(lx, 0, t.lo, t.hi);
  return t;
}
