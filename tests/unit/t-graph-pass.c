/* Passes keep every bit of random graphs, and refuse broken ones. */
#include "graph-gen.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run.h"
#include "lang/compile/pipeline.h"

static Mem mem;
static Arena arena;
static Names *names;

static bool no_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                      GErr *e) {
  Gen *x = ud;
  (void)n;
  (void)e;
  for (uint32_t i = 0; i < g->nodes[node].result_count; i++) {
    const Type *t = gr_type(g, (Val){node, i});
    int64_t dim[CKL_MAX_RANK];
    if (t->kind == TK_TOKEN) continue;
    for (int k = 0; k < t->rank; k++) dim[k] = gen_value(x, t->dim[k]);
    out[i] = g->nodes[node].op == OP_DEFER
                 ? tn_ref(in[1])
                 : tn_zeros(&mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  }
  return true;
}

static void unref_all(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) tn_unref(t[i]);
  memset(t, 0, sizeof *t * n);
}

static void made_anew(Gen *x, Tensor **in, size_t n, uint64_t seed) {
  for (size_t i = 0; i < n; i++) {
    tn_unref(in[i]);
    in[i] = gen_tensor(x, &mem, i, seed);
  }
}

/* In plain f32 and f64 the bits of a NaN may differ (rule 104); tn_same knows. */
static void t_bits(void) {
  long nodes = 0, left[4] = {0};
  for (uint64_t seed = 1; seed <= 150; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    names = names_new(&arena);
    Gen x;
    GErr e;
    Tensor *in[GEN_INPUTS] = {0}, *first[GEN_INPUTS] = {0}, *want[256] = {0}, *got[256] = {0};
    gen_open(&x, &arena, names, seed, seed % 2, seed % 4 == 0);
    x.effects = seed % 3 == 0;
    x.writes = seed % 2;
    gen_graph(&x, 60);
    if (x.g->output_count > 256) continue;
    nodes += (long)x.g->node_count;
    size_t nin = x.g->input_count, nout = x.g->output_count;
    made_anew(&x, first, nin, seed);
    RunCtx c = {.mem = &mem, .env = x.value, .effect = no_effect, .ud = &x};
    if (check_msg(gr_run(x.g, &c, first, want, &e, NULL), "seed %d: %s", (int)seed, e.text)) {
      Graph *all = x.g;
      for (int p = 0; p < 5; p++) {
        /* dce, cse, fold, and all of them one after the other, twice */
        Graph *h = p == 0   ? gr_dce(&arena, x.g)
                   : p == 1 ? gr_cse(&arena, x.g)
                   : p == 2 ? gr_fold(&arena, x.g)
                            : gr_dce(&arena, gr_cse(&arena, gr_fold(&arena, all)));
        if (p >= 3) all = h;
        if (!check_msg(gr_verify(h, &e), "seed %d pass %d: %s", (int)seed, p, e.text)) break;
        check_size(h->input_count, ==, nin);
        check_size(h->output_count, ==, nout);
        if (p < 4) left[p] += (long)h->node_count;
        made_anew(&x, in, nin, seed);
        if (!check_msg(gr_run(h, &c, in, got, &e, NULL), "seed %d pass %d: %s", (int)seed, p,
                       e.text))
          break;
        for (size_t i = 0; i < nout; i++) {
          bool same = want[i] && got[i] ? tn_same(want[i], got[i]) : want[i] == got[i];
          if (!check_msg(same, "seed %d pass %d: output %d has other bits", (int)seed, p, (int)i))
            break;
        }
        for (size_t i = 0; i < nin; i++)
          check_msg(tn_same(first[i], in[i]), "seed %d pass %d: input %d is written otherwise",
                    (int)seed, p, (int)i);
        unref_all(got, nout);
      }
    }
    unref_all(first, nin);
    unref_all(in, nin);
    unref_all(want, nout);
  }
  tap_note("%ld nodes; %ld after dce, %ld after cse, %ld after fold, %ld after all", nodes, left[0],
           left[1], left[2], left[3]);
  check_int(left[3], <, nodes);
}

static void t_unknown(void) {
  GErr e;
  Graph *g = gr_new(&arena, dim_tab_new(&arena), names, NULL);
  check_int(pass_find("polish", 6), ==, PASS_COUNT);
  g->outputs = ARENA_NEW(&arena, Val);
  g->outputs[0] = (Val){7, 0};
  g->output_count = 1;
  check(!gr_verify(g, &e));
  check_has(e.text, "an output does not exist");
}

static void t_order(void) {
  for (int id = 0; id < PASS_COUNT; id++) {
    const Pass *p = &passes[id];
    PassId needs = pass_needs((PassId)id);
    check_msg(id ? (int)needs < id : needs == 0, "%s reads what comes later", p->name);
    check_msg(needs == PASS_STAGE || passes[needs].run, "%s reads no graph", p->name);
    check_msg(!p->run != !p->show, "%s either gives a graph or is shown", p->name);
    check_int(pass_find(p->name, strlen(p->name)), ==, id);
  }
}

static void all(void *ud) {
  (void)ud;
  TEST(t_order(), "each pass reads the graph of an earlier one");
  TEST(t_unknown(), "unknown passes and broken graphs are refused");
  TEST(t_bits(), "passes keep inputs, outputs and every bit");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  names = names_new(&arena);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
