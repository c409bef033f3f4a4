/* Internals of the walk over names, arguments and places: resolve.c, resolve_name.c,
 * resolve_call.c, resolve_clause.c. */
#ifndef CKL_LANG_NAMES_RESOLVER_H
#define CKL_LANG_NAMES_RESOLVER_H

#include "lang/builtin/builtin.h"
#include "lang/names/clauses.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/names/resolve.h"

typedef enum BindKind { B_LET, B_VAR, B_PARAM, B_LOOP, B_DIM, B_FN, B_OUT } BindKind;

typedef enum PlaceKind {
  P_TOP,   /* statements of the file */
  P_TEST,  /* a test block */
  P_MODEL, /* members of a model */
  P_FN,    /* a named function, or a backward body */
  P_LAMBDA,
  P_LOOP,
  P_CHECKPOINT, /* a checkpoint block, or a checkpointed loop */
  P_WRAP,       /* the block of a function: wrap <f> */
  P_OPAQUE,     /* the block of `wrap <opaque "n">` */
  P_COMP
} PlaceKind;

/* The constructs around a place, innermost first. */
typedef struct Place {
  struct Place *up;
  PlaceKind kind;
  int level; /* functions around it */
  bool code; /* this place is compiled */
  const Node *node;
} Place;

typedef struct Bind {
  Name name;
  Span span;
  BindKind kind;
  const Place *place;
  bool over_range; /* B_LOOP: the variable of a range */
  bool hidden;     /* B_PARAM: while its own default and those to its left are walked */
  ptrdiff_t outer; /* index of the one that it shadows, or TABLE_NONE */
} Bind;

/* Names of members and `let`s in all loaded files: see rs_anywhere. */
typedef struct Anywhere {
  Session *s;
  Table field, let;
} Anywhere;

/* A variable of the file. */
typedef struct TopName {
  Name name;
  Span span;
  uint32_t item; /* its statement */
  bool is_var;
  ptrdiff_t next; /* of the same name, or TABLE_NONE */
} TopName;

typedef struct Resolver {
  Session *s;
  Module *m;
  Bind *binds;
  size_t bind_count, bind_cap;
  Table bound; /* indices in `binds` of the innermost, by name */
  Anywhere anywhere;
  TopName *tops;
  size_t top_count, top_cap;
  Table first_top, last_top; /* by name */
  Place *place;
  uint32_t item;    /* present top-level statement */
  Node *model;      /* the model around this member, or NULL */
  uint32_t members; /* how many members of it have a value here */
  bool method;      /* in the body of a method */
  const Fn *fn;     /* innermost named function, for its dims */
  bool drop;        /* the value of the next node walked is not used */
  bool shown;       /* the statement's value is shown: at the prompt */
} Resolver;

enum { ERRORS_MOST = 20 };

typedef enum FoundKind { F_NONE, F_LOCAL, F_MEMBER, F_TOP, F_GLOBAL, F_BUILTIN, F_DTYPE } FoundKind;

typedef struct Found {
  FoundKind kind;
  Bind *bind;
  Node *member; /* N_PARAM, N_FIELD, N_LET or N_FN of the model */
  TopName *top;
  Global *global;
  const Builtin *builtin;
} Found;

bool rs_word_is(Name a, const char *b);
const char *rs_plural(size_t n); /* "s", or nothing for 1 */
bool rs_full(const Resolver *r); /* whether enough errors were filed */
/* Enters a construct; it is left by r->place = p->up. */
void rs_push_place(Resolver *r, Place *p, PlaceKind k, const Node *n, bool code);

/* ---- names */
Found rs_lookup(Resolver *r, Name name); /* in the order of rule 1 */
bool rs_in_named(const Resolver *r);     /* in a function with a name, compiled or a proc */
Bind *rs_find_bind(const Resolver *r, Name name);
void rs_unbind(Resolver *r, size_t to); /* ends a scope: `to` bindings stay */
/* A field or method; `have`: fields only among the first `have` members. NULL when there is
 * none. */
Node *rs_model_member(Session *s, const Node *model, Name name, uint32_t have);
Span rs_member_span(const Node *m); /* the place of its name */
/* module.f: the declaration, or NULL after an error. */
const Global *rs_module_member(Resolver *r, const Module *m, Name f, Span at);
const Module *rs_module_named(Resolver *r, const Node *x); /* NULL: x is no name of a module */
/* Whether any loaded file has a field or method (`lets`: a let or function) of that name. */
bool rs_anywhere(Resolver *r, Name name, bool lets);
/* Whether x.f(..) may be the call of a member: of a field or method, or `remove` of a handle. */
bool rs_member_call(Resolver *r, const Node *call);
void rs_bind_word(Resolver *r, const Word *w, BindKind k); /* rules 3 and 4 */
bool rs_may_bind(Resolver *r, const Word *w, BindKind k);  /* checks these rules alone */
void rs_bind_pattern(Resolver *r, const Node *p, BindKind k, bool range, size_t from);
const char *rs_what_binds(BindKind k);             /* "a parameter" */
void rs_use_name(Resolver *r, Name name, Span at); /* files errors of reading it here */
void rs_use_found(Resolver *r, const Found *f, Name name, Span at);

/* ---- suggestions */
void rs_near_member(Near *b, const Node *model);
const char *rs_near_value(Resolver *r, Name name); /* NULL: nothing is close */
const char *rs_near_type(Resolver *r, Name name);
/* torch.f, np.a.b, nn.f: files an error if the first name is bound to nothing and is a module of
 * another library or of ckl's. */
bool rs_unknown_prefix(Resolver *r, const Node *dotted);

/* ---- the walk */
void rs_walk(Resolver *r, Node *n); /* expressions and statements; NULL is nothing */
/* resolve_call.c; `init`: of a param, which is given its shape (rule 58) */
void rs_walk_call(Resolver *r, Node *e, bool init);
bool rs_check_code_call(Resolver *r, const Global *g, const Builtin *b, Name name, Span at);
/* resolve_clause.c; `binds`: the type of a parameter, whose packs are bound here */
void rs_walk_policy(Resolver *r, NodeList *clauses, bool loop);
void rs_walk_wrap(Resolver *r, Node *e, bool drop); /* drop: its value is not used */
void rs_walk_type(Resolver *r, Node *t, bool binds);
/* resolve_drop.c: the result of the call is not used */
void rs_dropped(Resolver *r, const Node *call);
/* The value of an expression that is no call is not used. */
void rs_dropped_value(Resolver *r, const Node *e);

#endif
