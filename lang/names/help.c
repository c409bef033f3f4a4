/* The text of `ckl help NAME`.
 *
 * In: a name. Out: text. Words of the language, builtins and error codes are tables; declarations
 * are shown as the program or the library writes them, with their comments. Modules of the library
 * are parsed to be searched, not loaded: help changes nothing of a session.
 */
#include "lang/names/help.h"

#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/names/clauses.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "parser/parse.h"
#include "stdlib/embed.h"

#define WORD(name, form, section, doc) {name, form, section, doc},
const Keyword keyword_table[] = {
#include "lang/names/words.def"
};
#undef WORD
const size_t keyword_count = sizeof keyword_table / sizeof *keyword_table;

typedef struct Help {
  Session *s;
  Buf *b;
  const char *topic;
  bool any; /* something was printed */
} Help;

static void next(Help *h) {
  if (h->any) buf_putc(h->b, '\n');
  h->any = true;
}

static void indented(Buf *b, const char *text, const char *blanks) {
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    buf_printf(b, "%s%.*s\n", n ? blanks : "", (int)n, text);
  }
}

static void say_code(Help *h) {
  int e = err_find(h->topic);
  if (e < 0) return;
  next(h);
  buf_printf(h->b, "%s: %s\n\n%s\n", err_info[e].code, err_info[e].title, err_info[e].explain);
  if (!err_info[e].example[0]) return;
  buf_puts(h->b, "\nFor example:\n\n");
  indented(h->b, err_info[e].example, "    ");
}

static void say_word(Help *h) {
  for (size_t i = 0; i < keyword_count; i++) {
    const Keyword *k = &keyword_table[i];
    if (strcmp(k->name, h->topic)) continue;
    next(h);
    buf_printf(h->b, "%s\n  %s\n  (docs/language.md, \"%s\")\n", k->form, k->doc, k->section);
  }
  for (size_t i = 0; i < clause_count; i++) {
    const Clause *k = &clause_table[i];
    if (strcmp(k->word, h->topic)) continue;
    next(h);
    buf_printf(h->b, "%s\n  %s\n  (docs/language.md, \"%s\")\n", k->form, k->doc, k->section);
  }
}

static void say_builtin(Help *h) {
  const Builtin *k = builtin_find(h->s, names_of(h->s->names, h->topic));
  if (!k) return;
  next(h);
  buf_printf(h->b, "%s%s\n  %s%s\n", k->name, k->signature, k->doc,
             k->flags & BI_SCRIPT ? " (script only)" : "");
}

bool help_declaration(Session *s, const Node *n, Declaration *d) {
  Span at = n->span;
  if (n->kind == N_FN) {
    *d = (Declaration){.name = n->fn->name.name, .doc = n->fn->doc};
    at = n->fn->header;
  } else if (n->kind == N_TYPE_DECL) {
    *d = (Declaration){.name = n->type_decl.name.name, .doc = n->type_decl.doc};
  } else if (n->kind == N_MODEL) {
    *d = (Declaration){.name = n->model.name.name, .doc = n->model.doc};
    at.hi = n->model.name.span.hi;
  } else
    return false;
  const Source *src = src_get(&s->sources, at.file);
  if (n->kind == N_MODEL && n->model.has_params) {
    if (n->model.params.count) at.hi = n->model.params.items[n->model.params.count - 1]->span.hi;
    while (src->text[at.hi - 1] != ')') at.hi++;
  }
  d->head = src->text + at.lo;
  d->size = at.hi - at.lo;
  return true;
}

static void say_declaration(Help *h, const Node *n, const char *from) {
  Declaration d;
  help_declaration(h->s, n, &d);
  next(h);
  buf_put(h->b, d.head, d.size);
  buf_printf(h->b, "     %s\n", from);
  if (d.doc) indented(h->b, d.doc, "  ");
}

static void say_program(Help *h) {
  Session *s = h->s;
  Global *g = s->main ? global_find(s, s->main, names_of(s->names, h->topic)) : NULL;
  if (g && (g->kind == G_FN || g->kind == G_MODEL))
    say_declaration(h, g->decl, src_get(&s->sources, g->decl->span.file)->path);
}

static void say_module(Help *h, const StdFile *f, const NodeList *items) {
  next(h);
  buf_printf(h->b, "use %s\n", f->name);
  const char *p = f->text;
  for (size_t n; !strncmp(p, "##", 2); p += n + (p[n] == '\n')) {
    n = strcspn(p, "\n");
    buf_printf(h->b, n > 3 ? "  %.*s\n" : "\n", (int)n - 3, p + 3);
  }
  buf_puts(h->b, "  It declares");
  for (uint32_t i = 0; i < items->count; i++) {
    Declaration d;
    if (help_declaration(h->s, items->items[i], &d) && d.name[0] != '_')
      buf_printf(h->b, " %s", d.name);
  }
  buf_puts(h->b, ".\n");
}

static void say_library(Help *h) {
  Session *s = h->s;
  for (const StdFile *f = std_files; f->name; f++) {
    if (f->shelf) continue; /* seen without `use` */
    ParseContext pc = {&s->scratch, s->names, &s->sources, &s->diags};
    uint32_t file = src_add_passing(&s->sources, fail_text(s, "<%s>", f->name), f->text, f->size);
    const NodeList *items = &parse_file(&pc, file)->file.items;
    if (!strcmp(f->name, h->topic)) say_module(h, f, items);
    for (uint32_t i = 0; i < items->count; i++) {
      Declaration d;
      if (help_declaration(s, items->items[i], &d) && d.name[0] != '_' && !strcmp(d.name, h->topic))
        say_declaration(h, items->items[i], fail_text(s, "use %s (%s)", f->name, d.name));
    }
  }
}

/* A name of another language: what ckl has for it. */
static void say_foreign(Help *h) {
  const char *here = foreign_method_help(h->s, h->topic, NULL, NULL);
  if (!here) return;
  buf_printf(h->b, "%s\n  a name of other languages; %s\n", h->topic, here);
  h->any = true;
}

bool help_print(Session *s, Buf *b, const char *topic) {
  Help h = {s, b, topic, false};
  say_code(&h);
  say_builtin(&h); /* before clauses of the same name, as of `save` */
  say_word(&h);
  say_program(&h);
  if (!h.any) say_library(&h);
  if (!h.any) say_foreign(&h);
  return h.any;
}
