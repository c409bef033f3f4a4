/* Models: construction of instances, trees of params (rules 55 to 58, 64).
 *
 * In: a declaration and arguments. Out: an instance whose members ran top to bottom as script. An
 * initialiser that is a call without its `shape` argument gets shape, dtype and a random stream of
 * its own, named by model, member and instance number.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/model.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/type.h"
#include "lang/names/clauses.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"
#include "lang/value/tree.h"

/* ---- names */

Name model_member_name(const Node *m) {
  switch ((NodeKind)m->kind) {
  case N_PARAM: return m->param.name.name;
  case N_FIELD: return m->field.name.name;
  case N_FN: return m->fn->name.name;
  case N_LET: return m->let.pat->kind == N_PAT_NAME ? m->let.pat->word.name : NULL;
  default: return NULL;
  }
}

static const Node *part(const Node *model, size_t i) {
  size_t n = model->model.params.count;
  return i < n ? model->model.params.items[i] : model->model.members.items[i - n];
}

static size_t parts(const Node *model) {
  return (size_t)model->model.params.count + model->model.members.count;
}

/* For a large model: the numbers of its parts by name, and the field of an instance for a part. */
typedef struct ModelNames {
  Table by_name;
  uint32_t *field; /* undefined for a part that is not a field */
  NodeList made;   /* the members that construct runs: all but the methods */
} ModelNames;

/* Models with at most that many parts have no table and are searched linearly. */
enum { FEW = 16 };

void model_index(Session *s, Node *model) {
  size_t n = parts(model);
  if (n <= FEW || model->model.names) return;
  Arena *beside = src_arena(&s->sources, model->span.file); /* lives as long as the tree */
  ModelNames *t = ARENA_NEW(beside, ModelNames);
  t->by_name.arena = beside;
  t->field = ARENA_ARRAY(beside, uint32_t, n);
  uint32_t fields = 0;
  for (size_t i = 0; i < n; i++) {
    Name name = model_member_name(part(model, i));
    t->field[i] = fields;
    if (!name) continue;
    table_add(&t->by_name, table_key(name), i);
    fields += part(model, i)->kind != N_FN;
  }
  const NodeList *l = &model->model.members;
  t->made.items = ARENA_ARRAY(beside, Node *, l->count + 1);
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i]->kind != N_FN) t->made.items[t->made.count++] = l->items[i];
  model->model.names = t;
}

ptrdiff_t model_find(Session *s, const Node *model, Name name) {
  if (model->model.names) return table_get(&model->model.names->by_name, table_key(name));
  size_t n = parts(model), i = 0;
  while (i < n && model_member_name(part(model, i)) != name) i++;
  s->count.searched += (int64_t)i;
  return i < n ? (ptrdiff_t)i : TABLE_NONE;
}

Node *model_method(Session *s, const ModelDecl *m, Name name) {
  ptrdiff_t i = model_find(s, m->decl, name);
  Node *x = i == TABLE_NONE ? NULL : (Node *)(uintptr_t)part(m->decl, (size_t)i);
  return x && x->kind == N_FN ? x : NULL;
}

Field *model_field(Inst *i, Name name) {
  const Node *decl = i->model->decl;
  if (decl->model.names) {
    ptrdiff_t at = model_find(i->o.s, decl, name);
    if (at == TABLE_NONE || part(decl, (size_t)at)->kind == N_FN) return NULL;
    uint32_t k = decl->model.names->field[at];
    return k < i->count ? &i->fields[k] : NULL; /* the instance may be incomplete */
  }
  size_t k = 0;
  while (k < i->count && i->fields[k].name != name) k++;
  i->o.s->count.searched += (int64_t)k;
  return k < i->count ? &i->fields[k] : NULL;
}

/* ---- construction */

static uint64_t member_site(const ModelDecl *m, Name member, uint64_t nth) {
  uint64_t h = UINT64_C(14695981039346656037);
  /* the name of the file without folders, as in module.c */
  const char *slash = strrchr(m->module->name, '/');
  const char *t[3] = {slash ? slash + 1 : m->module->name, m->name, member};
  for (int i = 0; i < 3; i++) {
    for (const char *p = t[i]; *p; p++) h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
    h = (h ^ 254) * UINT64_C(1099511628211);
  }
  h ^= nth * UINT64_C(0x9e3779b97f4a7c15);
  return h ? h : 1;
}

/* Does calling f want a first parameter `shape`? */
static bool wants_shape(Value f) {
  if (f.tag == V_BUILTIN) return !strncmp(f.u.builtin->signature, "(shape", 6);
  if (f.tag == V_FN) {
    const NodeList *p = &f.u.fn->decl->fn->params;
    return p->count && !strcmp(p->items[0]->param.name.name, "shape");
  }
  return false;
}

static bool has_param(Value f, const char *name) {
  if (f.tag == V_BUILTIN) {
    const char *p = strstr(f.u.builtin->signature, name);
    return p != NULL;
  }
  const NodeList *p = &f.u.fn->decl->fn->params;
  for (uint32_t i = 0; i < p->count; i++)
    if (!strcmp(p->items[i]->param.name.name, name)) return true;
  return false;
}

/* Is e a call that lacks its shape, as normal(std = 0.02), by a plain or dotted name (rule 58)? */
static bool lacks_shape(Session *s, Node *e, Value *f) {
  if (e->kind != N_CALL) return false;
  Node *c = e->call.callee;
  const Node *root = c;
  while (root->kind == N_DOT) root = root->dot.object;
  if (root->kind != N_NAME) return false;
  *f = c->kind == N_NAME ? bind_name_value(s, c->name, c->span, true) : eval_expr(s, c);
  if (!wants_shape(*f)) return false;
  for (uint32_t i = 0; i < e->call.args.count; i++) {
    Node *a = e->call.args.items[i];
    if (!a->arg.name.name || !strcmp(a->arg.name.name, "shape")) return false;
  }
  return true;
}

static Value shape_value(Session *s, const Type *t) {
  Value d[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) d[i] = type_dim_value(s, t->dim[i]);
  return v_list(s, V_TUPLE, t->rank, d);
}

static Value zeros_of(Session *s, const Type *t, Span at) {
  if (s->stage) {
    Value z = {.tag = V_NODE, .aux = s->stage->level};
    z.u.v = gr_const_f(s->stage->g, (DType)t->dtype, (Device)t->dev, 0);
    return op_broadcast(s, z, t->rank, t->dim, at);
  }
  int64_t d[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) dim_is_const(s->dims, t->dim[i], &d[i]);
  if (tn_product(t->rank, d) < 0) fail_at(s, ERR_SIZE_OVER, at, "a size over 2^63 - 1 bytes");
  return v_tensor(s, tn_zeros(&s->mem, (Device)t->dev, (DType)t->dtype, t->rank, d));
}

/* The initialiser's value as a tensor of the declared type. */
static Value initial(Session *s, Inst *inst, Node *member, const Type *t) {
  Node *e = member->field.init;
  Name name = member->field.name.name;
  Span at = e ? e->span : member->span;
  Value f, v;
  if (t->rank == 255) { /* `check`: the shape is not known */
    if (e && !lacks_shape(s, e, &f)) eval_expr(s, e);
    return (Value){.tag = V_UNKNOWN};
  }
  if (!e) return zeros_of(s, t, at);
  if (lacks_shape(s, e, &f)) {
    Args a = eval_args(s, &e->call.args, NULL, e->span, e->span);
    Args b = {.call = e->span};
    b.v = ARENA_ARRAY(&s->scratch, Value, a.count + 3);
    b.names = ARENA_ARRAY(&s->scratch, Name, a.count + 3);
    b.spans = ARENA_ARRAY(&s->scratch, Span, a.count + 3);
    b.v[0] = shape_value(s, t);
    b.spans[0] = e->span;
    b.count = 1;
    for (size_t i = 0; i < a.count; i++) {
      b.v[b.count] = a.v[i];
      b.names[b.count] = a.names[i];
      b.spans[b.count++] = a.spans[i];
    }
    if (has_param(f, "dtype")) {
      b.v[b.count] = (Value){.tag = V_DTYPE, .u.i = t->dtype};
      b.names[b.count] = names_of(s->names, "dtype");
      b.spans[b.count++] = e->span;
    }
    if (has_param(f, "key")) {
      /* the number of the stream counts the instances whose same member drew before */
      b.v[b.count] = random_key_member(s, member_site(inst->model, name, 0));
      b.names[b.count] = names_of(s->names, "key");
      b.spans[b.count++] = e->span;
    }
    v = f.tag == V_BUILTIN ? builtin_call(s, f.u.builtin, &b, e) : call_value(s, f, &b);
  } else {
    v = eval_expr(s, e);
  }
  if (v.tag == V_UNKNOWN) return v;
  if (v_is_number(v)) { /* fills the tensor */
    Value x = op_as_tensor(s, v, (DType)t->dtype, at);
    return op_broadcast(s, x, t->rank, t->dim, at);
  }
  v = op_as_tensor(s, v, (DType)t->dtype, at);
  Type h = op_type_of(s, v);
  bool ok = h.dtype == t->dtype && h.rank == t->rank;
  for (int i = 0; ok && i < h.rank; i++)
    ok = dim_compare(op_dims_of(s), h.dim[i], t->dim[i]) != DIM_DIFFERENT;
  if (!ok) {
    Buf b;
    buf_init_arena(&b, &s->scratch);
    type_print(&b, op_dims_of(s), t);
    fail_at(s, ERR_INIT, at, "`%s` is declared %s, its initialiser gives %s", name, b.s,
            value_type_text(s, v));
  }
  return v;
}

static bool bare_class(const Node *t) {
  if (!t || t->kind != N_TYPE_NAME || t->type_name.has_dims || t->type_name.path.count != 1)
    return false;
  TypeWord w = clause_type_word(t->type_name.path.items[0].name);
  return w == TYPEWORD_FLOAT || w == TYPEWORD_INT;
}

static bool is_params_type(const Node *t) {
  return t && t->kind == N_TYPE_NAME && t->type_name.path.count == 1 &&
         clause_type_word(t->type_name.path.items[0].name) == TYPEWORD_PARAMS;
}

static Value zero_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (v[0].tag == V_NONE || v[0].tag == V_UNKNOWN) return v[0];
  Type t = op_type_of(s, v[0]);
  Value *fill = ud;
  if (fill->tag == V_UNIT) return zeros_of(s, &t, (Span){0});
  return op_broadcast_on(s, op_as_tensor(s, *fill, (DType)t.dtype, (Span){0}), t.rank, t.dim, t.dev,
                         (Span){0});
}

/* t if it is dense, fills its storage, and the library owns that; else a copy. Others may refer to
 * t too, since tensors are never written to. */
static Tensor *own_tensor(Mem *m, Tensor *t, Device dev) {
  bool own = t->store->dev == dev && !t->store->foreign_free && tn_is_contiguous(t) &&
             t->store->bytes == (size_t)tn_bytes(t);
  return own ? tn_ref(t) : tn_copy(m, t, dev);
}

static void construct_field(Session *s, Inst *inst, Field *f, Node *m) {
  Span at = m->span;
  if (m->field.is_buffer && bare_class(m->field.type)) { /* a weak number (rule 61) */
    Value v = m->field.init ? eval_expr(s, m->field.init) : v_int(0);
    bool fl = clause_type_word(m->field.type->type_name.path.items[0].name) == TYPEWORD_FLOAT;
    if (v.tag != V_UNKNOWN && !v_is_number(v))
      fail_at(s, ERR_INIT, at, "`%s` is a number, its initialiser gives %s", f->name,
              value_type_text(s, v));
    if (fl && v.tag == V_INT) v = v_float((double)v.u.i);
    value_set(&f->v, v);
    return;
  }
  if (m->field.is_buffer && is_params_type(m->field.type)) {
    NodeList *d = &m->field.type->type_name.dims;
    if (d->count != 1)
      fail_at(s, ERR_TYPE, m->field.type->span, "`params[net]` takes one model or tracked tensor");
    Value net = eval_expr(s, d->items[0]);
    if (net.tag == V_UNKNOWN) {
      value_set(&f->v, net);
      return;
    }
    Value tree = net.tag == V_INST ? model_params_tree(s, net.u.inst, false) : net;
    Value fill = m->field.init ? eval_expr(s, m->field.init) : v_unit();
    if (fill.tag == V_UNIT || v_is_number(fill))
      value_set(&f->v, state_detach(s, tree_map(s, 1, &tree, zero_leaf, &fill, at)));
    else
      value_set(&f->v, state_kept(s, fill));
    value_bound(s, f->v, at);
    return;
  }
  if (m->field.is_buffer && type_is_structured(s, m->field.type, &f->open)) {
    f->type = m->field.type;
    Value v = m->field.init ? eval_expr(s, m->field.init) : type_empty(s, m->field.type, at);
    value_set(&f->v, state_fitted(s, inst, f, v, at));
    return;
  }
  Type t;
  type_eval(s, m->field.type, &t);
  Value v = initial(s, inst, m, &t);
  if (v.tag == V_UNKNOWN || s->stage) {
    if (v.tag == V_NODE && !m->field.is_buffer) v = op_run(s, OP_ALIAS, 1, &v, NULL, 0, at);
    value_set(&f->v, v);
    return;
  }
  Tensor *own = own_tensor(&s->mem, op_tensor_of(s, v, at), (Device)t.dev);
  if (!own) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (m->field.is_buffer) {
    value_set(&f->v, v_tensor(s, own));
    return;
  }
  if (!dt_float((DType)t.dtype)) {
    tn_unref(own);
    fail_help(s, ERR_INIT, m->field.type->span, "state that is not trained is a `buffer`",
              "a param is a float tensor, `%s` is declared %s", f->name, dtype_info[t.dtype].name);
  }
  value_set(&f->v, v_param(s, own, f->name, false));
}

/* A function literal in a field of its own instance would keep the instance alive for ever. It is
 * stored without `self`, which state_field_value puts back. */
static Value unbind_self(Session *s, Inst *inst, Value v) {
  if (v.tag != V_FN || v.u.fn->self != inst || v.u.fn->decl->kind != N_LAMBDA) return v;
  const FnObj *o = v.u.fn;
  return v_fn_like(s, o, NULL, o->captures);
}

Value model_construct(Session *s, ModelDecl *m, const Args *a) {
  Node *decl = m->decl;
  const struct ModelNames *names = decl->model.names;
  const NodeList *params = &decl->model.params;
  const NodeList *members = names ? &names->made : &decl->model.members;
  size_t n = params->count;
  for (uint32_t i = 0; i < members->count; i++)
    if (members->items[i]->kind == N_FIELD ||
        (members->items[i]->kind == N_LET && members->items[i]->let.pat->kind == N_PAT_NAME))
      n++;
  Value iv = v_inst(s, m, n);
  Inst *inst = iv.u.inst;
  inst->count = 0; /* a member sees those above it */
  /* arguments bind as for a function with these parameters */
  Value *args = ARENA_ARRAY(&s->scratch, Value, params->count + 1);
  bool *given = ARENA_ARRAY(&s->scratch, bool, params->count + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, params->count + 1);
  FnObj *ctor = v_fn(s, desugar_model(s, decl), m->module, inst, m, false, 0, NULL).u.fn;
  call_bind_args(s, ctor, a, args, spans, given);
  Frame fr;
  frame_push(s, &fr, ctor, a->call);
  fr.what = m->name;
  for (uint32_t i = 0; i < params->count; i++) {
    Node *p = params->items[i];
    Value v = given[i] ? args[i] : eval_expr(s, p->param.init);
    if (p->param.type && !(v.tag == V_NONE && p->param.init)) {
      type_bind(s, p->param.type, v);
      v = type_match(
          s, p->param.type, v, given[i] ? spans[i] : p->param.init->span,
          &(Subject){.text = {"argument `", p->param.name.name, "` of `", m->name, "`"}});
    } else if (v_is_weak_list(v))
      v = op_as_tensor(s, v, DT_COUNT, a->call);
    Field *f = &inst->fields[inst->count++];
    *f = (Field){.name = p->param.name.name, .kind = FIELD_ARG};
    value_set(&f->v, v);
    obj_holds(&inst->o, v);
  }
  for (uint32_t i = 0; i < members->count; i++) {
    Node *x = members->items[i];
    s->count.searched += x->kind == N_FN;
    size_t mark = mem_pool_mark(&s->mem);
    if (x->kind == N_FIELD) {
      Field *f = &inst->fields[inst->count];
      *f = (Field){.name = x->field.name.name,
                   .kind = x->field.is_buffer ? FIELD_BUFFER : FIELD_PARAM};
      construct_field(s, inst, f, x);
      inst->count++;
    } else if (x->kind == N_LET) {
      Value v = eval_expr(s, x->let.init);
      if (x->let.type)
        v = type_match(s, x->let.type, v, x->let.init->span, &(Subject){.text = {"the value"}});
      if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, x->span);
      value_bound(s, v, x->span);
      if (x->let.pat->kind != N_PAT_NAME) {
        bind_pattern(s, x->let.pat, v, false);
        continue;
      }
      Field *f = &inst->fields[inst->count];
      *f = (Field){.name = x->let.pat->word.name, .kind = FIELD_LET};
      value_set(&f->v, unbind_self(s, inst, s->stage ? v : state_detach(s, v)));
      obj_holds(&inst->o, f->v);
      inst->count++;
    } else if (x->kind == N_ASSERT) {
      eval_assert(s, x);
    }
    if (!s->stage) mem_pool_drain(&s->mem, mark);
  }
  frame_pop(s, &fr);
  return iv;
}

/* ---- params as a tree */

/* Instances and params that the tree has already. */
typedef struct Seen {
  const void *few[16];
  size_t count;
  Table many; /* all of them, once `few` is full */
} Seen;

static bool first_time(Session *s, Seen *seen, const void *p) {
  size_t most = sizeof seen->few / sizeof *seen->few;
  if (seen->count == most) {
    seen->many.arena = &s->scratch;
    for (size_t i = 0; i < most; i++) table_add(&seen->many, table_key(seen->few[i]), i);
  }
  if (seen->count >= most) {
    if (table_add(&seen->many, table_key(p), seen->count) != TABLE_NONE) return false;
    seen->count++;
    return true;
  }
  for (size_t i = 0; i < seen->count; i++)
    if (seen->few[i] == p) return false;
  s->count.searched += (int64_t)seen->count;
  seen->few[seen->count++] = p;
  return true;
}

/* The tree of v: a record of the members that hold params; lists and tuples of children keep their
 * indices. `buffers`: collects buffers instead. False: there are none. */
static bool tree_of(Session *s, Value v, bool values, bool buffers, Seen *seen, Value *out);

static bool inst_tree(Session *s, Inst *i, bool values, bool buffers, Seen *seen, Value *out) {
  stack_check();
  if (!first_time(s, seen, i)) return false;
  Name *names = ARENA_ARRAY(&s->scratch, Name, i->count + 1);
  Value *items = ARENA_ARRAY(&s->scratch, Value, i->count + 1);
  size_t n = 0;
  for (size_t k = 0; k < i->count; k++) {
    Field *f = &i->fields[k];
    if (f->kind == FIELD_PARAM && !buffers) {
      if (f->v.tag == V_PARAM && !first_time(s, seen, f->v.u.p)) continue;
      names[n] = f->name;
      if (f->v.tag == V_PARAM && f->v.u.p->frozen)
        items[n++] = v_none();
      else
        items[n++] = values && f->v.tag == V_PARAM ? param_read(s, f->v.u.p, (Span){0}) : f->v;
    } else if (f->kind == FIELD_BUFFER && buffers) {
      names[n] = f->name;
      items[n++] = state_read(s, i, f, (Span){0});
    } else if (f->kind == FIELD_LET) {
      names[n] = f->name;
      if (tree_of(s, f->v, values, buffers, seen, &items[n])) n++;
    }
  }
  *out = v_record(s, n, names, items);
  return n > 0;
}

static bool tree_of(Session *s, Value v, bool values, bool buffers, Seen *seen, Value *out) {
  stack_check();
  if (v.tag == V_INST) return inst_tree(s, v.u.inst, values, buffers, seen, out);
  if (v.tag == V_LIST || v.tag == V_TUPLE) {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    bool any = false;
    for (size_t i = 0; i < v.u.list->count; i++) {
      items[i] = v_record(s, 0, NULL, NULL); /* no params here: no leaf either */
      if (tree_of(s, v.u.list->items[i], values, buffers, seen, &items[i])) any = true;
    }
    if (any) *out = v_list(s, (ValueTag)v.tag, v.u.list->count, items);
    return any;
  }
  size_t n, k = 0;
  const Value *from = value_items(v, &n);
  Name *names = ARENA_ARRAY(&s->scratch, Name, n + 1);
  Value *keys = ARENA_ARRAY(&s->scratch, Value, n + 1);
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) {
    if (v.tag == V_RECORD) names[k] = v.u.rec->names[i];
    if (v.tag == V_DICT) keys[k] = v.u.dict->keys[i];
    if (tree_of(s, from[i], values, buffers, seen, &items[k])) k++;
  }
  if (k) *out = v.tag == V_DICT ? v_dict(s, k, keys, items) : v_record(s, k, names, items);
  return k > 0;
}

Value model_params_tree(Session *s, Inst *i, bool values) {
  Seen seen = {0};
  Value v = v_record(s, 0, NULL, NULL);
  inst_tree(s, i, values, false, &seen, &v);
  return v;
}

Value model_buffers_tree(Session *s, Inst *i) {
  Seen seen = {0};
  Value v = v_record(s, 0, NULL, NULL);
  inst_tree(s, i, true, true, &seen, &v);
  return v;
}
