/* What the files of the golden runner share; runner.c says what it does. */
#ifndef CKL_TESTS_GOLDEN_RUNNER_H
#define CKL_TESTS_GOLDEN_RUNNER_H

#include "ckl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILE_SECONDS = 600 }; /* backward/frees.ckl in loop form takes 200 s under ASan */

/* ---- text.c */
typedef struct Text {
  char *s;
  size_t n, room;
} Text;

_Noreturn void die(const char *what); /* with errno */
void *grow(void *p, size_t n);
void add(Text *t, const char *s, size_t n);
void adds(Text *t, const char *s);
void addf(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *text_of(const Text *t); /* "" for an empty one */
void clear(Text *t);

typedef struct Names {
  char **s;
  size_t n;
} Names;

bool has(const Names *l, const char *s, size_t n);
void push(Names *l, const char *s, size_t n);
void push_new(Names *l, const char *s, size_t n); /* unless it is there */
void clear_names(Names *l);

bool read_file(const char *path, Text *t);
bool write_file(const char *path, const Text *t);
void show_difference(Text *why, const char *old, const char *new);

/* ---- observe.c */
typedef struct Options {
  bool bless, no_format;
  const char *root, *fail, *codes, *without;
  long at_least, every, from;
} Options;
extern Options opt; /* runner.c */

/* Output of one top-level statement. */
typedef struct Said {
  int64_t line; /* on which the statement ends; 0: none */
  int stream;
  Text text;
} Said;

typedef struct Run {
  ckl_session *s;
  Said *said;
  size_t count;
  Text out; /* all of stream 1 */
  Text diags;
  ckl_status status;
  /* the allocator */
  int64_t live;     /* bytes */
  uint64_t calls;   /* that asked for more */
  uint64_t fail_at; /* which of them fails; 0: none */
  bool quiet;
} Run;

extern int tests, failures;
extern char current_path[1024]; /* shown where a program crashes or does not end */

void tap(bool ok, const char *title, const Text *why);
void watch_signals(void);

typedef ckl_status (*Action)(ckl_session *s, const char *path);

bool open_session(Run *r);
void close_session(Run *r);
void run(Run *r, Action action, const char *path);
void run_free(Run *r);
/* Opens a session, runs the file, closes it; what is wrong with leaks goes to `why`. */
bool run_observed(Run *r, Text *why, Action action, const char *path);

/* All tests below `path`: files .ckl, in order; a name that starts with '_' belongs to another
 * file. */
void collect(Names *files, const char *path);
void make_scratch(void);
void remove_scratch(void);
void enter_run_folder(void);
/* Enters an empty folder in which all that lies beside `path` can be reached by the same paths, and
 * `path` itself has the given text. */
void enter_copy(const char *path, const Text *t);

/* ---- failing.c */
void check_failing(const char *path);
void check_failing_open(void);

/* ---- provoked.c */
/* Remembers which errors were seen: codes, and first lines without the place. */
void note_diags(ckl_session *s);
void note_printed_codes(const char *text);
void check_help(void);
void check_codes(void);
void forget_codes(void);

#endif
