/* What shape rules share, inside graph/ only. Each rule is `bool shape_<word>(C *c)`: it reads
 * operands and attributes of c and fills c->out, or sets c->e and returns false. Helpers that
 * return bool set the error themselves. Texts live in the arena of the DimTab. */
#ifndef CKL_GRAPH_SHAPE_RULE_H
#define CKL_GRAPH_SHAPE_RULE_H

#include <string.h>

#include "graph/shape.h"

typedef ShapeCall C;

/* ---- text of messages */
const char *sh_text(C *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sh_dim_text(C *c, Dim d);
const char *sh_type_text(C *c, const Type *t);
/* Texts about operand i: its type; its source as an argument and in an expression; its name. */
const char *sh_operand(C *c, int i);
const char *sh_arg(C *c, int i);
const char *sh_part(C *c, int i);
const char *sh_side(C *c, int i);
/* The op as the user writes it, and whether between its operands. */
const char *sh_name(C *c);
bool sh_infix(C *c);
/* The whole expression with `before` and `after` around operand i (-1: around each). */
const char *sh_with(C *c, int i, const char *before, const char *after);

/* ---- attributes, tested for kind, length and range; `count` -1 = any up to the highest rank */
bool sh_bad_attr(C *c, AttrKey k);
const Attr *sh_ints(C *c, AttrKey k, int count);
const Attr *sh_dims(C *c, AttrKey k, int count);
bool sh_int(C *c, AttrKey k, int64_t lo, int64_t hi, int64_t *out);
/* An optional number in [0, hi). */
bool sh_option(C *c, AttrKey k, int64_t hi);
/* The axis of operand 0; a list of different axes, as a bit mask. */
bool sh_axis(C *c, int rank, int *axis);
bool sh_axes(C *c, AttrKey k, int rank, unsigned *mask);

/* ---- conditions on sizes. NO sets no error, since the caller knows more; an undecided condition
 * becomes a check of c->into and is YES. `what` is the text of the check. */
typedef enum Tri { NO, YES, FAILED } Tri;
Tri sh_equal(C *c, Dim a, Dim b, const char *what);
Tri sh_at_least(C *c, Dim a, Dim b, const char *what);
/* Equal dims of equal ranks; false with *axis >= 0 = that axis differs, -1 = an error is set. */
bool sh_same_dims(C *c, const Type *a, const Type *b, const char *what, int *axis);
/* The format with the op's name for %s, as a text that lives as long as the graph. */
const char *sh_check_text(C *c, const char *fmt);

/* ---- dtypes and devices of operands */
bool sh_domain(C *c, int i);
bool sh_dtypes(C *c, int from, int to);
bool sh_devices(C *c, Device *dev);
bool sh_tensors(C *c, int from);
bool sh_token(C *c);
bool sh_rank(C *c, int i, int rank, const char *as);
bool sh_index(C *c, int i);

/* ---- types */
void sh_set_dims(Type *t, const Attr *a);
void sh_drop_axes(Type *t, const Type *x, unsigned mask);

bool shape_argreduce(C *c);
bool shape_branch(C *c);
bool shape_broadcast(C *c);
bool shape_cast(C *c);
bool shape_concat(C *c);
bool shape_conv(C *c);
bool shape_conv_input(C *c);
bool shape_conv_weight(C *c);
bool shape_dot(C *c);
bool shape_first(C *c);
bool shape_flip(C *c);
bool shape_foreign(C *c);
bool shape_hook(C *c);
bool shape_gather(C *c);
bool shape_given(C *c);
bool shape_inner(C *c);
bool shape_cholesky(C *c);
bool shape_lu(C *c);
bool shape_eigh(C *c);
bool shape_eig(C *c);
bool shape_qr(C *c);
bool shape_svd(C *c);
bool shape_solve(C *c);
bool shape_factor_solve(C *c);
bool shape_cholesky_grad(C *c);
bool shape_triangular(C *c);
bool shape_loop(C *c);
bool shape_stash(C *c);
bool shape_unstash(C *c);
bool shape_stash_rows(C *c);
bool shape_unstash_rows(C *c);
bool shape_map(C *c);
bool shape_nonzero(C *c);
bool shape_pad(C *c);
bool shape_put(C *c);
bool shape_random(C *c);
bool shape_reduce(C *c);
bool shape_region(C *c);
bool shape_reshape(C *c);
bool shape_same(C *c);
bool shape_same_axis(C *c);
bool shape_scatter(C *c);
bool shape_slice(C *c);
bool shape_sort(C *c);
bool shape_take(C *c);
bool shape_test(C *c);
bool shape_token(C *c);
bool shape_write(C *c);
bool shape_transpose(C *c);
bool shape_where(C *c);

#endif
