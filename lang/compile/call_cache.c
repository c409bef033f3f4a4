/* The cache of compiled calls: one per signature, the least recently used ones leave.
 *
 * In: a function and its flattened arguments. Out: its Compiled, staged when it is missing. The
 * comparison includes pins, and the values of the file that the code reads. A Compiled that was not
 * used lately leaves the cache; a call that runs or waits on a tape holds its own reference.
 */

#include "lang/compile/compile_impl.h"

#include <string.h>
#include <xxhash.h>

#include "lang/compile/joint_ref.h"
#include "lang/compile/tiering.h"
#include "lang/eval/call.h"

/* Compiled calls that were not used lately leave if the staged graphs take more than this in all;
 * small ones are 4 KB, so some thousand stay, which with all else is 50 MB. A few stay however
 * large they are: a step of training is several MB, and must not be staged anew in each
 * iteration. */
static const size_t most_bytes = 16 << 20;
enum { FEW_CALLS = 256 };

/* Choices for sizes that one compiled call keeps, with their plans. With one more, the call leaves
 * the cache with all of them; the next call starts anew, which costs less than a single plan. */
enum { CHOSEN_MOST = 256 };

void compiled_retain(Compiled *c) {
  if (c) c->rc++;
}

/* Releases one reference: that of the pool, of the cache or of a joint graph. */
void compiled_release(Compiled *c) {
  if (!c || --c->rc > 0) return;
  Session *s = c->s;
  value_release(c->result);
  for (size_t i = 0; i < c->write_count; i++) value_release(c->writes[i].tmpl);
  for (PlainChoice *p = c->choices; p; p = p->next) {
    native_free(&s->mem, p->native);
    plan_unref(p->planned);
  }
  native_free(&s->mem, c->native);
  hosts_release(c->hosts);
  src_drop(&s->sources, c->decl->span.file);
  arena_free(&c->arena);
  mem_free(&s->mem, c, sizeof *c);
}

static void let_go(Session *s, Compiled *c) {
  lru_take(s->cache, &c->kept);
  c->cached = false;
  for (JointEntry *e = c->joints; e; e = e->next) joint_release(e->j); /* they hold c */
  c->joints = NULL;
  compiled_release(c);
}

void call_chosen(Session *s, Compiled *c) {
  if (c->cached && ++c->chosen > CHOSEN_MOST) let_go(s, c);
}

void call_cache_free(Session *s) {
  if (!s->cache) return;
  while (s->cache->oldest) let_go(s, (Compiled *)s->cache->oldest);
  lru_close(s->cache);
  mem_free(&s->mem, s->cache, sizeof *s->cache);
  s->cache = NULL;
}

static void flatten_hidden(Flat *f, Value v) {
  if (v.tag == V_INT)
    buf_printf(&f->sig, "%lld ", (long long)v.u.i);
  else
    flat_value(f, v, NULL, NULL);
}

static uint64_t call_key(const FnObj *f, const Flat *flat) {
  return XXH3_64bits_withSeed(flat->sig.s, flat->sig.n, (uint64_t)(uintptr_t)f->decl);
}

Compiled *call_compile(Session *s, FnObj *f, const Args *a, const Flat *flat) {
  Compiled *c = mem_need(&s->mem, NULL, 0, sizeof *c);
  *c = (Compiled){.decl = f->decl, .s = s, .rc = 1};
  src_hold(&s->sources, c->decl->span.file);
  arena_init(&c->arena, &s->mem);
  c->result = v_unit();
  mem_pool_add(&s->mem, c, (void (*)(void *))compiled_release);
  stage_call(s, f, a, flat, c);
  c->sig = arena_strdup(&c->arena, flat->sig.s, flat->sig.n);
  c->sig_len = flat->sig.n;
  Flat h;
  flat_init(&h, s, &c->arena);
  for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&h, c->hidden[i]->v);
  c->hidden_sig = h.sig.s ? h.sig.s : "";
  c->hidden_len = h.sig.n;
  if (!s->cache) {
    s->cache = mem_need(&s->mem, NULL, 0, sizeof *s->cache);
    *s->cache = (Lru){.by_key.mem = &s->mem};
  }
  Lru *kept = s->cache;
  lru_add(kept, &c->kept, call_key(f, flat), c->arena.used);
  c->cached = true;
  c->rc++;
  while (kept->bytes > most_bytes && kept->count > FEW_CALLS) let_go(s, (Compiled *)kept->oldest);
  s->count.compile++;
  log_compile(s, f, c->sig);
  return c;
}

Compiled *call_lookup(Session *s, FnObj *f, Flat *flat) {
  LruEntry *e = s->cache ? lru_first(s->cache, call_key(f, flat)) : NULL;
  size_t leaves = flat->count, insts = flat->inst_count;
  for (; e; e = e->alike) {
    Compiled *c = (Compiled *)e;
    if (c->decl != f->decl || c->sig_len != flat->sig.n || memcmp(c->sig, flat->sig.s, flat->sig.n))
      continue;
    bool ok = true;
    for (size_t i = 0; i < c->pin_count && ok; i++)
      ok = c->pins[i].leaf < flat->count &&
           leaf_size(&flat->leaves[c->pins[i].leaf], c->pins[i].axis) == c->pins[i].value;
    if (!ok) continue;
    /* values of the file that the code reads: appended to the leaves, compared by their
     * signature */
    Flat h = flat_fork(flat);
    for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&h, c->hidden[i]->v);
    /* the same text that compile() made over these values alone */
    Flat alone;
    flat_init(&alone, s, &s->scratch);
    for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&alone, c->hidden[i]->v);
    if (alone.sig.n != c->hidden_len ||
        memcmp(alone.sig.s ? alone.sig.s : "", c->hidden_sig, c->hidden_len) ||
        h.count != c->leaf_count) {
      flat->count = leaves;
      flat->inst_count = insts;
      continue;
    }
    h.sig = flat->sig;
    *flat = h;
    lru_use(s->cache, e);
    c->rc++; /* while it runs, other calls may evict it */
    mem_pool_add(&s->mem, c, (void (*)(void *))compiled_release);
    return c;
  }
  return NULL;
}
