/* fuzz-csv SECONDS [SEED]: mutated tables into the reader.
 *
 * A table that is read has as many numbers as a simple count of its fields allows; one that is
 * refused says why; nothing may leak. A find is printed with its text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/csv.h"
#include "tests/unit/failing.h"

enum { MOST = 2048 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static const char *const seeds[] = {
    "1,2,3\n4,5,6\n",
    "a;b;c\r\n1;2;3\r\n4;5;6\r\n",
    "1\t2\t3\n4\t5\t6\n",
    "# numbers\n1 2 3\n 4 5 6 # more\n",
    "\"x\",\"y\"\n\"1.5\",\"2e-3\"\n\n-inf,nan\n",
    "\357\273\2771\n2\n3",
    "",
};

static const char *const words[] = {
    "\n",
    "\r\n",
    "\r",
    ",",
    ";",
    "\t",
    " ",
    "\"",
    "#",
    "1",
    "-2.5",
    "1e5",
    "1e-400",
    "nan",
    "inf",
    "-",
    "+",
    ".",
    "e",
    "x",
    "\"\"",
    "\"1\"",
    "\xff",
    "\xc3\xa9",
    "\xef\xbb\xbf",
    "0x1",
    "1_0",
    "99999999999999999999",
    "0.1000000000000000055511151231257827021181583404541015625",
    ",,,",
    "\n\n",
    "\t\t",
    "  ",
    "# c",
    "1,2,3\n",
    "4 5 6\n",
    "\"a,b\"",
};

static size_t mutate(char *b, size_t n) {
  for (uint32_t k = draw(8); k > 0; k--) {
    size_t at = n ? draw((uint32_t)n + 1) : 0, len;
    switch (draw(5)) {
    case 0:
      if (at < n) b[at] = (char)draw(256);
      break;
    case 1:
      len = n - at < 12 ? n - at : draw(12);
      memmove(b + at, b + at + len, n - at - len);
      n -= len;
      break;
    case 2:
      len = n - at < 60 ? n - at : draw(60);
      if (n + len > MOST) break;
      memmove(b + at + len, b + at, n - at);
      n += len;
      break;
    default: {
      const char *w = words[draw(sizeof words / sizeof *words)];
      len = strlen(w);
      if (n + len > MOST) break;
      memmove(b + at + len, b + at, n - at);
      memcpy(b + at, w, len);
      n += len;
    }
    }
  }
  return n;
}

static bool try_one(const char *text, size_t n, long *read) {
  static const DType dtypes[] = {DT_F32, DT_F64, DT_I64};
  Failing f;
  Mem m;
  Err e = {.text = ""};
  failing_init(&f, &m, draw(20) ? 0 : 1 + draw(4));
  char *copy = malloc(n ? n : 1); /* of the exact size, for ASan */
  memcpy(copy, text, n);
  Tensor *t = csv_parse(&m, "x", copy, n, dtypes[draw(3)], &e);
  free(copy);
  bool good = true;
  if (!t) {
    good = e.text[0] && !memchr(e.text, '\n', strlen(e.text));
  } else {
    ++*read;
    good = t->rank == 2 && t->dim[0] > 0 && t->dim[1] > 0 && tn_count(t) <= (int64_t)(n + 1) / 2;
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
  long count = 0, read = 0;
  static char text[MOST + 128];
  for (; difftime(time(NULL), start) < seconds; count++) {
    const char *seed = seeds[draw(sizeof seeds / sizeof *seeds)];
    size_t n = strlen(seed);
    memcpy(text, seed, n);
    n = mutate(text, n);
    if (try_one(text, n, &read)) continue;
    printf("input %ld is a find, %zu bytes:\n", count, n);
    for (size_t i = 0; i < n; i++)
      printf("%02x%s", (unsigned char)text[i], i % 32 == 31 ? "\n" : " ");
    printf("\n%.*s\n", (int)n, text);
    return 1;
  }
  printf("%ld inputs, %ld of them read\n", count, read);
  return 0;
}
