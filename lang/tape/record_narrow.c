/* What gradients read of a call that is opened and saves narrow values (rule 81).
 *
 * In: the graph of a call, whose operations have run and stand on the tape (record_grad.c). Out:
 * their nodes, with the tensors that a gradient of theirs reads. Where the compiled call would read
 * a rounded value, or one made again from it, that differs from what the operation had.
 *
 * The idea: a small graph holds the operations that hang on narrow values, and for each value that
 * a gradient of an operation reads a node that stands for this use; everything else is an input.
 * rm_apply makes of it what it makes of the call, so the bits are those of the call.
 */
#include "autograd/remat.h"
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/run.h"
#include "graph/shape.h"
#include "lang/tape/tape_impl.h"

typedef struct Shift {
  Mem *mem;
  Arena *temp;
  const Graph *f;
  const TapeRun *run;
  const bool *shifted;
  Graph *m;
  Val *to;        /* per result of f: the value in m */
  Tensor **given; /* per input of m */
  size_t given_count, given_cap;
  Tensor ***slot; /* per output of m: where its tensor goes */
  size_t slot_count, slot_cap;
} Shift;

static size_t number(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}

/* The value v in m. What hangs on no narrow value is an input. */
static Val taken(Shift *x, Val v) {
  Val *to = &x->to[number(x->f, v)];
  if (!val_none(*to)) return *to;
  x->m->at = (Prov){.origin = -1};
  *to = gr_input(x->m, gr_type(x->f, v));
  VEC_PUSH(x->temp, x->given, x->given_count, x->given_cap, x->run->value[number(x->f, v)]);
  return *to;
}

static bool is_shifted(const Shift *x, uint32_t n) {
  const GNode *node = &x->f->nodes[n];
  for (uint32_t k = 0; k < node->result_count; k++)
    if (x->shifted[node->result0 + k]) return true;
  return false;
}

static bool copy(Shift *x, uint32_t n, GErr *e) {
  const GNode *node = &x->f->nodes[n];
  const Prov *p = &x->f->provs[node->prov];
  bool inside = false;
  for (uint32_t k = 0; k < node->region_count; k++)
    inside |= rm_narrows(x->f->regions[node->region0 + k]);
  if (!x->run->value[node->result0] || !(inside || is_shifted(x, n))) return true;
  if (node->region_count || p->backward) {
    gerr_set(e, ERR_NOT_YET, -1,
             "not yet: a recorded gradient through a block in which a loop, a choice on data or a "
             "`grad` reads what it saves narrower");
    return gerr_help(e, "in code both gradients are taken: `fn slope(x) = grad(f(x), x)`");
  }
  Val *in = ARENA_ARRAY(x->temp, Val, node->operand_count + 1u);
  for (uint32_t k = 0; k < node->operand_count; k++) in[k] = taken(x, gr_operand(x->f, n, (int)k));
  Val v = copy_node_as(x->m, x->f, n, in, NULL, p);
  for (uint32_t k = 0; k < node->result_count; k++) x->to[node->result0 + k] = (Val){v.node, k};
  return true;
}

/* A gradient of node n reads v, for which the tensor at *t stands. */
static void use(Shift *x, uint32_t n, Val v, Tensor **t) {
  GErr e;
  if (!x->shifted[number(x->f, v)]) return;
  x->m->at = x->f->provs[x->f->nodes[n].prov];
  x->m->at.backward = 1;
  x->m->at.tag = TAG_NONE;
  Val y = gr_op(x->m, OP_STOP, &x->to[number(x->f, v)], 1, NULL, 0, NULL, 0, &e);
  CK_ASSERT(x->mem, !val_none(y));
  gr_output(x->m, y);
  VEC_PUSH(x->temp, x->slot, x->slot_count, x->slot_cap, t);
}

/* The results of node t as its gradient reads them; first they are what they are. */
static void own_results(Shift *x, uint32_t n, TapeNode *t) {
  size_t count = t->out_count;
  t->own = mem_need(x->mem, NULL, 0, count * sizeof *t->own);
  for (size_t k = 0; k < count; k++) t->own[k] = tn_ref(x->run->value[x->f->nodes[n].result0 + k]);
}

bool tape_shift(Session *s, Arena *temp, const TapeRun *run, GErr *e, Prov *at) {
  const Graph *f = run->f;
  bool *kept = ARENA_ARRAY(temp, bool, f->type_count + 1);
  Shift x = {.mem = &s->mem, .temp = temp, .f = f, .run = run};
  x.shifted = rm_shifted(temp, f, kept);
  x.m = copy_start(temp, f);
  x.to = ARENA_ARRAY(temp, Val, f->type_count + 1);
  for (size_t k = 0; k < f->type_count; k++) x.to[k] = VAL_NONE;
  for (uint32_t n = 0; n < f->node_count; n++) {
    *at = f->provs[f->nodes[n].prov];
    if (!copy(&x, n, e)) return false;
  }
  uint32_t split = (uint32_t)x.m->node_count;
  for (uint32_t n = 0; n < f->node_count; n++) {
    const GNode *node = &f->nodes[n];
    TapeNode *t = run->made[n];
    bool any = is_shifted(&x, n);
    for (uint32_t k = 0; k < node->operand_count; k++)
      any |= x.shifted[number(f, gr_operand(f, n, (int)k))];
    if (!t || !any) continue;
    own_results(&x, n, t);
    for (uint32_t k = 0; k < node->operand_count; k++)
      use(&x, n, gr_operand(f, n, (int)k), &t->inputs[k]);
    for (uint32_t k = 0; k < node->result_count; k++) use(&x, n, (Val){n, k}, &t->own[k]);
  }
  if (!x.slot_count) return true;
  const Graph *d = rm_apply(temp, x.m, NULL, &split);
  Tensor **out = ARENA_ARRAY(temp, Tensor *, x.slot_count + 1);
  RunCtx c = {.mem = &s->mem, .interrupt = &s->kernel.stop, .env = run->env};
  if (!gr_run(d, &c, x.given, out, e, at)) return false;
  for (size_t k = 0; k < x.slot_count; k++) {
    tn_unref(*x.slot[k]);
    *x.slot[k] = out[k];
  }
  return true;
}
