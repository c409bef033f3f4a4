/* Entries that are kept within a bound: a list by age, and a table by key. */
#include "runtime/lru.h"

static uint64_t address(const LruEntry *e) {
  return table_key(e);
}

LruEntry *lru_first(const Lru *l, uint64_t key) {
  ptrdiff_t at = table_get(&l->by_key, key);
  return at == TABLE_NONE ? NULL : (LruEntry *)(uintptr_t)at;
}

static void link_newest(Lru *l, LruEntry *e) {
  e->newer = NULL;
  e->older = l->newest;
  if (e->older)
    e->older->newer = e;
  else
    l->oldest = e;
  l->newest = e;
}

static void unlink_age(Lru *l, LruEntry *e) {
  if (e->newer)
    e->newer->older = e->older;
  else
    l->newest = e->older;
  if (e->older)
    e->older->newer = e->newer;
  else
    l->oldest = e->newer;
}

/* Removes the entry from the list of its key. True if it was the only one. */
static bool unlink_key(Lru *l, LruEntry *e) {
  LruEntry *first = lru_first(l, e->key), **link = &first;
  while (*link != e) link = &(*link)->alike;
  *link = e->alike;
  if (first) table_set(&l->by_key, e->key, address(first));
  return !first;
}

void lru_add(Lru *l, LruEntry *e, uint64_t key, size_t bytes) {
  *e = (LruEntry){.key = key, .bytes = bytes, .alike = lru_first(l, key)};
  table_set(&l->by_key, key, address(e));
  link_newest(l, e);
  l->count++;
  l->bytes += bytes;
}

void lru_use(Lru *l, LruEntry *e) {
  if (l->newest == e) return;
  unlink_age(l, e);
  link_newest(l, e);
  if (lru_first(l, e->key) == e) return;
  unlink_key(l, e);
  e->alike = lru_first(l, e->key);
  table_set(&l->by_key, e->key, address(e));
}

void lru_take(Lru *l, LruEntry *e) {
  unlink_age(l, e);
  if (unlink_key(l, e)) table_remove(&l->by_key, e->key);
  l->count--;
  l->bytes -= e->bytes;
}

void lru_close(Lru *l) {
  table_free(&l->by_key);
}
