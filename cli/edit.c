/* Lines from a terminal, edited with libedit if it was built in: keys, completion, history.
 *
 * In: keys. Out: lines, and the history, in which an input of several lines is one entry that comes
 * back as a whole. Completion looks at the text before the cursor: it completes a command, a file
 * name in a string or behind :load, a member behind a dot, else a name. It evaluates nothing. */
#include "cli/cli.h"

#ifdef HAVE_LIBEDIT
#include <ctype.h>
#include <dirent.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

struct Editor {
  Cli *cli;
  const char *(*word)(size_t i);
  bool more; /* the prompt is for another line of the same input */
  EditLine *edit;
  History *history;
  char *history_path;
};

static char *prompt(EditLine *e) {
  static char first[] = "> ", further[] = ". ";
  void *ud;
  el_get(e, EL_CLIENTDATA, &ud);
  return ((Editor *)ud)->more ? further : first;
}

/* Like libedit's own reader, except that Ctrl-C ends the line at once. */
static int read_char(EditLine *e, wchar_t *c) {
  mbstate_t state;
  memset(&state, 0, sizeof state);
  (void)e;
  for (;;) {
    char byte;
    ssize_t k = cli_read_input(&byte, 1);
    if (k <= 0) return (int)k;
    size_t n = mbrtowc(c, &byte, 1, &state);
    if (n == (size_t)-1) memset(&state, 0, sizeof state);
    if (n < (size_t)-2) return 1;
  }
}

/* ---- completion */

/* The texts that may replace the last `n` characters before the cursor. */
typedef struct Fits {
  char **items;
  size_t count, room, n;
} Fits;

static void fit(Fits *f, const char *text, const char *end) {
  size_t n = strlen(text), k = strlen(end);
  for (size_t i = 0; i < f->count; i++)
    if (!strncmp(f->items[i], text, n) && !strcmp(f->items[i] + n, end)) return;
  if (f->count == f->room) {
    size_t room = f->room ? 2 * f->room : 32;
    char **items = realloc(f->items, room * sizeof *items);
    if (!items) return;
    f->items = items;
    f->room = room;
  }
  char *item = malloc(n + k + 1);
  if (!item) return;
  memcpy(item, text, n);
  memcpy(item + n, end, k + 1);
  f->items[f->count++] = item;
}

static void fits_free(Fits *f) {
  for (size_t i = 0; i < f->count; i++) free(f->items[i]);
  free(f->items);
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files whose path starts with `typed`; folders end with a slash. */
static void fit_files(Fits *f, const char *typed) {
  const char *slash = strrchr(typed, '/'), *last = slash ? slash + 1 : typed;
  char folder[1024], path[2048];
  if ((size_t)(last - typed) >= sizeof folder) return;
  snprintf(folder, sizeof folder, "%.*s", (int)(last - typed), typed);
  f->n = strlen(last);
  DIR *dir = opendir(*folder ? folder : ".");
  if (!dir) return;
  for (struct dirent *d; (d = readdir(dir)) != NULL;) {
    struct stat st;
    if (strncmp(d->d_name, last, f->n) || (d->d_name[0] == '.' && last[0] != '.')) continue;
    if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
    int k = snprintf(path, sizeof path, "%s%s", folder, d->d_name);
    if (k < 0 || (size_t)k >= sizeof path) continue;
    fit(f, d->d_name, !stat(path, &st) && S_ISDIR(st.st_mode) ? "/" : "");
  }
  closedir(dir);
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

/* The start of the string that is open at the end of text[0, n), or NULL. */
static const char *open_string(const char *text, size_t n) {
  const char *from = NULL;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '\n')
      from = NULL;
    else if (from && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      from = from ? NULL : text + i + 1;
    else if (!from && text[i] == '#')
      while (i + 1 < n && text[i + 1] != '\n') i++;
  }
  return from;
}

/* text[0, n): the text before the cursor. */
static void find_fits(Editor *e, Fits *f, const char *text, size_t n) {
  char typed[512];
  const char *end = text + n, *from = open_string(text, n), *name;
  bool command = n && text[0] == ':';
  size_t k = 0;
  while (command && k + 1 < n && is_word(text[k + 1])) k++;
  if (command && k + 1 == n) {
    snprintf(typed, sizeof typed, "%.*s", (int)k, text + 1);
    f->n = k;
    for (size_t i = 0; (name = e->word(i)) != NULL; i++)
      if (!strncmp(name, typed, k)) fit(f, name, "");
    return;
  }
  if (!from && command && k == 4 && !strncmp(text, ":load", 5))
    for (from = text + 5; from < end && *from == ' ';) from++;
  if (from) {
    if ((size_t)(end - from) >= sizeof typed) return;
    snprintf(typed, sizeof typed, "%.*s", (int)(end - from), from);
    fit_files(f, typed);
    return;
  }
  for (from = end; from > text; from--) {
    bool dot = from[-1] == '.' && from - 1 > text && is_word(from[-2]);
    if (!is_word(from[-1]) && !dot) break;
  }
  if (from == end || (size_t)(end - from) >= sizeof typed) return;
  snprintf(typed, sizeof typed, "%.*s", (int)(end - from), from);
  const char *dot = strrchr(typed, '.');
  f->n = strlen(dot ? dot + 1 : typed);
  for (size_t i = 0; (name = ckl_complete(e->cli->session, typed, i)) != NULL; i++)
    fit(f, name, "");
}

static unsigned char complete(EditLine *el, int ch) {
  void *ud;
  (void)ch;
  el_get(el, EL_CLIENTDATA, &ud);
  Editor *e = ud;
  Out *out = &e->cli->out;
  const LineInfo *line = el_line(el);
  Fits f = {NULL, 0, 0, 0};
  find_fits(e, &f, line->buffer, (size_t)(line->cursor - line->buffer));
  unsigned char answer = CC_ERROR;
  if (f.count) { /* insert their common prefix, or list them if it is typed already */
    size_t common = strlen(f.items[0]);
    for (size_t i = 1; i < f.count; i++) {
      size_t k = 0;
      while (k < common && f.items[i][k] == f.items[0][k]) k++;
      common = k;
    }
    if (common > f.n) {
      f.items[0][common] = 0;
      answer = el_insertstr(el, f.items[0] + f.n) ? CC_ERROR : CC_REFRESH;
    } else {
      qsort(f.items, f.count, sizeof *f.items, by_text);
      out_puts(out, "\n");
      for (size_t i = 0; i < f.count; i++) out_printf(out, "%s  ", f.items[i]);
      out_puts(out, "\n");
      answer = CC_REDISPLAY;
    }
  }
  fits_free(&f);
  return answer;
}

/* ---- history */

/* $XDG_STATE_HOME/ckl/history, by default ~/.local/state/ckl/history; its folders are made. NULL:
 * there is no such place. */
static char *find_history(void) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  bool xdg = state && state[0] == '/';
  if (!xdg && !(home && home[0] == '/')) return NULL;
  const char *base = xdg ? state : home, *below = xdg ? "" : "/.local/state";
  size_t n = strlen(base) + 64;
  char *path = malloc(n);
  if (!path) return NULL;
  snprintf(path, n, "%s%s/ckl/history", base, below);
  for (char *p = path; (p = strchr(p + 1, '/')) != NULL;) {
    *p = 0;
    mkdir(path, 0700);
    *p = '/';
  }
  return path;
}

void edit_remember(Editor *e, const char *text) {
  HistEvent ev;
  if (!e || !e->history || !text[strspn(text, " \t\n")]) return;
  history(e->history, &ev, H_ENTER, text);
}

/* ---- lines */

Editor *edit_open(Cli *c, const char *(*word)(size_t i)) {
  HistEvent ev;
  if (!isatty(STDOUT_FILENO)) return NULL;
  const char *term = getenv("TERM");
  if (!term || !strcmp(term, "dumb")) return NULL;
  Editor *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  e->cli = c;
  e->word = word;
  setlocale(LC_CTYPE, ""); /* for characters only; numbers keep the C locale */
  e->edit = el_init("ckl", stdin, stdout, stderr);
  if (!e->edit) {
    free(e);
    return NULL;
  }
  el_set(e->edit, EL_CLIENTDATA, e);
  el_set(e->edit, EL_PROMPT, prompt);
  el_set(e->edit, EL_EDITOR, "emacs");
  el_set(e->edit, EL_SIGNAL, 0);
  el_set(e->edit, EL_GETCFN, read_char);
  el_set(e->edit, EL_ADDFN, "ckl-complete", "complete a name", complete);
  el_set(e->edit, EL_BIND, "\t", "ckl-complete", NULL);
  el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
  e->history = history_init();
  if (!e->history) return e;
  history(e->history, &ev, H_SETSIZE, 1000);
  history(e->history, &ev, H_SETUNIQUE, 1);
  el_set(e->edit, EL_HIST, history, e->history);
  e->history_path = find_history();
  if (e->history_path) history(e->history, &ev, H_LOAD, e->history_path);
  el_source(e->edit, NULL); /* ~/.editrc */
  return e;
}

void edit_close(Editor *e) {
  HistEvent ev;
  if (!e) return;
  if (e->history) {
    if (e->history_path) history(e->history, &ev, H_SAVE, e->history_path);
    history_end(e->history);
  }
  free(e->history_path);
  el_end(e->edit);
  free(e);
}

Read edit_line(Editor *e, bool more, const char **line) {
  int n = 0;
  e->more = more;
  *line = el_gets(e->edit, &n);
  if (*line && n > 0) return READ_LINE;
  if (n < 0 && cli_interrupts()) {
    el_reset(e->edit);
    return READ_INTERRUPT;
  }
  return READ_END;
}

#else

Editor *edit_open(Cli *c, const char *(*word)(size_t i)) {
  (void)c;
  (void)word;
  return NULL;
}

Read edit_line(Editor *e, bool more, const char **line) {
  (void)e;
  (void)more;
  *line = NULL;
  return READ_END;
}

void edit_remember(Editor *e, const char *text) {
  (void)e;
  (void)text;
}

void edit_close(Editor *e) {
  (void)e;
}

#endif
