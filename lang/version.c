/* The version of the library. */
#include "ckl.h"

const char *ckl_version(void) { return CKL_VERSION; }
