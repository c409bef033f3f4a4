/* Modules, their declarations, and the files they come from. */
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
  bool moves;                          /* `check`: a function value may assign it at any time */
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
  Table by_name;                   /* indices in globals */
  Table top_calls;                 /* of the top level: how many have been numbered, by name */
  Module **uses; /* all used modules, to find cycles; `use m` also makes a G_MODULE global */
  bool loading, declared;
  const struct StdFile *library; /* NULL: no file of the embedded library */
};

/* `door`: the limits on files of the program; NULL for a path that the host itself passes. */
Module *module_load_file(Session *s, const Door *door, const char *path, Span at);

void shelf_start(Session *s); /* its names, and an empty prelude */
/* What the library declares by this name for programs that do not `use` it, or NULL. Its file is
 * read now unless it was before. */
Global *shelf_find(Session *s, Name name);

void module_declare_items(Session *s, Module *m, Node *ast, bool repl);

Global *global_find(Session *s, Module *m, Name name); /* file, `use`, prelude, shelf */
Global *global_own(const Module *m, Name name);        /* file and `use` alone */
/* The builtin that a module sees by this name: `_name` only in the embedded library. */
const struct Builtin *module_builtin(Session *s, const Module *m, Name name);
/* Whether an embedded module may have it as a member: names of the prelude and builtins. */
bool module_visible_anyway(Session *s, const Module *m, Name name, Value *v);
Global *global_set(Session *s, Module *m, Name name, Value v, bool is_var, Span at);
bool module_name_is_fixed(const char *name); /* rule 4: whether no declaration may have this name */

#endif
