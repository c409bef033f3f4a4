/* The subcommands, except the REPL.
 *
 * In: the options. Out: text on standard output (the output of the program, or the answer to the
 * command), diagnostics, warnings and logs on standard error, and the exit status. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- sessions, reports */

static void write_text(void *ud, int stream, const char *text, size_t n) {
  Cli *c = ud;
  bool failed = c->out.error != 0;
  if (stream == CKL_STDOUT) {
    out_write(&c->out, text, n);
  } else if (stream == CKL_TRACE) {
    out_write(&c->trace, text, n);
    out_flush(&c->trace);
  } else {
    out_flush(&c->out);
    out_write(&c->err, text, n);
    out_flush(&c->err);
  }
  /* nobody reads further output: stop the program as well */
  if (c->out.error && !failed && c->session) ckl_interrupt(c->session);
}

static bool known_name(Cli *c, const char *command, const char *stage, const char *(*name)(size_t),
                       const char *what) {
  Suggest s;
  char room[120];
  suggest_start(&s, stage);
  for (size_t i = 0; name(i); i++) {
    if (!strcmp(name(i), stage)) return true;
    suggest_try(&s, name(i));
  }
  out_printf(&c->err, "ckl %s: no %s is called `%s`%s\n", command, what, stage,
             suggest_text(&s, room, sizeof room));
  out_puts(&c->err, "known ones:");
  for (size_t i = 0; name(i); i++) out_printf(&c->err, " %s", name(i));
  out_puts(&c->err, "\n");
  return false;
}

static int set_logs(Cli *c) {
  ckl_log(c->session, "wait"); /* a person may be waiting */
  for (size_t i = 0; i < c->o.log_count; i++)
    if (ckl_log(c->session, c->o.log[i]) != CKL_OK) {
      char channel[64];
      size_t n = strcspn(c->o.log[i], ":");
      snprintf(channel, sizeof channel, "%.*s", n < 63 ? (int)n : 63, c->o.log[i]);
      if (known_name(c, "run", channel, ckl_log_name, "log channel"))
        out_printf(&c->err, "ckl run: a level of a log is `debug`: `--log=%s:debug`\n", channel);
      return EXIT_USAGE;
    }
  return 0;
}

static int set_dumps(Cli *c) {
  for (size_t i = 0; i < c->o.dump_count; i++) {
    const char *p = c->o.dump[i];
    while (*p) {
      char stage[64];
      size_t n = strcspn(p, ",");
      snprintf(stage, sizeof stage, "%.*s", n < 63 ? (int)n : 63, p);
      p += n + (p[n] == ',');
      if (!strcmp(stage, "all")) {
        for (size_t k = 0; ckl_stage_name(k); k++) ckl_dump(c->session, ckl_stage_name(k));
      } else {
        if (!known_name(c, "run", stage, ckl_stage_name, "stage")) return EXIT_USAGE;
        ckl_dump(c->session, stage);
      }
    }
  }
  return 0;
}

int cli_settings(Cli *c) {
  int rc = set_logs(c);
  if (!rc) rc = set_dumps(c);
  return rc;
}

ckl_session *cli_open(Cli *c) {
  ckl_config f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  f.write = write_text;
  f.write_ud = c;
  f.stderr_is_terminal = c->err.terminal;
  f.args = c->o.args;
  f.arg_count = c->o.arg_count;
  f.lib = c->o.lib;
  f.lib_count = c->o.lib_count;
  f.device = c->o.device;
  f.memory_limit = c->o.memory;
  f.cpu = c->o.cpu;
  f.threads = c->o.threads;
  f.kernels = getenv("CKL_KERNELS");
  f.perf_map = getenv("CKL_PERF_MAP") != NULL;
  f.profile = c->o.profile;
  f.trace = c->trace.fd > 0;
  f.show_plan = c->o.plan;
  f.spill = c->o.spill;
  f.files = c->o.files;
  f.max_steps = c->o.max_steps;
  f.max_nodes = c->o.max_nodes;
  f.json = c->o.json;
  f.cache = getenv("CKL_CACHE");
  f.has_seed = c->o.seed != NULL;
  f.seed = c->o.seed ? (uint64_t)strtoll(c->o.seed, NULL, 0) : 0;
  c->session = ckl_open(&f);
  if (c->session) return c->session;
  f.cpu = NULL; /* its name is known */
  ckl_session *without = ckl_open(&f);
  if (without && c->o.cpu)
    out_printf(&c->err, "ckl: this machine does not run code for %s (CKL_CPU)\n", c->o.cpu);
  else if (c->o.memory && without == NULL && (f.memory_limit = 0, without = ckl_open(&f)) != NULL)
    out_printf(&c->err, "ckl: --memory=%lld is too little: a session alone takes some %lld\n",
               (long long)c->o.memory, (long long)ckl_counter(without, "bytes.peak"));
  else
    out_puts(&c->err, "ckl: out of memory, or of C stack (`ulimit -s`)\n");
  ckl_close(without);
  return NULL;
}

void cli_close(Cli *c) {
  ckl_session *s = c->session;
  c->session = NULL; /* from here on Ctrl-C ends the process */
  ckl_close(s);
}

void cli_report(Cli *c) {
  out_flush(&c->out);
  if (c->out.error) return; /* the program was stopped for that */
  enum { MANY = 20 };       /* then the check of a program stops */
  static const char stopped[] = "what comes after 20 errors is not looked for";
  size_t n = ckl_diag_count(c->session), errors = 0;
  for (size_t i = 0; i < n; i++) {
    errors += ckl_diag_is_error(c->session, i);
    const char *text = c->o.json ? ckl_diag_json(c->session, i)
                                 : ckl_diag_text(c->session, i, c->err.color ? CKL_COLOR : 0);
    if (!text) continue;
    size_t k = strlen(text);
    out_write(&c->err, text, k);
    if (k && text[k - 1] != '\n') out_puts(&c->err, "\n");
  }
  if (errors >= MANY)
    out_printf(&c->err, c->o.json ? "{\"severity\":\"note\",\"message\":\"%s\"}\n" : "note: %s\n",
               stopped);
  out_flush(&c->err);
}

int cli_exit(const Cli *c, ckl_status st) {
  if (c->out.error) return EXIT_WRONG;
  switch (st) {
  case CKL_OK: return EXIT_FINE;
  case CKL_EINTERRUPT: return EXIT_INTERRUPTED;
  case CKL_EUSAGE: return EXIT_USAGE;
  default: return EXIT_WRONG;
  }
}

static int worse(int a, int b) {
  return a > b ? a : b;
}

/* A path for the library: "-" becomes /dev/stdin, others stay as they are. */
static const char *file_path(const char *word) {
  return strcmp(word, "-") ? word : "/dev/stdin";
}

/* ---- run, check, test */

static int one_file(Cli *c, const char *command) {
  if (c->o.word_count == 1) return 0;
  if (!c->o.word_count) return cli_usage(c, command, "a FILE is missing");
  return cli_usage(c, command, "one FILE at a time, `%s` is too many", c->o.words[1]);
}

int cmd_run(Cli *c) {
  int rc = one_file(c, "run");
  if (rc) return rc;
  if (!cli_open(c)) return EXIT_WRONG;
  rc = cli_settings(c);
  if (!rc) {
    cli_catch_interrupt(c);
    ckl_status st = ckl_run_file(c->session, file_path(c->o.words[0]));
    rc = cli_exit(c, st);
    cli_report(c);
    int64_t seed = ckl_counter(c->session, "seed");
    if (c->o.verbose && seed >= 0) out_printf(&c->err, "seed %lld\n", (long long)seed);
    if (c->o.profile) out_puts(&c->err, ckl_profile(c->session));
    for (size_t i = 0; c->o.times && ckl_counter_name(i); i++) {
      const char *name = ckl_counter_name(i);
      if (!strncmp(name, "us.", 3))
        out_printf(&c->err, "%-10s %10.3f ms\n", name + 3,
                   1e-3 * (double)ckl_counter(c->session, name));
    }
    if (c->o.counts)
      for (size_t i = 0; ckl_counter_name(i); i++)
        out_printf(&c->err, "%-16s %lld\n", ckl_counter_name(i),
                   (long long)ckl_counter(c->session, ckl_counter_name(i)));
  }
  cli_close(c);
  return rc;
}

int cmd_check(Cli *c) {
  int rc = EXIT_FINE;
  if (!c->o.word_count) return cli_usage(c, "check", "a FILE is missing");
  for (size_t i = 0; i < c->o.word_count; i++) {
    if (!cli_open(c)) return EXIT_WRONG;
    cli_catch_interrupt(c);
    ckl_status st = ckl_check_file(c->session, file_path(c->o.words[i]));
    cli_report(c);
    if (c->o.verbose) {
      size_t errors = 0, n = ckl_diag_count(c->session);
      for (size_t k = 0; k < n; k++) errors += ckl_diag_is_error(c->session, k);
      if (errors)
        out_printf(&c->out, "%s: %zu error%s\n", c->o.words[i], errors, errors > 1 ? "s" : "");
      else
        out_printf(&c->out, "%s: fine\n", c->o.words[i]);
    }
    rc = worse(rc, cli_exit(c, st));
    cli_close(c);
    if (rc == EXIT_INTERRUPTED) break;
  }
  return rc;
}

typedef struct TestRun {
  Cli *c;
  const char *path;
  size_t passed, failed;
} TestRun;

static void test_report(void *ud, const char *title, bool ok, const char *diagnostics) {
  TestRun *t = ud;
  Out *out = &t->c->out;
  if (ok)
    t->passed++;
  else
    t->failed++;
  const char *on = !out->color ? "" : ok ? "\033[32m" : "\033[31m";
  out_printf(out, "%s%s%s %s: %s\n", on, ok ? "ok  " : "FAIL", *on ? "\033[0m" : "", t->path,
             title);
  if (diagnostics && *diagnostics) out_puts(out, diagnostics);
}

int cmd_test(Cli *c) {
  int rc = EXIT_FINE;
  TestRun all = {c, NULL, 0, 0};
  if (!c->o.word_count) return cli_usage(c, "test", "a FILE is missing");
  for (size_t i = 0; i < c->o.word_count; i++) {
    TestRun t = {c, c->o.words[i], 0, 0};
    if (!cli_open(c)) return EXIT_WRONG;
    cli_catch_interrupt(c);
    ckl_status st =
        ckl_test_file(c->session, file_path(c->o.words[i]), c->o.filter, test_report, &t);
    /* a failed test has been reported; an error in the file itself has not */
    if (!t.failed || st != CKL_ERUN) cli_report(c);
    rc = worse(rc, cli_exit(c, st));
    if (t.failed) rc = worse(rc, EXIT_WRONG);
    cli_close(c);
    all.passed += t.passed;
    all.failed += t.failed;
    if (rc == EXIT_INTERRUPTED) break;
  }
  if (c->o.filter && !all.passed && !all.failed && rc == EXIT_FINE) {
    out_flush(&c->out);
    out_printf(&c->err, "ckl test: no test's title contains `%s`\n", c->o.filter);
    return EXIT_WRONG;
  }
  out_printf(&c->out, "%zu passed, %zu failed\n", all.passed, all.failed);
  return rc;
}

/* ---- files */

char *cli_read(Cli *c, const char *path, size_t *length) {
  bool from_stdin = !strcmp(path, "-");
  int fd = from_stdin ? 0 : open(path, O_RDONLY | O_CLOEXEC);
  size_t n = 0, room = 0;
  char *text = NULL;
  ssize_t k = fd < 0 ? -1 : 1;
  while (k > 0) {
    if (room - n < 4097) {
      room = room * 2 + 65536;
      char *more = realloc(text, room);
      if (!more) {
        errno = ENOMEM;
        k = -1;
        break;
      }
      text = more;
    }
    k = read(fd, text + n, room - n - 1);
    if (k > 0) n += (size_t)k;
    if (k < 0 && errno == EINTR) k = 1;
  }
  if (k < 0) {
    out_flush(&c->out);
    out_printf(&c->err, "ckl: cannot read %s: %s\n", from_stdin ? "standard input" : path,
               strerror(errno));
    free(text);
    text = NULL;
  } else {
    text[n] = 0;
    *length = n;
  }
  if (fd > 0) close(fd);
  return text;
}

/* Replaces a file in one step: the new text is written beside it and renamed over it. */
static bool replace_file(Cli *c, const char *path, const char *text, size_t n) {
  bool ok = false;
  char *real = realpath(path, NULL); /* a link stays a link */
  char *temp = NULL;
  struct stat st;
  int fd = -1;
  if (real && !stat(real, &st)) {
    size_t room = strlen(real) + 16;
    temp = malloc(room);
    if (temp) {
      snprintf(temp, room, "%s.XXXXXX", real);
      fd = mkstemp(temp);
    }
  }
  if (fd >= 0) {
    size_t done = 0;
    ok = true;
    while (ok && done < n) {
      ssize_t k = write(fd, text + done, n - done);
      if (k > 0) done += (size_t)k;
      if (k < 0 && errno != EINTR) ok = false;
    }
    ok = ok && !fchmod(fd, st.st_mode & 07777) && !fsync(fd);
    if (ok && fchown(fd, st.st_uid, st.st_gid)) ok = true; /* the user of ckl owns it then */
    int saved = errno;
    if (close(fd) && ok) {
      saved = errno;
      ok = false;
    }
    ok = ok && !rename(temp, real);
    if (!ok) {
      if (saved) errno = saved;
      saved = errno;
      unlink(temp);
      errno = saved;
    }
  }
  if (!ok) {
    out_flush(&c->out);
    out_printf(&c->err, "ckl fmt: cannot write %s: %s\n", path, strerror(errno));
  }
  free(temp);
  free(real);
  return ok;
}

int cmd_fmt(Cli *c) {
  int rc = EXIT_FINE;
  if (!c->o.word_count) return cli_usage(c, "fmt", "a FILE is missing");
  if (!cli_open(c)) return EXIT_WRONG;
  for (size_t i = 0; i < c->o.word_count; i++) {
    const char *path = c->o.words[i];
    bool from_stdin = !strcmp(path, "-");
    size_t n = 0;
    char *text = cli_read(c, path, &n);
    const char *done = text ? ckl_format(c->session, from_stdin ? "stdin" : path, text, n) : NULL;
    if (text && !done) cli_report(c);
    if (!done) {
      rc = EXIT_WRONG;
    } else {
      size_t m = strlen(done);
      bool same = m == n && !memcmp(done, text, n);
      if (c->o.check) {
        if (!same) {
          out_printf(&c->out, "%s\n", from_stdin ? "stdin" : path);
          rc = EXIT_WRONG;
        }
      } else if (from_stdin) {
        out_write(&c->out, done, m);
      } else if (!same && !replace_file(c, path, done, m)) {
        rc = EXIT_WRONG;
      }
    }
    free(text);
  }
  cli_close(c);
  return rc;
}

/* ---- graphs */

static int print_or_report(Cli *c, const char *text) {
  if (text)
    out_puts(&c->out, text);
  else
    cli_report(c);
  cli_close(c);
  return text ? EXIT_FINE : EXIT_WRONG;
}

int cmd_ir(Cli *c) {
  const char *stage = c->o.stage ? c->o.stage : ckl_stage_name(0);
  if (c->o.word_count < 2) return cli_usage(c, "ir", "a FILE and the name of a FN are needed");
  if (!known_name(c, "ir", stage, ckl_stage_name, "stage")) return EXIT_USAGE;
  char with[32];
  if (c->o.writes && !strcmp(c->o.writes, "epilogue")) {
    size_t i = 0; /* stages up to `joint` are graphs */
    while (strcmp(ckl_stage_name(i++), "joint")) continue;
    for (; ckl_stage_name(i); i++)
      if (!strcmp(stage, ckl_stage_name(i)))
        return cli_usage(c, "ir", "--writes=epilogue is a form of graphs, not of `%s`", stage);
    snprintf(with, sizeof with, "%s epilogue", stage);
    stage = with;
  }
  if (!cli_open(c)) return EXIT_WRONG;
  cli_catch_interrupt(c);
  return print_or_report(c, ckl_ir(c->session, file_path(c->o.words[0]), c->o.words[1],
                                   c->o.words + 2, c->o.word_count - 2, stage));
}

int cmd_explain(Cli *c) {
  if (c->o.word_count < 2) return cli_usage(c, "explain", "a FILE and the name of a FN are needed");
  if (!cli_open(c)) return EXIT_WRONG;
  cli_catch_interrupt(c);
  return print_or_report(c, ckl_ir(c->session, file_path(c->o.words[0]), c->o.words[1],
                                   c->o.words + 2, c->o.word_count - 2, "plan"));
}

static bool write_file(Cli *c, const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  Out out;
  if (fd >= 0) {
    out_init(&out, fd, path, "never");
    out_puts(&out, text);
    out_flush(&out);
    close(fd);
  }
  if (fd >= 0 && !out.error) return true;
  out_printf(&c->err, "ckl: cannot write `%s`: %s\n", path, strerror(fd < 0 ? errno : out.error));
  return false;
}

int cmd_plan(Cli *c) {
  if (c->o.word_count < 2) return cli_usage(c, "plan", "a FILE and the name of a FN are needed");
  bool curve = c->o.curve || c->o.measure || c->o.svg;
  if (curve + c->o.peak + (c->o.why != NULL) > 1)
    return cli_usage(c, "plan", "--curve, --peak and --why are asked one at a time");
  if (!cli_open(c)) return EXIT_WRONG;
  cli_catch_interrupt(c);
  const Options *o = &c->o;
  const char *svg = NULL;
  ckl_plan_options want = {.json = o->json,
                           .curve = curve,
                           .measure = o->measure,
                           .peak = o->peak,
                           .why = o->why,
                           .svg = o->svg ? &svg : NULL};
  const char *text = ckl_plan(c->session, file_path(o->words[0]), o->words[1], o->words + 2,
                              o->word_count - 2, &want);
  bool wrote = !svg || write_file(c, o->svg, svg);
  int status = print_or_report(c, text);
  return wrote ? status : EXIT_WRONG;
}

int cmd_opt(Cli *c) {
  size_t n = 0;
  int rc = one_file(c, "opt");
  if (rc) return rc;
  if (!c->o.pass) return cli_usage(c, "opt", "--pass=PASS is missing");
  if (!known_name(c, "opt", c->o.pass, ckl_pass_name, "pass")) return EXIT_USAGE;
  char *text = cli_read(c, c->o.words[0], &n);
  if (!text) return EXIT_WRONG;
  rc = EXIT_WRONG;
  if (cli_open(c)) {
    const char *name = strcmp(c->o.words[0], "-") ? c->o.words[0] : "stdin";
    rc = print_or_report(c, ckl_opt(c->session, c->o.pass, name, text, n));
  }
  free(text);
  return rc;
}

/* ---- words about ckl itself */

int cmd_help(Cli *c) {
  const char *topic = c->o.word_count ? c->o.words[0] : NULL;
  if (c->o.word_count > 1) return cli_usage(c, "help", "one topic at a time");
  bool command = cli_help_command(c, &c->out, topic);
  if (!topic) return EXIT_FINE;
  if (!cli_open(c)) return EXIT_WRONG;
  const char *text = ckl_help(c->session, topic);
  int rc = EXIT_FINE;
  if (text) {
    if (command) out_puts(&c->out, "\n"); /* `test` is a word of the language, too */
    out_puts(&c->out, text);
  } else if (!command) {
    Suggest s;
    char room[120];
    suggest_start(&s, topic);
    cli_suggest_commands(&s);
    for (size_t i = 0; ckl_error_code(i); i++) suggest_try(&s, ckl_error_code(i));
    const char *name;
    for (size_t i = 0; (name = ckl_complete(c->session, "", i)) != NULL; i++) suggest_try(&s, name);
    out_printf(&c->err, "ckl help: there is nothing about `%s`%s\n%s", topic,
               suggest_text(&s, room, sizeof room), cli_topics);
    rc = EXIT_USAGE;
  }
  cli_close(c);
  return rc;
}

static int print_page(Cli *c, const char *command, const char *(*page)(ckl_session *)) {
  if (c->o.word_count) return cli_usage(c, command, "`%s` makes no sense here", c->o.words[0]);
  if (!cli_open(c)) return EXIT_WRONG;
  return print_or_report(c, page(c->session));
}

int cmd_ops(Cli *c) {
  return print_page(c, "ops", ckl_ops_markdown);
}

int cmd_errors(Cli *c) {
  return print_page(c, "errors", ckl_errors_markdown);
}

int cmd_passes(Cli *c) {
  return print_page(c, "passes", ckl_passes_markdown);
}

int cmd_builtins(Cli *c) {
  return print_page(c, "builtins", ckl_builtins_markdown);
}

int cmd_library(Cli *c) {
  return print_page(c, "library", ckl_library_markdown);
}

int cmd_version(Cli *c) {
  if (!cli_open(c)) return EXIT_WRONG;
  const char *libraries = ckl_libraries(c->session);
  out_printf(&c->out, "ckl %s%s%s\n", ckl_version(), libraries ? " with " : "",
             libraries ? libraries : "");
  return EXIT_FINE;
}
