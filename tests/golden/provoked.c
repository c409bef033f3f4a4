/* Which errors the programs of a run of the golden runner provoked: every code has to be, and the
 * example in the help of each. */
#include "tests/golden/runner.h"

#include <stdio.h>
#include <string.h>

static Names codes, messages; /* seen in diagnostics */

void note_diags(ckl_session *s) {
  for (size_t i = 0; i < ckl_diag_count(s); i++) {
    const char *code = ckl_diag_code(s, i), *text = ckl_diag_text(s, i, 0);
    if (code) push_new(&codes, code, strlen(code));
    size_t n = 0;
    while (text && text[n] && text[n] != '\n' && strncmp(text + n, "  ", 2)) n++;
    if (text) push_new(&messages, text, n);
  }
}

/* Codes in what a program wrote: by error_of, and in warnings. */
void note_printed_codes(const char *text) {
  const char *code;
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++) {
    size_t n = strlen(code);
    for (const char *p = text; (p = strstr(p, code)) != NULL; p++) {
      char before = p == text ? ' ' : p[-1], after = p[n];
      if (!strchr(" \"([", before) || (after >= '0' && after <= '9')) continue;
      push_new(&codes, code, n);
      break;
    }
  }
}

/* The example that `ckl help CODE` shows provokes the error, when it is checked or when it runs. */
void check_help(void) {
  Text why = {NULL, 0, 0};
  const char *code;
  enter_run_folder();
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++) {
    Run r;
    Text program = {NULL, 0, 0};
    memset(&r, 0, sizeof r);
    if (!open_session(&r)) return;
    const char *help = ckl_help(r.s, code);
    const char *example = help ? strstr(help, "For example:\n") : NULL;
    if (!help) addf(&why, "%s: ckl_help knows nothing\n", code);
    if (example)
      for (const char *p = strchr(example, '\n') + 1; *p;) {
        size_t n = strcspn(p, "\n"), indent = strncmp(p, "    ", 4) ? 0 : 4;
        add(&program, p + indent, n - indent);
        adds(&program, "\n");
        p += n + (p[n] == '\n');
      }
    if (example) {
      bool found = false;
      if (!write_file("example.ckl", &program)) die("example.ckl");
      snprintf(current_path, sizeof current_path, "the example of %s", code);
      for (int pass = 0; pass < 2 && !found; pass++) {
        run(&r, pass ? ckl_run_file : ckl_check_file, "example.ckl");
        for (size_t k = 0; k < ckl_diag_count(r.s); k++)
          found = found || !strcmp(ckl_diag_code(r.s, k), code);
        for (size_t k = 0; k < r.count; k++)
          found = found || strstr(text_of(&r.said[k].text), code);
      }
      if (!found)
        addf(&why, "%s: its example does not provoke it\n%s%s\n", code, text_of(&program),
             text_of(&r.diags));
    }
    close_session(&r);
    run_free(&r);
    clear(&program);
  }
  tap(!why.n, "the example of each error provokes it", &why);
  clear(&why);
}

/* `opt.codes` lists codes that no test can provoke: a code, a blank, the reason. */
void check_codes(void) {
  Text allowed = {NULL, 0, 0}, why = {NULL, 0, 0};
  Names excused = {NULL, 0};
  char full[2048], title[100];
  snprintf(full, sizeof full, "%s/%s", opt.root, opt.codes);
  if (!read_file(full, &allowed)) die(full);
  for (const char *p = text_of(&allowed); *p;) {
    size_t line = strcspn(p, "\n"), n = strcspn(p, " \n");
    if (*p != '#' && n) {
      if (n == line) addf(&why, "%.*s is excused without a reason\n", (int)n, p);
      if (has(&codes, p, n)) addf(&why, "%.*s is excused and provoked\n", (int)n, p);
      push_new(&excused, p, n);
    }
    p += line + (p[line] == '\n');
  }
  const char *code;
  for (size_t i = 0; (code = ckl_error_code(i)) != NULL; i++)
    if (!has(&codes, code, strlen(code)) && !has(&excused, code, strlen(code)))
      addf(&why, "%s is provoked by no test\n", code);
  tap(!why.n, "every error code is provoked by a test", &why);
  clear(&why);
  if ((long)messages.n < opt.at_least)
    addf(&why, "only %zu, at least %ld are wanted\n", messages.n, opt.at_least);
  snprintf(title, sizeof title, "%zu different errors are provoked", messages.n);
  tap(!why.n, title, &why);
  clear(&why);
  clear(&allowed);
  clear_names(&excused);
}

void forget_codes(void) {
  clear_names(&codes);
  clear_names(&messages);
}
