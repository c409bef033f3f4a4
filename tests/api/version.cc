/* A C++ program against the installed library: header and library are of one version. */
#include <ckl.h>
#include <cstdio>
#include <cstring>

int main() {
  std::puts(ckl_version());
  return std::strcmp(ckl_version(), CKL_VERSION) != 0;
}
