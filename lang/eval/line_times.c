/* Times of the lines of script, for ckl_profile.
 *
 * In: the begin and end of each statement of script, with ckl_config.profile. Out: a table of
 * lines. The clock always runs for one line, that of the innermost statement; so the times of all
 * lines add up to the time of the run. Statements of the embedded library do not switch it: what
 * they take, and what compiled code takes, belongs to the line of the program that called.
 * Invariant: a line's path and text are copies, as a text given to ckl_eval may be gone.
 */
#include "lang/eval/line_times.h"

#include <stdlib.h>
#include <string.h>

#include "lang/compile/tiering.h"
#include "lang/names/module.h"

enum { SHOWN = 40, TEXT_MOST = 60 };
static const size_t NOTHING = SIZE_MAX;

typedef struct LineTime {
  const char *path, *text;
  uint32_t line;
  double seconds;
  int64_t runs;
} LineTime;

struct LineTimes { /* all in the session's arena */
  LineTime *items;
  size_t count, cap;
  Table by_line;
  size_t now; /* the line for which the clock runs */
  double since;
};

static struct LineTimes *times_of(Session *s) {
  if (!s->line_times) {
    s->line_times = ARENA_NEW(&s->perm, struct LineTimes);
    s->line_times->by_line.arena = &s->perm;
    s->line_times->now = NOTHING;
  }
  return s->line_times;
}

static size_t line_of(Session *s, struct LineTimes *t, Span at) {
  uint32_t line, col;
  src_place(&s->sources, at.file, at.lo, &line, &col);
  uint64_t key = (uint64_t)at.file << 32 | line;
  ptrdiff_t i = table_get(&t->by_line, key);
  if (i != TABLE_NONE) return (size_t)i;
  const Source *f = src_get(&s->sources, at.file);
  const char *text = f->text + at.lo, *end = memchr(text, '\n', f->length - at.lo);
  size_t n = end ? (size_t)(end - text) : f->length - at.lo;
  LineTime l = {.path = arena_strdup(&s->perm, f->path, strlen(f->path)),
                .text = arena_strdup(&s->perm, text, n < TEXT_MOST ? n : TEXT_MOST),
                .line = line};
  VEC_PUSH(&s->perm, t->items, t->count, t->cap, l);
  table_set(&t->by_line, key, t->count - 1);
  return t->count - 1;
}

/* The time since the last switch goes to line i. */
static void charge(struct LineTimes *t, size_t i) {
  double now = native_clock();
  if (i != NOTHING) t->items[i].seconds += now - t->since;
  t->since = now;
}

size_t line_times_enter(Session *s, Span at) {
  struct LineTimes *t = times_of(s);
  const Module *m = s->frame->module;
  size_t before = t->now;
  if (!m->path && m != s->main) return before;
  charge(t, before);
  t->now = line_of(s, t, at);
  t->items[t->now].runs++;
  return before;
}

/* Charges the statement's own line: an error may have left the clock at one inside of it. */
void line_times_leave(Session *s, size_t before) {
  struct LineTimes *t = s->line_times;
  charge(t, t->now);
  t->now = before;
}

static int by_time(const void *a, const void *b) {
  const LineTime *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
  return x->line < y->line ? -1 : x->line > y->line;
}

void line_times_print(Session *s, Buf *out) {
  const struct LineTimes *t = s->line_times;
  if (!t || !t->count) return;
  LineTime *l = ARENA_ARRAY(&s->scratch, LineTime, t->count);
  memcpy(l, t->items, t->count * sizeof *l);
  qsort(l, t->count, sizeof *l, by_time);
  double all = 0;
  for (size_t i = 0; i < t->count; i++) all += l[i].seconds;
  buf_puts(out,
           "        ms      %      runs  line of script, with all that it calls outside of the "
           "program\n");
  for (size_t i = 0; i < t->count && i < SHOWN; i++)
    buf_printf(out, "%10.2f %6.1f %9lld  %s:%u  %s\n", 1e3 * l[i].seconds,
               all > 0 ? 100 * l[i].seconds / all : 0, (long long)l[i].runs, l[i].path, l[i].line,
               l[i].text);
}
