/* Gradients of single operations, kept.
 *
 * In: a node of the tape, which gradients are wanted and which cotangents are there. Out: the graph
 * that computes them. A tape of script has few kinds of nodes and many of each, so a session keeps
 * the graphs it made: a table of fixed size by the hash of everything a graph depends on
 * (operation, attributes, types and sizes of operands, the GradAsk, the mode), in which a newer
 * entry replaces the older one. Invariant: a kept graph names no place in the program; the code
 * that runs it knows the node.
 */
#include <string.h>
#include <xxhash.h>

#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/pass.h"
#include "lang/compile/tiering.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/sizes.h"

enum { KEPT = 256 }; /* a power of two */

static Type type_now(Session *s, const Tensor *x) {
  Type t = {.kind = TK_TENSOR,
            .dtype = (uint8_t)x->dtype,
            .dev = (uint8_t)x->store->dev,
            .rank = (uint8_t)x->rank};
  for (int k = 0; k < t.rank; k++) t.dim[k] = dim_const(s->dims, x->dim[k]);
  return t;
}

/* Adds the operation on `in`; for a call of one node it is the body of the call's graph. */
static Val operation(Graph *g, const TapeNode *n, const Val *in, Val *y, GErr *e) {
  if (n->joint) return gr_inline(g, n->joint->spec.f, in, NULL, y, e) ? y[0] : VAL_NONE;
  Val r = gr_op(g, n->op, in, (int)n->in_count, n->attrs, (int)n->attr_count, NULL, 0, e);
  for (uint32_t k = 0; k < n->out_count; k++) y[k] = (Val){r.node, k};
  return r;
}

static Graph *build(OpGrad *o, Arena *a, const TapeNode *n, const GradAsk *ask) {
  Session *s = o->s;
  const Graph *f = n->joint ? n->joint->spec.f : NULL;
  Graph *g = gr_new(a, f ? f->dims : s->dims, s->names, NULL);
  size_t nin = n->in_count, nout = n->out_count;
  Val *in = ARENA_ARRAY(a, Val, nin + 1), *wrt = ARENA_ARRAY(a, Val, nin + 1);
  Val *dx = ARENA_ARRAY(a, Val, nin + 1), *all = ARENA_ARRAY(a, Val, nout + 1);
  Val *y = ARENA_ARRAY(a, Val, nout + nin + 1), *dy = ARENA_ARRAY(a, Val, nout + nin + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  if (f) g->blocks = f->blocks;
  for (size_t i = 0; i < nin; i++) {
    Type t = f ? *gr_type(f, f->inputs[i]) : type_now(s, n->inputs[i]);
    in[i] = gr_input(g, &t);
    if (ask->first) in[i] = in[ask->first[i]];
  }
  g->at.anomaly = n->modes.anomaly;
  g->at.backward = 1; /* it has run before */
  Val r = operation(g, n, in, all, &e);
  if (val_none(r)) fail_gerr(s, n->span, &e);
  o->self = r.node;
  int ny = 0, nw = 0;
  for (size_t k = 0; k < nout; k++) {
    if (!ask->has[k]) continue;
    y[ny] = all[k];
    dy[ny] = gr_input(g, gr_type(g, y[ny]));
    ny++;
  }
  /* the sums so far are the first contributions: the gradient's nodes stand among the additions as
   * they do in code */
  for (size_t i = 0; i < nin; i++) {
    if (!ask->so_far || !ask->so_far[i]) continue;
    y[ny] = in[i];
    dy[ny] = gr_input(g, gr_type(g, in[i]));
    ny++;
  }
  size_t known = g->type_count;
  Val *read = ARENA_ARRAY(a, Val, known + 1);
  for (size_t k = 0; k < known; k++) read[k] = VAL_NONE;
  for (size_t k = 0; n->own && k < nout; k++)
    read[gr_node(g, all[k])->result0 + all[k].res] = gr_input(g, gr_type(g, all[k]));
  o->output = ARENA_ARRAY(a, int, nin + 1);
  for (size_t i = 0; i < nin; i++) {
    o->output[i] = -1;
    if (ask->wants[i] && (!ask->first || ask->first[i] == i)) wrt[nw++] = in[i];
  }
  VjpAsk vjp = {.ny = ny,
                .y = y,
                .dy = dy,
                .nwrt = nw,
                .wrt = wrt,
                .dx = dx,
                .read = n->own ? read : NULL,
                .read_count = known};
  if (!ad_vjp_ask(g, &vjp, &e, NULL)) fail_gerr(s, n->span, &e);
  for (size_t i = 0, k = 0; i < nin && k < (size_t)nw; i++) {
    if (!ask->wants[i] || !val_eq(wrt[k], in[i])) continue;
    if (!val_none(dx[k])) {
      o->output[i] = (int)g->output_count;
      gr_output(g, dx[k]);
    }
    k++;
  }
  return g->output_count ? g : NULL;
}

static void key_of(Session *s, Buf *b, const TapeNode *n, const GradAsk *ask) {
  struct {
    uint32_t op, in, out, attrs;
    uint8_t anomaly, record, own, pad[5];
  } head = {n->op,
            (uint32_t)n->in_count,
            (uint32_t)n->out_count,
            (uint32_t)n->attr_count,
            n->modes.anomaly,
            ask->first != NULL,
            n->own != NULL,
            {0}};
  buf_put(b, (const char *)&head, sizeof head);
  buf_put(b, (const char *)ask->wants, n->in_count);
  buf_put(b, (const char *)ask->has, n->out_count);
  if (ask->first) buf_put(b, (const char *)ask->first, n->in_count * sizeof *ask->first);
  if (ask->first) buf_put(b, (const char *)ask->so_far, n->in_count);
  for (size_t i = 0; i < n->in_count; i++) {
    const Tensor *x = n->inputs[i];
    uint8_t type[4] = {(uint8_t)x->dtype, (uint8_t)x->store->dev, (uint8_t)x->rank, 0};
    buf_put(b, (const char *)type, sizeof type);
    buf_put(b, (const char *)x->dim, sizeof *x->dim * (size_t)x->rank);
  }
  sizes_key_attrs(s, b, NULL, n->attrs, n->attr_count);
}

static void entry_release(void *p) {
  OpGrad *o = p;
  if (--o->rc > 0) return;
  Session *s = o->s;
  native_free(&s->mem, o->native);
  arena_free(&o->arena);
  mem_free(&s->mem, o, sizeof *o);
}

void op_grads_free(Session *s) {
  for (size_t i = 0; s->op_grads && i < KEPT; i++)
    if (s->op_grads[i]) entry_release(s->op_grads[i]);
  if (s->op_grads) mem_free(&s->mem, s->op_grads, KEPT * sizeof(OpGrad *));
  s->op_grads = NULL;
}

OpGrad *op_grad(Session *s, Arena *temp, const TapeNode *n, const GradAsk *ask) {
  if (n->joint) { /* its regions are its own: not kept */
    OpGrad *o = ARENA_NEW(temp, OpGrad);
    *o = (OpGrad){.s = s};
    o->g = build(o, temp, n, ask);
    return o;
  }
  Buf key;
  buf_init_arena(&key, temp);
  key_of(s, &key, n, ask);
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
  o->g = build(o, &o->arena, n, ask);
  if (o->g && !ask->first) o->g = gr_dce(&o->arena, o->g);
  if (*slot) entry_release(*slot);
  *slot = o;
  o->rc++;
  mem_pool_drain(&s->mem, mark);
  return o;
}
