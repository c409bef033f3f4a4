/* Sequences: lazy recipes, and their iterators (rule 95).
 *
 * In: a source (tensors, a list, a range) and steps on top of it. Out: element after element, in
 * script. Idea: once its random permutation is drawn, every kind of sequence can compute its
 * element number k. So an iterator is a chain of such views, built again with new draws at every
 * start, and a shuffle of a shuffle, a zip or a first element need no special case. The keys of the
 * permutations and the number of the next element are all there is to know of a loop that stands
 * somewhere (rule 122). The lines of a file are read on the way, so what stands on top of them goes
 * forward and knows no number of elements: whether there is element k is asked when its turn comes.
 * Invariant: an
 * iterator owns its values and permutations and is on the pool, so an error in the body of a loop
 * frees it.
 */
#include "lang/eval/seq.h"

#include <string.h>
#include <time.h>

#include "graph/build.h"
#include "lang/eval/call.h"
#include "lang/eval/index.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sources.h"
#include "lang/eval/steps.h"
#include "lang/eval/want.h"
#include "lang/tape/gradient.h"
#include "lang/value/bars.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"
#include "runtime/lines.h"
#include "runtime/rng.h"

enum { SEQ_DEEP = 200 }; /* most steps on top of one another */
enum { UNKNOWN = -1 };

struct SeqIter {
  Session *s;
  Seq *q;       /* retained; NULL for a source that is no sequence */
  Value source; /* if this is a source; retained */
  SeqIter *sub, *second;
  int64_t n, next; /* number of elements, UNKNOWN of a stream; position of seq_next */
  int64_t *order;  /* permutation of a shuffle, `ordered` numbers, drawn by this key */
  int64_t ordered, key[2];
  int64_t pass;  /* SEQ_CYCLE: the pass that sub is in */
  int64_t *base; /* SEQ_CYCLE: the words (put_words) of its pass 0, `based` numbers */
  int64_t based;
  int64_t seen; /* SEQ_CHAIN: elements of its first stream that were there */
  bool endless;
  bool top, part;  /* of a loop, which it is all of, or part of: Seq.loop, Seq.parts */
  SeqIter *outer;  /* of a loop around it through the same sequence */
  int64_t windows; /* SEQ_WINDOWS: number of windows in all batches */
  int64_t done;    /* progress: elements requested */
  Bar bar;         /* of those that are finished */
  Lines *lines;    /* SEQ_LINES */
  Value ahead;     /* of a stream, SEQ_LINES and SEQ_BATCHES: element number have - 1; retained */
  int64_t have;
};

/* ---- trees with a leading axis */

static int64_t leading(Session *s, Value v, Span at, int depth) {
  stack_check();
  if (depth > SEQ_DEEP) fail_at(s, ERR_DEPTH, at, "the value is nested too deeply");
  if (v_is_tensor(v)) {
    const Tensor *t = op_tensor_of(s, v, at);
    if (t->rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    return t->dim[0];
  }
  size_t n;
  const Value *items = value_items(v, &n);
  if (v.tag == V_LIST && !v.u.list->weak) return (int64_t)n;
  if (!n)
    fail_at(s, ERR_ITERATE, at,
            "tensors, tuples, records and dicts of tensors, lists, ranges and sequences have "
            "elements; this "
            "is %s",
            value_type_text(s, v));
  int64_t all = 0;
  for (size_t i = 0; i < n; i++) {
    int64_t k = leading(s, items[i], at, depth + 1);
    if (i && k != all)
      fail_at(s, ERR_LEADING, at,
              "tensors that go together have one leading size: %lld and %lld differ",
              (long long)all, (long long)k);
    all = k;
  }
  return all;
}

static Value weak_tensors(Session *s, Value v, Span at) {
  stack_check();
  if (v_is_weak_list(v)) return op_as_tensor(s, v, DT_COUNT, at);
  size_t n;
  Value *items = v.tag == V_LIST ? NULL : value_parts(s, v, &n);
  bool same = true;
  for (size_t i = 0; items && i < n; i++) {
    Value x = weak_tensors(s, items[i], at);
    same &= x.tag == items[i].tag;
    items[i] = x;
  }
  return same ? v : value_like(s, v, items);
}

Value data_source(Session *s, Value v, Span at, int64_t *n) {
  if (v.tag == V_SEQ) {
    *n = -1;
    return v;
  }
  if (v.tag == V_RANGE) {
    int64_t lo = want_int(s, v.u.range->lo, at, "the start of the range"),
            hi = want_int(s, v.u.range->hi, at, "the end of the range");
    if (__builtin_sub_overflow(hi, lo, n))
      fail_at(s, ERR_OVERFLOW, at, "the range has more than 2^63 - 1 elements");
    if (*n < 0) *n = 0;
    return v;
  }
  v = weak_tensors(s, v, at);
  *n = leading(s, v, at, 0);
  return v;
}

/* Rows from .. from + len of the leading axis; `drop`: one row, without that axis. */
typedef struct RowRange {
  int64_t from, len;
  bool drop;
} RowRange;

static Value row_range(Session *s, const RowRange *r, Value x, Span at) {
  const Tensor *t = op_tensor_of(s, x, at);
  if (tape_wants_grad(s, x) && !s->modes.no_grad) {
    if (r->drop) return op_element(s, x, r->from, at);
    int64_t st[CKL_MAX_RANK], ln[CKL_MAX_RANK], sp[CKL_MAX_RANK];
    for (int k = 0; k < t->rank; k++) {
      st[k] = dim_const(s->dims, k ? 0 : r->from);
      ln[k] = dim_const(s->dims, k ? t->dim[k] : r->len);
      sp[k] = 1;
    }
    Attr a[3] = {attr_dims(AT_STARTS, t->rank, st), attr_dims(AT_LENS, t->rank, ln),
                 attr_ints(AT_STEPS, t->rank, sp)};
    return op_run(s, OP_SLICE, 1, &x, a, 3, at);
  }
  int64_t dim[CKL_MAX_RANK], off = t->offset + r->from * t->stride[0];
  if (r->drop) return v_tensor(s, tn_view(&s->mem, t, t->rank - 1, t->dim + 1, t->stride + 1, off));
  memcpy(dim, t->dim, sizeof dim);
  dim[0] = r->len;
  return v_tensor(s, tn_view(&s->mem, t, t->rank, dim, t->stride, off));
}

static Value row_list(Session *s, Value index, Value x, Span at) {
  Value in[2] = {x, index};
  Tensor *idx = in[1].u.t->t;
  Device dev = op_tensor_of(s, x, at)->store->dev;
  if (dev != idx->store->dev) in[1] = v_tensor(s, tn_copy(&s->mem, idx, dev));
  Attr a = attr_i(AT_AXIS, 0);
  return op_run(s, OP_TAKE, 2, in, &a, 1, at);
}

/* Element k of a tree with a leading axis; a list in it is a column. */
Value data_element(Session *s, Value v, int64_t k, Span at) {
  stack_check();
  size_t n;
  if (v.tag == V_LIST) return v.u.list->items[k];
  if (v.tag == V_RANGE) return v_int(v.u.range->lo.u.i + k);
  if (v_is_tensor(v)) return row_range(s, &(RowRange){k, 1, true}, v, at);
  Value *items = value_parts(s, v, &n);
  for (size_t i = 0; i < n; i++) items[i] = data_element(s, items[i], k, at);
  return value_like(s, v, items);
}

static Value some_list(Session *s, size_t n, const Value *items) {
  Value l = v_list(s, V_LIST, n, items);
  bool weak = n > 0;
  for (size_t i = 0; i < n; i++) weak &= items[i].tag == V_INT || items[i].tag == V_FLOAT;
  l.u.list->weak = weak;
  return l;
}

/* Ints of a range, as i64. */
static Value range_rows(Session *s, const Range *r, const int64_t *rows, int64_t from, int64_t n) {
  Value v = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &n));
  int64_t *out = tn_data(v.u.t->t);
  for (int64_t i = 0; i < n; i++) out[i] = r->lo.u.i + (rows ? rows[i] : from + i);
  return v;
}

Value data_rows(Session *s, Value v, int64_t from, int64_t len, Span at) {
  stack_check();
  if (v.tag == V_LIST) return some_list(s, (size_t)len, v.u.list->items + from);
  if (v.tag == V_RANGE) return range_rows(s, v.u.range, NULL, from, len);
  size_t n;
  if (v_is_tensor(v)) return row_range(s, &(RowRange){from, len, false}, v, at);
  Value *items = value_parts(s, v, &n);
  for (size_t i = 0; i < n; i++) items[i] = data_rows(s, items[i], from, len, at);
  return value_like(s, v, items);
}

/* These rows; `index` is a tensor of them. */
static Value picked(Session *s, Value v, const int64_t *rows, int64_t n, Value index, Span at) {
  stack_check();
  size_t count;
  if (v_is_tensor(v)) return row_list(s, index, v, at);
  if (v.tag == V_RANGE) return range_rows(s, v.u.range, rows, 0, n);
  if (v.tag != V_LIST) {
    Value *items = value_parts(s, v, &count);
    for (size_t i = 0; i < count; i++) items[i] = picked(s, items[i], rows, n, index, at);
    return value_like(s, v, items);
  }
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (int64_t i = 0; i < n; i++) items[i] = v.u.list->items[rows[i]];
  return some_list(s, (size_t)n, items);
}

Value data_pick(Session *s, Value v, const int64_t *rows, int64_t n, Span at) {
  Value index = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &n));
  memcpy(tn_data(index.u.t->t), rows, (size_t)n * sizeof *rows);
  return picked(s, v, rows, n, index, at);
}

static void ordered_by(const int64_t key[2], int64_t n, int64_t *out) {
  rng_permutation((uint64_t)key[0], (uint64_t)key[1], n, out);
}

void data_order(Session *s, uint64_t site, int64_t n, int64_t *out) {
  ordered_by(tn_data(random_key_for(s, site).u.t->t), n, out);
}

/* ---- recipes */

static void release_obj(void *o) {
  obj_release(o);
}

Value seq_value(Session *s, SeqKind kind, Value source, Value extra, int64_t n, int64_t m,
                bool shuffle, bool drop, uint64_t site) {
  Seq *q = mem_need(&s->mem, NULL, 0, sizeof *q);
  memset(q, 0, sizeof *q);
  q->o = (Obj){.rc = 1, .s = s, .tag = V_SEQ};
  q->kind = kind;
  q->source = source;
  q->extra = extra;
  value_retain(source);
  value_retain(extra);
  q->n = n;
  q->m = m;
  q->shuffle = shuffle;
  q->drop = drop;
  q->site = site;
  q->place = v_unit();
  s->count.values_live++;
  mem_pool_add(&s->mem, q, release_obj);
  return (Value){.tag = V_SEQ, .u.seq = q};
}

void seq_free(Session *s, Seq *q) {
  value_release(q->source);
  value_release(q->extra);
  value_release(q->place);
  mem_free(&s->mem, q, sizeof *q);
}

Value seq_map(Session *s, Value seq, Value f, Span at) {
  (void)at;
  if (seq.tag == V_SEQ && seq.u.seq->staged) return seq_staged(s, SEQ_MAP, seq, f, 0);
  return seq_value(s, SEQ_MAP, seq, f, 0, 0, false, false, 0);
}

static int64_t pieces(int64_t n, int64_t each, bool drop) {
  return drop ? n / each : n / each + (n % each != 0);
}

/* The number of adjacent windows, if one more element is left for the shifted copy. */
static int64_t windows_of(Session *s, const Seq *q, Span at) {
  int64_t rows = leading(s, q->source, at, 0);
  return rows ? (rows - 1) / q->n : 0;
}

/* As `start` finds it, but without draws: INT64_MAX if there is no end, UNKNOWN of a stream. */
int64_t seq_count(Session *s, Value v, Span at) {
  int64_t n = 0, m;
  stack_check();
  if (v.tag != V_SEQ) {
    data_source(s, v, at, &n);
    return n;
  }
  const Seq *q = v.u.seq;
  if (q->kind == SEQ_LINES) return UNKNOWN;
  if (q->kind == SEQ_WINDOWS) return pieces(windows_of(s, q, at), q->m, false);
  n = seq_count(s, q->source, at);
  if (q->kind == SEQ_CYCLE) return INT64_MAX;
  if (q->kind == SEQ_TAKE) return n < 0 || n < q->n ? n : q->n;
  if (q->kind == SEQ_ZIP || q->kind == SEQ_CHAIN) {
    m = seq_count(s, q->extra, at);
    if (n < 0 || m < 0) return UNKNOWN;
    if (q->kind == SEQ_ZIP) return m < n ? m : n;
    return __builtin_add_overflow(n, m, &n) ? INT64_MAX : n;
  }
  if (n < 0 || n == INT64_MAX) return n;
  if (q->kind == SEQ_BATCHES) return pieces(n, q->n, q->drop);
  if (q->kind == SEQ_STEP) return pieces(n, q->n, false);
  if (q->kind == SEQ_DROP) return q->n < n ? n - q->n : 0;
  return n;
}

/* ---- iterators */

/* The loop that the iterator belongs to has ended. */
static void leave(SeqIter *it) {
  SeqIter **at = it->top ? &it->q->loop : NULL;
  while (at && *at != it) at = &(*at)->outer;
  if (at) *at = it->outer;
  if (it->part) it->q->parts--;
  it->top = it->part = false;
}

static void iter_free(SeqIter *it) {
  if (!it) return;
  Session *s = it->s;
  leave(it);
  iter_free(it->sub);
  iter_free(it->second);
  bar_drop(s, &it->bar);
  if (it->order) mem_free(&s->mem, it->order, (size_t)it->ordered * sizeof *it->order);
  lines_close(it->lines);
  value_release(it->ahead);
  if (it->base) mem_free(&s->mem, it->base, (size_t)it->based * sizeof *it->base);
  value_release(it->source);
  if (it->q) obj_release(&it->q->o);
  mem_free(&s->mem, it, sizeof *it);
}

static void iter_release(void *it) {
  iter_free(it);
}

static SeqIter *iter_new(Session *s) {
  SeqIter *it = mem_need(&s->mem, NULL, 0, sizeof *it);
  *it = (SeqIter){.s = s, .source = v_unit(), .ahead = v_unit()};
  return it;
}

/* How an iterator starts. */
typedef struct Start {
  Span at;
  const int64_t *place; /* words to start with, those that are left; NULL: new draws */
  int64_t taken;        /* elements that were taken before, for the progress */
  bool loop;            /* it is one of a loop */
} Start;

static void need_end(SeqIter *it, const char *what, Span at) {
  if (it->endless)
    fail_help(it->s, ERR_VALUE, at, "`take(n)` gives it an end",
              "a sequence without an end cannot be %s", what);
}

static void need_number(const SeqIter *it, const char *what, Span at) {
  if (it->n < 0)
    fail_help(it->s, ERR_ITERATE, at, "`[l for l in read_lines(path)]` keeps the lines in a list",
              "%s goes through elements whose number is known, and the lines of a file are read "
              "as they come",
              what);
}

static void shuffle(SeqIter *it, int64_t n, Start *st) {
  need_end(it, "shuffled", st->at);
  need_number(it, "what is shuffled", st->at);
  if (st->place) {
    memcpy(it->key, st->place, sizeof it->key);
    st->place += 2;
  }
  if (n == 0) return;
  if (n > INT64_MAX / 8) mem_throw(&it->s->mem, MEM_ERR_NOMEM);
  if (!st->place)
    memcpy(it->key, tn_data(random_key_for(it->s, it->q->site).u.t->t), sizeof it->key);
  it->order = mem_need(&it->s->mem, NULL, 0, (size_t)n * sizeof *it->order);
  it->ordered = n;
  ordered_by(it->key, n, it->order);
}

static Lines *open_lines(Session *s, const Seq *q, Span at) {
  Err e = {.text = ""};
  Lines *l = lines_open(&s->mem, q->source.u.str->s, &e);
  if (!l) fail_file(s, at, &e);
  return l;
}

/* ---- the words of an iterator: the keys of its shuffles, in the order in which they start. With
 * them it starts in the same orders again. */

static size_t words_of(Value v) {
  stack_check();
  if (v.tag != V_SEQ) return 0;
  const Seq *q = v.u.seq;
  size_t below = q->kind == SEQ_WINDOWS ? 0 : words_of(q->source);
  return below + (q->shuffle ? 2 : 0) + words_of(q->extra);
}

static void put_words(const SeqIter *it, int64_t **out) {
  stack_check();
  if (!it || !it->q) return;
  if (it->q->kind == SEQ_CYCLE) {
    if (it->based) memcpy(*out, it->base, (size_t)it->based * sizeof **out);
    *out += it->based;
  } else {
    put_words(it->sub, out);
  }
  if (it->q->shuffle) {
    memcpy(*out, it->key, sizeof it->key);
    *out += 2;
  }
  put_words(it->second, out);
}

/* Fills an iterator that the pool already owns, itself or by its parent. */
static void start(Session *s, SeqIter *it, Value source, Start *st, int depth) {
  Span at = st->at;
  stack_check();
  if (depth > SEQ_DEEP)
    fail_at(s, ERR_DEPTH, at, "more than %d steps of sequences on top of one another", SEQ_DEEP);
  if (source.tag != V_SEQ) {
    Value v = data_source(s, source, at, &it->n);
    value_set(&it->source, operand_held(s, v)); /* a param as it is now */
    return;
  }
  Seq *q = source.u.seq;
  it->q = q;
  q->o.rc++;
  if (st->loop && depth) {
    if (q->place.tag != V_UNIT)
      fail_help(s, ERR_VALUE, at, "take the position of what the loop goes through, and seek there",
                "the loop goes through a sequence made of one that `seek` has set to a place");
    it->part = true;
    q->parts++;
  }
  if (q->kind != SEQ_WINDOWS && q->kind != SEQ_LINES) {
    it->sub = iter_new(s);
    int64_t taken = st->taken;
    if (q->kind == SEQ_BATCHES && __builtin_mul_overflow(taken, q->n, &st->taken))
      st->taken = INT64_MAX;
    start(s, it->sub, q->source, st, depth + 1);
    st->taken = taken;
    it->n = it->sub->n;
    it->endless = it->sub->endless;
  }
  switch (q->kind) {
  case SEQ_TREE:
  case SEQ_MAP:
  case SEQ_ENUMERATE: break;
  case SEQ_REVERSE:
    need_end(it, "reversed", at);
    need_number(it, "`reverse`", at);
    break;
  case SEQ_BATCHES:
    if (q->shuffle) shuffle(it, it->n, st);
    if (it->n >= 0) it->n = pieces(it->n, q->n, q->drop);
    break;
  case SEQ_WINDOWS: {
    int64_t count = windows_of(s, q, at);
    if (q->shuffle) shuffle(it, count, st);
    it->n = pieces(count, q->m, false);
    it->windows = count;
    break;
  }
  case SEQ_SHUFFLE: shuffle(it, it->n, st); break;
  case SEQ_TAKE:
    if (q->n < it->n) it->n = q->n;
    it->endless = false;
    break;
  case SEQ_DROP:
    if (it->n >= 0) it->n = q->n < it->n ? it->n - q->n : 0;
    break;
  case SEQ_CYCLE:
    need_number(it, "`cycle`", at);
    if (!it->n) fail_at(s, ERR_VALUE, at, "`cycle` has nothing to repeat: the sequence is empty");
    it->n = INT64_MAX;
    it->endless = true;
    it->based = (int64_t)words_of(q->source);
    if (it->based) {
      it->base = mem_need(&s->mem, NULL, 0, (size_t)it->based * sizeof *it->base);
      put_words(it->sub, &(int64_t *){it->base});
    }
    break;
  case SEQ_STEP:
    if (it->n >= 0) it->n = pieces(it->n, q->n, false);
    break;
  case SEQ_LINES:
    it->n = UNKNOWN;
    it->lines = open_lines(s, q, at);
    break;
  case SEQ_PROGRESS:
    need_end(it, "shown with its progress", at);
    bar_start(&it->bar, q->extra.tag == V_STR ? q->extra.u.str->s : "");
    it->bar.n = it->n;
    it->bar.passed = it->done = it->n >= 0 && it->n < st->taken ? it->n : st->taken;
    break;
  case SEQ_ZIP:
  case SEQ_CHAIN:
    it->second = iter_new(s);
    start(s, it->second, q->extra, st, depth + 1);
    bool stream = it->n < 0 || it->second->n < 0;
    if (q->kind == SEQ_CHAIN) {
      if (__builtin_add_overflow(it->n, it->second->n, &it->n)) it->n = INT64_MAX;
      it->endless |= it->second->endless;
    } else {
      if (it->second->n < it->n) it->n = it->second->n;
      it->endless &= it->second->endless;
    }
    if (stream) it->n = UNKNOWN;
    break;
  }
}

static Value at_(Session *s, SeqIter *it, int64_t k, Span at);

static Value stacked(Session *s, size_t n, const Value *v, int64_t axis, Span at, int depth) {
  stack_check();
  Value first = v[0];
  if (depth < SEQ_DEEP && (first.tag == V_TUPLE || first.tag == V_RECORD || first.tag == V_DICT)) {
    size_t width;
    Value *items = value_parts(s, first, &width), *part = ARENA_ARRAY(&s->scratch, Value, n);
    for (size_t i = 1; i < n; i++) {
      size_t w;
      bool fits = v[i].tag == first.tag && value_items(v[i], &w) && w == width;
      for (size_t k = 0; fits && k < width; k++) fits = value_counterpart(first, k, v[i]) != NULL;
      if (!fits)
        fail_at(s, ERR_LEADING, at,
                "elements that are stacked have one structure; these are %s and %s",
                value_type_text(s, first), value_type_text(s, v[i]));
    }
    for (size_t k = 0; k < width; k++) {
      for (size_t i = 0; i < n; i++) part[i] = *value_counterpart(first, k, v[i]);
      items[k] = stacked(s, n, part, axis, at, depth + 1);
    }
    return value_like(s, first, items);
  }
  if (first.tag == V_UNKNOWN) return first;
  if (!v_is_tensor(first) && !v_is_number(first) && first.tag != V_BOOL && !v_is_weak_list(first))
    return some_list(s, n, v);
  if (axis < 0) axis += op_type_of(s, op_as_tensor(s, first, DT_COUNT, at)).rank + 1;
  return op_stack(s, n, v, axis < 0 || axis > CKL_MAX_RANK ? -1 : (int)axis, at);
}

Value data_stacked(Session *s, size_t n, const Value *v, int64_t axis, Span at) {
  return stacked(s, n, v, axis, at, 0);
}

/* The source under steps that only reorder; *k becomes the index there. NULL: there are other
 * steps. */
static SeqIter *bare(SeqIter *it, int64_t *k) {
  for (;;) {
    if (!it->q) return it;
    if (it->q->kind == SEQ_SHUFFLE)
      *k = it->order[*k];
    else if (it->q->kind == SEQ_DROP)
      *k += it->q->n;
    else if (it->q->kind != SEQ_TAKE && it->q->kind != SEQ_TREE)
      return NULL;
    it = it->sub;
  }
}

static Value batch(Session *s, SeqIter *it, int64_t k, Span at) {
  int64_t each = it->q->n, from = k * each, all = it->sub->n,
          len = all - from < each ? all - from : each;
  int64_t *rows = ARENA_ARRAY(&s->scratch, int64_t, len + 1);
  bool in_order = true;
  SeqIter *base = NULL;
  for (int64_t i = 0; i < len; i++) {
    rows[i] = it->order ? it->order[from + i] : from + i;
    int64_t r = rows[i];
    base = bare(it->sub, &r);
    if (!base) break;
    rows[i] = r;
    in_order &= r == rows[0] + i;
  }
  if (base)
    return in_order ? data_rows(s, base->source, rows[0], len, at)
                    : data_pick(s, base->source, rows, len, at);
  Value *items = ARENA_ARRAY(&s->scratch, Value, len + 1);
  for (int64_t i = 0; i < len; i++)
    items[i] = at_(s, it->sub, it->order ? it->order[from + i] : from + i, at);
  return stacked(s, (size_t)len, items, 0, at, 0);
}

/* (x, y), each i64[windows, width], y shifted by one element; windows are adjacent. */
/* Rows of windows of x, a tensor or columns of them; side 1 is one element further. */
static Value window_rows(Session *s, const SeqIter *it, Value x, int64_t k, int side, Span at) {
  stack_check();
  if (!v_is_tensor(x)) {
    size_t n;
    Value *items = value_parts(s, x, &n);
    for (size_t i = 0; i < n; i++) items[i] = window_rows(s, it, items[i], k, side, at);
    return value_like(s, x, items);
  }
  const Tensor *t = op_tensor_of(s, x, at);
  int64_t width = it->q->n, from = k * it->q->m,
          len = it->windows - from < it->q->m ? it->windows - from : it->q->m;
  int64_t dim[2] = {len, width};
  Value rows = v_tensor(s, tn_new(&s->mem, t->store->dev, DT_I64, 2, dim));
  int64_t *out = tn_data(rows.u.t->t);
  for (int64_t i = 0; i < len; i++) {
    int64_t w = it->order ? it->order[from + i] : from + i, first = w * width + side;
    if (t->dtype == DT_I64)
      tn_gather(t, first, width, out + i * width);
    else
      for (int64_t j = 0; j < width; j++) out[i * width + j] = tn_get_i64(t, first + j);
  }
  return rows;
}

static Value window(Session *s, const SeqIter *it, int64_t k, Span at) {
  Value xy[2];
  for (int side = 0; side < 2; side++) xy[side] = window_rows(s, it, it->q->source, k, side, at);
  return v_list(s, V_TUPLE, 2, xy);
}

/* ---- streams */

/* Reads up to line k, which lies ahead. */
static bool line_ahead(Session *s, SeqIter *it, int64_t k, Span at) {
  const char *line = "";
  size_t n = 0;
  Err e = {.text = ""};
  for (; it->have <= k; it->have++) {
    int got = lines_next(it->lines, &line, &n, &e);
    if (got < 0) fail_file(s, at, &e);
    if (!got) return false;
  }
  value_set(&it->ahead, v_str(s, line, n));
  return true;
}

static bool has(Session *s, SeqIter *it, int64_t k, Span at);

static bool batch_ahead(Session *s, SeqIter *it, int64_t k, Span at) {
  int64_t each = it->q->n, from = k > INT64_MAX / each - 1 ? INT64_MAX - each : k * each;
  Value *items = NULL;
  size_t count = 0, cap = 0;
  while ((int64_t)count < each && has(s, it->sub, from + (int64_t)count, at)) {
    Value v = at_(s, it->sub, from + (int64_t)count, at);
    VEC_PUSH(&s->scratch, items, count, cap, v);
  }
  if (!count || (it->q->drop && (int64_t)count < each)) return false;
  value_set(&it->ahead, stacked(s, count, items, 0, at, 0));
  it->have = k + 1;
  return true;
}

/* The end of its first stream is looked for element by element, as only its number says where the
 * second begins. */
static bool chain_ahead(Session *s, SeqIter *it, int64_t k, Span at) {
  SeqIter *first = it->sub;
  while (first->n < 0 && it->seen <= k) {
    count_step(s, at);
    if (has(s, first, it->seen, at))
      it->seen++;
    else
      first->n = it->seen;
  }
  return first->n < 0 || k < first->n || has(s, it->second, k - first->n, at);
}

/* Whether there is element k. Of a stream, none before it is asked for afterwards. */
static bool has(Session *s, SeqIter *it, int64_t k, Span at) {
  stack_check();
  if (it->n >= 0) return k < it->n;
  switch (it->q->kind) {
  case SEQ_LINES: return it->have == k + 1 || line_ahead(s, it, k, at);
  case SEQ_BATCHES: return it->have == k + 1 || batch_ahead(s, it, k, at);
  case SEQ_TAKE: return k < it->q->n && has(s, it->sub, k, at);
  case SEQ_DROP: return k <= INT64_MAX - it->q->n && has(s, it->sub, k + it->q->n, at);
  case SEQ_CHAIN: return chain_ahead(s, it, k, at);
  case SEQ_STEP: return k <= INT64_MAX / it->q->n && has(s, it->sub, k * it->q->n, at);
  case SEQ_ZIP: return has(s, it->sub, k, at) && has(s, it->second, k, at);
  default: return has(s, it->sub, k, at);
  }
}

/* Whether there were k elements, if nothing has to be computed to know it. */
static bool reaches(Session *s, SeqIter *it, int64_t k, Span at) {
  int64_t last = k - 1;
  for (;;) {
    if (it->n >= 0) return last < it->n;
    switch (it->q->kind) {
    case SEQ_LINES: return has(s, it, last, at);
    case SEQ_BATCHES: last = last * it->q->n + (it->q->drop ? it->q->n - 1 : 0); break;
    case SEQ_DROP: last += it->q->n; break;
    case SEQ_STEP: last *= it->q->n; break;
    case SEQ_ZIP:
    case SEQ_CHAIN: return true;
    default: break;
    }
    it = it->sub;
  }
}

/* ---- elements */

/* Element k of what is repeated. Pass number p has keys made of those of the first and p, so that
 * an element is the same whenever it is asked for. */
static Value repeated(Session *s, SeqIter *it, int64_t k, Span at) {
  int64_t n = it->sub->n, pass = k / n;
  if (pass != it->pass && it->based) {
    int64_t *words = ARENA_ARRAY(&s->scratch, int64_t, it->based);
    memcpy(words, it->base, (size_t)it->based * sizeof *words);
    for (int64_t i = 0; i < it->based && pass; i += 2)
      words[i] = (int64_t)rng_fold((uint64_t)words[i], (uint64_t)pass);
    Start st = {.at = at, .place = words, .loop = it->top || it->part};
    iter_free(it->sub);
    it->sub = NULL;
    it->sub = iter_new(s);
    start(s, it->sub, it->q->source, &st, 1);
  }
  it->pass = pass;
  return at_(s, it->sub, k % n, at);
}

static Value tuple_at(Session *s, SeqIter *it, int64_t k, Span at) {
  size_t n = (size_t)it->q->m;
  Value *part = ARENA_ARRAY(&s->scratch, Value, n);
  for (size_t i = 0; i + 1 < n; i++) {
    part[i] = at_(s, it->sub, k, at);
    it = it->second;
  }
  part[n - 1] = at_(s, it, k, at);
  return v_list(s, V_TUPLE, n, part);
}

static Value at_(Session *s, SeqIter *it, int64_t k, Span at) {
  stack_check();
  Value pair[2];
  if (it->have && it->have == k + 1) return value_pool(s, it->ahead);
  if (!it->q) return data_element(s, it->source, k, at);
  switch (it->q->kind) {
  case SEQ_BATCHES: return batch(s, it, k, at);
  case SEQ_WINDOWS: return window(s, it, k, at);
  case SEQ_SHUFFLE: return at_(s, it->sub, it->order[k], at);
  case SEQ_REVERSE: return at_(s, it->sub, it->n - 1 - k, at);
  case SEQ_STEP: return at_(s, it->sub, k * it->q->n, at);
  case SEQ_DROP: return at_(s, it->sub, k + it->q->n, at);
  case SEQ_CYCLE: return repeated(s, it, k, at);
  case SEQ_CHAIN:
    return it->sub->n < 0 || k < it->sub->n ? at_(s, it->sub, k, at)
                                            : at_(s, it->second, k - it->sub->n, at);
  case SEQ_PROGRESS:
    it->bar.passed = it->done++;
    bar_show(s, &it->bar);
    return at_(s, it->sub, k, at);
  case SEQ_MAP: pair[0] = at_(s, it->sub, k, at); return call_simple(s, it->q->extra, 1, pair, at);
  case SEQ_ENUMERATE:
    pair[0] = v_int(k);
    pair[1] = at_(s, it->sub, k, at);
    return v_list(s, V_TUPLE, 2, pair);
  case SEQ_ZIP: return tuple_at(s, it, k, at);
  default: return at_(s, it->sub, k, at);
  }
}

SeqIter *seq_start(Session *s, Value source, Span at) {
  Start st = {.at = at};
  SeqIter *it = iter_new(s);
  mem_pool_add(&s->mem, it, iter_release);
  start(s, it, source, &st, 0);
  return it;
}

/* ---- places of loops */

enum { PLACE_HEAD = 2 }; /* elements taken, all elements; then the words of the iterator */

Value seq_place(Session *s, Value seq, Span at) {
  const Seq *q = seq.u.seq;
  int64_t n = PLACE_HEAD + (int64_t)words_of(seq);
  Value v = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &n));
  int64_t *out = tn_data(v.u.t->t);
  memset(out, 0, (size_t)n * sizeof *out);
  if (!q->loop && q->parts)
    fail_help(s, ERR_VALUE, at, "give what the loop goes through a name, and take its position",
              "a loop goes through a sequence made of this one");
  if (!q->loop) return v;
  out[0] = q->loop->next;
  out[1] = q->loop->n;
  out += PLACE_HEAD;
  put_words(q->loop, &out);
  return v;
}

void seq_seek(Session *s, Value seq, Value place, Span at) {
  place = op_as_tensor(s, place, DT_COUNT, at);
  const Tensor *t = op_tensor_of(s, place, at);
  size_t n = PLACE_HEAD + words_of(seq);
  bool fits =
      t->dtype == DT_I64 && t->rank == 1 && (size_t)t->dim[0] == n && t->store->dev == DEV_CPU;
  int64_t taken = fits ? tn_get_i64(t, 0) : -1, all = fits ? tn_get_i64(t, 1) : -1;
  if (fits && (taken < 0 || (all != UNKNOWN && taken > all)))
    fail_at(s, ERR_VALUE, at, "the place says that %lld of %lld elements were taken",
            (long long)taken, (long long)all);
  if (!fits)
    fail_help(s, ERR_VALUE, at, "`position` gives it, in a loop through a sequence made like this",
              "a place of this sequence is i64[%zu], this is %s", n, value_type_text(s, place));
  value_set(&seq.u.seq->place, taken ? place : v_unit());
}

SeqIter *seq_loop(Session *s, Value source, Span at) {
  SeqIter *it = iter_new(s);
  mem_pool_add(&s->mem, it, iter_release);
  Start st = {.at = at, .loop = true};
  Value place = v_unit();
  if (source.tag == V_SEQ && source.u.seq->place.tag != V_UNIT) {
    place = value_pool(s, source.u.seq->place);
    size_t n = (size_t)tn_count(place.u.t->t);
    int64_t *words = ARENA_ARRAY(&s->scratch, int64_t, n);
    for (size_t i = 0; i < n; i++) words[i] = tn_get_i64(place.u.t->t, (int64_t)i);
    st.place = words + PLACE_HEAD;
    it->next = st.taken = words[0];
    value_set(&source.u.seq->place, v_unit());
  }
  start(s, it, source, &st, 0);
  if (place.tag != V_UNIT && it->n != tn_get_i64(place.u.t->t, 1))
    fail_at(s, ERR_VALUE, at, "the place belongs to a sequence of %lld elements, this one has %lld",
            (long long)tn_get_i64(place.u.t->t, 1), (long long)it->n);
  if (it->n < 0 && it->next && !reaches(s, it, it->next, at))
    fail_at(s, ERR_VALUE, at, "the place says that %lld elements were taken, there are fewer now",
            (long long)it->next);
  if (it->q) {
    it->top = true;
    it->outer = it->q->loop;
    it->q->loop = it;
  }
  return it;
}

bool seq_next(Session *s, SeqIter *it, Value *out, Span at) {
  if (!has(s, it, it->next, at)) return false;
  *out = at_(s, it, it->next++, at);
  return true;
}

void seq_finish(Session *s, SeqIter *it) {
  if (!it) return;
  seq_finish(s, it->sub);
  seq_finish(s, it->second);
  leave(it);
  if (!it->q || it->q->kind != SEQ_PROGRESS) return;
  it->bar.passed = it->done;
  bar_end(s, &it->bar);
}

bool seq_first(Session *s, SeqIter *it, Value *out, Span at) {
  if (!has(s, it, 0, at)) return false;
  *out = at_(s, it, 0, at);
  return true;
}

void seq_need_end(SeqIter *it, Span at) {
  need_end(it, "made a list", at);
}

void seq_comp(Session *s, Value seq, Span at, void *ud, uint32_t k,
              void (*iteration)(void *ud, uint32_t k, Value v)) {
  SeqIter *it = seq_loop(s, seq, at);
  Value v;
  need_end(it, "gone through by a comprehension", at);
  for (;;) {
    count_step(s, at);
    if (!seq_next(s, it, &v, at)) break;
    iteration(ud, k, v);
  }
  seq_finish(s, it);
}
