/* Texts that name axes, read with places, so that an error points into the text. */
#include "lang/eval/pattern.h"

#include <string.h>

#include "lang/compile/stage.h"
#include "lang/eval/eval.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"

Span pat_place(const Pattern *p, size_t lo, size_t hi) {
  Span sp = p->span;
  if (!p->literal) return sp;
  if (hi <= lo) hi = lo + 1;
  sp.lo = p->literal + (uint32_t)lo;
  sp.hi = p->literal + (uint32_t)hi;
  return sp;
}

bool pat_arg(Session *s, Pattern *p, Node *node, ErrCode code, const char *what) {
  Value v = eval_expr(s, node);
  if (v.tag == V_UNKNOWN) return false;
  *p = (Pattern){.s = s, .span = node->span, .code = code};
  p->text = want_str(s, v, node->span, what);
  p->n = v.u.str->n;
  if (memchr(p->text, 0, p->n)) fail_at(s, code, node->span, "a pattern holds names, `,` and `->`");
  p->literal = ast_text_place(node);
  return true;
}

void pat_skip(Pattern *p) {
  while (p->pos < p->n && (p->text[p->pos] == ' ' || p->text[p->pos] == '\t')) p->pos++;
}

bool pat_takes(Pattern *p, const char *what) {
  size_t n = strlen(what);
  pat_skip(p);
  if (p->n - p->pos < n || memcmp(p->text + p->pos, what, n)) return false;
  p->pos += n;
  return true;
}

Value pat_reshape(Session *s, Value x, int rank, const Dim *d, Span at) {
  Type t = op_type_of(s, x);
  bool same = t.rank == rank;
  for (int i = 0; same && i < rank; i++) same = t.dim[i] == d[i];
  return same ? x : op_reshape(s, x, rank, d, at);
}

Value pat_transpose(Session *s, Value x, const int64_t *perm, Span at) {
  Type t = op_type_of(s, x);
  bool same = true;
  for (int i = 0; i < t.rank; i++) same &= perm[i] == i;
  return same ? x : op_transpose(s, x, perm, at);
}

const char *pat_dim_text(Session *s, Dim d) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  dim_print(&b, op_dims_of(s), d);
  return b.s;
}

bool pat_sizes_agree(Session *s, Dim a, Dim b, Span at, const char *text) {
  if (a == b) return true;
  DimOrder o = dim_compare(op_dims_of(s), a, b);
  if (o != DIM_MAYBE) return o == DIM_EQUAL;
  if (s->stage) {
    s->stage->g->at.span = at;
    gr_check(s->stage->g, CHECK_EQ, a, b, names_of(s->names, text));
  }
  return true;
}

size_t pat_call_args(Session *s, Call *c, RawArg **out) {
  NodeList *l = &c->node->call.args;
  RawArg *a = ARENA_ARRAY(&s->scratch, RawArg, c->n + l->count + 1);
  size_t n = 0;
  for (size_t i = 0; i < c->n; i++)
    a[n++] = (RawArg){NULL, c->v[i], c->node->call.callee->span, NULL};
  for (uint32_t i = 0; i < l->count; i++) {
    Node *x = l->items[i];
    a[n++] = (RawArg){x->arg.value, v_unit(), x->arg.value->span, x->arg.name.name};
  }
  *out = a;
  return n;
}

Value pat_call_value(Session *s, RawArg *a) {
  return a->node ? eval_expr(s, a->node) : a->value;
}
