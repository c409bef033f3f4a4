/* The table of builtins (builtins.def) and calls of them: the signature text gives names, defaults
 * and arity. */
#ifndef CKL_LANG_BUILTIN_BUILTIN_H
#define CKL_LANG_BUILTIN_BUILTIN_H

#include "lang/eval/call.h"
#include "lang/lang.h"

/* Flags of a row. BI_ACTS: it, or a function that it calls, prints, writes, draws, or fails on
 * purpose. */
enum {
  BI_SCRIPT = 1,   /* works in script only */
  BI_RAW = 2,      /* gets its call unevaluated */
  BI_REF = 4,      /* takes its first operand as a reference, `net.w` as the param */
  BI_LEAVES = 8,   /* its result depends on every leaf of its trees */
  BI_DEEP = 16,    /* its arguments may be nested to any depth */
  BI_ACTS = 32,    /* it may do more than return a result */
  BI_APART = 64,   /* tensors in brackets stay a list when passed to it (rule 35) */
  BI_OWNS = 256,   /* it may change its first argument where it is (Call.own) */
  BI_GROWS = 1024, /* BI_OWNS: what it adds, it would add to an empty list or dict, too */
  BI_LOSES = 2048, /* BI_OWNS: what its result has, its first argument had */
  BI_LIST = 4096,  /* BI_GROWS: lists alone */
  BI_TEXT = 512,   /* with BI_SCRIPT: of a text it works in code, too */
  BI_SEQ = 128     /* a sequence in script; in code its elements, whose number is known there */
};
typedef struct Call {
  const struct Builtin *b;
  size_t n; /* parameters of the signature */
  Value *v; /* by parameter; absent ones hold the default */
  bool *given;
  Span *spans;
  size_t rest_n; /* the arguments of a `name...` parameter */
  Value *rest;
  Name *rest_names;
  Span *rest_spans;
  Node *node; /* the call, or NULL: random sites, raw builtins */
  Span at;
  bool own; /* v[0] is held by the place alone that the result is assigned to: owned.h */
} Call;
typedef Value (*BuiltinFn)(Session *s, Call *c);
typedef struct Builtin {
  const char *name, *signature, *doc;
  BuiltinFn fn; /* NULL: a constant */
  unsigned flags;
  int op; /* of elementwise builtins and reductions: the OpCode, else -1 */
} Builtin;
/* A signature as read when the session starts. */
typedef struct BuiltinParam {
  Name name; /* interned */
  Value deflt;
  const char *text; /* a default that is a str, else NULL */
  size_t text_n;
  bool optional, rest; /* has a default; takes all following arguments */
} BuiltinParam;
typedef struct BuiltinSig {
  BuiltinParam *par;
  size_t count;
  bool open; /* takes any names: `sizes...` */
} BuiltinSig;
typedef struct BuiltinTab BuiltinTab;
void builtin_start(Session *s);
void bi_regexes_free(Session *s); /* compiled patterns: b_regex.c */
void bi_libraries(Buf *out);      /* their names and versions: b_regex.c */
/* A save that goes on beside the program (b_save.c). end: waits for it, and throws its error. free:
 * the error is a line on the standard error, for there is nobody to catch it. */
void bi_save_end(Session *s);
void bi_save_free(Session *s);
/* The i64[n] of these numbers; in code a constant of the graph. */
Value bi_ints(Session *s, size_t n, const int64_t *x, Span at);
const struct Builtin *builtin_find(Session *s, Name name);
const BuiltinSig *builtin_sig(const Session *s, const Builtin *b);
Value builtin_call(Session *s, const Builtin *b, const Args *a, Node *node);
Value builtin_constant(Session *s, const Builtin *b); /* none, inf, nan, pi */
extern const Builtin builtin_table[];
extern const size_t builtin_count;

#endif
