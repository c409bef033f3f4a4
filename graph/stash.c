/* The rows that a loop keeps, turn by turn.
 *
 * In: the tensors that a turn gives. Out: the same tensors, by the number of the turn. A stash
 * grows by doubling. It is released with the storage of the tensor that stands for it.
 */
#include "graph/stash.h"

#include "graph/shape.h"

typedef struct Stash {
  int64_t number; /* the element of the tensor: the rows so far */
  Mem *mem;
  Tensor **rows;
  size_t cap;
  Replay *replay; /* makes the rows, as its number `index`; NULL: they are kept */
  int index;
  Tensor *packed; /* all rows, along the first axis; NULL: they are tensors of their own */
  Tensor *view;   /* the last one that was asked for, number `viewed` */
  int64_t viewed;
} Stash;

static void release(void *ud) {
  Stash *s = ud;
  for (int64_t i = 0; s->rows && i < s->number; i++) tn_unref(s->rows[i]);
  replay_unref(s->replay);
  tn_unref(s->packed);
  tn_unref(s->view);
  mem_free(s->mem, s->rows, s->cap * sizeof *s->rows);
  mem_free(s->mem, s, sizeof *s);
}

Tensor *stash_new(Mem *m) {
  Stash *s = mem_try(m, NULL, 0, sizeof *s);
  if (!s) return NULL;
  *s = (Stash){.mem = m};
  Tensor *t = tn_foreign(m, DT_I64, 0, NULL, &s->number, release, s);
  if (!t) mem_free(m, s, sizeof *s);
  return t;
}

Tensor *stash_packed(Mem *m, Tensor *rows) {
  Tensor *t = stash_new(m);
  if (!t) {
    tn_unref(rows);
    return NULL;
  }
  Stash *s = t->store->foreign_ud;
  s->packed = rows;
  s->number = rows->dim[0];
  return t;
}

Tensor *stash_replayed(Mem *m, Replay *p, int k, int64_t turns) {
  Tensor *t = stash_new(m);
  if (!t) return NULL;
  Stash *s = t->store->foreign_ud;
  s->replay = p;
  s->index = k;
  s->number = turns;
  replay_ref(p);
  return t;
}

static Stash *stash_of(const Tensor *t) {
  return t && t->store->foreign_free == release ? t->store->foreign_ud : NULL;
}

Tensor *stash_hold(Mem *m, Tensor *t) {
  bool foreign = t->store->foreign_free && !stash_of(t);
  return foreign ? tn_copy(m, t, t->store->dev) : tn_ref(t);
}

bool stash_add(Tensor *stash, Tensor *row) {
  Stash *s = stash_of(stash);
  if ((size_t)s->number == s->cap) {
    size_t cap = s->cap ? 2 * s->cap : 8;
    Tensor **more = mem_try(s->mem, s->rows, s->cap * sizeof *more, cap * sizeof *more);
    if (!more) return false;
    s->rows = more;
    s->cap = cap;
  }
  Tensor *t = stash_hold(s->mem, row);
  if (t) s->rows[s->number++] = t;
  return t != NULL;
}

static bool keeps(Tensor *const *t, int n, const Storage *base, bool whole) {
  for (int i = 0; i < n; i++)
    if (t[i] && t[i]->store == base && (!whole || 2 * (uint64_t)tn_bytes(t[i]) > base->bytes))
      return true;
  return false;
}

bool stash_keep(Tensor *stash, Tensor *const *rows, int n, int i, Tensor *const *in, int in_count) {
  const Storage *base = rows[i]->store;
  if (2 * (uint64_t)tn_bytes(rows[i]) > base->bytes || base->foreign_free ||
      keeps(rows, n, base, true) || keeps(in, in_count, base, false))
    return stash_add(stash, rows[i]);
  Tensor *own = tn_copy(stash_of(stash)->mem, rows[i], base->dev);
  bool ok = own && stash_add(stash, own);
  tn_unref(own);
  return ok;
}

Tensor *stash_rows(const Tensor *stash) {
  const Stash *s = stash_of(stash);
  return s ? s->packed : NULL;
}

/* The row in one tensor with the others; NULL when out of memory. */
static Tensor *packed_row(Stash *s, int64_t turn) {
  const Tensor *t = s->packed;
  if (s->view && s->viewed == turn) return s->view;
  tn_unref(s->view);
  s->viewed = turn;
  return s->view = tn_view(s->mem, t, t->rank - 1, t->dim + 1, t->stride + 1,
                           t->offset + turn * t->stride[0]);
}

Tensor *stash_kept(const Tensor *t, int64_t turn) {
  Stash *s = stash_of(t);
  if (s && s->packed && turn >= 0 && turn < s->number) return packed_row(s, turn);
  return s && s->rows && turn >= 0 && turn < s->number ? s->rows[turn] : NULL;
}

bool stash_replays(const Tensor *t) {
  const Stash *s = stash_of(t);
  return s && s->replay;
}

Tensor *stash_again(const Tensor *t, int64_t turn, int64_t *from, RunCtx *c, GErr *e, Prov *at) {
  const Stash *s = stash_of(t);
  if (turn < 0 || turn >= s->number) return NULL;
  return replay_rows(s->replay, turn, s->index, from, c, e, at);
}

void stash_full(const Mem *m, Tensor *const *stash, int n, int64_t turns, GErr *e) {
  int64_t each = 0;
  if (e->code != ERR_LIMIT && !(e->nomem && m->refused)) return;
  for (int i = 0; i < n; i++) {
    const Tensor *row = stash_kept(stash[i], 0);
    bool again = !row;
    for (int k = 0; k < i && !again; k++) again = stash_kept(stash[k], 0) == row;
    if (!again) each += tn_bytes(row);
  }
  if (!each) return;
  gerr_set(e, ERR_LOOP_ROOM, -1,
           "iteration %lld of this loop finds no memory: each keeps %lld bytes until the gradient "
           "is taken or its list is read",
           (long long)turns, (long long)each);
  gerr_help(e, "a bound, as in `while .. and n < 1000`; `--memory` allows more");
}

void stash_reverse(Tensor *stash) {
  Stash *s = stash_of(stash);
  for (int64_t i = 0, k = s->number - 1; i < k; i++, k--) {
    Tensor *t = s->rows[i];
    s->rows[i] = s->rows[k];
    s->rows[k] = t;
  }
}

bool stash_row(const Tensor *t, int64_t turn, RunCtx *c, Tensor **row, GErr *e, Prov *at) {
  const Stash *s = stash_of(t);
  bool there = s && turn >= 0 && turn < s->number;
  if (there && s->replay)
    *row = replay_row(s->replay, turn, s->index, c, e, at);
  else if (!(*row = stash_kept(t, turn)) && there)
    gerr_set(e, ERR_NOMEM, -1, "out of memory");
  return *row || !there;
}
