/* The program of docs/embedding.md: a model trained and called from C. Exit status 0 is a pass. */
#include <ckl.h>
#include <stdio.h>

static const char program[] =
    "use nn (Linear)\n"
    "fn loss[N](net: Linear, x: f32[N, 2], y: f32[N, 1]) -> f32 = mse(net(x), y)\n"
    "seed(0)\n"
    "let net = Linear(2, 1)\n"
    "let opt = sgd(net, 0.1)\n"
    "proc train(x, y, steps: int) {\n"
    "  for i in 0..steps { opt.step(grad(loss(net, x, y), net)) }\n"
    "  loss(net, x, y)\n"
    "}\n";

static void print(void *ud, int stream, const char *text, size_t n) {
  (void)ud;
  fwrite(text, 1, n, stream == CKL_STDERR ? stderr : stdout);
}

/* Says what went wrong in the last call on `s`. */
static int complain(ckl_session *s) {
  for (size_t i = 0; i < ckl_diag_count(s); i++) fputs(ckl_diag_text(s, i, 0), stderr);
  return 1;
}

int main(void) {
  ckl_config config = {.size = sizeof config, .write = print};
  ckl_session *s = ckl_open(&config);
  if (!s) return 1;
  if (ckl_eval(s, program, "program", NULL) != CKL_OK) return complain(s);

  float x[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, y[4] = {1, 3, 0, 2}; /* y = 1 + 2 b - a */
  ckl_value *args[3] = {
      ckl_tensor_borrow(s, "f32", 2, (int64_t[]){4, 2}, x, NULL, NULL), /* not copied */
      ckl_tensor(s, "f32", 2, (int64_t[]){4, 1}, y),                    /* copied */
      ckl_int(s, 200),
  };
  ckl_value *train = ckl_get(s, "train"), *net = ckl_get(s, "net"), *out = NULL;
  if (ckl_call(s, train, args, 3, &out) != CKL_OK) return complain(s);
  printf("loss below 1e-6: %s\n", ckl_to_float(out) < 1e-6 ? "yes" : "no");
  ckl_release(out);

  out = NULL;
  if (ckl_call(s, net, args, 1, &out) != CKL_OK) return complain(s);
  const float *p = ckl_tensor_data(out);
  for (int i = 0; i < 4; i++) printf("%.2f\n", p[i]);
  ckl_release(out);

  /* a call that fails leaves everything as it was */
  out = NULL;
  ckl_status status = ckl_call(s, net, &args[1], 1, &out);
  printf("status %d, %s\n", status, ckl_diag_code(s, 0));

  for (int i = 0; i < 3; i++) ckl_release(args[i]);
  ckl_release(train);
  ckl_release(net);
  ckl_close(s);
  return status == CKL_OK;
}
