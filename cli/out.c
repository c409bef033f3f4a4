/* Text to the terminal, a pipe or a file.
 *
 * In: pieces of text. Out: writes of whole lines, so that `ckl run train.ckl | tee log` shows every
 * line when it is printed. Invariant: after a failed write nothing more is written to that stream,
 * and the error is reported once, except for a closed pipe, which is normal. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void out_init(Out *o, int fd, const char *name, const char *color) {
  memset(o, 0, sizeof *o);
  o->fd = fd;
  o->name = name;
  o->terminal = isatty(fd);
  if (!strcmp(color, "always")) {
    o->color = true;
  } else if (!strcmp(color, "auto")) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    o->color = o->terminal && !(no && no[0]) && !(term && !strcmp(term, "dumb"));
  }
}

static void put(Out *o, const char *text, size_t n) {
  while (n && !o->error) {
    ssize_t k = write(o->fd, text, n);
    if (k >= 0) {
      text += k;
      n -= (size_t)k;
    } else if (errno != EINTR && errno != EAGAIN) {
      o->error = errno;
      if (o->fd != STDERR_FILENO && errno != EPIPE)
        fprintf(stderr, "ckl: cannot write %s: %s\n", o->name, strerror(errno));
    }
  }
}

void out_flush(Out *o) {
  size_t n = o->length;
  o->length = 0;
  put(o, o->text, n);
}

void out_write(Out *o, const char *text, size_t n) {
  if (!n) return;
  if (n > sizeof o->text - o->length) out_flush(o);
  if (n > sizeof o->text) {
    put(o, text, n);
    return;
  }
  memcpy(o->text + o->length, text, n);
  o->length += n;
  if (text[n - 1] == '\n' || o->terminal) out_flush(o);
}

void out_puts(Out *o, const char *text) {
  out_write(o, text, strlen(text));
}

void out_printf(Out *o, const char *fmt, ...) {
  char room[1024], *text = room;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(room, sizeof room, fmt, ap);
  va_end(ap);
  if (n < 0) return;
  if ((size_t)n >= sizeof room) {
    text = malloc((size_t)n + 1);
    if (!text) {
      out_write(o, room, sizeof room - 1);
      return;
    }
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
  }
  out_write(o, text, (size_t)n);
  if (text != room) free(text);
}
