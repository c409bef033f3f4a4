/* Values as program text that reads back.
 *
 * In: a value. Out: an expression of the language with the same bits, dtypes and structure at
 * every place; nothing is elided. A tensor is a cast of brackets, a list of other values than
 * numbers is written with `list`, since brackets would stack its tensors.
 */
#include "lang/value/repr.h"

#include <math.h>

#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "runtime/half.h"

void repr_text(Buf *out, const StrObj *t) {
  print_quoted(out, t, true);
}

/* x rounded to the dtype. */
static double narrow(DType dt, double x) {
  switch (dt) {
  case DT_F16: return hf_f32_from_f16(hf_f16_from_f64(x));
  case DT_BF16: return hf_f32_from_bf16(hf_bf16_from_f64(x));
  case DT_F32: return (float)x;
  default: return x;
  }
}

/* The shortest text that reads back when a literal, which is an f64, is rounded to the dtype: of
 * narrow floats mostly their own shortest one, else that of the f64. */
static void element(Buf *out, const Tensor *t, int64_t i) {
  if (t->dtype == DT_BOOL) {
    buf_puts(out, tn_get_i64(t, i) ? "true" : "false");
  } else if (!dt_float(t->dtype)) {
    buf_int(out, tn_get_i64(t, i));
  } else {
    char b[64];
    double x = tn_get_f64(t, i), y;
    int n = t->dtype == DT_F16    ? str_f16(b, (float)x)
            : t->dtype == DT_BF16 ? str_bf16(b, (float)x)
            : t->dtype == DT_F32  ? str_f32(b, (float)x)
                                  : str_f64(b, x);
    if (x - x == 0 && str_to_f64(b, (size_t)n, &y) && narrow(t->dtype, y) != x) n = str_f64(b, x);
    buf_put(out, b, (size_t)n);
  }
}

static int64_t elements(Buf *out, const Tensor *t, int axis, int64_t at) {
  if (axis == t->rank) {
    element(out, t, at);
    return at + 1;
  }
  buf_putc(out, '[');
  for (int64_t k = 0; k < t->dim[axis]; k++) {
    if (k) buf_puts(out, ", ");
    at = elements(out, t, axis + 1, at);
  }
  buf_putc(out, ']');
  return at;
}

static void tensor(Buf *out, const Tensor *t) {
  const char *dtype = dtype_info[t->dtype].name;
  if (tn_count(t) == 0) { /* brackets have no place for a size behind a 0 */
    buf_puts(out, "zeros([");
    for (int k = 0; k < t->rank; k++)
      buf_printf(out, "%s%lld", k ? ", " : "", (long long)t->dim[k]);
    buf_printf(out, "], dtype = %s)", dtype);
    return;
  }
  buf_printf(out, "%s(", dtype);
  elements(out, t, 0, 0);
  buf_putc(out, ')');
}

bool repr_value(Session *s, Buf *out, Value v, Span at) {
  stack_check();
  bool known = true;
  char b[64];
  switch ((ValueTag)v.tag) {
  case V_UNIT: buf_puts(out, "()"); break;
  case V_NONE: buf_puts(out, "none"); break;
  case V_BOOL: buf_puts(out, v.u.i ? "true" : "false"); break;
  case V_INT: buf_int(out, v.u.i); break;
  case V_FLOAT: buf_put(out, b, (size_t)str_f64(b, v.u.f)); break;
  case V_DTYPE: buf_puts(out, dtype_info[v.u.i].name); break;
  case V_STR: repr_text(out, v.u.str); break;
  case V_UNKNOWN:
  case V_NODE: return false;
  case V_DIM:
    if (s->abstract) return false;
    buf_int(out, want_int(s, v, at, "a text in code"));
    break;
  case V_TENSOR:
  case V_PARAM:
    if (s->stage) return false;
    tensor(out, v_tensor_of(v));
    break;
  case V_RANGE:
    known = repr_value(s, out, v.u.range->lo, at);
    buf_puts(out, "..");
    return repr_value(s, out, v.u.range->hi, at) && known;
  case V_TUPLE:
  case V_LIST: {
    const List *l = v.u.list;
    bool tuple = v.tag == V_TUPLE, brackets = !tuple;
    for (size_t i = 0; i < l->count && !l->weak; i++) brackets &= l->items[i].tag == V_STR;
    buf_puts(out, tuple ? "(" : brackets ? "[" : "list(");
    for (size_t i = 0; i < l->count; i++) {
      if (i) buf_puts(out, ", ");
      known &= repr_value(s, out, l->items[i], at);
    }
    buf_puts(out, brackets ? "]" : tuple && l->count == 1 ? ",)" : ")");
    break;
  }
  case V_DICT: {
    size_t n;
    const Value *items = value_items(v, &n);
    buf_puts(out, n ? "[" : "[:]");
    for (size_t i = 0; i < n; i++) {
      if (i) buf_puts(out, ", ");
      known &= repr_value(s, out, v.u.dict->keys[i], at);
      buf_puts(out, ": ");
      known &= repr_value(s, out, items[i], at);
    }
    if (n) buf_putc(out, ']');
    break;
  }
  case V_RECORD:
    buf_putc(out, '(');
    for (size_t i = 0; i < v.u.rec->count; i++) {
      buf_printf(out, "%s%s = ", i ? ", " : "", v.u.rec->names[i]);
      known &= repr_value(s, out, v.u.rec->items[i], at);
    }
    buf_putc(out, ')');
    break;
  default:
    fail_help(s, ERR_VALUE, at, "`str(x)` is the text that `print` shows",
              "no text reads back as %s", value_type_text(s, v));
  }
  return known;
}
