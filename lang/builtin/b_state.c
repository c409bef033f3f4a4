/* Builtins for values with state: stop, track, copy, freeze, params, devices; error_of.
 *
 * In: values, params, models. Out: values; marks in params.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/model.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/want.h"
#include "lang/names/clauses.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/state_walk.h"
#include "lang/value/tree.h"

/* ---- small words */

static Value stop_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (!v_is_tensor(v[0])) return v[0];
  if (!s->stage && v[0].tag == V_PARAM) return v_tensor(s, tn_ref(v_tensor_of(v[0])));
  if (!s->stage) return state_detach(s, v[0]);
  Value x = op_as_tensor(s, v[0], DT_COUNT, *(Span *)ud);
  return op_run(s, OP_STOP, 1, &x, NULL, 0, *(Span *)ud);
}

BUILTIN_FN(bi_stop) {
  return tree_map(s, 1, &c->v[0], stop_leaf, &c->at, c->at);
}

static Value track_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  Span at = *(Span *)ud;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Value x = op_as_tensor(s, v[0], DT_COUNT, at);
  if (s->abstract) return x;
  Tensor *t = op_tensor_of(s, x, at);
  if (!dt_float(t->dtype))
    fail_help(s, ERR_WANT_FLOAT, at, "cast it: `track(f32(..))`",
              "`track` works on floats, this is %s", value_type_text(s, x));
  return v_param(s, tn_copy(&s->mem, t, t->store->dev), NULL, true);
}

BUILTIN_FN(bi_track) {
  Value x = c->v[0].tag == V_LIST && c->v[0].u.list->weak
                ? op_as_tensor(s, c->v[0], DT_COUNT, c->at)
                : c->v[0];
  return tree_map(s, 1, &x, track_leaf, &c->at, c->at);
}

BUILTIN_FN(bi_training) {
  if (s->stage) s->stage->unit->modal = true;
  (void)c;
  return v_bool(s->modes.train);
}

BUILTIN_FN(bi_same) {
  (void)s;
  return v_bool(value_same(c->v[0], c->v[1]));
}

static Value copy_value(Session *s, Value v, Span at);

static Value copy_inst(Session *s, Inst *i, Span at) {
  Value r = v_inst(s, i->model, i->count);
  for (size_t k = 0; k < i->count; k++) {
    r.u.inst->fields[k] = i->fields[k];
    r.u.inst->fields[k].v = v_unit();
    Value v = i->fields[k].v;
    /* instances passed as arguments are shared, children are copied */
    if (i->fields[k].kind != FIELD_ARG) v = copy_value(s, v, at);
    value_set(&r.u.inst->fields[k].v, v);
    if (i->fields[k].kind == FIELD_ARG || i->fields[k].kind == FIELD_LET) obj_holds(r.u.o, v);
  }
  value_set(&r.u.inst->policy, i->policy);
  return r;
}

static Value copy_value(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_INST) return copy_inst(s, v.u.inst, at);
  if (v.tag == V_PARAM) {
    Value p =
        v_param(s, tn_copy(&s->mem, v.u.p->t, v.u.p->t->store->dev), v.u.p->name, v.u.p->tracked);
    p.u.p->frozen = v.u.p->frozen;
    return p;
  }
  if (v.tag == V_TENSOR) return v_tensor(s, tn_copy(&s->mem, v.u.t->t, v.u.t->t->store->dev));
  size_t n;
  Value *items = value_parts(s, v, &n);
  if (!items) return v;
  for (size_t i = 0; i < n; i++) items[i] = copy_value(s, items[i], at);
  return value_like(s, v, items);
}

/* In code values do not change; a copy is one without a gradient. */
static Value copy_in_code(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_INST)
    fail_help(s, ERR_SCRIPT_ONLY, at, "`copy(params(net))` is for code, too",
              "a copy of an instance is made in script, not in code");
  if (v_is_tensor(v)) return op_run(s, OP_STOP, 1, &v, NULL, 0, at);
  size_t n;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return v;
  for (size_t i = 0; i < n; i++) items[i] = copy_in_code(s, items[i], at);
  return value_like(s, v, items);
}

BUILTIN_FN(bi_copy) {
  if (in_code(s)) return copy_in_code(s, c->v[0], c->at);
  if (c->v[0].tag == V_PARAM) { /* a snapshot (rule 59) */
    Tensor *t = v_tensor_of(c->v[0]);
    return v_tensor(s, tn_copy(&s->mem, t, t->store->dev));
  }
  return copy_value(s, c->v[0], c->at);
}

/* ---- params */

typedef struct Freeze {
  Session *s;
  const char *glob;
  bool on;
  size_t hits;
} Freeze;

static void freeze_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  (void)owner, (void)f;
  Freeze *z = ud;
  if (!p || !walk_path_fits(s, z->glob, path)) return;
  p->frozen = z->on;
  z->hits++;
}

static void freeze_glob(Session *s, Call *c, Value glob, Span at) {
  Freeze z = {s, want_str(s, glob, at, "the glob"), c->b->op != 0, 0};
  walk_slots(s, c->v[0], freeze_slot, &z);
  if (!z.hits)
    fail_help(s, ERR_GLOB, at,
              "print(paths(net)) shows the paths; `*` is one part, `**` any number",
              "no param matches `%s`", z.glob);
}

BUILTIN_FN(bi_freeze) {
  Value x = tape_itself(c->v[0]);
  if (x.tag == V_PARAM) {
    x.u.p->frozen = c->b->op != 0;
    return v_unit();
  }
  size_t n;
  if (c->v[0].tag != V_INST && !value_items(c->v[0], &n))
    fail_at(s, ERR_WANT_MODEL, c->spans[0], "`%s` takes a model, not %s", c->b->name,
            value_type_text(s, c->v[0]));
  for (size_t i = 0; i < c->rest_n; i++) freeze_glob(s, c, c->rest[i], c->rest_spans[i]);
  if (!c->rest_n) freeze_glob(s, c, v_str(s, "**", 2), c->at);
  return v_unit();
}

/* The params of a tree of tracked tensors and instances, in its structure; a tensor is itself. */
static Value params_of(Session *s, Value v, bool top, const Node *n, Span at) {
  stack_check();
  if (v.tag == V_UNKNOWN) return v;
  if (v.tag == V_PARAM) {
    if (v.u.p->frozen && !s->by_reference) return v_none();
    return s->stage ? param_read(s, v.u.p, at) : v;
  }
  if (v.tag == V_INST) return model_params_tree(s, v.u.inst, !s->by_reference);
  if (v_is_tensor(v)) return v;
  size_t count;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &count);
  if (!items && !top && tree_structure(v, ".")) return v;
  if (!items)
    fail_at(s, ERR_WANT_MODEL, n->span,
            "`params` takes a model, a tracked tensor or a tree of these, not %s",
            value_type_text(s, v));
  for (size_t i = 0; i < count; i++) items[i] = params_of(s, items[i], false, n, at);
  return value_like(s, v, items);
}

BUILTIN_FN(bi_params) {
  static const char *const names[] = {"net"};
  Node *a[1];
  arg_raw(s, c, a, 1, names);
  if (!a[0]) fail_at(s, ERR_ARG_COUNT, c->at, "`params` needs the argument `net`");
  /* the receiver of x.params() is evaluated already */
  Value v = c->n ? c->v[0] : arg_raw_ref(s, a[0]);
  if (v.tag == V_PARAM) return s->stage ? param_read(s, v.u.p, c->at) : v;
  return params_of(s, v, true, a[0], c->at);
}

BUILTIN_FN(bi_buffers) {
  if (c->v[0].tag != V_INST)
    fail_at(s, ERR_WANT_MODEL, c->spans[0], "`buffers` takes a model, not %s",
            value_type_text(s, c->v[0]));
  return model_buffers_tree(s, c->v[0].u.inst);
}

/* ---- devices */

static Device device_arg(Session *s, Call *c, int i) {
  const char *d = want_str(s, c->v[i], c->spans[i], "the device");
  int dev = clause_choice(MODE_device, d);
  if (dev == DEV_CUDA) fail_at(s, ERR_NOT_YET, c->spans[i], "not yet: device cuda");
  if (dev >= 0) return (Device)dev;
  clause_refuse(s, ERR_VALUE, c->spans[i], MODE_device, d);
  fail_raise(s);
}

typedef struct Move {
  Device dev;
  Span at;
} Move;

static void move_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Move *m = ud;
  (void)path;
  (void)owner;
  if (p) {
    operands_hold(s, p);
    Tensor *t = tn_copy(&s->mem, p->t, m->dev);
    if (!t) mem_throw(&s->mem, MEM_ERR_NOMEM);
    param_put(p, t);
  } else if (f && f->v.tag == V_TENSOR) {
    value_set(&f->v, v_tensor(s, tn_copy(&s->mem, f->v.u.t->t, m->dev)));
  }
}

static Value move_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  Move *m = ud;
  (void)n;
  (void)path;
  if (!v_is_tensor(v[0])) return v[0];
  return v_tensor(s, tn_copy(&s->mem, op_tensor_of(s, v[0], m->at), m->dev));
}

BUILTIN_FN(bi_to) {
  Move m = {device_arg(s, c, 1), c->at};
  if (c->v[0].tag == V_INST) {
    walk_slots(s, c->v[0], move_slot, &m);
    return c->v[0];
  }
  Value x = c->v[0].tag == V_LIST && c->v[0].u.list->weak
                ? op_as_tensor(s, c->v[0], DT_COUNT, c->at)
                : c->v[0];
  return tree_map(s, 1, &x, move_leaf, &m, c->at);
}

BUILTIN_FN(bi_device_of) {
  static const char *const names[] = {"cpu", "cuda", "sim"};
  const char *n = names[op_tensor_of(s, c->v[0], c->spans[0])->store->dev];
  return v_str(s, n, strlen(n));
}

/* ---- error_of */

typedef struct Try {
  Session *s;
  Value f;
  Span at;
} Try;

static void try_job(void *ud) {
  Try *t = ud;
  call_simple(t->s, t->f, 0, NULL, t->at);
}

BUILTIN_FN(bi_error_of) {
  Try t = {s, c->v[0], c->at};
  ValueTag f = (ValueTag)c->v[0].tag;
  if (f != V_FN && f != V_BUILTIN && f != V_INST && f != V_MODEL)
    fail_help(s, ERR_NOT_CALLABLE, c->spans[0], "`error_of(fn() { .. })` runs what may fail",
              "%s is not a function", value_type_text(s, c->v[0]));
  size_t before = s->diags.count;
  ArenaMark texts = arena_mark(s->diags.arena);
  Diag **list = s->diags.items;
  int code = api_guard(s, try_job, &t);
  if (code == MEM_OK) return v_none();
  if (code != MEM_ERR_PROGRAM) mem_throw(&s->mem, code);
  Diag *d = s->diags.count > before ? s->diags.items[before] : NULL;
  const char *ct = d ? err_info[d->code].code : "bug-1", *tt = d ? d->message : "";
  dg_rewind(&s->diags, before);
  Name names[2] = {names_of(s->names, "code"), names_of(s->names, "text")};
  Value items[2] = {v_str(s, ct, strlen(ct)), v_unit()};
  items[1] = v_str(s, tt, strlen(tt));
  if (s->diags.items == list) arena_rewind(s->diags.arena, texts); /* and what it said is gone */
  return v_record(s, 2, names, items);
}
