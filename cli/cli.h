/* Shared by the files of the command line: output streams, options, reporting. Uses ckl.h only. */
#ifndef CKL_CLI_H
#define CKL_CLI_H

#include "ckl.h"

#include <sys/types.h>

/* Exit statuses. */
enum { EXIT_FINE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* ---- out.c: a stream whose every whole line is written at once; write errors are remembered */
typedef struct Out {
  int fd;
  bool terminal, color;
  int error; /* errno of the first write that failed, or 0; later text is dropped */
  const char *name;
  size_t length;
  char text[8192];
} Out;

typedef struct Options {
  const char *color; /* "auto", "always", "never" */
  bool json, verbose, counts, check, help, interpret, emulate, profile, plan, times;
  bool curve, measure, peak; /* of `plan` */
  const char *why, *svg;     /* likewise */
  int threads;               /* of CKL_THREADS; 0: not given */
  const char *filter, *stage, *writes, *pass, *device, *seed;
  const char *cpu, *spill, *files; /* of ckl_config */
  int64_t memory, max_steps, max_nodes;
  /* NULL-terminated; words: arguments that are no options */
  const char **dump, **log, **lib, **args, **words;
  size_t dump_count, log_count, lib_count, arg_count, word_count;
} Options;

/* One run of the program. */
typedef struct Cli {
  Out out, err, trace;
  Options o;
  ckl_session *session; /* the one that Ctrl-C stops */
} Cli;

void out_init(Out *o, int fd, const char *name, const char *color);
void out_write(Out *o, const char *text, size_t n);
void out_puts(Out *o, const char *text);
void out_printf(Out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void out_flush(Out *o);

/* Opens a session as the options say and makes it the one that Ctrl-C stops. NULL: reported. */
ckl_session *cli_open(Cli *c);
void cli_close(Cli *c);
/* Applies --log, --dump and --seed to the session. Returns 0 or an exit status. */
int cli_settings(Cli *c);
/* Prints the diagnostics of the session's last call to standard error. */
void cli_report(Cli *c);
/* The exit status for a status of ckl.h. */
int cli_exit(const Cli *c, ckl_status st);
/* Prints a message such as "ckl run: ...", then a hint how to get help. Returns EXIT_USAGE. */
int cli_usage(Cli *c, const char *command, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads a whole file, "-" being standard input. The caller frees it. NULL: reported. */
char *cli_read(Cli *c, const char *path, size_t *length);

/* ---- interrupt.c */
/* Lets Ctrl-C stop the running call of c->session; twice within one call ends the process. */
void cli_catch_interrupt(Cli *c);
/* Counts Ctrl-C from 0 again. The next one stops a call (`will_run`), or only a read from the
 * terminal. */
void cli_rearm(bool will_run);
/* How many Ctrl-C came since cli_rearm. */
int cli_interrupts(void);
/* Makes Ctrl-C wait, or lets it come again. */
void cli_hold_interrupts(bool hold);
/* Like read(2) from standard input while interrupts are held; fails with EINTR when a Ctrl-C came
 * since cli_rearm. */
ssize_t cli_read_input(char *bytes, size_t n);

/* ---- suggest.c */
typedef struct Suggest {
  const char *wrong;
  char best[80];
  int distance;
} Suggest;
void suggest_start(Suggest *s, const char *wrong);
void suggest_try(Suggest *s, const char *candidate);
/* "; did you mean `x`?" or "". Lives as long as `s` is not used again. */
const char *suggest_text(Suggest *s, char *room, size_t n);

/* ---- main.c */
extern const char cli_topics[];
int cli_help_command(Cli *c, Out *to, const char *name); /* false when there is no such command */
void cli_suggest_commands(Suggest *s);

/* ---- commands.c and repl.c: one function per command, each returns the exit status */
int cmd_run(Cli *c);
int cmd_check(Cli *c);
int cmd_test(Cli *c);
int cmd_fmt(Cli *c);
int cmd_ir(Cli *c);
int cmd_explain(Cli *c);
int cmd_plan(Cli *c);
int cmd_opt(Cli *c);
int cmd_help(Cli *c);
int cmd_ops(Cli *c);
int cmd_errors(Cli *c);
int cmd_builtins(Cli *c);
int cmd_library(Cli *c);
int cmd_passes(Cli *c);
int cmd_version(Cli *c);
int cmd_repl(Cli *c);

/* ---- edit.c: lines from a terminal */
typedef struct Editor Editor;
typedef enum Read { READ_LINE, READ_END, READ_INTERRUPT } Read;
/* NULL: lines are not edited, because libedit is missing or the terminal cannot. `word`: the i-th
 * command of the prompt, for completion; NULL past the end. */
Editor *edit_open(Cli *c, const char *(*word)(size_t i));
/* The next line, which lives until the next call; `more`: it continues an input. */
Read edit_line(Editor *e, bool more, const char **line);
/* Makes a whole input, of one line or several, one entry of the history. */
void edit_remember(Editor *e, const char *text);
void edit_close(Editor *e);

/* ---- repl.c: the part that works without a terminal */
/* Finds the last top-level statement of a REPL input: its first and one-past-last byte, and whether
 * `;` ends it. */
void repl_last_statement(const char *text, size_t *from, size_t *to, bool *silent);

#endif
