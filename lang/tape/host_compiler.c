/* The host as compiler of captured backwards.
 *
 * In: a graph that was captured, later its tensors. Out: the results of the host's functions,
 * checked against the types of the graph, or their error at the `grad`.
 * Invariant: no throw crosses a function of the host; an error inside of it is kept, and thrown
 * after it has returned.
 */
#include "lang/tape/host_compiler.h"

#include <string.h>

#include "graph/pass.h"
#include "lang/compile/compile.h"
#include "lang/eval/ops.h"
#include "lang/tape/capture.h"
#include "lang/value/fail.h"
#include "lang/value/handle.h"

struct Compiler {
  ckl_compiler f;
  void *ud;
};

struct ckl_backward {
  Session *s;
  Arena arena;
  const Graph *g;
  Native **native;
  bool acts;
  const char *text;     /* of g; NULL: not printed yet */
  const int64_t *sizes; /* while a function of the host runs, else NULL */
  Buf why;              /* the host's text of its error */
  /* during a run: */
  RunCtx *run;
  GErr e;
  Prov where;
  int code;         /* thrown inside of a function of the host */
  bool ran, failed; /* ckl ran the graph for the host; this failed */
};

struct Backend {
  int64_t rc;
  ckl_backward b;
  ckl_code code;
};

void backend_free(Backend *k) {
  if (!k || --k->rc > 0) return;
  Mem *m = &k->b.s->mem;
  if (k->code.free) k->code.free(k->code.ud);
  arena_free(&k->b.arena);
  mem_free(m, k, sizeof *k);
}

void backend_set(Session *s, ckl_compiler f, void *ud) {
  captures_free(s);
  if (f && !s->compiler) s->compiler = mem_need(&s->mem, NULL, 0, sizeof *s->compiler);
  if (f) {
    *s->compiler = (struct Compiler){f, ud};
  } else {
    mem_free(&s->mem, s->compiler, sizeof *s->compiler);
    s->compiler = NULL;
  }
}

/* Reports that the host's function has failed. */
static _Noreturn void host_fails(Backend *k, ckl_status st, Span at, const char *what) {
  Session *s = k->b.s;
  if (k->b.code != MEM_OK) mem_throw(&s->mem, k->b.code);
  if (st == CKL_ENOMEM) mem_throw(&s->mem, MEM_ERR_NOMEM);
  const char *why = k->b.why.n ? fail_text(s, ": %s", k->b.why.s) : "";
  Diag *d = fail_report(s, ERR_COMPILER, at, "the host's compiler %s%s", what, why);
  dg_help(&s->diags, d,
          "`wrap <backward plain>` does without a compiler; "
          "ckl_set_compiler(s, NULL, NULL) goes back to ckl's own");
  fail_raise(s);
}

/* ---- compiling */
Backend *backend_new(Session *s, const Graph *g, Native **native, const int64_t *sizes, bool acts,
                     Span at) {
  if (!s->compiler) return NULL;
  size_t mark = mem_pool_mark(&s->mem);
  Backend *k = mem_need(&s->mem, NULL, 0, sizeof *k);
  *k = (Backend){.rc = 1, .b = {.s = s, .g = g, .native = native, .acts = acts, .sizes = sizes}};
  arena_init(&k->b.arena, &s->mem);
  mem_pool_add(&s->mem, k, (void (*)(void *))backend_free);
  ckl_status st = s->compiler->f(s->compiler->ud, &k->b, &k->code);
  if (st != CKL_OK || k->b.code != MEM_OK) host_fails(k, st, at, "does not take this backward");
  k->b.sizes = NULL;
  if (!k->code.run) {
    mem_pool_drain(&s->mem, mark);
    return NULL;
  }
  k->rc++;
  mem_pool_drain(&s->mem, mark);
  return k;
}

/* ---- running */
static void call_host(Backend *k, const HandleArray *in, HandleArray *out, Span at) {
  ckl_status st = k->code.run(k->code.ud, &k->b, in->v, out->v);
  k->b.run = NULL;
  k->b.sizes = NULL;
  if (k->b.code != MEM_OK || (st != CKL_OK && !k->b.failed))
    host_fails(k, st, at, "fails to run this backward");
  if (k->b.acts && !k->b.ran)
    host_fails(k, CKL_OK, at, "runs a backward that calls hooks without ckl_backward_run");
}

/* Checks that v fits output i; throws if not. */
static void check_output(Backend *k, const RunCtx *c, size_t i, const ckl_value *v, Span at) {
  Session *s = k->b.s;
  const Graph *g = k->b.g;
  Type t = *gr_type(g, g->outputs[i]);
  const Tensor *x = handle_fits(s, v) ? handle_tensor(v) : NULL;
  bool same =
      x && x->rank == t.rank && x->dtype == (DType)t.dtype && x->store->dev == (Device)t.dev;
  for (int a = 0; a < t.rank; a++) {
    int64_t n = -1;
    dim_eval(g->dims, t.dim[a], c->env, NULL, &n);
    same = same && n == x->dim[a];
    t.dim[a] = dim_const(op_dims_of(s), n);
  }
  if (same) return;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  type_print(&b, op_dims_of(s), &t);
  const char *what = !v                  ? "nothing"
                     : handle_fits(s, v) ? value_type_text(s, v->v)
                                         : "a value of another session";
  host_fails(k, CKL_OK, at, fail_text(s, "gives another output %zu: %s, not %s", i, b.s, what));
}

bool backend_run(Backend *k, RunCtx *c, Tensor *const *in, Tensor **out, GErr *e, Prov *where,
                 Span at) {
  Session *s = k->b.s;
  const Graph *g = k->b.g;
  if (k->b.run) return native_run(s, k->b.native, g, "a backward", c, in, out, e, where);
  size_t mark = mem_pool_mark(&s->mem), n = g->output_count;
  HandleArray *from = handle_array(s, g->input_count), *to = handle_array(s, n);
  for (size_t i = 0; i < from->n; i++) {
    from->v[i] = handle_new(s, v_tensor(s, tn_ref(in[i])));
    if (!from->v[i]) mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  k->b.run = c;
  k->b.sizes = c->env;
  k->b.e = *e;
  k->b.where = *where;
  k->b.code = MEM_OK;
  k->b.ran = k->b.failed = false;
  k->b.why.n = 0;
  call_host(k, from, to, at);
  for (size_t i = 0; i < n && !k->b.failed; i++) check_output(k, c, i, to->v[i], at);
  for (size_t i = 0; i < n; i++) out[i] = k->b.failed ? NULL : tn_ref(handle_tensor(to->v[i]));
  mem_pool_drain(&s->mem, mark);
  *e = k->b.e;
  *where = k->b.where;
  return !k->b.failed;
}

/* ---- for the host's functions */
size_t ckl_backward_inputs(const ckl_backward *b) {
  return b->g->input_count;
}

size_t ckl_backward_outputs(const ckl_backward *b) {
  return b->g->output_count;
}

bool ckl_backward_acts(const ckl_backward *b) {
  return b->acts;
}

size_t ckl_backward_sizes(const ckl_backward *b) {
  return dim_symbol_count(b->g->dims);
}

int64_t ckl_backward_size(const ckl_backward *b, size_t i) {
  return b->sizes && i < ckl_backward_sizes(b) ? b->sizes[i] : -1;
}

static void print_job(void *ud) {
  ckl_backward *b = ud;
  Buf t;
  buf_init_arena(&t, &b->arena);
  gr_print(&t, b->g);
  b->text = t.s;
}

const char *ckl_backward_text(ckl_backward *b) {
  if (!b->text) api_guard(b->s, print_job, b);
  return b->text;
}

typedef struct Say {
  ckl_backward *b;
  const char *text;
} Say;

static void say_job(void *ud) {
  Say *j = ud;
  buf_init_arena(&j->b->why, &j->b->arena);
  buf_puts(&j->b->why, j->text);
}

ckl_status ckl_backward_fail(ckl_backward *b, const char *why) {
  Say j = {b, why};
  if (why && api_guard(b->s, say_job, &j) != MEM_OK) return CKL_ENOMEM;
  return CKL_ERUN;
}

typedef struct RunJob {
  ckl_backward *b;
  ckl_value *const *in;
  ckl_value **out;
} RunJob;

static void run_job(void *ud) {
  RunJob *j = ud;
  ckl_backward *b = j->b;
  Session *s = b->s;
  size_t ni = b->g->input_count, no = b->g->output_count;
  RunCtx c = *b->run;
  c.owned = NULL; /* the host holds the inputs */
  Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, ni + 1);
  Tensor **out = ARENA_ARRAY(&s->scratch, Tensor *, no + 1);
  for (size_t i = 0; i < ni; i++) in[i] = j->in[i]->v.u.t->t;
  HandleArray *got = handle_array(s, no);
  b->ran = true;
  b->failed = !native_run(s, b->native, b->g, "a backward", &c, in, out, &b->e, &b->where);
  b->run->nodes_run = c.nodes_run;
  if (b->failed) return;
  value_pool_tensors(s, out, no);
  for (size_t i = 0; i < no; i++) {
    got->v[i] = handle_new(s, v_tensor(s, tn_ref(out[i])));
    if (!got->v[i]) mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  for (size_t i = 0; i < no; i++) j->out[i] = ckl_retain(got->v[i]);
}

ckl_status ckl_backward_run(ckl_backward *b, ckl_value *const *in, ckl_value **out) {
  Session *s = b->s;
  if (!b->run || b->failed || b->code != MEM_OK || (b->ran && b->acts)) return CKL_EUSAGE;
  if (!in || !out) return CKL_EUSAGE;
  for (size_t i = 0; i < b->g->input_count; i++)
    if (!handle_fits(s, in[i]) || in[i]->v.tag != V_TENSOR) return CKL_EUSAGE;
  RunJob j = {b, in, out};
  size_t mark = mem_pool_mark(&s->mem);
  b->code = api_guard(s, run_job, &j);
  if (b->code == MEM_OK) mem_pool_drain(&s->mem, mark);
  return b->code == MEM_ERR_NOMEM         ? CKL_ENOMEM
         : b->code == MEM_ERR_INTERRUPT   ? CKL_EINTERRUPT
         : b->code != MEM_OK || b->failed ? CKL_ERUN
                                          : CKL_OK;
}
