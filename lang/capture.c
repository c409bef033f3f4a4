/* The backward of a tape as one graph.
 *
 * In: the nodes of a tape that a gradient goes through. Out: the gradients. The sweep of tape.c is
 * done on values of a graph instead of on tensors: a call gives the backward half of its joint
 * graph, an operation its rule, contributions are added in the same order (rule 74). So the whole
 * backward is compiled like a `fn`: fused and with planned memory, the same bits. The graph is kept
 * under a key of everything it depends on: operations, attributes, dtypes, ranks, edges, what is
 * wanted. Sizes, tensors and cotangents are inputs; sizes that calls of the tape have as constants
 * are constants. From of the idea: PyTorch's compiled autograd.
 *
 * Invariants: a kept graph names no tensor; equal keys give equal graphs; what is kept holds the
 * joint graphs that its key names, so their addresses stay theirs.
 */
#include "lang/capture.h"

#include <string.h>
#include <xxhash.h>

#include "lang/compile.h"
#include "lang/hook.h"
#include "lang/host.h"
#include "lang/native.h"

enum {
  KEPT = 64,        /* captured backwards; the next one takes the place of the oldest */
  MOST_SIZES = 512, /* different ones in one backward */
  MOST_PINS = 64,
  LONG = 2000, /* nodes: a longer tape is captured when it comes again, as capturing costs more
                  than a walk */
  SEEN = 64
};

static const char point_text[] = "hooks of the tape";

/* Where an input of the graph is taken from. */
typedef struct From {
  uint32_t node; /* place in Capture.nodes; UINT32_MAX: the cotangent */
  uint32_t slot; /* of inputs, or of what the call saved */
} From;

/* Where hooks run: a `defer` of the graph with its number. */
typedef struct Point {
  HookKind kind;
  uint32_t node; /* place in Capture.nodes of what was swept last */
  uint32_t at;   /* result of it, or place in Capture.params */
} Point;

typedef struct Kept {
  int64_t rc;
  Session *s;
  Arena arena;
  const char *key;
  size_t key_len;
  Span at;           /* of the `grad` that was captured */
  uint32_t *part;    /* where the parts of a node end in the key: PARTS each */
  size_t part_count;
  Graph *g;          /* NULL: no such form */
  bool effects;      /* it calls the program */
  Arena temp;        /* while it is made */
  JointRef **joints; size_t joint_count, joint_cap;
  From *source;    size_t source_count, source_cap;
  int *param_out, *target_out; /* output of each, -1 = nothing arrives, or its hooks give it */
  Point *points;     size_t point_count, point_cap;
  struct Native *native;
} Kept;

struct Captures {
  Kept *slot[KEPT];
  uint64_t hash[KEPT]; /* of the key there */
  size_t next;         /* the place of the oldest, or a free one */
  uint64_t seen[SEEN]; /* hashes of long tapes that were walked once */
};

static void kept_release(void *p) {
  Kept *k = p;
  if (--k->rc > 0) return;
  Session *s = k->s;
  native_free(&s->mem, k->native);
  for (size_t i = 0; i < k->joint_count; i++) joint_release(k->joints[i]);
  arena_free(&k->temp);
  arena_free(&k->arena);
  mem_free(&s->mem, k, sizeof *k);
}

void captures_free(Session *s) {
  if (!s->captures) return;
  for (size_t i = 0; i < KEPT; i++) {
    if (s->captures->slot[i]) kept_release(s->captures->slot[i]);
  }
  mem_free(&s->mem, s->captures, sizeof *s->captures);
  s->captures = NULL;
}

/* -- sizes: 0 and 1, and those that a call has as constants, are themselves; others are symbols in
 * the order in which they are met, equal ones the same */
typedef struct Sizes {
  int64_t n[MOST_SIZES];
  int count;
  int64_t pin[MOST_PINS];
  int pins;
  bool full;
} Sizes;

static bool is_pinned(const Sizes *z, int64_t n) {
  if (n >= 0 && n <= 1) return true;
  for (int i = 0; i < z->pins; i++) {
    if (z->pin[i] == n) return true;
  }
  return false;
}

/* Number of the symbol, -1 = a constant. */
static int number_of(Sizes *z, int64_t n) {
  if (is_pinned(z, n)) return -1;
  for (int k = 0; k < z->count; k++) {
    if (z->n[k] == n) return k;
  }
  if (z->count == MOST_SIZES) {
    z->full = true;
    return -1;
  }
  z->n[z->count] = n;
  return z->count++;
}

static void pin(Sizes *z, int64_t n) {
  if (!is_pinned(z, n) && z->pins < MOST_PINS) z->pin[z->pins++] = n;
}

static void pin_sizes(Sizes *z, const JointRef *j) {
  for (size_t i = 0; i < j->f->input_count; i++) {
    const Type *t = gr_type(j->f, j->f->inputs[i]);
    int64_t n;
    for (int k = 0; t->kind == TK_TENSOR && k < t->rank; k++) {
      if (dim_is_const(j->f->dims, t->dim[k], &n)) pin(z, n);
    }
  }
}

/* -- the key */
static void put(Buf *b, const void *p, size_t n) {
  buf_put(b, (const char *)p, n);
}

static void put_size(Buf *b, Sizes *z, int64_t n) {
  int32_t k = number_of(z, n);
  put(b, &k, sizeof k);
  if (k < 0) put(b, &n, sizeof n);
}

/* A dim of an attribute, which is a constant of script. */
static int64_t constant(const Session *s, int64_t d) {
  int64_t n = -1;
  return dim_is_const(s->dims, (Dim)d, &n) ? n : -1;
}

static void put_attrs(Session *s, Buf *b, Sizes *z, const TapeNode *n) {
  for (size_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &n->attrs[i];
    uint32_t head[2] = {(uint32_t)a->key << 16 | a->kind, a->count};
    put(b, head, sizeof head);
    if (a->kind == AK_DIMS) {
      for (uint32_t k = 0; k < a->count; k++) put_size(b, z, constant(s, a->u.ints[k]));
    } else if (a->kind == AK_DIM) {
      put_size(b, z, constant(s, a->u.i));
    } else if (a->kind == AK_INTS) {
      put(b, a->u.ints, a->count * sizeof *a->u.ints);
    } else {
      put(b, &a->u, sizeof a->u);
    }
  }
}

static int param_index(const Capture *c, const Param *p) {
  return p->slot && p->slot <= c->param_count && c->params[p->slot - 1] == p ? (int)p->slot - 1
                                                                             : -1;
}

static HookKey hook_key(const Capture *c, HookKind kind, uint32_t node, uint32_t at) {
  if (kind == HOOK_VALUE) return (HookKey){kind, c->nodes[node]->seq, at};
  return (HookKey){kind, c->params[at]->id, 0};
}

static bool has_hooks(const Capture *c, HookKind kind, uint32_t node, uint32_t at) {
  bool ever = kind == HOOK_VALUE ? c->nodes[node]->hooked : c->params[at]->hooked;
  return ever && hooks_on(c->s, hook_key(c, kind, node, at));
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

/* What differs when a backward is not found, part by part of a node. */
enum { PART_KIND, PART_EDGES, PART_TYPES, PARTS };
typedef struct Parts {
  uint32_t *end;
  size_t count, cap;
} Parts;

static void end_part(Session *s, Parts *p, const Buf *b) {
  VEC_PUSH(&s->scratch, p->end, p->count, p->cap, (uint32_t)b->n);
}

static void key_of(Capture *c, Buf *b, Sizes *z, Parts *p) {
  Session *s = c->s;
  for (size_t i = 0; i < c->count; i++) {
    c->nodes[i]->index = (uint32_t)i;
    if (c->nodes[i]->mark == 2 && c->nodes[i]->joint) pin_sizes(z, c->nodes[i]->joint);
  }
  uint32_t head[5] = {c->root->index, c->out, (uint32_t)c->param_count, (uint32_t)c->target_count,
                      c->cotangent->dtype};
  put(b, head, sizeof head);
  for (uint32_t i = 0; i < c->param_count; i++) {
    if (!c->params[i]->hooked) continue;
    uint32_t h[3] = {i, has_hooks(c, HOOK_PARAM, 0, i), has_hooks(c, HOOK_AFTER_GRAD, 0, i)};
    put(b, h, sizeof h);
  }
  for (size_t i = 0; i < c->target_count; i++) {
    uint32_t t[2] = {c->targets[i].node->index, c->targets[i].out};
    put(b, t, sizeof t);
  }
  for (size_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    for (uint32_t k = 0; n->hooked && k < n->out_count; k++) {
      uint32_t h[2] = {(uint32_t)i, k};
      if (has_hooks(c, HOOK_VALUE, (uint32_t)i, k)) put(b, h, sizeof h);
    }
    if (n->mark != 2) continue;
    uint32_t node[5] = {(uint32_t)i, (uint32_t)n->op << 1 | n->opened, (uint32_t)n->in_count,
                        (uint32_t)n->out_count, (uint32_t)n->attr_count};
    put(b, &n->joint, sizeof n->joint);
    put(b, node, sizeof node);
    end_part(s, p, b);
    for (size_t k = 0; k < n->in_count; k++) {
      Way w = way_of(c, &n->in[k]);
      put(b, &w, sizeof w);
    }
    end_part(s, p, b);
    bool one = !n->joint && !n->opened;
    for (size_t k = 0; n->joint && k < n->env_count; k++) put_size(b, z, n->env[k]);
    for (size_t k = 0; one && k < n->in_count; k++) {
      const Tensor *t = n->inputs[k];
      uint8_t type[4] = {(uint8_t)t->dtype, (uint8_t)t->store->dev, (uint8_t)t->rank, 0};
      put(b, type, sizeof type);
      for (int d = 0; d < t->rank; d++) put_size(b, z, t->dim[d]);
    }
    put_attrs(s, b, z, n);
    end_part(s, p, b);
  }
}

/* -- the graph */
typedef struct Maker {
  Capture *c;
  Kept *k;
  Graph *g;
  Sizes *z;
  Dim *symbol;
  Val **cot; /* per node, per result */
  Val *param, *target;
  size_t *uses; /* of each param, by nodes that are still to come */
  GErr e;
} Maker;

static Dim sized(Maker *m, int64_t n) {
  int k = number_of(m->z, n);
  return k < 0 ? dim_const(m->g->dims, n) : m->symbol[k];
}

static Val input(Maker *m, const Type *t, uint32_t node, uint32_t slot) {
  VEC_PUSH(&m->k->arena, m->k->source, m->k->source_count, m->k->source_cap,
           ((From){node, slot}));
  return gr_input(m->g, t);
}

static bool contribute(Maker *m, Val *slot, Val x) {
  if (val_none(*slot)) {
    *slot = x;
    return true;
  }
  *slot = gr_op(m->g, OP_ADD, (Val[]){*slot, x}, 2, NULL, 0, NULL, 0, &m->e);
  return !val_none(*slot);
}

static const Attr *attrs_of(Maker *m, const TapeNode *n) {
  Session *s = m->c->s;
  Arena *a = &m->k->temp;
  Attr *own = ARENA_ARRAY(a, Attr, n->attr_count + 1);
  for (size_t i = 0; i < n->attr_count; i++) {
    own[i] = n->attrs[i];
    if (own[i].kind == AK_DIM) own[i].u.i = sized(m, constant(s, own[i].u.i));
    if (own[i].kind != AK_DIMS) continue;
    int64_t *d = ARENA_ARRAY(a, int64_t, own[i].count + 1);
    for (uint32_t k = 0; k < own[i].count; k++) d[k] = sized(m, constant(s, own[i].u.ints[k]));
    own[i].u.ints = d;
  }
  return own;
}

/* The body of a call that was opened is on the tape: what comes to result k is operand k's. */
static bool add_opened(Maker *m, const TapeNode *n, uint32_t at, const bool *wants, Val *dx) {
  for (size_t i = 0; i < n->in_count; i++) {
    if (wants[i] && i < n->out_count) dx[i] = m->cot[at][i];
  }
  return true;
}

/* The rule of one operation; the operation itself goes again where the rule reads its result. */
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
    for (int k = 0; k < t.rank; k++) t.dim[k] = sized(m, x->dim[k]);
    B like = {.g = g}; /* stands for what the rule does not read */
    in[i] = op_info[n->op].needs == NEEDS_NONE ? b_zeros(&like, &t)
                                               : input(m, &t, at, (uint32_t)i);
    if (wants[i]) wrt[nw++] = in[i];
  }
  Val r = gr_op(g, n->op, in, (int)n->in_count, attrs_of(m, n), (int)n->attr_count, NULL, 0, &m->e);
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

/* As in tape.c: the sum that the call's backward goes on with for input i, or NULL. */
static Val *carried(Maker *m, const TapeNode *n, size_t i, const bool *wants) {
  if (!n->joint || !n->joint->carries || !n->joint->carries[i] || !wants[i]) return NULL;
  for (size_t k = i + 1; k < n->in_count; k++)
    if (n->joint->carries[k] && wants[k] && n->in[k].node == n->in[i].node &&
        n->in[k].param == n->in[i].param && n->in[k].out == n->in[i].out)
      return NULL;
  Way w = way_of(m->c, &n->in[i]);
  Val *slot = w.kind == 1 ? &m->param[w.a] : &m->cot[w.a][w.b];
  return val_none(*slot) ? NULL : slot;
}

/* The backward half of a call's joint graph. */
static bool add_call(Maker *m, const TapeNode *n, uint32_t at, const bool *wants, Val *dx) {
  Graph *g = m->g;
  Arena *a = &m->k->temp;
  const Joint *j = n->joint->joint;
  const Graph *b = j->backward;
  Val *args = ARENA_ARRAY(a, Val, b->input_count + 1);
  Val *outs = ARENA_ARRAY(a, Val, b->output_count + 1);
  Sym count = dim_symbol_count(b->dims);
  Dim *subst = ARENA_ARRAY(a, Dim, count + 1);
  for (Sym i = 0; i < count; i++) subst[i] = sized(m, i < n->env_count ? n->env[i] : 0);
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
    while (k < n->out_count && !dt_float(n->out[k].dtype)) k++;
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
  n->joint->rc++;
  return true;
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
  size_t provs = g->prov_count;
  g->at = (Prov){.span = n->span, .backward = 1, .origin = (int32_t)at};
  if (!(n->opened ? add_opened : n->joint ? add_call : add_op)(m, n, at, wants, dx)) return false;
  g->at = (Prov){.span = n->span, .backward = 1, .origin = (int32_t)at};
  /* the last operand first, as in tape.c */
  for (size_t i = n->in_count; i-- > 0;) {
    if (val_none(dx[i])) continue;
    Way w = way_of(c, &n->in[i]);
    Val *slot = w.kind == 1 ? &m->param[w.a] : &m->cot[w.a][w.b];
    if (carried(m, n, i, wants))
      *slot = dx[i]; /* the sum is in it */
    else if (!contribute(m, slot, dx[i]))
      return false;
  }
  for (size_t i = provs; i < g->prov_count; i++) g->provs[i].origin = (int32_t)at;
  return true;
}

/* v after the hooks of this kind there. */
static bool pass_hooks(Maker *m, HookKind kind, uint32_t node, uint32_t at, Val *v) {
  Capture *c = m->c;
  Graph *g = m->g;
  Kept *k = m->k;
  if (val_none(*v) || !has_hooks(c, kind, node, at)) return true;
  g->at = (Prov){.span = c->nodes[node]->span, .backward = 1, .origin = (int32_t)node};
  Attr attr[3] = {attr_text(AT_TEXT, names_of(c->s->names, point_text)), attr_i(AT_CARRY, 1),
                  attr_i(AT_INDEX, (int64_t)k->point_count)};
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
    m->param[i] = VAL_NONE; /* they give it, or drop it */
  }
  return true;
}

static void outputs(Maker *m, const Val *v, size_t n, int *out) {
  for (size_t i = 0; i < n; i++) {
    out[i] = val_none(v[i]) ? -1 : (int)m->g->output_count;
    if (!val_none(v[i])) gr_output(m->g, v[i]);
  }
}

static bool has_effects(const Graph *g) {
  for (size_t i = 0; i < g->node_count; i++) {
    if (op_info[g->nodes[i].op].traits & T_EFFECT) return true;
  }
  return false;
}

static void build(Maker *m) {
  Capture *c = m->c;
  Arena *a = &m->k->temp;
  Session *s = c->s;
  Arena *keep = &m->k->arena;
  Graph *g = m->g = gr_new(a, dim_tab_new(keep), s->names, names_of(s->names, "backward"));
  m->symbol = ARENA_ARRAY(a, Dim, m->z->count + 1);
  for (int i = 0; i < m->z->count; i++) m->symbol[i] = dim_symbol(g->dims, NULL, (Span){0}, NULL);
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
  for (int k = 0; k < t.rank; k++) t.dim[k] = sized(m, c->cotangent->dim[k]);
  g->at = (Prov){.span = c->at, .backward = 1, .origin = -1};
  m->cot[c->root->index][c->out] = input(m, &t, UINT32_MAX, 0);
  for (uint32_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    bool any = false;
    for (uint32_t k = 0; k < n->out_count; k++) {
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
  m->k->g = gr_simplify(keep, a, g);
  m->k->effects = has_effects(m->k->g);
}

/* -- --trace-json: the graph before and after simplification, sizes, times */
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
  const char *file = c->at.file ? s->sources.items[c->at.file].path : "";
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
               n->joint ? n->joint->f->name ? n->joint->f->name : "fn" : op_info[n->op].text);
  }
  buf_putc(&b, ']');
  put_graph(&b, &m->k->temp, "before", m->g);
  put_graph(&b, &m->k->temp, "after", m->k->g);
  buf_puts(&b, "}\n");
  emit_text(s, 3, b.s, b.n);
}

/* -- what is kept */

/* Says on the debug level of the log why nothing of what is kept fits. */
static void tell_miss(Capture *c, const Buf *key, const Parts *p) {
  static const char *const what[PARTS] = {
      "another operation, call or number of operands", "its gradients go elsewhere",
      "other dtypes, ranks, attributes or pattern of sizes"};
  Session *s = c->s;
  const Kept *old = NULL;
  if (s->logs[LOG_BACKWARD] < 2) return;
  for (size_t i = 0; i < KEPT; i++) { /* the oldest first */
    const Kept *k = s->captures->slot[(s->captures->next + i) % KEPT];
    if (k && k->at.file == c->at.file && k->at.lo == c->at.lo) old = k;
  }
  if (!old) {
    log_line(s, LOG_BACKWARD, "no backward was captured here before");
    return;
  }
  size_t n = p->count < old->part_count ? p->count : old->part_count, at = 0, from = 0;
  for (; at < n && p->end[at] == old->part[at]; from = p->end[at++]) {
    if (memcmp(key->s + from, old->key + from, p->end[at] - from)) break;
  }
  if (at == n) {
    log_line(s, LOG_BACKWARD, "unlike the last one: %zu nodes, not %zu", p->count / PARTS,
             old->part_count / PARTS);
    return;
  }
  size_t node = 0, i = 0; /* number at / PARTS among those with a gradient */
  for (; i < c->count; i++) {
    if (c->nodes[i]->mark == 2 && node++ == at / PARTS) break;
  }
  const TapeNode *x = c->nodes[i < c->count ? i : 0];
  uint32_t line = 0, col;
  if (x->span.file) src_place(&s->sources, x->span.file, x->span.lo, &line, &col);
  log_line(s, LOG_BACKWARD, "unlike the last one: NodeCall %zu, `%s` of line %u: %s", i,
           x->joint ? "call" : op_info[x->op].text, line, what[at % PARTS]);
}

/* NULL: a long tape that was not seen before. */
static Kept *kept_for(Capture *c, const Buf *key, Sizes *z, const Parts *p) {
  Session *s = c->s;
  if (!s->captures) {
    s->captures = mem_need(&s->mem, NULL, 0, sizeof *s->captures);
    memset(s->captures, 0, sizeof *s->captures);
  }
  uint64_t hash = XXH3_64bits(key->s, key->n);
  for (size_t i = 0; i < KEPT; i++) {
    Kept *k = s->captures->slot[i];
    if (!k || s->captures->hash[i] != hash) continue;
    if (k->key_len != key->n || memcmp(k->key, key->s, key->n)) continue;
    s->count.backward_hits++;
    return k;
  }
  uint64_t *seen = &s->captures->seen[hash & (SEEN - 1)];
  if (c->count > LONG && *seen != hash) {
    *seen = hash;
    log_line(s, LOG_BACKWARD, "%zu nodes of the tape are walked, the first time", c->count);
    return NULL;
  }
  size_t mark = mem_pool_mark(&s->mem);
  Kept *k = mem_need(&s->mem, NULL, 0, sizeof *k);
  *k = (Kept){.rc = 1, .s = s};
  arena_init(&k->arena, &s->mem);
  mem_pool_add(&s->mem, k, kept_release);
  k->key = arena_strdup(&k->arena, key->s, key->n);
  k->key_len = key->n;
  k->at = c->at;
  k->part = ARENA_ARRAY(&k->arena, uint32_t, p->count + 1);
  k->part_count = p->count;
  if (p->count) memcpy(k->part, p->end, p->count * sizeof *p->end);
  arena_init(&k->temp, &s->mem);
  tell_miss(c, key, p);
  Maker m = {.c = c, .k = k, .z = z, .e = {.operand = -1}};
  double start = native_clock();
  build(&m);
  trace(&m, 1e3 * (native_clock() - start));
  arena_free(&k->temp);
  s->count.backward_captures++;
  log_line(s, LOG_BACKWARD, "captured %zu nodes of the tape in %.2f ms%s%s", c->count,
           1e3 * (native_clock() - start), k->g ? "" : ": it runs plain: ",
           k->g ? "" : m.e.text);
  size_t at = s->captures->next;
  if (s->captures->slot[at]) kept_release(s->captures->slot[at]);
  s->captures->slot[at] = k;
  s->captures->hash[at] = hash;
  s->captures->next = (at + 1) % KEPT;
  k->rc++;
  mem_pool_drain(&s->mem, mark);
  return k;
}

/* -- running */
typedef struct HookedRun {
  Capture *c;
  const Kept *k;
  Name point;     /* the text of hooks of the tape; others are of calls */
  HostRun **host; /* per node of the tape; NULL: a call without hosts */
} HookedRun;

static bool run_point(HookedRun *r, const Point *p, Tensor *g, Tensor **out) {
  Capture *c = r->c;
  Session *s = c->s;
  size_t mark = mem_pool_mark(&s->mem);
  HookRun run = {.grad = c->at, .modes = c->nodes[p->node]->modes};
  if (p->kind != HOOK_VALUE) run.name = c->params[p->at]->name;
  Value v = tensor_value(s, host_own(s, g));
  Value x = hooks_gradient(s, hook_key(c, p->kind, p->node, p->at), &run, v, NULL);
  if (p->kind == HOOK_AFTER_GRAD) {
    c->dropped[p->at] = x.tag == V_NONE;
    if (x.tag != V_NONE) value_set(c->slot[p->at], x);
    x = v; /* which nothing reads */
  }
  *out = tn_ref(x.u.t->t);
  mem_pool_drain(&s->mem, mark);
  return true;
}

static bool run_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                       GErr *e) {
  HookedRun *r = ud;
  Session *s = r->c->s;
  const Attr *text = gr_attr(g, node, AT_TEXT);
  int32_t origin = g->provs[g->nodes[node].prov].origin;
  const TapeNode *from = origin >= 0 ? r->c->nodes[origin] : r->c->root;
  if (from->taken)
    return gerr_set(e, ERR_GRAD_TAKEN, -1, "a hook has used up what this gradient is made of");
  if (g->nodes[node].op == OP_DEFER && text->u.text == r->point) {
    out[0] = NULL;
    return run_point(r, &r->k->points[gr_attr_i(g, node, AT_INDEX, 0)], in[1], &out[1]);
  }
  if (!from->joint) return effect_run(s, g, node, in, n, out, e);
  return host_effect(r->host[origin], g, node, in, n, out, e);
}

Captured tape_capture(Capture *c, GErr *e, Span *at) {
  Session *s = c->s;
  Sizes *z = arena_alloc(&s->scratch, sizeof *z);
  *z = (Sizes){.count = 0};
  Buf key;
  buf_init_arena(&key, &s->scratch);
  for (size_t i = 0; i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    bool deferred = !n->joint && n->op == OP_DEFER; /* has no gradient: the walk says so */
    if (n->modes.anomaly || s->modes.anomaly || deferred) return CAPTURED_NOT;
  }
  Parts parts = {0};
  key_of(c, &key, z, &parts);
  if (z->full) return CAPTURED_NOT;
  Kept *k = kept_for(c, &key, z, &parts);
  if (!k || !k->g) return CAPTURED_NOT;
  k->rc++; /* a hook may capture another backward in its place */
  mem_pool_add(&s->mem, k, kept_release);
  Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, k->source_count + 1);
  Tensor **out = ARENA_ARRAY(&s->scratch, Tensor *, k->g->output_count + 1);
  for (size_t i = 0; i < k->source_count; i++) {
    From from = k->source[i];
    const TapeNode *n = from.node == UINT32_MAX ? NULL : c->nodes[from.node];
    in[i] = !n ? c->cotangent : n->joint ? n->saved[from.slot] : n->inputs[from.slot];
    /* a hook may use up the tape */
    if (k->effects) mem_pool_add(&s->mem, tn_ref(in[i]), (void (*)(void *))tn_unref);
  }
  Prov where = {.origin = -1};
  HookedRun state = {c, k, names_of(s->names, point_text),
                   ARENA_ARRAY(&s->scratch, HostRun *, c->count + 1)};
  for (size_t i = 0; k->effects && i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    /* now: what an effect puts on the pool lives as long as its step */
    if (n->joint && n->joint->hosts) state.host[i] = host_run(s, n->joint->hosts, n->refs, c->at);
  }
  RunCtx run = {.mem = &s->mem, .interrupt = &s->interrupt, .env = z->n, .effect = run_effect,
                .ud = &state};
  *e = (GErr){.code = ERR_BUG, .operand = -1};
  if (!native_run(s, &k->native, k->g, "a backward", &run, in, out, e, &where)) {
    c->failed = where.origin >= 0 ? c->nodes[where.origin] : c->root;
    *at = where.span;
    return CAPTURED_FAILED;
  }
  s->count.nodes += (int64_t)run.nodes_run;
  for (size_t i = 0; i < k->g->output_count; i++) {
    mem_pool_add(&s->mem, out[i], (void (*)(void *))tn_unref);
  }
  for (size_t i = 0; i < c->param_count; i++) {
    c->param_grad[i] = k->param_out[i] < 0 ? NULL : out[k->param_out[i]];
  }
  for (size_t i = 0; i < c->target_count; i++) {
    c->targets[i].grad = k->target_out[i] < 0 ? NULL : out[k->target_out[i]];
  }
  return CAPTURED_RAN;
}
