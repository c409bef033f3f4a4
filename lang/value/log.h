/* Output of a session: text of the program, and lines of the log channels. */
#ifndef CKL_LANG_VALUE_LOG_H
#define CKL_LANG_VALUE_LOG_H

#include "lang/lang.h"

void log_write(Session *s, int stream, const char *text, size_t n);

extern const char *const log_names[LOG_COUNT]; /* names of channels */
/* Writes a line "channel: .." on stream 2 if the channel is on. */
void log_line(Session *s, int channel, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
