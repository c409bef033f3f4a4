/* The canonical text of a kernel: printing and reading.
 *
 *   loop 1 args 2
 *   b0 in f32
 *   b1 out f32
 *   b2 local f32 16 * a1
 *   %0 = arg i64 0
 *   %1 = par i64 %0
 *     %2 = load f32 b0 %1
 *     %3 = exp f32 %2
 *     store f32 b1 %1 %3
 *   end
 *
 * A line is an instruction: its number if it has a value, its name, its dtype, the parts of its
 * kind (immediate, buffers, reduction, tile), its operands. Instructions are numbered by line.
 * Floats are the shortest text that reads back as the same f64, so a kernel that was read prints
 * as the same bytes. The first line of a checked kernel ends in `checked`.
 *
 * The reader accepts any bytes. It checks as much as it needs to build the array; lp_verify checks
 * the rest.
 * */
#include "jit/loop/loop_impl.h"

#include <string.h>

#include "runtime/elementwise.h"
#include "runtime/half.h"

/* ---- printing */

/* Most of a text is numbers, so printf would take most of the time. */
static void put_number(Buf *out, const char *before, int64_t n) {
  buf_puts(out, before);
  buf_int(out, n);
}

static void put_word(Buf *out, const char *word) {
  buf_putc(out, ' ');
  buf_puts(out, word);
}

static void put_buf(Buf *out, unsigned b) {
  if (b == LP_NO_BUF)
    buf_puts(out, " -");
  else
    put_number(out, " b", b);
}

static void put_const(Buf *out, const LIns *in) {
  char text[48];
  if (dt_float((DType)in->dtype)) {
    text[str_f64(text, hf_float64((uint64_t)in->imm))] = 0;
    put_word(out, text);
  } else {
    put_number(out, " ", in->imm);
  }
}

static const char *name_of(const LIns *in) {
  if (in->op == LP_UN) return elem_un[in->imm].name;
  if (in->op == LP_BIN) return elem_bin[in->imm].name;
  return lp_info[in->op].name;
}

/* Whether the dtype of this op is always the same and left out. */
static bool untyped(LOp op) {
  return op == LP_IF || op == LP_END || op == LP_CHECK;
}

void lp_print(Buf *out, const Kernel *k) {
  buf_printf(out, "loop 1 args %u%s\n", (unsigned)k->arg_count, k->checked ? " checked" : "");
  for (size_t i = 0; i < k->buf_count; i++) {
    const LBuf *b = &k->bufs[i];
    buf_printf(out, "b%u %s %s", (unsigned)i, lp_buf_name[b->kind], dtype_info[b->dtype].name);
    if (b->kind == LB_LOCAL) buf_printf(out, " %lld", (long long)b->each);
    if (b->kind == LB_LOCAL && b->arg >= 0) buf_printf(out, " * a%d", (int)b->arg);
    buf_putc(out, '\n');
  }
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    for (int i = 0; i < in->depth; i++) buf_puts(out, "  ");
    if (lp_info[in->op].value) {
      put_number(out, "%", v);
      buf_puts(out, " = ");
    }
    buf_puts(out, name_of(in));
    if (!untyped((LOp)in->op)) put_word(out, dtype_info[in->dtype].name);
    switch (lp_info[in->op].form) {
    case LF_IMM:
      if (in->op == LP_CONST)
        put_const(out, in);
      else
        put_number(out, " ", in->imm);
      break;
    case LF_BUF: put_buf(out, in->buf); break;
    case LF_RED: put_word(out, lp_red_name[in->imm]); break;
    case LF_TILE:
      buf_printf(out, " %dx%d", in->mr, in->nr);
      put_buf(out, in->buf);
      put_buf(out, in->buf_b);
      put_buf(out, in->buf_start);
      break;
    default: break;
    }
    for (int i = 0; i < in->operand_count; i++) put_number(out, " %", lp_operand(k, v, i));
    buf_putc(out, '\n');
  }
}

/* ---- reading */

typedef struct Reader {
  const char *p, *end; /* the rest of the text */
  int line;
  Kernel *k;
  Err *e;
} Reader;

typedef struct Word {
  const char *s;
  size_t n;
} Word;

static bool fail(const Reader *r, const char *what) {
  return err_set(r->e, "line %d: %s", r->line, what);
}

static bool at_line_end(const Reader *r) {
  return r->p == r->end || *r->p == '\n';
}

/* The next word of the line, empty at its end. Blanks before it are skipped. */
static Word word(Reader *r) {
  while (r->p < r->end && *r->p == ' ') r->p++;
  Word w = {r->p, 0};
  while (!at_line_end(r) && *r->p != ' ') r->p++;
  w.n = (size_t)(r->p - w.s);
  return w;
}

static bool is(Word w, const char *s) {
  return strlen(s) == w.n && memcmp(w.s, s, w.n) == 0;
}

/* The number of w in a list of names, or -1. */
static int find(Word w, const char *const *name, int n) {
  for (int i = 0; i < n; i++)
    if (is(w, name[i])) return i;
  return -1;
}

static bool expect(Reader *r, const char *s) {
  return is(word(r), s) ? true : err_set(r->e, "line %d: %s is missing", r->line, s);
}

static bool next_line(Reader *r) {
  if (word(r).n) return fail(r, "more than was expected");
  if (r->p == r->end) return fail(r, "the last line does not end");
  r->p++;
  r->line++;
  return true;
}

/* Reads `mark` (a character, or 0 for none) and a number in 0 .. most. */
static bool number(const Reader *r, Word w, char mark, int64_t most, int64_t *out) {
  size_t skip = mark ? 1 : 0;
  if (w.n <= skip || (mark && w.s[0] != mark)) return fail(r, "not a number of its kind");
  if (!str_to_i64(w.s + skip, w.n - skip, out) || *out < 0 || *out > most) {
    return fail(r, "number out of range");
  }
  return true;
}

static bool read_dtype(Reader *r, DType *out) {
  Word w = word(r);
  for (int i = 0; i < DT_COUNT; i++)
    if (is(w, dtype_info[i].name)) return *out = (DType)i, true;
  return fail(r, "unknown dtype");
}

static bool read_buf(Reader *r, uint16_t *out) {
  Word w = word(r);
  int64_t b = LP_NO_BUF;
  if (!is(w, "-") && !number(r, w, 'b', LP_MAX_BUFS, &b)) return false;
  *out = (uint16_t)b;
  return true;
}

/* Reads a line that declares buffer number k->buf_count. */
static bool read_buf_line(Reader *r, Word first) {
  LBuf b = {.arg = -1};
  DType dt;
  int64_t n;
  if (!number(r, first, 'b', LP_MAX_BUFS, &n)) return false;
  if (n != (int64_t)r->k->buf_count) return fail(r, "buffers are not in order");
  int kind = find(word(r), lp_buf_name, 4);
  if (kind < 0) return fail(r, "unknown kind of buffer");
  if (!read_dtype(r, &dt)) return false;
  b.kind = (uint8_t)kind;
  b.dtype = (uint8_t)dt;
  if (kind == LB_LOCAL) {
    if (!number(r, word(r), 0, INT64_MAX, &b.each)) return false;
    Word w = word(r);
    if (is(w, "*")) {
      if (!number(r, word(r), 'a', LP_MAX_ARGS, &n)) return false;
      b.arg = (int32_t)n;
    } else if (w.n) {
      return fail(r, "more than was expected");
    }
  }
  VEC_PUSH(r->k->arena, r->k->bufs, r->k->buf_count, r->k->buf_cap, b);
  return next_line(r);
}

static bool read_op(const Reader *r, Word w, LIns *in) {
  for (int f = 0; f < RU_COUNT; f++)
    if (is(w, elem_un[f].name)) return *in = lp_ins(LP_UN, DT_I64, f), true;
  for (int f = 0; f < RB_COUNT; f++)
    if (is(w, elem_bin[f].name)) return *in = lp_ins(LP_BIN, DT_I64, f), true;
  for (int op = 0; op < LP_COUNT; op++)
    if (w.n && is(w, lp_info[op].name)) return *in = lp_ins((LOp)op, DT_I64, 0), true;
  return fail(r, "unknown instruction");
}

static bool read_const(Reader *r, LIns *in) {
  Word w = word(r);
  double d;
  if (!dt_float((DType)in->dtype)) {
    return str_to_i64(w.s, w.n, &in->imm) ? true : fail(r, "not an int");
  }
  if (!str_to_f64(w.s, w.n, &d)) return fail(r, "not a number");
  in->imm = lp_scalar_bits(DT_F64, (LScalar){.d = d});
  return true;
}

/* Reads the shape of a tile, as "14x32". */
static bool read_shape(Reader *r, LIns *in) {
  Word w = word(r), m, n;
  const char *x = w.n ? memchr(w.s, 'x', w.n) : NULL;
  int64_t mr, nr;
  if (!x) return fail(r, "not a shape");
  m = (Word){w.s, (size_t)(x - w.s)};
  n = (Word){x + 1, w.n - m.n - 1};
  if (!number(r, m, 0, 255, &mr) || !number(r, n, 0, 255, &nr)) return false;
  in->mr = (uint8_t)mr;
  in->nr = (uint8_t)nr;
  return true;
}

static bool read_form(Reader *r, LIns *in) {
  switch (lp_info[in->op].form) {
  case LF_IMM:
    return in->op == LP_CONST ? read_const(r, in) : number(r, word(r), 0, LP_MAX_ARGS, &in->imm);
  case LF_BUF: return read_buf(r, &in->buf);
  case LF_RED:
    in->imm = find(word(r), lp_red_name, RED_COUNT);
    return in->imm >= 0 ? true : fail(r, "unknown reduction");
  case LF_TILE:
    return read_shape(r, in) && read_buf(r, &in->buf) && read_buf(r, &in->buf_b) &&
           read_buf(r, &in->buf_start);
  default: return true;
  }
}

static bool read_ins(Reader *r, Word first) {
  LIns in;
  LVal operand[LP_MAX_OPERANDS];
  int64_t number_of = -1, o;
  DType dt = DT_I64;
  int n = 0;
  if (r->k->count >= LP_MAX_INS) return fail(r, "too many instructions");
  if (first.n && first.s[0] == '%') {
    if (!number(r, first, '%', LP_MAX_INS, &number_of) || !expect(r, "=")) return false;
    if (number_of != (int64_t)r->k->count) return fail(r, "instructions are not in order");
    first = word(r);
  }
  if (!read_op(r, first, &in)) return false;
  if (lp_info[in.op].value != (number_of >= 0)) return fail(r, "a number where there is no value");
  if (!untyped((LOp)in.op)) {
    if (!read_dtype(r, &dt)) return false;
    in.dtype = (uint8_t)dt;
  }
  if (!read_form(r, &in)) return false;
  for (Word w = word(r); w.n; w = word(r)) {
    if (n == LP_MAX_OPERANDS) return fail(r, "too many operands");
    if (!number(r, w, '%', LP_MAX_INS, &o)) return false;
    operand[n++] = (LVal)o;
  }
  if (in.op == LP_END && r->k->open_count == 0) return fail(r, "closes no block");
  if (lp_info[in.op].opens && r->k->open_count == LP_MAX_DEPTH) return fail(r, "too deep");
  lp_push(r->k, in, n, operand);
  return next_line(r);
}

Kernel *lp_read(Arena *a, const char *text, size_t n, Err *e) {
  Reader r = {.p = text, .end = text + n, .line = 1, .k = lp_new(a), .e = e};
  int64_t args;
  if (!expect(&r, "loop") || !expect(&r, "1") || !expect(&r, "args")) return NULL;
  if (!number(&r, word(&r), 0, LP_MAX_ARGS, &args)) return NULL;
  if (!at_line_end(&r)) {
    if (!expect(&r, "checked")) return NULL;
    r.k->checked = true;
  }
  if (!next_line(&r)) return NULL;
  r.k->arg_count = (uint32_t)args;
  while (r.p < r.end) {
    Word w = word(&r);
    bool buf = w.n && w.s[0] == 'b' && r.k->count == 0;
    if (buf ? !read_buf_line(&r, w) : !read_ins(&r, w)) return NULL;
    if (r.k->buf_count > LP_MAX_BUFS) return fail(&r, "too many buffers"), NULL;
  }
  return lp_verify(r.k, e) ? r.k : NULL;
}
