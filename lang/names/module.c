/* Modules: files and the embedded library, their declarations, `use` (rules 1, 5, 6, 99).
 *
 * In: a tree. Out: a table of globals: declarations first (visible in the whole file), constants of
 * rule 6 with their values, names brought by `use` marked with their home module. Top-level
 * variables get a slot that is set when their statement runs. This file also gives every call of
 * the source its random site (rule 92): a hash of module, item and ordinal, so that comments and
 * moved lines change nothing.
 */
#include <string.h>
#include <unistd.h>

#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/eval/eval.h"
#include "lang/eval/model.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "parser/parse.h"
#include "runtime/file.h"
#include "stdlib/embed.h"

static void module_declare(Session *s, Module *m);

static const char *use_chain(Session *s, const Module *from);

/* ---- sites */

typedef struct Numbering {
  Session *s;
  uint64_t hash;
  Table *seen; /* calls by the name of what they call */
} Numbering;

static uint64_t mix(uint64_t h, const char *t) {
  for (; t && *t; t++) h = (h ^ (unsigned char)*t) * UINT64_C(1099511628211);
  return (h ^ 255) * UINT64_C(1099511628211);
}

/* A call is counted among those of the same name: a new `args(..)` or `print(..)` moves no draw. */
static uint64_t site_id(Numbering *k, const Node *callee) {
  Name name = callee->kind == N_NAME  ? callee->name
              : callee->kind == N_DOT ? callee->dot.name.name
                                      : "";
  ptrdiff_t before = table_get(k->seen, table_key(name));
  uint64_t nth = before == TABLE_NONE ? 1 : (uint64_t)before + 1;
  table_set(k->seen, table_key(name), nth);
  uint64_t h = mix(k->hash, name) ^ (nth * UINT64_C(0x9e3779b97f4a7c15));
  h ^= h >> 31;
  return h ? h : 1;
}

static void number_calls(void *ud, Node *n) {
  stack_check();
  Numbering *k = ud;
  if (!n) return;
  if (n->kind == N_CALL) {
    uint64_t *id = ARENA_NEW(src_arena(&k->s->sources, n->span.file), uint64_t);
    *id = site_id(k, n->call.callee);
    n->info = id;
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) number_calls(ud, n->string.items[i].hole);
  else
    ast_children(n, number_calls, ud);
}

/* The name of a file without its folders, so that the spelling of a program's path changes no
 * random number. */
static const char *site_home(const Module *m) {
  const char *slash = strrchr(m->name, '/');
  return slash ? slash + 1 : m->name;
}

static void number_item(Session *s, Module *m, const char *a, const char *b, Node *item,
                        Table *seen) {
  Table own = {.arena = &s->scratch};
  uint64_t h = mix(mix(mix(UINT64_C(14695981039346656037), site_home(m)), a), b);
  Numbering k = {s, h, seen ? seen : &own};
  number_calls(&k, item);
}

static void module_sites(Session *s, Module *m, Node *item) {
  switch ((NodeKind)item->kind) {
  case N_FN: number_item(s, m, item->fn->name.name, NULL, item, NULL); break;
  case N_MODEL:
    for (uint32_t i = 0; i < item->model.members.count; i++) {
      Node *x = item->model.members.items[i];
      Name n = x->kind == N_FN                                      ? x->fn->name.name
               : x->kind == N_FIELD                                 ? x->field.name.name
               : x->kind == N_LET && x->let.pat->kind == N_PAT_NAME ? x->let.pat->word.name
                                                                    : "assert";
      number_item(s, m, item->model.name.name, n, x, NULL);
    }
    break;
  case N_TEST:
    number_item(s, m, "test", ast_plain_text(item->test.title, &(uint32_t){0}), item, NULL);
    break;
  default: number_item(s, m, "", NULL, item, &m->top_calls); break;
  }
}

/* ---- globals */

Global *global_own(const Module *m, Name name) {
  ptrdiff_t i = table_get(&m->by_name, table_key(name));
  return i == TABLE_NONE ? NULL : &m->globals[i];
}

Global *global_find(Session *s, Module *m, Name name) {
  Global *g = global_own(m, name);
  if (!g && m != s->prelude) g = global_own(s->prelude, name);
  return g ? g : shelf_find(s, name);
}

/* Messages show where a name was declared last. */
static void stands_at(Session *s, Global *g, Span at) {
  src_hold(&s->sources, at.file);
  src_drop(&s->sources, g->span.file);
  g->span = at;
}

static Global *add_global(Session *s, Module *m, Name name, Span at) {
  Global g = {.name = name, .module = m, .v = v_unit()};
  m->by_name.arena = &s->perm;
  VEC_PUSH(&s->perm, m->globals, m->global_count, m->global_cap, g);
  table_set(&m->by_name, table_key(name), m->global_count - 1);
  stands_at(s, &m->globals[m->global_count - 1], at);
  return &m->globals[m->global_count - 1];
}

bool module_name_is_fixed(const char *n) {
  return !strcmp(n, "none") || !strcmp(n, "inf") || !strcmp(n, "nan") || !strcmp(n, "pi") ||
         dtype_find(n) >= 0;
}

static void want_free(Session *s, Name name, Span at) {
  if (module_name_is_fixed(name))
    fail_at(s, ERR_REDECLARE, at, "`%s` is built in and cannot be declared again", name);
}

Global *global_set(Session *s, Module *m, Name name, Value v, bool is_var, Span at) {
  want_free(s, name, at);
  Global *g = global_own(m, name);
  if (!g) g = add_global(s, m, name, at);
  if (g->kind != G_VALUE) g->decl = NULL; /* the variable replaces a declaration */
  g->kind = G_VALUE;
  value_set(&g->v, v);
  g->is_var = is_var;
  g->is_set = true;
  stands_at(s, g, at);
  return g;
}

/* The error that name `w` is declared again, where it means g already; `use`: by a `use`. */
static _Noreturn void stands_twice(Session *s, const Module *m, const Global *g, const Word *w,
                                   bool use) {
  bool used = g->module != m || g->kind == G_MODULE;
  Diag *d = fail_report(s, ERR_REDECLARE, w->span,
                        used && use   ? "`%s` is brought by `use` twice"
                        : used != use ? "`%s` is brought by `use` and declared too"
                                      : "`%s` is declared twice in this file",
                        w->name);
  dg_label(&s->diags, d, g->span, "first here");
  fail_raise(s);
}

/* Adds a declaration, or a name that a `use` brings. At the REPL it replaces an older one; in a
 * file a name may be declared only once. */
static Global *declare(Session *s, Module *m, const Word *w, bool use, bool repl) {
  want_free(s, w->name, w->span);
  Global *g = global_own(m, w->name);
  if (g && !repl) stands_twice(s, m, g, w, use);
  if (!g) g = add_global(s, m, w->name, w->span);
  if (g->kind == G_MODEL && g->v.tag == V_MODEL) g->v.u.model->old = true;
  value_set(&g->v, v_unit());
  stands_at(s, g, w->span);
  g->decl = NULL;
  g->module = m;
  g->is_var = g->is_const = g->is_set = false;
  return g;
}

static bool constant_expr(Session *s, Module *m, const Node *e) {
  stack_check();
  switch ((NodeKind)e->kind) {
  case N_INT:
  case N_FLOAT:
  case N_SIZE:
  case N_BOOL: return true;
  case N_STRING: {
    uint32_t n;
    return ast_plain_text(e, &n) != NULL;
  }
  case N_NAME: {
    Global *g = global_own(m, e->name);
    return (g && g->kind == G_VALUE && g->is_const) || module_name_is_fixed(e->name);
  }
  case N_UNARY: return constant_expr(s, m, e->unary.operand);
  case N_BINARY:
    return e->binary.op != AST_RANGE && e->binary.op != AST_MATMUL &&
           constant_expr(s, m, e->binary.left) && constant_expr(s, m, e->binary.right);
  default: return false;
  }
}

/* ---- loading */

static Module *module_new(Session *s, const char *name, const char *path, const char *text,
                          size_t n) {
  Module *m = ARENA_NEW(&s->perm, Module);
  m->name = names_of(s->names, name);
  m->path = path ? arena_strdup(&s->perm, path, strlen(path)) : NULL;
  m->file = src_add(&s->sources, path ? path : fail_text(s, "<%s>", name), text, n);
  VEC_PUSH(&s->perm, s->modules, s->module_count, s->module_cap, m);
  return m;
}

static void parse_module(Session *s, Module *m) {
  ParseContext c = {&s->perm, s->names, &s->sources, &s->diags};
  size_t before = s->diags.errors;
  m->ast = parse_file(&c, m->file);
  if (s->diags.errors > before) {
    s->module_count -= s->module_count && s->modules[s->module_count - 1] == m;
    dg_throw(&s->diags);
  }
}

static Module *module_at(Session *s, const char *real) {
  for (size_t i = 0; i < s->module_count; i++)
    if (s->modules[i]->path && !strcmp(s->modules[i]->real, real)) return s->modules[i];
  return NULL;
}

/* A file is loaded once, however its path is spelled; messages show the first spelling. */
Module *module_load_file(Session *s, const Door *door, const char *path, Span at) {
  stack_check();
  Err e = {.text = ""};
  Reached r;
  size_t n;
  if (!door_reach(door, path, false, &r, &e)) fail_file(s, at, &e);
  Module *m = module_at(s, r.path);
  char *text = m ? NULL : file_read_reached(&s->mem, &r, path, &n, &e);
  door_leave(&r);
  if (m && m->loading) fail_at(s, ERR_USE_CYCLE, at, "`use` goes in a circle: %s", use_chain(s, m));
  if (m) return m;
  if (!text) fail_file(s, at, &e);
  log_line(s, LOG_LOAD, "%s", path);
  const char *keep = value_pool_text(s, text, n); /* freed with the pool, also after an error */
  m = module_new(s, path, path, keep, n);
  m->real = arena_strdup(&s->perm, r.path, strlen(r.path));
  parse_module(s, m);
  m->loading = true;
  module_declare(s, m);
  m->loading = false;
  return m;
}

typedef struct LibraryJob {
  Session *s;
  const StdFile *f;
  Module *m;
} LibraryJob;

static void library_job(void *ud) {
  LibraryJob *j = ud;
  log_line(j->s, LOG_LOAD, "%s", j->f->name);
  j->m = module_new(j->s, j->f->name, NULL, j->f->text, j->f->size);
  j->m->library = j->f;
  j->m->loading = true;
  parse_module(j->s, j->m);
  module_declare(j->s, j->m);
}

/* A name may be met, and its file be read, in the middle of anything; what failed half way, for
 * want of memory, is read anew the next time. */
static Module *library_file(Session *s, const StdFile *f) {
  LibraryJob j = {s, f, NULL};
  int code = api_guard(s, library_job, &j);
  if (j.m) j.m->loading = false;
  if (code == MEM_OK) return j.m;
  if (j.m) j.m->library = NULL;
  mem_throw(&s->mem, code);
}

static Module *library_loaded(Session *s, const StdFile *f) {
  for (size_t i = 0; i < s->module_count; i++)
    if (s->modules[i]->library == f) return s->modules[i];
  return NULL;
}

static Module *module_embedded(Session *s, const char *name, Span at) {
  const StdFile *f = std_files;
  while (f->name && (f->shelf || strcmp(f->name, name) != 0)) f++;
  if (!f->name) return NULL;
  Module *m = library_loaded(s, f);
  if (m && m->loading) fail_at(s, ERR_USE_CYCLE, at, "`use` goes in a circle: %s", use_chain(s, m));
  return m ? m : library_file(s, f);
}

/* ---- the shelf */

void shelf_start(Session *s) {
  s->shelf = (Table){.arena = &s->perm};
  for (size_t i = 0; i < std_name_count; i++)
    table_set(&s->shelf, table_key(names_of(s->names, std_names[i].name)), std_names[i].file);
  s->prelude = module_new(s, "prelude", NULL, "", 0);
  s->prelude->declared = true;
}

Global *shelf_find(Session *s, Name name) {
  ptrdiff_t file = table_get(&s->shelf, table_key(name));
  if (file == TABLE_NONE) return NULL;
  Module *m = library_loaded(s, &std_files[file]);
  return global_own(m ? m : library_file(s, &std_files[file]), name);
}

static const char *use_chain(Session *s, const Module *from) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  bool on = false;
  for (size_t i = 0; i < s->module_count; i++) {
    if (s->modules[i] == from) on = true;
    if (on && s->modules[i]->loading) buf_printf(&b, "`%s` uses ", s->modules[i]->name);
  }
  buf_printf(&b, "`%s`", from->name);
  return b.s;
}

static Module *used_module(Session *s, Module *m, Node *u) {
  stack_check();
  if (u->use.file) { /* relative to the using file */
    const char *slash = m->path ? strrchr(m->path, '/') : NULL;
    const char *path = u->use.file[0] == '/' || !slash
                           ? u->use.file
                           : fail_text(s, "%.*s/%s", (int)(slash - m->path), m->path, u->use.file);
    return module_load_file(s, s->mem.door, path, u->use.file_span);
  }
  Buf b, file;
  buf_init_arena(&b, &s->scratch);
  buf_init_arena(&file, &s->scratch);
  for (uint32_t i = 0; i < u->use.path.count; i++) {
    buf_printf(&b, "%s%s", i ? "." : "", u->use.path.items[i].name);
    buf_printf(&file, "%s%s", i ? "/" : "", u->use.path.items[i].name);
  }
  Span at = span_join(u->use.path.items[0].span, u->use.path.items[u->use.path.count - 1].span);
  Module *e = module_embedded(s, b.s, at);
  if (e) return e;
  for (size_t i = 0; i < s->config.lib_count; i++) {
    const char *path = fail_text(s, "%s/%s.ckl", s->config.lib[i], file.s);
    if (!access(path, F_OK)) return module_load_file(s, NULL, path, at); /* the host's folder */
  }
  fail_help(s, ERR_USE, at, "a file is used by its path: `use \"folder/name.ckl\"`",
            "no module is called `%s`", b.s);
}

const Builtin *module_builtin(Session *s, const Module *m, Name name) {
  return name[0] == '_' && (m == s->main || m->path) ? NULL : builtin_find(s, name);
}

/* Names that are visible without `use` may be used as members of any embedded module: `use nn
 * (relu)`, `data.split`. */
bool module_visible_anyway(Session *s, const Module *m, Name name, Value *v) {
  if (m->path) return false;
  Global *g = global_find(s, s->prelude, name);
  const Builtin *b = g ? NULL : builtin_find(s, name);
  if (name[0] == '_' || (!g && (!b || !b->fn))) return false;
  if (v) *v = g ? g->v : (Value){.tag = V_BUILTIN, .u.builtin = b};
  return true;
}

static void declare_use(Session *s, Module *m, Node *u, bool repl) {
  Module *src = used_module(s, m, u);
  if (u->use.names.count == 0) {
    Word w = u->use.as.name      ? u->use.as
             : u->use.path.count ? u->use.path.items[u->use.path.count - 1]
                                 : (Word){0};
    if (!w.name)
      fail_help(s, ERR_USE, u->span,
                "`use \"file.ckl\" as name`, or name what you take: `use \"file.ckl\" (f, g)`",
                "a used file needs a name here");
    Global *g = declare(s, m, &w, true, repl);
    g->kind = G_MODULE;
    g->v = (Value){.tag = V_MODULE, .u.module = src};
    g->is_set = true;
    return;
  }
  for (uint32_t i = 0; i < u->use.names.count; i++) {
    Word *w = &u->use.names.items[i];
    Global *h = global_own(src, w->name);
    if (w->name[0] == '_')
      fail_at(s, ERR_PRIVATE, w->span, "`%s` is private to `%s`", w->name, src->name);
    if ((!h || h->module != src) && module_visible_anyway(s, src, w->name, NULL)) continue;
    if (!h || h->module != src) {
      const char *near = NULL;
      for (size_t k = 0; k < src->global_count; k++)
        if (str_distance(w->name, src->globals[k].name, 2) <= 2) near = src->globals[k].name;
      if (near)
        fail_help(s, ERR_USE_NAME, w->span, fail_text(s, "did you mean `%s`?", near),
                  "`%s` has no declaration `%s`", src->name, w->name);
      fail_at(s, ERR_USE_NAME, w->span, "`%s` has no declaration `%s`", src->name, w->name);
    }
    if (h->kind == G_VALUE && !h->is_const)
      fail_at(s, ERR_MODULE_VAR, w->span,
              "`%s` is a top-level variable of `%s`; `use` brings declarations only", w->name,
              src->name);
    Global *g = declare(s, m, w, true, repl);
    h = global_own(src, w->name);
    g->kind = h->kind;
    g->v = h->v;
    value_retain(g->v);
    g->decl = h->decl;
    g->module = h->module;
    g->is_const = h->is_const;
    g->is_set = true;
  }
}

static void declare_item(Session *s, Module *m, Node *n, bool repl) {
  /* a function's value holds its tree; models, types and policies stay as long as the session */
  if (n->kind == N_MODEL || n->kind == N_TYPE_DECL || n->kind == N_POLICY_DECL)
    src_hold(&s->sources, n->span.file);
  switch ((NodeKind)n->kind) {
  case N_USE: declare_use(s, m, n, repl); break;
  case N_FN: {
    declare(s, m, &n->fn->name, false, repl);
    Value f = v_fn(s, n, m, NULL, NULL, !n->fn->is_proc, 0, NULL);
    Global *g = global_own(m, n->fn->name.name);
    g->kind = G_FN;
    g->decl = n;
    value_set(&g->v, f);
    g->is_set = true;
    break;
  }
  case N_MODEL: {
    Global *g = declare(s, m, &n->model.name, false, repl);
    ModelDecl *d = ARENA_NEW(&s->perm, ModelDecl);
    *d = (ModelDecl){n->model.name.name, n, m, false};
    g->kind = G_MODEL;
    model_index(s, n);
    g->decl = n;
    g->v = (Value){.tag = V_MODEL, .u.model = d};
    g->is_set = true;
    break;
  }
  case N_TYPE_DECL: {
    Global *g = declare(s, m, &n->type_decl.name, false, repl);
    g->kind = G_TYPE;
    g->decl = n;
    g->is_set = true;
    break;
  }
  case N_POLICY_DECL: {
    Global *g = declare(s, m, &n->policy_decl.name, false, repl);
    g->kind = G_POLICY;
    g->decl = n;
    g->is_set = true;
    break;
  }
  default: break;
  }
}

typedef struct ItemJob {
  Session *s;
  Module *m;
  Node *n;
} ItemJob;

static void item_job(void *ud) {
  ItemJob *j = ud;
  declare_item(j->s, j->m, j->n, false);
}

/* Slots for the names that a top-level `let` binds; a constant of rule 6 gets its value at once. */
static void declare_slots(Session *s, Module *m, Node *n, Node *pat) {
  stack_check();
  bool one = n->let.pat->kind == N_PAT_NAME;
  if (pat->kind == N_PAT_TUPLE || pat->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < pat->list.count; i++) declare_slots(s, m, n, pat->list.items[i]);
  if (pat->kind != N_PAT_NAME) return;
  Word *w = &pat->word;
  Global *g = global_own(m, w->name);
  if (g && g->kind != G_VALUE) stands_twice(s, m, g, w, false);
  bool again = g != NULL;
  if (!g) g = add_global(s, m, w->name, w->span);
  g->kind = G_VALUE;
  if (one && !again && !n->let.is_var && !n->let.type && constant_expr(s, m, n->let.init)) {
    Frame f = {.up = s->frame, .module = m, .base = s->local_count};
    s->frame = &f;
    Value v = eval_expr(s, n->let.init);
    s->frame = f.up;
    g = global_own(m, w->name);
    value_set(&g->v, v);
    g->is_const = g->is_set = true;
  } else if (again && g->is_const) {
    value_set(&g->v, v_unit());
    g->is_const = g->is_set = false;
  }
  g->is_var = n->let.is_var;
  g->decl = n;
}

void module_declare_items(Session *s, Module *m, Node *ast, bool repl) {
  NodeList *l = &ast->file.items;
  for (uint32_t i = 0; repl && i < l->count; i++)
    if (l->items[i]->kind == N_FN || l->items[i]->kind == N_MODEL ||
        l->items[i]->kind == N_TYPE_DECL || l->items[i]->kind == N_USE) {
      call_cache_free(s); /* callers of the replaced function are compiled again (rule 5) */
      break;
    }
  m->top_calls.arena = &s->perm;
  for (uint32_t i = 0; i < l->count; i++) module_sites(s, m, l->items[i]);
  size_t errors = s->diags.errors;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (repl) {
      declare_item(s, m, n, true);
      continue;
    }
    ItemJob j = {s, m, n}; /* an error in one does not stop the next */
    int code = api_guard(s, item_job, &j);
    if (code != MEM_OK && code != MEM_ERR_PROGRAM) mem_throw(&s->mem, code);
  }
  if (s->diags.errors > errors) dg_throw(&s->diags);
  if (repl) return;
  /* top-level variables: slots, and the constants of rule 6 */
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (n->kind == N_LET) declare_slots(s, m, n, n->let.pat);
  }
}

/* Declares the items of the module's tree and resolves its `use`s. */
static void module_declare(Session *s, Module *m) {
  module_declare_items(s, m, m->ast, false);
  m->declared = true;
}
