/* Names, arguments and places, before anything runs (rules 1 to 9, 21, 43, 47, 49, 53, 88).
 *
 * In: a declared module. Out: filed errors, all of the file in one walk. Top-level items and
 * members with an error are marked ITEM_BAD, so that later checks skip them. Idea: one walk
 * over the tree with a stack of bound names and a chain of the constructs around a place. A name
 * that could be anything (a field of a value, an argument) is left to the checks that know values.
 * Errors filed here hold for every run, so a correct program gets none.
 */
#include <string.h>

#include "lang/eval/model.h"
#include "lang/names/module.h"
#include "lang/names/resolver.h"
#include "lang/value/fail.h"

bool rs_word_is(Name a, const char *b) {
  return a && !strcmp(a, b);
}

bool rs_full(const Resolver *r) {
  return r->s->diags.errors >= ERRORS_MOST;
}

void rs_push_place(Resolver *r, Place *p, PlaceKind k, const Node *n, bool code) {
  *p = (Place){r->place, k, r->place ? r->place->level : 0, code, n};
  if (k == P_FN || k == P_LAMBDA || k == P_MODEL)
    p->level++; /* a model's members run when one is made */
  r->place = p;
}

/* ---- functions */

static bool binds_dim(const Node *t, Name name) {
  stack_check();
  if (!t) return false;
  if (t->kind == N_TYPE_NAME)
    for (uint32_t i = 0; i < t->type_name.dims.count; i++) {
      const Node *d = t->type_name.dims.items[i];
      if ((d->kind == N_NAME && d->name == name) || (d->kind == N_PACK && d->word.name == name))
        return true;
    }
  if (t->kind == N_TYPE_TUPLE)
    for (uint32_t i = 0; i < t->list.count; i++)
      if (binds_dim(t->list.items[i], name)) return true;
  if (t->kind == N_TYPE_RECORD)
    for (uint32_t i = 0; i < t->list.count; i++)
      if (binds_dim(t->list.items[i]->type_field.type, name)) return true;
  if (t->kind == N_TYPE_DICT) return binds_dim(t->entry.value, name);
  return t->kind == N_TYPE_LIST && binds_dim(t->type_list, name);
}

static void duplicate(Resolver *r, const char *what, const Word *w, Span first) {
  Diag *d = fail_report(r->s, ERR_TWICE, w->span, "the %s `%s` is declared twice", what, w->name);
  dg_label(&r->s->diags, d, first, "first here");
}

static void walk_params(Resolver *r, const NodeList *l, const char *what) {
  size_t base = r->bind_count;
  size_t *at = ARENA_ARRAY(&r->s->scratch, size_t, l->count + 1); /* in binds; SIZE_MAX: none */
  for (uint32_t i = 0; i < l->count; i++) { /* sizes may be used in types to their left */
    Word *w = &l->items[i]->param.name;
    const Bind *first = rs_find_bind(r, w->name);
    size_t place = r->bind_count;
    if (first && first >= &r->binds[base])
      duplicate(r, what, w, first->span);
    else
      rs_bind_word(r, w, B_PARAM);
    at[i] = r->bind_count > place ? place : SIZE_MAX;
  }
  for (uint32_t i = 0; i < l->count; i++) rs_walk_type(r, l->items[i]->param.type, true);
  /* a default sees the parameters before it */
  for (uint32_t i = 0; i < l->count; i++)
    if (at[i] != SIZE_MAX) r->binds[at[i]].hidden = true;
  for (uint32_t i = 0; i < l->count; i++) {
    if (l->items[i]->param.init) rs_walk(r, l->items[i]->param.init);
    if (at[i] != SIZE_MAX) r->binds[at[i]].hidden = false;
  }
}

static bool any_typed(const Resolver *r, const Fn *f, Name name) {
  (void)r;
  for (uint32_t i = 0; i < f->params.count; i++) {
    const Node *t = f->params.items[i]->param.type;
    if (f->params.items[i]->param.name.name == name)
      return t && t->kind == N_TYPE_NAME && t->type_name.path.count == 1 &&
             clause_type_word(t->type_name.path.items[0].name) == TYPEWORD_ANY;
  }
  return false;
}

static void walk_fn(Resolver *r, Node *n, PlaceKind kind, bool code) {
  Session *s = r->s;
  Fn *f = n->fn;
  const Fn *outer = r->fn;
  size_t base = r->bind_count;
  Place p;
  rs_push_place(r, &p, kind, n, code);
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
    for (uint32_t k = 0; k < f->params.count && !bound; k++)
      bound = binds_dim(f->params.items[k]->param.type, w->name);
    rs_bind_word(r, w, B_DIM);
    if (bound) continue;
    Diag *d = fail_report(s, ERR_DIM_UNBOUND, w->span,
                          "the dim `%s` is not bound: no parameter has it as a bare axis", w->name);
    dg_help(&s->diags, d,
            "write it as an axis of a parameter, `x: f32[%s]`, or make it an argument `%s: int`",
            w->name, w->name);
  }
  walk_params(r, &f->params, "parameter");
  rs_walk_type(r, f->result, false);
  size_t inner = r->bind_count;
  rs_walk(r, f->body);
  rs_unbind(r, inner);
  if (f->back_body) {
    if (f->is_proc) {
      Diag *d = fail_report(s, ERR_BACKWARD, f->back_span,
                            "a proc has no `backward`: it is never differentiated as a whole");
      dg_help(&s->diags, d, "declare it with `fn`");
    }
    Place q;
    rs_push_place(r, &q, P_FN, n, true);
    Word out = {names_of(s->names, "out"), f->back_span, 0, NULL};
    rs_bind_word(r, &out, B_OUT);
    for (uint32_t i = 0; i < f->back_params.count; i++) {
      rs_bind_word(r, &f->back_params.items[i]->param.name, B_PARAM);
      rs_walk_type(r, f->back_params.items[i]->param.type, false);
    }
    rs_walk(r, f->back_body);
    r->place = q.up;
  }
  rs_unbind(r, base);
  r->fn = outer;
  r->place = p.up;
}

/* ---- statements and expressions */

static bool is_range(const Node *e) {
  return e->kind == N_BINARY && e->binary.op == AST_RANGE;
}

/* Files an error if a `break`, `continue` or `return` would leave a construct that it may not. */
static void check_leave(Resolver *r, Node *st) {
  Session *s = r->s;
  bool ret = st->kind == N_RETURN;
  const char *w = ret ? "return" : st->kind == N_BREAK ? "break" : "continue";
  for (const Place *p = r->place; p; p = p->up) switch (p->kind) {
    case P_LOOP:
      if (!ret) return;
      break;
    case P_CHECKPOINT:
    case P_OPAQUE:
    case P_WRAP: {
      if (!ret && p->kind == P_CHECKPOINT && p->node->kind != N_CHECKPOINT) return;
      const char *what = p->kind == P_WRAP     ? "the block of a `wrap` by a function"
                         : p->kind == P_OPAQUE ? "an opaque block"
                                               : "a `checkpoint` block";
      Diag *d =
          fail_report(s, ret ? ERR_RETURN : ERR_BREAK, st->span, "`%s` cannot leave %s", w, what);
      Span at = p->node->span;
      at.hi = at.lo + (p->kind == P_CHECKPOINT ? 10 : 4);
      dg_label(&s->diags, d, at, "this one");
      dg_help(&s->diags, d, "let the block give a value, and decide after it");
      return;
    }
    case P_COMP:
      fail_report(s, ret ? ERR_RETURN : ERR_BREAK, st->span, "`%s` cannot leave a comprehension",
                  w);
      return;
    case P_FN:
    case P_LAMBDA:
      if (ret) return;
      fail_report(s, ERR_BREAK, st->span, "`%s` stands in loops only", w);
      return;
    case P_TOP:
    case P_MODEL:
    case P_TEST:
      if (ret)
        fail_report(s, ERR_RETURN, st->span, "`return` stands in functions only");
      else
        fail_report(s, ERR_BREAK, st->span, "`%s` stands in loops only", w);
      return;
    }
}

/* Rules 36 and 88: a `var` of `home` (NULL: the top level) cannot be assigned from every place. */
static bool assigns_outer(Resolver *r, const Node *root, const Place *home, Span declared) {
  Session *s = r->s;
  for (const Place *p = r->place; p && p != home && p->kind != P_LAMBDA; p = p->up) {
    if (p->kind != P_COMP && p->kind != P_WRAP) continue;
    bool comp = p->kind == P_COMP;
    Diag *d =
        fail_report(s, ERR_ASSIGN, root->span,
                    comp ? "a comprehension cannot assign the outer `var` `%s`"
                         : "the block of a `wrap` by a function cannot assign the outer `var` `%s`",
                    root->name);
    dg_label(&s->diags, d, declared, "declared here");
    dg_help(&s->diags, d, "%s", comp ? "a `for` loop may" : "let the block give the new value");
    return true;
  }
  return false;
}

/* Files an error if `root`, `whole` or a part of it, may not be assigned. */
static void assign_name(Resolver *r, Node *st, Node *root, bool whole) {
  Session *s = r->s;
  Name name = root->name;
  Found f = rs_lookup(r, name);
  if (rs_word_is(name, "_")) {
    Diag *d =
        fail_report(s, ERR_ASSIGN, root->span, "`_` is no variable: nothing can be assigned to it");
    dg_help(&s->diags, d, "%s",
            whole ? "`let _ = ..` says that a value is not used" : "give it a name: `var x = _`");
    return;
  }
  switch (f.kind) {
  case F_NONE: {
    Diag *d = fail_report(s, ERR_UNKNOWN_NAME, root->span,
                          "`%s` is not known here, so it cannot be assigned", name);
    const char *near = rs_near_value(r, name);
    if (near && builtin_find(s, names_of(s->names, near))) near = NULL;
    if (near)
      dg_help(&s->diags, d, "did you mean `%s`? `var %s = ..` declares a new one", near, name);
    else
      dg_help(&s->diags, d, "`var %s = ..` declares it", name);
    return;
  }
  case F_LOCAL: {
    const Bind *b = f.bind;
    if (b->kind == B_VAR) {
      if (b->place->level < r->place->level) {
        Diag *d =
            fail_report(s, ERR_CAPTURE_VAR, root->span,
                        "a function cannot assign the local `var` `%s` of what encloses it", name);
        dg_label(&s->diags, d, b->span, "declared here");
        dg_help(&s->diags, d, "let the function give the new value as its result");
        return;
      }
      assigns_outer(r, root, b->place, b->span);
      return;
    }
    if (b->kind == B_DIM || b->kind == B_FN || b->kind == B_OUT ||
        (b->kind == B_LOOP && b->over_range)) {
      Diag *d = fail_report(s, ERR_ASSIGN_LET, root->span, "`%s` is a %s and cannot be assigned",
                            name, b->kind == B_OUT ? "result" : rs_what_binds(b->kind));
      dg_label(&s->diags, d, b->span, "declared here");
      dg_help(&s->diags, d, "copy it to a `var`: `var now = %s`", name);
    }
    return;
  }
  case F_MEMBER: {
    const Node *m = f.member;
    if (m->kind == N_FIELD) return;
    if (m->kind == N_FN) {
      fail_report(s, ERR_ASSIGN, root->span, "`%s` is a method and cannot be assigned", name);
      return;
    }
    if (!whole) return;
    Diag *d = fail_report(s, ERR_ASSIGN_LET, root->span, "`%s` is a %s of `%s` and stays as it is",
                          name, m->kind == N_PARAM ? "constructor argument" : "`let`",
                          r->model->model.name.name);
    dg_label(&s->diags, d, rs_member_span(m), "declared here");
    dg_help(&s->diags, d, "a value that changes is a `buffer`");
    return;
  }
  case F_TOP: {
    if (f.top->is_var && rs_in_named(r) && r->place->code) {
      Diag *d = fail_report(s, ERR_CODE_VAR, root->span,
                            "code cannot assign the top-level `var` `%s`", name);
      dg_label(&s->diags, d, f.top->span, "declared here");
      dg_help(&s->diags, d, "give the new value as a result, or keep it in a buffer");
      return;
    }
    if (f.top->is_var && assigns_outer(r, root, NULL, f.top->span)) return;
    rs_use_found(r, &f, name, root->span);
    return;
  }
  case F_GLOBAL:
    if (f.global->kind == G_VALUE) {
      if (f.global->is_var) assigns_outer(r, root, NULL, f.global->span);
      return;
    }
    {
      Diag *d = fail_report(s, ERR_ASSIGN, root->span,
                            "`%s` is a declaration and cannot be assigned", name);
      if (src_get(&s->sources, f.global->span.file)->path[0] != '<')
        dg_label(&s->diags, d, f.global->span, "declared here");
      dg_help(&s->diags, d, "`var` with another name makes a variable");
    }
    return;
  case F_BUILTIN:
  case F_DTYPE: {
    Diag *d =
        fail_report(s, ERR_ASSIGN, root->span, "`%s` is built in and cannot be assigned", name);
    if (!module_name_is_fixed(name))
      dg_help(&s->diags, d, "`var %s = ..` declares a variable of that name", name);
    return;
  }
  }
  (void)st;
}

static void walk_assign(Resolver *r, Node *st) {
  rs_walk(r, st->assign.value);
  Node *t = st->assign.target, *root = t;
  bool dotted = false;
  while (root->kind == N_DOT || root->kind == N_INDEX || root->kind == N_ITEM) {
    if (root->kind == N_DOT) dotted = true;
    if (root->kind == N_INDEX)
      for (uint32_t i = 0; i < root->index.items.count; i++) rs_walk(r, root->index.items.items[i]);
    root = root->kind == N_DOT     ? root->dot.object
           : root->kind == N_INDEX ? root->index.object
                                   : root->item.object;
  }
  if (t->kind == N_DOT && t->dot.object->kind == N_SELF && r->model) {
    Node *m = rs_model_member(r->s, r->model, t->dot.name.name, UINT32_MAX);
    if (m && (m->kind == N_PARAM || m->kind == N_LET)) {
      Diag *d = fail_report(r->s, ERR_ASSIGN_LET, t->dot.name.span,
                            "`%s` is a %s of `%s` and stays as it is", t->dot.name.name,
                            m->kind == N_PARAM ? "constructor argument" : "`let`",
                            r->model->model.name.name);
      dg_label(&r->s->diags, d, rs_member_span(m), "declared here");
      dg_help(&r->s->diags, d, "a value that changes is a `buffer`");
      return;
    }
  }
  if (root->kind == N_NAME && !dotted)
    assign_name(r, st, root, t == root);
  else
    rs_walk(r, t);
}

/* `drop`: the value of the block, that of its last statement, is not used. */
static void walk_block(Resolver *r, Node *b, bool drop) {
  size_t base = r->bind_count;
  for (uint32_t i = 0; i < b->list.count && !rs_full(r); i++) {
    r->drop = drop || i + 1 < b->list.count;
    rs_walk(r, b->list.items[i]);
  }
  rs_unbind(r, base);
}

/* Files an error for a pattern over a range: its numbers cannot be taken apart. */
static void check_range_pat(Resolver *r, const Node *f) {
  if (!f->loop.pat || !f->loop.iter || !is_range(f->loop.iter)) return;
  if (f->loop.pat->kind != N_PAT_TUPLE && f->loop.pat->kind != N_PAT_RECORD) return;
  Diag *d = fail_report(r->s, ERR_PATTERN, f->loop.pat->span,
                        "a range gives ints, which are not taken apart");
  dg_label(&r->s->diags, d, f->loop.iter->span, "the range");
  dg_help(&r->s->diags, d,
          "two ranges are two loops; `enumerate(xs)` gives pairs of number and element");
}

static void walk_loop(Resolver *r, Node *st) {
  size_t base = r->bind_count;
  Place c, p;
  if (st->loop.is_checkpoint) rs_walk_policy(r, &st->loop.clauses, true);
  if (st->loop.iter) rs_walk(r, st->loop.iter);
  bool code = r->place->code || st->loop.is_checkpoint;
  if (st->loop.is_checkpoint) rs_push_place(r, &c, P_CHECKPOINT, st, code);
  rs_push_place(r, &p, P_LOOP, st, code);
  if (st->loop.cond) rs_walk(r, st->loop.cond);
  check_range_pat(r, st);
  if (st->loop.pat)
    rs_bind_pattern(r, st->loop.pat, B_LOOP, is_range(st->loop.iter), r->bind_count);
  r->drop = true;
  rs_walk(r, st->loop.body);
  r->place = st->loop.is_checkpoint ? c.up : p.up;
  rs_unbind(r, base);
}

static void walk_comp(Resolver *r, Node *e) {
  size_t base = r->bind_count;
  Place p;
  rs_push_place(r, &p, P_COMP, e, r->place->code);
  for (uint32_t i = 0; i < e->comp.fors.count; i++) {
    Node *f = e->comp.fors.items[i];
    rs_walk(r, f->loop.iter);
    check_range_pat(r, f);
    rs_bind_pattern(r, f->loop.pat, B_LOOP, is_range(f->loop.iter), r->bind_count);
    rs_walk(r, f->loop.cond);
  }
  rs_walk(r, e->comp.value);
  r->place = p.up;
  rs_unbind(r, base);
}

static void walk_dot(Resolver *r, Node *e) {
  Session *s = r->s;
  Name f = e->dot.name.name;
  const Module *m = rs_module_named(r, e->dot.object);
  if (m) {
    const Global *g = rs_module_member(r, m, f, e->dot.name.span);
    if (g && g->kind == G_TYPE)
      fail_report(s, ERR_NOT_VALUE, e->span, "`%s` is a type, not a value", f);
    return;
  }
  if (rs_unknown_prefix(r, e)) return;
  rs_walk(r, e->dot.object);
  if (e->dot.object->kind == N_SELF && r->model &&
      !rs_model_member(r->s, r->model, f, UINT32_MAX)) {
    Diag *d = fail_report(s, ERR_NO_FIELD, e->dot.name.span, "`%s` has no field `%s`",
                          r->model->model.name.name, f);
    Near b = near_start(f);
    rs_near_member(&b, r->model);
    if (b.found) dg_help(&s->diags, d, "did you mean `%s`?", b.found);
  }
}

static bool is_any(Resolver *r, const Node *x) {
  if (x->kind != N_NAME || !r->fn || !r->place->code) return false;
  Bind *b = rs_find_bind(r, x->name);
  return b && b->kind == B_PARAM && any_typed(r, r->fn, x->name);
}

static void check_any(Resolver *r, const Node *x, const char *how) {
  if (!is_any(r, x)) return;
  Diag *d =
      fail_report(r->s, ERR_OPERAND, x->span,
                  "`%s` is `any`: code cannot %s a value of which it knows nothing", x->name, how);
  dg_label(&r->s->diags, d, rs_find_bind(r, x->name)->span, "declared here");
  dg_help(&r->s->diags, d, "give it a type, such as `%s: float[...S]`, or none at all", x->name);
}

static void walk_self(Resolver *r, const Node *e) {
  if (r->model) return;
  Diag *d = fail_report(r->s, ERR_SELF, e->span, "`self` stands in methods only");
  dg_help(&r->s->diags, d, "a function takes the instance as a parameter: `fn f(net: model, ..)`");
}

static void visit(void *ud, Node *n) {
  rs_walk(ud, n);
}

void rs_walk(Resolver *r, Node *n) {
  stack_check();
  Session *s = r->s;
  bool drop = r->drop;
  r->drop = false;
  if (!n || rs_full(r)) return;
  switch ((NodeKind)n->kind) {
  case N_NAME: rs_use_name(r, n->name, n->span); break;
  case N_SELF: walk_self(r, n); break;
  case N_STRING:
    for (uint32_t i = 0; i < n->string.count; i++) rs_walk(r, n->string.items[i].hole);
    break;
  case N_CALL: rs_walk_call(r, n, false); break;
  case N_DOT: walk_dot(r, n); break;
  case N_BINARY:
    if (n->binary.op != AST_EQ && n->binary.op != AST_NE) {
      bool in = n->binary.op == AST_IN || n->binary.op == AST_NOT_IN;
      if (!in) check_any(r, n->binary.left, "operate on");
      check_any(r, n->binary.right, in ? "look into" : "operate on");
    }
    rs_walk(r, n->binary.left);
    rs_walk(r, n->binary.right);
    break;
  case N_INDEX:
    check_any(r, n->index.object, "index");
    if (n->index.object->kind == N_NAME && rs_lookup(r, n->index.object->name).kind == F_DTYPE) {
      Diag *d = fail_report(s, ERR_NOT_VALUE, n->span, "`%s` is a type, not a value",
                            fail_source_text(s, n->span, n->index.object->name));
      dg_help(&s->diags, d, "`zeros([3], dtype = %s)` makes a tensor, `%s([1, 2])` too",
              n->index.object->name, n->index.object->name);
      break;
    }
    ast_children(n, visit, r);
    break;
  case N_RECORD: {
    Table seen = {.arena = &s->scratch};
    for (uint32_t i = 0; i < n->list.count; i++) {
      Word *w = &n->list.items[i]->arg.name;
      ptrdiff_t first = table_add(&seen, table_key(w->name), i);
      if (first != TABLE_NONE) {
        Diag *d =
            fail_report(s, ERR_TWICE, w->span, "the record has the field `%s` twice", w->name);
        dg_label(&s->diags, d, n->list.items[first]->arg.name.span, "first here");
      }
      rs_walk(r, n->list.items[i]->arg.value);
    }
    break;
  }
  case N_BLOCK: walk_block(r, n, drop); break;
  case N_IF:
    rs_walk(r, n->if_.cond);
    r->drop = drop;
    rs_walk(r, n->if_.then);
    r->drop = drop;
    rs_walk(r, n->if_.els);
    r->drop = false;
    break;
  case N_COMP: walk_comp(r, n); break;
  case N_LAMBDA: walk_fn(r, n, P_LAMBDA, r->place->code); break;
  case N_CHECKPOINT: {
    rs_walk_policy(r, &n->region.clauses, false);
    Place p;
    rs_push_place(r, &p, P_CHECKPOINT, n, true);
    rs_walk(r, n->region.body);
    r->place = p.up;
    break;
  }
  case N_WRAP: rs_walk_wrap(r, n, drop); break;
  case N_LET: {
    rs_walk(r, n->let.init);
    rs_walk_type(r, n->let.type, false);
    if (r->place->kind == P_TOP && !r->place->up && r->bind_count == 0 && n->info == NULL) {
      /* a variable of the file: collected beforehand */
    }
    rs_bind_pattern(r, n->let.pat, n->let.is_var ? B_VAR : B_LET, false, r->bind_count);
    break;
  }
  case N_ASSIGN: walk_assign(r, n); break;
  case N_EXPR_STMT: {
    size_t before = s->diags.errors;
    r->drop = drop;
    rs_walk(r, n->expr);
    if (drop && s->diags.errors == before) {
      if (n->expr->kind == N_CALL)
        rs_dropped(r, n->expr);
      else
        rs_dropped_value(r, n->expr);
    }
    break;
  }
  case N_FOR:
  case N_WHILE: walk_loop(r, n); break;
  case N_RETURN:
    check_leave(r, n);
    rs_walk(r, n->expr);
    break;
  case N_BREAK:
  case N_CONTINUE: check_leave(r, n); break;
  case N_ASSERT: rs_walk(r, n->expr); break;
  case N_FN:
    walk_fn(r, n, P_FN, !n->fn->is_proc);
    rs_bind_word(r, &n->fn->name, B_FN);
    break;
  case N_BAD: break;
  default: ast_children(n, visit, r); break;
  }
}

/* ---- items of the file */

static void collect_pat(Resolver *r, const Node *p, uint32_t item, bool is_var) {
  stack_check();
  if (p->kind == N_PAT_NAME) {
    TopName t = {p->word.name, p->span, item, is_var, TABLE_NONE};
    uint64_t key = table_key(t.name);
    ptrdiff_t before = table_get(&r->last_top, key);
    if (before != TABLE_NONE)
      r->tops[before].next = (ptrdiff_t)r->top_count;
    else
      table_set(&r->first_top, key, r->top_count);
    table_set(&r->last_top, key, r->top_count);
    VEC_PUSH(&r->s->scratch, r->tops, r->top_count, r->top_cap, t);
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) collect_pat(r, p->list.items[i], item, is_var);
}

static void top_pattern(Resolver *r, const Node *p) {
  stack_check();
  if (p->kind == N_PAT_NAME) {
    if (!rs_may_bind(r, &p->word, B_LET)) return;
    Global *g = global_find(r->s, r->m, p->word.name);
    if (g && g->kind != G_VALUE && g->span.file == p->span.file) {
      Diag *d = fail_report(r->s, ERR_REDECLARE, p->span, "`%s` is declared twice in this file",
                            p->word.name);
      dg_label(&r->s->diags, d, g->span, "first here");
    }
  }
  if (p->kind == N_PAT_TUPLE || p->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < p->list.count; i++) top_pattern(r, p->list.items[i]);
}

static void walk_top_let(Resolver *r, Node *n) {
  rs_walk(r, n->let.init);
  rs_walk_type(r, n->let.type, false);
  top_pattern(r, n->let.pat);
  size_t base = r->bind_count; /* finds a name twice in one pattern */
  if (n->let.pat->kind != N_PAT_NAME) rs_bind_pattern(r, n->let.pat, B_LET, false, base);
  rs_unbind(r, base);
}

/* Whether a buffer can keep values of that type: nothing that could lead back to its instance. */
static bool keeps(Resolver *r, const Node *t, int depth) {
  if (depth > 64) return false;
  switch ((NodeKind)t->kind) {
  case N_TYPE_LIST: return keeps(r, t->type_list, depth + 1);
  case N_TYPE_DICT: return keeps(r, t->entry.value, depth + 1);
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < t->list.count; i++) {
      const Node *of = t->list.items[i];
      if (!keeps(r, t->kind == N_TYPE_RECORD ? of->type_field.type : of, depth + 1)) return false;
    }
    return true;
  case N_TYPE_NAME: break;
  default: return false;
  }
  Name n = t->type_name.path.items[0].name;
  TypeWord w = clause_type_word(n);
  if (t->type_name.path.count != 1) return false;
  if (dtype_find(n) >= 0 || clause_type_word_is_class(w) || w == TYPEWORD_STR ||
      w == TYPEWORD_NONE || w == TYPEWORD_ANY)
    return true;
  const Global *g = global_find(r->s, r->m, n);
  return g && g->kind == G_TYPE && keeps(r, g->decl->type_decl.type, depth + 1);
}

/* Params must be float tensors; a buffer may have most other values, too. */
static void walk_field_type(Resolver *r, Node *m) {
  Session *s = r->s;
  Node *t = m->field.type;
  size_t before = s->diags.errors;
  rs_walk_type(r, t, false);
  if (!t || s->diags.errors > before) return;
  for (int i = 0; i < 16 && t->kind == N_TYPE_NAME && t->type_name.path.count == 1; i++) {
    Global *g = global_find(s, r->m, t->type_name.path.items[0].name);
    if (!g || g->kind != G_TYPE || dtype_find(t->type_name.path.items[0].name) >= 0) break;
    t = g->decl->type_decl.type;
  }
  Name n = t->kind == N_TYPE_NAME && t->type_name.path.count == 1 ? t->type_name.path.items[0].name
                                                                  : NULL;
  int dt = n ? dtype_find(n) : -1;
  TypeWord w = clause_type_word(n);
  bool is_float = dt >= 0 ? dt_float((DType)dt) : w == TYPEWORD_FLOAT;
  if (m->field.is_buffer ? w == TYPEWORD_PARAMS || keeps(r, t, 0) : is_float) return;
  Diag *d = fail_report(s, ERR_INIT, m->field.type->span,
                        m->field.is_buffer ? "a buffer has tensors, numbers, texts, and tuples, "
                                             "records, lists and dicts of these, or `params[..]`"
                                           : "a param is a float tensor");
  dg_help(&s->diags, d,
          dt >= 0 || clause_type_word_is_class(w)
              ? "state that is not trained is a `buffer`"
              : "what stays as it is, is a `let` or a constructor argument");
}

static void walk_model(Resolver *r, Node *n) {
  Session *s = r->s;
  const NodeList *p = &n->model.params, *l = &n->model.members;
  size_t base = r->bind_count, before;
  Place place;
  rs_push_place(r, &place, P_MODEL, n, false);
  before = s->diags.errors;
  for (uint32_t i = 0; i < l->count; i++) {
    Name a = model_member_name(l->items[i]);
    if (!a) continue;
    Word w = {a, rs_member_span(l->items[i]), 0, NULL};
    if (module_name_is_fixed(a))
      fail_report(s, ERR_REDECLARE, w.span, "`%s` is built in and cannot be declared again", a);
    ptrdiff_t first = model_find(s, n, a) - (ptrdiff_t)p->count;
    if (first < 0) {
      Diag *d = fail_report(s, ERR_TWICE, w.span,
                            "`%s` is a constructor argument, and so a field already", a);
      dg_label(&s->diags, d, p->items[first + (ptrdiff_t)p->count]->span, "first here");
    } else if (first < (ptrdiff_t)i) {
      duplicate(r, "member", &w, rs_member_span(l->items[first]));
    }
  }
  walk_params(r, p, "constructor argument");
  rs_unbind(r, base);
  r->model = n;
  for (uint32_t i = 0; i < l->count && !rs_full(r); i++) {
    Node *m = l->items[i];
    r->members = i;
    r->method = false;
    if (m->kind == N_FIELD) {
      walk_field_type(r, m);
      if (m->field.init && m->field.init->kind == N_CALL)
        rs_walk_call(r, m->field.init, true);
      else
        rs_walk(r, m->field.init);
    } else if (m->kind == N_LET) {
      rs_walk(r, m->let.init);
      rs_walk_type(r, m->let.type, false);
    } else if (m->kind == N_ASSERT) {
      rs_walk(r, m->expr);
    }
  }
  if (s->diags.errors > before) n->flags |= ITEM_BAD;
  r->members = UINT32_MAX;
  r->method = true;
  for (uint32_t i = 0; i < l->count && !rs_full(r); i++) {
    if (l->items[i]->kind != N_FN) continue;
    size_t e = s->diags.errors;
    walk_fn(r, l->items[i], P_FN, !l->items[i]->fn->is_proc);
    if (s->diags.errors > e) l->items[i]->flags |= ITEM_BAD;
  }
  r->method = false;
  r->model = NULL;
  r->members = 0;
  rs_unbind(r, base);
  r->place = place.up;
}

/* Whether type t mentions `name`: a type may not hold itself (rule 39). */
static bool mentions_type(Resolver *r, const Node *t, Name name, int depth) {
  stack_check();
  if (!t || depth > 64) return false;
  switch ((NodeKind)t->kind) {
  case N_TYPE_NAME: {
    if (t->type_name.path.count != 1) return false;
    Name n = t->type_name.path.items[0].name;
    if (n == name) return true;
    Global *g = global_find(r->s, r->m, n);
    return g && g->kind == G_TYPE && g->module == r->m &&
           mentions_type(r, g->decl->type_decl.type, name, depth + 1);
  }
  case N_TYPE_LIST: return mentions_type(r, t->type_list, name, depth + 1);
  case N_TYPE_DICT:
    return mentions_type(r, t->entry.key, name, depth + 1) ||
           mentions_type(r, t->entry.value, name, depth + 1);
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
      if (mentions_type(r, p->kind == N_TYPE_FIELD ? p->type_field.type : p, name, depth + 1))
        return true;
    }
    return mentions_type(r, t->type_fn.result, name, depth + 1);
  default: return false;
  }
}

static void walk_type_decl(Resolver *r, Node *n) {
  Word *w = &n->type_decl.name;
  if (mentions_type(r, n->type_decl.type, w->name, 0)) {
    Diag *d = fail_report(r->s, ERR_TYPE, w->span, "the type `%s` contains itself", w->name);
    dg_help(
        &r->s->diags, d,
        "a list of values keeps parts of varying number; a model refers to others by reference");
    return;
  }
  rs_walk_type(r, n->type_decl.type, false);
}

static void walk_policy_decl(Resolver *r, Node *n) {
  size_t base = r->bind_count;
  Place p;
  rs_push_place(r, &p, P_FN, n, false);
  for (uint32_t i = 0; i < n->policy_decl.params.count; i++) {
    Node *x = n->policy_decl.params.items[i];
    rs_bind_word(r, &x->param.name, B_PARAM);
    rs_walk_type(r, x->param.type, false);
    rs_walk(r, x->param.init);
  }
  rs_walk_policy(r, &n->policy_decl.clauses, false);
  r->place = p.up;
  rs_unbind(r, base);
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
    rs_push_place(r, &p, P_TEST, n, false);
    r->drop = true;
    rs_walk(r, n->test.body);
    r->place = p.up;
    break;
  case N_LET: walk_top_let(r, n); break;
  default:
    r->drop = !r->shown;
    rs_walk(r, n);
    break;
  }
}

bool resolve_module(Session *s, Module *m) {
  size_t start = s->diags.errors;
  if (!m->ast) return true;
  Resolver r = {
      .s = s, .m = m, .first_top = {.arena = &s->scratch}, .last_top = {.arena = &s->scratch}};
  Place top;
  rs_push_place(&r, &top, P_TOP, m->ast, false);
  NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i]->kind == N_LET)
      collect_pat(&r, l->items[i]->let.pat, i, l->items[i]->let.is_var);
  for (uint32_t i = 0; i < l->count && !rs_full(&r); i++) {
    size_t before = s->diags.errors;
    r.item = i;
    rs_unbind(&r, 0);
    walk_item(&r, l->items[i]);
    if (s->diags.errors > before && l->items[i]->kind != N_MODEL) l->items[i]->flags |= ITEM_BAD;
  }
  return s->diags.errors == start;
}

bool resolve_statement(Session *s, Module *m, Node *st, bool shown) {
  size_t start = s->diags.errors;
  Resolver r = {.s = s,
                .m = m,
                .shown = shown,
                .first_top = {.arena = &s->scratch},
                .last_top = {.arena = &s->scratch}};
  Place top;
  rs_push_place(&r, &top, P_TOP, st, false);
  walk_item(&r, st);
  return s->diags.errors == start;
}
