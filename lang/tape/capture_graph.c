/* The key and the graph of a captured backward.
 *
 * In: the nodes of a tape, latest first. Out: a text of all that the graph depends on, and the
 * graph. A call adds the backward half of its joint graph, an operation its rule. Contributions are
 * added in the order of the sweep (rule 74).
 */
#include "lang/tape/capture_impl.h"

#include <string.h>
#include <xxhash.h>

#include "autograd/autograd.h"
#include "autograd/vjp.h"
#include "graph/copy.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/names/module.h"
#include "lang/value/log.h"

const char capture_point_text[] = "hooks of the tape";

void capture_pin(Sizes *z, const JointRef *j) {
  for (size_t i = 0; i < j->spec.f->input_count; i++) {
    const Type *t = gr_type(j->spec.f, j->spec.f->inputs[i]);
    int64_t n;
    for (int k = 0; t->kind == TK_TENSOR && k < t->rank; k++) {
      if (dim_is_const(j->spec.f->dims, t->dim[k], &n)) sizes_pin(z, n);
    }
  }
}

/* ---- the key */
static int param_index(const Capture *c, const Param *p) {
  return p->slot && p->slot <= c->param_count && c->params[p->slot - 1] == p ? (int)p->slot - 1
                                                                             : -1;
}

HookKey capture_hook(const Capture *c, HookKind kind, uint32_t node, uint32_t at) {
  if (kind == HOOK_VALUE) return (HookKey){kind, c->nodes[node]->seq, at};
  return (HookKey){kind, c->params[at]->id, 0};
}

static bool has_hooks(const Capture *c, HookKind kind, uint32_t node, uint32_t at) {
  bool ever = kind == HOOK_VALUE ? c->nodes[node]->hooked : c->params[at]->hooked;
  return ever && hooks_on(c->s, capture_hook(c, kind, node, at));
}

static bool is_target(const Capture *c, const Edge *e) {
  for (size_t i = 0; i < c->target_count; i++) {
    if (c->targets[i].node == e->node && c->targets[i].out == e->out) return true;
  }
  return false;
}

/* Where the gradient of an input goes: 0 nowhere, else to a wanted param or an earlier result. */
typedef struct Way {
  uint32_t kind, a, b; /* 1: param a; 2: result b of node a */
} Way;

static Way way_of(const Capture *c, const Edge *e) {
  if (e->param) {
    int i = param_index(c, e->param);
    return i < 0 ? (Way){0} : (Way){1, (uint32_t)i, 0};
  }
  if (!e->node || (e->node->mark != 2 && !is_target(c, e))) return (Way){0};
  return (Way){2, e->node->index, e->out};
}

static void end_part(Session *s, Parts *p, const Buf *b) {
  if (p) VEC_PUSH(&s->scratch, p->end, p->count, p->cap, (uint32_t)b->n);
}

/* Hooks of the results of a node, and of the params to which its gradients go. */
static void key_hooks(const Capture *c, Buf *b, uint32_t i) {
  const TapeNode *n = c->nodes[i];
  for (uint32_t k = 0; n->hooked && k < n->out_count; k++)
    if (has_hooks(c, HOOK_VALUE, i, k)) key_put(b, (uint32_t[]){2, k}, 2 * sizeof k);
  for (uint32_t k = 0; n->mark == 2 && k < n->in_count; k++) {
    int at = n->in[k].param && n->in[k].param->hooked ? param_index(c, n->in[k].param) : -1;
    uint32_t h = at < 0 ? 0
                        : 4u * has_hooks(c, HOOK_PARAM, 0, (uint32_t)at) +
                              8u * has_hooks(c, HOOK_AFTER_GRAD, 0, (uint32_t)at);
    if (h) key_put(b, (uint32_t[]){h, k}, 2 * sizeof k);
  }
}

void capture_key(Capture *c, Buf *b, Sizes *z, bool apart, Parts *p) {
  Session *s = c->s;
  const Tensor *x = c->cotangent;
  uint32_t head[7] = {c->root->index, c->out,   (uint32_t)c->param_count, (uint32_t)c->target_count,
                      apart,          x->dtype, (uint32_t)x->rank};
  key_put(b, head, sizeof head);
  for (int k = 0; k < x->rank; k++) sizes_key(b, z, x->dim[k]);
  for (size_t i = 0; i < c->target_count; i++) {
    uint32_t t[2] = {c->targets[i].node->index, c->targets[i].out};
    key_put(b, t, sizeof t);
  }
  end_part(s, p, b);
  for (size_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    key_hooks(c, b, (uint32_t)i);
    end_part(s, p, b);
    uint32_t needed = n->mark == 2; /* 0 and 1 are no kind of hook */
    key_put(b, &needed, sizeof needed);
    if (!needed) {
      for (int k = PART_KIND; k < PARTS; k++) end_part(s, p, b);
      continue;
    }
    uint32_t node[5] = {(uint32_t)i, (uint32_t)n->op << 1 | (n->state == TAPE_OPENED),
                        (uint32_t)n->in_count, (uint32_t)n->out_count, (uint32_t)n->attr_count};
    key_put(b, &n->joint, sizeof n->joint);
    key_put(b, node, sizeof node);
    end_part(s, p, b);
    for (size_t k = 0; k < n->in_count; k++) {
      Way w = way_of(c, &n->in[k]);
      key_put(b, &w, sizeof w);
    }
    end_part(s, p, b);
    bool one = !n->joint && n->state != TAPE_OPENED;
    for (size_t k = 0; n->joint && k < n->env_count; k++) sizes_key(b, z, n->env[k]);
    for (size_t k = 0; one && k < n->in_count; k++) {
      const Tensor *t = n->inputs[k];
      uint8_t type[4] = {(uint8_t)t->dtype, (uint8_t)t->store->dev, (uint8_t)t->rank, 0};
      key_put(b, type, sizeof type);
      for (int d = 0; d < t->rank; d++) sizes_key(b, z, t->dim[d]);
    }
    sizes_key_attrs(s, b, z, n->attrs, n->attr_count);
    end_part(s, p, b);
  }
}

/* ---- the graph */
typedef struct Maker {
  Capture *c;
  Kept *k;
  Graph *g;
  Sizes *z;
  Val **cot; /* per node, per result */
  Val *param, *target;
  size_t *uses; /* of each param, by nodes not reached yet */
  struct Read *read;
  size_t read_cap; /* values of the tape that are inputs, by hash */
  Val zeros;       /* zeros for the last operand that no rule reads */
  GErr e;
} Maker;

/* A value of the tape with the tensor that it was, as an input of the graph. */
typedef struct Read {
  const void *of; /* a node or a param; NULL: free */
  uint32_t out, input;
  const Tensor *tensor;
} Read;

/* Where the tensor came from; NULL: unknown. */
static const Edge *edge_at(const Capture *c, From from) {
  const TapeNode *n = c->nodes[from.node];
  size_t slot = from.slot;
  if (n->joint) {
    const Joint *j = tape_joint(n);
    const Graph *f = j->forward;
    uint32_t node = f->outputs[f->output_count - (size_t)j->saved_count + slot].node;
    if (f->nodes[node].op != OP_INPUT) return NULL;
    slot = (size_t)gr_attr_i(f, node, AT_INDEX, 0);
  }
  return slot < n->in_count && (n->in[slot].node || n->in[slot].param) ? &n->in[slot] : NULL;
}

Tensor *capture_tensor(const Capture *c, From from) {
  if (from.node == UINT32_MAX) return c->cotangent;
  const TapeNode *n = c->nodes[from.node];
  return n->joint ? n->saved[from.slot] : n->inputs[from.slot];
}

static Read *read_of(Maker *m, const Edge *e, const Tensor *t) {
  const void *of = e->param ? (const void *)e->param : e->node;
  const uintptr_t key[3] = {(uintptr_t)of, (uintptr_t)t, e->out};
  for (size_t at = (size_t)XXH3_64bits(key, sizeof key);; at++) {
    Read *r = &m->read[at & (m->read_cap - 1)];
    if (!r->of) *r = (Read){of, e->out, UINT32_MAX, t};
    if (r->of == of && r->out == e->out && r->tensor == t) return r;
  }
}

static Val input(Maker *m, const Type *t, uint32_t node, uint32_t slot) {
  Kept *k = m->k;
  From from = {node, slot};
  const Edge *e = k->apart || node == UINT32_MAX ? NULL : edge_at(m->c, from);
  Read *r = e ? read_of(m, e, capture_tensor(m->c, from)) : NULL;
  if (r && r->input != UINT32_MAX && type_eq(gr_type(m->g, m->g->inputs[r->input]), t)) {
    VEC_PUSH(&k->arena, k->same, k->same_count, k->same_cap, ((Same){from, r->input}));
    return m->g->inputs[r->input];
  }
  if (r) r->input = (uint32_t)k->source_count;
  VEC_PUSH(&k->arena, k->source, k->source_count, k->source_cap, from);
  return gr_input(m->g, t);
}

/* A new node with the value of v. A rule differentiates by such nodes: each operand has its own,
 * and none stands far ahead of the operation. */
static Val stand_in(Maker *m, Val v) {
  const Type t = *gr_type(m->g, v);
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) dim[i] = t.dim[i];
  Attr a = attr_dims(AT_DIMS, t.rank, dim);
  return gr_op(m->g, OP_RESHAPE, &v, 1, &a, 1, NULL, 0, &m->e);
}

/* An operand that no rule reads. */
static Val unread(Maker *m, const Type *t) {
  B b = {.g = m->g};
  if (val_none(m->zeros) || !type_eq(gr_type(m->g, m->zeros), t)) m->zeros = b_zeros(&b, t);
  return val_none(m->zeros) ? VAL_NONE : stand_in(m, m->zeros);
}

static bool contribute(Maker *m, Val *slot, Val x) {
  if (val_none(*slot)) {
    *slot = x;
    return true;
  }
  *slot = gr_op(m->g, OP_ADD, (Val[]){*slot, x}, 2, NULL, 0, NULL, 0, &m->e);
  return !val_none(*slot);
}

/* The body of an opened call is on the tape: the gradient of result k is that of operand k. */
static bool add_opened(Maker *m, const TapeNode *n, uint32_t at, const bool *wants, Val *dx) {
  for (size_t i = 0; i < n->in_count; i++) {
    if (wants[i] && i < n->out_count) dx[i] = m->cot[at][i];
  }
  return true;
}

/* Adds the rule of one operation, after the operation itself, whose result the rule may read. */
static bool add_op(Maker *m, const TapeNode *n, uint32_t at, const bool *wants, Val *dx) {
  Graph *g = m->g;
  Arena *a = &m->k->temp;
  Val *in = ARENA_ARRAY(a, Val, n->in_count + 1), *wrt = ARENA_ARRAY(a, Val, n->in_count + 1);
  Val *got = ARENA_ARRAY(a, Val, n->in_count + 1);
  Val *y = ARENA_ARRAY(a, Val, n->out_count + 1), *dy = ARENA_ARRAY(a, Val, n->out_count + 1);
  int ny = 0, nw = 0;
  for (size_t i = 0; i < n->in_count; i++) {
    const Tensor *x = n->inputs[i];
    Type t = {.kind = TK_TENSOR,
              .dtype = (uint8_t)x->dtype,
              .dev = (uint8_t)x->store->dev,
              .rank = (uint8_t)x->rank};
    for (int k = 0; k < t.rank; k++) t.dim[k] = sizes_dim(m->z, x->dim[k]);
    bool reads = op_info[n->op].needs != NEEDS_NONE;
    in[i] = reads ? input(m, &t, at, (uint32_t)i) : unread(m, &t);
    if (reads && wants[i]) in[i] = stand_in(m, in[i]);
    if (val_none(in[i])) return false;
    if (wants[i]) wrt[nw++] = in[i];
  }
  const Attr *attrs = sizes_attrs(m->c->s, a, m->z, n->attrs, n->attr_count);
  Val r = gr_op(g, n->op, in, (int)n->in_count, attrs, (int)n->attr_count, NULL, 0, &m->e);
  if (val_none(r)) return false;
  for (uint32_t k = 0; k < n->out_count; k++) {
    if (val_none(m->cot[at][k])) continue;
    y[ny] = (Val){r.node, k};
    dy[ny++] = m->cot[at][k];
  }
  Prov where;
  if (!ad_vjp(g, ny, y, dy, nw, wrt, got, &m->e, &where)) return false;
  for (size_t i = 0, k = 0; i < n->in_count; i++) {
    if (wants[i]) dx[i] = got[k++];
  }
  return true;
}

/* Where the gradients of input i are added up. */
static Val *slot_of(Maker *m, const TapeNode *n, size_t i) {
  Way w = way_of(m->c, &n->in[i]);
  return w.kind == 1 ? &m->param[w.a] : &m->cot[w.a][w.b];
}

/* The sum so far of input i to which the call's backward adds, or NULL. */
static Val *carried(Maker *m, const TapeNode *n, size_t i, const bool *wants) {
  Val *slot = tape_carries(n, i, wants) ? slot_of(m, n, i) : NULL;
  return slot && !val_none(*slot) ? slot : NULL;
}

/* Symbol i of the call's table as a dim of the graph. */
static Dim size_here(Maker *m, const DimTab *of, Sym i, const TapeNode *n) {
  DimTab *t = m->g->dims;
  int64_t size = i < n->env_count ? n->env[i] : 0;
  if (!dim_is_counter(of, i)) return sizes_dim(m->z, size);
  if (size) return dim_sub(t, sizes_dim(m->z, size), dim_const(t, 1)); /* within that loop */
  return dim_counter(t, dim_symbol_name(of, i), dim_symbol_span(of, i), NULL);
}

/* The backward half of a call's joint graph. */
static bool add_call(Maker *m, const TapeNode *n, uint32_t at, const bool *wants, Val *dx) {
  Graph *g = m->g;
  Arena *a = &m->k->temp;
  const Joint *j = tape_joint(n);
  const Graph *b = j->backward;
  for (size_t i = 0; i < n->in_count; i++)
    if (j->maybe[i] && wants[i]) return false; /* whether a gradient is there, a run decides */
  Val *args = ARENA_ARRAY(a, Val, b->input_count + 1);
  Val *outs = ARENA_ARRAY(a, Val, b->output_count + 1);
  Sym count = dim_symbol_count(b->dims);
  Dim *subst = ARENA_ARRAY(a, Dim, count + 1);
  for (Sym i = 0; i < count; i++) subst[i] = size_here(m, b->dims, i, n);
  size_t k = 0, carries = 0, next = 0;
  for (size_t i = 0; n->joint->carries && i < n->in_count; i++) carries += n->joint->carries[i];
  for (size_t i = 0; i < b->input_count; i++) {
    Type t = *gr_type(b, b->inputs[i]);
    for (int d = 0; d < t.rank; d++) {
      t.dim[d] = dim_import(g->dims, b->dims, t.dim[d], subst, count);
      if (t.dim[d] == DIM_BAD) return false;
    }
    t.alias = 0;
    if (i < (size_t)j->saved_count) {
      args[i] = input(m, &t, at, (uint32_t)i);
      continue;
    }
    if (i >= b->input_count - carries) {
      while (!n->joint->carries[next]) next++;
      const Val *sum = carried(m, n, next++, wants);
      B make = {.g = g};
      args[i] = sum ? *sum : b_broadcast(&make, gr_const_f(g, t.dtype, t.dev, -0.0), t.rank, t.dim);
      if (val_none(args[i])) return false;
      continue;
    }
    while (k < n->out_count && !n->joint->spec.cot[k]) k++;
    if (k == n->out_count) return false;
    B make = {.g = g};
    args[i] = val_none(m->cot[at][k]) ? b_zeros(&make, &t) : m->cot[at][k];
    k++;
  }
  g->at.path = NULL;
  if (!gr_inline(g, b, args, subst, outs, &m->e)) return false;
  for (size_t i = 0, o = 0; i < n->in_count; i++) {
    if (!j->gives_grad[i]) continue;
    if (wants[i]) dx[i] = outs[o];
    o++;
  }
  VEC_PUSH(&m->k->arena, m->k->joints, m->k->joint_count, m->k->joint_cap, n->joint);
  joint_retain(n->joint);
  return true;
}

/* The nodes of regions come from this node of the tape, too. */
static void mark_regions(Graph *g, uint32_t at) {
  stack_check();
  for (size_t i = 0; i < g->prov_count; i++) g->provs[i].origin = (int32_t)at;
  for (size_t i = 0; i < g->region_count; i++) mark_regions(g->regions[i], at);
}

static bool add_node(Maker *m, uint32_t at) {
  Capture *c = m->c;
  const TapeNode *n = c->nodes[at];
  Graph *g = m->g;
  Arena *a = &m->k->temp;
  bool *wants = ARENA_ARRAY(a, bool, n->in_count + 1);
  Val *dx = ARENA_ARRAY(a, Val, n->in_count + 1);
  for (size_t i = 0; i < n->in_count; i++) {
    wants[i] = way_of(c, &n->in[i]).kind != 0;
    dx[i] = VAL_NONE;
  }
  size_t provs = g->prov_count, regions = g->region_count;
  g->at = (Prov){.span = n->span, .backward = 1, .origin = (int32_t)at};
  if (!(n->state == TAPE_OPENED ? add_opened : n->joint ? add_call : add_op)(m, n, at, wants, dx))
    return false;
  g->at = (Prov){.span = n->span, .backward = 1, .origin = (int32_t)at};
  /* the last operand first, as in sweep.c */
  for (size_t i = n->in_count; i-- > 0;) {
    if (val_none(dx[i])) continue;
    Val *slot = slot_of(m, n, i);
    if (carried(m, n, i, wants))
      *slot = dx[i]; /* it includes the sum */
    else if (!contribute(m, slot, dx[i]))
      return false;
  }
  for (size_t i = provs; i < g->prov_count; i++) g->provs[i].origin = (int32_t)at;
  for (size_t i = regions; i < g->region_count; i++) mark_regions(g->regions[i], at);
  return true;
}

/* Passes *v through the hooks of this kind at this place. */
static bool pass_hooks(Maker *m, HookKind kind, uint32_t node, uint32_t at, Val *v) {
  Capture *c = m->c;
  Graph *g = m->g;
  Kept *k = m->k;
  if (val_none(*v) || !has_hooks(c, kind, node, at)) return true;
  g->at = (Prov){.span = c->nodes[node]->span, .backward = 1, .origin = (int32_t)node};
  Attr attr[3] = {attr_text(AT_TEXT, names_of(c->s->names, capture_point_text)),
                  attr_i(AT_CARRY, 1), attr_i(AT_INDEX, (int64_t)k->point_count)};
  Val in[2] = {gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &m->e), *v};
  if (val_none(in[0])) return false;
  Val d = gr_op(g, OP_DEFER, in, 2, attr, 3, NULL, 0, &m->e);
  if (val_none(d)) return false;
  *v = (Val){d.node, 1};
  VEC_PUSH(&k->arena, k->points, k->point_count, k->point_cap, ((Point){kind, node, at}));
  return true;
}

/* Params that node `at` was the last to use: their gradients are complete. */
static bool finish_params(Maker *m, uint32_t at) {
  Capture *c = m->c;
  const TapeNode *n = c->nodes[at];
  for (size_t k = 0; k < n->in_count; k++) {
    int i = n->in[k].param ? param_index(c, n->in[k].param) : -1;
    if (i < 0 || --m->uses[i]) continue;
    if (!pass_hooks(m, HOOK_PARAM, at, (uint32_t)i, &m->param[i])) return false;
    if (val_none(m->param[i]) || !has_hooks(c, HOOK_AFTER_GRAD, at, (uint32_t)i)) continue;
    if (!pass_hooks(m, HOOK_AFTER_GRAD, at, (uint32_t)i, &m->param[i])) return false;
    m->param[i] = VAL_NONE; /* the hooks pass it on, or drop it */
  }
  return true;
}

static void outputs(Maker *m, const Val *v, size_t n, int *out) {
  for (size_t i = 0; i < n; i++) {
    out[i] = val_none(v[i]) ? -1 : (int)m->g->output_count;
    if (!val_none(v[i])) gr_output(m->g, v[i]);
  }
}

/* An estimate of the graph's size. */
static GrRoom room_for(const Capture *c) {
  GrRoom all = {0};
  for (size_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    /* of an operation: it, twice its operands, their gradients */
    GrRoom one = {2 + 3 * n->in_count, 2 + 4 * n->in_count, 2 + 3 * n->in_count, 8 * n->in_count, 1,
                  n->in_count};
    if (n->mark != 2 || n->state == TAPE_OPENED) continue;
    if (n->joint) one = gr_room(tape_joint(n)->backward);
    all.nodes += one.nodes + n->in_count; /* sums */
    all.operands += one.operands + 2 * n->in_count;
    all.types += one.types + n->in_count;
    all.attrs += one.attrs;
    all.provs += one.provs + 1;
    all.inputs += one.inputs;
  }
  return all;
}

static void build(Maker *m) {
  Capture *c = m->c;
  Arena *a = &m->k->temp;
  Session *s = c->s;
  Arena *keep = &m->k->arena;
  Graph *g = m->g = gr_new(a, dim_tab_new(keep), s->names, names_of(s->names, "backward"));
  m->zeros = VAL_NONE;
  sizes_symbols(m->z, a, g->dims, NULL);
  size_t reads = 8;
  for (size_t i = 0; i < c->count; i++) reads += c->nodes[i]->in_count + c->nodes[i]->saved_count;
  for (m->read_cap = 16; m->read_cap < 2 * reads; m->read_cap *= 2) continue;
  m->read = ARENA_ARRAY(a, Read, m->read_cap);
  gr_reserve(g, room_for(c));
  m->cot = ARENA_ARRAY(a, Val *, c->count + 1);
  for (size_t i = 0; i < c->count; i++) {
    m->cot[i] = ARENA_ARRAY(a, Val, c->nodes[i]->out_count + 1);
    for (size_t k = 0; k < c->nodes[i]->out_count; k++) m->cot[i][k] = VAL_NONE;
  }
  m->param = ARENA_ARRAY(a, Val, c->param_count + 1);
  m->target = ARENA_ARRAY(a, Val, c->target_count + 1);
  m->uses = ARENA_ARRAY(a, size_t, c->param_count + 1);
  for (size_t i = 0; i < c->count; i++) {
    for (size_t k = 0; k < c->nodes[i]->in_count; k++) {
      const Edge *e = &c->nodes[i]->in[k];
      int p = e->param ? param_index(c, e->param) : -1;
      if (p >= 0) m->uses[p]++;
    }
  }
  for (size_t i = 0; i < c->param_count; i++) m->param[i] = VAL_NONE;
  for (size_t i = 0; i < c->target_count; i++) m->target[i] = VAL_NONE;
  Type t = {.kind = TK_TENSOR,
            .dtype = (uint8_t)c->cotangent->dtype,
            .dev = (uint8_t)c->cotangent->store->dev,
            .rank = (uint8_t)c->cotangent->rank};
  for (int k = 0; k < t.rank; k++) t.dim[k] = sizes_dim(m->z, c->cotangent->dim[k]);
  g->at = (Prov){.span = c->at, .backward = 1, .origin = -1};
  m->cot[c->root->index][c->out] = input(m, &t, UINT32_MAX, 0);
  for (uint32_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    bool any = false;
    for (uint32_t k = (uint32_t)n->out_count; k-- > 0;) {
      any |= !val_none(m->cot[i][k]);
      if (!pass_hooks(m, HOOK_VALUE, i, k, &m->cot[i][k])) return;
    }
    for (size_t k = 0; k < c->target_count; k++) {
      if (c->targets[k].node == n) m->target[k] = m->cot[i][c->targets[k].out];
    }
    if ((any && n->mark == 2 && !add_node(m, i)) || !finish_params(m, i)) return;
  }
  m->k->param_out = ARENA_ARRAY(keep, int, c->param_count + 1);
  m->k->target_out = ARENA_ARRAY(keep, int, c->target_count + 1);
  outputs(m, m->param, c->param_count, m->k->param_out);
  outputs(m, m->target, c->target_count, m->k->target_out);
  m->k->g = pass_simplified(m->c->s, keep, g, NULL);
  m->k->effects = has_effect(m->k->g);
}

/* ---- `--trace-json`: the graph before and after simplification, sizes, times */
static void put_graph(Buf *b, Arena *a, const char *name, const Graph *g) {
  Buf text;
  buf_init_arena(&text, a);
  if (g) gr_print(&text, g);
  buf_printf(b, ",\"%s\":", name);
  buf_json(b, text.s ? text.s : "", text.n);
}

static void trace(const Maker *m, double ms) {
  Capture *c = m->c;
  Session *s = c->s;
  Buf b;
  uint32_t line = 0, col = 0;
  if (!s->config.trace) return;
  buf_init_arena(&b, &m->k->temp);
  buf_puts(&b, "{\"event\":\"backward.capture\",\"file\":");
  const char *file = c->at.file ? src_get(&s->sources, c->at.file)->path : "";
  buf_json(&b, file, strlen(file));
  if (c->at.file) src_place(&s->sources, c->at.file, c->at.lo, &line, &col);
  buf_printf(&b, ",\"line\":%u,\"nodes\":%zu,\"inputs\":%zu,\"ms\":%.3f,\"sizes\":[", line,
             c->count, m->k->source_count, ms);
  for (int i = 0; i < m->z->count; i++) {
    buf_printf(&b, "%s%lld", i ? "," : "", (long long)m->z->n[i]);
  }
  buf_puts(&b, "],\"calls\":[");
  for (size_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    buf_printf(&b, "%s\"%s\"", i ? "," : "",
               n->joint ? n->joint->spec.f->name ? n->joint->spec.f->name : "fn"
                        : op_info[n->op].text);
  }
  buf_putc(&b, ']');
  put_graph(&b, &m->k->temp, "before", m->g);
  put_graph(&b, &m->k->temp, "after", m->k->g);
  buf_puts(&b, "}\n");
  log_write(s, 3, b.s, b.n);
}

void capture_graph(Capture *c, Kept *k, Sizes *z, GErr *e) {
  Maker m = {.c = c, .k = k, .z = z, .e = {.operand = -1}};
  double start = native_clock();
  build(&m);
  trace(&m, 1e3 * (native_clock() - start));
  *e = m.e;
}
