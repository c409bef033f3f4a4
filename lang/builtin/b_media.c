/* Builtins of arrays, pictures and sound in files.
 *
 * In: paths, tensors of script. Out: tensors, or files that other programs read. The formats are
 * those of runtime/npy.h, image.h, wav.h; here values are made to fit them, or refused.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"
#include "runtime/image.h"
#include "runtime/npy.h"
#include "runtime/wav.h"

/* ---- arrays */

BUILTIN_FN(bi_read_npy) {
  FileIn in;
  Err e = {.text = ""};
  if (!file_in_open(&in, &s->mem, arg_path(s, c, 0), &e)) fail_file(s, c->spans[0], &e);
  Tensor *t = npy_read(&s->mem, &in, &e);
  file_in_close(&in);
  if (!t) fail_file(s, c->spans[0], &e);
  return v_tensor(s, t);
}

BUILTIN_FN(bi_write_npy) {
  const Tensor *t = arg_known(s, c, 0, "what is written");
  Err e = {.text = ""};
  if (!npy_write(&s->mem, arg_path(s, c, 1), t, &e)) fail_file(s, c->spans[1], &e);
  return v_unit();
}

/* ---- pictures */

BUILTIN_FN(bi_read_image) {
  Err e = {.text = ""};
  Tensor *t = image_read(&s->mem, arg_path(s, c, 0), &e);
  if (!t) fail_file(s, c->spans[0], &e);
  return v_tensor(s, t);
}

/* The byte of element i. */
static uint8_t pixel(Session *s, const Tensor *t, int64_t i, Span at) {
  if (t->dtype == DT_U8) return (uint8_t)tn_get_i64(t, i);
  double x = tn_get_f64(t, i);
  if (!(x >= 0 && x <= 1))
    fail_help(s, ERR_VALUE, at, "`clamp(x, 0.0, 1.0)` cuts what lies outside",
              "a picture of floats goes from 0 to 1, element %lld is %g", (long long)i, x);
  return (uint8_t)(x * 255 + 0.5);
}

BUILTIN_FN(bi_write_image) {
  const Tensor *t = arg_known(s, c, 0, "a picture");
  const char *path = arg_path(s, c, 1);
  ImageKind kind = image_kind(path);
  if (kind == IMAGE_OTHER)
    fail_at(s, ERR_SAVE_NAME, c->spans[1],
            "%s: a picture is written as .png, .ppm (colours) or .pgm (gray)", path);
  if (t->dtype != DT_U8 && !dt_float(t->dtype))
    fail_at(s, ERR_WANT_TENSOR, c->spans[0], "a picture is of u8, or of floats from 0 to 1, not %s",
            dtype_info[t->dtype].name);
  if (t->rank != 2 && t->rank != 3)
    fail_at(s, ERR_RANK, c->spans[0],
            "a picture is [height, width] or [channels, height, width], not %s",
            value_type_text(s, c->v[0]));
  int64_t n = t->rank == 3 ? t->dim[0] : 1, h = t->dim[t->rank - 2], w = t->dim[t->rank - 1];
  if (n < 1 || n > 4 || (kind == IMAGE_PPM && n != 3) || (kind == IMAGE_PGM && n != 1))
    fail_at(s, ERR_VALUE, c->spans[0], "a %s has %s, this one has %lld",
            kind == IMAGE_PNG   ? "png"
            : kind == IMAGE_PPM ? "ppm"
                                : "pgm",
            kind == IMAGE_PNG   ? "1 to 4 channels"
            : kind == IMAGE_PPM ? "3 channels"
                                : "1 channel",
            (long long)n);
  if (!h || !w) fail_at(s, ERR_VALUE, c->spans[0], "a picture has a pixel at least");
  Value rows = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_U8, 3, (int64_t[]){h, w, n}));
  uint8_t *to = tn_data(rows.u.t->t);
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < h * w; i++) to[i * n + k] = pixel(s, t, k * h * w + i, c->spans[0]);
  Err e = {.text = ""};
  if (!image_write(&s->mem, path, kind, to, h, w, (int)n, &e)) fail_file(s, c->spans[1], &e);
  return v_unit();
}

/* ---- sound */

BUILTIN_FN(bi_read_wav) {
  Err e = {.text = ""};
  int64_t rate;
  Tensor *t = wav_read(&s->mem, arg_path(s, c, 0), &rate, &e);
  if (!t) fail_file(s, c->spans[0], &e);
  Name names[2] = {names_of(s->names, "samples"), names_of(s->names, "rate")};
  Value items[2] = {v_tensor(s, t), v_int(rate)};
  return v_record(s, 2, names, items);
}

BUILTIN_FN(bi_write_wav) {
  const Tensor *t = arg_known(s, c, 0, "sound");
  int64_t rate = want_int(s, c->v[2], c->spans[2], "`rate`");
  DType d = t->dtype;
  if (t->rank != 1 && t->rank != 2)
    fail_at(s, ERR_RANK, c->spans[0], "sound is [samples] or [channels, samples], not %s",
            value_type_text(s, c->v[0]));
  if (d != DT_U8 && d != DT_I16 && d != DT_I32 && d != DT_F32 && d != DT_F64)
    fail_help(s, ERR_WANT_TENSOR, c->spans[0], "`f32(x)` writes floats, `i16(x)` PCM of 16 bits",
              "the samples of a wav are u8, i16, i32, f32 or f64, not %s", dtype_info[d].name);
  Err e = {.text = ""};
  if (!wav_write(&s->mem, arg_path(s, c, 1), t, rate, &e)) fail_file(s, c->spans[1], &e);
  return v_unit();
}
