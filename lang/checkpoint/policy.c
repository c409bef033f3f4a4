/* Policies: clauses of `checkpoint` and of `policy` declarations, evaluated (rules 82, 84, 86).
 *
 * In: clauses, in the frame of the block or, for a declared policy, in one of its module that holds
 * its parameters. Out: one flat list of rules, each with the tag of an op class or a name, and the
 * options. The words of the clauses are checked before, by resolve_clause.c; faults that depend on
 * values are found here: budgets, options that stand twice by way of a declared policy, clauses
 * that disagree.
 */
#include "lang/checkpoint/policy.h"

#include <string.h>

#include "lang/eval/bindings.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"

enum { POLICY_DEEP = 32 };

typedef struct Read {
  Session *s;
  Policy *p;
  bool loop, declared;
  int depth;
  Span use; /* the clause at the block */
} Read;

static bool same_path(const Words *a, const Words *b) {
  bool same = a->count == b->count;
  for (uint32_t i = 0; same && i < a->count; i++) same = a->items[i].name == b->items[i].name;
  return same;
}

static void add_rule(Read *r, Tag tag, Node *w) {
  Session *s = r->s;
  Policy *p = r->p;
  int cls = clause_opclass(&w->path);
  if (cls == OPCLASS_NONE) return;
  Rule n = {.tag = tag, .rank = 2, .path = w->path, .at = w->span, .own = true};
  if (cls >= 0) {
    n.rank = cls == OPCLASS_ALL ? 0 : 1;
    n.kind = n.rank ? (OpKind)(1 << cls) : 0;
  }
  n.met = n.rank == 0;
  for (size_t i = 0; i < p->count; i++) {
    Rule *o = &p->rules[i];
    if (o->rank != n.rank || o->tag == tag || !same_path(&o->path, &n.path)) continue;
    clause_disagree(s, n.at, fail_source_text(s, n.at, n.path.items[0].name), tag, o->at, o->tag);
    fail_raise(s);
  }
  VEC_PUSH(&s->scratch, p->rules, p->count, p->cap, n);
}

/* The value of an argument of a clause: a word is a name. */
static Value argument(Session *s, Node *a) {
  if (a->kind != N_WORD) return eval_expr(s, a);
  Value v = bind_name_value(s, a->path.items[0].name, a->path.items[0].span, true);
  if (a->path.count > 1)
    fail_at(s, ERR_POLICY_WORD, a->span, "a dotted argument stands in parentheses: `(a.b)`");
  return v;
}

static int64_t number(Read *r, const Clause *k, const Node *c, const char *what) {
  Session *s = r->s;
  Node *a = c->clause.args.items[0];
  Value v = argument(s, a);
  if (v.tag == V_UNKNOWN) return 1;
  if (v.tag != V_INT && v.tag != V_DIM)
    fail_help(s, ERR_POLICY_VALUE, a->span, clause_example(s, k), "%s is an int, not %s", what,
              v.tag == V_NODE ? "a number that is known only when the code runs"
                              : value_type_text(s, v));
  return want_int(s, v, a->span, what);
}

static void read_clauses(Read *r, const NodeList *clauses);

static void the_one(Read *r, Node *c) {
  Session *s = r->s;
  if (!r->p->fn_at.file) {
    r->p->fn_at = c->span;
    return;
  }
  Diag *d = fail_report(s, ERR_POLICY_TWICE, c->span, "a block takes one policy");
  dg_label(&s->diags, d, r->p->fn_at, "the first");
  dg_help(&s->diags, d, "`policy both { .. }` declares one that says all of it");
  fail_raise(s);
}

static void read_declared(Read *r, Node *decl, Module *m, size_t n, const Value *args, Span at) {
  Session *s = r->s;
  const NodeList *par = &decl->policy_decl.params;
  if (n != par->count) {
    Diag *d = fail_report(s, ERR_POLICY_WORD, at, "the policy `%s` takes %u argument%s, not %zu",
                          decl->policy_decl.name.name, par->count, par->count == 1 ? "" : "s", n);
    dg_label(&s->diags, d, decl->policy_decl.name.span, "declared here");
    fail_raise(s);
  }
  if (++r->depth > POLICY_DEEP)
    fail_at(s, ERR_POLICY_WORD, at, "the policy `%s` stands in itself",
            decl->policy_decl.name.name);
  Frame fr = *s->frame;
  fr.up = s->frame;
  fr.module = m;
  fr.base = s->local_count;
  fr.self = NULL;
  fr.model = NULL;
  fr.stage = NULL;
  fr.call = at;
  fr.what = decl->policy_decl.name.name;
  fr.path = NULL;
  s->frame = &fr;
  for (uint32_t i = 0; i < par->count; i++) {
    Node *p = par->items[i];
    Value v =
        p->param.type
            ? type_match(s, p->param.type, args[i], at,
                         &(Subject){.text = {"argument `", p->param.name.name, "` of the policy `",
                                             decl->policy_decl.name.name, "`"}})
            : args[i];
    local_push(s, p->param.name.name, v, false, p->param.name.span);
  }
  Span fn_at = r->p->fn_at; /* the declared policy may have a function of its own */
  bool declared = r->declared;
  r->p->fn_at = (Span){0};
  r->declared = true;
  read_clauses(r, &decl->policy_decl.clauses);
  r->declared = declared;
  r->p->fn_at = fn_at;
  local_pop(s, fr.base);
  s->frame = fr.up;
  r->depth--;
}

/* Reads a policy by name: a declared one, a function, or a variable that holds either. */
static void read_named(Read *r, Node *c) {
  Session *s = r->s;
  const Words *path = &c->clause.path;
  Name w = path->items[0].name;
  Value v = bind_name_value(s, w, path->items[0].span, false);
  Global *g = NULL;
  if (v.tag == V_MODULE && path->count == 2) {
    g = global_find(s, v.u.module, path->items[1].name);
    v = g && g->kind == G_FN ? g->v : v_unit();
    if (g && g->kind == G_POLICY) v = policy_value(s, g->decl, g->module, 0, NULL);
  }
  if (v.tag == V_UNKNOWN && s->abstract) return;
  if (v.tag != V_POLICY && v.tag != V_FN) {
    bool value = v.tag != V_UNKNOWN && v.tag != V_UNIT && v.tag != V_BUILTIN && v.tag != V_MODEL &&
                 v.tag != V_MODULE && v.tag != V_DTYPE;
    if (value)
      fail_help(s, ERR_POLICY_WORD, c->span, fail_text(s, "`%s` is %s", w, value_type_text(s, v)),
                "no policy word or policy is called `%s`", clause_path(s, path));
    clause_unknown(s, s->frame->module, CLAUSE_POLICY, c);
    fail_raise(s);
  }
  the_one(r, c);
  size_t n = c->clause.args.count;
  Value *args = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) args[i] = argument(s, c->clause.args.items[i]);
  if (v.tag == V_FN) {
    if (r->p->fn.tag != V_UNIT)
      fail_at(s, ERR_POLICY_TWICE, c->span, "a block takes one function as its policy");
    r->p->fn = v;
    r->p->extra_count = n;
    r->p->extra = args;
    return;
  }
  PolicyObj *o = (PolicyObj *)v.u.o;
  if (n == 0) {
    n = o->count;
    args = o->args;
  } else if (o->count) {
    fail_at(s, ERR_POLICY_WORD, c->span, "the policy `%s` has its arguments already", w);
  }
  read_declared(r, o->decl, o->module, n, args, c->span);
}

/* ---- the words, by their arguments */

static void read_names(Read *r, const Node *c) {
  uint32_t from;
  Tag tag = clause_tag(c, &from);
  bool recompute = tag_says(tag, CHOICE_RECOMPUTE);
  r->p->recomputes |= recompute;
  r->p->keeps |= !recompute;
  for (uint32_t i = from; i < c->clause.args.count; i++) add_rule(r, tag, c->clause.args.items[i]);
}

static void read_bytes(Read *r, const Clause *k, const Node *c, int64_t *n) {
  *n = number(r, k, c, "a budget");
  if (*n < 0)
    fail_help(r->s, ERR_POLICY_VALUE, c->clause.args.items[0]->span,
              "a budget of 0 asks for the least that is possible, and is told it",
              "a budget is a number of bytes, not %lld", (long long)*n);
}

static void read_iterations(Read *r, const Clause *k, const Node *c, int64_t *n) {
  *n = number(r, k, c, k->id == POLICY_every ? "the number of iterations" : "the number of states");
  if (*n < 1)
    fail_at(r->s, ERR_POLICY_VALUE, c->clause.args.items[0]->span, "`%s` takes 1 or more, not %lld",
            k->word, (long long)*n);
}

/* Reads an option: a word that may stand only once, also by way of a declared policy. */
static void read_option(Read *r, const Clause *k, const Node *c) {
  struct Said *said = r->p->said;
  for (size_t i = 0; i < clause_count; i++) {
    const Clause *o = &clause_table[i];
    if (!clause_options_clash(o, k) || !said[o->id].at.file) continue;
    clause_clash(r->s, ERR_POLICY_TWICE, c, o->word, said[o->id].at);
    fail_raise(r->s);
  }
  said[k->id].at = c->span;
  if (k->takes == TAKES_BYTES) read_bytes(r, k, c, &said[k->id].n);
  if (k->takes == TAKES_ITERATIONS) read_iterations(r, k, c, &said[k->id].n);
}

static void read_clause(Read *r, Node *c) {
  const Clause *k = clause_of(CLAUSE_POLICY, c);
  if (!k && !c->clause.as.name)
    read_named(r, c);
  else if (!clause_fits_policy(r->s, k, c, r->loop && !r->declared))
    fail_raise(r->s);
  else if (clause_is_option(k))
    read_option(r, k, c);
  else
    read_names(r, c);
}

static void read_clauses(Read *r, const NodeList *clauses) {
  stack_check();
  for (uint32_t i = 0; i < clauses->count; i++) {
    if (r->depth == 0) r->use = clauses->items[i]->span;
    read_clause(r, clauses->items[i]);
  }
}

static Policy empty(void) {
  return (Policy){.fn = v_unit()};
}

/* The clauses as written, blanks and newlines as one blank. */
static Name clause_text(Session *s, const NodeList *clauses) {
  if (!clauses->count) return names_of(s->names, "");
  Span at = clauses->items[0]->span, end = clauses->items[clauses->count - 1]->span;
  const Source *f = src_get(&s->sources, at.file);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (uint32_t i = at.lo; i < end.hi && i < f->length; i++) {
    char c = f->text[i];
    if (c == '\n' || c == '\t' || c == ' ') {
      if (b.n && b.s[b.n - 1] != ' ') buf_putc(&b, ' ');
    } else if (c == '#') {
      while (i < end.hi && f->text[i] != '\n') i++;
    } else {
      buf_putc(&b, c);
    }
  }
  return names_of(s->names, b.s ? b.s : "");
}

void policy_read(Session *s, const NodeList *clauses, bool loop, Policy *out) {
  *out = empty();
  out->text = clause_text(s, clauses);
  Read r = {.s = s, .p = out, .loop = loop};
  read_clauses(&r, clauses);
}

void policy_of_value(Session *s, Value policy, Span at, Policy *out) {
  *out = empty();
  out->layer = true;
  Read r = {.s = s, .p = out, .use = at, .depth = 1, .declared = true};
  value_pool(s, policy);      /* a policy function may give its layer another policy */
  if (policy.tag == V_BOOL) { /* a plain block */
    out->text = names_of(s->names, "");
    return;
  }
  if (policy.tag == V_FN) {
    out->fn = policy;
    out->fn_at = at;
    out->text =
        names_of(s->names, policy.u.fn->decl->fn->name.name ? policy.u.fn->decl->fn->name.name
                                                            : "function literal");
    return;
  }
  PolicyObj *o = (PolicyObj *)policy.u.o;
  out->text = o->decl->policy_decl.name.name;
  read_declared(&r, o->decl, o->module, o->count, o->args, at);
  for (size_t i = 0; i < out->count; i++) out->rules[i].own = out->rules[i].rank == 2;
}

Value policy_value(Session *s, Node *decl, Module *m, size_t n, const Value *args) {
  PolicyObj *o = mem_need(&s->mem, NULL, 0, sizeof *o);
  *o = (PolicyObj){.o = {.rc = 1, .s = s, .tag = V_POLICY}, .decl = decl, .module = m};
  s->count.values_live++;
  Value v = {.tag = V_POLICY, .u.o = &o->o};
  mem_pool_add(&s->mem, &o->o, (void (*)(void *))obj_release);
  if (n) {
    o->args = mem_need(&s->mem, NULL, 0, n * sizeof *o->args);
    memcpy(o->args, args, n * sizeof *o->args);
    for (size_t i = 0; i < n; i++) value_retain(args[i]);
    o->count = n;
  }
  return v;
}
