/* Private to parser/: tokens, the lexer, and declarations for grammar actions and the driver. */
#ifndef CKL_PARSER_LEX_H
#define CKL_PARSER_LEX_H

#include "parser/parse.h"

/* A token. Kinds are TK_* of grammar.h; 0 is the end of the text, TK_BAD a token for which an error
 * was filed. */
typedef struct Tok {
  uint32_t lo, hi;
  uint16_t kind;
  bool first; /* first on its line */
  bool semi;  /* TK_SEP written as `;` */
  union {
    Name name;      /* names and words */
    Node *node;     /* numbers */
    StrPart *part;  /* text of a string */
    Format *format; /* `}` of a hole, or NULL */
  } v;
} Tok;

/* Open brackets: ( [ { and '<' of a policy; 'H' a hole in a string; strings: 'S' of one line, 'R' a
 * raw one, 'B' a block of lines, 'Q' a raw block. */
typedef struct Bracket {
  char kind;
  uint32_t at;
  uint32_t hole; /* Lexer.hole when it was opened */
} Bracket;

typedef struct Lexer {
  const char *text;
  uint32_t n, pos;
  const ParseContext *c; /* NULL: no values, no messages (parse_repl_complete) */
  uint32_t file;
  Bracket open[AST_MAX_NEST];
  uint32_t depth;
  uint32_t hole;          /* 1 + index of the innermost hole, 0: none */
  uint32_t block_line;    /* where the line that ends the open block begins; UINT32_MAX: nowhere */
  uint32_t block_end;     /* where its quotes stand */
  uint16_t last;          /* kind of the last token, 0 at the start */
  uint32_t last_hi;       /* its end */
  uint32_t complained_at; /* closing bracket already complained about; UINT32_MAX: none */
  bool quiet;             /* a bracket error was filed: the parser's next errors follow from it */
  bool mute;              /* the parser skips text after an error */
  bool newline;           /* a newline stood before the SEP that was just returned */
  bool stop;              /* too many errors, or too deep: read no more */
  unsigned errors;
  unsigned missing_braces; /* `{` reported missing: so many unmatched `}` are no error */
  Comment *comments;
  size_t comment_count, comment_cap;
  Node **edges; /* ints of 2^63 without a minus in front so far */
  size_t edge_count, edge_cap;
} Lexer;

void lex_init(Lexer *lx, const ParseContext *c, uint32_t file, const char *text, uint32_t n);
Tok lex_next(Lexer *lx);
bool lex_can_end(int kind); /* can a statement end with this token? */
bool lex_is_reserved(const char *word, size_t n);
void lex_take_edge(Lexer *lx, const Node *n); /* a minus stands before it */
void lex_edges(Lexer *lx);                    /* errors for those left: too large */

/* Files an error at bytes [lo, hi). NULL when nothing was filed (silent, or enough errors). */
Diag *lex_error(Lexer *lx, ErrCode code, uint32_t lo, uint32_t hi, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void lex_label(Lexer *lx, Diag *g, uint32_t lo, uint32_t hi, const char *text);
void lex_help(Lexer *lx, Diag *g, const char *text);

/* ---- parser state, for grammar.y and parse.c */

typedef struct Parser {
  Lexer lx;
  const ParseContext *c;
  uint32_t file;
  Node *root;
  void *gr;               /* the lemon parser */
  Tok prev, prev2;        /* the two tokens before the current one */
  uint32_t line_division; /* place of the last `//` operator, UINT32_MAX: none */
} Parser;

Node *ps_node(Parser *ps, NodeKind kind, uint32_t lo, uint32_t hi);
Node *ps_done(Parser *ps, Node *n); /* sets the height; N_BAD when too high */
NodeList *ps_list(Parser *ps);
NodeList *ps_push(Parser *ps, NodeList *l, Node *n);
NodeList *ps_list1(Parser *ps, Node *n);
Words *ps_words(Parser *ps, Words *w, Tok t); /* w NULL: a new one */
Word ps_word(Parser *ps, Tok t);
Fn *ps_fn(Parser *ps);
Span ps_span(Parser *ps, uint32_t lo, uint32_t hi);
Node *ps_unary(Parser *ps, AstOp op, Tok t, Node *e);
Node *ps_binary(Parser *ps, AstOp op, Tok t, Node *a, Node *b);
Node *ps_assign(Parser *ps, AstOp op, Node *target, Node *value);
Node *ps_pattern(Parser *ps, Tok t);
Node *ps_value(Parser *ps, Node *e); /* e, unless it is `{}`, which looks like a dict */
Node *ps_clause_arg(Parser *ps, Node *arg);
NodeList *ps_clause_args(Parser *ps, NodeList *l, Node *arg); /* `f` and `(x)` behind it: `f(x)` */
Node *ps_tuple_type(Parser *ps, NodeList *items, bool comma, uint32_t lo, uint32_t hi);
Node *ps_block(Parser *ps, NodeList *items, uint32_t lo, uint32_t hi);
void ps_file(Parser *ps, NodeList *items);
NodeList *ps_members(Parser *ps, NodeList *items);
const char *ps_plain(Parser *ps, Node *string); /* text of a string that may have no holes */
const char *ps_doc(Parser *ps, uint32_t lo);    /* the ## lines that end above byte lo, or NULL */

/* ---- grammar.y */

enum { GR_STACK = 4000 };
size_t gr_size(void);
void gr_init(void *gr, Parser *ps);
void gr_feed(void *gr, Tok t);
bool gr_accepts(const void *gr, int token); /* would this token be taken now? */
int gr_depth(const void *gr);               /* entries on the stack */
int gr_symbol(const void *gr, int i);       /* symbol of entry i from the top (0), -1 below */
void gr_cut(void *gr, int depth);           /* drops entries above */
int gr_brackets(const void *gr);            /* brackets open on the stack */
int gr_bracket(int symbol);                 /* 1 for an opening one, -1 for a closing one, or 0 */

/* ---- complain.c */

/* Files an error about a token that does not fit, unless it follows from one already filed. */
void ps_complain(Parser *ps, Tok t);
/* Whether the innermost open bracket is that of the body of a model. */
bool ps_in_model(const Parser *ps);
/* Whether this token can begin a statement, and nothing else. */
bool ps_is_statement_word(const Parser *ps, Tok t);
/* Repairs a common mistake in place and files an error; true when the parser can go on with *t
 * (which may have become another token), or without it when t->kind is TK_BAD. */
bool ps_mend(Parser *ps, Tok *t);
void ps_feed(Parser *ps, Tok t); /* a token that gr_accepts */

#endif
