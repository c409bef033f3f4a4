/* Source text in, syntax tree out.
 *
 * parse_file never fails for a wrong program: it files errors (`syntax-N`) and still returns a tree
 * of all that could be read. It throws when out of memory only. Time is linear in the length. */
#ifndef CKL_PARSER_PARSE_H
#define CKL_PARSER_PARSE_H

#include "parser/ast.h"

typedef struct ParseContext {
  Arena *arena; /* for the tree, and for the parser while it runs */
  Names *names;
  Sources *sources;
  Diags *diags;
} ParseContext;

enum { PARSE_MAX_ERRORS = 20 }; /* after so many the rest of the file is not read */

/* Parses a source; the root is N_FILE. Compare diags->errors before and after: a tree of a file
 * with errors is for the editor and for further messages, not for running. */
Node *parse_file(const ParseContext *c, uint32_t file);

/* REPL: is the text a complete input? No bracket is open and the last token can end a statement
 * (or there is no token). A text with an error inside counts as complete. */
bool parse_repl_complete(const char *text, size_t n);

/* Is the text a name, and nothing else? */
bool parse_is_name(const char *text);

/* The reserved words, then the soft ones, each NULL-terminated: for completion and highlighting. */
extern const char *const parse_reserved[];
extern const char *const parse_soft[];

/* Prints the tree as source in the one style; comments are kept. Idempotent. `src` holds the text
 * that the tree was made from (comments and spellings are read there). */
void fmt_file(Buf *out, const Node *file, const Sources *src);

#endif
