/* Progress bars.
 *
 * In: how far each progress has come. Out: lines on stream 2. On a terminal all open bars stand
 * below one another and are redrawn together; other text is written above them. The bar that began
 * first leaves its last line behind; the bars of loops inside of it vanish as they end. On a pipe
 * each progress writes a line now and then, and one at its end.
 * Invariants: the cursor stands at the end of the last of the `lines` bars. Nothing here allocates
 * memory, so that it also works while an error is propagating.
 */
#include "lang/value/bars.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "runtime/str.h"

enum { BAR_WIDTH = 24 };
static const double bar_every = 0.1, line_every = 10; /* seconds, on a terminal and on a pipe */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put(Session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(Session *s, const char *fmt, ...) {
  char b[256];
  va_list ap;
  va_start(ap, fmt);
  int n = str_vformat(b, sizeof b, fmt, ap);
  va_end(ap);
  if (n > (int)sizeof b - 1) n = sizeof b - 1;
  if (n > 0 && s->config.write) s->config.write(s->config.ud, 2, b, (size_t)n);
}

/* Label and counts on a pipe. */
static void put_line(Session *s, const Bar *b) {
  const char *colon = *b->label ? ": " : "";
  if (b->n < 0)
    put(s, "%.80s%s%lld\n", b->label, colon, (long long)b->passed);
  else
    put(s, "%.80s%s%lld of %lld\n", b->label, colon, (long long)b->passed, (long long)b->n);
}

/* Labels of several bars are cut, as a line that wraps would be two. */
static void put_bar(Session *s, const Bar *b, int label, const char *end) {
  const char *colon = *b->label ? ": " : "";
  if (b->n < 0) {
    put(s, "\r%.*s%s%lld  %.1f s\x1b[K%s", label, b->label, colon, (long long)b->passed,
        now() - b->started, end);
    return;
  }
  char bar[BAR_WIDTH + 1];
  int full = b->n ? (int)((double)b->passed / (double)b->n * BAR_WIDTH) : BAR_WIDTH;
  for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < full ? '#' : '.';
  bar[BAR_WIDTH] = 0;
  put(s, "\r%.*s%s[%s] %lld of %lld  %.1f s\x1b[K%s", label, b->label, colon, bar,
      (long long)b->passed, (long long)b->n, now() - b->started, end);
}

static void to_top(Session *s) {
  if (s->bars.lines > 1) put(s, "\x1b[%dA", s->bars.lines - 1);
}

void bars_hide(Session *s) {
  if (!s->bars.lines) return;
  to_top(s);
  put(s, "\r\x1b[J");
  s->bars.lines = 0;
}

static void redraw(Session *s) {
  const Bar *first = s->bars.first;
  if (!first) return;
  to_top(s);
  s->bars.lines = 0;
  for (const Bar *b = first; b; b = b->next) {
    put_bar(s, b, first->next ? 24 : 80, b->next ? "\n" : "");
    s->bars.lines++;
  }
  s->bars.drawn = now();
}

void bar_start(Bar *b, const char *label) {
  *b = (Bar){.label = label, .started = now()};
  b->written = b->started;
}

void bar_show(Session *s, Bar *b) {
  double t = now();
  if (!s->config.terminal) {
    if (t - b->written < line_every) return;
    put_line(s, b);
    b->written = t;
    return;
  }
  bool begins = !b->open;
  if (begins) {
    Bar **last = &s->bars.first;
    while (*last) last = &(*last)->next;
    bars_hide(s); /* they may be cut now */
    *last = b;
    b->open = true;
  }
  if (begins || !s->bars.lines || t - s->bars.drawn >= bar_every) redraw(s);
}

/* Takes the bar off the terminal; what began first leaves a line. */
static void leave(Session *s, Bar *b) {
  bool first = s->bars.first == b;
  Bar **at = &s->bars.first;
  while (*at && *at != b) at = &(*at)->next;
  if (!*at) return;
  bars_hide(s);
  *at = b->next;
  b->open = false;
  if (first) put_bar(s, b, 80, "\n");
  redraw(s);
}

void bar_end(Session *s, Bar *b) {
  if (b->closed) return;
  b->closed = true;
  if (!s->config.terminal)
    put_line(s, b);
  else if (b->open)
    leave(s, b);
  else if (!s->bars.first)
    put_bar(s, b, 80, "\n");
}

void bar_drop(Session *s, Bar *b) {
  if (b->open) leave(s, b);
}
