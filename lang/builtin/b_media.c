/* Builtins of arrays, pictures and sound in files.
 *
 * In: paths, tensors of script. Out: tensors, or files that other programs read. The formats are
 * those of runtime/npy.h, zip.h, image.h, wav.h; here values are made to fit them, or refused.
 */
#include <math.h>
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "runtime/image.h"
#include "runtime/npy.h"
#include "runtime/wav.h"
#include "runtime/zip.h"

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

/* ---- archives of arrays */

typedef struct Archive {
  Mem *mem;
  bool file, zip;
  FileIn in;
  Zip z;
} Archive;

static void archive_release(void *p) {
  Archive *a = p;
  if (a->zip) zip_close(&a->z);
  if (a->file) file_in_close(&a->in);
  mem_free(a->mem, a, sizeof *a);
}

/* The tensor of an entry. */
static Tensor *unpacked(Session *s, Archive *a, const ZipEntry *t, Err *e) {
  char *bytes = zip_read(&a->z, t, e);
  if (!bytes) return NULL;
  FileIn in = file_in_memory(fail_text(s, "%s: `%s`", a->in.name, t->name), bytes, (size_t)t->size);
  Tensor *r = npy_read(&s->mem, &in, e);
  mem_free(&s->mem, bytes, (size_t)t->size + 1);
  return r;
}

BUILTIN_FN(bi_read_npz) {
  const char *path = arg_path(s, c, 0);
  Err e = {.text = ""};
  Archive *a = mem_need(&s->mem, NULL, 0, sizeof *a);
  *a = (Archive){.mem = &s->mem};
  mem_pool_add(&s->mem, a, archive_release);
  a->file = file_in_open(&a->in, &s->mem, path, &e);
  a->zip = a->file && zip_open(&a->z, &s->mem, &a->in, &e);
  if (!a->zip) fail_file(s, c->spans[0], &e);
  Value d = v_dict_room(s, 0);
  for (size_t i = 0; i < a->z.count; i++) {
    const ZipEntry *t = &a->z.entry[i];
    size_t n = strlen(t->name);
    if (n < 4 || strcmp(t->name + n - 4, ".npy"))
      fail_at(s, ERR_FILE, c->spans[0], "%s: `%s` in it is no array (.npy)", path, t->name);
    Value key = v_str(s, t->name, n - 4);
    if (dict_find(d.u.dict, key))
      fail_at(s, ERR_FILE, c->spans[0], "%s: `%s` is in it twice", path, t->name);
    Tensor *x = unpacked(s, a, t, &e);
    if (!x) fail_file(s, c->spans[0], &e);
    dict_put(s, d.u.dict, key, v_tensor(s, x));
  }
  return d;
}

typedef struct Packed {
  const char *name;
  const Tensor *t;
} Packed;

static bool write_archive(Mem *m, const char *path, const Packed *p, size_t n, Err *e) {
  FileOut f;
  ZipOut z;
  if (!file_create(&f, m, path, e)) return false;
  zip_begin(&z, m, &f);
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++) {
    ZipSum sum = {0};
    ok = npy_put(p[i].t, path, zip_sum, &sum, e) && zip_entry(&z, p[i].name, &sum, e) &&
         npy_put(p[i].t, path, zip_put, &z, e);
  }
  ok = ok && zip_finish(&z, e);
  zip_end(&z);
  if (ok) return file_commit(&f, e);
  file_cancel(&f);
  return false;
}

BUILTIN_FN(bi_write_npz) {
  Value v = c->v[0];
  size_t n;
  if (v.tag != V_DICT && v.tag != V_RECORD)
    fail_at(s, ERR_VALUE, c->spans[0], "an npz holds a dict of tensors, not %s",
            value_type_text(s, v));
  const Value *items = value_items(v, &n);
  Packed *p = ARENA_ARRAY(&s->scratch, Packed, n + 1);
  for (size_t i = 0; i < n; i++) {
    if (v.tag == V_DICT && v.u.dict->keys[i].tag != V_STR)
      fail_at(s, ERR_VALUE, c->spans[0], "the name of an array is a text, not %s",
              dict_key_text(s, v.u.dict->keys[i]));
    const char *name = v.tag == V_RECORD ? v.u.rec->names[i] : v.u.dict->keys[i].u.str->s;
    if (v.tag == V_DICT && strlen(name) != v.u.dict->keys[i].u.str->n)
      fail_at(s, ERR_VALUE, c->spans[0], "the name of an array has no NUL character");
    Call one = {.v = (Value *)&items[i], .spans = c->spans};
    p[i] = (Packed){fail_text(s, "%s.npy", name),
                    arg_known(s, &one, 0, fail_text(s, "what is written as `%s`", name))};
  }
  Err e = {.text = ""};
  if (!write_archive(&s->mem, arg_path(s, c, 1), p, n, &e)) fail_file(s, c->spans[1], &e);
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
  if (isnan(x))
    fail_help(s, ERR_VALUE, at, "`nan_to_num(x)` puts a number there",
              "a picture of floats goes from 0 to 1, element %lld is nan", (long long)i);
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
