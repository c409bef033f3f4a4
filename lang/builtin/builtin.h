/* What the files of builtins share. */
#ifndef CKL_LANG_BUILTIN_BUILTIN_H
#define CKL_LANG_BUILTIN_BUILTIN_H

#include "lang/lang.h"

/* Axis numbers from an argument: an int or a tuple of ints, negative ones count from the end;
 * sorted, no axis twice. `none` means all. Returns how many. */
int axes_arg(Session *s, Call *c, int i, int rank, int64_t *axes);
int axis_arg(Session *s, Call *c, int i, int rank);
/* A shape: a tuple or weak list of ints, or an int. Returns the rank. */
int shape_arg(Session *s, Value v, Span at, Dim *d);
DType dtype_arg(Session *s, Value v, Span at);
/* Argument i as a tensor. */
Value tensor_arg(Session *s, Call *c, int i);
Value abstract_builtin(Session *s, const Builtin *b,
                       Call *c); /* `check`: what a builtin would give */
bool abstract_only(Session *s, const Call *c); /* `check` of script: the result depends on data */

#define BUILTIN_FN(name) Value name(Session *s, Call *c)

Value bi_elementwise(Session *s, Call *c), bi_gelu(Session *s, Call *c),
    bi_clamp(Session *s, Call *c), bi_where(Session *s, Call *c), bi_minmax(Session *s, Call *c),
    bi_reduce(Session *s, Call *c), bi_mean(Session *s, Call *c), bi_argreduce(Session *s, Call *c),
    bi_cumsum(Session *s, Call *c), bi_shape(Session *s, Call *c), bi_size(Session *s, Call *c),
    bi_rank(Session *s, Call *c), bi_reshape(Session *s, Call *c),
    bi_transpose(Session *s, Call *c), bi_expand(Session *s, Call *c),
    bi_squeeze(Session *s, Call *c), bi_broadcast(Session *s, Call *c),
    bi_concat(Session *s, Call *c), bi_stack(Session *s, Call *c), bi_pad(Session *s, Call *c),
    bi_flip(Session *s, Call *c), bi_slice(Session *s, Call *c), bi_gather(Session *s, Call *c),
    bi_scatter(Session *s, Call *c), bi_one_hot(Session *s, Call *c), bi_top_k(Session *s, Call *c),
    bi_sort(Session *s, Call *c), bi_nonzero(Session *s, Call *c), bi_unique(Session *s, Call *c),
    bi_einsum(Session *s, Call *c), bi_rearrange(Session *s, Call *c),
    bi_conv2d(Session *s, Call *c), bi_to_dtype(Session *s, Call *c), bi_int(Session *s, Call *c),
    bi_float(Session *s, Call *c), bi_fill(Session *s, Call *c), bi_full(Session *s, Call *c),
    bi_eye(Session *s, Call *c), bi_iota(Session *s, Call *c), bi_random(Session *s, Call *c),
    bi_randint(Session *s, Call *c), bi_bernoulli(Session *s, Call *c),
    bi_dropout(Session *s, Call *c), bi_seed(Session *s, Call *c),
    bi_random_state(Session *s, Call *c), bi_key(Session *s, Call *c),
    bi_fold_in(Session *s, Call *c), bi_philox(Session *s, Call *c), bi_grad(Session *s, Call *c),
    bi_vjp(Session *s, Call *c), bi_jvp(Session *s, Call *c), bi_hessian(Session *s, Call *c),
    bi_vmap(Session *s, Call *c), bi_stop(Session *s, Call *c), bi_track(Session *s, Call *c),
    bi_freeze(Session *s, Call *c), bi_gradcheck(Session *s, Call *c),
    bi_params(Session *s, Call *c), bi_buffers(Session *s, Call *c), bi_map(Session *s, Call *c),
    bi_each(Session *s, Call *c), bi_fold(Session *s, Call *c), bi_paths(Session *s, Call *c),
    bi_update(Session *s, Call *c), bi_ravel(Session *s, Call *c), bi_unravel(Session *s, Call *c),
    bi_training(Session *s, Call *c), bi_copy(Session *s, Call *c), bi_same(Session *s, Call *c),
    bi_count(Session *s, Call *c), bi_summary(Session *s, Call *c), bi_print(Session *s, Call *c),
    bi_save(Session *s, Call *c), bi_load(Session *s, Call *c), bi_list(Session *s, Call *c),
    bi_push(Session *s, Call *c), bi_len(Session *s, Call *c), bi_args(Session *s, Call *c),
    bi_clock(Session *s, Call *c), bi_counter(Session *s, Call *c),
    bi_peak_memory(Session *s, Call *c), bi_error_of(Session *s, Call *c),
    bi_here(Session *s, Call *c), bi_plan(Session *s, Call *c), bi_to(Session *s, Call *c),
    bi_device_of(Session *s, Call *c),
    bi_has_nan(Session *s, Call *c), bi_read_csv(Session *s, Call *c),
    bi_read_bytes(Session *s, Call *c), bi_split(Session *s, Call *c),
    bi_batches(Session *s, Call *c), bi_windows(Session *s, Call *c),
    bi_shuffle(Session *s, Call *c), bi_take(Session *s, Call *c), bi_progress(Session *s, Call *c),
    bi_first(Session *s, Call *c), bi_enumerate(Session *s, Call *c), bi_zip(Session *s, Call *c),
    bi_var(Session *s, Call *c), bi_dtype_of(Session *s, Call *c),
    bi_same_leaves(Session *s, Call *c), bi_fresh_leaves(Session *s, Call *c),
    bi_checkpoint_layers(Session *s, Call *c), bi_later(Session *s, Call *c),
    bi_on_grad(Session *s, Call *c),
    bi_after_grad(Session *s, Call *c), bi_after_backward(Session *s, Call *c),
    bi_remove(Session *s, Call *c), bi_on_call(Session *s, Call *c),
    bi_defer(Session *s, Call *c);

#endif
