/* makes_code.h: for tests that ask for machine code. Where none can be made, a session takes other
 * forms without a word, and the test would be of those. */
#ifndef TESTS_MAKES_CODE_H
#define TESTS_MAKES_CODE_H

#include <ckl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool makes_code(const char *cpu) {
  ckl_session *s = ckl_open(&(ckl_config){.size = sizeof(ckl_config), .cpu = cpu, .cache = ""});
  ckl_value *v = NULL;
  if (!s) return false;
  ckl_eval(s, "fn probe(x: f64[3]) = x * 1.75 - 0.375\nprobe(f64([1, 2, 3]))", "probe", &v);
  bool made = ckl_counter(s, "jit.generated") > 0;
  ckl_release(v);
  ckl_close(s);
  return made;
}

/* Ends the program if `cpu`, as in ckl_config, is a level of machine code that cannot be made. */
static inline void must_make_code(const char *cpu) {
  if (strcmp(cpu, "reference") == 0 || strcmp(cpu, "loops") == 0 || makes_code(cpu)) return;
  printf("Bail out! no machine code is made for %s; CKL_CODEGEN says where ckl-codegen is\n", cpu);
  exit(2);
}

#endif
