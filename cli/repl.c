/* The REPL: reads statements, runs them and shows their values.
 *
 * In: lines from a terminal (edited with libedit if it was built in) or from a pipe. Out: values on
 * standard output, diagnostics on standard error. An input runs as soon as ckl_is_complete accepts
 * it. Invariant: variables stay after any failure or interrupt. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

typedef struct Repl {
  Cli *cli;
  bool terminal; /* prompts, banner */
  bool more;     /* the prompt is for another line of the same input */
  bool failed;   /* a statement failed (the exit status of a pipe) */
  char *text;    /* the input so far */
  size_t length, room;
  char *line; /* the last one, unless lines are edited */
  size_t line_room;
  char ahead[4096]; /* read from standard input, of which [at, have) are no line yet */
  size_t at, have;
  Editor *edit; /* NULL: lines are not edited */
} Repl;

/* ---- inputs: enough of the lexer to find the last statement of one */

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

/* The closing quote of the string that opens at byte i, or where its line ends. */
static size_t string_end(const char *text, size_t i, size_t n) {
  bool raw = i && text[i - 1] == 'r' && (i < 2 || !is_word(text[i - 2]));
  if (i + 2 < n && text[i + 1] == '"' && text[i + 2] == '"') {
    for (i += 3; i + 2 < n && memcmp(text + i, "\"\"\"", 3) != 0; i++) continue;
    return i + 2;
  }
  for (i++; i < n && text[i] != '"' && text[i] != '\n'; i++)
    i += !raw && text[i] == '\\' && i + 1 < n;
  return i;
}

/* Whether a newline after text[..n) ends a statement, as in the lexer (language reference,
 * "Lexer"). */
static bool can_end(const char *text, size_t n) {
  static const char *const open_words[] = {"fn",     "let", "var",   "if",         "else",
                                           "for",    "in",  "while", "checkpoint", "wrap",
                                           "assert", "and", "or",    "not",        "backward"};
  while (n && isspace((unsigned char)text[n - 1])) n--;
  if (!n) return false;
  if (strchr(")]}\"", text[n - 1])) return true;
  if (!is_word(text[n - 1])) return false;
  size_t from = n;
  while (from && is_word(text[from - 1])) from--;
  for (size_t i = 0; i < sizeof open_words / sizeof *open_words; i++)
    if (strlen(open_words[i]) == n - from && !strncmp(open_words[i], text + from, n - from))
      return false;
  return true;
}

void repl_last_statement(const char *text, size_t *from, size_t *to, bool *silent) {
  size_t n = strlen(text), start = 0, end = 0, depth = 0, i = 0;
  bool open = true; /* a further statement may begin here */
  *silent = false;
  while (i < n) {
    char c = text[i];
    if (c == '#') {
      while (i < n && text[i] != '\n') i++;
      continue;
    }
    bool separator =
        !depth && (c == ';' || (c == '\n' && !open && can_end(text + start, end - start)));
    if (separator && c == '\n') {
      size_t k = i;
      while (k < n && isspace((unsigned char)text[k])) k++;
      if (text[k] == '.') separator = false; /* a chain of calls goes on in the next line */
    }
    if (separator) {
      if (c == ';') *silent = true;
      open = true;
    } else if (!isspace((unsigned char)c)) {
      if (open) start = i;
      open = false;
      *silent = false;
      if (strchr("([{", c)) depth++;
      if (strchr(")]}", c) && depth) depth--;
      if (c == '"') i = string_end(text, i, n);
      end = i < n ? i + 1 : n;
    }
    i++;
  }
  *from = start;
  *to = end > start ? end : start;
}

/* ---- showing */

/* Shows a value, which is `_` from then on. */
static void show(Repl *r, const char *name, ckl_value *v) {
  const char *text = ckl_show(r->cli->session, name, v);
  if (!text) return;
  size_t n = strlen(text);
  out_write(&r->cli->out, text, n);
  if (n && text[n - 1] != '\n') out_puts(&r->cli->out, "\n");
  ckl_set(r->cli->session, "_", v);
}

static void show_variable(Repl *r, const char *text, size_t n) {
  char name[128];
  if (!n || n >= sizeof name || (n == 1 && text[0] == '_')) return;
  memcpy(name, text, n);
  name[n] = 0;
  ckl_value *v = ckl_get(r->cli->session, name);
  if (v) show(r, name, v);
  ckl_release(v);
}

static size_t word_length(const char *text, size_t n) {
  size_t k = 0;
  while (k < n && is_word(text[k])) k++;
  return k && !isdigit((unsigned char)text[0]) ? k : 0;
}

/* Shows the result of the last statement of `text`: `value`, or the variables of its `let`. */
static void show_result(Repl *r, const char *text, ckl_value *value) {
  size_t from, to;
  bool silent;
  repl_last_statement(text, &from, &to, &silent);
  if (silent) return;
  const char *p = text + from, *end = text + to;
  if (value) {
    char name[128];
    size_t n = word_length(p, to - from);
    bool literal = (n == 4 && (!strncmp(p, "true", 4) || !strncmp(p, "none", 4))) ||
                   (n == 5 && !strncmp(p, "false", 5));
    bool is_name = n && n == to - from && n < sizeof name && !literal;
    if (ckl_kind_of(value) == CKL_UNIT) return;
    snprintf(name, sizeof name, "%.*s", is_name ? (int)n : 0, p);
    show(r, is_name ? name : NULL, value);
    return;
  }
  if (to - from < 4 || (strncmp(p, "let", 3) && strncmp(p, "var", 3)) || is_word(p[3])) return;
  for (p += 3; p < end && isspace((unsigned char)*p); p++) continue;
  if (p < end && *p != '(' && *p != '{') {
    show_variable(r, p, word_length(p, (size_t)(end - p)));
    return;
  }
  for (int depth = 0; p < end; p++) {
    if (*p == '(' || *p == '{') depth++;
    if ((*p == ')' || *p == '}') && --depth == 0) return;
    size_t n = word_length(p, (size_t)(end - p));
    if (n) {
      show_variable(r, p, n);
      p += n - 1;
    }
  }
}

/* ---- running */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Does the terminal print ^C by itself? */
static bool echoes_interrupt(const Repl *r) {
  struct termios t;
  return r->terminal && !tcgetattr(STDIN_FILENO, &t) && (t.c_lflag & ECHO);
}

/* Reports the outcome of a call that took `seconds`. True when it succeeded. */
static bool finish(Repl *r, ckl_status st, double seconds) {
  if (st == CKL_EINTERRUPT) {
    out_flush(&r->cli->out);
    out_printf(&r->cli->err, "%s  interrupted after %.1f s; variables kept\n",
               echoes_interrupt(r) ? "" : "^C", seconds);
  } else {
    cli_report(r->cli);
  }
  if (st != CKL_OK) r->failed = true;
  return st == CKL_OK;
}

static void run_text(Repl *r, const char *text, bool timed) {
  ckl_value *value = NULL;
  double start = now();
  cli_rearm(true);
  ckl_status st = ckl_eval(r->cli->session, text, "repl", &value);
  double seconds = now() - start;
  if (finish(r, st, seconds)) {
    show_result(r, text, value);
    if (timed) out_printf(&r->cli->out, "%.6f s\n", seconds);
  }
  ckl_release(value);
}

/* ---- commands */

typedef struct Word {
  const char *name, *usage, *summary;
  void (*function)(Repl *r, const char *rest);
} Word;

static void word_help(Repl *r, const char *rest);

/* The type in the text shown for a value: "x : f32[3, 4]   min ..", between the colon and a wide
 * gap. Returns its length. */
static size_t shown_type(Repl *r, const ckl_value *v, const char **type) {
  const char *text = ckl_show(r->cli->session, "_", v), *at = text ? strstr(text, " : ") : NULL;
  size_t n = 0;
  *type = at ? at + 3 : text ? text : "";
  while ((*type)[n] && (*type)[n] != '\n' && strncmp(*type + n, "  ", 2) &&
         (strncmp(*type + n, " =", 2) != 0 || !strchr(" \n", (*type)[n + 2])))
    n++;
  return n;
}

static void word_type(Repl *r, const char *rest) {
  ckl_value *v = NULL;
  double start = now();
  cli_rearm(true);
  if (finish(r, ckl_eval(r->cli->session, rest, "repl", &v), now() - start)) {
    const char *type;
    size_t n = shown_type(r, v, &type);
    out_printf(&r->cli->out, "%.*s\n", (int)n, type);
  }
  ckl_release(v);
}

static void put_bytes(Out *out, int64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes / 1024;
  int u = 0;
  if (bytes < 1024) {
    out_printf(out, "%lld bytes", (long long)bytes);
    return;
  }
  for (; x >= 1024 && u < 3; u++) x /= 1024;
  out_printf(out, "%.1f %s", x, units[u]);
}

/* Lists the variables, without declarations. */
static void word_vars(Repl *r, const char *rest) {
  ckl_session *s = r->cli->session;
  char name[128];
  (void)rest;
  for (int pass = 0, width = 0; pass < 2; pass++) {
    const char *next;
    for (size_t i = 0; (next = ckl_complete(s, "", i)) != NULL; i++) {
      ckl_value *v = strlen(next) < sizeof name ? ckl_get(s, next) : NULL;
      if (!v) continue;
      strcpy(name, next);
      ckl_kind kind = ckl_kind_of(v);
      if (kind != CKL_FN && kind != CKL_OTHER && !pass) {
        if ((int)strlen(name) > width) width = (int)strlen(name);
      } else if (kind != CKL_FN && kind != CKL_OTHER) {
        const char *type;
        int64_t bytes = ckl_bytes(s, v);
        size_t n = shown_type(r, v, &type);
        out_printf(&r->cli->out, "  %-*s  %.*s%s", width, name, (int)n, type, bytes ? "  " : "");
        if (bytes) put_bytes(&r->cli->out, bytes);
        out_puts(&r->cli->out, "\n");
      }
      ckl_release(v);
    }
  }
}

/* Shows the plan of `f(x, y)` by running `plan(f, x, y)`. */
static void word_plan(Repl *r, const char *rest) {
  const char *args = strchr(rest, '(');
  size_t n = strlen(rest), room = n + 32;
  if (!args || rest[n - 1] != ')') {
    out_flush(&r->cli->out);
    out_puts(&r->cli->err, "usage: :plan F(X, ..)\n");
    r->failed = true;
    return;
  }
  char *text = malloc(room);
  if (!text) return;
  const char *first = args + 1;
  while (isspace((unsigned char)*first)) first++;
  snprintf(text, room, "plan(%.*s%s%s.text", (int)(args - rest), rest, *first == ')' ? "" : ", ",
           first);
  ckl_value *v = NULL;
  double start = now();
  cli_rearm(true);
  if (finish(r, ckl_eval(r->cli->session, text, "repl", &v), now() - start) && ckl_to_str(v, NULL))
    out_puts(&r->cli->out, ckl_to_str(v, NULL));
  ckl_release(v);
  free(text);
}

static void word_time(Repl *r, const char *rest) {
  run_text(r, rest, true);
}

static void word_reset(Repl *r, const char *rest) {
  (void)rest;
  ckl_status st = ckl_reset(r->cli->session);
  finish(r, st, 0);
}

static void load_file(Repl *r, const char *rest) {
  double start = now();
  cli_rearm(true);
  finish(r, ckl_run_file(r->cli->session, rest), now() - start);
}

static void word_load(Repl *r, const char *rest) {
  if (ckl_may_read(r->cli->session, rest)) {
    load_file(r, rest);
    return;
  }
  out_flush(&r->cli->out);
  out_printf(&r->cli->err, ":load: --files does not open `%s`\n", rest);
  r->failed = true;
}

static const Word words[] = {
    {"help", "[NAME]", "this list, or what NAME is; ?NAME is short for it", word_help},
    {"type", "EXPR", "the type of a value", word_type},
    {"time", "STMT", "run a statement and say how long it took", word_time},
    {"plan", "F(X, ..)", "what the call would take, without running it", word_plan},
    {"vars", "", "the variables: their types, and the bytes of their tensors", word_vars},
    {"load", "FILE", "start afresh with a file; its variables stay", word_load},
    {"reset", "", "forget all variables and declarations", word_reset},
    {"quit", "", "leave; so does Ctrl-D", NULL},
};
enum { WORDS = sizeof words / sizeof *words };

static const char *word_name(size_t i) {
  return i < WORDS ? words[i].name : NULL;
}

static void word_help(Repl *r, const char *rest) {
  Cli *c = r->cli;
  if (*rest) {
    const char *text = ckl_help(c->session, rest);
    if (text) {
      out_puts(&c->out, text);
      return;
    }
    Suggest s;
    char room[120];
    const char *name;
    suggest_start(&s, rest);
    for (size_t i = 0; (name = ckl_complete(c->session, "", i)) != NULL; i++) suggest_try(&s, name);
    for (size_t i = 0; ckl_error_code(i); i++) suggest_try(&s, ckl_error_code(i));
    out_flush(&c->out);
    out_printf(&c->err, "there is nothing about `%s`%s\n", rest,
               suggest_text(&s, room, sizeof room));
    r->failed = true;
    return;
  }
  for (int i = 0; i < WORDS; i++) {
    char head[32];
    snprintf(head, sizeof head, ":%s %s", words[i].name, words[i].usage);
    out_printf(&c->out, "  %-14s %s\n", head, words[i].summary);
  }
  out_puts(&c->out,
           "A `;` at the end of an input shows nothing. Ctrl-C stops what runs; variables stay.\n");
}

/* Runs a line that starts with ':' or '?'. False when the REPL is to end. */
static bool run_word(Repl *r, char *line) {
  size_t n = strlen(line);
  while (n && isspace((unsigned char)line[n - 1])) line[--n] = 0;
  if (*line == '?') {
    char *rest = line + 1;
    while (isspace((unsigned char)*rest)) rest++;
    word_help(r, rest);
    return true;
  }
  char *name = line + 1, *rest = name;
  while (is_word(*rest)) rest++;
  n = (size_t)(rest - name);
  while (isspace((unsigned char)*rest)) rest++;
  Suggest s;
  char typed[64], room[120];
  snprintf(typed, sizeof typed, "%.*s", n < 60 ? (int)n : 60, name);
  suggest_start(&s, typed);
  for (int i = 0; i < WORDS; i++) {
    suggest_try(&s, words[i].name);
    if (strcmp(words[i].name, typed)) continue;
    if (!words[i].function) return false;
    bool needs = words[i].usage[0] && words[i].usage[0] != '[';
    if (needs == !*rest && words[i].usage[0] != '[') {
      out_flush(&r->cli->out);
      out_printf(&r->cli->err, "usage: :%s %s\n", words[i].name, words[i].usage);
      r->failed = true;
      return true;
    }
    words[i].function(r, rest);
    return true;
  }
  out_flush(&r->cli->out);
  out_printf(&r->cli->err, "no command is called `:%s`%s\n", typed,
             suggest_text(&s, room, sizeof room));
  r->failed = true;
  return true;
}

/* ---- the loop */

static Read plain_line(Repl *r, const char **line) {
  size_t n = 0;
  do {
    if (r->at == r->have) {
      ssize_t k = cli_read_input(r->ahead, sizeof r->ahead);
      if (k < 0 && cli_interrupts()) return READ_INTERRUPT;
      if (k <= 0) break;
      r->at = 0;
      r->have = (size_t)k;
    }
    if (n + 2 > r->line_room) {
      size_t room = 2 * r->line_room + 128;
      char *text = realloc(r->line, room);
      if (!text) return READ_END;
      r->line = text;
      r->line_room = room;
    }
    r->line[n++] = r->ahead[r->at++];
  } while (r->line[n - 1] != '\n');
  if (!n) return READ_END;
  r->line[n] = 0;
  *line = r->line;
  return READ_LINE;
}

static Read read_line(Repl *r, const char **line) {
  cli_hold_interrupts(true);
  cli_rearm(false);
  if (!r->edit && r->terminal) out_puts(&r->cli->out, r->more ? ". " : "> ");
  out_flush(&r->cli->out);
  Read got = r->edit ? edit_line(r->edit, r->more, line) : plain_line(r, line);
  cli_rearm(false); /* so that a second Ctrl-C, held until now, does not end the process */
  cli_hold_interrupts(false);
  return got;
}

static bool append(Repl *r, const char *line) {
  size_t n = strlen(line);
  if (r->length + n + 1 > r->room) {
    size_t room = (r->length + n + 1) * 2;
    char *text = realloc(r->text, room);
    if (!text) return false;
    r->text = text;
    r->room = room;
  }
  memcpy(r->text + r->length, line, n + 1);
  r->length += n;
  return true;
}

static bool is_blank(const char *text) {
  while (isspace((unsigned char)*text)) text++;
  return !*text;
}

static int loop(Repl *r) {
  for (;;) {
    const char *line;
    r->more = r->length > 0;
    Read got = read_line(r, &line);
    if (got == READ_INTERRUPT) {
      if (!r->terminal) return EXIT_INTERRUPTED;
      out_puts(&r->cli->out, "\n");
      r->length = 0;
      continue;
    }
    if (got == READ_LINE && !append(r, line)) {
      out_puts(&r->cli->err, "ckl: out of memory\n");
      r->length = 0;
      continue;
    }
    if (got == READ_END && r->terminal) {
      out_puts(&r->cli->out, "\n");
      break;
    }
    if (r->length && is_blank(r->text)) r->length = 0;
    char *first = r->length ? r->text + strspn(r->text, " \t") : NULL;
    bool whole = first && (*first == ':' || *first == '?' || got == READ_END ||
                           ckl_is_complete(r->text, r->length));
    if (whole) edit_remember(r->edit, r->text);
    if (first && (*first == ':' || *first == '?')) {
      r->length = 0;
      if (!run_word(r, first)) break;
    } else if (whole) {
      r->length = 0;
      run_text(r, r->text, false);
    }
    if (got == READ_END || r->cli->out.error) break;
  }
  return r->failed && !r->terminal ? EXIT_WRONG : EXIT_FINE;
}

int cmd_repl(Cli *c) {
  if (c->o.word_count > 1)
    return cli_usage(c, "repl", "one FILE at a time, `%s` is too many", c->o.words[1]);
  if (!cli_open(c)) return EXIT_WRONG;
  Repl r;
  memset(&r, 0, sizeof r);
  r.cli = c;
  r.terminal = isatty(STDIN_FILENO);
  int rc = cli_settings(c);
  if (!rc) {
    cli_catch_interrupt(c);
    if (r.terminal)
      out_printf(&c->out, "ckl %s   :help for help, Ctrl-D to leave\n", ckl_version());
    if (c->o.word_count) load_file(&r, c->o.words[0]);
    if (r.terminal) r.edit = edit_open(c, word_name);
    rc = loop(&r);
    edit_close(r.edit);
  }
  free(r.text);
  free(r.line);
  cli_close(c);
  return rc;
}
