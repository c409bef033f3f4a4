/* checkpoint_layers: policies for instances (rule 84).
 *
 * In: a model, a choice of its layers, a policy. Out: the instances hold the policy, and the code
 * of their calls is compiled as a block (call.c). The choice is made for all layers before the
 * first is changed, so an error leaves every layer as it was. Children come before the layers
 * that hold them, each instance once; the model itself is not one of its layers.
 */
#include "lang/builtin/builtin.h"
#include "lang/checkpoint/policy.h"

#include <string.h>

#include "lang/builtin/builtin_fn.h"
#include "lang/eval/call.h"
#include "lang/value/fail.h"

typedef struct Layer {
  Inst *inst;
  Value policy;
} Layer;

typedef struct Layers {
  Session *s;
  Call *c;
  Value where, policy;
  bool given; /* the call has policy = .. */
  const Inst **seen;
  size_t seen_count, seen_cap;
  Layer *items;
  size_t count, cap;
} Layers;

static bool is_policy(Value v) {
  return v.tag == V_POLICY || v.tag == V_FN;
}

/* The new policy of the layer at `path`; unit: it is not chosen. */
static Value answer(Layers *l, Value layer, const char *path) {
  Session *s = l->s;
  Span at = l->c->spans[1];
  if (l->where.tag == V_NONE) return l->policy;
  if (l->where.tag == V_STR) return str_glob(l->where.u.str->s, path) ? l->policy : v_unit();
  Value args[2] = {v_str(s, path, strlen(path)), layer};
  Value r = call_simple(s, l->where, 2, args, at);
  if (r.tag == V_BOOL) return r.u.i ? l->policy : v_unit();
  if (r.tag == V_TENSOR && r.u.t->t->dtype == DT_BOOL && r.u.t->t->rank == 0)
    return tn_get_i64(r.u.t->t, 0) ? l->policy : v_unit();
  if (!is_policy(r) && r.tag != V_NONE)
    fail_help(s, ERR_POLICY_VALUE, at, "`where` answers with a bool, a policy or none",
              "`where` answers %s for the layer `%s`", value_type_text(s, r), path);
  if (l->given && r.tag != V_NONE)
    fail_help(s, ERR_POLICY_TWICE, at, "without `policy = ..` each layer gets what `where` answers",
              "`where` answers a policy for the layer `%s`, and `policy` gives one too", path);
  return r.tag == V_NONE ? v_unit() : r;
}

static void visit(Layers *l, Value v, const char *path, int depth) {
  stack_check();
  Session *s = l->s;
  if (depth > 256) fail_at(s, ERR_DEPTH, l->c->at, "the model is nested more than 256 deep");
  if (v.tag == V_INST) {
    Inst *i = v.u.inst;
    for (size_t k = 0; k < l->seen_count; k++)
      if (l->seen[k] == i) return;
    VEC_PUSH(&s->scratch, l->seen, l->seen_count, l->seen_cap, i);
    for (size_t k = 0; k < i->count; k++)
      if (i->fields[k].kind == FIELD_LET)
        visit(l, i->fields[k].v,
              *path ? fail_text(s, "%s.%s", path, i->fields[k].name) : i->fields[k].name,
              depth + 1);
    if (!*path) return;
    Layer x = {i, answer(l, v, path)};
    value_pool(s, x.policy);
    if (x.policy.tag != V_UNIT) VEC_PUSH(&s->scratch, l->items, l->count, l->cap, x);
  } else if (!v_is_weak_list(v)) {
    size_t n;
    const Value *items = value_items(v, &n);
    for (size_t k = 0; k < n; k++) visit(l, items[k], value_part_path(s, path, v, k), depth + 1);
  }
}

BUILTIN_FN(bi_checkpoint_layers) {
  Value net = c->v[0], where = c->v[1], policy = c->v[2];
  if (net.tag == V_UNKNOWN || where.tag == V_UNKNOWN || policy.tag == V_UNKNOWN) return v_unit();
  if (net.tag != V_INST)
    fail_at(s, ERR_WANT_MODEL, c->spans[0], "`checkpoint_layers` takes a model, not %s",
            value_type_text(s, net));
  if (where.tag != V_NONE && where.tag != V_STR && where.tag != V_FN)
    fail_help(
        s, ERR_POLICY_VALUE, c->spans[1],
        "`where = \"blocks.*\"`, or `where = fn(path, layer) = ..` that answers a bool or a policy",
        "`where` is a glob or a function, not %s", value_type_text(s, where));
  if (policy.tag != V_NONE && !is_policy(policy))
    fail_help(s, ERR_POLICY_VALUE, c->spans[2],
              "`policy lean { save matmul }` declares one; `policy = none` clears",
              "`policy` is a policy by its name or a function, not %s", value_type_text(s, policy));
  Layers l = {.s = s, .c = c, .where = where, .given = c->given[2]};
  l.policy = !c->given[2] ? v_bool(true) : policy;
  visit(&l, net, "", 0);
  if (!l.count && where.tag == V_STR)
    fail_help(s, ERR_GLOB, c->spans[1],
              "paths are those of layers, `blocks.0.attn`; `*` is one part, `**` any number",
              "no layer matches `%s`", where.u.str->s);
  if (!l.count) {
    Span at = c->at;
    fail_warn_once(s, ERR_POLICY_NOTHING, at, "no layer of `%s` gets a policy here",
                   net.u.inst->model->name);
  }
  for (size_t i = 0; i < l.count; i++)
    value_set(&l.items[i].inst->policy,
              l.items[i].policy.tag == V_NONE ? v_unit() : l.items[i].policy);
  return v_unit();
}
