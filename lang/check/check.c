/* `ckl check`: finds what is wrong without running (rule 49).
 *
 * In: a declared module. Out: filed errors. Functions whose parameters are annotated are staged
 * once with symbols for their bracket dims, methods on an instance whose model ints are symbols
 * too, so one pass stands for all sizes. Script is walked by the same evaluator in abstract mode:
 * what is known of a value's type is checked, what only running can tell is V_UNKNOWN, which no
 * check refuses. Where staging needs a size as a constant, several are tried; a fault holds for
 * all. A fault is reported once, in the function where it lies (check_item), in the order of the
 * source.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/names/resolve.h"
#include "lang/eval/seq.h"
#include "parser/parse.h"

enum {
  FN_TAKEN = 4 /* Node.flags: see abstract_taken */,
  CHECK_STEPS = 50000 /* calls and turns: a call tree may be exponential */,
  ITEM_DONE = 2 /* Node.flags: checked */,
  CHECK_MOST = 20 /* errors */
};

static Node *culprit(Session *s, size_t count, const Node *self, Module **m, ModelDecl **model);
static Node *fn_at(Session *s, Span at, Module **m, ModelDecl **model);
static bool known_before(Session *s, size_t count);

static Value unknown(void) {
  return (Value){.tag = V_UNKNOWN};
}

typedef struct Made {
  Session *s;
  Unit *u;
  Node *node;
  ModelDecl *m;
  Module *module;
  Node **types;
  size_t type_count; /* instead of annotations, for `ckl ir` */
  Buf *out;          /* the graph's text goes here */
  bool done;
  int stage; /* STAGE_* */
  bool epilogue; /* writes are nodes at the end, not outputs */
} Made;

void check_step(Session *s) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  if (u && u->check && ++u->steps > CHECK_STEPS) check_gives_up(s);
}

_Noreturn void check_gives_up(Session *s) {
  mem_throw(&s->mem, MEM_ERR_UNKNOWN);
}

/* A made-up int: a symbol, or 2 once it was needed as a constant. */
static Value made_int(Session *s, Unit *u, Name name, Span at) {
  size_t k = u->bind_count;
  SymBind b = {.leaf = k, .axis = -1, .name = NULL};
  b.dim = dim_symbol(u->g->dims, name, at, &b.sym);
  VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, b);
  for (size_t i = 0; i < u->pin_count; i++)
    if (u->pins[i].leaf == k) return v_int(u->pins[i].value);
  (void)s;
  return dim_value(s, b.dim);
}

static Value made_tensor(Session *s, DType dt, int rank, const Dim *d) {
  Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)dt, .rank = (uint8_t)rank};
  for (int i = 0; i < rank; i++) t.dim[i] = d[i];
  const Stage *st = s->stage; /* the inputs of a region are its own and its captures */
  while (st->up) st = st->up;
  Value v = {.tag = V_NODE, .aux = st->level};
  v.u.v = gr_input(st->g, &t);
  return v;
}

/* Numbers in the buffers of a made-up instance: some that were written, not the first ones. */
static void make_numbers(Session *s, Unit *u, Value v, Span at) {
  stack_check();
  if (v.tag == V_LIST || v.tag == V_TUPLE)
    for (size_t i = 0; i < v.u.list->count; i++) make_numbers(s, u, v.u.list->items[i], at);
  if (v.tag == V_RECORD)
    for (size_t i = 0; i < v.u.rec->count; i++) make_numbers(s, u, v.u.rec->items[i], at);
  for (size_t i = 0; v.tag == V_INST && i < v.u.inst->count; i++) {
    Field *f = &v.u.inst->fields[i];
    if (f->kind == FIELD_LET) make_numbers(s, u, f->v, at);
    if (f->kind != FIELD_BUFFER || !v_is_number(f->v)) continue;
    bool whole = dt_int((DType)type_of(s, f->v).dtype);
    Value n = whole ? made_int(s, u, f->name, at) : made_tensor(s, DT_F64, 0, NULL);
    if (!whole) n.weak = true;
    value_set(&f->v, n);
  }
}

static bool make_inst(Session *s, Unit *u, ModelDecl *m, Value *out);

/* A value of an annotation; false when there is none to make up. Bracket dims become locals. */
static bool make(Session *s, Unit *u, Node *type, Name name, Value *out, int depth) {
  stack_check();
  if (!type || depth > 16) return false;
  if (type->kind == N_TYPE_TUPLE) {
    if (type->list.count > 32) return false;
    Value items[32];
    for (uint32_t i = 0; i < type->list.count; i++)
      if (!make(s, u, type->list.items[i], name, &items[i], depth + 1)) return false;
    *out = type->list.count ? list_value(s, V_TUPLE, type->list.count, items) : v_unit();
    return true;
  }
  if (type->kind == N_TYPE_RECORD) {
    if (type->list.count > 32) return false;
    Value items[32];
    Name names[32];
    for (uint32_t i = 0; i < type->list.count; i++) {
      names[i] = type->list.items[i]->type_field.name.name;
      if (!make(s, u, type->list.items[i]->type_field.type, names[i], &items[i], depth + 1))
        return false;
    }
    *out = record_value(s, type->list.count, names, items);
    return true;
  }
  if (type->kind != N_TYPE_NAME || type->type_name.path.count != 1) return false;
  Name n = type->type_name.path.items[0].name;
  int dt = dtype_find(n);
  bool dims = type->type_name.has_dims;
  if (dt < 0 && !strcmp(n, "float")) {
    if (!dims) {
      Value v = made_tensor(s, DT_F64, 0, NULL);
      v.weak = true;
      *out = v;
      return true;
    }
    dt = DT_F32;
  } else if (dt < 0 && !strcmp(n, "int")) {
    if (!dims) {
      *out = made_int(s, u, name, type->span);
      return true;
    }
    dt = DT_I64;
  } else if (dt < 0 && !strcmp(n, "num"))
    dt = DT_F32;
  if (dt == DT_BOOL && !dims) return false; /* static: which one decides the path */
  if (dt < 0) {
    Global *g = global_find(s, s->frame->module, n);
    if (g && g->kind == G_TYPE) return make(s, u, g->decl->type_decl.type, name, out, depth + 1);
    if (g && g->kind == G_MODEL) return make_inst(s, u, g->v.u.model, out);
    if (!g && strcmp(n, "any") && strcmp(n, "str") && strcmp(n, "model") && strcmp(n, "seq") &&
        strcmp(n, "params") && strcmp(n, "none"))
      type_match(s, type, v_int(0), type->span, "the argument"); /* reports the unknown type */
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
          d[rank++] = dim_of(s, p->v.u.list->items[k], x->span, "a dim");
        continue;
      }
      Value two[2]; /* a pack of two dims stands for any */
      for (int k = 0; k < 2 && rank < CKL_MAX_RANK; k++) {
        Name pack = x->word.name ? x->word.name : name;
        two[k] = made_int(s, u, names_of(s->names, txt(s, "%s.%d", pack ? pack : "S", k)), x->span);
        d[rank++] = dim_of(s, two[k], x->span, "a dim");
      }
      if (x->word.name) local_push(s, x->word.name, list_value(s, V_TUPLE, 2, two), false, x->span);
      continue;
    }
    if (rank == CKL_MAX_RANK) return false;
    if (x->kind == N_NAME && x->name[0] == '_' && !x->name[1]) {
      d[rank++] = dim_of(s, made_int(s, u, x->name, x->span), x->span, "a dim");
      continue;
    }
    if (x->kind == N_NAME && !local_find(s, x->name)) {
      const Words *b = &s->frame->fn->decl->fn->dims;
      for (uint32_t k = 0; k < b->count; k++)
        if (b->items[k].name == x->name)
          local_push(s, x->name, made_int(s, u, x->name, x->span), false, x->span);
    }
    Value v = eval(s, x);
    if (v.tag == V_UNKNOWN) return false;
    d[rank++] = dim_of(s, v, x->span, "a dim");
  }
  int64_t bytes = (int64_t)dt_size((DType)dt), k;
  for (int i = 0; i < rank; i++) {
    if (!dim_is_const(dims_of(s), d[i], &k)) continue;
    if (k < 0)
      fail(s, ERR_SIZE_NEGATIVE, type->span, "a size cannot be negative: %lld", (long long)k);
    if (__builtin_mul_overflow(bytes, k, &bytes))
      fail(s, ERR_SHAPE_SIZE, type->span, "this type has more than 2^63 - 1 bytes");
  }
  *out = made_tensor(s, (DType)dt, rank, d);
  return true;
}

/* An instance made of symbols: ints are symbols, other arguments by their annotation. */
static bool make_inst(Session *s, Unit *u, ModelDecl *m, Value *out) {
  const NodeList *p = &m->decl->model.params;
  Value *v = ARENA_ARRAY(&s->scratch, Value, p->count + 1);
  Name *names = ARENA_ARRAY(&s->scratch, Name, p->count + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, p->count + 1);
  size_t n = 0;
  Frame fr;
  FnObj *ctor = fn_value(s, model_ctor(s, m->decl), m->module, NULL, m, false, 0, NULL).u.fn;
  frame_push(s, &fr, ctor, m->decl->model.name.span);
  bool ok = true;
  for (uint32_t i = 0; i < p->count && ok; i++) {
    Node *x = p->items[i];
    if (x->param.init) continue;
    Node *t = x->param.type;
    spans[n] = x->span;
    if (!t || !make(s, u, t, x->param.name.name, &v[n], 0)) {
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
  *out = construct(s, m, &a);
  s->abstract = old;
  if (!u->shows) make_numbers(s, u, *out, m->decl->model.name.span);
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
  if ((v.tag == V_LIST || v.tag == V_TUPLE) && v.u.list->count)
    return first_input(v.u.list->items[0]);
  return v.tag == V_RECORD && v.u.rec->count ? first_input(v.u.rec->items[0]) : UINT32_MAX;
}

/* What was written, in the order of the inputs that hold it: more outputs, or copies into those
 * inputs at the end. Numbers are no inputs: they stay outputs. */
static void give_writes(Session *s, Made *j, Span *at) {
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
  if (v[0].tag == V_INT) return made_int(s, s->stage->unit, ((Field *)ud)->name, (Span){0});
  if (v[0].tag != V_NODE || v[0].weak) return v[0];
  Type t = type_of(s, v[0]);
  return made_tensor(s, (DType)t.dtype, t.rank, t.dim);
}

/* For `ckl ir`: params and buffers of a made-up instance are inputs, as they are of a call. */
static void state_to_inputs(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_LIST || v.tag == V_TUPLE)
    for (size_t i = 0; i < v.u.list->count; i++) state_to_inputs(s, v.u.list->items[i], at);
  if (v.tag == V_RECORD)
    for (size_t i = 0; i < v.u.rec->count; i++) state_to_inputs(s, v.u.rec->items[i], at);
  if (v.tag != V_INST) return;
  for (size_t i = 0; i < v.u.inst->count; i++) {
    Field *f = &v.u.inst->fields[i];
    if (f->kind == FIELD_LET) state_to_inputs(s, f->v, at);
    if (f->kind == FIELD_PARAM || f->kind == FIELD_BUFFER)
      value_set(&f->v, tree_map(s, 1, &f->v, input_leaf, f, at));
  }
}

static void check_fn_job(void *ud) {
  Made *j = ud;
  Session *s = j->s;
  Unit *u = j->u;
  Node *d = j->node;
  u->g = gr_new(u->arena, dim_tab_new(u->arena), s->names, d ? d->fn->name.name : j->m->name);
  u->root = (Stage){.g = u->g, .unit = u, .level = 1};
  s->stage = &u->root;
  Value self = v_unit();
  if (j->m && !make_inst(s, u, j->m, &self)) return;
  if (!d) return; /* the members alone */
  /* arguments: dims of the brackets are made in a frame that is thrown away, and bound again by
   * the call */
  Frame fr;
  FnObj *f =
      fn_value(s, d, j->module, j->m ? self.u.inst : NULL, j->m, !d->fn->is_proc, 0, NULL).u.fn;
  frame_push(s, &fr, f, d->fn->header);
  Value *v = ARENA_ARRAY(&s->scratch, Value, d->fn->params.count + 1);
  Name *names = ARENA_ARRAY(&s->scratch, Name, d->fn->params.count + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, d->fn->params.count + 1);
  size_t n = 0;
  bool ok = true;
  for (uint32_t i = 0; i < d->fn->dims.count; i++) { /* `2 * N` may stand before the bare N */
    const Word *w = &d->fn->dims.items[i];
    local_push(s, w->name, made_int(s, u, w->name, w->span), false, w->span);
  }
  for (uint32_t i = 0; i < d->fn->params.count && ok; i++) {
    Node *p = d->fn->params.items[i];
    if (p->param.init) continue;
    spans[n] = p->span;
    ok = make(s, u, n < j->type_count ? j->types[n] : p->param.type, p->param.name.name, &v[n], 0);
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
  print_stage(s, j->out, u->arena, gr_dce(u->arena, u->g), j->stage, d->fn->header);
}

/* One try, with `value[i % n]` for the i-th size that is needed as a constant. Returns how many
 * were. */
static size_t check_once(Session *s, Made *j, const int64_t *value, size_t n) {
  Pin pins[16];
  size_t pin_count = 0;
  for (;;) {
    Arena a;
    arena_init(&a, &s->mem);
    Unit u = {.s = s, .arena = &a, .token = VAL_NONE, .check = true, .shows = j->out};
    buf_init_arena(&u.flat.sig, &a);
    u.flat.arena = &a;
    for (size_t i = 0; i < pin_count; i++) VEC_PUSH(&a, u.pins, u.pin_count, u.pin_cap, pins[i]);
    j->u = &u;
    Frame top = {.up = NULL, .module = j->module, .base = s->local_count};
    Frame *old = s->frame;
    s->frame = &top;
    size_t mark = mem_pool_mark(&s->mem);
    int code = guard(s, check_fn_job, j);
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
    wanted.value = value[pin_count % n];
    pins[pin_count++] = wanted;
  }
}

typedef struct Literals {
  int64_t items[4];
  size_t count;
} Literals;

static void literal_visit(void *ud, Node *n) {
  Literals *l = ud;
  if (!n) return;
  if (n->kind == N_INT && n->number.i > 0 && l->count < 4) l->items[l->count++] = n->number.i;
  ast_children(n, literal_visit, ud);
}

/* Sizes that are needed as constants are made up: what is wrong for some is no fault, only what is
 * wrong for all that are tried. */
static bool check_fn(Session *s, Made *j) {
  static const int64_t sizes[][2] = {{2, 2}, {3, 3}, {4, 2}, {1, 1}, {8, 4}, {5, 7}};
  size_t before = s->diags.errors, count = s->diags.count;
  if (!check_once(s, j, sizes[0], 2) || s->diags.errors == before || j->out)
    return s->diags.errors == before;
  size_t first = s->diags.count, errors = s->diags.errors;
  Literals l = {{0}, 0};
  if (j->node)
    for (uint32_t i = 0; i < j->node->fn->params.count; i++)
      literal_visit(&l, j->node->fn->params.items[i]);
  size_t fixed = sizeof sizes / sizeof *sizes;
  for (size_t i = 1; i < fixed + l.count; i++) {
    check_once(s, j, i < fixed ? sizes[i] : &l.items[i - fixed], i < fixed ? 2 : 1);
    if (s->diags.errors == errors) {
      dg_rewind(&s->diags, count);
      return true;
    }
    dg_rewind(&s->diags, first);
  }
  return false;
}

/* ---- script */

Value comp_unknown(Session *s, Node *e) {
  size_t base = s->local_count;
  s->frame->block_depth++;
  for (uint32_t k = 0; k < e->comp.fors.count; k++) {
    Node *f = e->comp.fors.items[k];
    Value it = eval(s, f->loop.iter);
    bind_pattern(s, f->loop.pat, abstract_element(s, it, f->loop.iter->span), false);
  }
  Value v = eval(s, e->comp.value);
  s->frame->block_depth--;
  locals_pop(s, base);
  if (v.tag == V_INST && e->comp.fors.count == 1) return list_value(s, V_LIST, 1, &v);
  return unknown();
}

Value abstract_element(Session *s, Value it, Span at) {
  if (it.tag == V_RANGE) return unknown();
  if (v_is_tensor(it)) {
    Type t = type_of(s, it);
    if (!t.rank) fail(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    if (!s->stage) return unknown();
    return made_tensor(s, (DType)t.dtype, t.rank - 1, t.dim + 1);
  }
  if (it.tag == V_LIST && it.u.list->count) return it.u.list->items[0];
  if (it.tag == V_SEQ || it.tag == V_UNKNOWN || it.tag == V_LIST || it.tag == V_TUPLE)
    return unknown();
  fail(s, ERR_ITERATE, at, "`for` cannot go through %s", value_type_text(s, it));
}

bool abstract_only(Session *s, const Call *c) {
  const char *n = c->b->name;
  if (!strcmp(n, "nonzero")) return !c->given[1];
  if (!strcmp(n, "int") || !strcmp(n, "float"))
    return c->v[0].tag == V_NODE && type_of(s, c->v[0]).rank == 0;
  return false;
}

/* What is known of the arguments of a builtin of script, by the names of its parameters. */
static void check_arguments(Session *s, const Builtin *b, Call *c) {
  static const char *const texts[] = {"path", "file", "name", "label", "glob", "device", "key"};
  if (!(b->flags & BI_SCRIPT)) return; /* `key` of draws is no text, `path` of `map` a bool */
  const BuiltinSig *sig = builtin_sig(s, b);
  for (size_t i = 0; i < c->n; i++) {
    const char *name = sig->par[i].name;
    Value v = c->given[i] ? c->v[i] : v_unit();
    bool known = c->given[i] && v.tag != V_UNKNOWN;
    for (size_t k = 0; k < sizeof texts / sizeof *texts && known; k++)
      if (!strcmp(texts[k], name) && v.tag != V_STR)
        fail(s, ERR_WANT_STR, c->spans[i], "the argument `%s` of `%s` must be a str, not %s",
             texts[k], b->name, value_type_text(s, v));
    bool tree = v.tag == V_INST || v.tag == V_PARAM || v.tag == V_RECORD || v.tag == V_TUPLE ||
                v.tag == V_LIST || v.tag == V_NODE;
    if (known && !strcmp(name, "net") && !tree)
      fail(s, ERR_WANT_MODEL, c->spans[i], "the argument `net` of `%s` must be a model, not %s",
           b->name, value_type_text(s, v));
  }
}

Value abstract_builtin(Session *s, const Builtin *b, Call *c) {
  const char *n = b->name;
  check_arguments(s, b, c);
  if (!strcmp(n, "args")) return c->v[1].tag == V_STR || v_is_tensor(c->v[1]) ? c->v[1] : unknown();
  if (!strcmp(n, "load")) return c->v[0];
  if (!strcmp(n, "track")) {
    if (v_is_tensor(c->v[0]) && !dt_float((DType)type_of(s, c->v[0]).dtype))
      fail_help(s, ERR_GRAD_WRT, c->spans[0], "`track(f32(x))`",
                "only floats have gradients, this is %s", value_type_text(s, c->v[0]));
    /* an alias: it may be assigned, as a param may */
    return v_is_tensor(c->v[0]) ? op_run(s, OP_ALIAS, 1, &c->v[0], NULL, 0, c->at) : unknown();
  }
  if (!strcmp(n, "copy") && (c->v[0].tag == V_INST || v_is_tensor(c->v[0]))) return c->v[0];
  if (!strcmp(n, "to") && (c->v[0].tag == V_INST)) return c->v[0];
  if (!strcmp(n, "seed") || !strcmp(n, "save") || !strcmp(n, "freeze") || !strcmp(n, "unfreeze"))
    return v_unit();
  return unknown();
}

typedef struct ScriptJob {
  Session *s;
  Node *st;
} ScriptJob;

static void stmt_job(void *ud) {
  ScriptJob *j = ud;
  Value v;
  eval_stmt(j->s, j->st, &v);
}

/* What an error leaves behind: the variables that the statement sets are unknown, so that one error
 * stays one. */
static void forget_pat(Session *s, Module *m, Node *pat, bool is_var) {
  stack_check();
  if (pat->kind == N_PAT_NAME && !name_is_fixed(pat->word.name)) {
    Global *g = global_find(s, m, pat->word.name);
    if (!g || (g->kind == G_VALUE && !g->is_const))
      global_set(s, m, pat->word.name, unknown(), is_var, pat->word.span);
  }
  if (pat->kind == N_PAT_TUPLE || pat->kind == N_PAT_RECORD)
    for (uint32_t i = 0; i < pat->list.count; i++) forget_pat(s, m, pat->list.items[i], is_var);
}

typedef struct Forget {
  Session *s;
  Module *m;
} Forget;

Node *assigned_root(Node *st) {
  Node *t = st->assign.target;
  while (t->kind == N_DOT || t->kind == N_INDEX || t->kind == N_ITEM)
    t = t->kind == N_DOT ? t->dot.object : t->kind == N_INDEX ? t->index.object : t->item.object;
  return t;
}

static void forget_visit(void *ud, Node *n) {
  Forget *f = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = assigned_root(n);
    Global *g = t->kind == N_NAME ? global_find(f->s, f->m, t->name) : NULL;
    if (g && g->module == f->m && g->kind == G_VALUE && g->is_set && g->is_var)
      value_set(&g->v, unknown());
  }
  ast_children(n, forget_visit, ud);
}

static void forget(Session *s, Module *m, Node *st) {
  if (st->kind == N_LET) forget_pat(s, m, st->let.pat, st->let.is_var);
  forget_visit(&(Forget){s, m}, st);
}

/* ---- loops and branches of script: what a variable holds after them */

/* Whether two values of script have the same type as far as checks go. */
static bool same_kind(Session *s, Value a, Value b) {
  if (a.tag != b.tag || a.weak != b.weak) return false;
  if (a.tag == V_NODE) {
    Type x = type_of(s, a), y = type_of(s, b);
    if (x.dtype != y.dtype || x.rank != y.rank || x.dev != y.dev) return false;
    for (int i = 0; i < x.rank; i++)
      if (x.dim[i] != y.dim[i]) return false;
    return true;
  }
  return value_same(a, b);
}

typedef struct Assigned {
  Session *s;
  Name *items;
  size_t count, cap;
} Assigned;

static void assigned_visit(void *ud, Node *n) {
  stack_check();
  Assigned *a = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = assigned_root(n);
    bool known = t->kind != N_NAME;
    for (size_t i = 0; i < a->count && !known; i++) known = a->items[i] == t->name;
    if (!known) VEC_PUSH(&a->s->scratch, a->items, a->count, a->cap, t->name);
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) assigned_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, assigned_visit, ud);
}

static Value *variable(Session *s, Name name) {
  Local *l = local_find(s, name);
  if (l) return l->is_var ? &l->v : NULL;
  Global *g = global_find(s, s->frame->module, name);
  return g && g->kind == G_VALUE && g->is_var && g->is_set ? &g->v : NULL;
}

AbstractVars abstract_vars(Session *s, Node *body) {
  Assigned a = {.s = s};
  assigned_visit(&a, body);
  AbstractVars k = {a.items, a.count, ARENA_ARRAY(&s->scratch, Value, a.count + 1)};
  for (size_t i = 0; i < a.count; i++) {
    Value *v = variable(s, a.items[i]);
    k.before[i] = v ? value_pool(s, *v) : unknown();
  }
  return k;
}

/* A loop's variables: what a turn may change is not known in it. Tensors keep their type. */
void abstract_enter_loop(Session *s, const AbstractVars *k) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && v->tag != V_NODE && v->tag != V_INST) value_set(v, unknown());
  }
}

/* After a loop or branch: a variable whose type it changed is unknown. */
void abstract_leave(Session *s, const AbstractVars *k) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && !same_kind(s, *v, k->before[i])) value_set(v, unknown());
  }
}

/* Back to the values from before, for the other branch; returns those of this one. */
Value *abstract_swap(Session *s, const AbstractVars *k) {
  Value *now = ARENA_ARRAY(&s->scratch, Value, k->count + 1);
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    now[i] = unknown();
    if (!v) continue;
    now[i] = value_pool(s, *v);
    value_set(v, k->before[i]);
  }
  return now;
}

void abstract_join(Session *s, const AbstractVars *k, const Value *other) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]);
    if (v && !same_kind(s, *v, other[i])) value_set(v, unknown());
  }
}

static void has_return(void *ud, Node *n) {
  bool *found = ud;
  if (!n || *found || n->kind == N_LAMBDA || n->kind == N_FN) return;
  if (n->kind == N_RETURN) *found = true;
  ast_children(n, has_return, ud);
}

typedef struct Assign {
  Name name;
  Node *st;
} Assign;

static void find_assign(void *ud, Node *n) {
  Assign *a = ud;
  if (!n) return;
  if (n->kind == N_ASSIGN) {
    Node *t = assigned_root(n);
    if (t->kind == N_NAME && t->name == a->name) a->st = n;
  }
  ast_children(n, find_assign, ud);
}

/* A number may become a rank-0 tensor: it takes the dtype of what is assigned (rule 14). */
void check_carry(Session *s, const AbstractVars *k, Node *body) {
  for (size_t i = 0; i < k->count; i++) {
    Value *v = variable(s, k->names[i]), was = k->before[i];
    if (!v || !(v_is_tensor(*v) || v_is_number(*v)) || !(v_is_tensor(was) || v_is_number(was)))
      continue;
    Type x = type_of(s, was), y = type_of(s, *v);
    bool ok =
        x.rank == y.rank && (v_is_number(was) || (v_is_tensor(*v) ? x.dtype == y.dtype : false));
    for (int d = 0; ok && d < x.rank; d++)
      ok = dim_compare(dims_of(s), x.dim[d], y.dim[d]) != DIM_DIFFERENT;
    if (ok) continue;
    Assign a = {k->names[i], NULL};
    find_assign(&a, body);
    Local *l = local_find(s, k->names[i]);
    Diag *d = err(s, ERR_CARRY, a.st ? a.st->span : body->span,
                  "`%s` is %s before the loop and %s after a turn", k->names[i],
                  value_type_text(s, was), value_type_text(s, *v));
    if (l) dg_label(&s->diags, d, l->span, "declared here");
    dg_help(&s->diags, d,
            "a `var` that a loop assigns keeps its dtype and shape; a `let` in the body is new in "
            "each turn");
    raise_(s);
  }
}

/* Does a variable hold a param, which may be assigned? */
bool abstract_param(Session *s, Value v) {
  if (!s->abstract || v.tag != V_NODE) return false;
  Stage *st = s->stage;
  while (st && st->level > v.aux) st = st->up;
  return st && st->g->nodes[v.u.v.node].op == OP_ALIAS;
}

bool abstract_recursion(Session *s, const FnObj *f) {
  for (const Frame *fr = s->frame; fr; fr = fr->up)
    if (fr->fn && fr->fn->decl == f->decl && fr->fn->decl->kind == N_FN) return true;
  return false;
}

/* Whether a body may end at more than one place, so that its value is not known. */
bool abstract_returns(Node *body) {
  bool found = false;
  has_return(&found, body);
  return found;
}

typedef struct Taken {
  Session *s;
  Module *m;
  Node *fn;
} Taken;

static void taken_visit(void *ud, Node *n);

static void take(Session *s, Module *m, Node *fn) {
  if (fn->flags & FN_TAKEN) return;
  fn->flags |= FN_TAKEN;
  ast_children(fn, taken_visit, &(Taken){s, m, fn});
}

static void taken_visit(void *ud, Node *n) {
  stack_check();
  const Taken *t = ud;
  if (!n) return;
  Module *m = t->m;
  Node *root = n->kind == N_ASSIGN ? assigned_root(n) : n;
  Global *g = root->kind == N_NAME && !local_binds(t->fn, root->name)
                  ? global_find(t->s, m, root->name)
                  : NULL;
  if (g && n->kind == N_ASSIGN) g->moves = true;
  if (g && n->kind == N_NAME && g->kind == G_FN && g->decl->fn->is_proc)
    take(t->s, g->module, g->decl);
  for (size_t i = 0; n->kind == N_DOT && i < m->global_count; i++) { /* whatever has that method */
    if (m->globals[i].kind != G_MODEL) continue;
    const NodeList *l = &m->globals[i].decl->model.members;
    for (uint32_t k = 0; k < l->count; k++)
      if (l->items[k]->kind == N_FN && l->items[k]->fn->is_proc &&
          l->items[k]->fn->name.name == n->dot.name.name)
        take(t->s, m->globals[i].module, l->items[k]);
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) taken_visit(ud, n->string.items[i].hole);
  else
    ast_children(n, taken_visit, ud);
}

/* Who calls it, and when, is not followed: procs that it calls are taken with it. */
void abstract_taken(const FnObj *f) {
  if (!f->is_code) take(f->o.s, f->module, f->decl);
}

static void check_script(Session *s, Module *m) {
  Arena a;
  arena_init(&a, &s->mem);
  Unit u = {.s = s, .arena = &a, .token = VAL_NONE, .check = true};
  u.flat.arena = &a;
  buf_init_arena(&u.flat.sig, &a);
  u.g = gr_new(&a, dim_tab_new(&a), s->names, m->name);
  u.root = (Stage){.g = u.g, .unit = &u, .level = 1};
  Frame top = {.module = m, .base = s->local_count};
  s->frame = &top;
  for (uint32_t i = 0; i < m->ast->file.items.count; i++) {
    Node *st = m->ast->file.items.items[i];
    if (st->kind == N_USE || st->kind == N_FN || st->kind == N_MODEL || st->kind == N_TYPE_DECL ||
        st->kind == N_POLICY_DECL)
      continue;
    if (st->flags & ITEM_BAD) {
      forget(s, m, st);
      continue;
    }
    size_t filed = s->diags.count;
    s->stage = &u.root;
    s->abstract = true;
    top.block_depth = 0;
    int code;
    if (st->kind == N_TEST) {
      Frame test = {.up = &top, .module = m, .base = s->local_count, .test = true};
      s->frame = &test;
      ScriptJob j = {s, ARENA_NEW(&a, Node)};
      *j.st = (Node){.kind = N_EXPR_STMT, .span = st->span};
      j.st->expr = st->test.body;
      code = guard(s, stmt_job, &j);
      s->frame = &top;
    } else {
      ScriptJob j = {s, st};
      code = guard(s, stmt_job, &j);
    }
    s->stage = NULL;
    s->abstract = false;
    if (code == MEM_ERR_NOMEM || code == MEM_ERR_INTERRUPT || code == MEM_ERR_BUG) {
      s->frame = NULL;
      arena_free(&a);
      mem_throw(&s->mem, code);
    }
    if (code == MEM_ERR_PROGRAM && s->diags.count > filed) {
      /* what only code must know beforehand is no fault in script */
      const Diag *d = s->diags.items[s->diags.count - 1];
      Module *im;
      ModelDecl *id;
      Node *in = fn_at(s, d->span, &im, &id);
      bool script_place = !in || in->fn->is_proc;
      if (script_place && (d->code == ERR_NOT_CONST || d->code == ERR_SLICE_DYNAMIC ||
                           d->code == ERR_MASK_CODE || d->code == ERR_STATIC_STR))
        dg_rewind(&s->diags, filed);
    }
    if (code != MEM_OK) {
      forget(s, m, st);
      Module *cm;
      ModelDecl *cd;
      Node *c = culprit(s, filed, NULL, &cm, &cd);
      if (c && c->flags & ITEM_BAD) dg_rewind(&s->diags, filed);
      known_before(s, filed);
    }
    if (s->diags.errors >= CHECK_MOST) break;
  }
  s->frame = NULL;
  /* what is known of variables must not outlive the graph it refers to */
  for (size_t i = 0; i < m->global_count; i++)
    if (m->globals[i].module == m && m->globals[i].kind == G_VALUE && !m->globals[i].is_const) {
      value_set(&m->globals[i].v, v_unit());
      m->globals[i].is_set = false;
    }
  arena_free(&a);
}

/* ---- a module */

/* The function or method in which a place lies, or NULL. */
static Node *item_at(const Module *m, Span at) {
  if (!m->ast || at.file != m->file) return NULL;
  const NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (at.lo < n->span.lo || at.lo >= n->span.hi) continue;
    if (n->kind == N_FN) return n;
    if (n->kind != N_MODEL) return NULL;
    for (uint32_t k = 0; k < n->model.members.count; k++) {
      Node *x = n->model.members.items[k];
      if (x->kind == N_FN && at.lo >= x->span.lo && at.lo < x->span.hi) return x;
    }
    return NULL;
  }
  return NULL;
}

static Node *fn_at(Session *s, Span at, Module **m, ModelDecl **model) {
  *model = NULL;
  for (size_t i = 0; i < s->module_count; i++) {
    Node *n = item_at(s->modules[i], at);
    if (!n) continue;
    *m = s->modules[i];
    const NodeList *l = &s->modules[i]->ast->file.items;
    for (uint32_t k = 0; k < l->count; k++) {
      if (l->items[k]->kind != N_MODEL || at.lo < l->items[k]->span.lo ||
          at.lo >= l->items[k]->span.hi)
        continue;
      Global *g = global_find(s, *m, l->items[k]->model.name.name);
      if (!g || g->kind != G_MODEL) return NULL;
      *model = g->v.u.model;
    }
    return n;
  }
  return NULL;
}

/* Drops what was filed since `count` when the same was said before; a fault is reported once. */
static bool known_before(Session *s, size_t count) {
  Diags *d = &s->diags;
  for (size_t k = count; k < d->count; k++) {
    bool known = false;
    for (size_t i = 0; i < k && !known; i++)
      known = d->items[i]->code == d->items[k]->code &&
              d->items[i]->severity == d->items[k]->severity &&
              !memcmp(&d->items[i]->span, &d->items[k]->span, sizeof(Span));
    if (!known) continue;
    Diag *g = d->items[k];
    memmove(&d->items[k], &d->items[k + 1], (d->count - k - 1) * sizeof *d->items);
    d->count--;
    if (g->severity == SEV_ERROR) d->errors--;
    if (g->severity == SEV_WARNING) d->warnings--;
    k--;
  }
  return d->count == count;
}

/* Where the last error since `count` lies, if in a function that is not `self`. */
static Node *culprit(Session *s, size_t count, const Node *self, Module **m, ModelDecl **model) {
  for (size_t i = s->diags.count; i > count; i--) {
    if (s->diags.items[i - 1]->severity != SEV_ERROR) continue;
    Node *n = fn_at(s, s->diags.items[i - 1]->span, m, model);
    return n == self ? NULL : n;
  }
  return NULL;
}

static void check_item(Session *s, Module *m, Node *n, ModelDecl *model) {
  stack_check();
  if (n->flags & (ITEM_BAD | ITEM_DONE) || s->diags.errors >= CHECK_MOST) return;
  n->flags |= ITEM_DONE;
  size_t count = s->diags.count;
  if (check_fn(s, &(Made){.s = s, .node = n, .module = m, .m = model})) return;
  n->flags |= ITEM_BAD;
  /* a fault in a function that it calls is that function's, unless that one alone is right */
  Module *cm;
  ModelDecl *cd;
  Node *c = culprit(s, count, n, &cm, &cd);
  if (c) {
    bool done = c->flags & ITEM_DONE;
    if (!done) {
      dg_rewind(&s->diags, count);
      check_item(s, cm, c, cd);
      if (!(c->flags & ITEM_BAD)) check_fn(s, &(Made){.s = s, .node = n, .module = m, .m = model});
    } else if (c->flags & ITEM_BAD) {
      dg_rewind(&s->diags, count);
    }
  }
  known_before(s, count);
}

static void check_functions(Session *s, Module *m) {
  NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (n->kind == N_FN) check_item(s, m, n, NULL);
    if (n->kind != N_MODEL || n->flags & ITEM_BAD) continue;
    Global *g = global_find(s, m, n->model.name.name);
    if (!g || g->kind != G_MODEL) continue;
    size_t count = s->diags.count;
    if (!check_fn(
            s,
            &(Made){.s = s, .module = m, .m = g->v.u.model})) { /* its methods need an instance */
      n->flags |= ITEM_BAD;
      known_before(s, count);
      continue;
    }
    for (uint32_t k = 0; k < n->model.members.count; k++)
      if (n->model.members.items[k]->kind == N_FN)
        check_item(s, m, n->model.members.items[k], g->v.u.model);
  }
}

/* In the order of the source. */
static void sort_diags(Diags *d, size_t from) {
  for (size_t i = from + 1; i < d->count; i++) {
    Diag *g = d->items[i];
    size_t k = i;
    for (; k > from; k--) {
      const Diag *o = d->items[k - 1];
      if (o->span.file < g->span.file || (o->span.file == g->span.file && o->span.lo <= g->span.lo))
        break;
      d->items[k] = d->items[k - 1];
    }
    d->items[k] = g;
  }
}

bool check_module(Session *s, Module *m, bool script) {
  size_t before = s->diags.errors, from = s->diags.count;
  uint32_t warned = s->warned_count;
  for (size_t i = 0; i < s->module_count; i++) /* files that it uses */
    if (s->modules[i]->path && s->modules[i] != m) resolve_module(s, s->modules[i]);
  bool used_ok = s->diags.errors == before;
  resolve_module(s, m);
  if (used_ok) {
    for (size_t i = 0; i < s->module_count; i++)
      if (s->modules[i]->path && s->modules[i] != m) check_functions(s, s->modules[i]);
    check_functions(s, m);
    if (script && s->diags.errors < CHECK_MOST) check_script(s, m);
  }
  known_before(s, from);
  sort_diags(&s->diags, from);
  bool ok = s->diags.errors == before;
  if (!script && ok) { /* it runs now and says it then */
    dg_rewind(&s->diags, from);
    s->warned_count = warned;
  }
  return ok;
}

/* ---- `ckl ir`: the graph of one function */

static Node *find_fn(Session *s, const char *name, ModelDecl **model) {
  const char *dot = strchr(name, '.');
  Name first = names_get(s->names, name, dot ? (size_t)(dot - name) : strlen(name));
  Global *g = global_find(s, s->main, first);
  *model = NULL;
  if (g && g->kind == G_FN && !dot) return g->decl;
  if (!g || g->kind != G_MODEL) return NULL;
  *model = g->v.u.model;
  Name method = names_of(s->names, dot ? dot + 1 : "forward");
  for (uint32_t i = 0; i < g->decl->model.members.count; i++) {
    Node *m = g->decl->model.members.items[i];
    if (m->kind == N_FN && m->fn->name.name == method) return m;
  }
  return NULL;
}

/* n types stand for the first parameters, or for all. */
static void types_fit(Session *s, const Node *fn, size_t n, bool all) {
  const NodeList *p = &fn->fn->params;
  const char *name = fn->fn->name.name;
  size_t k = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    if (p->items[i]->param.init) continue;
    if (k++ < n || !all) continue;
    fail_help(s, ERR_ARG_COUNT, p->items[i]->span,
              "give one for each parameter without a default, in order",
              "there is no TYPE for the parameter `%s` of `%s`", p->items[i]->param.name.name,
              name);
  }
  if (n > k)
    fail(s, ERR_ARG_COUNT, fn->fn->header, "`%s` takes %zu argument%s by position, not %zu", name,
         k, k == 1 ? "" : "s", n);
}

void plan_types_fit(Session *s, const char *fn, size_t n) {
  ModelDecl *m;
  const Node *node = find_fn(s, fn, &m);
  if (node && !m) types_fit(s, node, n, true);
}

bool ir_print(Session *s, Buf *out, const char *fn, const char *const *types, size_t n,
              const char *stage) {
  Made j = {.s = s, .module = s->main, .out = out, .type_count = n};
  j.node = find_fn(s, fn, &j.m);
  if (!j.node)
    fail(s, ERR_UNKNOWN_NAME, (Span){0},
         "the file has no function `%s` (a method is `Model.method`)", fn);
  types_fit(s, j.node, n, false);
  const char *more = strchr(stage, ' '); /* "joint epilogue" */
  size_t len = more ? (size_t)(more - stage) : strlen(stage);
  while (j.stage < STAGE_COUNT &&
         (strncmp(stage, stage_names[j.stage], len) || stage_names[j.stage][len]))
    j.stage++;
  j.epilogue = more && !strcmp(more, " epilogue") && j.stage < STAGE_PLAN;
  if (more && !j.epilogue) j.stage = STAGE_COUNT;
  if (j.stage == STAGE_COUNT) fail(s, ERR_IR, (Span){0}, "no stage is called `%s`", stage);
  j.types = ARENA_ARRAY(&s->notes, Node *, n + 1);
  ParseContext pc = {&s->perm, s->names, &s->sources, &s->diags};
  for (size_t i = 0; i < n; i++) {
    const char *text = txt(s, "let x: %s = 0", types[i]);
    Node *ast = parse_file(&pc, src_add(&s->sources, "type", text, strlen(text)));
    if (s->diags.errors) dg_throw(&s->diags);
    j.types[i] = ast->file.items.items[0]->let.type;
  }
  if (!check_fn(s, &j)) dg_throw(&s->diags);
  if (!j.done)
    fail_help(s, ERR_IR, j.node->fn->header,
              "give a type for each parameter: ckl ir FILE FN 'f32[8, 3]' ..",
              "`%s` has parameters without a tensor type", fn);
  return true;
}
