/* rearrange: axes split, merged, permuted and repeated by a pattern (rule 32).
 *
 * In: a pattern `a (b c) -> c a b`, a tensor, sizes of names. Out: reshapes and a transpose.
 */
#include <string.h>

#include "lang/builtin/builtin_fn.h"
#include "lang/compile/stage.h"
#include "lang/eval/eval.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/pattern.h"
#include "lang/eval/type.h"
#include "lang/value/fail.h"

enum { ATOM_NAME, ATOM_ONE, ATOM_REST };

typedef struct Atom {
  uint8_t kind;
  int group;     /* the number of its axis */
  size_t lo, hi; /* its place in the text */
  Dim size;
  bool known;
  int from; /* right side: the number of its atom on the left; -1: a new axis */
} Atom;

enum { ATOMS_MOST = 4 * CKL_MAX_RANK };

typedef struct Side {
  Atom atom[ATOMS_MOST];
  int count, groups;
  size_t group_lo[ATOMS_MOST], group_hi[ATOMS_MOST];
} Side;

typedef struct Rearrange {
  Session *s;
  Pattern p;
  Span at;
  Side in, out;
} Rearrange;

static void add_atom(Rearrange *r, Side *d, int kind, size_t lo, size_t hi) {
  if (d->count == ATOMS_MOST)
    fail_at(r->s, ERR_REARRANGE, pat_place(&r->p, lo, hi), "the pattern has too many axes");
  d->atom[d->count++] =
      (Atom){.kind = (uint8_t)kind, .group = d->groups, .lo = lo, .hi = hi, .from = -1};
}

static void read_side(Rearrange *r, Side *d, bool left) {
  Pattern *p = &r->p;
  bool open = false, rest = false;
  size_t opened = 0;
  for (;;) {
    pat_skip(p);
    size_t lo = p->pos;
    if (lo == p->n || p->text[lo] == '-') break;
    if (d->groups >= ATOMS_MOST)
      fail_at(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 1), "the pattern has too many axes");
    if (p->text[lo] == '(') {
      if (open) fail_at(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 1), "parentheses do not nest");
      open = true;
      opened = lo;
      p->pos++;
      continue;
    }
    if (p->text[lo] == ')') {
      if (!open)
        fail_at(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 1), "this parenthesis was not opened");
      open = false;
      p->pos++;
      d->group_lo[d->groups] = opened;
      d->group_hi[d->groups++] = p->pos;
      continue;
    }
    if (pat_takes(p, "...")) {
      if (rest)
        fail_at(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 3), "`...` stands once on each side");
      if (open && left)
        fail_at(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 3),
                "`...` cannot be split out of one axis");
      rest = true;
      add_atom(r, d, ATOM_REST, lo, p->pos);
    } else if (pat_is_letter(p->text[lo])) {
      while (p->pos < p->n && pat_is_name(p->text[p->pos])) p->pos++;
      add_atom(r, d, ATOM_NAME, lo, p->pos);
    } else if (p->text[lo] == '1' && (lo + 1 == p->n || !pat_is_name(p->text[lo + 1]))) {
      p->pos++;
      add_atom(r, d, ATOM_ONE, lo, p->pos);
    } else {
      fail_help(r->s, ERR_REARRANGE, pat_place(p, lo, lo + 1),
                "names, `1`, `...` and parentheses, separated by blanks: \"b (h k) -> b h k\"",
                "this does not belong in a pattern");
    }
    if (!open) {
      d->group_lo[d->groups] = lo;
      d->group_hi[d->groups++] = p->pos;
    }
  }
  if (open)
    fail_at(r->s, ERR_REARRANGE, pat_place(p, opened, opened + 1),
            "this parenthesis is not closed");
}

static const char *atom_text(const Rearrange *r, const Atom *a) {
  return fail_text(r->s, "%.*s", (int)(a->hi - a->lo), r->p.text + a->lo);
}

static bool same_name(const Rearrange *r, const Atom *a, const Atom *b) {
  return a->kind == ATOM_NAME && b->kind == ATOM_NAME && a->hi - a->lo == b->hi - b->lo &&
         !memcmp(r->p.text + a->lo, r->p.text + b->lo, a->hi - a->lo);
}

static void check_twice(Rearrange *r, const Side *d) {
  for (int i = 0; i < d->count; i++)
    for (int k = 0; k < i; k++)
      if (same_name(r, &d->atom[i], &d->atom[k]))
        fail_at(r->s, ERR_REARRANGE, pat_place(&r->p, d->atom[i].lo, d->atom[i].hi),
                "`%s` stands twice on this side", atom_text(r, &d->atom[i]));
}

/* Sets `from` of the atoms on the right side. */
static void match_sides(Rearrange *r) {
  Side *in = &r->in, *out = &r->out;
  bool used[ATOMS_MOST] = {false};
  check_twice(r, in);
  check_twice(r, out);
  for (int i = 0; i < out->count; i++) {
    Atom *a = &out->atom[i];
    for (int k = 0; k < in->count; k++)
      if (same_name(r, a, &in->atom[k]) || (a->kind == ATOM_REST && in->atom[k].kind == ATOM_REST))
        a->from = k;
    if (a->from >= 0) used[a->from] = true;
    if (a->kind == ATOM_REST && a->from < 0)
      fail_at(r->s, ERR_REARRANGE, pat_place(&r->p, a->lo, a->hi),
              "`...` stands on the right side only");
    if (a->kind == ATOM_NAME && a->from < 0 && !a->known)
      fail_help(r->s, ERR_REARRANGE, pat_place(&r->p, a->lo, a->hi),
                fail_text(r->s, "a new axis needs its size: `%s = 2`", atom_text(r, a)),
                "the left side has no axis `%s`", atom_text(r, a));
  }
  for (int k = 0; k < in->count; k++)
    if (!used[k] && in->atom[k].kind != ATOM_ONE)
      fail_help(r->s, ERR_REARRANGE, pat_place(&r->p, in->atom[k].lo, in->atom[k].hi),
                "`sum`, `mean` and `max` drop an axis", "the right side lost `%s`",
                atom_text(r, &in->atom[k]));
}

static void size_word(Rearrange *r, RawArg *a, Value v) {
  Session *s = r->s;
  if (v.tag == V_NODE)
    fail_at(s, ERR_NOT_CONST, a->span, "`%s` must be a constant or a size", a->name);
  if (v.tag != V_INT && v.tag != V_DIM)
    fail_at(s, ERR_WANT_INT, a->span, "`%s` must be an int, not %s", a->name,
            value_type_text(s, v));
  if (v.tag == V_INT && v.u.i < 0)
    fail_at(s, ERR_SIZE_NEGATIVE, a->span, "a size cannot be negative: %lld", (long long)v.u.i);
  Dim d = type_dim_of(s, v, a->span, "a size");
  bool found = false;
  for (int side = 0; side < 2; side++) {
    Side *x = side ? &r->out : &r->in;
    for (int i = 0; i < x->count; i++)
      if (x->atom[i].kind == ATOM_NAME && !strcmp(atom_text(r, &x->atom[i]), a->name)) {
        x->atom[i].known = found = true;
        x->atom[i].size = d;
      }
  }
  if (!found) fail_at(s, ERR_REARRANGE, a->span, "the pattern has no axis `%s`", a->name);
}

/* Finds the sizes of the parts of one axis of x. */
static void split_axis(Rearrange *r, int group, Dim size, int axis) {
  Session *s = r->s;
  DimTab *dt = op_dims_of(s);
  Dim known = dim_const(dt, 1);
  Atom *hole = NULL;
  Span at = pat_place(&r->p, r->in.group_lo[group], r->in.group_hi[group]);
  bool grouped = r->p.text[r->in.group_lo[group]] == '(';
  for (int i = 0; i < r->in.count; i++) {
    Atom *a = &r->in.atom[i];
    if (a->group != group) continue;
    if (a->kind == ATOM_ONE) {
      a->known = true;
      a->size = dim_const(dt, 1);
    } else if (a->known) {
      known = dim_mul(dt, known, a->size);
    } else if (hole) {
      fail_help(s, ERR_REARRANGE, at,
                fail_text(s, "give one of the sizes: `%s = 2`", atom_text(r, hole)),
                "how this axis is split is not said: `%s` and `%s` are open", atom_text(r, hole),
                atom_text(r, a));
    } else {
      hole = a;
    }
  }
  if (known == DIM_BAD) fail_at(s, ERR_OVERFLOW, at, "a size does not fit 64 bits");
  if (!hole) {
    if (!pat_sizes_agree(s, known, size, at, "the sizes of a rearranged axis do not fit"))
      fail_at(s, ERR_REARRANGE, at, "axis %d is %s, the pattern says %s", axis,
              pat_dim_text(s, size), pat_dim_text(s, known));
    return;
  }
  hole->known = true;
  if (!grouped || known == dim_const(dt, 1)) {
    hole->size = size;
    return;
  }
  int64_t n, k;
  bool cn = dim_is_const(dt, size, &n), ck = dim_is_const(dt, known, &k);
  if (ck && k == 0)
    fail_at(s, ERR_REARRANGE, at, "the size of `%s` cannot be told: the others multiply to 0",
            atom_text(r, hole));
  if (cn && ck && n % k)
    fail_at(s, ERR_DIVIDES, at, "axis %d has %lld elements, which %lld does not divide", axis,
            (long long)n, (long long)k);
  if (!cn || !ck) {
    int64_t rest;
    if (s->stage && !(dim_is_const(dt, dim_mod(dt, size, known), &rest) && rest == 0)) {
      s->stage->g->at.span = at;
      gr_check(s->stage->g, CHECK_DIVIDES, size, known,
               names_of(s->names, fail_text(s, "the axis `%.*s` of a rearrange cannot be split",
                                            (int)(r->in.group_hi[group] - r->in.group_lo[group]),
                                            r->p.text + r->in.group_lo[group])));
    }
    dim_assume_divides(dt, size, known);
  }
  hole->size = dim_floordiv(dt, size, known);
  if (hole->size == DIM_BAD) fail_at(s, ERR_OVERFLOW, at, "a size does not fit 64 bits");
}

static void too_many(const Rearrange *r, int n) {
  if (n >= CKL_MAX_RANK)
    fail_at(r->s, ERR_RANK_MAX, r->at, "a step of this rearrange has more than %d axes",
            CKL_MAX_RANK);
}

static Value rearrange(Rearrange *r, Value x) {
  Session *s = r->s;
  Type t = op_type_of(s, x);
  Side *in = &r->in, *out = &r->out;
  int rest = -1;
  for (int i = 0; i < in->count; i++)
    if (in->atom[i].kind == ATOM_REST) rest = i;
  int named = in->groups - (rest >= 0), extra = t.rank - named;
  if (rest >= 0 ? extra < 0 : extra != 0)
    fail_at(s, ERR_REARRANGE,
            pat_place(&r->p, in->group_lo[0], in->groups ? in->group_hi[in->groups - 1] : 1),
            "the pattern names %d ax%s, the tensor is %s", named, named == 1 ? "is" : "es",
            value_type_text(s, x));
  /* the axes after splitting: those of atom i begin at first[i]; `...` has `extra` axes */
  Dim d[CKL_MAX_RANK];
  int first[ATOMS_MOST], n = 0;
  for (int g = 0, axis = 0; g < in->groups; g++) {
    bool is_rest = rest >= 0 && in->atom[rest].group == g;
    if (is_rest) {
      first[rest] = n;
      for (int k = 0; k < extra; k++) {
        too_many(r, n);
        d[n++] = t.dim[axis++];
      }
      continue;
    }
    split_axis(r, g, t.dim[axis], axis);
    axis++;
    for (int i = 0; i < in->count; i++)
      if (in->atom[i].group == g && in->atom[i].kind == ATOM_NAME) {
        too_many(r, n);
        first[i] = n;
        d[n++] = in->atom[i].size;
      }
  }
  x = pat_reshape(s, x, n, d, r->at);
  /* transpose to the order of the right side; new axes are broadcast */
  int64_t perm[CKL_MAX_RANK];
  Dim thin[CKL_MAX_RANK], wide[CKL_MAX_RANK], last[CKL_MAX_RANK], one = dim_const(op_dims_of(s), 1);
  int np = 0, nw = 0, nl = 0;
  for (int g = 0; g < out->groups; g++) {
    int before = nw;
    bool is_rest = false;
    for (int i = 0; i < out->count; i++) {
      Atom *a = &out->atom[i];
      if (a->group != g || a->kind == ATOM_ONE) continue;
      int many = a->kind == ATOM_REST ? extra : 1;
      bool alone = r->p.text[out->group_lo[g]] != '(';
      if (a->kind == ATOM_REST && alone) is_rest = true;
      for (int k = 0; k < many; k++) {
        too_many(r, nw);
        if (a->from >= 0) {
          perm[np++] = first[a->from] + k;
          thin[nw] = wide[nw] = d[first[a->from] + k];
          nw++;
        } else {
          thin[nw] = one;
          wide[nw++] = a->size;
        }
      }
    }
    if (is_rest) {
      for (int k = before; k < nw; k++) {
        too_many(r, nl);
        last[nl++] = wide[k];
      }
    } else {
      too_many(r, nl);
      last[nl] = dim_product(op_dims_of(s), nw - before, wide + before);
      if (last[nl++] == DIM_BAD) fail_at(s, ERR_OVERFLOW, r->at, "a size does not fit 64 bits");
    }
  }
  x = pat_transpose(s, x, perm, r->at);
  if (nw > np) x = op_broadcast(s, pat_reshape(s, x, nw, thin, r->at), nw, wide, r->at);
  return pat_reshape(s, x, nl, last, r->at);
}

BUILTIN_FN(bi_rearrange) {
  RawArg *a;
  size_t n = pat_call_args(s, c, &a), positional = 0;
  while (positional < n && !a[positional].name) positional++;
  if (positional != 2 || !a[0].node)
    fail_help(s, ERR_ARG_COUNT, c->at, "rearrange(\"b (h k) -> b h k\", x, h = 4)",
              "`rearrange` takes a pattern and a tensor; sizes are given by name");
  Rearrange *r = ARENA_NEW(&s->scratch, Rearrange);
  r->s = s;
  r->at = c->at;
  if (!pat_arg(s, &r->p, a[0].node, ERR_REARRANGE, "the pattern of `rearrange`"))
    return (Value){.tag = V_UNKNOWN};
  read_side(r, &r->in, true);
  if (!pat_takes(&r->p, "->"))
    fail_help(s, ERR_REARRANGE,
              r->p.pos < r->p.n ? pat_place(&r->p, r->p.pos, r->p.pos + 1) : r->p.span,
              "\"a b -> b a\" swaps two axes", "the pattern has no second side: `->` is missing");
  read_side(r, &r->out, false);
  pat_skip(&r->p);
  if (r->p.pos < r->p.n)
    fail_at(s, ERR_REARRANGE, pat_place(&r->p, r->p.pos, r->p.n),
            "the pattern ends after its second side");
  Value x = pat_call_value(s, &a[1]);
  bool unknown = x.tag == V_UNKNOWN;
  Operands read;
  operands_open(s, &read, &x);
  read.count = 1;
  for (size_t i = 2; i < n; i++) {
    if (!a[i].name)
      fail_at(s, ERR_ARG_ORDER, a[i].span, "an argument by position stands after one by name");
    for (size_t k = 2; k < i; k++)
      if (a[k].name == a[i].name)
        fail_at(s, ERR_TWICE, a[i].span, "the size `%s` is given twice", a[i].name);
    Value v = pat_call_value(s, &a[i]);
    if (v.tag == V_UNKNOWN)
      unknown = true;
    else
      size_word(r, &a[i], v);
  }
  operands_close(s, &read);
  if (unknown || s->flow != FLOW_NEXT) return (Value){.tag = V_UNKNOWN};
  match_sides(r);
  return rearrange(r, op_as_tensor(s, x, DT_COUNT, a[1].span));
}
