/* Modules, what they declare, and the files they come from. */
#ifndef CKL_LANG_NAMES_MODULE_H
#define CKL_LANG_NAMES_MODULE_H

#include "lang/lang.h"

typedef struct Global {
  Name name;
  enum { G_FN, G_MODEL, G_TYPE, G_POLICY, G_VALUE, G_MODULE } kind;
  Value v;        /* G_FN: a V_FN; G_MODEL; G_VALUE: the variable (retained) */
  Node *decl;     /* declaration or defining statement */
  Module *module; /* where it was declared (names brought by `use` keep their home) */
  bool is_var, is_const, is_set, used; /* const: rule 6 */
  bool moves;                          /* `check`: a function value assigns it, at any time */
  Span span;
} Global;

struct Module {
  Name name;        /* "nn", or the path of a file */
  const char *path; /* shown to the user; NULL for the embedded library */
  const char *real; /* the file that `path` leads to */
  uint32_t file;
  Node *ast;
  Global *globals;
  size_t global_count, global_cap; /* in the session's arena */
  Table by_name;                   /* places in them */
  Module **uses; /* brought whole are G_MODULE globals; this is the list for cycles */
  bool loading, declared;
};

/* `door`: of the program, or NULL for what the host names itself. */
Module *module_load_file(Session *s, const Door *door, const char *path, Span at);
Module *module_embedded(Session *s, const char *name, Span at);

void module_declare_items(Session *s, Module *m, Node *ast, bool repl);

Global *global_find(Session *s, Module *m, Name name); /* file, use, then prelude */
Global *global_own(const Module *m, Name name);        /* file and use */
/* embedded modules: prelude and builtins */
bool module_visible_anyway(Session *s, const Module *m, Name name, Value *v);
Global *global_set(Session *s, Module *m, Name name, Value v, bool is_var, Span at);
bool module_name_is_fixed(const char *name); /* rule 4: no declaration may have it */

#endif
