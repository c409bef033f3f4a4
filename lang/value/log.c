/* Output of a session. All output of the library goes through ckl_config.write. */
#include "lang/value/log.h"

#include "lang/value/bars.h"

void log_write(Session *s, int stream, const char *text, size_t n) {
  if (n && stream != 3) bars_hide(s);
  if (s->config.write && n) s->config.write(s->config.ud, stream, text, n);
}

const char *const log_names[LOG_COUNT] = {
    [LOG_COMPILE] = "compile", [LOG_LOAD] = "load",         [LOG_WRAP] = "wrap",
    [LOG_JIT] = "jit",         [LOG_BACKWARD] = "backward", [LOG_WAIT] = "wait"};

void log_line(Session *s, int channel, const char *fmt, ...) {
  if (!s->logs[channel]) return;
  va_list ap;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "%s: ", log_names[channel]);
  va_start(ap, fmt);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  buf_putc(&b, '\n');
  log_write(s, 2, b.s, b.n);
}
