/* Costs of nodes, against counts by hand: the products of each contraction, elements that a
 * reduction goes through, iterations; numbers that would wrap saturate. */
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"

#include "tests/unit/graphs.h"

static const char text[] =
    "graph \"f\" {\n"
    "  %0 = input {index=0 dtype=f32 device=cpu dims=[2, 3, 8, 9]} : f32[2, 3, 8, 9]\n"
    "  %1 = input {index=1 dtype=f32 device=cpu dims=[5, 3, 3, 2]} : f32[5, 3, 3, 2]\n"
    "  %2 = conv2d %0 %1 {stride=(1, 1) pad=(0, 0)} : f32[2, 5, 6, 8]\n"
    "  %3 = conv2d_input %2 %1 {dims=[2, 3, 8, 9] stride=(1, 1) pad=(0, 0)} : f32[2, 3, 8, 9]\n"
    "  %4 = conv2d_weight %0 %2 {dims=[5, 3, 3, 2] stride=(1, 1) pad=(0, 0)} : f32[5, 3, 3, 2]\n"
    "  %5 = sum %0 {axes=(0, 1, 2, 3)} : f32\n"
    "  %6 = reshape %1 {dims=[9, 10]} : f32[9, 10]\n"
    "  %7 = input {index=2 dtype=f32 device=cpu dims=[7, 9]} : f32[7, 9]\n"
    "  %8 = dot %7 %6 : f32[7, 10]\n"
    "  %9 = exp %8 : f32[7, 10]\n"
    "  return %2 %3 %4 %5 %9\n"
    "}\n";

static void t_counts(void) {
  Env v;
  env_open(&v);
  GErr e = {.operand = -1};
  Graph *g = gr_read(&v.arena, v.names, text, strlen(text), &e);
  if (!g) fails("line %u: %s", e.line, e.text);
  if (g) {
    check_int(cost_flops(g, 2, NULL), ==, 2 * (2 * 5 * 6 * 8) * (3 * 3 * 2));
    check_int(cost_flops(g, 3, NULL), ==, 2 * (2 * 3 * 8 * 9) * (5 * 3 * 2));
    check_int(cost_flops(g, 4, NULL), ==, 2 * (5 * 3 * 3 * 2) * (2 * 6 * 8));
    check_int(cost_steps(g, 5, NULL), ==, 2 * 3 * 8 * 9);
    check_int(cost_flops(g, 8, NULL), ==, 2 * 7 * 10 * 9);
    check_int(cost_steps(g, 9, NULL), ==, 70);
    check_int(cost_bytes(g, gr_type(g, (Val){8, 0}), NULL), ==, 280);
    check_int(cost_room(g, gr_type(g, (Val){8, 0}), NULL), ==, 320);
  }
  env_close(&v);
}

/* Nanoseconds of conv2d, conv2d_input, conv2d_weight (a tenth for each product), inputs and the
 * sum (an element is read and written, the sum adds), the dot, and exp. */
static void t_seconds(void) {
  Env v;
  env_open(&v);
  GErr e = {.operand = -1};
  Graph *g = gr_read(&v.arena, v.names, text, strlen(text), &e);
  double convs = 0.1 * (480 * 18 + 432 * 30 + 90 * 96), rest = 432 + 90 + 63 + 432 * 2;
  double last = 0.1 * (70 * 9) + 70 * (1 + op_info[OP_EXP].cost);
  if (!g) fails("line %u: %s", e.line, e.text);
  if (g) check_near(1e9 * cost_seconds(g, NULL), convs + rest + last, 1e-6);
  env_close(&v);
}

static void t_saturates(void) {
  check_int(cost_mul(INT64_MAX / 8, 3), ==, INT64_MAX / 4);
  check_int(cost_mul(INT64_MAX, 0), ==, 0);
  check_int(cost_add(INT64_MAX / 4, 1), ==, INT64_MAX / 4);
  check_int(cost_add(INT64_MAX / 4, INT64_MAX), ==, INT64_MAX / 4);
}

int main(void) {
  TEST(t_counts(), "products, elements and bytes are those counted by hand");
  TEST(t_seconds(), "seconds of the reference evaluator count the products of convolutions");
  TEST(t_saturates(), "numbers that would wrap stay at the most");
  return tap_done();
}
