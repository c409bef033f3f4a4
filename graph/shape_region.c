/* Shape rules of ops with regions, of effects and of host functions.
 *
 * In: operand types and region graphs. Out: result types; the inputs of a region have the types of
 * the operands they stand for, tokens included.
 */
#include "graph/op.h"
#include "graph/shape_rule.h"

/* ---- regions */
static bool match(C *c, const Type *a, const Type *b, int operand, const char *what) {
  bool same =
      a->kind == b->kind &&
      (a->kind != TK_TENSOR || (a->dtype == b->dtype && a->dev == b->dev && a->rank == b->rank));
  if (same && a->kind == TK_TENSOR) {
    int axis;
    same = sh_same_dims(c, a, b, "sizes inside and outside a region differ", &axis);
    if (!same && axis < 0) return false;
  }
  if (same) return true;
  return gerr_set(c->e, ERR_IR_FORM, operand, "`%s`: %s is %s, not %s", op_info[c->op].text, what,
                  sh_type_text(c, b), sh_type_text(c, a));
}

static bool need_regions(C *c, int lo, int hi) {
  if (c->nregions < lo || c->nregions > hi) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has %d regions", op_info[c->op].text, c->nregions);
  }
  for (int i = 0; i < c->nregions; i++) {
    if (!c->regions[i] || c->regions[i]->dims != c->dims) {
      return gerr_set(c->e, ERR_IR_FORM, -1, "region %d of `%s` has other dims", i,
                      op_info[c->op].text);
    }
  }
  return true;
}

static const Type *region_in(C *c, int r, int i) {
  return gr_type(c->regions[r], c->regions[r]->inputs[i]);
}

static const Type *region_out(C *c, int r, int i) {
  return gr_type(c->regions[r], c->regions[r]->outputs[i]);
}

static bool need_inputs(C *c, int r, int n) {
  if ((int)c->regions[r]->input_count == n) return true;
  return gerr_set(c->e, ERR_IR_FORM, -1, "region %d of `%s` takes %d values, not %d", r,
                  op_info[c->op].text, (int)c->regions[r]->input_count, n);
}

/* Matches the inputs of region r from `first` on with the operands from `from` on. */
static bool bind(C *c, int r, int first, int from) {
  for (int i = from; i < c->n; i++) {
    if (!match(c, c->in[i], region_in(c, r, first + i - from), i, "an input of a region"))
      return false;
  }
  return true;
}

static void give_outputs(C *c, int r) {
  for (int i = 0; i < c->nout; i++) {
    c->out[i] = *region_out(c, r, i);
    c->out[i].alias = 0;
  }
}

bool shape_region(C *c) {
  if (!need_regions(c, 1, c->op == OP_CUSTOM ? 2 : 1) || !need_inputs(c, 0, c->n) ||
      !bind(c, 0, 0, 0)) {
    return false;
  }
  give_outputs(c, 0);
  if (c->op != OP_CUSTOM) {
    const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
    return !a || a->kind == AK_TEXT || sh_bad_attr(c, AT_TEXT);
  }
  if (c->nregions < 2) return true;
  /* region 1: operands, results, cotangents of the float results -> gradients of `wrt` */
  const Attr *wrt = attr_find(c->attrs, c->nattrs, AT_WRT);
  const Graph *back = c->regions[1];
  if (!wrt || wrt->kind != AK_INTS) return sh_bad_attr(c, AT_WRT);
  if (wrt->count != back->output_count) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "region 1 of `custom` has %d results for %u operands",
                    (int)back->output_count, (unsigned)wrt->count);
  }
  int floats = 0;
  for (int i = 0; i < c->nout; i++) {
    floats += c->out[i].kind == TK_TENSOR && dt_float((DType)c->out[i].dtype);
  }
  int given = (int)back->input_count - c->n - c->nout;
  if (given != floats && given != c->nout) return need_inputs(c, 1, c->n + c->nout + floats);
  if (!bind(c, 1, 0, 0)) return false;
  int at = c->n;
  for (int i = 0; i < c->nout; i++) {
    if (!match(c, &c->out[i], region_in(c, 1, at++), -1, "a result in region 1")) return false;
  }
  for (int i = 0; i < c->nout; i++) {
    bool is_float = c->out[i].kind == TK_TENSOR && dt_float((DType)c->out[i].dtype);
    if (given != c->nout && !is_float) continue;
    if (!match(c, &c->out[i], region_in(c, 1, at++), -1, "a cotangent in region 1")) return false;
  }
  for (uint32_t i = 0; i < wrt->count; i++) {
    int64_t k = wrt->u.ints[i];
    if (k < 0 || k >= c->n) return sh_bad_attr(c, AT_WRT);
    if (!match(c, c->in[k], region_out(c, 1, (int)i), (int)k, "a gradient")) return false;
  }
  return true;
}

bool shape_loop(C *c) {
  int64_t carry, stashes = 0, flag;
  const Attr *many = attr_find(c->attrs, c->nattrs, AT_WHILE);
  if (c->n < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`loop` has no count");
  if (!need_regions(c, 1, 1) || !sh_int(c, AT_CARRY, 0, c->n, &carry) || !need_inputs(c, 0, c->n))
    return false;
  if (attr_find(c->attrs, c->nattrs, AT_MAPPED) && !sh_int(c, AT_MAPPED, 0, c->n - carry, &stashes))
    return false;
  if (attr_find(c->attrs, c->nattrs, AT_REVERSE) && !sh_int(c, AT_REVERSE, 0, 2, &flag))
    return false;
  if (many && !sh_int(c, AT_WHILE, 1, 2, &flag)) return false;
  const Attr *counter = attr_find(c->attrs, c->nattrs, AT_COUNTER);
  Sym symbol;
  if (counter &&
      (counter->kind != AK_DIM || !dim_valid(c->dims, counter->u.i) ||
       !dim_is_symbol(c->dims, (Dim)counter->u.i, &symbol) || !dim_is_counter(c->dims, symbol)))
    return sh_bad_attr(c, AT_COUNTER);
  if (attr_find(c->attrs, c->nattrs, AT_VALUE) && !sh_int(c, AT_VALUE, 0, INT64_MAX, &flag))
    return false;
  const AttrKey schedule[] = {AT_STATES, AT_EVERY};
  int schedules = 0;
  for (int k = 0; k < 2; k++) {
    if (!attr_find(c->attrs, c->nattrs, schedule[k])) continue;
    if (!sh_int(c, schedule[k], 1, INT64_MAX, &flag)) return false;
    schedules++;
  }
  bool again = attr_find(c->attrs, c->nattrs, AT_AGAIN) != NULL;
  if (again && !sh_int(c, AT_AGAIN, carry, INT64_MAX, &flag)) return false;
  if (schedules > 1 || again < (schedules == 1) ||
      (again && (stashes || attr_find(c->attrs, c->nattrs, AT_REVERSE))))
    return gerr_set(c->e, ERR_IR_FORM, -1,
                    "`loop` runs turns again by one of `states` and `every`, from `again` on, and "
                    "reads no stash then");
  Type count = type_of(DT_I64, DEV_CPU, 0), goes = type_of(DT_BOOL, DEV_CPU, 0);
  if (!match(c, &count, c->in[0], 0, "the count") ||
      !match(c, &count, region_in(c, 0, 0), 0, "the turn")) {
    return false;
  }
  Type kept = type_stash();
  int first = 1 + (int)carry, rest = first + (int)stashes, gives = c->nout - (many != NULL);
  for (int i = 1; i < c->n; i++) {
    bool stash = i >= first && i < rest; /* the rows have the type that the region says */
    if (stash ? !match(c, &kept, c->in[i], i, "a stash")
              : !match(c, c->in[i], region_in(c, 0, i), i, "an input of a region"))
      return false;
  }
  if (gives < carry || (int)c->regions[0]->output_count != gives)
    return gerr_set(c->e, ERR_IR_FORM, -1, "`loop` carries %lld values, its region gives %d",
                    (long long)carry, (int)c->regions[0]->output_count);
  if (many && attr_find(c->attrs, c->nattrs, AT_REVERSE))
    return gerr_set(c->e, ERR_IR_FORM, -1, "a `loop` with `while` has no last turn to begin with");
  if (many && !carry)
    return gerr_set(c->e, ERR_IR_FORM, -1, "`loop` has nothing that says `while`");
  if (many && !match(c, &goes, c->in[1], 1, "whether a `loop` goes on")) return false;
  for (int i = 0; i < gives; i++) {
    const Type *given = region_out(c, 0, i);
    if (i < carry) {
      if (!match(c, c->in[1 + i], given, 1 + i, "a carried value")) return false;
      c->out[i] = *c->in[1 + i];
      c->out[i].alias = 0;
    } else {
      if (given->kind == TK_TOKEN)
        return gerr_set(c->e, ERR_IR_FORM, -1, "`loop` cannot keep tokens");
      c->out[i + (many != NULL)] = kept;
    }
  }
  if (many) c->out[carry] = count;
  return true;
}

bool shape_stash(C *c) {
  if (c->n < 1 || c->in[0]->kind == TK_TOKEN)
    return gerr_set(c->e, ERR_IR_FORM, -1, "`stash` takes values");
  for (int i = 1; i < c->n; i++)
    if (!match(c, c->in[0], c->in[i], i, "a row of a stash")) return false;
  c->out[0] = type_stash();
  return true;
}

/* Sets *row to the type of a row, by the attributes. */
static bool row_type(C *c, Type *row) {
  const Attr *dims = attr_find(c->attrs, c->nattrs, AT_DIMS);
  int64_t dtype, device = DEV_CPU;
  Type kept = type_stash();
  if (!match(c, &kept, c->in[0], 0, "the stash")) return false;
  if (!sh_int(c, AT_DTYPE, 0, DT_COUNT, &dtype)) return false;
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE) && !sh_int(c, AT_DEVICE, 0, DEV_COUNT, &device))
    return false;
  if (!dims || dims->kind != AK_DIMS || dims->count > CKL_MAX_RANK) return sh_bad_attr(c, AT_DIMS);
  *row = type_of((DType)dtype, (Device)device, (int)dims->count);
  for (uint32_t k = 0; k < dims->count; k++) {
    if (!dim_valid(c->dims, dims->u.ints[k])) return sh_bad_attr(c, AT_DIMS);
    row->dim[k] = (Dim)dims->u.ints[k];
  }
  return true;
}

bool shape_unstash(C *c) {
  Type row;
  if (!row_type(c, &row)) return false;
  for (int i = 0; i < c->nout; i++) c->out[i] = row;
  return true;
}

bool shape_stash_rows(C *c) {
  if (c->in[0]->kind != TK_TENSOR || c->in[0]->rank < 1)
    return gerr_set(c->e, ERR_IR_FORM, -1, "`stash_rows` takes a tensor with a first axis");
  c->out[0] = type_stash();
  return true;
}

bool shape_unstash_rows(C *c) {
  Type row;
  int64_t n;
  if (!row_type(c, &row) || !sh_int(c, AT_MAPPED, 1, INT32_MAX, &n)) return false;
  if (row.rank == CKL_MAX_RANK) return sh_bad_attr(c, AT_DIMS);
  c->out[0] = type_of((DType)row.dtype, (Device)row.dev, row.rank + 1);
  c->out[0].dim[0] = dim_const(c->dims, n);
  for (int k = 0; k < row.rank; k++) c->out[0].dim[k + 1] = row.dim[k];
  return true;
}

bool shape_branch(C *c) {
  Type pred = type_of(DT_BOOL, DEV_CPU, 0);
  if (c->n < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`branch` has no condition");
  if (!need_regions(c, 2, 2) || !match(c, &pred, c->in[0], 0, "the condition")) return false;
  for (int r = 0; r < 2; r++) {
    if (!need_inputs(c, r, c->n - 1) || !bind(c, r, 0, 1)) return false;
    if ((int)c->regions[r]->output_count != c->nout) {
      return gerr_set(c->e, ERR_IR_FORM, -1,
                      "the regions of `branch` give different numbers of values");
    }
  }
  give_outputs(c, 0);
  for (int i = 0; i < c->nout; i++) {
    if (!match(c, &c->out[i], region_out(c, 1, i), -1, "a result of the other region"))
      return false;
  }
  return true;
}

bool shape_map(C *c) {
  int64_t mapped;
  if (!need_regions(c, 1, 1) || !sh_int(c, AT_MAPPED, 1, (int64_t)c->n + 1, &mapped) ||
      !need_inputs(c, 0, c->n)) {
    return false;
  }
  for (int i = 0; i < mapped; i++) {
    const Type *x = c->in[i];
    if (x->kind != TK_TENSOR || x->rank < 1) {
      return gerr_set(c->e, ERR_SHAPE_RANK, i, "`map` takes apart tensors with an axis, not %s",
                      sh_operand(c, i));
    }
    Tri r = sh_equal(c, c->in[0]->dim[0], x->dim[0], "mapped tensors have different leading axes");
    if (r == NO) {
      return gerr_set(c->e, ERR_SHAPE_DIFFER, i,
                      "mapped tensors have different leading axes: %s and %s", sh_operand(c, 0),
                      sh_operand(c, i));
    }
    if (r != YES) return false;
    Type row = *x;
    row.rank--;
    memmove(row.dim, x->dim + 1, sizeof row.dim[0] * row.rank);
    if (!match(c, &row, region_in(c, 0, i), i, "an input of a region")) return false;
  }
  if (!bind(c, 0, (int)mapped, (int)mapped)) return false;
  give_outputs(c, 0);
  for (int i = 0; i < c->nout; i++) {
    Type *t = &c->out[i];
    if (t->kind != TK_TENSOR) return gerr_set(c->e, ERR_IR_FORM, -1, "`map` cannot stack tokens");
    if (t->rank == CKL_MAX_RANK) {
      return gerr_set(c->e, ERR_SHAPE_AXES, -1, "the result of `map` has more than %d axes",
                      CKL_MAX_RANK);
    }
    memmove(t->dim + 1, t->dim, sizeof t->dim[0] * t->rank);
    t->dim[0] = c->in[0]->dim[0];
    t->rank++;
  }
  return true;
}

/* ---- effects and host functions */
static int64_t carried(const C *c) {
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_CARRY);
  return !a ? 1 : a->kind == AK_INT ? a->u.i : -1;
}

bool shape_hook(C *c) {
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
  if (!a || a->kind != AK_TEXT) return sh_bad_attr(c, AT_TEXT);
  if (carried(c) < 1 || c->n < carried(c))
    return gerr_set(c->e, ERR_IR_FORM, -1, "`hook` takes the values that it is about");
  c->out[0] = (Type){.kind = TK_TOKEN};
  return sh_tensors(c, 0);
}

bool shape_foreign(C *c) {
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
  if (!sh_token(c)) return false;
  if (!a || a->kind != AK_TEXT) return sh_bad_attr(c, AT_TEXT);
  c->out[0] = (Type){.kind = TK_TOKEN};
  if (c->op == OP_DEFER) {
    int64_t carry = carried(c);
    if (c->n < 1 + carry)
      return gerr_set(c->e, ERR_IR_FORM, -1, "`defer` takes a token and the values that pass");
    if (!sh_tensors(c, 1)) return false;
    for (int64_t i = 1; i <= carry; i++) {
      c->out[i] = *c->in[i];
      c->out[i].alias = 0;
    }
    return true;
  }
  const Attr *dt = attr_find(c->attrs, c->nattrs, AT_DTYPE);
  const Attr *rank = attr_find(c->attrs, c->nattrs, AT_INDEX);
  const Attr *dims = attr_find(c->attrs, c->nattrs, AT_DIMS);
  if (!rank || rank->kind != AK_INTS || rank->count != dt->count) return sh_bad_attr(c, AT_INDEX);
  if (!dims || dims->kind != AK_DIMS) return sh_bad_attr(c, AT_DIMS);
  uint32_t at = 0;
  for (uint32_t i = 0; i < dt->count; i++) {
    int64_t r = rank->u.ints[i];
    if (dt->u.ints[i] < 0 || dt->u.ints[i] >= DT_COUNT) return sh_bad_attr(c, AT_DTYPE);
    if (r < 0 || r > CKL_MAX_RANK || (int64_t)(dims->count - at) < r)
      return sh_bad_attr(c, AT_INDEX);
    Type *t = &c->out[1 + i];
    *t = type_of((DType)dt->u.ints[i], DEV_CPU, (int)r);
    for (int k = 0; k < r; k++, at++) {
      if (!dim_valid(c->dims, dims->u.ints[at])) return sh_bad_attr(c, AT_DIMS);
      t->dim[k] = (Dim)dims->u.ints[at];
    }
  }
  return at == dims->count || sh_bad_attr(c, AT_DIMS);
}

/* The verifier tests that the target is an input, since a shape rule sees no nodes. */
bool shape_write(C *c) {
  int axis;
  if (!sh_token(c) || !sh_tensors(c, 1)) return false;
  const Type *to = c->in[1], *x = c->in[2];
  c->out[0] = (Type){.kind = TK_TOKEN};
  if (to->dtype == x->dtype && to->dev == x->dev && to->rank == x->rank) {
    if (sh_same_dims(c, to, x, "a value written back has another shape", &axis)) return true;
    if (axis < 0) return false;
  }
  return gerr_set(c->e, ERR_IR_FORM, 2, "`write` to %s, of %s", sh_type_text(c, to),
                  sh_type_text(c, x));
}

bool shape_token(C *c) {
  c->out[0] = (Type){.kind = TK_TOKEN};
  if (c->op == OP_TOKEN) return true;
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_TEXT);
  if (!sh_token(c)) return false;
  if (!a || a->kind != AK_TEXT) return sh_bad_attr(c, AT_TEXT);
  if (c->op == OP_ASSERT) {
    if (c->n < 2 || c->in[1]->kind != TK_TENSOR || c->in[1]->dtype != DT_BOOL) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`assert` takes a bool%s%s",
                      c->n < 2 ? "" : ", not ", c->n < 2 ? "" : sh_operand(c, 1));
    }
  }
  return true;
}
