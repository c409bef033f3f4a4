/* PNG, by libpng.
 *
 * In: bytes that may hold anything. Out: u8[channels, height, width]; pixels to a file. Idea:
 * libpng gets its memory from the session and reports errors by a jump, both through the struct
 * below.
 * Invariant: what lives across a jump is in that struct. A file that is too short for the pixels
 * that its header claims, however well they are packed, is refused before memory is asked for. */
#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "runtime/file.h"
#include "runtime/image.h"

enum {
  MOST_SIDE = 1000000, /* pixels, as libpng has it */
  PACKED = 1040,       /* bytes that a byte of deflate stands for at most, and some to spare */
  FRONT = 16           /* bytes before a block, which hold its size */
};

typedef struct Png {
  Mem *mem;
  const char *name;
  Err *err;
  jmp_buf out;
  const uint8_t *at, *end; /* what is left to read */
  FileOut *file;
  Tensor *t;
  uint8_t *rows;
  size_t rows_size;
  png_structp png;
  png_infop info;
  bool nomem;
} Png;

/* ---- what libpng calls */

static void *get(png_structp png, png_alloc_size_t n) {
  Png *p = png_get_mem_ptr(png);
  char *block = n > PTRDIFF_MAX - FRONT ? NULL : mem_try(p->mem, NULL, 0, (size_t)n + FRONT);
  if (!block) {
    p->nomem = true;
    return NULL;
  }
  size_t size = (size_t)n + FRONT;
  memcpy(block, &size, sizeof size);
  return block + FRONT;
}

static void give(png_structp png, void *q) {
  Png *p = png_get_mem_ptr(png);
  size_t size;
  if (!q) return;
  memcpy(&size, (char *)q - FRONT, sizeof size);
  mem_free(p->mem, (char *)q - FRONT, size);
}

_Noreturn static void on_error(png_structp png, const char *what) {
  Png *p = png_get_error_ptr(png);
  if (p->nomem)
    err_nomem(p->err, p->name);
  else if (what)
    err_set(p->err, "%s: %s", p->name, what);
  longjmp(p->out, 1);
}

static void on_warning(png_structp png, const char *what) {
  (void)png, (void)what; /* of what pixels do not depend on */
}

static void next_bytes(png_structp png, png_bytep to, size_t n) {
  Png *p = png_get_io_ptr(png);
  if ((size_t)(p->end - p->at) < n) png_error(png, "ends too early");
  memcpy(to, p->at, n);
  p->at += n;
}

static void put_bytes(png_structp png, png_bytep from, size_t n) {
  Png *p = png_get_io_ptr(png);
  if (!file_put(p->file, from, n, p->err)) png_error(png, NULL); /* the text is set */
}

static void flush(png_structp png) {
  (void)png;
}

/* ---- reading */

static void look_at_size(Png *p, png_uint_32 w, png_uint_32 h, int depth) {
  uint64_t bits = (uint64_t)w * png_get_channels(p->png, p->info) * (unsigned)depth,
           row = (bits + 7) / 8, most = (uint64_t)(p->end - p->at) * PACKED;
  if (row * h > most) png_error(p->png, "ends too early for its width and height");
}

static void read_all(Png *p, const void *bytes, size_t n) {
  p->at = bytes;
  p->end = p->at + n;
  png_set_read_fn(p->png, p, next_bytes);
  png_set_user_limits(p->png, MOST_SIDE, MOST_SIDE);
  png_read_info(p->png, p->info);
  png_uint_32 w = png_get_image_width(p->png, p->info), h = png_get_image_height(p->png, p->info);
  int depth = png_get_bit_depth(p->png, p->info), colour = png_get_color_type(p->png, p->info);
  look_at_size(p, w, h, depth);
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(p->png);
  if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(p->png);
  if (png_get_valid(p->png, p->info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(p->png);
  if (depth == 16) png_set_scale_16(p->png);
  int passes = png_set_interlace_handling(p->png);
  png_read_update_info(p->png, p->info);
  size_t row = png_get_rowbytes(p->png, p->info);
  p->t = image_new(p->mem, png_get_channels(p->png, p->info), h, w);
  size_t size = passes > 1 ? row * h : row; /* passes change rows that are there */
  p->rows = p->t ? mem_try(p->mem, NULL, 0, size) : NULL;
  p->nomem = !p->rows;
  if (p->nomem) png_error(p->png, "out of memory");
  p->rows_size = size;
  memset(p->rows, 0, size);
  for (int pass = 0; pass < passes; pass++)
    for (png_uint_32 y = 0; y < h; y++) {
      uint8_t *to = p->rows + (passes > 1 ? y * row : 0);
      if (interrupt_asked(p->mem->stop)) {
        err_interrupted(p->err);
        png_error(p->png, NULL);
      }
      png_read_row(p->png, to, NULL);
      if (pass == passes - 1) image_put_row(p->t, y, to);
    }
  png_read_end(p->png, NULL);
}

/* Ends a Png of either kind; `done`: it was left without an error. */
static Tensor *end(Png *p, bool read, bool done) {
  if (read)
    png_destroy_read_struct(&p->png, &p->info, NULL);
  else
    png_destroy_write_struct(&p->png, &p->info);
  if (p->rows) mem_free(p->mem, p->rows, p->rows_size);
  if (done) return p->t;
  tn_unref(p->t);
  return NULL;
}

static bool begin(Png *p, bool read) {
  p->png =
      read
          ? png_create_read_struct_2(PNG_LIBPNG_VER_STRING, p, on_error, on_warning, p, get, give)
          : png_create_write_struct_2(PNG_LIBPNG_VER_STRING, p, on_error, on_warning, p, get, give);
  if (p->png) p->info = png_create_info_struct(p->png);
  return p->info || err_nomem(p->err, p->name);
}

/* False after a jump. */
static bool read_or_not(Png *p, const void *bytes, size_t n) {
  if (setjmp(p->out)) return false;
  if (!begin(p, true)) return false;
  read_all(p, bytes, n);
  return true;
}

Tensor *png_parse(Mem *m, const char *name, const void *bytes, size_t n, Err *e) {
  Png p = {.mem = m, .name = name, .err = e};
  return end(&p, true, read_or_not(&p, bytes, n));
}

/* ---- writing */

static void write_all(Png *p, const uint8_t *pixels, int64_t h, int64_t w, int channels) {
  static const int colour[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                               PNG_COLOR_TYPE_RGB_ALPHA};
  png_set_write_fn(p->png, p, put_bytes, flush);
  png_set_IHDR(p->png, p->info, (png_uint_32)w, (png_uint_32)h, 8, colour[channels - 1],
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(p->png, p->info);
  for (int64_t y = 0; y < h; y++) png_write_row(p->png, pixels + y * w * channels);
  png_write_end(p->png, NULL);
}

static bool write_or_not(Png *p, const uint8_t *pixels, int64_t h, int64_t w, int channels) {
  if (setjmp(p->out)) return false;
  if (!begin(p, false)) return false;
  write_all(p, pixels, h, w, channels);
  return true;
}

bool png_store(Mem *m, const char *file, const uint8_t *pixels, int64_t height, int64_t width,
               int channels, Err *e) {
  FileOut f;
  Png p = {.mem = m, .name = file, .err = e, .file = &f};
  if (height > MOST_SIDE || width > MOST_SIDE)
    return err_set(e, "%s: a side of a png has %d pixels at most", file, (int)MOST_SIDE);
  if (!file_create(&f, m, file, e)) return false;
  bool ok = write_or_not(&p, pixels, height, width, channels);
  end(&p, false, ok);
  if (ok) return file_commit(&f, e);
  file_cancel(&f);
  return false;
}
