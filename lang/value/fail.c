/* Errors of the language layer: files a diagnostic with the trace of calls, and leaves.
 *
 * In: a code, a place, a text. Out: never returns (fail_raise), or returns a filed Diag to add
 * labels to (fail_report). Idea: the function that finds a fault knows most about it, so it files
 * the error and leaves at once; the pool is released on the way (runtime/mem.h).
 */
#include <stdio.h>
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "lang/value/path.h"
#include "stdlib/embed.h"

const char *fail_text(Session *s, const char *fmt, ...) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  va_list ap;
  va_start(ap, fmt);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return b.s ? b.s : "";
}

/* An error in the library is shown where the program called it. */
bool fail_in_library(const Session *s, Span at) {
  return src_get(&s->sources, at.file)->path[0] == '<';
}

static bool inside(Span a, Span b) {
  return a.file == b.file && a.lo >= b.lo && a.hi <= b.hi;
}

/* Moves an error out of the library, and drops labels inside of the library; returns the frame
 * below which the trace begins. */
static Frame *settle_place(Session *s, Diag *d) {
  Frame *f = s->frame;
  if (fail_in_library(s, d->span)) {
    Frame *out = f;
    while (out && out->up && (!out->call.file || fail_in_library(s, out->call))) out = out->up;
    if (out && out->up && out->call.file) {
      const char *name = path_frame_title(s, out);
      d->span = out->call;
      d->message = d->code == ERR_NOT_YET
                       ? arena_printf(&s->notes, "not yet: `%s`", name)
                       : arena_printf(&s->notes, "in `%s`: %s", name, d->message);
      d->label = NULL;
      f = out->up;
    }
  }
  int n = 0;
  for (int i = 0; i < d->label_count; i++)
    if (!fail_in_library(s, d->labels[i].span) || fail_in_library(s, d->span))
      d->labels[n++] = d->labels[i];
  d->label_count = n;
  return f;
}

const char *fail_source_text(Session *s, Span at, const char *other) {
  const Source *f = src_get(&s->sources, at.file);
  if (!f->file || fail_in_library(s, at)) return other;
  if (at.lo >= at.hi || at.hi > f->length || at.hi - at.lo > 32) return other;
  for (uint32_t i = at.lo; i < at.hi; i++)
    if (f->text[i] == '\n' || f->text[i] == '`') return other;
  return arena_strdup(&s->scratch, f->text + at.lo, at.hi - at.lo);
}

const char *fail_library_text(Session *s, Span at) {
  const Source *f = src_get(&s->sources, at.file);
  if (!f->file || !fail_in_library(s, at) || at.lo >= at.hi || at.hi > f->length) return NULL;
  if (memchr(f->text + at.lo, '\n', at.hi - at.lo)) return NULL;
  return arena_strdup(&s->scratch, f->text + at.lo, at.hi - at.lo);
}

Diag *fail_report(Session *s, ErrCode code, Span at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *d = dg_verror(&s->diags, code, at, fmt, ap);
  va_end(ap);
  return d;
}

_Noreturn void fail_raise(Session *s) {
  Diag *d = s->diags.count ? s->diags.items[s->diags.count - 1] : NULL;
  if (!d || d->severity != SEV_ERROR) dg_throw(&s->diags);
  Frame *f = settle_place(s, d);
  bool first = true;
  size_t skipped = 0;
  while (f && f->up) {
    Frame *g = f->up;
    size_t same = 1; /* direct recursion is one line */
    if (!f->call.file || fail_in_library(s, f->call) || (first && inside(d->span, f->call))) {
      first = first && (!f->call.file || fail_in_library(s, f->call));
      f = g;
      continue;
    }
    first = false;
    for (; g && g->up && g->what == f->what && inside(g->call, f->call); g = g->up) same++;
    const char *what = path_frame_title(s, f);
    bool seen = false; /* mutual recursion: each call is listed once */
    for (int i = 0; i < d->trace_count && i < 16; i++)
      seen |= inside(d->trace[i].span, f->call) && inside(f->call, d->trace[i].span);
    if (seen) {
      skipped += same;
      f = g;
      continue;
    }
    dg_trace(d, f->call, same > 1 ? arena_printf(&s->notes, "%s (%zu times)", what, same) : what);
    f = g;
  }
  if (skipped && d->trace_count <= 16)
    d->trace[0].what =
        arena_printf(&s->notes, "%s (and %zu more calls like these)", d->trace[0].what, skipped);
  dg_throw(&s->diags);
}

_Noreturn void fail_at(Session *s, ErrCode code, Span at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  dg_verror(&s->diags, code, at, fmt, ap);
  va_end(ap);
  fail_raise(s);
}

_Noreturn void fail_help(Session *s, ErrCode code, Span at, const char *help, const char *fmt,
                         ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *d = dg_verror(&s->diags, code, at, fmt, ap);
  va_end(ap);
  dg_help(&s->diags, d, "%s", help);
  fail_raise(s);
}

_Noreturn void fail_file(Session *s, Span at, const Err *e) {
  if (e->nomem) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (e->interrupted) fail_if_interrupted(s, at);
  if (e->closed)
    fail_help(s, ERR_CLOSED, at,
              "the host says which files are open to a program: `ckl run --files=FOLDER`, "
              "`ckl_config.files`",
              "%s", e->text);
  fail_at(s, ERR_FILE, at, "%s", e->text);
}

static _Noreturn void interrupted(Session *s, Span at) {
  fail_report(s, ERR_INTERRUPT, at, "interrupted");
  mem_throw(&s->mem, MEM_ERR_INTERRUPT);
}

_Noreturn void fail_gerr(Session *s, Span at, const GErr *e) {
  if (e->nomem) mem_throw(&s->mem, MEM_ERR_NOMEM);
  if (e->interrupted) interrupted(s, at);
  Diag *d = fail_report(s, e->code, at, "%s", e->text);
  if (e->help[0]) dg_help(&s->diags, d, "%s", e->help);
  fail_raise(s);
}

Diag *fail_run(Session *s, const GErr *e, Span at, const char *what, Span call, Span staged,
               const char *inner) {
  if (e->interrupted) fail_if_interrupted(s, call);
  if (e->nomem) mem_throw(&s->mem, MEM_ERR_NOMEM);
  size_t n = inner ? strlen(inner) : 0; /* a method (`what` is "inner.f") tells more than `inner` */
  if (n && !strncmp(what, inner, n) && what[n] == '.') inner = NULL;
  bool library = fail_in_library(s, at) && call.file && !fail_in_library(s, call);
  bool other = staged.file != call.file || staged.lo != call.lo;
  if (!at.file || library || (other && inside(at, staged))) at = call;
  Diag *d = library ? fail_report(s, e->code, at, "in `%s`: %s", inner ? inner : what, e->text)
                    : fail_report(s, e->code, at, "%s", e->text);
  if (e->help[0]) dg_help(&s->diags, d, "%s", e->help);
  if (call.file && !inside(at, call)) {
    if (inner && strcmp(inner, what)) dg_trace(d, (Span){0}, inner);
    dg_trace(d, call, what);
  }
  return d;
}

void fail_warn_once(Session *s, ErrCode code, Span at, const char *fmt, ...) {
  uint64_t key = ((uint64_t)code << 48) ^ ((uint64_t)at.file << 32) ^ at.lo;
  for (uint32_t i = 0; i < s->warned_count; i++)
    if (s->warned[i] == key) return;
  size_t count = s->warned_count;
  VEC_PUSH(&s->perm, s->warned, count, s->warned_cap, key);
  s->warned_count = (uint32_t)count;
  va_list ap;
  va_start(ap, fmt);
  const char *text = NULL;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  text = b.s;
  Diag *d = dg_warn(&s->diags, code, at, "%s", text);
  if (d->severity == SEV_ERROR) dg_throw(&s->diags); /* filed for lack of memory */
  settle_place(s, d);
  if (s->abstract || (s->stage && s->stage->unit && s->stage->unit->check))
    return; /* `check` reports it with the other diagnostics */
  /* The warnings of a running program are shown at once, so that they stand among its output. */
  Buf out;
  buf_init_arena(&out, &s->scratch);
  if (s->config.json) {
    dg_render_json(&out, &s->sources, d);
    if (!out.n || out.s[out.n - 1] != '\n') buf_putc(&out, '\n');
  } else {
    dg_render(&out, &s->sources, d, false);
  }
  log_write(s, 2, out.s, out.n);
  for (size_t i = 0; i < s->diags.count; i++)
    if (s->diags.items[i] == d) {
      memmove(&s->diags.items[i], &s->diags.items[i + 1],
              (s->diags.count - i - 1) * sizeof *s->diags.items);
      s->diags.count--;
      break;
    }
}

void fail_if_interrupted(Session *s, Span at) {
  if (interrupt_asked(&s->kernel.stop)) interrupted(s, at);
}

void fail_running_at(Session *s, Span at) {
  if (at.file && !fail_in_library(s, at)) s->running = at;
}

const char *fail_suggest(Session *s, Name name) {
  Near b = near_start(name);
  for (size_t i = s->local_count; s->frame && i > s->frame->base; i--)
    near_try(&b, s->locals[i - 1].name);
  if (s->frame && s->frame->self)
    for (size_t i = 0; i < s->frame->self->count; i++) near_try(&b, s->frame->self->fields[i].name);
  Module *ms[2] = {s->frame ? s->frame->module : s->main, s->prelude};
  for (int m = 0; m < 2; m++)
    if (ms[m])
      for (size_t i = 0; i < ms[m]->global_count; i++) near_try(&b, ms[m]->globals[i].name);
  for (size_t i = 0; i < builtin_count; i++) near_try(&b, builtin_table[i].name);
  for (size_t i = 0; i < std_name_count; i++) near_try(&b, std_names[i].name);
  for (int i = 0; i < DT_COUNT; i++) near_try(&b, dtype_info[i].name);
  return b.found;
}
