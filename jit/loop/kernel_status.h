/* Machine code of a kernel as its caller sees it. */
#ifndef CKL_JIT_LOOP_KERNEL_STATUS_H
#define CKL_JIT_LOOP_KERNEL_STATUS_H

#include <stdint.h>

#include "runtime/interrupt.h"

typedef struct KStatus {
  _Atomic int32_t failed; /* set to 1 by LP_CHECK and the like; the host then asks the reference
                             evaluator for the message */
  Interrupt stop;         /* set from outside: long LP_FOR loops return early */
  /* Set by a checked kernel that returned early since an address was outside of its buffer: 1 + the
   * number of the first such instruction (else 0), the buffer, and the offset in bytes. */
  int32_t outside, outside_buf;
  int64_t outside_at;
} KStatus;
/* A target's host function: iterations lo .. hi-1 of the outermost LP_PAR. */
typedef void (*KernelFn)(void *const *buf, const int64_t *arg, int64_t lo, int64_t hi, void *local,
                         KStatus *st);

#endif
