/* Runs small programs in several modes and tells their results as text, bit for bit; for the
 * programs of this folder. A mode is a session: how compiled functions run (ckl_config.cpu). */
#ifndef CKL_TESTS_COVER_MODES_H
#define CKL_TESTS_COVER_MODES_H

#include <ckl.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Text { /* grows; never NULL once written to */
  char *s;
  size_t n, cap;
} Text;

typedef struct Result {
  ckl_status status;
  char code[32];
  Text message; /* of the first error */
  Text bits;    /* the value, see tell */
  Text printed;
  ckl_value *value; /* a reference, or NULL */
} Result;

static void text_bytes(Text *t, const char *s, size_t n) {
  if (t->n + n + 1 > t->cap) {
    t->cap = 2 * t->cap + n + 64;
    t->s = realloc(t->s, t->cap);
    if (!t->s) abort();
  }
  if (n) memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static void
text_add(Text *t, const char *fmt, ...) {
  char small[512];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if ((size_t)n < sizeof small) {
    text_bytes(t, small, (size_t)n);
    return;
  }
  char *big = malloc((size_t)n + 1);
  va_start(ap, fmt);
  vsnprintf(big, (size_t)n + 1, fmt, ap);
  va_end(ap);
  text_bytes(t, big, (size_t)n);
  free(big);
}

static void text_clear(Text *t) {
  text_bytes(t, "", 0);
  t->n = 0;
  t->s[0] = 0;
}

static size_t element_bytes(const char *dtype) {
  if (!strcmp(dtype, "bool")) return 1;
  size_t bits = (size_t)atoi(dtype + strcspn(dtype, "0123456789"));
  return bits / 8;
}

/* Element i as a double: of f64 and f32; of the others what C reads there. */
static double element(const char *dtype, const void *data, size_t i) {
  double d = 0;
  float f = 0;
  if (!strcmp(dtype, "f64")) return memcpy(&d, (const char *)data + 8 * i, 8), d;
  if (!strcmp(dtype, "f32")) return memcpy(&f, (const char *)data + 4 * i, 4), (double)f;
  if (!strcmp(dtype, "i64")) {
    int64_t k = 0;
    memcpy(&k, (const char *)data + 8 * i, 8);
    return (double)k;
  }
  return ((const unsigned char *)data)[i * element_bytes(dtype)];
}

static size_t elements(const ckl_value *v) {
  size_t n = 1;
  for (int k = 0; k < ckl_tensor_rank(v); k++) n *= (size_t)ckl_tensor_dim(v, k);
  return n;
}

/* The value as a text: kinds, dtypes, dims, and every bit; NaNs are alike. */
static void tell(Text *t, ckl_value *v) {
  double x;
  size_t n;
  const char *dtype = ckl_tensor_dtype(v);
  if (dtype) {
    text_add(t, "%s[", dtype);
    for (int k = 0; k < ckl_tensor_rank(v); k++)
      text_add(t, "%s%lld", k ? "," : "", (long long)ckl_tensor_dim(v, k));
    text_add(t, "]");
    size_t size = element_bytes(dtype);
    const unsigned char *p = ckl_tensor_data(v);
    n = elements(v);
    for (size_t i = 0; p && i < n; i++) {
      x = dtype[0] == 'f' && size > 2 ? element(dtype, p, i) : 0;
      if (x != x) {
        text_add(t, " nan");
        continue;
      }
      text_add(t, " ");
      for (size_t b = size; b-- > 0;) text_add(t, "%02x", p[i * size + b]);
    }
    return;
  }
  switch (ckl_kind_of(v)) {
  case CKL_UNIT: text_add(t, "()"); break;
  case CKL_NONE: text_add(t, "none"); break;
  case CKL_BOOL: text_add(t, ckl_to_int(v) ? "true" : "false"); break;
  case CKL_INT: text_add(t, "int %lld", (long long)ckl_to_int(v)); break;
  case CKL_FLOAT:
    x = ckl_to_float(v);
    text_add(t, x != x ? "float nan" : "float %a", x);
    break;
  case CKL_STR: text_add(t, "\"%s\"", ckl_to_str(v, &n)); break;
  case CKL_LIST:
  case CKL_TUPLE:
  case CKL_RECORD:
    text_add(t, ckl_kind_of(v) == CKL_LIST ? "list(" : "(");
    for (size_t i = 0; i < ckl_length(v); i++) {
      ckl_value *item = ckl_item(v, i);
      if (ckl_kind_of(v) == CKL_RECORD) text_add(t, "%s = ", ckl_field_name(v, i));
      tell(t, item);
      text_add(t, ", ");
      ckl_release(item);
    }
    text_add(t, ")");
    break;
  case CKL_FN: text_add(t, "a function"); break;
  case CKL_MODEL: text_add(t, "a model"); break;
  default: text_add(t, "something else"); break;
  }
}

/* ---- sessions */

static Text *written; /* gets what programs print */

static void write_text(void *ud, int stream, const char *text, size_t n) {
  (void)ud;
  if (stream == CKL_STDOUT && written) text_bytes(written, text, n);
}

static ckl_session *open_cpu(const char *cpu) {
  ckl_config config = {
      .size = sizeof config, .cpu = cpu, .write = write_text, .threads = 1, .max_steps = 1000000};
  ckl_session *s = ckl_open(&config);
  if (!s) {
    printf("Bail out! no session of the mode %s\n", cpu);
    exit(2);
  }
  return s;
}

static void failed(ckl_session *s, Result *r) {
  for (size_t i = 0; i < ckl_diag_count(s); i++) {
    if (!ckl_diag_is_error(s, i)) continue;
    snprintf(r->code, sizeof r->code, "%s", ckl_diag_code(s, i));
    text_add(&r->message, "%s", ckl_diag_text(s, i, 0));
    return;
  }
}

/* Runs a text; the value of its last expression is the result. */
static void run(ckl_session *s, const char *text, Result *r) {
  text_clear(&r->message);
  text_clear(&r->bits);
  text_clear(&r->printed);
  r->code[0] = 0;
  ckl_release(r->value);
  r->value = NULL;
  written = &r->printed;
  r->status = ckl_eval(s, text, "case", &r->value);
  written = NULL;
  if (r->status != CKL_OK)
    failed(s, r);
  else
    tell(&r->bits, r->value);
}

static void comment(const char *text) {
  fputs("# ", stdout);
  for (const char *c = text; *c; c++) {
    putchar(*c);
    if (*c == '\n' && c[1]) fputs("# ", stdout);
  }
  if (!*text || text[strlen(text) - 1] != '\n') putchar('\n');
}

/* The text of a file, or the end of the program. */
static char *read_text(const char *path) {
  FILE *f = fopen(path, "r");
  Text t = {0};
  char part[4096];
  if (!f) {
    printf("Bail out! %s cannot be read\n", path);
    exit(2);
  }
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) text_bytes(&t, part, n);
  fclose(f);
  text_add(&t, "\n");
  return t.s;
}

#endif
