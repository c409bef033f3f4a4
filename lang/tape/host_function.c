/* Functions of the host in programs: ckl_define.
 *
 * In: a declaration without a body, and C functions for its value and its gradient. Out: a `fn`
 * beside the prelude's, whose body, and whose `backward` if there is a gradient, call the builtin
 * `_host`. So parameters, types, dims and the gradient of a call are those of any `fn`; the builtin
 * appends a `call` node, with the results that the declaration says. When the node runs, the
 * function is found by the text of the node.
 * Invariants: the list only grows, so that compiled code finds the function that it was made for;
 * no throw crosses a function of the host.
 */
#include "lang/tape/host_function.h"

#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/structure.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/ops.h"
#include "lang/eval/type.h"
#include "lang/names/clauses.h"
#include "lang/names/module.h"
#include "lang/tape/callback.h"
#include "lang/value/fail.h"
#include "lang/value/handle.h"
#include "parser/parse.h"

enum { MOST_PARAMS = 32, WHY_SIZE = 400 };
enum { VALUE, GRADIENT };

typedef struct HostFn {
  ckl_function f, gradient;
  void *ud;
  char *declaration, *name;
  char *label[2];  /* texts of the nodes of f and of gradient */
  uint32_t number; /* bit i: parameter i is a number, not a tensor */
  uint32_t params, results;
  bool old; /* a later one has its name, or declaring it has failed */
} HostFn;

struct HostFns {
  HostFn *items;
  size_t count, cap;
  bool running;
  char why[WHY_SIZE]; /* the text of the error of the function that runs */
};

/* ---- declaring */

static char *kept_text(Session *s, const char *text) {
  size_t n = strlen(text) + 1;
  char *t = mem_need(&s->mem, NULL, 0, n);
  return memcpy(t, text, n);
}

static void drop_text(Session *s, char *text) {
  if (text) mem_free(&s->mem, text, strlen(text) + 1);
}

static void drop_fn(Session *s, HostFn *h) {
  drop_text(s, h->declaration);
  drop_text(s, h->name);
  for (int k = 0; k < 2; k++) drop_text(s, h->label[k]);
}

void host_functions_free(Session *s) {
  struct HostFns *all = s->host_fns;
  if (!all) return;
  for (size_t i = 0; i < all->count; i++) drop_fn(s, &all->items[i]);
  mem_free(&s->mem, all->items, all->cap * sizeof *all->items);
  mem_free(&s->mem, all, sizeof *all);
  s->host_fns = NULL;
}

/* The word of a type that is a dtype or a class, with or without dims; else NULL. */
static Name plain_type(const Node *t) {
  if (!t || t->kind != N_TYPE_NAME || t->type_name.path.count != 1) return NULL;
  Name n = t->type_name.path.items[0].name;
  return dtype_find(n) >= 0 || clause_type_word_is_class(clause_type_word(n)) ? n : NULL;
}

static bool is_number(const Node *t) {
  Name n = plain_type(t);
  return !t->type_name.has_dims && (dtype_find(n) < 0 || dtype_find(n) == DT_BOOL);
}

static void want_plain(Session *s, const Node *t, Span at, const char *what) {
  if (!plain_type(t))
    fail_help(s, ERR_HOST_TYPE, t ? t->span : at, "such as f32[N, 3], i64, int, float, bool",
              "%s of a function of the host is a tensor or a number, with a declared type", what);
}

/* The types of the results: the node itself, or the items of a tuple or record. */
static const Node *result_type(const Node *r, uint32_t i) {
  return r->kind == N_TYPE_TUPLE    ? r->list.items[i]
         : r->kind == N_TYPE_RECORD ? r->list.items[i]->type_field.type
                                    : r;
}

static void check_declaration(Session *s, const Node *ast, HostFn *h) {
  const NodeList *items = &ast->file.items;
  Span all = ast->span;
  bool one = items->count == 1 && items->items[0]->kind == N_FN && !items->items[0]->fn->is_proc;
  if (one) all = items->items[0]->fn->header;
  if (!one)
    fail_help(s, ERR_HOST_TYPE, all, "`fn name[N](x: f32[N]) -> f32[N]`",
              "the host declares one `fn`, without a body");
  Fn *d = items->items[0]->fn;
  bool several = d->result && (d->result->kind == N_TYPE_TUPLE || d->result->kind == N_TYPE_RECORD);
  h->params = d->params.count;
  h->results = several ? d->result->list.count : 1;
  if (h->params > MOST_PARAMS || h->results > MOST_PARAMS || !h->results)
    fail_at(s, ERR_HOST_TYPE, all,
            "a function of the host has at most %d parameters, and from 1 to %d results",
            MOST_PARAMS, MOST_PARAMS);
  for (uint32_t i = 0; i < h->params; i++) {
    const Node *p = d->params.items[i];
    want_plain(s, p->param.type, p->span, "a parameter");
    if (is_number(p->param.type)) h->number |= 1u << i;
  }
  for (uint32_t i = 0; i < h->results; i++) {
    const Node *t = d->result ? result_type(d->result, i) : NULL;
    want_plain(s, t, all, "a result");
  }
}

/* The tree of the declaration of function k; `h` gets what the declaration says. */
static Node *parsed(Session *s, const char *declaration, size_t k, HostFn *h) {
  const char *text = fail_text(s, "%s = _host(%zu)%s", declaration, k,
                               h->gradient ? fail_text(s, " backward(_g) = _host(%zu)", k) : "");
  uint32_t file = src_add(&s->sources, "<host>", text, strlen(text));
  ParseContext c = {&s->perm, s->names, &s->sources, &s->diags};
  size_t before = s->diags.errors;
  Node *ast = parse_file(&c, file);
  if (s->diags.errors > before) dg_throw(&s->diags);
  check_declaration(s, ast, h);
  const Word *w = &ast->file.items.items[0]->fn->name;
  if (shelf_find(s, w->name) || builtin_find(s, w->name) || w->name[0] == '_')
    fail_at(s, ERR_HOST_TYPE, w->span, "`%s` is a name of the language", w->name);
  return ast;
}

void host_declare_all(Session *s) {
  for (size_t i = 0; s->host_fns && i < s->host_fns->count; i++) {
    HostFn *h = &s->host_fns->items[i], again = {.gradient = h->gradient};
    if (!h->old) module_declare_items(s, s->prelude, parsed(s, h->declaration, i, &again), true);
  }
}

static HostFn *new_function(Session *s) {
  if (!s->host_fns) {
    s->host_fns = mem_need(&s->mem, NULL, 0, sizeof *s->host_fns);
    memset(s->host_fns, 0, sizeof *s->host_fns);
  }
  struct HostFns *all = s->host_fns;
  if (all->count == all->cap) {
    size_t more = all->cap ? 2 * all->cap : 4;
    all->items = mem_need(&s->mem, all->items, all->cap * sizeof(HostFn), more * sizeof(HostFn));
    all->cap = more;
  }
  return &all->items[all->count];
}

void host_define(Session *s, const char *declaration, ckl_function f, ckl_function gradient,
                 void *ud) {
  HostFn *h = new_function(s);
  size_t k = s->host_fns->count;
  *h = (HostFn){.f = f, .gradient = gradient, .ud = ud, .old = true};
  Frame top = {.module = s->prelude};
  s->frame = &top;
  Node *ast = parsed(s, declaration, k, h);
  const char *name = ast->file.items.items[0]->fn->name.name;
  s->host_fns->count++; /* from here on its texts are freed with the list */
  h->declaration = kept_text(s, declaration);
  h->name = kept_text(s, name);
  h->label[VALUE] = kept_text(s, k ? fail_text(s, "%s #%zu", name, k) : name);
  h->label[GRADIENT] = kept_text(s, fail_text(s, "gradient of %s", h->label[VALUE]));
  module_declare_items(s, s->prelude, ast, true);
  for (size_t i = 0; i < k; i++) {
    HostFn *other = &s->host_fns->items[i];
    other->old |= !other->name || !strcmp(other->name, name);
  }
  h->old = false;
}

/* ---- calls, while code is staged */

/* The parameter, not a local of the body of that name: `out` of a `backward`. */
static Value argument(Session *s, const Frame *f, Name name) {
  for (size_t i = f->base; i < s->local_count; i++)
    if (s->locals[i].name == name) return s->locals[i].v;
  return v_unit();
}

typedef struct CallNode {
  Session *s;
  Span at;
  Val *in;
  size_t n, cap;
  int64_t *dtype, *rank, *dim; /* of the results, joined */
  size_t results, dims, cap_dims;
  int64_t *wrt; /* of a gradient: the argument of each result */
  bool unknown;
} CallNode;

static void push_value(CallNode *c, Value v, DType like) {
  Session *s = c->s;
  if (v.tag == V_UNKNOWN) c->unknown = true;
  if (c->unknown) return;
  v = op_as_tensor(s, v, like, c->at);
  VEC_PUSH(&s->scratch, c->in, c->n, c->cap, stage_operand(s, v, c->at).u.v);
}

/* The tensors of a result or its cotangent. */
static void push_parts(CallNode *c, Value v) {
  size_t n;
  const Value *items = value_items(v, &n);
  if (v.tag == V_TUPLE || v.tag == V_RECORD)
    for (size_t i = 0; i < n; i++) push_value(c, items[i], DT_COUNT);
  else
    push_value(c, v, DT_COUNT);
}

static void push_result(CallNode *c, const Type *t) {
  c->dtype[c->results] = t->dtype;
  c->rank[c->results++] = t->rank;
  for (int i = 0; i < t->rank; i++)
    VEC_PUSH(&c->s->scratch, c->dim, c->dims, c->cap_dims, (int64_t)t->dim[i]);
}

static void declared_result(CallNode *c, Node *type) {
  Session *s = c->s;
  Type t;
  if (c->unknown) return;
  TypeWord w = clause_type_word(plain_type(type));
  int cls = clause_type_word_is_class(w) ? (int)w : -1; /* the index in Frame.cls */
  type_eval(s, type, &t);
  if (cls >= 0 && !s->frame->cls[cls])
    fail_help(s, ERR_HOST_TYPE, type->span, "name one, such as f32 or i64",
              "no argument of this call says which dtype the result `%s` has", plain_type(type));
  if (cls >= 0) t.dtype = (uint8_t)(s->frame->cls[cls] - 1);
  if (t.rank == 255)
    c->unknown = true;
  else
    push_result(c, &t);
}

/* The results of the node, from the first on. */
static Value *call_node(CallNode *c, const char *label) {
  Session *s = c->s;
  Attr attr[5] = {
      attr_text(AT_TEXT, names_of(s->names, label)), attr_ints(AT_DTYPE, (int)c->results, c->dtype),
      attr_ints(AT_INDEX, (int)c->results, c->rank), attr_dims(AT_DIMS, (int)c->dims, c->dim)};
  if (c->wrt) attr[4] = attr_ints(AT_WRT, (int)c->results, c->wrt);
  GErr e = {.code = ERR_BUG, .operand = -1};
  stage_at(s, c->at);
  c->in[0] = gr_op(s->stage->g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  Val v = val_none(c->in[0])
              ? c->in[0]
              : gr_op(s->stage->g, OP_CALL, c->in, (int)c->n, attr, c->wrt ? 5 : 4, NULL, 0, &e);
  if (val_none(v)) fail_gerr(s, c->at, &e);
  Value *out = ARENA_ARRAY(&s->scratch, Value, c->results + 1);
  for (size_t i = 0; i < c->results; i++) {
    out[i] = (Value){.tag = V_NODE, .aux = s->stage->level};
    out[i].u.v = (Val){v.node, (uint32_t)i + 1};
  }
  return out;
}

/* The gradients by the arguments that are float tensors without a default (rule 79). */
static Value gradient_call(CallNode *c, const HostFn *h, const Fn *d) {
  Session *s = c->s;
  Name g = d->back_params.items[0]->param.name.name;
  const Local *out = local_find(s, names_of(s->names, "out")), *cot = local_find(s, g);
  c->wrt = ARENA_ARRAY(&s->scratch, int64_t, h->params + 1);
  push_parts(c, out->v);
  push_parts(c, cot->v);
  for (uint32_t i = 0; i < h->params && !c->unknown; i++) {
    Value v = argument(s, s->frame, d->params.items[i]->param.name.name);
    if (d->params.items[i]->param.init || v.tag != V_NODE || v.weak) continue;
    Type t = op_type_of(s, v);
    if (!dt_float((DType)t.dtype)) continue;
    c->wrt[c->results] = i;
    push_result(c, &t);
  }
  if (c->unknown) return (Value){.tag = V_UNKNOWN};
  if (!c->results) return v_list(s, V_TUPLE, 0, NULL);
  Value *r = call_node(c, h->label[GRADIENT]);
  return c->results == 1 ? r[0] : v_list(s, V_TUPLE, c->results, r);
}

BUILTIN_FN(bi_host) {
  const Frame *f = s->frame;
  const Fn *d = f->fn->decl->fn;
  const HostFn *h = &s->host_fns->items[c->v[0].u.i];
  CallNode call = {.s = s, .at = f->call};
  size_t most = h->params + h->results + 1;
  call.dtype = ARENA_ARRAY(&s->scratch, int64_t, most);
  call.rank = ARENA_ARRAY(&s->scratch, int64_t, most);
  if (!s->stage) return (Value){.tag = V_UNKNOWN};            /* `check` of script */
  VEC_PUSH(&s->scratch, call.in, call.n, call.cap, VAL_NONE); /* the token's place */
  for (uint32_t i = 0; i < h->params; i++) {
    Value v = argument(s, f, d->params.items[i]->param.name.name);
    push_value(&call, v, v.tag == V_FLOAT ? DT_F64 : DT_COUNT);
  }
  if (!strcmp(f->what, "backward")) return gradient_call(&call, h, d);
  for (uint32_t i = 0; i < h->results; i++)
    declared_result(&call, (Node *)result_type(d->result, i));
  if (call.unknown) return (Value){.tag = V_UNKNOWN};
  Value *r = call_node(&call, h->label[VALUE]);
  if (d->result->kind == N_TYPE_TUPLE) return v_list(s, V_TUPLE, h->results, r);
  if (d->result->kind != N_TYPE_RECORD) return r[0];
  Name *names = ARENA_ARRAY(&s->scratch, Name, h->results);
  for (uint32_t i = 0; i < h->results; i++)
    names[i] = d->result->list.items[i]->type_field.name.name;
  return v_record(s, h->results, names, r);
}

/* ---- running */

ckl_status host_fails(Session *s, const char *why) {
  struct HostFns *all = s->host_fns;
  if (all && all->running) snprintf(all->why, sizeof all->why, "%s", why ? why : "");
  return CKL_ERUN;
}

/* What the host sees of input i: a number where the declaration says so. */
static Value shown(Session *s, const HostFn *h, size_t i, Tensor *t) {
  if (i >= h->params || !(h->number >> i & 1)) return v_tensor(s, host_own(s, t));
  return v_scalar(t);
}

static const HostFn *function_of(const struct HostFns *all, const char *label, int *which) {
  for (size_t i = 0; i < all->count; i++)
    for (*which = 0; *which < 2; ++*which)
      if (all->items[i].label[*which] && !strcmp(all->items[i].label[*which], label))
        return &all->items[i];
  return NULL;
}

/* The tensor of a result; NULL, with the error, if it is none. */
static Tensor *result_of(Session *s, const HostFn *h, const char *what, size_t i, DType dtype,
                         const ckl_value *v, GErr *e) {
  Value x = handle_fits(s, v) ? v->v : v_unit();
  if (v_is_number(x) && (x.tag == V_INT || dt_float(dtype)))
    x = op_as_tensor(s, x, dtype, s->running);
  if (x.tag == V_BOOL && dtype == DT_BOOL) x = op_as_tensor(s, x, dtype, s->running);
  if (x.tag == V_TENSOR) return tn_ref(x.u.t->t);
  if (x.tag == V_PARAM) return tn_ref(x.u.p->t);
  gerr_set(e, ERR_HOST, -1, "the host's `%s` gives %s as its %s %zu, not a tensor", h->name,
           !v                   ? "nothing"
           : !handle_fits(s, v) ? "a value of another session"
                                : value_type_text(s, x),
           what, i);
  return NULL;
}

static Tensor *zeros_like(Session *s, const Tensor *t) {
  Tensor *z = tn_new(&s->mem, DEV_CPU, t->dtype, t->rank, t->dim);
  memset(tn_data(z), 0, (size_t)tn_count(z) * dt_size(z->dtype));
  return z;
}

static bool take_results(Session *s, const HostFn *h, int which, const Graph *g, uint32_t node,
                         Tensor **in, HandleArray *to, Tensor **out, GErr *e) {
  const Attr *wrt = gr_attr(g, node, AT_WRT);
  const char *what = which == VALUE ? "result" : "gradient by argument";
  for (size_t k = 0; k + 1 < g->nodes[node].result_count; k++) {
    size_t i = which == VALUE ? k : (size_t)wrt->u.ints[k];
    DType dtype = (DType)gr_type(g, (Val){node, (uint32_t)k + 1})->dtype;
    out[1 + k] = which == GRADIENT && !to->v[i] ? zeros_like(s, in[1 + i])
                                                : result_of(s, h, what, i, dtype, to->v[i], e);
    if (out[1 + k]) continue;
    for (; k > 0; k--) {
      tn_unref(out[k]);
      out[k] = NULL;
    }
    return false;
  }
  return true;
}

bool host_function_run(Session *s, const Graph *g, uint32_t node, Tensor **in, Tensor **out,
                       GErr *e) {
  stack_check();
  int which;
  const HostFn *h = function_of(s->host_fns, gr_attr(g, node, AT_TEXT)->u.text, &which);
  size_t mark = mem_pool_mark(&s->mem), given = g->nodes[node].operand_count - 1u;
  HandleArray *from = handle_array(s, given);
  HandleArray *to = handle_array(s, which == VALUE ? h->results : h->params);
  for (size_t i = 0; i < given; i++)
    if (!(from->v[i] = handle_new(s, shown(s, h, i, in[1 + i])))) mem_throw(&s->mem, MEM_ERR_NOMEM);
  struct HostFns *all = s->host_fns;
  all->why[0] = 0;
  all->running = true;
  ckl_function f = which == VALUE ? h->f : h->gradient;
  ckl_status st = f(h->ud, (ckl_session *)s, from->v, to->v);
  all->running = false;
  if (st == CKL_ENOMEM) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (st == CKL_EINTERRUPT) mem_throw(&s->mem, MEM_ERR_INTERRUPT);
  out[0] = NULL;
  bool ok = st == CKL_OK ? take_results(s, h, which, g, node, in, to, out, e)
                         : gerr_set(e, ERR_HOST, -1, "the host's `%s` fails%s%s%s", h->name,
                                    which == VALUE ? "" : " to give a gradient",
                                    all->why[0] ? ": " : "", all->why);
  mem_pool_drain(&s->mem, mark);
  return ok;
}
