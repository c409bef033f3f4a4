/* The command `ckl`: its subcommands and options, and how a command line is read.
 *
 * In: argv. Out: one call of a function of the table below and its exit status: 0 fine,
 * 1 the program is wrong or failed, 2 wrong usage, 130 interrupted. Everything that ckl can do is
 * reached through ckl.h. */
#define _DEFAULT_SOURCE /* madvise, sbrk */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- commands. `options` are keys of the option table below. */
typedef struct Command {
  const char *name, *usage, *options, *summary;
  int (*function)(Cli *c);
  const char *more;
} Command;

static const Command commands[] = {
    {"run", "FILE [name=value...]", "DLlmBNGgsCPATtFiv", "run a program", cmd_run,
     "The words name=value are what args(\"name\", default) gives in the program.\n"
     "`ckl FILE.ckl` is short for `ckl run FILE.ckl`; the file `-` is standard input.\n"},
    {"check", "FILE...", "lBGv", "find what is wrong with programs without running them", cmd_check,
     ""},
    {"test", "FILE...", "flmBNGgiv", "run the `test` blocks of programs", cmd_test, ""},
    {"fmt", "FILE...", "c", "bring programs into the one style, in place", cmd_fmt,
     "A file is replaced in one step or not at all. The file `-` is standard input, written to\n"
     "standard output.\n"},
    {"repl", "[FILE]", "LlmBNGgsi", "read statements, run them, show values", cmd_repl,
     "This is also what `ckl` alone does. FILE is run first. Statements from a pipe are run "
     "without\n"
     "a prompt.\n"},
    {"ir", "FILE FN [TYPE...]", "SWl", "print the graph of a function after a stage", cmd_ir,
     "A TYPE like 'f32[8, 3]' stands for each parameter that has no type in the program.\n"},
    {"explain", "FILE FN [TYPE...]", "l", "print the kernels of a function and where they end",
     cmd_explain,
     "A TYPE like 'f32[8, 3]' stands for each parameter that has no type in the program.\n"},
    {"plan", "FILE FN [TYPE... | name=value...]", "lmBNGgiVQKYZ",
     "print what a call of a function takes", cmd_plan,
     "The program runs up to the first call of FN, which is told of and not run; what is printed "
     "on\n"
     "the way is dropped. Where a TYPE like 'f32[8, 3]' is given for each parameter, nothing is "
     "run,\n"
     "and gradients are taken by all of them.\n"},
    {"opt", "FILE.ckg", "p", "run a pass over a graph in text form", cmd_opt,
     "The file `-` is standard input.\n"},
    {"help", "[COMMAND | CODE | NAME]", "", "explain a command, an error code or a name", cmd_help,
     ""},
    {"ops", "--markdown", "M", "print the table of primitive operations", cmd_ops, ""},
    {"errors", "--markdown", "M", "print all error codes and what they mean", cmd_errors, ""},
    {"builtins", "--markdown", "M", "print all names that need no `use`", cmd_builtins, ""},
    {"passes", "--markdown", "M", "print the passes of a compiled function", cmd_passes, ""},
    {"library", "--markdown", "M", "print what the library and the builtins have", cmd_library, ""},
    {"version", "", "", "print the version", cmd_version, ""},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* ---- options. Every command has those of `common`. */
static const char common[] = "joh";

typedef struct Option {
  char key, letter; /* letter: short form, or 0 */
  const char *name, *value, *summary;
} Option;

static const Option options[] = {
    {'D', 0, "dump", "STAGE[,STAGE...]", "print the graph after a stage, `all` for every one"},
    {'L', 0, "log", "CHANNEL[:debug]", "turn a log channel on"},
    {'l', 0, "lib", "FOLDER", "where `use` looks after ckl's own library"},
    {'m', 0, "memory", "SIZE", "bound the bytes of all tensors, as in 1.5GiB"},
    {'N', 0, "max-steps", "N", "stop after so many statements, calls and iterations of loops"},
    {'G', 0, "max-nodes", "N", "most nodes of the graph of a compiled call; 1,000,000 otherwise"},
    {'B', 0, "files", "all|none|FOLDER",
     "which files the program reaches: plain ones below FOLDER"},
    {'g', 0, "device", "cpu|sim|emu", "where new tensors live; emu: the emulator of a GPU"},
    {'s', 0, "seed", "N", "start all random numbers from N, as seed(N) would"},
    {'F', 0, "spill", "FILE", "keep offloaded values of the host in FILE, not in memory"},
    {'t', 0, "trace-json", "FILE", "write a line of JSON into FILE for each captured backward"},
    {'P', 0, "profile", NULL, "print the time of script and of compiled code by line at the end"},
    {'A', 0, "plan", NULL, "print what each compiled call takes, before the first of each"},
    {'V', 0, "curve", NULL, "the plans that the call could have, by memory and work"},
    {'Q', 0, "measure", NULL, "the curve, and run each of its plans: time and memory"},
    {'Z', 0, "svg", "FILE", "the curve, and write its drawing into FILE"},
    {'K', 0, "peak", NULL, "the values that make the peak, with their lives"},
    {'Y', 0, "why", "NAME", "who decided about the values of this name, and the other choice"},
    {'T', 0, "time-passes", NULL, "print the time that compiling took, by pass, at the end"},
    {'i', 0, "interpret", NULL, "run everything on the reference evaluator"},
    {'C', 0, "counts", NULL, "print all counters at the end"},
    {'c', 0, "check", NULL, "change nothing; say which files are not in style"},
    {'f', 0, "filter", "TEXT", "only the tests whose title contains TEXT"},
    {'S', 0, "stage", "STAGE", "after which stage"},
    {'W', 0, "writes", "outputs|epilogue", "writes as outputs, or copies into inputs at the end"},
    {'p', 0, "pass", "PASS", "which pass"},
    {'M', 0, "markdown", NULL, "as a page in Markdown"},
    {'v', 'v', "verbose", NULL, "say more"},
    {'j', 0, "json", NULL, "diagnostics as JSON, one per line"},
    {'o', 0, "color", "always|never|auto", "colours; auto: on a terminal, if NO_COLOR is not set"},
    {'h', 'h', "help", NULL, "explain the command"},
};
enum { OPTIONS = sizeof options / sizeof *options };

const char cli_topics[] = "`ckl help COMMAND` explains a command, `ckl help shape-3` an error "
                          "code, `ckl help relu` a name.\n";

static const Command *find_command(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

void cli_suggest_commands(Suggest *s) {
  for (int i = 0; i < COMMANDS; i++) suggest_try(s, commands[i].name);
}

static bool has_option(const Command *cmd, const Option *o) {
  return strchr(common, o->key) || (cmd && strchr(cmd->options, o->key));
}

static void print_overview(Out *to) {
  out_puts(to, "usage: ckl [COMMAND] [OPTION...] [FILE...]\n\n");
  for (int i = 0; i < COMMANDS; i++) {
    char head[64];
    snprintf(head, sizeof head, "%s %s", commands[i].name, commands[i].usage);
    out_printf(to, "  ckl %-31s %s\n", head, commands[i].summary);
  }
  out_puts(to, "\n`ckl` alone reads statements and shows values; `ckl FILE.ckl` runs a program.\n");
  out_puts(to, cli_topics);
}

int cli_help_command(Cli *c, Out *to, const char *name) {
  (void)c;
  if (!name) {
    print_overview(to);
    return true;
  }
  const Command *cmd = find_command(name);
  if (!cmd) return false;
  out_printf(to, "usage: ckl %s%s%s%s\n\n%c%s.\n%s\n", cmd->name,
             *cmd->options ? " [OPTION...]" : "", *cmd->usage ? " " : "", cmd->usage,
             cmd->summary[0] - 'a' + 'A', cmd->summary + 1, cmd->more);
  for (int i = 0; i < OPTIONS; i++) {
    const Option *o = &options[i];
    if (!has_option(cmd, o)) continue;
    char head[64], letter[8] = "";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(head, sizeof head, "%s--%s%s%s", letter, o->name, o->value ? "=" : "",
             o->value ? o->value : "");
    out_printf(to, "  %-28s %s\n", head, o->summary);
  }
  return true;
}

int cli_usage(Cli *c, const char *command, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  out_flush(&c->out);
  const Command *cmd = command ? find_command(command) : NULL;
  out_printf(&c->err, "ckl%s%s: %s\n", cmd ? " " : "", cmd ? cmd->name : "", text);
  if (cmd)
    out_printf(&c->err, "usage: ckl %s%s%s%s\n", cmd->name, *cmd->options ? " [OPTION...]" : "",
               *cmd->usage ? " " : "", cmd->usage);
  else
    out_puts(&c->err, "usage: ckl [COMMAND] [OPTION...] [FILE...]\n");
  out_printf(&c->err, "`ckl help%s%s` says more.\n", cmd ? " " : "", cmd ? cmd->name : "");
  return EXIT_USAGE;
}

/* ---- reading options */

/* Bytes of "512", "64KiB", "1.5GiB", "8MB"; false when it is none of these. */
static bool parse_size(const char *text, int64_t *bytes) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"", 1},
               {"B", 1},
               {"kB", 1e3},
               {"KB", 1e3},
               {"MB", 1e6},
               {"GB", 1e9},
               {"TB", 1e12},
               {"KiB", 1024},
               {"MiB", 1 << 20},
               {"GiB", 1 << 30},
               {"TiB", 1099511627776.0}};
  char *end;
  if (*text < '0' || *text > '9') return false;
  double x = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    double b = x * units[i].factor;
    if (strcmp(end, units[i].unit) || !(b < 9e18)) continue;
    *bytes = (int64_t)b;
    return true;
  }
  return false;
}

/* Sets an option; `value` is NULL for one without. Returns 0 or an exit status. */
static int set_option(Cli *c, const char *command, const Option *opt, const char *value) {
  Options *o = &c->o;
  char *end;
  switch (opt->key) {
  case 'D': o->dump[o->dump_count++] = value; break;
  case 'L': o->log[o->log_count++] = value; break;
  case 'l': o->lib[o->lib_count++] = value; break;
  case 'f': o->filter = value; break;
  case 'S': o->stage = value; break;
  case 'W':
    if (strcmp(value, "outputs") && strcmp(value, "epilogue"))
      return cli_usage(c, command, "--writes=outputs or --writes=epilogue, not `%s`", value);
    o->writes = value;
    break;
  case 'p': o->pass = value; break;
  case 'C': o->counts = true; break;
  case 'i': o->interpret = true; break;
  case 'T': o->times = true; break;
  case 'P': o->profile = true; break;
  case 'A': o->plan = true; break;
  case 'V': o->curve = true; break;
  case 'Q': o->measure = true; break;
  case 'K': o->peak = true; break;
  case 'Y': o->why = value; break;
  case 'Z': o->svg = value; break;
  case 'c': o->check = true; break;
  case 't': {
    int fd = open(value, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return cli_usage(c, command, "cannot write `%s`: %s", value, strerror(errno));
    out_init(&c->trace, fd, value, "never");
    break;
  }
  case 'F': {
    struct stat st; /* the file is deleted, so it must be new or empty */
    if (!lstat(value, &st) && (!S_ISREG(st.st_mode) || st.st_size))
      return cli_usage(c, command, "--spill needs a new file or an empty one; `%s` is %s", value,
                       S_ISREG(st.st_mode) ? "not empty" : "no file of data");
    int fd = open(value, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return cli_usage(c, command, "cannot write `%s`: %s", value, strerror(errno));
    close(fd);
    o->spill = value;
    break;
  }
  case 'B': {
    struct stat st;
    o->files = !strcmp(value, "all") ? NULL : !strcmp(value, "none") ? "" : value;
    if (o->files && *o->files && (stat(value, &st) || !S_ISDIR(st.st_mode)))
      return cli_usage(c, command, "--files needs a folder, none or all; `%s` is no folder", value);
    break;
  }
  case 'N':
  case 'G': {
    int64_t n = strtoll(value, &end, 10);
    if (n <= 0 || *end || strlen(value) > 18)
      return cli_usage(c, command, "--%s needs a number of 1 or more, not `%s`", opt->name, value);
    *(opt->key == 'N' ? &o->max_steps : &o->max_nodes) = n;
    break;
  }
  case 'v': o->verbose = true; break;
  case 'j': o->json = true; break;
  case 'h': o->help = true; break;
  case 's':
    (void)strtoll(value, &end, 10);
    if (end == value || *end || strlen(value) > 18)
      return cli_usage(c, command, "--seed needs a whole number, not `%s`", value);
    o->seed = value;
    break;
  case 'o':
    if (strcmp(value, "always") && strcmp(value, "never") && strcmp(value, "auto"))
      return cli_usage(c, command, "--color is always, never or auto, not `%s`", value);
    o->color = value;
    break;
  case 'g':
    o->emulate = !strcmp(value, "emu"); /* its memory is the host's */
    if (!o->emulate && strcmp(value, "cpu") && strcmp(value, "sim"))
      return cli_usage(c, command, "no device is called `%s`; there are cpu, sim and emu", value);
    o->device = o->emulate ? "cpu" : value;
    break;
  case 'm':
    if (!parse_size(value, &o->memory) || o->memory <= 0)
      return cli_usage(c, command, "--memory needs a size like 1.5GiB, not `%s`", value);
    break;
  default: break; /* M: the page is Markdown anyway */
  }
  return 0;
}

static bool is_assignment(const char *word) {
  size_t i = 0;
  while (word[i] == '_' || (word[i] >= 'a' && word[i] <= 'z') ||
         (word[i] >= 'A' && word[i] <= 'Z') || (i && word[i] >= '0' && word[i] <= '9'))
    i++;
  return i && word[i] == '=';
}

/* Reads an option; `text` starts with '-'. Uses up *next when the value is the next word. Returns 0
 * or an exit status. */
static int read_option(Cli *c, const Command *cmd, const char *text, char **next, bool *used_next) {
  const char *command = cmd ? cmd->name : NULL;
  const char *value = strchr(text, '=');
  size_t n = value ? (size_t)(value - text) : strlen(text);
  const Option *found = NULL;
  bool elsewhere = false;
  for (int i = 0; i < OPTIONS && !found; i++) {
    const Option *o = &options[i];
    bool is = text[1] == '-' ? strlen(o->name) + 2 == n && !strncmp(text + 2, o->name, n - 2)
                             : n == 2 && o->letter && o->letter == text[1];
    if (!is) continue;
    if (has_option(cmd, o))
      found = o;
    else
      elsewhere = true;
  }
  if (!found) {
    Suggest s;
    char shown[80], word[80], room[120];
    snprintf(shown, sizeof shown, "%.*s", (int)(n < 70 ? n : 70), text);
    if (elsewhere) return cli_usage(c, command, "there is no option %s here", shown);
    suggest_start(&s, shown);
    for (int i = 0; i < OPTIONS; i++) {
      snprintf(word, sizeof word, "--%s", options[i].name);
      if (has_option(cmd, &options[i])) suggest_try(&s, word);
    }
    return cli_usage(c, command, "there is no option %s%s", shown,
                     suggest_text(&s, room, sizeof room));
  }
  if (found->value) {
    if (value) {
      value++;
    } else if (*next) {
      value = *next;
      *used_next = true;
    }
    if (!value || !*value)
      return cli_usage(c, command, "--%s needs a value: --%s=%s", found->name, found->name,
                       found->value);
  } else if (value) {
    return cli_usage(c, command, "--%s takes no value", found->name);
  }
  return set_option(c, command, found, value);
}

static bool ends_in_ckl(const char *s) {
  size_t n = strlen(s);
  return n > 4 && !strcmp(s + n - 4, ".ckl");
}

/* Finds the command of a command line: *cmd NULL stands for the REPL or for options like --help
 * alone; *at is the index of the command's name, 0 when it is not written. Returns 0 or an exit
 * status. */
static int choose_command(Cli *c, int argc, char **argv, const Command **cmd, int *at) {
  *cmd = NULL;
  *at = 0;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    struct stat st;
    if (word[0] == '-' && word[1]) {
      /* the values of options are not commands */
      for (int k = 0; k < OPTIONS; k++)
        if (options[k].value && !strncmp(word, "--", 2) && !strcmp(word + 2, options[k].name)) i++;
      continue;
    }
    *cmd = find_command(word);
    if (*cmd) {
      *at = i;
      return 0;
    }
    if (ends_in_ckl(word) || !strcmp(word, "-") || (strchr(word, '/') && !stat(word, &st))) {
      *cmd = find_command("run");
      return 0;
    }
    Suggest s;
    char room[120];
    suggest_start(&s, word);
    cli_suggest_commands(&s);
    cli_usage(c, NULL, "no command is called `%s`%s", word, suggest_text(&s, room, sizeof room));
    return EXIT_USAGE;
  }
  return 0;
}

/* Chooses how compiled functions run. Returns 0 or an exit status. */
static int choose_cpu(Cli *c, const char *command) {
  Options *o = &c->o;
  const char *told = getenv("CKL_CPU");
  if (o->interpret && o->emulate)
    return cli_usage(c, command, "--interpret runs nothing on --device=emu");
  o->cpu = o->interpret ? "reference" : o->emulate ? "emulator" : told && *told ? told : NULL;
  size_t i = 0;
  while (o->cpu && ckl_cpu_name(i) && strcmp(o->cpu, ckl_cpu_name(i))) i++;
  if (!o->cpu || ckl_cpu_name(i)) return 0;
  out_printf(&c->err, "ckl: CKL_CPU is `%s`, which is none of:", o->cpu);
  for (i = 0; ckl_cpu_name(i); i++) out_printf(&c->err, " %s", ckl_cpu_name(i));
  out_puts(&c->err, "\n");
  return EXIT_USAGE;
}

/* Reads CKL_THREADS, the number of computing threads. Returns 0 or an exit status. */
static int choose_threads(Cli *c) {
  const char *told = getenv("CKL_THREADS");
  if (!told || !*told) return 0;
  char *end;
  errno = 0;
  long n = strtol(told, &end, 10);
  if (*end || errno || n < 1 || n > INT_MAX) {
    out_printf(&c->err, "ckl: CKL_THREADS is `%s`, which is no number of threads: 1 or more\n",
               told);
    return EXIT_USAGE;
  }
  c->o.threads = (int)n;
  return 0;
}

static int read_command_line(Cli *c, int argc, char **argv, const Command **cmd) {
  Options *o = &c->o;
  int at, rc = choose_command(c, argc, argv, cmd, &at);
  if (rc) return rc;
  if (!*cmd && argc == 2 && !strcmp(argv[1], "--version")) {
    *cmd = find_command("version");
    return 0;
  }
  const Command *as = *cmd ? *cmd : find_command("repl");
  bool only_words = false, is_run = *cmd == find_command("run") || *cmd == find_command("plan");
  for (int i = 1; i < argc; i++) {
    char *word = argv[i];
    if (at && i == at) continue;
    if (!only_words && !strcmp(word, "--")) {
      only_words = true;
    } else if (!only_words && word[0] == '-' && word[1]) {
      bool used_next = false;
      rc = read_option(c, as, word, &argv[i + 1], &used_next);
      if (rc) return rc;
      i += used_next;
    } else if (is_run && is_assignment(word)) {
      o->args[o->arg_count++] = word;
    } else {
      o->words[o->word_count++] = word;
    }
  }
  int wrong = choose_threads(c);
  return wrong ? wrong : choose_cpu(c, as->name);
}

/* Makes one heap in large pages for all but the largest blocks; it stays for the life of the
 * process. Otherwise a model's first step is mostly the first touch of small pages. */
static void large_pages(void) {
#if defined __GLIBC__ && defined MADV_HUGEPAGE && !defined __SANITIZE_ADDRESS__
  enum { ROOM = 256 << 20, LARGE = 8 << 20, USUAL = 128 << 10 };
  mallopt(M_TRIM_THRESHOLD, 2 * ROOM);
  mallopt(M_MMAP_THRESHOLD, LARGE);
  mallopt(M_TOP_PAD, ROOM);
  void *volatile grow = malloc(LARGE / 2); /* grows the heap by ROOM; a limit may refuse that */
  mallopt(M_TOP_PAD, USUAL);
  free(grow);
  const uintptr_t page = 2 << 20, end = (uintptr_t)sbrk(0) & ~(page - 1);
  if (grow) (void)madvise((void *)(end - ROOM + page), ROOM - page, MADV_HUGEPAGE);
#endif
}

int main(int argc, char **argv) {
  large_pages();
  static Cli cli; /* large, and the signal handler reads it */
  Cli *c = &cli;
  out_init(&c->out, 1, "standard output", "auto");
  out_init(&c->err, 2, "standard error", "auto");
  c->o.color = "auto";
  const char ***lists[] = {&c->o.dump, &c->o.log, &c->o.lib, &c->o.args, &c->o.words};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    *lists[i] = calloc((size_t)argc + 1, sizeof **lists[i]);
    if (!*lists[i]) {
      out_puts(&c->err, "ckl: out of memory\n");
      return EXIT_WRONG;
    }
  }
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error like a full disk */

  const Command *cmd;
  int rc = read_command_line(c, argc, argv, &cmd);
  if (!rc) {
    out_init(&c->out, 1, "standard output", c->o.color);
    out_init(&c->err, 2, "standard error", c->o.color);
    if (c->o.help)
      cli_help_command(c, &c->out, cmd ? cmd->name : NULL);
    else
      rc = cmd ? cmd->function(c) : cmd_repl(c);
  }
  out_flush(&c->out);
  out_flush(&c->err);
  if (c->trace.fd > 0) close(c->trace.fd);
  if (c->trace.error && rc == EXIT_FINE) rc = EXIT_WRONG;
  if (c->out.error && rc == EXIT_FINE) rc = EXIT_WRONG;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(*lists[i]);
  return rc;
}
