/* Assignments: `place = e`, `place op= e` and `place .= f(a)` (rules 34, 60).
 *
 * In: the statement. Out: the variable, field, param or buffer at the root of the place has its new
 * value; parts below the root (items, fields of records, elements) change in a copy, or where they
 * are, if nothing else holds them (owned.h). Order: the value, then the expressions of the place
 * from left to right, each once, and only then is the place read and written; with `.=` the
 * expressions of the place come first. So no assignment inside of the place's own expressions is
 * lost. Calls by the place of builtins that may change it where it is are a chain, with `.=` or
 * written out: the place changes as a whole, or, if one of them fails, not at all.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/check/check.h"
#include "lang/eval/bindings.h"
#include "lang/eval/eval.h"
#include "lang/eval/index.h"
#include "lang/eval/known.h"
#include "lang/eval/model.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/owned.h"
#include "lang/eval/state.h"
#include "lang/eval/steps.h"
#include "lang/lang.h"
#include "lang/names/module.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"

/* A part of a place, below its root: `.name` or an index. */
typedef struct Part {
  Node *node;
  Index index; /* N_INDEX */
} Part;

typedef struct Place {
  Session *s;
  Node *st; /* the statement */
  Value v;  /* its right side */
  Node *root;
  Value base;   /* value of a root that is not a name */
  size_t mark;  /* of the pool, where the statement began */
  AstOp op;     /* NONE for `.=`: v is the new value */
  bool open;    /* it is in an open buffer */
  bool changed; /* the value of the place was, already; `parts`: its owned_parts before */
  uint32_t parts;
  size_t count;
  Part *part;
  /* Of an open buffer that changes where it is: it, and the part where its value begins. */
  Inst *inst;
  Field *field;
  size_t from;
} Place;

/* A call of a builtin that may change its first argument where it is. */
typedef struct Link {
  const Builtin *b;
  Node *call;
  Span at; /* of the first argument */
  Args a;
} Link;

/* Calls, each the first argument of the next; `from` stands where the first one has the place. */
typedef struct Chain {
  size_t count;
  Link *link;
  Node *from;
} Chain;

static bool one_item(const Part *p) {
  return p->index.count == 1 && ast_is_expr(p->index.part[0].node);
}

static Value put(const Place *p, size_t k, Value old, bool own);

/* The open buffer of script that the place is, or is in. NULL: it is no such place. */
static Field *open_buffer(const Place *p, Inst **inst, size_t *from) {
  Session *s = p->s;
  Value v = v_unit();
  *from = 0;
  if (!owned_on(s) || !s->frame) return NULL;
  if (p->root->kind == N_SELF && s->frame->self)
    v = (Value){.tag = V_INST, .u.inst = s->frame->self};
  if (p->root->kind == N_NAME) {
    const Local *l = local_find(s, p->root->name);
    Field *f = !l && s->frame->self ? model_field(s->frame->self, p->root->name) : NULL;
    const Global *g = l || f ? NULL : global_find(s, s->frame->module, p->root->name);
    *inst = s->frame->self;
    if (f && f->open) return f;
    v = l ? l->v : f ? f->v : g && g->kind == G_VALUE && g->is_set ? g->v : v;
  }
  if (v.tag != V_INST || !p->count || p->part[0].node->kind != N_DOT) return NULL;
  *inst = v.u.inst;
  *from = 1;
  Field *f = model_field(*inst, p->part[0].node->dot.name.name);
  return f && f->open ? f : NULL;
}

/* v as what stands at the place, in an open buffer; with `more` as what is added to the value
 * there, which has `count` elements. */
static Value fitted(const Place *p, Value v, bool more, size_t count) {
  Session *s = p->s;
  size_t n = p->count - p->from, added;
  StateStep *step = ARENA_ARRAY(&s->scratch, StateStep, n + 1);
  for (size_t k = p->from; k < p->count; k++) {
    const Part *part = &p->part[k];
    bool dot = part->node->kind == N_DOT;
    step[k - p->from] =
        (StateStep){dot ? part->node->dot.name.name : NULL, dot ? v_unit() : part->index.part[0].v};
  }
  if (!more || v.tag != V_LIST)
    return state_part_fitted(s, p->inst, p->field, n, step, v, p->st->span);
  Value *items = value_parts(s, v, &added);
  for (size_t i = 0; i < added; i++) {
    step[n] = (StateStep){NULL, v_int((int64_t)(count + i))};
    items[i] = state_part_fitted(s, p->inst, p->field, n + 1, step, items[i], p->st->span);
  }
  return v_list(s, V_LIST, added, items);
}

/* Numbers in brackets become a tensor; in an open buffer its type says what they are. */
static Value definite(const Place *p, Value v) {
  return p->open ? v : bind_made_definite(p->s, v, p->st->span);
}

/* The value of a key of `old`, a dict, becomes part k of the place. The last part may add a key. */
static Value put_entry(const Place *p, size_t k, Value old, bool own) {
  Session *s = p->s;
  const Part *part = &p->part[k - 1];
  Value key = index_key(s, &part->index);
  if (key.tag == V_UNKNOWN) return key;
  bool adds = k == p->count && p->op == AST_NONE;
  Value *slot = adds ? dict_find(old.u.dict, key)
                     : dict_need(s, old.u.dict, key, part->index.part[0].node->span);
  Value was = slot ? *slot : v_unit();
  uint32_t before = k == p->count && p->changed ? p->parts : owned_parts(was);
  Value v = definite(p, put(p, k, was, own && slot && owned_alone(s, was)));
  if (!own) old = value_like(s, old, value_items(old, &(size_t){0}));
  if (slot)
    owned_item(old.u.o, dict_find(old.u.dict, key), v, before);
  else
    dict_put(s, old.u.dict, key, v);
  return old;
}

/* Item `slot` of `old`, a list or record, becomes part k of the place: in `old`, if `own`, or in a
 * copy. */
static Value put_item(const Place *p, size_t k, Value old, size_t i, bool own) {
  bool list = old.tag == V_LIST;
  Value *slot = list ? &old.u.list->items[i] : &old.u.rec->items[i];
  uint32_t before = k == p->count && p->changed ? p->parts : owned_parts(*slot);
  Value v = definite(p, put(p, k, *slot, own && owned_alone(p->s, *slot)));
  Value to = own    ? old
             : list ? v_list(p->s, V_LIST, old.u.list->count, old.u.list->items)
                    : v_record(p->s, old.u.rec->count, old.u.rec->names, old.u.rec->items);
  owned_item(to.u.o, list ? &to.u.list->items[i] : &to.u.rec->items[i], v, before);
  return to;
}

/* `old` is the value before part k; `own`: nothing but the place holds it. Returns it with the
 * place assigned. */
static Value put(const Place *p, size_t k, Value old, bool own) {
  stack_check();
  Session *s = p->s;
  Node *st = p->st;
  AstOp op = p->op;
  if (k == p->count) {
    if (own && op == AST_ADD && old.tag == V_STR && p->v.tag == V_STR)
      return owned_text(s, old, p->v.u.str);
    Value v = op == AST_NONE ? p->v
                             : op_binary(s, op, old, p->v, st->span, st->assign.target->span,
                                         st->assign.value->span);
    return p->field && !p->changed ? fitted(p, v, false, 0) : v;
  }
  const Part *part = &p->part[k];
  Span at = part->node->span;
  if (old.tag == V_UNKNOWN) return old;
  if (part->node->kind == N_INDEX) {
    if (old.tag == V_DICT) return put_entry(p, k + 1, old, own);
    if (k + 1 != p->count && old.tag != V_LIST)
      fail_help(s, ERR_ASSIGN, at, "one index says all: `m[0, 1] = e`",
                "only the last part of an assigned path may index a tensor");
    if (old.tag == V_LIST && !old.u.list->weak) {
      if (!one_item(part))
        fail_help(s, ERR_INDEX_COUNT, at, "`concat(xs[:1], ys, xs[2:])` makes the list of parts",
                  "one element of a list is assigned at a time");
      if (part->index.part[0].v.tag == V_UNKNOWN) return part->index.part[0].v;
      size_t i = index_item(s, &part->index, old.u.list->count, "a list");
      return put_item(p, k + 1, old, i, own);
    }
    if (own && owned_elements(s, old, &part->index, op, p->v, st->span)) return old;
    return op_index_put(s, old, &part->index, op, p->v, st->span);
  }
  if (part->node->kind == N_DOT && old.tag == V_RECORD) {
    Name f = part->node->dot.name.name;
    for (size_t i = 0; i < old.u.rec->count; i++)
      if (old.u.rec->names[i] == f) return put_item(p, k + 1, old, i, own);
    fail_at(s, ERR_NO_FIELD, part->node->dot.name.span, "%s has no field `%s`",
            value_type_text(s, old), f);
  }
  if (old.tag == V_STR)
    fail_help(s, ERR_ASSIGN, at, "`s = s[:i] + \"x\" + s[i + 1:]` makes the text of parts",
              "a part of a text cannot be assigned");
  if (old.tag == V_DICT)
    fail_help(s, ERR_ASSIGN, at, "`d[\"name\"] = e`",
              "an element of a dict is assigned by its key");
  fail_at(s, ERR_ASSIGN, at, "a part of %s cannot be assigned", value_type_text(s, old));
}

/* Elements of a param, whose index is part k, change where they are. False: nothing was done. */
static bool put_param(const Place *p, Param *q, size_t k) {
  return k + 1 == p->count && p->part[k].node->kind == N_INDEX &&
         owned_param(p->s, q, &p->part[k].index, p->op, p->v, p->st->span);
}

/* Assigns to field f of inst, or, below it, to the parts from k on. */
static void assign_field(const Place *p, Inst *inst, Name f, size_t k, Span at) {
  Session *s = p->s;
  Field *field = model_field(inst, f);
  if (!field) {
    if (model_method(s, inst->model, f))
      fail_at(s, ERR_ASSIGN, at, "`%s` is a method of `%s`", f, inst->model->name);
    fail_at(s, ERR_NO_FIELD, at, "`%s` has no field `%s`", inst->model->name, f);
  }
  if (field->kind == FIELD_ARG || field->kind == FIELD_LET)
    fail_help(s, ERR_ASSIGN_LET, at, "a value that changes is a `buffer`",
              "`%s` is a %s of `%s` and stays as it is", f,
              field->kind == FIELD_ARG ? "constructor argument" : "`let`", inst->model->name);
  bool reads = k < p->count || p->op != AST_NONE;
  if (field->kind == FIELD_PARAM && field->v.tag == V_PARAM && put_param(p, field->v.u.p, k))
    return;
  bool kept = field->kind == FIELD_BUFFER && (field->open || field->v.tag == V_TENSOR);
  bool own = kept && owned_alone(s, field->v);
  Value old = own || !reads ? field->v : state_read(s, inst, field, at);
  Place q = *p;
  q.open = field->open;
  if (own && field->open) q.inst = inst, q.field = field, q.from = k;
  Value nv = reads ? put(&q, k, old, own) : p->v;
  bool changed = field->open && nv.tag == field->v.tag && v_counted(nv) && nv.u.o == field->v.u.o;
  if (!changed || (!q.field && !p->changed)) state_write(s, inst, field, nv, p->st->span);
}

/* Is l a parameter of the running function? */
static bool is_argument(const Session *s, const Local *l) {
  const NodeList *p = s->frame->fn ? &s->frame->fn->decl->fn->params : NULL;
  for (uint32_t i = 0; p && i < p->count; i++) {
    Span at = p->items[i]->param.name.span;
    if (at.file == l->span.file && at.lo == l->span.lo) return true;
  }
  return false;
}

/* Assigns to the field behind the longest prefix that is an instance. False: there is none. */
static bool assign_instance(const Place *p, Value cur) {
  for (size_t i = 0; i < p->count; i++) {
    const Node *n = p->part[i].node;
    Name name = n->kind == N_DOT ? n->dot.name.name : NULL;
    if (i && cur.tag == V_UNKNOWN) return true; /* `check`: it may be an instance */
    if (cur.tag == V_INST && name) {
      Field *f = model_field(cur.u.inst, name);
      if (f && (f->kind == FIELD_LET || f->kind == FIELD_ARG) && i + 1 < p->count) {
        cur = f->v;
        continue;
      }
      assign_field(p, cur.u.inst, name, i + 1, n->dot.name.span);
      return true;
    }
    /* items of lists, records and dicts only lead on to instances: blocks[i].w = e */
    if (cur.tag == V_LIST && !name && one_item(&p->part[i])) {
      const List *l = cur.u.list;
      Value iv = p->part[i].index.part[0].v;
      if (iv.tag == V_UNKNOWN) return i + 1 < p->count;
      if (iv.tag != V_INT || iv.u.i >= (int64_t)l->count || iv.u.i < -(int64_t)l->count)
        return false;
      cur = l->items[index_item(p->s, &p->part[i].index, l->count, "a list")];
    } else if (cur.tag == V_RECORD && name) {
      const Value *f = value_record_get(cur.u.rec, name);
      if (!f) return false;
      cur = *f;
    } else if (cur.tag == V_DICT && !name && i + 1 < p->count) {
      Value key = index_key(p->s, &p->part[i].index);
      if (key.tag == V_UNKNOWN) return true;
      const Value *f = dict_find(cur.u.dict, key);
      if (!f) return false;
      cur = *f;
    } else {
      return false;
    }
  }
  return false;
}

static void assign_param(const Place *p, Param *q) {
  Session *s = p->s;
  if (put_param(p, q, 0)) return;
  bool reads = p->count || p->op != AST_NONE;
  Value nv = put(p, 0, reads ? param_read(s, q, p->root->span) : v_unit(), false);
  param_write(s, q, nv, p->st->span);
}

static void assign_name(const Place *p) {
  Session *s = p->s;
  Node *root = p->root, *st = p->st;
  Local *l = local_find(s, root->name);
  Global *g = NULL;
  Value old = v_unit();
  if (l) {
    old = l->v;
  } else if (s->frame->self && model_field(s->frame->self, root->name)) {
    const Field *f = model_field(s->frame->self, root->name);
    bool fixed = f->kind == FIELD_LET || f->kind == FIELD_ARG;
    if (!fixed || !assign_instance(p, f->v))
      assign_field(p, s->frame->self, root->name, 0, root->span);
    return;
  } else {
    g = global_find(s, s->frame->module, root->name);
    if (!g) bind_name_value(s, root->name, root->span, true);
    if (g && g->kind == G_VALUE && s->abstract && g->moves)
      old = (Value){.tag = V_UNKNOWN};
    else if (g && g->kind == G_VALUE)
      old = g->is_var && g->is_set ? g->v : bind_global_value(s, g, root->span);
    if (g && g->kind != G_VALUE)
      fail_at(s, ERR_ASSIGN, root->span, "`%s` is a declaration and cannot be assigned",
              root->name);
    if (!g)
      fail_at(s, ERR_ASSIGN, root->span, "`%s` is built in and cannot be assigned", root->name);
  }
  if (assign_instance(p, old)) return;
  bool is_var = l ? l->is_var : g->is_var;
  if (old.tag == V_PARAM && !is_var) {
    assign_param(p, old.u.p);
    return;
  }
  /* `check`: a param, or an unknown value that may be one */
  if (!is_var && (old.tag == V_UNKNOWN || abstract_param(s, old))) return;
  if (!is_var) {
    bool given = l && is_argument(s, l);
    Diag *d = fail_report(s, ERR_ASSIGN_LET, st->assign.target->span,
                          "`%s` is a %s and cannot be assigned", root->name,
                          given ? "parameter" : "`let`");
    dg_label(&s->diags, d, l ? l->span : g->span, "declared here");
    dg_help(&s->diags, d,
            given ? "copy it to a `var`: `var now = %s`"
            : st->assign.target->kind != N_DOT
                ? "declare it with `var %s = ..`"
                : "declare it with `var %s = ..`; an element of a list is changed by its index, "
                  "`xs[i].x = e`",
            root->name);
    fail_raise(s);
  }
  if (s->frame->fixed && (g || (size_t)(l - s->locals) + 1 < s->frame->fixed)) {
    Diag *d = fail_report(s, ERR_ASSIGN, root->span,
                          "a comprehension cannot assign the outer `var` `%s`", root->name);
    dg_label(&s->diags, d, l ? l->span : g->span, "declared here");
    dg_help(&s->diags, d, "a `for` loop may");
    fail_raise(s);
  }
  if (g && s->frame->code)
    fail_help(s, ERR_CODE_VAR, root->span, "give the new value as a result, or keep it in a buffer",
              "code cannot assign the top-level `var` `%s`", root->name);
  Value nv = bind_made_definite(s, put(p, 0, old, owned_alone(s, old)), st->span);
  name_variable(s, root->name, nv);
  /* `check`: a function assigns a variable of the file, at calls that are not known */
  if (g && s->abstract && s->frame->fn && nv.tag != V_NODE) nv = (Value){.tag = V_UNKNOWN};
  value_set(l ? &l->v : &g->v, nv);
}

/* ---- x .= f(a) */

/* The builtin that is called by `n`, if it may change its first argument where it is. */
static const Builtin *updater(Session *s, Name f) {
  const Builtin *b = builtin_find(s, f);
  if (!b || !(b->flags & BI_OWNS)) return NULL;
  Value v = bind_name_value(s, f, (Span){0}, false);
  return v.tag == V_BUILTIN && v.u.builtin == b ? b : NULL;
}

/* The value of the place, whose expressions were evaluated. */
static Value place_value(const Place *p) {
  Session *s = p->s;
  Value v =
      p->root->kind == N_NAME ? bind_name_value(s, p->root->name, p->root->span, true) : p->base;
  for (size_t k = 0; k < p->count; k++) {
    const Node *n = p->part[k].node;
    v = n->kind == N_INDEX ? op_index(s, v, &p->part[k].index) : eval_field(s, v, n);
  }
  return v;
}

/* The variable of script called that; NULL: it is none. */
static Value *variable(Session *s, const Node *n) {
  if (n->kind != N_NAME) return NULL;
  Local *l = local_find(s, n->name);
  if (l) return l->is_var ? &l->v : NULL;
  if (s->frame->self && model_field(s->frame->self, n->name)) return NULL;
  Global *g = global_find(s, s->frame->module, n->name);
  return g && g->kind == G_VALUE && g->is_var && g->is_set ? &g->v : NULL;
}

/* Whether the place still holds the object v, with `alone`: and each object on the way to it is
 * held by the one before alone, as v is by the last. */
static bool holds(Place *p, Value v, bool alone) {
  if (p->s->frame->fixed || p->s->frame->code) return false; /* it may not be assigned */
  const Value *slot = variable(p->s, p->root);
  size_t from = 0;
  p->field = slot ? NULL : open_buffer(p, &p->inst, &from);
  p->from = from;
  if (p->field) slot = &p->field->v;
  if (!slot || !v_counted(v)) return false;
  for (size_t k = from; k < p->count; k++) {
    const Part *part = &p->part[k];
    if (alone && !owned_alone(p->s, *slot)) return false;
    if (part->node->kind == N_DOT) {
      slot =
          slot->tag == V_RECORD ? value_record_get(slot->u.rec, part->node->dot.name.name) : NULL;
    } else if (slot->tag == V_DICT) {
      const Value *key = one_item(part) ? &part->index.part[0].v : NULL;
      slot = key && dict_is_key(*key) ? dict_find(slot->u.dict, *key) : NULL;
    } else if (slot->tag == V_LIST && one_item(part) && part->index.part[0].v.tag == V_INT) {
      const IndexPart *x = &part->index.part[0];
      int64_t i = x->v.u.i + (index_from_end(x->node) ? (int64_t)slot->u.list->count : 0);
      slot = i >= 0 && (size_t)i < slot->u.list->count ? &slot->u.list->items[i] : NULL;
    } else {
      return false;
    }
    if (!slot) return false;
  }
  return slot->tag == v.tag && slot->u.o == v.u.o && (!alone || owned_alone(p->s, v));
}

/* What stays on the pool while the statement looks who holds its place, besides x and what the
 * links were given. */
static void settle(const Place *p, const Chain *c, Value x) {
  size_t k = 3;
  for (size_t i = 0; c && i < c->count; i++) k += c->link[i].a.count;
  for (size_t i = 0; i < p->count; i++) k += 4 * p->part[i].index.count;
  Value *keep = ARENA_ARRAY(&p->s->scratch, Value, k);
  k = 0;
  keep[k++] = p->v;
  keep[k++] = p->base;
  keep[k++] = x;
  for (size_t i = 0; c && i < c->count; i++)
    for (size_t j = 1; j < c->link[i].a.count; j++) keep[k++] = c->link[i].a.v[j];
  for (size_t i = 0; i < p->count; i++)
    for (size_t j = 0; j < p->part[i].index.count; j++) {
      const IndexPart *at = &p->part[i].index.part[j];
      keep[k++] = at->v;
      keep[k++] = at->lo;
      keep[k++] = at->hi;
      keep[k++] = at->step;
    }
  owned_settle(p->s, p->mark, k, keep);
}

/* Whether reading e runs nothing, so that it may be read once more. */
static bool plain(const Node *e) {
  stack_check();
  switch ((NodeKind)e->kind) {
  case N_NAME:
  case N_SELF:
  case N_INT:
  case N_BOOL: return true;
  case N_DOT: return plain(e->dot.object);
  case N_UNARY: return index_from_end(e);
  case N_BINARY:
    if (e->binary.op != AST_ADD && e->binary.op != AST_SUB && e->binary.op != AST_MUL) return false;
    return plain(e->binary.left) && plain(e->binary.right);
  case N_STRING:
    for (uint32_t i = 0; i < e->string.count; i++)
      if (e->string.items[i].hole) return false;
    return true;
  case N_TUPLE:
    for (uint32_t i = 0; i < e->list.count; i++)
      if (!plain(e->list.items[i])) return false;
    return true;
  case N_INDEX:
    return plain(e->index.object) && e->index.items.count == 1 && plain(e->index.items.items[0]);
  default: return false;
  }
}

/* The value of e, which is plain and was read in this statement before. False: it is not simple to
 * tell. Nothing fails, whatever the arguments have assigned since. */
static bool peek(Session *s, Node *e, Value *v) {
  stack_check();
  Value a, b;
  if (e->kind == N_DOT) {
    if (!peek(s, e->dot.object, &a) || (a.tag != V_RECORD && a.tag != V_INST)) return false;
    const Field *of = a.tag == V_INST ? model_field(a.u.inst, e->dot.name.name) : NULL;
    const Value *f = a.tag == V_RECORD ? value_record_get(a.u.rec, e->dot.name.name)
                     : of              ? &of->v
                                       : NULL;
    if (f) *v = *f;
    return f && f->tag != V_PARAM;
  }
  if (e->kind == N_BINARY)
    return peek(s, e->binary.left, &a) && peek(s, e->binary.right, &b) &&
           known_op(e->binary.op, a, b, v);
  if (e->kind == N_TUPLE) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, e->list.count + 1);
    for (uint32_t i = 0; i < e->list.count; i++)
      if (!peek(s, e->list.items[i], &items[i])) return false;
    *v = v_list(s, V_TUPLE, e->list.count, items);
    return true;
  }
  if (e->kind == N_INDEX) return false;
  *v = eval_expr(s, e);
  return true;
}

/* The expressions of a plain place, after the value of the statement. */
static bool peek_place(Place *p) {
  if (p->root->kind != N_NAME && !peek(p->s, p->root, &p->base)) return false;
  for (size_t i = 0; i < p->count; i++) {
    Node *n = p->part[i].node;
    if (n->kind != N_INDEX) continue;
    IndexPart *x = ARENA_NEW(&p->s->scratch, IndexPart);
    *x = (IndexPart){.node = n->index.items.items[0]};
    if (!peek(p->s, x->node, &x->v)) return false;
    p->part[i].index = (Index){n, 1, x};
  }
  return true;
}

/* The first argument of a call, and the name that is called; NULL: there is none by position. */
static Node *first_of(const Node *call, Name *called) {
  const Node *c = call->call.callee;
  *called = c->kind == N_DOT ? c->dot.name.name : c->kind == N_NAME ? c->name : NULL;
  if (c->kind == N_DOT) return c->dot.object;
  const Node *a = *called && call->call.args.count ? call->call.args.items[0] : NULL;
  return a && !a->arg.name.name ? a->arg.value : NULL;
}

/* Whether the value of the statement is a chain of such builtins that begins with the place. */
static APART bool chain_of(Session *s, const Node *st, Chain *c) {
  Node *e = st->assign.value;
  Name called;
  size_t n = 0;
  *c = (Chain){0};
  if (st->assign.op != AST_NONE && st->assign.op != AST_UPDATE) return false;
  for (; e && e->kind == N_CALL; n++) e = first_of(e, &called);
  if (!e || !n) return false;
  if (st->assign.op == AST_UPDATE ? e->kind != N_PLACE
                                  : !ast_equal(e, st->assign.target) || !plain(e))
    return false;
  Link *l = ARENA_ARRAY(&s->scratch, Link, n);
  e = st->assign.value;
  for (size_t i = n; i-- > 0; l[i].at = e->span) {
    l[i] = (Link){.call = e};
    e = first_of(e, &called);
    l[i].b = updater(s, called);
    if (!l[i].b) return false;
  }
  *c = (Chain){.count = n, .link = l, .from = e};
  return true;
}

/* Calls the links from `lo` to before `hi`, the first with x. Of two of them the second changes the
 * result of the first, unless that has other holders, too. `own`: all of them change x. */
static Value call_links(Place *p, Chain *c, size_t lo, size_t hi, Value x, bool own) {
  Session *s = p->s;
  for (size_t i = lo; i < hi && own; i++) count_step(s, c->link[i].call->span);
  for (size_t i = lo; i < hi; i++) {
    Args *a = &c->link[i].a;
    if (i && !own) settle(p, c, x); /* from now on the pool holds it once */
    a->v[0] = x;
    a->own = own || (i && owned_alone(s, x));
    if (a->own && !own) count_step(s, c->link[i].call->span);
    fail_running_at(s, c->link[i].call->span);
    x = builtin_call(s, c->link[i].b, a, c->link[i].call);
  }
  return x;
}

/* The same for `old`, which an open buffer alone holds: only what is added is looked at, and before
 * anything changes. */
static Value call_links_open(Place *p, Chain *c, const Sure *m, Value old) {
  Session *s = p->s;
  Value *more = ARENA_ARRAY(&s->scratch, Value, c->count);
  size_t n, at = m->count - m->fresh; /* where, in the end, the added begin */
  for (size_t i = 0; i < c->count; i++) count_step(s, c->link[i].call->span);
  for (size_t i = 0; i < c->count; i++) {
    Link *l = &c->link[i];
    if (!(l->b->flags & BI_GROWS)) continue;
    l->a.own = true; /* its step is counted */
    l->a.v[0] = old.tag == V_DICT ? v_dict_room(s, 0) : v_list(s, V_LIST, 0, NULL);
    fail_running_at(s, l->call->span);
    more[i] = fitted(p, builtin_call(s, l->b, &l->a, l->call), true, at);
    value_items(more[i], &n);
    at += n;
  }
  for (size_t i = 0; i < c->count; i++) {
    Link *l = &c->link[i];
    l->a.v[0] = old;
    l->a.own = true;
    if (l->b->flags & BI_GROWS)
      owned_grow(s, old, more[i]);
    else
      builtin_call(s, l->b, &l->a, l->call);
  }
  return old;
}

/* The value of the statement, by the place as it is before the links are called. */
static Value chain_by(Place *p, Value old) {
  Session *s = p->s;
  const Value *before = s->place;
  s->place = &old;
  Value v = eval_expr(s, p->st->assign.value);
  s->place = before;
  return v;
}

/* The value of a chain. As long as it is sure that no link fails, and so nobody could see the place
 * changed by a part of the chain, links wait until the arguments of all are evaluated. */
static APART Value chain_value(Place *p, Chain *c) {
  Session *s = p->s;
  bool update = p->st->assign.op == AST_UPDATE, waits = true;
  Value old = update ? place_value(p) : eval_expr(s, c->from), x = old;
  if ((old.tag != V_LIST && old.tag != V_DICT) || old.u.o->params) return chain_by(p, old);
  Sure m = owned_sure_of(old);
  for (size_t i = 0; i < c->count; i++) {
    Link *l = &c->link[i];
    NodeList rest = l->call->call.args;
    if (l->call->call.callee->kind == N_NAME) rest.items++, rest.count--;
    l->a = eval_args(s, &rest, &x, l->at, l->call->span);
    if (s->flow != FLOW_NEXT) return v_unit();
    if (!waits) x = l->a.v[0]; /* its params may have been written */
    if (waits) owned_sure(s, &m, l->b, &l->a);
    if (waits && (m.sure || i + 1 == c->count)) continue;
    x = call_links(p, c, waits ? 0 : i, i + 1, x, false);
    waits = false;
  }
  if (!waits) return x;
  bool own = owned_on(s) && (update || peek_place(p)) && holds(p, old, false);
  if (own) {
    settle(p, c, v_unit());
    bool all = m.sure || c->count == 1; /* or a link could fail when one before has changed it */
    own = all && holds(p, old, true) && (!p->field || (m.sure && !m.mixed));
    if (!own) value_pool(s, old); /* the result for an open buffer is looked at as a whole */
  }
  if (!own) {
    p->field = NULL;
    return call_links(p, c, 0, c->count, old, false);
  }
  if (m.sure) owned_room(s, old, m.most - m.before);
  p->changed = true;
  p->parts = owned_parts(old);
  return p->field ? call_links_open(p, c, &m, old) : call_links(p, c, 0, c->count, old, true);
}

/* `x .= f(a)` of a variable of script and a builtin of two parameters that may change x where it
 * is. True: it has; else *v is the new value, unless *done stays false: nothing was evaluated. */
static APART bool update_variable(Session *s, Node *st, const Link *l, size_t mark, Value *v,
                                  bool *done) {
  const Builtin *b = l->b;
  Node *call = l->call, *a;
  NodeList *args = &call->call.args;
  uint32_t k = call->call.callee->kind == N_NAME;
  Value *slot = variable(s, st->assign.target);
  *done = false;
  if (!slot || (slot->tag != V_LIST && slot->tag != V_DICT)) return false;
  if (args->count != k + 1 || builtin_sig(s, b)->count != 2) return false;
  a = args->items[k];
  if (a->arg.name.name || s->frame->fixed || s->frame->code) return false;
  Value x[2] = {value_pool(s, *slot)};
  Operands read;
  operands_open(s, &read, x);
  read.count = 1;
  x[1] = eval_expr(s, a->arg.value);
  operands_close(s, &read);
  *done = true;
  if (s->flow != FLOW_NEXT) return false;
  bool given[2] = {true, true};
  Span spans[2] = {call->call.callee->span, a->span};
  Call c = {.b = b, .n = 2, .v = x, .given = given, .spans = spans, .node = call, .at = call->span};
  slot = variable(s, st->assign.target);
  if (slot && slot->tag == x[0].tag && slot->u.o == x[0].u.o) {
    owned_settle(s, mark, 1, x + 1);
    c.own = owned_alone(s, x[0]);
    if (!c.own) value_pool(s, x[0]);
  }
  count_step(s, call->span);
  fail_running_at(s, call->span);
  *v = b->fn(s, &c);
  return c.own && v->tag == x[0].tag && v->u.o == x[0].u.o;
}

/* The expressions of the place, from left to right. False: one of them left the statement. */
static bool eval_place(Place *p) {
  Session *s = p->s;
  Operands read;
  operands_open(s, &read, &p->v);
  read.count = 1;
  if (p->root->kind != N_NAME) p->base = eval_expr(s, p->root);
  for (size_t i = 0; i < p->count && s->flow == FLOW_NEXT; i++)
    if (p->part[i].node->kind == N_INDEX) p->part[i].index = index_eval(s, p->part[i].node);
  operands_close(s, &read);
  return s->flow == FLOW_NEXT;
}

/* `x = v`, `x op= v` of a variable of script by a number, which most assignments of loops are.
 * False: assign_name does it. */
static bool assign_number(Session *s, Node *st, Value v) {
  const Node *x = st->assign.target;
  if (x->kind != N_NAME || (v.tag != V_INT && v.tag != V_FLOAT)) return false;
  if (s->stage || s->abstract || s->frame->fixed || s->frame->code) return false;
  Value *slot = variable(s, x);
  AstOp op = st->assign.op;
  if (!slot || (op != AST_NONE && !known_op(op, *slot, v, &v))) return false;
  value_set(slot, v);
  return true;
}

/* What follows the value v of the right side: the place. With `.=` the value is not evaluated yet,
 * unless `done`, nor if it is a chain. The statement began at `mark`. */
static APART Flow assign(Session *s, Node *st, Value v, size_t mark, bool done, Chain *chain) {
  Place place = {.s = s, .st = st, .root = st->assign.target, .v = v};
  Place *p = &place;
  for (Node **r = &p->root; (*r)->kind == N_DOT || (*r)->kind == N_INDEX; p->count++)
    *r = (*r)->kind == N_DOT ? (*r)->dot.object : (*r)->index.object;
  if (p->count) p->part = ARENA_ARRAY(&s->scratch, Part, p->count);
  Node *n = st->assign.target;
  for (size_t i = p->count; i-- > 0; n = n->kind == N_DOT ? n->dot.object : n->index.object)
    p->part[i] = (Part){.node = n};
  p->op = st->assign.op == AST_UPDATE ? AST_NONE : st->assign.op;
  p->mark = mark;
  bool first = st->assign.op == AST_UPDATE && !done;
  if (first && !eval_place(p)) return eval_take_flow(s);
  if (chain || first) p->v = chain ? chain_value(p, chain) : chain_by(p, place_value(p));
  if (s->flow == FLOW_NEXT && !first) eval_place(p);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  bool looks = p->count || first || (p->op == AST_ADD && v.tag == V_STR);
  if (looks && owned_on(s)) settle(p, NULL, v_unit());
  if (p->root->kind == N_NAME)
    assign_name(p);
  else if (!assign_instance(p, p->base) && p->base.tag != V_UNKNOWN)
    fail_at(s, ERR_ASSIGN, st->assign.target->span, "this is not a place that can be assigned");
  return FLOW_NEXT;
}

/* `x = x + a + b` of a variable of script that holds a text, where reading a and b runs nothing:
 * the text grows where it is, as by `x += a`. False: nothing was done. */
static APART bool grow_text(Session *s, Node *st, size_t mark) {
  const Node *x = st->assign.target, *e = st->assign.value;
  size_t n = 0;
  for (; e->kind == N_BINARY && e->binary.op == AST_ADD; e = e->binary.left, n++)
    if (!plain(e->binary.right)) return false;
  if (e->kind != N_NAME || x->kind != N_NAME || e->name != x->name) return false;
  if (!owned_on(s) || s->frame->fixed || s->frame->code) return false;
  Value *slot = variable(s, x);
  if (!slot || slot->tag != V_STR) return false;
  Value *more = ARENA_ARRAY(&s->scratch, Value, n);
  e = st->assign.value;
  for (size_t i = n; i-- > 0; e = e->binary.left) more[i] = eval_expr(s, e->binary.right);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (size_t i = 0; i < n; i++) {
    if (more[i].tag != V_STR) return false;
    buf_put(&b, more[i].u.str->s, more[i].u.str->n);
  }
  Value all = n == 1 ? more[0] : v_str(s, b.s ? b.s : "", b.n);
  owned_settle(s, mark, 1, &all);
  if (!owned_alone(s, *slot)) return false;
  value_set(slot, owned_text(s, *slot, all.u.str));
  return true;
}

Flow eval_assign(Session *s, Node *st) {
  size_t mark = mem_pool_mark(&s->mem);
  Chain c;
  bool chain = st->assign.value->kind == N_CALL && owned_on(s) && chain_of(s, st, &c);
  bool done = false;
  Value v = v_unit();
  if (chain && c.count == 1) {
    if (update_variable(s, st, &c.link[0], mark, &v, &done)) return FLOW_NEXT;
    chain = !done;
  }
  if (!chain && !done && st->assign.op != AST_UPDATE) {
    bool sum = st->assign.op == AST_NONE && st->assign.value->kind == N_BINARY;
    if (sum && st->assign.value->binary.op == AST_ADD && grow_text(s, st, mark)) return FLOW_NEXT;
    v = eval_expr(s, st->assign.value);
    if (s->flow == FLOW_NEXT && assign_number(s, st, v)) return FLOW_NEXT;
  }
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  return assign(s, st, v, mark, done, chain ? &c : NULL);
}
