/* Words of clauses and types (clauses.def), and what is wrong with a clause. The resolver, which
 * reads files and statements, and the evaluator, which meets what was declared at the prompt, ask
 * here, so both give one answer. */
#ifndef CKL_LANG_NAMES_CLAUSES_H
#define CKL_LANG_NAMES_CLAUSES_H

#include "lang/lang.h"

typedef enum ModeWord {
#define MODE(word, ...) MODE_##word,
#include "lang/names/clauses.def"
  MODE_COUNT
} ModeWord;

typedef enum PolicyWord {
#define POLICY(word, ...) POLICY_##word,
#include "lang/names/clauses.def"
  POLICY_COUNT
} PolicyWord;

typedef enum OpClassWord {
#define OPCLASS(NAME, ...) OPCLASS_##NAME,
#include "lang/names/clauses.def"
  OPCLASS_COUNT
} OpClassWord;

typedef enum TypeWord {
  TYPEWORD_NOT = -1,
#define TYPEWORD(NAME, ...) TYPEWORD_##NAME,
#include "lang/names/clauses.def"
  TYPEWORD_COUNT
} TypeWord;

typedef enum ClauseKind {
  CLAUSE_MODE,
  CLAUSE_POLICY,
  CLAUSE_OPCLASS,
  CLAUSE_TYPE,
  CLAUSE_CHOICE /* behind a mode */
} ClauseKind;
typedef enum ClauseTakes {
  TAKES_NOTHING,
  TAKES_VALUE,
  TAKES_PAIR,
  TAKES_TEXT,
  TAKES_CHOICE,
  TAKES_NAMES,
  TAKES_STANCE,
  TAKES_BYTES,
  TAKES_ITERATIONS
} ClauseTakes;

/* A row. */
typedef struct Clause {
  const char *word;
  ClauseKind kind;
  int id; /* ModeWord, also of a choice, PolicyWord, OpClassWord, TypeWord */
  ClauseTakes takes;
  const char *form, *section, *doc;
  const char *group; /* words of one group exclude each other; NULL, "" = it has none */
  Tag firm, soft;    /* of a policy word; TAG_NONE = not there */
} Clause;
extern const Clause clause_table[];
extern const size_t clause_count;

/* The row of a clause's word, NULL where it has a dot or is none. */
const Clause *clause_of(ClauseKind kind, const Node *c);
/* The op class that stands there, or -1. */
int clause_opclass(const Words *path);
/* The tag that a policy's clause gives, TAG_NONE where it gives none; its values begin at argument
 * *from. */
Tag clause_tag(const Node *c, uint32_t *from);
const char *clause_tag_words(Session *s, Tag t); /* "prefer save" */
const char *clause_opclass_words(Session *s);    /* "matmul conv .." */
/* What stands in <..> of the form: "`<every 10>`". */
const char *clause_example(Session *s, const Clause *k);
/* The value of a mode's CHOICE, or -1; of an argument of the clause. */
int clause_choice(ModeWord mode, const char *word);
int clause_choice_of(ModeWord mode, const Node *arg);
static inline bool clause_is_option(const Clause *k) {
  return k->kind == CLAUSE_POLICY && k->group != NULL;
}

TypeWord clause_type_word(const char *name); /* NULL is none */
bool clause_type_word_is_class(TypeWord w);  /* float, int, num: of several dtypes */

/* ---- what is wrong; errors are filed, nothing is thrown */

/* The i-th clause of a `wrap`: with those before it, and as to what its word takes. */
bool clause_fits_wrap(Session *s, const NodeList *clauses, uint32_t i);
/* A clause of a `wrap` by this function: its arguments and the block. */
bool clause_fits_function(Session *s, const Node *c, const Fn *f);
/* A clause of a policy whose word is k: what it takes. loop: it stands on one. */
bool clause_fits_policy(Session *s, const Clause *k, const Node *c, bool loop);
/* Whether two options of a policy exclude each other; both may be one word. */
bool clause_options_clash(const Clause *a, const Clause *b);
void clause_clash(Session *s, ErrCode code, const Node *c, const char *first, Span first_at);
/* Two clauses say of what stands at `at`, written so, that it gets these tags. */
void clause_disagree(Session *s, Span at, const char *text, Tag tag, Span first_at, Tag first);
/* The mode has no such CHOICE. */
void clause_refuse(Session *s, ErrCode code, Span at, ModeWord mode, const char *word);
/* No word, and no declaration that module m sees, is called so. */
void clause_unknown(Session *s, const Module *m, ClauseKind kind, const Node *c);
const char *clause_path(Session *s, const Words *path); /* "a.b", scratch */

#endif
