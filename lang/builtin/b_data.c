/* Builtins of data: splits, sequences; arguments, time, counters, plans.
 *
 * In: script values. Out: tensors, sequences, numbers. Invariant: nothing here is code but the
 * elements of sequences whose number is known (seq_code.c). Numbers that depend on time or on the
 * machine come from their own builtins (clock, counter, peak_memory).
 */
#include <string.h>
#include <time.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/counter.h"
#include "lang/eval/call.h"
#include "lang/eval/number.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/sources.h"
#include "lang/eval/want.h"
#include "lang/names/module.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"
#include "lang/value/texts.h"

/* ---- sequences */

/* Argument 0 as the source of a sequence. */
static Value source_arg(Session *s, Call *c, int i) {
  int64_t n;
  return data_source(s, text_elements(s, c->v[i]), c->spans[i], &n);
}

/* The elements of v as `for` goes through them: pairs of a dict, code points of a text. */
static Value walked(Session *s, Value v) {
  return dict_elements(s, text_elements(s, v));
}

static Value walked_arg(Session *s, Call *c, int i) {
  int64_t n;
  return data_source(s, walked(s, c->v[i]), c->spans[i], &n);
}

static int64_t positive(Session *s, Call *c, int i, const char *what) {
  int64_t n = want_int(s, c->v[i], c->spans[i], what);
  if (n < 1)
    fail_at(s, ERR_VALUE, c->spans[i], "%s is at least 1, this is %lld", what, (long long)n);
  return n;
}

BUILTIN_FN(bi_batches) {
  int64_t n = positive(s, c, 1, "the size of a batch");
  bool shuffle = want_bool(s, c->v[2], c->spans[2], "`shuffle`"),
       drop = want_bool(s, c->v[3], c->spans[3], "`drop`");
  return seq_value(s, SEQ_BATCHES, source_arg(s, c, 0), v_unit(), n, 0, shuffle, drop,
                   random_site(c->node));
}

/* Tensors of ints with one axis, alone or as the columns of a tuple, a record or a dict. */
static Value int_columns(Session *s, Value v, Span at) {
  stack_check();
  size_t n = 0;
  if (v_is_weak_list(v)) v = op_as_tensor(s, v, DT_COUNT, at);
  if (v_is_tensor(v)) {
    const Tensor *t = op_tensor_of(s, v, at);
    if (t->rank == 1 && dt_int(t->dtype)) return v;
  }
  bool columns = v.tag == V_TUPLE || v.tag == V_RECORD || v.tag == V_DICT;
  Value *items = columns ? value_parts(s, v, &n) : NULL;
  if (!n)
    fail_help(s, ERR_WANT_TENSOR, at, "columns of them are a tuple, a record or a dict",
              "`windows` goes through a tensor of ints with one axis, not %s",
              value_type_text(s, v));
  for (size_t i = 0; i < n; i++) items[i] = int_columns(s, items[i], at);
  return value_like(s, v, items);
}

BUILTIN_FN(bi_windows) {
  int64_t n, width = positive(s, c, 1, "the width");
  Value x = data_source(s, int_columns(s, c->v[0], c->spans[0]), c->spans[0], &n);
  int64_t each = positive(s, c, 2, "`batch`");
  if (n <= width)
    fail_at(s, ERR_VALUE, c->at,
            "a window of %lld with the element after it needs %lld elements, there are %lld",
            (long long)width, (long long)width + (width < INT64_MAX), (long long)n);
  return seq_value(s, SEQ_WINDOWS, x, v_unit(), width, each,
                   want_bool(s, c->v[3], c->spans[3], "`shuffle`"), false, random_site(c->node));
}

BUILTIN_FN(bi_shuffle) {
  return seq_value(s, SEQ_SHUFFLE, source_arg(s, c, 0), v_unit(), 0, 0, true, false,
                   random_site(c->node));
}

BUILTIN_FN(bi_progress) {
  Value source = walked_arg(s, c, 0);
  if (c->rest_n > 1) fail_at(s, ERR_ARG_COUNT, c->rest_spans[1], "`progress` takes one label");
  Value label = c->rest_n ? c->rest[0] : v_str(s, "", 0);
  want_str(s, label, c->rest_n ? c->rest_spans[0] : c->at, "the label");
  return seq_value(s, SEQ_PROGRESS, source, label, 0, 0, false, false, 0);
}

/* In code: a sequence if it is only gone through, or has to be one; else a list. */
static Value staged(Session *s, Call *c, SeqKind kind, Value extra, int64_t step) {
  Value q = seq_staged(s, kind, walked(s, c->v[0]), walked(s, extra), step);
  if (seq_stays(s, q)) return q;
  int64_t n = seq_size(s, walked(s, c->v[0]), c->spans[0]);
  if (kind == SEQ_ZIP) seq_size(s, walked(s, c->v[1]), c->spans[1]);
  for (size_t i = 0; i < c->rest_n; i++) seq_size(s, walked(s, c->rest[i]), c->rest_spans[i]);
  if (seq_is_source(s, c->node)) return q;
  n = seq_size(s, q, c->at);
  Value *out = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (int64_t k = 0; k < n; k++) out[k] = seq_item(s, q, k, c->spans[0]);
  return v_list(s, V_LIST, (size_t)n, out);
}

BUILTIN_FN(bi_enumerate) {
  if (in_code(s)) return staged(s, c, SEQ_ENUMERATE, v_unit(), 0);
  return seq_value(s, SEQ_ENUMERATE, walked_arg(s, c, 0), v_unit(), 0, 0, false, false, 0);
}

BUILTIN_FN(bi_zip) {
  size_t n = c->rest_n;
  Value rest = c->v[1];
  Span at = c->spans[1];
  for (size_t i = n; i > 0; i--) { /* from the last one: each is joined to what follows it */
    Value left = i > 1 ? c->rest[i - 2] : c->v[1], right = i == n ? c->rest[i - 1] : rest;
    int64_t m = 2 + (int64_t)(n - i), k;
    if (in_code(s)) {
      rest = seq_staged(s, SEQ_ZIP, walked(s, left), walked(s, right), m);
      continue;
    }
    left = data_source(s, walked(s, left), i > 1 ? c->rest_spans[i - 2] : at, &k);
    if (i == n) right = data_source(s, walked(s, right), c->rest_spans[i - 1], &k);
    rest = seq_value(s, SEQ_ZIP, left, right, 0, m, false, false, 0);
  }
  if (in_code(s)) return staged(s, c, SEQ_ZIP, rest, 2 + (int64_t)n);
  Value a = walked_arg(s, c, 0);
  if (!n) rest = walked_arg(s, c, 1);
  return seq_value(s, SEQ_ZIP, a, rest, 0, 2 + (int64_t)n, false, false, 0);
}

/* Lists, texts and ranges give such, a dict the list of its pairs. */
static Value taken(Session *s, Call *c, SeqKind kind) {
  Value v = c->v[0] = dict_elements(s, c->v[0]);
  int64_t n = want_int(s, c->v[1], c->spans[1], "the number of elements");
  if (n < 0)
    fail_at(s, ERR_VALUE, c->spans[1], "the number of elements cannot be negative: %lld",
            (long long)n);
  bool list = v.tag == V_LIST, text = v.tag == V_STR;
  const Range *r = v.tag == V_RANGE ? v.u.range : NULL;
  if (list || text) {
    int64_t all = list ? (int64_t)v.u.list->count : (int64_t)v.u.str->chars,
            cut = n < all ? n : all;
    int64_t lo = kind == SEQ_DROP ? cut : 0, hi = kind == SEQ_DROP ? all : cut;
    if (text) return text_part(s, v.u.str, lo, hi, 1);
    Value l = v_list(s, V_LIST, (size_t)(hi - lo), v.u.list->items + lo);
    l.u.list->weak = v.u.list->weak && hi > lo;
    return l;
  }
  if (r && r->lo.tag == V_INT && r->hi.tag == V_INT) {
    int64_t lo = r->lo.u.i, hi = r->hi.u.i, cut;
    if (hi < lo) hi = lo;
    if (__builtin_add_overflow(lo, n, &cut) || cut > hi) cut = hi;
    return kind == SEQ_DROP ? v_range(s, v_int(cut), v_int(hi)) : v_range(s, v_int(lo), v_int(cut));
  }
  if (in_code(s)) return staged(s, c, kind, v_unit(), n);
  return seq_value(s, kind, walked_arg(s, c, 0), v_unit(), n, 0, false, false, 0);
}

BUILTIN_FN(bi_take) {
  return taken(s, c, SEQ_TAKE);
}

BUILTIN_FN(bi_drop) {
  return taken(s, c, SEQ_DROP);
}

BUILTIN_FN(bi_cycle) {
  return seq_value(s, SEQ_CYCLE, walked_arg(s, c, 0), v_unit(), 0, 0, false, false, 0);
}

static Value arg_seq(Session *s, Call *c) {
  if (c->v[0].tag != V_SEQ)
    fail_help(s, ERR_WANT_LIST, c->spans[0], "`batches`, `shuffle`, `enumerate` make sequences",
              "`%s` takes a sequence, not %s", c->b->name, value_type_text(s, c->v[0]));
  return c->v[0];
}

BUILTIN_FN(bi_position) {
  return seq_place(s, arg_seq(s, c), c->spans[0]);
}

BUILTIN_FN(bi_seek) {
  seq_seek(s, arg_seq(s, c), c->v[1], c->spans[1]);
  return v_unit();
}

/* Elements count - 1 - k, or k * step. Lists and tuples stay such; what else is known in code is a
 * list there, and in script a sequence; a dict is the list of its pairs. */
static Value picked(Session *s, Call *c, SeqKind kind, int64_t step) {
  Value v = c->v[0] = dict_elements(s, c->v[0]);
  if (v.tag != V_LIST && v.tag != V_TUPLE) {
    if (in_code(s)) return staged(s, c, kind, v_unit(), step);
    return seq_value(s, kind, walked_arg(s, c, 0), v_unit(), step, 0, false, false, 0);
  }
  size_t n = v.u.list->count, each = (size_t)step, count = n / each + (n % each != 0);
  Value *x = v.u.list->items, *out = ARENA_ARRAY(&s->scratch, Value, count + 1);
  for (size_t k = 0; k < count; k++) out[k] = x[kind == SEQ_REVERSE ? n - 1 - k : k * each];
  Value r = v_list(s, v.tag, count, out);
  r.u.list->weak = v.tag == V_LIST && v.u.list->weak && count;
  return r;
}

static void refuse_tensor(Session *s, const Call *c, const char *help) {
  if (v_is_tensor(c->v[0]) || c->v[0].tag == V_PARAM)
    fail_help(s, ERR_ITERATE, c->spans[0], help,
              "`%s` takes a list, a tuple, a range or a sequence, not %s", c->b->name,
              value_type_text(s, c->v[0]));
}

/* A text from its last code point to its first. */
static Value reversed(Session *s, Value text) {
  Value all = text_elements(s, text);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (size_t i = all.u.list->count; i-- > 0;)
    buf_put(&b, all.u.list->items[i].u.str->s, all.u.list->items[i].u.str->n);
  return v_str(s, b.n ? b.s : "", b.n);
}

BUILTIN_FN(bi_reverse) {
  refuse_tensor(s, c, "`flip(x, axis = 0)`");
  if (c->v[0].tag == V_STR) return reversed(s, c->v[0]);
  return picked(s, c, SEQ_REVERSE, 1);
}

BUILTIN_FN(bi_step_by) {
  refuse_tensor(s, c, "`x[::n]`");
  return picked(s, c, SEQ_STEP, positive(s, c, 1, "the step"));
}

BUILTIN_FN(bi_first) {
  Value v;
  if (!seq_first(s, seq_start(s, walked(s, c->v[0]), c->spans[0]), &v, c->at))
    fail_at(s, ERR_VALUE, c->spans[0], "there is no first element: the sequence is empty");
  return v;
}

BUILTIN_FN(bi_split) {
  if (c->v[0].tag == V_STR) return bi_split_text(s, c);
  int64_t n, k;
  Value x = data_source(s, c->v[0], c->spans[0], &n), at = c->v[1];
  if (n < 0)
    fail_at(s, ERR_WANT_TENSOR, c->spans[0],
            "`split` takes tensors, not a sequence; split before you make batches");
  if (at.tag == V_FLOAT) {
    if (!(at.u.f >= 0 && at.u.f <= 1))
      fail_help(s, ERR_VALUE, c->spans[1], "an int counts elements",
                "a fraction lies between 0 and 1");
    k = (int64_t)(at.u.f * (double)n + 0.5);
    if (k > n) k = n;
  } else {
    k = want_int(s, at, c->spans[1], "`at`");
  }
  if (k < 0 || k > n)
    fail_at(s, ERR_VALUE, c->spans[1], "the first part cannot have %lld of %lld elements",
            (long long)k, (long long)n);
  Value part[2];
  if (want_bool(s, c->v[2], c->spans[2], "`shuffle`")) {
    int64_t *order = ARENA_ARRAY(&s->scratch, int64_t, n + 1);
    data_order(s, random_site(c->node), n, order);
    part[0] = data_pick(s, x, order, k, c->at);
    part[1] = data_pick(s, x, order + k, n - k, c->at);
  } else {
    part[0] = data_rows(s, x, 0, k, c->at);
    part[1] = data_rows(s, x, k, n - k, c->at);
  }
  return v_list(s, V_TUPLE, 2, part);
}

/* ---- the command line */

/* The names of the program's arguments: texts of `args("name", ..)` in all its files. */
typedef struct Asked {
  Session *s;
  const char **names;
  size_t count, cap;
  bool open; /* a name is no plain text: any word may be an argument */
} Asked;

static void asked_in(void *ud, Node *n) {
  stack_check();
  Asked *a = ud;
  if (!n) return;
  if (n->kind == N_CALL && n->call.callee->kind == N_NAME &&
      !strcmp(n->call.callee->name, "args") && n->call.args.count) {
    Node *first = n->call.args.items[0]->arg.value;
    uint32_t k = 0;
    const char *text = first->kind == N_STRING ? ast_plain_text(first, &k) : NULL;
    if (text)
      VEC_PUSH(&a->s->scratch, a->names, a->count, a->cap, text);
    else
      a->open = true;
  }
  if (n->kind == N_STRING)
    for (uint32_t i = 0; i < n->string.count; i++) asked_in(ud, n->string.items[i].hole);
  else
    ast_children(n, asked_in, ud);
}

static void check_words(Session *s, Span at) {
  Asked a = {.s = s};
  for (size_t i = 0; i < s->module_count; i++)
    if (s->modules[i]->ast) asked_in(&a, s->modules[i]->ast);
  if (s->main && s->main->ast) asked_in(&a, s->main->ast);
  if (a.open || !a.count) return;
  Buf wrong, names;
  buf_init_arena(&wrong, &s->scratch);
  buf_init_arena(&names, &s->scratch);
  for (size_t i = 0; i < a.count; i++) {
    bool twice = false;
    for (size_t k = 0; k < i; k++) twice |= !strcmp(a.names[k], a.names[i]);
    if (!twice) buf_printf(&names, "%s%s", names.n ? ", " : "", a.names[i]);
  }
  for (size_t i = 0; i < s->config.arg_count; i++) {
    const char *w = s->config.args[i], *eq = strchr(w, '=');
    size_t n = eq ? (size_t)(eq - w) : 0;
    bool known = false;
    for (size_t k = 0; k < a.count && eq; k++)
      known |= strlen(a.names[k]) == n && !memcmp(a.names[k], w, n);
    if (!known) buf_printf(&wrong, "%s`%s`", wrong.n ? ", " : "", w);
  }
  if (wrong.n)
    fail_help(s, ERR_ARGS_WORD, at, fail_text(s, "it takes name=value for %s", names.s),
              "the program does not know what %s on its command line means", wrong.s);
}

BUILTIN_FN(bi_args) {
  const char *name = want_str(s, c->v[0], c->spans[0], "the name");
  Value d = c->v[1];
  if (d.tag != V_INT && d.tag != V_FLOAT && d.tag != V_BOOL && d.tag != V_STR)
    fail_at(s, ERR_VALUE, c->spans[1], "the default is an int, float, bool or str, not %s",
            value_type_text(s, d));
  if (!s->config.arg_count) return d;
  check_words(s, c->at);
  size_t n = strlen(name);
  const char *text = NULL;
  for (size_t i = 0; i < s->config.arg_count; i++) {
    const char *w = s->config.args[i];
    if (!strncmp(w, name, n) && w[n] == '=') text = w + n + 1;
  }
  if (!text) return d;
  size_t len = strlen(text);
  int64_t i;
  double x;
  switch ((ValueTag)d.tag) {
  case V_STR:
    if (!str_valid(text, len))
      fail_at(s, ERR_ARGS_WORD, c->at, "`%s` of the command line is not valid UTF-8", name);
    return v_str(s, text, len);
  case V_BOOL:
    if (!strcmp(text, "true")) return v_bool(true);
    if (!strcmp(text, "false")) return v_bool(false);
    break;
  case V_INT:
    if (str_to_i64(text, len, &i)) return v_int(i);
    break;
  default:
    if (str_to_f64(text, len, &x)) return v_float(x);
  }
  fail_at(s, ERR_ARGS_WORD, c->at, "`%s=%s` is no %s", name, text, value_type_text(s, d));
}

/* ---- observation */

BUILTIN_FN(bi_clock) {
  (void)s;
  (void)c;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return v_float((double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
}

BUILTIN_FN(bi_counter) {
  const char *name = want_str(s, c->v[0], c->spans[0], "the name");
  int64_t n = counter_read(s, name);
  if (n < 0)
    fail_help(s, ERR_VALUE, c->spans[0], "\"nodes\", \"compile\", \"tape.live\" are some",
              "no counter is called `%s`", name);
  return v_int(n);
}

BUILTIN_FN(bi_plan) {
  Args a = {.count = c->rest_n,
            .v = c->rest,
            .names = c->rest_names,
            .spans = c->rest_spans,
            .call = c->at};
  return report_call(s, c->v[0], c->spans[0], &a);
}

BUILTIN_FN(bi_peak_memory) {
  (void)c;
  return v_int((int64_t)s->mem.data_peak[s->modes.device]);
}
