/* The joint graph of a function and its gradient, split in two.
 *
 * In: a graph f. Out: `forward` computes f's outputs and the saved values, `backward` the
 * gradients from saved values and cotangents. The joint graph is f followed by the nodes that
 * ad_vjp appends; each value of f that an appended node reads crosses from forward to backward.
 * Values without cost (constants, sizes, views) are recomputed from their operands. remat.c has
 * replaced the recomputed values of `checkpoint` blocks by copies among the appended nodes, so
 * these values do not cross.
 *
 * Invariants: backward holds no node that forward computes other than copies and those free ones;
 * no value is saved twice; neither side has dead nodes; running both gives the bits of ad_vjp on
 * f. */
#include <string.h>

#include "autograd/autograd.h"
#include "autograd/remat.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/pass.h"

typedef struct Split {
  Arena *to; /* results live here */
  Arena scratch;
  GErr *e;
  Prov *at;
  const JointWhole *w;
  Joint *joint;     /* NULL on failure */
  const Graph *j;   /* the joint graph, after choices are carried out */
  uint32_t f_nodes; /* nodes of j that belong to forward */
  bool *live;       /* per node of j: backward needs it */
  bool *saved;      /* per result of j */
} Split;

static uint32_t slot(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}

/* ---- bodies of wrap are written in place, so that what they compute is saved too */

static bool has_bodies(const Graph *g) {
  for (size_t n = 0; n < g->node_count; n++)
    if (g->nodes[n].op == OP_WRAP) return true;
  return false;
}

static bool has_choices(const Graph *g) {
  stack_check();
  for (size_t n = 0; n < g->node_count; n++) {
    if (g->nodes[n].op == OP_BRANCH || g->nodes[n].op == OP_LOOP) return true;
    for (uint32_t k = 0; k < g->nodes[n].region_count; k++)
      if (has_choices(g->regions[g->nodes[n].region0 + k])) return true;
  }
  return false;
}

static bool put_in_place(Graph *dst, const Graph *src, const Val *args, Val *outs, GErr *e) {
  stack_check();
  Val *map = ARENA_ARRAY(dst->arena, Val, src->type_count + 1);
  size_t next_arg = 0;
  for (uint32_t n = 0; n < src->node_count; n++) {
    const GNode *node = &src->nodes[n];
    Val *in = ARENA_ARRAY(dst->arena, Val, node->operand_count + 1), *to = &map[node->result0];
    for (uint32_t k = 0; k < node->operand_count; k++)
      in[k] = map[slot(src, src->operands[node->operand0 + k])];
    if (node->op == OP_INPUT) {
      *to = args[next_arg++];
      continue;
    }
    if (node->op == OP_WRAP) {
      /* the edge of the body: its uses are summed first (rule 74) */
      dst->at = src->provs[node->prov];
      for (uint32_t k = 0; k < node->operand_count; k++)
        if (gr_type(dst, in[k])->kind == TK_TENSOR) {
          in[k] = gr_op(dst, OP_ALIAS, &in[k], 1, NULL, 0, NULL, 0, e);
          if (val_none(in[k])) return false;
        }
      if (!put_in_place(dst, src->regions[node->region0], in, to, e)) return false;
      continue;
    }
    dst->at = src->provs[node->prov];
    Val v = ad_copy_node(dst, src, n, in, e);
    if (val_none(v)) return false;
    for (uint32_t k = 0; k < node->result_count; k++) to[k] = (Val){v.node, v.res + k};
  }
  for (size_t k = 0; k < src->output_count; k++) outs[k] = map[slot(src, src->outputs[k])];
  return true;
}

static Graph *flat_copy(Arena *a, const Graph *f, GErr *e) {
  if (!has_bodies(f)) return gr_clone(a, f);
  Graph *g = gr_new(a, f->dims, f->names, f->name);
  g->blocks = f->blocks;
  Val *args = ARENA_ARRAY(a, Val, f->input_count + 1);
  Val *outs = ARENA_ARRAY(a, Val, f->output_count + 1);
  for (size_t k = 0; k < f->input_count; k++) {
    g->at = f->provs[gr_node(f, f->inputs[k])->prov];
    args[k] = gr_input(g, gr_type(f, f->inputs[k]));
  }
  if (!put_in_place(g, f, args, outs, e)) return NULL;
  for (size_t k = 0; k < f->output_count; k++) gr_output(g, outs[k]);
  copy_writes(g, f);
  for (size_t k = 0; k < f->check_count; k++) {
    const SizeCheck *c = &f->checks[k];
    g->at = f->provs[c->prov];
    gr_check(g, c->kind, c->a, c->b, c->text);
  }
  return g;
}

/* ---- what crosses */

static bool is_view(const Graph *g, uint32_t n) {
  return op_info[g->nodes[n].op].cls != GENERATE && op_info[g->nodes[n].op].remat == REMAT_FREE &&
         g->nodes[n].operand_count == 1;
}

static bool is_constant(const Graph *g, uint32_t n) {
  return op_info[g->nodes[n].op].cls == GENERATE && op_info[g->nodes[n].op].remat == REMAT_FREE;
}

/* Follows views down to their base; `*slice` is the slice nearest to v on the way. */
static Val root_of(const Graph *g, Val v, Val *slice) {
  *slice = VAL_NONE;
  while (is_view(g, v.node)) {
    if (g->nodes[v.node].op == OP_SLICE && val_none(*slice)) *slice = v;
    v = gr_operand(g, v.node, 0);
  }
  return v;
}

static size_t first_gradient(const Split *s) {
  return (size_t)s->w->output_count;
}

static void mark_live(Split *s) {
  const Graph *j = s->j;
  for (size_t k = first_gradient(s); k < j->output_count; k++) s->live[j->outputs[k].node] = true;
  for (uint32_t n = (uint32_t)j->node_count; n-- > s->f_nodes;) {
    if (!s->live[n]) continue;
    for (uint32_t k = 0; k < j->nodes[n].operand_count; k++)
      s->live[gr_operand(j, n, (int)k).node] = true;
  }
}

/* Calls f for each value of the forward part that backward reads, also if the value itself is a
 * gradient. */
static void each_crossing(Split *s, void (*f)(Split *s, Val v)) {
  const Graph *j = s->j;
  for (uint32_t n = s->f_nodes; n < j->node_count; n++) {
    if (!s->live[n]) continue;
    for (uint32_t k = 0; k < j->nodes[n].operand_count; k++) {
      Val v = gr_operand(j, n, (int)k);
      if (v.node < s->f_nodes) f(s, v);
    }
  }
  for (size_t k = first_gradient(s); k < j->output_count; k++)
    if (j->outputs[k].node < s->f_nodes) f(s, j->outputs[k]);
}

static void save_root(Split *s, Val v) {
  Val slice, root = root_of(s->j, v, &slice);
  if (val_none(slice) && !is_constant(s->j, root.node)) s->saved[slot(s->j, root)] = true;
}

/* A slice keeps its whole base alive, so the slice is saved unless the base is kept in any case. */
static void save_slice(Split *s, Val v) {
  Val slice, root = root_of(s->j, v, &slice);
  if (val_none(slice) || is_constant(s->j, root.node) || s->saved[slot(s->j, root)]) return;
  if (s->j->nodes[root.node].op == OP_INPUT)
    s->saved[slot(s->j, root)] = true;
  else
    s->saved[slot(s->j, slice)] = true;
}

/* ---- the two graphs */

static int input_number(const Graph *g, Val v) {
  for (size_t k = 0; k < g->input_count; k++)
    if (val_eq(g->inputs[k], v)) return (int)k;
  return -1;
}

/* Marks the nodes that have to be recomputed for value v: free nodes down to saved values. */
static void mark_remade(Split *s, Val v) {
  while (!s->saved[slot(s->j, v)]) {
    s->live[v.node] = true;
    if (!is_view(s->j, v.node)) return;
    v = gr_operand(s->j, v.node, 0);
  }
}

static bool make_backward(Split *s, const Val *saved, int nsaved) {
  const Graph *j = s->j;
  Graph *g = gr_new(s->to, j->dims, j->names, j->name);
  g->blocks = j->blocks;
  Val *map = ARENA_ARRAY(&s->scratch, Val, j->type_count + 1);
  size_t widest = 0, extra = (size_t)s->w->input_count;
  for (size_t n = 0; n < j->node_count; n++)
    if (j->nodes[n].operand_count > widest) widest = j->nodes[n].operand_count;
  Val *in = ARENA_ARRAY(&s->scratch, Val, widest + 1);
  for (size_t k = 0; k < j->type_count; k++) map[k] = VAL_NONE;
  for (size_t k = 0; k < (size_t)nsaved + j->input_count - extra; k++) {
    Val v = k < (size_t)nsaved ? saved[k] : j->inputs[extra + k - (size_t)nsaved];
    g->at = j->provs[gr_node(j, v)->prov];
    map[slot(j, v)] = gr_input(g, gr_type(j, v));
  }
  for (uint32_t n = 0; n < s->f_nodes; n++) s->live[n] = false;
  each_crossing(s, mark_remade);
  for (uint32_t n = 0; n < j->node_count; n++) {
    const GNode *node = &j->nodes[n];
    if (!s->live[n] || node->op == OP_INPUT) continue;
    for (uint32_t k = 0; k < node->operand_count; k++)
      in[k] = map[slot(j, gr_operand(j, n, (int)k))];
    g->at = j->provs[node->prov];
    Val v = ad_copy_node(g, j, n, in, s->e);
    if (val_none(v)) {
      if (s->at) *s->at = j->provs[node->prov];
      return false;
    }
    for (uint32_t k = 0; k < node->result_count; k++)
      if (val_none(map[node->result0 + k])) map[node->result0 + k] = (Val){v.node, v.res + k};
  }
  for (size_t k = first_gradient(s); k < j->output_count; k++)
    gr_output(g, map[slot(j, j->outputs[k])]);
  g->at = (Prov){.origin = -1};
  s->joint->backward = gr_has_hooks(g) ? gr_no_hooks(s->to, g) : g;
  return true;
}

/* Makes the forward graph: the first f_nodes nodes, with f's outputs and the saved values. */
static Graph *make_forward(Split *s, const Val *saved, int nsaved) {
  Arena *tmp = &s->scratch;
  Graph *g = copy_start(tmp, s->j);
  ValMap m = map_new(tmp, s->j);
  for (uint32_t n = 0; n < s->f_nodes; n++) {
    const GNode *node = &s->j->nodes[n];
    if (node->op == OP_HOOK) continue;
    Graph **regions = node->region_count ? ARENA_ARRAY(tmp, Graph *, node->region_count) : NULL;
    for (uint32_t k = 0; k < node->region_count; k++)
      regions[k] = gr_no_hooks(tmp, s->j->regions[node->region0 + k]);
    copy_node(g, &m, n, regions);
  }
  copy_checks(g, s->w->flat);
  for (size_t k = 0; k < first_gradient(s); k++) gr_output(g, map_get(&m, s->j->outputs[k]));
  for (int k = 0; k < nsaved; k++) gr_output(g, map_get(&m, saved[k]));
  copy_writes(g, s->j);
  return gr_dce(s->to, g);
}

/* Checks that the backward reads each saved value. A value saved without need would be memory that
 * no plan explains. */
static void check_saved(const Joint *j) {
  const Graph *g = gr_checked(j->backward, "split");
  for (int k = 0; k < j->saved_count; k++) {
    Val v = g->inputs[k];
    bool used = false;
    for (size_t i = 0; i < g->node_count && !used; i++)
      for (uint32_t n = 0; n < g->nodes[i].operand_count && !used; n++)
        used = val_eq(gr_operand(g, (uint32_t)i, (int)n), v);
    for (size_t i = 0; i < g->output_count && !used; i++) used = val_eq(g->outputs[i], v);
    if (!used)
      mem_bug(g->arena->mem, "the backward of `%s` saves a value that it does not read: number %d",
              g->name ? g->name : "?", k);
  }
}

static void split(Split *s, const uint8_t *choice) {
  const JointWhole *w = s->w;
  Arena *tmp = &s->scratch;
  s->f_nodes = w->split;
  const Graph *j = s->j = w->g->blocks ? rm_apply(tmp, w->g, choice, &s->f_nodes) : w->g;
  s->live = ARENA_ARRAY(tmp, bool, j->node_count + 1);
  s->saved = ARENA_ARRAY(tmp, bool, j->type_count + 1);
  mark_live(s);
  each_crossing(s, save_root);
  each_crossing(s, save_slice);
  int count = 0;
  uint32_t f_results =
      s->f_nodes == j->node_count ? (uint32_t)j->type_count : j->nodes[s->f_nodes].result0;
  for (uint32_t k = 0; k < f_results; k++) count += s->saved[k];
  Val *saved = ARENA_ARRAY(tmp, Val, count + 1);
  Joint *out = s->joint = ARENA_NEW(s->to, Joint);
  out->gives_grad = ARENA_ARRAY(s->to, bool, w->input_count + 1);
  out->maybe = ARENA_ARRAY(s->to, bool, w->input_count + 1);
  memcpy(out->gives_grad, w->gives_grad, sizeof(bool) * (size_t)w->input_count);
  memcpy(out->maybe, w->maybe, sizeof(bool) * (size_t)w->input_count);
  out->saved_input = ARENA_ARRAY(s->to, int, count + 1);
  count = 0;
  for (uint32_t n = 0; n < s->f_nodes; n++)
    for (uint32_t k = 0; k < j->nodes[n].result_count; k++) {
      Val v = {n, k};
      if (!s->saved[slot(j, v)]) continue;
      out->saved_input[count] = input_number(j, v);
      saved[count++] = v;
    }
  out->output_count = w->output_count;
  out->saved_count = count;
  out->forward = make_forward(s, saved, count);
  if (!make_backward(s, saved, count)) s->joint = NULL;
  if (s->joint && s->to->mem->check) check_saved(s->joint);
}

typedef struct SplitJob {
  Split s;
  const uint8_t *choice;
} SplitJob;

static void split_job(void *ud) {
  SplitJob *job = ud;
  split(&job->s, job->choice);
}

Joint *ad_joint_split(Arena *a, const JointWhole *w, const uint8_t *choice, GErr *e, Prov *at) {
  SplitJob job = {.s = {.to = a, .w = w, .e = e, .at = at}, .choice = choice};
  arena_init(&job.s.scratch, a->mem);
  int code = mem_protect(a->mem, split_job, &job);
  arena_free(&job.s.scratch);
  if (code != MEM_OK) mem_throw(a->mem, code);
  return job.s.joint;
}

/* ---- the joint graph */

static Val cotangent(Graph *j, Val y) {
  j->at = j->provs[gr_node(j, y)->prov];
  j->at.backward = 1;
  j->at.tag = TAG_NONE;
  return gr_input(j, gr_type(j, y));
}

/* The value of which later uses of input k are uses: what f wrote to it in a loop or on a side,
 * from where the cotangent goes back turn by turn; other versions count as the input. */
static Val later_value(const Graph *j, const JointWant *want, size_t k) {
  if (!want->written || want->written[k] < 0) return j->inputs[k];
  Val v = j->outputs[want->written[k]];
  while (gr_node(j, v)->op == OP_VERSION || gr_node(j, v)->op == OP_ALIAS)
    v = gr_operand(j, v.node, gr_node(j, v)->op == OP_VERSION);
  return gr_node(j, v)->op == OP_LOOP || gr_node(j, v)->op == OP_BRANCH ? v : j->inputs[k];
}

JointWhole *ad_joint_whole(Arena *a, const Graph *f, const JointWant *want, GErr *e, Prov *at) {
  JointWhole *w = ARENA_NEW(a, JointWhole);
  Graph *flat = flat_copy(a, f, e);
  if (!flat) return NULL;
  Graph *j = gr_clone(a, flat);
  size_t inputs = f->input_count;
  *w = (JointWhole){.g = j,
                    .flat = flat,
                    .split = (uint32_t)j->node_count,
                    .output_count = (int)f->output_count,
                    .input_count = (int)inputs};
  int ny = 0, nwrt = 0;
  Val *y = ARENA_ARRAY(a, Val, f->output_count + inputs + 1);
  Val *dy = ARENA_ARRAY(a, Val, f->output_count + inputs + 1);
  Val *wrt = ARENA_ARRAY(a, Val, inputs + 1);
  Val *dx = ARENA_ARRAY(a, Val, inputs + 1);
  Val *dx_there = ARENA_ARRAY(a, Val, inputs + 1);
  Val *there = ARENA_ARRAY(a, Val, f->output_count + inputs + 1);
  for (size_t k = 0; k < f->output_count + inputs; k++) there[k] = VAL_NONE;
  int *number = ARENA_ARRAY(a, int, inputs + 1); /* of the input in wrt */
  for (size_t k = 0; k < f->output_count; k++)
    if (want->has_cotangent[k]) y[ny++] = j->outputs[k];
  int from_outside = ny;
  for (size_t k = 0; want->carries && k < inputs; k++)
    if (want->carries[k]) y[ny++] = later_value(j, want, k); /* seeded before the uses in f */
  for (int k = 0; k < ny; k++) dy[k] = cotangent(j, y[k]);
  Val never = VAL_NONE; /* uses outside do not make a gradient of f */
  for (int k = from_outside; k < ny && has_choices(flat); k++) {
    if (val_none(never)) never = gr_const_i(j, DT_BOOL, DEV_CPU, 0);
    there[k] = never;
  }
  for (size_t k = 0; k < inputs; k++) {
    if (!want->wants_grad[k]) continue;
    number[k] = nwrt;
    wrt[nwrt++] = j->inputs[k];
  }
  j->at = (Prov){.origin = -1};
  VjpAsk ask = {.ny = ny,
                .y = y,
                .dy = dy,
                .dy_there = there,
                .nwrt = nwrt,
                .wrt = wrt,
                .dx = dx,
                .dx_there = dx_there};
  if (!ad_vjp_ask(j, &ask, e, at)) return NULL;
  w->gives_grad = ARENA_ARRAY(a, bool, inputs + 1);
  w->maybe = ARENA_ARRAY(a, bool, inputs + 1);
  for (size_t k = 0; k < inputs; k++) {
    if (!want->wants_grad[k] || val_none(dx[number[k]])) continue;
    w->gives_grad[k] = true;
    gr_output(j, dx[number[k]]);
    w->maybe[k] = !val_none(dx_there[number[k]]);
  }
  for (size_t k = 0; k < inputs; k++)
    if (w->maybe[k]) gr_output(j, dx_there[number[k]]);
  gr_checked(j, "joint");
  /* what no gradient reads crosses otherwise: a loop of the gradient takes all that turns kept */
  if (has_choices(flat)) w->g = gr_dce_at(a, j, &w->split);
  return w;
}

typedef struct JointJob {
  Arena *to, scratch;
  const Graph *f;
  const JointWant *want;
  GErr *e;
  Prov *at;
  Joint *joint;
} JointJob;

static void joint_job(void *ud) {
  JointJob *job = ud;
  JointWhole *w = ad_joint_whole(&job->scratch, job->f, job->want, job->e, job->at);
  if (w) job->joint = ad_joint_split(job->to, w, NULL, job->e, job->at);
}

Joint *ad_joint(Arena *a, const Graph *f, const bool *has_cotangent, const bool *wants_grad,
                GErr *e, Prov *at) {
  JointWant want = {.has_cotangent = has_cotangent, .wants_grad = wants_grad};
  JointJob job = {.to = a, .f = f, .want = &want, .e = e, .at = at};
  arena_init(&job.scratch, a->mem);
  int code = mem_protect(a->mem, joint_job, &job);
  arena_free(&job.scratch);
  if (code != MEM_OK) mem_throw(a->mem, code);
  return job.joint;
}

bool ad_joint_show(Arena *a, const Graph *f, Buf *out, GErr *e, Prov *at) {
  bool *cot = ARENA_ARRAY(a, bool, f->output_count + 1);
  bool *wants = ARENA_ARRAY(a, bool, f->input_count + 1);
  for (size_t k = 0; k < f->output_count; k++)
    cot[k] = dt_float((DType)gr_type(f, f->outputs[k])->dtype);
  for (size_t k = 0; k < f->input_count; k++)
    wants[k] = dt_float((DType)gr_type(f, f->inputs[k])->dtype);
  Joint *j = ad_joint(a, f, cot, wants, e, at);
  if (!j) return false;
  buf_puts(out, "# saved:");
  for (int k = 0; k < j->saved_count; k++) {
    Val v = j->forward->outputs[j->output_count + k];
    buf_printf(out, "%s %%%u", k ? "," : "", v.node);
    if (v.res) buf_printf(out, ".%u", v.res);
    if (j->saved_input[k] >= 0) buf_printf(out, " (input %d)", j->saved_input[k]);
  }
  buf_puts(out, j->saved_count ? "; gradients of inputs:" : " nothing; gradients of inputs:");
  for (size_t k = 0; k < f->input_count; k++)
    if (j->gives_grad[k]) buf_printf(out, " %zu", k);
  buf_putc(out, '\n');
  gr_print(out, j->forward);
  gr_print(out, j->backward);
  return true;
}
