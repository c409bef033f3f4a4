/* fuzz-formats SECONDS [SEED]: mutated files into the readers of formats.
 *
 * Files are drawn, changed a little and read, sometimes with an allocation that fails. What is read
 * is in itself right (a tensor's bytes are no more than the file can stand for); what is refused
 * says why in one line; nothing may leak. A row of `formats` is a reader with the files that it
 * begins with. A find is printed with its bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/image.h"
#include "runtime/json.h"
#include "runtime/npy.h"
#include "runtime/str.h"
#include "runtime/table_file.h"
#include "runtime/wav.h"
#include "runtime/zip.h"
#include "tests/unit/failing.h"

enum { MOST = 4096 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

/* ---- the readers */

static Tensor *read_npy(Mem *m, const void *bytes, size_t n, Err *e) {
  FileIn in = file_in_memory("x", bytes, n);
  return npy_read(m, &in, e);
}

static Tensor *read_image(Mem *m, const void *bytes, size_t n, Err *e) {
  return image_parse(m, "x", bytes, n, e);
}

static Tensor *read_wav(Mem *m, const void *bytes, size_t n, Err *e) {
  int64_t rate = 0;
  Tensor *t = wav_parse(m, "x", bytes, n, &rate, e);
  if (t && rate < 1) abort();
  return t;
}

/* All columns, as the sum of their numbers. */
static Tensor *read_table(Mem *m, const void *bytes, size_t n, Err *e) {
  static const CsvText missing[] = {{"", 0}, {"NA", 2}};
  TableFile t;
  int64_t sum = 0;
  if (!table_parse(&t, m, "x", bytes, n, draw(2) ? 0 : ',', draw(2), missing, 2, e)) return NULL;
  for (size_t i = 0; i < t.count; i++)
    if (!draw(4)) {
      t.col[i].want = (TableWant)draw(4);
      t.col[i].dtype = (DType)draw(DT_F16 + 1);
      if (t.col[i].dtype == DT_F16) t.col[i].dtype = DT_F32;
    }
  bool ok = table_fill(&t, e);
  for (size_t i = 0; ok && i < t.count; i++)
    for (int64_t k = 0; k < t.rows; k++) {
      if (t.col[i].t) sum ^= tn_get_i64(t.col[i].t, k);
      if (t.col[i].texts && !str_valid(t.col[i].texts[k].s, t.col[i].texts[k].n)) abort();
    }
  table_close(&t);
  Tensor *r = ok ? tn_scalar_i64(m, DEV_CPU, DT_U8, sum) : NULL;
  if (ok && !r) err_nomem(e, "x");
  return r;
}

typedef struct Depth {
  int depth;
  long values;
} Depth;

static const char *take_json(void *ud, const JsonPiece *p) {
  Depth *d = ud;
  if (p->kind == JSON_LIST || p->kind == JSON_DICT) d->depth++;
  if (p->kind == JSON_END) d->depth--;
  if ((p->kind == JSON_TEXT || p->kind == JSON_KEY) && !str_valid(p->s, p->n)) abort();
  d->values++;
  return d->values > 100 ? "enough" : NULL;
}

static Tensor *read_json(Mem *m, const void *bytes, size_t n, Err *e) {
  Arena a;
  Depth d = {0};
  arena_init(&a, m);
  bool ok = json_read(&a, "x", bytes, n, take_json, &d, e);
  arena_free(&a);
  if (ok && (d.depth || !d.values)) abort();
  Tensor *r = ok ? tn_scalar_i64(m, DEV_CPU, DT_U8, d.values) : NULL;
  if (ok && !r) err_nomem(e, "x");
  return r;
}

/* The bytes of all entries, added up. */
static Tensor *read_zip(Mem *m, const void *bytes, size_t n, Err *e) {
  FileIn in = file_in_memory("x", bytes, n);
  Zip z;
  int64_t sum = 0;
  if (!zip_open(&z, m, &in, e)) return NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < z.count; i++) {
    if (!str_valid(z.entry[i].name, strlen(z.entry[i].name))) abort();
    char *p = zip_read(&z, &z.entry[i], e);
    ok = p != NULL;
    for (size_t k = 0; ok && k < z.entry[i].size; k++) sum += p[k];
    if (ok) mem_free(m, p, (size_t)z.entry[i].size + 1);
  }
  zip_close(&z);
  Tensor *r = ok ? tn_scalar_i64(m, DEV_CPU, DT_U8, sum) : NULL;
  if (ok && !r) err_nomem(e, "x");
  return r;
}

/* ---- files to begin with */

typedef struct File {
  unsigned char b[MOST];
  size_t n;
} File;

static void put(File *f, const void *s, size_t n) {
  if (f->n + n > MOST) n = MOST - f->n;
  if (n) memcpy(f->b + f->n, s, n);
  f->n += n;
}

static void put_be(File *f, uint32_t x) {
  unsigned char b[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8),
                        (unsigned char)x};
  put(f, b, 4);
}

static void put_drawn(File *f, size_t n) {
  for (; n > 0; n--) {
    unsigned char b = (unsigned char)draw(256);
    put(f, &b, 1);
  }
}

static void make_npy(File *f) {
  static const char *const headers[] = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
      "{'descr': '>i2', 'fortran_order': True, 'shape': (3, 4), }   \n",
      "{'descr': '|b1', 'fortran_order': False, 'shape': (24,), }\n",
      "{\"shape\": (), 'descr': '<f8', 'fortran_order': True}",
      "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3L,), }",
  };
  const char *h = headers[draw(5)];
  size_t n = strlen(h);
  unsigned char two[4] = {(unsigned char)n, 0, 0, 0};
  bool later = draw(2);
  put(f, later ? "\x93NUMPY\2\0" : "\x93NUMPY\1\0", 8);
  put(f, two, later ? 4 : 2);
  put(f, h, n);
  put_drawn(f, draw(4) ? 24 : 8);
}

static uint32_t crc_of(const unsigned char *p, size_t n) {
  uint32_t c = UINT32_MAX;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
  }
  return ~c;
}

static void chunk(File *f, const char *name, const void *data, size_t n) {
  put_be(f, (uint32_t)n);
  size_t from = f->n;
  put(f, name, 4);
  put(f, data, n);
  put_be(f, crc_of(f->b + from, f->n - from));
}

/* Pixels in a stored block of deflate. */
static void pixels(File *f, size_t n) {
  File z = {.n = 0};
  uint32_t a = 1, b = 0;
  unsigned char head[7] = {0x78,
                           1,
                           1,
                           (unsigned char)n,
                           (unsigned char)(n >> 8),
                           (unsigned char)~n,
                           (unsigned char)(~n >> 8)};
  put(&z, head, 7);
  for (size_t i = 0; i < n; i++) {
    unsigned char p = (unsigned char)(draw(3) ? draw(5) : draw(256));
    put(&z, &p, 1);
    a = (a + p) % 65521;
    b = (b + a) % 65521;
  }
  put_be(&z, b << 16 | a);
  chunk(f, "IDAT", z.b, z.n);
}

static void make_png(File *f) {
  static const struct {
    unsigned char depth, colour, channels;
  } kinds[] = {{8, 0, 1}, {1, 0, 1}, {4, 0, 1}, {16, 0, 1}, {8, 2, 3}, {16, 2, 3},
               {2, 3, 1}, {8, 3, 1}, {8, 4, 2}, {8, 6, 4},  {16, 6, 4}};
  uint32_t k = draw(sizeof kinds / sizeof *kinds), w = 1 + draw(12), h = 1 + draw(12);
  unsigned char
      lace = (unsigned char)draw(2),
      head[13] = {
          0, 0, 0,   (unsigned char)w, 0, 0, 0, (unsigned char)h, kinds[k].depth, kinds[k].colour,
          0, 0, lace};
  put(f, "\x89PNG\r\n\x1a\n", 8);
  chunk(f, "IHDR", head, 13);
  unsigned char more[768];
  for (size_t i = 0; i < sizeof more; i++) more[i] = (unsigned char)draw(256);
  if (kinds[k].colour == 3) chunk(f, "PLTE", more, 12);
  if (draw(2)) chunk(f, "tRNS", more, kinds[k].colour == 2 ? 6 : 2);
  if (draw(4) == 0) chunk(f, "gAMA", "\0\0\xb1\x8f", 4);
  size_t row = (w * kinds[k].depth * kinds[k].channels + 7) / 8;
  pixels(f, lace ? row * h + 3 * h + draw(8) : (row + 1) * h);
  chunk(f, "IEND", "", 0);
}

static void make_pnm(File *f) {
  static const char *const heads[] = {"P5\n3 4\n255\n", "P6 2 # c\n2 65535\n",
                                      "P2\n2 2\n7\n1 2 3 7 ", "P3 1 1 255 1 2 3\n", "P6\n1 4 9\n"};
  const char *h = heads[draw(5)];
  put(f, h, strlen(h));
  if (h[1] > '4')
    for (int n = 12; n > 0; n--) {
      unsigned char b = (unsigned char)draw(10);
      put(f, &b, 1);
    }
  if (!draw(3)) put_drawn(f, 12);
}

static void make_image(File *f) {
  if (draw(3))
    make_png(f);
  else
    make_pnm(f);
}

static void put_le(File *f, uint32_t x, size_t n) {
  unsigned char b[4] = {(unsigned char)x, (unsigned char)(x >> 8), (unsigned char)(x >> 16),
                        (unsigned char)(x >> 24)};
  put(f, b, n);
}

static void make_wav(File *f) {
  static const unsigned char kinds[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
  uint32_t k = draw(6), channels = 1 + draw(3), each = kinds[k][1] / 8,
           bytes = each * channels * draw(9);
  bool wide = draw(2);
  put(f, "RIFF", 4);
  put_le(f, 36 + bytes, 4);
  put(f, "WAVE", 4);
  if (draw(3) == 0) {
    put(f, "LIST", 4);
    put_le(f, 3, 4);
    put(f, "abc", 4);
  }
  put(f, "fmt ", 4);
  put_le(f, wide ? 40 : 16, 4);
  put_le(f, wide ? 0xfffe : kinds[k][0], 2);
  put_le(f, channels, 2);
  put_le(f, 8000, 4);
  put_le(f, 8000 * each * channels, 4);
  put_le(f, each * channels, 2);
  put_le(f, kinds[k][1], 2);
  if (wide) {
    put_le(f, 22, 4);
    put_le(f, 0, 4);
    put_le(f, kinds[k][0], 2);
    put_drawn(f, 14);
  }
  put(f, "data", 4);
  put_le(f, draw(8) ? bytes : UINT32_MAX, 4);
  put_drawn(f, bytes);
}

/* An entry as it stands before its bytes, and in the directory. */
static void zip_head(File *f, const char *sign, const char *name, uint32_t method, uint32_t crc,
                     size_t packed, size_t size, size_t at) {
  bool central = sign[0] == 1;
  put(f, "PK", 2);
  put(f, sign, 2);
  if (central) put_le(f, 20, 2);
  put_le(f, 20, 2);
  put_le(f, 0, 2);
  put_le(f, method, 2);
  put_le(f, 33 << 16, 4);
  put_le(f, crc, 4);
  put_le(f, (uint32_t)packed, 4);
  put_le(f, (uint32_t)size, 4);
  put_le(f, (uint32_t)strlen(name), 2);
  put_le(f, 0, 2);
  if (central) {
    put_le(f, 0, 4);
    put_le(f, 0, 4);
    put_le(f, 0, 2);
    put_le(f, (uint32_t)at, 4);
  }
  put(f, name, strlen(name));
}

static void make_zip(File *f) {
  File dir = {.n = 0};
  uint32_t count = draw(4);
  for (uint32_t i = 0; i < count; i++) {
    char name[16];
    unsigned char data[64];
    size_t n = draw(40), at = f->n, packed;
    snprintf(name, sizeof name, "a%u.npy", i);
    for (size_t k = 0; k < n; k++) data[k] = (unsigned char)draw(4);
    uint32_t crc = crc_of(data, n), method = draw(2) ? 8 : 0;
    packed = method ? n + 5 : n; /* a stored block of deflate */
    zip_head(f, "\3\4", name, method, crc, packed, n, 0);
    if (method) {
      put(f, "\1", 1);
      put_le(f, (uint32_t)n, 2);
      put_le(f, ~(uint32_t)n, 2);
    }
    put(f, data, n);
    zip_head(&dir, "\1\2", name, method, crc, packed, n, at);
  }
  size_t at = f->n;
  put(f, dir.b, dir.n);
  put(f, "PK\5\6\0\0\0\0", 8);
  put_le(f, count, 2);
  put_le(f, count, 2);
  put_le(f, (uint32_t)dir.n, 4);
  put_le(f, (uint32_t)at, 4);
  put_le(f, 0, 2);
}

static void make_table(File *f) {
  static const char *const cells[] = {"1",  "-2",      "3.5", "true", "False",    "NA",  "",
                                      "ab", "\"a,b\"", "é",   "007",  "\"\"\"\"", " 4 ", "9e9"};
  uint32_t cols = 1 + draw(4), rows = draw(6);
  for (uint32_t i = 0; i <= rows; i++)
    for (uint32_t k = 0; k < cols; k++) {
      const char *c = cells[draw(sizeof cells / sizeof *cells)], *end = k + 1 < cols ? ","
                                                                        : draw(5)    ? "\n"
                                                                                     : "\r\n";
      put(f, c, strlen(c));
      put(f, end, strlen(end));
    }
}

static void make_json(File *f) {
  static const char *const pieces[] = {"{\"a\": [1, 2.5e-3, -0, true], \"b\\u00e9\\n\": null}",
                                       "[]",
                                       "[[[{}]], \"\\ud83d\\ude00\"]",
                                       "\xef\xbb\xbf[1,2]",
                                       "{\"k\": {\"k\": {\"k\": [\"é\"]}}}",
                                       " -12 ",
                                       "9223372036854775807"};
  const char *s = pieces[draw(sizeof pieces / sizeof *pieces)];
  put(f, s, strlen(s));
}

static const struct {
  const char *name;
  void (*make)(File *f);
  Tensor *(*read)(Mem *m, const void *bytes, size_t n, Err *e);
  int64_t most; /* bytes of a tensor for a byte of its file */
} formats[] = {
    {"npy", make_npy, read_npy, 1},       {"image", make_image, read_image, 1040 * 32},
    {"wav", make_wav, read_wav, 4},       {"zip", make_zip, read_zip, 1},
    {"table", make_table, read_table, 1}, {"json", make_json, read_json, 1},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- changes */

static void mutate(File *f) {
  static const char *const words[] = {"\xff\xff\xff\xff",
                                      "\0\0\0\0",
                                      "\x7f\xff\xff\xff",
                                      "(",
                                      ")",
                                      ",",
                                      "'",
                                      "99999999999",
                                      "\"",
                                      "\\",
                                      "{",
                                      "]",
                                      "NA",
                                      "\n",
                                      ":",
                                      "\xff",
                                      "4294967296, 4294967296",
                                      "-1",
                                      " "};
  for (uint32_t k = draw(5); k > 0; k--) {
    size_t at = f->n ? draw((uint32_t)f->n) : 0, len;
    switch (draw(6)) {
    case 0:
      if (f->n) f->b[at] = (unsigned char)draw(256);
      break;
    case 1:
      if (f->n) f->b[at] ^= (unsigned char)(1u << draw(8));
      break;
    case 2: /* cut a piece out, or the end off */
      len = draw(2) ? f->n - at : 1 + draw(4);
      if (len > f->n - at) len = f->n - at;
      memmove(f->b + at, f->b + at + len, f->n - at - len);
      f->n -= len;
      break;
    case 3: /* repeat a piece */
      len = f->n - at < 40 ? f->n - at : draw(40);
      if (f->n + len > MOST) break;
      memmove(f->b + at + len, f->b + at, f->n - at);
      f->n += len;
      break;
    default: { /* a word over what is there, or in */
      uint32_t w = draw(sizeof words / sizeof *words);
      len = w < 3 ? 4 : strlen(words[w]);
      if (at + len > f->n) break;
      if (w > 2 && draw(2) && f->n + len <= MOST) {
        memmove(f->b + at + len, f->b + at, f->n - at);
        f->n += len;
      }
      memcpy(f->b + at, words[w], len);
    }
    }
  }
}

/* Sums of a png are set right, or nothing behind them is reached. */
static void mend(File *f) {
  for (size_t at = 8; f->n > 8 && f->b[0] == 0x89 && f->n - at >= 12;) {
    size_t n = (size_t)f->b[at] << 24 | (size_t)f->b[at + 1] << 16 | (size_t)f->b[at + 2] << 8 |
               f->b[at + 3];
    if (n > f->n - at - 12) return;
    uint32_t c = crc_of(f->b + at + 4, n + 4);
    for (size_t i = 0; i < 4; i++) f->b[at + 8 + n + i] = (unsigned char)(c >> (24 - 8 * i));
    at += 12 + n;
  }
}

static bool try_one(int k, const File *file, long *read) {
  Failing f;
  Mem m;
  Err e = {.text = ""};
  failing_init(&f, &m, draw(10) ? 0 : 1 + draw(12));
  unsigned char *copy = malloc(file->n ? file->n : 1); /* of the exact size, for ASan */
  memcpy(copy, file->b, file->n);
  Tensor *t = formats[k].read(&m, copy, file->n, &e);
  free(copy);
  bool good = true;
  if (!t) {
    good = e.text[0] && !strchr(e.text, '\n');
  } else {
    ++*read;
    good = tn_bytes(t) <= (int64_t)file->n * formats[k].most;
    for (int64_t i = 0; i < tn_count(t); i++) tn_get_f64(t, i); /* all of it is there */
  }
  tn_unref(t);
  return good && failing_clean(&f, &m);
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  printf("seed %" PRIu64 "\n", state);
  for (int i = 0; i < 50; i++) draw(2);
  time_t start = time(NULL);
  long count[FORMATS] = {0}, read[FORMATS] = {0};
  while (difftime(time(NULL), start) < seconds) {
    int k = (int)draw(FORMATS);
    File f = {.n = 0};
    formats[k].make(&f);
    mutate(&f);
    if (draw(8)) mend(&f);
    count[k]++;
    if (try_one(k, &f, &read[k])) continue;
    printf("a find, %s, %zu bytes:\n", formats[k].name, f.n);
    for (size_t i = 0; i < f.n; i++) printf("%02x%s", f.b[i], i % 32 == 31 ? "\n" : " ");
    printf("\n");
    return 1;
  }
  for (int k = 0; k < FORMATS; k++)
    printf("%s: %ld inputs, %ld of them read\n", formats[k].name, count[k], read[k]);
  return 0;
}
