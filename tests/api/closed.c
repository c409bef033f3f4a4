/* A host that runs what others wrote: the program reaches what the host lets it reach. */
#include <ckl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char store[] = "closed-store.tmp";

/* One name of the program's, which lies where the host says; nothing else. */
static bool may_open(void *ud, const char *path, bool to_write, const char **instead) {
  int *asked = ud;
  asked[to_write]++;
  if (strcmp(path, "weights")) return false;
  *instead = store;
  return true;
}

static int expect(ckl_session *s, const char *text, ckl_status want, const char *code) {
  ckl_status st = ckl_eval(s, text, "program", NULL);
  const char *got = ckl_diag_count(s) ? ckl_diag_code(s, 0) : "";
  if (st == want && !strcmp(got, code)) return 0;
  printf("%s\ngives status %d %s, not %d %s\n", text, st, got, want, code);
  for (size_t i = 0; i < ckl_diag_count(s); i++) fputs(ckl_diag_text(s, i, 0), stdout);
  return 1;
}

/* Stops a program at the third question. */
static int progress(void *ud) {
  return ++*(int *)ud == 3;
}

typedef struct Heap {
  size_t held, most;
} Heap;

static void *heap(void *ud, void *p, size_t old, size_t size) {
  Heap *h = ud;
  h->held += size - old;
  if (h->held > h->most) h->most = h->held;
  if (size) return realloc(p, size);
  free(p);
  return NULL;
}

int main(void) {
  int wrong = 0;

  /* no files at all; what is embedded is no file */
  ckl_config none = {.size = sizeof none, .files = ""};
  ckl_session *s = ckl_open(&none);
  if (!s) return 1;
  wrong |= expect(s, "use nn (Linear)\nlet net = Linear(2, 1)\n", CKL_OK, "");
  wrong |= expect(s, "save(net, \"closed.tmp\")\n", CKL_ERUN, "file-4");
  wrong |= expect(s, "use \"/etc/hostname\" as m\n", CKL_EPROGRAM, "file-4");
  wrong |= ckl_may_read(s, "/etc/hostname");
  ckl_close(s);

  /* files as the host says */
  int asked[2] = {0, 0};
  ckl_config host = {.size = sizeof host, .may_open = may_open, .may_open_ud = asked};
  s = ckl_open(&host);
  if (!s) return 1;
  wrong |= expect(s, "save(list(f32([1, 2])), \"weights\")\n", CKL_OK, "");
  wrong |= expect(s, "assert load(list(zeros([2])), \"weights\")[0] == f32([1, 2])\n", CKL_OK, "");
  wrong |= expect(s, "save(list(f32([1, 2])), \"other\")\n", CKL_ERUN, "file-4");
  wrong |= !ckl_may_read(s, "weights") || ckl_may_read(s, "other");
  wrong |= asked[0] != 3 || asked[1] != 2;
  ckl_close(s);
  wrong |= remove(store) != 0;

  /* so many steps, in each call; what the session holds stays */
  int asks = 0;
  ckl_config steps = {.size = sizeof steps,
                      .max_steps = 10000,
                      .progress = progress,
                      .progress_ud = &asks,
                      .progress_steps = 3000};
  s = ckl_open(&steps);
  if (!s) return 1;
  wrong |= expect(s, "let x = 1\nwhile true { }\n", CKL_EINTERRUPT, "run-1");
  wrong |= expect(s, "while true { }\n", CKL_ERUN, "run-5");
  wrong |= expect(s, "assert x == 1\n", CKL_OK, "");
  wrong |= asks != 6;
  ckl_close(s);

  /* so many bytes, of whatever kind */
  Heap h = {0, 0};
  ckl_config memory = {.size = sizeof memory,
                       .alloc = heap,
                       .alloc_ud = &h,
                       .max_nodes = 2000,
                       .memory_limit = 16 << 20};
  s = ckl_open(&memory);
  if (!s) return 1;
  wrong |= expect(s, "var t = \"text\"\nwhile true { t = \"{t}{t}\" }\n", CKL_ENOMEM, "mem-1");
  wrong |= expect(s, "var l = list(t)\nwhile true { l = concat(l, l) }\n", CKL_ENOMEM, "mem-1");
  wrong |= ckl_reset(s) != CKL_OK;
  wrong |= expect(s, "let x = uniform([3000, 3000])\n", CKL_ENOMEM, "mem-1");
  wrong |= expect(s,
                  "fn f(x: f32) -> f32 {\n  var y = x\n  let k = (2.0, 3.0)\n"
                  "  for i in 0..100 { for j in 0..100 { y = y * k[(i + j) % 2] } }\n  y\n}\n"
                  "f(1.0)\n",
                  CKL_ERUN, "graph-2");
  wrong |= expect(s, "assert sum(ones([1000])) == 1000\n", CKL_OK, "");
  wrong |= ckl_counter(s, "bytes.live") > 16 << 20 || ckl_counter(s, "data.live") != 0;
  ckl_close(s);
  if (h.most > 16 << 20 || h.held) {
    printf("%zu bytes were held, %zu are left\n", h.most, h.held);
    wrong = 1;
  }

  /* a folder that is not there is no session */
  ckl_config folder = {.size = sizeof folder, .files = "no/such/folder"};
  wrong |= (s = ckl_open(&folder)) != NULL;
  ckl_close(s);
  return wrong;
}
