/* The syntax tree. The parser makes it; checker, evaluator and formatter read it.
 *
 * One struct `Node` for everything that has a place in the source; `kind` (node_kind.h) says which
 * member of the union holds. Nodes live in the arena given to parse_file and die with it; names are
 * interned, so they compare by pointer. Lists are arrays (`items`, `count`), never linked.
 *
 * Invariants: spans of children lie inside the span of their node; the height of a tree (longest
 * path, in nodes) is at most AST_MAX_HEIGHT, and a recursive pass asks whether the C stack has room
 * (runtime/stack.h); every pointer documented without "or NULL" is set. A file with syntax errors
 * also has a tree, in which N_BAD stands where something could not be read.
 */
#ifndef CKL_PARSER_AST_H
#define CKL_PARSER_AST_H

#include "parser/node_kind.h"
#include "runtime/diag.h"
#include "runtime/stack.h"

enum {
  AST_MAX_NEST = 256,   /* open brackets of all kinds at one place (rule 46) */
  AST_MAX_HEIGHT = 1000 /* nodes on a path from the file to a leaf: chains a + a + .. included */
};

typedef struct Node Node;

typedef struct NodeList {
  Node **items;
  uint32_t count, cap;
} NodeList;

/* A name at a place. `slot` and `info` belong to the checker, for bound names (dims, ...). */
typedef struct Word {
  Name name; /* NULL: absent */
  Span span;
  uint32_t slot;
  void *info;
} Word;

typedef struct Words {
  Word *items;
  uint32_t count, cap;
} Words;

/* The format of a hole (rule 96): [<>^][+][0][width][,][.digits][d x e f g % KiB MiB GiB]. */
typedef struct Format {
  char align;      /* '<' '>' '^', or 0 */
  bool plus, zero; /* a sign also for positive numbers; pad with zeros */
  bool comma;      /* thousands */
  int width;       /* 0: as wide as needed; at most 999 */
  int digits;      /* -1: not given; at most 99 */
  char kind;       /* 'd' 'x' 'e' 'f' 'g' '%', 'K' 'M' 'G' for KiB MiB GiB, or 0 */
  Span span;       /* after the colon */
} Format;

#define AST_FORMAT_FORM                                                                            \
  "a format is [<>^][+][0][width][,][.digits] and one of d x e f g % KiB MiB GiB, as in "          \
  "{x:8.3f}; width is at most 999, digits 99"

/* A string is a run of parts. Text parts have hole NULL. */
typedef struct StrPart {
  const char *text; /* escapes resolved, NUL-terminated; may hold NUL bytes (\u{0}) */
  uint32_t length;
  Node *hole; /* the expression in braces */
  bool has_format;
  Format format;
  Span span; /* of the text, or of the hole with its braces */
} StrPart;

typedef struct StrParts {
  StrPart *items;
  uint32_t count, cap; /* the empty string has no part */
  bool raw, block;     /* written r".."; between lines of three quotes */
  uint32_t lo, hi;     /* where it stands, without parentheses */
} StrParts;

/* The common part of fn, proc and lambda. */
typedef struct Fn {
  Word name; /* .name NULL for a lambda */
  bool is_proc;
  Words dims;      /* [B, T] */
  NodeList params; /* N_PARAM */
  Node *result;    /* type, or NULL */
  Node *body;      /* N_BLOCK after `{`, any expression after `=` (body_is_expr) */
  bool body_is_expr;
  NodeList back_params; /* backward(g); back_body NULL: there is none */
  Node *back_body;
  bool back_is_expr;
  uint8_t takes_grad; /* 1: it does not mention `grad`; 2: it does; 0: nobody looked yet */
  const char *doc;    /* text of the ## lines above, without `## `, joined by \n; or NULL */
  Span header;        /* from `fn` to the end of the result type */
  Span back_span;     /* the word `backward` to the end of its parameters */
} Fn;

/* A comment, kept for the formatter; in the order of the source. */
typedef struct Comment {
  uint32_t lo, hi; /* from `#` to the end of the line */
  bool own_line;   /* nothing before it on its line */
  bool doc;        /* ## */
} Comment;

struct Node {
  uint8_t kind;    /* NodeKind */
  bool parens;     /* an expression written in parentheses of its own; its span includes them */
  bool semicolon;  /* a statement followed by `;` (the REPL prints nothing) */
  uint8_t flags;   /* used by the checker */
  uint32_t height; /* nodes on the longest path down; a leaf has 1 */
  Span span;
  uint32_t slot, depth; /* used by the checker; zero from the parser */
  void *info;           /* used by the checker; NULL from the parser */
  union {
    struct {
      NodeList items;
      Comment *comments;
      uint32_t comment_count;
    } file;
    struct {
      Words path;       /* dotted; count 0 for a file */
      const char *file; /* use "gpt.ckl", or NULL */
      Span file_span;
      Word as;     /* .name NULL: absent */
      Words names; /* (a, b); count 0: absent */
    } use;
    struct {
      Word name;
      Node *type;
      const char *doc;
    } type_decl;
    struct {
      Word name;
      NodeList params, clauses;
      bool has_params;
      const char *doc;
    } policy_decl;
    struct {
      Node *title;
      Node *body;
    } test; /* title: N_STRING with at most one part, text */
    struct {
      Word name;
      NodeList params, members;
      bool has_params;
      const char *doc;
      struct ModelNames *names; /* lang/eval/model.c; NULL: it has few names */
    } model;
    struct {
      Word name;
      Node *type, *init;
      bool is_buffer;
      const char *doc;
    } field; /* init/NULL */
    Fn *fn;
    struct {
      Word name;
      Node *type, *init;
    } param; /* type or NULL, default or NULL */

    struct {
      Node *pat, *type, *init;
      Node *places; /* of `(a, b) = e`, the first statement of its block: (a, b); else NULL */
      bool is_var;
    } let; /* type or NULL */
    struct {
      Node *target, *value;
      AstOp op;
    } assign; /* AST_NONE ADD SUB MUL DIV MATMUL UPDATE */
    Node *expr;
    struct {
      Node *pat, *iter; /* N_FOR and N_COMP_FOR; NULL in N_WHILE */
      Node *cond;       /* N_WHILE */
      Node *body;       /* N_BLOCK; NULL in N_COMP_FOR */
      NodeList clauses; /* of checkpoint <..> in front; N_CLAUSE */
      bool is_checkpoint;
    } loop;

    NodeList list;
    Word word;
    Words path;
    Name name;
    bool boolean;
    struct {
      int64_t i;
      double f;
      const char *spelling;
    } number; /* as written */
    StrParts string;
    struct {
      AstOp op;
      Node *operand;
    } unary; /* AST_NEG AST_NOT */
    struct {
      AstOp op;
      Node *left, *right;
      Span op_span;
    } binary;
    struct {
      Node *callee;
      NodeList args;
    } call;
    struct {
      Word name;
      Node *value;
    } arg; /* .name NULL: by position */
    struct {
      Node *object;
      Word name;
    } dot;
    struct {
      Node *object;
      int64_t index;
    } item;
    struct {
      Node *object;
      NodeList items;
    } index;
    struct {
      Node *lo, *hi, *step;
    } slice; /* each or NULL */
    struct {
      Node *cond, *then, *els;
    } if_; /* els: N_BLOCK, N_IF or NULL */
    struct {
      Node *value;
      NodeList fors;
    } comp; /* fors: N_COMP_FOR, one or more */
    struct {
      NodeList clauses;
      Node *body;
      bool has_policy;
    } region;
    struct {
      Words path;
      NodeList args;
      Word as; /* args as such a dtype, or none */
      bool is_set;
    } clause; /* is_set: path = args[0] */

    struct {
      Words path;
      NodeList dims;
      bool has_dims;
    } type_name; /* dims: expressions, N_PACK */
    Node *type_list;
    struct {
      Node *key, *value;
    } entry;
    struct {
      Word name;
      Node *type;
    } type_field;
    struct {
      NodeList params;
      Node *result;
    } type_fn; /* types or N_TYPE_FIELD */
  };
};

const char *ast_kind_name(NodeKind kind); /* for dumps: "for", "call" */
const char *ast_op_text(AstOp op);        /* "+", "and", ".."; "=", "." for NONE, UPDATE */

/* Is the node an expression, a type, a pattern? */
bool ast_is_expr(const Node *n);

/* Calls f for each child, in the order of the source (patterns, types and clauses included). */
void ast_children(const Node *n, void (*f)(void *ud, Node *child), void *ud);

/* Whether two trees are equal; spans, comments, fields of the checker and the spelling of numbers
 * are not compared. */
bool ast_equal(const Node *a, const Node *b);

/* Prints the tree as nested parentheses on one line, for tests and --dump. */
void ast_dump(Buf *out, const Node *n);

/* The smallest span that holds both (they are in one file). */
Span span_join(Span a, Span b);

/* The first statement of the block that stands for `(a, b) = e`, if `st` is one; else NULL. */
const Node *ast_places(const Node *st);
/* Text of a string without holes; NULL and *n = 0 when it has one. Never NULL for "". */
const char *ast_plain_text(const Node *string, uint32_t *n);
/* Where the text of a string begins, if it stands in the source byte by byte; else 0. */
uint32_t ast_text_place(const Node *string);

#endif
