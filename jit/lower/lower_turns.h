/* A loop of small values as one kernel (lower_turns.c). */
#ifndef CKL_JIT_LOWER_LOWER_TURNS_H
#define CKL_JIT_LOWER_LOWER_TURNS_H

#include "jit/lower/lower.h"

/* Arguments: how many turns run (with `while`: at most), the number of the first; the lowest number
 * of one of them, whose rows are the first ones of their buffers; whether the rows that the loop
 * keeps are kept, and those that are made again (AT_AGAIN): 1, or 0 if there is room for one turn's
 * only. */
enum { TURNS_ARGS = 5 };

/* Appends the kernel of a `loop` to `out`. False if its body is too large, or has what one element
 * cannot be computed by. A launch has buffers for the carried values at entry, the rows of its
 * stashes, the captured values; carried values at the end, rows that are kept; how many turns ran,
 * and how many nodes of sides of choices in them (two of i64). Rows lie one behind the other, by
 * the number of the turn. */
bool low_turns(const Lower *l, uint32_t node, Arena *a, Lowered *out);

#endif
