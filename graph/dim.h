/* Dims: integer polynomials over symbols, compared by identity (rule 23).
 *
 * A Dim is an index into a DimTab in which every polynomial is interned in normal form: a sum of
 * terms (coefficient times a product of atoms). Atoms are symbols, the `//` and `%` of two
 * polynomials, and max(p, 0) of one. Two dims are provably equal exactly when their indices are
 * equal, provably different when their difference is a constant other than 0. Constant arithmetic
 * is folded.
 */
#ifndef CKL_GRAPH_DIM_H
#define CKL_GRAPH_DIM_H

#include "runtime/diag.h"

typedef uint32_t Dim;
typedef uint32_t Sym;
typedef struct DimTab DimTab;

#define DIM_BAD UINT32_MAX /* overflow or division by the constant 0 */

DimTab *dim_tab_new(Arena *a);
Dim dim_const(DimTab *t, int64_t n);
/* A fresh symbol; `name` is for printing (two symbols may share a name), `at` is where it was
 * bound. */
Dim dim_symbol(DimTab *t, Name name, Span at, Sym *out);
Dim dim_add(DimTab *t, Dim a, Dim b);
Dim dim_sub(DimTab *t, Dim a, Dim b);
Dim dim_mul(DimTab *t, Dim a, Dim b);
Dim dim_floordiv(DimTab *t, Dim a, Dim b);
Dim dim_mod(DimTab *t, Dim a, Dim b);
Dim dim_max(DimTab *t, Dim a, Dim b);
Dim dim_min(DimTab *t, Dim a, Dim b);
/* Records the fact a % b == 0: from then on b * (a // b) is a (rule 23). */
void dim_assume_divides(DimTab *t, Dim a, Dim b);
/* Whether x, an untrusted number, is a dim of this table. */
bool dim_valid(const DimTab *t, int64_t x);
Arena *dim_arena(const DimTab *t); /* where the table lives */
Dim dim_product(DimTab *t, int n, const Dim *d);

bool dim_is_const(const DimTab *t, Dim d, int64_t *out);
bool dim_is_symbol(const DimTab *t, Dim d, Sym *out); /* exactly one bare symbol */
/* The size of symbol s where d, which is k * s + c, is `value`. False if d is anything else, or no
 * size solves it. */
bool dim_solve(const DimTab *t, Dim d, int64_t value, int64_t *out);
typedef enum DimOrder { DIM_EQUAL, DIM_DIFFERENT, DIM_MAYBE } DimOrder;
DimOrder dim_compare(DimTab *t, Dim a, Dim b);

Sym dim_symbol_count(const DimTab *t);
Dim dim_of_symbol(DimTab *t, Sym s);
Name dim_symbol_name(const DimTab *t, Sym s);
Span dim_symbol_span(const DimTab *t, Sym s);
/* A symbol for the counter of one loop, which is 0 or more: in its body env[symbol] is that number
 * plus 1. In an env outside of it there is 0, and dims with it have no value. */
Dim dim_counter(DimTab *t, Name name, Span at, Sym *out);
bool dim_is_counter(const DimTab *t, Sym s);
/* Calls f for every symbol inside d. */
void dim_symbols(const DimTab *t, Dim d, void (*f)(void *ud, Sym s), void *ud);
/* Translates a dim of table `src` to `dst`: each symbol s is replaced by to[s], a dim of `dst`.
 * DIM_BAD if a symbol has no entry; if dst == src, to[s] == DIM_BAD keeps s. */
Dim dim_import(DimTab *dst, const DimTab *src, Dim d, const Dim *to, Sym count);
/* The normal form under every fact recorded so far (facts may be younger than d). */
Dim dim_renew(DimTab *t, Dim d);
/* Whether d >= 0 follows when every symbol is >= 0 (sizes are). */
bool dim_nonneg(const DimTab *t, Dim d);
/* Fact number i (a % b == 0); false when there are fewer. */
bool dim_fact(const DimTab *t, size_t i, Dim *a, Dim *b);

/* Value under env[symbol]; false on overflow, division by zero, or an unbound symbol (bound == NULL
 * means all are bound). */
bool dim_eval(const DimTab *t, Dim d, const int64_t *env, const bool *bound, int64_t *out);

void dim_print(Buf *out, const DimTab *t, Dim d);
/* Whether a symbol of that name prints as it; others print as their number. */
bool dim_name_reads(Name s);
/* Reads the printed form; symbols are looked up by name, and made if new. False on bad text. */
bool dim_parse(DimTab *t, Names *names, const char *s, size_t n, Dim *out);

#endif
