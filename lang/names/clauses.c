/* Words of clauses and types: the rows of clauses.def, and errors in clauses.
 *
 * In: clauses of the tree. Out: filed errors. This file checks the text alone: the words, which of
 * them may stand together, the number and form of their arguments. Names are looked up by
 * resolve_clause.c before a run, and by policy.c and wrap.c during one.
 */
#include "lang/names/clauses.h"

#include <string.h>

#include "graph/op.h"
#include "graph/opcode.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/names/op_class.h"
#include "lang/value/fail.h"

const Clause clause_table[] = {
#define SETS(field, value) #field
#define RUNS(field) #field
#define MODE(word, takes, form, does, doc)                                                         \
  {#word, CLAUSE_MODE, MODE_##word, TAKES_##takes, form, "Modes", doc, does, TAG_NONE, TAG_NONE},
#include "lang/names/clauses.def"
#undef SETS
#undef RUNS
#define TAGS(firm, soft) NULL, TAG_##firm, TAG_##soft
#define PREFERS NULL, TAG_NONE, TAG_NONE
#define ONCE(group) #group, TAG_NONE, TAG_NONE
#define POLICY(word, takes, form, does, doc)                                                       \
  {#word, CLAUSE_POLICY, POLICY_##word, TAKES_##takes, form, "Checkpoints", doc, does},
#include "lang/names/clauses.def"
#undef TAGS
#undef PREFERS
#undef ONCE
#define OPCLASS(NAME, word, of, doc)                                                               \
  {word,                                                                                           \
   CLAUSE_OPCLASS,                                                                                 \
   OPCLASS_##NAME,                                                                                 \
   TAKES_NOTHING,                                                                                  \
   "checkpoint <save " word "> { .. }",                                                            \
   "Checkpoints",                                                                                  \
   doc,                                                                                            \
   NULL,                                                                                           \
   TAG_NONE,                                                                                       \
   TAG_NONE},
#include "lang/names/clauses.def"
#define TYPEWORD(NAME, word, dims, form, doc)                                                      \
  {word, CLAUSE_TYPE, TYPEWORD_##NAME, TAKES_NOTHING, form, "Shapes",                              \
   doc,  NULL,        TAG_NONE,        TAG_NONE},
#include "lang/names/clauses.def"
#define CHOICE(mode, word, value, doc)                                                             \
  {#word,   CLAUSE_CHOICE, MODE_##mode, TAKES_NOTHING, "wrap <" #mode " " #word "> { .. }",        \
   "Modes", doc,           NULL,        TAG_NONE,      TAG_NONE},
#include "lang/names/clauses.def"
};
const size_t clause_count = sizeof clause_table / sizeof *clause_table;

/* ---- rows */

/* The row of a word, or NULL. */
static const Clause *clause_find(ClauseKind kind, const char *word) {
  for (size_t i = 0; i < clause_count; i++)
    if (clause_table[i].kind == kind && !strcmp(clause_table[i].word, word))
      return &clause_table[i];
  return NULL;
}

const Clause *clause_of(ClauseKind kind, const Node *c) {
  return c->clause.path.count == 1 ? clause_find(kind, c->clause.path.items[0].name) : NULL;
}

int clause_opclass(const Words *path) {
  const Clause *k = path->count == 1 ? clause_find(CLAUSE_OPCLASS, path->items[0].name) : NULL;
  return k ? k->id : -1;
}

int clause_opclass_of(OpCode op) {
  const OpInfo *i = &op_info[op];
  if (i->traits & (T_VIEW | T_EFFECT | T_REGION)) return -1;
  if (i->traits & T_RANDOM || op == OP_PHILOX) return OPCLASS_RANDOM;
  switch (i->cls) {
  case CONTRACT: return op == OP_DOT || op == OP_INNER ? OPCLASS_MATMUL : OPCLASS_CONV;
  case FACTOR: return OPCLASS_MATMUL;
  case REDUCE: return OPCLASS_REDUCE;
  case ELEMENTWISE: return OPCLASS_POINTWISE;
  default: return -1;
  }
}

TypeWord clause_type_word(const char *name) {
  static const char *const words[] = {
#define TYPEWORD(NAME, word, dims, form, doc) word,
#include "lang/names/clauses.def"
  };
  for (int i = 0; name && i < TYPEWORD_COUNT; i++)
    if (words[i][0] == name[0] && !strcmp(words[i], name)) return (TypeWord)i;
  return TYPEWORD_NOT;
}

bool clause_type_word_is_class(TypeWord w) {
  enum { DTYPES, MODEL, NONE };
  static const uint8_t dims[] = {
#define TYPEWORD(NAME, word, dims, form, doc) dims,
#include "lang/names/clauses.def"
  };
  return w >= 0 && dims[w] == DTYPES;
}

/* The row of `prefer`, the word in front of a stance. */
static const Clause *prefer(void) {
  return &clause_table[MODE_COUNT + POLICY_prefer];
}

/* The tag of `save .. as FORM`; TAG_NONE: there is no such form. */
static Tag narrow_tag(Name form) {
  for (int i = TAG_NONE + 1; i < TAG_COUNT; i++)
    if (tag_narrows((Tag)i) && !strcmp(dtype_info[tag_info[i].narrow].name, form)) return (Tag)i;
  return TAG_NONE;
}

/* The words behind `as`: "bf16, f16 or u8". */
static const char *narrow_words(Session *s) {
  const char *t = "", *last = NULL;
  for (int i = TAG_NONE + 1; i < TAG_COUNT; i++) {
    if (!tag_narrows((Tag)i)) continue;
    if (last) t = fail_text(s, "%s%s%s", t, *t ? ", " : "", last);
    last = dtype_info[tag_info[i].narrow].name;
  }
  return fail_text(s, "%s or %s", t, last);
}

Tag clause_tag(const Node *c, uint32_t *from) {
  const Clause *k = clause_of(CLAUSE_POLICY, c);
  *from = 0;
  if (k && k->id == POLICY_save && c->clause.as.name) return narrow_tag(c->clause.as.name);
  if (k != prefer()) return k ? k->firm : TAG_NONE;
  const Node *x = c->clause.args.count ? c->clause.args.items[0] : NULL;
  bool word = x && x->kind == N_WORD && x->path.count == 1;
  k = word ? clause_find(CLAUSE_POLICY, x->path.items[0].name) : NULL;
  *from = 1;
  return k ? k->soft : TAG_NONE;
}

const char *clause_tag_words(Session *s, Tag t) {
  return clause_tag_about(s, t, NULL);
}

const char *clause_tag_about(Session *s, Tag t, const char *what) {
  const char *gap = what ? " " : "";
  if (!what) what = "";
  if (tag_narrows(t))
    return fail_text(s, "%s%s%s as %s", clause_table[MODE_COUNT + POLICY_save].word, gap, what,
                     dtype_info[tag_info[t].narrow].name);
  for (const Clause *k = clause_table; t != TAG_NONE && k < clause_table + clause_count; k++) {
    if (k->firm == t) return fail_text(s, "%s%s%s", k->word, gap, what);
    if (k->soft == t) return fail_text(s, "%s %s%s%s", prefer()->word, k->word, gap, what);
  }
  return "";
}

/* The words of a kind, as "save recompute ..". */
static const char *all_words(Session *s, ClauseKind kind) {
  const char *t = "";
  for (size_t i = 0; i < clause_count; i++)
    if (clause_table[i].kind == kind)
      t = fail_text(s, "%s%s%s", t, *t ? " " : "", clause_table[i].word);
  return t;
}

const char *clause_opclass_words(Session *s) {
  return all_words(s, CLAUSE_OPCLASS);
}

const char *clause_example(Session *s, const Clause *k) {
  const char *lo = strchr(k->form, '<'), *hi = strchr(k->form, '>');
  return fail_text(s, "`%.*s`", (int)(hi - lo) + 1, lo);
}

const char *clause_path(Session *s, const Words *path) {
  const char *t = "";
  for (uint32_t i = 0; i < path->count; i++)
    t = fail_text(s, "%s%s%s", t, i ? "." : "", path->items[i].name);
  return t;
}

/* ---- words of modes that take one of a few words */

static const struct Choice {
  ModeWord mode;
  const char *word;
  int value;
} choice_table[] = {
#define CHOICE(mode, word, value, doc) {MODE_##mode, #word, value},
#include "lang/names/clauses.def"
};

/* The error text for a word that is none of them. */
static const struct Choices {
  const char *refusal, *help;
} choices[MODE_COUNT] = {
#define CHOICES(mode, refusal, help) [MODE_##mode] = {refusal, help},
#include "lang/names/clauses.def"
};

static const char *argument_word(const Node *x) {
  if (x->kind == N_WORD && x->path.count == 1) return x->path.items[0].name;
  return x->kind == N_STRING ? ast_plain_text(x, &(uint32_t){0}) : NULL;
}

int clause_choice(ModeWord mode, const char *word) {
  for (size_t i = 0; word && i < sizeof choice_table / sizeof *choice_table; i++)
    if (choice_table[i].mode == mode && !strcmp(choice_table[i].word, word))
      return choice_table[i].value;
  return -1;
}

int clause_choice_of(ModeWord mode, const Node *arg) {
  return clause_choice(mode, argument_word(arg));
}

void clause_refuse(Session *s, ErrCode code, Span at, ModeWord mode, const char *word) {
  Diag *d = fail_report(s, code, at, "%s `%s`", choices[mode].refusal, word);
  dg_help(&s->diags, d, "%s", choices[mode].help);
}

/* ---- the arguments of a word */

static bool fits_count(Session *s, const Clause *k, const Node *c, uint32_t n, ErrCode code) {
  if (c->clause.args.count == n) return true;
  Diag *d = fail_report(s, code, c->span, "`%s` takes %u argument%s here, not %u", k->word, n,
                        n == 1 ? "" : "s", c->clause.args.count);
  dg_help(&s->diags, d, "`%s`", k->form);
  return false;
}

static bool fits_mode(Session *s, const Clause *k, const Node *c) {
  uint32_t want = k->takes == TAKES_NOTHING ? 0 : k->takes == TAKES_PAIR ? 2 : 1;
  if (!fits_count(s, k, c, want, ERR_WRAP_ARG)) return false;
  const Node *x = want ? c->clause.args.items[0] : NULL;
  if (k->takes == TAKES_TEXT && x->kind != N_STRING && x->kind != N_WORD) {
    fail_report(s, ERR_WRAP_ARG, x->span, "`%s` takes a name in quotes", k->word);
    return false;
  }
  if (k->takes == TAKES_CHOICE && clause_choice_of((ModeWord)k->id, x) < 0) {
    const char *w = argument_word(x);
    clause_refuse(s, ERR_WRAP_ARG, x->span, (ModeWord)k->id, w ? w : "this");
    return false;
  }
  return true;
}

static bool fits_names(Session *s, const Clause *k, const Node *c) {
  const NodeList *a = &c->clause.args;
  uint32_t from;
  Tag tag = clause_tag(c, &from);
  if (tag == TAG_NONE) {
    const char *stances = "";
    for (const Clause *o = clause_table; o < clause_table + clause_count; o++)
      if (o->soft != TAG_NONE)
        stances = fail_text(s, "%s%s`%s`", stances, *stances ? " or " : "", o->word);
    fail_report(s, ERR_POLICY_WORD, a->count ? a->items[0]->span : c->span,
                "`%s` is followed by %s", k->word, stances);
    return false;
  }
  if (a->count == from) {
    Diag *d = fail_report(s, ERR_POLICY_WORD, c->span, "`%s` names what it is about", k->word);
    dg_help(&s->diags, d, "op classes or names of `let`s: `<%s matmul>`", clause_tag_words(s, tag));
    return false;
  }
  bool ok = true;
  for (uint32_t i = from; i < a->count; i++) {
    if (a->items[i]->kind == N_WORD) continue;
    Diag *d = fail_report(s, ERR_POLICY_WORD, a->items[i]->span,
                          "op classes and names of `let`s stand here");
    dg_help(&s->diags, d, "the op classes are %s", clause_opclass_words(s));
    ok = false;
  }
  return ok;
}

static bool fits_bytes(Session *s, const Clause *k, const Node *c) {
  const Node *x = c->clause.args.count == 1 && c->clause.is_set ? c->clause.args.items[0] : NULL;
  if (x && (x->kind == N_WORD || x->kind == N_SIZE ||
            (ast_is_expr(x) && x->kind != N_STRING && x->kind != N_FLOAT)))
    return true;
  Diag *d = fail_report(s, ERR_POLICY_WORD, x ? x->span : c->span, "a budget is a number of bytes");
  dg_help(&s->diags, d, "%s", clause_example(s, k));
  return false;
}

/* Checks the word behind `as`. */
static bool fits_form(Session *s, const Clause *k, const Node *c) {
  const Word *form = &c->clause.as;
  if (k && k->id == POLICY_save) {
    if (narrow_tag(form->name) != TAG_NONE) return true;
    fail_report(s, ERR_POLICY_NARROW, form->span, "values are saved as %s, not as `%s`",
                narrow_words(s), form->name);
    return false;
  }
  Diag *d =
      fail_report(s, ERR_POLICY_NARROW, form->span,
                  "`as %s` says how `save` keeps a value: no other word takes it", form->name);
  dg_help(&s->diags, d, "`<save h as %s>`: as written, whatever a planner finds", form->name);
  return false;
}

bool clause_fits_policy(Session *s, const Clause *k, const Node *c, bool loop) {
  if (c->clause.as.name && !fits_form(s, k, c)) return false;
  switch (k->takes) {
  case TAKES_NAMES:
  case TAKES_STANCE: return fits_names(s, k, c);
  case TAKES_BYTES: return fits_bytes(s, k, c);
  case TAKES_ITERATIONS: {
    bool ok = fits_count(s, k, c, 1, ERR_POLICY_WORD);
    if (loop) return ok;
    Diag *d =
        fail_report(s, ERR_POLICY_WORD, c->span, "`%s` is about the iterations of a loop", k->word);
    dg_help(&s->diags, d, "`%s`", k->form);
    return false;
  }
  default: return fits_count(s, k, c, 0, ERR_POLICY_WORD);
  }
}

/* ---- clauses beside others */

void clause_clash(Session *s, ErrCode code, const Node *c, const char *first, Span first_at) {
  const char *w = c->clause.path.items[0].name;
  Diag *d = !strcmp(first, w)
                ? fail_report(s, code, c->span, "`%s` stands twice", w)
                : fail_report(s, code, c->span, "`%s` and `%s` exclude each other", first, w);
  dg_label(&s->diags, d, first_at, "first here");
}

static bool of_one_group(const Clause *a, const Clause *b) {
  return a && b && a->group && *a->group && b->group && !strcmp(a->group, b->group);
}

bool clause_options_clash(const Clause *a, const Clause *b) {
  return of_one_group(a, b);
}

bool clause_fits_wrap(Session *s, const NodeList *clauses, uint32_t i) {
  const Node *c = clauses->items[i];
  const Clause *k = clause_of(CLAUSE_MODE, c);
  Name w = c->clause.path.items[0].name;
  for (uint32_t n = 0; n < i; n++) {
    const Node *o = clauses->items[n];
    Name first = o->clause.path.items[0].name;
    if (first != w && !of_one_group(clause_of(CLAUSE_MODE, o), k)) continue;
    clause_clash(s, ERR_WRAP_TWICE, c, first, o->span);
    return false;
  }
  if (c->clause.as.name) return fits_form(s, NULL, c);
  if (k) return fits_mode(s, k, c);
  for (uint32_t n = 0; n < i; n++) {
    if (clause_of(CLAUSE_MODE, clauses->items[n])) continue;
    Diag *d = fail_report(s, ERR_WRAP_TWICE, c->span, "a `wrap` has one function");
    dg_help(&s->diags, d, "one inside the other: `wrap <f> { wrap <%s> { .. } }`", w);
    return false;
  }
  return true;
}

bool clause_fits_function(Session *s, const Node *c, const Fn *f) {
  Name w = c->clause.path.items[0].name;
  size_t want = 0;
  for (uint32_t i = 0; i < f->params.count; i++) want += !f->params.items[i]->param.init;
  if (want == c->clause.args.count + 1) return true;
  Diag *d = want ? fail_report(s, ERR_WRAP_ARG, c->span,
                               "`%s` takes %zu argument%s and the block, not %u", w, want - 1,
                               want == 2 ? "" : "s", c->clause.args.count)
                 : fail_report(s, ERR_WRAP_ARG, c->span,
                               "`%s` takes no block: its last argument must be a function", w);
  if (src_get(&s->sources, f->header.file)->path[0] != '<')
    dg_label(&s->diags, d, f->header, "declared here");
  return false;
}

void clause_disagree(Session *s, Span at, const char *text, Tag tag, Span first_at, Tag first) {
  const char *said = clause_tag_words(s, first);
  Diag *d = fail_report(s, ERR_POLICY_TWICE, at, "the clauses disagree about `%s`: `%s` and `%s`",
                        text, said, clause_tag_words(s, tag));
  dg_label(&s->diags, d, first_at, "`%s` here", said);
  dg_help(&s->diags, d, "name it in one clause");
}

void clause_unknown(Session *s, const Module *m, ClauseKind kind, const Node *c) {
  const Word *w = &c->clause.path.items[0];
  bool mode = kind == CLAUSE_MODE;
  Diag *d = fail_report(s, mode ? ERR_WRAP_WORD : ERR_POLICY_WORD, mode ? c->span : w->span,
                        mode ? "no mode, and no function, is called `%s`"
                             : "no policy word or policy is called `%s`",
                        clause_path(s, &c->clause.path));
  Near b = near_start(w->name);
  for (size_t i = 0; i < clause_count; i++)
    if (clause_table[i].kind == kind) near_try(&b, clause_table[i].word);
  for (size_t i = 0; m && i < m->global_count; i++)
    if (m->globals[i].kind == (mode ? G_FN : G_POLICY)) near_try(&b, m->globals[i].name);
  if (b.found)
    dg_help(&s->diags, d, "did you mean `%s`?", b.found);
  else if (mode)
    dg_help(&s->diags, d, "modes are %s", all_words(s, kind));
  else if (clause_find(CLAUSE_OPCLASS, w->name))
    dg_help(&s->diags, d, "say what becomes of it: `<save %s>`", w->name);
  else
    dg_help(&s->diags, d, "words are %s; `policy %s { save matmul }` declares one",
            all_words(s, kind), w->name);
}
