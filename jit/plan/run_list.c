/* Runs turns of a loop as a list of launches.
 *
 * In: a loop whose body is kernels, and branches of such, bound for its sizes. Out: what its turns
 * give. A turn changes addresses, and nothing is made for it: results are written where they stay,
 * and a carried value goes to and fro between two tensors, or is a row.
 *
 * Each output of a function has a source: a result of its plan, or an input. A result has one
 * output as its home, a row if one is of it; the others are copied, or read where it is by the next
 * turn. Rows of what a turn gets are no copies: rows of an input that does not change are one row,
 * and a carried value that is kept before its turn is written to the row of the next turn. A turn
 * that updates a few elements of what it carries, and reads no more of it, updates them where they
 * are.
 * Invariant: no turn writes what it carries in, or a tensor of the caller. */
#include <string.h>

#include "graph/cost.h"
#include "graph/opcode.h"
#include "graph/stash.h"
#include "jit/plan/run_impl.h"

enum { NONE = -1 };

typedef struct Gives { /* an output */
  bool input, home;    /* its source: an input, or a result whose home it is */
  bool looks;          /* it is a view of its source, and copied */
  bool shared;         /* a row of the loop: it lies in the memory of something else */
  uint32_t root;       /* the source's address, in JitFn.root */
  size_t bytes;
  /* Inputs whose memory the result may have, or NONE: by its steps, and as far as the caller goes;
   * `taken`: this time, if both are one. */
  int moved, given;
  bool taken;
  Tensor *view; /* if it looks: of its source, without an address */
} Gives;

typedef struct ListFn ListFn;
struct ListFn {
  ListFn *next; /* all */
  JitFn *f;
  Bound *b;
  Gives *gives;   /* per output */
  void **out;     /* per output: where it is written */
  ListFn **sides; /* two per step; NULL: a kernel */
};

typedef struct List {
  Arena a;
  Jit *j;
  size_t depth; /* of the loop's function */
  ListFn *all, *body;
  int64_t number; /* of the turn: input 0 of the body */
  Gives *gives;   /* of the body */
  size_t *row;    /* per input: bytes from one row to the next; 0: it is the same in each turn */
  void **cur;     /* per carried value */
  int *before;    /* per carried value: the output that keeps it before each turn, or NONE */
} List;

/* ---- what fits */

/* The value in memory that v is, or is a view of. */
static Val base_of(const Plan *p, Val v) {
  const Graph *g = p->g;
  while (!plan_there(p, v, UINT32_MAX)) {
    OpCode op = (OpCode)g->nodes[v.node].op;
    if (op != OP_ALIAS && op != OP_STOP && op != OP_RESHAPE && op != OP_TRANSPOSE &&
        op != OP_SLICE && op != OP_BROADCAST)
      return VAL_NONE;
    v = gr_operand(g, v.node, 0);
  }
  return v;
}

static bool branch_fits(const JitFn *f, uint32_t step) {
  const Plan *p = f->plan;
  const GNode *n = &p->g->nodes[p->steps[step].node];
  if (n->op != OP_BRANCH) return false;
  for (uint32_t k = 0; k < n->operand_count; k++)
    if (val_none(plan_dense(p, p->g->operands[n->operand0 + k], step))) return false;
  if (gr_type(p->g, p->g->operands[n->operand0])->dtype != DT_BOOL) return false;
  for (uint32_t k = 0; k < n->region_count; k++)
    if (!f->regions[n->region0 + k]->listed) return false;
  return true;
}

/* Whether each output is memory that leaves, or a view of it. */
static bool outputs_stay(const Plan *p) {
  for (size_t i = 0; i < p->g->output_count; i++) {
    Val v = base_of(p, p->g->outputs[i]);
    if (gr_type(p->g, p->g->outputs[i])->kind == TK_TOKEN) continue;
    if (val_none(v) || p->place[plan_index(p->g, v)].kind == PLACE_ARENA) return false;
  }
  return true;
}

bool list_fits(const JitFn *f) {
  const Plan *p = f->plan;
  if (f->reference || f->hosts || p->store_count || p->transfer_count) return false;
  for (uint32_t i = 0; i < p->step_count; i++) {
    if (p->steps[i].kind != STEP_KERNEL && !branch_fits(f, i)) return false;
  }
  for (size_t i = 0; i < p->g->output_count; i++)
    if (gr_type(p->g, p->g->outputs[i])->kind != TK_TENSOR) return false;
  return outputs_stay(p);
}

/* ---- the start */
static void release(void *obj) {
  List *l = obj;
  for (ListFn *x = l->all; x; x = x->next) {
    for (size_t i = 0; i < x->f->plan->g->output_count; i++) tn_unref(x->gives[i].view);
    x->f->running = false;
  }
  l->j->depth = l->depth; /* a turn may have thrown */
  Arena a = l->a;         /* l lies in it */
  arena_free(&a);
}

static bool is_row(const Turns *t, int input) {
  return input > t->carry && input <= t->carry + t->rows;
}

/* The number of the address of a place in JitFn.root; 0: it is in the arena. */
static uint32_t root_of(const Plan *p, Place at) {
  uint32_t results = 1 + (uint32_t)p->g->input_count, helds = results + (uint32_t)p->result_count;
  return at.kind == PLACE_INPUT    ? 1 + at.index
         : at.kind == PLACE_RESULT ? results + at.index
         : at.kind == PLACE_HELD   ? helds + at.index
                                   : 0;
}

static size_t bytes_of(const RunCtx *c, const Graph *g, Val v) {
  return (size_t)cost_bytes(g, gr_type(g, v), c->env);
}

static void of_source(void *ud) {
  (void)ud;
}

/* Makes y->view, which v is of `base`. False: it has to be copied on the way, or there is no
 * memory. */
static bool make_view(const RunCtx *c, const Graph *g, Gives *y, Val v, Val base) {
  RunCtx ctx = *c;
  int64_t dim[CKL_MAX_RANK], none = 0;
  GErr e;
  Prov at;
  stack_check();
  if (val_eq(v, base)) {
    const Type *ty = gr_type(g, v);
    for (int k = 0; k < ty->rank; k++)
      if (!dim_eval(g->dims, ty->dim[k], c->env, NULL, &dim[k])) return false;
    y->view = tn_foreign(c->mem, (DType)ty->dtype, ty->rank, dim, &none, of_source, NULL);
    return y->view;
  }
  if (!make_view(c, g, y, gr_operand(g, v.node, 0), base)) return false;
  Tensor *in = y->view, *out = NULL;
  if (g->nodes[v.node].op == OP_RESHAPE && !tn_is_contiguous(in)) return false;
  if (!gr_run_node(g, v.node, &ctx, &in, &out, &e, &at)) return false;
  y->view = out;
  tn_unref(in);
  return out->store->foreign_free == of_source;
}

/* The input whose memory a step of f can give to the result at this root, or NONE. */
static int moved_to(const Plan *p, uint32_t root) {
  for (size_t i = 0; i < p->step_count; i++) {
    const Step *s = &p->steps[i];
    if (s->kind != STEP_KERNEL || s->from.kind != PLACE_INPUT) continue;
    Place to = p->place[p->g->nodes[p->groups.items[s->group].root].result0];
    if (root_of(p, to) == root) return (int)s->from.index;
  }
  return NONE;
}

/* Where the outputs of f come from. */
static void find_sources(const JitFn *f, Gives *gives) {
  const Plan *p = f->plan;
  for (size_t i = 0; i < p->g->output_count; i++) {
    Gives *y = &gives[i];
    *y = (Gives){.input = true, .looks = true};
    if (gr_type(p->g, p->g->outputs[i])->kind == TK_TOKEN) continue;
    Place from = p->place[plan_index(p->g, base_of(p, p->g->outputs[i]))];
    *y = (Gives){.input = from.kind == PLACE_INPUT, .root = root_of(p, from)};
    y->looks = val_none(plan_dense(p, p->g->outputs[i], UINT32_MAX));
    y->moved = y->input ? NONE : moved_to(p, y->root);
    y->given = NONE;
    y->home = !y->input && !y->looks;
    for (size_t k = 0; k < i; k++) y->home &= !gives[k].home || gives[k].root != y->root;
  }
}

/* Lets what the sides of a branch give have the memory of inputs of x, where that is allowed for
 * what x gives, and the branch is the last to read the input. */
static void hand_on(ListFn *x, uint32_t step, ListFn *side) {
  const Plan *p = x->f->plan;
  const GNode *n = &p->g->nodes[p->steps[step].node];
  for (uint32_t k = 0; k < n->result_count; k++) {
    uint32_t root = root_of(p, p->place[n->result0 + k]);
    for (size_t i = 0; i < p->g->output_count; i++) {
      const Gives *y = &x->gives[i];
      int readers = 0, at = NONE;
      if (!y->home || y->root != root || y->given == NONE) continue;
      for (uint32_t m = 0; m < n->operand_count; m++) {
        Val v = plan_dense(p, p->g->operands[n->operand0 + m], step);
        Place from = p->place[plan_index(p->g, v)];
        if (from.kind != PLACE_INPUT || (int)from.index != y->given) continue;
        readers++;
        at = (int)m - 1; /* the condition is no input of a side */
      }
      if (readers == 1 && p->input_last[y->given] == step) side->gives[k].given = at;
    }
  }
}

/* Gives a value of x memory of its own, unless an output is its home. */
static void own_memory(List *l, ListFn *x, const RunCtx *c, Val v, Place at) {
  const Graph *g = x->f->plan->g;
  uint32_t root = root_of(x->f->plan, at);
  for (size_t i = 0; i < g->output_count; i++)
    if (x->gives[i].home && x->gives[i].root == root) return;
  x->f->root[root] = arena_alloc(&l->a, bytes_of(c, g, v) + 64);
}

/* Makes the list of f and of the sides of its branches; NULL: the evaluator has to take it. */
static ListFn *open_fn(List *l, const RunCtx *c, JitFn *f) {
  stack_check();
  const Plan *p = f->plan;
  const Graph *g = p->g;
  GErr e;
  Prov at;
  if (f->running) return NULL;
  Bound *b = bound_find(f, c->env);
  if (!b || !b->checked) {
    if (!gr_check_sizes(f->g, c->env, &e, &at)) return NULL; /* the evaluator says what it is */
    b = bound_get(f, c->env);
    b->checked = true;
  }
  if (b->reference) return NULL;
  ListFn *x = ARENA_NEW(&l->a, ListFn);
  *x = (ListFn){.next = l->all, .f = f, .b = b};
  x->gives = ARENA_ARRAY(&l->a, Gives, g->output_count + 1);
  l->all = x;
  f->running = true;
  x->out = ARENA_ARRAY(&l->a, void *, g->output_count + 1);
  x->sides = ARENA_ARRAY(&l->a, ListFn *, 2 * p->step_count + 1);
  find_sources(f, x->gives);
  for (size_t i = 0; i < g->output_count; i++) {
    Gives *y = &x->gives[i];
    y->bytes = bytes_of(c, g, g->outputs[i]);
    if (y->looks && !make_view(c, g, y, g->outputs[i], base_of(p, g->outputs[i]))) return NULL;
  }
  for (size_t i = p->inputs; i < g->input_count; i++) f->root[1 + i] = tn_data(f->in[i]);
  for (uint32_t i = 0; i < p->result_count; i++)
    own_memory(l, x, c, p->results[i], (Place){PLACE_RESULT, i});
  for (uint32_t i = 0; i < p->held_count; i++)
    own_memory(l, x, c, p->helds[i].v, (Place){PLACE_HELD, i});
  for (size_t i = 0; i < p->step_count; i++) {
    const GNode *n = &g->nodes[p->steps[i].node];
    for (uint32_t k = 0; p->steps[i].kind == STEP_NODE && k < 2; k++)
      if (!(x->sides[2 * i + k] = open_fn(l, c, f->regions[n->region0 + k]))) return NULL;
  }
  return x;
}

/* hand_on for all branches inside. */
static void hand_down(ListFn *x) {
  stack_check();
  for (uint32_t i = 0; i < 2 * x->f->plan->step_count; i++) {
    if (!x->sides[i]) continue;
    hand_on(x, i / 2, x->sides[i]);
    hand_down(x->sides[i]);
  }
}

/* Whether a tensor is what input i of x was bound for; `row`: it is the axes behind the first. */
static bool is_bound(const ListFn *x, int i, const Tensor *v, int row) {
  const Type *ty = gr_type(x->f->plan->g, x->f->plan->g->inputs[i]);
  if (v->dtype != (DType)ty->dtype || v->rank != ty->rank + row || v->store->dev != DEV_CPU)
    return false;
  for (int k = 0; k < ty->rank; k++)
    if (v->dim[k + row] != x->b->dims[i * CKL_MAX_RANK + k]) return false;
  return true;
}

/* Whether the tensors are what the body was bound for. */
static bool same_inputs(const Turns *t, const ListFn *x, int64_t count) {
  for (int i = 1; i < t->inputs; i++) {
    if (t->own[i] ? !is_bound(x, i, t->own[i], is_row(t, i)) : !is_row(t, i)) return false;
    for (int64_t k = 0; k < count && !t->own[i]; k++) {
      const Tensor *v = stash_kept(t->in[i], k);
      if (!v || !is_bound(x, i, v, 0) || !tn_is_contiguous(v)) return false;
    }
  }
  return true;
}

/* Finds the rows that hold carried values, and homes. */
static void find_homes(const Turns *t, List *l) {
  int rows = t->kept - t->carry;
  for (int j = 0; j < t->carry; j++) {
    l->before[j] = NONE;
    for (int i = t->kept - 1; i >= t->carry && !l->gives[j].input && !t->reverse; i--)
      if (l->gives[i].root == (uint32_t)j + 2 && !l->gives[i].looks) l->before[j] = i;
  }
  for (int i = 0; i < t->gives; i++) l->gives[i].home = false;
  for (int k = 0; k < t->gives; k++) { /* rows that are kept come before what is carried */
    int i = k < rows ? t->carry + k : k < t->kept ? k - rows : k;
    Gives *x = &l->gives[i];
    x->home = !x->input && !x->looks;
    for (int j = 0; j < t->carry && i >= t->carry; j++) /* that is the row of the next turn */
      x->home &= l->before[j] == NONE || l->gives[j].root != x->root;
    for (int j = 0; j < t->gives && x->home; j++)
      x->home = j == i || !l->gives[j].home || l->gives[j].root != x->root;
  }
}

/* The carried value whose row of the next turn is the home of output i's result, or NONE. */
static int kept_by(const Turns *t, int i) {
  const List *l = t->list;
  for (int j = 0; j < t->carry; j++)
    if (l->gives[j].home && l->before[j] != NONE && !l->gives[i].input && !l->gives[i].looks &&
        l->gives[j].root == l->gives[i].root)
      return j;
  return NONE;
}

/* Makes the tensor of output i the n rows in x from an element on, each so many elements behind the
 * one before. False when out of memory. */
static bool rows_in(const Turns *t, int i, Tensor *x, int64_t first, int64_t step, int64_t n) {
  const Graph *g = t->body;
  const Type *ty = gr_type(g, g->outputs[i]);
  Tensor **row = &t->own[t->inputs + i];
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK], each = 1;
  for (int k = ty->rank; k > 0; each *= dim[k--]) {
    CK_ASSERT(t->c->mem, dim_eval(g->dims, ty->dim[k - 1], t->c->env, NULL, &dim[k]));
    stride[k] = each;
  }
  dim[0] = n;
  stride[0] = step;
  tn_unref(*row);
  *row = tn_view(t->c->mem, x, ty->rank + 1, dim, stride, x->offset + first);
  return *row;
}

/* The rows of carried value j before each turn and, as far as they are kept, after it: `n` + 1. */
static bool rows_before(const Turns *t, int j, int64_t n, int64_t done) {
  const List *l = t->list;
  int i = l->before[j];
  Tensor *before = t->own[t->inputs + i], *x = turns_tensor(t, i, n + 1);
  if (!x) return false;
  memcpy(tn_data(x), done ? tn_data(before) : l->cur[j], (size_t)(done + 1) * l->gives[j].bytes);
  int64_t step = x->stride[0];
  bool ok = rows_in(t, i, x, 0, step, n);
  for (int k = t->carry; k < t->kept && ok; k++)
    if (kept_by(t, k) == j) ok = rows_in(t, k, x, step, step, n);
  tn_unref(x);
  return ok;
}

/* Whose memory the rows of an output have. */
typedef struct RowOf {
  int before; /* of the carried value with this number, before each turn, or behind it */
  int input;  /* of this input: its rows, or the value itself */
  int like;   /* of this output */
} RowOf;      /* NONE; all of them: their own */

static RowOf row_of(const Turns *t, int i) {
  const List *l = t->list;
  const Gives *x = &l->gives[i];
  RowOf r = {NONE, NONE, NONE};
  if (i >= t->kept) return r;
  r.before = kept_by(t, i);
  int of = x->input && !x->looks ? (int)x->root - 1 : 0, like = t->carry;
  if (of && of <= t->carry && l->gives[of - 1].home && l->before[of - 1] == i) r.before = of - 1;
  if (r.before != NONE) return r;
  while (like < i && (x->looks || l->gives[like].looks || l->gives[like].root != x->root)) like++;
  if (of > t->carry && !turns_replay(t, of))
    r.input = of;
  else if (like < i)
    r.like = like;
  return r;
}

bool list_shares(Arena *temp, const JitFn *body, int carry, int kept, int rows, bool reverse,
                 Shared *to) {
  if (!outputs_stay(body->plan)) return false;
  List l = {.gives = ARENA_ARRAY(temp, Gives, body->plan->g->output_count + 1)};
  Turns t = {.body = body->plan->g, .list = &l, .carry = carry, .rows = rows, .reverse = reverse};
  t.gives = (int)t.body->output_count;
  t.kept = kept;
  l.before = ARENA_ARRAY(temp, int, carry + 1);
  find_sources(body, l.gives);
  find_homes(&t, &l);
  for (int i = carry; i < kept; i++) {
    RowOf r = row_of(&t, i);
    to[i] = (Shared){.like = i, .all = true};
    if (r.before != NONE)
      to[i] = (Shared){l.before[r.before], true, 1, false};
    else if (r.like != NONE)
      to[i].like = r.like;
    else if (r.input != NONE && !is_row(&t, r.input))
      to[i] = (Shared){i, false, 1, false};
    to[i].looks = l.gives[i].looks;
  }
  return true;
}

bool list_rows(Turns *t, int64_t count, int64_t done) {
  List *l = t->list;
  t->room = count;
  for (int j = 0; j < t->carry; j++)
    if (l->gives[j].home && l->before[j] != NONE && !rows_before(t, j, count, done)) return false;
  for (int i = t->carry; i < t->gives; i++) {
    Gives *x = &l->gives[i];
    Tensor **to = &t->own[t->inputs + i], *made;
    RowOf r = row_of(t, i);
    bool drop = turns_drop(t, i);
    x->shared = !drop;
    if (r.before != NONE || (drop && (done || !x->home))) continue;
    Tensor *rows = r.input != NONE && is_row(t, r.input) ? t->own[r.input]
                   : r.like != NONE                      ? t->own[t->inputs + r.like]
                                                         : NULL;
    if (rows && rows->dim[0] >= count) {
      if (!rows_in(t, i, rows, 0, rows->stride[0], count)) return false;
    } else if (r.input != NONE && !is_row(t, r.input)) {
      Tensor *one = stash_hold(t->c->mem, t->own[r.input]); /* the arena ends before the rows do */
      bool ok = one && rows_in(t, i, one, 0, 0, count);
      tn_unref(one);
      if (!ok) return false;
    } else {
      x->shared = false;
      if (!(made = turns_output(t, i, drop ? 1 : count))) return false;
      if (done) memcpy(tn_data(made), tn_data(*to), (size_t)done * x->bytes);
      tn_unref(*to);
      *to = made;
    }
  }
  return true;
}

int list_open(Turns *t, JitFn *body, int64_t count) {
  Mem *m = t->c->mem;
  Arena a;
  arena_init(&a, m);
  mem_pool_reserve(m, 1);
  List *l = t->list = ARENA_NEW(&a, List);
  *l = (List){.a = a, .j = body->j, .depth = body->j->depth};
  mem_pool_add(m, l, release);
  l->row = ARENA_ARRAY(&l->a, size_t, t->inputs + 1);
  l->cur = ARENA_ARRAY(&l->a, void *, t->carry + 1);
  l->before = ARENA_ARRAY(&l->a, int, t->carry + 1);
  l->body = open_fn(l, t->c, body);
  if (!l->body || !same_inputs(t, l->body, t->count)) return 0;
  if (t->goes_on && gr_type(t->body, t->body->inputs[1])->dtype != DT_BOOL) return 0;
  l->gives = l->body->gives;
  find_homes(t, l);
  for (int i = 0; i < t->carry; i++)
    if (l->gives[i].home && l->before[i] == NONE) l->gives[i].given = i + 1;
  hand_down(l->body);
  for (int i = 0; i < t->carry; i++) {
    Tensor **to = &t->own[t->inputs + i], **spare = to + t->gives + 1;
    l->cur[i] = tn_data(t->own[1 + i]);
    if (!(*to = turns_output(t, i, 1)) || !(*spare = turns_tensor(t, i, 1))) return -1;
  }
  if (!list_rows(t, count, 0)) return 0; /* the evaluator says how far it comes */
  body->root[1] = &l->number;
  for (int i = 1; i < t->inputs; i++) {
    const Tensor *x = t->own[i];
    if (!x) continue;
    if (is_row(t, i)) l->row[i] = (size_t)x->stride[0] * dt_size(x->dtype);
    body->root[1 + i] = tn_data(x);
  }
  return 1;
}

/* ---- turns */

static void *address(const ListFn *x, Val v, uint32_t step) {
  const Plan *p = x->f->plan;
  Place at = p->place[plan_index(p->g, plan_dense(p, v, step))];
  uint32_t root = root_of(p, at);
  return root ? x->f->root[root] : (char *)x->f->root[0] + x->b->offset[at.index];
}

static void copy_out(const Gives *y, void *from, void *to) {
  if (!y->looks) {
    memcpy(to, from, y->bytes);
    return;
  }
  y->view->store->data = from;
  tn_gather(y->view, 0, tn_count(y->view), to);
}

typedef struct Walk {
  const RunCtx *c;
  uint64_t *nodes;
  KStatus *st;
  GErr *e;
  Prov *at;
} Walk;

/* Whether a step would copy an operand to where it lies. */
static bool done_already(const ListFn *x, const Step *s) {
  const Plan *p = x->f->plan;
  if (s->from.kind != PLACE_INPUT) return false;
  Place to = p->place[p->g->nodes[p->groups.items[s->group].root].result0];
  return x->f->root[root_of(p, to)] == x->f->root[1 + s->from.index];
}

static bool run_fn(const Walk *w, ListFn *x);

static bool run_branch(const Walk *w, ListFn *x, uint32_t step) {
  const Plan *p = x->f->plan;
  const GNode *n = &p->g->nodes[p->steps[step].node];
  const Val *in = p->g->operands + n->operand0;
  ListFn *side = x->sides[2 * step + !*(const bool *)address(x, in[0], step)];
  for (uint32_t k = 1; k < n->operand_count; k++) side->f->root[k] = address(x, in[k], step);
  for (uint32_t k = 0; k < n->result_count; k++) {
    uint32_t root = root_of(p, p->place[n->result0 + k]);
    side->out[k] = x->f->root[root];
    side->gives[k].taken = false;
    for (size_t i = 0; i < p->g->output_count; i++)
      if (x->gives[i].home && x->gives[i].root == root) side->gives[k].taken = x->gives[i].taken;
  }
  if (!run_fn(w, side)) return false;
  for (uint32_t k = 0; k < n->result_count && !w->st->failed; k++) {
    const Gives *y = &side->gives[k];
    if (!y->home) copy_out(y, side->f->root[y->root], side->out[k]);
    x->f->root[root_of(p, p->place[n->result0 + k])] = side->out[k];
  }
  return true;
}

/* Runs a function on the addresses of its inputs and outputs. */
static bool run_fn(const Walk *w, ListFn *x) {
  JitFn *f = x->f;
  Jit *j = f->j;
  const Plan *p = f->plan;
  jit_level(j, j->depth + 1);
  j->depth++;
  f->root[0] = jit_block(j, x->b->arena_bytes);
  bool ok =
      f->root[0] && (!j->engine || !x->b->local_bytes || eng_scratch(j->engine, x->b->local_bytes));
  if (!ok) gerr_set(w->e, ERR_NOMEM, -1, "out of memory");
  if (ok && j->config.check) memset(f->root[0], JIT_POISON, (size_t)x->b->arena_bytes);
  for (size_t i = 0; i < p->g->output_count && ok; i++) {
    const Gives *y = &x->gives[i];
    if (!y->home) continue;
    bool here = y->taken && y->given != NONE && y->given == y->moved;
    if (here) x->out[i] = f->root[1 + y->given];
    f->root[y->root] = x->out[i];
    if (j->config.check && !here) memset(x->out[i], JIT_POISON, y->bytes);
  }
  for (uint32_t i = 0; i < p->step_count && ok && !w->st->failed; i++) {
    const Step *s = &p->steps[i];
    if (s->kind == STEP_NODE)
      ok = run_branch(w, x, i);
    else if (!s->moved && !done_already(x, s))
      ok = launch_run(f, x->b, s, w->st, w->c->interrupt, false, w->e, w->at);
  }
  for (size_t i = 0; i < p->g->output_count; i++)
    if (x->gives[i].home) x->out[i] = f->root[x->gives[i].root];
  j->depth--;
  *w->nodes += f->nodes;
  return ok;
}

/* Where this turn writes output i. */
static void *place_for(const Turns *t, int i) {
  const List *l = t->list;
  bool kept = i < t->carry && l->gives[i].home && l->before[i] != NONE;
  Tensor *in = t->own[t->inputs + (kept ? l->before[i] : i)];
  char *to = in ? tn_data(in) : NULL;
  int64_t number = l->number + kept - t->low[t->inputs + i];
  if (turns_drop(t, i)) return to;
  if (kept || i >= t->carry) return to + number * (int64_t)l->gives[i].bytes;
  return l->cur[i] == to ? tn_data(t->own[t->inputs + t->gives + 1 + i]) : to;
}

/* Whether carried value i lies in memory that only it has, and no other carried value. */
static bool is_alone(const Turns *t, int i) {
  const List *l = t->list;
  bool own = l->cur[i] == tn_data(t->own[t->inputs + i]) ||
             l->cur[i] == tn_data(t->own[t->inputs + t->gives + 1 + i]);
  for (int k = 0; k < t->carry && own; k++) own = k == i || l->cur[k] != l->cur[i];
  return own;
}

static void set_addresses(const Turns *t) {
  List *l = t->list;
  void **root = l->body->f->root;
  for (int i = 0; i < t->carry; i++) root[2 + i] = l->cur[i];
  for (int i = t->carry + 1; i <= t->carry + t->rows; i++)
    root[1 + i] = t->own[i]
                      ? (char *)tn_data(t->own[i]) + (size_t)(l->number - t->low[i]) * l->row[i]
                      : tn_data(stash_kept(t->in[i], l->number));
  for (int i = 0; i < t->gives; i++) {
    l->body->out[i] = place_for(t, i);
    l->gives[i].taken = i < t->carry && is_alone(t, i);
  }
}

/* Copies outputs without a home, and carries on. */
static void end_turn(const Turns *t) {
  List *l = t->list;
  void **out = l->body->out;
  for (int i = 0; i < t->gives; i++) {
    const Gives *x = &l->gives[i];
    void *from = l->body->f->root[x->root];
    /* What the next turn reads where it is: not the number, nor what another value was before. */
    bool stays = !x->input || (int)x->root > t->carry + 1 || (int)x->root == i + 2;
    stays &= !x->looks && !(x->input && turns_replay(t, (int)x->root - 1));
    if (i < t->carry && stays)
      out[i] = from;
    else if (!x->home && !x->shared && !turns_drop(t, i))
      copy_out(x, from, out[i]);
  }
  memcpy(l->cur, out, (size_t)t->carry * sizeof *l->cur);
}

bool list_part(Turns *t, int64_t n, int64_t first, int64_t *done, KStatus *st, GErr *e, Prov *at) {
  List *l = t->list;
  Walk w = {t->c, &t->nodes, st, e, at};
  for (*done = 0; *done < n; ++*done) {
    if (t->goes_on && !*(const bool *)l->cur[0]) break;
    l->number = t->reverse ? first - *done : first + *done;
    set_addresses(t);
    if (!run_fn(&w, l->body)) return false;
    if (st->failed) return true;
    end_turn(t);
  }
  return true;
}

void list_settle(Turns *t) {
  List *l = t->list;
  for (int i = 0; i < t->carry; i++) {
    void *to = tn_data(t->own[t->inputs + i]);
    if (l->cur[i] != to) memcpy(to, l->cur[i], l->gives[i].bytes);
    l->cur[i] = to;
  }
}
