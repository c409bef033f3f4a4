/* Dicts: values by key, in the order in which the keys came. */
#ifndef CKL_LANG_VALUE_DICT_H
#define CKL_LANG_VALUE_DICT_H

#include "lang/lang.h"

/* Where an entry with this hash stands, + 1; 0: free. A removed entry stays in `keys` as unit, so
 * that a search goes on behind it, until a new entry takes its slot. */
typedef struct DictSlot {
  uint32_t hash, at;
} DictSlot;

typedef struct Dict {
  Obj o;
  size_t count;     /* keys */
  size_t used, cap; /* entries, with those that were removed; entries that there is room for */
  Value *keys;      /* strs, ints, bools, tuples of these; behind them in one block: */
  Value *items;     /* the values, and */
  uint32_t *hashes; /* the hashes of the keys */
  DictSlot *slot;   /* open addressing, at most half full */
  size_t slots;     /* a power of two */
} Dict;

/* v as a key: an int or bool of rank 0 is its number. An error if it is none, or if code cannot
 * know it; V_UNKNOWN stays. */
Value dict_key(Session *s, Value v, Span at);

bool dict_is_key(Value v); /* whether dict_key would give it back as it is */

/* A dict of these keys, each of which dict_key gave; the last one of equal ones counts, at the
 * place of the first. On the pool. */
Value v_dict(Session *s, size_t n, const Value *keys, const Value *items);
/* A dict with room for n entries. */
Value v_dict_room(Session *s, size_t n);
/* The value of a key, or NULL. It moves when the dict changes. */
Value *dict_find(const Dict *d, Value key);
/* The same; without the key an error that names it and one that is meant. */
Value *dict_need(Session *s, const Dict *d, Value key, Span at);
/* Makes room for n more entries, in amortised constant time. */
void dict_room(Session *s, Dict *d, size_t n);
/* Sets the value of a key, which may be new. Nothing is changed if it throws. */
void dict_put(Session *s, Dict *d, Value key, Value v);
/* Removes a key that is there. */
void dict_remove(Dict *d, Value key);
/* Without gaps in keys and items. Every walk over them calls it first, through value_items. */
void dict_pack(Dict *d);

/* Whether it is a set: a dict with keys, all of whose values are (). */
bool dict_is_set(Value v);
/* Of a set the list of its keys, of another dict that of its (key, value); else the value. */
Value dict_elements(Session *s, Value v);
/* The key as a program writes it: "a", 3, ("a", 3). In scratch memory. */
const char *dict_key_text(Session *s, Value key);
void dict_free(Dict *d);

#endif
