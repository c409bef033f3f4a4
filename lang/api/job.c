/* Calls of the C API: begin, guarded work, end.
 *
 * In: work. Out: a status, a text, diagnostics. Every call that may fail runs its work under
 * api_guard(), and its outcome becomes a status here. Returned texts live in the notes arena, until
 * the next call that clears it.
 * Invariant: a session is busy while a call of it runs. A call that a function of the host makes
 * during it finds the session busy, and begin() refuses it.
 */
#include "lang/api/job.h"

#include <stdio.h>

#include "lang/api/session.h"
#include "lang/compile/compile.h"
#include "lang/compile/tiering.h"
#include "lang/eval/steps.h"

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

/* A place is warned of once; after so many places a session forgets them and may warn again. */
enum { WARNED_MOST = 4096 };

/* Makes the session ready for a call. CKL_ENOMEM: the session was lost for lack of memory and
 * cannot start again, or the thread has too little stack. */
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
  enum { MORE = 1 << 20 }; /* more allocations will follow the refused one */
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

static void run_job(void *ud) {
  Job *j = ud;
  j->work(j);
}

ckl_status api_perform(Job *j, void (*work)(Job *j)) {
  Session *s = j->s;
  ckl_status st = begin(s);
  if (st != CKL_OK) return st;
  j->work = work;
  int code = api_guard(s, run_job, j);
  st = status_of(s, code, j->ran);
  end(s);
  return st;
}

bool api_keep_busy(Session *s) {
  bool busy = s->busy;
  s->busy = true;
  return busy;
}

void api_make_value(Job *j, void (*work)(Job *j)) {
  Session *s = j->s;
  bool busy = api_keep_busy(s);
  size_t mark = mem_pool_mark(&s->mem);
  j->work = work;
  if (api_guard(s, run_job, j) == MEM_OK) mem_pool_drain(&s->mem, mark);
  s->busy = busy;
}

/* ---- texts */

static void text_job(void *ud) {
  TextJob *t = ud;
  t->work(t);
}

const char *api_text(TextJob *t, void (*work)(TextJob *t), bool clear) {
  Session *s = t->s;
  if (clear && begin(s) != CKL_OK) return NULL;
  bool busy = api_keep_busy(s);
  Stack outside = session_stack(s);
  Buf b;
  buf_init_arena(&b, &s->notes);
  t->b = &b;
  t->found = true;
  t->work = work;
  int code = api_guard(s, text_job, t);
  if (code != MEM_OK && clear) status_of(s, code, false);
  stack_leave(outside);
  s->busy = busy;
  if (clear) end(s);
  if (code != MEM_OK || !t->found) return NULL;
  return b.s ? b.s : "";
}
