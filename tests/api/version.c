/* A C program against the installed library: header and library are of one version. */
#include <ckl.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  puts(ckl_version());
  ckl_session *s = ckl_open(NULL);
  if (!s) return 1;
  const char *libraries = ckl_libraries(s);
  if (!libraries || !strstr(libraries, "PCRE2 1") || !strstr(libraries, "Unicode 1")) return 1;
  ckl_close(s);
  return strcmp(ckl_version(), CKL_VERSION) != 0;
}
