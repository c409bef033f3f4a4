/* The builder, shape rules and their messages, inlining, and the verifier against broken graphs. */
#include "graph-gen.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"

static Mem mem;
static Arena arena;
static Names *names;
static DimTab *dims;
static Graph *g;
static Dim N, M, K;

static Dim num(int64_t n) {
  return dim_const(dims, n);
}

static void fresh(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
  names = names_new(&arena);
  dims = dim_tab_new(&arena);
  g = gr_new(&arena, dims, names, NULL);
  N = dim_symbol(dims, names_of(names, "N"), (Span){0, 0, 0}, NULL);
  M = dim_symbol(dims, names_of(names, "M"), (Span){0, 0, 0}, NULL);
  K = dim_symbol(dims, names_of(names, "K"), (Span){0, 0, 0}, NULL);
}

/* An input: dims as a text, "f32[N, 3]". */
static Val in(const char *type) {
  char word[8] = "";
  int n = 0;
  Type t = {0};
  for (; type[n] && type[n] != '['; n++) word[n] = type[n];
  t.dtype = (uint8_t)dtype_find(word);
  for (const char *p = type + n; *p && *p != ']';) {
    const char *q = ++p;
    while (*q && *q != ',' && *q != ']') q++;
    if (q > p) dim_parse(dims, names, p, (size_t)(q - p), &t.dim[t.rank++]);
    p = q;
  }
  return gr_input(g, &t);
}

static const char *shown(Val v) {
  Buf b;
  buf_init_arena(&b, &arena);
  if (val_none(v)) return "none";
  type_print(&b, dims, gr_type(g, v));
  return b.s;
}

static GErr err;
static Val op(OpCode o, int n, const Val *v, int na, const Attr *a) {
  memset(&err, 0, sizeof err);
  return gr_op(g, o, v, n, a, na, NULL, 0, &err);
}

static Val op2(OpCode o, const char *a, const char *b) {
  Val v[2] = {in(a), in(b)};
  return op(o, 2, v, 0, NULL);
}

static Val op1(OpCode o, const char *a, int na, const Attr *attrs) {
  Val v = in(a);
  return op(o, 1, &v, na, attrs);
}

/* The last op failed with this code, operand, text and help. */
static void says(ErrCode code, int operand, const char *text, const char *help) {
  check_str(err_info[err.code].code, err_info[code].code);
  check_int(err.operand, ==, operand);
  check_str(err.text, text);
  check_str(err.help, help);
}

static void t_elementwise(void) {
  fresh();
  check_str(shown(op2(OP_ADD, "f32[N, 3]", "f32[N, 3]")), "f32[N, 3]");
  check_str(shown(op2(OP_LT, "i64[N]", "i64[N]")), "bool[N]");
  check_size(g->check_count, ==, 0);
  check_str(shown(op2(OP_MUL, "f32[N]", "f32[M]")), "f32[N]");
  check_size(g->check_count, ==, 1);
  check_str(g->checks[0].text, "the shapes of the operands of `*` differ");
  check(g->checks[0].a == N && g->checks[0].b == M && g->checks[0].kind == CHECK_EQ);
  op2(OP_MUL, "f32[N]", "f32[M]");
  check_size(g->check_count, ==, 1);
  op2(OP_ADD, "f32[2, 3]", "f32[3, 2]");
  says(ERR_SHAPE_DIFFER, 1,
       "the operands of `+` have different shapes: f32[2, 3] and f32[3, 2] (axis 0 is 2 and 3)",
       "`x + transpose(y)` fits");
  op2(OP_ADD, "f32[2, 3]", "f32[2]");
  says(ERR_SHAPE_DIFFER, 1, "the operands of `+` have different shapes: f32[2, 3] and f32[2]",
       "`x + expand(y, 1)` fits: the new axis of size 1 stretches");
  op2(OP_MAX, "f32[N]", "f32[N, 4]");
  says(ERR_SHAPE_DIFFER, 1, "the operands of `max` have different shapes: f32[N] and f32[N, 4]",
       "`max(expand(x, 1), y)` fits: the new axis of size 1 stretches");
  op2(OP_SUB, "f32[N]", "f32[N + 1]");
  says(ERR_SHAPE_DIFFER, 1,
       "the operands of `-` have different shapes: f32[N] and f32[N + 1] (axis 0 is N and N + 1)",
       "axes of size 1 stretch and missing leading axes are added; all others must be equal");
  check_size(g->check_count, ==, 1);
  op2(OP_ADD, "f32[2]", "i64[2]");
  says(ERR_DTYPE_DIFFER, 1, "`+` takes one dtype, not f32 and i64: f32[2] and i64[2]",
       "`x + f32(y)`");
  op2(OP_MUL, "i32[2]", "i64[2]");
  says(ERR_DTYPE_DIFFER, 1, "`*` takes one dtype, not i32 and i64: i32[2] and i64[2]",
       "`i64(x) * y`");
  op2(OP_DIV, "i64[2]", "i64[2]");
  says(ERR_DTYPE_DOMAIN, 0, "`/` takes float tensors, not i64[2]",
       "`x // y` is the floor of the quotient; `f32(x) / f32(y)` is float");
  op1(OP_EXP, "i64[2]", 0, NULL);
  says(ERR_DTYPE_DOMAIN, 0, "`exp` takes float tensors, not i64[2]", "cast first: `exp(f32(x))`");
  op2(OP_ADD, "bool[2]", "bool[2]");
  says(ERR_DTYPE_DOMAIN, 0, "`+` takes numbers, not bool[2]",
       "cast first: `i64(x) + i64(y)`; or `and`, `or`, `not` on bool");
  op1(OP_NOT, "f32[2]", 0, NULL);
  says(ERR_DTYPE_DOMAIN, 0, "`not` takes bool tensors, not f32[2]", "`x != 0` is a bool tensor");
}

static void t_products(void) {
  fresh();
  check_str(shown(op2(OP_DOT, "f32[N, 4]", "f32[4, M]")), "f32[N, M]");
  check_str(shown(op2(OP_DOT, "f32[K, N, 4]", "f32[K, 4, 2]")), "f32[K, N, 2]");
  check_str(shown(op2(OP_INNER, "f32[K, N]", "f32[K, N]")), "f32[K]");
  op2(OP_DOT, "f32[4, 3]", "f32[4, 3]");
  says(ERR_SHAPE_INNER, 1, "the inner dims of `@` differ: 3 and 4, in f32[4, 3] @ f32[4, 3]",
       "`x @ transpose(y)` fits");
  op2(OP_DOT, "f32[N, N + 1]", "f32[N, K]");
  says(ERR_SHAPE_INNER, 1,
       "the inner dims of `@` differ: N + 1 and N, in f32[N, N + 1] @ f32[N, K]",
       "`transpose(x) @ y` fits");
  op2(OP_DOT, "f32[5, 2]", "f32[3, 5]");
  says(ERR_SHAPE_INNER, 1, "the inner dims of `@` differ: 2 and 3, in f32[5, 2] @ f32[3, 5]",
       "`y @ x` fits");
  const char *text[2] = {"h + 1", "w.up"};
  g->operand_text = text;
  g->operand_text_count = 2;
  op2(OP_DOT, "f32[4, 3]", "f32[4, 3]");
  check_str(err.help, "`(h + 1) @ transpose(w.up)` fits");
  g->operand_text = NULL;
  op2(OP_DOT, "f32[2, 4, 3]", "f32[5, 3, 4]");
  says(ERR_SHAPE_BATCH, 1,
       "the batch axes of `@` differ: axis 0 is 2 and 5, in f32[2, 4, 3] @ f32[5, 3, 4]",
       "axes before the last two are equal on both sides, or absent on one");
  op2(OP_DOT, "f32[3]", "f32[3, 4]");
  says(ERR_SHAPE_RANK, 0, "`@` of f32[3] and f32[3, 4]",
       "both sides have two axes, and the same axes before these");
  size_t before = g->check_count;
  op2(OP_DOT, "f32[N, M]", "f32[K, 2]");
  check_size(g->check_count, ==, before + 1);
  int64_t s[2] = {2, 1}, p[2] = {0, 1};
  Attr a[2] = {attr_ints(AT_STRIDE, 2, s), attr_ints(AT_PAD, 2, p)};
  Val v[2] = {in("f32[N, 3, 8, M]"), in("f32[K, 3, 3, 3]")};
  check_str(shown(op(OP_CONV2D, 2, v, 2, a)), "f32[N, K, 3, M]");
  v[1] = in("f32[K, 4, 3, 3]");
  op(OP_CONV2D, 2, v, 2, a);
  says(ERR_SHAPE_CONV, 1,
       "the image has 3 channels, the kernel takes 4: f32[N, 3, 8, M] and f32[K, 4, 3, 3]",
       "images are [N, C, H, W], kernels [O, C, h, w]");
  v[1] = in("f32[K, 3, 9, 3]");
  op(OP_CONV2D, 2, v, 2, a);
  says(ERR_SHAPE_CONV, 1,
       "the kernel's height 9 is larger than the image's height 8 with padding 0",
       "padding of 1 fits");
}

static void t_moves(void) {
  fresh();
  int64_t d[3] = {N, num(6), 0}, axes[2] = {1, 1};
  Attr a = attr_dims(AT_DIMS, 2, d);
  check_str(shown(op1(OP_RESHAPE, "f32[N, 2, 3]", 1, &a)), "f32[N, 6]");
  op1(OP_RESHAPE, "f32[N, 2, 4]", 1, &a);
  check(g->check_count == 1 && g->checks[0].a == dim_mul(dims, N, num(8)));
  d[0] = num(4);
  op1(OP_RESHAPE, "f32[2, 3, 6]", 1, &a);
  says(ERR_SHAPE_RESHAPE, 0, "f32[2, 3, 6] has 36 elements and cannot become f32[4, 6] with 24",
       "f32[6, 6] has as many");
  d[0] = num(-1);
  op1(OP_RESHAPE, "f32[2, 3]", 1, &a);
  check_int(err.code, ==, ERR_SHAPE_RESHAPE);
  a = attr_ints(AT_AXES, 1, axes);
  check_str(shown(op1(OP_SUM, "f32[N, M, K]", 1, &a)), "f32[N, K]");
  axes[0] = 3;
  op1(OP_SUM, "f32[N, M, K]", 1, &a);
  says(ERR_SHAPE_AXIS, 0, "`sum` over axis 3 of f32[N, M, K], which has 3 axes",
       "axes are 0 to 2, or -1 for the last");
  axes[0] = 1;
  a = attr_ints(AT_AXES, 2, axes);
  op1(OP_REDUCE_MAX, "f32[N, M, K]", 1, &a);
  says(ERR_SHAPE_AXIS, 0, "`max` names axis 1 twice", "");
  int64_t b[2] = {N, num(4)};
  a = attr_dims(AT_DIMS, 2, b);
  check_str(shown(op1(OP_BROADCAST, "f32[4]", 1, &a)), "f32[N, 4]");
  op1(OP_BROADCAST, "f32[3]", 1, &a);
  says(ERR_SHAPE_BROADCAST, 0, "f32[3] cannot be stretched to f32[N, 4]: its axis 0 is 3, wanted 4",
       "only axes of size 1 stretch; shapes are aligned at the right");
  size_t checks = g->check_count;
  check_str(shown(op1(OP_BROADCAST, "f32[N]", 1, &a)), "f32[N, 4]");
  check_size(g->check_count, ==, checks + 1);
  int64_t low[1] = {num(1)}, high[1] = {num(0)}, inner[1] = {1};
  Attr gaps[4] = {attr_dims(AT_LOW, 1, low), attr_dims(AT_HIGH, 1, high),
                  attr_ints(AT_INNER, 1, inner), attr_f(AT_VALUE, 0)};
  checks = g->check_count;
  check_str(shown(op1(OP_PAD, "f32[N]", 4, gaps)), "f32[2*N]");
  check_size(g->check_count, ==, checks + 1); /* zeros between elements need one */
  check(g->checks[checks].kind == CHECK_GE && g->checks[checks].b == num(1));
  int64_t start[1] = {num(2)}, len[1] = {num(7)}, step[1] = {1};
  Attr s[3] = {attr_dims(AT_STARTS, 1, start), attr_dims(AT_LENS, 1, len),
               attr_ints(AT_STEPS, 1, step)};
  op1(OP_SLICE, "f32[5]", 3, s);
  says(ERR_SHAPE_SLICE, 0, "the slice from 2 to 9 is not inside axis 0 of f32[5]",
       "axis 0 has 5 elements; bounds are not clamped");
  op1(OP_SLICE, "f32[N + 9]", 3, s);
  checks = g->check_count;
  check_str(shown(op1(OP_SLICE, "f32[N]", 3, s)), "f32[7]");
  check_size(g->check_count, ==, checks + 1);
  check(g->checks[checks].kind == CHECK_GE && g->checks[checks].b == num(9));
  len[0] = dim_sub(dims, N, num(2));
  check_str(shown(op1(OP_SLICE, "f32[N]", 3, s)), "f32[N - 2]");
  check_size(g->check_count, ==, checks + 2);
  step[0] = -1;
  op1(OP_SLICE, "f32[N]", 3, s);
  check_str(err.help, "`flip(x, axis = 0)` reverses");
  Attr axis = attr_i(AT_AXIS, 0);
  Val v[3] = {in("f32[2, 3]"), in("f32[N, 3]"), in("f32[2, 4]")};
  check_str(shown(op(OP_CONCAT, 2, v, 1, &axis)), "f32[N + 2, 3]");
  v[1] = v[2];
  op(OP_CONCAT, 2, v, 1, &axis);
  says(ERR_SHAPE_CONCAT, 1,
       "`concat` along axis 0 of f32[2, 3] and f32[2, 4], whose axis 1 differs",
       "`axis = 1` joins them");
  v[1] = in("i64[N]"), v[2] = in("i64[N]");
  check_str(shown(op(OP_TAKE, 3, v, 1, &axis)), "f32[N]");
  check_str(shown(op(OP_TAKE, 2, v, 1, &axis)), "f32[N, 3]");
  v[1] = in("i32[N]");
  op(OP_TAKE, 2, v, 1, &axis);
  says(ERR_INDEX_DTYPE, 1, "positions are i64, not i32[N]", "`i64(y)`");
  int64_t huge[2] = {num(INT64_C(1) << 40), num(INT64_C(1) << 40)};
  a = attr_dims(AT_DIMS, 2, huge);
  op1(OP_BROADCAST, "f32", 1, &a);
  check_int(err.code, ==, ERR_SHAPE_SIZE);
  huge[0] = DIM_BAD;
  op1(OP_BROADCAST, "f32", 1, &a);
  check_int(err.code, ==, ERR_SHAPE_SIZE);
}

static void t_failed(void) {
  fresh();
  Val x = in("f32[N]");
  size_t nodes = g->node_count, checks = g->check_count;
  Val v[2] = {x, in("f32[N + 1]")};
  nodes++;
  check(val_none(op(OP_ADD, 2, v, 0, NULL)));
  check(g->node_count == nodes && g->check_count == checks);
  check(val_none(op(OP_ADD, 1, v, 0, NULL)));
  v[1] = (Val){99, 0};
  check(val_none(op(OP_ADD, 2, v, 0, NULL)));
  check(val_none(op(OP_TRANSPOSE, 1, v, 0, NULL)));
  check_str(err.text, "`transpose` lacks a proper attribute `perm`");
  /* nor the condition that its first axis asked for */
  v[0] = in("f32[N, 2]");
  v[1] = in("f32[M, 3]");
  nodes = g->node_count;
  check(val_none(op(OP_ADD, 2, v, 0, NULL)));
  check(g->check_count == checks);
  B b = {.g = g};
  check(val_none(b_bin(&b, OP_ADD, x, (Val){1, 0})) && b.failed);
  check(val_none(b_un(&b, OP_NEG, x)));
  check(g->node_count == nodes);
}

static void t_builders(void) {
  fresh();
  B b = {.g = g};
  Val x = in("f32[N, 3]"), s = in("f32");
  check_str(shown(b_bin(&b, OP_ADD, s, x)), "f32[N, 3]");
  check_str(shown(b_where(&b, in("bool[N, 3]"), s, x)), "f32[N, 3]");
  check_str(shown(b_const(&b, x, 2.5)), "f32[N, 3]");
  check_str(shown(b_swap(&b, x)), "f32[3, N]");
  check(val_eq(b_cast(&b, x, DT_F32), x) && val_eq(b_sum(&b, x, 0, NULL), x));
  int64_t axes[1] = {0};
  Val r = b_sum(&b, x, 1, axes);
  check_str(shown(b_keep(&b, r, x, 1, axes)), "f32[N, 3]");
  Dim to[2] = {num(1), num(3)};
  check_str(shown(b_sum_to(&b, x, 2, to)), "f32[1, 3]");
  check_str(shown(b_sum_to(&b, x, 1, to + 1)), "f32[3]");
  check_str(shown(b_sum_to(&b, x, 0, NULL)), "f32");
  check(val_eq(b_sum_to(&b, x, 2, gr_type(g, x)->dim), x));
  Type t = *gr_type(g, in("i64[M]"));
  check_str(shown(b_zeros(&b, &t)), "i64[M]");
  check(!b.failed && gr_verify(g, &err));
  /* literals are rounded once */
  Val c = gr_const_f(g, DT_F16, DEV_CPU, 0.1);
  check_double(gr_attr(g, c.node, AT_VALUE)->u.f, ==, 0.0999755859375);
  c = gr_const_f(g, DT_F32, DEV_CPU, 0.1);
  check_double(gr_attr(g, c.node, AT_VALUE)->u.f, ==, (double)0.1f);
  /* views share an alias class with what they look at, others do not */
  Val y = b_swap(&b, x), z = b_un(&b, OP_NEG, y);
  check_uint(gr_type(g, y)->alias, ==, gr_type(g, x)->alias);
  check_uint(gr_type(g, z)->alias, ==, 0);
  check_uint(gr_type(g, x)->alias, !=, 0);
}

/* A node gets a provenance, later ones that of the graph as before. */
static void t_provenance(void) {
  fresh();
  B b = {.g = g};
  Val x = in("f32[4]");
  g->at = (Prov){.path = names_of(names, "a"), .origin = -1};
  Val y = b_un(&b, OP_NEG, x);
  gr_set_prov(g, y.node, (Prov){.path = names_of(names, "b"), .origin = -1});
  Val z = b_un(&b, OP_NEG, y);
  check_str(g->provs[g->nodes[y.node].prov].path, "b");
  check_str(g->provs[g->nodes[z.node].prov].path, "a");
}

static void t_inline(void) {
  fresh();
  /* f(a: f32[N, M], b: f32[M]) -> a * b, over its own table */
  Graph *caller = g;
  DimTab *mine = dims;
  DimTab *other = dim_tab_new(&arena);
  Dim n = dim_symbol(other, names_of(names, "P"), (Span){0, 0, 0}, NULL);
  Dim m = dim_symbol(other, names_of(names, "Q"), (Span){0, 0, 0}, NULL);
  Graph *f = gr_new(&arena, other, names, names_of(names, "f"));
  Type ta = {.dtype = DT_F32, .rank = 2, .dim = {n, m}},
       tb = {.dtype = DT_F32, .rank = 1, .dim = {m}};
  Val a = gr_input(f, &ta), c = gr_input(f, &tb);
  B b = {.g = f};
  f->at = (Prov){.span = {1, 5, 9}, .path = names_of(names, "lin"), .origin = -1};
  gr_output(f, b_bin(&b, OP_MUL, a, b_broadcast(&b, c, 2, ta.dim)));
  gr_check(f, CHECK_GE, n, dim_const(other, 2), "too few rows");
  gr_check(f, CHECK_EQ, m, dim_const(other, 4), "not four columns");
  Val args[2] = {in("f32[K, 4]"), in("f32[4]")}, out;
  Dim subst[2] = {K, dim_const(mine, 4)};
  caller->at = (Prov){.path = names_of(names, "net.blocks.0"), .origin = -1};
  if (!check_msg(gr_inline(caller, f, args, subst, &out, &err), "%s", err.text)) return;
  check_str(shown(out), "f32[K, 4]");
  const Prov *p = &caller->provs[caller->nodes[out.node].prov];
  check_str(p->path, "net.blocks.0.lin");
  check_uint(p->span.lo, ==, 5);
  check_str(caller->at.path, "net.blocks.0");
  check(caller->check_count == 1 && caller->checks[0].a == K);
  check(gr_verify(caller, &err));
  subst[0] = dim_const(mine, 1);
  args[0] = in("f32[1, 4]");
  check(!gr_inline(caller, f, args, subst, &out, &err));
  check_str(err.text, "too few rows: 1 and 2");
  Val wide[2] = {in("f32[K, 5]"), in("f32[5]")};
  check(!gr_inline(caller, f, wide, (Dim[]){K, dim_const(mine, 5)}, &out, &err));
  check_str(err.text, "not four columns: 5 and 4");
  subst[0] = K;
  args[0] = in("f32[K, 5]");
  check(!gr_inline(caller, f, args, subst, &out, &err));
  args[0] = in("f64[K, 4]");
  check(!gr_inline(caller, f, args, subst, &out, &err));
  check(!gr_inline(caller, f, args, NULL, &out, &err));
  /* regions come along, with their sizes replaced */
  for (uint64_t seed = 1; seed < 30; seed++) {
    Gen x;
    fresh();
    gen_open(&x, &arena, names, seed, true, false);
    gen_graph(&x, 30);
    Dim to[GEN_SIZES];
    for (int i = 0; i < GEN_SIZES; i++) to[i] = num(x.value[i]);
    Val *given = ARENA_ARRAY(&arena, Val, x.g->input_count + 1),
        *outs = ARENA_ARRAY(&arena, Val, x.g->output_count + 1);
    for (size_t i = 0; i < x.g->input_count; i++) {
      Type t = *gr_type(x.g, x.g->inputs[i]);
      for (int k = 0; k < t.rank; k++)
        t.dim[k] = dim_import(dims, x.g->dims, t.dim[k], to, GEN_SIZES);
      given[i] = gr_input(g, &t);
    }
    check_msg(gr_inline(g, x.g, given, to, outs, &err), "seed %d: %s", (int)seed, err.text);
    check_msg(gr_verify(g, &err), "seed %d: %s", (int)seed, err.text);
    /* the clone shares no arrays */
    Graph *copy = gr_clone(&arena, x.g);
    check(copy->nodes != x.g->nodes && gr_equal(copy, x.g));
  }
}

/* ---- the verifier: every invariant broken in turn */
static Graph *whole(void) {
  static const char text[] = "graph {\n  sym N\n  sym M\n"
                             "  %0 = input {index=0 dtype=8 device=0 dims=[N, 2]} : f32[N, 2]\n"
                             "  %1 = input {index=1 dtype=8 device=0 dims=[M, 2]} : f32[M, 2]\n"
                             "  %2 = add %0 %1 : f32[N, 2]\n"
                             "  %3 = transpose %2 {perm=(1, 0)} : f32[2, N]\n"
                             "  %4 = token : token\n"
                             "  %5 = print %4 %3 {text=\"{}\"} : token\n"
                             "  %6 = wrap %3 {text=\"eval\"} : f32[2, N]\n    region {\n"
                             "      %0 = input {index=0 dtype=8 device=0 dims=[2, N]} : f32[2, N]\n"
                             "      %1 = neg %0 : f32[2, N]\n      return %1\n    }\n"
                             "  %7 = sum %6 {axes=(0)} : f32[N]\n"
                             "  check eq N, M \"differ\"\n  return %7 %5\n}\n";
  Graph *w = gr_read(&arena, names, text, strlen(text), &err);
  if (!w) tap_fail(TAP_HERE, "%s", err.text);
  return w;
}

static void broken(Graph *w, const char *why) {
  if (check_msg(!gr_verify(w, &err), "the verifier misses: %s", why)) check_has(err.text, why);
}

static void t_verify(void) {
  Graph *w;
  fresh();
  names = names_new(&arena);
#define BREAK(change, why)                                                                         \
  do {                                                                                             \
    if (!(w = whole())) return;                                                                    \
    change;                                                                                        \
    broken(w, why);                                                                                \
  } while (0)
  BREAK(w->nodes[2].op = OP_COUNT, "there is no such op");
  BREAK(w->nodes[2].operand0 = 1000, "an index leaves its array");
  BREAK(w->nodes[2].operand_count = 1000, "an index leaves its array");
  BREAK(w->nodes[2].result0 = UINT32_MAX, "an index leaves its array");
  BREAK(w->nodes[7].attr0 = 1000, "an index leaves its array");
  BREAK(w->nodes[6].region0 = 3, "an index leaves its array");
  BREAK(w->nodes[6].prov = 1000, "an index leaves its array");
  BREAK(w->operands[0].node = 2, "an operand is not computed before it");
  BREAK(w->operands[0].node = 5, "an operand is not computed before it");
  BREAK(w->operands[0].res = 1, "an operand is not computed before it");
  BREAK(w->nodes[2].operand_count = 1, "node 2 (`add`): `add` takes 2 operands, not 1");
  BREAK(w->types[2].dtype = DT_F64, "result 0 is f64[N, 2], its rule says f32[N, 2]");
  BREAK(w->types[2].rank = 1, "result 0 is f32[N], its rule says");
  BREAK(w->types[2].rank = 13, "a result type is broken");
  BREAK(w->types[2].dtype = DT_COUNT, "a result type is broken");
  BREAK(w->types[2].dev = DEV_COUNT, "a result type is broken");
  BREAK(w->types[2].dev = DEV_SIM, "result 0 is f32[N, 2] on sim");
  BREAK(w->types[2].dim[0] = DIM_BAD, "a result type is broken");
  BREAK(w->types[2].dim[0] = 70000, "a result type is broken");
  BREAK(w->types[2].kind = TK_TOKEN, "a result type is broken");
  BREAK((w->types[2].kind = TK_TOKEN, w->types[2].alias = 0), "result 0 is token");
  BREAK(w->types[3].alias = 0, "another alias class");
  BREAK(w->types[2].alias = 0, "another alias class");
  BREAK(w->types[7].alias = 9, "a result type is broken");
  BREAK(w->nodes[7].attr_count = 0, "lacks a proper attribute `axes`");
  BREAK(w->attrs[w->nodes[7].attr0].key = AT_COUNT, "its attributes are broken");
  BREAK(w->attrs[w->nodes[7].attr0].key = AT_PERM, "lacks a proper attribute `axes`");
  BREAK(w->attrs[w->nodes[7].attr0].kind = AK_TEXT + 1, "its attributes are broken");
  BREAK(w->attrs[w->nodes[7].attr0].u.ints = NULL, "its attributes are broken");
  BREAK(w->attrs[w->nodes[0].attr0 + 1].key = AT_INDEX, "its attributes are broken");
  BREAK(w->attrs[w->nodes[0].attr0].u.i = 1, "inputs are not numbered in order");
  BREAK(w->nodes[6].region_count = 0, "it has another number of results");
  BREAK(w->regions[0] = NULL, "it has another number of results");
  BREAK(w->regions[0]->output_count = 0, "it has another number of results");
  BREAK(w->regions[0]->dims = dims, "region 0 of `wrap` has other dims");
  BREAK(w->regions[0]->nodes[1].op = OP_EXP + OP_COUNT, "node 1 (`?`): there is no such op");
  BREAK(w->regions[0]->nodes[1].op = OP_ISNAN, "node 1 (`isnan`): result 0 is f32");
  BREAK(w->regions[0]->input_count = 0, "takes 0 values, not 1");
  BREAK(w->regions[0] = w, "it has another number of results");
  BREAK(w->input_count = 1, "it is not among the inputs");
  BREAK(w->inputs[1] = w->inputs[0], "an input is no input node, or is given twice");
  BREAK(w->inputs[1].node = 2, "an input is no input node, or is given twice");
  BREAK(w->outputs[0].node = 8, "an output does not exist");
  BREAK(w->outputs[0].res = 1, "an output does not exist");
  BREAK(w->outputs[1].node = 4, "its token is an output and was used before");
  BREAK(w->outputs[0].node = 5, "its token is an output and was used before");
  BREAK(w->check_count = 0, "a condition on its sizes is not checked");
  BREAK(w->checks[0].kind = CHECK_GE, "a condition on its sizes is not checked");
  BREAK(w->checks[0].a = DIM_BAD, "a condition on its sizes is not checked");
  BREAK(w->checks[0].prov = 100, "a check is broken");
  BREAK(w->provs[w->nodes[2].prov].tag = 9, "its provenance is broken");
  BREAK(w->provs[w->nodes[2].prov].recomputed = 2, "its provenance is broken");
  BREAK(w->provs[w->nodes[2].prov].anomaly = 2, "its provenance is broken");
  BREAK(w->provs[w->nodes[2].prov].origin = -2, "its provenance is broken");
  BREAK(w->provs[w->nodes[2].prov].span.lo = 5, "its provenance is broken");
  BREAK(w->dims = NULL, "it has no dims");
#undef BREAK
  w = whole();
  check(w && gr_verify(w, &err));
}

/* Random damage of any field is found or harmless: the verifier itself never crashes. */
static void t_damage(void) {
  long found = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    Gen x;
    fresh();
    gen_open(&x, &arena, names, seed % 20, seed % 2, false);
    x.effects = x.writes = true;
    gen_graph(&x, 30);
    Graph *w = x.g;
    x.rng += seed * 7919;
    uint32_t *word = NULL;
    switch (gen_rnd(&x, 6)) {
    case 0:
      word = (uint32_t *)&w->nodes[gen_rnd(&x, (unsigned)w->node_count)] +
             gen_rnd(&x, sizeof(GNode) / 4);
      break;
    case 1:
      word = (uint32_t *)&w->operands[gen_rnd(&x, (unsigned)w->operand_count)] + gen_rnd(&x, 2);
      break;
    case 2:
      word = (uint32_t *)&w->types[gen_rnd(&x, (unsigned)w->type_count)] +
             gen_rnd(&x, sizeof(Type) / 4);
      break;
    case 3:
      word = (uint32_t *)&w->inputs[gen_rnd(&x, (unsigned)w->input_count)] + gen_rnd(&x, 2);
      break;
    case 4:
      word = (uint32_t *)&w->outputs[gen_rnd(&x, (unsigned)w->output_count)] + gen_rnd(&x, 2);
      break;
    default:
      if (w->check_count)
        word = (uint32_t *)&w->checks[gen_rnd(&x, (unsigned)w->check_count)] + gen_rnd(&x, 3);
    }
    if (!word) continue;
    *word = gen_rnd(&x, 2) ? gen_rnd(&x, 40) : *word ^ (1u << gen_rnd(&x, 32));
    if (!gr_verify(w, &err))
      found++;
    else
      gr_hash(w);
  }
  tap_note("%ld of 300 damages matter", found);
  check_int(found, >, 100);
}

static void all(void *ud) {
  (void)ud;
  TEST(t_elementwise(),
       "elementwise operands are equal in dtype and shape, and messages show a fix");
  TEST(t_products(), "products and convolutions explain what does not fit");
  TEST(t_moves(), "movements, reductions and indices explain what does not fit");
  TEST(t_failed(), "a failed node leaves the graph as it was");
  TEST(t_builders(), "builders stretch single numbers and make no idle nodes");
  TEST(t_provenance(), "a node gets another provenance, those after it do not");
  TEST(t_inline(), "inlined graphs get the caller's sizes, paths and checks");
  TEST(t_verify(), "the verifier finds each broken invariant");
  TEST(t_damage(), "the verifier survives random damage");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
