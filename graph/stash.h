/* What the turns of a loop keep for its gradient: one tensor per turn.
 *
 * A stash is no size and no shape of the program: how many turns there are may be known only when
 * the loop has run. In a graph it is an i64 of rank 0, whose storage owns the tensors, so it is
 * counted, passed, saved and released as any tensor is. Only `loop` makes and reads it; its number
 * is that of its turns so far. */
#ifndef CKL_GRAPH_STASH_H
#define CKL_GRAPH_STASH_H

#include "graph/replay.h"

Tensor *stash_new(Mem *m); /* NULL when out of memory */
/* A stash whose rows are number k of each turn of `p`, made again when they are read. */
Tensor *stash_replayed(Mem *m, Replay *p, int k, int64_t turns);
/* A stash of rows that lie in one tensor, along its first axis; takes over the reference. */
Tensor *stash_packed(Mem *m, Tensor *rows);
/* That tensor, borrowed; NULL if the rows are tensors of their own, or made again. */
Tensor *stash_rows(const Tensor *stash);
/* The row of a turn, borrowed, if it is kept as it was given; else NULL. */
Tensor *stash_kept(const Tensor *stash, int64_t turn);
/* Whether rows are made again when they are read. */
bool stash_replays(const Tensor *stash);
/* Of such a stash, the rows that there are when that of `turn` is made, as replay_rows. NULL with
 * `e`, or without it where there is no such turn. */
Tensor *stash_again(const Tensor *stash, int64_t turn, int64_t *from, RunCtx *c, GErr *e, Prov *at);
/* One more reference to t; a copy if its memory is someone else's. */
Tensor *stash_hold(Mem *m, Tensor *t);
/* Adds the row of the next turn: one more reference. A row that lies in the memory of someone else
 * is copied. */
bool stash_add(Tensor *stash, Tensor *row);
/* Adds row i of n rows of one turn. A slice that is small beside what it is of is copied, unless
 * that stays in any case: as another row, or as one of the operands `in` of the loop. */
bool stash_keep(Tensor *stash, Tensor *const *rows, int n, int i, Tensor *const *in, int in_count);
/* Makes the last row the first one. */
void stash_reverse(Tensor *stash);
/* After `turns` turns, of which the last failed: if that was for the limit of memory, *e says so,
 * and what each keeps. */
void stash_full(const Mem *m, Tensor *const *stash, int n, int64_t turns, GErr *e);
/* Sets *row to that of a turn, borrowed until the next row is asked for; to NULL if there is none,
 * or `t` is no stash. False with `e` where it finds no memory, or turns run again and fail. */
bool stash_row(const Tensor *t, int64_t turn, RunCtx *c, Tensor **row, GErr *e, Prov *at);

#endif
