/* Suggestions for an unknown name.
 *
 * In: the name. Out: the text of a help. Idea: the table of names in other libraries (foreign.def)
 * is asked first, then the modules of the library, and last the visible names of similar spelling:
 * a foreign name that happens to be one letter from a name of ckl (clip, flip) is no misspelling.
 * The checker and the evaluator ask here, so files and the prompt give the same answer.
 */
#include "lang/names/meant.h"

#include <string.h>

#include "lang/value/fail.h"
#include "stdlib/embed.h"

Near near_start(const char *name) {
  size_t n = strlen(name);
  return (Near){name, NULL, n <= 2 ? 1 : n <= 5 ? 2 : n <= 8 ? 3 : 4};
}

void near_try(Near *b, const char *candidate) {
  if (!candidate || candidate[0] == '_') return;
  int d = str_distance(b->name, candidate, b->distance - 1);
  if (d < b->distance) {
    b->distance = d;
    b->found = candidate;
  }
}

/* ---- names of other libraries */

typedef struct Foreign {
  ForeignUse use;
  const char *name, *word, *line, *note;
} Foreign;

static const Foreign foreign_table[] = {
#define FOREIGN(name, word, line, note) {FOREIGN_NAME, name, word, line, note},
#define FIELD(name, word, line, note) {FOREIGN_FIELD, name, word, line, note},
#define ARGUMENT(name, word, line) {FOREIGN_ARGUMENT, name, word, line, ""},
#define CALL(name, word, line, note) {FOREIGN_CALL, name, word, line, note},
#define PREFIX(name)
#include "lang/names/foreign.def"
#undef FOREIGN
#undef FIELD
#undef ARGUMENT
#undef CALL
#undef PREFIX
};

static const char *const foreign_modules[] = {
#define FOREIGN(name, word, line, note)
#define FIELD(name, word, line, note)
#define ARGUMENT(name, word, line)
#define CALL(name, word, line, note)
#define PREFIX(name) name,
#include "lang/names/foreign.def"
#undef FOREIGN
#undef FIELD
#undef ARGUMENT
#undef CALL
#undef PREFIX
};

static const Foreign *foreign_find(const char *name, ForeignUse use) {
  for (size_t i = 0; i < sizeof foreign_table / sizeof *foreign_table; i++)
    if (foreign_table[i].use == use && !strcmp(name, foreign_table[i].name))
      return &foreign_table[i];
  return NULL;
}

const char *foreign_help(Session *s, const char *name, ForeignUse use) {
  const Foreign *f = foreign_find(name, use);
  if (!f) return NULL;
  if (!f->line[0]) return f->note;
  return fail_text(s, "here it is `%s`%s%s", f->line, f->note[0] ? "; " : "", f->note);
}

const char *foreign_instead(Session *s, const char *name) {
  const Foreign *f = foreign_find(name, FOREIGN_CALL);
  return f && strcmp(f->word, name) != 0 ? foreign_help(s, name, FOREIGN_CALL) : NULL;
}

const char *foreign_change(Session *s, const char *name) {
  const Foreign *f = foreign_find(name, FOREIGN_CALL);
  bool changes = f && (strstr(f->line, " .= ") || !strncmp(f->line, "xs = ", 5));
  return changes ? foreign_help(s, name, FOREIGN_CALL) : NULL;
}

const char *foreign_member_help(Session *s, const char *module, const char *name) {
  static const char *const like_np[] = {"numpy", "jnp", "torch", "tf", "xp"};
  const char *here = foreign_help(s, fail_text(s, "%s.%s", module, name), FOREIGN_NAME);
  for (size_t i = 0; i < sizeof like_np / sizeof *like_np && !here; i++)
    if (!strcmp(module, like_np[i]))
      here = foreign_help(s, fail_text(s, "np.%s", name), FOREIGN_NAME);
  return here ? here : foreign_help(s, name, FOREIGN_NAME);
}

const char *foreign_method_help(Session *s, const char *name, const char *place, const char *args) {
  const Foreign *f = foreign_find(fail_text(s, ".%s", name), FOREIGN_NAME);
  if (!f) f = foreign_find(name, FOREIGN_NAME);
  if (!f || !place || !args || !strstr(f->line, " .= ")) return foreign_member_help(s, "", name);
  return fail_text(s, "here it is `%s .= %s%s`%s%s", place, f->word, args, f->note[0] ? "; " : "",
                   f->note);
}

const char *foreign_dtype(const char *name) {
  const Foreign *f = foreign_find(name, FOREIGN_NAME);
  return f && dtype_find(f->word) >= 0 ? f->word : NULL;
}

const char *foreign_argument(const char *name) {
  const Foreign *f = foreign_find(name, FOREIGN_ARGUMENT);
  return f ? f->word : NULL;
}

bool foreign_module(const char *name) {
  for (size_t i = 0; i < sizeof foreign_modules / sizeof *foreign_modules; i++)
    if (!strcmp(name, foreign_modules[i])) return true;
  return false;
}

/* ---- the library */

/* Whether the text of a module declares a function or model of that name. A declaration starts its
 * line. */
static bool text_declares(const char *text, const char *name) {
  static const char *const words[] = {"fn ", "proc ", "model "};
  size_t n = strlen(name);
  if (!n || name[0] == '_') return false;
  for (const char *p = text; p; p = strchr(p, '\n'), p += p != NULL)
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
      size_t k = strlen(words[i]);
      if (!strncmp(p, words[i], k) && !strncmp(p + k, name, n) && strchr("([ {", p[k + n]))
        return true;
    }
  return false;
}

static const StdFile *module_file(const char *name) {
  for (const StdFile *f = std_files; f->name; f++)
    if (!strcmp(f->name, name) && !f->shelf) return f;
  return NULL;
}

bool library_module(const char *name) {
  return module_file(name) != NULL;
}

bool library_has(const char *module, const char *name) {
  const StdFile *f = module_file(module);
  return f && text_declares(f->text, name);
}

const char *library_help(Session *s, const char *name) {
  for (const StdFile *f = std_files; f->name; f++)
    if (library_has(f->name, name)) return fail_text(s, "`use %s (%s)` brings it", f->name, name);
  return NULL;
}

bool help_meant(Session *s, Diag *d, const char *name, const char *near) {
  const char *text = foreign_help(s, name, FOREIGN_NAME);
  if (!text) text = library_help(s, name);
  if (!text && foreign_module(name)) text = "there is no module of that name";
  if (!text && near) text = fail_text(s, "did you mean `%s`?", near);
  if (text) dg_help(&s->diags, d, "%s", text);
  return text != NULL;
}

/* ---- fields */

/* Help for a field that an instance does not have: one of similar spelling, or all its fields. */
const char *meant_field(Session *s, Inst *i, Name f) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "`%s` has", i->model->name);
  for (size_t k = 0; k < i->count && k < 12; k++) {
    if (strlen(f) > 2 && str_distance(f, i->fields[k].name, 2) <= 2)
      return fail_text(s, "did you mean `%s`?", i->fields[k].name);
    buf_printf(&b, "%s `%s`", k ? "," : "", i->fields[k].name);
  }
  return i->count ? b.s : fail_text(s, "`%s` has no fields", i->model->name);
}

const char *meant_item(Session *s, Value x, Name f) {
  const Record *r = x.u.rec;
  for (size_t k = 0; strlen(f) > 2 && k < r->count; k++)
    if (str_distance(f, r->names[k], 2) <= 2)
      return fail_text(s, "did you mean `%s`?", r->names[k]);
  return fail_text(s, "its fields are those of %s", value_type_text(s, x));
}
