/* The page of the library, docs/library.md.
 *
 * In: the rows of builtins.def and the files of stdlib/, with their `##` comments. Out: Markdown.
 * Idea: a group for each section of the table and for each file, in their order; the page begins
 * with the names of all groups. Lines of a comment that stand further in are code. Invariant:
 * names that begin with `_` are left out; files are parsed, not loaded.
 */
#include "lang/names/library.h"

#include <ctype.h>
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/names/help.h"
#include "lang/value/fail.h"
#include "parser/parse.h"
#include "stdlib/embed.h"

/* ---- pieces of pages */

void page_cell(Buf *b, const char *text) {
  for (; *text; text++) {
    if (*text == '|') buf_putc(b, '\\');
    buf_putc(b, *text == '\n' ? ' ' : *text);
  }
}

void page_fill(Buf *b, const char *mark, const char *text) {
  int indent = (int)strlen(mark), column = indent;
  bool first = true, code = false;
  buf_puts(b, mark);
  for (const char *word = text; *word;) {
    const char *end = word;
    for (; *end && (code || *end != ' '); end++) code ^= *end == '`';
    int length = (int)(end - word);
    if (!first && column + 1 + length > 100) {
      buf_printf(b, "\n%*s", indent, "");
      column = indent;
    } else if (!first) {
      buf_putc(b, ' ');
      column++;
    }
    buf_put(b, word, (size_t)length);
    column += length;
    first = false;
    word = end + strspn(end, " ");
  }
  buf_putc(b, '\n');
}

/* ---- the page */

typedef struct Page {
  Session *s;
  Buf names, body; /* the list of all groups, and the groups */
  Buf group;       /* the names of this one */
} Page;

/* Text that is read as it stands, not as HTML or emphasis. */
static const char *plain(Page *p, const char *text) {
  bool code = false;
  Buf b;
  buf_init_arena(&b, &p->s->scratch);
  for (; *text; text++) {
    code ^= *text == '`';
    if (!code && ((*text == '<' && isalpha((unsigned char)text[1])) ||
                  (*text == '*' && text[1] && !strchr("* ", text[1]))))
      buf_putc(&b, '\\');
    buf_putc(&b, *text);
  }
  return b.s;
}

static void open_group(Page *p, const char *title) {
  buf_printf(&p->body, "\n## %s\n", title);
  buf_init_arena(&p->group, &p->s->scratch);
  buf_printf(&p->group, "[%s](#", title);
  for (; *title; title++) /* as a heading is called in links */
    if (*title == ' ')
      buf_putc(&p->group, '-');
    else if (*title != ':' && *title != ',' && *title != '`')
      buf_putc(&p->group, (char)tolower((unsigned char)*title));
  buf_puts(&p->group, "):");
}

static void close_group(Page *p) {
  page_fill(&p->names, "- ", p->group.s);
}

static void add_name(Page *p, const char *name) {
  buf_printf(&p->group, " `%s`", name);
}

static bool is_code(const char *line) {
  return line[0] == ' ' && line[1] == ' ';
}

/* A comment without its marks. */
static void say(Page *p, const char *text) {
  for (size_t n; *text;) {
    if (*text == '\n') {
      text++;
      continue;
    }
    bool code = is_code(text);
    Buf b;
    buf_init_arena(&b, &p->s->scratch);
    for (; *text && *text != '\n' && is_code(text) == code; text += n + (text[n] == '\n')) {
      n = strcspn(text, "\n");
      if (b.n) buf_putc(&b, code ? '\n' : ' ');
      buf_put(&b, text + 2 * code, n - 2 * code);
    }
    buf_putc(&p->body, '\n');
    if (code)
      buf_printf(&p->body, "```text\n%s\n```\n", b.s);
    else
      page_fill(&p->body, "", plain(p, b.s));
  }
}

/* The comment at the head of a file. */
static void say_head(Page *p, const char *text) {
  Buf b;
  buf_init_arena(&b, &p->s->scratch);
  for (size_t n; !strncmp(text, "##", 2); text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    if (n > 3) buf_put(&b, text + 3, n - 3);
    buf_putc(&b, '\n');
  }
  say(p, b.s);
}

/* A head, moved to the left by `indent` columns, and its comment. */
static void say_declaration(Page *p, const Declaration *d, size_t indent) {
  buf_puts(&p->body, "\n```text\n");
  for (const char *c = d->head; c < d->head + d->size; c++) {
    buf_putc(&p->body, *c);
    if (*c == '\n') c += indent;
  }
  buf_puts(&p->body, "\n```\n");
  if (d->doc) say(p, d->doc);
}

static void say_file(Page *p, const StdFile *f) {
  Session *s = p->s;
  ParseContext pc = {&s->scratch, s->names, &s->sources, &s->diags};
  uint32_t file = src_add_passing(&s->sources, fail_text(s, "<%s>", f->name), f->text, f->size);
  const NodeList *items = &parse_file(&pc, file)->file.items;
  open_group(p, fail_text(s, f->shelf ? "Without `use`: %s" : "`use %s`", f->name));
  say_head(p, f->text);
  for (uint32_t i = 0; i < items->count; i++) {
    Declaration d;
    const Node *n = items->items[i];
    for (uint32_t k = 0; f->shelf && n->kind == N_USE && k < n->use.names.count; k++)
      add_name(p, n->use.names.items[k].name);
    if (!help_declaration(s, n, &d) || d.name[0] == '_') continue;
    add_name(p, d.name);
    buf_printf(&p->body, "\n### %s\n", d.name);
    say_declaration(p, &d, 0);
    if (n->kind != N_MODEL) continue;
    for (uint32_t k = 0; k < n->model.members.count; k++)
      if (help_declaration(s, n->model.members.items[k], &d) && d.doc) say_declaration(p, &d, 2);
  }
  close_group(p);
}

/* All files of the shelf, or all modules, by their names. */
static void say_files(Page *p, bool shelf) {
  for (const char *last = ""; last;) {
    const StdFile *next = NULL;
    for (const StdFile *f = std_files; f->name; f++)
      if (f->shelf == shelf && strcmp(f->name, last) > 0 &&
          (!next || strcmp(f->name, next->name) < 0))
        next = f;
    if (next) say_file(p, next);
    last = next ? next->name : NULL;
  }
}

/* ---- builtins */

static const struct {
  const char *section, *name;
} rows[] = {
#define SECTION(title) {title, NULL},
#define BUILTIN(name, signature, fn, flags, op, doc) {NULL, name},
#define CONSTANT(name, number, doc) {NULL, name},
#include "lang/builtin/builtins.def"
#undef BUILTIN
#undef CONSTANT
};

static void say_builtins(Page *p) {
  Session *s = p->s;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].section) {
      if (i) close_group(p);
      open_group(p, fail_text(s, "Built in: %s", rows[i].section));
      buf_puts(&p->body, "\n| name | meaning |\n|---|---|\n");
    } else if (rows[i].name[0] != '_') {
      const Builtin *b = builtin_find(s, names_of(s->names, rows[i].name));
      add_name(p, b->name);
      buf_printf(&p->body, "| `%s%s` | ", b->name, b->signature);
      page_cell(&p->body, plain(p, b->doc));
      buf_puts(&p->body, b->flags & BI_SCRIPT ? " (script only) |\n" : " |\n");
    }
  }
  close_group(p);
}

void library_page(Session *s, Buf *b) {
  Page p = {.s = s};
  buf_init_arena(&p.names, &s->scratch);
  buf_init_arena(&p.body, &s->scratch);
  say_builtins(&p);
  say_files(&p, true);
  say_files(&p, false);
  buf_puts(b, "# Library\n\n");
  page_fill(b, "",
            "Generated from `lang/builtin/builtins.def` and the `##` comments of `stdlib/` by "
            "`ckl library --markdown`. `ckl help NAME` shows an entry.");
  buf_printf(b, "\n%s%s", p.names.s, p.body.s);
}
