/* Assignments: `place = e` and `place op= e` (rules 34, 60).
 *
 * In: the statement. Out: the variable, field, param or buffer at the root of the place has its new
 * value; parts below the root (items, fields of records, elements) change in a copy. Order: the
 * value, then the expressions of the place from left to right, each once, and only then is the
 * place read and written. So no assignment inside of the place's own expressions is lost.
 */
#include <string.h>

#include "lang/check/check.h"
#include "lang/eval/bindings.h"
#include "lang/eval/eval.h"
#include "lang/eval/index.h"
#include "lang/eval/model.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/lang.h"
#include "lang/names/module.h"
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
  Value base; /* value of a root that is not a name */
  size_t count;
  Part *part;
} Place;

static bool one_item(const Part *p) {
  return p->index.count == 1 && ast_is_expr(p->index.part[0].node);
}

/* `old` is the value before part k. Returns it with the place assigned. */
static Value put(const Place *p, size_t k, Value old) {
  stack_check();
  Session *s = p->s;
  Node *st = p->st;
  AstOp op = st->assign.op;
  if (k == p->count) {
    if (op == AST_NONE) return p->v;
    return op_binary(s, op, old, p->v, st->span, st->assign.target->span, st->assign.value->span);
  }
  const Part *part = &p->part[k];
  Span at = part->node->span;
  if (old.tag == V_UNKNOWN) return old;
  if (part->node->kind == N_INDEX) {
    if (k + 1 != p->count && old.tag != V_LIST)
      fail_at(s, ERR_ASSIGN, at, "only the last part of an assigned path may index a tensor");
    if (old.tag == V_LIST && !old.u.list->weak) {
      if (!one_item(part)) fail_at(s, ERR_INDEX_COUNT, at, "a list takes one index");
      if (part->index.part[0].v.tag == V_UNKNOWN) return part->index.part[0].v;
      size_t count = old.u.list->count, i = index_item(s, &part->index, count, "a list");
      Value nv = bind_made_definite(s, put(p, k + 1, old.u.list->items[i]), st->span);
      Value copy = v_list(s, V_LIST, count, old.u.list->items);
      value_set(&copy.u.list->items[i], nv);
      obj_holds(copy.u.o, nv);
      return copy;
    }
    return op_index_put(s, old, &part->index, op, p->v, st->span);
  }
  if (part->node->kind == N_DOT && old.tag == V_RECORD) {
    Name f = part->node->dot.name.name;
    for (size_t i = 0; i < old.u.rec->count; i++)
      if (old.u.rec->names[i] == f) {
        Value nv = bind_made_definite(s, put(p, k + 1, old.u.rec->items[i]), st->span);
        Value copy = v_record(s, old.u.rec->count, old.u.rec->names, old.u.rec->items);
        value_set(&copy.u.rec->items[i], nv);
        obj_holds(copy.u.o, nv);
        return copy;
      }
    fail_at(s, ERR_NO_FIELD, part->node->dot.name.span, "%s has no field `%s`",
            value_type_text(s, old), f);
  }
  fail_at(s, ERR_ASSIGN, at, "a part of %s cannot be assigned", value_type_text(s, old));
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
  bool reads = k < p->count || p->st->assign.op != AST_NONE;
  Value nv = reads ? put(p, k, state_read(s, inst, field, at)) : p->v;
  state_write(s, inst, field, nv, p->st->span);
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
    if (cur.tag == V_INST && name) {
      Field *f = model_field(cur.u.inst, name);
      if (f && (f->kind == FIELD_LET || f->kind == FIELD_ARG) && i + 1 < p->count) {
        cur = f->v;
        continue;
      }
      assign_field(p, cur.u.inst, name, i + 1, n->dot.name.span);
      return true;
    }
    /* items of lists and records only lead on to instances: blocks[i].w = e */
    if (cur.tag == V_LIST && !name && one_item(&p->part[i])) {
      Value iv = p->part[i].index.part[0].v;
      bool neg = iv.tag == V_INT && iv.u.i < 0;
      if (iv.tag != V_INT || (!neg && (size_t)iv.u.i >= cur.u.list->count)) return false;
      if (!cur.u.list->count || (neg && cur.u.list->items[0].tag != V_INST)) return false;
      cur = cur.u.list->items[index_item(p->s, &p->part[i].index, cur.u.list->count, "a list")];
    } else if (cur.tag == V_RECORD && name) {
      const Value *f = value_record_get(cur.u.rec, name);
      if (!f) return false;
      cur = *f;
    } else {
      return false;
    }
    if (cur.tag != V_INST) return false;
  }
  return false;
}

static void assign_param(const Place *p, Param *q) {
  Session *s = p->s;
  bool reads = p->count || p->st->assign.op != AST_NONE;
  Value nv = put(p, 0, reads ? param_read(s, q, p->root->span) : v_unit());
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
            given ? "copy it to a `var`: `var now = %s`" : "declare it with `var %s = ..`",
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
  Value nv = bind_made_definite(s, put(p, 0, old), st->span);
  name_variable(s, root->name, nv);
  /* `check`: a function assigns a variable of the file, at calls that are not known */
  if (g && s->abstract && s->frame->fn && nv.tag != V_NODE) nv = (Value){.tag = V_UNKNOWN};
  value_set(l ? &l->v : &g->v, nv);
}

Flow eval_assign(Session *s, Node *st) {
  Value v = eval_expr(s, st->assign.value);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  Place place = {.s = s, .st = st, .v = v, .root = st->assign.target}, *p = &place;
  for (Node **r = &p->root; (*r)->kind == N_DOT || (*r)->kind == N_INDEX; p->count++)
    *r = (*r)->kind == N_DOT ? (*r)->dot.object : (*r)->index.object;
  if (p->count) p->part = ARENA_ARRAY(&s->scratch, Part, p->count);
  Node *n = st->assign.target;
  for (size_t i = p->count; i-- > 0; n = n->kind == N_DOT ? n->dot.object : n->index.object)
    p->part[i].node = n;
  Operands read;
  operands_open(s, &read, &place.v);
  read.count = 1;
  if (p->root->kind != N_NAME) p->base = eval_expr(s, p->root);
  for (size_t i = 0; i < p->count && s->flow == FLOW_NEXT; i++)
    if (p->part[i].node->kind == N_INDEX) p->part[i].index = index_eval(s, p->part[i].node);
  operands_close(s, &read);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  if (p->root->kind == N_NAME)
    assign_name(p);
  else if (!assign_instance(p, p->base) && p->base.tag != V_UNKNOWN)
    fail_at(s, ERR_ASSIGN, st->assign.target->span, "this is not a place that can be assigned");
  return FLOW_NEXT;
}
