/* Kernels that are checked: every way to an address is compared with its buffer, for each lane that
 * runs, and for no other; drawn kernels do the same with and without. */
#include "jit/loop/loop_elem.h"
#include "ref-naive.h"

#include "jit/loop/loop_impl.h"
#include "kernels.h"
#include "loop-gen.h"

enum { N = 37, ITERATIONS = 20 };

typedef enum Form {
  ALONG,
  BACK,
  APART,
  ONE,
  DRAWN,
  GUARDED,
  SERIAL,
  LOCAL,
  TILE_OF_A,
  TILE_OF_B,
  TILE_START_OF,
  TRANSPOSED,
  FORMS
} Form;
static const char *const form_name[FORMS] = {"along",  "back",    "apart",      "one",
                                             "drawn",  "guarded", "serial",     "local",
                                             "tile a", "tile b",  "tile start", "transposed"};

/* A kernel that reads all of buffer 0 (of the local form: of 2) in this way, or writes it. */
static Kernel *make(Form form, bool store, int64_t *elements) {
  Kernel *k = lp_new(&arena);
  int x = lp_buf(k, store ? LB_OUT : LB_IN, DT_F32), y = lp_buf(k, store ? LB_IN : LB_OUT, DT_F32);
  LVal n = lp_size(k, 0), at, one = lp_i(k, 1), zero = lp_i(k, 0);
  lp_par(k, one);
  *elements = N;
  if (form == TRANSPOSED) { /* to[lane * 20 + iteration] = from[iteration * 20 + lane] */
    LVal iterations = lp_i(k, ITERATIONS), t = lp_for(k, iterations), l = lp_vec(k, iterations);
    LVal across = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, l, iterations), t);
    LVal along = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, t, iterations), l);
    lp_store(k, store ? x : y, across, lp_load(k, store ? y : x, along));
    lp_end(k);
    lp_end(k);
    lp_end(k);
    *elements = ITERATIONS * ITERATIONS;
    return k;
  }
  if (form >= TILE_OF_A && form <= TILE_START_OF) { /* 5 x 16 of depth 7 */
    int a = form == TILE_OF_A ? x : y, b = form == TILE_OF_B ? x : y;
    int start = form == TILE_START_OF ? x : LP_NO_BUF;
    LVal wide = lp_i(k, 16), operand[TILE_OPERANDS];
    for (int i = 0; i < TILE_OPERANDS; i++) operand[i] = zero;
    operand[TILE_DEPTH] = lp_i(k, 7);
    operand[TILE_ROWS] = lp_i(k, 5);
    operand[TILE_COLS] = wide;
    operand[TILE_A_ROW] = lp_i(k, form == TILE_OF_A ? 7 : 0);
    operand[TILE_A_STEP] = form == TILE_OF_A ? one : zero;
    operand[TILE_B_STEP] = form == TILE_OF_B ? wide : zero;
    operand[TILE_START_ROW] = wide;
    int out = lp_buf(k, LB_OUT, DT_F32);
    LVal tile = lp_tile(k, DT_F32, 5, 16, a, b, start, operand);
    LVal place = lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, lp_row(k, tile), wide), lp_col(k, tile));
    lp_store(k, out, place, tile);
    lp_end(k);
    lp_end(k);
    k->bufs[y].kind = LB_IN;
    *elements = form == TILE_OF_A ? 5 * 7 : form == TILE_OF_B ? 7 * 16 : 5 * 16;
    return k;
  }
  int local = form == LOCAL ? lp_local(k, DT_F32, 1, 1) : 0;
  LVal i = form == SERIAL ? lp_for(k, n) : lp_vec(k, n);
  LVal last = lp_bin(k, RB_SUB, n, one);
  switch (form) {
  case BACK: at = lp_bin(k, RB_SUB, last, i); break;
  case APART:
    at = lp_bin(k, RB_MUL, i, lp_i(k, 3));
    *elements = 3 * (N - 1) + 1;
    break;
  case ONE: at = last; break;
  case DRAWN: /* 36 is among them */ at = lp_irem(k, lp_bin(k, RB_MUL, i, i), n); break;
  case GUARDED: /* lanes before and behind the buffer do not run */
    at = lp_bin(k, RB_SUB, i, lp_i(k, 5));
    lp_if(k, lp_bin(k, RB_AND, lp_bin(k, RB_GE, at, zero), lp_bin(k, RB_LT, at, lp_i(k, 20))));
    *elements = 20;
    break;
  default: at = i; break;
  }
  if (form == LOCAL) {
    lp_store(k, local, at, lp_load(k, store ? y : x, i));
    lp_store(k, store ? x : y, i, lp_load(k, local, at));
  } else if (store) {
    LVal v = form == ONE ? lp_const(k, DT_F32, 1) : lp_load(k, y, i);
    lp_store(k, x, at, v);
  } else {
    lp_store(k, y, i, lp_load(k, x, at));
  }
  if (form == GUARDED) lp_end(k);
  lp_end(k);
  lp_end(k);
  return k;
}

/* Runs the code with so many elements of the buffer told, at this level. */
static KStatus run(const Code *c, int level, int64_t told, bool local) {
  enum { ROOM = 512 };
  static float room[3][ROOM];
  int64_t arg[8] = {N, local ? told : N};
  void *buf[4] = {room[0], room[1], room[2], room[2]};
  KStatus st = {0};
  char *scratch = aligned_alloc(64, 4096);
  for (int64_t *bytes = arg + c->k->arg_count, b = 0; b < 3; b++) bytes[b] = sizeof room[0];
  if (!local) arg[c->k->arg_count] = told * (int64_t)sizeof(float);
  for (int b = 0; b < 3; b++)
    for (int i = 0; i < ROOM; i++) room[b][i] = -1;
  c->code[level].entry(buf, arg, 0, 1, scratch, &st);
  for (int64_t i = told; i < ROOM && !local && c->k->bufs[0].kind == LB_OUT; i++)
    check(room[0][i] == -1);
  free(scratch);
  return st;
}

static void t_form(Form form, bool store) {
  Code c;
  int64_t elements, under = form == LOCAL ? 2 : 0;
  Kernel *k = make(form, store, &elements);
  k->checked = true;
  if (k->arg_count < 2) k->arg_count = 2;
  if (code_make(&c, k))
    for (int l = 0; l <= (int)eng_host_level(); l++)
      for (int64_t less = 0; less < 4; less++) {
        KStatus st = run(&c, l, elements - less, form == LOCAL);
        if (!check_msg(!st.outside == !less && !st.failed, "%s, %s, level %d, %d less: %d",
                       form_name[form], store ? "store" : "load", l, (int)less, st.outside))
          tap_note("%s", c.text);
        if (!less || !st.outside) continue;
        const LIns *in = &k->ins[st.outside - 1];
        LOp op = form >= TILE_OF_A && form <= TILE_START_OF ? LP_TILE
                 : store || form == LOCAL                   ? LP_STORE
                                                            : LP_LOAD;
        check_int(in->op, ==, op);
        check_int(st.outside_buf, ==, under);
        check_int(st.outside_at, >=, (elements - less) * 4);
        check_int(st.outside_at, <, elements * 4);
      }
  code_free(&c);
  rewind_arena();
}

static void t_loads(void) {
  for (int form = 0; form < FORMS; form++) t_form((Form)form, false);
}

static void t_stores(void) {
  for (int form = 0; form < FORMS; form++)
    if (form < TILE_OF_A || form > TILE_START_OF) t_form((Form)form, true);
}

/* An index below 0 is behind every buffer. */
static void t_before(void) {
  for (int lanes = 0; lanes < 2; lanes++) {
    Kernel *k = lp_new(&arena);
    int x = lp_buf(k, LB_IN, DT_F32), y = lp_buf(k, LB_OUT, DT_F32);
    LVal n = lp_size(k, 0), first = lp_size(k, 1);
    lp_par(k, lp_i(k, 1));
    LVal i = lanes ? lp_vec(k, n) : lp_for(k, n);
    lp_store(k, y, i, lp_load(k, x, lp_bin(k, RB_SUB, i, first)));
    lp_end(k);
    lp_end(k);
    k->checked = true;
    Code c;
    if (code_make(&c, k))
      for (int l = 0; l <= (int)eng_host_level(); l++)
        for (int64_t from = 0; from < 40; from += 13) {
          float room[2][N] = {{0}};
          KStatus st = {0};
          int64_t arg[4] = {N, from, sizeof room[0], sizeof room[1]};
          c.code[l].entry((void *[]){room[0], room[1]}, arg, 0, 1, NULL, &st);
          check_int(!st.outside, ==, !from);
          if (from) check_int(st.outside_at, ==, -4 * from);
        }
    code_free(&c);
    rewind_arena();
  }
}

/* Each access of a drawn kernel is inside, and what it computes is the same. */
static void t_drawn(uint64_t from, uint64_t to) {
  for (uint64_t s = from; s < to; s++) {
    LoopGen g;
    Code c;
    char text[200];
    lg_make(&g, &arena, s);
    g.k->checked = true;
    LgData *want = lg_data(&g);
    bool ok = lp_run(&mem, g.k, want->buf, g.arg, 0, g.arg[0], &want->st) && code_make(&c, g.k);
    int64_t arg[LG_ARGS + LG_BUFS];
    memcpy(arg, g.arg, sizeof g.arg);
    for (int b = 0; b < LG_SCRATCH; b++) arg[LG_ARGS + b] = (int64_t)lg_size(b);
    for (int l = 0; l <= (int)eng_host_level() && ok; l++) {
      LgData *got = lg_data(&g);
      char *scratch = aligned_alloc(64, (size_t)lp_local_bytes(g.k, g.arg) + 64);
      c.code[l].entry(got->buf, arg, 0, g.arg[0], scratch, &got->st);
      ok = check_msg(!got->st.outside, "kernel %d at %s: instruction %d leaves b%d", (int)s,
                     eng_targets[l].name, got->st.outside - 1, got->st.outside_buf);
      if (ok && !lg_same(want, got, text, sizeof text))
        ok = tap_fail(TAP_HERE, "kernel %d at %s: %s", (int)s, eng_targets[l].name, text);
      free(scratch);
      lg_data_free(got);
    }
    lg_data_free(want);
    code_free(&c);
    rewind_arena();
  }
}

int main(int argc, char **argv) {
  open_all();
  arena_init(&arena, &mem);
  if (!codegen_start()) {
    TEST(SKIP("no code generator"), "kernels that are checked");
    close_all();
    return tap_done();
  }
  if (argc == 3) {
    TEST(t_drawn(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0)),
         "kernels drawn by number");
  } else {
    TEST(t_loads(), "loads of every form");
    TEST(t_stores(), "stores of every form");
    TEST(t_before(), "what is before a buffer is outside");
    TEST(t_drawn(0, 8), "drawn kernels stay inside");
  }
  codegen_stop();
  arena_free(&arena);
  close_all();
  return tap_done();
}
