/* A C program against the installed library: header and library are of one version. */
#include <ckl.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  puts(ckl_version());
  return strcmp(ckl_version(), CKL_VERSION) != 0;
}
