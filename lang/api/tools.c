/* ckl.h: functions for tools: texts, graphs, plans, passes, help, generated documents.
 *
 * In: paths, names, texts. Out: texts in the notes arena, until the next call that clears it.
 */
#include <string.h>

#include "autograd/remat.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/api/job.h"
#include "lang/api/session.h"
#include "lang/builtin/builtin.h"
#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/compile/report.h"
#include "lang/compile/tiering.h"
#include "lang/eval/call.h"
#include "lang/eval/line_times.h"
#include "lang/names/complete.h"
#include "lang/names/help.h"
#include "lang/names/library.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "lang/value/log.h"
#include "lang/value/state_walk.h"
#include "parser/parse.h"

/* ---- texts */

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
  if (t) *(int64_t *)ud += tn_bytes(t);
}

static void work_bytes(Job *j) {
  walk_leaves(j->s, j->v, add_bytes, j->more);
}

int64_t ckl_bytes(ckl_session *k, const ckl_value *v) {
  int64_t bytes = 0;
  if (!v || !handle_fits(&k->s, v)) return 0;
  Job j = {.s = &k->s, .v = v->v, .more = &bytes};
  return api_perform(&j, work_bytes) == CKL_OK ? bytes : 0;
}

const char *ckl_show(ckl_session *k, const char *name, const ckl_value *v) {
  if (v && !handle_fits(&k->s, v)) return NULL;
  TextJob t = {.s = &k->s, .a = name, .v = v ? v->v : v_unit()};
  return api_text(&t, work_show, true);
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
  const char *r = api_text(&t, work_diag, false);
  return r ? r : k->s.diags.items[i]->message;
}

const char *ckl_diag_json(ckl_session *k, size_t i) {
  if (i >= k->s.diags.count) return "";
  TextJob t = {.s = &k->s, .n = i};
  const char *r = api_text(&t, work_diag_json, false);
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
  return api_text(&t, work_format, true);
}

static void work_profile(TextJob *t) {
  line_times_print(t->s, t->b);
  native_profile(t->s, t->b);
}

const char *ckl_profile(ckl_session *k) {
  TextJob t = {.s = &k->s};
  const char *r = api_text(&t, work_profile, false);
  return r ? r : "";
}

static const char *nth_pass(size_t i, bool (*is)(PassId)) {
  for (PassId id = 0; id < PASS_COUNT; id++)
    if (is(id) && i-- == 0) return passes[id].name;
  return NULL;
}

const char *ckl_stage_name(size_t i) {
  return nth_pass(i, pass_is_stage);
}

static bool all_given(const char *const *texts, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!texts || !texts[i]) return false;
  return true;
}

static void work_ir(TextJob *t) {
  Session *s = t->s;
  Job j = {.s = s, .path = t->a};
  api_load_main(&j);
  Frame top = {.module = s->main};
  s->frame = &top;
  if (!check_ir_print(s, t->b, t->c, t->list, t->n, t->d)) t->found = false;
  s->frame = NULL;
}

const char *ckl_ir(ckl_session *k, const char *path, const char *fn, const char *const *types,
                   size_t n, const char *stage) {
  if (!path || !fn || !all_given(types, n)) return NULL;
  TextJob t = {
      .s = &k->s, .a = path, .c = fn, .list = types, .n = n, .d = stage ? stage : "simplify"};
  return api_text(&t, work_ir, true);
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
  *j->out = api_need_handle(s, report_call(s, j->f, (Span){0}, &a));
}

ckl_status ckl_plan_call(ckl_session *k, ckl_value *f, ckl_value *const *args, size_t n,
                         ckl_value **out) {
  if (!out) return CKL_EUSAGE;
  *out = NULL;
  Value v[MOST_ARGS];
  Job j = {.s = &k->s, .out = out};
  return api_call_given(&j, f, args, n, v) ? api_perform(&j, plan_values) : CKL_EUSAGE;
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
  api_work_eval(j);
}

static void plan_first_call(void *ud) {
  Session *s = ud;
  session_run_module(s, s->main);
}

static void work_plan(TextJob *t) {
  Session *s = t->s;
  Job j = {.s = s, .path = t->a};
  s->report.text = NULL;
  api_load_main(&j);
  if (!check_module(s, s->main, false)) dg_throw(&s->diags);
  if (t->n) {
    check_types_fit(s, t->c, t->n);
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
  s->report.fn = t->c;
  int code = api_guard(s, plan_first_call, s);
  s->report.fn = NULL;
  if (code == MEM_ERR_REPORTED && s->report.text) {
    buf_puts(t->b, s->report.text);
    return;
  }
  if (code != MEM_OK) mem_throw(&s->mem, code);
  fail_help(s, ERR_UNKNOWN_NAME, (Span){0},
            "a method is `Model.method`; with a type for each parameter nothing is run",
            "the program calls no compiled function `%s`", t->c);
}

const char *ckl_plan(ckl_session *k, const char *path, const char *fn, const char *const *types,
                     size_t n, const ckl_plan_options *o) {
  if (!path || !fn || !all_given(types, n)) return NULL;
  TextJob t = {.s = &k->s, .a = path, .c = fn, .list = types, .n = n};
  Session *s = &k->s;
  if (s->busy) return NULL;
  void (*write)(void *ud, int stream, const char *text, size_t size) = s->config.write;
  if (o) {
    s->report.json = o->json;
    s->report.curve = o->curve;
    s->report.measure = o->measure;
    s->report.peak = o->peak;
    s->report.why = o->why;
    s->report.draw = o->svg != NULL;
  }
  s->config.write = NULL;
  const char *r = api_text(&t, work_plan, true);
  s->config.write = write;
  if (o && o->svg) *o->svg = r ? s->report.svg : NULL;
  memset(&s->report, 0, sizeof s->report);
  return r;
}

const char *ckl_pass_name(size_t i) {
  return nth_pass(i, pass_is_tool);
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
  PassId id = pass_find(t->d, strlen(t->d));
  if (id < PASS_COUNT && pass_is_tool(id)) {
    if (passes[id].show) {
      passes[id].show(&(PassText){s, t->b, g, at, id, true});
      return;
    }
    g = passes[id].run(&s->scratch, g);
    if (!gr_verify(g, &e)) {
      e.code = ERR_IR;
      fail_gerr(s, at, &e);
    }
    gr_print(t->b, g);
    return;
  }
  fail_at(s, ERR_IR, at, "no pass is called `%s`", t->d);
}

const char *ckl_opt(ckl_session *k, const char *pass, const char *name, const char *text,
                    size_t n) {
  if (!pass || !text) return NULL;
  TextJob t = {.s = &k->s, .a = name, .c = text, .n = n, .d = pass};
  return api_text(&t, work_opt, true);
}

const char *ckl_cpu_name(size_t i) {
  return cpu_name(i);
}

ckl_status ckl_dump(ckl_session *k, const char *stage) {
  if (!stage) return CKL_EUSAGE;
  PassId id = pass_find(stage, strlen(stage));
  if (id == PASS_COUNT || !pass_is_stage(id)) return CKL_EUSAGE;
  k->s.dumps |= 1u << id;
  return CKL_OK;
}

/* ---- help and generated documents */

static void work_help(TextJob *t) {
  t->found = help_print(t->s, t->b, t->a);
}

const char *ckl_help(ckl_session *k, const char *topic) {
  if (!topic) return NULL;
  TextJob t = {.s = &k->s, .a = topic};
  return api_text(&t, work_help, false);
}

const char *ckl_error_code(size_t i) {
  return i < ERR_COUNT ? err_info[i].code : NULL;
}

static void work_ops(TextJob *t) {
  static const char *const cls[] = {
      [ELEMENTWISE] = "elementwise", [REDUCE] = "reduce", [MOVE] = "move",
      [CONTRACT] = "contract",       [FACTOR] = "factor", [GENERATE] = "generate",
      [CONTROL] = "control",         [EFFECT] = "effect"};
  static const char *const remat[] = {[REMAT_FREE] = "free",
                                      [REMAT_CHEAP] = "cheap",
                                      [REMAT_EXPENSIVE] = "expensive",
                                      [REMAT_NEVER] = "never"};
  static const char *const needs[] = {[NEEDS_NONE] = "nothing",
                                      [NEEDS_IN] = "operands",
                                      [NEEDS_OUT] = "result",
                                      [NEEDS_BOTH] = "both"};
  static const char *const dom[] = {"float", "num", "int", "bool", "any"};
  buf_puts(
      t->b,
      "# Ops\n\nGenerated from `graph/ops.def` by `ckl ops --markdown`.\n\n| op | class | operands "
      "| dtypes | recompute | gradient reads | meaning |\n|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < OP_COUNT; i++) {
    const OpInfo *o = &op_info[i];
    buf_printf(t->b, "| `%s` | %s | %s | %s | %s | %s | ", o->text, cls[o->cls],
               o->arity < 0 ? "any" : fail_text(t->s, "%d", o->arity), dom[o->domain],
               remat[o->remat], needs[o->needs]);
    page_cell(t->b, o->doc);
    buf_puts(t->b, " |\n");
  }
}

static void work_passes(TextJob *t) {
  static const char *const when[] = {
      "always",           "where there are hooks", "where there are blocks", "for a gradient",
      "for machine code", "part of `plan`",        "when asked for",         "by `ckl opt` alone"};
  buf_puts(t->b, "# Passes\n\n");
  page_fill(
      t->b, "",
      "Generated from `lang/compile/pipeline.def` by `ckl passes --markdown`: the passes of a "
      "compiled call, in order. `ckl ir --stage` and `ckl run --dump` take the name of a stage, "
      "`ckl opt --pass` takes the name of a pass; `ckl run --time-passes` prints times.");
  buf_puts(t->b, "\n| name | of what | when | `--stage` | `--pass` | time |\n"
                 "|---|---|---|---|---|---|\n");
  for (PassId id = 0; id < PASS_COUNT; id++) {
    const Pass *p = &passes[id];
    buf_printf(t->b, "| `%s` | ", p->name);
    if (id == PASS_STAGE)
      buf_puts(t->b, "the program");
    else if (p->when == WHEN_ALONE)
      buf_puts(t->b, "any graph");
    else
      buf_printf(t->b, "`%s`", passes[pass_needs(id)].name);
    buf_printf(t->b, " | %s | %s | %s | %s |\n", when[p->when], pass_is_stage(id) ? "yes" : "",
               pass_is_tool(id) ? "yes" : "", pass_is_timed(id) ? "yes" : "");
  }
  buf_puts(t->b, "\nWhat each is for:\n\n");
  for (PassId id = 0; id < PASS_COUNT; id++)
    page_fill(t->b, "- ", fail_text(t->s, "`%s`: %s.", passes[id].name, passes[id].doc));
}

static void work_builtins(TextJob *t) {
  buf_puts(t->b, "# Builtins\n\nGenerated from `lang/builtin/builtins.def` by `ckl builtins "
                 "--markdown`.\n\n| name | signature | meaning |\n|---|---|---|\n");
  for (size_t i = 0; i < builtin_count; i++) {
    if (builtin_table[i].name[0] == '_') continue;
    buf_printf(t->b, "| `%s` | `%s` | ", builtin_table[i].name, builtin_table[i].signature);
    page_cell(t->b, builtin_table[i].doc);
    buf_puts(t->b, builtin_table[i].flags & BI_SCRIPT ? " (script only) |\n" : " |\n");
  }
}

static void work_errors(TextJob *t) {
  buf_puts(t->b, "# Errors\n\nGenerated from `runtime/errors.def` by `ckl errors --markdown`.\n");
  for (int i = 0; i < ERR_COUNT; i++) {
    buf_printf(t->b, "\n## %s: %s\n\n", err_info[i].code, err_info[i].title);
    page_fill(t->b, "", err_info[i].explain);
    if (err_info[i].example[0]) buf_printf(t->b, "\n```ckl wrong\n%s\n```\n", err_info[i].example);
  }
}

static void work_library(TextJob *t) {
  library_page(t->s, t->b);
}

static const char *document(ckl_session *k, void (*work)(TextJob *t)) {
  TextJob t = {.s = &k->s};
  return api_text(&t, work, false);
}

const char *ckl_ops_markdown(ckl_session *k) {
  return document(k, work_ops);
}
const char *ckl_passes_markdown(ckl_session *k) {
  return document(k, work_passes);
}
const char *ckl_builtins_markdown(ckl_session *k) {
  return document(k, work_builtins);
}
const char *ckl_errors_markdown(ckl_session *k) {
  return document(k, work_errors);
}
const char *ckl_library_markdown(ckl_session *k) {
  return document(k, work_library);
}
const char *ckl_version(void) {
  return CKL_VERSION;
}
static void work_libraries(TextJob *t) {
  bi_libraries(t->b);
}
const char *ckl_libraries(ckl_session *k) {
  return document(k, work_libraries);
}
