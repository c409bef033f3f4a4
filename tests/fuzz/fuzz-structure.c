/* fuzz-structure SECONDS [SEED]: mutated structures of buffers into `load`.
 *
 * A saved file says in its metadata what a buffer of any structure is made of
 * (lang/value/packed.c). One that is read is saved, and read again, the same; one that is refused
 * says why, and leaves the buffer as it was. A find is printed with its text. */
#include <unistd.h>

#include "include/ckl.h"
#include "tests/fuzz/mutate.h"

static ckl_session *session;
static char file[] = "/tmp/ckl-structure-XXXXXX", again[sizeof file + 8], run_text[512];

static const char *const words[] = {"i",    "i-7;", "f3ff0000000000000;",
                                    "T",    "F",    "n",
                                    "u",    "t",    "l",
                                    "l0",   "l1",   "p2",
                                    "r1",   "d1",   "d2",
                                    "s1:a", "s0:",  ";",
                                    ":",    "\\",   "\\0",
                                    "999",  "s5:",  "s2:\303\251",
                                    NULL};

static void draw(void *ud) {
  static const char *const seeds[] = {"d3s1:ai2;i-3;f3ff8000000000000;p2T s1:bn",
                                      "l3i1;tl2F u",
                                      "r2s1:xts4:namei0;",
                                      "d2s5:a b\\\\i1;p2i3;s1:zl2ts2:\\00",
                                      "l2d0r1s1:np1u",
                                      "s3:abc",
                                      "i9223372036854775807;"};
  (void)ud;
  set_text(seeds[rnd(sizeof seeds / sizeof *seeds)]);
  for (char *p = text; (p = strchr(p, ' ')); length--) memmove(p, p + 1, strlen(p));
}

static void json(FILE *f, const char *s) {
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      fprintf(f, "\\%c", *s);
    else if ((unsigned char)*s < 32)
      fprintf(f, "\\u%04x", *s);
    else
      fputc(*s, f);
  }
}

/* A file with this structure, and tensors where its parts may have some. */
static void write_file(void) {
  char *header;
  size_t n;
  FILE *h = open_memstream(&header, &n), *f = fopen(file, "wb");
  fprintf(h, "{\"__metadata__\":{\"ckl.format\":\"1\",\"ckl.structure.b\":\"");
  json(h, text);
  fprintf(h, "\"}");
  static const char *const paths[] = {"b", "b.0", "b.1", "b.2", "b.x", "b.a", "b.1.0", "b.x.0"};
  for (int i = 0; i < 8; i++)
    fprintf(h, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}", paths[i],
            4 * i, 4 * i + 4);
  fprintf(h, "}");
  fclose(h);
  uint64_t size = n;
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  fwrite(&size, 8, 1, f);
  fwrite(header, 1, n, f);
  fwrite(data, sizeof data, 1, f);
  fclose(f);
  free(header);
}

static ckl_status eval(const char *program) {
  return ckl_eval(session, program, "fuzz", NULL);
}

static void feed(void *ud) {
  (void)ud;
  write_file();
  if (eval("m.b = \"kept\"") != CKL_OK) die("the session is lost", "");
  snprintf(run_text, sizeof run_text, "load(m, \"%s\", partial = true)", file);
  soon(true);
  ckl_status st = eval(run_text);
  soon(false);
  if (st != CKL_OK) {
    bool told = ckl_diag_count(session) && strncmp(ckl_diag_code(session, 0), "bug", 3);
    if (!told) die("refused without a reason", "");
    if (eval("assert m.b == \"kept\"") != CKL_OK) die("refused, and changed the buffer", "");
    return;
  }
  taken++;
  snprintf(run_text, sizeof run_text,
           "save(m, \"%s\"); load(o, \"%s\"); assert same(buffers(m), buffers(o))", again, again);
  if (eval(run_text) != CKL_OK) die("not the same when saved", ckl_diag_text(session, 0, 0));
  ran++;
}

static void quiet(void *ud, int stream, const char *s, size_t n) {
  (void)ud, (void)stream, (void)s, (void)n;
}

static void ignore(int sig) {
  (void)sig;
}

int main(int argc, char **argv) {
  Target t = {"read", words, draw, feed, ignore};
  ckl_config c = {.size = sizeof c, .write = quiet};
  int fd = mkstemp(file);
  if (fd < 0) return 77;
  close(fd);
  snprintf(again, sizeof again, "%s.again", file);
  session = ckl_open(&c);
  if (eval("model M() { buffer b: any = none }\nlet m = M()\nlet o = M()") != CKL_OK) return 1;
  int r = fuzz(argc, argv, &t);
  ckl_close(session);
  unlink(file);
  unlink(again);
  return r;
}
