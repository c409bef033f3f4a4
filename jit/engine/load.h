/* From an ELF object in memory to code that runs.
 *
 * Objects come from the code generator, from the cache on disk or from installed files, so they are
 * not trusted: anything but the plain relocatable object of one kernel is refused with a reason.
 */
#ifndef CKL_JIT_ENGINE_LOAD_H
#define CKL_JIT_ENGINE_LOAD_H

#include "jit/loop/loop.h"

typedef struct LoadCode {
  KernelFn entry; /* NULL: nothing is loaded */
  void *base;     /* the mapping: code and constants, readable and executable */
  size_t size;
  size_t code_size; /* bytes of the entry function */
  void *debug;      /* entry in the debugger's list */
} LoadCode;

/* Maps a copy of the x86-64 object: sections with code and constants, relocated against each
 * other, its global function `k` as entry. `bytes` are not needed afterwards. False with `e` if it
 * is not such an object, uses a symbol that it does not define, or memory runs out. */
bool load_object(Mem *m, const void *bytes, size_t n, LoadCode *out, Err *e);
void load_free(Mem *m, LoadCode *c);
size_t load_bytes(const LoadCode *c); /* bytes that load_free will free */

#endif
