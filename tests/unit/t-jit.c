/* Compiled graphs give the bits of the reference evaluator: one op at a time with constant and open
 * sizes, then random graphs with regions and effects; plans are right whatever the lowering
 * refuses. */
#include "graph-gen.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run.h"
#include "jit/plan/jit.h"

static Mem mem;
static Arena arena;
static Jit *jit;
static int kernels, lost; /* inputs that runs dropped */

static void unref_all(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) tn_unref(t[i]);
  memset(t, 0, n * sizeof *t);
}

static char said[4096]; /* by effects, in order */

static bool effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                   GErr *e) {
  size_t at = strlen(said);
  snprintf(said + at, sizeof said - at, "%s ", op_info[g->nodes[node].op].text);
  return gen_effect(ud, g, node, in, n, out, e);
}

/* Copies of the inputs, which the run that gets them may drop. */
static void hand_over(RunCtx *c, Tensor *const *in, size_t n, Tensor **own, Tensor **given) {
  for (size_t i = 0; i < n; i++)
    own[i] = given[i] = in[i] ? tn_copy(&mem, in[i], in[i]->store->dev) : NULL;
  c->owned = own;
}

/* Runs x's graph both ways and compares everything that can be seen; then twice more with inputs
 * that are the run's own. */
static void both(Gen *x, const char *name, uint64_t seed) {
  enum { MOST = 256 };
  static Tensor *in[GEN_INPUTS], *want[MOST], *got[MOST], *own[GEN_INPUTS], *given[GEN_INPUTS];
  size_t n = x->g->input_count, nout = x->g->output_count;
  GErr e = {0}, e2 = {0};
  char before[sizeof said];
  if (nout > MOST) return;
  for (size_t i = 0; i < n; i++) in[i] = gen_tensor(x, &mem, i, seed);
  x->mem = &mem;
  RunCtx c = {.mem = &mem, .env = x->value, .effect = effect, .ud = x}, d = c;
  said[0] = 0;
  bool ok = gr_run(x->g, &c, in, want, &e, NULL);
  strcpy(before, said);
  JitFn *f = jit_compile(jit, x->g, x->value, NULL, &e2);
  if (check_msg(f != NULL, "%s, seed %d: %s", name, (int)seed, e2.text)) {
    for (int round = 0; round < 4; round++) {
      d.nodes_run = 0;
      said[0] = 0;
      if (round > 1) hand_over(&d, in, n, own, given);
      bool ran = (round == 3 ? gr_run(x->g, &d, given, got, &e2, NULL)
                             : jit_run(f, &d, round < 2 ? in : given, got, &e2, NULL));
      for (size_t i = 0; i < n && round > 1; i++) lost += given[i] && !own[i];
      unref_all(own, n);
      if (!check_msg(ran == ok, "%s, seed %d: %s", name, (int)seed, ok ? e2.text : "no failure"))
        break;
      check_msg(!strcmp(said, before), "%s, seed %d: effects %s, not %s", name, (int)seed, said,
                before);
      if (!ok) {
        check_str(e2.text, e.text);
        continue;
      }
      check_msg(d.nodes_run == c.nodes_run, "%s, seed %d: %d nodes, not %d", name, (int)seed,
                (int)d.nodes_run, (int)c.nodes_run);
      for (size_t i = 0; i < nout; i++) {
        bool same = want[i] && got[i] ? tn_same(want[i], got[i]) : want[i] == got[i];
        if (check_msg(same, "%s, seed %d: output %d has other bits", name, (int)seed, (int)i))
          continue;
        Buf b;
        buf_init_arena(&b, &arena);
        gr_print(&b, x->g);
        jit_print_plan(&b, f);
        tap_note("%s", b.s);
        break;
      }
      unref_all(got, nout);
    }
  }
  jit_free(f);
  unref_all(in, n);
  if (ok) unref_all(want, nout);
}

static OpCode current;
static void row(void *ud) {
  (void)ud;
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  for (uint64_t seed = 1; seed <= 30; seed++) {
    Names *names = names_new(&arena);
    Gen x;
    if (current == OP_WRITE) break; /* a form for readers: calls have outputs instead */
    if (val_none(gen_single(&x, &arena, names, seed, seed % 2, current))) continue;
    both(&x, op_info[current].text, seed);
  }
  kernels += (int)jit_count(jit).kernels;
  jit_close(jit);
}

static void random_graphs(void *ud) {
  (void)ud;
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    Names *names = names_new(&arena);
    Gen x;
    gen_open(&x, &arena, names, seed, seed % 2, seed % 5 == 0);
    x.effects = seed % 3 == 0;
    gen_graph(&x, 40);
    both(&x, "a random graph", seed);
  }
  JitCount n = jit_count(jit);
  tap_note("%d kernels, %d nodes by the evaluator, %d reruns, %d copies", (int)n.kernels,
           (int)n.steps_ref, (int)n.reruns, (int)n.copied);
  jit_close(jit);
}

/* ---- values that are written to inputs */
typedef struct Commit {
  Tensor **in, **was; /* what the run may write, and copies */
  size_t n, nout;
  bool done, untouched, plain[300]; /* plain: not written to an input */
  Tensor *seen[300];                /* plain outputs, as they were */
} Commit;

/* Before the first write all inputs are as they were, and all else is there. */
static void commit(void *ud, Tensor **out) {
  Commit *w = ud;
  w->done = w->untouched = true;
  for (size_t i = 0; i < w->n; i++)
    if (w->in[i]) w->untouched &= tn_same(w->in[i], w->was[i]);
  for (size_t k = 0; k < w->nout; k++)
    if (out[k] && w->plain[k]) w->seen[k] = tn_copy(&mem, out[k], out[k]->store->dev);
}

/* Adds outputs of the types of inputs, which are written to them. */
static void add_writes(Gen *x) {
  Graph *g = x->g;
  size_t cap = g->output_count + g->input_count;
  int *writes = ARENA_ARRAY(&arena, int, cap + 1);
  for (size_t k = 0; k < cap; k++) writes[k] = -1;
  for (size_t i = 0; i < g->input_count; i++) {
    const Type *t = gr_type(g, g->inputs[i]);
    if (t->kind == TK_TOKEN) continue;
    for (int try = 0; try < 60; try++) {
      Val v = {gen_rnd(x, (unsigned)g->node_count), 0};
      const Type *y = g->nodes[v.node].result_count == 1 ? gr_type(g, v) : NULL;
      bool same = y && g->nodes[v.node].op != OP_INPUT && y->kind == t->kind &&
                  y->dtype == t->dtype && y->dev == t->dev && y->rank == t->rank &&
                  !memcmp(y->dim, t->dim, t->rank * sizeof *t->dim);
      for (size_t k = 0; k < g->output_count && same && gen_rnd(x, 4); k++)
        same = !val_eq(g->outputs[k], v); /* an output twice is rare, but comes */
      if (!same) continue;
      writes[g->output_count] = (int)i;
      gr_output(g, v);
      break;
    }
  }
  g->writes = writes;
  g->write_count = g->output_count;
}

static int stored, not_stored, unwritten;

static void check_writes(Gen *x, JitFn *f, uint64_t seed, bool hold) {
  enum { MOST = 300 };
  static Tensor *in[GEN_INPUTS], *want[MOST], *got[MOST], *given[GEN_INPUTS];
  static bool alone[GEN_INPUTS];
  Graph *g = x->g;
  size_t n = g->input_count, nout = g->output_count;
  GErr e = {0}, e2 = {0};
  Tensor *held = NULL;
  for (size_t i = 0; i < n; i++) in[i] = gen_tensor(x, &mem, i, seed);
  RunCtx c = {.mem = &mem, .env = x->value, .effect = effect, .ud = x}, d = c;
  Commit w = {.in = given, .was = in, .n = n, .nout = nout};
  d.alone = alone;
  d.commit = commit;
  d.commit_ud = &w;
  for (size_t k = 0; k < nout; k++) w.plain[k] = g->writes[k] < 0;
  bool ok = gr_run(g, &c, in, want, &e, NULL);
  hand_over(&c, in, n, got, given);
  for (size_t i = 0; i < n; i++) alone[i] = given[i] && (!hold || gen_rnd(x, 3));
  if (hold && n && given[0])
    held =
        tn_view(&mem, given[0], given[0]->rank, given[0]->dim, given[0]->stride, given[0]->offset);
  bool ran = jit_run(f, &d, given, got, &e2, NULL);
  check_msg(ran == ok && w.untouched == w.done, "seed %d: %s", (int)seed, e2.text);
  for (size_t i = 0; i < n && !ok; i++)
    check_msg(!in[i] || tn_same(in[i], given[i]), "seed %d: a failed run wrote input %d", (int)seed,
              (int)i);
  unwritten += !ok;
  if (held) check_msg(tn_same(held, in[0]), "seed %d: a held input was written", (int)seed);
  for (size_t k = 0; k < nout && ok; k++) {
    bool same = want[k] && got[k] ? tn_same(want[k], got[k]) : want[k] == got[k];
    check_msg(same, "seed %d: output %d has other bits", (int)seed, (int)k);
    if (w.seen[k])
      check_msg(tn_same(w.seen[k], got[k]), "seed %d: output %d came late", (int)seed, (int)k);
    bool place = k < g->write_count && g->writes[k] >= 0 && got[k] == given[g->writes[k]];
    stored += place;
    not_stored += g->writes[k] >= 0 && !place;
  }
  for (size_t i = 0; i < n && ok; i++) { /* no other input changes */
    bool written = false;
    for (size_t k = 0; k < nout; k++) written |= got[k] && got[k] == given[i];
    if (in[i] && !written)
      check_msg(tn_same(in[i], given[i]), "seed %d: input %d changed", (int)seed, (int)i);
  }
  tn_unref(held);
  unref_all(w.seen, nout);
  unref_all(given, n);
  unref_all(in, n);
  if (ok) unref_all(want, nout);
  if (ran) unref_all(got, nout);
}

static void random_writes(void *ud) {
  (void)ud;
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}, .check = true};
  bool was = mem.check;
  mem.check = true; /* plans, too */
  jit = jit_open(&mem, &config);
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    GErr e = {0};
    Gen x;
    gen_open(&x, &arena, names_new(&arena), seed, seed % 2, seed % 9 == 0);
    x.effects = seed % 3 == 0;
    x.mem = &mem;
    gen_graph(&x, 40);
    add_writes(&x);
    if (x.g->output_count > 299) continue;
    JitFn *f = jit_compile(jit, x.g, x.value, NULL, &e);
    if (!check_msg(f != NULL, "seed %d: %s", (int)seed, e.text)) continue;
    check_writes(&x, f, seed, false);
    check_writes(&x, f, seed, true);
    jit_free(f);
  }
  tap_note("%d values took the place of inputs, %d did not; %d runs failed", stored, not_stored,
           unwritten);
  check_int(stored, >, 500);
  jit_close(jit);
  mem.check = was;
}

/* Graphs that went wrong once. */
static const char *const once[] = {
    /* a pad by 0 in front reads its operand at the same number, below another size */
    "graph \"g\" {\n"
    "  %0 = input {index=0 dtype=f32 device=cpu dims=[2, 2, 32, 16]} : f32[2, 2, 32, 16] ~1\n"
    "  %1 = input {index=1 dtype=f32 device=cpu dims=[2, 2, 16, 32]} : f32[2, 2, 16, 32] ~2\n"
    "  %2 = input {index=2 dtype=f32 device=cpu dims=[2, 2, 32, 16]} : f32[2, 2, 32, 16] ~3\n"
    "  %3 = transpose %0 {perm=(0, 2, 1, 3)} : f32[2, 32, 2, 16] ~1\n"
    "  %4 = reshape %3 {dims=[64, 32]} : f32[64, 32] ~1\n"
    "  %5 = pad %4 {low=[0, 64] high=[0, 0] inner=(0, 0) value=0.0} : f32[64, 96]\n"
    "  %6 = transpose %1 {perm=(0, 3, 1, 2)} : f32[2, 32, 2, 16] ~2\n"
    "  %7 = reshape %6 {dims=[64, 32]} : f32[64, 32] ~2\n"
    "  %8 = pad %7 {low=[0, 32] high=[0, 32] inner=(0, 0) value=0.0} : f32[64, 96]\n"
    "  %9 = add %5 %8 : f32[64, 96]\n"
    "  %10 = transpose %2 {perm=(0, 2, 1, 3)} : f32[2, 32, 2, 16] ~3\n"
    "  %11 = reshape %10 {dims=[64, 32]} : f32[64, 32] ~3\n"
    "  %12 = pad %11 {low=[0, 0] high=[0, 64] inner=(0, 0) value=0.0} : f32[64, 96]\n"
    "  %13 = add %9 %12 : f32[64, 96]\n"
    "  return %13\n"
    "}\n",
};

static void once_wrong(void *ud) {
  (void)ud;
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
    Gen x = {.token = VAL_NONE};
    GErr e = {0};
    x.g = gr_read(&arena, names_new(&arena), once[i], strlen(once[i]), &e);
    if (check_msg(x.g != NULL, "graph %d: %s", (int)i, e.text)) both(&x, "a graph", i + 1);
  }
  jit_close(jit);
}

/* The index is 0 or 9, by what the run is given; what it is taken from hangs on another input. */
static const char words_text[] = "graph \"g\" {\n"
                                 "  %0 = input {index=0 dtype=f32 device=cpu dims=[64]} : f32[64]\n"
                                 "  %1 = input {index=1 dtype=f32 device=cpu dims=[4]} : f32[4]\n"
                                 "  %2 = input {index=2 dtype=f32 device=cpu dims=[4]} : f32[4]\n"
                                 "  %3 = input {index=3 dtype=f32 device=cpu dims=[4]} : f32[4]\n"
                                 "  %4 = tanh %0 : f32[64]\n"
                                 "  %5 = sum %4 {axes=(0)} : f32\n"
                                 "  %6 = broadcast %5 {dims=[4]} : f32[4]\n"
                                 "  %7 = mul %1 %6 : f32[4]\n"
                                 "  %8 = sum %2 {axes=(0)} : f32\n"
                                 "  %9 = cast %8 {dtype=i64} : i64\n"
                                 "  %10 = take %7 %9 {axis=0} : f32\n"
                                 "  return %10 %3\n"
                                 "}\n";

/* An input goes when nothing reads it any more, also before a kernel that fails, unless the message
 * of the failure need it; an output keeps it; one tensor may be several inputs. */
static void message(void *ud) {
  (void)ud;
  JitConfig config = {.walk = true, .check = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  GErr e = {0}, want = {0};
  Graph *g = gr_read(&arena, names_new(&arena), words_text, sizeof words_text - 1, &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  JitFn *f = jit_compile(jit, g, NULL, NULL, &e);
  for (int bad = 0; bad < 2; bad++) {
    int64_t big = 64, four = 4;
    Tensor *own[4], *in[4], *out[2] = {NULL, NULL};
    own[0] = tn_zeros(&mem, DEV_CPU, DT_F32, 1, &big);
    own[1] = tn_zeros(&mem, DEV_CPU, DT_F32, 1, &four);
    own[2] = tn_zeros(&mem, DEV_CPU, DT_F32, 1, &four);
    if (bad) ((float *)tn_data(own[2]))[1] = 9;
    own[3] = tn_ref(own[1]);
    memcpy(in, own, sizeof in);
    RunCtx c = {.mem = &mem}, d = {.mem = &mem, .owned = own};
    check(gr_run(g, &c, in, out, &want, NULL) == !bad);
    unref_all(out, 2);
    check(jit_run(f, &d, in, out, &e, NULL) == !bad);
    check(!own[0] && own[3]); /* read by the first kernel; the second result */
    check(!own[1] == !bad && !own[2] == !bad);
    if (bad)
      check_str(e.text, want.text);
    else
      check(out[1] == own[3]);
    check(jit_count(jit).reruns == bad);
    unref_all(out, 2);
    unref_all(own, 4);
  }
  jit_free(f);
  jit_close(jit);
}

/* A copy is there until the step that reads it has run, a result from its step on. */
static void at_once(void *ud) {
  (void)ud;
  static const char *const text[] = {
      /* the result is made while the copy is there */
      "graph \"g\" {\n"
      "  %0 = input {index=0 dtype=f32 device=cpu dims=[1000]} : f32[1000]\n"
      "  %1 = exp %0 : f32[1000]\n"
      "  return %1\n"
      "}\n",
      /* the copy is gone when the result is made */
      "graph \"g\" {\n"
      "  %0 = input {index=0 dtype=f32 device=cpu dims=[1000]} : f32[1000]\n"
      "  %1 = sum %0 {axes=(0)} : f32\n"
      "  %2 = broadcast %1 {dims=[500]} : f32[500]\n"
      "  %3 = exp %2 : f32[500]\n"
      "  return %3\n"
      "}\n"};
  static const int64_t want[] = {4000 + 4000, 4000}, no_copy[] = {4000, 2000};
  JitConfig config = {.walk = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  for (int i = 0; i < 2; i++) {
    GErr e = {0};
    int64_t copy = 4000, none = 0;
    Graph *g = gr_read(&arena, names_new(&arena), text[i], strlen(text[i]), &e);
    if (!check_msg(g != NULL, "%s", e.text)) continue;
    JitFn *f = jit_compile(jit, g, NULL, NULL, &e);
    check_int(jit_tensors(f, NULL, &copy, NULL), ==, want[i]);
    check_int(jit_tensors(f, NULL, &none, NULL), ==, no_copy[i]);
    jit_free(f);
  }
  jit_close(jit);
}

/* An update at indices copies its operand, unless that dies there: values of the arena, and inputs
 * that belong to the run alone. */
static void updates(void *ud) {
  (void)ud;
  static const char text[] = "graph \"g\" {\n"
                             "  %0 = input {index=0 dtype=f32 device=cpu dims=[8]} : f32[8]\n"
                             "  %1 = input {index=1 dtype=f32 device=cpu dims=[1]} : f32[1]\n"
                             "  %2 = input {index=2 dtype=i64 device=cpu dims=[1]} : i64[1]\n"
                             "  %3 = put %0 %1 %2 {axis=0} : f32[8]\n"
                             "  %4 = reshape %3 {dims=[4, 2]} : f32[4, 2]\n"
                             "  %5 = input {index=3 dtype=f32 device=cpu dims=[1, 2]} : f32[1, 2]\n"
                             "  %6 = put_add %4 %5 %2 {axis=0} : f32[4, 2]\n"
                             "  return %6\n"
                             "}\n";
  JitConfig config = {.walk = true, .check = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  GErr e = {0};
  Graph *g = gr_read(&arena, names_new(&arena), text, sizeof text - 1, &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  JitFn *f = jit_compile(jit, g, NULL, NULL, &e);
  enum { BORROWED, OWNED, SHARED, PART, ALIKE, WAYS }; /* PART, ALIKE: a view of another one */
  static const int kernels_run[WAYS] = {3, 2, 3, 3, 3};
  for (int way = 0; way < WAYS; way++) {
    int64_t dim[2] = {1, 2}, n = 8, one = 1;
    Tensor *whole = tn_zeros(&mem, DEV_CPU, DT_F32, 1, &(int64_t){way == PART ? 16 : 8});
    Tensor *own[4], *in[4], *out[1], *want[1];
    own[0] = way >= PART ? tn_view(&mem, whole, 1, &n, &one, way == PART ? 8 : 0)
                         : tn_zeros(&mem, DEV_CPU, DT_F32, 1, &n);
    own[1] = tn_scalar_f64(&mem, DEV_CPU, DT_F32, 5);
    Tensor *row = tn_view(&mem, own[1], 1, &one, &one, 0);
    tn_unref(own[1]);
    own[1] = row;
    own[2] = tn_zeros(&mem, DEV_CPU, DT_I64, 1, &one);
    ((int64_t *)tn_data(own[2]))[0] = 2;
    own[3] = tn_zeros(&mem, DEV_CPU, DT_F32, 2, dim);
    ((float *)tn_data(own[3]))[1] = 7;
    for (int i = 0; i < n; i++) ((float *)tn_data(own[0]))[i] = (float)i;
    Tensor *other = way == SHARED ? tn_ref(own[0]) : NULL;
    memcpy(in, own, sizeof in);
    RunCtx c = {.mem = &mem}, d = {.mem = &mem, .owned = way == BORROWED ? NULL : own};
    check(gr_run(g, &c, in, want, &e, NULL));
    int before = (int)jit_count(jit).kernels;
    check(jit_run(f, &d, in, out, &e, NULL));
    check_int((int)jit_count(jit).kernels - before, ==, kernels_run[way]);
    check(tn_same(out[0], want[0]));
    const Tensor *kept = way == BORROWED ? own[0] : way == SHARED ? other : NULL;
    const float *left = tn_data(kept ? kept : whole);
    if (way == PART) left += 8;
    for (int i = 0; i < n && way != OWNED; i++) check(left[i] == (float)i);
    check(!own[0] == (way != BORROWED));
    unref_all(out, 1);
    unref_all(want, 1);
    unref_all(own, 4);
    tn_unref(other);
    tn_unref(whole);
  }
  jit_free(f);
  jit_close(jit);
}

/* The first turn of a loop copies what belongs to the caller; the others write into what they are
 * handed. */
static void updates_in_turns(void *ud) {
  (void)ud;
  static const char text[] = "graph \"g\" {\n"
                             "  %0 = input {index=0 dtype=i64 device=cpu dims=[]} : i64\n"
                             "  %1 = input {index=1 dtype=f32 device=cpu dims=[8]} : f32[8]\n"
                             "  %2 = loop %0 %1 {carry=1} : f32[8]\n"
                             "    region {\n"
                             "      %0 = input {index=0 dtype=i64 device=cpu dims=[]} : i64\n"
                             "      %1 = input {index=1 dtype=f32 device=cpu dims=[8]} : f32[8]\n"
                             "      %2 = reshape %0 {dims=[1]} : i64[1]\n"
                             "      %3 = const {value=1.0 dtype=f32 device=cpu} : f32\n"
                             "      %4 = broadcast %3 {dims=[1]} : f32[1]\n"
                             "      %5 = put_add %1 %4 %2 {axis=0} : f32[8]\n"
                             "      return %5\n"
                             "    }\n"
                             "  return %2\n"
                             "}\n";
  JitConfig config = {.walk = true, .check = true, .engine = {.level = ENG_X86_64_V4}};
  jit = jit_open(&mem, &config);
  GErr e = {0};
  int64_t n = 8;
  Graph *g = gr_read(&arena, names_new(&arena), text, sizeof text - 1, &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  JitFn *f = jit_compile(jit, g, NULL, NULL, &e);
  Tensor *in[2] = {tn_scalar_i64(&mem, DEV_CPU, DT_I64, 5), tn_zeros(&mem, DEV_CPU, DT_F32, 1, &n)};
  Tensor *out[1];
  RunCtx c = {.mem = &mem};
  check(jit_run(f, &c, in, out, &e, NULL));
  check_int((int)jit_count(jit).kernels, ==, 5 + 1);
  for (int i = 0; i < n; i++) {
    check(((float *)tn_data(in[1]))[i] == 0);
    check(((float *)tn_data(out[0]))[i] == (i < 5));
  }
  unref_all(out, 1);
  unref_all(in, 2);
  jit_free(f);
  jit_close(jit);
}

static void in_arena(void (*f)(void *)) {
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, f, NULL), ==, MEM_OK);
  arena_free(&arena);
  check_msg(mem.live == mem.pool_cap * sizeof *mem.pool, "%zu bytes are left", mem.live);
  mem_pool_drain(&mem, 0);
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  for (int i = 0; i < OP_COUNT; i++) {
    char title[80];
    current = (OpCode)i;
    snprintf(title, sizeof title, "%s gives the bits of the reference evaluator", op_info[i].text);
    TEST(in_arena(row), title);
  }
  tap_note("%d kernels ran, %d inputs were dropped", kernels, lost);
  TEST(in_arena(random_graphs), "random graphs give the bits, effects and errors of the evaluator");
  TEST(in_arena(random_writes),
       "what is written to inputs takes their place, or is new: same bits");
  TEST(in_arena(once_wrong), "graphs that went wrong once give the bits");
  TEST(in_arena(message), "a run drops its own inputs once nothing, no error either, needs them");
  TEST(in_arena(updates), "an update copies its operand, unless that dies there");
  TEST(in_arena(updates_in_turns), "a turn writes into what the one before it made");
  TEST(in_arena(at_once), "the bytes of results and copies at once are those of one step");
  mem_close(&mem);
  return tap_done();
}
