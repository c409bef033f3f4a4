/* Sound: wav files. */
#ifndef CKL_RUNTIME_WAV_H
#define CKL_RUNTIME_WAV_H

#include "runtime/err.h"
#include "runtime/tensor.h"

/* f32[channels, samples] and *rate, the samples a second: PCM of 8, 16, 24 and 32 bits, where the
 * largest number is just below 1, and floats of 32 and 64 bits as they are. NULL after err_set. */
Tensor *wav_read(Mem *m, const char *file, int64_t *rate, Err *e);
Tensor *wav_parse(Mem *m, const char *name, const void *bytes, size_t n, int64_t *rate, Err *e);
/* Writes a tensor [channels, samples] or [samples] of the host in the format of its dtype: u8, i16,
 * i32 as PCM, f32 and f64 as floats. */
bool wav_write(Mem *m, const char *file, const Tensor *t, int64_t rate, Err *e);

#endif
