/* fuzz-save SECONDS [SEED]: mutated saved files into the reader.
 *
 * What is read must write and read back the same; what is refused must say why; nothing may leak. A
 * find is printed with its bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/save.h"
#include "tests/unit/failing.h"

enum { MOST = 4096 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static size_t build(unsigned char *out, const char *header, size_t data) {
  uint64_t n = strlen(header);
  memcpy(out, &n, 8);
  memcpy(out + 8, header, n);
  for (size_t i = 0; i < data; i++) out[8 + n + i] = (unsigned char)draw(256);
  return 8 + (size_t)n + data;
}

static const struct {
  const char *header;
  size_t data;
} seeds[] = {
    {"{}", 0},
    {"{\"__metadata__\":{\"format\":\"ckl\",\"a\":\"\\u00e9\"},"
     "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],"
     "\"data_offsets\":[0,24]},\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}   ",
     32},
    {"{\"a.0.w\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
     "\"a.0.b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
     "\"c\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[16,19]},"
     "\"none\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[19,19]}}",
     19},
};

static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    "\\u0000",
    "\\u0041",
    "\\ud800",
    "0",
    "1",
    "2",
    "8",
    "-1",
    "1e9",
    "1e300",
    "9007199254740993",
    "18446744073709551616",
    "0.5",
    "null",
    "true",
    "F32",
    "F64",
    "U32",
    "I8",
    "BOOL",
    "F16",
    "shape",
    "dtype",
    "data_offsets",
    "__metadata__",
    " ",
    "{}",
    "[]",
    "[0,8]",
    "\"w\":",
    "4294967296,4294967296",
    "[[[[",
    "\"\"",
    "\xff",
    "a",
    "w",
};

static size_t mutate(unsigned char *b, size_t n) {
  for (uint32_t k = 1 + draw(6); k > 0; k--) {
    size_t at = n ? draw((uint32_t)n) : 0;
    switch (draw(8)) {
    case 0:
      if (n) b[at] = (unsigned char)draw(256);
      break;
    case 1:
      if (n) b[at] ^= (unsigned char)(1u << draw(8));
      break;
    case 2: /* cut a piece out */
      if (n) {
        size_t len = 1 + draw(draw(4) ? 4 : (uint32_t)n);
        if (len > n - at) len = n - at;
        memmove(b + at, b + at + len, n - at - len);
        n -= len;
      }
      break;
    case 3: { /* repeat a piece */
      size_t len = n - at < 40 ? n - at : draw(40);
      if (n + len > MOST) break;
      memmove(b + at + len, b + at, n - at);
      n += len;
      break;
    }
    case 4:
    case 5: { /* a word in */
      const char *w = words[draw(sizeof words / sizeof *words)];
      size_t len = strlen(w);
      if (n + len > MOST) break;
      memmove(b + at + len, b + at, n - at);
      memcpy(b + at, w, len);
      n += len;
      break;
    }
    case 6: { /* a word over what is there */
      const char *w = words[draw(sizeof words / sizeof *words)];
      size_t len = strlen(w);
      if (at + len <= n) memcpy(b + at, w, len);
      break;
    }
    default: /* the length of the header set right, or nearly */
      if (n >= 8) {
        uint64_t len = 0;
        while (len < n - 8 && b[8 + len] != 0) len++;
        if (draw(2)) len = draw((uint32_t)n);
        memcpy(b, &len, 8);
      }
    }
  }
  return n;
}

/* Keeps the header's length in step with the header most of the time, or nothing else is
 * reached. */
static size_t one_input(unsigned char *b) {
  uint32_t k = draw(sizeof seeds / sizeof *seeds);
  if (draw(3) == 0) return mutate(b, build(b, seeds[k].header, seeds[k].data));
  unsigned char text[MOST + 1];
  size_t n = strlen(seeds[k].header);
  memcpy(text, seeds[k].header, n);
  n = mutate(text, n);
  if (n > MOST - 100) n = MOST - 100;
  uint64_t length = n;
  memcpy(b, &length, 8);
  memcpy(b + 8, text, n);
  size_t data = draw(4) ? seeds[k].data : draw(64);
  memset(b + 8 + n, (int)draw(256), data);
  return 8 + n + data;
}

static bool try_one(const unsigned char *bytes, size_t n, bool files, const char *file,
                    long *read) {
  Failing f;
  Mem m;
  SaveFile r, again;
  Err e = {.text = ""};
  failing_init(&f, &m, draw(20) ? 0 : 1 + draw(12));
  unsigned char *copy = malloc(n ? n : 1); /* of the exact size, for ASan */
  memcpy(copy, bytes, n);
  bool ok = save_parse(&m, "x", copy, n, &r, &e), good = true;
  free(copy);
  f.nth = 0;
  if (!ok) {
    good = e.text[0] != 0;
  } else {
    ++*read;
    if (files) {
      good = save_write(&m, file, r.entries, r.count, r.meta, r.meta_count, &e);
      if (!good && strstr(e.text, "UTF-8")) { /* metadata are read as they are */
        good = true;
      } else if (!good && strstr(e.text, "given twice")) {
        good = true;
      } else if (good && (good = save_read(&m, file, false, &again, &e))) {
        good = again.count == r.count && again.meta_count == r.meta_count;
        for (size_t i = 0; good && i < r.count; i++) {
          Tensor *t = save_find(&again, r.entries[i].path);
          good = t && tn_same(t, r.entries[i].t);
        }
        save_close(&again);
      }
      if (!good) printf("%s\n", e.text);
    }
    save_close(&r);
  }
  return good && failing_clean(&f, &m);
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  char file[64];
  snprintf(file, sizeof file, "fuzz-save.%" PRIu64 ".tmp", state);
  printf("seed %" PRIu64 "\n", state);
  for (int i = 0; i < 50; i++) draw(2);
  time_t start = time(NULL);
  long count = 0, read = 0;
  static unsigned char bytes[2 * MOST + 256];
  for (; difftime(time(NULL), start) < seconds; count++) {
    size_t n = one_input(bytes);
    if (try_one(bytes, n, count % 50 == 0, file, &read)) continue;
    printf("input %ld is a find, %zu bytes:\n", count, n);
    for (size_t i = 0; i < n; i++) printf("%02x%s", bytes[i], i % 32 == 31 ? "\n" : " ");
    printf("\n");
    return 1;
  }
  remove(file);
  printf("%ld inputs, %ld of them read\n", count, read);
  return 0;
}
