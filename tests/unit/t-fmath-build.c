/* fmath.inc as a code generator expands it: operations are calls that record instructions, values
 * are numbers of instructions. The recorded programs are run and give the bits of fmath.c, so the
 * text needs nothing of C's arithmetic, and has no branch that depends on a value. */
#include <math.h>
#include <stdlib.h>

#include "graph/build.h"
#include "runtime/fmath.h"
#include "runtime/half.h"
#include "tests/tap.h"

typedef enum Op {
  ARG,
  CONST,
  F_ADD,
  F_SUB,
  F_MUL,
  F_DIV,
  F_FMA,
  F_SQRT,
  F_LT,
  F_GT,
  F_EQ,
  SELECT,
  B_AND,
  B_OR,
  B_XOR,
  B_NOT,
  I_ADD,
  I_SUB,
  I_MUL,
  I_AND,
  I_OR,
  I_XOR,
  I_SHL,
  I_SHR,
  I_SAR,
  I_EQ,
  I_ULT,
  TO_FLOAT,
  TO_INT
} Op;

typedef struct Insn {
  Op op;
  int arg[3];
  uint64_t bits;
} Insn;

enum { MOST = 4000 };
static Insn code[MOST];
static uint64_t value[MOST];
static int count;
static int width;

/* One handle type, and not an arithmetic one: an operator applied to it does not compile. */
typedef struct Handle {
  int at;
} Handle;

static Handle put(Op op, Handle a, Handle b, Handle c) {
  Handle h = {count < MOST ? count++ : count};
  if (h.at < MOST) code[h.at] = (Insn){op, {a.at, b.at, c.at}, 0};
  return h;
}

static Handle leaf(Op op, uint64_t bits) {
  for (int i = 0; i < count; i++) /* equal constants are one */
    if (code[i].op == op && code[i].bits == bits && op == CONST) return (Handle){i};
  Handle none = {0}, h = put(op, none, none, none);
  code[h.at].bits = bits;
  return h;
}

static uint64_t float_bits(double x) {
  return width == 32 ? hf_bits32((float)x) : hf_bits64(x);
}

static uint64_t cut(uint64_t u) {
  return width == 32 ? (uint32_t)u : u;
}

static Handle PUT1(Op op, Handle a) {
  return put(op, a, a, a);
}
static Handle PUT2(Op op, Handle a, Handle b) {
  return put(op, a, b, b);
}

#define K(c) leaf(CONST, float_bits(c))
#define KI(c) leaf(CONST, cut((uint64_t)(c)))
#define ADD(a, b) PUT2(F_ADD, a, b)
#define SUB(a, b) PUT2(F_SUB, a, b)
#define MUL(a, b) PUT2(F_MUL, a, b)
#define DIV(a, b) PUT2(F_DIV, a, b)
#define FMA(a, b, c) put(F_FMA, a, b, c)
#define SQRT(a) PUT1(F_SQRT, a)
#define LT(a, b) PUT2(F_LT, a, b)
#define GT(a, b) PUT2(F_GT, a, b)
#define EQ(a, b) PUT2(F_EQ, a, b)
#define SEL(c, a, b) put(SELECT, c, a, b)
#define ISEL(c, a, b) put(SELECT, c, a, b)
#define BAND(a, b) PUT2(B_AND, a, b)
#define BOR(a, b) PUT2(B_OR, a, b)
#define BXOR(a, b) PUT2(B_XOR, a, b)
#define BNOT(a) PUT1(B_NOT, a)
#define BITS(x) (x)
#define FLOAT(i) (i)
#define IADD(a, b) PUT2(I_ADD, a, b)
#define ISUB(a, b) PUT2(I_SUB, a, b)
#define IMUL(a, b) PUT2(I_MUL, a, b)
#define IAND(a, b) PUT2(I_AND, a, b)
#define IOR(a, b) PUT2(I_OR, a, b)
#define IXOR(a, b) PUT2(I_XOR, a, b)
#define ISHL(a, b) PUT2(I_SHL, a, b)
#define ISHR(a, b) PUT2(I_SHR, a, b)
#define ISAR(a, b) PUT2(I_SAR, a, b)
#define IEQ(a, b) PUT2(I_EQ, a, b)
#define IULT(a, b) PUT2(I_ULT, a, b)
#define I2F(i) PUT1(TO_FLOAT, i)
#define F2I(x) PUT1(TO_INT, x)
#define V Handle
#define I Handle
#define B Handle
#define FM_CALL(name, args) FM_TAG(name) args
#define FM_FN(type, name, args) static type FM_TAG(name) args
#define FM_RARE_REDUCE(c, x, q, r, l)                                                              \
  do {                                                                                             \
    Handle cond_ = c, q_, r_, l_;                                                                  \
    FM_CALL(reduce_huge, (x, &q_, &r_, &l_));                                                      \
    (q) = ISEL(cond_, q_, q);                                                                      \
    (r) = SEL(cond_, r_, r);                                                                       \
    (l) = SEL(cond_, l_, l);                                                                       \
  } while (0)

#define FM_W 32
#define FM_TAG(name) build_##name##_f32
#include "runtime/fmath.inc"
#undef FM_W
#undef FM_TAG
#define FM_W 64
#define FM_TAG(name) build_##name##_f64
#include "runtime/fmath.inc"
#undef V
#undef I
#undef B

static double as_float(uint64_t u) {
  return width == 32 ? (double)hf_float32((uint32_t)u) : hf_float64(u);
}

static uint64_t arithmetic(const Insn *n, uint64_t a, uint64_t b, uint64_t c) {
  if (width == 32) {
    float x = hf_float32((uint32_t)a), y = hf_float32((uint32_t)b), z = hf_float32((uint32_t)c);
    float r = n->op == F_ADD   ? x + y
              : n->op == F_SUB ? x - y
              : n->op == F_MUL ? x * y
              : n->op == F_DIV ? x / y
              : n->op == F_FMA ? fm_fma32(x, y, z)
                               : sqrtf(x);
    return hf_bits32(r);
  }
  double x = hf_float64(a), y = hf_float64(b), z = hf_float64(c);
  double r = n->op == F_ADD   ? x + y
             : n->op == F_SUB ? x - y
             : n->op == F_MUL ? x * y
             : n->op == F_DIV ? x / y
             : n->op == F_FMA ? fm_fma64(x, y, z)
                              : sqrt(x);
  return hf_bits64(r);
}

static int64_t as_signed(uint64_t u) {
  return width == 32 ? (int32_t)(uint32_t)u : (int64_t)u;
}

static uint64_t step(const Insn *n) {
  uint64_t a = value[n->arg[0]], b = value[n->arg[1]], c = value[n->arg[2]];
  switch (n->op) {
  case ARG:
  case CONST: return n->bits;
  case F_ADD:
  case F_SUB:
  case F_MUL:
  case F_DIV:
  case F_FMA:
  case F_SQRT: return arithmetic(n, a, b, c);
  case F_LT: return as_float(a) < as_float(b);
  case F_GT: return as_float(a) > as_float(b);
  case F_EQ: return as_float(a) == as_float(b);
  case SELECT: check(a <= 1); return a ? b : c;
  case B_AND:
  case I_AND: return a & b;
  case B_OR:
  case I_OR: return a | b;
  case B_XOR:
  case I_XOR: return a ^ b;
  case B_NOT: return !a;
  case I_ADD: return cut(a + b);
  case I_SUB: return cut(a - b);
  case I_MUL: return cut(a * b);
  /* a shift too far would be undefined in a code generator */
  case I_SHL: check(b < (uint64_t)width); return cut(a << b);
  case I_SHR: check(b < (uint64_t)width); return a >> b;
  case I_SAR: check(b < (uint64_t)width); return cut((uint64_t)(as_signed(a) >> b));
  case I_EQ: return a == b;
  case I_ULT: return a < b;
  case TO_FLOAT:
    return width == 32 ? hf_bits32((float)(int32_t)(uint32_t)a) : hf_bits64((double)(int64_t)a);
  case TO_INT: /* as is a conversion out of range, or of a fraction */
    check(fabs(as_float(a)) <= ldexp(1, width - 2));
    return cut((uint64_t)(int64_t)as_float(a));
  }
  return 0;
}

typedef struct Fn {
  const char *name;
  Handle (*build[2])(Handle);
  float (*f32)(float);
  double (*f64)(double);
} Fn;

static const Fn functions[] = {
#define FM1(name, rare)                                                                            \
  {#name, {build_##name##_f32, build_##name##_f64}, fm_##name##_f32, fm_##name##_f64},
#include "runtime/fmath.def"
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

typedef struct Fn2 {
  const char *name;
  Handle (*build[2])(Handle, Handle);
  float (*f32)(float, float);
  double (*f64)(double, double);
} Fn2;

static const Fn2 functions2[] = {
#define FM2(name)                                                                                  \
  {#name, {build_##name##_f32, build_##name##_f64}, fm_##name##_f32, fm_##name##_f64},
#include "runtime/fmath.def"
};
enum { FUNCTIONS2 = sizeof functions2 / sizeof functions2[0] };

static uint64_t state;

static uint64_t next(void) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static uint64_t point(int i) {
  static const double edges[] = {0, 1, INFINITY, NAN, 0x1p-130, 0x1p-1060, 88.5, 710, 1e30, 0.5};
  if (i < 20) return float_bits(edges[i / 2] * (i & 1 ? -1 : 1));
  if (i % 2) return cut(next());
  return float_bits((double)(int64_t)next() * 0x1p-63 * (double)(1 << next() % 12));
}

static bool same(uint64_t a, uint64_t b) {
  double x = as_float(a), y = as_float(b);
  return a == b || (x != x && y != y);
}

static void start(int w) {
  width = w;
  count = 0;
}

static uint64_t run(Handle result) {
  for (int i = 0; i < count; i++) value[i] = step(&code[i]);
  return value[result.at];
}

static int instructions(void) {
  int n = 0;
  for (int i = 0; i < count; i++) n += code[i].op > CONST;
  return n;
}

static void t_unary(const Fn *f) {
  int size[2];
  for (int k = 0; k < 2; k++) {
    start(k ? 64 : 32);
    Handle x = leaf(ARG, 0), y = f->build[k](x);
    need(count < MOST);
    size[k] = instructions();
    state = 21;
    for (int i = 0; i < 3000; i++) {
      uint64_t u = code[x.at].bits = point(i), r = run(y);
      uint64_t want =
          k ? hf_bits64(f->f64(hf_float64(u))) : hf_bits32(f->f32(hf_float32((uint32_t)u)));
      check_msg(same(r, want), "%s(%a) in %d bits is %a, not %a", f->name, as_float(u), width,
                as_float(want), as_float(r));
    }
  }
  tap_note("%s: %d instructions in f32, %d in f64", f->name, size[0], size[1]);
}

static void t_binary(const Fn2 *f) {
  int size[2];
  for (int k = 0; k < 2; k++) {
    start(k ? 64 : 32);
    Handle x = leaf(ARG, 0), y = leaf(ARG, 0), z = f->build[k](x, y);
    need(count < MOST);
    size[k] = instructions();
    state = 22;
    for (int i = 0; i < 6000; i++) {
      uint64_t u = code[x.at].bits = point(i % 97), v = code[y.at].bits = point(i / 5), r = run(z);
      uint64_t want = k ? hf_bits64(f->f64(hf_float64(u), hf_float64(v)))
                        : hf_bits32(f->f32(hf_float32((uint32_t)u), hf_float32((uint32_t)v)));
      check_msg(same(r, want), "%s(%a, %a) in %d bits is %a, not %a", f->name, as_float(u),
                as_float(v), width, as_float(want), as_float(r));
    }
  }
  tap_note("%s: %d instructions in f32, %d in f64", f->name, size[0], size[1]);
}

static void t_normal(void) {
  for (int k = 0; k < 2; k++) {
    start(k ? 64 : 32);
    Handle a = leaf(ARG, 0), b = leaf(ARG, 0), z0, z1;
    (k ? build_normal_f64 : build_normal_f32)(a, b, &z0, &z1);
    need(count < MOST);
    state = 23;
    for (int i = 0; i < 3000; i++) {
      uint64_t u = code[a.at].bits = cut(next()), v = code[b.at].bits = cut(next());
      run(z0);
      if (k) {
        double y0, y1;
        fm_normal_f64(u, v, &y0, &y1);
        check(value[z0.at] == hf_bits64(y0) && value[z1.at] == hf_bits64(y1));
      } else {
        float y0, y1;
        fm_normal_f32((uint32_t)u, (uint32_t)v, &y0, &y1);
        check(value[z0.at] == hf_bits32(y0) && value[z1.at] == hf_bits32(y1));
      }
    }
  }
}

int main(void) {
  for (int i = 0; i < FUNCTIONS; i++) {
    const char *name = functions[i].name;
    char title[80];
    snprintf(title, sizeof title, "%s built as instructions gives the bits of C", name);
    TEST(t_unary(&functions[i]), title);
  }
  for (int i = 0; i < FUNCTIONS2; i++) {
    char title[80];
    snprintf(title, sizeof title, "%s built as instructions gives the bits of C",
             functions2[i].name);
    TEST(t_binary(&functions2[i]), title);
  }
  TEST(t_normal(), "normal built as instructions gives the bits of C");
  return tap_done();
}
