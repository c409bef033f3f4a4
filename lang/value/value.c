/* Values: makers, reference counts, release without recursion.
 *
 * In: parts. Out: Values whose object sits on the pool. Invariant: an object's count is the number
 * of owners plus its entries on the pool; when it falls to 0 the object goes to the session's dying
 * list and is freed there in a loop, so that releasing a chain of a million tape nodes or nested
 * lists needs no C stack.
 */
#include <stdio.h>
#include <string.h>

#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/lang.h"
#include "lang/names/module.h"
#include "lang/tape/hook.h"
#include "lang/tape/tape.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"

static void *obj_new(Session *s, ValueTag tag, size_t bytes) {
  Obj *o = mem_need(&s->mem, NULL, 0, bytes);
  memset(o, 0, bytes);
  o->rc = 1;
  o->s = s;
  o->tag = (uint8_t)tag;
  s->count.values_live++;
  return o;
}

static void release_obj(void *o) {
  obj_release(o);
}

static Value pooled(Session *s, Obj *o) {
  mem_pool_add(&s->mem, o, release_obj);
  return (Value){.tag = o->tag, .u.o = o};
}

Value value_new(Session *s, ValueTag tag, size_t bytes) {
  return pooled(s, obj_new(s, tag, bytes));
}

Value value_pool(Session *s, Value v) {
  if (!v_counted(v)) return v;
  value_retain(v);
  mem_pool_add(&s->mem, v.u.o, release_obj);
  return v;
}

void value_pool_tensors(Session *s, Tensor *const *t, size_t n) {
  bool room = mem_pool_try(&s->mem, n);
  for (size_t i = 0; i < n; i++) {
    if (room && t[i]) mem_pool_add(&s->mem, t[i], (void (*)(void *))tn_unref);
    if (!room) tn_unref(t[i]);
  }
  if (!room) mem_throw(&s->mem, MEM_ERR_NOMEM);
}

typedef struct Text {
  Mem *mem;
  char *p;
  size_t n;
} Text;

static void text_release(void *o) {
  Text *t = o;
  mem_free(t->mem, t->p, t->n + 1);
  mem_free(t->mem, t, sizeof *t);
}

const char *value_pool_text(Session *s, char *text, size_t n) {
  Text *t = mem_try(&s->mem, NULL, 0, sizeof *t);
  if (!t) {
    mem_free(&s->mem, text, n + 1);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  *t = (Text){&s->mem, text, n};
  mem_pool_add(&s->mem, t, text_release);
  return text;
}

void obj_holds(Obj *o, Value v) {
  uint32_t height = 1, parts = 1;
  if (v_counted(v)) {
    height += v.u.o->height;
    parts = v.u.o->parts < UINT32_MAX ? v.u.o->parts + 1 : UINT32_MAX;
    o->params |= v.tag == V_PARAM || v.u.o->params;
  }
  if (height > o->height) o->height = height < UINT16_MAX ? (uint16_t)height : UINT16_MAX;
  o->parts = parts > UINT32_MAX - o->parts ? UINT32_MAX : o->parts + parts;
}

enum { VALUE_DEEP = 1000, VALUE_PARTS = 1 << 22 };

bool value_is_vast(Value v) {
  return v_counted(v) && v.u.o->parts > VALUE_PARTS;
}

/* Whether v has more parts than bytes are in use: then it contains shared parts many times. */
static bool repeats(const Session *s, Value v) {
  return value_is_vast(v) && (v.u.o->parts == UINT32_MAX || v.u.o->parts > s->mem.live);
}

/* Counts v's height and parts anew: parts that it has lost count still, as long as nobody asks.
 * False: v really is that deep. */
static bool recount(Session *s, Table *seen, Value v, int depth) {
  stack_check();
  size_t n;
  const Value *items = value_items(v, &n);
  if (!items || table_add(seen, table_key(v.u.o), 1) != TABLE_NONE) return true;
  if (depth > VALUE_DEEP) return false;
  for (size_t i = 0; i < n; i++)
    if (!recount(s, seen, items[i], depth + 1)) return false;
  v.u.o->height = 0;
  v.u.o->parts = 0;
  for (size_t i = 0; i < n; i++) {
    obj_holds(v.u.o, items[i]);
    if (v.tag == V_DICT) obj_holds(v.u.o, v.u.dict->keys[i]);
  }
  return true;
}

bool value_bounded(Session *s, Value v) {
  if (!v_counted(v) || (v.u.o->height <= VALUE_DEEP && !repeats(s, v))) return true;
  Table seen = {.arena = &s->scratch};
  return recount(s, &seen, v, 0) && v.u.o->height <= VALUE_DEEP && !repeats(s, v);
}

void value_bound(Session *s, Value v, Span at) {
  if (value_bounded(s, v)) return;
  if (v.u.o->height > VALUE_DEEP)
    fail_at(s, ERR_DEPTH, at, "the value is nested more than %d deep", VALUE_DEEP);
  fail_at(s, ERR_DEPTH, at,
          "the value has %s%u parts: the same ones stand in many places, level over level",
          v.u.o->parts == UINT32_MAX ? "more than " : "", v.u.o->parts);
}

/* Frees the object and what it owns; children go to the dying list. */
static void obj_free(Obj *o) {
  Session *s = o->s;
  Mem *m = &s->mem;
  s->count.values_live--;
  switch ((ValueTag)o->tag) {
  case V_STR: mem_free(m, o, sizeof(StrObj) + ((StrObj *)o)->cap + 1); break;
  case V_TENSOR: {
    TVal *t = (TVal *)o;
    tn_unref(t->t);
    if (t->node) tape_release(s, t->node);
    mem_free(m, o, sizeof(TVal));
    break;
  }
  case V_PARAM:
    if (((Param *)o)->hooked) hooks_forget(s, HOOK_PARAM, HOOK_AFTER_GRAD, ((Param *)o)->id);
    tn_unref(((Param *)o)->t);
    mem_free(m, o, sizeof(Param));
    break;
  case V_LIST:
  case V_TUPLE:
  case V_ROWS: {
    List *l = (List *)o;
    for (size_t i = 0; i < l->count; i++) value_release(l->items[i]);
    mem_free(m, l->items, l->cap * sizeof(Value));
    mem_free(m, o, sizeof(List));
    break;
  }
  case V_RECORD: {
    Record *r = (Record *)o;
    for (size_t i = 0; i < r->count; i++) value_release(r->items[i]);
    mem_free(m, r->items, r->count * sizeof(Value));
    mem_free(m, r->names, r->count * sizeof(Name));
    mem_free(m, o, sizeof(Record));
    break;
  }
  case V_DICT: dict_free((Dict *)o); break;
  case V_RANGE:
    value_release(((Range *)o)->lo);
    value_release(((Range *)o)->hi);
    mem_free(m, o, sizeof(Range));
    break;
  case V_FN: {
    FnObj *f = (FnObj *)o;
    for (size_t i = 0; i < f->capture_count; i++) value_release(f->captures[i].v);
    mem_free(m, f->captures, f->capture_count * sizeof(Local));
    if (f->self) obj_release(&f->self->o);
    src_drop(&s->sources, f->decl->span.file);
    mem_free(m, o, sizeof(FnObj));
    break;
  }
  case V_INST: {
    Inst *i = (Inst *)o;
    if (i->hooked) hooks_forget(s, HOOK_BEFORE_CALL, HOOK_AFTER_CALL, i->id);
    for (size_t k = 0; k < i->count; k++) value_release(i->fields[k].v);
    value_release(i->policy);
    mem_free(m, i->fields, i->cap * sizeof(Field));
    mem_free(m, o, sizeof(Inst));
    break;
  }
  case V_POLICY: {
    PolicyObj *p = (PolicyObj *)o;
    for (size_t i = 0; i < p->count; i++) value_release(p->args[i]);
    mem_free(m, p->args, p->count * sizeof(Value));
    mem_free(m, o, sizeof(PolicyObj));
    break;
  }
  case V_SEQ: seq_free(s, (Seq *)o); break;
  case V_HANDLE: mem_free(m, o, sizeof(Handle)); break;
  default: break;
  }
}

void obj_release(Obj *o) {
  if (--o->rc > 0) return;
  Session *s = o->s;
  /* The list is threaded through the counts, which are no longer needed. */
  o->rc = (int64_t)(intptr_t)s->dying;
  s->dying = o;
  if (s->draining) return;
  s->draining = true;
  while (s->dying) {
    Obj *next = s->dying;
    s->dying = (Obj *)(intptr_t)next->rc;
    obj_free(next);
  }
  s->draining = false;
}

Value v_str(Session *s, const char *text, size_t n) {
  return v_str_room(s, text, n, n);
}

Value v_str_room(Session *s, const char *text, size_t n, size_t room) {
  StrObj *o = obj_new(s, V_STR, sizeof(StrObj) + room + 1);
  o->n = n;
  o->cap = room;
  o->chars = text_chars(text, n);
  o->at_char = o->at_byte = 0;
  memcpy(o->s, text, n);
  return pooled(s, &o->o);
}

Value v_printf(Session *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return v_str(s, b.s, b.n);
}

Value v_tensor(Session *s, Tensor *t) {
  if (!t) mem_throw(&s->mem, MEM_ERR_NOMEM);
  TVal *o = mem_try(&s->mem, NULL, 0, sizeof *o);
  if (!o) {
    tn_unref(t);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  *o = (TVal){.o = {.rc = 1, .s = s, .tag = V_TENSOR}, .t = t};
  s->count.values_live++;
  return pooled(s, &o->o);
}

Value v_param(Session *s, Tensor *t, Name name, bool tracked) {
  if (!t) mem_throw(&s->mem, MEM_ERR_NOMEM);
  Param *o = mem_try(&s->mem, NULL, 0, sizeof *o);
  if (!o) {
    tn_unref(t);
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  *o = (Param){.o = {.rc = 1, .s = s, .tag = V_PARAM},
               .t = t,
               .name = name,
               .tracked = tracked,
               .overlay = {.tag = V_UNIT},
               .id = ++s->next_id};
  s->count.values_live++;
  return pooled(s, &o->o);
}

Value v_scalar(const Tensor *t) {
  if (dt_float(t->dtype)) return v_float(tn_get_f64(t, 0));
  return t->dtype == DT_BOOL ? v_bool(tn_get_i64(t, 0) != 0) : v_int(tn_get_i64(t, 0));
}

Value v_list(Session *s, ValueTag tag, size_t n, const Value *items) {
  List *l = obj_new(s, tag, sizeof *l);
  Value v = pooled(s, &l->o); /* empty until the array is allocated */
  if (n) {
    l->items = mem_need(&s->mem, NULL, 0, n * sizeof(Value));
    l->count = l->cap = n;
    for (size_t i = 0; i < n; i++) {
      l->items[i] = items[i];
      value_retain(items[i]);
      obj_holds(&l->o, items[i]);
    }
  }
  return v;
}

Value v_record(Session *s, size_t n, const Name *names, const Value *items) {
  Record *r = obj_new(s, V_RECORD, sizeof *r);
  Value v = pooled(s, &r->o);
  if (n) {
    Name *own = mem_need(&s->mem, NULL, 0, n * sizeof(Name));
    r->items = mem_try(&s->mem, NULL, 0, n * sizeof(Value));
    if (!r->items) {
      mem_free(&s->mem, own, n * sizeof(Name));
      mem_throw(&s->mem, MEM_ERR_NOMEM);
    }
    r->names = own;
    r->count = n;
    for (size_t i = 0; i < n; i++) {
      r->names[i] = names[i];
      r->items[i] = items[i];
      value_retain(items[i]);
      obj_holds(&r->o, items[i]);
    }
  }
  return v;
}

/* The array of no parts: a value that has parts, of which there are none. */
static const Value no_items[1];

const Value *value_items(Value v, size_t *n) {
  const Value *items = NULL;
  *n = 0;
  switch ((ValueTag)v.tag) {
  case V_LIST:
  case V_TUPLE:
    *n = v.u.list->count;
    items = v.u.list->items;
    break;
  case V_RECORD:
    *n = v.u.rec->count;
    items = v.u.rec->items;
    break;
  case V_DICT:
    dict_pack(v.u.dict);
    *n = v.u.dict->count;
    items = v.u.dict->items;
    break;
  default: return NULL;
  }
  return items ? items : no_items;
}

Value *value_parts(Session *s, Value v, size_t *n) {
  const Value *items = value_items(v, n);
  if (!items) return NULL;
  Value *parts = ARENA_ARRAY(&s->scratch, Value, *n + 1);
  if (*n) memcpy(parts, items, *n * sizeof *parts);
  return parts;
}

Value value_like(Session *s, Value v, const Value *parts) {
  if (v.tag == V_RECORD) return v_record(s, v.u.rec->count, v.u.rec->names, parts);
  if (v.tag == V_DICT) {
    dict_pack(v.u.dict);
    return v_dict(s, v.u.dict->count, v.u.dict->keys, parts);
  }
  Value r = v_list(s, (ValueTag)v.tag, v.u.list->count, parts);
  r.u.list->weak = v.u.list->weak;
  return r;
}

bool value_alike(Value a, Value b) {
  size_t n, m;
  const Value *x = value_items(a, &n), *y = value_items(b, &m);
  if (a.tag != b.tag || !x || !y || n != m) return false;
  for (size_t i = 0; i < n; i++) {
    if (a.tag == V_RECORD && a.u.rec->names[i] != b.u.rec->names[i]) return false;
    if (a.tag == V_DICT && !value_same(a.u.dict->keys[i], b.u.dict->keys[i])) return false;
  }
  return true;
}

const Value *value_counterpart(Value a, size_t i, Value b) {
  size_t n;
  const Value *items = value_items(b, &n);
  if (a.tag != b.tag || !items) return NULL;
  if (a.tag == V_DICT) return dict_find(b.u.dict, a.u.dict->keys[i]);
  if (i >= n || (a.tag == V_RECORD && a.u.rec->names[i] != b.u.rec->names[i])) return NULL;
  return &items[i];
}

/* Whether a key stands in a path as it is, as the name of a field does. */
static bool plain_key(Value key) {
  if (key.tag != V_STR || !key.u.str->n) return false;
  const StrObj *t = key.u.str;
  for (size_t i = 0; i < t->n; i++) {
    char c = t->s[i];
    bool letter = c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && (!i || c < '0' || c > '9')) return false;
  }
  return true;
}

const char *value_part_name(Session *s, Value v, size_t i) {
  if (v.tag == V_RECORD) return v.u.rec->names[i];
  if (v.tag != V_DICT) return fail_text(s, "%zu", i);
  Value key = v.u.dict->keys[i];
  return plain_key(key) ? key.u.str->s : fail_text(s, "[%s]", dict_key_text(s, key));
}

const char *value_part_path(Session *s, const char *path, Value v, size_t i) {
  const char *name = value_part_name(s, v, i);
  return *path ? fail_text(s, "%s%s%s", path, *name == '[' ? "" : ".", name) : name;
}

Value v_range(Session *s, Value lo, Value hi) {
  Range *r = obj_new(s, V_RANGE, sizeof *r);
  r->lo = lo;
  r->hi = hi;
  value_retain(lo);
  value_retain(hi);
  return pooled(s, &r->o);
}

Value v_fn(Session *s, Node *decl, Module *m, Inst *self, ModelDecl *model, bool is_code,
           size_t ncaptures, const Local *captures) {
  FnObj *f = obj_new(s, V_FN, sizeof *f);
  f->decl = decl;
  f->module = m;
  f->model = model;
  f->is_code = is_code;
  f->self = self;
  if (self) self->o.rc++;
  if (self) obj_holds(&f->o, (Value){.tag = V_INST, .u.inst = self});
  src_hold(&s->sources, decl->span.file);
  Value v = pooled(s, &f->o);
  if (ncaptures) {
    f->captures = mem_need(&s->mem, NULL, 0, ncaptures * sizeof(Local));
    f->capture_count = ncaptures;
    memcpy(f->captures, captures, ncaptures * sizeof(Local));
    for (size_t i = 0; i < ncaptures; i++) {
      value_retain(captures[i].v);
      obj_holds(&f->o, captures[i].v);
    }
  }
  return v;
}

Value v_fn_like(Session *s, const FnObj *f, Inst *self, const Local *captures) {
  Value v = v_fn(s, f->decl, f->module, self, f->model, f->is_code, f->capture_count, captures);
  v.u.fn->deferred = f->deferred;
  return v;
}

Value v_inst(Session *s, ModelDecl *m, size_t nfields) {
  Inst *i = obj_new(s, V_INST, sizeof *i);
  i->model = m;
  i->id = ++s->next_id;
  Value v = pooled(s, &i->o);
  if (nfields) {
    i->fields = mem_need(&s->mem, NULL, 0, nfields * sizeof(Field));
    memset(i->fields, 0, nfields * sizeof(Field));
    i->count = i->cap = nfields;
  }
  return v;
}

const Value *value_record_get(const Record *r, Name name) {
  for (size_t i = 0; i < r->count; i++)
    if (r->names[i] == name) return &r->items[i];
  return NULL;
}

static void type_text(Session *s, Buf *b, Value v, int depth) {
  if (depth > 6) {
    buf_puts(b, "..");
    return;
  }
  switch ((ValueTag)v.tag) {
  case V_UNIT: buf_puts(b, "()"); break;
  case V_NONE: buf_puts(b, "none"); break;
  case V_BOOL: buf_puts(b, "bool"); break;
  case V_INT:
  case V_DIM: buf_puts(b, "int"); break;
  case V_FLOAT: buf_puts(b, "float"); break;
  case V_STR: buf_puts(b, "str"); break;
  case V_UNKNOWN: buf_puts(b, "?"); break;
  case V_DTYPE: buf_printf(b, "the dtype %s", dtype_info[v.u.i].name); break;
  case V_MODULE: buf_printf(b, "module %s", v.u.module->name); break;
  case V_BUILTIN: buf_printf(b, "builtin %s", v.u.builtin->name); break;
  case V_MODEL: buf_printf(b, "model %s", v.u.model->name); break;
  case V_NODE:
    if (v.weak) {
      Type t = op_type_of(s, v);
      buf_puts(b, dt_float(t.dtype) ? "float" : t.dtype == DT_BOOL ? "bool" : "int");
      break;
    } /* fall through */
  case V_TENSOR:
  case V_PARAM: {
    Type t = op_type_of(s, v);
    Unit *u = s->stage ? s->stage->unit : NULL;
    if (u && op_dims_of(s) == u->g->dims) t = unit_sized(u, t, false);
    type_print(b, op_dims_of(s), &t);
    break;
  }
  case V_LIST: buf_printf(b, "list of %zu", v.u.list->count); break;
  case V_ROWS: buf_puts(b, "list of as many elements as turns"); break;
  case V_TUPLE:
    buf_putc(b, '(');
    for (size_t i = 0; i < v.u.list->count; i++) {
      if (i) buf_puts(b, ", ");
      type_text(s, b, v.u.list->items[i], depth + 1);
    }
    buf_puts(b, v.u.list->count == 1 ? ",)" : ")");
    break;
  case V_RECORD:
    buf_putc(b, '(');
    for (size_t i = 0; i < v.u.rec->count; i++) {
      if (i) buf_puts(b, ", ");
      buf_printf(b, "%s: ", v.u.rec->names[i]);
      type_text(s, b, v.u.rec->items[i], depth + 1);
    }
    buf_putc(b, ')');
    break;
  case V_DICT: {
    size_t n;
    value_items(v, &n);
    buf_printf(b, !n || n > 4 ? "dict of %zu" : n == 1 ? "dict with key " : "dict with keys ", n);
    for (size_t i = 0; i < n && n <= 4; i++)
      buf_printf(b, "%s%s", i ? ", " : "", dict_key_text(s, v.u.dict->keys[i]));
    break;
  }
  case V_FN:
    buf_puts(b, v.u.fn->is_code ? "fn" : "proc");
    if (v.u.fn->decl->fn->name.name) buf_printf(b, " %s", v.u.fn->decl->fn->name.name);
    break;
  case V_INST:
    buf_printf(b, "%s%s", v.u.inst->model->name, v.u.inst->model->old ? " (old)" : "");
    break;
  case V_RANGE: buf_puts(b, "range"); break;
  case V_SEQ: buf_puts(b, "seq"); break;
  case V_HANDLE: buf_puts(b, "handle"); break;
  case V_POLICY:
    buf_printf(b, "policy %s", ((PolicyObj *)v.u.o)->decl->policy_decl.name.name);
    break;
  }
}

const char *value_type_text(Session *s, Value v) {
  if (v.tag == V_UNKNOWN) check_gives_up(s); /* an unknown value is no error */
  Buf b;
  buf_init_arena(&b, &s->scratch);
  type_text(s, &b, v, 0);
  return b.s;
}

bool value_same(Value a, Value b) {
  stack_check();
  if ((a.tag == V_INT || a.tag == V_FLOAT) && (b.tag == V_INT || b.tag == V_FLOAT)) {
    if (a.tag == V_INT && b.tag == V_INT) return a.u.i == b.u.i;
    double x = a.tag == V_INT ? (double)a.u.i : a.u.f, y = b.tag == V_INT ? (double)b.u.i : b.u.f;
    return x == y || (x != x && y != y);
  }
  const Tensor *ta = v_tensor_of(a), *tb = v_tensor_of(b);
  if (ta && tb) return tn_same(ta, tb);
  if (a.tag != b.tag) return false;
  switch ((ValueTag)a.tag) {
  case V_UNIT:
  case V_NONE: return true;
  case V_BOOL:
  case V_DTYPE: return a.u.i == b.u.i;
  case V_STR: return a.u.str->n == b.u.str->n && !memcmp(a.u.str->s, b.u.str->s, a.u.str->n);
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n, m;
    const Value *items = value_items(a, &n);
    value_items(b, &m);
    if (n != m) return false;
    for (size_t i = 0; i < n; i++) {
      const Value *y = value_counterpart(a, i, b);
      if (!y || !value_same(items[i], *y)) return false;
    }
    return true;
  }
  case V_RANGE:
    return value_same(a.u.range->lo, b.u.range->lo) && value_same(a.u.range->hi, b.u.range->hi);
  default: return v_counted(a) ? a.u.o == b.u.o : a.u.i == b.u.i;
  }
}
