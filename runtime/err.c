/* Error texts of a fixed size: they need no memory, so they work when there is none. */
#include "runtime/err.h"

#include <string.h>

#include "runtime/str.h"

static void set_text(Err *e, const char *fmt, va_list ap) {
  int n = str_vformat(e->text, sizeof e->text, fmt, ap);
  if (n < 0) {
    e->text[0] = 0;
  } else if ((size_t)n >= sizeof e->text) {
    size_t end = sizeof e->text - 4;
    while (end && ((unsigned char)e->text[end] & 0xc0) == 0x80) end--; /* do not cut a character */
    memcpy(e->text + end, "...", 4);
  }
}

bool err_set(Err *e, const char *fmt, ...) {
  if (!e) return false;
  e->nomem = e->closed = e->interrupted = false;
  va_list ap;
  va_start(ap, fmt);
  set_text(e, fmt, ap);
  va_end(ap);
  return false;
}

bool err_closed(Err *e, const char *fmt, ...) {
  if (!e) return false;
  e->nomem = false;
  e->closed = true;
  va_list ap;
  va_start(ap, fmt);
  set_text(e, fmt, ap);
  va_end(ap);
  return false;
}

bool err_interrupted(Err *e) {
  err_set(e, "interrupted");
  if (e) e->interrupted = true;
  return false;
}

bool err_nomem(Err *e, const char *what) {
  err_set(e, "out of memory%s%s", what ? ": " : "", what ? what : "");
  if (e) e->nomem = true;
  return false;
}
