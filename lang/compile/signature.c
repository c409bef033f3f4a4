/* Arguments of compiled calls taken apart: leaves, and the text of the signature (rule 50).
 *
 * In: values of script. Out: every tensor, param and number that is reachable from them as a leaf,
 * in a fixed order; all else (structure, dtypes, ranks, texts, policies of layers) as text. Equal
 * texts mean that one compilation serves both calls.
 */
#include <string.h>

#include "lang/checkpoint/policy.h"
#include "lang/eval/call.h"
#include "lang/tape/hook.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"

/* Up to so many are searched one by one. */
enum { FEW = 16 };

size_t flat_leaf(Flat *f, Value v) {
  if (!v_counted(v)) return SIZE_MAX;
  if (f->count > FEW) {
    f->leaf_of.arena = f->arena;
    for (; f->leaves_in < f->count; f->leaves_in++) {
      const Leaf *l = &f->leaves[f->leaves_in];
      if (l->kind <= LEAF_PARAM) table_add(&f->leaf_of, table_key(l->v.u.o), f->leaves_in);
    }
    ptrdiff_t at = table_get(&f->leaf_of, table_key(v.u.o));
    return at == TABLE_NONE ? SIZE_MAX : (size_t)at;
  }
  size_t i = 0;
  while (i < f->count && (f->leaves[i].kind > LEAF_PARAM || f->leaves[i].v.u.o != v.u.o)) i++;
  f->s->count.searched += (int64_t)i;
  return i < f->count ? i : SIZE_MAX;
}

size_t flat_inst(Flat *f, const Inst *inst) {
  if (f->inst_count > FEW) {
    f->inst_of.arena = f->arena;
    for (; f->insts_in < f->inst_count; f->insts_in++)
      table_add(&f->inst_of, table_key(f->insts[f->insts_in]), f->insts_in);
    ptrdiff_t at = table_get(&f->inst_of, table_key(inst));
    return at == TABLE_NONE ? SIZE_MAX : (size_t)at;
  }
  size_t i = 0;
  while (i < f->inst_count && f->insts[i] != inst) i++;
  f->s->count.searched += (int64_t)i;
  return i < f->inst_count ? i : SIZE_MAX;
}

Flat flat_fork(const Flat *f) {
  Flat h = *f;
  h.leaf_of = h.inst_of = (Table){0};
  h.leaves_in = h.insts_in = 0;
  buf_init_arena(&h.sig, &f->s->scratch);
  return h;
}

static bool is_bracket(const Node *fn, Name name) {
  const Words *d = &fn->fn->dims;
  for (uint32_t i = 0; i < d->count; i++)
    if (d->items[i].name == name) return true;
  return false;
}

bool leaf_free_axis(const Leaf *l, int rank, int axis, Name *name, int *nth) {
  *name = NULL;
  *nth = -1;
  if (!l->type || l->type->kind != N_TYPE_NAME || !l->type->type_name.has_dims) return false;
  const NodeList *d = &l->type->type_name.dims;
  int pack = -1, fixed = 0;
  for (uint32_t i = 0; i < d->count; i++)
    if (d->items[i]->kind == N_PACK)
      pack = (int)i;
    else
      fixed++;
  if (pack < 0 ? fixed != rank : fixed > rank) return false;
  int len = rank - fixed;
  if (pack >= 0 && axis >= pack && axis < pack + len) {
    *name = d->items[pack]->word.name;
    *nth = axis - pack;
    return true;
  }
  uint32_t i = (uint32_t)(pack >= 0 && axis >= pack + len ? axis - len + 1 : axis);
  if (d->items[i]->kind != N_NAME || !is_bracket(l->fn, d->items[i]->name)) return false;
  *name = d->items[i]->name;
  return true;
}

const Tensor *leaf_tensor_of(const Leaf *l) {
  return l->kind == LEAF_PARAM ? l->v.u.p->t : l->v.u.t->t;
}

static void put_int(Buf *b, const char *before, int64_t n, const char *after) {
  buf_puts(b, before);
  buf_int(b, n);
  buf_puts(b, after);
}

static void put_ptr(Buf *b, const char *before, const void *p, const char *after) {
  put_int(b, before, (int64_t)(uintptr_t)p, after);
}

static void put_hooks(Flat *f, HookKind a, HookKind b, uint64_t id) {
  put_int(&f->sig, "h", hooks_on(f->s, (HookKey){a, id, 0}), "");
  put_int(&f->sig, "", hooks_on(f->s, (HookKey){b, id, 0}), " ");
}

static void add_leaf(Flat *f, LeafKind kind, Value v, Node *type, Node *fn) {
  Leaf l = {.kind = kind, .v = v, .type = type, .fn = fn, .label = f->label};
  if (kind <= LEAF_PARAM) {
    size_t k = flat_leaf(f, v);
    if (k != SIZE_MAX) { /* the same object again: part of the signature (rule 50) */
      put_int(&f->sig, "=", (int64_t)k, " ");
      return;
    }
    const Tensor *t = leaf_tensor_of(&l);
    buf_putc(&f->sig, kind == LEAF_PARAM ? 'p' : 't');
    buf_puts(&f->sig, dtype_info[t->dtype].name);
    put_int(&f->sig, "@", t->store->dev, "[");
    for (int i = 0; i < t->rank; i++) {
      Name n;
      int nth;
      if (leaf_free_axis(&l, t->rank, i, &n, &nth))
        buf_puts(&f->sig, "*,");
      else
        put_int(&f->sig, "", t->dim[i], ",");
    }
    bool stood_for = v.tag == V_PARAM && v.u.p->overlay.tag;
    buf_puts(&f->sig, stood_for ? "]o " : v.tag == V_PARAM && v.u.p->frozen ? "]z " : "] ");
    if (v.tag == V_PARAM && v.u.p->hooked && !stood_for)
      put_hooks(f, HOOK_PARAM, HOOK_AFTER_GRAD, v.u.p->id);
  } else {
    buf_puts(&f->sig, kind == LEAF_FLOAT ? "f " : "i ");
  }
  VEC_PUSH(f->arena, f->leaves, f->count, f->cap, l);
}

Name flat_name_numbered(Session *s, Name name, size_t i) {
  return names_of(s->names, fail_text(s, "%s.%zu", name, i));
}

/* The part of `type` for record field `name`, or for item i: its dims are free, too. Another name
 * of a type (rule 39) has no brackets; a value that does not fit is refused when it is bound. */
static Node *part_type(Node *type, Name name, size_t i) {
  if (!type) return NULL;
  if (type->kind == N_TYPE_LIST) return name ? NULL : type->type_list;
  if (type->kind == N_TYPE_TUPLE) return !name && i < type->list.count ? type->list.items[i] : NULL;
  if (type->kind == N_TYPE_RECORD && name)
    for (uint32_t k = 0; k < type->list.count; k++)
      if (type->list.items[k]->type_field.name.name == name)
        return type->list.items[k]->type_field.type;
  return NULL;
}

/* Flattens part i of a dict. Its key is text of the signature. */
static void flatten_entry(Flat *f, Value v, size_t i, Node *type, Node *fn) {
  Name whole = f->label;
  const char *key = dict_key_text(f->s, v.u.dict->keys[i]);
  put_int(&f->sig, "", (int64_t)strlen(key), ":");
  buf_puts(&f->sig, key);
  if (whole) f->label = names_of(f->s->names, value_part_path(f->s, whole, v, i));
  flat_value(f, v.u.dict->items[i], type && type->kind == N_TYPE_DICT ? type->entry.value : NULL,
             fn);
  f->label = whole;
}

/* Flattens a part of a value: record field `name`, or item i of a list. */
static void flatten_part(Flat *f, Value v, Node *type, Node *fn, Name name, size_t i) {
  Name whole = f->label;
  if (whole)
    f->label = name ? names_of(f->s->names, fail_text(f->s, "%s.%s", whole, name))
                    : flat_name_numbered(f->s, whole, i);
  flat_value(f, v, part_type(type, name, i), fn);
  f->label = whole;
}

/* A policy is only text: it decides about the code and is no input of it. */
static void flatten_policy(Flat *f, Value v) {
  stack_check();
  Buf *b = &f->sig;
  size_t n = 0;
  const Value *items = NULL;
  if (v.tag == V_POLICY) {
    PolicyObj *o = (PolicyObj *)v.u.o;
    put_ptr(b, "P", o->decl, "(");
    n = o->count;
    items = o->args;
  } else if (v.tag == V_FN) {
    put_ptr(b, v.u.fn->deferred ? "defer" : "fn", v.u.fn->decl, "(");
    for (size_t i = 0; i < v.u.fn->capture_count; i++) flatten_policy(f, v.u.fn->captures[i].v);
  } else if (v.tag == V_STR) {
    buf_printf(b, "s%zu:%s(", v.u.str->n, v.u.str->s);
  } else {
    buf_printf(b, "%d:%llx(", v.tag, (unsigned long long)v.u.i);
  }
  for (size_t i = 0; i < n; i++) flatten_policy(f, items[i]);
  buf_puts(b, ") ");
}

static void flatten_inst(Flat *f, Inst *inst) {
  size_t again = flat_inst(f, inst);
  if (again != SIZE_MAX) {
    put_int(&f->sig, "#", (int64_t)again, " ");
    return;
  }
  VEC_PUSH(f->arena, f->insts, f->inst_count, f->inst_cap, inst);
  put_ptr(&f->sig, "m", inst->model, "{");
  if (inst->hooked) put_hooks(f, HOOK_BEFORE_CALL, HOOK_AFTER_CALL, inst->id);
  if (inst->policy.tag != V_UNIT) { /* rule 84 */
    buf_puts(&f->sig, "policy ");
    flatten_policy(f, inst->policy);
  }
  for (size_t i = 0; i < inst->count; i++) {
    Field *d = &inst->fields[i];
    /* model ints are constants of the signature; float arguments are inputs */
    if (d->kind != FIELD_BUFFER && d->v.tag == V_INT)
      put_int(&f->sig, "", d->v.u.i, " ");
    else {
      f->label = f->named ? d->name : NULL;
      flat_value(f, d->v, NULL, NULL);
    }
  }
  buf_puts(&f->sig, "} ");
}

bool flat_fixed(const FnObj *f, Value v) {
  return capsule_is_fn(f) && v.tag == V_INT && v.u.i >= 0 && v.u.i <= 1;
}

void flat_value(Flat *f, Value v, Node *type, Node *fn) {
  stack_check();
  Buf *b = &f->sig;
  switch ((ValueTag)v.tag) {
  case V_TENSOR: add_leaf(f, LEAF_TENSOR, v, type, fn); break;
  case V_PARAM: add_leaf(f, LEAF_PARAM, v, type, fn); break;
  case V_FLOAT: add_leaf(f, LEAF_FLOAT, v, NULL, NULL); break;
  case V_INT: add_leaf(f, LEAF_INT, v, NULL, NULL); break;
  case V_BOOL: buf_puts(b, v.u.i ? "T " : "F "); break;
  case V_UNIT: buf_puts(b, "() "); break;
  case V_NONE: buf_puts(b, "none "); break;
  case V_DTYPE: put_int(b, "d", v.u.i, " "); break;
  case V_STR:
    put_int(b, "s", (int64_t)v.u.str->n, ":");
    buf_put(b, v.u.str->s, v.u.str->n);
    buf_putc(b, ' ');
    break;
  case V_LIST:
  case V_TUPLE: {
    bool weak = v_is_weak_list(v);
    put_int(b, weak ? "w" : v.tag == V_LIST ? "l" : "u", (int64_t)v.u.list->count, "(");
    for (size_t i = 0; i < v.u.list->count; i++)
      flatten_part(f, v.u.list->items[i], type, fn, NULL, i);
    buf_puts(b, ") ");
    break;
  }
  case V_RECORD:
    put_int(b, "r", (int64_t)v.u.rec->count, "(");
    for (size_t i = 0; i < v.u.rec->count; i++) {
      buf_puts(b, v.u.rec->names[i]);
      buf_putc(b, ':');
      flatten_part(f, v.u.rec->items[i], type, fn, v.u.rec->names[i], 0);
    }
    buf_puts(b, ") ");
    break;
  case V_DICT:
    dict_pack(v.u.dict);
    put_int(b, "D", (int64_t)v.u.dict->count, "(");
    for (size_t i = 0; i < v.u.dict->count; i++) flatten_entry(f, v, i, type, fn);
    buf_puts(b, ") ");
    break;
  case V_RANGE:
    buf_puts(b, "range(");
    flat_value(f, v.u.range->lo, NULL, NULL);
    flat_value(f, v.u.range->hi, NULL, NULL);
    buf_puts(b, ") ");
    break;
  case V_FN:
    put_ptr(b, "fn", v.u.fn->decl, "(");
    if (v.u.fn->self) flatten_inst(f, v.u.fn->self);
    for (size_t i = 0; i < v.u.fn->capture_count; i++) {
      const Local *l = &v.u.fn->captures[i];
      f->label = f->named ? l->name : NULL;
      if (flat_fixed(v.u.fn, l->v))
        put_int(b, "i", l->v.u.i, " ");
      else
        flat_value(f, l->v, NULL, NULL);
    }
    buf_puts(b, ") ");
    break;
  case V_INST: flatten_inst(f, v.u.inst); break;
  case V_POLICY: flatten_policy(f, v); break;
  case V_BUILTIN: put_ptr(b, "b", v.u.builtin, " "); break;
  case V_MODEL: put_ptr(b, "M", v.u.model, " "); break;
  case V_MODULE: put_ptr(b, "mod", v.u.module, " "); break;
  default: buf_printf(b, "?%d ", v.tag); break;
  }
}

void flat_init(Flat *f, Session *s, Arena *a) {
  *f = (Flat){.s = s, .arena = a};
  buf_init_arena(&f->sig, a);
}

int64_t leaf_size(const Leaf *l, int axis) {
  return axis < 0 ? l->v.u.i : leaf_tensor_of(l)->dim[axis];
}

Value leaf_value(const Leaf *l) {
  return l->kind == LEAF_PARAM && l->v.u.p->overlay.tag ? l->v.u.p->overlay : l->v;
}

/* Modes, function, arguments; annotations of parameters say which dims are free. */
void flat_call(Flat *f, FnObj *fn, const Args *a) {
  const Modes *m = &f->s->modes;
#define FIELD(type, name) put_int(&f->sig, "", (int64_t)(uintptr_t)m->name, " ");
#include "lang/names/clauses.def"
  if (hooks_on(f->s, (HookKey){HOOK_AFTER_BACKWARD, 0, 0})) buf_puts(&f->sig, "h ");
  value_bound(f->s, (Value){.tag = V_FN, .u.fn = fn}, a->call);
  flat_value(f, (Value){.tag = V_FN, .u.fn = fn}, NULL, NULL);
  const NodeList *p = &fn->decl->fn->params;
  uint32_t positional = 0;
  Table by_name = {0};
  for (size_t i = 0; i < a->count; i++) {
    Node *type = NULL;
    if (a->names[i]) {
      buf_puts(&f->sig, a->names[i]);
      buf_putc(&f->sig, '=');
      if (f->named) f->label = a->names[i];
      uint32_t k = call_param_named(f->s, p, a->names[i], a->count, &by_name);
      if (k < p->count) type = p->items[k]->param.type;
    } else {
      while (positional < p->count && p->items[positional]->param.init) positional++;
      if (f->named && positional < p->count) f->label = p->items[positional]->param.name.name;
      if (positional < p->count) type = p->items[positional++]->param.type;
    }
    value_bound(f->s, a->v[i], a->spans[i].file ? a->spans[i] : a->call);
    flat_value(f, a->v[i], type, fn->decl);
  }
}

/* A variable of the file that the code reads: an int is no input, its value belongs to the
 * signature (rule 7). */
