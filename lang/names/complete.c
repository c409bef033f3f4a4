/* Names for completion: visible names, and members behind a dot.
 *
 * In: the typed text, a name or a path of names with dots. Out: names, one by one. Nothing is
 * evaluated: variables, fields and modules are read as they are.
 */
#include "lang/names/complete.h"

#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/names/clauses.h"
#include "lang/names/help.h"
#include "lang/names/module.h"
#include "stdlib/embed.h"

static const char *visible(Session *s, size_t i) {
  Module *ms[2] = {s->main, s->prelude};
  for (int m = 0; m < 2; m++) {
    if (!ms[m]) continue;
    if (i < ms[m]->global_count) return ms[m]->globals[i].name;
    i -= ms[m]->global_count;
  }
  if (i < builtin_count) return builtin_table[i].name;
  i -= builtin_count;
  if (i < std_name_count) return std_names[i].name;
  i -= std_name_count;
  if (i < keyword_count) return keyword_table[i].name;
  i -= keyword_count;
  return i < clause_count ? clause_table[i].word : NULL;
}

/* The value in front of a dot. */
typedef struct Object {
  Value v;
  bool found;
} Object;

/* A field of the object; at the start of a path, a variable or module of the program. */
static Object part(Session *s, Object o, const char *name, size_t n) {
  Object none = {v_unit(), false};
  if (!o.found) {
    for (size_t i = 0; s->main && i < s->main->global_count; i++) {
      const Global *g = &s->main->globals[i];
      if (strncmp(g->name, name, n) || g->name[n] || !g->is_set) continue;
      if (g->kind == G_VALUE || g->kind == G_MODULE) return (Object){g->v, true};
    }
    return none;
  }
  if (o.v.tag == V_INST)
    for (size_t i = 0; i < o.v.u.inst->count; i++) {
      const Field *f = &o.v.u.inst->fields[i];
      if (!strncmp(f->name, name, n) && !f->name[n]) return (Object){f->v, true};
    }
  if (o.v.tag == V_RECORD)
    for (size_t i = 0; i < o.v.u.rec->count; i++)
      if (!strncmp(o.v.u.rec->names[i], name, n) && !o.v.u.rec->names[i][n])
        return (Object){o.v.u.rec->items[i], true};
  return none;
}

static Object object_of(Session *s, const char *path, const char *end) {
  Object o = {v_unit(), false};
  for (const char *p = path; p < end;) {
    size_t n = strcspn(p, ".");
    o = part(s, o, p, n);
    if (!o.found) return o;
    p += n + 1;
  }
  return o;
}

/* The i-th field, method or declaration; after these, with `functions`, the functions that may be
 * called like a method (rule 9). "": there is no name for this i. */
static const char *member(Session *s, Value v, size_t i, bool functions) {
  if (v.tag == V_MODULE) {
    const Module *m = v.u.module;
    if (i >= m->global_count) return NULL;
    return m->globals[i].module == m ? m->globals[i].name : "";
  }
  if (v.tag == V_INST) {
    const Inst *o = v.u.inst;
    if (i < o->count) return o->fields[i].name;
    i -= o->count;
    const NodeList *l = &o->model->decl->model.members;
    if (i < l->count) return l->items[i]->kind == N_FN ? l->items[i]->fn->name.name : "";
    i -= l->count;
  }
  if (v.tag == V_RECORD) {
    if (i < v.u.rec->count) return v.u.rec->names[i];
    i -= v.u.rec->count;
  }
  if (v.tag == V_HANDLE) {
    if (i == 0) return "remove";
    i--;
  }
  if (!functions) return NULL;
  Module *ms[2] = {s->main, s->prelude};
  for (int m = 0; m < 2; m++) {
    if (!ms[m]) continue;
    if (i < ms[m]->global_count)
      return ms[m]->globals[i].kind == G_FN ? ms[m]->globals[i].name : "";
    i -= ms[m]->global_count;
  }
  if (i < builtin_count) return builtin_table[i].fn ? builtin_table[i].name : "";
  i -= builtin_count;
  return i < std_name_count ? std_names[i].name : NULL;
}

const char *complete_name(Session *s, const char *typed, size_t i) {
  const char *dot = strrchr(typed, '.'), *last = dot ? dot + 1 : typed, *name;
  Object o = dot ? object_of(s, typed, dot) : (Object){v_unit(), false};
  size_t n = strlen(last), hit = 0;
  if (dot && !o.found) return NULL;
  bool functions = n > 0 && o.v.tag != V_MODULE; /* where no member fits */
  for (size_t c = 0; functions && (name = member(s, o.v, c, false)) != NULL; c++)
    functions = strncmp(name, last, n) != 0;
#define NAME(k) (dot ? member(s, o.v, k, functions) : visible(s, k))
  for (size_t c = 0; (name = NAME(c)) != NULL; c++) {
    if (!*name || strncmp(name, last, n) || (name[0] == '_' && last[0] != '_')) continue;
    bool again = false;
    const char *e;
    for (size_t k = 0; k < c && !again && (e = NAME(k)) != NULL; k++) again = !strcmp(e, name);
    if (!again && hit++ == i) return name;
  }
#undef NAME
  return NULL;
}
