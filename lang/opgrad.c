/* Gradients of single operations, kept.
 *
 * In: a node of the tape, which gradients are wanted and which cotangents are there. Out: the graph
 * that computes them. A tape of script has few kinds of nodes and many of each, so a session keeps
 * the graphs it made: a table of fixed size by the hash of everything a graph depends on
 * (operation, attributes, types and sizes of operands, the two masks, the mode), in which the newer
 * entry takes the place. Invariant: a kept graph names no place in the program; whoever runs it
 * knows the node.
 */
#include <string.h>
#include <xxhash.h>

#include "lang/native.h"
#include "lang/tape.h"

enum { KEPT = 256 }; /* a power of two */

static Graph *build(Session *s, Arena *a, const TapeNode *n, const bool *wants, const bool *has) {
  Graph *g = gr_new(a, s->dims, s->names, NULL);
  Val *in = ARENA_ARRAY(a, Val, n->in_count + 1), *wrt = ARENA_ARRAY(a, Val, n->in_count + 1);
  Val *dx = ARENA_ARRAY(a, Val, n->in_count + 1), y[2], dy[2];
  GErr e = {.code = ERR_BUG, .operand = -1};
  for (size_t i = 0; i < n->in_count; i++) {
    const Tensor *x = n->inputs[i];
    Type t = {.kind = TK_TENSOR,
              .dtype = (uint8_t)x->dtype,
              .dev = (uint8_t)x->store->dev,
              .rank = (uint8_t)x->rank};
    for (int k = 0; k < t.rank; k++) t.dim[k] = dim_const(s->dims, x->dim[k]);
    in[i] = gr_input(g, &t);
  }
  g->at.anomaly = n->anomaly;
  Val r = gr_op(g, n->op, in, (int)n->in_count, n->attrs, (int)n->attr_count, NULL, 0, &e);
  if (val_none(r)) fail_gerr(s, n->span, &e);
  int ny = 0, nw = 0;
  for (uint32_t k = 0; k < n->out_count; k++) {
    if (!has[k]) continue;
    y[ny] = (Val){r.node, k};
    dy[ny] = gr_input(g, gr_type(g, y[ny]));
    ny++;
  }
  for (size_t i = 0; i < n->in_count; i++)
    if (wants[i]) wrt[nw++] = in[i];
  if (!ad_vjp(g, ny, y, dy, nw, wrt, dx, &e, NULL)) fail_gerr(s, n->span, &e);
  for (int i = 0; i < nw; i++) gr_output(g, dx[i]);
  return g;
}

/* Outputs that are not there are left out. */
static void pack(OpGrad *o, const TapeNode *n, const bool *wants) {
  Graph *g = o->g;
  size_t all = 0, there = 0;
  o->output = ARENA_ARRAY(&o->arena, int, n->in_count + 1);
  for (size_t i = 0; i < n->in_count; i++) {
    Val v = wants[i] ? g->outputs[all++] : VAL_NONE;
    o->output[i] = val_none(v) ? -1 : (int)there;
    if (!val_none(v)) g->outputs[there++] = v;
  }
  g->output_count = there;
  o->g = there ? gr_dce(&o->arena, g) : NULL;
}

static void key_of(Buf *b, const TapeNode *n, const bool *wants, const bool *has,
                   const bool *tracked) {
  struct { uint32_t op, in, out, attrs; uint8_t anomaly, record, pad[6]; } head = {
      n->op, (uint32_t)n->in_count, (uint32_t)n->out_count, (uint32_t)n->attr_count, n->anomaly,
      tracked != NULL, {0}};
  size_t inputs = n->in_count;
  for (size_t k = 0; k < n->out_count; k++) inputs += has[k];
  buf_put(b, (const char *)&head, sizeof head);
  buf_put(b, (const char *)wants, n->in_count);
  buf_put(b, (const char *)has, n->out_count);
  if (tracked) buf_put(b, (const char *)tracked, inputs);
  for (size_t i = 0; i < n->in_count; i++) {
    const Tensor *x = n->inputs[i];
    uint8_t type[4] = {(uint8_t)x->dtype, (uint8_t)x->store->dev, (uint8_t)x->rank, 0};
    buf_put(b, (const char *)type, sizeof type);
    buf_put(b, (const char *)x->dim, sizeof *x->dim * (size_t)x->rank);
  }
  for (size_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &n->attrs[i];
    uint32_t kind[2] = {(uint32_t)a->key << 16 | a->kind, a->count};
    bool list = a->kind == AK_INTS || a->kind == AK_DIMS;
    buf_put(b, (const char *)kind, sizeof kind);
    if (list)
      buf_put(b, (const char *)a->u.ints, a->count * sizeof *a->u.ints);
    else
      buf_put(b, (const char *)&a->u, sizeof a->u);
  }
}

static void entry_release(void *p) {
  OpGrad *o = p;
  if (--o->rc > 0) return;
  Session *s = o->s;
  native_free(&s->mem, o->native);
  joint_release(o->joint);
  arena_free(&o->arena);
  mem_free(&s->mem, o, sizeof *o);
}

void op_grads_free(Session *s) {
  for (size_t i = 0; s->op_grads && i < KEPT; i++)
    if (s->op_grads[i]) entry_release(s->op_grads[i]);
  if (s->op_grads) mem_free(&s->mem, s->op_grads, KEPT * sizeof(OpGrad *));
  s->op_grads = NULL;
}

OpGrad *op_grad(Session *s, Arena *temp, const TapeNode *n, const bool *wants, const bool *has,
                const bool *tracked) {
  Buf key;
  buf_init_arena(&key, temp);
  key_of(&key, n, wants, has, tracked);
  uint64_t hash = XXH3_64bits(key.s, key.n);
  if (!s->op_grads) {
    s->op_grads = mem_need(&s->mem, NULL, 0, KEPT * sizeof(OpGrad *));
    memset(s->op_grads, 0, KEPT * sizeof(OpGrad *));
  }
  OpGrad **slot = &s->op_grads[hash & (KEPT - 1)];
  if (*slot && (*slot)->key_len == key.n && !memcmp((*slot)->key, key.s, key.n)) return *slot;
  size_t mark = mem_pool_mark(&s->mem);
  OpGrad *o = mem_need(&s->mem, NULL, 0, sizeof *o);
  *o = (OpGrad){.s = s, .rc = 1};
  arena_init(&o->arena, &s->mem);
  mem_pool_add(&s->mem, o, entry_release);
  o->key = arena_strdup(&o->arena, key.s, key.n);
  o->key_len = key.n;
  if (tracked) {
    o->joint = joint_new(s);
    o->joint->rc++;
    o->joint->f = build(s, &o->joint->arena, n, wants, has);
    joint_of_gradient(o->joint, n, wants, tracked);
  } else {
    o->g = build(s, &o->arena, n, wants, has);
    pack(o, n, wants);
  }
  if (*slot) entry_release(*slot);
  *slot = o;
  o->rc++;
  mem_pool_drain(&s->mem, mark);
  return o;
}
