/* Functions for all sizes: staged once, with symbols for unknown sizes.
 *
 * In: a function or method with annotated parameters. Out: filed errors, or its graph as text.
 * Sizes in brackets become symbols, methods run on an instance whose model ints are symbols too, so
 * one pass stands for all sizes. If staging needs a size as a constant, several are tried; an
 * error is filed only if it occurs with all of them. A class of dtypes stands for f32, a pack for
 * two dims; in a named type, of which a signature cannot make another one, for f64 and one dim too.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/pass.h"
#include "lang/check/check.h"
#include "lang/check/check_impl.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/type.h"
#include "lang/names/clauses.h"
#include "lang/names/desugar.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

enum { CHECK_STEPS = 50000 }; /* calls and iterations: a call tree may be exponential */

void check_step(Session *s) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  if (u && u->check && ++u->steps > CHECK_STEPS) check_gives_up(s);
}

_Noreturn void check_gives_up(Session *s) {
  mem_throw(&s->mem, MEM_ERR_UNKNOWN);
}

/* A made-up int: a symbol, or 2 once it was needed as a constant. */
static Value symbolic_int(Session *s, Unit *u, Name name, Span at) {
  size_t k = u->bind_count;
  SymBind b = {.leaf = k, .axis = -1, .name = NULL};
  b.dim = dim_symbol(u->g->dims, name, at, &b.sym);
  VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, b);
  for (size_t i = 0; i < u->pin_count; i++)
    if (u->pins[i].leaf == k) return v_int(u->pins[i].value);
  (void)s;
  return type_dim_value(s, b.dim);
}

Value check_symbolic_tensor(Session *s, DType dt, int rank, const Dim *d) {
  Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)dt, .rank = (uint8_t)rank};
  for (int i = 0; i < rank; i++) t.dim[i] = d[i];
  const Stage *st = s->stage; /* the inputs of a region are its own and its captures */
  while (st->up) st = st->up;
  Value v = {.tag = V_NODE, .aux = st->level};
  v.u.v = gr_input(st->g, &t);
  return v;
}

/* Makes the numbers in the buffers of a made-up instance symbols: they may have been written. */
static void symbolic_numbers(Session *s, Unit *u, Value v, Span at) {
  stack_check();
  size_t parts;
  const Value *items = value_items(v, &parts);
  for (size_t i = 0; i < parts; i++) symbolic_numbers(s, u, items[i], at);
  for (size_t i = 0; v.tag == V_INST && i < v.u.inst->count; i++) {
    Field *f = &v.u.inst->fields[i];
    if (f->kind == FIELD_LET) symbolic_numbers(s, u, f->v, at);
    if (f->kind == FIELD_BUFFER && f->open) value_set(&f->v, (Value){.tag = V_UNKNOWN});
    if (f->kind != FIELD_BUFFER || !v_is_number(f->v)) continue;
    bool whole = dt_int((DType)op_type_of(s, f->v).dtype);
    Value n = whole ? symbolic_int(s, u, f->name, at) : check_symbolic_tensor(s, DT_F64, 0, NULL);
    if (!whole) n.weak = true;
    value_set(&f->v, n);
  }
}

static bool symbolic_inst(Session *s, CheckJob *j, ModelDecl *m, Value *out);

/* Makes up a value for an annotation; false when it cannot. Dims in brackets become locals. */
static bool symbolic_value(Session *s, CheckJob *j, Node *type, Name name, Value *out, int depth) {
  Unit *u = j->u;
  stack_check();
  if (!type || depth > 16) return false;
  if (type->kind == N_TYPE_TUPLE) {
    if (type->list.count > 32) return false;
    Value items[32];
    for (uint32_t i = 0; i < type->list.count; i++)
      if (!symbolic_value(s, j, type->list.items[i], name, &items[i], depth + 1)) return false;
    *out = type->list.count ? v_list(s, V_TUPLE, type->list.count, items) : v_unit();
    return true;
  }
  if (type->kind == N_TYPE_RECORD) {
    if (type->list.count > 32) return false;
    Value items[32];
    Name names[32];
    for (uint32_t i = 0; i < type->list.count; i++) {
      names[i] = type->list.items[i]->type_field.name.name;
      if (!symbolic_value(s, j, type->list.items[i]->type_field.type, names[i], &items[i],
                          depth + 1))
        return false;
    }
    *out = v_record(s, type->list.count, names, items);
    return true;
  }
  if (type->kind != N_TYPE_NAME || type->type_name.path.count != 1) return false;
  Name n = type->type_name.path.items[0].name;
  int dt = dtype_find(n);
  bool dims = type->type_name.has_dims;
  TypeWord word = dt < 0 ? clause_type_word(n) : TYPEWORD_NOT;
  if (word == TYPEWORD_FLOAT) {
    if (!dims) {
      Value v = check_symbolic_tensor(s, DT_F64, 0, NULL);
      v.weak = true;
      *out = v;
      return true;
    }
    dt = j->floats;
    j->open |= j->named > 0;
  } else if (word == TYPEWORD_INT) {
    if (!dims) {
      *out = symbolic_int(s, u, name, type->span);
      return true;
    }
    dt = DT_I64;
  } else if (word == TYPEWORD_NUM) {
    dt = j->floats;
    j->open |= j->named > 0;
  }
  if (dt == DT_BOOL && !dims) return false; /* a static bool: its value decides the path */
  if (dt < 0) {
    Global *g = global_find(s, s->frame->module, n);
    if (g && g->kind == G_TYPE) {
      j->named++;
      bool made = symbolic_value(s, j, g->decl->type_decl.type, name, out, depth + 1);
      j->named--;
      return made;
    }
    if (g && g->kind == G_MODEL) return symbolic_inst(s, j, g->v.u.model, out);
    if (!g && word == TYPEWORD_NOT)
      type_match(s, type, v_int(0), type->span,
                 &(Subject){.text = {"the argument"}}); /* reports the unknown type */
    return false;
  }
  Dim d[CKL_MAX_RANK];
  int rank = 0;
  const NodeList *l = &type->type_name.dims;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *x = l->items[i];
    if (x->kind == N_PACK) {
      Local *p = x->word.name ? local_find(s, x->word.name) : NULL;
      if (p && p->v.tag == V_TUPLE) {
        for (size_t k = 0; k < p->v.u.list->count && rank < CKL_MAX_RANK; k++)
          d[rank++] = type_dim_of(s, p->v.u.list->items[k], x->span, "a dim");
        continue;
      }
      Value two[2]; /* a pack of two dims stands for any */
      int many = j->named ? j->pack : 2;
      j->open |= j->named > 0;
      for (int k = 0; k < many && rank < CKL_MAX_RANK; k++) {
        Name pack = x->word.name ? x->word.name : name;
        two[k] = symbolic_int(s, u, names_of(s->names, fail_text(s, "%s.%d", pack ? pack : "S", k)),
                              x->span);
        d[rank++] = type_dim_of(s, two[k], x->span, "a dim");
      }
      if (x->word.name) local_push(s, x->word.name, v_list(s, V_TUPLE, many, two), false, x->span);
      continue;
    }
    if (rank == CKL_MAX_RANK) return false;
    if (x->kind == N_NAME && x->name[0] == '_' && !x->name[1]) {
      d[rank++] = type_dim_of(s, symbolic_int(s, u, x->name, x->span), x->span, "a dim");
      continue;
    }
    if (x->kind == N_NAME && !local_find(s, x->name)) {
      const Words *b = &s->frame->fn->decl->fn->dims;
      for (uint32_t k = 0; k < b->count; k++)
        if (b->items[k].name == x->name)
          local_push(s, x->name, symbolic_int(s, u, x->name, x->span), false, x->span);
    }
    Value v = eval_expr(s, x);
    if (v.tag == V_UNKNOWN) return false;
    d[rank++] = type_dim_of(s, v, x->span, "a dim");
  }
  int64_t bytes = (int64_t)dt_size((DType)dt), k;
  for (int i = 0; i < rank; i++) {
    if (!dim_is_const(op_dims_of(s), d[i], &k)) continue;
    if (k < 0)
      fail_at(s, ERR_SIZE_NEGATIVE, type->span, "a size cannot be negative: %lld", (long long)k);
    if (__builtin_mul_overflow(bytes, k, &bytes))
      fail_at(s, ERR_SHAPE_SIZE, type->span, "this type has more than 2^63 - 1 bytes");
  }
  *out = check_symbolic_tensor(s, (DType)dt, rank, d);
  return true;
}

/* An instance made of symbols: ints are symbols, other arguments by their annotation. */
static bool symbolic_inst(Session *s, CheckJob *j, ModelDecl *m, Value *out) {
  Unit *u = j->u;
  const NodeList *p = &m->decl->model.params;
  Value *v = ARENA_ARRAY(&s->scratch, Value, p->count + 1);
  Name *names = ARENA_ARRAY(&s->scratch, Name, p->count + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, p->count + 1);
  size_t n = 0;
  Frame fr;
  FnObj *ctor = v_fn(s, desugar_model(s, m->decl), m->module, NULL, m, false, 0, NULL).u.fn;
  frame_push(s, &fr, ctor, m->decl->model.name.span);
  bool ok = true;
  for (uint32_t i = 0; i < p->count && ok; i++) {
    Node *x = p->items[i];
    if (x->param.init) continue;
    Node *t = x->param.type;
    spans[n] = x->span;
    if (!t || !symbolic_value(s, j, t, x->param.name.name, &v[n], 0)) {
      if (t && t->kind == N_TYPE_NAME && !strcmp(t->type_name.path.items[0].name, "bool"))
        v[n] = v_bool(true);
      else
        ok = false;
    }
    n++;
  }
  frame_pop(s, &fr);
  if (!ok) return false;
  Args a = {.count = n, .v = v, .names = names, .spans = spans, .call = m->decl->model.name.span};
  a.call.file = 0; /* no trace: nobody called */
  bool old = s->abstract;
  s->abstract = true; /* constructors are script */
  *out = model_construct(s, m, &a);
  s->abstract = old;
  if (!u->shows) symbolic_numbers(s, u, *out, m->decl->model.name.span);
  return true;
}

static Value give_output(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (v[0].tag == V_NODE) gr_output(s->stage->g, stage_lift(s, v[0], *(Span *)ud).u.v);
  return v[0];
}

static Value write_back(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  Unit *u = s->stage->unit;
  const Span *at = ud;
  GErr e = {.code = ERR_BUG, .operand = -1};
  if (v[0].tag != V_NODE || v[1].tag != V_NODE) return give_output(s, ud, 1, &v[1], path);
  Val in[3] = {u->token, v[0].u.v, stage_lift(s, v[1], *at).u.v};
  if (val_none(in[0])) in[0] = gr_op(u->g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  u->token = gr_op(u->g, OP_WRITE, in, 3, NULL, 0, NULL, 0, &e);
  if (val_none(u->token)) fail_gerr(s, *at, &e);
  return v[1];
}

static uint32_t first_input(Value v) {
  if (v.tag == V_NODE) return v.u.v.node;
  size_t n;
  const Value *items = value_items(v, &n);
  return n ? first_input(items[0]) : UINT32_MAX;
}

/* Adds the written state, in the order of its inputs, as further outputs or as copies into those
 * inputs at the end. Numbers are no inputs: they stay outputs. */
static void give_writes(Session *s, CheckJob *j, Span *at) {
  Unit *u = j->u;
  for (size_t i = 1; i < u->state_count; i++)
    for (size_t k = i; k && first_input(u->states[k].first) < first_input(u->states[k - 1].first);
         k--) {
      State later = u->states[k - 1];
      u->states[k - 1] = u->states[k];
      u->states[k] = later;
    }
  for (size_t i = 0; i < u->state_count; i++) {
    State *st = &u->states[i];
    Value both[2] = {st->first, st->cur};
    if (!st->written) continue;
    if (j->epilogue)
      tree_map(s, 2, both, write_back, at, *at);
    else
      tree_map(s, 1, &st->cur, give_output, at, *at);
  }
}

static Value input_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  (void)path;
  if (v[0].tag == V_INT) return symbolic_int(s, s->stage->unit, ((Field *)ud)->name, (Span){0});
  if (v[0].tag != V_NODE || v[0].weak) return v[0];
  Type t = op_type_of(s, v[0]);
  return check_symbolic_tensor(s, (DType)t.dtype, t.rank, t.dim);
}

/* For `ckl ir`: makes params and buffers of a made-up instance inputs, as they are in a call. */
static void state_to_inputs(Session *s, Value v, Span at) {
  stack_check();
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++) state_to_inputs(s, items[i], at);
  if (v.tag != V_INST) return;
  for (size_t i = 0; i < v.u.inst->count; i++) {
    Field *f = &v.u.inst->fields[i];
    if (f->kind == FIELD_LET) state_to_inputs(s, f->v, at);
    if (f->kind == FIELD_PARAM || f->kind == FIELD_BUFFER)
      value_set(&f->v, tree_map(s, 1, &f->v, input_leaf, f, at));
  }
}

static void check_fn_job(void *ud) {
  CheckJob *j = ud;
  Session *s = j->s;
  Unit *u = j->u;
  Node *d = j->node;
  u->g = gr_new(u->arena, dim_tab_new(u->arena), s->names, d ? d->fn->name.name : j->m->name);
  u->root = (Stage){.g = u->g, .unit = u, .level = 1};
  s->stage = &u->root;
  Value self = v_unit();
  if (j->m && !symbolic_inst(s, j, j->m, &self)) return;
  if (!d) return; /* only the members are checked */
  /* the arguments: their dims in brackets are made in a frame that is thrown away, and the call
   * binds them again */
  Frame fr;
  FnObj *f = v_fn(s, d, j->module, j->m ? self.u.inst : NULL, j->m, !d->fn->is_proc, 0, NULL).u.fn;
  frame_push(s, &fr, f, d->fn->header);
  Value *v = ARENA_ARRAY(&s->scratch, Value, d->fn->params.count + 1);
  Name *names = ARENA_ARRAY(&s->scratch, Name, d->fn->params.count + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, d->fn->params.count + 1);
  size_t n = 0;
  bool ok = true;
  for (uint32_t i = 0; i < d->fn->dims.count; i++) { /* `2 * N` may stand before the bare N */
    const Word *w = &d->fn->dims.items[i];
    local_push(s, w->name, symbolic_int(s, u, w->name, w->span), false, w->span);
  }
  for (uint32_t i = 0; i < d->fn->params.count && ok; i++) {
    Node *p = d->fn->params.items[i];
    if (p->param.init) continue;
    spans[n] = p->span;
    ok = symbolic_value(s, j, n < j->type_count ? j->types[n] : p->param.type, p->param.name.name,
                        &v[n], 0);
    if (ok) local_push(s, p->param.name.name, v[n], false, p->span); /* `net.nin` in later types */
    n++;
  }
  frame_pop(s, &fr);
  if (!ok) return;
  Args a = {.count = n, .v = v, .names = names, .spans = spans, .call = d->fn->header};
  a.call.file = 0; /* no trace: nobody called */
  if (u->shows) state_to_inputs(s, self, a.call);
  for (size_t i = 0; u->shows && i < n; i++) state_to_inputs(s, v[i], a.call);
  s->abstract = d->fn->is_proc;
  Value r = call_fn(s, f, &a);
  j->done = true;
  if (!j->out) return;
  tree_map(s, 1, &r, give_output, &a.call, a.call);
  give_writes(s, j, &a.call);
  pass_print_stage(s, j->out, u->arena, gr_dce(u->arena, u->g), j->stage, d->fn->header);
}

/* One try, with `value[i % n]` for the i-th size that is needed as a constant. Returns how many
 * sizes were needed. */
static size_t check_once(Session *s, CheckJob *j, const int64_t *value, size_t n) {
  Pin pins[16];
  size_t pin_count = 0;
  if (j->node) fail_running_at(s, j->node->span); /* for lack of memory */
  for (;;) {
    Arena a;
    arena_init(&a, &s->mem);
    Unit u = {.s = s, .arena = &a, .token = VAL_NONE, .check = true, .shows = j->out};
    buf_init_arena(&u.flat.sig, &a);
    u.flat.s = s;
    u.flat.arena = &a;
    for (size_t i = 0; i < pin_count; i++) VEC_PUSH(&a, u.pins, u.pin_count, u.pin_cap, pins[i]);
    j->u = &u;
    Frame top = {.up = NULL, .module = j->module, .base = s->local_count};
    Frame *old = s->frame;
    s->frame = &top;
    size_t mark = mem_pool_mark(&s->mem);
    int code = api_guard(s, check_fn_job, j);
    mem_pool_drain(&s->mem, mark);
    s->frame = old;
    s->stage = NULL;
    s->abstract = false;
    Pin wanted = u.wanted;
    bool restart = u.restart;
    arena_free(&a);
    if (code == MEM_ERR_NOMEM || code == MEM_ERR_INTERRUPT || code == MEM_ERR_BUG)
      mem_throw(&s->mem, code);
    if (code != MEM_ERR_RESTART || !restart || pin_count == 16) return pin_count;
    if (wanted.value < 0) wanted.value = value[pin_count % n];
    pins[pin_count++] = wanted;
  }
}

enum { MOST_TRIED = 1000 }; /* a size that is tried; a loop over it is unrolled */

typedef struct Literals {
  int64_t items[5];
  size_t count;
} Literals;

static void literal_visit(void *ud, Node *n) {
  Literals *l = ud;
  if (!n) return;
  if (n->kind == N_INT && n->number.i > 0 && l->count < 4) l->items[l->count++] = n->number.i;
  ast_children(n, literal_visit, ud);
}

/* Adds up the ints of a function, or of all of a file: an axis of more elements has all that it
 * reads by numbers. */
static void sum_visit(void *ud, Node *n) {
  int64_t *sum = ud;
  if (!n) return;
  if (n->kind == N_INT && n->number.i > 0 && n->number.i <= MOST_TRIED - *sum) *sum += n->number.i;
  ast_children(n, sum_visit, ud);
}

/* The first error among the diagnostics from `from` on, or NULL. */
static const Diag *error_from(const Session *s, size_t from) {
  for (size_t i = from; i < s->diags.count; i++)
    if (s->diags.items[i]->severity == SEV_ERROR) return s->diags.items[i];
  return NULL;
}

static bool same_error(const Diag *a, const Diag *b) {
  return a && b && a->code == b->code && a->span.file == b->span.file && a->span.lo == b->span.lo;
}

/* An error that stands with some sizes only, or elsewhere with others, is left to the call, which
 * has the right ones. */
bool check_fn(Session *s, CheckJob *j) {
  static const int64_t sizes[][2] = {{2, 2}, {3, 3}, {4, 2}, {1, 1}, {8, 4}, {5, 7}};
  size_t before = s->diags.errors, count = s->diags.count;
  size_t needed = 0;
  for (int round = 0; round < 5; round++) { /* the last one for the error of the first */
    dg_rewind(&s->diags, count);
    j->floats = round % 2 ? DT_F64 : DT_F32;
    j->pack = round / 2 == 1 ? 1 : 2;
    needed = check_once(s, j, sizes[0], 2);
    if (s->diags.errors == before || !j->open || j->out) break;
  }
  if (!needed || s->diags.errors == before || j->out) return s->diags.errors == before;
  size_t first = s->diags.count, errors = s->diags.errors;
  Literals l = {{0}, 0};
  if (j->node)
    for (uint32_t i = 0; i < j->node->fn->params.count; i++)
      literal_visit(&l, j->node->fn->params.items[i]);
  int64_t sum = 1;
  sum_visit(&sum, j->node);
  const Diag *d = error_from(s, count);
  const Span here = j->node ? j->node->span : d->span;
  if (d->span.file != here.file) /* in a function of another file, which it calls */
    sum = MOST_TRIED;
  else if (d->span.lo < here.lo || d->span.lo >= here.hi)
    sum_visit(&sum, j->module->ast);
  l.items[l.count++] = sum;
  size_t fixed = sizeof sizes / sizeof *sizes;
  for (size_t i = 1; i < fixed + l.count; i++) {
    check_once(s, j, i < fixed ? sizes[i] : &l.items[i - fixed], i < fixed ? 2 : 1);
    if (s->diags.errors == errors || !same_error(error_from(s, count), error_from(s, first))) {
      dg_rewind(&s->diags, count);
      return true;
    }
    dg_rewind(&s->diags, first);
  }
  return false;
}
