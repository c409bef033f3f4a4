/* A table from 64-bit keys to numbers.
 *
 * Linear probing from a slot that the mixed key selects. Removing an entry moves later ones up, so
 * there are no marks of deleted entries, and an old table is as quick as a new one.
 */
#include "runtime/table.h"

#include <string.h>

enum { LEAST = 16 };

static size_t home(const Table *m, uint64_t key) {
  uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
  return (size_t)(h ^ h >> 32) & (m->cap - 1);
}

/* The slot of the key, or the slot where it would be. */
static TableSlot *find(const Table *m, uint64_t key) {
  size_t i = home(m, key);
  while (m->slot[i].value && m->slot[i].key != key) i = (i + 1) & (m->cap - 1);
  return &m->slot[i];
}

ptrdiff_t table_get(const Table *m, uint64_t key) {
  return m->count ? (ptrdiff_t)find(m, key)->value - 1 : TABLE_NONE;
}

static void grow(Table *m) {
  Table old = *m;
  size_t cap = old.cap ? 2 * old.cap : LEAST, bytes = cap * sizeof(TableSlot);
  if (m->arena) {
    m->slot = ARENA_ARRAY(m->arena, TableSlot, cap);
  } else {
    m->slot = mem_need(m->mem, NULL, 0, bytes);
    memset(m->slot, 0, bytes);
  }
  m->cap = cap;
  for (size_t i = 0; i < old.cap; i++)
    if (old.slot[i].value) *find(m, old.slot[i].key) = old.slot[i];
  if (!m->arena && old.slot) mem_free(m->mem, old.slot, old.cap * sizeof(TableSlot));
}

/* Finds or adds the key. Throws only if the key is new. */
static TableSlot *enter(Table *m, uint64_t key) {
  TableSlot *at = m->cap ? find(m, key) : NULL;
  if (at && at->value) return at;
  if (2 * (m->count + 1) > m->cap) {
    grow(m);
    at = find(m, key);
  }
  m->count++;
  at->key = key;
  return at;
}

ptrdiff_t table_add(Table *m, uint64_t key, size_t value) {
  TableSlot *at = enter(m, key);
  if (at->value) return (ptrdiff_t)at->value - 1;
  at->value = value + 1;
  return TABLE_NONE;
}

void table_set(Table *m, uint64_t key, size_t value) {
  enter(m, key)->value = value + 1;
}

void table_remove(Table *m, uint64_t key) {
  if (!m->count) return;
  size_t hole = (size_t)(find(m, key) - m->slot), mask = m->cap - 1;
  if (!m->slot[hole].value) return;
  m->count--;
  for (size_t i = hole;;) { /* an entry whose home slot is at or before the hole may fill it */
    m->slot[hole].value = 0;
    do {
      i = (i + 1) & mask;
      if (!m->slot[i].value) return;
    } while (((i - home(m, m->slot[i].key)) & mask) < ((i - hole) & mask));
    m->slot[hole] = m->slot[i];
    hole = i;
  }
}

void table_clear(Table *m) {
  if (m->count) memset(m->slot, 0, m->cap * sizeof(TableSlot));
  m->count = 0;
}

void table_free(Table *m) {
  if (!m->arena && m->slot) mem_free(m->mem, m->slot, m->cap * sizeof(TableSlot));
  m->slot = NULL;
  m->cap = m->count = 0;
}
