/* `ckl check`: finds errors without running the program (rule 49).
 *
 * In: a declared module. Out: filed errors: of names (resolve.c), of functions for all sizes
 * (functions.c), of script (script.c). An error is reported once, in the function where it lies
 * (check_item), in the order of the source.
 */
#include <string.h>

#include "lang/check/check.h"
#include "lang/check/check_impl.h"
#include "lang/names/module.h"

/* The function or method in which a place lies, or NULL. */
static Node *item_at(const Module *m, Span at) {
  if (!m->ast || at.file != m->file) return NULL;
  const NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (at.lo < n->span.lo || at.lo >= n->span.hi) continue;
    if (n->kind == N_FN) return n;
    if (n->kind != N_MODEL) return NULL;
    for (uint32_t k = 0; k < n->model.members.count; k++) {
      Node *x = n->model.members.items[k];
      if (x->kind == N_FN && at.lo >= x->span.lo && at.lo < x->span.hi) return x;
    }
    return NULL;
  }
  return NULL;
}

Node *check_fn_at(Session *s, Span at, Module **m, ModelDecl **model) {
  *model = NULL;
  for (size_t i = 0; i < s->module_count; i++) {
    Node *n = item_at(s->modules[i], at);
    if (!n) continue;
    *m = s->modules[i];
    const NodeList *l = &s->modules[i]->ast->file.items;
    for (uint32_t k = 0; k < l->count; k++) {
      if (l->items[k]->kind != N_MODEL || at.lo < l->items[k]->span.lo ||
          at.lo >= l->items[k]->span.hi)
        continue;
      Global *g = global_find(s, *m, l->items[k]->model.name.name);
      if (!g || g->kind != G_MODEL) return NULL;
      *model = g->v.u.model;
    }
    return n;
  }
  return NULL;
}

bool check_known_before(Session *s, size_t count) {
  Diags *d = &s->diags;
  for (size_t k = count; k < d->count; k++) {
    bool known = false;
    for (size_t i = 0; i < k && !known; i++)
      known = d->items[i]->code == d->items[k]->code &&
              d->items[i]->severity == d->items[k]->severity &&
              !memcmp(&d->items[i]->span, &d->items[k]->span, sizeof(Span));
    if (!known) continue;
    Diag *g = d->items[k];
    memmove(&d->items[k], &d->items[k + 1], (d->count - k - 1) * sizeof *d->items);
    d->count--;
    if (g->severity == SEV_ERROR) d->errors--;
    if (g->severity == SEV_WARNING) d->warnings--;
    k--;
  }
  return d->count == count;
}

Node *check_culprit(Session *s, size_t count, const Node *self, Module **m, ModelDecl **model) {
  for (size_t i = s->diags.count; i > count; i--) {
    if (s->diags.items[i - 1]->severity != SEV_ERROR) continue;
    Node *n = check_fn_at(s, s->diags.items[i - 1]->span, m, model);
    return n == self ? NULL : n;
  }
  return NULL;
}

static void check_item(Session *s, Module *m, Node *n, ModelDecl *model) {
  stack_check();
  if (n->flags & (ITEM_BAD | ITEM_DONE) || s->diags.errors >= CHECK_MOST) return;
  n->flags |= ITEM_DONE;
  size_t count = s->diags.count;
  CheckJob job = {.s = s, .node = n, .module = m, .m = model};
  if (check_fn(s, &job)) return;
  n->flags |= ITEM_BAD;
  /* an error in a called function belongs to it, unless that function alone is correct */
  Module *cm;
  ModelDecl *cd;
  Node *c = check_culprit(s, count, n, &cm, &cd);
  if (c) {
    bool done = c->flags & ITEM_DONE;
    if (!done) {
      dg_rewind(&s->diags, count);
      check_item(s, cm, c, cd);
      job = (CheckJob){.s = s, .node = n, .module = m, .m = model};
      if (!(c->flags & ITEM_BAD)) check_fn(s, &job);
    } else if (c->flags & ITEM_BAD) {
      dg_rewind(&s->diags, count);
    }
  }
  check_known_before(s, count);
}

static void check_functions(Session *s, Module *m) {
  NodeList *l = &m->ast->file.items;
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    if (n->kind == N_FN) check_item(s, m, n, NULL);
    if (n->kind != N_MODEL || n->flags & ITEM_BAD) continue;
    Global *g = global_find(s, m, n->model.name.name);
    if (!g || g->kind != G_MODEL) continue;
    size_t count = s->diags.count;
    CheckJob instance = {.s = s, .module = m, .m = g->v.u.model}; /* its methods need one */
    if (!check_fn(s, &instance)) {
      n->flags |= ITEM_BAD;
      check_known_before(s, count);
      continue;
    }
    for (uint32_t k = 0; k < n->model.members.count; k++)
      if (n->model.members.items[k]->kind == N_FN)
        check_item(s, m, n->model.members.items[k], g->v.u.model);
  }
}

/* Sorts diagnostics into the order of the source. */
static void sort_diags(Diags *d, size_t from) {
  for (size_t i = from + 1; i < d->count; i++) {
    Diag *g = d->items[i];
    size_t k = i;
    for (; k > from; k--) {
      const Diag *o = d->items[k - 1];
      if (o->span.file < g->span.file || (o->span.file == g->span.file && o->span.lo <= g->span.lo))
        break;
      d->items[k] = d->items[k - 1];
    }
    d->items[k] = g;
  }
}

bool check_module(Session *s, Module *m, bool script) {
  size_t before = s->diags.errors, from = s->diags.count;
  uint32_t warned = s->warned_count;
  for (size_t i = 0; i < s->module_count; i++) /* files that it uses */
    if (s->modules[i]->path && s->modules[i] != m) resolve_module(s, s->modules[i]);
  bool used_ok = s->diags.errors == before;
  resolve_module(s, m);
  if (used_ok) {
    for (size_t i = 0; i < s->module_count; i++)
      if (s->modules[i]->path && s->modules[i] != m) check_functions(s, s->modules[i]);
    check_functions(s, m);
    if (script && s->diags.errors < CHECK_MOST) check_script(s, m);
  }
  check_known_before(s, from);
  sort_diags(&s->diags, from);
  bool ok = s->diags.errors == before;
  if (!script && ok) { /* the program runs now, and warns then */
    dg_rewind(&s->diags, from);
    s->warned_count = warned;
  }
  return ok;
}
