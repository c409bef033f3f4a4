/* Names of `let`s: given to values of a graph, and compared with those of a model's members.
 *
 * In: a name and its value. Out: the name in the provenance of the nodes, for plans and policies.
 */
#include "lang/checkpoint/policy.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/value/fail.h"

/* Names the nodes in v that have no name; an open block looks the name up in its policy. */
static void name_items(Session *s, Name name, Name *item, size_t items, Value v) {
  stack_check();
  enum { DEEP = 8 };
  if (v.tag == V_NODE) {
    block_named(s, name, item, items, v);
    if (v.aux != s->stage->level) return;
    Graph *g = s->stage->g;
    GNode *n = &g->nodes[v.u.v.node];
    if (g->provs[n->prov].name) return;
    Prov p = g->provs[n->prov];
    p.name = name;
    VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, p);
    g->nodes[v.u.v.node].prov = (uint32_t)(g->prov_count - 1);
    return;
  }
  size_t n;
  const Value *of = value_items(v, &n);
  if (items == DEEP || v_is_weak_list(v)) return;
  for (size_t i = 0; i < n; i++) {
    item[items] = names_of(s->names, value_part_name(s, v, i));
    name_items(s, name, item, items + 1, of[i]);
  }
}

void name_variable(Session *s, Name name, Value v) {
  Name item[8];
  if (s->stage) name_items(s, name, item, 0, v);
}

void name_result(Session *s, Node *pat, Value v) {
  stack_check();
  if (!s->stage) return;
  if (pat->kind == N_PAT_NAME) name_variable(s, pat->word.name, v);
  if (pat->kind == N_PAT_TUPLE && (v.tag == V_TUPLE || v.tag == V_LIST))
    for (uint32_t i = 0; i < pat->list.count && i < v.u.list->count; i++)
      name_result(s, pat->list.items[i], v.u.list->items[i]);
  if (pat->kind == N_PAT_RECORD && v.tag == V_RECORD)
    for (uint32_t i = 0; i < pat->list.count; i++) {
      const Value *x = value_record_get(v.u.rec, pat->list.items[i]->word.name);
      if (x) name_result(s, pat->list.items[i], *x);
    }
}

void name_check_shadow(Session *s, const Word *w) {
  Inst *i = s->frame->self;
  if (!i || !s->frame->fn || s->frame->fn->decl->kind == N_LAMBDA) return;
  const NodeList *l = &i->model->decl->model.members;
  const Node *hit = NULL;
  for (uint32_t k = 0; k < l->count; k++) {
    const Node *m = l->items[k];
    if (m->kind == N_FIELD && m->field.name.name == w->name) hit = m;
    if (m->kind == N_FN && m->fn->name.name == w->name) hit = m;
    if (m->kind == N_LET && m->let.pat->kind == N_PAT_NAME && m->let.pat->word.name == w->name)
      hit = m;
  }
  const NodeList *p = &i->model->decl->model.params;
  for (uint32_t k = 0; k < p->count; k++)
    if (p->items[k]->param.name.name == w->name) hit = p->items[k];
  if (!hit) return;
  Diag *d = fail_report(s, ERR_SHADOW_FIELD, w->span, "`%s` has the name of a field of `%s`",
                        w->name, i->model->name);
  dg_label(&s->diags, d, hit->span, "the field");
  dg_help(&s->diags, d, "another name keeps both readable; the field is also `self.%s`", w->name);
  fail_raise(s);
}
