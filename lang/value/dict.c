/* Dicts: values by key, in the order in which the keys came.
 *
 * In: keys and values. Out: a compact table (entries in order, and beside them slots by hash that
 * say where an entry stands). A removed key leaves a gap, which goes when the entries are walked or
 * grow; so adding, finding and removing cost the same at any size. Invariants: keys are of four
 * kinds, none of which is a float or changes; two keys are one if they have one kind and content,
 * so 1 and true are two. Nothing depends on hashes but the time.
 */
#include "lang/value/dict.h"

#include <string.h>
#include <xxhash.h>

#include "lang/eval/ops.h"
#include "lang/eval/owned.h"
#include "lang/eval/want.h"
#include "lang/names/meant.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"

/* ---- keys */

Value dict_key(Session *s, Value v, Span at) {
  stack_check();
  switch ((ValueTag)v.tag) {
  case V_STR:
  case V_INT:
  case V_BOOL:
  case V_UNKNOWN: return v;
  case V_DIM: return v_int(want_int(s, v, at, "a key"));
  case V_TUPLE: {
    value_bound(s, v, at);
    size_t n = v.u.list->count;
    Value *part = ARENA_ARRAY(&s->scratch, Value, n + 1);
    bool same = true, unknown = false;
    for (size_t i = 0; i < n; i++) {
      part[i] = dict_key(s, v.u.list->items[i], at);
      same &= part[i].tag == v.u.list->items[i].tag;
      unknown |= part[i].tag == V_UNKNOWN;
    }
    if (unknown) return (Value){.tag = V_UNKNOWN};
    return same ? v : v_list(s, V_TUPLE, n, part);
  }
  default: break;
  }
  const Tensor *t = v_tensor_of(v);
  if (t && t->rank == 0 && !dt_float(t->dtype)) return v_scalar(t);
  int64_t i;
  if (v.tag == V_NODE && v.weak && want_known(s, v, &i)) return v_int(i);
  bool number = v.tag == V_FLOAT || t;
  if (v.tag == V_NODE) {
    Type of = op_type_of(s, v);
    number = of.rank || dt_float((DType)of.dtype);
    if (!number && s->abstract && !in_code(s)) return (Value){.tag = V_UNKNOWN}; /* the run knows */
  }
  if (v.tag == V_NODE && !number)
    fail_help(
        s, ERR_NOT_CONST, at,
        "a tensor is read by data: `x[i]`, or `gather`; what a key stands for is then its row",
        "in code a key is known before the run, this is %s", value_type_text(s, v));
  fail_help(s, ERR_KEY_KIND, at,
            number ? "`int(x)` and `str(x)` make keys; 0.1 + 0.2 would not find what 0.3 put there"
                   : "a tuple of texts and ints is a key, too",
            "a key is a str, an int, a bool or a tuple of these, not %s", value_type_text(s, v));
}

bool dict_is_key(Value v) {
  stack_check();
  bool all = v.tag == V_STR || v.tag == V_INT || v.tag == V_BOOL || v.tag == V_TUPLE;
  for (size_t i = 0; all && v.tag == V_TUPLE && i < v.u.list->count; i++)
    all = dict_is_key(v.u.list->items[i]);
  return all;
}

static uint64_t mixed(uint64_t x) { /* finalizer of SplitMix64 (Steele, Lea, Flood 2014) */
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t hash_of(Value key) {
  stack_check();
  uint64_t h = key.tag;
  switch ((ValueTag)key.tag) {
  case V_STR: return XXH3_64bits(key.u.str->s, key.u.str->n);
  case V_TUPLE:
    for (size_t i = 0; i < key.u.list->count; i++) h = mixed(h + hash_of(key.u.list->items[i]));
    return h;
  default: return mixed(h << 56 ^ (uint64_t)key.u.i);
  }
}

static bool same_key(Value a, Value b) {
  return a.tag == b.tag && (!v_counted(a) || a.u.o != b.u.o ? value_same(a, b) : true);
}

static void put_key(Buf *b, Value key) {
  stack_check();
  if (key.tag == V_STR) print_quoted(b, key.u.str, false);
  if (key.tag == V_INT) buf_printf(b, "%lld", (long long)key.u.i);
  if (key.tag == V_BOOL) buf_puts(b, key.u.i ? "true" : "false");
  if (key.tag != V_TUPLE) return;
  const List *l = key.u.list;
  for (size_t i = 0; i < l->count; i++) {
    buf_puts(b, i ? ", " : "(");
    put_key(b, l->items[i]);
  }
  buf_puts(b, l->count == 1 ? ",)" : ")");
}

const char *dict_key_text(Session *s, Value key) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  put_key(&b, key);
  return b.s;
}

/* ---- the table */

/* The entry with this key, or SIZE_MAX. */
static size_t place_of(const Dict *d, Value key, uint32_t hash) {
  if (!d->slots) return SIZE_MAX;
  for (size_t mask = d->slots - 1, i = hash & mask; d->slot[i].at; i = (i + 1) & mask) {
    size_t at = d->slot[i].at - 1;
    if (d->slot[i].hash == hash && same_key(d->keys[at], key)) return at;
  }
  return SIZE_MAX;
}

/* Entry `at` of `keys`, whose key is new, gets the first slot that is free or of a removed entry: a
 * key that comes and goes would fill the table else. */
static void enter(DictSlot *slot, size_t slots, const Value *keys, uint32_t hash, size_t at) {
  size_t mask = slots - 1, i = hash & mask;
  while (slot[i].at && keys[slot[i].at - 1].tag != V_UNIT) i = (i + 1) & mask;
  slot[i] = (DictSlot){hash, (uint32_t)at + 1};
}

static size_t block(size_t cap) {
  return cap * (2 * sizeof(Value) + sizeof(uint32_t));
}

static void point(Dict *d, void *p, size_t cap) {
  d->keys = p;
  d->items = d->keys + cap;
  d->hashes = (uint32_t *)(d->items + cap);
  d->cap = cap;
}

void dict_free(Dict *d) {
  Mem *m = &d->o.s->mem;
  for (size_t i = 0; i < d->used; i++) {
    if (d->keys[i].tag == V_UNIT) continue;
    value_release(d->keys[i]);
    value_release(d->items[i]);
  }
  mem_free(m, d->keys, block(d->cap));
  mem_free(m, d->slot, d->slots * sizeof(DictSlot));
  mem_free(m, d, sizeof *d);
}

void dict_pack(Dict *d) {
  if (d->used == d->count) return;
  size_t k = 0;
  for (size_t i = 0; i < d->used; i++) {
    if (d->keys[i].tag == V_UNIT) continue;
    d->keys[k] = d->keys[i];
    d->items[k] = d->items[i];
    d->hashes[k++] = d->hashes[i];
  }
  d->used = d->count;
  memset(d->slot, 0, d->slots * sizeof(DictSlot));
  for (size_t i = 0; i < d->used; i++) enter(d->slot, d->slots, d->keys, d->hashes[i], i);
}

/* Room for `cap` entries, at least those that there are. */
static void grow(Session *s, Dict *d, size_t cap) {
  size_t slots = 8;
  while (slots < 2 * cap) slots *= 2;
  if (cap > UINT32_MAX - 1 || slots > SIZE_MAX / sizeof(DictSlot))
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  dict_pack(d);
  DictSlot *slot = mem_need(&s->mem, NULL, 0, slots * sizeof(DictSlot));
  void *p = mem_try(&s->mem, NULL, 0, block(cap));
  if (!p) {
    mem_free(&s->mem, slot, slots * sizeof(DictSlot));
    mem_throw(&s->mem, MEM_ERR_NOMEM);
  }
  Dict old = *d;
  point(d, p, cap);
  if (old.used) {
    memcpy(d->keys, old.keys, old.used * sizeof(Value));
    memcpy(d->items, old.items, old.used * sizeof(Value));
    memcpy(d->hashes, old.hashes, old.used * sizeof(uint32_t));
  }
  memset(slot, 0, slots * sizeof(DictSlot));
  for (size_t i = 0; i < d->used; i++) enter(slot, slots, d->keys, d->hashes[i], i);
  d->slot = slot;
  d->slots = slots;
  mem_free(&s->mem, old.keys, block(old.cap));
  mem_free(&s->mem, old.slot, old.slots * sizeof(DictSlot));
}

void dict_room(Session *s, Dict *d, size_t n) {
  size_t twice = 2 * d->cap > 4 ? 2 * d->cap : 4;
  if (d->cap - d->used < n) grow(s, d, d->count + n > twice ? d->count + n : twice);
}

Value *dict_find(const Dict *d, Value key) {
  size_t i = d->count ? place_of(d, key, (uint32_t)hash_of(key)) : SIZE_MAX;
  return i == SIZE_MAX ? NULL : &d->items[i];
}

Value *dict_need(Session *s, const Dict *d, Value key, Span at) {
  Value *v = dict_find(d, key);
  if (v) return v;
  Near near = near_start(key.tag == V_STR ? key.u.str->s : "");
  for (size_t i = 0; i < d->used && *near.name; i++)
    if (d->keys[i].tag == V_STR) near_try(&near, d->keys[i].u.str->s);
  if (!d->count)
    fail_help(s, ERR_KEY_NONE, at,
              "a new key is assigned: `d[k] = get(d, k, otherwise = 0) + 1`, `d[k] = e`",
              "no key %s: the dict is empty", dict_key_text(s, key));
  fail_help(s, ERR_KEY_NONE, at,
            near.found ? fail_text(s, "did you mean \"%s\"?", near.found)
                       : "`get(d, key, otherwise = ..)` gives something else, `key in d` asks",
            "no key %s", dict_key_text(s, key));
}

void dict_put(Session *s, Dict *d, Value key, Value v) {
  uint32_t hash = (uint32_t)hash_of(key);
  size_t i = place_of(d, key, hash);
  if (i != SIZE_MAX) {
    owned_item(&d->o, &d->items[i], v, owned_parts(d->items[i]));
    return;
  }
  if (d->used == d->cap) {
    bool gaps = d->used - d->count > d->cap / 4;
    if (gaps)
      dict_pack(d);
    else
      grow(s, d, d->cap < 4 ? 4 : 2 * d->cap);
  }
  value_retain(key);
  value_retain(v);
  obj_holds(&d->o, key);
  obj_holds(&d->o, v);
  d->keys[d->used] = key;
  d->items[d->used] = v;
  d->hashes[d->used] = hash;
  enter(d->slot, d->slots, d->keys, hash, d->used);
  d->used++;
  d->count++;
}

void dict_remove(Dict *d, Value key) {
  size_t i = place_of(d, key, (uint32_t)hash_of(key));
  Value gone[2] = {d->keys[i], d->items[i]};
  for (int k = 0; k < 2; k++) owned_lose(&d->o, owned_parts(gone[k]));
  d->keys[i] = d->items[i] = v_unit();
  d->count--;
  value_release(gone[0]);
  value_release(gone[1]);
}

/* ---- as a value */

Value v_dict_room(Session *s, size_t n) {
  Value v = value_new(s, V_DICT, sizeof(Dict));
  if (n) grow(s, v.u.dict, n);
  return v;
}

Value v_dict(Session *s, size_t n, const Value *keys, const Value *items) {
  Value v = v_dict_room(s, n);
  for (size_t i = 0; i < n; i++) dict_put(s, v.u.dict, keys[i], items[i]);
  return v;
}

bool dict_is_set(Value v) {
  if (v.tag != V_DICT) return false;
  size_t n;
  const Value *items = value_items(v, &n);
  for (size_t i = 0; i < n; i++)
    if (items[i].tag != V_UNIT) return false;
  return n > 0;
}

Value dict_elements(Session *s, Value v) {
  if (v.tag != V_DICT) return v;
  size_t n;
  const Value *items = value_items(v, &n);
  if (dict_is_set(v)) return v_list(s, V_LIST, n, v.u.dict->keys);
  Value *pairs = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++)
    pairs[i] = v_list(s, V_TUPLE, 2, (Value[]){v.u.dict->keys[i], items[i]});
  return v_list(s, V_LIST, n, pairs);
}
