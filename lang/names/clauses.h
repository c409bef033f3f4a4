/* Words of clauses and types (clauses.def), and errors in clauses. The resolver (for files and
 * statements) and the evaluator (for declarations made at the prompt) both ask here, so they give
 * the same answers. */
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
  CLAUSE_CHOICE /* a word behind a mode */
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
  int id; /* ModeWord (also for a choice), PolicyWord, OpClassWord or TypeWord */
  ClauseTakes takes;
  const char *form, *section, *doc;
  const char *group; /* words of one group exclude each other; NULL, "" = no group */
  Tag firm, soft;    /* of a policy word: its tags without and with `prefer`, or TAG_NONE */
} Clause;
extern const Clause clause_table[];
extern const size_t clause_count;

/* The row of a clause's word; NULL for a dotted or unknown word. */
const Clause *clause_of(ClauseKind kind, const Node *c);
/* The op class that the path names, or -1. */
int clause_opclass(const Words *path);
/* The tag that a clause of a policy gives, or TAG_NONE. The op classes and names that get it begin
 * at argument *from. */
Tag clause_tag(const Node *c, uint32_t *from);
const char *clause_tag_words(Session *s, Tag t);                   /* "prefer save" */
const char *clause_tag_about(Session *s, Tag t, const char *what); /* "save h as bf16" */
const char *clause_opclass_words(Session *s);                      /* "matmul conv .." */
/* The part <..> of the form: "`<every 10>`". */
const char *clause_example(Session *s, const Clause *k);
/* The value of a CHOICE of the mode, by its word or by the clause's argument; -1: no such one. */
int clause_choice(ModeWord mode, const char *word);
int clause_choice_of(ModeWord mode, const Node *arg);
static inline bool clause_is_option(const Clause *k) {
  return k->kind == CLAUSE_POLICY && k->group != NULL;
}

TypeWord clause_type_word(const char *name); /* name may be NULL */
bool clause_type_word_is_class(TypeWord w);  /* float, int, num: of several dtypes */

/* ---- checks: errors are filed, nothing is thrown */

/* Checks the i-th clause of a `wrap`: against those before it, and its arguments. */
bool clause_fits_wrap(Session *s, const NodeList *clauses, uint32_t i);
/* Checks a clause that wraps by function f: the number of its arguments, with the block. */
bool clause_fits_function(Session *s, const Node *c, const Fn *f);
/* Checks the arguments of a policy's clause whose word is k. loop: the policy is on a loop. */
bool clause_fits_policy(Session *s, const Clause *k, const Node *c, bool loop);
/* Whether two options of a policy exclude each other; a may be b. */
bool clause_options_clash(const Clause *a, const Clause *b);
void clause_clash(Session *s, ErrCode code, const Node *c, const char *first, Span first_at);
/* Files the error that two clauses give `text` (at `at` and at `first_at`) different tags. */
void clause_disagree(Session *s, Span at, const char *text, Tag tag, Span first_at, Tag first);
/* Files the error that the mode has no such CHOICE. */
void clause_refuse(Session *s, ErrCode code, Span at, ModeWord mode, const char *word);
/* Files the error that no word and no declaration visible in module m has this name. */
void clause_unknown(Session *s, const Module *m, ClauseKind kind, const Node *c);
const char *clause_path(Session *s, const Words *path); /* "a.b", scratch */

#endif
