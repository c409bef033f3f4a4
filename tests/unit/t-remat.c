/* Rematerialisation: whatever is chosen, gradients keep every bit; what is kept is what was chosen;
 * nothing is computed again that no gradient reads; memory really shrinks. */
#include "autograd/autograd.h"
#include "autograd/remat.h"
#include "autograd/vjp.h"
#include "graph-gen.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run.h"
#include "graphs.h"
#include "jit/plan/jit.h"
#include "lang/compile/pipeline.h"

static Mem mem;
static Arena arena;
static Names *names;

/* ---- random graphs in blocks */

enum { OUTS = 256 };

typedef struct Case {
  Gen x;
  Graph *whole; /* forward and backward */
  uint32_t split;
  bool tops; /* no block inside of a block */
} Case;

static void plain_provs(Graph *g) {
  for (size_t k = 0; k < g->prov_count; k++) g->provs[k] = (Prov){.origin = -1};
  for (size_t k = 0; k < g->region_count; k++) plain_provs(g->regions[k]);
}

static bool one_block; /* around all nodes, of which there are more */

/* Nested intervals of nodes become blocks; every node gets a tag and a span that is its number. */
static void enter_blocks(Case *c) {
  Gen *x = &c->x;
  Graph *g = x->g;
  uint32_t stack[4] = {0};
  int depth = 0, most = 1 + (int)gen_rnd(x, 3);
  c->tops = most == 1;
  plain_provs(g);
  if (one_block) {
    stack[++depth] = gr_block(g, (Block){.budget = -1, .text = names_of(names, "b")});
    most = 1;
  }
  for (uint32_t n = 0; n < g->node_count; n++) {
    unsigned dice = gen_rnd(x, 12);
    if (dice < 4 && depth < most) {
      Block b = {.parent = stack[depth],
                 .budget = -1,
                 .text = names_of(names, "b"),
                 .saves = gen_rnd(x, 3) == 0};
      stack[++depth] = gr_block(g, b);
    } else if (dice == 4 && depth && !one_block) {
      depth--;
    }
    Prov p = {.origin = -1, .span = {1, n, n + 1}, .region = stack[depth]};
    if (g->nodes[n].op == OP_INPUT) p.region = 0;
    if (p.region) p.tag = one_block ? TAG_PREFER_RECOMPUTE : (uint8_t)(1 + gen_rnd(x, 5));
    gr_set_prov(g, n, p);
  }
}

static bool can_differ(OpCode op) {
  return op != OP_LOOP && op != OP_NONZERO && op != OP_CALL && op != OP_DEFER && op != OP_PRINT &&
         op != OP_ASSERT && op != OP_TOKEN && op != OP_WRAP && op != OP_PLACE && op != OP_HOOK;
}

/* Nodes of all ops, with chains between them, as a gradient goes through them. */
static void grow(Gen *x, int n) {
  static const OpCode few[] = {OP_MUL, OP_EXP, OP_ADD, OP_DIV, OP_TANH, OP_SIN, OP_GELU};
  for (int i = 0; i < n; i++) {
    OpCode op = (OpCode)gen_rnd(x, OP_COUNT);
    if (can_differ(op)) gen_op(x, op);
    Val last = {(uint32_t)x->g->node_count - 1, 0};
    if (!x->g->node_count || !x->g->nodes[last.node].result_count) continue;
    Type t = *gr_type(x->g, last);
    if (t.kind != TK_TENSOR || !dt_float((DType)t.dtype)) continue;
    B b = {.g = x->g};
    for (unsigned k = gen_rnd(x, 4); k > 0 && !b.failed; k--) {
      OpCode f = few[gen_rnd(x, 7)];
      if (op_info[f].arity == 2)
        last = b_bin(&b, f, last, b_un(&b, OP_COS, last));
      else
        last = b_un(&b, f, last);
    }
  }
}

/* A graph with gradients of some of its values. */
static bool make_case(Case *c, uint64_t seed) {
  Gen *x = &c->x;
  gen_open(x, &arena, names, seed, seed % 2, false);
  x->reuse = true;
  grow(x, one_block ? 160 : 40);
  enter_blocks(c);
  Graph *g = c->whole = x->g;
  Val y[4], dy[4], wrt[GEN_INPUTS], dx[GEN_INPUTS];
  int ny = 0, nwrt = 0;
  uint32_t nodes = (uint32_t)g->node_count;
  for (uint32_t n = nodes; n-- > 0 && ny < 4;) {
    const Type *t = g->nodes[n].result_count ? gr_type(g, (Val){n, 0}) : NULL;
    if (t && g->nodes[n].op != OP_INPUT && dt_float((DType)t->dtype)) y[ny++] = (Val){n, 0};
  }
  for (size_t i = 0; i < g->input_count; i++)
    if (dt_float((DType)gr_type(g, g->inputs[i])->dtype)) wrt[nwrt++] = g->inputs[i];
  if (!ny || !nwrt) return false;
  for (int i = 0; i < ny && gen_rnd(x, 2); i++) gr_output(g, y[i]);
  c->split = (uint32_t)g->node_count;
  B b = {.g = g};
  g->at = (Prov){.origin = -1};
  for (int i = 0; i < ny; i++) {
    Type t = *gr_type(g, y[i]);
    Val one = gr_const_f(g, (DType)t.dtype, DEV_CPU, 1);
    dy[i] = b_broadcast(&b, one, t.rank, t.dim);
  }
  Prov at;
  GErr e;
  if (!ad_vjp(g, ny, y, dy, nwrt, wrt, dx, &e, &at)) return false;
  int count = 0;
  for (int i = 0; i < nwrt; i++)
    if (!val_none(dx[i])) gr_output(g, dx[i]), count++;
  if (count && seed % 4 == 1) { /* and the gradient of the gradient, of one input */
    Val d2[GEN_INPUTS], z = g->outputs[g->output_count - 1];
    Type t = *gr_type(g, z);
    g->at = (Prov){.origin = -1};
    Val one = b_broadcast(&b, gr_const_f(g, (DType)t.dtype, DEV_CPU, 1), t.rank, t.dim);
    if (!ad_vjp(g, 1, &z, &one, nwrt, wrt, d2, &e, &at)) return false;
    for (int i = 0; i < nwrt; i++)
      if (!val_none(d2[i])) gr_output(g, d2[i]);
    c->tops = false; /* a gradient is a backward use of another */
  }
  return count > 0 && g->output_count <= OUTS;
}

static void free_all(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) tn_unref(t[i]);
}

static bool same(const Tensor *a, const Tensor *b) {
  return a && b ? tn_same(a, b) : a == b;
}

/* Runs both, compares outputs. */
static bool agree(Case *c, const Graph *d, uint64_t seed) {
  Tensor *in[GEN_INPUTS] = {0}, *want[OUTS], *got[OUTS];
  size_t nin = c->whole->input_count, nout = c->whole->output_count;
  GErr e;
  RunCtx r = {.mem = &mem, .env = c->x.value};
  for (size_t i = 0; i < nin; i++) in[i] = gen_tensor(&c->x, &mem, i, seed);
  bool ran = gr_run(c->whole, &r, in, want, &e, NULL), fine = true;
  if (ran) {
    fine = check_msg(gr_run(d, &r, in, got, &e, NULL), "seed %d: %s", (int)seed, e.text);
    for (size_t k = 0; k < nout && fine; k++)
      fine =
          check_msg(same(want[k], got[k]), "seed %d: output %d has other bits", (int)seed, (int)k);
    if (fine) free_all(got, nout);
    free_all(want, nout);
  }
  free_all(in, nin);
  return ran && fine;
}

static void draw_choice(Case *c, uint8_t *choice) {
  rm_written(c->whole, choice);
  for (size_t k = 0; k < c->whole->type_count; k++)
    if (choice[k] != CHOICE_FREE && gen_rnd(&c->x, 2))
      choice[k] = gen_rnd(&c->x, 2) ? CHOICE_SAVE : CHOICE_RECOMPUTE;
}

static bool reads(const Graph *g, uint32_t n, Val v) {
  for (uint32_t k = 0; k < g->nodes[n].operand_count; k++)
    if (val_eq(gr_operand(g, n, (int)k), v)) return true;
  return false;
}

/* Per node: an output comes from it. */
static const bool *needed(const Graph *g) {
  bool *live = ARENA_ARRAY(&arena, bool, g->node_count + 1);
  for (size_t k = 0; k < g->output_count; k++) live[g->outputs[k].node] = true;
  for (uint32_t n = (uint32_t)g->node_count; n-- > 0;)
    for (uint32_t k = 0; live[n] && k < g->nodes[n].operand_count; k++)
      live[gr_operand(g, n, (int)k).node] = true;
  return live;
}

/* Whether node n is an alias that nobody reads, which has no copy. */
static bool idle(const Graph *g, uint32_t n) {
  bool is = n < g->node_count && g->nodes[n].op == OP_ALIAS;
  for (size_t o = 0; o < g->output_count && is; o++) is = g->outputs[o].node != n;
  for (uint32_t u = n + 1; u < g->node_count && is; u++) is = !reads(g, u, (Val){n, 0});
  return is;
}

/* Every value that is kept was to be kept, or something outside keeps it. */
static void kept_as_chosen(Case *c, const Graph *d, const uint8_t *choice, uint64_t seed) {
  const Graph *g = c->whole;
  uint32_t n = 0; /* of g */
  const bool *live = needed(d);
  for (uint32_t i = 0; i < d->node_count; i++)
    check_msg(live[i] || !d->provs[d->nodes[i].prov].recomputed, "seed %d: nobody needs %%%u",
              (int)seed, (unsigned)i);
  for (uint32_t i = 0; i < d->node_count; i++) {
    if (d->provs[d->nodes[i].prov].recomputed || d->nodes[i].op == OP_PLACE) continue;
    while (idle(g, n)) n++;
    uint32_t home = g->provs[g->nodes[n].prov].region;
    bool body = home && !g->provs[g->nodes[n].prov].backward;
    for (uint32_t k = 0; body && k < g->nodes[n].result_count; k++) {
      bool inside = false, outside = false;
      for (size_t o = 0; o < d->output_count; o++) outside |= val_eq(d->outputs[o], (Val){i, k});
      for (uint32_t u = i + 1; u < d->node_count; u++) {
        const Prov *p = &d->provs[d->nodes[u].prov];
        if (!live[u] || !p->backward || !reads(d, u, (Val){i, k})) continue;
        if (p->region == home)
          inside = true;
        else
          outside = true;
      }
      OpCode op = (OpCode)g->nodes[n].op;
      uint8_t want = choice[g->nodes[n].result0 + k];
      bool again =
          (want == CHOICE_RECOMPUTE || want == CHOICE_FREE) && op != OP_CONST && op != OP_DIM;
      for (uint32_t u = n + 1; u < g->node_count && again; u++)
        if (g->nodes[u].op == OP_BRANCH && val_eq(gr_operand(g, u, 0), (Val){n, k})) again = false;
      if (again && inside)
        check_msg(outside, "seed %d: %%%u `%s` is kept", (int)seed, (unsigned)n, op_info[op].text);
    }
    n++;
  }
  while (idle(g, n)) n++;
  check_int((int)n, ==, (int)g->node_count);
}

/* Whether both nodes stand for one node of the forward half without need: each result of it may be
 * fetched, and one be computed again beside another that is. */
static bool twice(const Graph *d, uint32_t a, uint32_t b) {
  const GNode *x = &d->nodes[a], *y = &d->nodes[b];
  if (x->op == OP_PLACE && y->op == OP_PLACE)
    return val_eq(gr_operand(d, a, 0), gr_operand(d, b, 0));
  if (x->op != OP_PLACE && y->op != OP_PLACE) return true;
  return (x->op == OP_PLACE ? y : x)->result_count == 1;
}

/* No node is copied twice for one block. */
static void copied_once(const Graph *d, uint32_t from, uint64_t seed) {
  for (uint32_t i = from; i < d->node_count; i++) {
    const Prov *p = &d->provs[d->nodes[i].prov];
    for (uint32_t k = from; k < i && p->recomputed; k++) {
      const Prov *q = &d->provs[d->nodes[k].prov];
      if (q->recomputed && q->span.lo == p->span.lo)
        check_msg(!twice(d, k, i), "seed %d: %%%u and %%%u are copies of one (%s, %s)", (int)seed,
                  (unsigned)k, (unsigned)i, op_info[d->nodes[k].op].text,
                  op_info[d->nodes[i].op].text);
    }
  }
}

static void counts(void *ud, const RmValue *v) {
  int *n = ud;
  n[v->choice]++;
}

/* What is chosen for a node is so for each of its results. How many nodes have several? */
static int results_agree(const Graph *g) {
  uint8_t *written = ARENA_ARRAY(g->arena, uint8_t, g->type_count + 1);
  uint8_t *all = ARENA_ARRAY(g->arena, uint8_t, g->type_count + 1);
  int several = 0;
  rm_written(g, written);
  for (uint8_t what = CHOICE_SAVE; what <= CHOICE_RECOMPUTE; what++) {
    rm_all(g, what, all);
    for (uint32_t n = 0; n < g->node_count; n++) {
      const GNode *node = &g->nodes[n];
      if (all[node->result0] == written[node->result0]) continue;
      several += node->result_count > 1;
      for (uint32_t k = 0; k < node->result_count; k++) check_int(all[node->result0 + k], ==, what);
    }
  }
  return several;
}

static void start_case(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
  names = names_new(&arena);
}

static void t_random(void) {
  int cases = 0, copies = 0, several = 0, what[4] = {0};
  for (uint64_t seed = 1; seed <= 1500; seed++) {
    start_case();
    Case c;
    GErr e;
    if (!make_case(&c, seed) || !c.whole->blocks) continue;
    uint8_t *choice = ARENA_ARRAY(&arena, uint8_t, c.whole->type_count + 1);
    uint32_t split = c.split;
    bool halves = seed % 3 == 0;
    if (seed % 2)
      draw_choice(&c, choice);
    else
      rm_written(c.whole, choice);
    Graph *d = rm_apply(&arena, c.whole, choice, halves ? &split : NULL);
    if (!check_msg(gr_verify(d, &e), "seed %d: %s", (int)seed, e.text)) return;
    several += results_agree(c.whole);
    cases += agree(&c, d, seed);
    for (uint32_t i = 0; i < d->node_count; i++) copies += d->provs[d->nodes[i].prov].recomputed;
    if (c.tops) kept_as_chosen(&c, d, choice, seed);
    if (c.tops) copied_once(d, c.split, seed);
    /* once more changes nothing; simplified it stays the same */
    check_msg(gr_equal(rm_pass(&arena, d), d), "seed %d: a second time", (int)seed);
    agree(&c, gr_dce(&arena, gr_cse(&arena, gr_fold(&arena, d))), seed);
    rm_values(&arena, c.whole, choice, halves ? &c.split : NULL, counts, what);
  }
  tap_note("%d graphs, %d copies; values free %d, saved %d, recomputed %d, offloaded %d", cases,
           copies, what[0], what[1], what[2], what[3]);
  check_int(cases, >, 300);
  check_int(copies, >, 3000);
  check_int(several, >, 20);
}

/* Plans that run blocks again in pieces give the bits of the graph. */
static void t_pieces(void) {
  enum { PLANS = 12 };
  int plans = 0, deep = 0, several = 0, bounded = 0;
  for (uint64_t seed = 1; seed <= 1500; seed++) {
    start_case();
    Case c;
    GErr e;
    one_block = seed % 5 == 0;
    bool made = make_case(&c, seed);
    one_block = false;
    if (!made || !c.whole->blocks) continue;
    const Graph *g = seed % 7 < 3 ? rm_direct(&arena, c.whole) : c.whole;
    RmPlan plan[PLANS];
    bool *open = ARENA_ARRAY(&arena, bool, g->blocks->count + 1);
    uint8_t *leaf = ARENA_ARRAY(&arena, uint8_t, g->type_count + 1);
    for (size_t k = 0; k < g->blocks->count; k++) open[k] = gen_rnd(&c.x, 4) != 0;
    if (seed % 2)
      rm_all(g, CHOICE_SAVE, leaf);
    else
      rm_cut(&arena, g, c.x.value, 0.5, leaf);
    Arena scratch;
    arena_init(&scratch, &mem);
    size_t count = rm_pieces(&arena, &scratch, g, c.x.value, open, leaf, seed % 4 < 2, PLANS, plan);
    int64_t time = rm_time(g, c.x.value) / (int64_t)(2 + seed % 30);
    RmPlan within; /* a bounded time */
    if (rm_least(&arena, &scratch, g, c.x.value, leaf, time, &within))
      bounded +=
          agree(&c, rm_apply(&arena, rm_plan_graph(&arena, &within), within.choice, NULL), seed);
    arena_free(&scratch);
    several += count > 1;
    for (size_t k = 0; k < count; k++) {
      uint32_t split = c.split;
      const Graph *planned = rm_plan_graph(&arena, &plan[k]);
      Graph *d = rm_apply(&arena, planned, plan[k].choice, seed % 3 == 0 ? &split : NULL);
      if (!check_msg(gr_verify(d, &e), "seed %d: %s", (int)seed, e.text)) return;
      RmPrice look = rm_look(&arena, &plan[k], c.x.value);
      check(look.bytes >= 0 && look.time >= 0);
      plans += agree(&c, d, seed);
      deep += plan[k].nest != NULL;
    }
  }
  tap_note("%d plans, %d with pieces in pieces; %d graphs with several; %d in a bounded time",
           plans, deep, several, bounded);
  check_int(bounded, >, 20);
  check_int(plans, >, 500);
  check_int(deep, >, 50);
}

/* How many plans in pieces there are for three layers in a block, the first two of which may be in
 * one of their own. A layer gives a row of sums. */
static size_t plans_of_layers(bool inner) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  Val x = input(&v, g, DT_F32, 2, 64, 64), dx, h = VAL_NONE;
  uint32_t outer = gr_block(g, (Block){.budget = -1, .text = ""});
  uint32_t in = inner ? gr_block(g, (Block){.budget = -1, .text = "", .parent = outer}) : outer;
  for (int k = 0; k < 3; k++) {
    g->at.region = k < 2 ? in : outer;
    Val row = b_sum(&b, k ? b_un(&b, OP_EXP, b_un(&b, OP_SIN, x)) : x, 1, (int64_t[]){1});
    h = k ? b_bin(&b, OP_MUL, h, row) : row;
  }
  g->at = (Prov){.origin = -1};
  Val loss = b_sum(&b, h, 1, (int64_t[]){0}), one = gr_const_f(g, DT_F32, DEV_CPU, 1);
  check(vjp(g, 1, &loss, &one, 1, &x, &dx));
  gr_output(g, loss);
  gr_output(g, dx);
  uint8_t *leaf = ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1);
  rm_all(g, CHOICE_SAVE, leaf);
  RmPlan plan[8];
  Arena scratch;
  arena_init(&scratch, &v.mem);
  static const int64_t no_sizes[1] = {0};
  size_t count = rm_pieces(&v.arena, &scratch, g, no_sizes, NULL, leaf, true, 8, plan);
  arena_free(&scratch);
  env_close(&v);
  return count;
}

static void t_whole(void) {
  check_size(plans_of_layers(false), >, 0);
  check_size(plans_of_layers(true), ==, 0);
}

/* ---- joint graphs */

static void t_joint(void) {
  int cases = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    start_case();
    Case c;
    GErr e;
    Prov at;
    gen_open(&c.x, &arena, names, seed, seed % 2, false);
    c.x.reuse = true;
    grow(&c.x, 30);
    enter_blocks(&c);
    Graph *f = c.x.g;
    bool cot[4] = {0}, wants[GEN_INPUTS], carries[GEN_INPUTS];
    for (uint32_t n = (uint32_t)f->node_count; n-- > 0 && f->output_count < 4;) {
      const Type *t = f->nodes[n].result_count ? gr_type(f, (Val){n, 0}) : NULL;
      if (!t || f->nodes[n].op == OP_INPUT || t->kind == TK_TOKEN) continue;
      cot[f->output_count] = dt_float((DType)t->dtype);
      gr_output(f, (Val){n, 0});
    }
    for (size_t i = 0; i < f->input_count; i++) {
      wants[i] = dt_float((DType)gr_type(f, f->inputs[i])->dtype);
      carries[i] = wants[i] && gen_rnd(&c.x, 2);
    }
    JointWant want = {cot, wants, carries, NULL};
    JointWhole *w = ad_joint_whole(&arena, f, &want, &e, &at);
    if (!w) continue;
    if (!check_msg(gr_verify(w->g, &e), "seed %d: %s", (int)seed, e.text)) return;
    uint8_t *choice = ARENA_ARRAY(&arena, uint8_t, w->g->type_count + 1);
    c.whole = w->g;
    rm_written(w->g, choice);
    if (seed % 2) draw_choice(&c, choice);
    Joint *j = ad_joint_split(&arena, w, choice, &e, &at);
    if (!check_msg(j != NULL, "seed %d: %s", (int)seed, e.text)) return;
    if (!check_msg(gr_verify(j->forward, &e), "seed %d: %s", (int)seed, e.text)) return;
    if (!check_msg(gr_verify(j->backward, &e), "seed %d: %s", (int)seed, e.text)) return;
    /* run the whole and the halves */
    Tensor *in[2 * GEN_INPUTS], *all[OUTS], *out[OUTS], *back[OUTS], *got[OUTS];
    size_t nin = w->g->input_count, nout = w->g->output_count, own = f->input_count, nb = 0;
    RunCtx r = {.mem = &mem, .env = c.x.value};
    for (size_t i = 0; i < nin; i++) {
      if (i >= GEN_INPUTS) return;
      Gen y = c.x;
      y.g = w->g;
      if (i >= own) y.role[i] = (Role){ROLE_ANY, 0};
      in[i] = gen_tensor(&y, &mem, i, seed);
    }
    if (gr_run(w->g, &r, in, all, &e, NULL)) {
      if (!check_msg(gr_run(j->forward, &r, in, out, &e, NULL), "seed %d: %s", (int)seed, e.text))
        return;
      for (int k = 0; k < j->saved_count; k++) back[nb++] = out[j->output_count + k];
      for (size_t k = own; k < nin; k++) back[nb++] = in[k];
      check_int((int)nb, ==, (int)j->backward->input_count);
      if (!check_msg(gr_run(j->backward, &r, back, got, &e, NULL), "seed %d: %s", (int)seed,
                     e.text))
        return;
      for (size_t k = 0; k < nout; k++) {
        size_t no = (size_t)j->output_count;
        check_msg(same(all[k], k < no ? out[k] : got[k - no]), "seed %d: result %d", (int)seed,
                  (int)k);
      }
      cases++;
      free_all(all, nout);
      free_all(out, j->forward->output_count);
      free_all(got, j->backward->output_count);
    }
    free_all(in, nin);
  }
  tap_note("%d joint graphs", cases);
  check_int(cases, >, 60);
}

/* ---- carries: what an input has from later uses, continued */

static void t_carries(void) {
  /* x is used twice inside a block of f(x) = sin(x) * x, then three times after it */
  Env v;
  env_open(&v);
  GErr e;
  Prov at;
  Graph *f = new_graph(&v), *g = new_graph(&v);
  B b = {.g = f};
  Val x = input(&v, f, DT_F32, 1, 7);
  gr_output(f, b_bin(&b, OP_MUL, b_un(&b, OP_SIN, x), x));
  /* all in one graph */
  b = (B){.g = g};
  Val z = input(&v, g, DT_F32, 1, 7);
  Val y = b_bin(&b, OP_MUL, b_un(&b, OP_SIN, z), z);
  Val a = b_bin(&b, OP_MUL, y, b_un(&b, OP_EXP, z)), c = b_bin(&b, OP_MUL, a, b_un(&b, OP_COS, z));
  Val one = b_const(&b, c, 1), dz;
  need(vjp(g, 1, &c, &one, 1, &z, &dz));
  gr_output(g, dz);
  /* the later uses alone: gradients of y and z */
  Graph *h = new_graph(&v);
  b = (B){.g = h};
  Val hz = input(&v, h, DT_F32, 1, 7), hy = input(&v, h, DT_F32, 1, 7), wrt[2] = {hz, hy}, dh[2];
  Val ha = b_bin(&b, OP_MUL, hy, b_un(&b, OP_EXP, hz));
  Val hc = b_bin(&b, OP_MUL, ha, b_un(&b, OP_COS, hz));
  one = b_const(&b, hc, 1);
  need(vjp(h, 1, &hc, &one, 2, wrt, dh));
  gr_output(h, dh[0]);
  gr_output(h, dh[1]);
  bool yes = true;
  JointWant want = {&yes, &yes, &yes, NULL};
  JointWhole *w = ad_joint_whole(&v.arena, f, &want, &e, &at);
  need(w);
  Joint *j = ad_joint_split(&v.arena, w, NULL, &e, &at);
  need(j);
  uint64_t state = 5;
  Tensor *tx = drawn(&v, g, 0, uniform, &state), *want_dz, *out[4], *later[2], *got;
  need(run(&v, g, &tx, &want_dz));
  need(run(&v, j->forward, &tx, out));
  need(run(&v, h, (Tensor *[]){tx, out[0]}, later));
  Tensor *back[6];
  int n = 0;
  for (int k = 0; k < j->saved_count; k++) back[n++] = out[1 + k];
  back[n++] = later[1]; /* of y */
  back[n++] = later[0]; /* what x has so far */
  check_int(n, ==, (int)j->backward->input_count);
  need(run(&v, j->backward, back, &got));
  check(tn_same(got, want_dz));
  free_all((Tensor *[]){tx, want_dz, later[0], later[1], got}, 5);
  free_all(out, j->forward->output_count);
  env_close(&v);
}

/* ---- offload: what waits is in an account of its own, not in the arena */

static void t_offload(void) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  Val x = input(&v, g, DT_F32, 2, 64, 64), dx;
  g->at.region = gr_block(g, (Block){.budget = -1, .text = names_of(v.names, "offload matmul")});
  g->at.tag = TAG_OFFLOAD;
  Val h = x;
  for (int k = 0; k < 4; k++) h = b_op(&b, OP_DOT, 2, (Val[]){h, h}, 0, NULL);
  g->at = (Prov){.origin = -1};
  Val loss = b_sum(&b, h, 2, (int64_t[]){0, 1}), one = gr_const_f(g, DT_F32, DEV_CPU, 1);
  need(vjp(g, 1, &loss, &one, 1, &x, &dx));
  gr_output(g, dx);
  Graph *d = gr_dce(&v.arena, rm_pass(&v.arena, g));
  check_size(count_ops(d, OP_PLACE), ==, 6);
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  Jit *j = jit_open(&v.mem, &config);
  GErr e;
  static const int64_t no_sizes[1] = {0};
  JitFn *f = jit_compile(j, d, no_sizes, NULL, &e);
  need(f);
  uint64_t state = 3;
  Tensor *in = drawn(&v, g, 0, uniform, &state), *want, *got;
  need(run(&v, g, &in, &want));
  size_t before = v.mem.data_peak[DEV_SPILL];
  RunCtx c = {.mem = &v.mem, .env = no_sizes};
  need(jit_run(f, &c, &in, &got, &e, NULL));
  check(tn_same(got, want));
  check_size(before, ==, 0);
  check_size(v.mem.data_peak[DEV_SPILL], ==, 3 * 64 * 64 * sizeof(float));
  check_size(v.mem.data_live[DEV_SPILL], ==, 0);
  free_all((Tensor *[]){in, want, got}, 3);
  jit_free(f);
  jit_close(j);
  env_close(&v);
}

/* ---- memory: a chain of layers h = tanh(h @ w), each a block */

enum { LAYERS = 8, WIDTH = 64, ROWS = 256 };

static Graph *chain(Env *v, bool blocks, bool split_layer) {
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val x = input(v, g, DT_F32, 2, ROWS, WIDTH), w[LAYERS], dw[LAYERS], h = x;
  for (int k = 0; k < LAYERS; k++) w[k] = input(v, g, DT_F32, 2, WIDTH, WIDTH);
  for (int k = 0; k < LAYERS; k++) {
    if (blocks) {
      g->at.region = gr_block(g, (Block){.budget = -1, .text = names_of(v->names, "")});
      g->at.tag = TAG_PREFER_RECOMPUTE;
    }
    for (int i = 0; i < (split_layer ? 3 : 1); i++)
      h = b_un(&b, OP_TANH, b_op(&b, OP_DOT, 2, (Val[]){h, w[k]}, 0, NULL));
    h = b_bin(&b, OP_MUL, h, b_un(&b, OP_SIGMOID, h));
    g->at = (Prov){.origin = -1};
  }
  Val loss = b_sum(&b, h, 2, (int64_t[]){0, 1}), one = gr_const_f(g, DT_F32, DEV_CPU, 1);
  vjp(g, 1, &loss, &one, LAYERS, w, dw);
  gr_output(g, loss);
  for (int k = 0; k < LAYERS; k++) gr_output(g, dw[k]);
  return rm_pass(&v->arena, g);
}

static int64_t peak_of(Env *v, const Graph *g) {
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  Jit *j = jit_open(&v->mem, &config);
  JitPeak p = {0};
  static const int64_t no_sizes[1] = {0};
  JitFn *f =
      jit_plan(j, gr_dce(&v->arena, gr_cse(&v->arena, gr_fold(&v->arena, g))), no_sizes, NULL);
  if (f)
    check(jit_peak(f, no_sizes, &p));
  else
    fails("no plan");
  jit_free(f);
  jit_close(j);
  return p.arena;
}

static void t_peak(void) {
  Env v;
  env_open(&v);
  int64_t plain = peak_of(&v, chain(&v, false, true)), blocks = peak_of(&v, chain(&v, true, true));
  int64_t value = (int64_t)ROWS * WIDTH * 4;
  tap_note("arena in values: plain %.1f, blocks %.1f", (double)plain / (double)value,
           (double)blocks / (double)value);
  /* One value for each layer, and what one layer needs. */
  check_msg(blocks <= (LAYERS + 9) * value, "blocks take %lld values", (long long)(blocks / value));
  check_msg(plain >= 3 * LAYERS * value, "plain takes %lld values", (long long)(plain / value));
  env_close(&v);
}

static void all(void *ud) {
  (void)ud;
  TEST(t_random(), "random graphs: gradients keep every bit, and what is kept was to be");
  TEST(t_pieces(), "random graphs: run again in pieces, gradients keep every bit");
  TEST(t_whole(), "a block is not cut within a block at its start");
  TEST(t_joint(), "joint graphs with carries and any choice: halves give what the whole gives");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  names = names_new(&arena);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  check_size(mem.live, ==, 0);
  TEST(t_carries(), "a carried cotangent goes on as in one graph");
  TEST(t_offload(), "what is offloaded waits in an account of its own");
  TEST(t_peak(), "a chain of blocks takes one value per block, and one block");
  return tap_done();
}
