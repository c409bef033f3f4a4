/* `ckl ir`: the graph of one function.
 *
 * In: a function's name, types for its parameters, a stage. Out: the graph's text at that stage.
 */
#include <string.h>

#include "lang/check/check.h"
#include "lang/check/check_impl.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "parser/parse.h"

static Node *find_fn(Session *s, const char *name, ModelDecl **model) {
  const char *dot = strchr(name, '.');
  Name first = names_get(s->names, name, dot ? (size_t)(dot - name) : strlen(name));
  Global *g = global_find(s, s->main, first);
  *model = NULL;
  if (g && g->kind == G_FN && !dot) return g->decl;
  if (!g || g->kind != G_MODEL) return NULL;
  *model = g->v.u.model;
  Name method = names_of(s->names, dot ? dot + 1 : "forward");
  for (uint32_t i = 0; i < g->decl->model.members.count; i++) {
    Node *m = g->decl->model.members.items[i];
    if (m->kind == N_FN && m->fn->name.name == method) return m;
  }
  return NULL;
}

/* Throws unless n types fit the parameters: the first n, or, if `all`, all without a default. */
static void types_fit(Session *s, const Node *fn, size_t n, bool all) {
  const NodeList *p = &fn->fn->params;
  const char *name = fn->fn->name.name;
  size_t k = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    if (p->items[i]->param.init) continue;
    if (k++ < n || !all) continue;
    fail_help(s, ERR_ARG_COUNT, p->items[i]->span,
              "give one for each parameter without a default, in order",
              "there is no TYPE for the parameter `%s` of `%s`", p->items[i]->param.name.name,
              name);
  }
  if (n > k)
    fail_at(s, ERR_ARG_COUNT, fn->fn->header, "`%s` takes %zu argument%s by position, not %zu",
            name, k, k == 1 ? "" : "s", n);
}

void check_types_fit(Session *s, const char *fn, size_t n) {
  ModelDecl *m;
  const Node *node = find_fn(s, fn, &m);
  if (node && !m) types_fit(s, node, n, true);
}

bool check_ir_print(Session *s, Buf *out, const char *fn, const char *const *types, size_t n,
                    const char *stage) {
  CheckJob j = {.s = s, .module = s->main, .out = out, .type_count = n};
  j.node = find_fn(s, fn, &j.m);
  if (!j.node)
    fail_at(s, ERR_UNKNOWN_NAME, (Span){0},
            "the file has no function `%s` (a method is `Model.method`)", fn);
  types_fit(s, j.node, n, false);
  const char *more = strchr(stage, ' '); /* "joint epilogue" */
  size_t len = more ? (size_t)(more - stage) : strlen(stage);
  j.stage = pass_find(stage, len);
  j.epilogue = more && !strcmp(more, " epilogue") && j.stage <= PASS_JOINT;
  if (more && !j.epilogue) j.stage = PASS_COUNT;
  if (j.stage == PASS_COUNT || !pass_is_stage(j.stage))
    fail_at(s, ERR_IR, (Span){0}, "no stage is called `%s`", stage);
  j.types = ARENA_ARRAY(&s->notes, Node *, n + 1);
  ParseContext pc = {&s->perm, s->names, &s->sources, &s->diags};
  for (size_t i = 0; i < n; i++) {
    const char *text = fail_text(s, "let x: %s = 0", types[i]);
    Node *ast = parse_file(&pc, src_add(&s->sources, "type", text, strlen(text)));
    if (s->diags.errors) dg_throw(&s->diags);
    j.types[i] = ast->file.items.items[0]->let.type;
  }
  if (!check_fn(s, &j)) dg_throw(&s->diags);
  if (!j.done)
    fail_help(s, ERR_IR, j.node->fn->header,
              "give a type for each parameter: ckl ir FILE FN 'f32[8, 3]' ..",
              "`%s` has parameters without a tensor type", fn);
  return true;
}
