/* Sessions: what they own, protected calls, running a program's statements.
 *
 * In: a session and a module or a statement. Out: effects, diagnostics. api_guard() is mem_protect
 * and also restores the evaluator's state (frames, locals, stage, modes), so any error leaves a
 * usable session.
 */
#include "lang/api/session.h"
#include "lang/check/check.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "graph/pass.h"
#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/compile/tiering.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/element.h"
#include "lang/eval/eval.h"
#include "lang/eval/operands.h"
#include "lang/names/module.h"
#include "lang/tape/capture.h"
#include "lang/tape/hook.h"
#include "lang/tape/host_function.h"
#include "lang/tape/tape.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"

typedef struct Guarded {
  Frame *frame;
  size_t locals;
  Stage *stage;
  Modes modes;
  bool abstract, by_reference, made_up;
  int depth, flow, block_depth;
  size_t fixed;
  bool nests;
  uint64_t seed_scope;
  Element *element;
  Running *place;
  OpenLoop *loops;
  Operands *operands;
} Guarded;

int api_guard(Session *s, void (*f)(void *ud), void *ud) {
  Guarded g = {s->frame,
               s->local_count,
               s->stage,
               s->modes,
               s->abstract,
               s->by_reference,
               s->made_up,
               s->depth,
               s->flow,
               s->frame ? s->frame->block_depth : 0,
               s->frame ? s->frame->fixed : 0,
               s->frame && s->frame->nests,
               s->seed_scope,
               s->element,
               s->frame ? s->frame->place : NULL,
               s->loops,
               s->operands};
  int code = mem_protect(&s->mem, f, ud);
  if (code != MEM_OK) {
    local_pop(s, g.locals);
    s->frame = g.frame;
    s->stage = g.stage;
    s->modes = g.modes;
    s->abstract = g.abstract;
    s->by_reference = g.by_reference;
    s->made_up = g.made_up;
    s->depth = g.depth;
    s->flow = g.flow;
    if (s->frame) {
      s->frame->block_depth = g.block_depth;
      s->frame->place = g.place;
      s->frame->fixed = g.fixed;
      s->frame->nests = g.nests;
      s->frame->source = NULL;
      s->frame->iteration = false;
    }
    s->seed_scope = g.seed_scope;
    s->element = g.element;
    s->loops = g.loops;
    operands_cut(s, g.operands);
    value_set(&s->ret, v_unit());
  }
  return code;
}

/* The error's place is the innermost call, which is where a recursion goes on. */
static void stack_full(void *ud) {
  Session *s = ud;
  if (s->abstract) check_gives_up(s); /* `check` goes into both branches of an `if` */
  Span at = s->running;
  for (Frame *f = s->frame; f; f = f->up)
    if (f->call.file) {
      at = f->call;
      break;
    }
  fail_help(s, ERR_C_STACK, at,
            "let a recursion end sooner, or write a loop; more stack helps too (`ulimit -s`, or "
            "the thread's)",
            "nested too deeply: no room is left on the C stack");
}

Stack session_stack(Session *s) {
  return stack_enter(&s->mem, s->config.stack, stack_full, s);
}

void log_compile(Session *s, const FnObj *f, const char *signature) {
  bool debug = s->logs[LOG_COMPILE] > 1;
  log_line(s, LOG_COMPILE, "%s%s%s", call_fn_name(f), debug ? " " : "", debug ? signature : "");
}

void session_dump_graph(Session *s, const Graph *g) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  gr_print(&b, opaque_shown(s, g));
  log_write(s, 2, b.s, b.n);
}

/* A seed from the clock: a program without seed(n) differs from run to run (rule 93). */
static uint64_t system_seed(const Session *s) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  uint64_t x =
      (uint64_t)t.tv_sec * UINT64_C(1000000007) ^ (uint64_t)t.tv_nsec ^ (uint64_t)(uintptr_t)s;
  return x ^ x >> 29;
}

static void start_job(void *ud) {
  Session *s = ud;
  s->names = names_new(&s->perm);
  builtin_start(s);
  src_init(&s->sources, &s->perm);
  s->dims = dim_tab_new(&s->perm);
  shelf_start(s);
  host_declare_all(s);
  Module *m = ARENA_NEW(&s->perm, Module);
  m->name = names_of(s->names, "main");
  s->main = m;
  VEC_PUSH(&s->perm, s->modules, s->module_count, s->module_cap, m);
}

static void notes_job(void *ud) {
  Session *s = ud;
  dg_init(&s->diags, &s->notes, &s->mem);
}

bool session_init(Session *s) {
  arena_init(&s->notes, &s->mem);
  if (api_guard(s, notes_job, s) != MEM_OK) return false;
  s->notes_start = arena_mark(&s->notes);
  return true;
}

bool session_start(Session *s) {
  arena_init(&s->perm, &s->mem);
  arena_init(&s->scratch, &s->mem);
  s->ret = v_unit();
  s->modes = (Modes){.device = s->device};
  s->seed = s->config.has_seed ? s->config.seed : system_seed(s);
  if (api_guard(s, start_job, s) == MEM_OK) return true;
  session_stop(s);
  return false;
}

void session_forget(Session *s) {
  hooks_free(s);
  call_cache_free(s);
  captures_free(s);
  op_grads_free(s);
  native_ops_free(s);
  bi_regexes_free(s);
  bi_save_free(s);
  s->warned_count = 0;
  int64_t values = s->count.values_live; /* no tape lives on */
  memset(&s->count, 0, sizeof s->count);
  s->count.values_live = values;
  mem_peaks_reset(&s->mem);
}

/* Gives back everything but the Session itself and its hook. */
void session_stop(Session *s) {
  local_pop(s, 0);
  value_set(&s->ret, v_unit());
  for (size_t i = 0; i < s->module_count; i++)
    for (size_t k = 0; k < s->modules[i]->global_count; k++)
      value_set(&s->modules[i]->globals[k].v, v_unit());
  session_forget(s);
  native_close(s);
  mem_pool_drain(&s->mem, 0);
  mem_pool_trim(&s->mem);
  src_close(&s->sources);
  mem_free(&s->mem, s->locals, s->local_cap * sizeof(Local));
  mem_free(&s->mem, s->holds, s->hold_cap * sizeof(Hold));
  mem_free(&s->mem, s->sites, s->site_cap * sizeof(Site));
  arena_free(&s->scratch);
  arena_free(&s->perm);
  s->locals = NULL;
  s->local_count = s->local_cap = 0;
  s->holds = NULL;
  s->hold_count = s->hold_cap = 0;
  s->sites = NULL;
  s->site_count = s->site_cap = 0;
  s->modules = NULL;
  s->module_count = s->module_cap = 0;
  s->warned = NULL;
  s->warned_cap = 0;
  s->main = s->prelude = NULL;
  s->names = NULL;
  s->builtins = NULL;
  s->line_times = NULL;
  s->text_out = NULL;
  s->seed_given = false;
}

/* One statement of the top level; its value (of an expression) stays on the pool when `out`. */
void session_run_statement(Session *s, Node *st, Value *out) {
  size_t mark = mem_pool_mark(&s->mem);
  ArenaMark am = arena_mark(&s->scratch);
  uint32_t line, col;
  src_place(&s->sources, st->span.file, st->span.hi ? st->span.hi - 1 : 0, &line, &col);
  s->count.line = line;
  Value v;
  Flow f = eval_stmt(s, st, &v);
  if (f == FLOW_RETURN) fail_at(s, ERR_RETURN, st->span, "`return` stands in functions only");
  if (f != FLOW_NEXT) fail_at(s, ERR_BREAK, st->span, "`break` and `continue` stand in loops only");
  fail_if_interrupted(s, st->span); /* it may have come in a call that does not look for it */
  if (out) {
    *out = v;
    return;
  }
  mem_pool_drain(&s->mem, mark);
  arena_rewind(&s->scratch, am);
}

void session_run_module(Session *s, Module *m) {
  Frame top = {.module = m, .base = s->local_count};
  s->frame = &top;
  for (uint32_t i = 0; i < m->ast->file.items.count; i++) {
    Node *st = m->ast->file.items.items[i];
    if (st->kind == N_USE || st->kind == N_FN || st->kind == N_MODEL || st->kind == N_TYPE_DECL ||
        st->kind == N_POLICY_DECL || st->kind == N_TEST)
      continue;
    session_run_statement(s, st, NULL);
  }
  s->frame = NULL;
}
