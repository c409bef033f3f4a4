/* Names, arguments and places, before anything runs (rules 1 to 9, 21, 43, 47, 49, 53, 88).
 *
 * In: a declared module. Out: filed errors, all of the file in one walk; the top-level items and
 * members in which one was found are marked ITEM_BAD, so that nobody looks at them again. Idea: one
 * walk over the tree with a stack of what is bound and a chain of the constructs around a place. A
 * name that could be anything (a field of a value, an argument) is left to those who know values;
 * what is said here holds for every run, so a program without fault gets no error.
 */
#include <string.h>

#include "lang/resolve.h"

/* ---- state of the walk */

typedef enum BindKind { B_LET, B_VAR, B_PARAM, B_LOOP, B_DIM, B_FN, B_OUT } BindKind;

typedef enum PlaceKind {
  P_TOP,        /* statements of the file */
  P_TEST,       /* a test block */
  P_MODEL,      /* members of a model */
  P_FN,         /* a named function, or a backward body */
  P_LAMBDA,
  P_LOOP,
  P_CHECKPOINT, /* a block, or a loop behind the word */
  P_WRAP,       /* the block of a function: wrap <f> */
  P_COMP
} PlaceKind;

/* The constructs around a place, innermost first. */
typedef struct Place {
  struct Place *up;
  PlaceKind kind;
  int level;         /* functions around it */
  bool code;         /* what stands here is compiled */
  const Node *node;
} Place;

typedef struct Bind {
  Name name;
  Span span;
  BindKind kind;
  const Place *place;
  bool over_range;   /* B_LOOP: a number that counts */
} Bind;

/* A variable of the file. */
typedef struct TopName {
  Name name;
  Span span;
  uint32_t item; /* its statement */
  bool is_var;
} TopName;

typedef struct Resolver {
  Session *s;
  Module *m;
  Bind *binds; size_t bind_count, bind_cap;
  TopName *tops; size_t top_count, top_cap;
  Place *place;
  uint32_t item;       /* present top-level statement */
  Node *model;         /* whose member this is, or NULL */
  uint32_t members;    /* of it that have a value here */
  bool method;         /* in the body of a method */
  const Fn *fn;        /* innermost named function, for its dims */
} Resolver;

enum { ERRORS_MOST = 20 };

typedef enum FoundKind { F_NONE, F_LOCAL, F_MEMBER, F_TOP, F_GLOBAL, F_BUILTIN, F_DTYPE } FoundKind;

typedef struct Found {
  FoundKind kind;
  Bind *bind;
  Node *member;    /* N_PARAM, N_FIELD, N_LET or N_FN of the model */
  TopName *top;
  Global *global;
  const Builtin *builtin;
} Found;

static void walk(Resolver *r, Node *n);
static void walk_type(Resolver *r, Node *t, bool binds);

static bool word_is(Name a, const char *b) { return a && !strcmp(a, b); }

static bool full(const Resolver *r) { return r->s->diags.errors >= ERRORS_MOST; }

static void push_place(Resolver *r, Place *p, PlaceKind k, const Node *n, bool code) {
  *p = (Place){r->place, k, r->place ? r->place->level : 0, code, n};
  if (k == P_FN || k == P_LAMBDA || k == P_MODEL) p->level++; /* a model's members run when one is made */
  r->place = p;
}

/* ---- looking up */

static Name member_name(const Node *m) {
  switch ((NodeKind)m->kind) {
  case N_PARAM: return m->param.name.name;
  case N_FIELD: return m->field.name.name;
  case N_FN: return m->fn->name.name;
  case N_LET: return m->let.pat->kind == N_PAT_NAME ? m->let.pat->word.name : NULL;
  default: return NULL;
  }
}

static Span member_span(const Node *m) {
  switch ((NodeKind)m->kind) {
  case N_PARAM: return m->param.name.span;
  case N_FIELD: return m->field.name.span;
  case N_FN: return m->fn->name.span;
  case N_LET: return m->let.pat->span;
  default: return m->span;
  }
}

/* A field or method; `have`: fields among the first so many members only. */
static Node *model_member(const Node *model, Name name, uint32_t have) {
  const NodeList *p = &model->model.params, *l = &model->model.members;
  for (uint32_t i = 0; i < p->count; i++)
    if (member_name(p->items[i]) == name) return p->items[i];
  for (uint32_t i = 0; i < l->count; i++)
    if (member_name(l->items[i]) == name && (i < have || l->items[i]->kind == N_FN)) return l->items[i];
  return NULL;
}

static Bind *find_bind(const Resolver *r, Name name) {
  for (size_t i = r->bind_count; i > 0; i--)
    if (r->binds[i - 1].name == name) return &r->binds[i - 1];
  return NULL;
}

/* The variable of the file that `name` means at this place, or NULL. In functions the last one. */
static TopName *find_top(const Resolver *r, Name name) {
  TopName *best = NULL;
  for (size_t i = 0; i < r->top_count; i++) {
    if (r->tops[i].name != name) continue;
    if (best && r->place->level == 0 && r->tops[i].item >= r->item) break;
    best = &r->tops[i];
  }
  return best;
}

static Found lookup(Resolver *r, Name name) {
  Found f = {F_NONE, NULL, NULL, NULL, NULL, NULL};
  if ((f.bind = find_bind(r, name))) {
    f.kind = F_LOCAL;
    return f;
  }
  if (r->model && (f.member = model_member(r->model, name, r->members))) {
    f.kind = F_MEMBER;
    return f;
  }
  if ((f.top = find_top(r, name))) {
    Global *g = global_find(r->s, r->m, name);
    if (!g || g->kind == G_VALUE) {
      f.kind = F_TOP;
      f.global = g && g->module == r->m ? g : NULL;
      return f;
    }
  }
  if ((f.global = global_find(r->s, r->m, name))) f.kind = F_GLOBAL;
  else if ((f.builtin = builtin_find(r->s, name))) f.kind = F_BUILTIN;
  else if (dtype_find(name) >= 0) f.kind = F_DTYPE;
  return f;
}

/* ---- what is meant by a name that nobody knows */

typedef struct Near {
  Name name;
  const char *found;
  int distance;
} Near;

static void consider(Near *b, const char *candidate) {
  if (!candidate || candidate[0] == '_') return;
  int d = str_distance(b->name, candidate, b->distance - 1);
  if (d < b->distance) {
    b->distance = d;
    b->found = candidate;
  }
}

static Near near_start(Name name) {
  size_t n = strlen(name);
  return (Near){name, NULL, n <= 2 ? 1 : n <= 4 ? 2 : n <= 7 ? 3 : 4};
}

static void near_member(Near *b, const Node *model) {
  const NodeList *p = &model->model.params, *l = &model->model.members;
  for (uint32_t i = 0; i < p->count; i++) consider(b, member_name(p->items[i]));
  for (uint32_t i = 0; i < l->count; i++) consider(b, member_name(l->items[i]));
}

static void near_global(Near *b, const Module *m, bool types) {
  for (size_t i = 0; m && i < m->global_count; i++) {
    const Global *g = &m->globals[i];
    bool type = g->kind == G_TYPE || g->kind == G_MODEL;
    if (types ? type || g->kind == G_MODULE : g->kind != G_TYPE && g->kind != G_POLICY) consider(b, g->name);
  }
}

static const char *near_value(Resolver *r, Name name) {
  Near b = near_start(name);
  for (size_t i = r->bind_count; i > 0; i--) consider(&b, r->binds[i - 1].name);
  if (r->model) near_member(&b, r->model);
  for (size_t i = 0; i < r->top_count; i++)
    if (r->place->level || r->tops[i].item < r->item) consider(&b, r->tops[i].name);
  near_global(&b, r->m, false);
  near_global(&b, r->s->prelude, false);
  for (size_t i = 0; i < builtin_count; i++) consider(&b, builtin_table[i].name);
  for (int i = 0; i < DT_COUNT; i++) consider(&b, dtype_info[i].name);
  static const char *const reserved[] = {"return", "break", "continue", "while", "assert", "checkpoint", "wrap", "true", "false", "self"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) consider(&b, reserved[i]);
  return b.found;
}

static const char *near_type(Resolver *r, Name name) {
  static const char *const classes[] = {"float", "int", "num", "any", "str", "model", "seq", "params"};
  Near b = near_start(name);
  for (int i = 0; i < DT_COUNT; i++) consider(&b, dtype_info[i].name);
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) consider(&b, classes[i]);
  near_global(&b, r->m, true);
  return b.found;
}

/* Words of other languages and libraries, and what is said here. */
static const char *foreign(Name name) {
  static const struct { const char *word, *here; } t[] = {
      {"True", "`true`"}, {"False", "`false`"}, {"None", "`none`"}, {"null", "`none`"}, {"nil", "`none`"},
      {"println", "`print(..)`"}, {"printf", "`print(\"{x:.3f}\")`"}, {"range", "a range is written `0..n`"},
      {"arange", "`iota(n)`, or a range `0..n` in a `for`"}, {"append", "`push(xs, x)` gives a new list"},
      {"torch", "functions have no prefix: `zeros([3])`"}, {"np", "functions have no prefix: `zeros([3])`"},
      {"numpy", "functions have no prefix: `zeros([3])`"}, {"jnp", "functions have no prefix: `zeros([3])`"},
      {"tensor", "`f32([1, 2])` makes a tensor"}, {"array", "`f32([1, 2])` makes a tensor"},
      {"Tensor", "`f32([1, 2])` makes a tensor"}, {"matmul", "`x @ y`"}, {"dot", "`x @ y`"}, {"mm", "`x @ y`"},
      {"bmm", "`x @ y`"}, {"pow", "`x ** y`"}, {"randn", "`normal([3, 4])`"}, {"rand", "`uniform([3, 4])`"},
      {"cat", "`concat([x, y], axis = 0)`"}, {"permute", "`transpose(x, axes = (..))`"},
      {"view", "`reshape(x, [..])`"}, {"unsqueeze", "`expand(x, axis)`"}, {"detach", "`stop(x)`"},
      {"float32", "`f32`"}, {"float64", "`f64`"}, {"int64", "`i64`"}, {"int32", "`i32`"}, {"uint8", "`u8`"},
      {"float16", "`f16`"}, {"bfloat16", "`bf16`"}, {"double", "`f64`"}, {"long", "`i64`"},
      {"item", "`float(x)` or `int(x)` reads a rank-0 tensor"}, {"axis_size", "`size(x, axis = 0)`"},
      {"square", "`x ** 2`"}, {"absolute", "`abs(x)`"}, {"power", "`x ** y`"}, {"input", "`args(\"name\", default)`"},
      {"std_dev", "`std(x)`"}, {"mse_loss", "`mse(x, y)`"}, {"no_grad", "`wrap <no_grad> { .. }`"},
  };
  for (size_t i = 0; i < sizeof t / sizeof *t; i++)
    if (!strcmp(name, t[i].word)) return t[i].here;
  return NULL;
}

static void help_foreign(Resolver *r, Diag *d, const char *here) {
  bool word = here[0] == '`' && strchr(here + 1, '`') == here + strlen(here) - 1;
  dg_help(&r->s->diags, d, word ? "here it is %s" : "%s", here);
}

static void unknown_name(Resolver *r, Name name, Span at) {
  Session *s = r->s;
  if (word_is(name, "_")) {
    Diag *d = err(s, ERR_UNKNOWN_NAME, at, "`_` binds nothing and has no value");
    dg_help(&s->diags, d, "give the value a name where `_` stands");
    return;
  }
  if (r->model && !r->method) { /* a member that stands below */
    const Node *later = model_member(r->model, name, UINT32_MAX);
    if (later) {
      Diag *d = err(s, ERR_UNSET, at, "`%s` has no value yet: members are made from top to bottom", name);
      dg_label(&s->diags, d, member_span(later), "declared here");
      return;
    }
  }
  Diag *d = err(s, ERR_UNKNOWN_NAME, at, "`%s` is not known here", name);
  const char *here = foreign(name), *near = here ? NULL : near_value(r, name);
  if (here) help_foreign(r, d, here);
  else if (near) dg_help(&s->diags, d, "did you mean `%s`?", near);
  else if (word_is(name, "self")) dg_help(&s->diags, d, "`self` stands in methods");
}

/* Is `name` a field, method or record field of anything in the files at hand? */
typedef struct Search { Name name; bool found, lets; } Search;

static bool pattern_binds(const Node *p, Name name) {
  if (p->kind == N_PAT_NAME) return p->word.name == name;
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++)
      if (pattern_binds(p->list.items[i], name)) return true;
  return false;
}

static void search_visit(void *ud, Node *n) {
  Search *q = ud;
  if (!n || q->found) return;
  if (n->kind == N_MODEL && model_member(n, q->name, UINT32_MAX)) q->found = true;
  if (q->lets) {
    if (n->kind == N_LET && pattern_binds(n->let.pat, q->name)) q->found = true;
    if (n->kind == N_FN && n->fn->name.name == q->name) q->found = true;
  } else {
    if (n->kind == N_RECORD)
      for (uint32_t i = 0; i < n->list.count; i++)
        if (n->list.items[i]->arg.name.name == q->name) q->found = true;
    if (n->kind == N_TYPE_FIELD && n->type_field.name.name == q->name) q->found = true;
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) search_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, search_visit, ud);
}

static bool anywhere(Resolver *r, Name name, bool lets) {
  Search q = {name, false, lets};
  for (size_t i = 0; i < r->s->module_count && !q.found; i++)
    if (r->s->modules[i]->ast) search_visit(&q, r->s->modules[i]->ast);
  return q.found || word_is(name, "remove");
}

/* ---- binding */

static const char *const fixed_words[] = {"none", "inf", "nan", "pi"};

static bool is_fixed(Name n) {
  for (size_t i = 0; i < sizeof fixed_words / sizeof *fixed_words; i++)
    if (!strcmp(n, fixed_words[i])) return true;
  return dtype_find(n) >= 0;
}

static const char *what_binds(BindKind k) {
  switch (k) {
  case B_PARAM: return "parameter";
  case B_LOOP: return "loop variable";
  case B_DIM: return "dim";
  case B_FN: return "function";
  default: return "local";
  }
}

/* Whether the word may be bound here; an error is filed when not (rules 3 and 4). */
static bool may_bind(Resolver *r, const Word *w, BindKind k) {
  Session *s = r->s;
  if (!w->name || word_is(w->name, "_")) return false;
  if (is_fixed(w->name)) {
    Diag *d = err(s, ERR_REDECLARE, w->span, "`%s` is built in and cannot be declared again", w->name);
    dg_help(&s->diags, d, "choose another name");
    return false;
  }
  if (r->method && k != B_OUT) {
    Node *f = model_member(r->model, w->name, UINT32_MAX);
    if (f) {
      Diag *d = err(s, ERR_SHADOW_FIELD, w->span, "the %s `%s` has the name of a %s of `%s`", what_binds(k), w->name,
                    f->kind == N_FN ? "method" : f->kind == N_PARAM ? "constructor argument" : "field",
                    r->model->model.name.name);
      dg_label(&s->diags, d, member_span(f), "`%s` of the model", w->name);
      dg_help(&s->diags, d, "choose another name: a bare `%s` always means the model's", w->name);
      return false;
    }
  }
  return true;
}

static void bind_word(Resolver *r, const Word *w, BindKind k) {
  if (!may_bind(r, w, k) && (!w->name || word_is(w->name, "_"))) return;
  Bind b = {w->name, w->span, k, r->place, false};
  VEC_PUSH(&r->s->scratch, r->binds, r->bind_count, r->bind_cap, b);
}

/* Names of a pattern; two of one name are an error. */
static void bind_pat(Resolver *r, const Node *p, BindKind k, bool range, size_t from) {
  if (p->kind == N_PAT_NAME) {
    for (size_t i = from; i < r->bind_count; i++)
      if (r->binds[i].name == p->word.name) {
        Diag *d = err(r->s, ERR_TWICE, p->span, "the pattern binds `%s` twice", p->word.name);
        dg_label(&r->s->diags, d, r->binds[i].span, "first here");
        return;
      }
    size_t before = r->bind_count;
    bind_word(r, &p->word, k);
    if (r->bind_count > before) r->binds[before].over_range = range;
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) bind_pat(r, p->list.items[i], k, range, from);
}

/* ---- using a name */

static void use_found(Resolver *r, const Found *f, Name name, Span at) {
  Session *s = r->s;
  switch (f->kind) {
  case F_NONE: unknown_name(r, name, at); return;
  case F_LOCAL:
    if (f->bind->kind == B_VAR && f->bind->place->level < r->place->level) {
      const Place *p = r->place;
      while (p && p->kind != P_FN && p->kind != P_LAMBDA) p = p->up;
      Diag *d = err(s, ERR_CAPTURE_VAR, at, "a function cannot capture the local `var` `%s`", name);
      dg_label(&s->diags, d, f->bind->span, "declared here");
      dg_help(&s->diags, d, "copy it to a `let` before the function: `let now = %s`", name);
    }
    return;
  case F_TOP: {
    const TopName *t = f->top;
    bool constant = f->global && f->global->is_const;
    const Place *p = r->place;
    while (p->up && p->kind != P_TEST) p = p->up;
    if (p->kind == P_TEST && !constant) {
      Diag *d = err(s, ERR_TEST_SCOPE, at, "a test does not see the top-level variable `%s`", name);
      dg_label(&s->diags, d, t->span, "declared here");
      dg_help(&s->diags, d, "make the value inside the test; declarations and constant `let`s are seen");
      return;
    }
    bool by_name = false; /* in a named function: compiled, or a proc */
    for (p = r->place; p; p = p->up) by_name |= p->kind == P_FN;
    if (r->m != s->main && by_name && r->place->code && !constant) {
      Diag *d = err(s, ERR_MODULE_VAR, at, "`%s` is a top-level variable, which a file that is used does not have", name);
      dg_label(&s->diags, d, t->span, "declared here");
      dg_help(&s->diags, d, "pass it as an argument; a `let` of a constant expression is a declaration");
      return;
    }
    if (t->is_var && r->place->code && by_name) {
      Diag *d = err(s, ERR_CODE_VAR, at, "code cannot read the top-level `var` `%s`", name);
      dg_label(&s->diags, d, t->span, "declared here");
      dg_help(&s->diags, d, "pass it as an argument, or declare it with `let`");
      return;
    }
    if (r->place->level == 0 && t->item >= r->item && !constant) {
      Diag *d = err(s, ERR_UNSET, at, "`%s` has no value yet: its `%s` stands below", name, t->is_var ? "var" : "let");
      if (t->item == r->item) d->message = arena_printf(&s->notes, "`%s` has no value yet: this statement makes it", name);
      dg_label(&s->diags, d, t->span, "declared here");
    }
    return;
  }
  case F_GLOBAL:
    if (f->global->kind == G_TYPE) {
      Diag *d = err(s, ERR_NOT_VALUE, at, "`%s` is a type, not a value", name);
      dg_label(&s->diags, d, f->global->span, "declared here");
    } else if (f->global->kind == G_POLICY) {
      Diag *d = err(s, ERR_NOT_VALUE, at, "`%s` is a policy, which stands in `checkpoint <..>` only", name);
      dg_label(&s->diags, d, f->global->span, "declared here");
    } else if (f->global->kind == G_VALUE && r->place->code && f->global->is_var) {
      Diag *d = err(s, ERR_CODE_VAR, at, "code cannot read the top-level `var` `%s`", name);
      dg_help(&s->diags, d, "pass it as an argument");
    }
    return;
  case F_MEMBER:
  case F_BUILTIN:
  case F_DTYPE: return;
  }
}

static void use_name(Resolver *r, Name name, Span at) {
  Found f = lookup(r, name);
  use_found(r, &f, name, at);
}

/* ---- calls */

/* A parameter of what is called, from a declaration or a builtin's signature. */
typedef struct Par {
  const char *name;
  size_t n;
  bool deflt, rest;
} Par;

typedef struct Callee {
  Name name;          /* as called */
  Par *par; size_t count;
  Span declared;      /* file 0: builtin */
  const char *signature;
  bool open;          /* takes any names */
} Callee;

static void callee_of_params(Resolver *r, Callee *c, const NodeList *p) {
  c->par = ARENA_ARRAY(&r->s->scratch, Par, p->count + 1);
  for (uint32_t i = 0; i < p->count; i++) {
    Name n = p->items[i]->param.name.name;
    c->par[c->count++] = (Par){n, strlen(n), p->items[i]->param.init != NULL, false};
  }
}

static void callee_of_builtin(Resolver *r, Callee *c, const Builtin *b) {
  c->par = ARENA_ARRAY(&r->s->scratch, Par, 16);
  c->signature = txt(r->s, "%s%s", b->name, b->signature);
  const char *p = b->signature;
  if (*p == '(') p++;
  while (*p && *p != ')' && c->count < 16) {
    while (*p == ' ' || *p == ',') p++;
    if (*p == ')') break;
    Par q = {p, 0, false, false};
    while (*p && !strchr(", ).", *p)) p++;
    q.n = (size_t)(p - q.name);
    if (!strncmp(p, "...", 3)) {
      q.rest = true;
      p += 3;
    }
    while (*p == ' ') p++;
    if (*p == '=') {
      q.deflt = true;
      int depth = 0;
      while (*p && (depth || (*p != ',' && *p != ')'))) {
        if (*p == '(') depth++;
        if (*p == ')') depth--;
        p++;
      }
    }
    c->par[c->count++] = q;
  }
  for (size_t i = 0; i < c->count; i++)
    if (c->par[i].rest && c->par[i].n == 5 && !strncmp(c->par[i].name, "sizes", 5)) c->open = true;
}

static void explain_callee(Resolver *r, Diag *d, const Callee *c) {
  if (c->declared.file && r->s->sources.items[c->declared.file].path[0] != '<')
    dg_label(&r->s->diags, d, c->declared, "declared here");
  else if (c->signature)
    dg_help(&r->s->diags, d, "its signature is %s", c->signature);
}

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

/* Arguments of a call against parameters (rule 47). `receiver`: x of x.f(..), `no_shape`: an initialiser,
 * which is given its shape (rule 58). */
static void check_call(Resolver *r, const Callee *c, Node *call, bool receiver, bool no_shape) {
  Session *s = r->s;
  size_t required = 0, positional = receiver ? 1 : 0, before = s->diags.errors;
  bool rest = false, named = false;
  bool *given = ARENA_ARRAY(&s->scratch, bool, c->count + 1);
  for (size_t i = 0; i < c->count; i++) {
    if (c->par[i].rest) rest = true;
    else if (!c->par[i].deflt) required++;
  }
  const NodeList *l = &call->call.args;
  Node *extra = NULL;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *a = l->items[i];
    if (!a->arg.name.name) {
      if (named) {
        Diag *d = err(s, ERR_ARG_ORDER, a->span, "an argument by position stands after one by name");
        dg_help(&s->diags, d, "positional arguments come first");
        return;
      }
      if (++positional > required && !extra) extra = a;
      continue;
    }
    named = true;
    Name n = a->arg.name.name;
    size_t k = 0;
    while (k < c->count && (c->par[k].rest || c->par[k].n != strlen(n) || strncmp(c->par[k].name, n, c->par[k].n))) k++;
    if (k == c->count) {
      if (c->open) continue;
      Diag *d = err(s, ERR_ARG_NAME, a->arg.name.span, "`%s` has no parameter `%s`", c->name, n);
      explain_callee(r, d, c);
      Near b = near_start(n);
      for (size_t j = 0; j < c->count; j++)
        if (!c->par[j].rest) consider(&b, txt(s, "%.*s", (int)c->par[j].n, c->par[j].name));
      if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
      else if (c->signature) dg_help(&s->diags, d, "its signature is %s", c->signature);
      continue;
    }
    if (given[k]) {
      err(s, ERR_TWICE, a->arg.name.span, "the argument `%s` is given twice", n);
      continue;
    }
    given[k] = true;
  }
  if (s->diags.errors > before) return;
  if (positional > required && !rest) {
    Diag *d = err(s, ERR_ARG_COUNT, extra ? extra->span : call->span, "`%s` takes %zu argument%s by position, not %zu",
                  c->name, required, plural(required), positional);
    explain_callee(r, d, c);
    if (c->signature && c->count && !strcmp(c->name, "ones")) dg_help(&s->diags, d, "a shape is one argument: `ones([3, 4])`");
    for (size_t i = 0; i < c->count; i++)
      if (c->par[i].deflt && !given[i]) {
        dg_help(&s->diags, d, "a parameter with a default is given by name: `%.*s = ..`", (int)c->par[i].n, c->par[i].name);
        if (c->signature && !strncmp(c->par[0].name, "shape", 5)) dg_help(&s->diags, d, "a shape is one argument: `%s([3, 4])`", c->name);
        break;
      }
    return;
  }
  size_t left = positional;
  for (size_t i = 0; i < c->count; i++) {
    if (c->par[i].rest || c->par[i].deflt) continue;
    if (left) {
      left--;
      if (given[i]) {
        Span at = call->span;
        for (uint32_t k = 0; k < l->count; k++) {
          Name n = l->items[k]->arg.name.name;
          if (n && strlen(n) == c->par[i].n && !strncmp(n, c->par[i].name, c->par[i].n)) at = l->items[k]->arg.name.span;
        }
        Diag *d = err(s, ERR_TWICE, at, "the argument `%.*s` is given by position and by name", (int)c->par[i].n, c->par[i].name);
        explain_callee(r, d, c);
        return;
      }
      given[i] = true;
    }
  }
  for (size_t i = 0; i < c->count; i++) {
    if (given[i] || c->par[i].rest || c->par[i].deflt) continue;
    if (no_shape && i == 0) continue;
    Diag *d = err(s, ERR_ARG_COUNT, call->span, "`%s` needs the argument `%.*s`", c->name, (int)c->par[i].n, c->par[i].name);
    explain_callee(r, d, c);
    return;
  }
}

/* Does the name of a function that code may not call stand here? (rule 53) */
static bool check_code_call(Resolver *r, const Global *g, const Builtin *b, Name name, Span at) {
  Session *s = r->s;
  if (!r->place->code) return true;
  bool named = false, in_checkpoint = false;
  for (const Place *p = r->place; p; p = p->up) {
    named |= p->kind == P_FN && p->code;
    in_checkpoint |= p->kind == P_CHECKPOINT;
  }
  const char *where = named || !in_checkpoint ? "code" : "a `checkpoint` block, which is code,";
  if (g && g->kind == G_FN && g->decl && g->decl->fn->is_proc) {
    Diag *d = err(s, ERR_SCRIPT_ONLY, at, "%s cannot call the proc `%s`", where, name);
    if (s->sources.items[g->decl->fn->header.file].path[0] != '<') dg_label(&s->diags, d, g->decl->fn->header, "declared here");
    dg_help(&s->diags, d, "call it at the top level or in a proc, and pass what it gives as an argument");
    return false;
  }
  if (g && g->kind == G_MODEL) {
    Diag *d = err(s, ERR_SCRIPT_ONLY, at, "%s cannot make an instance of the model `%s`", where, name);
    dg_help(&s->diags, d, "make it in script, or as a `let` member of a model, and use it here");
    return false;
  }
  if (b && (b->flags & BI_SCRIPT)) {
    Diag *d = err(s, ERR_SCRIPT_ONLY, at, "`%s` works in script, not in code", name);
    dg_help(&s->diags, d, "call it at the top level or in a proc, and pass what it gives as an argument");
    return false;
  }
  return true;
}

static bool is_later(const Builtin *b) { return !strcmp(b->doc, "not yet"); }

/* A call of something known by name. False when nothing more is known of it. */
static void call_known(Resolver *r, const Global *g, const Builtin *b, const Node *decl, Name name, Span at, Node *call, bool receiver, bool no_shape) {
  Callee c = {.name = name};
  if (b && is_later(b)) {
    Diag *d = err(r->s, ERR_NOT_YET, at, "not yet: `%s`", name);
    (void)d;
    return;
  }
  if (!check_code_call(r, g, b, name, at)) return;
  if (b) callee_of_builtin(r, &c, b);
  else if (decl->kind == N_FN) {
    callee_of_params(r, &c, &decl->fn->params);
    c.declared = decl->fn->header;
  } else if (decl->kind == N_MODEL) {
    callee_of_params(r, &c, &decl->model.params);
    c.declared = decl->model.name.span;
  } else
    return;
  if (!b && r->s->sources.items[c.declared.file].path[0] == '<' && c.declared.hi > c.declared.lo) {
    const Source *src = &r->s->sources.items[c.declared.file];
    Span h = c.declared;
    if (decl->kind == N_MODEL && decl->model.params.count)
      h.hi = decl->model.params.items[decl->model.params.count - 1]->span.hi + 1;
    c.signature = txt(r->s, "%.*s", (int)(h.hi - h.lo), src->text + h.lo);
  }
  check_call(r, &c, call, receiver, no_shape && c.count && c.par[0].n == 5 && !strncmp(c.par[0].name, "shape", 5));
}

static void unknown_in_module(Resolver *r, const Module *m, Name f, Span at) {
  Diag *d = err(r->s, ERR_NO_FIELD, at, "module `%s` has no `%s`", m->name, f);
  Near b = near_start(f);
  for (size_t i = 0; i < m->global_count; i++)
    if (m->globals[i].module == m) consider(&b, m->globals[i].name);
  if (b.found) dg_help(&r->s->diags, d, "did you mean `%s`?", b.found);
}

/* module.f: the declaration, or NULL after an error or for a builtin. */
static const Global *module_member(Resolver *r, const Module *m, Name f, Span at) {
  for (size_t i = 0; i < m->global_count; i++) {
    const Global *g = &m->globals[i];
    if (g->name != f || g->module != m) continue;
    if (f[0] == '_') {
      err(r->s, ERR_PRIVATE, at, "`%s` is private to `%s`", f, m->name);
      return NULL;
    }
    if (g->kind == G_VALUE && !g->is_const) {
      Diag *d = err(r->s, ERR_MODULE_VAR, at, "`%s` is a top-level variable of `%s`, which `use` does not bring", f, m->name);
      dg_label(&r->s->diags, d, g->span, "declared here");
      return NULL;
    }
    return g;
  }
  if (visible_anyway(r->s, m, f, NULL)) return r->s->prelude ? global_find(r->s, r->s->prelude, f) : NULL;
  unknown_in_module(r, m, f, at);
  return NULL;
}

static const Module *module_named(Resolver *r, const Node *x) {
  if (x->kind != N_NAME) return NULL;
  Found f = lookup(r, x->name);
  return f.kind == F_GLOBAL && f.global->kind == G_MODULE ? f.global->v.u.module : NULL;
}

static void walk_args(Resolver *r, Node *call) {
  for (uint32_t i = 0; i < call->call.args.count; i++) {
    Node *a = call->call.args.items[i];
    for (uint32_t k = 0; k < i; k++)
      if (a->arg.name.name && call->call.args.items[k]->arg.name.name == a->arg.name.name) {
        Diag *d = err(r->s, ERR_TWICE, a->arg.name.span, "the argument `%s` is given twice", a->arg.name.name);
        dg_label(&r->s->diags, d, call->call.args.items[k]->arg.name.span, "first here");
        break;
      }
    walk(r, a->arg.value);
  }
}

static bool args_twice(const Node *call) {
  const NodeList *l = &call->call.args;
  for (uint32_t i = 0; i < l->count; i++)
    for (uint32_t k = 0; k < i; k++)
      if (l->items[i]->arg.name.name && l->items[i]->arg.name.name == l->items[k]->arg.name.name) return true;
  return false;
}

static void walk_call(Resolver *r, Node *e, bool init) {
  Session *s = r->s;
  Node *c = e->call.callee;
  bool twice = args_twice(e);
  if (c->kind == N_NAME) {
    Found f = lookup(r, c->name);
    size_t before = s->diags.errors;
    use_found(r, &f, c->name, c->span);
    if (s->diags.errors == before && !twice) {
      if (f.kind == F_GLOBAL && f.global->decl) call_known(r, f.global, NULL, f.global->decl, c->name, c->span, e, false, init);
      if (f.kind == F_BUILTIN && f.builtin->fn) call_known(r, NULL, f.builtin, NULL, c->name, c->span, e, false, init);
      if (f.kind == F_BUILTIN && !f.builtin->fn) err(s, ERR_NOT_CALLABLE, c->span, "`%s` is a value, not a function", c->name);
      if (f.kind == F_MEMBER && f.member->kind == N_FN) call_known(r, NULL, NULL, f.member, c->name, c->span, e, false, false);
      if (f.kind == F_DTYPE && (e->call.args.count != 1 || e->call.args.items[0]->arg.name.name)) {
        Diag *d = err(s, ERR_ARG_COUNT, e->span, "a cast takes one value: `%s(x)`", c->name);
        if (e->call.args.count > 1) dg_help(&s->diags, d, "`%s([1, 2])` makes a tensor", c->name);
      }
    }
    walk_args(r, e);
    return;
  }
  if (c->kind != N_DOT) {
    walk(r, c);
    walk_args(r, e);
    return;
  }
  Name f = c->dot.name.name;
  Span at = c->dot.name.span;
  const Module *m = module_named(r, c->dot.object);
  if (m) {
    const Global *g = module_member(r, m, f, at);
    if (g && !twice && g->decl && (g->kind == G_FN || g->kind == G_MODEL)) call_known(r, g, NULL, g->decl, f, at, e, false, init);
    walk_args(r, e);
    return;
  }
  size_t before = s->diags.errors;
  walk(r, c->dot.object);
  if (s->diags.errors > before) { /* what `f` is there depends on the object */
    walk_args(r, e);
    return;
  }
  if (c->dot.object->kind == N_SELF && r->model) {
    Node *x = model_member(r->model, f, UINT32_MAX);
    if (x) {
      if (x->kind == N_FN && !twice) call_known(r, NULL, NULL, x, f, at, e, false, false);
      walk_args(r, e);
      return;
    }
  }
  Found q = lookup(r, f);
  bool member = q.kind != F_LOCAL && anywhere(r, f, false);
  if (q.kind == F_NONE && !member) {
    const char *here = foreign(f);
    Diag *d = err(s, ERR_NO_FIELD, at, "there is no function, and no field, called `%s`", f);
    const char *near = here ? NULL : near_value(r, f);
    if (here) help_foreign(r, d, here);
    else if (near) dg_help(&s->diags, d, "did you mean `%s`?", near);
  } else if (!member && !twice) {
    if (q.kind == F_GLOBAL && q.global->decl) call_known(r, q.global, NULL, q.global->decl, f, at, e, true, false);
    if (q.kind == F_BUILTIN && q.builtin->fn) call_known(r, NULL, q.builtin, NULL, f, at, e, true, false);
  }
  walk_args(r, e);
}

/* ---- clauses of checkpoint and wrap */

static const char *path_text(Resolver *r, const Words *p) {
  Buf b;
  buf_init_arena(&b, &r->s->scratch);
  for (uint32_t i = 0; i < p->count; i++) buf_printf(&b, "%s%s", i ? "." : "", p->items[i].name);
  return b.s ? b.s : "";
}

static const char *const class_words[] = {"matmul", "conv", "attention", "reduce", "pointwise", "random", "all", "none"};

static bool is_class(Name n) {
  for (size_t i = 0; i < sizeof class_words / sizeof *class_words; i++)
    if (!strcmp(n, class_words[i])) return true;
  return false;
}

static void save_word(Resolver *r, Node *a) {
  Session *s = r->s;
  if (a->kind != N_WORD) {
    Diag *d = err(s, ERR_POLICY_WORD, a->span, "op classes and names of `let`s stand here");
    dg_help(&s->diags, d, "the op classes are matmul conv attention reduce pointwise random all none");
    return;
  }
  const Words *p = &a->path;
  if (p->count == 1 && is_class(p->items[0].name)) return;
  for (uint32_t i = 0; i < p->count; i++) {
    Name n = p->items[i].name;
    if (anywhere(r, n, true)) continue;
    Found f = lookup(r, n);
    if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) continue;
    Diag *d = err(s, ERR_POLICY_WORD, p->items[i].span, "no op class, `let` or policy is called `%s`", n);
    Near b = near_start(n);
    for (size_t k = 0; k < sizeof class_words / sizeof *class_words; k++) consider(&b, class_words[k]);
    for (size_t k = r->bind_count; k > 0; k--) consider(&b, r->binds[k - 1].name);
    if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
    else dg_help(&s->diags, d, "the op classes are matmul conv attention reduce pointwise random all none");
    return;
  }
}

static const char *const policy_words[] = {"save", "recompute", "prefer", "offload", "budget", "auto", "reentrant", "binomial", "every"};

static void clause_count(Resolver *r, Node *c, uint32_t n, ErrCode code, const char *form) {
  Name w = c->clause.path.items[0].name;
  if (c->clause.args.count == n) return;
  Diag *d = err(r->s, code, c->span, "`%s` takes %u argument%s here, not %u", w, n, plural(n), c->clause.args.count);
  dg_help(&r->s->diags, d, "%s", form);
}

static void walk_policy_clause(Resolver *r, Node *c, bool loop) {
  Session *s = r->s;
  Word *w = &c->clause.path.items[0];
  NodeList *a = &c->clause.args;
  bool one = c->clause.path.count == 1;
  (void)loop;
  if (one && (word_is(w->name, "save") || word_is(w->name, "recompute") || word_is(w->name, "offload") || word_is(w->name, "prefer"))) {
    uint32_t from = 0;
    if (word_is(w->name, "prefer")) {
      Node *x = a->count ? a->items[0] : NULL;
      Name n = x && x->kind == N_WORD && x->path.count == 1 ? x->path.items[0].name : NULL;
      if (!word_is(n, "save") && !word_is(n, "recompute")) {
        err(s, ERR_POLICY_WORD, x ? x->span : c->span, "`prefer` is followed by `save` or `recompute`");
        return;
      }
      from = 1;
    }
    if (a->count == from) {
      Diag *d = err(s, ERR_POLICY_WORD, c->span, "`%s` names what it is about", w->name);
      dg_help(&s->diags, d, "op classes or names of `let`s: `<%s matmul>`", from ? "prefer save" : w->name);
    }
    for (uint32_t i = from; i < a->count; i++) save_word(r, a->items[i]);
    return;
  }
  if (one && word_is(w->name, "budget")) {
    Node *x = a->count == 1 ? a->items[0] : NULL;
    if (x && !c->clause.is_set) x = NULL;
    if (x && x->kind != N_SIZE && x->kind != N_INT && (ast_is_expr(x) && x->kind != N_STRING && x->kind != N_FLOAT)) walk(r, x);
    else if (!x || (x->kind != N_SIZE && x->kind != N_INT && x->kind != N_WORD)) {
      Diag *d = err(s, ERR_POLICY_WORD, x ? x->span : c->span, "a budget is a number of bytes");
      dg_help(&s->diags, d, "`<budget = 1.5GiB>`");
    } else if (x->kind == N_WORD) {
      use_name(r, x->path.items[0].name, x->path.items[0].span);
    }
    return;
  }
  if (one && (word_is(w->name, "auto") || word_is(w->name, "reentrant"))) {
    clause_count(r, c, 0, ERR_POLICY_WORD, txt(s, "`checkpoint <%s> { .. }`", w->name));
    return;
  }
  if (one && (word_is(w->name, "binomial") || word_is(w->name, "every"))) {
    clause_count(r, c, 1, ERR_POLICY_WORD, txt(s, "`checkpoint <%s 10> for i in 0..n { .. }`", w->name));
    for (uint32_t i = 0; i < a->count; i++) {
      Node *x = a->items[i];
      if (x->kind == N_WORD) use_name(r, x->path.items[0].name, x->path.items[0].span);
      else if (ast_is_expr(x)) walk(r, x);
    }
    return;
  }
  const Global *g = NULL;
  Found f = lookup(r, w->name);
  if (f.kind == F_GLOBAL && f.global->kind == G_MODULE && c->clause.path.count == 2) {
    const Word *v = &c->clause.path.items[1];
    if (!(g = module_member(r, f.global->v.u.module, v->name, v->span))) return;
  } else if (f.kind == F_GLOBAL && one) {
    g = f.global;
  }
  if (g && g->kind == G_POLICY) {
    uint32_t want = g->decl->policy_decl.params.count;
    if (a->count != want) {
      Diag *d = err(s, ERR_POLICY_WORD, c->span, "the policy `%s` takes %u argument%s, not %u", g->name, want, plural(want), a->count);
      dg_label(&s->diags, d, g->decl->policy_decl.name.span, "declared here");
    }
    for (uint32_t i = 0; i < a->count; i++) {
      Node *x = a->items[i];
      if (x->kind == N_WORD) use_name(r, x->path.items[0].name, x->path.items[0].span);
      else if (ast_is_expr(x)) walk(r, x);
    }
    return;
  }
  if (g && g->kind == G_FN) return; /* a policy may be a function (rule 84) */
  if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER) return;
  Diag *d = err(s, ERR_POLICY_WORD, w->span, "no policy word or policy is called `%s`", path_text(r, &c->clause.path));
  Near b = near_start(w->name);
  for (size_t k = 0; k < sizeof policy_words / sizeof *policy_words; k++) consider(&b, policy_words[k]);
  for (size_t k = 0; k < r->m->global_count; k++)
    if (r->m->globals[k].kind == G_POLICY) consider(&b, r->m->globals[k].name);
  if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
  else if (is_class(w->name)) dg_help(&s->diags, d, "say what becomes of it: `<save %s>`", w->name);
  else dg_help(&s->diags, d, "words are save recompute prefer offload budget auto reentrant binomial every; `policy %s { save matmul }` declares one", w->name);
}

/* What a clause says of an op class or name: two of equal rank that disagree are an error (rule 82). */
static const char *stance(const Node *c, uint32_t *from) {
  Name w = c->clause.path.items[0].name;
  *from = 0;
  if (word_is(w, "save") || word_is(w, "recompute") || word_is(w, "offload")) return w;
  if (word_is(w, "prefer") && c->clause.args.count && c->clause.args.items[0]->kind == N_WORD) {
    *from = 1;
    return c->clause.args.items[0]->path.items[0].name;
  }
  return NULL;
}

static void walk_policy(Resolver *r, NodeList *cl, bool loop) {
  Session *s = r->s;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    walk_policy_clause(r, c, loop);
    uint32_t fi, fk;
    const char *a = stance(c, &fi);
    for (uint32_t k = 0; k < i && a; k++) {
      const char *b = stance(cl->items[k], &fk);
      if (!b || !strcmp(a, b)) continue;
      for (uint32_t x = fi; x < c->clause.args.count; x++)
        for (uint32_t y = fk; y < cl->items[k]->clause.args.count; y++) {
          Node *p = c->clause.args.items[x], *q = cl->items[k]->clause.args.items[y];
          if (p->kind != N_WORD || q->kind != N_WORD || strcmp(path_text(r, &p->path), path_text(r, &q->path))) continue;
          Diag *d = err(s, ERR_POLICY_TWICE, p->span, "the clauses disagree about `%s`: `%s` and `%s`", path_text(r, &p->path), b, a);
          dg_label(&s->diags, d, q->span, "`%s` here", b);
          dg_help(&s->diags, d, "name it in one clause");
        }
    }
  }
}

typedef struct Mode { const char *word; int args; const char *form; } Mode;

static const Mode modes[] = {
    {"no_grad", 0, "`wrap <no_grad> { .. }`"}, {"grad", 0, "`wrap <grad> { .. }`"},
    {"train", 0, "`wrap <train> { .. }`"}, {"eval", 0, "`wrap <eval> { .. }`"},
    {"bf16", 0, "`wrap <bf16> { .. }`"}, {"f16", 0, "`wrap <f16> { .. }`"}, {"tf32", 0, "`wrap <tf32> { .. }`"},
    {"anomaly", 0, "`wrap <anomaly> { .. }`"}, {"seed", 1, "`wrap <seed 7> { .. }`"},
    {"device", 1, "`wrap <device sim> { .. }`"}, {"backward", 1, "`wrap <backward plain> { .. }`"},
    {"profile", 1, "`wrap <profile \"name\"> { .. }`"}, {"opaque", 1, "`wrap <opaque \"name\"> { .. }`"},
    {"with_params", 2, "`wrap <with_params net tree> { .. }`"}};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

static const Mode *mode_find(const Node *c) {
  if (c->clause.path.count != 1) return NULL;
  for (size_t i = 0; i < MODE_COUNT; i++)
    if (!strcmp(modes[i].word, c->clause.path.items[0].name)) return &modes[i];
  return NULL;
}

static bool opposite(const char *a, const char *b) {
  static const char *const pairs[][2] = {{"grad", "no_grad"}, {"train", "eval"}, {"bf16", "f16"}, {"bf16", "tf32"}, {"f16", "tf32"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if ((!strcmp(a, pairs[i][0]) && !strcmp(b, pairs[i][1])) || (!strcmp(a, pairs[i][1]) && !strcmp(b, pairs[i][0]))) return true;
  return false;
}

static void clause_value(Resolver *r, Node *x) {
  if (x->kind == N_WORD) use_name(r, x->path.items[0].name, x->path.items[0].span);
  else if (ast_is_expr(x)) walk(r, x);
}

static void walk_mode(Resolver *r, Node *c, const Mode *m) {
  Session *s = r->s;
  NodeList *a = &c->clause.args;
  if ((int)a->count != m->args) {
    clause_count(r, c, (uint32_t)m->args, ERR_WRAP_ARG, m->form);
    return;
  }
  if (!strcmp(m->word, "device") || !strcmp(m->word, "backward")) {
    Node *x = a->items[0];
    const char *w = x->kind == N_WORD && x->path.count == 1 ? x->path.items[0].name
                    : x->kind == N_STRING ? ast_plain_text(x, &(uint32_t){0}) : NULL;
    static const char *const known[2][4] = {{"cpu", "sim", "cuda", NULL}, {"plain", "captured", NULL, NULL}};
    const char *const *k = known[!strcmp(m->word, "backward")];
    while (w && *k && strcmp(*k, w)) k++;
    if (!w || !*k) {
      Diag *d = err(s, ERR_WRAP_ARG, x->span, m->word[0] == 'd' ? "no device is called `%s`" : "`backward` is not `%s`", w ? w : "this");
      dg_help(&s->diags, d, "%s", m->word[0] == 'd' ? "devices are cpu, sim and cuda" : "`backward` takes `plain` or `captured`");
    }
    return;
  }
  for (uint32_t i = 0; i < a->count; i++) clause_value(r, a->items[i]);
  if ((!strcmp(m->word, "opaque") || !strcmp(m->word, "profile")) && a->items[0]->kind != N_STRING && a->items[0]->kind != N_WORD)
    err(s, ERR_WRAP_ARG, a->items[0]->span, "`%s` takes a name in quotes", m->word);
}

/* A wrap by a function. */
static void walk_user_wrap(Resolver *r, Node *c) {
  Session *s = r->s;
  const Word *w = &c->clause.path.items[0];
  Found f = lookup(r, w->name);
  const Global *g = f.kind == F_GLOBAL ? f.global : NULL;
  if (g && g->kind == G_MODULE && c->clause.path.count == 2) {
    if (!(g = module_member(r, g->v.u.module, c->clause.path.items[1].name, c->clause.path.items[1].span))) return;
  }
  if (f.kind == F_NONE || f.kind == F_DTYPE || (g && (g->kind == G_TYPE || g->kind == G_POLICY || g->kind == G_MODULE || g->kind == G_MODEL))) {
    Diag *d = err(s, ERR_WRAP_WORD, c->span, "no mode, and no function, is called `%s`", path_text(r, &c->clause.path));
    Near b = near_start(w->name);
    for (size_t i = 0; i < MODE_COUNT; i++) consider(&b, modes[i].word);
    for (size_t i = 0; i < r->m->global_count; i++)
      if (r->m->globals[i].kind == G_FN) consider(&b, r->m->globals[i].name);
    if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
    else dg_help(&s->diags, d, "modes are train eval no_grad grad bf16 f16 tf32 device seed anomaly profile opaque with_params backward");
  } else {
    if (f.kind != F_GLOBAL) use_found(r, &f, w->name, w->span);
    if (g && g->kind == G_FN && check_code_call(r, g, NULL, w->name, c->span)) {
      size_t want = 0;
      for (uint32_t i = 0; i < g->decl->fn->params.count; i++) want += !g->decl->fn->params.items[i]->param.init;
      if (want != c->clause.args.count + 1) {
        Diag *d = want ? err(s, ERR_WRAP_ARG, c->span, "`%s` takes %zu argument%s and the block, not %u", w->name, want - 1, plural(want - 1), c->clause.args.count)
                       : err(s, ERR_WRAP_ARG, c->span, "`%s` takes no block: its last argument must be a function", w->name);
        if (s->sources.items[g->decl->fn->header.file].path[0] != '<') dg_label(&s->diags, d, g->decl->fn->header, "declared here");
      }
    }
  }
  for (uint32_t i = 0; i < c->clause.args.count; i++) clause_value(r, c->clause.args.items[i]);
}

static void walk_wrap(Resolver *r, Node *e) {
  Session *s = r->s;
  NodeList *cl = &e->region.clauses;
  bool user = false;
  for (uint32_t i = 0; i < cl->count; i++) {
    Node *c = cl->items[i];
    Name w = c->clause.path.items[0].name;
    bool twice = false;
    for (uint32_t k = 0; k < i && !twice; k++) {
      Name o = cl->items[k]->clause.path.items[0].name;
      if (o == w || opposite(o, w)) {
        Diag *d = o == w ? err(s, ERR_WRAP_TWICE, c->span, "`%s` stands twice", w)
                         : err(s, ERR_WRAP_TWICE, c->span, "`%s` and `%s` exclude each other", o, w);
        dg_label(&s->diags, d, cl->items[k]->span, "first here");
        twice = true;
      }
    }
    if (twice) continue;
    const Mode *m = mode_find(c);
    if (m) {
      walk_mode(r, c, m);
      continue;
    }
    if (user) {
      Diag *d = err(s, ERR_WRAP_TWICE, c->span, "a `wrap` has one function");
      dg_help(&s->diags, d, "one inside the other: `wrap <f> { wrap <%s> { .. } }`", w);
      continue;
    }
    user = true;
    walk_user_wrap(r, c);
  }
  Place p;
  if (user) push_place(r, &p, P_WRAP, e, r->place->code);
  walk(r, e->region.body);
  if (user) r->place = p.up;
}

/* ---- types */

static bool is_class_word(Name n) {
  return word_is(n, "float") || word_is(n, "int") || word_is(n, "num");
}

static void walk_dim(Resolver *r, Node *d, bool binds) {
  Session *s = r->s;
  if (d->kind == N_FLOAT || d->kind == N_STRING || d->kind == N_BOOL) {
    err(s, ERR_WANT_INT, d->span, "a dim is an int or a name");
    return;
  }
  if (d->kind != N_NAME) {
    walk(r, d);
    return;
  }
  if (word_is(d->name, "_")) return;
  Found f = lookup(r, d->name);
  if (f.kind != F_NONE) {
    if (f.kind == F_BUILTIN || f.kind == F_DTYPE || (f.kind == F_GLOBAL && f.global->kind != G_VALUE)) {
      Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "`%s` is no dim here", d->name);
      if (f.kind == F_GLOBAL) dg_label(&s->diags, g, f.global->span, "declared here");
      return;
    }
    use_found(r, &f, d->name, d->span);
    return;
  }
  Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "the dim `%s` is not known here", d->name);
  const char *near = NULL;
  Near b = near_start(d->name);
  for (size_t i = r->bind_count; i > 0; i--)
    if (r->binds[i - 1].kind == B_DIM || r->binds[i - 1].kind == B_PARAM) consider(&b, r->binds[i - 1].name);
  if (r->model) near_member(&b, r->model);
  near = b.found;
  if (near) dg_help(&s->diags, g, "did you mean `%s`?", near);
  else if (binds && r->fn && r->place->kind == P_FN && r->fn->name.name)
    dg_help(&s->diags, g, "a dim of the signature is declared in brackets: `%s %s[%s](..)`", r->fn->is_proc ? "proc" : "fn", r->fn->name.name, d->name);
  else if (!binds && r->place->level == 0) dg_help(&s->diags, g, "in script a dim is an int that has a name, or `_`");
  else if (r->model && !r->method)
    dg_help(&s->diags, g, "a constructor argument may be a size: `model %s(%s: int)`", r->model->model.name.name, d->name);
  if (binds && r->place->level) { /* said once */
    Word w = {d->name, d->span, 0, NULL};
    bind_word(r, &w, B_DIM);
  }
}

static void unknown_type(Resolver *r, Name n, Span at) {
  Session *s = r->s;
  Found f = lookup(r, n);
  if (f.kind == F_LOCAL || f.kind == F_TOP || f.kind == F_MEMBER || f.kind == F_GLOBAL || f.kind == F_BUILTIN) {
    Diag *d = err(s, ERR_TYPE, at, "`%s` is not a type", n);
    Span w = f.kind == F_LOCAL ? f.bind->span : f.kind == F_TOP ? f.top->span : f.kind == F_MEMBER ? member_span(f.member) : f.kind == F_GLOBAL ? f.global->span : (Span){0};
    if (w.file) dg_label(&s->diags, d, w, "it is a value");
    return;
  }
  Diag *d = err(s, ERR_UNKNOWN_TYPE, at, "no type is called `%s`", n);
  const char *here = foreign(n), *near = here ? NULL : near_type(r, n);
  if (here && here[1] && (here[1] == 'f' || here[1] == 'i' || here[1] == 'u' || here[1] == 'b')) help_foreign(r, d, here);
  else if (near) dg_help(&s->diags, d, "did you mean `%s`?", near);
  else dg_help(&s->diags, d, "types are dtypes (f32, i64, ..), float, int, num, str, models and `type` declarations");
}

static void no_dims(Resolver *r, const Node *t, const char *what) {
  if (t->type_name.has_dims)
    err(r->s, ERR_TYPE, t->span, "%s has no dims", what);
}

static void walk_type_name(Resolver *r, Node *t, bool binds) {
  Session *s = r->s;
  const Words *p = &t->type_name.path;
  Name n = p->items[0].name;
  if (p->count > 1) {
    Found f = lookup(r, n);
    if (f.kind != F_GLOBAL || f.global->kind != G_MODULE || p->count > 2) {
      err(s, ERR_UNKNOWN_TYPE, t->span, "no type is called `%s`", path_text(r, p));
      return;
    }
    const Global *g = module_member(r, f.global->v.u.module, p->items[1].name, p->items[1].span);
    if (g && g->kind != G_MODEL && g->kind != G_TYPE) err(s, ERR_TYPE, t->span, "`%s` is not a type", path_text(r, p));
    return;
  }
  Span at = p->items[0].span;
  bool tensor = dtype_find(n) >= 0 || is_class_word(n);
  if (word_is(n, "params")) {
    if (t->type_name.dims.count != 1 || t->type_name.dims.items[0]->kind == N_PACK) {
      Diag *d = err(s, ERR_TYPE, t->span, "`params` is followed by a model or tracked tensor in brackets");
      dg_help(&s->diags, d, "`params[net]`");
      return;
    }
    walk(r, t->type_name.dims.items[0]);
    return;
  }
  if (!tensor) {
    if (word_is(n, "any") || word_is(n, "str") || word_is(n, "model") || word_is(n, "seq") || word_is(n, "none")) {
      no_dims(r, t, txt(s, "`%s`", n));
      return;
    }
    Global *g = find_bind(r, n) ? NULL : global_find(s, r->m, n);
    if (g && (g->kind == G_TYPE || g->kind == G_MODEL)) {
      no_dims(r, t, txt(s, "`%s`", n));
      return;
    }
    unknown_type(r, n, at);
    return;
  }
  uint32_t packs = 0;
  for (uint32_t i = 0; i < t->type_name.dims.count; i++) {
    Node *d = t->type_name.dims.items[i];
    if (d->kind != N_PACK) {
      walk_dim(r, d, binds);
      continue;
    }
    if (packs++) {
      Diag *g = err(s, ERR_TYPE, d->span, "a tensor type has at most one pack of dims");
      for (uint32_t k = 0; k < i; k++)
        if (t->type_name.dims.items[k]->kind == N_PACK) dg_label(&s->diags, g, t->type_name.dims.items[k]->span, "the first");
      continue;
    }
    if (!d->word.name) continue; /* any dims */
    Bind *b = find_bind(r, d->word.name);
    if (!b && binds) bind_word(r, &d->word, B_DIM);
    if (!b && !binds) {
      Diag *g = err(s, ERR_DIM_UNBOUND, d->span, "the pack `%s` is not bound: no parameter has it", d->word.name);
      dg_help(&s->diags, g, "a parameter binds it: `x: f32[...%s]`", d->word.name);
    }
  }
}

/* `binds`: the type of a parameter, whose packs are bound here. */
static void walk_type(Resolver *r, Node *t, bool binds) {
  if (!t || full(r)) return;
  switch ((NodeKind)t->kind) {
  case N_TYPE_NAME: walk_type_name(r, t, binds); break;
  case N_TYPE_LIST: walk_type(r, t->type_list, binds); break;
  case N_TYPE_TUPLE:
    for (uint32_t i = 0; i < t->list.count; i++) walk_type(r, t->list.items[i], binds);
    break;
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < t->list.count; i++) {
      Word *w = &t->list.items[i]->type_field.name;
      for (uint32_t k = 0; k < i; k++)
        if (t->list.items[k]->type_field.name.name == w->name) {
          Diag *d = err(r->s, ERR_TWICE, w->span, "the record has the field `%s` twice", w->name);
          dg_label(&r->s->diags, d, t->list.items[k]->type_field.name.span, "first here");
          break;
        }
      walk_type(r, t->list.items[i]->type_field.type, binds);
    }
    break;
  case N_TYPE_FN: {
    size_t base = r->bind_count; /* packs of a function's type are its own */
    for (uint32_t i = 0; i < t->type_fn.params.count; i++) {
      Node *p = t->type_fn.params.items[i];
      walk_type(r, p->kind == N_TYPE_FIELD ? p->type_field.type : p, true);
    }
    walk_type(r, t->type_fn.result, true);
    r->bind_count = base;
    break;
  }
  default: break;
  }
}

/* ---- functions */

static bool binds_dim(const Node *t, Name name) {
  if (!t) return false;
  if (t->kind == N_TYPE_NAME)
    for (uint32_t i = 0; i < t->type_name.dims.count; i++) {
      const Node *d = t->type_name.dims.items[i];
      if ((d->kind == N_NAME && d->name == name) || (d->kind == N_PACK && d->word.name == name)) return true;
    }
  if (t->kind == N_TYPE_TUPLE)
    for (uint32_t i = 0; i < t->list.count; i++)
      if (binds_dim(t->list.items[i], name)) return true;
  if (t->kind == N_TYPE_RECORD)
    for (uint32_t i = 0; i < t->list.count; i++)
      if (binds_dim(t->list.items[i]->type_field.type, name)) return true;
  return t->kind == N_TYPE_LIST && binds_dim(t->type_list, name);
}

static void duplicate(Resolver *r, const char *what, const Word *w, Span first) {
  Diag *d = err(r->s, ERR_TWICE, w->span, "the %s `%s` is declared twice", what, w->name);
  dg_label(&r->s->diags, d, first, "first here");
}

static void walk_params(Resolver *r, const NodeList *l, const char *what) {
  for (uint32_t i = 0; i < l->count; i++) { /* sizes may be used in types to their left */
    Word *w = &l->items[i]->param.name;
    bool twice = false;
    for (uint32_t k = 0; k < i && !twice; k++)
      if (l->items[k]->param.name.name == w->name && !word_is(w->name, "_")) {
        duplicate(r, what, w, l->items[k]->param.name.span);
        twice = true;
      }
    if (!twice) bind_word(r, w, B_PARAM);
  }
  for (uint32_t i = 0; i < l->count; i++) walk_type(r, l->items[i]->param.type, true);
  /* a default sees the parameters before it */
  for (uint32_t i = 0; i < l->count; i++) {
    if (!l->items[i]->param.init) continue;
    Name hidden[64];
    size_t at[64], n = 0;
    for (size_t k = 0; k < r->bind_count && n < 64; k++)
      for (uint32_t j = i; j < l->count; j++)
        if (r->binds[k].kind == B_PARAM && r->binds[k].place == r->place && r->binds[k].name == l->items[j]->param.name.name && n < 64) {
          at[n] = k;
          hidden[n++] = r->binds[k].name;
          r->binds[k].name = NULL;
        }
    walk(r, l->items[i]->param.init);
    for (size_t k = 0; k < n; k++) r->binds[at[k]].name = hidden[k];
  }
}

static bool any_typed(const Resolver *r, const Fn *f, Name name) {
  (void)r;
  for (uint32_t i = 0; i < f->params.count; i++) {
    const Node *t = f->params.items[i]->param.type;
    if (f->params.items[i]->param.name.name == name) return t && t->kind == N_TYPE_NAME && t->type_name.path.count == 1 && word_is(t->type_name.path.items[0].name, "any");
  }
  return false;
}

static void walk_fn(Resolver *r, Node *n, PlaceKind kind, bool code) {
  Session *s = r->s;
  Fn *f = n->fn;
  const Fn *outer = r->fn;
  size_t base = r->bind_count;
  Place p;
  push_place(r, &p, kind, n, code);
  r->fn = f;
  for (uint32_t i = 0; i < f->dims.count; i++) {
    Word *w = &f->dims.items[i];
    bool bound = false, twice = false;
    for (uint32_t k = 0; k < i && !twice; k++)
      if (f->dims.items[k].name == w->name) {
        duplicate(r, "dim", w, f->dims.items[k].span);
        twice = true;
      }
    if (twice) continue;
    for (uint32_t k = 0; k < f->params.count; k++)
      if (f->params.items[k]->param.name.name == w->name) {
        duplicate(r, "parameter", &f->params.items[k]->param.name, w->span);
        bound = true;
      }
    for (uint32_t k = 0; k < f->params.count && !bound; k++) bound = binds_dim(f->params.items[k]->param.type, w->name);
    bind_word(r, w, B_DIM);
    if (bound) continue;
    Diag *d = err(s, ERR_DIM_UNBOUND, w->span, "the dim `%s` is not bound: no parameter has it as a bare axis", w->name);
    dg_help(&s->diags, d, "write it as an axis of a parameter, `x: f32[%s]`, or make it an argument `%s: int`", w->name, w->name);
  }
  walk_params(r, &f->params, "parameter");
  walk_type(r, f->result, false);
  size_t inner = r->bind_count;
  walk(r, f->body);
  r->bind_count = inner;
  if (f->back_body) {
    if (f->is_proc) {
      Diag *d = err(s, ERR_BACKWARD, f->back_span, "a proc has no `backward`: it is never differentiated as a whole");
      dg_help(&s->diags, d, "declare it with `fn`");
    }
    Place q;
    push_place(r, &q, P_FN, n, true);
    Word out = {names_of(s->names, "out"), f->back_span, 0, NULL};
    bind_word(r, &out, B_OUT);
    for (uint32_t i = 0; i < f->back_params.count; i++) {
      bind_word(r, &f->back_params.items[i]->param.name, B_PARAM);
      walk_type(r, f->back_params.items[i]->param.type, false);
    }
    walk(r, f->back_body);
    r->place = q.up;
  }
  r->bind_count = base;
  r->fn = outer;
  r->place = p.up;
}

/* ---- statements and expressions */

static bool is_range(const Node *e) { return e->kind == N_BINARY && e->binary.op == AST_RANGE; }

/* What a `break`, `continue` or `return` would have to leave: NULL when it may. */
static void check_leave(Resolver *r, Node *st) {
  Session *s = r->s;
  bool ret = st->kind == N_RETURN;
  const char *w = ret ? "return" : st->kind == N_BREAK ? "break" : "continue";
  for (const Place *p = r->place; p; p = p->up)
    switch (p->kind) {
    case P_LOOP:
      if (!ret) return;
      break;
    case P_CHECKPOINT:
    case P_WRAP: {
      if (!ret && p->kind == P_CHECKPOINT && p->node->kind != N_CHECKPOINT) return;
      const char *what = p->kind == P_WRAP ? "the block of a `wrap` by a function" : "a `checkpoint` block";
      Diag *d = err(s, ret ? ERR_RETURN : ERR_BREAK, st->span, "`%s` cannot leave %s", w, what);
      Span at = p->node->span;
      at.hi = at.lo + (p->kind == P_WRAP ? 4 : 10);
      dg_label(&s->diags, d, at, "this one");
      dg_help(&s->diags, d, "let the block give a value, and decide after it");
      return;
    }
    case P_COMP:
      err(s, ret ? ERR_RETURN : ERR_BREAK, st->span, "`%s` cannot leave a comprehension", w);
      return;
    case P_FN:
    case P_LAMBDA:
      if (ret) return;
      err(s, ERR_BREAK, st->span, "`%s` stands in loops only", w);
      return;
    case P_TOP:
    case P_MODEL:
    case P_TEST:
      if (ret) err(s, ERR_RETURN, st->span, "`return` stands in functions only");
      else err(s, ERR_BREAK, st->span, "`%s` stands in loops only", w);
      return;
    }
}

/* Names that stand for a number for sure: `let n = 3`. */
static void assign_name(Resolver *r, Node *st, Node *root, bool whole) {
  Session *s = r->s;
  Name name = root->name;
  Found f = lookup(r, name);
  switch (f.kind) {
  case F_NONE: {
    if (word_is(name, "_")) {
      unknown_name(r, name, root->span);
      return;
    }
    Diag *d = err(s, ERR_UNKNOWN_NAME, root->span, "`%s` is not known here, so it cannot be assigned", name);
    const char *near = near_value(r, name);
    if (near && builtin_find(s, near)) near = NULL;
    if (near) dg_help(&s->diags, d, "did you mean `%s`? `var %s = ..` declares a new one", near, name);
    else dg_help(&s->diags, d, "`var %s = ..` declares it", name);
    return;
  }
  case F_LOCAL: {
    const Bind *b = f.bind;
    if (b->kind == B_VAR) {
      if (b->place->level < r->place->level) {
        Diag *d = err(s, ERR_CAPTURE_VAR, root->span, "a function cannot assign the local `var` `%s` of what encloses it", name);
        dg_label(&s->diags, d, b->span, "declared here");
        dg_help(&s->diags, d, "let the function give the new value as its result");
        return;
      }
      for (const Place *p = r->place; p && p != b->place; p = p->up)
        if (p->kind == P_COMP || p->kind == P_WRAP) {
          Diag *d = err(s, ERR_ASSIGN, root->span, p->kind == P_COMP ? "a comprehension cannot assign the outer `var` `%s`" : "the block of a `wrap` by a function cannot assign the outer `var` `%s`", name);
          dg_label(&s->diags, d, b->span, "declared here");
          dg_help(&s->diags, d, "%s", p->kind == P_COMP ? "a `for` loop may" : "let the block give the new value");
          return;
        }
      return;
    }
    if (b->kind == B_DIM || b->kind == B_FN || b->kind == B_OUT || (b->kind == B_LOOP && b->over_range)) {
      Diag *d = err(s, ERR_ASSIGN_LET, root->span, "`%s` is a %s and cannot be assigned", name, b->kind == B_OUT ? "result" : what_binds(b->kind));
      dg_label(&s->diags, d, b->span, "declared here");
      dg_help(&s->diags, d, "copy it to a `var`: `var now = %s`", name);
    }
    return;
  }
  case F_MEMBER: {
    const Node *m = f.member;
    if (m->kind == N_FIELD) return;
    if (m->kind == N_FN) {
      err(s, ERR_ASSIGN, root->span, "`%s` is a method and cannot be assigned", name);
      return;
    }
    if (!whole) return;
    Diag *d = err(s, ERR_ASSIGN_LET, root->span, "`%s` is a %s of `%s` and stays as it is", name, m->kind == N_PARAM ? "constructor argument" : "`let`", r->model->model.name.name);
    dg_label(&s->diags, d, member_span(m), "declared here");
    dg_help(&s->diags, d, "a value that changes is a `buffer`");
    return;
  }
  case F_TOP: {
    bool named = false;
    for (const Place *p = r->place; p; p = p->up) named |= p->kind == P_FN;
    if (f.top->is_var && named && r->place->code) {
      Diag *d = err(s, ERR_CODE_VAR, root->span, "code cannot assign the top-level `var` `%s`", name);
      dg_label(&s->diags, d, f.top->span, "declared here");
      dg_help(&s->diags, d, "give the new value as a result, or keep it in a buffer");
      return;
    }
    use_found(r, &f, name, root->span);
    return;
  }
  case F_GLOBAL:
    if (f.global->kind == G_VALUE) return;
    {
      Diag *d = err(s, ERR_ASSIGN, root->span, "`%s` is a declaration and cannot be assigned", name);
      if (s->sources.items[f.global->span.file].path[0] != '<') dg_label(&s->diags, d, f.global->span, "declared here");
      dg_help(&s->diags, d, "`var` with another name makes a variable");
    }
    return;
  case F_BUILTIN:
  case F_DTYPE: {
    Diag *d = err(s, ERR_ASSIGN, root->span, "`%s` is built in and cannot be assigned", name);
    if (!is_fixed(name)) dg_help(&s->diags, d, "`var %s = ..` declares a variable of that name", name);
    return;
  }
  }
  (void)st;
}

static void walk_assign(Resolver *r, Node *st) {
  walk(r, st->assign.value);
  Node *t = st->assign.target, *root = t;
  bool dotted = false;
  while (root->kind == N_DOT || root->kind == N_INDEX || root->kind == N_ITEM) {
    if (root->kind == N_DOT) dotted = true;
    if (root->kind == N_INDEX)
      for (uint32_t i = 0; i < root->index.items.count; i++) walk(r, root->index.items.items[i]);
    root = root->kind == N_DOT ? root->dot.object : root->kind == N_INDEX ? root->index.object : root->item.object;
  }
  if (t->kind == N_DOT && t->dot.object->kind == N_SELF && r->model) {
    Node *m = model_member(r->model, t->dot.name.name, UINT32_MAX);
    if (m && (m->kind == N_PARAM || m->kind == N_LET)) {
      Diag *d = err(r->s, ERR_ASSIGN_LET, t->dot.name.span, "`%s` is a %s of `%s` and stays as it is", t->dot.name.name, m->kind == N_PARAM ? "constructor argument" : "`let`", r->model->model.name.name);
      dg_label(&r->s->diags, d, member_span(m), "declared here");
      dg_help(&r->s->diags, d, "a value that changes is a `buffer`");
      return;
    }
  }
  if (root->kind == N_NAME && !dotted) assign_name(r, st, root, t == root);
  else walk(r, t);
}

static void walk_block(Resolver *r, Node *b) {
  size_t base = r->bind_count;
  for (uint32_t i = 0; i < b->list.count && !full(r); i++) walk(r, b->list.items[i]);
  r->bind_count = base;
}

/* The numbers of a range are not taken apart. */
static void check_range_pat(Resolver *r, const Node *f) {
  if (!f->loop.pat || !f->loop.iter || !is_range(f->loop.iter)) return;
  if (f->loop.pat->kind != N_PAT_TUPLE && f->loop.pat->kind != N_PAT_RECORD) return;
  Diag *d = err(r->s, ERR_PATTERN, f->loop.pat->span, "a range gives ints, which are not taken apart");
  dg_label(&r->s->diags, d, f->loop.iter->span, "the range");
  dg_help(&r->s->diags, d, "two ranges are two loops; `enumerate(xs)` gives pairs of number and element");
}

static void walk_loop(Resolver *r, Node *st) {
  size_t base = r->bind_count;
  Place c, p;
  if (st->loop.is_checkpoint) walk_policy(r, &st->loop.clauses, true);
  if (st->loop.iter) walk(r, st->loop.iter);
  bool code = r->place->code || st->loop.is_checkpoint;
  if (st->loop.is_checkpoint) push_place(r, &c, P_CHECKPOINT, st, code);
  push_place(r, &p, P_LOOP, st, code);
  if (st->loop.cond) walk(r, st->loop.cond);
  check_range_pat(r, st);
  if (st->loop.pat) bind_pat(r, st->loop.pat, B_LOOP, is_range(st->loop.iter), r->bind_count);
  walk(r, st->loop.body);
  r->place = st->loop.is_checkpoint ? c.up : p.up;
  r->bind_count = base;
}

static void walk_comp(Resolver *r, Node *e) {
  size_t base = r->bind_count;
  Place p;
  push_place(r, &p, P_COMP, e, r->place->code);
  for (uint32_t i = 0; i < e->comp.fors.count; i++) {
    Node *f = e->comp.fors.items[i];
    walk(r, f->loop.iter);
    check_range_pat(r, f);
    bind_pat(r, f->loop.pat, B_LOOP, is_range(f->loop.iter), r->bind_count);
  }
  walk(r, e->comp.value);
  r->place = p.up;
  r->bind_count = base;
}

static void walk_dot(Resolver *r, Node *e) {
  Session *s = r->s;
  Name f = e->dot.name.name;
  const Module *m = module_named(r, e->dot.object);
  if (m) {
    const Global *g = module_member(r, m, f, e->dot.name.span);
    if (g && g->kind == G_TYPE) err(s, ERR_NOT_VALUE, e->span, "`%s` is a type, not a value", f);
    return;
  }
  walk(r, e->dot.object);
  if (e->dot.object->kind == N_SELF && r->model && !model_member(r->model, f, UINT32_MAX)) {
    Diag *d = err(s, ERR_NO_FIELD, e->dot.name.span, "`%s` has no field `%s`", r->model->model.name.name, f);
    Near b = near_start(f);
    near_member(&b, r->model);
    if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
  }
}

static bool is_any(Resolver *r, const Node *x) {
  if (x->kind != N_NAME || !r->fn || !r->place->code) return false;
  Bind *b = find_bind(r, x->name);
  return b && b->kind == B_PARAM && any_typed(r, r->fn, x->name);
}

static void check_any(Resolver *r, const Node *x, const char *how) {
  if (!is_any(r, x)) return;
  Diag *d = err(r->s, ERR_OPERAND, x->span, "`%s` is `any`: code cannot %s a value of which it knows nothing", x->name, how);
  dg_label(&r->s->diags, d, find_bind(r, x->name)->span, "declared here");
  dg_help(&r->s->diags, d, "give it a type, such as `%s: float[...S]`, or none at all", x->name);
}

static void walk_self(Resolver *r, const Node *e) {
  if (r->model) return;
  Diag *d = err(r->s, ERR_SELF, e->span, "`self` stands in methods only");
  dg_help(&r->s->diags, d, "a function takes the instance as a parameter: `fn f(net: model, ..)`");
}

static void visit(void *ud, Node *n) { walk(ud, n); }

static void walk(Resolver *r, Node *n) {
  if (!n || full(r)) return;
  Session *s = r->s;
  switch ((NodeKind)n->kind) {
  case N_NAME: use_name(r, n->name, n->span); break;
  case N_SELF: walk_self(r, n); break;
  case N_STRING:
    for (uint32_t i = 0; i < n->string.count; i++) walk(r, n->string.items[i].hole);
    break;
  case N_CALL: walk_call(r, n, false); break;
  case N_DOT: walk_dot(r, n); break;
  case N_BINARY:
    if (n->binary.op != AST_EQ && n->binary.op != AST_NE) {
      check_any(r, n->binary.left, "operate on");
      check_any(r, n->binary.right, "operate on");
    }
    walk(r, n->binary.left);
    walk(r, n->binary.right);
    break;
  case N_INDEX:
    check_any(r, n->index.object, "index");
    if (n->index.object->kind == N_NAME && lookup(r, n->index.object->name).kind == F_DTYPE) {
      Diag *d = err(s, ERR_NOT_VALUE, n->span, "`%s` is a type, not a value", source_text(s, n->span, n->index.object->name));
      dg_help(&s->diags, d, "`zeros([3], dtype = %s)` makes a tensor, `%s([1, 2])` too", n->index.object->name, n->index.object->name);
      break;
    }
    ast_children(n, visit, r);
    break;
  case N_RECORD:
    for (uint32_t i = 0; i < n->list.count; i++) {
      Word *w = &n->list.items[i]->arg.name;
      for (uint32_t k = 0; k < i; k++)
        if (n->list.items[k]->arg.name.name == w->name) {
          Diag *d = err(s, ERR_TWICE, w->span, "the record has the field `%s` twice", w->name);
          dg_label(&s->diags, d, n->list.items[k]->arg.name.span, "first here");
          break;
        }
      walk(r, n->list.items[i]->arg.value);
    }
    break;
  case N_BLOCK: walk_block(r, n); break;
  case N_COMP: walk_comp(r, n); break;
  case N_LAMBDA: walk_fn(r, n, P_LAMBDA, r->place->code); break;
  case N_CHECKPOINT: {
    walk_policy(r, &n->region.clauses, false);
    Place p;
    push_place(r, &p, P_CHECKPOINT, n, true);
    walk(r, n->region.body);
    r->place = p.up;
    break;
  }
  case N_WRAP: walk_wrap(r, n); break;
  case N_LET: {
    walk(r, n->let.init);
    walk_type(r, n->let.type, false);
    if (r->place->kind == P_TOP && !r->place->up && r->bind_count == 0 && n->info == NULL) {
      /* a variable of the file: collected beforehand */
    }
    bind_pat(r, n->let.pat, n->let.is_var ? B_VAR : B_LET, false, r->bind_count);
    break;
  }
  case N_ASSIGN: walk_assign(r, n); break;
  case N_EXPR_STMT: walk(r, n->expr); break;
  case N_FOR:
  case N_WHILE: walk_loop(r, n); break;
  case N_RETURN:
    check_leave(r, n);
    walk(r, n->expr);
    break;
  case N_BREAK:
  case N_CONTINUE: check_leave(r, n); break;
  case N_ASSERT: walk(r, n->expr); break;
  case N_FN:
    walk_fn(r, n, P_FN, !n->fn->is_proc);
    bind_word(r, &n->fn->name, B_FN);
    break;
  case N_BAD: break;
  default: ast_children(n, visit, r); break;
  }
}

/* ---- items of the file */

static void collect_pat(Resolver *r, const Node *p, uint32_t item, bool is_var) {
  if (p->kind == N_PAT_NAME) {
    TopName t = {p->word.name, p->span, item, is_var};
    VEC_PUSH(&r->s->scratch, r->tops, r->top_count, r->top_cap, t);
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) collect_pat(r, p->list.items[i], item, is_var);
}

static void top_pattern(Resolver *r, const Node *p) {
  if (p->kind == N_PAT_NAME) {
    if (!may_bind(r, &p->word, B_LET)) return;
    Global *g = global_find(r->s, r->m, p->word.name);
    if (g && g->kind != G_VALUE && g->span.file == p->span.file) {
      Diag *d = err(r->s, ERR_REDECLARE, p->span, "`%s` is declared twice in this file", p->word.name);
      dg_label(&r->s->diags, d, g->span, "first here");
    }
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) top_pattern(r, p->list.items[i]);
}

static void walk_top_let(Resolver *r, Node *n) {
  walk(r, n->let.init);
  walk_type(r, n->let.type, false);
  top_pattern(r, n->let.pat);
  size_t base = r->bind_count; /* finds a name twice in one pattern */
  if (n->let.pat->kind != N_PAT_NAME) bind_pat(r, n->let.pat, B_LET, false, base);
  r->bind_count = base;
}

/* Params are float tensors; a buffer may also be a number, or a tree like the params of a model. */
static void walk_field_type(Resolver *r, Node *m) {
  Session *s = r->s;
  Node *t = m->field.type;
  size_t before = s->diags.errors;
  walk_type(r, t, false);
  if (!t || s->diags.errors > before) return;
  for (int i = 0; i < 16 && t->kind == N_TYPE_NAME && t->type_name.path.count == 1; i++) {
    Global *g = global_find(s, r->m, t->type_name.path.items[0].name);
    if (!g || g->kind != G_TYPE || dtype_find(t->type_name.path.items[0].name) >= 0) break;
    t = g->decl->type_decl.type;
  }
  Name n = t->kind == N_TYPE_NAME && t->type_name.path.count == 1 ? t->type_name.path.items[0].name : NULL;
  int dt = n ? dtype_find(n) : -1;
  bool is_float = dt >= 0 ? dt_float((DType)dt) : word_is(n, "float");
  bool fits = m->field.is_buffer ? dt >= 0 || is_class_word(n) || word_is(n, "params") || t->kind == N_TYPE_TUPLE || t->kind == N_TYPE_RECORD : is_float;
  if (fits) return;
  Diag *d = err(s, ERR_INIT, m->field.type->span, m->field.is_buffer ? "a buffer is a tensor, a number or `params[..]`" : "a param is a float tensor");
  dg_help(&s->diags, d, dt >= 0 || is_class_word(n) ? "state that is not trained is a `buffer`" : "what stays as it is, is a `let` or a constructor argument");
}

static void walk_model(Resolver *r, Node *n) {
  Session *s = r->s;
  const NodeList *p = &n->model.params, *l = &n->model.members;
  size_t base = r->bind_count, before;
  Place place;
  push_place(r, &place, P_MODEL, n, false);
  before = s->diags.errors;
  for (uint32_t i = 0; i < l->count; i++) {
    Name a = member_name(l->items[i]);
    if (!a) continue;
    Word w = {a, member_span(l->items[i]), 0, NULL};
    if (is_fixed(a)) err(s, ERR_REDECLARE, w.span, "`%s` is built in and cannot be declared again", a);
    for (uint32_t k = 0; k < p->count; k++)
      if (member_name(p->items[k]) == a) {
        Diag *d = err(s, ERR_TWICE, w.span, "`%s` is a constructor argument, and so a field already", a);
        dg_label(&s->diags, d, p->items[k]->span, "first here");
      }
    for (uint32_t k = 0; k < i; k++)
      if (member_name(l->items[k]) == a) {
        duplicate(r, "member", &w, member_span(l->items[k]));
        break;
      }
  }
  walk_params(r, p, "constructor argument");
  r->bind_count = base;
  r->model = n;
  for (uint32_t i = 0; i < l->count && !full(r); i++) {
    Node *m = l->items[i];
    r->members = i;
    r->method = false;
    if (m->kind == N_FIELD) {
      walk_field_type(r, m);
      if (m->field.init && m->field.init->kind == N_CALL) walk_call(r, m->field.init, true);
      else walk(r, m->field.init);
    } else if (m->kind == N_LET) {
      walk(r, m->let.init);
      walk_type(r, m->let.type, false);
    } else if (m->kind == N_ASSERT) {
      walk(r, m->expr);
    }
  }
  if (s->diags.errors > before) n->flags |= ITEM_BAD;
  r->members = UINT32_MAX;
  r->method = true;
  for (uint32_t i = 0; i < l->count && !full(r); i++) {
    if (l->items[i]->kind != N_FN) continue;
    size_t e = s->diags.errors;
    walk_fn(r, l->items[i], P_FN, !l->items[i]->fn->is_proc);
    if (s->diags.errors > e) l->items[i]->flags |= ITEM_BAD;
  }
  r->method = false;
  r->model = NULL;
  r->members = 0;
  r->bind_count = base;
  r->place = place.up;
}

/* A type that holds itself (rule 39). */
static bool mentions_type(Resolver *r, const Node *t, Name name, int depth) {
  if (!t || depth > 64) return false;
  switch ((NodeKind)t->kind) {
  case N_TYPE_NAME: {
    if (t->type_name.path.count != 1) return false;
    Name n = t->type_name.path.items[0].name;
    if (n == name) return true;
    Global *g = global_find(r->s, r->m, n);
    return g && g->kind == G_TYPE && g->module == r->m && mentions_type(r, g->decl->type_decl.type, name, depth + 1);
  }
  case N_TYPE_LIST: return mentions_type(r, t->type_list, name, depth + 1);
  case N_TYPE_TUPLE:
    for (uint32_t i = 0; i < t->list.count; i++)
      if (mentions_type(r, t->list.items[i], name, depth + 1)) return true;
    return false;
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < t->list.count; i++)
      if (mentions_type(r, t->list.items[i]->type_field.type, name, depth + 1)) return true;
    return false;
  case N_TYPE_FN:
    for (uint32_t i = 0; i < t->type_fn.params.count; i++) {
      const Node *p = t->type_fn.params.items[i];
      if (mentions_type(r, p->kind == N_TYPE_FIELD ? p->type_field.type : p, name, depth + 1)) return true;
    }
    return mentions_type(r, t->type_fn.result, name, depth + 1);
  default: return false;
  }
}

static void walk_type_decl(Resolver *r, Node *n) {
  Word *w = &n->type_decl.name;
  if (mentions_type(r, n->type_decl.type, w->name, 0)) {
    Diag *d = err(r->s, ERR_TYPE, w->span, "the type `%s` contains itself", w->name);
    dg_help(&r->s->diags, d, "a list of values keeps parts of varying number; a model refers to others by reference");
    return;
  }
  walk_type(r, n->type_decl.type, false);
}

static void walk_policy_decl(Resolver *r, Node *n) {
  size_t base = r->bind_count;
  Place p;
  push_place(r, &p, P_FN, n, false);
  for (uint32_t i = 0; i < n->policy_decl.params.count; i++) {
    Node *x = n->policy_decl.params.items[i];
    bind_word(r, &x->param.name, B_PARAM);
    walk_type(r, x->param.type, false);
    walk(r, x->param.init);
  }
  walk_policy(r, &n->policy_decl.clauses, false);
  r->place = p.up;
  r->bind_count = base;
}

static void walk_item(Resolver *r, Node *n) {
  Place p;
  switch ((NodeKind)n->kind) {
  case N_USE: break;
  case N_FN: walk_fn(r, n, P_FN, !n->fn->is_proc); break;
  case N_MODEL: walk_model(r, n); break;
  case N_TYPE_DECL: walk_type_decl(r, n); break;
  case N_POLICY_DECL: walk_policy_decl(r, n); break;
  case N_TEST:
    push_place(r, &p, P_TEST, n, false);
    walk(r, n->test.body);
    r->place = p.up;
    break;
  case N_LET: walk_top_let(r, n); break;
  default: walk(r, n); break;
  }
}

bool resolve_module(Session *s, Module *m) {
  size_t start = s->diags.errors;
  if (!m->ast) return true;
  Resolver r = {.s = s, .m = m};
  Place top;
  push_place(&r, &top, P_TOP, m->ast, false);
  NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i]->kind == N_LET) collect_pat(&r, l->items[i]->let.pat, i, l->items[i]->let.is_var);
  for (uint32_t i = 0; i < l->count && !full(&r); i++) {
    size_t before = s->diags.errors;
    r.item = i;
    r.bind_count = 0;
    walk_item(&r, l->items[i]);
    if (s->diags.errors > before && l->items[i]->kind != N_MODEL) l->items[i]->flags |= ITEM_BAD;
  }
  return s->diags.errors == start;
}
