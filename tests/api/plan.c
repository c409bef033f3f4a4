/* What a call takes, from C: the record and the text are those of `plan` and `ckl plan`. */
#include <ckl.h>
#include <stdio.h>
#include <string.h>

static int64_t field(const ckl_value *record, const char *name) {
  for (size_t i = 0; i < ckl_length(record); i++) {
    if (strcmp(ckl_field_name(record, i), name)) continue;
    ckl_value *v = ckl_item(record, i);
    int64_t n = ckl_to_int(v);
    ckl_release(v);
    return n;
  }
  return -1;
}

int main(void) {
  ckl_session *s = ckl_open(NULL);
  ckl_value *p = NULL;
  const char *program =
      "fn f(x: f32[64], n: int) = sum(checkpoint <budget = n> { exp(cumsum(sin(cumsum(x)))) })\n"
      "let x = track(ones([64]))\n";
  int wrong = ckl_eval(s, program, "demo", NULL) != CKL_OK;
  ckl_value *args[2] = {ckl_get(s, "x"), ckl_int(s, 1 << 20)}, *f = ckl_get(s, "f");
  wrong |= ckl_plan_call(s, f, args, 2, &p) != CKL_OK;
  wrong |= field(p, "peak") <= 0 || field(p, "peak") < field(p, "arena");
  wrong |= field(p, "saved") < 0 || field(p, "flops") <= 0 || field(p, "exact") != 1;
  printf("peak %lld\n", (long long)field(p, "peak"));
  ckl_release(p);
  ckl_release(args[1]);
  args[1] = ckl_int(s, 0); /* no plan keeps that */
  wrong |= ckl_plan_call(s, f, args, 2, &p) != CKL_ERUN || p != NULL;
  wrong |= ckl_diag_count(s) != 1 || strcmp(ckl_diag_code(s, 0), "policy-7") != 0;
  wrong |= ckl_plan_call(s, NULL, args, 2, &p) != CKL_EUSAGE;
  ckl_release(args[0]);
  ckl_release(args[1]);
  ckl_release(f);
  ckl_close(s);
  return wrong;
}
