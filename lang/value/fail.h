/* Errors and warnings of a program, with places. Errors leave by `fail_raise`, which never returns
 * (runtime/mem.h). */
#ifndef CKL_LANG_VALUE_FAIL_H
#define CKL_LANG_VALUE_FAIL_H

#include "lang/lang.h"

Diag *fail_report(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void fail_raise(Session *s); /* adds the trace of frames */
_Noreturn void fail_at(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void fail_help(Session *s, ErrCode code, Span at, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
_Noreturn void fail_gerr(Session *s, Span at, const GErr *e);
_Noreturn void fail_file(Session *s, Span at, const Err *e); /* an operation on a file failed */
void fail_warn_once(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Formatted text on the scratch arena. */
const char *fail_text(Session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The source text at a place, for help texts; `other` if it is long or not the program's own. */
const char *fail_source_text(Session *s, Span at, const char *other);
/* Whether a place is in the embedded library. */
bool fail_in_library(const Session *s, Span at);
/* The text at a place of the embedded library, if it is one line; else NULL. */
const char *fail_library_text(Session *s, Span at);
void fail_if_interrupted(Session *s, Span at);
void fail_running_at(Session *s, Span at); /* sets the place of errors that have none */
/* A visible name that is close to `name`, or NULL. */
const char *fail_suggest(Session *s, Name name);

#endif
