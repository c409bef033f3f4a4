/* ckl.h: sessions, and running programs in them.
 *
 * In: C calls. Out: statuses, values. job.c runs the work of each call.
 */
#include <stdlib.h>
#include <string.h>

#include "lang/api/job.h"
#include "lang/api/session.h"
#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/compile/tiering.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/steps.h"
#include "lang/names/module.h"
#include "lang/names/reach.h"
#include "lang/names/resolve.h"
#include "lang/tape/host_compiler.h"
#include "lang/tape/host_function.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "lang/value/random.h"
#include "parser/parse.h"
#include "runtime/spill.h"

/* ---- sessions */

static void print_out(void *ud, const char *bytes, size_t n) {
  log_write(ud, 1, bytes, n);
}

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
  s->config.max_nodes =
      full.max_nodes > 0 && full.max_nodes < INT32_MAX ? (uint32_t)full.max_nodes : 1000000;
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
  const char *unroll = getenv("CKL_UNROLL");
  s->config.unroll = unroll && *unroll ? atoi(unroll) : -1;
  const char *plan = getenv("CKL_PLAN");
  s->config.plan = plan && *plan ? atoi(plan) : -1;
  const char *in_place = getenv("CKL_IN_PLACE");
  s->config.in_place = !in_place || strcmp(in_place, "0") != 0;
  s->device = full.device && !strcmp(full.device, "sim") ? DEV_SIM : DEV_CPU;
  if (!known || (full.device && strcmp(full.device, "sim") && strcmp(full.device, "cpu"))) {
    mem_free(&m, k, sizeof *k);
    return NULL;
  }
  s->door.ask = full.may_open;
  s->door.ud = full.may_open_ud;
  s->door.print = print_out;
  s->door.print_ud = s;
  s->mem.door = &s->door;
  s->mem.stop = &s->kernel.stop;
  s->outside = session_stack(s);
  bool started = stack_left() > STACK_RESERVE && door_open(&s->door, &s->mem, full.files) &&
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
  host_functions_free(s);
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
  bool busy = api_keep_busy(&k->s), ok = path && door_reach(&k->s.door, path, false, &r, NULL);
  if (ok) door_leave(&r);
  k->s.busy = busy;
  return ok;
}

void ckl_interrupt(ckl_session *k) {
  interrupt_set(&k->s.kernel.stop, true);
}

/* Whether v is only data: it refers to no tree, name or tape. */
static bool is_plain(Value v) {
  if (v.tag == V_LIST || v.tag == V_TUPLE) {
    for (size_t i = 0; i < v.u.list->count; i++)
      if (!is_plain(v.u.list->items[i])) return false;
    return true;
  }
  return v.tag == V_TENSOR ? v.u.t->node == NULL
                           : v.tag <= V_FLOAT || v.tag == V_DTYPE || v.tag == V_STR;
}

/* Starts the session anew. Values that the host holds stay if they are data; others become (). */
static void api_restart(Session *s) {
  for (ckl_value *v = s->handles; v; v = v->next) {
    Value data = value_bounded(s, v->v) ? state_detach(s, v->v) : v_unit();
    value_set(&v->v, is_plain(data) ? data : v_unit());
  }
  session_stop(s);
  if (!session_start(s)) mem_throw(&s->mem, MEM_ERR_NOMEM);
}

static void work_reset(Job *j) {
  backend_set(j->s, NULL, NULL);
  api_restart(j->s);
}

ckl_status ckl_reset(ckl_session *k) {
  Job j = {.s = &k->s};
  return api_perform(&j, work_reset);
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
  return api_perform(&j, work_set_compiler);
}

typedef struct DefineJob {
  const char *declaration;
  ckl_function f, gradient;
  void *ud;
} DefineJob;

static void work_define(Job *j) {
  DefineJob *d = j->more;
  host_define(j->s, d->declaration, d->f, d->gradient, d->ud);
}

ckl_status ckl_define(ckl_session *k, const char *declaration, ckl_function f,
                      ckl_function gradient, void *ud) {
  DefineJob d = {declaration, f, gradient, ud};
  Job j = {.s = &k->s, .more = &d};
  return declaration && f ? api_perform(&j, work_define) : CKL_EUSAGE;
}

ckl_status ckl_fail(ckl_session *k, const char *why) {
  return host_fails(&k->s, why);
}

/* ---- running */

void api_load_main(Job *j) {
  Session *s = j->s;
  api_restart(s);
  Frame top = {.module = s->main};
  s->frame = &top;
  s->main = module_load_file(s, NULL, j->path, (Span){0});
  s->frame = NULL;
}

/* A program file starts from an empty session, so that two runs in one process print the same. */
static void work_run(Job *j) {
  Session *s = j->s;
  api_load_main(j);
  if (!check_module(s, s->main, false)) dg_throw(&s->diags);
  j->ran = true;
  session_run_module(s, s->main);
  bi_save_end(s);
}

ckl_status ckl_run_file(ckl_session *k, const char *path) {
  if (!path) return CKL_EUSAGE;
  Job j = {.s = &k->s, .path = path};
  return api_perform(&j, work_run);
}

static void work_check(Job *j) {
  Session *s = j->s;
  api_load_main(j);
  if (!check_module(s, s->main, true)) dg_throw(&s->diags);
}

ckl_status ckl_check_file(ckl_session *k, const char *path) {
  if (!path) return CKL_EUSAGE;
  Job j = {.s = &k->s, .path = path};
  return api_perform(&j, work_check);
}

void api_work_eval(Job *j) {
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
    session_run_statement(s, st, is_last ? &last : NULL);
    value = is_last && st->kind == N_EXPR_STMT;
  }
  if (v_is_weak_list(last)) last = op_as_tensor(s, last, DT_COUNT, (Span){0});
  if (j->out && value && last.tag != V_UNIT) *j->out = api_need_handle(s, last);
}

ckl_status ckl_eval(ckl_session *k, const char *text, const char *name, ckl_value **out) {
  if (out) *out = NULL;
  if (!text) return CKL_EUSAGE;
  Job j = {.s = &k->s, .text = text, .n = strlen(text), .name = name, .out = out};
  return api_perform(&j, api_work_eval);
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

/* The variables of the file that the test reads are made anew for it (rule 101). */
static void make_variables(Session *s, Node *test) {
  const NodeList *items = &s->main->ast->file.items;
  const bool *needed = reach_statements(s, s->main, test);
  Frame top = {.module = s->main, .base = s->local_count};
  s->frame = &top;
  for (uint32_t i = 0; i < items->count; i++)
    if (needed[i]) session_run_statement(s, items->items[i], NULL);
  s->frame = NULL;
}

static void forget_variables(Session *s) {
  for (size_t i = 0; i < s->main->global_count; i++) {
    Global *g = &s->main->globals[i];
    if (g->module != s->main || g->kind != G_VALUE || g->is_const) continue;
    value_set(&g->v, v_unit());
    g->is_set = false;
  }
}

static void test_job(void *ud) {
  TestJob *j = ud;
  Session *s = j->s;
  random_reset(s, 0);
  make_variables(s, j->t);
  Frame top = {.module = s->main, .base = s->local_count, .test = true, .block_depth = 1};
  s->frame = &top;
  Flow flow = FLOW_NEXT;
  eval_block(s, j->t->test.body, &flow);
  if (flow != FLOW_NEXT)
    fail_at(s, ERR_BREAK, j->t->span, "`break`, `continue` and `return` cannot leave a test");
  bi_save_end(s);
}

static void work_test(Job *j) {
  Session *s = j->s;
  TestRun *r = j->more;
  api_load_main(j);
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
    int code = api_guard(s, test_job, &tj);
    s->frame = NULL;
    forget_variables(s);
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
  ckl_status st = api_perform(&j, work_test);
  return st == CKL_OK && r.failed ? CKL_ERUN : st;
}

ckl_value *ckl_get(ckl_session *k, const char *name) {
  Session *s = &k->s;
  if (!name) return NULL;
  for (size_t i = 0; s->main && i < s->main->global_count; i++) {
    Global *g = &s->main->globals[i];
    if (!strcmp(g->name, name) && g->is_set && g->kind != G_TYPE && g->kind != G_POLICY)
      return api_handle(k, g->v);
  }
  return NULL;
}

static void work_set(Job *j) {
  global_set(j->s, j->s->main, names_of(j->s->names, j->name), j->v, false, (Span){0});
}

ckl_status ckl_set(ckl_session *k, const char *name, ckl_value *v) {
  if (!name || !handle_fits(&k->s, v)) return CKL_EUSAGE;
  if (!parse_is_name(name) || module_name_is_fixed(name)) return CKL_EUSAGE;
  Job j = {.s = &k->s, .name = name, .v = v->v};
  return api_perform(&j, work_set);
}

bool api_call_given(Job *j, const ckl_value *f, ckl_value *const *args, size_t n,
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
  if (j->out) *j->out = api_need_handle(s, r);
}

ckl_status ckl_call(ckl_session *k, ckl_value *f, ckl_value *const *args, size_t n,
                    ckl_value **out) {
  if (out) *out = NULL;
  Value v[MOST_ARGS];
  Job j = {.s = &k->s, .out = out};
  return api_call_given(&j, f, args, n, v) ? api_perform(&j, work_call) : CKL_EUSAGE;
}
