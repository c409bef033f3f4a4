/* The backward of a tape as one graph, kept by structure.
 *
 * In: the nodes of a tape that a gradient goes through. Out: the gradients. The sweep of sweep.c is
 * done on values of a graph instead of on tensors (capture_graph.c). So the whole backward is
 * compiled like a `fn`: fused and with planned memory, the same bits. The graph is kept under a key
 * of everything it depends on: operations, attributes, dtypes, ranks, edges, what is wanted. Sizes,
 * tensors and cotangents are inputs; sizes that calls of the tape have as constants are constants.
 * The idea is that of PyTorch's compiled autograd.
 *
 * Invariants: a kept graph names no tensor; equal keys give equal graphs; a kept graph holds the
 * joint graphs that its key names, so their addresses are not reused.
 */
#include "lang/tape/capture_impl.h"

#include <string.h>
#include <xxhash.h>

#include "graph/op.h"
#include "graph/structure.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/tape/callback.h"
#include "lang/value/log.h"
#include "lang/value/sizes.h"

enum {
  KEPT = 64,        /* captured backwards; the next one takes the place of the oldest */
  MOST_SIZES = 512, /* different sizes in one backward */
  MOST_PINS = 64,
  LONG = 2000, /* nodes: a longer tape is captured when it comes again, as capturing costs more
                  than a walk */
  SEEN = 64
};

struct Captures {
  Kept *slot[KEPT];
  uint64_t hash[KEPT]; /* of the key there */
  size_t next;         /* the place of the oldest, or a free one */
  size_t last;         /* the place of the one found last */
  uint64_t seen[SEEN]; /* hashes of long tapes that were walked once */
};

static void kept_release(void *p) {
  Kept *k = p;
  if (--k->rc > 0) return;
  Session *s = k->s;
  backend_free(k->backend);
  native_free(&s->mem, k->native);
  for (size_t i = 0; i < k->joint_count; i++) joint_release(k->joints[i]);
  arena_free(&k->temp);
  arena_free(&k->arena);
  mem_free(&s->mem, k, sizeof *k);
}

void captures_free(Session *s) {
  if (!s->captures) return;
  for (size_t i = 0; i < KEPT; i++) {
    if (s->captures->slot[i]) kept_release(s->captures->slot[i]);
  }
  mem_free(&s->mem, s->captures, sizeof *s->captures);
  s->captures = NULL;
}
/* ---- kept graphs */

/* Logs, at the debug level, why no kept graph fits. */
static void tell_miss(Capture *c, const Buf *key, const Parts *p) {
  static const char *const what[PARTS] = {"hooks on its results or params were added or removed",
                                          "another operation or number of operands",
                                          "its gradients go elsewhere",
                                          "other dtypes, ranks, attributes or pattern of sizes"};
  Session *s = c->s;
  const Kept *old = NULL;
  if (s->logs[LOG_BACKWARD] < 2) return;
  for (size_t i = 0; i < KEPT; i++) { /* the oldest first */
    const Kept *k = s->captures->slot[(s->captures->next + i) % KEPT];
    if (k && k->at.file == c->at.file && k->at.lo == c->at.lo) old = k;
  }
  if (!old) {
    log_line(s, LOG_BACKWARD, "no backward was captured here before");
    return;
  }
  size_t n = p->count < old->part_count ? p->count : old->part_count, at = 0, from = 0;
  for (; at < n && p->end[at] == old->part[at]; from = p->end[at++]) {
    if (memcmp(key->s + from, old->key + from, p->end[at] - from)) break;
  }
  if (at == n) {
    log_line(s, LOG_BACKWARD, "unlike the last one: %zu nodes, not %zu", p->count / PARTS,
             old->part_count / PARTS);
    return;
  }
  if (!at) {
    log_line(s, LOG_BACKWARD,
             "unlike the last one: gradients of another result, or by other params or values");
    return;
  }
  size_t i = (at - 1) / PARTS, part = (at - 1) % PARTS;
  const TapeNode *x = c->nodes[i];
  const char *text = what[part];
  if (part == PART_KIND && x->joint)
    text = "another function, or the same for other types, static values, modes or hooks";
  uint32_t line = 0, col;
  if (x->span.file) src_place(&s->sources, x->span.file, x->span.lo, &line, &col);
  log_line(s, LOG_BACKWARD, "unlike the last one: NodeCall %zu, `%s` of line %u: %s", i,
           x->joint ? "call" : op_info[x->op].text, line, text);
}

static bool has_key(const Kept *k, const Buf *key) {
  return k && k->key_len == key->n && !memcmp(k->key, key->s, key->n);
}

static Kept *found(struct Captures *all, const Buf *key, uint64_t *hash) {
  Kept *k = all->slot[all->last];
  if (has_key(k, key)) return k; /* the hash is not needed */
  *hash = XXH3_64bits(key->s, key->n);
  for (size_t i = 0; i < KEPT; i++) {
    if (all->hash[i] != *hash || !has_key(all->slot[i], key)) continue;
    all->last = i;
    return all->slot[i];
  }
  return NULL;
}

/* Captures the tape under this key. */
static Kept *captured(Capture *c, const Buf *key, uint64_t hash, Sizes *z, bool apart) {
  Session *s = c->s;
  struct Captures *all = s->captures;
  Parts p = {0};
  Buf again;
  size_t mark = mem_pool_mark(&s->mem);
  Kept *k = mem_need(&s->mem, NULL, 0, sizeof *k);
  *k = (Kept){.rc = 1, .s = s, .apart = apart};
  arena_init(&k->arena, &s->mem);
  mem_pool_add(&s->mem, k, kept_release);
  buf_init_arena(&again, &s->scratch);
  capture_key(c, &again, z, apart, &p);
  k->key = arena_strdup(&k->arena, key->s, key->n);
  k->key_len = key->n;
  k->at = c->at;
  k->part = ARENA_ARRAY(&k->arena, uint32_t, p.count + 1);
  k->part_count = p.count;
  if (p.count) memcpy(k->part, p.end, p.count * sizeof *p.end);
  arena_init(&k->temp, &s->mem);
  tell_miss(c, key, &p);
  double start = native_clock();
  GErr e = {.operand = -1};
  capture_graph(c, k, z, &e);
  arena_free(&k->temp);
  /* counters of loops are symbols, too, without a size: zeros behind the sizes */
  if (k->g && dim_symbol_count(k->g->dims) > MOST_SIZES) k->g = NULL;
  s->count.backward_captures++;
  if (k->g) k->backend = backend_new(s, k->g, &k->native, z->n, k->effects, c->at);
  log_line(s, LOG_BACKWARD, "captured %zu nodes of the tape in %.2f ms%s%s", c->count,
           1e3 * (native_clock() - start), k->g ? "" : ": it runs plain: ", k->g ? "" : e.text);
  all->last = all->next;
  if (all->slot[all->last]) kept_release(all->slot[all->last]);
  all->slot[all->last] = k;
  all->hash[all->last] = hash;
  all->next = (all->last + 1) % KEPT;
  k->rc++;
  mem_pool_drain(&s->mem, mark);
  return k;
}

/* The tensors of k's inputs; NULL: two of them differ where k has the same tensor. */
static Tensor **inputs(const Capture *c, const Kept *k) {
  Tensor **in = ARENA_ARRAY(&c->s->scratch, Tensor *, k->source_count + 1);
  for (size_t i = 0; i < k->source_count; i++) in[i] = capture_tensor(c, k->source[i]);
  for (size_t i = 0; i < k->same_count; i++) {
    if (capture_tensor(c, k->same[i].from) != in[k->same[i].input]) return NULL;
  }
  return in;
}

/* The kept graph of the tape; NULL: it has no graph, or is long and was not seen before. */
static Kept *kept_for(Capture *c, Sizes *z, bool apart, Tensor ***in) {
  stack_check();
  Session *s = c->s;
  uint64_t hash = 0;
  Buf key;
  if (!s->captures) {
    s->captures = mem_need(&s->mem, NULL, 0, sizeof *s->captures);
    memset(s->captures, 0, sizeof *s->captures);
  }
  buf_init_arena(&key, &s->scratch);
  capture_key(c, &key, z, apart, NULL);
  if (z->full) return NULL;
  Kept *k = found(s->captures, &key, &hash);
  bool hit = k != NULL;
  uint64_t *seen = &s->captures->seen[hash & (SEEN - 1)];
  if (!hit && c->count > LONG && *seen != hash) {
    *seen = hash;
    log_line(s, LOG_BACKWARD, "%zu nodes of the tape are walked, the first time", c->count);
    return NULL;
  }
  if (!hit) k = captured(c, &key, hash, z, apart);
  *in = k->g ? inputs(c, k) : NULL;
  if (k->g && !*in) return kept_for(c, z, true, in);
  if (hit && k->g) s->count.backward_hits++;
  return k->g ? k : NULL;
}

/* ---- running */
/* References of the run itself to inputs that die with the tape, or that a hook could make the tape
 * drop. From here on a dying node is used up, but keeps its description. */
static Tensor **take_over(Capture *c, const Kept *k, Tensor *const *in) {
  Tensor **own = tn_refs(&c->s->mem, k->source_count, 0);
  for (size_t i = 0; i < k->source_count; i++) {
    uint32_t node = k->source[i].node;
    if (k->effects || (node != UINT32_MAX && c->dies[node])) own[i] = tn_ref(in[i]);
  }
  for (size_t i = 0; i < c->count; i++)
    if (c->dies[i]) tape_strip(c->nodes[i]);
  return own;
}

typedef struct HookedRun {
  Capture *c;
  const Kept *k;
  Name point;     /* the text of the tape's hooks; those of calls have others */
  HostRun **host; /* per node of the tape; NULL: a call without hosts */
  uint32_t root;  /* place of the root */
} HookedRun;

static bool run_point(HookedRun *r, const Point *p, Tensor *g, Tensor **out) {
  Capture *c = r->c;
  Session *s = c->s;
  size_t mark = mem_pool_mark(&s->mem);
  HookRun run = {.grad = c->at, .modes = c->nodes[p->node]->modes};
  if (p->kind != HOOK_VALUE) run.param = c->params[p->at];
  Value v = v_tensor(s, host_own(s, g));
  Value x = hooks_gradient(s, capture_hook(c, p->kind, p->node, p->at), &run, v, NULL);
  if (p->kind == HOOK_AFTER_GRAD) {
    c->dropped[p->at] = x.tag == V_NONE;
    if (x.tag != V_NONE) value_set(c->slot[p->at], x);
    x = v; /* nothing reads it */
  }
  *out = tn_ref(x.u.t->t);
  mem_pool_drain(&s->mem, mark);
  return true;
}

static bool run_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                       GErr *e) {
  HookedRun *r = ud;
  Session *s = r->c->s;
  const Attr *text = gr_attr(g, node, AT_TEXT);
  int32_t origin = g->provs[g->nodes[node].prov].origin;
  const TapeNode *from = origin >= 0 ? r->c->nodes[origin] : r->c->root;
  if (from->state == TAPE_CONSUMED && !r->c->dies[origin >= 0 ? (uint32_t)origin : r->root])
    return gerr_set(e, ERR_GRAD_TAKEN, -1, "a hook has used up what this gradient is made of");
  if (g->nodes[node].op == OP_DEFER && text->u.text == r->point) {
    out[0] = NULL;
    return run_point(r, &r->k->points[gr_attr_i(g, node, AT_INDEX, 0)], in[1], &out[1]);
  }
  if (!from->joint || !r->host[origin]) return effect_run(s, g, node, in, n, out, e);
  return host_effect(r->host[origin], g, node, in, n, out, e);
}

Captured tape_capture(Capture *c, GErr *e, Span *at) {
  Session *s = c->s;
  Arena *a = &s->scratch;
  Sizes z = {.n = ARENA_ARRAY(a, int64_t, MOST_SIZES),
             .most = MOST_SIZES,
             .pin = ARENA_ARRAY(a, int64_t, MOST_PINS),
             .most_pins = MOST_PINS};
  for (size_t i = 0; i < c->count; i++) {
    TapeNode *n = c->nodes[i];
    bool deferred = !n->joint && n->op == OP_DEFER; /* has no gradient: the walk reports it */
    if (n->modes.anomaly || s->modes.anomaly || deferred) return CAPTURED_NOT;
    n->index = (uint32_t)i;
    if (n->mark == 2 && n->joint) capture_pin(&z, n->joint);
  }
  Tensor **in;
  Kept *k = kept_for(c, &z, false, &in);
  if (!k) return CAPTURED_NOT;
  k->rc++; /* a hook may capture another backward in its place */
  mem_pool_add(&s->mem, k, kept_release);
  Tensor **out = ARENA_ARRAY(a, Tensor *, k->g->output_count + 1);
  Prov where = {.origin = -1};
  HookedRun state = {c, k, names_of(s->names, capture_point_text),
                     ARENA_ARRAY(a, HostRun *, c->count + 1), c->root->index};
  for (size_t i = 0; k->effects && i < c->count; i++) {
    const TapeNode *n = c->nodes[i];
    /* made now: values that an effect puts on the pool live only as long as its step */
    if (n->joint && n->joint->spec.hosts)
      state.host[i] = host_run(s, n->joint->spec.hosts, n->refs, c->at);
  }
  RunCtx run = {.mem = &s->mem,
                .interrupt = &s->kernel.stop,
                .pool = native_pool(s, false),
                .env = z.n,
                .effect = run_effect,
                .ud = &state,
                .owned = take_over(c, k, in)};
  *e = (GErr){.code = ERR_BUG, .operand = -1};
  if (!(k->backend ? backend_run(k->backend, &run, in, out, e, &where, c->at)
                   : native_run(s, &k->native, k->g, "a backward", &run, in, out, e, &where))) {
    c->failed = where.origin >= 0 ? c->nodes[where.origin] : c->root;
    *at = where.span;
    return CAPTURED_FAILED;
  }
  s->count.nodes += (int64_t)run.nodes_run;
  value_pool_tensors(s, out, k->g->output_count);
  for (size_t i = 0; i < c->param_count; i++) {
    c->param_grad[i] = k->param_out[i] < 0 ? NULL : out[k->param_out[i]];
  }
  for (size_t i = 0; i < c->target_count; i++) {
    c->targets[i].grad = k->target_out[i] < 0 ? NULL : out[k->target_out[i]];
  }
  return CAPTURED_RAN;
}
