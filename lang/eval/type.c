/* Annotations: matching a value against a type, and making values of a type (rules 19, 21, 25, 61).
 *
 * In: a type of the tree and a Value. Out: the Value made definite, bracket dims bound as locals of
 * the frame. Matching a call runs in two passes: type_bind takes the first bare occurrence of each
 * dim, left to right over all parameters, type_match then compares everything.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/bounds.h"
#include "lang/eval/eval.h"
#include "lang/eval/model.h"
#include "lang/eval/ops.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/names/clauses.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

static Value match_params(Session *s, Node *type, Value v, Span at, const Subject *what);

static const char *dims_text(Session *s, Value tuple);

/* The class float, int or num as the index in Frame.cls; -1: another type. */
_Static_assert(TYPEWORD_FLOAT + TYPEWORD_INT + TYPEWORD_NUM == 3, "Frame.cls has three places");
static int class_of(Name n) {
  TypeWord w = clause_type_word(n);
  return clause_type_word_is_class(w) ? (int)w : -1;
}

Dim type_dim_of(Session *s, Value v, Span at, const char *what) {
  if (v.tag == V_DIM) return v.u.d;
  if (v.tag == V_INT) return dim_const(op_dims_of(s), v.u.i);
  Dim turn = bounds_size(s, v);
  if (turn != DIM_BAD) return turn;
  int64_t n = want_int(s, v, at, what);
  return dim_const(op_dims_of(s), n);
}

Value type_dim_value(Session *s, Dim d) {
  int64_t n;
  if (dim_is_const(op_dims_of(s), d, &n)) return v_int(n);
  if (gr_sized_by_turn(op_dims_of(s), d)) return op_dim_node(s, d);
  return (Value){.tag = V_DIM, .u.d = d};
}

/* Whether `name` is a dim in the brackets of the present function, and is not bound yet. */
static bool unbound(Session *s, Name name) {
  if (!s->frame->fn) return false;
  const Words *d = &s->frame->fn->decl->fn->dims;
  for (uint32_t i = 0; i < d->count; i++)
    if (d->items[i].name == name) return !local_find(s, name);
  return false;
}

static bool wild(const Node *d) {
  return d->kind == N_NAME && d->name[0] == '_' && !d->name[1];
}

/* Resolves aliases: the type that the name in an annotation stands for, or the node itself. */
static Node *resolve(Session *s, Node *t) {
  for (int i = 0;
       i < 64 && t->kind == N_TYPE_NAME && t->type_name.path.count == 1 && !t->type_name.has_dims;
       i++) {
    Name n = t->type_name.path.items[0].name;
    if (dtype_find(n) >= 0) return t;
    Global *g = global_find(s, s->frame->module, n);
    if (!g || g->kind != G_TYPE) return t;
    t = g->decl->type_decl.type;
  }
  if (t->kind == N_TYPE_NAME && t->type_name.path.count == 2) {
    Global *g = global_find(s, s->frame->module, t->type_name.path.items[0].name);
    if (g && g->kind == G_MODULE) {
      Global *h = global_find(s, g->v.u.module, t->type_name.path.items[1].name);
      if (h && h->kind == G_TYPE) return h->decl->type_decl.type;
    }
  }
  return t;
}

static Dim eval_dim(Session *s, Node *d, const char *what) {
  return type_dim_of(s, eval_expr(s, d), d->span, what);
}

void type_bind(Session *s, Node *type, Value v) {
  stack_check();
  if (!type || v.tag == V_UNKNOWN) return;
  type = resolve(s, type);
  if ((type->kind == N_TYPE_TUPLE) && (v.tag == V_TUPLE || v.tag == V_LIST)) {
    for (uint32_t i = 0; i < type->list.count && i < v.u.list->count; i++)
      type_bind(s, type->list.items[i], v.u.list->items[i]);
    return;
  }
  if (type->kind == N_TYPE_RECORD && v.tag == V_RECORD) {
    for (uint32_t i = 0; i < type->list.count; i++) {
      const Value *f = value_record_get(v.u.rec, type->list.items[i]->type_field.name.name);
      if (f) type_bind(s, type->list.items[i]->type_field.type, *f);
    }
    return;
  }
  if (type->kind == N_TYPE_DICT && v.tag == V_DICT) {
    size_t n;
    Value *items = value_parts(s, v, &n);
    for (size_t i = 0; i < n; i++) type_bind(s, type->entry.value, items[i]);
    return;
  }
  if (type->kind == N_TYPE_LIST && v.tag == V_LIST) {
    for (size_t i = 0; i < v.u.list->count; i++) type_bind(s, type->type_list, v.u.list->items[i]);
    return;
  }
  if (type->kind != N_TYPE_NAME || !type->type_name.has_dims) return;
  if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, type->span);
  if (!v_is_tensor(v) && !v_is_number(v)) return;
  Type t = op_type_of(s, v);
  const NodeList *d = &type->type_name.dims;
  int pack = -1;
  for (uint32_t i = 0; i < d->count; i++)
    if (d->items[i]->kind == N_PACK) pack = (int)i;
  for (uint32_t i = 0; i < d->count; i++) {
    Node *n = d->items[i];
    int axis = pack >= 0 && (int)i > pack ? t.rank - (int)(d->count - i) : (int)i;
    if (n->kind == N_PACK) {
      if (!n->word.name || !unbound(s, n->word.name)) {
        if (!n->word.name || local_find(s, n->word.name)) continue;
      }
      int len = t.rank - ((int)d->count - 1);
      if (len < 0) continue;
      Value items[CKL_MAX_RANK];
      for (int k = 0; k < len; k++) items[k] = type_dim_value(s, t.dim[(int)i + k]);
      local_push(s, n->word.name, v_list(s, V_TUPLE, (size_t)len, items), false, n->span);
      continue;
    }
    if (axis < 0 || axis >= t.rank) continue;
    if (n->kind == N_NAME && !wild(n) && unbound(s, n->name))
      local_push(s, n->name, type_dim_value(s, t.dim[axis]), false, n->span);
  }
}

/* The source text of the annotation, for messages. */
static const char *type_source(Session *s, const Node *t) {
  const Source *f = src_get(&s->sources, t->span.file);
  if (t->span.hi > f->length || t->span.lo >= t->span.hi) return "this type";
  return arena_strdup(&s->scratch, f->text + t->span.lo, t->span.hi - t->span.lo);
}

/* Only for messages: most values fit. */
static const char *subject(Session *s, const Subject *x) {
  stack_check();
  Buf b;
  const char *of = x->of ? subject(s, x->of) : "";
  long long i = (long long)x->key.u.i;
  switch (x->kind) {
  case SUBJECT_ELEMENT: return fail_text(s, "element %lld of %s", i, of);
  case SUBJECT_ITEM: return fail_text(s, "item %lld of %s", i, of);
  case SUBJECT_FIELD: return fail_text(s, "field `%s` of %s", x->text[0], of);
  case SUBJECT_KEY: return fail_text(s, "the key %s of %s", dict_key_text(s, x->key), of);
  case SUBJECT_AT: return fail_text(s, "%s[%s]", of, dict_key_text(s, x->key));
  case SUBJECT_WHOLE: break;
  }
  buf_init_arena(&b, &s->scratch);
  for (size_t k = 0; k < 5 && x->text[k]; k++) buf_puts(&b, x->text[k]);
  return b.s ? b.s : "";
}

static _Noreturn void mismatch(Session *s, Node *type, Value v, Span at, const Subject *what,
                               const char *why) {
  Diag *d =
      fail_report(s, ERR_TYPE_MISMATCH, at, "%s must be %s, this is %s%s%s", subject(s, what),
                  type_source(s, type), value_type_text(s, v), why ? ": " : "", why ? why : "");
  dg_label(&s->diags, d, type->span, "declared here");
  fail_raise(s);
}

static void match_dims(Session *s, Node *type, Value v, const Type *t, Span at,
                       const Subject *what) {
  const NodeList *d = &type->type_name.dims;
  DimTab *dt = op_dims_of(s);
  int pack = -1;
  for (uint32_t i = 0; i < d->count; i++)
    if (d->items[i]->kind == N_PACK) pack = (int)i;
  int fixed = (int)d->count - (pack >= 0);
  if (pack < 0 ? t->rank != fixed : t->rank < fixed)
    mismatch(s, type, v, at, what,
             fail_text(s, "rank %d, not %s%d", t->rank, pack < 0 ? "" : "at least ", fixed));
  for (uint32_t i = 0; i < d->count; i++) {
    Node *n = d->items[i];
    if (n->kind == N_PACK) {
      if (!n->word.name) continue;
      Local *l = local_find(s, n->word.name);
      if (!l || l->v.tag != V_TUPLE) {
        if (!l)
          fail_at(s, ERR_DIM_UNBOUND, n->span, "the pack `%s` is not bound by a parameter",
                  n->word.name);
        fail_at(s, ERR_TYPE, n->span, "`%s` is not a pack of dims", n->word.name);
      }
      int len = t->rank - fixed;
      bool ok = (int)l->v.u.list->count == len;
      for (int k = 0; ok && k < len; k++) {
        Dim want = type_dim_of(s, l->v.u.list->items[k], n->span, "a dim"),
            have = t->dim[(int)i + k];
        DimOrder o = dim_compare(dt, want, have);
        if (o == DIM_MAYBE && s->stage)
          gr_check(
              s->stage->g, CHECK_EQ, have, want,
              fail_text(s, "%s does not have the shape `...%s`", subject(s, what), n->word.name));
        else if (o != DIM_EQUAL)
          ok = false;
      }
      if (!ok) {
        Diag *g = fail_report(s, ERR_TYPE_MISMATCH, at,
                              "%s must be %s, this is %s: `...%s` is %s already", subject(s, what),
                              type_source(s, type), value_type_text(s, v), n->word.name,
                              dims_text(s, l->v));
        dg_label(&s->diags, g, l->span, "`...%s` was bound here to %s", n->word.name,
                 dims_text(s, l->v));
        fail_raise(s);
      }
      continue;
    }
    if (wild(n)) continue;
    int axis = pack >= 0 && (int)i > pack ? t->rank - (int)(d->count - i) : (int)i;
    if (n->kind == N_NAME && unbound(s, n->name))
      fail_at(s, ERR_DIM_UNBOUND, n->span, "the dim `%s` is not bound by a parameter", n->name);
    Dim want = eval_dim(s, n, "a dim"), have = t->dim[axis];
    DimOrder o = dim_compare(dt, want, have);
    if (o == DIM_EQUAL) continue;
    Buf b;
    buf_init_arena(&b, &s->scratch);
    int64_t only;
    bool is_const = dim_is_const(dt, want, &only);
    /* of a size that is none for any N, the run has more to say: what it is */
    bool at_run =
        o == DIM_MAYBE || (!is_const && !dim_is_const(dt, dim_sub(dt, want, have), NULL) &&
                           s->stage && !(s->stage->unit && s->stage->unit->check));
    if (at_run && s->stage) {
      if (is_const) unit_want_const(s, have, only);
      s->stage->g->at.span = at;
      gr_check(
          s->stage->g, CHECK_EQ, have, want,
          fail_text(s, "axis %d of %s is not `%s`", axis, subject(s, what), type_source(s, n)));
      continue;
    }
    dim_print(&b, dt, have);
    Buf w;
    buf_init_arena(&w, &s->scratch);
    dim_print(&w, dt, want);
    /* "`N + 1` is N + 1" would tell nothing */
    bool literal = n->kind == N_INT || !strcmp(type_source(s, n), w.s);
    Diag *g = fail_report(s, ERR_TYPE_MISMATCH, at,
                          literal ? "%s must be %s, this is %s: axis %d is %s, not %s"
                                  : "%s must be %s, this is %s: axis %d is %s, but `%s` is %s",
                          subject(s, what), type_source(s, type), value_type_text(s, v), axis, b.s,
                          literal ? w.s : type_source(s, n), w.s);
    Local *l = n->kind == N_NAME ? local_find(s, n->name) : NULL;
    if (l && l->span.file)
      dg_label(&s->diags, g, l->span, "`%s` was bound here", n->name);
    else
      dg_label(&s->diags, g, type->span, "declared here");
    fail_raise(s);
  }
}

static Value match_tensor(Session *s, Node *type, int dtype, int cls, Value v, Span at,
                          const Subject *what) {
  bool brackets = type->type_name.has_dims;
  /* a class without brackets also takes a number and keeps it weak (rule 19) */
  if (cls >= 0 && !brackets && v_is_number(v)) {
    bool is_float = v.tag == V_FLOAT || (v.tag == V_NODE && dt_float(op_type_of(s, v).dtype));
    if (cls == TYPEWORD_INT && is_float) mismatch(s, type, v, at, what, NULL);
    if (cls == TYPEWORD_FLOAT && v.tag == V_INT) return v_float((double)v.u.i);
    return v;
  }
  if (dtype == DT_BOOL && !brackets && v.tag == V_BOOL) return v;
  if (v_is_number(v) || v_is_weak_list(v) || v.tag == V_BOOL) {
    DType like = dtype >= 0                       ? (DType)dtype
                 : cls >= 0 && s->frame->cls[cls] ? (DType)(s->frame->cls[cls] - 1)
                                                  : DT_COUNT;
    if (v.tag == V_FLOAT && like != DT_COUNT && !dt_float(like))
      mismatch(s, type, v, at, what, NULL);
    if (v.tag != V_BOOL && like == DT_BOOL) mismatch(s, type, v, at, what, NULL);
    if (cls == TYPEWORD_FLOAT && like == DT_COUNT) like = DT_F32;
    v = op_as_tensor(s, v, like, at);
  }
  if (!v_is_tensor(v)) mismatch(s, type, v, at, what, NULL);
  Type t = op_type_of(s, v);
  if (dtype >= 0 && t.dtype != dtype) {
    Diag *d = fail_report(s, ERR_TYPE_MISMATCH, at, "%s must be %s, this is %s", subject(s, what),
                          type_source(s, type), value_type_text(s, v));
    dg_label(&s->diags, d, type->span, "declared here");
    dg_help(&s->diags, d, "`%s(..)` casts", dtype_info[dtype].name);
    fail_raise(s);
  }
  if (cls >= 0) {
    bool ok = cls == TYPEWORD_FLOAT ? dt_float((DType)t.dtype)
              : cls == TYPEWORD_INT ? dt_int((DType)t.dtype)
                                    : dt_float((DType)t.dtype) || dt_int((DType)t.dtype);
    if (!ok) mismatch(s, type, v, at, what, NULL);
    if (!s->frame->cls[cls])
      s->frame->cls[cls] = (uint8_t)(t.dtype + 1);
    else if (s->frame->cls[cls] != t.dtype + 1)
      mismatch(s, type, v, at, what,
               fail_text(s, "`%s` is %s in this call", type->type_name.path.items[0].name,
                         dtype_info[s->frame->cls[cls] - 1].name));
  }
  if (!brackets) {
    if (t.rank != 0) mismatch(s, type, v, at, what, "a scalar is needed");
    return v;
  }
  match_dims(s, type, v, &t, at, what);
  return v;
}

/* Keys stay what they are: `int` makes no tensor of one. */
static Value match_key(Session *s, Node *type, Value key, Span at, const Subject *what) {
  stack_check();
  Node *t = resolve(s, type);
  bool one = t->kind == N_TYPE_NAME && t->type_name.path.count == 1 && !t->type_name.has_dims;
  Name n = one ? t->type_name.path.items[0].name : NULL;
  bool fits = key.tag == V_UNKNOWN;
  if (t->kind == N_TYPE_TUPLE && key.tag == V_TUPLE && t->list.count == key.u.list->count) {
    for (uint32_t i = 0; i < t->list.count; i++)
      match_key(s, t->list.items[i], key.u.list->items[i], at, what);
    return key;
  }
  if (one && clause_type_word(n) == TYPEWORD_ANY) fits = true;
  if (one && clause_type_word(n) == TYPEWORD_STR) fits |= key.tag == V_STR;
  if (one && dtype_find(n) == DT_BOOL) fits |= key.tag == V_BOOL;
  if (one && (class_of(n) == TYPEWORD_INT || class_of(n) == TYPEWORD_NUM ||
              (dtype_find(n) >= 0 && dt_int((DType)dtype_find(n)))))
    fits |= key.tag == V_INT;
  if (!fits) mismatch(s, type, key, at, what, NULL);
  return key;
}

Value type_match(Session *s, Node *type, Value v, Span at, const Subject *what) {
  stack_check();
  if (!type || v.tag == V_UNKNOWN) return v;
  type = resolve(s, type);
  switch ((NodeKind)type->kind) {
  case N_TYPE_NAME: {
    Name n = type->type_name.path.items[type->type_name.path.count - 1].name;
    Span ns = type->type_name.path.items[type->type_name.path.count - 1].span;
    if (type->type_name.path.count == 1) {
      int dt = dtype_find(n), cls = class_of(n);
      if (dt >= 0 || cls >= 0) return match_tensor(s, type, dt, cls, v, at, what);
      bool fits = true;
      switch (clause_type_word(n)) {
      case TYPEWORD_STR: fits = v.tag == V_STR; break;
      case TYPEWORD_MODEL:
        fits = v.tag == V_INST || v.tag == V_PARAM || (s->stage && v_is_tensor(v));
        break;
      case TYPEWORD_SEQ: fits = v.tag == V_SEQ || v.tag == V_LIST; break;
      case TYPEWORD_NONE: fits = v.tag == V_NONE; break;
      case TYPEWORD_PARAMS: return match_params(s, type, v, at, what);
      default: break;
      }
      if (!fits) mismatch(s, type, v, at, what, NULL);
      if (clause_type_word(n) != TYPEWORD_NOT) return v;
    }
    Value m;
    if (type->type_name.path.count == 2) {
      Global *g = global_find(s, s->frame->module, type->type_name.path.items[0].name);
      if (!g || g->kind != G_MODULE)
        fail_at(s, ERR_UNKNOWN_TYPE, type->span, "no type is called `%s`", type_source(s, type));
      Global *h = global_find(s, g->v.u.module, n);
      m = h && h->kind == G_MODEL ? h->v : v_unit();
    } else {
      Global *g = global_find(s, s->frame->module, n);
      m = g && g->kind == G_MODEL ? g->v : v_unit();
    }
    if (m.tag != V_MODEL) {
      Diag *d = fail_report(s, ERR_UNKNOWN_TYPE, ns, "no type is called `%s`", n);
      help_meant(s, d, n, fail_suggest(s, n));
      fail_raise(s);
    }
    if (v.tag != V_INST || v.u.inst->model != m.u.model) mismatch(s, type, v, at, what, NULL);
    return v;
  }
  case N_TYPE_LIST: {
    if (v_is_weak_list(v) && v.u.list->count == 0) return v;
    if (v.tag != V_LIST) mismatch(s, type, v, at, what, NULL);
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    for (size_t i = 0; i < v.u.list->count; i++)
      items[i] = type_match(s, type->type_list, v.u.list->items[i], at,
                            &(Subject){SUBJECT_ELEMENT, what, .key = v_int((int64_t)i)});
    return v_list(s, V_LIST, v.u.list->count, items);
  }
  case N_TYPE_DICT: {
    if (v.tag != V_DICT) mismatch(s, type, v, at, what, NULL);
    size_t n;
    Value *items = value_parts(s, v, &n), *keys = ARENA_ARRAY(&s->scratch, Value, n + 1);
    for (size_t i = 0; i < n; i++) {
      Value key = v.u.dict->keys[i];
      keys[i] = match_key(s, type->entry.key, key, at, &(Subject){SUBJECT_KEY, what, .key = key});
      items[i] =
          type_match(s, type->entry.value, items[i], at, &(Subject){SUBJECT_AT, what, .key = key});
    }
    return v_dict(s, n, keys, items);
  }
  case N_TYPE_TUPLE: {
    if (type->list.count == 0) {
      if (v.tag != V_UNIT) mismatch(s, type, v, at, what, NULL);
      return v;
    }
    if (v.tag != V_TUPLE || v.u.list->count != type->list.count)
      mismatch(s, type, v, at, what, NULL);
    Value items[64];
    if (type->list.count > 64) return v;
    for (uint32_t i = 0; i < type->list.count; i++)
      items[i] = type_match(s, type->list.items[i], v.u.list->items[i], at,
                            &(Subject){SUBJECT_ITEM, what, .key = v_int(i)});
    return v_list(s, V_TUPLE, type->list.count, items);
  }
  case N_TYPE_RECORD: {
    if (v.tag != V_RECORD || v.u.rec->count != type->list.count)
      mismatch(s, type, v, at, what, NULL);
    Value *items = ARENA_ARRAY(&s->scratch, Value, type->list.count + 1);
    for (uint32_t i = 0; i < type->list.count; i++) {
      Node *f = type->list.items[i];
      if (v.u.rec->names[i] != f->type_field.name.name)
        mismatch(s, type, v, at, what, "a record type has the same fields in the same order");
      items[i] = type_match(s, f->type_field.type, v.u.rec->items[i], at,
                            &(Subject){SUBJECT_FIELD, what, .text = {f->type_field.name.name}});
    }
    return v_record(s, v.u.rec->count, v.u.rec->names, items);
  }
  case N_TYPE_FN:
    if (v.tag != V_FN && v.tag != V_BUILTIN && v.tag != V_DTYPE && v.tag != V_INST)
      mismatch(s, type, v, at, what, NULL);
    if (v.tag == V_FN && v.u.fn->decl->fn->params.count < type->type_fn.params.count)
      mismatch(s, type, v, at, what,
               fail_text(s, "it takes %u arguments", v.u.fn->decl->fn->params.count));
    return v;
  default: fail_at(s, ERR_TYPE, type->span, "this is not a type");
  }
}

Node *type_of_part(Session *s, Node *type, Name field, Value key, Span at, const Subject *of,
                   Subject *part) {
  type = resolve(s, type);
  *part = *of;
  if (type->kind == N_TYPE_LIST) {
    if (key.tag == V_INT) *part = (Subject){SUBJECT_ELEMENT, of, .key = key};
    return type->type_list;
  }
  if (type->kind == N_TYPE_DICT) {
    key = dict_key(s, key, at);
    match_key(s, type->entry.key, key, at, &(Subject){SUBJECT_KEY, of, .key = key});
    *part = (Subject){SUBJECT_AT, of, .key = key};
    return type->entry.value;
  }
  for (uint32_t i = 0; field && type->kind == N_TYPE_RECORD && i < type->list.count; i++)
    if (type->list.items[i]->type_field.name.name == field) {
      *part = (Subject){SUBJECT_FIELD, of, .text = {field}};
      return type->list.items[i]->type_field.type;
    }
  return NULL;
}

/* A tensor type whose dims are all known: of params, buffers, and made-up inputs of the checker. */
void type_eval(Session *s, Node *type, Type *out) {
  *out = (Type){.kind = TK_TENSOR, .dev = s->modes.device};
  type = resolve(s, type);
  if (type->kind != N_TYPE_NAME || type->type_name.path.count != 1)
    fail_at(s, ERR_TYPE, type->span, "a tensor type is needed here, such as f32[3, 4]");
  Name n = type->type_name.path.items[0].name;
  int dt = dtype_find(n);
  if (dt < 0 && class_of(n) == TYPEWORD_FLOAT) dt = DT_F32;
  if (dt < 0 && class_of(n) == TYPEWORD_INT) dt = DT_I64;
  if (dt < 0 && class_of(n) == TYPEWORD_NUM) dt = DT_F32;
  if (dt < 0)
    fail_at(s, ERR_TYPE, type->span,
            "a tensor type is needed here, such as f32[3, 4]; `%s` is none", n);
  out->dtype = (uint8_t)dt;
  const NodeList *d = &type->type_name.dims;
  int rank = 0;
  for (uint32_t i = 0; i < d->count; i++) {
    Node *x = d->items[i];
    if (x->kind == N_PACK) {
      Local *l = x->word.name ? local_find(s, x->word.name) : NULL;
      if (!l || l->v.tag != V_TUPLE)
        fail_at(s, ERR_DIM_UNBOUND, x->span, "this pack is not bound here");
      for (size_t k = 0; k < l->v.u.list->count && rank < CKL_MAX_RANK; k++)
        out->dim[rank++] = type_dim_of(s, l->v.u.list->items[k], x->span, "a dim");
      continue;
    }
    if (rank == CKL_MAX_RANK)
      fail_at(s, ERR_RANK_MAX, type->span, "a tensor has at most %d axes", CKL_MAX_RANK);
    Value v = eval_expr(s, x);
    if (v.tag == V_UNKNOWN) {
      out->rank = 255;
      return;
    }
    if (v.tag == V_INT && v.u.i < 0)
      fail_at(s, ERR_SIZE_NEGATIVE, x->span, "a size cannot be negative: %lld", (long long)v.u.i);
    out->dim[rank++] = type_dim_of(s, v, x->span, "a dim");
  }
  out->rank = (uint8_t)rank;
}

bool type_is_structured(Session *s, Node *type, bool *open) {
  stack_check();
  bool any = true;
  type = resolve(s, type);
  switch ((NodeKind)type->kind) {
  case N_TYPE_LIST:
  case N_TYPE_DICT: *open = true; break;
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD:
    for (uint32_t i = 0; i < type->list.count; i++) {
      Node *t = type->list.items[i];
      type_is_structured(s, type->kind == N_TYPE_RECORD ? t->type_field.type : t, open);
    }
    break;
  default: {
    Name n = type->kind == N_TYPE_NAME ? type->type_name.path.items[0].name : NULL;
    any = n && dtype_find(n) < 0 && class_of(n) < 0 &&
          (clause_type_word(n) == TYPEWORD_STR || clause_type_word(n) == TYPEWORD_ANY ||
           clause_type_word(n) == TYPEWORD_NONE);
    *open |= any;
  }
  }
  return any;
}

Value type_empty(Session *s, Node *type, Span at) {
  stack_check();
  Node *t = resolve(s, type);
  if (t->kind == N_TYPE_LIST) return v_list(s, V_LIST, 0, NULL);
  if (t->kind == N_TYPE_DICT) return v_dict_room(s, 0);
  if (t->kind == N_TYPE_TUPLE || t->kind == N_TYPE_RECORD) {
    uint32_t n = t->list.count;
    bool record = t->kind == N_TYPE_RECORD;
    Value *v = ARENA_ARRAY(&s->scratch, Value, n + 1);
    Name *names = ARENA_ARRAY(&s->scratch, Name, n + 1);
    for (uint32_t i = 0; i < n; i++) {
      Node *of = t->list.items[i];
      if (record) names[i] = of->type_field.name.name;
      v[i] = type_empty(s, record ? of->type_field.type : of, at);
    }
    if (!n) return v_unit();
    return record ? v_record(s, n, names, v) : v_list(s, V_TUPLE, n, v);
  }
  Name n = t->kind == N_TYPE_NAME ? t->type_name.path.items[0].name : NULL;
  bool dims = n && t->type_name.has_dims;
  int cls = n ? class_of(n) : -1;
  if (n && clause_type_word(n) == TYPEWORD_STR) return v_str(s, "", 0);
  if (n && clause_type_word(n) == TYPEWORD_NONE) return v_none();
  if (n && !dims && dtype_find(n) == DT_BOOL) return v_bool(false);
  if (!dims && cls >= 0) return cls == TYPEWORD_INT ? v_int(0) : v_float(0);
  if (!n || (dtype_find(n) < 0 && cls < 0))
    fail_at(s, ERR_INIT, at, "a buffer of type %s needs a value: `= ..`", type_source(s, type));
  Type is;
  type_eval(s, t, &is);
  Value zero = op_as_tensor(s, v_int(0), (DType)is.dtype, at);
  return op_broadcast_on(s, zero, is.rank, is.dim, is.dev, at);
}

bool type_wants_tensor(Session *s, Node *type, DType *dtype) {
  type = resolve(s, type);
  if (type->kind != N_TYPE_NAME || type->type_name.path.count != 1) return false;
  Name n = type->type_name.path.items[0].name;
  int d = dtype_find(n);
  *dtype = d >= 0 ? (DType)d : DT_COUNT;
  return d >= 0 || type->type_name.has_dims;
}

static const char *dims_text(Session *s, Value tuple) {
  Type t = {.rank = (uint8_t)tuple.u.list->count};
  for (int i = 0; i < t.rank; i++)
    t.dim[i] = type_dim_of(s, tuple.u.list->items[i], (Span){0}, "a dim");
  Unit *u = s->stage ? s->stage->unit : NULL;
  if (u && op_dims_of(s) == u->g->dims) t = unit_sized(u, t, true);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_putc(&b, '[');
  for (int i = 0; i < t.rank; i++) {
    if (i) buf_puts(&b, ", ");
    dim_print(&b, op_dims_of(s), t.dim[i]);
  }
  buf_putc(&b, ']');
  return b.s;
}

typedef struct LeafMatch {
  Node *type;
  Span at;
  const Subject *what;
} LeafMatch;

static Value leaf_match(Session *s, void *ud, size_t n, Value *v, const char *path) {
  LeafMatch *m = ud;
  (void)n;
  if (v[0].tag == V_NONE || v[1].tag == V_NONE || v[0].tag == V_UNKNOWN || v[1].tag == V_UNKNOWN)
    return v[1];
  Type a = op_type_of(s, v[0]);
  Value x = op_as_tensor(s, v[1], (DType)a.dtype, m->at);
  Type b = op_type_of(s, x);
  bool ok = a.dtype == b.dtype && a.rank == b.rank;
  for (int i = 0; ok && i < a.rank; i++) {
    DimOrder o = dim_compare(op_dims_of(s), a.dim[i], b.dim[i]);
    if (o == DIM_MAYBE && s->stage)
      gr_check(s->stage->g, CHECK_EQ, b.dim[i], a.dim[i],
               "a leaf has another shape than its param");
    else
      ok = o == DIM_EQUAL;
  }
  if (!ok) {
    const char *t = value_type_text(s, v[0]);
    fail_at(s, ERR_TYPE_MISMATCH, m->at, "%s must be %s: the leaf %s is %s, not %s",
            subject(s, m->what), type_source(s, m->type), path, value_type_text(s, v[1]), t);
  }
  return x;
}

/* params[net]: the structure, shapes and dtypes of the params of an instance (rule 64). */
static Value match_params(Session *s, Node *type, Value v, Span at, const Subject *what) {
  NodeList *d = &type->type_name.dims;
  if (d->count != 1)
    fail_at(s, ERR_TYPE, type->span, "`params[net]` takes one model, tracked tensor or tree");
  bool old = s->by_reference;
  s->by_reference = true;
  Value net = eval_expr(s, d->items[0]);
  s->by_reference = old;
  if (net.tag == V_UNKNOWN) return v;
  if (v.tag == V_INST) v = model_params_tree(s, v.u.inst, s->stage != NULL);
  bool tree = net.tag == V_TUPLE || net.tag == V_RECORD || net.tag == V_LIST || net.tag == V_DICT;
  if (net.tag != V_INST && !v_is_tensor(net) && !tree)
    fail_at(s, ERR_TYPE, type->span,
            "`params[..]` takes a model, a tracked tensor or a tree of these, not %s",
            value_type_text(s, net));
  if (net.tag == V_INST) net = model_params_tree(s, net.u.inst, false);
  LeafMatch m = {type, at, what};
  Value t[2] = {net, v};
  return tree_map(s, 2, t, leaf_match, &m, at);
}
