/* Pictures: png, ppm and pgm, as u8[channels, height, width]. */
#ifndef CKL_RUNTIME_IMAGE_H
#define CKL_RUNTIME_IMAGE_H

#include "runtime/err.h"
#include "runtime/tensor.h"

/* Reads a picture by its content: 1 channel is gray, 2 gray and alpha, 3 RGB, 4 RGBA; 16 bits are
 * rounded to 8, palettes become colours. NULL after err_set. */
Tensor *image_read(Mem *m, const char *file, Err *e);
/* The same from memory; `name` stands for the file in messages. */
Tensor *image_parse(Mem *m, const char *name, const void *bytes, size_t n, Err *e);

typedef enum ImageKind { IMAGE_PNG, IMAGE_PPM, IMAGE_PGM, IMAGE_OTHER } ImageKind;
ImageKind image_kind(const char *file); /* by its ending */
/* Writes rows of pixels, u8[height, width, channels] without gaps. ppm has 3 channels, pgm 1. */
bool image_write(Mem *m, const char *file, ImageKind kind, const uint8_t *pixels, int64_t height,
                 int64_t width, int channels, Err *e);

/* ---- of image.c, for image_png.c */
/* A tensor for a picture, and its pixels, width * channels a row, row after row. */
Tensor *image_new(Mem *m, int channels, int64_t height, int64_t width);
void image_put_row(Tensor *t, int64_t y, const uint8_t *row);
Tensor *png_parse(Mem *m, const char *name, const void *bytes, size_t n, Err *e);
bool png_store(Mem *m, const char *file, const uint8_t *pixels, int64_t height, int64_t width,
               int channels, Err *e);

#endif
