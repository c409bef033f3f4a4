/* A host that runs what others wrote: the program reaches what the host lets it reach. */
#include <ckl.h>
#include <stdio.h>
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

  /* a folder that is not there is no session */
  ckl_config folder = {.size = sizeof folder, .files = "no/such/folder"};
  wrong |= (s = ckl_open(&folder)) != NULL;
  ckl_close(s);
  return wrong;
}
