/* WAV: RIFF files of PCM or floats.
 *
 * In: bytes that may hold anything. Out: f32[channels, samples]. Idea: a file is a list of chunks,
 * of which `fmt ` says what the samples of `data` are; the others are passed over.
 * Invariant: memory is asked for when the file has the samples. All numbers are little-endian. */
#include "runtime/wav.h"

#include <string.h>

#include "runtime/bytes.h"

enum { PCM = 1, FLOATS = 3, EXTENSIBLE = 0xfffe, MOST_CHANNELS = 65535 };

typedef struct Format {
  int kind, channels, bits;
  int64_t rate;
} Format;

static uint32_t le(const uint8_t *p, int n) {
  uint32_t x = 0;
  for (int i = n - 1; i >= 0; i--) x = x << 8 | p[i];
  return x;
}

static float sample(const uint8_t *p, const Format *f) {
  double d;
  float x;
  switch (f->kind == FLOATS ? -f->bits : f->bits) {
  case -32: memcpy(&x, p, 4); return x;
  case -64: memcpy(&d, p, 8); return (float)d;
  case 8: return (float)(*p - 128) / 128;
  case 16: return (float)(int16_t)le(p, 2) / 0x1p15f;
  case 24: return (float)((int32_t)(le(p, 3) << 8) >> 8) / 0x1p23f;
  default: return (float)((double)(int32_t)le(p, 4) / 0x1p31);
  }
}

static bool read_format(const char *name, const uint8_t *p, uint32_t n, Format *f, Err *e) {
  if (n < 16) return err_set(e, "%s: its format has only %u bytes", name, n);
  *f = (Format){(int)le(p, 2), (int)le(p + 2, 2), (int)le(p + 14, 2), le(p + 4, 4)};
  if (f->kind == EXTENSIBLE && n >= 26) f->kind = (int)le(p + 24, 2);
  bool known =
      (f->kind == PCM && (f->bits == 8 || f->bits == 16 || f->bits == 24 || f->bits == 32)) ||
      (f->kind == FLOATS && (f->bits == 32 || f->bits == 64));
  if (!known)
    return err_set(e,
                   "%s: its samples are of kind %d with %d bits; PCM of 8, 16, 24 and 32 and "
                   "floats of 32 and 64 are read",
                   name, f->kind, f->bits);
  if (!f->channels || !f->rate)
    return err_set(e, "%s: has %d channels at %lld samples a second", name, f->channels,
                   (long long)f->rate);
  return true;
}

static Tensor *read_samples(Mem *m, const char *name, const Format *f, const uint8_t *p, size_t n,
                            Err *e) {
  size_t each = (size_t)f->bits / 8, frame = each * (size_t)f->channels;
  if (n % frame) {
    err_set(e, "%s: its %zu bytes of samples are no whole number of %d channels", name, n,
            f->channels);
    return NULL;
  }
  int64_t dim[2] = {f->channels, (int64_t)(n / frame)};
  Tensor *t = tn_new(m, DEV_CPU, DT_F32, 2, dim);
  if (!t) {
    err_nomem(e, name);
    return NULL;
  }
  float *out = tn_data(t);
  for (int64_t i = 0; i < dim[1]; i++)
    for (int64_t k = 0; k < dim[0]; k++, p += each) out[k * dim[1] + i] = sample(p, f);
  return t;
}

Tensor *wav_parse(Mem *m, const char *name, const void *bytes, size_t n, int64_t *rate, Err *e) {
  const uint8_t *b = bytes;
  Format f = {0};
  if (n < 12 || memcmp(b, "RIFF", 4) || memcmp(b + 8, "WAVE", 4)) {
    err_set(e, "%s: is no wav file", name);
    return NULL;
  }
  for (size_t at = 12; n - at >= 8;) {
    const uint8_t *p = b + at + 8;
    size_t left = n - at - 8, size = le(b + at + 4, 4);
    bool data = !memcmp(b + at, "data", 4);
    if (data && size == UINT32_MAX) size = left; /* written to a pipe: all that is there */
    if (size > left) {
      err_set(e, "%s: ends too early: a part at byte %zu has %zu bytes of %zu", name, at, left,
              size);
      return NULL;
    }
    if (!memcmp(b + at, "fmt ", 4) && !read_format(name, p, (uint32_t)size, &f, e)) return NULL;
    if (data && f.kind) {
      *rate = f.rate;
      return read_samples(m, name, &f, p, size, e);
    }
    if (data) break;
    at += 8 + size;
    if (size % 2 && at < n) at++; /* chunks begin at even places */
  }
  err_set(e, "%s: has no %s", name, f.kind ? "samples" : "format before its samples");
  return NULL;
}

Tensor *wav_read(Mem *m, const char *file, int64_t *rate, Err *e) {
  size_t n;
  char *bytes = file_read(m, file, &n, e);
  if (!bytes) return NULL;
  Tensor *t = wav_parse(m, file, bytes, n, rate, e);
  mem_free(m, bytes, n + 1);
  return t;
}

/* ---- writing */

static uint8_t *put_le(uint8_t *p, uint64_t x, int n) {
  for (int i = 0; i < n; i++) *p++ = (uint8_t)(x >> 8 * i);
  return p;
}

static bool put_frames(FileOut *f, const Tensor *t, Err *e) {
  char chunk[16384];
  size_t each = dt_size(t->dtype), n = 0;
  int64_t channels = t->rank == 2 ? t->dim[0] : 1, step = t->rank == 2 ? t->stride[0] : 0;
  const char *from = tn_data(t);
  for (int64_t i = 0; i < t->dim[t->rank - 1]; i++)
    for (int64_t k = 0; k < channels; k++) {
      int64_t at = k * step + i * t->stride[t->rank - 1];
      memcpy(chunk + n, from + at * (int64_t)each, each);
      n += each;
      if (n + each <= sizeof chunk) continue;
      if (!file_put(f, chunk, n, e)) return false;
      n = 0;
    }
  return file_put(f, chunk, n, e);
}

bool wav_write(Mem *m, const char *file, const Tensor *t, int64_t rate, Err *e) {
  int64_t channels = t->rank == 2 ? t->dim[0] : 1, each = (int64_t)dt_size(t->dtype),
          bytes = tn_count(t) * each;
  if (channels < 1 || channels > MOST_CHANNELS || rate < 1 || rate > UINT32_MAX / channels / each)
    return err_set(e, "%s: a wav has no %lld channels at %lld samples a second", file,
                   (long long)channels, (long long)rate);
  if (bytes > UINT32_MAX - 64)
    return err_set(e, "%s: a wav has less than 4 GiB, this are %lld bytes", file, (long long)bytes);
  uint8_t head[44], *p = head;
  memcpy(p, "RIFF", 4);
  p = put_le(p + 4, (uint64_t)(36 + bytes + bytes % 2), 4);
  memcpy(p, "WAVEfmt ", 8);
  p = put_le(p + 8, 16, 4);
  p = put_le(p, dt_float(t->dtype) ? FLOATS : PCM, 2);
  p = put_le(p, (uint64_t)channels, 2);
  p = put_le(p, (uint64_t)rate, 4);
  p = put_le(p, (uint64_t)(rate * channels * each), 4);
  p = put_le(p, (uint64_t)(channels * each), 2);
  p = put_le(p, (uint64_t)(8 * each), 2);
  memcpy(p, "data", 4);
  put_le(p + 4, (uint64_t)bytes, 4);
  FileOut f;
  if (!file_create(&f, m, file, e)) return false;
  if (file_put(&f, head, sizeof head, e) && put_frames(&f, t, e) &&
      file_put(&f, "", (size_t)(bytes % 2), e))
    return file_commit(&f, e);
  file_cancel(&f);
  return false;
}
