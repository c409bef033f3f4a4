/* Abstract interpretation of script.
 *
 * In: a module. Out: filed errors. The same evaluator walks its statements. Known types are
 * checked; a value that only running can give is V_UNKNOWN, which no check refuses. After loops and
 * branches a variable is known as far as all paths agree.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/check/check.h"
#include "lang/check/check_impl.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/eval.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"

Value abstract_comp(Session *s, Node *e) {
  size_t base = s->local_count;
  s->frame->block_depth++;
  for (uint32_t k = 0; k < e->comp.fors.count; k++) {
    Node *f = e->comp.fors.items[k];
    Value it = eval_expr(s, f->loop.iter);
    bind_pattern(s, f->loop.pat, abstract_element(s, it, f->loop.iter->span), false);
    if (f->loop.cond) eval_expr(s, f->loop.cond);
  }
  Value v, kv[2];
  if (e->comp.value->kind == N_ENTRY)
    eval_entry(s, e->comp.value, kv), v = v_unknown();
  else
    v = eval_expr(s, e->comp.value);
  s->frame->block_depth--;
  local_pop(s, base);
  if (v.tag == V_INST && e->comp.fors.count == 1) return v_list(s, V_LIST, 1, &v);
  return v_unknown();
}

Value abstract_element(Session *s, Value it, Span at) {
  if (it.tag == V_RANGE) return v_unknown();
  if (v_is_tensor(it)) {
    Type t = op_type_of(s, it);
    if (!t.rank) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    if (!s->stage) return v_unknown();
    return check_symbolic_tensor(s, (DType)t.dtype, t.rank - 1, t.dim + 1);
  }
  if (it.tag == V_LIST && it.u.list->count) return it.u.list->items[0];
  if (it.tag == V_SEQ || it.tag == V_UNKNOWN || it.tag == V_STR || it.tag == V_LIST ||
      it.tag == V_TUPLE || it.tag == V_DICT)
    return v_unknown();
  want_elements(s, it, at, "`for`");
}

bool abstract_only(Session *s, const Call *c) {
  const char *n = c->b->name;
  if (!strcmp(n, "nonzero")) return !c->given[1];
  if (!strcmp(n, "int") || !strcmp(n, "float"))
    return c->v[0].tag == V_NODE && op_type_of(s, c->v[0]).rank == 0;
  return false;
}

/* Checks the known arguments of a builtin of script, by the names of its parameters. */
static void check_arguments(Session *s, const Builtin *b, Call *c) {
  static const char *const texts[] = {"path",  "file", "folder", "to", "name",
                                      "label", "glob", "device", "key"};
  if (!(b->flags & BI_SCRIPT)) return; /* `key` of draws is no text, `path` of `map` a bool */
  const BuiltinSig *sig = builtin_sig(s, b);
  for (size_t i = 0; i < c->n; i++) {
    const char *name = sig->par[i].name;
    Value v = c->given[i] ? c->v[i] : v_unit();
    bool known = c->given[i] && v.tag != V_UNKNOWN;
    for (size_t k = 0; k < sizeof texts / sizeof *texts && known; k++)
      if (!strcmp(texts[k], name) && v.tag != V_STR)
        fail_at(s, ERR_WANT_STR, c->spans[i], "the argument `%s` of `%s` must be a str, not %s",
                texts[k], b->name, value_type_text(s, v));
    bool tree = v.tag == V_INST || v.tag == V_PARAM || v.tag == V_RECORD || v.tag == V_DICT ||
                v.tag == V_TUPLE || v.tag == V_LIST || v.tag == V_NODE;
    if (known && !strcmp(name, "net") && !tree)
      fail_at(s, ERR_WANT_MODEL, c->spans[i], "the argument `net` of `%s` must be a model, not %s",
              b->name, value_type_text(s, v));
  }
}

Value abstract_builtin(Session *s, const Builtin *b, Call *c) {
  const char *n = b->name;
  check_arguments(s, b, c);
  if (!strcmp(n, "args"))
    return c->v[1].tag == V_STR || v_is_tensor(c->v[1]) ? c->v[1] : v_unknown();
  if (!strcmp(n, "load")) return c->v[0];
  if (!strcmp(n, "track")) {
    if (v_is_tensor(c->v[0]) && !dt_float((DType)op_type_of(s, c->v[0]).dtype))
      fail_help(s, ERR_GRAD_WRT, c->spans[0], "`track(f32(x))`",
                "only floats have gradients, this is %s", value_type_text(s, c->v[0]));
    /* an alias: it may be assigned, as a param may */
    return v_is_tensor(c->v[0]) ? op_run(s, OP_ALIAS, 1, &c->v[0], NULL, 0, c->at) : v_unknown();
  }
  if (!strcmp(n, "copy") && (c->v[0].tag == V_INST || v_is_tensor(c->v[0]))) return c->v[0];
  if (!strcmp(n, "to") && (c->v[0].tag == V_INST)) return c->v[0];
  static const char *const unit[] = {"seed",        "save",        "freeze",      "unfreeze",
                                     "write_text",  "append_text", "write_bytes", "write_csv",
                                     "make_folder", "remove_file", "rename_file", "write_npy",
                                     "write_npz",   "write_json",  "write_image", "write_wav"};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (!strcmp(n, unit[i])) return v_unit();
  return v_unknown();
}

typedef struct ScriptJob {
  Session *s;
  Node *st;
} ScriptJob;

static void stmt_job(void *ud) {
  ScriptJob *j = ud;
  Value v;
  eval_stmt(j->s, j->st, &v);
}

/* After an error the variables that the statement sets are unknown, so that it causes no further
 * errors. */
static void forget_pat(Session *s, Module *m, Node *pat, bool is_var) {
  stack_check();
  if (pat->kind == N_PAT_NAME && !module_name_is_fixed(pat->word.name)) {
    Global *g = global_find(s, m, pat->word.name);
    if (!g || (g->kind == G_VALUE && !g->is_const))
      global_set(s, m, pat->word.name, v_unknown(), is_var, pat->word.span);
  }
  if (pat->kind == N_PAT_TUPLE || pat->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < pat->list.count; i++) forget_pat(s, m, pat->list.items[i], is_var);
}

typedef struct Forget {
  Session *s;
  Module *m;
} Forget;

Node *abstract_assigned_root(Node *st) {
  Node *t = st->assign.target;
  while (t->kind == N_DOT || t->kind == N_INDEX || t->kind == N_ITEM)
    t = t->kind == N_DOT ? t->dot.object : t->kind == N_INDEX ? t->index.object : t->item.object;
  return t;
}

static void forget_visit(void *ud, Node *n) {
  Forget *f = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = abstract_assigned_root(n);
    Global *g = t->kind == N_NAME ? global_find(f->s, f->m, t->name) : NULL;
    if (g && g->module == f->m && g->kind == G_VALUE && g->is_set && g->is_var)
      value_set(&g->v, v_unknown());
  }
  ast_children(n, forget_visit, ud);
}

static void forget(Session *s, Module *m, Node *st) {
  if (st->kind == N_LET) forget_pat(s, m, st->let.pat, st->let.is_var);
  forget_visit(&(Forget){s, m}, st);
}

/* ---- loops and branches of script: variables after them */

/* Whether two values of script have the same type as far as checks go. */
static bool same_kind(Session *s, Value a, Value b) {
  if (a.tag != b.tag || a.weak != b.weak) return false;
  if (a.tag == V_NODE) {
    Type x = op_type_of(s, a), y = op_type_of(s, b);
    if (x.dtype != y.dtype || x.rank != y.rank || x.dev != y.dev) return false;
    for (int i = 0; i < x.rank; i++)
      if (x.dim[i] != y.dim[i]) return false;
    return true;
  }
  return value_same(a, b);
}

typedef struct Assigned {
  Session *s;
  Name *items;
  size_t count, cap;
} Assigned;

static void assigned_visit(void *ud, Node *n) {
  stack_check();
  Assigned *a = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = abstract_assigned_root(n);
    bool known = t->kind != N_NAME;
    for (size_t i = 0; i < a->count && !known; i++) known = a->items[i] == t->name;
    if (!known) VEC_PUSH(&a->s->scratch, a->items, a->count, a->cap, t->name);
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) assigned_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, assigned_visit, ud);
}

static Value *variable(Session *s, Name name) {
  Local *l = local_find(s, name);
  if (l) return l->is_var ? &l->v : NULL;
  Global *g = global_find(s, s->frame->module, name);
  return g && g->kind == G_VALUE && g->is_var && g->is_set ? &g->v : NULL;
}

AbstractVars abstract_vars(Session *s, Node *body) {
  Assigned a = {.s = s};
  assigned_visit(&a, body);
  AbstractVars k = {a.items, a.count, ARENA_ARRAY(&s->scratch, Value, a.count + 1)};
  for (size_t i = 0; i < a.count; i++) {
    Value *v = variable(s, a.items[i]);
    k.before[i] = v ? value_pool(s, *v) : v_unknown();
  }
  return k;
}

/* Before a loop: variables that an iteration may change become unknown. Tensors keep their type. */
void abstract_enter_loop(Session *s, const AbstractVars *k) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && v->tag != V_NODE && v->tag != V_INST) value_set(v, v_unknown());
  }
}

/* After a loop or branch: variables whose type it changed become unknown. */
void abstract_leave(Session *s, const AbstractVars *k) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && !same_kind(s, *v, k->before[i])) value_set(v, v_unknown());
  }
}

/* Restores the values from before, for the other branch; returns those of this branch. */
Value *abstract_swap(Session *s, const AbstractVars *k) {
  Value *now = ARENA_ARRAY(&s->scratch, Value, k->count + 1);
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    now[i] = v_unknown();
    if (!v) continue;
    now[i] = value_pool(s, *v);
    value_set(v, k->before[i]);
  }
  return now;
}

void abstract_join(Session *s, const AbstractVars *k, const Value *other) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && !same_kind(s, *v, other[i])) value_set(v, v_unknown());
  }
}

/* After what was not walked: all variables that it may change are unknown. */
void abstract_forget(Session *s, const AbstractVars *k) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v) value_set(v, v_unknown());
  }
}

static void has_return(void *ud, Node *n) {
  bool *found = ud;
  if (!n || *found || n->kind == N_LAMBDA || n->kind == N_FN) return;
  if (n->kind == N_RETURN) *found = true;
  ast_children(n, has_return, ud);
}

typedef struct Assign {
  Name name;
  Node *st;
} Assign;

static void find_assign(void *ud, Node *n) {
  Assign *a = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = abstract_assigned_root(n);
    if (t->kind == N_NAME && t->name == a->name) a->st = n;
  }
  ast_children(n, find_assign, ud);
}

Node *abstract_assignment(Node *body, Name name) {
  Assign a = {name, NULL};
  find_assign(&a, body);
  return a.st;
}

/* Whether a value may be assigned as a param may: it is an alias. */
bool abstract_param(Session *s, Value v) {
  if (!s->abstract || v.tag != V_NODE) return false;
  Stage *st = s->stage;
  while (st && st->level > v.aux) st = st->up;
  return st && st->g->nodes[v.u.v.node].op == OP_ALIAS;
}

bool abstract_recursion(Session *s, const FnObj *f) {
  for (const Frame *fr = s->frame; fr; fr = fr->up)
    if (fr->fn && fr->fn->decl == f->decl && fr->fn->decl->kind == N_FN) return true;
  return false;
}

/* Whether a body has a `return`, so that its value is unknown. */
bool abstract_returns(Node *body) {
  bool found = false;
  has_return(&found, body);
  return found;
}

typedef struct Taken {
  Session *s;
  Module *m;
  Node *fn;
} Taken;

static void taken_visit(void *ud, Node *n);

static void take(Session *s, Module *m, Node *fn) {
  if (fn->flags & FN_TAKEN) return;
  fn->flags |= FN_TAKEN;
  ast_children(fn, taken_visit, &(Taken){s, m, fn});
}

static void taken_visit(void *ud, Node *n) {
  stack_check();
  const Taken *t = ud;
  if (!n) return;
  Module *m = t->m;
  Node *root = n->kind == N_ASSIGN ? abstract_assigned_root(n) : n;
  Global *g = root->kind == N_NAME && !desugar_local_binds(t->fn, root->name)
                  ? global_find(t->s, m, root->name)
                  : NULL;
  if (g && n->kind == N_ASSIGN) g->moves = true;
  if (g && n->kind == N_NAME && g->kind == G_FN && g->decl->fn->is_proc)
    take(t->s, g->module, g->decl);
  for (size_t i = 0; n->kind == N_DOT && i < m->global_count; i++) { /* models with that method */
    if (m->globals[i].kind != G_MODEL) continue;
    const NodeList *l = &m->globals[i].decl->model.members;
    for (uint32_t k = 0; k < l->count; k++)
      if (l->items[k]->kind == N_FN && l->items[k]->fn->is_proc &&
          l->items[k]->fn->name.name == n->dot.name.name)
        take(t->s, m->globals[i].module, l->items[k]);
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) taken_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, taken_visit, ud);
}

/* Its callers are not followed, so the procs that it calls are taken too. */
void abstract_taken(const FnObj *f) {
  if (!f->is_code) take(f->o.s, f->module, f->decl);
}

void check_script(Session *s, Module *m) {
  Arena a;
  arena_init(&a, &s->mem);
  Unit u = {.s = s, .arena = &a, .token = VAL_NONE, .check = true};
  u.flat.s = s;
  u.flat.arena = &a;
  buf_init_arena(&u.flat.sig, &a);
  u.g = gr_new(&a, dim_tab_new(&a), s->names, m->name);
  u.root = (Stage){.g = u.g, .unit = &u, .level = 1};
  Frame top = {.module = m, .base = s->local_count};
  s->frame = &top;
  for (uint32_t i = 0; i < m->ast->file.items.count; i++) {
    Node *st = m->ast->file.items.items[i];
    if (st->kind == N_USE || st->kind == N_FN || st->kind == N_MODEL || st->kind == N_TYPE_DECL ||
        st->kind == N_POLICY_DECL)
      continue;
    if (st->flags & ITEM_BAD) {
      forget(s, m, st);
      continue;
    }
    size_t filed = s->diags.count;
    s->stage = &u.root;
    s->abstract = true;
    top.block_depth = 0;
    int code;
    if (st->kind == N_TEST) {
      Frame test = {.up = &top, .module = m, .base = s->local_count, .test = true};
      s->frame = &test;
      ScriptJob j = {s, ARENA_NEW(&a, Node)};
      *j.st = (Node){.kind = N_EXPR_STMT, .span = st->span};
      j.st->expr = st->test.body;
      code = api_guard(s, stmt_job, &j);
      s->frame = &top;
    } else {
      ScriptJob j = {s, st};
      code = api_guard(s, stmt_job, &j);
    }
    s->stage = NULL;
    s->abstract = false;
    if (code == MEM_ERR_NOMEM || code == MEM_ERR_INTERRUPT || code == MEM_ERR_BUG) {
      s->frame = NULL;
      arena_free(&a);
      mem_throw(&s->mem, code);
    }
    if (code == MEM_ERR_PROGRAM && s->diags.count > filed) {
      /* values that only code must know in advance are no error in script */
      const Diag *d = s->diags.items[s->diags.count - 1];
      Module *im;
      ModelDecl *id;
      Node *in = check_fn_at(s, d->span, &im, &id);
      bool script_place = !in || in->fn->is_proc;
      if (script_place && (d->code == ERR_NOT_CONST || d->code == ERR_SLICE_DYNAMIC ||
                           d->code == ERR_MASK_CODE || d->code == ERR_STATIC_STR))
        dg_rewind(&s->diags, filed);
    }
    if (code != MEM_OK) {
      forget(s, m, st);
      Module *cm;
      ModelDecl *cd;
      Node *c = check_culprit(s, filed, NULL, &cm, &cd);
      if (c && c->flags & ITEM_BAD) dg_rewind(&s->diags, filed);
      check_known_before(s, filed);
    }
    if (s->diags.errors >= CHECK_MOST) break;
  }
  s->frame = NULL;
  /* the values of variables must not outlive the graph that they refer to */
  for (size_t i = 0; i < m->global_count; i++)
    if (m->globals[i].module == m && m->globals[i].kind == G_VALUE && !m->globals[i].is_const) {
      value_set(&m->globals[i].v, v_unit());
      m->globals[i].is_set = false;
    }
  arena_free(&a);
}
