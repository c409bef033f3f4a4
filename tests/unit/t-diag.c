/* Diagnostics: filing, with and without memory; the picture; JSON. */
#include "runtime/diag.h"

#include <stdlib.h>

#include "tests/tap.h"
#include "tests/unit/failing.h"

typedef struct Session {
  Failing f;
  Mem m;
  Arena a;
  Sources src;
  Diags d;
  Buf out;
} Session;

static void set_up(void *ud) {
  Session *s = ud;
  src_init(&s->src, &s->a);
  dg_init(&s->d, &s->a, &s->m);
}

static int begin(Session *s, int64_t nth) {
  failing_init(&s->f, &s->m, nth);
  arena_init(&s->a, &s->m);
  buf_init(&s->out, &s->m);
  return mem_protect(&s->m, set_up, s);
}

static void end(Session *s) {
  buf_free(&s->out);
  arena_free(&s->a);
  mem_close(&s->m);
  check(failing_clean(&s->f, &s->m));
}

/* ---- sources */

static void place_is(const Sources *s, uint32_t file, uint32_t offset, uint32_t line,
                     uint32_t col) {
  uint32_t l, c;
  src_place(s, file, offset, &l, &c);
  check_msg(l == line && c == col, "%u:%u is at %u:%u, not at %u:%u", file, offset, l, c, line,
            col);
}

static void t_places(void) {
  Session s;
  need(begin(&s, 0) == MEM_OK);
  uint32_t f = src_add(&s.src, "a", "ab\n\n\xc3\xa9x\r\nlast", 14);
  uint32_t g = src_add(&s.src, "b", "", 0);
  uint32_t h = src_add(&s.src, "c", "x\n", 2);
  check_uint(f, ==, 1);
  check_uint(h, ==, 3);
  place_is(&s.src, f, 0, 1, 1);
  place_is(&s.src, f, 2, 1, 3);
  place_is(&s.src, f, 3, 2, 1);
  place_is(&s.src, f, 4, 3, 1);
  place_is(&s.src, f, 5, 3, 1); /* inside a character */
  place_is(&s.src, f, 6, 3, 2);
  place_is(&s.src, f, 9, 4, 1);
  place_is(&s.src, f, 13, 4, 5);
  place_is(&s.src, f, 1000, 4, 6);
  place_is(&s.src, g, 0, 1, 1);
  place_is(&s.src, g, 5, 1, 1);
  place_is(&s.src, h, 2, 2, 1);
  place_is(&s.src, 0, 7, 0, 0);
  place_is(&s.src, 99, 7, 0, 0);
  end(&s);
}

/* ---- filing */

static void t_codes(void) {
  for (int i = 0; i < ERR_COUNT; i++) {
    check_int(err_find(err_info[i].code), ==, i); /* so none stands twice */
    check_msg(err_info[i].title[0] && err_info[i].explain[0], "%s says nothing", err_info[i].code);
  }
  check_int(err_find("no-such-code"), ==, -1);
}

static void t_filing(void) {
  Session s;
  need(begin(&s, 0) == MEM_OK);
  Diags *d = &s.d;
  Span at = {0, 0, 0};
  Diag *e = dg_error(d, ERR_SYNTAX, at, "bad %d", 1);
  Diag *w = dg_warn(d, ERR_NOT_YET, at, "odd");
  check_size(d->count, ==, 2);
  check_size(d->errors, ==, 1);
  check_size(d->warnings, ==, 1);
  check(d->items[0] == e && d->items[1] == w);
  check_str(e->message, "bad 1");
  for (int i = 0; i < 10; i++) dg_label(d, e, at, "label %d", i);
  check_int(e->label_count, ==, 4);
  check_str(e->labels[3].text, "label 3");
  dg_help(d, e, "try %s", "this");
  check_str(e->help, "try this");
  for (int i = 0; i < 40; i++) dg_trace(e, at, "f");
  check_int(e->trace_count, ==, 40);
  dg_rewind(d, 1);
  check(d->count == 1 && d->errors == 1 && !d->warnings);
  dg_clear(d);
  check(!d->count && !d->errors);
  end(&s);
}

static void t_many(void) {
  Session s;
  need(begin(&s, 0) == MEM_OK);
  Diags *d = &s.d;
  size_t live = 0;
  for (int i = 0; i < 1000; i++) {
    Diag *g = dg_warn(d, ERR_NOT_YET, (Span){0, 0, 0}, "again %d", i);
    dg_label(d, g, (Span){0, 0, 0}, "here");
    dg_help(d, g, "stop");
    if (i == 100) live = s.m.live;
  }
  check_size(s.m.live, ==, live); /* a loop of warnings does not eat memory */
  check_size(d->count, ==, DG_MOST);
  check_size(d->dropped, ==, 900);
  Diag *e = dg_error(d, ERR_SYNTAX, (Span){0, 0, 0}, "an error after them is kept");
  check(d->items[d->count - 1] == e && d->errors == 1);
  for (int i = 0; i < 1000; i++) dg_error(d, ERR_SYNTAX, (Span){0, 0, 0}, "e");
  check_size(d->errors, ==, DG_MOST);
  dg_error(d, ERR_NOMEM, (Span){0, 0, 0}, "and this one too");
  check_size(d->count, ==, 2 * DG_MOST + 1);
  for (int i = 0; i < 10; i++) dg_error(d, ERR_SYNTAX, (Span){0, 0, 0}, "e");
  check_size(d->count, ==, 2 * DG_MOST + 1);
  end(&s);
}

static void leave(void *ud) {
  dg_throw(ud);
}

static void file_all(Session *s) {
  Span at = {1, 0, 1};
  for (int i = 0; i < 3; i++) {
    Diag *g = dg_error(&s->d, ERR_SYNTAX, at, "%0*d", 300, i);
    dg_label(&s->d, g, at, "%0*d", 900, i);
    dg_help(&s->d, g, "%0*d", 900, i);
  }
}

static void t_no_memory(void) {
  Session s;
  int64_t most = 0;
  begin(&s, 0);
  file_all(&s);
  check_int(mem_protect(&s.m, leave, &s.d), ==, MEM_ERR_PROGRAM);
  most = s.f.count;
  end(&s);
  check_int(most, >, 2);
  for (int64_t nth = 1; nth <= most; nth++) {
    if (begin(&s, nth) != MEM_OK) {
      end(&s);
      continue;
    }
    file_all(&s);
    bool filed = s.d.nomem_filed;
    check_int(mem_protect(&s.m, leave, &s.d), ==, filed ? MEM_ERR_NOMEM : MEM_ERR_PROGRAM);
    check_size(s.d.count, ==, 3);
    end(&s);
  }
  /* none at all */
  need(begin(&s, 0) == MEM_OK);
  Mem dead;
  Failing f;
  failing_init(&f, &dead, 1);
  s.a.mem = &dead;
  for (int i = 0; i < 300 && s.a.chunk; i++) {
    f.count = 0; /* fails every time */
    dg_error(&s.d, ERR_SYNTAX, (Span){0, 0, 0}, "%0*d", 500, i);
  }
  check(s.d.nomem_filed);
  dg_clear(&s.d);
  f.count = 0;
  Diag *g = dg_error(&s.d, ERR_NOMEM, (Span){0, 0, 0}, "zeros needs %0*d bytes", 200, 9);
  check(g == &s.d.nomem);
  check_has(g->message, "zeros needs 00000");
  f.count = 0;
  dg_help(&s.d, g, "%0*d", 500, 1);
  f.count = 0;
  dg_label(&s.d, g, (Span){0, 0, 0}, "%0*d", 500, 1);
  check(!g->help && !g->label_count);
  f.count = 0;
  check(dg_error(&s.d, ERR_NOMEM, (Span){0, 0, 0}, "second") == g);
  check_size(s.d.count, ==, 1);
  s.a.mem = &s.m;
  end(&s);
}

/* ---- the picture */

static Session shown;

static uint32_t text_file(const char *path, const char *text) {
  return src_add(&shown.src, path, text, strlen(text));
}

/* The nth place of `word` in a file. */
static Span span_of(uint32_t file, const char *word, int nth) {
  const char *text = src_get(&shown.src, file)->text, *p = strstr(text, word);
  while (p && nth--) p = strstr(p + 1, word);
  if (!p) return (Span){0, 0, 0};
  return (Span){file, (uint32_t)(p - text), (uint32_t)(p - text + (long)strlen(word))};
}

static Diag *error_at(Span at, const char *message) {
  return dg_error(&shown.d, ERR_SYNTAX, at, "%s", message);
}

static void looks(const Diag *g, const char *expected) {
  shown.out.n = 0;
  dg_render(&shown.out, &shown.src, g, false);
  check_str(shown.out.s, expected);
}

static void t_one_line(void) {
  uint32_t f = text_file("file.ckl", "let a = 1\nlet b = 2\nlet y = x @ w\n");
  Diag *g = error_at(span_of(f, "@", 0), "the inner dims differ");
  looks(g, "error[syntax-1]: the inner dims differ                             file.ckl:3:11\n"
           "   3 | let y = x @ w\n"
           "     |           ^\n");
  g->label = "here";
  looks(g, "error[syntax-1]: the inner dims differ                             file.ckl:3:11\n"
           "   3 | let y = x @ w\n"
           "     |           ^ here\n");
  dg_label(&shown.d, g, span_of(f, "x", 0), "f32[2, 4]");
  dg_label(&shown.d, g, span_of(f, "w", 0), "f32[3, 4]");
  dg_help(&shown.d, g, "transpose(w)\nfits");
  looks(g, "error[syntax-1]: the inner dims differ                             file.ckl:3:11\n"
           "   3 | let y = x @ w\n"
           "     |         - ^ - f32[3, 4]\n"
           "     |         | here\n"
           "     |         f32[2, 4]\n"
           "   = help: transpose(w)\n"
           "           fits\n");
}

static void t_packed(void) {
  uint32_t f = text_file("p.ckl", "first(second, third)\n");
  Diag *g = error_at(span_of(f, "second", 0), "m");
  g->label = "two";
  dg_label(&shown.d, g, span_of(f, "first", 0), "one");
  dg_label(&shown.d, g, span_of(f, "third", 0), "three");
  looks(g, "error[syntax-1]: m                                                     p.ckl:1:7\n"
           "   1 | first(second, third)\n"
           "     | ----- ^^^^^^  ----- three\n"
           "     | one   two\n");
  /* a mark inside another stays visible */
  g = error_at(span_of(f, "first(second, third)", 0), "m");
  g->label = "all";
  dg_label(&shown.d, g, span_of(f, "second", 0), "part");
  looks(g, "error[syntax-1]: m                                                     p.ckl:1:1\n"
           "   1 | first(second, third)\n"
           "     | ^^^^^^------^^^^^^^^ all\n"
           "     |       part\n");
}

static void t_other_lines(void) {
  uint32_t f = text_file("a.ckl", "model M(d: int) {\n  let x = 1\n  let y = 2\n}\nf(d)\n");
  uint32_t h = text_file("b.ckl", "fn f(n) = n\n");
  Diag *g = error_at(span_of(f, "d", 2), "wrong size");
  dg_label(&shown.d, g, span_of(f, "d: int", 0), "`d` is bound here");
  dg_label(&shown.d, g, span_of(h, "n", 1), "declared here");
  dg_trace(g, span_of(f, "y", 0), "net.fc");
  dg_trace(g, (Span){0, 0, 0}, "the session");
  looks(g, "error[syntax-1]: wrong size                                            a.ckl:5:3\n"
           "   1 | model M(d: int) {\n"
           "     |         ------ `d` is bound here\n"
           "    ...\n"
           "   5 | f(d)\n"
           "     |   ^\n"
           "   at b.ckl:1:6\n"
           "   1 | fn f(n) = n\n"
           "     |      - declared here\n"
           "   in net.fc, called at a.ckl:3:7\n"
           "   in the session\n");
  g = error_at((Span){f, 8, span_of(f, "y", 0).hi}, "many lines");
  g->label = "up to here";
  looks(g, "error[syntax-1]: many lines                                            a.ckl:1:9\n"
           "   1 | model M(d: int) {\n"
           "     |         ^^^^^^^^^\n"
           "    ...\n"
           "   3 |   let y = 2\n"
           "     |   ^^^^^ up to here\n");
  for (int i = 0; i < 20; i++) dg_trace(g, (Span){0, 0, 0}, "f");
  shown.out.n = 0;
  dg_render(&shown.out, &shown.src, g, false);
  check_has(shown.out.s, "   in f\n   ... and 4 more calls\n");
}

static void t_ends(void) {
  uint32_t f = text_file("e.ckl", "let a = {\n\n  \n");
  looks(error_at((Span){f, 900, 900}, "no end"),
        "error[syntax-1]: no end                                               e.ckl:1:10\n"
        "   1 | let a = {\n"
        "     |          ^\n");
  uint32_t g = text_file("empty.ckl", "");
  looks(error_at((Span){g, 0, 0}, "nothing"),
        "error[syntax-1]: nothing                                           empty.ckl:1:1\n"
        "   1 |\n"
        "     | ^\n");
  looks(error_at((Span){0, 0, 0}, "nowhere"), "error[syntax-1]: nowhere\n");
  looks(error_at((Span){77, 0, 0}, "nowhere"), "error[syntax-1]: nowhere\n");
  looks(error_at((Span){f, 4, 2}, "backwards"),
        "error[syntax-1]: backwards                                             e.ckl:1:5\n"
        "   1 | let a = {\n"
        "     |     ^\n");
}

static void t_widths(void) {
  uint32_t f = text_file("w.ckl", "\tf(\tx, \xe6\xbc\xa2\xe5\xad\x97, e\xcc\x81, q)\r\n");
  Diag *g = error_at(span_of(f, "q", 0), "\xe6\xbc\xa2");
  dg_label(&shown.d, g, span_of(f, "\xe6\xbc\xa2\xe5\xad\x97", 0), "wide");
  dg_label(&shown.d, g, span_of(f, "\tx", 0), "tab");
  g->label = "after";
  looks(
      g,
      "error[syntax-1]: \xe6\xbc\xa2                                                   w.ckl:1:16\n"
      "   1 | \tf(\tx, \xe6\xbc\xa2\xe5\xad\x97, e\xcc\x81, q)\n"
      "     | \t  -------  ----     ^ after\n"
      "     | \t  tab      wide\n");
  /* nothing reaches the terminal that could move its cursor or reorder its text */
  f = text_file("c\033.ckl", "a \033[2J \xe2\x80\xae b \xff c\n");
  looks(error_at(span_of(f, "c", 0), "escape\033 and\nnewline"),
        "error[syntax-1]: escape? and newline                                 c?.ckl:1:14\n"
        "   1 | a ?[2J \xef\xbf\xbd b \xef\xbf\xbd c\n"
        "     |              ^\n");
}

static void t_long(void) {
  char text[5000];
  int n = 0;
  for (int i = 0; i < 500; i++) n += sprintf(text + n, "word%d ", i);
  uint32_t f = text_file("l.ckl", text);
  static const char *const at[] = {"word0", "word250", "word499"};
  for (int i = 0; i < 3; i++) {
    Diag *g = error_at(span_of(f, at[i], 0), "m");
    dg_label(&shown.d, g, span_of(f, "word100", 0), "other");
    shown.out.n = 0;
    dg_render(&shown.out, &shown.src, g, false);
    const char *line = strchr(shown.out.s, '\n') + 1, *row = strchr(line, '\n') + 1;
    const char *caret = strchr(row, '^'), *word = strstr(line, at[i]);
    need(caret && word && word < row);
    check_int(caret - row, ==, word - line);
    check_size(strcspn(line, "\n"), <, 120);
    check((strstr(line, "...") != NULL) && strstr(line, "...") < row);
  }
  memset(text, '\t', 300);
  strcpy(text + 300, "x");
  f = text_file("t.ckl", text);
  looks(
      error_at(span_of(f, "x", 0), "m"),
      "error[syntax-1]: m                                                   t.ckl:1:301\n"
      "   1 | ..."
      "                                                                                           "
      "        x\n"
      "     |    "
      "                                                                                           "
      "        ^\n");
}

static void t_color(void) {
  uint32_t f = text_file("k.ckl", "a b\n");
  Diag *g = error_at(span_of(f, "b", 0), "m");
  dg_label(&shown.d, g, span_of(f, "a", 0), "label");
  shown.out.n = 0;
  dg_render(&shown.out, &shown.src, g, true);
  check_has(shown.out.s, "\033[1;31merror[syntax-1]\033[0m");
  check_has(shown.out.s, "\033[1;31m^\033[0m");
  check_has(shown.out.s, "\033[1;34m-\033[0m");
  const char *last = NULL;
  for (const char *p = shown.out.s; (p = strstr(p, "\033[")); p++) last = p;
  check(last && strncmp(last, "\033[0m", 4) == 0); /* nothing stays coloured */
}

/* ---- JSON */

static void t_json(void) {
  uint32_t f = text_file("j \"1\".ckl", "let y =\n  x @ w\n");
  Diag *g = error_at(span_of(f, "x @ w", 0), "a \"quoted\"\nmessage");
  dg_label(&shown.d, g, span_of(f, "y", 0), "lab\tel");
  dg_help(&shown.d, g, "help");
  dg_trace(g, span_of(f, "w", 0), "net.fc");
  shown.out.n = 0;
  dg_render_json(&shown.out, &shown.src, g);
  check(!strchr(shown.out.s, '\n'));
  check_str(
      shown.out.s,
      "{\"severity\":\"error\",\"code\":\"syntax-1\",\"message\":\"a \\\"quoted\\\"\\n"
      "message\","
      "\"file\":\"j "
      "\\\"1\\\".ckl\",\"line\":2,\"col\":3,\"end_line\":2,\"end_col\":8,\"label\":null,"
      "\"labels\":[{\"file\":\"j \\\"1\\\".ckl\",\"line\":1,\"col\":5,\"end_line\":1,\"end_col\":6,"
      "\"text\":\"lab\\tel\"}],\"help\":\"help\",\"trace\":[{\"what\":\"net.fc\","
      "\"file\":\"j \\\"1\\\".ckl\",\"line\":2,\"col\":7,\"end_line\":2,\"end_col\":8}],"
      "\"trace_more\":0}");
  g = dg_warn(&shown.d, ERR_NOT_YET, (Span){0, 0, 0}, "m");
  shown.out.n = 0;
  dg_render_json(&shown.out, &shown.src, g);
  check_str(shown.out.s,
            "{\"severity\":\"warning\",\"code\":\"not-yet-1\",\"message\":\"m\",\"file\":null,"
            "\"line\":0,\"col\":0,\"end_line\":0,\"end_col\":0,\"label\":null,"
            "\"labels\":[],\"help\":null,\"trace\":[],\"trace_more\":0}");
}

/* ---- anything */

static uint64_t seed = 20240229;

static uint32_t draw(uint32_t below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % below;
}

typedef struct Anything {
  Diag *g;
  Buf out;
} Anything;

static void render_both(void *ud) {
  Anything *u = ud;
  buf_init(&u->out, &shown.m);
  dg_render(&u->out, &shown.src, u->g, draw(2));
  dg_render_json(&u->out, &shown.src, u->g);
}

static bool clean_text(const char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    int len = str_utf8(s + i, n - i, &cp);
    if ((cp == 0xfffd && len == 1) || (cp < 0x20 && cp != '\n' && cp != '\t' && cp != 033))
      return false;
    i += (size_t)len;
  }
  return true;
}

static void t_anything(void) {
  static const char *const bits[] = {"\t",
                                     " ",
                                     "\n",
                                     "\r\n",
                                     "x",
                                     "\xc3\xa9",
                                     "\xe6\xbc\xa2",
                                     "\xcc\x81",
                                     "\xff",
                                     "\x01",
                                     "\xf0\x9f\x98\x80",
                                     "{",
                                     "\r"};
  uint32_t last = 0;
  for (int round = 0; round < 4000; round++) {
    char text[2200] = "";
    size_t n = 0;
    uint32_t want = draw(8) ? draw(60) : draw(500);
    for (uint32_t i = 0; i < want; i++) {
      const char *bit = bits[draw(sizeof bits / sizeof *bits)];
      memcpy(text + n, bit, strlen(bit));
      n += strlen(bit);
    }
    uint32_t f = src_add(&shown.src, "any.ckl", text, n), size = (uint32_t)n + 3;
    dg_clear(&shown.d);
    Span at = {draw(9) ? f : last, draw(size), 0};
    at.hi = draw(3) ? at.lo + draw(8) : draw(size);
    Diag *g = error_at(at, draw(2) ? "short" : text);
    if (draw(2)) g->label = draw(2) ? "primary" : "";
    for (uint32_t i = draw(6); i > 0; i--) {
      Span s = {draw(5) ? f : last, draw(size), 0};
      s.hi = s.lo + draw(5);
      dg_label(&shown.d, g, s, "%.*s", (int)draw(12), "label label label");
    }
    last = f;
    Anything u = {.g = g};
    int code = mem_protect(&shown.m, render_both, &u);
    bool ok = code == MEM_OK && clean_text(u.out.s, u.out.n);
    buf_free(&u.out);
    if (!check_msg(ok, "round %d", round)) return;
    if (round % 500 == 0) { /* each allocation failing */
      for (int64_t nth = 1; nth < 100; nth++) {
        shown.f.count = 0;
        shown.f.nth = nth;
        code = mem_protect(&shown.m, render_both, &u);
        buf_free(&u.out);
        if (code == MEM_OK) break;
        check_int(code, ==, MEM_ERR_NOMEM);
      }
      shown.f.nth = 0;
    }
  }
}

int main(void) {
  TEST(t_places(), "offsets have lines and columns");
  TEST(t_codes(), "each code stands once and says something");
  TEST(t_filing(), "errors and warnings are filed in order");
  TEST(t_many(), "a flood of warnings is cut, and errors still come through");
  TEST(t_no_memory(), "diagnostics work without memory");
  begin(&shown, 0);
  TEST(t_one_line(), "marks of one line share its row");
  TEST(t_packed(), "labels that do not touch share a row");
  TEST(t_other_lines(), "labels elsewhere show their lines and files");
  TEST(t_ends(), "ends of files, empty files and nowhere are shown");
  TEST(t_widths(), "tabs, wide and strange characters keep carets in place");
  TEST(t_long(), "long lines are cut around the caret");
  TEST(t_color(), "colour comes when asked for, and ends");
  TEST(t_json(), "JSON says the same");
  TEST(t_anything(), "any text and any spans are shown as clean text");
  TEST(end(&shown), "nothing is left");
  return tap_done();
}
