/* Checkpoint blocks in code: entering and leaving, and the tags of their nodes (rules 81 to 85).
 *
 * In: a policy and the nodes that are staged between enter and leave. Out: a Block in the graph's
 * table, the nodes' region, and at the end a tag on every node that computes. A block is only
 * provenance, so the nodes are the same as without it. While a block is open, each value that gets
 * the name of a `let` is matched with the names in the policy, because at the end the calls that
 * led to a name are no longer known.
 */
#include <string.h>

#include "autograd/remat.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/ops.h"
#include "lang/names/op_class.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "lang/value/path.h"

/* The tag of values that no clause names. */
static Tag rest_of(const Policy *p) {
  bool keep = p->recomputes && !p->keeps, whole = policy_says(p, POLICY_reentrant);
  Tag rest = whole ? TAG_MUST_RECOMPUTE : keep ? TAG_PREFER_SAVE : TAG_PREFER_RECOMPUTE;
  for (size_t i = 0; i < p->count; i++)
    if (p->rules[i].rank == 0) rest = p->rules[i].tag;
  return rest;
}

void block_enter(Session *s, OpenBlock *b, Policy *p, Span at) {
  Stage *st = s->stage;
  Graph *g = st->g;
  if (!g->blocks) { /* one table for all graphs of the function */
    g->blocks = ARENA_NEW(g->arena, BlockTab);
    *g->blocks = (BlockTab){.arena = g->arena};
    for (Stage *up = st->up; up; up = up->up) up->g->blocks = g->blocks;
  }
  *b = (OpenBlock){.up = st->open,
                   .stage = st,
                   .frame = s->frame,
                   .outside = g->at.region,
                   .start = (uint32_t)g->node_count,
                   .span = at,
                   .policy = p};
  Block d = {.parent = g->at.region,
             .span = at,
             .text = p->text,
             .budget = policy_says(p, POLICY_budget) ? p->said[POLICY_budget].n : -1,
             .automatic = policy_says(p, POLICY_auto),
             .saves = tag_says(rest_of(p), CHOICE_SAVE),
             .reentrant = policy_says(p, POLICY_reentrant)};
  b->id = gr_block(g, d);
  g->at.region = b->id;
  for (size_t i = 0; st->unit && i < st->unit->state_count; i++)
    b->written += st->unit->states[i].written;
  st->open = b;
}

/* ---- names */

/* Appends the words by which a program names frame f in the frame around it: the path from the
 * outer frame's instance to that of f, and the function of f. */
static void frame_words(Session *s, Frame *f, Name *out, size_t *n, size_t most) {
  if (f->self && (!f->up || f->up->self != f->self)) {
    Name here = path_frame(s, f), outer = f->up && f->up->self ? path_frame(s, f->up) : NULL;
    const char *p = here;
    size_t k = outer ? strlen(outer) : 0;
    if (k && !strncmp(p, outer, k) && p[k] == '.') p += k + 1;
    while (*p && *n < most) {
      const char *dot = strchr(p, '.');
      size_t len = dot ? (size_t)(dot - p) : strlen(p);
      out[(*n)++] = names_of(s->names, arena_strdup(&s->scratch, p, len));
      p += len + (dot != NULL);
    }
  }
  Name fn = f->fn ? f->fn->decl->fn->name.name : NULL;
  if (fn && strcmp(fn, "forward") && *n < most) out[(*n)++] = fn;
}

/* Whether w is a variable where the block stands that holds f's instance or function. */
static bool is_variable(Session *s, const OpenBlock *b, const Frame *f, Name w) {
  const Frame *inner = f; /* the call that the block's own frame made */
  while (inner->up && inner->up != b->frame) inner = inner->up;
  if (!inner->up) return false;
  for (size_t i = inner->base; i-- > b->frame->base;) {
    const Local *l = &s->locals[i];
    if (l->name != w) continue;
    return (l->v.tag == V_INST && l->v.u.inst == f->self) ||
           (l->v.tag == V_FN && f->fn && l->v.u.fn->decl == f->fn->decl);
  }
  return false;
}

/* Whether the words of `path` before the last `tail` ones occur, in order, along the calls from the
 * block to the present frame. */
static bool on_the_way(Session *s, const OpenBlock *b, const Words *path, uint32_t tail) {
  enum { MOST = 64 };
  Frame *frames[MOST];
  size_t n = 0;
  for (Frame *f = s->frame; f && f != b->frame && n < MOST; f = f->up) frames[n++] = f;
  uint32_t k = 0, want = path->count - tail;
  while (n-- > 0 && k < want) {
    Name words[MOST];
    size_t count = 0;
    frame_words(s, frames[n], words, &count, MOST);
    if (is_variable(s, b, frames[n], path->items[k].name)) k++;
    for (size_t i = 0; i < count && k < want; i++)
      if (words[i] == path->items[k].name) k++;
  }
  return k == want;
}

/* Whether the path ends with the name, or with it and items of its value. */
static bool named_so(Session *s, const OpenBlock *b, const Words *path, Name name, const Name *item,
                     size_t items) {
  for (uint32_t tail = 1; tail <= path->count && tail <= items + 1; tail++) {
    uint32_t at = path->count - tail;
    bool fits = path->items[at].name == name;
    for (uint32_t i = 1; fits && i < tail; i++) fits = path->items[at + i].name == item[i - 1];
    if (fits && on_the_way(s, b, path, tail)) return true;
  }
  return false;
}

void block_named(Session *s, Name name, const Name *item, size_t items, Value v) {
  OpenBlock *b = s->stage ? s->stage->open : NULL;
  if (!b || v.tag != V_NODE) return;
  const Stage *st = s->stage;
  while (st && st->level != v.aux) st = st->up;
  for (size_t i = 0; st && i < b->policy->count; i++) {
    Rule *r = &b->policy->rules[i];
    if (r->rank != 2 || !named_so(s, b, &r->path, name, item, items)) continue;
    r->met = true;
    Hit h = {st->g, v.u.v.node, i};
    VEC_PUSH(st->g->arena, b->hits, b->hit_count, b->hit_cap, h);
  }
}

void block_unknown(Session *s) {
  for (OpenBlock *b = s->stage ? s->stage->open : NULL; b; b = b->up) b->policy->unknown = true;
}

void block_attention(Session *s, uint32_t from) {
  const Graph *g = s->stage->g;
  Stretch a = {g, from, (uint32_t)g->node_count};
  for (OpenBlock *b = s->stage->open; b; b = b->up)
    VEC_PUSH(g->arena, b->attention, b->attention_count, b->attention_cap, a);
}

/* ---- tags */

static unsigned kinds_of(const OpenBlock *b, const Graph *g, uint32_t n) {
  int own = clause_opclass_of((OpCode)g->nodes[n].op);
  unsigned k = own < 0 ? 0 : 1u << own;
  for (size_t i = 0; k && i < b->attention_count; i++)
    if (b->attention[i].g == g && n >= b->attention[i].lo && n < b->attention[i].hi)
      k |= KIND_ATTENTION;
  return k;
}

/* The class that a policy function gets as its argument; for attention, the class of the part. */
static const char *kind_word(unsigned k) {
#define OPCLASS(NAME, word, of, doc) of(if (k & KIND_##NAME) return word;)
#include "lang/names/clauses.def"
  return NULL;
}

typedef struct Close {
  Session *s;
  OpenBlock *b;
  bool batched;        /* the block stands in a comprehension */
  bool apart;          /* it stands in a function with its own gradient */
  bool inside;         /* in a region of a node */
  bool custom;         /* of such a function, whose values no gradient reads */
  uint32_t last, made; /* provenance of the previous node, before and after its tag */
  Tag tag;
} Close;

static _Noreturn void disagree(Close *c, const Rule *a, const Rule *b, Span at) {
  Session *s = c->s;
  const char *first = clause_tag_words(s, a->tag);
  Diag *d =
      fail_report(s, ERR_POLICY_TWICE, b->at, "the clauses disagree about one value: `%s` and `%s`",
                  clause_tag_about(s, a->tag, fail_source_text(s, a->at, "this")),
                  clause_tag_about(s, b->tag, fail_source_text(s, b->at, "this")));
  dg_label(&s->diags, d, a->at, "`%s` here", first);
  if (at.file && at.file == b->at.file) dg_label(&s->diags, d, at, "the value");
  dg_help(&s->diags, d,
          b->rank == 1 ? "the name of a `let` decides over classes"
                       : "name the value in one clause");
  fail_raise(s);
}

/* The rule of the highest rank for node n: by the names that hit it and by its kinds. */
static Rule *rule_for(Close *c, const Graph *g, uint32_t n, unsigned kinds) {
  const Policy *p = c->b->policy;
  Rule *best = NULL;
  Span at = g->provs[g->nodes[n].prov].span;
  for (size_t i = 0; i < c->b->hit_count; i++) {
    const Hit *h = &c->b->hits[i];
    if (h->g != g || h->node != n) continue;
    Rule *r = &p->rules[h->rule];
    if (best && best->tag != r->tag) disagree(c, best, r, at);
    best = r;
  }
  for (size_t i = 0; i < p->count; i++) {
    Rule *r = &p->rules[i];
    if (r->rank != 1 || !(r->kind & kinds)) continue;
    r->met = true;
    if (best && best->rank == 2) continue;
    if (best && best->tag != r->tag) disagree(c, best, r, at);
    best = r;
  }
  return best;
}

/* Values of the symbols in the call that is compiled. */
static const int64_t *call_sizes(Session *s) {
  const Unit *u = s->stage->unit;
  int64_t *env = ARENA_ARRAY(&s->scratch, int64_t, dim_symbol_count(op_dims_of(s)) + 1);
  for (size_t i = 0; i < u->bind_count; i++)
    env[u->binds[i].sym] = leaf_size(&u->flat.leaves[u->binds[i].leaf], u->binds[i].axis);
  return env;
}

static void pin_sizes(Session *s, const Type *t, Span at) {
  int64_t d;
  for (int i = 0; i < t->rank; i++)
    if (gr_sized_by_turn(op_dims_of(s), t->dim[i]))
      fail_help(s, ERR_NOT_YET, at, "a clause with the name of the value, or with the operation",
                "not yet: a policy that asks for the size of a value, where it differs from "
                "iteration to iteration of a loop");
  for (int i = 0; i < t->rank; i++)
    unit_need_const(s, t->dim[i], at, "a size that a policy asks for", &d);
}

static int64_t bytes_of(Session *s, const Graph *g, const Type *t, Span at) {
  pin_sizes(s, t, at);
  return cost_bytes(g, t, NULL);
}

static int64_t flops_of(Session *s, const Graph *g, uint32_t n, Span at) {
  const GNode *x = &g->nodes[n];
  OpClass cls = op_info[x->op].cls;
  int operands = cls == CONTRACT ? 2 : (cls == REDUCE && x->operand_count) || cls == FACTOR;
  for (int k = 0; k < operands; k++) pin_sizes(s, gr_type(g, gr_operand(g, n, k)), at);
  if (cls != REDUCE) pin_sizes(s, &g->types[x->result0], at);
  return cost_flops(g, n, NULL);
}

/* The tag for the words that a policy function returns: those of a clause. */
static Tag answer(Session *s, const char *words) {
  for (int i = TAG_NONE + 1; i < TAG_COUNT; i++)
    if (!strcmp(words, clause_tag_words(s, (Tag)i))) return (Tag)i;
  return TAG_NONE;
}

static Diag *nonsense(Close *c, Span at, const char *says, const char *of) {
  Session *s = c->s;
  const FnObj *f = c->b->policy->fn.u.fn;
  Diag *d = fail_report(s, ERR_POLICY_VALUE, at, "the policy `%s` answers %s%s", call_fn_name(f),
                        says, of);
  const char *all = "";
  for (int i = TAG_NONE + 1; i < TAG_COUNT; i++)
    all = fail_text(s, "%s%s\"%s\"", all, *all ? ", " : "", clause_tag_words(s, (Tag)i));
  dg_help(&s->diags, d, "answers are %s and none", all);
  return d;
}

/* Checks, before anything runs, the answers that stand as constants at the ends of the function. */
static void check_answers(Close *c, const Node *e) {
  stack_check();
  if (!e) return;
  switch ((NodeKind)e->kind) {
  case N_BLOCK:
    if (e->list.count) check_answers(c, e->list.items[e->list.count - 1]);
    return;
  case N_EXPR_STMT:
  case N_RETURN: check_answers(c, e->expr); return;
  case N_IF:
    check_answers(c, e->if_.then);
    check_answers(c, e->if_.els);
    return;
  case N_STRING: {
    const StrParts *p = &e->string;
    if (p->count > 1 || (p->count && (p->items[0].hole || answer(c->s, p->items[0].text)))) return;
    break;
  }
  case N_INT:
  case N_FLOAT:
  case N_SIZE:
  case N_BOOL:
  case N_UNIT: break;
  default: return;
  }
  Diag *d = nonsense(c, e->span, fail_source_text(c->s, e->span, "this"), "");
  dg_label(&c->s->diags, d, c->b->policy->fn_at, "as the policy of this block");
  fail_raise(c->s);
}

/* The tag that a policy function gives to a node (rule 84); TAG_NONE = none. */
static Tag ask(Close *c, const Graph *g, uint32_t n, unsigned kinds) {
  stack_check();
  Session *s = c->s;
  const Policy *p = c->b->policy;
  const GNode *x = &g->nodes[n];
  const char *op = kind_word(kinds), *name = g->provs[x->prov].name;
  if (!op) op = op_info[x->op].text;
  if (!name) name = "";
  Span at = p->fn_at;
  int64_t bytes = bytes_of(s, g, &g->types[x->result0], at);
  size_t count = 4 + p->extra_count;
  Value *v = ARENA_ARRAY(&s->scratch, Value, count);
  v[0] = v_str(s, op, strlen(op));
  v[1] = v_str(s, name, strlen(name));
  v[2] = v_int(bytes);
  v[3] = v_int(flops_of(s, g, n, at));
  for (size_t i = 0; i < p->extra_count; i++) v[4 + i] = p->extra[i];
  Stage *now = s->stage;
  s->stage = NULL; /* the function runs now, on numbers and texts */
  Args a = {.count = count, .v = v, .call = at};
  a.names = ARENA_ARRAY(&s->scratch, Name, count);
  a.spans = ARENA_ARRAY(&s->scratch, Span, count);
  for (size_t i = 0; i < count; i++) a.spans[i] = at;
  Value r = call_inline(s, p->fn.u.fn, &a);
  s->stage = now;
  if (r.tag == V_NONE) return TAG_NONE;
  Tag said = r.tag == V_STR ? answer(s, r.u.str->s) : TAG_NONE;
  if (said != TAG_NONE) return said;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  print_value(s, &b, r, true);
  Diag *d = nonsense(
      c, at, b.s,
      fail_text(s, " for %s%s%s (%lld bytes)", op, *name ? " " : "", name, (long long)bytes));
  dg_label(&s->diags, d, p->fn.u.fn->decl->fn->header, "this function");
  fail_raise(s);
}

static void set_tag(Close *c, Graph *g, uint32_t n, Tag tag) {
  GNode *x = &g->nodes[n];
  if (g->provs[x->prov].tag == tag) return;
  if (c->last != x->prov || c->tag != tag) {
    Prov p = g->provs[x->prov];
    p.tag = (uint8_t)tag;
    VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, p);
    c->last = x->prov;
    c->made = (uint32_t)g->prov_count - 1;
    c->tag = tag;
  }
  x->prov = c->made;
}

static bool is_view(const Graph *g, uint32_t n) {
  return op_info[g->nodes[n].op].traits & T_VIEW;
}

/* Whether a node is not computed, or costs nothing. */
static bool is_given(const Graph *g, uint32_t n) {
  const OpInfo *o = &op_info[g->nodes[n].op];
  return g->nodes[n].op == OP_INPUT || (o->cls == GENERATE && o->remat == REMAT_FREE);
}

/* A name of a view also names the viewed value. */
static void follow_views(Close *c, uint32_t start) {
  OpenBlock *b = c->b;
  for (size_t i = 0; i < b->hit_count; i++) {
    Hit h = b->hits[i];
    while (is_view(h.g, h.node)) {
      h.node = gr_operand(h.g, h.node, 0).node;
      if (h.g->provs[h.g->nodes[h.node].prov].region != b->id) break;
      VEC_PUSH(h.g->arena, b->hits, b->hit_count, b->hit_cap, h);
    }
  }
  (void)start;
}

/* ---- narrow values */

/* Whether a hook reads v, or a view of it. */
static bool hook_sees(const Graph *g, Val v) {
  for (uint32_t n = v.node + 1; n < g->node_count; n++) {
    const GNode *x = &g->nodes[n];
    int from = x->op == OP_HOOK ? (int)gr_attr_i(g, n, AT_CARRY, 1) : 0;
    if (x->op != OP_HOOK && !is_view(g, n)) continue;
    for (int k = from; k < (int)x->operand_count; k++)
      if (val_eq(gr_operand(g, n, k), v) && (x->op == OP_HOOK || hook_sees(g, (Val){n, 0})))
        return true;
  }
  return false;
}

static _Noreturn void cannot_narrow(Close *c, const Graph *g, uint32_t n, const Rule *r,
                                    const char *why) {
  Session *s = c->s;
  const char *w = fail_source_text(s, r->at, "this");
  Diag *d = fail_report(s, ERR_POLICY_NARROW, r->at, "`%s` cannot be saved as %s: %s", w,
                        dtype_info[tag_info[r->tag].narrow].name, why);
  dg_label(&s->diags, d, g->provs[g->nodes[n].prov].span, "the value");
  dg_help(&s->diags, d, "`save %s` keeps it as it is", w);
  fail_raise(s);
}

/* Refuses a name that means a value of somewhere else. */
static void check_hits(Close *c) {
  for (size_t i = 0; i < c->b->hit_count; i++) {
    const Hit *h = &c->b->hits[i];
    const Rule *r = &c->b->policy->rules[h->rule];
    uint32_t n = h->node;
    if (!tag_narrows(r->tag)) continue;
    if (h->g != c->b->stage->g)
      fail_help(c->s, ERR_NOT_YET, r->at, "a block inside, around what computes it",
                "not yet: a narrow save of what a comprehension, a loop that stays one, or one "
                "side of a choice on data, computes in the block");
    while (is_view(h->g, n)) n = gr_operand(h->g, n, 0).node;
    const Prov *p = &h->g->provs[h->g->nodes[n].prov];
    if (h->g->nodes[n].op == OP_INPUT || (p->backward ? p->within : p->region) != c->b->id)
      cannot_narrow(c, h->g, h->node, r, "this block does not compute it");
  }
}

/* The tag of node n, whose clause says `save .. as`, r (NULL: a function, or the rest of the
 * block). What a class means beside floats is saved as it is, a name has to fit. */
static Tag narrow_tag(Close *c, const Graph *g, uint32_t n, const Rule *r, Tag tag) {
  Session *s = c->s;
  bool named = r && r->rank == 2, floats = false;
  if (c->custom) return TAG_MUST_SAVE;
  if (c->inside || c->apart || (c->batched && tag_info[tag].narrow == DT_U8))
    fail_help(s, ERR_NOT_YET, r ? r->at : c->b->span,
              c->inside
                  ? "a block inside, around what computes it"
                  : fail_text(s, "`save` without `as %s`", dtype_info[tag_info[tag].narrow].name),
              c->inside  ? "not yet: a narrow save of what a loop that stays one, or one side of a "
                           "choice on data, computes in the block"
              : c->apart ? "not yet: a narrow save in a function with its own gradient"
                         : "not yet: a save as u8 in a comprehension or `vmap`");
  if (is_view(g, n)) return tag; /* of what is rounded */
  for (uint32_t k = 0; k < g->nodes[n].result_count; k++) {
    const Type *t = &g->types[g->nodes[n].result0 + k];
    bool is = t->kind == TK_TENSOR && dt_float((DType)t->dtype);
    floats |= is;
    if (!is || !gr_has_hooks(g) || !hook_sees(g, (Val){n, k})) continue;
    if (named) cannot_narrow(c, g, n, r, "a hook sees it");
    return TAG_MUST_SAVE;
  }
  if (floats) return tag;
  if (named)
    cannot_narrow(c, g, n, r,
                  fail_text(s, "it is %s, and floats alone are rounded",
                            dtype_info[g->types[g->nodes[n].result0].dtype].name));
  return TAG_MUST_SAVE;
}

/* The tag of a node that runs only once: its results are always saved (rule 81), in place or
 * offloaded. A clause that names them for recomputation is an error. */
static Tag saved_tag(Close *c, const Graph *g, uint32_t n, Tag rest) {
  Session *s = c->s;
  const Rule *r = rule_for(c, g, n, 0);
  bool value = false;
  for (uint32_t k = 0; k < g->nodes[n].result_count; k++)
    value |= g->types[g->nodes[n].result0 + k].kind == TK_TENSOR;
  Tag tag = r ? r->tag : rest;
  if (value && tag_says(tag, CHOICE_OFFLOAD)) return tag;
  if (value && tag_narrows(tag)) return narrow_tag(c, g, n, r, tag);
  if (!r || !tag_must(tag, CHOICE_RECOMPUTE)) return TAG_MUST_SAVE;
  const char *w = fail_source_text(s, r->at, "this");
  Diag *d = fail_report(
      s, ERR_POLICY_TWICE, r->at,
      "`%s` cannot be computed again: what a deferred or a host function gives is always "
      "saved",
      w);
  dg_label(&s->diags, d, g->provs[g->nodes[n].prov].span, "it runs once");
  dg_help(&s->diags, d, "`save %s` says what holds", w);
  fail_raise(s);
}

static void tag_graph(Close *c, Graph *g, uint32_t start) {
  stack_check();
  const Policy *p = c->b->policy;
  Tag rest = rest_of(p);
  c->last = UINT32_MAX;
  for (uint32_t n = start; n < g->node_count; n++) {
    GNode *x = &g->nodes[n];
    Prov *at = &g->provs[x->prov];
    for (uint32_t k = 0; k < x->region_count; k++) {
      bool inside = c->inside, custom = c->custom;
      c->inside = true;
      c->custom |= x->op == OP_CUSTOM;
      tag_graph(c, g->regions[x->region0 + k], 0);
      c->inside = inside;
      c->custom = custom;
      c->last = UINT32_MAX;
      x = &g->nodes[n];
      at = &g->provs[x->prov];
    }
    if ((at->backward ? at->within : at->region) != c->b->id) continue;
    if (x->op == OP_INPUT) { /* an argument with its first use in the block */
      Prov q = *at;
      q.region = c->b->outside;
      VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, q);
      x->prov = (uint32_t)g->prov_count - 1;
      continue;
    }
    if (is_given(g, n)) continue;
    Tag tag = rest;
    if (op_info[x->op].remat == REMAT_NEVER) {
      tag = saved_tag(c, g, n, rest);
    } else {
      unsigned kinds = kinds_of(c->b, g, n);
      const Rule *r = rule_for(c, g, n, kinds);
      if (r) {
        tag = r->tag;
      } else if (p->fn.tag == V_FN && !is_view(g, n) && !(c->s->stage->unit->check)) {
        Tag said = ask(c, g, n, kinds);
        if (said != TAG_NONE) tag = said;
      }
      if (tag_narrows(tag)) tag = narrow_tag(c, g, n, r, tag);
    }
    if (tag_narrows(tag)) g->blocks->items[c->b->id - 1].narrows = true;
    set_tag(c, g, n, tag);
  }
}

/* ---- does it save anything? */

static void count_kept(Close *c, const Graph *g, uint32_t start) {
  Session *s = c->s;
  Policy *p = c->b->policy;
  uint8_t *need = ARENA_ARRAY(&s->scratch, uint8_t, g->type_count + 1);
  uint32_t base = g->nodes[start].result0;
  const int64_t *env = call_sizes(s);
  for (uint32_t n = start; n < g->node_count; n++) {
    const GNode *x = &g->nodes[n];
    Needs k = op_info[x->op].needs;
    for (uint32_t i = 0; i < x->operand_count && (k == NEEDS_IN || k == NEEDS_BOTH); i++) {
      Val v = gr_operand(g, n, (int)i);
      while (v.node >= start && is_view(g, v.node)) v = gr_operand(g, v.node, 0);
      if (v.node >= start) need[g->nodes[v.node].result0 + v.res - base] = 1;
    }
    if (k == NEEDS_OUT || k == NEEDS_BOTH) need[x->result0 - base] = 1;
  }
  for (uint32_t n = start; n < g->node_count; n++) {
    const GNode *x = &g->nodes[n];
    const Prov *at = &g->provs[x->prov];
    p->saves |= at->backward && at->within == c->b->id; /* a gradient inside: not known */
    if (at->backward || at->region != c->b->id || is_given(g, n) || is_view(g, n)) continue;
    for (uint32_t k = 0; k < x->result_count; k++) {
      if (!need[x->result0 + k - base]) continue;
      Type as[2];
      int64_t bytes = cost_bytes(g, &g->types[x->result0 + k], env), with = 0;
      bool kept = tag_says((Tag)at->tag, CHOICE_SAVE);
      for (int i = rm_saved_as(g, (Val){n, k}, as); i-- > 0;) with += cost_bytes(g, &as[i], env);
      p->without += bytes;
      if (kept) p->with += with;
      p->saves |= !kept || with < bytes;
    }
  }
}

static void warn_nothing(Close *c, bool last) {
  Session *s = c->s;
  OpenBlock *b = c->b;
  Policy *p = b->policy;
  const Graph *g = s->stage->g;
  const Unit *u = s->stage->unit;
  if (s->modes.no_grad || u->check || u->outside || p->layer || policy_says(p, POLICY_auto) ||
      policy_says(p, POLICY_budget))
    return;
  for (uint32_t i = b->id + 1; i <= g->blocks->count; i++) /* inner blocks save on their own */
    p->saves |= gr_block_at(g, i)->parent == b->id;
  if (b->start < g->node_count) count_kept(c, g, b->start);
  if (p->saves || !last) return;
  fail_warn_once(
      s, ERR_POLICY_SAVES_NOTHING, b->span,
      "this block saves no memory: backward keeps %lld bytes of its values with it, %lld "
      "without",
      (long long)p->with, (long long)p->without);
}

/* Reports rules that match no value. A name is an error, a class a warning: one policy may serve
 * several blocks. `random` is not reported: outside of `wrap <train>` nothing draws. In `check`, a
 * made-up size or another mode may take another branch of the code, and operations on an unknown
 * value leave no nodes: then nothing is reported. */
static void unmet(Close *c) {
  Session *s = c->s;
  const Policy *p = c->b->policy;
  Diag *d = NULL;
  const Unit *u = s->stage->unit;
  if (u->check && (u->pin_count || u->modal || p->unknown)) return;
  for (size_t i = 0; i < p->count; i++) {
    const Rule *r = &p->rules[i];
    if (r->met || !r->own) continue;
    const char *w = fail_source_text(s, r->at, "this");
    if (r->rank == 1) {
      if (r->kind != KIND_RANDOM)
        fail_warn_once(s, ERR_POLICY_NOTHING, r->at, "no value of the block is a `%s`", w);
      continue;
    }
    d = fail_report(s, ERR_POLICY_NOTHING, r->at, "no `let` that the block runs is called `%s`", w);
    dg_label(&s->diags, d, c->b->span, "the block");
    dg_help(&s->diags, d,
            "names are those of `let`s in the block and in what it calls, `attn.att` is `att` in a "
            "call of `attn`");
  }
  if (d) fail_raise(s);
}

void block_leave(Session *s, OpenBlock *b, bool last) {
  Close c = {.s = s, .b = b};
  for (const Stage *st = b->stage; st->level > 1; st = st->up) {
    c.apart |= !st->batched && !st->side && !st->turns;
    c.batched |= st->batched;
  }
  const Value f = b->policy->fn;
  if (last && f.tag == V_FN && s->stage->unit->check) check_answers(&c, f.u.fn->decl->fn->body);
  follow_views(&c, b->start);
  if (!c.apart) check_hits(&c);
  tag_graph(&c, b->stage->g, b->start);
  if (last) unmet(&c);
  warn_nothing(&c, last);
  b->stage->g->at.region = b->outside;
  b->stage->open = b->up;
}
