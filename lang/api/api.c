/* ckl.h: the session as others see it.
 *
 * In: C calls. Out: statuses, handles, texts. Every call that may fail runs its work under guard(),
 * turns what left it into a status and keeps the diagnostics. Texts handed out live in the notes
 * arena, until the next call that clears it.
 * Invariant: a session is busy while a call of it runs, so what a function of the host calls in
 * between finds it so, and begin() lets no second call in.
 */
#include "ckl.h"

#include <stdio.h>
#include <string.h>

#include "autograd/remat.h"
#include "lang/tape/host_compiler.h"
#include "lang/tape/capture.h"
#include "lang/compile/compile.h"
#include "lang/names/complete.h"
#include "lang/value/handle.h"
#include "lang/names/help.h"
#include "lang/compile/tiering.h"
#include "lang/compile/report.h"
#include "lang/names/resolve.h"
#include "lang/api/session.h"
#include "lang/value/state_walk.h"
#include "parser/parse.h"
#include "runtime/file.h"
#include "runtime/spill.h"

/* ---- statuses */

static void end(Session *s) {
  stack_leave(s->outside);
  native_awake(s, false);
  mem_pool_drain(&s->mem, 0);
  arena_free(&s->scratch);
  s->frame = NULL;
  s->stage = NULL;
  s->busy = false;
}

static void no_stack(Session *s) {
  Diag *d = dg_error(&s->diags, ERR_C_STACK, (Span){0},
                     "the thread has %zu bytes of C stack left, and %d are the least for a call",
                     stack_left(), STACK_RESERVE);
  dg_help(&s->diags, d, "`ulimit -s` gives a program more, ckl_config.stack may have bounded it");
}

/* Places that were warned of once; after so many a session forgets, and may warn again. */
enum { WARNED_MOST = 4096 };

/* Makes the session ready for a call. CKL_ENOMEM: it was lost for lack of memory and cannot be made
 * again, or the thread has too little stack. */
static ckl_status begin(Session *s) {
  if (s->busy) return CKL_EUSAGE;
  s->busy = true;
  dg_clear(&s->diags);
  if (s->main) src_sweep(&s->sources);
  if (s->warned_count > WARNED_MOST) s->warned_count = 0;
  arena_rewind(&s->notes, s->notes_start);
  s->text_out = NULL;
  interrupt_set(&s->kernel.stop, false);
  s->running = (Span){0};
  s->mem.refused = 0;
  s->outside = session_stack(s);
  s->mem.filing = false;
  steps_start(s);
  native_awake(s, true);
  if (stack_left() <= STACK_RESERVE)
    no_stack(s);
  else if (s->main || session_start(s))
    return CKL_OK;
  else
    dg_error(&s->diags, ERR_NOMEM, (Span){0}, "out of memory");
  end(s);
  return CKL_ENOMEM;
}

static bool files_nomem(const Diags *d) {
  for (size_t i = 0; i < d->count; i++)
    if (d->items[i]->code == ERR_NOMEM) return true;
  return false;
}

static void no_memory(Session *s) {
  enum { MORE = 1 << 20 }; /* what was refused is not the last */
  Mem *m = &s->mem;
  m->filing = true;
  if (!m->refused) {
    dg_error(&s->diags, ERR_NOMEM, s->running, "out of memory");
    return;
  }
  Diag *d = dg_error(&s->diags, ERR_NOMEM, s->running,
                     "out of memory: this needs %zu bytes, and of the limit of %zu tensors hold "
                     "%zu and all else %zu",
                     m->refused, m->limit, m->refused_data, m->refused_rest);
  dg_help(&s->diags, d, "with `--memory=%zu` it goes on from here",
          m->refused_data + m->refused_rest + m->refused + MORE);
}

static ckl_status status_of(Session *s, int code, bool ran) {
  switch (code) {
  case MEM_OK: return CKL_OK;
  case MEM_ERR_PROGRAM: return ran ? CKL_ERUN : CKL_EPROGRAM;
  case MEM_ERR_NOMEM:
    if (!s->diags.nomem_filed && !files_nomem(&s->diags)) no_memory(s);
    return CKL_ENOMEM;
  case MEM_ERR_INTERRUPT: return CKL_EINTERRUPT;
  case MEM_ERR_STACK:
    dg_error(&s->diags, ERR_C_STACK, s->running, "no room is left on the C stack");
    return ran ? CKL_ERUN : CKL_EPROGRAM;
  default:
    if (code != MEM_ERR_BUG) snprintf(s->mem.bug, sizeof s->mem.bug, "code %d", code);
    dg_error(&s->diags, ERR_BUG, (Span){0}, "an invariant of ckl does not hold: %s", s->mem.bug);
    return CKL_EINTERNAL;
  }
}

typedef struct Job {
  Session *s;
  const char *path, *text, *name;
  size_t n;
  ckl_value **out;
  Value v, f;
  Value *args;
  bool ran;
  void (*work)(struct Job *j);
  void *more;
} Job;

static void run_job(void *ud) {
  Job *j = ud;
  j->work(j);
}

static ckl_status perform(Job *j, void (*work)(Job *j)) {
  Session *s = j->s;
  ckl_status st = begin(s);
  if (st != CKL_OK) return st;
  j->work = work;
  int code = guard(s, run_job, j);
  st = status_of(s, code, j->ran);
  end(s);
  return st;
}

/* For calls that a busy session allows: what they call of the host finds it busy. Gives what to put
 * back. */
static bool keep_busy(Session *s) {
  bool busy = s->busy;
  s->busy = true;
  return busy;
}

/* Makes a value, in functions of the host too. */
static void make_value(Job *j, void (*work)(Job *j)) {
  Session *s = j->s;
  bool busy = keep_busy(s);
  size_t mark = mem_pool_mark(&s->mem);
  j->work = work;
  if (guard(s, run_job, j) == MEM_OK) mem_pool_drain(&s->mem, mark);
  s->busy = busy;
}

/* ---- sessions */

ckl_session *ckl_open(const ckl_config *c) {
  ckl_config none = {.size = sizeof none}, full = {.size = sizeof full};
  if (!c) c = &none;
  memcpy(&full, c, c->size < sizeof full ? c->size : sizeof full);
  Mem m;
  mem_init(&m, full.alloc, full.alloc_ud);
  ckl_session *k = mem_try(&m, NULL, 0, sizeof *k);
  if (!k) return NULL;
  memset(k, 0, sizeof *k);
  Session *s = &k->s;
  s->mem = m;
  s->config.write = full.write;
  s->config.ud = full.write_ud;
  s->config.terminal = full.stderr_is_terminal;
  s->config.args = full.args;
  s->config.arg_count = full.arg_count;
  s->config.lib = full.lib;
  s->config.lib_count = full.lib_count;
  s->mem.limit = full.memory_limit > 0 ? (size_t)full.memory_limit : 0;
  s->config.max_nodes = full.max_nodes > 0 && full.max_nodes < INT32_MAX ? (uint32_t)full.max_nodes
                                                                        : 1000000;
  s->config.max_steps = full.max_steps;
  s->config.progress = full.progress;
  s->config.progress_ud = full.progress_ud;
  s->config.progress_steps = full.progress_steps;
  s->config.has_seed = full.has_seed;
  s->config.seed = full.seed;
  CpuMode mode;
  EngLevel level;
  bool known = cpu_find(full.cpu, &mode, &level);
  s->config.cpu = mode;
  s->config.level = level;
  s->config.threads = full.threads > 0 ? full.threads : 0;
  s->config.codegen = full.codegen;
  s->config.kernels = full.kernels;
  s->config.cache = full.cache;
  s->config.perf_map = full.perf_map;
  s->config.profile = full.profile;
  s->config.trace = full.trace;
  s->config.show_plan = full.show_plan;
  s->config.json = full.json;
  s->config.stack = full.stack;
  s->device = full.device && !strcmp(full.device, "sim") ? DEV_SIM : DEV_CPU;
  if (!known || (full.device && strcmp(full.device, "sim") && strcmp(full.device, "cpu"))) {
    mem_free(&m, k, sizeof *k);
    return NULL;
  }
  s->door.ask = full.may_open;
  s->door.ud = full.may_open_ud;
  s->mem.door = &s->door;
  s->mem.stop = &s->kernel.stop;
  s->outside = session_stack(s);
  bool started = door_open(&s->door, &s->mem, full.files) &&
                 (!full.spill || spill_open(&s->mem, full.spill)) && session_init(s) &&
                 session_start(s);
  stack_leave(s->outside);
  if (!started) {
    arena_free(&s->notes);
    door_close(&s->door, &s->mem);
    mem_close(&s->mem);
    m = s->mem;
    mem_free(&m, k, sizeof *k);
    return NULL;
  }
  return k;
}

static void orphan(ckl_session *k) {
  for (ckl_value *v = k->s.handles; v; v = v->next) {
    value_set(&v->v, v_unit());
    tn_unref(v->flat);
    v->flat = NULL;
  }
}

void ckl_close(ckl_session *k) {
  if (!k || k->s.busy) return;
  Session *s = &k->s;
  s->busy = true;
  orphan(k);
  session_stop(s);
  backend_set(s, NULL, NULL);
  arena_free(&s->notes);
  for (ckl_value *v = s->handles, *next; v; v = next) {
    next = v->next;
    v->owner = NULL; /* freed by ckl_release, through the hook */
    v->prev = v->next = NULL;
  }
  door_close(&s->door, &s->mem);
  mem_close(&s->mem);
  Mem m = s->mem;
  mem_free(&m, k, sizeof *k);
}

bool ckl_may_read(ckl_session *k, const char *path) {
  Reached r;
  bool busy = keep_busy(&k->s), ok = path && door_reach(&k->s.door, path, false, &r, NULL);
  if (ok) door_leave(&r);
  k->s.busy = busy;
  return ok;
}

void ckl_interrupt(ckl_session *k) {
  interrupt_set(&k->s.kernel.stop, true);
}

/* Whether v is data alone: it refers to no tree, name or tape. */
static bool is_plain(Value v) {
  if (v.tag == V_LIST || v.tag == V_TUPLE) {
    for (size_t i = 0; i < v.u.list->count; i++)
      if (!is_plain(v.u.list->items[i])) return false;
    return true;
  }
  return v.tag == V_TENSOR ? v.u.t->node == NULL
                           : v.tag <= V_FLOAT || v.tag == V_DTYPE || v.tag == V_STR;
}

/* Starts the session anew. Of the values that the host holds those that are data stay. */
static void restart(Session *s) {
  for (ckl_value *v = s->handles; v; v = v->next) {
    Value data = value_bounded(s, v->v) ? detach(s, v->v) : v_unit();
    value_set(&v->v, is_plain(data) ? data : v_unit());
  }
  session_stop(s);
  if (!session_start(s)) mem_throw(&s->mem, MEM_ERR_NOMEM);
}

static void work_reset(Job *j) {
  backend_set(j->s, NULL, NULL);
  restart(j->s);
}

ckl_status ckl_reset(ckl_session *k) {
  Job j = {.s = &k->s};
  return perform(&j, work_reset);
}

typedef struct CompilerJob {
  ckl_compiler f;
  void *ud;
} CompilerJob;

static void work_set_compiler(Job *j) {
  CompilerJob *c = j->more;
  backend_set(j->s, c->f, c->ud);
}

ckl_status ckl_set_compiler(ckl_session *k, ckl_compiler f, void *ud) {
  CompilerJob c = {f, ud};
  Job j = {.s = &k->s, .more = &c};
  return perform(&j, work_set_compiler);
}

/* ---- values */

ckl_value *handle_new(Session *s, Value v) {
  Mem *m = &s->mem;
  ckl_value *h = mem_try(m, NULL, 0, sizeof *h);
  if (!h) return NULL;
  *h = (ckl_value){.rc = 1, .owner = (ckl_session *)s, .v = v, .next = s->handles,
                   .hook = m->hook, .ud = m->ud};
  if (h->next) h->next->prev = h;
  s->handles = h;
  value_retain(v);
  return h;
}

static ckl_value *handle(ckl_session *k, Value v) {
  bool busy = keep_busy(&k->s);
  ckl_value *h = handle_new(&k->s, v);
  k->s.busy = busy;
  return h;
}

static ckl_value *need_handle(Session *s, Value v) {
  ckl_value *h = handle_new(s, v);
  if (!h) mem_throw(&s->mem, MEM_ERR_NOMEM);
  return h;
}

ckl_value *ckl_retain(ckl_value *v) {
  if (v) v->rc++;
  return v;
}

void ckl_release(ckl_value *v) {
  if (!v || --v->rc > 0) return;
  if (!v->owner) {
    v->hook(v->ud, v, sizeof *v, 0);
    return;
  }
  Session *s = &v->owner->s;
  bool busy = keep_busy(s);
  if (v->prev) v->prev->next = v->next;
  else s->handles = v->next;
  if (v->next) v->next->prev = v->prev;
  tn_unref(v->flat);
  value_release(v->v);
  mem_free(&s->mem, v, sizeof *v);
  s->busy = busy;
}

ckl_value *ckl_int(ckl_session *s, int64_t i) {
  return handle(s, v_int(i));
}
ckl_value *ckl_float(ckl_session *s, double x) {
  return handle(s, v_float(x));
}
ckl_value *ckl_bool(ckl_session *s, bool b) {
  return handle(s, v_bool(b));
}

static void make_str(Job *j) {
  j->v = str_value(j->s, j->text, j->n);
  *j->out = need_handle(j->s, j->v);
}

ckl_value *ckl_str(ckl_session *s, const char *text, size_t n) {
  ckl_value *h = NULL;
  Job j = {.s = &s->s, .text = text, .n = n, .out = &h};
  make_value(&j, make_str);
  return h;
}

typedef struct TensorJob {
  int rank;
  const int64_t *dims;
  const void *data; /* to copy; NULL: borrowed, or of no elements */
  void *borrowed;
  void (*done)(void *ud);
  void *ud;
} TensorJob;

static void make_tensor(Job *j) {
  const TensorJob *n = j->more;
  Mem *m = &j->s->mem;
  DType dt = (DType)dtype_find(j->name);
  Tensor *t = n->data ? tn_new(m, DEV_CPU, dt, n->rank, n->dims)
                      : tn_foreign(m, dt, n->rank, n->dims, n->borrowed, n->done, n->ud);
  size_t bytes = t && n->data ? (size_t)tn_count(t) * dt_size(dt) : 0;
  if (bytes) memcpy(tn_data(t), n->data, bytes);
  *j->out = need_handle(j->s, tensor_value(j->s, t));
}

static ckl_value *new_tensor(ckl_session *k, const char *dtype, TensorJob n) {
  ckl_value *h = NULL;
  if (!dtype || dtype_find(dtype) < 0 || n.rank < 0 || n.rank > CKL_MAX_RANK) return NULL;
  int64_t count = tn_product(n.rank, n.dims);
  if (count < 0 || (count > 0 && !n.data && !n.borrowed)) return NULL;
  Job j = {.s = &k->s, .name = dtype, .more = &n, .out = &h};
  make_value(&j, make_tensor);
  return h;
}

ckl_value *ckl_tensor(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                      const void *data) {
  return new_tensor(s, dtype, (TensorJob){.rank = rank, .dims = dims, .data = data});
}

ckl_value *ckl_tensor_borrow(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                             void *data, void (*done)(void *ud), void *ud) {
  return new_tensor(s, dtype, (TensorJob){rank, dims, NULL, data, done, ud});
}

ckl_kind ckl_kind_of(const ckl_value *v) {
  if (!v) return CKL_UNIT;
  switch ((ValueTag)v->v.tag) {
  case V_UNIT: return CKL_UNIT;
  case V_NONE: return CKL_NONE;
  case V_BOOL: return CKL_BOOL;
  case V_INT: return CKL_INT;
  case V_FLOAT: return CKL_FLOAT;
  case V_STR: return CKL_STR;
  case V_TENSOR:
  case V_PARAM: return CKL_TENSOR;
  case V_LIST: return CKL_LIST;
  case V_TUPLE: return CKL_TUPLE;
  case V_RECORD: return CKL_RECORD;
  case V_FN:
  case V_BUILTIN:
  case V_DTYPE: return CKL_FN;
  case V_INST: return CKL_MODEL;
  default: return CKL_OTHER;
  }
}

int64_t ckl_to_int(const ckl_value *v) {
  if (!v) return 0;
  Tensor *t = handle_tensor(v);
  if (t) return tn_count(t) == 1 ? tn_get_i64(t, 0) : 0;
  if (v->v.tag == V_INT || v->v.tag == V_BOOL) return v->v.u.i;
  if (v->v.tag == V_FLOAT && v->v.u.f > -9.2e18 && v->v.u.f < 9.2e18) return (int64_t)v->v.u.f;
  return 0;
}

double ckl_to_float(const ckl_value *v) {
  if (!v) return 0;
  Tensor *t = handle_tensor(v);
  if (t) return tn_count(t) == 1 ? tn_get_f64(t, 0) : 0;
  if (v->v.tag == V_INT || v->v.tag == V_BOOL) return (double)v->v.u.i;
  return v->v.tag == V_FLOAT ? v->v.u.f : 0;
}

const char *ckl_to_str(const ckl_value *v, size_t *n) {
  if (!v || v->v.tag != V_STR) return NULL;
  if (n) *n = v->v.u.str->n;
  return v->v.u.str->s;
}

const char *ckl_tensor_dtype(const ckl_value *v) {
  Tensor *t = handle_tensor(v);
  return t ? dtype_info[t->dtype].name : NULL;
}

int ckl_tensor_rank(const ckl_value *v) {
  Tensor *t = handle_tensor(v);
  return t ? t->rank : -1;
}

int64_t ckl_tensor_dim(const ckl_value *v, int axis) {
  Tensor *t = handle_tensor(v);
  return t && axis >= 0 && axis < t->rank ? t->dim[axis] : -1;
}

const void *ckl_tensor_data(ckl_value *v) {
  Tensor *t = handle_tensor(v);
  if (!t || !v->owner) return NULL;
  if (tn_is_contiguous(t)) return tn_data(t);
  Session *s = &v->owner->s;
  bool busy = keep_busy(s);
  tn_unref(v->flat);
  v->flat = tn_contiguous(&s->mem, t);
  s->busy = busy;
  return v->flat ? tn_data(v->flat) : NULL;
}

size_t ckl_length(const ckl_value *v) {
  if (!v) return 0;
  if (v->v.tag == V_LIST || v->v.tag == V_TUPLE) return v->v.u.list->count;
  return v->v.tag == V_RECORD ? v->v.u.rec->count : 0;
}

ckl_value *ckl_item(const ckl_value *v, size_t i) {
  if (!v || !v->owner || i >= ckl_length(v)) return NULL;
  return handle(v->owner, v->v.tag == V_RECORD ? v->v.u.rec->items[i] : v->v.u.list->items[i]);
}

const char *ckl_field_name(const ckl_value *v, size_t i) {
  return v && v->v.tag == V_RECORD && i < v->v.u.rec->count ? v->v.u.rec->names[i] : NULL;
}

/* ---- running */

static void load_main(Job *j) {
  Session *s = j->s;
  restart(s);
  Frame top = {.module = s->main};
  s->frame = &top;
  s->main = module_load_file(s, NULL, j->path, (Span){0});
  s->frame = NULL;
}

/* A program file starts from an empty session, so that two runs in one process print the same. */
static void work_run(Job *j) {
  Session *s = j->s;
  load_main(j);
  if (!check_module(s, s->main, false)) dg_throw(&s->diags);
  j->ran = true;
  run_module(s, s->main);
}

ckl_status ckl_run_file(ckl_session *k, const char *path) {
  if (!path) return CKL_EUSAGE;
  Job j = {.s = &k->s, .path = path};
  return perform(&j, work_run);
}

static void work_check(Job *j) {
  Session *s = j->s;
  load_main(j);
  if (!check_module(s, s->main, true)) dg_throw(&s->diags);
}

ckl_status ckl_check_file(ckl_session *k, const char *path) {
  if (!path) return CKL_EUSAGE;
  Job j = {.s = &k->s, .path = path};
  return perform(&j, work_check);
}

static void work_eval(Job *j) {
  Session *s = j->s;
  uint32_t file = src_add_passing(&s->sources, j->name ? j->name : "input", j->text, j->n);
  ParseContext pc = {src_arena(&s->sources, file), s->names, &s->sources, &s->diags};
  Frame top = {.module = s->main};
  s->frame = &top;
  Node *ast = parse_file(&pc, file);
  if (s->diags.errors) dg_throw(&s->diags);
  src_hold(&s->sources, file);
  if (s->main->ast) src_drop(&s->sources, s->main->ast->span.file);
  s->main->ast = ast;
  module_declare_items(s, s->main, ast, true);
  j->ran = true;
  Value last = v_unit();
  bool value = false;
  for (uint32_t i = 0; i < ast->file.items.count; i++) {
    Node *st = ast->file.items.items[i];
    if (st->kind == N_USE || st->kind == N_FN || st->kind == N_MODEL || st->kind == N_TYPE_DECL ||
        st->kind == N_POLICY_DECL || st->kind == N_TEST)
      continue;
    bool is_last = i + 1 == ast->file.items.count;
    if (!resolve_statement(s, s->main, st, is_last)) dg_throw(&s->diags);
    run_statement(s, st, is_last ? &last : NULL);
    value = is_last && st->kind == N_EXPR_STMT;
  }
  if (last.tag == V_LIST && last.u.list->weak) last = as_tensor(s, last, DT_COUNT, (Span){0});
  if (j->out && value && last.tag != V_UNIT) *j->out = need_handle(s, last);
}

ckl_status ckl_eval(ckl_session *k, const char *text, const char *name, ckl_value **out) {
  if (out) *out = NULL;
  if (!text) return CKL_EUSAGE;
  Job j = {.s = &k->s, .text = text, .n = strlen(text), .name = name, .out = out};
  return perform(&j, work_eval);
}

bool ckl_is_complete(const char *text, size_t n) {
  return parse_repl_complete(text, n);
}

typedef struct TestRun {
  const char *filter;
  void (*report)(void *ud, const char *title, bool ok, const char *diagnostics);
  void *ud;
  size_t failed;
} TestRun;

typedef struct TestJob {
  Session *s;
  Node *t;
} TestJob;

static void test_job(void *ud) {
  TestJob *j = ud;
  Session *s = j->s;
  Frame top = {.module = s->main, .base = s->local_count, .test = true, .block_depth = 1};
  s->frame = &top;
  Flow flow = FLOW_NEXT;
  random_reset(s, 0);
  eval_block(s, j->t->test.body, &flow);
  if (flow != FLOW_NEXT)
    fail(s, ERR_BREAK, j->t->span, "`break`, `continue` and `return` cannot leave a test");
}

static void work_test(Job *j) {
  Session *s = j->s;
  TestRun *r = j->more;
  load_main(j);
  if (!check_module(s, s->main, false)) dg_throw(&s->diags);
  j->ran = true;
  for (uint32_t i = 0; i < s->main->ast->file.items.count; i++) {
    Node *t = s->main->ast->file.items.items[i];
    if (t->kind != N_TEST) continue;
    uint32_t n;
    const char *title = ast_plain_text(t->test.title, &n);
    if (!title) title = "test";
    if (r->filter && !strstr(title, r->filter)) continue;
    TestJob tj = {s, t};
    session_forget(s);
    size_t before = s->diags.count;
    size_t mark = mem_pool_mark(&s->mem);
    int code = guard(s, test_job, &tj);
    s->frame = NULL;
    Buf b;
    buf_init_arena(&b, &s->notes);
    for (size_t k = before; k < s->diags.count; k++)
      dg_render(&b, &s->sources, s->diags.items[k], false);
    if (code == MEM_ERR_NOMEM || code == MEM_ERR_INTERRUPT) mem_throw(&s->mem, code);
    if (r->report) r->report(r->ud, title, code == MEM_OK, b.s ? b.s : "");
    r->failed += code != MEM_OK;
    dg_rewind(&s->diags, before);
    mem_pool_drain(&s->mem, mark);
  }
  session_forget(s);
}

ckl_status ckl_test_file(ckl_session *k, const char *path, const char *filter,
                         void (*report)(void *ud, const char *title, bool ok,
                                        const char *diagnostics),
                         void *ud) {
  if (!path) return CKL_EUSAGE;
  TestRun r = {filter, report, ud, 0};
  Job j = {.s = &k->s, .path = path, .more = &r};
  ckl_status st = perform(&j, work_test);
  return st == CKL_OK && r.failed ? CKL_ERUN : st;
}

ckl_value *ckl_get(ckl_session *k, const char *name) {
  Session *s = &k->s;
  if (!name) return NULL;
  for (size_t i = 0; s->main && i < s->main->global_count; i++) {
    Global *g = &s->main->globals[i];
    if (!strcmp(g->name, name) && g->is_set && g->kind != G_TYPE && g->kind != G_POLICY)
      return handle(k, g->v);
  }
  return NULL;
}

static void work_set(Job *j) {
  global_set(j->s, j->s->main, names_of(j->s->names, j->name), j->v, false, (Span){0});
}

ckl_status ckl_set(ckl_session *k, const char *name, ckl_value *v) {
  if (!name || !handle_fits(&k->s, v)) return CKL_EUSAGE;
  if (!parse_is_name(name) || name_is_fixed(name)) return CKL_EUSAGE;
  Job j = {.s = &k->s, .name = name, .v = v->v};
  return perform(&j, work_set);
}

enum { MOST_ARGS = 32 };

/* Makes j the call f(args), whose values go to v. */
static bool call_given(Job *j, const ckl_value *f, ckl_value *const *args, size_t n,
                       Value v[MOST_ARGS]) {
  if (!handle_fits(j->s, f) || n > MOST_ARGS || (n && !args)) return false;
  for (size_t i = 0; i < n; i++) {
    if (!handle_fits(j->s, args[i])) return false;
    v[i] = args[i]->v;
  }
  j->f = f->v;
  j->args = v;
  j->n = n;
  return true;
}

static void work_call(Job *j) {
  Session *s = j->s;
  Frame top = {.module = s->main};
  s->frame = &top;
  j->ran = true;
  Value r = call_simple(s, j->f, j->n, j->args, (Span){0});
  if (j->out) *j->out = need_handle(s, r);
}

ckl_status ckl_call(ckl_session *k, ckl_value *f, ckl_value *const *args, size_t n,
                    ckl_value **out) {
  if (out) *out = NULL;
  Value v[MOST_ARGS];
  Job j = {.s = &k->s, .out = out};
  return call_given(&j, f, args, n, v) ? perform(&j, work_call) : CKL_EUSAGE;
}

/* ---- texts */

typedef struct TextJob {
  Session *s;
  Buf *b;
  const char *a, *c, *d;
  const char *const *list;
  size_t n;
  Value v;
  bool found;
  void (*work)(struct TextJob *t);
} TextJob;

static void text_job(void *ud) {
  TextJob *t = ud;
  t->work(t);
}

/* Runs work, which writes to t->b; the text or NULL. `clear`: a call of its own, with its
 * diagnostics. */
static const char *text_of(TextJob *t, void (*work)(TextJob *t), bool clear) {
  Session *s = t->s;
  if (clear && begin(s) != CKL_OK) return NULL;
  bool busy = keep_busy(s);
  Stack outside = session_stack(s);
  Buf b;
  buf_init_arena(&b, &s->notes);
  t->b = &b;
  t->found = true;
  t->work = work;
  int code = guard(s, text_job, t);
  if (code != MEM_OK && clear) status_of(s, code, false);
  stack_leave(outside);
  s->busy = busy;
  if (clear) end(s);
  if (code != MEM_OK || !t->found) return NULL;
  return b.s ? b.s : "";
}

static void work_show(TextJob *t) {
  Frame top = {.module = t->s->main};
  t->s->frame = &top;
  show_value(t->s, t->b, t->a, t->v);
}

static void add_bytes(Session *s, void *ud, const char *path, Inst *owner, Field *f, Value v) {
  const Tensor *t = v.tag == V_TENSOR ? v.u.t->t : v.tag == V_PARAM ? v.u.p->t : NULL;
  (void)s;
  (void)path;
  (void)owner;
  (void)f;
  if (t) *(int64_t *)ud += tn_count(t) * (int64_t)dt_size((DType)t->dtype);
}

static void work_bytes(Job *j) {
  walk_leaves(j->s, j->v, add_bytes, j->more);
}

int64_t ckl_bytes(ckl_session *k, const ckl_value *v) {
  int64_t bytes = 0;
  if (!v || !handle_fits(&k->s, v)) return 0;
  Job j = {.s = &k->s, .v = v->v, .more = &bytes};
  return perform(&j, work_bytes) == CKL_OK ? bytes : 0;
}

const char *ckl_show(ckl_session *k, const char *name, const ckl_value *v) {
  if (v && !handle_fits(&k->s, v)) return NULL;
  TextJob t = {.s = &k->s, .a = name, .v = v ? v->v : v_unit()};
  return text_of(&t, work_show, true);
}

const char *ckl_complete(ckl_session *k, const char *prefix, size_t i) {
  return prefix ? complete_name(&k->s, prefix, i) : NULL;
}

size_t ckl_diag_count(const ckl_session *k) {
  return k->s.diags.count;
}

static void work_diag(TextJob *t) {
  dg_render(t->b, &t->s->sources, t->s->diags.items[t->n], t->a != NULL);
}
static void work_diag_json(TextJob *t) {
  dg_render_json(t->b, &t->s->sources, t->s->diags.items[t->n]);
}

const char *ckl_diag_text(ckl_session *k, size_t i, unsigned flags) {
  if (i >= k->s.diags.count) return "";
  TextJob t = {.s = &k->s, .n = i, .a = flags & CKL_COLOR ? "color" : NULL};
  const char *r = text_of(&t, work_diag, false);
  return r ? r : k->s.diags.items[i]->message;
}

const char *ckl_diag_json(ckl_session *k, size_t i) {
  if (i >= k->s.diags.count) return "";
  TextJob t = {.s = &k->s, .n = i};
  const char *r = text_of(&t, work_diag_json, false);
  return r ? r : "{}";
}

const char *ckl_diag_code(const ckl_session *k, size_t i) {
  return i < k->s.diags.count ? err_info[k->s.diags.items[i]->code].code : "";
}

bool ckl_diag_is_error(const ckl_session *k, size_t i) {
  return i < k->s.diags.count && k->s.diags.items[i]->severity == SEV_ERROR;
}

/* ---- observation */

const char *ckl_log_name(size_t i) {
  return i < LOG_COUNT ? log_names[i] : NULL;
}

ckl_status ckl_log(ckl_session *k, const char *channel) {
  if (!channel) return CKL_EUSAGE;
  size_t n = strcspn(channel, ":");
  for (int i = 0; i < LOG_COUNT; i++)
    if (strlen(log_names[i]) == n && !strncmp(log_names[i], channel, n)) {
      if (channel[n] && strcmp(channel + n, ":debug")) return CKL_EUSAGE;
      k->s.logs[i] = channel[n] ? 2 : 1;
      return CKL_OK;
    }
  return CKL_EUSAGE;
}

/* ---- tools */

static void work_format(TextJob *t) {
  Session *s = t->s;
  uint32_t file = src_add_passing(&s->sources, t->a ? t->a : "input", t->c, t->n);
  ParseContext pc = {&s->scratch, s->names, &s->sources, &s->diags};
  Node *ast = parse_file(&pc, file);
  if (s->diags.errors) dg_throw(&s->diags);
  fmt_file(t->b, ast, &s->sources);
}

const char *ckl_format(ckl_session *k, const char *path, const char *text, size_t n) {
  if (!text) return NULL;
  TextJob t = {.s = &k->s, .a = path, .c = text, .n = n};
  return text_of(&t, work_format, true);
}

static void work_profile(TextJob *t) {
  native_profile(t->s, t->b);
}

const char *ckl_profile(ckl_session *k) {
  TextJob t = {.s = &k->s};
  const char *r = text_of(&t, work_profile, false);
  return r ? r : "";
}

const char *ckl_stage_name(size_t i) {
  return i < STAGE_COUNT ? stage_names[i] : NULL;
}

static bool all_given(const char *const *texts, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!texts || !texts[i]) return false;
  return true;
}

static void work_ir(TextJob *t) {
  Session *s = t->s;
  Job j = {.s = s, .path = t->a};
  load_main(&j);
  Frame top = {.module = s->main};
  s->frame = &top;
  if (!ir_print(s, t->b, t->c, t->list, t->n, t->d)) t->found = false;
  s->frame = NULL;
}

const char *ckl_ir(ckl_session *k, const char *path, const char *fn, const char *const *types,
                   size_t n, const char *stage) {
  if (!path || !fn || !all_given(types, n)) return NULL;
  TextJob t = {
      .s = &k->s, .a = path, .c = fn, .list = types, .n = n, .d = stage ? stage : "simplify"};
  return text_of(&t, work_ir, true);
}

/* ---- plans */

static void plan_values(Job *j) {
  Session *s = j->s;
  Frame top = {.module = s->main};
  s->frame = &top;
  j->ran = true;
  Args a = {.count = j->n, .v = j->args};
  Name *names = ARENA_ARRAY(&s->scratch, Name, j->n + 1);
  Span *spans = ARENA_ARRAY(&s->scratch, Span, j->n + 1);
  a.names = names;
  a.spans = spans;
  *j->out = need_handle(s, plan_call(s, plan_code(s, j->f, (Span){0}), &a));
}

ckl_status ckl_plan_call(ckl_session *k, ckl_value *f, ckl_value *const *args, size_t n,
                         ckl_value **out) {
  if (!out) return CKL_EUSAGE;
  *out = NULL;
  Value v[MOST_ARGS];
  Job j = {.s = &k->s, .out = out};
  return call_given(&j, f, args, n, v) ? perform(&j, plan_values) : CKL_EUSAGE;
}

/* `plan(fn, track(f32(zeros([8, 3]))), ..).text` */
static const char *plan_expression(TextJob *t) {
  Buf b;
  buf_init_arena(&b, &t->s->scratch);
  buf_printf(&b, "plan(%s", t->c);
  for (size_t i = 0; i < t->n; i++) {
    const char *type = t->list[i], *dims = strchr(type, '[');
    size_t len = dims ? (size_t)(dims - type) : strlen(type);
    bool number = len > 0 && (type[0] == 'f' || !strncmp(type, "bf", 2));
    buf_printf(&b, ", %s%.*s(zeros(%s))%s", number ? "track(" : "", (int)len, type,
               dims ? dims : "[]", number ? ")" : "");
  }
  buf_puts(&b, ").text");
  return b.s;
}

static void plan_types(Job *j) {
  work_eval(j);
}

static void plan_first_call(void *ud) {
  Session *s = ud;
  run_module(s, s->main);
}

static void work_plan(TextJob *t) {
  Session *s = t->s;
  Job j = {.s = s, .path = t->a};
  s->plan.text = NULL;
  load_main(&j);
  if (!check_module(s, s->main, false)) dg_throw(&s->diags);
  if (t->n) {
    plan_types_fit(s, t->c, t->n);
    ckl_value *v = NULL;
    Job e = {.s = s, .text = plan_expression(t), .name = "the types", .out = &v};
    e.n = strlen(e.text);
    plan_types(&e);
    size_t n = 0;
    const char *text = v ? ckl_to_str(v, &n) : NULL;
    if (text) buf_put(t->b, text, n);
    ckl_release(v);
    return;
  }
  s->plan.fn = t->c;
  int code = guard(s, plan_first_call, s);
  s->plan.fn = NULL;
  if (code == MEM_ERR_PLANNED && s->plan.text) {
    buf_puts(t->b, s->plan.text);
    return;
  }
  if (code != MEM_OK) mem_throw(&s->mem, code);
  fail_help(s, ERR_UNKNOWN_NAME, (Span){0},
            "a method is `Model.method`; with a type for each parameter nothing is run",
            "the program calls no compiled function `%s`", t->c);
}

const char *ckl_plan(ckl_session *k, const char *path, const char *fn, const char *const *types,
                     size_t n, bool json) {
  if (!path || !fn || !all_given(types, n)) return NULL;
  TextJob t = {.s = &k->s, .a = path, .c = fn, .list = types, .n = n};
  Session *s = &k->s;
  if (s->busy) return NULL;
  void (*write)(void *ud, int stream, const char *text, size_t size) = s->config.write;
  s->plan.json = json;
  s->config.write = NULL;
  const char *r = text_of(&t, work_plan, true);
  s->config.write = write;
  s->plan.json = false;
  s->plan.fn = NULL;
  return r;
}

typedef Graph *(*Pass)(Arena *a, const Graph *g);
static const struct {
  const char *name;
  Pass run;
} passes[] = {{"dce", gr_dce}, {"cse", gr_cse}, {"fold", gr_fold},
              {"remat", rm_pass}, {"verify", NULL}};
const char *ckl_pass_name(size_t i) {
  return i < sizeof passes / sizeof *passes ? passes[i].name : NULL;
}

static Span span_of_line(const Session *s, uint32_t file, unsigned line) {
  const Source *f = src_get(&s->sources, file);
  uint32_t lo = line ? f->line_start[line - 1] : 0;
  lo += (uint32_t)strspn(f->text + lo, " \t");
  return (Span){file, lo, line ? lo + (uint32_t)strcspn(f->text + lo, "\r\n") : lo};
}

static void work_opt(TextJob *t) {
  Session *s = t->s;
  GErr e = {.code = ERR_IR, .operand = -1};
  Graph *g = gr_read(&s->scratch, s->names, t->c, t->n, &e);
  uint32_t file = src_add_passing(&s->sources, t->a ? t->a : "input", t->c, t->n);
  Span at = {file, 0, 0};
  if (!g) {
    e.code = ERR_IR;
    fail_gerr(s, span_of_line(s, file, e.line), &e);
  }
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (!strcmp(passes[i].name, t->d)) {
      if (passes[i].run) g = passes[i].run(&s->scratch, g);
      if (!gr_verify(g, &e)) {
        e.code = ERR_IR;
        fail_gerr(s, at, &e);
      }
      gr_print(t->b, g);
      return;
    }
  fail(s, ERR_IR, at, "no pass is called `%s`", t->d);
}

const char *ckl_opt(ckl_session *k, const char *pass, const char *name, const char *text,
                    size_t n) {
  if (!pass || !text) return NULL;
  TextJob t = {.s = &k->s, .a = name, .c = text, .n = n, .d = pass};
  return text_of(&t, work_opt, true);
}

const char *ckl_cpu_name(size_t i) {
  return cpu_name(i);
}

ckl_status ckl_dump(ckl_session *k, const char *stage) {
  if (!stage) return CKL_EUSAGE;
  for (size_t i = 0; i < STAGE_COUNT; i++)
    if (!strcmp(stage_names[i], stage)) {
      k->s.dumps |= 1u << i;
      return CKL_OK;
    }
  return CKL_EUSAGE;
}

/* ---- help and generated documents */

static void work_help(TextJob *t) {
  t->found = help_print(t->s, t->b, t->a);
}

const char *ckl_help(ckl_session *k, const char *topic) {
  if (!topic) return NULL;
  TextJob t = {.s = &k->s, .a = topic};
  return text_of(&t, work_help, false);
}

const char *ckl_error_code(size_t i) {
  return i < ERR_COUNT ? err_info[i].code : NULL;
}

static void cell(Buf *b, const char *text) {
  for (; *text; text++) {
    if (*text == '|') buf_putc(b, '\\');
    buf_putc(b, *text == '\n' ? ' ' : *text);
  }
}

static void work_ops(TextJob *t) {
  static const char *const cls[] = {"elementwise", "reduce",  "move",  "contract",
                                    "generate",    "control", "effect"};
  static const char *const remat[] = {"free", "cheap", "dear", "never"}, *const needs[] = {
                                                                             "nothing", "operands",
                                                                             "result", "both"};
  static const char *const dom[] = {"float", "num", "int", "bool", "any"};
  buf_puts(
      t->b,
      "# Ops\n\nGenerated from `graph/ops.def` by `ckl ops --markdown`.\n\n| op | class | operands "
      "| dtypes | recompute | gradient reads | meaning |\n|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < OP_COUNT; i++) {
    const OpInfo *o = &op_info[i];
    buf_printf(t->b, "| `%s` | %s | %s | %s | %s | %s | ", o->text, cls[o->cls],
               o->arity < 0 ? "any" : txt(t->s, "%d", o->arity), dom[o->domain], remat[o->remat],
               needs[o->needs]);
    cell(t->b, o->doc);
    buf_puts(t->b, " |\n");
  }
}

static void work_builtins(TextJob *t) {
  buf_puts(t->b, "# Builtins\n\nGenerated from `lang/builtin/builtins.def` by `ckl builtins "
                 "--markdown`.\n\n| name | signature | meaning |\n|---|---|---|\n");
  for (size_t i = 0; i < builtin_count; i++) {
    if (builtin_table[i].name[0] == '_') continue;
    buf_printf(t->b, "| `%s` | `%s` | ", builtin_table[i].name, builtin_table[i].signature);
    cell(t->b, builtin_table[i].doc);
    buf_puts(t->b, builtin_table[i].flags & BI_SCRIPT ? " (script only) |\n" : " |\n");
  }
}

static void work_errors(TextJob *t) {
  buf_puts(t->b, "# Errors\n\nGenerated from `runtime/errors.def` by `ckl errors --markdown`.\n");
  for (int i = 0; i < ERR_COUNT; i++) {
    buf_printf(t->b, "\n## %s: %s\n\n%s\n", err_info[i].code, err_info[i].title,
               err_info[i].explain);
    if (err_info[i].example[0]) buf_printf(t->b, "\n```ckl wrong\n%s\n```\n", err_info[i].example);
  }
}

static const char *document(ckl_session *k, void (*work)(TextJob *t)) {
  TextJob t = {.s = &k->s};
  return text_of(&t, work, false);
}

const char *ckl_ops_markdown(ckl_session *k) {
  return document(k, work_ops);
}
const char *ckl_builtins_markdown(ckl_session *k) {
  return document(k, work_builtins);
}
const char *ckl_errors_markdown(ckl_session *k) {
  return document(k, work_errors);
}
const char *ckl_version(void) {
  return CKL_VERSION;
}
