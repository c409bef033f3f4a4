/* Pictures: what they are, and the formats of Netpbm.
 *
 * In: bytes that may hold anything. Out: u8[channels, height, width]. Idea: a file says what it is
 * by its first bytes; pgm and ppm are a few numbers and then all samples, as text or as bytes.
 * Invariant: memory is asked for when the file has as many samples as its header claims. */
#include "runtime/image.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/file.h"

Tensor *image_new(Mem *m, int channels, int64_t height, int64_t width) {
  int64_t dim[3] = {channels, height, width};
  return tn_new(m, DEV_CPU, DT_U8, 3, dim);
}

void image_put_row(Tensor *t, int64_t y, const uint8_t *row) {
  int64_t c = t->dim[0], h = t->dim[1], w = t->dim[2];
  uint8_t *out = tn_data(t);
  for (int64_t k = 0; k < c; k++)
    for (int64_t x = 0; x < w; x++) out[(k * h + y) * w + x] = row[x * c + k];
}

/* ---- pgm, ppm */

typedef struct Pnm {
  const char *name;
  const uint8_t *start, *at, *end;
  Err *err;
} Pnm;

static bool bad(const Pnm *p, const char *what) {
  return err_set(p->err, "%s: at byte %lld: %s", p->name, (long long)(p->at - p->start), what);
}

static bool is_blank(uint8_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip(Pnm *p) {
  while (p->at < p->end && (is_blank(*p->at) || *p->at == '#'))
    if (*p->at++ == '#')
      while (p->at < p->end && *p->at != '\n') p->at++;
}

static bool number(Pnm *p, int64_t least, int64_t most, const char *what, int64_t *out) {
  skip(p);
  *out = 0;
  const uint8_t *from = p->at;
  while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && *out <= most)
    *out = *out * 10 + (*p->at++ - '0');
  if (p->at > from && *out >= least && *out <= most) return true;
  p->at = from;
  return bad(p, what);
}

static uint8_t scaled(int64_t v, int64_t most) {
  return (uint8_t)((v * 255 + most / 2) / most);
}

static bool samples(Pnm *p, Tensor *t, bool plain, int64_t most) {
  int64_t c = t->dim[0], h = t->dim[1], w = t->dim[2];
  uint8_t *out = tn_data(t);
  for (int64_t i = 0; i < h * w; i++)
    for (int64_t k = 0; k < c; k++) {
      int64_t v;
      if (plain) {
        if (!number(p, 0, most, "a sample is missing, or larger than the largest", &v))
          return false;
      } else {
        v = *p->at++;
        if (most > 255) v = v << 8 | *p->at++;
        if (v > most) return bad(p, "a sample is larger than the largest");
      }
      out[k * h * w + i] = scaled(v, most);
    }
  return true;
}

static Tensor *pnm_parse(Mem *m, const char *name, const uint8_t *bytes, size_t n, Err *e) {
  Pnm p = {.name = name, .start = bytes, .at = bytes + 2, .end = bytes + n, .err = e};
  bool plain = bytes[1] <= '3', colour = bytes[1] == '3' || bytes[1] == '6';
  int64_t w, h, most, c = colour ? 3 : 1;
  if (!number(&p, 1, INT32_MAX, "the width is no size", &w) ||
      !number(&p, 1, INT32_MAX, "the height is no size", &h) ||
      !number(&p, 1, 65535, "the largest sample is none of 1 to 65535", &most))
    return NULL;
  if (p.at == p.end || !is_blank(*p.at++)) {
    bad(&p, "a blank is missing");
    return NULL;
  }
  int64_t dim[3] = {c, h, w}, all = tn_product(3, dim), left = p.end - p.at,
          need = plain                               ? all
                 : most > 255 && all > INT64_MAX / 2 ? -1
                 : most > 255                        ? 2 * all
                                                     : all;
  if (all < 0 || need < 0 || need > left) { /* a number in text takes a byte at least */
    err_set(e, "%s: ends too early: %lld by %lld pixels do not fit into %lld bytes", name,
            (long long)w, (long long)h, (long long)left);
    return NULL;
  }
  Tensor *t = image_new(m, (int)c, h, w);
  if (!t) {
    err_nomem(e, name);
    return NULL;
  }
  bool ok = samples(&p, t, plain, most);
  if (ok) {
    while (p.at < p.end && is_blank(*p.at)) p.at++;
    if (p.at < p.end) ok = bad(&p, "there is more behind the picture");
  }
  if (ok) return t;
  tn_unref(t);
  return NULL;
}

/* ---- what a file is */

static Tensor *unknown(const char *name, const uint8_t *b, size_t n, Err *e) {
  const char *is = n >= 3 && !memcmp(b, "\xff\xd8\xff", 3)               ? "a JPEG"
                   : n >= 4 && !memcmp(b, "GIF8", 4)                     ? "a GIF"
                   : n >= 2 && !memcmp(b, "BM", 2)                       ? "a BMP"
                   : n >= 12 && !memcmp(b + 8, "WEBP", 4)                ? "a WebP"
                   : n >= 4 && !memcmp(b, "II*\0", 4)                    ? "a TIFF"
                   : n >= 4 && !memcmp(b, "MM\0*", 4)                    ? "a TIFF"
                   : n >= 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '7' ? "another Netpbm format"
                                                                         : NULL;
  err_set(e, is ? "%s: is %s; png, ppm and pgm are read" : "%s: is no png, ppm or pgm", name, is);
  return NULL;
}

Tensor *image_parse(Mem *m, const char *name, const void *bytes, size_t n, Err *e) {
  const uint8_t *b = bytes;
  if (n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8)) return png_parse(m, name, b, n, e);
  if (n >= 3 && b[0] == 'P' && memchr("2356", b[1], 4) && (is_blank(b[2]) || b[2] == '#'))
    return pnm_parse(m, name, b, n, e);
  return unknown(name, b, n, e);
}

Tensor *image_read(Mem *m, const char *file, Err *e) {
  size_t n;
  char *bytes = file_read(m, file, &n, e);
  if (!bytes) return NULL;
  Tensor *t = image_parse(m, file, bytes, n, e);
  mem_free(m, bytes, n + 1);
  return t;
}

/* ---- writing */

ImageKind image_kind(const char *file) {
  static const struct {
    const char *ending;
    ImageKind kind;
  } kinds[] = {{".png", IMAGE_PNG}, {".ppm", IMAGE_PPM}, {".pgm", IMAGE_PGM}};
  size_t n = strlen(file);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (n >= 4 && !strcasecmp(file + n - 4, kinds[i].ending)) return kinds[i].kind;
  return IMAGE_OTHER;
}

bool image_write(Mem *m, const char *file, ImageKind kind, const uint8_t *pixels, int64_t height,
                 int64_t width, int channels, Err *e) {
  FileOut f;
  char head[64];
  if (kind == IMAGE_PNG) return png_store(m, file, pixels, height, width, channels, e);
  int n = snprintf(head, sizeof head, "P%c\n%lld %lld\n255\n", channels == 3 ? '6' : '5',
                   (long long)width, (long long)height);
  if (!file_create(&f, m, file, e)) return false;
  if (file_put(&f, head, (size_t)n, e) &&
      file_put(&f, pixels, (size_t)(height * width * channels), e))
    return file_commit(&f, e);
  file_cancel(&f);
  return false;
}
