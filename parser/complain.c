/* Error messages for a token that does not fit.
 *
 * In: the parser's state before the token, the token, the two before it. Out: an error that says
 * what was found and what would fit, with a help. Idea: gr_accepts answers for every token whether
 * it would fit; groups of tokens are named in words. Mistakes known from other languages come
 * first. */
#include "parser/lex.h"

#include <string.h>

#include "parser/grammar.h"

static bool fits(const Parser *ps, int token) {
  return gr_accepts(ps->gr, token);
}

static bool is_text(const Parser *ps, Tok t, const char *word) {
  size_t n = strlen(word);
  return t.hi - t.lo == n && memcmp(ps->lx.text + t.lo, word, n) == 0;
}

/* A token that begins with a letter: a name or a word of the language. */
static bool is_word(const Parser *ps, Tok t) {
  char c = t.hi > t.lo ? ps->lx.text[t.lo] : ' ';
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_reserved(const Parser *ps, Tok t) {
  return is_word(ps, t) && lex_is_reserved(ps->lx.text + t.lo, t.hi - t.lo);
}

static char top(const Parser *ps) {
  return ps->lx.depth ? ps->lx.open[ps->lx.depth - 1].kind : 0;
}

/* May an expression begin with this token? */
static bool begins_expr(int kind) {
  switch (kind) {
  case TK_IDENT:
  case TK_INT:
  case TK_FLOAT:
  case TK_SIZE:
  case TK_STR_OPEN:
  case TK_TRUE:
  case TK_FALSE:
  case TK_SELF:
  case TK_FN:
  case TK_IF:
  case TK_CHECKPOINT:
  case TK_WRAP:
  case TK_NOT: return true;
  default: return false;
  }
}

static bool is_comparison(int kind) {
  return kind == TK_LT || kind == TK_LE || kind == TK_GT || kind == TK_GE || kind == TK_EQEQ ||
         kind == TK_NE || kind == TK_IN;
}

/* Whether it is an operator between two operands that cannot begin an expression. */
static bool continues(int kind) {
  switch (kind) {
  case TK_PLUS:
  case TK_STAR:
  case TK_SLASH:
  case TK_PERCENT:
  case TK_POW:
  case TK_AND:
  case TK_OR:
  case TK_RANGE:
  case TK_COMMA:
  case TK_EQ: return true;
  default: return is_comparison(kind);
  }
}

bool ps_is_statement_word(const Parser *ps, Tok t) {
  switch (t.kind) {
  case TK_LET:
  case TK_VAR:
  case TK_WHILE:
  case TK_RETURN:
  case TK_ASSERT:
  case TK_BREAK:
  case TK_CONTINUE:
  case TK_PROC:
  case TK_MODEL:
  case TK_TEST:
  case TK_USE:
  case TK_TYPE:
  case TK_POLICY: return true;
  case TK_FN: { /* a name follows */
    const char *p = ps->lx.text + t.hi;
    while (*p == ' ' || *p == '\t') p++;
    return *p == '_' || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
  }
  default: return false;
  }
}

/* Whether a symbol is on the stack above the last open bracket or statement. */
static bool header_open(const Parser *ps, int symbol) {
  int closed = 0;
  for (int i = 0, s; (s = gr_symbol(ps->gr, i)) >= 0 && i < 64; i++) {
    if (s == symbol && !closed) return true;
    if (s == TK_RBRACE || s == TK_RPAREN || s == TK_RBRACK) {
      closed++;
    } else if (s == TK_LBRACE || s == TK_LPAREN || s == TK_LBRACK) {
      if (closed-- == 0) return false;
    } else if (s == TK_SEP || s == TK_EQ) {
      return false;
    }
  }
  return false;
}

static uint32_t line_end(const Parser *ps, uint32_t at) {
  const char *p = memchr(ps->lx.text + at, '\n', ps->lx.n - at);
  return p ? (uint32_t)(p - ps->lx.text) : ps->lx.n;
}

/* The first byte from `at` on that is no blank or newline and not in a comment. */
static uint32_t next_visible(const Parser *ps, uint32_t at) {
  const Lexer *lx = &ps->lx;
  while (at < lx->n) {
    char c = lx->text[at];
    if (c == '#')
      at = line_end(ps, at);
    else if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
      break;
    else
      at++;
  }
  return at;
}

/* ---- words of other languages */

typedef struct Foreign {
  const char *word, *say, *help;
} Foreign;

/* At the start of a statement. */
static const Foreign starters[] = {
    {"def", "a function is declared with `fn`", "fn f(x) = e, or fn f(x) { .. }"},
    {"func", "a function is declared with `fn`", "fn f(x) = e, or fn f(x) { .. }"},
    {"fun", "a function is declared with `fn`", "fn f(x) = e, or fn f(x) { .. }"},
    {"function", "a function is declared with `fn`", "fn f(x) = e, or fn f(x) { .. }"},
    {"class", "a class is a `model`", "model M(n: int) { param w: f32[n]  fn forward(x) = .. }"},
    {"struct", "a record type is declared with `type`", "type P = (x: f32, y: f32)"},
    {"import", "declarations are brought by `use`",
     "functions of tensors need none; use nn (Linear), or use \"file.ckl\" as m"},
    {"from", "declarations are brought by `use`",
     "functions of tensors need none; use nn (Linear), or use \"file.ckl\" (f)"},
    {"include", "declarations are brought by `use`", "use nn, or use \"file.ckl\" as m"},
    {"require", "declarations are brought by `use`", "use nn, or use \"file.ckl\" as m"},
    {"elif", "`elif` is written `else if`, on the line of the `}`", "if a { .. } else if b { .. }"},
    {"elsif", "`elsif` is written `else if`, on the line of the `}`",
     "if a { .. } else if b { .. }"},
    {"elseif", "`elseif` is written `else if`, on the line of the `}`",
     "if a { .. } else if b { .. }"},
    {"unless", "`unless c` is written `if not c`", NULL},
    {"const", "a value that does not change is a `let`", "let x = e"},
    {"val", "a value that does not change is a `let`", "let x = e"},
    {"mut", "a variable is declared with `var`", "var x = e"},
    {"auto", "a value is named with `let`", "let x = e"},
    {"local", "a value is named with `let`", "let x = e"},
    {"int", "a value is named with `let`", "let n: int = e"},
    {"float", "a value is named with `let`", "let x: float = e"},
    {"try", "there are no exceptions to catch",
     "`error_of(f)` runs f and gives its error, or none"},
    {"except", "there are no exceptions to catch",
     "`error_of(f)` runs f and gives its error, or none"},
    {"catch", "there are no exceptions to catch",
     "`error_of(f)` runs f and gives its error, or none"},
    {"finally", "there are no exceptions to catch",
     "`error_of(f)` runs f and gives its error, or none"},
    {"raise", "there are no exceptions", "`assert c` stops the program when c is false"},
    {"throw", "there are no exceptions", "`assert c` stops the program when c is false"},
    {"with", "a block with a mode is `wrap`",
     "wrap <no_grad> { .. }; a file is read whole, by one call: read_text(path)"},
    {"switch", "there is no `switch`", "if a { .. } else if b { .. } else { .. }"},
    {"match", "there is no `match`", "if a { .. } else if b { .. } else { .. }"},
    {"case", "there is no `switch`", "if a { .. } else if b { .. } else { .. }"},
    {"print", "a call has parentheses", "print(x)"},
    {"echo", "`echo` is written `print`", "print(x)"},
    {"puts", "`puts` is written `print`", "print(x)"},
    {"del", "nothing is deleted by hand",
     "memory is freed as soon as nothing refers to it; d .= remove(key) takes a key out"},
    {"global", "a `proc` sees the `var`s of the file as they are", NULL},
    {"nonlocal", "a function cannot assign a variable outside of it", "return the new value"},
    {"async", "there is no `async`", NULL},
    {"yield", "there is no `yield`", "a comprehension makes a list: [f(i) for i in 0..n]"},
    {"enum", "there is no `enum`", NULL},
    {"do", "there is no `do`", "a block alone is { .. }"},
    {"repeat", "there is no `repeat`", "for i in 0..n { .. }"},
    {"loop", "there is no `loop`", "while true { .. }"},
};

/* Where an operator would fit. */
static const Foreign operators[] = {
    {"is", "`is` is written `==`", "x == none; same(a, b) compares identity"},
    {"then", "there is no `then`", "if c { a } else { b }"},
    {"do", "there is no `do`", "for i in 0..n { .. }"},
    {"mod", "`mod` is written `%`", NULL},
    {"div", "`div` is written `//`", NULL},
    {"xor", "`xor` of bools is written `!=`", NULL},
    {"to", "a range is written `0..n`", NULL},
    {"step", "a range has no step", "for i in step_by(0..n, 2) { .. }"},
    {"as", "a cast is a call", "f32(x), int(x)"},
    {"else", "`else` belongs to a block", "if c { a } else { b }"},
};

static const Foreign *foreign(const Parser *ps, Tok t, const Foreign *table, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (is_text(ps, t, table[i].word)) return &table[i];
  return NULL;
}
#define FOREIGN(ps, t, table) foreign(ps, t, table, sizeof(table) / sizeof *(table))

static bool say(Parser *ps, ErrCode code, uint32_t lo, uint32_t hi, const char *what,
                const char *help) {
  Diag *g = lex_error(&ps->lx, code, lo, hi, "%s", what);
  if (help) lex_help(&ps->lx, g, help);
  return true;
}

static bool at_statement_start(Tok before) {
  return before.kind == TK_SEP || before.kind == TK_LBRACE || before.kind == 0 ||
         before.kind == TK_BAD;
}

static bool foreign_word(Parser *ps, Tok t) {
  const Foreign *f = NULL;
  if (ps->prev.kind == TK_IDENT && at_statement_start(ps->prev2) && !is_comparison(t.kind)) {
    f = FOREIGN(ps, ps->prev, starters);
    if (f) return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, ps->prev.hi, f->say, f->help);
  }
  if (ps->prev.kind == TK_IDENT && is_text(ps, ps->prev, "lambda") &&
      (is_word(ps, t) || t.kind == TK_COLON))
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, ps->prev.hi, "a function is written `fn(x) = e`",
               NULL);
  if (ps->prev.kind == TK_IDENT && is_text(ps, ps->prev, "new") && is_word(ps, t))
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, ps->prev.hi, "an instance is made by a call",
               "Mlp(64, 10)");
  if (is_text(ps, t, "is") && fits(ps, TK_PLUS) &&
      !strncmp(ps->lx.text + next_visible(ps, t.hi), "not ", 4))
    return say(ps, ERR_SYNTAX_WORD, t.lo, next_visible(ps, t.hi) + 3, "`is not` is written `!=`",
               "x != none; not same(a, b) compares identity");
  if ((f = FOREIGN(ps, t, operators)) != NULL && fits(ps, TK_PLUS))
    return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, f->say, f->help);
  return false;
}

/* ---- repairs */

static bool mend_newline(Parser *ps, Tok *t) {
  if (!fits(ps, TK_LBRACE)) return false;
  uint32_t at = next_visible(ps, t->hi);
  if (at >= ps->lx.n || ps->lx.text[at] != '{') return false;
  say(ps, ERR_SYNTAX_BODY, at, at + 1, "the `{` of a body stands on the line of its header", NULL);
  t->kind = TK_BAD; /* leave the newline out */
  return true;
}

static bool mend_equals(Parser *ps, Tok *t) {
  if (!fits(ps, TK_EQEQ)) return false;
  if (!header_open(ps, TK_IF) && !header_open(ps, TK_WHILE) && !header_open(ps, TK_ASSERT))
    return false;
  say(ps, ERR_SYNTAX_EQUALS, t->lo, t->hi, "`=` assigns; here a condition stands",
      "to compare write `==`");
  t->kind = TK_EQEQ;
  return true;
}

bool ps_mend(Parser *ps, Tok *t) {
  Lexer *lx = &ps->lx;
  if (t->kind == TK_SEP && !t->semi && mend_newline(ps, t)) return true;
  if (t->kind == TK_EQ && mend_equals(ps, t)) return true;
  if (t->kind == TK_ELSE && t->first && ps->prev.kind == TK_SEP && ps->prev2.kind == TK_RBRACE) {
    say(ps, ERR_SYNTAX_ELSE, t->lo, t->hi, "`else` stands on the line of the `}`",
        "write `} else {`");
    t->kind = TK_BAD; /* leave it out: what follows is a block or an `if` */
    return true;
  }
  bool elif = t->kind == TK_IDENT &&
              (is_text(ps, *t, "elif") || is_text(ps, *t, "elsif") || is_text(ps, *t, "elseif"));
  if (elif && fits(ps, TK_ELSE)) {
    lex_error(lx, ERR_SYNTAX_WORD, t->lo, t->hi, "`%.*s` is written `else if`",
              (int)(t->hi - t->lo), lx->text + t->lo);
    ps_feed(ps, (Tok){.kind = TK_ELSE, .lo = t->lo, .hi = t->lo});
    t->kind = TK_IF;
    return true;
  }
  if (t->kind == TK_COLON && fits(ps, TK_LBRACE) && lx->text[next_visible(ps, t->hi)] == '{') {
    say(ps, ERR_SYNTAX_BODY, t->lo, t->hi, "no `:` stands before a body", NULL);
    t->kind = TK_BAD;
    return true;
  }
  return false;
}

/* ---- in words */

static void found(const Parser *ps, Tok t, Buf *b) {
  const Lexer *lx = &ps->lx;
  switch (t.kind) {
  case 0: buf_puts(b, "the end of the file"); return;
  case TK_SEP: buf_puts(b, t.semi ? "`;`" : "the end of the line"); return;
  case TK_STR_OPEN:
  case TK_STR_TEXT:
  case TK_STR_CLOSE: buf_puts(b, "a string"); return;
  case TK_HOLE_OPEN:
  case TK_HOLE_CLOSE: buf_puts(b, "the end of the hole"); return;
  case TK_INT:
  case TK_FLOAT:
  case TK_SIZE: buf_puts(b, "the number "); break;
  default:
    if (is_reserved(ps, t)) buf_puts(b, "the word ");
  }
  int n = t.hi - t.lo < 40 ? (int)(t.hi - t.lo) : 40;
  buf_printf(b, "`%.*s`", n, lx->text + t.lo);
}

/* "an expression, `)` or `,`". */
static void expected(const Parser *ps, Buf *b) {
  const char *words[5];
  int n = 0;
  bool operand = fits(ps, TK_INT), operator= fits(ps, TK_PLUS) && !operand;
  if (operand && fits(ps, TK_LET)) {
    words[n++] = fits(ps, TK_PARAM) ? "a declaration or statement" : "a statement";
  } else if (top(ps) == '<' && operand) {
    words[n++] = "a word";
  } else if (operand) {
    words[n++] = "an expression";
  } else if (fits(ps, TK_FN) && fits(ps, TK_IDENT)) {
    words[n++] = "a type";
  } else if (fits(ps, TK_IDENT) && fits(ps, TK_LBRACE) && !operator) {
    words[n++] = "a name or pattern";
  } else if (fits(ps, TK_IDENT)) {
    words[n++] = "a name";
  } else if (fits(ps, TK_FN)) {
    words[n++] = "`fn`";
  }
  if (operator) words[n++] = "an operator";
  static const struct {
    int token;
    const char *word;
  } marks[] = {{TK_RPAREN, "`)`"},
               {TK_RBRACK, "`]`"},
               {TK_P_CLOSE, "`>`"},
               {TK_HOLE_CLOSE, "`}`"},
               {TK_COMMA, "`,`"},
               {TK_LBRACE, "`{`"},
               {TK_EQ, "`=`"},
               {TK_IN, "`in`"},
               {TK_ARROW, "`->`"},
               {TK_COLON, "`:`"},
               {TK_P_OPEN, "`<`"},
               {TK_SEP, "the end of the line"},
               {TK_STR_OPEN, "a string"},
               {TK_LPAREN, "`(`"}};
  bool many = n && strcmp(words[0], "a type") == 0;
  for (size_t i = 0; i < sizeof marks / sizeof *marks && n < 4; i++) {
    int k = marks[i].token;
    if (!fits(ps, k)) continue;
    if ((operand || many) && (k == TK_LBRACE || k == TK_STR_OPEN || k == TK_LPAREN || k == TK_SEP))
      continue;
    if (k == TK_LBRACE && n && strcmp(words[0], "a name or pattern") == 0) continue;
    if (operator&&(k == TK_LPAREN || k == TK_COLON || k == TK_IN)) continue;
    if (k == TK_LPAREN && n) continue;
    words[n++] = marks[i].word;
  }
  if (!n && fits(ps, TK_RBRACE)) words[n++] = "`}`";
  if (!n) words[n++] = "something else";
  for (int i = 0; i < n; i++)
    buf_printf(b, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", words[i]);
}

/* ---- the message */

/* An error for a new statement inside an open bracket. */
static bool unclosed_bracket(Parser *ps, Tok t) {
  char c = top(ps);
  if (!t.first || !ps_is_statement_word(ps, t) || (c != '(' && c != '[' && c != '<')) return false;
  uint32_t at = ps->lx.open[ps->lx.depth - 1].at;
  Diag *g = lex_error(&ps->lx, ERR_SYNTAX_BRACKET, at, at + 1, "this `%c` is not closed", c);
  lex_label(&ps->lx, g, t.lo, t.hi, "a new statement begins here");
  return true;
}

static bool body_missing(Parser *ps, Tok t) {
  if (!fits(ps, TK_LBRACE) || fits(ps, TK_LET)) return false;
  const char *what = header_open(ps, TK_ELSE)         ? "the `else`"
                     : header_open(ps, TK_IF)         ? "the `if`"
                     : header_open(ps, TK_WHILE)      ? "the `while`"
                     : header_open(ps, TK_FOR)        ? "the `for`"
                     : header_open(ps, TK_TEST)       ? "the `test`"
                     : header_open(ps, TK_MODEL)      ? "the `model`"
                     : header_open(ps, TK_WRAP)       ? "the `wrap`"
                     : header_open(ps, TK_CHECKPOINT) ? "the `checkpoint`"
                     : fits(ps, TK_EQ) && !fits(ps, TK_PLUS) && !fits(ps, TK_COLON) ? "the function"
                                                                                    : NULL;
  if (!what || (t.kind != TK_SEP && t.kind != TK_COLON && t.kind != 0 && !begins_expr(t.kind) &&
                !ps_is_statement_word(ps, t)))
    return false;
  Diag *g;
  if (t.kind == TK_COLON) {
    g = lex_error(&ps->lx, ERR_SYNTAX_BODY, t.lo, t.hi,
                  "the body of %s stands in braces, not after `:`", what);
    lex_help(&ps->lx, g, "write `{ .. }` instead of `:`");
  } else {
    uint32_t lo = t.kind == TK_SEP ? ps->prev.hi : t.lo;
    g = lex_error(&ps->lx, ERR_SYNTAX_BODY, lo, t.hi > lo ? t.hi : lo + 1,
                  "the body `{ .. }` of %s is missing", what);
    if (t.kind != TK_SEP && t.kind != 0) lex_help(&ps->lx, g, "a body always stands in braces");
    if (t.kind == TK_SEP) ps->lx.missing_braces++;
  }
  return true;
}

/* `for i in 1:9`. */
static bool range_of_colon(Parser *ps, Tok t) {
  char next = t.kind == TK_COLON ? ps->lx.text[t.hi] : ' ';
  if (ps->prev.kind != TK_INT || next < '0' || next > '9' || !header_open(ps, TK_FOR)) return false;
  return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, "a range is written `0..n`", NULL);
}

/* `// text` meant as a comment: leaves the rest of the line out. */
static bool comment_slip(Parser *ps, Tok t) {
  uint32_t at;
  bool start = fits(ps, TK_LET);
  if ((t.kind == TK_DSLASH || (t.kind == TK_SLASH && ps->lx.text[t.hi] == '*')) && start)
    at = t.lo;
  else if (ps->line_division != UINT32_MAX && fits(ps, TK_PLUS) && begins_expr(t.kind) &&
           !t.first && !memchr(ps->lx.text + ps->line_division, ',', t.lo - ps->line_division))
    at = ps->line_division;
  else
    return false;
  say(ps, ERR_SYNTAX_COMMENT, at, at + 2,
      t.kind == TK_SLASH ? "comments begin with `#`, also those of many lines"
                         : "comments begin with `#`; `//` is division that rounds down",
      NULL);
  ps->line_division = UINT32_MAX;
  if (!ps->lx.hole || top(ps) != 'H') ps->lx.pos = line_end(ps, t.lo);
  return true;
}

/* Whether the open `{` stands where a value does: `let s = {`, `f({`. */
static bool brace_of_value(const Parser *ps) {
  if (top(ps) != '{') return false;
  uint32_t at = ps->lx.open[ps->lx.depth - 1].at;
  while (at > 0 && ps->lx.text[at - 1] == ' ') at--;
  return at > 0 && strchr("=(,[:", ps->lx.text[at - 1]);
}

/* Several values or names without the brackets around them. */
static bool brackets_missing(Parser *ps, Tok t) {
  bool value = fits(ps, TK_PLUS), set = value && brace_of_value(ps);
  if (t.kind == TK_FOR && value && !t.first && (set || top(ps) == '('))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "a comprehension stands in brackets",
               set ? "[k: e for k in xs] makes a dict, set([e for k in xs]) a set"
                   : "[f(i) for i in 0..n]");
  if (t.kind == TK_LBRACK && (ps->prev.kind == TK_LET || ps->prev.kind == TK_VAR ||
                              (ps->prev.kind == TK_FOR && fits(ps, TK_IDENT))))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "a pattern stands in parentheses", "let (a, b) = xs");
  if (t.kind != TK_COMMA) return false;
  if (header_open(ps, TK_ASSERT) && value)
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "an `assert` has a condition and no text",
               "the error shows the condition; a comment can say more");
  if (fits(ps, TK_IN) && (header_open(ps, TK_FOR) || top(ps) == '['))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "several names stand in parentheses",
               top(ps) == '[' ? "[k: e for (k, e) in d]" : "for (k, e) in d { .. }");
  if (set) return say(ps, ERR_SYNTAX, t.lo, t.hi, "a set is written `set(list(a, b))`", NULL);
  if (fits(ps, TK_EQ))
    return say(ps, ERR_SYNTAX, t.lo, t.hi,
               value ? "several values or names stand in parentheses"
                     : "several names stand in parentheses",
               "new names `let (a, b) = (1, 2)`; a `var` of before `(a, b) = (1, 2)`");
  if (value && (top(ps) == 0 || top(ps) == '{'))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "several values stand in parentheses", "(1, 2)");
  return false;
}

static bool no_clause(Parser *ps, Tok t) {
  return say(ps, ERR_SYNTAX, t.lo, t.hi > t.lo ? t.hi : t.lo + 1, "this does not fit in a policy",
             "a policy holds words, numbers and calls, as in <save matmul, budget = 2GiB>; other "
             "expressions stand in parentheses");
}

/* `{"a": 1}`, its brace open; t is the colon. What stands in the braces is shown in brackets if it
 * is short. */
static bool dict_in_braces(Parser *ps, Tok t) {
  const Lexer *lx = &ps->lx;
  uint32_t lo = lx->open[lx->depth - 1].at + 1;
  size_t n = strcspn(lx->text + lo, "{}\n`");
  Buf b;
  buf_init_arena(&b, ps->c->arena);
  if (n && n <= 40 && lx->text[lo + n] == '}')
    buf_printf(&b, "a dict is written in brackets: `[%.*s]`", (int)n, lx->text + lo);
  else
    buf_puts(&b, "a dict is written in brackets: `[\"x\": 1]`");
  return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, b.s, "a record is `(x = 1, y = 2)`");
}

static bool after_operand(Parser *ps, Tok t) {
  if (!fits(ps, TK_PLUS) || fits(ps, TK_INT)) return false;
  Lexer *lx = &ps->lx;
  if (t.kind == TK_IF)
    return say(ps, ERR_SYNTAX_COND, t.lo, t.hi, "a choice is written `if c { a } else { b }`",
               NULL);
  if (is_comparison(t.kind))
    return say(ps, ERR_SYNTAX_CHAIN, t.lo, t.hi, "comparisons do not chain",
               "write `a < b and b < c`");
  if (t.kind == TK_RANGE)
    return say(ps, ERR_SYNTAX_CHAIN, t.lo, t.hi, "ranges do not chain",
               "a slice with a step is `x[a:b:c]`, of a range `step_by(a..b, c)`");
  if (t.kind == TK_LBRACE && ps->prev.kind == TK_RPAREN)
    return say(ps, ERR_SYNTAX_TRAIL, t.lo, t.hi, "a block is no argument of a call",
               "write `f(x, fn() { .. })`, or `wrap <f x> { .. }`");
  if (t.kind == TK_EQ) {
    if (t.hi - t.lo > 1) return true; /* as in `=>`: the lexer has filed an error */
    if (top(ps) == '(' && ps->prev.kind == TK_IDENT && ps->prev2.kind == TK_DOT)
      return say(ps, ERR_SYNTAX_EQUALS, t.lo, t.hi, "the name of an argument has no dot", NULL);
    if (top(ps) == '(' && ps->prev.kind == TK_IDENT && ps->prev2.kind == TK_COMMA)
      return say(ps, ERR_SYNTAX_MIXED, t.lo, t.hi, "some items have names, some have none",
                 "a tuple is (a, b), a record is (x = a, y = b)");
    Diag *g = lex_error(lx, ERR_SYNTAX_EQUALS, t.lo, t.hi, "`=` cannot stand inside an expression");
    if (top(ps) == '(' || top(ps) == '[')
      lex_label(lx, g, lx->open[lx->depth - 1].at, lx->open[lx->depth - 1].at + 1,
                "not closed before it");
    lex_help(lx, g, "to compare write `==`; to assign use a statement of its own");
    return true;
  }
  if (t.kind == TK_ARROW)
    return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, "a function is written `fn(x) = e`", NULL);
  for (int i = 1; t.kind == TK_COLON && top(ps) == '{' && i < 6; i++)
    if (gr_symbol(ps->gr, i) == TK_LBRACE) return dict_in_braces(ps, t);
  if (t.kind == TK_STR_OPEN && ps->prev.kind == TK_IDENT && ps->prev.hi == t.lo)
    return say(ps, ERR_SYNTAX_STRING, ps->prev.lo, t.lo + 1,
               "no letter but `r` stands before a string",
               "each string has holes, as in \"x is {x}\"; bytes(\"..\") gives its bytes");
  if (begins_expr(t.kind) && (!t.first || fits(ps, TK_COMMA))) {
    Buf b;
    buf_init_arena(&b, ps->c->arena);
    found(ps, t, &b);
    if (fits(ps, TK_COMMA)) {
      lex_error(lx, ERR_SYNTAX, t.lo, t.kind == TK_STR_OPEN ? t.lo + 1 : t.hi,
                "a `,` or an operator is missing before %s", b.s);
      return true;
    }
    Diag *g = lex_error(lx, ERR_SYNTAX, t.lo, t.hi,
                        "%s follows an expression without an operator between them", b.s);
    if (ps->prev.kind == TK_IDENT && t.kind != TK_IF)
      lex_help(lx, g, "a call has parentheses: f(x); statements on one line are separated by `;`");
    else
      lex_help(lx, g, "a product is written `2 * x`; statements on one line are separated by `;`");
    return true;
  }
  return false;
}

static bool small_slip(Parser *ps, Tok t) {
  Lexer *lx = &ps->lx;
  const char *s = lx->text;
  if (t.kind == TK_PLUS && ps->prev.kind == TK_PLUS && ps->prev.hi == t.lo)
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, t.hi, "there is no `++`", "write `x += 1`");
  if (t.kind == TK_PLUS && t.first && s[t.hi] == '+')
    return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi + 1, "there is no `++`", "write `x += 1`");
  if (t.kind == TK_LT && ps->prev.kind == TK_LT && ps->prev.hi == t.lo)
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, t.hi, "there is no `<<`", "n * 2 ** k");
  if (t.kind == TK_GT && ps->prev.kind == TK_GT && ps->prev.hi == t.lo)
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, t.hi, "there is no `>>`", "n // 2 ** k");
  if (ps->prev.kind == TK_RANGE && t.kind == TK_EQ)
    return say(ps, ERR_SYNTAX_CHAIN, ps->prev.lo, t.hi, "a range ends before its upper end",
               "0..n + 1");
  if ((t.kind == TK_SEP || !t.kind) && ps->prev.kind == TK_MINUS && ps->prev2.kind == TK_MINUS)
    return say(ps, ERR_SYNTAX_WORD, ps->prev2.lo, ps->prev.hi, "there is no `--`",
               "write `x -= 1`");
  if (ps->prev.kind == TK_DOT && t.lo == ps->prev.hi && strchr("+-*/=<>(", s[t.lo]) && s[t.lo])
    return say(ps, ERR_SYNTAX_WORD, ps->prev.lo, t.hi,
               "operators and functions work element by element",
               "write them without a dot: x * y, exp(x)");
  if (t.kind == TK_COLON && ps->prev.kind == TK_INT && !fits(ps, TK_RBRACK) && s[t.hi] >= '0' &&
      s[t.hi] <= '9')
    return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, "a range is written `a..b`, without its end",
               "1:10 elsewhere is 1..11");
  if (ps->prev.kind == TK_DOT)
    return say(ps, ERR_SYNTAX, t.lo, t.hi > t.lo ? t.hi : t.lo + 1,
               "a name or a number follows the dot", "x.f, t.0");
  if (t.first && fits(ps, TK_LET) && continues(t.kind))
    return say(
        ps, ERR_SYNTAX, t.lo, t.hi, "a line does not begin with an operator",
        "put it at the end of the line before; inside parentheses a line may break anywhere");
  if (t.kind == TK_HOLE_CLOSE && ps->prev.kind == TK_HOLE_OPEN)
    return say(ps, ERR_SYNTAX_STRING, ps->prev.lo, t.hi, "this hole of the string is empty",
               "a hole holds the value: \"{x}\"; a brace as text is doubled: `{{` and `}}`");
  if (t.kind == TK_BACKWARD && t.first)
    return say(ps, ERR_SYNTAX_ELSE, t.lo, t.hi,
               "`backward` stands on the line where the body of its function ends", NULL);
  if (t.kind == TK_ELSE)
    return say(ps, ERR_SYNTAX_ELSE, t.lo, t.hi, "this `else` belongs to no `if`",
               "write `if c { a } else { b }`, with `else` on the line of the `}`");
  if (ps->prev.kind == TK_WRAP && t.kind != TK_P_OPEN)
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "the words of a `wrap` stand in `< >`",
               "wrap <no_grad> { .. }");
  if (ps->prev.kind == TK_CHECKPOINT && t.kind != TK_P_OPEN && t.kind != 0 && t.kind != TK_SEP)
    return say(ps, ERR_SYNTAX, t.lo, t.hi,
               "the policy of a `checkpoint` stands in `< >`, then its block follows",
               "checkpoint <save matmul> { .. }");
  bool index = t.kind == TK_LBRACK && ps->lx.depth > 1;
  if (top(ps) == '<' || (index && ps->lx.open[ps->lx.depth - 2].kind == '<'))
    return no_clause(ps, t);
  if (t.kind == TK_AT && fits(ps, TK_LET))
    return say(ps, ERR_SYNTAX_WORD, t.lo, t.hi, "there are no decorators",
               "a block with a mode is wrap <no_grad> { .. }");
  if (t.kind == TK_DOT && s[t.hi] >= '0' && s[t.hi] <= '9' && fits(ps, TK_INT))
    return say(ps, ERR_SYNTAX_NUMBER, t.lo, t.hi, "a digit stands before the dot", "write 0.5");
  if ((t.kind == TK_EQEQ || is_comparison(t.kind)) && fits(ps, TK_EQ) && !fits(ps, TK_PLUS))
    return say(ps, ERR_SYNTAX_EQUALS, t.lo, t.hi, "here `=` gives the value", "write `let x = e`");
  if (t.kind == TK_SEP && fits(ps, TK_EQ) && fits(ps, TK_COLON) && !fits(ps, TK_PLUS) &&
      !fits(ps, TK_COMMA))
    return say(ps, ERR_SYNTAX, ps->prev.hi, ps->prev.hi + 1, "a `let` or `var` has a value",
               "let x = e");
  bool counted = false; /* `for (i = 0`, `for (int i` */
  for (int i = 0; top(ps) == '(' && i < 6 && !counted; i++)
    counted = gr_symbol(ps->gr, i) == TK_LPAREN && gr_symbol(ps->gr, i + 1) == TK_FOR;
  if ((t.kind == TK_EQ || t.kind == TK_IDENT) &&
      (counted || (t.kind == TK_EQ && header_open(ps, TK_FOR) && fits(ps, TK_IN))))
    return say(ps, ERR_SYNTAX_EQUALS, t.lo, t.hi,
               "a `for` runs over a range, a tensor, a list or a sequence", "for i in 0..n { .. }");
  if (t.kind == TK_STAR && gr_symbol(ps->gr, 0) == TK_LPAREN && gr_symbol(ps->gr, 2) == TK_USE)
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "a `use` names what it brings",
               "use nn (Linear, Conv2d), or `use nn` and then nn.Linear");
  if (t.kind == TK_STAR && top(ps) == '[' && fits(ps, TK_INT))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "a list is not taken apart in another",
               "concat(xs, list(1, 2)) joins lists, [x for x in xs] makes one of any sequence");
  if ((t.kind == TK_LPAREN && (ps->prev2.kind == TK_LET || ps->prev2.kind == TK_VAR)) &&
      ps->prev.kind == TK_IDENT)
    return say(ps, ERR_SYNTAX_WORD, ps->prev2.lo, ps->prev2.hi, "a function is declared with `fn`",
               "fn f(x) = e, or fn f(x) { .. }");
  if (fits(ps, TK_LPAREN) && !fits(ps, TK_PLUS) && !fits(ps, TK_INT) &&
      (t.kind == TK_IDENT || t.kind == TK_ARROW || t.kind == TK_EQ) &&
      (ps->prev.kind == TK_FN || ps->prev2.kind == TK_FN))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "the parameters of a function stand in parentheses",
               "fn f(x) = e");
  if (continues(t.kind) && t.kind != TK_COMMA && fits(ps, TK_LBRACE) && fits(ps, TK_EQ) &&
      !fits(ps, TK_PLUS))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "the type of the result stands after `->`",
               "an expression as the body follows `=`: fn(x) = e");
  if ((t.kind == TK_STAR || t.kind == TK_POW) && (fits(ps, TK_COMMA) || fits(ps, TK_IDENT)) &&
      !fits(ps, TK_PLUS) && top(ps) == '(')
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "the number of arguments is fixed",
               "pass a list or a tuple");
  if ((t.kind == TK_IDENT || is_reserved(ps, t)) && ps->prev.kind == TK_IDENT && top(ps) == '(' &&
      fits(ps, TK_COLON) && fits(ps, TK_COMMA) && !fits(ps, TK_PLUS))
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "the type of a parameter follows its name", "x: int");
  if (t.kind == TK_VAR && fits(ps, TK_INT) && !t.first)
    return say(ps, ERR_SYNTAX, t.lo, t.hi, "`var` is a function only where it is called",
               "var(x), or fn(x) = var(x)");
  if (is_reserved(ps, t) && fits(ps, TK_IDENT) && !fits(ps, TK_INT) && !fits(ps, TK_PLUS)) {
    Diag *g = lex_error(lx, ERR_SYNTAX, t.lo, t.hi,
                        "`%.*s` is a word of the language and cannot be a name", (int)(t.hi - t.lo),
                        s + t.lo);
    lex_help(lx, g,
             t.kind == TK_SELF ? "leave it out: methods see `self` without a parameter"
                               : "choose another name; after a dot every word is a name");
    return true;
  }
  return false;
}

bool ps_in_model(const Parser *ps) {
  int closed = 0, i = 0, sym;
  for (; (sym = gr_symbol(ps->gr, i)) >= 0; i++) {
    int b = gr_bracket(sym);
    if (b < 0)
      closed++;
    else if (b > 0 && !closed)
      break;
    else if (b > 0)
      closed--;
  }
  return sym == TK_LBRACE && gr_symbol(ps->gr, i + 3) == TK_MODEL;
}

/* In the body of a model, a line that begins like a call: `forward(x) {`, `forward(x: f32`. */
static bool method_without_fn(Parser *ps, Tok t) {
  bool inside = t.kind == TK_COLON; /* the parameters */
  if (!inside && ((t.kind != TK_LBRACE && t.kind != TK_ARROW) || ps->prev.kind != TK_RPAREN))
    return false;
  int closed = 0, i = 0, sym;
  for (; (sym = gr_symbol(ps->gr, i)) >= 0; i++) {
    int b = gr_bracket(sym);
    if (b < 0)
      closed++;
    else if (b > 0 && closed)
      closed--;
    else if (b > 0 && !(inside && sym == TK_LPAREN))
      break;
  }
  if (sym != TK_LBRACE || gr_symbol(ps->gr, i + 3) != TK_MODEL) return false;
  const char *s = ps->lx.text;
  uint32_t lo = t.lo, hi, next;
  while (lo > 0 && s[lo - 1] != '\n' && s[lo - 1] != '{' && s[lo - 1] != ';') lo--;
  while (s[lo] == ' ') lo++;
  for (hi = lo; (s[hi] >= 'a' && s[hi] <= 'z') || (s[hi] >= 'A' && s[hi] <= 'Z') || s[hi] == '_' ||
                (hi > lo && s[hi] >= '0' && s[hi] <= '9');)
    hi++;
  for (next = hi; s[next] == ' ';) next++;
  if (hi == lo || s[next] != '(') return false;
  Diag *g = lex_error(&ps->lx, ERR_SYNTAX_PLACE, lo, hi, "a method begins with `fn` or `proc`");
  int end = (int)(t.lo - lo);
  while (end > 0 && s[lo + (uint32_t)end - 1] == ' ') end--;
  Buf help;
  buf_init_arena(&help, ps->c->arena);
  buf_printf(&help, "write `fn %.*s%s`", end, s + lo, inside ? ": ..) { .. }" : " { .. }");
  lex_help(&ps->lx, g, help.s);
  return true;
}

void ps_complain(Parser *ps, Tok t) {
  Lexer *lx = &ps->lx;
  if (lx->quiet) {
    lx->quiet = false;
    return;
  }
  if (unclosed_bracket(ps, t) || comment_slip(ps, t) || method_without_fn(ps, t) ||
      foreign_word(ps, t) || range_of_colon(ps, t) || body_missing(ps, t) ||
      brackets_missing(ps, t) || after_operand(ps, t) || small_slip(ps, t))
    return;
  if (t.kind == TK_EQ && (ps->prev2.kind == TK_PARAM || ps->prev2.kind == TK_BUFFER)) {
    bool param = ps->prev2.kind == TK_PARAM;
    say(ps, ERR_SYNTAX, t.lo, t.hi,
        param ? "a param is declared with its type" : "a buffer is declared with its type",
        param ? "`param w: f32[n, m] = e`" : "`buffer b: f32[n] = e`, or `buffer b: int = 0`");
    return;
  }
  Buf a, b;
  buf_init_arena(&a, ps->c->arena);
  buf_init_arena(&b, ps->c->arena);
  expected(ps, &a);
  found(ps, t, &b);
  uint32_t lo = t.lo, hi = t.hi > t.lo ? t.hi : t.lo + 1;
  if (t.kind == TK_STR_OPEN) hi = t.lo + 1;
  lex_error(lx, ERR_SYNTAX, lo, hi, "expected %s, found %s", a.s, b.s);
}
